//! What the tests of the client share.

use std::sync::Mutex;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use ua_core::{Env, Message, Origin, Usage};
use ua_llm::{
    AnthropicConfig, AnthropicProvider, KeptReply, KnownPrefix, Measurer, ModelRequest, Script, StreamObserver,
    ToolOffer,
};
use ua_testkit::{Fault, FaultKind, ModelServer, ModelServerConfig};

pub(crate) const KEY: &str = "sk-ant-test-0123456789";

/// Writes down what it sees.
#[derive(Default)]
pub(crate) struct Watch(Mutex<Seen>, Mutex<Option<Usage>>);

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) sent: u32,
    pub(crate) sessions: Vec<String>,
    pub(crate) text: String,
}

impl Watch {
    pub(crate) fn seen(&self) -> Seen {
        self.0.lock().unwrap().clone()
    }

    /// What the reply was said to have cost so far.
    pub(crate) fn heard(&self) -> Option<Usage> {
        *self.1.lock().unwrap()
    }
}

impl StreamObserver for Watch {
    fn sent(&self) {
        self.0.lock().unwrap().sent += 1;
    }

    fn session(&self, response_id: &str) {
        self.0.lock().unwrap().sessions.push(response_id.to_owned());
    }

    fn heard(&self, so_far: Usage) {
        *self.1.lock().unwrap() = Some(so_far);
    }

    fn text(&self, delta: &str) {
        self.0.lock().unwrap().text.push_str(delta);
    }
}

pub(crate) fn script(value: &Value) -> Script {
    Script::parse(&value.to_string()).unwrap()
}

/// Two turns with everything that a reply can hold.
pub(crate) fn rich_script() -> Script {
    script(&json!({
        "model": "claude-played",
        "turns": [
            {
                "thinking": "The café's menu first, then the mail.",
                "text": "I will read the menu and tell everybody about it – in request {{request}}.",
                "tools": [
                    {"name": "mcp__ua__read_file", "input": {"path": "menü.txt", "limit": 9_007_199_254_740_993_u64}},
                    {"name": "mcp__ua__list_files"},
                ],
            },
            {"text": "It says {{result:toolu_1_1}}.", "expect": {"contains": ["soup"], "tool_result_ok": true}},
        ],
    }))
}

pub(crate) fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        model: "claude-x".into(),
        system: "You are careful.".into(),
        messages,
        tools: vec![ToolOffer {
            name: "mcp__ua__read_file".into(),
            description: "Reads a file.".into(),
            input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
        }]
        .into(),
        max_output_tokens: 4096,
        temperature_milli: Some(500),
        seed: None,
        output_schema: None,
        wants_form: false,
    }
}

/// What a provider knows of a request that is measured by itself.
pub(crate) fn known_of(kept: &KeptReply, request: &ModelRequest) -> Option<KnownPrefix> {
    let mut measurer = Measurer::default();
    measurer.measure(request);
    kept.known_of(request, &measurer)
}

pub(crate) fn prompt() -> Vec<Message> {
    vec![Message::user(Origin::Prompt, "What is on the menu?")]
}

pub(crate) fn config(base_url: &str) -> AnthropicConfig {
    AnthropicConfig { base_url: base_url.to_owned(), ..AnthropicConfig::new(SecretString::from(KEY.to_owned())) }
}

pub(crate) fn provider(base_url: &str, env: &Env) -> AnthropicProvider {
    AnthropicProvider::new(config(base_url), env.clone()).unwrap()
}

pub(crate) async fn server(script: Script, faults: Vec<Fault>) -> ModelServer {
    ModelServer::start(ModelServerConfig { api_key: Some(KEY.to_owned()), faults, ..ModelServerConfig::new(script) })
        .await
        .unwrap()
}

/// A server of the rich script that fails at every one of the first `times` requests.
pub(crate) async fn failing(kind: &FaultKind, times: u64) -> ModelServer {
    server(rich_script(), (1..=times).map(|number| Fault::at(number, kind.clone())).collect()).await
}

/// The HTTP statuses of the server's answers.
pub(crate) fn statuses(server: &ModelServer) -> Vec<u16> {
    server.log().iter().map(|record| record.status).collect()
}

/// The body of a request that a test's own server gets.
pub(crate) async fn body_of(socket: &mut tokio::net::TcpStream) -> Value {
    let mut read = Vec::new();
    loop {
        let mut piece = [0_u8; 4096];
        let length = socket.read(&mut piece).await.unwrap();
        read.extend_from_slice(&piece[..length]);
        let text = String::from_utf8_lossy(&read);
        if let Some(body) = text.split_once("\r\n\r\n").and_then(|(_, body)| serde_json::from_str(body).ok()) {
            return body;
        }
    }
}

/// Its answer, in JSON.
pub(crate) async fn answer(socket: &mut tokio::net::TcpStream, status: &str, body: &str) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    socket.write_all(answer.as_bytes()).await.unwrap();
}
