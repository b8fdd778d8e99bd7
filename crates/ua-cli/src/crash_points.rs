//! Kill points at the seams, for the acceptance run; compiled in only with the feature `crash-points`.
//!
//! `UA_KILL_AT=after:tool.invoke:send_email` kills this process there with SIGKILL. `UA_BROKEN_RULE=running-after-dispatch` breaks the
//! order of intent and act, so that the harness can show that it would see it.

use std::sync::Arc;

use ua_gateway::ToolTransport;
use ua_llm::LlmProvider;
use ua_store::Store;

/// The three seams of a run.
pub(crate) struct Seams {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) transport: Arc<dyn ToolTransport>,
    pub(crate) llm: Arc<dyn LlmProvider>,
}

/// The seams as they are.
#[cfg(not(feature = "crash-points"))]
pub(crate) fn wrap(seams: Seams) -> Seams {
    seams
}

/// The seams with the kill point and the broken rule that the environment names.
#[cfg(feature = "crash-points")]
pub(crate) fn wrap(seams: Seams) -> Seams {
    use ua_testkit::{Crossing, KillPoint, Plan, RunningAfterDispatch, Seam};

    struct Nowhere;

    #[async_trait::async_trait]
    impl Plan for Nowhere {
        async fn before(&self, _crossing: &Crossing) {}
        async fn after(&self, _crossing: &Crossing) {}
    }

    let point = crate::env::var("UA_KILL_AT").and_then(|text| KillPoint::parse(&text));
    let plan: Arc<dyn Plan> = match point {
        Some(point) => Arc::new(point),
        None => Arc::new(Nowhere),
    };
    let store = Seam::new(seams.store, plan.clone());
    let is_broken = crate::env::var("UA_BROKEN_RULE").as_deref() == Some("running-after-dispatch");
    let store = if is_broken { store.with_writes(RunningAfterDispatch::new()) } else { store };
    Seams {
        store: Arc::new(store),
        transport: Arc::new(Seam::new(seams.transport, plan.clone())),
        llm: Arc::new(Seam::new(seams.llm, plan)),
    }
}
