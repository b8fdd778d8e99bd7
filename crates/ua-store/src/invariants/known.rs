//! Statements that the core broke, or still may: each stands under a name of its own, so that whoever checks tells it from everything
//! else. Records of an earlier version keep what it did; nothing can make them right but a person who looks at the other side. The
//! simulation takes each for a fault but those that it knows of the core of today.

use super::Violation;

/// A statement that is known to be broken by what the core itself does.
#[derive(Debug, PartialEq, Eq)]
pub struct Known {
    /// The statement.
    pub invariant: &'static str,
    /// The finding that describes how it comes about, as `cargo xtask findings` and `sim::wrong` number them.
    pub finding: &'static str,
    /// What a person may do about it.
    pub advice: &'static str,
}

/// All of them.
pub const KNOWN: &[Known] = &[
    Known {
        invariant: "doubt_outlives_a_refusal",
        finding: "1",
        advice: "check on the other side whether it is there before anyone asks for it again, and record it with `ua calls resolve CALL --as happened --reason TEXT`",
    },
    Known {
        invariant: "doubt_outlives_a_report",
        finding: "new (beside 1)",
        advice: "check on the other side whether it is there before anyone asks for it again, and record it with `ua calls resolve CALL --as happened --reason TEXT`",
    },
    Known {
        invariant: "kin_of_sub_agents_are_asked_about",
        finding: "2",
        advice: "check on the other side whether it is there twice, and undo one of them if nobody wanted two",
    },
    Known {
        invariant: "kin_of_denied_doubts_are_asked_about",
        finding: "1",
        advice: "check on the other side whether it is there twice, and undo one of them if nobody wanted two",
    },
    Known {
        invariant: "kin_behind_a_failure_are_asked_about",
        finding: "5",
        advice: "check on the other side whether it is there twice, and undo one of them if nobody wanted two",
    },
    Known {
        invariant: "kin_that_start_at_once_are_asked_about",
        finding: "new (beside 2)",
        advice: "check on the other side whether it is there twice, and undo one of them if nobody wanted two",
    },
    Known {
        invariant: "a_skip_is_kept",
        finding: "new",
        advice: "undo it at the other side if it must not be there; `ua calls resolve CALL --as happened --reason TEXT` records what became of it",
    },
    Known {
        invariant: "an_answer_beside_a_run_is_applied",
        finding: "new",
        advice: "resume the run once, which applies the answer; where the call had been skipped before, `ua calls resolve CALL --as happened --reason TEXT` records it",
    },
];

impl Violation {
    /// The known way in which this statement is broken, if it is one.
    pub fn known(&self) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.invariant == self.invariant)
    }
}
