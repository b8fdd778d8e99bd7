//! The file that is open, and whether it is still the one at its path.
//!
//! A file that is removed, moved away or replaced stays open to whoever has it: what is written into it is committed, and nobody finds it again. What
//! is sent on the word of such a commit would have no record, and be sent once more by whoever begins anew. So each synced write looks before it
//! commits, and a call is sent behind a synced write only. Proved by: the writer's tests.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_core::ShowPath as _;
use ua_store::StoreError;

use crate::error::{refused, refused_because};

/// A file of which it is known which one it is.
#[derive(Debug)]
pub(crate) struct Opened {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Opened {
    /// The file at `path`, which was opened just now; `None` for what is in no file.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        let file = fs::metadata(path).ok()?;
        Some(Self { path: path.to_path_buf(), device: file.dev(), inode: file.ino() })
    }

    /// Refuses to go on when another file is at the path, or none.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let path = self.path.shown();
        let lost = "nothing more is written or sent, since nobody would find what is recorded now";
        match fs::metadata(&self.path) {
            Ok(file) if (file.dev(), file.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => {
                Err(refused(format!("the database {path} was replaced by another file while it was open; {lost}")))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(refused(format!("the database {path} was removed or moved away while it was open; {lost}")))
            }
            Err(error) => Err(refused_because(
                format!("it cannot be looked at whether the database is still at {path}; {lost}"),
                error,
            )),
        }
    }
}
