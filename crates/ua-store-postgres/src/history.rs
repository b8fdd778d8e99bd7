//! Whether the server still has the history that it had: a standby that took over, or a backup that was put back, may lack what was acknowledged.
//!
//! In rows that went back nothing shows that. But a server that is promoted, or recovered to a moment, begins another *timeline*, and one that
//! was filled from a dump is another system; both can be asked for. So the history is noted in the database, and compared before a run is driven
//! ([`PastStore`](ua_store::PastStore)) and whenever a worker says that it is alive. In another history than the noted one each run that has not
//! ended is held until a person accepts it, as after a copy of a file without its log: nobody knows what was sent for it in the part that is gone.
//! Only where commits waited for standbys, as the database itself has it noted, and the system is the same, the new history counts as the whole
//! one.
//!
//! Invariant: in a history that may lack something, no run that it has as unfinished is taken before a person has said so. Proved by:
//! `tests/it/history.rs`; the e2e tests `failover`. What it does not see: a standby that was promoted although commits did not wait for *it*
//! while they waited for another one; and runs that were begun and lost whole. The owner of a run that lives on sees the first of these at its next
//! write (`WentBack`).

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
/// How the keys begin that name runs which are held, with the newest moment that is known.
const HELD: &str = "held/";
/// How the keys begin that say who accepted a run, and when.
const ACCEPTED: &str = "accepted/";

/// Which history it is, whether commits wait for standbys, and what is noted of both. A standby has no history of its own.
const SEEN: &str = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL \
      ELSE system_identifier::text || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END, \
    current_setting('synchronous_standby_names') <> '', \
    (SELECT value FROM ua.meta WHERE key = 'history'), \
    (SELECT value FROM ua.meta WHERE key = 'commits_wait') \
    FROM pg_control_system()";

/// Whether what is noted can be read.
const NOTED: &str = "SELECT value FROM ua.meta WHERE key = 'history'";

/// The runs that are held and have not ended: those of the family of one, or all.
const HELD_RUNS: &str = "SELECT r.run_id, r.root_run_id, m.value FROM ua.runs r JOIN ua.meta m ON m.key = 'held/' || r.run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') \
    AND ($1::text IS NULL OR r.root_run_id = (SELECT o.root_run_id FROM ua.runs o WHERE o.run_id = $1)) ORDER BY r.seq";

/// Holds whatever has not ended.
const HOLD: &str = "INSERT INTO meta (key, value) \
    SELECT 'held/' || run_id, (SELECT max(updated_at) FROM runs) FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled') \
    ON CONFLICT (key) DO UPDATE SET value = excluded.value";

const PUT: &str =
    "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// What a server says of its history, and what is noted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// The system and its timeline; none of a standby.
    here: Option<String>,
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
    /// What has not ended is held, and it is noted as it is.
    Hold,
}

impl Seen {
    fn of(row: &Row) -> Result<Self, DbError> {
        let waited: Option<String> = row.try_get(3)?;
        Ok(Self {
            here: row.try_get(0)?,
            waits: row.try_get(1)?,
            noted: row.try_get(2)?,
            waited: waited.map(|word| word == word_of(true)),
        })
    }

    fn step(&self) -> Step {
        let Some(here) = &self.here else { return Step::Nothing };
        match &self.noted {
            // A database that was made, moved or brought up to date just now.
            None => Step::Note,
            Some(noted) if noted == here => {
                if self.waited == Some(self.waits) {
                    Step::Nothing
                } else {
                    Step::Note
                }
            }
            // Whoever took over has all that was acknowledged, if commits waited for it. Another system was filled from a copy.
            Some(noted) if self.waited == Some(true) && system(noted) == system(here) => Step::Note,
            Some(_) => Step::Hold,
        }
    }
}

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
        if Seen::of(row).map_err(DbError::into_store)?.step() == Step::Nothing {
            return Ok(());
        }
        self.write_apart(Shared::History, Db::note_history).await
    }

    /// The runs that have not ended and that nobody drives before a person has accepted them, oldest first: those of the family of one, or all.
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
    fn note_history(&self) -> Result<(), DbError> {
        let Some(seen) = self.row(SEEN, params![], Seen::of)? else { return Ok(()) };
        let step = seen.step();
        let Some(here) = seen.here.filter(|_| step != Step::Nothing) else { return Ok(()) };
        if step == Step::Hold {
            tracing::warn!(noted = ?seen.noted, %here, "the server has another history than before; runs that have not ended are held");
            self.execute(HOLD, params![]);
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

    /// Over all histories that may be noted, and whether commits waited and wait.
    #[test]
    fn only_a_standby_that_was_waited_for_goes_on_unasked() {
        let here = "7/00000002";
        for (noted, is_same_system) in
            [(None, true), (Some(here), true), (Some("7/00000001"), true), (Some("8/00000002"), false)]
        {
            for waited in [None, Some(true), Some(false)] {
                for waits in [true, false] {
                    let seen = Seen { here: Some(here.to_owned()), waits, noted: noted.map(str::to_owned), waited };
                    let expected = match noted {
                        None => Step::Note,
                        Some(noted) if noted == here && waited == Some(waits) => Step::Nothing,
                        Some(noted) if noted == here => Step::Note,
                        Some(_) if waited == Some(true) && is_same_system => Step::Note,
                        Some(_) => Step::Hold,
                    };
                    assert_eq!(seen.step(), expected, "{seen:?}");
                    assert_eq!(Seen { here: None, ..seen }.step(), Step::Nothing, "a standby");
                }
            }
        }
    }
}
