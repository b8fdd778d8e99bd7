//! By what a call is found on the other side: the names that it carries and that no other call does.
//!
//! Durable Jobs v1 spec §8.3. Who is asked whether a call happened looks into a mailbox, a log or a provider's console, and a subject or an amount
//! may be there many times. Whatever the call was given that is its own is named: by a policy's `found_by`, by the channel of its key, by the mark
//! that was left in an argument, by an id that its arguments chose.

use serde_json::{Map, Value};

use crate::asked::on_one_line;
use crate::policy::{CallPolicy, KeyChannel};
use crate::probe::{Marker, MarkerForm, Values};

/// The most of one such name that is shown.
const LONGEST: usize = 300;

impl CallPolicy {
    /// By what a call with this key and these arguments is found on the other side, each in words; nothing where it carries no name of its own.
    pub fn names_outside(&self, key: Option<&str>, arguments: &Map<String, Value>) -> Vec<String> {
        let values = Values { key, arguments, first_sent_at: None };
        let mut names: Vec<String> = self.found_by.iter().filter_map(|template| values.text(template).ok()).collect();
        let said = !names.is_empty();
        if let Some(key) = key {
            names.extend(match &self.key_channel {
                Some(KeyChannel::Header(name)) => Some(format!("HTTP header `{name}`: {key}")),
                Some(KeyChannel::Argument(name)) => Some(format!("argument `{name}`: {key}")),
                // Where it goes from there only a policy knows.
                Some(KeyChannel::Meta) => (!said).then(|| format!("idempotency key {key}")),
                None => None,
            });
            names.extend(self.marker.as_ref().and_then(|marker| mark(marker, arguments, key)));
        }
        let chosen = self.probe.iter().flat_map(|probe| &probe.unique_arguments);
        names.extend(chosen.filter_map(|name| match arguments.get(name)? {
            Value::String(text) if !text.is_empty() => Some(format!("`{name}`: {text}")),
            Value::Number(number) => Some(format!("`{name}`: {number}")),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }));
        names.iter().map(|name| on_one_line(name).chars().take(LONGEST).collect()).collect()
    }
}

/// The mark that was left in an argument, where there was room for one.
fn mark(marker: &Marker, arguments: &Map<String, Value>, key: &str) -> Option<String> {
    let mut marked = arguments.clone();
    if !marker.apply(&mut marked, key) {
        return None;
    }
    let values = Values { key: Some(key), arguments: &Map::new(), first_sent_at: None };
    let text = match &marker.form {
        MarkerForm::Append(template) => values.text(template).ok()?.trim().to_owned(),
        MarkerForm::Set(template) | MarkerForm::Push(template) | MarkerForm::Put(template) => {
            match values.value(template).ok()? {
                Value::String(text) => text,
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    other.to_string()
                }
            }
        }
    };
    Some(format!("mark in `{}`: {text}", marker.argument))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::probe::{FoundBy, FoundRule, ProbePolicy, key_id};

    fn names(policy: &CallPolicy, arguments: Value) -> Vec<String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        policy.names_outside(Some("k-1"), &arguments)
    }

    #[test]
    fn whatever_a_call_carries_that_is_its_own_is_named() {
        let plain = CallPolicy::unclassified();
        assert_eq!(names(&plain, json!({"to": "a@b.test"})), Vec::<String>::new());
        let id = key_id("k-1");
        assert!(id.len() == 32 && id != key_id("k-2"), "{id}");
        let mail = CallPolicy {
            found_by: vec!["Message-ID <{key_id}@ua.invalid>".to_owned(), "a copy to {arg.cc}".to_owned()],
            key_channel: Some(KeyChannel::Meta),
            ..plain.clone()
        };
        // What the call does not have is not named, and the key is not where a policy says what becomes of it.
        assert_eq!(names(&mail, json!({})), [format!("Message-ID <{id}@ua.invalid>")]);
        assert_eq!(
            mail.names_outside(None, &Map::new()),
            Vec::<String>::new(),
            "nothing was made of a key that was not given"
        );
        let of = |key_channel| CallPolicy { key_channel: Some(key_channel), ..plain.clone() };
        assert_eq!(names(&of(KeyChannel::Meta), json!({})), ["idempotency key k-1"]);
        assert_eq!(names(&of(KeyChannel::Header("X-Key".into())), json!({})), ["HTTP header `X-Key`: k-1"]);
        assert_eq!(names(&of(KeyChannel::Argument("id".into())), json!({})), ["argument `id`: k-1"]);

        let marked = |form| CallPolicy {
            marker: Some(Marker { argument: "body".to_owned(), form, given: false }),
            ..plain.clone()
        };
        let appended = marked(MarkerForm::Append("\n\n[ua {key}]".to_owned()));
        assert_eq!(names(&appended, json!({"body": "x"})), ["mark in `body`: [ua k-1]"]);
        assert_eq!(names(&appended, json!({"body": ["no text"]})), Vec::<String>::new(), "there was no room for it");
        let set = marked(MarkerForm::Put(json!({"ref": "{key}"})));
        assert_eq!(names(&set, json!({})), [r#"mark in `body`: {"ref":"k-1"}"#]);

        let probe = ProbePolicy {
            tool: "get".to_owned(),
            arguments: json!({}),
            when: Map::new(),
            found: FoundRule {
                items: String::new(),
                entry: None,
                by: FoundBy::Mark { field: String::new(), value: "{arg.event_id}".to_owned(), contains: false },
                id: None,
            },
            absent: None,
            unique_arguments: vec!["event_id".to_owned(), "other".to_owned()],
            settle: Duration::ZERO,
        };
        let chosen = CallPolicy { probe: Some(probe), ..plain };
        assert_eq!(names(&chosen, json!({"event_id": "e\n7", "other": ""})), ["`event_id`: e\\n7"]);
    }
}
