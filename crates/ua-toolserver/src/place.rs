//! A folder or file of this machine that a tool works in and that the settings choose. It is made when it is first used; whether it can be is
//! asked before anything is begun, because a call that finds out has failed.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::error::ToolServerError;
use ua_core::ShowPath as _;

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
            value: self.path.shown().to_string(),
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
        Holds::Files => can_make_in(path),
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
        let why = |what: &str| format!("{} {what}", above.shown());
        if !found.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, why("is not a folder")));
        }
        return can_make_in(above)
            .map_err(|error| io::Error::new(error.kind(), why(&format!("cannot be written to: {error}"))));
    }
    Ok(())
}

/// Whether something can be made in a folder. Root has every right, also where there is nothing to be made.
fn can_make_in(folder: &Path) -> io::Result<()> {
    if is_of_the_kernel(folder) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it shows what the kernel has, and nothing can be made there",
        ));
    }
    Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Whether a folder is of a file system in which the kernel alone makes files: `/proc`, `/sys` and those that are mounted below.
#[cfg(target_os = "linux")]
fn is_of_the_kernel(folder: &Path) -> bool {
    /// `f_type` of proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs, bpf, pstore, configfs, devpts, binfmt_misc and nsfs.
    const THEIRS: [i128; 13] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
        0xcafe_4a11,
        0x6165_676c,
        0x6265_6570,
        0x1cd1,
        0x4249_4e4d,
        0x6e73_6673,
    ];
    // Some machines sign-extend the 32 bits.
    rustix::fs::statfs(folder).is_ok_and(|mount| THEIRS.contains(&(i128::from(mount.f_type) & 0xFFFF_FFFF)))
}

#[cfg(not(target_os = "linux"))]
fn is_of_the_kernel(_: &Path) -> bool {
    false
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
        for kernels in ["/proc", "/proc/x", "/proc/self/x/y"].into_iter().filter(|_| cfg!(target_os = "linux")) {
            let said = look(Path::new(kernels), files).unwrap_err().to_string();
            assert!(said.contains("nothing can be made there"), "{kernels}: {said}");
        }
        for device in ["/dev/null", "/dev/null/below"] {
            assert!(look(Path::new(device), files).is_err() && look(Path::new(device), database).is_err(), "{device}");
        }
        assert!(!at("new").exists());
    }
}
