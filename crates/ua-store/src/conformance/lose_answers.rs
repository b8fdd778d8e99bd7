//! A store whose answers get lost: the write is committed, and the caller never learns it.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, Message, QuestionId, RunId, Scope, Settlement, Timestamp, ToolName};

use crate::archive_store::{ArchiveStore, CallQuery, DeletedRun, RunDeletion, RunHead, RunQuery};
use crate::blob_store::{Blob, BlobPrune, BlobPruned};
use crate::commit::{
    CallCancel, KeepHandle, NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RequestEnd,
    RequestReservation, RunEnd, SettleAttempt, StartAttempt, StepEnd, StepEntry, TurnCommit, TurnDraft,
    UnknownResolution,
};
use crate::error::{Retry, StoreError};
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    AttemptRecord, CallRecord, EventRecord, MessageRecord, OwnerStamp, QuestionRecord, ReceiptRecord, ReplayStatus,
    RequestId, RunLease, RunRecord, RunRecords, StepRecord,
};
use crate::{BlobStore, Durability, LedgerStore, RunStore, Store};

/// Passes everything on to a store, and loses the answer of one write when it is told to.
pub struct LoseAnswers<'s> {
    store: &'s dyn Store,
    lose: AtomicBool,
}

impl std::fmt::Debug for LoseAnswers<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoseAnswers").field("lose", &self.lose).finish_non_exhaustive()
    }
}

impl<'s> LoseAnswers<'s> {
    /// Wraps `store`; nothing is lost until [`lose_next`](Self::lose_next).
    pub fn new(store: &'s dyn Store) -> Self {
        Self { store, lose: AtomicBool::new(false) }
    }

    /// Loses the answer of the next write that succeeds.
    pub fn lose_next(&self) {
        self.lose.store(true, Ordering::SeqCst);
    }

    fn answered<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        let answer = outcome?;
        if self.lose.swap(false, Ordering::SeqCst) {
            let why = "the answer was lost".to_owned();
            return Err(StoreError::Unavailable { why, source: None, retry: Retry::Later });
        }
        Ok(answer)
    }
}

#[async_trait]
impl RunStore for LoseAnswers<'_> {
    async fn submit_run(&self, run: NewRun) -> Result<RunRecord, StoreError> {
        self.answered(self.store.submit_run(run).await)
    }

    async fn submit_again(&self, run: NewRun, seen: &RunId) -> Result<RunRecord, StoreError> {
        self.answered(self.store.submit_again(run, seen).await)
    }

    async fn fork_run(&self, fork: NewFork) -> Result<RunRecord, StoreError> {
        self.answered(self.store.fork_run(fork).await)
    }

    async fn insert_answer(&self, answer: NewAnswer) -> Result<QuestionRecord, StoreError> {
        self.answered(self.store.insert_answer(answer).await)
    }

    async fn insert_override(&self, change: NewOverride) -> Result<OverrideRecord, StoreError> {
        self.answered(self.store.insert_override(change).await)
    }

    async fn request_cancel(&self, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError> {
        self.answered(self.store.request_cancel(run, reason, at).await)
    }

    async fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        self.answered(self.store.acquire_run(run, owner, at).await)
    }

    async fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        self.answered(self.store.acquire_task_run(above, run, owner, at).await)
    }

    async fn note_alive(&self, lease: &RunLease, at: Timestamp) -> Result<(), StoreError> {
        self.answered(self.store.note_alive(lease, at).await)
    }

    async fn check_lease(&self, lease: &RunLease) -> Result<(), StoreError> {
        self.store.check_lease(lease).await
    }

    async fn end_run(&self, lease: &RunLease, end: RunEnd) -> Result<RunRecord, StoreError> {
        self.answered(self.store.end_run(lease, end).await)
    }

    async fn open_step(&self, lease: &RunLease, step: NewStep) -> Result<StepRecord, StoreError> {
        self.answered(self.store.open_step(lease, step).await)
    }

    async fn enter_step(&self, lease: &RunLease, entry: StepEntry) -> Result<StepRecord, StoreError> {
        self.answered(self.store.enter_step(lease, entry).await)
    }

    async fn close_step(&self, lease: &RunLease, end: StepEnd) -> Result<StepRecord, StoreError> {
        self.answered(self.store.close_step(lease, end).await)
    }

    async fn reserve_request(
        &self,
        lease: &RunLease,
        reservation: RequestReservation,
    ) -> Result<RequestId, StoreError> {
        self.answered(self.store.reserve_request(lease, reservation).await)
    }

    async fn note_response(&self, lease: &RunLease, request: RequestId, response_id: &str) -> Result<(), StoreError> {
        self.answered(self.store.note_response(lease, request, response_id).await)
    }

    async fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.answered(self.store.close_request(lease, request, end, at).await)
    }

    async fn close_lost_requests(&self, lease: &RunLease, at: Timestamp) -> Result<u32, StoreError> {
        self.answered(self.store.close_lost_requests(lease, at).await)
    }

    async fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> Result<(), StoreError> {
        self.answered(self.store.record_turn(lease, draft).await)
    }

    async fn commit_turn(&self, lease: &RunLease, commit: TurnCommit) -> Result<RunRecord, StoreError> {
        self.answered(self.store.commit_turn(lease, commit).await)
    }

    async fn append_messages(&self, lease: &RunLease, messages: Vec<Message>, at: Timestamp) -> Result<(), StoreError> {
        self.answered(self.store.append_messages(lease, messages, at).await)
    }

    async fn save_checkpoint(&self, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<(), StoreError> {
        self.answered(self.store.save_checkpoint(lease, checkpoint).await)
    }

    async fn raise_question(&self, lease: &RunLease, question: NewQuestion) -> Result<QuestionRecord, StoreError> {
        self.answered(self.store.raise_question(lease, question).await)
    }

    async fn close_question(&self, lease: &RunLease, question: &QuestionId, at: Timestamp) -> Result<(), StoreError> {
        self.answered(self.store.close_question(lease, question, at).await)
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.store.run(run).await
    }

    async fn runs(&self, limit: u32) -> Result<Vec<RunRecord>, StoreError> {
        self.store.runs(limit).await
    }

    async fn run_by_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, StoreError> {
        self.store.run_by_job_key(job_key).await
    }

    async fn children(&self, run: &RunId) -> Result<Vec<RunRecord>, StoreError> {
        self.store.children(run).await
    }

    async fn load(&self, run: &RunId) -> Result<RunRecords, StoreError> {
        self.store.load(run).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.store.history(run).await
    }

    async fn overrides(&self, run: &RunId) -> Result<Vec<OverrideRecord>, StoreError> {
        self.store.overrides(run).await
    }

    async fn question(&self, question: &QuestionId) -> Result<QuestionRecord, StoreError> {
        self.store.question(question).await
    }

    async fn open_questions(&self, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, StoreError> {
        self.store.open_questions(run).await
    }
}

#[async_trait]
impl LedgerStore for LoseAnswers<'_> {
    async fn start_attempt(&self, lease: &RunLease, start: StartAttempt) -> Result<CallRecord, StoreError> {
        self.answered(self.store.start_attempt(lease, start).await)
    }

    async fn keep_handle(&self, lease: &RunLease, keep: KeepHandle) -> Result<AttemptRecord, StoreError> {
        self.answered(self.store.keep_handle(lease, keep).await)
    }

    async fn settle_attempt(&self, lease: &RunLease, settle: SettleAttempt) -> Result<CallRecord, StoreError> {
        self.answered(self.store.settle_attempt(lease, settle).await)
    }

    async fn interpret_receipt(
        &self,
        lease: &RunLease,
        call: &CallId,
        settlement: Settlement,
        durability: Durability,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        self.answered(self.store.interpret_receipt(lease, call, settlement, durability, at).await)
    }

    async fn deduplicate_call(
        &self,
        lease: &RunLease,
        call: &CallId,
        from: &CallId,
        key: &IdempotencyKey,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        self.answered(self.store.deduplicate_call(lease, call, from, key, at).await)
    }

    async fn cancel_calls(&self, lease: &RunLease, cancels: Vec<CallCancel>, at: Timestamp) -> Result<(), StoreError> {
        self.answered(self.store.cancel_calls(lease, cancels, at).await)
    }

    async fn mark_lost(&self, lease: &RunLease, why: &str, at: Timestamp) -> Result<Vec<CallRecord>, StoreError> {
        self.answered(self.store.mark_lost(lease, why, at).await)
    }

    async fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        self.answered(self.store.resolve_unknown(lease, call, resolution, question, at).await)
    }

    async fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        self.answered(self.store.resolve_late(call, resolution, question, at).await)
    }

    async fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.answered(self.store.note_replay(lease, call, status, at).await)
    }

    async fn call(&self, call: &CallId) -> Result<CallRecord, StoreError> {
        self.store.call(call).await
    }

    async fn calls(&self, run: &RunId, turn: Option<u32>) -> Result<Vec<CallRecord>, StoreError> {
        self.store.calls(run, turn).await
    }

    async fn unknown_calls(&self) -> Result<Vec<CallRecord>, StoreError> {
        self.store.unknown_calls().await
    }

    async fn key_holder(&self, root: &RunId, key: &IdempotencyKey) -> Result<Option<CallRecord>, StoreError> {
        self.store.key_holder(root, key).await
    }

    async fn scope_calls(&self, root: &RunId, scope: &Scope) -> Result<Vec<CallRecord>, StoreError> {
        self.store.scope_calls(root, scope).await
    }

    async fn effects_elsewhere(&self, run: &RunId) -> Result<Vec<CallRecord>, StoreError> {
        self.store.effects_elsewhere(run).await
    }

    async fn doubts(&self, root: &RunId, tool: &ToolName) -> Result<Vec<CallRecord>, StoreError> {
        self.store.doubts(root, tool).await
    }

    async fn receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, StoreError> {
        self.store.receipt(call).await
    }

    async fn attempts(&self, call: &CallId) -> Result<Vec<AttemptRecord>, StoreError> {
        self.store.attempts(call).await
    }

    async fn events(&self, call: &CallId) -> Result<Vec<EventRecord>, StoreError> {
        self.store.events(call).await
    }
}

#[async_trait]
impl BlobStore for LoseAnswers<'_> {
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.store.blob(blob).await
    }

    async fn prune_blobs(&self, prune: BlobPrune) -> Result<BlobPruned, StoreError> {
        self.answered(self.store.prune_blobs(prune).await)
    }
}

#[async_trait]
impl ArchiveStore for LoseAnswers<'_> {
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.store.find_runs(query).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.store.find_calls(query).await
    }

    async fn load_turns(&self, run: &RunId, first: u32, last: u32) -> Result<RunRecords, StoreError> {
        self.store.load_turns(run, first, last).await
    }

    async fn delete_run(&self, deletion: &RunDeletion) -> Result<DeletedRun, StoreError> {
        self.answered(self.store.delete_run(deletion).await)
    }
}
