//! `generate_image`: a new image of the workspace, drawn by a model.
//!
//! What was paid for is kept: the picture is put on stable storage beside the record of its key before it takes its place,
//! so a server that is killed in between finds it, and does not pay again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::ImageFormat;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{Answered, ImageApi, Nothing, RequestState, Usage, error_in};
use super::decode::{ImageFile, MAX_FILE_BYTES, media_type, pack};
use crate::answer::{Answer, Failure, success};
use crate::area::Created;
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

const MAX_PROMPT_CHARS: usize = 32_000;
/// The extension of the picture that is kept beside its record.
const KEPT: &str = "image";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// What the image shall show.
    #[schemars(length(min = 1, max = 32000))]
    prompt: String,
    /// The file to write, relative to the workspace; its name ends in .png, .jpg or .webp. It must not exist yet.
    output: String,
    /// Width and height, such as 1024x1024; what the model prefers when left out.
    #[schemars(regex(pattern = "^[0-9]{2,4}x[0-9]{2,4}$"))]
    size: Option<String>,
    /// How much effort goes into it, in the model's words (low, medium, high, …); the model's own when left out.
    #[schemars(length(max = 20))]
    quality: Option<String>,
}

/// A picture that was paid for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Drawn {
    media_type: String,
    width: u32,
    height: u32,
    bytes: usize,
    sha256: String,
    model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// What the API made of the prompt before it drew.
    #[serde(skip_serializing_if = "Option::is_none")]
    revised_prompt: Option<String>,
}

#[derive(Debug, Serialize)]
struct Reported<'a> {
    path: String,
    /// Whose API it was.
    provider: &'static str,
    #[serde(flatten)]
    drawn: &'a Drawn,
    /// Whether an earlier attempt paid for it.
    already_paid: bool,
}

/// The tool, where the settings name a model for it.
#[derive(Debug)]
pub(in crate::tools) struct GenerateImage {
    api: Arc<ImageApi>,
    model: String,
}

impl Tool for GenerateImage {
    const NAME: &'static str = "generate_image";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        &["UA_IMAGE_API", "UA_IMAGE_API_KEY"]
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let api = ImageApi::of(setup)?;
        Ok(api.and_then(|api| Some(Self { model: api.draws_with.clone()?, api })))
    }

    fn describe(&self) -> Description {
        let effect = if self.api.honours_keys() { Effect::CreatesPerKey } else { Effect::Creates };
        Description::new(
            "Generate an image",
            "Has the configured image model draw an image and writes it to a new file of the workspace. Each call costs money.",
            effect,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let Self { api, model } = self;
        let prompt = given.prompt.trim();
        if prompt.is_empty() || prompt.chars().count() > MAX_PROMPT_CHARS {
            return Err(Failure::refused(
                format!("the prompt has {} characters", prompt.chars().count()),
                format!("say in 1 to {MAX_PROMPT_CHARS} characters what to draw"),
            ));
        }
        let wanted = wanted_format(&given.output)?;
        let output = context.workspace.writable(&given.output)?;
        let record = match api.standing::<Drawn>(&context.workspace, order).await? {
            RequestState::Done(record, drawn) => {
                let (workspace, kept) = (Arc::clone(&context.workspace), record.beside(KEPT));
                let (to, known) = (output.clone(), drawn.clone());
                blocking(move || place_again(&workspace, &kept, &to, &known)).await?;
                return answer(api, &output, &drawn, true);
            }
            RequestState::Open(record) => record,
        };
        if context.workspace.area().dir().symlink_metadata(&output).is_ok() {
            let hint = "give the name of a file that does not exist yet; nothing was charged";
            return Err(Failure::refused(format!("{:?} exists already", given.output), hint));
        }
        let mut body = json!({"model": model, "prompt": prompt, "n": 1});
        if let Some(size) = &given.size {
            body["size"] = json!(size);
        }
        if let Some(quality) = &given.quality {
            body["quality"] = json!(quality);
        }
        // OpenAI's newer models always answer with the picture itself and know no `response_format`; others have to be told.
        if model.starts_with("gpt-image") {
            let name = media_type(wanted).unwrap_or("image/png");
            body["output_format"] = json!(name.trim_start_matches("image/"));
        } else {
            body["response_format"] = json!("b64_json");
        }
        let said = api.ask("images/generations", &body, order.key, record.as_ref(), &context.env).await?;
        let kept = record.as_ref().map(|record| record.beside(KEPT));
        let (workspace, to) = (Arc::clone(&context.workspace), output.clone());
        let said = Arc::new(said);
        let read = {
            let (workspace, model, said) = (Arc::clone(&workspace), model.to_owned(), Arc::clone(&said));
            blocking(move || {
                let read = read(&said, &model, wanted);
                if let (Some(kept), Ok((_, bytes))) = (&kept, &read) {
                    workspace
                        .area()
                        .replace(kept, bytes)
                        .map_err(|error| unplaced(&error.into_failure("keep the image")))?;
                }
                Ok(read)
            })
            .await?
        };
        let (drawn, bytes) = match read {
            Ok(read) => read,
            Err(why) => {
                let hint = "change the prompt, or continue without the image";
                let nothing = Nothing { why: format!("answered without an image: {why}"), hint };
                return Err(api.in_vain(record.as_ref(), (&said, model), nothing).await);
            }
        };
        if let Some(record) = &record {
            record.finish(Answered::With(drawn.clone())).await;
        }
        blocking(move || place(&workspace, &to, &bytes)).await?;
        answer(api, &output, &drawn, false)
    }
}

fn answer(api: &ImageApi, output: &Path, drawn: &Drawn, already_paid: bool) -> Answer {
    let path = output.to_string_lossy().into_owned();
    success(
        format!("wrote {} by {} pixels to {path}", drawn.width, drawn.height),
        &Reported { path, provider: api.dialect.provider(), drawn, already_paid },
    )
}

/// What came back is paid for, so that nothing came of it cannot be said.
fn unplaced(failure: &Failure) -> Failure {
    Failure::Unclear(format!("the image was paid for, but {}", failure.text()))
}

/// Gives the picture its name, which was free when it was ordered.
fn place(workspace: &Workspace, output: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let _lock = workspace.exclusive().map_err(|failure| unplaced(&failure))?;
    let created = workspace.area().create(output, bytes);
    match created.map_err(|error| unplaced(&error.into_failure("write the image")))? {
        Created::Now => Ok(()),
        Created::Before => {
            Err(unplaced(&Failure::refused(format!("{} was taken meanwhile", output.shown()), "a person has to look")))
        }
    }
}

/// Puts a picture of an earlier attempt in its place, unless it is there.
fn place_again(workspace: &Workspace, kept: &Path, output: &Path, drawn: &Drawn) -> Result<(), Failure> {
    let is_there =
        |path: &Path| workspace.area().dir().read(path).ok().filter(|bytes| sha256_hex(bytes) == drawn.sha256);
    if is_there(output).is_some() {
        return Ok(());
    }
    let bytes = is_there(kept).ok_or_else(|| {
        Failure::Unclear(format!("the image was paid for, but {} does not hold it any more", kept.shown()))
    })?;
    place(workspace, output, &bytes)
}

fn wanted_format(output: &str) -> Result<ImageFormat, Failure> {
    let extension = PathBuf::from(output).extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "png" => Ok(ImageFormat::Png),
        "jpg" | "jpeg" => Ok(ImageFormat::Jpeg),
        "webp" => Ok(ImageFormat::WebP),
        _ => Err(Failure::refused(
            format!("{output:?} does not end in .png, .jpg or .webp"),
            "give the file one of these endings",
        )),
    }
}

/// The picture in an answer, in the wanted format; or why there is none.
fn read(answer: &Value, model: &str, wanted: ImageFormat) -> Result<(Drawn, Vec<u8>), String> {
    // What an API says is said of the whole answer, or of the image.
    let said =
        |why: &str| error_in(answer).or_else(|| error_in(answer.pointer("/data/0")?)).unwrap_or_else(|| why.to_owned());
    let first = answer.pointer("/data/0").ok_or_else(|| said("there is nothing in its `data`"))?;
    let text = first.get("b64_json").and_then(Value::as_str).filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| said("there is no `b64_json` in its `data`"))?;
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("it has {} bytes, more than {MAX_FILE_BYTES}", bytes.len()));
    }
    let mut file = ImageFile::look(bytes)?;
    if file.format != wanted {
        file = ImageFile::look(pack(&file.unpack()?, wanted)?)?;
    }
    let drawn = Drawn {
        media_type: media_type(file.format).unwrap_or_default().to_owned(),
        width: file.width,
        height: file.height,
        bytes: file.bytes.len(),
        sha256: sha256_hex(&file.bytes),
        model: model.to_owned(),
        usage: Usage::of(answer),
        revised_prompt: first.get("revised_prompt").and_then(Value::as_str).map(str::to_owned),
    };
    Ok((drawn, file.bytes))
}
