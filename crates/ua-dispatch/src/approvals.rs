//! Asking ahead: when a turn waits for a person anyway, what its other calls will need is asked in the same go.
//!
//! Durable Jobs v1 spec §6 (escalation). Order still holds: nothing is sent before the calls in front of it are settled, and a word
//! that was given ahead is looked at again when the call's turn comes. Only what can be shown now is asked now: a call that sends
//! files waits until nothing in front of it may still write them. So it is with what its calls would be answered with
//! ([`Dispatcher::answered_before`]).

use std::collections::HashSet;

use ua_classify::file_arguments;
use ua_core::{CallStatus, SideEffectClass};
use ua_store::CallRecord;

use crate::dispatcher::{CallProgress, Dispatcher};
use crate::error::DispatchError;

impl Dispatcher {
    /// Raises the questions that the `prepared` calls of an open turn will need. `calls` are all of the turn, in order.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn ask_ahead(&self, calls: &[CallRecord]) -> Result<(), DispatchError> {
        let mut files_may_change = false;
        let mut seen = HashSet::new();
        for call in calls.iter().filter(|call| !call.status.is_settled()) {
            let is_first = seen.insert((call.name.raw.as_str(), call.args_hash));
            let is_new = call.status == CallStatus::Prepared && is_first;
            if is_new && !(files_may_change && names_files(call)) {
                let asked = self.ledger.ask_ahead(&call.call_id, &self.facts(call)?).await?;
                if let Some(question) = asked {
                    self.tell(CallProgress::Held { question: Box::new(question) });
                }
            }
            files_may_change |= call.policy.class == SideEffectClass::Local;
        }
        Ok(())
    }

    /// The `prepared` calls of an open turn that would be given the answer of an earlier call, as things stand, each with that one. `calls` are all
    /// of the turn, in order; what becomes of the first of them that is not settled shows before anything is sent.
    ///
    /// # Errors
    /// Those of the ledger.
    pub async fn answered_before<'c>(
        &self,
        calls: &'c [CallRecord],
    ) -> Result<Vec<(&'c CallRecord, CallRecord)>, DispatchError> {
        let mut files_may_change = false;
        let mut answered = Vec::new();
        for (index, call) in calls.iter().filter(|call| !call.status.is_settled()).enumerate() {
            let may_be = index > 0 && call.status == CallStatus::Prepared && call.policy.class.has_effect();
            // Where it would go may not be known now: that is said when it is to go out.
            if may_be
                && !(files_may_change && names_files(call))
                && let Ok(facts) = self.facts(call)
                && let Some(twin) = self.ledger.answered_by(&call.call_id, &facts).await?
            {
                answered.push((call, twin));
            }
            files_may_change |= call.policy.class == SideEffectClass::Local;
        }
        Ok(answered)
    }
}

/// Whether contents of files are part of what a person would be shown.
fn names_files(call: &CallRecord) -> bool {
    !file_arguments(&call.policy, &call.arguments).is_empty()
}
