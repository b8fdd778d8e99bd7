//! Rows that point to others, and what a row says that only another one can say: each is asked of the row that it speaks of.
//!
//! A pointer that leads to a row of another run is a possible value, so neither the schema nor a reader finds it: a foreign key asks whether
//! the row is there, and not whose it is. What the program writes there is read off the rules of `ua_store` (`rules::run`, `rules::call`). Threat
//! S19. Proved by: `tests/it/row_findings.rs`.

use rusqlite::Connection;

use crate::error::DbError;
use crate::row_findings::{key, more_than};

/// How many rows of one finding are named.
const MOST: usize = 20;

/// What is wrong with a row: its table, the sentence, and the query that finds such rows by their first column. Each goes through its tables once,
/// and finds what a row speaks of by an index: the time that a check takes grows with the rows, however many of them one run has.
const FINDINGS: &[(&str, &str, &str)] = &[
    (
        "runs",
        "its current step is not the newest one of this run",
        "SELECT r.run_id FROM runs r LEFT JOIN (SELECT run_id, step_id, max(step_index) FROM run_steps GROUP BY run_id) s \
         ON s.run_id = r.run_id WHERE r.current_step_id IS NOT s.step_id",
    ),
    (
        "runs",
        "its last checkpoint is not the newest one of this run",
        "SELECT r.run_id FROM runs r LEFT JOIN (SELECT run_id, checkpoint_id, max(seq) FROM checkpoints GROUP BY run_id) k \
         ON k.run_id = r.run_id WHERE r.last_checkpoint_id IS NOT k.checkpoint_id",
    ),
    (
        "runs",
        "it shares turns of a parent that it does not have, or more than that one has",
        "SELECT r.run_id FROM runs r LEFT JOIN runs p ON p.run_id = r.parent_run_id \
         WHERE r.forked_at_turn IS NOT NULL AND (p.run_id IS NULL OR r.forked_at_turn > p.turn_index)",
    ),
    (
        "runs",
        "it is neither a fork nor at work for its parent",
        "SELECT run_id FROM runs WHERE parent_run_id IS NOT NULL AND forked_at_turn IS NULL AND task_call_id IS NULL",
    ),
    (
        "runs",
        "the call that it works for is none of its parent",
        "SELECT run_id FROM runs r WHERE task_call_id IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM tool_calls c WHERE c.tool_call_id = r.task_call_id AND c.run_id = r.parent_run_id)",
    ),
    (
        "runs",
        "its parent was made after it",
        "SELECT r.run_id FROM runs r JOIN runs p ON p.run_id = r.parent_run_id WHERE p.seq >= r.seq",
    ),
    (
        "runs",
        "it belongs to another tree than its parent",
        "SELECT r.run_id FROM runs r LEFT JOIN runs p ON p.run_id = r.parent_run_id \
         WHERE r.root_run_id IS NOT coalesce(p.root_run_id, r.run_id)",
    ),
    (
        "runs",
        "there is a reason to cancel it, and nobody asked for that",
        "SELECT run_id FROM runs WHERE cancel_reason IS NOT NULL AND cancel_requested_at IS NULL",
    ),
    (
        "tool_calls",
        "its step is none of its run",
        "SELECT c.tool_call_id FROM tool_calls c WHERE NOT EXISTS \
         (SELECT 1 FROM run_steps s WHERE s.step_id = c.step_id AND s.run_id = c.run_id)",
    ),
    (
        "tool_calls",
        "it belongs to another tree than its run",
        "SELECT c.tool_call_id FROM tool_calls c JOIN runs r ON r.run_id = c.run_id WHERE c.root_run_id <> r.root_run_id",
    ),
    (
        "tool_calls",
        "the call whose receipt answers it is not one with its key in its tree, or has none itself",
        "SELECT c.tool_call_id FROM tool_calls c LEFT JOIN tool_calls o ON o.tool_call_id = c.deduplicated_from \
         WHERE c.deduplicated_from IS NOT NULL AND (o.root_run_id IS NOT c.root_run_id \
         OR o.idempotency_key IS NOT c.idempotency_key OR o.deduplicated_from IS NOT NULL)",
    ),
    (
        "tool_calls",
        "the call whose record it follows is none of its tree",
        "SELECT c.tool_call_id FROM (SELECT tool_call_id, root_run_id, \
         CASE WHEN json_valid(correction_json) THEN correction_json ->> '$.of' END AS source FROM tool_calls) c \
         WHERE c.source IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM tool_calls o WHERE o.tool_call_id = c.source AND o.root_run_id = c.root_run_id)",
    ),
    (
        "tool_calls",
        "how it was settled is not what its status and the call that answers it say",
        "SELECT tool_call_id FROM tool_calls WHERE CASE resolution \
         WHEN 'happened' THEN status <> 'succeeded' \
         WHEN 'reconciled' THEN status <> 'succeeded' \
         WHEN 'deduplicated' THEN deduplicated_from IS NULL \
         WHEN 'not_happened' THEN failure_kind IS NOT 'definite' \
         WHEN 'skipped' THEN status IN ('succeeded', 'running') \
         WHEN 'refused' THEN status <> 'cancelled' \
         ELSE deduplicated_from IS NOT NULL AND correction_json IS NULL END",
    ),
    (
        "tool_calls",
        "somebody is said to have seen it happen, and no receipt or correction has that",
        "SELECT tool_call_id FROM tool_calls c WHERE resolution IN ('happened', 'reconciled') AND correction_json IS NULL \
         AND deduplicated_from IS NULL AND NOT EXISTS \
         (SELECT 1 FROM tool_receipts p WHERE p.tool_call_id = c.tool_call_id AND p.evidence <> 'reported')",
    ),
    (
        "tool_calls",
        "an attempt is said to be in doubt that there was not, or of which it is known what it came to",
        "SELECT tool_call_id FROM tool_calls WHERE doubt IS NOT NULL AND (doubt NOT BETWEEN 1 AND attempt \
         OR status = 'succeeded' OR side_effect_class = 'read_only')",
    ),
    (
        "checkpoints",
        "its step is none of its run",
        "SELECT k.checkpoint_id FROM checkpoints k WHERE NOT EXISTS \
         (SELECT 1 FROM run_steps s WHERE s.step_id = k.step_id AND s.run_id = k.run_id)",
    ),
    (
        "turns",
        "its step is none of its run",
        "SELECT t.run_id FROM turns t WHERE t.step_id IS NOT NULL AND NOT EXISTS \
         (SELECT 1 FROM run_steps s WHERE s.step_id = t.step_id AND s.run_id = t.run_id)",
    ),
    (
        "questions",
        "the call that it is about is of another tree",
        "SELECT q.question_id FROM questions q JOIN runs r ON r.run_id = q.run_id \
         JOIN tool_calls c ON c.tool_call_id = q.tool_call_id WHERE c.root_run_id <> r.root_run_id",
    ),
    (
        "tool_receipts",
        "it is vouched for by a look, and its call was never in doubt nor corrected",
        "SELECT receipt_seq FROM tool_receipts p WHERE p.evidence <> 'reported' AND p.tool_call_id NOT IN \
         (SELECT e.tool_call_id FROM tool_call_events e \
         WHERE 'unknown' IN (e.from_status, e.to_status) OR e.correction_json IS NOT NULL)",
    ),
];

/// Names the rows whose pointers and words the rows that they speak of do not bear out.
pub(crate) fn findings(connection: &Connection, found: &mut Vec<String>) -> Result<(), DbError> {
    for (table, why, sql) in FINDINGS {
        // A table or a column that is not there is named already.
        let Ok(mut select) = connection.prepare(sql) else { continue };
        let mut rows = select.query([])?;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            count += 1;
            if count <= MOST {
                found.push(format!("{table} {}: {why}", key(row)));
            }
        }
        more_than(MOST, count, table, found);
    }
    Ok(())
}

/// What is asked, for the test that looks at how SQLite answers it.
#[cfg(test)]
pub(crate) fn queries() -> impl Iterator<Item = &'static str> {
    FINDINGS.iter().map(|finding| finding.2)
}
