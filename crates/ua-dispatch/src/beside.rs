//! Work that blocks, beside a runtime whose threads have others to serve.

use std::panic::resume_unwind;

use tokio::runtime::Handle;

/// Does work that waits for a disk or the kernel on a thread for that. A panic of it goes on in the caller.
///
/// Where there is no runtime it is done here: a simulation has none, and stays one schedule.
pub async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and nobody waits here any more.
            Err(_) => std::future::pending().await,
        },
    }
}
