//! What `effects.log` knows and the database does not: the sign that the database went back in time.
//!
//! A backup that was put back, a copy without its write-ahead log or a disk that lied about a sync loses receipts, and lost
//! receipts are effects that would happen again. The log is written after the commit, so each attempt in it was in the
//! database once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;

use rusqlite::OptionalExtension as _;
use serde::{Deserialize, Serialize};
use serde_json::json;
use ua_core::{CallId, RunId, Timestamp};
use ua_store::{Correction, StoreError};

use crate::db::Db;
use crate::effects;
use crate::error::{DbError, refused_because};

/// An attempt, or a person's word about one, that `effects.log` knows and the database does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForgottenAttempt {
    /// When it was sent, as the log has it.
    pub at: String,
    /// The first run of its lineage; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The run at the top of its run's tree; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Its run.
    pub run_id: String,
    /// Its call.
    pub tool_call_id: String,
    /// Its number.
    pub attempt: u32,
    /// The tool, as the model named it.
    pub tool: String,
    /// The key it was sent under.
    pub idempotency_key: Option<String>,
    /// The last status that the log has for it.
    pub status: String,
    /// What a person said about it with `ua calls resolve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
}

impl ForgottenAttempt {
    /// Whether a person said something about it that the database, which knows the attempt, does not know.
    fn word_is_news(&self, db: &Db<'_>) -> Result<bool, DbError> {
        let Some(word) = &self.correction else { return Ok(false) };
        let Ok(call) = CallId::parse(&self.tool_call_id) else { return Ok(false) };
        Ok(db.call(&call)?.correction.is_none_or(|known| known.at < word.at))
    }
}

/// What every line has; the rest of one about an attempt is a [`ForgottenAttempt`].
#[derive(Deserialize)]
struct Line {
    event: String,
    db_uuid: String,
    run_id: String,
}

/// What a log says about one database.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// By call and attempt, the newest line.
    attempts: BTreeMap<(String, u32), ForgottenAttempt>,
    /// How many lines there are.
    pub(crate) lines: usize,
    /// Those among them that are another database's, or cut.
    pub(crate) foreign: usize,
}

const ACCEPTED: &str = "accepted";

/// Reads the log beside the database; a missing one is empty.
pub(crate) fn read(path: &Path, db_uuid: &str) -> Result<Mirror, StoreError> {
    let failed = |error| refused_because(format!("{} cannot be read", path.display()), error);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Mirror::default()),
        Err(error) => return Err(failed(error)),
    };
    let mut mirror = Mirror::default();
    let mut reader = BufReader::new(file);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            break;
        }
        mirror.lines += 1;
        // A line that a full disk or a kill cut in half is no line.
        let Ok(line) = serde_json::from_slice::<Line>(&bytes) else {
            mirror.foreign += 1;
            continue;
        };
        if line.db_uuid != db_uuid {
            mirror.foreign += 1;
            continue;
        }
        if line.event == ACCEPTED {
            mirror.attempts.retain(|_, attempt| attempt.run_id != line.run_id);
        } else if let Ok(attempt) = serde_json::from_slice::<ForgottenAttempt>(&bytes)
            && attempt.attempt > 0
        {
            mirror.learn(attempt);
        }
    }
    Ok(mirror)
}

impl Mirror {
    /// A line that is newer than what is known of its attempt; a person's word stays until there is a newer one.
    fn learn(&mut self, mut attempt: ForgottenAttempt) {
        let id = (attempt.tool_call_id.clone(), attempt.attempt);
        let before = self.attempts.remove(&id).and_then(|before| before.correction);
        attempt.correction = attempt.correction.or(before);
        self.attempts.insert(id, attempt);
    }

    /// Those that the database does not know, or not with what a person said about them.
    pub(crate) fn unknown_to(self, db: &Db<'_>) -> Result<Vec<ForgottenAttempt>, DbError> {
        let mut known =
            db.connection.prepare_cached("SELECT max(attempt) FROM tool_attempts WHERE tool_call_id = ?1")?;
        // What a person deleted is not forgotten.
        let mut deleted = db.connection.prepare_cached("SELECT 1 FROM deleted_runs WHERE run_id = ?1")?;
        let mut forgotten = Vec::new();
        for ((call, number), attempt) in self.attempts {
            let newest: Option<u32> = known.query_row([&call], |row| row.get(0))?;
            let is_forgotten = match newest {
                Some(newest) if newest > number => false,
                Some(newest) if newest == number => attempt.word_is_news(db)?,
                Some(_) | None => true,
            };
            if is_forgotten && !deleted.exists([&attempt.run_id])? {
                forgotten.push(attempt);
            }
        }
        forgotten.sort_by(|a, b| a.at.cmp(&b.at));
        Ok(forgotten)
    }

    /// Those of them that speak against driving `run` on: what its family sent, and what a run sent of which nobody knows any more whose
    /// family it is of.
    pub(crate) fn unknown_to_family(self, db: &Db<'_>, run: &RunId) -> Result<Vec<ForgottenAttempt>, DbError> {
        let mut forgotten = self.unknown_to(db)?;
        let mut known = db.connection.prepare_cached("SELECT root_run_id FROM runs WHERE run_id = ?1")?;
        let mut root_of =
            |run: &str| -> Result<Option<String>, DbError> { Ok(known.query_row([run], |row| row.get(0)).optional()?) };
        let root = root_of(run.as_str())?;
        let mut of_family = Vec::new();
        for attempt in forgotten.drain(..) {
            let of = match root_of(&attempt.run_id)? {
                Some(root) => Some(root),
                None => attempt.root.clone(),
            };
            if of.is_none() || of == root || attempt.run_id == run.as_str() {
                of_family.push(attempt);
            }
        }
        Ok(of_family)
    }
}

/// Writes what the database sent and the log does not know: lines that were cut, or went with a file that somebody deleted.
pub(crate) fn catch_up(path: &Path, db_uuid: &str, db: &Db<'_>) -> Result<(), DbError> {
    let log = read(path, db_uuid).map_err(DbError::Store)?;
    let sql = "SELECT c.tool_call_id FROM tool_calls c WHERE c.side_effect_class != 'read_only' AND c.attempt > 0 ORDER BY c.rowid";
    let mut statement = db.connection.prepare(sql)?;
    let calls = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let mut text = String::new();
    for id in calls {
        let Ok(id) = CallId::parse(&id) else { continue };
        let call = db.call(&id)?;
        let logged = log.attempts.get(&(id.to_string(), call.attempt));
        let word = call.correction.as_ref().map(|correction| correction.at);
        let is_known = logged.is_some_and(|logged| logged.correction.as_ref().map(|word| word.at) >= word);
        if call.policy.is_kept_outside() && !is_known {
            let mut line = effects::line(&call, &db.top_of_tree(&call.run_id)?, "caught_up", 0, call.updated_at);
            line["db_uuid"] = json!(db_uuid);
            text.push_str(&line.to_string());
            text.push('\n');
        }
    }
    let failed = |error| DbError::Store(refused_because(format!("{} cannot be written", path.display()), error));
    let mut file = effects::open(path).map_err(failed)?;
    effects::append(&mut file, &text).and_then(|()| file.sync_all()).map_err(failed)
}

/// Notes that a person accepted what the log knew about `runs` until now.
pub(crate) fn accept<'a>(
    path: &Path,
    db_uuid: &str,
    runs: impl IntoIterator<Item = &'a str>,
    at: Timestamp,
) -> Result<(), StoreError> {
    let failed = |error| refused_because(format!("{} cannot be written", path.display()), error);
    let mut text = String::new();
    for run in runs {
        text.push_str(&json!({"event": ACCEPTED, "db_uuid": db_uuid, "run_id": run, "at": at}).to_string());
        text.push('\n');
    }
    let mut file = effects::open(path).map_err(failed)?;
    effects::append(&mut file, &text).and_then(|()| file.sync_all()).map_err(failed)
}
