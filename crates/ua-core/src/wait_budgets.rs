//! A wait that is longer than a run may wait: until when its provider asks for it, which budgets allow it, and the way to read both back.
//!
//! A run keeps one sentence about its status. One that says until when tells a worker before when it does not try again, in whatever process and
//! after whatever kill; one that ends with budgets tells whoever shows the run with which flags it is resumed. A run whose sub-agents stopped says
//! what one of them said ([`longer_wait`]).

use std::fmt;
use std::time::Duration;

use crate::env::Timestamp;
use crate::words::span_in_words;

const ASKS: &str = "It asks for a wait of ";
const UNTIL: &str = " (until ";

/// A wait that a provider asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AskedWait {
    /// How long it is.
    pub wait: Duration,
    /// When it is over.
    pub until: Timestamp,
}

impl AskedWait {
    /// When the wait is over that a text says is asked for, in the words of [`Display`](fmt::Display); `None` where it says nothing of one.
    pub fn read(text: &str) -> Option<Timestamp> {
        let (_, asked) = text.rsplit_once(ASKS)?;
        let (_, until) = asked.split_once(UNTIL)?;
        Timestamp::parse(until.split_once(')')?.0)
    }
}

impl fmt::Display for AskedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ASKS}{}{UNTIL}{})", span_in_words(self.wait), self.until)
    }
}

/// Of two sentences about why runs stopped for somebody who is away, the one that counts for a run above both: that of the longer wait, with the
/// budgets that allow either.
pub fn longer_wait(one: String, other: String) -> String {
    let [budgets, others] = [&one, &other].map(|text| WaitBudgets::read(text));
    let is_longer = (AskedWait::read(&other), others.map(|budgets| budgets.wait()))
        > (AskedWait::read(&one), budgets.map(|budgets| budgets.wait()));
    let (counts, own) = if is_longer { (other, others) } else { (one, budgets) };
    let (Some(own), Some(both)) = (own, budgets.zip(others).map(|(one, other)| one.and(other))) else { return counts };
    match counts.strip_suffix(&own.to_string()) {
        Some(begin) => format!("{begin}{both}"),
        None => counts,
    }
}

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

    /// Those that allow what either allows.
    fn and(self, other: Self) -> Self {
        Self {
            max_provider_wait_minutes: self.max_provider_wait_minutes.max(other.max_provider_wait_minutes),
            more_wallclock_minutes: self.more_wallclock_minutes.max(other.more_wallclock_minutes),
        }
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
    fn until_when_a_provider_asks_to_wait_is_read_back() {
        let until = Timestamp::parse("2026-01-02T05:04:05Z").unwrap();
        let asked = AskedWait { wait: Duration::from_hours(2), until };
        assert_eq!(asked.to_string(), "It asks for a wait of 2 h (until 2026-01-02T05:04:05.000Z)");
        for text in [
            format!("{asked}, and the run waits no longer. Resume it later."),
            format!("sub-agent x: busy (429); {asked}, and more (of it)."),
            format!("It asks for a wait of patience (until you answer). {asked}."),
        ] {
            assert_eq!(AskedWait::read(&text), Some(until), "{text}");
        }
        for other in ["", "busy", "It asks for a wait of 2 h.", "It asks for a wait of 2 h (until you answer)"] {
            assert_eq!(AskedWait::read(other), None, "{other}");
        }
    }

    /// Whoever stops for several that wait says the longest of it, and what allows all of it.
    #[test]
    fn of_two_waits_the_longer_one_is_told_with_the_budgets_of_both() {
        let until = |minutes: u64| Timestamp::from_millis(0).plus(Duration::from_mins(minutes));
        let text = |minutes: u64, provider, time| {
            let asked = AskedWait { wait: Duration::from_mins(minutes), until: until(minutes) };
            let budgets = WaitBudgets { max_provider_wait_minutes: provider, more_wallclock_minutes: time };
            let then =
                if budgets.is_empty() { "Resume it later.".to_owned() } else { format!("Have it wait: {budgets}") };
            format!("{asked}. {then}")
        };
        let (short, long) = (text(60, Some(61), Some(90)), text(120, Some(121), None));
        let both = text(120, Some(121), Some(90));
        for (one, other) in [(&short, &long), (&long, &short)] {
            let told = longer_wait(one.clone(), other.clone());
            assert_eq!(told, both);
            assert_eq!(AskedWait::read(&told), Some(until(120)));
        }
        let later = text(180, None, None);
        assert_eq!(longer_wait(short, later.clone()), later, "what needs no other budget is over by itself");
        // A wait that nobody asked for, and an outage of which nothing is said.
        let unasked = "Have it wait: `--max-wallclock-minutes +2`.".to_owned();
        assert_eq!(longer_wait("away".to_owned(), unasked.clone()), unasked);
        assert_eq!(longer_wait("away".to_owned(), "gone".to_owned()), "away");
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
