//! A model that wants its intents done: it asks for what is missing, in other words each time if the seed says so, and fails now and
//! then. Its provider bills what it read and wrote, whether or not anybody heard of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use ua_core::{Block, Message, ModelTurn, Origin, Role, RunId, StopReason, ToolUse, Usage, iteration_begins_after};
use ua_llm::{LlmError, LlmProvider, ModelRequest, Status, StreamObserver, check_history, estimate_input_tokens};

use super::chance::Chance;
use super::job::{ASKED_AGAIN, Intent, Intents, Kind, PROMISE, Tool, tag_of};
use super::limit::told_of;
use super::locked;
use super::refusals::{Newest, Refused};
use crate::outcomes::ModelOutcome;

/// How often one intent is asked for before the model goes on without it.
pub(super) const MAX_ASKS: usize = 3;

/// How a model is told of a call that was in doubt that it happened.
const DONE: &str = "It counts as done: do not make it again.";

/// What a whole reply says, and what one says that breaks late.
const WHOLE_OUTPUT: u64 = 20;
pub(super) const CUT_OUTPUT: u64 = 2_000;

/// How the model is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    /// It ends its contexts now and then, and knows of what was done before only what it is told.
    pub(super) is_forgetful: bool,
    /// It promises that all is done when it is.
    pub(super) promises: bool,
    /// What it handed to sub-agents in a context it does not know behind it, whatever it is told: all of that it hands on once more. It does not
    /// promise anything in its first context.
    pub(super) forgets_tasks: bool,
    /// It words things differently in each request.
    pub(super) is_wordy: bool,
    /// It asks again for what a run went on without, although nobody knows whether it happened.
    pub(super) repeats_in_doubt: bool,
    /// Its provider never says how many tokens a whole reply took, as many servers of one's own do not.
    pub(super) counts_nothing: bool,
}

/// What the provider billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Billed {
    /// Tokens of whole replies.
    pub(super) whole: u64,
    /// Tokens of replies that broke after the provider had said what it bills.
    pub(super) cut: u64,
    /// What of these the provider had written.
    pub(super) cut_output: u64,
}

/// The model. It outlives every process.
pub(super) struct SimModel {
    intents: Intents,
    habits: Habits,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    faults: usize,
    requests: u64,
    refused: Vec<String>,
    billed: Billed,
    came: Vec<ModelOutcome>,
    /// By process and run, what came of the newest request.
    newest: BTreeMap<(usize, RunId), Newest>,
    /// Requests that whoever made them had been refused for good.
    asked_again: Vec<String>,
    memory: Memory,
    /// Of which tools it was told that the job allows no more.
    used_up: BTreeSet<&'static str>,
}

/// What the model asked for and heard, which it knows also where the middle of a history is left out.
#[derive(Default)]
struct Memory {
    /// Whose request it was, what it began with, and the ids of its tool uses, in order; the newest last.
    conversations: Vec<(RunId, String, Vec<String>)>,
    /// What came of them.
    answers: BTreeMap<String, (String, bool)>,
    /// Requests that had a part of their history.
    cut: u64,
}

impl Memory {
    /// The tool uses of a request, those that are left out of it among them.
    fn recall(&mut self, run: &RunId, messages: &[Message]) -> Vec<String> {
        let blocks = || messages.iter().flat_map(|message| &message.blocks);
        let mut here = Vec::new();
        for block in blocks() {
            match block {
                Block::ToolUse(tool_use) => here.push(tool_use.id.clone()),
                Block::ToolResult { tool_use_id, content, is_error } => {
                    self.answers.insert(tool_use_id.clone(), (content.to_string(), *is_error));
                }
                Block::Text { .. } | Block::Opaque { .. } => {}
            }
        }
        let is_cut = messages.iter().any(|message| message.origin == Origin::Omission);
        // What a fork left behind comes after what it shares, so an earlier request is known up to the newest that both have.
        if !is_cut {
            return here;
        }
        self.cut += 1;
        let up_to = |last: &String| {
            let known = |ids: &Vec<String>| ids.iter().position(|id| id == last).map(|at| ids[..=at].to_vec());
            self.conversations.iter().rev().find_map(|(_, _, ids)| known(ids))
        };
        // Where none is left in the request, it is the newest that began like it: of the same run, or of the one that it was forked from.
        let alike = || self.conversations.iter().rev().filter(|(_, began, _)| *began == opening(messages));
        let own = || alike().find(|(of, _, _)| of == run).or_else(|| alike().next());
        let known = here.iter().rev().find_map(up_to).or_else(|| own().map(|(_, _, ids)| ids.clone()));
        let Some(known) = known else { return here };
        // Whatever is not left out and is newer.
        let newer = here.iter().filter(|id| !known.contains(id)).cloned().collect::<Vec<_>>();
        known.into_iter().chain(newer).collect()
    }

    /// Remembers what it asks for behind what it asked for before.
    fn keep(&mut self, run: &RunId, messages: &[Message], mut asked: Vec<String>, blocks: &[Block]) {
        asked.extend(blocks.iter().filter_map(|block| match block {
            Block::ToolUse(tool_use) => Some(tool_use.id.clone()),
            Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        }));
        let began = opening(messages);
        self.conversations.retain(|(of, other, ids)| of != run || *other != began || !asked.starts_with(ids));
        self.conversations.push((run.clone(), began, asked));
    }

    /// What is known about each intent of the tool uses `ids`.
    fn progress(&self, ids: &[String]) -> BTreeMap<String, Progress> {
        let mut progress: BTreeMap<String, Progress> = BTreeMap::new();
        for id in ids {
            let known = progress.entry(tag_of(id).to_owned()).or_default();
            known.asked += 1;
            known.answer = self.answers.get(id).cloned().or(known.answer.take());
        }
        progress
    }
}

/// What the history says about an intent.
#[derive(Default)]
struct Progress {
    asked: usize,
    answer: Option<(String, bool)>,
}

impl SimModel {
    pub(super) fn new(intents: Intents, habits: Habits, chance: Chance, faults: usize) -> Self {
        let (refused, came) = (Vec::new(), Vec::new());
        let (billed, memory) = (Billed::default(), Memory::default());
        let (used_up, newest, asked_again) = (BTreeSet::new(), BTreeMap::new(), Vec::new());
        let state = State { chance, faults, requests: 0, refused, billed, came, newest, asked_again, memory, used_up };
        Self { intents, habits, state: Mutex::new(state) }
    }

    /// Requests whose history no provider would take.
    pub(super) fn refused(&self) -> Vec<String> {
        locked(&self.state).refused.clone()
    }

    /// Requests that whoever made them had been refused for good.
    pub(super) fn asked_again(&self) -> Vec<String> {
        locked(&self.state).asked_again.clone()
    }

    /// By run, what came of the newest request of a process.
    pub(super) fn newest_of(&self, life: usize) -> Vec<(RunId, Newest)> {
        let state = locked(&self.state);
        let own = state.newest.iter().filter(|((of, _), _)| *of == life);
        own.map(|((_, run), newest)| (run.clone(), *newest)).collect()
    }

    /// How many requests had a part of their history.
    pub(super) fn cut(&self) -> u64 {
        locked(&self.state).memory.cut
    }

    /// Whether it was told in a hand-off that the job allows no more of what this tool does.
    pub(super) fn was_told_of(&self, tool: Tool) -> bool {
        locked(&self.state).used_up.contains(tool.name)
    }

    pub(super) fn billed(&self) -> Billed {
        locked(&self.state).billed
    }

    /// What came of requests, since this was last asked.
    pub(super) fn news(&self) -> Vec<ModelOutcome> {
        std::mem::take(&mut locked(&self.state).came)
    }

    /// The intents of the first turn that has any left, of whoever was told what stands at the beginning of `messages`.
    fn next<'i>(
        &'i self,
        messages: &[Message],
        mut progress: BTreeMap<String, Progress>,
        used_up: &BTreeSet<&str>,
    ) -> Vec<&'i Intent> {
        let told = messages.iter().flat_map(|message| &message.blocks).flat_map(handed_on);
        for tag in told.filter(|tag| !(self.habits.forgets_tasks && self.intents.is_task(tag))) {
            progress.entry(tag.to_owned()).or_default().asked += MAX_ASKS;
        }
        // Who was told since that it happened does not ask for it again, nor does who may have been told it in what is left out.
        let may_be_told = |told: &Message| told.origin == Origin::Omission || told.text().contains(DONE);
        let repeats_in_doubt = self.habits.repeats_in_doubt && !messages.iter().any(may_be_told);
        let is_open = |intent: &&Intent| match progress.get(intent.tag.as_str()) {
            _ if used_up.contains(intent.tool.name) => false,
            None => true,
            Some(Progress { asked, answer }) => {
                *asked < MAX_ASKS && wants_again(intent, answer.as_ref(), repeats_in_doubt)
            }
        };
        let turns = self.intents.of_opening(&opening(messages)).iter();
        let turns = turns.map(|turn| turn.iter().filter(is_open).collect::<Vec<_>>());
        turns.into_iter().find(|open| !open.is_empty()).unwrap_or_default()
    }
}

/// What whoever asks was told first.
fn opening(messages: &[Message]) -> String {
    messages.iter().find(|message| message.role == Role::User).map(Message::text).unwrap_or_default()
}

/// Whether a context follows another one.
fn is_behind_another(messages: &[Message]) -> bool {
    messages.iter().flat_map(|message| &message.blocks).any(|block| hand_off(block).is_some())
}

/// What is told to whoever goes on in another context.
fn hand_off(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text } => iteration_begins_after(text).is_some().then_some(text.as_str()),
        Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    }
}

/// The tags in what a hand-off says is done, or in doubt: what else it tells may have failed.
fn handed_on(block: &Block) -> impl Iterator<Item = &str> {
    let sections = hand_off(block)
        .unwrap_or_default()
        .split("\n## ")
        .filter(|section| section.starts_with("Done") || section.starts_with("In doubt"));
    sections.flat_map(|section| section.split(|letter: char| !letter.is_ascii_alphanumeric()))
}

/// Whether an answer tells the model that nothing happened.
pub(super) fn says_nothing_happened(text: &str) -> bool {
    text.starts_with("Not run") || text.starts_with("The call was not carried out")
}

/// Whether the model asks again after this answer: what was not run, always; a letter that failed, which the run knows by its scope,
/// for every other intent; and, where it is so, what is in doubt.
fn wants_again(intent: &Intent, answer: Option<&(String, bool)>, repeats_in_doubt: bool) -> bool {
    let Some((text, true)) = answer else { return false };
    if repeats_in_doubt && intent.tool.kind == Kind::GoneOnWithout && text.contains("is unknown") {
        return true;
    }
    let is_letter = intent.tool.name == ASKED_AGAIN && !text.contains("unknown") && intent.number.is_multiple_of(2);
    says_nothing_happened(text) || is_letter
}

/// The model as one drive of a run asks it: where a fork and its parent begin alike, it knows which of the two it speaks with.
pub(super) struct AskedBy {
    model: Arc<SimModel>,
    life: usize,
    run: RunId,
    /// What the last request of this drive was refused for good.
    refused: Mutex<Option<Refused>>,
}

impl AskedBy {
    pub(super) fn new(model: Arc<SimModel>, life: usize, run: RunId) -> Self {
        Self { model, life, run, refused: Mutex::default() }
    }
}

#[async_trait]
impl LlmProvider for AskedBy {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut state = locked(&self.model.state);
        state.requests += 1;
        let number = state.requests;
        if let Err(why) = check_history(&request.messages) {
            state.refused.push(format!("request {number}: {why:?}"));
        }
        let mut outcome = ModelOutcome::Answered;
        if state.faults > 0 && state.chance.one_in(4) {
            state.faults -= 1;
            outcome = state.chance.pick(ModelOutcome::ALL).copied().unwrap_or(outcome);
        }
        state.came.push(outcome);
        let mut refused = locked(&self.refused);
        if let Some(why) = refused.take().and_then(|refused| refused.forbids(&request.messages)) {
            state.asked_again.push(format!("request {number}, of {}: {why}", self.run));
        }
        *refused = Refused::by(outcome, &request.messages);
        state.newest.insert((self.life, self.run.clone()), Newest::of(outcome, &request.messages));
        if refused.is_some() {
            // What the next request leaves out of this one, it knows all the same.
            let asked = state.memory.recall(&self.run, &request.messages);
            state.memory.keep(&self.run, &request.messages, asked, &[]);
        }
        let wait = Some(Duration::from_secs(7));
        let input = estimate_input_tokens(request);
        let is_cut = match outcome {
            ModelOutcome::Answered => false,
            ModelOutcome::CutShort => true,
            ModelOutcome::NeverLeft => {
                return Err(LlmError::Unreachable { host: "nobody".into(), why: "connection refused".into() });
            }
            ModelOutcome::RateLimited => {
                return Err(LlmError::RateLimited {
                    retry_after: wait,
                    until_reset: None,
                    message: "slow down".into(),
                });
            }
            ModelOutcome::Overloaded => {
                return Err(LlmError::Overloaded { retry_after: wait, message: "too much to do".into() });
            }
            ModelOutcome::ServerError => {
                return Err(LlmError::Server {
                    status: Some(Status::Http(500)),
                    retry_after: None,
                    message: "it broke".into(),
                });
            }
            ModelOutcome::Silent => {
                return Err(LlmError::Timeout { idle: Duration::from_mins(1) });
            }
            ModelOutcome::CutLate => {
                state.billed.cut += input + CUT_OUTPUT;
                state.billed.cut_output += CUT_OUTPUT;
                observer.session(&format!("resp-{number}"));
                let text = "word ".repeat(usize::try_from(CUT_OUTPUT).unwrap_or(0));
                observer.event(&json!({"usage": {"input_tokens": input, "output_tokens": CUT_OUTPUT}}).to_string());
                observer.text(&text);
                observer.heard(Usage { input_tokens: input, output_tokens: CUT_OUTPUT, ..Usage::default() });
                return Err(LlmError::Cut { text_bytes: text.len(), source: None });
            }
            ModelOutcome::Refused => {
                return Err(LlmError::InvalidRequest { status: Status::Http(400), message: "bad request".into() });
            }
            ModelOutcome::Unauthorized => {
                return Err(LlmError::Unauthorized { status: Status::Http(401), message: "no such key".into() });
            }
            ModelOutcome::TooLong => {
                return Err(LlmError::TooLong { status: Status::Http(400), message: "prompt is too long".into() });
            }
        };
        let asked = state.memory.recall(&self.run, &request.messages);
        let notes = request.messages.iter().flat_map(|message| &message.blocks).filter_map(hand_off);
        let used_up = notes.flat_map(told_of).collect();
        let mut open = self.model.next(&request.messages, state.memory.progress(&asked), &used_up);
        state.used_up.extend(&used_up);
        let hands_on = !self.model.intents.is_of_a_task(&opening(&request.messages));
        let begins_again = self.model.habits.forgets_tasks && hands_on && !is_behind_another(&request.messages);
        let is_done = open.is_empty() && !begins_again;
        let uses = request.messages.iter().flat_map(|message| &message.blocks);
        let has_worked = uses.into_iter().any(|block| matches!(block, Block::ToolUse(_)));
        if self.model.habits.is_forgetful && has_worked && state.chance.one_in(2) {
            open.clear(); // the iteration ends here, whatever is open
        }
        let words = if self.model.habits.is_wordy { number } else { 0 };
        let tool_use = |intent: &&Intent| {
            Block::ToolUse(ToolUse {
                id: format!("{}-{number}", intent.tag),
                name: intent.tool.full_name().raw,
                input: intent.arguments(words),
            })
        };
        let mut blocks = vec![Block::text(match (is_done, open.is_empty()) {
            (true, _) if self.model.habits.promises => PROMISE,
            (true, _) => "All done.",
            (false, true) => "Enough for now.",
            (false, false) => "Next.",
        })];
        blocks.extend(open.iter().map(tool_use));
        state.memory.keep(&self.run, &request.messages, asked, &blocks);
        let stop_reason = match (is_cut, open.is_empty()) {
            (true, _) => StopReason::MaxTokens,
            (false, true) => StopReason::EndTurn,
            (false, false) => StopReason::ToolUse,
        };
        // What it wrote nobody counts then: only the estimate is to be booked.
        let counted = Usage { input_tokens: input, output_tokens: WHOLE_OUTPUT, ..Usage::default() };
        let usage = (!self.model.habits.counts_nothing).then_some(counted);
        state.billed.whole += usage.map_or(input, |usage| usage.total());
        Ok(ModelTurn { blocks, stop_reason, usage, model: request.model.clone(), response_id: None })
    }
}
