//! When the model is asked again, and how long the run waits before.
//!
//! Granular Execution PRD §6: each try is a request of its own, with its own reservation. This is the only retry layer
//! between the run and the model.

use std::time::Duration;

use ua_store::RequestEnd;

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThinkFailure {
    /// In a few words.
    pub why: String,
    /// In words, with what to do.
    pub message: String,
    /// How the request is charged: as estimated if it may have reached the provider, otherwise nothing.
    pub end: RequestEnd,
    /// Whether another request may bring a reply.
    pub may_retry: bool,
    /// Whether the provider refused the credentials.
    pub credentials_refused: bool,
    /// How long the provider asks to wait before.
    pub retry_after: Option<Duration>,
    /// Random bits for the wait before the next request.
    pub random: u64,
}

/// How often the model is asked for one reply, and how patiently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Requests made at most, the first one included.
    pub max_attempts: u32,
    /// The longest wait before the second request; doubled for each one after it.
    pub base_delay: Duration,
    /// The longest wait that doubling leads to.
    pub max_delay: Duration,
    /// The longest wait that a provider may ask for; if it asks for more, the run stops instead.
    pub max_retry_after: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            max_retry_after: Duration::from_mins(1),
        }
    }
}

impl RetryPolicy {
    /// The wait before the request that follows `attempt` (1 for the first), or `None` when there is to be no other.
    ///
    /// The failure's random bits decide where in the upper half of the backoff the wait lies, so that many runs do not
    /// return at once.
    pub fn wait_after(&self, attempt: u32, failure: &ThinkFailure) -> Option<Duration> {
        if !failure.may_retry || attempt == 0 || attempt >= self.max_attempts {
            return None;
        }
        let asked = failure.retry_after.unwrap_or_default();
        if asked > self.max_retry_after {
            return None;
        }
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        let backoff = doubled.min(self.max_delay);
        let half = u64::try_from(backoff.as_millis() / 2).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(failure.random % half.saturating_add(1));
        Some((backoff / 2 + jitter).max(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(may_retry: bool, retry_after: Option<u64>, random: u64) -> ThinkFailure {
        ThinkFailure {
            why: "busy".into(),
            message: "busy".into(),
            end: ua_store::RequestEnd::Baseline,
            may_retry,
            credentials_refused: false,
            retry_after: retry_after.map(Duration::from_secs),
            random,
        }
    }

    #[test]
    fn only_failures_that_may_pass_are_repeated_and_five_requests_are_made_at_most() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait_after(1, &failure(false, None, 0)), None);
        assert_eq!(policy.wait_after(1, &failure(true, None, 0)), Some(Duration::from_millis(500)));
        assert!(policy.wait_after(4, &failure(true, None, 0)).is_some());
        assert_eq!(policy.wait_after(5, &failure(true, None, 0)), None);
    }

    #[test]
    fn a_wait_beyond_the_limit_is_not_waited() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait_after(1, &failure(true, Some(60), 0)), Some(Duration::from_mins(1)));
        assert_eq!(policy.wait_after(1, &failure(true, Some(61), 0)), None);
    }

    #[test]
    fn every_wait_lies_in_the_upper_half_of_the_backoff() {
        let policy = RetryPolicy { max_attempts: 41, ..RetryPolicy::default() };
        for attempt in 1_u32..40 {
            for random in [0, 1, 249, 499, 500, 14_999, 123_456_789, u64::MAX] {
                let backoff = Duration::from_secs(1 << (attempt - 1).min(5)).min(Duration::from_secs(30));
                let wait = policy.wait_after(attempt, &failure(true, None, random)).unwrap();
                assert!(wait >= backoff / 2 && wait <= backoff, "attempt {attempt}: {wait:?} of {backoff:?}");
            }
        }
    }
}
