//! What the model of a run asked for in contexts that it does not have any more.
//!
//! An iteration begins with an empty context ([ADR 17](../../../docs/adr/0017-an-iteration-is-a-step.md)). Within one context a model that makes
//! the same call twice means it; one that has forgotten the first call decides nothing about it, no more than a model beside it does that knows
//! nothing of it ([`related`](crate::related)). What was done then is what [`past`](crate::past) finds: in turns of the run and in those it shares, and
//! by their sub-agents. A sub-agent's model knows what the one knew that gave it its task. Declared effects are known by their content, whatever a
//! model remembers, as long as the tool is declared as the same thing: where a person accepted other tools or policies for the run, what it did
//! before is looked at as well.
//!
//! Proved by: `identity::forgotten`, the end-to-end tests `harness`.

use std::collections::HashMap;
use std::sync::PoisonError;

use ua_core::{ArgsHash, CallId};
use ua_store::{CallRecord, LedgerStore as _, Related, StoreError, is_declared_otherwise, rules};

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::past::Past;

/// Calls of earlier contexts by what they say. Which they are does not change until the next context begins; how they stand does.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    /// The first turn that the model's context holds.
    first_turn: u32,
    /// From which turn on its tools are declared as they are now; before, something else may have been said of them. 0 where nothing was.
    declared_from: u32,
    above: Above,
    calls: Option<HashMap<(String, ArgsHash), Vec<CallId>>>,
}

/// What the models above a sub-agent had forgotten when they gave their tasks.
#[derive(Debug, Default)]
enum Above {
    /// The run works on no task.
    #[default]
    Nobody,
    /// It works on this one, and nobody has looked.
    Task(CallId),
    /// This. It never changes.
    Known(Vec<Past>),
}

impl Ledger {
    /// The same ledger of a run that works on a task: its model knows what the one knew that gave it.
    #[must_use]
    pub fn with_task(mut self, task: Option<CallId>) -> Self {
        let forgotten = self.forgotten.get_mut().unwrap_or_else(PoisonError::into_inner);
        forgotten.above = task.map_or(Above::Nobody, Above::Task);
        self
    }

    /// The model's context holds what happened from this turn on, and nothing before.
    pub fn context_begins(&self, turn: u32) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.first_turn != turn {
            (forgotten.first_turn, forgotten.calls) = (turn, None);
        }
    }

    /// What the run did before this turn, or what it shares with the run that it is a fork of, may have been done by tools that were declared as
    /// something else.
    pub fn declared_from(&self, turn: u32) {
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        if forgotten.declared_from != turn {
            (forgotten.declared_from, forgotten.calls) = (turn, None);
        }
    }

    /// Whether the model of a call has lost sight of something in which it, or another one in its place, may have asked for the same, or the same may
    /// have been done when its tool was declared as something else.
    pub(crate) fn may_have_forgotten(&self, call: &CallRecord) -> bool {
        let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        // An effect of a fork is looked at in the write that starts it.
        let has_effect = call.policy.class.has_effect();
        forgotten.declared_from > u32::from(has_effect) || (has_effect && forgotten.hides_from(call))
    }

    /// The calls in the same words that the model of this one does not have in its context, or whose tool was declared as something else, and that
    /// may have happened: the newest, and how many they are. Those that no key tells come first.
    pub(crate) async fn forgotten_like(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Option<Related>, LedgerError> {
        let failed = || LedgerError::at("look for what was asked for before", &call.call_id);
        let has_effect = call.policy.class.has_effect();
        if has_effect {
            self.learn_above().await.map_err(failed())?;
        }
        let known = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            if forgotten.declared_from <= 1 && !(has_effect && forgotten.hides_from(call)) {
                return Ok(None);
            }
            forgotten.calls.as_ref().map(|calls| like(calls, call))
        };
        let ids = match known {
            Some(ids) => ids,
            None => self.like_before(call).await.map_err(failed())?,
        };
        let first_turn = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            if forgotten.has_forgotten_before(call) { forgotten.first_turn } else { 0 }
        };
        let (mut found, mut declared_otherwise): (Option<Related>, Option<Related>) = (None, None);
        for id in ids.into_iter().filter(|id| *id != call.call_id) {
            let earlier = self.store.call(&id).await.map_err(failed())?;
            if !rules::is_effect_elsewhere(&earlier) || !self.is_of_tool(call, &earlier, facts).await? {
                continue;
            }
            let list = if is_declared_otherwise(call, &earlier) {
                &mut declared_otherwise
            } else if earlier.run_id != call.run_id || earlier.position.turn < first_turn {
                &mut found
            } else {
                continue;
            };
            let count = list.as_ref().map_or(0, |found| found.count) + 1;
            *list = Some(Related { newest: earlier, count });
        }
        Ok(declared_otherwise.or(found))
    }

    /// Reads, once, what the models above had forgotten.
    async fn learn_above(&self) -> Result<(), StoreError> {
        let task = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            let Above::Task(task) = &forgotten.above else { return Ok(()) };
            task.clone()
        };
        let past = self.past_above(task).await?;
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        (forgotten.above, forgotten.calls) = (Above::Known(past), None);
        Ok(())
    }

    /// Reads what is forgotten, and of it what is in the words of a call.
    async fn like_before(&self, call: &CallRecord) -> Result<Vec<CallId>, StoreError> {
        let (first_turn, declared_from, mut past) = {
            let forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            (forgotten.first_turn, forgotten.declared_from, forgotten.above.past().to_vec())
        };
        past.extend(self.past_of(&call.run_id, first_turn).await?);
        let mut all = self.calls_of_past(past).await?;
        if declared_from > first_turn {
            let own = self.store.calls(&call.run_id, None).await?;
            all.extend(own.into_iter().filter(|call| (first_turn..declared_from).contains(&call.position.turn)));
        }
        all.sort_by_key(|call| (call.created_at, call.position));
        let mut calls: HashMap<_, Vec<CallId>> = HashMap::new();
        for call in all {
            calls.entry((call.name.tool, call.args_hash)).or_default().push(call.call_id);
        }
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(like(forgotten.calls.insert(calls), call))
    }
}

impl Above {
    fn past(&self) -> &[Past] {
        match self {
            Self::Nobody | Self::Task(_) => &[],
            Self::Known(past) => past,
        }
    }
}

impl Forgotten {
    /// Whether something that was done may not be in the context of the model that decides about a call.
    fn hides_from(&self, call: &CallRecord) -> bool {
        self.has_forgotten_before(call) || matches!(self.above, Above::Task(_)) || !self.above.past().is_empty()
    }

    fn has_forgotten_before(&self, call: &CallRecord) -> bool {
        self.first_turn > 1 && call.position.turn >= self.first_turn
    }
}

/// Those in the words of a call, of its tool or of one of the same own name, oldest first.
fn like(calls: &HashMap<(String, ArgsHash), Vec<CallId>>, call: &CallRecord) -> Vec<CallId> {
    calls.get(&(call.name.tool.clone(), call.args_hash)).cloned().unwrap_or_default()
}
