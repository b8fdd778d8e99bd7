//! The provider port: the seam through which every model call passes.

use async_trait::async_trait;
use ua_core::{ModelTurn, Usage};

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

    /// The provider that this one stands in front of, if it is a wrapper. Everything that a wrapper does not say itself is what the
    /// provider behind it says, so that a method which is added here is forgotten in no wrapper.
    fn behind(&self) -> Option<&dyn LlmProvider> {
        None
    }

    /// Whether the provider keeps its replies, so that a later request may continue from one.
    fn keeps_replies(&self) -> bool {
        self.behind().is_some_and(LlmProvider::keeps_replies)
    }

    /// The same request, of which the provider knows `known` already. What is estimated and charged is the whole of it: a
    /// provider bills what it remembers. One that keeps nothing is sent everything. A wrapper that does something with requests or
    /// replies does it here as well as in [`complete`](Self::complete).
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
        self.behind().map_or(Conversation::InTheRequest, LlmProvider::conversation)
    }

    /// Whether a request's seed reaches the model. A seed that nobody reads is not set without a word.
    fn takes_seed(&self) -> bool {
        self.behind().is_some_and(LlmProvider::takes_seed)
    }

    /// The provider under whose name the model's price stands when there is none under its own.
    fn priced_as(&self) -> &str {
        self.behind().map_or_else(|| self.name(), |provider| provider.priced_as())
    }

    /// Lets go of whatever the provider holds: processes, sockets. Called once, when nothing more is asked.
    async fn close(&self) {
        if let Some(provider) = self.behind() {
            provider.close().await;
        }
    }
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

/// How a whole reply ended, as its provider says it: what [`StopReason`](ua_core::StopReason) is made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ending {
    /// Its word, with what it says besides: `refusal (category cyber)`. Empty when it said nothing.
    pub said: String,
    /// Whether the model's context was full: another request of that length ends like this one.
    pub context_is_full: bool,
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
    /// What the reply has cost so far, as far as anybody knows: the provider's counts, and for the output at least what has arrived. Told
    /// whenever it has changed; a reply that breaks off is charged what was told last.
    fn heard(&self, so_far: Usage) {
        let _ = so_far;
    }
    /// The reply is whole, and this is how it ended, in its provider's words.
    fn ended(&self, ending: &Ending) {
        let _ = ending;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use ua_core::Redactor;

    use super::*;
    use crate::{Places, RecordingProvider, RedactingProvider};

    /// A client that owns the loop, and says of itself what is not the default.
    #[derive(Default)]
    struct Client {
        closed: AtomicU32,
    }

    #[async_trait]
    impl LlmProvider for Client {
        fn name(&self) -> &'static str {
            "client"
        }

        async fn complete(&self, _: &ModelRequest, _: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
            Err(LlmError::Unreachable { host: "nobody".into(), why: "refused".into() })
        }

        fn keeps_replies(&self) -> bool {
            true
        }

        fn takes_seed(&self) -> bool {
            true
        }

        fn conversation(&self) -> Conversation {
            Conversation::Broken
        }

        fn priced_as(&self) -> &'static str {
            "maker"
        }

        async fn close(&self) {
            self.closed.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn what_a_wrapper_does_not_say_the_provider_behind_it_says() {
        let client = Arc::new(Client::default());
        let folder = tempfile::tempdir().unwrap();
        let recording = RecordingProvider::new(
            client.clone(),
            &folder.path().join("cassette.jsonl"),
            Redactor::default(),
            Places::default(),
        );
        let wrapped = RedactingProvider::new(Arc::new(recording.unwrap()), Redactor::default());
        assert_eq!((wrapped.name(), wrapped.priced_as()), ("client", "maker"));
        assert!(wrapped.keeps_replies() && wrapped.takes_seed());
        assert_eq!(wrapped.conversation(), Conversation::Broken);
        wrapped.close().await;
        assert_eq!(client.closed.load(Ordering::SeqCst), 1);
    }
}
