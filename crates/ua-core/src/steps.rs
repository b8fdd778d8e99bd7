//! A wall clock that somebody sets.
//!
//! Instants are stored by the wall clock, since they outlive a process. While one lives it knows better how much time passes, so it notices a
//! clock that was set, and what has to be waited for from a stored instant on is waited for all the same. Where somebody keeps what the wall clock
//! was seen to say beside a clock that nobody sets ([`Looks`](crate::Looks)), a clock that was set between two processes is noticed as well.
//!
//! There are two questions, and whoever asks says which: [`Time::end_of`] takes the smallest time that may have passed, for what has to be over,
//! and [`Time::may_be_over`] the greatest, for what must not be.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::env::{Env, Timestamp};

/// Less than this a clock that is slewed, or read at the wrong moment, may differ.
const SLACK: Duration = Duration::from_secs(1);

/// What the wall clock said beside a clock that nobody sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Milliseconds by the clock that nobody sets.
    pub(crate) up: u64,
    pub(crate) at: Timestamp,
}

impl Look {
    pub(crate) fn new(up: Duration, at: Timestamp) -> Self {
        Self { up: u64::try_from(up.as_millis()).unwrap_or(u64::MAX), at }
    }

    /// By how much the wall clock is ahead of the other one, in milliseconds.
    fn ahead(self) -> i64 {
        self.at.as_millis().saturating_sub(millis(self.up))
    }

    /// Whether the wall clock was set between both.
    pub(crate) fn differs(self, other: Self) -> bool {
        Duration::from_millis(self.ahead().abs_diff(other.ahead())) > SLACK
    }
}

fn millis(up: u64) -> i64 {
    i64::try_from(up).unwrap_or(i64::MAX)
}

/// A time in which nobody set the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Era {
    /// The first instant that may be of it.
    from: Timestamp,
    /// The last one.
    to: Timestamp,
    /// What is added to an instant of it, in milliseconds, for what the clock would have said then as it is set now.
    by: i64,
}

/// The time, and how the clock was set, as far as that was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    now: Timestamp,
    eras: Arc<[Era]>,
    /// An instant of which the eras know nothing was over by then, as the clock is set now. `None` where nobody knows by when.
    known_from: Option<Timestamp>,
    /// Instants up to this one may be older than any clock says.
    lost: Option<Timestamp>,
}

impl Time {
    /// A time of which nothing else is known.
    pub fn plain(now: Timestamp) -> Self {
        Self { now, eras: Arc::new([]), known_from: None, lost: None }
    }

    /// The time after these looks, each of which showed that the clock was set since the one before. `is_all` says that what was stored before the
    /// first one, or on another clock, was so before the first one was made.
    pub(crate) fn seen(now: Timestamp, looks: &[Look], is_all: bool, lost: Option<Timestamp>) -> Self {
        let ahead = looks.iter().next_back().map_or(0, |newest| newest.ahead());
        let slack = i64::try_from(SLACK.as_millis()).unwrap_or(0);
        let eras = looks.iter().enumerate().map(|(at, look)| {
            let on_it = |up: u64| millis(up).saturating_add(look.ahead());
            // It began behind the look before, and ended before the next one.
            let from = match at.checked_sub(1) {
                Some(before) => looks.get(before).map_or(i64::MIN, |before| on_it(before.up)),
                None if is_all => look.at.as_millis(),
                None => i64::MIN,
            };
            let to = looks.get(at + 1).map_or(now.as_millis(), |next| on_it(next.up));
            Era {
                from: Timestamp::from_millis(from.saturating_sub(slack)),
                to: Timestamp::from_millis(to.saturating_add(slack)),
                by: ahead.saturating_sub(look.ahead()),
            }
        });
        let eras: Arc<[Era]> = eras.collect();
        let first = looks.first().zip(eras.first()).filter(|_| is_all);
        let known_from = first.map(|(look, era)| moved(look.at, era.by));
        Self { now, eras, known_from, lost }
    }

    /// What the wall clock says.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What the wall clock has to say before `span` has surely passed since `from`: the question of whatever has to be over. It goes by the latest
    /// time that `from` may have been.
    pub fn end_of(&self, from: Timestamp, span: Duration) -> Timestamp {
        let latest = self.may_have_been(from).max().unwrap_or(from);
        latest.max(self.known_from.unwrap_or(latest)).plus(span)
    }

    /// The same for whoever asks whether another stored instant is behind that. Where it is kept how the clock is set, that one was held to it when
    /// it was stored, and is believed: what happened to the clock behind it is no reason not to.
    pub fn end_beside(&self, from: Timestamp, span: Duration) -> Timestamp {
        if self.known_from.is_some() { from.plus(span) } else { self.end_of(from, span) }
    }

    /// Whether `span` may have passed since `from`: the question of whatever must not be over. It goes by the earliest time that `from` may have
    /// been, by any clock, and is so where the wall clock says that `from` has not come yet.
    pub fn may_be_over(&self, from: Timestamp, span: Duration) -> bool {
        let earliest = self.may_have_been(from).min().or(self.known_from).unwrap_or(from).min(from);
        let is_lost = self.lost.is_some_and(|lost| from <= lost);
        is_lost || self.now < from || self.now >= earliest.plus(span)
    }

    /// When a stored instant may have been, as the clock is set now.
    fn may_have_been(&self, from: Timestamp) -> impl Iterator<Item = Timestamp> {
        self.eras.iter().filter(move |era| era.from <= from && from <= era.to).map(move |era| moved(from, era.by))
    }
}

fn moved(at: Timestamp, by: i64) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_add(by))
}

/// Notices that the wall clock is set, by looking at it now and then.
#[derive(Debug)]
pub struct Steps {
    env: Env,
    looks: Mutex<Vec<Look>>,
}

impl Steps {
    /// Notices it from now on.
    pub fn new(env: Env) -> Self {
        // Where it is kept, it is looked at before anything is stored that may have to be waited for.
        let _seen = env.clock.kept_time();
        let looks = Mutex::new(vec![Look::new(env.clock.uptime(), env.now())]);
        Self { env, looks }
    }

    /// Looks at the clock.
    pub fn time(&self) -> Time {
        // Whoever keeps it saw more than this process did.
        if let Some(time) = self.env.clock.kept_time() {
            return time;
        }
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let look = Look::new(self.env.clock.uptime(), self.env.now());
        // Time in which the machine was suspended has passed, and is not counted here: then this waits longer than it has to.
        if looks.iter().next_back().is_none_or(|newest| newest.differs(look)) {
            looks.push(look);
        }
        if looks.len() > 1 { Time::seen(look.at, &looks, false, None) } else { Time::plain(look.at) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::env::{Clock, SeededEntropy, SimClock, Sleep};

    /// A clock that is set beside the time that passes.
    #[derive(Debug, Default)]
    struct Settable {
        passes: SimClock,
        set: AtomicI64,
    }

    impl Clock for Settable {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.passes.now().as_millis() + self.set.load(Ordering::SeqCst))
        }

        fn uptime(&self) -> Duration {
            self.passes.uptime()
        }

        fn sleep(&self, span: Duration) -> Sleep {
            self.passes.sleep(span)
        }
    }

    const MINUTE: Duration = Duration::from_mins(1);

    fn settable() -> (Arc<Settable>, Env) {
        let clock = Arc::new(Settable::default());
        (clock.clone(), Env { clock, entropy: Arc::new(SeededEntropy::new(1)) })
    }

    #[test]
    fn what_has_to_pass_passes_although_the_clock_is_set_forward() {
        let (clock, env) = settable();
        let steps = Steps::new(env.clone());
        let from = env.now();
        drop(clock.sleep(Duration::from_secs(10)));
        clock.set.fetch_add(3_600_000, Ordering::SeqCst);
        let time = steps.time();
        assert!(time.now() < time.end_of(from, MINUTE), "ten seconds have passed");
        let after = env.now();
        drop(clock.sleep(Duration::from_secs(50)));
        let time = steps.time();
        assert!(time.now() >= time.end_of(from, MINUTE));
        assert_eq!(time.end_of(after, MINUTE), after.plus(MINUTE), "what began behind it is counted as it is");
    }

    #[test]
    fn what_must_not_be_over_may_be_when_the_clock_was_set_back() {
        let (clock, env) = settable();
        let steps = Steps::new(env.clone());
        let from = env.now();
        drop(clock.sleep(Duration::from_secs(70)));
        clock.set.fetch_sub(40_000, Ordering::SeqCst);
        let time = steps.time();
        assert!(time.now() < from.plus(MINUTE) && time.may_be_over(from, MINUTE));
        assert!(!time.may_be_over(env.now(), MINUTE));
        assert_eq!(time.end_of(from, MINUTE), from.plus(MINUTE), "it does not make anything pass sooner");
    }

    #[test]
    fn a_clock_that_only_goes_is_never_set() {
        let env = Env::simulated(1);
        let steps = Steps::new(env.clone());
        for _ in 0..50 {
            env.clock.sleep_blocking_for_tests(Duration::from_mins(7));
            assert_eq!(steps.time(), Time::plain(env.now()));
        }
    }
}
