//! A model server that follows a script: a real HTTP server on 127.0.0.1 that speaks the Anthropic Messages API, the OpenAI
//! Responses API and Chat Completions, checks what it is sent as strictly as the APIs do, and fails when it is told to.
//!
//! Its reading and writing of the wire format is its own, not `ua-llm`'s, so that a mistake on one side shows.

mod chat;
mod count;
mod fault;
mod responses;
mod responses_route;
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use ua_core::{ModelTurn, Sha256, Usage, sha256};
use ua_llm::Script;

use self::fault::{Ending, Frames, Pace};
pub use self::fault::{Fault, FaultKind};

/// What a [`ModelServer`] does.
#[derive(Debug, Clone)]
pub struct ModelServerConfig {
    /// What the model says.
    pub script: Script,
    /// The one key that is accepted; any key is when absent, but there has to be one. Chat Completions then need none.
    pub api_key: Option<String>,
    /// When it fails, and how.
    pub faults: Vec<Fault>,
}

impl ModelServerConfig {
    /// A server that accepts any key and never fails.
    pub fn new(script: Script) -> Self {
        Self { script, api_key: None, faults: Vec::new() }
    }
}

/// What is known about one request; `GET /__log` lists them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestRecord {
    /// Its running number, from 1.
    pub number: u64,
    /// The digest of its body.
    pub sha256: Sha256,
    /// Messages in it; 0 when it could not be read.
    pub messages: usize,
    /// The turn of the script that it asked for, from 1; 0 when it could not be read.
    pub turn: usize,
    /// The conversation of the script it belongs to, by its `when`; `None` for the main one.
    pub conversation: Option<String>,
    /// The HTTP status of the answer; 0 while there is none.
    pub status: u16,
    /// The fault that was played, if any.
    pub fault: Option<FaultKind>,
    /// The reply that it continued from, where an API has that.
    pub continued_from: Option<String>,
    /// What a whole reply said it cost; `None` for a reply that was cut, refused or never came.
    pub usage: Option<Usage>,
}

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct ModelServer {
    /// Where it is: `http://127.0.0.1:PORT`.
    pub base_url: String,
    shared: Arc<Shared>,
    task: JoinHandle<std::io::Result<()>>,
}

impl ModelServer {
    /// Starts a server on a free port.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(config: ModelServerConfig) -> std::io::Result<Self> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let base_url = format!("http://{}", listener.local_addr()?);
        let shared = Arc::new(Shared::new(config));
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Self { base_url, shared, task })
    }

    /// Requests received so far.
    pub fn requests(&self) -> u64 {
        self.shared.seen().count
    }

    /// What is known about each request, in order of arrival.
    pub fn log(&self) -> Vec<RequestRecord> {
        self.shared.seen().log.clone()
    }

    /// The bill: what the replies that were whole said they cost, in order of arrival.
    pub fn bill(&self) -> Vec<Usage> {
        self.log().into_iter().filter_map(|record| record.usage).collect()
    }

    /// Forgets every conversation that was kept.
    pub fn forget_replies(&self) {
        self.shared.seen().kept.clear();
    }

    /// The names of the replies that are kept.
    pub fn kept_replies(&self) -> Vec<String> {
        self.shared.seen().kept.keys().cloned().collect()
    }

    /// The body of the latest request that was JSON.
    pub fn last_request(&self) -> Option<Value> {
        self.shared.seen().last_request.clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves on `listener` until the process ends: for a server in a process of its own.
///
/// # Errors
/// When the listener fails.
pub async fn serve_forever(listener: TcpListener, config: ModelServerConfig) -> std::io::Result<()> {
    serve(listener, Arc::new(Shared::new(config))).await
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/v1/messages", post(answer_messages))
        .route("/v1/messages/count_tokens", post(count::count))
        .route("/v1/responses", post(responses_route::answer))
        .route("/v1/chat/completions", post(answer_chat))
        .route("/__log", get(log))
        .layer(DefaultBodyLimit::disable())
        .with_state(shared);
    axum::serve(listener, router).await
}

#[derive(Debug)]
struct Shared {
    config: ModelServerConfig,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    count: u64,
    log: Vec<RequestRecord>,
    last_request: Option<Value>,
    /// Conversations that may be continued from.
    kept: responses::Kept,
}

impl Shared {
    fn new(config: ModelServerConfig) -> Self {
        Self { config, seen: Mutex::default() }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // A log with a gap is still a log.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request and plans its fault.
    fn arrive(&self, body: &[u8]) -> (u64, Option<FaultKind>) {
        let mut seen = self.seen();
        seen.count += 1;
        let number = seen.count;
        let fault = self.config.faults.iter().find(|fault| fault.at_request == number).map(|fault| fault.kind.clone());
        let record = RequestRecord {
            number,
            sha256: sha256(body),
            messages: 0,
            turn: 0,
            conversation: None,
            status: 0,
            fault: fault.clone(),
            continued_from: None,
            usage: None,
        };
        seen.log.push(record);
        (number, fault)
    }

    fn note(&self, number: u64, change: impl FnOnce(&mut RequestRecord)) {
        if let Some(record) = self.seen().log.iter_mut().find(|record| record.number == number) {
            change(record);
        }
    }
}

async fn log(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let seen = shared.seen();
    Json(json!({"requests": seen.count, "log": seen.log}))
}

/// The wire that a request came over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// The Anthropic Messages API.
    Messages,
    /// Chat Completions.
    Chat,
}

impl Wire {
    /// The key that a request shows.
    fn key(self, headers: &HeaderMap) -> Option<&str> {
        let header = |name: &str| headers.get(name).and_then(|key| key.to_str().ok()).filter(|key| !key.is_empty());
        match self {
            Self::Messages => header("x-api-key"),
            Self::Chat => header("authorization").and_then(|value| value.strip_prefix("Bearer ")),
        }
    }

    fn decode(self, body: &Value) -> Result<wire::Request, String> {
        match self {
            Self::Messages => wire::decode(body),
            Self::Chat => chat::decode(body),
        }
    }

    fn message(self, turn: &ModelTurn) -> Value {
        match self {
            Self::Messages => wire::message(turn),
            Self::Chat => chat::message(turn),
        }
    }

    fn events(self, turn: &ModelTurn, with_usage: bool) -> Frames {
        match self {
            Self::Messages => wire::events(turn),
            Self::Chat => chat::events(turn, with_usage),
        }
    }

    /// An error inside a stream.
    fn error_frame(self, error_type: &str) -> String {
        let message = "the server was told to say so";
        match self {
            Self::Messages => {
                wire::frame("error", &json!({"type": "error", "error": {"type": error_type, "message": message}}))
            }
            Self::Chat => chat::frame(&chat::error(error_type, message)),
        }
    }

    /// The body of an error answer.
    fn error_body(self, status: u16, message: &str, number: u64) -> Value {
        match self {
            Self::Messages => json!({
                "type": "error",
                "error": {"type": wire::error_type(status), "message": message},
                "request_id": format!("req_scripted_{number}"),
            }),
            Self::Chat => chat::error(chat::error_type(status), &format!("{message} (request req_scripted_{number})")),
        }
    }
}

async fn answer_messages(state: State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(Wire::Messages, state, headers, body).await
}

async fn answer_chat(state: State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    answer(Wire::Chat, state, headers, body).await
}

async fn answer(wire: Wire, State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let (number, fault) = shared.arrive(&body);
    if matches!(fault, Some(FaultKind::Hang)) {
        std::future::pending::<()>().await;
    }
    let is_whole = fault.as_ref().is_none_or(FaultKind::leaves_the_reply_whole);
    let response = match reply(wire, &shared, number, &headers, &body) {
        Err(refusal) => refusal.response(wire, number),
        Ok(Reply { turn, streamed, with_usage }) => {
            shared.note(number, |record| record.usage = is_whole.then(|| turn.usage.unwrap_or_default()));
            let events = || wire.events(&turn, with_usage);
            match fault.map(FaultKind::plan) {
                Some(fault::Plan::Refuse(refusal)) => refusal.response(wire, number),
                Some(fault::Plan::Stream(pace)) => stream(wire, events(), &pace),
                Some(fault::Plan::Page) => {
                    ([(header::CONTENT_TYPE, "text/html")], "<html>sign in</html>").into_response()
                }
                Some(fault::Plan::Endless) => endless(),
                None if streamed => stream(wire, events(), &Pace::default()),
                None => Json(wire.message(&turn)).into_response(),
            }
        }
    };
    shared.note(number, |record| record.status = response.status().as_u16());
    response
}

struct Reply {
    turn: ModelTurn,
    streamed: bool,
    with_usage: bool,
}

/// Reads a request and asks the script.
fn reply(wire: Wire, shared: &Shared, number: u64, headers: &HeaderMap, body: &[u8]) -> Result<Reply, Refusal> {
    match (wire.key(headers), &shared.config.api_key) {
        // As servers of Chat Completions on one's own machine do.
        (None, None) if wire == Wire::Chat => {}
        (None, _) => return Err(Refusal::new(401, "x-api-key header is required")),
        (Some(key), Some(expected)) if key != expected => return Err(Refusal::new(401, "invalid x-api-key")),
        (Some(_), _) => {}
    }
    if wire == Wire::Messages && !headers.contains_key("anthropic-version") {
        return Err(Refusal::invalid("anthropic-version: header is required"));
    }
    let body: Value = serde_json::from_slice(body).map_err(|error| Refusal::invalid(&error.to_string()))?;
    shared.seen().last_request = Some(body.clone());
    let request = wire.decode(&body).map_err(|why| Refusal::invalid(&why))?;
    shared.note(number, |record| {
        record.messages = request.messages.len();
        record.turn = Script::turn_of(&request.messages);
        let conversation = shared.config.script.conversation_of(&request.messages);
        record.conversation = conversation.map(|conversation| conversation.when.clone());
    });
    let script = &shared.config.script;
    let turn = script
        .reply(&request.model, &request.system, &request.messages, number)
        .map_err(|error| Refusal::invalid(&error.to_string()))?;
    Ok(Reply { turn, streamed: request.stream, with_usage: request.with_usage })
}

/// An error answer.
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) retry_after: Option<String>,
    /// The Responses API's code of the error.
    pub(crate) code: Option<&'static str>,
    /// The field that it is about, as the Responses API names it.
    pub(crate) param: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: u16, message: &str) -> Self {
        Self { status, message: message.to_owned(), retry_after: None, code: None, param: None }
    }

    fn invalid(message: &str) -> Self {
        Self::new(400, message)
    }

    fn response(self, wire: Wire, number: u64) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = wire.error_body(self.status, &self.message, number);
        let mut response = (status, Json(body)).into_response();
        if let Some(value) = self.retry_after.and_then(|text| text.parse().ok()) {
            response.headers_mut().insert(header::RETRY_AFTER, value);
        }
        response
    }
}

/// Streams a reply's events, and stops as `pace` says.
fn stream(wire: Wire, events: Frames, pace: &Pace) -> Response {
    let (frames, ending) = pace.cut(|error_type| wire.error_frame(error_type), events);
    stream_frames(frames, ending, pace)
}

fn stream_frames(frames: Vec<String>, ending: Ending, pace: &Pace) -> Response {
    let clock = ua_core::system::env().clock;
    let delay = pace.delay;
    let steps = frames.into_iter().map(Some).chain([None]);
    let body = futures_util::stream::unfold(steps, move |mut steps| {
        let clock = Arc::clone(&clock);
        async move {
            match steps.next()? {
                Some(frame) => {
                    if delay > Duration::ZERO {
                        clock.sleep(delay).await;
                    }
                    Some((Ok(frame), steps))
                }
                None if ending == Ending::Abort => {
                    // Lets what was written so far reach the wire before the connection is torn down.
                    tokio::task::yield_now().await;
                    Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), steps))
                }
                None if ending == Ending::Never => std::future::pending().await,
                None => None,
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(body)).into_response()
}

/// Comments without end: sound, but nothing in it.
fn endless() -> Response {
    let padding = Bytes::from(format!(": {}\n", "x".repeat(1 << 20)));
    let body = futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(padding.clone()));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(body)).into_response()
}
