//! One address and the way requests go there: each exactly once.
//!
//! No request is sent again by anything in here: redirects are not followed, the client library's own retries are off, and
//! each request has a connection of its own. The last costs a handshake and buys a plain answer: a connection that could
//! not be made proves that nothing was sent, and no request meets a kept connection that the server is just closing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use rmcp::transport::auth::WWWAuthenticateParams;
use ua_http::Versions;

use crate::logins::{Bearer, LoginError, Pass, bearer};

/// The session's id.
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The protocol revision that was agreed on.
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The event after which a stream is to go on.
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long a connection, with its TLS handshake, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a silent connection is trusted before the other side is asked, and how often it may leave that unanswered.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_PROBES: u32 = 4;

/// Headers that the protocol or the HTTP client sets.
const RESERVED: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "transfer-encoding",
];

/// Why a request has no response.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It never left: no connection could be made.
    NotSent(String),
    /// It may have arrived.
    Lost(String),
}

impl Failure {
    pub(crate) fn into_why(self) -> String {
        match self {
            Self::NotSent(why) | Self::Lost(why) => why,
        }
    }
}

/// Why a server did not let a request in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotLetIn {
    /// There is another token now: the request was not read, and may be made anew.
    Renewed,
    /// The login has to be renewed, and nobody can be reached who does that: nothing is wrong with it.
    NotRenewable(String),
    /// Nobody is logged in, or not any more, with the reason.
    LoggedOut(Option<String>),
    /// The login does not allow it; these scopes would.
    Scope(String),
    /// The token that the configuration has is not taken.
    OwnHeader,
    /// The client by which this program is let in is not, or not for this, with the reason.
    Client(String),
    /// It was sent none, and whoever uses this knows no logins.
    NoToken,
}

impl NotLetIn {
    /// What a person does about it, who logs in there with this command.
    pub(crate) fn hint(&self, login: &str) -> String {
        match self {
            Self::Renewed => "its login was renewed; try again".to_owned(),
            Self::NotRenewable(why) => format!("its login could not be renewed: {why}; try again later"),
            Self::LoggedOut(None) => {
                format!("log in with `{login}`, or give it its token in `headers` of the MCP configuration")
            }
            Self::LoggedOut(Some(why)) => format!("{why}; log in with `{login}`"),
            Self::Scope(scopes) => {
                format!("the login does not allow it; `{login} --scope \"{scopes}\"` asks for that")
            }
            Self::Client(why) => why.clone(),
            Self::NoToken => "give it its token in `headers` of the MCP configuration".to_owned(),
            Self::OwnHeader => "its token in `headers` of the MCP configuration is not accepted".to_owned(),
        }
    }
}

/// Checks the name of a configured header; the error says what is wrong with it.
pub(crate) fn check_header_name(name: &str) -> Result<HeaderName, String> {
    let parsed: HeaderName = name.parse().map_err(|_| "it is not the name of an HTTP header".to_owned())?;
    if RESERVED.contains(&parsed.as_str()) {
        return Err("this header is set by the protocol; remove it".to_owned());
    }
    Ok(parsed)
}

/// Makes a header; its value is kept out of debug texts. The error does not show the value.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let named = |why: &str| format!("the header `{name}` cannot be sent: {why}");
    let parsed = check_header_name(name).map_err(|why| named(&why))?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_| named("its value has characters that no HTTP header may have"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

/// Why requests with these headers are not sent to this address: what somebody sends in a header of their own is taken for a key, and is readable
/// on the way to another machine without TLS. `None` where they may go.
pub(crate) fn key_in_the_clear(url: &Url, headers: &BTreeMap<String, String>) -> Option<String> {
    let is_readable = url.scheme() != "https" && !is_this_machine(url);
    let header = headers.iter().find(|(_, value)| !value.is_empty()).map(|(name, _)| format!("the header `{name}`"));
    let password = (!url.username().is_empty() || url.password().is_some()).then(|| "its password".to_owned());
    let key = header.or(password).filter(|_| is_readable)?;
    Some(format!("{key} would go there unencrypted; give an https:// address (http:// is for this machine only)"))
}

/// Where a tool server is, and what goes with every request to it.
pub(crate) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    /// Whose token goes with every request, unless the configuration has one.
    bearer: Option<Bearer>,
    /// Whether the login was renewed for a refusal, and nothing was let in since.
    is_new: AtomicBool,
    /// Whether the last request was refused for want of a login that lets it in: only a person changes that.
    is_barred: AtomicBool,
    /// Whether what was posted last was turned away by somebody who cannot serve now.
    is_away: AtomicBool,
    /// The identity of the login that requests are let in with here; `None` where nobody is logged in. All of them go with the same: a session,
    /// and what was decided about a call that is sent in it, is one account's.
    login: OnceLock<Option<String>>,
}

/// The token that a request was sent with.
#[derive(Clone)]
struct SentWith(String);

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.shown()).finish()
    }
}

impl Endpoint {
    /// Prepares a client; nothing is sent yet.
    pub(crate) fn new(
        url: &str,
        headers: &BTreeMap<String, String>,
        user_agent: &str,
        bearer: Option<Bearer>,
    ) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| format!("its `url` cannot be read: {error}"))?;
        if let Some(why) = key_in_the_clear(&url, headers) {
            return Err(why);
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let (name, value) = header(name, value)?;
            all.insert(name, value);
        }
        let client = client_for(&url, user_agent)?;
        let bearer = bearer.filter(|_| !all.contains_key(AUTHORIZATION));
        let [is_new, is_barred, is_away] = [(); 3].map(|()| AtomicBool::new(false));
        Ok(Self { client, url, headers: all, bearer, is_new, is_barred, is_away, login: OnceLock::new() })
    }

    /// Where it is, without what an address may hide (a password, a query).
    pub(super) fn shown(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{host}{port}{}", self.url.scheme(), self.url.path())
    }

    /// Posts one message, once.
    pub(crate) async fn post(&self, headers: HeaderMap, body: Vec<u8>) -> Result<Response, Failure> {
        self.post_watched(headers, body, &HowFar::default()).await
    }

    /// The same for whoever may give it up on the way.
    pub(super) async fn post_watched(
        &self,
        headers: HeaderMap,
        body: Vec<u8>,
        how_far: &HowFar,
    ) -> Result<Response, Failure> {
        let request = self.client.request(Method::POST, self.url.clone());
        let request = request.headers(self.headers.clone()).headers(headers);
        let request = request.header(CONTENT_TYPE, "application/json");
        self.is_away.store(false, Ordering::Relaxed);
        let request = request.header(ACCEPT, "application/json, text/event-stream").body(body);
        let sent = self.send(request, how_far).await;
        if let Ok(response) = &sent {
            self.is_away.fetch_or(cannot_serve(response.status()), Ordering::Relaxed);
        }
        sent
    }

    /// Asks for a stream of events.
    pub(super) async fn get(&self, headers: HeaderMap) -> Result<Response, Failure> {
        let request = self.client.request(Method::GET, self.url.clone());
        let request = request.headers(self.headers.clone()).headers(headers);
        self.send(request.header(ACCEPT, "text/event-stream"), &HowFar::default()).await
    }

    /// Ends a session.
    pub(super) async fn delete(&self, headers: HeaderMap) -> Result<Response, Failure> {
        let request = self.client.request(Method::DELETE, self.url.clone());
        self.send(request.headers(self.headers.clone()).headers(headers), &HowFar::default()).await
    }

    /// Sends a request, with the token of whoever is logged in.
    async fn send(&self, request: RequestBuilder, how_far: &HowFar) -> Result<Response, Failure> {
        let pass = self.pass().await?;
        let login = pass.as_ref().map(|pass| pass.login.clone());
        if self.login.get().is_some_and(|used| *used != login) {
            return Err(Failure::NotSent(self.another_login()));
        }
        let token = pass.map(|pass| pass.token);
        let request = match &token {
            Some(token) => {
                let Some(value) = bearer(token) else {
                    // Of a login that an earlier version made; none is kept with such a token any more.
                    self.is_barred.store(true, Ordering::Relaxed);
                    let why = format!("the token of the login at {} cannot be sent; log in again", self.shown());
                    return Err(Failure::NotSent(why));
                };
                request.header(AUTHORIZATION, value)
            }
            None => request,
        };
        self.is_barred.store(false, Ordering::Relaxed);
        how_far.leaves();
        let mut response = request.send().await.map_err(|error| self.failure(&error))?;
        if response.status() != StatusCode::UNAUTHORIZED {
            self.is_new.store(false, Ordering::Relaxed);
            self.login.get_or_init(|| login);
        }
        if response.status() == StatusCode::UNAUTHORIZED && self.bearer.is_some() && self.is_challenge(&response) {
            how_far.is_refused();
        }
        if let Some(token) = token {
            response.extensions_mut().insert(SentWith(token));
        }
        Ok(response)
    }

    /// What a request came to that was given up after so long while its login was renewed: it has not left, or was turned away at the door. `None` where
    /// it may be at work.
    pub(super) fn given_up(&self, how_far: &HowFar, limit: Option<Duration>) -> Option<Failure> {
        if how_far.may_be_at_work() {
            return None;
        }
        self.is_away.store(true, Ordering::Relaxed);
        let limit = ua_core::span_in_words(limit.unwrap_or_default());
        Some(Failure::NotSent(format!(
            "the login at {} was not renewed within {limit}, so nothing was begun there",
            self.shown()
        )))
    }

    async fn pass(&self) -> Result<Option<Pass>, Failure> {
        let Some(bearer) = &self.bearer else { return Ok(None) };
        bearer.logins.pass(&bearer.address).await.map_err(|error| self.no_token(&error))
    }

    /// The identity of the login that whatever is sent from now on goes with, or not at all; `None` where nobody is logged in.
    ///
    /// # Errors
    /// There is a login, and no token can be had of it now.
    pub(crate) async fn settled_login(&self) -> Result<Option<String>, String> {
        if let Some(login) = self.login.get() {
            return Ok(login.clone());
        }
        let pass = self.pass().await.map_err(Failure::into_why)?;
        Ok(self.login.get_or_init(|| pass.map(|pass| pass.login)).clone())
    }

    /// Why nothing is sent here any more, if this process uses another login at the address by now.
    pub(crate) fn moved(&self) -> Option<String> {
        let (bearer, login) = (self.bearer.as_ref()?, self.login.get()?);
        bearer.logins.uses_another(&bearer.address, login.as_deref()).then(|| self.another_login())
    }

    fn another_login(&self) -> String {
        format!("the login at {} is another one than its session was begun with", self.shown())
    }

    fn no_token(&self, error: &LoginError) -> Failure {
        let is_ended = matches!(error, LoginError::Ended(_));
        // Of a client only whoever configures it changes anything.
        let is_client =
            self.bearer.as_ref().is_some_and(|bearer| bearer.logins.client_words(&bearer.address).is_some());
        let is_refused = is_client && matches!(error, LoginError::Refused(_));
        self.is_barred.store(is_ended || is_refused, Ordering::Relaxed);
        self.is_away.store(matches!(error, LoginError::Unreachable(_)), Ordering::Relaxed);
        let hint = if is_ended { "; log in again" } else { "" };
        Failure::NotSent(format!("nothing was sent to {}: {error}{hint}", self.shown()))
    }

    /// Whether the last request was refused for want of a login that lets it in.
    pub(super) fn is_barred(&self) -> bool {
        self.is_barred.load(Ordering::Relaxed)
    }

    /// Whether what was posted last was turned away by somebody who cannot serve now, or could not leave for want of a login that is renewed later:
    /// a server that is being started, a proxy whose server is away, too many requests.
    pub(super) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Whether a refusal says what would let the request in, as whoever guards the door has to (RFC 9110 §15.5.2; of a bearer's token RFC 6750 §3),
    /// before anything behind it has seen the request. A 401 without that may be what the tool itself was told in the middle of its work.
    pub(super) fn is_challenge(&self, response: &Response) -> bool {
        let mut said = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|said| said.to_str().ok());
        if self.bearer.is_some() { said.any(asks_for_a_bearer) } else { said.any(|said| !said.trim().is_empty()) }
    }

    /// What a refusal for want of a login means; `None` for any other answer. A login that can be renewed is, at once.
    pub(crate) async fn refused(&self, response: &Response) -> Option<NotLetIn> {
        let why = self.why_refused(response).await;
        let is_barred = match &why {
            Some(NotLetIn::Renewed | NotLetIn::NotRenewable(_)) => false,
            Some(
                NotLetIn::LoggedOut(_)
                | NotLetIn::Scope(_)
                | NotLetIn::OwnHeader
                | NotLetIn::Client(_)
                | NotLetIn::NoToken,
            ) => true,
            None => response.status() == StatusCode::FORBIDDEN,
        };
        self.is_barred.store(is_barred, Ordering::Relaxed);
        self.is_away.fetch_or(matches!(why, Some(NotLetIn::NotRenewable(_))), Ordering::Relaxed);
        why
    }

    async fn why_refused(&self, response: &Response) -> Option<NotLetIn> {
        match response.status() {
            StatusCode::UNAUTHORIZED => {
                let Some(bearer) = &self.bearer else {
                    let has_own = self.headers.contains_key(AUTHORIZATION);
                    return Some(if has_own { NotLetIn::OwnHeader } else { NotLetIn::NoToken });
                };
                let sent = response.extensions().get::<SentWith>().map(|sent| sent.0.as_str());
                let client = bearer.logins.client_words(&bearer.address);
                match (bearer.logins.another(&bearer.address, sent).await, client) {
                    (Ok(true), Some(client)) if self.is_new.swap(true, Ordering::Relaxed) => {
                        Some(NotLetIn::Client(format!("it takes no token of {client}, even one that is new")))
                    }
                    (Ok(true), None) if self.is_new.swap(true, Ordering::Relaxed) => {
                        let why = "it rejects every token of this login, even one that was just renewed";
                        Some(NotLetIn::LoggedOut(Some(why.to_owned())))
                    }
                    (Ok(true), _) => Some(NotLetIn::Renewed),
                    (Ok(false), Some(client)) => Some(NotLetIn::Client(format!("it takes no token of {client}"))),
                    (Ok(false), None) => Some(NotLetIn::LoggedOut(None)),
                    (Err(error @ LoginError::Unreachable(_)), _) => Some(NotLetIn::NotRenewable(error.to_string())),
                    (Err(error), Some(_)) => Some(NotLetIn::Client(error.to_string())),
                    (Err(error), None) => Some(NotLetIn::LoggedOut(Some(error.to_string()))),
                }
            }
            StatusCode::FORBIDDEN => {
                let bearer = self.bearer.as_ref()?;
                let words = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|words| words.to_str().ok());
                let mut asked = words.map(|words| WWWAuthenticateParams::parse(words, &self.url));
                let scopes = asked.find(WWWAuthenticateParams::is_insufficient_scope)?.scope?;
                Some(match bearer.logins.client_words(&bearer.address) {
                    Some(client) => NotLetIn::Client(format!(
                        "{client} is not allowed it; add \"{}\" to its `scope` in the MCP configuration",
                        ua_core::in_a_sentence(&scopes)
                    )),
                    None => NotLetIn::Scope(scopes),
                })
            }
            _ => None,
        }
    }

    fn failure(&self, error: &reqwest::Error) -> Failure {
        let why = cause(error);
        if error.is_connect() || error.is_builder() {
            Failure::NotSent(format!("{} cannot be reached: {why}", self.shown()))
        } else {
            Failure::Lost(format!("the connection to {} broke: {why}", self.shown()))
        }
    }
}

/// How far a request has come. The time of a call may be up while its login is renewed, in front of the request or behind a refusal of its token.
#[derive(Debug, Default)]
pub(super) struct HowFar(AtomicBool);

impl HowFar {
    fn leaves(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whoever guards the door and refuses a token has not passed on what came with it.
    fn is_refused(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn may_be_at_work(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether one of the challenges of a `WWW-Authenticate` asks for a bearer's token. A comma in quotes is a parameter's.
fn asks_for_a_bearer(challenges: &str) -> bool {
    let mut is_quoted = false;
    let mut challenges = challenges.split(|c: char| {
        is_quoted ^= c == '"';
        c == ',' && !is_quoted
    });
    challenges.any(|challenge| {
        challenge.split_whitespace().next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer"))
    })
}

/// Whether a status says that the same may be served in a while.
fn cannot_serve(status: StatusCode) -> bool {
    match status.as_u16() {
        501 | 505 => false,
        408 | 425 | 429 => true,
        status => (500..600).contains(&status),
    }
}

/// A client for requests that go out once. The system's proxy settings are honoured, except towards this machine.
pub(crate) fn client_for(url: &Url, user_agent: &str) -> Result<Client, String> {
    let mut builder = ua_http::client(Versions::One)
        .user_agent(user_agent)
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(KEEPALIVE_PROBES)
        .retry(reqwest::retry::never());
    if is_this_machine(url) {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| format!("the HTTP client cannot be set up: {}", cause(&error)))
}

/// What lies at the bottom of an error, which is where the reason is; the outer texts repeat the address.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let outermost = if error.is_timeout() { "it took too long" } else { "the request failed" };
    error.source().map_or_else(|| outermost.to_owned(), ua_http::cause)
}

pub(crate) fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str, headers: &[(&str, &str)]) -> Result<Endpoint, String> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Endpoint::new(url, &headers, "test", None)
    }

    #[test]
    fn what_is_shown_of_an_address_and_of_headers_holds_no_secret() {
        let endpoint =
            endpoint("https://me:hush@example.org:8443/mcp?key=hush", &[("Authorization", "Bearer hush")]).unwrap();
        assert_eq!(endpoint.shown(), "https://example.org:8443/mcp");
        assert!(!format!("{:?}", endpoint.headers).contains("hush"));
    }

    #[test]
    fn headers_that_cannot_be_sent_are_named_and_their_values_are_not_shown() {
        let refusal = |name, value| endpoint("http://127.0.0.1/", &[(name, value)]).unwrap_err();
        assert!(refusal("Mcp-Session-Id", "x").contains("`Mcp-Session-Id` cannot be sent: this header is set by"));
        assert!(refusal("a b", "x").contains("not the name of an HTTP header"));
        let why = refusal("X-Key", "hush\n");
        assert!(why.contains("`X-Key`") && !why.contains("hush"), "{why}");
    }

    #[test]
    fn a_challenge_for_a_bearer_is_told_from_other_words() {
        for (said, is_one) in [
            ("Bearer", true),
            ("bearer realm=\"x\", error=\"invalid_token\"", true),
            ("Basic realm=\"x\", Bearer resource_metadata=\"https://x/y\"", true),
            ("Basic realm=\"a, Bearer b\"", false),
            ("Basic realm=\"bearer\"", false),
            ("Bearers", false),
            ("", false),
            (" , ", false),
        ] {
            assert_eq!(asks_for_a_bearer(said), is_one, "{said}");
        }
    }

    #[test]
    fn this_machine_is_recognised() {
        let near = |text: &str| is_this_machine(&Url::parse(text).unwrap());
        assert!(near("http://127.0.0.1:80/mcp") && near("http://[::1]/") && near("http://localhost/"));
        assert!(!near("http://127.0.0.1.example.com/") && !near("https://example.org/"));
    }
}
