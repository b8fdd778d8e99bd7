//! When to ask again, and how long to wait before.

use std::time::Duration;

use ua_core::FailureClass;

use crate::error::LlmError;

/// How often a model request is repeated, and how patiently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Requests made at most, the first one included.
    pub max_attempts: u32,
    /// The longest wait before the second request; doubled for each one after it.
    pub base_delay: Duration,
    /// The longest wait that doubling leads to.
    pub max_delay: Duration,
    /// The longest wait that a provider may ask for; if it asks for more, the error is returned instead.
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
    /// `random` decides where in the upper half of the backoff the wait lies, so that many runs do not return at once.
    pub(crate) fn wait_after(&self, attempt: u32, error: &LlmError, random: u64) -> Option<Duration> {
        if error.class() != FailureClass::Transient || attempt >= self.max_attempts {
            return None;
        }
        let asked = error.retry_after().unwrap_or_default();
        if asked > self.max_retry_after {
            return None;
        }
        let doubled = self.base_delay.saturating_mul(1_u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
        let backoff = doubled.min(self.max_delay);
        let half = u64::try_from(backoff.as_millis() / 2).unwrap_or(u64::MAX);
        let jitter = Duration::from_millis(random % half.saturating_add(1));
        Some((backoff / 2 + jitter).max(asked))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn overloaded(retry_after: Option<u64>) -> LlmError {
        LlmError::Overloaded { retry_after: retry_after.map(Duration::from_secs), message: "busy".into() }
    }

    #[test]
    fn only_transient_failures_are_repeated() {
        let policy = RetryPolicy::default();
        let refused = LlmError::InvalidRequest { status: 400, message: "no".into() };
        assert_eq!(policy.wait_after(1, &refused, 0), None);
        assert_eq!(policy.wait_after(1, &overloaded(None), 0), Some(Duration::from_millis(500)));
    }

    #[test]
    fn a_wait_beyond_the_limit_is_not_waited() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.wait_after(1, &overloaded(Some(60)), 0), Some(Duration::from_mins(1)));
        assert_eq!(policy.wait_after(1, &overloaded(Some(61)), 0), None);
    }

    proptest! {
        #[test]
        fn every_wait_lies_in_the_upper_half_of_the_backoff(attempt in 1_u32..40, random in any::<u64>()) {
            let policy = RetryPolicy { max_attempts: 41, ..RetryPolicy::default() };
            let backoff = Duration::from_secs(1 << (attempt - 1).min(5)).min(Duration::from_secs(30));
            let wait = policy.wait_after(attempt, &overloaded(None), random).unwrap();
            prop_assert!(wait >= backoff / 2 && wait <= backoff, "{wait:?} of {backoff:?}");
        }
    }
}
