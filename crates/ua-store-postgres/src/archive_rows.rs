//! Looking back at runs and calls, and letting go of a run.

use tokio_postgres::Row;
use ua_core::{RunId, RunStatus};
use ua_store::{CallQuery, CallRecord, RunDeletion, RunHead, RunQuery, RunRecords};

use crate::column::{Columns, text};
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::call_record;
use crate::value::{Values, params};

type DbResult<T> = Result<T, DbError>;

/// Sorts behind every character of an id, so that `prefix..prefix + this` is the range of ids that begin with a prefix.
const BEHIND: char = '\u{7f}';

/// Only columns of `runs`, and not its long ones: of the contract nothing but the objective is taken out. JSON with an escaped U+0000 in it, wherever,
/// is none that PostgreSQL takes anything out of.
const FIND_RUNS: &str = "SELECT run_id, created_at, updated_at, run_mode, status, stop_reason, status_detail, \
    replace(run_spec_json, E'\\\\u0000', E'\\\\ufffd')::json ->> 'objective' AS objective, job_path, job_key, workspace_dir, parent_run_id, turn_index, iteration_count, max_iterations FROM runs \
    WHERE run_id >= $1 AND run_id < $2 AND created_at >= $3 AND strpos($4, ',' || status || ',') > 0 \
    AND ($5 OR run_mode <> 'task') AND ($7 = '' OR right(run_id, length($7)) = $7) \
    AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = runs.run_id) \
    ORDER BY created_at DESC, seq DESC LIMIT $6";

const FIND_CALLS: &str = "SELECT * FROM tool_calls WHERE tool_call_id >= $1 AND tool_call_id < $2 \
    AND ($4 = '' OR right(tool_call_id, length($4)) = $4) AND ($5 OR status = 'unknown') \
    AND NOT EXISTS (SELECT 1 FROM deleted_runs d WHERE d.run_id = tool_calls.run_id) \
    ORDER BY created_at DESC, run_id DESC, turn DESC, ordinal DESC LIMIT $3";

fn range(prefix: &str) -> (String, String) {
    (prefix.to_owned(), format!("{prefix}{BEHIND}"))
}

fn run_head(row: &Row) -> DbResult<RunHead> {
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

impl Db {
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
        let parameters = params![
            from,
            to,
            query.since.as_ref().map(text).unwrap_or_default(),
            statuses.concat(),
            !query.without_tasks,
            query.limit,
            query.ending.clone()
        ];
        self.rows(FIND_RUNS, parameters, run_head)
    }

    /// Whether a run of this name was deleted.
    pub(crate) fn is_deleted(&self, run: &RunId) -> DbResult<bool> {
        let found = self.row("SELECT 1 FROM deleted_runs WHERE run_id = $1", params![run.as_str()], |row| {
            Ok(row.try_get::<_, i32>(0)?)
        })?;
        Ok(found.is_some())
    }

    pub(crate) fn note_deleted(&self, deletion: &RunDeletion, root: &RunId) {
        let sql = "INSERT INTO deleted_runs (run_id, root_run_id, deleted_at) VALUES ($1, $2, $3)";
        self.execute(sql, params![deletion.run_id.as_str(), root.as_str(), text(&deletion.at)]);
    }

    fn ids(&self, sql: &str, parameters: impl Values) -> DbResult<Vec<RunId>> {
        self.rows(sql, parameters, |row| Columns::new(row, "runs", "run_id").parsed("run_id"))
    }

    /// Removes every row of the lineage of `root`, and the blobs that no other run refers to. Tables are found by the column that says
    /// whose their rows are, so that a table that a later schema adds is not forgotten.
    pub(crate) fn remove_lineage(&self, root: &RunId) -> DbResult<()> {
        self.forget_run();
        self.blobs_alone();
        // Runs and their steps refer to each other, so references are checked when the transaction ends.
        self.batch("SET CONSTRAINTS ALL DEFERRED");
        let runs = "SELECT run_id FROM runs WHERE root_run_id = $1";
        let sql = "SELECT table_name::text AS name, string_agg(column_name::text, ',') AS columns FROM information_schema.columns \
                   WHERE table_schema = 'ua' AND table_name NOT IN ('runs', 'deleted_runs', 'tool_calls', 'questions', 'blobs') \
                   GROUP BY table_name ORDER BY table_name";
        let tables =
            self.rows(sql, params![], |row| Ok((row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?)))?;
        let delete = |sql: String| self.execute(&sql, params![root.as_str()]);
        // What only they refer to is found before the references go.
        let blobs: Vec<String> = self.rows(
            &format!("SELECT blob_id FROM blob_refs GROUP BY blob_id HAVING bool_and(run_id IN ({runs}))"),
            params![root.as_str()],
            |row| Ok(row.try_get(0)?),
        )?;
        for (table, columns) in &tables {
            let owner = |column: &str| columns.split(',').any(|name| name == column);
            if owner("run_id") {
                delete(format!("DELETE FROM {table} WHERE run_id IN ({runs})"));
            } else if owner("tool_call_id") {
                let calls = format!("SELECT tool_call_id FROM tool_calls WHERE run_id IN ({runs})");
                delete(format!("DELETE FROM {table} WHERE tool_call_id IN ({calls})"));
            } else if owner("question_id") {
                let questions = format!("SELECT question_id FROM questions WHERE run_id IN ({runs})");
                delete(format!("DELETE FROM {table} WHERE question_id IN ({questions})"));
            }
        }
        // Other sessions may have asked for calls of these.
        let calls = format!("SELECT tool_call_id FROM tool_calls WHERE run_id IN ({runs})");
        delete(format!("DELETE FROM gateway_arrivals WHERE tool_call_id IN ({calls})"));
        delete(format!("DELETE FROM questions WHERE run_id IN ({runs})"));
        delete(format!("DELETE FROM tool_calls WHERE run_id IN ({runs})"));
        delete("DELETE FROM runs WHERE root_run_id = $1".to_owned());
        for blob in blobs {
            self.execute("DELETE FROM blobs WHERE blob_id = $1", params![blob]);
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
        let turns = || params![id.as_str(), first, last];
        let calls = "SELECT tool_call_id FROM tool_calls WHERE run_id = $1 AND turn BETWEEN $2 AND $3";
        let of_calls = |table: &str, order: &str| {
            format!("SELECT * FROM {table} WHERE tool_call_id IN ({calls}) ORDER BY {order}")
        };
        Ok(RunRecords {
            turns: self.rows(
                "SELECT * FROM turns WHERE run_id = $1 AND turn BETWEEN $2 AND $3 ORDER BY turn",
                turns(),
                crate::run_rows::turn_record,
            )?,
            messages: self.rows(
                "SELECT * FROM messages WHERE run_id = $1 AND turn BETWEEN $2 AND $3 ORDER BY seq",
                turns(),
                crate::run_rows::message_record,
            )?,
            calls: self.rows(
                "SELECT * FROM tool_calls WHERE run_id = $1 AND turn BETWEEN $2 AND $3 ORDER BY turn, ordinal",
                turns(),
                call_record,
            )?,
            attempts: self.rows(
                &of_calls("tool_attempts", "tool_call_id, attempt"),
                turns(),
                crate::ledger_rows::attempt_record,
            )?,
            receipts: self.rows(
                &of_calls("tool_receipts", "tool_call_id, receipt_seq"),
                turns(),
                crate::ledger_rows::receipt_record,
            )?,
            requests: self.rows(
                "SELECT * FROM usage WHERE run_id = $1 AND turn BETWEEN $2 AND $3 ORDER BY request_id",
                turns(),
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
        self.rows(FIND_CALLS, params![from, to, query.limit, query.ending.clone(), !query.only_unknown], call_record)
    }

    /// The runs of a lineage, newest first, and those of them that were deleted.
    pub(crate) fn lineage_members(&self, root: &RunId) -> DbResult<(Vec<RunId>, Vec<RunId>)> {
        let members = "SELECT run_id FROM runs WHERE root_run_id = $1 ORDER BY created_at DESC, seq DESC";
        let deleted = "SELECT run_id FROM deleted_runs WHERE root_run_id = $1";
        Ok((self.ids(members, params![root.as_str()])?, self.ids(deleted, params![root.as_str()])?))
    }
}
