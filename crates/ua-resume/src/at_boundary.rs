//! What a run was when its last iteration began, read off what it is now.
//!
//! Context Storage & Durability Summary §5. A hand-off is made of the records of its moment; so that its file can be made again, what came
//! later is left out of them. Of what lies outside of the records, the files of the workspace, only today's state is known.

use std::collections::BTreeSet;

use ua_core::{CallId, Origin, RunStatus};
use ua_store::{QuestionStatus, RunRecords};

/// The records as they were when the last iteration began, and its number; `None` when no iteration followed another one.
pub fn before_last_iteration(records: &RunRecords) -> Option<(RunRecords, u32)> {
    let own_from = records.run.forked_at.map_or(0, |point| point.seq);
    let begun = records.messages.iter().rev().find(|m| m.message.origin == Origin::Iteration && m.seq > own_from)?;
    let (turn, seq, at) = (begun.turn, begun.seq, begun.created_at);
    let number = records.run.iteration_count;
    let mut before = records.clone();
    before.messages.retain(|message| message.seq < seq);
    before.turns.retain(|record| record.turn <= turn);
    before.calls.retain(|call| call.position.turn <= turn);
    let calls: BTreeSet<CallId> = before.calls.iter().map(|call| call.call_id.clone()).collect();
    before.attempts.retain(|attempt| calls.contains(&attempt.call_id));
    before.receipts.retain(|receipt| calls.contains(&receipt.call_id));
    before.requests.retain(|request| request.turn <= turn);
    before.questions.retain(|question| question.created_at < at);
    for question in &mut before.questions {
        if question.answer.as_ref().is_some_and(|answer| answer.answered_at >= at) {
            (question.status, question.answer) = (QuestionStatus::Open, None);
        }
    }
    before.steps.retain(|step| step.first_turn <= turn);
    let sub_agents = std::mem::take(&mut before.lineage.sub_agents);
    let mut kept: Vec<_> = Vec::new();
    for child in sub_agents {
        let is_kept = calls.contains(&child.call_id)
            || kept.iter().any(|parent: &ua_store::SubAgentRecord| parent.run_id == child.parent_run_id);
        kept.extend(is_kept.then_some(child));
    }
    before.lineage.sub_agents = kept;
    let run = &mut before.run;
    (run.turn_index, run.iteration_count) = (turn, number.saturating_sub(1));
    (run.status, run.stop_reason, run.status_detail, run.final_output) = (RunStatus::Running, None, None, None);
    run.current_step_id = before.steps.last().map(|step| step.step_id.clone());
    Some((before, number))
}
