//! A run as its next owner needs it, read without reading everything: what is left out is counted where it lies.
//!
//! What belongs to it is defined over whole records (`ua_store::RunRecords::leave_out`); the differential test of the stores compares the two.

use std::collections::BTreeSet;

use rusqlite::{Row, params};
use ua_core::{CallId, Message, Money, Origin, RunId, ToolCharge, Usage};
use ua_store::{
    CallRecord, Keep, LeftOut, MessageRecord, RequestRecord, RequestStatus, RequestSum, RunRecord, RunRecords,
    StepRecord, TELLING_TOKENS, first_kept, message_bytes, step_of,
};

use crate::column::{Columns, int};
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::status_of;
use crate::run_rows::{message_record, request_record, turn_record};

type DbResult<T> = Result<T, DbError>;

/// How large a message is: the length of its JSON, or, where a blob is to be put into its place, that JSON.
const SIZE: &str = "octet_length(message_json) AS bytes, \
                    CASE WHEN role = 'user' AND instr(message_json, '\"blob_id\":') > 0 THEN message_json END AS with_blobs";

/// What lies before the first turn that is kept whole.
#[derive(Default)]
struct Before {
    /// The sizes of messages that are left out, by their places.
    sizes: Vec<(u64, u64)>,
    /// The place of the message with which the current phase or iteration began, when it lies here.
    phase: Option<u64>,
    /// Since which turn the context of the current iteration is.
    context: u32,
    /// The place of the last message.
    last: u64,
}

impl Db<'_> {
    /// A run without what only counts.
    pub(crate) fn load_standing(&self, id: &RunId, keep: Keep) -> DbResult<RunRecords> {
        let run = self.run(id)?;
        if run.forked_at.is_some() {
            return self.load(id);
        }
        let before = self.first_kept(&run, keep)?;
        if before == 0 {
            return self.load(id);
        }
        let steps = self.steps_of(id)?;
        let (messages, behind) = self.messages_behind(id, before)?;
        let mut left = LeftOut {
            before,
            message_bytes: behind.sizes.into_iter().map(|(_, bytes)| bytes).collect(),
            ..LeftOut::default()
        };
        let calls = self.standing_calls(id, &steps, behind.context, &mut left)?;
        let (mut attempts, mut receipts) = (Vec::new(), Vec::new());
        for call in calls.iter().filter(|call| call.attempt > 0 || call.position.turn >= before) {
            attempts.extend(self.attempts_of(&call.call_id)?);
            receipts.extend(self.receipts_of_call(&call.call_id)?);
        }
        let requests = self.standing_requests(id, &steps, &mut left)?;
        let turns = "SELECT * FROM turns WHERE run_id = ?1 AND turn >= ?2 ORDER BY turn";
        Ok(RunRecords {
            lineage: self.lineage_of(&run)?,
            turns: self.rows(turns, params![id.as_str(), before], turn_record)?,
            messages,
            calls,
            attempts,
            receipts,
            questions: self.questions_of(id)?,
            overrides: self.overrides_of(id)?,
            checkpoints: self.standing_checkpoints(id)?,
            requests,
            run,
            steps,
            left_out: left,
        })
    }

    /// The first turn that is kept whole; 0 when all are.
    fn first_kept(&self, run: &RunRecord, keep: Keep) -> DbResult<u32> {
        let id = run.run_id.as_str();
        let sql = "SELECT turn FROM tool_calls WHERE run_id = ?1 ORDER BY turn DESC, ordinal DESC LIMIT ?2";
        let calls: Vec<u32> = self.rows(sql, params![id, keep.calls], |row| Ok(row.get(0)?))?;
        let sql = format!("SELECT turn, {SIZE} FROM messages WHERE run_id = ?1 ORDER BY seq DESC");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let sizes = statement.query_and_then([id], |row| Ok::<_, DbError>((row.get(0)?, size_of(row)?)))?;
        // The first that cannot be read is what the whole is about.
        let mut broken = None;
        let readable = sizes.map_while(|size| size.map_err(|error| broken = Some(error)).ok());
        let first = first_kept(keep, run.turn_index, calls, readable);
        broken.map_or(Ok(first), Err)
    }

    /// The messages that are kept, and what is known of those before them.
    fn messages_behind(&self, id: &RunId, before: u32) -> DbResult<(Vec<MessageRecord>, Before)> {
        let mut behind = Before { last: 1, ..Before::default() };
        let mut begun = None;
        let sql = format!(
            "SELECT seq, turn, origin, {SIZE} FROM messages WHERE run_id = ?1 AND seq > 1 AND turn < ?2 ORDER BY seq"
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![id.as_str(), before])?;
        while let Some(row) = rows.next()? {
            let column = Columns::new(row, "messages behind", "seq");
            let (seq, turn): (u64, u32) = (column.int("seq")?, column.int("turn")?);
            let origin: Origin = column.stored_name("origin")?;
            behind.last = seq;
            if matches!(origin, Origin::Phase | Origin::Iteration) {
                behind.phase = Some(seq);
            }
            behind.sizes.push((seq, size_of(row)?));
            if origin == Origin::Iteration {
                begun = Some((seq, turn));
                behind.sizes.clear();
            }
        }
        drop(rows);
        let sql = "SELECT * FROM messages WHERE run_id = ?1 AND (seq = 1 OR seq > ?2) ORDER BY seq";
        let mut kept = self.rows(sql, params![id.as_str(), int(behind.last)], message_record)?;
        let later = |is: fn(Origin) -> bool| {
            kept.iter().skip(1).rev().find(|record| is(record.message.origin)).map(|record| (record.seq, record.turn))
        };
        if later(|origin| matches!(origin, Origin::Phase | Origin::Iteration)).is_some() {
            behind.phase = None;
        }
        begun = later(|origin| origin == Origin::Iteration).or(begun);
        behind.context = begun.map_or(0, |(_, turn)| turn + 1);
        behind.sizes.retain(|(seq, _)| Some(*seq) != behind.phase && begun.is_none_or(|(begun, _)| *seq > begun));
        if let Some(phase) = behind.phase {
            let sql = "SELECT * FROM messages WHERE run_id = ?1 AND seq = ?2";
            let phase = self.rows(sql, params![id.as_str(), int(phase)], message_record)?;
            kept.splice(1..1, phase);
        }
        Ok((kept, behind))
    }

    /// The calls that are kept, by position; the others are counted.
    fn standing_calls(
        &self,
        id: &RunId,
        steps: &[StepRecord],
        context: u32,
        left: &mut LeftOut,
    ) -> DbResult<Vec<CallRecord>> {
        let paying = ToolCharge::TOOLS.map(|tool| format!("'{tool}'")).join(", ");
        let sql = format!(
            "SELECT tool_call_id, turn, tool_use_id, status, failure_kind, \
             (side_effect_class <> 'read_only' OR status IN ('prepared', 'running', 'unknown') \
             OR (tool_namespace = 'local' AND ((tool_server = 'ua_agents' AND tool_name = 'task') \
             OR (tool_server = 'ua' AND tool_name IN ({paying}))))) AS still_counts \
             FROM tool_calls WHERE run_id = ?1 AND turn < ?2 ORDER BY turn, ordinal"
        );
        let mut kept: Vec<CallId> = Vec::new();
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![id.as_str(), left.before])?;
        while let Some(row) = rows.next()? {
            let column = Columns::new(row, "calls behind", "tool_call_id");
            let turn: u32 = column.int("turn")?;
            if turn >= context {
                left.tool_uses.push(column.get("tool_use_id")?);
            }
            if column.get("still_counts")? {
                kept.push(column.parsed("tool_call_id")?);
                continue;
            }
            left.count(step_of(steps, turn), status_of(&column)?);
        }
        drop(rows);
        let mut calls = kept.iter().map(|call| self.call(call)).collect::<DbResult<Vec<_>>>()?;
        calls.extend(self.calls_from(id, left.before)?);
        Ok(calls)
    }

    /// The requests that are kept; the others are added up.
    fn standing_requests(&self, id: &RunId, steps: &[StepRecord], left: &mut LeftOut) -> DbResult<Vec<RequestRecord>> {
        let step = step_in_sql(steps);
        let sql = format!(
            "SELECT {step} AS step, provider, model, status, currency, count(*) AS requests, sum(input_tokens) AS input, \
             sum(output_tokens) AS output, sum(cache_read_tokens) AS cache_read, sum(cache_write_tokens) AS cache_write, sum(cost_nanos) AS cost, \
             sum(cost_nanos IS NULL AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens > 0) AS unpriced, \
             sum(status = 'actual' AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens \
             > estimated_tokens + reserved_output_tokens) AS overruns, sum(estimated_tokens) AS estimated, \
             max(CASE WHEN status = 'actual' AND estimated_tokens >= {TELLING_TOKENS} \
             THEN ((input_tokens + cache_read_tokens + cache_write_tokens) * 1000 + estimated_tokens - 1) / estimated_tokens \
             ELSE 0 END) AS counted_as \
             FROM usage WHERE run_id = ?1 AND turn < ?2 GROUP BY 1, provider, model, status, currency ORDER BY min(request_id)"
        );
        let mut has_open = false;
        let sums = self.rows(&sql, params![id.as_str(), left.before], |row| {
            let sum = request_sum(row)?;
            has_open |= sum.status == RequestStatus::Reserved;
            Ok(sum)
        })?;
        left.requests = sums.into_iter().filter(|sum| sum.status != RequestStatus::Reserved).collect();
        let mut kept = if has_open { self.reserved_requests(id)? } else { Vec::new() };
        let early: BTreeSet<u64> = kept.iter().map(|request| request.request_id).collect();
        // Newest first, up to the first that is left out: a later request is never for an earlier turn.
        let mut statement =
            self.connection.prepare_cached("SELECT * FROM usage WHERE run_id = ?1 ORDER BY request_id DESC")?;
        for request in statement.query_and_then([id.as_str()], request_record)? {
            let request = request?;
            if request.turn < left.before {
                break;
            }
            if !early.contains(&request.request_id) {
                kept.push(request);
            }
        }
        kept.sort_by_key(|request| request.request_id);
        Ok(kept)
    }
}

/// How large the message of a row is.
fn size_of(row: &Row<'_>) -> DbResult<u64> {
    let column = Columns::new(row, "sizes", "bytes");
    match column.get::<Option<String>>("with_blobs")? {
        None => column.int("bytes"),
        Some(_) => Ok(message_bytes(&column.json::<Message>("with_blobs")?)),
    }
}

/// The first turn of the step that a turn belongs to, as an expression.
fn step_in_sql(steps: &[StepRecord]) -> String {
    let mut firsts: Vec<u32> = steps.iter().map(|step| step.first_turn).collect();
    firsts.sort_unstable_by(|one, other| other.cmp(one));
    firsts.dedup();
    let mut cases = String::new();
    for first in firsts {
        cases.push_str(&format!("WHEN turn >= {first} THEN {first} "));
    }
    if cases.is_empty() { "0".to_owned() } else { format!("CASE {cases}ELSE 0 END") }
}

fn request_sum(row: &Row<'_>) -> DbResult<RequestSum> {
    let column = Columns::new(row, "sums of usage", "step");
    let cost = match (column.opt_int("cost")?, column.opt_word("currency")?) {
        (Some(nanos), Some(currency)) => Some(Money::from_nanos(nanos, currency)),
        (_, _) => None,
    };
    Ok(RequestSum {
        first_turn: column.int("step")?,
        provider: column.get("provider")?,
        model: column.get("model")?,
        status: column.stored_name("status")?,
        count: column.int("requests")?,
        usage: Usage {
            input_tokens: column.int("input")?,
            output_tokens: column.int("output")?,
            cache_read_tokens: column.int("cache_read")?,
            cache_write_tokens: column.int("cache_write")?,
        },
        cost,
        unpriced: column.int("unpriced")?,
        overruns: column.int("overruns")?,
        estimated_tokens: column.int("estimated")?,
        counted_as: column.int("counted_as")?,
    })
}
