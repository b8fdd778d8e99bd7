//! What every wire needs of HTTP: one request, one streamed reply, and nothing repeated.
//!
//! The client follows no redirect and repeats nothing, so what the observer counts is what the provider may bill. A wire adds its
//! endpoint, its headers and an [`Assemble`] that makes a reply of its events.
//!
//! Granular Execution PRD §5 (network attempts), Durable Jobs v1 spec §9.

pub(crate) mod address;
#[cfg(test)]
mod ends_tests;
pub(crate) mod events;
#[cfg(test)]
mod fault_tests;
pub(crate) mod lasting;
pub(crate) mod lenient;
mod marks;
pub(crate) mod reject;
pub(crate) mod reply_limit;
pub(crate) mod stop_words;
pub(crate) mod too_long;
mod waiting;

use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use ua_core::{Env, ModelTurn, signed};
use ua_http::Versions;

use self::events::{Assemble, Bytes, ReadFault, broken, limited, read_reply, read_whole};
use crate::error::LlmError;
use crate::estimate::heard_so_far;
use crate::provider::StreamObserver;

/// Bytes of a reply, far beyond the longest that a model writes.
const REPLY_LIMIT: usize = 64 << 20;
/// Bytes of an error answer that are read.
const ERROR_LIMIT: usize = 64 << 10;

/// How a wire is reached.
#[derive(Debug)]
pub(crate) struct Reach {
    /// Where requests go.
    pub(crate) endpoint: Url,
    /// The key, if the server wants one.
    pub(crate) key: Option<Key>,
    /// What every request says besides the key.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The longest wait for a connection.
    pub(crate) connect_timeout: Duration,
    /// The longest silence: before the first byte, and between two pieces of a stream.
    pub(crate) idle_timeout: Duration,
    /// The longest that a reply may take altogether: what comes for ever, a byte at a time, is never silent.
    pub(crate) reply_timeout: Duration,
}

/// A key and the header that it goes in.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) header: HeaderName,
    /// What stands in front of it: `Bearer `, or nothing.
    pub(crate) scheme: &'static str,
    pub(crate) secret: SecretString,
}

/// A client of one endpoint.
#[derive(Debug)]
pub(crate) struct HttpClient {
    client: Client,
    endpoint: Url,
    headers: HeaderMap,
    secret: Option<SecretString>,
    idle_timeout: Duration,
    reply_timeout: Duration,
    /// Whether a reply came from there since this process began.
    has_answered: AtomicBool,
    env: Env,
}

impl HttpClient {
    /// Prepares a client; nothing is sent yet. The system's proxy settings are honoured, except towards this machine.
    pub(crate) fn new(reach: Reach, env: Env) -> Result<Self, LlmError> {
        let setup = |why: String| LlmError::Setup { why };
        let mut headers: HeaderMap = reach.headers.into_iter().collect();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(key) = &reach.key {
            headers.insert(key.header.clone(), key.value().map_err(setup)?);
        }
        let mut builder = ua_http::client(Versions::OneAndTwo)
            .user_agent(concat!("ua/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(reach.connect_timeout)
            .read_timeout(reach.idle_timeout)
            .retry(reqwest::retry::never());
        if address::is_this_machine(&reach.endpoint) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| setup(error.to_string()))?;
        Ok(Self {
            client,
            endpoint: reach.endpoint,
            headers,
            secret: reach.key.map(|key| key.secret),
            idle_timeout: reach.idle_timeout,
            reply_timeout: reach.reply_timeout,
            has_answered: AtomicBool::new(false),
            env,
        })
    }

    /// Where requests go.
    #[cfg(test)]
    pub(crate) fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// One HTTP request and its reply, which `assembler` makes of the stream's events.
    pub(crate) async fn complete(
        &self,
        body: String,
        model: &str,
        assembler: impl Assemble,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let answer = tokio::time::timeout(self.reply_timeout, self.send(body, model, assembler, observer)).await;
        let answer = answer.unwrap_or(Err(LlmError::Endless { after: self.reply_timeout }));
        // A server may echo what it was sent.
        match &self.secret {
            Some(secret) => answer.map_err(|error| error.without(secret.expose_secret().trim())),
            None => answer,
        }
    }

    async fn send(
        &self,
        body: String,
        model: &str,
        assembler: impl Assemble,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        observer.body(&body);
        let request = self.client.post(self.endpoint.clone()).headers(self.headers.clone()).body(body);
        observer.sent();
        let response = request.send().await.map_err(|error| self.not_answered(error))?;
        tracing::info!(http.response.status_code = signed(response.status().as_u16()), "ua.model.answering");
        if response.status() != StatusCode::OK {
            return self.refused(response, model, assembler, observer).await;
        }
        self.answered(response, model, assembler, observer).await
    }

    /// Reads what came with a success, by what it is and not by how it is labelled: a stream of events; a whole reply, of a server or something in
    /// front of it that streams none; or no reply.
    async fn answered(
        &self,
        response: Response,
        model: &str,
        assembler: impl Assemble,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let stated = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let stated = stated.trim().to_owned();
        let is_labelled = stated.to_ascii_lowercase().starts_with("text/event-stream");
        if is_labelled {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        let mut body = Vec::new();
        let mut pieces = limited(self.bytes(response), REPLY_LIMIT);
        while let Some(piece) = pieces.next().await {
            match piece {
                Ok(piece) => body.extend_from_slice(piece.get_ref()),
                // What had begun as a reply may be billed as one, and so may what was cut before anything came.
                Err(fault) if body.trim_ascii_start().first().is_none_or(|first| *first == b'{') => {
                    if let Some(heard) = heard_so_far(None, body.len() as u64) {
                        observer.heard(heard);
                    }
                    return Err(broken(fault, body.len()));
                }
                Err(_) => break,
            }
            if begins_as_a_stream(&body, is_labelled) {
                self.has_answered.store(true, Ordering::Relaxed);
                let begun = futures_util::stream::iter([Ok(Cursor::new(body))]);
                return read_reply(Box::pin(begun.chain(pieces)), model, assembler, observer).await;
            }
        }
        if is_labelled && body.trim_ascii().is_empty() {
            // A stream that ended before its first event.
            return read_reply(Box::pin(futures_util::stream::empty()), model, assembler, observer).await;
        }
        let body = marks::marked(ua_http::sse::marked(&body, marks::MARK).into_owned());
        match serde_json::from_str(&body).ok().and_then(|reply| assembler.as_events(reply)) {
            Some(events) => {
                self.has_answered.store(true, Ordering::Relaxed);
                read_whole(&events, model, assembler, observer)
            }
            None => no_reply(&stated, &marks::text(body), model, assembler, observer),
        }
    }

    fn bytes(&self, response: Response) -> Bytes {
        let idle = self.idle_timeout;
        Box::pin(response.bytes_stream().map(move |piece| match piece {
            Ok(piece) => Ok(Cursor::new(piece.into())),
            Err(error) if error.is_timeout() => Err(ReadFault::Silent(idle)),
            Err(error) => Err(ReadFault::Broken(error.without_url().into())),
        }))
    }

    fn not_answered(&self, error: reqwest::Error) -> LlmError {
        let error = error.without_url();
        if error.is_builder() {
            return LlmError::Setup { why: ua_http::cause(&error) };
        }
        if error.is_connect() {
            return LlmError::Unreachable { host: address::authority(&self.endpoint), why: ua_http::cause(&error) };
        }
        if error.is_timeout() {
            return LlmError::Timeout { idle: self.idle_timeout };
        }
        LlmError::Unanswered { source: error.into() }
    }

    /// Reads an error answer. Its body may be cut: the status alone decides what it means, unless the wire knows better.
    async fn refused(
        &self,
        response: Response,
        model: &str,
        assembler: impl Assemble,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).and_then(|header| header.to_str().ok());
        let in_millis = header("retry-after-ms").and_then(ua_core::retry_after_millis);
        let retry_after = in_millis.or_else(|| ua_core::retry_after(header(RETRY_AFTER.as_str())?, self.env.now()));
        let should_retry = header("x-should-retry").and_then(|said| said.trim().to_ascii_lowercase().parse().ok());
        let until_reset = waiting::until_reset(status, header);
        let body = self.start_of(response).await;
        let retry_after = retry_after.or_else(|| waiting::asked_in_body(status, &body));
        if let Some(events) = assembler.refused_as_events(&body).or_else(|| reject::withheld(status, &body)) {
            return read_whole(&events, model, assembler, observer);
        }
        let by_status = reject::by_status(status, retry_after, &body, model);
        // Where replies came from, a page or what knows nothing of the address stands in for a server that is being put in another's place.
        let has_answered = self.has_answered.load(Ordering::Relaxed);
        let stands_in = reject::stands_in(status, &body, &by_status).filter(|_| has_answered);
        let error = match (assembler.refused(status, &body, by_status), stands_in) {
            // The whole history needs no reply that is forgotten.
            (forgotten @ LlmError::SessionForgotten { .. }, _) => forgotten,
            (_, Some(stands_in)) => stands_in,
            (error, None) => error.whole_again_in(until_reset),
        };
        Err(reject::as_advised(error, status, retry_after, should_retry))
    }

    /// The beginning of a body that is no reply, as far as it comes.
    async fn start_of(&self, response: Response) -> String {
        let mut body = Vec::new();
        let mut pieces = self.bytes(response);
        while let Some(Ok(piece)) = pieces.next().await {
            body.extend_from_slice(piece.get_ref());
            if body.len() > ERROR_LIMIT {
                body.truncate(ERROR_LIMIT);
                break;
            }
        }
        String::from_utf8_lossy(&body).into_owned()
    }
}

impl Key {
    fn value(&self) -> Result<HeaderValue, String> {
        let secret = self.secret.expose_secret().trim();
        if secret.is_empty() {
            return Err("the API key is empty".to_owned());
        }
        let mut value = HeaderValue::from_str(&format!("{}{secret}", self.scheme))
            .map_err(|_| "the API key has characters that no HTTP header may have".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Whether a body is a stream of events by how it begins, as far as it came. One that is labelled as a stream is one, unless it is an object.
fn begins_as_a_stream(body: &[u8], is_labelled: bool) -> bool {
    let line = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start();
    let has_field = ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| line.starts_with(field.as_bytes()));
    has_field || (is_labelled && line.first().is_some_and(|first| *first != b'{'))
}

/// What an answer with a success means that is no reply: the error that an API gave in its place, which is what it would have been with the status
/// that goes with it, or something that no API of models has said.
fn no_reply(
    stated: &str,
    body: &str,
    model: &str,
    assembler: impl Assemble,
    observer: &dyn StreamObserver,
) -> Result<ModelTurn, LlmError> {
    let Some(status) = reject::status_of_error(body) else { return Err(reject::not_a_stream(stated, body)) };
    if let Some(events) = assembler.refused_as_events(body).or_else(|| reject::withheld(status, body)) {
        return read_whole(&events, model, assembler, observer);
    }
    let error = reject::like_status(status, waiting::asked_in_body(status, body), body, model);
    Err(assembler.refused(status, body, error))
}
