//! The server's side of the Responses API: requests are read strictly, replies are kept by their names, and written in many small
//! typed events.
//!
//! What is refused here is refused by the real API: a reply to continue from that nobody knows, a result without its call, a call
//! without its result, thoughts that came back changed, alone, or as a mere reference.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Role, StopReason, ToolUse};
use ua_llm::ANTHROPIC;

use super::Refusal;
use super::chat::EFFORTS;
use super::fault::Frames;
use super::wire::frame;

/// The conversations that were kept: by the name of a reply, everything up to it and with it.
pub(super) type Kept = BTreeMap<String, Vec<Value>>;

/// A request, as far as the script needs it.
pub(super) struct Request {
    pub(super) model: String,
    pub(super) system: String,
    /// The whole conversation, what is continued from included.
    pub(super) messages: Vec<Message>,
    pub(super) stream: bool,
    /// The reply that it continues from.
    pub(super) continued_from: Option<String>,
    /// The whole conversation as it is kept; `None` when nothing is to be kept.
    pub(super) to_keep: Option<Vec<Value>>,
    /// Whether thoughts are sent along.
    pub(super) with_thoughts: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRequest {
    model: String,
    input: Vec<Value>,
    #[serde(default)]
    instructions: Option<String>,
    max_output_tokens: u32,
    #[serde(default)]
    tools: Vec<WireTool>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    include: Vec<String>,
    #[serde(default = "yes")]
    store: bool,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    reasoning: Option<Reasoning>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasoning {
    effort: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTool {
    r#type: String,
    name: String,
    #[serde(default)]
    #[expect(dead_code, reason = "whatever it says is fine")]
    description: String,
    parameters: Value,
    strict: bool,
}

fn yes() -> bool {
    true
}

/// Reads a request; the error is what the API would say about it.
pub(super) fn decode(body: &Value, kept: &Kept) -> Result<Request, Refusal> {
    let request = WireRequest::deserialize(body).map_err(|error| invalid(&error.to_string()))?;
    if request.model.is_empty() {
        return Err(invalid("you must provide a model parameter"));
    }
    if request.max_output_tokens < 16 {
        return Err(invalid("Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16"));
    }
    if request.input.is_empty() {
        return Err(invalid("Invalid 'input': empty array"));
    }
    if request.parallel_tool_calls.is_some() && request.tools.is_empty() {
        return Err(invalid("'parallel_tool_calls' is only allowed when 'tools' are specified."));
    }
    if request.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err(invalid("Invalid 'temperature'"));
    }
    if request.reasoning.is_some_and(|reasoning| !EFFORTS.contains(&reasoning.effort.as_str())) {
        return Err(invalid("Invalid value: 'reasoning.effort'"));
    }
    check_tools(&request.tools)?;
    let with_thoughts = request.include.iter().any(|wanted| wanted == "reasoning.encrypted_content");
    if with_thoughts && !request.model.starts_with("gpt-5") {
        return Err(invalid("Encrypted content is not supported with this model."));
    }
    let mut items = match &request.previous_response_id {
        None => Vec::new(),
        Some(id) => kept.get(id).cloned().ok_or_else(|| not_found(id))?,
    };
    let known = items.len();
    items.extend(request.input);
    items[known..].iter().try_for_each(|item| check_item(item, request.store))?;
    check_order(&items)?;
    let messages = items.iter().map(message).collect::<Result<Vec<_>, _>>().map_err(|why| invalid(&why))?;
    Ok(Request {
        model: request.model,
        system: request.instructions.unwrap_or_default(),
        messages,
        stream: request.stream,
        continued_from: request.previous_response_id,
        to_keep: request.store.then_some(items),
        with_thoughts,
    })
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(400, message)
}

fn not_found(id: &str) -> Refusal {
    let refusal = Refusal::new(400, &format!("Previous response with id '{id}' not found."));
    Refusal { code: Some("previous_response_not_found"), param: Some("previous_response_id"), ..refusal }
}

fn check_tools(tools: &[WireTool]) -> Result<(), Refusal> {
    for (index, tool) in tools.iter().enumerate() {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if tool.r#type != "function" || tool.strict {
            return Err(invalid(&format!("tools[{index}]: this server knows functions that are not strict")));
        }
        if tool.name.is_empty() || tool.name.len() > 64 || !tool.name.chars().all(fits) {
            return Err(invalid(&format!("Invalid 'tools[{index}].name': at most 64 of '^[a-zA-Z0-9_-]+$'.")));
        }
        if tools[..index].iter().any(|earlier| earlier.name == tool.name) {
            return Err(invalid("Tool names must be unique."));
        }
        if tool.parameters["type"] != "object" {
            return Err(invalid(&format!("Invalid schema for function '{}': it must be of type object", tool.name)));
        }
    }
    Ok(())
}

fn check_item(item: &Value, store: bool) -> Result<(), Refusal> {
    if item.get("type").is_none() {
        let said = item["content"].as_str().is_some_and(|text| !text.is_empty());
        let is_easy = said && matches!(item["role"].as_str(), Some("user" | "assistant"));
        return if is_easy { Ok(()) } else { Err(invalid(&format!("Invalid value: {item}"))) };
    }
    let is_text = |field: &str| item[field].as_str().is_some_and(|text| !text.is_empty());
    match item["type"].as_str() {
        Some("message") => {
            let (role, parts) = (item["role"].as_str(), item["content"].as_array());
            let kind = match role {
                Some("user") => "input_text",
                Some("assistant") => "output_text",
                Some(_) | None => return Err(invalid("a message is the user's or the assistant's")),
            };
            let is_image = |part: &Value| {
                kind == "input_text" && part["type"] == "input_image" && is_output(&Value::Array(vec![part.clone()]))
            };
            // As the SDK's types have it: what a model wrote goes back with its id, its status and its annotations, or as an easy message.
            let is_whole = |part: &Value| {
                kind == "input_text"
                    || (part["annotations"].is_array() && item["id"].is_string() && item["status"].is_string())
            };
            let is_text = |part: &Value| {
                part["type"] == kind && part["text"].as_str().is_some_and(|text| !text.is_empty()) && is_whole(part)
            };
            let fits = |part: &Value| is_text(part) || is_image(part);
            match parts {
                Some(parts) if !parts.is_empty() && parts.iter().all(fits) => Ok(()),
                Some(_) | None => Err(invalid(&format!("Invalid content of a message of {role:?}"))),
            }
        }
        Some("function_call") if is_text("call_id") && is_text("name") && item["arguments"].is_string() => Ok(()),
        Some("function_call_output") if is_text("call_id") && is_output(&item["output"]) => Ok(()),
        Some("reasoning") if item["encrypted_content"].is_string() => Ok(()),
        Some("reasoning") if !store => {
            let id = &item["id"];
            Err(invalid(&format!("Item with id {id} not found. Items are not persisted when `store` is set to false.")))
        }
        _ => Err(invalid(&format!("Invalid value: {item}"))),
    }
}

/// What a function said: text, or parts that are texts and images.
fn is_output(output: &Value) -> bool {
    let is_part = |part: &Value| match part["type"].as_str() {
        Some("input_text") => part["text"].is_string(),
        Some("input_image") => part["image_url"].as_str().is_some_and(|url| url.starts_with("data:image/")),
        Some(_) | None => false,
    };
    output.is_string() || output.as_array().is_some_and(|parts| !parts.is_empty() && parts.iter().all(is_part))
}

/// Each call has one result, which comes after it, and each result a call; thoughts are followed by what they led to.
fn check_order(items: &[Value]) -> Result<(), Refusal> {
    let (mut open, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, item) in items.iter().enumerate() {
        let call = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call") if !seen.insert(call) => {
                return Err(invalid(&format!("Duplicate call_id found: {call}")));
            }
            Some("function_call") => {
                open.insert(call);
            }
            Some("function_call_output") if !open.remove(call) => {
                let message = format!("No tool call found for function call output with call_id {call}.");
                return Err(invalid(&message));
            }
            Some("reasoning") => {
                let next = items.get(index + 1);
                let follows = |next: &Value| next["role"] != "user" && next["type"] != "function_call_output";
                if !next.is_some_and(follows) {
                    let id = &item["id"];
                    let message =
                        format!("Item {id} of type 'reasoning' was provided without its required following item.");
                    return Err(invalid(&message));
                }
            }
            Some(_) | None => {}
        }
    }
    match open.first() {
        Some(call) => Err(invalid(&format!("No tool output found for function call {call}."))),
        None => Ok(()),
    }
}

/// An item as a message of the history that the script reads.
fn message(item: &Value) -> Result<Message, String> {
    let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let assistant =
        |blocks: Vec<Block>| Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() };
    Ok(match item["type"].as_str() {
        None => {
            let blocks = vec![Block::text(text("content"))];
            match item["role"].as_str() {
                Some("user") => Message { role: Role::User, origin: Origin::Prompt, blocks: blocks.into() },
                Some(_) | None => assistant(blocks),
            }
        }
        Some("message") => {
            let parts = item["content"].as_array().into_iter().flatten();
            let blocks = parts.filter_map(|part| part["text"].as_str().or(part["refusal"].as_str())).map(Block::text);
            match item["role"].as_str() {
                Some("user") => Message { role: Role::User, origin: Origin::Prompt, blocks: blocks.collect() },
                Some(_) | None => assistant(blocks.collect()),
            }
        }
        Some("function_call") => {
            let arguments = text("arguments");
            let input = serde_json::from_str(&arguments).unwrap_or(Value::String(arguments));
            assistant(vec![Block::ToolUse(ToolUse { id: text("call_id"), name: text("name"), input })])
        }
        Some("function_call_output") => {
            let parts = item["output"].as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
            let output = if item["output"].is_array() { parts.collect() } else { text("output") };
            let (content, is_error) = match output.strip_prefix("Error: ") {
                Some(error) => (error.to_owned(), true),
                None => (output, false),
            };
            let result = Block::ToolResult { tool_use_id: text("call_id"), content: content.into(), is_error };
            Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() }
        }
        _ => {
            let thought = serde_json::from_str(&text("encrypted_content"));
            let value = thought.map_err(|_| "The encrypted content could not be verified.".to_owned())?;
            assistant(vec![Block::Opaque { provider: ANTHROPIC.to_owned(), value }])
        }
    })
}

/// A reply of the script, as this API says it.
pub(super) struct Reply {
    pub(super) id: String,
    model: String,
    items: Vec<Value>,
    stop_reason: StopReason,
    usage: Value,
}

impl Reply {
    pub(super) fn of(turn: &ModelTurn, with_thoughts: bool) -> Self {
        let id = turn.response_id.as_deref().unwrap_or_default().replacen("msg_", "resp_", 1);
        let usage = turn.usage.unwrap_or_default();
        let input = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        let item = |(index, block): (usize, &Block)| item(&id, index, block, turn.stop_reason, with_thoughts);
        Self {
            items: turn.blocks.iter().enumerate().map(item).collect(),
            model: turn.model.clone(),
            stop_reason: turn.stop_reason,
            usage: json!({
                "input_tokens": input,
                "input_tokens_details": {"cached_tokens": usage.cache_read_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": input + usage.output_tokens,
            }),
            id,
        }
    }

    /// What is kept of it, behind what it answered.
    pub(super) fn kept(mut conversation: Vec<Value>, turn: &ModelTurn) -> Vec<Value> {
        // The provider remembers its thoughts, whether or not it sent them along.
        conversation.extend(Self::of(turn, true).items);
        conversation
    }

    /// The whole reply, for a request that asked for no stream.
    pub(super) fn whole(&self) -> Value {
        let is_cut = self.stop_reason == StopReason::MaxTokens;
        json!({
            "id": self.id, "object": "response", "model": self.model, "output": self.items, "usage": self.usage,
            "status": if is_cut { "incomplete" } else { "completed" }, "error": null,
            "incomplete_details": if is_cut { json!({"reason": "max_output_tokens"}) } else { Value::Null },
        })
    }

    /// The frames of a streamed reply, the last one being its end.
    pub(super) fn events(&self) -> Frames {
        let mut head = self.whole();
        (head["status"], head["output"], head["usage"]) = (json!("in_progress"), json!([]), Value::Null);
        head["incomplete_details"] = Value::Null;
        let mut frames = Events::default();
        frames.push("response.created", json!({"response": head}));
        frames.push("response.in_progress", json!({"response": head}));
        for (index, item) in self.items.iter().enumerate() {
            frames.item(index, item);
        }
        let whole = self.whole();
        let end = if whole["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        frames.push(end, json!({"response": whole}));
        let frames = frames.0;
        let is_piece = |frame: &String| frame.contains(".delta\"");
        let first_piece = frames.iter().position(is_piece).unwrap_or(frames.len() / 2);
        Frames { first_piece, end: frames.len() - 1, events: frames }
    }
}

/// An error in the middle of a stream.
pub(super) fn error_frame(code: &str) -> String {
    let mut frames = Events::default();
    frames.push("error", json!({"code": code, "message": "the server was told to say so", "param": null}));
    frames.0.remove(0)
}

#[derive(Default)]
struct Events(Vec<String>);

impl Events {
    fn push(&mut self, event: &str, mut data: Value) {
        data["type"] = json!(event);
        data["sequence_number"] = json!(self.0.len());
        self.0.push(frame(event, &data));
    }

    fn item(&mut self, index: usize, item: &Value) {
        let mut begun = item.clone();
        begun["status"] = json!("in_progress");
        let place = || json!({"output_index": index, "item_id": item["id"]});
        let with = |more: Value| {
            let mut data = place();
            for (field, value) in more.as_object().into_iter().flatten() {
                data[field] = value.clone();
            }
            data
        };
        if let Some(arguments) = item["arguments"].as_str() {
            begun["arguments"] = json!("");
            self.push("response.output_item.added", with(json!({"item": begun})));
            for piece in super::wire::pieces(arguments) {
                self.push("response.function_call_arguments.delta", with(json!({"delta": piece})));
            }
            self.push("response.function_call_arguments.done", with(json!({"arguments": arguments})));
        } else if let Some(part) = item.pointer("/content/0") {
            begun["content"] = json!([]);
            self.push("response.output_item.added", with(json!({"item": begun})));
            self.push("response.content_part.added", with(json!({"content_index": 0, "part": part})));
            let (text, event) = match part["refusal"].as_str() {
                Some(refusal) => (refusal, "response.refusal.delta"),
                None => (part["text"].as_str().unwrap_or_default(), "response.output_text.delta"),
            };
            for piece in super::wire::pieces(text) {
                self.push(event, with(json!({"content_index": 0, "delta": piece})));
            }
            self.push("response.content_part.done", with(json!({"content_index": 0, "part": part})));
        } else {
            begun["encrypted_content"] = Value::Null;
            self.push("response.output_item.added", with(json!({"item": begun})));
        }
        self.push("response.output_item.done", with(json!({"item": item})));
    }
}

fn item(reply: &str, index: usize, block: &Block, stop_reason: StopReason, with_thoughts: bool) -> Value {
    match block {
        Block::Text { text } => {
            let part = if stop_reason == StopReason::Refusal {
                json!({"type": "refusal", "refusal": text})
            } else {
                json!({"type": "output_text", "text": text, "annotations": []})
            };
            json!({"type": "message", "id": format!("m_{reply}_{index}"), "status": "completed", "role": "assistant", "content": [part]})
        }
        Block::ToolUse(tool_use) => {
            // A string stands for a model that garbled them, and is sent as it is.
            let arguments = tool_use.input.as_str().map_or_else(|| tool_use.input.to_string(), str::to_owned);
            json!({"type": "function_call", "id": format!("fc_{reply}_{index}"), "status": "completed", "call_id": tool_use.id,
                   "name": tool_use.name, "arguments": arguments})
        }
        Block::Opaque { value, .. } => {
            let mut thought = json!({"type": "reasoning", "id": format!("rs_{reply}_{index}"), "summary": []});
            thought["summary"] = json!([{"type": "summary_text", "text": value["thinking"]}]);
            if with_thoughts {
                thought["encrypted_content"] = json!(value.to_string());
            }
            thought
        }
        Block::ToolResult { .. } => unreachable!("a script's reply holds no tool results"),
    }
}
