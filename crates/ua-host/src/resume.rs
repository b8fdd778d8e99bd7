//! Going on with a run.

use std::path::Path;
use std::sync::Arc;

use crate::Database;
use ua_core::{Audience, Component, RunSpec, RunStatus, ShowPath as _};
use ua_resume::NextStep;
use ua_runner::Workspace;
use ua_store::{FleetStore as _, QuestionStatus, RunRecord, RunStore, Store};

use crate::budgets::BudgetChange;
use crate::consent;
use crate::elsewhere::Elsewhere;
use crate::error::HostError;
use crate::home;
use crate::host::Host;
use crate::launch::{Launch, LaunchOptions};
use crate::pages::Due;
use crate::people::{End, People};
use crate::session::{self, Ending, Taking};
use crate::{budgets, gateway, input_files, paths, restart, tree};

/// What a person changes about a run with the command that resumes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changed components that are accepted as they are now.
    pub accept: Vec<Component>,
    /// Other budgets.
    pub budgets: Vec<BudgetChange>,
}

/// Resumes a run that was found by looking only, in `looked`. With `take_over` a living process that drives it is ended.
pub async fn found(
    host: &Host,
    people: &Arc<dyn People>,
    looked: Database,
    found: &RunRecord,
    options: &LaunchOptions,
    changes: Changes,
    take_over: bool,
) -> Result<Ending, HostError> {
    if found.status.is_terminal() {
        return finished(host, people.as_ref(), found).await;
    }
    tree::refuse_task(&looked, found, "resumed", "ua resume").await?;
    let store = host.home().open()?;
    // Let go of only now: the log that a killed process left is gone through by whoever has the database open first, and by nobody else.
    home::close(looked);
    let run = store.run(&found.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
    resume(host, people, store, run, options, changes, take_over).await
}

/// Resumes a run, or says how it ended.
pub async fn resume(
    host: &Host,
    people: &Arc<dyn People>,
    store: Database,
    run: RunRecord,
    options: &LaunchOptions,
    changes: Changes,
    take_over: bool,
) -> Result<Ending, HostError> {
    let name = run.run_id.clone();
    let ending = Box::pin(resumed(host, people, store, run, options, changes, take_over)).await;
    ending.map_err(|error| error.of_run(&name, false))
}

async fn resumed(
    host: &Host,
    people: &Arc<dyn People>,
    store: Database,
    run: RunRecord,
    options: &LaunchOptions,
    changes: Changes,
    take_over: bool,
) -> Result<Ending, HostError> {
    if run.status.is_terminal() {
        home::close(store);
        return finished(host, people.as_ref(), &run).await;
    }
    if ua_store::is_gateway(&run) {
        home::close(store);
        return Err(gateway::refused(&run));
    }
    if run.lease_epoch > 0
        && let Some(place) = Elsewhere::of(&store, &run.run_id).await?
    {
        return Err(HostError::usage(format!(
            "run {} is driven in {}, where its workspace and locks are",
            run.run_id,
            place.shown()
        ))
        .hint(format!(
            "resume it there; {}{}; nothing was changed",
            place.answers(&run.run_id),
            place.if_gone("lets the run continue here")
        )));
    }
    if run.lease_epoch > 0 && paths::is_missing(Path::new(&run.workspace_dir)) {
        return Err(HostError::storage(format!(
            "the workspace of run {} is missing: {}",
            run.run_id,
            Path::new(&run.workspace_dir).shown()
        ))
        .hint(host.home().find_workspace_again(&run.run_id, Path::new(&run.workspace_dir))));
    }
    tree::refuse_task(&store, &run, "resumed", "ua resume").await?;
    if Audience::of(&run.entrypoint) == Audience::Program {
        return of_program(host, people.as_ref(), store, &run, changes).await;
    }
    // What is asked for has to be possible before anything is changed: a limit of money without a price stops the run at once, and again.
    let mut changed = RunSpec::clone(&run.spec);
    budgets::put_into(&changes.budgets, &mut changed)?;
    let mut launch = Launch::of_run(host, &store, &run).await?;
    launch.overlay(host.settings(), &run.spec, options)?;
    launch.accept = changes.accept;
    if launch.accept.contains(&Component::Servers) {
        launch.accept_servers(host.settings(), &run.spec)?;
        launch.seal_accepted(host, &run.run_id);
    }
    launch.budgets = changes.budgets;
    consent::tell_unsaid(people.as_ref(), &launch);
    consent::ask_about(host, people.as_ref(), &launch, &run.spec).await?;
    consent::tell_untrusted_policies(host, people.as_ref(), &launch);
    consent::tell_lifted_questions(people.as_ref(), &run.spec);
    if let Err(error) = launch.check(host, &changed) {
        return Err(not_from_here(&store, &run, error).await);
    }
    input_files::tell_changed(host, people.as_ref(), &run.spec, launch.job_dir());
    Box::pin(session::run(host, people, store, run, &launch, if take_over { Taking::Over } else { Taking::Free })).await
}

/// The refusal to drive a run where something is missing. One in the queue has workers, whose settings are not those of this shell.
async fn not_from_here(store: &Database, run: &RunRecord, error: HostError) -> HostError {
    if !matches!(store.queued(&run.run_id).await, Ok(Some(_))) {
        return error;
    }
    let next = NextStep::of_queued(run);
    let command = match next.command().filter(|_| next.is_left_to_a_worker()) {
        Some(command) => command.to_owned(),
        None => format!("ua queue move {}", run.run_id),
    };
    error.and(&format!("the run is in the queue, and `{command}` leaves it to a worker, with the worker's settings"))
}

/// A run of a program is driven by that program, which alone has its tools and its model. What a person changes about its budgets is stored
/// for it.
async fn of_program(
    host: &Host,
    people: &dyn People,
    store: Database,
    run: &RunRecord,
    changes: Changes,
) -> Result<Ending, HostError> {
    changes.budgets.iter().try_for_each(|change| change.check(&run.spec))?;
    let refused = HostError::usage(format!("run {} belongs to a program that uses the library", run.run_id));
    if changes.budgets.is_empty() || !changes.accept.is_empty() {
        home::close(store);
        return Err(refused.hint(match changes.accept.as_slice() {
            [] => "run that program again: only it has the run's tools and its model",
            _ => "run that program again, with `run_accepting`: only it has the run's tools and its model",
        }));
    }
    let records = store.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
    let made_by = host.settings().user();
    budgets::apply(people, &store, &records, &changes.budgets, &made_by, host.env()).await?;
    home::close(store);
    people.tell(&format!("run the program of run {} again; it resumes the run", run.run_id));
    Ok(Ending::Waiting)
}

/// Applies what was answered about calls that a finished run had gone on without, if a process died before it could.
async fn settle_late_answers(host: &Host, run: &RunRecord) -> Result<(), HostError> {
    let open = host.home().open_read_only()?.open_questions(Some(&run.run_id)).await;
    let open = open.map_err(|e| HostError::store("read the questions", &e))?;
    if open.iter().any(|question| question.status == QuestionStatus::Answered) {
        let store = host.home().open()?;
        let due = Due::of(host.home(), &run.root_run_id);
        let settled = ua_ledger::settle_late_answers(&store, host.env(), &run.run_id).await;
        settled.map_err(|e| HostError::store("apply the answers", &e))?;
        due.make(host.home(), &store, None).await?;
        home::close(store);
    }
    Ok(())
}

/// Says how a finished run ended; its files are written again if somebody removed them.
async fn finished(host: &Host, people: &dyn People, run: &RunRecord) -> Result<Ending, HostError> {
    settle_late_answers(host, run).await?;
    let store = host.home().open_read_only()?;
    let records = store.load(&run.run_id).await.map_err(|e| HostError::store("load the run", &e))?;
    if let Ok(workspace) = host.home().open_workspace(run) {
        let completion = workspace.path(&format!("{}.md", Workspace::completion_name(&run.run_id)));
        if !completion.exists() {
            ua_runner::write_conclusion(&workspace, &records)?;
        }
    }
    // A process that died right behind the run's last write left a page that still says how to resume it.
    restart::write(host.home(), &store).await;
    people.tell(&format!("run {} is already finished; nothing was run", run.run_id));
    let next_command = restart::next_command(host.home(), run);
    people.show_end(&End { records: &records, next_command, taken_by: None })?;
    Ok(if run.status == RunStatus::Succeeded { Ending::Succeeded } else { Ending::Failed })
}
