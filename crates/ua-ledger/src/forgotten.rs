//! What the model of a run asked for in contexts that it does not have any more.
//!
//! An iteration begins with an empty context ([ADR 17](../../../docs/adr/0017-an-iteration-is-a-step.md)). Within one context a model that makes
//! the same call twice means it; one that has forgotten the first call decides nothing about it, no more than a model beside it does that knows
//! nothing of it ([`related`](crate::related)). Declared effects are known by their content, whatever a model remembers.
//!
//! Proved by: `identity::forgotten`, the end-to-end tests `harness`.

use std::collections::HashMap;
use std::sync::PoisonError;

use ua_core::{ArgsHash, CallId};
use ua_store::{CallRecord, LedgerStore as _, Related, rules};

use crate::error::LedgerError;
use crate::ledger::Ledger;

/// Calls of earlier contexts by what they say. Which they are does not change until the next context begins; how they stand does.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// The first turn that the model's context holds.
    first_turn: u32,
    calls: Option<HashMap<(String, ArgsHash), Vec<CallId>>>,
}

impl Ledger {
    /// The model's context holds what happened from this turn on, and nothing before.
    pub fn context_begins(&self, turn: u32) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.first_turn != turn {
            *forgotten = Forgotten { first_turn: turn, calls: None };
        }
    }

    /// Whether the model of a call has lost sight of a part of its run, in which it may have asked for the same.
    pub(crate) fn may_have_forgotten(&self, call: &CallRecord) -> bool {
        let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        call.policy.class.has_effect() && forgotten.first_turn > 1 && call.position.turn >= forgotten.first_turn
    }

    /// The calls of the run in the same words that its model has forgotten, and that may have happened: the newest, and how many they are.
    pub(crate) async fn forgotten_like(&self, call: &CallRecord) -> Result<Option<Related>, LedgerError> {
        let failed = || LedgerError::at("look for what was asked for before", &call.call_id);
        let known = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            if forgotten.first_turn <= 1 || call.position.turn < forgotten.first_turn {
                return Ok(None);
            }
            forgotten.calls.as_ref().map(|calls| like(calls, call))
        };
        let ids = if let Some(ids) = known {
            ids
        } else {
            let all = self.store.calls(&call.run_id, None).await.map_err(failed())?;
            let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            let first_turn = forgotten.first_turn;
            let mut calls: HashMap<_, Vec<CallId>> = HashMap::new();
            for call in all.into_iter().filter(|call| call.position.turn < first_turn && call.attempt > 0) {
                calls.entry((call.name.raw, call.args_hash)).or_default().push(call.call_id);
            }
            like(forgotten.calls.insert(calls), call)
        };
        let mut found: Option<Related> = None;
        for id in ids {
            let earlier = self.store.call(&id).await.map_err(failed())?;
            if rules::is_effect_elsewhere(&earlier) {
                let count = found.map_or(0, |found| found.count) + 1;
                found = Some(Related { newest: earlier, count });
            }
        }
        Ok(found)
    }
}

/// Those in the words of a call, oldest first.
fn like(calls: &HashMap<(String, ArgsHash), Vec<CallId>>, call: &CallRecord) -> Vec<CallId> {
    calls.get(&(call.name.raw.clone(), call.args_hash)).cloned().unwrap_or_default()
}
