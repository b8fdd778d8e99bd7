//! What `effects.log` knows and the database does not: a database that went back in time.

use ua_core::RunId;
use ua_store_sqlite::{ForgottenAttempt, SqliteStore};

use crate::error::HostError;

/// One forgotten attempt on one line.
pub fn shown(attempt: &ForgottenAttempt) -> String {
    let ForgottenAttempt { at, run_id, tool_call_id, attempt: number, tool, .. } = attempt;
    format!("{at}  run {run_id}: `{tool}` was sent (call {tool_call_id}, attempt {number})")
}

/// Refuses to drive a run of which more was sent than the database knows.
pub async fn refuse(store: &SqliteStore, run: &RunId) -> Result<(), HostError> {
    let forgotten = store
        .forgotten_attempts(run)
        .await
        .map_err(|e| HostError::store("compare the database with effects.log", &e))?;
    let Some(first) = forgotten.first() else { return Ok(()) };
    Err(HostError::storage(format!(
        "the database went back in time: effects.log knows {} attempt(s) of run {run} that it does not; {}",
        forgotten.len(),
        shown(first)
    ))
    .hint(format!(
        "nothing was sent; restore a newer copy of the database, or look what became of them, then `ua db accept {run}`"
    )))
}
