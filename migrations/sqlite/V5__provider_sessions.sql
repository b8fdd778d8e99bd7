-- Provider session continuity (Durable runner, current state §9).

-- The provider's name of the reply, as the first event of its stream said. Tentative: a turn has it once it is recorded.
ALTER TABLE usage ADD COLUMN response_id TEXT;

-- The reply that the request continued from; empty when it carried the whole history.
ALTER TABLE usage ADD COLUMN continued_from TEXT;

CREATE TRIGGER usage_names_one_reply
BEFORE UPDATE ON usage
WHEN NEW.continued_from IS NOT OLD.continued_from
  OR (OLD.response_id IS NOT NULL AND NEW.response_id IS NOT OLD.response_id)
BEGIN
  SELECT RAISE(ABORT, 'a request continues from one reply and brings one');
END;
