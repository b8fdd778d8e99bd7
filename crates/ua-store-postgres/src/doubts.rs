//! Calls of earlier programs of which an attempt is in doubt and whose row does not say so: rows that were copied out of a file may have them.
//!
//! Whether an attempt is in doubt is `ua_store::rules::first_in_doubt`, which the invariants ask as well: a migration in SQL would say it once more.
//! So this is done behind the migration before the one that says that it was done, again by whoever finds that it was not. Proved by:
//! `tests/it/doubts.rs`.

use tokio_postgres::{Client, Row, Transaction};
use ua_core::FailureKind;
use ua_store::CallRecord;
use ua_store::rules::{DoubtContext, found_in_doubt};

use crate::column::{opt_text, stored_name};
use crate::error::DbError;
use crate::ledger_rows::{HOLDER, attempt_record, call_record, receipt_record};
use crate::run_rows::{QUESTIONS, question_record};

type DbResult<T> = Result<T, DbError>;

/// The schema since which they are in doubt.
pub(crate) const FOUND_SINCE: i32 = 11;

/// Calls that were sent and of which nothing says that an attempt is in doubt, and whether their turn is over.
const UNDOUBTED: &str = "SELECT c.*, c.turn <= r.turn_index AS is_over FROM tool_calls c JOIN runs r ON r.run_id = c.run_id \
     WHERE c.doubt IS NULL AND c.attempt > 0 AND c.side_effect_class <> 'read_only' AND c.replay_policy <> 'redo' \
     AND c.status IN ('failed', 'running', 'unknown') ORDER BY c.run_id, c.turn, c.ordinal";

/// Finds them, and puts them in doubt, in one transaction.
pub(crate) async fn find(client: &mut Client) -> DbResult<()> {
    let transaction = client.transaction().await?;
    let mut found = Vec::new();
    for row in transaction.query(UNDOUBTED, &[]).await? {
        match looked_at(&transaction, &row).await {
            Ok(call) => found.extend(call),
            // A row that nobody can read is used by nobody, and named by who examines the database.
            Err(DbError::Store(error)) => tracing::warn!(%error, "whether a call is in doubt could not be told"),
            Err(error @ (DbError::Sql(_) | DbError::NotKnown)) => return Err(error),
        }
    }
    if !found.is_empty() {
        // To everybody else, a call that did nothing becomes none that may have done something.
        transaction.batch_execute("ALTER TABLE tool_calls DISABLE TRIGGER tool_calls_go_on").await?;
        for call in &found {
            put_in_doubt(&transaction, call).await?;
        }
        transaction.batch_execute("ALTER TABLE tool_calls ENABLE TRIGGER tool_calls_go_on").await?;
    }
    Ok(transaction.commit().await?)
}

/// The call of a row as it has to stand, if it stands otherwise.
async fn looked_at(transaction: &Transaction<'_>, row: &Row) -> DbResult<Option<CallRecord>> {
    let (call, is_over) = (call_record(row)?, row.try_get("is_over")?);
    let id = call.call_id.as_str();
    let attempts = "SELECT * FROM tool_attempts WHERE tool_call_id = $1 ORDER BY attempt";
    let attempts = all(transaction, attempts, id, attempt_record).await?;
    let receipts = "SELECT * FROM tool_receipts WHERE tool_call_id = $1 ORDER BY receipt_seq";
    let receipts = all(transaction, receipts, id, receipt_record).await?;
    let questions = format!("{QUESTIONS} WHERE q.tool_call_id = $1 ORDER BY q.seq");
    let questions = all(transaction, &questions, id, question_record).await?;
    let key = call.idempotency_key.as_ref().map_or("", ua_core::IdempotencyKey::as_str);
    let holders = all(transaction, HOLDER, key, call_record).await?;
    let holder = holders.iter().find(|other| other.call_id != call.call_id).map(|other| other.status);
    let context = DoubtContext { attempts: &attempts, receipts: &receipts, questions: &questions, holder };
    Ok(found_in_doubt(&call, context, is_over))
}

async fn all<T>(transaction: &Transaction<'_>, sql: &str, of: &str, read: fn(&Row) -> DbResult<T>) -> DbResult<Vec<T>> {
    transaction.query(sql, &[&of]).await?.iter().map(read).collect()
}

/// When and by which owner it was changed last stays as it is: nothing happened to it.
async fn put_in_doubt(transaction: &Transaction<'_>, call: &CallRecord) -> DbResult<()> {
    let sql = "UPDATE tool_calls SET status = $2, failure_kind = $3, doubt = $4, possible_effect = $5, resolution = $6, error_code = $7, \
               error_detail = $8 WHERE tool_call_id = $1";
    let effect = call.possible_effect.as_ref().map(stored_name).transpose()?;
    let (kind, doubt) = (call.status.failure_kind().map(FailureKind::as_str), call.doubt.map(i64::from));
    let resolution = opt_text(call.resolution.as_ref());
    let (id, status) = (call.call_id.as_str(), call.status.column());
    transaction
        .execute(sql, &[&id, &status, &kind, &doubt, &effect, &resolution, &call.error_code, &call.error_detail])
        .await?;
    Ok(())
}
