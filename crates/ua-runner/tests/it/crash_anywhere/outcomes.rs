//! Whatever a send comes to, alone or after one that was lost, and wherever the process dies around it: the effect is there once at
//! most, and nobody is told that it is not there when it is.

use ua_core::{CallStatus, Env, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionStatus};
use ua_testkit::{CrashAt, Honours, ToolOutcome, World, foreign_tool};

use super::Scenario;

const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done."}}]},
  {"tools": [{"name": "mcp__board__pin", "input": {"text": "Done."}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Post it, and pin it."}"#;

const POLICY: &str = r#"
[[rule]]
id = "pin"
server = "board"
name = "pin"
side_effect_class = "external"
key_channel = "meta"
"#;

/// Two tools: one takes no key, and one does.
const OPAQUE: &str = "post_comment";
const KEYED: &str = "pin";

fn scenario(sends: &[(&str, ToolOutcome)]) -> Scenario {
    let tools = [(foreign_tool("forum", OPAQUE), Honours::Nothing), (foreign_tool("board", KEYED), Honours::Keys)];
    let scenario = Scenario::with(World::new(tools), Env::simulated(42), SCRIPT, JOB, Some(POLICY));
    for (tool, outcome) in sends {
        scenario.world.next(tool, *outcome);
    }
    scenario
}

fn played() -> impl Iterator<Item = ToolOutcome> {
    ToolOutcome::all().filter(|outcome| World::cannot_play(*outcome).is_none())
}

/// Resumes to the end; a person looks outside, and answers what a tool asks for.
async fn finish(scenario: &Scenario, at: &str) {
    for _ in 0..12 {
        let run = scenario.resume().await;
        if run.status.is_terminal() {
            return;
        }
        for question in scenario.questions().await {
            if question.status != QuestionStatus::Open {
                continue;
            }
            let calls = scenario.calls().await;
            let call = calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref());
            let is_there = call.is_some_and(|call| scenario.world.count(&call.name.tool) > 0);
            match question.kind {
                QuestionKind::Elicitation => scenario.say(&question, Choice::Continue, r#"{"size": 3}"#).await,
                QuestionKind::AuthFailure => scenario.choose(&question, Choice::Skip).await,
                QuestionKind::UnknownOutcome if is_there => scenario.choose(&question, Choice::Happened).await,
                QuestionKind::UnknownOutcome | QuestionKind::Approval => {
                    scenario.choose(&question, Choice::Execute).await;
                }
                QuestionKind::NearDuplicate
                | QuestionKind::RepeatedFailures
                | QuestionKind::MissingEvidence
                | QuestionKind::OrphanAlive
                | QuestionKind::CrashLoop
                | QuestionKind::AskUser
                | QuestionKind::AmbiguousRecipient => panic!("{at}: nobody should ask {:?}", question.kind),
            }
        }
    }
    panic!("{at}: the run never ends");
}

/// What is wrong at the end, by what the world counted.
async fn wrong(scenario: &Scenario) -> Vec<String> {
    let mut wrong = Vec::new();
    for tool in [OPAQUE, KEYED] {
        let times = scenario.world.count(tool);
        if times > 1 {
            wrong.push(format!("{tool} happened {times} times"));
        }
        for call in scenario.calls().await.into_iter().filter(|call| call.name.tool == tool) {
            let denies =
                matches!(call.status, CallStatus::FailedDefinite | CallStatus::Cancelled | CallStatus::Prepared);
            if times > 0 && denies {
                wrong.push(format!("{tool} happened, and its call is {}", call.status));
            }
        }
    }
    wrong
}

/// Dies at each point of a run whose sends come to this, and finishes; what is wrong afterwards.
async fn everywhere(sends: &[(&str, ToolOutcome)]) -> Vec<String> {
    let whole = scenario(sends);
    let (crossings, _) = whole.run_without_crash().await;
    let mut found = Vec::new();
    // Each side of each second crossing: the neighbours are told in `main.rs`.
    for at in (0..crossings).map(|n| if n.is_multiple_of(2) { CrashAt::Before(n) } else { CrashAt::After(n) }) {
        let scenario = scenario(sends);
        scenario.crash(at).await;
        let at = format!("{sends:?}, {at:?}");
        finish(&scenario, &at).await;
        // What is broken as it is known to be is found by its name, like what the world counted.
        let (known, broken): (Vec<_>, Vec<_>) =
            scenario.broken().await.into_iter().partition(|broken| broken.known().is_some());
        assert_eq!(broken, [], "{at}");
        found.extend(known.into_iter().map(|known| format!("{at}: the records break {known}")));
        found.extend(wrong(&scenario).await.into_iter().map(|words| format!("{at}: {words}")));
    }
    found
}

#[tokio::test]
async fn an_effect_happens_once_at_most_whatever_its_first_send_comes_to() {
    for outcome in played() {
        for tool in [OPAQUE, KEYED] {
            if (tool, outcome) == (OPAQUE, ToolOutcome::AnsweredTwice) {
                continue; // what arrives twice without a key is done twice, and nobody here can help it
            }
            assert_eq!(everywhere(&[(tool, outcome)]).await, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn what_comes_after_a_loss_is_told_as_it_is() {
    for outcome in played() {
        let found = everywhere(&[(KEYED, ToolOutcome::LostAfter), (KEYED, outcome)]).await;
        assert_eq!(found, Vec::<String>::new(), "{}", outcome.name());
    }
}

#[tokio::test]
async fn a_run_whose_sends_are_answered_does_both_things_once() {
    let scenario = scenario(&[]);
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
    assert_eq!((scenario.world.count(OPAQUE), scenario.world.count(KEYED)), (1, 1));
}
