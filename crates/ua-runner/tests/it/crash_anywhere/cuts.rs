//! Replies that break off are paid for: budgets hold over them, and over the processes that die while they come.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use ua_core::{ModelTurn, RunStatus, RunStop, Usage};
use ua_llm::{LlmError, LlmProvider, ModelRequest, StreamObserver};
use ua_store::RequestStatus;
use ua_testkit::CrashAt;

use super::scenario::Scenario;

/// A model that never comes to the end of a reply. What the reply has cost by then is said when it begins.
struct Cutting {
    heard: Usage,
    asked: AtomicU32,
}

impl Cutting {
    fn new(input_tokens: u64, output_tokens: u64) -> Arc<Self> {
        let heard = Usage { input_tokens, output_tokens, ..Usage::default() };
        Arc::new(Self { heard, asked: AtomicU32::new(0) })
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl LlmProvider for Cutting {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn complete(&self, _: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        observer.sent();
        self.asked.fetch_add(1, Ordering::SeqCst);
        observer.heard(self.heard);
        // What follows comes with another piece of the stream.
        tokio::task::yield_now().await;
        Err(LlmError::Cut { text_bytes: 0, source: None })
    }
}

fn within_20_000_tokens(model: &Arc<Cutting>) -> Scenario {
    let mut scenario = Scenario::new().asking(model.clone());
    scenario.set_job(serde_json::json!({"objective": "Do it.", "budgets": {"max_tokens": 20_000}}));
    scenario
}

#[tokio::test]
async fn a_budget_holds_over_replies_that_break_off() {
    for (model, requests) in [(Cutting::new(15_000, 6_000), 1), (Cutting::new(8_000, 1_000), 3)] {
        let scenario = within_20_000_tokens(&model);
        let run = scenario.resume().await;
        let ended = (run.status, run.stop_reason, model.asked());
        assert_eq!(ended, (RunStatus::Stopped, Some(RunStop::Budget), requests), "{:?}", run.status_detail);
        let rows = scenario.records().await.requests;
        let charged: Vec<_> = rows.iter().map(|row| (row.status, row.usage)).collect();
        assert_eq!(charged, vec![(RequestStatus::Partial, model.heard); requests as usize]);
        // Nor is it asked again by a later process.
        scenario.resume().await;
        assert_eq!(model.asked(), requests);
    }
}

#[tokio::test]
async fn a_budget_holds_over_processes_that_die_while_a_reply_comes() {
    let mut noted = 0;
    for at in (0..40).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
        let model = Cutting::new(15_000, 6_000);
        let scenario = within_20_000_tokens(&model);
        scenario.crash(at).await;
        if !scenario.has_a_step().await {
            continue;
        }
        let is_noted = scenario.records().await.requests.iter().any(|row| row.heard.is_some());
        noted += u32::from(is_noted);
        let run = scenario.resume().await;
        assert_eq!(run.stop_reason, Some(RunStop::Budget), "{at:?}: {:?}", run.status_detail);
        // A reply of which nothing was noted may have cost nothing as far as anybody knows.
        assert!(model.asked() <= if is_noted { 1 } else { 2 }, "{at:?}: asked {} times", model.asked());
        for row in scenario.records().await.requests {
            assert_eq!(row.status == RequestStatus::Partial, row.heard.is_some(), "{at:?}: {row:?}");
        }
    }
    assert!(noted > 3, "{noted}");
}
