//! The sentence that says which budget stopped a run, and the way to read it back.
//!
//! Durable Jobs v1 spec §6 (`budgets`). A run keeps one sentence about its status; this one names the budget, its limit and, for a
//! phase, whose it is, so that whoever shows the run can also say how to go on.

use std::fmt;

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

    /// How many tokens the budget would have to allow for the next request; `None` for what is not about tokens.
    pub fn needed(&self) -> Option<u64> {
        let number = |text: &str| text.split(' ').next()?.parse::<u64>().ok();
        let (_, next) = self.detail.split_once("may take ")?;
        number(&self.detail)?.checked_add(number(next)?)
    }
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
    fn what_the_next_request_takes_is_known_where_tokens_are_counted() {
        let stop = |detail: &str| BudgetStop {
            budget: "max_tokens".to_owned(),
            phase: None,
            limit: "5".to_owned(),
            detail: detail.to_owned(),
        };
        let tokens =
            "7 tokens are used, and the next request may take 100 (40 for what it says, as estimated, and up to 60)";
        assert_eq!(stop(tokens).needed(), Some(107));
        assert_eq!(stop("1 turn used").needed(), None);
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
