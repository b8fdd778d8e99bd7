//! A store that keeps what was committed to it, so that it can be committed again to another one with nothing around it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ua_core::{BlobRef, CallId, IdempotencyKey, RunId, Scope, Timestamp};
use ua_store::{
    Around, Author, Batch, Blob, CallQuery, CallRecord, CallTrail, CallsOf, Committed, Forgotten, GatewayOf,
    GatewayRecords, Lost, MessageRecord, PastStore, QuestionRecord, QuestionsOf, RunHead, RunQuery, RunRecord,
    RunRecords, RunsOf, Store, StoreError, TrailOf, Turns,
};

/// What was committed, in order.
pub(crate) type Committals = Vec<(Author, Batch)>;

/// A store, and what one run committed to it.
pub(crate) struct Recording {
    pub(crate) inner: Arc<dyn Store>,
    /// With its place in the order in which they were sent: the answers to two that are under way may come in another one.
    committed: Mutex<BTreeMap<u64, (Author, Batch)>>,
    sent: AtomicU64,
}

impl Recording {
    pub(crate) fn of(inner: Arc<dyn Store>) -> Self {
        Self { inner, committed: Mutex::default(), sent: AtomicU64::new(0) }
    }

    pub(crate) fn take(&self) -> Committals {
        let committed = std::mem::take(&mut *self.committed.lock().unwrap_or_else(PoisonError::into_inner));
        committed.into_values().collect()
    }
}

#[async_trait]
impl Store for Recording {
    async fn commit(&self, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let place = self.sent.fetch_add(1, Ordering::Relaxed);
        let done = self.inner.commit(by, batch.clone()).await?;
        // An empty batch asks for the lease and writes nothing; one that is refused is sent again, as another or the same.
        if batch.changes().next().is_some() {
            self.committed.lock().unwrap_or_else(PoisonError::into_inner).insert(place, (by.clone(), batch));
        }
        Ok(done)
    }

    async fn run(&self, run: &RunId) -> Result<RunRecord, StoreError> {
        self.inner.run(run).await
    }

    async fn runs_of(&self, of: RunsOf) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.runs_of(of).await
    }

    async fn find_runs(&self, query: &RunQuery) -> Result<Vec<RunHead>, StoreError> {
        self.inner.find_runs(query).await
    }

    async fn find_calls(&self, query: &CallQuery) -> Result<Vec<CallRecord>, StoreError> {
        self.inner.find_calls(query).await
    }

    async fn load_of(&self, run: &RunId, turns: Turns) -> Result<RunRecords, StoreError> {
        self.inner.load_of(run, turns).await
    }

    async fn history(&self, run: &RunId) -> Result<Vec<MessageRecord>, StoreError> {
        self.inner.history(run).await
    }

    async fn questions_of(&self, of: QuestionsOf) -> Result<Vec<QuestionRecord>, StoreError> {
        self.inner.questions_of(of).await
    }

    async fn calls_of(&self, of: CallsOf) -> Result<Vec<CallRecord>, StoreError> {
        self.inner.calls_of(of).await
    }

    async fn database_id(&self) -> Result<String, StoreError> {
        self.inner.database_id().await
    }

    async fn around(
        &self,
        call: &CallId,
        scope: Option<&Scope>,
        key: Option<&IdempotencyKey>,
        most_effects: u32,
    ) -> Result<Around, StoreError> {
        self.inner.around(call, scope, key, most_effects).await
    }

    async fn trail(&self, call: &CallId, of: TrailOf) -> Result<CallTrail, StoreError> {
        self.inner.trail(call, of).await
    }

    async fn gateway_of(&self, of: GatewayOf) -> Result<GatewayRecords, StoreError> {
        self.inner.gateway_of(of).await
    }

    async fn blob(&self, blob: &BlobRef) -> Result<Blob, StoreError> {
        self.inner.blob(blob).await
    }
}

#[async_trait]
impl PastStore for Recording {
    async fn forgotten(&self, run: &RunId) -> Result<Vec<Forgotten>, StoreError> {
        self.inner.forgotten(run).await
    }

    async fn lost(&self, run: &RunId) -> Result<Vec<Lost>, StoreError> {
        self.inner.lost(run).await
    }

    async fn accept_forgotten(
        &self,
        run: &RunId,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        self.inner.accept_forgotten(run, forgotten, by, at).await
    }

    fn unnoted(&self) -> Option<String> {
        self.inner.unnoted()
    }
}
