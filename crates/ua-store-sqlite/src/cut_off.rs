//! A restore that was killed between its renames: nothing stands in the place of the database, which is whole beside it twice, as it was and as
//! the copy that was to take its place.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::open;

/// What stands beside a database under its name: the file itself, its log and its journal.
pub(crate) const FILES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// What a killed restore left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff {
    /// The database that was in the place, all of it but for a log that may stand there still.
    pub kept: PathBuf,
    /// The copy that was to take the place.
    pub copy: PathBuf,
}

/// The name of what stands beside a database under its name and a suffix.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Where a restore to `path` has its copy once it is complete.
pub(crate) fn fresh(path: &Path) -> PathBuf {
    beside(path, ".restoring")
}

/// Where a restore to `path` makes its copy. Under another name, so that what one left that was killed is known until the next one is complete.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    beside(path, ".restoring-next")
}

/// What a restore to `path` left that was killed after it had taken the database out of its place; `None` when something is there, or nothing was
/// taken.
pub fn cut_off_restore(path: &Path) -> Option<CutOff> {
    let copy = fresh(path);
    let begun = fs::symlink_metadata(&copy).ok().filter(fs::Metadata::is_file)?;
    if path.symlink_metadata().is_ok() {
        return None;
    }
    let beginning = beside(path, ".before-");
    let beginning = beginning.file_name()?.as_encoded_bytes();
    let mut newest: Option<((String, u32), PathBuf)> = None;
    for entry in fs::read_dir(open::folder_of(path)).ok()?.flatten() {
        let name = entry.file_name();
        let when = name.as_encoded_bytes().strip_prefix(beginning).and_then(stamp_of);
        let Some(when) = when else { continue };
        // It was renamed after the copy was complete; what an earlier restore kept was there before.
        let is_of_this_one = entry.metadata().is_ok_and(|file| {
            file.is_file() && (file.ctime(), file.ctime_nsec()) >= (begun.mtime(), begun.mtime_nsec())
        });
        if is_of_this_one && newest.as_ref().is_none_or(|(known, _)| *known < when) {
            newest = Some((when, entry.path()));
        }
    }
    newest.map(|(_, kept)| CutOff { kept, copy })
}

/// The databases that restores to `path` put aside, the oldest first. They may have runs that the database there has not.
pub fn kept_by_restores(path: &Path) -> Vec<PathBuf> {
    let beginning = beside(path, ".before-");
    let Some(beginning) = beginning.file_name().map(|name| name.as_encoded_bytes().to_vec()) else { return Vec::new() };
    let entries = fs::read_dir(open::folder_of(path)).into_iter().flatten().flatten();
    let kept = entries.filter_map(|entry| {
        let name = entry.file_name();
        let rest = std::str::from_utf8(name.as_encoded_bytes().strip_prefix(&beginning[..])?).ok()?;
        // Not what lies beside one: `-wal`, `-shm`.
        let is_whole = rest.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'_' | b'-'));
        let is_file = is_whole && entry.metadata().is_ok_and(|file| file.is_file());
        is_file.then(|| (stamp_of(rest.as_bytes()), entry.path()))
    });
    let mut kept: Vec<_> = kept.collect();
    kept.sort();
    kept.into_iter().map(|(_, path)| path).collect()
}

/// When a database was taken out of its place, and as the how manyth of that second; `None` of what is beside one.
fn stamp_of(rest: &[u8]) -> Option<(String, u32)> {
    let rest = std::str::from_utf8(rest).ok()?;
    let (stamp, number) = match rest.split_once('-') {
        Some((stamp, number)) => (stamp, number.parse().ok()?),
        None => (rest, 1),
    };
    Some((stamp.to_owned(), number))
}

impl CutOff {
    /// Takes what stands at `path` still to what it belongs to.
    pub(crate) fn tidy(&self, path: &Path) -> io::Result<()> {
        for suffix in &FILES[1..] {
            match fs::rename(beside(path, suffix), beside(&self.kept, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_what_was_kept_are_told_from_those_of_its_logs() {
        let of = |rest: &str| stamp_of(rest.as_bytes());
        assert_eq!(of("20261128_082051"), Some(("20261128_082051".to_owned(), 1)));
        assert_eq!(of("20261128_082051-10"), Some(("20261128_082051".to_owned(), 10)));
        for beside in ["20261128_082051-wal", "20261128_082051-2-shm", "20261128_082051-journal"] {
            assert_eq!(of(beside), None, "{beside}");
        }
    }
}
