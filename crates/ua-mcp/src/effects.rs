//! The calls with an effect that are under way in one process of a tool server.
//!
//! A process is ended to prove that nothing more will come of a call that got no answer. Every other call in it ends with it, and one with an effect
//! is in doubt from then on, although nothing was wrong with it. So such calls are counted, and waited for within a limit ([`LONGEST_FOR_OTHERS`]).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use ua_core::{Env, Timestamp};

/// How long a process is kept for calls with effects that are under way in it, when another call needs it ended.
pub const LONGEST_FOR_OTHERS: Duration = Duration::from_mins(2);

/// What these read when it was ended all the same.
pub const ENDED_FOR_ANOTHER: &str =
    "the tool server was ended before it answered, because another call had got no answer from it";

/// How many calls with an effect are under way in a process.
#[derive(Debug, Clone, Default)]
pub struct Effects(Arc<watch::Sender<usize>>);

/// A call with an effect is under way, until this is dropped.
#[derive(Debug)]
pub struct EffectUnderWay(Effects);

impl Effects {
    /// One more.
    pub fn one(&self) -> EffectUnderWay {
        self.0.send_modify(|count| *count += 1);
        EffectUnderWay(self.clone())
    }

    /// Whether any is.
    pub fn are_under_way(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until none is, or until `until`.
    pub async fn over(&self, until: Timestamp, env: &Env) {
        if !self.are_under_way() {
            return;
        }
        let mut count = self.0.subscribe();
        tokio::select! {
            biased;
            // The sender is held here, so the wait ends with none.
            _none = count.wait_for(|count| *count == 0) => {}
            () = env.clock.sleep(until.since(env.now())) => {}
        }
    }
}

impl Drop for EffectUnderWay {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn they_are_waited_for_until_they_are_over_or_it_takes_too_long() {
        let env = Env::simulated(1);
        let (effects, until) = (Effects::default(), env.now().plus(LONGEST_FOR_OTHERS));
        effects.over(until, &env).await;
        assert_eq!(env.now(), until.minus(LONGEST_FOR_OTHERS), "nothing is waited for");
        let (one, other) = (effects.one(), effects.clone().one());
        drop(one);
        assert!(effects.are_under_way());
        effects.over(until, &env).await;
        assert_eq!((env.now(), effects.are_under_way()), (until, true), "not for ever");
        drop(other);
        assert!(!effects.are_under_way());
    }
}
