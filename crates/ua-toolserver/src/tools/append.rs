//! `append_to_file`: adds text to the end of a file; with an idempotency key, exactly once.
//!
//! Before the file is touched, a journal entry `.ua/appends/<sha256 of the key>.json` says where the text will go. A
//! repeat with the same key writes the same bytes to the same place, so it completes a torn append, finds a finished
//! one, and never adds a second copy (Durable Jobs v1 spec §8.2).

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::{File, OpenOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Failure, success};
use crate::area::parent_of;
use crate::context::{Context, Order, Setup, blocking};
use crate::digest::sha256_hex;
use crate::regular;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

const JOURNAL: &str = ".ua/appends";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file, relative to the workspace. It is created when missing.
    path: String,
    /// The text to add. No line break is added to it.
    #[schemars(length(min = 1))]
    content: String,
}

#[derive(Debug, Serialize)]
struct Appended {
    path: String,
    /// Where the text starts.
    offset: u64,
    /// How much was added.
    added: u64,
    /// The size of the file now.
    bytes: u64,
    /// Whether an earlier call with the same key had already added it.
    already_applied: bool,
}

/// Where the append of one key goes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    size_before: u64,
    sha256: String,
}

#[derive(Debug)]
pub(super) struct AppendToFile;

impl Tool for AppendToFile {
    const NAME: &'static str = "append_to_file";
    type Arguments = Arguments;

    fn open(_: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Append to a file",
            "Adds text to the end of a file of the workspace. With an idempotency key in _meta the text is added exactly once.",
            Effect::Adds,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let key = order.key.map(str::to_owned);
        let appended = blocking(move || append(&workspace, &given, key.as_deref())).await?;
        let what = if appended.already_applied { "had already appended" } else { "appended" };
        success(format!("{what} {} bytes to {}", appended.added, appended.path), &appended)
    }
}

fn append(workspace: &Workspace, given: &Arguments, key: Option<&str>) -> Result<Appended, Failure> {
    if given.content.is_empty() {
        return Err(Failure::refused("the content is empty", "give the text to add"));
    }
    let path = workspace.writable(&given.path)?;
    let _lock = workspace.exclusive()?;
    let could_not = |error: &io::Error| Failure::io(format_args!("append to {:?}", given.path), error);

    let size_now = match workspace.area().dir().metadata(&path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(_) => {
            return Err(Failure::refused(format!("{:?} is not a file", given.path), "name a file"));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(could_not(&error)),
    };
    let content = given.content.as_bytes();
    let (offset, journalled) = match key {
        None => (size_now, false),
        Some(key) => {
            let entry = Entry { path: path.clone(), size_before: size_now, sha256: sha256_hex(content) };
            let (entry, journalled) = enter(workspace, key, entry)?;
            (entry.size_before, journalled)
        }
    };

    let parent = parent_of(&path);
    workspace.area().create_dirs(parent).map_err(|error| could_not(&error))?;
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let (mut file, _) =
        regular::open_with(workspace.area().dir(), &path, options).map_err(|error| could_not(&error))?;
    let end = offset + content.len() as u64;
    let already_applied = journalled && is_applied(&mut file, size_now, offset, content, &given.path)?;
    if !already_applied && let Err(error) = put(&mut file, offset, content) {
        // Taking back what was written makes this a plain refusal; only if that fails too, nobody can tell.
        return Err(match file.set_len(offset).and_then(|()| file.sync_all()) {
            Ok(()) => could_not(&error),
            Err(second) => Failure::Unclear(format!("could not append to {:?}: {error}, then {second}", given.path)),
        });
    }
    file.sync_all()
        .and_then(|()| workspace.area().sync(parent))
        .map_err(|error| Failure::Unclear(format!("could not sync {:?}: {error}", given.path)))?;
    Ok(Appended {
        path: path.to_string_lossy().into_owned(),
        offset,
        added: content.len() as u64,
        bytes: if already_applied { size_now } else { end },
        already_applied,
    })
}

/// Makes the journal entry of `key`, or finds the one an earlier call made (then the flag is true).
fn enter(workspace: &Workspace, key: &str, entry: Entry) -> Result<(Entry, bool), Failure> {
    let name = Path::new(JOURNAL).join(format!("{}.json", sha256_hex(key)));
    match workspace.area().dir().read(&name) {
        Ok(bytes) => {
            let earlier: Entry = serde_json::from_slice(&bytes).map_err(|error| {
                Failure::Unclear(format!("the journal entry {} cannot be read: {error}", name.shown()))
            })?;
            if earlier.path != entry.path || earlier.sha256 != entry.sha256 {
                return Err(Failure::refused(
                    format!("this idempotency key was used to append something else to {}", earlier.path.shown()),
                    "use a new key for a new append",
                ));
            }
            Ok((earlier, true))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let bytes = serde_json::to_vec(&entry)
                .map_err(|error| Failure::refused(format!("could not note the append: {error}"), "use a plain path"))?;
            workspace
                .area()
                .replace(&name, &bytes)
                .map_err(|error| error.into_failure("note the append in the journal"))?;
            Ok((entry, false))
        }
        Err(error) => Err(Failure::io("look up the append in the journal", &error)),
    }
}

/// Whether the bytes of an earlier attempt are all in their place; an error when the place holds something else.
fn is_applied(file: &mut File, size_now: u64, offset: u64, content: &[u8], path: &str) -> Result<bool, Failure> {
    if size_now < offset {
        return Err(Failure::Unclear(format!(
            "{path:?} became shorter ({size_now} bytes) than it was before the first append with this key ({offset} bytes)"
        )));
    }
    let mut found = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(content.len() as u64).read_to_end(&mut found))
        .map_err(|error| Failure::Unclear(format!("could not read {path:?} back: {error}")))?;
    if found == content {
        return Ok(true);
    }
    if size_now > offset + content.len() as u64 {
        return Err(Failure::Unclear(format!(
            "{path:?} holds other text where the first append with this key would be"
        )));
    }
    Ok(false) // torn: what is after `offset` is ours and incomplete
}

fn put(file: &mut File, offset: u64, content: &[u8]) -> io::Result<()> {
    file.set_len(offset)?;
    file.seek(SeekFrom::Start(offset))?;
    file.write_all(content)?;
    file.sync_all()
}
