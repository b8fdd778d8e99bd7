//! Secrets that must not be kept: replaced in what comes from outside, before it is stored or shown to anybody.
//!
//! Context Storage & Durability §4: what a tool answers is kept raw, so what must not be kept goes out before. A pure rule over text;
//! where it stands on the way decides what it protects.

use std::borrow::Cow;

use serde_json::Value;

use crate::reply::{Outcome, RawReply};

/// Shorter values stand in too many words to be told from them.
const MIN_BYTES: usize = 8;

/// Secrets by name, and how they are taken out of text.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Value and what stands in its place, the longest value first: one may be the beginning of another.
    secrets: Vec<(String, String)>,
}

impl std::fmt::Debug for Redactor {
    /// Names, never values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.secrets.iter().map(|(_, shown)| shown)).finish()
    }
}

impl Redactor {
    /// Takes secrets as name and value. Values of fewer than 8 bytes are left out: they cannot be told from ordinary words.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut secrets: Vec<(String, String)> = secrets
            .into_iter()
            .map(|(name, value)| (value.trim().to_owned(), format!("[secret {name}]")))
            .filter(|(value, _)| value.len() >= MIN_BYTES)
            .collect();
        secrets.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        secrets.dedup_by(|(a, _), (b, _)| a == b);
        Self { secrets }
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for (value, shown) in &self.secrets {
            if clean.contains(value.as_str()) {
                clean = Cow::Owned(clean.replace(value.as_str(), shown));
            }
        }
        clean
    }

    /// Takes secrets out of every text of a JSON value, names of fields included.
    pub fn json(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.own(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(fields) => {
                let is_named = fields.keys().any(|name| matches!(self.text(name), Cow::Owned(_)));
                if is_named {
                    *fields = std::mem::take(fields)
                        .into_iter()
                        .map(|(name, value)| (self.text(&name).into_owned(), value))
                        .collect();
                }
                fields.values_mut().for_each(|value| self.json(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// What came of an attempt, without secrets.
    pub fn outcome(&self, mut outcome: Outcome) -> Outcome {
        if self.secrets.is_empty() {
            return outcome;
        }
        match &mut outcome {
            Outcome::NotSent { why } | Outcome::Lost { why } => self.own(why),
            Outcome::Raw(reply) => match reply {
                RawReply::ToolResult { result } => self.json(result),
                RawReply::RpcError { message, .. } => self.own(message),
                RawReply::HttpStatus { body, .. } => self.own(body),
                // Not from a tool: a person said it, or it was put together here out of what was read before.
                RawReply::Statement { .. } | RawReply::Found { .. } => {}
            },
            // What is shown to a person; the rest goes back to the tool as it came.
            Outcome::Continues(handle) => {
                let requests = handle.input.iter_mut().flat_map(|input| input.requests.values_mut());
                requests.for_each(|request| self.json(request));
            }
        }
        outcome
    }

    fn own(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redactor() -> Redactor {
        let secrets = [("KEY", "sk-canary-1"), ("LONGER", "sk-canary-12345"), ("SHORT", "1234567")];
        Redactor::new(secrets.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn the_longest_secret_goes_first_and_short_ones_stay() {
        assert_eq!(
            redactor().text("a sk-canary-12345 b sk-canary-1 c 1234567"),
            "a [secret LONGER] b [secret KEY] c 1234567"
        );
        assert!(matches!(redactor().text("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_text_of_an_answer_is_looked_at() {
        let result =
            json!({"content": [{"text": "key: sk-canary-1"}], "n": 1, "sk-canary-12345": {"deep": ["sk-canary-1"]}});
        let outcome = redactor().outcome(Outcome::Raw(RawReply::ToolResult { result }));
        let clean =
            json!({"content": [{"text": "key: [secret KEY]"}], "n": 1, "[secret LONGER]": {"deep": ["[secret KEY]"]}});
        assert_eq!(outcome, Outcome::Raw(RawReply::ToolResult { result: clean }));
        for outcome in [
            Outcome::Lost { why: "sk-canary-1".into() },
            Outcome::NotSent { why: "sk-canary-1".into() },
            Outcome::Raw(RawReply::RpcError { code: 1, message: "sk-canary-1".into() }),
            Outcome::Raw(RawReply::HttpStatus { status: 500, body: "sk-canary-1".into() }),
        ] {
            let clean = format!("{:?}", redactor().outcome(outcome));
            assert!(clean.contains("[secret KEY]") && !clean.contains("canary"), "{clean}");
        }
    }

    #[test]
    fn printing_it_shows_no_value() {
        assert_eq!(format!("{:?}", redactor()), r#"["[secret LONGER]", "[secret KEY]"]"#);
    }
}
