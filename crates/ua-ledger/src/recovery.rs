//! The decision about an unknown call, by its policy: run again, ask the other side, ask a person, or go on without it.
//!
//! Durable Jobs v1 spec §8.3; Durable runner, current state §6. The same for a resume and for a live run after a timeout or a
//! dead server, and always after the fence: what the old attempt has not done through its tool server it will never do.
//! Invariants: a person's answer wins; nothing is sent again that may have its effect twice before the horizon has passed;
//! every attempt counts, also one that a probe allowed.

use ua_core::Timestamp;
use ua_store::QuestionRecord;

use crate::admission::{Admission, Facts, UnknownCall};
use crate::enquiry::Asked;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::verdict::{Known, held};

/// What is to be done about an unknown call.
#[derive(Debug)]
pub enum Recovery {
    /// It is decided.
    Decided(Box<Admission>),
    /// Ask the declared probe, and hand what it says to [`Ledger::conclude`].
    Ask,
    /// The tool server could not be reached again and again; the key still counts, so a later resume tries it under the same one.
    Unreachable {
        /// What stood in the way.
        why: String,
    },
    /// Too early: decide again at this time. A process that does not want to wait so long holds the call.
    NotBefore {
        /// When.
        until: Timestamp,
        /// The question that is there already, if there is one.
        question: Option<Box<QuestionRecord>>,
    },
}

impl Ledger {
    /// Decides about an unknown call whose server nobody can end and which may begin it until then: what rests with a person is asked at once,
    /// and the question says from when on a look counts. [`Admission::Unknown`] when its server has to be fenced first.
    ///
    /// # Errors
    /// Those of [`Ledger::recover`].
    pub async fn ask_beforehand(
        &self,
        unknown: UnknownCall,
        facts: &Facts,
        until: Timestamp,
    ) -> Result<Admission, LedgerError> {
        match self.decide(&unknown.call.call_id, facts, Known::MayBegin(until)).await? {
            Recovery::Decided(admission) => Ok(*admission),
            Recovery::Ask | Recovery::NotBefore { .. } | Recovery::Unreachable { .. } => {
                Ok(Admission::Unknown(unknown))
            }
        }
    }

    /// Decides about an unknown call, after the process it was sent to is provably gone.
    ///
    /// # Errors
    /// Those of the store; [`LedgerError::Aborted`] when a person ended the run.
    pub async fn recover(&self, unknown: &UnknownCall, facts: &Facts) -> Result<Recovery, LedgerError> {
        self.decide(&unknown.call.call_id, facts, Known::Gone).await
    }

    /// Draws the conclusion from what a probe said: found settles the call, absent lets it run again if it was asked late enough,
    /// and anything else is a question for a person. The next resume asks the probe again.
    ///
    /// # Errors
    /// Those of [`Ledger::recover`].
    pub async fn conclude(&self, unknown: &UnknownCall, facts: &Facts, asked: Asked) -> Result<Recovery, LedgerError> {
        self.decide(&unknown.call.call_id, facts, Known::Probed(&asked)).await
    }

    /// Asks a person what came of the call; a question that is there already stays.
    ///
    /// # Errors
    /// Those of [`Ledger::recover`].
    pub async fn hold(&self, unknown: &UnknownCall, because: &str) -> Result<Admission, LedgerError> {
        let (facts, judged_at) = (Facts::default(), self.env.now());
        let view = self.view(&unknown.call.call_id, &facts).await?;
        let rules = self.rules();
        let verdict = held(&view, &facts, &rules, because);
        match self.carry_out(&view, &facts, verdict, judged_at).await? {
            Some(Recovery::Decided(admission)) => Ok(*admission),
            Some(Recovery::Ask | Recovery::NotBefore { .. } | Recovery::Unreachable { .. }) | None => {
                Ok(Admission::Settled(view.call))
            }
        }
    }
}
