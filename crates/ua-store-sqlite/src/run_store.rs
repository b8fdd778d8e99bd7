//! The driver's half of the port: find rows, apply a rule, store what it returns.

use std::time::Duration;

use async_trait::async_trait;
use ua_core::{Message, QuestionId, RunId, Timestamp, Usage};
use ua_store::{
    Durability, MessageRecord, NewAnswer, NewCheckpoint, NewFork, NewOverride, NewQuestion, NewRun, NewStep,
    OverrideRecord, OwnerStamp, QuestionRecord, RequestEnd, RequestId, RequestReservation, RunEnd, RunLease, RunRecord,
    RunRecords, RunStore, StepEnd, StepEntry, StepRecord, StoreError, TurnCommit, TurnDraft, rules,
};

use crate::run_rows::not_found;
use crate::store::SqliteStore;

use Durability::{Relaxed, Synced};

#[async_trait]
impl RunStore for SqliteStore {
    async fn submit_run(&self, run: NewRun) -> Result<RunRecord, StoreError> {
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let mut run = run;
            let files = std::mem::take(&mut run.files);
            let parent = run.parent_run_id.as_ref().map(|parent| db.run(parent)).transpose()?;
            let (run, opening) = rules::run_submitted(run, parent.as_ref());
            db.insert_run(&run)?;
            db.put_files(&run, &files)?;
            db.check_job_key(&run)?;
            db.insert_message(&run.run_id, &opening)?;
            Ok(run)
        })
        .await
    }

    async fn submit_again(&self, run: NewRun, seen: &RunId) -> Result<RunRecord, StoreError> {
        let seen = seen.clone();
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let mut run = run;
            let files = std::mem::take(&mut run.files);
            let (run, opening) = rules::run_submitted(run, None);
            let key = run.job_key.clone().unwrap_or_default();
            let holder = db.run_of_job_key(&key, None)?;
            db.insert_run(&run)?;
            db.put_files(&run, &files)?;
            rules::check_again(holder.as_ref(), &seen, &key)?;
            db.insert_message(&run.run_id, &opening)?;
            Ok(run)
        })
        .await
    }

    async fn fork_run(&self, fork: NewFork) -> Result<RunRecord, StoreError> {
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let mut fork = fork;
            let files = std::mem::take(&mut fork.run.files);
            let Some(parent) = &fork.run.parent_run_id else { return Err(not_found("runs", "the parent of the fork")) };
            let parent = db.run(parent)?;
            let (last_seq, provider_session) = db.end_of_turn(&parent, fork.at_turn)?;
            let context = rules::ForkContext { parent: &parent, last_seq, provider_session };
            let (run, opening, note) = rules::run_forked(fork, context)?;
            db.insert_run(&run)?;
            db.put_files(&run, &files)?;
            if !rules::key_is_inherited(&run, Some(&parent)) {
                db.check_job_key(&run)?;
            }
            db.insert_message(&run.run_id, &opening)?;
            db.insert_message(&run.run_id, &note)?;
            Ok(run)
        })
        .await
    }

    async fn insert_answer(&self, answer: NewAnswer) -> Result<QuestionRecord, StoreError> {
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let question = rules::question_answered(db.question(&answer.question_id)?, answer)?;
            db.update_question(&question)?;
            if let Some(at) = rules::abort_in(&question) {
                let run = db.run(&question.run_id)?;
                let below = db.runs_below(&run.run_id)?;
                for run in std::iter::once(run).chain(below) {
                    db.update_run(&rules::run_abort_requested(run, &question.question_id, at))?;
                }
            }
            Ok(question)
        })
        .await
    }

    async fn insert_override(&self, change: NewOverride) -> Result<OverrideRecord, StoreError> {
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let rows = db.overrides_of(&change.run_id)?;
            let last = rows.into_iter().rev().find(|r| r.kind == change.kind && r.component == change.component);
            let (row, is_new) = rules::override_made(&db.run(&change.run_id)?, last, change)?;
            if is_new {
                db.insert_override(&row)?;
            }
            Ok(row)
        })
        .await
    }

    async fn request_cancel(&self, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError> {
        let (run, reason) = (run.clone(), reason.to_owned());
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let run = rules::run_cancel_requested(db.run(&run)?, &reason, at)?;
            db.update_run(&run)?;
            for child in db.runs_below(&run.run_id)?.into_iter().filter(|child| !child.status.is_terminal()) {
                db.update_run(&rules::run_cancel_requested(child, &reason, at)?)?;
            }
            Ok(run)
        })
        .await
    }

    async fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        let (run, owner) = (run.clone(), owner.clone());
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            db.acquire(&run, &owner, at)
        })
        .await
    }

    async fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        let (above, run, owner) = (above.clone(), run.clone(), owner.clone());
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            db.leased_run(&above)?;
            db.acquire(&run, &owner, at)
        })
        .await
    }

    async fn note_alive(&self, lease: &RunLease, suspended: Duration, at: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| db.update_seen(&rules::run_seen(db.leased_run(&lease)?, suspended, at))).await
    }

    async fn check_lease(&self, lease: &RunLease) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.read(move |db| db.leased_run(&lease).map(drop)).await
    }

    async fn end_run(&self, lease: &RunLease, end: RunEnd) -> Result<RunRecord, StoreError> {
        let lease = lease.clone();
        self.write(Synced, move |db| {
            let run = rules::run_ended(db.leased_run(&lease)?, &end)?;
            if let Some(end) = end.step_end {
                db.update_step(&rules::step_ended(db.step_of(&run.run_id, &end.step_id)?, end)?)?;
            }
            end.cancels.iter().try_for_each(|cancel| db.cancel_call(&lease, cancel, end.at))?;
            for question in &end.closes {
                db.update_question(&rules::question_closed(db.question(question)?, &lease.run_id, end.at)?)?;
            }
            db.update_run(&run)?;
            Ok(run)
        })
        .await
    }

    async fn open_step(&self, lease: &RunLease, step: NewStep) -> Result<StepRecord, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let is_open = db.open_turn(&run.run_id)?.is_some();
            let (run, step) = rules::step_opened(run, step, db.last_step_index(&lease.run_id)?, is_open)?;
            db.insert_step(&step)?;
            db.update_run(&run)?;
            Ok(step)
        })
        .await
    }

    async fn enter_step(&self, lease: &RunLease, entry: StepEntry) -> Result<StepRecord, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let current = run.current_step_id.as_ref().map(|step| db.step_of(&run.run_id, step)).transpose()?;
            let context = rules::EntryContext {
                current,
                last_index: db.last_step_index(&run.run_id)?,
                turn_is_open: db.open_turn(&run.run_id)?.is_some(),
                last_seq: db.last_seq(&run.run_id)?,
            };
            let wanted = entry.step.step_id.clone();
            let Some(entered) = rules::step_entered(run, context, entry)? else {
                return db.step_of(&lease.run_id, &wanted);
            };
            if let Some(ended) = &entered.ended {
                db.update_step(ended)?;
            }
            db.insert_step(&entered.step)?;
            entered.checkpoints.iter().try_for_each(|checkpoint| db.insert_checkpoint(checkpoint))?;
            for message in &entered.messages {
                db.refer_to_blobs(&lease.run_id, message.message.blobs())?;
                db.insert_message(&lease.run_id, message)?;
            }
            db.update_run(&entered.run)?;
            Ok(entered.step)
        })
        .await
    }

    async fn close_step(&self, lease: &RunLease, end: StepEnd) -> Result<StepRecord, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let step = rules::step_ended(db.step_of(&lease.run_id, &end.step_id)?, end)?;
            db.update_step(&step)?;
            Ok(step)
        })
        .await
    }

    async fn reserve_request(
        &self,
        lease: &RunLease,
        reservation: RequestReservation,
    ) -> Result<RequestId, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let (last, is_open) = (db.last_request(&run.run_id)?, db.open_turn(&run.run_id)?.is_some());
            let last_id = last.as_ref().map(|last| last.request_id);
            let request = rules::request_reserved(&run, reservation, last, is_open)?;
            if last_id != Some(request.request_id) {
                db.insert_request(&run.run_id, &request)?;
            }
            Ok(request.request_id)
        })
        .await
    }

    async fn note_response(&self, lease: &RunLease, request: RequestId, response_id: &str) -> Result<(), StoreError> {
        let (lease, response_id) = (lease.clone(), response_id.to_owned());
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let stored = db.request(&lease.run_id, request)?;
            let stored = stored.ok_or_else(|| not_found("usage", format!("{}/{request}", lease.run_id)))?;
            let named = rules::response_named(&lease.run_id, &stored, &response_id)?;
            named.map_or(Ok(()), |named| db.update_request(&lease.run_id, &named))
        })
        .await
    }

    async fn note_usage(&self, lease: &RunLease, request: RequestId, heard: Usage) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let stored = db.request(&lease.run_id, request)?;
            let stored = stored.ok_or_else(|| not_found("usage", format!("{}/{request}", lease.run_id)))?;
            let noted = rules::usage_heard(&stored, heard);
            noted.map_or(Ok(()), |noted| db.update_request(&lease.run_id, &noted))
        })
        .await
    }

    async fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let stored = db.request(&lease.run_id, request)?;
            let stored = stored.ok_or_else(|| not_found("usage", format!("{}/{request}", lease.run_id)))?;
            rules::request_closed(&stored, end, at).map_or(Ok(()), |closed| db.update_request(&lease.run_id, &closed))
        })
        .await
    }

    async fn close_lost_requests(&self, lease: &RunLease, at: Timestamp) -> Result<u32, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let mut count = 0;
            for request in db.reserved_requests(&lease.run_id)? {
                if let Some(closed) = rules::request_lost(&request, at) {
                    db.update_request(&lease.run_id, &closed)?;
                    count += 1;
                }
            }
            Ok(count)
        })
        .await
    }

    async fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let step = db.step(&draft.step_id)?;
            let request = db.request(&run.run_id, draft.request_id)?;
            let (is_open, last_seq) = (db.open_turn(&run.run_id)?.is_some(), db.last_seq(&run.run_id)?);
            let recorded = rules::turn_recorded(&run, step.as_ref(), request.as_ref(), is_open, last_seq, draft)?;
            db.insert_turn(&recorded.turn)?;
            db.insert_message(&run.run_id, &recorded.message)?;
            db.update_request(&run.run_id, &recorded.request)?;
            recorded.calls.iter().try_for_each(|call| db.insert_call(call, lease.epoch))
        })
        .await
    }

    async fn commit_turn(&self, lease: &RunLease, commit: TurnCommit) -> Result<RunRecord, StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let open = db.open_turn(&run.run_id)?;
            let open = open.map(|turn| db.step_of(&run.run_id, &turn.step_id).map(|step| (turn, step))).transpose()?;
            let checkpoint_step = db.step(&commit.checkpoint.step_id)?;
            let context = rules::CommitContext {
                open,
                calls: &db.calls_of(&run.run_id, Some(commit.turn))?,
                checkpoint_step: checkpoint_step.as_ref(),
                last_seq: db.last_seq(&run.run_id)?,
            };
            let committed = rules::turn_committed(run, context, commit)?;
            db.insert_checkpoint(&committed.checkpoint)?;
            db.update_turn(&committed.turn)?;
            db.update_step(&committed.step)?;
            db.put_blobs(&lease.run_id, &committed.blobs, committed.run.updated_at)?;
            for message in &committed.messages {
                db.refer_to_blobs(&lease.run_id, message.message.blobs())?;
                db.insert_message(&lease.run_id, message)?;
            }
            db.update_run(&committed.run)?;
            Ok(committed.run)
        })
        .await
    }

    async fn append_messages(&self, lease: &RunLease, messages: Vec<Message>, at: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let is_open = db.open_turn(&run.run_id)?.is_some();
            let tail = db.last_messages(&run.run_id, messages.len().max(1))?;
            let notes = rules::notes_appended(&run, is_open, &tail, messages, at)?;
            notes.iter().try_for_each(|note| {
                db.refer_to_blobs(&run.run_id, note.message.blobs())?;
                db.insert_message(&run.run_id, note)
            })
        })
        .await
    }

    async fn save_checkpoint(&self, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            let run = db.leased_run(&lease)?;
            let step = db.step(&checkpoint.step_id)?;
            let (run, checkpoint) = rules::checkpoint_saved(run, step.as_ref(), checkpoint)?;
            db.insert_checkpoint(&checkpoint)?;
            db.update_run(&run)
        })
        .await
    }

    async fn raise_question(&self, lease: &RunLease, question: NewQuestion) -> Result<QuestionRecord, StoreError> {
        let lease = lease.clone();
        self.write(Synced, move |db| {
            db.leased_run(&lease)?;
            if let Some(call) = &question.call_id {
                rules::owned_call(db.call(call)?, &lease)?;
                if let Some(earlier) = db.waiting_question(call)? {
                    return Ok(earlier);
                }
            }
            let waiting = db.waiting_questions(Some(&lease.run_id))?;
            if let Some(earlier) = waiting.into_iter().find(|asked| rules::is_same_question(asked, &question)) {
                return Ok(earlier);
            }
            let question = rules::question_raised(&lease.run_id, question);
            db.insert_question(&question)?;
            Ok(question)
        })
        .await
    }

    async fn close_question(&self, lease: &RunLease, question: &QuestionId, at: Timestamp) -> Result<(), StoreError> {
        let (lease, question) = (lease.clone(), question.clone());
        self.write(Synced, move |db| {
            db.leased_run(&lease)?;
            db.update_question(&rules::question_closed(db.question(&question)?, &lease.run_id, at)?)
        })
        .await
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        let run = run.clone();
        self.read(move |db| db.run(&run)).await
    }

    async fn runs(&self, limit: u32) -> Result<Vec<RunRecord>, StoreError> {
        self.read(move |db| db.newest_runs(limit)).await
    }

    async fn run_by_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, StoreError> {
        let job_key = job_key.to_owned();
        self.read(move |db| db.run_of_job_key(&job_key, None)).await
    }

    async fn children(&self, run: &RunId) -> Result<Vec<RunRecord>, StoreError> {
        let run = run.clone();
        self.read(move |db| db.children_of(&run)).await
    }

    async fn load(&self, run: &RunId) -> Result<RunRecords, StoreError> {
        let id = run.clone();
        self.read(move |db| {
            let run = db.run(&id)?;
            let messages = db.whole_history(&run, u32::MAX)?;
            Ok(RunRecords {
                lineage: db.lineage_of(&run)?,
                run,
                steps: db.steps_of(&id)?,
                turns: db.turns_of(&id)?,
                messages,
                calls: db.calls_of(&id, None)?,
                attempts: db.attempts_of_run(&id)?,
                receipts: db.receipts_of_run(&id)?,
                questions: db.questions_of(&id)?,
                overrides: db.overrides_of(&id)?,
                checkpoints: db.checkpoints_of(&id)?,
                requests: db.requests_of(&id)?,
            })
        })
        .await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        let run = run.clone();
        self.read(move |db| {
            let run = db.run(&run)?;
            db.whole_history(&run, run.turn_index)
        })
        .await
    }

    async fn overrides(&self, run: &RunId) -> Result<Vec<OverrideRecord>, StoreError> {
        let run = run.clone();
        self.read(move |db| db.overrides_of(&run)).await
    }

    async fn question(&self, question: &QuestionId) -> Result<QuestionRecord, StoreError> {
        let question = question.clone();
        self.read(move |db| db.question(&question)).await
    }

    async fn open_questions(&self, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, StoreError> {
        let run = run.cloned();
        self.read(move |db| db.waiting_questions(run.as_ref())).await
    }
}
