//! Whether nobody knows what came of an attempt, as its rows tell it.
//!
//! A call keeps its doubt while it moves ([`CallRecord::doubt`]); this is the same rule, asked of what is stored. The invariants ask it of every
//! call, and a migration of those of a program that did not keep doubts: what it finds it puts in doubt ([`found_in_doubt`]). It is said once, so
//! that no migration spares a call that the invariants name. Proved by: the tests of `invariants::doubt`, and those of both stores that open
//! databases of every earlier schema.

use ua_core::{CallStatus, EvidenceLevel, OnUnknown, PossibleEffect, Resolution, SideEffectClass, Timestamp};

use crate::record::{AttemptRecord, CallRecord, Choice, QuestionKind, QuestionRecord, ReceiptRecord};

/// How the record of a call begins that a migration found to be in doubt. `ua doctor` lists calls by it.
pub const FOUND_IN_DOUBT: &str = "an attempt was sent and nobody knows what came of it; a later one did nothing";

/// What is stored about a call; rows of other calls among it do not count.
#[derive(Debug, Clone, Copy)]
pub struct DoubtContext<'a> {
    /// Its attempts, the first one first.
    pub attempts: &'a [AttemptRecord],
    /// What came back.
    pub receipts: &'a [ReceiptRecord],
    /// What a person was asked about it.
    pub questions: &'a [QuestionRecord],
    /// Where another call of its lineage stands that holds its key.
    pub holder: Option<CallStatus>,
}

/// The earliest attempt of a call that may have had the effect, and of which nobody knows: it was lost, or what came back left it open, no probe
/// proved it absent, and no person who was asked what came of it said so since. `None` too where there can be no doubt.
pub fn first_in_doubt(call: &CallRecord, context: DoubtContext<'_>) -> Option<u32> {
    // What went out later under the same key was answered for this call as well, where whoever answered knows keys.
    let is_answered_for = context.holder == Some(CallStatus::Succeeded) && call.policy.key_channel.is_some();
    if !has_doubts(call) || is_answered_for || call.resolution == Some(Resolution::NotHappened) {
        return None;
    }
    let words = words_about(call, context).collect::<Vec<_>>();
    earliest(call, context, call.attempt, &words)
}

/// Whether an attempt of a call was in doubt at a time when it had been sent `sent` times, whatever was said since.
pub fn was_in_doubt(call: &CallRecord, context: DoubtContext<'_>, sent: u32, at: Timestamp) -> bool {
    let words = words_about(call, context).filter(|said| *said <= at).collect::<Vec<_>>();
    has_doubts(call) && earliest(call, context, sent, &words).is_some()
}

/// The call as it has to stand once it is found that an attempt of it is in doubt, of which its row says nothing; `None` where it stands right.
/// `is_turn_over` says that its run has gone on behind it: whoever may decide about it now is a person who looks for it.
pub fn found_in_doubt(call: &CallRecord, context: DoubtContext<'_>, is_turn_over: bool) -> Option<CallRecord> {
    // A person's word about the record is the last one about its doubt as well.
    if call.doubt.is_some() || call.correction.is_some() {
        return None;
    }
    let did_nothing = match call.status {
        CallStatus::FailedDefinite => true,
        CallStatus::FailedReported => call.possible_effect == Some(PossibleEffect::None),
        CallStatus::Running | CallStatus::Unknown => false,
        CallStatus::Prepared | CallStatus::Succeeded | CallStatus::Cancelled => return None,
    };
    let doubt = first_in_doubt(call, context)?;
    let mut call = call.clone();
    call.doubt = Some(doubt);
    if !did_nothing {
        return Some(call);
    }
    let why = call.error_in_words().or_else(|| call.error_code.clone()).unwrap_or_default();
    call.error_detail = Some(format!("{FOUND_IN_DOUBT}: {why}"));
    // What it says from here on is no longer what came with that status alone.
    if call.http_status().is_some() {
        call.error_code = Some("earlier_attempt".to_owned());
    }
    if context.holder.is_some() {
        // One call holds a key: this one is reported as failed, and may have happened all the same.
        (call.status, call.possible_effect) = (CallStatus::FailedReported, Some(PossibleEffect::Maybe));
        return Some(call);
    }
    (call.status, call.possible_effect) = (CallStatus::Unknown, None);
    if is_turn_over {
        call.resolution = Some(Resolution::Skipped);
    }
    Some(call)
}

/// Whether what a call's tool refuses under a key was never done under it: so it is with our own memory tools, which note a key in the
/// transaction of the change. A server that somebody else made may look at a login, or at the length of what it was sent, before it looks
/// at a key, whatever class a rule gives its tools.
pub(super) fn has_exact_keys(call: &CallRecord) -> bool {
    call.policy.class == SideEffectClass::Memory && call.name.is_of_own_server()
}

/// Whether a refusal of a later attempt leaves doubt of an earlier one at all: not of what has no effect, may simply be done again, or is refused
/// under exact keys.
fn has_doubts(call: &CallRecord) -> bool {
    call.policy.class.has_effect()
        && !has_exact_keys(call)
        && call.policy.on_unknown != OnUnknown::Redo
        && call.deduplicated_from.is_none()
}

/// When a person who was asked what came of the call said that it did not happen. That it may go out, or go on, is no such word.
fn words_about<'a>(call: &'a CallRecord, context: DoubtContext<'a>) -> impl Iterator<Item = Timestamp> + 'a {
    let about = context.questions.iter().filter(move |question| {
        question.call_id.as_ref() == Some(&call.call_id) && question.kind == QuestionKind::UnknownOutcome
    });
    let words = about.filter_map(|question| question.answer.as_ref());
    words.filter(|answer| matches!(answer.choice, Choice::Execute | Choice::Continue)).map(|answer| answer.answered_at)
}

fn earliest(call: &CallRecord, context: DoubtContext<'_>, sent: u32, words: &[Timestamp]) -> Option<u32> {
    let is_in_doubt = |attempt: &&AttemptRecord| {
        let is_cleared = |ended: Timestamp| words.iter().any(|said| *said >= ended);
        attempt.call_id == call.call_id
            && attempt.attempt <= sent
            && is_left_open(context, attempt)
            // What is probed is sent again only where absence was proved, or by a person's word.
            && !(call.policy.on_unknown == OnUnknown::Probe && attempt.attempt < sent)
            && !attempt.ended_at.map_or(!words.is_empty(), is_cleared)
    };
    context.attempts.iter().filter(is_in_doubt).map(|attempt| attempt.attempt).min()
}

/// Whether what came of an attempt is not known from the attempt itself.
fn is_left_open(context: DoubtContext<'_>, attempt: &AttemptRecord) -> bool {
    let leaves_it_open = |receipt: &ReceiptRecord| {
        receipt.call_id == attempt.call_id
            && receipt.attempt == attempt.attempt
            && receipt.evidence == EvidenceLevel::Reported
            && receipt.settlement.as_ref().is_some_and(|said| said.status == CallStatus::Unknown)
    };
    match attempt.outcome.as_deref() {
        Some("lost") => true,
        Some("replied") => context.receipts.iter().any(leaves_it_open),
        Some(_) | None => false,
    }
}
