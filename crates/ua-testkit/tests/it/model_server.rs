//! The model server as any HTTP client sees it.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use ua_llm::Script;
use ua_testkit::{Fault, FaultKind, ModelServer, ModelServerConfig, serve_forever};

fn script() -> Script {
    Script::parse(r#"{"turns": [{"text": "Hello.", "tools": [{"name": "t"}]}]}"#).unwrap()
}

/// Sends one request in plain HTTP and returns the status and the JSON body.
async fn send(base_url: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let mut socket = TcpStream::connect(base_url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

const HEADERS: &str = "x-api-key: k\r\nanthropic-version: 2023-06-01\r\n";

async fn post(base_url: &str, body: &Value) -> (u16, Value) {
    send(base_url, "POST", "/v1/messages", HEADERS, &body.to_string()).await
}

fn asking(messages: &Value) -> Value {
    json!({"model": "m", "max_tokens": 9, "messages": messages})
}

#[tokio::test]
async fn a_request_without_stream_gets_one_json_message() {
    let server = ModelServer::start(ModelServerConfig::new(script())).await.unwrap();
    let (status, body) = post(&server.base_url, &asking(&json!([{"role": "user", "content": "hi"}]))).await;
    assert_eq!(status, 200);
    let expected = json!({
        "id": "msg_scripted_1_1", "type": "message", "role": "assistant", "model": "m",
        "content": [
            {"type": "text", "text": "Hello."},
            {"type": "tool_use", "id": "toolu_1_1", "name": "t", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0},
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn what_the_api_would_refuse_is_refused() {
    let server = ModelServer::start(ModelServerConfig::new(script())).await.unwrap();
    let hi = json!({"role": "user", "content": "hi"});
    let asked = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "t", "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "ok"});
    let text = json!({"type": "text", "text": "and"});
    let cases = [
        (asking(&json!([])), "the history is not what the script expects: it has no messages"),
        (asking(&json!([hi, asked])), "the history is not what the script expects: the tool use a has no result"),
        (
            asking(&json!([hi, asked, {"role": "user", "content": [text, result]}])),
            "messages.2.content: `tool_result` blocks must come first",
        ),
        (asking(&json!([{"role": "user", "content": " "}])), "messages.0.content: text content blocks must contain"),
        (asking(&json!([{"role": "user", "content": []}])), "messages.0.content: at least one block is required"),
        (json!({"model": "m", "max_tokens": 0, "messages": [hi]}), "max_tokens: must be"),
        (
            json!({"model": "m", "max_tokens": 1, "messages": [hi], "tools": [{"name": "a.b", "input_schema": {}}]}),
            "tools.0.name",
        ),
        (json!({"model": "m", "max_tokens": 1}), "missing field `messages`"),
    ];
    for (body, message) in cases {
        let (status, answer) = post(&server.base_url, &body).await;
        assert_eq!((status, &answer["error"]["type"]), (400, &json!("invalid_request_error")), "{body}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with(message), "{answer}");
    }
    let (status, _) = send(&server.base_url, "POST", "/v1/messages", "", "{}").await;
    assert_eq!(status, 401);
}

#[tokio::test]
async fn a_server_of_its_own_tells_its_log_over_http() {
    let faults: Vec<Fault> =
        serde_json::from_value(json!([{"at_request": 1, "kind": "rate_limited", "retry_after": "3"}])).unwrap();
    assert_eq!(faults, [Fault::at(1, FaultKind::RateLimited { retry_after: Some("3".into()) })]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let serving =
        tokio::spawn(serve_forever(listener, ModelServerConfig { faults, ..ModelServerConfig::new(script()) }));

    let body = asking(&json!([{"role": "user", "content": "hi"}]));
    assert_eq!(post(&base_url, &body).await.0, 429);
    assert_eq!(post(&base_url, &body).await.0, 200);
    let (_, log) = send(&base_url, "GET", "/__log", "", "").await;
    let digest = ua_core::sha256(body.to_string());
    let fault = json!({"kind": "rate_limited", "retry_after": "3"});
    let record = |number, status, fault, usage| json!({"number": number, "sha256": digest, "messages": 1, "turn": 1, "status": status, "fault": fault, "usage": usage, "continued_from": null, "conversation": null});
    // Only what was answered whole is on the bill.
    let billed = json!({"input_tokens": 1, "output_tokens": 2, "cache_read_tokens": 0, "cache_write_tokens": 0});
    let records = [record(1, 429, fault, Value::Null), record(2, 200, Value::Null, billed)];
    assert_eq!(log, json!({"requests": 2, "log": records}));
    serving.abort();
}
