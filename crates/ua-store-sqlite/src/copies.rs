//! Another copy of a database.
//!
//! A copy that is driven does not know what the other one sends. Both have one identity, and name the same folders for their runs; so whoever
//! drives a run looks into the folder in which that run's folder lies. Proved by: the tests below; `ua-sdk`'s `tests/sdk/copied.rs`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ua_core::{RunId, Timestamp};

use crate::departure::Standing;
use crate::maintenance::uuid_of;
use crate::open::holds_nothing;
use crate::source::Source;

/// Where another copy of a database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnotherCopy {
    /// Here.
    Here(PathBuf),
    /// On a server; this is what is left here of the file that was moved there.
    Moved(PathBuf),
}

/// Another copy of the database `ours`, at `theirs` or moved from there to a server.
pub fn another_copy(ours: &Path, theirs: &Path) -> Option<AnotherCopy> {
    if let Some(left) = left_of(theirs).find(|left| is_copy(ours, left)) {
        return Some(AnotherCopy::Moved(left));
    }
    let is_another = theirs.is_file() && !is_one(ours, theirs) && is_copy(ours, theirs);
    is_another.then(|| AnotherCopy::Here(theirs.to_path_buf()))
}

/// What lies beside a database, or where it was, of files that were moved from there to servers.
pub fn left_of(database: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let mut kept = database.file_name().unwrap_or_default().to_os_string();
    kept.push(".moved-");
    let folder = database.parent().map(Path::to_path_buf).unwrap_or_default();
    let is_one = move |path: &PathBuf| {
        path.file_name().map(OsStr::as_encoded_bytes).is_some_and(|name| name.starts_with(kept.as_encoded_bytes()))
    };
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).filter(is_one)
}

/// Whether the database at `path` has a run of this id that was stored at this moment, whatever else it is a copy of.
pub fn holds_run(path: &Path, run: &RunId, created_at: Timestamp) -> bool {
    let holds = || {
        let stored: String = Source::of(path)
            .connect()
            .ok()?
            .query_row("SELECT created_at FROM runs WHERE run_id = ?1", [run.as_str()], |row| row.get(0))
            .ok()?;
        Some(Timestamp::parse(&stored) == Some(created_at))
    };
    path.is_file() && holds() == Some(true)
}

/// Whether runs are kept in the file at `path` and nowhere else, as far as anybody can tell: one that was given to a server keeps none, nor does a
/// copy of one that was, and one that cannot be read may keep some.
pub fn keeps_runs(path: &Path) -> bool {
    let has_some = || {
        let sql = "SELECT EXISTS (SELECT 1 FROM runs)";
        Source::of(path).connect().ok()?.query_row(sql, [], |row| row.get::<_, bool>(0)).ok()
    };
    let was_given = || {
        matches!(Standing::of(path), Ok(Standing::Leaving(_) | Standing::Left(_)))
            || left_of(path).any(|left| is_copy(path, &left))
    };
    path.is_file() && !holds_nothing(path) && has_some() != Some(false) && !was_given()
}

/// Whether two files are databases of one identity.
pub fn is_copy(ours: &Path, theirs: &Path) -> bool {
    uuid_of(theirs).is_some_and(|id| uuid_of(ours) == Some(id))
}

/// Whether two paths lead to one thing.
pub fn is_one(ours: &Path, theirs: &Path) -> bool {
    let of = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    of(ours).is_some_and(|ours| of(theirs) == Some(ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SqliteConfig, SqliteStore};

    #[test]
    fn a_copy_is_known_by_its_identity_and_a_link_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| folder.path().join(name);
        SqliteStore::open(SqliteConfig::new(of("a"))).unwrap().close().unwrap();
        SqliteStore::open(SqliteConfig::new(of("b"))).unwrap().close().unwrap();
        fs::copy(of("a"), of("c")).unwrap();
        fs::hard_link(of("a"), of("d")).unwrap();
        std::os::unix::fs::symlink(of("a"), of("e")).unwrap();
        let found = |theirs: &str| another_copy(&of("a"), &of(theirs));
        assert_eq!(found("c"), Some(AnotherCopy::Here(of("c"))));
        for other in ["a", "b", "d", "e", "none"] {
            assert_eq!(found(other), None, "{other}");
        }
        fs::rename(of("c"), of("f.moved-20261127T020000Z")).unwrap();
        assert_eq!(found("f"), Some(AnotherCopy::Moved(of("f.moved-20261127T020000Z"))));
        assert_eq!(found("g"), None);
    }
}
