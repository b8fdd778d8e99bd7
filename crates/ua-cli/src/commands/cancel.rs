//! Ending a run that no process drives, when a person said that it is to end (`ua runs cancel`, or the answer `abort`): it is ended here, instead
//! of by a resume that may never come.

use ua_core::{Audience, CallId, CallStatus, RunId, Trace};
use ua_dispatch::{Fence, ToolTransport as _};
use ua_host::Database;
use ua_host::{Host, questions, servers, tree};
use ua_runner::{LateFile, LockError, RunLock, end_as_said, owner_stamp};
use ua_store::{CallRecord, LedgerStore as _, RunRecord, RunStore as _, Store, StoreError, is_gateway};

use crate::error::HostError;
use crate::ids::short;

/// What is next once somebody answered on the terminal.
///
/// # Errors
/// The database cannot be read; or what [`end_now`] says.
pub(super) async fn after_answer(host: &Host, store: &Database, run: &RunId) -> Result<String, HostError> {
    match end_if_asked(host, store, run).await? {
        Some(ended) => Ok(ended),
        None => questions::after_answer(host.home(), store, run).await,
    }
}

/// Ends a run of which a person said that it is to end, and says so. `None` when nobody said that, when a process drives it, which then ends it
/// by itself, and for what is no run of its own: a sub-agent ends with the next resume of the run above it, a session of the gateway with its
/// client.
///
/// # Errors
/// What [`end_now`] says.
pub(super) async fn end_if_asked(host: &Host, store: &Database, run: &RunId) -> Result<Option<String>, HostError> {
    let run = store.run(run).await.map_err(|e| HostError::store("read the run", &e))?;
    let is_to_end = run.end_mark().is_some() && !run.status.is_terminal();
    if !is_to_end || is_gateway(&run) || ua_store::is_task(&run) || !end_now(host, store, &run).await? {
        return Ok(None);
    }
    let left = left_unknown(store, &run).await?;
    Ok(Some(format!("ended run {}{left}", short(run.run_id.as_str()))))
}

/// What nobody knows of a run that was ended, as the end of a sentence.
pub(super) async fn left_unknown(store: &Database, run: &RunRecord) -> Result<String, HostError> {
    // A read that was dropped has changed nothing, and is simply made again. Of a task its sub-agent's calls say what came of it.
    let is_in_doubt =
        |call: &&CallRecord| call.status == CallStatus::Unknown && !call.policy.is_free_read() && !call.name.is_task();
    let mut unknown: Vec<CallId> = Vec::new();
    for run in tree::with_those_below(store, &run.run_id).await? {
        let calls = store.calls(&run, None).await.map_err(|e| HostError::store("read the calls", &e))?;
        unknown.extend(calls.iter().filter(is_in_doubt).map(|call| call.call_id.clone()));
    }
    let (call, it, of_it) = match unknown.as_slice() {
        [] => return Ok(String::new()),
        [only] => (short(only.as_str()), "it", "it"),
        [_, ..] => ("CALL", "them", "each"),
    };
    let keeps = if is_gateway(run) {
        "a repeat is blocked".to_owned()
    } else {
        // Of a program's run nobody knows under which id its step is run next.
        Audience::of(&run.entrypoint).pick(
            "the job is not started again without a word from you".to_owned(),
            format!("a fork of the run asks before it repeats {it}, while under another id the step does it again"),
        )
    };
    Ok(format!(
        "; {} may or may not have happened, and {keeps}: `ua calls list --run {} --unknown` shows {it}, and {} says what became of {of_it}",
        ua_core::counted(unknown.len(), "call"),
        short(run.run_id.as_str()),
        ua_resume::correct_by_hand(call)
    ))
}

/// Ends a run of which it is stored that it is to end. False when a living process drives it, which then does so itself.
///
/// # Errors
/// When something of an earlier process is still alive: what it was sent may still happen, so the run is not called over.
pub(super) async fn end_now(host: &Host, store: &Database, run: &RunRecord) -> Result<bool, HostError> {
    let ended = Box::pin(ended_now(host, store, run)).await;
    ended.map_err(|error| error.continued_by(&run.run_id, format!("ua runs cancel {}", run.run_id), false))
}

async fn ended_now(host: &Host, store: &Database, run: &RunRecord) -> Result<bool, HostError> {
    let (home, env) = (host.home(), host.env());
    // Its locks and files are those of the user whose root it is, whose worker ends the run.
    if home.is_somebody_elses() {
        return Ok(false);
    }
    let trace = Trace::new(env);
    let owner = owner_stamp(trace);
    let lock = match RunLock::take(&home.locks(), &run.run_id, &owner) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let owner = lock.after_those_before(owner);
    // Those below it first, the deepest of them foremost: each as if it stood alone.
    for child in tree::runs_below(store, &run.run_id).await?.into_iter().rev() {
        if !child.status.is_terminal() && !Box::pin(end_now(host, store, &child)).await? {
            return Ok(false);
        }
    }
    // Without servers of its own it starts none; it ends those that an earlier process left behind.
    let servers = servers::transport(host, Vec::new(), &home.locks(), run.run_id.clone())?;
    if let Fence::Alive { detail } = servers.fence_earlier().await {
        return Err(HostError::waiting(format!(
            "a tool server of run {} is still alive and could not be ended: {detail}",
            run.run_id
        ))
        .hint(format!(
            "the request to end the run is stored; end that process, then {} ends the run",
            ua_resume::NextStep::of(run).who()
        )));
    }
    let fail = |doing: &'static str| move |error| HostError::store(doing, &error);
    let current = store.run(&run.run_id).await.map_err(fail("read the run"))?;
    if current.status.is_terminal() {
        return Ok(true); // its process ended it meanwhile
    }
    let passing = if is_gateway(run) { Some(home.passing_workspace()?) } else { None };
    let made = passing.as_ref().map_or_else(|| home.make_workspace(run), |(_, workspace)| Ok(workspace.clone()));
    let workspace = match made {
        Ok(workspace) => workspace,
        // Its workspace is where it is driven.
        Err(_) if store.elsewhere(&run.run_id).await?.is_some() => return Ok(false),
        Err(error) => return Err(error),
    };
    let (lease, _) = match store.acquire_run(&run.run_id, &owner, env.now()).await {
        Ok(taken) => taken,
        // Another machine drives it, and ends it.
        Err(StoreError::Conflict { .. }) if store.elsewhere(&run.run_id).await?.is_some() => return Ok(false),
        Err(error) => return Err(fail("take the run")(error)),
    };
    // Where nobody kept logs, they are made from the rows with the other files.
    let has_logs = workspace.path("run.log").exists();
    let done = end_as_said(store, &LateFile::at(home.late_replies()), &lease, &workspace, env).await;
    if done.is_err() {
        lock.note_error();
    }
    done?;
    let ended = store.run(&run.run_id).await.map_err(fail("read the run"))?;
    if has_logs {
        ua_host::progress::keep_end(store, &workspace, host.redactor(), &ended).await?;
    }
    ua_host::fleet::withdraw_ended(store, &ended).await;
    ua_host::restart::write(home, store).await;
    Ok(true)
}
