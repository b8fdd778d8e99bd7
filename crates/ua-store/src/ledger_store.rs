//! What the ledger of tool calls reads and writes.

use async_trait::async_trait;
use ua_core::{CallId, IdempotencyKey, QuestionId, RunId, Scope, Settlement, Timestamp};

use crate::Durability;
use crate::commit::{CallCancel, CorrectCall, KeepHandle, SettleAttempt, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::record::{AttemptRecord, CallRecord, EventRecord, ReceiptRecord, ReplayStatus, RunLease};
use crate::relations::Relations;

/// Tool calls, attempts and receipts (Durable Jobs v1 spec §8.3; Context Storage & Durability §4).
#[async_trait]
pub trait LedgerStore: Send + Sync {
    /// Commits RUNNING and claims the key, after checking epoch, status, attempt number, key, effect limit and approval
    /// in the same transaction. Nothing may be sent before this returned.
    async fn start_attempt(&self, lease: &RunLease, start: StartAttempt) -> Result<CallRecord, StoreError>;

    /// Stores what the running attempt goes on with (synced).
    async fn keep_handle(&self, lease: &RunLease, keep: KeepHandle) -> Result<AttemptRecord, StoreError>;

    /// Ends the running attempt and stores what it brought back.
    async fn settle_attempt(&self, lease: &RunLease, settle: SettleAttempt) -> Result<CallRecord, StoreError>;

    /// Fills in the meaning of a receipt that was stored without one.
    async fn interpret_receipt(
        &self,
        lease: &RunLease,
        call: &CallId,
        settlement: Settlement,
        durability: Durability,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError>;

    /// Answers a `prepared` call with the receipt of another call of its lineage (relaxed).
    async fn deduplicate_call(
        &self,
        lease: &RunLease,
        call: &CallId,
        from: &CallId,
        key: &IdempotencyKey,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError>;

    /// Cancels `prepared` calls and closes what was asked about them, in one write (relaxed).
    async fn cancel_calls(&self, lease: &RunLease, cancels: Vec<CallCancel>, at: Timestamp) -> Result<(), StoreError>;

    /// Turns every `running` call of the run that has no receipt, and no handle to go on with, into `unknown` (relaxed) and
    /// returns them: the first act of a recovery, before anything is decided.
    async fn mark_lost(&self, lease: &RunLease, why: &str, at: Timestamp) -> Result<Vec<CallRecord>, StoreError>;

    /// Settles an `unknown` call by evidence or by a person's word (synced), and closes the question it answers.
    async fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError>;

    /// Settles a call that a run went on without, after that run has ended (synced), and closes the question it answers. Needs no
    /// lease, since nobody owns the run any more; a run that has not ended refuses, because its owner applies answers.
    async fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError>;

    /// Puts the record of a call right by a person's word, whatever it says (synced): its status, the calls that have its answer, and the
    /// question about it in one write. Needs no lease; a call of a turn that an owner works on refuses.
    async fn correct_call(&self, correct: CorrectCall) -> Result<CallRecord, StoreError>;

    /// Notes what a resume did with a call (relaxed).
    async fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> Result<(), StoreError>;

    // --- Reads.

    /// One call.
    async fn call(&self, call: &CallId) -> Result<CallRecord, StoreError>;

    /// The calls of a run, by position; of one turn if given.
    async fn calls(&self, run: &RunId, turn: Option<u32>) -> Result<Vec<CallRecord>, StoreError>;

    /// Calls of any run that are `unknown` and not skipped, oldest first.
    async fn unknown_calls(&self) -> Result<Vec<CallRecord>, StoreError>;

    /// The call of the lineage that holds `key`, if any.
    async fn key_holder(&self, root: &RunId, key: &IdempotencyKey) -> Result<Option<CallRecord>, StoreError>;

    /// What a call might repeat whose effect is `scope`, from one snapshot.
    async fn relations(&self, call: &CallId, scope: Option<&Scope>) -> Result<Relations, StoreError>;

    /// The newest receipt of a call.
    async fn receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, StoreError>;

    /// The attempts of a call, oldest first.
    async fn attempts(&self, call: &CallId) -> Result<Vec<AttemptRecord>, StoreError>;

    /// The status changes of a call, oldest first.
    async fn events(&self, call: &CallId) -> Result<Vec<EventRecord>, StoreError>;
}
