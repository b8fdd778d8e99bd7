//! The ledger's half of the port: find rows, apply a rule, store what it returns.

use async_trait::async_trait;
use ua_core::{CallId, IdempotencyKey, QuestionId, RunId, Scope, Settlement, Timestamp};
use ua_store::{
    AttemptRecord, CallCancel, CallRecord, CorrectCall, Durability, EventRecord, KeepHandle, LedgerStore,
    ReceiptRecord, Relations, ReplayStatus, RunLease, SettleAttempt, StartAttempt, StoreError, UnknownResolution,
    rules,
};

use crate::db::Db;
use crate::error::DbError;
use crate::store::SqliteStore;

use Durability::{Relaxed, Synced};

#[async_trait]
impl LedgerStore for SqliteStore {
    async fn start_attempt(&self, lease: &RunLease, start: StartAttempt) -> Result<CallRecord, StoreError> {
        let lease = lease.clone();
        self.write(start.durability, move |db| {
            let run = db.leased_run(&lease)?;
            let call = rules::owned_call(db.call(&start.call_id)?, &lease)?;
            let context = rules::StartContext {
                run: &run,
                holder: db.key_holder(&start.key)?.filter(|holder| holder.call_id != call.call_id),
                relations: match &start.seen {
                    Some(_) => db.relations(&call, start.scope.as_ref())?,
                    None => Relations::default(),
                },
                other_effects: db.other_effects(&call)?,
                approval: start.approved_by.as_ref().map(|question| db.question(question)).transpose()?,
            };
            let at = start.at;
            let started = rules::call_started(context, call, start)?;
            db.update_call(&started.call, lease.epoch)?;
            db.insert_attempt(&started.attempt)?;
            if let Some(question) = started.approval {
                db.update_question(&question)?;
            }
            if let Some((child, opening)) = started.child {
                db.insert_run(&child)?;
                db.insert_message(&child.run_id, &opening)?;
            }
            db.note_effect(&started.call, "start", lease.epoch, at)?;
            Ok(started.call)
        })
        .await
    }

    async fn keep_handle(&self, lease: &RunLease, keep: KeepHandle) -> Result<AttemptRecord, StoreError> {
        let lease = lease.clone();
        self.write(Synced, move |db| {
            let call = db.leased_call(&lease, &keep.call_id)?;
            let attempt = rules::handle_kept(&call, db.current_attempt(&call)?, keep)?;
            db.keep_handle(&attempt)?;
            Ok(attempt)
        })
        .await
    }

    async fn settle_attempt(&self, lease: &RunLease, settle: SettleAttempt) -> Result<CallRecord, StoreError> {
        let lease = lease.clone();
        self.write(settle.durability, move |db| {
            let threshold = db.leased_run(&lease)?.spec.settings.blob_threshold_bytes;
            let call = rules::owned_call(db.call(&settle.call_id)?, &lease)?;
            let attempt = db.current_attempt(&call)?;
            let settled = rules::call_settled(call, attempt, settle.attempt, settle.end, threshold, settle.at)?;
            db.put_blobs(&lease.run_id, &settled.blobs, settle.at)?;
            db.update_call(&settled.call, lease.epoch)?;
            db.end_attempt(&settled.attempt)?;
            if let Some(receipt) = settled.receipt {
                db.insert_receipt(&receipt)?;
            }
            db.note_effect(&settled.call, "settle", lease.epoch, settle.at)?;
            Ok(settled.call)
        })
        .await
    }

    async fn interpret_receipt(
        &self,
        lease: &RunLease,
        call: &CallId,
        settlement: Settlement,
        durability: Durability,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let (lease, call) = (lease.clone(), call.clone());
        self.write(durability, move |db| {
            let threshold = db.leased_run(&lease)?.spec.settings.blob_threshold_bytes;
            let call = rules::owned_call(db.call(&call)?, &lease)?;
            let newest = db.newest_receipt(&call.call_id)?;
            let (call, receipt, blob) = rules::receipt_interpreted(call, newest, settlement, threshold, at)?;
            db.put_blobs(&lease.run_id, blob.as_slice(), at)?;
            db.update_call(&call, lease.epoch)?;
            db.fill_newest_receipt(&receipt)?;
            Ok(call)
        })
        .await
    }

    async fn deduplicate_call(
        &self,
        lease: &RunLease,
        call: &CallId,
        from: &CallId,
        key: &IdempotencyKey,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let (lease, call, from, key) = (lease.clone(), call.clone(), from.clone(), key.clone());
        self.write(Relaxed, move |db| {
            let call = db.leased_call(&lease, &call)?;
            let call = rules::call_deduplicated(call, &db.call(&from)?, &key, at)?;
            db.update_call(&call, lease.epoch)?;
            Ok(call)
        })
        .await
    }

    async fn cancel_calls(&self, lease: &RunLease, cancels: Vec<CallCancel>, at: Timestamp) -> Result<(), StoreError> {
        let lease = lease.clone();
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            cancels.iter().try_for_each(|cancel| db.cancel_call(&lease, cancel, at))
        })
        .await
    }

    async fn mark_lost(&self, lease: &RunLease, why: &str, at: Timestamp) -> Result<Vec<CallRecord>, StoreError> {
        let (lease, why) = (lease.clone(), why.to_owned());
        self.write(Relaxed, move |db| {
            db.leased_run(&lease)?;
            let mut lost = Vec::new();
            for call in db.running_calls(&lease.run_id)? {
                let attempt = db.current_attempt(&call)?;
                if let Some((call, attempt)) = attempt.and_then(|attempt| rules::call_lost(&call, &attempt, &why, at)) {
                    db.update_call(&call, lease.epoch)?;
                    db.end_attempt(&attempt)?;
                    lost.push(call);
                }
            }
            Ok(lost)
        })
        .await
    }

    async fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let (lease, call, question) = (lease.clone(), call.clone(), question.cloned());
        self.write(Synced, move |db| {
            let threshold = db.leased_run(&lease)?.spec.settings.blob_threshold_bytes;
            let call = rules::owned_call(db.call(&call)?, &lease)?;
            let question = question.map(|question| db.question(&question)).transpose()?;
            let resolved = rules::call_resolved(call, resolution, question, threshold, at)?;
            put_resolved(db, resolved, lease.epoch, at)
        })
        .await
    }

    async fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let (call, question) = (call.clone(), question.clone());
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let call = db.call(&call)?;
            let run = db.run(&call.run_id)?;
            rules::check_run_ended(&run)?;
            let question = Some(db.question(&question)?);
            let threshold = run.spec.settings.blob_threshold_bytes;
            let resolved = rules::call_resolved(call, resolution, question, threshold, at)?;
            put_resolved(db, resolved, run.lease_epoch, at)
        })
        .await
    }

    async fn correct_call(&self, correct: CorrectCall) -> Result<CallRecord, StoreError> {
        let place = self.place();
        self.write(Synced, move |db| {
            place.check()?;
            let call = db.call(&correct.call_id)?;
            let run = db.run(&call.run_id)?;
            let at = correct.correction.at;
            let holder = call.idempotency_key.as_ref().map(|key| db.key_holder(key)).transpose()?.flatten();
            let context = rules::CorrectContext {
                run: &run,
                attempt: db.current_attempt(&call)?,
                holder: holder.filter(|holder| holder.call_id != call.call_id),
                duplicates: db.answered_by(&call.call_id)?,
                question: db.waiting_question(&call.call_id)?,
            };
            let threshold = run.spec.settings.blob_threshold_bytes;
            let Some(corrected) = rules::call_corrected(context, call.clone(), correct, threshold)? else {
                return Ok(call);
            };
            let rules::Corrected { call, attempt, receipt, blobs, duplicates, question } = corrected;
            if let Some(attempt) = attempt {
                db.end_attempt(&attempt)?;
            }
            let resolved = rules::Resolved { call, receipt, blobs, question };
            let call = put_resolved(db, resolved, run.lease_epoch, at)?;
            for duplicate in duplicates {
                let epoch = db.run(&duplicate.run_id)?.lease_epoch;
                db.update_call(&duplicate, epoch)?;
            }
            db.note_corrected(&run.root_run_id, at)?;
            Ok(call)
        })
        .await
    }

    async fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let (lease, call) = (lease.clone(), call.clone());
        self.write(Relaxed, move |db| {
            let call = rules::replay_noted(db.leased_call(&lease, &call)?, status, at);
            db.update_call(&call, lease.epoch)
        })
        .await
    }

    async fn call(&self, call: &CallId) -> Result<CallRecord, StoreError> {
        let call = call.clone();
        self.read(move |db| db.call(&call)).await
    }

    async fn calls(&self, run: &RunId, turn: Option<u32>) -> Result<Vec<CallRecord>, StoreError> {
        let run = run.clone();
        self.read(move |db| db.calls_of(&run, turn)).await
    }

    async fn unknown_calls(&self) -> Result<Vec<CallRecord>, StoreError> {
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method's path is not general enough over lifetimes"
        )]
        self.read(|db| db.unknown_calls()).await
    }

    async fn key_holder(&self, root: &RunId, key: &IdempotencyKey) -> Result<Option<CallRecord>, StoreError> {
        let (root, key) = (root.clone(), key.clone());
        self.read(move |db| Ok(db.key_holder(&key)?.filter(|call| call.root_run_id == root))).await
    }

    async fn relations(&self, call: &CallId, scope: Option<&Scope>) -> Result<Relations, StoreError> {
        let (call, scope) = (call.clone(), scope.cloned());
        self.read(move |db| db.relations(&db.call(&call)?, scope.as_ref())).await
    }

    async fn receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, StoreError> {
        let call = call.clone();
        self.read(move |db| db.newest_receipt(&call)).await
    }

    async fn attempts(&self, call: &CallId) -> Result<Vec<AttemptRecord>, StoreError> {
        let call = call.clone();
        self.read(move |db| db.attempts_of(&call)).await
    }

    async fn events(&self, call: &CallId) -> Result<Vec<EventRecord>, StoreError> {
        let call = call.clone();
        self.read(move |db| db.events_of(&call)).await
    }
}

fn put_resolved(db: &Db<'_>, resolved: rules::Resolved, epoch: u64, at: Timestamp) -> Result<CallRecord, DbError> {
    let rules::Resolved { call, receipt, blobs, question } = resolved;
    db.put_blobs(&call.run_id, &blobs, at)?;
    db.update_call(&call, epoch)?;
    if let Some(receipt) = receipt {
        db.insert_receipt(&receipt)?;
    }
    if let Some(question) = question {
        db.update_question(&question)?;
    }
    Ok(call)
}
