//! The ledger's half of the model.

use async_trait::async_trait;
use ua_core::{CallId, CallStatus, IdempotencyKey, QuestionId, Resolution, RunId, Scope, Settlement, Timestamp};

use super::MemStore;
use super::lineage::oldest_first;
use super::model::Model;
use crate::Durability;
use crate::commit::{CallCancel, CorrectCall, KeepHandle, SettleAttempt, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::ledger_store::LedgerStore;
use crate::record::{
    AttemptRecord, CallRecord, EventRecord, QuestionRecord, QuestionStatus, ReceiptRecord, ReplayStatus, RunLease,
};
use crate::relations::Relations;
use crate::rules;

fn leased_call(model: &Model, lease: &RunLease, call: &CallId) -> Result<CallRecord, StoreError> {
    model.leased_run(lease)?;
    rules::owned_call(model.call(call)?, lease)
}

fn put_resolved(model: &mut Model, resolved: rules::Resolved, epoch: u64, at: Timestamp) -> CallRecord {
    let rules::Resolved { call, receipt, blobs, question } = resolved;
    model.put_call(call.clone(), epoch);
    model.put_blobs(&call.run_id, blobs, at);
    model.receipts.extend(receipt);
    if let Some(question) = question {
        model.put_question(question);
    }
    call
}

#[async_trait]
impl LedgerStore for MemStore {
    async fn start_attempt(&self, lease: &RunLease, start: StartAttempt) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let run = model.leased_run(lease)?;
        let call = rules::owned_call(model.call(&start.call_id)?, lease)?;
        let is_holder = |other: &&CallRecord| other.call_id != call.call_id && rules::holds_key(other, &start.key);
        let looks = start.seen.is_some();
        let relations = if looks { model.relations(&call, start.scope.as_ref())? } else { Relations::default() };
        let other_effects = model.calls.iter().filter(|other| rules::counts_as_effect(other, &call)).count();
        let context = rules::StartContext {
            run: &run,
            holder: model.calls.iter().find(is_holder).cloned(),
            relations,
            other_effects: u32::try_from(other_effects).unwrap_or(u32::MAX),
            approval: start.approved_by.as_ref().map(|question| model.question(question)).transpose()?,
        };
        let started = rules::call_started(context, call, start)?;
        if let Some((child, _)) = &started.child {
            model.check_new_run(child)?;
        }
        model.put_call(started.call.clone(), lease.epoch);
        model.put_attempt(started.attempt);
        if let Some(question) = started.approval {
            model.put_question(question);
        }
        if let Some((child, opening)) = started.child {
            model.messages.push((child.run_id.clone(), opening));
            model.runs.push(child);
        }
        Ok(started.call)
    }

    async fn keep_handle(&self, lease: &RunLease, keep: KeepHandle) -> Result<AttemptRecord, StoreError> {
        let mut model = self.model();
        let call = leased_call(&model, lease, &keep.call_id)?;
        let attempt = rules::handle_kept(&call, model.current_attempt(&call), keep)?;
        model.put_attempt(attempt.clone());
        Ok(attempt)
    }

    async fn settle_attempt(&self, lease: &RunLease, settle: SettleAttempt) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let threshold = model.leased_run(lease)?.spec.settings.blob_threshold_bytes;
        let call = leased_call(&model, lease, &settle.call_id)?;
        let attempt = model.current_attempt(&call);
        let settled = rules::call_settled(call, attempt, settle.attempt, settle.end, threshold, settle.at)?;
        model.put_blobs(&lease.run_id, settled.blobs, settle.at);
        model.put_call(settled.call.clone(), lease.epoch);
        model.put_attempt(settled.attempt);
        model.receipts.extend(settled.receipt);
        Ok(settled.call)
    }

    async fn interpret_receipt(
        &self,
        lease: &RunLease,
        call: &CallId,
        settlement: Settlement,
        _durability: Durability,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let threshold = model.leased_run(lease)?.spec.settings.blob_threshold_bytes;
        let call = leased_call(&model, lease, call)?;
        let newest = model.receipts_of(&call.call_id).last().cloned();
        let (call, receipt, blob) = rules::receipt_interpreted(call, newest, settlement, threshold, at)?;
        model.put_blobs(&lease.run_id, blob, at);
        model.put_call(call.clone(), lease.epoch);
        model.fill_newest_receipt(receipt);
        Ok(call)
    }

    async fn deduplicate_call(
        &self,
        lease: &RunLease,
        call: &CallId,
        from: &CallId,
        key: &IdempotencyKey,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let call = leased_call(&model, lease, call)?;
        let call = rules::call_deduplicated(call, &model.call(from)?, key, at)?;
        model.put_call(call.clone(), lease.epoch);
        Ok(call)
    }

    async fn cancel_calls(&self, lease: &RunLease, cancels: Vec<CallCancel>, at: Timestamp) -> Result<(), StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let cancelled = model.cancelled(lease, &cancels, at)?;
        model.put_cancelled(cancelled, lease);
        Ok(())
    }

    async fn mark_lost(&self, lease: &RunLease, why: &str, at: Timestamp) -> Result<Vec<CallRecord>, StoreError> {
        let mut model = self.model();
        model.leased_run(lease)?;
        let mut lost = Vec::new();
        for call in model.calls_of(&lease.run_id, None) {
            let attempt = model.current_attempt(&call);
            if let Some((call, attempt)) = attempt.and_then(|attempt| rules::call_lost(&call, &attempt, why, at)) {
                model.put_call(call.clone(), lease.epoch);
                model.put_attempt(attempt);
                lost.push(call);
            }
        }
        Ok(lost)
    }

    async fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let threshold = model.leased_run(lease)?.spec.settings.blob_threshold_bytes;
        let call = leased_call(&model, lease, call)?;
        let question = question.map(|question| model.question(question)).transpose()?;
        let resolved = rules::call_resolved(call, resolution, question, threshold, at)?;
        Ok(put_resolved(&mut model, resolved, lease.epoch, at))
    }

    async fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let call = model.call(call)?;
        let run = model.run(&call.run_id)?;
        rules::check_run_ended(&run)?;
        let question = Some(model.question(question)?);
        let threshold = run.spec.settings.blob_threshold_bytes;
        let resolved = rules::call_resolved(call, resolution, question, threshold, at)?;
        Ok(put_resolved(&mut model, resolved, run.lease_epoch, at))
    }

    async fn correct_call(&self, correct: CorrectCall) -> Result<CallRecord, StoreError> {
        let mut model = self.model();
        let call = model.call(&correct.call_id)?;
        let run = model.run(&call.run_id)?;
        let at = correct.correction.at;
        let is_holder = |other: &&CallRecord| {
            other.call_id != call.call_id
                && call.idempotency_key.as_ref().is_some_and(|key| rules::holds_key(other, key))
        };
        let is_duplicate = |other: &&CallRecord| other.deduplicated_from.as_ref() == Some(&call.call_id);
        let is_about = |question: &&QuestionRecord| {
            question.call_id.as_ref() == Some(&call.call_id) && question.status != QuestionStatus::Closed
        };
        let context = rules::CorrectContext {
            run: &run,
            attempt: model.current_attempt(&call),
            holder: model.calls.iter().find(is_holder).cloned(),
            duplicates: oldest_first(model.calls.iter().filter(is_duplicate).cloned().collect()),
            question: model.questions.iter().find(is_about).cloned(),
        };
        let threshold = run.spec.settings.blob_threshold_bytes;
        let Some(corrected) = rules::call_corrected(context, call.clone(), correct, threshold)? else {
            return Ok(call);
        };
        let rules::Corrected { call, attempt, receipt, blobs, duplicates, question } = corrected;
        if let Some(attempt) = attempt {
            model.put_attempt(attempt);
        }
        let resolved = rules::Resolved { call, receipt, blobs, question };
        let call = put_resolved(&mut model, resolved, run.lease_epoch, at);
        for duplicate in duplicates {
            let epoch = model.run(&duplicate.run_id)?.lease_epoch;
            model.put_call(duplicate, epoch);
        }
        model.put_corrected_at(&run.root_run_id, at);
        Ok(call)
    }

    async fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut model = self.model();
        let call = rules::replay_noted(leased_call(&model, lease, call)?, status, at);
        model.put_call(call, lease.epoch);
        Ok(())
    }

    async fn call(&self, call: &CallId) -> Result<CallRecord, StoreError> {
        self.model().call(call)
    }

    async fn calls(&self, run: &RunId, turn: Option<u32>) -> Result<Vec<CallRecord>, StoreError> {
        Ok(self.model().calls_of(run, turn))
    }

    async fn unknown_calls(&self) -> Result<Vec<CallRecord>, StoreError> {
        let is_open =
            |call: &&CallRecord| call.status == CallStatus::Unknown && call.resolution != Some(Resolution::Skipped);
        Ok(oldest_first(self.model().calls.iter().filter(is_open).cloned().collect()))
    }

    async fn key_holder(&self, root: &RunId, key: &IdempotencyKey) -> Result<Option<CallRecord>, StoreError> {
        let is_holder = |call: &&CallRecord| call.root_run_id == *root && rules::holds_key(call, key);
        Ok(self.model().calls.iter().find(is_holder).cloned())
    }

    async fn relations(&self, call: &CallId, scope: Option<&Scope>) -> Result<Relations, StoreError> {
        let model = self.model();
        model.relations(&model.call(call)?, scope)
    }

    async fn receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, StoreError> {
        Ok(self.model().receipts_of(call).last().cloned())
    }

    async fn attempts(&self, call: &CallId) -> Result<Vec<AttemptRecord>, StoreError> {
        Ok(self.model().attempts_of(call).cloned().collect())
    }

    async fn events(&self, call: &CallId) -> Result<Vec<EventRecord>, StoreError> {
        Ok(self.model().events.iter().filter(|event| event.call_id == *call).cloned().collect())
    }
}
