//! The server's side of the Messages API: requests are read strictly, replies are written in many small events.

use serde::Deserialize;
use serde_json::{Value, json};
use ua_core::{Block, Message, ModelTurn, Origin, Role, ToolUse};
use ua_llm::ANTHROPIC;

use super::fault::Frames;

/// A request, as far as the script needs it.
pub(super) struct Request {
    pub(super) model: String,
    pub(super) system: String,
    pub(super) messages: Vec<Message>,
    pub(super) stream: bool,
    /// Whether a stream says what it cost.
    pub(super) with_usage: bool,
}

#[derive(Deserialize)]
struct WireRequest {
    model: String,
    max_tokens: u32,
    messages: Vec<WireMessage>,
    #[serde(default)]
    system: Option<Text>,
    #[serde(default)]
    tools: Vec<WireTool>,
    #[serde(default)]
    stream: bool,
}

#[derive(Deserialize)]
struct WireMessage {
    role: Role,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Value>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Plain(String),
    Blocks(Vec<TextBlock>),
}

#[derive(Deserialize)]
struct TextBlock {
    text: String,
}

#[derive(Deserialize)]
struct WireTool {
    name: String,
    input_schema: Value,
}

#[derive(Deserialize)]
struct WireToolUse {
    id: String,
    name: String,
    input: Value,
}

#[derive(Deserialize)]
struct WireResult {
    tool_use_id: String,
    #[serde(default)]
    content: Option<ResultContent>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ResultContent {
    Plain(String),
    Parts(Vec<ResultPart>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ResultPart {
    Text { text: String },
    Image { source: ImageSource },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ImageSource {
    Base64 { media_type: String, data: String },
}

impl ResultContent {
    /// The texts, joined; an image is checked as the API does.
    fn text(self) -> Result<String, String> {
        let parts = match self {
            Self::Plain(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let mut texts = Vec::new();
        for part in parts {
            match part {
                ResultPart::Text { text } => texts.push(text),
                ResultPart::Image { source: ImageSource::Base64 { media_type, data } } => {
                    if !["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&media_type.as_str()) {
                        return Err(format!("image.source.media_type: {media_type:?} is not supported"));
                    }
                    if data.is_empty() || data.len() > 5_242_880 {
                        return Err("image.source.base64: image exceeds 5 MB maximum, or is empty".to_owned());
                    }
                }
            }
        }
        Ok(texts.join("\n\n"))
    }
}

impl Text {
    fn joined(self) -> String {
        match self {
            Self::Plain(text) => text,
            Self::Blocks(blocks) => blocks.into_iter().map(|block| block.text).collect::<Vec<_>>().join("\n\n"),
        }
    }
}

/// Reads a request; the error is what the API would say about it.
pub(super) fn decode(body: &Value) -> Result<Request, String> {
    let request = WireRequest::deserialize(body).map_err(|error| error.to_string())?;
    if request.model.is_empty() {
        return Err("model: String should have at least 1 character".to_owned());
    }
    if request.max_tokens == 0 {
        return Err("max_tokens: must be greater than or equal to 1".to_owned());
    }
    for (index, tool) in request.tools.iter().enumerate() {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if tool.name.is_empty() || tool.name.len() > 128 || !tool.name.chars().all(fits) {
            return Err(format!("tools.{index}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"));
        }
        if request.tools[..index].iter().any(|earlier| earlier.name == tool.name) {
            return Err("tools: Tool names must be unique.".to_owned());
        }
        if tool.input_schema["type"] != "object" {
            return Err(format!("tools.{index}.input_schema.type: Field required"));
        }
    }
    let messages = request
        .messages
        .into_iter()
        .enumerate()
        .map(|(index, message)| decode_message(message).map_err(|why| format!("messages.{index}.content: {why}")))
        .collect::<Result<_, _>>()?;
    let system = request.system.map(Text::joined).unwrap_or_default();
    Ok(Request { model: request.model, system, messages, stream: request.stream, with_usage: true })
}

fn decode_message(message: WireMessage) -> Result<Message, String> {
    let blocks = match message.content {
        Content::Text(text) => vec![decode_text(text)?],
        Content::Blocks(blocks) => blocks.into_iter().map(decode_block).collect::<Result<Vec<_>, _>>()?,
    };
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    if blocks.is_empty() {
        return Err("at least one block is required".to_owned());
    }
    if !blocks.is_sorted_by_key(|block| !is_result(block)) {
        return Err("`tool_result` blocks must come first".to_owned());
    }
    let origin = match message.role {
        Role::Assistant => Origin::Model,
        Role::User if blocks.iter().any(is_result) => Origin::Tools,
        Role::User => Origin::Prompt,
    };
    Ok(Message { role: message.role, origin, blocks: blocks.into() })
}

fn decode_block(mut block: Value) -> Result<Block, String> {
    let unreadable = |error: serde_json::Error| error.to_string();
    match block["type"].as_str() {
        Some("text") => decode_text(TextBlock::deserialize(&block).map_err(unreadable)?.text),
        // One that the user shows; it is looked at as those of results are, and then only its place matters.
        Some("image") => {
            let part: ResultPart = ResultPart::deserialize(&block).map_err(unreadable)?;
            ResultContent::Parts(vec![part]).text()?;
            Ok(Block::Opaque { provider: "image".to_owned(), value: block })
        }
        Some("tool_use") => {
            let WireToolUse { id, name, input } = serde_json::from_value(block).map_err(unreadable)?;
            if !input.is_object() {
                return Err(format!("tool_use {id}.input: Input should be a valid dictionary"));
            }
            Ok(Block::ToolUse(ToolUse { id, name, input }))
        }
        Some("tool_result") => {
            let WireResult { tool_use_id, content, is_error } = serde_json::from_value(block).map_err(unreadable)?;
            let content = content.map(ResultContent::text).transpose()?.unwrap_or_default();
            Ok(Block::ToolResult { tool_use_id, content: content.into(), is_error })
        }
        Some("thinking" | "redacted_thinking") => {
            if block.get("cache_control").is_some() {
                return Err("thinking blocks may not have cache_control".to_owned());
            }
            Ok(Block::Opaque { provider: ANTHROPIC.to_owned(), value: block.take() })
        }
        Some(other) => Err(format!("the block type {other:?} is not supported")),
        None => Err("a block has no type".to_owned()),
    }
}

fn decode_text(text: String) -> Result<Block, String> {
    if text.trim().is_empty() {
        return Err("text content blocks must contain non-whitespace text".to_owned());
    }
    Ok(Block::Text { text })
}

/// The API's name for a status.
pub(super) fn error_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// A whole reply, for a request that asked for no stream.
pub(super) fn message(turn: &ModelTurn) -> Value {
    let content: Vec<Value> = turn.blocks.iter().map(encode_block).collect();
    envelope(turn, &content, &json!(turn.stop_reason), &usage(turn))
}

/// The frames of a streamed reply, the last one being `message_stop`. The one before it says why the message ended, without which it is not whole.
pub(super) fn events(turn: &ModelTurn) -> Frames {
    let mut at_start = usage(turn);
    at_start["output_tokens"] = json!(1);
    let head = envelope(turn, &[], &Value::Null, &at_start);
    let mut frames = vec![
        frame("message_start", &json!({"type": "message_start", "message": head})),
        frame("ping", &json!({"type": "ping"})),
    ];
    for (index, block) in turn.blocks.iter().enumerate() {
        let (start, deltas) = opening(block);
        frames.push(frame(
            "content_block_start",
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        frames.extend(deltas.into_iter().map(|delta| {
            frame("content_block_delta", &json!({"type": "content_block_delta", "index": index, "delta": delta}))
        }));
        frames.push(frame("content_block_stop", &json!({"type": "content_block_stop", "index": index})));
    }
    let delta = json!({"stop_reason": turn.stop_reason, "stop_sequence": null});
    let end =
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": usage(turn)["output_tokens"]}});
    frames.push(frame("message_delta", &end));
    frames.push(frame("message_stop", &json!({"type": "message_stop"})));
    let first_piece = frames.iter().position(|frame| frame.contains("content_block_delta")).unwrap_or(frames.len() / 2);
    Frames { first_piece, end: frames.len() - 2, events: frames }
}

/// One event in the form of Server-Sent Events.
pub(super) fn frame(event: &str, data: &Value) -> String {
    format!("event: {event}\ndata: {data}\n\n")
}

fn envelope(turn: &ModelTurn, content: &[Value], stop_reason: &Value, usage: &Value) -> Value {
    json!({
        "id": turn.response_id, "type": "message", "role": "assistant", "model": turn.model, "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": usage,
    })
}

fn usage(turn: &ModelTurn) -> Value {
    let usage = turn.usage.unwrap_or_default();
    json!({
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
    })
}

fn encode_block(block: &Block) -> Value {
    match block {
        Block::Text { text } => json!({"type": "text", "text": text}),
        Block::ToolUse(tool_use) => {
            json!({"type": "tool_use", "id": tool_use.id, "name": tool_use.name, "input": tool_use.input})
        }
        Block::Opaque { value, .. } => value.clone(),
        Block::ToolResult { .. } => unreachable!("a script's reply holds no tool results"),
    }
}

/// A block as it starts, and the deltas that complete it.
fn opening(block: &Block) -> (Value, Vec<Value>) {
    match block {
        Block::Text { text } => (
            json!({"type": "text", "text": ""}),
            pieces(text).map(|piece| json!({"type": "text_delta", "text": piece})).collect(),
        ),
        Block::ToolUse(tool_use) => (
            json!({"type": "tool_use", "id": tool_use.id, "name": tool_use.name, "input": {}}),
            pieces(&input_text(&tool_use.input))
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}))
                .collect(),
        ),
        Block::Opaque { value, .. } if value["type"] == "thinking" => (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            pieces(value["thinking"].as_str().unwrap_or_default())
                .map(|piece| json!({"type": "thinking_delta", "thinking": piece}))
                .chain([json!({"type": "signature_delta", "signature": value["signature"]})])
                .collect(),
        ),
        Block::Opaque { .. } | Block::ToolResult { .. } => (encode_block(block), Vec::new()),
    }
}

/// The input's JSON; a string stands for a model that garbled it, and is sent as it is.
pub(super) fn input_text(input: &Value) -> String {
    match input {
        Value::String(garbled) => garbled.clone(),
        Value::Object(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) => input.to_string(),
    }
}

/// Cuts `text` into pieces of a few characters.
pub(super) fn pieces(text: &str) -> impl Iterator<Item = String> {
    const SIZE: usize = 24;
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(SIZE).map(|piece| piece.iter().collect()).collect::<Vec<String>>().into_iter()
}
