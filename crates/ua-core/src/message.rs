//! Messages between the run and a model, independent of any provider's wire format.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::blob::{BlobRef, ToolText};
use crate::shared::Shared;
use crate::status::text_enum;
use crate::tool::ToolUse;

text_enum! {
    /// Who speaks.
    Role {
        /// The run: prompt, tool results, notes.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

text_enum! {
    /// Why a message is in the history.
    Origin {
        /// The job.
        Prompt = "prompt",
        /// The model's reply.
        Model = "model",
        /// Results of tool calls.
        Tools = "tools",
        /// The runner: a phase begins.
        Phase = "phase",
        /// The runner: an iteration begins, with an empty context; what stands before it is not sent any more.
        Iteration = "iteration",
        /// What the run told the model to go on with, when it stopped too early.
        Guidance = "guidance",
        /// The note after a resume; left out when histories are compared.
        Resume = "resume",
        /// Stands for messages that are left out of a request; never stored.
        Omission = "omission",
    }
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model asks for a tool.
    ToolUse(ToolUse),
    /// The one answer to one tool use.
    ToolResult {
        /// The tool use's id.
        tool_use_id: String,
        /// What the model reads; a large one is a reference until the request is composed.
        content: ToolText,
        /// Whether it is to be read as an error.
        is_error: bool,
    },
    /// Something only one provider understands (a thinking block); carried through unchanged.
    Opaque {
        /// The provider that made it.
        provider: String,
        /// Its JSON.
        value: Value,
    },
}

impl Block {
    /// Makes a text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// How many bytes somebody wrote for it: its text, its name and arguments, or its JSON.
    pub fn written_bytes(&self) -> usize {
        match self {
            Self::Text { text } => text.len(),
            Self::ToolUse(tool_use) => tool_use.name.len() + tool_use.input.to_string().len(),
            Self::ToolResult { content, .. } => content.len(),
            Self::Opaque { value, .. } => value.to_string().len(),
        }
    }
}

/// The blocks of a message.
pub type Blocks = Shared<Vec<Block>>;

/// One message of the history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Why it is here.
    pub origin: Origin,
    /// What is said, in order.
    pub blocks: Blocks,
}

impl Message {
    /// A user message of one text block.
    pub fn user(origin: Origin, text: impl Into<String>) -> Self {
        Self { role: Role::User, origin, blocks: vec![Block::text(text)].into() }
    }

    /// The text blocks, joined by blank lines.
    pub fn text(&self) -> String {
        joined_text(&self.blocks)
    }

    /// The tool uses, in block order.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        tool_uses(&self.blocks)
    }

    /// The blobs that its tool results refer to.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobRef> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolResult { content, .. } => content.blob(),
            Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
        })
    }
}

const OMISSION: (&str, &str) = ("... [Context Truncated: ", " messages omitted] ...");

/// The message that stands for `count` messages which a request leaves out (Granular Execution PRD §8.2). It is the user's, since
/// providers refuse a system message in the middle of a history.
pub fn omission(count: usize) -> Message {
    Message::user(Origin::Omission, format!("{}{count}{}", OMISSION.0, OMISSION.1))
}

/// Whether `text` reads like that of an [`omission`].
pub fn is_omission(text: &str) -> bool {
    let count = text.strip_prefix(OMISSION.0).and_then(|rest| rest.strip_suffix(OMISSION.1));
    count.is_some_and(|count| !count.is_empty() && count.bytes().all(|digit| digit.is_ascii_digit()))
}

fn joined_text(blocks: &[Block]) -> String {
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        })
        .collect();
    texts.join("\n\n")
}

fn tool_uses(blocks: &[Block]) -> impl Iterator<Item = &ToolUse> {
    blocks.iter().filter_map(|block| match block {
        Block::ToolUse(tool_use) => Some(tool_use),
        Block::Text { .. } | Block::ToolResult { .. } | Block::Opaque { .. } => None,
    })
}

text_enum! {
    /// Why a reply ended. Tool uses count only in a reply that ended by asking for them.
    StopReason {
        /// The model had nothing more to say.
        EndTurn = "end_turn",
        /// The model waits for tool results.
        ToolUse = "tool_use",
        /// The output limit cut it.
        MaxTokens = "max_tokens",
        /// A stop sequence cut it.
        StopSequence = "stop_sequence",
        /// The provider refused.
        Refusal = "refusal",
        /// The provider paused a long turn.
        PauseTurn = "pause_turn",
        /// Something this build does not know.
        Other = "other",
    }
}

/// Tokens of one request, as the provider billed them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Input tokens read from a cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Input tokens written to a cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
}

impl Usage {
    /// All tokens. What a provider says is no reason to end: sums stay at the most that can be counted.
    pub const fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output_tokens)
    }

    /// All tokens of the input, wherever they were read from.
    pub const fn input_total(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }

    /// Adds another request's tokens.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
        }
    }

    /// Of each count the greater: two accounts of one request.
    #[must_use]
    pub fn most_of(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.max(other.input_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.max(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.max(other.cache_write_tokens),
        }
    }
}

/// A model's whole reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTurn {
    /// What it said and asked for.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub stop_reason: StopReason,
    /// What it cost; `None` when the provider did not say.
    pub usage: Option<Usage>,
    /// The model that answered.
    pub model: String,
    /// The provider's id of the response.
    pub response_id: Option<String>,
}

impl ModelTurn {
    /// The text blocks, joined by blank lines.
    pub fn text(&self) -> String {
        joined_text(&self.blocks)
    }

    /// The tool uses, in block order, whether or not they count.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        tool_uses(&self.blocks)
    }

    /// The reply as a message of the history.
    pub fn into_message(self) -> Message {
        Message { role: Role::Assistant, origin: Origin::Model, blocks: self.blocks.into() }
    }
}
