//! `ua resume`: go on with a run.

use std::path::Path;

use ua_core::RunStatus;
use ua_runner::Workspace;
use ua_store::{RunRecord, RunStore};
use ua_store_sqlite::SqliteStore;

use crate::args::ResumeArgs;
use crate::compose::{Launch, absolute};
use crate::error::{CliError, FAILED, OK};
use crate::find;
use crate::home::Home;

use super::execute::How;
use super::{execute, summary};

pub(crate) async fn run(home: &Home, args: ResumeArgs) -> Result<u8, CliError> {
    let files = Files { mcp_config: args.mcp_config.as_deref(), pricing: args.pricing.as_deref() };
    let how = How { quiet: args.quiet, take_over: args.take_over };
    by_name(home, &args.run, files, how).await
}

/// Files that a resume may name anew; without one, that of the start is used.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Files<'a> {
    pub(crate) mcp_config: Option<&'a Path>,
    pub(crate) pricing: Option<&'a Path>,
}

/// Resumes the run that a person named.
pub(crate) async fn by_name(home: &Home, name: &str, files: Files<'_>, how: How) -> Result<u8, CliError> {
    // Looked up without touching anything first, so that a typing error changes nothing.
    let found = find::run(&home.open_read_only()?, name).await?;
    if found.status.is_terminal() {
        return finished(home, &found).await;
    }
    let store = home.open()?;
    let run = store.run(&found.run_id).await.map_err(|e| CliError::store("read the run", &e))?;
    resume(home, store, run, files, how).await
}

/// Resumes a run, or says how it ended.
pub(crate) async fn resume(
    home: &Home,
    store: SqliteStore,
    run: RunRecord,
    files: Files<'_>,
    how: How,
) -> Result<u8, CliError> {
    if run.status.is_terminal() {
        crate::home::close(store);
        return finished(home, &run).await;
    }
    if run.lease_epoch > 0 && !Path::new(&run.workspace_dir).is_dir() {
        return Err(CliError::storage(format!(
            "the workspace of run {} is not there: {}",
            run.run_id, run.workspace_dir
        ))
        .hint("put it back where it was; its files are part of the run"));
    }
    if run.entrypoint == "library" {
        crate::home::close(store);
        return Err(CliError::usage(format!("run {} belongs to a program that uses the library", run.run_id))
            .hint("run that program again: only it has the run's tools and its model"));
    }
    let mut launch = Launch::from_stored(&run.launch)?;
    if let Some(file) = files.mcp_config {
        launch.mcp_config = Some(absolute(file)?);
    }
    if let Some(file) = files.pricing {
        launch.pricing = Some(absolute(file)?);
    }
    launch.check(&run.spec)?;
    execute::execute(home, store, run, &launch, how).await
}

/// Says how a finished run ended; its files are written again if somebody removed them.
async fn finished(home: &Home, run: &RunRecord) -> Result<u8, CliError> {
    let store = home.open_read_only()?;
    let records = store.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
    if let Ok(workspace) = Workspace::open(Path::new(&run.workspace_dir)) {
        let completion = workspace.path(&format!("{}.md", Workspace::completion_name(&run.run_id)));
        if !completion.exists() {
            ua_runner::write_conclusion(&workspace, &records)?;
        }
    }
    // A process that died right behind the run's last write left a page that still says how to resume it.
    if summary::restart_file_is_about(home, run) && summary::write_restart_file(home, run).is_err() {
        tracing::warn!("RESTART.md could not be written");
    }
    crate::output::tell(&format!("run {} is finished already; nothing was run", run.run_id));
    summary::print(home, &records)?;
    Ok(if run.status == RunStatus::Succeeded { OK } else { FAILED })
}
