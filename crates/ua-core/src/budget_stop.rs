//! The sentence that says which budget stopped a run, and the way to read it back.
//!
//! Durable Jobs v1 spec §6 (`budgets`). A run keeps one sentence about its status; this one names the budget, its limit and, for a
//! phase, whose it is, so that whoever shows the run can also say how to go on. Every such sentence is made here, by the constructors of
//! [`BudgetStop`], beside the one function that reads the numbers in it: no other place can word one of which it is not known what is missing.

use std::fmt;

use crate::money::Money;

/// A budget that is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetStop {
    /// The budget's name in the job file.
    pub budget: String,
    /// The phase whose budget it is; `None` for the run's.
    pub phase: Option<String>,
    /// The limit that counts, in words.
    pub limit: String,
    /// What is used, and what would have come next, in words.
    detail: String,
}

/// The tokens of a request that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTokens {
    /// What it says, as estimated.
    pub input: u64,
    /// The longest reply that is allowed.
    pub output: u64,
    /// The longest reply with which it would fit, where that leaves room for one.
    pub fitting: Option<u64>,
}

/// The shortest reply that is worth a request: a model that may write no more hardly ends a sentence.
pub const LEAST_REPLY: u64 = 256;

const BEGIN: &str = "the budget ";
const MAX_TOKENS: &str = "max_tokens";
const MAX_COST: &str = "max_cost";
const TOKENS_USED: &str = " tokens are used, and the next request may take ";
const MAX_MINUTES: &str = "max_wallclock_minutes";
const ACTIVE_FOR: &str = "the run was active for ";
const COST_USED: &str = " is used, and the next request may cost up to ";

impl RequestTokens {
    fn fits_with(self) -> String {
        let shorter = self.fitting.filter(|most| (LEAST_REPLY..self.output).contains(most));
        shorter.map_or_else(String::new, |most| format!("; it would fit with a `max_output_tokens` of at most {most}"))
    }
}

impl BudgetStop {
    fn new(budget: &str, limit: &impl ToString, detail: String) -> Self {
        Self { budget: budget.to_owned(), phase: None, limit: limit.to_string(), detail }
    }

    /// The tokens leave no room for the next request.
    pub fn tokens(max: u64, used: u64, next: RequestTokens) -> Self {
        let RequestTokens { input, output, .. } = next;
        let sum = input.saturating_add(output);
        let detail = format!(
            "{used}{TOKENS_USED}{sum} ({input} for what it says, as estimated, and up to {output} for the reply){}",
            next.fits_with()
        );
        Self::new(MAX_TOKENS, &max, detail)
    }

    /// The money leaves no room for the next request, which costs `most` at most.
    pub fn cost(max: Money, used: Money, most: Money, next: RequestTokens) -> Self {
        let RequestTokens { input, output, .. } = next;
        let detail = format!(
            "{used}{COST_USED}{most} ({input} tokens for what it says, as estimated, and up to {output} for the reply){}",
            next.fits_with()
        );
        Self::new(MAX_COST, &max, detail)
    }

    /// No turn is left.
    pub fn turns(max: u32, used: u32) -> Self {
        Self::new("max_turns", &max, format!("{} used", crate::counted(used, "turn")))
    }

    /// The last reply asks for more calls than are left.
    pub fn calls(max: u32, asked: u32) -> Self {
        let calls = crate::counted(asked, "call");
        let detail = format!("the last reply would make it {calls}; none of those that it asked for was sent");
        Self::new("max_tool_calls", &max, detail)
    }

    /// No step is left. `why` says in words what another one is for.
    pub fn steps(max: u32, used: u32, why: &str) -> Self {
        Self::new("max_steps", &max, format!("{} used, and {why}", crate::counted(used, "step")))
    }

    /// No iteration is left; `ended` says in words how the last one ended.
    pub fn iterations(max: u32, ended: String) -> Self {
        Self::new("max_iterations", &max, ended)
    }

    /// The time is used up.
    pub fn time(max_minutes: u64, held_millis: u64) -> Self {
        Self::new(MAX_MINUTES, &max_minutes, format!("{ACTIVE_FOR}{} seconds", held_millis / 1_000))
    }

    /// What is left of the time is too little for a wait: `left` and `what` say both in words.
    pub fn too_little_time(max_minutes: u64, left: &str, what: &str) -> Self {
        Self::new(MAX_MINUTES, &max_minutes, format!("{left}, and {what}"))
    }

    /// The same of a phase's budget.
    #[must_use]
    pub fn of_phase(self, phase: Option<&str>) -> Self {
        Self { phase: phase.map(str::to_owned), ..self }
    }

    /// Reads the sentence that [`Display`](fmt::Display) writes; `None` when it says something else.
    pub fn read(text: &str) -> Option<Self> {
        let (budget, rest) = text.strip_prefix(BEGIN)?.split_once(" (")?;
        let (limit, rest) = rest.split_once(") ")?;
        let (phase, rest) = match rest.strip_prefix("of phase `").and_then(|rest| rest.split_once("` ")) {
            Some((phase, rest)) => (Some(phase.to_owned()), rest),
            None => (None, rest),
        };
        let detail = rest.strip_prefix("is reached: ")?.to_owned();
        Some(Self { budget: budget.to_owned(), phase, limit: limit.to_owned(), detail })
    }

    /// The sentence of two budgets that the same request does not fit: one command raises both.
    pub fn both(one: &Self, other: &Self) -> String {
        format!("{one}; {other}")
    }

    /// Every budget of a sentence that [`Display`](fmt::Display) or [`both`](Self::both) wrote; none of any other.
    pub fn read_all(text: &str) -> Vec<Self> {
        let beginnings =
            text.match_indices(BEGIN).map(|(at, _)| at).filter(|at| *at == 0 || text[..*at].ends_with("; "));
        let beginnings: Vec<usize> = beginnings.collect();
        let ends = beginnings.iter().skip(1).map(|at| at - "; ".len()).chain([text.len()]);
        beginnings.iter().zip(ends).map_while(|(at, end)| Self::read(&text[*at..end])).collect()
    }

    /// What is used, and what would have come next, in words.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// By how much the budget is too small for what comes next: calls, turns, steps, tokens or minutes, money in billionths. Nothing where nobody
    /// can say how much that takes.
    pub fn missing(&self) -> u64 {
        match self.budget.as_str() {
            MAX_TOKENS => self.missing_tokens(),
            MAX_COST => self.missing_nanos(),
            MAX_MINUTES => self.missing_minutes(),
            "max_tool_calls" => self.missing_of(0),
            "max_turns" | "max_steps" => self.missing_of(1),
            _ => None,
        }
        .unwrap_or_default()
    }

    fn missing_tokens(&self) -> Option<u64> {
        let (used, rest) = self.detail.split_once(TOKENS_USED)?;
        let (used, next) = (used.parse::<u64>().ok()?, numbers(rest).next()?);
        let needed = used.saturating_add(next).saturating_add(if used == 0 { 0 } else { RESUME_TOKENS });
        Some(needed.saturating_sub(self.limit.parse().ok()?))
    }

    fn missing_nanos(&self) -> Option<u64> {
        let (used, rest) = self.detail.split_once(COST_USED)?;
        let (most, words) = rest.split_once(" (")?;
        let nanos = |text: &str| Money::parse(text).map(Money::nanos);
        let (used, most, limit) = (nanos(used)?, nanos(most)?, nanos(&self.limit)?);
        // The limit is rounded up where it is shown, by less than this.
        let short = used.saturating_add(most).saturating_add(SHOWN_NANOS).saturating_sub(limit);
        if used == 0 {
            return Some(short);
        }
        // Input costs no more than output does, so a token that is told costs no more than one of the request does on average.
        let tokens = numbers(words).take(2).fold(0_u64, u64::saturating_add).max(1);
        let told = u128::from(most).saturating_mul(RESUME_TOKENS.into()).div_ceil(tokens.into());
        Some(short.saturating_add(u64::try_from(told).unwrap_or(u64::MAX)))
    }

    fn missing_minutes(&self) -> Option<u64> {
        let seconds = numbers(self.detail.strip_prefix(ACTIVE_FOR)?).next()?;
        Some((seconds / 60 + 1).saturating_sub(self.limit.parse().ok()?))
    }

    /// Of something that is counted: the first number is how much is used, and `next` comes on top of that.
    fn missing_of(&self, next: u64) -> Option<u64> {
        let used = numbers(&self.detail).next()?;
        Some(used.saturating_add(next).saturating_sub(self.limit.parse().ok()?))
    }
}

impl fmt::Display for BudgetStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN}{} ({}) ", self.budget, self.limit)?;
        if let Some(phase) = &self.phase {
            write!(f, "of phase `{phase}` ")?;
        }
        write!(f, "is reached: {}", self.detail)
    }
}

/// About the most tokens of what a model is told besides when a run that has begun is resumed.
const RESUME_TOKENS: u64 = 2_500;

/// What is lost of an amount where it is shown, in billionths.
const SHOWN_NANOS: u64 = 100_000;

/// The numbers of a text, in their order.
fn numbers(text: &str) -> impl Iterator<Item = u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXT: RequestTokens = RequestTokens { input: 40, output: 60, fitting: None };

    fn money(text: &str) -> Money {
        Money::parse(text).unwrap()
    }

    /// Whatever stops a run, with what is missing.
    fn stops() -> Vec<(BudgetStop, u64)> {
        let cost = |max, used, most, next| BudgetStop::cost(money(max), money(used), money(most), next);
        let first = RequestTokens { input: 830, output: 8_192, fitting: Some(2_400) };
        vec![
            (BudgetStop::tokens(5, 0, NEXT), 95),
            (BudgetStop::tokens(5, 7, NEXT), 102 + RESUME_TOKENS),
            (
                BudgetStop::tokens(3_000, 60_800, RequestTokens { input: 50_600, output: 500, fitting: None }),
                108_900 + RESUME_TOKENS,
            ),
            // Nothing is used, so nothing is told besides.
            (cost("0.05", "0", "0.1352", first), 85_300_000),
            (
                cost("14.00 EUR", "13 EUR", "1.5 EUR", RequestTokens { input: 2_000, output: 500, fitting: None }),
                500_100_000 + 1_500_000_000,
            ),
            (
                cost("14", "20.3", "1", RequestTokens { input: 20_000, output: 5_000, fitting: None }),
                7_300_100_000 + 100_000_000,
            ),
            (BudgetStop::calls(3, 12), 9),
            (BudgetStop::turns(1, 1), 1),
            (BudgetStop::turns(2, 6), 5),
            (BudgetStop::steps(1, 1, "the phase `two` would be the next"), 1),
            (BudgetStop::iterations(2, "iteration 2 is over: its context is full".to_owned()), 0),
            (BudgetStop::time(90, 5_400_000), 1),
            (BudgetStop::time(1, 3_600_500), 60),
            (
                BudgetStop::too_little_time(
                    90,
                    "10 s of the run's time are left",
                    "`buy` would be tried again after 30 s",
                ),
                0,
            ),
        ]
    }

    #[test]
    fn what_is_missing_for_what_comes_next_is_known_of_every_budget() {
        for (stop, missing) in stops() {
            assert_eq!(stop.missing(), missing, "{stop}");
        }
    }

    #[test]
    fn two_budgets_that_one_request_does_not_fit_are_read_back_apart() {
        for (one, _) in stops() {
            for (other, _) in stops() {
                let both = BudgetStop::both(&one, &other);
                assert_eq!(BudgetStop::read_all(&both), [one.clone(), other], "{both}");
            }
            assert_eq!(BudgetStop::read_all(&one.to_string()), std::slice::from_ref(&one));
        }
        for nothing in ["", "it says that the budget max_turns (3) is reached: 3 turns used", "the budget is large"] {
            assert_eq!(BudgetStop::read_all(nothing), [], "{nothing}");
        }
    }

    #[test]
    fn a_shorter_reply_that_would_fit_is_named_where_it_is_one() {
        let told = |fitting| BudgetStop::tokens(300, 0, RequestTokens { input: 40, output: 500, fitting }).to_string();
        assert!(
            told(Some(256)).ends_with("; it would fit with a `max_output_tokens` of at most 256"),
            "{}",
            told(Some(256))
        );
        for other in [None, Some(255), Some(500)] {
            assert!(told(other).ends_with("up to 500 for the reply)"), "{}", told(other));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (stop, _) in stops() {
            for phase in [None, Some("crawl")] {
                let stop = stop.clone().of_phase(phase);
                assert_eq!(BudgetStop::read(&stop.to_string()), Some(stop));
            }
        }
        for other in ["a signal", "the budget max_cost ($2) cannot be kept: no price", ""] {
            assert_eq!(BudgetStop::read(other), None);
        }
    }
}
