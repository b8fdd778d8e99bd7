//! Room at the end of SQLite's log, made before it is needed.
//!
//! A sync of a file that has grown stores its new length as well, for which the file system writes a journal of its own: while a log grows, each
//! synced transaction takes a fifth to two fifths longer than where it is written over. So a log that has become long is made longer at once, by
//! zeros, and SQLite writes over them.
//!
//! Invariants: nothing that is in a file is written over, since zeros are only ever appended, whoever writes there meanwhile; and zeros are no frame
//! of a log, which has the number of a page and the salts of its header, so that SQLite ends a log where they begin. Only its speed depends on them.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::open::{regular, sibling_file};
use crate::pragma::LOG_BYTES;

/// A log that is shorter is left as it is: most processes write less.
const LEAST: u64 = 512 * 1024;
/// So much is made at once.
const PIECE: u64 = 1024 * 1024;
/// A log that is longer is left as it is: what stands in it is carried over before it is as long as this, and then it is written over from its beginning.
const MOST: u64 = LOG_BYTES.unsigned_abs() / 32 * 33;
/// How many zeros are written in one call.
const ZEROS: usize = 64 * 1024;
/// So many bytes at the end of a log say whether there is room: a page seldom ends with zeros, and where one does the next will not.
const END: usize = 64;

/// The log of a database that is open.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    /// Nothing where no room is made, or none can be.
    path: Option<PathBuf>,
    file: Option<File>,
    /// How long the log was at the last look.
    length: u64,
}

impl LogRoom {
    /// Of the log beside a database.
    pub(crate) fn beside(database: &Path) -> Self {
        Self { path: Some(sibling_file(database, "-wal")), ..Self::default() }
    }

    /// Makes room where a long log has none. Asked before a synced transaction writes.
    pub(crate) fn make(&mut self) {
        if let Err(error) = self.look() {
            // It is as fast as without.
            tracing::debug!(%error, "no room was made in the log");
            *self = Self::default();
        }
    }

    fn look(&mut self) -> std::io::Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(regular(OpenOptions::new().read(true).append(true), path)?),
        };
        let length = file.metadata()?.len();
        if length == self.length {
            return Ok(());
        }
        self.length = length;
        if !(LEAST..MOST).contains(&length) || has_room(file, length)? {
            return Ok(());
        }
        let zeros = vec![0; ZEROS];
        for _ in 0..PIECE / ZEROS as u64 {
            file.write_all(&zeros)?;
        }
        self.length = file.metadata()?.len();
        Ok(())
    }
}

/// Whether the end of a log has not been written over yet.
fn has_room(log: &File, length: u64) -> std::io::Result<bool> {
    let mut end = [0; END];
    log.read_exact_at(&mut end, length - END as u64)?;
    Ok(end == [0; END])
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn database(folder: &tempfile::TempDir) -> (PathBuf, Connection) {
        let path = folder.path().join("x.db");
        let connection = Connection::open(&path).unwrap();
        let settings = "PRAGMA page_size = 2048; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0; \
                        CREATE TABLE t(id INTEGER PRIMARY KEY, x)";
        connection.execute_batch(settings).unwrap();
        (path, connection)
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM t WHERE length(x) = 30000", [], |row| row.get(0)).unwrap()
    }

    /// What a kill leaves: the file and its log, as they are.
    fn killed(path: &Path, folder: &tempfile::TempDir) -> Connection {
        let copy = folder.path().join("copy.db");
        for suffix in ["", "-wal"] {
            std::fs::copy(sibling_file(path, suffix), sibling_file(&copy, suffix)).unwrap();
        }
        std::fs::remove_file(sibling_file(&copy, "-shm")).unwrap_or_default();
        Connection::open(copy).unwrap()
    }

    #[test]
    fn a_long_log_has_room_and_after_a_kill_nothing_but_what_was_committed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, connection) = database(&folder);
        let mut room = LogRoom::beside(&path);
        let length = || std::fs::metadata(sibling_file(&path, "-wal")).unwrap().len();
        let (mut lengths, mut written) = (std::collections::BTreeSet::new(), 0);
        for row in 1..=400 {
            let before = length();
            connection.execute_batch("BEGIN IMMEDIATE").unwrap();
            room.make();
            if length() > before {
                assert!((LEAST..MOST).contains(&before) && length() == before + PIECE, "{before} {}", length());
            }
            connection.execute("INSERT INTO t (x) VALUES (hex(randomblob(15000)))", []).unwrap();
            connection.execute_batch("COMMIT").unwrap();
            lengths.insert(length());
            written = row;
            if row % 25 == 0 {
                assert_eq!(count(&killed(&path, &folder)), row);
            }
        }
        assert_eq!(count(&connection), written);
        // 400 transactions of some 33 KB: those up to the first room and those behind the last one make the log longer, and a few between.
        let longer = |from: u64, to: u64| lengths.range(from..to).count();
        assert!(longer(LEAST + PIECE, MOST) < 20, "{lengths:?}");
        assert!(longer(0, LEAST) > 10 && longer(MOST + PIECE, u64::MAX) > 50, "{lengths:?}");
        // Carried over, it is written over from its beginning, behind which old frames stand.
        connection.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
        connection.execute("INSERT INTO t (x) VALUES (hex(randomblob(15000)))", []).unwrap();
        assert_eq!(count(&killed(&path, &folder)), written + 1);
    }

    /// A power cut leaves any pieces of what was not synced: where one of them lacks, there are zeros still.
    #[test]
    fn a_transaction_of_which_a_piece_did_not_arrive_over_the_zeros_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let (path, connection) = database(&folder);
        let (mut room, log) = (LogRoom::beside(&path), sibling_file(&path, "-wal"));
        let mut rows = 0;
        while std::fs::metadata(&log).unwrap().len() < LEAST {
            connection.execute("INSERT INTO t (x) VALUES (hex(randomblob(15000)))", []).unwrap();
            rows += 1;
        }
        room.make();
        let before = std::fs::read(&log).unwrap();
        connection.execute("INSERT INTO t (x) VALUES (hex(randomblob(15000)))", []).unwrap();
        let after = std::fs::read(&log).unwrap();
        assert_eq!(after.len(), before.len());
        let written: Vec<usize> = before
            .chunks(512)
            .zip(after.chunks(512))
            .enumerate()
            .filter(|(_, (old, new))| old != new)
            .map(|(at, _)| at)
            .collect();
        assert!(written.len() > 50, "{written:?}");
        let copy = folder.path().join("copy.db");
        for lacks in
            [None].into_iter().chain(written.iter().step_by(7).copied().map(Some)).chain([written.last().copied()])
        {
            drop(killed(&path, &folder));
            let mut pieces = after.clone();
            if let Some(at) = lacks {
                pieces[at * 512..][..512].copy_from_slice(&before[at * 512..][..512]);
            }
            std::fs::write(sibling_file(&copy, "-wal"), pieces).unwrap();
            let cut = Connection::open(&copy).unwrap();
            assert_eq!(count(&cut), rows + i64::from(lacks.is_none()), "{lacks:?}");
            let whole: String = cut.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(whole, "ok", "{lacks:?}");
        }
    }

    #[test]
    fn two_that_look_make_room_once_and_write_over_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, connection) = database(&folder);
        let mut rooms = [LogRoom::beside(&path), LogRoom::beside(&path)];
        let log = sibling_file(&path, "-wal");
        while std::fs::metadata(&log).unwrap().len() < LEAST {
            connection.execute("INSERT INTO t (x) VALUES (hex(randomblob(15000)))", []).unwrap();
        }
        let before = std::fs::read(&log).unwrap();
        for _ in 0..3 {
            rooms.iter_mut().for_each(LogRoom::make);
        }
        let after = std::fs::read(&log).unwrap();
        assert_eq!(after.len() as u64, before.len() as u64 + PIECE);
        assert!(after.starts_with(&before) && after[before.len()..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn where_there_is_no_log_none_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let mut room = LogRoom::beside(&path);
        room.make();
        room.make();
        assert!(!sibling_file(&path, "-wal").exists());
    }
}
