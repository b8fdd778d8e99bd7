//! The seam of the store: every write crosses it, and a plan may end the process before or after, refuse the write, or lose its answer.
//! No store knows of this.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, PlannedCall, Position, RunId, Scope, Timestamp};

use crate::archive_store::{CallQuery, RunHead, RunQuery};
use crate::blob_store::Blob;
use crate::change::{Author, Batch, Change, Committed};
use crate::error::{Retry, StoreError};
use crate::forgotten::{Forgotten, Lost};
use crate::gateway::{GatewayOf, GatewayRecords};
use crate::ledger_store::LedgerStore;
use crate::record::{CallRecord, MessageRecord, QuestionRecord, RunRecord, RunRecords};
use crate::relations::Around;
use crate::store::{CallTrail, CallsOf, PastStore, QuestionsOf, RunsOf, Store, TrailOf, Turns};

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
            Self::DiskFull => Made::No(unavailable("the disk is full", Retry::WithRoom)),
            Self::AnswerLost => Made::AndLost(unavailable("the answer was lost", Retry::Later)),
        }
    }
}

/// One crossing of a seam: what is done there, several things when a batch of changes is written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crossing {
    /// `store.<change>`, `tool.invoke`, `tool.ask` or `model.complete`, each with the tool concerned, where there is one.
    pub acts: Vec<(&'static str, Option<String>)>,
    /// Where the call concerned stands in its run: what tells equal calls apart that run together.
    pub position: Option<Position>,
}

impl Crossing {
    /// A crossing at which one thing is done.
    pub fn of(name: &'static str, tool: Option<String>) -> Self {
        Self { acts: vec![(name, tool)], position: None }
    }

    /// The same, about the call at this place.
    #[must_use]
    pub fn about(mut self, position: Option<Position>) -> Self {
        self.position = position;
        self
    }

    /// Whether one of its acts is called so.
    pub fn is(&self, name: &str) -> bool {
        self.acts.iter().any(|(own, _)| *own == name)
    }

    /// Whether one of its acts is called so and concerns this tool.
    pub fn is_of(&self, name: &str, tool: &str) -> bool {
        self.acts.iter().any(|(own, its)| *own == name && its.as_deref() == Some(tool))
    }

    /// What its acts are called.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.acts.iter().map(|(name, _)| *name)
    }

    /// The tools concerned.
    pub fn tools(&self) -> impl Iterator<Item = &str> {
        self.acts.iter().filter_map(|(_, tool)| tool.as_deref())
    }

    /// What it is called in a trace.
    pub fn words(&self) -> String {
        let act = |(name, tool): &(&'static str, Option<String>)| match tool {
            Some(tool) => format!("{name} {tool}"),
            None => (*name).to_owned(),
        };
        self.acts.iter().map(act).collect::<Vec<_>>().join(" + ")
    }
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
    /// Just before something is read: others may have written since whatever was read last.
    async fn before_read(&self) {}
}

/// Nothing happens at a crossing: for a seam whose writes are replaced.
#[derive(Debug)]
pub struct Undisturbed;

#[async_trait]
impl Plan for Undisturbed {
    async fn before(&self, _crossing: &Crossing) {}

    async fn after(&self, _crossing: &Crossing) {}
}

/// What is written, and what the run's row says, replaceable so that a test can break a rule on purpose.
#[async_trait]
pub trait Writes: Send + Sync {
    /// What [`Store::run`] says; the row itself unless the rule is about what a driver does with a wrong one.
    fn seen(&self, run: RunRecord) -> RunRecord {
        run
    }
    /// What [`Store::blob`] says.
    fn seen_blob(&self, blob: Blob) -> Blob {
        blob
    }
    /// In place of [`Store::commit`].
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        inner.commit(by, batch).await
    }
    /// In place of [`Store::around`].
    async fn around(
        &self,
        inner: &dyn Store,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        inner.around(call, scope, key, most_effects).await
    }
    /// In place of [`Store::runs_of`].
    async fn runs_of(&self, inner: &dyn Store, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        inner.runs_of(of).await
    }
    /// In place of [`Store::calls_of`].
    async fn calls_of(&self, inner: &dyn Store, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        inner.calls_of(of).await
    }
}

/// The writes as they are.
struct Faithful;

impl Writes for Faithful {}

/// A store with a plan around it.
pub struct StoreSeam<'s> {
    inner: Inner<'s>,
    plan: Arc<dyn Plan>,
    writes: Arc<dyn Writes>,
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

    /// The same, with writes replaced.
    #[must_use]
    pub fn with_writes(mut self, writes: Arc<dyn Writes>) -> Self {
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

    /// The store, for something that is read in it now.
    async fn read(&self) -> &dyn Store {
        self.plan.before_read().await;
        self.inner()
    }

    /// The same author, under whatever epoch the run has when nobody is fenced.
    async fn held(&self, by: &Author) -> Author {
        let mut by = by.clone();
        if self.ignores_epochs
            && let Author::Owner(lease) = &mut by
            && let Ok(run) = self.inner().run(&lease.run_id).await
        {
            lease.epoch = run.lease_epoch;
            if let Some(owner) = run.owner {
                lease.id = owner.trace;
            }
        }
        by
    }

    /// What a batch crosses the seam as. A sign of life is no write that anybody waits for, and a look at the lease is none at all.
    async fn crossing_of(&self, batch: &Batch) -> Option<Crossing> {
        if batch.changes().all(|change| matches!(change, Change::NoteAlive { .. })) {
            return None;
        }
        let planned: Vec<&PlannedCall> = batch.changes().flat_map(Change::plans).collect();
        let mut acts = Vec::new();
        let mut position = None;
        for change in batch.changes() {
            let call = match change.call() {
                None => None,
                // A call that the same batch plans is not stored yet.
                Some(call) => match planned.iter().find(|planned| planned.call_id == *call) {
                    Some(planned) => Some((planned.name.tool.clone(), planned.position)),
                    None => self.inner().call(call).await.ok().map(|record| (record.name.tool, record.position)),
                },
            };
            position = position.or(call.as_ref().map(|(_, position)| *position));
            acts.push((change.name(), call.map(|(tool, _)| tool)));
        }
        Some(Crossing { acts, position })
    }
}

#[async_trait]
impl Store for StoreSeam<'_> {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let by = self.held(by).await;
        let Some(crossing) = self.crossing_of(&batch).await else {
            return self.inner().commit(&by, batch).await;
        };
        self.plan.before(&crossing).await;
        let made = self.plan.comes_to(&crossing).made();
        if let Made::No(error) = made {
            return Err(error);
        }
        let written = self.writes.commit(self.inner(), &by, batch).await;
        self.plan.after(&crossing).await;
        match made {
            Made::AndLost(error) => written.and(Err(error)),
            Made::Yes | Made::No(_) => written,
        }
    }
    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.read().await.run(run).await.map(|row| self.writes.seen(row))
    }
    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.writes.runs_of(self.read().await, of).await
    }
    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.read().await.find_runs(query).await
    }
    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.read().await.find_calls(query).await
    }
    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.read().await.load_of(run, turns).await
    }
    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.read().await.history(run).await
    }
    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.read().await.questions_of(of).await
    }
    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.writes.calls_of(self.read().await, of).await
    }
    async fn database_id(&self) -> Result<String, StoreError> {
        self.read().await.database_id().await
    }
    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.writes.around(self.read().await, call, scope, key, most_effects).await
    }
    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.read().await.trail(call, of).await
    }
    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.read().await.gateway_of(of).await
    }
    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.read().await.blob(blob).await.map(|found| self.writes.seen_blob(found))
    }
}

#[async_trait]
impl PastStore for StoreSeam<'_> {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.inner().forgotten(run).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        self.inner().lost(run).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.inner().accept_forgotten(run, forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        self.inner().unnoted()
    }
}
