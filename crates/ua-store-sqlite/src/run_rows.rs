//! The rows of runs: how they are found, and how they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Row, named_params, params};
use ua_core::{CallId, CheckpointId, ModelTurn, Money, QuestionId, RunId, StepId, TASK_MODE, Timestamp, Usage};
use ua_store::rows::Written;
use ua_store::{
    AnswerRecord, CheckpointRecord, ForkPoint, MessageRecord, QuestionRecord, RequestId, RequestRecord, RowRef,
    RunRecord, RunRecords, StepRecord, StoreError, Taint, TurnRecord, answer_link, standing_answer,
};

use crate::column::{Columns, int, json, opt_json, opt_text, stored_name, text};
use crate::db::Db;
use crate::error::DbError;
use crate::kept::{CallsOfTurn, Kept};
use crate::places::of_run;
use crate::statement::{Changes, set_changed};

type DbResult<T> = Result<T, DbError>;

pub(crate) fn not_found(table: &'static str, key: impl std::fmt::Display) -> DbError {
    StoreError::NotFound { row: RowRef::new(table, key) }.into()
}

/// The newest of the times at which the newest rows of a run were written. A call changes with an event of its own.
pub(crate) const LAST_WRITE: &str = "SELECT ?1 AS run_id, max(at) AS at FROM ( \
    SELECT updated_at AS at FROM run_steps WHERE run_id = ?1 UNION ALL \
    SELECT * FROM (SELECT t.recorded_at FROM runs r JOIN turns t ON t.place BETWEEN r.seq << 28 AND (r.seq + 1) << 28 \
    WHERE r.run_id = ?1 ORDER BY t.place DESC LIMIT 1) UNION ALL \
    SELECT * FROM (SELECT at FROM tool_call_events WHERE run_id = ?1 ORDER BY event_seq DESC LIMIT 1) UNION ALL \
    SELECT * FROM (SELECT coalesce(t.closed_at, t.reserved_at) FROM runs r JOIN usage t ON t.place BETWEEN r.seq << 28 AND (r.seq + 1) << 28 \
    WHERE r.run_id = ?1 ORDER BY t.place DESC LIMIT 1) UNION ALL \
    SELECT * FROM (SELECT c.created_at FROM runs r JOIN checkpoints c ON c.seq BETWEEN r.seq << 28 AND (r.seq + 1) << 28 \
    WHERE r.run_id = ?1 ORDER BY c.seq DESC LIMIT 1))";

impl Db<'_> {
    /// All rows of a query, each read by `read`.
    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Vec<T>> {
        self.connection.prepare_cached(sql)?.query_and_then(parameters, read)?.collect()
    }

    /// The first row of a query, if any.
    pub(crate) fn row<T>(
        &self,
        sql: &str,
        parameters: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> DbResult<T>,
    ) -> DbResult<Option<T>> {
        self.connection.prepare_cached(sql)?.query_and_then(parameters, read)?.next().transpose()
    }

    /// The one number of a query.
    pub(crate) fn number(&self, sql: &str, parameters: impl rusqlite::Params) -> DbResult<u64> {
        let number: i64 = self.connection.prepare_cached(sql)?.query_row(parameters, |row| row.get(0))?;
        Ok(u64::try_from(number).unwrap_or(0))
    }

    // --- Runs.

    pub(crate) fn written(&self, run: &RunId) -> DbResult<Written> {
        let sql = "SELECT batches, words FROM run_writes WHERE run_id = ?1";
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let counts = |row: &Row<'_>| -> DbResult<Written> {
            Ok(Written { batches: count(row.get(0)?), words: count(row.get(1)?) })
        };
        self.known_or(
            |kept| kept.of(run)?.written,
            || {
                let written = self.row(sql, [run.as_str()], counts)?.unwrap_or_default();
                self.note_of(run, |of| of.written = Some(written));
                Ok(written)
            },
        )
    }

    pub(crate) fn set_batches(&self, run: &RunId, batches: u64) -> DbResult<()> {
        let sql = "UPDATE run_writes SET batches = ?2 WHERE run_id = ?1";
        self.connection.prepare_cached(sql)?.execute(params![run.as_str(), int(batches)])?;
        self.note_of(run, |of| of.written = of.written.map(|written| Written { batches, ..written }));
        Ok(())
    }

    pub(crate) fn count_word(&self, run: &RunId) -> DbResult<()> {
        self.note_of(run, |of| of.written = None);
        let sql = "UPDATE run_writes SET words = words + 1 WHERE run_id = ?1";
        self.connection.prepare_cached(sql)?.execute([run.as_str()])?;
        Ok(())
    }

    pub(crate) fn run(&self, id: &RunId) -> DbResult<RunRecord> {
        self.run_to_look_at(id).map(Arc::unwrap_or_clone)
    }

    /// The same, not copied when it is known.
    pub(crate) fn run_to_look_at(&self, id: &RunId) -> DbResult<Arc<RunRecord>> {
        let known = |kept: &Kept| kept.of(id)?.run.clone();
        self.known_or(known, || {
            let found = self.row("SELECT * FROM runs WHERE run_id = ?1", [id.as_str()], run_record)?;
            let found = found.map(Arc::new).ok_or_else(|| not_found("runs", id))?;
            self.note_of(id, |of| of.run = Some(found.clone()));
            Ok(found)
        })
    }

    /// What was read into the history of a run; nothing when there is no such run.
    pub(crate) fn taint_of(&self, run: &RunId) -> DbResult<Taint> {
        let bits = self.row("SELECT taint FROM runs WHERE run_id = ?1", [run.as_str()], |row| Ok(row.get(0)?))?;
        Ok(bits.map(Taint::from_bits).unwrap_or_default())
    }

    /// The run at the top of a run's tree: itself, unless it works on a task.
    pub(crate) fn top_of_tree(&self, run: &RunId) -> DbResult<String> {
        if self.run_to_look_at(run)?.run_mode != TASK_MODE {
            return Ok(run.as_str().to_owned());
        }
        let sql = "WITH RECURSIVE up (id, parent, mode, height) AS ( \
                   SELECT run_id, parent_run_id, run_mode, 0 FROM runs WHERE run_id = ?1 UNION ALL \
                   SELECT r.run_id, r.parent_run_id, r.run_mode, up.height + 1 FROM up JOIN runs r ON r.run_id = up.parent \
                   WHERE up.mode = ?2 AND up.height < (SELECT count(*) FROM runs)) \
                   SELECT id FROM up ORDER BY height DESC LIMIT 1";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row(params![run.as_str(), TASK_MODE], |row| row.get(0))?)
    }

    /// The run that answers for `job_key` outside the lineage of `root`: the newest that is not finished, else the newest.
    pub(crate) fn run_of_job_key(&self, job_key: &str, root: Option<&RunId>) -> DbResult<Option<RunRecord>> {
        let sql = "SELECT * FROM runs WHERE job_key = ?1 AND root_run_id IS NOT ?2 \
                   ORDER BY status IN ('succeeded', 'failed', 'cancelled'), created_at DESC, seq DESC LIMIT 1";
        self.row(sql, params![job_key, root.map(RunId::as_str)], run_record)
    }

    pub(crate) fn newest_runs(&self, limit: u32) -> DbResult<Vec<RunRecord>> {
        self.rows("SELECT * FROM runs ORDER BY created_at DESC, seq DESC LIMIT ?1", [limit], run_record)
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
        let inserted = self.run_named(
            sql,
            named_params! {
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
        );
        inserted.map_err(|error| DbError::or_exists(error, || RowRef::new("runs", &run.run_id)))?;
        let sql = "INSERT INTO run_writes (run_id) VALUES (?1)";
        self.connection.prepare_cached(sql)?.execute([run.run_id.as_str()])?;
        Ok(())
    }

    pub(crate) fn update_run(&self, run: &RunRecord) -> DbResult<()> {
        let changes = self.beside_known(
            |kept| kept.of(&run.run_id)?.run.as_deref(),
            || self.run_to_look_at(&run.run_id),
            |before| changes_of_run(before, run),
        )?;
        changes.write(self.connection, "run_id = ?", &[&run.run_id.as_str()])?;
        self.note_of(&run.run_id, |of| of.run = Some(Arc::new(run.clone())));
        Ok(())
    }

    pub(crate) fn update_seen(&self, run: &RunRecord) -> DbResult<()> {
        self.note_of(&run.run_id, |of| of.run = None);
        let sql = "UPDATE runs SET seen_at = ?2, held_from = ?3 WHERE run_id = ?1";
        self.connection.prepare_cached(sql)?.execute(params![
            run.run_id.as_str(),
            opt_text(run.seen_at.as_ref()),
            opt_text(run.held_from.as_ref())
        ])?;
        Ok(())
    }

    /// Notes for every run of a lineage that a record of it was corrected.
    pub(crate) fn note_corrected(&self, root: &RunId, at: Timestamp) -> DbResult<()> {
        self.forget();
        let sql = "UPDATE runs SET corrected_at = ?2 WHERE root_run_id = ?1";
        self.connection.prepare_cached(sql)?.execute(params![root.as_str(), text(&at)])?;
        let sql =
            "UPDATE run_writes SET words = words + 1 WHERE run_id IN (SELECT run_id FROM runs WHERE root_run_id = ?1)";
        self.connection.prepare_cached(sql)?.execute([root.as_str()])?;
        Ok(())
    }

    /// When anything of the run was written last by an owner: by the newest row of each kind, so that a long run is not read for it.
    pub(crate) fn last_write(&self, run: &RunId) -> DbResult<Option<Timestamp>> {
        let last = self.row(LAST_WRITE, [run.as_str()], |row| Columns::new(row, "runs", "run_id").opt_at("at"))?;
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
        let sql = "SELECT * FROM run_steps WHERE step_id = ?1";
        self.known_or(
            |kept| kept.step(id).cloned().map(Some),
            || {
                let step = self.row(sql, [id.as_str()], step_record)?;
                if let Some(step) = &step {
                    self.note_of(&step.run_id, |of| of.step = Some(step.clone()));
                }
                Ok(step)
            },
        )
    }

    pub(crate) fn steps_of(&self, run: &RunId) -> DbResult<Vec<StepRecord>> {
        self.rows("SELECT * FROM run_steps WHERE run_id = ?1 ORDER BY step_index", [run.as_str()], step_record)
    }

    pub(crate) fn last_step_index(&self, run: &RunId) -> DbResult<u32> {
        let last =
            self.number("SELECT coalesce(max(step_index), 0) FROM run_steps WHERE run_id = ?1", [run.as_str()])?;
        Ok(u32::try_from(last).unwrap_or(u32::MAX))
    }

    pub(crate) fn insert_step(&self, step: &StepRecord) -> DbResult<()> {
        let sql = "INSERT INTO run_steps (step_id, run_id, step_index, created_at, updated_at, status, phase, first_turn, \
                   fingerprint_json) \
                   VALUES (:id, :run, :index, :created, :updated, :status, :phase, :first, :fingerprint)";
        let inserted = self.run_named(
            sql,
            named_params! {
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
        );
        inserted.map(drop).map_err(|error| DbError::or_exists(error, || RowRef::new("run_steps", &step.step_id)))
    }

    pub(crate) fn update_step(&self, step: &StepRecord) -> DbResult<()> {
        let changes = self.beside_known(
            |kept| kept.step(&step.step_id),
            || self.step(&step.step_id),
            |before| Ok(changes_of_step(before, step)),
        )?;
        changes.write(self.connection, "step_id = ?", &[&step.step_id.as_str()])?;
        self.note_of(&step.run_id, |of| of.step = Some(step.clone()));
        Ok(())
    }

    // --- Turns and messages.

    pub(crate) fn open_turn(&self, run: &RunId) -> DbResult<Option<TurnRecord>> {
        self.known_or(
            |kept| kept.of(run)?.open_turn.clone(),
            || {
                // It is the newest, or there is none.
                let newest = self.row(NEWEST_TURN, [run.as_str()], turn_record)?;
                let open = newest.filter(|turn| turn.committed_at.is_none());
                self.note_of(run, |of| of.open_turn = Some(open.clone()));
                Ok(open)
            },
        )
    }

    pub(crate) fn turns_of(&self, run: &RunId) -> DbResult<Vec<TurnRecord>> {
        self.rows(concat!("SELECT t.*", of_run!("turns"), " ORDER BY t.place"), [run.as_str()], turn_record)
    }

    pub(crate) fn insert_turn(&self, turn: &TurnRecord) -> DbResult<()> {
        let place = self.places_of(&turn.run_id)? + i64::from(turn.turn);
        let sql = "INSERT INTO turns (place, run_id, turn, step_id, request_sha256, stop_reason, model, response_id, usage_json, \
                   recorded_at, lease_epoch) \
                   VALUES (:place, :run, :turn, :step, :request, :stop_reason, :model, :response, :usage, :recorded, :epoch)";
        self.run_named(
            sql,
            named_params! {
                ":place": place,
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
        )?;
        // What its reply says is a message.
        let reply = ModelTurn { blocks: Vec::new(), ..turn.reply.clone() };
        self.note_of(&turn.run_id, |of| {
            of.open_turn = Some(Some(TurnRecord { reply, committed_at: None, ..turn.clone() }));
            of.calls = Some(CallsOfTurn { turn: turn.turn, calls: Vec::new(), attempts: BTreeMap::new() });
        });
        Ok(())
    }

    pub(crate) fn update_turn(&self, turn: &TurnRecord) -> DbResult<()> {
        let place = self.places_of(&turn.run_id)? + i64::from(turn.turn);
        let sql = "UPDATE turns SET committed_at = ?2 WHERE place = ?1";
        self.connection.prepare_cached(sql)?.execute(params![place, opt_text(turn.committed_at.as_ref())])?;
        self.note_of(&turn.run_id, |of| of.open_turn = turn.committed_at.is_some().then_some(None));
        Ok(())
    }

    /// The run's messages of turns up to `last_turn`.
    pub(crate) fn messages_of(&self, run: &RunId, last_turn: u32) -> DbResult<Vec<MessageRecord>> {
        let sql = concat!("SELECT t.*", of_run!("messages"), " AND t.turn <= ?2 ORDER BY t.place");
        self.rows(sql, params![run.as_str(), last_turn], message_record)
    }

    /// The end of the run's history, oldest first.
    pub(crate) fn last_messages(&self, run: &RunId, count: usize) -> DbResult<Vec<MessageRecord>> {
        let sql = concat!("SELECT t.*", of_run!("messages"), " ORDER BY t.place DESC LIMIT ?2");
        let mut messages = self.rows(sql, params![run.as_str(), int(count as u64)], message_record)?;
        messages.reverse();
        Ok(messages)
    }

    pub(crate) fn last_seq(&self, run: &RunId) -> DbResult<u64> {
        let sql = concat!("SELECT t.seq", of_run!("messages"), " ORDER BY t.place DESC LIMIT 1");
        let number = |row: &Row<'_>| -> DbResult<u64> { Columns::new(row, "messages", "seq").int("seq") };
        self.known_or(
            |kept| kept.of(run)?.last_seq,
            || {
                let last = self.row(sql, [run.as_str()], number)?.unwrap_or_default();
                self.note_of(run, |of| of.last_seq = Some(last));
                Ok(last)
            },
        )
    }

    pub(crate) fn insert_message(&self, run: &RunId, message: &MessageRecord) -> DbResult<()> {
        let place = self.places_of(run)? + int(message.seq);
        let sql = "INSERT INTO messages (place, run_id, seq, turn, created_at, role, origin, message_json) \
                   VALUES (:place, :run, :seq, :turn, :created, :role, :origin, :message)";
        self.run_named(
            sql,
            named_params! {
                ":place": place,
                ":run": run.as_str(),
                ":seq": int(message.seq),
                ":turn": message.turn,
                ":created": text(&message.created_at),
                ":role": message.message.role.as_str(),
                ":origin": message.message.origin.as_str(),
                ":message": json(&message.message)?,
            },
        )?;
        self.note_of(run, |of| of.last_seq = of.last_seq.map(|last| last.max(message.seq)));
        Ok(())
    }

    // --- Checkpoints.

    pub(crate) fn checkpoints_of(&self, run: &RunId) -> DbResult<Vec<CheckpointRecord>> {
        self.rows(&format!("SELECT c.* {CHECKPOINTS} ORDER BY c.seq"), [run.as_str()], checkpoint_record)
    }

    /// The markers behind place `behind` that still count when they are old, oldest first, and the newest of all.
    pub(crate) fn standing_checkpoints(&self, run: &RunId, behind: i64) -> DbResult<Placed> {
        let placed = |row: &Row<'_>| Ok((row.get("seq")?, checkpoint_record(row)?));
        let corpora = "SELECT c.* FROM runs r JOIN checkpoints c ON c.seq BETWEEN max(r.seq << 28, ?2 + 1) AND (r.seq + 1) << 28 \
                       WHERE r.run_id = ?1 AND c.checkpoint_type = 'corpus_cache' ORDER BY c.seq";
        let newest = format!("SELECT c.* {CHECKPOINTS} ORDER BY c.seq DESC LIMIT 1");
        Ok(Placed {
            corpora: self.rows(corpora, params![run.as_str(), behind], checkpoint_record)?,
            newest: self.row(&newest, [run.as_str()], placed)?,
        })
    }

    /// The markers of a run behind the first so many, oldest first, at most `most`.
    pub(crate) fn markers_of(&self, run: &RunId, behind: u32, most: u32) -> DbResult<Vec<CheckpointRecord>> {
        let sql = format!("SELECT c.* {CHECKPOINTS} ORDER BY c.seq LIMIT ?3 OFFSET ?2");
        self.rows(&sql, params![run.as_str(), behind, most], checkpoint_record)
    }

    pub(crate) fn insert_checkpoint(&self, checkpoint: &CheckpointRecord) -> DbResult<()> {
        let run = &checkpoint.run_id;
        let seq = 1 + self.last_checkpoint(run)?;
        let sql = "INSERT INTO checkpoints (seq, checkpoint_id, run_id, step_id, created_at, checkpoint_type, \
                   state_snapshot_json, cursor_json) VALUES (:seq, :id, :run, :step, :created, :kind, :snapshot, :cursor)";
        let inserted = self.run_named(
            sql,
            named_params! {
                ":seq": seq,
                ":id": checkpoint.checkpoint_id.as_str(),
                ":run": run.as_str(),
                ":step": checkpoint.step_id.as_str(),
                ":created": text(&checkpoint.created_at),
                ":kind": stored_name(&checkpoint.kind)?,
                ":snapshot": json(&checkpoint.snapshot)?,
                ":cursor": json(&checkpoint.cursor)?,
            },
        );
        inserted
            .map_err(|error| DbError::or_exists(error, || RowRef::new("checkpoints", &checkpoint.checkpoint_id)))?;
        self.note_of(run, |of| of.last_checkpoint = Some(seq));
        Ok(())
    }

    /// The number of the newest checkpoint of a run; of the one before its first when it has none.
    fn last_checkpoint(&self, run: &RunId) -> DbResult<i64> {
        let sql = "SELECT coalesce((SELECT c.seq FROM checkpoints c WHERE c.seq BETWEEN r.seq << 28 AND (r.seq + 1) << 28 \
                                    ORDER BY c.seq DESC LIMIT 1), r.seq << 28) FROM runs r WHERE r.run_id = ?1";
        self.known_or(
            |kept| kept.of(run)?.last_checkpoint,
            || self.row(sql, [run.as_str()], |row| Ok(row.get(0)?))?.ok_or_else(|| not_found("runs", run)),
        )
    }

    // --- Requests to models.

    pub(crate) fn request(&self, run: &RunId, id: RequestId) -> DbResult<Option<RequestRecord>> {
        let sql = concat!("SELECT t.*", of_run!("usage", "?2", "?2"));
        let known = |kept: &Kept| kept.request(run, id).cloned().map(Some);
        self.known_or(known, || self.row(sql, params![run.as_str(), int(id)], request_record))
    }

    pub(crate) fn requests_of(&self, run: &RunId) -> DbResult<Vec<RequestRecord>> {
        self.rows(concat!("SELECT t.*", of_run!("usage"), " ORDER BY t.place"), [run.as_str()], request_record)
    }

    pub(crate) fn reserved_requests(&self, run: &RunId) -> DbResult<Vec<RequestRecord>> {
        let sql = concat!("SELECT t.*", of_run!("usage"), " AND t.status = 'reserved' ORDER BY t.place");
        self.rows(sql, [run.as_str()], request_record)
    }

    pub(crate) fn last_request(&self, run: &RunId) -> DbResult<Option<RequestRecord>> {
        let sql = concat!("SELECT t.*", of_run!("usage"), " ORDER BY t.place DESC LIMIT 1");
        let known = |kept: &Kept| kept.of(run)?.last_request.clone();
        self.known_or(known, || {
            let last = self.row(sql, [run.as_str()], request_record)?;
            self.note_of(run, |of| of.last_request = Some(last.clone()));
            Ok(last)
        })
    }

    pub(crate) fn insert_request(&self, run: &RunId, request: &RequestRecord) -> DbResult<()> {
        let place = self.places_of(run)? + int(request.request_id);
        let sql = "INSERT INTO usage (place, run_id, request_id, turn, request_sha256, provider, model, estimator, estimated_tokens, \
                   reserved_output_tokens, price_json, status, reserved_at, continued_from) \
                   VALUES (:place, :run, :id, :turn, :sha256, :provider, :model, :estimator, :estimate, :output, :price, :status, \
                   :reserved, :continued_from)";
        self.run_named(
            sql,
            named_params! {
                ":place": place,
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
        )?;
        self.note_of(run, |of| of.last_request = Some(Some(request.clone())));
        Ok(())
    }

    pub(crate) fn update_request(&self, run: &RunId, request: &RequestRecord) -> DbResult<()> {
        let changes = self.beside_known(
            |kept| kept.request(run, request.request_id),
            || self.request(run, request.request_id),
            |before| changes_of_request(before, request),
        )?;
        let place = self.places_of(run)? + int(request.request_id);
        changes.write(self.connection, "place = ?", &[&place])?;
        self.note_of(run, |of| match &mut of.last_request {
            Some(Some(last)) if last.request_id == request.request_id => last.clone_from(request),
            _ => of.last_request = None,
        });
        Ok(())
    }

    // --- Questions.

    pub(crate) fn question(&self, id: &QuestionId) -> DbResult<QuestionRecord> {
        let found = self.row(&format!("{QUESTIONS} WHERE q.question_id = ?1"), [id.as_str()], question_record)?;
        found.ok_or_else(|| not_found("questions", id))
    }

    /// The question about `call` that is not closed.
    pub(crate) fn waiting_question(&self, call: &CallId) -> DbResult<Option<QuestionRecord>> {
        let sql = format!("{QUESTIONS} WHERE q.tool_call_id = ?1 AND q.status <> 'closed'");
        self.row(&sql, [call.as_str()], question_record)
    }

    pub(crate) fn questions_of(&self, run: &RunId) -> DbResult<Vec<QuestionRecord>> {
        self.rows(&format!("{QUESTIONS} WHERE q.run_id = ?1 ORDER BY q.seq"), [run.as_str()], question_record)
    }

    /// Questions that are not closed, of `run` or of all.
    pub(crate) fn waiting_questions(&self, run: Option<&RunId>) -> DbResult<Vec<QuestionRecord>> {
        match run {
            Some(run) => {
                let sql = format!("{QUESTIONS} WHERE q.run_id = ?1 AND q.status <> 'closed' ORDER BY q.seq");
                self.rows(&sql, [run.as_str()], question_record)
            }
            None => self.rows(&format!("{QUESTIONS} WHERE q.status <> 'closed' ORDER BY q.seq"), [], question_record),
        }
    }

    pub(crate) fn insert_question(&self, question: &QuestionRecord) -> DbResult<()> {
        let sql = "INSERT INTO questions (question_id, run_id, tool_call_id, kind, text, detail_json, choices_json, \
                   created_at, status) VALUES (:id, :run, :call, :kind, :text, :detail, :choices, :created, :status)";
        let inserted = self.run_named(
            sql,
            named_params! {
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
        );
        inserted
            .map(drop)
            .map_err(|error| DbError::or_exists(error, || RowRef::new("questions", &question.question_id)))
    }

    /// Stores where a question stands, with its answer.
    pub(crate) fn update_question(&self, question: &QuestionRecord) -> DbResult<()> {
        let id = question.question_id.as_str();
        let sql = "UPDATE questions SET status = ?2, closed_because = ?3 WHERE question_id = ?1";
        let status = stored_name(&question.status)?;
        self.connection.prepare_cached(sql)?.execute(params![id, status, question.closed_because])?;
        if let Some(answer) = &question.answer {
            let (choice, answered) = (stored_name(&answer.choice)?, text(&answer.answered_at));
            let link = answer_link(id, &choice, answer.proof.as_deref(), answer.text.as_deref(), &answer.by, &answered);
            // What somebody wrote there beside this program is none, and makes room for the answer.
            let sql = "DELETE FROM answers WHERE question_id = ?1 AND link IS NOT '' AND link IS NOT ?2";
            self.connection.prepare_cached(sql)?.execute(params![id, link])?;
            let sql = "INSERT INTO answers (question_id, choice, proof, note, answered_by, answered_at, applied_at, link) \
                       VALUES (:id, :choice, :proof, :note, :by, :answered, :applied, :link) \
                       ON CONFLICT (question_id) DO UPDATE SET applied_at = excluded.applied_at";
            self.run_named(
                sql,
                named_params! {
                    ":id": id,
                    ":choice": choice,
                    ":proof": answer.proof,
                    ":note": answer.text,
                    ":by": answer.by,
                    ":answered": answered,
                    ":applied": opt_text(answer.applied_at.as_ref()),
                    ":link": link,
                },
            )?;
        }
        Ok(())
    }
}

/// What a run has that it had not before.
fn changes_of_run<'r>(before: Option<&RunRecord>, run: &'r RunRecord) -> DbResult<Changes<'r>> {
    let mut changes = Changes::of("runs");
    set_changed!(changes, before => run, {
        updated_at: "updated_at" = text(&run.updated_at);
        status: "status" = run.status.as_str();
        stop_reason: "stop_reason" = opt_text(run.stop_reason.as_ref());
        status_detail: "status_detail" = &run.status_detail;
        provider_session_id: "provider_session_id" = &run.provider_session_id;
        current_step_id: "current_step_id" = run.current_step_id.as_ref().map(StepId::as_str);
        last_checkpoint_id: "last_checkpoint_id" = run.last_checkpoint_id.as_ref().map(CheckpointId::as_str);
        final_artifact_ref: "final_artifact_ref" = &run.final_artifact_ref;
        final_output: "final_output" = &run.final_output;
        turn_index: "turn_index" = run.turn_index;
        lease_epoch: "lease_epoch" = int(run.lease_epoch);
        owner: "owner_json" = opt_json(run.owner.as_ref())?;
        cancel_requested_at: "cancel_requested_at" = opt_text(run.cancel_requested_at.as_ref());
        cancel_reason: "cancel_reason" = &run.cancel_reason;
        abort_requested_at: "abort_requested_at" = opt_text(run.abort_requested_at.as_ref());
        abort_question: "abort_question" = opt_text(run.abort_question.as_ref());
        iteration_count: "iteration_count" = run.iteration_count;
        max_iterations: "max_iterations" = run.max_iterations;
        completion_promise: "completion_promise" = &run.completion_promise;
        held_millis: "held_millis" = int(run.held_millis);
        held_from: "held_from" = opt_text(run.held_from.as_ref());
        seen_at: "seen_at" = opt_text(run.seen_at.as_ref());
        unclean_ends: "unclean_ends_json" = json(&run.unclean_ends)?;
        traces: "traces_json" = json(&run.traces)?;
        processes: "processes_json" = json(&run.processes)?;
        taint: "taint" = run.taint.bits();
    });
    Ok(changes)
}

/// The same of a step.
fn changes_of_step<'s>(before: Option<&StepRecord>, step: &'s StepRecord) -> Changes<'s> {
    let mut changes = Changes::of("run_steps");
    set_changed!(changes, before => step, {
        updated_at: "updated_at" = text(&step.updated_at);
        status: "status" = step.status.as_str();
        error_code: "error_code" = &step.error_code;
        error_detail: "error_detail" = &step.error_detail;
        last_turn: "last_turn" = step.last_turn;
    });
    changes
}

/// The same of a request.
fn changes_of_request<'r>(before: Option<&RequestRecord>, request: &'r RequestRecord) -> DbResult<Changes<'r>> {
    let mut changes = Changes::of("usage");
    set_changed!(changes, before => request, {
        status: "status" = stored_name(&request.status)?;
        usage:
            "input_tokens" = int(request.usage.input_tokens),
            "output_tokens" = int(request.usage.output_tokens),
            "cache_read_tokens" = int(request.usage.cache_read_tokens),
            "cache_write_tokens" = int(request.usage.cache_write_tokens);
        cost:
            "cost_nanos" = request.cost.map(|cost| int(cost.nanos())),
            "currency" = opt_text(request.cost.map(Money::currency).as_ref());
        closed_at: "closed_at" = opt_text(request.closed_at.as_ref());
        network_attempted: "network_attempted" = request.network_attempted;
        response_id: "response_id" = &request.response_id;
        heard: "heard_json" = opt_json(request.heard.as_ref())?;
    });
    Ok(changes)
}

/// The turn of a run that began last.
const NEWEST_TURN: &str = concat!("SELECT t.*", of_run!("turns"), " ORDER BY t.place DESC LIMIT 1");
/// The checkpoints of a run: 2^28 numbers belong to each, so that they lie together and need no index.
const CHECKPOINTS: &str =
    "FROM runs r JOIN checkpoints c ON c.seq BETWEEN r.seq << 28 AND (r.seq + 1) << 28 WHERE r.run_id = ?1";
/// Questions with their answers.
pub(crate) const QUESTIONS: &str = "SELECT q.*, a.choice, a.proof, a.note, a.answered_by, a.answered_at, a.applied_at, a.link \
                             FROM questions q LEFT JOIN answers a ON a.question_id = q.question_id";

/// Markers that count however old they are, and the newest one with its place.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) corpora: Vec<CheckpointRecord>,
    pub(crate) newest: Option<(i64, CheckpointRecord)>,
}

pub(crate) fn run_record(row: &Row<'_>) -> DbResult<RunRecord> {
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
        spec: column.contract("run_spec_json")?,
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

pub(crate) fn step_record(row: &Row<'_>) -> DbResult<StepRecord> {
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
        fingerprint: column.fingerprint("fingerprint_json")?,
    })
}

pub(crate) fn turn_record(row: &Row<'_>) -> DbResult<TurnRecord> {
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

pub(crate) fn message_record(row: &Row<'_>) -> DbResult<MessageRecord> {
    let column = Columns::new(row, "messages", "seq");
    Ok(MessageRecord {
        seq: column.int("seq")?,
        turn: column.int("turn")?,
        message: column.json("message_json")?,
        created_at: column.at("created_at")?,
    })
}

pub(crate) fn checkpoint_record(row: &Row<'_>) -> DbResult<CheckpointRecord> {
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

pub(crate) fn request_record(row: &Row<'_>) -> DbResult<RequestRecord> {
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

pub(crate) fn question_record(row: &Row<'_>) -> DbResult<QuestionRecord> {
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
