//! One process's work on a run that was taken: a [`Desk`], a model, and the drive. The only composition there is: the command line, the
//! library face, the simulation and every lane pass ports to it, so what they certify is what ships.

use std::sync::Arc;

use ua_core::{Audience, RunStatus, RunStop, Timestamp, chain};
use ua_dispatch::{DispatchError, Fence};
use ua_llm::{LlmProvider, RedactingProvider};
use ua_store::{EndMark, RunEnd, RunRecord, RunStore, is_task};

use crate::cancel::end_marked;
use crate::desk::{Desk, DeskError, DeskPorts, Opened};
use crate::drive::drive;
use crate::error::RunError;
use crate::first_tools::open_patiently;
use crate::host::owner_stamp;
use crate::machine::Conclusion;
use crate::ports::{Ports, ResultCheck, RunSettings, park_for_orphan, park_for_tool_server, run_end};
use crate::watch::RunEvent;

/// A run's desk, and the model that works at it.
pub struct Worker {
    desk: Desk,
    llm: Arc<dyn LlmProvider>,
    settings: RunSettings,
    acquired_at: Timestamp,
    accepts: Option<ResultCheck>,
}

/// How a process's work on a run ended.
#[derive(Debug)]
pub struct Worked {
    /// What it came to.
    pub conclusion: Conclusion,
    /// The run, as it is stored now.
    pub run: RunRecord,
    /// Whether it was driven at all: its tool servers had started.
    pub is_driven: bool,
}

/// Why a run could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// The drive failed; the run stays as it is stored.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The tools, the policies and the contract do not fit together. The run is parked: nothing was sent, and a resume may find them mended.
    #[error(transparent)]
    Tools(DispatchError),
}

impl WorkError {
    /// The error itself, whichever kind it is.
    pub fn into_source(self) -> Box<dyn std::error::Error + Send + Sync> {
        match self {
            Self::Run(error) => Box::new(error),
            Self::Tools(error) => Box::new(error),
        }
    }
}

impl Worker {
    /// Work on the run of `desk` with the model `llm`. `acquired_at` is when the run was taken; from then on the time counts as held.
    pub fn new(desk: Desk, llm: Arc<dyn LlmProvider>, settings: RunSettings, acquired_at: Timestamp) -> Self {
        let desk = desk.with_prices(settings.prices.clone());
        Self { desk, llm, settings, acquired_at, accepts: None }
    }

    /// The same, for a result that has to pass this check, too, when it fits the job's `output_schema`.
    #[must_use]
    pub fn accepting_results(self, accepts: Option<ResultCheck>) -> Self {
        Self { accepts, ..self }
    }

    /// Ends the tool servers that an earlier process left, starts the run's own, and drives the run to a conclusion of this process. A
    /// run whose tools cannot be used is parked. The tool servers are running when this returns; whoever made them ends them.
    ///
    /// # Errors
    /// See [`WorkError`]. Never how the run itself went.
    pub async fn work(self) -> Result<Worked, WorkError> {
        let alive = self.desk.alive(self.acquired_at);
        let (store, watcher) = (self.desk.ports.store.clone(), self.desk.watcher.clone());
        let worked = Box::pin(self.work_alive()).await;
        if let Some(alive) = alive {
            alive.abort();
            // Nothing of it may still hold the store.
            let _cancelled = alive.await;
        }
        if let Some(why) = store.unnoted() {
            watcher(RunEvent::NotNoted { why });
        }
        worked
    }

    async fn work_alive(self) -> Result<Worked, WorkError> {
        let Self { desk, llm, settings, acquired_at, accepts } = self;
        desk.ports.workspace.digests.heed(&desk.ports.stop);
        let (store, lease, env) = (desk.ports.store.as_ref(), &desk.ports.lease, &desk.ports.env);
        let outbox = desk.outbox();
        // Nothing of an aborted run is called any more, so no tool server is started for it. A cancelled one tells its tools to give up what they
        // are at.
        if desk.ports.run.end_mark() == Some(EndMark::Abort) {
            let is_orphan = matches!(desk.end_earlier(&outbox).await, Fence::Alive { .. });
            if let Some((conclusion, run)) = end_without_tools(&desk, is_orphan).await? {
                return Ok(Worked { conclusion, run, is_driven: false });
            }
        }
        let parked = match open_patiently(&desk, &outbox, &settings, acquired_at).await {
            Ok(Opened::Ready(dispatcher)) => {
                let llm = desk.seams.llm(Arc::new(RedactingProvider::new(llm, desk.redactor.clone())));
                let ports = Ports {
                    store: outbox,
                    llm,
                    dispatcher: *dispatcher,
                    lease: lease.clone(),
                    workspace: desk.ports.workspace.clone(),
                    env: env.clone(),
                    watcher: desk.watcher.clone(),
                    stop: desk.ports.stop.clone(),
                    patience: desk.patience(),
                    still: desk.still.clone(),
                    accepts,
                };
                let driven = Box::pin(drive(&ports, &settings, acquired_at)).await;
                ports.llm.close().await;
                let (conclusion, run) = driven?;
                return Ok(Worked { conclusion, run, is_driven: true });
            }
            Ok(Opened::Interrupted) => match end_without_tools(&desk, false).await? {
                Some(ended) => Ok(ended),
                None => park_for_signal(&desk).await,
            },
            Err(DeskError::Run(error)) => Err(error),
            Ok(Opened::Orphan(detail)) => match end_without_tools(&desk, true).await? {
                Some(ended) => Ok(ended),
                None => park_for_orphan(store, lease, env, &detail).await,
            },
            Ok(Opened::Unreachable(error)) => match end_without_tools(&desk, false).await? {
                Some(ended) => Ok(ended),
                None => park_for_tool_server(store, lease, env, &chain(&error)).await,
            },
            Err(DeskError::Tools(error)) => {
                let Some(ended) = end_without_tools(&desk, false).await? else {
                    park_for_tool_server(store, lease, env, &chain(&error)).await?;
                    return Err(WorkError::Tools(error));
                };
                Ok(ended)
            }
        };
        let (conclusion, run) = parked?;
        Ok(Worked { conclusion, run, is_driven: false })
    }
}

/// Ends a run that a person said is to end, although its tools cannot be had; `None` when nobody said so. A cancel waits for what an
/// earlier process left alive, as `ua runs cancel` does, but for a sub-agent's run, whose parent would wait with it for ever; an abort
/// does not: whoever gave it may have given it to the very question about that process.
async fn end_without_tools(desk: &Desk, is_orphan: bool) -> Result<Option<(Conclusion, RunRecord)>, RunError> {
    let DeskPorts { store, lease, workspace, env, trace, .. } = &desk.ports;
    let run = store.run(&lease.run_id).await.map_err(RunError::at("read the run"))?;
    let mark = match run.end_mark() {
        Some(EndMark::Cancel) if is_orphan && !is_task(&run) => return Ok(None),
        Some(mark) => mark,
        None => return Ok(None),
    };
    let owner = owner_stamp(trace.clone());
    end_marked(store.as_ref(), desk.late(), lease, workspace, env, &owner, mark).await.map(Some)
}

/// Parks a run that was interrupted before its tool servers had started: nothing was sent.
async fn park_for_signal(desk: &Desk) -> Result<(Conclusion, RunRecord), RunError> {
    let run = desk.ports.store.run(&desk.ports.lease.run_id).await.map_err(RunError::at("read the run"))?;
    let (reason, detail) = (RunStop::Interrupt, Audience::of(&run.entrypoint).interrupted_by().to_owned());
    let end = RunEnd {
        stop_reason: Some(reason),
        ..run_end(RunStatus::Stopped, Some(detail.clone()), 0, desk.ports.env.now())
    };
    let run = desk.ports.store.end_run(&desk.ports.lease, end).await.map_err(RunError::at("park the run"))?;
    Ok((Conclusion::Stopped { reason, detail }, run))
}
