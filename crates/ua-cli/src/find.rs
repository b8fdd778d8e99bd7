//! Finding rows by what a person types: an id, the beginning of one, or `last`.

use ua_core::{CallId, QuestionId, RunId};
use ua_store::{CallRecord, QuestionRecord, RunRecord, Store, StoreError};

use crate::error::CliError;

/// How many runs are looked through for a prefix.
const MANY: u32 = 100_000;

/// The run that `text` names.
pub(crate) async fn run(store: &dyn Store, text: &str) -> Result<RunRecord, CliError> {
    let fail = |error: &StoreError| CliError::store("look for the run", error);
    if text == "last" {
        let newest = store.runs(1).await.map_err(|e| fail(&e))?;
        return newest
            .into_iter()
            .next()
            .ok_or_else(|| CliError::usage("there is no run yet").hint("start one with `ua job FILE`"));
    }
    if let Ok(id) = RunId::parse(text) {
        match store.run(&id).await {
            Ok(run) => return Ok(run),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(fail(&error)),
        }
    }
    let runs = store.runs(MANY).await.map_err(|e| fail(&e))?;
    one("run", text, runs.into_iter().filter(|run| run.run_id.as_str().starts_with(text)).collect(), |run| {
        run.run_id.to_string()
    })
    .map_err(|error| error.hint("`ua runs list` shows them; `last` is the newest"))
}

/// The call that `text` names.
pub(crate) async fn call(store: &dyn Store, text: &str) -> Result<CallRecord, CliError> {
    let fail = |error: &StoreError| CliError::store("look for the call", error);
    if let Ok(id) = CallId::parse(text) {
        match store.call(&id).await {
            Ok(call) => return Ok(call),
            Err(StoreError::NotFound { .. }) => {}
            Err(error) => return Err(fail(&error)),
        }
    }
    let mut calls = Vec::new();
    for run in store.runs(200).await.map_err(|e| fail(&e))? {
        calls.extend(store.calls(&run.run_id, None).await.map_err(|e| fail(&e))?);
    }
    one("call", text, calls.into_iter().filter(|call| call.call_id.as_str().starts_with(text)).collect(), |call| {
        call.call_id.to_string()
    })
    .map_err(|error| error.hint("`ua calls list --run last` shows them"))
}

/// The question that `text` names, among those that are not closed.
pub(crate) async fn question(store: &dyn Store, text: &str) -> Result<QuestionRecord, CliError> {
    if let Ok(id) = QuestionId::parse(text)
        && let Ok(question) = store.question(&id).await
    {
        return Ok(question);
    }
    let open = store.open_questions(None).await.map_err(|e| CliError::store("look for the question", &e))?;
    one("question", text, open.into_iter().filter(|q| q.question_id.as_str().starts_with(text)).collect(), |q| {
        q.question_id.to_string()
    })
    .map_err(|error| error.hint("`ua questions` shows what waits for an answer"))
}

fn one<T>(what: &str, text: &str, mut found: Vec<T>, id: impl Fn(&T) -> String) -> Result<T, CliError> {
    if found.len() == 1 {
        return Ok(found.remove(0));
    }
    if found.is_empty() {
        return Err(CliError::usage(format!("there is no {what} `{text}`")));
    }
    let ids: Vec<String> = found.iter().take(5).map(id).collect();
    Err(CliError::usage(format!("`{text}` is the beginning of {} {what}s: {}", found.len(), ids.join(", "))))
}
