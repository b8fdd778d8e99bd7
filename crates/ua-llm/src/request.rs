//! What is asked of a model, independent of any provider's wire format.

use serde::Serialize;
use serde_json::Value;
use ua_core::{CanonicalJson, Digesting, Message, Sha256, Shared, ToolSpec};

use crate::estimate::{tokens_of, uncounted_in};
use crate::parts::Parts;

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
    pub tools: Shared<Vec<ToolOffer>>,
    /// The longest reply, in tokens.
    pub max_output_tokens: u32,
    /// The sampling temperature in thousandths; the provider's default when absent.
    pub temperature_milli: Option<u32>,
    /// What sampling starts from, on wires that take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// The JSON Schema of a reply that asks for no tool. A wire says it in its own words; what of it no wire can say is left out, so the
    /// reply has to be checked all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Whether the reply is to be a result in a form of the job's, also where that goes to no wire. It goes to none itself, and makes no other
    /// request.
    #[serde(skip)]
    pub wants_form: bool,
}

/// What is known of a request before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// Its digest ([`ModelRequest::digest`]).
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

    /// A digest of the digests of its parts: of what is around the messages, and of each message. Equal ones mean the same as equal
    /// [`sha256`](Self::sha256), and a request that goes on from another one has most of its parts.
    pub fn digest(&self) -> Sha256 {
        Measurer::default().measure(self).sha256
    }

    /// The canonical JSON of the request, in which it is hashed and measured.
    pub(crate) fn canonical(&self) -> CanonicalJson {
        canonical(self)
    }

    /// What is around the messages.
    pub(crate) fn frame(&self) -> Self {
        Self {
            messages: Vec::new(),
            model: self.model.clone(),
            system: self.system.clone(),
            tools: self.tools.clone(),
            max_output_tokens: self.max_output_tokens,
            temperature_milli: self.temperature_milli,
            seed: self.seed,
            output_schema: self.output_schema.clone(),
            wants_form: self.wants_form,
        }
    }

    /// Whether what is around the messages is as there.
    pub(crate) fn has_frame(&self, frame: &Self) -> bool {
        let Self {
            model,
            system,
            messages: _,
            tools,
            max_output_tokens,
            temperature_milli,
            seed,
            output_schema,
            wants_form: _,
        } = self;
        *max_output_tokens == frame.max_output_tokens
            && *temperature_milli == frame.temperature_milli
            && *seed == frame.seed
            && *output_schema == frame.output_schema
            && *model == frame.model
            && *system == frame.system
            && *tools == frame.tools
    }
}

fn canonical(part: &impl Serialize) -> CanonicalJson {
    let canonical = serde_json::to_value(part)
        .map_err(|error| error.to_string())
        .and_then(|value| CanonicalJson::of(&value, &[]).map_err(|error| error.to_string()));
    match canonical {
        Ok(json) => json,
        Err(why) => unreachable!("a request is made of strings, integers and JSON, which always serialise: {why}"),
    }
}

/// Measures the requests of one conversation, each part of them once: what a request has in common with the one before it is not looked at
/// again, and the digest goes on from where the two differ.
#[derive(Debug, Default)]
pub struct Measurer {
    frame: Option<Frame>,
    messages: Parts<Measure>,
}

/// What is around the messages, measured.
#[derive(Debug)]
struct Frame {
    of: ModelRequest,
    /// Bytes of its canonical JSON.
    bytes: u64,
    /// The digest up to the first message.
    so_far: Digesting,
}

/// A message, measured.
#[derive(Debug)]
struct Measure {
    sha256: Sha256,
    /// Bytes of its canonical JSON.
    bytes: u64,
    /// How many of these cost nothing by themselves.
    uncounted: u64,
    /// The digest of the request up to this message.
    so_far: Digesting,
}

impl Measure {
    fn of(message: &Message) -> Self {
        let canonical = canonical(message);
        Self {
            sha256: canonical.hash(),
            bytes: canonical.as_str().len() as u64,
            uncounted: uncounted_in(message),
            so_far: Digesting::default(),
        }
    }
}

impl Measurer {
    /// The digest of a request and its estimated size.
    pub fn measure(&mut self, request: &ModelRequest) -> Measured {
        let known = self.frame.take().filter(|frame| request.has_frame(&frame.of));
        let has_same_frame = known.is_some();
        let frame = known.unwrap_or_else(|| {
            let of = request.frame();
            let canonical = canonical(&of);
            let so_far = Digesting::default().and("ua.request.v2").and(canonical.hash().digits());
            Frame { bytes: canonical.as_str().len() as u64, so_far, of }
        });
        let same = self.messages.renew(request.messages.chunks(1), |piece| Measure::of(&piece[0]));
        let same = if has_same_frame { same } else { 0 };
        let last_known = same.checked_sub(1).and_then(|last| self.messages.iter().nth(last));
        let mut so_far = last_known.map_or_else(|| frame.so_far.clone(), |message| message.so_far.clone());
        for message in self.messages.iter_mut().skip(same) {
            so_far = so_far.and(message.sha256.digits());
            message.so_far = so_far.clone();
        }
        let commas = request.messages.len().saturating_sub(1) as u64;
        let bytes = self.messages.iter().map(|message| message.bytes).sum::<u64>() + frame.bytes + commas;
        let uncounted = self.messages.iter().map(|message| message.uncounted).sum();
        self.frame = Some(frame);
        Measured { sha256: so_far.digest(), input_tokens: tokens_of(bytes, uncounted) }
    }

    /// The digest that the request that was measured last would have if it ended behind so many of its messages.
    pub fn digest_of_first(&self, messages: usize) -> Sha256 {
        let last = messages.checked_sub(1).and_then(|last| self.messages.iter().nth(last));
        let so_far = last.map(|message| &message.so_far).or(self.frame.as_ref().map(|frame| &frame.so_far));
        so_far.cloned().unwrap_or_default().digest()
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
            tools: vec![ToolOffer { name: "t".into(), description: "d".into(), input_schema: schema }].into(),
            max_output_tokens: 10,
            temperature_milli: Some(700),
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    #[test]
    fn the_digest_ignores_the_order_of_keys_and_nothing_else() {
        let one = request(serde_json::json!({"a": 1, "b": 2}));
        let same = request(serde_json::json!({"b": 2, "a": 1}));
        let other = request(serde_json::json!({"a": 1, "b": 3}));
        assert_eq!(one.sha256(), same.sha256());
        assert_ne!(one.sha256(), other.sha256());
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), other.digest());
    }

    #[test]
    fn a_request_without_seed_and_schema_has_the_digest_it_had_before_there_were_any() {
        let plain = request(Value::Null);
        assert!(!plain.canonical().as_str().contains("seed") && !plain.canonical().as_str().contains("output_schema"));
        let seeded = ModelRequest { seed: Some(7), ..plain.clone() };
        let shaped = ModelRequest { output_schema: Some(serde_json::json!({"type": "object"})), ..plain.clone() };
        let mut measurer = Measurer::default();
        let digests: std::collections::BTreeSet<String> =
            [&plain, &seeded, &shaped].map(|request| measurer.measure(request).sha256.to_string()).into();
        assert_eq!(digests.len(), 3);
    }

    /// Whatever was measured before, a request comes to the same: some messages more, some left out, another tool.
    #[test]
    fn a_conversation_is_measured_as_each_of_its_requests_would_be() {
        let said = |text: &str| Message::user(Origin::Prompt, text);
        let with = |texts: &[&str], schema: i32| ModelRequest {
            messages: texts.iter().map(|text| said(text)).collect(),
            ..request(serde_json::json!({ "a": schema }))
        };
        let mut measurer = Measurer::default();
        let requests = [
            with(&["job", "one"], 1),
            with(&["job", "one", "two", "three"], 1),
            with(&["job", "2 left out", "three", "four"], 1),
            with(&["job", "2 left out", "three", "four", "three"], 2),
            with(&["other"], 2),
            with(&[], 2),
        ];
        for request in requests {
            let measured = measurer.measure(&request);
            assert_eq!(measured.sha256, request.digest());
            assert_eq!(measured.input_tokens, crate::estimate_input_tokens(&request), "as its whole JSON is long");
            for first in 0..=request.messages.len() {
                let shorter = ModelRequest { messages: request.messages[..first].to_vec(), ..request.clone() };
                assert_eq!(measurer.digest_of_first(first), shorter.digest());
            }
        }
    }

    #[test]
    fn no_two_requests_have_one_digest_because_of_where_their_parts_end() {
        let said = |texts: &[&str]| {
            let messages = texts.iter().map(|text| Message::user(Origin::Prompt, *text)).collect();
            ModelRequest { messages, ..request(Value::Null) }
        };
        let all = [said(&["a", "b"]), said(&["ab"]), said(&["b", "a"]), said(&["a"]), said(&["a", "b", ""])];
        let digests: std::collections::BTreeSet<String> =
            all.iter().map(|request| request.digest().to_string()).collect();
        assert_eq!(digests.len(), all.len());
    }
}
