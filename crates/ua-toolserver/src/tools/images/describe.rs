//! `describe_image`: what an image of the workspace shows, in words of a model that sees.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::ImageFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{Answered, Dialect, ImageApi, Nothing, RequestState, Usage, error_in, image_part, model_of, quoted};
use super::decode::{ImageFile, pack};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::sent::Said;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

const MAX_QUESTION_CHARS: usize = 2_000;
const DEFAULT_WORDS: u32 = 150;
const WORDS: std::ops::RangeInclusive<u32> = 5..=1_000;
/// The longest side that is sent: models look at no more, and larger ones cost more.
const MAX_SIDE: u32 = 1_568;
/// The largest file that is sent as it is.
const MAX_SENT_BYTES: usize = 3 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The image, relative to the workspace: PNG, JPEG, GIF or WebP.
    path: String,
    /// What to find out about it; a general description when left out.
    #[schemars(length(max = 2000))]
    question: Option<String>,
    /// About how many words the answer may have; 150 when left out.
    #[schemars(range(min = 5, max = 1000))]
    max_words: Option<u32>,
}

/// What was found out.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Described {
    description: String,
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// Of the file as it is in the workspace.
    sha256: String,
    /// Whether the answer was cut at its limit.
    cut: bool,
}

#[derive(Debug, Serialize)]
struct Reported<'a> {
    path: &'a str,
    /// Whose API it was.
    provider: &'static str,
    #[serde(flatten)]
    described: &'a Described,
    /// Whether this is the answer that an earlier attempt paid for.
    already_answered: bool,
}

/// The tool, where the settings name a model for it.
#[derive(Debug)]
pub(in crate::tools) struct DescribeImage {
    api: Arc<ImageApi>,
    model: String,
}

impl Tool for DescribeImage {
    const NAME: &'static str = "describe_image";
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let api = ImageApi::of(setup)?;
        Ok(api.and_then(|api| Some(Self { model: api.describes_with.clone()?, api })))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Describe an image",
            "Sends an image of the workspace to the configured image model and returns what it shows, or the answer to a question about it. Each call costs money.",
            Effect::Asks,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let Self { api, model } = self;
        let question = given.question.as_deref().map(str::trim).filter(|question| !question.is_empty());
        if question.is_some_and(|question| question.chars().count() > MAX_QUESTION_CHARS) {
            return Err(Failure::refused(
                "the question is too long",
                format!("ask in at most {MAX_QUESTION_CHARS} characters"),
            ));
        }
        let words = given.max_words.unwrap_or(DEFAULT_WORDS);
        if !WORDS.contains(&words) {
            return Err(Failure::refused(format!("max_words {words} is not allowed"), "give 5 to 1000"));
        }
        let record = match api.standing::<Described>(&context.workspace, order).await? {
            RequestState::Done(_, described) => return answer(api, &given.path, &described, true),
            RequestState::Open(record) => record,
        };
        let (sha256, media_type, data) = {
            let (workspace, path) = (Arc::clone(&context.workspace), given.path.clone());
            let files = order.files.clone();
            blocking(move || prepare(&files, &workspace, &path)).await?
        };
        let text =
            format!("{} Answer in at most {words} words.", question.unwrap_or("Describe what this image shows."));
        let parts = json!([image_part(api.dialect, media_type, &data), {"type": "text", "text": text}]);
        let messages = json!([{"role": "user", "content": parts}]);
        // A word is hardly more than two tokens; some are left for models that think first.
        let limit = 2 * words + 256;
        let (path, body) = match api.dialect {
            Dialect::Anthropic => ("v1/messages", json!({"model": model, "max_tokens": limit, "messages": messages})),
            Dialect::OpenAi => {
                ("chat/completions", json!({"model": model, "max_completion_tokens": limit, "messages": messages}))
            }
        };
        let said = api.ask(path, &body, order.key, record.as_ref(), &context.env).await?;
        let described = match read(api.dialect, &said, model, sha256) {
            Ok(described) => described,
            Err(nothing) => return Err(api.in_vain(record.as_ref(), (&said, model), nothing).await),
        };
        if let Some(record) = &record {
            record.finish(Answered::With(described.clone())).await;
        }
        answer(api, &given.path, &described, false)
    }
}

fn answer(api: &ImageApi, path: &str, described: &Described, already_answered: bool) -> Answer {
    let provider = api.dialect.provider();
    success(described.description.clone(), &Reported { path, provider, described, already_answered })
}

/// The file's hash, and what is sent of it: as it is, or smaller.
fn prepare(files: &Said, workspace: &Workspace, path: &str) -> Result<(String, &'static str, String), Failure> {
    let file = ImageFile::read(files, workspace, path)?;
    let sha256 = sha256_hex(&file.bytes);
    let is_plain = matches!(file.format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP);
    let is_small = file.width <= MAX_SIDE && file.height <= MAX_SIDE && file.bytes.len() <= MAX_SENT_BYTES;
    if is_plain && is_small {
        return Ok((sha256, file.media_type(), STANDARD.encode(&file.bytes)));
    }
    let broken = |why: String| {
        Failure::refused(format!("{path:?} cannot be unpacked: {why}"), "the file is damaged; create it again")
    };
    let picture = file.unpack().map_err(broken)?;
    let small = if is_small { picture } else { picture.thumbnail(MAX_SIDE, MAX_SIDE) };
    let packed = pack(&small, ImageFormat::Jpeg).map_err(broken)?;
    Ok((sha256, "image/jpeg", STANDARD.encode(packed)))
}

/// The description in an answer, or why there is none. One that was filtered or refused half way is none.
fn read(dialect: Dialect, answer: &Value, model: &str, sha256: String) -> Result<Described, Nothing> {
    const DO_WITHOUT: &str = "ask about another image or in other words, or continue without the description";
    let none = |why: String| Nothing { why, hint: DO_WITHOUT };
    let (text, ended, refusal) = match dialect {
        Dialect::Anthropic => (written(answer.get("content")), answer.get("stop_reason"), None),
        Dialect::OpenAi => {
            let choice = answer.pointer("/choices/0").unwrap_or(&Value::Null);
            let refusal = choice.pointer("/message/refusal").and_then(Value::as_str);
            (written(choice.pointer("/message/content")), choice.get("finish_reason"), refusal)
        }
    };
    if let Some(error) = error_in(answer) {
        return Err(none(format!("answered with an error: {error}")));
    }
    let refusal = refusal.map(str::trim).filter(|refusal| !refusal.is_empty());
    let ended = ended.and_then(Value::as_str).unwrap_or_default();
    if refusal.is_some() || matches!(ended, "refusal" | "content_filter") {
        let words = refusal.unwrap_or(&text);
        let words = if words.is_empty() { String::new() } else { format!(": {}", quoted(words)) };
        return Err(none(format!("refused to describe the image ({}){words}", quoted(ended))));
    }
    let cut = matches!(ended, "max_tokens" | "length");
    match (text.is_empty(), cut) {
        (true, true) => Err(Nothing {
            why: "used up the tokens of its answer before it wrote a description".to_owned(),
            hint: "allow more words (max_words), or continue without the description",
        }),
        (true, false) if ended.is_empty() => Err(none("answered without a description".to_owned())),
        (true, false) => Err(none(format!("answered without a description ({})", quoted(ended)))),
        (false, _) => {
            let model = model_of(answer, model);
            Ok(Described { description: text, model, usage: Usage::of(answer), sha256, cut })
        }
    }
}

/// The text of a message: as it is, or in parts.
fn written(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.trim().to_owned(),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.concat().trim().to_owned()
        }
        Some(_) | None => String::new(),
    }
}
