//! The model as rows under the port.

use std::cell::{Ref, RefCell, RefMut};

use ua_core::{BlobRef, CallId, CallStatus, IdempotencyKey, QuestionId, RunId, Scope, StepId, Timestamp};

use super::lineage::oldest_first;
use super::model::Model;
use crate::archive_store::RunDeletion;
use crate::blob_store::BlobUse;
use crate::error::{RowRef, StoreError};
use crate::gateway::{ArrivalRecord, SessionRecord};
use crate::lifted::NewBlob;
use crate::overrides::OverrideRecord;
use crate::record::{
    AttemptRecord, CallRecord, CheckpointRecord, MessageRecord, QuestionRecord, QuestionStatus, ReceiptRecord,
    RequestId, RequestRecord, RequestStatus, RunRecord, StepRecord, TurnRecord,
};
use crate::relations::Relations;
use crate::rows::{BlobRows, GatewayRows, LedgerRows, RunRows, Tables, Written};
use crate::rules;
use crate::taint::Taint;

type Found<T> = Result<T, StoreError>;

/// A transaction of the model.
pub(super) struct Transaction<'m>(RefCell<&'m mut Model>);

impl<'m> Transaction<'m> {
    pub(super) fn of(model: &'m mut Model) -> Self {
        Self(RefCell::new(model))
    }

    pub(super) fn model(&self) -> Ref<'_, &'m mut Model> {
        self.0.borrow()
    }

    pub(super) fn change(&self) -> RefMut<'_, &'m mut Model> {
        self.0.borrow_mut()
    }
}

fn exists(table: &'static str, id: impl std::fmt::Display) -> StoreError {
    StoreError::Exists { row: RowRef::new(table, id) }
}

impl Tables for Transaction<'_> {
    type Error = StoreError;

    fn nested<T>(&self, work: impl FnOnce() -> Found<T>) -> Found<Found<T>> {
        let before = Model::clone(&self.model());
        let done = work();
        match done {
            Err(refused) if refused.is_refusal() => {
                **self.change() = before;
                Ok(Err(refused))
            }
            done => done.map(Ok),
        }
    }
}

impl RunRows for Transaction<'_> {
    fn written(&self, run: &RunId) -> Found<Written> {
        Ok(self.model().written.get(run).copied().unwrap_or_default())
    }
    fn set_batches(&self, run: &RunId, batches: u64) -> Found<()> {
        self.change().written.entry(run.clone()).or_default().batches = batches;
        Ok(())
    }
    fn count_word(&self, run: &RunId) -> Found<()> {
        self.change().written.entry(run.clone()).or_default().words += 1;
        Ok(())
    }
    fn run(&self, id: &RunId) -> Found<RunRecord> {
        self.model().run(id)
    }
    fn taint_of(&self, run: &RunId) -> Found<Taint> {
        Ok(self.model().run(run).map(|run| run.taint).unwrap_or_default())
    }
    fn runs_below(&self, run: &RunId) -> Found<Vec<RunRecord>> {
        Ok(self.model().runs_below(run))
    }
    fn run_of_job_key(&self, job_key: &str) -> Found<Option<RunRecord>> {
        Ok(self.model().run_of_job_key(job_key))
    }
    fn check_job_key(&self, run: &RunRecord) -> Found<()> {
        self.model().check_job_key(run)
    }
    fn last_write(&self, run: &RunId) -> Found<Option<Timestamp>> {
        Ok(self.model().last_write(run))
    }
    fn end_of_turn(&self, run: &RunRecord, turn: u32) -> Found<(u64, Option<String>)> {
        self.model().end_of_turn(run, turn)
    }
    fn insert_run(&self, run: &RunRecord) -> Found<()> {
        self.model().check_new_run(run)?;
        self.change().runs.push(run.clone());
        Ok(())
    }
    fn update_run(&self, run: &RunRecord) -> Found<()> {
        self.change().put_run(run.clone());
        Ok(())
    }
    fn update_seen(&self, run: &RunRecord) -> Found<()> {
        self.update_run(run)
    }
    fn note_corrected(&self, root: &RunId, at: Timestamp) -> Found<()> {
        self.change().put_corrected_at(root, at);
        for run in self.lineage_members(root)?.0 {
            self.count_word(&run)?;
        }
        Ok(())
    }
    fn lineage_members(&self, root: &RunId) -> Found<(Vec<RunId>, Vec<RunId>)> {
        let model = self.model();
        let members = model.newest_runs().into_iter().filter(|run| run.root_run_id == *root).map(|run| run.run_id);
        Ok((members.collect(), model.deleted.iter().cloned().collect()))
    }
    fn note_deleted(&self, deletion: &RunDeletion, _root: &RunId) -> Found<()> {
        self.change().deleted.insert(deletion.run_id.clone());
        Ok(())
    }
    fn remove_lineage(&self, root: &RunId) -> Found<()> {
        let (members, _) = self.lineage_members(root)?;
        self.change().remove(&members.into_iter().collect());
        Ok(())
    }

    fn step(&self, id: &StepId) -> Found<Option<StepRecord>> {
        Ok(self.model().step(id))
    }
    fn last_step_index(&self, run: &RunId) -> Found<u32> {
        Ok(self.model().last_step_index(run))
    }
    fn insert_step(&self, step: &StepRecord) -> Found<()> {
        if self.model().step(&step.step_id).is_some() {
            return Err(exists("run_steps", &step.step_id));
        }
        self.change().steps.push(step.clone());
        Ok(())
    }
    fn update_step(&self, step: &StepRecord) -> Found<()> {
        self.change().put_step(step.clone());
        Ok(())
    }

    fn open_turn(&self, run: &RunId) -> Found<Option<TurnRecord>> {
        Ok(self.model().open_turn(run))
    }
    fn insert_turn(&self, turn: &TurnRecord) -> Found<()> {
        self.change().turns.push(turn.clone());
        Ok(())
    }
    fn update_turn(&self, turn: &TurnRecord) -> Found<()> {
        self.change().put_turn(turn.clone());
        Ok(())
    }
    fn last_seq(&self, run: &RunId) -> Found<u64> {
        Ok(self.model().last_seq(run))
    }
    fn last_messages(&self, run: &RunId, count: usize) -> Found<Vec<MessageRecord>> {
        let model = self.model();
        let own: Vec<&MessageRecord> = model.messages_of(run).collect();
        Ok(own[own.len().saturating_sub(count)..].iter().copied().cloned().collect())
    }
    fn insert_message(&self, run: &RunId, message: &MessageRecord) -> Found<()> {
        self.change().messages.push((run.clone(), message.clone()));
        Ok(())
    }
    fn insert_checkpoint(&self, checkpoint: &CheckpointRecord) -> Found<()> {
        let is_it = |stored: &CheckpointRecord| stored.checkpoint_id == checkpoint.checkpoint_id;
        if self.model().checkpoints.iter().any(is_it) {
            return Err(exists("checkpoints", &checkpoint.checkpoint_id));
        }
        self.change().checkpoints.push(checkpoint.clone());
        Ok(())
    }

    fn request(&self, run: &RunId, id: RequestId) -> Found<Option<RequestRecord>> {
        Ok(self.model().request(run, id))
    }
    fn last_request(&self, run: &RunId) -> Found<Option<RequestRecord>> {
        Ok(self.model().requests_of(run).last().cloned())
    }
    fn reserved_requests(&self, run: &RunId) -> Found<Vec<RequestRecord>> {
        let model = self.model();
        Ok(model.requests_of(run).filter(|request| request.status == RequestStatus::Reserved).cloned().collect())
    }
    fn insert_request(&self, run: &RunId, request: &RequestRecord) -> Found<()> {
        self.update_request(run, request)
    }
    fn update_request(&self, run: &RunId, request: &RequestRecord) -> Found<()> {
        self.change().put_request(run, request.clone());
        Ok(())
    }

    fn question(&self, id: &QuestionId) -> Found<QuestionRecord> {
        self.model().question(id)
    }
    fn waiting_question(&self, call: &CallId) -> Found<Option<QuestionRecord>> {
        let is_about = |question: &&QuestionRecord| {
            question.call_id.as_ref() == Some(call) && question.status != QuestionStatus::Closed
        };
        Ok(self.model().questions.iter().find(is_about).cloned())
    }
    fn waiting_questions_of(&self, run: &RunId) -> Found<Vec<QuestionRecord>> {
        Ok(self.model().waiting_questions(Some(run)))
    }
    fn insert_question(&self, question: &QuestionRecord) -> Found<()> {
        if self.model().question(&question.question_id).is_ok() {
            return Err(exists("questions", &question.question_id));
        }
        self.change().questions.push(question.clone());
        Ok(())
    }
    fn update_question(&self, question: &QuestionRecord) -> Found<()> {
        self.change().put_question(question.clone());
        Ok(())
    }

    fn overrides_of(&self, run: &RunId) -> Found<Vec<OverrideRecord>> {
        Ok(self.model().overrides_of(run))
    }
    fn insert_override(&self, row: &OverrideRecord) -> Found<()> {
        self.change().overrides.push(row.clone());
        Ok(())
    }
}

impl LedgerRows for Transaction<'_> {
    fn call(&self, id: &CallId) -> Found<CallRecord> {
        self.model().call(id)
    }
    fn calls_of_turn(&self, run: &RunId, turn: u32) -> Found<Vec<CallRecord>> {
        Ok(self.model().calls_of(run, Some(turn)))
    }
    fn calls_until(&self, run: &RunId, turn: u32) -> Found<Vec<CallRecord>> {
        let mut calls = self.model().calls_of(run, None);
        calls.retain(|call| call.position.turn <= turn);
        Ok(calls)
    }
    fn running_calls(&self, run: &RunId) -> Found<Vec<CallRecord>> {
        let mut calls = self.model().calls_of(run, None);
        calls.retain(|call| call.status == CallStatus::Running);
        Ok(calls)
    }
    fn key_holder(&self, key: &IdempotencyKey) -> Found<Option<CallRecord>> {
        Ok(self.model().calls.iter().find(|call| rules::holds_key(call, key)).cloned())
    }
    fn corrected_calls(&self, root: &RunId) -> Found<Vec<CallRecord>> {
        let model = self.model();
        let was_corrected = |call: &&CallRecord| {
            call.root_run_id == *root && call.policy.effect_kind.is_some() && call.correction.is_some()
        };
        Ok(model.calls.iter().filter(was_corrected).cloned().collect())
    }
    fn other_effects(&self, call: &CallRecord, most: u32) -> Found<u32> {
        let model = self.model();
        let count = model.calls.iter().filter(|other| rules::counts_as_effect(other, call)).take(most as usize).count();
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }
    fn answered_by(&self, root: &RunId, call: &CallId) -> Found<Vec<CallRecord>> {
        let follows = |other: &&CallRecord| other.root_run_id == *root && other.answered_by() == Some(call);
        Ok(oldest_first(self.model().calls.iter().filter(follows).cloned().collect()))
    }
    fn relations(&self, call: &CallRecord, scope: Option<&Scope>) -> Found<Relations> {
        self.model().relations(call, scope)
    }
    fn insert_call(&self, call: &CallRecord, epoch: u64) -> Found<()> {
        if self.model().call(&call.call_id).is_ok() {
            return Err(exists("tool_calls", &call.call_id));
        }
        self.update_call(call, epoch)
    }
    fn update_call(&self, call: &CallRecord, epoch: u64) -> Found<()> {
        self.change().put_call(call.clone(), epoch);
        Ok(())
    }
    fn current_attempt(&self, call: &CallRecord) -> Found<Option<AttemptRecord>> {
        Ok(self.model().current_attempt(call))
    }
    fn insert_attempt(&self, attempt: &AttemptRecord) -> Found<()> {
        self.end_attempt(attempt)
    }
    fn keep_handle(&self, attempt: &AttemptRecord) -> Found<()> {
        self.end_attempt(attempt)
    }
    fn end_attempt(&self, attempt: &AttemptRecord) -> Found<()> {
        self.change().put_attempt(attempt.clone());
        Ok(())
    }
    fn newest_receipt(&self, call: &CallId) -> Found<Option<ReceiptRecord>> {
        Ok(self.model().receipts_of(call).last().cloned())
    }
    fn insert_receipt(&self, receipt: &ReceiptRecord) -> Found<()> {
        self.change().receipts.push(receipt.clone());
        Ok(())
    }
    fn fill_newest_receipt(&self, receipt: &ReceiptRecord) -> Found<()> {
        self.change().fill_newest_receipt(receipt.clone());
        Ok(())
    }
    /// Nothing of the model is kept outside of it.
    fn note_effect(&self, _call: &CallRecord, _event: &str, _epoch: u64, _at: Timestamp) -> Found<()> {
        Ok(())
    }
    fn note_word(&self, _run: &RunId, _question: Option<&QuestionRecord>, _word: &str, _at: Timestamp) -> Found<()> {
        Ok(())
    }
}

impl GatewayRows for Transaction<'_> {
    fn insert_session(&self, session: &SessionRecord) -> Found<()> {
        if self.model().session(&session.project, &session.server, &session.session_key).is_some() {
            return Err(exists("gateway_sessions", &session.run_id));
        }
        self.change().sessions.push(session.clone());
        Ok(())
    }
    fn arrival(&self, id: &str) -> Found<Option<ArrivalRecord>> {
        Ok(self.model().arrivals.iter().find(|arrival| arrival.arrival_id == id).cloned())
    }
    fn insert_arrival(&self, arrival: &ArrivalRecord) -> Found<()> {
        self.update_arrival(arrival)
    }
    fn update_arrival(&self, arrival: &ArrivalRecord) -> Found<()> {
        self.change().arrivals.put(arrival.clone(), |stored| stored.arrival_id == arrival.arrival_id);
        Ok(())
    }
}

impl BlobRows for Transaction<'_> {
    fn put_blobs(&self, run: &RunId, blobs: &[NewBlob], at: Timestamp) -> Found<()> {
        self.change().put_blobs(run, blobs.iter().cloned(), at);
        Ok(())
    }
    fn refer_to_blobs<'b>(&self, run: &RunId, blobs: impl Iterator<Item = &'b BlobRef>) -> Found<()> {
        let mut model = self.change();
        for blob in blobs {
            model.check_blobs([blob])?;
            model.refer(run, [blob]);
        }
        Ok(())
    }
    fn blob_uses(&self) -> Found<Vec<BlobUse>> {
        Ok(self.model().blob_uses())
    }
    fn prune_blob(&self, blob: &BlobRef, at: Timestamp) -> Found<()> {
        self.change().prune_blob(blob, at);
        Ok(())
    }
}
