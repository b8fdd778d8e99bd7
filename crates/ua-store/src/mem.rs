//! The in-memory model of a store: plain vectors behind one lock.
//!
//! It is the reference that the conformance suite compares other stores with, and what tests of other crates run on.
//! A write looks rows up, applies a rule and stores what the rule returns; nothing is stored before everything is checked.

mod archive;
mod blobs;
mod ledger;
mod lineage;
mod model;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{BlobRef, Message, QuestionId, RunId, Timestamp, Usage};

use crate::commit::{
    NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RequestEnd, RequestReservation, RunEnd, StepEnd,
    StepEntry, TurnCommit, TurnDraft,
};
use crate::error::{RowRef, StoreError};
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    MessageRecord, OwnerStamp, QuestionRecord, QuestionStatus, RequestId, RequestStatus, RunLease, RunRecord,
    RunRecords, StepRecord,
};
use crate::rules;
use crate::run_store::RunStore;
use model::Model;

/// The in-memory model of a store. Nothing in it outlives the value.
#[derive(Debug, Default)]
pub struct MemStore {
    model: Mutex<Model>,
}

impl MemStore {
    /// Makes an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A copy of everything that is stored now, which goes its own way from here: what a backup is to a database.
    #[must_use]
    pub fn copied(&self) -> Self {
        Self { model: Mutex::new(self.model().clone()) }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        // A panicking test thread leaves the rows as its last complete write left them.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl RunStore for MemStore {
    async fn submit_run(&self, mut run: NewRun) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let files = std::mem::take(&mut run.files);
        let parent = run.parent_run_id.as_ref().map(|parent| model.run(parent)).transpose()?;
        let (run, opening) = rules::run_submitted(run, parent.as_ref());
        model.check_new_run(&run)?;
        model.check_job_key(&run)?;
        model.put_files(&run, files)?;
        model.messages.push((run.run_id.clone(), opening));
        model.runs.push(run.clone());
        Ok(run)
    }

    async fn submit_again(&self, mut run: NewRun, seen: &RunId) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let files = std::mem::take(&mut run.files);
        let (run, opening) = rules::run_submitted(run, None);
        model.check_new_run(&run)?;
        let key = run.job_key.clone().unwrap_or_default();
        rules::check_again(model.run_of_job_key(&key).as_ref(), seen, &key)?;
        model.put_files(&run, files)?;
        model.messages.push((run.run_id.clone(), opening));
        model.runs.push(run.clone());
        Ok(run)
    }

    async fn fork_run(&self, mut fork: NewFork) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let files = std::mem::take(&mut fork.run.files);
        let parent = fork.run.parent_run_id.as_ref().map(|parent| model.run(parent)).transpose()?;
        let parent = parent.ok_or_else(|| rules::not_found("runs", "the parent of the fork"))?;
        let (last_seq, provider_session) = model.end_of_turn(&parent, fork.at_turn)?;
        let context = rules::ForkContext { parent: &parent, last_seq, provider_session };
        let (run, opening, note) = rules::run_forked(fork, context)?;
        model.check_new_run(&run)?;
        if !rules::key_is_inherited(&run, Some(&parent)) {
            model.check_job_key(&run)?;
        }
        model.put_files(&run, files)?;
        model.messages.extend([opening, note].map(|message| (run.run_id.clone(), message)));
        model.runs.push(run.clone());
        Ok(run)
    }

    async fn insert_answer(&self, answer: NewAnswer) -> Result<QuestionRecord, StoreError> {
        let mut model = self.model();
        let question = rules::question_answered(model.question(&answer.question_id)?, answer)?;
        model.put_question(question.clone());
        if let Some(at) = rules::abort_in(&question) {
            let run = model.run(&question.run_id)?;
            let below = model.runs_below(&run.run_id);
            for run in std::iter::once(run).chain(below) {
                model.put_run(rules::run_abort_requested(run, &question.question_id, at));
            }
        }
        Ok(question)
    }

    async fn insert_override(&self, change: NewOverride) -> Result<OverrideRecord, StoreError> {
        let mut model = self.model();
        let of = |row: &&OverrideRecord| {
            (&row.run_id, row.kind, &row.component) == (&change.run_id, change.kind, &change.component)
        };
        let last = model.overrides.iter().rev().find(of).cloned();
        let (row, is_new) = rules::override_made(&model.run(&change.run_id)?, last, change)?;
        if is_new {
            model.overrides.push(row.clone());
        }
        Ok(row)
    }

    async fn request_cancel(&self, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let run = rules::run_cancel_requested(model.run(run)?, reason, at)?;
        model.put_run(run.clone());
        for child in model.runs_below(&run.run_id).into_iter().filter(|child| !child.status.is_terminal()) {
            model.put_run(rules::run_cancel_requested(child, reason, at)?);
        }
        Ok(run)
    }

    async fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        self.model().acquire(run, owner, at)
    }

    async fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        let mut model = self.model();
        model.leased_run(above)?;
        model.acquire(run, owner, at)
    }

    async fn note_alive(&self, lease: &RunLease, suspended: Duration, at: Timestamp) -> Result<(), StoreError> {
        let mut model = self.model();
        let run = rules::run_seen(model.leased_run(lease)?, suspended, at);
        model.put_run(run);
        Ok(())
    }

    async fn check_lease(&self, lease: &RunLease) -> Result<(), StoreError> {
        self.model().leased_run(lease).map(drop)
    }

    async fn end_run(&self, lease: &RunLease, end: RunEnd) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let run = rules::run_ended(model.leased_run(lease)?, &end)?;
        let cancelled = model.cancelled(lease, &end.cancels, end.at)?;
        let closed = end.closes.iter().map(|id| rules::question_closed(model.question(id)?, &lease.run_id, end.at));
        let closed: Vec<QuestionRecord> = closed.collect::<Result<_, _>>()?;
        if let Some(end) = end.step_end {
            let step = rules::step_ended(model.step_of(&run.run_id, &end.step_id)?, end)?;
            model.put_step(step);
        }
        model.put_cancelled(cancelled, lease);
        for question in closed {
            model.put_question(question);
        }
        model.put_run(run.clone());
        Ok(run)
    }

    async fn open_step(&self, lease: &RunLease, step: NewStep) -> Result<StepRecord, StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let is_open = model.open_turn(&run.run_id).is_some();
        let (run, step) = rules::step_opened(run, step, model.last_step_index(&lease.run_id), is_open)?;
        if model.step(&step.step_id).is_some() {
            return Err(StoreError::Exists { row: RowRef::new("run_steps", &step.step_id) });
        }
        model.steps.push(step.clone());
        model.put_run(run);
        Ok(step)
    }

    async fn enter_step(&self, lease: &RunLease, entry: StepEntry) -> Result<StepRecord, StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let context = rules::EntryContext {
            current: run.current_step_id.as_ref().and_then(|step| model.step(step)),
            last_index: model.last_step_index(&run.run_id),
            turn_is_open: model.open_turn(&run.run_id).is_some(),
            last_seq: model.last_seq(&run.run_id),
        };
        let wanted = entry.step.step_id.clone();
        let Some(entered) = rules::step_entered(run, context, entry)? else {
            return model.step_of(&lease.run_id, &wanted);
        };
        if model.step(&wanted).is_some() {
            return Err(StoreError::Exists { row: RowRef::new("run_steps", &wanted) });
        }
        entered.messages.iter().try_for_each(|record| model.check_blobs(record.message.blobs()))?;
        model.push_checkpoints(entered.checkpoints)?;
        if let Some(ended) = entered.ended {
            model.put_step(ended);
        }
        model.steps.push(entered.step.clone());
        for record in &entered.messages {
            model.refer(&lease.run_id, record.message.blobs());
        }
        model.messages.extend(entered.messages.into_iter().map(|message| (lease.run_id.clone(), message)));
        model.put_run(entered.run);
        Ok(entered.step)
    }

    async fn close_step(&self, lease: &RunLease, end: StepEnd) -> Result<StepRecord, StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let step = rules::step_ended(model.step_of(&lease.run_id, &end.step_id)?, end)?;
        model.put_step(step.clone());
        Ok(step)
    }

    async fn reserve_request(
        &self,
        lease: &RunLease,
        reservation: RequestReservation,
    ) -> Result<RequestId, StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let last = model.requests_of(&run.run_id).last().cloned();
        let is_open = model.open_turn(&run.run_id).is_some();
        let request = rules::request_reserved(&run, reservation, last, is_open)?;
        let request_id = request.request_id;
        model.put_request(&run.run_id, request);
        Ok(request_id)
    }

    async fn note_response(&self, lease: &RunLease, request: RequestId, response_id: &str) -> Result<(), StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let stored = model.request(&lease.run_id, request);
        let stored = stored.ok_or_else(|| rules::not_found("usage", format!("{}/{request}", lease.run_id)))?;
        if let Some(named) = rules::response_named(&lease.run_id, &stored, response_id)? {
            model.put_request(&lease.run_id, named);
        }
        Ok(())
    }

    async fn note_usage(&self, lease: &RunLease, request: RequestId, heard: Usage) -> Result<(), StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let stored = model.request(&lease.run_id, request);
        let stored = stored.ok_or_else(|| rules::not_found("usage", format!("{}/{request}", lease.run_id)))?;
        if let Some(noted) = rules::usage_heard(&stored, heard) {
            model.put_request(&lease.run_id, noted);
        }
        Ok(())
    }

    async fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let stored = model.request(&lease.run_id, request);
        let stored = stored.ok_or_else(|| rules::not_found("usage", format!("{}/{request}", lease.run_id)))?;
        if let Some(closed) = rules::request_closed(&stored, end, at) {
            model.put_request(&lease.run_id, closed);
        }
        Ok(())
    }

    async fn close_lost_requests(&self, lease: &RunLease, at: Timestamp) -> Result<u32, StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let is_reserved = |request: &&crate::RequestRecord| request.status == RequestStatus::Reserved;
        let lost: Vec<_> = model.requests_of(&lease.run_id).filter(is_reserved).cloned().collect();
        let mut count = 0;
        for closed in lost.iter().filter_map(|request| rules::request_lost(request, at)) {
            model.put_request(&lease.run_id, closed);
            count += 1;
        }
        Ok(count)
    }

    async fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> Result<(), StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let step = model.step(&draft.step_id);
        let request = model.request(&run.run_id, draft.request_id);
        let (is_open, last_seq) = (model.open_turn(&run.run_id).is_some(), model.last_seq(&run.run_id));
        let recorded = rules::turn_recorded(&run, step.as_ref(), request.as_ref(), is_open, last_seq, draft)?;
        if let Some(call) = recorded.calls.iter().find(|call| model.call(&call.call_id).is_ok()) {
            return Err(StoreError::Exists { row: RowRef::new("tool_calls", &call.call_id) });
        }
        model.turns.push(recorded.turn);
        model.messages.push((run.run_id.clone(), recorded.message));
        model.put_request(&run.run_id, recorded.request);
        for call in recorded.calls {
            model.put_call(call, lease.epoch);
        }
        Ok(())
    }

    async fn commit_turn(&self, lease: &RunLease, commit: TurnCommit) -> Result<RunRecord, StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let open = model.open_turn(&run.run_id);
        let open = open.map(|turn| model.step_of(&run.run_id, &turn.step_id).map(|step| (turn, step))).transpose()?;
        let checkpoint_step = model.step(&commit.checkpoint.step_id);
        let context = rules::CommitContext {
            open,
            calls: &model.calls_of(&run.run_id, Some(commit.turn)),
            checkpoint_step: checkpoint_step.as_ref(),
            last_seq: model.last_seq(&run.run_id),
        };
        let committed = rules::turn_committed(run, context, commit)?;
        let is_stored = |blob: &&BlobRef| !committed.blobs.iter().any(|new| new.blob == **blob);
        let stored = committed.messages.iter().flat_map(|record| record.message.blobs()).filter(is_stored);
        model.check_blobs(stored)?;
        model.push_checkpoint(committed.checkpoint)?;
        model.put_blobs(&lease.run_id, committed.blobs, committed.run.updated_at);
        model.put_turn(committed.turn);
        model.put_step(committed.step);
        let run_id = &committed.run.run_id;
        for record in &committed.messages {
            model.refer(run_id, record.message.blobs());
        }
        model.messages.extend(committed.messages.into_iter().map(|message| (run_id.clone(), message)));
        model.put_run(committed.run.clone());
        Ok(committed.run)
    }

    async fn append_messages(&self, lease: &RunLease, messages: Vec<Message>, at: Timestamp) -> Result<(), StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let is_open = model.open_turn(&run.run_id).is_some();
        let tail: Vec<MessageRecord> = model.messages_of(&run.run_id).cloned().collect();
        let notes = rules::notes_appended(&run, is_open, &tail, messages, at)?;
        notes.iter().try_for_each(|record| model.check_blobs(record.message.blobs()))?;
        for record in &notes {
            model.refer(&run.run_id, record.message.blobs());
        }
        model.messages.extend(notes.into_iter().map(|message| (run.run_id.clone(), message)));
        Ok(())
    }

    async fn save_checkpoint(&self, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<(), StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let step = model.step(&checkpoint.step_id);
        let (run, checkpoint) = rules::checkpoint_saved(run, step.as_ref(), checkpoint)?;
        model.push_checkpoint(checkpoint)?;
        model.put_run(run);
        Ok(())
    }

    async fn raise_question(&self, lease: &RunLease, question: NewQuestion) -> Result<QuestionRecord, StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        if let Some(call) = &question.call_id {
            rules::owned_call(model.call(call)?, lease)?;
            let is_about_it = |other: &&QuestionRecord| {
                other.call_id.as_ref() == Some(call) && other.status != QuestionStatus::Closed
            };
            if let Some(earlier) = model.questions.iter().find(is_about_it) {
                return Ok(earlier.clone());
            }
        }
        let is_same =
            |asked: &&QuestionRecord| asked.run_id == lease.run_id && rules::is_same_question(asked, &question);
        if let Some(earlier) = model.questions.iter().find(is_same) {
            return Ok(earlier.clone());
        }
        if model.question(&question.question_id).is_ok() {
            return Err(StoreError::Exists { row: RowRef::new("questions", &question.question_id) });
        }
        let question = rules::question_raised(&lease.run_id, question);
        model.questions.push(question.clone());
        Ok(question)
    }

    async fn close_question(&self, lease: &RunLease, question: &QuestionId, at: Timestamp) -> Result<(), StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let question = rules::question_closed(model.question(question)?, &lease.run_id, at)?;
        model.put_question(question);
        Ok(())
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.model().run(run)
    }

    async fn runs(&self, limit: u32) -> Result<Vec<RunRecord>, StoreError> {
        let newest_first = self.model().newest_runs();
        Ok(newest_first.into_iter().take(limit as usize).collect())
    }

    async fn run_by_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.model().run_of_job_key(job_key))
    }

    async fn children(&self, run: &RunId) -> Result<Vec<RunRecord>, StoreError> {
        let model = self.model();
        Ok(model.runs.iter().filter(|other| other.parent_run_id.as_ref() == Some(run)).cloned().collect())
    }

    async fn load(&self, run: &RunId) -> Result<RunRecords, StoreError> {
        self.model().load(run)
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        let model = self.model();
        let run = model.run(run)?;
        Ok(model.whole_history(&run)?.into_iter().filter(|message| message.turn <= run.turn_index).collect())
    }

    async fn overrides(&self, run: &RunId) -> Result<Vec<OverrideRecord>, StoreError> {
        Ok(self.model().overrides_of(run))
    }

    async fn question(&self, question: &QuestionId) -> Result<QuestionRecord, StoreError> {
        self.model().question(question)
    }

    async fn open_questions(&self, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, StoreError> {
        let model = self.model();
        let is_asked = |question: &&QuestionRecord| {
            question.status != QuestionStatus::Closed && run.is_none_or(|run| question.run_id == *run)
        };
        Ok(model.questions.iter().filter(is_asked).cloned().collect())
    }
}
