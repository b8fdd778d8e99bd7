//! Calls of earlier programs of which an attempt is in doubt and whose row does not say so: found when a database is brought up to date.
//!
//! Whether an attempt is in doubt is `ua_store::rules::first_in_doubt`, which the invariants ask as well: a migration in SQL would say it once more,
//! and did, otherwise. The migration leaves a note, so that a process that dies in between leaves it to the next one. Nothing is written while it is
//! there: every connection that writes comes past here. Proved by: `tests/it/doubts.rs`.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, named_params};
use ua_core::FailureKind;
use ua_store::CallRecord;
use ua_store::rules::{DoubtContext, found_in_doubt};

use crate::column::{opt_text, stored_name};
use crate::error::DbError;
use crate::event_chain::{self, EventChain};
use crate::ledger_rows::{HOLDER, attempt_record, call_record, receipt_record};
use crate::run_rows::{QUESTIONS, question_record};

type DbResult<T> = Result<T, DbError>;

const NOTE: &str = "doubts_to_be_found";

/// Calls that were sent and of which nothing says that an attempt is in doubt, and whether their turn is over.
const UNDOUBTED: &str = "SELECT c.*, c.turn <= r.turn_index AS is_over FROM tool_calls c JOIN runs r ON r.run_id = c.run_id \
     WHERE c.doubt IS NULL AND c.attempt > 0 AND c.side_effect_class <> 'read_only' AND c.replay_policy <> 'redo' \
     AND (c.status = 'failed' OR c.status = 'running' OR c.status = 'unknown') ORDER BY c.run_id, c.turn, c.ordinal";

/// Finds them, where the migration left its note, and puts them in doubt, in one transaction.
pub(crate) fn find(connection: &mut Connection) -> DbResult<()> {
    if !is_noted(connection)? {
        return Ok(());
    }
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    let found = found(&transaction)?;
    if !found.is_empty() {
        let newest = event_chain::newest(&transaction)?;
        let refuses = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'tool_calls_move_legally'";
        let refuses: String = transaction.query_row(refuses, [], |row| row.get(0))?;
        // To everybody else, a call that did nothing becomes none that may have done something.
        transaction.execute_batch("DROP TRIGGER tool_calls_move_legally")?;
        found.iter().try_for_each(|call| put_in_doubt(&transaction, call))?;
        transaction.execute_batch(&refuses)?;
        EventChain::behind(Some(newest)).link(&transaction)?;
    }
    transaction.execute("DELETE FROM meta WHERE key = ?1", [NOTE])?;
    Ok(transaction.commit()?)
}

fn is_noted(connection: &Connection) -> rusqlite::Result<bool> {
    let noted = connection.query_row("SELECT 1 FROM meta WHERE key = ?1", [NOTE], |_| Ok(())).optional()?;
    Ok(noted.is_some())
}

fn found(connection: &Connection) -> DbResult<Vec<CallRecord>> {
    let mut undoubted = connection.prepare(UNDOUBTED)?;
    let mut rows = undoubted.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        match looked_at(connection, row) {
            Ok(call) => found.extend(call),
            // A row that nobody can read is used by nobody, and named by who examines the database: it keeps no one from opening it.
            Err(DbError::Store(error)) => tracing::warn!(%error, "whether a call is in doubt could not be told"),
            Err(error @ DbError::Sql(_)) => return Err(error),
        }
    }
    Ok(found)
}

/// The call of a row as it has to stand, if it stands otherwise.
fn looked_at(connection: &Connection, row: &Row<'_>) -> DbResult<Option<CallRecord>> {
    let (call, is_over) = (call_record(row)?, row.get("is_over")?);
    let id = call.call_id.as_str();
    let attempts =
        all(connection, "SELECT * FROM tool_attempts WHERE tool_call_id = ?1 ORDER BY attempt", id, attempt_record)?;
    let receipts = "SELECT * FROM tool_receipts WHERE tool_call_id = ?1 ORDER BY receipt_seq";
    let receipts = all(connection, receipts, id, receipt_record)?;
    let questions = format!("{QUESTIONS} WHERE q.tool_call_id = ?1 ORDER BY q.seq");
    let questions = all(connection, &questions, id, question_record)?;
    let key = call.idempotency_key.as_ref().map_or("", ua_core::IdempotencyKey::as_str);
    let holders = all(connection, HOLDER, key, call_record)?;
    let holder = holders.iter().find(|other| other.call_id != call.call_id).map(|other| other.status);
    let context = DoubtContext { attempts: &attempts, receipts: &receipts, questions: &questions, holder };
    Ok(found_in_doubt(&call, context, is_over))
}

fn all<T>(connection: &Connection, sql: &str, of: &str, read: fn(&Row<'_>) -> DbResult<T>) -> DbResult<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([of])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        all.push(read(row)?);
    }
    Ok(all)
}

/// When and by which owner it was changed last stays as it is: nothing happened to it.
fn put_in_doubt(connection: &Connection, call: &CallRecord) -> DbResult<()> {
    let sql = "UPDATE tool_calls SET status = :status, failure_kind = :kind, doubt = :doubt, possible_effect = :effect, \
               resolution = :resolution, error_code = :code, error_detail = :detail WHERE tool_call_id = :id";
    connection.prepare_cached(sql)?.execute(named_params! {
        ":id": call.call_id.as_str(),
        ":status": call.status.column(),
        ":kind": call.status.failure_kind().map(FailureKind::as_str),
        ":doubt": call.doubt,
        ":effect": call.possible_effect.as_ref().map(stored_name).transpose()?,
        ":resolution": opt_text(call.resolution.as_ref()),
        ":code": call.error_code,
        ":detail": call.error_detail,
    })?;
    Ok(())
}
