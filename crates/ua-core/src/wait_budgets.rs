//! The budgets that have a run wait for as long as its provider asks, and the way to read them back.
//!
//! A run keeps one sentence about its status. One that ends with these also says, to whoever shows the run, with which flags it is resumed.

use std::fmt;
use std::time::Duration;

const PATIENCE: &str = "--max-provider-wait-minutes ";
const TIME: &str = "--max-wallclock-minutes +";

/// What would have to be allowed for a wait that a run did not begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitBudgets {
    /// What `max_provider_wait_minutes` would have to be; `None` where it allows the wait.
    pub max_provider_wait_minutes: Option<u64>,
    /// By how much `max_wallclock_minutes` would have to be raised; `None` where it allows the wait.
    pub more_wallclock_minutes: Option<u64>,
}

impl WaitBudgets {
    /// Whether nothing has to be allowed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// How long the wait is that they allow, to the minute, and never less: whoever tries again after it finds it over.
    pub fn wait(&self) -> Duration {
        let minutes = self.max_provider_wait_minutes.into_iter().chain(self.more_wallclock_minutes).max();
        Duration::from_secs(minutes.unwrap_or_default().saturating_mul(60))
    }

    /// The flags of `ua resume`.
    pub fn flags(&self) -> String {
        let patience = self.max_provider_wait_minutes.map(|minutes| format!("{PATIENCE}{minutes}"));
        let time = self.more_wallclock_minutes.map(|minutes| format!("{TIME}{minutes}"));
        patience.into_iter().chain(time).collect::<Vec<_>>().join(" ")
    }

    /// The same for a program that drives the run itself.
    pub fn for_program(&self) -> String {
        let patience = self.max_provider_wait_minutes.map(|minutes| format!("\"max_provider_wait_minutes\" {minutes}"));
        let time =
            self.more_wallclock_minutes.map(|minutes| format!("\"max_wallclock_minutes\" {minutes} more than now"));
        let budgets: Vec<_> = patience.into_iter().chain(time).collect();
        format!("`Runs::set_budget`, {}.", budgets.join(" and "))
    }

    /// Reads the end of a sentence that [`Display`](fmt::Display) wrote; `None` for any other.
    pub fn read(text: &str) -> Option<Self> {
        let (_, flags) = text.strip_suffix("`.")?.rsplit_once('`')?;
        let minutes = |flag: &str| {
            let (_, rest) = flags.split_once(flag)?;
            rest.split(' ').next()?.parse().ok()
        };
        let read = Self { max_provider_wait_minutes: minutes(PATIENCE), more_wallclock_minutes: minutes(TIME) };
        (!read.is_empty() && read.flags() == flags).then_some(read)
    }
}

impl fmt::Display for WaitBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`.", self.flags())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_nothing_else() {
        for max_provider_wait_minutes in [None, Some(62)] {
            for more_wallclock_minutes in [None, Some(32)] {
                let budgets = WaitBudgets { max_provider_wait_minutes, more_wallclock_minutes };
                let text = format!("busy (`retry-after`). Have it wait: {budgets}");
                assert_eq!(WaitBudgets::read(&text), Some(budgets).filter(|budgets| !budgets.is_empty()), "{text}");
            }
        }
        for other in [
            "",
            "busy",
            "wait: `--max-cost +5`.",
            "wait: `--max-provider-wait-minutes 9 --max-cost +5`.",
            "wait: `--max-provider-wait-minutes -9`.",
            "wait: `--max-provider-wait-minutes 9`. And more.",
        ] {
            assert_eq!(WaitBudgets::read(other), None, "{other}");
        }
    }

    #[test]
    fn the_wait_is_the_longest_that_is_asked_for() {
        let minutes =
            |provider, time| WaitBudgets { max_provider_wait_minutes: provider, more_wallclock_minutes: time };
        for (budgets, waits) in
            [(minutes(Some(121), None), 121), (minutes(None, Some(3)), 3), (minutes(Some(4), Some(5)), 5)]
        {
            assert_eq!(budgets.wait(), Duration::from_secs(waits * 60));
        }
    }

    #[test]
    fn a_program_is_told_of_its_own_function() {
        let budgets = WaitBudgets { max_provider_wait_minutes: Some(62), more_wallclock_minutes: Some(61) };
        assert_eq!(
            budgets.for_program(),
            "`Runs::set_budget`, \"max_provider_wait_minutes\" 62 and \"max_wallclock_minutes\" 61 more than now."
        );
    }
}
