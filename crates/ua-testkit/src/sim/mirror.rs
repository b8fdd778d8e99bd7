//! What `effects.log` is to a database: a line for each attempt that is not simply done again, which a restored copy does not take back.
//!
//! The check before a run is driven, `forgotten::refuse`, lives above the runner (`ua-host/src/forgotten.rs`, over
//! `SqliteStore::forgotten_attempts`), which the simulation does not run. It is modelled here from its source, in one place, for both
//! stores: a run is refused while the log has an attempt of its family that the database does not have, unless a person said that the run
//! is to end. What is left out: words of people that put a record right, which nobody says in the simulation, lines that a death between commit and append loses, cut lines, and lines of older versions, which do not
//! say whose family they are of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use ua_core::{CallId, RunId};
use ua_store::{LedgerStore, RunStore, Store, StoreError};

use super::locked;

/// The log.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// The attempts of each run, and the first run of its lineage.
    lines: Mutex<BTreeMap<RunId, Lines>>,
    /// A broken rule: what another run of the family sent counts for nothing.
    looks_at_one_run: bool,
}

#[derive(Debug, Clone)]
struct Lines {
    root: RunId,
    attempts: BTreeSet<(CallId, u32)>,
}

impl Mirror {
    pub(super) fn new(looks_at_one_run: bool) -> Self {
        Self { looks_at_one_run, ..Self::default() }
    }

    /// Has every attempt that is stored now, as the log has it from the commits.
    pub(super) async fn catch_up(&self, store: &dyn Store) -> Result<(), StoreError> {
        for run in store.runs(u32::MAX).await? {
            for call in store.calls(&run.run_id, None).await? {
                if !call.policy.is_kept_outside() {
                    continue;
                }
                let attempts = store.attempts(&call.call_id).await?;
                let mut lines = locked(&self.lines);
                let of_run = lines
                    .entry(run.run_id.clone())
                    .or_insert_with(|| Lines { root: run.root_run_id.clone(), attempts: BTreeSet::new() });
                of_run.attempts.extend(attempts.into_iter().map(|attempt| (call.call_id.clone(), attempt.attempt)));
            }
        }
        Ok(())
    }

    /// Attempts of this run's family that the store does not know.
    pub(super) async fn forgotten(&self, store: &dyn Store, run: &RunId) -> Result<BTreeSet<CallId>, StoreError> {
        let root = store.run(run).await?.root_run_id;
        self.unknown_to(store, |of, lines| if self.looks_at_one_run { of == run } else { lines.root == root }).await
    }

    /// Every attempt that the store does not know, of whatever run.
    pub(super) async fn all_forgotten(&self, store: &dyn Store) -> Result<BTreeSet<CallId>, StoreError> {
        self.unknown_to(store, |_, _| true).await
    }

    async fn unknown_to(
        &self,
        store: &dyn Store,
        is_asked: impl Fn(&RunId, &Lines) -> bool,
    ) -> Result<BTreeSet<CallId>, StoreError> {
        let of_runs: Vec<Lines> = locked(&self.lines)
            .iter()
            .filter(|(run, lines)| is_asked(run, lines))
            .map(|(_, lines)| lines.clone())
            .collect();
        let mut forgotten = BTreeSet::new();
        for (call, number) in of_runs.into_iter().flat_map(|lines| lines.attempts) {
            let newest = store.attempts(&call).await?.into_iter().map(|attempt| attempt.attempt).max();
            if newest.is_none_or(|newest| newest < number) {
                forgotten.insert(call);
            }
        }
        Ok(forgotten)
    }

    /// A person accepts what the log knows about the family of `root` until now; returns its runs.
    pub(super) fn accept(&self, root: &RunId) -> Vec<RunId> {
        let mut accepted = Vec::new();
        locked(&self.lines).retain(|run, lines| {
            let is_of_family = lines.root == *root;
            if is_of_family {
                accepted.push(run.clone());
            }
            !is_of_family
        });
        accepted
    }
}
