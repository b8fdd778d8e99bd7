//! Sub-agents: what a task's child run is to be, and how it is driven.
//!
//! Durability Architecture (Task relaunch rules: reuse the output, else resume the sub-agent). A child is worked on by the same [`Worker`] with
//! ports of its own, in the process that drives its parent, which holds the lock of the whole tree. [`ChildRuns`] stands at the end of
//! the dispatcher's road; how a child gets its ports is the composition root's business ([`ChildDriver`]).
//! Invariants: a child that has ended is not driven again, its output is told anew from its records; a child uses no more than what was
//! carved from its parent's budgets when it was made, but for time and patience, which are the whole tree's and are raised with it
//! (`ua_store::change_budget`); files of a child stay below its parent's folder.
//! Proved by: `crash_anywhere::tasks`, the tables in `tasks/carve.rs`, `e2e/subagents.rs`.
//!
//! [`Worker`]: crate::Worker

mod carve;

use std::path::{Component, Path};
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use ua_core::{
    AskedWait, CallId, CallStatus, Env, Message, Origin, RawReply, RunId, RunSpec, RunStatus, RunStop, ShowPath as _,
    Subagents, TASK_FOLDER, TASK_MODE, TaskOrder, Timestamp, chain,
};
use ua_dispatch::{Carried, StopSignal, SubAgentError, SubAgents};
use ua_evidence::Artifact;
use ua_report::SubAgentOutput;
use ua_store::{CallRecord, NewRun, RunLease, RunRecord, RunRecords, RunStore, Store};

use crate::error::RunError;
use crate::machine::Conclusion;
use crate::workspace::{OUTPUT_FILE, Workspace, WorkspaceError, task_folder};

/// What the task `call` came to, by the records of its child run, which has ended, and the files that it left in its parent's
/// `workspace`; and the path of the file there that says so.
///
/// # Errors
/// [`WorkspaceError`] when a file cannot be read.
pub fn task_output(
    workspace: &Workspace,
    call: &CallId,
    child: &RunRecords,
) -> Result<(String, SubAgentOutput), WorkspaceError> {
    let folder = task_folder(call);
    let own = workspace.task(call)?.map_or_else(|| Ok(Vec::new()), |task| task.artifacts_of(&child.run.spec))?;
    let artifacts = own.into_iter().map(|file| Artifact { path: format!("{folder}/{}", file.path), ..file }).collect();
    Ok((output_path(call), SubAgentOutput::new(call, child, artifacts)))
}

fn output_path(call: &CallId) -> String {
    format!("{}/{OUTPUT_FILE}", task_folder(call))
}

/// Writes again what the task `call` came to, as [`task_output`] tells it, where its folder is there.
///
/// # Errors
/// [`WorkspaceError`] when a file cannot be read or written.
pub fn write_task_output(workspace: &Workspace, call: &CallId, child: &RunRecords) -> Result<(), WorkspaceError> {
    if workspace.task(call)?.is_none() {
        return Ok(());
    }
    let (file, output) = task_output(workspace, call, child)?;
    put_output(workspace, &file, &output)
}

fn put_output(workspace: &Workspace, file: &str, output: &SubAgentOutput) -> Result<(), WorkspaceError> {
    workspace.replace(file, crate::files::pretty(output))
}

/// Writes what the task `call` came to, whose child run has ended, into its folder, which is made; and what the call is answered with.
///
/// # Errors
/// Those of the store and of the workspace.
pub(crate) async fn task_reply(
    store: &dyn Store,
    workspace: &Workspace,
    call: &CallId,
    child: &RunId,
) -> Result<RawReply, RunError> {
    let records = store.load(child).await.map_err(RunError::at("load the sub-agent's run"))?;
    Ok(written_reply(workspace, call, &records, Err)?)
}

/// The same of a task whose run ends: a folder that cannot be read or written, as on a full disk, is told of and does not keep it from
/// that. A file that is missing is written again by whoever writes the pages of the run anew.
///
/// # Errors
/// Those of the store.
pub(crate) async fn last_task_reply(
    store: &dyn Store,
    workspace: &Workspace,
    call: &CallId,
    child: &RunId,
) -> Result<RawReply, RunError> {
    let records = store.load(child).await.map_err(RunError::at("load the sub-agent's run"))?;
    let told = |error: WorkspaceError| {
        tracing::warn!(error = chain(&error), run = %child, "what a sub-agent came to was not written");
        Ok(())
    };
    Ok(written_reply(workspace, call, &records, told)?)
}

/// Makes the folder of a task, writes there what it came to, and says it. An error of the folder is passed to `failed`; where that lets it
/// pass, what is known without the folder is said.
fn written_reply(
    workspace: &Workspace,
    call: &CallId,
    child: &RunRecords,
    failed: impl Fn(WorkspaceError) -> Result<(), WorkspaceError>,
) -> Result<RawReply, WorkspaceError> {
    let is_made = match workspace.make_task(call) {
        Ok(_) => true,
        Err(error) => {
            failed(error)?;
            false
        }
    };
    let (file, output) = match task_output(workspace, call, child) {
        Ok(told) => told,
        Err(error) => {
            failed(error)?;
            (output_path(call), SubAgentOutput::new(call, child, Vec::new()))
        }
    };
    if is_made && let Err(error) = put_output(workspace, &file, &output) {
        failed(error)?;
    }
    Ok(reply(&file, &output))
}

/// What the call of a task is answered with.
fn reply(file: &str, output: &SubAgentOutput) -> RawReply {
    RawReply::ToolResult {
        result: json!({
            "content": [{"type": "text", "text": output.text_for_model()}],
            "structuredContent": {"run_id": output.run_id, "status": output.status, "output": file},
            "isError": output.status != RunStatus::Succeeded,
        }),
    }
}

/// Whoever gives a child run its ports.
#[async_trait]
pub trait ChildDriver: Send + Sync {
    /// Takes a child run that has not ended and drives it to a conclusion of this process: epoch, tool servers of its own,
    /// a [`Worker`](crate::Worker). Nobody else drives it, because the lock of the run at the top of its tree is held. It is taken under
    /// `above`, the lease of the run whose task it is; `workspace` is its folder, in that of the run above, and is made.
    ///
    /// # Errors
    /// Whatever ends a drive without a conclusion.
    async fn drive(
        &self,
        above: &RunLease,
        child: RunRecord,
        workspace: Workspace,
        stop: &StopSignal,
    ) -> Result<(Conclusion, RunRecord), SubAgentError>;
}

/// The child runs of one run.
pub struct ChildRuns {
    store: Arc<dyn Store>,
    lease: RunLease,
    workspace: Workspace,
    env: Env,
    driver: Arc<dyn ChildDriver>,
}

impl ChildRuns {
    /// The child runs of the run that `lease` is of, whose folder is `workspace`.
    pub fn new(
        store: Arc<dyn Store>,
        lease: RunLease,
        workspace: Workspace,
        env: Env,
        driver: Arc<dyn ChildDriver>,
    ) -> Self {
        Self { store, lease, workspace, env, driver }
    }

    /// Why a child run is not driven on yet: its provider asks for a wait that is not over, which the run above died before it could stop for, and
    /// nobody has changed a budget of it since.
    async fn still_put_off(&self, child: &RunRecord) -> Result<Option<String>, SubAgentError> {
        let Some(detail) = waits_for(child, self.env.now()) else { return Ok(None) };
        let above = self.store.run(&self.lease.run_id).await.map_err(RunError::at("read the run"))?;
        let changed =
            self.store.overrides(&child.run_id).await.map_err(RunError::at("read the sub-agent's budgets"))?;
        let is_changed = changed.iter().any(|change| change.created_at >= child.updated_at);
        Ok((!is_changed && !was_left_since(&above, child)).then(|| detail.to_owned()))
    }

    /// Writes what a child that has ended came to, and says it.
    async fn answer(&self, call: &CallRecord, child: &RunRecord) -> Result<Carried, SubAgentError> {
        let reply = task_reply(&*self.store, &self.workspace, &call.call_id, &child.run_id).await?;
        Ok(Carried::Answered(reply))
    }
}

#[async_trait]
impl SubAgents for ChildRuns {
    async fn plan(
        &self,
        call: &CallRecord,
        allow: Option<Vec<String>>,
    ) -> Result<Result<NewRun, String>, SubAgentError> {
        let records = self.store.load(&self.lease.run_id).await.map_err(RunError::at("load the run"))?;
        let order = TaskOrder::of(&call.arguments);
        if let Some(path) = order.expected_outputs.iter().find(|path| !is_inside(path)) {
            return Ok(Err(format!(
                "Not run: {path:?} in `expected_outputs` is not a path inside the sub-agent's own folder. Name files like \
                 work_products/part.md."
            )));
        }
        let carved = match carve::carve(&records, call) {
            Ok(carved) => carved,
            Err(why) => return Ok(Err(why)),
        };
        // A program of the run may have put a link there: its model can take it away, and gets no sub-agent before.
        if let Err(error) = self.workspace.make_folder(TASK_FOLDER) {
            return Ok(Err(format!(
                "Not run: the folder {TASK_FOLDER} of the workspace, in which sub-agents work, cannot be used ({}). Remove what is in \
                 its place.",
                error.io()
            )));
        }
        let spec = records.run.spec.of_task(&order, carved.budgets, carved.subagents, allow);
        let folder = self.workspace.path(&task_folder(&call.call_id));
        Ok(Ok(NewRun {
            run_id: RunId::of_task(&call.call_id),
            created_at: self.env.now(),
            entrypoint: records.run.entrypoint.clone(),
            run_mode: TASK_MODE.to_owned(),
            opening: Message::user(Origin::Prompt, opening(&spec, self.workspace.root())),
            spec,
            files: Vec::new(),
            job_path: records.run.job_path.clone(),
            workspace_dir: folder.to_string_lossy().into_owned(),
            launch: records.run.launch.clone(),
            parent_run_id: Some(self.lease.run_id.clone()),
        }))
    }

    async fn carry_on(&self, call: &CallRecord, stop: &StopSignal) -> Result<Carried, SubAgentError> {
        let id = RunId::of_task(&call.call_id);
        let child = self.store.run(&id).await.map_err(RunError::at("read the sub-agent's run"))?;
        if child.status.is_terminal() {
            return self.answer(call, &child).await;
        }
        if let Some(detail) = self.still_put_off(&child).await? {
            return Ok(Carried::Parked { reason: RunStop::Provider, detail: of_child(&child, &detail) });
        }
        let workspace = self.workspace.make_task(&call.call_id)?;
        let (conclusion, child) = match self.driver.drive(&self.lease, child, workspace, stop).await {
            Ok(driven) => driven,
            Err(error) => {
                let child = self.store.run(&id).await.map_err(RunError::at("read the sub-agent's run"))?;
                if !child.status.is_terminal() {
                    return Err(error);
                }
                // Whoever owned the child before may have ended it since it was read: what it came to stands.
                tracing::warn!(error = chain(error.as_ref()), run = %id, "a sub-agent that ended was not driven to its end");
                return self.answer(call, &child).await;
            }
        };
        match conclusion {
            Conclusion::Waiting { question } => Ok(Carried::Waiting(question)),
            Conclusion::Stopped { reason: RunStop::Interrupt, .. } => Ok(Carried::Stopped),
            Conclusion::Stopped { reason, detail } => Ok(Carried::Parked { reason, detail: of_child(&child, &detail) }),
            Conclusion::Succeeded { .. } | Conclusion::Failed { .. } | Conclusion::Cancelled => {
                self.answer(call, &child).await
            }
        }
    }
}

/// What a run says that stops because a child run of it did.
fn of_child(child: &RunRecord, detail: &str) -> String {
    format!("sub-agent {}: {detail}", child.run_id)
}

/// What a child run says that stopped for a wait that its provider asks for and that is not over.
fn waits_for(child: &RunRecord, now: Timestamp) -> Option<&str> {
    let is_stopped = child.status == RunStatus::Stopped && child.stop_reason == Some(RunStop::Provider);
    let detail = child.status_detail.as_deref().filter(|_| is_stopped && child.end_mark().is_none())?;
    (now < AskedWait::read(detail)?).then_some(detail)
}

/// Whether a process left the run `above` in order since its child stopped: whoever resumes a run that stopped has read until when it waits, and may
/// ask sooner. A process that only takes over from a dead one does not.
fn was_left_since(above: &RunRecord, child: &RunRecord) -> bool {
    let stopped_at = child.processes.last().and_then(|process| process.left_at).unwrap_or(child.updated_at);
    above.processes.iter().any(|process| !process.died && process.left_at.is_some_and(|left| left >= stopped_at))
}

/// What a child run's model is told first.
fn opening(spec: &RunSpec, parent: &Path) -> String {
    format!(
        "{}\n# Your place\n\nYou are a sub-agent: this task is a part of a larger job. Your workspace is a folder of your own; put files \
         into work_products/. Files of the job can be read at file://{}/ where a tool reads such addresses. Your last message, without a \
         tool call, is all that the agent who gave you the task gets to read: say what you found, which files you wrote, and what you \
         could not do.\n",
        spec.opening_prompt(),
        parent.shown()
    )
}

/// Whether a path names something below the folder it is relative to.
fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// The tasks of a run that were not refused.
fn tasks(records: &RunRecords) -> impl Iterator<Item = &CallRecord> {
    records.calls.iter().filter(|call| call.name.is_task() && call.status != CallStatus::Cancelled)
}

/// What a run may still hand on; the defaults of a job that says nothing hand on nothing.
fn allowance(records: &RunRecords) -> Subagents {
    records.run.spec.subagents.clone().unwrap_or(Subagents { max_depth: 0, ..Subagents::default() })
}

/// The run at the top of a run's tree: the one whose lock is held by whoever drives them all. Itself, unless it works on a task.
///
/// # Errors
/// When a run above it cannot be read, or they lead in a circle.
pub async fn top_of_tree(store: &dyn Store, run: &RunRecord) -> Result<RunRecord, RunError> {
    ua_store::top_of_tree(store, run).await.map_err(RunError::at("read the run above a sub-agent"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ua_evidence::testing::Story;
    use ua_store::ProcessSpan;

    use super::*;

    /// Who left the run above, and how, since its sub-agent stopped for a wait: only whoever takes over from the dead keeps to it.
    #[test]
    fn a_wait_of_a_sub_agent_outlives_the_process_that_was_to_stop_for_it() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let stopped_at = story.records.run.created_at.plus(Duration::from_mins(1));
        let until = stopped_at.plus(Duration::from_hours(2));
        let asked = AskedWait { wait: Duration::from_hours(2), until };
        story.ends(RunStatus::Stopped, Some(RunStop::Provider), &format!("busy. {asked}."));
        let span = |seconds: u64, died| ProcessSpan {
            epoch: 1,
            taken_at: stopped_at,
            left_at: Some(stopped_at.plus(Duration::from_secs(seconds))),
            died,
            ended_by: None,
            process: None,
        };
        let mut child = story.records.run.clone();
        child.processes = vec![span(0, false)];
        let mut above = story.records.run.clone();
        let mut left = |processes: Vec<ProcessSpan>| {
            above.processes = processes;
            was_left_since(&above, &child)
        };
        let at_work = ProcessSpan { left_at: None, ..span(0, false) };
        assert!(!left(vec![span(9, true), at_work.clone()]), "its process died");
        assert!(left(vec![span(9, false), at_work.clone()]), "it stopped, and somebody resumed it");
        assert!(left(vec![span(9, false), span(20, true), at_work]));
        assert!(waits_for(&child, stopped_at).is_some_and(|detail| detail.starts_with("busy. ")));
        assert_eq!(waits_for(&child, until), None, "it is over");
        child.stop_reason = Some(RunStop::Interrupt);
        assert_eq!(waits_for(&child, stopped_at), None, "what stopped it is something else");
        child.stop_reason = Some(RunStop::Provider);
        child.cancel_requested_at = Some(until);
        assert_eq!(waits_for(&child, stopped_at), None, "it is to end");
    }

    #[test]
    fn expected_outputs_stay_in_the_folder_of_the_task() {
        for (path, inside) in [
            ("work_products/a.md", true),
            ("./a.md", true),
            ("", false),
            ("/etc/passwd", false),
            ("../a.md", false),
            ("a/../../b", false),
        ] {
            assert_eq!(is_inside(path), inside, "{path}");
        }
    }
}
