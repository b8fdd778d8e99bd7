//! `upload`: creates an object in a store, named by its content, once.
//!
//! The name is `<first 16 digits of the SHA-256>-<file name>`, and the object is created only if the name is free. So
//! the same file uploaded again, with or without a key, finds its object there.

pub(super) mod composio;
mod directory;
mod s3;
pub(super) mod workbench;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::s3::Bucket;
use crate::answer::{Answer, Failure, success};
use crate::context::{Context, Order, Setup, blocking};
use crate::error::ToolServerError;
use crate::media;
use crate::place::Holds;
use crate::settings::Settings;
use crate::tool::{Description, Effect, Opened, Tool};

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

    fn receivers(variables: &BTreeMap<String, String>) -> &'static [&'static str] {
        receivers(variables)
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

    async fn call(&self, context: &Context, given: Arguments, order: Order<'_>) -> Answer {
        let (workspace, files) = (Arc::clone(&context.workspace), order.files.clone());
        let uploaded = match self.0.as_ref() {
            ObjectStore::Directory(root) => {
                let root = root.clone();
                blocking(move || {
                    let file = files.open("open", "path", &workspace, &given.path)?;
                    directory::put(&root, &file.name()?, file, given.destination.as_deref())
                })
                .await?
            }
            ObjectStore::Bucket(bucket) => {
                let place = bucket.place(given.destination.as_deref())?;
                let (name, content) = blocking(move || {
                    let file = files.open("open", "path", &workspace, &given.path)?;
                    let name = file.name()?;
                    let content = file.read(s3::MAX_BYTES, || too_large(&name, s3::MAX_BYTES))?;
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

fn too_large(name: &str, limit: u64) -> Failure {
    Failure::refused(format!("{name:?} is larger than {} MiB", limit >> 20), "split or compress the file")
}

/// The name of the object that holds a file.
fn object_name(sha256: &str, name: &str) -> String {
    format!("{}-{name}", sha256.get(..16).unwrap_or(sha256))
}

/// What chooses where objects go: a bucket is the same one whoever's key opens it.
fn receivers(variables: &BTreeMap<String, String>) -> &'static [&'static str] {
    let is_s3 = variables.get("UA_OBJECTS").is_some_and(|store| store.starts_with("s3:"));
    // Without an address of its own the region says where Amazon's is; else requests are only signed for it.
    match (is_s3, variables.contains_key("UA_S3_ENDPOINT")) {
        (true, true) => &["UA_OBJECTS", "UA_S3_ENDPOINT"],
        (true, false) => &["UA_OBJECTS", "UA_S3_REGION"],
        (false, _) => &["UA_OBJECTS"],
    }
}

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
            let store = Self::new(setup.context.workspace.area().path(), setup.settings)?;
            if let Self::Directory(path) = &store {
                setup.works_at(Upload::NAME, "objects", path, Holds::Files);
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
