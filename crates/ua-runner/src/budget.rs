//! Budgets: what was used, where a run or a phase stops, what the next request may take, and whether that fits.
//!
//! Granular Execution PRD §6 (reserve → execute → reconcile), Durable Jobs v1 spec §6 (`budgets`).
//! Invariants: nothing is reserved that may exceed a budget; what was spent is the sum over the rows of all requests and the receipts of
//! tools that pay, so it counts on over crashes and resumes; a charge computed here is the one that the store writes.
//! Proved by: the tables below, `machine_tests`, `crash_anywhere`, and `e2e/usage.rs`.

use serde::Serialize;
use ua_core::{Audience, BudgetStop, Budgets, Costs, Money, RequestTokens, RunId, TokenPrice, ToolCharge, Usage};
use ua_store::{RequestEnd, RequestRecord, RunRecords};

/// Where the run stops by itself. `None` means no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Tool calls, counted when the model asks for them.
    pub max_tool_calls: Option<u32>,
    /// Steps: the phases that are entered.
    pub max_steps: Option<u32>,
    /// Committed turns of its own.
    pub max_turns: Option<u32>,
    /// Committed turns that it shares with its parent and that count for no budget of its own.
    pub shared_turns: u32,
    /// Tokens of all requests.
    pub max_tokens: Option<u64>,
    /// Money for all requests.
    pub max_cost: Option<Money>,
    /// Milliseconds in which a process held the run.
    pub max_held_millis: Option<u64>,
    /// Equal errors in a row.
    pub max_same_error_repeats: Option<u32>,
    /// Whether a person is asked when the same failure happens again and again; otherwise the run fails.
    pub ask_on_repeated_failures: bool,
    /// Whether a person is asked when the provider refuses the credentials; otherwise the run stops.
    pub ask_on_auth_failure: bool,
    /// Whom what is said of them speaks to.
    pub audience: Audience,
}

impl Limits {
    /// The limits of a run: its budgets, as its contract or a person says.
    pub fn of(spec: &ua_core::RunSpec, budgets: &Budgets) -> Self {
        Self {
            max_tool_calls: Some(budgets.max_tool_calls),
            max_steps: Some(budgets.max_steps),
            max_turns: budgets.max_turns,
            shared_turns: 0,
            max_tokens: budgets.max_tokens,
            max_cost: budgets.max_cost,
            max_held_millis: Some(budgets.max_wallclock_minutes.saturating_mul(60_000)),
            max_same_error_repeats: Some(budgets.max_same_error_repeats),
            ask_on_repeated_failures: spec.escalation.ask_human_on_repeated_failures,
            ask_on_auth_failure: spec.escalation.ask_human_on_auth_failure,
            audience: Audience::default(),
        }
    }
}

/// What is said of a budget that nobody can keep.
const NOT_ENFORCED: &str = "cannot be enforced";

/// Whether what is said of a budget that stopped a run says that nobody can keep it: a higher one would not help.
pub(crate) fn is_not_enforced(detail: &str) -> bool {
    detail.contains(NOT_ENFORCED)
}

/// What requests to models took so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// All tokens that were charged.
    pub tokens: u64,
    /// What those with a price cost.
    pub costs: Costs,
}

impl Spent {
    /// What a run spent in turns from `first` on, with which a step begins: itself, its tools, and what worked below it.
    pub(crate) fn of_run(records: &RunRecords, first: u32, below: &Below) -> Self {
        let mut spent = Self::default();
        for sum in records.left_out.requests_from(first) {
            spent.add(Charge { usage: sum.usage, cost: sum.cost });
        }
        let own = records.requests.iter().filter(|request| request.turn >= first);
        for request in own.chain(&below.requests) {
            spent.add(Charge { usage: request.usage, cost: request.cost });
        }
        spent.with_tools(records.tool_charges(first).chain(&below.charges))
    }

    /// The sum over a run's requests; one that is still reserved has been charged nothing yet.
    pub fn of<'r>(requests: impl IntoIterator<Item = &'r RequestRecord>) -> Self {
        let mut spent = Self::default();
        for request in requests {
            spent.add(Charge { usage: request.usage, cost: request.cost });
        }
        spent
    }

    /// The same with what tools paid to models.
    #[must_use]
    pub fn with_tools<'c>(mut self, charges: impl IntoIterator<Item = &'c ToolCharge>) -> Self {
        for charge in charges {
            self.add(Charge { usage: charge.usage, cost: charge.cost });
        }
        self
    }

    /// Adds a charge.
    pub fn add(&mut self, charge: Charge) {
        self.tokens = self.tokens.saturating_add(charge.usage.total());
        if let Some(cost) = charge.cost {
            self.costs.add(cost);
        }
    }
}

/// What was used of the budgets of a run, or of one of its phases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// Committed turns.
    pub turns: u32,
    /// Tool calls that replies asked for.
    pub tool_calls: u32,
    /// What requests to models took.
    pub spent: Spent,
}

/// Something that counts for budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// What one request was charged.
    Request(Charge),
    /// So many tool calls that a reply asks for.
    Calls(u32),
    /// A committed turn.
    Turn,
}

impl Used {
    /// Adds what was used besides.
    pub fn add(&mut self, more: Use) {
        match more {
            Use::Request(charge) => self.spent.add(charge),
            Use::Calls(calls) => self.tool_calls = self.tool_calls.saturating_add(calls),
            Use::Turn => self.turns = self.turns.saturating_add(1),
        }
    }
}

/// What the sub-agents of a run used; it counts for the run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Below {
    /// How many of them there are.
    pub(crate) tasks: u32,
    /// Turns that they committed.
    pub(crate) turns: u32,
    /// Tool calls that they asked for.
    pub(crate) tool_calls: u32,
    /// Their requests to models.
    pub(crate) requests: Vec<RequestRecord>,
    /// What their tools paid to models.
    pub(crate) charges: Vec<ToolCharge>,
}

impl Below {
    /// What was used by those that work on tasks of turns from `first` on, and by those below them.
    pub(crate) fn of(records: &RunRecords, first: u32) -> Self {
        let mut counted: Vec<&RunId> = Vec::new();
        let mut sum = Self::default();
        // Parents stand before their children.
        for child in &records.lineage.sub_agents {
            let own = records.call(&child.call_id).is_some_and(|call| call.position.turn >= first);
            if !own && !counted.contains(&&child.parent_run_id) {
                continue;
            }
            counted.push(&child.run_id);
            sum.tasks += 1;
            sum.turns = sum.turns.saturating_add(child.turns);
            sum.tool_calls = sum.tool_calls.saturating_add(child.tool_calls);
            sum.requests.extend(child.requests.iter().cloned());
            sum.charges.extend(child.charges.iter().cloned());
        }
        sum
    }
}

/// What one request was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Charge {
    /// The tokens.
    pub usage: Usage,
    /// What they cost; `None` when their price is not known.
    pub cost: Option<Money>,
}

/// What one request may take; held from its reservation to its charge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Input tokens, as estimated.
    pub input_tokens: u64,
    /// The most output tokens that are allowed.
    pub output_tokens: u64,
    /// What they cost; `None` when nobody knows.
    pub price: Option<TokenPrice>,
}

impl Estimate {
    /// What the request is charged when it ends like this.
    pub fn charge(&self, end: RequestEnd) -> Charge {
        let usage = end.charged(self.input_tokens);
        Charge { usage, cost: self.price.map(|price| price.cost(usage)) }
    }

    /// Input and output together.
    pub const fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl Limits {
    /// Whether a request may be reserved after so much was spent; in words, why not.
    pub fn admit(&self, spent: &Spent, estimate: &Estimate) -> Result<(), String> {
        admit_within(self.max_tokens, self.max_cost, None, spent, estimate)
    }

    /// What a person is asked about an error that settled calls ended with so often in a row, if that is more often than it may be.
    pub(crate) fn same_error_question(&self, same_error: Option<&(String, u32)>) -> Option<String> {
        let (error, count) =
            same_error.filter(|(_, count)| self.max_same_error_repeats.is_some_and(|max| *count > max))?;
        Some(format!("The same failure happened {count} times in a row. {error}"))
    }

    /// The budget of turns, if none is left.
    pub(crate) fn turns_stop(&self, used: &Used) -> Option<BudgetStop> {
        turns_stop(self.max_turns, None, used)
    }

    /// The budget of tool calls, if the calls asked for so far exceed it.
    pub(crate) fn calls_stop(&self, used: &Used) -> Option<BudgetStop> {
        calls_stop(self.max_tool_calls, None, used)
    }

    /// The budget of time, if it is used up.
    pub(crate) fn out_of_time(&self, held_millis: u64) -> Option<BudgetStop> {
        let max = self.max_held_millis.filter(|max| held_millis >= *max)?;
        Some(BudgetStop::time(max / 60_000, held_millis))
    }

    /// The budget of steps, if none is left. `why` says in words what another one is for.
    pub(crate) fn steps_stop(&self, steps: u32, why: &str) -> Option<BudgetStop> {
        let max = self.max_steps.filter(|max| steps >= *max)?;
        Some(BudgetStop::steps(max, steps, why))
    }
}

/// The budget of turns of the run, or of one of its phases, if none is left. Tokens and money are not looked at between turns: what the next request
/// takes is known once it is composed, and whoever is told that they are reached is told that as well. Nor are tool calls: whoever used them all
/// may still say the last word.
pub(crate) fn turns_stop(max_turns: Option<u32>, phase: Option<&str>, used: &Used) -> Option<BudgetStop> {
    let max = max_turns.filter(|max| used.turns >= *max)?;
    Some(BudgetStop::turns(max, used.turns).of_phase(phase))
}

/// The budget of tool calls of the run, or of one of its phases, if the calls asked for so far exceed it.
pub(crate) fn calls_stop(max_tool_calls: Option<u32>, phase: Option<&str>, used: &Used) -> Option<BudgetStop> {
    let max = max_tool_calls.filter(|max| used.tool_calls > *max)?;
    Some(BudgetStop::calls(max, used.tool_calls).of_phase(phase))
}

/// Whether a request fits into what is left of the tokens and the money of the run, or of one of its phases.
pub(crate) fn admit_within(
    max_tokens: Option<u64>,
    max_cost: Option<Money>,
    phase: Option<&str>,
    spent: &Spent,
    estimate: &Estimate,
) -> Result<(), String> {
    let Estimate { input_tokens, output_tokens, price } = *estimate;
    let left = |max: Money| max.nanos().checked_sub(spent.costs.of(max.currency()).nanos());
    // What a reply may be for both budgets to be kept: whoever writes it into the job is not told of the other one then.
    let by_tokens = max_tokens.map(|max| max.checked_sub(spent.tokens.saturating_add(input_tokens)));
    let by_cost = max_cost.zip(price).map(|(max, price)| {
        left(max).and_then(|left| price.reply_within(input_tokens, Money::from_nanos(left, max.currency())))
    });
    let fitting = by_tokens.into_iter().chain(by_cost).reduce(|one, other| Some(one?.min(other?))).flatten();
    let next = RequestTokens { input: input_tokens, output: output_tokens, fitting };
    let by_tokens = max_tokens
        .filter(|max| spent.tokens.saturating_add(estimate.tokens()) > *max)
        .map(|max| BudgetStop::tokens(max, spent.tokens, next).of_phase(phase));
    let by_cost = max_cost.map_or(Ok(None), |max| cost_stop(max, phase, spent, next, price));
    match (by_tokens, by_cost) {
        (None, Ok(None)) => Ok(()),
        (None, Err(why)) => Err(why),
        (Some(stop), Ok(None) | Err(_)) | (None, Ok(Some(stop))) => Err(stop.to_string()),
        // Whoever raises one of them alone is stopped by the other.
        (Some(tokens), Ok(Some(cost))) => Err(BudgetStop::both(&tokens, &cost)),
    }
}

/// The budget of money, if it leaves no room for a request; the error says why nobody can keep it.
fn cost_stop(
    max: Money,
    phase: Option<&str>,
    spent: &Spent,
    next: RequestTokens,
    price: Option<TokenPrice>,
) -> Result<Option<BudgetStop>, String> {
    let of = phase.map_or_else(String::new, |phase| format!("of phase `{phase}` "));
    let Some(price) = price else {
        return Err(format!(
            "the budget max_cost ({max}) {of}{NOT_ENFORCED}: the price table has no price for this model"
        ));
    };
    if price.currency != max.currency() {
        return Err(format!(
            "the budget max_cost ({max}) {of}{NOT_ENFORCED}: the model's price is in {}, not in {}",
            price.currency,
            max.currency()
        ));
    }
    let used = spent.costs.of(price.currency);
    let most = price.most(next.input, next.output);
    let is_over = used.checked_add(most).is_none_or(|sum| sum.nanos() > max.nanos());
    Ok(is_over.then(|| BudgetStop::cost(max, used, most, next).of_phase(phase)))
}

#[cfg(test)]
mod tests {
    use ua_core::{Currency, PriceTable};

    use super::*;

    fn price() -> TokenPrice {
        let table = PriceTable::parse("f", "[providers.p.m]\ninput = 2\noutput = 10\n").unwrap();
        table.price("p", "m").unwrap()
    }

    fn spent(tokens: u64, money: &str) -> Spent {
        let mut costs = Costs::default();
        costs.add(Money::parse(money).unwrap());
        Spent { tokens, costs }
    }

    #[test]
    fn a_request_is_admitted_only_when_it_fits_whole() {
        let limits = |max_tokens, max_cost: Option<&str>| Limits {
            max_tokens,
            max_cost: max_cost.map(|text| Money::parse(text).unwrap()),
            ..Limits::default()
        };
        // May take 150 tokens and 100 × 2 + 50 × 10 dollars per million.
        let estimate = Estimate { input_tokens: 100, output_tokens: 50, price: Some(price()) };
        let unpriced = Estimate { price: None, ..estimate };
        let used = spent(850, "0.0093");
        let cases = [
            (limits(None, None), &unpriced, None),
            (limits(Some(1_000), None), &unpriced, None),
            (limits(Some(999), None), &unpriced, Some("max_tokens (999) is reached: 850 tokens are used")),
            (limits(None, Some("0.01")), &estimate, None),
            (
                limits(None, Some("0.009999999")),
                &estimate,
                Some("$0.0093 is used, and the next request may cost up to $0.0007"),
            ),
            // Both budgets are kept by a reply that is short enough for the tighter one.
            (
                Limits { max_tokens: Some(1_210), ..limits(None, Some("0.0155")) },
                &Estimate { output_tokens: 5_000, ..estimate },
                Some("5000 for the reply); it would fit with a `max_output_tokens` of at most 260"),
            ),
            (
                Limits { max_tokens: Some(10_000), ..limits(None, Some("0.0125")) },
                &Estimate { output_tokens: 5_000, ..estimate },
                Some("5000 for the reply); it would fit with a `max_output_tokens` of at most 300"),
            ),
            // Both are told, so that one command raises both.
            (
                limits(Some(999), Some("0.009999999")),
                &estimate,
                Some("; the budget max_cost ($0.01) is reached: $0.0093 is used"),
            ),
            (limits(Some(999), Some("9 EUR")), &estimate, Some("max_tokens (999) is reached: 850 tokens are used")),
            (limits(None, Some("9")), &unpriced, Some("the price table has no price for this model")),
            (limits(None, Some("9 EUR")), &estimate, Some("in USD, not in EUR")),
        ];
        for (limits, estimate, refusal) in cases {
            let admitted = limits.admit(&used, estimate);
            match refusal {
                None => assert_eq!(admitted, Ok(()), "{limits:?}"),
                Some(words) => {
                    assert!(admitted.as_ref().is_err_and(|why| why.contains(words)), "{limits:?}: {admitted:?}");
                }
            }
        }
        let huge = Estimate { input_tokens: u64::MAX, output_tokens: u64::MAX, price: Some(price()) };
        assert!(limits(Some(u64::MAX), Some("1")).admit(&used, &huge).is_err());
        let rich = limits(None, Some("18446744073.709551615"));
        assert!(rich.admit(&used, &huge).is_err(), "a sum that is too large fits nowhere");
    }

    #[test]
    fn an_end_is_charged_by_what_is_known() {
        let estimate = Estimate { input_tokens: 100, output_tokens: 50, price: Some(price()) };
        let usage = Usage { input_tokens: 10, output_tokens: 20, cache_read_tokens: 5, cache_write_tokens: 0 };
        let cases = [
            (RequestEnd::Actual(usage), 35, "0.00023"),
            (RequestEnd::Actual(Usage::default()), 0, "0"),
            (RequestEnd::Partial(usage), 120, "0.0004"),
            (RequestEnd::Baseline, 100, "0.0002"),
            (RequestEnd::Zero, 0, "0"),
        ];
        let mut sum = Spent::default();
        for (end, tokens, cost) in cases {
            let charge = estimate.charge(end);
            assert_eq!((charge.usage.total(), charge.cost), (tokens, Money::parse(cost)), "{end:?}");
            sum.add(charge);
        }
        sum.add(Estimate { price: None, ..estimate }.charge(RequestEnd::Baseline));
        assert_eq!((sum.tokens, sum.costs.of(Currency::USD)), (355, Money::parse("0.00083").unwrap()));
    }
}
