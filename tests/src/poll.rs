//! Waiting for something to be so.

use std::time::Duration;

/// How long a step of the wait is.
const STEP: Duration = Duration::from_millis(5);

/// How many steps there are before a wait is given up: about 40 s, which only a test that has failed ever uses up.
const STEPS: u32 = 8000;

/// Waits until `look` finds something.
///
/// # Panics
///
/// When it finds nothing for about 40 s; `what` says what was waited for.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..STEPS {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(STEP);
    }
    panic!("waited in vain for {what}");
}

/// Waits until `is_so` holds.
///
/// # Panics
///
/// When it does not hold for about 40 s; `what` says what was waited for.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    eventually(what, || is_so().then_some(()));
}
