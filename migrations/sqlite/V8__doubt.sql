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

-- A call that was called failed because of what a later attempt came to, although an earlier one was lost: nobody knows whether it happened.
-- Where its turn is over it goes on blocking what might repeat it. The events of this change are linked when the database is opened.
INSERT INTO meta (key, value) SELECT 'events_linked_up_to', coalesce(max(event_seq), 0) FROM tool_call_events;
DROP TRIGGER tool_calls_move_legally;
UPDATE tool_calls SET status = 'unknown', failure_kind = NULL,
    doubt = (SELECT min(a.attempt) FROM tool_attempts a WHERE a.tool_call_id = tool_calls.tool_call_id AND a.outcome = 'lost'),
    resolution = (SELECT 'skipped' FROM turns t WHERE t.run_id = tool_calls.run_id AND t.turn = tool_calls.turn
                    AND t.committed_at IS NOT NULL),
    error_detail = 'an attempt was sent and nobody knows what came of it; a later one did nothing: ' || coalesce(error_detail, error_code, '')
  WHERE status = 'failed' AND failure_kind = 'definite' AND resolution IS NULL AND side_effect_class IN ('local', 'external')
    AND replay_policy IN ('redo_keyed', 'hold', 'continue') AND deduplicated_from IS NULL
    AND EXISTS (SELECT 1 FROM tool_attempts a WHERE a.tool_call_id = tool_calls.tool_call_id AND a.outcome = 'lost'
                  AND a.attempt < tool_calls.attempt)
    AND NOT EXISTS (SELECT 1 FROM tool_calls o WHERE o.idempotency_key = tool_calls.idempotency_key
                      AND o.tool_call_id <> tool_calls.tool_call_id AND o.status IN ('running', 'unknown', 'succeeded'))
    AND NOT EXISTS (SELECT 1 FROM questions q JOIN answers w ON w.question_id = q.question_id
                      WHERE q.tool_call_id = tool_calls.tool_call_id AND w.choice IN ('execute', 'continue', 'happened'));
CREATE TRIGGER tool_calls_move_legally
BEFORE UPDATE OF status, failure_kind ON tool_calls
WHEN NEW.status || coalesce('_' || NEW.failure_kind, '') <> OLD.status || coalesce('_' || OLD.failure_kind, '')
  AND (OLD.status || coalesce('_' || OLD.failure_kind, ''), NEW.status || coalesce('_' || NEW.failure_kind, '')) NOT IN (
    VALUES ('prepared', 'running'), ('prepared', 'succeeded'), ('prepared', 'cancelled'),
           ('running', 'succeeded'), ('running', 'failed_definite'), ('running', 'failed_reported'), ('running', 'unknown'),
           ('failed_definite', 'running'),
           ('unknown', 'running'), ('unknown', 'succeeded'), ('unknown', 'failed_definite'), ('unknown', 'failed_reported'))
BEGIN
  SELECT RAISE(ABORT, 'a tool call does not move that way');
END;

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

-- An abort that was answered and not acted on yet.
UPDATE runs SET
  abort_requested_at = (SELECT a.answered_at FROM answers a JOIN questions q ON q.question_id = a.question_id
                        WHERE q.run_id = runs.run_id AND q.status = 'answered' AND a.choice = 'abort' ORDER BY q.seq LIMIT 1),
  abort_question = (SELECT q.question_id FROM answers a JOIN questions q ON q.question_id = a.question_id
                    WHERE q.run_id = runs.run_id AND q.status = 'answered' AND a.choice = 'abort' ORDER BY q.seq LIMIT 1)
WHERE status NOT IN ('succeeded', 'failed', 'cancelled')
  AND EXISTS (SELECT 1 FROM answers a JOIN questions q ON q.question_id = a.question_id
              WHERE q.run_id = runs.run_id AND q.status = 'answered' AND a.choice = 'abort');

-- What a provider had counted, and what had arrived, while a reply was coming: a request that breaks off is charged at least that. Such a
-- request is `partial`, a word that the table's CHECK did not know; SQLite changes a CHECK only by making the table anew.
CREATE TABLE usage_8 (
  run_id                 TEXT NOT NULL REFERENCES runs (run_id),
  request_id             INTEGER NOT NULL CHECK (request_id > 0),
  turn                   INTEGER NOT NULL,
  request_sha256         TEXT NOT NULL,
  provider               TEXT NOT NULL,
  model                  TEXT NOT NULL,
  network_attempted      INTEGER NOT NULL DEFAULT 1 CHECK (network_attempted IN (0, 1)),
  estimator              TEXT NOT NULL,
  estimated_tokens       INTEGER NOT NULL,
  reserved_output_tokens INTEGER NOT NULL,
  price_json             TEXT,
  status                 TEXT NOT NULL CHECK (status IN ('reserved', 'actual', 'partial', 'baseline', 'zero')),
  input_tokens           INTEGER NOT NULL DEFAULT 0,
  output_tokens          INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens     INTEGER NOT NULL DEFAULT 0,
  cost_nanos             INTEGER,
  currency               TEXT,
  reserved_at            TEXT NOT NULL,
  closed_at              TEXT,
  -- The provider's name of the reply, as the first event of its stream said. Tentative: a turn has it once it is recorded.
  response_id            TEXT,
  -- The reply that the request continued from; empty when it carried the whole history.
  continued_from         TEXT,
  heard_json             TEXT,
  PRIMARY KEY (run_id, request_id),
  CHECK ((status = 'reserved') = (closed_at IS NULL)),
  CHECK ((cost_nanos IS NULL) = (currency IS NULL)),
  CHECK ((cost_nanos IS NOT NULL) = (price_json IS NOT NULL AND closed_at IS NOT NULL)),
  CHECK (status = 'zero' OR network_attempted = 1)
) STRICT;

INSERT INTO usage_8 (run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens,
  reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency,
  reserved_at, closed_at, response_id, continued_from)
SELECT run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens,
  reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency,
  reserved_at, closed_at, response_id, continued_from
FROM usage;

DROP TABLE usage;
ALTER TABLE usage_8 RENAME TO usage;

CREATE TRIGGER usage_is_charged_once
BEFORE UPDATE ON usage
WHEN OLD.closed_at IS NOT NULL OR NEW.run_id <> OLD.run_id OR NEW.request_id <> OLD.request_id OR NEW.turn <> OLD.turn
  OR NEW.request_sha256 <> OLD.request_sha256 OR NEW.model <> OLD.model OR NEW.provider <> OLD.provider
  OR NEW.price_json IS NOT OLD.price_json OR NEW.estimated_tokens <> OLD.estimated_tokens
BEGIN
  SELECT RAISE(ABORT, 'a request is charged once, at the price it was reserved with');
END;

CREATE TRIGGER usage_names_one_reply
BEFORE UPDATE ON usage
WHEN NEW.continued_from IS NOT OLD.continued_from
  OR (OLD.response_id IS NOT NULL AND NEW.response_id IS NOT OLD.response_id)
BEGIN
  SELECT RAISE(ABORT, 'a request continues from one reply and brings one');
END;
