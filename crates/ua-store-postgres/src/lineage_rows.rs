//! Rows that a run shares with others of its lineage: forks store none of them again, reads follow the parents.

use ua_core::{CallId, RunId};
use ua_store::{CallRecord, LineageRecords, MessageRecord, RowRef, RunRecord, StoreError, rules};

use crate::column::int;
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::{call_record, receipt_record};
use crate::run_rows::{message_record, request_record, run_record, turn_record};
use crate::value::params;

type DbResult<T> = Result<T, DbError>;

/// The runs of a family.
pub(crate) const FAMILY: &str = "SELECT * FROM runs WHERE root_run_id = $1 ORDER BY seq";
/// What a run sent behind a turn.
const KIN: &str = "SELECT * FROM tool_calls WHERE run_id = $1 AND turn > $2 AND attempt > 0 \
                   AND side_effect_class <> 'read_only' ORDER BY turn, ordinal";
impl Db {
    /// Refuses a job key that a run of another lineage has.
    pub(crate) fn check_job_key(&self, run: &RunRecord) -> DbResult<()> {
        if let Some(key) = &run.job_key
            && let Some(other) = self.run_of_job_key(key, Some(&run.root_run_id))?
        {
            let row = RowRef::new("runs", format!("{} of job key {key}", other.run_id));
            return Err(StoreError::Exists { row }.into());
        }
        Ok(())
    }

    pub(crate) fn children_of(&self, run: &RunId) -> DbResult<Vec<RunRecord>> {
        self.rows("SELECT * FROM runs WHERE parent_run_id = $1 ORDER BY seq", params![run.as_str()], run_record)
    }

    /// All child runs below a run, parents before their children.
    pub(crate) fn runs_below(&self, run: &RunId) -> DbResult<Vec<RunRecord>> {
        rules::runs_below(run, |id| self.children_of(id))
    }

    /// The messages of a run of turns up to `last_turn`, in order: its prompt, what it shares, its own.
    pub(crate) fn whole_history(&self, run: &RunRecord, last_turn: u32) -> DbResult<Vec<MessageRecord>> {
        let mut messages = self.messages_of(&run.run_id, last_turn)?;
        for part in rules::shared_parts(run, |id| self.run(id))? {
            let sql = "SELECT * FROM messages WHERE run_id = $1 AND seq BETWEEN 2 AND $2 AND turn <= $3 ORDER BY seq";
            messages.extend(self.rows(
                sql,
                params![part.run_id.as_str(), int(part.upto.seq), last_turn],
                message_record,
            )?);
        }
        messages.sort_by_key(|message| message.seq);
        Ok(messages)
    }

    /// Where turn `turn` of the run's history ends: the place of its last message, and the provider's conversation id of it.
    pub(crate) fn end_of_turn(&self, run: &RunRecord, turn: u32) -> DbResult<(u64, Option<String>)> {
        let mut parts: Vec<(RunId, u64, u32)> = vec![(run.run_id.clone(), u64::MAX >> 1, u32::MAX)];
        let shared = rules::shared_parts(run, |id| self.run(id))?;
        parts.extend(shared.into_iter().map(|part| (part.run_id, part.upto.seq, part.upto.turn)));
        let (mut last, mut session) = (1, None);
        for (id, last_seq, last_turn) in parts {
            let sql = "SELECT coalesce((SELECT seq FROM messages WHERE run_id = $1 AND seq <= $2 AND turn <= $3 \
                       AND origin IN ('prompt', 'model', 'tools') ORDER BY seq DESC LIMIT 1), 0)";
            last = last.max(self.number(sql, params![id.as_str(), int(last_seq), turn])?);
            let sql = "SELECT * FROM turns WHERE run_id = $1 AND turn = $2 AND turn <= $3";
            if let Some(found) = self.row(sql, params![id.as_str(), turn, last_turn], turn_record)? {
                session = found.reply.response_id;
            }
        }
        Ok((last, session))
    }

    /// What other trees of the family may have done outside the history that the run shares with them.
    pub(crate) fn effects_elsewhere(&self, run: &RunRecord) -> DbResult<Vec<CallRecord>> {
        let family = self.rows(FAMILY, params![run.root_run_id.as_str()], run_record)?;
        if family.len() < 2 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for kin in rules::kin_of(run, &family, |task| Ok::<_, DbError>(self.call(task)?.position.turn))? {
            let mut calls = self.rows(KIN, params![kin.run_id.as_str(), kin.behind], call_record)?;
            calls.retain(rules::is_effect_elsewhere);
            found.extend(calls);
        }
        Ok(found)
    }

    pub(crate) fn lineage_of(&self, run: &RunRecord) -> DbResult<LineageRecords> {
        let mut lineage = LineageRecords::default();
        let parts = rules::shared_parts(run, |id| self.run(id))?;
        for part in &parts {
            let (id, turn) = (part.run_id.as_str(), part.upto.turn);
            let turns = "SELECT * FROM turns WHERE run_id = $1 AND turn <= $2 ORDER BY turn";
            lineage.turns.extend(self.rows(turns, params![id, turn], turn_record)?);
            let calls = "SELECT * FROM tool_calls WHERE run_id = $1 AND turn <= $2 ORDER BY turn, ordinal";
            lineage.calls.extend(self.rows(calls, params![id, turn], call_record)?);
            let receipts = "SELECT r.* FROM tool_calls c JOIN tool_receipts r ON r.tool_call_id = c.tool_call_id \
                            WHERE c.run_id = $1 AND c.turn <= $2 ORDER BY c.turn, c.ordinal, r.receipt_seq";
            lineage.receipts.extend(self.rows(receipts, params![id, turn], receipt_record)?);
        }
        for task in lineage.calls.iter().filter(|call| call.name.is_task()) {
            let child = RunId::of_task(&task.call_id);
            let below = self.runs_below(&child)?.into_iter().map(|run| run.run_id);
            for agent in std::iter::once(child.clone()).chain(below) {
                let calls = self.calls_of(&agent, None)?.into_iter();
                lineage.shared_effects.extend(calls.filter(rules::is_shared_effect));
            }
        }
        lineage.elsewhere = self.effects_elsewhere(run)?;
        for call in lineage.shared_effects.iter().chain(&lineage.elsewhere).map(|call| &call.call_id) {
            let receipts = self.receipts_of_call(call)?;
            lineage.receipts.extend(receipts);
        }
        for child in self.runs_below(&run.run_id)? {
            let id = child.run_id.as_str();
            let calls = self.rows(
                "SELECT * FROM tool_calls WHERE run_id = $1 ORDER BY turn, ordinal",
                params![id],
                call_record,
            )?;
            let sql = "SELECT * FROM usage WHERE run_id = $1 ORDER BY request_id";
            let requests = self.rows(sql, params![id], request_record)?;
            // Those that may have one: PostgreSQL takes nothing out of JSON that has an escaped U+0000 anywhere, as answers of tools may.
            let sql = "SELECT r.* FROM tool_receipts r JOIN tool_calls c ON c.tool_call_id = r.tool_call_id \
                       WHERE c.run_id = $1 AND strpos(r.settlement_json, '\"charge\":') > 0 \
                       ORDER BY c.turn, c.ordinal, r.receipt_seq";
            let receipts = self.rows(sql, params![id], receipt_record)?;
            let charges =
                receipts.into_iter().filter_map(|receipt| receipt.settlement?.charge).map(|charge| *charge).collect();
            lineage.sub_agents.extend(rules::sub_agent(&child, calls, requests, charges));
        }
        let effects = lineage.sub_agents.iter().flat_map(|child| &child.effects).map(|call| call.call_id.clone());
        for call in effects.collect::<Vec<_>>() {
            lineage.receipts.extend(self.receipts_of_call(&call)?);
        }
        Ok(lineage)
    }

    fn receipts_of_call(&self, call: &CallId) -> DbResult<Vec<ua_store::ReceiptRecord>> {
        let sql = "SELECT * FROM tool_receipts WHERE tool_call_id = $1 ORDER BY receipt_seq";
        self.rows(sql, params![call.as_str()], receipt_record)
    }
}
