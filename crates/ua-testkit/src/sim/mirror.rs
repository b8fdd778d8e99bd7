//! What `effects.log` is to a database: a line for each external attempt, which a restored copy does not take back.
//!
//! The check before a run is driven, `forgotten::refuse`, lives above the runner (`ua-host/src/forgotten.rs`, over
//! `SqliteStore::forgotten_attempts`), which the simulation does not run. It is modelled here from its source, in one place, for both
//! stores: a run is refused while the log has an attempt of exactly this run that the database does not have, unless the run was
//! cancelled. What is left out: lines that a death between commit and append loses, and cut lines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ua_core::{CallId, RunId, SideEffectClass};
use ua_store::{Store, StoreError};

use super::locked;

/// The log.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The attempts of each run.
    lines: Mutex<BTreeMap<RunId, BTreeSet<(CallId, u32)>>>,
}

impl Mirror {
    /// Has every attempt that is stored now, as the log has it from the commits.
    pub(super) async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        for run in store.runs(u32::MAX).await? {
            for call in store.calls(&run.run_id, None).await? {
                if call.policy.class != SideEffectClass::External {
                    continue;
                }
                let attempts = store.attempts(&call.call_id).await?;
                let mut lines = locked(&self.lines);
                let of_run = lines.entry(run.run_id.clone()).or_default();
                of_run.extend(attempts.into_iter().map(|attempt| (call.call_id.clone(), attempt.attempt)));
            }
        }
        Ok(())
    }

    /// Attempts of this run that the store does not know.
    pub(super) async fn forgotten(&self, store: &dyn Store, run: &RunId) -> Result<Vec<CallId>, StoreError> {
        let lines = locked(&self.lines).get(run).cloned().unwrap_or_default();
        let mut forgotten = Vec::new();
        for (call, number) in lines {
            let newest = store.attempts(&call).await?.into_iter().map(|attempt| attempt.attempt).max();
            if newest.is_none_or(|newest| newest < number) {
                forgotten.push(call);
            }
        }
        Ok(forgotten)
    }

    /// Every attempt that the store does not know, of whatever run.
    pub(super) async fn all_forgotten(&self, store: &dyn Store) -> Result<BTreeSet<CallId>, StoreError> {
        let runs: Vec<RunId> = locked(&self.lines).keys().cloned().collect();
        let mut forgotten = BTreeSet::new();
        for run in runs {
            forgotten.extend(self.forgotten(store, &run).await?);
        }
        Ok(forgotten)
    }

    /// A person accepts what the log knows about the run until now.
    pub(super) fn accept(&self, run: &RunId) {
        locked(&self.lines).remove(run);
    }
}
