//! The fence of a server that cannot be killed: waiting.
//!
//! Durable Jobs v1 spec §8.3. A process of ours is proved to be gone; a remote server is not ours to end. What is known is
//! only that a request which it did not begin within the *horizon* is taken to be never begun. The horizon is counted from
//! the moment at which the attempt was given up. An attempt of an earlier process was given up when that process ended at the latest, so for
//! it the start of this process counts, or what is recorded with the attempt: the wall clock of then, which somebody may have set since, and
//! which therefore counts half, and no more than is known to have passed since where a clock keeps that ([`Env::time`]). Otherwise a wall clock
//! has no say in it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ua_core::{Env, Timestamp};
use ua_dispatch::MayAct;

/// What the names of remote generations begin with; a lock file's generation never does.
const MARK: &str = "http-";
/// What is unique of a generation of which nobody knows which it was.
pub const UNKNOWN: &str = "unknown";

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

    /// How long until the horizon of an attempt on the generation has passed. `lost_at` is from when on nobody waited for it any more, where
    /// that is recorded.
    pub fn left(&self, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        let from = self.times().get(generation).copied().unwrap_or(self.started_at);
        let own = self.span.saturating_sub(self.env.clock.uptime().saturating_sub(from));
        let recorded = lost_at.map(|lost_at| self.recorded(lost_at));
        recorded.map_or(own, |recorded| recorded.min(own))
    }

    /// The same by what is recorded.
    fn recorded(&self, lost_at: Timestamp) -> Duration {
        let time = self.env.time();
        let half = self.span.saturating_sub(time.now().since(lost_at) / 2);
        half.max(time.end_of(lost_at, self.span).since(time.now())).min(self.span)
    }

    /// What may still come of an attempt that another process may have sent. One whose end is not recorded is followed, or nobody has said since when it
    /// is not; how long this process is there says nothing of it.
    pub fn of_another(&self, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        let Some(ended_at) = ended_at else { return MayAct::Yes };
        let recorded = self.recorded(ended_at);
        let is_own = self.times().contains_key(generation);
        let left = if is_own { self.left(generation, Some(ended_at)) } else { recorded };
        if left.is_zero() { MayAct::No } else { MayAct::For(left) }
    }

    /// Waits that long.
    pub async fn pass(&self, generation: &str, lost_at: Option<Timestamp>) {
        let left = self.left(generation, lost_at);
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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use ua_core::{Clock, Looks, SeededEntropy, SimClock, Sleep, Time};

    use super::*;

    const SPAN: Duration = Duration::from_secs(30);

    /// A clock that somebody sets, where it is kept how it was seen.
    #[derive(Debug, Default)]
    struct Kept {
        passes: SimClock,
        ahead: AtomicI64,
        looks: Mutex<Looks>,
    }

    impl Clock for Kept {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.passes.now().as_millis() + self.ahead.load(Ordering::SeqCst))
        }

        fn uptime(&self) -> Duration {
            self.passes.uptime()
        }

        fn kept_time(&self) -> Option<Time> {
            let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
            looks.look("boot", self.uptime(), self.now());
            Some(looks.time("boot", self.now()))
        }

        fn sleep(&self, span: Duration) -> Sleep {
            self.passes.sleep(span)
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_set_between_two_processes_makes_nothing_pass() {
        for (ahead, seconds) in [(0, 25), (31_000, 26), (120_000, 26), (3_600_000, 26), (-60_000, 30)] {
            let clock = Arc::new(Kept::default());
            let env = Env { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(1)) };
            env.time();
            let lost_at = env.now();
            env.clock.sleep(Duration::from_secs(4)).await;
            clock.ahead.store(ahead, Ordering::SeqCst);
            let later = Horizon::new(SPAN, env.clone());
            let left = later.left("http-earlier", Some(lost_at));
            assert!(left >= Duration::from_secs(seconds), "{ahead}: {left:?}");
            let MayAct::For(left) = later.of_another("http-earlier", Some(lost_at)) else { panic!("{ahead}") };
            assert!(left >= Duration::from_secs(seconds), "{ahead}: {left:?}");
        }
    }

    async fn waited(horizon: &Horizon, env: &Env, generation: &str) -> Duration {
        waited_since(horizon, env, generation, None).await
    }

    async fn waited_since(horizon: &Horizon, env: &Env, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        let before = env.now();
        horizon.pass(generation, lost_at).await;
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

    /// A run that is resumed again and again to answer one question waits once.
    #[tokio::test]
    async fn what_is_recorded_of_an_attempt_counts_in_every_later_process() {
        let env = Env::simulated(1);
        let lost_at = Some(env.now());
        env.clock.sleep(Duration::from_secs(20)).await;
        let second = Horizon::new(SPAN, env.clone());
        assert_eq!(
            second.left("http-earlier", lost_at),
            Duration::from_secs(20),
            "what the wall clock says counts half"
        );
        env.clock.sleep(Duration::from_secs(40)).await;
        let third = Horizon::new(SPAN, env.clone());
        assert_eq!(waited_since(&third, &env, "http-earlier", lost_at).await, Duration::ZERO);
        assert_eq!(waited(&third, &env, "http-earlier").await, SPAN, "another attempt, of which nothing is recorded");
        let fourth = Horizon::new(SPAN, env.clone());
        // A clock that was set back makes it wait longer, never less.
        let later = Some(env.now().plus(Duration::from_hours(1)));
        assert_eq!(fourth.left("http-earlier", later), SPAN);
    }
}
