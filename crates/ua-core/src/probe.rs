//! What a policy says about asking afterwards: which read-only tool, with which arguments, and what its answers prove.
//!
//! Durable Jobs v1 spec §8.3 (reconcile a stale RUNNING call with the provider). A probe proves that a call happened only by a
//! value that no other call can have left behind, or by its own values in the one entry that was made when it was sent, and that it did
//! not happen only by an answer that is complete and was given late enough. Invariants: a template never expands to nothing (a missing
//! argument is an error, not an empty text); a match on ordinary fields without a time is not expressible.

mod same;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical::sha256;
use crate::env::Timestamp;

pub use same::{MadeAt, OTHERS_AFTER, SameValues, Seen, TimeForm, Wanted, Window, lies_in};

/// How much earlier than the first attempt `{since}` lies, and how old all of a list has to be for a call to be absent from it. A clock may be
/// set by hours without being noticed (a zone that was taken for another, a machine that was suspended): a call that seems to have been made
/// before it was sent would be sent again.
const CLOCK_SLACK: Duration = Duration::from_hours(24);

/// A declared probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePolicy {
    /// The tool to ask: a bare name for one of the same server, else the qualified one. It has to be read-only.
    pub tool: String,
    /// Its arguments; texts in them are templates.
    pub arguments: Value,
    /// What the call's own arguments have to be for the tool to be asked about it: for tools that do several things, of which only one leaves
    /// behind what is looked for. An empty text stands for an argument that the call does not have.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub when: Map<String, Value>,
    /// What proves that the call happened.
    pub found: FoundRule,
    /// What proves that it did not; without it, nothing does, and what is not found is unclear.
    pub absent: Option<AbsentRule>,
    /// Arguments of the call that name one thing on the other side and that no other call may carry (an event id that the
    /// client chooses, an external id).
    pub unique_arguments: Vec<String>,
    /// How long after the horizon what happened may still be invisible to the probe.
    pub settle: Duration,
}

/// Which part of the answer proves that the call happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundRule {
    /// Where the items are: names joined by dots, `*` for each of a list or an object, empty for the whole answer. A list is taken item by
    /// item.
    pub items: String,
    /// For an answer that is prose: a regular expression of one item in it, whose named groups are the item's fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// What an item has to be.
    #[serde(flatten)]
    pub by: FoundBy,
    /// The field that holds the other side's name for the item.
    pub id: Option<String>,
}

/// What shows that an item is what the call left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FoundBy {
    /// A value that no other call can have left behind.
    Mark {
        /// The field of an item to look at, as a path; empty for the item itself.
        field: String,
        /// A template of what it has to be.
        value: String,
        /// Whether it is enough that the field contains the value.
        contains: bool,
    },
    /// The call's own values, and the time at which the item was made.
    Values(SameValues),
}

/// Which answer proves that the call did not happen. Any one of `error` and `text` is enough; otherwise the items must be there,
/// none may match, and the conditions on completeness must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentRule {
    /// A regular expression over an error that the tool reports: there is no such thing.
    pub error: Option<String>,
    /// A regular expression over an answer that is no JSON.
    pub text: Option<String>,
    /// The list is complete when it has fewer items than this.
    pub items_below: Option<usize>,
    /// The list is complete when this field of the answer has this value.
    pub complete: Option<FieldIs>,
    /// For items that are known by their values: the list is in the order in which they were made, the newest first, so that nothing is missing
    /// from the time of its last item on. That has to be before the call was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newest_first: bool,
}

/// A field of an answer and the value it has to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldIs {
    /// The field, as a path.
    pub field: String,
    /// The value.
    pub equals: Value,
}

/// How the key is put into an argument that people or programs on the other side can read, for tools that take no key.
///
/// The model's own arguments are stored without it; it is added to each attempt just before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// The top-level argument.
    pub argument: String,
    /// How.
    pub form: MarkerForm,
    /// There is room for it only where the call gives the argument: for tools that do something else without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
}

/// The ways to leave a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkerForm {
    /// Put at the end of a text; the argument may be missing.
    Append(String),
    /// The whole value of an argument that the model left empty.
    Set(Value),
    /// One more element at the end of a list; the argument may be missing.
    Push(Value),
    /// Further fields of an object, none of which the model gave; the argument may be missing.
    Put(Value),
}

impl Marker {
    /// Puts the mark in. False when there is no room for it: the argument is no text, or is taken.
    pub fn apply(&self, arguments: &mut Map<String, Value>, key: &str) -> bool {
        let marks = Values { key: Some(key), arguments: &Map::new(), first_sent_at: None };
        let present = arguments.get(&self.argument).filter(|value| !value.is_null());
        if self.given && present.is_none_or(is_empty) {
            return false;
        }
        let marked = match (&self.form, present) {
            (MarkerForm::Append(template), None) => marks.text(template).map(Value::String),
            (MarkerForm::Append(template), Some(Value::String(text))) => {
                marks.text(template).map(|mark| Value::String(format!("{text}{mark}")))
            }
            (MarkerForm::Set(template) | MarkerForm::Put(template), None) => marks.value(template),
            (MarkerForm::Push(template), None) => marks.value(template).map(|mark| Value::Array(vec![mark])),
            (MarkerForm::Push(template), Some(Value::Array(items))) => {
                marks.value(template).map(|mark| Value::Array(items.iter().cloned().chain([mark]).collect()))
            }
            (MarkerForm::Put(template), Some(Value::Object(fields))) => match marks.value(template) {
                Ok(Value::Object(more)) if more.keys().all(|name| !fields.contains_key(name)) => Ok(Value::Object(
                    fields.iter().map(|(name, value)| (name.clone(), value.clone())).chain(more).collect(),
                )),
                Ok(_) | Err(_) => return false,
            },
            (MarkerForm::Append(_) | MarkerForm::Set(_) | MarkerForm::Push(_) | MarkerForm::Put(_), Some(_)) => {
                return false;
            }
        };
        match marked {
            Ok(marked) => {
                arguments.insert(self.argument.clone(), marked);
                true
            }
            Err(_) => false,
        }
    }
}

/// Why a template has no value for a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{…}` with a name that means nothing, or a brace without its partner.
    #[error("cannot read the template {template:?}: {why}")]
    Malformed {
        /// The template.
        template: String,
        /// What is wrong with it.
        why: String,
    },
    /// The call does not have what the template names.
    #[error("the template {template:?} cannot be filled in: the call has no {what}")]
    Missing {
        /// The template.
        template: String,
        /// What it lacks.
        what: String,
    },
}

/// A piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Key,
    KeyId,
    Since,
    SinceUnix,
    Argument { name: String, default: Option<String> },
}

/// Checks a template without filling it in. Returns the names of the arguments it uses, and whether it uses the key.
pub fn template_uses(template: &str) -> Result<(Vec<String>, bool), TemplateError> {
    let pieces = pieces(template)?;
    let arguments = pieces.iter().filter_map(|piece| match piece {
        Piece::Argument { name, .. } => Some(name.split('.').next().unwrap_or_default().to_owned()),
        Piece::Text(_) | Piece::Key | Piece::KeyId | Piece::Since | Piece::SinceUnix => None,
    });
    let has_key = pieces.contains(&Piece::Key) || pieces.contains(&Piece::KeyId);
    Ok((arguments.collect(), has_key))
}

fn pieces(template: &str) -> Result<Vec<Piece>, TemplateError> {
    let malformed = |why: &str| TemplateError::Malformed { template: template.to_owned(), why: why.to_owned() };
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("{{").or_else(|| rest.strip_prefix("}}")) {
            text.push(next);
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (name, after) = after.split_once('}').ok_or_else(|| malformed("a `{` has no `}`"))?;
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
            }
            pieces.push(placeholder(name).ok_or_else(|| {
                malformed("write {key}, {key_id}, {since}, {since_unix}, {arg.NAME} or {arg.NAME|DEFAULT}; a brace is {{ or }}")
            })?);
            rest = after;
        } else if next == '}' {
            return Err(malformed("a `}` has no `{`"));
        } else {
            text.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn placeholder(name: &str) -> Option<Piece> {
    match name {
        "key" => Some(Piece::Key),
        "key_id" => Some(Piece::KeyId),
        "since" => Some(Piece::Since),
        "since_unix" => Some(Piece::SinceUnix),
        other => {
            let argument = other.strip_prefix("arg.")?;
            let (name, default) = match argument.split_once('|') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (argument, None),
            };
            (!name.is_empty()).then(|| Piece::Argument { name: name.to_owned(), default })
        }
    }
}

/// What templates are filled in with: one call, as it was sent.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// The call's key; `None` when it never reached the other side.
    pub key: Option<&'a str>,
    /// The call's arguments.
    pub arguments: &'a Map<String, Value>,
    /// When the first attempt was sent.
    pub first_sent_at: Option<Timestamp>,
}

impl Values<'_> {
    /// Fills in a text.
    pub fn text(&self, template: &str) -> Result<String, TemplateError> {
        let parts = pieces(template)?.into_iter().map(|piece| {
            Ok(match self.piece(template, &piece)? {
                Value::String(text) => text,
                other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                    other.to_string()
                }
            })
        });
        parts.collect()
    }

    /// Fills in every text of a value. A text that is one placeholder becomes the argument's value as it is.
    pub fn value(&self, template: &Value) -> Result<Value, TemplateError> {
        Ok(match template {
            Value::String(text) => match pieces(text)?.as_slice() {
                [one @ Piece::Argument { .. }] => self.piece(text, one)?,
                _ => Value::String(self.text(text)?),
            },
            Value::Array(items) => Value::Array(items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(name, value)| Ok((name.clone(), self.value(value)?)));
                Value::Object(filled.collect::<Result<_, TemplateError>>()?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => template.clone(),
        })
    }

    /// An argument, or what lies in one: `parent.page_id`, `to.0`.
    fn argument(&self, name: &str) -> Option<&Value> {
        self.arguments.get(name).or_else(|| {
            let (first, path) = name.split_once('.')?;
            value_at(self.arguments.get(first)?, path)
        })
    }

    /// The arguments that a template takes from the call.
    pub(crate) fn named_by(&self, template: &str) -> Result<Vec<&Value>, TemplateError> {
        Ok(pieces(template)?
            .iter()
            .filter_map(|piece| match piece {
                Piece::Argument { name, .. } => self.argument(name),
                Piece::Text(_) | Piece::Key | Piece::KeyId | Piece::Since | Piece::SinceUnix => None,
            })
            .collect())
    }

    /// The first argument that is not what `when` wants it to be.
    pub fn differs_from<'w>(&self, when: &'w Map<String, Value>) -> Option<&'w str> {
        let differs = when.iter().find(|(name, wanted)| {
            let given = self.argument(name).filter(|value| !is_empty(value));
            if is_empty(wanted) { given.is_some() } else { given != Some(*wanted) }
        });
        differs.map(|(name, _)| name.as_str())
    }

    fn piece(&self, template: &str, piece: &Piece) -> Result<Value, TemplateError> {
        let missing = |what: String| TemplateError::Missing { template: template.to_owned(), what };
        let since = || self.first_sent_at.map(|at| at.minus(CLOCK_SLACK)).ok_or_else(|| missing("attempt".to_owned()));
        let key = || self.key.ok_or_else(|| missing("key that the tool was given".to_owned()));
        Ok(match piece {
            Piece::Text(text) => Value::String(text.clone()),
            Piece::Key => Value::String(key()?.to_owned()),
            Piece::KeyId => Value::String(key_id(key()?)),
            Piece::Since => Value::String(since()?.to_string()),
            Piece::SinceUnix => Value::String(since()?.as_millis().div_euclid(1000).to_string()),
            Piece::Argument { name, default } => {
                let given = self.argument(name).filter(|value| !is_empty(value)).cloned();
                let value = given.or_else(|| default.clone().map(Value::String));
                value.ok_or_else(|| missing(format!("argument `{name}`")))?
            }
        })
    }
}

/// A short name made of a key, for places that take no long one (a Message-ID, a file's name): 32 hexadecimal digits.
pub fn key_id(key: &str) -> String {
    sha256(key).to_hex().chars().take(32).collect()
}

/// The value at a path of names joined by dots, where a number is a place in a list; the empty path is the value itself.
pub fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').filter(|name| !name.is_empty()).try_fold(value, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => value.get(name),
    })
}

/// The items at a path, in which `*` stands for every element of a list or every field of an object, and whether they are a list. `None` where
/// the answer has no such place.
pub fn items_at<'a>(answer: &'a Value, path: &str) -> Option<(Vec<&'a Value>, bool)> {
    let mut found = vec![answer];
    let mut is_list = false;
    for name in path.split('.').filter(|name| !name.is_empty()) {
        if name == "*" {
            is_list = true;
            found = found.into_iter().flat_map(parts_of).collect();
        } else {
            let below: Vec<&Value> = found.iter().filter_map(|value| value_at(value, name)).collect();
            if below.is_empty() && !(is_list && found.is_empty()) {
                return None;
            }
            found = below;
        }
    }
    is_list |= matches!(found.as_slice(), [Value::Array(_)]);
    let items = found.into_iter().flat_map(|value| if value.is_array() { parts_of(value) } else { vec![value] });
    Some((items.collect(), is_list))
}

fn parts_of(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// A text as it is, anything else as JSON.
pub fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(template: &Value) -> Result<Value, TemplateError> {
        let arguments = json!({"owner": "ada", "limit": 5, "labels": ["a"], "empty": ""});
        let Value::Object(arguments) = arguments else { unreachable!("it is an object") };
        let first_sent_at = Timestamp::parse("2026-01-02T03:04:05Z");
        Values { key: Some("k1"), arguments: &arguments, first_sent_at }.value(template)
    }

    #[test]
    fn a_mark_may_be_one_more_element_of_a_list_and_an_argument_lie_in_another() {
        let template = serde_json::json!({"text": {"content": "ref {key}"}});
        let marker = Marker { argument: "rich_text".into(), form: MarkerForm::Push(template), given: false };
        let said = serde_json::json!({"rich_text": [{"text": {"content": "Fine."}}], "parent": {"page_id": "p1"}});
        let Value::Object(said) = said else { panic!("an object") };
        let mut marked = said.clone();
        assert!(marker.apply(&mut marked, "k-1"));
        assert_eq!(marked["rich_text"][0], said["rich_text"][0]);
        assert_eq!(marked["rich_text"][1], serde_json::json!({"text": {"content": "ref k-1"}}));
        let mut empty = Map::new();
        assert!(marker.apply(&mut empty, "k-1") && empty["rich_text"].as_array().is_some_and(|list| list.len() == 1));
        let mut taken = Map::from_iter([("rich_text".to_owned(), Value::from("text"))]);
        assert!(!marker.apply(&mut taken, "k-1"));
        let form = MarkerForm::Put(serde_json::json!({"ua_key": "{key}"}));
        let put = Marker { argument: "parent".into(), form, given: false };
        assert!(put.apply(&mut marked, "k-1"));
        assert_eq!(marked["parent"], serde_json::json!({"page_id": "p1", "ua_key": "k-1"}));
        assert!(!put.apply(&mut marked, "k-2"), "the field is taken");
        let values = Values { key: None, arguments: &said, first_sent_at: None };
        assert_eq!(values.text("{arg.parent.page_id}").unwrap(), "p1");
        assert!(values.text("{arg.parent.block_id}").is_err());
        assert_eq!(template_uses("{arg.parent.page_id}").unwrap(), (vec!["parent".to_owned()], false));
    }

    #[test]
    fn templates_take_the_key_the_arguments_and_the_time() {
        let template = json!({
            "query": "repo:{arg.owner} {key}", "limit": "{arg.limit}", "labels": "{arg.labels}", "calendar": "{arg.calendar|primary}",
            "since": "{since}", "oldest": "{since_unix}", "literal": "{{x}}", "page": 1,
        });
        let expected = json!({
            "query": "repo:ada k1", "limit": 5, "labels": ["a"], "calendar": "primary", "since": "2026-01-01T03:04:05.000Z",
            "oldest": "1767236645", "literal": "{x}", "page": 1,
        });
        assert_eq!(filled(&template), Ok(expected));
    }

    #[test]
    fn a_template_never_expands_to_nothing() {
        for template in ["{arg.gone}", "x{arg.gone}", "{arg.empty}"] {
            assert!(matches!(filled(&json!(template)), Err(TemplateError::Missing { .. })), "{template}");
        }
        for template in ["{", "}", "{owner}", "{arg.}", "{key"] {
            assert!(matches!(filled(&json!(template)), Err(TemplateError::Malformed { .. })), "{template}");
        }
        let none = Map::new();
        let without = Values { key: None, arguments: &none, first_sent_at: None };
        assert!(without.text("{key}").is_err() && without.text("{since}").is_err());
    }

    #[test]
    fn a_mark_is_put_where_there_is_room() {
        let marked = |form: MarkerForm, arguments: Value| {
            let Value::Object(mut arguments) = arguments else { unreachable!("it is an object") };
            let marker = Marker { argument: "body".to_owned(), form, given: false };
            let there_was_room = marker.apply(&mut arguments, "k1");
            there_was_room.then_some(Value::Object(arguments))
        };
        let append = || MarkerForm::Append("\n\nref {key}".to_owned());
        let set = || MarkerForm::Set(json!({"key": "{key}"}));
        assert_eq!(marked(append(), json!({"body": "Hi"})), Some(json!({"body": "Hi\n\nref k1"})));
        assert_eq!(marked(append(), json!({})), Some(json!({"body": "\n\nref k1"})));
        assert_eq!(marked(append(), json!({"body": 7})), None);
        assert_eq!(marked(set(), json!({"body": null})), Some(json!({"body": {"key": "k1"}})));
        assert_eq!(marked(set(), json!({"body": {}})), None);
    }

    #[test]
    fn a_mark_that_wants_its_argument_makes_none() {
        let marker = Marker { argument: "body".to_owned(), form: MarkerForm::Append(" {key}".to_owned()), given: true };
        for (given, expected) in [(json!({"body": "Hi"}), true), (json!({"body": ""}), false), (json!({}), false)] {
            let Value::Object(mut arguments) = given else { unreachable!("it is an object") };
            assert_eq!(marker.apply(&mut arguments, "k1"), expected, "{arguments:?}");
        }
    }

    #[test]
    fn items_lie_at_a_path_or_at_each_of_several() {
        let answer =
            json!({"threads": [{"comments": [1, 2]}, {"comments": []}, {"comments": [3]}], "page": {"x": [4], "y": 5}});
        let at = |path: &str| {
            let (items, is_list) = items_at(&answer, path)?;
            Some((items.into_iter().cloned().collect::<Vec<_>>(), is_list))
        };
        assert_eq!(at("threads.*.comments"), Some((vec![json!(1), json!(2), json!(3)], true)));
        assert_eq!(at("page.*"), Some((vec![json!(4), json!(5)], true)));
        assert_eq!(at("page.x"), Some((vec![json!(4)], true)));
        assert_eq!(at("page.y"), Some((vec![json!(5)], false)));
        assert_eq!(at("page.z"), None);
        assert_eq!(at("threads.*.replies"), None);
        assert_eq!(items_at(&json!({"threads": []}), "threads.*.comments"), Some((vec![], true)));
    }

    #[test]
    fn a_probe_may_be_about_some_calls_of_a_tool_alone() {
        let arguments = json!({"method": "create", "id": "", "parent": {"page": "p"}});
        let values = Values { key: None, arguments: arguments.as_object().unwrap(), first_sent_at: None };
        let differs = |when: Value| {
            let Value::Object(when) = when else { unreachable!("it is an object") };
            values.differs_from(&when).map(str::to_owned)
        };
        assert_eq!(differs(json!({"method": "create", "id": "", "other": "", "parent.page": "p"})), None);
        assert_eq!(differs(json!({"method": "update"})).as_deref(), Some("method"));
        assert_eq!(differs(json!({"method": ""})).as_deref(), Some("method"));
        assert_eq!(differs(json!({"number": 7})).as_deref(), Some("number"));
    }

    #[test]
    fn what_was_stored_before_is_read_as_it_was_meant() {
        let stored = json!({
            "tool": "list", "arguments": {}, "absent": {"error": null, "text": null, "items_below": 30, "complete": null},
            "found": {"items": "tickets", "field": "body", "value": "{key}", "contains": true, "id": "number"},
            "unique_arguments": [], "settle": {"secs": 10, "nanos": 0},
        });
        let read: ProbePolicy = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), stored);
        let FoundBy::Mark { field, value, contains } = read.found.by else { panic!("it goes by the key") };
        assert_eq!((field.as_str(), value.as_str(), contains), ("body", "{key}", true));
    }
}
