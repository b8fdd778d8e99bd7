//! A step goes on only with the setup it was pinned to (Granular Execution PRD §5.2).

use ua_core::{CallStatus, RunStatus, RunStop};
use ua_runner::Conclusion;
use ua_testkit::CrashPlan;

use super::scenario::{Answers, Scenario};
use super::{EFFECTS, crash_points};

/// Wherever the first process died, one with another model asks nothing, sends nothing and says what changed; what was in
/// flight is decided about as far as that goes. With the pinned model the run then ends as if nothing had been in between.
#[tokio::test]
async fn under_another_model_nothing_is_sent_wherever_we_died() {
    let (mut stopped, mut asked) = (0, 0);
    for at in crash_points().await {
        let mut scenario = Scenario::new();
        scenario.crash(at).await;
        if !scenario.has_a_step().await || scenario.records().await.run.status.is_terminal() {
            continue; // nothing is pinned yet, or nothing is left to run
        }
        let (before, deliveries) = (scenario.records().await, scenario.world.deliveries());
        scenario.model = "another";
        let (conclusion, run) = scenario.drive_with(std::sync::Arc::new(CrashPlan::new(None)), None).await.unwrap();
        let Conclusion::Stopped { reason: RunStop::Fingerprint, detail } = conclusion else {
            panic!("{at:?}: {run:?}")
        };
        assert!(detail.contains("model: scripted → another"), "{detail}");
        let after = scenario.records().await;
        assert_eq!(scenario.world.deliveries(), deliveries, "{at:?}");
        assert_eq!(
            (after.requests.len(), after.attempts.len()),
            (before.requests.len(), before.attempts.len()),
            "{at:?}"
        );
        assert_eq!((run.turn_index, after.messages), (before.run.turn_index, before.messages), "{at:?}");
        assert!(after.calls.iter().all(|call| call.status != CallStatus::Running), "{at:?}");
        asked += after.questions.len();
        stopped += 1;

        scenario.model = "scripted";
        let run = scenario.resume_to_the_end(Answers::Truth).await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at:?}");
        }
    }
    assert!(stopped > 40 && asked > 0, "{stopped} stopped, {asked} asked");
}
