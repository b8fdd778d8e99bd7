//! Databases of earlier schemas: what each migration added, taken away again; and made by the migrations that there were.

use std::path::Path;

use rusqlite::Connection;

/// What takes a migration back, by its number.
const BACK: [(u32, &str); 25] = [
    // It changes rows only.
    (26, ""),
    (
        25,
        "DROP INDEX idx_run_queue_line; ALTER TABLE run_queue RENAME COLUMN line TO fair; DROP TABLE queue_lines;
         CREATE INDEX idx_run_queue_fair ON run_queue (queue, fair_key, fair);",
    ),
    (
        24,
        "DROP INDEX idx_tool_calls_key;
         CREATE UNIQUE INDEX idx_tool_calls_key ON tool_calls (idempotency_key)
         WHERE (status = 'running' OR status = 'unknown' OR status = 'succeeded') AND deduplicated_from IS NULL;",
    ),
    (23, "ALTER TABLE gateway_arrivals DROP COLUMN unread_until;"),
    (22, "ALTER TABLE run_queue DROP COLUMN not_before;"),
    (21, "ALTER TABLE runs DROP COLUMN lineage_mark;"),
    (
        20,
        "DROP TRIGGER tool_attempts_end_once;
         ALTER TABLE tool_attempts DROP COLUMN destination_json;
         CREATE TRIGGER tool_attempts_end_once
         AFTER UPDATE ON tool_attempts
         WHEN (OLD.ended_at IS NOT NULL AND NOT (OLD.outcome IS 'lost' AND NEW.outcome IS 'replied' AND NEW.ended_at IS NOT NULL)) OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.attempt <> OLD.attempt
         OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.server_generation IS NOT OLD.server_generation
         OR NEW.started_at <> OLD.started_at
         BEGIN
         SELECT RAISE(ABORT, 'an attempt ends once, and nothing else of it changes');
         END;",
    ),
    (
        19,
        "DROP TRIGGER tool_call_events_are_immutable; DROP TRIGGER tool_call_events_are_linked_once;
         CREATE TRIGGER tool_call_events_are_immutable
         BEFORE UPDATE ON tool_call_events
         WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL OR NEW.event_seq <> OLD.event_seq
         OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
         OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at OR NEW.correction_json IS NOT OLD.correction_json
         BEGIN
         SELECT RAISE(ABORT, 'the history of a tool call never changes');
         END;
         CREATE TABLE turns_18 (
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
         INSERT INTO turns_18 (run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, recorded_at, committed_at, lease_epoch) SELECT run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, recorded_at, committed_at, lease_epoch FROM turns;
         DROP TABLE turns; ALTER TABLE turns_18 RENAME TO turns;
         CREATE TABLE usage_18 (
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
         response_id            TEXT,
         continued_from         TEXT,
         heard_json             TEXT,
         PRIMARY KEY (run_id, request_id),
         CHECK ((status = 'reserved') = (closed_at IS NULL)),
         CHECK ((cost_nanos IS NULL) = (currency IS NULL)),
         CHECK ((cost_nanos IS NOT NULL) = (price_json IS NOT NULL AND closed_at IS NOT NULL)),
         CHECK (status = 'zero' OR network_attempted = 1)
         ) STRICT, WITHOUT ROWID;
         INSERT INTO usage_18 (run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens, reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency, reserved_at, closed_at, response_id, continued_from, heard_json) SELECT run_id, request_id, turn, request_sha256, provider, model, network_attempted, estimator, estimated_tokens, reserved_output_tokens, price_json, status, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_nanos, currency, reserved_at, closed_at, response_id, continued_from, heard_json FROM usage;
         DROP TABLE usage; ALTER TABLE usage_18 RENAME TO usage;
         CREATE TABLE messages_18 (
         run_id       TEXT NOT NULL REFERENCES runs (run_id),
         seq          INTEGER NOT NULL CHECK (seq > 0),
         turn         INTEGER NOT NULL,
         created_at   TEXT NOT NULL,
         role         TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
         origin       TEXT NOT NULL,
         message_json TEXT NOT NULL,
         PRIMARY KEY (run_id, seq)
         ) STRICT;
         INSERT INTO messages_18 (run_id, seq, turn, created_at, role, origin, message_json) SELECT run_id, seq, turn, created_at, role, origin, message_json FROM messages;
         DROP TABLE messages; ALTER TABLE messages_18 RENAME TO messages;
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
         DROP INDEX idx_runs_place;",
    ),
    (18, "ALTER TABLE runs DROP COLUMN processes_json;"),
    (
        17,
        "DROP TRIGGER turns_one_is_open; DROP TRIGGER turns_stay_committed;
         CREATE UNIQUE INDEX idx_turns_one_open ON turns (run_id) WHERE committed_at IS NULL;
         CREATE INDEX idx_checkpoints_run ON checkpoints (run_id, seq);
         DROP INDEX idx_tool_call_events_run;
         CREATE INDEX idx_tool_call_events_call ON tool_call_events (tool_call_id, event_seq);
         CREATE INDEX idx_tool_call_events_chain ON tool_call_events (run_id, event_seq) WHERE chain IS NOT NULL;
         DROP TRIGGER tool_calls_note_plan;
         CREATE TRIGGER tool_calls_note_plan
         AFTER INSERT ON tool_calls
         BEGIN
           INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at)
           VALUES (NEW.tool_call_id, NULL, NEW.status || coalesce('_' || NEW.failure_kind, ''), NEW.lease_epoch, NEW.updated_at);
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
         END;",
    ),
    (16, "DROP TABLE run_queue; DROP TABLE schedules; DROP TABLE workers;"),
    (15, "ALTER TABLE answers DROP COLUMN link;"),
    (14, "CREATE INDEX idx_tool_calls_run_step ON tool_calls (run_id, step_id);"),
    (13, "DROP TABLE gateway_arrivals; DROP TABLE gateway_sessions;"),
    (
        12,
        "DROP INDEX idx_tool_calls_doubts;
         CREATE INDEX idx_tool_calls_doubts ON tool_calls (root_run_id, raw_tool_name) WHERE status = 'unknown';",
    ),
    (11, "DROP TABLE run_writes; DROP INDEX idx_tool_calls_doubts;"),
    (10, "ALTER TABLE runs DROP COLUMN taint;"),
    (
        9,
        "DROP TRIGGER tool_calls_are_as_corrected; DROP TRIGGER tool_calls_keep_their_correction; DROP TRIGGER tool_calls_move_legally;
         DROP TRIGGER tool_calls_note_change; DROP TRIGGER tool_call_events_are_immutable; DROP INDEX idx_tool_calls_answered_by;
         ALTER TABLE tool_calls DROP COLUMN correction_json; ALTER TABLE tool_call_events DROP COLUMN correction_json;
         ALTER TABLE runs DROP COLUMN corrected_at; ALTER TABLE questions DROP COLUMN closed_because;
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
         WHEN OLD.chain IS NOT NULL OR NEW.chain IS NULL OR NEW.run_id IS NULL OR NEW.event_seq <> OLD.event_seq
           OR NEW.tool_call_id <> OLD.tool_call_id OR NEW.from_status IS NOT OLD.from_status OR NEW.to_status <> OLD.to_status
           OR NEW.lease_epoch <> OLD.lease_epoch OR NEW.at <> OLD.at
         BEGIN
           SELECT RAISE(ABORT, 'the history of a tool call never changes');
         END;",
    ),
    (
        8,
        "DROP TRIGGER tool_calls_in_doubt_have_not_failed; DROP TRIGGER tool_calls_keep_their_key;
         ALTER TABLE tool_calls DROP COLUMN doubt; ALTER TABLE runs DROP COLUMN task_call_id;
         ALTER TABLE runs DROP COLUMN abort_requested_at; ALTER TABLE runs DROP COLUMN abort_question;
         ALTER TABLE usage DROP COLUMN heard_json;
         CREATE TRIGGER tool_calls_keep_their_key BEFORE UPDATE OF idempotency_key ON tool_calls
         WHEN OLD.idempotency_key IS NOT NULL AND NEW.idempotency_key IS NOT OLD.idempotency_key
         BEGIN SELECT RAISE(ABORT, 'a tool call keeps its idempotency key'); END;",
    ),
    (
        7,
        "DROP TRIGGER tool_call_events_are_immutable; DROP INDEX idx_tool_call_events_chain;
         ALTER TABLE tool_call_events DROP COLUMN run_id; ALTER TABLE tool_call_events DROP COLUMN chain;
         CREATE TRIGGER tool_call_events_are_immutable BEFORE UPDATE ON tool_call_events
         BEGIN SELECT RAISE(ABORT, 'the history of a tool call never changes'); END;",
    ),
    (6, "ALTER TABLE tool_attempts DROP COLUMN handle_json;"),
    (
        5,
        "DROP TRIGGER usage_names_one_reply;
         ALTER TABLE usage DROP COLUMN response_id; ALTER TABLE usage DROP COLUMN continued_from;",
    ),
    (4, "DROP TABLE deleted_runs;"),
    (3, "ALTER TABLE runs DROP COLUMN held_from; ALTER TABLE runs DROP COLUMN seen_at;"),
    (
        2,
        "DROP TRIGGER runs_share_committed_turns_only; DROP TRIGGER runs_begin_where_they_forked;
         DROP TRIGGER runs_keep_their_fork_point; DROP INDEX idx_runs_parent;
         ALTER TABLE runs DROP COLUMN forked_at_seq; ALTER TABLE runs DROP COLUMN forked_at_turn;",
    ),
];

/// Every schema before this program's, the newest first.
pub(crate) fn earlier_schemas() -> impl Iterator<Item = u32> {
    BACK.iter().map(|(added_by, _)| added_by - 1)
}

/// Makes a database one of schema `version`.
pub(crate) fn take_back_to(raw: &Connection, version: u32) -> rusqlite::Result<()> {
    for (_, back) in BACK.iter().filter(|(added_by, _)| *added_by > version) {
        raw.execute_batch(back)?;
    }
    raw.execute("DELETE FROM refinery_schema_history WHERE version > ?1", [version])?;
    Ok(())
}

/// The migrations before this program's newest, in their order: a program of each time had those up to its schema.
const MIGRATIONS: [&str; 25] = [
    include_str!("../../../../migrations/sqlite/V1__initial.sql"),
    include_str!("../../../../migrations/sqlite/V2__forks.sql"),
    include_str!("../../../../migrations/sqlite/V3__held_time.sql"),
    include_str!("../../../../migrations/sqlite/V4__deleted_runs.sql"),
    include_str!("../../../../migrations/sqlite/V5__provider_sessions.sql"),
    include_str!("../../../../migrations/sqlite/V6__handles.sql"),
    include_str!("../../../../migrations/sqlite/V7__event_chain.sql"),
    include_str!("../../../../migrations/sqlite/V8__doubt.sql"),
    include_str!("../../../../migrations/sqlite/V9__corrections.sql"),
    include_str!("../../../../migrations/sqlite/V10__taint.sql"),
    include_str!("../../../../migrations/sqlite/V11__writes.sql"),
    include_str!("../../../../migrations/sqlite/V12__doubts.sql"),
    include_str!("../../../../migrations/sqlite/V13__gateway.sql"),
    include_str!("../../../../migrations/sqlite/V14__cheap_checks.sql"),
    include_str!("../../../../migrations/sqlite/V15__answer_links.sql"),
    include_str!("../../../../migrations/sqlite/V16__fleet.sql"),
    include_str!("../../../../migrations/sqlite/V17__fewer_pages.sql"),
    include_str!("../../../../migrations/sqlite/V18__processes.sql"),
    include_str!("../../../../migrations/sqlite/V19__places.sql"),
    include_str!("../../../../migrations/sqlite/V20__destinations.sql"),
    include_str!("../../../../migrations/sqlite/V21__lineage_marks.sql"),
    include_str!("../../../../migrations/sqlite/V22__queue_pauses.sql"),
    include_str!("../../../../migrations/sqlite/V23__unread_answers.sql"),
    include_str!("../../../../migrations/sqlite/V24__quiet_keys.sql"),
    include_str!("../../../../migrations/sqlite/V25__queue_lines.sql"),
];

/// Makes a database of schema 16 at `path`, as a program of that time would have left it, with the rows of the one at `from`.
pub(crate) fn of_schema_16(path: &Path, from: &Path) -> rusqlite::Result<()> {
    of_schema(path, from, 16, 16)
}

/// Makes a database at `path` as a program of schema `version` would have left it, with the rows of the one at `from`, which a program of schema
/// `written_by` wrote and the migrations of later ones brought up.
pub(crate) fn of_schema(path: &Path, from: &Path, written_by: usize, version: usize) -> rusqlite::Result<()> {
    let raw = Connection::open(path)?;
    // Nothing of it has to outlive the machine.
    raw.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA application_id = 0x55414A52; PRAGMA foreign_keys = OFF;",
    )?;
    for migration in &MIGRATIONS[..written_by] {
        raw.execute_batch(migration)?;
    }
    raw.execute("ATTACH ?1 AS made", [from.to_str().unwrap_or_default()])?;
    let texts =
        |sql: &str| raw.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>();
    let history = texts("SELECT sql FROM made.sqlite_schema WHERE name = 'refinery_schema_history'")?;
    raw.execute_batch(&history.concat())?;
    raw.execute_batch(&format!(
        "BEGIN; INSERT INTO refinery_schema_history SELECT * FROM made.refinery_schema_history WHERE version <= {version}; DELETE FROM meta;"
    ))?;
    // Triggers refuse rows that are what they are from the beginning.
    let triggers = texts("SELECT sql FROM main.sqlite_schema WHERE type = 'trigger'")?;
    for name in texts("SELECT name FROM main.sqlite_schema WHERE type = 'trigger'")? {
        raw.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    let tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'refinery%'";
    for table in texts(tables)? {
        let columns = texts(&format!("SELECT name FROM pragma_table_info('{table}')"))?.join(", ");
        let values = match table.as_str() {
            // Checkpoints had one row of numbers for all runs.
            "checkpoints" => columns.replacen("seq", "row_number() OVER (ORDER BY created_at, seq)", 1),
            // Whose turn it was had another name.
            "run_queue" => columns.replacen(" fair,", " line,", 1),
            _ => columns.clone(),
        };
        raw.execute_batch(&format!("INSERT INTO main.{table} ({columns}) SELECT {values} FROM made.{table}"))?;
    }
    raw.execute_batch(&triggers.join(";\n"))?;
    raw.execute_batch("COMMIT; DETACH made")?;
    MIGRATIONS[written_by..version].iter().try_for_each(|migration| raw.execute_batch(migration))
}
