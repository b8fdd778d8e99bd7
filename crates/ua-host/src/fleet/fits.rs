//! What a worker has to see before it drives a run, above all one that another machine began.
//!
//! - **Workspace.** The run's folder is below the worker's root: all workers of a database have the same `--root`. A run that was begun here has
//!   its folder; one of a machine that a person gave up, which is the only one that is offered here, begins anew with an empty one.
//! - **Tool servers and policies.** Those that the run was submitted with are configured on this machine, under the same paths, and trusted. That they
//!   are the same ones is what the run's pins say, when it is driven.
//! - **Model and secrets.** There is a key for the provider, and the user's secrets can be read.
//!
//! A run that does not fit stays in the queue with the reason, and another worker may take it.

use std::path::Path;
use std::sync::Arc;

use ua_store::RunRecord;

use crate::consent;
use crate::database::{Database, Whereabouts};
use crate::error::HostError;
use crate::host::Host;
use crate::launch::{Begun, Launch};
use crate::people::People;
use ua_core::ShowPath as _;

/// How the run is started here, if it can be.
pub(super) async fn fits(
    host: &Host,
    people: &Arc<dyn People>,
    store: &Database,
    run: &RunRecord,
) -> Result<Launch, HostError> {
    let (root, workspace) = (host.home().root(), Path::new(&run.workspace_dir));
    if host.home().inside_root(workspace).is_none() {
        return Err(HostError::usage(format!(
            "its workspace is {}, which is not below this worker's root {}",
            workspace.shown(),
            root.shown()
        ))
        .hint("start all workers of a database, and `ua submit`, with the same --root"));
    }
    if run.lease_epoch > 0 && !workspace.is_dir() && is_here(store, run).await? {
        return Err(HostError::storage(format!("its workspace is missing: {}", workspace.shown()))
            .hint(host.home().find_workspace_again(&run.run_id, workspace)));
    }
    let launch = Launch::of_run(host, store, run).await?;
    consent::ask_about(host, people.as_ref(), &launch, &run.spec).await?;
    launch.check(host, &run.spec)?;
    if run.current_step_id.is_none() && run.task_call_id.is_none() {
        launch.check_policies(host.settings(), Begun::Run(&run.run_id))?;
    }
    host.secrets()?;
    Ok(launch)
}

/// Whether the run was driven here before.
async fn is_here(store: &Database, run: &RunRecord) -> Result<bool, HostError> {
    let found = store.whereabouts(&[&run.run_id]).await;
    Ok(found.map_err(|e| HostError::store("look where the run is driven", &e))?.contains(&Whereabouts::Here))
}
