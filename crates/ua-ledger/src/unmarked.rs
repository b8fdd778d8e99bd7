//! Whether an entry without a call's mark may be the call's all the same.
//!
//! Pure. Services cut, clean and leave out what they are given, and servers hand on a part of it, so that a list may show what a call made and
//! not the mark that the call left in it. Such a list proves no absence. An entry is taken for the call's when it has the words that the
//! call said and that others would not have said; that is wrong at times, and then a person is asked.
//! Proved by: the tests below, and those of [`crate::enquiry`].

use serde_json::{Map, Value};
use ua_core::{CallPolicy, ProbePolicy, lies_in, template_uses, value_at};

/// So many letters and digits in a row are nobody else's by chance.
const LONG: usize = 8;
/// So many are compared of texts that are cut.
const BEGINNING: usize = 24;

/// What a call said of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OwnWords {
    /// The text that the mark was put behind.
    marked: String,
    /// Every other text, but for those by which the list was asked for: these are in all of it.
    others: Vec<String>,
}

impl OwnWords {
    /// What `arguments` say.
    pub(crate) fn of(arguments: &Map<String, Value>, policy: &CallPolicy, probe: &ProbePolicy) -> Self {
        let mut asked_by = Vec::new();
        names_in(&probe.arguments, &mut asked_by);
        let marked = policy.marker.as_ref().map(|marker| marker.argument.as_str());
        let mut own = Self { marked: String::new(), others: Vec::new() };
        for (name, value) in arguments.iter().filter(|(name, _)| !asked_by.contains(name)) {
            let mut said = Vec::new();
            texts(value, &mut said);
            if Some(name.as_str()) == marked {
                own.marked = plain(&said.concat());
            } else {
                own.others.extend(said.into_iter().map(plain).filter(|said| !said.is_empty()));
            }
        }
        own
    }

    /// Why `entry`, in whose `field` the mark `value` would be and is not, may be the call's; `None` if it is not.
    pub(crate) fn may_be(&self, entry: &Value, field: &str, value: &str) -> Option<&'static str> {
        if lies_in(entry, value) {
            return Some("something of that has the mark elsewhere");
        }
        let mut shown = Vec::new();
        texts(value_at(entry, field).unwrap_or(&Value::Null), &mut shown);
        let shown = plain(&shown.concat());
        let mut all = Vec::new();
        texts(entry, &mut all);
        let all: Vec<String> = all.into_iter().map(plain).filter(|text| !text.is_empty()).collect();
        let has = |said: &String| all.contains(said);
        let is_alike = |text: &String| !self.marked.is_empty() && is_beginning(text, &self.marked);
        if all.iter().any(is_alike) {
            return Some("something of that has the same words without the mark");
        }
        // Where the field is not shown, nothing else says that the entry is another one.
        if shown.is_empty() && self.others.iter().any(has) {
            return Some("something of that has the same values, and not the field in which the mark would be");
        }
        let is_long = |said: &&String| said.chars().count() >= LONG;
        self.others.iter().filter(is_long).any(has).then_some("something of that has the same values without the mark")
    }
}

/// Whether one text has the beginning of the other; short ones have to be equal.
fn is_beginning(one: &str, other: &str) -> bool {
    let beginning = |text: &str| text.chars().take(BEGINNING).collect::<String>();
    let (of_one, of_other) = (beginning(one), beginning(other));
    if of_one.chars().count().min(of_other.chars().count()) < LONG {
        return one == other;
    }
    one.contains(&of_other) || other.contains(&of_one)
}

/// The letters and digits of a text, in lower case, without the tags of HTML.
fn plain(text: &str) -> String {
    let mut is_in_tag = false;
    let mut kept = String::new();
    for letter in text.chars() {
        match letter {
            '<' => is_in_tag = true,
            '>' => is_in_tag = false,
            _ if !is_in_tag && letter.is_alphanumeric() => kept.extend(letter.to_lowercase()),
            _ => {}
        }
    }
    kept
}

/// Every text in a value.
fn texts<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The arguments that the templates in a value name.
fn names_in(value: &Value, found: &mut Vec<String>) {
    let mut templates = Vec::new();
    texts(value, &mut templates);
    found
        .extend(templates.into_iter().filter_map(|template| template_uses(template).ok()).flat_map(|(names, _)| names));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn words(marked: &str, others: &[&str]) -> OwnWords {
        OwnWords { marked: plain(marked), others: others.iter().map(|text| plain(text)).collect() }
    }

    #[test]
    fn what_a_service_cuts_cleans_or_leaves_out_may_be_the_calls() {
        let long = "Long text, and more of it than a list shows. And more.";
        let table = [
            // Cut, cleaned, in other letters, as HTML, or with the mark stripped.
            (long, json!({"body": "Long text, and more of it…"}), true),
            (long, json!({"body": "<p>Long text, and more of it than a list shows.</p>"}), true),
            (long, json!({"body": "LONG TEXT, AND MORE OF IT THAN A LIST SHOWS. AND MORE."}), true),
            ("b", json!({"body": "b\n\n"}), true),
            // In another field, or nowhere at all.
            (long, json!({"blocks": [{"text": "Long text, and more of it than a list"}]}), true),
            ("b", json!({"blocks": [{"text": "b ref k-1"}]}), true),
            ("b", json!({"title": "Fix"}), true),
            ("b", json!({"title": "Fix", "body": null}), true),
            ("b", json!({"title": "Fix", "body": ""}), true),
            // The same title with another text, where it is one that others would not choose.
            ("b", json!({"title": "fix the mill race", "body": "Something else"}), true),
            ("b", json!({"title": "Fix", "body": "Something else"}), false),
            ("b", json!({"title": "Other", "body": null}), false),
            ("b", json!({"title": "Other"}), false),
            (long, json!({"title": "Other", "body": "Other words that are long enough"}), false),
            ("", json!({"title": "Other", "body": ""}), false),
        ];
        for (marked, entry, may_be) in table {
            let own = words(marked, &["Fix", "Fix the mill race"]);
            assert_eq!(own.may_be(&entry, "body", "k-1").is_some(), may_be, "{marked}: {entry}");
        }
    }
}
