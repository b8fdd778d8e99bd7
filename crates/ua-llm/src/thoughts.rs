//! Thoughts in a history: what of them a server takes back.
//!
//! A model's thoughts are kept as its provider gave them and go back unchanged, since signed ones count only so, and some servers want them. Others
//! refuse them, with the whole history: what another model thought, or another account, or the same one in front of a history that was shortened
//! since; or they know no such field at all. And some miss thoughts where a model without any made the calls. What was refused was free, so it is
//! asked once more in the form that the server takes, and in that form from then on. Nothing of the kept history changes.
//!
//! What is refused is what was sent; what the model thinks after that is sent again. A server that refuses that as well, or says that it knows no
//! such field, is sent no thoughts any more.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value, json};
use ua_core::{Block, Message, Role, sha256};

use crate::anthropic::wire::is_blank;
use crate::chat::OF_CALLS;
use crate::error::LlmError;
use crate::refusal::Refusal;
use crate::request::ModelRequest;
use crate::{ANTHROPIC, OPENAI_CHAT};

/// How refusals speak of thoughts in a history.
const THOUGHTS: [&str; 7] =
    ["signature", "thinking", "thought", "reasoning", "encrypted content", "encrypted_content", "'rs_"];
/// How they speak of how a model is to think, which no history has.
const SETTINGS: [&str; 10] = [
    "effort",
    "budget",
    "thinking.type",
    "thinking_level",
    "thinking_config",
    "thinkingconfig",
    "enable_thinking",
    "tool_choice",
    "temperature",
    "max_tokens",
];
/// How they say that something is not there which has to be.
const MISSING: [&str; 5] =
    ["missing", "must be passed back", "must start with a thinking block", "expected `thinking`", "is required"];
/// How they say that they do not know what is there.
const UNKNOWN: [&str; 10] = [
    "unsupported",
    "not supported",
    "not support",
    "extra_forbidden",
    "extra inputs",
    "not permitted",
    "unknown",
    "unrecognized",
    "unexpected",
    "additional propert",
];
/// The signatures of calls, as Gemini has them on the wire of Chat Completions.
const SIGNATURES: [&str; 3] = ["thought_signature", "thought signature", "thoughtsignature"];
/// What Google documents for a call that its model did not make, and so did not sign.
const PLACEHOLDER: &str = "skip_thought_signature_validator";
/// The thoughts of a reply that has none, for servers that want some beside calls.
const NO_THOUGHTS: &str = " ";
/// How often thoughts are refused before none are sent any more.
const MOST_TIMES: u8 = 3;
/// How often one request is asked in another form.
const MOST_LESSONS: usize = 4;

/// The kind of thinking that has a budget of tokens, as Anthropic calls it.
pub(crate) const BUDGET: &str = "enabled";

/// What a server has refused of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Refused {
    /// Digests of the blocks that it was sent.
    blocks: BTreeSet<String>,
    times: u8,
    is_all: bool,
}

impl Refused {
    fn has(&self, digest: &str) -> bool {
        self.is_all || self.blocks.contains(digest)
    }

    fn take(&mut self, blocks: BTreeSet<String>, is_unknown: bool) {
        self.times = self.times.saturating_add(1);
        self.is_all |= is_unknown || self.times >= MOST_TIMES;
        self.blocks.extend(blocks);
    }
}

/// What is known of one model there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    thoughts: Refused,
    /// What its server said of calls besides, their signatures.
    of_calls: Refused,
    /// Whether a call wants a signature.
    signs: bool,
    /// Whether a reply with calls wants thoughts.
    fills: bool,
    /// Whether a turn with calls has to begin with thoughts for the model to be asked to think so many tokens.
    pub(crate) is_strict: bool,
    /// Kinds of thinking that it does not know.
    pub(crate) kinds: BTreeSet<String>,
}

/// What a server takes back of what its models thought.
#[derive(Debug)]
pub(crate) struct ThoughtsThere {
    /// Whose blocks go there.
    owner: &'static str,
    is_strict: bool,
    of_models: Mutex<BTreeMap<String, Arc<Known>>>,
}

/// What was learnt while one request was asked.
#[derive(Debug, Default)]
pub(crate) struct Lessons {
    /// The refusals, in small letters, each with whether it was taken for one of the kind of thinking that was asked for.
    refusals: Vec<(String, bool)>,
    /// What was known before the newest words came first.
    before_the_last: Option<Arc<Known>>,
}

impl ThoughtsThere {
    /// Of a server that takes blocks of `owner`. One that is strict wants thoughts in front of the calls of a model that is to think so many tokens.
    pub(crate) fn new(owner: &'static str, is_strict: bool) -> Self {
        Self { owner, is_strict, of_models: Mutex::default() }
    }

    /// What is known of a model there.
    pub(crate) fn known(&self, model: &str) -> Arc<Known> {
        let known = self.of_models.lock().unwrap_or_else(PoisonError::into_inner).get(model).cloned();
        known.unwrap_or_else(|| Arc::new(Known { is_strict: self.is_strict, ..Known::default() }))
    }

    fn keep(&self, model: &str, known: Arc<Known>) {
        self.of_models.lock().unwrap_or_else(PoisonError::into_inner).insert(model.to_owned(), known);
    }

    /// The request as it goes to the server.
    pub(crate) fn in_form<'r>(&self, request: &'r ModelRequest) -> Cow<'r, ModelRequest> {
        self.known(&request.model).applied(self.owner, request)
    }

    /// The request without any thoughts.
    pub(crate) fn without_any<'r>(&self, request: &'r ModelRequest) -> Cow<'r, ModelRequest> {
        let none = Refused { is_all: true, ..Refused::default() };
        Known { thoughts: none, ..Known::default() }.applied(self.owner, request)
    }

    /// Whether a request that went there as `sent`, asking for a kind of thinking or for none, and was refused for its thoughts, can be asked once
    /// more in another form; what was refused was free. From then on it goes in that form. A form that is refused in the same words did not help, and
    /// is forgotten; but who takes no kind of thinking says so of one kind after the other in the same words, and is asked without any.
    pub(crate) fn learns_from(
        &self,
        refused: Refusal<'_>,
        sent: &ModelRequest,
        sent_kind: Option<&str>,
        lessons: &mut Lessons,
    ) -> bool {
        let error = refused.error();
        if !may_be_of_thoughts(error) {
            return false;
        }
        let said = error.to_string().to_ascii_lowercase();
        // The id of a request is another one each time.
        let said = said.split(" (request ").next().unwrap_or_default().to_owned();
        let kind = sent_kind.filter(|kind| refuses_kind(&said, kind));
        let is_in_vain = kind.is_none() && lessons.refusals.iter().any(|(known, of_kind)| *known == said && !of_kind);
        if is_in_vain || lessons.refusals.len() >= MOST_LESSONS {
            if let Some(before) = lessons.before_the_last.take() {
                self.keep(&sent.model, before);
            }
            return false;
        }
        let known = self.known(&sent.model);
        let mut learnt = (*known).clone();
        if let Some(kind) = kind {
            learnt.kinds.insert(kind.to_owned());
        } else {
            learnt.take(self.owner, &said, sent);
        }
        // Another form is one that makes another request.
        let is_other = learnt.kinds != known.kinds
            || (learnt.is_strict
                && !known.is_strict
                && sent_kind == Some(BUDGET)
                && begins_without_thoughts(&sent.messages))
            || matches!(learnt.applied(self.owner, sent), Cow::Owned(_));
        if is_other {
            tracing::info!(model = sent.model, why = said, "the provider refused thoughts, asking again without them");
            if lessons.refusals.iter().all(|(known, _)| *known != said) {
                lessons.before_the_last = Some(known);
            }
            lessons.refusals.push((said, kind.is_some()));
            self.keep(&sent.model, Arc::new(learnt));
        }
        is_other
    }
}

impl Known {
    /// What a refusal says, in small letters, of a request that went as `sent`.
    fn take(&mut self, owner: &str, said: &str, sent: &ModelRequest) {
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        let (is_missing, is_unknown) = (has(&MISSING), has(&UNKNOWN));
        let is_chat = owner == OPENAI_CHAT;
        // How the model is to think is the job's matter.
        if has(&SETTINGS) && !said.contains("signature") {
            return;
        }
        if is_chat && has(&SIGNATURES) {
            self.signs = true;
            if !is_missing {
                self.of_calls.take(own_blocks(owner, sent), false);
            }
        } else if is_chat && said.contains("extra_content") {
            self.of_calls.take(own_blocks(owner, sent), is_unknown);
            self.thoughts.take(own_blocks(owner, sent), is_unknown);
        } else if is_missing && is_chat && said.contains("reasoning_content") {
            self.fills = true;
        } else if is_missing && owner == ANTHROPIC && said.contains("thinking") && !said.contains("signature") {
            self.is_strict = true;
        } else if has(&THOUGHTS) {
            self.thoughts.take(own_blocks(owner, sent), is_unknown);
            self.is_strict |= owner == ANTHROPIC;
        }
    }

    /// A request as it goes to a server of which this is known.
    fn applied<'r>(&self, owner: &str, request: &'r ModelRequest) -> Cow<'r, ModelRequest> {
        let is_anything = self.signs || self.fills;
        let refuses = |refused: &Refused| refused.is_all || !refused.blocks.is_empty();
        if !is_anything && !refuses(&self.thoughts) && !refuses(&self.of_calls) {
            return Cow::Borrowed(request);
        }
        let mut changed: Option<ModelRequest> = None;
        for (place, message) in request.messages.iter().enumerate() {
            if message.role != Role::Assistant {
                continue;
            }
            let blocks = self.blocks_of(owner, message);
            if message.blocks != blocks {
                changed.get_or_insert_with(|| request.clone()).messages[place].blocks = blocks.into();
            }
        }
        changed.map_or(Cow::Borrowed(request), Cow::Owned)
    }

    fn blocks_of(&self, owner: &str, message: &Message) -> Vec<Block> {
        let mut blocks: Vec<Block> = message.blocks.iter().filter_map(|block| self.left_of(owner, block)).collect();
        if owner == OPENAI_CHAT && message.tool_uses().next().is_some() {
            if self.signs {
                sign(&mut blocks);
            }
            if self.fills && !blocks.iter().any(has_thoughts) {
                blocks.insert(0, of_chat(json!({"reasoning_content": NO_THOUGHTS})));
            }
        }
        blocks
    }

    /// What is sent of a block.
    fn left_of(&self, owner: &str, block: &Block) -> Option<Block> {
        let Some(value) = own(owner, block) else { return Some(block.clone()) };
        let digest = digest(value);
        let (no_thoughts, no_more) = (self.thoughts.has(&digest), self.of_calls.has(&digest));
        if owner != OPENAI_CHAT {
            return (!no_thoughts).then(|| block.clone());
        }
        if !no_thoughts && !no_more {
            return Some(block.clone());
        }
        let is_left = |(name, _): &(&String, &Value)| if *name == OF_CALLS { !no_more } else { !no_thoughts };
        let fields = value.as_object()?.iter().filter(is_left);
        let fields: Map<String, Value> = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        (!fields.is_empty()).then(|| of_chat(Value::Object(fields)))
    }
}

/// Whether an error may be a refusal of what a history has, and not of who asks, of how often or of how much.
fn may_be_of_thoughts(error: &LlmError) -> bool {
    matches!(
        error,
        LlmError::InvalidRequest { .. }
            | LlmError::Server { .. }
            | LlmError::Hopeless { .. }
            | LlmError::NotFound { .. }
            | LlmError::NoEndpoint { .. }
    )
}

/// Whether a refusal in small letters says that the model does not think in the way of this kind: `"thinking.type.enabled" is not supported for this
/// model`, `Input tag 'adaptive' found using 'type' does not match any of the expected tags`.
fn refuses_kind(said: &str, kind: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if !has(&["thinking", "budget_tokens"]) || has(&["signature", "messages.", "block", "tool_choice", "temperature"]) {
        return false;
    }
    let names_another = said.contains("thinking.type.") && !said.contains(&format!("thinking.type.{kind}"));
    !names_another && (said.contains("input tag") || has(&UNKNOWN))
}

/// Whether the newest turn of the model is one with calls that does not begin with thoughts. With a budget of thoughts, the API takes no such turn.
pub(crate) fn begins_without_thoughts(messages: &[Message]) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    let mut speeches = messages.chunk_by(|a, b| a.role == b.role).rev();
    let mut begin = None;
    while let (Some(user), Some(assistant)) = (speeches.next(), speeches.next()) {
        let has_results = user.iter().flat_map(|message| &message.blocks).any(is_result);
        if user[0].role != Role::User || !has_results {
            break;
        }
        begin = Some(assistant);
    }
    let Some(begin) = begin else { return false };
    let is_said = |block: &&Block| !matches!(block, Block::Text { text } if is_blank(text));
    let first = begin.iter().flat_map(|message| &message.blocks).find(is_said);
    let kind = first.and_then(|block| own(ANTHROPIC, block)).and_then(|value| value["type"].as_str());
    !matches!(kind, Some("thinking" | "redacted_thinking"))
}

fn own<'b>(owner: &str, block: &'b Block) -> Option<&'b Value> {
    match block {
        Block::Opaque { provider, value } if provider == owner => Some(value),
        Block::Opaque { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
    }
}

/// The digests of what a request has of its wire's own.
fn own_blocks(owner: &str, request: &ModelRequest) -> BTreeSet<String> {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    blocks.filter_map(|block| own(owner, block)).map(digest).collect()
}

fn digest(value: &Value) -> String {
    sha256(value.to_string()).to_hex()
}

fn of_chat(value: Value) -> Block {
    Block::Opaque { provider: OPENAI_CHAT.to_owned(), value }
}

fn has_thoughts(block: &Block) -> bool {
    let thoughts = own(OPENAI_CHAT, block).and_then(|value| value["reasoning_content"].as_str());
    thoughts.is_some_and(|thoughts| !thoughts.is_empty())
}

/// Gives the first call of a reply a signature, where it has none; the others need none.
fn sign(blocks: &mut Vec<Block>) {
    let signature = || json!({"google": {"thought_signature": PLACEHOLDER}});
    let kept = blocks.iter_mut().find_map(|block| match block {
        Block::Opaque { provider, value } if provider == OPENAI_CHAT => value.get_mut(OF_CALLS),
        Block::Opaque { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
    });
    match kept {
        None => blocks.insert(0, of_chat(json!({ OF_CALLS: [{"extra_content": signature()}] }))),
        Some(of_calls) => {
            let first = of_calls.as_array_mut().and_then(|calls| calls.first_mut()).and_then(Value::as_object_mut);
            if let Some(first) = first
                && !Value::Object(first.clone()).to_string().contains(SIGNATURES[0])
            {
                first.insert("extra_content".to_owned(), signature());
            }
        }
    }
}
