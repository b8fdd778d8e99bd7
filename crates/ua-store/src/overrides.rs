//! What a person changed about a run after its start. The contract itself never changes; a change is a row beside it.
//!
//! Granular Execution PRD §5.2 (accepted pins); Durable Jobs v1 spec §6 (raised budgets). Values are absolute, so that a
//! change that is stored twice because its answer was lost is the same change.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{Budgets, RunId, Timestamp};

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
