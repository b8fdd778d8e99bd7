//! Scripts: what a model that is not there would have said.
//!
//! A script is a JSON file with one entry per turn. Which turn is next follows from the request alone: it is the number
//! of assistant messages in it, so the same script serves a run, its resumption and a second process alike. The offline
//! demo follows a script in this process; tests serve the same file over HTTP.

mod doubts;
mod template;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ua_core::{
    Block, Message, ModelTurn, Role, StopReason, ToolUse, Usage, is_omission, iteration_begins_after, parse_strict,
    sha256,
};

use self::template::Facts;
use crate::ANTHROPIC;
use crate::anthropic::wire::{is_blank, wire_input};
use crate::history::check_history;

/// The lines of a model that is played.
///
/// Strings in texts, thoughts and tool inputs may hold placeholders:
///
/// | placeholder | becomes |
/// |---|---|
/// | `{{turn}}` | the turn's number, 1 for the first |
/// | `{{request}}` | the running number of the request at this provider, so that a model asked again words things differently |
/// | `{{result:ID}}` | the text of the result of tool use ID, at most 2000 characters |
/// | `{{result_json:ID:/pointer}}` | a value inside that result, read as JSON |
///
/// A tool input that is nothing but one `{{result_json:…}}` becomes the value itself, with its type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// What the script is called in error messages.
    #[serde(default)]
    pub name: Option<String>,
    /// The model's name in replies; the one that was asked for when absent.
    #[serde(default)]
    pub model: Option<String>,
    /// Text that the system prompt has to contain.
    #[serde(default)]
    pub system_must_contain: Option<String>,
    /// The replies, in order.
    pub turns: Vec<ScriptTurn>,
    /// The reply to every request after the last turn; `Done.` when absent.
    #[serde(default)]
    pub after_end: Option<ScriptTurn>,
    /// What the model says in other conversations than the main one, for example those of sub-agents.
    #[serde(default)]
    pub conversations: Vec<ScriptConversation>,
}

/// The replies of a conversation that is known by how it begins.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptConversation {
    /// A text that its first message contains. The first conversation whose text is found is the one.
    pub when: String,
    /// The replies, in order.
    pub turns: Vec<ScriptTurn>,
    /// The reply to every request after the last turn; that of the script when absent.
    #[serde(default)]
    pub after_end: Option<ScriptTurn>,
}

/// One reply of a script.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    /// What the model says.
    #[serde(default)]
    pub text: Option<String>,
    /// What it thinks before; sent as a signed thinking block, which has to come back unchanged.
    #[serde(default)]
    pub thinking: Option<String>,
    /// The tools it asks for.
    #[serde(default)]
    pub tools: Vec<ScriptTool>,
    /// Why the reply ends; `tool_use` with tools and `end_turn` without when absent.
    #[serde(default)]
    pub stop_reason: Option<StopReason>,
    /// What the reply costs; estimated at four bytes a token when absent.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// What the request has to look like.
    #[serde(default)]
    pub expect: Option<Expectation>,
}

/// A tool use of a script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTool {
    /// The tool's name as a model sends it.
    pub name: String,
    /// The arguments. A string is sent as it is, in place of the arguments' JSON, which plays a model that garbles them.
    #[serde(default = "empty_object")]
    pub input: Value,
    /// The tool use's id; `toolu_TURN_N` when absent, both counted from 1.
    #[serde(default)]
    pub id: Option<String>,
}

/// What a request has to look like before a turn is played. It is read in the messages after the last reply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// Texts that these messages contain, results of tools included.
    #[serde(default)]
    pub contains: Vec<String>,
    /// `true`: every tool result is a success. `false`: at least one is an error.
    #[serde(default)]
    pub tool_result_ok: Option<bool>,
}

fn empty_object() -> Value {
    Value::Object(Map::new())
}

/// A script that cannot be read, or a request that it has no answer to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// The file is not a script.
    #[error("invalid script: {0}")]
    Syntax(String),
    /// A turn says nothing and asks for nothing, which no model does.
    #[error("invalid script: turn {turn} has no text, no thinking and no tools")]
    EmptyTurn {
        /// The turn, from 1; one beyond the last for `after_end`.
        turn: usize,
    },
    /// A placeholder is none of those that exist.
    #[error(
        "invalid script: turn {turn} has the placeholder {{{{{placeholder}}}}}; there are turn, request, result:ID and result_json:ID:/pointer"
    )]
    Placeholder {
        /// The turn, from 1.
        turn: usize,
        /// What is between the braces.
        placeholder: String,
    },
    /// The provider would refuse the history.
    #[error("the history is not what the script expects: {0}")]
    History(String),
    /// The request is not what the script expects.
    #[error("turn {turn} of the script cannot be played: {why}")]
    Expectation {
        /// The turn, from 1.
        turn: usize,
        /// What is missing.
        why: String,
    },
}

impl Script {
    /// Reads a script and checks what can be checked before it is played.
    pub fn parse(json: &str) -> Result<Self, ScriptError> {
        // First strictly, since a key that is given twice would silently lose one of its values.
        let value = parse_strict(json).map_err(|error| ScriptError::Syntax(error.to_string()))?;
        let script: Self =
            serde_json::from_value(value).map_err(|error| ScriptError::Syntax(ua_core::json_fault(json, &error)))?;
        for (index, turn) in script.turns.iter().chain(&script.after_end).enumerate() {
            turn.check(index + 1)?;
        }
        for conversation in &script.conversations {
            if conversation.when.trim().is_empty() {
                return Err(ScriptError::Syntax("a conversation's `when` is empty".to_owned()));
            }
            for (index, turn) in conversation.turns.iter().chain(&conversation.after_end).enumerate() {
                turn.check(index + 1)?;
            }
        }
        Ok(script)
    }

    /// The turn that a request with these messages asks for, from 1: one more than the replies in it, as they are sent
    /// (an empty message is not sent, and neighbours of one role are one message).
    ///
    /// Where an iteration began with an empty context, they are counted on from the turn behind which it did. Where messages are left
    /// out of the request, the replies are counted on from the last one that has a tool use whose id
    /// tells its turn (`toolu_TURN_N`).
    pub fn turn_of(messages: &[Message]) -> usize {
        let sent: Vec<&Message> = messages.iter().filter(|message| message.blocks.iter().any(is_sent)).collect();
        let replies: Vec<&[&Message]> =
            sent.chunk_by(|a, b| a.role == b.role).filter(|speech| speech[0].role == Role::Assistant).collect();
        let is_cut = messages.iter().flat_map(|message| &message.blocks).any(|block| match block {
            Block::Text { text } => is_omission(text),
            Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => false,
        });
        let told = || {
            let turns = replies.iter().rev().map(|speech| speech.iter().find_map(|message| told_turn(message)));
            turns.enumerate().find_map(|(after, turn)| Some(turn? + after))
        };
        let iteration = messages.iter().flat_map(|message| &message.blocks).find_map(|block| match block {
            Block::Text { text } => iteration_begins_after(text),
            Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        });
        let before = iteration.map_or(0, |turn| turn as usize);
        let counted = before + replies.len();
        1 + if is_cut { told().unwrap_or(counted) } else { counted }
    }

    /// The conversation that these messages belong to; `None` for the main one.
    pub fn conversation_of(&self, messages: &[Message]) -> Option<&ScriptConversation> {
        let first = messages.first()?.text();
        self.conversations.iter().find(|conversation| first.contains(&conversation.when))
    }

    /// Answers a request, as the provider's `request_number`-th (from 1). Depends on its arguments alone.
    pub fn reply(
        &self,
        model: &str,
        system: &str,
        messages: &[Message],
        request_number: u64,
    ) -> Result<ModelTurn, ScriptError> {
        check_history(messages).map_err(ScriptError::History)?;
        check_thinking(messages).map_err(ScriptError::History)?;
        let turn = Self::turn_of(messages);
        let wrong = |why: String| ScriptError::Expectation { turn, why };
        if let Some(text) = &self.system_must_contain
            && !system.contains(text)
        {
            return Err(wrong(format!("the system prompt does not contain {text:?}")));
        }
        let done = ScriptTurn { text: Some("Done.".to_owned()), ..ScriptTurn::default() };
        let conversation = self.conversation_of(messages);
        let turns = conversation.map_or(&self.turns, |conversation| &conversation.turns);
        let own_end = conversation.and_then(|conversation| conversation.after_end.as_ref());
        let played = turns.get(turn - 1).or(own_end).or(self.after_end.as_ref()).unwrap_or(&done);
        if let Some(expectation) = &played.expect {
            expectation.check(messages).map_err(wrong)?;
        }
        let facts = Facts { turn, request: request_number, results: results(messages) };
        let blocks = played.blocks(&facts).map_err(wrong)?;
        let natural_end = if played.tools.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let usage = played.usage.unwrap_or_else(|| Usage {
            input_tokens: tokens(system.len() + messages.iter().flat_map(|m| &m.blocks).map(wire_bytes).sum::<usize>()),
            output_tokens: tokens(blocks.iter().map(wire_bytes).sum()),
            ..Usage::default()
        });
        Ok(ModelTurn {
            blocks,
            stop_reason: played.stop_reason.unwrap_or(natural_end),
            usage: Some(usage),
            model: self.model.clone().unwrap_or_else(|| model.to_owned()),
            response_id: Some(format!("msg_scripted_{turn}_{request_number}")),
        })
    }
}

impl ScriptTurn {
    fn check(&self, turn: usize) -> Result<(), ScriptError> {
        let said = self.text.iter().chain(&self.thinking).any(|text| !is_blank(text));
        if !said && self.tools.is_empty() {
            return Err(ScriptError::EmptyTurn { turn });
        }
        let inputs = self.tools.iter().flat_map(|tool| template::strings_of(&tool.input));
        for text in self.text.iter().chain(&self.thinking).map(String::as_str).chain(inputs) {
            template::check(text).map_err(|placeholder| ScriptError::Placeholder { turn, placeholder })?;
        }
        Ok(())
    }

    fn blocks(&self, facts: &Facts<'_>) -> Result<Vec<Block>, String> {
        let mut blocks = Vec::new();
        if let Some(thinking) = &self.thinking {
            blocks.push(signed_thinking(&facts.fill(thinking)?));
        }
        if let Some(text) = self.text.as_ref().filter(|text| !text.is_empty()) {
            blocks.push(Block::text(facts.fill(text)?));
        }
        for (index, tool) in self.tools.iter().enumerate() {
            let id = tool.id.clone().unwrap_or_else(|| format!("toolu_{}_{}", facts.turn, index + 1));
            let input = facts.fill_value(&tool.input)?;
            blocks.push(Block::ToolUse(ToolUse { id, name: tool.name.clone(), input }));
        }
        Ok(blocks)
    }
}

impl Expectation {
    fn check(&self, messages: &[Message]) -> Result<(), String> {
        let newest = messages.iter().rposition(|message| message.role == Role::Assistant).map_or(0, |last| last + 1);
        let blocks: Vec<&Block> = messages[newest..].iter().flat_map(|message| &message.blocks).collect();
        let said = |wanted: &String| blocks.iter().any(|block| spoken(block).is_some_and(|text| text.contains(wanted)));
        if let Some(missing) = self.contains.iter().find(|wanted| !said(wanted)) {
            return Err(format!("the newest messages do not contain {missing:?}"));
        }
        let errors: Vec<&str> = blocks.iter().filter_map(|block| error_result(block)).collect();
        match (self.tool_result_ok, errors.first()) {
            (Some(true), Some(error)) => Err(format!("a tool result is an error: {error}")),
            (Some(false), None) => Err("no tool result is an error".to_owned()),
            (Some(true), None) | (Some(false), Some(_)) | (None, _) => Ok(()),
        }
    }
}

/// The turn that the id of a script's tool use tells.
fn told_turn(message: &Message) -> Option<usize> {
    message.tool_uses().find_map(|tool_use| tool_use.id.strip_prefix("toolu_")?.split_once('_')?.0.parse().ok())
}

fn spoken(block: &Block) -> Option<&str> {
    match block {
        Block::Text { text } => Some(text),
        Block::ToolResult { content, .. } => Some(content),
        Block::ToolUse(_) | Block::Opaque { .. } => None,
    }
}

fn error_result(block: &Block) -> Option<&str> {
    match block {
        Block::ToolResult { content, is_error: true, .. } => Some(content),
        Block::ToolResult { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    }
}

fn results(messages: &[Message]) -> BTreeMap<&str, &str> {
    let blocks = messages.iter().flat_map(|message| &message.blocks);
    blocks
        .filter_map(|block| match block {
            Block::ToolResult { tool_use_id, content, .. } => Some((tool_use_id.as_str(), content.as_str())),
            Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        })
        .collect()
}

const SIGNED_BY_A_SCRIPT: &str = "scripted:";

fn signed_thinking(thinking: &str) -> Block {
    let signature = format!("{SIGNED_BY_A_SCRIPT}{}", sha256(thinking));
    let value = json!({"type": "thinking", "thinking": thinking, "signature": signature});
    Block::Opaque { provider: ANTHROPIC.to_owned(), value }
}

/// Checks that thinking blocks of a script came back as they were, as the API does with its own.
fn check_thinking(messages: &[Message]) -> Result<(), String> {
    for block in messages.iter().flat_map(|message| &message.blocks) {
        let Block::Opaque { value, .. } = block else { continue };
        let Some(signed) = value["signature"].as_str().and_then(|s| s.strip_prefix(SIGNED_BY_A_SCRIPT)) else {
            continue;
        };
        if sha256(value["thinking"].as_str().unwrap_or_default()).to_hex() != signed {
            return Err("a thinking block came back changed".to_owned());
        }
    }
    Ok(())
}

fn is_sent(block: &Block) -> bool {
    match block {
        Block::Text { text } => !is_blank(text),
        Block::Opaque { provider, .. } => provider == ANTHROPIC,
        Block::ToolUse(_) | Block::ToolResult { .. } => true,
    }
}

/// Bytes that a block adds to a request; none for a block that is not sent.
fn wire_bytes(block: &Block) -> usize {
    match block {
        block if !is_sent(block) => 0,
        Block::Text { text } => text.len(),
        Block::ToolUse(tool_use) => tool_use.name.len() + wire_input(&tool_use.input).to_string().len(),
        Block::ToolResult { content, .. } => content.len(),
        Block::Opaque { value, .. } => value.to_string().len(),
    }
}

/// Four bytes a token, and never none.
fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes / 4).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests;
