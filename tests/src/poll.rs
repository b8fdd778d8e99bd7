//! Waiting for something to be so.

use std::time::{Duration, Instant};

/// How long a step of the wait is.
const STEP: Duration = Duration::from_millis(5);

/// How long it is before a wait is given up, which only a test that has failed ever uses up: longer than the lease of a worker and what comes
/// after it.
const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until `look` finds something.
///
/// # Panics
///
/// When it finds nothing for five minutes; `what` says what was waited for.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    within_patience(look).unwrap_or_else(|| panic!("waited in vain for {what}"))
}

/// Waits until `is_so` holds.
///
/// # Panics
///
/// When it does not hold for five minutes; `what` says what was waited for.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_or_tell(what, is_so, String::new);
}

/// The same; `stands` says how it stands when the wait was in vain.
///
/// # Panics
///
/// When it does not hold for five minutes.
pub fn until_or_tell(what: &str, mut is_so: impl FnMut() -> bool, stands: impl FnOnce() -> String) {
    let found = within_patience(|| is_so().then_some(()));
    assert!(found.is_some(), "waited in vain for {what}\n{}", stands());
}

#[expect(clippy::disallowed_methods, reason = "the patience of a test is real time: a look may take long itself")]
fn within_patience<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if begun.elapsed() >= PATIENCE {
            return None;
        }
        std::thread::sleep(STEP);
    }
}
