-- Doubt belongs to the call: the earliest of its attempts that may have had the effect, and of which nobody knows. It stands until a person,
-- a probe, or a success under its key says otherwise, whatever later attempts came to.
ALTER TABLE tool_calls ADD COLUMN doubt INTEGER;
-- The task that a sub-agent's run works on.
ALTER TABLE runs ADD COLUMN task_call_id TEXT;
-- A person's `abort`: from then on nothing is started in the run, until it has ended.
ALTER TABLE runs ADD COLUMN abort_requested_at TEXT;
ALTER TABLE runs ADD COLUMN abort_question TEXT;

-- A call that definitely did nothing may go out as another request: nothing was left under its key.
DROP TRIGGER tool_calls_keep_their_key;
CREATE TRIGGER tool_calls_keep_their_key
BEFORE UPDATE OF idempotency_key ON tool_calls
WHEN OLD.idempotency_key IS NOT NULL AND NEW.idempotency_key IS NOT OLD.idempotency_key
  AND NOT (OLD.status = 'failed' AND OLD.failure_kind = 'definite' AND OLD.doubt IS NULL AND NEW.status = 'running')
BEGIN
  SELECT RAISE(ABORT, 'a tool call keeps its idempotency key');
END;

-- What was there before: the earliest attempt that was lost, or whose answer left it open.
UPDATE tool_calls SET doubt = coalesce(
    (SELECT min(attempt) FROM tool_attempts a WHERE a.tool_call_id = tool_calls.tool_call_id AND a.outcome = 'lost'), attempt)
  WHERE status = 'unknown' AND side_effect_class <> 'read_only' AND replay_policy <> 'redo';
-- A call that is running again behind a lost attempt: a person's word would have ended the doubt, and left its mark.
UPDATE tool_calls SET doubt =
    (SELECT min(attempt) FROM tool_attempts a WHERE a.tool_call_id = tool_calls.tool_call_id AND a.outcome = 'lost'
       AND a.attempt < tool_calls.attempt)
  WHERE status = 'running' AND side_effect_class <> 'read_only' AND replay_policy <> 'redo' AND resolution IS NOT 'executed';
UPDATE runs SET task_call_id = (SELECT c.tool_call_id FROM tool_calls c WHERE c.run_id = runs.parent_run_id
    AND c.tool_call_id IN ('call_' || substr(runs.run_id, 10), substr(runs.run_id, 10)))
  WHERE run_mode = 'task' AND run_id LIKE 'run\_task\_%' ESCAPE '\';

-- While an attempt is in doubt no later one makes the call one that did not happen.
CREATE TRIGGER tool_calls_in_doubt_have_not_failed
BEFORE UPDATE ON tool_calls
WHEN NEW.doubt IS NOT NULL AND (NEW.status IN ('prepared', 'cancelled') OR NEW.failure_kind = 'definite'
  OR (NEW.failure_kind = 'reported' AND NEW.possible_effect = 'none'))
BEGIN
  SELECT RAISE(ABORT, 'a tool call of which an attempt is in doubt may have happened');
END;
