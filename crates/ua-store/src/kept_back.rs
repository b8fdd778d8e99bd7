//! A call that was started and kept back before it left, because a stop was asked for meanwhile.
//!
//! It was not made in vain: whoever resumes the run sends it, whatever retries the job allows. That it was a stop stands in the words about
//! the attempt and nowhere else, in databases of earlier versions, too, so these words are written and read here alone.

use crate::commit::AttemptEnd;
use crate::earlier_loss::EarlierLoss;
use crate::record::CallRecord;

/// Why such an attempt never left.
const STOPPED: &str = "a stop was asked for before it was sent";

impl AttemptEnd {
    /// The end of an attempt that was kept back because of a stop, and what an earlier one leaves open.
    pub fn kept_back(earlier: Option<EarlierLoss>) -> Self {
        Self::NotSent { why: earlier.map_or_else(|| STOPPED.to_owned(), |loss| loss.behind(STOPPED)) }
    }
}

impl CallRecord {
    /// Whether its newest attempt was kept back because of a stop.
    pub fn was_kept_back(&self) -> bool {
        let says = |detail: &str| EarlierLoss::split(detail).0 == STOPPED;
        self.error_code.as_deref() == Some("not_sent") && self.error_detail.as_deref().is_some_and(says)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use ua_core::CallStatus;

    use super::*;
    use crate::conformance::{Scene, samples};
    use crate::{LedgerStore as _, MemStore};

    async fn ended(end: AttemptEnd) -> CallRecord {
        let store = MemStore::new();
        let scene = Scene::begin(&store, "run_1").await;
        scene.call_that_is("call_1", CallStatus::Running).await;
        let ended = store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await;
        ended.unwrap_or_else(|error| panic!("{error}"))
    }

    #[tokio::test]
    async fn only_a_stop_keeps_a_call_back() {
        let store = MemStore::new();
        let lost = Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Unknown).await;
        let loss = EarlierLoss::before(2, &store.attempts(&lost.call_id).await.unwrap());
        assert!(loss.is_some());
        for earlier in [None, loss] {
            let call = ended(AttemptEnd::kept_back(earlier)).await;
            assert_eq!((call.status, call.was_kept_back()), (CallStatus::FailedDefinite, true), "{earlier:?}");
        }
        // As an earlier version wrote it, and what is no stop.
        for (why, is_stop) in [
            ("a stop was asked for before it was sent", true),
            ("a stop was asked for before it was sent; nobody knows what came of attempt 1", true),
            ("its idempotency key had expired", false),
            ("a stop was asked for before it was sent to another server", false),
        ] {
            let call = ended(AttemptEnd::NotSent { why: why.to_owned() }).await;
            assert_eq!(call.was_kept_back(), is_stop, "{why}");
        }
        let call = ended(AttemptEnd::Lost { why: "a stop was asked for before it was sent".to_owned() }).await;
        assert!(!call.was_kept_back(), "it left");
    }
}
