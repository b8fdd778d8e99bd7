//! A request in the words of the Responses API.

use serde_json::{Value, json};
use ua_core::{Block, Message, Role};

use super::assembler::Answers;
use crate::OPENAI;
use crate::chat::names::{OPENAI_LONGEST, wire_name};
use crate::extras::ModelExtras;
use crate::image::{Image, image_of};
use crate::output::{NAME, narrowed};
use crate::request::ModelRequest;
use crate::schema::folded;
use crate::session::KnownPrefix;
use crate::written::{Written, listed, push_list};

/// The fewest output tokens that the API lets a request allow.
const LEAST_OUTPUT: u32 = 16;

/// Writes the body of `POST /v1/responses`: the whole history, or, with `known`, what came after the reply that it names. With
/// `store`, the provider keeps the reply so that it can be continued from.
pub(crate) fn write(
    written: &mut Written<String>,
    request: &ModelRequest,
    known: Option<&KnownPrefix>,
    store: bool,
    extras: &ModelExtras,
) -> String {
    let mut body = written.frame(request, || {
        let mut frame = frame(request, store);
        extras.for_responses(&mut frame);
        frame
    });
    if let Some(known) = known {
        body.push_str(",\"previous_response_id\":");
        body.push_str(&json!(known.response_id).to_string());
    }
    let first = known.map_or(0, |known| known.messages);
    let speeches = request.messages.get(first..).unwrap_or_default().chunk_by(|a, b| a.role == b.role);
    written.parts.renew(speeches, |speech| listed(&encode_speech(speech)));
    body.push_str(",\"input\":[");
    push_list(&mut body, written.parts.iter().map(String::as_str));
    body.push_str("]}");
    body
}

/// What stands around the history.
fn frame(request: &ModelRequest, store: bool) -> Value {
    let mut body = json!({
        "model": request.model,
        "max_output_tokens": request.max_output_tokens.max(LEAST_OUTPUT),
        "store": store,
        "stream": true,
    });
    // Both hold for one request only: a reply that is continued from does not bring them along.
    if !request.system.trim().is_empty() {
        body["instructions"] = json!(request.system);
    }
    if !request.tools.is_empty() {
        body["tools"] = request
            .tools
            .iter()
            .map(|tool| {
                json!({"type": "function", "name": wire_name(&tool.name, OPENAI_LONGEST), "description": tool.description,
                       "parameters": folded(&tool.input_schema), "strict": false})
            })
            .collect();
    }
    if let Some(milli) = request.temperature_milli {
        body["temperature"] = json!(f64::from(milli) / 1000.0);
    }
    if let Some(schema) = request.output_schema.as_ref().and_then(|schema| narrowed(schema, true)) {
        body["text"] = json!({"format": {"type": "json_schema", "name": NAME, "schema": schema, "strict": true}});
    }
    if reasons(&request.model) {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    body
}

/// Whether the model thinks before it speaks. Others refuse a request that asks for what they thought.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    if name.contains("-chat") {
        return false;
    }
    let is_o = name.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    is_o || name.contains("codex") || ["gpt-5", "gpt-6", "gpt-oss"].iter().any(|family| name.starts_with(family))
}

/// What one role says until the other one does, as the API wants it. Of a user's neighbours, the results come first, right behind the calls
/// that they answer.
fn encode_speech(speech: &[Message]) -> Vec<Value> {
    let blocks = speech.iter().flat_map(|message| &message.blocks);
    match speech[0].role {
        Role::User => encode_user(blocks),
        Role::Assistant => encode_assistant(blocks),
    }
}

fn encode_user<'b>(blocks: impl Iterator<Item = &'b Block>) -> Vec<Value> {
    let (mut items, mut said) = (Vec::new(), Vec::new());
    let blocks: Vec<&Block> = blocks.collect();
    for block in &blocks {
        match block {
            Block::Text { text } if !text.trim().is_empty() => said.push(json!({"type": "input_text", "text": text})),
            Block::ToolResult { tool_use_id, content, is_error } => {
                let output = if *is_error { format!("Error: {}", content.as_str()) } else { content.to_string() };
                let output = with_images(output, tool_use_id, &blocks);
                items.push(json!({"type": "function_call_output", "call_id": tool_use_id, "output": output}));
            }
            Block::Opaque { .. } => {
                said.extend(image_of(block).filter(|image| image.tool_use_id.is_none()).map(image_part));
            }
            Block::Text { .. } | Block::ToolUse(_) => {}
        }
    }
    if !said.is_empty() {
        items.push(json!({"type": "message", "role": "user", "content": said}));
    }
    items
}

/// What a result says: its text, and its images if it has any.
fn with_images(text: String, tool_use_id: &str, beside: &[&Block]) -> Value {
    let images =
        beside.iter().filter_map(|block| image_of(block)).filter(|image| image.tool_use_id == Some(tool_use_id));
    let images: Vec<Value> = images.map(image_part).collect();
    if images.is_empty() {
        return Value::String(text);
    }
    let said = (!text.trim().is_empty()).then(|| json!({"type": "input_text", "text": text}));
    Value::Array(said.into_iter().chain(images).collect())
}

fn image_part(image: Image<'_>) -> Value {
    json!({"type": "input_image", "image_url": format!("data:{};base64,{}", image.media_type, image.data)})
}

fn encode_assistant<'b>(blocks: impl Iterator<Item = &'b Block>) -> Vec<Value> {
    let mut items: Vec<Value> = blocks.filter_map(encode_said).collect();
    // Nobody has answered what nobody offers, and the API refuses a history in which such a call has no answer.
    let answers = Answers::among(items.iter());
    items.retain(|item| !answers.lack(item));
    // The API refuses thoughts that nothing follows, as those of a reply that was cut while it thought.
    while items.last().is_some_and(is_reasoning) {
        items.pop();
    }
    items
}

fn encode_said(block: &Block) -> Option<Value> {
    match block {
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => {
            // What the API calls an easy message: an `output_text` needs the id and the status that it came with, and strict servers look.
            Some(json!({"role": "assistant", "content": text}))
        }
        Block::ToolUse(tool_use) => Some(json!({
            "type": "function_call",
            "call_id": tool_use.id,
            "name": wire_name(&tool_use.name, OPENAI_LONGEST),
            "arguments": crate::anthropic::wire::wire_input(&tool_use.input).to_string(),
        })),
        // Without its content a thought is a reference to something that the provider may not have kept.
        Block::Opaque { provider, value } => {
            let is_whole = !is_reasoning(value) || value["encrypted_content"].is_string();
            (provider == OPENAI && is_whole).then(|| value.clone())
        }
        Block::ToolResult { .. } => None,
    }
}

fn is_reasoning(item: &Value) -> bool {
    item["type"] == "reasoning"
}

#[cfg(test)]
mod tests {
    use ua_core::{Origin, ToolUse};

    use super::*;
    use crate::request::ToolOffer;

    fn encode_request(request: &ModelRequest, known: Option<&KnownPrefix>, store: bool) -> Value {
        let text = write(&mut Written::default(), request, known, store, &ModelExtras::default());
        serde_json::from_str(&text).unwrap()
    }

    fn request(messages: Vec<Message>) -> ModelRequest {
        ModelRequest {
            model: "gpt-4.1".into(),
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

    fn call(id: &str, input: Value) -> Block {
        Block::ToolUse(ToolUse { id: id.into(), name: "t".into(), input })
    }

    fn result(id: &str, content: &str, is_error: bool) -> Message {
        let block = Block::ToolResult { tool_use_id: id.into(), content: content.into(), is_error };
        Message { role: Role::User, origin: Origin::Tools, blocks: vec![block].into() }
    }

    fn history() -> Vec<Message> {
        vec![
            Message::user(Origin::Prompt, "go"),
            Message::user(Origin::Guidance, "  \n"),
            assistant(vec![Block::text("Looking."), call("a", json!({"x": 1})), call("b", json!("{\"x\": "))]),
            Message::user(Origin::Resume, "you were interrupted"),
            result("a", "done", false),
            result("b", "not JSON", true),
        ]
    }

    fn new_items() -> [Value; 3] {
        [
            json!({"type": "function_call_output", "call_id": "a", "output": "done"}),
            json!({"type": "function_call_output", "call_id": "b", "output": "Error: not JSON"}),
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "you were interrupted"}]}),
        ]
    }

    #[test]
    fn a_history_becomes_items_with_results_right_behind_their_calls() {
        let mut expected = vec![
            json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}),
            json!({"role": "assistant", "content": "Looking."}),
            json!({"type": "function_call", "call_id": "a", "name": "t", "arguments": "{\"x\":1}"}),
            json!({"type": "function_call", "call_id": "b", "name": "t", "arguments": "{\"unreadable_input\":\"{\\\"x\\\": \"}"}),
        ];
        expected.extend(new_items());
        assert_eq!(
            encode_request(&request(history()), None, false),
            json!({"model": "gpt-4.1", "input": expected, "max_output_tokens": 100, "store": false, "stream": true})
        );
    }

    #[test]
    fn only_what_is_new_follows_a_reply_that_the_provider_kept() {
        let mut asked = request(history());
        asked.system = "be brief".into();
        asked.tools =
            vec![ToolOffer { name: "t".into(), description: "d".into(), input_schema: json!({"type": "object"}) }]
                .into();
        let known = KnownPrefix { response_id: "resp_1".into(), messages: 3 };
        let body = encode_request(&asked, Some(&known), true);
        assert_eq!(body["input"], json!(new_items()));
        assert_eq!((&body["previous_response_id"], &body["store"]), (&json!("resp_1"), &json!(true)));
        // These are not kept with a reply.
        assert_eq!(body["instructions"], "be brief");
        assert_eq!(
            body["tools"],
            json!([{"type": "function", "name": "t", "description": "d", "parameters": {"type": "object", "properties": {}}, "strict": false}])
        );
    }

    #[test]
    fn thoughts_go_back_unchanged_unless_they_are_foreign_or_only_a_reference_or_followed_by_nothing() {
        let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA=="});
        let own = |value: &Value| Block::Opaque { provider: "openai".into(), value: value.clone() };
        let reference = json!({"type": "reasoning", "id": "rs_2", "summary": []});
        let foreign = Block::Opaque { provider: "anthropic".into(), value: json!({"type": "thinking"}) };
        let messages = vec![
            Message::user(Origin::Prompt, "go"),
            assistant(vec![own(&thought), own(&reference), foreign, Block::text("hi")]),
            Message::user(Origin::Guidance, "more"),
            assistant(vec![Block::text(" "), own(&thought)]),
            Message::user(Origin::Guidance, "on"),
        ];
        let body = encode_request(&request(messages), None, false);
        let said =
            |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let hi = json!({"role": "assistant", "content": "hi"});
        assert_eq!(body["input"], json!([said("go"), thought, hi, said("more"), said("on")]));
    }

    /// A model that asks for what no job offers is told so, and the request that tells it is taken.
    #[test]
    fn what_asks_for_something_that_nobody_offers_goes_back_with_its_answer_alone() {
        let own = |value: &Value| Block::Opaque { provider: "openai".into(), value: value.clone() };
        let thought = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA=="});
        let asks = |kind: &str| json!({"type": kind, "id": "i", "call_id": "c", "status": "completed"});
        let answer = json!({"type": "shell_call_output", "call_id": "c", "output": []});
        let messages = vec![
            Message::user(Origin::Prompt, "go"),
            assistant(vec![own(&thought), own(&asks("custom_tool_call"))]),
            Message::user(Origin::Guidance, "more"),
            assistant(vec![own(&asks("shell_call")), own(&answer), Block::text("hi"), own(&asks("computer_call"))]),
            Message::user(Origin::Guidance, "on"),
        ];
        let body = encode_request(&request(messages), None, false);
        let said =
            |text: &str| json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
        let hi = json!({"role": "assistant", "content": "hi"});
        assert_eq!(body["input"], json!([said("go"), said("more"), asks("shell_call"), answer, hi, said("on")]));
    }

    #[test]
    fn an_image_lies_in_the_result_it_belongs_to() {
        let image = crate::image_block("b", "image/png", "iVBORw0KGgo=").unwrap();
        let mut messages = history();
        messages[5].blocks.push(image);
        let body = encode_request(&request(messages), None, false);
        let parts = json!([{"type": "input_text", "text": "Error: not JSON"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]);
        assert_eq!((&body["input"][4]["output"], &body["input"][5]["output"]), (&json!("done"), &parts));
    }

    #[test]
    fn an_image_that_the_user_shows_stands_behind_the_words() {
        let mut prompt = Message::user(Origin::Prompt, "look");
        prompt.blocks.extend(crate::shown_image_block("image/png", "iVBORw0KGgo="));
        let body = encode_request(&request(vec![prompt]), None, false);
        let parts = json!([{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]);
        assert_eq!(body["input"][0]["content"], parts);
    }

    #[test]
    fn the_schema_of_the_reply_is_the_format_of_its_text() {
        let mut asked = request(history());
        asked.seed = Some(7);
        asked.output_schema = Some(json!({"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}}));
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
        let body = encode_request(&asked, None, false);
        assert_eq!(
            body["text"],
            json!({"format": {"type": "json_schema", "name": "result", "schema": schema, "strict": true}})
        );
        assert_eq!(body["seed"], Value::Null, "this wire has none");
    }

    #[test]
    fn only_models_that_think_are_asked_for_their_thoughts() {
        for model in ["gpt-5", "gpt-5.1-codex", "o3-mini", "o4-mini", "openai/gpt-oss-120b", "codex-mini-latest"] {
            assert!(reasons(model), "{model}");
        }
        for model in ["gpt-4.1", "gpt-4o-mini", "gpt-5-chat-latest", "scripted", "omni-moderation-latest"] {
            assert!(!reasons(model), "{model}");
        }
    }

    #[test]
    fn a_conversation_is_written_as_each_of_its_requests_would_be() {
        let (whole, extras) = (history(), ModelExtras::default());
        let mut longer = whole.clone();
        longer.push(assistant(vec![Block::text("and")]));
        longer.push(Message::user(Origin::Guidance, "on"));
        let known = KnownPrefix { response_id: "resp_1".into(), messages: longer.len() - 1 };
        let mut prompted = request(vec![whole[0].clone(), Message::user(Origin::Guidance, "  ")]);
        prompted.system = "be brief".into();
        let requests = [
            (request(whole), None),
            (request(longer.clone()), None),
            (request(longer), Some(&known)),
            (prompted, None),
            (request(vec![]), None),
        ];
        let mut written = Written::default();
        for (request, known) in &requests {
            let alone = write(&mut Written::default(), request, *known, true, &extras);
            assert_eq!(write(&mut written, request, *known, true, &extras), alone);
            let read: Value = serde_json::from_str(&alone).unwrap();
            assert!(read["input"].is_array(), "{alone}");
        }
    }
}
