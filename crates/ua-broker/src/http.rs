//! Clients that speak HTTP: Streamable HTTP on an address of this machine, both eras.
//!
//! Whoever comes needs a token, which says which client it is; web pages are kept out by `Host` and `Origin`. A tool server is named in the path
//! (`/s/<name>/mcp`). A client of the older era has a session, which outlives the broker, and what is said to it is kept for a while: a stream that
//! breaks is taken up again where it broke, and where that is not known any more, with the answer. One of the newer era has none; a stream that it closes is one that nobody waits at any more. Neither ends a call.
//!
//! Invariant: an answer counts as delivered when its stream was written to its end, and no sooner.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming as Arriving};
use hyper::header::{
    ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use ua_core::Timestamp;
use ua_mcp::header_text;

mod kept;
mod session;
mod streams;
mod tokens;

pub use self::kept::KeptSessions;
use self::kept::{KeptSession, standing_id};
use self::session::HttpSession;
pub use self::tokens::Tokens;
use crate::broker::{Broken, Broker};
use crate::era::{self, NEWER};
use crate::incoming::{self, Aside, Incoming, Judged, Read, Request};
use crate::peers::{self, Caller};
use crate::serve::DRAIN;
use crate::sync::lock;

/// The longest message.
const LONGEST: usize = 16 * 1024 * 1024;
/// How long a session without traffic is kept.
const SESSION_LIFE: Duration = Duration::from_hours(1);
/// How much of the time that the broker takes to end is for what comes behind the last answer.
const LAST: Duration = Duration::from_secs(1);
/// How often an address is tried that another program has.
const TRY_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked for those.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// What a request says in headers and in itself is not the same.
const HEADER_MISMATCH: i64 = -32020;
/// What its client would have to be able to do is not declared.
const MISSING_CAPABILITY: i64 = -32021;
const INVALID_REQUEST: i64 = -32600;
/// Revisions that begin with a handshake.
const WITH_HANDSHAKE: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Where clients reach the broker over HTTP.
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The address, one of this machine.
    pub address: SocketAddr,
    /// Who is let in.
    pub tokens: Tokens,
    /// Where sessions are kept.
    pub sessions: KeptSessions,
    /// How long no stream of a client is open before nobody is taken to be there: what its tools ask is declined then.
    pub away_after: Duration,
}

impl HttpSettings {
    /// How long that is where nothing else is said.
    pub const AWAY_AFTER: Duration = Duration::from_mins(1);
}

/// What serves clients over HTTP.
pub(crate) struct Front {
    broker: Arc<Broker>,
    tokens: Tokens,
    /// What outlives the broker of those that follow.
    kept: KeptSessions,
    /// Sessions of clients that began with a handshake, by name.
    sessions: Mutex<HashMap<String, Arc<HttpSession>>>,
    /// What serves clients without sessions, by the name under which it is kept.
    standing: Mutex<HashMap<String, Arc<HttpSession>>>,
    away_after: Duration,
}

/// Listens, and serves whoever comes until the broker closes. An address that another program has is no reason to serve nobody: clients that come
/// through bridges need none. It is said to all who ask, and tried again until it is free.
pub(crate) async fn listen(broker: &Arc<Broker>, settings: &HttpSettings) -> Result<(), Broken> {
    let failed = |error: std::io::Error| Broken::new(format!("listen on http://{}: {error}", settings.address));
    if !settings.address.ip().is_loopback() {
        return Err(Broken::new(format!(
            "listen on http://{}: it is not an address of this machine",
            settings.address
        )));
    }
    let front = Arc::new(Front {
        broker: broker.clone(),
        tokens: settings.tokens.clone(),
        kept: settings.sessions.clone(),
        sessions: Mutex::default(),
        standing: Mutex::default(),
        away_after: settings.away_after,
    });
    match bind(broker, settings.address).await.map_err(failed)? {
        Some(listener) => drop(tokio::spawn(front.serve(listener))),
        None => drop(tokio::spawn(front.serve_when_free(settings.address))),
    }
    Ok(())
}

/// Takes the address; `None` when another program has it.
async fn bind(broker: &Broker, wanted: SocketAddr) -> std::io::Result<Option<TcpListener>> {
    let listener = match TcpListener::bind(wanted).await {
        Ok(listener) => listener,
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let why = taken(wanted, peers::listener_at(wanted));
            if lock(&broker.taken).replace(why.clone()).as_ref() != Some(&why) {
                tracing::warn!("{why}");
            }
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let address = listener.local_addr()?;
    tracing::info!(%address, "clients over HTTP are served");
    *lock(&broker.address) = Some(address);
    *lock(&broker.taken) = None;
    Ok(Some(listener))
}

/// What it means that another program has the address.
fn taken(address: SocketAddr, holder: Option<u32>) -> String {
    let whose = match holder {
        Some(user) if user == rustix::process::geteuid().as_raw() => "another program of yours".to_owned(),
        Some(user) => format!("a program of another user (uid {user})"),
        None => "another program".to_owned(),
    };
    format!(
        "clients over HTTP are not served: {address} belongs to {whose}, which is told the token of each client that connects there. End \
         it, or let them connect to another address (`listen` in gateway.toml); make new tokens where it is not yours"
    )
}

impl Front {
    async fn serve_when_free(self: Arc<Self>, address: SocketAddr) {
        loop {
            tokio::select! {
                () = self.broker.env.clock.sleep(TRY_EVERY) => {}
                () = self.broker.closing.cancelled() => return,
            }
            match bind(&self.broker, address).await {
                Ok(Some(listener)) => return self.serve(listener).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, %address, "clients over HTTP cannot be served yet"),
            }
        }
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let lines = TaskTracker::new();
        let look_every = LOOK_EVERY.min(self.away_after);
        // However often somebody comes, it is looked.
        let mut look = std::pin::pin!(self.broker.env.clock.sleep(look_every));
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        // An event is small and somebody waits for it.
                        let _slower = stream.set_nodelay(true);
                        lines.spawn(self.clone().serve_line(stream, peer));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a client could not be accepted");
                        self.broker.env.clock.sleep(Duration::from_millis(200)).await;
                    }
                },
                () = look.as_mut() => {
                    self.tend().await;
                    look.set(self.broker.env.clock.sleep(look_every));
                }
                () = self.broker.closing.cancelled() => break,
            }
        }
        drop(listener);
        // Whoever waits for an answer has it before the broker ends, if it comes in time; then its line is closed.
        for session in self.all(|_| true) {
            session.end_standing();
        }
        lines.close();
        tokio::select! {
            () = lines.wait() => {}
            () = self.broker.env.clock.sleep(DRAIN.saturating_sub(LAST)) => {}
        }
        self.note_uses();
        for session in self.drained(|_| true) {
            session.close(false).await;
        }
    }

    /// Serves one connection of a client: request after request, and none any more once the broker ends.
    async fn serve_line(self: Arc<Self>, stream: TcpStream, peer: SocketAddr) {
        let caller = stream.local_addr().map_or(Caller::Untold, |own| peers::caller_at(peer, own));
        let is_ours = caller.may_be_ours();
        if !is_ours {
            tracing::warn!(?caller, "what is no program of this user wants to be served");
        }
        let service = service_fn(|request| {
            let front = self.clone();
            async move {
                if is_ours {
                    return Ok::<_, Infallible>(front.pass(request).await);
                }
                Ok(refusal(StatusCode::FORBIDDEN, "only programs of the user whose gateway this is are served"))
            }
        });
        let line = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .serve_connection(TokioIo::new(stream), service);
        let mut line = std::pin::pin!(line);
        let ended = tokio::select! {
            ended = line.as_mut() => ended,
            () = self.broker.closing.cancelled() => {
                line.as_mut().graceful_shutdown();
                line.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection of a client ended badly");
        }
    }

    /// The sessions of which this is so.
    fn all(&self, of: impl Fn(&HttpSession) -> bool) -> Vec<Arc<HttpSession>> {
        let (sessions, standing) = (lock(&self.sessions), lock(&self.standing));
        sessions.values().chain(standing.values()).filter(|session| of(session)).cloned().collect()
    }

    /// Notes of each session when it was used, for the next broker.
    fn note_uses(&self) {
        for session in self.all(|_| true) {
            self.kept.was_used(&session.id, session.used_at());
        }
    }

    /// Takes out the sessions of which this is so.
    fn drained(&self, of: impl Fn(&HttpSession) -> bool) -> Vec<Arc<HttpSession>> {
        let mut gone = Vec::new();
        let mut keep = |session: &Arc<HttpSession>| {
            let goes = of(session);
            if goes {
                gone.push(session.clone());
            }
            !goes
        };
        lock(&self.sessions).retain(|_, session| keep(session));
        lock(&self.standing).retain(|_, session| keep(session));
        gone
    }

    /// Lets go of what nobody uses. A session is found again where it is kept; without sessions a client begins another one then.
    async fn tend(&self) {
        self.note_uses();
        let now: Timestamp = self.broker.env.now();
        for session in self.drained(|session| session.is_idle_since(now, SESSION_LIFE)) {
            if session.is_stateless {
                self.kept.forget(&session.id);
            }
            session.close(true).await;
        }
        // One whose client is not to be found is asked nothing more, and its tools wait for nobody.
        for session in self.all(|session| session.is_away_since(now, self.away_after)) {
            session.is_away().await;
        }
        self.kept.forget_old(now);
    }

    async fn pass(self: &Arc<Self>, request: hyper::Request<Arriving>) -> Response<Body> {
        let headers = request.headers();
        if !is_of_this_machine(headers) {
            return refusal(StatusCode::FORBIDDEN, "only programs of this machine are served, under its own name");
        }
        let token = text_of(headers, AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        let Some(who) = token.and_then(|token| self.tokens.whose(token.trim())) else {
            let why = "send a token as `Authorization: Bearer …`; `ua gateway token NAME` makes one";
            let mut response = refusal(StatusCode::UNAUTHORIZED, why);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return response;
        };
        let path = request.uri().path().to_owned();
        let server = path.strip_prefix("/s/").and_then(|rest| rest.strip_suffix("/mcp")).unwrap_or_default();
        if !self.broker.config.entries.contains_key(server) {
            return refusal(StatusCode::NOT_FOUND, "there is no such tool server; they are at /s/NAME/mcp");
        }
        match *request.method() {
            Method::POST => self.post(&who, server, request).await,
            Method::GET => self.get(&who, request.headers()),
            Method::DELETE => match self.session_of(&who, request.headers()) {
                Ok(session) => {
                    self.kept.forget(&session.id);
                    lock(&self.sessions).remove(&session.id);
                    session.close(true).await;
                    empty(StatusCode::NO_CONTENT)
                }
                Err(refused) => refused,
            },
            _ => {
                let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "POST, GET or DELETE");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
                response
            }
        }
    }

    /// The session that a request names.
    #[expect(clippy::result_large_err, reason = "a refusal is the answer that is sent")]
    fn session_of(&self, who: &str, headers: &HeaderMap) -> Result<Arc<HttpSession>, Response<Body>> {
        let Some(id) = text_of(headers, "mcp-session-id") else {
            let why = "begin with `initialize`, and send the session's name as `Mcp-Session-Id`";
            return Err(said(StatusCode::BAD_REQUEST, &Value::Null, INVALID_REQUEST, why, Value::Null));
        };
        // Its client begins anew, and asks again for what has no answer.
        let unknown = || {
            said(StatusCode::NOT_FOUND, &Value::Null, -32001, "there is no such session; initialize again", Value::Null)
        };
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions.get(id) {
            return Some(session.clone()).filter(|session| session.who == who).ok_or_else(unknown);
        }
        // One that an earlier broker had, or that nobody used for a while.
        let kept = self.kept.of_client(id, self.broker.env.now());
        let kept = kept.filter(|kept| kept.who == who && kept.began_with.is_some()).ok_or_else(unknown)?;
        let session = HttpSession::open(&self.broker, id.to_owned(), &kept, false).map_err(|error| {
            said(StatusCode::INTERNAL_SERVER_ERROR, &Value::Null, -32603, &error.to_string(), Value::Null)
        })?;
        sessions.insert(session.id.clone(), session.clone());
        Ok(session)
    }

    /// The stream that belongs to no request, or one that broke.
    fn get(&self, who: &str, headers: &HeaderMap) -> Response<Body> {
        if !accepts(headers, "text/event-stream") {
            return refusal(StatusCode::NOT_ACCEPTABLE, "accept text/event-stream");
        }
        if text_of(headers, "mcp-session-id").is_none() {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "without a session there is only POST");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            return response;
        }
        let session = match self.session_of(who, headers) {
            Ok(session) => session,
            Err(refused) => return refused,
        };
        match session.reader_after(text_of(headers, "last-event-id")) {
            Some(reader) => reader.into_stream(false),
            // Not 404, which says that there is no such session.
            None => refusal(StatusCode::BAD_REQUEST, "`Last-Event-ID` is not the name of an event of this session"),
        }
    }

    async fn post(self: &Arc<Self>, who: &str, server: &str, request: hyper::Request<Arriving>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        let bytes = match Limited::new(body, LONGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return refusal(StatusCode::PAYLOAD_TOO_LARGE, "a message is at most 16 MiB"),
        };
        let incoming = match incoming::read(&bytes) {
            Read::One(Judged::Taken(incoming)) => incoming,
            Read::One(Judged::Refused(refused)) => return as_json(StatusCode::BAD_REQUEST, &refused.as_message()),
            Read::One(Judged::Dropped { why, is_call }) => {
                tracing::warn!(why, "a message of a client was dropped");
                // Nothing is taken of a call that nobody could be answered; what else is not known is passed over.
                return if is_call {
                    said(StatusCode::BAD_REQUEST, &Value::Null, INVALID_REQUEST, &why, Value::Null)
                } else {
                    empty(StatusCode::ACCEPTED)
                };
            }
            Read::Batch(messages) => return self.batch(who, headers, messages).await,
        };
        let version = text_of(headers, "mcp-protocol-version");
        let request = match incoming {
            Incoming::Request(request) => request,
            Incoming::Aside(aside) => return self.told(who, headers, aside).await,
        };
        let is_stateless = request.method() != "initialize"
            && (request.params()["_meta"].get(era::PROTOCOL).is_some()
                || request.method() == "server/discover"
                || version == Some(NEWER))
            || (request.method() == "initialize" && version == Some(NEWER));
        if is_stateless {
            self.stateless(who, server, headers, request).await
        } else {
            self.in_session(who, server, headers, request).await
        }
    }

    /// What wants no answer.
    async fn told(&self, who: &str, headers: &HeaderMap, aside: Aside) -> Response<Body> {
        if text_of(headers, "mcp-protocol-version") == Some(NEWER) {
            // There is nothing to be told: what is cancelled is a stream that was closed.
            return empty(StatusCode::ACCEPTED);
        }
        if let Err(refused) = speaks(headers, &Value::Null) {
            return refused;
        }
        match self.session_of(who, headers) {
            Ok(session) => {
                session.told(aside).await;
                empty(StatusCode::ACCEPTED)
            }
            Err(refused) => refused,
        }
    }

    /// Several messages, of a session in whose revision there is such a thing.
    async fn batch(&self, who: &str, headers: &HeaderMap, messages: Vec<Judged>) -> Response<Body> {
        if let Err(refused) = speaks(headers, &Value::Null) {
            return refused;
        }
        let session = match self.session_of(who, headers) {
            Ok(session) => session,
            Err(refused) => return refused,
        };
        if !session.has_batches() {
            return as_json(StatusCode::BAD_REQUEST, &incoming::no_batches().as_message());
        }
        let Some(mut reader) = session.asked_at_once(messages).await else { return empty(StatusCode::ACCEPTED) };
        if accepts(headers, "text/event-stream") {
            return reader.into_stream(true);
        }
        match reader.answer().await {
            Some(answer) => reader.into_answer(StatusCode::OK, &answer),
            None => empty(StatusCode::ACCEPTED),
        }
    }

    /// A request that stands for itself.
    async fn stateless(
        self: &Arc<Self>,
        who: &str,
        server: &str,
        headers: &HeaderMap,
        request: Request,
    ) -> Response<Body> {
        let (id, method) = (request.id().clone(), request.method().to_owned());
        if let Err(why) = is_what_its_headers_say(headers, &request) {
            return said(StatusCode::BAD_REQUEST, &id, HEADER_MISMATCH, &why, Value::Null);
        }
        if let Some((code, why, data)) = era::refused(&method, request.params()) {
            return said(status_of(code).unwrap_or(StatusCode::BAD_REQUEST), &id, code, &why, data);
        }
        let project = match project_of(headers) {
            Ok(project) => project,
            Err(why) => return said(StatusCode::BAD_REQUEST, &id, -32602, &why, Value::Null),
        };
        let session = match self.standing(who, server, project) {
            Ok(session) => session,
            Err(error) => return said(StatusCode::INTERNAL_SERVER_ERROR, &id, -32603, &error.to_string(), Value::Null),
        };
        if request.is_call()
            && let Err(why) = session.arguments_are_what_headers_say(headers, request.params())
        {
            return said(StatusCode::BAD_REQUEST, &id, HEADER_MISMATCH, &why, Value::Null);
        }
        let mut reader = session.asked(request).await;
        // An error has a status, so it is waited for what comes first.
        match reader.first().await {
            Some(answer) if reader.is_over() => {
                let status = answer["error"]["code"].as_i64().and_then(status_of).unwrap_or(StatusCode::OK);
                reader.into_answer(status, &answer)
            }
            Some(_) | None => reader.into_stream(false),
        }
    }

    /// What serves a client without sessions: that of an earlier broker, if it was used not long ago.
    fn standing(&self, who: &str, server: &str, project: Option<String>) -> Result<Arc<HttpSession>, Broken> {
        let id = standing_id(who, server, project.as_deref());
        let mut standing = lock(&self.standing);
        if let Some(session) = standing.get(&id) {
            return Ok(session.clone());
        }
        let kept = self.kept.find(&id, self.broker.env.now(), SESSION_LIFE);
        let session = if let Some(kept) = kept {
            HttpSession::open(&self.broker, id.clone(), &kept, true)?
        } else {
            let new = KeptSession::new(&self.broker, who, server, project);
            let session = HttpSession::open(&self.broker, id.clone(), &new, true)?;
            self.keep(&session, &new);
            session
        };
        standing.insert(id, session.clone());
        Ok(session)
    }

    /// Keeps what outlives the broker of a session. Where it cannot be kept, its client has it as long as there is this broker.
    fn keep(&self, session: &HttpSession, of: &KeptSession) {
        if let Err(error) = self.kept.keep(&session.id, of) {
            tracing::warn!(%error, "a session over HTTP cannot be kept, and ends with this broker");
        }
        self.kept.was_used(&session.id, session.used_at());
    }

    /// A message of a client that has a session, or begins one.
    async fn in_session(
        self: &Arc<Self>,
        who: &str,
        server: &str,
        headers: &HeaderMap,
        request: Request,
    ) -> Response<Body> {
        if let Err(refused) = speaks(headers, request.id()) {
            return refused;
        }
        if request.method() == "initialize" {
            return self.begin(who, server, headers, request).await;
        }
        let session = match self.session_of(who, headers) {
            Ok(session) => session,
            Err(refused) => return refused,
        };
        let is_call = request.is_call();
        let mut reader = session.asked(request).await;
        let streams = accepts(headers, "text/event-stream");
        if is_call && streams {
            // At once, and with a name: where it breaks it is taken up again, however long the tool takes.
            return reader.into_stream(true);
        }
        match reader.first().await {
            Some(answer) if reader.is_over() || !streams => reader.into_answer(StatusCode::OK, &answer),
            Some(_) | None => reader.into_stream(true),
        }
    }

    async fn begin(self: &Arc<Self>, who: &str, server: &str, headers: &HeaderMap, request: Request) -> Response<Body> {
        let id = request.id().clone();
        let project = match project_of(headers) {
            Ok(project) => project,
            Err(why) => return said(StatusCode::BAD_REQUEST, &id, -32602, &why, Value::Null),
        };
        let mut kept = KeptSession::new(&self.broker, who, server, project);
        let name = self.broker.env.uuid_v7() + &format!("{:016x}", self.broker.env.entropy.next_u64());
        let session = match HttpSession::open(&self.broker, name, &kept, false) {
            Ok(session) => session,
            Err(error) => return said(StatusCode::INTERNAL_SERVER_ERROR, &id, -32603, &error.to_string(), Value::Null),
        };
        kept.began_with = Some(request.params().clone());
        let mut reader = session.asked(request).await;
        let answer = reader.answer().await.unwrap_or_default();
        kept.revision = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        session.agreed_on(kept.revision.clone());
        if answer.get("result").is_none() {
            let response = reader.into_answer(StatusCode::OK, &answer);
            session.close(true).await;
            return response;
        }
        self.keep(&session, &kept);
        lock(&self.sessions).insert(session.id.clone(), session.clone());
        let mut response = reader.into_answer(StatusCode::OK, &answer);
        if let Ok(name) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert("mcp-session-id", name);
        }
        response
    }
}

/// The HTTP status of an error that has one.
fn status_of(code: i64) -> Option<StatusCode> {
    match code {
        -32601 => Some(StatusCode::NOT_FOUND),
        HEADER_MISMATCH | MISSING_CAPABILITY | era::UNSUPPORTED_VERSION => Some(StatusCode::BAD_REQUEST),
        _ => None,
    }
}

/// The folder that a client names as its project, if it does. One that is not there, or that depends on where the broker stands, would be a
/// project that nobody else is in.
fn project_of(headers: &HeaderMap) -> Result<Option<String>, String> {
    let Some(value) = headers.get("ua-project") else { return Ok(None) };
    let named = str::from_utf8(value.as_bytes()).map_err(|_| "`Ua-Project` is not text in UTF-8".to_owned())?.trim();
    let folder = Path::new(named);
    if !folder.is_absolute() {
        return Err(format!("`Ua-Project` must be the full path of a folder, and is `{named}`"));
    }
    if !folder.is_dir() {
        return Err(format!("`Ua-Project` names the folder {named}, which is not there"));
    }
    Ok(Some(named.to_owned()))
}

fn text_of<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let all = headers.get_all(ACCEPT);
    let mut kinds = all.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    kinds.any(|one| {
        matches!(one.split(';').next().unwrap_or_default().trim(), "*/*" | "text/*") || one.trim().starts_with(kind)
    })
}

/// A web page that a browser shows must not reach tools, whatever name it has this machine resolved to.
fn is_of_this_machine(headers: &HeaderMap) -> bool {
    let is_own = |host: &str| {
        let rest = ["127.0.0.1", "localhost", "[::1]"].iter().find_map(|name| host.strip_prefix(name));
        // Behind the name there is a port or nothing: `127.0.0.1:80@evil.example` is another host.
        rest.is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    };
    let origin = headers.get(ORIGIN).map(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")).is_some_and(is_own)
    });
    text_of(headers, HOST.as_str()).is_some_and(is_own) && origin.unwrap_or(true)
}

/// Whether the revision that a message of a session says it is in is one that has sessions.
#[expect(clippy::result_large_err, reason = "a refusal is the answer that is sent")]
fn speaks(headers: &HeaderMap, id: &Value) -> Result<(), Response<Body>> {
    let version = text_of(headers, "mcp-protocol-version");
    let Some(version) = version.filter(|version| !WITH_HANDSHAKE.contains(version)) else { return Ok(()) };
    let why = format!("protocol version {version} is not supported");
    let data = json!({"supported": WITH_HANDSHAKE, "requested": version});
    Err(said(StatusCode::BAD_REQUEST, id, era::UNSUPPORTED_VERSION, &why, data))
}

/// Whether a request is what its headers say, by which others route it.
fn is_what_its_headers_say(headers: &HeaderMap, request: &Request) -> Result<(), String> {
    let params = request.params();
    let version = text_of(headers, "mcp-protocol-version");
    // Where it says nothing of itself it is refused for that.
    if let Some(own) = params["_meta"][era::PROTOCOL].as_str()
        && version != Some(own)
    {
        return Err(format!("`MCP-Protocol-Version` is not {own}"));
    }
    let method = request.method();
    if text_of(headers, "mcp-method") != Some(method) {
        return Err(format!("`Mcp-Method` is not {method}"));
    }
    let field = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        _ => return Ok(()),
    };
    let name = params[field].as_str().unwrap_or_default();
    let said = text_of(headers, "mcp-name").and_then(header_text);
    if said.as_deref() == Some(name) { Ok(()) } else { Err(format!("`Mcp-Name` is not {name}")) }
}

pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed_unsync()
}

fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(full(""));
    *response.status_mut() = status;
    response
}

fn refusal(status: StatusCode, why: &'static str) -> Response<Body> {
    let mut response = Response::new(full(why));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// An error of the protocol.
fn said(status: StatusCode, id: &Value, code: i64, why: &str, data: Value) -> Response<Body> {
    let mut error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}});
    if !data.is_null() {
        error["error"]["data"] = data;
    }
    as_json(status, &error)
}

pub(crate) fn as_json(status: StatusCode, message: &Value) -> Response<Body> {
    let mut response = Response::new(full(message.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (hyper::header::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_programs_of_this_machine_are_served() {
        for (host, origin, is_own) in [
            ("127.0.0.1:7433", None, true),
            ("localhost", Some("http://localhost:3000"), true),
            ("[::1]:7433", Some("https://[::1]"), true),
            ("evil.example.com", None, false),
            ("127.0.0.1.evil.example.com", None, false),
            ("127.0.0.1:7499@evil.example.com", None, false),
            ("127.0.0.1@evil.example.com", None, false),
            ("[::1]@evil.example.com:80", None, false),
            ("localhost:", None, false),
            ("127.0.0.1", Some("http://127.0.0.1:80@evil.example.com"), false),
            ("127.0.0.1", Some("http://localhost/x"), false),
            ("127.0.0.1", Some("http://evil.example.com"), false),
            ("127.0.0.1", Some("null"), false),
        ] {
            let mut given = headers(&[("host", host)]);
            if let Some(origin) = origin {
                given.insert(ORIGIN, origin.parse().unwrap());
            }
            assert_eq!(is_of_this_machine(&given), is_own, "{host} {origin:?}");
        }
        assert!(!is_of_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn a_request_is_what_its_headers_say() {
        let call =
            json!({"id": 1, "method": "tools/call", "params": {"name": "send ü", "_meta": {era::PROTOCOL: NEWER}}});
        let Read::One(Judged::Taken(Incoming::Request(call))) = incoming::read(call.to_string().as_bytes()) else {
            panic!("no call")
        };
        let good =
            [("mcp-protocol-version", NEWER), ("mcp-method", "tools/call"), ("mcp-name", "=?base64?c2VuZCDDvA==?=")];
        assert_eq!(is_what_its_headers_say(&headers(&good), &call), Ok(()));
        for (place, other) in [(0, "2025-11-25"), (1, "tools/list"), (2, "send")] {
            let mut bad = good;
            bad[place].1 = other;
            assert!(is_what_its_headers_say(&headers(&bad), &call).is_err(), "{bad:?}");
        }
        assert!(is_what_its_headers_say(&headers(&good[..2]), &call).is_err());
    }

    #[test]
    fn a_project_is_a_folder_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("caf\u{e9}");
        std::fs::create_dir(&there).unwrap();
        let of = |value: &[u8]| {
            project_of(&HeaderMap::from_iter([(
                "ua-project".parse().unwrap(),
                HeaderValue::from_bytes(value).unwrap(),
            )]))
        };
        assert_eq!(project_of(&HeaderMap::new()), Ok(None));
        let name = there.to_str().unwrap();
        assert_eq!(of(format!(" {name} ").as_bytes()), Ok(Some(name.to_owned())));
        for (value, why) in [
            (b"relative/x".as_slice(), "full path"),
            (b"", "full path"),
            (b"/nonexistent/zz", "not there"),
            (b"/etc/passwd", "not there"),
            (b"/caf\xe9", "UTF-8"),
        ] {
            assert!(of(value).is_err_and(|refused| refused.contains(why)), "{why}");
        }
    }

    #[test]
    fn what_is_accepted_is_read_from_lists() {
        let of = |accept: &str| accepts(&headers(&[("accept", accept)]), "text/event-stream");
        assert!(of("application/json, text/event-stream") && of("*/*") && of("text/event-stream;q=0.5"));
        assert!(!of("application/json") && !accepts(&HeaderMap::new(), "text/event-stream"));
    }
}
