//! What other calls have to do with one that is about to be sent: those that it might repeat.
//!
//! One read for the decision, and the same read again in the transaction that starts the attempt: what is news refuses the start, so two
//! processes that look at the same instant do not both send. Durable Jobs v1 spec §8.3. Proved by: `conformance::calls`,
//! `crash_anywhere::family`, the simulation.

use ua_core::{CallId, CallStatus, Scope};

use crate::record::{CallRecord, QuestionRecord, RunRecord};

/// The calls of a family that may have had, or may still have, an effect that another call is about to have.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Relations {
    /// Calls of the family with the same scope, oldest first.
    pub rivals: Vec<CallRecord>,
    /// Calls of the family and of the same tool whose outcome, or that of an attempt of them, is not known, those that a person gave up
    /// included, oldest first.
    pub doubts: Vec<CallRecord>,
    /// Calls of other trees of the family, outside the history that is shared with them, with the same tool or the same scope, run by run.
    pub kin: Vec<CallRecord>,
}

/// What a decision about a call goes by, from one snapshot.
#[derive(Debug, Clone, PartialEq)]
pub struct Around {
    /// The call.
    pub call: CallRecord,
    /// Its run.
    pub run: RunRecord,
    /// The question about it that is not closed.
    pub question: Option<QuestionRecord>,
    /// Another call of the family that holds the key it would be sent under.
    pub holder: Option<CallRecord>,
    /// What it might repeat. A read repeats nothing.
    pub relations: Relations,
}

/// A related call, as somebody saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The call.
    pub call: CallId,
    /// Where it stood.
    pub status: CallStatus,
    /// Whether it was in doubt.
    pub in_doubt: bool,
}

impl Seen {
    fn of(call: &CallRecord) -> Self {
        Self { call: call.call_id.clone(), status: call.status, in_doubt: call.doubt.is_some() }
    }
}

impl Relations {
    /// With what other families of a project have open: there only doubt reaches beyond the family.
    #[must_use]
    pub fn with_project(mut self, call: &CallRecord, scope: Option<&Scope>, open: Vec<CallRecord>) -> Self {
        for other in open {
            if scope.is_some() && other.scope.as_ref() == scope {
                self.rivals.push(other);
            } else if (other.status == CallStatus::Unknown || other.doubt.is_some()) && other.name.raw == call.name.raw
            {
                self.doubts.push(other);
            }
        }
        self
    }

    /// All of them.
    pub fn calls(&self) -> impl Iterator<Item = &CallRecord> {
        self.rivals.iter().chain(&self.doubts).chain(&self.kin)
    }

    /// What a start that is decided on now has seen.
    pub fn seen(&self) -> Vec<Seen> {
        self.calls().map(Seen::of).collect()
    }

    /// The first of them that is not among what was seen, or stands elsewhere now.
    pub fn news<'a>(&'a self, seen: &[Seen]) -> Option<&'a CallRecord> {
        self.calls().find(|call| !seen.contains(&Seen::of(call)))
    }
}
