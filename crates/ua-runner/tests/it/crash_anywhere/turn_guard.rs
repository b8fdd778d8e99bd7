//! The guard before anything starts: no request leaves and no call is sent while the stored turns are not those that the driver goes
//! on from (Granular Execution PRD §5.1: skip, gap, behind).
//!
//! The store itself is right here, and would take every write. Only what it says about the run is wrong, so whatever is not sent is not
//! sent because the driver looked.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use ua_core::RunStatus;
use ua_runner::{ResumeError, RunError};
use ua_store::RunRecord;
use ua_testkit::{CrashPlan, Crossing, Plan, Writes};

use super::EFFECTS;
use super::scenario::{Answers, Scenario};

/// What the store says about the turn that is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// It is committed.
    Skip,
    /// Turns behind it are committed, too.
    Behind,
    /// A turn before it is missing.
    Gap,
    /// The run has ended.
    Ended,
}

/// What is about to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// The request of the third turn.
    Request,
    /// The second call of the fourth turn, behind an answer that is too large to wait for its start. Where something waits, the write that starts a
    /// call has that as well, and the store looks.
    Calls,
}

impl Before {
    /// Whether the store begins to be wrong behind this crossing, when so many turns are committed.
    fn is_behind(self, crossing: &Crossing, committed: u32) -> bool {
        match self {
            Self::Request => committed == 2,
            Self::Calls => crossing.is_of("tool.invoke", "post_comment"),
        }
    }

    /// The turn that the driver wants then.
    fn wanted(self) -> u32 {
        match self {
            Self::Request => 3,
            Self::Calls => 4,
        }
    }

    fn scenario(self) -> Scenario {
        match self {
            Self::Request => Scenario::new(),
            Self::Calls => Scenario::with_large_results(),
        }
    }

    /// The effect that has not happened then.
    fn next_effect(self) -> &'static str {
        match self {
            Self::Request => "send_email",
            Self::Calls => "notify",
        }
    }
}

/// A store that is wrong about the run for a number of reads.
struct Wrong {
    says: Says,
    before: Before,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    /// Turns that were committed.
    committed: u32,
    /// Whether it has begun to be wrong.
    is_wrong: bool,
    /// Reads that are still to be wrong.
    reads: u32,
    /// What crossed a seam since the first wrong read.
    crossed: Option<Vec<&'static str>>,
}

impl Wrong {
    fn about(says: Says, before: Before, reads: u32) -> Arc<Self> {
        Arc::new(Self { says, before, now: Mutex::new(Now { reads, ..Now::default() }) })
    }

    fn crossed(&self) -> Option<Vec<&'static str>> {
        self.now.lock().unwrap().crossed.clone()
    }
}

#[async_trait]
impl Plan for Wrong {
    async fn before(&self, crossing: &Crossing) {
        if let Some(crossed) = &mut self.now.lock().unwrap().crossed {
            crossed.extend(crossing.names());
        }
    }

    async fn after(&self, crossing: &Crossing) {
        let mut now = self.now.lock().unwrap();
        now.committed += u32::from(crossing.is("store.commit_turn"));
        now.is_wrong |= self.before.is_behind(crossing, now.committed);
    }
}

#[async_trait]
impl Writes for Wrong {
    fn seen(&self, mut run: RunRecord) -> RunRecord {
        let mut now = self.now.lock().unwrap();
        if !now.is_wrong || now.reads == 0 {
            return run;
        }
        now.reads -= 1;
        now.crossed.get_or_insert_default();
        match self.says {
            Says::Skip => run.turn_index += 1,
            Says::Behind => run.turn_index += 2,
            Says::Gap => run.turn_index -= 1,
            Says::Ended => run.status = RunStatus::Succeeded,
        }
        run
    }
}

/// Whether a crossing asks the model or a tool, or gets ready to.
fn starts_something(crossing: &str) -> bool {
    matches!(crossing, "store.reserve_request" | "model.complete" | "store.start_attempt" | "tool.invoke")
}

/// As long as the store says so nothing starts. The driver looks again a few times, gives up instead of spinning, and the run goes on
/// from the right state later, with each effect once.
async fn nothing_starts(says: Says) {
    for before in [Before::Request, Before::Calls] {
        let at = format!("{says:?} before {before:?}");
        let scenario = before.scenario();
        let wrong = Wrong::about(says, before, u32::MAX);
        let error = scenario.drive_with(wrong.clone(), Some(wrong.clone())).await.unwrap_err();
        let fits = match says {
            Says::Skip | Says::Behind => {
                matches!(error, RunError::Resume(ResumeError::Behind { wanted, .. }) if wanted == before.wanted())
            }
            Says::Gap | Says::Ended => matches!(error, RunError::Resume(ResumeError::CorruptState { .. })),
        };
        assert!(fits, "{at}: {error:?}");
        let crossed = wrong.crossed().unwrap();
        assert!(!crossed.iter().any(|name| starts_something(name)), "{at}: {crossed:?}");
        let records = scenario.records().await;
        assert_eq!(records.run.turn_index, before.wanted() - 1, "{at}");
        assert_eq!(scenario.world.count(before.next_effect()), 0, "{at}");
        let asked = records.requests.iter().map(|request| request.turn).max();
        assert_eq!(asked, Some(if before == Before::Request { 2 } else { 4 }), "{at}");

        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect}, {at}");
        }
        scenario.check_records(&at).await;
    }
}

/// A store that is wrong once is read again before anything starts; the same process then goes on where the run stands: no turn is
/// asked for twice and no call is sent twice.
async fn the_driver_goes_on(says: Says) {
    let sums = |records: &ua_store::RunRecords| (records.requests.len(), records.attempts.len(), records.turns.len());
    for before in [Before::Request, Before::Calls] {
        let undisturbed = before.scenario();
        undisturbed.drive_with(Arc::new(CrashPlan::new(None)), None).await.unwrap();
        let expected = sums(&undisturbed.records().await);
        let at = format!("{says:?} before {before:?}");
        let scenario = before.scenario();
        let wrong = Wrong::about(says, before, 1);
        let (_, run) = scenario.drive_with(wrong.clone(), Some(wrong.clone())).await.unwrap();
        assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
        assert!(wrong.crossed().is_some(), "{at}: nobody looked");
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect}, {at}");
        }
        assert_eq!(sums(&scenario.records().await), expected, "{at}");
        scenario.check_records(&at).await;
    }
}

/// Granular Execution PRD §11: a turn that is committed is not executed again, and nothing is appended twice.
#[tokio::test]
async fn test_granular_cas_guard_skip() {
    nothing_starts(Says::Skip).await;
    the_driver_goes_on(Says::Skip).await;
}

/// Granular Execution PRD §11: nothing is appended over a gap, and nothing is written.
#[tokio::test]
async fn test_granular_cas_gap_failure() {
    nothing_starts(Says::Gap).await;
    the_driver_goes_on(Says::Gap).await;
}

#[tokio::test]
async fn nothing_starts_while_the_stored_turn_is_not_the_one_before() {
    nothing_starts(Says::Behind).await;
    nothing_starts(Says::Ended).await;
}

#[tokio::test]
async fn a_driver_that_stood_at_another_turn_takes_the_stored_state_over_and_goes_on() {
    the_driver_goes_on(Says::Behind).await;
}
