//! How long ago something was in this process, although somebody sets the clock of the machine.
//!
//! A worker that measured by the wall clock alone would renew nothing while that is set back, for as long as it was set back, and would not notice:
//! others take it for dead, and whoever asks for its health hears that all is well. So what a worker counts for itself goes by the time that
//! passes; by the wall clock, or that of the server, goes only what others read.

use std::time::Duration;

use ua_core::{Env, Timestamp};

/// A moment of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since {
    up: Duration,
    at: Timestamp,
}

impl Since {
    /// This moment.
    pub(super) fn now(env: &Env) -> Self {
        Self { up: env.clock.uptime(), at: env.now() }
    }

    /// How much time has passed for this process since then.
    pub(super) fn ran(self, env: &Env) -> Duration {
        env.clock.uptime().saturating_sub(self.up)
    }

    /// How long ago it was: as much as has passed, or what the wall clock says where that is more. While a machine is suspended nothing passes for
    /// its processes, but the leases that others count end; a wall clock that is set forward costs a renewal that was not due.
    pub(super) fn passed(self, env: &Env) -> Duration {
        self.ran(env).max(env.now().since(self.at))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use ua_core::{Clock, SeededEntropy, SimClock, Sleep};

    use super::*;

    /// A clock that is set beside the time that passes.
    #[derive(Debug, Default)]
    pub(in crate::fleet) struct Settable {
        passes: SimClock,
        millis: AtomicI64,
    }

    impl Settable {
        /// One, and the environment that it is the clock of.
        pub(in crate::fleet) fn with_env() -> (Arc<Self>, Env) {
            let clock = Arc::new(Self::default());
            (clock.clone(), Env { clock, entropy: Arc::new(SeededEntropy::new(1)) })
        }

        /// Somebody sets it, so much on or back.
        pub(in crate::fleet) fn set(&self, by: i64) {
            self.millis.fetch_add(by, Ordering::SeqCst);
        }

        /// Time passes.
        pub(in crate::fleet) fn pass(&self, span: Duration) {
            self.passes.sleep_blocking_for_tests(span);
        }
    }

    impl Clock for Settable {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.passes.now().as_millis() + self.millis.load(Ordering::SeqCst))
        }

        fn uptime(&self) -> Duration {
            self.passes.uptime()
        }

        fn sleep(&self, span: Duration) -> Sleep {
            self.passes.sleep(span)
        }
    }

    #[test]
    fn time_passes_whatever_the_clock_is_set_to() {
        let hour = 3_600_000;
        for (by, passed) in [(0, 7), (-hour, 7), (-1_000, 7), (3_000, 10)] {
            let (clock, env) = Settable::with_env();
            let since = Since::now(&env);
            clock.set(by);
            clock.pass(Duration::from_secs(7));
            let found = (since.passed(&env), since.ran(&env));
            assert_eq!(found, (Duration::from_secs(passed), Duration::from_secs(7)), "{by}");
        }
    }
}
