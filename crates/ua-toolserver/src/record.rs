//! The record of calls that must not be made twice: one file per idempotency key, written before the request leaves.
//!
//! It knows three things about a key: nothing (no file), begun (the request may have arrived), done (with what came back).
//! The lock of a key is held from the look at its record to the end of the attempt, so two calls under one key follow
//! each other, also those of a server that lost its client (Durable Jobs v1 spec §8.3).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Failure;
use crate::area::parent_of;
use crate::context::blocking;
use crate::digest::sha256_hex;
use crate::workspace::{PRIVATE, Workspace};
use ua_core::ShowPath as _;

/// What is known about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "what", rename_all = "snake_case")]
pub(crate) enum Entry<B, D> {
    /// The request was about to leave; nothing is known after that.
    Begun(B),
    /// It was answered.
    Done(D),
}

/// The record of one key, locked.
#[derive(Debug)]
pub(crate) struct Record<B, D> {
    workspace: Arc<Workspace>,
    path: PathBuf,
    earlier: Option<Entry<B, D>>,
    _lock: File,
}

impl<B, D> Record<B, D>
where
    B: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    D: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
{
    /// Waits for other calls under `key` and reads what is known about it. `kind` is the folder of such records.
    pub(crate) async fn open(workspace: &Arc<Workspace>, kind: &'static str, key: &str) -> Result<Self, Failure> {
        let workspace = Arc::clone(workspace);
        let name = sha256_hex(key);
        blocking(move || {
            let folder = Path::new(PRIVATE).join(kind);
            let could_not = |error: &io::Error| Failure::io("open the record of earlier attempts", error);
            let lock = folder.join(format!("{name}.lock"));
            let lock = workspace.area().lock(&lock).map_err(|error| could_not(&error))?;
            let path = folder.join(format!("{name}.json"));
            let earlier = match workspace.area().dir().read(&path) {
                Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| {
                    let path = workspace.absolute(&path);
                    Failure::Unclear(format!(
                        "the record {} of an earlier attempt cannot be read: {error}",
                        path.shown()
                    ))
                })?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(could_not(&error)),
            };
            Ok(Self { workspace, path, earlier, _lock: lock })
        })
        .await
    }

    /// What was known when the record was opened.
    pub(crate) fn earlier(&self) -> Option<&Entry<B, D>> {
        self.earlier.as_ref()
    }

    /// The file beside the record that keeps what came back, with this extension.
    pub(crate) fn beside(&self, extension: &str) -> PathBuf {
        self.path.with_extension(extension)
    }

    /// Notes on stable storage that the request is about to leave. Without it nothing may be sent.
    pub(crate) async fn begin(&self, begun: B) -> Result<(), Failure> {
        self.write(&Entry::Begun(begun)).await.map_err(|failure| {
            // Nothing has left yet; whether the record did is for the next look to say.
            Failure::refused(failure.text(), "nothing was sent; a person has to look at the server's disk")
        })
    }

    /// Notes what came back. When that fails, less is known the next time, and the answer does not depend on it.
    pub(crate) async fn finish(&self, done: D) {
        if let Err(failure) = self.write(&Entry::Done(done)).await {
            tracing::warn!(problem = failure.text(), "the answer to a call was not recorded");
        }
    }

    /// Takes the attempt back that was begun: it was refused, and what was known before is all that is known. When that
    /// fails, the next attempt under the key is answered with caution.
    pub(crate) async fn withdraw(&self) {
        let undone = if let Some(entry) = &self.earlier {
            self.write(entry).await
        } else {
            let (workspace, path) = (Arc::clone(&self.workspace), self.path.clone());
            let remove = move || {
                let area = workspace.area();
                area.discard(&path).and_then(|()| area.sync(parent_of(&path)))
            };
            blocking(move || remove().map_err(|error| Failure::io("remove the record of an attempt", &error))).await
        };
        if let Err(failure) = undone {
            tracing::warn!(problem = failure.text(), "the record of a refused call was not taken back");
        }
    }

    async fn write(&self, entry: &Entry<B, D>) -> Result<(), Failure> {
        let bytes = self.workspace.kept(entry).map_err(|error| {
            Failure::refused(format!("the attempt cannot be written down: {error}"), "report this as a bug")
        })?;
        let (workspace, path) = (Arc::clone(&self.workspace), self.path.clone());
        blocking(move || {
            workspace.area().replace(&path, &bytes).map_err(|error| error.into_failure("record the attempt"))
        })
        .await
    }
}
