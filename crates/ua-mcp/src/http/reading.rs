//! Reading the answer to one posted request, over as many connections as that takes.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use ua_core::Env;
use ua_http::sse::{Event, Parser};

use super::endpoint::{Endpoint, Failure, LAST_EVENT_ID, cause};
use super::twice::Twice;
use super::{HttpConnection, Inner, Reply};
use crate::amount::{read_message, read_with_forms};
use crate::host::method_and_params;
use crate::wire::{Answer, MAX_LINE, answer, answered_id};

/// How much of a refusal's body is read, since it may be an answer, how much of it is kept, and how long it may take to come.
const MAX_READ: usize = 64 * 1024;
const MAX_REFUSAL: usize = 8 * 1024;
const REFUSAL_PATIENCE: Duration = Duration::from_secs(5);
/// How many characters of it stand in a sentence.
const MAX_QUOTED: usize = 400;
/// How often in a row a broken stream is taken up again without anything new coming of it.
pub(super) const MAX_RESUMES: u32 = 5;
/// A stream that was kept open this long shows that the server still works on the call, even if it brought no event: some
/// cut a silent stream on purpose and expect to be asked again.
pub(super) const HELD_OPEN: Duration = Duration::from_secs(10);
/// How long to wait before taking a stream up when the server does not say, and at most.
pub(super) const RESUME_WAIT: Duration = Duration::from_secs(1);
pub(super) const MAX_RESUME_WAIT: Duration = Duration::from_mins(1);

fn lost(why: impl Into<String>) -> Failure {
    Failure::Lost(why.into())
}

impl HttpConnection {
    /// Reads the answer to request `id` out of the response to its POST. Whatever goes wrong here goes wrong after the
    /// request left, so a failure is always [`Failure::Lost`]. Of an effect (`is_effect`) it is read twice where it would be made again otherwise.
    pub(super) async fn read(&self, response: Response, id: i64, is_effect: bool) -> Result<Reply, Failure> {
        let status = response.status();
        if !status.is_success() {
            self.inner.note_refusal(status);
            let not_let_in = self.inner.endpoint.refused(&response).await;
            let is_challenge = self.inner.endpoint.is_challenge(&response);
            let retry_after = retry_after(&response, &self.inner.env);
            let body = refusal(response, &self.inner.env).await;
            return Ok(Reply::Status { status, body, not_let_in, is_challenge, retry_after });
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "application/json" => {
                let body = whole(response).await?;
                if body.trim_ascii().is_empty() {
                    return Err(lost(no_result(status, &kind, true)));
                }
                match self.inner.understand(&body, id).map_err(|fault| lost(fault.in_words()))? {
                    Some(reply) => Ok(reply),
                    None => Err(lost("it broke the protocol: it answered with a message that is not an answer")),
                }
            }
            "text/event-stream" => {
                let resume = |after: String| {
                    let inner = Arc::clone(&self.inner);
                    async move { inner.resume(&after).await }
                };
                // What else comes on it may come before the answer, and is passed over, as it is on a pipe.
                let first_stray = OnceLock::new();
                let twice = Twice::default();
                let understand = |data: &[u8]| match self.inner.understand(data, id) {
                    Ok(Some(reply)) if is_effect => Ok(twice.take(reply)),
                    Ok(found) => Ok(found),
                    Err(stray @ Fault::Stray(_)) => {
                        tracing::debug!(
                            server = self.inner.server,
                            why = stray.in_words(),
                            "a message on a stream is passed over"
                        );
                        first_stray.get_or_init(|| stray.in_words());
                        Ok(None)
                    }
                    Err(fault @ Fault::Answer(_)) => Err(lost(fault.in_words())),
                };
                let followed = tokio::select! {
                    biased;
                    followed = follow(&self.inner.env, response, understand, resume) => followed,
                    () = twice.over(&self.inner.env) => Err(lost("no second answer came")),
                };
                match (twice.answer(followed), first_stray.get()) {
                    // It may have been what was meant for the answer.
                    (Err(Failure::Lost(why)), Some(stray)) => Err(lost(format!("{why}; before that {stray}"))),
                    (followed, _) => followed,
                }
            }
            kind => {
                let says_so = response.content_length() == Some(0);
                // What is a whole answer is one, whatever it is called. A body without an announced end may have none.
                let may_be_one = response.content_length().is_some() && matches!(kind, "" | "text/plain" | "text/json");
                let body = if may_be_one { whole(response).await? } else { Vec::new() };
                let is_empty = says_so || (may_be_one && body.trim_ascii().is_empty());
                self.inner.understand(&body, id).ok().flatten().ok_or_else(|| lost(no_result(status, kind, is_empty)))
            }
        }
    }
}

/// What an answer is that has no result in it: nothing, as a server gives that acknowledges a notification, or something else.
pub(super) fn no_result(status: StatusCode, kind: &str, is_empty: bool) -> String {
    match (is_empty, kind) {
        (true, _) => format!("it answered HTTP status {status} and nothing else, which is no result"),
        (false, "") => format!("it answered HTTP status {status} with content of no stated type, which is no result"),
        (false, kind) => format!("it answered HTTP status {status} with {kind:?} content and no result"),
    }
}

/// For how many seconds the other side asks to be left alone, rounded up.
pub(super) fn retry_after(response: &Response, env: &Env) -> Option<u64> {
    let header = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    ua_core::retry_after(header, env.now()).map(|span| span.as_secs() + u64::from(span.subsec_nanos() > 0))
}

/// A refusal's body, as far as it comes.
pub(super) async fn refusal(mut response: Response, env: &Env) -> String {
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_READ {
            let Ok(Some(chunk)) = response.chunk().await else { break };
            body.extend_from_slice(&chunk);
        }
    };
    tokio::select! {
        () = read => {}
        () = env.clock.sleep(REFUSAL_PATIENCE) => {}
    }
    body.truncate(MAX_READ);
    String::from_utf8_lossy(&body).into_owned()
}

/// Whether an error of the era in which each request stands for itself says that the request was refused before anybody began with it. Its
/// headers are compared with it, and its version is looked at, before anything else is done (Streamable HTTP, "Server Validation" and "Protocol
/// Version Header"); the codes are the specification's alone, and a server gives them this status where it refused the request itself. What its
/// tool was told by yet another server comes with status 200.
///
/// −32021 is none of these. A tool that has begun may find that its client cannot be asked: the official SDK for TypeScript checks what a tool
/// asks behind the tool, and gives that error the status 400 as well. So nobody knows what the tool did before.
pub(super) fn is_refused_unbegun(status: StatusCode, code: i64) -> bool {
    const HEADER_MISMATCH: i64 = -32020;
    const UNSUPPORTED_VERSION: i64 = -32022;
    status == StatusCode::BAD_REQUEST && matches!(code, HEADER_MISMATCH | UNSUPPORTED_VERSION)
}

/// The reply to request `id`, a call: of a refusal, the answer that is its body, if there is one. A body that gives our id was made by somebody
/// who read the request, so what it says counts, whatever the status; but where it says that the request was refused unbegun, it is the status that
/// proves it. Who does not let us in reads nothing, but a result is one all the same.
pub(super) fn as_it_was_read(reply: Reply, id: i64, is_stateless: bool) -> Reply {
    match reply {
        Reply::Status { status, body, not_let_in, is_challenge, retry_after } => {
            let body = match answered_all_the_same(status, &body, id) {
                Some(Reply::Error { code, message, .. }) if is_stateless && is_refused_unbegun(status, code.into()) => {
                    message
                }
                Some(answer) => return answer,
                None => body,
            };
            Reply::Status { status, body: kept(body), not_let_in, is_challenge, retry_after }
        }
        reply @ (Reply::Result(..) | Reply::Error { .. }) => reply,
    }
}

fn answered_all_the_same(status: StatusCode, body: &str, id: i64) -> Option<Reply> {
    let Ok(Value::Object(mut message)) = read_message(body.as_bytes()) else { return None };
    if message.contains_key("method") || answered_id(&message) != Some(id) {
        return None;
    }
    match answer(&mut message).ok()? {
        Answer::Result(result) => Some(Reply::Result(result, body.len())),
        Answer::Error { code, message, data } => {
            (!is_at_the_door(status)).then_some(Reply::Error { code, message, data })
        }
    }
}

/// Whether a refusal says that it does not know the session: by its status, or, from servers that were made before that had one, in words.
pub(super) fn is_about_session(status: StatusCode, body: &str) -> bool {
    let said = body.to_ascii_lowercase();
    let names_it = ["no valid session", "invalid session", "session not found", "unknown session"];
    status == StatusCode::NOT_FOUND
        || (status == StatusCode::BAD_REQUEST && names_it.iter().any(|words| said.contains(words)))
}

/// Whether a refusal of request `id` says that it does not know the session. What only somebody says who read the request says that it does.
pub(super) fn says_session_is_over(status: StatusCode, body: &str, id: &Value) -> bool {
    let is_read = || {
        let said = read_message(body.as_bytes()).ok().filter(|said| said["id"] == *id);
        said.and_then(|said| said["error"]["code"].as_i64()).is_some_and(is_of_a_reader)
    };
    is_about_session(status, body) && !is_read()
}

/// Whether an error's code is one of those for what is in a request: only who read it says so.
pub(super) const fn is_of_a_reader(code: i64) -> bool {
    matches!(code, -32603..=-32601)
}

/// Whether a status is about who asks, and not about what is asked.
pub(super) fn is_at_the_door(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

/// Why a refusal of a call does not show that nothing was begun, although its status is about who asks: it does not say what would let the call in.
pub(super) fn doubt(status: StatusCode, is_challenge: bool, body: &str) -> Option<String> {
    if status != StatusCode::UNAUTHORIZED || is_challenge {
        return None;
    }
    let body: String = body.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_QUOTED).collect();
    let said = if body.trim().is_empty() { String::new() } else { format!(": {}", body.trim()) };
    Some(format!(
        "it answered HTTP status {status} and no `WWW-Authenticate`, so nothing shows that it was not begun{said}"
    ))
}

/// What is kept of it.
pub(super) fn kept(mut body: String) -> String {
    let end = (0..=MAX_REFUSAL.min(body.len())).rev().find(|end| body.is_char_boundary(*end)).unwrap_or_default();
    body.truncate(end);
    body
}

/// Follows a stream to the answer. A stream that breaks is taken up again after the last event that came from it, if
/// the server gave its events ids.
pub(super) async fn follow<T, F>(
    env: &Env,
    response: Response,
    understand: impl Fn(&[u8]) -> Result<Option<T>, Failure>,
    resume: impl Fn(String) -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<Option<Response>, String>>,
{
    let mut last_event: Option<String> = None;
    let mut wait = None;
    let mut vain = 0;
    let mut stream = Some(response);
    loop {
        let broke = match stream.take() {
            Some(response) => {
                let opened_at = env.now();
                let mut events = Events::of(response);
                let broke = loop {
                    match events.next().await {
                        Ok(Some(event)) => {
                            if let Some(event_id) = event.id.clone() {
                                let event_id = Some(event_id).filter(|id| !id.is_empty());
                                // Some servers begin with the very event after which they were asked to go on.
                                if event_id != last_event {
                                    vain = 0;
                                }
                                last_event = event_id;
                            }
                            wait = event.retry.map(Duration::from_millis).or(wait);
                            let data = event.message().filter(|data| !data.is_empty());
                            let reply = data.map(|data| understand(data.as_bytes())).transpose()?;
                            if let Some(reply) = reply.flatten() {
                                return Ok(reply);
                            }
                        }
                        Ok(None) => break "the stream ended before the answer came".to_owned(),
                        Err(Broken::Connection(why)) => break format!("the stream broke: {why}"),
                        Err(Broken::Content(why)) => return Err(lost(why)),
                    }
                };
                if env.now().since(opened_at) >= HELD_OPEN {
                    vain = 0;
                }
                broke
            }
            None => "the stream could not be taken up again".to_owned(),
        };
        let Some(after) = &last_event else { return Err(lost(broke)) };
        if vain == MAX_RESUMES {
            return Err(lost(format!("{broke}; {MAX_RESUMES} attempts to take it up again brought nothing new")));
        }
        vain += 1;
        env.clock.sleep(wait.unwrap_or(RESUME_WAIT).min(MAX_RESUME_WAIT)).await;
        tracing::debug!(after, "taking up a broken stream");
        stream = resume(after.clone()).await.map_err(|why| lost(format!("{broke}; {why}")))?;
    }
}

/// Reads a whole body that is one message.
pub(super) async fn whole(mut response: Response) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_LINE => {
                return Err(lost(format!("it sent a message of more than {MAX_LINE} bytes")));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) => return Err(lost(format!("the answer broke off: {}", cause(&error)))),
        }
    }
}

/// What is wrong with a message.
enum Fault {
    /// It is not the answer that is waited for, as far as can be told.
    Stray(String),
    /// It is that answer, and says nothing.
    Answer(String),
}

impl Fault {
    fn in_words(&self) -> String {
        let (Self::Stray(why) | Self::Answer(why)) = self;
        format!("it broke the protocol: {why}")
    }
}

/// Why a stream gives no more events.
pub(super) enum Broken {
    /// The connection; another one may bring the rest.
    Connection(String),
    /// What came; it would come again.
    Content(String),
}

pub(super) struct Events {
    response: Response,
    parser: Parser,
}

impl Events {
    pub(super) fn of(response: Response) -> Self {
        Self { response, parser: Parser::new(MAX_LINE) }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            if let Some(event) = self.parser.next_event() {
                return Ok(Some(event));
            }
            match self.response.chunk().await {
                Ok(Some(chunk)) => self.parser.push(&chunk).map_err(Broken::Content)?,
                // Some servers leave out the line that ends the last event. One that was cut instead is no JSON.
                Ok(None) => return Ok(self.parser.last_event().filter(is_whole)),
                Err(error) => return Err(Broken::Connection(cause(&error))),
            }
        }
    }
}

fn is_whole(event: &Event) -> bool {
    event.data.as_deref().is_some_and(|data| serde_json::from_str::<IgnoredAny>(data).is_ok())
}

/// Asks for the rest of a stream. What is refused is a status, or nothing when nobody was reached.
pub(super) async fn taken_up(
    endpoint: &Endpoint,
    mut headers: HeaderMap,
    after: &str,
) -> Result<Result<Response, Option<StatusCode>>, String> {
    let after = HeaderValue::from_str(after).map_err(|_| "its event id cannot be sent back".to_owned())?;
    headers.insert(LAST_EVENT_ID, after);
    Ok(match endpoint.get(headers).await {
        Ok(response) if response.status() == StatusCode::OK => Ok(response),
        Ok(response) => Err(Some(response.status())),
        Err(failure) => {
            tracing::debug!(why = failure.into_why(), "a stream was not taken up");
            Err(None)
        }
    })
}

/// Whether a stream that was refused so may be let in later.
pub(super) fn may_be_asked_again(status: StatusCode) -> Result<(), String> {
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        return Ok(());
    }
    Err(format!("it does not let it be taken up again (HTTP status {status})"))
}

impl Inner {
    /// Asks for the rest of a stream; `None` when it is worth asking again. This sends no call.
    async fn resume(&self, after: &str) -> Result<Option<Response>, String> {
        match taken_up(&self.endpoint, self.headers(), after).await? {
            Ok(response) => Ok(Some(response)),
            Err(None) => Ok(None),
            Err(Some(status)) => {
                self.note_refusal(status);
                may_be_asked_again(status).map(|()| None)
            }
        }
    }

    /// Reads one message: the answer to request `id`, or something else, for which `None` is returned once it is dealt
    /// with.
    fn understand(self: &Arc<Self>, bytes: &[u8], id: i64) -> Result<Option<Reply>, Fault> {
        let stray = |why: &str| Fault::Stray(why.to_owned());
        let mut message: Map<String, Value> = match read_with_forms(bytes) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => return Err(stray("it sent a batch, which nobody asked for")),
            Ok(_) => return Err(stray("a message is not an object")),
            Err(error) => return Err(stray(&format!("a message cannot be read: {error}"))),
        };
        if message.contains_key("method") {
            self.answer_request(message, Some(id));
            return Ok(None);
        }
        if answered_id(&message) != Some(id) {
            return Err(stray("it answered a request that was not made"));
        }
        match answer(&mut message) {
            Ok(Answer::Result(result)) => Ok(Some(Reply::Result(result, bytes.len()))),
            Ok(Answer::Error { code, message, data }) => Ok(Some(Reply::Error { code, message, data })),
            Err(why) => Err(Fault::Answer(why.to_owned())),
        }
    }

    /// Hands a message of the server's to our side, and its answer back. It came on the stream of our request `origin`, if of any.
    pub(super) fn answer_request(self: &Arc<Self>, mut message: Map<String, Value>, origin: Option<i64>) {
        // JSON-RPC 1.0 writes a notification with the id null.
        let id = message.remove("id").filter(|id| !id.is_null());
        let (method, params) = method_and_params(&mut message);
        let Some(id) = id else { return self.host.notified(&method, &params) };
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let answer = match inner.host.request(&method, params, origin).await {
                Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
                Err((code, words)) => {
                    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": words } })
                }
            };
            if let Err(failure) = inner.post_aside(&answer).await {
                tracing::debug!(server = inner.server, why = failure.into_why(), "a question was not answered");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_over_is_said_by_a_status_or_in_words() {
        let of = |status, body| is_about_session(StatusCode::from_u16(status).unwrap(), body);
        let words = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#;
        assert!(of(404, "") && of(400, words));
        assert!(!of(400, "Bad Request") && !of(500, words) && !of(403, words));
    }

    /// What became of request 7, of the newer era or not, that was answered with this status and body.
    fn read_as(is_stateless: bool, status: u16, body: &Value) -> String {
        let status = StatusCode::from_u16(status).unwrap();
        let body = body.to_string();
        let reply = Reply::Status { status, body, not_let_in: None, is_challenge: true, retry_after: None };
        match as_it_was_read(reply, 7, is_stateless) {
            Reply::Result(result, _) => result.to_string(),
            Reply::Error { code, .. } => code.to_string(),
            Reply::Status { status, .. } => format!("status {}", status.as_u16()),
        }
    }

    /// What proves that nothing was begun, by the specification of 2026-07-28 and by what servers do: a request that its own headers deny, and a
    /// version that is not spoken. Not that the client lacks a capability, which a tool finds out in the middle of its work.
    #[test]
    fn an_error_of_the_newer_era_proves_that_nothing_was_begun_only_where_nothing_can_be() {
        let error = |code: i64| json!({"jsonrpc": "2.0", "id": 7, "error": {"code": code, "message": "no"}});
        for (code, proves) in [
            (-32020, true),
            (-32022, true),
            (-32021, false),
            (-32600, false),
            (-32601, false),
            (-32602, false),
            (-32603, false),
            (-32700, false),
            (-32000, false),
            (-32042, false),
        ] {
            let expected = if proves { "status 400".to_owned() } else { code.to_string() };
            assert_eq!(read_as(true, 400, &error(code)), expected);
            // Nobody defined it in the era before, and another status is not the one of such a refusal.
            assert_eq!(read_as(false, 400, &error(code)), code.to_string());
            assert_eq!(read_as(true, 500, &error(code)), code.to_string());
        }
    }

    /// Only who says how to be let in is known to stand in front of the tool.
    #[test]
    fn a_refusal_that_asks_for_nothing_shows_nothing() {
        let of = |status, is_challenge| doubt(StatusCode::from_u16(status).unwrap(), is_challenge, "who\nare you?");
        assert_eq!((of(401, true), of(403, false), of(404, false), of(500, false)), (None, None, None, None));
        let why = of(401, false).unwrap();
        assert!(why.contains("HTTP status 401") && why.ends_with("not begun: who are you?"), "{why}");
    }

    /// What somebody answered who read the request is the answer, whatever the status beside it.
    #[test]
    fn an_answer_in_the_body_of_a_refusal_is_the_answer() {
        let read = |status: u16, body: Value| read_as(false, status, &body);
        let result = json!({"jsonrpc": "2.0", "id": 7, "result": "done"});
        let error = json!({"jsonrpc": "2.0", "id": 7, "error": {"code": -32603, "message": "who knows"}});
        for status in [400, 401, 403, 404, 429, 500] {
            assert_eq!(read(status, result.clone()), "\"done\"", "{status}");
            let expected = if matches!(status, 401 | 403) { format!("status {status}") } else { "-32603".to_owned() };
            assert_eq!(read(status, error.clone()), expected, "{status}");
            for other in [
                json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "no session"}}),
                json!("no"),
                json!({"id": 8, "result": "done"}),
            ] {
                assert_eq!(read(status, other), format!("status {status}"));
            }
        }
    }
}
