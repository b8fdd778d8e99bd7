//! Where a reader reads: a database that others may write to meanwhile, or one in a place where nothing can be written.
//!
//! SQLite writes beside a database even to read it: its log, and the index of that, are files. Where it cannot (a medium that is mounted
//! read-only, a folder without write permission) and nothing of them was left, everything is in the file itself, which it reads as one that
//! does not change. It looks at no log and at no lock then, so that is looked at here.
//!
//! Invariants: a log in which something stands is never passed over, for what was sent last may be in it alone; what was read while
//! somebody changed the file is not believed.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::io::Errno;
use ua_store::StoreError;

use crate::error::{refused, sql_error};
use crate::open::{folder_of, refuse_special, sibling_file};
use ua_core::ShowPath as _;

/// A database that is read, and how.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    path: PathBuf,
    /// What the file was when it was found to be one that nobody writes to; `None` where SQLite cares for that itself.
    still: Option<Stamp>,
    /// Whether this process writes to it.
    is_written_here: bool,
}

/// Tells a file from what it is after somebody wrote to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// When it was changed last, in seconds and nanoseconds, whatever somebody says that was.
    changed: (i64, i64),
}

impl Source {
    /// The database at `path`, read beside those who write to it if anybody can.
    pub(crate) fn of(path: &Path) -> Self {
        let is_still = cannot_be_written(folder_of(path)) || is_read_only(path);
        let still = if is_still { stamp(path) } else { None };
        Self { path: path.to_path_buf(), still, is_written_here: false }
    }

    /// The database at `path`, to which this process writes.
    pub(crate) fn written_here(path: &Path) -> Self {
        Self { path: path.to_path_buf(), still: None, is_written_here: true }
    }

    /// Whether this process writes to it, and so has its log open.
    pub(crate) fn is_written_here(&self) -> bool {
        self.is_written_here
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens one connection, for reading. What is no file, or has something else beside it in the place of SQLite's files, is refused: SQLite would
    /// wait for a pipe without end.
    pub(crate) fn connect(&self) -> Result<Connection, StoreError> {
        refuse_special(&self.path)?;
        let mode = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = match self.still {
            None => Connection::open_with_flags(&self.path, mode),
            Some(_) => Connection::open_with_flags(unchanging(&self.path), mode | OpenFlags::SQLITE_OPEN_URI),
        };
        opened.map_err(sql_error)
    }

    /// Refuses what was read if somebody could write to the file after all, and did.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.still.is_none() || self.still == stamp(&self.path) {
            return Ok(());
        }
        Err(refused(format!("{} was changed while it was read; give the command again", self.path.shown())))
    }

    /// How the database is journaled, in SQLite's word. Of a file that does not change SQLite says something else, so its header is asked.
    pub(crate) fn journal_mode(&self, connection: &Connection) -> rusqlite::Result<String> {
        /// Where the versions for writing and for reading stand; both are 2 where there is a write-ahead log.
        const VERSIONS: std::ops::Range<usize> = 18..20;
        let mut header = [0; VERSIONS.end];
        let read = |_: &Stamp| fs::File::open(&self.path).and_then(|mut file| file.read_exact(&mut header)).is_ok();
        if self.still.as_ref().is_some_and(read) && header[VERSIONS] == [2, 2] {
            return Ok("wal".to_owned());
        }
        connection.pragma_query_value(None, "journal_mode", |row| row.get(0))
    }
}

/// Whether this user can make no file in a folder, or not write to a file.
fn cannot_be_written(path: &Path) -> bool {
    let looked = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
    matches!(looked, Err(Errno::ROFS | Errno::ACCESS | Errno::PERM))
}

/// Whether nobody is to write to the file. SQLite would leave files beside it that are as read-only, and stay so when it is not any more.
fn is_read_only(path: &Path) -> bool {
    cannot_be_written(path) || fs::metadata(path).is_ok_and(|file| file.mode() & 0o222 == 0)
}

/// What the file at `path` is, if nothing is beside it that SQLite would have to read with it.
fn stamp(path: &Path) -> Option<Stamp> {
    let is_gone = |suffix: &str| {
        let beside = fs::symlink_metadata(sibling_file(path, suffix));
        beside.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let is_empty = |suffix: &str| {
        is_gone(suffix)
            || fs::symlink_metadata(sibling_file(path, suffix)).is_ok_and(|file| file.is_file() && file.len() == 0)
    };
    // With an index beside its log SQLite reads both as they are.
    if !(is_empty("-wal") && is_gone("-shm") && is_empty("-journal")) {
        return None;
    }
    let file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Stamp { device: file.dev(), inode: file.ino(), bytes: file.len(), changed: (file.ctime(), file.ctime_nsec()) })
}

/// The name by which SQLite opens a file that does not change.
fn unchanging(path: &Path) -> OsString {
    let mut name = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => name.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => name.push(char::from(*byte)),
            byte => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name.push_str("?immutable=1");
    OsString::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with one row, and the path to it, which has what addresses give a meaning.
    fn database() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b?c#d%41 é.db");
        let rows = "PRAGMA journal_mode = WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1);";
        Connection::open(&path).unwrap().execute_batch(rows).unwrap();
        (folder, path)
    }

    /// As [`Source::of`] finds it where nothing can be written.
    fn found(path: &Path) -> Source {
        Source { path: path.to_path_buf(), still: stamp(path), is_written_here: false }
    }

    fn rows(source: &Source) -> i64 {
        source.connect().unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    /// A checkout, or a tool server, may put another database beside the own one, with whatever it likes beside that.
    #[test]
    fn what_is_no_file_is_never_given_to_sqlite() {
        let (_folder, path) = database();
        let pipe = |path: &Path| rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).unwrap();
        for suffix in ["-wal", "-shm", "-journal"] {
            let file = sibling_file(&path, suffix);
            fs::remove_file(&file).unwrap_or_default();
            pipe(&file);
            assert!(Source::of(&path).connect().is_err() && crate::identity_of(&path).is_none(), "{suffix}");
            fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
            assert!(Source::of(&path).connect().is_err(), "{suffix}");
            fs::remove_file(&file).unwrap();
        }
        assert!(Source::of(&path).connect().is_ok());
        fs::remove_file(&path).unwrap();
        pipe(&path);
        assert!(Source::of(&path).connect().is_err());
    }

    #[test]
    fn a_file_without_a_log_is_read_as_it_is_and_leaves_nothing() {
        let (folder, path) = database();
        let source = found(&path);
        assert!(source.still.is_some());
        assert_eq!(rows(&source), 1);
        assert_eq!(source.journal_mode(&source.connect().unwrap()).unwrap(), "wal");
        source.check().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made beside it");
    }

    #[test]
    fn what_stands_beside_a_file_is_never_passed_over() {
        // Whatever of it is there, and however much: only no log, or an empty one without an index, lets the file be read alone.
        let states = [None, Some(""), Some("something")];
        let (_folder, path) = database();
        for nth in 0..states.len().pow(3) {
            let [wal, shm, journal] = [nth % 3, nth / 3 % 3, nth / 9].map(|state| states[state]);
            for (suffix, state) in [("-wal", wal), ("-shm", shm), ("-journal", journal)] {
                match state {
                    Some(text) => fs::write(sibling_file(&path, suffix), text).unwrap(),
                    None => fs::remove_file(sibling_file(&path, suffix)).unwrap_or_default(),
                }
            }
            let says_nothing = |state: Option<&str>| state.is_none_or(str::is_empty);
            let wanted = says_nothing(wal) && shm.is_none() && says_nothing(journal);
            assert_eq!(found(&path).still.is_some(), wanted, "{wal:?} {shm:?} {journal:?}");
        }
    }

    #[test]
    fn what_was_read_while_somebody_wrote_is_refused() {
        let (_folder, path) = database();
        let source = found(&path);
        // One that writes, into the log and then into the file.
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert!(source.check().unwrap_err().to_string().contains("was changed while it was read"));
        drop(writer);
        assert!(source.check().unwrap_err().to_string().contains("was changed while it was read"));
        let later = found(&path);
        later.check().unwrap();
        assert_eq!(rows(&later), 2);
        // Another file in its place, and none.
        fs::copy(&path, path.with_extension("copy")).unwrap();
        fs::rename(path.with_extension("copy"), &path).unwrap();
        assert!(later.check().is_err());
        let again = found(&path);
        fs::remove_file(&path).unwrap();
        assert!(again.check().is_err());
    }

    #[test]
    fn a_look_at_a_read_only_file_leaves_nothing_that_is_read_only_after_it() {
        let (folder, path) = database();
        let set = |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        set(0o400);
        let source = Source::of(&path);
        assert_eq!(rows(&source), 1);
        source.check().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was made beside it");
        set(0o600);
        assert!(Source::of(&path).still.is_none());
        Connection::open(&path).unwrap().execute_batch("INSERT INTO t VALUES (2)").unwrap();
        assert_eq!(rows(&Source::of(&path)), 2);
    }

    #[test]
    fn where_files_can_be_made_others_may_write() {
        let (_folder, path) = database();
        let source = Source::of(&path);
        assert!(source.still.is_none());
        let reader = source.connect().unwrap();
        let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count(), 1);
        Connection::open(&path).unwrap().execute_batch("INSERT INTO t VALUES (2)").unwrap();
        source.check().unwrap();
        assert_eq!(count(), 2);
    }
}
