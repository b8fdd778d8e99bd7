//! How long what came back from outside waits for a database that is busy, or has no room for it.

use std::time::Duration;

use async_trait::async_trait;
use ua_core::Env;
use ua_dispatch::StopSignal;
use ua_ledger::{Patience, Tries};

use crate::watch::{RunEvent, Watcher};

/// The wait before the second try; doubled for each one after it.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait that doubling leads to.
const LONGEST: Duration = Duration::from_secs(5);
/// How long a write may take before the answer that it stores is kept beside the database: whoever sees a process stand still may end it.
const TOO_LONG: Duration = Duration::from_millis(200);
/// When it is given up.
const AT_MOST: Duration = Duration::from_mins(30);

/// Tries again until a second signal, or for half an hour. That the lease is lost the write itself says.
pub(crate) struct UntilStopped {
    pub(crate) env: Env,
    pub(crate) stop: StopSignal,
    pub(crate) watcher: Watcher,
}

/// Gives a write up at once, as who answers a client that waits has to; an answer whose write takes long is kept beside the database all the
/// same.
#[derive(Debug)]
pub struct NoWaiting {
    env: Env,
}

impl NoWaiting {
    /// By this clock.
    pub fn new(env: Env) -> Self {
        Self { env }
    }
}

impl UntilStopped {
    /// Waits until the write is made again. Whoever waits is told of what stands in the way now: before the first wait, and whenever that is
    /// something else, such as a full disk behind a busy database. `told` makes the telling of it, of the milliseconds that may still be waited.
    async fn pause(&self, doing: &str, why: &str, tries: &mut Tries, told: impl FnOnce(u64) -> RunEvent) -> bool {
        let since = *tries.since.get_or_insert_with(|| self.env.now());
        let left = AT_MOST.saturating_sub(self.env.now().since(since));
        if left.is_zero() {
            tracing::error!("cannot {doing}: {why}; the database could not be written for too long");
            return false;
        }
        if tries.told.as_deref() != Some(why) {
            tracing::warn!("cannot {doing} yet, trying again: {why}");
            (self.watcher)(told(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
            tries.told = Some(why.to_owned());
        }
        let wait = FIRST.saturating_mul(2_u32.saturating_pow((tries.count - 1).min(16))).min(LONGEST);
        tokio::select! {
            biased;
            () = self.stop.stopping_at_once() => false,
            () = self.env.clock.sleep(wait) => true,
        }
    }
}

#[async_trait]
impl Patience for NoWaiting {
    async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
        false
    }

    async fn too_long(&self) {
        self.env.clock.sleep(TOO_LONG).await;
    }
}

#[async_trait]
impl Patience for UntilStopped {
    async fn wait(&self, doing: &str, why: &str, tries: &mut Tries) -> bool {
        let told = |_| RunEvent::DatabaseBusy { doing: doing.to_owned(), why: why.to_owned() };
        self.pause(doing, why, tries, told).await
    }

    async fn wait_for_room(&self, doing: &str, why: &str, tries: &mut Tries) -> bool {
        let told = |left_millis| RunEvent::DatabaseFull { doing: doing.to_owned(), why: why.to_owned(), left_millis };
        self.pause(doing, why, tries, told).await
    }

    async fn too_long(&self) {
        self.env.clock.sleep(TOO_LONG).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    /// Whoever waits hears the reason that holds now: once as long as it stays, again when it is another one, and how long is left then.
    #[tokio::test]
    async fn whoever_waits_hears_of_each_reason_when_it_comes() {
        let told = Arc::<Mutex<Vec<RunEvent>>>::default();
        let kept = told.clone();
        let watcher: Watcher = Arc::new(move |event| kept.lock().unwrap_or_else(PoisonError::into_inner).push(event));
        let patience = UntilStopped { env: Env::simulated(3), stop: StopSignal::default(), watcher };
        let mut tries = Tries::default();
        for why in ["locked", "locked", "full", "full", "full", "locked"] {
            tries.count += 1;
            let goes_on = if why == "full" {
                patience.wait_for_room("store the answer of", why, &mut tries).await
            } else {
                patience.wait("store the answer of", why, &mut tries).await
            };
            assert!(goes_on, "{why}");
        }
        let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let [
            RunEvent::DatabaseBusy { .. },
            RunEvent::DatabaseFull { left_millis, .. },
            RunEvent::DatabaseBusy { why, .. },
        ] = told.as_slice()
        else {
            panic!("{told:?}")
        };
        assert_eq!((*left_millis, why.as_str()), (30 * 60 * 1000 - 300, "locked"), "two waits were before");
    }
}
