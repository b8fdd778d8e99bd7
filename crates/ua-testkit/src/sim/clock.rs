//! Time in a simulation: it stands still until the stage moves it on.

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
    now: Timestamp,
    next: u64,
    waits: BTreeMap<u64, (Timestamp, Option<Waker>)>,
}

impl StageClock {
    pub(super) fn new() -> Arc<Self> {
        let state = State { now: SimClock::default().now(), next: 0, waits: BTreeMap::new() };
        Arc::new(Self { inner: Arc::new(Inner { state: Mutex::new(state) }) })
    }

    /// When the first wait ends, if anybody waits.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        locked(&self.inner.state).waits.values().map(|(at, _)| *at).min()
    }

    /// Moves the time on; waits that end by then are woken in order.
    pub(super) fn advance_to(&self, to: Timestamp) {
        let mut state = locked(&self.inner.state);
        state.now = state.now.max(to);
        let now = state.now;
        let mut due: Vec<(Timestamp, u64)> =
            state.waits.iter().filter(|(_, (at, _))| *at <= now).map(|(id, (at, _))| (*at, *id)).collect();
        due.sort();
        let wakers = due.into_iter().filter_map(|(_, id)| state.waits.get_mut(&id)?.1.take()).collect::<Vec<_>>();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Clock for StageClock {
    fn now(&self) -> Timestamp {
        locked(&self.inner.state).now
    }

    fn sleep(&self, span: Duration) -> Sleep {
        let mut state = locked(&self.inner.state);
        let (id, at) = (state.next, state.now.plus(span));
        state.next += 1;
        state.waits.insert(id, (at, None));
        Box::pin(Wait { id, at, inner: Arc::clone(&self.inner) })
    }
}

struct Wait {
    id: u64,
    at: Timestamp,
    inner: Arc<Inner>,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = locked(&self.inner.state);
        if state.now >= self.at {
            return Poll::Ready(());
        }
        if let Some(wait) = state.waits.get_mut(&self.id) {
            wait.1 = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        locked(&self.inner.state).waits.remove(&self.id);
    }
}
