//! The loop contract: a turn is committed once and by one driver (Granular Execution PRD §5.1, §5.4, §9).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;
use ua_core::RunStatus;
use ua_runner::{ResumeError, RunError};
use ua_store::{Author, Batch, Change, Committed, RequestStatus, Retry, RowRef, Store, StoreError};
use ua_testkit::{CrashAt, CrashPlan, Crossing, Plan, Writes};

use super::EFFECTS;
use super::scenario::{Answers, Scenario};

/// What goes wrong with commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// Each is made, and its answer lost.
    LoseEveryAnswer,
    /// None is made: the store says that the row changed.
    RefuseAll,
    /// None is made: the disk is full.
    DiskFull,
}

struct Commits {
    trouble: Trouble,
    tries: AtomicU32,
}

impl Commits {
    fn with(trouble: Trouble) -> Arc<Self> {
        Arc::new(Self { trouble, tries: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Writes for Commits {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        if !batch.changes().any(|change| matches!(change, Change::CommitTurn(_))) {
            return inner.commit(by, batch).await;
        }
        self.tries.fetch_add(1, Ordering::SeqCst);
        let unavailable = |retry| StoreError::Unavailable { why: "a test said so".to_owned(), source: None, retry };
        match self.trouble {
            Trouble::LoseEveryAnswer => {
                inner.commit(by, batch).await?;
                Err(unavailable(Retry::Later))
            }
            Trouble::RefuseAll => {
                Err(StoreError::Conflict { row: RowRef::new("runs", "the run"), why: "a test said so".to_owned() })
            }
            Trouble::DiskFull => Err(unavailable(Retry::Never)),
        }
    }
}

fn no_crash() -> Arc<CrashPlan> {
    Arc::new(CrashPlan::new(None))
}

/// Every commit succeeds and no driver learns it: each turn is found committed and skipped, with no second request, call or
/// usage. The turns are numbered 1 to 5 and nothing is committed twice.
#[tokio::test]
async fn test_cas_skip_no_quota_touch() {
    let scenario = Scenario::new();
    let commits = Commits::with(Trouble::LoseEveryAnswer);
    let (_, run) = scenario.drive_with(no_crash(), Some(commits.clone())).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    // Three of them carry what waited for them: these are sent again, refused as written before, and looked for.
    assert_eq!(commits.tries.load(Ordering::SeqCst), 11);
    let records = scenario.records().await;
    // Two more requests brought no reply, as always in this scenario: one never left, one was refused.
    let answered = records.requests.iter().filter(|request| request.status == RequestStatus::Actual);
    assert_eq!(answered.map(|request| request.turn).collect::<Vec<_>>(), [1, 2, 3, 4, 5], "one reply a turn");
    assert_eq!(records.requests.len(), 7, "a skipped turn reserves nothing");
    for effect in EFFECTS {
        assert_eq!(scenario.world.count(effect), 1, "{effect}");
    }
    scenario.check_records("every answer lost").await;
}

/// A commit that is refused for ever is looked at three more times; then the driver gives up instead of spinning, without a
/// second request to the model.
#[tokio::test]
async fn a_commit_that_keeps_being_refused_ends_the_drive() {
    let scenario = Scenario::new();
    let commits = Commits::with(Trouble::RefuseAll);
    let error = scenario.drive_with(no_crash(), Some(commits.clone())).await.unwrap_err();
    assert!(matches!(error, RunError::Resume(ResumeError::CasConflict { turn: 1, .. })), "{error:?}");
    assert_eq!(commits.tries.load(Ordering::SeqCst), 4);
    assert_eq!(scenario.records().await.requests.len(), 1);
}

/// A turn that fails leaves history and turn index as they were and keeps its receipts; the next process finishes it from them.
#[tokio::test]
async fn test_loop_abort_on_failure() {
    let scenario = Scenario::new();
    let error = scenario.drive_with(no_crash(), Some(Commits::with(Trouble::DiskFull))).await.unwrap_err();
    assert!(matches!(error, RunError::Store { .. }), "{error:?}");
    let failed = scenario.records().await;
    assert_eq!((failed.run.turn_index, failed.turns.len(), failed.requests.len()), (0, 1, 1));
    assert_eq!(failed.messages.iter().filter(|m| m.turn <= failed.run.turn_index).count(), 1, "the prompt alone");
    assert_eq!(failed.receipts.len(), 2, "what the reads brought back stays");

    let run = scenario.resume_to_the_end(Answers::Truth).await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    assert_eq!(scenario.records().await.attempts.len(), 7, "no call was sent twice");
    scenario.check_records("a failed commit").await;
}

/// Stops a driver at one crossing until it is told to go on.
struct Pause {
    at: u64,
    crossings: AtomicU64,
    reached: Notify,
    go: Notify,
    where_to: std::sync::Mutex<Option<Crossing>>,
}

#[async_trait]
impl Plan for Pause {
    async fn before(&self, crossing: &Crossing) {
        if self.crossings.fetch_add(1, Ordering::SeqCst) == self.at {
            *self.where_to.lock().unwrap() = Some(crossing.clone());
            self.reached.notify_one();
            self.go.notified().await;
        }
    }

    async fn after(&self, _crossing: &Crossing) {}
}

/// How far the second driver gets before the first goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Second {
    /// To the end of the run, whose status then refuses the first driver too.
    Finishes,
    /// It dies once it has taken the run: only the epoch tells the first driver that the run is not its own any more.
    DiesAfterTheTakeOver,
}

/// A driver is overtaken at every crossing: the second takes the run, the first then goes on with its stale lease and
/// changes nothing. One crossing is left out: a send that was permitted before the take-over is closed by the
/// run's lock file, which no second process gets while the first lives.
#[tokio::test]
async fn two_drivers_on_one_run_make_one_set_of_effects() {
    let (crossings, _) = Scenario::new().run_without_crash().await;
    let mut overtaken = 0;
    let both = [Second::Finishes, Second::DiesAfterTheTakeOver];
    for (at, second) in (0..crossings).flat_map(|at| both.map(|second| (at, second))) {
        let scenario = Scenario::new();
        let pause = Arc::new(Pause {
            at,
            crossings: AtomicU64::new(0),
            reached: Notify::new(),
            go: Notify::new(),
            where_to: std::sync::Mutex::new(None),
        });
        let takes_over = async {
            pause.reached.notified().await;
            let crossing = pause.where_to.lock().unwrap().clone().unwrap();
            let is_early =
                ["store.submit_run", "store.acquire_run", "tool.invoke"].iter().any(|name| crossing.is(name));
            let (takes_over, name) = (!is_early, crossing.words());
            if takes_over && second == Second::Finishes {
                let run = scenario.resume_to_the_end(Answers::Truth).await;
                assert_eq!(run.status, RunStatus::Succeeded, "at {at}, {name}: {:?}", run.status_detail);
            } else if takes_over {
                scenario.crash(CrashAt::After(0)).await;
            }
            pause.go.notify_one();
            takes_over.then_some(name)
        };
        let (first, name) = tokio::join!(scenario.drive_with(pause.clone(), None), takes_over);
        let Some(name) = name else { continue };
        overtaken += 1;
        assert!(first.is_err(), "at {at}, {name}, {second:?}: the stale driver believes that it succeeded");
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "at {at}, {name}, {second:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}, {name}");
        }
        scenario.check_records(&format!("at {at}, {name}")).await;
    }
    assert!(overtaken > 60, "{overtaken}");
}
