//! Every error of a provider × the three wires × the shapes in which APIs and gateways write one × the places where it may stand: with its own status,
//! as JSON with a success, in a stream. It is the same error in each of them.

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use ua_core::Env;
use ua_llm::{ChatConfig, ChatProvider, LlmError, LlmProvider, OpenAiConfig, OpenAiProvider, Silent};

use super::support::{body_of, prompt, provider, request};

/// An error by its status, its name, its words and what is made of it.
const ERRORS: [(u16, &str, &str, &str); 13] = [
    (400, "invalid_request_error", "prompt is too long: 215000 tokens > 200000 maximum", "TooLong"),
    (
        400,
        "invalid_request_error",
        "This endpoint's maximum context length is 30000 tokens. However, you requested about 42000 tokens",
        "TooLong",
    ),
    (413, "request_too_large", "Request exceeds the maximum size", "TooLong"),
    (400, "invalid_request_error", "bad temperature", "InvalidRequest"),
    (400, "invalid_request_error", "Your credit balance is too low to access the API.", "Unpaid"),
    (401, "authentication_error", "invalid x-api-key", "Unauthorized"),
    (402, "billing_error", "pay first", "Unpaid"),
    (403, "permission_error", "not with this key", "Unauthorized"),
    (404, "not_found_error", "No endpoints found for claude-x.", "NotFound"),
    (429, "rate_limit_error", "slow down", "RateLimited"),
    (500, "api_error", "Internal server error", "Server"),
    (504, "timeout_error", "it took too long", "Server"),
    (529, "overloaded_error", "Overloaded", "Overloaded"),
];

/// How an error is written: as Anthropic does, as OpenAI does with a name for its code, as routers do with a number, as older vLLM does.
fn shapes(status: u16, name: &str, message: &str) -> [Value; 4] {
    [
        json!({"type": "error", "error": {"type": name, "message": message}, "request_id": "req_1"}),
        json!({"error": {"message": message, "type": null, "param": null, "code": name}}),
        json!({"error": {"message": message, "code": status}}),
        json!({"object": "error", "message": message, "type": name, "param": null, "code": status}),
    ]
}

/// The places, each as an answer to a request.
fn answers(status: u16, error: &Value) -> [(&'static str, String); 3] {
    let answer = |status: &str, kind: &str, body: &str| {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n");
        format!("{head}content-length: {}\r\n\r\n{body}", body.len())
    };
    [
        ("a status", answer(&format!("{status} No"), "application/json", &error.to_string())),
        ("JSON", answer("200 OK", "application/json", &error.to_string())),
        ("a stream", answer("200 OK", "text/event-stream", &format!(": WAITING\n\ndata: {error}\n\n"))),
    ]
}

fn wires(base: &str) -> [Box<dyn LlmProvider>; 3] {
    let (env, v1) = (Env::simulated(1), format!("{base}/v1"));
    let openai =
        OpenAiConfig { base_url: v1.clone(), ..OpenAiConfig::new(SecretString::from("sk-test-0123456789".to_owned())) };
    let chat = ChatConfig { base_url: v1, ..ChatConfig::new(None) };
    [
        Box::new(provider(base, &env)),
        Box::new(OpenAiProvider::new(openai, env.clone()).unwrap()),
        Box::new(ChatProvider::new(chat, env).unwrap()),
    ]
}

fn name_of(error: &LlmError) -> String {
    format!("{error:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn an_error_is_the_same_wherever_and_however_it_is_written() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let wires = wires(&format!("http://{}", listener.local_addr().unwrap()));
    for (status, name, message, expected) in ERRORS {
        for shape in shapes(status, name, message) {
            for (place, answer) in answers(status, &shape) {
                for wire in &wires {
                    let asked = request(prompt());
                    let serve = async {
                        let (mut socket, _) = listener.accept().await.unwrap();
                        body_of(&mut socket).await;
                        socket.write_all(answer.as_bytes()).await.unwrap();
                    };
                    let (got, ()) = tokio::join!(wire.complete(&asked, &Silent), serve);
                    let what = format!("{} {shape} as {place}", wire.name());
                    let Err(error) = got else { panic!("{what}") };
                    assert_eq!(name_of(&error), expected, "{what}: {error}");
                    let said = error.to_string();
                    assert!(said.contains(message), "{what}: {said}");
                    // No status is said to have come but the one that did.
                    assert!(place == "a status" || !said.contains("HTTP"), "{what}: {said}");
                    // The name of a model that is not there is the one that was asked for.
                    assert!(expected != "NotFound" || said.contains("the model \"claude-x\""), "{what}: {said}");
                }
            }
        }
    }
}
