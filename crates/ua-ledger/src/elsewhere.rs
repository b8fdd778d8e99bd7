//! Has what a call would be sent to now seen the call? Only where it went does its key say anything, and only there can anybody look.
//!
//! One place says so, for a repeat and for a look alike: the verdict takes it as a reason to ask a person, and an
//! [`Enquiry`](crate::Enquiry) cannot be made.

use ua_core::Destination;
use ua_store::rules::{is_recalled, said_beside};
use ua_store::{AttemptRecord, CallRecord};

use crate::lost::LostCall;

/// Why neither the call's key nor a look says anything about it, where an attempt that may have had the effect went somewhere else, or as
/// somebody else, than one would that is sent `now`. That side knows nothing of the key, and does not show what the other one did.
pub(crate) fn elsewhere(call: &CallRecord, attempts: &[AttemptRecord], now: Option<&Destination>) -> Option<String> {
    let mut that_may = attempts.iter().rev().filter(|attempt| may_have_had_it(call, attempts, attempt));
    that_may.find_map(|attempt| went_elsewhere(call, attempt, now))
}

/// Whether an attempt may have had the effect: the one in doubt, and what was lost since. What replaces its own output has the effect of its
/// newest attempt.
fn may_have_had_it(call: &CallRecord, attempts: &[AttemptRecord], attempt: &AttemptRecord) -> bool {
    let newest = || attempts.iter().rev().find(|attempt| !attempt.never_left()).map(|sent| sent.attempt);
    let Some(first) = call.doubt.or_else(newest) else { return false };
    let is_open = attempt.outcome.is_none() || attempt.was_lost();
    attempt.attempt == first || (attempt.attempt > first && is_open)
}

/// That an attempt went somewhere else than another one would, as a reason. A read does nothing there; of an attempt of an earlier version
/// nobody knows where it went.
fn went_elsewhere(call: &CallRecord, attempt: &AttemptRecord, now: Option<&Destination>) -> Option<String> {
    if let Some(lost) = LostCall::of(attempt) {
        return Some(lost.in_words());
    }
    if call.policy.class.has_effect() && is_recalled(attempt) {
        let said = said_beside(attempt).map_or_else(String::new, |said| format!(" ({said})"));
        return Some(format!(
            "attempt {} is known from effects.log alone{said}, since an older copy of the database was put back, and not where it went; so a repeat \
             might not be known as one, and a look would prove nothing",
            attempt.attempt
        ));
    }
    let place = another_place(call, attempt, now)?;
    Some(format!("{place}, so a repeat there would not be known as one, and a look there would prove nothing"))
}

/// The same of an attempt that its tool server still has: whoever is there now knows nothing of it, and what a person answered was meant for the
/// one that asked.
pub(crate) fn is_followed_elsewhere(
    call: &CallRecord,
    attempt: &AttemptRecord,
    now: Option<&Destination>,
) -> Option<String> {
    let place = another_place(call, attempt, now)?;
    Some(format!(
        "{place}, so it cannot be followed there; with the old settings back, a resume continues it where it is"
    ))
}

fn another_place(call: &CallRecord, attempt: &AttemptRecord, now: Option<&Destination>) -> Option<String> {
    if !is_another_place(call, attempt, now) {
        return None;
    }
    let changes = attempt.destination.as_ref()?.changes_in_words(now);
    let number = attempt.attempt;
    Some(format!("its tool server is another one now than the one that got attempt {number} ({changes})"))
}

/// Whether an attempt with an effect went somewhere else, or as somebody else, than `now`; of one of an earlier version nobody knows.
pub fn is_another_place(call: &CallRecord, attempt: &AttemptRecord, now: Option<&Destination>) -> bool {
    let then = attempt.destination.as_ref().filter(|_| call.policy.class.has_effect());
    then.is_some_and(|then| Some(then) != now)
}
