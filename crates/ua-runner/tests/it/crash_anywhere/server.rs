//! The database server crashes under a process that lives: what had to be durable is there, what was relaxed is gone, and the process knows
//! more than the database.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ua_core::RunStatus;
use ua_store::{Author, Batch, Committed, Durability, MemStore, Retry, Store, StoreError};
use ua_testkit::{CrashPlan, Writes};

use super::EFFECTS;
use super::scenario::{Answers, Scenario};

/// When it crashes: at this commit, counted from 0, before it is done or before its answer.
type Crash = (u64, bool);

struct Server {
    store: Arc<MemStore>,
    /// What a crash leaves.
    durable: Mutex<MemStore>,
    commits: AtomicU64,
    crash: Option<Crash>,
}

impl Server {
    fn new(store: Arc<MemStore>, crash: Option<Crash>) -> Arc<Self> {
        Arc::new(Self { durable: Mutex::new(store.copied()), store, commits: AtomicU64::new(0), crash })
    }

    fn crashed(&self) -> StoreError {
        self.store.put_back(&self.durable.lock().unwrap());
        StoreError::Unavailable { why: "the server crashed".to_owned(), source: None, retry: Retry::Later }
    }
}

#[async_trait]
impl Writes for Server {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        if self.crash == Some((number, false)) {
            return Err(self.crashed());
        }
        let durability = batch.durability();
        let committed = inner.commit(by, batch).await?;
        if durability == Durability::Synced {
            *self.durable.lock().unwrap() = self.store.copied();
        }
        if self.crash == Some((number, true)) {
            return Err(self.crashed());
        }
        Ok(committed)
    }
}

/// The store's error that ended a drive.
fn cause<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e StoreError> {
    error.downcast_ref().or_else(|| error.source().and_then(cause))
}

#[tokio::test]
async fn a_server_that_crashes_at_any_write_costs_no_effect() {
    let undisturbed = async |scenario: &Scenario, crash| {
        let server = Server::new(scenario.store(), crash);
        let ended = scenario.drive_with(Arc::new(CrashPlan::new(None)), Some(server.clone())).await;
        (ended, server.commits.load(Ordering::SeqCst))
    };
    let (ended, commits) = undisturbed(&Scenario::new(), None).await;
    assert_eq!(ended.unwrap().1.status, RunStatus::Succeeded);
    assert!(commits > 20, "{commits} commits prove nothing");
    let mut noticed = 0;
    // The first two submit the run and take it.
    for at in (2..commits).flat_map(|commit| [(commit, false), (commit, true)]) {
        let scenario = Scenario::new();
        let (ended, _) = undisturbed(&scenario, Some(at)).await;
        if let Err(error) = &ended {
            match cause(error) {
                Some(StoreError::TailLost { .. }) => noticed += 1,
                Some(StoreError::Unavailable { .. }) => {}
                other => panic!("{at:?}: {other:?} of {error:?}"),
            }
        }
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!((run.status, run.turn_index), (RunStatus::Succeeded, 5), "{at:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at:?}");
        }
        scenario.check_invariants(&format!("{at:?}")).await;
    }
    assert!(noticed > 5, "a lost tail was noticed {noticed} times");
}
