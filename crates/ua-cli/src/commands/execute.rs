//! One process's work on a run: lock, epoch, tool servers, drive, summary.

use std::path::Path;
use std::sync::Arc;

use tracing::Instrument as _;
use ua_core::{Budgets, Env, RunStatus, RunStop, Trace};
use ua_gateway::StopSignal;
use ua_runner::{Conclusion, DrainTimes, Interrupts, RunLock, Workspace, owner_stamp};
use ua_store::{RunRecord, RunRecords, RunStore as _, Store};
use ua_store_sqlite::SqliteStore;

use crate::alert::Alerts;
use crate::compose::Launch;
use crate::error::{CliError, FAILED, INTERRUPTED, OK, PROVIDER, WAITING};
use crate::home::Home;
use crate::live::Live;
use crate::parts::{self, Seams};
use crate::{restart, telemetry};

use super::ask::Answered;
use super::crew::{Crew, Taken, Worked};
use super::summary;

/// How a person wants it done.
#[derive(Debug, Clone)]
pub(crate) struct How {
    /// Print nothing but errors and the final summary.
    pub(crate) quiet: bool,
    /// End a living process that drives the run.
    pub(crate) take_over: bool,
    /// Never ask on the terminal.
    pub(crate) no_input: bool,
    /// How the run was forked, for a machine that reads the summary.
    pub(crate) fork: Option<serde_json::Value>,
}

impl How {
    /// Whether somebody sits at the terminal who may be asked.
    fn is_attended(&self) -> bool {
        !self.quiet && !self.no_input && super::ask::is_attended()
    }
}

/// What one life of a run, from its acquisition to the end of this process's work on it, came to.
struct Life {
    code: u8,
    records: RunRecords,
}

/// Takes the run and drives it to a conclusion of this process. Returns the exit code. While somebody sits at the terminal, a run
/// that would wait asks there, and goes on as a resume would.
pub(crate) async fn execute(
    home: &Home,
    store: SqliteStore,
    run: RunRecord,
    launch: &Launch,
    how: How,
) -> Result<u8, CliError> {
    let env = ua_core::system::env();
    let seams = parts::seams();
    let alerts = Alerts::from_env(home)?;
    let owner = owner_stamp(Trace::new(&env));
    let _lock = if how.take_over {
        RunLock::take_over(&home.locks(), &run.run_id, &owner, &env).await?
    } else {
        RunLock::take(&home.locks(), &run.run_id, &owner)?
    };
    can_lock(home)?;
    // A process that was asked to end may have ended the run.
    let run = if how.take_over {
        store.run(&run.run_id).await.map_err(|e| CliError::store("read the run", &e))?
    } else {
        run
    };
    let stop = StopSignal::default();
    let interrupts =
        Interrupts::listen().map_err(|e| CliError::new(FAILED, format!("cannot listen for signals: {e}")))?;
    tokio::spawn(interrupts.watch(stop.clone(), DrainTimes::default(), env.clone(), end_at_once));

    let store: Arc<SqliteStore> = Arc::new(store);
    let is_attended = how.is_attended();
    let mut launch = launch.clone();
    let (mut run, run_id) = (run.clone(), run.run_id);
    let code = loop {
        let trace = Trace::new(&env);
        let span = telemetry::begin_run(&run, &trace);
        let life = Box::pin(life(home, &store, run, &launch, &how, &seams, &stop, &env, trace)).instrument(span);
        let life = match life.await {
            Ok(life) => life,
            Err(error) => break Err(error),
        };
        let waits = life.code == WAITING && life.records.run.status == RunStatus::WaitingForHuman;
        if waits && is_attended && !stop.is_stopping() {
            match super::ask::all_of_run(&store, &run_id).await {
                Ok(Answered::Yes) => {
                    // What a person changed with this command is stored by now.
                    launch.accept.clear();
                    launch.budgets.clear();
                    run = life.records.run;
                    continue;
                }
                Ok(Answered::Later) => {}
                Err(error) => error.print(),
            }
        } else if let Some(alerts) = &alerts {
            alerts.tell(&life.records).await;
        }
        if let Err(error) = summary::print(home, &life.records, how.fork.clone()) {
            error.print();
        }
        break Ok(life.code);
    };
    if let Some(store) = Arc::into_inner(store) {
        crate::home::close(store);
    }
    code
}

/// One life of a run: epoch, tool servers, drive.
#[expect(clippy::too_many_arguments, reason = "what the process has, lent for one life")]
async fn life(
    home: &Home,
    store: &Arc<SqliteStore>,
    run: RunRecord,
    launch: &Launch,
    how: &How,
    seams: &Arc<dyn Seams>,
    stop: &StopSignal,
    env: &Env,
    trace: Trace,
) -> Result<Life, CliError> {
    let owner = owner_stamp(trace.clone());
    // A cancelled run sends nothing more, so it may end whatever the database forgot.
    if run.cancel_requested_at.is_none() {
        super::db::refuse_forgotten(store, &run.run_id).await?;
    }
    let port = seams.store(store.clone());
    // Before the run is taken: one that was never taken may not have its folder yet, a fork not its files.
    ua_runner::settle_workspace(home.root(), &run)?;
    let workspace = Workspace::create(Path::new(&run.workspace_dir))?;
    let acquired_at = env.now();
    let (lease, run) =
        port.acquire_run(&run.run_id, &owner, acquired_at).await.map_err(|e| CliError::store("take the run", &e))?;
    ua_runner::place_input_files(&run, &workspace, port.as_ref()).await?;
    telemetry::link_earlier(&run, &trace);
    restart::write(home, port.as_ref()).await;
    if !launch.budgets.is_empty() {
        let records = port.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
        crate::budgets::apply(port.as_ref(), &records, &launch.budgets, env).await?;
    }
    crate::output::tell(&format!("run {} · workspace {}", run.run_id, run.workspace_dir));
    if !how.quiet {
        crate::output::tell(&format!("to resume: {}", restart::resume_command(home, &run)));
    }
    let live = (!how.quiet && crate::terminal::can_draw()).then(|| Arc::new(Live::start()));
    if let Some(live) = &live {
        live.limits(&budgets_of(&port, &run).await?, std::time::Duration::from_millis(run.held_millis));
    }
    let crew = Crew {
        home: home.clone(),
        store: store.clone(),
        port: port.clone(),
        launch: launch.clone(),
        quiet: how.quiet,
        is_attended: how.is_attended(),
        no_input: how.no_input,
        seams: seams.clone(),
        env: env.clone(),
        trace,
        live: live.clone(),
    };
    let worked = crew.work(Taken { run, lease, workspace: workspace.clone(), acquired_at }, stop).await;
    if let Some(live) = live {
        live.finish();
    }
    let Worked { conclusion, run, is_driven } = worked?;
    let mut records = port.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
    // The run's end is stored; a file or a terminal that only repeats it must not turn it into a failure.
    if !is_driven && ua_runner::write_conclusion(&workspace, &records).is_err() {
        tracing::warn!("the completion file could not be written");
    }
    restart::write(home, port.as_ref()).await;
    // What sub-agents ask waits for the same person.
    records.questions.extend(super::tree::questions_below(port.as_ref(), &records).await?);
    Ok(Life { code: exit_code(&conclusion), records })
}

/// Refuses a folder of locks in which nothing new can be made, before the run is taken: each tool server needs a lock file.
fn can_lock(home: &Home) -> Result<(), CliError> {
    let folder = home.locks();
    tempfile::tempfile_in(&folder).map(drop).map_err(|e| {
        CliError::storage(format!("cannot make files in {}: {e}", folder.display()))
            .hint("make that folder writable, then `ua resume last`; nothing was sent")
    })
}

/// The budgets that count now.
async fn budgets_of(store: &Arc<dyn Store>, run: &RunRecord) -> Result<Budgets, CliError> {
    let records = store.load_turns(&run.run_id, 0, 0).await.map_err(|e| CliError::store("read the budgets", &e))?;
    Ok(records.budgets())
}

fn exit_code(conclusion: &Conclusion) -> u8 {
    match conclusion {
        Conclusion::Succeeded { .. } => OK,
        Conclusion::Failed { .. } | Conclusion::Cancelled => FAILED,
        Conclusion::Waiting { .. } => WAITING,
        Conclusion::Stopped { reason, .. } => match reason {
            RunStop::Interrupt => INTERRUPTED,
            RunStop::Provider => PROVIDER,
            RunStop::Budget | RunStop::Fingerprint | RunStop::ToolServer => WAITING,
        },
    }
}

/// A second signal: whatever is in flight stays in flight, which a resume knows how to read.
#[expect(clippy::disallowed_methods, reason = "a second signal asks to end without cleaning up")]
fn end_at_once() {
    std::process::exit(i32::from(INTERRUPTED));
}
