//! Of which rows a check asks one by one: of all, or of those that a job may still need.
//!
//! What a run that has ended left is read again by whoever asks for it, and nothing that begins or continues goes by it, unless a run of its
//! tree is not finished, or a call of the tree may have happened and nobody knows. So `ua doctor` reads the rows of such trees, and `ua db check`
//! those of all. Proved by: `tests/it/row_findings.rs`.

use rusqlite::{Connection, Rows, Statement};

/// The rows that are looked at one by one.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Those of these runs, by their numbers, as a JSON array; and whatever is of no run.
    Of(String),
}

/// The numbers of the runs in whose trees something is not finished: a run, or a call.
const UNFINISHED: &str = "SELECT json_group_array(seq) FROM runs WHERE root_run_id IN (\
    SELECT root_run_id FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled') \
    UNION SELECT root_run_id FROM tool_calls WHERE status = 'unknown')";

/// The runs that are looked at, of a statement whose first parameter is their numbers.
const RUNS: &str = "SELECT run_id FROM runs WHERE seq IN (SELECT value FROM json_each(?1))";

/// What stands in a statement between braces in the place of a table.
const OPEN: char = '{';

impl Scope {
    /// What a job may still need.
    pub(crate) fn unfinished(connection: &Connection) -> rusqlite::Result<Self> {
        Ok(Self::Of(connection.query_row(UNFINISHED, [], |row| row.get(0))?))
    }

    /// The rows of a table, in the place of its name.
    pub(crate) fn rows_of(&self, table: &str) -> String {
        if matches!(self, Self::All) {
            return table.to_owned();
        }
        let condition = match table {
            "runs" => "seq IN (SELECT value FROM json_each(?1))".to_owned(),
            "turns" | "usage" | "messages" => lie_by_run(table, "place"),
            "checkpoints" => lie_by_run(table, "seq"),
            "tool_attempts" | "tool_receipts" => {
                format!("tool_call_id IN (SELECT tool_call_id FROM tool_calls WHERE run_id IN ({RUNS}))")
            }
            "answers" => {
                format!("question_id IN (SELECT question_id FROM questions WHERE run_id IN ({RUNS}))")
            }
            "run_steps" | "tool_calls" | "tool_call_events" | "questions" | "overrides" | "blob_refs"
            | "run_writes" | "gateway_sessions" | "gateway_arrivals" | "run_queue" => format!("run_id IN ({RUNS})"),
            // Few, or of no run.
            _ => return table.to_owned(),
        };
        format!("(SELECT * FROM {table} WHERE {condition})")
    }

    /// A statement, with the rows that are looked at wherever a table stands between braces.
    pub(crate) fn statement(&self, sql: &str) -> String {
        let mut pieces = sql.split(OPEN);
        let mut whole = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            match piece.split_once('}') {
                Some((table, behind)) => {
                    whole.push_str(&self.rows_of(table));
                    whole.push_str(behind);
                }
                None => whole.push_str(piece),
            }
        }
        whole
    }

    /// Asks what [`Self::statement`] made.
    pub(crate) fn query<'s>(&self, select: &'s mut Statement<'_>) -> rusqlite::Result<Rows<'s>> {
        match self {
            Self::Of(runs) if select.parameter_count() > 0 => select.query([runs]),
            Self::Of(_) | Self::All => select.query([]),
        }
    }
}

/// The rows of a table that lie by run, and not by their time.
fn lie_by_run(table: &str, place: &str) -> String {
    format!(
        "{place} IN (SELECT t.{place} FROM json_each(?1) r JOIN {table} t \
         ON t.{place} BETWEEN r.value << 28 AND (r.value << 28) + 268435455)"
    )
}
