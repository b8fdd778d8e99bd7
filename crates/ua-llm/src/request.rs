//! What is asked of a model, independent of any provider's wire format.

use serde::Serialize;
use serde_json::Value;
use ua_core::{CanonicalJson, Message, Sha256, ToolSpec};

use crate::estimate::estimate_of;

/// One request for one reply.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelRequest {
    /// The model's name, as the provider knows it.
    pub model: String,
    /// The system prompt; may be empty.
    pub system: String,
    /// The history, oldest first. It satisfies [`check_history`](crate::check_history).
    pub messages: Vec<Message>,
    /// The tools that the model may ask for.
    pub tools: Vec<ToolOffer>,
    /// The longest reply, in tokens.
    pub max_output_tokens: u32,
    /// The sampling temperature in thousandths; the provider's default when absent.
    pub temperature_milli: Option<u32>,
}

/// What is known of a request before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Its digest ([`ModelRequest::sha256`]).
    pub sha256: Sha256,
    /// Its estimated input tokens ([`estimate_input_tokens`](crate::estimate_input_tokens)).
    pub input_tokens: u64,
}

/// A tool as a model sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolOffer {
    /// The name to ask for it by: `mcp__server__tool`.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

impl From<&ToolSpec> for ToolOffer {
    fn from(spec: &ToolSpec) -> Self {
        Self {
            name: spec.name.raw.clone(),
            description: spec.description.clone(),
            input_schema: spec.input_schema.clone(),
        }
    }
}

impl ModelRequest {
    /// The digest of the request's canonical JSON: equal digests mean that a model was asked the same thing.
    pub fn sha256(&self) -> Sha256 {
        self.canonical().hash()
    }

    /// Its digest and its estimated size, of one pass over it.
    pub fn measured(&self) -> Measured {
        let canonical = self.canonical();
        Measured { sha256: canonical.hash(), input_tokens: estimate_of(self, &canonical) }
    }

    /// The canonical JSON of the request, in which it is hashed and measured.
    pub(crate) fn canonical(&self) -> CanonicalJson {
        let canonical = serde_json::to_value(self)
            .map_err(|error| error.to_string())
            .and_then(|value| CanonicalJson::of(&value, &[]).map_err(|error| error.to_string()));
        match canonical {
            Ok(json) => json,
            Err(why) => unreachable!("a request is made of strings, integers and JSON, which always serialise: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_core::Origin;

    use super::*;

    fn request(schema: Value) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: "s".into(),
            messages: vec![Message::user(Origin::Prompt, "hi")],
            tools: vec![ToolOffer { name: "t".into(), description: "d".into(), input_schema: schema }],
            max_output_tokens: 10,
            temperature_milli: Some(700),
        }
    }

    #[test]
    fn the_digest_ignores_the_order_of_keys_and_nothing_else() {
        let one = request(serde_json::json!({"a": 1, "b": 2}));
        let same = request(serde_json::json!({"b": 2, "a": 1}));
        let other = request(serde_json::json!({"a": 1, "b": 3}));
        assert_eq!(one.sha256(), same.sha256());
        assert_ne!(one.sha256(), other.sha256());
    }
}
