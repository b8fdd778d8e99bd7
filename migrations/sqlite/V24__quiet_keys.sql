-- The key of a call that ends well stays where it lies. Its index named the status, so that each call was taken out of it and put back when it was
-- settled. That a call holds its key is the same as that it was attempted and has not failed: the checks of the table say so.
DROP INDEX idx_tool_calls_key;
CREATE UNIQUE INDEX idx_tool_calls_key ON tool_calls (idempotency_key) WHERE attempt > 0 AND failure_kind IS NULL;
