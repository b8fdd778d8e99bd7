//! What a person says beside an answer, about the run or about a call: the model reads it with the next request, once, whatever was asked
//! and wherever the process dies.

#![expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use serde_json::{Value, json};
use ua_core::{Block, Env, Origin, Role, RunStatus};
use ua_store::{Choice, QuestionKind, QuestionRecord, QuestionStatus, RunRecords};
use ua_testkit::{CrashAt, Honours, ToolOutcome, World, foreign_tool, own_tool};

use super::Scenario;

const WORDS: &str = "Use the copy on the shelf.";

/// A job whose model stops in one of the ways that a person is asked about, and ends well when it has read the words.
struct Stopping {
    name: &'static str,
    kind: QuestionKind,
    turns: Vec<Value>,
    job: Value,
}

fn read(path: &str) -> Value {
    json!({"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": path}}]})
}

fn stoppings() -> Vec<Stopping> {
    let plain = || json!({"objective": "Read it."});
    let of = |name, kind, turn: Value, times: usize, job: Value| Stopping { name, kind, turns: vec![turn; times], job };
    let said = |reason: &str, text: &str| json!({"text": text, "stop_reason": reason});
    vec![
        of("refused", QuestionKind::RepeatedFailures, said("refusal", "No."), 2, plain()),
        of("cut", QuestionKind::RepeatedFailures, said("max_tokens", "And "), 9, plain()),
        of(
            "missing",
            QuestionKind::MissingEvidence,
            json!({"text": "Done."}),
            4,
            json!({"objective": "Tell me.", "stop_conditions": ["final_notification_sent"]}),
        ),
    ]
}

impl Stopping {
    fn scenario(&self) -> Scenario {
        let mut turns = self.turns.clone();
        let mut next = read("a.txt");
        next["expect"] = json!({"contains": [WORDS]});
        let tell = json!({"tools": [{"name": "mcp__ua__notify", "input": {"message": "done"}}]});
        turns.extend([next, tell, json!({"text": "ALL DONE"})]);
        let world = World::new([(own_tool("read_local_file"), Honours::Nothing), (own_tool("notify"), Honours::Keys)]);
        let script = json!({"turns": turns}).to_string();
        Scenario::with(world, Env::simulated(42), &script, &self.job.to_string(), None)
    }

    /// The run, waiting for the answer.
    async fn waiting(&self) -> (Scenario, QuestionRecord) {
        let scenario = self.scenario();
        let run = scenario.resume().await;
        assert_eq!(run.status, RunStatus::WaitingForHuman, "{}: {:?}", self.name, run.status_detail);
        let asked = scenario.records().await.questions.pop().unwrap();
        assert_eq!((asked.kind, asked.call_id.is_none()), (self.kind, true), "{}", self.name);
        (scenario, asked)
    }
}

/// How often the history has the words, and whether they stand before the reply to the next request.
fn told(records: &RunRecords, turns: u32) -> (usize, bool) {
    let has_words = |text: &str| text.matches(WORDS).count();
    let times = records.messages.iter().map(|record| has_words(&record.message.text())).sum();
    let reply = records.messages.iter().find(|record| record.turn > turns && record.message.role == Role::Assistant);
    let words = records
        .messages
        .iter()
        .find(|record| record.message.origin == Origin::Guidance && has_words(&record.message.text()) > 0);
    (times, words.zip(reply).is_some_and(|(words, reply)| words.seq < reply.seq))
}

#[tokio::test]
async fn the_words_of_an_answer_reach_the_model_once_wherever_the_process_dies() {
    for stopping in stoppings() {
        let (scenario, asked) = stopping.waiting().await;
        scenario.say(&asked, Choice::Continue, WORDS).await;
        let (crossings, run) = scenario.run_without_crash().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{}: {:?}", stopping.name, run.status_detail);
        for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
            let at_which = format!("{}, {at:?}", stopping.name);
            let (scenario, asked) = stopping.waiting().await;
            let turns = scenario.turn_index().await;
            scenario.say(&asked, Choice::Continue, WORDS).await;
            scenario.crash(at).await;
            let run = scenario.resume().await;
            assert_eq!(run.status, RunStatus::Succeeded, "{at_which}: {:?}", run.status_detail);
            let records = scenario.records().await;
            assert_eq!(told(&records, turns), (1, true), "{at_which}");
            assert!(records.questions.iter().all(|question| question.status == QuestionStatus::Closed), "{at_which}");
            scenario.check_invariants(&at_which).await;
        }
    }
}

/// Between the answer and the next request the run may stop, or ask again; what was said is said then.
#[tokio::test]
async fn words_wait_as_long_as_the_model_is_not_asked() {
    let stopping = &stoppings()[0];
    let (scenario, asked) = stopping.waiting().await;
    scenario.say(&asked, Choice::Continue, WORDS).await;
    scenario.stop.stop_gently();
    assert_eq!(scenario.resume().await.status, RunStatus::Stopped);
    let records = scenario.records().await;
    assert_eq!((told(&records, 2).0, records.questions[0].status), (0, QuestionStatus::Answered));
}

/// Where the model is not asked again, nobody reads what was said, and no answer is left open behind the run.
#[tokio::test]
async fn an_end_without_another_request_leaves_no_answer_open() {
    let by_hand = Stopping {
        name: "made by hand",
        kind: QuestionKind::MissingEvidence,
        turns: vec![json!({"text": "Done."}); 4],
        job: json!({"objective": "Write it.", "stop_conditions": [{"artifact": "x.txt"}]}),
    };
    for choice in [Choice::Continue, Choice::Abort] {
        let (scenario, asked) = by_hand.waiting().await;
        scenario.say(&asked, choice, WORDS).await;
        std::fs::write(scenario.workspace().join("x.txt"), "By hand.").unwrap();
        let run = scenario.resume().await;
        let wanted = if choice == Choice::Abort { RunStatus::Failed } else { RunStatus::Succeeded };
        assert_eq!(run.status, wanted, "{:?}", run.status_detail);
        let records = scenario.records().await;
        assert_eq!((told(&records, 4).0, records.turns.len()), (0, 4), "{choice:?}");
        assert_eq!(records.questions[0].status, QuestionStatus::Closed, "{choice:?}");
        scenario.check_invariants(&format!("{choice:?}")).await;
    }
}

/// A run that waits for a word about a call: an approval, or what came of one whose answer was lost.
async fn about_a_call(kind: QuestionKind) -> (Scenario, QuestionRecord) {
    let (tool, job) = if kind == QuestionKind::Approval {
        (
            json!({"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "s", "body": "b"}}),
            json!({"objective": "Write to a@example.test.", "escalation": {"ask_human_before": ["email.*"]}}),
        )
    } else {
        (json!({"name": "mcp__forum__post_comment", "input": {"text": "hi"}}), json!({"objective": "Post."}))
    };
    let next = json!({"tools": [{"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}}], "expect": {"contains": [WORDS]}});
    let script = json!({"turns": [{"tools": [tool]}, next, {"text": "ALL DONE"}]}).to_string();
    let world = World::new([
        (own_tool("read_local_file"), Honours::Nothing),
        (own_tool("send_email"), Honours::Keys),
        (foreign_tool("forum", "post_comment"), Honours::Nothing),
    ]);
    world.next("post_comment", ToolOutcome::LostAfter);
    let scenario = Scenario::with(world, Env::simulated(42), &script, &job.to_string(), None);
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman, "{kind:?}: {:?}", run.status_detail);
    let asked = scenario.records().await.questions.pop().unwrap();
    assert_eq!((asked.kind, asked.call_id.is_some()), (kind, true));
    (scenario, asked)
}

/// How often the model was told the words, in results or beside them, and whether before its next reply.
fn told_about(records: &RunRecords) -> (usize, bool) {
    let times = |block: &Block| match block {
        Block::Text { text } => text.matches(WORDS).count(),
        Block::ToolResult { content, .. } => content.to_string().matches(WORDS).count(),
        Block::Opaque { .. } | Block::ToolUse(_) => 0,
    };
    let of = |blocks: &[Block]| blocks.iter().map(times).sum::<usize>();
    let said =
        records.messages.iter().map(|record| (record, of(&record.message.blocks))).filter(|(_, times)| *times > 0);
    let said: Vec<_> = said.collect();
    let is_before = said.iter().all(|(record, _)| record.turn <= 1 && record.message.role == Role::User);
    (said.iter().map(|(_, times)| times).sum(), is_before)
}

/// Whatever a person answers about a call, what they say beside it is read by the model, once.
#[tokio::test]
async fn the_words_beside_every_answer_about_a_call_reach_the_model_once_wherever_the_process_dies() {
    for (kind, choice) in [
        (QuestionKind::Approval, Choice::Execute),
        (QuestionKind::Approval, Choice::Skip),
        (QuestionKind::UnknownOutcome, Choice::Happened),
        (QuestionKind::UnknownOutcome, Choice::Execute),
        (QuestionKind::UnknownOutcome, Choice::Skip),
    ] {
        let (scenario, asked) = about_a_call(kind).await;
        scenario.say(&asked, choice, WORDS).await;
        let (crossings, run) = scenario.run_without_crash().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{kind:?} {choice:?}: {:?}", run.status_detail);
        for at in (0..crossings).map(CrashAt::After) {
            let at_which = format!("{kind:?} {choice:?}, {at:?}");
            let (scenario, asked) = about_a_call(kind).await;
            scenario.say(&asked, choice, WORDS).await;
            scenario.crash(at).await;
            let mut run = scenario.resume().await;
            // What was sent once more and lost is asked about once more.
            if run.status == RunStatus::WaitingForHuman {
                let again = scenario.records().await.questions.pop().unwrap();
                scenario.choose(&again, Choice::Happened).await;
                run = scenario.resume().await;
            }
            assert_eq!(run.status, RunStatus::Succeeded, "{at_which}: {:?}", run.status_detail);
            assert_eq!(told_about(&scenario.records().await), (1, true), "{at_which}");
            scenario.check_invariants(&at_which).await;
        }
    }
}
