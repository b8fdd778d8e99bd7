//! The provider port: the seam through which every model call passes.

use async_trait::async_trait;
use ua_core::ModelTurn;

use crate::error::LlmError;
use crate::request::ModelRequest;
use crate::session::KnownPrefix;

/// A source of model replies.
///
/// Dropping the future of [`complete`](Self::complete) abandons the request; the provider may bill it all the same.
#[async_trait]
pub trait LlmProvider: Send + Sync {
    /// The provider's name: `anthropic`, `openai`, `openai-chat`, `scripted`.
    fn name(&self) -> &str;

    /// Makes one request for one reply and returns it whole, or not at all.
    ///
    /// Nothing is repeated in here, because each request may be billed: the error says whether this one left us, whether
    /// another may bring what it did not, and how long the provider asks to wait before.
    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError>;

    /// Whether the provider keeps its replies, so that a later request may continue from one.
    fn keeps_replies(&self) -> bool {
        false
    }

    /// The same request, of which the provider knows `known` already. What is estimated and charged is the whole of it: a
    /// provider bills what it remembers. One that keeps nothing is sent everything.
    ///
    /// # Errors
    /// [`LlmError::SessionForgotten`] when the provider does not know the reply any more; besides, as
    /// [`complete`](Self::complete).
    async fn complete_from(
        &self,
        known: &KnownPrefix,
        request: &ModelRequest,
        observer: &dyn StreamObserver,
    ) -> Result<ModelTurn, LlmError> {
        let _ = known;
        self.complete(request, observer).await
    }

    /// Where the conversation is that the next request goes on with.
    fn conversation(&self) -> Conversation {
        Conversation::InTheRequest
    }

    /// The provider under whose name the model's price stands when there is none under its own.
    fn priced_as(&self) -> &str {
        self.name()
    }

    /// Lets go of whatever the provider holds: processes, sockets. Called once, when nothing more is asked.
    async fn close(&self) {}
}

/// Where a provider keeps the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversation {
    /// In the request, whole, every time.
    InTheRequest,
    /// In a client that owns the loop, which is there and waits for what comes next.
    Open,
    /// In such a client, which is not there: it was never started, or it ended. What it was not told before, it does not know
    /// (Durable runner, current state §6 and §9).
    Broken,
}

/// Who watches a reply arrive. Every method does nothing unless it is overridden.
pub trait StreamObserver: Send + Sync {
    /// The request is about to leave; called at most once, before its first byte.
    fn sent(&self) {}
    /// The provider named its response. Tentative until the turn is recorded.
    fn session(&self, response_id: &str) {
        let _ = response_id;
    }
    /// A piece of text arrived; it is part of no reply until [`LlmProvider::complete`] returns one.
    fn text(&self, delta: &str) {
        let _ = delta;
    }
    /// The request as it goes over the wire, without headers; called before [`sent`](Self::sent).
    fn body(&self, body: &str) {
        let _ = body;
    }
    /// The data of an event of the reply's stream, as it came, before it is read.
    fn event(&self, data: &str) {
        let _ = data;
    }
}

/// An observer that watches nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl StreamObserver for Silent {}
