-- Made of the migrations by a test of src/schema.rs, which says how it is made anew; nothing is written here by hand.

CREATE TABLE refinery_schema_history(
             version int4 PRIMARY KEY,
             name VARCHAR(255),
             applied_on VARCHAR(255),
             checksum VARCHAR(255));

CREATE TABLE meta (
  key   TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  seq                          INTEGER PRIMARY KEY,
  run_id                       TEXT NOT NULL UNIQUE,
  created_at                   TEXT NOT NULL,
  updated_at                   TEXT NOT NULL,
  status                       TEXT NOT NULL CHECK (status = 'queued' OR status = 'running' OR status = 'waiting_for_human' OR status = 'stopped' OR status = 'succeeded' OR status = 'failed' OR status = 'cancelled'),
  stop_reason                  TEXT CHECK ((stop_reason IS NOT NULL) = (status = 'stopped')),
  status_detail                TEXT,
  entrypoint                   TEXT NOT NULL,
  run_mode                     TEXT NOT NULL,
  run_spec_json                TEXT NOT NULL,
  job_path                     TEXT,
  job_key                      TEXT,
  last_job_prompt              TEXT NOT NULL,
  workspace_dir                TEXT NOT NULL,
  launch_json                  TEXT NOT NULL,
  root_run_id                  TEXT NOT NULL REFERENCES runs (run_id),
  parent_run_id                TEXT REFERENCES runs (run_id),
  provider_session_id          TEXT,
  provider_session_forked_from TEXT,
  current_step_id              TEXT REFERENCES run_steps (step_id),
  last_checkpoint_id           TEXT REFERENCES checkpoints (checkpoint_id),
  final_artifact_ref           TEXT,
  final_output                 TEXT,
  turn_index                   INTEGER NOT NULL DEFAULT 0 CHECK (turn_index >= 0),
  lease_epoch                  INTEGER NOT NULL DEFAULT 0 CHECK (lease_epoch >= 0),
  owner_json                   TEXT,
  cancel_requested_at          TEXT,
  cancel_reason                TEXT,
  iteration_count              INTEGER NOT NULL DEFAULT 0,
  max_iterations               INTEGER,
  completion_promise           TEXT,
  held_millis                  INTEGER NOT NULL DEFAULT 0 CHECK (held_millis >= 0),
  unclean_ends_json            TEXT NOT NULL DEFAULT '[]',
  traces_json                  TEXT NOT NULL DEFAULT '[]'
, forked_at_turn INTEGER CHECK (forked_at_turn >= 0), forked_at_seq INTEGER CHECK ((forked_at_seq > 0) = (forked_at_turn IS NOT NULL)), held_from TEXT, seen_at TEXT, task_call_id TEXT, abort_requested_at TEXT, abort_question TEXT, corrected_at TEXT, taint INTEGER NOT NULL DEFAULT 0 CHECK (taint BETWEEN 0 AND 3), processes_json TEXT NOT NULL DEFAULT '[]', lineage_mark TEXT) STRICT;

CREATE INDEX idx_runs_created ON runs (created_at, seq);

CREATE INDEX idx_runs_root ON runs (root_run_id);

CREATE INDEX idx_runs_job_key ON runs (job_key, created_at) WHERE job_key IS NOT NULL;

CREATE TABLE run_steps (
  step_id          TEXT PRIMARY KEY NOT NULL,
  run_id           TEXT NOT NULL REFERENCES runs (run_id),
  step_index       INTEGER NOT NULL CHECK (step_index > 0),
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  status           TEXT NOT NULL CHECK (status = 'ready' OR status = 'running' OR status = 'blocked' OR status = 'succeeded' OR status = 'failed' OR status = 'skipped'),
  phase            TEXT NOT NULL,
  error_code       TEXT,
  error_detail     TEXT,
  first_turn       INTEGER NOT NULL,
  last_turn        INTEGER,
  fingerprint_json TEXT
) STRICT;

CREATE UNIQUE INDEX idx_run_steps_run ON run_steps (run_id, step_index);

CREATE TABLE tool_calls (
  tool_call_id            TEXT PRIMARY KEY NOT NULL,
  run_id                  TEXT NOT NULL REFERENCES runs (run_id),
  root_run_id             TEXT NOT NULL REFERENCES runs (run_id),
  step_id                 TEXT NOT NULL REFERENCES run_steps (step_id),
  turn                    INTEGER NOT NULL CHECK (turn > 0),
  ordinal                 INTEGER NOT NULL CHECK (ordinal > 0),
  created_at              TEXT NOT NULL,
  updated_at              TEXT NOT NULL,
  tool_use_id             TEXT NOT NULL,
  raw_tool_name           TEXT NOT NULL,
  tool_name               TEXT NOT NULL,
  tool_server             TEXT NOT NULL,
  tool_namespace          TEXT NOT NULL CHECK (tool_namespace = 'local' OR tool_namespace = 'mcp' OR tool_namespace = 'composio' OR tool_namespace = 'claude_code'),
  tool_digest             TEXT,
  side_effect_class       TEXT NOT NULL CHECK (side_effect_class = 'external' OR side_effect_class = 'memory' OR side_effect_class = 'local' OR side_effect_class = 'read_only'),
  effect_kind             TEXT,
  policy_rule_id          TEXT NOT NULL,
  policy_json             TEXT NOT NULL,
  replay_policy           TEXT NOT NULL CHECK (replay_policy = 'redo' OR replay_policy = 'redo_keyed' OR replay_policy = 'probe' OR replay_policy = 'hold' OR replay_policy = 'continue'),
  replay_status           TEXT,
  normalized_args_hash    TEXT NOT NULL,
  idempotency_key         TEXT,
  side_effect_scope       TEXT,
  file_digests_json       TEXT NOT NULL DEFAULT '{}',
  status                  TEXT NOT NULL CHECK (status = 'prepared' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'unknown' OR status = 'cancelled'),
  failure_kind            TEXT CHECK (failure_kind IN ('definite', 'reported')),
  attempt                 INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  possible_effect         TEXT CHECK (possible_effect IN ('none', 'maybe')),
  resolution              TEXT,
  deduplicated_from       TEXT REFERENCES tool_calls (tool_call_id),
  request_ref             TEXT NOT NULL,
  response_ref            TEXT,
  external_correlation_id TEXT,
  error_code              TEXT,
  error_detail            TEXT,
  lease_epoch             INTEGER NOT NULL, doubt INTEGER, correction_json TEXT,
  CHECK ((status = 'failed') = (failure_kind IS NOT NULL)),
  CHECK ((status <> 'running' AND status <> 'unknown' AND status <> 'succeeded') OR idempotency_key IS NOT NULL),
  CHECK (status NOT IN ('prepared', 'cancelled') OR attempt = 0),
  CHECK ((attempt = 0) = (status IN ('prepared', 'cancelled') OR deduplicated_from IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX idx_tool_calls_position ON tool_calls (run_id, turn, ordinal);

CREATE INDEX idx_tool_calls_scope ON tool_calls (root_run_id, side_effect_scope) WHERE side_effect_scope IS NOT NULL;

CREATE INDEX idx_tool_calls_effect ON tool_calls (root_run_id, effect_kind) WHERE effect_kind IS NOT NULL;

CREATE INDEX idx_tool_calls_unknown ON tool_calls (created_at) WHERE status = 'unknown';

CREATE TABLE tool_receipts (
  receipt_seq     INTEGER PRIMARY KEY,
  tool_call_id    TEXT NOT NULL,
  attempt         INTEGER NOT NULL,
  received_at     TEXT NOT NULL,
  raw_json        TEXT NOT NULL,
  lifted_json     TEXT NOT NULL DEFAULT '{}',
  settlement_json TEXT,
  evidence        TEXT NOT NULL CHECK (evidence = 'reported' OR evidence = 'reconciled' OR evidence = 'verified'),
  FOREIGN KEY (tool_call_id, attempt) REFERENCES tool_attempts (tool_call_id, attempt)
) STRICT;

CREATE INDEX idx_tool_receipts_call ON tool_receipts (tool_call_id, receipt_seq);

CREATE TABLE tool_call_events (
  event_seq    INTEGER PRIMARY KEY,
  tool_call_id TEXT NOT NULL,
  from_status  TEXT,
  to_status    TEXT NOT NULL,
  lease_epoch  INTEGER NOT NULL,
  at           TEXT NOT NULL
, run_id TEXT, chain TEXT, correction_json TEXT) STRICT;

CREATE TABLE checkpoints (
  seq                 INTEGER PRIMARY KEY,
  checkpoint_id       TEXT NOT NULL UNIQUE,
  run_id              TEXT NOT NULL REFERENCES runs (run_id),
  step_id             TEXT NOT NULL REFERENCES run_steps (step_id),
  created_at          TEXT NOT NULL,
  checkpoint_type     TEXT NOT NULL CHECK (checkpoint_type = 'step_boundary' OR checkpoint_type = 'phase_boundary' OR checkpoint_type = 'pre_side_effect' OR checkpoint_type = 'pre_read_only' OR checkpoint_type = 'post_replay' OR checkpoint_type = 'interrupt' OR checkpoint_type = 'corpus_cache'),
  state_snapshot_json TEXT NOT NULL,
  cursor_json         TEXT NOT NULL
) STRICT;

CREATE TABLE questions (
  seq          INTEGER PRIMARY KEY,
  question_id  TEXT NOT NULL UNIQUE,
  run_id       TEXT NOT NULL REFERENCES runs (run_id),
  tool_call_id TEXT REFERENCES tool_calls (tool_call_id),
  kind         TEXT NOT NULL,
  text         TEXT NOT NULL,
  detail_json  TEXT NOT NULL,
  choices_json TEXT NOT NULL,
  created_at   TEXT NOT NULL,
  status       TEXT NOT NULL CHECK (status = 'open' OR status = 'answered' OR status = 'closed')
, closed_because TEXT) STRICT;

CREATE INDEX idx_questions_run ON questions (run_id, seq);

CREATE INDEX idx_questions_waiting ON questions (seq) WHERE status <> 'closed';

CREATE UNIQUE INDEX idx_questions_one_per_call ON questions (tool_call_id)
  WHERE tool_call_id IS NOT NULL AND status <> 'closed';

CREATE TABLE answers (
  question_id TEXT PRIMARY KEY NOT NULL REFERENCES questions (question_id),
  choice      TEXT NOT NULL CHECK (choice = 'happened' OR choice = 'execute' OR choice = 'skip' OR choice = 'abort' OR choice = 'continue'),
  proof       TEXT,
  note        TEXT,
  answered_by TEXT NOT NULL,
  answered_at TEXT NOT NULL,
  applied_at  TEXT
, link TEXT) STRICT;

CREATE TABLE overrides (
  seq        INTEGER PRIMARY KEY,
  run_id     TEXT NOT NULL REFERENCES runs (run_id),
  created_at TEXT NOT NULL,
  kind       TEXT NOT NULL CHECK (kind IN ('pin', 'budget')),
  component  TEXT NOT NULL,
  value_json TEXT NOT NULL,
  made_by    TEXT NOT NULL
) STRICT;

CREATE INDEX idx_overrides_run ON overrides (run_id, seq);

CREATE TABLE blobs (
  blob_id    TEXT PRIMARY KEY NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  created_at TEXT NOT NULL,
  pruned_at  TEXT,
  content    BLOB,
  CHECK ((content IS NULL) = (pruned_at IS NOT NULL))
) STRICT;

CREATE TABLE blob_refs (
  run_id  TEXT NOT NULL REFERENCES runs (run_id),
  blob_id TEXT NOT NULL REFERENCES blobs (blob_id),
  PRIMARY KEY (run_id, blob_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_blob_refs_blob ON blob_refs (blob_id);

CREATE TRIGGER runs_contract_is_immutable
BEFORE UPDATE OF run_id, run_spec_json, root_run_id, parent_run_id, created_at ON runs
BEGIN
  SELECT RAISE(ABORT, 'the contract and the lineage of a run never change');
END;

CREATE TRIGGER tool_calls_plan_is_immutable
BEFORE UPDATE OF tool_call_id, run_id, root_run_id, step_id, turn, ordinal, created_at, tool_use_id, raw_tool_name, tool_name,
  tool_server, tool_namespace, tool_digest, side_effect_class, effect_kind, policy_rule_id, policy_json, replay_policy,
  normalized_args_hash, request_ref ON tool_calls
BEGIN
  SELECT RAISE(ABORT, 'what was planned about a tool call never changes');
END;

CREATE TRIGGER tool_receipts_are_immutable
BEFORE UPDATE ON tool_receipts
WHEN OLD.settlement_json IS NOT NULL OR NEW.receipt_seq <> OLD.receipt_seq OR NEW.tool_call_id <> OLD.tool_call_id
  OR NEW.attempt <> OLD.attempt OR NEW.received_at <> OLD.received_at OR NEW.raw_json <> OLD.raw_json
  OR NEW.lifted_json <> OLD.lifted_json OR NEW.evidence <> OLD.evidence
BEGIN
  SELECT RAISE(ABORT, 'a receipt is immutable; only a missing meaning is filled in, once');
END;

CREATE TRIGGER blobs_are_immutable
BEFORE UPDATE ON blobs
WHEN NEW.blob_id <> OLD.blob_id OR NEW.size_bytes <> OLD.size_bytes
  OR (NEW.content IS NOT NULL AND OLD.content IS NOT NULL AND NEW.content <> OLD.content)
BEGIN
  SELECT RAISE(ABORT, 'a blob is immutable; its content may go, or come back');
END;

CREATE INDEX idx_runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TRIGGER runs_share_committed_turns_only
BEFORE INSERT ON runs
WHEN NEW.forked_at_turn IS NOT NULL
  AND NEW.forked_at_turn > coalesce((SELECT turn_index FROM runs WHERE run_id = NEW.parent_run_id), -1)
BEGIN
  SELECT RAISE(ABORT, 'a fork shares only committed turns of its parent');
END;

CREATE TRIGGER runs_begin_where_they_forked
BEFORE INSERT ON runs
WHEN NEW.turn_index <> coalesce(NEW.forked_at_turn, 0)
BEGIN
  SELECT RAISE(ABORT, 'a run begins without turns of its own');
END;

CREATE TRIGGER runs_keep_their_fork_point
BEFORE UPDATE OF forked_at_turn, forked_at_seq ON runs
BEGIN
  SELECT RAISE(ABORT, 'what a fork shares never changes');
END;

CREATE TABLE deleted_runs (
  run_id      TEXT PRIMARY KEY NOT NULL,
  root_run_id TEXT NOT NULL,
  deleted_at  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_tool_calls_answered_by ON tool_calls (deduplicated_from) WHERE deduplicated_from IS NOT NULL;

CREATE TABLE run_writes (
  run_id  TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  batches INTEGER NOT NULL DEFAULT 0 CHECK (batches >= 0),
  words   INTEGER NOT NULL DEFAULT 0 CHECK (words >= 0)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_tool_calls_doubts ON tool_calls (root_run_id, raw_tool_name) WHERE (status = 'unknown' OR doubt IS NOT NULL);

CREATE TABLE gateway_sessions (
  run_id      TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  project     TEXT NOT NULL,
  server      TEXT NOT NULL,
  session_key TEXT NOT NULL,
  client      TEXT NOT NULL,
  identity    TEXT NOT NULL,
  reach       TEXT NOT NULL,
  opened_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX idx_gateway_sessions_key ON gateway_sessions (project, server, session_key);

CREATE TABLE gateway_arrivals (
  arrival_id      TEXT PRIMARY KEY NOT NULL,
  run_id          TEXT NOT NULL REFERENCES runs (run_id),
  tool_call_id    TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  client_call     TEXT,
  rule            TEXT NOT NULL,
  project         TEXT NOT NULL,
  raw_tool_name   TEXT NOT NULL,
  args_hash       TEXT NOT NULL,
  arrived_at      TEXT NOT NULL,
  answered_at     TEXT,
  acknowledged_at TEXT, unread_until TEXT,
  CHECK (acknowledged_at IS NULL OR answered_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_gateway_arrivals_same ON gateway_arrivals (project, raw_tool_name, args_hash);

CREATE INDEX idx_gateway_arrivals_run ON gateway_arrivals (run_id, arrived_at);

CREATE INDEX idx_gateway_arrivals_call ON gateway_arrivals (tool_call_id);

CREATE INDEX idx_gateway_arrivals_open ON gateway_arrivals (project) WHERE answered_at IS NULL;

CREATE TABLE workers (
  worker      TEXT PRIMARY KEY NOT NULL,
  place       TEXT NOT NULL,
  place_shown TEXT NOT NULL,
  owner_json  TEXT NOT NULL,
  version     TEXT NOT NULL,
  queues_json TEXT NOT NULL,
  slots       INTEGER NOT NULL CHECK (slots > 0),
  started_at  TEXT NOT NULL,
  lease_until TEXT NOT NULL,
  is_draining INTEGER NOT NULL CHECK (is_draining IN (0, 1))
) STRICT, WITHOUT ROWID;

CREATE TABLE run_queue (
  run_id            TEXT PRIMARY KEY NOT NULL REFERENCES runs (run_id),
  queue             TEXT NOT NULL,
  priority          INTEGER NOT NULL,
  line              INTEGER NOT NULL,
  seq               INTEGER NOT NULL,
  run_after         TEXT NOT NULL,
  queued_at         TEXT NOT NULL,
  concurrency_key   TEXT,
  concurrency_limit INTEGER CHECK ((concurrency_limit IS NULL) = (concurrency_key IS NULL) AND coalesce(concurrency_limit, 1) > 0),
  fair_key          TEXT,
  state             TEXT NOT NULL CHECK (state = 'ready' OR state = 'claimed' OR state = 'parked'),
  worker            TEXT CHECK ((worker IS NOT NULL) = (state = 'claimed')),
  words             INTEGER NOT NULL,
  strikes           INTEGER NOT NULL,
  why               TEXT
, not_before TEXT) STRICT, WITHOUT ROWID;

CREATE INDEX idx_run_queue_ready ON run_queue (priority, line, seq) WHERE state = 'ready';

CREATE INDEX idx_run_queue_seats ON run_queue (concurrency_key) WHERE state = 'claimed' AND concurrency_key IS NOT NULL;

CREATE INDEX idx_run_queue_worker ON run_queue (worker) WHERE state = 'claimed';

CREATE INDEX idx_run_queue_parked ON run_queue (run_id) WHERE state = 'parked';

CREATE INDEX idx_run_queue_seq ON run_queue (seq);

CREATE TABLE schedules (
  name      TEXT PRIMARY KEY NOT NULL,
  cron      TEXT NOT NULL,
  time_zone TEXT NOT NULL,
  job_json  TEXT NOT NULL,
  catch_up  TEXT NOT NULL CHECK (catch_up = 'none' OR catch_up = 'last' OR catch_up = 'all'),
  is_paused INTEGER NOT NULL CHECK (is_paused IN (0, 1)),
  next_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE "tool_attempts" (
  tool_call_id      TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  attempt           INTEGER NOT NULL CHECK (attempt > 0),
  lease_epoch       INTEGER NOT NULL,
  server_generation TEXT,
  started_at        TEXT NOT NULL,
  ended_at          TEXT,
  outcome           TEXT CHECK (outcome = 'replied' OR outcome = 'not_sent' OR outcome = 'lost'),
  detail            TEXT,
  -- What an attempt goes on with when a tool answered before it was done. Written while the attempt runs, never afterwards.
  handle_json       TEXT, destination_json TEXT,
  PRIMARY KEY (tool_call_id, attempt),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_tool_call_events_run ON tool_call_events (run_id, event_seq);

CREATE TRIGGER tool_calls_note_plan
AFTER INSERT ON tool_calls
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at, run_id)
  VALUES (NEW.tool_call_id, NULL, NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at, NEW.run_id);
END;

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

CREATE UNIQUE INDEX idx_runs_place ON runs (run_id, seq);

CREATE TABLE "turns" (
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

CREATE TABLE "usage" (
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

CREATE TABLE "messages" (
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

CREATE TRIGGER runs_counters_only_rise
AFTER UPDATE ON runs
WHEN NEW.lease_epoch < OLD.lease_epoch OR NEW.turn_index < OLD.turn_index OR NEW.turn_index > OLD.turn_index + 1
BEGIN
  SELECT RAISE(ABORT, 'epoch and turn index of a run only rise, the turn index by one');
END;

CREATE TRIGGER runs_stay_terminal
AFTER UPDATE OF status ON runs
WHEN NEW.status <> OLD.status AND (OLD.status = 'succeeded' OR OLD.status = 'failed' OR OLD.status = 'cancelled')
BEGIN
  SELECT RAISE(ABORT, 'a terminal run keeps its status');
END;

CREATE TRIGGER tool_calls_succeed_unsent_only_as_duplicates
AFTER UPDATE OF status ON tool_calls
WHEN OLD.status = 'prepared' AND NEW.status = 'succeeded' AND NEW.deduplicated_from IS NULL
BEGIN
  SELECT RAISE(ABORT, 'a tool call that was never sent succeeds only by the receipt of another');
END;

CREATE TRIGGER tool_calls_keep_their_key
AFTER UPDATE OF idempotency_key ON tool_calls
WHEN OLD.idempotency_key IS NOT NULL AND NEW.idempotency_key IS NOT OLD.idempotency_key
  AND NOT (OLD.status = 'failed' AND OLD.failure_kind = 'definite' AND OLD.doubt IS NULL AND NEW.status = 'running')
BEGIN
  SELECT RAISE(ABORT, 'a tool call keeps its idempotency key');
END;

CREATE TRIGGER tool_calls_in_doubt_have_not_failed
AFTER UPDATE ON tool_calls
WHEN NEW.doubt IS NOT NULL AND (NEW.status IN ('prepared', 'cancelled') OR NEW.failure_kind = 'definite'
  OR (NEW.failure_kind = 'reported' AND NEW.possible_effect = 'none'))
BEGIN
  SELECT RAISE(ABORT, 'a tool call of which an attempt is in doubt may have happened');
END;

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

CREATE TRIGGER tool_calls_keep_their_correction
AFTER UPDATE OF correction_json ON tool_calls
WHEN OLD.correction_json IS NOT NULL AND NEW.correction_json IS NULL AND NEW.status <> 'running'
BEGIN
  SELECT RAISE(ABORT, 'a correction stands until another one, or until the call is sent again');
END;

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

CREATE TRIGGER tool_calls_start_unsent
AFTER INSERT ON tool_calls
WHEN NEW.status <> 'prepared' AND NEW.status <> 'cancelled'
BEGIN
  SELECT RAISE(ABORT, 'a tool call starts prepared, or cancelled when it is refused at once');
END;

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

CREATE TRIGGER tool_receipts_note_response
AFTER INSERT ON tool_receipts
WHEN (SELECT response_ref FROM tool_calls WHERE tool_call_id = NEW.tool_call_id) IS NOT 'tool_receipts/' || NEW.receipt_seq
BEGIN
  UPDATE tool_calls SET response_ref = 'tool_receipts/' || NEW.receipt_seq WHERE tool_call_id = NEW.tool_call_id;
END;

CREATE TRIGGER tool_attempts_end_once
AFTER UPDATE ON tool_attempts
WHEN (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS 'lost' AND NEW.outcome IS 'replied' AND NEW.ended_at IS NOT NULL)) OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
  OR NEW.started_at <> OLD.started_at OR NEW.destination_json IS NOT OLD.destination_json
BEGIN
  SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
END;

CREATE UNIQUE INDEX idx_tool_calls_key ON tool_calls (idempotency_key) WHERE attempt > 0 AND failure_kind IS NULL;

CREATE TABLE queue_lines (
  line     INTEGER PRIMARY KEY NOT NULL,
  priority INTEGER NOT NULL,
  queue    TEXT NOT NULL,
  fair_key TEXT,
  turn     INTEGER NOT NULL
) STRICT;

CREATE INDEX idx_queue_lines_turn ON queue_lines (priority, turn, line);

CREATE INDEX idx_queue_lines_key ON queue_lines (queue, fair_key, priority);

CREATE INDEX idx_run_queue_line ON run_queue (line);

INSERT INTO meta (key, value) VALUES ('db_uuid', lower(hex(randomblob(16))));
