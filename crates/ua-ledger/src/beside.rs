//! What runs beside this one did: a fork must not repeat what its parent did behind the fork point, nor the parent what a fork did.
//!
//! Declared creating effects are known by their content everywhere in the lineage, and the admission knows them. Here are all
//! others: what a person forks away from was decided by a model that this one knows nothing of, so the same call is no decision
//! to do it twice. Durable Jobs v1 spec §8.3. Proved by: `tests/it/identity/forks.rs`, `crash_anywhere::forks`, the crash matrix.

use ua_core::{CallStatus, SideEffectClass};
use ua_store::CallRecord;

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::Ledger;

/// Whether a run beside this one could have had the effect at all: files of the workspace are each run's own.
fn reaches_others(call: &CallRecord) -> bool {
    matches!(call.policy.class, SideEffectClass::External | SideEffectClass::Memory)
}

/// Whether both are known to be about different things.
fn are_apart(call: &CallRecord, facts: &Facts, other: &CallRecord) -> bool {
    let named = |scope: &ua_core::Scope| !scope.is_of_whole_call();
    match (facts.scope.as_ref().filter(|scope| named(scope)), other.scope.as_ref().filter(|scope| named(scope))) {
        (Some(ours), Some(theirs)) => ours != theirs,
        (Some(_) | None, Some(_) | None) => call.name != other.name,
    }
}

impl Ledger {
    /// A call of a run beside this one that may have done already what `call` is about to do: the same call, or one in doubt of
    /// which nothing says that it is another effect.
    pub(crate) async fn done_beside(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Option<CallRecord>, LedgerError> {
        let once = self.config.no_duplicate_external_actions;
        if !reaches_others(call) || (call.policy.is_by_content() && once) {
            return Ok(None);
        }
        let repeats = |other: &CallRecord| {
            let in_doubt = matches!(other.status, CallStatus::Running | CallStatus::Unknown);
            let is_same = other.name == call.name && other.args_hash == call.args_hash;
            (in_doubt && !are_apart(call, facts, other)) || (is_same && once)
        };
        Ok(self.effects_beside(call).await?.into_iter().rev().find(repeats))
    }

    /// A call of a run beside this one that was decided after `call` was and may have had its effect. A call in doubt is then not
    /// sent again by itself.
    pub(crate) async fn overtaken_by(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Option<CallRecord>, LedgerError> {
        if !reaches_others(call) {
            return Ok(None);
        }
        let overtakes = |other: &CallRecord| {
            let is_same = other.name == call.name && other.args_hash == call.args_hash;
            let is_effect = facts.scope.is_some() && other.scope == facts.scope;
            other.created_at >= call.created_at && (is_same || is_effect)
        };
        Ok(self.effects_beside(call).await?.into_iter().rev().find(overtakes))
    }

    async fn effects_beside(&self, call: &CallRecord) -> Result<Vec<CallRecord>, LedgerError> {
        let found = self.store.effects_elsewhere(&call.run_id).await;
        found.map_err(LedgerError::at("look into the lineage for", &call.call_id))
    }
}
