//! Lines that say that something is still being done, where nothing moves on a screen: in a pipe, a log, a plain terminal. Silence that goes on
//! is told from a process that hangs.
//!
//! A line comes after a silence, and each silence may be twice as long as the one before, up to a minute. Whatever else is told begins anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use ua_core::{Env, Timestamp, busy_with, span_in_words};
use ua_host::progress::clock;

use crate::output::{line, tell};

/// The longest silence.
const LONGEST: Duration = Duration::from_mins(1);
/// The longest that is told of what is waited for, in characters.
const LONGEST_WAIT: usize = 400;
/// What takes no longer has no name.
const SHORT_WAIT: Duration = Duration::from_secs(1);
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Says what is being done for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Still {
    silence: Arc<Mutex<Silence>>,
    task: AbortHandle,
    env: Env,
}

/// How long nothing was told.
#[derive(Debug)]
struct Silence {
    /// What is being done; empty where only what takes long is told.
    doing: String,
    /// What it does: it runs, or waits.
    verb: &'static str,
    /// What somebody should know who waits for it, behind how long it takes.
    note: &'static str,
    began_at: Timestamp,
    /// Since when that is being done.
    doing_from: Timestamp,
    told_at: Timestamp,
    /// The first silence that is broken.
    shortest: Duration,
    /// How long this one may be.
    most: Duration,
    /// Until when nothing happens, which was told.
    quiet_until: Option<Timestamp>,
}

impl Still {
    /// Begins with `doing`; empty where only what takes long by itself is told. Silences up to `shortest` are left alone.
    pub(crate) fn start(env: &Env, doing: &str, shortest: Duration) -> Self {
        let now = env.now();
        let silence = Arc::new(Mutex::new(Silence::new(doing, now, shortest)));
        let (watched, its_env) = (silence.clone(), env.clone());
        let task = tokio::spawn(async move {
            loop {
                its_env.clock.sleep(LOOK_EVERY).await;
                let busy = busy_with(shortest.min(SHORT_WAIT)).map(|busy| line(&busy, LONGEST_WAIT));
                let text = lock(&watched).line_at(its_env.now(), busy.as_deref());
                if let Some(text) = text.filter(|_| !crate::terminal::is_held()) {
                    tell(text);
                }
            }
        });
        Self { silence, task: task.abort_handle(), env: env.clone() }
    }

    /// Something else is being done now.
    pub(crate) fn doing(&self, doing: String, verb: &'static str, note: &'static str) {
        let mut silence = lock(&self.silence);
        (silence.verb, silence.note) = (verb, note);
        if silence.doing != doing {
            silence.doing = doing;
            silence.doing_from = self.env.now();
        }
    }

    /// It was told for how long nothing happens from now on; `None` where something does.
    pub(crate) fn quiet_for(&self, wait: Option<Duration>) {
        lock(&self.silence).quiet_until = wait.map(|wait| self.env.now().plus(wait));
    }

    /// Something was told just now.
    pub(crate) fn told(&self) {
        let mut silence = lock(&self.silence);
        silence.told_at = self.env.now();
        silence.most = silence.shortest;
    }

    /// What was told just now is so for a while, and needs no other line soon.
    pub(crate) fn seldom(&self) {
        lock(&self.silence).most = LONGEST;
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(silence: &Mutex<Silence>) -> MutexGuard<'_, Silence> {
    silence.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Silence {
    fn new(doing: &str, now: Timestamp, shortest: Duration) -> Self {
        Self {
            doing: doing.to_owned(),
            verb: "running",
            note: "",
            began_at: now,
            doing_from: now,
            told_at: now,
            shortest,
            most: shortest,
            quiet_until: None,
        }
    }

    /// The line that breaks a silence that was long enough, with what the process is `busy` with, if that is known.
    fn line_at(&mut self, now: Timestamp, busy: Option<&str>) -> Option<String> {
        if self.quiet_until.is_some_and(|until| now < until) {
            return None;
        }
        if now.since(self.told_at) < self.most || (self.doing.is_empty() && busy.is_none()) {
            return None;
        }
        self.told_at = now;
        self.most = (self.most * 2).min(LONGEST);
        // Both numbers are of whole seconds that are over, or one line would contradict itself.
        let so_far = Duration::from_secs(now.since(self.doing_from).as_secs());
        let (elapsed, so_far) = (clock(now.since(self.began_at)), span_in_words(so_far));
        let still = format!("[{elapsed}] {} · still {} after {so_far}{}", self.doing, self.verb, self.note);
        Some(match busy {
            Some(busy) if self.doing.is_empty() => format!("[{elapsed}] {busy}"),
            Some(busy) => format!("{still}: {busy}"),
            None => still,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_are_broken_and_grow_up_to_a_minute() {
        let start = ua_core::Env::simulated(1).now();
        let mut silence = Silence::new("turn 1 · run_command", start, Duration::from_secs(2));
        let at = |seconds: u64| start.plus(Duration::from_secs(seconds));
        let told: Vec<(u64, String)> =
            (1..=300).filter_map(|second| Some((second, silence.line_at(at(second), None)?))).collect();
        let seconds: Vec<u64> = told.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [2, 6, 14, 30, 62, 122, 182, 242]);
        assert_eq!(told[0].1, "[00:02] turn 1 · run_command · still running after 2 s");
        // Looked at a little late.
        let mut silence = Silence::new("turn 1 · run_command", start, Duration::from_secs(2));
        let late = silence.line_at(start.plus(Duration::from_millis(2_700)), None);
        assert_eq!(late.as_deref(), Some("[00:02] turn 1 · run_command · still running after 2 s"));
    }

    #[test]
    fn nothing_is_said_while_it_was_said_that_nothing_happens() {
        let start = ua_core::Env::simulated(1).now();
        let at = |seconds: u64| start.plus(Duration::from_secs(seconds));
        let mut silence = Silence::new("turn 1 · waiting", start, Duration::from_secs(2));
        silence.quiet_until = Some(at(75));
        let told: Vec<u64> = (1..=90).filter(|second| silence.line_at(at(*second), Some("busy")).is_some()).collect();
        assert_eq!(told, [75, 79, 87]);
    }

    #[test]
    fn what_is_waited_for_is_named() {
        let start = ua_core::Env::simulated(1).now();
        let at = |seconds: u64| start.plus(Duration::from_secs(seconds));
        let busy = Some("waiting for tool server `mail` to start (3 s so far, at most 30 s)");
        let mut silence = Silence::new("starting", start, Duration::from_secs(2));
        let told = silence.line_at(at(3), busy);
        let named = "[00:03] starting · still running after 3 s: waiting for tool server `mail` to start (3 s so far, at most 30 s)";
        assert_eq!(told.as_deref(), Some(named));
        // A command that does nothing else that takes long says nothing else, as soon as there is something to say.
        let mut silence = Silence::new("", start, Duration::from_secs(2));
        assert_eq!(silence.line_at(at(60), None), None);
        let told = silence.line_at(at(61), busy);
        assert_eq!(told.as_deref(), Some("[01:01] waiting for tool server `mail` to start (3 s so far, at most 30 s)"));
    }
}
