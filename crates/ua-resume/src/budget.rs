//! What a run used of its budgets (Durable Jobs v1 spec §6), from its rows.

use serde::Serialize;
use ua_core::{BudgetStop, Currency, Missing, Money, RunStop, WaitBudgets};
use ua_store::{RunRecord, RunRecords};

use crate::usage::UsageSummary;
use ua_evidence::quote::span;

/// One budget: what was used, and the limit when there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetLine {
    /// Its name in the job file.
    pub budget: &'static str,
    /// What was used, over all processes that drove the run.
    pub used: u64,
    /// The job's limit; `None` means no limit.
    pub limit: Option<u64>,
    /// `calls`, `turns`, `steps`, `tokens`, `iterations`, `milliseconds` or `nanos` (billionths of `currency`).
    pub unit: &'static str,
    /// The currency of an amount of money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
}

impl BudgetLine {
    /// Whether nothing is left.
    pub fn is_reached(&self) -> bool {
        self.limit.is_some_and(|limit| self.used >= limit)
    }

    /// The budget in words: `3 of 250 calls`.
    pub fn in_words(&self) -> String {
        let reached = if self.is_reached() { " (reached)" } else { "" };
        if let Some(currency) = self.currency {
            let money = |nanos| Money::from_nanos(nanos, currency);
            let limit = self.limit.map_or_else(|| ", no limit".to_owned(), |limit| format!(" of {}", money(limit)));
            return format!("{}{limit}{reached}", money(self.used));
        }
        match (self.unit, self.limit) {
            ("milliseconds", Some(limit)) => format!("{} of {}{reached}", span(self.used), span(limit)),
            ("milliseconds", None) => span(self.used),
            (units, Some(limit)) => {
                let limit = ua_core::counted(limit, units.strip_suffix('s').unwrap_or(units));
                format!("{} of {limit}{reached}", self.used)
            }
            (units, None) => {
                format!("{}, no limit", ua_core::counted(self.used, units.strip_suffix('s').unwrap_or(units)))
            }
        }
    }
}

/// All budgets, in the order of the job file.
pub fn lines(records: &RunRecords) -> Vec<BudgetLine> {
    lines_after(records, records.run.held_millis)
}

/// The same for whoever knows how long processes were at work on it ([`time_at_work`](crate::time_at_work)).
pub fn lines_after(records: &RunRecords, held_millis: u64) -> Vec<BudgetLine> {
    let budgets = &records.budgets();
    let usage = UsageSummary::of(records);
    let mut lines = vec![
        BudgetLine {
            budget: "max_wallclock_minutes",
            used: held_millis,
            limit: Some(budgets.max_wallclock_minutes.saturating_mul(60_000)),
            unit: "milliseconds",
            currency: None,
        },
        BudgetLine {
            budget: "max_steps",
            used: count(&records.steps),
            limit: Some(budgets.max_steps.into()),
            unit: "steps",
            currency: None,
        },
        BudgetLine {
            budget: "max_tool_calls",
            used: u64::from(records.calls_from(0)) + records.tool_calls_below(),
            limit: Some(budgets.max_tool_calls.into()),
            unit: "calls",
            currency: None,
        },
        BudgetLine {
            budget: "max_turns",
            used: u64::from(records.run.own_turns()) + records.turns_below(),
            limit: budgets.max_turns.map(u64::from),
            unit: "turns",
            currency: None,
        },
        BudgetLine {
            budget: "max_tokens",
            used: usage.total_tokens,
            limit: budgets.max_tokens,
            unit: "tokens",
            currency: None,
        },
    ];
    lines.extend(records.max_iterations().map(|max| BudgetLine {
        budget: "max_iterations",
        used: records.run.iteration_count.into(),
        limit: Some(max.into()),
        unit: "iterations",
        currency: None,
    }));
    lines.extend(budgets.max_cost.map(|max| BudgetLine {
        budget: "max_cost",
        used: usage.cost.of(max.currency()).nanos(),
        limit: Some(max.nanos()),
        unit: "nanos",
        currency: Some(max.currency()),
    }));
    lines
}

/// The flags with which a run that a budget, a changed setup or a wait that was too long for it stopped resumes; `None` when no flag lifts what
/// stopped it.
pub fn raise_flags(run: &RunRecord) -> Option<String> {
    if run.stop_reason == Some(RunStop::Fingerprint) {
        let (_, rest) = run.status_detail.as_deref()?.rsplit_once(" --accept ")?;
        let components: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || "-,".contains(*c)).collect();
        return Some(format!("--accept {components}")).filter(|_| !components.is_empty());
    }
    if let Some(RunStop::Provider | RunStop::ToolServer) = run.stop_reason {
        return WaitBudgets::read(run.status_detail.as_deref()?).map(|budgets| budgets.flags());
    }
    let stop = BudgetStop::read(run.status_detail.as_deref()?).filter(|_| run.stop_reason == Some(RunStop::Budget))?;
    // As much again, within what a budget of this kind usually needs: who allowed three calls is not told to allow a hundred.
    let (least, most) = match stop.budget.as_str() {
        "max_tool_calls" => (5, 100),
        "max_turns" => (5, 20),
        "max_tokens" => (50_000, 100_000),
        "max_cost" => (1, 1),
        "max_wallclock_minutes" => (10, 30),
        "max_steps" | "max_iterations" => (5, 10),
        _ => return None,
    };
    let limit = stop.limit.parse::<u64>().unwrap_or(most);
    // What is printed has to be enough for what comes next.
    let (usual, step) = (limit.clamp(least, most), if stop.budget == "max_tokens" { 1_000 } else { 1 });
    let again = match stop.missing() {
        Missing::Next(missing) => usual.max(missing.next_multiple_of(step)),
        Missing::Over(missing) => usual.saturating_add(missing.next_multiple_of(step)),
    };
    let more = format!("+{again}");
    let currency = Money::parse(&stop.limit).map(Money::currency).filter(|currency| *currency != Currency::USD);
    let more = match currency.filter(|_| stop.budget == "max_cost") {
        Some(currency) => format!("'{more} {currency}'"),
        None => more,
    };
    let phase = stop.phase.map_or_else(String::new, |phase| format!("--phase {phase} "));
    Some(format!("{phase}--{} {more}", stop.budget.replace('_', "-")))
}

fn count<T>(rows: &[T]) -> u64 {
    rows.len() as u64
}
