//! `ua runs cancel` of a run that no process drives: it is ended here, instead of by a resume that may never come.

use std::path::Path;

use ua_core::Trace;
use ua_dispatch::{Fence, ToolTransport as _};
use ua_host::Database;
use ua_host::{Host, servers, tree};
use ua_runner::{LockError, RunLock, Workspace, end_cancelled, owner_stamp};
use ua_store::{RunRecord, RunStore as _, Store, StoreError};

use crate::error::HostError;

/// Ends a run for which a cancel is stored. False when a living process drives it, which then does so itself.
///
/// # Errors
/// When something of an earlier process is still alive: what it was sent may still happen, so the run is not called over.
pub(super) async fn end_now(host: &Host, store: &Database, run: &RunRecord) -> Result<bool, HostError> {
    let (home, env) = (host.home(), host.env());
    let trace = Trace::new(env);
    let owner = owner_stamp(trace);
    let _lock = match RunLock::take(&home.locks(), &run.run_id, &owner) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) => return Ok(false),
        Err(error) => return Err(error.into()),
    };
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
        .hint(format!("the cancel is stored; end that process, then `ua resume {}` ends the run", run.run_id)));
    }
    let fail = |doing: &'static str| move |error| HostError::store(doing, &error);
    let current = store.run(&run.run_id).await.map_err(fail("read the run"))?;
    if current.status.is_terminal() {
        return Ok(true); // its process ended it meanwhile
    }
    let workspace = Workspace::create(Path::new(&run.workspace_dir))?.with_commands(host.home().commands());
    let (lease, _) = match store.acquire_run(&run.run_id, &owner, env.now()).await {
        Ok(taken) => taken,
        // Another machine drives it, and ends it.
        Err(StoreError::Conflict { .. }) if store.elsewhere(&run.run_id).await?.is_some() => return Ok(false),
        Err(error) => return Err(fail("take the run")(error)),
    };
    end_cancelled(store, &lease, &workspace, env).await?;
    let ended = store.run(&run.run_id).await.map_err(fail("read the run"))?;
    ua_host::fleet::withdraw_ended(store, &ended).await;
    ua_host::restart::write(home, store).await;
    Ok(true)
}
