//! What one process drives a run with, and the runs of its sub-agents: tool servers, ports, [`drive`].
//!
//! A sub-agent's run is driven as its parent's is, by the same process, with tool servers of its own in a folder of its own. It has the
//! parent's model, tool configuration and policies; what only a person may loosen (who may be written to, how often an effect may
//! happen) is read from the job at the top of the tree, never from what a model wrote into a task.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tracing::Instrument as _;
use ua_core::{Env, Redactor, RunSpec, RunStop, Timestamp, ToolSpec, Trace};
use ua_gateway::{Fence, Redacting, StopSignal, SubAgentError, ToolTransport as _};
use ua_runner::{
    ChildDriver, ChildRuns, Conclusion, RunError, RunLock, Watcher, Workspace, drive, owner_stamp, park_for_orphan,
    park_for_tool_server, run_span, say_alive, top_of_tree,
};
use ua_store::{RunEnd, RunLease, RunRecord, Store, budgets_with, is_task};
use ua_store_sqlite::SqliteStore;

use crate::compose::{self, Launch};
use crate::error::{ChildFailed, CliError, chain};
use crate::home::Home;
use crate::live::Live;
use crate::parts::Seams;
use crate::progress;

/// What the process has for all runs of a tree.
#[derive(Clone)]
pub(crate) struct Crew {
    pub(crate) home: Home,
    pub(crate) store: Arc<SqliteStore>,
    /// The same behind the seams.
    pub(crate) port: Arc<dyn Store>,
    pub(crate) launch: Launch,
    pub(crate) quiet: bool,
    /// Whether a person sits at the terminal and may be asked.
    pub(crate) is_attended: bool,
    /// Whether nobody is to be asked here even so.
    pub(crate) no_input: bool,
    pub(crate) seams: Arc<dyn Seams>,
    pub(crate) env: Env,
    pub(crate) trace: Trace,
    pub(crate) live: Option<Arc<Live>>,
}

/// A run that was taken.
pub(crate) struct Taken {
    pub(crate) run: RunRecord,
    pub(crate) lease: RunLease,
    pub(crate) workspace: Workspace,
    pub(crate) acquired_at: Timestamp,
}

/// How a process's work on a run ended.
pub(crate) struct Worked {
    pub(crate) conclusion: Conclusion,
    pub(crate) run: RunRecord,
    /// Whether it was driven at all.
    pub(crate) is_driven: bool,
}

/// The tools of one life, and who is told of it.
struct Wired {
    transport: Arc<ua_mcp::McpTransport>,
    redactor: Redactor,
    watcher: Watcher,
    specs: Vec<ToolSpec>,
}

impl Crew {
    /// Starts the tool servers of a run that was taken, drives it to a conclusion of this process, and ends them.
    pub(crate) async fn work(&self, taken: Taken, stop: &StopSignal) -> Result<Worked, CliError> {
        let Taken { run, lease, workspace, acquired_at } = taken;
        let (port, env) = (&self.port, &self.env);
        let job = top_of_tree(port.as_ref(), &run).await?.spec;
        let label = is_task(&run).then(|| run.spec.objective.clone());
        let live = self.live.clone().filter(|_| label.is_none());
        let watcher = progress::watcher(workspace.clone(), env.clone(), self.quiet, live, label);
        let watcher = if self.is_attended { super::ask_live::watcher(self.store.clone(), watcher) } else { watcher };
        let transport = compose::tool_servers(&self.home, &run, &self.launch, env, watcher.clone())?;
        let redactor = self.seams.redactor(compose::redactor(&self.home, &run, &self.launch)?);
        let clean = Redacting::new(transport.clone(), redactor.clone());
        // Beside the drive, and not through its seams: it is no step of the run.
        let alive = tokio::spawn(say_alive(self.store.clone(), lease.clone(), env.clone()));
        let mut is_driven = false;
        let logs = workspace.path("logs");
        let fence = transport.fence_earlier().await;
        if fence == Fence::Gone {
            crate::clean::scrub_logs(&logs, &redactor); // of a life that was killed
        }
        let driven = match fence {
            Fence::Alive { detail } => park_for_orphan(port.as_ref(), &lease, env, &detail).await,
            Fence::Gone => match until_stopped(clean.list(), stop).await {
                None => park_for_signal(port.as_ref(), &lease, env).await,
                Some(Err(error)) => park_for_tool_server(port.as_ref(), &lease, env, &chain(&error)).await,
                Some(Ok(specs)) => {
                    is_driven = true;
                    if let Ok(classifier) = self.launch.classifier() {
                        super::audit::note(self.home.root(), &run.run_id, &specs, &classifier, env.now());
                    }
                    let wired = Wired { transport: transport.clone(), redactor: redactor.clone(), watcher, specs };
                    match self.wire(&run, &job, &lease, &workspace, wired, stop).await {
                        Ok((ports, settings)) => {
                            let driven = Box::pin(drive(&ports, &settings, acquired_at)).await;
                            ports.llm.close().await;
                            driven
                        }
                        Err(error) => {
                            // The tools and the policies do not fit together: nothing was sent, and a resume may find them mended.
                            transport.shutdown().await;
                            crate::clean::scrub_logs(&logs, &redactor);
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
        crate::clean::scrub_logs(&logs, &redactor);
        alive.abort();
        let _cancelled = alive.await;
        let (conclusion, run) = driven?;
        Ok(Worked { conclusion, run, is_driven })
    }

    async fn wire(
        &self,
        run: &RunRecord,
        job: &RunSpec,
        lease: &RunLease,
        workspace: &Workspace,
        wired: Wired,
        stop: &StopSignal,
    ) -> Result<(ua_runner::Ports, ua_runner::RunSettings), CliError> {
        let overrides =
            self.port.overrides(&run.run_id).await.map_err(|e| CliError::store("read the run's budgets", &e))?;
        let shared_workspaces = crate::claude_code::shared_workspaces(self.port.as_ref(), run).await;
        let Wired { transport, redactor, watcher, specs } = wired;
        let agents = ChildRuns::new(
            self.port.clone(),
            lease.clone(),
            workspace.clone(),
            self.env.clone(),
            Arc::new(self.clone()),
        );
        compose::wire(compose::Wiring {
            run,
            job,
            launch: &self.launch,
            store: self.port.clone(),
            lease: lease.clone(),
            trace: self.trace.clone(),
            transport,
            agents: Arc::new(agents),
            redactor,
            specs,
            watcher,
            workspace: workspace.clone(),
            shared_workspaces,
            locks: self.home.locks(),
            env: self.env.clone(),
            stop: stop.clone(),
            budgets: budgets_with(&run.spec.budgets, &overrides),
            seams: self.seams.as_ref(),
            elicitations: super::ask_live::patience(self.is_attended, self.no_input)?,
        })
    }

    async fn drive_child(
        &self,
        above: &RunLease,
        child: RunRecord,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), CliError> {
        let owner = owner_stamp(self.trace.clone());
        // Its parent's lock is what counts; this one says to others that it is driven.
        let _lock = RunLock::take(&self.home.locks(), &child.run_id, &owner)?;
        if child.cancel_requested_at.is_none() {
            super::db::refuse_forgotten(&self.store, &child.run_id).await?;
        }
        let workspace = Workspace::create(Path::new(&child.workspace_dir))?;
        let acquired_at = self.env.now();
        let (lease, run) = self
            .port
            .acquire_task_run(above, &child.run_id, &owner, acquired_at)
            .await
            .map_err(|e| CliError::store("take the sub-agent's run", &e))?;
        let worked = self.work(Taken { run, lease, workspace, acquired_at }, stop).await?;
        Ok((worked.conclusion, worked.run))
    }
}

#[async_trait]
impl ChildDriver for Crew {
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError> {
        let span = run_span(&child);
        let driven = Box::pin(self.drive_child(above, child, stop)).instrument(span).await;
        driven.map_err(|error| Box::new(ChildFailed(error)) as SubAgentError)
    }
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
        status: ua_core::RunStatus::Stopped,
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
