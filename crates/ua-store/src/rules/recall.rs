//! What an attempt that lies beside the database alone makes of its call.
//!
//! A database that went back in time has a call as it was before it was sent. `effects.log` knows that it was sent, and nobody has what came back:
//! so it is what a call is whose process died, and everything that asks what may have happened finds it. Proved by: `conformance::recalled`.

use serde::de::DeserializeOwned;
use serde_json::json;
use ua_core::{CallEvent, CallStatus};

use super::call::{begun, call_settled, moved};
use super::conflict;
use crate::Durability;
use crate::commit::{AttemptEnd, MadeBy, RecallCall, RecalledAttempt, StartAttempt};
use crate::error::StoreError;
use crate::forgotten::{AS_TASK, BY_A_WORD, DELIVERED, LEFT_BY_A_WORD};
use crate::record::{AttemptRecord, CallRecord};

/// How the detail of a recalled attempt begins.
pub const RECALLED: &str = "effects.log knows of it, and the database did not";
/// What stands in it, behind what is said of it, of a call that the database does not have.
const AS_CALL: &str = ", as call ";
/// Before the run of that call.
const OF_RUN: &str = " of run ";
/// Behind it, where that call had other arguments.
const IN_OTHER_WORDS: &str = ", in other words";
/// Behind it, as JSON, by what that call is found on the other side.
const FOUND_BY: &str = ", found by ";
/// Behind it, as JSON, the other side's name for what it did.
const UNDER_ID: &str = ", under the id ";
/// Behind what was noted last of an attempt that had been answered before.
const AFTER_ANSWER: &str = ", and it had been answered before";
/// Before the number of the attempt whose send the database has, where the rest is what came of that one.
const OF_ATTEMPT: &str = ", of attempt ";

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
    let is_under_way = call.status == CallStatus::Running;
    // What another call made says nothing of an attempt that has begun meanwhile.
    let ends_it = is_under_way && recall.attempts.iter().any(|line| line.attempt == known && line.made_by.is_none());
    let Some(last) = recall.attempts.last().filter(|last| last.attempt + u32::from(ends_it) > known) else {
        return Ok(Recalled { steps });
    };
    if call.deduplicated_from.is_some() {
        return Err(conflict("tool_calls", &call.call_id, "it has the answer of another call"));
    }
    if is_under_way {
        let own = recall.attempts.iter().find(|line| line.attempt == known && line.made_by.is_none());
        let lost = || AttemptEnd::Lost { why: "its process ended before an answer was stored".to_owned() };
        let at = own.unwrap_or(last).at.max(call.updated_at);
        let lost = call_settled(call, current, known, own.map_or_else(lost, ended), u64::MAX, at)?;
        steps.push(RecalledStep { call: lost.call.clone(), attempt: lost.attempt, is_new: false });
        call = lost.call;
    }
    for number in known + 1..=last.attempt {
        // A line that is missing is one that was not written: of that attempt no more is known than that there was one.
        let line = recall.attempts.iter().find(|line| line.attempt >= number).unwrap_or(last);
        let is_its_own = line.attempt == number;
        let (before, start) = (call.status, start(&call, line, number));
        // One that another call made may lie before this one was planned.
        let at = line.at.max(call.updated_at);
        let (running, attempt) = begun(moved(call, CallEvent::Started, at)?, before, false, start, epoch);
        steps.push(RecalledStep { call: running.clone(), attempt: attempt.clone(), is_new: true });
        let end = if is_its_own { ended(line) } else { AttemptEnd::Lost { why: RECALLED.to_owned() } };
        let ended = call_settled(running, Some(attempt), number, end, u64::MAX, at)?;
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
        corrected_at: None,
        ends_doubt: false,
        file_digests: line.file_digests.clone().unwrap_or_else(|| call.file_digests.clone()),
        server_generation: None,
        destination: None,
        max_effects: None,
        approved_by: None,
        replay_status: None,
        child: None,
        durability: Durability::Synced,
        at: line.sent_at,
    }
}

/// The end of an attempt of which a line tells.
fn ended(line: &RecalledAttempt) -> AttemptEnd {
    let why = format!("{RECALLED}: {}", noted(line));
    if line.did_nothing { AttemptEnd::NotSent { why } } else { AttemptEnd::Lost { why } }
}

fn noted(line: &RecalledAttempt) -> String {
    let said = &line.said;
    let of = line.learnt_of.map_or_else(String::new, |of| format!("{OF_ATTEMPT}{of}"));
    match &line.made_by {
        None if line.was_answered && !is_answer(said) => format!("{said}{AFTER_ANSWER}{of}"),
        None => format!("{said}{of}"),
        Some(MadeBy { call, run, in_same_words, found_by, external_id }) => {
            let words = if *in_same_words { "" } else { IN_OTHER_WORDS };
            let names = if found_by.is_empty() { String::new() } else { format!("{FOUND_BY}{}", json!(found_by)) };
            let id = external_id.as_ref().map_or_else(String::new, |id| format!("{UNDER_ID}{}", json!(id)));
            format!("{said}{AS_CALL}{call}{OF_RUN}{run}{words}{names}{id}")
        }
    }
}

/// What is noted beside the database of a recalled attempt.
fn noted_of(attempt: &AttemptRecord) -> Option<&str> {
    let noted = attempt.detail.as_deref()?.strip_prefix(RECALLED)?.strip_prefix(": ")?;
    Some(learnt_of(noted).map_or(noted, |(said, _)| said))
}

/// What was said of another attempt, and of which.
fn learnt_of(noted: &str) -> Option<(&str, u32)> {
    let (said, of) = noted.rsplit_once(OF_ATTEMPT)?;
    Some((said, of.parse().ok()?))
}

/// Whether an attempt is no more than what came of another one, of which the database has the send: nothing was sent for it.
pub fn is_learnt_of_another(attempt: &AttemptRecord) -> bool {
    learnt_of_another(attempt).is_some()
}

/// How often a call was sent, or tried to be: its attempts, but for those that only say what came of another one. `attempts` may have those of other
/// calls among them.
pub fn times_sent<'a>(call: &CallRecord, attempts: impl IntoIterator<Item = &'a AttemptRecord>) -> u32 {
    // One attempt is always one: what is said of another stands behind that.
    if call.attempt < 2 {
        return call.attempt;
    }
    let is_said = |attempt: &&AttemptRecord| attempt.call_id == call.call_id && is_learnt_of_another(attempt);
    let said = attempts.into_iter().filter(is_said).count();
    call.attempt.saturating_sub(u32::try_from(said).unwrap_or(u32::MAX))
}

/// The number of that other one.
pub fn learnt_of_another(attempt: &AttemptRecord) -> Option<u32> {
    let noted = attempt.detail.as_deref().filter(|_| is_recalled(attempt))?;
    learnt_of(noted).map(|(_, of)| of)
}

/// The call of which the database has nothing and in whose place the attempt's own call is in doubt, and what came of it.
pub fn made_by(attempt: &AttemptRecord) -> Option<(MadeBy, &str)> {
    let (said, made_by) = noted_of(attempt)?.split_once(AS_CALL)?;
    let (call, rest) = made_by.split_once(OF_RUN)?;
    let (run, mut rest) = rest.split_at(rest.find(", ").unwrap_or(rest.len()));
    let other = rest.strip_prefix(IN_OTHER_WORDS);
    rest = other.unwrap_or(rest);
    let found_by = read_behind(&mut rest, FOUND_BY).unwrap_or_default();
    let external_id = read_behind(&mut rest, UNDER_ID);
    let (call, run) = (call.to_owned(), run.to_owned());
    Some((MadeBy { call, run, in_same_words: other.is_none(), found_by, external_id }, said))
}

/// The JSON that stands behind these words, if they come next; what is left stands behind that.
fn read_behind<T: DeserializeOwned>(rest: &mut &str, words: &str) -> Option<T> {
    let text = rest.strip_prefix(words)?;
    let mut values = serde_json::Deserializer::from_str(text).into_iter();
    let value = values.next()?.ok()?;
    *rest = text.get(values.byte_offset()..)?;
    Some(value)
}

/// What is noted of how an attempt ended, for people: without what only [`made_by`] reads.
pub fn detail_in_words(attempt: &AttemptRecord) -> Option<&str> {
    let detail = attempt.detail.as_deref()?;
    let is_of_another = made_by(attempt).is_some();
    let end = [FOUND_BY, UNDER_ID].iter().filter_map(|words| detail.find(words).filter(|_| is_of_another)).min();
    Some(&detail[..end.unwrap_or(detail.len())])
}

/// Whether the line beside the database says of an attempt of which the database did not know that it was answered, in whatever way.
pub fn was_answered_beside(attempt: &AttemptRecord) -> bool {
    noted_of(attempt).is_some_and(|said| is_answer(said) || said.ends_with(AFTER_ANSWER))
}

/// What `effects.log` says of an attempt of which the database did not know, in words; `None` where nothing is known but that there was one.
pub fn said_beside(attempt: &AttemptRecord) -> Option<String> {
    let said = noted_of(attempt)?;
    Some(match said.strip_suffix(AFTER_ANSWER) {
        Some(last) => format!("it was answered, and is noted as {last} since"),
        None if said == DELIVERED => {
            "a person answered what its tool asked for, which may have been delivered".to_owned()
        }
        None if said == AS_TASK => {
            "its tool continued it as a task, which this copy cannot follow and which may still be under way".to_owned()
        }
        None if said == BY_A_WORD => "a person said that it happened".to_owned(),
        None if said == LEFT_BY_A_WORD => "a person left it without knowing what came of it".to_owned(),
        None => format!("it ended as {said}"),
    })
}

/// Whether an attempt is no more than what a person said of another one, of which the database has the send.
pub fn is_word_of_another(attempt: &AttemptRecord) -> bool {
    let is_word = noted_of(attempt).is_some_and(|said| [BY_A_WORD, LEFT_BY_A_WORD].contains(&said));
    is_word && is_learnt_of_another(attempt)
}

/// Whether the other side answered, by what was noted.
fn is_answer(said: &str) -> bool {
    [CallStatus::Succeeded, CallStatus::FailedReported].iter().any(|status| status.as_str() == said)
}

/// Whether an attempt is known from beside the database alone.
pub fn is_recalled(attempt: &AttemptRecord) -> bool {
    attempt.detail.as_deref().is_some_and(|detail| detail.starts_with(RECALLED))
}
