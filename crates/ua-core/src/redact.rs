//! Secrets that must not be kept: replaced in what comes from outside, before it is stored or shown to anybody.
//!
//! Context Storage & Durability §4: what a tool answers is kept raw, so what must not be kept goes out before. A pure rule over text;
//! where it stands on the way decides what it protects. A secret is known as it is, inside JSON (escaped once or twice), percent-encoded,
//! in hexadecimal digits, and inside base64 of either alphabet wherever it starts. Not known: any other transformation (compressed,
//! encrypted, reversed, spelt out with spaces), and secrets of fewer than 8 bytes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use crate::reply::{Outcome, RawReply};

/// Shorter values stand in too many words to be told from them.
const MIN_BYTES: usize = 8;

/// Secrets by name, and how they are taken out of text. Clones know the same secrets, also those that one of them learns later.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Arc<Vec<Form>>>>,
}

/// A secret as it may stand in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Form {
    text: String,
    /// What stands in its place.
    shown: String,
}

impl std::fmt::Debug for Redactor {
    /// Names, never values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known();
        let names: BTreeSet<&str> = known.iter().map(|form| form.shown.as_str()).collect();
        f.debug_list().entries(names).finish()
    }
}

impl Redactor {
    /// Takes secrets as name and value. Values of fewer than 8 bytes are left out: they cannot be told from ordinary words.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Learns more secrets, for every clone of this redactor.
    pub fn learn(&self, secrets: impl IntoIterator<Item = (String, String)>) {
        let new: Vec<Form> = secrets
            .into_iter()
            .map(|(name, value)| (format!("[secret {name}]"), value.trim().to_owned()))
            .filter(|(_, value)| value.len() >= MIN_BYTES)
            .flat_map(|(shown, value)| forms(&value).into_iter().map(move |text| Form { text, shown: shown.clone() }))
            .collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::clone(&known);
        all.extend(new);
        // The longest first: one may be the beginning of another. The name that came first stays.
        all.sort_by(|a, b| b.text.len().cmp(&a.text.len()).then_with(|| a.text.cmp(&b.text)));
        all.dedup_by(|a, b| a.text == b.text);
        *known = Arc::new(all);
    }

    fn known(&self) -> Arc<Vec<Form>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known().is_empty()
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for Form { text: value, shown } in self.known().iter() {
            if clean.contains(value.as_str()) {
                clean = Cow::Owned(clean.replace(value.as_str(), shown));
            }
        }
        clean
    }

    /// The name of a secret that stands in the text, as `[secret NAME]`.
    pub fn found_in(&self, text: &str) -> Option<String> {
        self.known().iter().find(|form| text.contains(form.text.as_str())).map(|form| form.shown.clone())
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
        if self.is_empty() {
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

    /// Takes secrets out of a text in its place.
    pub fn own(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }
}

/// How a value may stand in a text, each form once.
fn forms(value: &str) -> Vec<String> {
    let in_json = |text: &str| {
        let quoted = Value::String(text.to_owned()).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let once = in_json(value);
    let hex = |digits: &str| {
        let digits = digits.as_bytes();
        value.bytes().flat_map(|byte| [byte >> 4, byte & 15]).map(|n| char::from(digits[usize::from(n)])).collect()
    };
    let mut all = vec![
        value.to_owned(),
        in_json(&once),
        once.replace('/', "\\/"),
        once,
        percent_encoded(value, "0123456789ABCDEF"),
        percent_encoded(value, "0123456789abcdef"),
        hex("0123456789abcdef"),
        hex("0123456789ABCDEF"),
    ];
    for alphabet in [STANDARD, URL_SAFE] {
        all.extend((0..3).filter_map(|offset| inside_base64(value.as_bytes(), offset, alphabet)));
    }
    let mut seen = BTreeSet::new();
    all.retain(|form| seen.insert(form.clone()));
    all
}

fn percent_encoded(value: &str, digits: &str) -> String {
    let digits = digits.as_bytes();
    let mut out = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend([byte >> 4, byte & 15].map(|n| char::from(digits[usize::from(n)])));
        }
    }
    out
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What of base64 depends on `value` alone when `offset` bytes of a group stand before it: the characters at its edges depend on its
/// neighbours, too. `None` when that is too little to be told from chance.
fn inside_base64(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> Option<String> {
    let bits = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    // The first character whose bits are all of the value.
    let skipped = (6 - offset * 8 % 6) % 6;
    let bits: Vec<u8> = bits.skip(skipped).collect();
    let text: String = bits
        .chunks_exact(6)
        .map(|six| char::from(alphabet[usize::from(six.iter().fold(0, |number, bit| number << 1 | bit))]))
        .collect();
    (text.len() >= MIN_BYTES).then_some(text)
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
    fn a_secret_is_known_in_every_usual_dress() {
        let value = "p@ss/w\"rd\\+\u{e9}-canary";
        let redactor = Redactor::new([("K".to_owned(), value.to_owned())]);
        let json_text = serde_json::json!({ "a": value }).to_string();
        let twice = serde_json::json!({ "b": json_text }).to_string();
        for dressed in [value.to_owned(), json_text, twice, percent_encoded(value, "0123456789abcdef")] {
            let clean = redactor.text(&format!("<{dressed}>")).into_owned();
            assert!(clean.contains("[secret K]") && !clean.contains("canary"), "{clean}");
        }
        let hex: Vec<String> = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(redactor.text(&hex.concat()), "[secret K]");
    }

    /// Base64 as the definition has it, of three bytes at a time.
    fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
        let mut out = String::new();
        for group in bytes.chunks(3) {
            let number = group.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            let digits = (0..4).map(|n| char::from(alphabet[(number >> (18 - 6 * n) & 63) as usize]));
            out.extend(digits.take(group.len() + 1));
        }
        out
    }

    #[test]
    fn a_secret_is_known_inside_base64_wherever_it_starts() {
        assert_eq!(base64(b"user:pass", STANDARD), "dXNlcjpwYXNz");
        let secret = "sk-\u{ff}\u{fe}canary-0123456789";
        let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
        for alphabet in [STANDARD, URL_SAFE] {
            for before in 0..7 {
                for after in 0..4 {
                    let whole = format!("{}{secret}{}", "x".repeat(before), "y".repeat(after));
                    let clean = redactor.text(&base64(whole.as_bytes(), alphabet)).into_owned();
                    assert!(clean.contains("[secret K]"), "{before} {after}: {clean}");
                }
            }
        }
    }

    #[test]
    fn clones_learn_together() {
        let redactor = Redactor::default();
        let clone = redactor.clone();
        assert!(clone.is_empty());
        redactor.learn([("LATE".to_owned(), "sk-canary-9".to_owned())]);
        assert_eq!(clone.text("a sk-canary-9"), "a [secret LATE]");
        assert_eq!(clone.found_in("a sk-canary-9").as_deref(), Some("[secret LATE]"));
    }

    #[test]
    fn printing_it_shows_no_value() {
        assert_eq!(format!("{:?}", redactor()), r#"["[secret KEY]", "[secret LONGER]"]"#);
    }
}
