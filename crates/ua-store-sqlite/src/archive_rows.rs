//! Looking back at runs and calls, and letting go of a run.

use rusqlite::{Row, named_params, params};
use ua_core::{RunId, RunStatus};
use ua_store::{CallQuery, CallRecord, DELETED, RunDeletion, RunHead, RunQuery, RunRecords};

use crate::column::{Columns, text};
use crate::db::Db;
use crate::effects::Word;
use crate::error::DbError;
use crate::ledger_rows::call_record;
use crate::places::of_run;

type DbResult<T> = Result<T, DbError>;

/// Sorts behind every character of an id, so that `prefix..prefix + this` is the range of ids that begin with a prefix.
const BEHIND: char = '\u{7f}';

/// Only columns of `runs`, and not its long ones: of the contract nothing but the objective is taken out.
const FIND_RUNS: &str = "SELECT run_id, created_at, updated_at, run_mode, status, stop_reason, status_detail, \
    replace(run_spec_json, '\\u0000', '\\ufffd') ->> '$.objective' AS objective, job_path, job_key, workspace_dir, parent_run_id, turn_index, iteration_count, max_iterations FROM runs \
    WHERE run_id >= :from AND run_id < :to AND created_at >= :since AND instr(:statuses, ',' || status || ',') > 0 \
    AND (:tasks OR run_mode <> 'task') AND (:ending = '' OR substr(run_id, -length(:ending)) = :ending) \
    AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = runs.run_id) \
    ORDER BY created_at DESC, seq DESC LIMIT :limit";

const FIND_CALLS: &str = "SELECT * FROM tool_calls WHERE tool_call_id >= ?1 AND tool_call_id < ?2 \
    AND (?4 = '' OR substr(tool_call_id, -length(?4)) = ?4) \
    AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = tool_calls.run_id) \
    ORDER BY created_at DESC, run_id DESC, turn DESC, ordinal DESC LIMIT ?3";

/// The same among those of which nobody knows what came of them, which have an index of their own: the signs keep SQLite from another one.
const FIND_UNKNOWN: &str = "SELECT * FROM tool_calls WHERE status = 'unknown' AND +tool_call_id >= ?1 AND +tool_call_id < ?2 \
    AND (?4 = '' OR substr(tool_call_id, -length(?4)) = ?4) \
    AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = tool_calls.run_id) \
    ORDER BY created_at DESC, run_id DESC, turn DESC, ordinal DESC LIMIT ?3";

fn range(prefix: &str) -> (String, String) {
    (prefix.to_owned(), format!("{prefix}{BEHIND}"))
}

fn run_head(row: &Row<'_>) -> DbResult<RunHead> {
    let column = Columns::new(row, "runs", "run_id");
    Ok(RunHead {
        run_id: column.parsed("run_id")?,
        created_at: column.at("created_at")?,
        updated_at: column.at("updated_at")?,
        run_mode: column.get("run_mode")?,
        status: column.parsed("status")?,
        stop_reason: column.opt_parsed("stop_reason")?,
        status_detail: column.get("status_detail")?,
        objective: column.get("objective")?,
        job_path: column.get("job_path")?,
        job_key: column.get("job_key")?,
        workspace_dir: column.get("workspace_dir")?,
        parent_run_id: column.opt_parsed("parent_run_id")?,
        turn_index: column.int("turn_index")?,
        iteration_count: column.int("iteration_count")?,
        max_iterations: column.opt_int("max_iterations")?,
    })
}

impl Db<'_> {
    pub(crate) fn find_runs(&self, query: &RunQuery) -> DbResult<Vec<RunHead>> {
        let (from, to) = range(&query.prefix);
        let all = [
            RunStatus::Queued,
            RunStatus::Running,
            RunStatus::WaitingForHuman,
            RunStatus::Stopped,
            RunStatus::Succeeded,
            RunStatus::Failed,
            RunStatus::Cancelled,
        ];
        let wanted = if query.statuses.is_empty() { &all[..] } else { &query.statuses[..] };
        let statuses: Vec<String> = wanted.iter().map(|status| format!(",{status},")).collect();
        let parameters = named_params! {
            ":from": from,
            ":to": to,
            ":since": query.since.as_ref().map(text).unwrap_or_default(),
            ":statuses": statuses.concat(),
            ":tasks": !query.without_tasks,
            ":ending": query.ending,
            ":limit": query.limit,
        };
        self.rows(FIND_RUNS, parameters, run_head)
    }

    /// Whether a run of this name was deleted.
    pub(crate) fn is_deleted(&self, run: &RunId) -> DbResult<bool> {
        let found =
            self.row("SELECT 1 FROM deleted_runs WHERE run_id = ?1", [run.as_str()], |row| Ok(row.get::<_, i64>(0)?))?;
        Ok(found.is_some())
    }

    pub(crate) fn note_deleted(&self, deletion: &RunDeletion, root: &RunId) -> DbResult<()> {
        let sql = "INSERT INTO deleted_runs (run_id, root_run_id, deleted_at) VALUES (?1, ?2, ?3)";
        let RunDeletion { run_id: run, by, at, .. } = deletion;
        self.connection.prepare_cached(sql)?.execute(params![run.as_str(), root.as_str(), text(at)])?;
        // A copy that is put back has the run, and not its folder.
        self.note_word_of(run, None, Word { said: DELETED, by: by.as_deref(), at: *at })
    }

    fn ids(&self, sql: &str, parameters: impl rusqlite::Params) -> DbResult<Vec<RunId>> {
        self.rows(sql, parameters, |row| Columns::new(row, "runs", "run_id").parsed("run_id"))
    }

    /// Removes every row of the lineage of `root`, and the blobs that no other run refers to. Tables are found by the column that says
    /// whose their rows are, so that a table that a later schema adds is not forgotten.
    pub(crate) fn remove_lineage(&self, root: &RunId) -> DbResult<()> {
        self.forget();
        // Runs and their steps refer to each other, so references are checked when the transaction ends.
        self.connection.pragma_update(None, "defer_foreign_keys", true)?;
        let runs = "SELECT run_id FROM runs WHERE root_run_id = ?1";
        let sql = "SELECT m.name AS name, (SELECT group_concat(c.name) FROM pragma_table_info(m.name) c) AS columns \
                   FROM sqlite_schema m WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' \
                   AND m.name NOT IN ('runs', 'deleted_runs', 'tool_calls', 'questions', 'blobs')";
        let tables = self.rows(sql, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let delete = |sql: String| -> DbResult<()> {
            self.connection.execute(&sql, [root.as_str()])?;
            Ok(())
        };
        // What only they refer to is found before the references go.
        let blobs: Vec<String> = self.rows(
            &format!(
                "SELECT blob_id FROM blob_refs GROUP BY blob_id HAVING sum(run_id NOT IN ({runs})) = 0 AND ?1 IS NOT NULL"
            ),
            [root.as_str()],
            |row| Ok(row.get(0)?),
        )?;
        for (table, columns) in &tables {
            let owner = |column: &str| columns.split(',').any(|name| name == column);
            if owner("run_id") {
                delete(format!("DELETE FROM {table} WHERE run_id IN ({runs})"))?;
            } else if owner("tool_call_id") {
                let calls = format!("SELECT tool_call_id FROM tool_calls WHERE run_id IN ({runs})");
                delete(format!("DELETE FROM {table} WHERE tool_call_id IN ({calls})"))?;
            } else if owner("question_id") {
                let questions = format!("SELECT question_id FROM questions WHERE run_id IN ({runs})");
                delete(format!("DELETE FROM {table} WHERE question_id IN ({questions})"))?;
            }
        }
        // Other sessions may have asked for calls of these.
        let calls = format!("SELECT tool_call_id FROM tool_calls WHERE run_id IN ({runs})");
        delete(format!("DELETE FROM gateway_arrivals WHERE tool_call_id IN ({calls})"))?;
        delete(format!("DELETE FROM questions WHERE run_id IN ({runs})"))?;
        delete(format!("DELETE FROM tool_calls WHERE run_id IN ({runs})"))?;
        delete("DELETE FROM runs WHERE root_run_id = ?1".to_owned())?;
        for blob in blobs {
            self.connection.prepare_cached("DELETE FROM blobs WHERE blob_id = ?1")?.execute([blob])?;
        }
        Ok(())
    }

    /// A run with its turns `first` to `last` and what belongs to them.
    pub(crate) fn load_turns(&self, id: &RunId, first: u32, last: u32) -> DbResult<RunRecords> {
        let around = self.load_around_turns(id)?;
        // To find that a long run has no message and no request of no turn takes a look at all of them.
        if first > last {
            return Ok(around);
        }
        let turns = params![id.as_str(), first, last];
        let calls = "SELECT tool_call_id FROM tool_calls WHERE run_id = ?1 AND turn BETWEEN ?2 AND ?3";
        let of_calls = |table: &str, order: &str| {
            format!("SELECT * FROM {table} WHERE tool_call_id IN ({calls}) ORDER BY {order}")
        };
        Ok(RunRecords {
            turns: self.rows(
                concat!("SELECT t.*", of_run!("turns", "?2", "?3"), " ORDER BY t.place"),
                turns,
                crate::run_rows::turn_record,
            )?,
            messages: self.rows(
                concat!("SELECT t.*", of_run!("messages"), " AND t.turn BETWEEN ?2 AND ?3 ORDER BY t.place"),
                turns,
                crate::run_rows::message_record,
            )?,
            calls: self.rows(
                "SELECT * FROM tool_calls WHERE run_id = ?1 AND turn BETWEEN ?2 AND ?3 ORDER BY turn, ordinal",
                turns,
                call_record,
            )?,
            attempts: self.rows(
                &of_calls("tool_attempts", "tool_call_id, attempt"),
                turns,
                crate::ledger_rows::attempt_record,
            )?,
            receipts: self.rows(
                &of_calls("tool_receipts", "tool_call_id, receipt_seq"),
                turns,
                crate::ledger_rows::receipt_record,
            )?,
            requests: self.rows(
                concat!("SELECT t.*", of_run!("usage"), " AND t.turn BETWEEN ?2 AND ?3 ORDER BY t.place"),
                turns,
                crate::run_rows::request_record,
            )?,
            ..around
        })
    }

    /// A run without its turns: what belongs to it whichever of them are read.
    fn load_around_turns(&self, id: &RunId) -> DbResult<RunRecords> {
        Ok(RunRecords {
            run: self.run(id)?,
            steps: self.steps_of(id)?,
            turns: Vec::new(),
            messages: Vec::new(),
            calls: Vec::new(),
            attempts: Vec::new(),
            receipts: Vec::new(),
            questions: self.questions_of(id)?,
            overrides: self.overrides_of(id)?,
            checkpoints: Vec::new(),
            requests: Vec::new(),
            lineage: ua_store::LineageRecords::default(),
            left_out: ua_store::LeftOut::default(),
        })
    }

    pub(crate) fn find_calls(&self, query: &CallQuery) -> DbResult<Vec<CallRecord>> {
        let (from, to) = range(&query.prefix);
        let sql = if query.only_unknown { FIND_UNKNOWN } else { FIND_CALLS };
        self.rows(sql, params![from, to, query.limit, query.ending], call_record)
    }

    /// The runs of a lineage, newest first, and those of them that were deleted.
    pub(crate) fn lineage_members(&self, root: &RunId) -> DbResult<(Vec<RunId>, Vec<RunId>)> {
        let members = "SELECT run_id FROM runs WHERE root_run_id = ?1 ORDER BY created_at DESC, seq DESC";
        let deleted = "SELECT run_id FROM deleted_runs WHERE root_run_id = ?1";
        Ok((self.ids(members, [root.as_str()])?, self.ids(deleted, [root.as_str()])?))
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::SqliteStore;

    /// What SQLite does for a query, one line a step.
    fn plan(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let count = statement.parameter_count();
        let rows = statement.query_map(rusqlite::params_from_iter(vec!["1"; count]), |row| row.get(3)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[tokio::test]
    async fn lists_and_completions_read_no_history() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime_state.db");
        let store = SqliteStore::open(crate::SqliteConfig::new(&path)).unwrap();
        let connection = Connection::open(&path).unwrap();
        for sql in [FIND_RUNS, FIND_CALLS, FIND_UNKNOWN] {
            let steps = plan(&connection, sql);
            let tables = ["messages", "turns", "tool_receipts", "checkpoints", "tool_call_events"];
            assert!(!steps.iter().any(|step| tables.iter().any(|table| step.contains(table))), "{steps:?}");
            assert!(!steps.iter().any(|step| step.starts_with("SCAN d")), "{steps:?}");
        }
        // A prefix of a call is looked up in its index, not looked for.
        let calls = plan(&connection, FIND_CALLS).join("\n");
        assert!(calls.contains("SEARCH tool_calls USING INDEX"), "{calls}");
        let unknown = plan(&connection, FIND_UNKNOWN).join("\n");
        assert!(unknown.contains("idx_tool_calls_unknown"), "{unknown}");
        drop(store);
    }
}
