//! Turns: recorded when the model's reply is, committed when the results of its calls are.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{CallStatus, Message, PlannedCall, Resolution, StepId, StepStatus, Timestamp};

use super::run::{checkpoint_saved, request_closed};
use super::{conflict, not_found};
use crate::commit::{RequestEnd, TurnCommit, TurnDraft};
use crate::error::StoreError;
use crate::lifted::{NewBlob, offload_results};
use crate::record::{CallRecord, CheckpointRecord, MessageRecord, RequestRecord, RunRecord, StepRecord, TurnRecord};

/// The rows that recording a turn makes.
#[derive(Debug)]
pub struct RecordedTurn {
    /// The turn, open.
    pub turn: TurnRecord,
    /// The model's reply; its place in the history is the next one.
    pub message: MessageRecord,
    /// The calls it asks for.
    pub calls: Vec<CallRecord>,
    /// The request it answers, charged.
    pub request: RequestRecord,
}

pub(super) fn check_next_turn(run: &RunRecord, turn: u32, turn_is_open: bool) -> Result<(), StoreError> {
    let next = run.turn_index + 1;
    if turn != next {
        return Err(conflict("runs", &run.run_id, format!("its next turn is {next}, not {turn}")));
    }
    if turn_is_open {
        return Err(conflict("turns", format!("{}/{turn}", run.run_id), "it is already recorded"));
    }
    Ok(())
}

/// The rows of a turn that is recorded. `step` and `request` are those the draft names, `last_seq` is the place of the
/// run's last message.
pub fn turn_recorded(
    run: &RunRecord,
    step: Option<&StepRecord>,
    request: Option<&RequestRecord>,
    turn_is_open: bool,
    last_seq: u64,
    draft: TurnDraft,
) -> Result<RecordedTurn, StoreError> {
    check_next_turn(run, draft.turn, turn_is_open)?;
    let step = step.filter(|step| step.run_id == run.run_id).ok_or_else(|| not_found("run_steps", &draft.step_id))?;
    if step.status != StepStatus::Running {
        return Err(conflict("run_steps", &step.step_id, format!("it is {}", step.status)));
    }
    let request_name = format!("{}/{}", run.run_id, draft.request_id);
    let request = request.ok_or_else(|| not_found("usage", &request_name))?;
    if request.turn != draft.turn || request.request_sha256 != draft.request_sha256 {
        return Err(conflict("usage", request_name, "it is not the request that this reply answers"));
    }
    let end = RequestEnd::of_reply(&draft.reply);
    let request = request_closed(request, end, draft.at)
        .ok_or_else(|| conflict("usage", request_name, "it was charged before this reply was recorded"))?;
    check_calls(run, draft.turn, &draft.calls)?;

    let calls = calls_planned(run, &step.step_id, draft.calls, draft.at);
    let mut reply = draft.reply;
    let message = reply.clone().into_message();
    reply.blocks.clear();
    Ok(RecordedTurn {
        turn: TurnRecord {
            run_id: run.run_id.clone(),
            turn: draft.turn,
            step_id: draft.step_id,
            request_sha256: draft.request_sha256,
            reply,
            recorded_at: draft.at,
            committed_at: None,
            epoch: run.lease_epoch,
        },
        message: MessageRecord { seq: last_seq + 1, turn: draft.turn, message, created_at: draft.at },
        calls,
        request,
    })
}

fn check_calls(run: &RunRecord, turn: u32, calls: &[PlannedCall]) -> Result<(), StoreError> {
    let (mut ids, mut ordinals) = (BTreeSet::new(), BTreeSet::new());
    for call in calls {
        if call.position.turn != turn || call.position.ordinal == 0 {
            return Err(conflict(
                "tool_calls",
                &call.call_id,
                format!("its position is not in turn {turn} of run {}", run.run_id),
            ));
        }
        if !ids.insert(&call.call_id) || !ordinals.insert(call.position.ordinal) {
            return Err(conflict("tool_calls", &call.call_id, "two calls of the turn have this id or this position"));
        }
    }
    Ok(())
}

/// The calls that a turn of `step` asks for, as recording the turn makes them.
pub fn calls_planned(run: &RunRecord, step: &StepId, calls: Vec<PlannedCall>, at: Timestamp) -> Vec<CallRecord> {
    calls.into_iter().map(|call| planned(run, step, call, at)).collect()
}

fn planned(run: &RunRecord, step: &StepId, call: PlannedCall, at: Timestamp) -> CallRecord {
    let status = if call.refusal.is_some() { CallStatus::Cancelled } else { CallStatus::Prepared };
    let (resolution, error_code, error_detail) = match call.refusal {
        Some(refusal) => (Some(refusal.resolution), Some(refusal.code), Some(refusal.message)),
        None => (None, None, None),
    };
    CallRecord {
        call_id: call.call_id,
        run_id: run.run_id.clone(),
        root_run_id: run.root_run_id.clone(),
        step_id: step.clone(),
        position: call.position,
        created_at: at,
        updated_at: at,
        tool_use_id: call.tool_use_id,
        name: call.name,
        arguments: call.arguments,
        args_hash: call.args_hash,
        tool_digest: call.tool_digest,
        policy: call.policy,
        status,
        attempt: 0,
        doubt: None,
        idempotency_key: None,
        scope: None,
        file_digests: BTreeMap::new(),
        possible_effect: None,
        resolution,
        deduplicated_from: None,
        replay_status: None,
        external_correlation_id: None,
        error_code,
        error_detail,
        correction: None,
    }
}

/// What a store found that bears on a turn's commit.
#[derive(Debug)]
pub struct CommitContext<'a> {
    /// The run's open turn and its step, if there is one.
    pub open: Option<(TurnRecord, StepRecord)>,
    /// The calls of that turn.
    pub calls: &'a [CallRecord],
    /// The step that the checkpoint names.
    pub checkpoint_step: Option<&'a StepRecord>,
    /// The place of the run's last message.
    pub last_seq: u64,
}

/// The rows that a turn's commit leaves behind.
#[derive(Debug)]
pub struct CommittedTurn {
    /// The run, one turn further.
    pub run: RunRecord,
    /// The turn.
    pub turn: TurnRecord,
    /// Its step.
    pub step: StepRecord,
    /// The messages that are appended.
    pub messages: Vec<MessageRecord>,
    /// What of them is kept as blobs.
    pub blobs: Vec<NewBlob>,
    /// The marker of this boundary.
    pub checkpoint: CheckpointRecord,
}

/// The rows after a turn's commit. It must be the next one, recorded, and each of its calls settled or skipped.
pub fn turn_committed(
    mut run: RunRecord,
    context: CommitContext<'_>,
    commit: TurnCommit,
) -> Result<CommittedTurn, StoreError> {
    let CommitContext { open, calls, checkpoint_step, last_seq } = context;
    let (mut turn, mut step) = open_turn(&run, open, commit.turn)?;
    for call in calls {
        let is_skipped = call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped);
        if !call.status.is_settled() && !is_skipped {
            let why = format!("call {} of it is {}", call.call_id, call.status);
            return Err(conflict("turns", format!("{}/{}", run.run_id, commit.turn), why));
        }
    }
    turn.committed_at = Some(commit.at);
    step.last_turn = Some(commit.turn);
    step.updated_at = commit.at;
    run.turn_index = commit.turn;
    run.held_millis = run.held_millis.saturating_add(commit.held_millis);
    run.held_from = Some(commit.at);
    // The time is counted by this clock from here on: what it was set back by until now takes nothing from it.
    run.seen_at = run.seen_at.map(|seen| seen.min(commit.at));
    run.provider_session_id.clone_from(&turn.reply.response_id);
    run.updated_at = commit.at;
    let mut messages = commit.messages;
    let blobs = offload_results(&mut messages, run.spec.settings.blob_threshold_bytes);
    let messages = numbered(messages, last_seq, commit.turn, commit.at);
    let (mut run, checkpoint) = checkpoint_saved(run, checkpoint_step, commit.checkpoint)?;
    run.updated_at = commit.at;
    Ok(CommittedTurn { run, turn, step, messages, blobs, checkpoint })
}

fn open_turn(
    run: &RunRecord,
    open: Option<(TurnRecord, StepRecord)>,
    wanted: u32,
) -> Result<(TurnRecord, StepRecord), StoreError> {
    let next = run.turn_index + 1;
    if wanted != next {
        return Err(conflict("runs", &run.run_id, format!("its next turn is {next}, not {wanted}")));
    }
    open.filter(|(turn, _)| turn.turn == wanted)
        .ok_or_else(|| conflict("turns", format!("{}/{wanted}", run.run_id), "it is not recorded"))
}

/// Messages that are appended between turns. `tail` is the end of the run's history, at least as long as `messages`; when
/// it is these messages at this turn already, a lost answer made the caller repeat itself, and nothing is appended.
pub fn notes_appended(
    run: &RunRecord,
    turn_is_open: bool,
    tail: &[MessageRecord],
    messages: Vec<Message>,
    at: Timestamp,
) -> Result<Vec<MessageRecord>, StoreError> {
    if turn_is_open {
        return Err(conflict("runs", &run.run_id, "a turn is open; its results come first"));
    }
    let end = &tail[tail.len().saturating_sub(messages.len())..];
    let is_there = end.len() == messages.len()
        && end
            .iter()
            .zip(&messages)
            .all(|(stored, message)| stored.turn == run.turn_index && stored.message == *message);
    if is_there {
        return Ok(Vec::new());
    }
    Ok(numbered(messages, tail.last().map_or(0, |message| message.seq), run.turn_index, at))
}

fn numbered(messages: Vec<Message>, last_seq: u64, turn: u32, at: Timestamp) -> Vec<MessageRecord> {
    (last_seq + 1..).zip(messages).map(|(seq, message)| MessageRecord { seq, turn, message, created_at: at }).collect()
}
