//! Signals: the first asks to stop and lets effects finish, the second ends the process at once.
//!
//! What has come back and is in nobody's hands but this process's outlasts the drain time of a person's signal: nothing but a second one, or its
//! own time, gives it up. A service manager that sent SIGTERM kills behind it, so there the drain time is all that there is.
//!
//! Durable runner, current state §4 (debounced interrupt checkpoint).
//! Invariants: what a signal does waits for nothing that is said of it, nor for anything else of this process: a thread of its own listens, and
//! what tells people runs on another. A terminal that went away or stands still keeps no process.
//! Proved by: the tests below; `ua-e2e`'s `ctrl_c`.

use std::io;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use ua_core::Env;
use ua_dispatch::StopSignal;
use ua_store::EndedBy;

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

/// What a first signal leaves time for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    /// How long calls with an effect are waited for.
    pub time: Duration,
    /// Whether an answer that is stored nowhere is given up with them.
    pub is_all: bool,
}

/// What SIGHUP is to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HangUp {
    /// Its terminal went away: a run stops.
    Stops,
    /// Whoever started the process said that it outlives its terminal (`nohup`): nothing.
    IsIgnored,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// SIGINT.
    Interrupt,
    /// SIGHUP.
    HangUp,
    /// SIGTERM.
    Terminate,
}

impl From<Asked> for EndedBy {
    fn from(asked: Asked) -> Self {
        match asked {
            Asked::Interrupt => Self::Interrupt,
            Asked::HangUp => Self::HangUp,
            Asked::Terminate => Self::Terminate,
        }
    }
}

/// The signals that ask a run to stop.
#[derive(Debug)]
pub struct Interrupts {
    int: Signal,
    term: Signal,
    /// `None` where it is ignored: it is at work again in a process that has listened for it once.
    hup: Option<Signal>,
}

impl Interrupts {
    /// Takes over SIGINT, SIGTERM and SIGHUP of this process, for ever, and turns them into `stop`: the first stops gently and, after the drain
    /// time, waits for no call any longer, behind SIGTERM for nothing. SIGHUP is left alone where `hang_up` says so. `first` is told what there is
    /// time for, on a thread of its own. `again` is called on the second, with it, and is expected to end the process.
    ///
    /// # Errors
    ///
    /// The system gives no thread, or does not tell of signals; then they are as they were.
    pub fn watch(
        stop: StopSignal,
        drain: DrainTimes,
        env: Env,
        hang_up: HangUp,
        first: impl FnOnce(Drain) + Send + 'static,
        again: impl FnOnce(EndedBy) + Send + 'static,
    ) -> io::Result<()> {
        let (listens, is_listening) = channel();
        let watching = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(listens.send(Err(error))),
            };
            runtime.block_on(async move {
                let mut signals = match Self::listen(hang_up) {
                    Ok(signals) => signals,
                    Err(error) => return drop(listens.send(Err(error))),
                };
                listens.send(Ok(())).ok();
                again(stopped_twice(async || signals.next().await, &stop, drain, &env, first).await);
            });
        };
        thread::Builder::new().name("ua-signals".to_owned()).spawn(watching)?;
        is_listening.recv().map_err(|_| io::Error::other("the thread that listens for them ended"))?
    }

    fn listen(hang_up: HangUp) -> io::Result<Self> {
        let hup = (hang_up == HangUp::Stops).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: hup.transpose()?,
        })
    }

    async fn next(&mut self) -> Asked {
        let hung_up = async {
            match &mut self.hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.int.recv() => Asked::Interrupt,
            _ = hung_up => Asked::HangUp,
            _ = self.term.recv() => Asked::Terminate,
        }
    }
}

/// Stops gently at the first signal, and harder after the drain time; ends at the second signal, and returns it.
async fn stopped_twice(
    mut next: impl AsyncFnMut() -> Asked,
    stop: &StopSignal,
    drain: DrainTimes,
    env: &Env,
    first: impl FnOnce(Drain) + Send + 'static,
) -> EndedBy {
    let drain = match next().await {
        Asked::Interrupt | Asked::HangUp => Drain { time: drain.interrupt, is_all: false },
        Asked::Terminate => Drain { time: drain.terminate, is_all: true },
    };
    stop.stop_gently();
    // Whoever says it may fail, or wait for a reader for ever. Without a thread nobody is told, and the process stops all the same.
    thread::Builder::new().name("ua-stopping".to_owned()).spawn(move || first(drain)).ok();
    tokio::select! {
        biased;
        asked = next() => return asked.into(),
        () = env.clock.sleep(drain.time) => {}
    }
    if drain.is_all {
        stop.stop_at_once();
    } else {
        stop.give_up_calls();
    }
    next().await.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches these signals, with a `first` that does this. Says by what the process was to end, if calls were not given up, after how long, by
    /// the clock, and whether everything was.
    async fn watched(
        signals: &[Asked],
        first: impl FnOnce(Drain) + Send + 'static,
    ) -> (Option<EndedBy>, Duration, bool) {
        let (stop, env) = (StopSignal::default(), Env::simulated(1));
        let mut signals = signals.iter();
        let next = async || match signals.next() {
            Some(asked) => *asked,
            None => std::future::pending().await,
        };
        let began = env.now();
        let ends_by = tokio::select! {
            biased;
            by = stopped_twice(next, &stop, DrainTimes::default(), &env, first) => Some(by),
            () = stop.giving_up_calls() => None,
        };
        assert!(stop.is_stopping());
        (ends_by, env.now().since(began), stop.is_stopping_at_once())
    }

    #[tokio::test]
    async fn what_is_said_at_the_first_signal_keeps_neither_the_second_nor_the_drain_time() {
        for (asked, time, is_all) in
            [(Asked::Interrupt, 30, false), (Asked::HangUp, 30, false), (Asked::Terminate, 8, true)]
        {
            let (never, until) = channel::<()>();
            let still = move |_| {
                until.recv().ok();
            };
            assert_eq!(watched(&[asked], still).await, (None, Duration::from_secs(time), is_all));
            drop(never);
            // A second signal, where the first cannot be told of at all.
            for again in [Asked::Interrupt, Asked::HangUp, Asked::Terminate] {
                let gone = |_| panic!("the terminal is gone");
                let ends_by = watched(&[asked, again], gone).await.0;
                assert_eq!(ends_by, Some(again.into()), "the process ends at the second signal");
            }
        }
    }
}
