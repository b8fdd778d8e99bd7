//! Databases of earlier schemas: what each migration added, taken away again.

use rusqlite::Connection;

/// What takes a migration back, by its number.
const BACK: [(u32, &str); 15] = [
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
