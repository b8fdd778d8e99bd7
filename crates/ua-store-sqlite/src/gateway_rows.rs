//! Sessions and arrivals of the gateway.

use rusqlite::{OptionalExtension as _, Row, params};
use ua_core::{RunId, Scope};
use ua_store::{ArrivalRecord, ArrivalsOf, CallRecord, RowRef, SessionRecord, SessionsOf, rules};

use crate::column::{Columns, opt_text, text};
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::call_record;

type DbResult<T> = Result<T, DbError>;

/// The project of a session.
pub(crate) const PROJECT: &str = "SELECT project FROM gateway_sessions WHERE run_id = ?1";
/// Calls in doubt of other families of a project.
pub(crate) const DOUBTS_BESIDE: &str = "SELECT c.* FROM gateway_sessions s CROSS JOIN tool_calls c ON c.root_run_id = s.run_id \
    WHERE (c.status = 'unknown' OR c.doubt IS NOT NULL) AND s.project = ?1 AND s.run_id <> ?2";
/// Calls of other families of a project with the same scope that are being sent. Others that are being sent, reads above all, stand in nobody's
/// way; and of reads nobody notes that they were answered, so that a look at what has no answer would take longer with each of them.
pub(crate) const RUNNING_BESIDE: &str = "SELECT c.* FROM gateway_sessions s CROSS JOIN tool_calls c ON c.root_run_id = s.run_id \
    WHERE c.side_effect_scope = ?3 AND c.status = 'running' AND c.doubt IS NULL AND s.project = ?1 AND s.run_id <> ?2";
/// Who asked for the same.
pub(crate) const SAME: &str =
    "SELECT * FROM gateway_arrivals WHERE project = ?1 AND raw_tool_name = ?2 AND args_hash = ?3";

impl Db<'_> {
    pub(crate) fn insert_session(&self, session: &SessionRecord) -> DbResult<()> {
        let sql = "INSERT INTO gateway_sessions (run_id, project, server, session_key, client, identity, reach, opened_at) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        let inserted = self.connection.prepare_cached(sql)?.execute(params![
            session.run_id.as_str(),
            session.project,
            session.server,
            session.session_key,
            session.client,
            session.identity,
            session.reach,
            text(&session.opened_at),
        ]);
        inserted.map_err(|error| DbError::or_exists(error, || RowRef::new("gateway_sessions", &session.run_id)))?;
        Ok(())
    }

    pub(crate) fn arrival(&self, id: &str) -> DbResult<Option<ArrivalRecord>> {
        self.row("SELECT * FROM gateway_arrivals WHERE arrival_id = ?1", [id], arrival_record)
    }

    pub(crate) fn insert_arrival(&self, arrival: &ArrivalRecord) -> DbResult<()> {
        let sql = "INSERT INTO gateway_arrivals (arrival_id, run_id, tool_call_id, client_call, rule, project, raw_tool_name, \
                   args_hash, arrived_at, answered_at, acknowledged_at, unread_until) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let inserted = self.connection.prepare_cached(sql)?.execute(params![
            arrival.arrival_id,
            arrival.run_id.as_str(),
            arrival.call_id.as_str(),
            arrival.client_call,
            arrival.rule,
            arrival.project,
            arrival.tool,
            text(&arrival.args_hash),
            text(&arrival.arrived_at),
            opt_text(arrival.answered_at.as_ref()),
            opt_text(arrival.acknowledged_at.as_ref()),
            opt_text(arrival.unread_until.as_ref()),
        ]);
        inserted.map_err(|error| DbError::or_exists(error, || RowRef::new("gateway_arrivals", &arrival.arrival_id)))?;
        Ok(())
    }

    pub(crate) fn update_arrival(&self, arrival: &ArrivalRecord) -> DbResult<()> {
        let sql = "UPDATE gateway_arrivals SET answered_at = ?2, acknowledged_at = ?3, unread_until = ?4 WHERE arrival_id = ?1";
        self.connection.prepare_cached(sql)?.execute(params![
            arrival.arrival_id,
            opt_text(arrival.answered_at.as_ref()),
            opt_text(arrival.acknowledged_at.as_ref()),
            opt_text(arrival.unread_until.as_ref()),
        ])?;
        Ok(())
    }

    pub(crate) fn sessions_of(&self, of: &SessionsOf) -> DbResult<Vec<SessionRecord>> {
        match of {
            SessionsOf::Run(run) => {
                let sql = "SELECT * FROM gateway_sessions WHERE run_id = ?1";
                self.rows(sql, [run.as_str()], session_record)
            }
            SessionsOf::Key { project, server, session_key } => {
                let sql = "SELECT * FROM gateway_sessions WHERE project = ?1 AND server = ?2 AND session_key = ?3";
                self.rows(sql, [project, server, session_key], session_record)
            }
            SessionsOf::Newest(limit) => {
                let sql = "SELECT * FROM gateway_sessions ORDER BY opened_at DESC, run_id DESC LIMIT ?1";
                self.rows(sql, [limit], session_record)
            }
        }
    }

    pub(crate) fn arrivals_of(&self, of: &ArrivalsOf) -> DbResult<Vec<ArrivalRecord>> {
        match of {
            ArrivalsOf::One(id) => Ok(self.arrival(id)?.into_iter().collect()),
            ArrivalsOf::Call(call) => {
                let sql = "SELECT * FROM gateway_arrivals WHERE tool_call_id = ?1 ORDER BY arrived_at, arrival_id";
                self.rows(sql, [call.as_str()], arrival_record)
            }
            ArrivalsOf::Same(same) => {
                let mut all = Vec::new();
                for (project, tool, args_hash) in same.each() {
                    all.append(&mut self.rows(SAME, params![project, tool, text(args_hash)], arrival_record)?);
                }
                all.sort_by(|a, b| (a.arrived_at, &a.arrival_id).cmp(&(b.arrived_at, &b.arrival_id)));
                Ok(all)
            }
            ArrivalsOf::NewestHeardOf(run) => {
                let sql = "SELECT a.* FROM gateway_arrivals a JOIN tool_calls c ON c.tool_call_id = a.tool_call_id \
                           WHERE a.run_id = ?1 AND a.rule = ?2 AND a.acknowledged_at IS NOT NULL \
                           AND c.side_effect_class <> 'read_only' AND c.attempt > 0 \
                           ORDER BY a.arrived_at DESC, a.arrival_id DESC LIMIT 1";
                self.rows(sql, [run.as_str(), ArrivalRecord::NEW], arrival_record)
            }
            ArrivalsOf::Session(run) => {
                let sql = "SELECT * FROM gateway_arrivals WHERE run_id = ?1 UNION \
                           SELECT a.* FROM tool_calls c JOIN gateway_arrivals a ON a.tool_call_id = c.tool_call_id WHERE c.run_id = ?1 \
                           ORDER BY arrived_at, arrival_id";
                self.rows(sql, [run.as_str()], arrival_record)
            }
        }
    }

    /// Calls of other families of the project of `call`, if it is a gateway's, of which nobody knows what came of them, and that can stand in the
    /// way of an effect `scope`.
    pub(crate) fn open_in_project(&self, call: &CallRecord, scope: Option<&Scope>) -> DbResult<Vec<CallRecord>> {
        let Some(project) = self.project_of(&call.run_id)? else { return Ok(Vec::new()) };
        let beside = params![project, call.root_run_id.as_str()];
        let mut open = self.rows(DOUBTS_BESIDE, beside, call_record)?;
        if let Some(scope) = scope {
            let sent = params![project, call.root_run_id.as_str(), scope.as_str()];
            open.extend(self.rows(RUNNING_BESIDE, sent, call_record)?);
        }
        open.retain(|other| rules::reaches_project(call, other));
        open.sort_by_key(|call| (call.created_at, call.run_id.clone(), call.position));
        Ok(open)
    }

    fn project_of(&self, run: &RunId) -> DbResult<Option<String>> {
        let mut statement = self.connection.prepare_cached(PROJECT)?;
        Ok(statement.query_row([run.as_str()], |row| row.get(0)).optional()?)
    }
}

pub(crate) fn session_record(row: &Row<'_>) -> DbResult<SessionRecord> {
    let column = Columns::new(row, "gateway_sessions", "run_id");
    Ok(SessionRecord {
        run_id: column.parsed("run_id")?,
        project: column.get("project")?,
        server: column.get("server")?,
        session_key: column.get("session_key")?,
        client: column.get("client")?,
        identity: column.get("identity")?,
        reach: column.get("reach")?,
        opened_at: column.at("opened_at")?,
    })
}

pub(crate) fn arrival_record(row: &Row<'_>) -> DbResult<ArrivalRecord> {
    let column = Columns::new(row, "gateway_arrivals", "arrival_id");
    Ok(ArrivalRecord {
        arrival_id: column.get("arrival_id")?,
        run_id: column.parsed("run_id")?,
        call_id: column.parsed("tool_call_id")?,
        client_call: column.get("client_call")?,
        rule: column.get("rule")?,
        project: column.get("project")?,
        tool: column.get("raw_tool_name")?,
        args_hash: column.sha256("args_hash")?,
        arrived_at: column.at("arrived_at")?,
        answered_at: column.opt_at("answered_at")?,
        acknowledged_at: column.opt_at("acknowledged_at")?,
        unread_until: column.opt_at("unread_until")?,
    })
}
