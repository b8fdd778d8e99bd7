//! The client of Chat Completions: OpenAI's older interface, and the one that llama.cpp, vLLM, Ollama, OpenRouter and many
//! others speak.
//!
//! One completion is one HTTP request, and nothing of it is repeated, but for three things: what a server refuses because a user may not speak
//! there ([`wire::Roles`]), for the ids of calls that another model made or for what its models thought, or for a part that goes with every request
//! ([`crate::unasked`]), is asked once more in the form that it takes, and in that form from then on. Servers differ in what they send;
//! [`assembler`] reads all of
//! their shapes, and nothing but a stated end makes a reply whole.
//!
//! Granular Execution PRD §5 (network attempts), Durable Jobs v1 spec §9.

mod arguments;
pub(crate) mod as_text;
mod assembler;
#[cfg(test)]
mod assembler_tests;
pub(crate) mod names;
mod reasoning;
pub(crate) mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::AUTHORIZATION;
use secrecy::SecretString;
use ua_core::{Env, ModelTurn};

pub(crate) use self::assembler::Assembler;
use self::wire::Roles;
use crate::OPENAI_CHAT;
use crate::error::LlmError;
use crate::extras::ModelExtras;
use crate::http::events::read_events;
use crate::http::{HttpClient, Key, Reach, address};
use crate::plain_http::PlainHttpHosts;
use crate::provider::{LlmProvider, StreamObserver};
use crate::refusal::{Heeding, Refusal};
use crate::request::ModelRequest;
use crate::thoughts::{Lessons, ThoughtsThere};
use crate::tool_ids::{IdForm, IdsThere};
use crate::unasked::{Unasked, Wire};
use crate::written::Conversations;

/// The field of a kept block that has what a server said of the calls of its reply besides, in their order.
pub(crate) const OF_CALLS: &str = "of_calls";

/// The longest id of a call that OpenAI takes on this wire.
const LONGEST_ID: usize = 40;

/// How to reach a server of Chat Completions.
#[derive(Debug, Clone)]
pub struct ChatConfig {
    /// Where the API is, as OpenAI's clients take it: `/chat/completions` is appended. A base without a path gets `/v1` first.
    pub base_url: String,
    /// The API key. A server on this machine, or at one of the hosts of `plain_http_hosts`, may do without.
    pub api_key: Option<SecretString>,
    /// The longest wait for a connection.
    pub connect_timeout: Duration,
    /// The longest silence: before the first byte, and between two pieces of a stream. Comments count as sound.
    pub idle_timeout: Duration,
    /// The longest that one reply may take from the request to its end, however steadily it comes.
    pub reply_timeout: Duration,
    /// How the model is to work.
    pub extras: ModelExtras,
    /// Machines that may be reached by plain http, and without a key.
    pub plain_http_hosts: PlainHttpHosts,
}

impl ChatConfig {
    /// OpenAI's public API with the given key, 10 s to connect and 300 s of silence at most.
    pub fn new(api_key: Option<SecretString>) -> Self {
        Self {
            base_url: "https://api.openai.com/v1".to_owned(),
            api_key,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(5),
            reply_timeout: Duration::from_hours(1),
            extras: ModelExtras::default(),
            plain_http_hosts: PlainHttpHosts::default(),
        }
    }
}

/// What a server calls the longest reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputLimit {
    /// `max_tokens`, which every server knows but OpenAI's newer models refuse.
    MaxTokens,
    /// `max_completion_tokens`, which OpenAI put in its place.
    MaxCompletionTokens,
}

impl OutputLimit {
    /// What the server at `endpoint` calls it.
    fn at(endpoint: &Url) -> Self {
        if address::is_openai(endpoint) { Self::MaxCompletionTokens } else { Self::MaxTokens }
    }
}

/// What the server at `endpoint` takes as the id of a call. Whoever else is behind this wire gave its ids itself, mostly, and wants them back.
fn ids_at(endpoint: &Url) -> IdsThere {
    if address::is_openai(endpoint) {
        IdsThere::new(IdForm::Plain(LONGEST_ID), true)
    } else {
        IdsThere::new(IdForm::Nine, address::is_of(endpoint, &["mistral.ai"]))
    }
}

/// Models behind a server of Chat Completions.
#[derive(Debug)]
pub struct ChatProvider {
    http: HttpClient,
    output_limit: OutputLimit,
    extras: ModelExtras,
    ids: IdsThere,
    unasked: Unasked,
    thoughts: ThoughtsThere,
    written: Conversations<String>,
    /// The same where only the model may speak behind results.
    written_strictly: Conversations<String>,
    /// Whether the server has shown that it is so.
    is_strict: AtomicBool,
}

impl ChatProvider {
    /// Prepares a client; nothing is sent yet. The system's proxy settings are honoured, except towards this machine.
    ///
    /// # Errors
    /// When the base URL cannot be called, reaches another machine by plain http that is not named for it, or a key is missing that has to be there.
    pub fn new(config: ChatConfig, env: Env) -> Result<Self, LlmError> {
        let setup = |why: String| LlmError::Setup { why };
        let endpoint = address::endpoint_below(&config.base_url, "chat/completions").map_err(setup)?;
        address::check_is_private(&endpoint, &config.plain_http_hosts).map_err(setup)?;
        let may_be_open = address::is_this_machine(&endpoint) || config.plain_http_hosts.covers(&endpoint);
        if config.api_key.is_none() && !may_be_open {
            return Err(setup(format!("{} wants an API key", address::authority(&endpoint))));
        }
        let (output_limit, ids) = (OutputLimit::at(&endpoint), ids_at(&endpoint));
        let key = config.api_key.map(|secret| Key { header: AUTHORIZATION, scheme: "Bearer ", secret });
        let reach = Reach {
            endpoint,
            key,
            headers: config.extras.headers()?,
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
            reply_timeout: config.reply_timeout,
        };
        let (written, written_strictly) = (Conversations::default(), Conversations::default());
        let (http, is_strict) = (HttpClient::new(reach, env)?, AtomicBool::new(false));
        let (thoughts, unasked) = (ThoughtsThere::new(OPENAI_CHAT, false), Unasked::new(Wire::Chat));
        let extras = config.extras;
        Ok(Self { http, output_limit, extras, ids, unasked, thoughts, written, written_strictly, is_strict })
    }

    /// One HTTP request, and others with other ids and thoughts where it was refused for those of the history.
    async fn ask(
        &self,
        request: &ModelRequest,
        roles: Roles,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let mut lessons = Lessons::default();
        loop {
            let with_ids = self.ids.in_form(request);
            let sent = self.thoughts.in_form(&with_ids);
            let heeding = Heeding::new(observer);
            let answer = self.send(&sent, roles, &heeding).await;
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
        request: &ModelRequest,
        roles: Roles,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let written = match roles {
            Roles::Any => &self.written,
            Roles::ModelAfterTools => &self.written_strictly,
        };
        let body =
            written.write(request, |written| wire::write(written, request, self.output_limit, &self.extras, roles));
        self.unasked.complete(&self.http, &body, &request.model, || Assembler::new(request), observer).await
    }
}

#[async_trait]
impl LlmProvider for ChatProvider {
    fn name(&self) -> &str {
        OPENAI_CHAT
    }

    fn takes_seed(&self) -> bool {
        true
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let roles = if self.is_strict.load(Ordering::Relaxed) { Roles::ModelAfterTools } else { Roles::Any };
        let heeding = Heeding::new(observer);
        let mut answer = self.ask(request, roles, &heeding).await;
        // `Unexpected role 'user' after role 'tool'`, `roles must alternate`.
        let is_about_roles = |refused: Refusal<'_>| {
            let error = refused.error();
            matches!(error, LlmError::InvalidRequest { .. } | LlmError::Server { .. })
                && error.to_string().to_ascii_lowercase().contains("role")
        };
        let is_refused_so = roles == Roles::Any && heeding.refusal(&answer).is_some_and(is_about_roles);
        if is_refused_so && wire::speaks_after_tools(request) {
            self.is_strict.store(true, Ordering::Relaxed);
            answer = self.ask(request, Roles::ModelAfterTools, observer).await;
        }
        answer.map_err(|error| names::naming_tools(error, request, names::OPENAI_LONGEST))
    }
}

/// Reads a reply to `request` from the data of its events.
pub(crate) fn decode_events(request: &ModelRequest, events: &[String]) -> Result<ModelTurn, LlmError> {
    read_events(Assembler::new(request), events, &request.model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(base_url: &str, key: Option<&str>) -> Result<ChatProvider, LlmError> {
        let key = key.map(|key| SecretString::from(key.to_owned()));
        let config = ChatConfig { base_url: base_url.to_owned(), ..ChatConfig::new(key) };
        ChatProvider::new(config, Env::simulated(1))
    }

    #[test]
    fn a_server_on_this_machine_needs_no_key_and_every_other_one_does() {
        assert!(at("http://127.0.0.1:8080", None).is_ok());
        assert!(at("https://openrouter.ai/api/v1", Some("sk-or-1")).is_ok());
        let why = at("https://openrouter.ai/api/v1", None).unwrap_err().to_string();
        assert!(why.ends_with("openrouter.ai:443 wants an API key"), "{why}");
        let why = at("http://10.0.0.7:8080/v1", Some("sk-1")).unwrap_err().to_string();
        assert!(why.contains("over http"), "{why}");
    }

    #[test]
    fn the_provider_does_not_show_its_key() {
        let provider = at("http://localhost:1", Some("sk-secret")).unwrap();
        assert!(!format!("{provider:?}").contains("sk-secret"));
    }

    #[test]
    fn the_longest_reply_has_the_name_that_the_server_knows() {
        let limit = |base: &str| at(base, Some("k")).unwrap().output_limit;
        assert_eq!(limit("https://api.openai.com/v1"), OutputLimit::MaxCompletionTokens);
        assert_eq!(limit("https://eu.api.openai.com/v1"), OutputLimit::MaxCompletionTokens);
        assert_eq!(limit("https://notopenai.com/v1"), OutputLimit::MaxTokens);
        assert_eq!(limit("http://localhost:11434"), OutputLimit::MaxTokens);
    }
}
