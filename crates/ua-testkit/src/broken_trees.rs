//! Broken rules of sub-agents and iterations: what comes of a runner that begins again where it should go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{Message, Origin, RawReply, RunId, RunStop};
use ua_gateway::{Carried, StopSignal, SubAgentError, SubAgents};
use ua_runner::{ChildDriver, Conclusion};
use ua_store::{CallRecord, NewRun, RunLease, SettleAttempt, StartAttempt, StepEntry, Store, StoreError};

use crate::seams::LedgerWrites;

/// Starts a sub-agent anew whenever its task is carried on by another process than the one that made it, whether or not it had ended:
/// the relaunch that throws away the calls of the sub-agent before. The new run is of no lineage, so nothing of it is known.
pub struct ChildrenStartAgain {
    inner: Arc<dyn SubAgents>,
    store: Arc<dyn Store>,
    driver: Arc<dyn ChildDriver>,
    started: AtomicU64,
}

impl ChildrenStartAgain {
    /// Wraps whoever drives child runs.
    pub fn new(inner: Arc<dyn SubAgents>, store: Arc<dyn Store>, driver: Arc<dyn ChildDriver>) -> Self {
        Self { inner, store, driver, started: AtomicU64::new(0) }
    }
}

#[async_trait]
impl SubAgents for ChildrenStartAgain {
    async fn plan(
        &self,
        call: &CallRecord,
        allow: Option<Vec<String>>,
    ) -> Result<Result<NewRun, String>, SubAgentError> {
        self.inner.plan(call, allow).await
    }

    async fn carry_on(&self, call: &CallRecord, stop: &StopSignal) -> Result<Carried, SubAgentError> {
        let child = self.store.run(&RunId::of_task(&call.call_id)).await?;
        if child.lease_epoch == 0 {
            return self.inner.carry_on(call, stop).await;
        }
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let again = NewRun {
            run_id: RunId::parse(&format!("{}_again_{}_{number}", child.run_id, child.lease_epoch))?,
            created_at: child.created_at,
            entrypoint: child.entrypoint,
            run_mode: child.run_mode,
            opening: Message::user(Origin::Prompt, child.last_job_prompt),
            spec: child.spec,
            job_path: child.job_path,
            workspace_dir: child.workspace_dir,
            launch: child.launch,
            parent_run_id: None,
        };
        let again = self.store.submit_run(again).await?;
        let (conclusion, run) = self.driver.drive(again, stop).await?;
        Ok(match conclusion {
            Conclusion::Waiting { question } => Carried::Waiting(question),
            Conclusion::Stopped { reason: RunStop::Interrupt, .. } => Carried::Stopped,
            Conclusion::Stopped { reason, detail } => Carried::Parked { reason, detail },
            Conclusion::Succeeded { .. } | Conclusion::Failed { .. } | Conclusion::Cancelled => {
                let said = run.final_output.unwrap_or_default();
                let result = json!({"content": [{"type": "text", "text": said}]});
                Carried::Answered(RawReply::ToolResult { result })
            }
        })
    }
}

/// Begins an iteration with its heading alone: the model is told that it begins, and nothing of what was done.
pub struct HandoffForgotten;

#[async_trait]
impl LedgerWrites for HandoffForgotten {
    fn entry(&self, mut entry: StepEntry) -> StepEntry {
        for message in entry.messages.iter_mut().filter(|message| message.origin == Origin::Iteration) {
            let heading = message.text().lines().next().unwrap_or_default().to_owned();
            *message = Message::user(Origin::Iteration, heading);
        }
        entry
    }

    async fn start_attempt(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        start: StartAttempt,
    ) -> Result<CallRecord, StoreError> {
        inner.start_attempt(lease, start).await
    }

    async fn settle_attempt(
        &self,
        inner: &dyn Store,
        lease: &RunLease,
        settle: SettleAttempt,
    ) -> Result<CallRecord, StoreError> {
        inner.settle_attempt(lease, settle).await
    }
}
