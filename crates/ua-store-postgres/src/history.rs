//! Whether the server still has the history that it had: a standby that took over, or a backup that was put back, may lack what was acknowledged.
//!
//! In rows that went back nothing shows that. But a server that is promoted, or recovered to a moment, begins another *timeline*; what was filled
//! from a dump is another system, database or table; and a server whose files were put back has a shorter log: all of that can be asked for. So the
//! history is noted in the database, and with the locks of a root how far its log was, of each run how many of its durable batches were confirmed
//! (`confirmed.rs`), and how far the root counted in the database itself (`notes.rs`). In a history that may lack something each run that has not
//! ended is held until a person accepts it, as after a copy of a file without its log: nobody knows what was sent for it in the part that is gone. A
//! new history counts as the whole one only where commits waited for standbys, as the database itself has it noted, and neither the log nor a run nor
//! the count is shorter than it was.
//!
//! Here alone it is known what a server that went back is, and every way to send leads through here, whoever goes it: the store itself looks before a
//! run is taken and in the transaction that takes it (`Change::Acquire`), with the signs of life of its owner, when a write of an owner is refused
//! because earlier ones are gone, and, behind each new connection, before a start is answered. Other looks (a worker's renewal,
//! [`PastStore`](ua_store::PastStore)) come beside these, so that a person is told sooner and better.
//!
//! Invariant: in a history that is seen to lack something, no run that it has as unfinished is taken before a person has said so, and no session at
//! the gateway starts anything while another one of its project is held. Proved by: `tests/it/history.rs`; the e2e tests `failover`. What it does
//! not see: a standby that lacks the last seconds and was promoted although commits waited for another one, where what is gone was written from
//! a root whose locks are gone as well, or since the last mark of a root that no worker works for; and runs that were begun and lost whole by such a
//! root.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio_postgres::Row;
use ua_core::{PrintedCommand, RunId, Timestamp};
use ua_store::{Author, Batch, Change, Durability, FAILED_OVER, Forgotten, RowRef, RunLease, StoreError, is_task};

use crate::column::Columns;
use crate::config::database_beside;
use crate::confirmed::Confirmed;
use crate::db::Db;
use crate::error::{DbError, refused};
use crate::locks::Shared;
use crate::notes::Mark;
use crate::store::PostgresStore;
use crate::value::{Value, named, params};

/// The key of `meta` that names the history.
const HISTORY: &str = "history";
/// The key that says whether commits waited for standbys when that was last looked at: `yes` or `no`.
const COMMITS_WAIT: &str = "commits_wait";
/// The key that names the history in which all was held, because it may lack something or an owner found writes of its own gone.
const LACKING: &str = "lacking";
/// How the keys begin that name runs which are held, with the newest moment that is known.
const HELD: &str = "held/";
/// How the keys begin that say who accepted a run, and when.
const ACCEPTED: &str = "accepted/";

/// Which history it is, how long its log, whether commits wait for standbys, what is noted of the first and the last, and how far a root counted. A
/// standby has no history of its own.
const SEEN: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL \
      ELSE system_identifier::text || ':' || (SELECT oid FROM pg_database WHERE datname = current_database()) \
        || ':' || 'ua.meta'::regclass::oid || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END, \
    current_setting('synchronous_standby_names') <> '', \
    (SELECT value FROM ua.meta WHERE key = 'history'), \
    (SELECT value FROM ua.meta WHERE key = 'commits_wait'), \
    (SELECT value FROM ua.meta WHERE key = $1) \
    FROM pg_control_system()";

/// Of a server that does not say the first: how far a root counted, and whether it is one that takes no writes, as a standby is, which may be behind.
/// Of the transaction itself that tells nothing: whoever asks begins one that only reads.
const NOTED: &str = "SELECT (SELECT value FROM ua.meta WHERE key = $1), \
    pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'";

/// The runs that are held and have not ended: those of the family of one, or all. Of a session at the gateway also the others of its project, since a
/// doubt about what they sent would reach it.
const HELD_RUNS: &str = "SELECT r.run_id, r.root_run_id, m.value FROM ua.runs r JOIN ua.meta m ON m.key = 'held/' || r.run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') \
    AND ($1::text IS NULL OR r.root_run_id = (SELECT o.root_run_id FROM ua.runs o WHERE o.run_id = $1) \
        OR r.run_id IN (SELECT b.run_id FROM ua.gateway_sessions a JOIN ua.gateway_sessions b ON b.project = a.project WHERE a.run_id = $1)) \
    ORDER BY r.seq";

/// What is stored of the runs that have not ended of the family of one, and of its project if it is a session at the gateway.
const KIN: &str = "SELECT r.run_id, r.lease_epoch, w.batches, h.key IS NOT NULL AS is_held, y.value AS accepted \
    FROM ua.runs r JOIN ua.run_writes w ON w.run_id = r.run_id LEFT JOIN ua.meta h ON h.key = 'held/' || r.run_id \
    LEFT JOIN ua.meta y ON y.key = 'accepted/' || r.run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') AND r.run_id IN (\
        SELECT k.run_id FROM ua.runs k WHERE k.root_run_id = (SELECT o.root_run_id FROM ua.runs o WHERE o.run_id = $1) \
        UNION SELECT b.run_id FROM ua.gateway_sessions a JOIN ua.gateway_sessions b ON b.project = a.project WHERE a.run_id = $1)";

/// The sessions at the gateway that are held and have not ended, and whether they are of the project of one, and not that one itself.
const HELD_SESSIONS: &str = "SELECT b.run_id, EXISTS (SELECT FROM ua.gateway_sessions a \
        WHERE a.run_id = $1 AND a.project = b.project AND a.run_id <> b.run_id) \
    FROM ua.gateway_sessions b JOIN ua.meta m ON m.key = 'held/' || b.run_id JOIN ua.runs r ON r.run_id = b.run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY r.seq";

/// Holds whatever has not ended, and was not accepted since a moment, if there is one.
const HOLD: &str = "INSERT INTO meta (key, value) \
    SELECT 'held/' || run_id, (SELECT max(updated_at) FROM runs) FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled') \
    AND NOT EXISTS (SELECT FROM meta y WHERE y.key = 'accepted/' || runs.run_id AND y.value > $1::text) \
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Pauses what is due: an instant may have been submitted in the part that is gone, and its run with it. One that is yet to come was not.
const PAUSE: &str = "UPDATE schedules SET is_paused = true WHERE NOT is_paused \
    AND next_at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";

const PUT: &str =
    "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// How far apart signs of life, and starts, are with which the history is looked at.
const LOOKS_EVERY: Duration = Duration::from_secs(5);

/// Above so many runs no run works on a task.
const MOST_ABOVE: usize = 64;

/// A place in the log of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The system, the database and the table in it, and behind a `/` the timeline.
    history: String,
    /// How long the log is there, in bytes.
    at: i64,
}

impl Position {
    /// As it is noted.
    pub(crate) fn noted(&self) -> String {
        format!("{} {}", self.history, self.at)
    }

    /// What was noted, if it is that.
    pub(crate) fn parse(noted: &str) -> Option<Self> {
        let (history, at) = noted.split_once(' ')?;
        Some(Self { history: history.to_owned(), at: at.parse().ok()? })
    }
}

/// What a server says of its history, and what is noted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// Where it is; a standby is nowhere.
    here: Option<Position>,
    /// Whether commits wait for standbys.
    waits: bool,
    /// The history that was noted.
    noted: Option<String>,
    /// Whether commits waited, as it was noted.
    waited: Option<bool>,
    /// How far a root counted.
    counted: Option<String>,
}

/// What follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// All is as it is noted.
    Nothing,
    /// It is noted as it is.
    Note,
    /// What has not ended is held, schedules that are due are paused, and it is noted as it is.
    Hold,
}

/// What is stored of a run and speaks for or against taking it or one that belongs to it.
pub(crate) struct Kin {
    pub(crate) run_id: String,
    /// Of its newest owner.
    epoch: u64,
    /// How many numbered batches that one wrote.
    batches: u64,
    is_held: bool,
    /// When a person accepted it last.
    accepted_at: Option<Timestamp>,
}

impl Kin {
    /// Of a row that has these columns.
    pub(crate) fn of(row: &Row) -> Result<Self, DbError> {
        let column = Columns::new(row, "runs", "run_id");
        let accepted: Option<String> = column.get("accepted")?;
        Ok(Self {
            run_id: column.get("run_id")?,
            epoch: column.int("lease_epoch")?,
            batches: column.int("batches")?,
            is_held: column.get("is_held")?,
            accepted_at: accepted.and_then(|said| Timestamp::parse(said.split(' ').next()?)),
        })
    }

    /// Whether it is less than was confirmed, and nobody knows.
    fn lacks(&self, confirmed: &Confirmed) -> bool {
        !self.is_held && self.has_less_than(confirmed)
    }

    /// Whether it is less than was confirmed, and nobody accepted that.
    pub(crate) fn has_less_than(&self, confirmed: &Confirmed) -> bool {
        confirmed.is_lacked_by(self.epoch, self.batches, self.accepted_at)
    }

    /// The epoch of its newest owner, and how many numbered batches that one wrote.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.epoch, self.batches)
    }

    /// Whether it is held.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }
}

/// What a batch is about, as far as a server that went back matters to it.
#[derive(Debug, Default)]
pub(crate) struct About {
    /// The run that it takes.
    acquires: Option<RunId>,
    /// The owner who writes it.
    owner: Option<RunLease>,
    /// When something began that is sent behind it.
    starts_at: Option<Timestamp>,
    /// When its owner said that it is alive.
    alive_at: Option<Timestamp>,
    /// Its number, if it is durable.
    confirms: Option<u64>,
}

impl About {
    pub(crate) fn of(by: &Author, batch: &Batch) -> Self {
        let mut about = Self::default();
        if let Author::Owner(lease) = by {
            about.owner = Some(lease.clone());
            about.confirms = batch.number.filter(|_| batch.durability() == Durability::Synced);
        }
        for change in batch.changes() {
            if let Change::Acquire { run, .. } = change {
                about.acquires = Some(run.clone());
            } else if let Change::StartAttempt(start) = change {
                about.starts_at = about.starts_at.or(Some(start.at).filter(|_| start.durability == Durability::Synced));
            } else if let Change::NoteAlive { at, .. } = change {
                about.alive_at = Some(*at);
            }
        }
        about
    }
}

/// A run that is about to be taken, with what is known of it here.
#[derive(Debug, Clone)]
pub(crate) struct Taking {
    run: RunId,
    /// How far the log was.
    passed: Option<Position>,
    /// What was confirmed of it.
    confirmed: Option<Confirmed>,
    /// How far the root counted.
    mark: Option<Mark>,
    /// Whether the server says which history it has.
    tells: bool,
}

/// What this process knows of the history from one look to the next.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// How many connections were made. A server that goes back ends all that lead to it.
    made: AtomicU64,
    /// How many had been made before the look that found no session held.
    sure: AtomicU64,
    /// Whether the server was asked which history it has.
    asked: AtomicBool,
    /// Whether it says so.
    tells: AtomicBool,
    /// The sign of life with which it was looked at last.
    alive_at: Mutex<Option<Timestamp>>,
    /// The start before which it was looked at last.
    started_at: Mutex<Option<Timestamp>>,
    /// The sign of life of a worker with which all notes were looked at last.
    notes_at: Mutex<Option<Timestamp>>,
    /// How many connections had been made before that.
    notes_made: AtomicU64,
    /// The identity of the database, as it is noted with the locks.
    database: OnceLock<String>,
}

impl Looked {
    /// A connection was made, which may lead to another server than those before it.
    pub(crate) fn connected(&self) {
        self.made.fetch_add(1, Ordering::SeqCst);
    }

    fn asked(&self, tells: bool) {
        self.tells.store(tells, Ordering::SeqCst);
        self.asked.store(true, Ordering::SeqCst);
    }

    /// Whether all notes are to be looked at at this instant, which is the last look then: `every` so often, and behind each new connection.
    pub(crate) fn are_notes_due(&self, at: Timestamp, every: Duration) -> bool {
        let made = self.made.load(Ordering::SeqCst);
        let is_new = self.notes_made.swap(made, Ordering::SeqCst) != made;
        is_due(&self.notes_at, at, every) || is_new
    }
}

/// Whether so much time has passed since `last` that it is looked once more at this instant, which is the last one then.
fn is_due(last: &Mutex<Option<Timestamp>>, at: Timestamp, every: Duration) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_due = last.is_none_or(|last| at < last || at.since(last) >= every);
    if is_due {
        *last = Some(at);
    }
    is_due
}

impl Seen {
    fn of(row: &Row) -> Result<Self, DbError> {
        let (history, at): (Option<String>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let waited: Option<String> = row.try_get(4)?;
        Ok(Self {
            here: history.zip(at).map(|(history, at)| Position { history, at }),
            waits: row.try_get(2)?,
            noted: row.try_get(3)?,
            waited: waited.map(|word| word == word_of(true)),
            counted: row.try_get(5)?,
        })
    }

    /// Whether a root had counted further than it says. A standby may be behind.
    fn is_short_of(&self, mark: Option<&Mark>) -> bool {
        self.here.is_some() && mark.is_some_and(|mark| mark.is_lacked_by(self.counted.as_deref()))
    }

    /// What follows, where this place was passed by what was done from here.
    fn step(&self, passed: Option<&Position>) -> Step {
        let Some(here) = &self.here else { return Step::Nothing };
        let is_noted = self.noted.as_ref() == Some(&here.history);
        if passed.is_some_and(|passed| here.lacks(passed, is_noted)) {
            return Step::Hold;
        }
        match &self.noted {
            // A database that was made, moved or brought up to date just now.
            None => Step::Note,
            Some(_) if is_noted && self.waited == Some(self.waits) => Step::Nothing,
            Some(_) if is_noted => Step::Note,
            // Whoever took over has all that was acknowledged, if commits waited for it. Another system was filled from a copy.
            Some(noted) if self.waited == Some(true) && system(noted) == system(&here.history) => Step::Note,
            Some(_) => Step::Hold,
        }
    }
}

impl Position {
    /// Whether the log that ends here lacks a place that was passed. One of another history tells nothing once somebody has looked at this one.
    fn lacks(&self, passed: &Self, is_noted: bool) -> bool {
        let is_comparable = passed.history == self.history || !is_noted;
        is_comparable && system(&passed.history) == system(&self.history) && passed.at > self.at
    }
}

/// What stays as it is when a standby takes over.
fn system(history: &str) -> &str {
    history.split_once('/').map_or(history, |(system, _)| system)
}

fn word_of(waits: bool) -> &'static str {
    if waits { "yes" } else { "no" }
}

/// Whether a root had counted further than this row of a server says that takes writes.
fn is_short(noted: Option<&Row>, mark: Option<&Mark>) -> Result<bool, DbError> {
    let Some((row, mark)) = noted.zip(mark) else { return Ok(false) };
    let (counted, is_read_only): (Option<String>, bool) = (row.try_get(0)?, row.try_get(1)?);
    Ok(!is_read_only && mark.is_lacked_by(counted.as_deref()))
}

/// Whether the server does not say which history it has, as services with a storage of their own may not: then nothing is judged by it.
fn is_not_told(error: &StoreError) -> bool {
    let StoreError::Unavailable { source: Some(source), .. } = error else { return false };
    let code = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    // A function that is not there, may not be called, or does nothing.
    code.is_some_and(|code| ["0A", "42", "55"].iter().any(|class| code.code().starts_with(class)))
}

impl PostgresStore {
    /// Notes the history that the server has, and holds what has not ended if it may lack something.
    ///
    /// # Errors
    ///
    /// The database cannot be read or written.
    pub async fn note_history(&self) -> Result<(), StoreError> {
        // Before the server is asked: what others count meanwhile is in what it says.
        let mark = self.mark_here();
        let of_mark = || vec![Value::Text(mark.as_ref().map(Mark::key))];
        let rows = match self.ask(SEEN, of_mark()).await {
            Err(error) if is_not_told(&error) => {
                // It is not because of the table that it is not told.
                let noted = self.ask(NOTED, of_mark()).await?;
                self.looked().asked(false);
                tracing::debug!(%error, "the server does not say which history it has");
                let is_short = is_short(noted.first(), mark.as_ref()).map_err(DbError::into_store)?;
                let Some(mark) = mark.filter(|_| is_short) else { return Ok(()) };
                return self.write_apart(Shared::History, move |db| db.hold_if_short_of(&mark)).await;
            }
            asked => asked?,
        };
        self.looked().asked(true);
        let Some(row) = rows.first() else { return Ok(()) };
        let seen = Seen::of(row).map_err(DbError::into_store)?;
        let passed = self.passed_beside();
        let (step, is_short) = (seen.step(passed.as_ref()), seen.is_short_of(mark.as_ref()));
        // It is noted beside the locks when a commit behind it was acknowledged: the log is that long then, whatever becomes of the server.
        self.has_seen(seen.here);
        if step == Step::Nothing && !is_short {
            return Ok(());
        }
        self.write_apart(Shared::History, move |db| db.note_history(passed.as_ref(), mark.as_ref())).await
    }

    /// How far the root that works here counted.
    fn mark_here(&self) -> Option<Mark> {
        let (locks, database) = self.root_here()?;
        Mark::beside(locks, database)
    }

    /// Looks whether the server lacks what the database itself or this root knows of, for a run and what belongs to it, and holds what has not ended
    /// if it does.
    pub(crate) async fn look(&self, run: &RunId) -> Result<(), StoreError> {
        self.note_history().await?;
        let Some((locks, database)) = self.root_here() else { return Ok(()) };
        let rows = self.ask(KIN, vec![Value::Text(Some(run.to_string()))]).await?;
        let kin: Result<Vec<Kin>, DbError> = rows.iter().map(Kin::of).collect();
        let suspects = kin.map_err(DbError::into_store)?.into_iter().filter_map(|kin| {
            let confirmed = Confirmed::beside(locks, database, &kin.run_id)?;
            kin.lacks(&confirmed).then_some((kin.run_id, confirmed))
        });
        let suspects: Vec<(String, Confirmed)> = suspects.collect();
        if suspects.is_empty() { Ok(()) } else { self.hold_for(suspects).await }
    }

    /// Holds what has not ended, if one of these runs has less than was confirmed of it.
    pub(crate) async fn hold_for(&self, suspects: Vec<(String, Confirmed)>) -> Result<(), StoreError> {
        self.write_apart(Shared::History, move |db| db.hold_if_lacking(&suspects)).await
    }

    /// Looks before a batch is written, as what it is about needs it.
    pub(crate) async fn look_before(&self, about: &About) -> Result<(), StoreError> {
        if about.acquires.is_some() && !self.looked().asked.load(Ordering::SeqCst) {
            self.note_history().await?;
        }
        if about.alive_at.is_some_and(|at| is_due(&self.looked().alive_at, at, LOOKS_EVERY))
            && let Err(error) = self.note_history().await
        {
            tracing::debug!(%error, "which history the server has could not be looked at");
        }
        self.refuse_beside_held(about).await
    }

    /// A batch is committed: what was confirmed by that is noted before anything is sent for it. It is not answered if the server that has it may
    /// lack what others sent; nothing is sent then.
    pub(crate) async fn look_behind(&self, about: &About) -> Result<(), StoreError> {
        self.note_confirmed(about);
        self.refuse_beside_held(about).await
    }

    /// Notes what is confirmed of a run.
    fn note_confirmed(&self, about: &About) {
        let Some((lease, number)) = about.owner.as_ref().zip(about.confirms) else { return };
        let Some((locks, database)) = self.root_here() else { return };
        let confirmed = Confirmed::of(database, lease, number, ua_core::system::env().now());
        if let Err(error) = confirmed.note(locks, lease.run_id.as_str()) {
            tracing::debug!(%error, "what the server confirmed was not noted");
        }
    }

    /// A batch was refused. Where that tells that the server went back, whoever it tells it, what has not ended is held.
    pub(crate) async fn look_into(&self, about: &About, error: &StoreError) {
        let is_gone = match (error, &about.owner) {
            // Epochs only rise.
            (StoreError::Fenced { ours, theirs, .. }, _) => theirs < ours,
            // What had not to be durable a server that crashed may lose.
            (StoreError::WentBack { run, written, .. }, Some(lease)) => {
                let noted =
                    self.root_here().and_then(|(locks, database)| Confirmed::beside(locks, database, run.as_str()));
                noted.is_some_and(|noted| noted.is_lost_by(lease, *written))
            }
            (_, Some(_) | None) => false,
        };
        let looked = if is_gone {
            self.hold_all_that_is_open(about).await
        } else if let Some(run) = about.acquires.as_ref().filter(|_| matches!(error, StoreError::Conflict { .. })) {
            self.look(run).await
        } else {
            Ok(())
        };
        if let Err(error) = looked {
            tracing::warn!(%error, "the runs that have not ended are not held");
        }
    }

    /// Holds what has not ended, as the owner of a batch found that writes of its own are gone; also if that was done before in this history, which
    /// may have gone back once more.
    async fn hold_all_that_is_open(&self, about: &About) -> Result<(), StoreError> {
        self.hold_unfinished().await?;
        match &about.owner {
            Some(lease) => self.look(&lease.run_id).await,
            None => Ok(()),
        }
    }

    /// What is known here of a run that a batch takes.
    pub(crate) fn taking(&self, batch: &Batch) -> Option<Taking> {
        let acquired =
            |change: &Change| if let Change::Acquire { run, .. } = change { Some(run.clone()) } else { None };
        let run = batch.changes().find_map(acquired)?;
        let confirmed = self.root_here().and_then(|(locks, database)| Confirmed::beside(locks, database, run.as_str()));
        let tells = self.looked().tells.load(Ordering::SeqCst);
        Some(Taking { run, passed: self.passed_beside(), confirmed, mark: self.mark_here(), tells })
    }

    /// Refuses a start of a session at the gateway while another one of its project is held. Looked at behind every connection that was made, since a
    /// server does not go back under one that stays; as long as any session is held; and now and then, as a pooler may stand between.
    async fn refuse_beside_held(&self, about: &About) -> Result<(), StoreError> {
        let Some((lease, at)) = about.owner.as_ref().zip(about.starts_at) else { return Ok(()) };
        let (run, made) = (&lease.run_id, self.looked().made.load(Ordering::SeqCst));
        let is_due = is_due(&self.looked().started_at, at, LOOKS_EVERY);
        if self.looked().sure.load(Ordering::SeqCst) == made && !is_due {
            return Ok(());
        }
        self.look(run).await?;
        let held = self.ask(HELD_SESSIONS, vec![Value::Text(Some(run.to_string()))]).await?;
        // While one is held, whoever starts something next looks again.
        let sure = if held.is_empty() { made } else { u64::MAX };
        self.looked().sure.store(sure, Ordering::SeqCst);
        for row in &held {
            let column = |error: tokio_postgres::Error| DbError::from(error).into_store();
            if row.try_get::<_, bool>(1).map_err(column)? {
                let session: String = row.try_get(0).map_err(column)?;
                let accept = PrintedCommand::of("ua db accept").word(&session).in_code();
                return Err(refused(format!(
                    "another server took over, or a copy was put back, and nobody knows what run {session} of this project sent in the part \
                     that may be gone; nothing was sent: look what became of it (`ua db check`), then {accept}"
                )));
            }
        }
        Ok(())
    }

    /// The locks of the root that works here, and the identity of its database.
    pub(crate) fn root_here(&self) -> Option<(&Path, &str)> {
        let locks = self.config().alone_beside.as_deref()?;
        let database = if let Some(known) = self.looked().database.get() {
            known
        } else {
            let noted = database_beside(locks).ok().flatten()?;
            self.looked().database.get_or_init(|| noted)
        };
        Some((locks, database))
    }

    /// Holds what has not ended, because an owner found writes of its own gone that had been acknowledged. Once in each history: what a person accepted
    /// since stays accepted.
    ///
    /// # Errors
    ///
    /// The database cannot be read or written.
    pub async fn hold_unfinished(&self) -> Result<(), StoreError> {
        if !self.looked().asked.load(Ordering::SeqCst) {
            self.note_history().await?;
        }
        let tells = self.looked().tells.load(Ordering::SeqCst);
        self.write_apart(Shared::History, move |db| db.hold_unfinished(tells)).await
    }

    /// The runs that have not ended and that nobody drives before a person has accepted them, oldest first: those of the family of one, and of its
    /// project if it is a session at the gateway, or all.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn held(&self, of: Option<&RunId>) -> Result<Vec<Forgotten>, StoreError> {
        let rows = self.ask(HELD_RUNS, vec![Value::Text(of.map(ToString::to_string))]).await?;
        let held = |row: &Row| {
            let columns = Columns::new(row, "runs that are held", "run_id");
            Ok(Forgotten {
                at: columns.get("value")?,
                root: Some(columns.get("root_run_id")?),
                run_id: columns.get("run_id")?,
                word: Some(FAILED_OVER.to_owned()),
                ..Forgotten::default()
            })
        };
        rows.iter().map(held).collect::<Result<_, DbError>>().map_err(DbError::into_store)
    }

    /// Lets go of what is held of these.
    pub(crate) async fn let_go(
        &self,
        forgotten: &[Forgotten],
        by: Option<&str>,
        at: Timestamp,
    ) -> Result<(), StoreError> {
        let runs = forgotten.iter().filter(|known| known.is_failed_over()).map(|known| known.run_id.clone());
        let runs: Vec<String> = runs.collect();
        if runs.is_empty() {
            return Ok(());
        }
        let said = format!("{at} {}", by.unwrap_or_default());
        self.write_apart(Shared::History, move |db| {
            for run in &runs {
                db.execute("DELETE FROM meta WHERE key = $1", params![format!("{HELD}{run}")]);
                db.put(&format!("{ACCEPTED}{run}"), said.trim_end());
            }
            Ok(())
        })
        .await
    }
}

impl Db {
    /// Refuses a run that is about to be taken in a history that may lack something: whoever looked before may have looked at another server. Behind
    /// the lock of its lineage.
    pub(crate) fn refuse_in_another_history(&self, taking: &Taking) -> Result<(), DbError> {
        if self.is_to_end(&taking.run)? {
            return Ok(());
        }
        let mark = taking.mark.as_ref();
        let seen = if taking.tells { self.row(SEEN, params![mark.map(Mark::key)], Seen::of)? } else { None };
        let is_another = match (seen, mark) {
            (Some(seen), mark) => seen.step(taking.passed.as_ref()) == Step::Hold || seen.is_short_of(mark),
            (None, Some(mark)) => mark.is_lacked_by(self.stored(mark)?.as_deref()),
            (None, None) => false,
        };
        let kin = self.rows(KIN, params![taking.run.as_str()], Kin::of)?;
        let lacks = |kin: &Kin| {
            kin.run_id == taking.run.as_str() && taking.confirmed.as_ref().is_some_and(|noted| kin.lacks(noted))
        };
        if !is_another && !kin.iter().any(|kin| kin.is_held || lacks(kin)) {
            return Ok(());
        }
        Err(StoreError::Conflict {
            row: RowRef::new("runs", taking.run.as_str()),
            why: "another server took over, or a copy was put back, which may lack what was sent; nothing was begun"
                .to_owned(),
        }
        .into())
    }

    /// Whether a run is to end, and sends nothing more: a person said so of it, or of one whose task it works on.
    fn is_to_end(&self, run: &RunId) -> Result<bool, DbError> {
        let mut at = self.run(run)?;
        for _ in 0..MOST_ABOVE {
            let above = at.parent_run_id.clone().filter(|_| at.end_mark().is_none() && is_task(&at));
            let Some(above) = above else { break };
            at = self.run(&above)?;
        }
        Ok(at.end_mark().is_some())
    }

    /// Holds what has not ended, if one of these runs has less than was confirmed of it. Read behind what was noted, which may be newer than what was
    /// read first.
    fn hold_if_lacking(&self, suspects: &[(String, Confirmed)]) -> Result<(), DbError> {
        for (run, confirmed) in suspects {
            let kin = self.rows(KIN, params![run.as_str()], Kin::of)?;
            if kin.iter().any(|kin| kin.run_id == *run && kin.lacks(confirmed)) {
                tracing::warn!(%run, "the server lacks writes that it had confirmed; runs that have not ended are held");
                self.hold_all(None);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Holds what has not ended, but for what a person accepted `since` a moment, and pauses what is due. Of whoever queues a run for a schedule
    /// beside this, the run is there already and is held, or the schedule is found paused
    /// ([`FleetChange::EnqueueDue`](ua_store::FleetChange::EnqueueDue)).
    pub(crate) fn hold_all(&self, since: Option<Timestamp>) {
        self.serialise(Shared::Fleet, "");
        self.execute(HOLD, params![since.map(|since| since.to_string())]);
        self.execute(PAUSE, params![]);
    }

    /// The same, once in each history; where the server does not tell which one it has, once.
    fn hold_unfinished(&self, tells: bool) -> Result<(), DbError> {
        let seen = if tells { self.row(SEEN, params![None::<String>], Seen::of)? } else { None };
        let here = seen.and_then(|seen| seen.here).map(|here| here.history).unwrap_or_default();
        let sql = "SELECT value FROM meta WHERE key = $1";
        let lacking: Option<String> = self.row(sql, params![LACKING], |row| Ok(row.try_get(0)?))?;
        if lacking.as_ref() != Some(&here) {
            tracing::warn!(%here, "the server lacks writes that it had taken; runs that have not ended are held");
            self.hold_all(None);
            self.put(LACKING, &here);
        }
        Ok(())
    }

    /// Holds what has not ended, if a root had counted further; once, since it is as far again then.
    fn hold_if_short_of(&self, mark: &Mark) -> Result<(), DbError> {
        if mark.is_lacked_by(self.stored(mark)?.as_deref()) {
            tracing::warn!("the server lacks what this root had counted in it; runs that have not ended are held");
            self.hold_all(Some(mark.at()));
            self.put(&mark.key(), &mark.number().to_string());
        }
        Ok(())
    }

    fn note_history(&self, passed: Option<&Position>, mark: Option<&Mark>) -> Result<(), DbError> {
        let Some(seen) = self.row(SEEN, params![mark.map(Mark::key)], Seen::of)? else { return Ok(()) };
        let short = mark.filter(|mark| seen.is_short_of(Some(*mark)));
        let seen_step = seen.step(passed);
        let step = if short.is_some() { Step::Hold } else { seen_step };
        let Some(here) = seen.here.filter(|_| step != Step::Nothing).map(|here| here.history) else { return Ok(()) };
        if step == Step::Hold {
            tracing::warn!(
                noted = ?seen.noted, %here, is_short = short.is_some(),
                "the server has another history than before; runs that have not ended are held"
            );
            // In a history that nobody has seen nothing was accepted.
            self.hold_all(short.map(Mark::at).filter(|_| seen_step != Step::Hold));
            self.put(LACKING, &here);
        }
        if let Some(mark) = short {
            self.put(&mark.key(), &mark.number().to_string());
        }
        self.put(HISTORY, &here);
        self.put(COMMITS_WAIT, word_of(seen.waits));
        Ok(())
    }

    pub(crate) fn put(&self, key: &str, value: &str) {
        self.execute(PUT, named! { ":key": key, ":value": value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(history: &str, at: i64) -> Position {
        Position { history: history.to_owned(), at }
    }

    /// Over all histories that may be noted, whether commits waited and wait, and what was passed in which history.
    #[test]
    fn only_a_standby_that_was_waited_for_and_has_all_that_was_passed_goes_on_unasked() {
        let (here, before, other) = ("7/00000002", "7/00000001", "8/00000002");
        let mut held = 0;
        for noted in [None, Some(here), Some(before), Some(other)] {
            for waited in [None, Some(true), Some(false)] {
                for waits in [true, false] {
                    for passed in [
                        None,
                        Some((here, 90)),
                        Some((here, 110)),
                        Some((before, 90)),
                        Some((before, 110)),
                        Some((other, 110)),
                    ] {
                        let (here_now, noted_then) = (Some(position(here, 100)), noted.map(str::to_owned));
                        let seen = Seen { here: here_now, waits, noted: noted_then, waited, counted: None };
                        let lacks = match passed {
                            Some((history, 110)) if history == here => true,
                            // Whoever noted this history has looked already.
                            Some((history, 110)) if history == before => noted != Some(here),
                            Some(_) | None => false,
                        };
                        let expected = match noted {
                            Some(_) | None if lacks => Step::Hold,
                            Some(noted) if noted == here && waited == Some(waits) => Step::Nothing,
                            Some(noted) if noted == before && waited != Some(true) => Step::Hold,
                            Some(noted) if noted == other => Step::Hold,
                            Some(_) | None => Step::Note,
                        };
                        held += usize::from(expected == Step::Hold);
                        let passed = passed.map(|(history, at)| position(history, at));
                        assert_eq!(seen.step(passed.as_ref()), expected, "{seen:?} {passed:?}");
                        let standby = Seen { here: None, ..seen };
                        assert_eq!(standby.step(passed.as_ref()), Step::Nothing, "a standby");
                    }
                }
            }
        }
        assert!(held > 50, "{held}");
    }

    #[test]
    fn a_place_is_read_as_it_was_noted() {
        let place = position("7/00000002", 100);
        assert_eq!(Position::parse(&place.noted()), Some(place));
        for other in ["", "7/00000002", "7/00000002 x"] {
            assert_eq!(Position::parse(other), None, "{other}");
        }
    }
}
