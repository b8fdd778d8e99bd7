//! A request in the words of the Messages API.

use std::borrow::Cow;
use std::ops::Range;

use serde::Serialize;
use serde_json::{Map, Value, json};
use ua_core::{Block, Role};

use super::keys;
use super::thinking::Thinking;
use crate::ANTHROPIC;
use crate::chat::names::{ANTHROPIC_LONGEST, wire_name};
use crate::extras::ModelExtras;
use crate::image::{Image, image_of};
use crate::output::narrowed;
use crate::request::ModelRequest;
use crate::written::Written;

/// A block of a message, written.
#[derive(Debug)]
pub(crate) struct Part {
    json: String,
    is_result: bool,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content<'r> {
    Plain(Plain<'r>),
    /// A block that only this provider reads, unchanged.
    Own(&'r Value),
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Plain<'r> {
    Text {
        text: &'r str,
    },
    ToolUse {
        id: &'r str,
        name: String,
        input: Cow<'r, Value>,
    },
    ToolResult {
        tool_use_id: &'r str,
        content: ResultContent<'r>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    Image {
        source: Source<'r>,
    },
}

/// A result: its text, and its images if it has any.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ResultContent<'r> {
    Text(&'r str),
    WithImages(Vec<Plain<'r>>),
}

#[derive(Debug, Serialize)]
struct Source<'r> {
    #[serde(rename = "type")]
    kind: &'static str,
    media_type: &'r str,
    data: &'r str,
}

/// Writes the body of `POST /v1/messages`. With `cache_prompt`, the system prompt and the two newest user messages are marked as ends of a
/// cacheable prefix, so that the next turn pays for the common part once.
pub(crate) fn write(
    written: &mut Written<Vec<Part>>,
    request: &ModelRequest,
    cache_prompt: bool,
    (extras, thinking): (&ModelExtras, Thinking<'_>),
) -> String {
    let mut body = written.frame_in(thinking.form(), request, || {
        let mut frame = frame(request, cache_prompt);
        extras.for_messages(&mut frame);
        thinking.put(extras, &mut frame);
        frame
    });
    written.parts.renew(request.messages.chunks(1), |piece| {
        let blocks = &piece[0].blocks;
        blocks.iter().filter_map(|block| encode_block(block, blocks)).map(|content| Part::of(&content)).collect()
    });
    let roles = request.messages.iter().map(|message| message.role);
    let (spoken, said) = speeches(roles.zip(written.parts.iter()));
    body.reserve(said.iter().map(|part| part.json.len() + 48).sum::<usize>() + 32);
    body.push_str(",\"messages\":[");
    write_speeches(&spoken, &said, cache_prompt, &mut body);
    body.push_str("]}");
    body
}

impl Part {
    fn of(content: &Content<'_>) -> Self {
        let is_result = matches!(content, Content::Plain(Plain::ToolResult { .. }));
        match serde_json::to_string(content) {
            Ok(json) => Self { json, is_result },
            Err(why) => unreachable!("a message is made of strings and JSON, which always serialise: {why}"),
        }
    }
}

/// What stands around the messages.
fn frame(request: &ModelRequest, cache_prompt: bool) -> Value {
    let mut frame = json!({"model": request.model, "max_tokens": request.max_output_tokens, "stream": true});
    if !is_blank(&request.system) {
        let mut system = json!({"type": "text", "text": request.system});
        if cache_prompt {
            system["cache_control"] = cache_mark();
        }
        frame["system"] = json!([system]);
    }
    if !request.tools.is_empty() {
        frame["tools"] = request
            .tools
            .iter()
            .map(|tool| {
                let name = wire_name(&tool.name, ANTHROPIC_LONGEST);
                json!({"name": name, "description": tool.description, "input_schema": keys::folded(&tool.input_schema)})
            })
            .collect();
    }
    if let Some(milli) = request.temperature_milli {
        frame["temperature"] = json!(f64::from(milli) / 1000.0);
    }
    if let Some(schema) = request.output_schema.as_ref().and_then(|schema| narrowed(schema, false)) {
        frame["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    }
    frame
}

/// What one role says until the other one does.
struct Speech {
    role: Role,
    /// Where its parts are among all.
    parts: Range<usize>,
}

/// The history as the API wants it: no blank text, no empty message, no two neighbours of one role, and tool results in front of a user
/// message.
fn speeches<'p>(messages: impl Iterator<Item = (Role, &'p Vec<Part>)>) -> (Vec<Speech>, Vec<&'p Part>) {
    let (mut spoken, mut said): (Vec<Speech>, Vec<&Part>) = (Vec::new(), Vec::new());
    for (role, parts) in messages.filter(|(_, parts)| !parts.is_empty()) {
        let begin = said.len();
        said.extend(parts);
        match spoken.last_mut().filter(|speech| speech.role == role) {
            Some(speech) => speech.parts.end = said.len(),
            None => spoken.push(Speech { role, parts: begin..said.len() }),
        }
    }
    for speech in spoken.iter().filter(|speech| speech.role == Role::User) {
        said[speech.parts.clone()].sort_by_key(|part| !part.is_result);
    }
    (spoken, said)
}

fn write_speeches(spoken: &[Speech], said: &[&Part], cache_prompt: bool, body: &mut String) {
    let users = spoken.iter().filter(|speech| speech.role == Role::User).count();
    let mut unmarked = if cache_prompt { users.saturating_sub(2) } else { users };
    for (index, Speech { role, parts }) in spoken.iter().enumerate() {
        let is_marked = *role == Role::User && unmarked == 0;
        unmarked = unmarked.saturating_sub(usize::from(*role == Role::User));
        body.push_str(if index > 0 { ",{\"role\":\"" } else { "{\"role\":\"" });
        body.push_str(role.as_str());
        body.push_str("\",\"content\":[");
        for place in parts.clone() {
            body.push_str(if place > parts.start { "," } else { "" });
            let json = &said[place].json;
            match json.strip_suffix('}').filter(|_| is_marked && place + 1 == parts.end) {
                Some(fields) => {
                    body.push_str(fields);
                    body.push_str(if fields.len() > 1 { "," } else { "" });
                    body.push_str("\"cache_control\":{\"type\":\"ephemeral\"}}");
                }
                None => body.push_str(json),
            }
        }
        body.push_str("]}");
    }
}

/// A block of a message with these blocks: a result takes its images in.
fn encode_block<'r>(block: &'r Block, beside: &'r [Block]) -> Option<Content<'r>> {
    let plain = match block {
        Block::Text { text } => (!is_blank(text)).then_some(Plain::Text { text }),
        Block::ToolUse(tool_use) => Some(Plain::ToolUse {
            id: &tool_use.id,
            name: wire_name(&tool_use.name, ANTHROPIC_LONGEST),
            input: keys::wire_arguments(wire_input(&tool_use.input)),
        }),
        Block::ToolResult { tool_use_id, content, is_error } => {
            let content = with_images(content.as_str(), tool_use_id, beside);
            Some(Plain::ToolResult { tool_use_id, content, is_error: *is_error })
        }
        Block::Opaque { provider, value } if provider == ANTHROPIC => {
            return value.is_object().then_some(Content::Own(value));
        }
        Block::Opaque { .. } => image_of(block).filter(|image| image.tool_use_id.is_none()).map(image_part),
    };
    plain.map(Content::Plain)
}

fn with_images<'r>(text: &'r str, tool_use_id: &str, beside: &'r [Block]) -> ResultContent<'r> {
    let images = beside.iter().filter_map(image_of).filter(|image| image.tool_use_id == Some(tool_use_id));
    let mut parts: Vec<Plain<'r>> = images.map(image_part).collect();
    if parts.is_empty() {
        return ResultContent::Text(text);
    }
    if !is_blank(text) {
        parts.insert(0, Plain::Text { text });
    }
    ResultContent::WithImages(parts)
}

fn image_part(image: Image<'_>) -> Plain<'_> {
    Plain::Image { source: Source { kind: "base64", media_type: image.media_type, data: image.data } }
}

/// The input of a tool use as the API takes it back: an object. What the model sent instead of one is wrapped.
pub(crate) fn wire_input(input: &Value) -> Cow<'_, Value> {
    match input {
        Value::Object(_) => Cow::Borrowed(input),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Cow::Owned(Value::Object(Map::from_iter([("unreadable_input".to_owned(), input.clone())])))
        }
    }
}

/// Whether the API would refuse `text` as a text block.
pub(crate) fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

fn cache_mark() -> Value {
    json!({"type": "ephemeral"})
}

#[cfg(test)]
mod tests {
    use ua_core::{Message, Origin, ToolUse};

    use super::*;
    use crate::request::ToolOffer;

    fn body(request: &ModelRequest, cache_prompt: bool) -> Value {
        let how = (&ModelExtras::default(), Thinking::default());
        let text = write(&mut Written::default(), request, cache_prompt, how);
        serde_json::from_str(&text).unwrap()
    }

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            model: "claude-x".into(),
            system: String::new(),
            messages,
            tools: vec![].into(),
            max_output_tokens: 100,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    fn assistant(blocks: Vec<Block>) -> Message {
        Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() }
    }

    #[test]
    fn neighbours_of_one_role_become_one_message_with_results_in_front() {
        let tool_use = Block::ToolUse(ToolUse { id: "a".into(), name: "t".into(), input: json!({"x": 1}) });
        let result = Block::ToolResult { tool_use_id: "a".into(), content: "done".into(), is_error: true };
        let history = vec![
            Message::user(Origin::Prompt, "go"),
            Message::user(Origin::Guidance, "  \n"),
            assistant(vec![Block::text(""), tool_use]),
            Message::user(Origin::Resume, "you were interrupted"),
            Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() },
        ];
        assert_eq!(
            body(&request(history), false),
            json!({"model": "claude-x", "max_tokens": 100, "stream": true, "messages": [
                {"role": "user", "content": [{"type": "text", "text": "go"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {"x": 1}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "done", "is_error": true},
                    {"type": "text", "text": "you were interrupted"},
                ]},
            ]})
        );
    }

    #[test]
    fn an_image_lies_in_the_result_it_belongs_to() {
        let uses = ["a", "b"].map(|id| Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input: json!({}) }));
        let result = |id: &str| Block::ToolResult { tool_use_id: id.into(), content: "seen".into(), is_error: false };
        let blocks = vec![result("a"), result("b"), crate::image_block("b", "image/png", "iVBORw0KGgo=").unwrap()];
        let history = vec![
            Message::user(Origin::Prompt, "look"),
            assistant(uses.to_vec()),
            Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() },
        ];
        let source = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
        assert_eq!(
            body(&request(history), false)["messages"][2]["content"],
            json!([
                {"type": "tool_result", "tool_use_id": "a", "content": "seen"},
                {"type": "tool_result", "tool_use_id": "b", "content": [
                    {"type": "text", "text": "seen"}, {"type": "image", "source": source},
                ]},
            ])
        );
    }

    #[test]
    fn an_image_that_the_user_shows_stands_behind_the_words() {
        let mut prompt = Message::user(Origin::Prompt, "look");
        prompt.blocks.extend(crate::shown_image_block("image/png", "iVBORw0KGgo="));
        let source = json!({"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="});
        assert_eq!(
            body(&request(vec![prompt]), false)["messages"][0]["content"],
            json!([{"type": "text", "text": "look"}, {"type": "image", "source": source}])
        );
    }

    #[test]
    fn an_empty_reply_leaves_no_message_behind() {
        let history = vec![
            Message::user(Origin::Prompt, "go"),
            assistant(vec![Block::text("")]),
            Message::user(Origin::Guidance, "go on"),
        ];
        assert_eq!(
            body(&request(history), false)["messages"],
            json!([{"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "text", "text": "go on"}]}])
        );
    }

    #[test]
    fn only_our_own_opaque_blocks_go_back_and_they_go_unchanged() {
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s=="});
        let own = Block::Opaque { provider: "anthropic".into(), value: thinking.clone() };
        let foreign = Block::Opaque { provider: "openai".into(), value: json!({"type": "reasoning"}) };
        let history = vec![Message::user(Origin::Prompt, "go"), assistant(vec![own, foreign, Block::text("hi")])];
        assert_eq!(
            body(&request(history), true)["messages"][1]["content"],
            json!([thinking, {"type": "text", "text": "hi"}])
        );
    }

    #[test]
    fn an_input_that_was_not_json_goes_back_as_an_object() {
        let broken = Block::ToolUse(ToolUse { id: "a".into(), name: "t".into(), input: json!("{\"x\": ") });
        let history = vec![Message::user(Origin::Prompt, "go"), assistant(vec![broken])];
        assert_eq!(
            body(&request(history), false)["messages"][1]["content"][0]["input"],
            json!({"unreadable_input": "{\"x\": "})
        );
    }

    #[test]
    fn the_schema_of_the_reply_is_its_output_format() {
        let mut asked = request(vec![Message::user(Origin::Prompt, "go")]);
        asked.seed = Some(7);
        asked.output_schema = Some(json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}}}));
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false});
        let sent = body(&asked, false);
        assert_eq!(sent["output_config"], json!({"format": {"type": "json_schema", "schema": schema}}));
        assert_eq!(sent["seed"], Value::Null, "this wire has none");
    }

    #[test]
    fn the_ends_of_the_cacheable_prefix_are_marked() {
        let mut asked = request(vec![
            Message::user(Origin::Prompt, "one"),
            assistant(vec![Block::text("yes")]),
            Message::user(Origin::Guidance, "two"),
            assistant(vec![Block::text("yes")]),
            Message::user(Origin::Guidance, "three"),
        ]);
        asked.system = "be brief".into();
        asked.temperature_milli = Some(250);
        asked.tools =
            vec![ToolOffer { name: "t".into(), description: "d".into(), input_schema: json!({"type": "object"}) }]
                .into();
        let body = body(&asked, true);
        let mark = json!({"type": "ephemeral"});
        assert_eq!(body["system"], json!([{"type": "text", "text": "be brief", "cache_control": mark}]));
        assert_eq!(
            body["tools"],
            json!([{"name": "t", "description": "d", "input_schema": {"type": "object", "properties": {}}}])
        );
        assert_eq!(body["temperature"], json!(0.25));
        let marks: Vec<&Value> =
            body["messages"].as_array().unwrap().iter().map(|m| &m["content"][0]["cache_control"]).collect();
        assert_eq!(marks, [&Value::Null, &Value::Null, &mark, &Value::Null, &mark]);
    }

    /// Whatever was written before, a body is what it would be alone: some messages more, some left out, another prompt, a block that is marked
    /// no more.
    #[test]
    fn a_conversation_is_written_as_each_of_its_requests_would_be() {
        let used = |id: &str| {
            let tool_use = Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input: json!({"id": id}) });
            assistant(vec![Block::text("now"), tool_use])
        };
        let answered = |id: &str| {
            let result = Block::ToolResult { tool_use_id: id.into(), content: "done".into(), is_error: false };
            Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() }
        };
        let own = |value: Value| assistant(vec![Block::Opaque { provider: "anthropic".into(), value }]);
        let said = |text: &str| Message::user(Origin::Prompt, text);
        let mut prompted = request(vec![said("job"), used("c"), answered("c"), used("d"), answered("d")]);
        prompted.system = "be brief".into();
        let requests = [
            request(vec![said("job"), used("a"), answered("a")]),
            request(vec![said("job"), used("a"), answered("a"), used("b"), said("stopped"), answered("b")]),
            request(vec![said("job"), ua_core::omission(2), used("b"), answered("b"), own(json!({})), said("on")]),
            prompted,
            request(vec![said("job"), assistant(vec![Block::text(" ")]), said("on")]),
            request(vec![]),
        ];
        let extras = ModelExtras { thinking_tokens: Some(9), ..ModelExtras::default() };
        let budget = Thinking::of(&extras, true, |_| false);
        let (mut written, hows) = (Written::default(), [(&extras, Thinking::default()), (&extras, budget)]);
        for (request, how) in requests.iter().flat_map(|request| hows.map(|how| (request, how))) {
            let alone = write(&mut Written::default(), request, true, how);
            assert_eq!(write(&mut written, request, true, how), alone);
            assert_eq!(alone.contains("budget_tokens"), how.1 == budget);
            let read: Value = serde_json::from_str(&alone).unwrap();
            assert!(read["messages"].is_array(), "{alone}");
        }
    }
}
