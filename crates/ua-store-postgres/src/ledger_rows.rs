//! The rows of the ledger: how they are found, and how they are stored.

use tokio_postgres::Row;
use ua_core::{CallId, CallStatus, FailureKind, IdempotencyKey, Position, RunId, Scope, Timestamp, ToolName};
use ua_store::{AttemptRecord, CallRecord, EventRecord, ReceiptRecord, RowRef, StoreError};

use crate::column::{Columns, int, json, opt_json, opt_text, stored_name, text};
use crate::db::Db;
use crate::error::DbError;
use crate::run_rows::not_found;
use crate::value::{named, params};

type DbResult<T> = Result<T, DbError>;

// What a decision about a call is read by, before it and again in the write that starts it. Each is found by an index (`tests/it/schema.rs`), so that what a decision costs does not grow with the run, and 2,000 other runs do not slow one down.
pub(crate) const CALL: &str = "SELECT * FROM tool_calls WHERE tool_call_id = $1";
pub(crate) const CALLS_OF_TURNS: &str =
    "SELECT * FROM tool_calls WHERE run_id = $1 AND turn BETWEEN $2 AND $3 ORDER BY turn, ordinal";
pub(crate) const ATTEMPT: &str = "SELECT * FROM tool_attempts WHERE tool_call_id = $1 AND attempt = $2";
pub(crate) const HOLDER: &str = "SELECT * FROM tool_calls WHERE idempotency_key = $1 \
                                 AND status IN ('running', 'unknown', 'succeeded') AND deduplicated_from IS NULL";
// A word of a person that came out of an older file may have an escaped U+0000 in it, and PostgreSQL takes nothing out of such JSON.
pub(crate) const OTHER_EFFECTS: &str = "SELECT count(*) FROM (SELECT 1 FROM tool_calls WHERE root_run_id = $1 AND effect_kind = $2 AND tool_call_id <> $3 \
     AND (status IN ('running', 'unknown', 'succeeded') OR doubt IS NOT NULL \
     OR (failure_kind = 'reported' AND possible_effect IS DISTINCT FROM 'none')) AND deduplicated_from IS NULL \
     AND replace(correction_json, E'\\\\u0000', '')::json ->> 'of' IS NULL LIMIT $4) counted";

pub(crate) const SCOPE_BEGINS: &str = "SELECT * FROM tool_calls WHERE root_run_id = $1 AND side_effect_scope >= $2 AND side_effect_scope < $3 \
     AND attempt > 0 ORDER BY created_at, run_id, turn, ordinal";

impl Db {
    // --- Calls.

    pub(crate) fn call(&self, id: &CallId) -> DbResult<CallRecord> {
        if let Some(known) = self.known(|rows| rows.call(id).cloned()) {
            return Ok(known);
        }
        let found = self.row(CALL, params![id.as_str()], call_record)?;
        found.ok_or_else(|| not_found("tool_calls", id))
    }

    /// The calls of a run, or of one turn of it, by position.
    pub(crate) fn calls_of(&self, run: &RunId, turn: Option<u32>) -> DbResult<Vec<CallRecord>> {
        let known = turn.and_then(|turn| self.known_of(run, |rows| rows.calls_of_turn(turn).map(<[_]>::to_vec)));
        if let Some(known) = known {
            return Ok(known);
        }
        let (first, last) = turn.map_or((0, u32::MAX), |turn| (turn, turn));
        self.rows(CALLS_OF_TURNS, params![run.as_str(), first, last], call_record)
    }

    /// The calls of a run of turns up to one, by position.
    pub(crate) fn calls_until(&self, run: &RunId, turn: u32) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = $1 AND turn <= $2 ORDER BY turn, ordinal";
        self.rows(sql, params![run.as_str(), turn], call_record)
    }

    pub(crate) fn running_calls(&self, run: &RunId) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = $1 AND status = 'running' ORDER BY turn, ordinal";
        self.rows(sql, params![run.as_str()], call_record)
    }

    pub(crate) fn unknown_calls(&self) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE status = 'unknown' AND resolution IS DISTINCT FROM 'skipped' \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, params![], call_record)
    }

    /// Calls that were sent, may have an effect, and have changed since.
    pub(crate) fn effects_since(&self, since: Timestamp) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE attempt > 0 AND side_effect_class <> 'read_only' AND updated_at >= $1 \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, params![since.to_string()], call_record)
    }

    /// Calls of a lineage that were sent, may have an effect, and have changed behind a place in the history.
    pub(crate) fn effects_behind(&self, root: &RunId, place: u64) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE root_run_id = $1 AND attempt > 0 AND side_effect_class <> 'read_only' \
                   AND tool_call_id IN (SELECT tool_call_id FROM tool_call_events WHERE event_seq > $2) \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, params![root.as_str(), int(place)], call_record)
    }

    /// Calls of a lineage with an effect kind whose record a person corrected.
    pub(crate) fn corrected_calls(&self, root: &RunId) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE root_run_id = $1 AND effect_kind IS NOT NULL AND correction_json IS NOT NULL \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, params![root.as_str()], call_record)
    }

    /// The call that holds `key`.
    pub(crate) fn key_holder(&self, key: &IdempotencyKey) -> DbResult<Option<CallRecord>> {
        if self.is_computed() {
            // None, for all that is known: whoever claims a key that another call holds is refused by the index over keys.
            return Ok(None);
        }
        self.row(HOLDER, params![key.as_str()], call_record)
    }

    /// The calls of a lineage that were sent and whose scope begins so.
    pub(crate) fn scope_begins(&self, root: &RunId, beginning: &str) -> DbResult<Vec<CallRecord>> {
        // Scopes are sorted by their bytes, and no character has greater ones.
        let behind = format!("{beginning}\u{10FFFF}");
        self.rows(SCOPE_BEGINS, params![root.as_str(), beginning, behind], call_record)
    }

    /// How many other calls of the lineage with the effect kind of `call` had it or may have had it; counted up to `most`.
    pub(crate) fn other_effects(&self, call: &CallRecord, most: u32) -> DbResult<u32> {
        let Some(effect) = &call.policy.effect_kind else { return Ok(0) };
        let own = call.call_id.as_str();
        let count = self.number(OTHER_EFFECTS, params![call.root_run_id.as_str(), effect.as_str(), own, most])?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The calls of a lineage that are answered by the receipt of `call`: by its key, or by a person's word.
    pub(crate) fn answered_by(&self, root: &RunId, call: &CallId) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE deduplicated_from = $2 \
                   OR (run_id IN (SELECT run_id FROM runs WHERE root_run_id = $1) AND replace(correction_json, E'\\\\u0000', '')::json ->> 'of' = $2 \
                   AND deduplicated_from IS NULL) ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, params![root.as_str(), call.as_str()], call_record)
    }

    pub(crate) fn insert_call(&self, call: &CallRecord, epoch: u64) -> DbResult<()> {
        let sql = "INSERT INTO tool_calls (tool_call_id, run_id, root_run_id, step_id, turn, ordinal, created_at, updated_at, \
                   tool_use_id, raw_tool_name, tool_name, tool_server, tool_namespace, tool_digest, side_effect_class, \
                   effect_kind, policy_rule_id, policy_json, replay_policy, normalized_args_hash, status, resolution, \
                   request_ref, error_code, error_detail, lease_epoch) \
                   VALUES (:id, :run, :root, :step, :turn, :ordinal, :created, :updated, :tool_use, :raw_name, :name, \
                   :server, :namespace, :digest, :class, :effect, :rule, :policy, :on_unknown, :args_hash, :status, \
                   :resolution, :request, :code, :detail, :epoch)";
        self.insert(
            sql,
            named! {
                ":id": call.call_id.as_str(),
                ":run": call.run_id.as_str(),
                ":root": call.root_run_id.as_str(),
                ":step": call.step_id.as_str(),
                ":turn": call.position.turn,
                ":ordinal": call.position.ordinal,
                ":created": text(&call.created_at),
                ":updated": text(&call.updated_at),
                ":tool_use": call.tool_use_id,
                ":raw_name": call.name.raw,
                ":name": call.name.tool,
                ":server": call.name.server,
                ":namespace": call.name.namespace.as_str(),
                ":digest": opt_text(call.tool_digest.as_ref()),
                ":class": call.policy.class.as_str(),
                ":effect": call.policy.effect_kind.as_ref().map(ua_core::EffectKind::as_str),
                ":rule": call.policy.rule_id,
                ":policy": json(&call.policy)?,
                ":on_unknown": call.policy.on_unknown.as_str(),
                ":args_hash": call.args_hash.to_hex(),
                ":status": call.status.column(),
                ":resolution": opt_text(call.resolution.as_ref()),
                ":request": json(&call.arguments)?,
                ":code": call.error_code,
                ":detail": call.error_detail,
                ":epoch": int(epoch),
            },
            || RowRef::new("tool_calls", &call.call_id),
        );
        self.note_of(&call.run_id, |rows| rows.call_inserted(call));
        Ok(())
    }

    /// Stores what may change about a call; a trigger refuses illegal moves and notes legal ones as events.
    pub(crate) fn update_call(&self, call: &CallRecord, epoch: u64) -> DbResult<()> {
        let sql = "UPDATE tool_calls SET updated_at = :updated, status = :status, failure_kind = :kind, attempt = :attempt, \
                   idempotency_key = :key, side_effect_scope = :scope, file_digests_json = :digests, doubt = :doubt, \
                   possible_effect = :effect, resolution = :resolution, deduplicated_from = :from, \
                   replay_status = :replay, external_correlation_id = :correlation, error_code = :code, \
                   error_detail = :detail, correction_json = :correction, lease_epoch = :epoch WHERE tool_call_id = :id";
        self.execute(
            sql,
            named! {
                ":id": call.call_id.as_str(),
                ":updated": text(&call.updated_at),
                ":status": call.status.column(),
                ":kind": call.status.failure_kind().map(FailureKind::as_str),
                ":attempt": call.attempt,
                ":doubt": call.doubt,
                ":key": call.idempotency_key.as_ref().map(IdempotencyKey::as_str),
                ":scope": call.scope.as_ref().map(Scope::as_str),
                ":digests": json(&call.file_digests)?,
                ":effect": call.possible_effect.as_ref().map(stored_name).transpose()?,
                ":resolution": opt_text(call.resolution.as_ref()),
                ":from": opt_text(call.deduplicated_from.as_ref()),
                ":replay": call.replay_status.as_ref().map(stored_name).transpose()?,
                ":correlation": call.external_correlation_id,
                ":code": call.error_code,
                ":detail": call.error_detail,
                ":correction": opt_json(call.correction.as_ref())?,
                ":epoch": int(epoch),
            },
        );
        self.note_of(&call.run_id, |rows| rows.call_updated(call));
        Ok(())
    }

    // --- Attempts.

    pub(crate) fn attempts_of(&self, call: &CallId) -> DbResult<Vec<AttemptRecord>> {
        self.rows(
            "SELECT * FROM tool_attempts WHERE tool_call_id = $1 ORDER BY attempt",
            params![call.as_str()],
            attempt_record,
        )
    }

    /// The attempts of a run, call by call.
    pub(crate) fn attempts_of_run(&self, run: &RunId) -> DbResult<Vec<AttemptRecord>> {
        let sql = "SELECT a.* FROM tool_calls c JOIN tool_attempts a ON a.tool_call_id = c.tool_call_id \
                   WHERE c.run_id = $1 ORDER BY c.turn, c.ordinal, a.attempt";
        self.rows(sql, params![run.as_str()], attempt_record)
    }

    pub(crate) fn current_attempt(&self, call: &CallRecord) -> DbResult<Option<AttemptRecord>> {
        let known = self.known_of(&call.run_id, |rows| rows.attempt(call).cloned());
        if known.is_some() {
            return Ok(known);
        }
        self.row(ATTEMPT, params![call.call_id.as_str(), call.attempt], attempt_record)
    }

    pub(crate) fn insert_attempt(&self, attempt: &AttemptRecord) -> DbResult<()> {
        let sql = "INSERT INTO tool_attempts (tool_call_id, attempt, lease_epoch, server_generation, started_at, destination_json) \
                   VALUES ($1, $2, $3, $4, $5, $6)";
        let started = text(&attempt.started_at);
        self.execute(
            sql,
            params![
                attempt.call_id.as_str(),
                attempt.attempt,
                int(attempt.epoch),
                attempt.server_generation,
                started,
                opt_json(attempt.destination.as_ref())?
            ],
        );
        self.note_attempt(attempt);
        Ok(())
    }

    pub(crate) fn keep_handle(&self, attempt: &AttemptRecord) -> DbResult<()> {
        let sql = "UPDATE tool_attempts SET handle_json = $3 WHERE tool_call_id = $1 AND attempt = $2";
        let handle = opt_json(attempt.handle.as_ref())?;
        self.execute(sql, params![attempt.call_id.as_str(), attempt.attempt, handle]);
        self.note_attempt(attempt);
        Ok(())
    }

    pub(crate) fn end_attempt(&self, attempt: &AttemptRecord) {
        let sql = "UPDATE tool_attempts SET ended_at = $3, outcome = $4, detail = $5 WHERE tool_call_id = $1 AND attempt = $2";
        self.execute(
            sql,
            params![
                attempt.call_id.as_str(),
                attempt.attempt,
                opt_text(attempt.ended_at.as_ref()),
                attempt.outcome,
                attempt.detail
            ],
        );
        self.note_attempt(attempt);
    }

    fn note_attempt(&self, attempt: &AttemptRecord) {
        self.note_own(|rows| rows.attempt_put(attempt));
    }

    // --- Receipts.

    pub(crate) fn newest_receipt(&self, call: &CallId) -> DbResult<Option<ReceiptRecord>> {
        let sql = "SELECT * FROM tool_receipts WHERE tool_call_id = $1 ORDER BY receipt_seq DESC LIMIT 1";
        self.row(sql, params![call.as_str()], receipt_record)
    }

    /// The receipts of a run, call by call.
    pub(crate) fn receipts_of_run(&self, run: &RunId) -> DbResult<Vec<ReceiptRecord>> {
        let sql = "SELECT r.* FROM tool_calls c JOIN tool_receipts r ON r.tool_call_id = c.tool_call_id \
                   WHERE c.run_id = $1 ORDER BY c.turn, c.ordinal, r.receipt_seq";
        self.rows(sql, params![run.as_str()], receipt_record)
    }

    pub(crate) fn insert_receipt(&self, receipt: &ReceiptRecord) -> DbResult<()> {
        let sql = "INSERT INTO tool_receipts (tool_call_id, attempt, received_at, raw_json, lifted_json, settlement_json, evidence) \
                   VALUES (:call, :attempt, :received, :raw, :lifted, :settlement, :evidence)";
        self.execute(
            sql,
            named! {
                ":call": receipt.call_id.as_str(),
                ":attempt": receipt.attempt,
                ":received": text(&receipt.received_at),
                ":raw": json(&receipt.raw)?,
                ":lifted": json(&receipt.lifted)?,
                ":settlement": opt_json(receipt.settlement.as_ref())?,
                ":evidence": stored_name(&receipt.evidence)?,
            },
        );
        Ok(())
    }

    /// Stores the meaning of the call's newest receipt.
    pub(crate) fn fill_newest_receipt(&self, receipt: &ReceiptRecord) -> DbResult<()> {
        let sql = "UPDATE tool_receipts SET settlement_json = $2 \
                   WHERE receipt_seq = (SELECT max(receipt_seq) FROM tool_receipts WHERE tool_call_id = $1)";
        let settlement = opt_json(receipt.settlement.as_ref())?;
        self.execute(sql, params![receipt.call_id.as_str(), settlement]);
        Ok(())
    }

    // --- Events.

    pub(crate) fn events_of(&self, call: &CallId) -> DbResult<Vec<EventRecord>> {
        let sql = "SELECT * FROM tool_call_events WHERE tool_call_id = $1 ORDER BY event_seq";
        self.rows(sql, params![call.as_str()], event_record)
    }
}

pub(crate) fn call_record(row: &Row) -> DbResult<CallRecord> {
    let column = Columns::new(row, "tool_calls", "tool_call_id");
    let call_id: CallId = column.parsed("tool_call_id")?;
    let (status, kind): (String, Option<String>) = (column.get("status")?, column.get("failure_kind")?);
    let status = CallStatus::from_columns(&status, kind.as_deref())
        .map_err(|why| StoreError::Corrupt { row: RowRef::new("tool_calls", &call_id), why })?;
    Ok(CallRecord {
        run_id: column.parsed("run_id")?,
        root_run_id: column.parsed("root_run_id")?,
        step_id: column.parsed("step_id")?,
        position: Position { turn: column.int("turn")?, ordinal: column.int("ordinal")? },
        created_at: column.at("created_at")?,
        updated_at: column.at("updated_at")?,
        tool_use_id: column.get("tool_use_id")?,
        name: ToolName {
            raw: column.get("raw_tool_name")?,
            server: column.get("tool_server")?,
            tool: column.get("tool_name")?,
            namespace: column.parsed("tool_namespace")?,
        },
        arguments: column.json("request_ref")?,
        args_hash: column.sha256("normalized_args_hash")?,
        tool_digest: column.opt_sha256("tool_digest")?,
        policy: column.json("policy_json")?,
        status,
        attempt: column.int("attempt")?,
        doubt: column.opt_int("doubt")?,
        idempotency_key: column.get::<Option<String>>("idempotency_key")?.map(IdempotencyKey::from_stored),
        scope: column.get::<Option<String>>("side_effect_scope")?.map(Scope::from_stored),
        file_digests: column.json("file_digests_json")?,
        possible_effect: column.opt_word("possible_effect")?,
        resolution: column.opt_parsed("resolution")?,
        deduplicated_from: column.opt_parsed("deduplicated_from")?,
        replay_status: column.opt_word("replay_status")?,
        external_correlation_id: column.get("external_correlation_id")?,
        error_code: column.get("error_code")?,
        error_detail: column.get("error_detail")?,
        correction: column.opt_json("correction_json")?,
        call_id,
    })
}

pub(crate) fn attempt_record(row: &Row) -> DbResult<AttemptRecord> {
    let column = Columns::new(row, "tool_attempts", "tool_call_id");
    Ok(AttemptRecord {
        call_id: column.parsed("tool_call_id")?,
        attempt: column.int("attempt")?,
        epoch: column.int("lease_epoch")?,
        server_generation: column.get("server_generation")?,
        destination: column.opt_json("destination_json")?,
        started_at: column.at("started_at")?,
        ended_at: column.opt_at("ended_at")?,
        outcome: column.get("outcome")?,
        detail: column.get("detail")?,
        handle: column.opt_json("handle_json")?,
    })
}

pub(crate) fn receipt_record(row: &Row) -> DbResult<ReceiptRecord> {
    let column = Columns::new(row, "tool_receipts", "receipt_seq");
    Ok(ReceiptRecord {
        call_id: column.parsed("tool_call_id")?,
        attempt: column.int("attempt")?,
        received_at: column.at("received_at")?,
        raw: column.json("raw_json")?,
        lifted: column.json("lifted_json")?,
        settlement: column.opt_json("settlement_json")?,
        evidence: column.stored_name("evidence")?,
    })
}

fn event_record(row: &Row) -> DbResult<EventRecord> {
    let column = Columns::new(row, "tool_call_events", "event_seq");
    Ok(EventRecord {
        seq: column.int("event_seq")?,
        call_id: column.parsed("tool_call_id")?,
        from: column.opt_parsed("from_status")?,
        to: column.parsed("to_status")?,
        epoch: column.int("lease_epoch")?,
        at: column.at("at")?,
        correction: column.opt_json("correction_json")?,
    })
}
