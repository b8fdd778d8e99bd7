//! The sentence that says which budget stopped a run, and the way to read it back.
//!
//! Durable Jobs v1 spec §6 (`budgets`). A run keeps one sentence about its status; this one names the budget, its limit and, for a
//! phase, whose it is, so that whoever shows the run can also say how to go on.

use std::fmt;

use crate::money::{Money, NANOS};

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
    pub detail: String,
}

impl BudgetStop {
    /// Reads the sentence that [`Display`](fmt::Display) writes; `None` when it says something else.
    pub fn read(text: &str) -> Option<Self> {
        let (budget, rest) = text.strip_prefix("the budget ")?.split_once(" (")?;
        let (limit, rest) = rest.split_once(") ")?;
        let (phase, rest) = match rest.strip_prefix("of phase `").and_then(|rest| rest.split_once("` ")) {
            Some((phase, rest)) => (Some(phase.to_owned()), rest),
            None => (None, rest),
        };
        let detail = rest.strip_prefix("is reached: ")?.to_owned();
        Some(Self { budget: budget.to_owned(), phase, limit: limit.to_owned(), detail })
    }

    /// How far the budget is too small for what comes next, as far as the sentence says it.
    pub fn missing(&self) -> Missing {
        let (mut words, next) = match self.detail.split_once(" is used, and the next request may cost up to ") {
            Some((used, next)) => (used, next.split_once(" (").map(|(next, _)| next)),
            None => {
                (self.detail.as_str(), self.detail.split_once("may take ").and_then(|(_, next)| next.split(' ').next()))
            }
        };
        words = words.strip_suffix(" is used").unwrap_or(words);
        let amount = |text: &str| match self.budget.as_str() {
            "max_cost" => Money::parse(text).map(Money::nanos),
            _ => text.split(' ').find_map(|word| word.parse().ok()),
        };
        let (Some(used), Some(limit)) = (amount(words), amount(&self.limit)) else { return Missing::Over(0) };
        let in_whole = |more: u64| match self.budget.as_str() {
            // The limit is rounded up where it is shown, by less than this.
            "max_cost" if more > 0 => more.saturating_add(NANOS / 10_000).div_ceil(NANOS),
            _ => more,
        };
        match next.and_then(amount) {
            Some(next) => Missing::Next(in_whole(used.saturating_add(next).saturating_sub(limit))),
            None if self.budget == "max_tool_calls" => Missing::Next(used.saturating_sub(limit)),
            None => Missing::Over(in_whole(used.saturating_sub(limit))),
        }
    }
}

/// How much a budget lacks, in its unit (tokens, calls, turns), money in whole units of its currency, rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// So much for what comes next.
    Next(u64),
    /// So much is used beyond it; what comes next takes more.
    Over(u64),
}

impl fmt::Display for BudgetStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the budget {} ({}) ", self.budget, self.limit)?;
        if let Some(phase) = &self.phase {
            write!(f, "of phase `{phase}` ")?;
        }
        write!(f, "is reached: {}", self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_for_what_comes_next_is_known_where_it_is_said() {
        let tokens =
            "7 tokens are used, and the next request may take 100 (40 for what it says, as estimated, and up to 60)";
        let cost = "$13.12 is used, and the next request may cost up to $3.491 (491 tokens for what it says, as estimated, and up \
                    to 3000 for the reply)";
        let euros = "13 EUR is used, and the next request may cost up to 1.5 EUR (5 tokens for what it says, as estimated, and up \
                     to 3 for the reply)";
        let calls = "the last reply would make it 12 calls; none of those that it asked for was sent";
        for (budget, limit, detail, missing) in [
            ("max_tokens", "5", tokens, Missing::Next(102)),
            ("max_tokens", "20000", "100050 tokens are used", Missing::Over(80_050)),
            ("max_tokens", "20000", "20000 tokens are used", Missing::Over(0)),
            ("max_cost", "$14.00", cost, Missing::Next(3)),
            ("max_cost", "14.00 EUR", euros, Missing::Next(1)),
            ("max_cost", "$14.00", "$20.3 is used", Missing::Over(7)),
            ("max_tool_calls", "3", calls, Missing::Next(9)),
            ("max_turns", "1", "1 turn used", Missing::Over(0)),
            ("max_wallclock_minutes", "90 min", "the time is over", Missing::Over(0)),
        ] {
            let (budget, limit, detail) = (budget.to_owned(), limit.to_owned(), detail.to_owned());
            let stop = BudgetStop { budget, phase: None, limit, detail };
            assert_eq!(stop.missing(), missing, "{stop}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for phase in [None, Some("crawl".to_owned())] {
            let stop = BudgetStop {
                budget: "max_cost".to_owned(),
                phase,
                limit: "$2.50".to_owned(),
                detail: "$2.40 is used, and the next request may cost up to $0.20 (100 tokens)".to_owned(),
            };
            assert_eq!(BudgetStop::read(&stop.to_string()), Some(stop));
        }
        for other in ["a signal", "the budget max_cost ($2) cannot be kept: no price", ""] {
            assert_eq!(BudgetStop::read(other), None);
        }
    }
}
