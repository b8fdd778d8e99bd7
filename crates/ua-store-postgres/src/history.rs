//! Whether the server still has the history that it had: a standby that took over, or a backup that was put back, may lack what was acknowledged.
//!
//! In rows that went back nothing shows that. But a server that is promoted, or recovered to a moment, begins another *timeline*; what was filled
//! from a dump is another system, database or table; and a server whose files were put back has a shorter log: all of that can be asked for. So the history is noted
//! in the database, and how far its log was is noted among the locks of a root, once a commit behind that place was acknowledged. Both are compared
//! before a run is driven ([`PastStore`](ua_store::PastStore)) and whenever a worker says that it is alive. In a history that may lack something each
//! run that has not ended is held until a person accepts it, as after a copy of a file without its log: nobody knows what was sent for it in the
//! part that is gone. A new history counts as the whole one only where commits waited for standbys, as the database itself has it noted, and the log
//! is as long as it was.
//!
//! Invariant: in a history that may lack something, no run that it has as unfinished is taken before a person has said so. Proved by:
//! `tests/it/history.rs`; the e2e tests `failover`. What it does not see: a standby that lacks the last seconds and was promoted although commits
//! waited for another one, unless the owner of a run lives on and sees it at its next write (`WentBack`), whereupon everything is held; and runs that
//! were begun and lost whole.

use tokio_postgres::Row;
use ua_core::{RunId, Timestamp};
use ua_store::{FAILED_OVER, Forgotten, StoreError};

use crate::column::Columns;
use crate::db::Db;
use crate::error::DbError;
use crate::locks::Shared;
use crate::store::PostgresStore;
use crate::value::{Value, named, params};

/// The key of `meta` that names the history.
const HISTORY: &str = "history";
/// The key that says whether commits waited for standbys when that was last looked at: `yes` or `no`.
const COMMITS_WAIT: &str = "commits_wait";
/// The key that names the history in which an owner found writes of its own gone.
const LACKING: &str = "lacking";
/// How the keys begin that name runs which are held, with the newest moment that is known.
const HELD: &str = "held/";
/// How the keys begin that say who accepted a run, and when.
const ACCEPTED: &str = "accepted/";

/// Which history it is, how long its log, whether commits wait for standbys, and what is noted of the first and the last. A standby has no history
/// of its own.
const SEEN: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL \
      ELSE system_identifier::text || ':' || (SELECT oid FROM pg_database WHERE datname = current_database()) \
        || ':' || 'ua.meta'::regclass::oid || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    CASE WHEN pg_is_in_recovery() THEN NULL ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END, \
    current_setting('synchronous_standby_names') <> '', \
    (SELECT value FROM ua.meta WHERE key = 'history'), \
    (SELECT value FROM ua.meta WHERE key = 'commits_wait') \
    FROM pg_control_system()";

/// Whether what is noted can be read.
const NOTED: &str = "SELECT value FROM ua.meta WHERE key = 'history'";

/// The runs that are held and have not ended: those of the family of one, or all. Of a session at the gateway also the others of its project, since a
/// doubt about what they sent would reach it.
const HELD_RUNS: &str = "SELECT r.run_id, r.root_run_id, m.value FROM ua.runs r JOIN ua.meta m ON m.key = 'held/' || r.run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') \
    AND ($1::text IS NULL OR r.root_run_id = (SELECT o.root_run_id FROM ua.runs o WHERE o.run_id = $1) \
        OR r.run_id IN (SELECT b.run_id FROM ua.gateway_sessions a JOIN ua.gateway_sessions b ON b.project = a.project WHERE a.run_id = $1)) \
    ORDER BY r.seq";

/// Holds whatever has not ended.
const HOLD: &str = "INSERT INTO meta (key, value) \
    SELECT 'held/' || run_id, (SELECT max(updated_at) FROM runs) FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled') \
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Pauses what is due: an instant may have been submitted in the part that is gone, and its run with it. One that is yet to come was not.
const PAUSE: &str = "UPDATE schedules SET is_paused = true WHERE NOT is_paused \
    AND next_at <= to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";

const PUT: &str =
    "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

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

impl Seen {
    fn of(row: &Row) -> Result<Self, DbError> {
        let (history, at): (Option<String>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        let waited: Option<String> = row.try_get(4)?;
        Ok(Self {
            here: history.zip(at).map(|(history, at)| Position { history, at }),
            waits: row.try_get(2)?,
            noted: row.try_get(3)?,
            waited: waited.map(|word| word == word_of(true)),
        })
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
        let rows = match self.ask(SEEN, Vec::new()).await {
            Err(error) if is_not_told(&error) => {
                // It is not because of the table that it is not told.
                self.ask(NOTED, Vec::new()).await?;
                tracing::debug!(%error, "the server does not say which history it has");
                return Ok(());
            }
            asked => asked?,
        };
        let Some(row) = rows.first() else { return Ok(()) };
        let seen = Seen::of(row).map_err(DbError::into_store)?;
        let passed = self.passed_beside();
        let step = seen.step(passed.as_ref());
        // It is noted beside the locks when a commit behind it was acknowledged: the log is that long then, whatever becomes of the server.
        self.has_seen(seen.here);
        if step == Step::Nothing {
            return Ok(());
        }
        self.write_apart(Shared::History, move |db| db.note_history(passed.as_ref())).await
    }

    /// Holds what has not ended, because an owner found writes of its own gone that had been acknowledged. Once in each history: what a person accepted
    /// since stays accepted.
    ///
    /// # Errors
    ///
    /// The database cannot be read or written.
    pub async fn hold_unfinished(&self) -> Result<(), StoreError> {
        self.write_apart(Shared::History, Db::hold_unfinished).await
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
    fn hold_unfinished(&self) -> Result<(), DbError> {
        let here = self.row(SEEN, params![], Seen::of)?.and_then(|seen| seen.here);
        let here = here.map(|here| here.history).unwrap_or_default();
        let sql = "SELECT value FROM meta WHERE key = $1";
        let lacking: Option<String> = self.row(sql, params![LACKING], |row| Ok(row.try_get(0)?))?;
        if lacking.as_ref() != Some(&here) {
            tracing::warn!(%here, "the server lacks writes that it had taken; runs that have not ended are held");
            self.execute(HOLD, params![]);
            self.execute(PAUSE, params![]);
            self.put(LACKING, &here);
        }
        Ok(())
    }

    fn note_history(&self, passed: Option<&Position>) -> Result<(), DbError> {
        let Some(seen) = self.row(SEEN, params![], Seen::of)? else { return Ok(()) };
        let step = seen.step(passed);
        let Some(here) = seen.here.filter(|_| step != Step::Nothing).map(|here| here.history) else { return Ok(()) };
        if step == Step::Hold {
            tracing::warn!(noted = ?seen.noted, %here, "the server has another history than before; runs that have not ended are held");
            self.execute(HOLD, params![]);
            self.execute(PAUSE, params![]);
        }
        self.put(HISTORY, &here);
        self.put(COMMITS_WAIT, word_of(seen.waits));
        Ok(())
    }

    fn put(&self, key: &str, value: &str) {
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
                        let seen =
                            Seen { here: Some(position(here, 100)), waits, noted: noted.map(str::to_owned), waited };
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
