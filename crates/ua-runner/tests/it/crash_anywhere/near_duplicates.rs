//! An effect that is asked for in other words and allowed by a person: wherever the process dies, before the question, between the
//! answer and RUNNING, or on the way, it is made once more and no more than that.

use ua_core::{Env, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionStatus};
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::scenario::Scenario;

/// The model words each mail anew whenever it is asked.
const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Report", "body": "Dear {{request}}"}}]},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["A@example.test"], "subject": "Report", "body": "Hello {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "sent {{request}}"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Send the report."}"#;

fn scenario() -> Scenario {
    let world = World::new(["send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys)));
    Scenario::with(world, Env::simulated(11), SCRIPT, JOB, None)
}

/// Resumes to the end and answers what is asked; `at` says where the first process died.
async fn to_the_end(scenario: &Scenario, choice: Choice, at: CrashAt) {
    for _ in 0..4 {
        let run = scenario.resume().await;
        if run.status != RunStatus::WaitingForHuman {
            assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
            return;
        }
        answer(scenario, choice, at).await;
    }
    panic!("{at:?}: the run never ends");
}

async fn answer(scenario: &Scenario, choice: Choice, at: CrashAt) {
    for question in scenario.questions().await {
        assert_eq!(question.kind, QuestionKind::NearDuplicate, "{at:?}: {}", question.text);
        if question.status == QuestionStatus::Open {
            scenario.choose(&question, choice).await;
        }
    }
}

/// The crossings of the life before the question and of the one after the answer.
async fn crash_points() -> (Vec<CrashAt>, Vec<CrashAt>) {
    let scenario = scenario();
    let both = |crossings: u64| (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect();
    let (first, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman, "{:?}", run.status_detail);
    answer(&scenario, Choice::Execute, CrashAt::Before(0)).await;
    let (second, run) = scenario.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    (both(first), both(second))
}

#[tokio::test]
async fn a_repeat_that_a_person_allowed_is_made_once_wherever_we_die() {
    let (before, after) = crash_points().await;
    for at in &before {
        let scenario = scenario();
        scenario.crash(*at).await;
        to_the_end(&scenario, Choice::Execute, *at).await;
        check(&scenario, 2, Choice::Execute, *at).await;
    }
    for (choice, mails) in [(Choice::Execute, 2), (Choice::Skip, 1)] {
        for at in &after {
            let scenario = scenario();
            scenario.resume().await;
            answer(&scenario, choice, *at).await;
            scenario.crash(*at).await;
            to_the_end(&scenario, choice, *at).await;
            check(&scenario, mails, choice, *at).await;
        }
    }
}

async fn check(scenario: &Scenario, mails: usize, choice: Choice, at: CrashAt) {
    assert_eq!(scenario.world.count("send_email"), mails, "{choice:?} at {at:?}");
    // A repeat that was declined ends its turn's later effects.
    assert_eq!(scenario.world.count("notify"), mails - 1, "{choice:?} at {at:?}");
    let questions = scenario.questions().await;
    assert_eq!(questions.len(), 1, "{choice:?} at {at:?}");
    assert_eq!(questions[0].status, QuestionStatus::Closed, "{choice:?} at {at:?}");
}
