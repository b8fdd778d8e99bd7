//! Time in a simulation: it stands still until the stage moves it on.
//!
//! There are two of them: the time that passes, by which waits end, and the wall clock, which is what everybody reads and which may be
//! set.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ua_core::{Clock, SimClock, Sleep, Timestamp};

use super::locked;

/// A clock whose waits end when the stage says so.
#[derive(Debug)]
pub(super) struct StageClock {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What has passed since the beginning, as an instant.
    passed: Timestamp,
    /// By how many milliseconds the wall clock is ahead of it.
    ahead: i64,
    next: u64,
    waits: BTreeMap<u64, (Timestamp, Option<Waker>)>,
}

impl StageClock {
    pub(super) fn new() -> Arc<Self> {
        let state = State { passed: SimClock::default().now(), ahead: 0, next: 0, waits: BTreeMap::new() };
        Arc::new(Self { inner: Arc::new(Inner { state: Mutex::new(state) }) })
    }

    /// The time that has passed, whatever the wall clock says.
    pub(super) fn passed(&self) -> Timestamp {
        locked(&self.inner.state).passed
    }

    /// When the first wait ends, if anybody waits.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        locked(&self.inner.state).waits.values().map(|(at, _)| *at).min()
    }

    /// Moves the time on; waits that end by then are woken in order.
    pub(super) fn advance_to(&self, to: Timestamp) {
        let mut state = locked(&self.inner.state);
        state.passed = state.passed.max(to);
        let passed = state.passed;
        let mut due: Vec<(Timestamp, u64)> =
            state.waits.iter().filter(|(_, (at, _))| *at <= passed).map(|(id, (at, _))| (*at, *id)).collect();
        due.sort();
        let wakers = due.into_iter().filter_map(|(_, id)| state.waits.get_mut(&id)?.1.take()).collect::<Vec<_>>();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets the wall clock by so many milliseconds; no wait ends by it.
    pub(super) fn step(&self, millis: i64) {
        locked(&self.inner.state).ahead += millis;
    }

    /// Time passes for the wall clock and for the world, and no wait comes nearer to its end: the machine is suspended.
    pub(super) fn suspend(&self, span: Duration) {
        let mut state = locked(&self.inner.state);
        state.passed = state.passed.plus(span);
        for wait in state.waits.values_mut() {
            wait.0 = wait.0.plus(span);
        }
    }
}

impl Clock for StageClock {
    fn now(&self) -> Timestamp {
        let state = locked(&self.inner.state);
        Timestamp::from_millis(state.passed.as_millis() + state.ahead)
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let mut state = locked(&self.inner.state);
        let (id, at) = (state.next, state.passed.plus(span));
        state.next += 1;
        state.waits.insert(id, (at, None));
        Box::pin(Wait { id, inner: Arc::clone(&self.inner) })
    }
}

struct Wait {
    id: u64,
    inner: Arc<Inner>,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.inner.state);
        let passed = state.passed;
        match state.waits.get_mut(&self.id) {
            Some(wait) if passed < wait.0 => {
                wait.1 = Some(context.waker().clone());
                Poll::Pending
            }
            Some(_) | None => Poll::Ready(()),
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        locked(&self.inner.state).waits.remove(&self.id);
    }
}
