//! What a schema is by itself, counted when it is read and before anything is compiled from it.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};
use ua_core::size_in_words;

/// Values that a schema may have in it: objects, lists, names, texts, numbers.
const MOST_VALUES: u64 = 50_000;
/// Bytes of all its texts.
const MOST_BYTES: u64 = 1024 * 1024;
/// How deep a schema may be nested as it is written.
const DEEPEST: u32 = 100;
/// How many schemas may hold at one place of a value, with references followed.
const MOST_AT_ONE_PLACE: u64 = 10_000;
/// How many of them may lie within one another.
const DEEPEST_AT_ONE_PLACE: u32 = 48;
/// Different patterns in one schema.
const MOST_PATTERNS: usize = 200;
/// Bytes of one pattern.
const LONGEST_PATTERN: usize = 4096;

/// Words whose schemas hold at the same place of a value: one, a list of them, or some by name.
pub(super) const HERE: [&str; 4] = ["not", "if", "then", "else"];
pub(super) const HERE_IN_LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
pub(super) const HERE_BY_NAME: [&str; 2] = ["dependentSchemas", "dependencies"];
/// The same, of schemas that hold at places within the value. `items` may also be a list.
const WITHIN: [&str; 8] = [
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "contentSchema",
];
const WITHIN_BY_NAME: [&str; 2] = ["properties", "patternProperties"];
/// Words behind which a value stands as it is, and no schema.
const PLAIN: [&str; 4] = ["const", "default", "enum", "examples"];

/// What later counts need.
#[derive(Debug)]
pub(super) struct Measured {
    /// Where names lead that a reference may have behind its `#`, as pointers into the document.
    anchors: HashMap<String, String>,
    /// What a byte of text costs that is matched with a pattern, in steps.
    pub(super) patterns: HashMap<String, u64>,
}

impl Measured {
    /// The schema that a reference leads to.
    ///
    /// # Errors
    /// It leads out of the document, or nowhere.
    pub(super) fn target<'s>(&self, root: &'s Value, reference: &str) -> Result<&'s Value, String> {
        let id = root.get("$id").and_then(Value::as_str).unwrap_or_default().trim_end_matches('#');
        let fragment = match reference.split_once('#') {
            Some((document, fragment)) if document.is_empty() || document == id => fragment,
            None if !id.is_empty() && reference == id => "",
            Some(_) | None => return Err(format!("refers to {}, which is not part of it", quoted(reference))),
        };
        let pointer = percent_decoded(fragment);
        let pointer = if pointer.is_empty() || pointer.starts_with('/') {
            Some(pointer)
        } else {
            self.anchors.get(&pointer).cloned()
        };
        pointer
            .and_then(|pointer| root.pointer(&pointer))
            .ok_or_else(|| format!("refers to {}, where nothing stands", quoted(reference)))
    }
}

/// Counts what a schema is by itself.
///
/// # Errors
/// What is over its bound, in words, behind "it".
pub(super) fn measure(root: &Value) -> Result<Measured, String> {
    let mut size = Size::default();
    size.add(root, 0)?;
    let mut measured = Measured { anchors: size.anchors, patterns: HashMap::new() };
    let mut walk = Walk { root, measured: &mut measured, seen: HashSet::new(), next: vec![root], all: Vec::new() };
    walk.all()?;
    let all = walk.all;
    let mut places = Places { root, measured: &measured, counted: HashMap::new() };
    for schema in all {
        places.count(schema, 0)?;
    }
    Ok(measured)
}

/// Where a value lies in memory, by which it is known while nothing is moved.
pub(super) fn place(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// The size of a document as it is written.
#[derive(Default)]
struct Size {
    values: u64,
    bytes: u64,
    anchors: HashMap<String, String>,
    at: Vec<String>,
}

impl Size {
    fn add(&mut self, value: &Value, depth: u32) -> Result<(), String> {
        self.values += 1;
        if depth > DEEPEST {
            return Err(format!("is nested more than {DEEPEST} levels deep"));
        }
        match value {
            Value::String(text) => self.bytes += text.len() as u64,
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.at.push(index.to_string());
                    self.add(item, depth + 1)?;
                    self.at.pop();
                }
            }
            Value::Object(fields) => {
                if let Some(name) = fields.get("$anchor").and_then(Value::as_str) {
                    let pointer = self.at.iter().fold(String::new(), |pointer, part| pointer + "/" + part);
                    self.anchors.insert(name.to_owned(), pointer);
                }
                for (name, field) in fields {
                    self.values += 1;
                    self.bytes += name.len() as u64;
                    self.at.push(name.replace('~', "~0").replace('/', "~1"));
                    self.add(field, depth + 1)?;
                    self.at.pop();
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        if self.values > MOST_VALUES {
            return Err(format!("has more than {MOST_VALUES} names and values"));
        }
        if self.bytes > MOST_BYTES {
            return Err(format!("has more than {} of text", size_in_words(MOST_BYTES)));
        }
        Ok(())
    }
}

/// Every schema that a check may come to, each once.
struct Walk<'s, 'm> {
    root: &'s Value,
    measured: &'m mut Measured,
    seen: HashSet<usize>,
    next: Vec<&'s Value>,
    all: Vec<&'s Value>,
}

impl<'s> Walk<'s, '_> {
    fn all(&mut self) -> Result<(), String> {
        while let Some(schema) = self.next.pop() {
            if let Some(words) = schema.as_object().filter(|_| self.seen.insert(place(schema))) {
                self.words(schema, words)?;
                self.all.push(schema);
            }
        }
        Ok(())
    }

    fn words(&mut self, schema: &'s Value, words: &'s Map<String, Value>) -> Result<(), String> {
        for word in ["$dynamicRef", "$recursiveRef"] {
            if words.contains_key(word) {
                return Err(format!("uses `{word}`, whose cost nobody can tell beforehand"));
            }
        }
        let is_root = std::ptr::eq(schema, self.root);
        if !is_root && ["$id", "id"].iter().any(|word| words.get(*word).is_some_and(Value::is_string)) {
            return Err("has another schema with an `$id` of its own within it".to_owned());
        }
        if let Some(pattern) = words.get("pattern").and_then(Value::as_str) {
            self.pattern(pattern)?;
        }
        for pattern in words.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
            self.pattern(pattern.0)?;
        }
        self.next.extend(within(words));
        self.next.extend(here(words));
        if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
            self.next.push(self.measured.target(self.root, reference)?);
        }
        Ok(())
    }

    fn pattern(&mut self, pattern: &str) -> Result<(), String> {
        if self.measured.patterns.contains_key(pattern) {
            return Ok(());
        }
        if pattern.len() > LONGEST_PATTERN {
            return Err(format!("has a pattern of more than {LONGEST_PATTERN} bytes"));
        }
        if self.measured.patterns.len() == MOST_PATTERNS {
            return Err(format!("has more than {MOST_PATTERNS} patterns"));
        }
        if backtracks(pattern) {
            let shown = quoted(pattern);
            return Err(format!("has the pattern {shown}, which looks around or back and so has no bound of its own"));
        }
        self.measured.patterns.insert(pattern.to_owned(), cost_of(pattern));
        Ok(())
    }
}

/// How many schemas hold at one place of a value.
struct Places<'s, 'm> {
    root: &'s Value,
    measured: &'m Measured,
    /// By schema; `None` while it is being counted.
    counted: HashMap<usize, Option<(u64, u32)>>,
}

impl Places<'_, '_> {
    /// How many, and how deep they lie within one another.
    fn count(&mut self, schema: &Value, depth: u32) -> Result<(u64, u32), String> {
        let Some(words) = schema.as_object() else { return Ok((1, 1)) };
        match self.counted.get(&place(schema)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err("refers to itself without coming to another part of the value".to_owned()),
            None => {}
        }
        if depth > DEEPEST_AT_ONE_PLACE {
            return Err(too_deep());
        }
        self.counted.insert(place(schema), None);
        let (mut all, mut deepest) = (1_u64, 0);
        let reference = words.get("$ref").and_then(Value::as_str);
        let target = reference.map(|reference| self.measured.target(self.root, reference)).transpose()?;
        for part in here(words).chain(target) {
            let (more, below) = self.count(part, depth + 1)?;
            all = all.saturating_add(more);
            deepest = deepest.max(below);
        }
        if all > MOST_AT_ONE_PLACE {
            return Err(format!(
                "has more than {MOST_AT_ONE_PLACE} parts that hold at one place of a value, with its references followed"
            ));
        }
        if deepest + 1 > DEEPEST_AT_ONE_PLACE {
            return Err(too_deep());
        }
        self.counted.insert(place(schema), Some((all, deepest + 1)));
        Ok((all, deepest + 1))
    }
}

fn too_deep() -> String {
    format!("has parts for one place of a value that lie more than {DEEPEST_AT_ONE_PLACE} deep within one another")
}

/// The schemas in these words that hold at the same place of a value, without what a reference leads to.
fn here(words: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = HERE_IN_LISTS.iter().filter_map(|word| words.get(*word)?.as_array()).flatten();
    let named = HERE_BY_NAME.iter().filter_map(|word| words.get(*word)?.as_object()).flat_map(Map::values);
    HERE.iter().filter_map(|word| words.get(*word)).chain(lists).chain(named)
}

/// Those that hold at places within it.
fn within(words: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = ["prefixItems", "items"].iter().filter_map(|word| words.get(*word)?.as_array()).flatten();
    let named = WITHIN_BY_NAME.iter().filter_map(|word| words.get(*word)?.as_object()).flat_map(Map::values);
    WITHIN.iter().filter_map(|word| words.get(*word)).chain(lists).chain(named)
}

/// Whether a pattern may need an engine that backtracks. One that only looks so is taken for one.
fn backtracks(pattern: &str) -> bool {
    let bytes = pattern.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1).copied().unwrap_or_default();
        match byte {
            b'\\' if matches!(next, b'1'..=b'9' | b'k' | b'K' | b'G') => return true,
            b'\\' => at += 1,
            b'(' if next == b'?' && !matches!(bytes.get(at + 2), Some(b':')) && !is_named_group(&bytes[at + 2..]) => {
                return true;
            }
            b'+' | b'*' | b'?' | b'}' if next == b'+' => return true,
            _ => {}
        }
        at += 1;
    }
    false
}

/// `<name>…` behind `(?`: a group with a name, and no look behind.
fn is_named_group(rest: &[u8]) -> bool {
    rest.first() == Some(&b'<') && !matches!(rest.get(1), Some(b'=' | b'!'))
}

/// What a byte of text costs with a pattern, in steps: by how large the pattern is once it is compiled.
fn cost_of(pattern: &str) -> u64 {
    const SMALL_BYTES: usize = 16 * 1024;
    let is_small = regex::RegexBuilder::new(pattern).size_limit(SMALL_BYTES).build().is_ok();
    if is_small { 1 } else { 16 }
}

/// Takes the patterns out of a schema that need backtracking.
pub(super) fn leave_out_backtracking(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, field| name != "pattern" || !field.as_str().is_some_and(backtracks));
            let parts = fields.iter_mut().filter(|(name, _)| !PLAIN.contains(&name.as_str()));
            parts.for_each(|(_, field)| leave_out_backtracking(field));
        }
        Value::Array(items) => items.iter_mut().for_each(leave_out_backtracking),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn quoted(text: &str) -> String {
    let shown: String = text.chars().filter(|c| !c.is_control()).take(80).collect();
    format!("`{shown}`")
}

/// A fragment of an address as it is meant.
fn percent_decoded(text: &str) -> String {
    let (bytes, mut read, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|two| std::str::from_utf8(two).ok());
        let decoded = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        read.push(decoded.unwrap_or(*byte));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&read).into_owned()
}
