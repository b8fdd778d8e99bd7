//! The seams of the model and the tools, wrapped: a plan may end the process before or after any crossing. No production type knows of
//! this.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{Destination, Handle, ModelTurn, Outcome, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Enquiry, Fence, MayAct, Permit, ToolTransport, TransportError};
use ua_llm::{KnownPrefix, LlmError, LlmProvider, ModelRequest, StreamObserver};
use ua_store::conformance::{Crossing, Plan};

/// A plan wrapped around one of the ports; around the store it is a [`StoreSeam`](ua_store::conformance::StoreSeam).
pub struct Seam<T: ?Sized> {
    plan: Arc<dyn Plan>,
    inner: Arc<T>,
}

impl<T: ?Sized> Seam<T> {
    /// Wraps `inner`.
    pub fn new(inner: Arc<T>, plan: Arc<dyn Plan>) -> Self {
        Self { plan, inner }
    }

    async fn cross<R>(&self, crossing: Crossing, effect: impl Future<Output = R>) -> R {
        self.plan.before(&crossing).await;
        let result = effect.await;
        self.plan.after(&crossing).await;
        result
    }
}

/// The crossing of a permitted call.
fn crossing(name: &'static str, permit: &Permit) -> Crossing {
    let call = permit.call();
    Crossing::of(name, Some(call.name.tool.clone())).about(Some(call.position))
}

#[async_trait]
impl LlmProvider for Seam<dyn LlmProvider> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        self.cross(Crossing::of("model.complete", None), self.inner.complete(request, observer)).await
    }

    fn behind(&self) -> Option<&dyn LlmProvider> {
        Some(self.inner.as_ref())
    }

    async fn complete_from(
        &self,
        known: &KnownPrefix,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        self.cross(Crossing::of("model.complete", None), self.inner.complete_from(known, request, observer)).await
    }
}

#[async_trait]
impl ToolTransport for Seam<dyn ToolTransport> {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        self.inner.list().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.inner.working_folder(server)
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        self.inner.ready(server).await
    }

    fn running(&self, server: &str) -> Option<String> {
        self.inner.running(server)
    }

    fn is_silent(&self, server: &str) -> bool {
        self.inner.is_silent(server)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        self.inner.destination(tool, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        self.cross(crossing("tool.invoke", permit), self.inner.invoke(permit)).await
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        self.cross(crossing("tool.go_on", permit), self.inner.go_on(permit, handle)).await
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.inner.give_up(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        self.cross(Crossing::of("tool.ask", Some(enquiry.tool().tool.clone())), self.inner.ask(enquiry)).await
    }

    async fn fence_earlier(&self) -> Fence {
        self.inner.fence_earlier().await
    }

    fn horizon(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        self.inner.horizon(server, generation, lost_at)
    }

    fn may_act(&self, server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        self.inner.may_act(server, generation, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        self.inner.generation_unknown(server)
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.inner.renew(server, generation, lost_at).await
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        self.inner.fence(server, generation, lost_at).await
    }
}
