-- The events of a run are chained: each carries a digest over the one before it and over itself, so that a row that somebody
-- edits, removes or puts elsewhere no longer fits. Events that were there before have none.
ALTER TABLE tool_call_events ADD COLUMN run_id TEXT;
ALTER TABLE tool_call_events ADD COLUMN chain TEXT;

CREATE INDEX idx_tool_call_events_chain ON tool_call_events (run_id, event_seq) WHERE chain IS NOT NULL;

-- Events are inserted by triggers, and linked before their transaction is committed: once, and nothing else about them changes.
DROP TRIGGER tool_call_events_are_immutable;
CREATE TRIGGER tool_call_events_are_immutable
BEFORE UPDATE ON tool_call_events
WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL OR NEW.event_seq <> OLD.event_seq
  OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;
