//! Cassettes: real exchanges with a provider, kept in a file, and a provider that answers from one.
//!
//! A cassette is a file of lines, one exchange each. A request is found by a digest of what it asks, in which notes of resumes do not
//! count and [`Places`] of this run have names, so that a replay finds its exchanges in another folder and behind a kill. Secrets are
//! taken out by the redactor before anything is written. A reply is kept as the events of its stream, and as what was read from them
//! where the cleaned events do not say the same any more (a secret that came in two pieces).
//!
//! Granular Execution PRD §5 (a request has one identity), Context Storage & Durability §4 (what is kept is clean).

mod differ;
mod recorder;
mod replay;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{CanonicalJson, ModelTurn, Origin, Redactor, Sha256};

pub use self::recorder::RecordingProvider;
pub use self::replay::{CassetteError, ReplayProvider};
use crate::anthropic::decode_events as decode_anthropic;
use crate::chat::decode_events as decode_chat;
use crate::error::LlmError;
use crate::openai::decode_events as decode_openai;
use crate::request::ModelRequest;
use crate::{ANTHROPIC, OPENAI, OPENAI_CHAT};

/// The version of the form in which exchanges are written.
const VERSION: u32 = 1;

/// One exchange, as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Exchange {
    version: u32,
    /// The provider that answered.
    provider: String,
    /// The digest of the request itself, as the run's usage has it.
    request_sha256: Sha256,
    /// The digest by which it is found.
    key: Sha256,
    /// What was asked, clean, with names for places.
    request: Value,
    /// The data of the reply's events; missing where the reply itself is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    events: Option<Vec<String>>,
    /// The reply, where events cannot be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reply: Option<ModelTurn>,
    /// Why there was none. A replay passes over such an exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// Texts of one run that another run has otherwise: its folder, its name. They are written by name.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Text and name, the longest text first.
    named: Vec<(String, String)>,
}

impl Places {
    /// Takes names and the texts that they stand for. A text of fewer than 8 bytes is left as it is.
    pub fn new(places: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let mut named: Vec<(String, String)> = places
            .into_iter()
            .filter(|(_, text)| text.len() >= 8)
            .map(|(name, text)| (text, format!("${{{name}}}")))
            .collect();
        named.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        Self { named }
    }

    /// The text with names.
    fn named(&self, text: &str) -> String {
        self.named.iter().fold(text.to_owned(), |text, (place, name)| text.replace(place.as_str(), name))
    }

    /// The text with this run's places.
    fn placed(&self, text: &str) -> String {
        self.named.iter().fold(text.to_owned(), |text, (place, name)| text.replace(name.as_str(), place))
    }
}

/// Changes every text of a value; names of fields stay.
fn each_text(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(fields) => fields.values_mut().for_each(|field| each_text(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a request asks, in the words in which it is kept.
struct Asked {
    key: Sha256,
    request: Value,
    /// What is written by name in this exchange.
    names: Places,
}

/// What a request asks, clean and with names for places, and the digest of it. Ids of 32 hexadecimal digits, which tools make of a
/// run's keys, are numbered in the order in which they stand there: another run has others in the same places.
fn asked(request: &ModelRequest, redactor: &Redactor, places: &Places) -> Asked {
    let mut request = request.clone();
    request.messages.retain(|message| message.origin != Origin::Resume);
    let mut value = match serde_json::to_value(&request) {
        Ok(value) => value,
        Err(why) => unreachable!("a request is made of strings, integers and JSON, which always serialise: {why}"),
    };
    redactor.json(&mut value);
    let ids = std::cell::RefCell::new(Vec::new());
    each_text(&mut value, &|text| {
        let text = places.named(text);
        note_ids(&text, &mut ids.borrow_mut());
        text
    });
    let mut names = places.clone();
    let numbered = ids.into_inner().into_iter().enumerate();
    names.named.extend(numbered.map(|(index, id)| (id, format!("${{id_{}}}", index + 1))));
    each_text(&mut value, &|text| names.named(text));
    let key = match CanonicalJson::of(&value, &[]) {
        Ok(canonical) => canonical.hash(),
        Err(why) => unreachable!("canonical JSON stays so when its texts change: {why}"),
    };
    Asked { key, request: value, names }
}

/// Adds the ids in `text` that are not in `ids` yet: runs of exactly 32 hexadecimal digits.
fn note_ids(text: &str, ids: &mut Vec<String>) {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    for run in text.split(|c| !is_digit(c)).filter(|run| run.len() == 32) {
        if !ids.iter().any(|id| id == run) {
            ids.push(run.to_owned());
        }
    }
}

/// A stored reply, as this run would have it.
fn placed(turn: &ModelTurn, places: &Places) -> Result<ModelTurn, serde_json::Error> {
    let mut value = serde_json::to_value(turn)?;
    each_text(&mut value, &|text| places.placed(text));
    serde_json::from_value(value)
}

/// Reads the events of a wire again.
fn decode(provider: &str, request: &ModelRequest, events: &[String]) -> Option<Result<ModelTurn, LlmError>> {
    match provider {
        ANTHROPIC => Some(decode_anthropic(request, events)),
        OPENAI => Some(decode_openai(request, events)),
        OPENAI_CHAT => Some(decode_chat(request, events)),
        _ => None,
    }
}

/// Exchanges by digest, in the order in which they were recorded.
type ByKey = BTreeMap<Sha256, Vec<Exchange>>;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests;
