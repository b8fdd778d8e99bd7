//! What a run has used of its budgets, as the line of the live display.
//!
//! Numbers change with what happens. The time changes by itself: it is told when the line is drawn, so that it does not stand still while a
//! call takes long.

use std::time::Duration;

use ua_host::progress::clock;

/// What stands in front of the budgets on their line.
pub(crate) const INDENT: usize = 2;
/// What stands between the parts of a line.
const BETWEEN: &str = " · ";
/// How many cells a budget's bar has.
const CELLS: u8 = 10;

/// What was used of each budget.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Used {
    /// What changes only when something happens.
    pub(crate) parts: Vec<Part>,
    /// The time, where a limit is known.
    pub(crate) time: Option<Allowed>,
}

/// One budget.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    /// The part that is used, if there is a limit.
    pub(crate) share: Option<f64>,
    /// How much was used, of how much.
    pub(crate) text: String,
}

/// How long a run may take.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Allowed {
    /// How long processes held it before the display was there.
    pub(crate) held: Duration,
    pub(crate) minutes: u64,
}

impl Used {
    /// The line, as a terminal of so many columns has room for it, when the display has been there for `elapsed`: what gives way first are the
    /// bars, which say nothing that the numbers do not. Empty where nothing is known.
    pub(crate) fn text(&self, elapsed: Duration, room: Option<usize>) -> String {
        let now = self.time.as_ref().map(|time| time.part(elapsed));
        let parts = || self.parts.iter().chain(&now);
        let fits = |text: &str| room.is_none_or(|room| text.chars().count() + INDENT <= room);
        let whole = parts().map(Part::with_bar).collect::<Vec<_>>().join(BETWEEN);
        if fits(&whole) {
            return whole;
        }
        let parts: Vec<String> = parts().map(|part| format!("{} {}", part.name, part.text)).collect();
        let whole = parts.join(BETWEEN);
        if fits(&whole) {
            return whole;
        }
        // What is left of a number would be another number.
        let mut some = (1..parts.len()).rev().map(|count| format!("{}{BETWEEN}…", parts[..count].join(BETWEEN)));
        some.find(|some| fits(some)).unwrap_or_else(|| "…".to_owned())
    }
}

impl Part {
    fn with_bar(&self) -> String {
        match self.share {
            Some(share) => format!("{} {} {}", self.name, bar(share), self.text),
            None => format!("{} {}", self.name, self.text),
        }
    }
}

impl Allowed {
    fn part(&self, elapsed: Duration) -> Part {
        let held = self.held + elapsed;
        let share = part(held.as_secs(), self.minutes.saturating_mul(60));
        Part { name: "time", share: Some(share), text: format!("{}/{} min", clock(held), self.minutes) }
    }
}

/// How much of `max` is used.
#[expect(clippy::cast_precision_loss, reason = "ten cells need no precision")]
pub(crate) fn part(used: impl TryInto<u128>, max: impl TryInto<u128>) -> f64 {
    let (used, max) = (used.try_into().unwrap_or(0), max.try_into().unwrap_or(0));
    if max == 0 { 1.0 } else { used as f64 / max as f64 }
}

/// A bar of ten cells.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and ten")]
fn bar(used: f64) -> String {
    let full = ((used.clamp(0.0, 1.0) * f64::from(CELLS)).round() as u8).min(CELLS);
    format!("[{}{}]", "█".repeat(full.into()), "░".repeat((CELLS - full).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_when_its_budget_is() {
        assert_eq!(bar(part(0_u32, 250_u32)), "[░░░░░░░░░░]");
        assert_eq!(bar(part(125_u32, 250_u32)), "[█████░░░░░]");
        assert_eq!(bar(part(300_u64, 250_u64)), "[██████████]");
    }

    #[test]
    fn the_time_passes_though_nothing_happens() {
        let used = Used { parts: Vec::new(), time: Some(Allowed { held: Duration::from_secs(5), minutes: 90 }) };
        for (elapsed, wanted) in [(0, "time 00:05/90 min"), (25, "time 00:30/90 min"), (3600, "time 1:00:05/90 min")] {
            let text = used.text(Duration::from_secs(elapsed), Some(21));
            assert_eq!(text, wanted);
        }
    }
}
