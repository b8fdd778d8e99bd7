//! Signals: the first asks to stop and lets effects finish, the second ends the process at once.
//!
//! Durable runner, current state §4 (debounced interrupt checkpoint).

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use ua_core::Env;
use ua_dispatch::StopSignal;

/// How long calls with an effect are waited for after a first signal.
#[derive(Debug, Clone, Copy)]
pub struct DrainTimes {
    /// After SIGINT or SIGHUP.
    pub interrupt: Duration,
    /// After SIGTERM, whose sender usually kills soon.
    pub terminate: Duration,
}

impl Default for DrainTimes {
    fn default() -> Self {
        Self { interrupt: Duration::from_secs(30), terminate: Duration::from_secs(8) }
    }
}

/// The signals that ask a run to stop.
pub struct Interrupts {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Interrupts {
    /// Takes over SIGINT, SIGTERM and SIGHUP of this process.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// Turns signals into `stop`, for ever: the first stops gently and, after the drain time, at once; `first` is told that time. `again` is
    /// called on the second and is expected to end the process.
    pub async fn watch(
        mut self,
        stop: StopSignal,
        drain: DrainTimes,
        env: Env,
        first: impl FnOnce(Duration) + Send,
        again: impl FnOnce() + Send,
    ) {
        let time = tokio::select! {
            _ = self.int.recv() => drain.interrupt,
            _ = self.hup.recv() => drain.interrupt,
            _ = self.term.recv() => drain.terminate,
        };
        stop.stop_gently();
        first(time);
        let drained = async {
            env.clock.sleep(time).await;
            stop.stop_at_once();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = drained => {}
            _ = self.int.recv() => {}
            _ = self.hup.recv() => {}
            _ = self.term.recv() => {}
        }
        again();
    }
}
