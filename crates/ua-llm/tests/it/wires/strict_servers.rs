//! Servers of Chat Completions that refuse what others take: where only the model may speak behind results of tools (Mistral's API, templates
//! of vLLM; words of ours stand there after a resume, and pictures of tools), and where the model said what the server cannot read.

use std::sync::{Arc, Mutex};

use secrecy::SecretString;
use serde_json::json;
use tokio::net::TcpListener;
use ua_core::{Block, Env, Message, Origin, Role, StopReason, ToolUse};
use ua_llm::{ChatConfig, ChatProvider, LlmProvider as _};

use super::support::{Watch, answer, body_of, request};

/// The roles of each request that came.
type Asked = Arc<Mutex<Vec<String>>>;

/// A server that refuses what a user says behind results, in words that servers have for it; others are answered.
async fn strict(refusal: &'static str, status: &'static str) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Asked::default());
    let kept = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let body = body_of(&mut socket).await;
            let roles = body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap());
            let roles = roles.collect::<Vec<_>>().join(" ");
            let is_refused = roles.contains("tool user");
            kept.lock().unwrap().push(roles);
            let reply = json!({"id": "c", "model": "m", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "done"}}]});
            let (status, body) = if is_refused { (status, refusal.to_owned()) } else { ("200 OK", reply.to_string()) };
            answer(&mut socket, status, &body).await;
        }
    });
    (format!("http://{address}/v1"), asked)
}

fn provider(base_url: &str) -> ChatProvider {
    let config =
        ChatConfig { base_url: base_url.to_owned(), ..ChatConfig::new(Some(SecretString::from("key".to_owned()))) };
    ChatProvider::new(config, Env::simulated(1)).unwrap()
}

/// A turn with a call, its result, and what is said behind it.
fn turn(id: &str, more: &[Block]) -> [Message; 2] {
    let call = Block::ToolUse(ToolUse { id: id.to_owned(), name: "t".into(), input: json!({}) });
    let result = Block::ToolResult { tool_use_id: id.to_owned(), content: "ok".into(), is_error: false };
    let said = std::iter::once(result).chain(more.iter().cloned()).collect::<Vec<_>>();
    [
        Message { role: Role::Assistant, origin: Origin::Model, blocks: vec![call].into() },
        Message { role: Role::User, origin: Origin::Tools, blocks: said.into() },
    ]
}

#[tokio::test]
async fn what_is_said_behind_results_reaches_a_model_that_alone_may_speak_there() {
    for (refusal, status) in [
        (r#"{"object":"error","message":"Unexpected role 'user' after role 'tool'","code":"3230"}"#, "400 Bad Request"),
        (
            r#"{"detail":"After the optional system message, conversation roles must alternate user/assistant"}"#,
            "422 x",
        ),
        (r#"{"error":{"message":"Conversation roles must alternate","code":500}}"#, "500 x"),
    ] {
        let (url, asked) = strict(refusal, status).await;
        let provider = provider(&url);
        let mut messages = vec![Message::user(Origin::Prompt, "go")];
        // As long as nobody speaks there, nothing is put in between.
        messages.extend(turn("a", &[]));
        let watch = Watch::default();
        provider.complete(&request(messages.clone()), &watch).await.unwrap();
        assert_eq!(watch.seen().sent, 1, "{refusal}");
        messages.extend(turn("b", &[Block::text("You were interrupted.")]));
        let watch = Watch::default();
        assert_eq!(provider.complete(&request(messages.clone()), &watch).await.unwrap().text(), "done");
        assert_eq!(watch.seen().sent, 2, "{refusal}");
        // The next ones know.
        messages.extend(turn("c", &[Block::text("Go on.")]));
        let watch = Watch::default();
        provider.complete(&request(messages), &watch).await.unwrap();
        assert_eq!(watch.seen().sent, 1, "{refusal}");
        let asked = asked.lock().unwrap().clone();
        let roles = |turns: &str| format!("system user assistant tool{turns}");
        let [first, refused, second, third] = asked.as_slice() else { panic!("{asked:?}") };
        assert_eq!(*first, roles(""));
        assert_eq!(*refused, roles(" assistant tool user"));
        assert_eq!(*second, roles(" assistant tool assistant user"));
        assert_eq!(*third, roles(" assistant tool assistant user assistant tool assistant user"));
    }
}

#[tokio::test]
async fn what_is_refused_for_another_reason_is_asked_once() {
    let (url, asked) = strict(r#"{"error":{"message":"temperature is too high"}}"#, "400 Bad Request").await;
    let mut messages = vec![Message::user(Origin::Prompt, "go")];
    messages.extend(turn("a", &[Block::text("You were interrupted.")]));
    provider(&url).complete(&request(messages), &Watch::default()).await.unwrap_err();
    assert_eq!(asked.lock().unwrap().len(), 1);
}

/// Groq refuses what its model said. It is a reply that is no answer, and no request that was wrong.
#[tokio::test]
async fn a_refusal_of_what_the_model_said_is_a_reply_that_is_none() {
    for (body, said) in [
        (
            r#"{"error":{"message":"Failed to call a function.","code":"tool_use_failed","failed_generation":"<function=t{}>"}}"#,
            "<function=t{}>",
        ),
        (
            r#"{"error":{"message":"tool call validation failed","code":"tool_use_failed"}}"#,
            "tool call validation failed",
        ),
    ] {
        let (url, asked) = strict(body, "400 Bad Request").await;
        let mut messages = vec![Message::user(Origin::Prompt, "go")];
        messages.extend(turn("a", &[Block::text("Again.")]));
        let reply = provider(&url).complete(&request(messages), &Watch::default()).await.unwrap();
        assert_eq!((reply.text().as_str(), reply.stop_reason, reply.usage), (said, StopReason::Other, None));
        assert_eq!(asked.lock().unwrap().len(), 1);
    }
}
