//! How a model call fails, sorted by what a caller would do about it.

use std::error::Error as StdError;
use std::time::Duration;

use ua_core::{Audience, FailureClass, ForkWith, OtherModel, span_in_words};

use crate::ANTHROPIC;
use crate::http::lasting::{Lasting, is_of_a_key_behind};
use crate::http::{reject, too_long};
use crate::models::ModelTable;
use crate::unasked::{first_named, says_not_taken};

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// What a refusal goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The status of the answer.
    Http(u16),
    /// The one that would have come with an error that came otherwise: inside a stream, in the place of a reply with HTTP 200, or by no HTTP.
    Like(u16),
}

impl Status {
    /// What it means: the same in both.
    pub const fn number(self) -> u16 {
        match self {
            Self::Http(number) | Self::Like(number) => number,
        }
    }
}

/// A model call that brought no whole reply. No text in here ever holds the API key.
#[derive(Debug, thiserror::Error)]
pub enum LlmError {
    /// The provider cannot be set up from its configuration; nothing was sent.
    #[error("cannot set up the model provider: {why}")]
    Setup {
        /// What is wrong with the configuration.
        why: String,
    },
    /// The key was refused, or lacks a permission (HTTP 401, 403).
    #[error("the model provider refused the credentials{}: {message}", in_words(*.status))]
    Unauthorized {
        /// What it goes by.
        status: Status,
        /// The provider's words.
        message: String,
    },
    /// The account cannot pay: nothing is wrong with its key (HTTP 402; 400, 403 and 429 as well).
    #[error("the model provider's account cannot pay for the request{}: {message}", in_words(*.status))]
    Unpaid {
        /// What it goes by.
        status: Status,
        /// The provider's words.
        message: String,
    },
    /// The provider refused the request itself (HTTP 400, 413, 422 and other client errors).
    #[error("the model provider refused the request{}: {message}", in_words(*.status))]
    InvalidRequest {
        /// What it goes by.
        status: Status,
        /// The provider's words.
        message: String,
    },
    /// The provider refused the request for one tool that it offers; without that tool it may take it.
    #[error("the model provider does not take the tool `{tool}`{}: {message}", in_words(*.status))]
    BadTool {
        /// What it goes by.
        status: Status,
        /// The tool, by the name it is offered under.
        tool: String,
        /// The provider's words.
        message: String,
    },
    /// The provider knows no such model: it says so itself (HTTP 404).
    #[error("the provider does not know the model {model:?}: {message}")]
    NotFound {
        /// The model that was asked for.
        model: String,
        /// The provider's words.
        message: String,
    },
    /// What answers at this address knows nothing of the API: the base URL is not the provider's (HTTP 404 with words of somebody else, a redirect
    /// that is for good, a status that HTTP does not have).
    #[error("the provider's API is not at this address{}: {message}", in_words(*.status))]
    NoEndpoint {
        /// What it goes by.
        status: Status,
        /// What came instead of the provider's words.
        message: String,
    },
    /// The provider does not know the reply any more that the request was to continue from. The whole history does not need it.
    #[error("the model provider has forgotten the reply {response_id}: {message}")]
    SessionForgotten {
        /// The reply.
        response_id: String,
        /// The provider's words.
        message: String,
    },
    /// Too many requests or tokens for the account's limits (HTTP 429).
    #[error("the rate limit of the account is reached: {message}{}", asks_to_wait(*.retry_after))]
    RateLimited {
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
        /// Within which time the limit is whole again, where nothing is asked for.
        until_reset: Option<Duration>,
        /// The provider's words.
        message: String,
    },
    /// The provider has no capacity now (HTTP 503, 529).
    #[error("the provider is overloaded: {message}{}", asks_to_wait(*.retry_after))]
    Overloaded {
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
        /// The provider's words.
        message: String,
    },
    /// The provider failed (HTTP 408, 409 and 5xx, or an error inside the stream).
    #[error("cannot get a reply from the provider{}: {message}{}", in_status(*.status), asks_to_wait(*.retry_after))]
    Server {
        /// What it goes by; `None` for an error inside a stream that is like none.
        status: Option<Status>,
        /// How long the provider asks to wait.
        retry_after: Option<Duration>,
        /// The provider's words.
        message: String,
    },
    /// The cassette that is played has no answer to this request; nothing was sent.
    #[error("the cassette has no such request: {why}")]
    NotRecorded {
        /// Where the request differs from what was recorded.
        why: String,
    },
    /// No connection could be made; nothing was sent.
    #[error("cannot reach the model provider at {host}: {why}")]
    Unreachable {
        /// Host and port of the base URL.
        host: String,
        /// Why: refused, no such name, a certificate, in the words of whatever failed.
        why: String,
    },
    /// The provider was silent for too long after the request was sent.
    #[error("the model provider said nothing for {}", span_in_words(*.idle))]
    Timeout {
        /// The longest silence that is allowed.
        idle: Duration,
    },
    /// The reply was still coming when it should have been complete.
    #[error("the reply was not complete after {}", span_in_words(*.after))]
    Endless {
        /// The longest that a reply may take.
        after: Duration,
    },
    /// The connection ended before an answer came, after the request had begun to leave: nobody knows what became of it.
    #[error("the connection to the model provider ended before an answer came")]
    Unanswered {
        /// What ended it.
        #[source]
        source: BoxError,
    },
    /// The connection ended before the message did.
    #[error("the reply is not complete: the stream ended early, after {text_bytes} bytes of text")]
    Cut {
        /// Bytes of text that had arrived; they are not a reply.
        text_bytes: usize,
        /// What ended it; `None` when it just ended.
        #[source]
        source: Option<BoxError>,
    },
    /// The stream could not be read to the end of the message: what came is broken on the way, or by the server that sent it. It is paid for
    /// like a reply that was cut, and another one may be whole.
    #[error("cannot read the provider's reply, which is garbled: {why}")]
    Garbled {
        /// What was wrong with it.
        why: String,
    },
    /// Something came that is no reply and no stream: the page of a proxy or a sign-in, an error in place of a reply, or JSON of something
    /// else. No model has written anything that is known of, so nothing is charged; another request may find the provider.
    #[error("no reply came from the provider's address, but {what}")]
    NotAReply {
        /// What it is, with its beginning.
        what: String,
        /// It is whole, and of something else than an API of models: a page, or JSON that says neither a reply nor why there is none.
        is_foreign: bool,
    },
    /// The request has more tokens than the model takes; nothing was begun.
    #[error("the request does not fit into the model's context{}: {message}", in_words(*.status))]
    TooLong {
        /// What it goes by.
        status: Status,
        /// The provider's words.
        message: String,
    },
    /// The provider failed, and says that the same request will fail again.
    #[error("cannot get a reply from the provider (HTTP {status}), which says that a retry is useless: {message}")]
    Hopeless {
        /// The HTTP status.
        status: u16,
        /// The provider's words.
        message: String,
    },
    /// What came is not what the API's documentation promises.
    #[error("cannot read the provider's reply: {why}")]
    Protocol {
        /// What was wrong with it.
        why: String,
    },
}

/// Bytes of the shortest key that is a secret: so many as those have that are taken out elsewhere.
const SHORTEST_SECRET: usize = 8;

/// What a person is told to do who works on a run in a terminal.
const RESUME: &str = "resume the run";

/// What was said of a failure, with its hint, for whoever reads it of a run that is tried again by itself: nobody has to resume that.
pub fn without_resume(said: &str) -> String {
    // The whole hint, its end, its beginning.
    let said = said.replace(&format!("; wait a while, then {RESUME}"), "");
    let said = said.replace(&format!(", then {RESUME}"), "").replace(&format!("; {RESUME};"), ";");
    said.replace(&format!("{RESUME}; "), "")
}

/// Whether a refusal is one of how many tools are offered: OpenAI takes 128, and others have limits of their own.
fn says_too_many_tools(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    said.contains("too many tools")
        || said.contains("number of tools")
        || (said.contains("tools")
            && ["array too long", "maximum length", "at most"].iter().any(|word| said.contains(word)))
}

fn in_status(status: Option<Status>) -> String {
    status.map_or_else(String::new, in_words)
}

fn asks_to_wait(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!(" (it asks to wait {})", ua_core::span_in_words(wait)))
}

/// The status that came, for whoever reads of a refusal; one that no answer had is said nowhere.
fn in_words(status: Status) -> String {
    match status {
        Status::Http(status) => format!(" (HTTP {status})"),
        Status::Like(_) => String::new(),
    }
}

impl LlmError {
    /// Sorts the error into what the caller can do next.
    pub fn class(&self) -> FailureClass {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Server { .. }
            | Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Timeout { .. }
            | Self::Endless { .. }
            | Self::SessionForgotten { .. }
            | Self::Garbled { .. }
            | Self::NotAReply { .. }
            | Self::Cut { .. } => FailureClass::Transient,
            Self::InvalidRequest { .. }
            | Self::BadTool { .. }
            | Self::TooLong { .. }
            | Self::Hopeless { .. }
            | Self::Protocol { .. } => FailureClass::Permanent,
            Self::Setup { .. }
            | Self::Unauthorized { .. }
            | Self::Unpaid { .. }
            | Self::NotFound { .. }
            | Self::NoEndpoint { .. }
            | Self::NotRecorded { .. } => FailureClass::Operator,
        }
    }

    /// The words in it that are not ours.
    pub(crate) fn words_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Unauthorized { message, .. }
            | Self::Unpaid { message, .. }
            | Self::InvalidRequest { message, .. }
            | Self::BadTool { message, .. }
            | Self::NotFound { message, .. }
            | Self::RateLimited { message, .. }
            | Self::Overloaded { message, .. }
            | Self::Server { message, .. }
            | Self::SessionForgotten { message, .. }
            | Self::TooLong { message, .. }
            | Self::Hopeless { message, .. }
            | Self::Garbled { why: message }
            | Self::NotAReply { what: message, .. }
            | Self::NoEndpoint { message, .. }
            | Self::Setup { why: message }
            | Self::NotRecorded { why: message }
            | Self::Protocol { why: message } => Some(message),
            Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Timeout { .. }
            | Self::Endless { .. }
            | Self::Cut { .. } => None,
        }
    }

    /// Whether the same request may bring a reply when it is made again.
    pub fn may_retry(&self) -> bool {
        self.class() == FailureClass::Transient
    }

    /// Whether a request may have reached the provider. An error status is an answer: it counts.
    pub fn left_us(&self) -> bool {
        match self {
            Self::Setup { .. } | Self::NotRecorded { .. } | Self::Unreachable { .. } => false,
            Self::Unauthorized { .. }
            | Self::Unpaid { .. }
            | Self::InvalidRequest { .. }
            | Self::BadTool { .. }
            | Self::NotFound { .. }
            | Self::SessionForgotten { .. }
            | Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Server { .. }
            | Self::Unanswered { .. }
            | Self::Timeout { .. }
            | Self::Endless { .. }
            | Self::Cut { .. }
            | Self::Garbled { .. }
            | Self::TooLong { .. }
            | Self::Hopeless { .. }
            | Self::Protocol { .. }
            | Self::NoEndpoint { .. }
            | Self::NotAReply { .. } => true,
        }
    }

    /// Whether no model has begun with the request, and so nothing is billed: it was refused (401, 404, 429, 529, …), failed without a reply
    /// (409, 500, 501), or something else than the provider answered. Whoever gave up waiting for a model (408, 502, 504) does not know
    /// whether one has written something.
    pub fn was_refused(&self) -> bool {
        match self {
            Self::Unauthorized { .. }
            | Self::Unpaid { .. }
            | Self::InvalidRequest { .. }
            | Self::BadTool { .. }
            | Self::NotFound { .. }
            | Self::SessionForgotten { .. }
            | Self::RateLimited { .. }
            | Self::TooLong { .. }
            | Self::NoEndpoint { .. }
            | Self::NotAReply { .. }
            | Self::Overloaded { .. } => true,
            Self::Server { status, .. } => matches!(status.map(Status::number), Some(409 | 500 | 501)),
            Self::Hopeless { status, .. } => *status < 500 || matches!(status, 500 | 501 | 503 | 529),
            Self::Setup { .. }
            | Self::NotRecorded { .. }
            | Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Timeout { .. }
            | Self::Endless { .. }
            | Self::Cut { .. }
            | Self::Garbled { .. }
            | Self::Protocol { .. } => false,
        }
    }

    /// Whether what answered is something else than an API of models, as far as its answer says: where no reply ever came from, the address is
    /// more likely wrong than its server away.
    pub fn is_foreign(&self) -> bool {
        matches!(self, Self::NotAReply { is_foreign: true, .. })
    }

    /// Whether it is a refusal that may be one of a request with too many tokens, though its words do not say so: what is refused is the
    /// request as it is, and no part of it is named. Who knows how large it was can tell.
    pub fn may_be_too_long(&self) -> bool {
        let Self::InvalidRequest { status, message } = self else { return false };
        let names_something =
            too_long::names_a_part(message) || too_long::names_thoughts(message) || too_long::names_an_item(message);
        matches!(status.number(), 400 | 413 | 422) && !names_something && Lasting::of(message).is_none()
    }

    /// How long a reply may be asked for, where it is a refusal of a request that asks for a longer one than `asked` tokens; in tokens.
    pub fn longest_reply(&self, asked: u32) -> Option<u32> {
        let (Self::InvalidRequest { status, message } | Self::TooLong { status, message }) = self else { return None };
        let is_refusal = matches!(self, Self::InvalidRequest { .. });
        if is_refusal && !matches!(status.number(), 400 | 413 | 422) {
            return None;
        }
        crate::http::reply_limit::longest_reply(message, asked)
    }

    /// Whether it is a refusal of the form in which a request wants the result of a job: it names that part, or the grammar that is made of it.
    pub fn is_about_output(&self) -> bool {
        const PARTS: [&str; 20] = [
            "response_format",
            "responseformat",
            "response format",
            "response_schema",
            "responseschema",
            "response schema",
            "response_mime_type",
            "responsemimetype",
            "response mime type",
            "text.format",
            "output_config",
            "output_format",
            "output format",
            "output schema",
            "json_schema",
            "json mode",
            "structured output",
            "structured_output",
            "guided_json",
            "guided decoding",
        ];
        let (Self::InvalidRequest { status, message } | Self::TooLong { status, message }) = self else { return false };
        // A server that makes a grammar and cannot calls that a failure.
        let is_failed = matches!(self, Self::InvalidRequest { .. }) && matches!(status.number(), 424 | 500 | 501);
        if !is_failed && !matches!(status.number(), 400 | 422) {
            return false;
        }
        let said = message.to_ascii_lowercase();
        // What is about the effort stands beside it.
        let names_it = PARTS.iter().any(|part| said.contains(part)) && !said.contains("output_config.effort");
        // Of the forms of tools' arguments a server makes a grammar, too.
        names_it || (said.contains("grammar") && !said.contains("tool"))
    }

    /// Whether it is a refusal that may be one of the form of the result, though it does not say so: it names no part of the request that it could be
    /// for instead. Who knows whether a request with that form was ever taken can tell.
    pub fn may_be_about_output(&self) -> bool {
        const OTHERS: [&str; 12] = [
            "messages.",
            "messages[",
            "messages:",
            "input.",
            "input[",
            "contents[",
            "role",
            "signature",
            "thinking",
            "tool_use",
            "tool_call",
            "image",
        ];
        let Self::InvalidRequest { status, message } = self else { return false };
        let said = message.to_ascii_lowercase();
        let lasting = Lasting::of(message);
        // Whose schema it is of which a server makes no grammar it does not always say.
        if lasting == Some(Lasting::Grammar) && !said.contains("tool") {
            return true;
        }
        matches!(status.number(), 400 | 422)
            && lasting.is_none()
            && !too_long::names_a_part(message)
            && !says_too_many_tools(message)
            && !OTHERS.iter().any(|part| said.contains(part))
            && job_field(message).is_none()
    }

    /// Whether it is a refusal of a schema, of which it does not say whose it is. Who knows whether tools were offered can tell.
    pub fn speaks_of_schemas(&self) -> bool {
        let Self::InvalidRequest { status, message } = self else { return false };
        matches!(status.number(), 400 | 422 | 424 | 500 | 501) && message.to_ascii_lowercase().contains("schema")
    }

    /// Whether it is a refusal that may be one of an image: it speaks of one, or of no part of the request. Who knows whether there were any can
    /// tell.
    pub fn may_be_about_images(&self) -> bool {
        let Self::InvalidRequest { status, message } = self else { return false };
        let said = message.to_ascii_lowercase();
        let names_one = ["image", "media type", "media_type", "picture"].iter().any(|word| said.contains(word));
        // A router that finds nobody who reads them answers 404.
        if status.number() == 404 {
            return names_one;
        }
        let names_another =
            too_long::names_a_part(message) || too_long::names_thoughts(message) || Lasting::of(message).is_some();
        matches!(status.number(), 400 | 413 | 415 | 422) && (names_one || !names_another)
    }

    /// Within which time the limit is whole again that was reached. It may be sooner, so nobody gives up for it.
    pub fn until_reset(&self) -> Option<Duration> {
        if let Self::RateLimited { until_reset, .. } = self { *until_reset } else { None }
    }

    /// The same, with the wait that its words ask for, unless it was asked for otherwise.
    #[must_use]
    pub(crate) fn after(mut self, wait: Option<Duration>) -> Self {
        if let Self::RateLimited { retry_after, .. }
        | Self::Overloaded { retry_after, .. }
        | Self::Server { retry_after, .. } = &mut self
        {
            *retry_after = retry_after.or(wait);
        }
        self
    }

    /// The same, with what the provider's headers say of the limit that was reached. A wait that it asks for counts alone.
    #[must_use]
    pub(crate) fn whole_again_in(mut self, span: Option<Duration>) -> Self {
        if let Self::RateLimited { retry_after: None, until_reset, .. } = &mut self {
            *until_reset = span;
        }
        self
    }

    /// How long the provider asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. }
            | Self::Overloaded { retry_after, .. }
            | Self::Server { retry_after, .. } => *retry_after,
            Self::Setup { .. }
            | Self::Unauthorized { .. }
            | Self::Unpaid { .. }
            | Self::InvalidRequest { .. }
            | Self::BadTool { .. }
            | Self::NotFound { .. }
            | Self::SessionForgotten { .. }
            | Self::NotRecorded { .. }
            | Self::Unreachable { .. }
            | Self::Unanswered { .. }
            | Self::Timeout { .. }
            | Self::Endless { .. }
            | Self::Cut { .. }
            | Self::Garbled { .. }
            | Self::TooLong { .. }
            | Self::Hopeless { .. }
            | Self::Protocol { .. }
            | Self::NoEndpoint { .. }
            | Self::NotAReply { .. } => None,
        }
    }

    /// Takes `secret` out of what a server said. What is as short as a word is no secret, and stands in many (`ollama`, `token`).
    pub(crate) fn without(mut self, secret: &str) -> Self {
        if let Some(text) = self.words_mut().filter(|_| secret.len() >= SHORTEST_SECRET) {
            *text = text.replace(secret, "[key]");
        }
        self
    }

    /// What a person can try who uses this provider, for the line below the message.
    pub fn hint(&self, provider: &str) -> Option<String> {
        self.hint_to(Audience::Terminal, provider)
    }

    /// The same for whoever works on the run. A program may have key and address from anywhere.
    pub fn hint_to(&self, audience: Audience, provider: &str) -> Option<String> {
        let (key, url) = audience.pick(variables_of(provider), ("", ""));
        let resume = audience.pick(RESUME, "run it again");
        let work = audience.work();
        // A program has no command to type.
        let with = |with: ForkWith| audience.pick(format!(" ({with})"), String::new());
        if self.longest_reply(u32::MAX).is_some() {
            let flag = with(ForkWith::Job);
            return Some(format!(
                "fork the run with a lower `max_output_tokens`{flag}, which is how long a reply may be"
            ));
        }
        let words = match self {
            Self::Unauthorized { message, .. } if is_of_a_key_behind(message) => {
                format!(
                    "check the key that the router in front has for its provider, where the router is configured, then {resume}: it is not \
                     the key that is sent from here"
                )
            }
            Self::Unauthorized { .. } => {
                format!("check that the provider's key{key} is valid and may use the model")
            }
            Self::Unpaid { message, .. } => {
                let of_a_day = if speaks_of_quotas(message) {
                    "; a quota of a day comes back by itself when the provider's day is over"
                } else {
                    ""
                };
                format!("add credit to the account at the provider, or raise its limit there, then {resume}{of_a_day}")
            }
            Self::NoEndpoint { .. } => {
                format!("check the provider's base URL{url}: it is the address in front of `/v1`, or with it")
            }
            Self::NotAReply { .. } => {
                format!("check the provider's base URL{url} and the proxy, then {resume}")
            }
            Self::Setup { .. } => format!("check the provider's key{key} and base URL{url}"),
            Self::Unreachable { .. } => {
                format!("check the network, the proxy and the provider's base URL{url}, then {resume}")
            }
            Self::Protocol { .. } => {
                format!("check that the base URL{url} is an endpoint of the provider's API")
            }
            Self::Garbled { .. } => {
                format!(
                    "{resume}; if it comes again, check that the base URL{url} is an endpoint of the provider's API"
                )
            }
            Self::NotFound { model, .. } => {
                let models = ModelTable::shipped();
                let other = models.in_place_of(provider, model).and_then(OtherModel::new);
                // Behind everything that the provider says, so that what is read back is this one.
                let another = match (audience.pick(true, false), other) {
                    (true, Some(other)) => other.to_string(),
                    (true, None) => "another model, with its name instead of MODEL".to_owned(),
                    (false, _) => "another model".to_owned(),
                };
                format!("check the model's name; a fork of the run can take {another}")
            }
            Self::RateLimited { .. } | Self::Overloaded { .. } | Self::Server { .. } => {
                format!("wait a while, then {resume}")
            }
            Self::Unanswered { .. } | Self::Timeout { .. } | Self::Endless { .. } | Self::Cut { .. } => {
                format!("{resume}; nothing of the unfinished reply was used")
            }
            Self::NotRecorded { .. } => {
                format!("play it with the {work}, the model and the tools it was recorded with, or record it again")
            }
            Self::TooLong { .. } => {
                format!(
                    "the {work} and its tools alone are too long for this model, whatever is left out of the history: fork the run with a model that \
                     takes more{}, or begin a shorter {work}, or one with fewer tools",
                    with(ForkWith::Model)
                )
            }
            Self::InvalidRequest { message, .. } => {
                let forks = (with(ForkWith::Job), with(ForkWith::Model));
                hint_of_refusal(message, (provider, url), audience, (&forks.0, &forks.1))
            }
            Self::BadTool { tool, .. } if tool.starts_with("mcp__ua__") => {
                format!(
                    "it is one that `ua` brings along, which the {work} may rely on: fork the run with another model{}, or, if it does without the \
                     tool, with that denied{}",
                    with(ForkWith::Model),
                    with(ForkWith::Job)
                )
            }
            Self::BadTool { .. } => {
                format!(
                    "deny the tool in a fork of the run{}, or have its schema corrected where it is made",
                    with(ForkWith::Job)
                )
            }
            Self::Hopeless { .. } => {
                format!("ask the provider, or fork the run with another model{}", with(ForkWith::Model))
            }
            Self::SessionForgotten { .. } => return None,
        };
        Some(words)
    }

    /// Whether the same request brings the same refusal, so that going on as it is helps nobody.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::InvalidRequest { .. }
                | Self::BadTool { .. }
                | Self::TooLong { .. }
                | Self::Hopeless { .. }
                | Self::NotFound { .. }
                | Self::NoEndpoint { .. }
                | Self::Unauthorized { .. }
                | Self::Unpaid { .. }
                | Self::NotRecorded { .. }
        )
    }
}

/// What helps whose request was refused in these words. It ends with how a run is forked with another job, or another model.
fn hint_of_refusal(
    message: &str,
    (provider, url): (&str, &str),
    audience: Audience,
    (with_job, with_model): (&str, &str),
) -> String {
    if says_too_many_tools(message) {
        return format!(
            "offer fewer tools, only those that are needed: fork the run with others denied{with_job}, or leave servers out"
        );
    }
    if let Some(words) =
        Lasting::of(message).and_then(|what| hint_of_lasting(what, message, audience, (with_job, with_model)))
    {
        return words;
    }
    if reject::names_no_reason(message) {
        return format!(
            "it gives no reason, so look at what such servers refuse without one: a base URL{url} of another API than the one that is spoken, a \
             model's name or setting that it does not have, a proxy or gateway in between (its log says what it refused)"
        );
    }
    let work = audience.work();
    let of_job = |field: &str| audience.pick(format!("`model.{field}`"), format!("`{field}`"));
    if says_budget_is_wrong(message) {
        let (thoughts, reply) = (of_job("thinking_tokens"), of_job(LONGEST_REPLY));
        return format!(
            "thoughts are a part of the reply, so {thoughts} has to be less than {reply}, and at least what the provider asks for (Anthropic: 1024): \
             change them in a fork of the run{with_job}"
        );
    }
    let field =
        job_field(message).or_else(|| says_no_thinking(message).then(|| ("thinking", field_of_thinking(provider))));
    if let Some((named, field)) = field {
        if field == LONGEST_REPLY {
            return format!(
                "`{named}` says how long a reply may be, and so what it may cost, so that every request has it: use an endpoint of this provider \
                 that takes it, or a proxy in between that leaves it out or renames it"
            );
        }
        let said = of_job(field);
        return format!(
            "this model does not take {said}: leave it out of the {work} in a fork of the run{with_job}, or take another model; where the {work} \
             does not set it, a server in between does"
        );
    }
    format!(
        "correct what the provider names: in a fork of the run{with_job} if it is something that the run keeps (the model's settings, a tool, the \
         history), else before it continues (the account, a server in between)"
    )
}

/// What helps where no wait does; `None` where it is told otherwise.
fn hint_of_lasting(
    what: Lasting,
    message: &str,
    audience: Audience,
    (with_job, with_model): (&str, &str),
) -> Option<String> {
    let (resume, said) = (audience.pick(RESUME, "run it again"), message.to_ascii_lowercase());
    Some(match what {
        Lasting::NoTools if said.contains("--jinja") || said.contains("unsupported param: tools") => {
            format!(
                "as its server was started it calls no tools: start llama.cpp's server with `--jinja`, then {resume}"
            )
        }
        Lasting::NoTools if said.contains("enable-auto-tool-choice") => {
            format!(
                "as its server was started it calls no tools: start vLLM with `--enable-auto-tool-choice` and the `--tool-call-parser` of the model, \
                 then {resume}"
            )
        }
        Lasting::NoTools => {
            format!(
                "it calls no tools: fork the run with a model that does{with_model}, or start its server so that it reads tool calls"
            )
        }
        Lasting::Grammar => {
            format!(
                "its server makes a grammar of the schemas that it is sent, and cannot of these: deny the tool whose schema it is in a fork of the \
                 run{with_job}, have that schema made simpler, or take a newer version of the server"
            )
        }
        Lasting::Roles | Lasting::Template => {
            format!(
                "the chat template that the model's server has does not take this conversation, mostly because it knows no results of tools: start \
                 the server with one that does (llama.cpp: `--chat-template-file`, vLLM: `--chat-template`), or with a model that calls tools, then \
                 {resume}"
            )
        }
        Lasting::Memory => {
            format!(
                "free memory where the model's server is, or start it with a smaller context or a smaller model, then {resume}"
            )
        }
        Lasting::NoRoute => {
            format!(
                "the settings of the account at the router leave no provider for this model: allow one there (OpenRouter: \
                 https://openrouter.ai/settings/privacy and /settings/preferences), then {resume}; the model's name is right"
            )
        }
        Lasting::NoneTakesIt => {
            format!(
                "no provider behind the router takes all that the request has: leave out what they do not take (images, settings of the model) in a \
                 fork of the run{with_job}, or take another model"
            )
        }
        Lasting::KeyBehind => return None,
    })
}

/// Whether words about an account may be those of a quota that comes back by itself.
fn speaks_of_quotas(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    ["quota", "per day", "per-day", "daily"].iter().any(|words| said.contains(words))
}

/// Whether a refusal is of how many tokens the thoughts may have, and not of such a number as such.
fn says_budget_is_wrong(message: &str) -> bool {
    let said = message.to_ascii_lowercase();
    let names_it = ["budget_tokens", "thinking budget", "thinking_budget", "thinkingbudget"];
    names_it.iter().any(|name| said.contains(name)) && !says_not_taken(message)
}

/// Whether a refusal says that the model does not think, and not that it does not take what was thought before.
fn says_no_thinking(message: &str) -> bool {
    const OF_HISTORY: [&str; 6] = ["messages", "signature", "block", "reasoning_content", "property", "input["];
    let said = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    says_not_taken(message) && has(&["thinking", "think value", "reasoning"]) && !has(&OF_HISTORY)
}

/// What a job calls how the model thinks, with this provider.
fn field_of_thinking(provider: &str) -> &'static str {
    if provider == ANTHROPIC { "thinking" } else { "effort" }
}

/// What a job calls the longest reply.
const LONGEST_REPLY: &str = "max_output_tokens";

/// The field of a request that a refusal does not know, where that is there because of the job, and what the job calls it. What goes with a request
/// unasked is left out before anybody reads of it.
fn job_field(message: &str) -> Option<(&'static str, &'static str)> {
    // As the wires name it, and as a job does.
    const FIELDS: [(&str, &str); 12] = [
        ("max_completion_tokens", LONGEST_REPLY),
        ("max_tokens", LONGEST_REPLY),
        ("max_output_tokens", LONGEST_REPLY),
        ("temperature", "temperature_milli"),
        ("seed", "seed"),
        ("reasoning_effort", "effort"),
        ("reasoning.effort", "effort"),
        ("output_config.effort", "effort"),
        ("thinking.type", "thinking"),
        ("budget_tokens", "thinking_tokens"),
        ("tool_choice", "tool_choice"),
        ("effort parameter", "effort"),
    ];
    // Whoever refuses one by the other's name names both, and the one that was sent first.
    let named = FIELDS.into_iter().filter_map(|field| Some((first_named(message, field.0)?, field)));
    named.min().map(|(_, field)| field).filter(|_| says_not_taken(message))
}

/// The variables that have the key and the base URL of a provider, each as it stands behind those words; nothing for one that is set up
/// otherwise.
fn variables_of(provider: &str) -> (&'static str, &'static str) {
    match provider {
        "anthropic" | "claude-code" => (" (ANTHROPIC_API_KEY)", " (ANTHROPIC_BASE_URL)"),
        "openai" | "openai-chat" => (" (OPENAI_API_KEY)", " (OPENAI_BASE_URL)"),
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the job asks for is not left out without a word: whoever reads of the refusal reads which of its fields it is.
    #[test]
    fn a_refusal_of_what_the_job_asks_for_names_its_field() {
        let hint = |message: &str, audience| {
            let refused = LlmError::InvalidRequest { status: Status::Http(400), message: message.to_owned() };
            refused.hint_to(audience, "openai-chat").unwrap()
        };
        for (message, field) in [
            ("Unsupported parameter: 'temperature' is not supported with this model.", "temperature_milli"),
            ("`temperature` is deprecated for this model.", "temperature_milli"),
            ("Unrecognized request argument supplied: seed", "seed"),
            ("body.reasoning_effort: Extra inputs are not permitted", "effort"),
            ("Unsupported parameter: 'reasoning.effort' is not supported with this model.", "effort"),
            ("\"thinking.type.enabled\" is not supported for this model. Use \"thinking.type.adaptive\"", "thinking"),
            ("tool_choice: Input tag 'any' is not supported", "tool_choice"),
            ("This model does not support the effort parameter.", "effort"),
            // Ollama, to a request with `reasoning_effort`.
            ("\"qwen2.5:7b\" does not support thinking", "effort"),
            ("think value \"medium\" is not supported for this model", "effort"),
            ("Reasoning is not supported by this model", "effort"),
        ] {
            let terminal = hint(message, Audience::Terminal);
            let words = format!("this model does not take `model.{field}`: leave it out of the job");
            assert!(terminal.starts_with(&words), "{message}: {terminal}");
            assert!(terminal.contains("--job-overrides"), "{terminal}");
            let program = hint(message, Audience::Program);
            let words = format!("this model does not take `{field}`: leave it out of the step");
            assert!(program.starts_with(&words), "{message}: {program}");
        }
        for (message, field) in [
            (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
                "max_tokens",
            ),
            ("unknown field `max_completion_tokens`, expected `max_tokens`", "max_completion_tokens"),
            ("Unsupported parameter: max_output_tokens", "max_output_tokens"),
        ] {
            let told = hint(message, Audience::Terminal);
            assert!(told.starts_with(&format!("`{field}` says how long a reply may be")), "{message}: {told}");
        }
        for other in [
            "messages.2: property 'reasoning' is unsupported",
            "temperature: too high",
            "Unknown name \"x\", expected one of \"seed\"",
            "unknown field seeds",
        ] {
            assert!(hint(other, Audience::Terminal).starts_with("correct what the provider names"), "{other}");
        }
    }

    /// A longest reply that leaves the thoughts no room is too short: nothing says that a shorter one helps.
    #[test]
    fn a_budget_of_thoughts_beside_the_longest_reply_has_one_hint() {
        for message in [
            "`max_tokens` must be greater than `thinking.budget_tokens`. Please consult our documentation at https://docs.claude.com",
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
            "The thinking budget 2000 must be less than max_tokens 2000",
        ] {
            let refused = LlmError::InvalidRequest { status: Status::Http(400), message: message.to_owned() };
            assert_eq!(refused.longest_reply(u32::MAX), None, "{message}");
            let hint = refused.hint("anthropic").unwrap();
            let words = "`model.thinking_tokens` has to be less than `model.max_output_tokens`";
            assert!(hint.contains(words) && !hint.contains("lower `max_output_tokens`"), "{message}: {hint}");
        }
    }

    #[test]
    fn a_refusal_of_the_form_of_a_result_is_one_in_every_servers_words() {
        let refused =
            |message: &str| LlmError::InvalidRequest { status: Status::Http(400), message: message.to_owned() };
        for message in [
            "json mode cannot be combined with tool/function calling",
            "Function calling with a response mime type: 'application/json' is unsupported",
            "response format is not available for this model",
            "guided decoding failed to compile",
        ] {
            assert!(refused(message).is_about_output(), "{message}");
        }
        for message in ["no explanation was given", "Provider returned error", "Request contains an invalid argument."]
        {
            assert!(!refused(message).is_about_output() && refused(message).may_be_about_output(), "{message}");
        }
        for message in [
            "tools.3.custom.input_schema: bad",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "Unsupported parameter: 'temperature'",
            "too many tools",
            "Unexpected role 'user' after role 'tool'",
            "output_config.effort: Extra inputs are not permitted",
        ] {
            assert!(!refused(message).is_about_output() && !refused(message).may_be_about_output(), "{message}");
        }
    }

    #[test]
    fn only_what_never_left_is_free_and_only_what_may_pass_is_repeated() {
        let unreachable = LlmError::Unreachable { host: "localhost:1".into(), why: "connection refused".into() };
        assert!(!unreachable.left_us() && unreachable.may_retry());
        let overloaded = LlmError::Overloaded { retry_after: Some(Duration::from_secs(3)), message: "busy".into() };
        assert!(overloaded.left_us() && overloaded.may_retry() && overloaded.was_refused());
        assert_eq!(overloaded.retry_after(), Some(Duration::from_secs(3)));
        // Headers that say when a limit is whole again ask for nothing, and count only where nothing is asked for.
        let span = Some(Duration::from_mins(2));
        let limited = |retry_after| {
            LlmError::RateLimited { retry_after, until_reset: None, message: "slow".into() }.whole_again_in(span)
        };
        assert_eq!((limited(None).retry_after(), limited(None).until_reset()), (None, span));
        assert!(!limited(None).to_string().contains("asks to wait"));
        assert_eq!(limited(Some(Duration::ZERO)).until_reset(), None);
        assert_eq!(overloaded.whole_again_in(span).until_reset(), None);
        let refused = LlmError::InvalidRequest { status: Status::Http(400), message: "no".into() };
        assert!(refused.left_us() && !refused.may_retry());
        let setup = LlmError::Setup { why: "no key".into() };
        assert!(!setup.left_us() && !setup.may_retry());
    }

    #[test]
    fn a_secret_that_a_server_echoed_is_not_repeated() {
        let error = LlmError::Unauthorized { status: Status::Http(401), message: "no such key: sk-12345!".into() }
            .without("sk-12345");
        assert_eq!(error.to_string(), "the model provider refused the credentials (HTTP 401): no such key: [key]!");
    }

    /// The keys of servers on this machine are words, and no secrets; without their letters no refusal could be read.
    #[test]
    fn a_key_that_is_a_word_leaves_a_refusal_as_it_is() {
        for key in ["k", "ollama", "token", "sk-1234", ""] {
            let words = format!("registry.{key}.ai/gemma does not support max_tokens, {key}");
            let error = LlmError::InvalidRequest { status: Status::Http(400), message: words.clone() }.without(key);
            assert!(error.to_string().ends_with(&words), "{error}");
        }
    }

    /// Whoever cannot pay has a key that is right.
    #[test]
    fn an_account_that_cannot_pay_is_not_told_of_its_key() {
        let error = LlmError::Unpaid { status: Status::Http(400), message: "your credit balance is too low".into() };
        assert_eq!(
            error.to_string(),
            "the model provider's account cannot pay for the request (HTTP 400): your credit balance is too low"
        );
        let hint = error.hint("anthropic").unwrap();
        assert_eq!(hint, "add credit to the account at the provider, or raise its limit there, then resume the run");
        assert_eq!(error.class(), FailureClass::Operator);
        assert!(error.is_final() && error.was_refused() && error.left_us() && !error.may_retry());
        let secret =
            LlmError::Unpaid { status: Status::Http(402), message: "pay for sk-12345".into() }.without("sk-12345");
        assert!(secret.to_string().ends_with("pay for [key]"), "{secret}");
    }

    /// Of a run that is tried again by itself the reason stays, and what can be looked at, and no order to resume it.
    #[test]
    fn what_is_tried_again_by_itself_is_not_to_be_resumed() {
        let message = || "no".to_owned();
        for (error, left) in [
            (LlmError::Overloaded { retry_after: None, message: message() }, ""),
            (LlmError::Server { status: Some(Status::Http(500)), retry_after: None, message: message() }, ""),
            (LlmError::Timeout { idle: Duration::from_secs(5) }, "; nothing of the unfinished reply was used"),
        ] {
            let said = format!("{error}; {}", error.hint("anthropic").unwrap());
            assert!(said.contains(RESUME), "{said}");
            assert_eq!(without_resume(&said), format!("{error}{left}"));
        }
        assert_eq!(without_resume("x; check the network, then resume the run"), "x; check the network");
    }

    #[test]
    fn a_refused_key_names_the_variable_to_check() {
        let error = LlmError::Unauthorized { status: Status::Http(401), message: "invalid x-api-key".into() };
        assert_eq!(error.class(), FailureClass::Operator);
        for (provider, named, other) in
            [("anthropic", "ANTHROPIC_", "OPENAI_"), ("openai-chat", "OPENAI_", "ANTHROPIC_")]
        {
            let all = [error.hint(provider), LlmError::Setup { why: "no key".into() }.hint(provider)];
            assert!(all.iter().flatten().all(|hint| hint.contains(named) && !hint.contains(other)), "{all:?}");
        }
        assert!(error.hint("somebody's").is_some_and(|hint| !hint.contains('(')));
        assert!(error.hint("anthropic").is_some_and(|hint| hint.contains("key (ANTHROPIC_API_KEY) is valid")));
    }
}
