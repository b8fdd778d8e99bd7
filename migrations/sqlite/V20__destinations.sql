-- Where an attempt went to and as whom, as digests: a key, and a look whether it happened, count only there. Attempts of before say nothing.
ALTER TABLE tool_attempts ADD COLUMN destination_json TEXT;

DROP TRIGGER tool_attempts_end_once;
CREATE TRIGGER tool_attempts_end_once
AFTER UPDATE ON tool_attempts
WHEN (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS 'lost' AND NEW.outcome IS 'replied' AND NEW.ended_at IS NOT NULL)) OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
  OR NEW.started_at <> OLD.started_at OR NEW.destination_json IS NOT OLD.destination_json
BEGIN
  SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
END;
