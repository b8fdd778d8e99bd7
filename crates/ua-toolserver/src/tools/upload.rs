//! `upload`: creates an object in a store, named by its content, once.
//!
//! The name is `<first 16 digits of the SHA-256>-<file name>`, and the object is created only if the name is free. So
//! the same file uploaded again, with or without a key, finds its object there.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::blocking;
use crate::answer::{Answer, Failure, success};
use crate::area::{Area, Created, STAGED};
use crate::digest::copy_hashing;
use crate::error::ToolServerError;
use crate::schema::{self, Effect};
use crate::workspace::Workspace;

pub(super) const NAME: &str = "upload";
const LOCK: &str = ".lock";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file to upload, relative to the workspace.
    path: String,
    /// The file:// URL of a directory of the object store; the store itself when left out.
    destination: Option<String>,
}

#[derive(Debug, Serialize)]
struct Uploaded {
    url: String,
    sha256: String,
    bytes: u64,
    already_present: bool,
}

pub(super) fn describe() -> Tool {
    schema::tool::<Arguments>(
        NAME,
        "Upload a file",
        "Uploads a file of the workspace to the object store. The object's name starts with its content's SHA-256; uploading the same file again finds it there.",
        Effect::CreatesOnce,
    )
}

pub(super) async fn run(workspace: &Arc<Workspace>, store: &Arc<ObjectStore>, given: Arguments) -> Answer {
    let workspace = Arc::clone(workspace);
    let store = Arc::clone(store);
    let uploaded = blocking(move || {
        let path = workspace.readable(&given.path)?;
        let mut file = workspace
            .area()
            .dir()
            .open(&path)
            .map_err(|error| Failure::io(format_args!("open {:?}", given.path), &error))?;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        match path.file_name().and_then(|name| name.to_str()) {
            Some(name) if is_file => store.put(name, &mut file, given.destination.as_deref()),
            _ => Err(Failure::refused(format!("{:?} is not a file", given.path), "name a file with a UTF-8 name")),
        }
    })
    .await?;
    let what = if uploaded.already_present { "already there" } else { "uploaded" };
    success(format!("{what}: {}", uploaded.url), &uploaded)
}

/// Where objects go. A remote store would be a further variant.
#[derive(Debug)]
pub(super) enum ObjectStore {
    /// A directory of this machine.
    Directory(PathBuf),
}

impl ObjectStore {
    /// Reads the setting; without one the store is `<workspace>/objects`.
    pub(super) fn new(workspace: &Path, objects: Option<&str>) -> Result<Self, ToolServerError> {
        let Some(text) = objects else {
            return Ok(Self::Directory(workspace.join("objects")));
        };
        match directory_of(text) {
            Ok(path) => Ok(Self::Directory(path)),
            Err(failure) => {
                Err(ToolServerError::Setting { flag: "objects", value: text.to_owned(), why: failure.text() })
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Directory(path) => path,
        }
    }

    fn put(&self, name: &str, file: &mut impl Read, destination: Option<&str>) -> Result<Uploaded, Failure> {
        match self {
            Self::Directory(root) => put_into_directory(root, name, file, destination),
        }
    }
}

fn put_into_directory(
    root: &Path,
    name: &str,
    file: &mut impl Read,
    destination: Option<&str>,
) -> Result<Uploaded, Failure> {
    let could_not = |error: &std::io::Error| Failure::io("write to the object store", error);
    let below = destination.map_or_else(|| Ok(PathBuf::new()), |text| below(root, text))?;
    let area = Area::open(root).map_err(|error| could_not(&error))?;
    let _lock = area.lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
    area.create_dirs(&below).map_err(|error| could_not(&error))?;

    // The name depends on the content, so the content is staged under a name of its own and hashed on the way.
    let (staged, (sha256, bytes)) = area
        .stage(below.join(format!("{STAGED}upload")), |temp| copy_hashing(file, temp))
        .map_err(|error| error.into_failure("write to the object store"))?;
    let object = below.join(format!("{}-{name}", sha256.get(..16).unwrap_or(&sha256)));
    let created = staged.create(&object).map_err(|error| error.into_failure("name the object"))?;
    if created == Created::Before {
        let (theirs, _) = area
            .dir()
            .open(&object)
            .and_then(|mut found| copy_hashing(&mut found, &mut std::io::sink()))
            .map_err(|error| could_not(&error))?;
        if theirs != sha256 {
            return Err(Failure::refused(
                format!("an object with other content has the name {}", object.display()),
                "objects are never replaced: rename the file, or ask a person to look at the store",
            ));
        }
    }
    let path = area.path().join(&object);
    let url = Url::from_file_path(&path)
        .map_err(|()| Failure::Unclear(format!("{} was written but has no URL", path.display())))?;
    Ok(Uploaded { url: url.into(), sha256, bytes, already_present: created == Created::Before })
}

/// The path below the store that `destination` names.
fn below(root: &Path, destination: &str) -> Result<PathBuf, Failure> {
    let asked = directory_of(destination)?;
    let resolved = root.canonicalize().unwrap_or_else(|_| root.to_path_buf());
    let relative = [root, &resolved].iter().find_map(|root| asked.strip_prefix(root).ok().map(Path::to_path_buf));
    relative.filter(|path| path.components().all(|part| matches!(part, std::path::Component::Normal(_)))).ok_or_else(
        || {
            Failure::refused(
                format!("{destination:?} is not inside the object store"),
                format!(
                    "leave destination out, or name a directory below {}",
                    Url::from_directory_path(&resolved).map_or_else(|()| "it".to_owned(), String::from)
                ),
            )
        },
    )
}

/// The directory that a file:// URL names.
fn directory_of(text: &str) -> Result<PathBuf, Failure> {
    let url = Url::parse(text).map_err(|error| {
        Failure::refused(format!("{text:?} is not a URL: {error}"), "give the file:// URL of a directory")
    })?;
    match url.scheme() {
        "file" => url.to_file_path().map_err(|()| {
            Failure::refused(format!("{text:?} names no directory of this machine"), "give file:///path/to/directory")
        }),
        scheme => Err(Failure::refused(
            format!("{scheme}:// destinations are not supported by this build"),
            "give the file:// URL of a directory",
        )),
    }
}
