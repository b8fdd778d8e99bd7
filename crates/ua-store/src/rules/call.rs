//! Tool calls: what a start, an answer, a loss or a person's word makes of them.

use std::collections::BTreeMap;

use ua_core::{
    CallEvent, CallStatus, CorrectedTo, EvidenceLevel, IdempotencyKey, OnUnknown, PossibleEffect, RawReply, Resolution,
    Settlement, Timestamp,
};

use super::doubt::has_exact_keys;
use super::question::{question_closed, question_for_call};
use super::recall::is_recalled;
use super::task::child_made;
use super::{conflict, not_found};
use crate::commit::{AttemptEnd, CallCancel, CorrectCall, KeepHandle, StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::gateway::{is_gateway, is_over};
use crate::late::may_be_to;
use crate::lifted::{NewBlob, keep_apart, offload};
use crate::record::{
    AttemptRecord, CallRecord, Choice, Correction, EndMark, MessageRecord, QuestionRecord, QuestionStatus,
    ReceiptRecord, ReplayStatus, RunLease, RunRecord,
};
use crate::relations::Relations;

/// Hands the call out only to the run it belongs to.
pub fn owned_call(call: CallRecord, lease: &RunLease) -> Result<CallRecord, StoreError> {
    if call.run_id == lease.run_id { Ok(call) } else { Err(not_found("tool_calls", &call.call_id)) }
}

pub(super) fn moved(mut call: CallRecord, event: CallEvent, at: Timestamp) -> Result<CallRecord, StoreError> {
    call.status =
        call.status.on(event).map_err(|illegal| conflict("tool_calls", &call.call_id, illegal.to_string()))?;
    call.updated_at = at;
    Ok(call)
}

/// What a store found that bears on the start of an attempt.
#[derive(Debug)]
pub struct StartContext<'a> {
    /// The call's run.
    pub run: &'a RunRecord,
    /// Another call that holds the key.
    pub holder: Option<CallRecord>,
    /// What the call might repeat, if the start asks for it.
    pub relations: Relations,
    /// Other calls of the lineage with the same effect kind that claim a key of their own.
    pub other_effects: u32,
    /// The question that the start names as its approval.
    pub approval: Option<QuestionRecord>,
}

/// Whether anything of a run may still go out: behind the word that it is to end nothing does.
pub fn may_send(run: &RunRecord) -> Result<(), StoreError> {
    match run.end_mark() {
        Some(EndMark::Cancel) => Err(conflict("runs", &run.run_id, "cancel was requested: nothing new is started")),
        Some(EndMark::Abort) => Err(conflict("runs", &run.run_id, "a person answered `abort`: nothing new is started")),
        None => Ok(()),
    }
}

/// The rows of a started attempt.
#[derive(Debug)]
pub struct Started {
    /// The call, running.
    pub call: CallRecord,
    /// Its new attempt.
    pub attempt: AttemptRecord,
    /// The approval, consumed.
    pub approval: Option<QuestionRecord>,
    /// For a task: the child run and its opening message.
    pub child: Option<(RunRecord, MessageRecord)>,
}

/// RUNNING, if nothing speaks against it.
pub fn call_started(
    context: StartContext<'_>,
    call: CallRecord,
    mut start: StartAttempt,
) -> Result<Started, StoreError> {
    let StartContext { run, holder, relations, other_effects, approval } = context;
    may_send(run)?;
    let before = call.status;
    let call = moved(call, CallEvent::Started, start.at)?;
    if start.attempt != call.attempt + 1 {
        let why = format!("its next attempt is {}, not {}", call.attempt + 1, start.attempt);
        return Err(conflict("tool_calls", &call.call_id, why));
    }
    // What definitely did nothing has left nothing under its key, so it may go out as another request: its files may have changed.
    let keeps_its_key = before != CallStatus::FailedDefinite;
    if keeps_its_key && call.idempotency_key.as_ref().is_some_and(|key| *key != start.key) {
        return Err(conflict("tool_calls", &call.call_id, "it was sent under another key before"));
    }
    if let Some(holder) = holder {
        return Err(StoreError::KeyTaken { call: call.call_id, by: holder.call_id, status: holder.status });
    }
    if let Some(other) = start.seen.as_deref().and_then(|seen| relations.news(seen)) {
        let (by, status) = (other.call_id.clone(), other.status);
        return Err(StoreError::ScopeTouched { call: call.call_id, by, status });
    }
    // What was in doubt when the call was asked for, and is none of its relations any more because somebody said what came of it.
    if before == CallStatus::Prepared && start.seen.is_some() && start.corrected_at != run.corrected_at {
        return Err(StoreError::Corrected { call: call.call_id });
    }
    if let (Some(effect), Some(max)) = (&call.policy.effect_kind, start.max_effects)
        && other_effects >= max
    {
        return Err(StoreError::EffectLimit { call: call.call_id, effect: effect.as_str().to_owned(), max });
    }
    let approval = approval.map(|question| consumed(question, &call, start.at)).transpose()?;
    let child = start.child.take().map(|child| child_made(*child, &call, run)).transpose()?;

    let (epoch, is_approved) = (run.lease_epoch, approval.is_some());
    let (call, attempt) = begun(call, before, is_approved, start, epoch);
    Ok(Started { call, attempt, approval, child })
}

/// A call that was never sent, with its first attempt under way: what [`call_started`] makes of it where nothing has to be looked at, as for one
/// that only reads and stands in nobody's way.
pub fn call_begun(call: CallRecord, start: StartAttempt, epoch: u64) -> Result<CallRecord, StoreError> {
    let before = call.status;
    let call = moved(call, CallEvent::Started, start.at)?;
    Ok(begun(call, before, false, start, epoch).0)
}

/// The rows of a start, of a call that has moved from `before` to RUNNING.
pub(super) fn begun(
    mut call: CallRecord,
    before: CallStatus,
    is_approved: bool,
    start: StartAttempt,
    epoch: u64,
) -> (CallRecord, AttemptRecord) {
    call.resolution = (before == CallStatus::Unknown && is_approved).then_some(Resolution::Executed);
    call.attempt = start.attempt;
    if start.ends_doubt {
        call.doubt = None;
    }
    call.idempotency_key = Some(start.key);
    call.scope = start.scope;
    call.file_digests = start.file_digests;
    call.replay_status = start.replay_status.or(call.replay_status);
    call.possible_effect = None;
    call.external_correlation_id = None;
    call.error_code = None;
    call.error_detail = None;
    call.correction = None;
    let attempt = AttemptRecord {
        call_id: call.call_id.clone(),
        attempt: start.attempt,
        epoch,
        server_generation: start.server_generation,
        destination: start.destination,
        started_at: start.at,
        ended_at: None,
        outcome: None,
        detail: None,
        handle: None,
    };
    (call, attempt)
}

fn consumed(question: QuestionRecord, call: &CallRecord, at: Timestamp) -> Result<QuestionRecord, StoreError> {
    question_for_call(&question, &call.call_id)?;
    let says_go =
        question.answer.as_ref().is_some_and(|answer| matches!(answer.choice, Choice::Execute | Choice::Continue));
    if question.status != QuestionStatus::Answered || !says_go {
        return Err(conflict("questions", &question.question_id, "it holds no unused answer that lets the call run"));
    }
    question_closed(question, &call.run_id, at)
}

/// The running attempt with what it goes on with.
pub fn handle_kept(
    call: &CallRecord,
    stored: Option<AttemptRecord>,
    keep: KeepHandle,
) -> Result<AttemptRecord, StoreError> {
    let attempt = keep.attempt;
    let running = stored
        .filter(|stored| call.status == CallStatus::Running && stored.attempt == attempt && stored.ended_at.is_none());
    let mut running = running.ok_or_else(|| {
        let why = format!("attempt {attempt} is not running: it is {} at attempt {}", call.status, call.attempt);
        conflict("tool_calls", &call.call_id, why)
    })?;
    running.handle = Some(keep.handle);
    Ok(running)
}

/// The rows of a settled attempt.
#[derive(Debug)]
pub struct Settled {
    /// The call.
    pub call: CallRecord,
    /// The attempt, ended.
    pub attempt: AttemptRecord,
    /// What came back.
    pub receipt: Option<ReceiptRecord>,
    /// What of it is kept as blobs.
    pub blobs: Vec<NewBlob>,
}

/// The end of the running attempt. `stored` is the attempt of that number; one whose reply is stored has ended already. What is over
/// `threshold` bytes becomes a blob.
pub fn call_settled(
    call: CallRecord,
    stored: Option<AttemptRecord>,
    attempt: u32,
    end: AttemptEnd,
    threshold: u64,
    at: Timestamp,
) -> Result<Settled, StoreError> {
    if call.status != CallStatus::Running || call.attempt != attempt {
        let why = format!("attempt {attempt} is not running: it is {} at attempt {}", call.status, call.attempt);
        return Err(conflict("tool_calls", &call.call_id, why));
    }
    let stored = stored.filter(|stored| stored.ended_at.is_none());
    let mut stored =
        stored.ok_or_else(|| conflict("tool_calls", &call.call_id, "the reply of this attempt is stored already"))?;
    stored.ended_at = Some(at);
    let mut blobs = Vec::new();
    let (call, outcome, detail, receipt) = match end {
        AttemptEnd::NotSent { why } => {
            let call = attempt_ended(failing(call, "not_sent", &why), CallEvent::FailedDefinitely, at)?;
            (call, "not_sent", Some(why), None)
        }
        AttemptEnd::Lost { why } => {
            (attempt_ended(failing(call, "lost", &why), CallEvent::OutcomeLost, at)?, "lost", Some(why), None)
        }
        AttemptEnd::Replied { raw, settlement } => {
            let call_id = call.call_id.clone();
            let call = match &settlement {
                Some(settlement) => understood(call, settlement, at)?,
                None => CallRecord { updated_at: at, ..call },
            };
            let evidence = EvidenceLevel::Reported;
            let lifted = BTreeMap::new();
            let whole = ReceiptRecord { call_id, attempt, received_at: at, raw, lifted, settlement, evidence };
            let (receipt, new) = by_reference(whole, threshold);
            blobs = new;
            (call, "replied", None, Some(receipt))
        }
    };
    stored.outcome = Some(outcome.to_owned());
    stored.detail = detail;
    Ok(Settled { call, attempt: stored, receipt, blobs })
}

/// The receipt with what is large in it taken out.
fn by_reference(mut receipt: ReceiptRecord, threshold: u64) -> (ReceiptRecord, Vec<NewBlob>) {
    let blobs = keep_apart(&mut receipt, threshold);
    (receipt, blobs)
}

fn understood_by_reference(settlement: &mut Settlement, threshold: u64) -> Option<NewBlob> {
    settlement.content.as_mut().and_then(|content| offload(&mut content.text, threshold))
}

fn failing(mut call: CallRecord, code: &str, why: &str) -> CallRecord {
    call.error_code = Some(code.to_owned());
    call.error_detail = Some(why.to_owned());
    call
}

fn understood(call: CallRecord, settlement: &Settlement, at: Timestamp) -> Result<CallRecord, StoreError> {
    let event = match settlement.status {
        CallStatus::Succeeded => CallEvent::Succeeded,
        CallStatus::FailedDefinite => CallEvent::FailedDefinitely,
        CallStatus::FailedReported => CallEvent::FailureReported,
        CallStatus::Unknown => CallEvent::OutcomeLost,
        status @ (CallStatus::Prepared | CallStatus::Running | CallStatus::Cancelled) => {
            return Err(conflict("tool_calls", &call.call_id, format!("a reply never means that it is {status}")));
        }
    };
    let mut call = call;
    call.possible_effect = settlement.possible_effect;
    call.external_correlation_id.clone_from(&settlement.external_correlation_id);
    call.error_code.clone_from(&settlement.error_code);
    call.error_detail.clone_from(&settlement.error_detail);
    attempt_ended(call, event, at)
}

/// What the end of its running attempt makes of a call. That this attempt did nothing says nothing about an earlier one that is in doubt:
/// the call is then unknown again, and its policy decides as for any other.
fn attempt_ended(call: CallRecord, event: CallEvent, at: Timestamp) -> Result<CallRecord, StoreError> {
    let earlier = call.doubt.filter(|doubt| *doubt < call.attempt);
    // What our own memory tools refuse under a key was never done under it. An attempt that never left was refused by nobody.
    let is_exact = has_exact_keys(&call) && call.error_code.as_deref() != Some("not_sent");
    let did_nothing = (event == CallEvent::FailedDefinitely && !is_exact)
        || (event == CallEvent::FailureReported && call.possible_effect == Some(PossibleEffect::None));
    let Some(earlier) = earlier.filter(|_| did_nothing) else {
        let mut call = moved(call, event, at)?;
        match event {
            CallEvent::OutcomeLost if may_be_in_doubt(&call) => call.doubt = call.doubt.or(Some(call.attempt)),
            // A call that may not simply be sent again is sent again only under its key, which answers for the earlier attempt, or once
            // its doubt has ended; or somebody knows that it happened.
            CallEvent::Succeeded | CallEvent::FailedDefinitely => call.doubt = None,
            CallEvent::Started
            | CallEvent::Deduplicated
            | CallEvent::FailureReported
            | CallEvent::OutcomeLost
            | CallEvent::Cancelled
            | CallEvent::CorrectedToHappened
            | CallEvent::CorrectedToNotHappened
            | CallEvent::CorrectedToSkipped => {}
        }
        return Ok(call);
    };
    let (attempt, why) = (call.attempt, call.error_in_words().or(call.error_code.clone()).unwrap_or_default());
    let mut call = moved(call, CallEvent::OutcomeLost, at)?;
    call.possible_effect = None;
    // What it says from here on is no longer what came with that status alone.
    if call.http_status().is_some() {
        call.error_code = Some("earlier_attempt".to_owned());
    }
    call.error_detail = Some(format!(
        "nobody knows what came of attempt {earlier}; that attempt {attempt} did nothing does not say it either: {why}"
    ));
    Ok(call)
}

/// Whether a call can be in doubt at all: what has no effect, and what replaces its own output, may simply be done again.
fn may_be_in_doubt(call: &CallRecord) -> bool {
    call.policy.class.has_effect() && call.policy.on_unknown != OnUnknown::Redo
}

/// The call and its newest receipt, once the receipt's meaning is known, and what of that is kept as a blob.
pub fn receipt_interpreted(
    call: CallRecord,
    receipt: Option<ReceiptRecord>,
    mut settlement: Settlement,
    threshold: u64,
    at: Timestamp,
) -> Result<(CallRecord, ReceiptRecord, Option<NewBlob>), StoreError> {
    let mut receipt = receipt.ok_or_else(|| not_found("tool_receipts", &call.call_id))?;
    if receipt.settlement.is_some() {
        return Err(conflict(
            "tool_receipts",
            format!("{}/{}", call.call_id, receipt.attempt),
            "its meaning is stored already",
        ));
    }
    let call = understood(call, &settlement, at)?;
    let blob = understood_by_reference(&mut settlement, threshold);
    receipt.settlement = Some(settlement);
    Ok((call, receipt, blob))
}

/// The call, answered by the receipt of `from`: a call of its lineage that succeeded under the same key.
pub fn call_deduplicated(
    call: CallRecord,
    from: &CallRecord,
    key: &IdempotencyKey,
    at: Timestamp,
) -> Result<CallRecord, StoreError> {
    let is_twin = from.root_run_id == call.root_run_id && from.idempotency_key.as_ref() == Some(key);
    if !is_twin || from.status != CallStatus::Succeeded || from.deduplicated_from.is_some() {
        let why = format!("call {} is not a succeeded holder of the key in its lineage", from.call_id);
        return Err(conflict("tool_calls", &call.call_id, why));
    }
    let mut call = moved(call, CallEvent::Deduplicated, at)?;
    call.idempotency_key = Some(key.clone());
    call.deduplicated_from = Some(from.call_id.clone());
    call.resolution = Some(Resolution::Deduplicated);
    call.scope.clone_from(&from.scope);
    call.external_correlation_id.clone_from(&from.external_correlation_id);
    Ok(call)
}

/// The call, never to be sent.
pub fn call_cancelled(call: CallRecord, cancel: &CallCancel, at: Timestamp) -> Result<CallRecord, StoreError> {
    let mut call = failing(moved(call, CallEvent::Cancelled, at)?, &cancel.code, &cancel.message);
    call.resolution = Some(cancel.resolution);
    Ok(call)
}

/// A call that is not sent although a person let it go: the model, and whoever reads its record, is told that they did.
pub fn let_go_in_vain(mut call: CallRecord) -> CallRecord {
    let told = call.error_detail.take().unwrap_or_default();
    let said = "A person had approved it; if you make it again, they are asked again.";
    call.error_detail = Some(format!("{told} {said}").trim_start().to_owned());
    call
}

/// A running call whose process died, and its attempt; `None` when the call is not running, its reply is stored, or there is
/// something to go on with, as a task has: of it the child run's rows say where it stands, and nothing is lost.
pub fn call_lost(
    call: &CallRecord,
    attempt: &AttemptRecord,
    why: &str,
    at: Timestamp,
) -> Option<(CallRecord, AttemptRecord)> {
    let goes_on = attempt.live_handle().is_some() || call.name.is_task();
    if call.status != CallStatus::Running || attempt.ended_at.is_some() || goes_on {
        return None;
    }
    let end = AttemptEnd::Lost { why: why.to_owned() };
    let settled = call_settled(call.clone(), Some(attempt.clone()), call.attempt, end, u64::MAX, at);
    settled.ok().map(|settled| (settled.call, settled.attempt))
}

/// An `unknown` call for which there is evidence, that evidence as a receipt, and what of it is kept as blobs.
///
/// The receipt belongs to the attempt that was lost. When that attempt has a receipt (a reply that left the outcome open),
/// the evidence is a second, newer one of the same attempt: attempts keep their meaning, one number per dispatch.
pub fn call_vouched_for(
    call: CallRecord,
    raw: RawReply,
    settlement: Settlement,
    evidence: EvidenceLevel,
    threshold: u64,
    at: Timestamp,
) -> Result<(CallRecord, ReceiptRecord, Vec<NewBlob>), StoreError> {
    check_unknown(&call)?;
    if settlement.status != CallStatus::Succeeded {
        return Err(conflict(
            "tool_calls",
            &call.call_id,
            format!("evidence that it is {} is no evidence", settlement.status),
        ));
    }
    let mut call = understood(call, &settlement, at)?;
    let by_probe = matches!(raw, RawReply::Found { .. });
    call.resolution = Some(if by_probe { Resolution::Reconciled } else { Resolution::Happened });
    let (call_id, attempt) = (call.call_id.clone(), call.attempt);
    let (lifted, settlement) = (BTreeMap::new(), Some(settlement));
    let whole = ReceiptRecord { call_id, attempt, received_at: at, raw, lifted, settlement, evidence };
    let (receipt, blobs) = by_reference(whole, threshold);
    Ok((call, receipt, blobs))
}

/// An `unknown` call of which somebody knows that it did not happen.
pub fn call_not_happened(call: CallRecord, why: &str, at: Timestamp) -> Result<CallRecord, StoreError> {
    check_unknown(&call)?;
    let mut call = failing(moved(call, CallEvent::FailedDefinitely, at)?, "not_happened", why);
    call.doubt = None;
    call.resolution = Some(Resolution::NotHappened);
    Ok(call)
}

/// An `unknown` call that a person gave up on; it stays `unknown`.
pub fn call_skipped(mut call: CallRecord, at: Timestamp) -> Result<CallRecord, StoreError> {
    check_unknown(&call)?;
    if call.resolution != Some(Resolution::Skipped) {
        call.resolution = Some(Resolution::Skipped);
        call.updated_at = at;
    }
    Ok(call)
}

/// Whether nobody knows what came of a call, and its run continued without it: that is what models were told.
pub fn was_left_unknown(call: &CallRecord) -> bool {
    call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped)
}

/// A call that definitely failed and that a person left as it is: it is not to be made, so that nothing went wrong with it. `None` for one
/// that stands otherwise, or was left before.
pub fn failure_left(mut call: CallRecord, at: Timestamp) -> Option<CallRecord> {
    if call.status != CallStatus::FailedDefinite || call.resolution == Some(Resolution::Skipped) {
        return None;
    }
    call.resolution = Some(Resolution::Skipped);
    call.updated_at = at;
    Some(call)
}

/// The rows of an `unknown` call that is settled by evidence or by a person's word.
#[derive(Debug)]
pub struct Resolved {
    /// The call.
    pub call: CallRecord,
    /// The evidence.
    pub receipt: Option<ReceiptRecord>,
    /// What of it is kept as blobs.
    pub blobs: Vec<NewBlob>,
    /// The question that is answered by it, closed.
    pub question: Option<QuestionRecord>,
    /// Its newest attempt, where it turns out to have been answered.
    pub attempt: Option<AttemptRecord>,
}

/// An `unknown` call, settled by `resolution`, and the question that this answers. `attempt` is its newest one.
pub fn call_resolved(
    call: CallRecord,
    attempt: Option<AttemptRecord>,
    resolution: UnknownResolution,
    question: Option<QuestionRecord>,
    threshold: u64,
    at: Timestamp,
) -> Result<Resolved, StoreError> {
    if let Some(question) = &question {
        question_for_call(question, &call.call_id)?;
    }
    let mut answered = None;
    let (call, receipt, blobs) = match resolution {
        UnknownResolution::Happened { raw, settlement, evidence } => {
            let (call, receipt, blobs) = call_vouched_for(call, raw, settlement, evidence, threshold, at)?;
            (call, Some(receipt), blobs)
        }
        UnknownResolution::Answered { raw, settlement, received_at, sent_at } => {
            let its_own = attempt.filter(|attempt| may_be_to(attempt, sent_at, received_at));
            let settled = call_answered_late(call, its_own, raw, settlement, received_at, threshold, at)?;
            answered = Some(settled.attempt);
            (settled.call, settled.receipt, settled.blobs)
        }
        UnknownResolution::NotHappened { why } => (call_not_happened(call, &why, at)?, None, Vec::new()),
        UnknownResolution::Skipped => (call_skipped(call, at)?, None, Vec::new()),
    };
    let question = question.map(|question| question_closed(question, &call.run_id, at)).transpose()?;
    Ok(Resolved { call, receipt, blobs, question, attempt: answered })
}

/// An `unknown` call whose newest attempt was answered after all, and that attempt: what it would be if the answer had been stored when it
/// came; `None` where the answer is another one's.
fn call_answered_late(
    call: CallRecord,
    attempt: Option<AttemptRecord>,
    raw: RawReply,
    settlement: Settlement,
    received_at: Timestamp,
    threshold: u64,
    at: Timestamp,
) -> Result<Settled, StoreError> {
    check_unknown(&call)?;
    let Some(mut attempt) = attempt.filter(AttemptRecord::was_lost) else {
        return Err(conflict("tool_calls", &call.call_id, "its newest attempt is not one that this answer may be of"));
    };
    let mut call = call;
    // What is known of it now is no doubt any more; an earlier attempt's stays.
    if call.doubt == Some(call.attempt) {
        call.doubt = None;
    }
    let call = understood(call, &settlement, at)?;
    let is_from_beside = is_recalled(&attempt);
    // The clock may have been set back between.
    attempt.ended_at = Some(received_at.max(attempt.started_at));
    attempt.outcome = Some("replied".to_owned());
    // That the rows which say why it was sent are gone stays true of it.
    attempt.detail = attempt.detail.take_if(|_| is_from_beside);
    let (call_id, number) = (call.call_id.clone(), attempt.attempt);
    let (lifted, settlement, evidence) = (BTreeMap::new(), Some(settlement), EvidenceLevel::Reported);
    let whole = ReceiptRecord { call_id, attempt: number, received_at, raw, lifted, settlement, evidence };
    let (receipt, blobs) = by_reference(whole, threshold);
    Ok(Settled { call, attempt, receipt: Some(receipt), blobs })
}

/// What a store found that bears on a correction.
#[derive(Debug)]
pub struct CorrectContext<'a> {
    /// The call's run.
    pub run: &'a RunRecord,
    /// Its newest attempt.
    pub attempt: Option<AttemptRecord>,
    /// Another call that holds its key.
    pub holder: Option<CallRecord>,
    /// The call of which the person says that it had this one's effect.
    pub of: Option<CallRecord>,
    /// Calls that are answered by its receipt, or by that of one that is.
    pub followers: Vec<CallRecord>,
    /// The question about it that is not closed.
    pub question: Option<QuestionRecord>,
}

/// The rows of a corrected call.
#[derive(Debug)]
pub struct Corrected {
    /// The call.
    pub call: CallRecord,
    /// Its attempt, when it had not ended.
    pub attempt: Option<AttemptRecord>,
    /// The person's word.
    pub receipt: Option<ReceiptRecord>,
    /// What of it is kept as blobs.
    pub blobs: Vec<NewBlob>,
    /// Calls that were answered by its receipt, corrected with it.
    pub followers: Vec<CallRecord>,
    /// The question about it, closed.
    pub question: Option<QuestionRecord>,
}

/// A call whose record a person puts right, whatever it says, before and after the end of its run. The status follows the person's word
/// alone; so do key, scope, doubt and everything that asks [`may_have_happened`].
///
/// `None` when this very correction is stored already: its answer was lost.
pub fn call_corrected(
    context: CorrectContext<'_>,
    call: CallRecord,
    correct: CorrectCall,
    threshold: u64,
) -> Result<Option<Corrected>, StoreError> {
    let CorrectContext { run, attempt, holder, of, followers, question } = context;
    let CorrectCall { seen, correction, receipt, is_idle, .. } = correct;
    let (outcome, at) = (correction.outcome, correction.at);
    if call.correction.as_ref() == Some(&correction) {
        return Ok(None);
    }
    let refused = |why: String| conflict("tool_calls", &call.call_id, why);
    if let Some(source) = &call.deduplicated_from {
        return Err(refused(format!("it was never sent: it has the answer of call {source}")));
    }
    if (call.status, call.attempt) != seen {
        return Err(refused(format!("it is {} at attempt {} now", call.status, call.attempt)));
    }
    if !is_idle && is_of_open_turn(run, &call) {
        return Err(refused("its turn is under way: its owner decides about it".to_owned()));
    }
    let is_skipped = call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped);
    if is_skipped && outcome == CorrectedTo::Skipped {
        return Err(refused("it is already recorded as that".to_owned()));
    }
    if outcome == CorrectedTo::Happened && receipt.is_none() {
        return Err(refused("a word that it happened needs a receipt".to_owned()));
    }
    if let Some(named) = &correction.of
        && !of.as_ref().is_some_and(|of| had_its_effect(of, &call))
    {
        return Err(refused(format!(
            "call {named}, which is said to have had its effect, has not succeeded by itself"
        )));
    }
    let attempt = attempt.filter(|attempt| attempt.ended_at.is_none());
    if let Some(attempt) = &attempt
        && attempt.live_handle().is_some()
    {
        return Err(refused("its tool still works on it".to_owned()));
    }
    let corrected = put_right(call.clone(), correction.clone())?;
    if corrected.status.claims_key()
        && !call.status.claims_key()
        && let Some(holder) = holder
    {
        return Err(StoreError::KeyTaken { call: call.call_id, by: holder.call_id, status: holder.status });
    }
    let attempt = attempt.map(|attempt| AttemptRecord {
        ended_at: Some(at),
        outcome: Some("lost".to_owned()),
        detail: Some("the process that sent it ended before an answer was stored".to_owned()),
        ..attempt
    });
    let (mut call, mut blobs) = (corrected, Vec::new());
    let receipt = receipt.map(|(raw, settlement)| {
        let (call_id, evidence, lifted) = (call.call_id.clone(), EvidenceLevel::Reconciled, BTreeMap::new());
        call.external_correlation_id =
            settlement.external_correlation_id.clone().or(call.external_correlation_id.take());
        let settlement = Some(settlement);
        let whole =
            ReceiptRecord { call_id, attempt: call.attempt, received_at: at, raw, lifted, settlement, evidence };
        let (receipt, new) = by_reference(whole, threshold);
        blobs = new;
        receipt
    });
    if let Some(of) = of {
        call.external_correlation_id = of.external_correlation_id;
    }
    let with_it = |follower: CallRecord| {
        let of = follower.answered_by().cloned();
        let correction = Correction { was: follower.status, of, ..correction.clone() };
        let mut follower = put_right(follower, correction).ok()?;
        // What it sent itself did nothing: the doubt is the other call's.
        follower.doubt = None;
        if outcome == CorrectedTo::Happened {
            follower.external_correlation_id.clone_from(&call.external_correlation_id);
        }
        Some(follower)
    };
    let followers = followers.into_iter().filter_map(with_it).collect();
    let question = question.map(|question| {
        question_for_call(&question, &call.call_id)?;
        let closed = question_closed(question, &call.run_id, at)?;
        Ok(QuestionRecord { closed_because: Some(correction.sentence()), ..closed })
    });
    Ok(Some(Corrected { question: question.transpose()?, call, attempt, receipt, blobs, followers }))
}

/// Whether the receipt of `other` may answer `call`, of which a person says that it had the effect: what succeeded by itself in the same lineage.
fn had_its_effect(other: &CallRecord, call: &CallRecord) -> bool {
    other.call_id != call.call_id
        && other.root_run_id == call.root_run_id
        && other.status == CallStatus::Succeeded
        && other.deduplicated_from.is_none()
}

/// Whether a call belongs to a turn that its run has not ended: its owner decides about it. A session at the gateway has no turns; what a person left
/// in doubt there is decided about by nobody any more.
pub fn is_of_open_turn(run: &RunRecord, call: &CallRecord) -> bool {
    let is_left = call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped);
    !run.status.is_terminal() && call.position.turn > run.turn_index && !(is_gateway(run) && is_left)
}

/// The call as the correction has it.
fn put_right(call: CallRecord, correction: Correction) -> Result<CallRecord, StoreError> {
    let outcome = correction.outcome;
    let mut call = moved(call, outcome.event(), correction.at)?;
    (call.possible_effect, call.error_code, call.error_detail) = (None, None, None);
    match outcome {
        CorrectedTo::Happened => {
            call.doubt = None;
            call.resolution = Some(Resolution::Happened);
        }
        CorrectedTo::NotHappened => {
            call = failing(call, "not_happened", &correction.sentence());
            call.doubt = None;
            call.external_correlation_id = None;
            call.resolution = Some(Resolution::NotHappened);
        }
        CorrectedTo::Skipped => {
            call = failing(call, "skipped", &correction.sentence());
            if call.attempt > 0 && may_be_in_doubt(&call) {
                call.doubt = call.doubt.or(Some(call.attempt));
            }
            call.resolution = Some(Resolution::Skipped);
        }
    }
    call.correction = Some(correction);
    Ok(call)
}

/// Refuses what may only be done to a call once nobody acts for its run any more.
pub fn check_run_ended(run: &RunRecord) -> Result<(), StoreError> {
    if is_over(run) {
        return Ok(());
    }
    Err(conflict("runs", &run.run_id, format!("it is {}: its owner applies what is answered", run.status)))
}

fn check_unknown(call: &CallRecord) -> Result<(), StoreError> {
    if call.status == CallStatus::Unknown {
        Ok(())
    } else {
        Err(conflict("tool_calls", &call.call_id, format!("it is {}, not unknown", call.status)))
    }
}

/// The call with a note of what a resume did with it.
pub fn replay_noted(mut call: CallRecord, status: ReplayStatus, at: Timestamp) -> CallRecord {
    call.replay_status = Some(status);
    call.updated_at = at;
    call
}

/// Whether a call was done, for all that was known, until a person said that it did not happen. Whoever got it may know its key, and would not do
/// under that key what is to be done instead. The key of a call in doubt stays good: if the person errs it is what keeps it to one.
pub fn used_up_its_key(call: &CallRecord) -> bool {
    call.correction
        .as_ref()
        .is_some_and(|correction| correction.outcome == CorrectedTo::NotHappened && correction.was_done())
}

/// Whether a call may have had its effect: it is being sent, was sent and not answered (also when a person gave it up), was
/// reported as failed by a tool that may have done it before, or succeeded by itself.
pub fn may_have_happened(call: &CallRecord) -> bool {
    call.deduplicated_from.is_none()
        && match call.status {
            _ if call.doubt.is_some() => true,
            CallStatus::Running | CallStatus::Unknown | CallStatus::Succeeded => true,
            CallStatus::FailedReported => call.possible_effect != Some(PossibleEffect::None),
            CallStatus::Prepared | CallStatus::FailedDefinite | CallStatus::Cancelled => false,
        }
}

/// Whether nobody knows what came of a call, or of an attempt of it, whatever a later one came to.
pub fn is_doubt(call: &CallRecord) -> bool {
    call.status == CallStatus::Unknown || call.doubt.is_some()
}

/// Whether `call` holds `key` against others.
pub(crate) fn holds_key(call: &CallRecord, key: &IdempotencyKey) -> bool {
    call.idempotency_key.as_ref() == Some(key) && call.status.claims_key() && call.deduplicated_from.is_none()
}

/// Whether `call` counts towards the limit of its effect kind, for a start of `other`. What answers it that another call did counts as that one.
pub fn counts_as_effect(call: &CallRecord, other: &CallRecord) -> bool {
    call.call_id != other.call_id
        && call.answered_by().is_none()
        && call.root_run_id == other.root_run_id
        && other.policy.effect_kind.is_some()
        && call.policy.effect_kind == other.policy.effect_kind
        && may_have_happened(call)
}
