//! A sign of life, so that the time of a process that is killed counts, and time in which no process ran does not (Durable Jobs v1 spec §6,
//! `max_wallclock_minutes`).

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ua_core::{Env, Timestamp};
use ua_store::{RunLease, RunStore, Store, StoreError};

/// How often an owner says that it is alive: what a kill may hide of the time it held the run.
const EVERY: Duration = Duration::from_secs(1);

/// A longer time between two looks at the clock is time in which the process did not run: its machine was suspended, or it was stopped. It
/// is far more than a busy machine lets a second wait.
const LONGEST: Duration = Duration::from_secs(5);

/// How long this process stood still while it held its run. Only with a clock that passes by itself; a simulated one moves when somebody
/// waits, and nothing is still then.
#[derive(Debug)]
pub(crate) struct Stillness {
    env: Env,
    looked: Mutex<Option<Looked>>,
}

#[derive(Debug)]
struct Looked {
    at: Timestamp,
    still: Duration,
}

impl Stillness {
    /// Nothing is measured before [`begin`](Self::begin).
    pub(crate) fn new(env: Env) -> Self {
        Self { env, looked: Mutex::new(None) }
    }

    /// Measures from now on. Somebody has to look every second.
    fn begin(&self) {
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Looked { at: self.env.now(), still: Duration::ZERO });
    }

    /// Looks at the clock, and says how long it has been altogether.
    pub(crate) fn so_far(&self) -> Duration {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(looked) = &mut *looked else { return Duration::ZERO };
        let now = self.env.now();
        let gap = now.since(looked.at);
        if gap > LONGEST {
            looked.still += gap.saturating_sub(EVERY);
        }
        looked.at = now;
        looked.still
    }
}

/// Says every second that the owner of `lease` is alive, until the lease is of no use any more. For a task beside
/// a [`Worker`](crate::Worker), with a clock that really waits; end the task when the drive is over. Each sign is a relaxed write of
/// two columns. One that fails is left out: whatever is wrong with the store, the drive finds it too.
pub(crate) async fn heartbeat(store: Arc<dyn Store>, lease: RunLease, env: Env, still: Arc<Stillness>) {
    still.begin();
    let mut told = Duration::ZERO;
    loop {
        env.clock.sleep(EVERY).await;
        let so_far = still.so_far();
        let mut sign = pin!(store.note_alive(&lease, so_far.saturating_sub(told), env.now()));
        // A database that is busy keeps a sign of life waiting for longer than a process may seem to stand still.
        let noted = loop {
            tokio::select! {
                noted = &mut sign => break noted,
                () = env.clock.sleep(EVERY) => still.so_far(),
            };
        };
        match noted {
            Ok(()) => told = so_far,
            Err(StoreError::Fenced { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return,
            Err(error) => tracing::debug!(%error, "a sign of life could not be stored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_far_longer_than_a_second_counts_as_standing_still() {
        let env = Env::simulated(1);
        let pass = |span| env.clock.sleep_blocking_for_tests(span);
        let still = Stillness::new(env.clone());
        pass(Duration::from_mins(1));
        assert_eq!(still.so_far(), Duration::ZERO, "nobody looks at the clock yet");
        still.begin();
        for _ in 0..100 {
            pass(Duration::from_millis(1_900));
            assert_eq!(still.so_far(), Duration::ZERO);
        }
        pass(Duration::from_secs(31));
        assert_eq!(still.so_far(), Duration::from_secs(30));
        pass(Duration::from_secs(1));
        assert_eq!(still.so_far(), Duration::from_secs(30));
    }
}
