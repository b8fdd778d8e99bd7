//! A folder or file of this machine that a tool works in and that the settings choose. It is made when it is first used; whether it can be is
//! asked before anything is begun, because a call that finds out has failed.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::error::ToolServerError;

/// What every SQLite database begins with.
const SQLITE: &[u8; 16] = b"SQLite format 3\0";

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// A folder that files are put into. It may be no link itself: somebody else could choose where it leads.
    Files,
    /// An SQLite database.
    Database,
}

/// A place, and the flag that chooses it.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) holds: Holds,
}

impl Place {
    /// Refuses one that no call could use.
    pub(crate) fn look(&self) -> Result<(), ToolServerError> {
        look(&self.path, self.holds).map_err(|error| ToolServerError::Setting {
            flag: self.flag,
            value: self.path.display().to_string(),
            why: error.to_string(),
        })
    }
}

/// Whether a place can be used, as far as can be told without making anything.
///
/// # Errors
/// What stands in the way.
pub fn look(path: &Path, holds: Holds) -> io::Result<()> {
    let path = &std::path::absolute(path)?;
    let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let found = match holds {
        Holds::Files => path.symlink_metadata(),
        Holds::Database => path.metadata(),
    };
    let found = match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return can_be_made(path),
        found => found?,
    };
    match holds {
        Holds::Files if found.is_symlink() => refused("it is a link, and links are not followed there"),
        Holds::Files if !found.is_dir() => refused("it is not a folder"),
        Holds::Files => Ok(rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK)?),
        Holds::Database if !found.is_file() => refused("it is not a regular file"),
        Holds::Database => {
            rustix::fs::access(path, Access::READ_OK | Access::WRITE_OK)?;
            let mut begins = Vec::new();
            // A link is followed, as the database does.
            let real = path.canonicalize()?;
            let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
                return refused("it is not a regular file");
            };
            let file = ua_files::Folder::open(folder)?.open_file(name)?;
            file.take(SQLITE.len() as u64).read_to_end(&mut begins)?;
            if begins.is_empty() || begins == SQLITE { Ok(()) } else { refused("it is not an SQLite database") }
        }
    }
}

/// Whether what is missing above it can be made: in the nearest folder that is there.
fn can_be_made(path: &Path) -> io::Result<()> {
    for above in path.ancestors().skip(1) {
        let found = match above.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found?,
        };
        let why = |what: &str| format!("{} {what}", above.display());
        if !found.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, why("is no folder")));
        }
        return rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            io::Error::new(error.kind(), why(&format!("cannot be written to: {}", io::Error::from(error))))
        });
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_call_could_use_is_refused_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("folder")).unwrap();
        std::fs::write(at("empty"), "").unwrap();
        std::fs::write(at("text"), "a text that is longer than the head").unwrap();
        std::os::unix::fs::symlink(at("folder"), at("link")).unwrap();
        let (files, database) = (Holds::Files, Holds::Database);
        for (place, holds, why) in [
            ("folder", files, None),
            ("new/er", files, None),
            ("link/new", files, None),
            ("link", files, Some("it is a link")),
            ("empty", files, Some("it is not a folder")),
            ("empty/below", files, Some("Not a directory")),
            ("empty", database, None),
            ("new/er", database, None),
            ("text", database, Some("it is not an SQLite database")),
            ("folder", database, Some("it is not a regular file")),
        ] {
            let said = look(&at(place), holds).map_err(|error| error.to_string());
            match why {
                None => assert_eq!(said, Ok(()), "{place} {holds:?}"),
                Some(why) => {
                    assert!(said.as_ref().is_err_and(|said| said.contains(why)), "{place} {holds:?}: {said:?}");
                }
            }
        }
        for device in ["/dev/null", "/dev/null/below"] {
            assert!(look(Path::new(device), files).is_err() && look(Path::new(device), database).is_err(), "{device}");
        }
        assert!(!at("new").exists());
    }
}
