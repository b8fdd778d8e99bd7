//! `preview_image`: a small copy of an image of the workspace, to look at or to keep.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::ImageFormat;
use rmcp::model::ContentBlock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::decode::{ImageFile, pack};
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::sent::Said;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

const DEFAULT_SIDE: u32 = 512;
const SIDES: std::ops::RangeInclusive<u32> = 16..=1024;
/// The largest copy that is sent along with the result.
const MAX_SHOWN_BYTES: usize = 256 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The image, relative to the workspace: PNG, JPEG, GIF or WebP.
    path: String,
    /// The longest side of the small copy in pixels; 512 when left out. Smaller images keep their size.
    #[schemars(range(min = 16, max = 1024))]
    max_side: Option<u32>,
    /// What the copy is written as; png when left out.
    #[serde(default)]
    format: Format,
    /// The file to write the copy to, relative to the workspace; it is only shown when left out.
    output: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Png,
    Jpeg,
}

/// The small copy, and what it was made of.
#[derive(Debug, Serialize)]
struct Previewed {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    media_type: &'static str,
    width: u32,
    height: u32,
    bytes: usize,
    sha256: String,
    original: Original,
    /// Whether the copy is in the answer as an image.
    shown: bool,
}

#[derive(Debug, Serialize)]
struct Original {
    media_type: &'static str,
    width: u32,
    height: u32,
    bytes: usize,
    sha256: String,
}

#[derive(Debug)]
pub(in crate::tools) struct PreviewImage;

impl Tool for PreviewImage {
    const NAME: &'static str = "preview_image";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Preview an image",
            "Makes a small copy of an image of the workspace and returns it with its size, kind and SHA-256; writes it to a file when output names one.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let (workspace, files) = (Arc::clone(&context.workspace), order.files.clone());
        let (previewed, copy) = blocking(move || preview(&files, &workspace, &given)).await?;
        let Original { width, height, media_type, .. } = &previewed.original;
        let mut result = success(format!("{media_type}, {width} by {height} pixels"), &previewed)?;
        if previewed.shown {
            result.content.push(ContentBlock::image(STANDARD.encode(copy), previewed.media_type));
        }
        Ok(result)
    }
}

fn preview(files: &Said, workspace: &Workspace, given: &Arguments) -> Result<(Previewed, Vec<u8>), Failure> {
    let side = given.max_side.unwrap_or(DEFAULT_SIDE);
    if !SIDES.contains(&side) {
        return Err(Failure::refused(format!("max_side {side} is not allowed"), "give 16 to 1024 pixels"));
    }
    let output = given.output.as_deref().map(|path| workspace.writable(path)).transpose()?;
    let file = ImageFile::read(files, workspace, &given.path)?;
    let broken = |why: String| {
        Failure::refused(format!("{:?} cannot be unpacked: {why}", given.path), "the file is damaged; create it again")
    };
    let picture = file.unpack().map_err(broken)?;
    let small = if picture.width() > side || picture.height() > side { picture.thumbnail(side, side) } else { picture };
    let (format, media_type) = match given.format {
        Format::Png => (ImageFormat::Png, "image/png"),
        Format::Jpeg => (ImageFormat::Jpeg, "image/jpeg"),
    };
    let copy = pack(&small, format).map_err(broken)?;
    if let Some(output) = &output {
        let _lock = workspace.exclusive()?;
        workspace.area().replace(output, &copy).map_err(|error| error.into_failure("write the preview"))?;
    }
    let previewed = Previewed {
        path: output.map(|path| path.to_string_lossy().into_owned()),
        media_type,
        width: small.width(),
        height: small.height(),
        bytes: copy.len(),
        sha256: sha256_hex(&copy),
        original: Original {
            media_type: file.media_type(),
            width: file.width,
            height: file.height,
            bytes: file.bytes.len(),
            sha256: sha256_hex(&file.bytes),
        },
        shown: copy.len() <= MAX_SHOWN_BYTES,
    };
    Ok((previewed, copy))
}
