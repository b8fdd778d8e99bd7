-- A call of which an attempt is in doubt is in doubt whatever a later attempt came to: while that one is under way, and when it reported a
-- failure that may have had the effect.
DROP INDEX idx_tool_calls_doubts;
CREATE INDEX idx_tool_calls_doubts ON tool_calls (root_run_id, raw_tool_name) WHERE (status = 'unknown' OR doubt IS NOT NULL);
