//! How long a run's calls waited for nothing but a person: a tool that asks in the middle of its call keeps the process that holds the run, and
//! a person who thinks about an answer uses up no budget of time (Durable Jobs v1 spec §6, `max_wallclock_minutes`).
//!
//! Invariants: what waits beside another one counts once; while any call of the run is at work, no time counts. A sub-agent's run that does nothing
//! but wait is a call of the run above that waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ua_core::{Env, Timestamp};

/// The waits of one process for a person. Shared by whoever dispatches calls and whoever counts the time that the run is held.
#[derive(Debug)]
pub struct PersonWaits {
    env: Env,
    /// Those of the run whose sub-agent's these are.
    above: Option<Arc<PersonWaits>>,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// On their way to a receipt, those that wait for a person included.
    under_way: u32,
    waiting: u32,
    /// Since when all that are under way wait.
    since: Option<Timestamp>,
    /// Without the time since then.
    waited: Duration,
    /// What says so above.
    above: Option<Mark>,
}

/// That a call is under way, or that it waits, as long as this lives.
#[derive(Debug)]
pub struct Mark {
    waits: Arc<PersonWaits>,
    count: fn(&mut Calls) -> &mut u32,
}

impl PersonWaits {
    /// Nothing is under way.
    pub fn new(env: Env) -> Arc<Self> {
        Arc::new(Self { env, above: None, calls: Mutex::default() })
    }

    /// The same for a sub-agent, whose task is a call that is under way `above`.
    pub fn below(env: Env, above: Arc<Self>) -> Arc<Self> {
        Arc::new(Self { env, above: Some(above), calls: Mutex::default() })
    }

    /// How long it has been altogether.
    pub fn so_far(&self) -> Duration {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.waited + calls.since.map_or(Duration::ZERO, |since| self.env.now().since(since))
    }

    /// A call is on its way to its receipt.
    pub fn under_way(self: &Arc<Self>) -> Mark {
        self.mark(|calls| &mut calls.under_way)
    }

    /// A call that is under way does nothing but wait for a person.
    pub fn waiting(self: &Arc<Self>) -> Mark {
        self.mark(|calls| &mut calls.waiting)
    }

    fn mark(self: &Arc<Self>, count: fn(&mut Calls) -> &mut u32) -> Mark {
        self.change(|calls| *count(calls) += 1);
        Mark { waits: self.clone(), count }
    }

    fn change(&self, change: impl FnOnce(&mut Calls)) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.now();
        if let Some(since) = calls.since.take() {
            calls.waited += now.since(since);
        }
        change(&mut calls);
        calls.since = (calls.waiting > 0 && calls.waiting >= calls.under_way).then_some(now);
        match (&self.above, calls.since.is_some()) {
            (Some(above), true) if calls.above.is_none() => calls.above = Some(above.waiting()),
            (_, true) => {}
            (_, false) => calls.above = None,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let count = self.count;
        self.waits.change(|calls| *count(calls) -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_in_which_all_calls_wait_counts_and_it_counts_once() {
        let env = Env::simulated(1);
        let waits = PersonWaits::new(env.clone());
        let pass = |minutes| {
            env.clock.sleep_blocking_for_tests(Duration::from_mins(minutes));
            waits.so_far().as_secs() / 60
        };
        assert_eq!(pass(1), 0, "nothing is under way");
        let first = waits.under_way();
        assert_eq!(pass(1), 0, "it is at work");
        let asks = waits.waiting();
        assert_eq!(pass(2), 2);
        let second = waits.under_way();
        assert_eq!(pass(4), 2, "another one is at work meanwhile");
        let also_asks = waits.waiting();
        assert_eq!(pass(8), 10, "two wait for the same eight minutes");
        drop(asks);
        assert_eq!(pass(16), 10, "the first is at work again");
        drop(first);
        assert_eq!(pass(32), 42, "the second is left, and waits");
        drop((also_asks, second));
        assert_eq!(pass(64), 42);
    }

    #[test]
    fn a_sub_agent_that_waits_is_a_call_of_the_run_above_that_waits() {
        let env = Env::simulated(1);
        let above = PersonWaits::new(env.clone());
        let [one, other] = [(), ()].map(|()| PersonWaits::below(env.clone(), above.clone()));
        let pass = |minutes| {
            env.clock.sleep_blocking_for_tests(Duration::from_mins(minutes));
            [&above, &one, &other].map(|waits| waits.so_far().as_secs() / 60)
        };
        let _tasks = [above.under_way(), above.under_way()];
        let calls = [one.under_way(), one.waiting()];
        assert_eq!(pass(1), [0, 1, 0], "the other sub-agent is at work");
        let others = [other.under_way(), other.waiting()];
        assert_eq!(pass(2), [2, 3, 2]);
        drop(others);
        assert_eq!(pass(4), [2, 7, 2]);
        drop(calls);
        assert_eq!(pass(8), [2, 7, 2]);
    }
}
