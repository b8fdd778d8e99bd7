//! What stands beside a database and is a part of it to SQLite: its write-ahead log, and a journal.
//!
//! SQLite takes the pages of whatever log stands there for newer than those of the file, and rolls any journal back into it, so whoever puts one
//! there, as version control puts files into a folder that it does not look at, changes any row. So the own log has a mark that no checkout and no
//! archive of one carries: an attribute of the file (`user.ua.database`) with the identity of the database. The database's file has the same
//! one, which says that its logs are marked. Both are kept by what copies files with their attributes, and lost by what does not.
//!
//! Invariants: no page is in the log of a marked database before the log has its mark; a database whose log cannot be marked is not marked
//! either, and neither is one on a file system that may forget the mark of a log and keep what was written after it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use ua_store::StoreError;

use crate::error::refused_because;
use crate::filesystem::keeps_attributes;
use crate::open::{folder_of, regular, sibling_file};

/// The attribute of a file.
const MARK: &str = "user.ua.database";
/// The longest mark that is read: an identity.
const MAX_MARK_BYTES: usize = 64;
/// What SQLite reads beside a database and believes. The index of the log is made anew by whoever opens the database first.
const BELIEVED: [&str; 2] = ["-wal", "-journal"];

/// What stands beside the database at `path`, would be taken for a part of it, and was left there by nobody's `ua`; `None` where there is
/// nothing, or where that cannot be told.
#[must_use]
pub fn foreign_beside(path: &Path) -> Option<PathBuf> {
    foreign_files(path).next().map(|(file, ..)| file)
}

/// Takes what stands beside the database for its own from here on, because a person said so.
///
/// # Errors
///
/// `Unavailable` when the mark cannot be written.
pub fn adopt_beside(path: &Path) -> Result<(), StoreError> {
    foreign_files(path).try_for_each(|(name, file, own)| {
        let failed = |error: Errno| refused_because(format!("{} cannot be marked", name.display()), error);
        rustix::fs::fsetxattr(&file, MARK, &own, XattrFlags::empty()).map_err(failed)
    })
}

/// The same, opened, with the mark of the database.
fn foreign_files(path: &Path) -> impl Iterator<Item = (PathBuf, File, Vec<u8>)> + use<> {
    // By its name: a descriptor of the database that is closed would give up SQLite's locks.
    let own = mark(|buffer| rustix::fs::lgetxattr(path, MARK, buffer)).ok().flatten();
    let files = BELIEVED.map(|suffix| sibling_file(path, suffix));
    own.into_iter().flat_map(move |own| {
        let foreign = |name: PathBuf, own: Vec<u8>| {
            // What is no file, or cannot be opened, is refused by whoever opens the database.
            let file = regular(OpenOptions::new().read(true), &name).ok()?;
            // In this order: the own log has its mark before something is in it.
            let has_pages = file.metadata().is_ok_and(|file| file.len() > 0);
            let is_others = mark_of(&file).is_ok_and(|mark| mark.as_ref() != Some(&own));
            (has_pages && is_others).then_some((name, file, own))
        };
        files.clone().into_iter().filter_map(move |name| foreign(name, own.clone()))
    })
}

/// Marks the log of a database that is open, before anything is written into it, and then the database.
///
/// # Errors
///
/// `Unavailable` when neither can the log be marked nor the mark of the database be taken away: the log would be refused after a kill.
pub(crate) fn mark_log(path: &Path, identity: &str) -> Result<(), StoreError> {
    if !keeps_attributes(folder_of(path)) {
        return Ok(());
    }
    let own = identity.as_bytes();
    let set = |file: &File| match mark_of(file) {
        Ok(Some(mark)) if mark == own => Ok(()),
        Ok(_) | Err(_) => rustix::fs::fsetxattr(file, MARK, own, XattrFlags::empty()).map_err(std::io::Error::from),
    };
    match regular(OpenOptions::new().read(true), &sibling_file(path, "-wal")).and_then(|log| set(&log)) {
        Ok(()) => {
            mark_database(path, identity);
            Ok(())
        }
        Err(error) => {
            tracing::debug!(%error, database = %path.display(), "the log cannot be marked as this database's own");
            unmark(path)
        }
    }
}

/// Says of a database that its logs are marked. It has none that is not, and no journal.
pub(crate) fn mark_database(path: &Path, identity: &str) {
    let own = identity.as_bytes();
    if mark(|buffer| rustix::fs::lgetxattr(path, MARK, buffer)).is_ok_and(|mark| mark.as_deref() == Some(own)) {
        return;
    }
    // A journal that was removed may be there again after the machine stopped, unless its folder is synced first.
    let synced = File::open(folder_of(path)).and_then(|folder| folder.sync_all());
    let marked = synced.and_then(|()| Ok(rustix::fs::lsetxattr(path, MARK, own, XattrFlags::empty())?));
    if let Err(error) = marked {
        tracing::debug!(%error, database = %path.display(), "the database cannot be marked as one whose log is");
    }
}

/// Says of a database that its logs are not marked from here on.
fn unmark(path: &Path) -> Result<(), StoreError> {
    // Where marks cannot be read there is none that anybody goes by.
    if !mark(|buffer| rustix::fs::lgetxattr(path, MARK, buffer)).is_ok_and(|mark| mark.is_some()) {
        return Ok(());
    }
    match rustix::fs::lremovexattr(path, MARK) {
        Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
        Err(error) => Err(refused_because(format!("the log of {} cannot be marked as its own", path.display()), error)),
    }
}

fn mark_of(file: impl AsFd) -> rustix::io::Result<Option<Vec<u8>>> {
    mark(|buffer| rustix::fs::fgetxattr(&file, MARK, buffer))
}

/// A mark; one that is longer than any of ours is none of ours, and not read.
fn mark(read: impl FnOnce(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Option<Vec<u8>>> {
    let mut buffer = [0; MAX_MARK_BYTES];
    match read(&mut buffer) {
        Ok(bytes) => Ok(buffer.get(..bytes).map(<[u8]>::to_vec)),
        Err(Errno::NODATA | Errno::RANGE) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const IDENTITY: &str = "0123456789abcdef0123456789abcdef";

    /// A place for a database, if marks are kept there.
    fn place() -> Option<(tempfile::TempDir, PathBuf)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, "a database").unwrap();
        keeps_attributes(folder.path()).then_some((folder, path))
    }

    /// Over everything that may stand beside a database: what is in it, whose mark it has, and what the database says.
    #[test]
    fn only_what_has_the_mark_of_the_database_is_its_own() {
        let Some((_folder, path)) = place() else { return };
        let set = |file: &Path, mark: Option<&str>| match mark {
            Some(mark) => rustix::fs::lsetxattr(file, MARK, mark.as_bytes(), XattrFlags::empty()).unwrap(),
            None => assert!(matches!(rustix::fs::lremovexattr(file, MARK), Ok(()) | Err(Errno::NODATA))),
        };
        let longer = "x".repeat(MAX_MARK_BYTES + 1);
        let marks = [None, Some(IDENTITY), Some("of another"), Some(""), Some(&*longer)];
        for says in [None, Some(IDENTITY)] {
            set(&path, says);
            for suffix in BELIEVED {
                let file = sibling_file(&path, suffix);
                for content in [None, Some(""), Some("pages")] {
                    for mark in marks {
                        fs::remove_file(&file).unwrap_or_default();
                        if let Some(content) = content {
                            fs::write(&file, content).unwrap();
                            set(&file, mark);
                        }
                        let is_foreign = says.is_some() && content == Some("pages") && mark != Some(IDENTITY);
                        let case = format!("{says:?} {suffix} {content:?} {mark:?}");
                        assert_eq!(foreign_beside(&path), is_foreign.then(|| file.clone()), "{case}");
                        adopt_beside(&path).unwrap();
                        assert_eq!(foreign_beside(&path), None, "{case}");
                    }
                }
                fs::remove_file(&file).unwrap();
            }
        }
    }

    /// Killed before or after each step, with each kind of log: a log in which something may be written after that is never refused.
    #[test]
    fn a_log_is_marked_before_its_database_says_so() {
        let Some((_folder, path)) = place() else { return };
        let log = sibling_file(&path, "-wal");
        for before in [None, Some(IDENTITY)] {
            for content in ["", "of an earlier version, which marks nothing"] {
                match before {
                    None => unmark(&path).unwrap(),
                    Some(identity) => mark_database(&path, identity),
                }
                fs::remove_file(&log).unwrap_or_default();
                fs::write(&log, content).unwrap();
                mark_log(&path, IDENTITY).unwrap();
                // Steps do not depend on what came before: again, by another process.
                mark_log(&path, IDENTITY).unwrap();
                fs::write(&log, "pages").unwrap();
                assert_eq!(foreign_beside(&path), None, "{before:?} {content:?}");
                // The next log, of which the last process that closes the database makes way.
                fs::remove_file(&log).unwrap();
                assert_eq!(foreign_beside(&path), None);
                // As version control puts a file there: under its name, or by another one's name.
                for is_renamed in [false, true] {
                    fs::remove_file(&log).unwrap_or_default();
                    let made = if is_renamed { path.with_extension("new") } else { log.clone() };
                    fs::write(&made, "pages").unwrap();
                    if is_renamed {
                        fs::rename(&made, &log).unwrap();
                    }
                    assert_eq!(foreign_beside(&path), Some(log.clone()), "{is_renamed}");
                }
            }
        }
        // Where the log cannot be marked, nothing is refused later.
        fs::remove_file(&log).unwrap();
        mark_log(&path, IDENTITY).unwrap();
        fs::write(&log, "pages").unwrap();
        assert_eq!(foreign_beside(&path), None, "the database does not say any more that its logs are marked");
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_called_foreign() {
        let Some((_folder, path)) = place() else { return };
        mark_database(&path, IDENTITY);
        let log = sibling_file(&path, "-wal");
        rustix::fs::mkfifoat(rustix::fs::CWD, &log, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(foreign_beside(&path), None, "opening the database refuses it");
        fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(&path, &log).unwrap();
        assert_eq!(foreign_beside(&path), None);
    }
}
