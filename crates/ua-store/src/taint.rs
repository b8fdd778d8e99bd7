//! What was read into a run's history: the "rule of two" asks when both are there.
//!
//! Kept in the run's row: what its parent had when it was made, what the files of its job bring in, what its own calls do, from the write of
//! RUNNING on, and what a sub-agent had when its task is settled. A fork has what the turns that it shares brought in. Forks of one run do
//! not taint each other.
//! Invariant: it only grows. Proved by: `conformance::taints`, `ua-runner`'s `crash_anywhere::taint`.

use serde::{Deserialize, Serialize};
use ua_core::{CallPolicy, Reads, RunSpec};

/// What was read into a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Content that others wrote.
    pub untrusted: bool,
    /// Data that is private.
    pub private: bool,
}

impl Taint {
    /// What a call brings in.
    pub fn of(policy: &CallPolicy) -> Self {
        Self { untrusted: policy.reads.contains(&Reads::Untrusted), private: policy.reads.contains(&Reads::Private) }
    }

    /// What the files of a job bring in that its model is shown: what somebody hid is private.
    pub fn of_files(spec: &RunSpec) -> Self {
        Self { untrusted: false, private: spec.taken_files().any(|file| file.is_hidden) }
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { untrusted: self.untrusted || other.untrusted, private: self.private || other.private }
    }

    /// Whether both kinds met.
    pub const fn is_both(self) -> bool {
        self.untrusted && self.private
    }

    /// Whether there is nothing.
    pub const fn is_none(&self) -> bool {
        !self.untrusted && !self.private
    }

    /// As a column holds it: 1 untrusted, 2 private.
    pub const fn bits(self) -> u8 {
        self.untrusted as u8 + 2 * self.private as u8
    }

    /// From a column.
    pub const fn from_bits(bits: u8) -> Self {
        Self { untrusted: bits & 1 != 0, private: bits & 2 != 0 }
    }
}
