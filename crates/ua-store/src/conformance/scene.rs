//! A run in the middle of its work, for promises that need one.

use ua_core::{CallStatus, PlannedCall, RunId};

use super::samples;
use crate::commit::{CallCancel, NewRun};
use crate::record::{CallRecord, RunLease, RunRecords};
use crate::{LedgerStore, RunStore, Store};

/// A run that was submitted and taken, with its first step open.
pub struct Scene<'s> {
    store: &'s dyn Store,
    /// The run's lease.
    pub lease: RunLease,
    /// The name of its step.
    pub step: String,
}

impl std::fmt::Debug for Scene<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scene").field("lease", &self.lease).finish_non_exhaustive()
    }
}

impl<'s> Scene<'s> {
    /// Submits and takes the run `id`, and opens its step.
    pub async fn begin(store: &'s dyn Store, id: &str) -> Self {
        Self::begin_with(store, samples::new_run(id)).await
    }

    /// Submits and takes `run`, and opens its step.
    pub async fn begin_with(store: &'s dyn Store, run: NewRun) -> Self {
        let run_id = store.submit_run(run).await.unwrap().run_id;
        Self::take(store, run_id.as_str()).await
    }

    /// Takes the run `id`, which is there, and opens its step.
    pub async fn take(store: &'s dyn Store, id: &str) -> Self {
        let run_id = samples::run_id(id);
        let (lease, _) = store.acquire_run(&run_id, &samples::owner(100), samples::at(1)).await.unwrap();
        let step = format!("step_of_{run_id}");
        store.open_step(&lease, samples::new_step(&step)).await.unwrap();
        Self { store, lease, step }
    }

    /// A run that was taken before, with this step open.
    pub fn of(store: &'s dyn Store, lease: RunLease, step: &str) -> Self {
        Self { store, lease, step: step.to_owned() }
    }

    /// The run.
    pub fn run_id(&self) -> &RunId {
        &self.lease.run_id
    }

    /// Everything about the run.
    pub async fn records(&self) -> RunRecords {
        self.store.load(self.run_id()).await.unwrap()
    }

    /// Reserves the request for the next turn and records it.
    pub async fn turn(&self, calls: Vec<PlannedCall>) -> u32 {
        let turn = self.store.run(self.run_id()).await.unwrap().turn_index + 1;
        let request = self.store.reserve_request(&self.lease, samples::reservation(turn)).await.unwrap();
        self.store.record_turn(&self.lease, samples::draft(&self.step, turn, request, calls)).await.unwrap();
        turn
    }

    /// Commits the open turn.
    pub async fn commit(&self, turn: u32) {
        let checkpoint = format!("ckpt_{turn}_of_{}", self.run_id());
        self.store.commit_turn(&self.lease, samples::commit(&self.step, turn, &checkpoint)).await.unwrap();
    }

    /// Records one turn of one e-mail and brings that call to `status`, under a key that is its own.
    pub async fn call_that_is(&self, id: &str, status: CallStatus) -> CallRecord {
        self.turn(vec![samples::planned_email(id, 1, 1)]).await;
        self.bring(id, status).await
    }

    /// Brings a `prepared` call to `status`, under a key of its own.
    pub async fn bring(&self, id: &str, status: CallStatus) -> CallRecord {
        let (store, lease, call_id) = (self.store, &self.lease, samples::call_id(id));
        if status == CallStatus::Cancelled {
            store.cancel_calls(lease, vec![cancel(id)], samples::at(6)).await.unwrap();
        } else if status != CallStatus::Prepared {
            store.start_attempt(lease, samples::start(id, 1, id)).await.unwrap();
        }
        match status {
            CallStatus::Succeeded | CallStatus::FailedReported => {
                store.settle_attempt(lease, samples::settle(id, 1, status)).await.unwrap();
            }
            CallStatus::FailedDefinite => {
                store.settle_attempt(lease, samples::not_sent(id, 1)).await.unwrap();
            }
            CallStatus::Unknown => {
                store.settle_attempt(lease, samples::lost(id, 1)).await.unwrap();
            }
            CallStatus::Prepared | CallStatus::Running | CallStatus::Cancelled => {}
        }
        let call = store.call(&call_id).await.unwrap();
        assert_eq!(call.status, status);
        call
    }
}

/// The cancellation of a call.
pub fn cancel(id: &str) -> CallCancel {
    CallCancel {
        call_id: samples::call_id(id),
        resolution: ua_core::Resolution::AfterFailure,
        code: "after_failure".to_owned(),
        message: "not run: an earlier call did not succeed".to_owned(),
        unless_allowed: false,
    }
}
