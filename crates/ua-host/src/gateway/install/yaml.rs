//! Configurations in YAML: goose.
//!
//! Where values stand is what the parser says; only those that change are written, so that comments and order stay.

use std::ops::Range;

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use serde_json::json;

use super::entry::{Becomes, Entry, What};
use super::{Change, Edited, missing};
use crate::error::HostError;

/// Where goose keeps its tool servers.
const LIST: &str = "extensions";

/// The text with what `change` makes of these tool servers, or of all.
pub(super) fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(&str, &Entry) -> (What, Option<Becomes>),
) -> Result<Edited, HostError> {
    let documents =
        MarkedYaml::load_from_str(text).map_err(|error| HostError::usage(format!("it is not YAML: {error}")))?;
    let list = documents.first().and_then(|top| field(top, LIST)).map(|(_, list)| list);
    let Some(YamlData::Mapping(list)) = list.map(|list| &list.data) else {
        return Err(HostError::usage(format!("it names no tool servers (`{LIST}`)")));
    };
    let places = Places::of(text);
    let known: Vec<String> = list.iter().filter_map(|(name, _)| word(name)).collect();
    let (mut edits, mut changes) = (Vec::new(), Vec::new());
    for (name, entry) in list {
        let Some(name) = word(name) else { continue };
        if !servers.is_empty() && !servers.contains(&name) {
            continue;
        }
        let (what, new) = change(&name, &entry_of(entry));
        changes.push(Change { server: name, project: None, what });
        let (Some(Becomes::Command { command, args }), Some((key, old))) = (new, field(entry, "cmd")) else { continue };
        let at = places.value(key, old);
        // A list in one line, whatever it was before: it stands behind its name and needs no indentation of its own.
        let (command, args) = (format!(": {}", json!(command)), format!(": {}", json!(args)));
        match field(entry, "args") {
            Some((key, old)) => {
                edits.push((at, command));
                edits.push((places.value(key, old), args));
            }
            None if text.as_bytes().get(places.byte(entry.span.start.index())) == Some(&b'{') => {
                edits.push((at, format!("{command}, args{args}")));
            }
            None => edits.push((at, format!("{command}\n{}args{args}", " ".repeat(key.span.start.col())))),
        }
    }
    missing(servers, &known)?;
    edits.sort_by_key(|(place, _)| std::cmp::Reverse(place.start));
    let mut edited = text.to_owned();
    for (place, new) in edits {
        edited.replace_range(place, &new);
    }
    // What was written must be what was meant, whatever the parser took the places for.
    if MarkedYaml::load_from_str(&edited).is_err() {
        return Err(HostError::usage("it has a layout that cannot be changed automatically"));
    }
    Ok(Edited { text: edited, changes })
}

type Node<'a> = MarkedYaml<'a>;

fn field<'a, 'b>(node: &'b Node<'a>, name: &str) -> Option<(&'b Node<'a>, &'b Node<'a>)> {
    let YamlData::Mapping(fields) = &node.data else { return None };
    fields.iter().find(|(key, _)| word(key).as_deref() == Some(name))
}

/// A scalar as the text that a program gets.
fn word(node: &Node<'_>) -> Option<String> {
    let YamlData::Value(scalar) = &node.data else { return None };
    Some(match scalar {
        Scalar::String(text) => text.to_string(),
        Scalar::Integer(number) => number.to_string(),
        Scalar::FloatingPoint(number) => number.to_string(),
        Scalar::Boolean(is) => is.to_string(),
        Scalar::Null => return None,
    })
}

fn entry_of(entry: &Node<'_>) -> Entry {
    let texts = |name: &str| match field(entry, name).map(|(_, list)| &list.data) {
        Some(YamlData::Sequence(all)) => all.iter().filter_map(word).collect(),
        _ => Vec::new(),
    };
    let mut env: Vec<String> = texts("env_keys");
    if let Some(YamlData::Mapping(given)) = field(entry, "envs").map(|(_, given)| &given.data) {
        env.extend(given.keys().filter_map(word));
    }
    let is_started = field(entry, "type").and_then(|(_, kind)| word(kind)).is_none_or(|kind| kind == "stdio");
    let command = field(entry, "cmd").and_then(|(_, command)| word(command)).filter(|_| is_started);
    Entry { command, args: texts("args"), env, ..Entry::default() }
}

/// Where characters stand, in bytes.
struct Places<'a> {
    text: &'a str,
    bytes: Vec<usize>,
}

impl<'a> Places<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, bytes: text.char_indices().map(|(at, _)| at).chain([text.len()]).collect() }
    }

    fn byte(&self, character: usize) -> usize {
        self.bytes.get(character).copied().unwrap_or(self.text.len())
    }

    /// From behind the name to the end of the value, without blanks and comments that follow it.
    fn value(&self, key: &Node<'_>, value: &Node<'_>) -> Range<usize> {
        let start = self.byte(key.span.end.index());
        let span = self.byte(value.span.start.index())..self.byte(value.span.end.index());
        let is_in_brackets = self.text[span.clone()].starts_with('[');
        let end = if let YamlData::Sequence(all) = &value.data {
            if !is_in_brackets {
                // What follows its last member, a comment perhaps, is none of it.
                all.last().map_or(span.end, |last| self.byte(last.span.end.index()))
            } else if self.text[span.clone()].ends_with(']') {
                span.end
            } else {
                // The bracket that closes it belongs to it.
                span.end + 1
            }
        } else {
            span.end
        };
        let kept = self.text[start..end].trim_end().len();
        start..start + kept
    }
}
