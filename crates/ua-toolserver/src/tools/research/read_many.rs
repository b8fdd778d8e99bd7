//! `read_research_files`: several text files in one call, as many as fit.

use std::io::Read as _;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

const MAX_PATHS: usize = 50;
const DEFAULT_CHARS: u32 = 75_000;
const MAX_CHARS: u32 = 180_000;
/// One file does not take the place of all others.
const MAX_CHARS_PER_FILE: usize = 50_000;
const MAX_FILE_BYTES: u64 = 32 * 1024 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::tools) struct Arguments {
    /// The files, relative to the workspace, in the order to read them in.
    #[schemars(length(min = 1, max = 50))]
    file_paths: Vec<String>,
    /// The most characters in all; 75000 when left out. No file gets more than 50000.
    #[schemars(range(min = 1000, max = 180_000))]
    max_chars: Option<u32>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "lowercase")]
enum Piece {
    Ok {
        path: String,
        content: String,
        /// Where read_local_file goes on, in bytes.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_offset: Option<usize>,
    },
    Error {
        path: String,
        error: String,
    },
}

#[derive(Debug, Serialize)]
struct Batch {
    files: Vec<Piece>,
    /// What did not fit: call again with these.
    remaining: Vec<String>,
}

#[derive(Debug)]
pub(in crate::tools) struct ReadResearchFiles;

impl Tool for ReadResearchFiles {
    const NAME: &'static str = "read_research_files";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Read research files",
            "Reads several UTF-8 text files of the workspace in one call. What does not fit is listed in `remaining`; a file that is cut says where read_local_file goes on.",
            Effect::Reads,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        if given.file_paths.is_empty() || given.file_paths.len() > MAX_PATHS {
            return Err(Failure::refused(
                format!("{} files were named", given.file_paths.len()),
                format!("name 1 to {MAX_PATHS} files in one call"),
            ));
        }
        let workspace = Arc::clone(&context.workspace);
        let batch = blocking(move || Ok(read(&workspace, given))).await?;
        let read = batch.files.iter().filter(|piece| matches!(piece, Piece::Ok { .. })).count();
        success(format!("read {read} files, {} remain", batch.remaining.len()), &batch)
    }
}

fn read(workspace: &Workspace, given: Arguments) -> Batch {
    let mut left = given.max_chars.unwrap_or(DEFAULT_CHARS).min(MAX_CHARS) as usize;
    let mut batch = Batch { files: Vec::new(), remaining: Vec::new() };
    for path in given.file_paths {
        if left == 0 {
            batch.remaining.push(path);
            continue;
        }
        batch.files.push(match one(workspace, &path) {
            Ok(text) => {
                let end = text.char_indices().nth(left.min(MAX_CHARS_PER_FILE)).map(|(at, _)| at);
                let content = text.get(..end.unwrap_or(text.len())).unwrap_or_default().to_owned();
                left = left.saturating_sub(content.chars().count());
                Piece::Ok { path, content, next_offset: end }
            }
            Err(failure) => Piece::Error { path, error: failure.text() },
        });
    }
    batch
}

fn one(workspace: &Workspace, given: &str) -> Result<String, Failure> {
    let path = workspace.readable(given)?;
    let failed = |error: &std::io::Error| Failure::io(format_args!("read {given:?}"), error);
    let (file, metadata) = regular::open(workspace.area().dir(), &path).map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Err(Failure::refused(
            format!("{given:?} is not a file"),
            "list_directory shows what is inside a directory",
        ));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| failed(&error))?;
    Ok(text)
}
