//! One process's work on a run: lock, epoch, tool servers, drive, summary.

use std::path::Path;
use std::sync::Arc;

use tracing::Instrument as _;
use ua_core::{Budgets, Env, RunStatus, RunStop, Trace};
use ua_gateway::{Fence, StopSignal, ToolTransport as _};
use ua_runner::{
    Conclusion, DrainTimes, Interrupts, RunError, RunLock, Workspace, drive, owner_stamp, park_for_orphan,
    park_for_tool_server, say_alive,
};
use ua_store::{RunEnd, RunLease, RunRecord, RunRecords, RunStore as _, Store, budgets_with};
use ua_store_sqlite::SqliteStore;

use crate::alert::Alerts;
use crate::compose::{self, Launch};
use crate::crash_points::Seams;
use crate::error::{CliError, FAILED, INTERRUPTED, OK, PROVIDER, WAITING, chain};
use crate::home::Home;
use crate::live::Live;
use crate::progress;
use crate::{restart, telemetry};

use super::ask::Answered;
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
    let seams = Seams::open();
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
    let is_attended = !how.quiet && !how.no_input && super::ask::is_attended();
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
    seams: &Seams,
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
    telemetry::link_earlier(&run, &trace);
    restart::write(home, port.as_ref()).await;
    if !launch.budgets.is_empty() {
        let records = port.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
        crate::budgets::apply(port.as_ref(), &records, &launch.budgets, env).await?;
    }
    let overrides = port.overrides(&run.run_id).await.map_err(|e| CliError::store("read the run's budgets", &e))?;
    crate::output::tell(&format!("run {} · workspace {}", run.run_id, run.workspace_dir));
    if !how.quiet {
        crate::output::tell(&format!("to resume: {}", restart::resume_command(home, &run)));
    }

    let transport = compose::tool_servers(home, &run, launch, env)?;
    let redactor = compose::redactor(home, &run, launch)?;
    let live = (!how.quiet && crate::terminal::can_draw()).then(|| Arc::new(Live::start()));
    if let Some(live) = &live {
        live.limits(&budgets_of(&port, &run).await?, std::time::Duration::from_millis(run.held_millis));
    }
    // Beside the drive, and not through its seams: it is no step of the run.
    let alive = tokio::spawn(say_alive(store.clone(), lease.clone(), env.clone()));
    let mut is_driven = false;
    let driven = match transport.fence_earlier().await {
        Fence::Alive { detail } => park_for_orphan(port.as_ref(), &lease, env, &detail).await,
        Fence::Gone => match until_stopped(transport.list(), stop).await {
            None => park_for_signal(port.as_ref(), &lease, env).await,
            Some(Err(error)) => park_for_tool_server(port.as_ref(), &lease, env, &chain(&error)).await,
            Some(Ok(specs)) => {
                is_driven = true;
                if let Ok(classifier) = launch.classifier() {
                    super::audit::note(home.root(), &run.run_id, &specs, &classifier, env.now());
                }
                let wiring = compose::Wiring {
                    run: &run,
                    launch,
                    store: port.clone(),
                    lease: lease.clone(),
                    trace,
                    transport: transport.clone(),
                    redactor: redactor.clone(),
                    specs,
                    watcher: progress::watcher(workspace.clone(), env.clone(), how.quiet, live.clone()),
                    workspace: workspace.clone(),
                    locks: home.locks(),
                    env: env.clone(),
                    stop: stop.clone(),
                    budgets: budgets_with(&run.spec.budgets, &overrides),
                    seams,
                };
                match compose::wire(wiring) {
                    Ok((ports, settings)) => {
                        let driven = Box::pin(drive(&ports, &settings, acquired_at)).await;
                        ports.llm.close().await;
                        driven
                    }
                    Err(error) => {
                        // The tools and the policies do not fit together: nothing was sent, and a resume may find them mended.
                        transport.shutdown().await;
                        alive.abort();
                        let _cancelled = alive.await;
                        let parked = park_for_tool_server(port.as_ref(), &lease, env, &error.to_string()).await;
                        return Err(parked.err().map_or(error, CliError::from));
                    }
                }
            }
        },
    };
    transport.shutdown().await;
    if let Some(live) = live {
        live.finish();
    }
    alive.abort();
    let _cancelled = alive.await;
    match driven {
        Ok((conclusion, run)) => {
            let records = port.load(&run.run_id).await.map_err(|e| CliError::store("load the run", &e))?;
            // The run's end is stored; a file or a terminal that only repeats it must not turn it into a failure.
            if !is_driven && ua_runner::write_conclusion(&workspace, &records).is_err() {
                tracing::warn!("the completion file could not be written");
            }
            restart::write(home, port.as_ref()).await;
            Ok(Life { code: exit_code(&conclusion), records })
        }
        Err(error) => Err(CliError::from(error)),
    }
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

/// Waits for `work`, unless a signal asks the process to stop first.
async fn until_stopped<T>(work: impl Future<Output = T>, stop: &StopSignal) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = stop.stopping() => None,
    }
}

/// Parks a run that was interrupted before its tool servers had started: nothing was sent.
async fn park_for_signal(store: &dyn Store, lease: &RunLease, env: &Env) -> Result<(Conclusion, RunRecord), RunError> {
    let (reason, detail) = (RunStop::Interrupt, "a signal asked the process to stop".to_owned());
    let end = RunEnd {
        status: RunStatus::Stopped,
        stop_reason: Some(reason),
        detail: Some(detail.clone()),
        final_output: None,
        final_artifact_ref: None,
        step_end: None,
        held_millis: 0,
        at: env.now(),
    };
    let parked = store.end_run(lease, end).await;
    let run = parked.map_err(|source| RunError::Store { doing: "park the run", source })?;
    Ok((Conclusion::Stopped { reason, detail }, run))
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
