//! A sign of life, so that the time of a process that is killed counts, and time in which no process ran does not (Durable Jobs v1 spec §6,
//! `max_wallclock_minutes`).

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ua_core::{Env, Timestamp};
use ua_dispatch::PersonWaits;
use ua_store::{RunLease, RunStore, Store, StoreError};

use crate::watch::{RunEvent, Watcher};

/// How often an owner says that it is alive: what a kill may hide of the time it held the run.
const EVERY: Duration = Duration::from_secs(1);

/// A longer time between two looks at the clock is time in which the process did not run: its machine was suspended, or it was stopped. It
/// is far more than a busy machine lets a second wait.
const LONGEST: Duration = Duration::from_secs(5);

/// How long this process stood still while it held its run, or did nothing but wait for a person. Only with a clock that passes by itself; a
/// simulated one moves when somebody waits, and nothing is still then.
#[derive(Debug)]
pub(crate) struct Stillness {
    env: Env,
    waits: Arc<PersonWaits>,
    looked: Mutex<Option<Looked>>,
}

#[derive(Debug)]
struct Looked {
    at: Timestamp,
    /// How long a person had been waited for by then.
    waited: Duration,
    passed: Passed,
}

/// What the wall clock said beside the time in which a process was at work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Passed {
    /// How long the process stood still.
    pub(crate) still: Duration,
    /// How far the wall clock was set back. One that is set forward looks like a process that stood still.
    back: Duration,
}

impl Passed {
    /// How long the process was at work from `from`, when `before` had passed, until `now`.
    pub(crate) fn at_work(self, from: Timestamp, before: Self, now: Timestamp) -> Duration {
        let on_that_clock = now.plus(self.back.saturating_sub(before.back));
        on_that_clock.since(from).saturating_sub(self.still.saturating_sub(before.still))
    }
}

impl Stillness {
    /// Nothing is measured before [`begin`](Self::begin).
    pub(crate) fn new(env: Env, waits: Arc<PersonWaits>) -> Self {
        Self { env, waits, looked: Mutex::new(None) }
    }

    /// How long a person is waited for in the middle of calls.
    pub(crate) fn waits(&self) -> &Arc<PersonWaits> {
        &self.waits
    }

    /// Measures from now on. Somebody has to look every second.
    fn begin(&self) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Looked { at: self.env.now(), waited: self.waits.so_far(), passed: Passed::default() });
    }

    /// Looks at the clock, and says what it has been altogether.
    pub(crate) fn so_far(&self) -> Passed {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(looked) = &mut *looked else { return Passed::default() };
        let (now, waited) = (self.env.now(), self.waits.so_far());
        let gap = now.since(looked.at);
        let stood = if gap > LONGEST { gap.saturating_sub(EVERY) } else { Duration::ZERO };
        // A machine that is suspended while a person is waited for does both in the same time.
        looked.passed.still += stood.max(waited.saturating_sub(looked.waited).min(gap));
        looked.passed.back += looked.at.since(now);
        (looked.at, looked.waited) = (now, waited);
        looked.passed
    }
}

/// The time that a run has.
pub(crate) struct TimeLimit {
    /// In minutes.
    pub(crate) max_minutes: u64,
    /// How long processes held the run before this one.
    pub(crate) held_before: Duration,
    /// Since when this one holds it.
    pub(crate) from: Timestamp,
    /// Who is told that it is used up.
    pub(crate) watcher: Watcher,
    pub(crate) is_told: bool,
}

impl TimeLimit {
    /// Looks whether the time is used up when so much has passed beside the work, and tells it once.
    fn look(&mut self, now: Timestamp, passed: Passed) {
        let held = self.held_before + passed.at_work(self.from, Passed::default(), now);
        if !self.is_told && held >= Duration::from_secs(self.max_minutes.saturating_mul(60)) {
            self.is_told = true;
            (self.watcher)(RunEvent::TimeUsedUp { max_minutes: self.max_minutes });
        }
    }
}

/// Says every second that the owner of `lease` is alive, until the lease is of no use any more, and once that its time is used up: the drive looks
/// between two calls, and one of them may take for ever. For a task beside
/// a [`Worker`](crate::Worker), with a clock that really waits; end the task when the drive is over. Each sign is a relaxed write of
/// two columns. One that fails is left out: whatever is wrong with the store, the drive finds it too.
pub(crate) async fn heartbeat(
    store: Arc<dyn Store>,
    lease: RunLease,
    env: Env,
    still: Arc<Stillness>,
    mut limit: TimeLimit,
) {
    still.begin();
    let mut told = Duration::ZERO;
    loop {
        env.clock.sleep(EVERY).await;
        let so_far = still.so_far();
        limit.look(env.now(), so_far);
        let mut sign = pin!(store.note_alive(&lease, so_far.still.saturating_sub(told), env.now()));
        // A database that is busy keeps a sign of life waiting for longer than a process may seem to stand still.
        let noted = loop {
            tokio::select! {
                noted = &mut sign => break noted,
                () = env.clock.sleep(EVERY) => still.so_far(),
            };
        };
        match noted {
            Ok(()) => told = so_far.still,
            Err(StoreError::Fenced { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return,
            Err(error) => tracing::debug!(%error, "a sign of life could not be stored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::{Clock, Sleep};

    use super::*;

    #[test]
    fn only_what_is_far_longer_than_a_second_counts_as_standing_still() {
        let env = Env::simulated(1);
        let pass = |span| env.clock.sleep_blocking_for_tests(span);
        let still = Stillness::new(env.clone(), PersonWaits::new(env.clone()));
        pass(Duration::from_mins(1));
        assert_eq!(still.so_far().still, Duration::ZERO, "nobody looks at the clock yet");
        still.begin();
        for _ in 0..100 {
            pass(Duration::from_millis(1_900));
            assert_eq!(still.so_far().still, Duration::ZERO);
        }
        pass(Duration::from_secs(31));
        assert_eq!(still.so_far().still, Duration::from_secs(30));
        pass(Duration::from_secs(1));
        assert_eq!(still.so_far().still, Duration::from_secs(30));
    }

    /// A clock that somebody sets beside the time that passes.
    #[derive(Debug, Default)]
    struct Settable(Mutex<i64>);

    impl Clock for Settable {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(*self.0.lock().unwrap())
        }

        fn sleep(&self, _span: Duration) -> Sleep {
            Box::pin(std::future::ready(()))
        }
    }

    #[test]
    fn work_counts_although_the_clock_is_set_back_and_no_more_when_it_is_set_forward() {
        let clock = Arc::new(Settable(Mutex::new(1_000_000_000)));
        let env = Env { clock: clock.clone(), entropy: Env::simulated(1).entropy };
        let still = Stillness::new(env.clone(), PersonWaits::new(env.clone()));
        still.begin();
        let from = env.now();
        let at_work = || still.so_far().at_work(from, Passed::default(), env.now());
        let mut worked = 0;
        for by in [0, -3_600_000, 0, 7_200_000, -60_000, 0] {
            for _ in 0..10 {
                *clock.0.lock().unwrap() += 1_000;
                worked += 1;
                at_work();
            }
            *clock.0.lock().unwrap() += by;
        }
        let missing = Duration::from_secs(worked).abs_diff(at_work());
        assert!(missing <= Duration::from_secs(3), "a second for each step of the clock: {:?}", at_work());
        let before = still.so_far();
        *clock.0.lock().unwrap() += 2_000;
        assert_eq!(still.so_far().at_work(env.now(), before, env.now()), Duration::ZERO);
    }

    #[test]
    fn that_the_time_is_used_up_is_told_once_and_not_for_time_that_does_not_count() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let seen = told.clone();
        let from = Env::simulated(1).now();
        let mut limit = TimeLimit {
            max_minutes: 2,
            held_before: Duration::from_secs(30),
            from,
            watcher: Arc::new(move |event| seen.lock().unwrap().push(event)),
            is_told: false,
        };
        let mut told_at = |seconds, still| {
            limit.look(
                from.plus(Duration::from_secs(seconds)),
                Passed { still: Duration::from_secs(still), ..Passed::default() },
            );
            told.lock().unwrap().len()
        };
        assert_eq!(
            [(0, 0), (89, 0), (600, 511), (600, 510), (700, 510)].map(|(at, still)| told_at(at, still)),
            [0, 0, 0, 1, 1]
        );
        assert_eq!(*told.lock().unwrap(), [RunEvent::TimeUsedUp { max_minutes: 2 }]);
    }

    #[test]
    fn a_wait_for_a_person_is_no_work_and_counts_once_where_the_process_stood_still_as_well() {
        let env = Env::simulated(1);
        let pass = |seconds| env.clock.sleep_blocking_for_tests(Duration::from_secs(seconds));
        let waits = PersonWaits::new(env.clone());
        let still = Stillness::new(env.clone(), waits.clone());
        still.begin();
        let call = waits.under_way();
        pass(1);
        assert_eq!(still.so_far().still, Duration::ZERO, "the call is at work");
        let asks = waits.waiting();
        for second in 1..=75 {
            pass(1);
            assert_eq!(still.so_far().still, Duration::from_secs(second));
        }
        pass(60);
        assert_eq!(still.so_far().still, Duration::from_secs(75 + 60), "suspended while a person is waited for");
        drop((asks, call));
        pass(1);
        assert_eq!(still.so_far().still, Duration::from_secs(75 + 60));
    }
}
