-- What was taken for lost may turn out to have been answered: its reply was kept beside the database.
CREATE OR REPLACE FUNCTION tool_attempts_end_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS NOT DISTINCT FROM 'lost' AND NEW.outcome IS NOT DISTINCT FROM 'replied'
      AND NEW.ended_at IS NOT NULL))
    OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt OR NEW.lease_epoch <> OLD.lease_epoch
    OR NEW.server_generation IS DISTINCT FROM OLD.server_generation OR NEW.started_at <> OLD.started_at THEN
    PERFORM ua.refuse('an attempt ends once, and nothing else of it changes');
  END IF;
  RETURN NEW;
END $$;
