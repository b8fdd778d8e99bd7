//! A mutex of this process: what a thread that panicked left in it is what it was, and the next goes on with that.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
