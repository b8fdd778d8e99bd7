//! Work that waits for files, beside the threads of a runtime, which have others to serve.

use std::panic::resume_unwind;

/// Does it on a thread for that. A panic of it goes on in the caller.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and nobody waits here any more.
            Err(_) => std::future::pending().await,
        },
    }
}
