//! A future that has stack to spare wherever it is polled.
//!
//! A run within a call of another one is polled on top of all that drives the outer run, which where nothing is optimised is most of the 2 MiB that a
//! thread of a runtime or of a test has. A process that runs out of stack is ended, with all that it does. Proved by: `tests/sdk/within.rs`, whose
//! tests are on such threads.

use std::pin::Pin;
use std::task::{Context, Poll};

/// Where less is left, the future is polled on a stack of its own: always on a thread of 2 MiB.
const LEFT: usize = 2 * 1024 * 1024;
/// The size of that stack; the memory is only used as far as it is needed.
const OWN: usize = 8 * 1024 * 1024;

/// Polls a future with at least [`LEFT`] of stack.
pub(crate) struct Deep<F>(Pin<Box<F>>);

impl<F: Future> Deep<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Box::pin(future))
    }
}

impl<F: Future> Future for Deep<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.0.as_mut();
        stacker::maybe_grow(LEFT, OWN, || future.poll(context))
    }
}
