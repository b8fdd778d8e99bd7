//! What the ledger of tool calls writes and reads, a word for each change of the port.

use ua_core::{CallId, IdempotencyKey, QuestionId, RunId, Scope, Settlement, Timestamp};

use crate::Durability;
use crate::change::{Author, Batch, Change, one};
use crate::commit::{CallCancel, CorrectCall, KeepHandle, RecallCall, SettleAttempt, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::record::{AttemptRecord, CallRecord, EventRecord, ReceiptRecord, ReplayStatus, RunLease};
use crate::relations::Relations;
use crate::store::{CallsOf, Store, TrailOf, only};

/// Tool calls, attempts and receipts: single changes and reads of a [`Store`] (Durable Jobs v1 spec §8.3; Context Storage & Durability §4).
pub trait LedgerStore: Store {
    /// Commits RUNNING and claims the key, after checking epoch, status, attempt number, key, effect limit and approval
    /// in the same transaction. Nothing may be sent before this returned.
    fn start_attempt(
        &self,
        lease: &RunLease,
        start: StartAttempt,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::StartAttempt(start)]));
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Stores what the running attempt goes on with (synced).
    fn keep_handle(
        &self,
        lease: &RunLease,
        keep: KeepHandle,
    ) -> impl Future<Output = Result<AttemptRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::KeepHandle(keep)]));
        async move { Ok(one(self, by, batch).await?.into_attempt()) }
    }

    /// Ends the running attempt and stores what it brought back.
    fn settle_attempt(
        &self,
        lease: &RunLease,
        settle: SettleAttempt,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::SettleAttempt(settle)]));
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Fills in the meaning of a receipt that was stored without one.
    fn interpret_receipt(
        &self,
        lease: &RunLease,
        call: &CallId,
        settlement: Settlement,
        durability: Durability,
        at: Timestamp,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (
            Author::Owner(lease.clone()),
            Batch::of([Change::InterpretReceipt { call: call.clone(), settlement, durability, at }]),
        );
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Answers a `prepared` call with the receipt of another call of its lineage (relaxed).
    fn deduplicate_call(
        &self,
        lease: &RunLease,
        call: &CallId,
        from: &CallId,
        key: &IdempotencyKey,
        at: Timestamp,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (
            Author::Owner(lease.clone()),
            Batch::of([Change::Deduplicate { call: call.clone(), from: from.clone(), key: key.clone(), at }]),
        );
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Cancels `prepared` calls and closes what was asked about them, in one write (relaxed).
    fn cancel_calls(
        &self,
        lease: &RunLease,
        cancels: Vec<CallCancel>,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::CancelCalls { cancels, at }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// Turns every `running` call of the run that has no receipt, and no handle to go on with, into `unknown` (relaxed) and
    /// returns them: the first act of a recovery, before anything is decided.
    fn mark_lost(
        &self,
        lease: &RunLease,
        why: &str,
        at: Timestamp,
    ) -> impl Future<Output = Result<Vec<CallRecord>, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::MarkLost { why: why.to_owned(), at }]));
        async move { Ok(one(self, by, batch).await?.into_calls()) }
    }

    /// Settles an `unknown` call by evidence or by a person's word (synced), and closes the question it answers.
    fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (
            Author::Owner(lease.clone()),
            Batch::of([Change::ResolveUnknown { call: call.clone(), resolution, question: question.cloned(), at }]),
        );
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Settles a call that a run went on without, after that run has ended (synced), and closes the question it answers. Needs no
    /// lease, since nobody owns the run any more; a run that has not ended refuses, because its owner applies answers.
    fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (
            Author::Command,
            Batch::of([Change::ResolveLate { call: call.clone(), resolution, question: question.clone(), at }]),
        );
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Puts the record of a call right by a person's word, whatever it says (synced): its status, the calls that have its answer, and the
    /// question about it in one write. Needs no lease; a call of a turn that an owner works on refuses.
    fn correct_call(&self, correct: CorrectCall) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Correct(correct)]));
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// The same by whoever owns its run and acts on a person's answer, under the lease (synced).
    fn put_right(
        &self,
        lease: &RunLease,
        correct: CorrectCall,
    ) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (Author::Owner(lease.clone()), Batch::of([Change::Correct(correct)]));
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Stores attempts of a call that are known beside the database alone (synced): what nobody knows the end of is `unknown`. Needs no lease:
    /// no owner can lack what it wrote itself.
    fn recall_call(&self, recall: RecallCall) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        let (by, batch) = (Author::Command, Batch::of([Change::Recall(recall)]));
        async move { Ok(one(self, by, batch).await?.into_call()) }
    }

    /// Notes what a resume did with a call (relaxed).
    fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let (by, batch) =
            (Author::Owner(lease.clone()), Batch::of([Change::NoteReplay { call: call.clone(), status, at }]));
        async move { one(self, by, batch).await.map(drop) }
    }

    /// What a call might repeat whose effect is `scope`.
    fn relations(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
    ) -> impl Future<Output = Result<Relations, StoreError>> + Send {
        async move { Ok(self.around(call, scope, None, 0).await?.relations) }
    }

    /// One call.
    fn call(&self, call: &CallId) -> impl Future<Output = Result<CallRecord, StoreError>> + Send {
        async move { only(self.calls_of(CallsOf::One(call.clone())).await?, "tool_calls", call) }
    }

    /// The calls of a run, by position; of one turn if given.
    fn calls(
        &self,
        run: &RunId,
        turn: Option<u32>,
    ) -> impl Future<Output = Result<Vec<CallRecord>, StoreError>> + Send {
        async move { self.calls_of(CallsOf::Run(run.clone(), turn)).await }
    }

    /// Calls of any run that are `unknown` and not skipped, oldest first.
    fn unknown_calls(&self) -> impl Future<Output = Result<Vec<CallRecord>, StoreError>> + Send {
        async move { self.calls_of(CallsOf::Unknown).await }
    }

    /// The call of the lineage that holds `key`, if any.
    fn key_holder(
        &self,
        root: &RunId,
        key: &IdempotencyKey,
    ) -> impl Future<Output = Result<Option<CallRecord>, StoreError>> + Send {
        async move { Ok(self.calls_of(CallsOf::Holder(root.clone(), key.clone())).await?.pop()) }
    }

    /// The attempts of a call, oldest first.
    fn attempts(&self, call: &CallId) -> impl Future<Output = Result<Vec<AttemptRecord>, StoreError>> + Send {
        async move { Ok(self.trail(call, TrailOf::Changes).await?.attempts) }
    }

    /// The newest receipt of a call.
    fn receipt(&self, call: &CallId) -> impl Future<Output = Result<Option<ReceiptRecord>, StoreError>> + Send {
        async move { Ok(self.trail(call, TrailOf::Receipt).await?.receipt) }
    }

    /// The status changes of a call, oldest first.
    fn events(&self, call: &CallId) -> impl Future<Output = Result<Vec<EventRecord>, StoreError>> + Send {
        async move { Ok(self.trail(call, TrailOf::Changes).await?.events) }
    }
}

impl<T: Store + ?Sized> LedgerStore for T {}
