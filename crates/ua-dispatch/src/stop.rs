//! A request to stop, in three degrees.

use tokio_util::sync::CancellationToken;

/// Asks the road to end: first gently, then at once.
///
/// Gently: nothing new is dispatched and reads are dropped, while calls with an effect are waited for. Without waiting for calls: those are given
/// up too, and become unknown; what has come back, and is in nobody's hands but this process's, is stored all the same, however long the
/// database has no room for it. At once: that is given up as well.
#[derive(Debug, Clone, Default)]
pub struct StopSignal {
    gentle: CancellationToken,
    calls: CancellationToken,
    at_once: CancellationToken,
}

impl StopSignal {
    /// A signal that is asked for with this one, and can be asked for alone.
    pub(crate) fn below(&self) -> Self {
        Self { gentle: self.gentle.child_token(), calls: self.calls.child_token(), at_once: self.at_once.child_token() }
    }

    /// Asks to stop gently.
    pub fn stop_gently(&self) {
        self.gentle.cancel();
    }

    /// Asks to wait for no call any longer.
    pub fn give_up_calls(&self) {
        self.gentle.cancel();
        self.calls.cancel();
    }

    /// Asks to stop at once.
    pub fn stop_at_once(&self) {
        self.give_up_calls();
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

    /// Whether calls are not to be waited for any longer.
    pub fn is_giving_up_calls(&self) -> bool {
        self.calls.is_cancelled()
    }

    /// Waits until calls are not to be waited for any longer.
    pub async fn giving_up_calls(&self) {
        self.calls.cancelled().await;
    }

    /// Whether a stop at once was asked for.
    pub fn is_stopping_at_once(&self) -> bool {
        self.at_once.is_cancelled()
    }

    /// Waits until a stop at once was asked for.
    pub async fn stopping_at_once(&self) {
        self.at_once.cancelled().await;
    }
}
