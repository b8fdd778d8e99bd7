//! The provider port: the seam through which every model call passes.

use std::time::Duration;

use async_trait::async_trait;
use ua_core::ModelTurn;

use crate::error::LlmError;
use crate::request::ModelRequest;

/// A source of model replies.
///
/// Dropping the future of [`complete`](Self::complete) abandons the request; the provider may bill it all the same.
#[async_trait]
pub trait LlmProvider: Send + Sync {
    /// The provider's name: `anthropic`, `scripted`.
    fn name(&self) -> &str;

    /// Asks for one reply and returns it whole, or not at all.
    ///
    /// May make several attempts; each is announced to `observer`, because each may be billed.
    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError>;
}

/// Who watches a reply arrive. Every method does nothing unless it is overridden.
pub trait StreamObserver: Send + Sync {
    /// An attempt is about to leave; called once per HTTP request, before its first byte.
    fn sent(&self) {}
    /// The provider named its response. Tentative until the turn is recorded.
    fn session(&self, response_id: &str) {
        let _ = response_id;
    }
    /// A piece of text arrived; it is part of no reply until [`LlmProvider::complete`] returns one.
    fn text(&self, delta: &str) {
        let _ = delta;
    }
    /// Attempt `attempt` failed because of `why`; the next one starts after `wait`. Text seen so far is void.
    fn retrying(&self, attempt: u32, why: &str, wait: Duration) {
        let _ = (attempt, why, wait);
    }
}

/// An observer that watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl StreamObserver for Silent {}
