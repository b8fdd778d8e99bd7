//! One process's work on a step: lock, records, epoch, tools, drive.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tracing::Instrument as _;
use ua_core::{Audience, Component, Message, Origin, RunId, RunSpec, RunStatus, Trace};
use ua_dispatch::{Fence, ToolTransport};
use ua_files::Folder;
use ua_ledger::{LateReplies, NoLateReplies};
use ua_resume::{AroundRun, Standing};
use ua_store::{
    NewRun, OverrideKind, OverrideRecord, OwnerStamp, QuestionStatus, RunRecord, RunStore, StoreError, Turns,
};

use super::definition::{Differs, differences};
use super::outcome::question_of_a_program;
use super::{GranularStep, StepError, StepHost, StepOutcome};
use crate::cancel::end_as_said;
use crate::desk::{Desk, DeskPorts};
use crate::files::write_corrected;
use crate::fork::{ForkError, ForkPlace, ForkPlan, settle_workspace};
use crate::host::{owner_stamp, process_is_alive};
use crate::late_file::LateFile;
use crate::lock::{LockError, RunLock};
use crate::past::PastKnown;
use crate::pin::PinSettings;
use crate::ports::RunSettings;
use crate::spans::run_span;
use crate::worker::{WorkError, Worked, Worker};
use crate::workspace::{Workspace, WorkspaceError};

/// The part of a definition that may be accepted beside what a run is pinned to.
pub(super) const THRESHOLD: &str = "blob_threshold_bytes";

/// The least history that a request carries.
const LEAST_HISTORY: u64 = 1_000;

/// `entrypoint` and `run_mode` of a run that a program started.
const LIBRARY: &str = Audience::LIBRARY;

impl GranularStep {
    /// Starts the step as the run `run_id`, or goes on with that run from wherever it stands, until it ends or has to wait.
    /// Calling this again, in this process or another, is how a step is resumed.
    ///
    /// The future is not cancel-safe in the sense that dropping it is a kill: the run is then as a dead process would have
    /// left it, which the next call knows how to read. To stop cleanly use [`StepHost::stop`].
    ///
    /// # Errors
    /// See [`StepError`]: another definition or owner, tools or a store that cannot be used. Never how the step itself went.
    pub async fn run(&self, host: &StepHost, run_id: &RunId) -> Result<StepOutcome, StepError> {
        let spec = self.spec()?;
        let owner = owner_stamp(Trace::new(&host.env));
        let lock = host.locks.as_ref().map(|locks| RunLock::take(locks, run_id, &owner)).transpose()?;
        let owner = after_those_before(lock.as_ref(), owner);
        let (run, also) = self.stored_run(host, run_id, spec).await?;
        if let Some(outcome) = host.ended(&run).await? {
            return Ok(outcome);
        }
        if host.locks.is_none() {
            refuse_living_owner(&run, &owner)?;
        }
        let past = PastKnown::of(&*host.store, &run).await?;
        let folder = Path::new(&run.workspace_dir);
        if run.lease_epoch > 0 && !folder.is_dir() {
            return Err(StepError::WorkspaceGone { run: run.run_id, path: folder.to_path_buf() });
        }
        settle(folder.parent().unwrap_or(folder), &run)?;
        let workspace = host.with_commands(Workspace::create(folder)?, folder);
        if let Err(owner) = workspace.claim(&run.run_id)? {
            return Err(StepError::WorkspaceTaken { run: run.run_id, path: folder.to_path_buf(), owner });
        }
        let taking = Taking { run, owner, past, workspace, also };
        Box::pin(noting_errors(lock.as_ref(), self.driven(host, taking, lock.as_ref()))).await
    }

    /// Takes the run and drives it.
    async fn driven(&self, host: &StepHost, taking: Taking, lock: Option<&RunLock>) -> Result<StepOutcome, StepError> {
        let Taking { run, owner, past, workspace, also } = taking;
        let (acquired_at, trace) = (host.env.now(), owner.trace.clone());
        let taken = host.store.acquire_run(&run.run_id, &owner, acquired_at).await;
        let (lease, taken) = taken.map_err(StepError::store("take the run"))?;
        if let Some(lock) = lock {
            lock.note_taken();
        }
        let run = RunRecord { workspace_dir: run.workspace_dir, ..taken };
        let span = run_span(&run);
        let settings = self.settings(&run, &host.accept, also);
        let ports = DeskPorts {
            store: host.store.clone(),
            lease,
            run,
            past,
            workspace,
            tools: self.agent.tools.clone(),
            classifier: self.agent.classifier.clone(),
            env: host.env.clone(),
            trace,
            stop: host.stop.clone(),
        };
        let judge = self.judge(&ports.run.spec);
        let mut desk =
            Desk::new(ports).with_judge(judge).with_watcher(host.watcher.clone()).with_redactor(host.redactor.clone());
        if let Some(root) = host.locks.as_deref().and_then(Path::parent) {
            desk = desk.with_late_replies(Arc::new(LateFile::at(root.join(LateFile::NAME)).with_room()));
        }
        let worker = Worker::new(desk, self.agent.provider.clone(), settings, acquired_at)
            .accepting_results(self.accepts.clone());
        let worked = worker.work().instrument(span).await.map_err(|error| match error {
            WorkError::Run(error) => StepError::Run(error),
            WorkError::Tools(error) => StepError::Tools(error),
        })?;
        let Worked { conclusion, run, .. } = worked;
        let records = host.store.load(&run.run_id).await.map_err(StepError::store("load the run"))?;
        Ok(match StepOutcome::of(conclusion, &records) {
            StepOutcome::Waiting { question } => {
                let question = question_of_a_program(&*host.store, *question).await;
                StepOutcome::Waiting { question: Box::new(question.map_err(StepError::store("read the call"))?) }
            }
            other @ (StepOutcome::Complete { .. }
            | StepOutcome::Stopped { .. }
            | StepOutcome::Failed { .. }
            | StepOutcome::Cancelled) => other,
        })
    }

    /// Makes `run_id` a fork of `parent` that is this step: it shares the parent's turns up to `at_turn`, or all committed ones, and its
    /// receipts, and goes on under this definition when it is run. A fork that was made before is found again. The host is the
    /// fork's: its workspace is made here, out of what the parent's still is.
    ///
    /// # Errors
    /// [`StepError::Fork`] when there is no such turn, or files or the store cannot be used; [`StepError::AnotherDefinition`] when the fork is there as
    /// another step; [`StepError::AnotherEntrypoint`] when the parent
    /// is no run of a program; [`StepError::Definition`] as for a new run.
    pub async fn fork(
        &self,
        host: &StepHost,
        run_id: &RunId,
        parent: &RunId,
        at_turn: Option<u32>,
    ) -> Result<RunRecord, StepError> {
        let workspace_dir = std::path::absolute(&host.workspace).unwrap_or_else(|_| host.workspace.clone());
        let root = workspace_dir.parent().unwrap_or(&workspace_dir).to_path_buf();
        match host.store.run(run_id).await {
            Ok(run) if run.parent_run_id.as_ref() == Some(parent) => {
                let mut run = run;
                if is_folder_of(&run, &workspace_dir)? {
                    run.workspace_dir = workspace_dir.to_string_lossy().into_owned();
                }
                settle(&root, &run)?;
                if let Some(asked) = at_turn.filter(|asked| *asked != run.shared_turns()) {
                    let shared = run.shared_turns();
                    return Err(ForkError::OfAnotherTurn { run: run.run_id, asked, shared }.into());
                }
                // Whoever runs it would be told so, one call later. A threshold may have been accepted, and is compared there.
                let mut differs = differences(&run, &self.spec()?, &self.launch_beside(&run.launch));
                differs.retain(|part| part.part != THRESHOLD);
                if !differs.is_empty() {
                    let has_ended = run.status.is_terminal();
                    return Err(StepError::AnotherDefinition { run: run.run_id, differs, has_ended });
                }
                return Ok(run);
            }
            // Refused below, where the store is asked to make it.
            Ok(_) | Err(StoreError::NotFound { .. }) => {}
            Err(source) => return Err(StepError::Store { doing: "look for the run", source }),
        }
        let mut records = host.store.load(parent).await.map_err(ForkError::at("load the run"))?;
        // The parent's folder lies beside the fork's, wherever that was when the parent was started.
        let beside = root.join(parent.as_str());
        if beside.is_dir() && is_folder_of(&records.run, &beside)? {
            records.run.workspace_dir = beside.to_string_lossy().into_owned();
        }
        let from = Workspace::open(Path::new(&records.run.workspace_dir)).ok();
        let spec = self.spec()?;
        let mut plan = ForkPlan::of(&*host.store, records, from, at_turn, Some(spec.clone())).await?;
        let found = &plan.parent.run;
        if found.entrypoint != LIBRARY {
            let (run, entrypoint) = (found.run_id.clone(), found.entrypoint.clone());
            return Err(StepError::AnotherEntrypoint { run, entrypoint });
        }
        // Asking its tools ends what an earlier process of that id left; of a run that somebody drives, or has made meanwhile, nothing is ended.
        let owner = owner_stamp(Trace::new(&host.env));
        let lock = host.locks.as_ref().map(|locks| RunLock::take(locks, run_id, &owner)).transpose()?;
        if matches!(host.store.run(run_id).await, Err(StoreError::NotFound { .. })) {
            self.check_price(&spec)?;
            self.check_tools(&spec).await?;
        }
        drop(lock); // who makes the fork takes its own
        let locks = host.locks.clone().unwrap_or_else(|| root.join("locks"));
        let place = ForkPlace {
            run_id: run_id.clone(),
            root: &root,
            locks: &locks,
            workspace_dir,
            launch: self.launch(),
            entrypoint: LIBRARY.to_owned(),
        };
        Ok(plan.carry_out(&*host.store, place, &host.env).await?)
    }

    /// The run of that id, made now, or found and compared, with the folder where it is now; and what else is to be stored when what changed
    /// is accepted.
    async fn stored_run(
        &self,
        host: &StepHost,
        run_id: &RunId,
        spec: RunSpec,
    ) -> Result<(RunRecord, Vec<(Component, Value)>), StepError> {
        let workspace = std::path::absolute(&host.workspace).unwrap_or_else(|_| host.workspace.clone());
        let workspace_dir = workspace.to_string_lossy().into_owned();
        let found = match host.store.run(run_id).await {
            Ok(run) => run,
            Err(StoreError::NotFound { .. }) => {
                self.check_price(&spec)?;
                // A tool server is started in the run's folder, so there is one before the servers are asked.
                let makes_folder = self.speaks_of_tools(&spec) && !workspace.exists();
                if self.speaks_of_tools(&spec) {
                    Workspace::create(&workspace)?;
                }
                if let Err(wrong) = self.check_tools(&spec).await {
                    if makes_folder {
                        Workspace::remove_empty(&workspace);
                    }
                    return Err(wrong);
                }
                let new = NewRun {
                    run_id: run_id.clone(),
                    created_at: host.env.now(),
                    entrypoint: LIBRARY.to_owned(),
                    run_mode: LIBRARY.to_owned(),
                    opening: Message::user(Origin::Prompt, spec.opening_prompt()),
                    spec: spec.clone(),
                    files: Vec::new(),
                    job_path: None,
                    workspace_dir: workspace_dir.clone(),
                    launch: self.launch(),
                    parent_run_id: None,
                };
                match host.store.submit_run(new).await {
                    Ok(run) => run,
                    // Somebody submitted it in between, or our own answer was lost: the stored one counts.
                    Err(exists @ StoreError::Exists { .. }) => match host.store.run(run_id).await {
                        Ok(run) => run,
                        // It was there, and was deleted.
                        Err(StoreError::NotFound { .. }) => {
                            return Err(StepError::Store { doing: "store the run", source: exists });
                        }
                        Err(source) => return Err(StepError::Store { doing: "read the run", source }),
                    },
                    Err(source) => return Err(StepError::Store { doing: "store the run", source }),
                }
            }
            Err(source) => return Err(StepError::Store { doing: "look for the run", source }),
        };
        if found.entrypoint != LIBRARY {
            return Err(StepError::AnotherEntrypoint { run: found.run_id, entrypoint: found.entrypoint });
        }
        let mut differs = differences(&found, &spec, &self.launch_beside(&found.launch));
        let mut also = Vec::new();
        if let Some(at) = differs.iter().position(|part| part.part == THRESHOLD)
            && let Some(accepted) = host.accepts_threshold(&found, &differs[at]).await?
        {
            differs.remove(at);
            also = accepted;
        }
        // What has ended has no more use for its folder.
        if !found.status.is_terminal() && !is_folder_of(&found, &workspace)? {
            let stored = found.workspace_dir.clone();
            differs.push(Differs { part: "workspace".to_owned(), stored, now: workspace_dir.clone() });
        }
        if !differs.is_empty() {
            let has_ended = found.status.is_terminal();
            return Err(StepError::AnotherDefinition { run: found.run_id, differs, has_ended });
        }
        Ok((RunRecord { workspace_dir, ..found }, also))
    }

    fn settings(&self, run: &RunRecord, accept: &[Component], also: Vec<(Component, Value)>) -> RunSettings {
        let agent = &self.agent;
        let max_output_tokens = self.output_tokens_beside(&run.launch);
        // What a longer reply takes, the history has no room for.
        let longer = u64::from(max_output_tokens.saturating_sub(agent.max_output_tokens));
        let accepted_by = "the program".to_owned();
        RunSettings {
            model: agent.model.clone(),
            system: agent.system.clone(),
            max_output_tokens,
            history_tokens: agent
                .history_tokens
                .map(|tokens| tokens.saturating_sub(longer).max(LEAST_HISTORY.min(tokens))),
            images: agent.images,
            structured: agent.structured,
            temperature_milli: agent.temperature_milli,
            seed: agent.seed,
            prices: agent.prices.clone(),
            retry: agent.retry,
            pins: PinSettings {
                accept: accept.to_vec(),
                also,
                accepted_by,
                ..PinSettings::of(&run.spec, &agent.prices)
            },
        }
    }
}

impl StepHost {
    /// Whether another blob threshold was accepted, now or before, and what is to be stored about it then. The run keeps the one it was
    /// started with: where a result lies is nothing that the model sees.
    async fn accepts_threshold(
        &self,
        run: &RunRecord,
        differs: &Differs,
    ) -> Result<Option<Vec<(Component, Value)>>, StepError> {
        let records = self.store.load_of(&run.run_id, Turns::NONE).await.map_err(StepError::store("load the run"))?;
        let is_it =
            |row: &OverrideRecord| row.kind == OverrideKind::Pin && row.value[THRESHOLD] == differs.now.as_str();
        if records.overrides.iter().any(is_it) {
            return Ok(Some(Vec::new()));
        }
        let accepted = json!({ THRESHOLD: differs.now, "differences": [differs.to_string()] });
        let is_accepted = self.accept.contains(&Component::BlobThreshold);
        Ok(is_accepted.then(|| vec![(Component::BlobThreshold, accepted)]))
    }

    /// Ends a run of which it is stored that it is to end, if nobody drives it; whoever drives it ends it by itself. What an earlier process left
    /// is ended by `tools` first, which start nothing.
    ///
    /// # Errors
    /// [`StepError::Lock`], [`StepError::Workspace`], [`StepError::Store`], [`StepError::Run`]: it is ended when its step is run then.
    pub async fn end_if_asked(&self, run_id: &RunId, tools: &dyn ToolTransport) -> Result<(), StepError> {
        let owner = owner_stamp(Trace::new(&self.env));
        let lock = match self.locks.as_ref().map(|locks| RunLock::take(locks, run_id, &owner)).transpose() {
            Ok(lock) => lock,
            Err(LockError::Held { .. }) => return Ok(()),
            Err(error @ LockError::Io { .. }) => return Err(error.into()),
        };
        let owner = after_those_before(lock.as_ref(), owner);
        let run = self.store.run(run_id).await.map_err(StepError::store("read the run"))?;
        let is_ours = run.entrypoint == LIBRARY && run.end_mark().is_some() && !run.status.is_terminal();
        // What may still be at work for it may still be heard of.
        if !is_ours || matches!(tools.fence_earlier().await, Fence::Alive { .. }) {
            return Ok(());
        }
        if self.locks.is_none() && refuse_living_owner(&run, &owner).is_err() {
            return Ok(());
        }
        let workspace = self.with_commands(Workspace::create(&self.workspace)?, &self.workspace);
        if workspace.claim(run_id)?.is_err() {
            return Ok(());
        }
        let lease = match self.store.acquire_run(run_id, &owner, self.env.now()).await {
            Ok((lease, _)) => lease,
            // Another machine drives it.
            Err(StoreError::Conflict { .. }) => return Ok(()),
            Err(source) => return Err(StepError::Store { doing: "take the run", source }),
        };
        let late = self.locks.as_deref().and_then(Path::parent).map(|root| LateFile::at(root.join(LateFile::NAME)));
        let late: &dyn LateReplies = match &late {
            Some(late) => late,
            None => &NoLateReplies,
        };
        let ending = end_as_said(&*self.store, late, &lease, &workspace, &self.env);
        Box::pin(noting_errors(lock.as_ref(), async { Ok(ending.await.map(drop)?) })).await
    }

    /// Writes the files of a run anew that tell of its calls, after a person put the record of one right. Its caller holds the run's lock, or it has ended.
    /// A folder that is gone, or is another run's, has nothing to be wrong in it.
    ///
    /// # Errors
    /// [`StepError::Store`], [`StepError::Workspace`].
    pub async fn tell_corrected(&self, run_id: &RunId) -> Result<(), StepError> {
        let records = self.store.load(run_id).await.map_err(StepError::store("load the run"))?;
        let Ok(workspace) = Workspace::open(&self.workspace) else { return Ok(()) };
        if workspace.owner()?.as_deref() != Some(run_id.as_str()) {
            return Ok(());
        }
        // Nobody drives it, and the question about the call was closed with the word.
        let is_answered = !records.questions.iter().any(|question| question.status == QuestionStatus::Open);
        let around = AroundRun { is_answered, ..AroundRun::default() };
        let standing = Standing::of(records.run.status, records.run.stop_reason, around);
        let workspace = self.with_commands(workspace, &self.workspace).standing_like(standing);
        Ok(write_corrected(&workspace, &records)?)
    }

    /// The outcome of a run that has ended for good.
    async fn ended(&self, run: &RunRecord) -> Result<Option<StepOutcome>, StepError> {
        if !run.status.is_terminal() {
            return Ok(None);
        }
        let records = self.store.load(&run.run_id).await.map_err(StepError::store("load the run"))?;
        Ok(StepOutcome::of_ended(&records))
    }
}

/// A run that is about to be taken.
struct Taking {
    run: RunRecord,
    owner: OwnerStamp,
    past: PastKnown,
    workspace: Workspace,
    /// What is to be stored when what changed is accepted.
    also: Vec<(Component, Value)>,
}

/// Work on a run that is taken under this lock. Where an error keeps it from leaving the run in order, nobody killed the process, and the program
/// may live on.
async fn noting_errors<T>(
    lock: Option<&RunLock>,
    work: impl Future<Output = Result<T, StepError>>,
) -> Result<T, StepError> {
    let done = work.await;
    if let Some(lock) = lock.filter(|_| done.is_err()) {
        lock.note_error();
    }
    done
}

/// Whether `folder` is the run's: the one that it was started in, by whatever path, or one with the run's mark in it, which was moved. Where
/// there is no folder of the run left, or it was never worked in, nothing tells another one from it.
fn is_folder_of(run: &RunRecord, folder: &Path) -> Result<bool, StepError> {
    let stored = Path::new(&run.workspace_dir);
    let is_same = || {
        std::fs::canonicalize(stored).is_ok_and(|stored| std::fs::canonicalize(folder).is_ok_and(|now| now == stored))
    };
    if stored == folder || is_same() {
        return Ok(true);
    }
    match folder.is_dir().then(|| Workspace::open(folder)?.owner()).transpose()?.flatten() {
        Some(owner) => Ok(owner == run.run_id.as_str()),
        None => Ok(!stored.exists() && (run.lease_epoch == 0 || !folder.is_dir())),
    }
}

/// Gives a fork the files that were collected for it in `root`, if its folder is there.
fn settle(root: &Path, run: &RunRecord) -> Result<(), WorkspaceError> {
    let Ok(below) = Path::new(&run.workspace_dir).strip_prefix(root) else { return Ok(()) };
    if run.forked_at.is_none() || below.as_os_str().is_empty() {
        return Ok(());
    }
    let root = Folder::open(root).map_err(WorkspaceError::at("open", root))?;
    settle_workspace(&root, below, run)
}

/// The stamp of a process that takes a run, with what its lock says of those before it.
fn after_those_before(lock: Option<&RunLock>, owner: OwnerStamp) -> OwnerStamp {
    match lock {
        Some(lock) => lock.after_those_before(owner),
        None => owner,
    }
}

/// Without a lock, a process that is seen to be driving the run is respected.
fn refuse_living_owner(run: &RunRecord, us: &OwnerStamp) -> Result<(), LockError> {
    match &run.owner {
        Some(owner) if run.status == RunStatus::Running && owner.pid != us.pid && process_is_alive(owner) => {
            Err(LockError::Held { run: run.run_id.clone(), owner: Some(Box::new(owner.clone())) })
        }
        Some(_) | None => Ok(()),
    }
}
