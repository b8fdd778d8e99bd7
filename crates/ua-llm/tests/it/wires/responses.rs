//! The client of the Responses API against a real HTTP server.

use super::support::{KEY, Seen, Watch, known_of, prompt, request, rich_script, script, server, statuses};
use secrecy::SecretString;
use serde_json::{Value, json};
use ua_core::{Block, Env, Message, ModelTurn, Origin, Role, StopReason, ToolUse};
use ua_http::Versions;
use ua_llm::{
    KeptReply, KnownPrefix, LlmError, LlmProvider as _, ModelRequest, OpenAiConfig, OpenAiProvider, ScriptedProvider,
    Silent, Status, ToolOffer,
};
use ua_testkit::{Fault, FaultKind, ModelServer};

fn provider(server: &ModelServer, keep_replies: bool) -> OpenAiProvider {
    let key = SecretString::from(KEY.to_owned());
    let config = OpenAiConfig { base_url: server.base_url.clone(), keep_replies, ..OpenAiConfig::new(key) };
    OpenAiProvider::new(config, Env::simulated(1)).unwrap()
}

/// A model that thinks, so that its thoughts are asked for.
fn thinking(messages: Vec<Message>) -> ModelRequest {
    ModelRequest { model: "gpt-5".into(), ..request(messages) }
}

fn results() -> Message {
    let result = |id: &str, content: &str| Block::ToolResult {
        tool_use_id: id.into(),
        content: content.into(),
        is_error: false,
    };
    let blocks = vec![result("toolu_1_1", "soup of the day"), result("toolu_1_2", "")];
    Message { role: Role::User, origin: Origin::Tools, blocks: blocks.into() }
}

/// The history after the first turn of the rich script.
fn answered(reply: Message) -> Vec<Message> {
    let note = Message::user(Origin::Resume, "You were interrupted; nothing was lost.");
    prompt().into_iter().chain([reply, note, results()]).collect()
}

/// A turn without what only its provider understands, and without its names.
fn spoken(turn: ModelTurn) -> ModelTurn {
    let is_spoken = |block: &Block| !matches!(block, Block::Opaque { .. });
    ModelTurn { blocks: turn.blocks.into_iter().filter(is_spoken).collect(), response_id: None, usage: None, ..turn }
}

#[tokio::test]
async fn the_server_and_the_scripted_provider_play_the_same_turns() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, false);
    let scripted = ScriptedProvider::new(rich_script());
    let (by_wire, in_process) = (Watch::default(), Watch::default());
    let first = http.complete(&thinking(prompt()), &by_wire).await.unwrap();
    let expected = scripted.complete(&thinking(prompt()), &in_process).await.unwrap();
    assert_eq!(first.usage, expected.usage);
    assert_eq!(spoken(first.clone()), spoken(expected));
    let seen = Seen { sent: 1, sessions: vec!["resp_scripted_1_1".into()], text: in_process.seen().text };
    assert_eq!(by_wire.seen(), seen);

    let history = answered(first.into_message());
    let second = http.complete(&thinking(history.clone()), &Silent).await.unwrap();
    assert_eq!(spoken(second.clone()), spoken(scripted.complete(&thinking(history), &Silent).await.unwrap()));
    assert_eq!((second.text().as_str(), second.stop_reason), ("It says soup of the day.", StopReason::EndTurn));
    assert_eq!((http.name(), server.kept_replies()), ("openai", Vec::new()));
}

#[tokio::test]
async fn thoughts_go_back_as_they_came_and_nothing_is_kept_unless_asked_for() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, false);
    let first = http.complete(&thinking(prompt()), &Silent).await.unwrap();
    let Some(Block::Opaque { provider: by, value: thought }) = first.blocks.first().cloned() else {
        panic!("no thought")
    };
    assert_eq!((by.as_str(), &thought["type"]), ("openai", &json!("reasoning")));
    // Through the text form in which a history is stored.
    let stored = serde_json::to_string(&first.into_message()).unwrap();
    http.complete(&thinking(answered(serde_json::from_str(&stored).unwrap())), &Silent).await.unwrap();
    let sent = server.last_request().unwrap();
    assert_eq!((&sent["input"][1], &sent["store"]), (&thought, &json!(false)));

    // The server looks: a changed thought is refused, and the request is made again without it.
    let mut changed = serde_json::from_str::<Message>(&stored).unwrap();
    if let Block::Opaque { value, .. } = &mut changed.blocks[0] {
        let text = value["encrypted_content"].as_str().unwrap().replace("first", "last");
        value["encrypted_content"] = json!(text);
    }
    let requests = server.requests();
    let reply = http.complete(&thinking(answered(changed)), &Silent).await.unwrap();
    assert_eq!((reply.text().as_str(), server.requests()), ("It says soup of the day.", requests + 2));
    let sent = server.last_request().unwrap();
    assert!(sent["input"].as_array().unwrap().iter().all(|item| item["type"] != "reasoning"), "{sent}");
}

#[tokio::test]
async fn a_reply_that_is_kept_is_continued_from_with_what_is_new() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, true);
    let asked = thinking(prompt());
    let first = http.complete(&asked, &Silent).await.unwrap();
    let kept = KeptReply::of(first.response_id.as_deref(), first.stop_reason, asked.digest()).unwrap();
    assert_eq!(server.kept_replies(), [kept.response_id.as_str()]);

    let next = thinking(answered(first.into_message()));
    let known = known_of(&kept, &next).unwrap();
    let second = http.complete_from(&known, &next, &Silent).await.unwrap();
    // The model had all of it in view.
    assert_eq!(second.text(), "It says soup of the day.");
    let sent = server.last_request().unwrap();
    assert_eq!(sent["previous_response_id"], kept.response_id);
    let kinds: Vec<&str> =
        sent["input"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["function_call_output", "function_call_output", "message"]);
    assert!(sent.get("conversation").is_none());

    // Another request may continue from the same reply: what is kept never changes.
    let other = http.complete_from(&known, &next, &Silent).await.unwrap();
    assert_eq!((other.text(), server.kept_replies().len()), (second.text(), 3));
    // What is billed is what the model knows, however little was sent.
    assert_eq!(http.complete(&next, &Silent).await.unwrap().usage, second.usage);
}

#[tokio::test]
async fn a_reply_that_the_provider_has_forgotten_is_told_and_costs_nothing() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, true);
    let asked = thinking(prompt());
    let first = http.complete(&asked, &Silent).await.unwrap();
    let kept = KeptReply::of(first.response_id.as_deref(), first.stop_reason, asked.digest()).unwrap();
    let next = thinking(answered(first.into_message()));
    server.forget_replies();
    let error = http.complete_from(&known_of(&kept, &next).unwrap(), &next, &Silent).await.unwrap_err();
    assert!(matches!(&error, LlmError::SessionForgotten { response_id, .. } if *response_id == kept.response_id));
    assert!(error.left_us() && error.was_refused() && error.may_retry());
    assert_eq!(http.complete(&next, &Silent).await.unwrap().text(), "It says soup of the day.");
}

#[tokio::test]
async fn a_provider_that_keeps_nothing_is_sent_everything() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, false);
    let first = http.complete(&thinking(prompt()), &Silent).await.unwrap();
    let known = KnownPrefix { response_id: first.response_id.clone().unwrap(), messages: 2 };
    let next = thinking(answered(first.into_message()));
    assert_eq!(http.complete_from(&known, &next, &Silent).await.unwrap().text(), "It says soup of the day.");
    assert!(server.last_request().unwrap().get("previous_response_id").is_none());
}

#[tokio::test]
async fn the_server_refuses_what_the_api_refuses() {
    let server = server(rich_script(), vec![]).await;
    let http = provider(&server, false);
    let first = http.complete(&thinking(prompt()), &Silent).await.unwrap();
    let reply = first.into_message();
    let without_result = vec![prompt().remove(0), reply.clone(), Message::user(Origin::Resume, "go on")];
    let without_call = vec![prompt().remove(0), results()];
    let mut twice = answered(reply);
    twice.push(results());
    for (history, why) in [
        (without_result, "No tool output found for function call toolu_1_1"),
        (without_call, "No tool call found for function call output with call_id toolu_1_1"),
        (twice, "No tool call found for function call output with call_id toolu_1_1"),
    ] {
        let error = http.complete(&thinking(history), &Silent).await.unwrap_err();
        assert!(matches!(&error, LlmError::InvalidRequest { message, .. } if message.contains(why)), "{error}");
    }
    // Thoughts of a model that has none.
    let refused = raw(&server, json!({"model": "gpt-4.1", "input": [said("hi")], "max_output_tokens": 16, "include": ["reasoning.encrypted_content"]})).await;
    assert!(refused.contains("not supported with this model"), "{refused}");
    // Somebody else's conversation, which others may change.
    let refused =
        raw(&server, json!({"model": "m", "input": [said("hi")], "max_output_tokens": 16, "conversation": "conv_1"}))
            .await;
    assert!(refused.contains("conversation"), "{refused}");
}

fn said(text: &str) -> Value {
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

async fn raw(server: &ModelServer, body: Value) -> String {
    let request = ua_http::client(Versions::OneAndTwo)
        .no_proxy()
        .build()
        .unwrap()
        .post(format!("{}/v1/responses", server.base_url));
    let request = request.bearer_auth(KEY).header("content-type", "application/json").body(body.to_string());
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn failures_are_told_after_one_request_and_cut_replies_are_no_turns() {
    let kinds = [
        (FaultKind::RateLimited { retry_after: None }, 429),
        (FaultKind::Server500, 500),
        (FaultKind::Status { status: 503 }, 503),
        (FaultKind::CutBeforeFirstEvent, 200),
        (FaultKind::CutMidStream, 200),
        (FaultKind::EndWithoutStop, 200),
        (FaultKind::ErrorMidStream { error_type: "server_error".into() }, 200),
        (FaultKind::ErrorMidStream { error_type: "rate_limit_exceeded".into() }, 200),
    ];
    for (kind, status) in kinds {
        let server = server(rich_script(), vec![Fault::at(1, kind.clone())]).await;
        let http = provider(&server, true);
        let watch = Watch::default();
        let error = http.complete(&thinking(prompt()), &watch).await.unwrap_err();
        assert!(error.may_retry() && error.left_us(), "{kind:?}: {error:?}");
        assert_eq!((statuses(&server), watch.seen().sent), (vec![status], 1), "{kind:?}");
        assert_eq!(server.kept_replies(), Vec::<String>::new(), "{kind:?}");
        http.complete(&thinking(prompt()), &watch).await.unwrap();
        assert_eq!(server.log()[0].sha256, server.log()[1].sha256, "{kind:?}");
    }
    for status in [400, 401, 403, 404, 422] {
        let server = server(rich_script(), vec![Fault::at(1, FaultKind::Status { status })]).await;
        let error = provider(&server, false).complete(&thinking(prompt()), &Silent).await.unwrap_err();
        let reason = if status == 404 { "there is no model of this name" } else { "told to say so" };
        assert!(!error.may_retry() && error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_wrong_key_is_refused_without_showing_it() {
    let server = server(rich_script(), vec![]).await;
    let config = OpenAiConfig {
        base_url: server.base_url.clone(),
        ..OpenAiConfig::new(SecretString::from("sk-wrong".to_owned()))
    };
    let client = OpenAiProvider::new(config, Env::simulated(1)).unwrap();
    let error = client.complete(&thinking(prompt()), &Silent).await.unwrap_err();
    assert!(matches!(&error, LlmError::Unauthorized { status: Status::Http(401), .. }));
    assert!(!format!("{error} {error:?} {client:?}").contains("sk-wrong"));
}

#[tokio::test]
async fn a_cut_reply_and_garbled_arguments_can_be_answered() {
    let played = script(&json!({"turns": [
        {"thinking": "Hm.", "tools": [{"name": "t", "input": "{\"path\": \"a"}], "stop_reason": "max_tokens"},
        {"text": "sorry", "expect": {"tool_result_ok": false}},
    ]}));
    let server = server(played, vec![]).await;
    let http = provider(&server, true);
    let asked = thinking(prompt());
    let first = http.complete(&asked, &Silent).await.unwrap();
    assert_eq!(
        (first.stop_reason, &first.tool_uses().next().unwrap().input),
        (StopReason::MaxTokens, &json!("{\"path\": \"a"))
    );
    assert_eq!(KeptReply::of(first.response_id.as_deref(), first.stop_reason, asked.digest()), None);
    let refused = Block::ToolResult { tool_use_id: "toolu_1_1".into(), content: "cut".into(), is_error: true };
    let mut history = prompt();
    history.extend([
        first.into_message(),
        Message { role: Role::User, origin: Origin::Tools, blocks: vec![refused].into() },
    ]);
    assert_eq!(http.complete(&thinking(history), &Silent).await.unwrap().text(), "sorry");
}

#[tokio::test]
async fn a_tool_whose_name_is_too_long_for_the_api_is_asked_for_by_its_own_name() {
    let long = format!("mcp__{}__{}", "server".repeat(9), "tool".repeat(5));
    let server = server(script(&json!({"turns": [{"tools": [{"name": "short"}]}, {"text": "ok"}]})), vec![]).await;
    let http = provider(&server, false);
    let offer = |name: &str| ToolOffer {
        name: name.into(),
        description: String::new(),
        input_schema: json!({"type": "object"}),
    };
    let mut asked = ModelRequest { tools: vec![offer(&long)].into(), ..thinking(prompt()) };
    let tool_use = ToolUse { id: "a".into(), name: long.clone(), input: json!({}) };
    let reply = Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![Block::ToolUse(tool_use)].into() };
    let result = Block::ToolResult { tool_use_id: "a".into(), content: "ok".into(), is_error: false };
    asked.messages.extend([reply, Message { role: Role::User, origin: Origin::Tools, blocks: vec![result].into() }]);
    http.complete(&asked, &Silent).await.unwrap();
    let sent = server.last_request().unwrap();
    assert_eq!(sent["tools"][0]["name"], sent["input"][1]["name"]);
    assert!(sent["tools"][0]["name"].as_str().unwrap().len() <= 64);
}
