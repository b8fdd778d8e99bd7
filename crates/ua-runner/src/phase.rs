//! The phase a run stands in: what comes after it, where it stops, and what it used so far.
//!
//! Durable Jobs v1 spec §5 and §9.1. Everything is read off the records: the current step names the phase, its first turn says what
//! belongs to it. Invariant: a phase is entered once, in the write that ends the one before. Proved by:
//! `crash_anywhere::phases`, `machine_tests`.

use ua_core::{BudgetStop, PhaseBudgets};
use ua_store::RunRecords;

use crate::budget::{Below, Estimate, Spent, admit_within};

/// A phase and what it used so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PhaseState {
    /// Its name.
    pub name: String,
    /// The phase after it.
    pub next: Option<String>,
    /// Where the run stops by itself within it.
    pub limits: PhaseBudgets,
    /// Its committed turns.
    pub turns: u32,
    /// Tool calls its replies asked for.
    pub tool_calls: u32,
    /// What its requests to models took.
    pub spent: Spent,
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
        let requests = records.requests.iter().filter(|request| request.turn >= first);
        let below = Below::of(records, first);
        let calls = records.calls.iter().filter(|call| call.position.turn >= first).count();
        Some(Self {
            turns: (records.run.turn_index + 1).saturating_sub(first).saturating_add(below.turns),
            tool_calls: u32::try_from(calls).unwrap_or(u32::MAX).saturating_add(below.tool_calls),
            spent: Spent::of(requests.chain(&below.requests))
                .with_tools(records.tool_charges(first).chain(&below.charges)),
            ..Self::fresh(records, &step.phase)?
        })
    }

    /// A budget of the phase that leaves nothing for another turn. Tool calls are not among these: a phase that used them all may
    /// still say its last word.
    pub(crate) fn budget_stop(&self) -> Option<BudgetStop> {
        let limits = &self.limits;
        if let Some(max) = limits.max_turns.filter(|max| self.turns >= *max) {
            return Some(self.stop("max_turns", &max, format!("{} turns are used", self.turns)));
        }
        if let Some(max) = limits.max_tokens.filter(|max| self.spent.tokens >= *max) {
            return Some(self.stop("max_tokens", &max, format!("{} tokens are used", self.spent.tokens)));
        }
        let max = limits.max_cost.filter(|max| self.spent.costs.of(max.currency()).nanos() >= max.nanos())?;
        Some(self.stop("max_cost", &max, format!("{} is used", self.spent.costs.of(max.currency()))))
    }

    /// Its budget of tool calls, if the calls asked for so far exceed it.
    pub(crate) fn calls_stop(&self) -> Option<BudgetStop> {
        let max = self.limits.max_tool_calls.filter(|max| self.tool_calls > *max)?;
        Some(self.stop("max_tool_calls", &max, calls_in_words(self.tool_calls)))
    }

    /// Whether the next request may be reserved; in words, why not.
    pub(crate) fn admit(&self, estimate: &Estimate) -> Result<(), String> {
        admit_within(self.limits.max_tokens, self.limits.max_cost, Some(&self.name), &self.spent, estimate)
    }

    fn stop(&self, budget: &str, limit: &impl ToString, detail: String) -> BudgetStop {
        BudgetStop { budget: budget.to_owned(), phase: Some(self.name.clone()), limit: limit.to_string(), detail }
    }
}

/// What is said about a reply that asks for more calls than are left.
pub(crate) fn calls_in_words(asked: u32) -> String {
    format!("with those of the last reply {asked} calls are asked for, and none of them was sent")
}
