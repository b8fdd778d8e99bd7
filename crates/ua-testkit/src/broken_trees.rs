//! Broken rules of sub-agents and iterations: what comes of a runner that begins again where it should go on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{Block, Message, ModelTurn, Origin, RawReply, RunId, RunSpec, RunStop, iteration_begins_after};
use ua_dispatch::{Carried, StopSignal, SubAgentError, SubAgents};
use ua_llm::{LlmError, LlmProvider, ModelRequest, StreamObserver};
use ua_runner::{ChildDriver, Conclusion, Workspace};
use ua_store::{CallRecord, NewRun, RunLease, RunStore, Store};

/// Starts a sub-agent anew whenever its task is carried on by another process than the one that made it, whether or not it had ended:
/// the relaunch that throws away the calls of the sub-agent before. The new run is of no lineage, so nothing of it is known.
pub struct ChildrenStartAgain {
    inner: Arc<dyn SubAgents>,
    store: Arc<dyn Store>,
    lease: RunLease,
    driver: Arc<dyn ChildDriver>,
    started: AtomicU64,
}

impl ChildrenStartAgain {
    /// Wraps whoever drives the child runs of the run that `lease` is of.
    pub fn new(
        inner: Arc<dyn SubAgents>,
        store: Arc<dyn Store>,
        lease: RunLease,
        driver: Arc<dyn ChildDriver>,
    ) -> Self {
        Self { inner, store, lease, driver, started: AtomicU64::new(0) }
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
            spec: RunSpec::clone(&child.spec),
            files: Vec::new(),
            job_path: child.job_path,
            workspace_dir: child.workspace_dir,
            launch: child.launch,
            parent_run_id: None,
        };
        let again = self.store.submit_run(again).await?;
        let workspace = Workspace::create(Path::new(&again.workspace_dir))?;
        let (conclusion, run) = self.driver.drive(&self.lease, again, workspace, stop).await?;
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

/// Hands on nothing: of what an iteration begins with, the model is sent the heading alone.
pub struct HandoffForgotten(Arc<dyn LlmProvider>);

impl HandoffForgotten {
    /// Wraps the model.
    pub fn new(inner: Arc<dyn LlmProvider>) -> Self {
        Self(inner)
    }
}

#[async_trait]
impl LlmProvider for HandoffForgotten {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let mut request = request.clone();
        for block in request.messages.iter_mut().flat_map(|message| &mut message.blocks) {
            if let Block::Text { text } = block
                && iteration_begins_after(text).is_some()
            {
                text.truncate(text.find('\n').unwrap_or(text.len()));
            }
        }
        self.0.complete(&request, observer).await
    }
}
