//! Opening the file: made with narrow permissions, recognised as ours, migrated under a lock, checked after a crash.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt, MetadataExt as _, OpenOptionsExt, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rustix::fs::OFlags;
use rustix::io::Errno;
use ua_store::{Durability, StoreError};

use crate::beside::{OwnLog, adopt_beside, foreign_beside};
use crate::config::SqliteConfig;
use crate::departure::Standing;
use crate::error::{refused, refused_because, sql_error};
use crate::source::Source;
use crate::store::read_uuid;
use crate::trouble::Trouble;
use crate::{filesystem, pragma, schema};
use ua_core::ShowPath as _;

/// Opens the database for writing, making and migrating it as needed.
pub(crate) fn writer(config: &SqliteConfig) -> Result<(Connection, FileIdentity, OwnLog), StoreError> {
    pragma::check_library()?;
    let path = &config.path;
    let folder = folder_of(path);
    if !exists(path)? && config.expected_existing {
        return Err(missing(path));
    }
    make_folder(folder)?;
    filesystem::check(folder, config.allow_unsafe_filesystem)?;
    check_folder(folder)?;
    // Migrations are not safe across processes, and neither is telling a fresh file from an empty one.
    let lock = migrate_lock(path)?;
    make_file(path)?;
    check_owner(path)?;
    check_writable(path)?;
    widen_beside(path);
    if let Some(foreign) = config.identity.as_ref().and_then(|_| foreign_beside(path)) {
        return Err(not_ours(&foreign));
    }
    let known = Known::of(path);
    let is_in_doubt = known.has_log && !known.is_noted_in(&lock);

    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    pragma::harden(&connection).map_err(sql_error)?;
    let is_new = match recognise(&connection, path)? {
        DatabaseFile::Empty if config.expected_existing => {
            return Err(refused(format!("{} is empty, although runs were kept in it; restore a backup", path.shown())));
        }
        DatabaseFile::Empty => true,
        DatabaseFile::Schema(_) => false,
    };
    if let Some(expected) = config.identity.as_ref().filter(|_| !is_new)
        && *expected != read_uuid(&connection)?
    {
        return Err(refused(format!("{} is another database than the one that was there", path.shown())));
    }
    if is_new {
        pragma::choose_page_size(&connection).map_err(sql_error)?;
        pragma::sync_nothing(&connection).map_err(sql_error)?;
    }
    pragma::make_writer(&connection)?;
    // Whatever is in the log by now is ours, or was named by a person. One of an earlier schema may have no identity yet.
    let mut own_log = OwnLog::default();
    if let Ok(identity) = read_uuid(&connection) {
        own_log = OwnLog::of(path, &identity)?;
        // A journal of which SQLite made nothing stays there.
        let adopted = config.identity.is_none().then(|| adopt_beside(path)).transpose();
        if let Err(error) = adopted {
            tracing::debug!(%error, "what is beside the database could not be marked as its own");
        }
    }
    if is_in_doubt {
        quick_check(&connection, path)?;
    }
    let is_changed = if is_new {
        // Nothing is stored in it yet. What is made is synced once, all of it: the log below, before any of it is carried over into the file.
        pragma::sync_nothing(&connection).map_err(sql_error)?;
        schema::make(&mut connection, config.identity.as_deref())
            .map_err(|error| refused_because(format!("the schema of {} cannot be made", path.shown()), error))?;
        pragma::set_durability(&connection, Durability::Synced).map_err(sql_error)?;
        true
    } else {
        schema::migrate(&mut connection, path, &mut own_log)?
    };
    if is_changed {
        // The file itself has its tables and its identity from here on. Who loses the log beside it has an older database then, which effects.log
        // tells, and not a new one.
        let carried = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
        carried.map_err(sql_error)?;
        own_log = OwnLog::of(path, &read_uuid(&connection)?)?;
        own_log.nothing_written()?;
    }
    // Still under the lock, so this is the file that was opened: nobody put another one in its place.
    let identity = FileIdentity::of(path)?;
    known.note_in(&lock);
    Ok((connection, identity, own_log))
}

/// Which file is opened, and what of it can be believed without a look at every page.
///
/// A process that is killed breaks nothing: what it wrote is in the kernel, whose every later reader sees it, and SQLite's log holds whole
/// transactions or nothing. What can break a file is a machine that stops, and somebody who puts other bytes into its place. So a file with a
/// log behind it is checked, unless it is noted that this file was whole at an earlier opening since the machine was started, and nothing but
/// the log was written since (ADR 35).
struct Known {
    /// The machine's start, the file system and the file; `None` where that cannot be told.
    mark: Option<String>,
    /// Whether there is a log: the last process did not close the database, or another one has it open.
    has_log: bool,
    /// Whether the database was not touched behind the last write to its log.
    is_behind_log: bool,
}

impl Known {
    fn of(path: &Path) -> Self {
        let (database, log) = (fs::metadata(path).ok(), fs::metadata(sibling_file(path, "-wal")).ok());
        let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
        let mark = start.filter(|start| !start.trim().is_empty()).zip(database.as_ref());
        // When a file was changed last, whatever somebody says that was.
        let changed = |file: &fs::Metadata| (file.ctime(), file.ctime_nsec());
        Self {
            mark: mark.map(|(start, file)| format!("{} {} {}\n", start.trim(), file.dev(), file.ino())),
            has_log: log.as_ref().is_some_and(|log| log.len() > 0),
            is_behind_log: database.zip(log).is_some_and(|(database, log)| changed(&database) <= changed(&log)),
        }
    }

    /// Whether it was whole when it was opened before, and what is in it now is what SQLite wrote since.
    fn is_noted_in(&self, lock: &File) -> bool {
        self.is_behind_log && self.mark.is_some() && self.mark == noted_in(lock)
    }

    /// Notes that it is whole. Not synced: after a stop of the machine the note is of an earlier start, or gone.
    fn note_in(&self, mut lock: &File) {
        let Some(mark) = self.mark.as_ref().filter(|mark| noted_in(lock).as_ref() != Some(*mark)) else { return };
        let noted = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| lock.write_all(mark.as_bytes()));
        if let Err(error) = noted {
            tracing::debug!(%error, "the database is checked again when it is opened next");
        }
    }
}

/// What is noted about the database that a lock belongs to.
fn noted_in(mut lock: &File) -> Option<String> {
    let mut noted = String::new();
    lock.rewind().and_then(|()| lock.take(256).read_to_string(&mut noted)).ok()?;
    Some(noted)
}

/// Tells a file from another one that takes its place under the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl FileIdentity {
    pub(crate) fn of(path: &Path) -> Result<Self, StoreError> {
        let file = fs::metadata(path)
            .map_err(|error| refused_because(format!("{} cannot be examined", path.shown()), error))?;
        Ok(Self { path: path.to_path_buf(), device: file.dev(), inode: file.ino() })
    }

    /// Refuses when another file is in its place by now: what is written to this one, nobody reads any more.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if Self::of(&self.path).is_ok_and(|now| now == *self) {
            return Ok(());
        }
        Err(refused(format!(
            "the database was replaced: {} is no longer the file that this process opened; start again",
            self.path.shown()
        )))
    }
}

/// Opens one more connection to a database that was opened before, for reading.
pub(crate) fn reader(source: &Source) -> Result<Connection, StoreError> {
    // Where this process writes, the log that it has open is marked: SQLite would read another one under its name by the index of that.
    if let Some(foreign) =
        Some(source).filter(|source| source.is_written_here()).and_then(|source| foreign_beside(source.path()))
    {
        return Err(not_ours(&foreign));
    }
    let connection = source.connect()?;
    pragma::harden(&connection).map_err(sql_error)?;
    pragma::make_reader(&connection).map_err(sql_error)?;
    Ok(connection)
}

/// Opens a database for inspection: nothing is created, nothing is migrated.
pub(crate) fn inspector(path: &Path) -> Result<Connection, StoreError> {
    inspect(&Source::of(path))
}

/// The same of a database of which it is known how it is read.
pub(crate) fn inspect(source: &Source) -> Result<Connection, StoreError> {
    let path = source.path();
    let connection = looked_at(source)?;
    let mut found = recognise(&connection, path)?;
    if !matches!(found, DatabaseFile::Schema(version) if version == schema::OURS) && waited_for_maker(path) {
        found = recognise(&connection, path)?;
    }
    match found {
        DatabaseFile::Schema(version) if version == schema::OURS => Ok(connection),
        DatabaseFile::Schema(version) => Err(refused(format!(
            "{} has schema {version}, older than this program's {}; opening it to write, or `ua db migrate`, brings it up to date",
            path.shown(),
            schema::OURS
        ))),
        DatabaseFile::Empty => Err(refused(format!("{} is empty", path.shown()))),
    }
}

/// Refuses a file that is none of our databases, and leaves everything as it is: nothing is made beside it, not even a lock. One that is not
/// there, or is empty, is to be made; what is wrong with one of ours is for whoever opens it.
///
/// # Errors
/// It is something else, or somebody else's.
pub fn refuse_others(path: &Path) -> Result<(), StoreError> {
    if path
        .symlink_metadata()
        .map_or_else(|error| error.kind() == ErrorKind::NotFound, |file| file.is_file() && file.len() == 0)
    {
        return Ok(());
    }
    check_owner(path)?;
    if is_ours_by_header(path) || is_blank(path) {
        return Ok(());
    }
    // SQLite leaves files beside a database even when it reads it, unless it is told that nobody writes to it.
    let has_more =
        ["-wal", "-shm", "-journal"].iter().any(|suffix| sibling_file(path, suffix).symlink_metadata().is_ok());
    let looked = if has_more { connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY) } else { still(path) };
    match looked.and_then(|connection| recognise(&connection, path).map(drop)) {
        // The refusals of this file, which come from no error of SQLite's.
        Err(error) if matches!(Trouble::of(&error), None | Some(Trouble::NotADatabase)) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether the first page says that it is ours. Of one that is just made, and of others, only SQLite can tell.
fn is_ours_by_header(path: &Path) -> bool {
    const ID: std::ops::Range<usize> = 68..72;
    let mut header = [0; ID.end];
    let read = regular(OpenOptions::new().read(true), path).and_then(|mut file| file.read_exact(&mut header));
    let id = u32::from_be_bytes([header[68], header[69], header[70], header[71]]);
    read.is_ok() && header.starts_with(b"SQLite format 3\0") && i64::from(id) == pragma::APPLICATION_ID
}

/// A database to which nobody writes, for one look.
fn still(path: &Path) -> Result<Connection, StoreError> {
    let mut name = OsString::from("file:");
    for byte in path.as_os_str().as_bytes() {
        // What an address gives a meaning.
        match byte {
            b'%' => name.push("%25"),
            b'?' => name.push("%3f"),
            b'#' => name.push("%23"),
            byte => name.push(OsStr::from_bytes(&[*byte])),
        }
    }
    name.push("?immutable=1");
    connect(Path::new(&name), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

/// Opens a file of this user's for reading, whatever is in it.
pub(crate) fn looked_at(source: &Source) -> Result<Connection, StoreError> {
    pragma::check_library()?;
    let path = source.path();
    if !exists(path)? {
        return Err(missing(path));
    }
    check_owner(path)?;
    reader(source)
}

/// Whether there is no database, or one in which nothing was ever stored: its maker was killed, or lost what was beside it.
#[must_use]
pub fn holds_nothing(path: &Path) -> bool {
    let is_empty = || {
        let found = recognise(&Source::of(path).connect()?, path)?;
        Ok::<_, StoreError>(matches!(found, DatabaseFile::Empty | DatabaseFile::Schema(0)))
    };
    // One that cannot be read is not known to hold nothing.
    path.symlink_metadata().map_or_else(|error| error.kind() == ErrorKind::NotFound, |_| is_empty().unwrap_or(false))
}

/// Waits for a process that is making or migrating the database just now; `false` when there is no sign of one.
fn waited_for_maker(path: &Path) -> bool {
    let lock = regular(OpenOptions::new().read(true), &sibling_file(path, ".migrate.lock"));
    lock.and_then(|file| file.lock_shared()).is_ok()
}

enum DatabaseFile {
    /// Nothing was ever written to it.
    Empty,
    /// Ours, with this schema.
    Schema(i64),
}

/// What `look` reads, of one moment of the database: between two statements another process may make it, or move it.
pub(crate) fn at_once<T>(
    connection: &Connection,
    look: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    // Nothing is written in it, so it does not matter how it ends.
    let _moment =
        connection.is_autocommit().then(|| connection.unchecked_transaction()).transpose().map_err(sql_error)?;
    look(connection)
}

/// Tells our databases from others, before anything about them is changed.
fn recognise(connection: &Connection, path: &Path) -> Result<DatabaseFile, StoreError> {
    at_once(connection, |connection| recognise_now(connection, path))
}

fn recognise_now(connection: &Connection, path: &Path) -> Result<DatabaseFile, StoreError> {
    let application_id: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sql_error)?;
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sql_error)?;
    if tables == 0 && (application_id == 0 || application_id == pragma::APPLICATION_ID) {
        return Ok(DatabaseFile::Empty);
    }
    Standing::refuse_away(connection, path)?;
    if application_id != pragma::APPLICATION_ID {
        let why = format!("{} is a database of another program (application id {application_id:#x})", path.shown());
        return Err(refused(why));
    }
    let has_history = connection
        .query_row("SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history'", [], |_| Ok(()))
        .optional()
        .map_err(sql_error)?;
    if has_history.is_none() {
        return Ok(DatabaseFile::Schema(0));
    }
    let version: i64 = connection
        .query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))
        .map_err(sql_error)?;
    if version > schema::OURS {
        return Err(refused(format!(
            "{} has schema {version}, newer than this program's {}; upgrade ua",
            path.shown(),
            schema::OURS
        )));
    }
    Ok(DatabaseFile::Schema(version))
}

/// Refuses a file that is not one of our databases, or of a newer schema.
pub(crate) fn recognise_ours(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    match recognise(connection, path)? {
        DatabaseFile::Schema(_) => Ok(()),
        DatabaseFile::Empty => Err(refused(format!("{} is empty", path.shown()))),
    }
}

fn quick_check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(sql_error)?;
    if finding == "ok" {
        tracing::info!(database = %path.shown(), "the last process did not close the database; it was checked and is whole");
        Ok(())
    } else {
        Err(refused(format!("{} is damaged ({finding}); restore a backup", path.shown())))
    }
}

/// The refusal of what stands beside a database and is not its own.
fn not_ours(file: &Path) -> StoreError {
    refused(format!("{} was not left there by ua: somebody put it beside the database", file.shown()))
}

fn missing(path: &Path) -> StoreError {
    refused(format!("there is no database at {}; restore it, or point to the right one", path.shown()))
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, StoreError> {
    Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(sql_error)
}

fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(|error| refused_because(format!("{} cannot be examined", path.shown()), error))
}

/// The folder of the database; the current one for a bare file name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// What SQLite or this program keeps beside a database under a name of its own.
pub(crate) fn sibling_file(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn make_folder(folder: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| refused_because(format!("the folder {} cannot be made", folder.shown()), error))
}

/// Makes the empty file before SQLite opens it, because SQLite's own files take over its permissions.
fn make_file(path: &Path) -> Result<(), StoreError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists && is_blank(path) => empty(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(refused_because(format!("{} cannot be made", path.shown()), error)),
    }
}

/// Whether a file has the length of a first page at most and nothing in it: what a power cut may leave of a database that was being made, where a
/// file system writes lengths before what they are of. All that ever was in one lies in the log beside it then, if anywhere.
fn is_blank(path: &Path) -> bool {
    let length = fs::symlink_metadata(path).map_or(0, |file| if file.is_file() { file.len() } else { 0 });
    if !(1..=pragma::PAGE_SIZE.unsigned_abs()).contains(&length) {
        return false;
    }
    let mut bytes = Vec::new();
    let read = regular(OpenOptions::new().read(true), path).and_then(|mut file| file.read_to_end(&mut bytes));
    read.is_ok() && bytes.iter().all(|byte| *byte == 0)
}

/// Empties a file that is blank, unless the log beside it has a database.
fn empty(path: &Path) -> Result<(), StoreError> {
    let looked = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|there| recognise(&there, path).map(drop));
    if !looked.is_err_and(|error| Trouble::of(&error) == Some(Trouble::NotADatabase)) {
        return Ok(());
    }
    let emptied = regular(OpenOptions::new().write(true), path).and_then(|file| file.set_len(0));
    emptied.map_err(|error| refused_because(format!("{} cannot be made", path.shown()), error))
}

/// Refuses a file that is a link, that belongs to somebody else, or that others may change: who can write it can say that an effect
/// never happened, or that a person approved it.
fn check_owner(path: &Path) -> Result<(), StoreError> {
    let looked = |path: &Path| {
        fs::symlink_metadata(path)
            .map_err(|error| refused_because(format!("{} cannot be examined", path.shown()), error))
    };
    let file = looked(path)?;
    if !file.is_file() {
        return Err(refused(format!(
            "{} is a link or something else that is not a file; name the file itself",
            path.shown()
        )));
    }
    if file.uid() != rustix::process::geteuid().as_raw() {
        return Err(of_another_user(path, file.uid()));
    }
    if file.mode() & 0o022 != 0 {
        return Err(refused(format!(
            "other users may change {}; `chmod 600 {}` if it can still be trusted",
            path.shown(),
            ua_core::shell_word(path)
        )));
    }
    OPENED_BESIDE.iter().try_for_each(|suffix| check_beside(&sibling_file(path, suffix)))?;
    check_folder(folder_of(path))
}

/// The refusal of a file that is another user's.
fn of_another_user(path: &Path, owner: u32) -> StoreError {
    refused(format!("{} belongs to another user ({})", path.shown(), ua_files::user_in_words(owner)))
}

/// Refuses a file that this user may read and not write to, before SQLite or a mark of its log fails by it. One on a medium that is mounted
/// read-only has words of its own.
fn check_writable(path: &Path) -> Result<(), StoreError> {
    let (shown, word) = (path.shown(), ua_core::shell_word(path));
    let why = match rustix::fs::access(path, rustix::fs::Access::WRITE_OK) {
        Err(Errno::ACCESS) => format!("{shown} is read-only; `chmod u+w {word}` lets you write to it"),
        Err(Errno::PERM) => {
            format!("{shown} is read-only: it is marked as a file that nobody changes, which `lsattr {word}` shows")
        }
        Ok(()) | Err(_) => return Ok(()),
    };
    Err(refused_because(why, std::io::Error::from(ErrorKind::PermissionDenied)))
}

/// Gives what lies beside a database the permissions of its owner that the database has: SQLite makes the files there with those that it had
/// then, and opens none of them wider. Where that fails, whoever writes says so.
fn widen_beside(path: &Path) {
    const OWNERS: u32 = 0o600;
    let Ok(database) = fs::symlink_metadata(path) else { return };
    let wanted = database.mode() & OWNERS;
    for beside in OPENED_BESIDE.map(|suffix| sibling_file(path, suffix)) {
        let is_narrower = |file: &fs::Metadata| file.is_file() && file.mode() & wanted != wanted;
        if !fs::symlink_metadata(&beside).is_ok_and(|file| is_narrower(&file)) {
            continue;
        }
        if let Err(error) = widen(&beside, wanted) {
            tracing::debug!(%error, file = %beside.shown(), "it has narrower permissions than the database");
        }
    }
}

/// Adds permissions to a file of ours, which is never reached through a link. It is not opened for reading: closing it would give up the
/// locks that SQLite has on it in this process.
fn widen(path: &Path, wanted: u32) -> std::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let here = format!("/proc/self/fd/{}", file.as_raw_fd());
    fs::set_permissions(here, fs::Permissions::from_mode(found.mode() & 0o777 | wanted))
}

/// What SQLite opens beside a database by itself, whatever is there under these names.
const OPENED_BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Refuses to have SQLite open what is no file, and what has something else than files beside it: a pipe would be waited for without end.
///
/// # Errors
/// It is so. A database that is not there, and one that cannot be examined, is left to SQLite.
pub(crate) fn refuse_special(path: &Path) -> Result<(), StoreError> {
    let other = |path: &Path| {
        Err(refused(format!("{} is a link or something else that is not a file; remove it", path.shown())))
    };
    // Whoever names a database may name it by a link.
    if fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return other(path);
    }
    let beside = OPENED_BESIDE.iter().map(|suffix| sibling_file(path, suffix));
    let special = beside.into_iter().find(|path| fs::symlink_metadata(path).is_ok_and(|file| !file.is_file()));
    special.map_or(Ok(()), |path| other(&path))
}

/// Refuses what stands beside a database in the place of a file of ours: a pipe would be waited for without end.
fn check_beside(path: &Path) -> Result<(), StoreError> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.is_file() => {
            Err(refused(format!("{} is a link or something else that is not a file; remove it", path.shown())))
        }
        Ok(file) if file.uid() != rustix::process::geteuid().as_raw() => Err(of_another_user(path, file.uid())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused_because(format!("{} cannot be examined", path.shown()), error)),
    }
}

/// Refuses a folder in which others may make files, or replace them: beside a database lie its log, its locks and what runs leave, each of which
/// somebody else could make first. That of a folder like `/tmp` nobody can take away what is another's is not enough for that.
///
/// # Errors
/// It is one, or cannot be looked at.
pub fn check_folder(folder: &Path) -> Result<(), StoreError> {
    let above = fs::metadata(folder)
        .map_err(|error| refused_because(format!("{} cannot be examined", folder.shown()), error))?;
    let us = rustix::process::geteuid().as_raw();
    let others = |who: &str, mend: &str| {
        let (shown, word) = (folder.shown(), ua_core::shell_word(folder));
        Err(refused(format!(
            "{who} may make files in {shown}, or replace them; use a folder of your own, or `{mend} {word}`"
        )))
    };
    if above.uid() != us && above.uid() != 0 {
        return Err(refused(of_another(folder, above.uid(), us)));
    }
    if above.mode() & 0o002 != 0 {
        return others("everybody", "chmod o-w");
    }
    // Where every user has a group of their own, of the same number, folders are often open to it: nobody else is in it.
    if above.mode() & 0o020 != 0 && above.gid() != us {
        return others(&format!("everybody in its group (gid {})", above.gid()), "chmod g-w");
    }
    Ok(())
}

/// The refusal of a folder that is another user's. Root is not told to take it: `sudo` that kept HOME meets the folder of the person who called it,
/// whom that would lock out.
fn of_another(folder: &Path, owner: u32, us: u32) -> String {
    let (shown, word) = (folder.shown(), ua_core::shell_word(folder));
    let mend = if us == 0 {
        format!(
            "run the command as that user (`sudo -u '#{owner}' ua …`; if that is you, without `sudo`), or use a folder of root's own"
        )
    } else {
        format!("use a folder of your own, or `sudo chown {us} {word}`")
    };
    let whose = ua_files::user_in_words(owner);
    format!("another user ({whose}) may make files in {shown}, or replace them; {mend}")
}

/// The lock under which the database at `path` is made, migrated and replaced.
pub(crate) fn migrate_lock(path: &Path) -> Result<File, StoreError> {
    lock(&sibling_file(path, ".migrate.lock"))
}

/// Opens a file of ours beside the database: never through a link, and nothing but a regular file, made for this user alone. Tool servers of
/// others write there as the same user, and a pipe in its place would hold this process up for ever.
pub(crate) fn regular(options: &mut OpenOptions, path: &Path) -> std::io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let refused = |what: &str| {
        let why = format!("{} is {what}, not a regular file; nothing was read or written", path.shown());
        std::io::Error::new(ErrorKind::InvalidInput, why)
    };
    let opened = options.mode(0o600).custom_flags(flags.bits().cast_signed()).open(path);
    let file = opened.map_err(|error| match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => refused("a link"),
        Ok(found) if !found.is_file() && !found.is_dir() => refused("a pipe, a socket or a device"),
        Ok(_) | Err(_) => error,
    })?;
    // What was opened is asked: asking before would leave time to exchange it. A file is read and written as ever with these flags.
    if file.metadata()?.is_file() { Ok(file) } else { Err(refused("a pipe, a socket or a device")) }
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let locked = regular(OpenOptions::new().read(true).write(true).create(true).truncate(false), path);
    let locked = locked.and_then(|file| file.lock().map(|()| file));
    locked.map_err(|error| refused_because(format!("the lock {} cannot be taken", path.shown()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Maker = Box<dyn Fn(&Path)>;

    #[test]
    fn root_is_not_told_to_take_the_folder_of_whoever_called_sudo() {
        let folder = Path::new("/home/ada/a b");
        let told = of_another(folder, 1000, 0);
        assert!(told.contains("`sudo -u '#1000' ua …`") && !told.contains("chown"), "{told}");
        let told = of_another(folder, 1001, 1000);
        assert!(told.ends_with("use a folder of your own, or `sudo chown 1000 '/home/ada/a b'`"), "{told}");
    }

    /// Two processes of one new root: one of them makes the database while the other looks whose it is.
    #[test]
    fn a_database_that_is_being_made_is_never_taken_for_anothers() {
        use std::sync::Barrier;
        use std::sync::atomic::{AtomicBool, Ordering};

        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        for round in 0..60 {
            let path = folder.path().join(format!("{round}.db"));
            let (start, is_made) = (Barrier::new(3), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    let made = writer(&SqliteConfig::new(&path)).map(drop);
                    is_made.store(true, Ordering::Release);
                    made.unwrap();
                });
                for looks_to_open in [false, true] {
                    let (path, start, is_made) = (&path, &start, &is_made);
                    scope.spawn(move || {
                        start.wait();
                        while !is_made.load(Ordering::Acquire) {
                            refuse_others(path).unwrap();
                            if looks_to_open && path.exists() {
                                let refused = inspector(path).map(drop);
                                assert!(
                                    refused.as_ref().is_err_and(|e| e.to_string().contains("is empty"))
                                        || refused.is_ok(),
                                    "{refused:?}"
                                );
                            }
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn files_of_others_are_refused_and_nothing_is_made_beside_them() {
        let ours = pragma::APPLICATION_ID;
        let sql = |text: String| move |path: &Path| Connection::open(path).unwrap().execute_batch(&text).unwrap();
        let makers: [(&str, bool, Maker); 8] = [
            ("text", false, Box::new(|path| fs::write(path, "root:x:0:0\n").unwrap())),
            ("long text", false, Box::new(|path| fs::write(path, "x".repeat(10_000)).unwrap())),
            ("another number", false, Box::new(sql("PRAGMA application_id = 7; CREATE TABLE t(x);".to_owned()))),
            ("no number", false, Box::new(sql("CREATE TABLE t(x);".to_owned()))),
            ("with a log", false, Box::new(sql("PRAGMA journal_mode = WAL; CREATE TABLE t(x);".to_owned()))),
            // One of ours that is elsewhere now: whoever opens it says so.
            ("moved", true, Box::new(sql(format!("PRAGMA application_id = {}; CREATE TABLE t(x);", pragma::MOVED_ID)))),
            ("empty", true, Box::new(|path| fs::write(path, "").unwrap())),
            ("ours", true, Box::new(sql(format!("PRAGMA application_id = {ours}; CREATE TABLE t(x);")))),
        ];
        for (name, is_taken, make) in makers {
            let folder = tempfile::tempdir().unwrap();
            // What an address gives a meaning.
            let path = folder.path().join("a%41?b#c é.db");
            refuse_others(&path).unwrap();
            make(&path);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(refuse_others(&path).is_ok(), is_taken, "{name}");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
        }
    }

    /// What was made beside a database while it was read-only, as SQLite makes it, must not keep it read-only once it is not.
    #[test]
    fn what_was_left_beside_a_read_only_database_is_as_wide_as_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let mode = |suffix: &str| fs::metadata(sibling_file(&path, suffix)).unwrap().mode() & 0o777;
        let config = SqliteConfig::new(&path);
        drop(writer(&config).unwrap());
        for (narrow, wanted) in [(0o400, 0o600), (0o000, 0o600), (0o640, 0o640)] {
            // SQLite itself widens what is empty, and nothing else.
            for (suffix, bytes) in [("-shm", 32 * 1024), ("-wal", 1)] {
                let file = sibling_file(&path, suffix);
                fs::write(&file, vec![0; bytes]).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(narrow)).unwrap();
            }
            let open = writer(&config).unwrap();
            assert_eq!([mode("-shm"), mode("-wal")], [wanted, wanted], "{narrow:o}");
            drop(open);
        }
        // What is no file is refused, and what it leads to is left alone.
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o400)).unwrap();
        fs::remove_file(sibling_file(&path, "-shm")).unwrap_or_default();
        std::os::unix::fs::symlink(&other, sibling_file(&path, "-shm")).unwrap();
        widen_beside(&path);
        assert!(widen(&sibling_file(&path, "-shm"), 0o600).is_err());
        assert_eq!(fs::metadata(&other).unwrap().mode() & 0o777, 0o400);
    }

    #[test]
    fn a_database_that_somebody_is_making_is_left_to_whoever_opens_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        make_file(&path).unwrap();
        let maker = Connection::open(&path).unwrap();
        let steps = [
            "PRAGMA journal_mode = WAL".to_owned(),
            "BEGIN IMMEDIATE".to_owned(),
            format!("PRAGMA application_id = {}", pragma::APPLICATION_ID),
            "CREATE TABLE t(x)".to_owned(),
            "COMMIT".to_owned(),
            "PRAGMA wal_checkpoint(TRUNCATE)".to_owned(),
        ];
        for step in steps {
            maker.execute_batch(&step).unwrap();
            refuse_others(&path).unwrap_or_else(|error| panic!("{step}: {error}"));
        }
    }
}
