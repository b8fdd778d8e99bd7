//! `list_directory`: names, kinds and sizes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::area::STAGED;
use crate::context::{Context, Order, Setup, blocking};
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::{PRIVATE, Workspace};
use ua_core::ShowPath as _;

const MAX_ENTRIES: usize = 2000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The directory, relative to the workspace; the workspace itself when left out.
    path: Option<String>,
    /// Also lists what is inside the directories found. Symbolic links are not followed.
    #[serde(default)]
    recursive: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    path: String,
    entries: Vec<Entry>,
    /// Whether there is more than could be listed.
    truncated: bool,
}

#[derive(Debug, Serialize)]
struct Entry {
    path: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Debug)]
pub(super) struct ListDirectory;

impl Tool for ListDirectory {
    const NAME: &'static str = "list_directory";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "List a directory",
            "Lists a directory of the workspace, sorted by path: file, directory or symlink, and the sizes of files. At most 2000 entries.",
            Effect::Reads,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let listing = blocking(move || list(&workspace, &given)).await?;
        success(format!("{} entries in {}", listing.entries.len(), listing.path), &listing)
    }
}

fn list(workspace: &Workspace, given: &Arguments) -> Result<Listing, Failure> {
    let asked = given.path.as_deref().unwrap_or(".");
    let root = workspace.readable(asked)?;
    let mut waiting = vec![root.clone()];
    let mut entries = Vec::new();
    let mut truncated = false;
    while let Some(directory) = waiting.pop() {
        let failed = |error: &std::io::Error| Failure::io(format_args!("list {:?}", directory.shown()), error);
        let open = if directory.as_os_str().is_empty() { Path::new(".") } else { &directory };
        let mut found = Vec::new();
        for entry in workspace.area().dir().read_dir(open).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let path: PathBuf = directory.join(entry.file_name());
            let private = directory.as_os_str().is_empty() && entry.file_name().eq_ignore_ascii_case(PRIVATE);
            if !private && !entry.file_name().to_string_lossy().starts_with(STAGED) {
                found.push((path, entry.metadata().map_err(|error| failed(&error))?));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (path, metadata) in found {
            if entries.len() == MAX_ENTRIES {
                truncated = true;
                break;
            }
            let kind = if metadata.is_dir() {
                "directory"
            } else if metadata.is_symlink() {
                "symlink"
            } else {
                "file"
            };
            entries.push(Entry {
                path: path.to_string_lossy().into_owned(),
                kind,
                bytes: metadata.is_file().then_some(metadata.len()),
            });
            if given.recursive && metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let path = if root.as_os_str().is_empty() { ".".to_owned() } else { root.to_string_lossy().into_owned() };
    Ok(Listing { path, entries, truncated })
}
