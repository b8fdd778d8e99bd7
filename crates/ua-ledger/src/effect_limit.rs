//! How often a job lets an effect happen (`max` of a stop condition).
//!
//! Durable Jobs v1 spec §6. The store counts in the write that starts a call, and that is the one guard. What it counts is read before as well,
//! where a person would be asked: nobody is asked about a call that is refused whatever they say. A call in doubt is asked about all the same, for
//! what came of it; that it did not happen is its record then, and it is not sent again.
//! Proved by: `identity::effect_limits`, the table of verdicts, `conformance::calls`.

use ua_core::{Resolution, counted};
use ua_store::{Around, CallRecord, LedgerStore as _, RecallCall, rules};

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::people::CallsOf;
use crate::question::stands;

/// The most calls that a refusal names.
const MOST_NAMED: usize = 3;

/// How often the effect of a call may happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EffectLimit {
    pub(crate) effect: String,
    /// As the job says it.
    pub(crate) max: u32,
    /// How often it may have happened besides, of which the database has nothing.
    pub(crate) lost: u32,
}

impl EffectLimit {
    /// What of it is left to the calls that the database has, the one that is about to be sent among them.
    pub(crate) fn max_effects(&self) -> u32 {
        self.max.saturating_sub(self.lost)
    }

    /// Whether the start of a call would be refused for it, as things stand.
    pub(crate) fn is_used_up(&self, around: &Around) -> bool {
        around.other_effects >= self.max_effects()
    }

    /// Why a call in doubt is not sent again, for whoever is asked about it.
    pub(crate) fn against_a_repeat(&self, calls_of: CallsOf) -> String {
        let (work, Self { effect, max, lost: _ }) = (calls_of.noun(), self);
        format!(
            "this {work} allows {effect} {max}×, and that is used up by what happened and by what may have happened besides: whoever knows that it did \
             not happen says so, and it is not sent again"
        )
    }

    /// What is said of a call in doubt that did not happen, as `by` has it, and that it does not let go again.
    pub(crate) fn leaves_undone(&self, calls_of: CallsOf, by: &str) -> String {
        let (work, Self { effect, max, lost: _ }) = (calls_of.noun(), self);
        format!(
            "{by} that it did not happen. It is not sent again: this {work} allows {effect} {max}×, and that is used up by what happened and by what \
             may have happened besides. Do not ask for it again."
        )
    }

    /// What is said of a call that it does not let go; of those that count, `named` are in its own run.
    fn refusal(&self, calls_of: CallsOf, named: &[CallRecord]) -> String {
        let Self { effect, max, lost } = self;
        let (work, lost) = (calls_of.noun(), *lost as usize);
        let of_lost = match lost {
            0 => String::new(),
            _ => format!(
                ", and what was sent since the database was copied that was put back ({})",
                counted(lost, "call")
            ),
        };
        let mut calls: Vec<String> = named.iter().rev().take(MOST_NAMED).map(|call| in_words(calls_of, call)).collect();
        calls.extend(named.len().checked_sub(MOST_NAMED).filter(|more| *more > 0).map(|more| format!("{more} more")));
        let calls = if calls.is_empty() { String::new() } else { format!(" ({})", calls.join("; ")) };
        format!(
            "Refused: this {work} allows {effect} {max}×, and that is used up by what happened and by what may have happened{calls}. A call of \
             which nobody knows what came counts as well, and one whose failure does not say that nothing happened{of_lost}. Do not ask for \
             it again."
        )
    }
}

fn in_words(calls_of: CallsOf, call: &CallRecord) -> String {
    format!("call {}, turn {}: {}", call.call_id, call.position.turn, stands(calls_of, call))
}

impl Ledger {
    /// How often the effect of a call may happen, if its job says so. Of what was lost, what `recall` puts in the call's place counts as that call.
    pub(crate) fn effect_limit(&self, call: &CallRecord, recall: Option<&RecallCall>) -> Option<EffectLimit> {
        let effect = call.policy.effect_kind.as_ref()?.as_str();
        let max = *self.config.max_effects.get(effect)?;
        Some(EffectLimit { effect: effect.to_owned(), max, lost: self.lost_effects(call, recall) })
    }

    /// Cancels a call that would be one more than its job allows, and says which calls of its run count: one of them may be put right.
    pub(crate) async fn refuse_beyond(
        &self,
        call: &CallRecord,
        limit: &EffectLimit,
    ) -> Result<CallRecord, LedgerError> {
        let calls = self.store.calls(&call.run_id, None).await;
        let mut calls = calls.map_err(LedgerError::at("look what counts beside", &call.call_id))?;
        calls.retain(|other| rules::counts_as_effect(other, call));
        let message = limit.refusal(self.calls_of, &calls);
        self.cancel(call, Resolution::Refused, "effect_limit", &message).await
    }
}
