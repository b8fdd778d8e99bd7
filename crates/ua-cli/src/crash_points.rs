//! Kill points at the seams, for the acceptance run; compiled in only with the feature `crash-points`.
//!
//! `UA_KILL_AT=after:tool.invoke:send_email` kills this process there with SIGKILL. `UA_BROKEN_RULE=running-after-dispatch` breaks the
//! order of intent and act, so that the harness can show that it would see it.

#[cfg(not(feature = "crash-points"))]
mod seams {
    use std::sync::Arc;

    use ua_core::Redactor;
    use ua_gateway::ToolTransport;
    use ua_llm::LlmProvider;
    use ua_store::Store;

    /// The seams as they are.
    pub(crate) struct Seams;

    impl Seams {
        pub(crate) fn open() -> Self {
            Self
        }
        #[expect(clippy::unused_self, reason = "the other build needs it")]
        pub(crate) fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
            store
        }
        #[expect(clippy::unused_self, reason = "the other build needs it")]
        pub(crate) fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
            transport
        }
        #[expect(clippy::unused_self, reason = "the other build needs it")]
        pub(crate) fn redactor(&self, redactor: Redactor) -> Redactor {
            redactor
        }
        #[expect(clippy::unused_self, reason = "the other build needs it")]
        pub(crate) fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
            llm
        }
    }
}

#[cfg(feature = "crash-points")]
mod seams {
    use std::sync::Arc;

    use ua_core::Redactor;
    use ua_gateway::ToolTransport;
    use ua_llm::LlmProvider;
    use ua_store::Store;
    use ua_testkit::{Crossing, KillPoint, Plan, RunningAfterDispatch, Seam};

    struct Nowhere;

    #[async_trait::async_trait]
    impl Plan for Nowhere {
        async fn before(&self, _crossing: &Crossing) {}
        async fn after(&self, _crossing: &Crossing) {}
    }

    /// The seams with the kill point and the broken rule that the environment names.
    pub(crate) struct Seams {
        plan: Arc<dyn Plan>,
    }

    impl Seams {
        pub(crate) fn open() -> Self {
            let point = crate::env::var("UA_KILL_AT").and_then(|text| KillPoint::parse(&text));
            Self { plan: point.map_or_else(|| Arc::new(Nowhere) as Arc<dyn Plan>, |point| Arc::new(point)) }
        }
        pub(crate) fn store(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
            let seam = Seam::new(store, self.plan.clone());
            let is_broken = crate::env::var("UA_BROKEN_RULE").as_deref() == Some("running-after-dispatch");
            Arc::new(if is_broken { seam.with_writes(RunningAfterDispatch::new()) } else { seam })
        }
        pub(crate) fn transport(&self, transport: Arc<dyn ToolTransport>) -> Arc<dyn ToolTransport> {
            Arc::new(Seam::new(transport, self.plan.clone()))
        }
        /// With `UA_BROKEN_RULE=no-redactor` one that knows nothing.
        pub(crate) fn redactor(&self, redactor: Redactor) -> Redactor {
            let is_broken = crate::env::var("UA_BROKEN_RULE").as_deref() == Some("no-redactor");
            if is_broken { Redactor::default() } else { redactor }
        }
        pub(crate) fn llm(&self, llm: Arc<dyn LlmProvider>) -> Arc<dyn LlmProvider> {
            Arc::new(Seam::new(llm, self.plan.clone()))
        }
    }
}

pub(crate) use seams::Seams;
