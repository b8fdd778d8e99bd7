//! The server's side of Chat Completions: requests are read as strictly as OpenAI does, replies are written in many small chunks.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Role, StopReason, ToolUse, Usage, is_omission};
use ua_llm::OPENAI_CHAT;

use super::fault::Frames;
use super::wire::{Request, input_text, pieces};

/// What our client puts in front of a result that is an error.
const ERROR_MARK: &str = "[tool error]\n";

/// How much effort a model may be asked to make.
pub(super) const EFFORTS: [&str; 6] = ["none", "minimal", "low", "medium", "high", "xhigh"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireRequest {
    model: String,
    messages: Vec<WireMessage>,
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    max_completion_tokens: Option<u32>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    tools: Option<Vec<WireTool>>,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    reasoning_effort: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "lowercase", deny_unknown_fields)]
enum WireMessage {
    System {
        content: String,
    },
    User {
        content: Value,
    },
    Assistant {
        #[serde(default)]
        content: Option<String>,
        #[serde(default)]
        tool_calls: Option<Vec<WireCall>>,
        #[serde(default)]
        reasoning_content: Option<String>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireCall {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    function: WireFunction,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireFunction {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct WireTool {
    #[serde(rename = "type")]
    kind: String,
    function: WireToolFunction,
}

#[derive(Deserialize)]
struct WireToolFunction {
    name: String,
    #[serde(default)]
    parameters: Value,
}

/// Reads a request; the error is what the API would say about it.
pub(super) fn decode(body: &Value) -> Result<Request, String> {
    let request = WireRequest::deserialize(body).map_err(|error| error.to_string())?;
    if request.model.is_empty() {
        return Err("you must provide a model parameter".to_owned());
    }
    if request.max_tokens.is_some() && request.max_completion_tokens.is_some() {
        return Err("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.".to_owned());
    }
    if request.max_tokens.or(request.max_completion_tokens) == Some(0) {
        return Err("Invalid 'max_tokens': integer below minimum value.".to_owned());
    }
    if request.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err("Invalid 'temperature': must be between 0 and 2.".to_owned());
    }
    if let Some(effort) = request.reasoning_effort.filter(|effort| !EFFORTS.contains(&effort.as_str())) {
        return Err(format!("Invalid value: '{effort}'. Supported values are: {EFFORTS:?}."));
    }
    for (index, tool) in request.tools.iter().flatten().enumerate() {
        check_name(&tool.function.name).map_err(|why| format!("Invalid 'tools[{index}].function.name': {why}"))?;
        if tool.kind != "function" || tool.function.parameters["type"] != "object" {
            return Err(format!("Invalid schema for function '{}'", tool.function.name));
        }
    }
    if request.tools.as_ref().is_some_and(Vec::is_empty) {
        return Err("Invalid 'tools': empty array.".to_owned());
    }
    let with_usage = request.stream_options.is_some_and(|options| options.include_usage);
    let (system, messages) = decode_messages(request.messages)?;
    Ok(Request { model: request.model, system, messages, stream: request.stream, with_usage })
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(fits) {
        return Err("expected a string that matches the pattern '^[a-zA-Z0-9_-]{1,64}$'".to_owned());
    }
    Ok(())
}

fn decode_messages(messages: Vec<WireMessage>) -> Result<(String, Vec<Message>), String> {
    let mut system = String::new();
    let mut decoded: Vec<Message> = Vec::new();
    // The calls of the last reply that have no result yet.
    let mut open: Vec<String> = Vec::new();
    for (index, message) in messages.into_iter().enumerate() {
        if !open.is_empty() && !matches!(message, WireMessage::Tool { .. }) {
            return Err(unanswered(&open));
        }
        match message {
            WireMessage::System { content } if index == 0 => system = content,
            WireMessage::System { .. } => return Err("System message must be at the beginning.".to_owned()),
            WireMessage::User { content } => {
                let blocks = apart(&user_text(content, index)?);
                decoded.push(Message { role: Role::User, origin: Origin::Prompt, blocks: blocks.into() });
            }
            WireMessage::Assistant { content, tool_calls, reasoning_content } => {
                let mut message = assistant(content, tool_calls, index)?;
                message.blocks.splice(0..0, reasoning_content.as_deref().map(reasoning));
                open = message.tool_uses().map(|tool_use| tool_use.id.clone()).collect();
                decoded.push(message);
            }
            WireMessage::Tool { tool_call_id, content } => {
                let Some(at) = open.iter().position(|id| *id == tool_call_id) else {
                    return Err(format!(
                        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls' \
                         ({tool_call_id})"
                    ));
                };
                open.remove(at);
                let (content, is_error) = match content.strip_prefix(ERROR_MARK) {
                    Some(rest) => (rest.to_owned(), true),
                    None => (content, false),
                };
                let result = Block::ToolResult { tool_use_id: tool_call_id, content: content.into(), is_error };
                decoded.push(Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() });
            }
        }
    }
    if open.is_empty() { Ok((system, decoded)) } else { Err(unanswered(&open)) }
}

fn unanswered(ids: &[String]) -> String {
    format!(
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. \
         The following tool_call_ids did not have response messages: {}",
        ids.join(", ")
    )
}

/// The texts of a message, with what stands for omitted messages as a text of its own, as the history had it.
fn apart(text: &str) -> Vec<Block> {
    let mut texts: Vec<String> = Vec::new();
    let mut is_new = true;
    for piece in text.split("\n\n") {
        // A text before it may end in a line break of its own.
        let piece = if is_omission(piece.trim()) { piece.trim() } else { piece };
        match texts.last_mut() {
            Some(last) if !is_new && !is_omission(piece) => last.push_str(&format!("\n\n{piece}")),
            Some(_) | None => texts.push(piece.to_owned()),
        }
        is_new = is_omission(piece);
    }
    texts.into_iter().map(Block::text).collect()
}

fn user_text(content: Value, index: usize) -> Result<String, String> {
    let text = match content {
        Value::String(text) => text,
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    };
    if text.is_empty() { Err(format!("Invalid value for 'messages[{index}].content'")) } else { Ok(text) }
}

fn assistant(content: Option<String>, calls: Option<Vec<WireCall>>, index: usize) -> Result<Message, String> {
    let mut blocks: Vec<Block> = content.filter(|text| !text.is_empty()).into_iter().map(Block::text).collect();
    if calls.as_ref().is_some_and(Vec::is_empty) {
        return Err(format!("Invalid 'messages[{index}].tool_calls': empty array."));
    }
    for call in calls.into_iter().flatten() {
        check_name(&call.function.name).map_err(|why| format!("Invalid 'messages[{index}]': {why}"))?;
        if call.kind != "function" || call.id.is_empty() || call.id.len() > 40 {
            return Err(format!("Invalid 'messages[{index}].tool_calls'"));
        }
        let input: Value = serde_json::from_str(&call.function.arguments)
            .map_err(|error| format!("Invalid 'messages[{index}].tool_calls': {error}"))?;
        blocks.push(Block::ToolUse(ToolUse { id: call.id, name: call.function.name, input }));
    }
    if blocks.is_empty() {
        return Err(format!("Invalid value for 'messages[{index}].content': expected a string, got null."));
    }
    Ok(Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() })
}

fn reasoning(text: &str) -> Block {
    Block::Opaque { provider: OPENAI_CHAT.to_owned(), value: json!({"reasoning_content": text}) }
}

/// The API's name for a status.
pub(super) fn error_type(status: u16) -> &'static str {
    match status {
        401 | 403 => "authentication_error",
        429 => "rate_limit_exceeded",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// An error, in an answer or in a chunk.
pub(super) fn error(error_type: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": error_type, "param": null, "code": null}})
}

/// One event, without a name, as this wire has it.
pub(super) fn frame(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// A whole reply, for a request that asked for no stream.
pub(super) fn message(turn: &ModelTurn) -> Value {
    let calls: Vec<Value> = turn.tool_uses().map(call).collect();
    let mut message = Map::from_iter([
        ("role".to_owned(), json!("assistant")),
        ("content".to_owned(), json!(Some(turn.text()).filter(|text| !text.is_empty()))),
    ]);
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    json!({
        "id": turn.response_id, "object": "chat.completion", "created": 0, "model": turn.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason(turn.stop_reason)}],
        "usage": usage(turn.usage.unwrap_or_default()),
    })
}

/// The frames of a streamed reply, the last one being `[DONE]`.
pub(super) fn events(turn: &ModelTurn, with_usage: bool) -> Frames {
    let chunk = |choices: &Value, usage: &Value| {
        let mut chunk = json!({
            "id": turn.response_id, "object": "chat.completion.chunk", "created": 0, "model": turn.model, "choices": choices,
        });
        if with_usage {
            chunk["usage"] = usage.clone();
        }
        frame(&chunk)
    };
    let delta = |delta: &Value| chunk(&json!([{"index": 0, "delta": delta, "finish_reason": null}]), &Value::Null);
    let mut frames = vec![": the model is asked\n\n".to_owned(), delta(&json!({"role": "assistant", "content": ""}))];
    let first_piece = frames.len();
    let mut calls = 0;
    for block in &turn.blocks {
        match block {
            Block::Text { text } => frames.extend(pieces(text).map(|piece| delta(&json!({"content": piece})))),
            Block::Opaque { value, .. } => {
                let thinking = value["thinking"].as_str().unwrap_or_default();
                frames.extend(pieces(thinking).map(|piece| delta(&json!({"reasoning_content": piece}))));
            }
            Block::ToolUse(tool_use) => {
                let function = json!({"name": tool_use.name, "arguments": ""});
                let opening = json!({"index": calls, "id": tool_use.id, "type": "function", "function": function});
                frames.push(delta(&json!({"tool_calls": [opening]})));
                frames.extend(
                    pieces(&input_text(&tool_use.input)).map(|piece| {
                        delta(&json!({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]}))
                    }),
                );
                calls += 1;
            }
            Block::ToolResult { .. } => unreachable!("a script's reply holds no tool results"),
        }
    }
    let end = frames.len();
    let last = json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(turn.stop_reason)}]);
    frames.push(chunk(&last, &Value::Null));
    if with_usage {
        frames.push(chunk(&json!([]), &usage(turn.usage.unwrap_or_default())));
    }
    frames.push("data: [DONE]\n\n".to_owned());
    Frames { events: frames, first_piece, end }
}

fn call(tool_use: &ToolUse) -> Value {
    let function = json!({"name": tool_use.name, "arguments": input_text(&tool_use.input)});
    json!({"id": tool_use.id, "type": "function", "function": function})
}

fn finish_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal => "content_filter",
        StopReason::EndTurn | StopReason::StopSequence | StopReason::PauseTurn | StopReason::Other => "stop",
    }
}

/// This wire counts what was read from a cache as part of the prompt.
fn usage(usage: Usage) -> Value {
    let prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens},
    })
}
