//! The rows of runs: how they are found, and how they are stored.

use std::collections::HashMap;

use tokio_postgres::Row;
use ua_core::{CallId, ModelTurn, Money, QuestionId, RunId, StepId, Timestamp, Usage};
use ua_store::rows::Written;
use ua_store::{
    AnswerRecord, CheckpointRecord, ForkPoint, MessageRecord, QuestionRecord, RequestId, RequestRecord, RowRef,
    RunRecord, RunRecords, StepRecord, StoreError, Taint, TurnRecord, answer_link, standing_answer,
};

use crate::column::{Columns, int, json, opt_json, opt_text, stored_name, text};
use crate::db::Db;
use crate::error::DbError;
use crate::kept::CallsOfTurn;
use crate::value::{named, params};

type DbResult<T> = Result<T, DbError>;

pub(crate) fn not_found(table: &'static str, key: impl std::fmt::Display) -> DbError {
    StoreError::NotFound { row: RowRef::new(table, key) }.into()
}

pub(crate) const WRITTEN: &str = "SELECT batches, words FROM run_writes WHERE run_id = $1";
pub(crate) const RUN: &str = "SELECT * FROM runs WHERE run_id = $1";
/// The same two without a search path, for one that reads nothing else.
pub(crate) const RUN_ALONE: &str = "SELECT * FROM ua.runs WHERE run_id = $1";
pub(crate) const LEASED: &str =
    "SELECT w.batches, w.words, r.* FROM ua.runs r JOIN ua.run_writes w ON w.run_id = r.run_id WHERE r.run_id = $1";
pub(crate) const OWN_NUMBER: &str = "SELECT pg_current_xact_id()::xid::text";
pub(crate) const STEP: &str = "SELECT * FROM run_steps WHERE step_id = $1";
pub(crate) const OPEN_TURN: &str = "SELECT * FROM turns WHERE run_id = $1 AND committed_at IS NULL";
pub(crate) const LAST_SEQ: &str = "SELECT coalesce(max(seq), 0) FROM messages WHERE run_id = $1";
const REQUEST: &str = "SELECT * FROM usage WHERE run_id = $1 AND request_id = $2";
pub(crate) const LAST_REQUEST: &str = "SELECT * FROM usage WHERE run_id = $1 ORDER BY request_id DESC LIMIT 1";

impl Db {
    // --- Runs.

    pub(crate) fn written(&self, run: &RunId) -> DbResult<Written> {
        if let Some(known) = self.known_of(run, |rows| rows.written) {
            return Ok(known);
        }
        let written = self.row(WRITTEN, params![run.as_str()], written)?.unwrap_or_default();
        self.note_of(run, |rows| rows.written = Some(written));
        Ok(written)
    }

    pub(crate) fn set_batches(&self, run: &RunId, batches: u64) {
        // What is computed from what is known begins with the guard, which sets it.
        if !self.is_computed() || self.known_of(run, |rows| rows.written).is_none() {
            let sql = "UPDATE run_writes SET batches = $2 WHERE run_id = $1";
            self.execute(sql, params![run.as_str(), int(batches)]);
        }
        self.note_of(run, |rows| rows.written = rows.written.map(|written| Written { batches, ..written }));
    }

    /// Begins a write that is computed from what is known of a run: behind the lock of its lineage, nothing of it is written unless the run's
    /// row of `run_writes` is the one that `written_by` left, and the run's owner is the same.
    pub(crate) fn guard(&self, run: &RunRecord, written: Written, written_by: &str, batches: u64) -> DbResult<()> {
        self.execute("SELECT FROM runs WHERE run_id = $1 FOR NO KEY UPDATE", params![run.root_run_id.as_str()]);
        let sql = "UPDATE run_writes w SET batches = $2 / (CASE WHEN w.xmin = $3::xid AND w.batches = $4 AND w.words = $5 \
                   AND EXISTS (SELECT FROM runs r WHERE r.run_id = $1 AND r.lease_epoch = $6 AND r.owner_json IS NOT DISTINCT FROM $7) \
                   THEN 1 ELSE 0 END) WHERE w.run_id = $1 RETURNING pg_current_xact_id()::xid::text AS written_by";
        let owner = opt_json(run.owner.as_ref())?;
        let (known, words) = (int(written.batches), int(written.words));
        let id = run.run_id.as_str();
        self.execute(sql, params![id, int(batches), written_by, known, words, int(run.lease_epoch), owner]);
        Ok(())
    }

    /// Leaves a mark in a run's row of `run_writes`: what was kept of its rows is out of date.
    pub(crate) fn touch(&self, run: &RunId) {
        self.execute("UPDATE run_writes SET batches = batches WHERE run_id = $1", params![run.as_str()]);
    }

    /// The number of this transaction, as `xmin` of the rows that it writes outside of savepoints.
    pub(crate) fn own_number(&self) -> DbResult<String> {
        let number = self.row(OWN_NUMBER, params![], |row| Ok(row.try_get::<_, String>(0)?))?;
        Ok(number.unwrap_or_default())
    }

    pub(crate) fn count_word(&self, run: &RunId) {
        self.note_of(run, |rows| rows.written = None);
        let sql = "UPDATE run_writes SET words = words + 1 WHERE run_id = $1";
        self.execute(sql, params![run.as_str()]);
    }

    pub(crate) fn run(&self, id: &RunId) -> DbResult<RunRecord> {
        if let Some(known) = self.known_run(id) {
            return Ok(known);
        }
        let found = self.row(RUN, params![id.as_str()], run_record)?;
        let found = found.ok_or_else(|| not_found("runs", id))?;
        self.keep_run(&found);
        Ok(found)
    }

    /// What was read into the history of a run; nothing when there is no such run.
    pub(crate) fn taint_of(&self, run: &RunId) -> DbResult<Taint> {
        let bits = self.row("SELECT taint FROM runs WHERE run_id = $1", params![run.as_str()], |row| {
            Columns::new(row, "runs", "taint").int("taint")
        })?;
        Ok(bits.map(Taint::from_bits).unwrap_or_default())
    }

    /// The run that answers for `job_key` outside the lineage of `root`: the newest that is not finished, else the newest.
    pub(crate) fn run_of_job_key(&self, job_key: &str, root: Option<&RunId>) -> DbResult<Option<RunRecord>> {
        let sql = "SELECT * FROM runs WHERE job_key = $1 AND root_run_id IS DISTINCT FROM $2 \
                   ORDER BY (status IN ('succeeded', 'failed', 'cancelled')), created_at DESC, seq DESC LIMIT 1";
        self.row(sql, params![job_key, root.map(RunId::as_str)], run_record)
    }

    pub(crate) fn newest_runs(&self, limit: u32) -> DbResult<Vec<RunRecord>> {
        self.rows("SELECT * FROM runs ORDER BY created_at DESC, seq DESC LIMIT $1", params![limit], run_record)
    }

    pub(crate) fn insert_run(&self, run: &RunRecord) -> DbResult<()> {
        if self.is_deleted(&run.run_id)? {
            return Err(StoreError::Exists { row: RowRef::new("deleted_runs", &run.run_id) }.into());
        }
        let sql = "INSERT INTO runs (run_id, created_at, updated_at, status, entrypoint, run_mode, run_spec_json, job_path, \
                   job_key, last_job_prompt, workspace_dir, launch_json, root_run_id, lineage_mark, parent_run_id, task_call_id, \
                   provider_session_forked_from, forked_at_turn, forked_at_seq, turn_index, max_iterations, completion_promise, taint, corrected_at) \
                   VALUES (:id, :created, :updated, :status, :entrypoint, :mode, :spec, :job_path, :job_key, :prompt, \
                   :workspace, :launch, :root, :mark, :parent, :task, :forked_from, :forked_turn, :forked_seq, :turn_index, :max_iterations, :promise, :taint, :corrected)";
        self.insert(
            sql,
            named! {
                ":id": run.run_id.as_str(),
                ":created": text(&run.created_at),
                ":updated": text(&run.updated_at),
                ":status": run.status.as_str(),
                ":entrypoint": run.entrypoint,
                ":mode": run.run_mode,
                ":spec": json(&run.spec)?,
                ":job_path": run.job_path,
                ":job_key": run.job_key,
                ":prompt": run.last_job_prompt,
                ":workspace": run.workspace_dir,
                ":launch": json(&run.launch)?,
                ":root": run.root_run_id.as_str(),
                ":mark": run.lineage_mark,
                ":parent": opt_text(run.parent_run_id.as_ref()),
                ":task": opt_text(run.task_call_id.as_ref()),
                ":forked_from": run.provider_session_forked_from,
                ":forked_turn": run.forked_at.map(|point| point.turn),
                ":forked_seq": run.forked_at.map(|point| int(point.seq)),
                ":turn_index": run.turn_index,
                ":max_iterations": run.max_iterations,
                ":promise": run.completion_promise,
                ":taint": run.taint.bits(),
                ":corrected": opt_text(run.corrected_at.as_ref()),
            },
            || RowRef::new("runs", &run.run_id),
        );
        let sql = "INSERT INTO run_writes (run_id) VALUES ($1)";
        self.execute(sql, params![run.run_id.as_str()]);
        Ok(())
    }

    pub(crate) fn update_run(&self, run: &RunRecord) -> DbResult<()> {
        let sql = "UPDATE runs SET updated_at = :updated, status = :status, stop_reason = :stop_reason, \
                   status_detail = :detail, provider_session_id = :session, current_step_id = :step, \
                   last_checkpoint_id = :checkpoint, final_artifact_ref = :artifact, final_output = :output, \
                   turn_index = :turn_index, lease_epoch = :epoch, owner_json = :owner, cancel_requested_at = :cancel_at, \
                   cancel_reason = :cancel_reason, abort_requested_at = :abort_at, \
                   abort_question = :abort_question, iteration_count = :iterations, max_iterations = :max_iterations, \
                   completion_promise = :promise, held_millis = :held, held_from = :held_from, seen_at = :seen_at, \
                   unclean_ends_json = :unclean, traces_json = :traces, processes_json = :processes, taint = :taint WHERE run_id = :id";
        self.execute(
            sql,
            named! {
                ":id": run.run_id.as_str(),
                ":updated": text(&run.updated_at),
                ":status": run.status.as_str(),
                ":stop_reason": opt_text(run.stop_reason.as_ref()),
                ":detail": run.status_detail,
                ":session": run.provider_session_id,
                ":step": opt_text(run.current_step_id.as_ref()),
                ":checkpoint": opt_text(run.last_checkpoint_id.as_ref()),
                ":artifact": run.final_artifact_ref,
                ":output": run.final_output,
                ":turn_index": run.turn_index,
                ":epoch": int(run.lease_epoch),
                ":owner": opt_json(run.owner.as_ref())?,
                ":cancel_at": opt_text(run.cancel_requested_at.as_ref()),
                ":cancel_reason": run.cancel_reason,
                ":abort_at": opt_text(run.abort_requested_at.as_ref()),
                ":abort_question": opt_text(run.abort_question.as_ref()),
                ":iterations": run.iteration_count,
                ":max_iterations": run.max_iterations,
                ":promise": run.completion_promise,
                ":held": int(run.held_millis),
                ":held_from": opt_text(run.held_from.as_ref()),
                ":seen_at": opt_text(run.seen_at.as_ref()),
                ":unclean": json(&run.unclean_ends)?,
                ":traces": json(&run.traces)?,
                ":processes": json(&run.processes)?,
                ":taint": run.taint.bits(),
            },
        );
        self.keep_run(run);
        Ok(())
    }

    pub(crate) fn update_seen(&self, run: &RunRecord) {
        self.keep_run(run);
        let sql = "UPDATE runs SET seen_at = $2, held_from = $3 WHERE run_id = $1";
        self.execute(
            sql,
            params![run.run_id.as_str(), opt_text(run.seen_at.as_ref()), opt_text(run.held_from.as_ref())],
        );
    }

    /// Notes for every run of a lineage that a record of it was corrected.
    pub(crate) fn note_corrected(&self, root: &RunId, at: Timestamp) {
        self.forget_run();
        let sql = "UPDATE runs SET corrected_at = $2 WHERE root_run_id = $1";
        self.execute(sql, params![root.as_str(), text(&at)]);
        let sql =
            "UPDATE run_writes SET words = words + 1 WHERE run_id IN (SELECT run_id FROM runs WHERE root_run_id = $1)";
        self.execute(sql, params![root.as_str()]);
    }

    /// When anything of the run was written last by an owner: by the newest row of each kind, so that a long run is not read for it.
    pub(crate) fn last_write(&self, run: &RunId) -> DbResult<Option<Timestamp>> {
        let sql = "SELECT max(at) AS at FROM ( \
                   SELECT updated_at AS at FROM run_steps WHERE run_id = $1 UNION ALL \
                   (SELECT recorded_at FROM turns WHERE run_id = $1 ORDER BY turn DESC LIMIT 1) UNION ALL \
                   (SELECT at FROM tool_call_events WHERE run_id = $1 AND chain IS NOT NULL ORDER BY event_seq DESC LIMIT 1) UNION ALL \
                   (SELECT coalesce(closed_at, reserved_at) FROM usage WHERE run_id = $1 ORDER BY request_id DESC LIMIT 1) UNION ALL \
                   (SELECT created_at FROM checkpoints WHERE run_id = $1 ORDER BY seq DESC LIMIT 1)) written";
        let last = self.row(sql, params![run.as_str()], |row| Columns::new(row, "runs", "at").opt_at("at"))?;
        Ok(last.flatten())
    }

    /// Everything about one run, and what it has from its lineage.
    pub(crate) fn load(&self, id: &RunId) -> DbResult<RunRecords> {
        let run = self.run(id)?;
        let messages = self.whole_history(&run, u32::MAX)?;
        Ok(RunRecords {
            lineage: self.lineage_of(&run)?,
            run,
            steps: self.steps_of(id)?,
            turns: self.turns_of(id)?,
            messages,
            calls: self.calls_of(id, None)?,
            attempts: self.attempts_of_run(id)?,
            receipts: self.receipts_of_run(id)?,
            questions: self.questions_of(id)?,
            overrides: self.overrides_of(id)?,
            checkpoints: self.checkpoints_of(id)?,
            requests: self.requests_of(id)?,
            left_out: ua_store::LeftOut::default(),
        })
    }

    // --- Steps.

    pub(crate) fn step(&self, id: &StepId) -> DbResult<Option<StepRecord>> {
        let known = self.known(|rows| rows.step.as_ref().filter(|step| step.step_id == *id).cloned());
        if known.is_some() {
            return Ok(known);
        }
        let step = self.row(STEP, params![id.as_str()], step_record)?;
        if let Some(step) = &step {
            self.note_of(&step.run_id, |rows| rows.step = Some(step.clone()));
        }
        Ok(step)
    }

    pub(crate) fn steps_of(&self, run: &RunId) -> DbResult<Vec<StepRecord>> {
        self.rows("SELECT * FROM run_steps WHERE run_id = $1 ORDER BY step_index", params![run.as_str()], step_record)
    }

    pub(crate) fn last_step_index(&self, run: &RunId) -> DbResult<u32> {
        let last =
            self.number("SELECT coalesce(max(step_index), 0) FROM run_steps WHERE run_id = $1", params![run.as_str()])?;
        Ok(u32::try_from(last).unwrap_or(u32::MAX))
    }

    pub(crate) fn insert_step(&self, step: &StepRecord) -> DbResult<()> {
        let sql = "INSERT INTO run_steps (step_id, run_id, step_index, created_at, updated_at, status, phase, first_turn, \
                   fingerprint_json) \
                   VALUES (:id, :run, :index, :created, :updated, :status, :phase, :first, :fingerprint)";
        self.insert(
            sql,
            named! {
                ":id": step.step_id.as_str(),
                ":run": step.run_id.as_str(),
                ":index": step.step_index,
                ":created": text(&step.created_at),
                ":updated": text(&step.updated_at),
                ":status": step.status.as_str(),
                ":phase": step.phase,
                ":first": step.first_turn,
                ":fingerprint": opt_json(step.fingerprint.as_ref())?,
            },
            || RowRef::new("run_steps", &step.step_id),
        );
        self.note_of(&step.run_id, |rows| rows.step = None);
        Ok(())
    }

    pub(crate) fn update_step(&self, step: &StepRecord) {
        let sql = "UPDATE run_steps SET updated_at = :updated, status = :status, error_code = :code, error_detail = :detail, \
                   last_turn = :last WHERE step_id = :id";
        self.execute(
            sql,
            named! {
                ":id": step.step_id.as_str(),
                ":updated": text(&step.updated_at),
                ":status": step.status.as_str(),
                ":code": step.error_code,
                ":detail": step.error_detail,
                ":last": step.last_turn,
            },
        );
        self.note_of(&step.run_id, |rows| rows.step = Some(step.clone()));
    }

    // --- Turns and messages.

    pub(crate) fn open_turn(&self, run: &RunId) -> DbResult<Option<TurnRecord>> {
        if let Some(known) = self.known_of(run, |rows| rows.open_turn.clone()) {
            return Ok(known);
        }
        let open = self.row(OPEN_TURN, params![run.as_str()], turn_record)?;
        self.note_of(run, |rows| rows.open_turn = Some(open.clone()));
        Ok(open)
    }

    pub(crate) fn turns_of(&self, run: &RunId) -> DbResult<Vec<TurnRecord>> {
        self.rows("SELECT * FROM turns WHERE run_id = $1 ORDER BY turn", params![run.as_str()], turn_record)
    }

    pub(crate) fn insert_turn(&self, turn: &TurnRecord) -> DbResult<()> {
        let sql = "INSERT INTO turns (run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, \
                   recorded_at, lease_epoch) \
                   VALUES (:run, :turn, :step, :request, :stop_reason, :model, :response, :usage, :recorded, :epoch)";
        self.execute(
            sql,
            named! {
                ":run": turn.run_id.as_str(),
                ":turn": turn.turn,
                ":step": turn.step_id.as_str(),
                ":request": turn.request_sha256.to_hex(),
                ":stop_reason": turn.reply.stop_reason.as_str(),
                ":model": turn.reply.model,
                ":response": turn.reply.response_id,
                ":usage": opt_json(turn.reply.usage.as_ref())?,
                ":recorded": text(&turn.recorded_at),
                ":epoch": int(turn.epoch),
            },
        );
        // What its reply says is a message.
        let reply = ModelTurn { blocks: Vec::new(), ..turn.reply.clone() };
        self.note_of(&turn.run_id, |rows| {
            rows.open_turn = Some(Some(TurnRecord { reply, committed_at: None, ..turn.clone() }));
            rows.calls = Some(CallsOfTurn { turn: turn.turn, calls: Vec::new(), attempts: HashMap::new() });
        });
        Ok(())
    }

    pub(crate) fn update_turn(&self, turn: &TurnRecord) {
        let sql = "UPDATE turns SET committed_at = $3 WHERE run_id = $1 AND turn = $2";
        let committed = opt_text(turn.committed_at.as_ref());
        self.execute(sql, params![turn.run_id.as_str(), turn.turn, committed]);
        self.note_of(&turn.run_id, |rows| rows.open_turn = turn.committed_at.is_some().then_some(None));
    }

    /// The run's messages of turns up to `last_turn`.
    pub(crate) fn messages_of(&self, run: &RunId, last_turn: u32) -> DbResult<Vec<MessageRecord>> {
        let sql = "SELECT * FROM messages WHERE run_id = $1 AND turn <= $2 ORDER BY seq";
        self.rows(sql, params![run.as_str(), last_turn], message_record)
    }

    /// The end of the run's history, oldest first.
    pub(crate) fn last_messages(&self, run: &RunId, count: usize) -> DbResult<Vec<MessageRecord>> {
        let sql = "SELECT * FROM messages WHERE run_id = $1 ORDER BY seq DESC LIMIT $2";
        let mut messages = self.rows(sql, params![run.as_str(), int(count as u64)], message_record)?;
        messages.reverse();
        Ok(messages)
    }

    pub(crate) fn last_seq(&self, run: &RunId) -> DbResult<u64> {
        if let Some(known) = self.known_of(run, |rows| rows.last_seq) {
            return Ok(known);
        }
        let last = self.number(LAST_SEQ, params![run.as_str()])?;
        self.note_of(run, |rows| rows.last_seq = Some(last));
        Ok(last)
    }

    pub(crate) fn insert_message(&self, run: &RunId, message: &MessageRecord) -> DbResult<()> {
        let sql = "INSERT INTO messages (run_id, seq, turn, created_at, role, origin, message_json) \
                   VALUES (:run, :seq, :turn, :created, :role, :origin, :message)";
        self.execute(
            sql,
            named! {
                ":run": run.as_str(),
                ":seq": int(message.seq),
                ":turn": message.turn,
                ":created": text(&message.created_at),
                ":role": message.message.role.as_str(),
                ":origin": message.message.origin.as_str(),
                ":message": json(&message.message)?,
            },
        );
        self.note_of(run, |rows| rows.last_seq = rows.last_seq.map(|last| last.max(message.seq)));
        Ok(())
    }

    // --- Checkpoints.

    pub(crate) fn checkpoints_of(&self, run: &RunId) -> DbResult<Vec<CheckpointRecord>> {
        self.rows("SELECT * FROM checkpoints WHERE run_id = $1 ORDER BY seq", params![run.as_str()], checkpoint_record)
    }

    /// The markers of a run behind the first so many, oldest first, at most `most`.
    pub(crate) fn markers_of(&self, run: &RunId, behind: u32, most: u32) -> DbResult<Vec<CheckpointRecord>> {
        let sql = "SELECT * FROM checkpoints WHERE run_id = $1 ORDER BY seq LIMIT $3::bigint OFFSET $2::bigint";
        self.rows(sql, params![run.as_str(), i64::from(behind), i64::from(most)], checkpoint_record)
    }

    pub(crate) fn insert_checkpoint(&self, checkpoint: &CheckpointRecord) -> DbResult<()> {
        let sql = "INSERT INTO checkpoints (checkpoint_id, run_id, step_id, created_at, checkpoint_type, \
                   state_snapshot_json, cursor_json) VALUES (:id, :run, :step, :created, :kind, :snapshot, :cursor)";
        self.insert(
            sql,
            named! {
                ":id": checkpoint.checkpoint_id.as_str(),
                ":run": checkpoint.run_id.as_str(),
                ":step": checkpoint.step_id.as_str(),
                ":created": text(&checkpoint.created_at),
                ":kind": stored_name(&checkpoint.kind)?,
                ":snapshot": json(&checkpoint.snapshot)?,
                ":cursor": json(&checkpoint.cursor)?,
            },
            || RowRef::new("checkpoints", &checkpoint.checkpoint_id),
        );
        Ok(())
    }

    // --- Requests to models.

    pub(crate) fn request(&self, run: &RunId, id: RequestId) -> DbResult<Option<RequestRecord>> {
        let known = self.known_of(run, |rows| rows.last_request.clone()?.filter(|last| last.request_id == id));
        if known.is_some() {
            return Ok(known);
        }
        self.row(REQUEST, params![run.as_str(), int(id)], request_record)
    }

    pub(crate) fn requests_of(&self, run: &RunId) -> DbResult<Vec<RequestRecord>> {
        self.rows("SELECT * FROM usage WHERE run_id = $1 ORDER BY request_id", params![run.as_str()], request_record)
    }

    pub(crate) fn reserved_requests(&self, run: &RunId) -> DbResult<Vec<RequestRecord>> {
        let sql = "SELECT * FROM usage WHERE run_id = $1 AND status = 'reserved' ORDER BY request_id";
        self.rows(sql, params![run.as_str()], request_record)
    }

    pub(crate) fn last_request(&self, run: &RunId) -> DbResult<Option<RequestRecord>> {
        if let Some(known) = self.known_of(run, |rows| rows.last_request.clone()) {
            return Ok(known);
        }
        let last = self.row(LAST_REQUEST, params![run.as_str()], request_record)?;
        self.note_of(run, |rows| rows.last_request = Some(last.clone()));
        Ok(last)
    }

    pub(crate) fn insert_request(&self, run: &RunId, request: &RequestRecord) -> DbResult<()> {
        let sql = "INSERT INTO usage (run_id, request_id, turn, request_sha256, provider, model, estimator, estimated_tokens, \
                   reserved_output_tokens, price_json, status, reserved_at, continued_from) \
                   VALUES (:run, :id, :turn, :sha256, :provider, :model, :estimator, :estimate, :output, :price, :status, \
                   :reserved, :continued_from)";
        self.execute(
            sql,
            named! {
                ":run": run.as_str(),
                ":id": int(request.request_id),
                ":turn": request.turn,
                ":sha256": request.request_sha256.to_hex(),
                ":provider": request.provider,
                ":model": request.model,
                ":estimator": request.estimator,
                ":estimate": int(request.estimated_tokens),
                ":output": int(request.reserved_output_tokens),
                ":price": opt_json(request.price.as_ref())?,
                ":status": stored_name(&request.status)?,
                ":reserved": text(&request.reserved_at),
                ":continued_from": request.continued_from,
            },
        );
        self.note_of(run, |rows| rows.last_request = Some(Some(request.clone())));
        Ok(())
    }

    pub(crate) fn update_request(&self, run: &RunId, request: &RequestRecord) -> DbResult<()> {
        let sql = "UPDATE usage SET status = :status, input_tokens = :input, output_tokens = :output, \
                   cache_read_tokens = :read, cache_write_tokens = :write, cost_nanos = :cost, currency = :currency, \
                   closed_at = :closed, network_attempted = :attempted, response_id = :response, heard_json = :heard \
                   WHERE run_id = :run AND request_id = :id";
        self.execute(
            sql,
            named! {
                ":run": run.as_str(),
                ":id": int(request.request_id),
                ":status": stored_name(&request.status)?,
                ":input": int(request.usage.input_tokens),
                ":output": int(request.usage.output_tokens),
                ":read": int(request.usage.cache_read_tokens),
                ":write": int(request.usage.cache_write_tokens),
                ":cost": request.cost.map(|cost| int(cost.nanos())),
                ":currency": opt_text(request.cost.map(Money::currency).as_ref()),
                ":closed": opt_text(request.closed_at.as_ref()),
                ":attempted": request.network_attempted,
                ":response": request.response_id,
                ":heard": opt_json(request.heard.as_ref())?,
            },
        );
        self.note_of(run, |rows| match &mut rows.last_request {
            Some(Some(last)) if last.request_id == request.request_id => last.clone_from(request),
            _ => rows.last_request = None,
        });
        Ok(())
    }

    // --- Questions.

    pub(crate) fn question(&self, id: &QuestionId) -> DbResult<QuestionRecord> {
        let found =
            self.row(&format!("{QUESTIONS} WHERE q.question_id = $1"), params![id.as_str()], question_record)?;
        found.ok_or_else(|| not_found("questions", id))
    }

    /// The question about `call` that is not closed.
    pub(crate) fn waiting_question(&self, call: &CallId) -> DbResult<Option<QuestionRecord>> {
        let sql = format!("{QUESTIONS} WHERE q.tool_call_id = $1 AND q.status <> 'closed'");
        self.row(&sql, params![call.as_str()], question_record)
    }

    pub(crate) fn questions_of(&self, run: &RunId) -> DbResult<Vec<QuestionRecord>> {
        self.rows(&format!("{QUESTIONS} WHERE q.run_id = $1 ORDER BY q.seq"), params![run.as_str()], question_record)
    }

    /// Questions that are not closed, of `run` or of all.
    pub(crate) fn waiting_questions(&self, run: Option<&RunId>) -> DbResult<Vec<QuestionRecord>> {
        match run {
            Some(run) => {
                let sql = format!("{QUESTIONS} WHERE q.run_id = $1 AND q.status <> 'closed' ORDER BY q.seq");
                self.rows(&sql, params![run.as_str()], question_record)
            }
            None => {
                self.rows(&format!("{QUESTIONS} WHERE q.status <> 'closed' ORDER BY q.seq"), params![], question_record)
            }
        }
    }

    pub(crate) fn insert_question(&self, question: &QuestionRecord) -> DbResult<()> {
        let sql = "INSERT INTO questions (question_id, run_id, tool_call_id, kind, text, detail_json, choices_json, \
                   created_at, status) VALUES (:id, :run, :call, :kind, :text, :detail, :choices, :created, :status)";
        self.insert(
            sql,
            named! {
                ":id": question.question_id.as_str(),
                ":run": question.run_id.as_str(),
                ":call": opt_text(question.call_id.as_ref()),
                ":kind": stored_name(&question.kind)?,
                ":text": question.text,
                ":detail": json(&question.detail)?,
                ":choices": json(&question.choices)?,
                ":created": text(&question.created_at),
                ":status": stored_name(&question.status)?,
            },
            || RowRef::new("questions", &question.question_id),
        );
        Ok(())
    }

    /// Stores where a question stands, with its answer.
    pub(crate) fn update_question(&self, question: &QuestionRecord) -> DbResult<()> {
        let id = question.question_id.as_str();
        let sql = "UPDATE questions SET status = $2, closed_because = $3 WHERE question_id = $1";
        let status = stored_name(&question.status)?;
        self.execute(sql, params![id, status, question.closed_because]);
        if let Some(answer) = &question.answer {
            let (choice, answered) = (stored_name(&answer.choice)?, text(&answer.answered_at));
            let link = answer_link(id, &choice, answer.proof.as_deref(), answer.text.as_deref(), &answer.by, &answered);
            // What somebody wrote there beside this program is none, and makes room for the answer.
            let sql = "DELETE FROM answers \
                       WHERE question_id = $1 AND link IS DISTINCT FROM '' AND link IS DISTINCT FROM $2";
            self.execute(sql, params![id, link]);
            let sql = "INSERT INTO answers (question_id, choice, proof, note, answered_by, answered_at, applied_at, link) \
                       VALUES (:id, :choice, :proof, :note, :by, :answered, :applied, :link) \
                       ON CONFLICT (question_id) DO UPDATE SET applied_at = excluded.applied_at";
            self.execute(
                sql,
                named! {
                    ":id": id,
                    ":choice": choice,
                    ":proof": answer.proof,
                    ":note": answer.text,
                    ":by": answer.by,
                    ":answered": answered,
                    ":applied": opt_text(answer.applied_at.as_ref()),
                    ":link": link,
                },
            );
        }
        Ok(())
    }
}

/// Questions with their answers.
pub(crate) const QUESTIONS: &str = "SELECT q.*, a.choice, a.proof, a.note, a.answered_by, a.answered_at, a.applied_at, a.link \
                         FROM questions q LEFT JOIN answers a ON a.question_id = q.question_id";

/// What has been written about a run, counted, of the columns `batches` and `words`.
pub(crate) fn written(row: &Row) -> DbResult<Written> {
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(Written { batches: count(row.try_get("batches")?), words: count(row.try_get("words")?) })
}

pub(crate) fn run_record(row: &Row) -> DbResult<RunRecord> {
    let column = Columns::new(row, "runs", "run_id");
    let forked_at = match (column.opt_int("forked_at_turn")?, column.opt_int("forked_at_seq")?) {
        (Some(turn), Some(seq)) => Some(ForkPoint { turn, seq }),
        (_, _) => None,
    };
    Ok(RunRecord {
        run_id: column.parsed("run_id")?,
        created_at: column.at("created_at")?,
        updated_at: column.at("updated_at")?,
        status: column.parsed("status")?,
        stop_reason: column.opt_parsed("stop_reason")?,
        status_detail: column.get("status_detail")?,
        entrypoint: column.get("entrypoint")?,
        run_mode: column.get("run_mode")?,
        spec: column.shared("run_spec_json")?,
        job_path: column.get("job_path")?,
        job_key: column.get("job_key")?,
        last_job_prompt: column.get("last_job_prompt")?,
        workspace_dir: column.get("workspace_dir")?,
        launch: column.json("launch_json")?,
        root_run_id: column.parsed("root_run_id")?,
        lineage_mark: column.get("lineage_mark")?,
        parent_run_id: column.opt_parsed("parent_run_id")?,
        task_call_id: column.opt_parsed("task_call_id")?,
        forked_at,
        provider_session_id: column.get("provider_session_id")?,
        provider_session_forked_from: column.get("provider_session_forked_from")?,
        current_step_id: column.opt_parsed("current_step_id")?,
        last_checkpoint_id: column.opt_parsed("last_checkpoint_id")?,
        final_artifact_ref: column.get("final_artifact_ref")?,
        final_output: column.get("final_output")?,
        turn_index: column.int("turn_index")?,
        lease_epoch: column.int("lease_epoch")?,
        owner: column.opt_json("owner_json")?,
        cancel_requested_at: column.opt_at("cancel_requested_at")?,
        cancel_reason: column.get("cancel_reason")?,
        abort_requested_at: column.opt_at("abort_requested_at")?,
        abort_question: column.opt_parsed("abort_question")?,
        corrected_at: column.opt_at("corrected_at")?,
        taint: Taint::from_bits(column.int("taint")?),
        iteration_count: column.int("iteration_count")?,
        max_iterations: column.opt_int("max_iterations")?,
        completion_promise: column.get("completion_promise")?,
        held_millis: column.int("held_millis")?,
        held_from: column.opt_at("held_from")?,
        seen_at: column.opt_at("seen_at")?,
        unclean_ends: column.json("unclean_ends_json")?,
        traces: column.json("traces_json")?,
        processes: column.json("processes_json")?,
    })
}

fn step_record(row: &Row) -> DbResult<StepRecord> {
    let column = Columns::new(row, "run_steps", "step_id");
    Ok(StepRecord {
        step_id: column.parsed("step_id")?,
        run_id: column.parsed("run_id")?,
        step_index: column.int("step_index")?,
        created_at: column.at("created_at")?,
        updated_at: column.at("updated_at")?,
        status: column.parsed("status")?,
        phase: column.get("phase")?,
        error_code: column.get("error_code")?,
        error_detail: column.get("error_detail")?,
        first_turn: column.int("first_turn")?,
        last_turn: column.opt_int("last_turn")?,
        fingerprint: column.opt_json("fingerprint_json")?,
    })
}

pub(crate) fn turn_record(row: &Row) -> DbResult<TurnRecord> {
    let column = Columns::new(row, "turns", "turn");
    Ok(TurnRecord {
        run_id: column.parsed("run_id")?,
        turn: column.int("turn")?,
        step_id: column.parsed("step_id")?,
        request_sha256: column.sha256("request_sha256")?,
        reply: ModelTurn {
            blocks: Vec::new(),
            stop_reason: column.parsed("stop_reason")?,
            usage: column.opt_json("usage_json")?,
            model: column.get("model")?,
            response_id: column.get("response_id")?,
        },
        recorded_at: column.at("recorded_at")?,
        committed_at: column.opt_at("committed_at")?,
        epoch: column.int("lease_epoch")?,
    })
}

pub(crate) fn message_record(row: &Row) -> DbResult<MessageRecord> {
    let column = Columns::new(row, "messages", "seq");
    Ok(MessageRecord {
        seq: column.int("seq")?,
        turn: column.int("turn")?,
        message: column.json("message_json")?,
        created_at: column.at("created_at")?,
    })
}

fn checkpoint_record(row: &Row) -> DbResult<CheckpointRecord> {
    let column = Columns::new(row, "checkpoints", "checkpoint_id");
    Ok(CheckpointRecord {
        checkpoint_id: column.parsed("checkpoint_id")?,
        run_id: column.parsed("run_id")?,
        step_id: column.parsed("step_id")?,
        created_at: column.at("created_at")?,
        kind: column.stored_name("checkpoint_type")?,
        snapshot: column.json("state_snapshot_json")?,
        cursor: column.json("cursor_json")?,
    })
}

pub(crate) fn request_record(row: &Row) -> DbResult<RequestRecord> {
    let column = Columns::new(row, "usage", "request_id");
    let cost = match (column.opt_int("cost_nanos")?, column.opt_word("currency")?) {
        (Some(nanos), Some(currency)) => Some(Money::from_nanos(nanos, currency)),
        (_, _) => None,
    };
    Ok(RequestRecord {
        request_id: column.int("request_id")?,
        turn: column.int("turn")?,
        request_sha256: column.sha256("request_sha256")?,
        provider: column.get("provider")?,
        model: column.get("model")?,
        price: column.opt_json("price_json")?,
        estimator: column.get("estimator")?,
        estimated_tokens: column.int("estimated_tokens")?,
        reserved_output_tokens: column.int("reserved_output_tokens")?,
        network_attempted: column.get("network_attempted")?,
        status: column.stored_name("status")?,
        usage: Usage {
            input_tokens: column.int("input_tokens")?,
            output_tokens: column.int("output_tokens")?,
            cache_read_tokens: column.int("cache_read_tokens")?,
            cache_write_tokens: column.int("cache_write_tokens")?,
        },
        cost,
        heard: column.opt_json("heard_json")?,
        reserved_at: column.at("reserved_at")?,
        closed_at: column.opt_at("closed_at")?,
        response_id: column.get("response_id")?,
        continued_from: column.get("continued_from")?,
    })
}

pub(crate) fn question_record(row: &Row) -> DbResult<QuestionRecord> {
    let column = Columns::new(row, "questions", "question_id");
    let status = column.stored_name("status")?;
    let (answer, status) = match column.opt_word("choice")? {
        None => (None, status),
        Some(choice) => {
            let answer = AnswerRecord {
                choice,
                proof: column.get("proof")?,
                text: column.get("note")?,
                by: column.get("answered_by")?,
                answered_at: column.at("answered_at")?,
                applied_at: column.opt_at("applied_at")?,
            };
            // Over the words as they are stored.
            let text = |name| column.get::<String>(name);
            let (question, choice, at) = (text("question_id")?, text("choice")?, text("answered_at")?);
            let link: Option<String> = column.get("link")?;
            let (proof, note, by) = (answer.proof.clone(), answer.text.clone(), answer.by.clone());
            let columns = (&*question, &*choice, proof.as_deref(), note.as_deref(), &*by, &*at);
            standing_answer(columns, link.as_deref(), answer, status)
        }
    };
    Ok(QuestionRecord {
        question_id: column.parsed("question_id")?,
        run_id: column.parsed("run_id")?,
        call_id: column.opt_parsed("tool_call_id")?,
        kind: column.stored_name("kind")?,
        text: column.get("text")?,
        detail: column.json("detail_json")?,
        choices: column.json("choices_json")?,
        created_at: column.at("created_at")?,
        status,
        answer,
        closed_because: column.get("closed_because")?,
    })
}
