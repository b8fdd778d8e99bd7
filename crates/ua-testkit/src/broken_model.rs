//! Broken rules of requests to a model: what comes of a runner that does not tell what passes from what stays.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::ModelTurn;
use ua_llm::{LlmError, LlmProvider, ModelRequest, StreamObserver};

/// Says of whatever is refused for good that it passes: the same request is made again, with the same credentials and at the same length.
pub(crate) struct RefusalsPass(pub(crate) Arc<dyn LlmProvider>);

#[async_trait]
impl LlmProvider for RefusalsPass {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn behind(&self) -> Option<&dyn LlmProvider> {
        Some(self.0.as_ref())
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        self.0.complete(request, observer).await.map_err(|error| {
            if error.is_final() {
                LlmError::Overloaded { retry_after: None, message: error.to_string() }
            } else {
                error
            }
        })
    }
}
