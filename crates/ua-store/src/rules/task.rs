//! Tasks: child runs that are made with RUNNING, and the tree they form.
//!
//! Durability Architecture (Task relaunch rules). Invariants: a child run and the RUNNING of its task are one write; a task that
//! was started is never in doubt, because the child's rows say where it stands; a cancel reaches the whole tree in one write.

use ua_core::{RunId, TASK_MODE, ToolCharge};

use super::run::run_submitted;
use super::{conflict, is_effect_elsewhere};
use crate::commit::NewRun;
use crate::error::StoreError;
use crate::lineage::SubAgentRecord;
use crate::record::{CallRecord, MessageRecord, RequestRecord, RunRecord};
use crate::walk::Walk;

/// The child run that is made with RUNNING of `call`, and its opening message. The run's id follows from the call's.
pub fn child_made(child: NewRun, call: &CallRecord, run: &RunRecord) -> Result<(RunRecord, MessageRecord), StoreError> {
    let refuse = |why: &str| Err(conflict("tool_calls", &call.call_id, why));
    if !call.name.is_task() {
        return refuse("it is not a task, so no child run is made with it");
    }
    if child.run_mode != TASK_MODE
        || child.parent_run_id.as_ref() != Some(&run.run_id)
        || child.run_id != RunId::of_task(&call.call_id)
    {
        return refuse("the run to be made with it is not its child");
    }
    let (mut child, opening) = run_submitted(child, Some(run));
    child.task_call_id = Some(call.call_id.clone());
    Ok((child, opening))
}

/// All child runs below `run`, parents before their children, each once. `children` reads the runs that name a run as their parent.
pub fn runs_below<E>(
    run: &RunId,
    mut children: impl FnMut(&RunId) -> Result<Vec<RunRecord>, E>,
) -> Result<Vec<RunRecord>, E> {
    let (mut walk, mut found) = (Walk::from(run), Vec::<RunRecord>::new());
    let (mut next, mut parent) = (0, run.clone());
    loop {
        found.extend(walk.down(children(&parent)?));
        let Some(below) = found.get(next) else { return Ok(found) };
        parent = below.run_id.clone();
        next += 1;
    }
}

/// A child run as those above it see it, with all its calls, requests and the charges of its tools; `None` when it works on no task.
pub fn sub_agent(
    run: &RunRecord,
    calls: Vec<CallRecord>,
    requests: Vec<RequestRecord>,
    charges: Vec<ToolCharge>,
) -> Option<SubAgentRecord> {
    Some(SubAgentRecord {
        run_id: run.run_id.clone(),
        parent_run_id: run.parent_run_id.clone()?,
        call_id: run.task_call_id.clone()?,
        description: run.spec.objective.clone(),
        status: run.status,
        status_detail: run.status_detail.clone(),
        turns: run.turn_index,
        tool_calls: u32::try_from(calls.len()).unwrap_or(u32::MAX),
        effects: calls.into_iter().filter(|call| is_told_above(call) && !call.name.is_task()).collect(),
        requests,
        charges,
    })
}

/// Whether a call of a sub-agent is told to those above it: what may have happened, and what was put right to have not.
fn is_told_above(call: &CallRecord) -> bool {
    let is_put_right = call.attempt > 0 && call.policy.class.has_effect() && call.correction.is_some();
    is_effect_elsewhere(call) || (is_put_right && call.answered_by().is_none())
}
