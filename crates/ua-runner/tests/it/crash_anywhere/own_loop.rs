//! An agent that owns its loop, in memory: its conversation outlives processes and knows of a call only that it was interrupted. Wherever
//! this process or the agent dies, every effect happens once, and the agent has to take the receipts of what it did not hear about.
//!
//! Durable runner, current state §6 (forced replay). The agent words everything anew when it is asked again, so only the ledger keeps it
//! from repeating itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Role, RunStatus, StopReason, ToolUse, Usage};
use ua_llm::{Conversation, LlmError, LlmProvider, ModelRequest, StreamObserver};
use ua_store::{Choice, QuestionKind};
use ua_testkit::CrashAt;

use super::EFFECTS;
use super::scenario::{Answers, Scenario};

/// What the agent is like.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manners {
    /// The request in which it dies by itself, after it got the results of the last ones.
    dies_in: Option<u64>,
    /// It asks in other words first for what it was told to ask for exactly.
    rewords: bool,
    /// It never asks for what it is owed.
    stubborn: bool,
}

/// The agent: what it keeps on disk.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    manners: Manners,
    conversation: Mutex<Vec<Message>>,
    requests: AtomicU64,
}

impl Agent {
    pub(crate) fn new(manners: Manners) -> Arc<Self> {
        Arc::new(Self { manners, ..Self::default() })
    }

    /// A process of it, which belongs to one process of ours.
    pub(crate) fn process(self: &Arc<Self>) -> Arc<dyn LlmProvider> {
        Arc::new(Process { agent: Arc::clone(self), is_open: AtomicBool::new(false) })
    }

    fn conversation(&self) -> MutexGuard<'_, Vec<Message>> {
        self.conversation.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Process {
    agent: Arc<Agent>,
    is_open: AtomicBool,
}

fn results(ids: Vec<String>, text: &str) -> Message {
    let result = |id| Block::ToolResult { tool_use_id: id, content: text.into(), is_error: true };
    Message { role: Role::User, origin: Origin::Tools, blocks: ids.into_iter().map(result).collect() }
}

/// Tool and input of each call that has an answer which is no error.
fn answered(conversation: &[Message]) -> Vec<(String, Value)> {
    let good: Vec<&String> = conversation
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::ToolResult { tool_use_id, is_error: false, .. } => Some(tool_use_id),
            Block::ToolResult { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        })
        .collect();
    let uses = conversation.iter().flat_map(Message::tool_uses);
    uses.filter(|tool_use| good.contains(&&tool_use.id)).map(|t| (t.name.clone(), t.input.clone())).collect()
}

/// The newest list of calls that it was told to make again, without those it has made.
fn owed(conversation: &[Message]) -> Option<(usize, Vec<(String, Value)>)> {
    let told = |message: &Message| message.role == Role::User && message.text().contains("make exactly these calls");
    let at = conversation.iter().rposition(told)?;
    let made = answered(&conversation[at..]);
    let text = conversation[at].text();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let calls = lines.map(|call| (call["tool"].as_str().unwrap_or_default().to_owned(), call["arguments"].clone()));
    Some((at, calls.filter(|call| !made.contains(call)).collect()))
}

impl Process {
    fn next_calls(&self, conversation: &[Message], number: u64) -> Vec<(String, Value)> {
        let manners = self.agent.manners;
        if let Some((at, mut calls)) = owed(conversation).filter(|_| !manners.stubborn) {
            let is_first_try = !conversation[at..].iter().any(|message| message.role == Role::Assistant);
            if manners.rewords && is_first_try {
                for (_, input) in &mut calls {
                    for field in ["content", "body", "text", "message", "destination"] {
                        if let Some(text) = input[field].as_str() {
                            input[field] = json!(format!("{text}, in other words"));
                        }
                    }
                }
            }
            if !calls.is_empty() {
                return calls;
            }
        }
        let steps = [
            vec![("mcp__ua__read_local_file", json!({"path": "a.txt"}))],
            vec![
                ("mcp__ua__write_local_file", json!({"path": "report.md", "content": format!("report {number}")})),
                ("mcp__ua__upload", json!({"path": "report.md", "destination": "file:///store/"})),
            ],
            vec![(
                "mcp__ua__send_email",
                json!({"to": ["a@example.test"], "subject": "Report", "body": format!("Version {number}")}),
            )],
            vec![
                ("mcp__forum__post_comment", json!({"text": format!("Done, says request {number}")})),
                ("mcp__ua__notify", json!({"message": format!("done {number}")})),
            ],
        ];
        let done = answered(conversation);
        let left = |calls: &Vec<(&str, Value)>| {
            let left = calls.iter().filter(|(tool, _)| !done.iter().any(|(name, _)| name == tool));
            left.map(|(tool, input)| ((*tool).to_owned(), input.clone())).collect::<Vec<_>>()
        };
        steps.iter().map(left).find(|left| !left.is_empty()).unwrap_or_default()
    }
}

#[async_trait]
impl LlmProvider for Process {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn conversation(&self) -> Conversation {
        if self.is_open.load(Ordering::SeqCst) { Conversation::Open } else { Conversation::Broken }
    }

    async fn complete(&self, request: &ModelRequest, _observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let number = self.agent.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut conversation = self.agent.conversation();
        let last = request.messages.iter().rposition(|message| message.role == Role::Assistant);
        let tail = &request.messages[last.map_or(0, |last| last + 1)..];
        let was_open = self.is_open.swap(true, Ordering::SeqCst);
        if !was_open {
            // What it did not hear about reads as interrupted; results of ours come to it only as answers of calls.
            let open: Vec<String> = conversation
                .last()
                .filter(|last| last.role == Role::Assistant)
                .map_or_else(Vec::new, |last| last.tool_uses().map(|tool_use| tool_use.id.clone()).collect());
            if !open.is_empty() {
                conversation.push(results(open, "[Tool call interrupted: its outcome is unknown.]"));
            }
        }
        conversation.extend(tail.iter().filter(|message| was_open || message.origin != Origin::Tools).cloned());
        if self.agent.manners.dies_in == Some(number) {
            self.is_open.store(false, Ordering::SeqCst);
            return Err(LlmError::Cut { text_bytes: 0, source: None });
        }
        let calls = self.next_calls(&conversation, number);
        let stop_reason = if calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let mut blocks = vec![Block::text(if calls.is_empty() { "All done." } else { "Going on." })];
        for (index, (name, input)) in calls.into_iter().enumerate() {
            blocks.push(Block::ToolUse(ToolUse { id: format!("t_{number}_{index}"), name, input }));
        }
        let usage = Some(Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() });
        let turn =
            ModelTurn { blocks, stop_reason, usage, model: "scripted".into(), response_id: Some("session".into()) };
        conversation.push(turn.clone().into_message());
        Ok(turn)
    }
}

fn each_once(scenario: &Scenario, at: &str) {
    for effect in EFFECTS {
        assert_eq!(scenario.world.count(effect), 1, "{effect} at {at}");
    }
}

async fn points(manners: Manners) -> Vec<CrashAt> {
    let (crossings, run) = Scenario::with_agent(manners).run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    assert!(crossings > 30, "{crossings}");
    (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]).collect()
}

#[tokio::test]
async fn every_effect_of_an_agent_happens_once_wherever_we_die() {
    for rewords in [false, true] {
        let manners = Manners { rewords, ..Manners::default() };
        for at in points(manners).await {
            let scenario = Scenario::with_agent(manners);
            scenario.crash(at).await;
            let run = scenario.resume_to_the_end(Answers::Truth).await;
            assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
            each_once(&scenario, &format!("{at:?}, rewords: {rewords}"));
            scenario.check_invariants(&format!("{at:?}")).await;
        }
    }
}

#[tokio::test]
async fn every_effect_of_an_agent_happens_once_wherever_it_dies_itself_and_wherever_we_die_then() {
    for dies_in in 1..6 {
        let manners = Manners { dies_in: Some(dies_in), ..Manners::default() };
        let scenario = Scenario::with_agent(manners);
        let (_, run) = scenario.run_without_crash().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{dies_in}: {:?}", run.status_detail);
        each_once(&scenario, &format!("the agent dies in request {dies_in}"));
        for at in points(manners).await.into_iter().skip(usize::try_from(dies_in).unwrap()).step_by(3) {
            let scenario = Scenario::with_agent(manners);
            scenario.crash(at).await;
            let run = scenario.resume_to_the_end(Answers::Truth).await;
            assert_eq!(run.status, RunStatus::Succeeded, "{dies_in}, {at:?}: {:?}", run.status_detail);
            each_once(&scenario, &format!("the agent dies in request {dies_in}, {at:?}"));
        }
    }
}

#[tokio::test]
async fn a_second_death_during_the_replay_changes_nothing() {
    let manners = Manners::default();
    // Every third first death, each with a handful of second ones; together they cover the replay.
    for (index, first) in points(manners).await.into_iter().step_by(3).enumerate() {
        for second in (index % 9..27).step_by(9) {
            for at in [CrashAt::Before(second as u64), CrashAt::After(second as u64)] {
                let scenario = Scenario::with_agent(manners);
                scenario.crash(first).await;
                scenario.crash(at).await;
                let run = scenario.resume_to_the_end(Answers::Truth).await;
                assert_eq!(run.status, RunStatus::Succeeded, "{first:?} then {at:?}: {:?}", run.status_detail);
                each_once(&scenario, &format!("{first:?} then {at:?}"));
            }
        }
    }
}

#[tokio::test]
async fn an_agent_that_will_not_take_what_it_is_owed_is_stopped_and_told_again_after_a_persons_word() {
    // It dies when it was given what the e-mail's call brought, and hears nothing of it.
    let scenario = Scenario::with_agent(Manners { dies_in: Some(4), stubborn: true, ..Manners::default() });
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman, "{:?}", run.status_detail);
    let records = scenario.records().await;
    let asked = records.questions.iter().find(|question| question.kind == QuestionKind::RepeatedFailures).unwrap();
    assert!(asked.text.contains("send_email"), "{}", asked.text);
    assert_eq!((scenario.world.count("send_email"), scenario.world.count("post_comment")), (1, 0));
    let refused = records.calls.iter().filter(|call| call.error_code.as_deref() == Some("replay_first"));
    assert!(refused.clone().count() > 0 && refused.clone().all(|call| call.attempt == 0));
    scenario.choose(asked, Choice::Continue).await;
    let run = scenario.resume().await;
    assert_eq!(run.status, RunStatus::WaitingForHuman, "it is as stubborn as before");
    assert_eq!(scenario.world.count("send_email"), 1);
}
