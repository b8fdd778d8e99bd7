//! Cancelling a run that nobody drives.
//!
//! Durable Jobs v1 spec §9. A cancel is sticky: whoever takes the run next ends it. When no process drives it, that is the one
//! who asks. Invariants: nothing is sent; a call that was under way when its process died stays `unknown` and goes on blocking its
//! scope, because a cancel says nothing about what happened; no question is left open.

use serde_json::json;
use ua_core::{CallStatus, Env, RawReply, Resolution, RunStatus, StepStatus};
use ua_dispatch::is_task_under_way;
use ua_ledger::interpret;
use ua_store::{
    AttemptEnd, CallCancel, Durability, QuestionStatus, RunEnd, RunLease, RunRecord, RunRecords, SettleAttempt,
    StepEnd, Store,
};

use crate::error::RunError;
use crate::files::write_conclusion;
use crate::workspace::Workspace;

/// Settles tasks that were under way. Their sub-agents were ended before, so that nothing of them goes on.
async fn settle_tasks(store: &dyn Store, lease: &RunLease, records: &RunRecords, env: &Env) -> Result<(), RunError> {
    for call in records.calls.iter().filter(|call| is_task_under_way(call)) {
        let text = "The sub-agent was cancelled with the run; what it did is in its own records.";
        let raw =
            RawReply::ToolResult { result: json!({"content": [{"type": "text", "text": text}], "isError": true}) };
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

/// Ends the run that `lease` owns as cancelled and writes the files that say so. The caller made sure that no tool server of it
/// is alive, that somebody asked to cancel it, and that the runs below it have ended.
///
/// # Errors
/// Those of the store and of the workspace.
pub async fn end_cancelled(
    store: &dyn Store,
    lease: &RunLease,
    workspace: &Workspace,
    env: &Env,
) -> Result<RunRecord, RunError> {
    let now = env.now();
    store
        .close_lost_requests(lease, now)
        .await
        .map_err(RunError::at("charge the requests that were never answered"))?;
    let why = "the process that sent it ended before an answer was stored";
    store.mark_lost(lease, why, now).await.map_err(RunError::at("mark what was under way as lost"))?;
    let mut records = store.load(&lease.run_id).await.map_err(RunError::at("load the run"))?;
    settle_tasks(store, lease, &records, env).await?;
    for call in records.calls.iter_mut().filter(|call| call.status == CallStatus::Running && !call.name.is_task()) {
        // A tool went on with it, and nobody will ask how it ended.
        let end = AttemptEnd::Lost { why: why.to_owned() };
        let (call_id, attempt) = (call.call_id.clone(), call.attempt);
        let settle = SettleAttempt { call_id, attempt, end, durability: Durability::Synced, at: now };
        *call = store.settle_attempt(lease, settle).await.map_err(RunError::at("give up what a tool still does"))?;
    }
    let prepared = records.calls.iter().filter(|call| call.status == CallStatus::Prepared);
    let cancels: Vec<CallCancel> = prepared
        .map(|call| CallCancel {
            call_id: call.call_id.clone(),
            resolution: Resolution::RunCancelled,
            code: "run_cancelled".to_owned(),
            message: "Not run: the run was cancelled.".to_owned(),
        })
        .collect();
    if !cancels.is_empty() {
        store.cancel_calls(lease, cancels, now).await.map_err(RunError::at("cancel what was not sent"))?;
    }
    let open = store.open_questions(Some(&lease.run_id)).await.map_err(RunError::at("read the questions"))?;
    for question in open.iter().filter(|question| question.status != QuestionStatus::Closed) {
        let closed = store.close_question(lease, &question.question_id, now).await;
        closed.map_err(RunError::at("close a question"))?;
    }
    let end = RunEnd {
        status: RunStatus::Cancelled,
        stop_reason: None,
        detail: records.run.cancel_reason.clone(),
        final_output: None,
        final_artifact_ref: None,
        step_end: records.run.current_step_id.clone().map(|step_id| StepEnd {
            step_id,
            status: StepStatus::Skipped,
            error_code: None,
            error_detail: Some("the run was cancelled".to_owned()),
            at: now,
        }),
        held_millis: 0,
        at: now,
    };
    let run = store.end_run(lease, end).await.map_err(RunError::at("end the run"))?;
    let records = store.load(&run.run_id).await.map_err(RunError::at("load the run"))?;
    write_conclusion(workspace, &records)?;
    Ok(run)
}
