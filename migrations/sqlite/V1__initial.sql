-- The runtime database. Tables and columns of Durable Jobs v1 spec §5 keep their names; the others are this program's.
-- Instants are RFC 3339 text in UTC with milliseconds, so that they sort as text. Columns ending in _json hold JSON.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Tells one database file from a copy of an older one, or from another one at the same path.
INSERT INTO meta (key, value) VALUES ('db_uuid', lower(hex(randomblob(16))));

CREATE TABLE runs (
  seq                          INTEGER PRIMARY KEY,
  run_id                       TEXT NOT NULL UNIQUE,
  created_at                   TEXT NOT NULL,
  updated_at                   TEXT NOT NULL,
  status                       TEXT NOT NULL CHECK (status IN
    ('queued', 'running', 'waiting_for_human', 'stopped', 'succeeded', 'failed', 'cancelled')),
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
) STRICT;

CREATE INDEX idx_runs_created ON runs (created_at, seq);
CREATE INDEX idx_runs_root ON runs (root_run_id);
CREATE INDEX idx_runs_job_key ON runs (job_key, created_at) WHERE job_key IS NOT NULL;

CREATE TABLE run_steps (
  step_id          TEXT PRIMARY KEY NOT NULL,
  run_id           TEXT NOT NULL REFERENCES runs (run_id),
  step_index       INTEGER NOT NULL CHECK (step_index > 0),
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('ready', 'running', 'blocked', 'succeeded', 'failed', 'skipped')),
  phase            TEXT NOT NULL,
  error_code       TEXT,
  error_detail     TEXT,
  first_turn       INTEGER NOT NULL,
  last_turn        INTEGER,
  fingerprint_json TEXT
) STRICT;

CREATE UNIQUE INDEX idx_run_steps_run ON run_steps (run_id, step_index);

-- A turn: recorded with the model's reply, committed with the results of its calls. The reply's blocks are a message.
CREATE TABLE turns (
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
) STRICT;

CREATE UNIQUE INDEX idx_turns_one_open ON turns (run_id) WHERE committed_at IS NULL;

CREATE TABLE messages (
  run_id       TEXT NOT NULL REFERENCES runs (run_id),
  seq          INTEGER NOT NULL CHECK (seq > 0),
  turn         INTEGER NOT NULL,
  created_at   TEXT NOT NULL,
  role         TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
  origin       TEXT NOT NULL,
  message_json TEXT NOT NULL,
  PRIMARY KEY (run_id, seq)
) STRICT;

-- The ledger. A row's key is empty until RUNNING, or a deduplication, writes it.
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
  tool_namespace          TEXT NOT NULL CHECK (tool_namespace IN ('local', 'mcp', 'composio', 'claude_code')),
  tool_digest             TEXT,
  side_effect_class       TEXT NOT NULL CHECK (side_effect_class IN ('external', 'memory', 'local', 'read_only')),
  effect_kind             TEXT,
  policy_rule_id          TEXT NOT NULL,
  policy_json             TEXT NOT NULL,
  replay_policy           TEXT NOT NULL CHECK (replay_policy IN ('redo', 'redo_keyed', 'probe', 'hold', 'continue')),
  replay_status           TEXT,
  normalized_args_hash    TEXT NOT NULL,
  idempotency_key         TEXT,
  side_effect_scope       TEXT,
  file_digests_json       TEXT NOT NULL DEFAULT '{}',
  status                  TEXT NOT NULL CHECK (status IN
    ('prepared', 'running', 'succeeded', 'failed', 'unknown', 'cancelled')),
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
  lease_epoch             INTEGER NOT NULL,
  CHECK ((status = 'failed') = (failure_kind IS NOT NULL)),
  CHECK (status NOT IN ('running', 'unknown', 'succeeded') OR idempotency_key IS NOT NULL),
  CHECK (status NOT IN ('prepared', 'cancelled') OR attempt = 0),
  CHECK ((attempt = 0) = (status IN ('prepared', 'cancelled') OR deduplicated_from IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX idx_tool_calls_position ON tool_calls (run_id, turn, ordinal);
CREATE INDEX idx_tool_calls_run_step ON tool_calls (run_id, step_id);
CREATE INDEX idx_tool_calls_scope ON tool_calls (root_run_id, side_effect_scope) WHERE side_effect_scope IS NOT NULL;
CREATE INDEX idx_tool_calls_effect ON tool_calls (root_run_id, effect_kind) WHERE effect_kind IS NOT NULL;
CREATE INDEX idx_tool_calls_unknown ON tool_calls (created_at) WHERE status = 'unknown';
-- The key is claimed by RUNNING: of all calls that may have had, or had, the effect, one holds it.
CREATE UNIQUE INDEX idx_tool_calls_key ON tool_calls (idempotency_key)
  WHERE status IN ('running', 'unknown', 'succeeded') AND deduplicated_from IS NULL;

CREATE TABLE tool_attempts (
  tool_call_id      TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  attempt           INTEGER NOT NULL CHECK (attempt > 0),
  lease_epoch       INTEGER NOT NULL,
  server_generation TEXT,
  started_at        TEXT NOT NULL,
  ended_at          TEXT,
  outcome           TEXT CHECK (outcome IN ('replied', 'not_sent', 'lost')),
  detail            TEXT,
  PRIMARY KEY (tool_call_id, attempt),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
) STRICT;

-- What came back. Evidence that is found later is a second receipt of the same attempt.
CREATE TABLE tool_receipts (
  receipt_seq     INTEGER PRIMARY KEY,
  tool_call_id    TEXT NOT NULL,
  attempt         INTEGER NOT NULL,
  received_at     TEXT NOT NULL,
  raw_json        TEXT NOT NULL,
  lifted_json     TEXT NOT NULL DEFAULT '{}',
  settlement_json TEXT,
  evidence        TEXT NOT NULL CHECK (evidence IN ('reported', 'reconciled', 'verified')),
  FOREIGN KEY (tool_call_id, attempt) REFERENCES tool_attempts (tool_call_id, attempt)
) STRICT;

CREATE INDEX idx_tool_receipts_call ON tool_receipts (tool_call_id, receipt_seq);

-- Filled by the triggers below, never by the program.
CREATE TABLE tool_call_events (
  event_seq    INTEGER PRIMARY KEY AUTOINCREMENT,
  tool_call_id TEXT NOT NULL REFERENCES tool_calls (tool_call_id),
  from_status  TEXT,
  to_status    TEXT NOT NULL,
  lease_epoch  INTEGER NOT NULL,
  at           TEXT NOT NULL
) STRICT;

CREATE INDEX idx_tool_call_events_call ON tool_call_events (tool_call_id, event_seq);

CREATE TABLE checkpoints (
  seq                 INTEGER PRIMARY KEY,
  checkpoint_id       TEXT NOT NULL UNIQUE,
  run_id              TEXT NOT NULL REFERENCES runs (run_id),
  step_id             TEXT NOT NULL REFERENCES run_steps (step_id),
  created_at          TEXT NOT NULL,
  checkpoint_type     TEXT NOT NULL CHECK (checkpoint_type IN
    ('step_boundary', 'phase_boundary', 'pre_side_effect', 'pre_read_only', 'post_replay', 'interrupt', 'corpus_cache')),
  state_snapshot_json TEXT NOT NULL,
  cursor_json         TEXT NOT NULL
) STRICT;

CREATE INDEX idx_checkpoints_run ON checkpoints (run_id, seq);

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
  status       TEXT NOT NULL CHECK (status IN ('open', 'answered', 'closed'))
) STRICT;

CREATE INDEX idx_questions_run ON questions (run_id, seq);
CREATE INDEX idx_questions_waiting ON questions (seq) WHERE status <> 'closed';
CREATE UNIQUE INDEX idx_questions_one_per_call ON questions (tool_call_id)
  WHERE tool_call_id IS NOT NULL AND status <> 'closed';

CREATE TABLE answers (
  question_id TEXT PRIMARY KEY NOT NULL REFERENCES questions (question_id),
  choice      TEXT NOT NULL CHECK (choice IN ('happened', 'execute', 'skip', 'abort', 'continue')),
  proof       TEXT,
  note        TEXT,
  answered_by TEXT NOT NULL,
  answered_at TEXT NOT NULL,
  applied_at  TEXT
) STRICT;

-- One request to a model; the row is there before the request leaves, hence network_attempted. Money is in billionths of the
-- currency, the price per million tokens.
CREATE TABLE usage (
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
  status                 TEXT NOT NULL CHECK (status IN ('reserved', 'actual', 'baseline', 'zero')),
  input_tokens           INTEGER NOT NULL DEFAULT 0,
  output_tokens          INTEGER NOT NULL DEFAULT 0,
  cache_read_tokens      INTEGER NOT NULL DEFAULT 0,
  cache_write_tokens     INTEGER NOT NULL DEFAULT 0,
  cost_nanos             INTEGER,
  currency               TEXT,
  reserved_at            TEXT NOT NULL,
  closed_at              TEXT,
  PRIMARY KEY (run_id, request_id),
  CHECK ((status = 'reserved') = (closed_at IS NULL)),
  CHECK ((cost_nanos IS NULL) = (currency IS NULL)),
  CHECK ((cost_nanos IS NOT NULL) = (price_json IS NOT NULL AND closed_at IS NOT NULL)),
  CHECK (status = 'zero' OR network_attempted = 1)
) STRICT;

-- What a person changed about a run after its start: raised budgets, accepted fingerprints. The contract itself stays.
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

-- Large texts, stored once per content: the name is their SHA-256. A pruned one keeps its name and loses its content.
CREATE TABLE blobs (
  blob_id    TEXT PRIMARY KEY NOT NULL,
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  created_at TEXT NOT NULL,
  pruned_at  TEXT,
  content    BLOB,
  CHECK ((content IS NULL) = (pruned_at IS NOT NULL))
) STRICT;

-- Which runs refer to a blob, from receipts and from the history.
CREATE TABLE blob_refs (
  run_id  TEXT NOT NULL REFERENCES runs (run_id),
  blob_id TEXT NOT NULL REFERENCES blobs (blob_id),
  PRIMARY KEY (run_id, blob_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX idx_blob_refs_blob ON blob_refs (blob_id);

-- Runs: the contract is immutable, counters only rise, and nothing leaves a terminal status.

CREATE TRIGGER runs_contract_is_immutable
BEFORE UPDATE OF run_id, run_spec_json, root_run_id, parent_run_id, created_at ON runs
BEGIN
  SELECT RAISE(ABORT, 'the contract and the lineage of a run never change');
END;

CREATE TRIGGER runs_counters_only_rise
BEFORE UPDATE ON runs
WHEN NEW.lease_epoch < OLD.lease_epoch OR NEW.turn_index < OLD.turn_index OR NEW.turn_index > OLD.turn_index + 1
BEGIN
  SELECT RAISE(ABORT, 'epoch and turn index of a run only rise, the turn index by one');
END;

CREATE TRIGGER runs_stay_terminal
BEFORE UPDATE OF status ON runs
WHEN OLD.status IN ('succeeded', 'failed', 'cancelled') AND NEW.status <> OLD.status
BEGIN
  SELECT RAISE(ABORT, 'a terminal run keeps its status');
END;

-- Tool calls: the transition table of Durable Jobs v1 spec §8.3, extended by `unknown`.

CREATE TRIGGER tool_calls_start_unsent
BEFORE INSERT ON tool_calls
WHEN NEW.status NOT IN ('prepared', 'cancelled')
BEGIN
  SELECT RAISE(ABORT, 'a tool call starts prepared, or cancelled when it is refused at once');
END;

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

CREATE TRIGGER tool_calls_succeed_unsent_only_as_duplicates
BEFORE UPDATE OF status ON tool_calls
WHEN OLD.status = 'prepared' AND NEW.status = 'succeeded' AND NEW.deduplicated_from IS NULL
BEGIN
  SELECT RAISE(ABORT, 'a tool call that was never sent succeeds only by the receipt of another');
END;

CREATE TRIGGER tool_calls_plan_is_immutable
BEFORE UPDATE OF tool_call_id, run_id, root_run_id, step_id, turn, ordinal, created_at, tool_use_id, raw_tool_name, tool_name,
  tool_server, tool_namespace, tool_digest, side_effect_class, effect_kind, policy_rule_id, policy_json, replay_policy,
  normalized_args_hash, request_ref ON tool_calls
BEGIN
  SELECT RAISE(ABORT, 'what was planned about a tool call never changes');
END;

CREATE TRIGGER tool_calls_keep_their_key
BEFORE UPDATE OF idempotency_key ON tool_calls
WHEN OLD.idempotency_key IS NOT NULL AND NEW.idempotency_key IS NOT OLD.idempotency_key
BEGIN
  SELECT RAISE(ABORT, 'a tool call keeps its idempotency key');
END;

CREATE TRIGGER tool_calls_note_plan
AFTER INSERT ON tool_calls
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at)
  VALUES (NEW.tool_call_id, NULL, NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at);
END;

CREATE TRIGGER tool_calls_note_change
AFTER UPDATE OF status, failure_kind ON tool_calls
WHEN NEW.status || coalesce('_' || NEW.failure_kind, '') <> OLD.status || coalesce('_' || OLD.failure_kind, '')
BEGIN
  INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at)
  VALUES (NEW.tool_call_id, OLD.status || coalesce('_' || OLD.failure_kind, ''),
          NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at);
END;

CREATE TRIGGER tool_call_events_are_immutable
BEFORE UPDATE ON tool_call_events
BEGIN
  SELECT RAISE(ABORT, 'the history of a tool call never changes');
END;

-- A request is charged once, and what was reserved for it stays.

CREATE TRIGGER usage_is_charged_once
BEFORE UPDATE ON usage
WHEN OLD.closed_at IS NOT NULL OR NEW.run_id <> OLD.run_id OR NEW.request_id <> OLD.request_id OR NEW.turn <> OLD.turn
  OR NEW.request_sha256 <> OLD.request_sha256 OR NEW.model <> OLD.model OR NEW.provider <> OLD.provider
  OR NEW.price_json IS NOT OLD.price_json OR NEW.estimated_tokens <> OLD.estimated_tokens
BEGIN
  SELECT RAISE(ABORT, 'a request is charged once, at the price it was reserved with');
END;

-- Attempts end once; receipts are immutable, but for a missing meaning that is filled in once.

CREATE TRIGGER tool_attempts_end_once
BEFORE UPDATE ON tool_attempts
WHEN OLD.ended_at IS NOT NULL OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
  OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
  OR NEW.started_at <> OLD.started_at
BEGIN
  SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
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

CREATE TRIGGER tool_receipts_note_response
AFTER INSERT ON tool_receipts
BEGIN
  UPDATE tool_calls SET response_ref = 'tool_receipts/' || NEW.receipt_seq WHERE tool_call_id = NEW.tool_call_id;
END;
