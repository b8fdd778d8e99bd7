//! What `effects.log` knows and the database does not: a database that went back in time.

use ua_core::RunId;
use ua_store_sqlite::{ForgottenAttempt, SqliteStore};

use crate::error::HostError;

/// One forgotten attempt on one line.
pub fn shown(attempt: &ForgottenAttempt) -> String {
    let ForgottenAttempt { at, run_id, tool_call_id, attempt: number, tool, correction, .. } = attempt;
    match correction {
        Some(word) => format!("{at}  run {run_id}: `{tool}` (call {tool_call_id}): {}", word.sentence()),
        None => format!("{at}  run {run_id}: `{tool}` was sent (call {tool_call_id}, attempt {number})"),
    }
}

/// Refuses to drive a run of whose family more was sent than the database knows: what a sub-agent or a fork of it did counts for it, and
/// what was sent by a run of which nobody knows any more whose it is counts for every run.
pub async fn refuse(store: &SqliteStore, run: &RunId) -> Result<(), HostError> {
    let forgotten = store
        .forgotten_attempts(run)
        .await
        .map_err(|e| HostError::store("compare the database with effects.log", &e))?;
    let Some(first) = forgotten.first() else { return Ok(()) };
    let is_own = forgotten.iter().all(|attempt| attempt.run_id == run.as_str());
    let whose = if is_own { format!("run {run}") } else { format!("the family of run {run}") };
    Err(HostError::storage(format!(
        "the database went back in time: effects.log knows {} thing(s) about {whose} that it does not; {}",
        forgotten.len(),
        shown(first)
    ))
    .hint(format!(
        "nothing was sent; restore a newer copy of the database; or look what became of them (`ua db check` lists all), then `ua db accept \
         {run}`, and say with `ua calls resolve CALL` again what a person had said"
    )))
}
