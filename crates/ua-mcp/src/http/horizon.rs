//! The fence of a server that cannot be killed: waiting.
//!
//! Durable Jobs v1 spec §8.3. A process of ours is proved to be gone; a remote server is not ours to end. What is known is
//! only that a request which it did not begin within the *horizon* is taken to be never begun. The horizon is counted from
//! the moment at which this process gave the attempt up. An attempt of an earlier process was given up when that process
//! ended at the latest, so for it the start of this process counts. A wall clock that somebody sets has no say in it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ua_core::Env;

/// What the names of remote generations begin with; a lock file's generation never does.
const MARK: &str = "http-";

/// When attempts on remote servers were given up, and how long to wait from then on.
#[derive(Debug)]
pub struct Horizon {
    span: Duration,
    env: Env,
    started_at: Duration,
    given_up_at: Mutex<BTreeMap<String, Duration>>,
}

impl Horizon {
    /// A horizon of `span` in a process that starts now.
    pub fn new(span: Duration, env: Env) -> Self {
        Self { span, started_at: env.clock.uptime(), env, given_up_at: Mutex::default() }
    }

    /// The name of a generation of a remote server: a connection of this process, not a process of its own.
    pub fn generation(unique: &str) -> String {
        format!("{MARK}{unique}")
    }

    /// Whether a generation is one of a remote server. Asked of the name, because the configuration may have changed.
    pub fn is_remote(generation: &str) -> bool {
        generation.starts_with(MARK)
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<String, Duration>> {
        self.given_up_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An attempt on this generation was given up now, as far as it is one of a remote server.
    pub fn given_up(&self, generation: &str) {
        if Self::is_remote(generation) {
            let now = self.env.clock.uptime();
            self.times().insert(generation.to_owned(), now);
        }
    }

    /// Watches over one attempt: if it is dropped before it is over, that is when the attempt was given up.
    pub(crate) fn watch<'a>(&'a self, generation: &'a str) -> Watch<'a> {
        Watch { horizon: self, generation, is_over: false }
    }

    /// Waits until the horizon of the generation's last given up attempt has passed.
    pub async fn pass(&self, generation: &str) {
        let from = self.times().get(generation).copied().unwrap_or(self.started_at);
        let left = self.span.saturating_sub(self.env.clock.uptime().saturating_sub(from));
        if !left.is_zero() {
            tracing::info!(generation, seconds = left.as_secs_f64(), "waiting for the horizon of a remote tool server");
            self.env.clock.sleep(left).await;
        }
    }
}

/// One attempt in flight.
pub(crate) struct Watch<'a> {
    horizon: &'a Horizon,
    generation: &'a str,
    is_over: bool,
}

impl Watch<'_> {
    /// Somebody else says how the attempt ended.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.horizon.given_up(self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_secs(30);

    async fn waited(horizon: &Horizon, env: &Env, generation: &str) -> Duration {
        let before = env.now();
        horizon.pass(generation).await;
        env.now().since(before)
    }

    #[tokio::test]
    async fn a_lost_attempt_is_waited_for_from_its_loss_and_an_earlier_process_from_our_start() {
        let env = Env::simulated(1);
        let horizon = Horizon::new(SPAN, env.clone());
        env.clock.sleep(Duration::from_secs(10)).await;
        drop(horizon.watch("http-mine"));
        horizon.watch("http-mine").over();
        env.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(waited(&horizon, &env, "http-earlier").await, Duration::from_secs(15));
        assert_eq!(waited(&horizon, &env, "http-mine").await, Duration::from_secs(10));
        assert_eq!(waited(&horizon, &env, "http-mine").await, Duration::ZERO);
        drop(horizon.watch("http-mine"));
        assert_eq!(waited(&horizon, &env, "http-mine").await, SPAN, "the last loss counts");
    }
}
