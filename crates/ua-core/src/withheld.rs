//! Values that are kept without their secrets and still told apart from all others.
//!
//! What a tool answers is stored as the [`Redactor`] leaves it. The arguments of a client's call need more: they are sent as they are given, a
//! call that comes again is known by them, and a call in doubt may have to be sent once more. So each text that holds a secret, each number and each
//! list of numbers is kept without it, with a digest of the whole behind it, made under a key so that nobody who reads it can try values. Two texts are kept as
//! one only if they are one, and whoever has the text that was given can put it back in its place; nobody else can.
//!
//! Invariants: what is kept holds nothing that the redactor knows; a text that only looks like one of these is kept as one, so none is ever
//! taken for another. Proved by: this file's tests.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::canonical::{Sha256, sha256};
use crate::redact::Redactor;

/// What stands between a text without its secrets and the digest of what it was.
const MARK: &str = " [withheld ";
/// How many digits of the digest are kept.
const DIGITS: usize = 32;

/// A digest of `bytes` that only who has `key` can make, so that nobody can try values against it.
pub fn keyed_digest(key: &str, bytes: &str) -> Sha256 {
    let inner = sha256(format!("{key}{bytes}")).to_hex();
    sha256(format!("{key}{inner}"))
}

/// What is kept of `value`: every text, number, list of numbers and name of a field without the secrets that `redactor` knows, and with a digest
/// under `key` where there was one. `None` when it is kept as it is.
pub fn withhold(value: &Value, redactor: &Redactor, key: &str) -> Option<Value> {
    let text = |text: &String| {
        let is_clean = redactor.found_in(text).is_none() && digest_in(text).is_none();
        (!is_clean).then(|| format!("{}{MARK}{}]", redactor.text(text), digest(key, text)))
    };
    match value {
        Value::String(given) => text(given).map(Value::String),
        Value::Number(_) => number(value, redactor, key),
        Value::Array(items) => {
            if let Some(kept) = number(value, redactor, key) {
                return Some(kept);
            }
            let kept: Vec<Option<Value>> = items.iter().map(|item| withhold(item, redactor, key)).collect();
            let is_clean = kept.iter().all(Option::is_none);
            let all = || kept.into_iter().zip(items).map(|(kept, item)| kept.unwrap_or_else(|| item.clone()));
            (!is_clean).then(|| Value::Array(all().collect()))
        }
        Value::Object(fields) => {
            let mut is_clean = true;
            let mut kept = Map::new();
            for (name, value) in fields {
                let (kept_name, kept_value) = (text(name), withhold(value, redactor, key));
                is_clean &= kept_name.is_none() && kept_value.is_none();
                kept.insert(kept_name.unwrap_or_else(|| name.clone()), kept_value.unwrap_or_else(|| value.clone()));
            }
            (!is_clean).then_some(Value::Object(kept))
        }
        Value::Null | Value::Bool(_) => None,
    }
}

/// What is kept of a number or of a list of numbers that is a secret.
fn number(value: &Value, redactor: &Redactor, key: &str) -> Option<Value> {
    redactor.in_part(value).map(|shown| Value::String(format!("{shown}{MARK}{}]", digest_of(key, value))))
}

/// Whether a text or a name of a field in a value is kept without its secrets.
pub fn is_withheld(value: &Value) -> bool {
    let mut found = false;
    each_text(value, &mut |text| found |= digest_in(text).is_some());
    found
}

/// Puts what was withheld of `kept` back, out of the value that was `given`. False when something of it is not there, and then nothing is
/// changed.
pub fn put_back(kept: &mut Value, given: &Value, key: &str) -> bool {
    if !is_withheld(kept) {
        return true;
    }
    let mut known = HashMap::new();
    each_text(given, &mut |text| drop(known.insert(digest(key, text), Value::String(text.to_owned()))));
    each_number(given, &mut |number| drop(known.insert(digest_of(key, number), number.clone())));
    match given_back(kept, &known) {
        Some(whole) => {
            *kept = whole;
            true
        }
        None => false,
    }
}

fn given_back(kept: &Value, known: &HashMap<String, Value>) -> Option<Value> {
    let name = |name: &String| match digest_in(name) {
        Some(digest) => known.get(digest)?.as_str().map(str::to_owned),
        None => Some(name.clone()),
    };
    Some(match kept {
        Value::String(kept) => match digest_in(kept) {
            Some(digest) => known.get(digest)?.clone(),
            None => Value::String(kept.clone()),
        },
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| given_back(item, known)).collect::<Option<Vec<_>>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(own, value)| Some((name(own)?, given_back(value, known)?)));
            Value::Object(fields.collect::<Option<Map<_, _>>>()?)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => kept.clone(),
    })
}

fn each_text(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, look)),
        Value::Object(fields) => {
            for (name, value) in fields {
                look(name);
                each_text(value, look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Shows each number and each list of numbers.
fn each_number(value: &Value, look: &mut impl FnMut(&Value)) {
    match value {
        Value::Number(_) => look(value),
        Value::Array(items) => {
            if items.iter().all(Value::is_number) {
                look(value);
            }
            for item in items {
                each_number(item, look);
            }
        }
        Value::Object(fields) => fields.values().for_each(|field| each_number(field, look)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// The digest of what is no text. Under a key of its own, so that it is not that of a text which says the same.
fn digest_of(key: &str, value: &Value) -> String {
    digest(&format!("{key} number "), &value.to_string())
}

fn digest(key: &str, text: &str) -> String {
    keyed_digest(key, text).to_hex()[..DIGITS].to_owned()
}

/// The digest behind a text that is kept without its secrets.
fn digest_in(text: &str) -> Option<&str> {
    let (_, digest) = text.strip_suffix(']')?.rsplit_once(MARK)?;
    (digest.len() == DIGITS && digest.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "hush-4711-0815";

    fn redactor() -> Redactor {
        Redactor::new([("PASSWORD".to_owned(), SECRET.to_owned())])
    }

    #[test]
    fn what_holds_a_secret_is_kept_without_it_and_put_back_from_what_was_given() {
        let given = json!({"to": "bob", "pw": SECRET, "n": [1, {"deep": format!("user:{SECRET}@host")}], SECRET: true});
        let kept = withhold(&given, &redactor(), "k").unwrap();
        assert!(!kept.to_string().contains("4711"), "{kept}");
        assert_eq!(kept["to"], "bob");
        assert!(kept["pw"].as_str().unwrap().starts_with("[secret PASSWORD] [withheld "), "{kept}");
        assert!(is_withheld(&kept) && !is_withheld(&given));
        let mut back = kept.clone();
        assert!(put_back(&mut back, &given, "k"));
        assert_eq!(back, given);
        for (other, key) in [(json!({"pw": "another-secret"}), "k"), (given, "l")] {
            let mut back = kept.clone();
            assert!(!put_back(&mut back, &other, key));
            assert_eq!(back, kept);
        }
    }

    /// A number that is a secret comes back as a number, and a text of its digits as a text.
    #[test]
    fn numbers_are_withheld_and_put_back_as_they_were_given() {
        let redactor = Redactor::new([("PIN".to_owned(), "4711081533".to_owned())]);
        let bytes: Vec<Value> = "4711081533".bytes().map(|byte| json!(byte)).collect();
        let given = json!({"pin": 4_711_081_533_u64, "list": [1, -4_711_081_533_i64], "float": 4_711_081_533.0, "bytes": bytes,
            "text": "4711081533", "n": 7, "4711081533": [8.5]});
        let kept = withhold(&given, &redactor, "k").unwrap();
        assert!(!kept.to_string().contains("471108"), "{kept}");
        assert!(kept["pin"].as_str().unwrap().starts_with("[secret PIN] [withheld "), "{kept}");
        assert_eq!((&kept["n"], kept["pin"] == kept["text"]), (&json!(7), false));
        let mut back = kept.clone();
        assert!(put_back(&mut back, &given, "k"));
        assert_eq!(back, given);
        let mut back = kept.clone();
        assert!(!put_back(&mut back, &json!({"pin": "4711081533"}), "k") && back == kept);
    }

    /// One text in two dresses of a secret, or of two secrets of one name, is two texts.
    #[test]
    fn texts_that_differ_are_kept_as_two() {
        let redactor = redactor();
        redactor.learn([("PASSWORD".to_owned(), "hush-9999-9999".to_owned())]);
        let kept = |text: &str| withhold(&json!(text), &redactor, "k").unwrap();
        let all = [SECRET, "hush-9999-9999", "aHVzaC00NzExLTA4MTU=", "hush-4711-0815 ", "hush-4711-08\n15"];
        let mut texts: Vec<String> = all.into_iter().map(|text| kept(text).to_string()).collect();
        assert!(texts.iter().all(|text| text.starts_with("\"[secret PASSWORD]")), "{texts:?}");
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
        assert_eq!(kept(SECRET), kept(SECRET));
        assert_ne!(withhold(&json!(SECRET), &redactor, "l"), Some(kept(SECRET)), "nobody can try values");
    }

    #[test]
    fn a_text_that_looks_like_one_of_these_is_kept_as_one() {
        let kept = withhold(&json!({"pw": SECRET}), &redactor(), "k").unwrap();
        let again = withhold(&kept, &redactor(), "k").unwrap();
        assert_ne!(again, kept);
        let mut back = again;
        assert!(put_back(&mut back, &kept, "k"));
        assert_eq!(back, kept);
        let plain = json!({"a": ["x [withheld 12]", 7, null, true], "b": {}});
        assert_eq!(withhold(&plain, &redactor(), "k"), None);
        let mut same = plain.clone();
        assert!(put_back(&mut same, &json!({}), "k") && same == plain);
    }
}
