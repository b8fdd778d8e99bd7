//! The client of the OpenAI Responses API.
//!
//! One completion is one HTTP request, and nothing of it is repeated, but for two things: what is refused for the ids of calls that another model
//! made, or for its thoughts, is asked once more with others, or without; and what is refused for a part that goes with every request, without that
//! ([`crate::unasked`]). With [`OpenAiConfig::keep_replies`] the provider keeps its
//! replies, and a request continues from one (`previous_response_id`); without, every request is complete in itself and nothing is
//! kept. A conversation object is never used: others could change it, and then a run would not know what its model knows.
//!
//! Granular Execution PRD §5 (network attempts), Durable runner, current state §9 (provider session continuity).

mod assembler;
mod reject;
mod wire;

use std::time::Duration;

use async_trait::async_trait;
use reqwest::header::AUTHORIZATION;
use secrecy::SecretString;
use ua_core::{Env, ModelTurn};

pub(crate) use self::assembler::Assembler;
use crate::OPENAI;
use crate::chat::names::{OPENAI_LONGEST, naming_tools, with_own_names};
use crate::error::LlmError;
use crate::extras::ModelExtras;
use crate::http::events::read_events;
use crate::http::{HttpClient, Key, Reach, address};
use crate::plain_http::PlainHttpHosts;
use crate::provider::{LlmProvider, StreamObserver};
use crate::refusal::{Heeding, Refusal};
use crate::request::ModelRequest;
use crate::session::KnownPrefix;
use crate::thoughts::{Lessons, ThoughtsThere};
use crate::tool_ids::{IdForm, IdsThere};
use crate::unasked::{Unasked, Wire};
use crate::written::Conversations;

/// The longest id of a call that OpenAI takes on this wire.
const LONGEST_ID: usize = 64;

/// How to reach the API.
#[derive(Debug, Clone)]
pub struct OpenAiConfig {
    /// Where the API is: `https://api.openai.com/v1`. `/responses` is appended; a host without a path gets `/v1` first. Reached by
    /// https, unless it is on this machine or one of `plain_http_hosts`.
    pub base_url: String,
    /// The API key.
    pub api_key: SecretString,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest silence: before the first byte, and between two pieces of a stream.
    pub idle_timeout: Duration,
    /// The longest that one reply may take from the request to its end, however steadily it comes.
    pub reply_timeout: Duration,
    /// Whether the provider keeps its replies (`store`), so that a request may continue from one instead of carrying everything.
    pub keep_replies: bool,
    /// How the model is to work.
    pub extras: ModelExtras,
    /// Machines that may be reached by plain http.
    pub plain_http_hosts: PlainHttpHosts,
}

impl OpenAiConfig {
    /// The public API with the given key, 10 s to connect and 300 s of silence at most; nothing is kept there.
    pub fn new(api_key: SecretString) -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            api_key,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            reply_timeout: Duration::from_hours(1),
            keep_replies: false,
            extras: ModelExtras::default(),
            plain_http_hosts: PlainHttpHosts::default(),
        }
    }
}

/// Models behind the OpenAI Responses API.
#[derive(Debug)]
pub struct OpenAiProvider {
    http: HttpClient,
    keep_replies: bool,
    extras: ModelExtras,
    ids: IdsThere,
    unasked: Unasked,
    thoughts: ThoughtsThere,
    written: Conversations<String>,
}

impl OpenAiProvider {
    /// Prepares a client; nothing is sent yet. The system's proxy settings are honoured, except towards this machine.
    ///
    /// # Errors
    /// [`LlmError::Setup`] when the key or the base URL cannot be used.
    pub fn new(config: OpenAiConfig, env: Env) -> Result<Self, LlmError> {
        let setup = |why: String| LlmError::Setup { why };
        let endpoint = address::endpoint_below(&config.base_url, "responses").map_err(setup)?;
        address::check_is_private(&endpoint, &config.plain_http_hosts).map_err(setup)?;
        let reach = Reach {
            endpoint,
            key: Some(Key { header: AUTHORIZATION, scheme: "Bearer ", secret: config.api_key }),
            headers: config.extras.headers()?,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            reply_timeout: config.reply_timeout,
        };
        let ids = IdsThere::new(IdForm::Plain(LONGEST_ID), address::is_openai(&reach.endpoint));
        let http = HttpClient::new(reach, env)?;
        let (thoughts, written) = (ThoughtsThere::new(OPENAI, false), Conversations::default());
        let (keep_replies, extras, unasked) = (config.keep_replies, config.extras, Unasked::new(Wire::Responses));
        Ok(Self { http, keep_replies, extras, ids, unasked, thoughts, written })
    }

    async fn ask(
        &self,
        known: Option<&KnownPrefix>,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        // A reply that is continued from is kept with the ids and the thoughts that it has.
        let answer = if known.is_some() {
            self.send(known, request, observer).await
        } else {
            self.ask_in_form(request, observer).await
        };
        let turn = answer.map_err(|error| naming_tools(error, request, OPENAI_LONGEST))?;
        Ok(with_own_names(turn, request, OPENAI_LONGEST))
    }
}

impl OpenAiProvider {
    /// One HTTP request with the whole history, and others with other ids and thoughts where it was refused for those.
    async fn ask_in_form(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut lessons = Lessons::default();
        loop {
            let with_ids = self.ids.in_form(request);
            let sent = self.thoughts.in_form(&with_ids);
            let heeding = Heeding::new(observer);
            let answer = self.send(None, &sent, &heeding).await;
            let learns = |refused: Refusal<'_>| {
                self.ids.learns_from(refused, &sent) || self.thoughts.learns_from(refused, &sent, None, &mut lessons)
            };
            if !heeding.refusal(&answer).is_some_and(learns) {
                return answer;
            }
        }
    }

    /// One HTTP request, and another one without what it was refused for that nobody asked for.
    async fn send(
        &self,
        known: Option<&KnownPrefix>,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let body = self
            .written
            .write(request, |written| wire::write(written, request, known, self.keep_replies, &self.extras));
        let assembler = || Assembler::new(request, known.cloned());
        self.unasked.complete(&self.http, &body, &request.model, assembler, observer).await
    }
}

/// Reads a reply to `request` from the data of its events.
pub(crate) fn decode_events(request: &ModelRequest, events: &[String]) -> Result<ModelTurn, LlmError> {
    let turn = read_events(Assembler::new(request, None), events, &request.model)?;
    Ok(with_own_names(turn, request, OPENAI_LONGEST))
}

#[async_trait]
impl LlmProvider for OpenAiProvider {
    fn name(&self) -> &str {
        OPENAI
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        self.ask(None, request, observer).await
    }

    fn keeps_replies(&self) -> bool {
        self.keep_replies
    }

    async fn complete_from(
        &self,
        known: &KnownPrefix,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        self.ask(Some(known).filter(|_| self.keep_replies), request, observer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(base_url: &str) -> Result<OpenAiProvider, LlmError> {
        let config = OpenAiConfig {
            base_url: base_url.to_owned(),
            ..OpenAiConfig::new(SecretString::from("sk-secret".to_owned()))
        };
        OpenAiProvider::new(config, Env::simulated(1))
    }

    #[test]
    fn the_endpoint_is_below_the_base_url() {
        for base in ["https://host/v1", "https://host/v1/", "https://host"] {
            assert_eq!(with_url(base).unwrap().http.endpoint().as_str(), "https://host/v1/responses");
        }
    }

    #[test]
    fn clear_text_is_sent_to_this_machine_only() {
        assert!(with_url("http://127.0.0.1:1/v1").is_ok());
        let error = with_url("http://models.example.com/v1").unwrap_err();
        assert!(matches!(&error, LlmError::Setup { why } if why.contains("https")), "{error}");
        assert!(!format!("{error} {error:?}").contains("sk-secret"));
    }

    #[test]
    fn the_provider_does_not_show_its_key() {
        assert!(!format!("{:?}", with_url("https://host").unwrap()).contains("sk-secret"));
    }
}
