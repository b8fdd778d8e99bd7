//! All that a root noted of its database, looked at together; and the end of the notes of runs.
//!
//! A server that goes back keeps a beginning of what it had: where it lacks a write, it lacks all that were written behind that. So whatever one
//! run lost tells of the others of the root, and need not be lost by the run that is taken next. And a note that is behind all that others are of
//! makes those superfluous: from time to time the root counts a number up in the database, its *mark*, and notes it among the locks once that is
//! durable. A database in which the number is smaller lacks something that was written before the mark, whichever run that was of. What ended or
//! was deleted before the mark needs no note of its own then.
//!
//! Invariant: a note is removed only behind a mark that is noted durably, and that was made behind the end of its run. Proved by: `tests/it/notes.rs`.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use ua_core::{PrintedCommand, RunId, ShowPath as _, Timestamp, Trace};
use ua_files::{Folder, Kind};
use ua_store::{Retry, StoreError};

use crate::beside::beside;
use crate::column::Columns;
use crate::config::why_position_is_unread;
use crate::confirmed::{Confirmed, file_of, run_of};
use crate::db::Db;
use crate::error::{DbError, unavailable};
use crate::history::Kin;
use crate::locks::Shared;
use crate::store::PostgresStore;
use crate::value::{Value, params};

/// The file among the locks that has the newest mark.
const MARK: &str = "database_mark";
/// The one whose lock whoever changes that has.
const MARK_LOCK: &str = "database_mark.lock";
/// The longest mark that is read, in bytes.
const MAX_BYTES: u64 = 4096;
/// How the keys of `meta` begin that have the marks of roots.
const ROOT: &str = "root/";

/// How far apart the looks of a worker at all notes are, where no connection was made in between.
const LOOKS_EVERY: Duration = Duration::from_mins(1);

/// What is stored of the runs of which something is noted.
const OF_NOTES: &str = "SELECT n.run_id, r.run_id IS NOT NULL AS is_there, \
      coalesce(r.status IN ('succeeded', 'failed', 'cancelled'), false) OR d.run_id IS NOT NULL AS has_ended, \
      coalesce(r.lease_epoch, 0) AS lease_epoch, coalesce(w.batches, 0) AS batches, h.key IS NOT NULL AS is_held, y.value AS accepted, \
      pg_is_in_recovery() AS is_behind \
    FROM unnest($1::text[]) AS n (run_id) LEFT JOIN ua.runs r ON r.run_id = n.run_id LEFT JOIN ua.run_writes w ON w.run_id = n.run_id \
    LEFT JOIN ua.deleted_runs d ON d.run_id = n.run_id LEFT JOIN ua.meta h ON h.key = 'held/' || n.run_id \
    LEFT JOIN ua.meta y ON y.key = 'accepted/' || n.run_id ORDER BY n.run_id";

/// How far a root counted in its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    /// The identity of the database.
    database: String,
    /// What tells this root from others that count there.
    root: String,
    /// How far, as the server confirmed it; 0 before the first time.
    number: u64,
    /// When it was noted.
    at: Timestamp,
}

impl Mark {
    /// What is noted with these locks for this database. What cannot be read says nothing.
    pub(crate) fn beside(locks: &Path, database: &str) -> Option<Self> {
        let noted = Folder::open_itself(locks).and_then(|locks| Self::read(&locks)).ok()?;
        noted.filter(|mark| mark.database == database)
    }

    /// The same, begun where nothing is noted for this database; `None` while another process changes it.
    fn of(locks: &Path, database: &str) -> std::io::Result<Option<Self>> {
        let locks = Folder::open_itself(locks)?;
        let Some(_alone) = alone(&locks)? else { return Ok(None) };
        if let Some(noted) = Self::read(&locks)?.filter(|mark| mark.database == database) {
            return Ok(Some(noted));
        }
        let env = ua_core::system::env();
        let root = Trace::new(&env).as_str().to_owned();
        let first = Self { database: database.to_owned(), root, number: 0, at: env.now() };
        locks.replace_durably(MARK, first.noted().as_bytes())?;
        Ok(Some(first))
    }

    fn read(locks: &Folder) -> std::io::Result<Option<Self>> {
        let noted = match locks.read(MARK, MAX_BYTES) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            noted => noted?,
        };
        let mark = std::str::from_utf8(&noted).ok().and_then(Self::parse);
        mark.map(Some).ok_or_else(|| std::io::Error::other("it does not say how far"))
    }

    /// Notes it; whether it, or a newer one, is noted now, which it is not while another process changes it. Of processes that do so one after the
    /// other the newest one's stays: what the others rely on is older.
    fn note(&self, locks: &Path) -> std::io::Result<bool> {
        let locks = Folder::open_itself(locks)?;
        let Some(_alone) = alone(&locks)? else { return Ok(false) };
        let is_newer =
            |noted: Self| noted.database == self.database && noted.root == self.root && noted.number >= self.number;
        if !Self::read(&locks)?.is_some_and(is_newer) {
            locks.replace_durably(MARK, self.noted().as_bytes())?;
        }
        Ok(true)
    }

    fn noted(&self) -> String {
        let Self { database, root, number, at } = self;
        format!("{database} {root} {number} {at}")
    }

    fn parse(noted: &str) -> Option<Self> {
        let mut words = noted.split(' ');
        let (database, root) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some(Self { database, root, number: words.next()?.parse().ok()?, at: Timestamp::parse(words.next()?)? })
    }

    /// Where it is in the database.
    pub(crate) fn key(&self) -> String {
        format!("{ROOT}{}", self.root)
    }

    /// How far it was counted, as it is stored.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// When it was noted: what was accepted since was accepted with what is gone.
    pub(crate) fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether a database that has this under its key lacks something.
    pub(crate) fn is_lacked_by(&self, stored: Option<&str>) -> bool {
        counted(stored) < self.number
    }
}

/// What a database says under the key of a mark, as a number.
fn counted(stored: Option<&str>) -> u64 {
    stored.and_then(|stored| stored.parse().ok()).unwrap_or(0)
}

/// The right to change the mark, where nobody has it. It is had for as long as a small file is written, but whoever has it may stand still (`SIGSTOP`,
/// a debugger), and what is done behind it can wait for the next time.
fn alone(locks: &Folder) -> std::io::Result<Option<File>> {
    let file = locks.open_or_make(MARK_LOCK)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Forgets how far a root counted in its database: it is to use another one, or the same one anew.
pub(crate) fn forget_mark(locks: &Path) -> std::io::Result<()> {
    match Folder::open_itself(locks).and_then(|locks| locks.remove(MARK)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// What a look at all that a root noted found.
#[derive(Debug, Default)]
pub struct Noted {
    /// What the server had confirmed and does not have, a sentence for each run.
    pub lacking: Vec<String>,
    /// Which notes cannot be read, a sentence each.
    pub unreadable: Vec<String>,
    /// The runs that ended or were deleted, with what is noted of them.
    over: Vec<(String, Confirmed)>,
}

impl Noted {
    /// Reads the notes of these locks; those of another database are not looked at.
    fn beside(locks: &Path, database: &str) -> std::io::Result<(BTreeMap<String, Confirmed>, Self)> {
        let (mut notes, mut found) = (BTreeMap::new(), Self::default());
        let folder = match Folder::open_itself(locks) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((notes, found)),
            folder => folder?,
        };
        for (name, kind) in folder.entries()? {
            // What else may lie there is none of ours.
            let is_note = |run: &&str| kind != Kind::Folder && RunId::parse(run).is_ok();
            let Some(run) = name.to_str().and_then(run_of).filter(is_note) else { continue };
            match Confirmed::read(&folder, run) {
                Ok(Some(noted)) if noted.is_of(database) => drop(notes.insert(run.to_owned(), noted)),
                // It was removed meanwhile.
                Ok(Some(_) | None) => {}
                Err(why) => found.unreadable.push(format!(
                    "what the server confirmed of run {run} cannot be read in {}: {why}; if the server lacks some of it, nobody is told by this \
                     root. Compare {} with what was received, then remove that file",
                    locks.join(file_of(run)).shown(),
                    PrintedCommand::of("ua calls list").option("--run", run).in_code()
                )),
            }
        }
        let mark = Mark::read(&folder).err().map(|why| (MARK, why));
        let others = mark.into_iter().chain(why_position_is_unread(&folder));
        found.unreadable.extend(others.map(|(name, why)| {
            format!(
                "how far the database was cannot be read in {}: {why}; if the server went back, nobody is told by that file. Compare `ua calls \
                 list` with what was received, then remove it",
                locks.join(name).shown()
            )
        }));
        Ok((notes, found))
    }
}

impl PostgresStore {
    /// Compares what is noted of all runs of the root that works here with what the server has, and holds what has not ended if it lacks some of it.
    /// It says nothing where no root works here, nor of a standby, which may be behind.
    ///
    /// # Errors
    ///
    /// The database, or the folder of the notes, cannot be read.
    pub async fn look_at_notes(&self) -> Result<Noted, StoreError> {
        let Some((locks, database)) = self.root_here() else { return Ok(Noted::default()) };
        let (folder, of) = (locks.to_owned(), database.to_owned());
        let read = beside(move || Noted::beside(&folder, &of)).await;
        let (notes, mut found) =
            read.map_err(|error| unavailable(format!("{} cannot be read", locks.shown()), error, Retry::Later))?;
        if notes.is_empty() {
            return Ok(found);
        }
        let (mut suspects, mut are_all_held) = (Vec::new(), false);
        for row in &self.ask(OF_NOTES, vec![Value::Texts(notes.keys().cloned().collect())]).await? {
            let column = Columns::new(row, "runs", "run_id");
            if column.get("is_behind").map_err(DbError::into_store)? {
                return Ok(found);
            }
            let kin = Kin::of(row).map_err(DbError::into_store)?;
            let is_there: bool = column.get("is_there").map_err(DbError::into_store)?;
            let has_ended: bool = column.get("has_ended").map_err(DbError::into_store)?;
            let Some(noted) = notes.get(&kin.run_id) else { continue };
            // Whoever ended one that is held knew of it; of another one it shows that the server went back, as of one that goes on.
            let is_over = has_ended && (!is_there || kin.is_held() || !kin.has_less_than(noted));
            if is_over {
                found.over.push((kin.run_id, noted.clone()));
            } else if !is_there {
                are_all_held = true;
                found.lacking.push(format!(
                    "the server had confirmed {noted} of run {}, and has neither the run nor that it was deleted: it went back. Find out what the \
                     run sent, then remove {}",
                    kin.run_id,
                    locks.join(file_of(&kin.run_id)).shown()
                ));
            } else if has_ended {
                are_all_held = true;
                let (epoch, batches) = kin.written();
                found.lacking.push(format!(
                    "the server had confirmed {noted} of run {}, which has ended with batch {batches} of epoch {epoch}: it went back, and \
                     what was sent in the part that is gone is not in it. Find out what the run sent, then remove {}",
                    kin.run_id,
                    locks.join(file_of(&kin.run_id)).shown()
                ));
            } else if kin.has_less_than(noted) {
                let (epoch, batches) = kin.written();
                found.lacking.push(format!(
                    "the server had confirmed {noted} of run {}, and has batch {batches} of epoch {epoch} now: it went back, and what was sent in \
                     the part that is gone is not in it",
                    kin.run_id
                ));
                if !kin.is_held() {
                    suspects.push((kin.run_id, noted.clone()));
                }
            }
        }
        let held = if suspects.is_empty() { Ok(()) } else { self.hold_for(suspects).await };
        let held = if are_all_held { held.and(self.hold_unfinished().await) } else { held };
        if let Err(error) = held {
            tracing::warn!(%error, "the server went back, and the runs that have not ended are not held");
        }
        Ok(found)
    }

    /// Removes the notes of runs that ended or were deleted, behind a mark; how many. Nothing is removed where the server lacks anything, and nothing
    /// while another process of the root is at it.
    ///
    /// # Errors
    ///
    /// The database cannot be read or written, or the folder of the notes cannot.
    pub async fn clear_notes(&self) -> Result<usize, StoreError> {
        let Some((locks, database)) = self.root_here() else { return Ok(0) };
        self.note_history().await?;
        let found = self.look_at_notes().await?;
        // What a server that went back says has ended may be another end than that which was noted.
        if !found.lacking.is_empty() {
            return Ok(0);
        }
        let failed =
            |error: std::io::Error| unavailable(format!("{} cannot be changed", locks.shown()), error, Retry::Later);
        let (folder, of) = (locks.to_owned(), database.to_owned());
        let Some(last) = beside(move || Mark::of(&folder, &of)).await.map_err(failed)? else { return Ok(0) };
        let number = {
            let last = last.clone();
            self.write_apart(Shared::History, move |db| db.count_on(&last)).await?
        };
        let mark = Mark { number, at: ua_core::system::env().now(), ..last };
        let (folder, over) = (locks.to_owned(), found.over);
        let removing = beside(move || -> std::io::Result<usize> {
            let over = if mark.note(&folder)? { over } else { Vec::new() };
            let mut removed = 0;
            for (run, noted) in &over {
                removed += usize::from(noted.remove(&folder, run)?);
            }
            Ok(removed)
        });
        removing.await.map_err(failed)
    }

    /// A worker gave a sign of life: now and then, and once connections were made that may lead to another server, all notes are looked at and those
    /// that are over removed. Beside what the worker does, whose lease does not wait for it.
    pub(crate) fn look_now_and_then(&self) {
        if self.root_here().is_none() || !self.looked().are_notes_due(ua_core::system::env().now(), LOOKS_EVERY) {
            return;
        }
        let store = self.clone();
        drop(self.runtime().spawn(async move {
            if let Err(error) = store.clear_notes().await {
                tracing::debug!(%error, "what is noted of runs was not compared");
            }
        }));
    }
}

impl Db {
    /// What is stored of a mark.
    pub(crate) fn stored(&self, mark: &Mark) -> Result<Option<String>, DbError> {
        let sql = "SELECT value FROM meta WHERE key = $1";
        self.row(sql, params![mark.key()], |row| Ok(row.try_get::<_, String>(0)?))
    }

    /// Counts on behind a mark; how far.
    fn count_on(&self, last: &Mark) -> Result<u64, DbError> {
        let stored = self.stored(last)?;
        if last.is_lacked_by(stored.as_deref()) {
            self.hold_all(Some(last.at));
        }
        let number = counted(stored.as_deref()).max(last.number) + 1;
        self.put(&last.key(), &number.to_string());
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_noted_and_the_newest_stays() {
        let locks = tempfile::tempdir().unwrap();
        let of = |database: &str| Mark::of(locks.path(), database).unwrap();
        let first = of("db").unwrap();
        assert_eq!((first.number, of("db")), (0, Some(first.clone())), "it is begun once");
        assert!(!first.is_lacked_by(None), "nothing was counted");
        for (number, noted) in [(7, 7), (6, 7), (8, 8)] {
            assert!(Mark { number, ..first.clone() }.note(locks.path()).unwrap());
            let mark = Mark::beside(locks.path(), "db").unwrap();
            assert_eq!((mark.number, mark.key()), (noted, first.key()));
        }
        let mark = Mark::beside(locks.path(), "db").unwrap();
        for (stored, is_lacked) in
            [(None, true), (Some("7"), true), (Some("x"), true), (Some("8"), false), (Some("9"), false)]
        {
            assert_eq!(mark.is_lacked_by(stored), is_lacked, "{stored:?}");
        }
        assert_eq!(Mark::beside(locks.path(), "other"), None);
        let other = of("other").unwrap();
        assert!(other.number == 0 && other.root != first.root, "of another database nothing counts");
        forget_mark(locks.path()).unwrap();
        forget_mark(locks.path()).unwrap();
        assert_eq!(Mark::beside(locks.path(), "other"), None);
    }

    /// Somebody who stands still with the right to change it holds nobody up.
    #[test]
    fn a_mark_that_another_process_changes_is_left_for_the_next_time() {
        let locks = tempfile::tempdir().unwrap();
        let of = || Mark::of(locks.path(), "db").unwrap();
        let first = of().unwrap();
        let held = alone(&Folder::open(locks.path()).unwrap()).unwrap().unwrap();
        let next = Mark { number: 1, ..first.clone() };
        assert_eq!((of(), next.note(locks.path()).unwrap()), (None, false));
        drop(held);
        assert!(next.note(locks.path()).unwrap());
        assert_eq!(of(), Some(next));
    }

    /// What is damaged is not taken for nothing: whoever would count from the beginning would lose what the mark says.
    #[test]
    fn a_damaged_mark_is_not_begun_anew() {
        let locks = tempfile::tempdir().unwrap();
        let folder = Folder::open(locks.path()).unwrap();
        for damaged in ["", "db", "db root", "db root 7", "db root x 2026-01-02T03:04:05.000Z"] {
            folder.replace(MARK, damaged.as_bytes()).unwrap();
            assert!(Mark::of(locks.path(), "db").is_err(), "{damaged}");
            assert_eq!(Mark::beside(locks.path(), "db"), None, "{damaged}");
            let (_, found) = Noted::beside(locks.path(), "db").unwrap();
            assert!(found.unreadable.len() == 1 && found.unreadable[0].contains(MARK), "{:?}", found.unreadable);
        }
    }
}
