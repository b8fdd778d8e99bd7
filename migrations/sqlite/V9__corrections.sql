-- A person's word that puts the record of a call right, whatever it says: who, when, why. The call has the newest, its history all of them.
ALTER TABLE tool_calls ADD COLUMN correction_json TEXT;
ALTER TABLE tool_call_events ADD COLUMN correction_json TEXT;
-- When a record of the run's lineage was last corrected, so that whoever drives the run tells its model.
ALTER TABLE runs ADD COLUMN corrected_at TEXT;
-- Why nobody has to answer a question any more that something else than its answer closed.
ALTER TABLE questions ADD COLUMN closed_because TEXT;

CREATE INDEX idx_tool_calls_answered_by ON tool_calls (deduplicated_from) WHERE deduplicated_from IS NOT NULL;

-- What has come to an end moves on by a person's word only, and that word is stored with the move.
DROP TRIGGER tool_calls_move_legally;
CREATE TRIGGER tool_calls_move_legally
BEFORE UPDATE OF status, failure_kind ON tool_calls
WHEN NEW.status || coalesce('_' || NEW.failure_kind, '') <> OLD.status || coalesce('_' || OLD.failure_kind, '')
  AND (OLD.status || coalesce('_' || OLD.failure_kind, ''), NEW.status || coalesce('_' || NEW.failure_kind, '')) NOT IN (
    VALUES ('prepared', 'running'), ('prepared', 'succeeded'), ('prepared', 'cancelled'),
           ('running', 'succeeded'), ('running', 'failed_definite'), ('running', 'failed_reported'), ('running', 'unknown'),
           ('failed_definite', 'running'),
           ('unknown', 'running'), ('unknown', 'succeeded'), ('unknown', 'failed_definite'), ('unknown', 'failed_reported'))
  AND NOT (NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json
    AND (OLD.status || coalesce('_' || OLD.failure_kind, ''), NEW.status || coalesce('_' || NEW.failure_kind, '')) IN (
      VALUES ('succeeded', 'failed_definite'), ('succeeded', 'unknown'),
             ('failed_definite', 'succeeded'), ('failed_definite', 'unknown'),
             ('failed_reported', 'succeeded'), ('failed_reported', 'failed_definite'), ('failed_reported', 'unknown')))
BEGIN
  SELECT RAISE(ABORT, 'a tool call does not move that way');
END;

CREATE TRIGGER tool_calls_are_as_corrected
BEFORE UPDATE OF correction_json ON tool_calls
WHEN NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json
  AND (coalesce(NEW.correction_json ->> '$.by', '') = '' OR trim(coalesce(NEW.correction_json ->> '$.reason', '')) = ''
    OR OLD.status IN ('prepared', 'cancelled')
    OR NEW.correction_json ->> '$.was' IS NOT OLD.status || coalesce('_' || OLD.failure_kind, '')
    OR (coalesce(NEW.correction_json ->> '$.outcome', ''), NEW.status || coalesce('_' || NEW.failure_kind, ''), coalesce(NEW.resolution, '')) NOT IN (
      VALUES ('happened', 'succeeded', 'happened'), ('not_happened', 'failed_definite', 'not_happened'), ('skipped', 'unknown', 'skipped')))
BEGIN
  SELECT RAISE(ABORT, 'a correction says who, why, what was recorded and what it came to');
END;

CREATE TRIGGER tool_calls_keep_their_correction
BEFORE UPDATE OF correction_json ON tool_calls
WHEN OLD.correction_json IS NOT NULL AND NEW.correction_json IS NULL AND NEW.status <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'a correction stands until another one, or until the call is sent again');
END;

DROP TRIGGER tool_calls_note_change;
CREATE TRIGGER tool_calls_note_change
AFTER UPDATE OF status, failure_kind, correction_json ON tool_calls
WHEN NEW.status || coalesce('_' || NEW.failure_kind, '') <> OLD.status || coalesce('_' || OLD.failure_kind, '')
  OR (NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json)
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at, correction_json)
  VALUES (NEW.tool_call_id, OLD.status || coalesce('_' || OLD.failure_kind, ''),
          NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at,
          CASE WHEN NEW.correction_json IS NOT OLD.correction_json THEN NEW.correction_json END);
END;

DROP TRIGGER tool_call_events_are_immutable;
CREATE TRIGGER tool_call_events_are_immutable
BEFORE UPDATE ON tool_call_events
WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL OR NEW.event_seq <> OLD.event_seq
  OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at OR NEW.correction_json IS NOT OLD.correction_json
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;
