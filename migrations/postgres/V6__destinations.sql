-- Where an attempt went to and as whom, as digests: a key, and a look whether it happened, count only there. Attempts of before say nothing.
ALTER TABLE tool_attempts ADD COLUMN destination_json text COLLATE "C";

CREATE OR REPLACE FUNCTION tool_attempts_end_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS NOT DISTINCT FROM 'lost' AND NEW.outcome IS NOT DISTINCT FROM 'replied'
      AND NEW.ended_at IS NOT NULL))
    OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt OR NEW.lease_epoch <> OLD.lease_epoch
    OR NEW.server_generation IS DISTINCT FROM OLD.server_generation OR NEW.started_at <> OLD.started_at
    OR NEW.destination_json IS DISTINCT FROM OLD.destination_json THEN
    PERFORM ua.refuse('an attempt ends once, and nothing else of it changes');
  END IF;
  RETURN NEW;
END $$;
