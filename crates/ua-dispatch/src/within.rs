//! How long a call is waited for by itself: until a stop is asked for, and never beyond the time of its run.
//!
//! Durable Jobs v1 spec §6 (`max_wallclock_minutes`). Invariant: a wait that nobody would come back from is not begun, be it before another attempt
//! or before a call in doubt can be decided. What was sent is no such wait, and neither is a person.

use std::time::Duration;

use ua_core::{BudgetStop, RunStop, Timestamp, span_in_words};

use crate::dispatcher::Dispatched;
use crate::person_waits::PersonWaits;
use crate::stop::StopSignal;

/// The time of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunTime {
    /// When it is used up, unless a person is waited for meanwhile: such time does not count.
    pub ends_at: Timestamp,
    /// What it is altogether (`max_wallclock_minutes`).
    pub max_minutes: u64,
}

/// What ends the waits of one dispatch.
pub(crate) struct Within<'a> {
    pub(crate) stop: &'a StopSignal,
    time: Option<(RunTime, &'a PersonWaits, Duration)>,
    /// Whether the process has another setup than the run, so that a call is judged by what it was sent under.
    pub(crate) is_as_sent: bool,
}

impl<'a> Within<'a> {
    /// No more than a stop.
    pub(crate) fn until(stop: &'a StopSignal) -> Self {
        Self { stop, time: None, is_as_sent: false }
    }

    /// The same, and the time of the run, where that has a limit. `waits` counts those for a person.
    pub(crate) fn and_time(self, time: Option<RunTime>, waits: &'a PersonWaits) -> Self {
        Self { time: time.map(|time| (time, waits, waits.so_far())), ..self }
    }

    /// The same, where nothing is sent because the process has another setup than the run.
    pub(crate) fn judging_as_sent(self) -> Self {
        Self { is_as_sent: true, ..self }
    }

    fn left(&self, now: Timestamp) -> Option<Duration> {
        let (time, waits, before) = self.time.as_ref()?;
        Some(time.ends_at.since(now).saturating_add(waits.so_far().saturating_sub(*before)))
    }

    /// Whether a wait that begins now is over before the time of the run is.
    pub(crate) fn fits(&self, wait: Duration, now: Timestamp) -> bool {
        self.left(now).is_none_or(|left| wait < left)
    }

    /// How a dispatch ends that would wait for something longer than it may. `what` follows "and": what comes after the wait.
    pub(crate) fn ended(&self, what: &str, now: Timestamp) -> Dispatched {
        let Some((time, ..)) = self.time.as_ref().filter(|_| !self.stop.is_stopping()) else {
            return Dispatched::Stopped;
        };
        let left = match self.left(now).unwrap_or_default() {
            Duration::ZERO => "nothing of the run's time is left".to_owned(),
            left => format!("{} of the run's time are left", span_in_words(left)),
        };
        let stop = BudgetStop::too_little_time(time.max_minutes, &left, what);
        Dispatched::Parked { reason: RunStop::Budget, detail: stop.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::Env;

    use super::*;

    #[test]
    fn a_wait_fits_where_it_is_over_before_the_time_of_the_run_is() {
        let (env, stop) = (Env::simulated(1), StopSignal::default());
        let (now, waits) = (env.now(), PersonWaits::new(env.clone()));
        let left = Duration::from_secs(10);
        let time = RunTime { ends_at: now.plus(left), max_minutes: 90 };
        let within = Within::until(&stop).and_time(Some(time), &waits);
        let millis = Duration::from_millis(1);
        assert!(within.fits(left.saturating_sub(millis), now) && !within.fits(left, now));
        assert!(!within.fits(Duration::ZERO, now.plus(left)), "when it is used up");
        let told = |now| {
            let ended = within.ended("`buy` would be tried again after 30 s", now);
            let Dispatched::Parked { reason: RunStop::Budget, detail } = &ended else { panic!("{ended:?}") };
            BudgetStop::read(detail).unwrap()
        };
        let stopped = told(now);
        assert_eq!((stopped.budget.as_str(), stopped.limit.as_str()), ("max_wallclock_minutes", "90"));
        assert_eq!(stopped.detail(), "10 s of the run's time are left, and `buy` would be tried again after 30 s");
        assert!(told(now.plus(left)).detail().starts_with("nothing of the run's time is left, and "));
        // Whoever has no limit waits until a stop, and a stop comes first.
        assert!(Within::until(&stop).and_time(None, &waits).fits(Duration::MAX, now));
        stop.stop_gently();
        assert_eq!(within.ended("", now), Dispatched::Stopped);
    }
}
