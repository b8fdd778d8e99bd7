//! A connection to a tool server over Streamable HTTP (MCP revisions from 2025-03-26 on).
//!
//! Up to 2025-11-25 it is a session; from 2026-07-28 on each request stands for itself.
//!
//! Durable Jobs v1 spec §3 and §8.3. Ours from the request to the answer, because a ledger depends on what happens in
//! between: a `tools/call` is posted once and never again, an answer is handed on as the JSON that came, and a request that
//! never left is told from one that may have arrived. An answer's stream that breaks is taken up again with a GET, which
//! asks for the rest of the answer and sends no call. A session that the server forgot ends this connection; the next one
//! is a new generation.
//!
//! A server may ask and tell things on a stream that belongs to no request; that one is opened with the session, taken up again when it
//! breaks, and no call that may be asked about is sent before it is.
//!
//! A server that wants a login is sent its token (`logins`). One that refuses a token, and says by a challenge that a token is what it wants, has not
//! begun with the request: the login is renewed, what only asks is asked once more, and a call is one that never left. A 401 without a challenge may
//! be what the tool was told by somebody else when part of its work was done: a call that may not simply be repeated is in doubt then.
//!
//! Deliberately absent: the two-endpoint transport of revision 2024-11-05.

mod endpoint;
mod headers;
mod horizon;
mod listening;
mod reading;
mod relay;
mod silence;
mod twice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use rmcp::model::Implementation;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use ua_core::{Env, Outcome, RawReply};

pub(crate) use self::endpoint::check_header_name;
pub(crate) use self::endpoint::{Endpoint, cause, client_for, is_this_machine, key_in_the_clear};
use self::endpoint::{Failure, HowFar, NotLetIn, PROTOCOL_VERSION, SESSION_ID};
pub(crate) use self::headers::ParamHeaders;
pub use self::horizon::{Horizon, UNKNOWN};
pub use self::relay::{Relay, Relayed, argument_headers, as_heard, header_text, only_asks};
use self::silence::Silence;
use crate::dialect::{Dialect, Protocol};
use crate::exchange::{self, Opening, Sending, Unanswered, after_progress, completed, not_in_time, refused};
use crate::host::{Host, UnderWay};
use crate::logins::{Bearer, Logins};
use crate::trace;
use crate::wire::bounded;

const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");

/// How long a message that needs no answer of substance (a notification, the end of a session) may take.
const ASIDE: Duration = Duration::from_secs(5);

/// A session with an endpoint. Cheap to clone; calls share it.
#[derive(Debug, Clone)]
pub(crate) struct HttpConnection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    server: String,
    /// The command by which a person logs in there.
    login: String,
    host: Arc<Host>,
    endpoint: Arc<Endpoint>,
    env: Env,
    last_id: AtomicI64,
    agreed: Mutex<Agreed>,
    /// Why nothing can be sent any more.
    ended: Mutex<Option<String>>,
    silence: Silence,
    /// Tasks in the session that a later process may have to ask for.
    tasks: Mutex<BTreeSet<String>>,
    /// What is read that belongs to no request of ours.
    listening: Mutex<Option<Listening>>,
}

/// A stream that belongs to no request; it is given up when nobody holds this any more.
#[derive(Debug)]
struct Listening {
    reading: tokio::task::JoinHandle<()>,
    /// Whether the server has let it in; closed when nothing is read any more.
    is_open: watch::Receiver<bool>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

/// What there is to hope for where something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hope {
    /// Nothing, until somebody corrects something.
    Correct,
    /// Nothing, until somebody logs in.
    LogIn,
    /// It may pass by itself.
    MayPass,
    /// The server is there, and says that it cannot serve now.
    Away,
}

/// What the handshake brought.
#[derive(Debug, Clone, Default)]
struct Agreed {
    session: Option<HeaderValue>,
    version: Option<HeaderValue>,
    dialect: Arc<Dialect>,
}

/// Where an endpoint is and what goes with every request to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address<'a> {
    /// Its URL.
    pub(crate) url: &'a str,
    /// Headers of every request.
    pub(crate) headers: &'a BTreeMap<String, String>,
    /// Where the user is logged in.
    pub(crate) logins: Option<&'a Logins>,
    /// The command by which a person does that.
    pub(crate) login: &'a str,
}

/// What came back for a request.
#[derive(Debug)]
enum Reply {
    /// A result, and the length of the message that it came in.
    Result(Value, usize),
    /// A JSON-RPC error.
    Error { code: i32, message: String, data: Option<Value> },
    /// An HTTP status that is no success, and as much of the body as is read; why it was not let in, if that is it.
    Status {
        status: StatusCode,
        body: String,
        not_let_in: Option<NotLetIn>,
        /// Whether it says what would let the request in.
        is_challenge: bool,
        retry_after: Option<u64>,
    },
}

impl HttpConnection {
    /// Finds out how the server wants to be spoken to. The error says what came instead, and what there is to hope for.
    pub(crate) async fn open(
        host: Arc<Host>,
        server: &str,
        info: &Implementation,
        address: Address<'_>,
        protocol: &Protocol,
        env: &Env,
    ) -> Result<Self, (String, Hope)> {
        let connection =
            Self::to(host, server, info, address, Agreed::default(), env).map_err(|why| (why, Hope::Correct))?;
        match exchange::open(&connection, protocol, info, env).await {
            Ok(()) => {
                connection.listen();
                Ok(connection)
            }
            Err(why) => {
                let hope = connection.hope();
                connection.close().await; // the server may have made a session already
                Err((why, hope))
            }
        }
    }

    /// What there is to hope for after what was posted last failed.
    pub(crate) fn hope(&self) -> Hope {
        let endpoint = &self.inner.endpoint;
        match (endpoint.is_barred(), endpoint.is_away()) {
            (true, _) => Hope::LogIn,
            (false, true) => Hope::Away,
            (false, false) => Hope::MayPass,
        }
    }

    /// Takes up a session that an earlier process began, without a handshake: the server may know something there that it knows
    /// nowhere else.
    pub(crate) fn adopt(
        host: Arc<Host>,
        server: &str,
        info: &Implementation,
        address: Address<'_>,
        (session, dialect): (&str, Arc<Dialect>),
        env: &Env,
    ) -> Result<Self, String> {
        let mut session = HeaderValue::from_str(session).map_err(|_| "its session's name cannot be sent".to_owned())?;
        session.set_sensitive(true);
        let version = HeaderValue::from_str(&dialect.version).ok();
        Self::to(host, server, info, address, Agreed { session: Some(session), version, dialect }, env)
    }

    fn to(
        host: Arc<Host>,
        server: &str,
        info: &Implementation,
        address: Address<'_>,
        agreed: Agreed,
        env: &Env,
    ) -> Result<Self, String> {
        let user_agent = format!("{}/{}", info.name, info.version);
        let bearer = Bearer::of(address.logins, address.url);
        let endpoint = Endpoint::new(address.url, address.headers, &user_agent, bearer)?;
        let inner = Inner {
            server: server.to_owned(),
            login: address.login.to_owned(),
            host,
            endpoint: Arc::new(endpoint),
            env: env.clone(),
            last_id: AtomicI64::new(0),
            agreed: Mutex::new(agreed),
            ended: Mutex::default(),
            silence: Silence::default(),
            tasks: Mutex::default(),
            listening: Mutex::default(),
        };
        // Requests of an adopted session must not have numbers that an earlier process used there.
        if inner.agreed().session.is_some() {
            inner.last_id.store(i64::try_from(env.entropy.next_u64() >> 33).unwrap_or(0), Ordering::Relaxed);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What was agreed on.
    pub(crate) fn dialect(&self) -> Arc<Dialect> {
        Arc::clone(&self.inner.agreed().dialect)
    }

    /// Our side of it.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.inner.host
    }

    /// The name of its session, if it has one.
    pub(crate) fn session(&self) -> Option<String> {
        self.inner.agreed().session.as_ref().and_then(|session| session.to_str().ok()).map(str::to_owned)
    }

    /// Notes whether a task of the session is still to be asked for; such a session is not ended with this process.
    pub(crate) fn note_task(&self, task: &str, is_open: bool) {
        let mut tasks = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if is_open {
            tasks.insert(task.to_owned());
        } else {
            tasks.remove(task);
        }
    }

    /// Asks something that changes nothing.
    pub(crate) async fn ask(&self, method: &'static str, params: Map<String, Value>) -> Result<Value, Unanswered> {
        self.ask_in(self.dialect(), method, params).await
    }

    /// Why nothing more can be sent, if nothing can.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended = self.inner.ended().clone();
        ended.or_else(|| self.inner.endpoint.moved())
    }

    /// Whether its session has been silent for so long that it is looked at before a call is sent that may not simply be made again.
    pub(crate) fn is_silent(&self) -> bool {
        let has_session = self.inner.agreed().session.is_some();
        has_session && self.inner.silence.is_long(&self.inner.env)
    }

    /// Looks whether its session is still known, where it has been silent for long. One that is not ends this connection.
    pub(crate) async fn look(&self) {
        let inner = &self.inner;
        if !self.is_silent() || self.ended().is_some() {
            return;
        }
        let ping = inner.request(&self.dialect(), "ping", Map::new(), Map::new(), false);
        let Ok((headers, Body { id, bytes })) = ping else { return };
        if let Some(why) = inner.silence.look(&inner.endpoint, (headers, bytes, json!(id)), &inner.env).await {
            inner.ended().get_or_insert(why);
        }
    }

    /// The identity of the login that its requests go with, or not at all; `None` where nobody is logged in.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub(crate) async fn login(&self) -> Result<Option<String>, String> {
        self.inner.endpoint.settled_login().await
    }

    /// Posts one request of a permitted attempt, once, and waits for its answer, at most for its time limit.
    pub(crate) async fn call(&self, sending: Sending, env: &Env) -> Outcome {
        let Sending { method, params, meta, key_header, param_headers, timeout, listener, may_repeat, first_counts } =
            sending;
        let dialect = self.dialect();
        if listener.is_some() && !dialect.is_stateless {
            self.listened().await;
        }
        let prepared = self.inner.request(&dialect, method, params, meta.clone(), listener.is_some()).and_then(
            |(mut headers, body)| {
                if let Some((name, value)) = &key_header {
                    let (name, value) = endpoint::header(name, value)?;
                    headers.insert(name, value);
                }
                for (name, value) in param_headers.iter().filter(|_| dialect.is_stateless) {
                    let (name, value) = endpoint::header(name, value)?;
                    headers.insert(name, value);
                }
                // Gateways on the way know headers, not messages.
                for (name, value) in crate::trace::headers(&meta) {
                    let (name, value) = endpoint::header(name, value)?;
                    headers.insert(name, value);
                }
                Ok((headers, body))
            },
        );
        let (headers, body) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return Outcome::NotSent { why },
        };
        let _turn = self.inner.host.turn(listener.as_ref()).await;
        let id = body.id;
        let under_way = self.inner.host.listen(id, json!(id), listener);
        let mut waiting = Waiting { inner: &self.inner, id, over: dialect.is_stateless };
        let how_far = HowFar::default();
        let reply = tokio::select! {
            biased;
            reply = self.exchange(headers, body, &how_far, method == exchange::CALL && !first_counts) => reply,
            () = env.sleep_or_never(timeout) => match self.inner.endpoint.given_up(&how_far, timeout) {
                Some(failure) => Err(failure),
                None => return not_in_time(timeout),
            },
        };
        match reply {
            Ok(reply) => {
                waiting.over = true;
                let has_progressed = under_way.as_ref().is_some_and(UnderWay::has_progressed);
                under_way.into_iter().for_each(UnderWay::answered);
                let reply = reading::as_it_was_read(reply, id, dialect.is_stateless);
                let lost = match &reply {
                    Reply::Error { code, message, .. } => after_progress(method, (*code).into(), message),
                    Reply::Result(..) | Reply::Status { .. } => None,
                };
                let lost = lost.filter(|_| has_progressed && !first_counts);
                lost.unwrap_or_else(|| self.outcome(reply, method, dialect.is_stateless, may_repeat))
            }
            Err(Failure::NotSent(why)) => {
                waiting.over = true;
                // Nobody listens there now. The next attempt begins with a handshake: it finds the server that came back,
                // or says that there is none, which stops the run until there is.
                self.inner.ended().get_or_insert_with(|| why.clone());
                Outcome::NotSent { why }
            }
            Err(Failure::Lost(why)) => Outcome::Lost { why },
        }
    }

    /// What became of a request that was answered with this.
    fn outcome(&self, reply: Reply, method: &'static str, is_stateless: bool, may_repeat: bool) -> Outcome {
        match reply {
            Reply::Result(result, length) => completed(method, is_stateless, bounded(result, length)),
            Reply::Error { code, message, data } => refused(method, code.into(), message, data.as_ref()),
            Reply::Status { status, body, not_let_in, is_challenge, retry_after } => {
                let doubt = reading::doubt(status, is_challenge || may_repeat, &body);
                match (doubt, not_let_in) {
                    (Some(why), _) => Outcome::Lost { why },
                    (None, Some(NotLetIn::Renewed)) => {
                        Outcome::NotSent { why: format!("its login had ended (HTTP status {status}) and was renewed") }
                    }
                    (None, Some(NotLetIn::NotRenewable(why))) => Outcome::NotSent {
                        why: format!("its login had ended (HTTP status {status}) and could not be renewed: {why}"),
                    },
                    (None, not_let_in) => {
                        let is_login = |why: &NotLetIn| !matches!(why, NotLetIn::OwnHeader | NotLetIn::NoToken);
                        let hint = not_let_in.filter(is_login);
                        let hint = hint.map(|why| format!(" ({})", why.hint(&self.inner.login)));
                        let body = format!("{body}{}", hint.unwrap_or_default());
                        // It says that the session is over; a new one may be let in.
                        let of_session =
                            reading::is_about_session(status, &body) && self.inner.agreed().session.is_some();
                        Outcome::Raw(RawReply::HttpStatus { status: status.as_u16(), body, of_session, retry_after })
                    }
                }
            }
        }
    }

    /// Begins to hear what the server asks and tells outside of our requests, where it offers that. Without a session it cannot know
    /// whom to tell.
    fn listen(&self) -> Option<watch::Receiver<bool>> {
        if self.dialect().is_stateless || self.inner.agreed().session.is_none() {
            return None;
        }
        let mut listening = self.inner.listening.lock().unwrap_or_else(PoisonError::into_inner);
        let listening = listening.get_or_insert_with(|| {
            let (opened, is_open) = watch::channel(false);
            Listening { reading: tokio::spawn(listening::listen(Arc::downgrade(&self.inner), opened)), is_open }
        });
        Some(listening.is_open.clone())
    }

    /// Waits until that is heard, or until it is known not to be.
    async fn listened(&self) {
        let Some(mut is_open) = self.listen() else { return };
        tokio::select! {
            _opened = is_open.wait_for(|is_open| *is_open) => {}
            () = self.inner.env.clock.sleep(ASIDE) => {}
        }
    }

    /// One request and its answer.
    async fn exchange(
        &self,
        headers: HeaderMap,
        body: Body,
        how_far: &HowFar,
        is_effect: bool,
    ) -> Result<Reply, Failure> {
        let response = self.inner.endpoint.post_watched(headers, body.bytes, how_far).await?;
        self.heard(self.read(response, body.id, is_effect).await)
    }

    /// One question and what came back for it.
    async fn asked_once(
        &self,
        dialect: &Dialect,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Reply, Unanswered> {
        let (headers, body) =
            self.inner.request(dialect, method, params, Map::new(), false).map_err(Unanswered::Broken)?;
        let response = self.inner.endpoint.post(headers, body.bytes).await;
        let response = response.map_err(|failure| Unanswered::Broken(failure.into_why()))?;
        if method == "initialize" {
            self.inner.agreed().session = response.headers().get(SESSION_ID).cloned().map(|mut id| {
                id.set_sensitive(true);
                id
            });
        }
        let read = self.heard(self.read(response, body.id, false).await);
        read.map_err(|failure| Unanswered::Broken(failure.into_why()))
    }

    /// Notes that there was an answer, if there was.
    fn heard(&self, read: Result<Reply, Failure>) -> Result<Reply, Failure> {
        if read.is_ok() {
            self.inner.silence.broken(&self.inner.env);
        }
        read
    }

    /// The result in a reply; else the error says what came.
    fn result(&self, reply: Reply) -> Result<Value, String> {
        match reply {
            Reply::Result(result, _) => Ok(result),
            Reply::Error { code, message, .. } => Err(format!("it answered with error {code}: {message}")),
            Reply::Status { status, body, not_let_in, .. } => {
                let mut why = format!("{} answered HTTP status {status}", self.inner.endpoint.shown());
                if let Some(not_let_in) = not_let_in {
                    why = format!("{why}; {}", not_let_in.hint(&self.inner.login));
                } else if status == StatusCode::FORBIDDEN {
                    why.push_str("; give it its token in `headers` of the MCP configuration");
                }
                if status.is_redirection() {
                    why.push_str("; redirects are not followed, write the final address into the MCP configuration");
                }
                let body: String = body.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
                if !body.trim().is_empty() {
                    why = format!("{why}: {}", body.trim());
                }
                Err(why)
            }
        }
    }

    /// Ends the session, which tells the server to forget it. Whether it does is the server's affair.
    pub(crate) async fn close(&self) {
        let inner = &self.inner;
        drop(inner.listening.lock().unwrap_or_else(PoisonError::into_inner).take());
        let was_open = inner.ended().replace("the session was closed".to_owned()).is_none();
        if !was_open || inner.agreed().session.is_none() {
            return;
        }
        if !inner.tasks.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            tracing::debug!(server = inner.server, "the session is left open: a task in it is not done");
            return;
        }
        tokio::select! {
            deleted = inner.endpoint.delete(inner.headers()) => match deleted {
                Ok(response) => tracing::debug!(server = inner.server, status = %response.status(), "session ended"),
                Err(failure) => tracing::debug!(server = inner.server, why = failure.into_why(), "session not ended"),
            },
            () = inner.env.clock.sleep(ASIDE) => tracing::debug!(server = inner.server, "session not ended in time"),
        }
    }
}

impl Opening for HttpConnection {
    async fn ask_in(
        &self,
        dialect: Arc<Dialect>,
        method: &'static str,
        params: Map<String, Value>,
    ) -> Result<Value, Unanswered> {
        let mut reply = self.asked_once(&dialect, method, params.clone()).await?;
        // Refused unread, and there is another token now; what only asks may be asked once more.
        if matches!(reply, Reply::Status { not_let_in: Some(NotLetIn::Renewed), .. }) {
            reply = self.asked_once(&dialect, method, params).await?;
        }
        match reply {
            Reply::Error { code, message, .. } => Err(Unanswered::Refused(code.into(), message)),
            Reply::Status { status, body, not_let_in, is_challenge, retry_after } => {
                let is_barred = is_challenge || status == StatusCode::UNAUTHORIZED;
                if let Some(refused) = refusal(&body).filter(|_| method == "server/discover" && !is_barred) {
                    return Err(refused);
                }
                let reply = Reply::Status { status, body, not_let_in, is_challenge, retry_after };
                let why = self.result(reply).err().unwrap_or_default();
                let refused = if is_barred { Unanswered::NotLetIn } else { Unanswered::Status };
                Err(refused(status.as_u16(), why))
            }
            reply @ Reply::Result(..) => self.result(reply).map_err(Unanswered::Broken),
        }
    }

    fn agree(&self, dialect: Arc<Dialect>) {
        let mut agreed = self.inner.agreed();
        agreed.version = HeaderValue::from_str(&dialect.version).ok();
        agreed.dialect = dialect;
    }

    async fn initialized(&self) -> Result<(), String> {
        match self.inner.notify("notifications/initialized", None).await {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(format!("it answered HTTP status {status} to its last message")),
            Err(failure) => Err(failure.into_why()),
        }
    }

    fn ended(&self) -> Option<String> {
        HttpConnection::ended(self)
    }
}

/// A refusal of the protocol in the body of a refusal of HTTP.
fn refusal(body: &str) -> Option<Unanswered> {
    let body: Value = serde_json::from_str(body).ok()?;
    let error = body.get("error").filter(|_| body.get("jsonrpc").is_some())?;
    let message = error.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Unanswered::Refused(error.get("code")?.as_i64()?, message))
}

/// A request as it goes out.
struct Body {
    id: i64,
    bytes: Vec<u8>,
}

impl Inner {
    fn agreed(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, Option<String>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The headers of the session.
    fn headers(&self) -> HeaderMap {
        let agreed = self.agreed();
        let mut headers = HeaderMap::new();
        for (name, value) in [(SESSION_ID, &agreed.session), (PROTOCOL_VERSION, &agreed.version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    fn request(
        &self,
        dialect: &Dialect,
        method: &'static str,
        mut params: Map<String, Value>,
        mut meta: Map<String, Value>,
        wants_progress: bool,
    ) -> Result<(HeaderMap, Body), String> {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        trace::goes_as(id);
        let mut headers = self.headers();
        if dialect.is_stateless {
            let header =
                |text: &str| HeaderValue::from_str(text).map_err(|_| "it cannot be named in a header".to_owned());
            headers.insert(PROTOCOL_VERSION, header(&dialect.version)?);
            headers.insert(METHOD, HeaderValue::from_static(method));
            if let Some(name) = headers::name_of(method, &params) {
                headers.insert(NAME, header(&headers::encoded(name))?);
            }
        }
        if wants_progress {
            meta.insert("progressToken".to_owned(), json!(id));
        }
        dialect.sign(&mut meta);
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Value::Object(meta));
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let bytes = serde_json::to_vec(&message).map_err(|error| format!("the request cannot be written: {error}"))?;
        Ok((headers, Body { id, bytes }))
    }

    /// Posts a message that has no answer, and says how it was received.
    async fn notify(&self, method: &str, params: Option<Value>) -> Result<StatusCode, Failure> {
        let mut message = json!({ "jsonrpc": "2.0", "method": method });
        if let Some(params) = params {
            message["params"] = params;
        }
        self.post_aside(&message).await
    }

    async fn post_aside(&self, message: &Value) -> Result<StatusCode, Failure> {
        tokio::select! {
            response = self.endpoint.post(self.headers(), message.to_string().into_bytes()) => {
                response.map(|response| response.status())
            }
            () = self.env.clock.sleep(ASIDE) => {
                Err(Failure::Lost(format!("it did not receive a message within {} s", ASIDE.as_secs())))
            }
        }
    }

    /// Draws the conclusion from a refusal: a server that does not know our session (404, and 400 with some) will not know
    /// it next time either.
    fn note_refusal(&self, status: StatusCode) {
        let is_about_session = matches!(status, StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST);
        if is_about_session && self.agreed().session.is_some() {
            self.ended().get_or_insert_with(|| format!("its session is over (HTTP status {status})"));
        }
    }
}

/// Tells the server when nobody waits any more: the caller's future was dropped, its time was up, or the answer is lost.
struct Waiting<'a> {
    inner: &'a Arc<Inner>,
    id: i64,
    over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.over || self.inner.ended().is_some() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (inner, id) = (Arc::clone(self.inner), self.id);
        runtime.spawn(async move {
            let params = json!({ "requestId": id, "reason": "nobody waits for the answer" });
            if let Err(failure) = inner.notify("notifications/cancelled", Some(params)).await {
                tracing::debug!(server = inner.server, why = failure.into_why(), "the server could not be told");
            }
        });
    }
}
