//! The client of the Anthropic Messages API.
//!
//! One completion is one HTTP request, and nothing of it is repeated, but for two things: what is refused for the ids of tool uses that another
//! model made, for thoughts, or for the kind of thinking that is asked for, is asked once more with others, or without; and what is refused for a
//! part that goes with every request, without that ([`crate::unasked`]).
//!
//! Granular Execution PRD §5 (network attempts), Durable Jobs v1 spec §9.

mod assembler;
mod keys;
#[cfg(test)]
mod stream_tests;
mod thinking;
pub(crate) mod wire;

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::{HeaderName, HeaderValue};
use secrecy::SecretString;
use ua_core::{Env, ModelTurn};

pub(crate) use self::assembler::Assembler;
use self::thinking::Thinking;
use crate::ANTHROPIC;
use crate::chat::names::{ANTHROPIC_LONGEST, naming_tools, with_own_names};
use crate::error::LlmError;
use crate::extras::ModelExtras;
use crate::http::events::read_events;
use crate::http::{HttpClient, Key, Reach, address};
use crate::models::ModelTable;
use crate::provider::{LlmProvider, StreamObserver};
use crate::refusal::{Heeding, Refusal};
use crate::request::ModelRequest;
use crate::thoughts::{BUDGET, Lessons, ThoughtsThere, begins_without_thoughts};
use crate::tool_ids::{IdForm, IdsThere};
use crate::unasked::{Unasked, Wire};
use crate::written::Conversations;

/// The API version whose wire format this client speaks.
const API_VERSION: &str = "2023-06-01";
/// The longest id of a tool use that goes there as it came.
const LONGEST_ID: usize = 64;

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
    /// The longest that one reply may take from the request to its end, however steadily it comes.
    pub reply_timeout: Duration,
    /// Whether to mark the prompt's stable part as cacheable, which makes the turns of a long run much cheaper.
    pub cache_prompt: bool,
    /// How the model is to work.
    pub extras: ModelExtras,
    /// What is known of models, of which this wire reads how they think.
    pub models: ModelTable,
}

impl AnthropicConfig {
    /// The public API with the given key, 10 s to connect and 300 s of silence at most.
    pub fn new(api_key: SecretString) -> Self {
        Self {
            base_url: "https://api.anthropic.com".to_owned(),
            api_key,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            reply_timeout: Duration::from_hours(1),
            cache_prompt: true,
            extras: ModelExtras::default(),
            models: ModelTable::shipped(),
        }
    }
}

/// Models behind the Anthropic Messages API.
#[derive(Debug)]
pub struct AnthropicProvider {
    http: HttpClient,
    cache_prompt: bool,
    extras: ModelExtras,
    ids: IdsThere,
    unasked: Unasked,
    thoughts: ThoughtsThere,
    models: ModelTable,
    written: Conversations<Vec<wire::Part>>,
}

impl AnthropicProvider {
    /// Prepares a client; nothing is sent yet. The system's proxy settings are honoured, except towards this machine.
    pub fn new(config: AnthropicConfig, env: Env) -> Result<Self, LlmError> {
        let endpoint = address::endpoint_in_v1(&config.base_url, "messages").map_err(|why| LlmError::Setup { why })?;
        let key = Key { header: HeaderName::from_static("x-api-key"), scheme: "", secret: config.api_key };
        let mut headers = config.extras.headers()?;
        headers.push((HeaderName::from_static("anthropic-version"), HeaderValue::from_static(API_VERSION)));
        let reach = Reach {
            endpoint,
            key: Some(key),
            headers,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            reply_timeout: config.reply_timeout,
        };
        let is_strict = address::is_of(&reach.endpoint, &["anthropic.com"]);
        let ids = IdsThere::new(IdForm::Plain(LONGEST_ID), is_strict);
        let thoughts = ThoughtsThere::new(ANTHROPIC, is_strict);
        let (http, written) = (HttpClient::new(reach, env)?, Conversations::default());
        let unasked = Unasked::new(Wire::Messages);
        let AnthropicConfig { cache_prompt, extras, models, .. } = config;
        Ok(Self { http, cache_prompt, extras, ids, unasked, thoughts, models, written })
    }

    /// The body that a request is sent as.
    pub fn request_body(&self, request: &ModelRequest) -> String {
        let with_ids = self.ids.in_form(request);
        let (sent, thinking) = self.in_form(&with_ids);
        self.body_of(&sent, thinking)
    }

    /// A request as its server takes it, as far as is known, and how the model is to think.
    fn in_form<'r>(&self, request: &'r ModelRequest) -> (Cow<'r, ModelRequest>, Thinking<'_>) {
        let known = self.thoughts.known(&request.model);
        let has_budget = !self.models.find(ANTHROPIC, &request.model).is_some_and(|model| model.adaptive);
        let thinking = Thinking::of(&self.extras, has_budget, |kind| known.kinds.contains(kind));
        let sent = self.thoughts.in_form(request);
        if known.is_strict && thinking.kind() == Some(BUDGET) && begins_without_thoughts(&sent.messages) {
            // Until the user speaks again. And a model that is not to think takes no thoughts.
            return (self.thoughts.without_any(request), Thinking::default());
        }
        (sent, thinking)
    }

    fn body_of(&self, request: &ModelRequest, thinking: Thinking<'_>) -> String {
        self.written
            .write(request, |written| wire::write(written, request, self.cache_prompt, (&self.extras, thinking)))
    }

    /// One HTTP request, and another one without what it was refused for that nobody asked for.
    async fn ask(
        &self,
        request: &ModelRequest,
        thinking: Thinking<'_>,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let body = self.body_of(request, thinking);
        self.unasked.complete(&self.http, &body, &request.model, || Assembler::new(request), observer).await
    }
}

#[async_trait]
impl LlmProvider for AnthropicProvider {
    fn name(&self) -> &str {
        ANTHROPIC
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut lessons = Lessons::default();
        let answer = loop {
            let with_ids = self.ids.in_form(request);
            let (sent, thinking) = self.in_form(&with_ids);
            let heeding = Heeding::new(observer);
            let answer = self.ask(&sent, thinking, &heeding).await;
            let learns = |refused: Refusal<'_>| {
                self.ids.learns_from(refused, &sent)
                    || self.thoughts.learns_from(refused, &sent, thinking.kind(), &mut lessons)
            };
            if !heeding.refusal(&answer).is_some_and(learns) {
                break answer;
            }
        };
        let turn = answer.map_err(|error| naming_tools(error, request, ANTHROPIC_LONGEST))?;
        Ok(in_own_words(turn, request))
    }
}

/// Reads a reply to `request` from the data of its events.
pub(crate) fn decode_events(request: &ModelRequest, events: &[String]) -> Result<ModelTurn, LlmError> {
    let turn = read_events(Assembler::new(request), events, &request.model)?;
    Ok(in_own_words(turn, request))
}

/// A reply with the names of tools and of their arguments as their servers have them.
fn in_own_words(turn: ModelTurn, request: &ModelRequest) -> ModelTurn {
    keys::with_own_keys(with_own_names(turn, request, ANTHROPIC_LONGEST), request)
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
            assert_eq!(with_url(base).unwrap().http.endpoint().as_str(), "https://host/p/v1/messages");
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
}
