//! What has changed since a call was sent, by the order in which it was stored.
//!
//! A call in doubt is not sent again by itself where another one may have had its effect since, and what a person answers to its tool is
//! not handed over then ([`RelatedCalls`](crate::related::RelatedCalls)). Clocks are set while a run waits, and those of two machines
//! differ, so what came first is told by the numbers that the store gives to changes. What has none, an answer that was handed to a tool,
//! is told by the clock beside it, which so adds to what has changed and takes nothing away. Durable Jobs v1 spec §8.3.
//!
//! Of calls that stand alike the relations name the one that moved last by the clock, and count the others. Where there are others, those
//! that changed since are told by themselves. Proved by: `identity::forks`, `conformance::calls`, the seeded bug M39.

use std::collections::BTreeSet;

use ua_core::{CallId, CallStatus, RunId};
use ua_store::{CallRecord, CallsOf, LedgerStore as _, Related, Relations, RunStore as _, Store as _};

use crate::admission::Facts;
use crate::error::LedgerError;
use crate::ledger::Ledger;

/// Other calls that have changed since a call was sent last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Behind {
    /// They.
    pub(crate) calls: BTreeSet<CallId>,
    /// What they have to do with the call, where its relations count calls that they do not name.
    pub(crate) relations: Relations,
    /// Those of [`Relations::renamed`] among that which may be the same call.
    pub(crate) renamed: Vec<Related>,
}

impl Ledger {
    /// What has changed since a call was sent last that `relations` are of.
    pub(crate) async fn behind(
        &self,
        call: &CallRecord,
        facts: &Facts,
        relations: &Relations,
    ) -> Result<Behind, LedgerError> {
        let related = relations.all();
        if call.attempt == 0 || related.is_empty() {
            return Ok(Behind::default());
        }
        let failed = || LedgerError::at("look for what has changed since", &call.call_id);
        let changes = self.store.events(&call.call_id).await.map_err(failed())?;
        // What effects.log alone knows as sent has no such change: all since it was planned counts then.
        let sent = changes.iter().rev().find(|change| change.to == CallStatus::Running).or(changes.first());
        let Some(sent) = sent else { return Ok(Behind::default()) };
        // In a project of sessions there are calls of other lineages among the related ones.
        let roots: BTreeSet<&RunId> =
            related.iter().map(|related| &related.newest.root_run_id).chain([&call.root_run_id]).collect();
        let mut changed = Vec::new();
        for root in roots {
            let found = self.store.calls_of(CallsOf::EffectsBehind(root.clone(), sent.seq)).await.map_err(failed())?;
            changed.extend(found.into_iter().filter(|other| other.call_id != call.call_id));
        }
        let calls = changed.iter().map(|other| other.call_id.clone()).collect();
        let mut behind = Behind { calls, ..Behind::default() };
        if related.iter().all(|related| related.count == 1) {
            return Ok(behind);
        }
        let is_of_others = changed.iter().any(|other| other.run_id != call.run_id);
        let elsewhere: BTreeSet<CallId> = if is_of_others {
            let records = self.store.load(&call.run_id).await.map_err(failed())?;
            records.lineage.elsewhere.into_iter().map(|other| other.call_id).collect()
        } else {
            BTreeSet::new()
        };
        let scope = facts.scope.as_ref();
        for other in changed.into_iter().map(Related::one) {
            let id = &other.newest.call_id;
            if other.newest.root_run_id == call.root_run_id {
                behind.relations.add(call, scope, &other);
                if elsewhere.contains(id) {
                    behind.relations.add_kin(call, scope, &other);
                }
            } else if related.iter().any(|known| known.newest.call_id == *id) {
                behind.relations.add_open(call, scope, other.newest);
            }
        }
        behind.renamed = self.renamed(call, &behind.relations, facts).await?;
        Ok(behind)
    }
}
