//! Whether a database can keep its promise: what its server is set to, and whether its history is whole.

use serde::Serialize;
use ua_store::{Forgotten, StoreError};

use crate::db::Db;
use crate::error::DbError;
use crate::settings::Facts;
use crate::store::PostgresStore;
use crate::value::params;

/// What an examination found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// The id of the database.
    pub db_uuid: String,
    /// The version of its schema.
    pub schema: i32,
    /// The version of the server.
    pub server_version: String,
    /// Its size.
    pub bytes: i64,
    /// What is wrong: the promise is not kept.
    pub findings: Vec<String>,
    /// Where the promise ends.
    pub warnings: Vec<String>,
    /// Runs that nobody drives before a person has accepted them: the server has another history than before, which may lack what they did.
    pub forgotten: Vec<Forgotten>,
}

/// Events that do not fit to the one before them in their run, digested as when they were written.
const BROKEN_LINKS: &str = "SELECT event_seq, tool_call_id, run_id FROM ( \
    SELECT e.*, coalesce(lag(chain) OVER (PARTITION BY run_id ORDER BY event_seq), '') AS before FROM tool_call_events e WHERE chain IS NOT NULL) e \
    WHERE chain <> encode(sha256(ua.piece(before) || ua.piece(run_id) || ua.piece(event_seq::text) || ua.piece(tool_call_id) \
      || ua.piece(coalesce(from_status, '')) || ua.piece(to_status) || ua.piece(lease_epoch::text) || ua.piece(at) \
      || CASE WHEN correction_json IS NULL THEN ''::bytea ELSE ua.piece(correction_json) END), 'hex') \
    ORDER BY run_id, event_seq LIMIT 20";

/// Calls that do not stand where their newest event says.
const LOST_ENDS: &str = "SELECT tool_call_id, run_id, ua.standing(status, failure_kind) AS status, \
    (SELECT to_status FROM tool_call_events e WHERE e.tool_call_id = c.tool_call_id ORDER BY event_seq DESC LIMIT 1) AS last \
    FROM tool_calls c WHERE ua.standing(status, failure_kind) IS DISTINCT FROM \
    (SELECT to_status FROM tool_call_events e WHERE e.tool_call_id = c.tool_call_id ORDER BY event_seq DESC LIMIT 1) \
    ORDER BY run_id, tool_call_id LIMIT 20";

/// What has to be there for the rules to hold whoever writes.
const TRIGGERS: [&str; 13] = [
    "blobs_are_immutable",
    "runs_begin",
    "runs_go_on",
    "tool_attempts_end_once",
    "tool_call_events_are_immutable",
    "tool_call_events_chain",
    "tool_calls_begin",
    "tool_calls_go_on",
    "tool_calls_note_change",
    "tool_calls_note_plan",
    "tool_receipts_are_immutable",
    "tool_receipts_note_response",
    "usage_is_charged_once",
];

impl PostgresStore {
    /// Examines the server's settings, the triggers and the histories of all calls, and tells which runs are held.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read at all; what is wrong with it otherwise is in the findings.
    pub async fn examine(&self) -> Result<Health, StoreError> {
        let forgotten = self.held(None).await?;
        Ok(Health { forgotten, ..self.read(examine).await? })
    }
}

/// Answers, with their links.
const ANSWERS: &str = "SELECT a.question_id, a.choice, a.proof, a.note, a.answered_by, a.answered_at, a.link, q.run_id \
                       FROM answers a JOIN questions q ON q.question_id = a.question_id ORDER BY q.seq";

impl Db {
    /// What tells this database from every other one.
    pub(crate) fn database_id(&self) -> Result<String, DbError> {
        let sql = "SELECT value FROM meta WHERE key = 'db_uuid'";
        Ok(self.row(sql, params![], |row| Ok(row.try_get::<_, String>(0)?))?.unwrap_or_default())
    }
}

fn examine(db: &Db) -> Result<Health, DbError> {
    let text = |sql: &str| {
        Ok::<_, DbError>(db.row(sql, params![], |row| Ok(row.try_get::<_, String>(0)?))?.unwrap_or_default())
    };
    let facts = Facts::of(db)?;
    let (mut findings, warnings) = (facts.findings(), facts.warnings());
    let sql = "SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A') \
               AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'ua'::regnamespace)";
    let triggers = db.rows(sql, params![], |row| Ok(row.try_get::<_, String>(0)?))?;
    let missing = TRIGGERS.iter().filter(|name| !triggers.iter().any(|trigger| trigger == *name));
    findings.extend(missing.map(|name| format!("the trigger {name} is missing or switched off")));
    let sequence = |row: &tokio_postgres::Row| {
        Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, String>(2)?))
    };
    for (seq, call, run) in db.rows(BROKEN_LINKS, params![], sequence)? {
        findings.push(format!(
            "event {seq} of call {call}, run {run}, is not what was written: it was edited or moved, or an event before it was removed"
        ));
    }
    let end = |row: &tokio_postgres::Row| {
        let last: Option<String> = row.try_get(3)?;
        let last = last.map_or_else(|| "it has no event".to_owned(), |last| format!("its last event says {last}"));
        let (call, run, status): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        Ok(format!("call {call}, run {run}, is {status}, but {last}"))
    };
    findings.extend(db.rows(LOST_ENDS, params![], end)?);
    let answer = |row: &tokio_postgres::Row| {
        let text = |column: usize| row.try_get::<_, String>(column);
        let optional = |column: usize| row.try_get::<_, Option<String>>(column);
        let (question, choice, by, at, run) = (text(0)?, text(1)?, text(4)?, text(5)?, text(7)?);
        let (proof, note, link) = (optional(2)?, optional(3)?, optional(6)?);
        let columns = (&*question, &*choice, proof.as_deref(), note.as_deref(), &*by, &*at);
        Ok(ua_store::answer_finding(columns, &run, link.as_deref()))
    };
    findings.extend(db.rows(ANSWERS, params![], answer)?.into_iter().flatten());
    let schema = "SELECT max(version) FROM refinery_schema_history";
    Ok(Health {
        db_uuid: db.database_id()?,
        schema: db.row(schema, params![], |row| Ok(row.try_get::<_, Option<i32>>(0)?))?.flatten().unwrap_or(0),
        server_version: text("SELECT current_setting('server_version')")?,
        bytes: db
            .row("SELECT pg_database_size(current_database())", params![], |row| Ok(row.try_get(0)?))?
            .unwrap_or(0),
        findings,
        warnings,
        forgotten: Vec::new(),
    })
}
