//! A model that wants its intents done: it asks for what is missing, in other words each time, and fails now and then.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{Block, Message, ModelTurn, StopReason, ToolUse, Usage, iteration_begins_after};
use ua_llm::{LlmError, LlmProvider, ModelRequest, StreamObserver, check_history};

use super::chance::Chance;
use super::job::{Intent, Intents, KNOWN_BY_SCOPE, PROMISE, tag_of};
use super::locked;

/// How often one intent is asked for before the model goes on without it.
pub(super) const MAX_ASKS: usize = 3;

/// The model. It outlives every process.
pub(super) struct SimModel {
    intents: Intents,
    /// It ends its contexts now and then, and knows of what was done before only what it is told.
    is_forgetful: bool,
    state: Mutex<State>,
}

struct State {
    chance: Chance,
    faults: usize,
    requests: u64,
    refused: Vec<String>,
}

/// What the history says about an intent.
#[derive(Default)]
struct Progress {
    asked: usize,
    answer: Option<(String, bool)>,
}

impl SimModel {
    pub(super) fn new(intents: Intents, is_forgetful: bool, chance: Chance, faults: usize) -> Self {
        Self { intents, is_forgetful, state: Mutex::new(State { chance, faults, requests: 0, refused: Vec::new() }) }
    }

    /// Requests whose history no provider would take.
    pub(super) fn refused(&self) -> Vec<String> {
        locked(&self.state).refused.clone()
    }

    /// The intents of the first turn that has any left.
    fn next<'i>(&'i self, messages: &[Message]) -> Vec<&'i Intent> {
        let progress = progress(messages);
        let is_open = |intent: &&Intent| match progress.get(intent.tag.as_str()) {
            None => true,
            Some(Progress { asked, answer }) => *asked < MAX_ASKS && wants_again(intent, answer.as_ref()),
        };
        let turns = self.intents.0.iter().map(|turn| turn.iter().filter(is_open).collect::<Vec<_>>());
        turns.into_iter().find(|open| !open.is_empty()).unwrap_or_default()
    }
}

fn progress(messages: &[Message]) -> BTreeMap<&str, Progress> {
    let mut progress: BTreeMap<&str, Progress> = BTreeMap::new();
    for tag in messages.iter().flat_map(|message| &message.blocks).flat_map(handed_on) {
        progress.entry(tag).or_default().asked = MAX_ASKS;
    }
    for block in messages.iter().flat_map(|message| &message.blocks) {
        match block {
            Block::ToolUse(tool_use) => progress.entry(tag_of(&tool_use.id)).or_default().asked += 1,
            Block::ToolResult { tool_use_id, content, is_error } => {
                progress.entry(tag_of(tool_use_id)).or_default().answer = Some((content.to_string(), *is_error));
            }
            Block::Text { .. } | Block::Opaque { .. } => {}
        }
    }
    progress
}

/// The tags in what a hand-off says is done, or in doubt: what else it tells may have failed.
fn handed_on(block: &Block) -> impl Iterator<Item = &str> {
    let text = match block {
        Block::Text { text } if iteration_begins_after(text).is_some() => text.as_str(),
        Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => "",
    };
    let sections = text.split("\n## ").filter(|section| section.starts_with("Done") || section.starts_with("In doubt"));
    sections.flat_map(|section| section.split(|letter: char| !letter.is_ascii_alphanumeric()))
}

/// Whether the model asks again after this answer: what was not run, always; a letter that failed, which the run knows by its scope,
/// for every other intent.
fn wants_again(intent: &Intent, answer: Option<&(String, bool)>) -> bool {
    let Some((text, true)) = answer else { return false };
    let was_not_run = text.starts_with("Not run") || text.starts_with("The call was not carried out");
    was_not_run || (intent.tool.name == KNOWN_BY_SCOPE && !text.contains("unknown") && intent.number.is_multiple_of(2))
}

#[async_trait]
impl LlmProvider for SimModel {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn complete(&self, request: &ModelRequest, _observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut state = locked(&self.state);
        state.requests += 1;
        let number = state.requests;
        if let Err(why) = check_history(&request.messages) {
            state.refused.push(format!("request {number}: {why:?}"));
        }
        let mut is_cut = false;
        if state.faults > 0 && state.chance.one_in(4) {
            state.faults -= 1;
            let wait = Some(Duration::from_secs(7));
            match state.chance.below(4) {
                0 => return Err(LlmError::Unreachable { host: "nobody".into(), source: "connection refused".into() }),
                1 => return Err(LlmError::RateLimited { retry_after: wait, message: "slow down".into() }),
                2 => return Err(LlmError::Cut { text_bytes: 3, source: None }),
                _ => is_cut = true,
            }
        }
        let mut open = self.next(&request.messages);
        let is_done = open.is_empty();
        let uses = request.messages.iter().flat_map(|message| &message.blocks);
        let has_worked = uses.into_iter().any(|block| matches!(block, Block::ToolUse(_)));
        if self.is_forgetful && has_worked && state.chance.one_in(2) {
            open.clear(); // the iteration ends here, whatever is open
        }
        let tool_use = |intent: &&Intent| {
            Block::ToolUse(ToolUse {
                id: format!("{}-{number}", intent.tag),
                name: intent.tool.full_name().raw,
                input: intent.arguments(number),
            })
        };
        let mut blocks = vec![Block::text(match (is_done, open.is_empty()) {
            (true, _) if self.is_forgetful => PROMISE,
            (true, _) => "All done.",
            (false, true) => "Enough for now.",
            (false, false) => "Next.",
        })];
        blocks.extend(open.iter().map(tool_use));
        let stop_reason = match (is_cut, open.is_empty()) {
            (true, _) => StopReason::MaxTokens,
            (false, true) => StopReason::EndTurn,
            (false, false) => StopReason::ToolUse,
        };
        let usage = Some(Usage { input_tokens: 90, output_tokens: 20, ..Usage::default() });
        Ok(ModelTurn { blocks, stop_reason, usage, model: request.model.clone(), response_id: None })
    }
}
