//! The seam of the store: every write crosses it, and a plan may end the process before or after, refuse the write, or lose its answer.
//! No store knows of this.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, Message, QuestionId, RunId, Scope, Settlement, Timestamp, Usage};

use crate::archive_store::{ArchiveStore, CallQuery, DeletedRun, RunDeletion, RunHead, RunQuery};
use crate::blob_store::{Blob, BlobPrune, BlobPruned};
use crate::commit::{
    CallCancel, CorrectCall, KeepHandle, NewAnswer, NewCheckpoint, NewFork, NewQuestion, NewRun, NewStep, RequestEnd,
    RequestReservation, RunEnd, SettleAttempt, StartAttempt, StepEnd, StepEntry, TurnCommit, TurnDraft,
    UnknownResolution,
};
use crate::error::{Retry, StoreError};
use crate::overrides::{NewOverride, OverrideRecord};
use crate::record::{
    AttemptRecord, CallRecord, EventRecord, MessageRecord, OwnerStamp, QuestionRecord, ReceiptRecord, ReplayStatus,
    RequestId, RunLease, RunRecord, RunRecords, StepRecord,
};
use crate::relations::Relations;
use crate::{BlobStore, Durability, LedgerStore, RunStore, Store};

/// An enum whose members are listed once, with the words they are called by.
#[macro_export]
macro_rules! outcomes {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $member:ident = $words:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $member,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$member),+];

            /// What it is called, on a command line and in a trace.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$member => $words,)+ }
            }

            /// The one of this name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.name() == name)
            }
        }
    };
}

outcomes! {
    /// What can come of a write to the store.
    StoreOutcome {
        /// It is committed, and the writer knows.
        Done = "done",
        /// Another process holds the database; nothing was written, and the next write finds it free.
        Busy = "busy",
        /// Another process holds the database for twenty seconds; nothing is written meanwhile, whoever tries.
        BusyForLong = "busy-for-long",
        /// The disk is full; nothing was written.
        DiskFull = "disk-full",
        /// It was committed, and the writer never learns it.
        AnswerLost = "answer-lost",
        /// Later the database goes back to a copy that was made before this write, while the world and `effects.log` do not.
        Forgotten = "forgotten",
    }
}

/// Whether a write that comes to this is made.
enum Made {
    Yes,
    /// And the writer is told that it was not.
    AndLost(StoreError),
    No(StoreError),
}

fn unavailable(why: &str, retry: Retry) -> StoreError {
    StoreError::Unavailable { why: why.to_owned(), source: None, retry }
}

impl StoreOutcome {
    fn made(self) -> Made {
        match self {
            // What a restored backup forgets was committed, and its writer knew: the seam has nothing to do.
            Self::Done | Self::Forgotten => Made::Yes,
            Self::Busy | Self::BusyForLong => Made::No(unavailable("it is locked by another process", Retry::Later)),
            Self::DiskFull => Made::No(unavailable("the disk is full", Retry::Never)),
            Self::AnswerLost => Made::AndLost(unavailable("the answer was lost", Retry::Later)),
        }
    }
}

/// One crossing of a seam.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crossing {
    /// `store.<write>`, `tool.invoke`, `tool.ask` or `model.complete`.
    pub name: &'static str,
    /// The tool concerned, where there is one.
    pub tool: Option<String>,
}

/// Decides what happens at a crossing. Either method may never return.
#[async_trait]
pub trait Plan: Send + Sync {
    /// Just before the effect.
    async fn before(&self, crossing: &Crossing);
    /// Just after it, before anybody learns of it.
    async fn after(&self, crossing: &Crossing);
    /// What comes of this crossing of the store, asked right after [`before`](Self::before) returned. Crossings of the other seams have
    /// outcomes of their own, inside the world.
    fn comes_to(&self, _crossing: &Crossing) -> StoreOutcome {
        StoreOutcome::Done
    }
}

/// What is written about calls, the commit of a turn, and what the run's row says, replaceable so that a test can break a rule on
/// purpose.
#[async_trait]
pub trait LedgerWrites: Send + Sync {
    /// What [`RunStore::record_turn`] is to store; the draft itself unless the rule is about plans.
    fn plan(&self, draft: TurnDraft) -> TurnDraft {
        draft
    }
    /// What [`RunStore::run`] says; the row itself unless the rule is about what a driver does with a wrong one.
    fn seen(&self, run: RunRecord) -> RunRecord {
        run
    }
    /// In place of [`LedgerStore::start_attempt`].
    async fn start_attempt(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        start: StartAttempt,
    ) -> Result<CallRecord, StoreError> {
        inner.start_attempt(lease, start).await
    }
    /// In place of [`LedgerStore::settle_attempt`].
    async fn settle_attempt(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        settle: SettleAttempt,
    ) -> Result<CallRecord, StoreError> {
        inner.settle_attempt(lease, settle).await
    }
    /// In place of [`RunStore::commit_turn`].
    async fn commit_turn(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        commit: TurnCommit,
    ) -> Result<RunRecord, StoreError> {
        inner.commit_turn(lease, commit).await
    }
}

/// The writes as they are.
struct Faithful;

impl LedgerWrites for Faithful {}

/// A store with a plan around it.
pub struct StoreSeam<'s> {
    inner: Inner<'s>,
    plan: Arc<dyn Plan>,
    writes: Arc<dyn LedgerWrites>,
    ignores_epochs: bool,
}

enum Inner<'s> {
    Shared(Arc<dyn Store>),
    Borrowed(&'s dyn Store),
}

impl<'s> StoreSeam<'s> {
    /// Wraps `store`.
    pub fn new(store: Arc<dyn Store>, plan: Arc<dyn Plan>) -> Self {
        Self::around(Inner::Shared(store), plan)
    }

    /// Wraps a store that somebody else keeps.
    pub fn borrowing(store: &'s dyn Store, plan: Arc<dyn Plan>) -> Self {
        Self::around(Inner::Borrowed(store), plan)
    }

    fn around(inner: Inner<'s>, plan: Arc<dyn Plan>) -> Self {
        Self { inner, plan, writes: Arc::new(Faithful), ignores_epochs: false }
    }

    /// The same, with the two writes around a dispatch replaced.
    #[must_use]
    pub fn with_writes(mut self, writes: Arc<dyn LedgerWrites>) -> Self {
        self.writes = writes;
        self
    }

    /// The same, with every write under whatever epoch the run has: a store that fences nobody. For tests that must see it.
    #[must_use]
    pub fn ignoring_epochs(mut self) -> Self {
        self.ignores_epochs = true;
        self
    }

    fn inner(&self) -> &dyn Store {
        match &self.inner {
            Inner::Shared(store) => store.as_ref(),
            Inner::Borrowed(store) => *store,
        }
    }

    async fn cross<T>(
        &self,
        name: &'static str,
        tool: Option<String>,
        write: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let crossing = Crossing { name, tool };
        self.plan.before(&crossing).await;
        let made = self.plan.comes_to(&crossing).made();
        if let Made::No(error) = made {
            return Err(error);
        }
        let written = write.await;
        self.plan.after(&crossing).await;
        match made {
            Made::AndLost(error) => written.and(Err(error)),
            Made::Yes | Made::No(_) => written,
        }
    }

    /// The lease that a write is made under.
    async fn held(&self, lease: &RunLease) -> RunLease {
        let mut lease = lease.clone();
        if self.ignores_epochs
            && let Ok(run) = self.inner().run(&lease.run_id).await
        {
            lease.epoch = run.lease_epoch;
        }
        lease
    }

    async fn tool_of(&self, call: &CallId) -> Option<String> {
        self.inner().call(call).await.ok().map(|record| record.name.tool)
    }
}

#[async_trait]
impl RunStore for StoreSeam<'_> {
    async fn submit_run(&self, run: NewRun) -> Result<RunRecord, StoreError> {
        self.cross("store.submit_run", None, self.inner().submit_run(run)).await
    }
    async fn submit_again(&self, run: NewRun, seen: &RunId) -> Result<RunRecord, StoreError> {
        self.cross("store.submit_again", None, self.inner().submit_again(run, seen)).await
    }
    async fn fork_run(&self, fork: NewFork) -> Result<RunRecord, StoreError> {
        self.cross("store.fork_run", None, self.inner().fork_run(fork)).await
    }
    async fn insert_answer(&self, answer: NewAnswer) -> Result<QuestionRecord, StoreError> {
        self.cross("store.insert_answer", None, self.inner().insert_answer(answer)).await
    }
    async fn insert_override(&self, change: NewOverride) -> Result<OverrideRecord, StoreError> {
        self.cross("store.insert_override", None, self.inner().insert_override(change)).await
    }
    async fn request_cancel(&self, run: &RunId, reason: &str, at: Timestamp) -> Result<RunRecord, StoreError> {
        self.cross("store.request_cancel", None, self.inner().request_cancel(run, reason, at)).await
    }
    async fn acquire_run(
        &self,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        self.cross("store.acquire_run", None, self.inner().acquire_run(run, owner, at)).await
    }
    async fn acquire_task_run(
        &self,
        above: &RunLease,
        run: &RunId,
        owner: &OwnerStamp,
        at: Timestamp,
    ) -> Result<(RunLease, RunRecord), StoreError> {
        let above = self.held(above).await;
        self.cross("store.acquire_run", None, self.inner().acquire_task_run(&above, run, owner, at)).await
    }
    async fn note_alive(&self, lease: &RunLease, suspended: Duration, at: Timestamp) -> Result<(), StoreError> {
        self.inner().note_alive(&self.held(lease).await, suspended, at).await
    }
    async fn check_lease(&self, lease: &RunLease) -> Result<(), StoreError> {
        self.inner().check_lease(&self.held(lease).await).await
    }
    async fn end_run(&self, lease: &RunLease, end: RunEnd) -> Result<RunRecord, StoreError> {
        self.cross("store.end_run", None, self.inner().end_run(&self.held(lease).await, end)).await
    }
    async fn open_step(&self, lease: &RunLease, step: NewStep) -> Result<StepRecord, StoreError> {
        self.cross("store.open_step", None, self.inner().open_step(&self.held(lease).await, step)).await
    }
    async fn enter_step(&self, lease: &RunLease, entry: StepEntry) -> Result<StepRecord, StoreError> {
        self.cross("store.enter_step", None, self.inner().enter_step(&self.held(lease).await, entry)).await
    }
    async fn close_step(&self, lease: &RunLease, end: StepEnd) -> Result<StepRecord, StoreError> {
        self.cross("store.close_step", None, self.inner().close_step(&self.held(lease).await, end)).await
    }
    async fn reserve_request(
        &self,
        lease: &RunLease,
        reservation: RequestReservation,
    ) -> Result<RequestId, StoreError> {
        self.cross("store.reserve_request", None, self.inner().reserve_request(&self.held(lease).await, reservation))
            .await
    }
    async fn close_request(
        &self,
        lease: &RunLease,
        request: RequestId,
        end: RequestEnd,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.cross("store.close_request", None, self.inner().close_request(&self.held(lease).await, request, end, at))
            .await
    }
    async fn note_response(&self, lease: &RunLease, request: RequestId, response_id: &str) -> Result<(), StoreError> {
        let lease = self.held(lease).await;
        self.cross("store.note_response", None, self.inner().note_response(&lease, request, response_id)).await
    }
    async fn note_usage(&self, lease: &RunLease, request: RequestId, heard: Usage) -> Result<(), StoreError> {
        let lease = self.held(lease).await;
        self.cross("store.note_usage", None, self.inner().note_usage(&lease, request, heard)).await
    }
    async fn close_lost_requests(&self, lease: &RunLease, at: Timestamp) -> Result<u32, StoreError> {
        self.cross("store.close_lost_requests", None, self.inner().close_lost_requests(&self.held(lease).await, at))
            .await
    }
    async fn record_turn(&self, lease: &RunLease, draft: TurnDraft) -> Result<(), StoreError> {
        let draft = self.writes.plan(draft);
        self.cross("store.record_turn", None, self.inner().record_turn(&self.held(lease).await, draft)).await
    }
    async fn commit_turn(&self, lease: &RunLease, commit: TurnCommit) -> Result<RunRecord, StoreError> {
        self.cross("store.commit_turn", None, self.writes.commit_turn(self.inner(), &self.held(lease).await, commit))
            .await
    }
    async fn append_messages(&self, lease: &RunLease, messages: Vec<Message>, at: Timestamp) -> Result<(), StoreError> {
        self.cross("store.append_messages", None, self.inner().append_messages(&self.held(lease).await, messages, at))
            .await
    }
    async fn save_checkpoint(&self, lease: &RunLease, checkpoint: NewCheckpoint) -> Result<(), StoreError> {
        self.cross("store.save_checkpoint", None, self.inner().save_checkpoint(&self.held(lease).await, checkpoint))
            .await
    }
    async fn raise_question(&self, lease: &RunLease, question: NewQuestion) -> Result<QuestionRecord, StoreError> {
        self.cross("store.raise_question", None, self.inner().raise_question(&self.held(lease).await, question)).await
    }
    async fn close_question(&self, lease: &RunLease, question: &QuestionId, at: Timestamp) -> Result<(), StoreError> {
        self.cross("store.close_question", None, self.inner().close_question(&self.held(lease).await, question, at))
            .await
    }
    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.inner().run(run).await.map(|row| self.writes.seen(row))
    }
    async fn runs(&self, limit: u32) -> Result<Vec<RunRecord>, StoreError> {
        self.inner().runs(limit).await
    }
    async fn run_by_job_key(&self, job_key: &str) -> Result<Option<RunRecord>, StoreError> {
        self.inner().run_by_job_key(job_key).await
    }
    async fn children(&self, run: &RunId) -> Result<Vec<RunRecord>, StoreError> {
        self.inner().children(run).await
    }
    async fn load(&self, run: &RunId) -> Result<RunRecords, StoreError> {
        self.inner().load(run).await
    }
    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.inner().history(run).await
    }
    async fn overrides(&self, run: &RunId) -> Result<Vec<OverrideRecord>, StoreError> {
        self.inner().overrides(run).await
    }
    async fn question(&self, question: &QuestionId) -> Result<QuestionRecord, StoreError> {
        self.inner().question(question).await
    }
    async fn open_questions(&self, run: Option<&RunId>) -> Result<Vec<QuestionRecord>, StoreError> {
        self.inner().open_questions(run).await
    }
}

#[async_trait]
impl LedgerStore for StoreSeam<'_> {
    async fn start_attempt(&self, lease: &RunLease, start: StartAttempt) -> Result<CallRecord, StoreError> {
        let tool = self.tool_of(&start.call_id).await;
        self.cross("store.start_attempt", tool, self.writes.start_attempt(self.inner(), &self.held(lease).await, start))
            .await
    }
    async fn keep_handle(&self, lease: &RunLease, keep: KeepHandle) -> Result<AttemptRecord, StoreError> {
        let tool = self.tool_of(&keep.call_id).await;
        self.cross("store.keep_handle", tool, self.inner().keep_handle(&self.held(lease).await, keep)).await
    }
    async fn settle_attempt(&self, lease: &RunLease, settle: SettleAttempt) -> Result<CallRecord, StoreError> {
        let tool = self.tool_of(&settle.call_id).await;
        self.cross(
            "store.settle_attempt",
            tool,
            self.writes.settle_attempt(self.inner(), &self.held(lease).await, settle),
        )
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
        let tool = self.tool_of(call).await;
        self.cross(
            "store.interpret_receipt",
            tool,
            self.inner().interpret_receipt(&self.held(lease).await, call, settlement, durability, at),
        )
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
        let tool = self.tool_of(call).await;
        self.cross(
            "store.deduplicate_call",
            tool,
            self.inner().deduplicate_call(&self.held(lease).await, call, from, key, at),
        )
        .await
    }
    async fn cancel_calls(&self, lease: &RunLease, cancels: Vec<CallCancel>, at: Timestamp) -> Result<(), StoreError> {
        self.cross("store.cancel_calls", None, self.inner().cancel_calls(&self.held(lease).await, cancels, at)).await
    }
    async fn mark_lost(&self, lease: &RunLease, why: &str, at: Timestamp) -> Result<Vec<CallRecord>, StoreError> {
        self.cross("store.mark_lost", None, self.inner().mark_lost(&self.held(lease).await, why, at)).await
    }
    async fn resolve_unknown(
        &self,
        lease: &RunLease,
        call: &CallId,
        resolution: UnknownResolution,
        question: Option<&QuestionId>,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let tool = self.tool_of(call).await;
        self.cross(
            "store.resolve_unknown",
            tool,
            self.inner().resolve_unknown(&self.held(lease).await, call, resolution, question, at),
        )
        .await
    }
    async fn resolve_late(
        &self,
        call: &CallId,
        resolution: UnknownResolution,
        question: &QuestionId,
        at: Timestamp,
    ) -> Result<CallRecord, StoreError> {
        let tool = self.tool_of(call).await;
        self.cross("store.resolve_late", tool, self.inner().resolve_late(call, resolution, question, at)).await
    }
    async fn correct_call(&self, correct: CorrectCall) -> Result<CallRecord, StoreError> {
        let tool = self.tool_of(&correct.call_id).await;
        self.cross("store.correct_call", tool, self.inner().correct_call(correct)).await
    }
    async fn note_replay(
        &self,
        lease: &RunLease,
        call: &CallId,
        status: ReplayStatus,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let tool = self.tool_of(call).await;
        self.cross("store.note_replay", tool, self.inner().note_replay(&self.held(lease).await, call, status, at)).await
    }
    async fn call(&self, call: &CallId) -> Result<CallRecord, StoreError> {
        self.inner().call(call).await
    }
    async fn calls(&self, run: &RunId, turn: Option<u32>) -> Result<Vec<CallRecord>, StoreError> {
        self.inner().calls(run, turn).await
    }
    async fn unknown_calls(&self) -> Result<Vec<CallRecord>, StoreError> {
        self.inner().unknown_calls().await
    }
    async fn key_holder(&self, root: &RunId, key: &IdempotencyKey) -> Result<Option<CallRecord>, StoreError> {
        self.inner().key_holder(root, key).await
    }
    async fn relations(&self, call: &CallId, scope: Option<&Scope>) -> Result<Relations, StoreError> {
        self.inner().relations(call, scope).await
    }
    async fn receipt(&self, call: &CallId) -> Result<Option<ReceiptRecord>, StoreError> {
        self.inner().receipt(call).await
    }
    async fn attempts(&self, call: &CallId) -> Result<Vec<AttemptRecord>, StoreError> {
        self.inner().attempts(call).await
    }
    async fn events(&self, call: &CallId) -> Result<Vec<EventRecord>, StoreError> {
        self.inner().events(call).await
    }
}

#[async_trait]
impl BlobStore for StoreSeam<'_> {
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.inner().blob(blob).await
    }
    async fn prune_blobs(&self, prune: BlobPrune) -> Result<BlobPruned, StoreError> {
        self.cross("store.prune_blobs", None, self.inner().prune_blobs(prune)).await
    }
}

#[async_trait]
impl ArchiveStore for StoreSeam<'_> {
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.inner().find_runs(query).await
    }
    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.inner().find_calls(query).await
    }
    async fn load_turns(&self, run: &RunId, first: u32, last: u32) -> Result<RunRecords, StoreError> {
        self.inner().load_turns(run, first, last).await
    }
    async fn delete_run(&self, deletion: &RunDeletion) -> Result<DeletedRun, StoreError> {
        self.cross("store.delete_run", None, self.inner().delete_run(deletion)).await
    }
}
