//! Another provider, whose replies and errors come without secrets.
//!
//! Context Storage & Durability §4: a reply is committed before anything of it is acted on, so what must not be kept goes out here, at
//! the seam. The reply is looked at whole: a secret that came in several pieces of a stream is one text by then. Invariant: nothing that
//! this provider returns contains a value that the redactor knows, but for blocks that only one provider understands and that carry no
//! such value: those are handed on to the byte, because they are signed. Proved by: the test below, and the e2e test `canary`.

use std::sync::Arc;

use async_trait::async_trait;
use ua_core::{Block, ModelTurn, Redactor, Usage};

use crate::error::LlmError;
use crate::provider::{Ending, LlmProvider, StreamObserver};
use crate::request::ModelRequest;
use crate::session::KnownPrefix;

/// A provider behind a redactor.
pub struct RedactingProvider {
    inner: Arc<dyn LlmProvider>,
    redactor: Redactor,
}

impl RedactingProvider {
    /// Takes what `redactor` knows out of everything that `inner` answers.
    pub fn new(inner: Arc<dyn LlmProvider>, redactor: Redactor) -> Self {
        Self { inner, redactor }
    }

    fn clean(&self, answer: Result<ModelTurn, LlmError>) -> Result<ModelTurn, LlmError> {
        match answer {
            Ok(turn) => Ok(self.turn(turn)),
            Err(mut error) => {
                if let Some(words) = error.words_mut() {
                    self.redactor.own(words);
                }
                Err(error)
            }
        }
    }

    fn turn(&self, mut turn: ModelTurn) -> ModelTurn {
        self.redactor.own(&mut turn.model);
        // What was said under it cannot be asked for by another name.
        turn.response_id = turn.response_id.filter(|id| self.redactor.found_in(id).is_none());
        for (place, block) in turn.blocks.iter_mut().enumerate() {
            match block {
                Block::Text { text } => self.redactor.own(text),
                Block::ToolUse(tool_use) => {
                    self.redactor.own(&mut tool_use.name);
                    self.redactor.json(&mut tool_use.input);
                    // Wires take letters and digits alone for an id, and each of a turn is another one.
                    if self.redactor.found_in(&tool_use.id).is_some() {
                        tool_use.id = format!("call_withheld_{place}");
                    }
                }
                Block::Opaque { value, .. } => self.redactor.json(value),
                Block::ToolResult { .. } => {} // a model makes none
            }
        }
        turn
    }
}

#[async_trait]
impl LlmProvider for RedactingProvider {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let observer = Clean { observer, redactor: &self.redactor };
        self.clean(self.inner.complete(request, &observer).await)
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
        let observer = Clean { observer, redactor: &self.redactor };
        self.clean(self.inner.complete_from(known, request, &observer).await)
    }
}

/// Passes on what arrives, and how it ended without secrets: that is stored. Pieces of a text are shown only.
struct Clean<'a> {
    observer: &'a dyn StreamObserver,
    redactor: &'a Redactor,
}

impl StreamObserver for Clean<'_> {
    fn sent(&self) {
        self.observer.sent();
    }

    fn session(&self, response_id: &str) {
        self.observer.session(response_id);
    }

    fn text(&self, delta: &str) {
        self.observer.text(delta);
    }

    fn heard(&self, so_far: Usage) {
        self.observer.heard(so_far);
    }

    fn ended(&self, ending: &Ending) {
        let mut ending = ending.clone();
        self.redactor.own(&mut ending.said);
        self.observer.ended(&ending);
    }

    fn body(&self, body: &str) {
        self.observer.body(body);
    }

    fn event(&self, data: &str) {
        self.observer.event(data);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use ua_core::{StopReason, ToolUse};

    use super::*;
    use crate::error::Status;
    use crate::provider::Silent;

    const SECRET: &str = "sk-canary-0123456789";

    struct Leaky(bool);

    /// How a reply ended.
    #[derive(Default)]
    struct Heard(Mutex<String>);

    impl StreamObserver for Heard {
        fn ended(&self, ending: &Ending) {
            self.0.lock().unwrap().clone_from(&ending.said);
        }
    }

    #[async_trait]
    impl LlmProvider for Leaky {
        fn name(&self) -> &'static str {
            "leaky"
        }

        async fn complete(&self, _: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
            if self.0 {
                return Err(LlmError::Unauthorized {
                    status: Status::Http(401),
                    message: format!("no such key: {SECRET}"),
                });
            }
            observer.ended(&Ending { said: format!("refusal ({SECRET})"), context_is_full: false });
            let input = json!({"note": [SECRET]});
            let blocks = vec![
                Block::text(format!("It is {SECRET}.")),
                Block::Opaque { provider: "leaky".into(), value: json!({"signature": "unchanged"}) },
                Block::ToolUse(ToolUse { id: "t".into(), name: "n".into(), input }),
                Block::ToolUse(ToolUse { id: format!("t-{SECRET}"), name: format!("n-{SECRET}"), input: json!({}) }),
            ];
            Ok(ModelTurn {
                blocks,
                stop_reason: StopReason::ToolUse,
                usage: None,
                model: format!("m-{SECRET}"),
                response_id: Some(SECRET.to_owned()),
            })
        }
    }

    #[tokio::test]
    async fn what_a_provider_says_is_without_secrets() {
        let redactor = Redactor::new([("KEY".to_owned(), SECRET.to_owned())]);
        let request = ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: vec![],
            tools: vec![].into(),
            max_output_tokens: 1,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        };
        let of = |fails| RedactingProvider::new(Arc::new(Leaky(fails)), redactor.clone());
        let heard = Heard::default();
        let turn = of(false).complete(&request, &heard).await.unwrap();
        assert_eq!(*heard.0.lock().unwrap(), "refusal ([secret KEY])");
        let expected = [
            Block::text("It is [secret KEY]."),
            Block::Opaque { provider: "leaky".into(), value: json!({"signature": "unchanged"}) },
            Block::ToolUse(ToolUse { id: "t".into(), name: "n".into(), input: json!({"note": ["[secret KEY]"]}) }),
            Block::ToolUse(ToolUse { id: "call_withheld_3".into(), name: "n-[secret KEY]".into(), input: json!({}) }),
        ];
        assert_eq!(turn.blocks, expected);
        assert_eq!((turn.model.as_str(), turn.response_id), ("m-[secret KEY]", None));
        let error = of(true).complete(&request, &Silent).await.unwrap_err();
        assert!(error.to_string().ends_with("no such key: [secret KEY]"), "{error}");
    }
}
