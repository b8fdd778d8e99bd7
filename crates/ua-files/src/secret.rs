//! A secret that a program keeps in a file for itself: made when there is none, for this user alone, and the same for all that ask at once.
//!
//! In a folder into which somebody else's files come, as version control puts them there, a secret is believed only with the mark that
//! the program left on its file ([`Believe::Marked`]): an attribute, which no checkout and no archive of one carries. What writes into a file leaves
//! its attributes, so the mark is the digest of the text that it is about. Where files have no attributes, whatever is there is believed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};

use rustix::fs::{AtFlags, XattrFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::{Folder, Kind, unguessable};

/// A secret has at least so many digits; a file with less in it was cut off.
const DIGITS: usize = 64;
/// The most of a file that is read.
const MOST: u64 = 4096;
/// The attribute of a file that this program made: the digest of what it wrote.
const MARK: &str = "user.ua.made";

/// Which file is taken for one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Believe {
    /// Whatever is there: nobody else's files come into the folder.
    Whatever,
    /// One with the mark of the program that made it. Any other is replaced by a new one.
    Marked,
}

/// The secret that is kept in `folder` under `name`.
///
/// # Errors
/// It can be neither read nor made.
pub fn secret(folder: &Folder, name: &str, believe: Believe) -> io::Result<String> {
    let there = read(folder, name)?;
    if let There::Secret { text, is_marked } = &there
        && (*is_marked || believe == Believe::Whatever)
    {
        return Ok(text.clone());
    }
    let temporary = OsString::from(format!(".{name}.{}.tmp", unguessable()?));
    let kept = make(folder, name, there, &temporary);
    match folder.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    if let Some(text) = kept? {
        return Ok(text);
    }
    match read(folder, name)? {
        There::Secret { text, .. } => Ok(text),
        There::SomethingElse | There::Nothing => Err(io::Error::other("it was cut off while it was written")),
    }
}

/// Makes a secret under another name, and gives it its own; or says which one is believed all the same.
fn make(folder: &Folder, name: &str, there: There, temporary: &OsStr) -> io::Result<Option<String>> {
    let mut file = folder.make_file(temporary)?;
    let text = unguessable()? + &unguessable()?;
    file.write_all(text.as_bytes())?;
    let is_marked = rustix::fs::fsetxattr(&file, MARK, &digest(&text), XattrFlags::empty()).is_ok();
    file.sync_all()?;
    match there {
        // No file has a mark here.
        There::Secret { text, .. } if !is_marked => return Ok(Some(text)),
        There::Secret { .. } | There::SomethingElse => folder.rename(temporary, name)?,
        // Of two that make one at once, the first one's counts for both.
        There::Nothing => match rustix::fs::linkat(&folder.open, temporary, &folder.open, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        },
    }
    Ok(None)
}

/// What stands in the place of a secret.
enum There {
    Nothing,
    /// A part of one, a link, a pipe.
    SomethingElse,
    Secret {
        text: String,
        is_marked: bool,
    },
}

fn read(folder: &Folder, name: &str) -> io::Result<There> {
    match folder.kind(name)? {
        None => return Ok(There::Nothing),
        Some(Kind::Other) => return Ok(There::SomethingElse),
        Some(Kind::Folder) => return Err(io::ErrorKind::IsADirectory.into()),
        Some(Kind::File) => {}
    }
    let mut file = folder.open_file(name)?;
    let mut text = String::new();
    if (&mut file).take(MOST).read_to_string(&mut text).is_err() || text.len() < DIGITS {
        return Ok(There::SomethingElse);
    }
    let is_marked = has_mark(&file, &text);
    Ok(There::Secret { text, is_marked })
}

/// Whether this program made the file with this text in it.
fn has_mark(file: &File, text: &str) -> bool {
    let mut mark = [0; 33];
    rustix::fs::fgetxattr(file, MARK, &mut mark[..]).is_ok_and(|bytes| mark.get(..bytes) == Some(&digest(text)[..]))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let own = tempfile::tempdir().unwrap();
        let folder = Folder::open(own.path()).unwrap();
        (own, folder)
    }

    #[test]
    fn it_is_made_once_for_its_owner_alone_and_many_at_once_have_the_same() {
        for believe in [Believe::Whatever, Believe::Marked] {
            let (own, folder) = folder();
            let made: BTreeSet<String> = std::thread::scope(|scope| {
                let threads: Vec<_> =
                    (0..8).map(|_| scope.spawn(|| secret(&folder, "a.key", believe).unwrap())).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(made.len(), 1);
            assert!(
                made.iter().all(|made| made.len() >= DIGITS && *made == secret(&folder, "a.key", believe).unwrap())
            );
            assert_eq!(fs::metadata(own.path().join("a.key")).unwrap().mode() & 0o077, 0);
            assert_eq!(fs::read_dir(own.path()).unwrap().count(), 1);
        }
    }

    /// Whatever somebody puts in its place: nothing waits, nothing is followed, and what is not known to be one's own is not believed.
    #[test]
    fn what_somebody_put_there_is_no_secret() {
        let foreign = "0".repeat(DIGITS);
        for believe in [Believe::Whatever, Believe::Marked] {
            for put in ["file", "into", "cut", "cut into", "link", "pipe", "bytes"] {
                let (own, folder) = folder();
                let (path, aside) = (own.path().join("a.key"), own.path().join("aside"));
                let before = secret(&folder, "a.key", believe).unwrap();
                let keeps_marks = rustix::fs::getxattr(&path, MARK, &mut [0_u8; 64][..]).is_ok();
                // What unpacks an archive takes the file away first, or writes into it.
                if !put.ends_with("into") {
                    fs::remove_file(&path).unwrap();
                }
                fs::write(&aside, &foreign).unwrap();
                match put {
                    "file" | "into" => fs::write(&path, &foreign).unwrap(),
                    "cut" | "cut into" => fs::write(&path, "ab").unwrap(),
                    "link" => symlink(&aside, &path).unwrap(),
                    "pipe" => rustix::fs::mknodat(
                        rustix::fs::CWD,
                        &path,
                        rustix::fs::FileType::Fifo,
                        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
                        0,
                    )
                    .unwrap(),
                    _ => fs::write(&path, [0xff; 200]).unwrap(),
                }
                let now = secret(&folder, "a.key", believe).unwrap();
                let is_whole = matches!(put, "file" | "into");
                let is_believed = is_whole && (believe == Believe::Whatever || !keeps_marks);
                assert_eq!(now == foreign, is_believed, "{put} {believe:?}");
                assert!(now != before && now == secret(&folder, "a.key", believe).unwrap(), "{put} {believe:?}");
                assert_eq!(fs::read_to_string(&aside).unwrap(), foreign, "{put} {believe:?}");
                assert_eq!(fs::read_dir(own.path()).unwrap().count(), 2, "{put} {believe:?}");
            }
        }
    }
}
