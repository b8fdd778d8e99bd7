//! A request to stop, in two degrees.

use tokio_util::sync::CancellationToken;

/// Asks the road to end: first gently, then at once.
///
/// Gently: nothing new is dispatched and reads are dropped, while calls with an effect are waited for. At once: those are
/// given up too, and become unknown.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    gentle: CancellationToken,
    at_once: CancellationToken,
}

impl StopSignal {
    /// A signal that is asked for with this one, and can be asked for alone.
    pub(crate) fn below(&self) -> Self {
        Self { gentle: self.gentle.child_token(), at_once: self.at_once.child_token() }
    }

    /// Asks to stop gently.
    pub fn stop_gently(&self) {
        self.gentle.cancel();
    }

    /// Asks to stop at once.
    pub fn stop_at_once(&self) {
        self.gentle.cancel();
        self.at_once.cancel();
    }

    /// Whether any stop was asked for.
    pub fn is_stopping(&self) -> bool {
        self.gentle.is_cancelled()
    }

    /// Waits until a stop was asked for.
    pub async fn stopping(&self) {
        self.gentle.cancelled().await;
    }

    /// Waits until a stop at once was asked for.
    pub async fn stopping_at_once(&self) {
        self.at_once.cancelled().await;
    }
}
