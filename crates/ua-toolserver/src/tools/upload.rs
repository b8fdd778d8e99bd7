//! `upload`: creates an object in a store, named by its content, once.
//!
//! The name is `<first 16 digits of the SHA-256>-<file name>`, and the object is created only if the name is free. So
//! the same file uploaded again, with or without a key, finds its object there.

pub(super) mod composio;
mod directory;
mod s3;
pub(super) mod workbench;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::s3::Bucket;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::error::ToolServerError;
use crate::settings::Settings;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;
use crate::{media, regular};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The file to upload, relative to the workspace.
    path: String,
    /// The URL of a place in the object store, file:// or s3:// as the store is; the store itself when left out.
    destination: Option<String>,
}

#[derive(Debug, Serialize)]
struct Uploaded {
    url: String,
    sha256: String,
    bytes: u64,
    already_present: bool,
}

#[derive(Debug)]
pub(super) struct Upload(Arc<ObjectStore>);

impl Tool for Upload {
    const NAME: &'static str = "upload";
    type Arguments = Arguments;

    fn receivers(_variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        RECEIVERS
    }

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        Ok(Some(Self(ObjectStore::of(setup)?)))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Upload a file",
            "Uploads a file of the workspace to the object store. The object's name starts with its content's SHA-256; uploading the same file again finds it there.",
            Effect::CreatesOnce,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        let workspace = Arc::clone(&context.workspace);
        let uploaded = match self.0.as_ref() {
            ObjectStore::Directory(root) => {
                let root = root.clone();
                blocking(move || {
                    let (name, mut file) = open(&workspace, &given.path)?;
                    directory::put(&root, &name, &mut file, given.destination.as_deref())
                })
                .await?
            }
            ObjectStore::Bucket(bucket) => {
                let place = bucket.place(given.destination.as_deref())?;
                let (name, content) = blocking(move || {
                    let (name, file) = open(&workspace, &given.path)?;
                    let mut content = Vec::new();
                    file.take(s3::MAX_BYTES + 1)
                        .read_to_end(&mut content)
                        .map_err(|error| Failure::io(format_args!("read {:?}", given.path), &error))?;
                    Ok((name, content))
                })
                .await?;
                bucket.put(&place, &name, media::type_of(Path::new(&name)), content).await?
            }
        };
        let what = if uploaded.already_present { "already there" } else { "uploaded" };
        success(format!("{what}: {}", uploaded.url), &uploaded)
    }
}

/// The file that `path` names, and its name.
fn open(workspace: &Workspace, given: &str) -> Result<(String, cap_std::fs::File), Failure> {
    let path = workspace.readable(given)?;
    let (file, metadata) = regular::open(workspace.area().dir(), &path)
        .map_err(|error| Failure::io(format_args!("open {given:?}"), &error))?;
    match path.file_name().and_then(|name| name.to_str()) {
        Some(name) if metadata.is_file() => Ok((name.to_owned(), file)),
        Some(_) | None => Err(Failure::refused(format!("{given:?} is not a file"), "name a file with a UTF-8 name")),
    }
}

/// The name of the object that holds a file.
fn object_name(sha256: &str, name: &str) -> String {
    format!("{}-{name}", sha256.get(..16).unwrap_or(sha256))
}

/// What chooses where objects go: a bucket is the same one whoever's key opens it.
const RECEIVERS: &[&str] = &["UA_OBJECTS", "UA_S3_ENDPOINT"];

/// Where objects go.
#[derive(Debug)]
pub(super) enum ObjectStore {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A store that speaks S3's protocol.
    Bucket(Bucket),
}

impl ObjectStore {
    /// The one store of a server. Where it is in the workspace, only these tools write to it.
    fn of(setup: &Setup<'_>) -> Result<Arc<Self>, ToolServerError> {
        setup.shared(|setup| {
            let workspace = &setup.context.workspace;
            let store = Self::new(workspace.area().path(), setup.settings)?;
            if let Self::Directory(path) = &store {
                workspace.reserve(path, Upload::NAME);
            }
            Ok(Arc::new(store))
        })
    }

    /// Reads the setting; without one the store is `<workspace>/objects`.
    fn new(workspace: &Path, settings: &Settings) -> Result<Self, ToolServerError> {
        let Some(text) = settings.objects.as_deref() else {
            return Ok(Self::Directory(workspace.join("objects")));
        };
        if text.starts_with("s3:") {
            return Bucket::new(text, settings).map(Self::Bucket);
        }
        match directory::directory_of(text) {
            Ok(path) => Ok(Self::Directory(path)),
            Err(failure) => {
                Err(ToolServerError::Setting { flag: "objects", value: text.to_owned(), why: failure.text() })
            }
        }
    }
}
