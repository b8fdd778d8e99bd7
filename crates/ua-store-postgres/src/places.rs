//! Where a lineage is driven.
//!
//! Locks, tool servers and workspaces are on one machine. That nobody drives a run and that nothing of what was sent for it can still act is
//! proved there, by locks, and nowhere else. So the place that takes a run first has its lineage, forks and sub-agents included, until a person
//! says that it is gone. What needs no such proof (answers, questions, a cancel, another run) is written from anywhere.

use std::collections::HashMap;

use ua_core::RunId;
use ua_store::{Batch, Change, RowRef, StoreError};

use crate::column::Columns;
use crate::config::Place;
use crate::db::Db;
use crate::error::DbError;
use crate::locks::Shared;
use crate::store::PostgresStore;
use crate::value::{Value, named, params};

/// A place that holds runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// Its id.
    pub place: String,
    /// Where it is, for people.
    pub shown: String,
    /// How many of its runs have not ended.
    pub unfinished: u64,
}

impl PostgresStore {
    /// The places that hold runs which have not ended, by where they are.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn places(&self) -> Result<Vec<HeldBy>, StoreError> {
        self.read(|db| {
            db.rows(HOLDERS, params![], |row| {
                let unfinished: i64 = row.try_get(2)?;
                Ok(HeldBy {
                    place: row.try_get(0)?,
                    shown: row.try_get(1)?,
                    unfinished: unfinished.try_into().unwrap_or(0),
                })
            })
        })
        .await
    }

    /// The runs of a place that a process took and did not leave.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn taken_in(&self, place: &str) -> Result<Vec<RunId>, StoreError> {
        let place = place.to_owned();
        self.read(move |db| {
            db.rows(TAKEN_IN, params![place.as_str()], |row| Columns::new(row, "runs", "run_id").parsed("run_id"))
        })
        .await
    }

    /// The other place that has the gateway of this database: sessions of clients are driven there that have not ended.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn gateway_elsewhere(&self) -> Result<Option<Place>, StoreError> {
        let Some(here) = self.place().map(|place| place.id.clone()) else { return Ok(None) };
        self.read(move |db| db.other_gateway(&here)).await
    }

    /// Where the lineages of runs are driven: here (`None`), or where else. A run of a lineage that no place has is not named.
    ///
    /// # Errors
    ///
    /// The database cannot be read.
    pub async fn whereabouts(&self, runs: &[&RunId]) -> Result<HashMap<String, Option<Place>>, StoreError> {
        let here = self.place().map(|place| place.id.clone()).unwrap_or_default();
        let runs: Vec<String> = runs.iter().map(|run| run.as_str().to_owned()).collect();
        self.read(move |db| {
            let found = db.rows(WHEREABOUTS, [Value::Texts(runs)], |row| {
                let place = Place { id: row.try_get(1)?, shown: row.try_get(2)? };
                Ok((row.try_get::<_, String>(0)?, (place.id != here).then_some(place)))
            })?;
            Ok(found.into_iter().collect())
        })
        .await
    }
}

/// Where the lineages of runs are driven.
const WHEREABOUTS: &str = "SELECT r.run_id, p.place, p.place_shown FROM runs r JOIN lineage_places p ON p.root_run_id = r.root_run_id \
    WHERE r.run_id = ANY($1)";

/// Places with what they hold that has not ended.
const HOLDERS: &str = "SELECT p.place, min(p.place_shown), count(*) FROM runs r JOIN lineage_places p ON p.root_run_id = r.root_run_id \
    WHERE r.status NOT IN ('succeeded', 'failed', 'cancelled') GROUP BY p.place ORDER BY 2, 1";

/// The runs of a place that a process took and did not leave.
const TAKEN_IN: &str = "SELECT r.run_id FROM runs r JOIN lineage_places p ON p.root_run_id = r.root_run_id \
    WHERE p.place = $1 AND r.status = 'running' ORDER BY r.run_id";

/// Another place in which sessions of the gateway are driven that have not ended: that of the newest.
const OTHER_GATEWAY: &str = "SELECT p.place, p.place_shown FROM gateway_sessions s JOIN runs r ON r.run_id = s.run_id \
    JOIN lineage_places p ON p.root_run_id = r.root_run_id \
    WHERE p.place <> $1 AND r.status NOT IN ('succeeded', 'failed', 'cancelled') ORDER BY s.opened_at DESC LIMIT 1";

/// The place of the lineage of a run.
const OF_RUN: &str = "SELECT p.place, p.place_shown FROM runs r JOIN lineage_places p ON p.root_run_id = r.root_run_id WHERE r.run_id = $1";

/// The same of a call.
const OF_CALL: &str = "SELECT p.place, p.place_shown FROM tool_calls c JOIN lineage_places p ON p.root_run_id = c.root_run_id \
    WHERE c.tool_call_id = $1";

impl Db {
    /// Refuses what has to be done where a lineage is driven, when that is elsewhere; a lineage that was driven nowhere is this place's from
    /// here on. Behind the lock of the lineage.
    pub(crate) fn keep_to(&self, place: &Place, batch: &Batch) -> Result<(), DbError> {
        for change in batch.changes() {
            match change {
                Change::Acquire { run, .. } => {
                    let sql = "INSERT INTO lineage_places (root_run_id, place, place_shown) \
                               SELECT root_run_id, :place, :shown FROM runs WHERE run_id = :run ON CONFLICT (root_run_id) DO NOTHING";
                    self.execute(sql, named! { ":place": place.id, ":shown": place.shown, ":run": run.as_str() });
                    self.is_here(place, OF_RUN, "runs", run.as_str())?;
                    self.has_the_gateway(place, run)?;
                }
                Change::Fork(fork) => {
                    let parent = fork.run.parent_run_id.as_ref().map_or("", RunId::as_str);
                    self.is_here(place, OF_RUN, "runs", parent)?;
                }
                Change::Delete(deletion) => self.is_here(place, OF_RUN, "runs", deletion.run_id.as_str())?,
                Change::Recall(recall) => self.is_here(place, OF_CALL, "tool_calls", recall.call_id.as_str())?,
                Change::Correct(correct) => self.is_here(place, OF_CALL, "tool_calls", correct.call_id.as_str())?,
                Change::ResolveLate { call, .. } => self.is_here(place, OF_CALL, "tool_calls", call.as_str())?,
                // Written by the owner of a run, who took it here; or of no consequence to what was sent.
                Change::Submit(_)
                | Change::SubmitAgain { .. }
                | Change::OpenSession(_)
                | Change::Answer(_)
                | Change::Override(_)
                | Change::RequestCancel { .. }
                | Change::StartAttempt(_)
                | Change::PruneBlobs(_)
                | Change::NoteAlive { .. }
                | Change::EndRun(_)
                | Change::OpenStep(_)
                | Change::EnterStep(_)
                | Change::CloseStep(_)
                | Change::Reserve(_)
                | Change::NoteResponse { .. }
                | Change::NoteUsage { .. }
                | Change::CloseRequest { .. }
                | Change::CloseLostRequests { .. }
                | Change::RecordTurn(_)
                | Change::CommitTurn(_)
                | Change::AppendMessages { .. }
                | Change::SaveCheckpoint(_)
                | Change::RaiseQuestion(_)
                | Change::CloseQuestion { .. }
                | Change::KeepHandle(_)
                | Change::SettleAttempt(_)
                | Change::InterpretReceipt { .. }
                | Change::Deduplicate { .. }
                | Change::CancelCalls { .. }
                | Change::MarkLost { .. }
                | Change::Arrive(_)
                | Change::Deliver { .. }
                | Change::ResolveUnknown { .. }
                | Change::NoteReplay { .. } => {}
            }
        }
        Ok(())
    }

    /// Refuses a session of the gateway beside those of another place. Which requests are the same call is told apart in the memory of one broker,
    /// so a database has the gateway of one place. Each that takes a session says first where it is: of two that do so at once, the later one sees
    /// the other here.
    fn has_the_gateway(&self, place: &Place, run: &RunId) -> Result<(), DbError> {
        let sql = "SELECT 1 FROM gateway_sessions WHERE run_id = $1";
        if self.row(sql, params![run.as_str()], |_| Ok(()))?.is_none() {
            return Ok(());
        }
        self.serialise(Shared::Gateway, "");
        match self.other_gateway(&place.id)? {
            Some(other) => Err(StoreError::Conflict {
                row: RowRef::new("runs", run.as_str()),
                why: format!(
                    "the database has the gateway of {}; use that one, give this one a database of its own, or, if that one is gone for good, \
                     `ua workers forget {}`",
                    other.shown, other.id
                ),
            }
            .into()),
            None => Ok(()),
        }
    }

    fn other_gateway(&self, here: &str) -> Result<Option<Place>, DbError> {
        self.row(OTHER_GATEWAY, params![here], |row| Ok(Place { id: row.try_get(0)?, shown: row.try_get(1)? }))
    }

    fn is_here(&self, place: &Place, sql: &str, table: &'static str, key: &str) -> Result<(), DbError> {
        let holder =
            self.row(sql, params![key], |row| Ok((row.try_get::<_, String>(0)?, row.try_get::<_, String>(1)?)))?;
        match holder {
            Some((id, shown)) if id != place.id => Err(StoreError::Conflict {
                row: RowRef::new(table, key),
                why: format!("it is driven in {shown}, where its workspace and locks are; do it there"),
            }
            .into()),
            Some(_) | None => Ok(()),
        }
    }
}
