//! The phase a run stands in: what comes after it, where it stops, and what it used so far.
//!
//! Durable Jobs v1 spec §5 and §9.1. Everything is read off the records: the current step names the phase, its first turn says what
//! belongs to it. Invariant: a phase is entered once, in the write that ends the one before. Proved by:
//! `crash_anywhere::phases`, `machine_tests`.

use ua_core::{BudgetStop, PhaseBudgets};
use ua_store::RunRecords;

use crate::budget::{Below, Estimate, Spent, Used, admit_within, calls_stop, turns_stop};

/// A phase and what it used so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PhaseState {
    /// Its name.
    pub name: String,
    /// The phase after it.
    pub next: Option<String>,
    /// Where the run stops by itself within it.
    pub limits: PhaseBudgets,
    /// What its turns used.
    pub used: Used,
}

impl PhaseState {
    /// The phase with the given name, of which nothing is done yet; `None` when the job has no such phase.
    pub(crate) fn fresh(records: &RunRecords, name: &str) -> Option<Self> {
        records.run.spec.phase(name)?;
        Some(Self {
            name: name.to_owned(),
            next: records.run.spec.phases_after(name).into_iter().next(),
            limits: records.phase_budgets(name),
            ..Self::default()
        })
    }

    /// The phase that the records say the run stands in; `None` when the job has none, or none was entered.
    pub(crate) fn of(records: &RunRecords) -> Option<Self> {
        let step = records.current_step()?;
        // Each of its iterations is a step of its own.
        let steps = records.steps.iter().filter(|other| other.phase == step.phase);
        let first = steps.map(|step| step.first_turn).min().unwrap_or(step.first_turn);
        let below = Below::of(records, first);
        Some(Self {
            used: Used {
                turns: (records.run.turn_index + 1).saturating_sub(first).saturating_add(below.turns),
                tool_calls: records.calls_from(first).saturating_add(below.tool_calls),
                spent: Spent::of_run(records, first, &below),
            },
            ..Self::fresh(records, &step.phase)?
        })
    }

    /// Its budget of turns, if none is left.
    pub(crate) fn turns_stop(&self) -> Option<BudgetStop> {
        turns_stop(self.limits.max_turns, Some(&self.name), &self.used)
    }

    /// Its budget of tool calls, if the calls asked for so far exceed it.
    pub(crate) fn calls_stop(&self) -> Option<BudgetStop> {
        calls_stop(self.limits.max_tool_calls, Some(&self.name), &self.used)
    }

    /// Whether the next request may be reserved; in words, why not.
    pub(crate) fn admit(&self, estimate: &Estimate) -> Result<(), String> {
        admit_within(self.limits.max_tokens, self.limits.max_cost, Some(&self.name), &self.used.spent, estimate)
    }
}
