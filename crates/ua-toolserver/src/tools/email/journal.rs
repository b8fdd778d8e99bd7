//! The record of attempts: one file per key, on stable storage before its message leaves.
//!
//! It knows three things about a key: nothing (no file), attempted (the message may have arrived), accepted (the server
//! said so). A refusal takes the record back to what it was. The lock is held from the look at the record to the end of
//! the attempt, so two calls under one key follow each other, also those of a server that lost its client.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use ua_core::{ShowPath as _, Timestamp};

use crate::answer::Failure;
use crate::area::parent_of;
use crate::digest::sha256_hex;
use crate::workspace::Workspace;

const DIRECTORY: &str = ".ua/mail";
const LOCK: &str = ".ua/mail/.lock";

/// What is known about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// The message was about to leave; nothing is known after that.
    Attempted,
    /// The server took it.
    Accepted,
}

/// One attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) message_id: String,
    /// The server it went to.
    pub(super) via: String,
    pub(super) attempted_at: Timestamp,
    /// What the server said when it took the message.
    pub(super) reference: Option<String>,
}

/// The record of one key, locked.
#[derive(Debug)]
pub(super) struct Journal {
    workspace: Arc<Workspace>,
    path: PathBuf,
    earlier: Option<Entry>,
    _lock: File,
}

impl Journal {
    /// Waits for other senders of this workspace and reads what is known about `key`.
    pub(super) fn open(workspace: Arc<Workspace>, key: &str) -> Result<Self, Failure> {
        let could_not = |error: &std::io::Error| Failure::io("open the record of sent messages", error);
        let lock = workspace.area().lock(Path::new(LOCK)).map_err(|error| could_not(&error))?;
        let path = Path::new(DIRECTORY).join(format!("{}.json", sha256_hex(key)));
        let earlier = match workspace.area().dir().read(&path) {
            Ok(bytes) => Some(serde_json::from_slice(&bytes).map_err(|error| {
                let path = workspace.absolute(&path);
                Failure::Unclear(format!("the record {} of an earlier attempt cannot be read: {error}", path.shown()))
            })?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(could_not(&error)),
        };
        Ok(Self { workspace, path, earlier, _lock: lock })
    }

    /// What was known when the record was opened.
    pub(super) fn earlier(&self) -> Option<&Entry> {
        self.earlier.as_ref()
    }

    /// Puts `entry` on stable storage. Without it nothing may be sent.
    pub(super) fn write(&self, entry: &Entry) -> Result<(), Failure> {
        let bytes = self.workspace.kept(entry).map_err(|error| {
            Failure::refused(format!("the attempt cannot be written down: {error}"), "report this as a bug")
        })?;
        self.workspace.area().replace(&self.path, &bytes).map_err(|error| {
            // Nothing has left yet; whether the record did is for the next look to say.
            let problem = error.into_failure("record the attempt, so nothing was sent").text();
            Failure::refused(problem, "a person has to look at the server's disk")
        })
    }

    /// Takes back the latest attempt: it was refused, and what was known before is all that is known.
    pub(super) fn withdraw(&self) -> std::io::Result<()> {
        if let Some(entry) = &self.earlier {
            return self.write(entry).map_err(|failure| std::io::Error::other(failure.text()));
        }
        self.workspace.area().discard(&self.path)?;
        self.workspace.area().sync(parent_of(&self.path))
    }
}
