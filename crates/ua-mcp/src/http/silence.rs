//! A session that was silent for a while is looked at before a call goes there that may not simply be made again.
//!
//! A server that was restarted knows none of its earlier sessions, and says so of whatever comes in one. Said of a call it proves nothing: who says
//! it may not be who got the call. So a request that does nothing finds out first, and the call is posted in a session that is known.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use ua_core::Env;

use super::endpoint::{Endpoint, Failure};
use super::reading::{refusal, says_session_is_over};

/// From how long a silence on a session is looked at. A server takes about as long to be stopped and started again, and a call right behind an
/// answer is not worth a round trip of its own.
const LONG: Duration = Duration::from_secs(5);
/// How long the answer may take. Who does not know a session says so at once, and who is slow about it is sent the call as if nobody had asked.
const PATIENCE: Duration = Duration::from_secs(2);

/// Since when nothing has come from the other side.
#[derive(Debug, Default)]
pub(super) struct Silence(Mutex<Option<Duration>>);

impl Silence {
    /// Something came just now.
    pub(super) fn broken(&self, env: &Env) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(env.clock.uptime());
    }

    /// Whether it has lasted long.
    pub(super) fn is_long(&self, env: &Env) -> bool {
        let since = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.is_none_or(|since| env.clock.uptime().saturating_sub(since) >= LONG)
    }

    /// Posts a `ping`, of these headers, this body and this id, and says why nothing more can be sent in its session, if nothing can.
    pub(super) async fn look(
        &self,
        endpoint: &Endpoint,
        (headers, body, id): (HeaderMap, Vec<u8>, Value),
        env: &Env,
    ) -> Option<String> {
        let asked = async {
            match endpoint.post(headers, body).await {
                Ok(response) if response.status().is_success() => None,
                Ok(response) => {
                    let status = response.status();
                    let is_over = says_session_is_over(status, &refusal(response, env).await, &id);
                    is_over.then(|| format!("its session is over (HTTP status {status})"))
                }
                Err(Failure::NotSent(why)) => Some(why),
                Err(Failure::Lost(_)) => None,
            }
        };
        let ended = tokio::select! {
            biased;
            ended = asked => ended,
            () = env.clock.sleep(PATIENCE) => None,
        };
        // Whatever came of it: one look is enough for what is sent now.
        self.broken(env);
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_long_until_something_comes_and_from_five_seconds_behind_that() {
        let (env, silence) = (Env::simulated(1), Silence::default());
        assert!(silence.is_long(&env), "nothing has come yet");
        silence.broken(&env);
        assert!(!silence.is_long(&env));
        env.clock.sleep_blocking_for_tests(Duration::from_millis(4_999));
        assert!(!silence.is_long(&env));
        env.clock.sleep_blocking_for_tests(Duration::from_millis(1));
        assert!(silence.is_long(&env));
        silence.broken(&env);
        assert!(!silence.is_long(&env));
    }
}
