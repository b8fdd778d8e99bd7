//! The API that describes and draws: Anthropic's Messages, or what speaks like OpenAI's chat and images.
//!
//! Each request is sent once and never repeated here. Its idempotency key goes along in `Idempotency-Key`; only where the
//! settings say that the API honours it is a lost request sent again under it.

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use ua_core::{Env, Timestamp, count_in};
use url::Url;

use crate::answer::Failure;
use crate::context::{Order, Setup};
use crate::error::ToolServerError;
use crate::record::{Entry, Record};
use crate::settings::Settings;
use crate::tool::Opened;
use crate::web::{self, NoAnswer, Patience, means_not_done};
use crate::workspace::Workspace;

/// The folder of the records below the server's own.
const RECORDS: &str = "images";
/// An image of 32 MiB in base64, and what stands around it.
const MAX_ANSWER_BYTES: usize = 48 * 1024 * 1024;
/// Drawing takes minutes.
const PATIENCE: Patience = Patience { idle: Duration::from_mins(5), total: Duration::from_mins(20) };
/// Anthropic's "overloaded": refused before anything was done.
const OVERLOADED: u16 = 529;
const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";

/// Which language an API speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `POST /v1/messages`
    Anthropic,
    /// `POST /chat/completions` and `POST /images/generations`
    OpenAi,
}

impl Dialect {
    /// The maker under whose name prices of the models stand.
    pub(super) const fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
        }
    }
}

/// The API of one server.
#[derive(Debug)]
pub(super) struct ImageApi {
    client: reqwest::Client,
    pub(super) dialect: Dialect,
    base: Url,
    key: Option<SecretString>,
    /// The model that describes; without one nothing is described.
    pub(super) describes_with: Option<String>,
    /// The model that draws; without one nothing is drawn.
    pub(super) draws_with: Option<String>,
    honours_keys: bool,
}

/// What a request is known by before its answer came.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Begun {
    /// The address that it went to.
    via: String,
    at: Timestamp,
}

/// What the API counted, as far as it said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_tokens: Option<u64>,
}

impl Usage {
    /// The counts under either of the names that APIs give them. One that cannot be read is 0, as APIs write what they did not count.
    pub(super) fn of(answer: &Value) -> Option<Self> {
        let usage = answer.get("usage").filter(|usage| usage.is_object())?;
        let said = |name: &&str| usage.get(*name).filter(|count| !count.is_null());
        let count = |names: [&str; 2]| names.iter().find_map(said).map(|count| count_in(count).unwrap_or(0));
        let input_tokens = count(["input_tokens", "prompt_tokens"]);
        let output_tokens = count(["output_tokens", "completion_tokens"]);
        (input_tokens.is_some() || output_tokens.is_some()).then_some(Self { input_tokens, output_tokens })
    }
}

/// What came of a request that was answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Answered<D> {
    /// Nothing.
    InVain(InVain),
    /// What was asked for.
    With(D),
}

/// An answer that came whole and has nothing of what was asked for in it. It is paid for like any other.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InVain {
    problem: String,
    hint: String,
    paid: Paid,
}

/// Who was paid, and for how much, as far as the API said.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Paid {
    provider: String,
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

impl InVain {
    /// The failure of the call that made the request. It alone says what was paid.
    fn of_its_call(self) -> Failure {
        let paid = serde_json::to_value(self.paid).ok().map(Box::new);
        Failure::Refused { problem: self.problem, hint: self.hint, changed: None, paid }
    }

    /// The failure of another call that would make the same request.
    fn of_another_call(self) -> Failure {
        let problem = format!("the same request was made before and is not paid for again: {}", self.problem);
        Failure::refused(problem, self.hint)
    }
}

/// What is recorded of a request under its key.
pub(super) type Kept<D> = Record<Begun, Answered<D>>;

/// Whether a request is still to be sent.
pub(super) enum RequestState<D> {
    /// It is; the record of its key, when it has one.
    Open(Option<Kept<D>>),
    /// It was answered in an earlier attempt.
    Done(Kept<D>, D),
}

/// Why an answer has nothing in it, and what to do about it.
pub(super) struct Nothing {
    pub(super) why: String,
    pub(super) hint: &'static str,
}

impl ImageApi {
    /// The API that the settings name, if they name one.
    pub(super) fn of(setup: &Setup<'_>) -> Opened<Arc<Self>> {
        setup.shared(|setup| Ok(Self::new(setup.settings)?.map(Arc::new)))
    }

    fn new(settings: &Settings) -> Opened<Self> {
        let Some(text) = &settings.image_api else {
            return Ok(None);
        };
        let wrong =
            |why: &str| ToolServerError::Setting { flag: "image-api", value: web::shown(text), why: why.to_owned() };
        let (dialect, address) = match text.split_once('+').unwrap_or((text, "")) {
            ("anthropic", address) => (Dialect::Anthropic, if address.is_empty() { ANTHROPIC } else { address }),
            ("openai", address) => (Dialect::OpenAi, if address.is_empty() { OPENAI } else { address }),
            _ => return Err(wrong("write anthropic or openai, or an address such as openai+http://127.0.0.1:8080/v1")),
        };
        let base = Url::parse(address).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
            return Err(wrong("give an http or https address after the +"));
        }
        let key = settings.secrets.image_api_key.clone();
        if key.is_none() && !web::is_loopback(&base) {
            return Err(wrong("put the API's key into UA_IMAGE_API_KEY"));
        }
        if key.is_some() && base.scheme() == "http" && !web::is_loopback(&base) {
            return Err(wrong("a key is not sent over http; use https"));
        }
        let (describes_with, draws_with) = (settings.image_model.clone(), settings.image_generation_model.clone());
        if describes_with.is_none() && draws_with.is_none() {
            return Err(wrong("name a model that describes (UA_IMAGE_MODEL) or draws (UA_IMAGE_GENERATION_MODEL)"));
        }
        if draws_with.is_some() && dialect == Dialect::Anthropic {
            return Err(wrong("this API draws nothing; leave UA_IMAGE_GENERATION_MODEL out, or use openai"));
        }
        let honours_keys = settings.image_api_honours_keys;
        let client = web::client()?;
        Ok(Some(Self { client, dialect, base, key, describes_with, draws_with, honours_keys }))
    }

    /// Whether two requests under one key are charged once.
    pub(super) fn honours_keys(&self) -> bool {
        self.honours_keys
    }

    /// The name of the host, as it is shown.
    pub(super) fn host(&self) -> &str {
        self.base.host_str().unwrap_or("the image API")
    }

    /// Looks up what is known about the key. An answered request is not sent again; whether one may be that was not
    /// answered is for a person to say, or for an API that honours keys.
    pub(super) async fn standing<D>(
        &self,
        workspace: &Arc<Workspace>,
        order: Order<'_>,
    ) -> Result<RequestState<D>, Failure>
    where
        D: Clone + Serialize + for<'a> Deserialize<'a> + Send + Sync + 'static,
    {
        let Some(key) = order.key else { return Ok(RequestState::Open(None)) };
        let record = Kept::open(workspace, RECORDS, key).await?;
        match record.earlier().cloned() {
            Some(Entry::Done(Answered::With(done))) => Ok(RequestState::Done(record, done)),
            // A call is sent again when its answer did not arrive: what was paid is not known yet. One that begins under the key is another one in
            // the same words, and the first has been told.
            Some(Entry::Done(Answered::InVain(in_vain))) => {
                Err(if order.attempt > 1 { in_vain.of_its_call() } else { in_vain.of_another_call() })
            }
            Some(Entry::Begun(begun)) if order.attempt < 2 && !self.honours_keys => Err(Failure::Unclear(format!(
                "an earlier request under this key, at {} to {}, may have been answered and charged",
                begun.at, begun.via
            ))),
            Some(Entry::Begun(_)) | None => Ok(RequestState::Open(Some(record))),
        }
    }

    /// Sends one request and reads its answer. The record, when there is one, says so before and takes it back when the
    /// request was refused.
    pub(super) async fn ask<D>(
        &self,
        path: &str,
        body: &Value,
        key: Option<&str>,
        record: Option<&Kept<D>>,
        env: &Env,
    ) -> Result<Value, Failure>
    where
        D: Clone + Serialize + for<'a> Deserialize<'a> + Send + Sync + 'static,
    {
        let mut address = self.base.clone();
        address.set_path(&format!("{}/{path}", self.base.path().trim_end_matches('/')));
        if let Some(record) = record {
            record.begin(Begun { via: web::shown(address.as_str()), at: env.now() }).await?;
        }
        let answer = self.send(address, body, key).await;
        if let (Some(record), Err(Failure::Refused { .. })) = (record, &answer) {
            record.withdraw().await;
        }
        answer
    }

    /// Notes under the request's key that its answer has nothing in it; asked again, it is not paid for again.
    pub(super) async fn in_vain<D>(
        &self,
        record: Option<&Kept<D>>,
        (answer, model): (&Value, &str),
        Nothing { why, hint }: Nothing,
    ) -> Failure
    where
        D: Clone + Serialize + for<'a> Deserialize<'a> + Send + Sync + 'static,
    {
        let paid = Paid {
            provider: self.dialect.provider().to_owned(),
            model: model_of(answer, model),
            usage: Usage::of(answer),
        };
        let problem = format!("{} {why}; the request is paid for all the same", self.host());
        let in_vain = InVain { problem, hint: hint.to_owned(), paid };
        if let Some(record) = record {
            record.finish(Answered::InVain(in_vain.clone())).await;
        }
        in_vain.of_its_call()
    }

    #[tracing::instrument(name = "POST", skip_all, fields(otel.kind = "client", http.request.method = "POST"))]
    async fn send(&self, address: Url, body: &Value, key: Option<&str>) -> Result<Value, Failure> {
        let host = self.host();
        let mut request = self.client.post(address).header("Content-Type", "application/json");
        if let Some(secret) = &self.key {
            request = match self.dialect {
                Dialect::Anthropic => request.header("x-api-key", secret.expose_secret()),
                Dialect::OpenAi => request.bearer_auth(secret.expose_secret()),
            };
        }
        if self.dialect == Dialect::Anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let body = body.to_string().into_bytes();
        let answer = web::post(request, body, PATIENCE).await.map_err(|error| match error {
            NoAnswer::NeverLeft(cause) => Failure::refused(
                format!("could not reach {host}, nothing was charged: {cause}"),
                "try again later, or ask a person to check UA_IMAGE_API",
            ),
            NoAnswer::MayHaveLeft(cause) => {
                Failure::Unclear(format!("the request may have reached {host} and been charged: {cause}"))
            }
        })?;
        let status = answer.status();
        let text = web::text_up_to(MAX_ANSWER_BYTES, answer).await;
        let value: Option<Value> = text.and_then(|text| serde_json::from_slice(&text).ok());
        if status.is_success() {
            return value.ok_or_else(|| {
                Failure::Unclear(format!("{host} answered with {status}, but its answer is cut or cannot be read"))
            });
        }
        let said = value.as_ref().and_then(error_in).map_or_else(String::new, |said| format!(": {said}"));
        if means_not_done(status) || status.as_u16() == OVERLOADED {
            return Err(Failure::refused(
                format!("{host} refused the request with status {}, nothing was charged{said}", status.as_u16()),
                hint(status),
            ));
        }
        Err(Failure::Unclear(format!(
            "{host} answered with status {}, which does not say whether the request was done and charged{said}",
            status.as_u16()
        )))
    }
}

/// The most of an API's words that is passed on.
const MOST_QUOTED: usize = 300;

pub(super) fn quoted(text: &str) -> String {
    text.trim().chars().take(MOST_QUOTED).collect()
}

/// The error that an answer tells of, in the API's words.
pub(super) fn error_in(answer: &Value) -> Option<String> {
    let error = answer.get("error").filter(|error| !error.is_null())?;
    let said = error.as_str().or_else(|| error.get("message")?.as_str());
    Some(quoted(&said.map_or_else(|| error.to_string(), str::to_owned)))
}

/// The model that answered, by its own word.
pub(super) fn model_of(answer: &Value, asked: &str) -> String {
    answer.get("model").and_then(Value::as_str).unwrap_or(asked).to_owned()
}

fn hint(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "ask a person to check UA_IMAGE_API_KEY",
        402 => "the account behind UA_IMAGE_API_KEY cannot pay; ask a person",
        404 => "ask a person to check UA_IMAGE_API and the names of the models",
        413 => "use a smaller image",
        429 | OVERLOADED => "the API's limit is reached; try again later",
        _ => "change what the API complains about",
    }
}

/// A part of a message that holds an image.
pub(super) fn image_part(dialect: Dialect, media_type: &str, base64: &str) -> Value {
    match dialect {
        Dialect::Anthropic => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": base64}})
        }
        Dialect::OpenAi => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{base64}")}})
        }
    }
}
