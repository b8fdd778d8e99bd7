//! What an attempt that lies beside the database alone makes of its call.
//!
//! A database that went back in time has a call as it was before it was sent. `effects.log` knows that it was sent, and nobody has what came back:
//! so it is what a call is whose process died, and everything that asks what may have happened finds it. Proved by: `conformance::recalled`.

use ua_core::{CallEvent, CallStatus};

use super::call::{begun, call_settled, moved};
use super::conflict;
use crate::Durability;
use crate::commit::{AttemptEnd, RecallCall, RecalledAttempt, StartAttempt};
use crate::error::StoreError;
use crate::record::{AttemptRecord, CallRecord};

/// How the detail of a recalled attempt begins.
const RECALLED: &str = "effects.log knows of it, and the database did not";

/// The rows of a recalled call, in the order in which they are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Recalled {
    /// None when the database knows all of it.
    pub steps: Vec<RecalledStep>,
}

/// A call and an attempt of it, written together.
#[derive(Debug, Clone, PartialEq)]
pub struct RecalledStep {
    /// The call.
    pub call: CallRecord,
    /// The attempt.
    pub attempt: AttemptRecord,
    /// Whether the attempt is a new row, not one that ends.
    pub is_new: bool,
}

/// A call with attempts of which its database does not know; `current` is its newest one there. A call that may not be sent from where it stands
/// refuses: there, too, its record speaks against a repeat.
pub fn call_recalled(
    call: CallRecord,
    current: Option<AttemptRecord>,
    recall: &RecallCall,
    epoch: u64,
) -> Result<Recalled, StoreError> {
    let (mut call, mut steps) = (call, Vec::new());
    let known = call.attempt;
    let Some(last) = recall.attempts.last().filter(|last| last.attempt > known) else { return Ok(Recalled { steps }) };
    if call.deduplicated_from.is_some() {
        return Err(conflict("tool_calls", &call.call_id, "it has the answer of another call"));
    }
    if call.status == CallStatus::Running {
        let end = AttemptEnd::Lost { why: "its process ended before an answer was stored".to_owned() };
        let lost = call_settled(call, current, known, end, u64::MAX, last.at)?;
        steps.push(RecalledStep { call: lost.call.clone(), attempt: lost.attempt, is_new: false });
        call = lost.call;
    }
    for number in known + 1..=last.attempt {
        // A line that is missing is one that was not written: of that attempt no more is known than that there was one.
        let line = recall.attempts.iter().find(|line| line.attempt >= number).unwrap_or(last);
        let is_its_own = line.attempt == number;
        let (before, start) = (call.status, start(&call, line, number));
        let (running, attempt) = begun(moved(call, CallEvent::Started, line.at)?, before, false, start, epoch);
        steps.push(RecalledStep { call: running.clone(), attempt: attempt.clone(), is_new: true });
        let why = if is_its_own { format!("{RECALLED}: {}", line.said) } else { RECALLED.to_owned() };
        let end = if is_its_own && line.did_nothing { AttemptEnd::NotSent { why } } else { AttemptEnd::Lost { why } };
        let ended = call_settled(running, Some(attempt), number, end, u64::MAX, line.at)?;
        steps.push(RecalledStep { call: ended.call.clone(), attempt: ended.attempt, is_new: false });
        call = ended.call;
    }
    Ok(Recalled { steps })
}

fn start(call: &CallRecord, line: &RecalledAttempt, attempt: u32) -> StartAttempt {
    StartAttempt {
        call_id: call.call_id.clone(),
        attempt,
        key: line.key.clone(),
        scope: line.scope.clone().or_else(|| call.scope.clone()),
        seen: None,
        ends_doubt: false,
        file_digests: call.file_digests.clone(),
        server_generation: None,
        destination: None,
        max_effects: None,
        approved_by: None,
        replay_status: None,
        child: None,
        durability: Durability::Synced,
        at: line.at,
    }
}

/// Whether the line beside the database says of an attempt of which the database did not know that it was answered, in whatever way.
pub fn was_answered_beside(attempt: &AttemptRecord) -> bool {
    let said = attempt.detail.as_deref().and_then(|detail| detail.strip_prefix(RECALLED)?.strip_prefix(": "));
    said.is_some_and(|said| {
        [CallStatus::Succeeded, CallStatus::FailedReported].iter().any(|status| status.as_str() == said)
    })
}

/// Whether an attempt is known from beside the database alone.
pub fn is_recalled(attempt: &AttemptRecord) -> bool {
    attempt.detail.as_deref().is_some_and(|detail| detail.starts_with(RECALLED))
}
