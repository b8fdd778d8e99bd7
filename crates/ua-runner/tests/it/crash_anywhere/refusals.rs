//! Replies that a model, or a filter of its provider, refused, with the calls that they ask for all the same: none of those goes out, and
//! wherever the process dies, the run ends as it does when nothing kills it.

use serde_json::{Value, json};
use ua_core::{Block, CallStatus, Env, Message, Origin, RunStatus};
use ua_store::{QuestionKind, RunRecords};
use ua_testkit::{CrashAt, Honours, World, own_tool};

use super::Scenario;

/// What the replies ask for: something with an effect, and a read.
const TOOLS: [&str; 2] = ["send_email", "read_local_file"];

fn asks() -> Value {
    json!([
        {"name": "mcp__ua__send_email", "input": {"to": ["a@example.test"], "subject": "s", "body": "b"}},
        {"name": "mcp__ua__read_local_file", "input": {"path": "a.txt"}},
    ])
}

/// A refusal, with calls or without.
fn refused(with_calls: bool) -> Value {
    let tools = if with_calls { asks() } else { json!([]) };
    json!({"text": "I will not.", "stop_reason": "refusal", "tools": tools})
}

/// Turns of a model, how a process that nothing kills leaves the run, and how often each tool was called.
struct Life {
    name: &'static str,
    turns: Vec<Value>,
    ends: RunStatus,
    sent: usize,
}

fn lives() -> Vec<Life> {
    let done = || json!({"text": "ALL DONE"});
    let heard = || json!({"tools": asks(), "expect": {"contains": ["the reply was refused or withheld"]}});
    let of = |name, turns, ends, sent| Life { name, turns, ends, sent };
    let waits = RunStatus::WaitingForHuman;
    vec![
        of("one, and the calls behind it", vec![refused(true), heard(), done()], RunStatus::Succeeded, 1),
        of("one, and an answer", vec![refused(true), done()], RunStatus::Succeeded, 0),
        of("two with calls", vec![refused(true), refused(true), done()], waits, 0),
        of("two, the first with calls", vec![refused(true), refused(false), done()], waits, 0),
        of("two, the second with calls", vec![refused(false), refused(true), done()], waits, 0),
        of("two without calls", vec![refused(false), refused(false), done()], waits, 0),
        of("one at a time", vec![refused(true), heard(), refused(true), done()], RunStatus::Succeeded, 1),
    ]
}

impl Life {
    fn scenario(&self) -> Scenario {
        let world = World::new([(own_tool(TOOLS[0]), Honours::Keys), (own_tool(TOOLS[1]), Honours::Nothing)]);
        let script = json!({"turns": self.turns}).to_string();
        Scenario::with(world, Env::simulated(42), &script, &json!({"objective": "Write to them."}).to_string(), None)
    }
}

/// What a run comes to.
#[derive(Debug, PartialEq)]
struct ComesTo {
    ends: (RunStatus, u32),
    /// Its history without notes of resumes, and without ids, which a request that is made again has anew.
    history: Vec<String>,
    asked: Vec<(QuestionKind, String)>,
    calls: Vec<CallStatus>,
}

fn come_to(records: RunRecords) -> ComesTo {
    let said = records.messages.into_iter().map(|record| record.message);
    let calls = records.calls.into_iter().map(|call| call.status);
    ComesTo {
        ends: (records.run.status, records.run.turn_index),
        history: said.filter(|message| message.origin != Origin::Resume).map(|message| in_words(&message)).collect(),
        asked: records.questions.into_iter().map(|question| (question.kind, question.text)).collect(),
        calls: calls.collect(),
    }
}

fn in_words(message: &Message) -> String {
    let block = |block: &Block| match block {
        Block::Text { text } => text.clone(),
        Block::ToolUse(asked) => format!("asks for {}", asked.name),
        Block::ToolResult { is_error, .. } => format!("result, an error: {is_error}"),
        Block::Opaque { .. } => "opaque".to_owned(),
    };
    format!("{:?}: {}", message.origin, message.blocks.iter().map(block).collect::<Vec<_>>().join("; "))
}

#[tokio::test]
async fn a_refused_reply_comes_to_the_same_wherever_the_process_dies() {
    for life in lives() {
        let whole = life.scenario();
        let (crossings, run) = whole.run_without_crash().await;
        assert_eq!(run.status, life.ends, "{}: {:?}", life.name, run.status_detail);
        let whole_records = come_to(whole.records().await);
        for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
            let at_which = format!("{}, {at:?}", life.name);
            let scenario = life.scenario();
            scenario.crash(at).await;
            scenario.resume().await;
            assert_eq!(come_to(scenario.records().await), whole_records, "{at_which}");
            let [sent, read] = TOOLS.map(|tool| scenario.world.count(tool));
            // A read whose answer was lost is made again.
            let reads = life.sent..=life.sent * 2;
            assert!(sent == life.sent && reads.contains(&read), "{at_which}: {sent} sent, {read} read");
            scenario.check_invariants(&at_which).await;
        }
    }
}
