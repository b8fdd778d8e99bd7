//! Budgets: how many calls with an effect were begun, in a session or on a day. The broker alone begins them, so what it counts is all there is;
//! what an earlier one began is counted once, from what is stored.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::Mutex;
use ua_core::{PlannedCall, RunId, Timestamp};
use ua_store::{CallRecord, GatewayStore as _, LedgerStore as _, SessionRecord, SessionsOf};

use crate::broker::{Broken, Broker};
use crate::settings::{Budget, BudgetSpan};

/// A day.
const DAY: Duration = Duration::from_hours(24);

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Spent(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By the budget's place and what it is counted in.
    counts: HashMap<(usize, Counted), u32>,
    /// Whether what is stored of this was counted.
    known: HashSet<(usize, Counted)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Counted {
    Session(RunId),
    /// The number of the day since 1970.
    Day(u64),
}

fn day_of(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0) / u64::try_from(DAY.as_millis()).unwrap_or(1)
}

impl Budget {
    fn is_about(&self, session: &SessionRecord, effect: Option<&str>) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        fits(&self.client, &session.client)
            && fits(&self.server, &session.server)
            && self.effect.as_deref().is_none_or(|wanted| effect == Some(wanted))
    }

    fn counted(&self, session: &SessionRecord, at: Timestamp) -> Counted {
        match self.per {
            BudgetSpan::Session => Counted::Session(session.run_id.clone()),
            BudgetSpan::Day => Counted::Day(day_of(at)),
        }
    }
}

impl Broker {
    /// Counts a call that is about to be begun. The budget that does not have it, in words, when there is one: then nothing was counted.
    pub(crate) async fn spend(
        &self,
        session: &SessionRecord,
        call: &PlannedCall,
        at: Timestamp,
    ) -> Result<Option<String>, Broken> {
        let budgets = &self.config.rules.budgets;
        if budgets.is_empty() || !call.policy.class.has_effect() {
            return Ok(None);
        }
        let effect = call.policy.effect_kind.as_ref().map(|kind| kind.as_str().to_owned());
        let mut spent = self.spent.0.lock().await;
        let mut touched = Vec::new();
        for (place, budget) in budgets.iter().enumerate() {
            if !budget.is_about(session, effect.as_deref()) {
                continue;
            }
            let key = (place, budget.counted(session, at));
            if !spent.known.contains(&key) {
                let stored = self.stored(budget, session, at).await?;
                spent.known.insert(key.clone());
                spent.counts.insert(key.clone(), stored);
            }
            if spent.counts.get(&key).copied().unwrap_or(0) >= budget.calls {
                return Ok(Some(budget.words()));
            }
            touched.push(key);
        }
        for key in touched {
            *spent.counts.entry(key).or_default() += 1;
        }
        // What was counted on earlier days is nothing that anybody asks for.
        let today = day_of(at);
        spent.counts.retain(|(_, counted), _| !matches!(counted, Counted::Day(day) if *day < today));
        Ok(None)
    }

    /// What was begun before this broker, and what it began itself before anybody counted.
    async fn stored(&self, budget: &Budget, session: &SessionRecord, at: Timestamp) -> Result<u32, Broken> {
        let sessions = match budget.per {
            BudgetSpan::Session => vec![session.clone()],
            BudgetSpan::Day => {
                let all = self.store.sessions_of(SessionsOf::Newest(u32::MAX)).await;
                all.map_err(Broken::at("count what was used of a budget"))?
            }
        };
        let mut count = 0;
        for session in sessions {
            let calls = self.store.calls(&session.run_id, None).await;
            let calls = calls.map_err(Broken::at("count what was used of a budget"))?;
            let is_counted = |call: &&CallRecord| {
                let effect = call.policy.effect_kind.as_ref().map(|kind| kind.as_str().to_owned());
                call.policy.class.has_effect()
                    && budget.is_about(&session, effect.as_deref())
                    && (budget.per == BudgetSpan::Session || day_of(call.created_at) == day_of(at))
            };
            count += u32::try_from(calls.iter().filter(is_counted).count()).unwrap_or(u32::MAX);
        }
        Ok(count)
    }
}
