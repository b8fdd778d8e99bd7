//! `read_local_file`: a piece of a text file of the workspace.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

const DEFAULT_LIMIT: u32 = 64 * 1024;
const MAX_LIMIT: u32 = 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace.
    path: String,
    /// The byte to start at; 0 is the first. `next_offset` of an earlier result continues it.
    #[serde(default)]
    offset: u64,
    /// The most bytes to return; 65536 when left out.
    #[schemars(range(min = 4, max = 1_048_576))]
    limit: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Piece {
    path: String,
    /// The size of the whole file.
    bytes: u64,
    offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    content: String,
}

#[derive(Debug)]
pub(super) struct ReadLocalFile;

impl Tool for ReadLocalFile {
    const NAME: &'static str = "read_local_file";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Read a file",
            "Reads a UTF-8 text file of the workspace. Long files come in pieces: when the result has next_offset, call again with offset set to it.",
            Effect::Reads,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let piece = blocking(move || read(&workspace, &given)).await?;
        success(format!("{} of {} bytes of {}", piece.content.len(), piece.bytes, piece.path), &piece)
    }
}

fn read(workspace: &Workspace, given: &Arguments) -> Result<Piece, Failure> {
    let limit = given.limit.unwrap_or(DEFAULT_LIMIT).clamp(4, MAX_LIMIT);
    let path = workspace.readable(&given.path)?;
    let failed = |error: &std::io::Error| Failure::io(format_args!("read {:?}", given.path), error);
    let (mut file, metadata) = regular::open(workspace.area().dir(), &path).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Failure::refused(
            format!("{:?} is not a file", given.path),
            "list_directory shows what is inside a directory",
        ));
    }
    let bytes = metadata.len();
    file.seek(SeekFrom::Start(given.offset)).map_err(|error| failed(&error))?;
    let mut content = Vec::new();
    file.take(u64::from(limit)).read_to_end(&mut content).map_err(|error| failed(&error))?;
    let ends_here = given.offset.saturating_add(content.len() as u64) >= bytes;
    let content = match String::from_utf8(content) {
        Ok(text) => text,
        // A character cut by the limit is left to the next piece; anything else is not text.
        Err(error)
            if !ends_here && error.utf8_error().error_len().is_none() && error.utf8_error().valid_up_to() > 0 =>
        {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8(bytes).unwrap_or_default()
        }
        Err(error) => {
            return Err(Failure::refused(
                format!(
                    "{:?} is not UTF-8 text at byte {}",
                    given.path,
                    given.offset.saturating_add(error.utf8_error().valid_up_to() as u64)
                ),
                "only text can be read; start at an offset that an earlier result gave, or attach or upload the file unread",
            ));
        }
    };
    let end = given.offset.saturating_add(content.len() as u64);
    Ok(Piece {
        path: path.to_string_lossy().into_owned(),
        bytes,
        offset: given.offset,
        next_offset: (end < bytes).then_some(end),
        content,
    })
}
