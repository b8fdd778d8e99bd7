//! What a person changed about a run after its start. The contract itself never changes; a change is a row beside it.
//!
//! Granular Execution PRD §5.2 (accepted pins); Durable Jobs v1 spec §6 (raised budgets). Values are absolute, so that a
//! change that is stored twice because its answer was lost is the same change.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{Budgets, RunId, Timestamp};

use crate::error::StoreError;
use crate::record::RunRecord;
use crate::run_store::RunStore as _;
use crate::store::Store;
use crate::walk::runs_below;

/// What a change is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideKind {
    /// A component of a step's fingerprint was accepted as it is now.
    Pin,
    /// A budget was set to another limit.
    Budget,
}

/// A change to be stored; needs no lease.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOverride {
    /// Which run; must not be terminal.
    pub run_id: RunId,
    /// What it is about.
    pub kind: OverrideKind,
    /// Which component or budget.
    pub component: String,
    /// The value that counts from now on.
    pub value: Value,
    /// Who changed it.
    pub made_by: String,
    /// When.
    pub at: Timestamp,
}

/// A stored change; of several about one component the last counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverrideRecord {
    /// Which run.
    pub run_id: RunId,
    /// What it is about.
    pub kind: OverrideKind,
    /// Which component or budget.
    pub component: String,
    /// The value that counts from then on.
    pub value: Value,
    /// Who changed it.
    pub made_by: String,
    /// When.
    pub created_at: Timestamp,
}

/// The budgets that count: the contract's, with what a person changed since. A stored change that no longer reads as one is passed
/// over: the contract's own limit counts then, which is the smaller one.
pub fn budgets_with(contract: &Budgets, overrides: &[OverrideRecord]) -> Budgets {
    let mut budgets = contract.clone();
    for change in overrides.iter().filter(|change| change.kind == OverrideKind::Budget) {
        let Ok(mut fields) = serde_json::to_value(&budgets) else { continue };
        fields[&change.component] = change.value.clone();
        if let Ok(changed) = serde_json::from_value(fields) {
            budgets = changed;
        }
    }
    budgets
}

/// Stores the change of a budget of a run. How long a provider or a tool server is waited for, and how much time there is, is a matter of the whole
/// tree: those that work on tasks of the run wait in its place, so they get the same before it does. Their shares of everything else were carved when
/// they were made.
///
/// # Errors
/// Those of the store.
pub async fn change_budget(store: &dyn Store, change: NewOverride) -> Result<OverrideRecord, StoreError> {
    let of_tree = OfTree::named(&change.component).filter(|_| change.kind == OverrideKind::Budget);
    if let Some(of_tree) = of_tree {
        let below = runs_below(store, &change.run_id).await?;
        let at_work: Vec<RunRecord> = below.into_iter().filter(|child| !child.status.is_terminal()).collect();
        if !at_work.is_empty() {
            let (run, earlier) = (store.run(&change.run_id).await?, store.overrides(&change.run_id).await?);
            for child in at_work {
                let Some(value) = of_tree.below(&change.value, &run, &earlier, &child) else { continue };
                let change = NewOverride { run_id: child.run_id, value, ..change.clone() };
                match store.insert_override(change).await {
                    // It ended meanwhile, and needs no time.
                    Err(error) if error.is_refusal() => {}
                    stored => {
                        stored?;
                    }
                }
            }
        }
    }
    store.insert_override(change).await
}

/// The budgets that are the whole tree's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OfTree {
    /// The patience with whoever is away: the same for all.
    Patience,
    /// The time: a task may take what is left of it when it begins.
    Time,
}

impl OfTree {
    fn named(budget: &str) -> Option<Self> {
        match budget {
            "max_provider_wait_minutes" => Some(Self::Patience),
            "max_wallclock_minutes" => Some(Self::Time),
            _ => None,
        }
    }

    /// What it is of a run that works on a task of `run`, once it is `value` there. Absolute, so that the same change made again is the same.
    fn below(self, value: &Value, run: &RunRecord, earlier: &[OverrideRecord], child: &RunRecord) -> Option<Value> {
        match self {
            Self::Patience => Some(value.clone()),
            Self::Time => {
                let then: Vec<OverrideRecord> =
                    earlier.iter().filter(|change| change.created_at <= child.created_at).cloned().collect();
                let before = budgets_with(&run.spec.budgets, &then).max_wallclock_minutes;
                let with_all = child.spec.budgets.max_wallclock_minutes.saturating_add(value.as_u64()?);
                Some(with_all.saturating_sub(before).max(1).into())
            }
        }
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use ua_core::RunSpec;

    use super::*;
    use crate::conformance::samples::{self, at};
    use crate::rules::run_submitted;

    fn run(id: &str, minutes: u64, created_at: Timestamp) -> RunRecord {
        let mut run = run_submitted(samples::new_run(id), None).0;
        let spec = RunSpec::clone(&run.spec);
        let budgets = Budgets { max_wallclock_minutes: minutes, ..spec.budgets.clone() };
        run.spec = Arc::new(RunSpec { budgets, ..spec });
        run.created_at = created_at;
        run
    }

    /// A task that began with 60 of 90 minutes has as many more as its run was given since, however often that is said, and never none.
    #[test]
    fn a_task_gets_the_time_that_its_run_was_given_since_it_began() {
        let job = run("run_1", 90, at(0));
        let raised = |minutes: u64, seconds: i64| OverrideRecord {
            run_id: job.run_id.clone(),
            kind: OverrideKind::Budget,
            component: "max_wallclock_minutes".to_owned(),
            value: json!(minutes),
            made_by: "ada".to_owned(),
            created_at: at(seconds),
        };
        let task = run("run_2", 60, at(100));
        let below = |value: u64, earlier: &[OverrideRecord]| {
            OfTree::Time.below(&json!(value), &job, earlier, &task).unwrap().as_u64().unwrap()
        };
        assert_eq!(below(120, &[]), 90);
        assert_eq!(below(120, &[raised(120, 200)]), 90, "said again");
        assert_eq!(below(150, &[raised(120, 200)]), 120);
        // What was given before it began was shared out to it.
        assert_eq!(below(150, &[raised(120, 50)]), 90);
        assert_eq!(below(80, &[]), 50);
        assert_eq!(below(1, &[]), 1);
        assert_eq!(OfTree::Patience.below(&json!(120), &job, &[], &task), Some(json!(120)));
        assert_eq!(OfTree::named("max_tokens"), None, "a share of that was carved");
    }
}
