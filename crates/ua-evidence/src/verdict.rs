//! What may be claimed about a call, from its row alone.
//!
//! Invariant: only a call that succeeded by a receipt of its own reads as happened. A failed, lost or unsent one never does.

use serde::Serialize;
use ua_core::{CallStatus, PossibleEffect, Resolution, RunStatus};
use ua_store::CallRecord;

/// Whether a call's effect happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It happened.
    Happened,
    /// It was not repeated: another call of the lineage had this effect already, and its receipt was the answer.
    AnsweredByTwin,
    /// It was sent and may have happened.
    MayHaveHappened,
    /// It provably did not happen.
    DidNotHappen,
    /// A task whose sub-agent ended without success: what happened, the sub-agent's own calls say.
    TaskNotDone,
    /// It was never sent.
    NotSent,
}

impl Verdict {
    /// Reads the verdict off a call's row.
    pub fn of(call: &CallRecord) -> Self {
        match call.status {
            CallStatus::FailedReported | CallStatus::FailedDefinite if call.name.is_task() && call.attempt > 0 => {
                Self::TaskNotDone
            }
            CallStatus::Succeeded if call.answered_by().is_some() => Self::AnsweredByTwin,
            CallStatus::Succeeded => Self::Happened,
            CallStatus::FailedReported if call.possible_effect == Some(PossibleEffect::None) => Self::DidNotHappen,
            // It follows another call, of which nobody knows any more whether it happened; that one is told about.
            CallStatus::Unknown if call.attempt == 0 && call.answered_by().is_some() => Self::NotSent,
            CallStatus::FailedReported | CallStatus::Unknown | CallStatus::Running => Self::MayHaveHappened,
            CallStatus::FailedDefinite => Self::DidNotHappen,
            CallStatus::Prepared | CallStatus::Cancelled => Self::NotSent,
        }
    }

    /// Whether asking for the same effect again could make it happen twice.
    pub const fn forbids_repeat(self) -> bool {
        matches!(self, Self::Happened | Self::AnsweredByTwin | Self::MayHaveHappened)
    }

    /// The verdict in words that cannot be misread in passing.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Happened => "happened",
            Self::AnsweredByTwin => "NOT REPEATED: an earlier call already had this effect",
            Self::MayHaveHappened => "NOT CONFIRMED: it was sent and may have happened",
            Self::DidNotHappen => "DID NOT HAPPEN",
            Self::TaskNotDone => {
                "NOT DONE: its sub-agent ended without success; the sub-agent's own calls say what happened"
            }
            Self::NotSent => "NOT SENT",
        }
    }
}

/// What a person reads of a failure that only its tool reports: whoever reads that it failed does it again.
pub const FAILED_PERHAPS: &str = "failed, may have happened";

/// What a person reads of a read that was sent and not answered: it changed nothing and is simply made again, so nothing is in doubt.
pub const UNANSWERED: &str = "unanswered";

/// Where a call stands, as a person reads it, the same wherever one does.
pub fn call_in_words(call: &CallRecord) -> &'static str {
    if failed_perhaps(call) {
        FAILED_PERHAPS
    } else if is_unanswered_read(call) {
        UNANSWERED
    } else {
        call.status.in_words()
    }
}

/// Whether a call was dropped or lost, and is a read that is simply made again: of a task its sub-agent's calls say what came of it.
pub fn is_unanswered_read(call: &CallRecord) -> bool {
    call.status == CallStatus::Unknown && call.policy.is_free_read() && !call.name.is_task()
}

/// Whether a tool says that a call with an effect failed, and nothing says that the effect is not there.
pub fn failed_perhaps(call: &CallRecord) -> bool {
    call.status == CallStatus::FailedReported
        && call.policy.class.has_effect()
        && Verdict::of(call) == Verdict::MayHaveHappened
}

/// Where a call stands that a resume found in flight: what the resume did about it is told in other words when it stands otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stands {
    /// It was not sent yet.
    Planned,
    /// Its answer, or a person's word about it, is waited for.
    Waits,
    /// Nobody knows what came of it, and its run continued without it.
    LeftOpen,
    /// Nobody knows what came of it, and its run ended.
    Ended,
    /// It was never sent, and will not be.
    NeverSent,
    /// It was never sent: the receipt of an earlier call is its answer.
    AnsweredByTwin,
    /// It was settled without having been sent.
    SettledUnsent,
    /// It was sent, and is settled.
    Settled,
}

impl Stands {
    /// Reads it off a call's row; `run` is where its run stands.
    pub fn of(call: &CallRecord, run: RunStatus) -> Self {
        match call.status {
            CallStatus::Prepared if !run.is_terminal() => Self::Planned,
            CallStatus::Prepared | CallStatus::Cancelled => Self::NeverSent,
            CallStatus::Unknown if call.resolution == Some(Resolution::Skipped) => Self::LeftOpen,
            CallStatus::Running | CallStatus::Unknown if run.is_terminal() => Self::Ended,
            CallStatus::Running | CallStatus::Unknown => Self::Waits,
            CallStatus::Succeeded if call.attempt == 0 && call.answered_by().is_some() => Self::AnsweredByTwin,
            CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported if call.attempt == 0 => {
                Self::SettledUnsent
            }
            CallStatus::Succeeded | CallStatus::FailedDefinite | CallStatus::FailedReported => Self::Settled,
        }
    }
}

/// Whether a call still waits for something: for its first send, for its answer, or for a person.
pub fn is_in_flight(call: &CallRecord) -> bool {
    !call.status.is_settled() && call.resolution != Some(Resolution::Skipped)
}

#[cfg(test)]
mod tests {
    use ua_core::CallPolicy;

    use super::*;
    use crate::testing::Story;

    /// Over all classes, statuses and what a policy says of the tool's errors.
    #[test]
    fn a_failure_that_may_have_happened_never_reads_as_plain_failed() {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let ids = story.asks("", &[("send_email", serde_json::json!({}), CallPolicy::unclassified())]);
        let mut call = story.records.call(&ids[0]).unwrap().clone();
        for class in ua_core::SideEffectClass::ALL.iter().copied() {
            for status in CallStatus::ALL.iter().copied() {
                for effect in [None, Some(PossibleEffect::Maybe), Some(PossibleEffect::None)] {
                    (call.policy.class, call.status, call.possible_effect) = (class, status, effect);
                    let may_be_there = status == CallStatus::FailedReported
                        && class.has_effect()
                        && effect != Some(PossibleEffect::None);
                    let expected = if may_be_there { "failed, may have happened" } else { status.in_words() };
                    assert_eq!(call_in_words(&call), expected, "{class} {status} {effect:?}");
                }
            }
        }
    }

    #[test]
    fn a_read_that_was_dropped_is_in_no_doubt() {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let read = CallPolicy {
            class: ua_core::SideEffectClass::ReadOnly,
            on_unknown: ua_core::OnUnknown::Redo,
            ..CallPolicy::unclassified()
        };
        let ids = story.asks("", &[("get_page", serde_json::json!({}), read)]);
        let mut call = story.records.call(&ids[0]).unwrap().clone();
        for status in CallStatus::ALL.iter().copied() {
            call.status = status;
            let expected = if status == CallStatus::Unknown { UNANSWERED } else { status.in_words() };
            assert_eq!(call_in_words(&call), expected, "{status}");
        }
        call.status = CallStatus::Unknown;
        call.policy.on_unknown = ua_core::OnUnknown::Hold;
        assert_eq!(call_in_words(&call), "unknown", "a person is asked about it");
    }

    #[test]
    fn only_success_reads_as_happened() {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let ids = story.asks("", &[("send_email", serde_json::json!({}), CallPolicy::unclassified())]);
        let mut call = story.records.call(&ids[0]).unwrap().clone();
        let expected = [
            (CallStatus::Prepared, Verdict::NotSent),
            (CallStatus::Running, Verdict::MayHaveHappened),
            (CallStatus::Succeeded, Verdict::Happened),
            (CallStatus::FailedDefinite, Verdict::DidNotHappen),
            (CallStatus::FailedReported, Verdict::MayHaveHappened),
            (CallStatus::Unknown, Verdict::MayHaveHappened),
            (CallStatus::Cancelled, Verdict::NotSent),
        ];
        assert_eq!(expected.map(|(status, _)| status), CallStatus::ALL, "every status has a verdict");
        for (status, verdict) in expected {
            call.status = status;
            assert_eq!(Verdict::of(&call), verdict, "{status}");
        }
        call.status = CallStatus::FailedReported;
        call.possible_effect = Some(PossibleEffect::None);
        assert_eq!(Verdict::of(&call), Verdict::DidNotHappen);
        // Of what a sub-agent did before it was ended its task knows nothing.
        let name = std::mem::replace(&mut call.name, ua_core::ToolName::task());
        for (attempt, verdict) in [(0, Verdict::DidNotHappen), (1, Verdict::TaskNotDone)] {
            call.attempt = attempt;
            assert_eq!(Verdict::of(&call), verdict, "{attempt}");
        }
        call.name = name;
        call.status = CallStatus::Succeeded;
        call.deduplicated_from = Some(call.call_id.clone());
        assert_eq!(Verdict::of(&call), Verdict::AnsweredByTwin);
        // What it follows is in doubt by now; it was never sent itself.
        call.status = CallStatus::Unknown;
        for (attempt, verdict) in [(0, Verdict::NotSent), (1, Verdict::MayHaveHappened)] {
            call.attempt = attempt;
            assert_eq!(Verdict::of(&call), verdict, "{attempt}");
        }
    }
}
