//! Configurations in YAML: goose.
//!
//! Where values stand is what the parser says; only those that change are written, so that comments and order stay.

use std::ops::Range;

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use serde_json::json;

use super::entry::{Becomes, Entry, What};
use super::{Change, Edited, missing, without_first};
use crate::error::HostError;

/// Where goose keeps its tool servers.
pub(super) const LIST: &str = "extensions";

/// The text with what `change` makes of these tool servers, or of all.
pub(super) fn edited(
    text: &str,
    servers: &[String],
    change: impl Fn(Option<&str>, &str, &Entry) -> (What, Option<Becomes>),
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
        let Some(text_of) = word(name) else { continue };
        if !servers.is_empty() && !servers.contains(&text_of) {
            continue;
        }
        let read = Entry { is_shared: places.is_shared(name, entry), ..entry_of(entry) };
        let (what, new) = change(None, &text_of, &read);
        let new = new.map(|new| places.edits_of(entry, new));
        // An address is not written here, so that one behind the gateway has nothing to become again.
        let what = if matches!(new, Some(None)) && what == What::Unwrapped { What::NotRestored } else { what };
        let (program, patience) = (read.command, read.patience);
        changes.push(Change { server: text_of, project: None, what, program, patience });
        edits.extend(new.flatten().unwrap_or_default());
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

/// All that a configuration says: the first document of the file, which is the one that is read.
pub(super) fn document(text: &str) -> Option<serde_json::Value> {
    MarkedYaml::load_from_str(text).ok()?.first().map(said)
}

fn said(node: &Node<'_>) -> serde_json::Value {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => json!(text),
        YamlData::Value(Scalar::Integer(number)) => json!(number),
        YamlData::Value(Scalar::FloatingPoint(number)) => json!([".", number.to_string()]),
        YamlData::Value(Scalar::Boolean(is)) => json!(is),
        YamlData::Value(Scalar::Null) | YamlData::BadValue => serde_json::Value::Null,
        YamlData::Sequence(all) => all.iter().map(said).collect(),
        YamlData::Mapping(fields) => {
            let name = |key: &Node<'_>| {
                let name = said(key);
                name.as_str().map_or_else(|| name.to_string(), str::to_owned)
            };
            fields.iter().map(|(key, value)| (name(key), said(value))).collect::<serde_json::Map<_, _>>().into()
        }
        YamlData::Tagged(tag, tagged) => json!(["!", format!("{tag:?}"), said(tagged)]),
        YamlData::Representation(typed, ..) => json!(["?", typed]),
        YamlData::Alias(number) => json!(["*", number]),
    }
}

type Node<'a> = MarkedYaml<'a>;

/// A place, and what is written there.
type Edit = (Range<usize>, String);

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
    let args = field(entry, "args");
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
    // An argument that is no word would be lost.
    let is_cut = args.is_some_and(|(_, args)| !is_list_of_texts(args));
    // In seconds: goose's `ExtensionConfig` has `timeout: Option<u64>`, and makes it a `Duration::from_secs`.
    let span = field(entry, "timeout").and_then(|(_, span)| word(span));
    let patience = span.and_then(|span| span.parse::<u32>().ok()).filter(|seconds| *seconds > 0);
    Entry { command, args: texts("args"), has_args: args.is_some(), patience, env, is_cut, ..Entry::default() }
}

/// Whether a value is a list of nothing but texts: what is none would be lost, or become one.
fn is_list_of_texts(node: &Node<'_>) -> bool {
    let is_text = |one: &Node<'_>| matches!(one.data, YamlData::Value(Scalar::String(_)));
    matches!(&node.data, YamlData::Sequence(all) if all.iter().all(is_text))
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

    /// What is written, and where, so that an entry becomes another one; `None` where it has no program.
    fn edits_of(&self, entry: &Node<'_>, becomes: Becomes) -> Option<Vec<Edit>> {
        let (key, old) = field(entry, "cmd")?;
        let at = self.value(key, old);
        let args = field(entry, "args");
        Some(match becomes {
            Becomes::Program { command } => vec![(at, format!(": {}", json!(command)))],
            Becomes::Behind { command, words } => {
                let mut words: Vec<String> = words.iter().map(|word| json!(word).to_string()).collect();
                // The last of them is the program of before, as it is typed, where that can stand in a list.
                if let (Some(typed), Some(last)) = (self.word(old), words.last_mut()) {
                    *last = typed;
                }
                let command = format!(": {}", json!(command));
                let tight = words.join(",");
                match args {
                    Some((args_key, list)) => {
                        let inside = self.in_front(list, &words);
                        vec![
                            (at, command),
                            // A list in one line, whatever else it was: it stands behind its name and needs no indentation of its own.
                            inside.unwrap_or_else(|| (self.value(args_key, list), format!(": [{tight}]"))),
                        ]
                    }
                    None if self.is_in_braces(entry) => vec![(at, format!("{command}, args: [{tight}]"))],
                    None => {
                        let indent = " ".repeat(key.span.start.col());
                        vec![(at, format!("{command}{}{indent}args: [{tight}]", self.line_end()))]
                    }
                }
            }
            Becomes::Itself { words, once } => {
                let (args_key, list) = args?;
                let YamlData::Sequence(all) = &list.data else { return None };
                let program = all.get(words.checked_sub(1)?)?;
                let named = self.word(program).unwrap_or_else(|| json!(word(program).unwrap_or_default()).to_string());
                let whole = self.value(args_key, list);
                let is_none = all.len() == words && once.had_args == Some(false);
                let gone = match self.line_of(&whole, args_key).filter(|_| is_none && !self.is_in_braces(entry)) {
                    Some(line) => (line, String::new()),
                    None => self.without_first(args_key, list, all, words)?,
                };
                vec![(at, format!(": {named}")), gone]
            }
            Becomes::InPlaceOfUrl { .. } | Becomes::Url { .. } => return None,
        })
    }

    /// Words in front of those of a list, where that has some.
    fn in_front(&self, list: &Node<'_>, words: &[String]) -> Option<Edit> {
        let YamlData::Sequence(all) = &list.data else { return None };
        let first = self.span(all.first()?).start;
        let start = self.byte(list.span.start.index());
        if self.text.get(start..)?.starts_with('[') {
            return Some((start + 1..start + 1, format!("{},", words.join(","))));
        }
        let (dash, indent) = self.dash(first)?;
        let words: Vec<String> = words.iter().map(|word| format!("- {word}{}{indent}", self.line_end())).collect();
        Some((dash..dash, words.concat()))
    }

    /// The list without its first words.
    fn without_first(&self, key: &Node<'_>, list: &Node<'_>, all: &[Node<'_>], words: usize) -> Option<Edit> {
        let whole = self.value(key, list);
        let start = self.byte(list.span.start.index());
        if self.text.get(start..)?.starts_with('[') {
            let list = start..whole.end;
            let spans: Vec<Range<usize>> = all.iter().map(|one| self.span(one)).collect();
            let rest = without_first(self.text, &list, &spans, words)?;
            return Some((list, rest));
        }
        match all.get(words) {
            Some(next) => {
                let (from, to) = (self.dash(self.span(all.first()?).start)?.0, self.dash(self.span(next).start)?.0);
                Some((from..to, String::new()))
            }
            None => Some((whole, ": []".to_owned())),
        }
    }

    /// The dash in front of a member of a list that has lines of its own, and the blanks in front of it.
    fn dash(&self, member: usize) -> Option<(usize, &str)> {
        let before = self.text.get(..member)?;
        let dash = before.rfind('-').filter(|at| before[at + 1..].trim().is_empty())?;
        let line = before[..dash].rfind('\n').map_or(0, |at| at + 1);
        let indent = &before[line..dash];
        indent.trim().is_empty().then_some((dash, indent))
    }

    /// All lines of a field, if nothing else stands in them.
    fn line_of(&self, value: &Range<usize>, key: &Node<'_>) -> Option<Range<usize>> {
        let start = self.byte(key.span.start.index());
        let line = self.text[..start].rfind('\n').map_or(0, |at| at + 1);
        let behind = self.text.get(value.end..)?;
        let end = behind.find('\n').map_or(behind.len(), |at| at + 1);
        let is_alone = self.text[line..start].trim().is_empty() && behind[..end].trim().is_empty();
        is_alone.then_some(line..value.end + end)
    }

    /// A word as it is typed, where it can stand in a list as well as alone.
    fn word(&self, node: &Node<'_>) -> Option<String> {
        let typed = self.text.get(self.span(node))?;
        let is_quoted =
            typed.len() > 1 && ['"', '\''].iter().any(|quote| typed.starts_with(*quote) && typed.ends_with(*quote));
        let is_plain = typed.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
            && typed.chars().all(|c| c.is_ascii_alphanumeric() || "/._-@".contains(c));
        ((is_quoted && !typed.contains('\n')) || is_plain).then(|| typed.to_owned())
    }

    /// Where a value stands, without blanks and comments that follow it.
    fn span(&self, node: &Node<'_>) -> Range<usize> {
        let span = self.byte(node.span.start.index())..self.byte(node.span.end.index());
        let typed = &self.text[span.clone()];
        // The parser reads on behind the quote that closes a text.
        let quoted = match typed.as_bytes().first() {
            Some(b'\'') => quoted(typed, '\'', |rest| rest.starts_with("\'\'")),
            Some(b'"') => quoted(typed, '"', |rest| rest.starts_with('\\')),
            _ => None,
        };
        span.start..span.start + quoted.unwrap_or_else(|| typed.trim_end().len())
    }

    fn is_in_braces(&self, entry: &Node<'_>) -> bool {
        self.text.as_bytes().get(self.byte(entry.span.start.index())) == Some(&b'{')
    }

    /// Whether a value has an anchor, is an alias, which stands where its anchor does, or has something of the kind in it.
    fn is_shared(&self, key: &Node<'_>, value: &Node<'_>) -> bool {
        let behind = self.text.get(self.byte(key.span.end.index())..).unwrap_or_default();
        let typed = behind.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
        let is_before = |one: &Node<'_>| one.span.start.index() < key.span.end.index();
        typed.starts_with(['&', '*'])
            || is_before(value)
            || match &value.data {
                YamlData::Mapping(fields) => {
                    fields.iter().any(|(key, value)| word(key).as_deref() == Some("<<") || self.is_shared(key, value))
                }
                // A word of a list stays where it is, whatever stands for it.
                YamlData::Representation(..)
                | YamlData::Value(_)
                | YamlData::Sequence(_)
                | YamlData::Tagged(..)
                | YamlData::Alias(_)
                | YamlData::BadValue => false,
            }
    }

    fn line_end(&self) -> &'static str {
        if self.text.contains("\r\n") { "\r\n" } else { "\n" }
    }

    /// From behind the name to the end of the value, without blanks and comments that follow it.
    fn value(&self, key: &Node<'_>, value: &Node<'_>) -> Range<usize> {
        let start = self.byte(key.span.end.index());
        let span = self.byte(value.span.start.index())..self.byte(value.span.end.index());
        let is_in_brackets = self.text[span.clone()].starts_with('[');
        let end = if let YamlData::Sequence(all) = &value.data {
            if !is_in_brackets {
                // What follows its last member, a comment perhaps, is none of it.
                all.last().map_or(span.end, |last| self.span(last).end)
            } else if self.text[span.clone()].ends_with(']') {
                span.end
            } else {
                // The bracket that closes it belongs to it.
                span.end + 1
            }
        } else {
            self.span(value).end
        };
        let kept = self.text[start..end].trim_end().len();
        start..start + kept
    }
}

/// How long a text in quotes is with these, where `is_pair` says that the next two characters are one of the text.
fn quoted(typed: &str, quote: char, is_pair: impl Fn(&str) -> bool) -> Option<usize> {
    let mut at = 1;
    loop {
        let rest = typed.get(at..)?;
        let mut next = rest.chars();
        let first = next.next()?;
        if is_pair(rest) {
            at += first.len_utf8() + next.next()?.len_utf8();
        } else if first == quote {
            return Some(at + 1);
        } else {
            at += first.len_utf8();
        }
    }
}
