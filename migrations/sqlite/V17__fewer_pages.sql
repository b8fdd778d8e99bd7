-- What a turn writes lies in fewer places. Each table and each index that a turn adds a row to is a page of the log; a row that is found by its
-- key needs no second one that says where it lies. What is stored, and what may be stored, does not change.

-- Turns, requests and attempts lie by their keys.
CREATE TABLE turns_17 (
  run_id         TEXT NOT NULL REFERENCES runs (run_id),
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
  PRIMARY KEY (run_id, turn)
) STRICT, WITHOUT ROWID;

INSERT INTO turns_17 (run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, recorded_at, committed_at, lease_epoch)
SELECT run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, recorded_at, committed_at, lease_epoch FROM turns;

DROP TABLE turns;
ALTER TABLE turns_17 RENAME TO turns;

-- One turn of a run is open, and it is the newest: an index said so before, which each turn was written to and taken out of again.
CREATE TRIGGER turns_one_is_open
BEFORE INSERT ON turns
WHEN EXISTS (SELECT 1 FROM (SELECT turn, committed_at FROM turns WHERE run_id = NEW.run_id ORDER BY turn DESC LIMIT 1)
             WHERE committed_at IS NULL OR turn >= NEW.turn)
BEGIN
  SELECT RAISE(ABORT, 'a turn begins behind the newest, and when that is committed');
END;

CREATE TRIGGER turns_stay_committed
BEFORE UPDATE OF run_id, turn, committed_at ON turns
WHEN NEW.run_id <> OLD.run_id OR NEW.turn <> OLD.turn OR (OLD.committed_at IS NOT NULL AND NEW.committed_at IS NULL)
BEGIN
  SELECT RAISE(ABORT, 'a turn keeps its place, and stays committed');
END;

CREATE TABLE usage_17 (
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
  PRIMARY KEY (run_id, request_id),
  CHECK ((status = 'reserved') = (closed_at IS NULL)),
  CHECK ((cost_nanos IS NULL) = (currency IS NULL)),
  CHECK ((cost_nanos IS NOT NULL) = (price_json IS NOT NULL AND closed_at IS NOT NULL)),
  CHECK (status = 'zero' OR network_attempted = 1)
) STRICT, WITHOUT ROWID;

INSERT INTO usage_17 (run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens,
  reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency,
  reserved_at, closed_at, response_id, continued_from, heard_json)
SELECT run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens,
  reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency,
  reserved_at, closed_at, response_id, continued_from, heard_json
FROM usage;

DROP TABLE usage;
ALTER TABLE usage_17 RENAME TO usage;

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

CREATE TABLE tool_attempts_17 (
  tool_call_id      TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  attempt           INTEGER NOT NULL CHECK (attempt > 0),
  lease_epoch       INTEGER NOT NULL,
  server_generation TEXT,
  started_at        TEXT NOT NULL,
  ended_at          TEXT,
  outcome           TEXT CHECK (outcome = 'replied' OR outcome = 'not_sent' OR outcome = 'lost'),
  detail            TEXT,
  -- What an attempt goes on with when a tool answered before it was done. Written while the attempt runs, never afterwards.
  handle_json       TEXT,
  PRIMARY KEY (tool_call_id, attempt),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

INSERT INTO tool_attempts_17 (tool_call_id, attempt, lease_epoch, server_generation, started_at, ended_at, outcome, detail, handle_json)
SELECT tool_call_id, attempt, lease_epoch, server_generation, started_at, ended_at, outcome, detail, handle_json FROM tool_attempts;

DROP TABLE tool_attempts;
ALTER TABLE tool_attempts_17 RENAME TO tool_attempts;

CREATE TRIGGER tool_attempts_end_once
BEFORE UPDATE ON tool_attempts
WHEN OLD.ended_at IS NOT NULL OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
  OR NEW.started_at <> OLD.started_at
BEGIN
  SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
END;

-- Checkpoints lie by run: 2^28 numbers belong to each. Those of before keep their order.
DROP INDEX idx_checkpoints_run;
UPDATE checkpoints SET seq = seq + (SELECT r.seq FROM runs r WHERE r.run_id = checkpoints.run_id) * 268435456;

-- An event says whose it is from the beginning, and has one index. Its number needs no table that keeps the largest that ever was, and that its
-- call exists follows from how it came to be.
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = replace(replace(sql,
    'INTEGER PRIMARY KEY AUTOINCREMENT', 'INTEGER PRIMARY KEY'),
    'tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id)', 'tool_call_id TEXT NOT NULL')
WHERE type = 'table' AND name = 'tool_call_events';

PRAGMA writable_schema = RESET;

DROP TRIGGER tool_call_events_are_immutable;
UPDATE tool_call_events SET run_id = (SELECT c.run_id FROM tool_calls c WHERE c.tool_call_id = tool_call_events.tool_call_id) WHERE run_id IS NULL;
CREATE TRIGGER tool_call_events_are_immutable
BEFORE UPDATE ON tool_call_events
WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL OR NEW.event_seq <> OLD.event_seq
  OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at OR NEW.correction_json IS NOT OLD.correction_json
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;

DROP INDEX idx_tool_call_events_call;
DROP INDEX idx_tool_call_events_chain;
CREATE INDEX idx_tool_call_events_run ON tool_call_events (run_id, event_seq);

DROP TRIGGER tool_calls_note_plan;
CREATE TRIGGER tool_calls_note_plan
AFTER INSERT ON tool_calls
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at, run_id)
  VALUES (NEW.tool_call_id, NULL, NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at, NEW.run_id);
END;

DROP TRIGGER tool_calls_note_change;
CREATE TRIGGER tool_calls_note_change
AFTER UPDATE OF status, failure_kind, correction_json ON tool_calls
WHEN NEW.status <> OLD.status OR NEW.failure_kind IS NOT OLD.failure_kind
  OR (NEW.correction_json IS NOT NULL AND NEW.correction_json IS NOT OLD.correction_json)
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at, correction_json, run_id)
  VALUES (NEW.tool_call_id, OLD.status || coalesce('_' || OLD.failure_kind, ''),
          NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at,
          CASE WHEN NEW.correction_json IS NOT OLD.correction_json THEN NEW.correction_json END, NEW.run_id);
END;
