//! A cancel that comes between the last look at the run and the start of a call: nothing is sent any more, and the run ends.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{CallStatus, RunStatus};
use ua_runner::Conclusion;
use ua_testkit::{Crossing, Plan};

use super::scenario::{Canceller, Scenario};

/// Cancels the run just before the intent to send `tool` is written.
struct CancelBefore {
    tool: &'static str,
    canceller: Canceller,
}

#[async_trait]
impl Plan for CancelBefore {
    async fn before(&self, crossing: &Crossing) {
        if crossing.is_of("store.start_attempt", self.tool) {
            self.canceller.cancel().await;
        }
    }

    async fn after(&self, _crossing: &Crossing) {}
}

#[tokio::test]
async fn a_cancel_just_before_a_call_starts_ends_the_run_as_cancelled() {
    for tool in ["read_local_file", "upload", "post_comment"] {
        let scenario = Scenario::new();
        let plan = Arc::new(CancelBefore { tool, canceller: scenario.canceller() });
        let (conclusion, run) = scenario.drive_with(plan, None).await.unwrap();
        assert_eq!((conclusion, run.status), (Conclusion::Cancelled, RunStatus::Cancelled), "{tool}");
        assert_eq!(scenario.world.count(tool), 0, "{tool}");
        let call = scenario.calls().await.into_iter().find(|call| call.name.tool == tool).unwrap();
        assert!(matches!(call.status, CallStatus::Prepared | CallStatus::Cancelled), "{tool}: {}", call.status);
    }
}
