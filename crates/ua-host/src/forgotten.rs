//! What `effects.log` knows and the database does not: a database that went back in time.

use crate::Database;
use ua_core::RunId;
use ua_store_sqlite::Forgotten;

use crate::error::HostError;

/// What was forgotten, on one line.
pub fn shown(forgotten: &Forgotten) -> String {
    let Forgotten { at, run_id, tool_call_id, attempt, tool, status, correction, word, question_id, .. } = forgotten;
    let call = tool_call_id.as_deref().unwrap_or_default();
    match (word, question_id, correction) {
        (Some(word), Some(question), _) => format!("{at}  run {run_id}: question {question} was answered `{word}`"),
        (Some(_), None, _) => format!("{at}  run {run_id}: a person cancelled it"),
        (None, _, Some(word)) => format!("{at}  run {run_id}: `{tool}` (call {call}): {}", word.sentence()),
        (None, _, None) => format!("{at}  run {run_id}: `{tool}` was sent (call {call}, attempt {attempt}): {status}"),
    }
}

/// Refuses to drive a run of whose family more was sent than the database knows: what a sub-agent or a fork of it did counts for it, and
/// what was sent by a run of which nobody knows any more whose it is counts for every run.
pub async fn refuse(store: &Database, run: &RunId) -> Result<(), HostError> {
    let forgotten =
        store.forgotten(run).await.map_err(|e| HostError::store("compare the database with effects.log", &e))?;
    let Some(first) = forgotten.first() else { return Ok(()) };
    let is_own = forgotten.iter().all(|known| known.run_id == run.as_str());
    let whose = if is_own { format!("run {run}") } else { format!("the family of run {run}") };
    Err(HostError::storage(format!(
        "the database went back in time: effects.log knows {} about {whose} that it does not; {}",
        ua_core::counted(forgotten.len(), "thing"),
        shown(first)
    ))
    .hint(format!(
        "nothing was sent; restore a newer copy of the database; or look what became of them (`ua db check` lists all), then `ua db accept \
         {run}`, and say with `ua calls resolve CALL` again what a person had said"
    )))
}
