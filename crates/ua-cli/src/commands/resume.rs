//! `ua resume`: go on with a run.

use std::path::Path;

use ua_core::{Component, RunStatus};
use ua_runner::Workspace;
use ua_store::{QuestionStatus, RunRecord, RunStore};
use ua_store_sqlite::SqliteStore;

use crate::args::{LaunchArgs, ResumeArgs};
use crate::budgets::BudgetChange;
use crate::compose::Launch;
use crate::error::{CliError, FAILED, OK};
use crate::find;
use crate::home::Home;

use super::execute::How;
use super::{accept, execute, summary};

pub(crate) async fn run(home: &Home, args: ResumeArgs) -> Result<u8, CliError> {
    let accept = accept::components(&args.accept)?;
    let is_json = crate::terminal::is_json();
    let how =
        How { quiet: args.quiet || is_json, take_over: args.take_over, no_input: args.no_input || is_json, fork: None };
    let launch = LaunchArgs { mcp_config: args.mcp_config, pricing: args.pricing, ..LaunchArgs::default() };
    let changes = Changes { accept, budgets: BudgetChange::of(&args.budgets)? };
    by_name(home, &args.run, &launch, changes, how).await
}

/// What a person changes about a run with the command that resumes it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Changed components that are accepted as they are now.
    pub(crate) accept: Vec<Component>,
    /// Other budgets.
    pub(crate) budgets: Vec<BudgetChange>,
}

/// Resumes the run that a person named.
pub(crate) async fn by_name(
    home: &Home,
    name: &str,
    args: &LaunchArgs,
    changes: Changes,
    how: How,
) -> Result<u8, CliError> {
    // Looked up without touching anything first, so that a typing error changes nothing.
    let found = find::run(&home.open_read_only()?, name).await?;
    if found.status.is_terminal() {
        return finished(home, &found).await;
    }
    super::tree::refuse_task(&home.open_read_only()?, &found, "resumed", "ua resume").await?;
    let store = home.open()?;
    let run = store.run(&found.run_id).await.map_err(|e| CliError::store("read the run", &e))?;
    resume(home, store, run, args, changes, how).await
}

/// Resumes a run, or says how it ended.
pub(crate) async fn resume(
    home: &Home,
    store: SqliteStore,
    run: RunRecord,
    args: &LaunchArgs,
    changes: Changes,
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
    super::tree::refuse_task(&store, &run, "resumed", "ua resume").await?;
    if run.entrypoint == "library" {
        crate::home::close(store);
        return Err(CliError::usage(format!("run {} belongs to a program that uses the library", run.run_id))
            .hint("run that program again: only it has the run's tools and its model"));
    }
    changes.budgets.iter().try_for_each(|change| change.check(&run.spec))?;
    let mut launch = Launch::from_stored(&run.launch)?;
    launch.overlay(&run.spec, args)?;
    launch.accept = changes.accept;
    launch.budgets = changes.budgets;
    super::trust::ask_about(&launch, &run.spec, !how.no_input && !how.quiet).await?;
    launch.check(&run.spec)?;
    crate::input_files::tell_changed(&run.spec, launch.job_dir());
    Box::pin(execute::execute(home, store, run, &launch, how)).await
}

/// Applies what was answered about calls that a finished run had gone on without, if a process died before it could.
async fn settle_late_answers(home: &Home, run: &RunRecord) -> Result<(), CliError> {
    let open = home.open_read_only()?.open_questions(Some(&run.run_id)).await;
    let open = open.map_err(|e| CliError::store("read the questions", &e))?;
    if open.iter().any(|question| question.status == QuestionStatus::Answered) {
        let store = home.open()?;
        let settled = ua_ledger::settle_late_answers(&store, &ua_core::system::env(), &run.run_id).await;
        settled.map_err(|e| CliError::store("apply the answers", &e))?;
        crate::home::close(store);
    }
    Ok(())
}

/// Says how a finished run ended; its files are written again if somebody removed them.
async fn finished(home: &Home, run: &RunRecord) -> Result<u8, CliError> {
    settle_late_answers(home, run).await?;
    let store = home.open_read_only()?;
    let records = store.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
    if let Ok(workspace) = Workspace::open(Path::new(&run.workspace_dir)) {
        let completion = workspace.path(&format!("{}.md", Workspace::completion_name(&run.run_id)));
        if !completion.exists() {
            ua_runner::write_conclusion(&workspace, &records)?;
        }
    }
    // A process that died right behind the run's last write left a page that still says how to resume it.
    crate::restart::write(home, &store).await;
    crate::output::tell(&format!("run {} is finished already; nothing was run", run.run_id));
    summary::print(home, &records, None)?;
    Ok(if run.status == RunStatus::Succeeded { OK } else { FAILED })
}
