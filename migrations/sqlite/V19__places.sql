-- Turns, requests and messages lie by run, as checkpoints do: 2^28 places belong to each. What a row is found by is its place, so that a table
-- needs no index besides, and a row that is added goes behind the last one without moving any. That a place is of the row's run a reference says,
-- so that of one run and one number there still is one row. What is stored, and what may be stored, does not change.
CREATE UNIQUE INDEX idx_runs_place ON runs (run_id, seq);

CREATE TABLE turns_19 (
  place          INTEGER PRIMARY KEY,
  run_id         TEXT NOT NULL,
  of_run         INTEGER NOT NULL GENERATED ALWAYS AS (place >> 28) VIRTUAL,
  turn           INTEGER NOT NULL CHECK (turn > 0),
  step_id        TEXT NOT NULL REFERENCES run_steps (step_id),
  request_sha256 TEXT NOT NULL,
  stop_reason    TEXT NOT NULL,
  model          TEXT NOT NULL,
  response_id    TEXT,
  usage_json     TEXT,
  recorded_at    TEXT NOT NULL,
  committed_at   TEXT,
  lease_epoch    INTEGER NOT NULL,
  CHECK (place & 268435455 = turn),
  FOREIGN KEY (run_id, of_run) REFERENCES runs (run_id, seq)
) STRICT;

INSERT INTO turns_19 (place, run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, recorded_at, committed_at,
  lease_epoch)
SELECT (SELECT r.seq << 28 FROM runs r WHERE r.run_id = t.run_id) + t.turn, t.run_id, t.turn, t.step_id, t.request_sha256, t.stop_reason, t.model,
  t.response_id, t.usage_json, t.recorded_at, t.committed_at, t.lease_epoch
FROM turns t ORDER BY 1;

DROP TABLE turns;
ALTER TABLE turns_19 RENAME TO turns;

CREATE TRIGGER turns_one_is_open
BEFORE INSERT ON turns
WHEN EXISTS (SELECT 1 FROM (SELECT turn, committed_at FROM turns
                            WHERE place BETWEEN NEW.place >> 28 << 28 AND NEW.place | 268435455 ORDER BY place DESC LIMIT 1)
             WHERE committed_at IS NULL OR turn >= NEW.turn)
BEGIN
  SELECT RAISE(ABORT, 'a turn begins behind the newest, and when that is committed');
END;

CREATE TRIGGER turns_stay_committed
AFTER UPDATE OF place, run_id, turn, committed_at ON turns
WHEN NEW.place <> OLD.place OR NEW.run_id <> OLD.run_id OR NEW.turn <> OLD.turn
  OR (OLD.committed_at IS NOT NULL AND NEW.committed_at IS NULL)
BEGIN
  SELECT RAISE(ABORT, 'a turn keeps its place, and stays committed');
END;

CREATE TABLE usage_19 (
  place                  INTEGER PRIMARY KEY,
  run_id                 TEXT NOT NULL,
  of_run                 INTEGER NOT NULL GENERATED ALWAYS AS (place >> 28) VIRTUAL,
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
  status                 TEXT NOT NULL CHECK (status = 'reserved' OR status = 'actual' OR status = 'partial' OR status = 'baseline' OR status = 'zero'),
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
  CHECK (place & 268435455 = request_id),
  CHECK ((status = 'reserved') = (closed_at IS NULL)),
  CHECK ((cost_nanos IS NULL) = (currency IS NULL)),
  CHECK ((cost_nanos IS NOT NULL) = (price_json IS NOT NULL AND closed_at IS NOT NULL)),
  CHECK (status = 'zero' OR network_attempted = 1),
  FOREIGN KEY (run_id, of_run) REFERENCES runs (run_id, seq)
) STRICT;

INSERT INTO usage_19 (place, run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens,
  reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency,
  reserved_at, closed_at, response_id, continued_from, heard_json)
SELECT (SELECT r.seq << 28 FROM runs r WHERE r.run_id = u.run_id) + u.request_id, u.run_id, u.request_id, u.turn, u.request_sha256, u.provider,
  u.model, u.network_attempted, u.estimator, u.estimated_tokens, u.reserved_output_tokens, u.price_json, u.status, u.input_tokens,
  u.output_tokens, u.cache_read_tokens, u.cache_write_tokens, u.cost_nanos, u.currency, u.reserved_at, u.closed_at, u.response_id,
  u.continued_from, u.heard_json
FROM usage u ORDER BY 1;

DROP TABLE usage;
ALTER TABLE usage_19 RENAME TO usage;

CREATE TRIGGER usage_is_charged_once
AFTER UPDATE ON usage
WHEN OLD.closed_at IS NOT NULL OR NEW.place <> OLD.place OR NEW.run_id <> OLD.run_id OR NEW.request_id <> OLD.request_id OR NEW.turn <> OLD.turn
  OR NEW.request_sha256 <> OLD.request_sha256 OR NEW.model <> OLD.model OR NEW.provider <> OLD.provider
  OR NEW.price_json IS NOT OLD.price_json OR NEW.estimated_tokens <> OLD.estimated_tokens
BEGIN
  SELECT RAISE(ABORT, 'a request is charged once, at the price it was reserved with');
END;

CREATE TRIGGER usage_names_one_reply
AFTER UPDATE OF response_id, continued_from ON usage
WHEN NEW.continued_from IS NOT OLD.continued_from
  OR (OLD.response_id IS NOT NULL AND NEW.response_id IS NOT OLD.response_id)
BEGIN
  SELECT RAISE(ABORT, 'a request continues from one reply and brings one');
END;

CREATE TABLE messages_19 (
  place        INTEGER PRIMARY KEY,
  run_id       TEXT NOT NULL,
  of_run       INTEGER NOT NULL GENERATED ALWAYS AS (place >> 28) VIRTUAL,
  seq          INTEGER NOT NULL CHECK (seq > 0),
  turn         INTEGER NOT NULL,
  created_at   TEXT NOT NULL,
  role         TEXT NOT NULL CHECK (role = 'user' OR role = 'assistant'),
  origin       TEXT NOT NULL,
  message_json TEXT NOT NULL,
  CHECK (place & 268435455 = seq),
  FOREIGN KEY (run_id, of_run) REFERENCES runs (run_id, seq)
) STRICT;

INSERT INTO messages_19 (place, run_id, seq, turn, created_at, role, origin, message_json)
SELECT (SELECT r.seq << 28 FROM runs r WHERE r.run_id = m.run_id) + m.seq, m.run_id, m.seq, m.turn, m.created_at, m.role, m.origin, m.message_json
FROM messages m ORDER BY 1;

DROP TABLE messages;
ALTER TABLE messages_19 RENAME TO messages;

-- What refuses a change looks at it when it is made, in the same statement: one that looks before has SQLite read each column of the row twice.
DROP TRIGGER runs_counters_only_rise;
CREATE TRIGGER runs_counters_only_rise
AFTER UPDATE ON runs
WHEN NEW.lease_epoch < OLD.lease_epoch OR NEW.turn_index < OLD.turn_index OR NEW.turn_index > OLD.turn_index + 1
BEGIN
  SELECT RAISE(ABORT, 'epoch and turn index of a run only rise, the turn index by one');
END;

DROP TRIGGER runs_stay_terminal;
CREATE TRIGGER runs_stay_terminal
AFTER UPDATE OF status ON runs
WHEN NEW.status <> OLD.status AND (OLD.status = 'succeeded' OR OLD.status = 'failed' OR OLD.status = 'cancelled')
BEGIN
  SELECT RAISE(ABORT, 'a terminal run keeps its status');
END;

DROP TRIGGER tool_calls_succeed_unsent_only_as_duplicates;
CREATE TRIGGER tool_calls_succeed_unsent_only_as_duplicates
AFTER UPDATE OF status ON tool_calls
WHEN OLD.status = 'prepared' AND NEW.status = 'succeeded' AND NEW.deduplicated_from IS NULL
BEGIN
  SELECT RAISE(ABORT, 'a tool call that was never sent succeeds only by the receipt of another');
END;

DROP TRIGGER tool_calls_keep_their_key;
CREATE TRIGGER tool_calls_keep_their_key
AFTER UPDATE OF idempotency_key ON tool_calls
WHEN OLD.idempotency_key IS NOT NULL AND NEW.idempotency_key IS NOT OLD.idempotency_key
  AND NOT (OLD.status = 'failed' AND OLD.failure_kind = 'definite' AND OLD.doubt IS NULL AND NEW.status = 'running')
BEGIN
  SELECT RAISE(ABORT, 'a tool call keeps its idempotency key');
END;

DROP TRIGGER tool_calls_in_doubt_have_not_failed;
CREATE TRIGGER tool_calls_in_doubt_have_not_failed
AFTER UPDATE ON tool_calls
WHEN NEW.doubt IS NOT NULL AND (NEW.status IN ('prepared', 'cancelled') OR NEW.failure_kind = 'definite'
  OR (NEW.failure_kind = 'reported' AND NEW.possible_effect = 'none'))
BEGIN
  SELECT RAISE(ABORT, 'a tool call of which an attempt is in doubt may have happened');
END;

DROP TRIGGER tool_calls_are_as_corrected;
CREATE TRIGGER tool_calls_are_as_corrected
AFTER UPDATE OF correction_json ON tool_calls
WHEN NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json
  AND (coalesce(NEW.correction_json ->> '$.by', '') = '' OR trim(coalesce(NEW.correction_json ->> '$.reason', '')) = ''
    OR OLD.status IN ('prepared', 'cancelled')
    OR NEW.correction_json ->> '$.was' IS NOT OLD.status || coalesce('_' || OLD.failure_kind, '')
    OR (coalesce(NEW.correction_json ->> '$.outcome', ''), NEW.status || coalesce('_' || NEW.failure_kind, ''), coalesce(NEW.resolution, '')) NOT IN (
      VALUES ('happened', 'succeeded', 'happened'), ('not_happened', 'failed_definite', 'not_happened'), ('skipped', 'unknown', 'skipped')))
BEGIN
  SELECT RAISE(ABORT, 'a correction says who, why, what was recorded and what it came to');
END;

DROP TRIGGER tool_calls_keep_their_correction;
CREATE TRIGGER tool_calls_keep_their_correction
AFTER UPDATE OF correction_json ON tool_calls
WHEN OLD.correction_json IS NOT NULL AND NEW.correction_json IS NULL AND NEW.status <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'a correction stands until another one, or until the call is sent again');
END;

DROP TRIGGER tool_calls_move_legally;
CREATE TRIGGER tool_calls_move_legally
AFTER UPDATE OF status, failure_kind ON tool_calls
WHEN (NEW.status <> OLD.status OR NEW.failure_kind IS NOT OLD.failure_kind)
  AND NOT CASE OLD.status || coalesce('_' || OLD.failure_kind, '')
    WHEN 'prepared' THEN NEW.status = 'running' OR NEW.status = 'succeeded' OR NEW.status = 'cancelled'
    WHEN 'running' THEN NEW.status = 'succeeded' OR NEW.status = 'failed' OR NEW.status = 'unknown'
    WHEN 'failed_definite' THEN NEW.status = 'running'
    WHEN 'unknown' THEN NEW.status = 'running' OR NEW.status = 'succeeded' OR NEW.status = 'failed'
    ELSE FALSE END
  AND NOT (NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json
    AND CASE OLD.status || coalesce('_' || OLD.failure_kind, '')
      WHEN 'succeeded' THEN (NEW.status = 'failed' AND NEW.failure_kind = 'definite') OR NEW.status = 'unknown'
      WHEN 'failed_definite' THEN NEW.status = 'succeeded' OR NEW.status = 'unknown'
      WHEN 'failed_reported' THEN NEW.status = 'succeeded' OR (NEW.status = 'failed' AND NEW.failure_kind = 'definite') OR NEW.status = 'unknown'
      ELSE FALSE END)
BEGIN
  SELECT RAISE(ABORT, 'a tool call does not move that way');
END;

-- What was taken for lost may turn out to have been answered: its reply was kept beside the database.
DROP TRIGGER tool_attempts_end_once;
CREATE TRIGGER tool_attempts_end_once
AFTER UPDATE ON tool_attempts
WHEN (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS 'lost' AND NEW.outcome IS 'replied' AND NEW.ended_at IS NOT NULL)) OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
  OR NEW.started_at <> OLD.started_at
BEGIN
  SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
END;

DROP TRIGGER tool_calls_start_unsent;
CREATE TRIGGER tool_calls_start_unsent
AFTER INSERT ON tool_calls
WHEN NEW.status <> 'prepared' AND NEW.status <> 'cancelled'
BEGIN
  SELECT RAISE(ABORT, 'a tool call starts prepared, or cancelled when it is refused at once');
END;

-- An event is linked once, and nothing else of it ever changes. The statement that links it is not held against each of its columns.
DROP TRIGGER tool_call_events_are_immutable;

CREATE TRIGGER tool_call_events_are_immutable
AFTER UPDATE OF event_seq, tool_call_id, from_status, to_status, lease_epoch, at, run_id, correction_json ON tool_call_events
WHEN NEW.event_seq <> OLD.event_seq OR NEW.run_id IS NOT OLD.run_id
  OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at OR NEW.correction_json IS NOT OLD.correction_json
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;

CREATE TRIGGER tool_call_events_are_linked_once
AFTER UPDATE OF chain ON tool_call_events
WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;

-- A call says which receipt it has; when it does so already, its row is not written once more.
DROP TRIGGER tool_receipts_note_response;

CREATE TRIGGER tool_receipts_note_response
AFTER INSERT ON tool_receipts
WHEN (SELECT response_ref FROM tool_calls WHERE tool_call_id = NEW.tool_call_id) IS NOT 'tool_receipts/' || NEW.receipt_seq
BEGIN
  UPDATE tool_calls SET response_ref = 'tool_receipts/' || NEW.receipt_seq WHERE tool_call_id = NEW.tool_call_id;
END;
