//! What happens in a run, as a stream that drives it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt};
use ua_runner::{RunEvent, StepOutcome as Outcome};

use crate::error::Error;

/// Events that nobody has taken yet, and who waits for one.
#[derive(Default)]
struct Waiting {
    events: VecDeque<RunEvent>,
    waker: Option<Waker>,
}

/// Where a run puts its events.
#[derive(Clone, Default)]
pub(crate) struct Events {
    waiting: Arc<Mutex<Waiting>>,
}

impl Events {
    pub(crate) fn push(&self, event: RunEvent) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.events.push_back(event);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next event, or a promise to wake `waiter` when there is one.
    fn take(&self, waiter: Option<&Waker>) -> Option<RunEvent> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let event = waiting.events.pop_front();
        if event.is_none() {
            waiting.waker = waiter.cloned();
        }
        event
    }
}

type Driving = Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send>>;

/// A run at work: a [`Stream`] of what happens in it, which borrows nothing and may be sent to a task or returned from a handler. Whoever polls
/// it drives the run; dropping it is a kill, after which the next run of the step resumes it as after any other. [`Runs::stop`](crate::Runs::stop)
/// stops it gently. It ends when the run ends or waits, and [`RunStream::outcome`] says how.
#[must_use = "a run is driven by whoever reads its events"]
pub struct RunStream {
    driving: Option<Driving>,
    events: Events,
    outcome: Option<Result<Outcome, Error>>,
}

impl RunStream {
    pub(crate) fn new(events: Events, driving: Driving) -> Self {
        Self { driving: Some(driving), events, outcome: None }
    }

    /// The next event; `None` when there is none any more.
    pub async fn next(&mut self) -> Option<RunEvent> {
        StreamExt::next(self).await
    }

    /// How the run ended or where it waits. Events that were not taken are dropped.
    ///
    /// # Errors
    /// As [`Runs::run`](crate::Runs::run).
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        while self.next().await.is_some() {}
        match self.outcome {
            Some(outcome) => outcome,
            None => unreachable!("the stream ends with an outcome"),
        }
    }
}

impl Stream for RunStream {
    type Item = RunEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<RunEvent>> {
        let this = self.get_mut();
        if let Some(event) = this.events.take(None) {
            return Poll::Ready(Some(event));
        }
        let Some(driving) = &mut this.driving else { return Poll::Ready(None) };
        if let Poll::Ready(outcome) = driving.as_mut().poll(context) {
            (this.outcome, this.driving) = (Some(outcome), None);
            return Poll::Ready(this.events.take(None));
        }
        match this.events.take(Some(context.waker())) {
            Some(event) => Poll::Ready(Some(event)),
            None => Poll::Pending,
        }
    }
}

impl std::fmt::Debug for RunStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunStream").field("is_over", &self.driving.is_none()).finish_non_exhaustive()
    }
}
