//! Rows that point to others, and what a row says that only another one can say: each is asked of the row that it speaks of.
//!
//! A pointer that leads to a row of another run is a possible value, so neither the schema nor a reader finds it: a foreign key asks whether
//! the row is there, and not whose it is. What the program writes there is read off the rules of `ua_store` (`rules::run`, `rules::call`). Threat
//! S19. Proved by: `tests/it/row_findings.rs`.

use rusqlite::{Connection, Statement};

use crate::error::DbError;
use crate::row_findings::{key, more_than};
use crate::scope::Scope;

/// How many rows of one finding are named.
const MOST: usize = 20;

/// What can be wrong with the rows of a table, all asked in one pass over them.
struct Pointers {
    table: &'static str,
    /// The column that names a row.
    key: &'static str,
    /// The rows, each once, with those beside them that several questions are about; between braces are those that are looked at.
    from: &'static str,
    /// The sentence, and when it is true. What a row speaks of is found by an index: the time that a check takes grows with the rows, however many of
    /// them one run has.
    findings: &'static [(&'static str, &'static str)],
}

const POINTERS: &[Pointers] = &[
    Pointers {
        table: "runs",
        key: "r.run_id",
        from: "{runs} r LEFT JOIN runs p ON p.run_id = r.parent_run_id \
               LEFT JOIN (SELECT run_id, step_id, max(step_index) FROM {run_steps} GROUP BY run_id) s ON s.run_id = r.run_id \
               LEFT JOIN (SELECT run_id, checkpoint_id, max(seq) FROM {checkpoints} GROUP BY run_id) k ON k.run_id = r.run_id",
        findings: &[
            ("its current step is not the newest one of this run", "r.current_step_id IS NOT s.step_id"),
            ("its last checkpoint is not the newest one of this run", "r.last_checkpoint_id IS NOT k.checkpoint_id"),
            (
                "it shares turns of a parent that it does not have, or more than that one has",
                "r.forked_at_turn IS NOT NULL AND (p.run_id IS NULL OR r.forked_at_turn > p.turn_index)",
            ),
            (
                "it is neither a fork nor at work for its parent",
                "r.parent_run_id IS NOT NULL AND r.forked_at_turn IS NULL AND r.task_call_id IS NULL",
            ),
            (
                "the call that it works for is none of its parent",
                "r.task_call_id IS NOT NULL AND NOT EXISTS \
                 (SELECT 1 FROM tool_calls c WHERE c.tool_call_id = r.task_call_id AND c.run_id = r.parent_run_id)",
            ),
            ("its parent was made after it", "p.seq >= r.seq"),
            ("it belongs to another tree than its parent", "r.root_run_id IS NOT coalesce(p.root_run_id, r.run_id)"),
            (
                "there is a reason to cancel it, and nobody asked for that",
                "r.cancel_reason IS NOT NULL AND r.cancel_requested_at IS NULL",
            ),
        ],
    },
    Pointers {
        table: "tool_calls",
        key: "c.tool_call_id",
        from: "{tool_calls} c LEFT JOIN runs r ON r.run_id = c.run_id \
               LEFT JOIN tool_calls o ON o.tool_call_id = c.deduplicated_from",
        findings: &[
            (
                "its step is none of its run",
                "NOT EXISTS (SELECT 1 FROM run_steps s WHERE s.step_id = c.step_id AND s.run_id = c.run_id)",
            ),
            ("it belongs to another tree than its run", "c.root_run_id <> r.root_run_id"),
            (
                "the call whose receipt answers it is not one with its key in its tree, or has none itself",
                "c.deduplicated_from IS NOT NULL AND (o.root_run_id IS NOT c.root_run_id \
                 OR o.idempotency_key IS NOT c.idempotency_key OR o.deduplicated_from IS NOT NULL)",
            ),
            (
                "the call whose record it follows is none of its tree",
                "CASE WHEN json_valid(c.correction_json) THEN c.correction_json ->> '$.of' IS NOT NULL AND NOT EXISTS \
                 (SELECT 1 FROM tool_calls f WHERE f.tool_call_id = c.correction_json ->> '$.of' \
                 AND f.root_run_id = c.root_run_id) END",
            ),
            (
                "how it was settled is not what its status and the call that answers it say",
                "CASE c.resolution \
                 WHEN 'happened' THEN c.status <> 'succeeded' \
                 WHEN 'reconciled' THEN c.status <> 'succeeded' \
                 WHEN 'deduplicated' THEN c.deduplicated_from IS NULL \
                 WHEN 'not_happened' THEN c.failure_kind IS NOT 'definite' \
                 WHEN 'skipped' THEN c.status IN ('succeeded', 'running') \
                 WHEN 'refused' THEN c.status <> 'cancelled' \
                 ELSE c.deduplicated_from IS NOT NULL AND c.correction_json IS NULL END",
            ),
            (
                "somebody is said to have seen it happen, and no receipt or correction has that",
                "c.resolution IN ('happened', 'reconciled') AND c.correction_json IS NULL AND c.deduplicated_from IS NULL \
                 AND NOT EXISTS (SELECT 1 FROM tool_receipts p WHERE p.tool_call_id = c.tool_call_id AND p.evidence <> 'reported')",
            ),
            (
                "an attempt is said to be in doubt that there was not, or of which it is known what it came to",
                "c.doubt IS NOT NULL AND (c.doubt NOT BETWEEN 1 AND c.attempt OR c.status = 'succeeded' \
                 OR c.side_effect_class = 'read_only')",
            ),
        ],
    },
    Pointers {
        table: "checkpoints",
        key: "k.checkpoint_id",
        from: "{checkpoints} k",
        findings: &[(
            "its step is none of its run",
            "NOT EXISTS (SELECT 1 FROM run_steps s WHERE s.step_id = k.step_id AND s.run_id = k.run_id)",
        )],
    },
    Pointers {
        table: "turns",
        key: "t.run_id",
        from: "{turns} t",
        findings: &[(
            "its step is none of its run",
            "t.step_id IS NOT NULL AND NOT EXISTS \
             (SELECT 1 FROM run_steps s WHERE s.step_id = t.step_id AND s.run_id = t.run_id)",
        )],
    },
    Pointers {
        table: "questions",
        key: "q.question_id",
        from: "{questions} q JOIN runs r ON r.run_id = q.run_id JOIN tool_calls c ON c.tool_call_id = q.tool_call_id",
        findings: &[("the call that it is about is of another tree", "c.root_run_id <> r.root_run_id")],
    },
    Pointers {
        table: "tool_receipts",
        key: "p.receipt_seq",
        from: "{tool_receipts} p",
        findings: &[(
            "it is vouched for by a look, and its call was never in doubt nor corrected",
            "p.evidence <> 'reported' AND p.tool_call_id NOT IN \
             (SELECT e.tool_call_id FROM {tool_call_events} e \
             WHERE 'unknown' IN (e.from_status, e.to_status) OR e.correction_json IS NOT NULL)",
        )],
    },
];

impl Pointers {
    /// Asks for the rows of which one of these is true: what names the row, and of which.
    fn query(&self, findings: &[(&str, &str)]) -> String {
        let conditions: Vec<String> = findings.iter().map(|(_, is_so)| format!("({is_so})")).collect();
        let (key, from, columns) = (self.key, self.from, conditions.join(", "));
        format!("SELECT {key}, {columns} FROM {from} WHERE {}", conditions.join(" OR "))
    }

    /// Names the rows of which one of these is true.
    fn look(
        &self,
        scope: &Scope,
        select: &mut Statement<'_>,
        findings: &[(&str, &str)],
        found: &mut Vec<String>,
    ) -> Result<(), DbError> {
        let mut counts = vec![0; findings.len()];
        let mut rows = scope.query(select)?;
        while let Some(row) = rows.next()? {
            for (place, ((why, _), count)) in findings.iter().zip(&mut counts).enumerate() {
                if row.get::<_, Option<bool>>(place + 1)?.unwrap_or_default() {
                    *count += 1;
                    if *count <= MOST {
                        found.push(format!("{} {}: {why}", self.table, key(row)));
                    }
                }
            }
        }
        for count in counts {
            more_than(MOST, count, self.table, found);
        }
        Ok(())
    }
}

/// Names the rows whose pointers and words the rows that they speak of do not bear out.
pub(crate) fn findings(connection: &Connection, scope: &Scope) -> Result<Vec<String>, DbError> {
    let mut found = Vec::new();
    for pointers in POINTERS {
        let prepare = |findings| connection.prepare(&scope.statement(&pointers.query(findings)));
        if let Ok(mut select) = prepare(pointers.findings) {
            pointers.look(scope, &mut select, pointers.findings, &mut found)?;
            continue;
        }
        // A table or a column that is not there is named already; what is not about it can be asked.
        for one in pointers.findings.chunks(1) {
            if let Ok(mut select) = prepare(one) {
                pointers.look(scope, &mut select, one, &mut found)?;
            }
        }
    }
    Ok(found)
}

/// What is asked, for the test that looks at how SQLite answers it.
#[cfg(test)]
pub(crate) fn queries() -> impl Iterator<Item = String> {
    POINTERS.iter().map(|pointers| pointers.query(pointers.findings))
}
