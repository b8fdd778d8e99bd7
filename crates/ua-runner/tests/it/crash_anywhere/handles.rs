//! Tools that are not done when they answer: one goes on in a task, one asks a person first. Wherever the process dies, what they do
//! happens once, a call that has a handle is not sent again, and each answer is asked for once and handed over once.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{CallStatus, Env, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionRecord, QuestionStatus};
use ua_testkit::{CrashAt, Crossing, Honours, Plan, ToolOutcome, Unfinished, World, foreign_tool, own_tool};

use super::scenario::Scenario;

const SCRIPT: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__studio__render", "input": {"scene": "{{request}}"}},
             {"name": "mcp__shop__order", "input": {"item": "mug {{request}}"}},
             {"name": "mcp__ua__notify", "input": {"message": "ordered {{request}}"}}]},
  {"text": "All done."}
]}"#;

const JOB: &str = r#"{"objective": "Render and order."}"#;

/// One order alone.
const ORDER: &str = r#"{"turns": [
  {"tools": [{"name": "mcp__shop__order", "input": {"item": "mug"}}]},
  {"text": "All done."}
]}"#;

pub(crate) fn scenario() -> Scenario {
    let tools = [
        (foreign_tool("studio", "render"), Honours::Nothing),
        (foreign_tool("shop", "order"), Honours::Nothing),
        (own_tool("notify"), Honours::Keys),
    ];
    let world = World::new(tools).unfinished("render", Unfinished::Task).unfinished("order", Unfinished::Asks);
    Scenario::with(world, Env::simulated(23), SCRIPT, JOB, None)
}

/// Answers what is open: what the tool asks with a size, what is in doubt by looking outside.
pub(crate) async fn answer(scenario: &Scenario) -> Vec<QuestionKind> {
    let mut kinds = Vec::new();
    for question in scenario.questions().await.into_iter().filter(|q| q.status == QuestionStatus::Open) {
        kinds.push(question.kind);
        if question.kind == QuestionKind::Elicitation {
            scenario.say(&question, Choice::Continue, r#"{"size": 3}"#).await;
            continue;
        }
        let calls = scenario.calls().await;
        let call = calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref()).unwrap();
        let happened = scenario.world.count(&call.name.tool) > 0;
        scenario.choose(&question, if happened { Choice::Happened } else { Choice::Execute }).await;
    }
    kinds
}

/// Resumes to the end and returns what was asked.
pub(crate) async fn to_the_end(scenario: &Scenario, at: &str) -> Vec<QuestionKind> {
    let mut asked = Vec::new();
    for _ in 0..8 {
        let run = scenario.resume().await;
        if run.status != RunStatus::WaitingForHuman {
            assert_eq!(run.status, RunStatus::Succeeded, "{at}: {:?}", run.status_detail);
            return asked;
        }
        let kinds = answer(scenario).await;
        assert!(!kinds.is_empty(), "{at}: it waits for nothing");
        asked.extend(kinds);
    }
    panic!("{at}: it is asked again and again: {asked:?}");
}

pub(crate) fn times(scenario: &Scenario, what: &str) -> usize {
    scenario.world.log().iter().filter(|line| *line == what).count()
}

pub(crate) async fn check(scenario: &Scenario, asked: &[QuestionKind], at: &str) {
    for tool in ["render", "order", "notify"] {
        assert_eq!(scenario.world.count(tool), 1, "{at}: {tool}");
    }
    let calls = scenario.calls().await;
    assert!(calls.iter().all(|call| call.status == CallStatus::Succeeded), "{at}: {calls:?}");
    // A person who saw that it did not happen had it sent again; nobody else did.
    let executed =
        scenario.questions().await.into_iter().filter_map(|q| q.answer).filter(|a| a.choice == Choice::Execute);
    let sent = times(scenario, "invoke render") + times(scenario, "invoke order");
    let most = 2 + executed.count();
    assert!(sent <= most, "{at}: {sent} sends, {most} allowed: {:?}", scenario.world.log());
    let elicited = asked.iter().filter(|kind| **kind == QuestionKind::Elicitation).count();
    assert!(elicited <= 2, "{at}: {asked:?}");
    scenario.check_invariants(at).await;
}

#[tokio::test]
async fn without_a_crash_the_task_is_followed_and_the_question_waits_for_a_person() {
    let scenario = scenario();
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman);
    let question = scenario.questions().await.pop().unwrap();
    assert_eq!(question.kind, QuestionKind::Elicitation);
    assert!(
        question.text.contains("Which size?") && question.text.contains("\"size\": a whole number"),
        "{}",
        question.text
    );
    let order = scenario.calls().await.into_iter().find(|call| call.name.tool == "order").unwrap();
    assert_eq!(order.status, CallStatus::Running, "it is under way, and waits");
    assert_eq!(times(&scenario, "go on render"), 3, "asked until it was done");
    assert_eq!(to_the_end(&scenario, "no crash").await, [QuestionKind::Elicitation]);
    check(&scenario, &[QuestionKind::Elicitation], "no crash").await;
    assert_eq!(times(&scenario, "invoke order"), 1);
}

#[tokio::test]
async fn a_call_with_a_handle_is_gone_on_with_wherever_we_die() {
    let mut followed = 0;
    for life in 0..2 {
        let first = scenario();
        if life == 1 {
            first.resume().await;
            answer(&first).await;
        }
        let (crossings, _) = first.run_without_crash().await;
        assert!(crossings > 5, "{crossings}");
        for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
            let scenario = scenario();
            if life == 1 {
                scenario.resume().await;
                answer(&scenario).await;
            }
            scenario.crash(at).await;
            let at = format!("life {life}, {at:?}");
            let running = scenario.calls().await.into_iter().find(|call| call.status == CallStatus::Running);
            let has_handle = match &running {
                Some(call) => {
                    let attempts = scenario.records().await.attempts;
                    attempts.iter().any(|a| a.call_id == call.call_id && a.live_handle().is_some())
                }
                None => false,
            };
            let before = times(&scenario, "invoke render") + times(&scenario, "invoke order");
            let in_doubt = running.is_some() && !has_handle;
            let asked = to_the_end(&scenario, &at).await;
            check(&scenario, &asked, &at).await;
            if has_handle {
                followed += 1;
                assert!(!asked.contains(&QuestionKind::UnknownOutcome), "{at}: {asked:?}");
            }
            let after = times(&scenario, "invoke render") + times(&scenario, "invoke order");
            assert!(in_doubt || after - before <= 2, "{at}");
        }
    }
    assert!(followed >= 8, "too few deaths with a handle to prove anything: {followed}");
}

#[tokio::test]
async fn what_a_person_declines_is_told_to_the_tool_and_not_done() {
    let scenario = scenario();
    scenario.resume().await;
    let question = scenario.questions().await.pop().unwrap();
    scenario.choose(&question, Choice::Skip).await;
    assert_eq!(scenario.resume().await.status, RunStatus::Succeeded);
    assert_eq!(scenario.world.count("order"), 0);
    assert!(scenario.told_the_model("order").await.contains("nobody said which size"));
}

#[tokio::test]
async fn a_cancelled_run_tells_the_tool_and_leaves_the_call_unknown() {
    let scenario = scenario();
    scenario.resume().await;
    scenario.canceller().cancel().await;
    assert_eq!(scenario.resume().await.status, RunStatus::Cancelled);
    let order = scenario.calls().await.into_iter().find(|call| call.name.tool == "order").unwrap();
    assert_eq!(order.status, CallStatus::Unknown);
    assert_eq!(times(&scenario, "give up order"), 1, "{:?}", scenario.world.log());
    assert_eq!(scenario.world.count("order"), 0);
}

/// A call that waits for what its tool asked, and a fork that made it meanwhile: the answer goes to the tool only on the word of a person who knows
/// of that, and who says no has the tool told so.
#[tokio::test]
async fn an_answer_is_not_handed_over_behind_a_fork_that_made_the_call() {
    for (choice, orders) in [(Choice::Skip, 1), (Choice::Execute, 2)] {
        let world =
            World::new([(foreign_tool("shop", "order"), Honours::Nothing)]).unfinished("order", Unfinished::Asks);
        let parent = Scenario::with(world, Env::simulated(23), ORDER, JOB, None);
        assert_eq!(parent.resume().await.status, RunStatus::WaitingForHuman);
        assert_eq!(answer(&parent).await, [QuestionKind::Elicitation]);
        let fork = parent.forked("run_fork").await.unwrap();
        for kind in [QuestionKind::NearDuplicate, QuestionKind::Elicitation] {
            assert_eq!(fork.resume().await.status, RunStatus::WaitingForHuman, "{kind:?}");
            assert_eq!(answer(&fork).await, [kind]);
        }
        assert_eq!(fork.resume().await.status, RunStatus::Succeeded);
        assert_eq!(parent.world.count("order"), 1);
        for _ in 0..2 {
            assert_eq!(parent.resume().await.status, RunStatus::WaitingForHuman, "{choice:?}");
            assert_eq!(parent.world.count("order"), 1, "{choice:?}");
        }
        let question = parent.questions().await.pop().unwrap();
        assert_eq!((question.kind, question.status), (QuestionKind::NearDuplicate, QuestionStatus::Open));
        let made = fork.calls().await.pop().unwrap();
        let names = format!("Call {} of this step (succeeded, turn 1 of run run_fork)", made.call_id);
        assert!(question.text.contains(&names), "{}", question.text);
        parent.choose(&question, choice).await;
        let ended = parent.resume().await;
        assert_eq!(ended.status, RunStatus::Succeeded, "{choice:?}: {:?}", ended.status_detail);
        assert_eq!(parent.world.count("order"), orders, "{choice:?}");
        for run in [&parent, &fork] {
            run.check_invariants("an answer behind a fork").await;
        }
    }
}

/// While a tool waits on its connection, a fork makes its call, and then the tool's question is answered. In the moment in which the question
/// whether that answer still goes to the tool is taken back, a person answers it, if anybody does.
struct WhileItWaits {
    parent: Arc<Scenario>,
    choice: Option<Choice>,
}

impl WhileItWaits {
    async fn open(&self, kind: QuestionKind) -> Option<QuestionRecord> {
        let mut questions = self.parent.questions().await.into_iter();
        questions.find(|question| question.kind == kind && question.status == QuestionStatus::Open)
    }
}

#[async_trait]
impl Plan for WhileItWaits {
    async fn before(&self, crossing: &Crossing) {
        if !crossing.is("store.close_question") {
            return;
        }
        if let (Some(asked), Some(choice)) = (self.open(QuestionKind::NearDuplicate).await, self.choice) {
            self.parent.choose(&asked, choice).await;
        }
    }

    async fn after(&self, crossing: &Crossing) {
        if !crossing.is("store.raise_question") {
            return;
        }
        let Some(asked) = self.open(QuestionKind::Elicitation).await else { return };
        let parent = self.parent.clone();
        let meanwhile = async move {
            let fork = parent.forked("run_fork").await.unwrap();
            assert_eq!(fork.resume().await.status, RunStatus::WaitingForHuman);
            assert_eq!(answer(&fork).await, [QuestionKind::NearDuplicate]);
            parent.world.next("order", ToolOutcome::Answered);
            assert_eq!(fork.resume().await.status, RunStatus::Succeeded);
            parent.say(&asked, Choice::Continue, r#"{"size": 3}"#).await;
        };
        tokio::spawn(meanwhile).await.unwrap();
    }
}

/// A tool waits on its connection for an answer that a person has to be asked about once more, and is told no in the end. Whoever answers in
/// that very moment is heard: the tool is told what they say.
#[tokio::test]
async fn a_tool_that_waits_is_not_told_no_against_a_word_that_lets_its_answer_pass() {
    for (choice, orders) in [(None, 1), (Some(Choice::Skip), 1), (Some(Choice::Execute), 2)] {
        let world =
            World::new([(foreign_tool("shop", "order"), Honours::Nothing)]).unfinished("order", Unfinished::Waits);
        let parent = Arc::new(Scenario::with(world, Env::simulated(23), ORDER, JOB, None));
        let plan = Arc::new(WhileItWaits { parent: parent.clone(), choice });
        let (_, ended) = parent.drive_with(plan, None).await.unwrap();
        assert_eq!(ended.status, RunStatus::Succeeded, "{choice:?}: {:?}", ended.status_detail);
        assert_eq!(parent.world.count("order"), orders, "{choice:?}");
        let question = parent.questions().await.pop().unwrap();
        assert_eq!(
            (question.kind, question.status),
            (QuestionKind::NearDuplicate, QuestionStatus::Closed),
            "{choice:?}"
        );
        assert_eq!(question.answer.map(|answer| answer.choice), choice);
        parent.check_invariants("a word in the last moment").await;
    }
}
