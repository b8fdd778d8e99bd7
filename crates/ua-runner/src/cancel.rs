//! Ending a run that a person said is to end, without its tool servers.
//!
//! Durable Jobs v1 spec §9. A cancel and an abort are sticky: whoever takes the run next ends it. When no process drives it, that is the
//! one who asks; when its tools cannot be had, it is the one who wanted to drive it. Invariants: nothing is sent; a call that was under way
//! when its process died stays `unknown` and goes on blocking its scope, because such a word says nothing about what happened; the run's
//! end, its calls that were not sent and its questions are one write.

use serde_json::json;
use ua_core::{CallStatus, Env, EvidenceLevel, RawReply, Resolution, RunId, RunStatus, StepStatus, Timestamp};
use ua_dispatch::is_task_under_way;
use ua_ledger::{LateReplies, interpret, is_left_open, settle_what_ends_by_late_replies};
use ua_store::{
    AttemptEnd, CallCancel, CallRecord, Choice, Durability, EndMark, LedgerStore, OwnerStamp, QuestionStatus, RowRef,
    RunEnd, RunLease, RunRecord, RunRecords, RunStore, SettleAttempt, StepEnd, Store, StoreError, UnknownResolution,
    Walk,
};

use crate::error::RunError;
use crate::files::{withdraw_conclusion, write_conclusion};
use crate::machine::{ABORTED, Conclusion};
use crate::ports::run_end;
use crate::recover::put_right;
use crate::tasks::last_task_reply;
use crate::workspace::Workspace;

/// Why a sub-agent is cancelled whose parent ends.
pub(crate) const ABOVE_ENDED: &str = "the run above it has ended";

/// The cancellations of calls that were not sent, in a run that ends.
pub(crate) fn never_sent(calls: &[CallRecord], why: &str) -> Vec<CallCancel> {
    let prepared = calls.iter().filter(|call| call.status == CallStatus::Prepared);
    prepared
        .map(|call| CallCancel {
            call_id: call.call_id.clone(),
            resolution: Resolution::RunCancelled,
            code: "run_cancelled".to_owned(),
            message: format!("Not run: {why}."),
            unless_allowed: false,
        })
        .collect()
}

/// Applies what persons said happened, before the questions about it are closed: the run ends, and its records say what they know.
pub(crate) async fn apply_words(store: &dyn Store, lease: &RunLease, at: Timestamp) -> Result<(), RunError> {
    let open = store.open_questions(Some(&lease.run_id)).await.map_err(RunError::at("read the questions"))?;
    for question in open.iter().filter(|question| question.status == QuestionStatus::Answered) {
        // What was said of the run as a whole.
        put_right(store, question, at).await?;
        let (Some(answer), Some(call)) = (&question.answer, &question.call_id) else { continue };
        let call = store.call(call).await.map_err(RunError::at("read a call"))?;
        if answer.choice != Choice::Happened || call.status != CallStatus::Unknown {
            continue;
        }
        let raw = RawReply::Statement { by: answer.by.clone(), proof: answer.proof.clone() };
        let settlement = interpret(&raw, &call.policy);
        let happened = UnknownResolution::Happened { raw, settlement, evidence: EvidenceLevel::Reconciled };
        let resolved = store.resolve_unknown(lease, &call.call_id, happened, Some(&question.question_id), at).await;
        resolved.map_err(RunError::at("apply what a person said happened"))?;
    }
    Ok(())
}

/// The sub-agent of a task, if it had come to its end before it was to end with the run above it.
async fn ended_before(store: &dyn Store, task: &CallRecord) -> Result<Option<RunId>, RunError> {
    match store.run(&RunId::of_task(&task.call_id)).await {
        Ok(child) => Ok(matches!(child.status, RunStatus::Succeeded | RunStatus::Failed).then_some(child.run_id)),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(RunError::at("read a sub-agent's run")(error)),
    }
}

/// Settles tasks that were under way. Their sub-agents were ended before, so that nothing of them goes on. What one had come to before
/// that is its task's answer, as it is when a process drives the run to its end.
async fn settle_tasks(
    store: &dyn Store,
    lease: &RunLease,
    workspace: &Workspace,
    records: &RunRecords,
    env: &Env,
) -> Result<(), RunError> {
    for call in records.calls.iter().filter(|call| is_task_under_way(call)) {
        let raw = if let Some(child) = ended_before(store, call).await? {
            last_task_reply(store, workspace, &call.call_id, &child).await?
        } else {
            let text = "The sub-agent ended with the run; what it did is in its own records.";
            RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}], "isError": true}) }
        };
        let settlement = Some(interpret(&raw, &call.policy));
        let settle = SettleAttempt {
            call_id: call.call_id.clone(),
            attempt: call.attempt,
            end: AttemptEnd::Replied { raw, settlement },
            durability: Durability::Synced,
            at: env.now(),
        };
        store.settle_attempt(lease, settle).await.map_err(RunError::at("settle a task that was under way"))?;
    }
    Ok(())
}

/// Ends the run that `lease` owns as a person said (`cancelled`, or `failed` after an abort), and writes the files that say so. One of which
/// nobody said anything ends as cancelled: the run above it ends. What was answered and kept beside the database, in `late`, is stored. The
/// caller made sure that no tool server of it is alive, and that the runs below it have ended.
///
/// # Errors
/// Those of the store and of the workspace.
pub async fn end_as_said(
    store: &dyn Store,
    late: &dyn LateReplies,
    lease: &RunLease,
    workspace: &Workspace,
    env: &Env,
) -> Result<RunRecord, RunError> {
    let run = store.run(&lease.run_id).await.map_err(RunError::at("read the run"))?;
    end_one(store, late, lease, workspace, env, run.end_mark().unwrap_or(EndMark::Cancel)).await
}

/// Ends the run that `lease` owns as its mark says, and the runs below it before it, each taken by `owner`. For a run whose tools cannot
/// be had: what an earlier tool server may still do is unknown, and stays so.
pub(crate) async fn end_marked(
    store: &dyn Store,
    late: &dyn LateReplies,
    lease: &RunLease,
    workspace: &Workspace,
    env: &Env,
    owner: &OwnerStamp,
    mark: EndMark,
) -> Result<(Conclusion, RunRecord), RunError> {
    Ending { store, late, env, owner, walk: Walk::from(&lease.run_id) }.tree(lease, workspace, mark).await
}

/// What the end of a tree needs at each of its runs.
struct Ending<'a> {
    store: &'a dyn Store,
    late: &'a dyn LateReplies,
    env: &'a Env,
    owner: &'a OwnerStamp,
    walk: Walk,
}

impl Ending<'_> {
    /// Ends a run, and those below it before.
    async fn tree(
        &mut self,
        lease: &RunLease,
        workspace: &Workspace,
        mark: EndMark,
    ) -> Result<(Conclusion, RunRecord), RunError> {
        let Self { store, late, env, owner, .. } = *self;
        let children = store.children(&lease.run_id).await.map_err(RunError::at("read the runs below"))?;
        for child in self.walk.down(children).into_iter().filter(|child| !child.status.is_terminal()) {
            if child.end_mark().is_none() {
                let asked = store.request_cancel(&child.run_id, ABOVE_ENDED, env.now()).await;
                asked.map_err(RunError::at("cancel a sub-agent"))?;
            }
            let taken = store.acquire_task_run(lease, &child.run_id, owner, env.now()).await;
            let (lease, child) = taken.map_err(RunError::at("take a sub-agent's run"))?;
            let call = child.task_call_id.as_ref().ok_or_else(|| {
                let why = "it is a sub-agent's and has no call that it is the task of".to_owned();
                RunError::at("end a sub-agent")(StoreError::Corrupt { row: RowRef::new("runs", &child.run_id), why })
            })?;
            let workspace = workspace.make_task(call)?;
            let mark = child.end_mark().unwrap_or(EndMark::Cancel);
            Box::pin(self.tree(&lease, &workspace, mark)).await?;
        }
        let run = end_one(store, late, lease, workspace, env, mark).await?;
        Ok((Conclusion::of_mark(mark), run))
    }
}

async fn end_one(
    store: &dyn Store,
    late: &dyn LateReplies,
    lease: &RunLease,
    workspace: &Workspace,
    env: &Env,
    mark: EndMark,
) -> Result<RunRecord, RunError> {
    let now = env.now();
    withdraw_conclusion(workspace, &lease.run_id)?;
    store
        .close_lost_requests(lease, now)
        .await
        .map_err(RunError::at("charge the requests that were never answered"))?;
    let run = store.run(&lease.run_id).await.map_err(RunError::at("read the run"))?;
    let why = ua_store::lost_because(&run);
    store.mark_lost(lease, why, now).await.map_err(RunError::at("mark what was under way as lost"))?;
    // What effects.log knows as sent is not told as never sent.
    let recalled = crate::past::recall(store, &lease.run_id, Some(&lease.run_id)).await;
    recalled.map_err(RunError::at("compare the database with effects.log"))?;
    apply_words(store, lease, now).await?;
    let mut records = store.load(&lease.run_id).await.map_err(RunError::at("load the run"))?;
    settle_tasks(store, lease, workspace, &records, env).await?;
    for call in records.calls.iter_mut().filter(|call| call.status == CallStatus::Running && !call.name.is_task()) {
        // A tool went on with it, and nobody will ask how it ended.
        let end = AttemptEnd::Lost { why: why.to_owned() };
        let (call_id, attempt) = (call.call_id.clone(), call.attempt);
        let settle = SettleAttempt { call_id, attempt, end, durability: Durability::Synced, at: now };
        *call = store.settle_attempt(lease, settle).await.map_err(RunError::at("give up what a tool still does"))?;
    }
    // Nobody looks for an answer behind this.
    let settled = settle_what_ends_by_late_replies(store, late, lease, &records.calls, now).await;
    if !settled.map_err(RunError::at("store what was answered before"))?.is_empty() {
        records = store.load(&lease.run_id).await.map_err(RunError::at("load the run"))?;
    }
    let (status, step_status, detail, said) = match mark {
        EndMark::Cancel => {
            let reason = records.run.cancel_reason.clone();
            (RunStatus::Cancelled, StepStatus::Skipped, reason, "the run was cancelled")
        }
        EndMark::Abort => (RunStatus::Failed, StepStatus::Failed, Some(ABORTED.to_owned()), ABORTED),
    };
    let open = records.questions.iter().filter(|question| question.status != QuestionStatus::Closed);
    let outlives = |call: Option<&CallRecord>| mark == EndMark::Abort && call.is_some_and(is_left_open);
    let end = RunEnd {
        step_end: records.run.current_step_id.clone().map(|step_id| StepEnd {
            step_id,
            status: step_status,
            error_code: None,
            error_detail: Some(said.to_owned()),
            at: now,
        }),
        cancels: never_sent(&records.calls, said),
        closes: open
            .filter(|question| !outlives(question.call_id.as_ref().and_then(|call| records.call(call))))
            .map(|question| question.question_id.clone())
            .collect(),
        ..run_end(status, detail, 0, now)
    };
    let run = store.end_run(lease, end).await.map_err(RunError::at("end the run"))?;
    let records = store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
    write_conclusion(workspace, &records)?;
    Ok(run)
}
