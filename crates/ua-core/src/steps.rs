//! A wall clock that somebody sets.
//!
//! Instants are stored by the wall clock, since they outlive a process. While one lives it knows better how much time passes, so it notices a
//! clock that was set, and what has to be waited for from a stored instant on is waited for all the same. A clock that is set while no process
//! runs nobody notices.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::env::{Env, Timestamp};

/// Less than this a clock that is slewed, or read at the wrong moment, may differ.
const SLACK: Duration = Duration::from_secs(1);

/// The wall clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    /// Instants up to this one may be of the time before.
    before: Timestamp,
    /// By how much, in milliseconds; negative when it was set back.
    by: i64,
}

/// The time, and how the clock was set since its [`Steps`] were begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Time {
    now: Timestamp,
    steps: Arc<[Step]>,
}

impl Time {
    /// A time of which nothing else is known.
    pub fn plain(now: Timestamp) -> Self {
        Self { now, steps: Arc::new([]) }
    }

    /// What the wall clock says.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What the wall clock has to say before `span` has surely passed since `from`.
    pub fn end_of(&self, from: Timestamp, span: Duration) -> Timestamp {
        from.plus(span).plus(self.set(from, 1))
    }

    /// Whether `span` may have passed since `from`; also where the clock says that `from` has not come yet.
    pub fn may_be_over(&self, from: Timestamp, span: Duration) -> bool {
        self.now < from || self.now.plus(self.set(from, -1)) >= from.plus(span)
    }

    /// By how much the clock was set in one direction since `from`.
    fn set(&self, from: Timestamp, direction: i64) -> Duration {
        let steps = self.steps.iter().filter(|step| from <= step.before).map(|step| step.by.saturating_mul(direction));
        Duration::from_millis(steps.filter_map(|by| u64::try_from(by).ok()).sum())
    }
}

/// Notices that the wall clock is set, by looking at it now and then.
#[derive(Debug)]
pub struct Steps {
    env: Env,
    looked: Mutex<Looked>,
}

#[derive(Debug)]
struct Looked {
    at: Timestamp,
    up: Duration,
    steps: Arc<[Step]>,
}

impl Steps {
    /// Notices it from now on.
    pub fn new(env: Env) -> Self {
        let looked = Looked { at: env.now(), up: env.clock.uptime(), steps: Arc::new([]) };
        Self { env, looked: Mutex::new(looked) }
    }

    /// Looks at the clock.
    pub fn time(&self) -> Time {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, up) = (self.env.now(), self.env.clock.uptime());
        let expected = looked.at.plus(up.saturating_sub(looked.up));
        let by = now.as_millis().saturating_sub(expected.as_millis());
        // Time in which the machine was suspended has passed, and is not counted here: then this waits longer than it has to.
        if by.unsigned_abs() > u64::try_from(SLACK.as_millis()).unwrap_or(u64::MAX) {
            looked.steps = looked.steps.iter().copied().chain([Step { before: expected, by }]).collect();
        }
        (looked.at, looked.up) = (now, up);
        Time { now, steps: looked.steps.clone() }
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
        assert!(!time.may_be_over(env.now(), MINUTE) || time.set(env.now(), -1) == Duration::from_secs(40));
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
