//! An endpoint for somebody who has messages of their own: they pass as they came.
//!
//! A client and a tool server that speak with each other agree on a version and on capabilities themselves; what is left is the transport: one
//! request is one POST, whatever comes on its stream beside the answer is handed on, a broken stream is taken up again with a GET, and the stream
//! that belongs to no request is opened with the session. A request is posted once and never again. One of the era in which each request stands
//! for itself says in headers what it is, and belongs to no session.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;
use ua_core::{Env, PrintedCommand};

use super::endpoint::{self, Endpoint, Failure, LAST_EVENT_ID, NotLetIn, PROTOCOL_VERSION, SESSION_ID};
use super::headers::{ParamHeaders, encoded, name_of};
use super::reading::{
    self, Events, HELD_OPEN, MAX_RESUME_WAIT, MAX_RESUMES, RESUME_WAIT, may_be_asked_again, taken_up,
};
use super::silence::Silence;
use super::{ASIDE, METHOD, NAME};
use crate::amount::read_message;
use crate::logins::{Bearer, Logins};
use crate::queue::QueueSender;

/// What became of a request.
#[derive(Debug)]
pub enum Relayed {
    /// The answer, a whole message of the protocol: a result or an error.
    Answer(Value),
    /// An HTTP status that is no success, and as much of the body as is kept.
    Status {
        /// The status.
        status: u16,
        /// The beginning of what came with it.
        body: String,
        /// It says that the session is over, and nothing about the request: another session may be let in.
        of_session: bool,
        /// For how many seconds the other side asks to be left alone, if it says.
        retry_after: Option<u64>,
        /// Why it does not show that a tool's call was not begun, although its status is one of those that do.
        doubt: Option<String>,
    },
    /// It did not leave, or was refused, by a challenge for a token, because a login had ended that is renewed by now.
    NotSent(String),
    /// It left, or may have, and no answer will come.
    Lost(String),
}

/// One session with an endpoint, in the words of whoever uses it.
pub struct Relay {
    wire: Arc<Wire>,
    listening: Mutex<Option<JoinHandle<()>>>,
}

struct Wire {
    server: String,
    endpoint: Endpoint,
    env: Env,
    agreed: Mutex<Agreed>,
    ended: Mutex<Option<String>>,
    silence: Silence,
    /// What the server asks and tells by itself.
    heard: QueueSender<Value>,
}

#[derive(Default)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relay").field(&self.wire.endpoint.shown()).finish()
    }
}

impl Relay {
    /// Prepares it; nothing is sent yet. What the server asks and tells by itself goes to `heard`. Whoever is logged in there by `logins`
    /// is let in by that.
    ///
    /// # Errors
    /// A sentence about an address or a header that cannot be used; it shows no header's value.
    pub fn new(
        server: &str,
        url: &str,
        headers: &BTreeMap<String, String>,
        env: Env,
        heard: QueueSender<Value>,
        logins: Option<&Logins>,
    ) -> Result<Self, String> {
        let user_agent = concat!("ua/", env!("CARGO_PKG_VERSION"));
        let endpoint = Endpoint::new(url, headers, user_agent, Bearer::of(logins, url))?;
        let wire = Wire {
            server: server.to_owned(),
            endpoint,
            env,
            agreed: Mutex::default(),
            ended: Mutex::default(),
            silence: Silence::default(),
            heard,
        };
        Ok(Self { wire: Arc::new(wire), listening: Mutex::default() })
    }

    /// Whether nothing more can be sent: the session is over, or nobody was there. Another one may be begun.
    pub fn is_over(&self) -> bool {
        lock(&self.wire.ended).is_some() || self.wire.endpoint.moved().is_some()
    }

    /// The identity of the login that its requests go with, or not at all; `None` where nobody is logged in.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub async fn login(&self) -> Result<Option<String>, String> {
        self.wire.endpoint.settled_login().await
    }

    /// Whether its session has been silent for so long that it is looked at before a call is sent that may not simply be made again.
    pub fn is_silent(&self) -> bool {
        let has_session = lock(&self.wire.agreed).session.is_some();
        has_session && self.wire.silence.is_long(&self.wire.env)
    }

    /// Looks whether its session is still known, by a `ping` whose `id` is this. One that is not is over.
    pub async fn look(&self, id: u64) {
        let wire = &self.wire;
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        let ping = (wire.headers(), ping.to_string().into_bytes(), json!(id));
        if let Some(why) = wire.silence.look(&wire.endpoint, ping, &wire.env).await {
            wire.end(&why);
        }
    }

    /// Posts a request whose `id` is this, once, and waits for its answer. `headers` go with it alone.
    pub async fn request(&self, id: u64, message: &Value, own: &[(String, String)]) -> Relayed {
        let wire = &self.wire;
        let stands_for_itself = stateless_headers(message);
        let is_stateless = stands_for_itself.is_some();
        let mut headers = stands_for_itself.unwrap_or_else(|| wire.headers());
        for (name, value) in own {
            match endpoint::header(name, value) {
                Ok((name, value)) => headers.insert(name, value),
                Err(why) => return Relayed::NotSent(why),
            };
        }
        let response = match wire.endpoint.post(headers, message.to_string().into_bytes()).await {
            Ok(response) => response,
            Err(Failure::NotSent(why)) => {
                wire.end(&why);
                return Relayed::NotSent(why);
            }
            Err(Failure::Lost(why)) => return Relayed::Lost(why),
        };
        let is_greeting = message["method"] == "initialize";
        if is_greeting {
            lock(&wire.agreed).session = response.headers().get(SESSION_ID).cloned().map(|mut session| {
                session.set_sensitive(true);
                session
            });
        }
        let status = response.status();
        if !status.is_success() {
            let has_session = !is_stateless && lock(&wire.agreed).session.is_some();
            let not_let_in = wire.endpoint.refused(&response).await;
            let is_challenge = wire.endpoint.is_challenge(&response);
            let retry_after = reading::retry_after(&response, &wire.env);
            let mut body = reading::refusal(response, &wire.env).await;
            // A body that gives a call's id was made by somebody who read the call, and in the newer era an error of the protocol has a status of
            // its own.
            let is_call = message["method"] == "tools/call";
            let answers = |body: &Value| {
                let is_read = is_stateless || (is_call && !reading::is_at_the_door(status));
                let code = body["error"]["code"].as_i64();
                // In a session, 404 says that the session is over, also where it is said under the request's id. What only somebody says who
                // read the request (a method, a parameter, an inner failure) is an answer all the same.
                let of_session =
                    status == StatusCode::NOT_FOUND && has_session && !code.is_some_and(reading::is_of_a_reader);
                let is_error = is_read && code.is_some() && !of_session;
                body["id"].as_u64() == Some(id) && ((is_call && body.get("result").is_some()) || is_error)
            };
            // Whatever it answers: it will not know the session next time either.
            if !is_stateless && status == StatusCode::NOT_FOUND {
                wire.note(status);
            }
            if let Some(answer) = read_message(body.as_bytes()).ok().filter(answers) {
                let code = answer["error"]["code"].as_i64().filter(|_| is_stateless && is_call);
                if !code.is_some_and(|code| reading::is_refused_unbegun(status, code)) {
                    return Relayed::Answer(answer);
                }
                // That it was refused is in the status; the words say why.
                answer["error"]["message"].as_str().unwrap_or_default().clone_into(&mut body);
            }
            if !is_stateless {
                wire.note(status);
            }
            let mut body = reading::kept(body);
            let only_asks = message["method"].as_str().is_some_and(only_asks);
            let doubt = reading::doubt(status, is_challenge || only_asks, &body);
            match not_let_in {
                // A call that may have been begun is one that left, whatever became of the login.
                Some(NotLetIn::Renewed | NotLetIn::NotRenewable(_)) if doubt.is_some() => {}
                Some(NotLetIn::Renewed) => {
                    return Relayed::NotSent(format!("its login had ended (HTTP status {status}) and was renewed"));
                }
                Some(NotLetIn::NotRenewable(why)) => {
                    return Relayed::NotSent(format!(
                        "its login had ended (HTTP status {status}) and could not be renewed: {why}"
                    ));
                }
                Some(NotLetIn::OwnHeader | NotLetIn::NoToken) | None => {}
                Some(why) => body = format!("{body} ({})", why.hint(&wire.login())),
            }
            let of_session = status == StatusCode::NOT_FOUND && has_session;
            return Relayed::Status { status: status.as_u16(), body, of_session, retry_after, doubt };
        }
        match self.answer(response, id).await {
            Ok(answer) => {
                wire.silence.broken(&wire.env);
                if let Some(version) = answer["result"]["protocolVersion"].as_str().filter(|_| is_greeting) {
                    lock(&wire.agreed).version = HeaderValue::from_str(version).ok();
                }
                Relayed::Answer(answer)
            }
            Err(failure) => Relayed::Lost(failure.into_why()),
        }
    }

    async fn answer(&self, response: Response, id: u64) -> Result<Value, Failure> {
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (wire, status) = (&self.wire, response.status());
        match kind.as_str() {
            "application/json" => {
                let body = reading::whole(response).await?;
                if body.trim_ascii().is_empty() {
                    return Err(Failure::Lost(reading::no_result(status, &kind, true)));
                }
                let answer = wire.understand(&body, id)?;
                answer.ok_or_else(|| Failure::Lost("it answered with a message that is not an answer".to_owned()))
            }
            "text/event-stream" => {
                let resume = |after: String| {
                    let wire = Arc::clone(wire);
                    async move { wire.resume(&after).await }
                };
                // What else comes on it may come before the answer (one to what was never asked, for instance) and is passed over, as it is on a pipe.
                let first_stray = OnceLock::new();
                let understand = |data: &[u8]| {
                    wire.understand(data, id).or_else(|failure| {
                        let why = failure.into_why();
                        tracing::debug!(server = wire.server, why, "a message on a stream is passed over");
                        first_stray.get_or_init(|| why);
                        Ok(None)
                    })
                };
                let followed = reading::follow(&wire.env, response, understand, resume).await;
                match (followed, first_stray.get()) {
                    // It may have been what was meant for the answer.
                    (Err(Failure::Lost(why)), Some(stray)) => Err(Failure::Lost(format!("{why}; before that {stray}"))),
                    (followed, _) => followed,
                }
            }
            kind => {
                let is_empty = response.content_length() == Some(0);
                Err(Failure::Lost(reading::no_result(status, kind, is_empty)))
            }
        }
    }

    /// Posts a message that has no answer.
    ///
    /// # Errors
    /// It did not arrive, or was refused.
    pub async fn tell(&self, message: &Value) -> Result<(), String> {
        let wire = &self.wire;
        let status = tokio::select! {
            posted = wire.endpoint.post(wire.headers(), message.to_string().into_bytes()) => {
                posted.map_err(Failure::into_why)?.status()
            }
            () = wire.env.clock.sleep(ASIDE) => return Err("it did not receive a message in time".to_owned()),
        };
        if !status.is_success() {
            wire.note(status);
            return Err(format!("it answered HTTP status {status}"));
        }
        if message["method"] == "notifications/initialized" && lock(&wire.agreed).session.is_some() {
            let listening = tokio::spawn(listen(Arc::clone(wire)));
            if let Some(earlier) = lock(&self.listening).replace(listening) {
                earlier.abort();
            }
        }
        Ok(())
    }

    /// Ends the session, which tells the server to forget it.
    pub async fn close(&self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
        }
        let wire = &self.wire;
        let was_open = lock(&wire.ended).replace("the session was closed".to_owned()).is_none();
        if was_open && lock(&wire.agreed).session.is_some() {
            tokio::select! {
                _ended = wire.endpoint.delete(wire.headers()) => {}
                () = wire.env.clock.sleep(ASIDE) => {}
            }
        }
    }
}

/// Whether a request only asks, as the protocol has it, so that it may be made once more by itself. What another one does (a call, or a request of an
/// extension) nobody here knows.
pub fn only_asks(method: &str) -> bool {
    const ASKING: [&str; 17] = [
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tools/list",
    ];
    ASKING.contains(&method)
}

/// What a server asks or tells by itself. A notification may have the id null, as JSON-RPC 1.0 writes one.
pub fn as_heard(mut message: Value) -> Value {
    if message.get("id").is_some_and(Value::is_null)
        && let Some(fields) = message.as_object_mut()
    {
        fields.remove("id");
    }
    message
}

/// Whether a message neither asks, nor tells, nor answers anything, and gives no name of a request.
fn says_nothing(message: &Value) -> bool {
    let Some(fields) = message.as_object() else { return false };
    let has_id = fields.get("id").is_some_and(|id| !id.is_null());
    !has_id && ["method", "result", "error"].iter().all(|field| !fields.contains_key(*field))
}

/// The headers in which a request says what it is, if it is one that stands for itself.
fn stateless_headers(message: &Value) -> Option<HeaderMap> {
    let version = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str()?;
    let method = message["method"].as_str()?;
    let mut headers = HeaderMap::new();
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_str(version).ok()?);
    headers.insert(METHOD, HeaderValue::from_str(method).ok()?);
    let name = message["params"].as_object().and_then(|params| name_of(method, params));
    if let Some(name) = name.and_then(|name| HeaderValue::from_str(&encoded(name)).ok()) {
        headers.insert(NAME, name);
    }
    Some(headers)
}

/// The headers that arguments go into as well, where a tool's schema marks them.
///
/// # Errors
/// What is wrong with a mark; such a tool cannot be called.
pub fn argument_headers(
    schema: &Map<String, Value>,
    arguments: &Map<String, Value>,
) -> Result<Vec<(String, String)>, String> {
    Ok(ParamHeaders::of(schema)?.values(arguments))
}

/// The text that such a header's value stands for; `None` for a value that nobody would have written.
pub fn header_text(value: &str) -> Option<String> {
    let Some(coded) = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) else {
        return Some(value.to_owned());
    };
    let mut bits = Vec::new();
    let (mut held, mut count) = (0_u32, 0_u32);
    for c in coded.trim_end_matches('=').bytes() {
        let digit = super::headers::digit(c)?;
        (held, count) = (held << 6 | digit, count + 6);
        if count >= 8 {
            count -= 8;
            bits.push(u8::try_from(held >> count & 0xff).ok()?);
        }
    }
    String::from_utf8(bits).ok()
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(listening) = lock(&self.listening).take() {
            listening.abort();
        }
    }
}

impl Wire {
    /// The command by which a person logs in there: the server is in no configuration that it could be looked up in.
    fn login(&self) -> String {
        PrintedCommand::of("ua login").word(&self.server).option("--url", self.endpoint.shown()).to_string()
    }

    fn headers(&self) -> HeaderMap {
        let agreed = lock(&self.agreed);
        let own = [(SESSION_ID, &agreed.session), (PROTOCOL_VERSION, &agreed.version)];
        own.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect()
    }

    fn end(&self, why: &str) {
        lock(&self.ended).get_or_insert_with(|| why.to_owned());
    }

    /// A server that does not know our session will not know it next time either.
    fn note(&self, status: StatusCode) {
        let is_about_session = matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
        if is_about_session && lock(&self.agreed).session.is_some() {
            self.end(&format!("its session is over (HTTP status {status})"));
        }
    }

    /// The answer to request `id`; `None` for another message, which is handed on.
    fn understand(&self, data: &[u8], id: u64) -> Result<Option<Value>, Failure> {
        let broken = |why: String| Failure::Lost(format!("it broke the protocol: {why}"));
        let message = read_message(data).map_err(|error| broken(format!("a message cannot be read: {error}")))?;
        if message.get("method").is_some() {
            self.heard.put(as_heard(message));
            return Ok(None);
        }
        if says_nothing(&message) {
            tracing::debug!("a message that says nothing is passed over");
            return Ok(None);
        }
        if message["id"].as_u64() != Some(id) {
            return Err(broken("it answered a request that was not made".to_owned()));
        }
        Ok(Some(message))
    }

    async fn resume(&self, after: &str) -> Result<Option<Response>, String> {
        match taken_up(&self.endpoint, self.headers(), after).await? {
            Ok(response) => Ok(Some(response)),
            Err(None) => Ok(None),
            Err(Some(status)) => {
                self.note(status);
                may_be_asked_again(status).map(|()| None)
            }
        }
    }
}

/// Reads the stream that belongs to no request until the session ends, or the server has none.
async fn listen(wire: Arc<Wire>) {
    let (mut last_event, mut wait, mut vain) = (None::<String>, None, 0);
    while vain <= MAX_RESUMES && lock(&wire.ended).is_none() {
        vain += 1;
        let mut headers = wire.headers();
        if let Some(after) = last_event.as_deref().and_then(|after| HeaderValue::from_str(after).ok()) {
            headers.insert(LAST_EVENT_ID, after);
        }
        match wire.endpoint.get(headers).await {
            Ok(response) if response.status() == StatusCode::OK => {
                let opened_at = wire.env.now();
                let mut events = Events::of(response);
                while let Ok(Some(event)) = events.next().await {
                    if let Some(id) = event.id.clone() {
                        last_event = Some(id).filter(|id| !id.is_empty());
                    }
                    wait = event.retry.map(std::time::Duration::from_millis).or(wait);
                    let message = event.message().and_then(|data| read_message(data.as_bytes()).ok());
                    if let Some(message) = message.filter(|message| message.get("method").is_some()) {
                        vain = 0;
                        wire.heard.put(as_heard(message));
                    }
                }
                if wire.env.now().since(opened_at) >= HELD_OPEN {
                    vain = 0;
                }
            }
            // It has no such stream, or not for us.
            Ok(response) if may_be_asked_again(response.status()).is_err() => return,
            Ok(_) | Err(_) => {}
        }
        wire.env.clock.sleep(wait.unwrap_or(RESUME_WAIT).min(MAX_RESUME_WAIT)).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What becomes of call 7 where the server answers with this status and error. `version`: the revision that the request says it is of.
    async fn relayed(version: Option<&str>, status: &str, code: i64) -> Relayed {
        let body = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": code, "message": "as it says"}}).to_string();
        relayed_with(version, status, "application/json", body).await
    }

    /// What becomes of it where the server answers with this.
    async fn relayed_with(version: Option<&str>, status: &str, kind: &str, body: String) -> Relayed {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n");
        let answer = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"}}") && !seen.ends_with(b"}}}") {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).await.unwrap();
                seen.extend_from_slice(&piece[..read]);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        let (heard, _hears) = crate::queue();
        let relay = Relay::new("crm", &url, &BTreeMap::new(), ua_core::system::env(), heard, None).unwrap();
        let mut params = json!({"name": "order", "arguments": {}});
        if let Some(version) = version {
            params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": version});
        }
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
        let relayed = relay.request(7, &message, &[]).await;
        serving.await.unwrap();
        relayed
    }

    /// What comes on a stream beside the answer takes it from no call; without an answer it is said what came in its place.
    #[tokio::test]
    async fn what_else_comes_on_a_stream_costs_a_call_no_answer() {
        let event = |id: u64| format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "result": {"n": id}}));
        for (body, is_answered) in
            [(format!("data: Starting up ...\n\n{}{}", event(4711), event(7)), true), (event(4711), false)]
        {
            match relayed_with(None, "200 OK", "text/event-stream", body).await {
                Relayed::Answer(answer) => assert_eq!((&answer["result"]["n"], is_answered), (&json!(7), true)),
                Relayed::Lost(why) => {
                    assert!(!is_answered && why.contains("it answered a request that was not made"), "{why}");
                }
                other @ (Relayed::Status { .. } | Relayed::NotSent(_)) => panic!("{is_answered}: {other:?}"),
            }
        }
    }

    /// The status is what proves that nothing was begun, so a call that was refused for its headers or its version has that for its outcome; what a
    /// tool may have found in the middle of its work is an error that proves nothing.
    #[tokio::test]
    async fn a_request_that_was_refused_unbegun_has_its_status_for_its_outcome() {
        for code in [-32020, -32022] {
            match relayed(Some("2026-07-28"), "400 Bad Request", code).await {
                Relayed::Status { status: 400, body, of_session: false, doubt: None, .. } => {
                    assert_eq!(body, "as it says");
                }
                other @ (Relayed::Answer(_) | Relayed::Status { .. } | Relayed::NotSent(_) | Relayed::Lost(_)) => {
                    panic!("{code}: {other:?}")
                }
            }
        }
        let newer = Some("2026-07-28");
        for (version, status, code) in [
            (newer, "400 Bad Request", -32021),
            (newer, "400 Bad Request", -32602),
            (newer, "200 OK", -32022),
            (newer, "500 Internal Server Error", -32020),
            (None, "400 Bad Request", -32022),
        ] {
            match relayed(version, status, code).await {
                Relayed::Answer(answer) => assert_eq!(answer["error"]["code"], code),
                other @ (Relayed::Status { .. } | Relayed::NotSent(_) | Relayed::Lost(_)) => {
                    panic!("{version:?} {status} {code}: {other:?}")
                }
            }
        }
    }

    /// A 401 that says what would let the call in comes from whoever guards the door; any other may come from behind it.
    #[tokio::test]
    async fn a_call_that_is_refused_without_a_challenge_may_have_been_begun() {
        for (status, is_doubtful) in [
            ("401 Unauthorized", true),
            ("401 Unauthorized\r\nwww-authenticate: Bearer", false),
            ("401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"", false),
            ("403 Forbidden", false),
        ] {
            match relayed(None, status, -32000).await {
                Relayed::Status { doubt, .. } => assert_eq!(doubt.is_some(), is_doubtful, "{status}"),
                other @ (Relayed::Answer(_) | Relayed::NotSent(_) | Relayed::Lost(_)) => panic!("{status}: {other:?}"),
            }
        }
    }
}
