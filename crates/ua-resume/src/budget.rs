//! What a run used of its budgets (Durable Jobs v1 spec §6), from its rows.

use serde::Serialize;
use ua_core::{BudgetStop, CallStatus, Currency, Money, RunStop, WaitBudgets};
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
    /// `calls`, `turns`, `steps`, `tokens`, `iterations`, `tasks`, `milliseconds` or `nanos` (billionths of `currency`).
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
    lines.extend(records.run.spec.subagents.as_ref().map(|allowed| BudgetLine {
        budget: MAX_TASKS,
        used: tasks(records),
        limit: Some(allowed.max_tasks.into()),
        unit: "tasks",
        currency: None,
    }));
    lines
}

/// The budget of tasks for sub-agents.
pub(crate) const MAX_TASKS: &str = "subagents.max_tasks";

/// How many tasks a run handed on, and those that it did.
fn tasks(records: &RunRecords) -> u64 {
    let own = records.calls.iter().filter(|call| call.name.is_task() && call.status != CallStatus::Cancelled).count();
    let below = records.lineage.sub_agents.iter().filter(|child| child.parent_run_id != records.run.run_id).count();
    (own + below) as u64
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
    let stops =
        BudgetStop::read_all(run.status_detail.as_deref().filter(|_| run.stop_reason == Some(RunStop::Budget))?);
    // Those that one request does not fit are of the run, or of one phase.
    let phase = stops.first()?.phase.as_ref().map_or_else(String::new, |phase| format!("--phase {phase} "));
    let flags: Option<Vec<String>> = stops.iter().map(raise_flag).collect();
    Some(format!("{phase}{}", flags?.join(" ")))
}

/// The flag that raises one budget, by as much again, within what a budget of this kind usually needs: who allowed three calls is not told to allow a
/// hundred. And what is printed has to be enough for what comes next.
fn raise_flag(stop: &BudgetStop) -> Option<String> {
    let (least, most, step) = match stop.budget.as_str() {
        "max_tool_calls" => (5, 100, 1),
        "max_turns" => (5, 20, 1),
        "max_tokens" => (50_000, 100_000, 1_000),
        "max_wallclock_minutes" => (10, 30, 1),
        "max_steps" | "max_iterations" => (5, 10, 1),
        "max_cost" => (LEAST_NANOS, UNIT_NANOS, CENT_NANOS),
        _ => return None,
    };
    let (limit, currency) = match Money::parse(&stop.limit).filter(|_| stop.budget == "max_cost") {
        Some(limit) => (limit.nanos(), Some(limit.currency())),
        None => (stop.limit.parse::<u64>().unwrap_or(most), None),
    };
    let again = limit.clamp(least, most).max(stop.missing());
    let again = again.checked_next_multiple_of(if again < step { least } else { step }).unwrap_or(again);
    let more = currency.map_or_else(|| format!("+{again}"), |currency| format!("'+{}'", as_typed(again, currency)));
    Some(format!("--{} {more}", stop.budget.replace('_', "-")))
}

/// Billionths of a whole unit of a currency, of a hundredth, and of the least that is shown of it.
const UNIT_NANOS: u64 = 1_000_000_000;
const CENT_NANOS: u64 = UNIT_NANOS / 100;
const LEAST_NANOS: u64 = UNIT_NANOS / 10_000;

/// An amount with its currency, as it is typed: `0.09 USD`.
fn as_typed(nanos: u64, currency: Currency) -> String {
    let (whole, rest) = (nanos / UNIT_NANOS, nanos % UNIT_NANOS);
    if rest.is_multiple_of(CENT_NANOS) {
        return format!("{whole}.{:02} {currency}", rest / CENT_NANOS);
    }
    format!("{whole}.{:04} {currency}", rest.div_ceil(LEAST_NANOS))
}

fn count<T>(rows: &[T]) -> u64 {
    rows.len() as u64
}

#[cfg(test)]
mod tests {
    use ua_core::{RequestTokens, RunStatus};
    use ua_evidence::testing::Story;

    use super::*;

    /// Tasks that were refused were not handed on, and a job that hands on none has no such budget.
    #[test]
    fn tasks_are_counted_where_a_job_hands_them_on() {
        for (job, expected) in [
            (r#"{"objective": "x"}"#, None),
            (r#"{"objective": "x", "subagents": {"max_tasks": 2}}"#, Some("1 of 2 tasks")),
            (r#"{"objective": "x", "subagents": {"max_tasks": 1}}"#, Some("1 of 1 task (reached)")),
        ] {
            let mut story = Story::new(job);
            let task = |what| ("task", serde_json::json!({"prompt": what}), ua_evidence::testing::mail_policy());
            let ids = story.asks("", &[task("one"), task("two")]);
            for call in &mut story.records.calls {
                call.name = ua_core::ToolName::task();
                if call.call_id == ids[1] {
                    call.status = CallStatus::Cancelled;
                }
            }
            let line = lines(&story.records).into_iter().find(|line| line.budget == MAX_TASKS);
            assert_eq!(line.map(|line| line.in_words()).as_deref(), expected, "{job}");
        }
    }

    /// What is printed is enough for what comes next, and not twenty times what a person allowed.
    #[test]
    fn the_flags_that_are_printed_are_enough_and_not_far_more() {
        let money = |text| Money::parse(text).unwrap();
        let next = |input, output| RequestTokens { input, output, fitting: None };
        let cases = [
            (BudgetStop::cost(money("0.05"), money("0"), money("0.1352"), next(830, 8_192)), "--max-cost '+0.09 USD'"),
            (BudgetStop::cost(money("2.50"), money("2.40"), money("0.2"), next(1_000, 100)), "--max-cost '+1.00 USD'"),
            (
                BudgetStop::cost(money("14 EUR"), money("16.2 EUR"), money("1 EUR"), next(20_000, 5_000)),
                "--max-cost '+3.31 EUR'",
            ),
            (BudgetStop::cost(money("0.0003"), money("0"), money("0.0011"), next(900, 20)), "--max-cost '+0.0009 USD'"),
            (BudgetStop::tokens(3_000, 60_800, next(50_600, 500)), "--max-tokens +112000"),
            (BudgetStop::tokens(200_000, 190_000, next(15_000, 8_192)), "--max-tokens +100000"),
            (BudgetStop::calls(3, 12), "--max-tool-calls +9"),
            (BudgetStop::turns(2, 30).of_phase(Some("write")), "--phase write --max-turns +29"),
            (BudgetStop::steps(1, 1, "the phase `two` would be the next"), "--max-steps +5"),
            (BudgetStop::iterations(2, "iteration 2 is over".to_owned()), "--max-iterations +5"),
            (BudgetStop::time(90, 5_400_000), "--max-wallclock-minutes +30"),
            (BudgetStop::time(1, 3_600_000), "--max-wallclock-minutes +60"),
        ];
        for (stop, flags) in cases {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            story.ends(RunStatus::Stopped, Some(RunStop::Budget), &stop.to_string());
            assert_eq!(raise_flags(&story.records.run).as_deref(), Some(flags), "{stop}");
        }
        // A request that fits neither budget is let through by one command, of the run or of its phase.
        for phase in [None, Some("write")] {
            let [tokens, cost] = [
                BudgetStop::tokens(3_000, 60_800, next(50_600, 500)),
                BudgetStop::cost(money("14 EUR"), money("16.2 EUR"), money("1 EUR"), next(20_000, 5_000)),
            ]
            .map(|stop| stop.of_phase(phase));
            let mut story = Story::new(r#"{"objective": "x"}"#);
            story.ends(RunStatus::Stopped, Some(RunStop::Budget), &BudgetStop::both(&tokens, &cost));
            let of = phase.map_or_else(String::new, |phase| format!("--phase {phase} "));
            let flags = format!("{of}--max-tokens +112000 --max-cost '+3.31 EUR'");
            assert_eq!(raise_flags(&story.records.run), Some(flags));
        }
    }
}
