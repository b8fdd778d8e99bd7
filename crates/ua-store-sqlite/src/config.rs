//! What a store is opened with.

use std::path::PathBuf;

/// Where the runtime database is and how careful to be with it.
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// The database file. Its folder is created (0700) when it is missing.
    pub path: PathBuf,
    /// The database must be there: one that is missing or has no tables is refused, not created. Set this when a workspace
    /// beside it shows that there was one.
    pub expected_existing: bool,
    /// The database that has to be there, by its identity: another one is refused, and not changed. One that is made is given it, so that whoever
    /// opens it can know it before it is there. `None` takes any, and draws the identity of one that is made.
    pub identity: Option<String>,
    /// Write `effects.log` beside the database: one line per external attempt and reply.
    pub effects_log: bool,
    /// Accept a file system on which SQLite's locks or syncs are known not to work.
    pub allow_unsafe_filesystem: bool,
}

impl SqliteConfig {
    /// The defaults for `path`: created when missing, with `effects.log`, on safe file systems only.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            expected_existing: false,
            identity: None,
            effects_log: true,
            allow_unsafe_filesystem: false,
        }
    }
}
