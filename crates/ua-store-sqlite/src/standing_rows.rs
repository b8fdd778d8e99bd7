//! A run as its next owner needs it, read without reading everything: what is left out is counted where it lies.
//!
//! What belongs to it is defined over whole records (`ua_store::RunRecords::leave_out`); the differential test of the stores compares the two.

use std::collections::BTreeSet;

use rusqlite::types::ValueRef;
use rusqlite::{Row, params};
use ua_core::{CallId, CallStatus, Message, Money, Origin, RunId, ToolCharge, Usage};
use ua_store::rows::Written;
use ua_store::{
    CallSum, CheckpointKind, CheckpointRecord, Keep, LeftOut, MessageRecord, PLAIN_SCALE, RequestRecord, RequestStatus,
    RequestSum, RunRecord, RunRecords, SCALED_BY, StepRecord, TELLING_TOKENS, first_kept, message_bytes, step_of,
};

use crate::column::{Columns, int};
use crate::db::Db;
use crate::error::DbError;
use crate::ledger_rows::status_of;
use crate::places::of_run;
use crate::readers::Pool;
use crate::run_rows::{Placed, message_record, request_record, turn_record};

type DbResult<T> = Result<T, DbError>;

/// How large a message is: the length of its JSON, or, where a blob is to be put into its place, that JSON.
const SIZE: &str = "octet_length(message_json) AS bytes, \
                    CASE WHEN role = 'user' AND instr(message_json, '\"blob_id\":') > 0 THEN message_json END AS with_blobs";

/// Behind as many turns something is read on a thread of its own; with debug assertions, which every test has, always.
const WORTH_A_THREAD: u32 = if cfg!(debug_assertions) { 0 } else { 500 };

/// How many readings of a run what was found behind it is for.
const READINGS: u8 = 3;

/// What lies before the first turn that is kept whole, as it was found.
///
/// A resume reads how its run stands three times: to say what was used of its budgets, when it is put in order, and for what the model is told, since
/// people and the runs beside it do not wait. What lies here cannot have changed in between, so the later readings take it from the first
/// ([`Self::still_holds`]).
#[derive(Debug)]
pub(crate) struct Behind {
    run: RunId,
    /// The first turn that is kept whole.
    before: u32,
    /// The turns with which steps began: sums are told apart by them.
    steps: Vec<u32>,
    messages: MessagesBehind,
    calls: CallsBehind,
    requests: Vec<RequestSum>,
    /// The markers that still count, up to a place.
    corpora: Vec<CheckpointRecord>,
    corpora_to: i64,
    /// Whether a call among it may still come to something else.
    has_open_call: bool,
    /// Whether a request may.
    has_open_request: bool,
    /// How many readings may still take it.
    readings: u8,
}

impl Behind {
    /// Whether this is what lies before turn `before` of a run still. What has been written of earlier turns stays as it is: messages, requests
    /// that are closed, calls that are settled. Only a person's correction changes a call, and says so in the run.
    fn still_holds(&self, run: &RunRecord, before: u32, steps: &[StepRecord]) -> bool {
        self.run == run.run_id
            && self.before == before
            && self.is_closed(run)
            && steps.iter().map(|step| step.first_turn).eq(self.steps.iter().copied())
    }

    /// Whether nothing of it can come to something else.
    fn is_closed(&self, run: &RunRecord) -> bool {
        !self.has_open_call && !self.has_open_request && run.corrected_at.is_none()
    }
}

/// Messages of earlier turns, but for the first of all.
#[derive(Debug, Clone, Default)]
struct MessagesBehind {
    /// Their sizes, by their places.
    sizes: Vec<(u64, u64)>,
    /// The place of the last one with which a phase or an iteration began.
    phase: Option<u64>,
    /// Place and turn of the last one with which an iteration began.
    iteration: Option<(u64, u32)>,
    /// The place of the last message.
    last: u64,
}

/// Calls of earlier turns.
#[derive(Debug, Default)]
struct CallsBehind {
    /// Those that still count, by position.
    kept: Vec<CallId>,
    /// The tool uses of all of them, by turn.
    tool_uses: Vec<(u32, String)>,
    /// The others, counted.
    sums: Vec<CallSum>,
}

impl Db<'_> {
    /// A run without what only counts. `known` is what was found behind such a run when one was read last, and is put there. `pool` has other
    /// connections to the same database.
    pub(crate) fn load_standing(
        &self,
        id: &RunId,
        keep: Keep,
        known: &mut Option<Behind>,
        pool: &Pool,
    ) -> DbResult<RunRecords> {
        let known_before = known.take();
        let run = self.run(id)?;
        if run.forked_at.is_some() {
            return self.load(id);
        }
        let before = self.first_kept(&run, keep)?;
        if before == 0 {
            return self.load(id);
        }
        let steps = self.steps_of(id)?;
        let mut behind = match known_before.filter(|behind| behind.still_holds(&run, before, &steps)) {
            Some(behind) => behind,
            None => self.behind(&run, before, &steps, pool)?,
        };
        let Kept { messages, context, message_bytes } = self.messages_kept(id, behind.messages.clone())?;
        let tool_uses = behind.calls.tool_uses.iter().filter(|(turn, _)| *turn >= context);
        let left_out = LeftOut {
            before,
            message_bytes,
            tool_uses: tool_uses.map(|(_, tool_use)| tool_use.clone()).collect(),
            calls: behind.calls.sums.clone(),
            requests: behind.requests.clone(),
        };
        let mut calls = behind.calls.kept.iter().map(|call| self.call(call)).collect::<DbResult<Vec<_>>>()?;
        calls.extend(self.calls_from(id, before)?);
        let (mut attempts, mut receipts) = (Vec::new(), Vec::new());
        for call in calls.iter().filter(|call| call.attempt > 0 || call.position.turn >= before) {
            attempts.extend(self.attempts_of(&call.call_id)?);
            receipts.extend(self.receipts_of_call(&call.call_id)?);
        }
        let Placed { corpora, newest } = self.standing_checkpoints(id, behind.corpora_to)?;
        behind.corpora_to = newest.as_ref().map_or(0, |(place, _)| *place);
        behind.corpora.extend(corpora);
        // One that is a corpus is among those.
        let newest = newest.map(|(_, marker)| marker).filter(|marker| marker.kind != CheckpointKind::CorpusCache);
        let checkpoints = behind.corpora.iter().cloned().chain(newest).collect();
        let requests = self.requests_kept(id, before, behind.has_open_request)?;
        // For those that follow: nobody needs it another time, and of a long run it is large.
        behind.readings -= 1;
        if behind.readings > 0 && behind.is_closed(&run) {
            *known = Some(behind);
        }
        let turns = concat!("SELECT t.*", of_run!("turns", "?2", "268435455"), " ORDER BY t.place");
        Ok(RunRecords {
            lineage: self.lineage_of(&run)?,
            turns: self.rows(turns, params![id.as_str(), before], turn_record)?,
            messages,
            calls,
            attempts,
            receipts,
            questions: self.questions_of(id)?,
            overrides: self.overrides_of(id)?,
            checkpoints,
            requests,
            run,
            steps,
            left_out,
        })
    }

    /// Goes through what lies before turn `before`: through calls on this connection, and through messages and requests beside it, which takes
    /// about as long.
    fn behind(&self, run: &RunRecord, before: u32, steps: &[StepRecord], pool: &Pool) -> DbResult<Behind> {
        let id = &run.run_id;
        let stands = self.stands(id)?;
        let rest =
            |db: &Db<'_>| DbResult::Ok((db.requests_behind(id, before, steps)?, db.messages_behind(id, before)?));
        let (calls, beside) = std::thread::scope(|scope| {
            // What was read there counts if the run stands there as it does here.
            let beside = || pool.snapshot(|db| if db.stands(id)? == stands { rest(db).map(Some) } else { Ok(None) });
            let beside = (before > WORTH_A_THREAD).then(|| scope.spawn(beside));
            let calls = self.calls_behind(id, before, steps);
            // What went wrong there is met here again.
            (calls, beside.and_then(|beside| beside.join().ok()?.ok()?))
        });
        let (calls, has_open_call) = calls?;
        let ((requests, has_open_request), messages) = beside.map_or_else(|| rest(self), Ok)?;
        Ok(Behind {
            run: id.clone(),
            before,
            steps: steps.iter().map(|step| step.first_turn).collect(),
            messages,
            calls,
            requests,
            corpora: Vec::new(),
            corpora_to: 0,
            has_open_call,
            has_open_request,
            readings: READINGS,
        })
    }

    /// What every write of the run's owner, and every word of a person, makes another.
    fn stands(&self, id: &RunId) -> DbResult<(RunRecord, Written)> {
        Ok((self.run(id)?, self.written(id)?))
    }

    /// The first turn that is kept whole; 0 when all are.
    fn first_kept(&self, run: &RunRecord, keep: Keep) -> DbResult<u32> {
        let id = run.run_id.as_str();
        let sql = "SELECT turn FROM tool_calls WHERE run_id = ?1 ORDER BY turn DESC, ordinal DESC LIMIT ?2";
        let calls: Vec<u32> = self.rows(sql, params![id, keep.calls], |row| Ok(row.get(0)?))?;
        let sql = format!("SELECT t.turn, {SIZE}{} ORDER BY t.place DESC", of_run!("messages"));
        let mut statement = self.connection.prepare_cached(&sql)?;
        let sizes = statement.query_and_then([id], |row| Ok::<_, DbError>((row.get(0)?, size_of(row)?)))?;
        // The first that cannot be read is what the whole is about.
        let mut broken = None;
        let readable = sizes.map_while(|size| size.map_err(|error| broken = Some(error)).ok());
        let first = first_kept(keep, run.turn_index, calls, readable);
        broken.map_or(Ok(first), Err)
    }

    /// What is known of the messages before turn `before`, but for the first of all.
    fn messages_behind(&self, id: &RunId, before: u32) -> DbResult<MessagesBehind> {
        let mut behind = MessagesBehind { last: 1, ..MessagesBehind::default() };
        let mut origins = Words::default();
        let sql = format!(
            "SELECT t.seq, t.turn, t.origin, {SIZE}{} AND t.turn < ?2 ORDER BY t.place",
            of_run!("messages", "2", "268435455")
        );
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![id.as_str(), before])?;
        while let Some(row) = rows.next()? {
            // By their places: of a long run this is asked thousands of times.
            let column = || Columns::new(row, "messages behind", "seq");
            let seq = number(row, 0).map_or_else(|| column().int("seq"), Ok)?;
            let turn = number(row, 1).and_then(|turn| u32::try_from(turn).ok());
            let turn = turn.map_or_else(|| column().int("turn"), Ok)?;
            let origin: Origin = origins.of(word(row, 2), || column().stored_name("origin"))?;
            let size = match number(row, 3) {
                Some(bytes) if matches!(row.get_ref(4), Ok(ValueRef::Null)) => bytes,
                _ => size_of(row)?,
            };
            behind.last = seq;
            behind.sizes.push((seq, size));
            if matches!(origin, Origin::Phase | Origin::Iteration) {
                behind.phase = Some(seq);
            }
            if origin == Origin::Iteration {
                behind.iteration = Some((seq, turn));
                behind.sizes.clear();
            }
        }
        Ok(behind)
    }

    /// The messages that are kept, and what those before them mean to a request.
    fn messages_kept(&self, id: &RunId, behind: MessagesBehind) -> DbResult<Kept> {
        let MessagesBehind { mut sizes, mut phase, iteration, last } = behind;
        let sql = concat!("SELECT t.*", of_run!("messages", "?2", "?3"), " ORDER BY t.place");
        let mut kept = self.rows(sql, params![id.as_str(), 1, 1], message_record)?;
        kept.extend(self.rows(sql, params![id.as_str(), int(last + 1), i64::MAX], message_record)?);
        let later = |is: fn(Origin) -> bool| {
            kept.iter().skip(1).rev().find(|record| is(record.message.origin)).map(|record| (record.seq, record.turn))
        };
        if later(|origin| matches!(origin, Origin::Phase | Origin::Iteration)).is_some() {
            phase = None;
        }
        let begun = later(|origin| origin == Origin::Iteration).or(iteration);
        let context = begun.map_or(0, |(_, turn)| turn + 1);
        sizes.retain(|(seq, _)| Some(*seq) != phase && begun.is_none_or(|(begun, _)| *seq > begun));
        if let Some(phase) = phase {
            let phase = self.rows(sql, params![id.as_str(), int(phase), int(phase)], message_record)?;
            kept.splice(1..1, phase);
        }
        Ok(Kept { messages: kept, context, message_bytes: sizes.into_iter().map(|(_, bytes)| bytes).collect() })
    }

    /// The calls before turn `before`, and whether one of them is open.
    fn calls_behind(&self, id: &RunId, before: u32, steps: &[StepRecord]) -> DbResult<(CallsBehind, bool)> {
        let paying = ToolCharge::TOOLS.map(|tool| format!("'{tool}'")).join(", ");
        let sql = format!(
            "SELECT tool_call_id, turn, tool_use_id, status, failure_kind, \
             (side_effect_class <> 'read_only' OR status IN ('prepared', 'running', 'unknown') \
             OR (tool_namespace = 'local' AND ((tool_server = 'ua_agents' AND tool_name = 'task') \
             OR (tool_server = 'ua' AND tool_name IN ({paying}))))) AS still_counts \
             FROM tool_calls WHERE run_id = ?1 AND turn < ?2 ORDER BY turn, ordinal"
        );
        let (mut behind, mut counted, mut is_open) = (CallsBehind::default(), LeftOut::default(), false);
        let mut statuses = Words::default();
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![id.as_str(), before])?;
        while let Some(row) = rows.next()? {
            let column = || Columns::new(row, "calls behind", "tool_call_id");
            let turn = number(row, 1).and_then(|turn| u32::try_from(turn).ok());
            let turn: u32 = turn.map_or_else(|| column().int("turn"), Ok)?;
            behind.tool_uses.push((turn, row.get(2)?));
            // Which of the two kinds of failure it was is no word of its own; everything else is.
            let plain = word(row, 3).filter(|_| matches!(row.get_ref(4), Ok(ValueRef::Null)));
            let status: CallStatus = statuses.of(plain, || status_of(&column()))?;
            is_open |= !status.is_settled();
            if number(row, 5) == Some(0) {
                counted.count(step_of(steps, turn), status);
            } else {
                behind.kept.push(column().parsed("tool_call_id")?);
            }
        }
        behind.sums = counted.calls;
        Ok((behind, is_open))
    }

    /// The requests before turn `before`, added up, and whether one of them is open.
    fn requests_behind(&self, id: &RunId, before: u32, steps: &[StepRecord]) -> DbResult<(Vec<RequestSum>, bool)> {
        let step = step_in_sql(steps);
        // As in `RequestRecord::plain_tokens`.
        let scale = format!(
            "max({PLAIN_SCALE}, (instr(estimator, '{SCALED_BY}') > 0) * \
             CAST(substr(estimator, instr(estimator, '{SCALED_BY}') + 1) AS INTEGER))"
        );
        let plain = format!("((estimated_tokens * {PLAIN_SCALE} + {scale} - 1) / {scale})");
        let sums = format!(
            "count(*) AS requests, sum(input_tokens) AS input, \
             sum(output_tokens) AS output, sum(cache_read_tokens) AS cache_read, sum(cache_write_tokens) AS cache_write, sum(cost_nanos) AS cost, \
             sum(cost_nanos IS NULL AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens > 0) AS unpriced, \
             sum(t.status = 'actual' AND input_tokens + output_tokens + cache_read_tokens + cache_write_tokens \
             > estimated_tokens + reserved_output_tokens) AS overruns, sum(estimated_tokens) AS estimated, \
             max(CASE WHEN t.status = 'actual' AND {plain} >= {TELLING_TOKENS} \
             THEN ((input_tokens + cache_read_tokens + cache_write_tokens) * {PLAIN_SCALE} + {plain} - 1) / {plain} \
             ELSE 0 END) AS counted_as"
        );
        // Most often all are of one kind, and need not be sorted by their kinds.
        let alike = "min(provider) = max(provider) AND min(model) = max(model) AND min(t.status) = max(t.status) \
                     AND min(network_attempted) = max(network_attempted) \
                     AND (count(currency) = 0 OR (count(currency) = count(*) AND min(currency) = max(currency)))";
        let of_one_kind = format!(
            "SELECT min({step}) AS step, min(provider) AS provider, min(model) AS model, min(t.status) AS status, \
             min(network_attempted) AS network_attempted, min(currency) AS currency, {sums}{} AND t.turn < ?2 HAVING min({step}) = max({step}) AND {alike}",
            of_run!("usage")
        );
        let of_each_kind = format!(
            "SELECT {step} AS step, provider, model, t.status AS status, network_attempted, currency, {sums}\
             {} AND t.turn < ?2 GROUP BY 1, provider, model, t.status, network_attempted, currency ORDER BY min(request_id)",
            of_run!("usage")
        );
        let mut found = self.rows(&of_one_kind, params![id.as_str(), before], request_sum)?;
        if found.is_empty() {
            found = self.rows(&of_each_kind, params![id.as_str(), before], request_sum)?;
        }
        let all = found.len();
        found.retain(|sum| sum.status != RequestStatus::Reserved);
        let is_open = found.len() < all;
        Ok((found, is_open))
    }

    /// The requests that are kept: those of turn `before` and later, and those that are open, where an earlier one is.
    fn requests_kept(&self, id: &RunId, before: u32, has_open: bool) -> DbResult<Vec<RequestRecord>> {
        let mut kept = if has_open { self.reserved_requests(id)? } else { Vec::new() };
        let early: BTreeSet<u64> = kept.iter().map(|request| request.request_id).collect();
        // Newest first, up to the first that is left out: a later request is never for an earlier turn.
        let newest_first = concat!("SELECT t.*", of_run!("usage"), " ORDER BY t.place DESC");
        let mut statement = self.connection.prepare_cached(newest_first)?;
        for request in statement.query_and_then([id.as_str()], request_record)? {
            let request = request?;
            if request.turn < before {
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

/// The messages that are kept, and what is known of those that are not.
struct Kept {
    messages: Vec<MessageRecord>,
    /// Since which turn the context of the current iteration is.
    context: u32,
    /// The sizes of the others.
    message_bytes: Vec<u64>,
}

/// A number of a row, by its place; `None` when there is something else, about which a column read by its name has the words.
fn number(row: &Row<'_>, place: usize) -> Option<u64> {
    row.get_ref(place).ok()?.as_i64().ok()?.try_into().ok()
}

/// A word of a row, by its place.
fn word<'r>(row: &'r Row<'_>, place: usize) -> Option<&'r str> {
    row.get_ref(place).ok()?.as_str().ok()
}

/// What a few words mean that come again and again.
struct Words<T>(Vec<(String, T)>);

impl<T> Default for Words<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy> Words<T> {
    /// What a word means, as `read` says it the first time.
    fn of(&mut self, word: Option<&str>, read: impl FnOnce() -> DbResult<T>) -> DbResult<T> {
        if let Some((_, meaning)) = self.0.iter().find(|(known, _)| Some(known.as_str()) == word) {
            return Ok(*meaning);
        }
        let meaning = read()?;
        self.0.extend(word.map(|word| (word.to_owned(), meaning)));
        Ok(meaning)
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
        network_attempted: column.get("network_attempted")?,
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

#[cfg(test)]
mod tests {
    use ua_store::RunStore as _;
    use ua_store::conformance::{Scene, samples};

    use super::*;
    use crate::{SqliteConfig, SqliteStore};

    /// A resume of a long run goes through its past once, and keeps nothing of it behind the last reading.
    #[tokio::test]
    async fn what_lies_behind_is_gone_through_once_for_all_readings_of_a_resume() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(SqliteConfig::new(folder.path().join("a.db"))).unwrap();
        let scene = Scene::begin(&store, "run_a").await;
        for turn in 1..=4 {
            let call = format!("call_{turn}");
            scene.turn(vec![samples::planned_call(&call, turn, 1)]).await;
            scene.bring(&call, CallStatus::Succeeded).await;
            scene.commit(turn).await;
        }
        let (run, keep) = (scene.run_id(), Keep { turns: 1, calls: 1, bytes: 0 });
        let expected = scene.records().await.leave_out(keep);
        assert!(!expected.left_out.is_nothing());
        let kept = || store.behind.lock().unwrap().as_ref().map(|behind| behind.readings);
        for left in [Some(2), Some(1), None, Some(2)] {
            assert_eq!(store.load_standing(run, keep).await.unwrap(), expected);
            assert_eq!(kept(), left);
        }
        // Who keeps another part asks for another past.
        let more = Keep { turns: 2, ..keep };
        assert_eq!(store.load_standing(run, more).await.unwrap(), scene.records().await.leave_out(more));
        assert_eq!(kept(), Some(2));
    }
}
