//! Ids of calls that another model made: every form that models give × what servers take × the three wires. A server that refuses one is asked once
//! more in the form that it takes, and in that form from then on; one that takes them gets them as they came, since they may say something to it.

use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use ua_core::{Block, Env, Message, Origin, Role, ToolUse};
use ua_llm::{
    AnthropicConfig, AnthropicProvider, ChatConfig, ChatProvider, LlmProvider, OpenAiConfig, OpenAiProvider,
    image_block,
};

use super::support::{Watch, answer, body_of, request};

/// What a server takes as an id, and the words in which it refuses others.
type Rule = (&'static str, fn(&str) -> bool);

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

const RULES: [Rule; 4] = [
    ("messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'", |id| {
        !id.is_empty() && id.chars().all(is_plain)
    }),
    (
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a string with length 391 instead.",
        |id| id.len() <= 40,
    ),
    (
        "Invalid 'input[2].call_id': string too long. Expected a string with maximum length 64, but got a string with length 391 instead.",
        |id| id.len() <= 64,
    ),
    ("Tool call id was functions.t:0 but must be a-z, A-Z, 0-9, with a length of 9.", |id| {
        id.len() == 9 && id.chars().all(|c| c.is_ascii_alphanumeric())
    }),
];

/// The ids of the calls of a request, and those of their results, in order.
fn ids_in(body: &Value) -> (Vec<String>, Vec<String>) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for message in body["messages"].as_array().into_iter().flatten() {
        calls.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| text(&call["id"])));
        results.extend((message["role"] == "tool").then(|| text(&message["tool_call_id"])));
        for block in message["content"].as_array().into_iter().flatten() {
            match block["type"].as_str() {
                Some("tool_use") => calls.push(text(&block["id"])),
                Some("tool_result") => results.push(text(&block["tool_use_id"])),
                _ => {}
            }
        }
    }
    for item in body["input"].as_array().into_iter().flatten() {
        match item["type"].as_str() {
            Some("function_call") => calls.push(text(&item["call_id"])),
            Some("function_call_output") => results.push(text(&item["call_id"])),
            _ => {}
        }
    }
    (calls, results)
}

type Asked = Arc<Mutex<Vec<Value>>>;

/// A server that refuses ids that are against its rule, and answers all else on whichever wire it was asked.
async fn server((refusal, takes): Rule) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let body = body_of(&mut socket).await;
            let is_taken = ids_in(&body).0.iter().all(|id| takes(id));
            kept.lock().unwrap().push(body);
            let reply = json!({"id": "r", "model": "m", "status": "completed", "stop_reason": "end_turn",
                "content": [{"type": "text", "text": "done"}],
                "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "done"}}],
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "done"}]}]});
            let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": refusal}});
            let (status, body) =
                if is_taken { ("200 OK", reply.to_string()) } else { ("400 Bad Request", error.to_string()) };
            answer(&mut socket, status, &body).await;
        }
    });
    (format!("http://{address}/v1"), asked)
}

fn wires(base_url: &str) -> Vec<Box<dyn LlmProvider>> {
    let (env, key) = (Env::simulated(1), || SecretString::from("key".to_owned()));
    let base_url = base_url.to_owned();
    let anthropic = AnthropicConfig { base_url: base_url.clone(), ..AnthropicConfig::new(key()) };
    let chat = ChatConfig { base_url: base_url.clone(), ..ChatConfig::new(Some(key())) };
    let openai = OpenAiConfig { base_url, ..OpenAiConfig::new(key()) };
    vec![
        Box::new(AnthropicProvider::new(anthropic, env.clone()).unwrap()),
        Box::new(ChatProvider::new(chat, env.clone()).unwrap()),
        Box::new(OpenAiProvider::new(openai, env).unwrap()),
    ]
}

/// A history with a call of each id, its result, and a picture of that.
fn history(ids: &[String]) -> Vec<Message> {
    let mut messages = vec![Message::user(Origin::Prompt, "go")];
    for id in ids {
        let call = Block::ToolUse(ToolUse { id: id.clone(), name: "t".into(), input: json!({}) });
        let result = Block::ToolResult { tool_use_id: id.clone(), content: "ok".into(), is_error: false };
        let image = image_block(id, "image/png", "iVBORw0KGgo=").unwrap();
        messages.push(Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![call].into() });
        messages.push(Message { role: Role::User, origin: Origin::Tools, blocks: vec![result, image].into() });
    }
    messages
}

/// Two ids of each form that models and servers give.
fn forms() -> [Vec<String>; 9] {
    let long = format!("call_1__thought__{}", "CiQBjz1rX+/=".repeat(32));
    [
        ["toolu_01A", "toolu_01B"].map(str::to_owned).into(),
        ["call_9f0a8a2b1c3d4e5f6a7b8c9d", "call_8f0a8a2b1c3d4e5f6a7b8c9d"].map(str::to_owned).into(),
        ["functions.t:0", "functions.t:1"].map(str::to_owned).into(),
        ["\u{fc} 1", "\u{fc} 2"].map(str::to_owned).into(),
        ["a/b/1", "a/b/2"].map(str::to_owned).into(),
        ["123456789", "abcdefghi"].map(str::to_owned).into(),
        ["x".repeat(41), "y".repeat(41)].into(),
        ["x".repeat(65), "y".repeat(65)].into(),
        [format!("{long}1"), format!("{long}2")].into(),
    ]
}

#[tokio::test]
async fn an_id_that_a_server_refuses_is_another_one_there_and_each_result_has_that_of_its_call() {
    for rule in RULES {
        let (url, asked) = server(rule).await;
        for ids in forms() {
            for wire in 0..wires(&url).len() {
                // A client that knows nothing of the server yet.
                let provider = wires(&url).remove(wire);
                let shown = format!("{} {ids:?} {}", provider.name(), rule.0);
                // These two are rules of one wire; the other clients have no form for them.
                let is_of_chat = ["length of 9", "length 40"].iter().any(|words| rule.0.contains(words));
                if is_of_chat && provider.name() != "openai-chat" {
                    continue;
                }
                let is_taken = ids.iter().all(|id| (rule.1)(id));
                for (messages, first) in [(history(&ids), true), (history(&ids), false)] {
                    asked.lock().unwrap().clear();
                    let watch = Watch::default();
                    let reply = provider.complete(&request(messages), &watch).await.expect(&shown);
                    assert_eq!(reply.text(), "done", "{shown}");
                    let bodies = asked.lock().unwrap().clone();
                    let expected = if is_taken || !first { 1 } else { 2 };
                    assert_eq!((bodies.len(), watch.seen().sent as usize), (expected, expected), "{shown}");
                    let (calls, results) = ids_in(bodies.last().unwrap());
                    assert_eq!(calls, results, "{shown}");
                    assert!(calls[0] != calls[1] && calls.iter().all(|id| (rule.1)(id)), "{shown}: {calls:?}");
                    // What a server takes goes back as it came, and no body has an id that was changed in part.
                    assert_eq!(calls == ids, is_taken, "{shown}");
                    let body = bodies.last().unwrap().to_string();
                    assert!(is_taken || !body.contains(&json!(ids[0]).to_string().replace('"', "")), "{shown}: {body}");
                    assert_eq!(body.matches("iVBORw0KGgo=").count(), 2, "{shown}: {body}");
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_refused_for_another_reason_is_not_asked_again_for_its_ids() {
    for words in [
        "messages: at least one message is required",
        "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: functions.t:0.",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "No tool output found for function call functions.t:0.",
        "This model's maximum context length is 8192 tokens, and 9000 were asked for (request id: 2024a-z01).",
    ] {
        let (url, asked) = server((words, |_| false)).await;
        let odd = ["functions.t:0".to_owned(), "functions.t:1".to_owned()];
        for provider in wires(&url) {
            asked.lock().unwrap().clear();
            provider.complete(&request(history(&odd)), &Watch::default()).await.unwrap_err();
            assert_eq!(asked.lock().unwrap().len(), 1, "{}: {words}", provider.name());
        }
    }
}
