//! What may be claimed about a call, from its row alone.
//!
//! Invariant: only a call that succeeded by a receipt of its own reads as happened. A failed, lost or unsent one never does.

use serde::Serialize;
use ua_core::{CallStatus, PossibleEffect, Resolution};
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
    /// It was never sent.
    NotSent,
}

impl Verdict {
    /// Reads the verdict off a call's row.
    pub fn of(call: &CallRecord) -> Self {
        match call.status {
            CallStatus::Succeeded if call.deduplicated_from.is_some() => Self::AnsweredByTwin,
            CallStatus::Succeeded => Self::Happened,
            CallStatus::FailedReported if call.possible_effect == Some(PossibleEffect::None) => Self::DidNotHappen,
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
            Self::NotSent => "NOT SENT",
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
        call.status = CallStatus::Succeeded;
        call.deduplicated_from = Some(call.call_id.clone());
        assert_eq!(Verdict::of(&call), Verdict::AnsweredByTwin);
    }
}
