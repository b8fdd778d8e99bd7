//! What a root knows of the durable writes of its runs that the server confirmed, whatever becomes of the server.
//!
//! How far the log of a server was tells little once it was put back: the log grows again, with whatever anybody writes. And how commits are waited
//! for may be changed behind the last look. So of each run that is driven from a root the number of its newest durable batch is noted among the
//! locks, once that was acknowledged and before what it was written for is sent. A server that has fewer of them lacks some.
//!
//! Like `effects.log` it is not synced: a process that is killed loses nothing of it, a machine that stops may lose the newest. How all notes of a
//! root are looked at, and when one is removed, is in `notes.rs`.

use std::io::Write as _;
use std::path::Path;

use ua_core::Timestamp;
use ua_files::Folder;
use ua_store::RunLease;

/// The longest note that is read, in bytes.
const MAX_BYTES: u64 = 4096;

/// The newest durable batch of a run's owner that the server confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// The identity of the database.
    database: String,
    /// The epoch of its owner.
    epoch: u64,
    /// Its number.
    batches: u64,
    /// Who its owner was: a server that was put back may give an epoch twice.
    owner: String,
    /// When it was noted.
    at: Timestamp,
}

impl Confirmed {
    /// Batch `number` of the owner with this lease, `at` this instant.
    pub(crate) fn of(database: &str, lease: &RunLease, number: u64, at: Timestamp) -> Self {
        let owner = lease.id.as_str().to_owned();
        Self { database: database.to_owned(), epoch: lease.epoch, batches: number, owner, at }
    }

    /// What is noted of a run of this database. What cannot be read says nothing.
    pub(crate) fn beside(locks: &Path, database: &str, run: &str) -> Option<Self> {
        let noted = Folder::open_itself(locks).and_then(|locks| Self::read(&locks, run)).ok()?;
        noted.filter(|noted| noted.is_of(database))
    }

    /// What is noted of a run, of whichever database.
    ///
    /// # Errors
    ///
    /// There is a note, and it cannot be read.
    pub(crate) fn read(locks: &Folder, run: &str) -> std::io::Result<Option<Self>> {
        let noted = match locks.read(file_of(run), MAX_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            noted => noted?,
        };
        let noted = std::str::from_utf8(&noted).ok().and_then(Self::parse);
        noted.map(Some).ok_or_else(|| std::io::Error::other("it does not say what was confirmed"))
    }

    /// Removes the note, unless another one has taken its place; whether it did.
    pub(crate) fn remove(&self, locks: &Path, run: &str) -> std::io::Result<bool> {
        let locks = Folder::open_itself(locks)?;
        if Self::read(&locks, run)?.as_ref() != Some(self) {
            return Ok(false);
        }
        match locks.remove(file_of(run)) {
            // Another process was faster.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Whether it is of the database with this identity.
    pub(crate) fn is_of(&self, database: &str) -> bool {
        self.database == database
    }

    /// Notes it.
    pub(crate) fn note(&self, locks: &Path, run: &str) -> std::io::Result<()> {
        let mut made = tempfile::NamedTempFile::new_in(locks)?;
        made.write_all(self.noted().as_bytes())?;
        made.persist(locks.join(file_of(run))).map(drop).map_err(|error| error.error)
    }

    fn noted(&self) -> String {
        let Self { database, epoch, batches, owner, at } = self;
        format!("{database} {epoch} {batches} {owner} {at}")
    }

    fn parse(noted: &str) -> Option<Self> {
        let mut words = noted.split(' ');
        let database = words.next()?.to_owned();
        let (epoch, batches) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let owner = words.next()?.to_owned();
        let at = Timestamp::parse(words.next()?)?;
        Some(Self { database, epoch, batches, owner, at })
    }

    /// Whether a server with so many batches of the run, of an owner with this epoch, lacks something. What was accepted behind the note was accepted
    /// with what is gone.
    pub(crate) fn is_lacked_by(&self, epoch: u64, batches: u64, accepted_at: Option<Timestamp>) -> bool {
        (epoch, batches) < (self.epoch, self.batches) && accepted_at.is_none_or(|at| at < self.at)
    }

    /// Whether the owner with this lease had more batches confirmed than so many, and durable ones among what is missing.
    pub(crate) fn is_lost_by(&self, lease: &RunLease, batches: u64) -> bool {
        self.epoch == lease.epoch && self.owner == lease.id.as_str() && batches < self.batches
    }
}

impl std::fmt::Display for Confirmed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "batch {} of epoch {} at {}", self.batches, self.epoch, self.at)
    }
}

/// How the files of runs among the locks end.
const ENDING: &str = ".confirmed";

/// The file of a run among the locks.
pub(crate) fn file_of(run: &str) -> String {
    format!("{run}{ENDING}")
}

/// The run whose file it is.
pub(crate) fn run_of(file: &str) -> Option<&str> {
    file.strip_suffix(ENDING)
}

#[cfg(test)]
mod tests {
    use ua_core::{RunId, Trace};

    use super::*;

    fn lease(epoch: u64, owner: &str) -> RunLease {
        RunLease { run_id: RunId::parse("run_1").unwrap(), epoch, id: Trace::from_stored(owner.to_owned()) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_767_323_045_000 + seconds * 1_000)
    }

    #[test]
    fn a_server_lacks_what_it_has_less_of_unless_that_was_accepted_since() {
        let noted = Confirmed::of("db", &lease(3, "a"), 7, at(100));
        for (epoch, batches, lacks) in [(3, 7, false), (3, 8, false), (4, 0, false), (3, 6, true), (2, 90, true)] {
            for (accepted, counts) in [(None, true), (Some(at(99)), true), (Some(at(100)), false)] {
                assert_eq!(
                    noted.is_lacked_by(epoch, batches, accepted),
                    lacks && counts,
                    "{epoch} {batches} {accepted:?}"
                );
            }
        }
        assert!(noted.is_lost_by(&lease(3, "a"), 6));
        for (lease, batches) in [(lease(3, "a"), 7), (lease(3, "b"), 6), (lease(2, "a"), 6)] {
            assert!(!noted.is_lost_by(&lease, batches), "{lease:?} {batches}");
        }
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_by_its_database_alone() {
        let locks = tempfile::tempdir().unwrap();
        let noted = Confirmed::of("db", &lease(3, "a"), 7, at(100));
        noted.note(locks.path(), "run_1").unwrap();
        assert_eq!(Confirmed::beside(locks.path(), "db", "run_1"), Some(noted.clone()));
        assert_eq!(Confirmed::beside(locks.path(), "other", "run_1"), None);
        assert_eq!(Confirmed::beside(locks.path(), "db", "run_2"), None);
        let text = noted.noted();
        for (end, _) in text.match_indices(' ') {
            assert_eq!(Confirmed::parse(&text[..end]), None, "{}", &text[..end]);
        }
        assert_eq!(run_of(&file_of("run_1")), Some("run_1"));
        assert_eq!(run_of("run_1.lock"), None);
        std::fs::write(locks.path().join(file_of("run_2")), "damaged").unwrap();
        let folder = Folder::open(locks.path()).unwrap();
        assert!(Confirmed::read(&folder, "run_2").is_err() && Confirmed::read(&folder, "run_3").unwrap().is_none());
        assert_eq!(Confirmed::beside(locks.path(), "db", "run_2"), None);
    }

    /// A note that took the place of the one that is over is of somebody who writes.
    #[test]
    fn only_the_note_that_is_over_is_removed() {
        let locks = tempfile::tempdir().unwrap();
        let (over, newer) =
            (Confirmed::of("db", &lease(3, "a"), 7, at(100)), Confirmed::of("db", &lease(4, "b"), 1, at(200)));
        newer.note(locks.path(), "run_1").unwrap();
        assert!(!over.remove(locks.path(), "run_1").unwrap());
        assert_eq!(Confirmed::beside(locks.path(), "db", "run_1"), Some(newer.clone()));
        for is_there in [true, false] {
            assert_eq!(newer.remove(locks.path(), "run_1").unwrap(), is_there);
        }
    }
}
