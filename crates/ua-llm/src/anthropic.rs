//! The client of the Anthropic Messages API.
//!
//! One completion is one HTTP request: the HTTP client repeats nothing and follows no redirect, so what the observer counts
//! is what the provider may bill.
//!
//! Granular Execution PRD §5 (network attempts), Durable Jobs v1 spec §9.

mod assembler;
mod reject;
mod stream;
pub(crate) mod wire;

use std::error::Error as _;
use std::io::Cursor;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url};
use secrecy::{ExposeSecret as _, SecretString};
use ua_core::{Env, ModelTurn, signed};

pub(crate) use self::stream::read_in_pieces;
use self::stream::{Bytes, ReadFault, limited, read_reply};
use crate::ANTHROPIC;
use crate::error::LlmError;
use crate::provider::{LlmProvider, StreamObserver};
use crate::request::ModelRequest;

/// The API version whose wire format this client speaks.
const API_VERSION: &str = "2023-06-01";
/// Bytes of a reply, far beyond the longest that a model writes.
const REPLY_LIMIT: usize = 64 << 20;
/// Bytes of an error answer that are read.
const ERROR_LIMIT: usize = 64 << 10;

/// How to reach the API.
#[derive(Debug, Clone)]
pub struct AnthropicConfig {
    /// Where the API is; `/v1/messages` is appended, and a `/v1` at the end is not doubled.
    pub base_url: String,
    /// The API key.
    pub api_key: SecretString,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest silence: before the first byte, and between two pieces of a stream. Pings count as sound.
    pub idle_timeout: Duration,
    /// Whether to mark the prompt's stable part as cacheable, which makes the turns of a long run much cheaper.
    pub cache_prompt: bool,
}

impl AnthropicConfig {
    /// The public API with the given key, 10 s to connect and 300 s of silence at most.
    pub fn new(api_key: SecretString) -> Self {
        Self {
            base_url: "https://api.anthropic.com".to_owned(),
            api_key,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            cache_prompt: true,
        }
    }
}

/// Models behind the Anthropic Messages API.
#[derive(Debug)]
pub struct AnthropicProvider {
    client: Client,
    endpoint: Url,
    api_key: SecretString,
    key_header: HeaderValue,
    config: Settings,
    env: Env,
}

#[derive(Debug)]
struct Settings {
    idle_timeout: Duration,
    cache_prompt: bool,
}

impl AnthropicProvider {
    /// Prepares a client; nothing is sent yet. The system's proxy settings are honoured, except towards this machine.
    pub fn new(config: AnthropicConfig, env: Env) -> Result<Self, LlmError> {
        let setup = |why: String| LlmError::Setup { why };
        let key = config.api_key.expose_secret().trim();
        if key.is_empty() {
            return Err(setup("the API key is empty".to_owned()));
        }
        let mut key_header = HeaderValue::from_str(key)
            .map_err(|_| setup("the API key has characters that no HTTP header may have".to_owned()))?;
        key_header.set_sensitive(true);
        let endpoint = endpoint(&config.base_url).map_err(setup)?;

        let mut builder = Client::builder()
            .user_agent(concat!("ua/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(config.connect_timeout)
            .read_timeout(config.idle_timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never());
        if is_this_machine(&endpoint) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| setup(error.to_string()))?;
        let settings = Settings { idle_timeout: config.idle_timeout, cache_prompt: config.cache_prompt };
        Ok(Self { client, endpoint, api_key: config.api_key, key_header, config: settings, env })
    }

    /// One HTTP request and its reply.
    async fn send(&self, body: Vec<u8>, model: &str, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let request = self
            .client
            .post(self.endpoint.clone())
            .header("x-api-key", self.key_header.clone())
            .header("anthropic-version", API_VERSION)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(body);
        observer.sent();
        let response = request.send().await.map_err(|error| self.not_answered(error))?;
        tracing::info!(http.response.status_code = signed(response.status().as_u16()), "ua.model.answering");
        if response.status() != StatusCode::OK {
            return Err(self.refused(response, model).await);
        }
        check_content_type(&response)?;
        read_reply(limited(self.bytes(response), REPLY_LIMIT), model, observer).await
    }

    fn bytes(&self, response: Response) -> Bytes {
        let idle = self.config.idle_timeout;
        Box::pin(response.bytes_stream().map(move |piece| match piece {
            Ok(piece) => Ok(Cursor::new(piece.into())),
            Err(error) if error.is_timeout() => Err(ReadFault::Silent(idle)),
            Err(error) => Err(ReadFault::Broken(error.without_url().into())),
        }))
    }

    fn not_answered(&self, error: reqwest::Error) -> LlmError {
        let error = error.without_url();
        if error.is_builder() {
            return LlmError::Setup { why: innermost(&error) };
        }
        if error.is_connect() {
            return LlmError::Unreachable { host: authority(&self.endpoint), source: error.into() };
        }
        if error.is_timeout() {
            return LlmError::Timeout { idle: self.config.idle_timeout };
        }
        LlmError::Cut { text_bytes: 0, source: Some(error.into()) }
    }

    /// Reads an error answer. Its body may be cut: the status alone decides what it means.
    async fn refused(&self, response: Response, model: &str) -> LlmError {
        let status = response.status().as_u16();
        let retry_after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|header| header.to_str().ok())
            .and_then(|header| reject::retry_after(header, self.env.now()));
        let mut body = Vec::new();
        let mut pieces = self.bytes(response);
        while let Some(Ok(piece)) = pieces.next().await {
            body.extend_from_slice(piece.get_ref());
            if body.len() > ERROR_LIMIT {
                body.truncate(ERROR_LIMIT);
                break;
            }
        }
        reject::by_status(status, retry_after, &String::from_utf8_lossy(&body), model)
    }
}

#[async_trait]
impl LlmProvider for AnthropicProvider {
    fn name(&self) -> &str {
        ANTHROPIC
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let body = wire::encode_request(request, self.config.cache_prompt).to_string().into_bytes();
        let answer = self.send(body, &request.model, observer).await;
        // A server may echo what it was sent.
        answer.map_err(|error| error.without(self.api_key.expose_secret().trim()))
    }
}

fn endpoint(base_url: &str) -> Result<Url, String> {
    let base = base_url.trim().trim_end_matches('/');
    let base = base.strip_suffix("/v1").unwrap_or(base);
    let url = Url::parse(&format!("{base}/v1/messages")).map_err(|error| format!("the base URL is no URL: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        scheme => Err(format!("the base URL has the scheme {scheme}, which is neither http nor https")),
    }
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Host and port; what else a URL may hold (a password, a query) does not belong into messages.
fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn check_content_type(response: &Response) -> Result<(), LlmError> {
    let stated = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if stated.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
        return Ok(());
    }
    Err(LlmError::Protocol { why: format!("its content type is {stated:?} instead of an event stream") })
}

fn innermost(error: &reqwest::Error) -> String {
    let mut source: Option<&(dyn std::error::Error + 'static)> = error.source();
    let mut text = error.to_string();
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(base_url: &str) -> Result<AnthropicProvider, LlmError> {
        let config = AnthropicConfig {
            base_url: base_url.to_owned(),
            ..AnthropicConfig::new(SecretString::from("sk-ant-secret".to_owned()))
        };
        AnthropicProvider::new(config, Env::simulated(1))
    }

    #[test]
    fn the_base_url_may_end_in_a_slash_or_in_v1() {
        for base in ["https://host/p", "https://host/p/", "https://host/p/v1", " https://host/p/v1/ "] {
            assert_eq!(with_url(base).unwrap().endpoint.as_str(), "https://host/p/v1/messages");
        }
    }

    #[test]
    fn a_base_url_that_cannot_be_called_is_a_setup_error() {
        for base in ["", "api.anthropic.com", "ftp://host"] {
            assert!(matches!(with_url(base), Err(LlmError::Setup { .. })), "{base:?}");
        }
    }

    #[test]
    fn a_key_that_no_header_takes_is_a_setup_error_that_does_not_show_it() {
        for key in ["", "  ", "secret\u{0}key"] {
            let config = AnthropicConfig::new(SecretString::from(key.to_owned()));
            let error = AnthropicProvider::new(config, Env::simulated(1)).unwrap_err();
            assert!(matches!(error, LlmError::Setup { .. }));
            assert!(!format!("{error} {error:?}").contains("secret"));
        }
    }

    #[test]
    fn the_provider_does_not_show_its_key() {
        let provider = with_url("http://localhost:1").unwrap();
        assert!(!format!("{provider:?}").contains("sk-ant-secret"));
    }

    #[test]
    fn only_this_machine_is_called_around_the_proxy() {
        let near = |text: &str| is_this_machine(&Url::parse(text).unwrap());
        assert!(near("http://127.0.0.1:80") && near("http://[::1]:80") && near("http://localhost"));
        assert!(!near("http://127.0.0.1.example.com") && !near("https://api.anthropic.com"));
    }
}
