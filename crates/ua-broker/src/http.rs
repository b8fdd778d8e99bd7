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
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming as Arriving};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Response, StatusCode};
use serde_json::{Value, json};
use ua_core::Timestamp;

mod headers;
mod kept;
mod listening;
mod session;
mod streams;
mod tokens;

use self::headers::{accepts, is_of_this_machine, is_what_its_headers_say, project_of, speaks, text_of};
pub use self::kept::KeptSessions;
use self::kept::{KeptSession, standing_id};
pub(crate) use self::listening::listen;
use self::session::{Begins, HttpSession};
pub use self::tokens::Tokens;
use crate::broker::{Broken, Broker};
use crate::carrier::Carrier;
use crate::era::{self, NEWER};
use crate::incoming::{self, Aside, Incoming, Judged, Read, Request};
use crate::peers::Ends;
use crate::posted::AGAIN_WITHIN;
use crate::sync::lock;

/// The longest message.
const LONGEST: usize = 16 * 1024 * 1024;
/// How long a session without traffic is kept.
const SESSION_LIFE: Duration = Duration::from_hours(1);
/// What a request says in headers and in itself is not the same.
const HEADER_MISMATCH: i64 = -32020;
/// What its client would have to be able to do is not declared.
const MISSING_CAPABILITY: i64 = -32021;
const INVALID_REQUEST: i64 = -32600;
/// What is told to whom this user is not at the other end.
const NOT_OURS: &str = "only programs of the user whose gateway this is are served, as long as they are there";

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
    /// How long after its answer was written a request that is posted with the same id and the same words is the same request.
    pub again_within: Duration,
}

impl HttpSettings {
    /// How long nobody is taken to be away where nothing else is said.
    pub const AWAY_AFTER: Duration = Duration::from_mins(1);
    /// How long a request may be posted again where nothing else is said.
    pub const AGAIN_WITHIN: Duration = AGAIN_WITHIN;
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

impl Front {
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

    async fn pass(
        self: &Arc<Self>,
        request: hyper::Request<Arriving>,
        ends: Ends,
        carrier: &Arc<Carrier>,
    ) -> Response<Body> {
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
            let why = "no tool server of this name was in servers.json when the gateway's broker started: they are at /s/NAME/mcp, and \
                       `ua gateway restart` reads the file again";
            return refusal(StatusCode::NOT_FOUND, why);
        }
        match *request.method() {
            Method::POST => self.post(&who, server, request, ends, carrier).await,
            _ if !ends.caller().is_ours() => refusal(StatusCode::FORBIDDEN, NOT_OURS),
            Method::GET => self.get(&who, request.headers(), carrier),
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
        let session = HttpSession::open(&self.broker, id.to_owned(), &kept, false, Begins::Again).map_err(|error| {
            said(StatusCode::INTERNAL_SERVER_ERROR, &Value::Null, -32603, &error.to_string(), Value::Null)
        })?;
        sessions.insert(session.id.clone(), session.clone());
        Ok(session)
    }

    /// The stream that belongs to no request, or one that broke.
    fn get(&self, who: &str, headers: &HeaderMap, carrier: &Arc<Carrier>) -> Response<Body> {
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
            Some(reader) => reader.into_stream(false, carrier),
            // Not 404, which says that there is no such session.
            None => refusal(StatusCode::BAD_REQUEST, "`Last-Event-ID` is not the name of an event of this session"),
        }
    }

    async fn post(
        self: &Arc<Self>,
        who: &str,
        server: &str,
        request: hyper::Request<Arriving>,
        ends: Ends,
        carrier: &Arc<Carrier>,
    ) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let headers = &parts.headers;
        let bytes = match whole(body).await {
            Ok(bytes) => bytes,
            Err(refused) => return refused,
        };
        // All of it is here: whoever wrote it still has to be.
        if !ends.caller().is_ours() {
            return refusal(StatusCode::FORBIDDEN, NOT_OURS);
        }
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
            Read::Batch(messages) => return self.batch(who, headers, messages, carrier).await,
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
            self.stateless(who, server, headers, request, carrier).await
        } else {
            self.in_session(who, server, headers, request, carrier).await
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
    async fn batch(
        &self,
        who: &str,
        headers: &HeaderMap,
        messages: Vec<Judged>,
        carrier: &Arc<Carrier>,
    ) -> Response<Body> {
        if text_of(headers, "mcp-protocol-version") == Some(NEWER) {
            return as_json(StatusCode::BAD_REQUEST, &incoming::no_batches().as_message());
        }
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
            return reader.into_stream(true, carrier);
        }
        match reader.answer().await {
            Some(answer) => reader.into_answer(StatusCode::OK, &answer, carrier),
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
        carrier: &Arc<Carrier>,
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
                reader.into_answer(status, &answer, carrier)
            }
            Some(_) | None => reader.into_stream(false, carrier),
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
            HttpSession::open(&self.broker, id.clone(), &kept, true, Begins::Again)?
        } else {
            let new = KeptSession::new(&self.broker, who, server, project);
            let session = HttpSession::open(&self.broker, id.clone(), &new, true, Begins::Now)?;
            self.keep(&session, &new);
            session
        };
        standing.insert(id, session.clone());
        Ok(session)
    }

    /// Keeps what outlives the broker of a session. Where it cannot be kept, its client has it as long as there is this broker.
    fn keep(&self, session: &HttpSession, of: &KeptSession) {
        if let Err(error) = self.kept.keep(&self.broker.redactor, &session.id, of) {
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
        carrier: &Arc<Carrier>,
    ) -> Response<Body> {
        if let Err(refused) = speaks(headers, request.id()) {
            return refused;
        }
        if request.method() == "initialize" {
            return self.begin(who, server, headers, request, carrier).await;
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
            return reader.into_stream(true, carrier);
        }
        if !streams {
            // Whatever is said before its answer, there is one response.
            return match reader.answer().await {
                Some(answer) => reader.into_answer(StatusCode::OK, &answer, carrier),
                None => empty(StatusCode::ACCEPTED),
            };
        }
        match reader.first().await {
            Some(answer) if reader.is_over() => reader.into_answer(StatusCode::OK, &answer, carrier),
            Some(_) | None => reader.into_stream(true, carrier),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        who: &str,
        server: &str,
        headers: &HeaderMap,
        request: Request,
        carrier: &Arc<Carrier>,
    ) -> Response<Body> {
        let id = request.id().clone();
        let project = match project_of(headers) {
            Ok(project) => project,
            Err(why) => return said(StatusCode::BAD_REQUEST, &id, -32602, &why, Value::Null),
        };
        let mut kept = KeptSession::new(&self.broker, who, server, project);
        let name = self.broker.env.uuid_v7() + &format!("{:016x}", self.broker.env.entropy.next_u64());
        let session = match HttpSession::open(&self.broker, name, &kept, false, Begins::Now) {
            Ok(session) => session,
            Err(error) => return said(StatusCode::INTERNAL_SERVER_ERROR, &id, -32603, &error.to_string(), Value::Null),
        };
        kept.began_with = Some(request.params().clone());
        let mut reader = session.asked(request).await;
        let answer = reader.answer().await.unwrap_or_default();
        kept.revision = answer["result"]["protocolVersion"].as_str().map(str::to_owned);
        session.agreed_on(kept.revision.clone());
        if answer.get("result").is_none() {
            let response = reader.into_answer(StatusCode::OK, &answer, carrier);
            session.close(true).await;
            return response;
        }
        self.keep(&session, &kept);
        lock(&self.sessions).insert(session.id.clone(), session.clone());
        let mut response = reader.into_answer(StatusCode::OK, &answer, carrier);
        if let Ok(name) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert("mcp-session-id", name);
        }
        response
    }
}

/// All of a body, up to the end that it says it has: its length, or the last of its parts. What ends sooner, because whoever wrote it was killed
/// or cut off, was not said.
async fn whole(body: Arriving) -> Result<Bytes, Response<Body>> {
    match Limited::new(body, LONGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(refusal(StatusCode::PAYLOAD_TOO_LARGE, "a message is at most 16 MiB"))
        }
        Err(error) => {
            tracing::warn!(%error, "a message of a client ended too early, and was dropped");
            Err(refusal(StatusCode::BAD_REQUEST, "the message ends before its end; nothing of it was sent"))
        }
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
