//! A request in the words of Chat Completions.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use ua_core::{Block, Message, Role, ToolUse};

use super::names::{OPENAI_LONGEST, wire_name};
use super::{OF_CALLS, OutputLimit, reasoning};
use crate::OPENAI_CHAT;
use crate::anthropic::wire::{is_blank, wire_input};
use crate::extras::ModelExtras;
use crate::image::{Image, image_of};
use crate::output::{NAME, narrowed};
use crate::request::ModelRequest;
use crate::schema::folded;
use crate::written::{Written, listed, push_list};

/// What stands in front of a result that is an error, since this wire has no field for it.
pub(crate) const ERROR_MARK: &str = "[tool error]\n";

/// The fields of reasoning that come in pieces.
const IN_PIECES: [&str; 2] = ["reasoning_details", "thinking_blocks"];

/// What may follow the results of tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Roles {
    /// Whoever has something to say, as the API has it.
    Any,
    /// The model alone, as Mistral's models and the templates of some others have it.
    ModelAfterTools,
}

/// What the model is held to have said where a user speaks behind results and only the model may.
const BRIDGE: &str = "I have these results.";

/// Whether a user speaks behind results in a request, as after a resume.
pub(crate) fn speaks_after_tools(request: &ModelRequest) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
    let spoken = request.messages.chunk_by(|a, b| a.role == b.role);
    let of_user = spoken.filter(|speech| speech[0].role == Role::User);
    of_user
        .map(|speech| speech.iter().flat_map(|message| &message.blocks).collect::<Vec<_>>())
        .any(|blocks| blocks.iter().any(|block| is_result(block)) && user_message(&blocks).is_some())
}

/// Writes the body of `POST …/chat/completions`.
pub(crate) fn write(
    written: &mut Written<String>,
    request: &ModelRequest,
    limit: OutputLimit,
    extras: &ModelExtras,
    roles: Roles,
) -> String {
    let mut body = written.frame(request, || {
        let mut frame = frame(request, limit);
        extras.for_chat(&mut frame);
        frame
    });
    let sent = |message: &&Message| message.blocks.iter().any(is_sent);
    let spoken: Vec<Message> = request.messages.iter().filter(sent).cloned().collect();
    written.parts.renew(spoken.chunk_by(|a, b| a.role == b.role), |speech| listed(&encode_speech(speech, roles)));
    let system = if is_blank(&request.system) {
        String::new()
    } else {
        json!({"role": "system", "content": request.system}).to_string()
    };
    body.push_str(",\"messages\":[");
    push_list(&mut body, std::iter::once(system.as_str()).chain(written.parts.iter().map(String::as_str)));
    body.push_str("]}");
    body
}

/// What stands around the history.
fn frame(request: &ModelRequest, limit: OutputLimit) -> Value {
    let mut body = json!({
        "model": request.model,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let limit = match limit {
        OutputLimit::MaxTokens => "max_tokens",
        OutputLimit::MaxCompletionTokens => "max_completion_tokens",
    };
    body[limit] = json!(request.max_output_tokens);
    if !request.tools.is_empty() {
        let tool = |tool: &crate::ToolOffer| {
            let function = json!({
                "name": wire_name(&tool.name, OPENAI_LONGEST), "description": tool.description, "parameters": folded(&tool.input_schema),
            });
            json!({"type": "function", "function": function})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
    }
    if let Some(milli) = request.temperature_milli {
        body["temperature"] = json!(f64::from(milli) / 1000.0);
    }
    if let Some(seed) = request.seed {
        body["seed"] = json!(seed);
    }
    if let Some(schema) = request.output_schema.as_ref().and_then(|schema| narrowed(schema, true)) {
        body["response_format"] =
            json!({"type": "json_schema", "json_schema": {"name": NAME, "schema": schema, "strict": true}});
    }
    body
}

/// What one role says until the other one does, as the API wants it: the results of a reply's tool uses follow it directly, one message each,
/// before what else the user says.
fn encode_speech(speech: &[Message], roles: Roles) -> Vec<Value> {
    let blocks: Vec<&Block> = speech.iter().flat_map(|message| &message.blocks).collect();
    match speech[0].role {
        Role::Assistant => vec![assistant(&blocks)],
        Role::User => {
            let mut said: Vec<Value> = blocks.iter().filter_map(|block| tool_message(block)).collect();
            let more = user_message(&blocks);
            if roles == Roles::ModelAfterTools && !said.is_empty() && more.is_some() {
                said.push(json!({"role": "assistant", "content": BRIDGE}));
            }
            said.extend(more);
            said
        }
    }
}

/// What the user says beside results, and the images of results, which this wire has no place for in a tool's message.
fn user_message(blocks: &[&Block]) -> Option<Value> {
    let said = text_of(blocks);
    let images = blocks.iter().filter_map(|block| image_of(block));
    let (of_results, shown): (Vec<_>, Vec<_>) = images.partition(|image| image.tool_use_id.is_some());
    if of_results.is_empty() && shown.is_empty() {
        return (!said.is_empty()).then(|| json!({"role": "user", "content": said}));
    }
    let mut parts = Vec::new();
    for image in of_results {
        let label = format!("An image of the result of {}:", image.tool_use_id.unwrap_or_default());
        parts.extend([json!({"type": "text", "text": label}), image_part(image)]);
    }
    if !said.is_empty() {
        parts.push(json!({"type": "text", "text": said}));
    }
    parts.extend(shown.into_iter().map(image_part));
    Some(json!({"role": "user", "content": parts}))
}

fn image_part(image: Image<'_>) -> Value {
    let url = format!("data:{};base64,{}", image.media_type, image.data);
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn is_sent(block: &Block) -> bool {
    match block {
        Block::Text { text } => !is_blank(text),
        Block::ToolUse(_) | Block::ToolResult { .. } => true,
        // Reasoning goes with a message that says something; alone it would be one without content, which servers refuse.
        Block::Opaque { .. } => false,
    }
}

fn assistant(blocks: &[&Block]) -> Value {
    let text = text_of(blocks);
    let mut calls: Vec<Value> = Vec::new();
    // What was said of the calls of a reply besides stands in front of them.
    let mut more: VecDeque<&Map<String, Value>> = VecDeque::new();
    for block in blocks {
        match block {
            Block::ToolUse(tool_use) => calls.push(tool_call(tool_use, more.pop_front())),
            Block::Opaque { .. } => {
                let of_calls = own_fields(block).and_then(|fields| fields.get(OF_CALLS)).and_then(Value::as_array);
                if let Some(of_calls) = of_calls {
                    more = of_calls.iter().filter_map(Value::as_object).collect();
                }
            }
            Block::Text { .. } | Block::ToolResult { .. } => {}
        }
    }
    let content = if text.is_empty() { Value::Null } else { Value::String(text) };
    let mut message = Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), content)]);
    if !calls.is_empty() {
        // Models that think between calls want to read what they thought; behind the last call it has no use any more.
        let reasoning = blocks.iter().filter_map(|block| own_fields(block)).flatten();
        for (field, value) in reasoning.filter(|(field, _)| *field != OF_CALLS) {
            let pieces = value.as_array().filter(|_| IN_PIECES.contains(&field.as_str()));
            let value =
                pieces.map_or_else(|| value.clone(), |pieces| Value::Array(reasoning::whole(pieces.iter().cloned())));
            message.insert(field.clone(), value);
        }
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

/// The fields that this wire brought besides: of reasoning, and of calls.
fn own_fields(block: &Block) -> Option<&Map<String, Value>> {
    match block {
        Block::Opaque { provider, value } if provider == OPENAI_CHAT => value.as_object(),
        Block::Opaque { .. } | Block::Text { .. } | Block::ToolUse(_) | Block::ToolResult { .. } => None,
    }
}

/// A call, with what its server said of it besides.
fn tool_call(tool_use: &ToolUse, more: Option<&Map<String, Value>>) -> Value {
    let arguments = wire_input(&tool_use.input).to_string();
    let mut function = Map::new();
    let mut call = Map::new();
    for (name, value) in more.into_iter().flatten() {
        match value.as_object().filter(|_| name == "function") {
            Some(of_function) => function.clone_from(of_function),
            None => drop(call.insert(name.clone(), value.clone())),
        }
    }
    function.insert("name".to_owned(), json!(wire_name(&tool_use.name, OPENAI_LONGEST)));
    function.insert("arguments".to_owned(), json!(arguments));
    call.insert("id".to_owned(), json!(tool_use.id));
    call.insert("type".to_owned(), json!("function"));
    call.insert("function".to_owned(), Value::Object(function));
    Value::Object(call)
}

fn tool_message(block: &Block) -> Option<Value> {
    match block {
        Block::ToolResult { tool_use_id, content, is_error } => {
            let mark = if *is_error { ERROR_MARK } else { "" };
            Some(json!({"role": "tool", "tool_call_id": tool_use_id, "content": format!("{mark}{}", content.as_str())}))
        }
        Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    }
}

fn text_of(blocks: &[&Block]) -> String {
    let texts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()).filter(|text| !is_blank(text)),
            Block::ToolUse(_) | Block::ToolResult { .. } | Block::Opaque { .. } => None,
        })
        .collect();
    texts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use ua_core::Origin;

    use super::*;
    use crate::request::ToolOffer;

    fn encode_request(request: &ModelRequest, limit: OutputLimit) -> Value {
        let text = write(&mut Written::default(), request, limit, &ModelExtras::default(), Roles::Any);
        serde_json::from_str(&text).unwrap()
    }

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: "be brief".into(),
            messages,
            tools: vec![].into(),
            max_output_tokens: 100,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    fn reply(blocks: Vec<Block>) -> Message {
        Message { role: Role::Assistant, origin: Origin::Model, blocks: blocks.into() }
    }

    fn call(id: &str, input: Value) -> Block {
        Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input })
    }

    fn results(results: &[(&str, &str, bool)]) -> Message {
        let result = |(id, content, is_error): &(&str, &str, bool)| Block::ToolResult {
            tool_use_id: (*id).into(),
            content: (*content).into(),
            is_error: *is_error,
        };
        Message { role: Role::User, origin: Origin::Tools, blocks: results.iter().map(result).collect() }
    }

    #[test]
    fn each_result_is_a_message_directly_behind_the_reply_that_asked() {
        let history = vec![
            Message::user(Origin::Prompt, "go"),
            reply(vec![Block::text("looking"), call("a", json!({"x": 1})), call("b", json!("{\"x\": "))]),
            Message::user(Origin::Resume, "you were interrupted"),
            results(&[("a", "done", false), ("b", "not JSON", true)]),
            reply(vec![Block::text(" ")]),
            Message::user(Origin::Guidance, "go on"),
        ];
        let function = |arguments: &str| json!({"name": "t", "arguments": arguments});
        assert_eq!(
            encode_request(&request(history), OutputLimit::MaxTokens),
            json!({
                "model": "m", "max_tokens": 100, "stream": true, "stream_options": {"include_usage": true},
                "messages": [
                    {"role": "system", "content": "be brief"},
                    {"role": "user", "content": "go"},
                    {"role": "assistant", "content": "looking", "tool_calls": [
                        {"id": "a", "type": "function", "function": function(r#"{"x":1}"#)},
                        {"id": "b", "type": "function", "function": function(r#"{"unreadable_input":"{\"x\": "}"#)},
                    ]},
                    {"role": "tool", "tool_call_id": "a", "content": "done"},
                    {"role": "tool", "tool_call_id": "b", "content": "[tool error]\nnot JSON"},
                    {"role": "user", "content": "you were interrupted\n\ngo on"},
                ],
            })
        );
    }

    #[test]
    fn a_conversation_is_written_as_each_of_its_requests_would_be() {
        let job = || Message::user(Origin::Prompt, "go");
        let asked = |id: &str| reply(vec![call(id, json!({ "id": id }))]);
        let requests = [
            request(vec![job(), asked("a"), results(&[("a", "done", false)])]),
            request(vec![job(), asked("a"), results(&[("a", "done", false)]), Message::user(Origin::Guidance, "on")]),
            request(vec![job(), ua_core::omission(3), asked("b"), results(&[("b", "done", true)]), reply(vec![])]),
            ModelRequest { system: " ".into(), ..request(vec![job(), reply(vec![Block::text("yes")])]) },
            ModelRequest { system: String::new(), ..request(vec![]) },
        ];
        let (mut written, limit, extras) = (Written::default(), OutputLimit::MaxTokens, ModelExtras::default());
        for request in &requests {
            let alone = write(&mut Written::default(), request, limit, &extras, Roles::Any);
            assert_eq!(write(&mut written, request, limit, &extras, Roles::Any), alone);
            let read: Value = serde_json::from_str(&alone).unwrap();
            assert!(read["messages"].is_array(), "{alone}");
        }
    }

    #[test]
    fn reasoning_goes_back_with_the_calls_it_led_to_and_to_its_own_wire_only() {
        let own = Block::Opaque { provider: OPENAI_CHAT.into(), value: json!({"reasoning_content": "hm"}) };
        let foreign = Block::Opaque { provider: "anthropic".into(), value: json!({"type": "thinking"}) };
        let history = vec![
            Message::user(Origin::Prompt, "go"),
            reply(vec![own.clone(), foreign.clone(), call("a", json!({}))]),
            results(&[("a", "ok", false)]),
            reply(vec![own, foreign, Block::text("done")]),
        ];
        let messages = encode_request(&request(history), OutputLimit::MaxTokens)["messages"].clone();
        assert_eq!(messages[2]["reasoning_content"], "hm");
        assert_eq!(messages[2]["content"], Value::Null);
        assert_eq!(messages[4], json!({"role": "assistant", "content": "done"}));
    }

    #[test]
    fn what_a_server_said_of_a_call_goes_back_with_that_call() {
        let of_calls = |signatures: &[Value]| Block::Opaque {
            provider: OPENAI_CHAT.into(),
            value: json!({ OF_CALLS: signatures }),
        };
        let signed = |signature: &str| json!({"extra_content": {"google": {"thought_signature": signature}}, "id": "no", "function": {"name": "no", "x": 1}});
        let thought = Block::Opaque { provider: OPENAI_CHAT.into(), value: json!({"reasoning_content": "hm"}) };
        let history = vec![
            Message::user(Origin::Prompt, "go"),
            reply(vec![thought, of_calls(&[signed("A"), json!({})]), call("a", json!({})), call("b", json!({}))]),
            // Two replies in a row, as after one that was cut: each call has its own.
            reply(vec![of_calls(&[json!({}), signed("D")]), call("c", json!({})), call("d", json!({}))]),
            results(&[("a", "ok", false), ("b", "ok", false), ("c", "ok", false), ("d", "ok", false)]),
            reply(vec![call("e", json!({}))]),
        ];
        let messages = encode_request(&request(history), OutputLimit::MaxTokens)["messages"].clone();
        let all =
            [&messages[2], &messages[7]].map(|message| message["tool_calls"].as_array().unwrap().clone()).concat();
        let said: Vec<_> = all
            .iter()
            .map(|call| (call["id"].as_str().unwrap(), call["extra_content"]["google"]["thought_signature"].as_str()))
            .collect();
        assert_eq!(said, [("a", Some("A")), ("b", None), ("c", None), ("d", Some("D")), ("e", None)]);
        assert!(all.iter().all(|call| call["function"]["name"] == "t"), "{all:?}");
        assert_eq!((&all[0]["function"]["x"], &all[1]["function"]["x"]), (&json!(1), &Value::Null));
        assert_eq!((&messages[2]["reasoning_content"], &messages[2][OF_CALLS]), (&json!("hm"), &Value::Null));
    }

    #[test]
    fn images_of_results_are_said_by_the_user_behind_all_results() {
        let mut seen = results(&[("a", "seen", false), ("b", "seen", false)]);
        seen.blocks.push(crate::image_block("a", "image/png", "iVBORw0KGgo=").unwrap());
        let history = vec![
            Message::user(Origin::Prompt, "look"),
            reply(vec![call("a", json!({})), call("b", json!({}))]),
            seen,
            Message::user(Origin::Guidance, "go on"),
        ];
        let messages = encode_request(&request(history), OutputLimit::MaxTokens)["messages"].clone();
        assert_eq!((&messages[3]["role"], &messages[4]["role"]), (&json!("tool"), &json!("tool")));
        assert_eq!(
            messages[5],
            json!({"role": "user", "content": [
                {"type": "text", "text": "An image of the result of a:"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                {"type": "text", "text": "go on"},
            ]})
        );
    }

    #[test]
    fn an_image_that_the_user_shows_stands_behind_the_words() {
        let mut prompt = Message::user(Origin::Prompt, "look");
        prompt.blocks.extend(crate::shown_image_block("image/png", "iVBORw0KGgo="));
        let messages = encode_request(&request(vec![prompt]), OutputLimit::MaxTokens)["messages"].clone();
        assert_eq!(
            messages[1]["content"],
            json!([
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
            ])
        );
    }

    #[test]
    fn tools_limit_and_temperature_have_the_names_of_this_wire() {
        let mut asked = request(vec![Message::user(Origin::Prompt, "go")]);
        asked.temperature_milli = Some(250);
        asked.seed = Some(7);
        let shape = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        asked.output_schema = Some(shape);
        let schema = json!({"type": "object", "properties": {}});
        let long = format!("mcp__{}", "x".repeat(80));
        asked.tools =
            vec![ToolOffer { name: long.clone(), description: "d".into(), input_schema: schema.clone() }].into();
        let body = encode_request(&asked, OutputLimit::MaxCompletionTokens);
        let function = json!({"name": wire_name(&long, OPENAI_LONGEST), "description": "d", "parameters": schema});
        assert_eq!(body["tools"], json!([{"type": "function", "function": function}]));
        assert_eq!((&body["max_completion_tokens"], &body["max_tokens"]), (&json!(100), &Value::Null));
        assert_eq!((&body["temperature"], &body["seed"]), (&json!(0.25), &json!(7)));
        let shape = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        assert_eq!(
            body["response_format"],
            json!({"type": "json_schema", "json_schema": {"name": "result", "schema": shape, "strict": true}})
        );
    }
}
