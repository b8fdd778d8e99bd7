//! The wait before something that is away is tried again: the model's provider, or a tool server, in the middle of a run or when a process takes
//! it.
//!
//! Every wait is told before it begins, can be ended by a signal at once and by a person within half a second, and is time in which the run is held.
//! Proved by: `ua-runner`'s `granular::away`, and the tests below.

use std::time::Duration;

use ua_core::{Env, chain, span_in_words};
use ua_dispatch::{StopSignal, TransportError};
use ua_store::{EndMark, RunLease, RunStore as _, Store};

use crate::budget::Limits;
use crate::error::RunError;
use crate::retry::{NextTry, RetryPolicy, TooLong, Tries};
use crate::watch::{RunEvent, Watcher};

/// How often a wait looks whether somebody asked to end the run.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What ends a wait before it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A signal.
    Interrupted,
    /// A person said that the run is to end.
    Marked(EndMark),
    /// The run's time is used up.
    OutOfTime {
        /// It was held for so long.
        held_millis: u64,
    },
}

/// What is looked at while a wait passes.
pub(crate) struct Lookout<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) lease: &'a RunLease,
    pub(crate) env: &'a Env,
    pub(crate) stop: &'a StopSignal,
}

impl Lookout<'_> {
    /// Lets a wait pass; what ended it, if something did. `used_up` says for how long the run was held, once that is all the time it has.
    pub(crate) async fn sit_out(
        &self,
        wait: Duration,
        used_up: impl Fn() -> Option<u64>,
    ) -> Result<Option<Cut>, RunError> {
        let mut left = wait;
        while !left.is_zero() {
            let piece = left.min(LOOK_EVERY);
            tokio::select! {
                biased;
                () = self.stop.stopping() => return Ok(Some(Cut::Interrupted)),
                () = self.env.clock.sleep(piece) => left -= piece,
            }
            // A wait may be long, and a process that is killed in it held the run all the same.
            let alive = self.store.note_alive(self.lease, Duration::ZERO, self.env.now()).await;
            alive.map_err(RunError::at("say that the run is driven"))?;
            let run = self.store.run(&self.lease.run_id).await.map_err(RunError::at("read the run"))?;
            if let Some(mark) = run.end_mark() {
                return Ok(Some(Cut::Marked(mark)));
            }
            if let Some(held_millis) = used_up() {
                return Ok(Some(Cut::OutOfTime { held_millis }));
            }
        }
        Ok(None)
    }
}

/// How often a tool server could not be reached, and for how long.
#[derive(Debug, Default)]
pub(crate) struct Away {
    tries: Tries,
}

/// Why a tool server is not waited for any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// What it says, or what is wrong with it, does not pass by waiting: whoever waited for it hears that only now.
    Final,
    /// All of the patience was waited for.
    PatienceOver,
    /// The next wait would be longer than what is left of the patience, or of the run's time.
    TooLong(TooLong),
}

/// A wait before a tool server is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    pub(crate) wait: Duration,
    /// How long may still be waited after it.
    pub(crate) left: Duration,
}

impl Away {
    /// One more try found it away, and took so long to find out. The wait before the next one, or why there is none: it was away for too long,
    /// or would be for longer than what is left of the run's time.
    pub(crate) fn again(
        &mut self,
        took: Duration,
        retry: &RetryPolicy,
        random: u64,
        time_left: Option<Duration>,
    ) -> Result<Pause, GivenUp> {
        self.tries = self.tries.and_away(took);
        match retry.after_server(&self.tries, random, time_left) {
            NextTry::After(wait) => Ok(Pause { wait, left: retry.left(&self.tries).saturating_sub(wait) }),
            // This is one try at least, so nothing is left of the patience.
            NextTry::Never => Err(GivenUp::PatienceOver),
            NextTry::TooLong(too_long) => Err(GivenUp::TooLong(too_long)),
        }
    }

    /// Tells that it is waited for, and counts the wait as one that passes.
    pub(crate) fn tell(
        &mut self,
        watcher: &Watcher,
        error: &TransportError,
        pause: Pause,
        ends_in_millis: Option<u64>,
    ) {
        // The watcher tells people; twice would be once too often.
        tracing::debug!(attempt = self.tries.attempts, %error, "a tool server is away, trying again");
        watcher(RunEvent::ToolServerAway {
            was_sent: matches!(error, TransportError::NotReached { .. } | TransportError::Elsewhere { .. }),
            attempt: self.tries.attempts,
            why: chain(error),
            wait_millis: in_millis(pause.wait),
            left_millis: in_millis(pause.left),
            ends_in_millis,
        });
        self.tries.waited = self.tries.waited.saturating_add(pause.wait);
    }

    /// Why it is given up: with how long it was waited for, and what would have it waited for longer, or that nothing would.
    pub(crate) fn in_words(&self, why: &str, given_up: GivenUp, limits: &Limits) -> String {
        let waited = self.tries.waited;
        let span = span_in_words(waited);
        match given_up {
            GivenUp::TooLong(too_long) if waited.is_zero() => limits.wait_is_too_long(why, &too_long),
            GivenUp::TooLong(too_long) => {
                limits.wait_is_too_long(&format!("{why}; it was waited for, for {span}"), &too_long)
            }
            GivenUp::Final | GivenUp::PatienceOver if waited.is_zero() => why.to_owned(),
            // Whoever had waited for all of it knows now what it was that ended.
            GivenUp::PatienceOver => {
                format!("{why}; it was waited for, for {span}, as long as `max_provider_wait_minutes` allows")
            }
            GivenUp::Final => {
                format!("{why}; it had been away for {span} before, and this ends the wait, since no wait changes it")
            }
        }
    }
}

/// A span as watchers are told it.
pub(crate) fn in_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_waited_for_as_long_as_the_patience_and_the_time_last() {
        let retry = RetryPolicy::default().within(Duration::from_secs(10));
        let limits = Limits::default();
        let mut away = Away::default();
        assert_eq!(away.in_words("gone", GivenUp::PatienceOver, &limits), "gone");
        assert_eq!(away.in_words("no", GivenUp::Final, &limits), "no");
        let first = away.again(Duration::ZERO, &retry, 0, None).unwrap();
        assert_eq!(first, Pause { wait: Duration::from_millis(500), left: Duration::from_millis(9_500) });
        let watcher: Watcher = std::sync::Arc::new(|_| {});
        let error = TransportError::Away { server: "mail".to_owned(), why: "HTTP 503".to_owned() };
        away.tell(&watcher, &error, first, None);
        assert_eq!(
            away.in_words("gone", GivenUp::PatienceOver, &limits),
            "gone; it was waited for, for 1 s, as long as `max_provider_wait_minutes` allows"
        );
        // No patience is used up by what no wait changes.
        assert_eq!(
            away.in_words("HTTP status 401", GivenUp::Final, &limits),
            "HTTP status 401; it had been away for 1 s before, and this ends the wait, since no wait changes it"
        );
        // The next one is longer, and begun only where it is over before the run's time is.
        assert_eq!(away.again(Duration::ZERO, &retry, 0, None).unwrap().wait, Duration::from_secs(1));
        let left = Some(Duration::from_millis(2_001));
        assert_eq!(away.again(Duration::ZERO, &retry, 0, left).unwrap().wait, Duration::from_secs(2));
        for left in [Duration::ZERO, Duration::from_secs(4)] {
            let too_long = away.again(Duration::ZERO, &retry, 0, Some(left)).unwrap_err();
            assert!(matches!(too_long, GivenUp::TooLong(_)), "{too_long:?}");
            let words = away.in_words("gone", too_long, &limits);
            assert!(words.ends_with("or have it wait: `--max-wallclock-minutes +2`."), "{words}");
        }
        assert_eq!(away.again(Duration::from_secs(10), &retry, 0, None), Err(GivenUp::PatienceOver));
    }
}
