//! The executor: one thread, and a task is polled only when something it waits for happened.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

/// A future and whether it has to be polled.
pub(super) struct Task<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
}

#[derive(Debug)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl<T> Task<T> {
    pub(super) fn new(future: impl Future<Output = T> + 'static) -> Self {
        Self { future: Box::pin(future), woken: Arc::new(Woken(AtomicBool::new(true))) }
    }

    /// Whether polling it may bring something.
    pub(super) fn is_woken(&self) -> bool {
        self.woken.0.load(Ordering::SeqCst)
    }

    /// Polls once. A panic is a result too: the words it was made with.
    pub(super) fn poll(&mut self) -> Poll<Result<T, String>> {
        self.woken.0.store(false, Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        match catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(&mut context))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => {
                let words = panic.downcast_ref::<String>().map(String::as_str);
                let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
                Poll::Ready(Err(words.unwrap_or("without a word").to_owned()))
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future that waits for nothing but other threads.
pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}
