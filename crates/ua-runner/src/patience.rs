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
    /// Waits until the write is made again; `first` is told before the first wait.
    async fn pause(&self, doing: &str, why: &str, tries: &mut Tries, first: RunEvent) -> bool {
        let since = *tries.since.get_or_insert_with(|| self.env.now());
        if self.env.now().since(since) >= AT_MOST {
            tracing::error!(doing, why, "the database could not be written for too long");
            return false;
        }
        if tries.count == 1 {
            tracing::warn!(doing, why, "the database cannot be written, trying again");
            (self.watcher)(first);
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
        let first = RunEvent::DatabaseBusy { doing: doing.to_owned(), why: why.to_owned() };
        self.pause(doing, why, tries, first).await
    }

    async fn wait_for_room(&self, doing: &str, why: &str, tries: &mut Tries) -> bool {
        let left_millis = u64::try_from(AT_MOST.as_millis()).unwrap_or(u64::MAX);
        let first = RunEvent::DatabaseFull { doing: doing.to_owned(), why: why.to_owned(), left_millis };
        self.pause(doing, why, tries, first).await
    }

    async fn too_long(&self) {
        self.env.clock.sleep(TOO_LONG).await;
    }
}
