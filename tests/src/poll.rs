//! Waiting for something to be so.

use std::time::{Duration, Instant};

/// How long a step of the wait is.
const STEP: Duration = Duration::from_millis(5);

/// How long it is before a wait is given up, which only a test that has failed ever uses up: longer than the lease of a worker and what comes
/// after it.
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits until `look` finds something.
///
/// # Panics
///
/// When it finds nothing for two minutes; `what` says what was waited for.
#[expect(clippy::disallowed_methods, reason = "the patience of a test is real time: a look may take long itself")]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(STEP);
    }
}

/// Waits until `is_so` holds.
///
/// # Panics
///
/// When it does not hold for two minutes; `what` says what was waited for.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
