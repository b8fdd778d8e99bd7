//! An earlier attempt that was lost, of a call whose newest one did nothing: nobody knows what came of that one.
//!
//! Only a read by its tool's name leaves one behind: it is never in doubt ([`CallRecord::doubt`]), and that it only reads is a guess. The
//! loss stands at the end of the words about the failure and nowhere else, in databases of earlier versions, too, so these words are
//! written and read here alone.

use std::fmt;

use ua_core::CallStatus;

use crate::record::{AttemptRecord, CallRecord};

/// How the words name the attempt; its number follows.
const LOST: &str = "nobody knows what came of attempt ";

/// What stands between why the newest attempt did nothing and that.
const BETWEEN: &str = "; ";

/// The attempt that was lost. Shown, it is a clause without a full stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlierLoss {
    attempt: u32,
}

impl EarlierLoss {
    /// The first of a call's attempts before this one that was lost.
    pub fn before(newest: u32, attempts: &[AttemptRecord]) -> Option<Self> {
        let is_lost = |attempt: &&AttemptRecord| attempt.attempt < newest && attempt.was_lost();
        attempts.iter().find(is_lost).map(|lost| Self { attempt: lost.attempt })
    }

    /// What is recorded of a call whose newest attempt did nothing, for this reason (empty where there is none), and that leaves this one open.
    pub fn behind(self, why: &str) -> String {
        if why.is_empty() { self.to_string() } else { format!("{why}{BETWEEN}{self}") }
    }

    /// What is recorded of such a call, taken apart: why its newest attempt did nothing, and what that leaves open.
    pub(crate) fn split(detail: &str) -> (&str, Option<Self>) {
        let read = || {
            let (before, number) = detail.rsplit_once(LOST)?;
            let why = if before.is_empty() { before } else { before.strip_suffix(BETWEEN)? };
            Some((why, Self { attempt: number.parse().ok()? }))
        };
        read().map_or((detail, None), |(why, loss)| (why, Some(loss)))
    }
}

impl fmt::Display for EarlierLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LOST}{}", self.attempt)
    }
}

impl CallRecord {
    /// The earlier attempt that was lost of a call which failed without having done anything in its newest one: of a read by its name
    /// alone, which is in no doubt.
    pub fn loss_left_open(&self) -> Option<EarlierLoss> {
        if self.status != CallStatus::FailedDefinite || !self.policy.is_read_by_name() {
            return None;
        }
        let (_, loss) = EarlierLoss::split(self.error_detail.as_deref()?);
        // What a tool says in these words is of no attempt before its own.
        loss.filter(|loss| loss.attempt < self.attempt)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use ua_core::{ClassSource, SideEffectClass};

    use super::*;
    use crate::conformance::Scene;
    use crate::{LedgerStore as _, MemStore};

    /// A read by its tool's name whose third attempt did nothing, and its attempts, of which the second was lost.
    async fn failed_read() -> (CallRecord, Vec<AttemptRecord>) {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        let mut call = scene.call_that_is("call_1", CallStatus::FailedDefinite).await;
        let first = store.attempts(&call.call_id).await.unwrap_or_else(|error| panic!("{error}")).remove(0);
        let attempts = [(1, "not_sent"), (2, "lost"), (3, "replied")].map(|(attempt, outcome)| AttemptRecord {
            attempt,
            outcome: Some(outcome.to_owned()),
            ..first.clone()
        });
        call.attempt = 3;
        (call.policy.class, call.policy.class_source) = (SideEffectClass::ReadOnly, ClassSource::Name);
        (call, attempts.to_vec())
    }

    #[tokio::test]
    async fn what_is_recorded_of_a_loss_is_read_as_it() {
        let (call, attempts) = failed_read().await;
        assert_eq!([1, 2].map(|newest| EarlierLoss::before(newest, &attempts)), [None, None]);
        let loss = EarlierLoss::before(3, &attempts).unwrap();
        for why in ["", "no", "connection refused; the login has ended.", "nobody knows what came of attempt 1"] {
            let detail = loss.behind(why);
            assert_eq!(EarlierLoss::split(&detail), (why, Some(loss)));
            let call = CallRecord { error_detail: Some(detail), ..call.clone() };
            assert_eq!(call.loss_left_open(), Some(loss), "{why}");
        }
    }

    /// The words of a database that an earlier version wrote, and words that say something else.
    #[tokio::test]
    async fn only_the_end_of_the_words_about_a_failed_read_tells_of_a_loss() {
        let (call, _) = failed_read().await;
        let open = |detail: &str| {
            let call = CallRecord { error_detail: Some(detail.to_owned()), ..call.clone() };
            call.loss_left_open().map(|loss| loss.to_string())
        };
        let second = Some("nobody knows what came of attempt 2".to_owned());
        assert_eq!(open("no; nobody knows what came of attempt 2"), second);
        assert_eq!(open("nobody knows what came of attempt 2"), second);
        for other in [
            "no",
            "nobody knows what came of attempt 3",
            "nobody knows what came of attempt 2; that attempt 3 did nothing does not say it either: no",
            "the server says that nobody knows what came of attempt 2",
        ] {
            assert_eq!(open(other), None, "{other}");
        }
        let mut declared = CallRecord { error_detail: second, ..call.clone() };
        declared.policy.class_source = ClassSource::UserPolicy;
        assert_eq!(declared.loss_left_open(), None);
    }
}
