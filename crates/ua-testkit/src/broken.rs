//! Stores that break one rule on purpose, so that a harness can show that it sees the bug it hunts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ua_core::{CallId, CallStatus};
use ua_store::{CallRecord, RunLease, SettleAttempt, StartAttempt, Store, StoreError};

use crate::seams::LedgerWrites;

/// Writes RUNNING only after the dispatch: what happens when intent and act change places.
pub struct RunningAfterDispatch {
    started: Mutex<HashMap<CallId, StartAttempt>>,
}

impl RunningAfterDispatch {
    /// Wraps the two ledger writes that matter.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { started: Mutex::default() })
    }
}

#[async_trait]
impl LedgerWrites for RunningAfterDispatch {
    async fn start_attempt(
        &self,
        inner: &dyn Store,
        _lease: &RunLease,
        start: StartAttempt,
    ) -> Result<CallRecord, StoreError> {
        let mut call = inner.call(&start.call_id).await?;
        call.status = CallStatus::Running;
        call.attempt = start.attempt;
        call.idempotency_key = Some(start.key.clone());
        call.scope.clone_from(&start.scope);
        self.started.lock().unwrap_or_else(PoisonError::into_inner).insert(start.call_id.clone(), start);
        Ok(call)
    }

    async fn settle_attempt(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        settle: SettleAttempt,
    ) -> Result<CallRecord, StoreError> {
        let late = self.started.lock().unwrap_or_else(PoisonError::into_inner).remove(&settle.call_id);
        if let Some(late) = late {
            inner.start_attempt(lease, late).await?;
        }
        inner.settle_attempt(lease, settle).await
    }
}
