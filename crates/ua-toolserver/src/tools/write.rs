//! `write_local_file`: puts a whole text file in place in one step.
//!
//! A kill at any instant leaves the file as it was or as it was asked for, so a repeat is harmless (Durable Jobs v1
//! spec §7.2, local writes).

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace. Directories above it are created.
    path: String,
    /// The whole new content.
    content: String,
    /// Must be true to make the file empty, which is otherwise taken for a mistake.
    #[serde(default)]
    allow_empty: bool,
}

/// A file that is now in place.
#[derive(Debug, Serialize)]
struct Written {
    path: String,
    bytes: usize,
    sha256: String,
}

#[derive(Debug)]
pub(super) struct WriteLocalFile;

impl Tool for WriteLocalFile {
    const NAME: &'static str = "write_local_file";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Write a file",
            "Writes a text file of the workspace, replacing the one that is there. Returns its path, size and SHA-256.",
            Effect::Replaces,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let written = blocking(move || write(&workspace, &given)).await?;
        success(format!("wrote {} bytes to {}", written.bytes, written.path), &written)
    }
}

fn write(workspace: &Workspace, given: &Arguments) -> Result<Written, Failure> {
    if given.content.is_empty() && !given.allow_empty {
        return Err(Failure::refused(
            format!("the content for {:?} is empty", given.path),
            "give the content, or set allow_empty to true to really write an empty file",
        ));
    }
    let path = workspace.writable(&given.path)?;
    let _lock = workspace.exclusive()?;
    workspace
        .area()
        .replace(&path, given.content.as_bytes())
        .map_err(|error| error.into_failure(format!("write {:?}", given.path)))?;
    Ok(Written {
        path: path.to_string_lossy().into_owned(),
        bytes: given.content.len(),
        sha256: sha256_hex(&given.content),
    })
}
