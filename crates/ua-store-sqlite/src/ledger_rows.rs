//! The rows of the ledger: how they are found, and how they are stored.

use rusqlite::{Row, named_params, params};
use ua_core::{CallId, CallStatus, FailureKind, IdempotencyKey, Position, RunId, Scope, Timestamp, ToolName};
use ua_store::{AttemptRecord, CallRecord, EventRecord, ReceiptRecord, RowRef, StoreError};

use crate::column::{Columns, int, json, opt_json, opt_text, policy_text, stored_name, text};
use crate::db::Db;
use crate::error::DbError;
use crate::run_rows::not_found;
use crate::statement::{Changes, set_changed};

type DbResult<T> = Result<T, DbError>;

// What a decision about a call is read by, before it and again in the write that starts it. Each is found by an index (`related_rows`'
// tests), so that what a decision costs does not grow with the run, and 2,000 other runs do not slow one down.
pub(crate) const CALL: &str = "SELECT * FROM tool_calls WHERE tool_call_id = ?1";
// Attempted and not failed: running, unknown or succeeded, and by an attempt of its own, as the table's checks say.
pub(crate) const HOLDER: &str =
    "SELECT * FROM tool_calls WHERE idempotency_key = ?1 AND attempt > 0 AND failure_kind IS NULL";
pub(crate) const OTHER_EFFECTS: &str = "SELECT count(*) FROM (SELECT 1 FROM tool_calls WHERE root_run_id = ?1 AND effect_kind = ?2 AND tool_call_id <> ?3 \
     AND (status = 'running' OR status = 'unknown' OR status = 'succeeded' OR doubt IS NOT NULL \
     OR (failure_kind = 'reported' AND possible_effect IS NOT 'none')) AND deduplicated_from IS NULL \
     AND correction_json ->> '$.of' IS NULL LIMIT ?4)";

pub(crate) const SCOPE_BEGINS: &str = "SELECT * FROM tool_calls WHERE root_run_id = ?1 AND side_effect_scope >= ?2 AND side_effect_scope < ?3 \
     AND attempt > 0 ORDER BY created_at, run_id, turn, ordinal";

pub(crate) const EFFECTS_BEHIND: &str = "SELECT * FROM tool_calls WHERE root_run_id = ?1 AND attempt > 0 \
     AND side_effect_class <> 'read_only' AND tool_call_id IN (SELECT tool_call_id FROM tool_call_events WHERE event_seq > ?2) \
     ORDER BY created_at, run_id, turn, ordinal";
// Events lie by run, the newest last.
pub(crate) const EVENTS_BACK: &str = "SELECT * FROM tool_call_events \
     WHERE run_id = (SELECT run_id FROM tool_calls WHERE tool_call_id = ?1) AND tool_call_id = ?1 ORDER BY event_seq DESC";

impl Db<'_> {
    // --- Calls.

    pub(crate) fn call(&self, id: &CallId) -> DbResult<CallRecord> {
        self.known_or(
            |kept| kept.call(id).cloned(),
            || self.row(CALL, [id.as_str()], call_record)?.ok_or_else(|| not_found("tool_calls", id)),
        )
    }

    /// The calls of a run, or of one turn of it, by position.
    pub(crate) fn calls_of(&self, run: &RunId, turn: Option<u32>) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = ?1 AND turn BETWEEN ?2 AND ?3 ORDER BY turn, ordinal";
        let (first, last) = turn.map_or((0, u32::MAX), |turn| (turn, turn));
        self.rows(sql, params![run.as_str(), first, last], call_record)
    }

    /// The calls of a run of turns from one on, by position.
    pub(crate) fn calls_from(&self, run: &RunId, turn: u32) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = ?1 AND turn >= ?2 ORDER BY turn, ordinal";
        self.rows(sql, params![run.as_str(), turn], call_record)
    }

    /// The calls of a run of turns up to one, by position.
    pub(crate) fn calls_until(&self, run: &RunId, turn: u32) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = ?1 AND turn <= ?2 ORDER BY turn, ordinal";
        self.rows(sql, params![run.as_str(), turn], call_record)
    }

    pub(crate) fn running_calls(&self, run: &RunId) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE run_id = ?1 AND status = 'running' ORDER BY turn, ordinal";
        self.rows(sql, [run.as_str()], call_record)
    }

    pub(crate) fn unknown_calls(&self) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE status = 'unknown' AND resolution IS NOT 'skipped' \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, [], call_record)
    }

    /// Calls that were sent, may have an effect, and have changed since.
    pub(crate) fn effects_since(&self, since: Timestamp) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE attempt > 0 AND side_effect_class <> 'read_only' AND updated_at >= ?1 \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, [since.to_string()], call_record)
    }

    /// Calls of a lineage that were sent, may have an effect, and have changed behind a place in the history.
    pub(crate) fn effects_behind(&self, root: &RunId, place: u64) -> DbResult<Vec<CallRecord>> {
        self.rows(EFFECTS_BEHIND, params![root.as_str(), int(place)], call_record)
    }

    /// Calls of a lineage with an effect kind whose record a person corrected.
    pub(crate) fn corrected_calls(&self, root: &RunId) -> DbResult<Vec<CallRecord>> {
        let sql = "SELECT * FROM tool_calls WHERE root_run_id = ?1 AND effect_kind IS NOT NULL AND correction_json IS NOT NULL \
                   ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, [root.as_str()], call_record)
    }

    /// The call that holds `key`.
    pub(crate) fn key_holder(&self, key: &IdempotencyKey) -> DbResult<Option<CallRecord>> {
        self.row(HOLDER, [key.as_str()], call_record)
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
        let sql = "SELECT * FROM tool_calls WHERE deduplicated_from = ?2 \
                   OR (run_id IN (SELECT run_id FROM runs WHERE root_run_id = ?1) AND correction_json ->> '$.of' = ?2 \
                   AND deduplicated_from IS NULL) ORDER BY created_at, run_id, turn, ordinal";
        self.rows(sql, [root.as_str(), call.as_str()], call_record)
    }

    pub(crate) fn insert_call(&self, call: &CallRecord, epoch: u64) -> DbResult<()> {
        let sql = "INSERT INTO tool_calls (tool_call_id, run_id, root_run_id, step_id, turn, ordinal, created_at, updated_at, \
                   tool_use_id, raw_tool_name, tool_name, tool_server, tool_namespace, tool_digest, side_effect_class, \
                   effect_kind, policy_rule_id, policy_json, replay_policy, normalized_args_hash, status, resolution, \
                   request_ref, error_code, error_detail, lease_epoch) \
                   VALUES (:id, :run, :root, :step, :turn, :ordinal, :created, :updated, :tool_use, :raw_name, :name, \
                   :server, :namespace, :digest, :class, :effect, :rule, :policy, :on_unknown, :args_hash, :status, \
                   :resolution, :request, :code, :detail, :epoch)";
        let inserted = self.run_named(
            sql,
            named_params! {
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
                ":policy": policy_text(&call.policy)?,
                ":on_unknown": call.policy.on_unknown.as_str(),
                ":args_hash": call.args_hash.to_hex(),
                ":status": call.status.column(),
                ":resolution": opt_text(call.resolution.as_ref()),
                ":request": json(&call.arguments)?,
                ":code": call.error_code,
                ":detail": call.error_detail,
                ":epoch": int(epoch),
            },
        );
        inserted.map_err(|error| DbError::or_exists(error, || RowRef::new("tool_calls", &call.call_id)))?;
        self.note(|kept| kept.call_inserted(call));
        Ok(())
    }

    /// Stores what may change about a call; a trigger refuses illegal moves and notes legal ones as events.
    ///
    /// A statement that may change a reference of a table to itself writes each index of it anew, whether or not something changes: so it
    /// stands in one of its own. A call that was answered from another stays so, and no other is.
    pub(crate) fn update_call(&self, call: &CallRecord, epoch: u64) -> DbResult<()> {
        self.change_call(call, epoch, None)
    }

    /// The same of a call and the answer to it. Its receipt is named at once: else the trigger that sees to that writes the row once more.
    pub(crate) fn answer_call(&self, call: &CallRecord, epoch: u64, receipt: &ReceiptRecord) -> DbResult<()> {
        let number = 1 + self.last_receipt()?;
        self.change_call(call, epoch, Some(number))?;
        self.put_receipt(receipt, number)
    }

    fn change_call(&self, call: &CallRecord, epoch: u64, receipt: Option<i64>) -> DbResult<()> {
        let changes = self.beside_known(
            |kept| kept.call(&call.call_id),
            || self.call(&call.call_id),
            |before| changes_of_call(before, call, epoch, receipt),
        )?;
        if let Some(from) = &call.deduplicated_from {
            let sql =
                "UPDATE tool_calls SET deduplicated_from = ?2 WHERE tool_call_id = ?1 AND deduplicated_from IS NOT ?2";
            self.connection.prepare_cached(sql)?.execute([call.call_id.as_str(), from.as_str()])?;
        }
        changes.write(self.connection, "tool_call_id = ?", &[&call.call_id.as_str()])?;
        self.note(|kept| kept.call_updated(call));
        Ok(())
    }

    // --- Attempts.

    pub(crate) fn attempts_of(&self, call: &CallId) -> DbResult<Vec<AttemptRecord>> {
        self.rows(
            "SELECT * FROM tool_attempts WHERE tool_call_id = ?1 ORDER BY attempt",
            [call.as_str()],
            attempt_record,
        )
    }

    /// The attempts of a run, call by call.
    pub(crate) fn attempts_of_run(&self, run: &RunId) -> DbResult<Vec<AttemptRecord>> {
        let sql = "SELECT a.* FROM tool_calls c JOIN tool_attempts a ON a.tool_call_id = c.tool_call_id \
                   WHERE c.run_id = ?1 ORDER BY c.turn, c.ordinal, a.attempt";
        self.rows(sql, [run.as_str()], attempt_record)
    }

    pub(crate) fn current_attempt(&self, call: &CallRecord) -> DbResult<Option<AttemptRecord>> {
        let sql = "SELECT * FROM tool_attempts WHERE tool_call_id = ?1 AND attempt = ?2";
        let read = || self.row(sql, params![call.call_id.as_str(), call.attempt], attempt_record);
        self.known_or(|kept| kept.attempt(call).map(Some), read)
    }

    pub(crate) fn insert_attempt(&self, attempt: &AttemptRecord) -> DbResult<()> {
        let sql = "INSERT INTO tool_attempts (tool_call_id, attempt, lease_epoch, server_generation, started_at, destination_json) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let started = text(&attempt.started_at);
        self.connection.prepare_cached(sql)?.execute(params![
            attempt.call_id.as_str(),
            attempt.attempt,
            int(attempt.epoch),
            attempt.server_generation,
            started,
            opt_json(attempt.destination.as_ref())?
        ])?;
        self.note(|kept| kept.attempt_put(attempt));
        Ok(())
    }

    pub(crate) fn keep_handle(&self, attempt: &AttemptRecord) -> DbResult<()> {
        let sql = "UPDATE tool_attempts SET handle_json = ?3 WHERE tool_call_id = ?1 AND attempt = ?2";
        let handle = opt_json(attempt.handle.as_ref())?;
        self.connection.prepare_cached(sql)?.execute(params![attempt.call_id.as_str(), attempt.attempt, handle])?;
        self.note(|kept| kept.attempt_put(attempt));
        Ok(())
    }

    pub(crate) fn end_attempt(&self, attempt: &AttemptRecord) -> DbResult<()> {
        let sql = "UPDATE tool_attempts SET ended_at = ?3, outcome = ?4, detail = ?5 WHERE tool_call_id = ?1 AND attempt = ?2";
        self.connection.prepare_cached(sql)?.execute(params![
            attempt.call_id.as_str(),
            attempt.attempt,
            opt_text(attempt.ended_at.as_ref()),
            attempt.outcome,
            attempt.detail
        ])?;
        self.note(|kept| kept.attempt_put(attempt));
        Ok(())
    }

    // --- Receipts.

    pub(crate) fn newest_receipt(&self, call: &CallId) -> DbResult<Option<ReceiptRecord>> {
        let sql = "SELECT * FROM tool_receipts WHERE tool_call_id = ?1 ORDER BY receipt_seq DESC LIMIT 1";
        self.row(sql, [call.as_str()], receipt_record)
    }

    /// The receipts of a run, call by call.
    pub(crate) fn receipts_of_run(&self, run: &RunId) -> DbResult<Vec<ReceiptRecord>> {
        let sql = "SELECT r.* FROM tool_calls c JOIN tool_receipts r ON r.tool_call_id = c.tool_call_id \
                   WHERE c.run_id = ?1 ORDER BY c.turn, c.ordinal, r.receipt_seq";
        self.rows(sql, [run.as_str()], receipt_record)
    }

    pub(crate) fn insert_receipt(&self, receipt: &ReceiptRecord) -> DbResult<()> {
        let number = 1 + self.last_receipt()?;
        self.put_receipt(receipt, number)
    }

    /// The number of the newest receipt of all; 0 when there is none.
    fn last_receipt(&self) -> DbResult<i64> {
        let sql = "SELECT coalesce(max(receipt_seq), 0) FROM tool_receipts";
        self.known_or(
            |kept| kept.last_receipt,
            || {
                let last = self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
                self.note(|kept| kept.last_receipt = Some(last));
                Ok(last)
            },
        )
    }

    fn put_receipt(&self, receipt: &ReceiptRecord, number: i64) -> DbResult<()> {
        let sql = "INSERT INTO tool_receipts (receipt_seq, tool_call_id, attempt, received_at, raw_json, lifted_json, settlement_json, evidence) \
                   VALUES (:number, :call, :attempt, :received, :raw, :lifted, :settlement, :evidence)";
        self.run_named(
            sql,
            named_params! {
                ":number": number,
                ":call": receipt.call_id.as_str(),
                ":attempt": receipt.attempt,
                ":received": text(&receipt.received_at),
                ":raw": json(&receipt.raw)?,
                ":lifted": json(&receipt.lifted)?,
                ":settlement": opt_json(receipt.settlement.as_ref())?,
                ":evidence": stored_name(&receipt.evidence)?,
            },
        )?;
        self.note(|kept| kept.last_receipt = Some(number));
        Ok(())
    }

    /// Stores the meaning of the call's newest receipt.
    pub(crate) fn fill_newest_receipt(&self, receipt: &ReceiptRecord) -> DbResult<()> {
        let sql = "UPDATE tool_receipts SET settlement_json = ?2 \
                   WHERE receipt_seq = (SELECT max(receipt_seq) FROM tool_receipts WHERE tool_call_id = ?1)";
        let settlement = opt_json(receipt.settlement.as_ref())?;
        self.connection.prepare_cached(sql)?.execute(params![receipt.call_id.as_str(), settlement])?;
        Ok(())
    }

    // --- Events.

    /// The changes of a call, oldest first.
    pub(crate) fn events_of(&self, call: &CallId) -> DbResult<Vec<EventRecord>> {
        // Decisions ask for those of a call that was planned a moment ago, in a run of any length: from the newest back, as far as its
        // plan, which alone comes from no status.
        let mut statement = self.connection.prepare_cached(EVENTS_BACK)?;
        let mut events = Vec::new();
        for event in statement.query_and_then([call.as_str()], event_record)? {
            let event = event?;
            let is_plan = event.from.is_none();
            events.push(event);
            if is_plan {
                break;
            }
        }
        events.reverse();
        Ok(events)
    }
}

/// What a call has that it had not before. The epoch is that of whoever writes it, and stands in the event of it.
fn changes_of_call<'c>(
    before: Option<&CallRecord>,
    call: &'c CallRecord,
    epoch: u64,
    receipt: Option<i64>,
) -> DbResult<Changes<'c>> {
    let mut changes = Changes::of("tool_calls");
    set_changed!(changes, before => call, {
        idempotency_key: "idempotency_key" = call.idempotency_key.as_ref().map(IdempotencyKey::as_str);
        scope: "side_effect_scope" = call.scope.as_ref().map(Scope::as_str);
        updated_at: "updated_at" = text(&call.updated_at);
        status: "status" = call.status.column();
        attempt: "attempt" = call.attempt;
        file_digests: "file_digests_json" = json(&call.file_digests)?;
        doubt: "doubt" = call.doubt;
        possible_effect: "possible_effect" = call.possible_effect.as_ref().map(stored_name).transpose()?;
        resolution: "resolution" = opt_text(call.resolution.as_ref());
        replay_status: "replay_status" = call.replay_status.as_ref().map(stored_name).transpose()?;
        external_correlation_id: "external_correlation_id" = &call.external_correlation_id;
        error_code: "error_code" = &call.error_code;
        error_detail: "error_detail" = &call.error_detail;
        correction: "correction_json" = opt_json(call.correction.as_ref())?;
    });
    // Nearly no call fails; the index of keys names it, and is written where it is named.
    let failure = call.status.failure_kind();
    if before.is_none_or(|before| before.status.failure_kind() != failure) {
        changes.set("failure_kind", failure.map(FailureKind::as_str));
    }
    if let Some(receipt) = receipt {
        changes.set("response_ref", format!("tool_receipts/{receipt}"));
    }
    changes.set("lease_epoch", int(epoch));
    Ok(changes)
}

/// Where the call of a row stands.
pub(crate) fn status_of(column: &Columns<'_, '_>) -> DbResult<CallStatus> {
    let (status, kind): (String, Option<String>) = (column.get("status")?, column.get("failure_kind")?);
    CallStatus::from_columns(&status, kind.as_deref()).map_err(|why| match column.get::<String>("tool_call_id") {
        Ok(call) => StoreError::Corrupt { row: RowRef::new("tool_calls", call), why }.into(),
        Err(error) => error,
    })
}

pub(crate) fn call_record(row: &Row<'_>) -> DbResult<CallRecord> {
    let column = Columns::new(row, "tool_calls", "tool_call_id");
    let call_id: CallId = column.parsed("tool_call_id")?;
    let status = status_of(&column)?;
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
        policy: column.policy("policy_json")?,
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

pub(crate) fn attempt_record(row: &Row<'_>) -> DbResult<AttemptRecord> {
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

pub(crate) fn receipt_record(row: &Row<'_>) -> DbResult<ReceiptRecord> {
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

pub(crate) fn event_record(row: &Row<'_>) -> DbResult<EventRecord> {
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
