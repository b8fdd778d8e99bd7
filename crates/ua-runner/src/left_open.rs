//! What a run leaves open: whoever deletes it lets go of what keeps that from happening twice.
//!
//! Proved by: the end-to-end tests of `ua runs delete` (`job`, `went_back`), and `ua-sdk`'s tests `let_go`.

use std::collections::BTreeMap;

use ua_core::{CallId, CallStatus, RunId, SideEffectClass, Timestamp};
use ua_store::rules::is_learnt_of_another;
use ua_store::{CallRecord, Forgotten, LedgerStore as _, Store, StoreError, runs_below};

/// What of a run and its sub-agents has no end that is known: their records are what keeps a repeat from being sent.
#[derive(Debug, Default)]
pub struct LeftOpen {
    /// Calls that were sent, and nobody knows what came of them.
    pub in_doubt: Vec<CallRecord>,
    /// What only the tool says failed. The answer is known, and tools answer with errors every day: whoever reads the list decides.
    pub failed_perhaps: Vec<CallRecord>,
    /// What `effects.log` knows and the database does not.
    pub forgotten: Vec<Forgotten>,
    /// When these calls were sent, the last time: their rows say when it was recorded what came of that.
    sent: BTreeMap<CallId, Timestamp>,
}

impl LeftOpen {
    /// What `run` leaves open, which no process drives.
    ///
    /// # Errors
    /// The store, or what lies beside it, cannot be read.
    pub async fn of(store: &dyn Store, run: &RunId) -> Result<Self, StoreError> {
        let below = runs_below(store, run).await?;
        let all: Vec<&RunId> = std::iter::once(run).chain(below.iter().map(|child| &child.run_id)).collect();
        let mut left = Self::default();
        for id in &all {
            let calls = store.calls(id, None).await?;
            // What is in the workspace goes with it.
            let is_outside = |call: &&CallRecord| call.policy.class != SideEffectClass::Local;
            let failed = calls.iter().filter(is_outside).filter(|call| ua_evidence::failed_perhaps(call));
            left.failed_perhaps.extend(failed.cloned());
            left.in_doubt.extend(calls.into_iter().filter(may_have_happened));
        }
        for call in left.in_doubt.iter().chain(&left.failed_perhaps) {
            let attempts = store.attempts(&call.call_id).await?;
            if let Some(last) = attempts.iter().rfind(|attempt| !is_learnt_of_another(attempt)) {
                left.sent.insert(call.call_id.clone(), last.started_at);
            }
        }
        left.forgotten = store.forgotten(run).await?;
        left.forgotten.retain(|known| known.attempt > 0 && all.iter().any(|id| id.as_str() == known.run_id));
        Ok(left)
    }

    /// Whether nothing is left open.
    pub fn is_nothing(&self) -> bool {
        self.in_doubt.is_empty() && self.failed_perhaps.is_empty() && self.forgotten.is_empty()
    }

    /// What may have happened, for whoever decides about it.
    pub fn sentences(&self) -> Vec<String> {
        let of_call = |call: &CallRecord| {
            let CallRecord { name, call_id, attempt, .. } = call;
            let sent = self.sent.get(call_id).map_or_else(String::new, |at| format!(", sent {at}"));
            format!("`{}` (call {call_id}, attempt {attempt}{sent})", name.tool)
        };
        let failed = |call: &CallRecord| format!("{}: its tool says that it failed", of_call(call));
        let failed = self.failed_perhaps.iter().map(failed);
        self.in_doubt.iter().map(of_call).chain(failed).chain(self.forgotten.iter().map(Forgotten::to_string)).collect()
    }
}

/// Whether a call was sent and nobody knows what came of it. No process drives its run.
fn may_have_happened(call: &CallRecord) -> bool {
    matches!(call.status, CallStatus::Unknown | CallStatus::Running) && call.policy.class.has_effect()
}
