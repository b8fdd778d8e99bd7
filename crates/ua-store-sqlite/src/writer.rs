//! The one thread that writes, with group commit.
//!
//! Waiting writes are drained, up to [`LARGEST_BATCH`], into one transaction with a savepoint each. A write that fails
//! rolls back to its savepoint and fails alone; a commit that fails, fails all. Answers are sent after the commit returned.
//! There is no timer: waiting for company would cost latency, draining what is there does not.
//!
//! A write of the only run that works is done where it is asked for, when nothing else waits: handing it to another thread and back takes
//! longer than a small write does. Of several runs the writes go to the thread, which commits them together.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tracing::{Instrument as _, Span};
use ua_store::{Durability, Retry, StoreError};

use crate::beside::OwnLog;
use crate::db::Db;
use crate::effects::{EffectsLog, Line};
use crate::error::{DbError, refused, refused_because, words};
use crate::event_chain::EventChain;
use crate::kept::Kept;
use crate::log_room::LogRoom;
use crate::opened::Opened;
use crate::pragma::{self, say};
use crate::{schema, spans};

/// More members bring nothing: the processor is the limit then, not the disk.
const LARGEST_BATCH: usize = 64;
/// Writes that may wait before callers have to.
const QUEUE: usize = 1024;
/// A transaction has the right to write from its beginning: what it reads is still so when it writes.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// How many transactions a writer committed, by durability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Synced to stable storage.
    pub synced: u64,
    /// Left to the next synced one.
    pub relaxed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    synced: AtomicU64,
    relaxed: AtomicU64,
}

/// A write that waits, runs and is answered.
trait Member: Send {
    fn durability(&self) -> Durability;
    /// The span of whoever waits.
    fn span(&self) -> &Span;
    /// Runs the work, with what is known of the rows; says whether it succeeded.
    fn run(&mut self, connection: &Connection, kept: &mut Kept) -> bool;
    /// Lines for `effects.log`, once the work is committed.
    fn take_effects(&mut self) -> Vec<Line>;
    /// Answers the caller, with `failure` unless the work failed by itself.
    fn answer(self: Box<Self>, failure: Option<StoreError>);
}

struct Write<T, F> {
    durability: Durability,
    span: Span,
    work: Option<F>,
    outcome: Option<Result<T, DbError>>,
    effects: Vec<Line>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Member for Write<T, F>
where
    T: Send + 'static,
    F: FnOnce(&Db<'_>) -> Result<T, DbError> + Send + 'static,
{
    fn durability(&self) -> Durability {
        self.durability
    }

    fn span(&self) -> &Span {
        &self.span
    }

    fn run(&mut self, connection: &Connection, kept: &mut Kept) -> bool {
        let db = Db::knowing(connection, std::mem::take(kept));
        self.outcome = self.work.take().map(|work| work(&db));
        let succeeded = matches!(self.outcome, Some(Ok(_)));
        if succeeded {
            (self.effects, *kept) = db.into_parts();
        }
        succeeded
    }

    fn take_effects(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.effects)
    }

    fn answer(self: Box<Self>, failure: Option<StoreError>) {
        let answer = match (self.outcome, failure) {
            (Some(Err(error)), _) => Err(error.into_store()),
            (_, Some(failure)) => Err(failure),
            (Some(Ok(value)), None) => Ok(value),
            (None, None) => Err(refused("the write was not run")),
        };
        if self.reply.send(answer).is_err() {
            tracing::debug!("nobody waits for the outcome of a write any more");
        }
    }
}

/// The handle of the thread. Dropping it lets the thread finish what waits, truncate the log and end.
#[derive(Debug)]
pub(crate) struct Writer {
    jobs: Option<mpsc::Sender<Box<dyn Member>>>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
    /// What writes: the thread, or whoever finds it at rest. Nothing once the thread has ended.
    worker: Arc<Mutex<Option<Worker>>>,
}

impl Writer {
    /// Starts the thread on a connection that is opened and migrated.
    pub(crate) fn start(connection: Connection, own_log: OwnLog, log: Option<EffectsLog>) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let chain =
            EventChain::new(&connection).map_err(|error| refused_because("the newest event cannot be read", error))?;
        let log_room = connection.path().map(|path| LogRoom::beside(Path::new(path))).unwrap_or_default();
        let opened = connection.path().and_then(|path| Opened::at(Path::new(path)));
        let worker = Worker {
            connection,
            opened,
            own_log,
            log_room,
            log,
            counters: Arc::clone(&counters),
            durability: Durability::Synced,
            chain,
            kept: Kept::default(),
            version: None,
        };
        let worker = Arc::new(Mutex::new(Some(worker)));
        let shared = Arc::clone(&worker);
        let thread = std::thread::Builder::new()
            .name("ua-store-writer".to_owned())
            .spawn(move || run(&shared, waiting))
            .map_err(|error| refused_because("the writer thread cannot be started", error))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), counters, worker })
    }

    /// Runs `work` in a transaction of the writer and returns when that is committed. A caller that gives up waiting does
    /// not take its work back. One that is `alone` does it itself when nobody else writes.
    pub(crate) async fn write<T, F>(
        &self,
        operation: &str,
        durability: Durability,
        alone: bool,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> Result<T, DbError> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let jobs = self.jobs.as_ref().ok_or_else(closed)?;
        let span = spans::of_write(operation, durability);
        let write =
            Write { durability, span: span.clone(), work: Some(work), outcome: None, effects: Vec::new(), reply };
        let committed = async {
            let left = if alone { self.write_here(Box::new(write)) } else { Some(Box::new(write) as Box<dyn Member>) };
            if let Some(write) = left {
                jobs.send(write).await.map_err(|_| closed())?;
            }
            answer.await.map_err(|_| closed())?
        };
        committed.instrument(span).await
    }

    /// Does a write on this thread, unless something else writes, here or in another process: then it is given back.
    fn write_here(&self, write: Box<dyn Member>) -> Option<Box<dyn Member>> {
        let is_idle = self.jobs.as_ref().is_some_and(|jobs| jobs.capacity() == jobs.max_capacity());
        let Some(mut worker) = self.worker.try_lock().ok().filter(|_| is_idle) else { return Some(write) };
        let Some(worker) = worker.as_mut() else { return Some(write) };
        worker.commit_at_once(write)
    }

    /// Reads a few rows where they are written, unless something is written at the moment: much of what is asked for is known there.
    pub(crate) fn look<T, F>(&self, work: F) -> Result<Result<T, DbError>, F>
    where
        F: FnOnce(&Db<'_>) -> Result<T, DbError>,
    {
        let Some(mut worker) = self.worker.try_lock().ok() else { return Err(work) };
        match worker.as_mut() {
            Some(worker) => Ok(worker.look(work)),
            None => Err(work),
        }
    }

    pub(crate) fn batches(&self) -> Batches {
        Batches {
            synced: self.counters.synced.load(Ordering::Relaxed),
            relaxed: self.counters.relaxed.load(Ordering::Relaxed),
        }
    }

    /// Waits for the thread to finish what waits and to close the database.
    pub(crate) fn close(&mut self) -> Result<(), StoreError> {
        self.jobs = None;
        self.thread.take().map_or(Ok(()), |thread| thread.join().map_err(|_| refused("the writer thread had panicked")))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database was not closed in order");
        }
    }
}

fn closed() -> StoreError {
    refused("the store is closed")
}

#[derive(Debug)]
struct Worker {
    connection: Connection,
    /// The file that the connection has open; `None` for one in memory.
    opened: Option<Opened>,
    /// SQLite's log, which is marked as this database's.
    own_log: OwnLog,
    /// Room at the end of that log.
    log_room: LogRoom,
    log: Option<EffectsLog>,
    counters: Arc<Counters>,
    /// What the connection is set to.
    durability: Durability,
    /// Links the events that the writes insert.
    chain: EventChain,
    /// What is known of the rows, as long as no other connection writes.
    kept: Kept,
    /// What the database's `data_version` was: another when another connection has committed something.
    version: Option<i64>,
}

/// The thread: commits what waits, until nobody can ask for more.
fn run(worker: &Mutex<Option<Worker>>, mut waiting: mpsc::Receiver<Box<dyn Member>>) {
    let lock = || worker.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(first) = waiting.blocking_recv() {
        let mut worker = lock();
        let mut batch = vec![first];
        while batch.len() < LARGEST_BATCH
            && let Ok(next) = waiting.try_recv()
        {
            batch.push(next);
        }
        match worker.as_mut() {
            Some(worker) => worker.commit(batch),
            None => return,
        }
    }
    let ended = lock().take();
    if let Some(worker) = ended {
        worker.close();
    }
}

impl Worker {
    fn close(self) {
        if let Err(error) = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
            // Nobody has to do anything: the next start reads it.
            tracing::info!(%error, "the log was not truncated at the end");
        }
        if let Err((_, error)) = self.connection.close() {
            tracing::warn!(%error, "the database was not closed");
        }
    }

    /// Reads on one snapshot.
    fn look<T>(&mut self, work: impl FnOnce(&Db<'_>) -> Result<T, DbError>) -> Result<T, DbError> {
        say(&self.connection, "BEGIN")?;
        let found = self.look_for_others().and_then(|()| {
            let db = Db::knowing(&self.connection, std::mem::take(&mut self.kept));
            let found = work(&db);
            (_, self.kept) = db.into_parts();
            found
        });
        say(&self.connection, "ROLLBACK")?;
        found
    }

    /// Commits one write, if no other process writes; else gives it back, since whoever waits for that must not hold its thread up.
    fn commit_at_once(&mut self, write: Box<dyn Member>) -> Option<Box<dyn Member>> {
        let begun = self.set_durability(write.durability()).and_then(|()| {
            self.connection.busy_timeout(Duration::ZERO)?;
            let begun = say(&self.connection, BEGIN);
            self.connection.busy_timeout(pragma::BUSY_TIMEOUT)?;
            begun
        });
        if begun.is_err() {
            self.roll_back();
            return Some(write);
        }
        self.commit_begun(vec![write], true);
        None
    }

    fn commit(&mut self, batch: Vec<Box<dyn Member>>) {
        self.commit_begun(batch, false);
    }

    /// Commits a batch, in the transaction that is begun or in one that is begun now.
    fn commit_begun(&mut self, mut batch: Vec<Box<dyn Member>>, is_begun: bool) {
        let durability = batch.iter().map(|member| member.durability()).max().unwrap_or(Durability::Synced);
        let _span = batch.first().map(|first| spans::of_batch(first.span(), batch.len(), durability).entered());
        match self.transaction(&mut batch, durability, is_begun) {
            Ok(()) => {
                let counter = match durability {
                    Durability::Synced => &self.counters.synced,
                    Durability::Relaxed => &self.counters.relaxed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                for mut member in batch {
                    if let Some(log) = &mut self.log {
                        log.append(&member.take_effects());
                    }
                    member.answer(None);
                }
            }
            Err(Broken { why, retry }) => {
                self.roll_back();
                for member in batch {
                    member.answer(Some(StoreError::Unavailable { why: why.clone(), source: None, retry }));
                }
            }
        }
    }

    /// Runs the batch as one transaction. After an error nothing of it is committed, as far as anyone knows.
    fn transaction(
        &mut self,
        batch: &mut [Box<dyn Member>],
        durability: Durability,
        is_begun: bool,
    ) -> Result<(), Broken> {
        if !is_begun {
            self.set_durability(durability)?;
            say(&self.connection, BEGIN)?;
        }
        self.own_log.before().map_err(DbError::Store)?;
        if durability == Durability::Synced {
            self.log_room.make();
        }
        self.look_for_others()?;
        if let [only] = &mut *batch {
            if !only.run(&self.connection, &mut self.kept) {
                self.roll_back();
                return Ok(());
            }
            return self.finish();
        }
        for member in batch {
            say(&self.connection, "SAVEPOINT member")?;
            if member.run(&self.connection, &mut self.kept) {
                say(&self.connection, "RELEASE member")?;
            } else if self.connection.is_autocommit() {
                // Some failures, a full disk for example, make SQLite roll back everything by itself.
                let why = "a write that was to be committed together with this one broke the transaction; try again";
                return Err(Broken { why: why.to_owned(), retry: Retry::Later });
            } else {
                say(&self.connection, "ROLLBACK TO member")?;
                say(&self.connection, "RELEASE member")?;
            }
        }
        self.finish()
    }

    fn set_durability(&mut self, durability: Durability) -> rusqlite::Result<()> {
        if self.durability != durability {
            pragma::set_durability(&self.connection, durability)?;
            self.durability = durability;
        }
        Ok(())
    }

    /// Forgets what is known when somebody else has written, and refuses to go on where that was a newer schema; behind BEGIN, so that it is
    /// known until the end of the transaction.
    fn look_for_others(&mut self) -> Result<(), DbError> {
        let version = self.connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if self.version != Some(version) {
            schema::check_unchanged(&self.connection)?;
            self.version = Some(version);
            self.kept = Kept::default();
            self.chain.look_again(&self.connection)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Broken> {
        self.chain.link(&self.connection)?;
        // As late as can be: whatever is sent, is sent on the word of this commit.
        if self.durability == Durability::Synced
            && let Some(opened) = &self.opened
        {
            opened.check().map_err(DbError::Store)?;
        }
        say(&self.connection, "COMMIT")?;
        if let Err(error) = self.own_log.after() {
            // It is committed all the same.
            tracing::warn!(%error, "the log of the database is refused after a kill, until it is trusted");
        }
        self.chain.committed();
        Ok(())
    }

    fn roll_back(&mut self) {
        // Also what was known before: a member may have put something else in its place.
        self.kept = Kept::default();
        self.chain.rolled_back();
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.own_log.nothing_written() {
            tracing::debug!(%error, "the log is marked as one into which something is being written");
        }
        if let Err(error) = self.connection.execute_batch("ROLLBACK") {
            tracing::error!(%error, "a failed batch was not rolled back");
        }
    }
}

/// Why a whole transaction failed; each of its members is told.
struct Broken {
    why: String,
    retry: Retry,
}

impl From<DbError> for Broken {
    fn from(error: DbError) -> Self {
        match error {
            DbError::Sql(error) => error.into(),
            DbError::Store(StoreError::Unavailable { why, retry, .. }) => Self { why, retry },
            DbError::Store(error) => Self { why: error.to_string(), retry: Retry::Never },
        }
    }
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        // Whoever wrote is told, and says it.
        tracing::debug!(%error, "a batch of writes was not committed");
        let (why, retry) = words(&error);
        Self { why: why.to_owned(), retry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(folder: &tempfile::TempDir) -> Writer {
        let connection = Connection::open(folder.path().join("plain.db")).unwrap();
        pragma::harden(&connection).unwrap();
        pragma::make_writer(&connection).unwrap();
        let tables = format!(
            "CREATE TABLE numbers (number INTEGER UNIQUE) STRICT; CREATE TABLE refinery_schema_history (version INTEGER); \
             INSERT INTO refinery_schema_history VALUES ({})",
            schema::OURS
        );
        connection.execute_batch(&tables).unwrap();
        Writer::start(connection, OwnLog::default(), None).unwrap()
    }

    fn insert(db: &Db<'_>, number: i64) -> Result<i64, DbError> {
        db.connection.execute("INSERT INTO numbers VALUES (?1)", [number])?;
        Ok(db.connection.pragma_query_value(None, "synchronous", |row| row.get(0))?)
    }

    fn sum(db: &Db<'_>) -> Result<i64, DbError> {
        Ok(db.connection.query_row("SELECT coalesce(sum(number), 0) FROM numbers", [], |row| row.get(0))?)
    }

    const NORMAL: i64 = 1;
    const FULL: i64 = 2;

    #[tokio::test]
    async fn a_synced_write_runs_under_full_and_a_relaxed_one_under_normal() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        for (number, durability, wanted) in
            [(1, Durability::Synced, FULL), (2, Durability::Relaxed, NORMAL), (3, Durability::Synced, FULL)]
        {
            let found = writer.write("a write", durability, false, move |db| insert(db, number)).await.unwrap();
            assert_eq!(found, wanted, "write {number}");
        }
        assert_eq!(writer.batches(), Batches { synced: 2, relaxed: 1 });
    }

    /// What is committed into a file that nobody finds again is no record: nothing may be sent on its word.
    #[tokio::test]
    async fn nothing_is_committed_once_the_file_is_not_the_one_at_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let (path, aside) = (folder.path().join("plain.db"), folder.path().join("aside.db"));
        let synced =
            async |number| writer.write("a write", Durability::Synced, true, move |db| insert(db, number)).await;
        synced(1).await.unwrap();
        std::fs::rename(&path, &aside).unwrap();
        let gone = synced(10).await.unwrap_err();
        let StoreError::Unavailable { why, retry: Retry::Never, .. } = &gone else { panic!("{gone:?}") };
        assert!(why.contains("was removed or moved away while it was open"), "{why}");
        std::fs::copy(&aside, &path).unwrap();
        let other = synced(100).await.unwrap_err();
        assert!(other.to_string().contains("was replaced by another file"), "{other}");
        // Whoever puts it back has all that was committed, and nothing of what was refused.
        std::fs::rename(&aside, &path).unwrap();
        synced(1_000).await.unwrap();
        assert_eq!(writer.write("a look", Durability::Relaxed, false, sum).await.unwrap(), 1_001);
    }

    /// Work that tells when it runs, and holds the thread until it is released.
    fn held() -> (impl FnOnce(&Db<'_>) -> Result<i64, DbError>, oneshot::Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (running, started) = oneshot::channel();
        let (release, released) = std::sync::mpsc::channel();
        let work = move |db: &Db<'_>| {
            running.send(()).unwrap();
            released.recv().unwrap();
            insert(db, 1)
        };
        (work, started, release)
    }

    #[tokio::test]
    async fn a_batch_is_synced_when_any_member_asks_and_a_failure_stays_alone() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let (work, started, release) = held();
        let rest = async {
            started.await.unwrap();
            let relaxed = writer.write("a write", Durability::Relaxed, false, |db| insert(db, 10));
            let twin = writer.write("a write", Durability::Relaxed, false, |db| {
                insert(db, 100)?;
                insert(db, 10)
            });
            let synced = writer.write("a write", Durability::Synced, false, |db| insert(db, 1_000));
            // The three before are polled first, so they wait together when the thread goes on.
            tokio::join!(relaxed, twin, synced, async { release.send(()).unwrap() })
        };
        let (first, (relaxed, twin, synced, ())) =
            tokio::join!(writer.write("a write", Durability::Relaxed, false, work), rest);
        assert_eq!((first.unwrap(), relaxed.unwrap(), synced.unwrap()), (NORMAL, FULL, FULL));
        assert!(matches!(twin, Err(StoreError::Conflict { .. })), "{twin:?}");
        assert_eq!(writer.batches(), Batches { synced: 1, relaxed: 1 });
        assert_eq!(writer.write("a write", Durability::Relaxed, false, sum).await.unwrap(), 1_011);
    }

    #[tokio::test]
    async fn a_commit_that_fails_is_told_to_every_member() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let (work, started, release) = held();
        let rest = async {
            started.await.unwrap();
            let fine = writer.write("a write", Durability::Relaxed, false, |db| insert(db, 10));
            // A deferred foreign key is checked by COMMIT, not by the statement.
            let poison = writer.write("a write", Durability::Relaxed, false, |db| {
                db.connection.execute_batch(
                    "CREATE TABLE child (parent INTEGER REFERENCES numbers (number) DEFERRABLE INITIALLY DEFERRED); \
                     INSERT INTO child VALUES (77)",
                )?;
                Ok(())
            });
            tokio::join!(fine, poison, async { release.send(()).unwrap() })
        };
        let (first, (fine, poison, ())) = tokio::join!(writer.write("a write", Durability::Relaxed, false, work), rest);
        first.unwrap();
        assert!(matches!(fine, Err(StoreError::Unavailable { .. })), "{fine:?}");
        assert!(matches!(poison, Err(StoreError::Unavailable { .. })), "{poison:?}");
        assert_eq!(writer.write("a write", Durability::Relaxed, false, sum).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn a_full_disk_is_told_in_a_persons_words_and_may_pass() {
        let folder = tempfile::tempdir().unwrap();
        let writer = writer(&folder);
        let limit = async |pages: i64| {
            let set = move |db: &Db<'_>| {
                Ok(db.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?)
            };
            writer.write("a write", Durability::Relaxed, false, set).await.unwrap();
        };
        let fill = async || {
            let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO numbers SELECT i FROM n";
            writer.write("a write", Durability::Synced, false, move |db| Ok(db.connection.execute(many, [])?)).await
        };
        limit(4).await;
        let outcome = fill().await;
        let Err(StoreError::Unavailable { why, retry, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!((why.as_str(), retry), ("the disk is full", Retry::WithRoom));
        assert_eq!(writer.write("a write", Durability::Relaxed, false, sum).await.unwrap(), 0);
        limit(1_000_000).await;
        assert_eq!(fill().await.unwrap(), 5_000);
    }

    #[tokio::test]
    async fn closing_finishes_what_waits() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = writer(&folder);
        let (work, started, release) = held();
        {
            let first = writer.write("a write", Durability::Relaxed, false, work);
            let second = writer.write("a write", Durability::Synced, false, |db| insert(db, 2));
            // Once the first runs both are queued; then nobody waits for them any more.
            tokio::select! {
                biased;
                _ = async { tokio::join!(first, second) } => unreachable!("the thread is held"),
                outcome = started => outcome.unwrap(),
            }
        }
        release.send(()).unwrap();
        writer.close().unwrap();
        let connection = Connection::open(folder.path().join("plain.db")).unwrap();
        assert_eq!(sum(&Db::new(&connection)).unwrap(), 3);
    }
}
