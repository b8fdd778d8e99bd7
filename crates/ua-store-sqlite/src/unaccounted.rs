//! What a copy that is put back cannot know and nothing beside it tells either.
//!
//! `effects.log` says what was sent since the copy was made, as long as it is the log of that time. On a new machine there is none, and what runs
//! of the copy did behind it is known to nobody: those that it has as queued or unfinished are held by a line of the log each, until a person
//! accepts that, by the rule by which an older copy is held. Nor does any log say what became of schedules: those that the database in the place
//! of the copy does not have in the same words are paused.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::json;
use ua_core::{ShowPath as _, TASK_MODE, Timestamp};
use ua_store::{StoreError, UNACCOUNTED, rules};

use crate::effects::{self, Writes};
use crate::error::{DbError, refused_because, sql_error};
use crate::mirror::{self, Mirror, RESTORED};
use crate::source::Source;
use crate::store::read_uuid;

/// What a copy was put in place of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Where what was there is kept; `None` when nothing was there.
    pub kept: Option<PathBuf>,
    /// The newest moment that the copy knows of; `None` where nothing was ever stored in it.
    pub knows_until: Option<Timestamp>,
    /// Whether nothing tells what was sent behind that: `effects.log` is missing, or from before the copy.
    pub is_unaccounted: bool,
    /// Schedules of the copy that are paused now, since nobody knows whether they were changed, paused or removed behind it.
    pub paused: Vec<String>,
    /// Schedules that were there and are not in the copy.
    pub lost_schedules: Vec<String>,
    /// Runs that were there, unfinished, and are not in the copy, oldest first.
    pub lost_runs: Vec<String>,
}

/// A copy, looked at before it is put in place.
#[derive(Debug)]
pub(crate) struct Copied {
    connection: Connection,
    /// Which database it is of.
    pub(crate) uuid: String,
    knows_until: Option<String>,
}

/// A schedule in the words that count: when it is due next is no word of anybody.
#[derive(PartialEq, Eq)]
struct Schedule {
    name: String,
    words: [String; 4],
    is_paused: bool,
}

impl Copied {
    pub(crate) fn open(from: &Path) -> Result<Self, StoreError> {
        let connection = Source::of(from).connect()?;
        // All times are written in one form, so that the later one is the greater text.
        let sql = "SELECT max(at) FROM (SELECT max(updated_at) AS at FROM runs UNION ALL SELECT max(started_at) FROM tool_attempts \
                   UNION ALL SELECT max(answered_at) FROM answers)";
        let knows_until = connection.query_row(sql, [], |row| row.get(0)).map_err(sql_error)?;
        let uuid = read_uuid(&connection)?;
        Ok(Self { connection, uuid, knows_until })
    }

    pub(crate) fn knows_until(&self) -> Option<Timestamp> {
        Timestamp::parse(self.knows_until.as_deref()?)
    }

    /// Whether the log is from a time that the copy does not know, `before` being what was in the place of the copy and has told the log all
    /// that it knew.
    fn is_told_by(&self, log: &Mirror, is_there: bool, before: Option<&Connection>) -> Result<bool, DbError> {
        let is_from_before_a_gap =
            log.untold_until().is_some_and(|until| self.knows_until().is_none_or(|knows| knows < until));
        if !is_there || is_from_before_a_gap {
            return Ok(false);
        }
        // What goes out of the machine has a line, whatever is done in doubt.
        let sql = "WITH sent AS (SELECT a.tool_call_id, a.attempt, a.started_at FROM tool_attempts a \
                   JOIN tool_calls c ON c.tool_call_id = a.tool_call_id \
                   WHERE c.side_effect_class = 'external' AND coalesce(a.detail, '') NOT LIKE ?1 || '%') \
                   SELECT tool_call_id, attempt FROM sent WHERE started_at = (SELECT max(started_at) FROM sent)";
        let mut statement = self.connection.prepare(sql)?;
        let newest = statement.query_map([rules::RECALLED], |row| {
            Ok((row.get::<_, String>("tool_call_id")?, row.get::<_, u32>("attempt")?))
        })?;
        let sql = "SELECT 1 FROM tool_attempts WHERE tool_call_id = ?1 AND attempt = ?2";
        let mut there = before.map(|before| before.prepare(sql)).transpose()?;
        for attempt in newest {
            let (call, number) = attempt?;
            let is_logged = log.has(&format!("{call}/{number}"));
            let mut is_there = || there.as_mut().map_or(Ok(false), |there| there.exists((&call, number)));
            if !is_logged && !is_there()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes in the log which runs of the copy may have done what nobody knows of; whether there is such a time at all.
    pub(crate) fn note(
        &self,
        log: &Path,
        own: &Writes,
        before: Option<&Connection>,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let failed = |error| refused_because(format!("{} cannot be written", log.shown()), error);
        let told = mirror::read(log, own)?;
        if self.is_told_by(&told, log.exists(), before).map_err(DbError::into_store)? {
            return Ok(false);
        }
        let mut text = format!(
            "{}\n",
            json!({
                "event": RESTORED, "db_file": own.file, "db_uuid": own.uuid, "run_id": "", "at": at,
            })
        );
        for (run, root) in unfinished(&self.connection).map_err(DbError::into_store)? {
            let line = json!({
                "event": "word", "db_file": own.file, "db_uuid": own.uuid, "run_id": run, "root": root, "tree": run,
                "word": UNACCOUNTED, "at": self.knows_until,
            });
            text.push_str(&format!("{line}\n"));
        }
        // Before the copy is in place: killed between the two, the log says too much, and not too little.
        let mut file = effects::open(log).map_err(failed)?;
        effects::append(&mut file, &text).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(true)
    }

    /// The runs that were there, unfinished, and that the copy lacks.
    pub(crate) fn runs_it_lacks(&self, before: Option<&Connection>) -> Result<Vec<String>, StoreError> {
        // A database that cannot be read says nothing.
        let there = before.and_then(|before| unfinished(before).ok()).unwrap_or_default();
        let mut has = self.connection.prepare("SELECT 1 FROM runs WHERE run_id = ?1").map_err(sql_error)?;
        let mut lost = Vec::new();
        for (run, _) in there {
            if !has.exists([&run]).map_err(sql_error)? {
                lost.push(run);
            }
        }
        Ok(lost)
    }

    /// The schedules of the copy that are not known to be so still, and those that it lacks.
    pub(crate) fn schedules(&self, before: Option<&Connection>) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let own = schedules(&self.connection).map_err(DbError::into_store)?;
        // One that cannot be read says nothing.
        let there = before.and_then(|before| schedules(before).ok()).unwrap_or_default();
        let lost = there.iter().filter(|one| own.iter().all(|own| own.name != one.name));
        let lost = lost.map(|one| one.name.clone()).collect();
        let unsure = own.into_iter().filter(|own| !own.is_paused && !there.contains(own));
        Ok((unsure.map(|own| own.name).collect(), lost))
    }
}

/// The runs of a database that could do something yet, each with the first of its lineage. What a sub-agent does its run answers for.
fn unfinished(connection: &Connection) -> Result<Vec<(String, String)>, DbError> {
    let sql = "SELECT run_id, root_run_id FROM runs WHERE status NOT IN ('succeeded', 'failed', 'cancelled') AND run_mode <> ?1 \
               ORDER BY created_at";
    let mut statement = connection.prepare(sql)?;
    let runs = statement.query_map([TASK_MODE], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(runs.collect::<Result<_, _>>()?)
}

/// The schedules of a database; one of an older version may have none.
fn schedules(connection: &Connection) -> Result<Vec<Schedule>, DbError> {
    let has_any = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schedules'";
    if !connection.prepare(has_any)?.exists([])? {
        return Ok(Vec::new());
    }
    let sql = "SELECT name, cron, time_zone, job_json, catch_up, is_paused FROM schedules ORDER BY name";
    let mut statement = connection.prepare(sql)?;
    let all = statement.query_map([], |row| {
        let words = [row.get("cron")?, row.get("time_zone")?, row.get("job_json")?, row.get("catch_up")?];
        Ok(Schedule { name: row.get("name")?, words, is_paused: row.get("is_paused")? })
    })?;
    Ok(all.collect::<Result<_, _>>()?)
}

/// Pauses schedules of a copy before it is in place.
pub(crate) fn pause(copy: &Connection, schedules: &[String]) -> rusqlite::Result<()> {
    for name in schedules {
        copy.execute("UPDATE schedules SET is_paused = 1 WHERE name = ?1", [name])?;
    }
    Ok(())
}
