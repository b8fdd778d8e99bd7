//! From the chunks of a stream to one whole reply. Pure: it is fed the JSON of one chunk after the other.
//!
//! A reply is whole when a chunk has said why it ended, and the stream then ended in good order: with `[DONE]`, or without, as some
//! servers do. What servers differ in:
//!
//! | server | what it does |
//! |---|---|
//! | OpenAI, vLLM | the usage comes in a chunk of its own, without choices, behind the finish reason |
//! | Ollama, llama.cpp | a tool call comes whole in one chunk; the finish reason may be `stop` all the same |
//! | vLLM | the role is repeated, content is `null`, an error is a chunk |
//! | OpenRouter | comments while it waits, errors as a chunk with a code, reasoning as `reasoning_details` |
//! | Gemini's adapter | parallel calls all have the index 0, some without ids; a call has a signature, and without it the next request is refused |
//! | xAI | reasoning is in the total but not in the completion's tokens |
//! | some doors to `MiniMax` and Gemini | the name of a call is repeated with every piece, or comes in pieces itself |
//! | Moonshot | the usage is in the choice |
//! | Groq | the usage, and what broke a reply off, are in a field of its own (`x_groq`) |

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ua_core::{Block, ModelTurn, StopReason, ToolUse, Usage, parse_strict};

use super::arguments::Arguments;
use super::as_text::{Offered, WRITTEN, asks_for_tool, offered_in};
use super::names::{Ids, OPENAI_LONGEST, mapped, offered_name};
use super::{OF_CALLS, reasoning};
use crate::OPENAI_CHAT;
use crate::estimate::heard_so_far;
use crate::http::events::{Assemble, Fault, Progress, ended_with, in_words, is_end_mark, known_event, object_of};
use crate::http::{lenient, reject, stop_words};
use crate::provider::Ending;
use crate::request::ModelRequest;

/// The code of a refusal that refuses what the model said.
const TOOL_USE_FAILED: &str = "tool_use_failed";

/// The part of a reply that has arrived.
#[derive(Debug)]
pub(crate) struct Assembler {
    ids: Ids,
    /// The tools whose names are others on this wire.
    renamed: Vec<(String, String)>,
    /// The tools as they are offered on this wire.
    offered: Offered,
    asked_model: String,
    id: Option<String>,
    model: Option<String>,
    text: String,
    refusal: String,
    reasoning: Reasoning,
    calls: Vec<PartialCall>,
    /// Where the newest call of each index stands.
    newest: HashMap<u64, usize>,
    /// Bytes of arguments that have arrived.
    argument_bytes: usize,
    /// The one call of a server that knows the field of before there were several.
    only_call: Option<PartialCall>,
    finish_reason: Option<String>,
    /// How it ended, as far as anybody has said.
    ended: String,
    usage: Option<Usage>,
    /// Whether any piece of a reply has arrived.
    has_begun: bool,
}

/// What a model thought, in the fields in which it came.
#[derive(Debug, Default)]
struct Reasoning {
    content: String,
    text: String,
    details: Vec<Value>,
    /// `LiteLLM`'s blocks of Claude's thoughts, which Claude wants to read again with its calls.
    blocks: Vec<Value>,
    /// What Gemini's door says of the whole, a signature for one.
    extra: Map<String, Value>,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: Arguments,
    /// What else the server said of it, which it wants to read again.
    more: Map<String, Value>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "lenient::list")]
    choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
    /// What Groq says besides.
    #[serde(default, deserialize_with = "lenient::maybe")]
    x_groq: Option<Besides>,
}

#[derive(Default, Deserialize)]
struct Besides {
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    #[serde(default)]
    delta: Option<Delta>,
    /// The whole of it, where nothing came in pieces.
    #[serde(default, deserialize_with = "lenient::maybe")]
    message: Option<Delta>,
    #[serde(default, deserialize_with = "lenient::text")]
    finish_reason: Option<String>,
    /// What the model behind a router said.
    #[serde(default, deserialize_with = "lenient::text")]
    native_finish_reason: Option<String>,
    /// What a filter found, as Azure says it.
    #[serde(default)]
    content_filter_results: Option<Value>,
    /// What it cost, as Moonshot says it.
    #[serde(default, deserialize_with = "lenient::maybe")]
    usage: Option<WireUsage>,
    /// What broke the reply off, as `OpenRouter` says it: beside any reason, it is no answer.
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    reasoning_content: Option<String>,
    #[serde(default, deserialize_with = "lenient::text")]
    reasoning: Option<String>,
    #[serde(default, deserialize_with = "lenient::values")]
    reasoning_details: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "lenient::values")]
    thinking_blocks: Option<Vec<Value>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    extra_content: Option<Map<String, Value>>,
    #[serde(default, deserialize_with = "lenient::list")]
    tool_calls: Option<Vec<CallDelta>>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    function_call: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct CallDelta {
    #[serde(default, deserialize_with = "lenient::count")]
    index: Option<u64>,
    #[serde(default, deserialize_with = "lenient::text")]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionDelta>,
    /// Gemini's signatures, for one, as `extra_content` or `provider_specific_fields`.
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Default, Deserialize)]
struct FunctionDelta {
    #[serde(default, deserialize_with = "lenient::text")]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct WireUsage {
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    completion_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::count")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "lenient::maybe")]
    prompt_tokens_details: Option<PromptDetails>,
    /// `DeepSeek`'s name for what was read from its cache.
    #[serde(default, deserialize_with = "lenient::count")]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Debug, Clone, Deserialize)]
struct PromptDetails {
    #[serde(default, deserialize_with = "lenient::count")]
    cached_tokens: Option<u64>,
    /// What `OpenRouter` adds for providers that bill writing to a cache.
    #[serde(default, deserialize_with = "lenient::count")]
    cache_write_tokens: Option<u64>,
}

impl Assembler {
    /// Nothing has arrived yet of the reply to `request`.
    pub(crate) fn new(request: &ModelRequest) -> Self {
        Self {
            ids: Ids::of(request),
            renamed: mapped(request, OPENAI_LONGEST),
            offered: offered_in(request, OPENAI_LONGEST),
            asked_model: request.model.clone(),
            id: None,
            model: None,
            text: String::new(),
            refusal: String::new(),
            reasoning: Reasoning::default(),
            calls: Vec::new(),
            newest: HashMap::new(),
            argument_bytes: 0,
            only_call: None,
            finish_reason: None,
            ended: String::new(),
            usage: None,
            has_begun: false,
        }
    }

    fn take(&mut self, chunk: Chunk) -> Result<Progress, Fault> {
        let besides = chunk.x_groq.unwrap_or_default();
        if let Some(error) = [chunk.error, besides.error].into_iter().flatten().find(|error| !error.is_null()) {
            return Err(reported(&error));
        }
        let usage = [chunk.usage, besides.usage].into_iter().flatten().find(WireUsage::says_something);
        let is_counted = usage.is_some();
        self.usage = usage.map(WireUsage::total).or(self.usage);
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = Some(model);
        }
        let mut said = String::new();
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.is_none_or(|index| index == 0)) {
            if let Some(error) = choice.error.filter(|error| !error.is_null()) {
                return Err(reported(&error));
            }
            if let Some(usage) = choice.usage.filter(|usage| !is_counted && usage.says_something()) {
                self.usage = Some(usage.total());
            }
            if let Some(delta) = choice.delta {
                said.push_str(&self.extend(delta));
            }
            if let Some(message) = choice.message.filter(|_| !self.has_said_something()) {
                self.reasoning = Reasoning::default();
                said.push_str(&self.extend(message));
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                if is_outage(&reason) {
                    return Err(Fault::Reported { kind: reason, message: "the reply ended in an error".to_owned() });
                }
                let native = choice.native_finish_reason.filter(|native| *native != reason);
                let is_whole = matches!(reason.as_str(), "stop" | "tool_calls" | "function_call");
                let other = native.as_deref().filter(|_| is_whole).and_then(unless_whole);
                let reason = other.map_or(reason, str::to_owned);
                let found = choice.content_filter_results.and_then(filtered);
                let details: Vec<String> = native.into_iter().chain(found).collect();
                self.ended = ended_with(&reason, &details.join(", ").into());
                self.finish_reason = Some(reason);
            }
        }
        self.has_begun = true;
        let named = chunk.id.filter(|id| self.id.is_none() && !id.is_empty());
        if named.is_some() {
            self.id.clone_from(&named);
        }
        // This wire has no session to go on with, so the id is not missed where a text comes with it.
        match (said.is_empty(), named) {
            (false, _) => Ok(Progress::Text(said)),
            (true, Some(id)) => Ok(Progress::Session(id)),
            (true, None) => Ok(Progress::Nothing),
        }
    }

    /// Takes a piece in, and returns the text that it brought.
    fn extend(&mut self, delta: Delta) -> String {
        let mut said = delta.content.map(text_in).unwrap_or_default();
        self.text.push_str(&said);
        if let Some(refusal) = delta.refusal {
            self.refusal.push_str(&refusal);
            said.push_str(&refusal);
        }
        self.reasoning.content.push_str(&delta.reasoning_content.unwrap_or_default());
        self.reasoning.text.push_str(&delta.reasoning.unwrap_or_default());
        self.reasoning.details.extend(delta.reasoning_details.unwrap_or_default());
        self.reasoning.blocks.extend(delta.thinking_blocks.unwrap_or_default());
        self.reasoning.extra.extend(delta.extra_content.unwrap_or_default());
        for call in delta.tool_calls.into_iter().flatten() {
            self.extend_call(call);
        }
        if let Some(function) = delta.function_call {
            self.argument_bytes += self.only_call.get_or_insert_default().extend(function);
        }
        said
    }

    fn has_said_something(&self) -> bool {
        let asks = !self.calls.is_empty() || self.only_call.is_some();
        !self.text.is_empty() || !self.refusal.is_empty() || asks
    }

    fn extend_call(&mut self, delta: CallDelta) {
        let id = delta.id.unwrap_or_default();
        let function = delta.function.unwrap_or_default();
        let has_name = function.name.as_ref().is_some_and(|name| !name.is_empty());
        // A piece continues the newest call of its index, unless it has another id, or begins a call itself where that one is whole: some servers
        // give every call the index 0, and no id.
        let goes_on = |call: &PartialCall| {
            if id.is_empty() || call.id.is_empty() { !call.is_followed_by(&function) } else { call.id == id }
        };
        let newest = match delta.index {
            Some(index) => {
                let place = self.newest.get(&index).copied();
                place.and_then(|place| self.calls.get_mut(place)).filter(|call| goes_on(call))
            }
            None => self.calls.last_mut().filter(|call| goes_on(call) && (!has_name || call.name.is_empty())),
        };
        let call = if let Some(call) = newest {
            call
        } else {
            if let Some(index) = delta.index {
                self.newest.insert(index, self.calls.len());
            }
            self.calls.push(PartialCall::default());
            let Some(call) = self.calls.last_mut() else { unreachable!("a call was just added") };
            call
        };
        call.more.extend(said_besides(delta.more));
        if call.id.is_empty() {
            call.id = id;
        }
        self.argument_bytes += call.extend(function);
    }

    /// The reply, once its stream has ended in good order.
    fn finish(&mut self) -> ModelTurn {
        let said_something = self.has_said_something();
        // Who has both fields says the same in both.
        let only_call = self.only_call.take().filter(|_| self.calls.is_empty());
        self.calls.extend(only_call);
        let asks = !self.calls.is_empty() && self.calls.iter().all(PartialCall::is_whole) && self.refusal.is_empty();
        let stop_reason = match self.finish_reason.take() {
            Some(reason) => stop_reason(&reason, !self.calls.is_empty(), !self.refusal.is_empty()),
            // It ended, and nothing says how: what was asked for in whole was asked for, and a text may have been cut.
            None if asks => StopReason::ToolUse,
            None if said_something => StopReason::Other,
            // An empty reply, as Gemini's door sends one.
            None => StopReason::EndTurn,
        };
        let is_last_word =
            self.calls.is_empty() && matches!(stop_reason, StopReason::EndTurn | StopReason::StopSequence);
        let stop_reason = if is_last_word && asks_for_tool(&self.text, &self.offered) {
            // It asks for a tool, and the server has not read that.
            let more = if self.ended.is_empty() { "" } else { "; " };
            self.ended = format!("{}{more}{WRITTEN}", self.ended);
            StopReason::ToolUse
        } else {
            stop_reason
        };
        let mut blocks: Vec<Block> = std::mem::take(&mut self.reasoning).block().into_iter().collect();
        for text in [std::mem::take(&mut self.text), std::mem::take(&mut self.refusal)] {
            if !text.is_empty() {
                blocks.push(Block::Text { text });
            }
        }
        let mut calls = std::mem::take(&mut self.calls);
        blocks.extend(more_of(&mut calls));
        for (position, call) in calls.into_iter().enumerate() {
            blocks.push(Block::ToolUse(ToolUse {
                id: self.ids.take(&call.id, position),
                name: offered_name(call.name, &self.renamed),
                input: read_arguments(call.arguments.into_text()),
            }));
        }
        ModelTurn {
            blocks,
            stop_reason,
            usage: self.usage.take(),
            model: self.model.take().unwrap_or_else(|| self.asked_model.clone()),
            response_id: self.id.take(),
        }
    }
}

impl PartialCall {
    /// Takes a piece in, and returns by how many bytes of arguments it grew.
    fn extend(&mut self, FunctionDelta { name, arguments, more }: FunctionDelta) -> usize {
        let before = self.arguments.len();
        let more: Map<String, Value> = said_besides(more).collect();
        if !more.is_empty() {
            match self.more.entry("function").or_insert_with(|| Value::Object(Map::new())) {
                Value::Object(known) => known.extend(more),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
            }
        }
        self.take_name(name.unwrap_or_default());
        match arguments {
            // Behind what is whole another object would make it none: it stands in its place.
            Some(Value::String(whole)) if self.is_said_again_in(&whole) => self.arguments.replace(&whole),
            Some(Value::String(piece)) => self.arguments.push(&piece),
            Some(whole @ (Value::Object(_) | Value::Array(_))) => self.arguments.replace(&whole.to_string()),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => {}
        }
        self.arguments.len().saturating_sub(before)
    }

    /// Takes in what a piece names. Most servers name a call once, some repeat its name with every piece (`MiniMax` behind NVIDIA's door), and
    /// some send it in pieces in front of the arguments (`edit_ex`, `isting_file`, Gemini behind other doors).
    fn take_name(&mut self, piece: String) {
        if self.name.is_empty() || piece.starts_with(&self.name) {
            // The first of it, the same again, or the same with more.
            self.name = piece;
        } else if self.arguments.len() == 0 {
            self.name.push_str(&piece);
        }
    }

    /// Whether this, which names a function, is the next call: whatever it said would not fit behind what was asked for in whole. Some servers repeat
    /// what they have said, or say it with more, and some begin with an empty object.
    fn is_followed_by(&self, function: &FunctionDelta) -> bool {
        let Some(name) = function.name.as_deref().filter(|name| !name.is_empty() && self.is_whole()) else {
            return false;
        };
        let is_repeated = match &function.arguments {
            Some(Value::String(piece)) => piece.is_empty() || self.is_said_again_in(piece),
            Some(whole @ (Value::Object(_) | Value::Array(_))) => self.is_held_by(whole),
            Some(Value::Null | Value::Bool(_) | Value::Number(_)) | None => true,
        };
        let has_begun = self.arguments.object().is_some_and(Map::is_empty);
        name != self.name || !(is_repeated || has_begun)
    }

    /// Whether the arguments are whole, and a text is an object that holds all of them.
    fn is_said_again_in(&self, text: &str) -> bool {
        // A piece of what is not whole yet is not even read.
        self.arguments.object().is_some() && parse_strict(text).is_ok_and(|said| self.is_held_by(&said))
    }

    /// Whether the arguments are whole, and an object has each field of them with the same value.
    fn is_held_by(&self, said: &Value) -> bool {
        let Some(said) = said.as_object() else { return false };
        let is_held = |known: &Map<String, Value>| known.iter().all(|(field, value)| said.get(field) == Some(value));
        self.arguments.object().is_some_and(is_held)
    }

    /// Whether nothing of it can be missing.
    fn is_whole(&self) -> bool {
        !self.name.is_empty() && self.arguments.object().is_some()
    }
}

/// What is said of a call, or of its function, beside what every server says.
fn said_besides(more: Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    more.into_iter().filter(|(name, value)| name != "type" && !value.is_null())
}

impl Assemble for Assembler {
    fn as_events(&self, reply: Map<String, Value>) -> Option<Vec<String>> {
        let is_error = reply.get("error").is_some_and(|error| !error.is_null());
        let choices = reply.get("choices").and_then(Value::as_array);
        let is_reply = choices.is_some_and(|choices| choices.iter().any(|choice| choice["message"].is_object()));
        (is_reply && !is_error).then(|| vec![Value::Object(reply).to_string(), "[DONE]".to_owned()])
    }

    fn refused_as_events(&self, body: &str) -> Option<Vec<String>> {
        let error = reject::error_in(body)?;
        if error["code"] != TOOL_USE_FAILED {
            return None;
        }
        // Groq's: the model asked for a call in a form that is none, or for a tool that is not there. The next reply may be another.
        let said = error["failed_generation"].as_str().or(error["message"].as_str()).unwrap_or_default();
        let reply = json!({"choices": [{"index": 0, "delta": {"content": said}, "finish_reason": TOOL_USE_FAILED}]});
        Some(vec![reply.to_string(), "[DONE]".to_owned()])
    }

    fn feed(&mut self, data: &str) -> Result<Progress, Fault> {
        if is_end_mark(data) {
            return Ok(Progress::Whole(self.finish()));
        }
        self.take(known_event(object_of(data)?)?)
    }

    fn end(&mut self) -> Option<Result<ModelTurn, Fault>> {
        // Without `[DONE]`, only a stated reason tells an end from a cut.
        self.finish_reason.is_some().then(|| Ok(self.finish()))
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    fn counted(&self) -> Option<Usage> {
        let thoughts = self.reasoning.content.len() + self.reasoning.text.len();
        heard_so_far(self.usage, (self.text_bytes() + thoughts + self.argument_bytes) as u64)
    }

    fn text_bytes(&self) -> usize {
        self.text.len() + self.refusal.len()
    }

    fn ending(&self) -> Ending {
        let said = if self.ended.is_empty() { "no finish reason".to_owned() } else { self.ended.clone() };
        let context_is_full = said.starts_with(stop_words::CONTEXT_IS_FULL);
        Ending { said, context_is_full }
    }
}

/// What a server said of the calls of a reply besides, in their order, as the block that keeps it.
fn more_of(calls: &mut [PartialCall]) -> Option<Block> {
    let more: Vec<Value> = calls.iter_mut().map(|call| Value::Object(std::mem::take(&mut call.more))).collect();
    let says_something = more.iter().any(|more| more.as_object().is_some_and(|more| !more.is_empty()));
    says_something.then(|| Block::Opaque { provider: OPENAI_CHAT.to_owned(), value: json!({ OF_CALLS: more }) })
}

impl Reasoning {
    fn block(self) -> Option<Block> {
        let mut value = Map::new();
        if !self.content.is_empty() {
            value.insert("reasoning_content".to_owned(), Value::String(self.content));
        }
        if !self.details.is_empty() {
            value.insert("reasoning_details".to_owned(), Value::Array(reasoning::whole(self.details)));
        } else if !self.text.is_empty() {
            value.insert("reasoning".to_owned(), Value::String(self.text));
        }
        if !self.blocks.is_empty() {
            value.insert("thinking_blocks".to_owned(), Value::Array(reasoning::whole(self.blocks)));
        }
        if !self.extra.is_empty() {
            value.insert("extra_content".to_owned(), Value::Object(self.extra));
        }
        (!value.is_empty()).then(|| Block::Opaque { provider: OPENAI_CHAT.to_owned(), value: Value::Object(value) })
    }
}

impl WireUsage {
    /// Some servers send an empty object in every chunk.
    fn says_something(&self) -> bool {
        self.prompt_tokens.is_some() || self.completion_tokens.is_some()
    }

    fn total(self) -> Usage {
        let completion = self.completion_tokens.unwrap_or(0);
        // Where the prompt was not counted by itself, it may be in the total.
        let of_total = self.total_tokens.map(|total| total.saturating_sub(completion));
        let prompt = self.prompt_tokens.filter(|count| *count > 0).or(of_total).unwrap_or(0);
        let details = self.prompt_tokens_details.as_ref();
        let read = details.and_then(|details| details.cached_tokens).or(self.prompt_cache_hit_tokens).unwrap_or(0);
        let written = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
        let read = read.min(prompt);
        let written = written.min(prompt - read);
        // Reasoning is billed as output; where it is not in the completion's tokens, it is in the total.
        let beyond_prompt = self.total_tokens.unwrap_or(0).saturating_sub(prompt);
        Usage {
            input_tokens: prompt - read - written,
            output_tokens: completion.max(beyond_prompt),
            cache_read_tokens: read,
            cache_write_tokens: written,
        }
    }
}

/// Whether a reply ended for what passes: the provider failed, was out of capacity (`DeepSeek`), lost its connection (`OpenRouter`, GLM), or was
/// made to stop (vLLM, `SGLang`). It is waited for, like an outage that a status tells.
fn is_outage(reason: &str) -> bool {
    matches!(reason, "error" | "insufficient_system_resource" | "network_error" | "abort")
}

/// What this wire calls it where a model's own word, which a service hands on beside `stop`, says that the reply did not end whole.
fn unless_whole(native: &str) -> Option<&'static str> {
    match native.to_ascii_lowercase().as_str() {
        "max_tokens" | "max_output_tokens" | "length" => Some("length"),
        "safety" | "content_filter" | "refusal" | "recitation" | "blocklist" | "prohibited_content" | "spii" => {
            Some("content_filter")
        }
        "malformed_function_call" | "unexpected_tool_call" => Some("malformed_function_call"),
        _ => None,
    }
}

fn stop_reason(reason: &str, has_calls: bool, is_refusal: bool) -> StopReason {
    if is_refusal {
        return StopReason::Refusal;
    }
    let known = stop_words::stop_reason(reason);
    // A server that was told to use a tool, or knows no better, says `stop` behind a whole call. One that asks for a tool where no call is there asks
    // for something that was lost on the way, and is no answer.
    if known == StopReason::EndTurn && has_calls { StopReason::ToolUse } else { known }
}

/// The streamed arguments, parsed; their text when they are not JSON of one meaning, so that the dispatcher can refuse them.
fn read_arguments(streamed: String) -> Value {
    if streamed.trim().is_empty() {
        return Value::Object(Map::new());
    }
    parse_strict(&streamed).unwrap_or(Value::String(streamed))
}

/// Content is text; some servers send it as a list of parts.
fn text_in(content: Value) -> String {
    match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

/// What a filter found, of all that it looked for.
fn filtered(results: Value) -> Option<String> {
    let Value::Object(results) = results else { return None };
    let found = results.into_iter().filter(|(_, result)| result["filtered"] == true || result["detected"] == true);
    let found: Vec<String> = found.map(|(what, _)| what).collect();
    (!found.is_empty()).then(|| format!("filtered: {}", found.join(", ")))
}

/// An error of a chunk: an object with a code, a type and a message, or just words.
fn reported(error: &Value) -> Fault {
    let kind = reject::kind_of(error);
    let kind = if kind.is_empty() { "error".to_owned() } else { kind };
    let message = reject::behind_a_router(error);
    let message =
        message.unwrap_or_else(|| in_words(if error["message"].is_null() { error } else { &error["message"] }));
    Fault::Reported { kind, message }
}
