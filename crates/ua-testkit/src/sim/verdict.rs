//! What must hold at the end: of the effects, of the records, and of both together.

use std::collections::BTreeMap;

use ua_core::{CallStatus, RunStatus};
use ua_store::{RunRecords, invariants};

use super::job::{Kind, Tool, tag_of};
use super::life::BoxError;
use super::model::MAX_ASKS;
use super::servers::Effect;
use super::stage::Stage;
use super::task::block_on;

/// Adds every violation to those that the stage saw itself.
pub(super) fn judge(stage: &mut Stage) -> Result<(), BoxError> {
    let runtime = stage.store.enter();
    let Ok(records) = block_on(stage.store.port.load(&stage.run)) else { return Ok(()) };
    let mut events = Vec::new();
    for call in &records.calls {
        events.extend(block_on(stage.store.port.events(&call.call_id))?);
    }
    stage.counts.questions =
        u64::try_from(records.questions.iter().filter(|question| question.call_id.is_some()).count())
            .unwrap_or(u64::MAX);
    let mut found = Vec::new();
    found.extend(
        stage.servers.stale_sends().into_iter().map(|words| format!("sent by an owner that was replaced: {words}")),
    );
    found
        .extend(stage.model.refused().into_iter().map(|words| format!("no provider would take this history: {words}")));
    found.extend(invariants::check(&records, &events).into_iter().map(|violation| violation.to_string()));
    let effects = stage.servers.effects();
    twice(stage, &effects, &mut found);
    told(&records, &effects, &mut found);
    if stage.violations.is_empty() {
        end(stage, &records, &effects, &mut found);
    }
    drop(runtime);
    stage.violations.extend(found);
    Ok(())
}

/// No call, and no intent, has its effect twice.
fn twice(stage: &Stage, effects: &[Effect], found: &mut Vec<String>) {
    let (mut calls, mut intents) = (BTreeMap::new(), BTreeMap::new());
    for effect in effects.iter().filter(|effect| effect.tool.has_effect()) {
        *calls.entry((effect.call.as_str(), effect.tool.name)).or_insert(0_u32) += 1;
        *intents.entry((effect.tag.as_str(), effect.tool.name)).or_insert(0_u32) += 1;
    }
    for ((call, tool), times) in calls.iter().filter(|(_, times)| **times > 1) {
        found.push(format!("duplicate: {tool} happened {times} times for call {call}"));
    }
    if found.is_empty() && !stage.was_careless {
        for ((tag, tool), times) in intents.iter().filter(|(_, times)| **times > 1) {
            found.push(format!("duplicate: {tool} happened {times} times for intent {tag}"));
        }
    }
}

/// What the records say about a call is what happened.
fn told(records: &RunRecords, effects: &[Effect], found: &mut Vec<String>) {
    for call in &records.calls {
        let Some(tool) = Tool::named(&call.name.tool).filter(|tool| tool.has_effect()) else { continue };
        let happened = effects.iter().any(|effect| effect.call == call.call_id);
        let (id, name) = (&call.call_id, tool.name);
        match call.status {
            CallStatus::Succeeded if !happened && call.deduplicated_from.is_none() => {
                found.push(format!("lost: {name} did not happen, and call {id} says that it succeeded"));
            }
            CallStatus::Prepared | CallStatus::Cancelled | CallStatus::FailedDefinite if happened => {
                found.push(format!("untold: {name} happened, and call {id} is {}", call.status));
            }
            CallStatus::Prepared
            | CallStatus::Running
            | CallStatus::Succeeded
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported
            | CallStatus::Unknown
            | CallStatus::Cancelled => {}
        }
    }
}

/// The run ended as it may, and nothing that was asked for is missing.
fn end(stage: &Stage, records: &RunRecords, effects: &[Effect], found: &mut Vec<String>) {
    let status = records.run.status;
    match status {
        RunStatus::Succeeded => {}
        RunStatus::Cancelled if stage.was_cancelled => return,
        RunStatus::Queued
        | RunStatus::Running
        | RunStatus::WaitingForHuman
        | RunStatus::Stopped
        | RunStatus::Failed
        | RunStatus::Cancelled => {
            let detail = records.run.status_detail.as_deref().unwrap_or("no reason is given");
            found.push(format!("the run ended as {}: {detail}", status.as_str()));
            return;
        }
    }
    if stage.was_careless {
        return; // what is skipped is missing
    }
    for intent in
        stage.intents.all().filter(|intent| intent.tool.has_effect() && intent.tool.kind != Kind::GoneOnWithout)
    {
        let calls: Vec<_> = records.calls.iter().filter(|call| tag_of(&call.tool_use_id) == intent.tag).collect();
        let is_there = effects.iter().any(|effect| effect.tag == intent.tag);
        // A tool that says it failed is believed, and what was asked for often enough is given up.
        let was_given_up =
            calls.iter().any(|call| call.status == CallStatus::FailedReported) || calls.len() >= MAX_ASKS;
        if !is_there && !was_given_up {
            found.push(format!("lost: {} of intent {} never happened", intent.tool.name, intent.tag));
        }
    }
}
