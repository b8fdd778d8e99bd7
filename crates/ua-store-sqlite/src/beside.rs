//! What stands beside a database and is a part of it to SQLite: its write-ahead log, and a journal.
//!
//! SQLite takes the pages of whatever log stands there for newer than those of the file, and rolls any journal back into it, so whoever puts one
//! there, as version control puts files into a folder that it does not look at, changes any row. So the own log has a mark that no checkout and no
//! archive of one carries: an attribute of the file (`user.ua.database`) with the identity of the database, and with a number out of the log's own
//! header, since what writes *into* a file leaves its attributes. That number (the first salt) SQLite draws when it begins a log, writes into every
//! frame, and counts up where it begins the log again in place; frames with another one it does not read. The database's file has the identity,
//! which says that its logs are marked. Both are kept by what copies files with their attributes, and lost by what does not.
//!
//! Invariants: a log into which something is written for the first time says so before ([`OwnLog::before`], by whoever has the right to write),
//! and which number it got after ([`OwnLog::after`]); in between it is believed with any. A database whose log cannot be marked is not marked
//! either, and neither is one on a file system that may forget the mark of a log and keep what was written after it.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use ua_store::StoreError;

use crate::error::refused_because;
use crate::filesystem::keeps_attributes;
use crate::open::{folder_of, regular, sibling_file};
use ua_core::ShowPath as _;

/// The attribute of a file.
const MARK: &str = "user.ua.database";
/// The longest mark that is read: an identity, and a state.
const MAX_MARK_BYTES: usize = 128;
/// How often SQLite may have begun a log again since its number was noted, or the system have lost such a beginning, with the note of it kept.
const MAX_STEPS: u32 = 16;

/// What SQLite reads beside a database and believes. The index of the log is made anew by whoever opens the database first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Believed {
    Log,
    Journal,
}

impl Believed {
    const ALL: [Self; 2] = [Self::Log, Self::Journal];

    fn beside(self, database: &Path) -> PathBuf {
        sibling_file(
            database,
            match self {
                Self::Log => "-wal",
                Self::Journal => "-journal",
            },
        )
    }

    /// What the mark of such a file says of it when it is as it is now.
    fn state(self, file: &File) -> std::io::Result<State> {
        Ok(match self {
            Self::Log => generation(file)?.map_or(State::Empty, State::Begun),
            Self::Journal => {
                let mut head = [0; JOURNAL_HEAD];
                let read = read_at(file, &mut head)?;
                let digits =
                    |byte: &u8| [byte >> 4, byte & 15].map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]));
                State::Head(head.iter().take(read).flat_map(digits).collect())
            }
        })
    }

    /// Whether SQLite reads nothing in it but what was there when it was marked with these words, or written by a `ua` since.
    fn fits(self, file: &File, words: &str) -> std::io::Result<bool> {
        if self == Self::Log && words == State::Beginning.words() {
            return Ok(true);
        }
        Ok(match self.state(file)? {
            // SQLite reads nothing in it, whatever was there.
            State::Empty => true,
            State::Begun(salt) => State::number(words)
                .is_some_and(|noted| noted.wrapping_sub(salt) <= MAX_STEPS || salt.wrapping_sub(noted) <= MAX_STEPS),
            State::Beginning => false,
            State::Head(head) => words == State::Head(head).words(),
        })
    }
}

/// What a mark says behind the identity.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Nothing was written into the log.
    Empty,
    /// Something is being written into the log for the first time: it may have any number.
    Beginning,
    /// The first salt of the log.
    Begun(u32),
    /// How the journal begins, in hexadecimal digits: a number that SQLite drew is in it.
    Head(String),
}

impl State {
    fn words(&self) -> String {
        match self {
            Self::Empty => " empty".to_owned(),
            Self::Beginning => " beginning".to_owned(),
            Self::Begun(salt) => format!(" {salt:08x}"),
            Self::Head(head) => format!(" head {head}"),
        }
    }

    fn number(words: &str) -> Option<u32> {
        let digits = words.strip_prefix(' ').filter(|digits| digits.len() == 8)?;
        u32::from_str_radix(digits, 16).ok()
    }

    fn mark(&self, identity: &str) -> Vec<u8> {
        format!("{identity}{}", self.words()).into_bytes()
    }
}

/// How many bytes of the head of a journal are in its mark: all that SQLite reads there.
const JOURNAL_HEAD: usize = 28;
/// How long the header of a log is.
const LOG_HEAD: usize = 32;

/// The first salt of a log, as far as SQLite would read a frame of it: the header is whole, and something is behind it.
fn generation(log: &File) -> std::io::Result<Option<u32>> {
    const MAGIC: u32 = 0x377f_0682;
    let mut bytes = [0; LOG_HEAD + 1];
    if read_at(log, &mut bytes)? < bytes.len() {
        return Ok(None);
    }
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let magic = u32::from_be_bytes(word(0));
    // Its last bit says in which order the bytes of a word are summed up.
    let summed = if magic & 1 == 1 { u32::from_be_bytes } else { u32::from_le_bytes };
    let (mut first, mut second) = (0_u32, 0_u32);
    for at in (0..LOG_HEAD - 8).step_by(8) {
        first = first.wrapping_add(summed(word(at))).wrapping_add(second);
        second = second.wrapping_add(summed(word(at + 4))).wrapping_add(first);
    }
    let is_whole = magic & !1 == MAGIC && [first, second] == [24, 28].map(|at| u32::from_be_bytes(word(at)));
    Ok(is_whole.then(|| u32::from_be_bytes(word(16))))
}

/// Whether a log was never begun again in place.
fn is_first(log: &File) -> std::io::Result<bool> {
    let mut bytes = [0; 16];
    Ok(read_at(log, &mut bytes)? == bytes.len() && bytes[12..] == [0; 4])
}

/// Reads from the beginning of a file, as far as it goes.
fn read_at(file: &File, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// What stands beside the database at `path`, would be taken for a part of it, and was left there by nobody's `ua`; `None` where there is
/// nothing, or where that cannot be told.
#[must_use]
pub fn foreign_beside(path: &Path) -> Option<PathBuf> {
    foreign_files(path).next().map(|foreign| foreign.name)
}

/// Takes what stands beside the database for its own from here on, because a person said so.
///
/// # Errors
///
/// `Unavailable` when the mark cannot be written.
pub fn adopt_beside(path: &Path) -> Result<(), StoreError> {
    foreign_files(path).try_for_each(|Foreign { kind, name, file, identity }| {
        let marked = kind.state(&file).and_then(|state| set(&file, &state.mark(&identity)));
        marked.map_err(|error| refused_because(format!("{} cannot be marked", name.shown()), error))
    })
}

/// A file beside a database that is not known to be its own, opened.
struct Foreign {
    kind: Believed,
    name: PathBuf,
    file: File,
    /// Of the database.
    identity: String,
}

fn foreign_files(path: &Path) -> impl Iterator<Item = Foreign> + use<> {
    // By its name: a descriptor of the database that is closed would give up SQLite's locks.
    let own = mark(|buffer| rustix::fs::lgetxattr(path, MARK, buffer)).ok().flatten();
    let own = own.and_then(|own| String::from_utf8(own).ok());
    let files = Believed::ALL.map(|kind| (kind, kind.beside(path)));
    own.into_iter().flat_map(move |identity| {
        let foreign = move |(kind, name): (Believed, PathBuf)| {
            // What is no file, or cannot be opened, is refused by whoever opens the database.
            let file = regular(OpenOptions::new().read(true), &name).ok()?;
            let has_pages = file.metadata().is_ok_and(|file| file.len() > 0);
            (has_pages && !is_own(kind, &file, &identity)).then(|| Foreign {
                kind,
                name,
                file,
                identity: identity.clone(),
            })
        };
        files.clone().into_iter().filter_map(foreign)
    })
}

/// Whether a file has the mark of the database, and is what it was marked as; also where it cannot be told.
fn is_own(kind: Believed, file: &File, identity: &str) -> bool {
    let Ok(mut before) = mark_of(file) else { return true };
    loop {
        let words = before.as_deref().and_then(|mark| std::str::from_utf8(mark).ok());
        let words = words.and_then(|mark| mark.strip_prefix(identity));
        if words.is_some_and(|words| kind.fits(file, words).unwrap_or(false)) {
            return true;
        }
        // A process that writes may have begun the log between the two looks: its mark is another one then.
        match mark_of(file) {
            Ok(now) if now == before => return false,
            Ok(now) => before = now,
            Err(_) => return true,
        }
    }
}

/// The log of a database that is open, kept marked as its own by whoever writes into it. Nothing where nothing is marked.
#[derive(Debug, Default)]
pub(crate) struct OwnLog(Option<Marked>);

#[derive(Debug)]
struct Marked {
    database: PathBuf,
    log: File,
    identity: String,
    /// The number that this process noted last.
    noted: Option<u32>,
    /// Whether this process has written into the log.
    has_written: bool,
}

impl OwnLog {
    /// Marks the log of a database that is open, and then the database. Whatever is in the log is believed from here on.
    ///
    /// # Errors
    ///
    /// `Unavailable` when neither can the log be marked nor the mark of the database be taken away: the log would be refused after a kill.
    pub(crate) fn of(database: &Path, identity: &str) -> Result<Self, StoreError> {
        if !keeps_attributes(folder_of(database)) {
            return Ok(Self(None));
        }
        let opened = regular(OpenOptions::new().read(true), &Believed::Log.beside(database));
        let marked = opened.and_then(|log| {
            let (database, identity) = (database.to_path_buf(), identity.to_owned());
            let mut marked = Marked { database, log, identity, noted: None, has_written: false };
            marked.found().map(|()| marked)
        });
        match marked {
            Ok(marked) => {
                mark_database(database, identity);
                Ok(Self(Some(marked)))
            }
            Err(error) => {
                tracing::debug!(%error, "the log cannot be marked as this database's own");
                unmark(database).map(|()| Self(None))
            }
        }
    }

    /// Says that something is about to be written, where the log is empty: SQLite draws its number then. Asked with the right to write, which
    /// nobody else has at the same time.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn before(&mut self) -> Result<(), StoreError> {
        self.or_unmarked(Marked::before)
    }

    /// Notes the number of the log, when something was written.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn after(&mut self) -> Result<(), StoreError> {
        self.or_unmarked(|marked| {
            marked.has_written = true;
            marked.note()
        })
    }

    /// Says that the log is empty, where it is: what was to be written was not, or was carried over. Asked with the right to write.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn nothing_written(&mut self) -> Result<(), StoreError> {
        self.or_unmarked(Marked::nothing_written)
    }

    /// Does a step; where that fails, logs of the database are not marked any more.
    fn or_unmarked(&mut self, step: impl FnOnce(&mut Marked) -> std::io::Result<()>) -> Result<(), StoreError> {
        let Some(marked) = &mut self.0 else { return Ok(()) };
        let Err(error) = step(marked) else { return Ok(()) };
        tracing::debug!(%error, "the log cannot be marked any more as this database's own");
        unmark(&marked.database)?;
        self.0 = None;
        Ok(())
    }
}

impl Marked {
    /// The log as it was found by whoever opened the database, which others may write to.
    fn found(&mut self) -> std::io::Result<()> {
        if generation(&self.log)?.is_some() {
            return self.note();
        }
        // One that has a mark keeps it: another process may have said just now that it begins to write.
        let is_own = mark_of(&self.log)?.is_some_and(|mark| mark.starts_with(self.identity.as_bytes()));
        if is_own { Ok(()) } else { self.say(&State::Empty) }
    }

    fn before(&mut self) -> std::io::Result<()> {
        // Of a log that was never begun again SQLite may not have taken a frame for written, and draws another number then.
        if generation(&self.log)?.is_none() || (!self.has_written && is_first(&self.log)?) {
            self.say(&State::Beginning)?;
        }
        Ok(())
    }

    fn note(&mut self) -> std::io::Result<()> {
        // What is noted last is how the log is, whoever begins it again meanwhile.
        while let Some(salt) = generation(&self.log)?.filter(|salt| self.noted != Some(*salt)) {
            self.say(&State::Begun(salt))?;
            self.noted = Some(salt);
        }
        Ok(())
    }

    fn nothing_written(&mut self) -> std::io::Result<()> {
        if generation(&self.log)?.is_none() { self.say(&State::Empty) } else { self.note() }
    }

    fn say(&mut self, state: &State) -> std::io::Result<()> {
        self.noted = None;
        let words = state.mark(&self.identity);
        match mark_of(&self.log) {
            Ok(Some(mark)) if mark == words => Ok(()),
            Ok(_) | Err(_) => set(&self.log, &words),
        }
    }
}

fn set(file: &File, words: &[u8]) -> std::io::Result<()> {
    Ok(rustix::fs::fsetxattr(file, MARK, words, XattrFlags::empty())?)
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
        tracing::debug!(%error, database = %path.shown(), "the database cannot be marked as one whose log is");
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
        Err(error) => Err(refused_because(format!("the log of {} cannot be marked as its own", path.shown()), error)),
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
    use std::collections::BTreeSet;
    use std::fs;

    use rusqlite::Connection;

    use super::*;

    const IDENTITY: &str = "0123456789abcdef0123456789abcdef";

    /// A place for a database, if marks are kept there.
    fn place() -> Option<(tempfile::TempDir, PathBuf)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        fs::write(&path, "a database").unwrap();
        keeps_attributes(folder.path()).then_some((folder, path))
    }

    /// A log as SQLite writes one, with this first salt.
    fn log(salt: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [0x377f_0682, 3_007_000, 512, 0, salt, 7] {
            bytes.extend(u32::to_be_bytes(word));
        }
        let (mut first, mut second) = (0_u32, 0_u32);
        for pair in bytes.chunks(8) {
            let word = |at: usize| u32::from_le_bytes(pair[at..at + 4].try_into().unwrap());
            first = first.wrapping_add(word(0)).wrapping_add(second);
            second = second.wrapping_add(word(4)).wrapping_add(first);
        }
        [bytes, first.to_be_bytes().to_vec(), second.to_be_bytes().to_vec(), vec![0; 536]].concat()
    }

    fn set_mark(file: &Path, mark: Option<&[u8]>) {
        match mark {
            Some(mark) => rustix::fs::lsetxattr(file, MARK, mark, XattrFlags::empty()).unwrap(),
            None => assert!(matches!(rustix::fs::lremovexattr(file, MARK), Ok(()) | Err(Errno::NODATA))),
        }
    }

    /// Over everything that may stand beside a database: what is in it, what its mark says, and what the database says.
    #[test]
    fn only_what_has_the_mark_of_the_database_and_is_what_that_says_is_its_own() {
        let Some((_folder, path)) = place() else { return };
        let steps = [0, 1, MAX_STEPS, MAX_STEPS + 1, u32::MAX - MAX_STEPS, u32::MAX - MAX_STEPS + 1, 1 << 31];
        let salts = [0, 1, 0x8000_0000, u32::MAX];
        let begun = |salt| State::Begun(salt).mark(IDENTITY);
        let longer = vec![b'x'; MAX_MARK_BYTES + 1];
        let others = [b"of another".to_vec(), vec![], longer, State::Begun(1).mark("of another")];
        for salt in salts {
            for says in [None, Some(IDENTITY.as_bytes())] {
                set_mark(&path, says);
                let mut cases = vec![(None, None, true), (Some(vec![]), None, true)];
                let known = [State::Empty.mark(IDENTITY), State::Beginning.mark(IDENTITY), begun(5)];
                for mark in [None].into_iter().chain(others.iter().cloned().map(Some)) {
                    cases.push((Some(log(salt)), mark.clone(), false));
                    cases.push((Some(b"nothing".to_vec()), mark, false));
                }
                // What SQLite does not read is harmless under any mark of the database.
                cases.extend(known.map(|mark| (Some(b"nothing".to_vec()), Some(mark), true)));
                let mut torn = log(salt);
                torn[30] ^= 1;
                cases.push((Some(torn), Some(State::Empty.mark(IDENTITY)), true));
                cases.push((Some(log(salt)), Some(State::Empty.mark(IDENTITY)), false));
                cases.push((Some(log(salt)), Some(IDENTITY.into()), false));
                cases.push((Some(log(salt)), Some(State::Beginning.mark(IDENTITY)), true));
                for step in steps {
                    let is_near = step <= MAX_STEPS || step.wrapping_neg() <= MAX_STEPS;
                    cases.push((Some(log(salt)), Some(begun(salt.wrapping_add(step))), is_near));
                }
                for (content, mark, is_own) in cases {
                    let file = Believed::Log.beside(&path);
                    fs::remove_file(&file).unwrap_or_default();
                    if let Some(content) = &content {
                        fs::write(&file, content).unwrap();
                        set_mark(&file, mark.as_deref());
                    }
                    let case = format!("{salt:x} {says:?} {:?} {mark:?}", content.map(|content| content.len()));
                    let is_foreign = says.is_some() && !is_own;
                    assert_eq!(foreign_beside(&path), is_foreign.then(|| file.clone()), "{case}");
                    adopt_beside(&path).unwrap();
                    assert_eq!(foreign_beside(&path), None, "{case}");
                    fs::remove_file(&file).unwrap_or_default();
                }
            }
        }
    }

    /// One that a person took for the database's own, and of which SQLite made nothing: another one that is written into it is not.
    #[test]
    fn a_journal_is_known_by_its_head() {
        let Some((_folder, path)) = place() else { return };
        set_mark(&path, Some(IDENTITY.as_bytes()));
        let journal = Believed::Journal.beside(&path);
        let contents = [vec![0; 512], b"short".to_vec(), [vec![7; JOURNAL_HEAD], vec![1; 900]].concat()];
        for content in &contents {
            fs::remove_file(&journal).unwrap_or_default();
            fs::write(&journal, content).unwrap();
            assert_eq!(foreign_beside(&path), Some(journal.clone()));
            adopt_beside(&path).unwrap();
            assert_eq!(foreign_beside(&path), None);
            for other in &contents {
                fs::write(&journal, other).unwrap();
                assert_eq!(foreign_beside(&path).is_some(), other != content, "{content:?} {other:?}");
            }
        }
    }

    /// Real logs of SQLite's, over what connections may do to them in any order: with what was noted at any moment a kill leaves a log that is the
    /// database's own, and whatever is written into its file from elsewhere is not.
    #[test]
    fn whatever_connections_do_the_log_is_known_and_another_one_is_not() {
        /// One step of a connection; each of a writer is as `writer.rs` takes it.
        #[derive(Debug, Clone, Copy)]
        enum Step {
            Write(usize),
            GiveUp(usize),
            Truncate(usize),
            /// All of it is carried over, so that the next write begins the log again in place.
            Passive(usize),
            Reopen(usize),
        }
        // What a file system writes out at once where a file is emptied first.
        let put = |file: &Path, bytes: &[u8]| {
            let file = OpenOptions::new().write(true).open(file).unwrap();
            file.write_all_at(bytes, 0).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
        };
        let Some((folder, _)) = place() else { return };
        let steps = [0, 1].map(|who| {
            [Step::Write(who), Step::GiveUp(who), Step::Truncate(who), Step::Passive(who), Step::Reopen(who)]
        });
        let steps = steps.concat();
        let mut salts = BTreeSet::new();
        for (round, first) in steps.iter().enumerate() {
            let path = folder.path().join(format!("{round}.db"));
            let open = || {
                let connection = Connection::open(&path).unwrap();
                connection.pragma_update(None, "journal_mode", "WAL").unwrap();
                connection.pragma_update(None, "synchronous", "OFF").unwrap();
                connection.execute_batch("CREATE TABLE IF NOT EXISTS t(x)").unwrap();
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
                let log = OwnLog::of(&path, IDENTITY).unwrap();
                (connection, log)
            };
            let mut all = [open(), open()];
            all[1].1.nothing_written().unwrap();
            for second in &steps {
                for third in &steps {
                    let own = |after: &str| {
                        assert_eq!(foreign_beside(&path), None, "{first:?} {second:?} {third:?}: {after}");
                    };
                    for step in [*first, *second, *third, Step::Write(0), Step::Write(1)] {
                        match step {
                            Step::Write(who) | Step::GiveUp(who) => {
                                let (connection, log) = &mut all[who];
                                connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                                own("begun");
                                log.before().unwrap();
                                own("said");
                                connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
                                if matches!(step, Step::GiveUp(_)) {
                                    log.nothing_written().unwrap();
                                    connection.execute_batch("ROLLBACK").unwrap();
                                } else {
                                    connection.execute_batch("COMMIT").unwrap();
                                    own("committed");
                                    log.after().unwrap();
                                }
                            }
                            Step::Truncate(who) | Step::Passive(who) => {
                                let how = if matches!(step, Step::Passive(_)) { "PASSIVE" } else { "TRUNCATE" };
                                let sql = format!("PRAGMA wal_checkpoint({how})");
                                all[who].0.query_row(&sql, [], |_| Ok(())).unwrap();
                            }
                            Step::Reopen(who) => {
                                let connection = Connection::open(&path).unwrap();
                                connection.pragma_update(None, "synchronous", "OFF").unwrap();
                                connection.query_row("SELECT count(*) FROM t", [], |_| Ok(())).unwrap();
                                all[who] = (connection, OwnLog::of(&path, IDENTITY).unwrap());
                            }
                        }
                        own("done");
                        // Another log in the same file, as what unpacks a folder in place leaves it.
                        let file = Believed::Log.beside(&path);
                        let is_there = generation(&File::open(&file).unwrap()).unwrap();
                        let now = fs::read(&file).unwrap();
                        put(&file, &log(is_there.unwrap_or(0) ^ 0x4000_0000));
                        assert_eq!(
                            foreign_beside(&path),
                            Some(file.clone()),
                            "{first:?} {second:?} {third:?}: {step:?}"
                        );
                        put(&file, &now);
                        salts.extend(is_there);
                    }
                }
            }
        }
        assert!(salts.len() > 500, "SQLite drew only {} numbers", salts.len());
    }

    /// Killed before or after each step, with each kind of log: a log in which something may be written after that is never refused.
    #[test]
    fn a_log_is_marked_before_its_database_says_so() {
        let Some((_folder, path)) = place() else { return };
        let file = Believed::Log.beside(&path);
        for before in [None, Some(IDENTITY)] {
            for (content, salt) in
                [(vec![], 9), (b"of an earlier version, which marks nothing".to_vec(), 9), (log(3), 3)]
            {
                match before {
                    None => unmark(&path).unwrap(),
                    Some(identity) => mark_database(&path, identity),
                }
                fs::remove_file(&file).unwrap_or_default();
                fs::write(&file, &content).unwrap();
                let mut own = OwnLog::of(&path, IDENTITY).unwrap();
                // Steps do not depend on what came before: again, by another process.
                let mut other = OwnLog::of(&path, IDENTITY).unwrap();
                own.before().unwrap();
                other.before().unwrap();
                fs::write(&file, log(salt)).unwrap();
                assert_eq!(foreign_beside(&path), None, "{before:?} {content:?}");
                own.after().unwrap();
                assert_eq!(foreign_beside(&path), None, "{before:?} {content:?}");
                // The next log, of which the last process that closes the database makes way.
                fs::remove_file(&file).unwrap();
                assert_eq!(foreign_beside(&path), None);
                // As version control puts a file there: under its name, or by another one's name.
                for is_renamed in [false, true] {
                    fs::remove_file(&file).unwrap_or_default();
                    let made = if is_renamed { path.with_extension("new") } else { file.clone() };
                    fs::write(&made, log(salt)).unwrap();
                    if is_renamed {
                        fs::rename(&made, &file).unwrap();
                    }
                    assert_eq!(foreign_beside(&path), Some(file.clone()), "{is_renamed}");
                }
            }
        }
        // Where the log cannot be marked, nothing is refused later.
        fs::remove_file(&file).unwrap();
        let mut own = OwnLog::of(&path, IDENTITY).unwrap();
        own.before().unwrap();
        fs::write(&file, log(1)).unwrap();
        assert_eq!(foreign_beside(&path), None, "the database does not say any more that its logs are marked");
    }

    /// Of a log that was never begun again SQLite may take no frame for written, as one that a kill left, and draws another number. Until this process
    /// has written, any is its own; then the one that it noted.
    #[test]
    fn a_log_that_was_never_begun_again_may_get_another_number_at_the_first_write() {
        let Some((_folder, path)) = place() else { return };
        let file = Believed::Log.beside(&path);
        fs::write(&file, log(7)).unwrap();
        let mut own = OwnLog::of(&path, IDENTITY).unwrap();
        let drawn = |salt: u32| File::options().write(true).open(&file).unwrap().write_all_at(&log(salt), 0).unwrap();
        drawn(0x4000_0007);
        assert_eq!(foreign_beside(&path), Some(file.clone()), "nobody has said that something is written");
        drawn(7);
        own.before().unwrap();
        drawn(0x4000_0007);
        assert_eq!(foreign_beside(&path), None, "killed before the number is noted");
        own.after().unwrap();
        own.before().unwrap();
        assert_eq!(foreign_beside(&path), None);
        drawn(7);
        assert_eq!(foreign_beside(&path), Some(file.clone()), "it has written, and noted its number");
    }

    #[test]
    fn what_is_no_file_is_neither_waited_for_nor_called_foreign() {
        let Some((_folder, path)) = place() else { return };
        mark_database(&path, IDENTITY);
        let log = Believed::Log.beside(&path);
        rustix::fs::mkfifoat(rustix::fs::CWD, &log, rustix::fs::Mode::RWXU).unwrap();
        assert_eq!(foreign_beside(&path), None, "opening the database refuses it");
        fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(&path, &log).unwrap();
        assert_eq!(foreign_beside(&path), None);
    }
}
