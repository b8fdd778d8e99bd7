//! A job that asks the person behind it and needs approvals: wherever the process dies, each question is asked once, each word is
//! used once, and what was approved happens once.

use ua_core::{CallStatus, Env, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionStatus};
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::scenario::Scenario;

const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}},
             {"name": "mcp__ua_person__ask_user", "input": {"question": "Which colour?", "options": ["red", "blue"]}}]},
  {"tools": [{"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "Colour", "body": "Request {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "sent {{request}}"}}],
   "expect": {"contains": ["a deep blue"]}},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Tell the colour.", "escalation": {"ask_user": true, "ask_human_before": ["email.*", "run.notify"]}}"#;

fn scenario() -> Scenario {
    let tools = ["send_email", "notify"].map(|tool| (own_tool(tool), Honours::Keys));
    let reads = [(own_tool("read_local_file"), Honours::Nothing)];
    Scenario::with(World::new(tools.into_iter().chain(reads)), Env::simulated(17), SCRIPT, JOB, None)
}

/// Answers every open question and says which there were.
async fn answer(scenario: &Scenario, mails: Choice) -> Vec<QuestionKind> {
    let mut kinds = Vec::new();
    for question in scenario.questions().await.into_iter().filter(|q| q.status == QuestionStatus::Open) {
        kinds.push(question.kind);
        if question.kind == QuestionKind::AskUser {
            scenario.say(&question, Choice::Continue, "a deep blue").await;
        } else {
            scenario.choose(&question, mails).await;
        }
    }
    kinds
}

async fn to_the_end(scenario: &Scenario, mails: Choice, at: CrashAt) {
    for _ in 0..4 {
        let run = scenario.resume().await;
        if run.status != RunStatus::WaitingForHuman {
            assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
            return;
        }
        assert!(!answer(scenario, mails).await.is_empty(), "{at:?}: it waits for nothing");
    }
    panic!("{at:?}: it is asked again and again");
}

/// Lives up to the `n`-th wait, all answered.
async fn lived(lives: usize, mails: Choice) -> Scenario {
    let scenario = scenario();
    for _ in 0..lives {
        assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
        answer(&scenario, mails).await;
    }
    scenario
}

#[tokio::test]
async fn approvals_of_one_turn_are_asked_for_at_once() {
    let scenario = scenario();
    scenario.resume().await;
    assert_eq!(answer(&scenario, Choice::Execute).await, [QuestionKind::AskUser]);
    scenario.resume().await;
    assert_eq!(answer(&scenario, Choice::Execute).await, [QuestionKind::Approval, QuestionKind::Approval]);
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
    assert_eq!((scenario.world.count("send_email"), scenario.world.count("notify")), (1, 1));
}

#[tokio::test]
async fn every_word_is_asked_for_once_and_used_once_wherever_we_die() {
    // Behind one crossing is before the next, so one side is enough.
    for (lives, mails) in [(0, Choice::Execute), (1, Choice::Execute), (2, Choice::Execute), (2, Choice::Skip)] {
        let (crossings, _) = lived(lives, mails).await.run_without_crash().await;
        assert!(crossings > 5, "the life crosses too few seams to prove anything: {crossings}");
        for at in (0..crossings).map(CrashAt::After) {
            let scenario = lived(lives, mails).await;
            scenario.crash(at).await;
            to_the_end(&scenario, mails, at).await;
            check(&scenario, mails, &format!("{mails:?}, life {lives}, {at:?}")).await;
        }
    }
}

async fn check(scenario: &Scenario, mails: Choice, at: &str) {
    let expected = usize::from(mails == Choice::Execute);
    assert_eq!(scenario.world.count("send_email"), expected, "{at}");
    assert_eq!(scenario.world.count("notify"), expected, "{at}");
    assert!(scenario.told_the_model("ask_user").await.contains("a deep blue"), "{at}");
    let questions = scenario.questions().await;
    let mut about: Vec<_> = questions.iter().filter_map(|question| question.call_id.clone()).collect();
    about.sort();
    about.dedup();
    assert_eq!((about.len(), questions.len()), (3, 3), "{at}: one question a call");
    assert!(questions.iter().all(|question| question.status == QuestionStatus::Closed), "{at}");
    let calls = scenario.calls().await;
    let attempts: Vec<u32> = calls.iter().filter(|c| c.policy.class.has_effect()).map(|c| c.attempt).collect();
    if mails == Choice::Skip {
        assert_eq!(attempts, [0, 0], "{at}");
        assert!(calls.iter().rev().take(2).all(|call| call.status == CallStatus::Cancelled), "{at}");
    }
    scenario.check_invariants(at).await;
}

/// Waits for a word about both calls of the second turn, and has these.
async fn answered(mail: Option<Choice>, notice: Choice) -> Scenario {
    let scenario = lived(1, Choice::Execute).await;
    assert_eq!(scenario.resume().await.status, RunStatus::WaitingForHuman);
    let calls = scenario.calls().await;
    for question in scenario.questions().await.into_iter().filter(|q| q.status == QuestionStatus::Open) {
        let call = calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref()).unwrap();
        let choice = if call.name.tool == "send_email" { mail } else { Some(notice) };
        if let Some(choice) = choice {
            scenario.choose(&question, choice).await;
        }
    }
    scenario
}

#[tokio::test]
async fn an_abort_ends_the_run_beside_any_other_word_wherever_we_die() {
    for mail in [Some(Choice::Skip), Some(Choice::Execute), None] {
        let (crossings, run) = answered(mail, Choice::Abort).await.run_without_crash().await;
        assert_eq!(run.status, RunStatus::Failed);
        assert!(crossings > 2, "the life crosses too few seams to prove anything: {crossings}");
        for at in (0..crossings).map(CrashAt::After) {
            let scenario = answered(mail, Choice::Abort).await;
            scenario.crash(at).await;
            let run = scenario.resume().await;
            assert_eq!(run.status, RunStatus::Failed, "{mail:?}, {at:?}: {:?}", run.status_detail);
            assert_eq!(
                (scenario.world.count("send_email"), scenario.world.count("notify")),
                (0, 0),
                "{mail:?}, {at:?}"
            );
            let calls = scenario.calls().await;
            assert!(calls.iter().rev().take(2).all(|call| call.status == CallStatus::Cancelled), "{mail:?}, {at:?}");
            let questions = scenario.questions().await;
            assert!(questions.iter().all(|one| one.status == QuestionStatus::Closed), "{mail:?}, {at:?}");
            scenario.check_invariants(&format!("{mail:?}, {at:?}")).await;
        }
    }
}

#[tokio::test]
async fn what_was_approved_beside_a_skip_is_sent_once_wherever_we_die() {
    let make = async || answered(Some(Choice::Skip), Choice::Execute).await;
    let (crossings, run) = make().await.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded);
    for at in (0..crossings).map(CrashAt::After) {
        let scenario = make().await;
        scenario.crash(at).await;
        to_the_end(&scenario, Choice::Execute, at).await;
        assert_eq!((scenario.world.count("send_email"), scenario.world.count("notify")), (0, 1), "{at:?}");
        scenario.check_invariants(&format!("{at:?}")).await;
    }
}
