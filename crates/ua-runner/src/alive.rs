//! A sign of life, so that the time of a process that is killed counts (Durable Jobs v1 spec §6, `max_wallclock_minutes`).

use std::sync::Arc;
use std::time::Duration;

use ua_core::Env;
use ua_store::{RunLease, Store, StoreError};

/// How often an owner says that it is alive: what a kill may hide of the time it held the run.
const EVERY: Duration = Duration::from_secs(1);

/// Says every second that the owner of `lease` is alive, until the lease is of no use any more. For a task beside
/// a [`Worker`](crate::Worker), with a clock that really waits; end the task when the drive is over. Each sign is a relaxed write of
/// one column. One that fails is left out: whatever is wrong with the store, the drive finds it too.
pub(crate) async fn heartbeat(store: Arc<dyn Store>, lease: RunLease, env: Env) {
    loop {
        env.clock.sleep(EVERY).await;
        match store.note_alive(&lease, env.now()).await {
            Ok(()) => {}
            Err(StoreError::Fenced { .. } | StoreError::Conflict { .. } | StoreError::NotFound { .. }) => return,
            Err(error) => tracing::debug!(%error, "a sign of life could not be stored"),
        }
    }
}
