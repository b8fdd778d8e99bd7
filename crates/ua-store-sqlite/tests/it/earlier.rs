//! Databases of earlier schemas: what each migration added, taken away again.

use rusqlite::Connection;

/// What takes a migration back, by its number.
const BACK: [(u32, &str); 7] = [
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

/// Makes a database one of schema `version`.
pub(crate) fn take_back_to(raw: &Connection, version: u32) -> rusqlite::Result<()> {
    for (_, back) in BACK.iter().filter(|(added_by, _)| *added_by > version) {
        raw.execute_batch(back)?;
    }
    raw.execute("DELETE FROM refinery_schema_history WHERE version > ?1", [version])?;
    Ok(())
}
