//! How long what came back from outside waits for a database that is busy, or has no room for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ua_core::{Env, Timestamp};
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

/// Tries again until calls are not waited for any longer, what is kept nowhere else until everything is given up, and no longer than half an hour.
/// That the lease is lost the write itself says.
pub(crate) struct UntilStopped {
    pub(crate) env: Env,
    pub(crate) stop: StopSignal,
    pub(crate) watcher: Watcher,
    /// Whether the half hour was over for one of them: the process that gave one up ends, and waits no more.
    pub(crate) has_ended: Arc<AtomicBool>,
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
        let is_alone = tries.is_alone;
        let has_stopped = if is_alone { self.stop.is_stopping_at_once() } else { self.stop.is_giving_up_calls() };
        // Nobody is told of a wait that is none.
        if has_stopped || self.has_ended.load(Ordering::SeqCst) {
            return false;
        }
        let since = *tries.since.get_or_insert_with(|| self.env.now());
        let left = AT_MOST.saturating_sub(self.env.now().since(since));
        if left.is_zero() {
            self.has_ended.store(true, Ordering::SeqCst);
            tracing::error!("cannot {doing}: {why}; the database could not be written for too long");
            return false;
        }
        if tries.told.as_deref() != Some(why) {
            tracing::warn!("cannot {doing} yet, trying again: {why}");
            (self.watcher)(told(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
            tries.told = Some(why.to_owned());
        }
        let wait = FIRST.saturating_mul(2_u32.saturating_pow((tries.count - 1).min(16))).min(LONGEST);
        let stopped =
            async { if is_alone { self.stop.stopping_at_once().await } else { self.stop.giving_up_calls().await } };
        tokio::select! {
            biased;
            () = stopped => false,
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

    fn begins_nothing(&self) -> bool {
        self.stop.is_stopping()
    }

    fn begins_at(&self) -> Option<Timestamp> {
        Some(self.env.now())
    }

    async fn too_long(&self) {
        self.env.clock.sleep(TOO_LONG).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    fn patience(stop: StopSignal, watcher: Watcher) -> UntilStopped {
        UntilStopped { env: Env::simulated(3), stop, watcher, has_ended: Arc::default() }
    }

    /// What is kept nowhere else is waited for when calls are not any more, and given up with everything; and nobody is told of a wait that is none.
    #[tokio::test]
    async fn what_is_kept_nowhere_else_outlasts_the_wait_for_calls() {
        for is_alone in [false, true] {
            let told = Arc::<Mutex<u32>>::default();
            let counted = told.clone();
            let watcher: Watcher = Arc::new(move |_| *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1);
            let stop = StopSignal::default();
            let patience = patience(stop.clone(), watcher);
            let mut goes_on = Vec::new();
            for step in 0..4 {
                match step {
                    1 => stop.stop_gently(),
                    2 => stop.give_up_calls(),
                    3 => stop.stop_at_once(),
                    _ => {}
                }
                let mut tries = Tries { count: 1, is_alone, ..Tries::default() };
                goes_on.push(patience.wait_for_room("store the answer of", "full", &mut tries).await);
            }
            assert_eq!(goes_on, [true, true, is_alone, false]);
            assert_eq!(*told.lock().unwrap_or_else(PoisonError::into_inner), if is_alone { 3 } else { 2 });
        }
    }

    /// The half hour is one, whatever else has to be written when it is over.
    #[tokio::test]
    async fn who_waited_for_half_an_hour_does_not_begin_anew() {
        let patience = patience(StopSignal::default(), Arc::new(|_| {}));
        let began = patience.env.now();
        let mut tries = Tries { is_alone: true, ..Tries::default() };
        loop {
            tries.count += 1;
            if !patience.wait_for_room("store the answer of", "full", &mut tries).await {
                break;
            }
        }
        let waited = patience.env.now().since(began);
        assert!((AT_MOST..AT_MOST + LONGEST).contains(&waited), "{waited:?}");
        let mut next = Tries { count: 1, is_alone: true, ..Tries::default() };
        assert!(!patience.wait_for_room("store the answer of", "full", &mut next).await);
        assert_eq!(patience.env.now().since(began), waited);
    }

    /// Whoever waits hears the reason that holds now: once as long as it stays, again when it is another one, and how long is left then.
    #[tokio::test]
    async fn whoever_waits_hears_of_each_reason_when_it_comes() {
        let told = Arc::<Mutex<Vec<RunEvent>>>::default();
        let kept = told.clone();
        let watcher: Watcher = Arc::new(move |event| kept.lock().unwrap_or_else(PoisonError::into_inner).push(event));
        let patience = patience(StopSignal::default(), watcher);
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
