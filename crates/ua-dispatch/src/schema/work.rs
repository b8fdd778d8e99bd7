//! What the check of a value by a schema takes, counted before it is done.
//!
//! The count is an upper bound: it follows every alternative, where a check may stop at the first that fits. Each pair of a schema and a
//! place in the value is looked at once and its count kept, so that counting costs what there are pairs of, and not what the check would.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::MOST_STEPS;
use super::measure::{HERE, HERE_BY_NAME, HERE_IN_LISTS, Measured, place};

/// How deep schemas and places may lie within one another on the way of a check: as deep as the stack of a thread has room for.
const DEEPEST: u32 = 400;
/// Steps that a larger value may take besides, for each of its names, values and 64 bytes of text.
const STEPS_PER_VALUE: u64 = 16;

/// What a check takes: the answer alone, and the answer with what is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Steps {
    pub(super) answer: u64,
    pub(super) errors: u64,
}

impl Steps {
    fn add(&mut self, more: Self) {
        self.answer = self.answer.saturating_add(more.answer);
        self.errors = self.errors.saturating_add(more.errors);
    }
}

/// What the check of `value` takes at most.
///
/// # Errors
/// It is more than is worth waiting for; in words.
pub(super) fn work(root: &Value, measured: &Measured, value: &Value) -> Result<Steps, String> {
    let most = MOST_STEPS + STEPS_PER_VALUE * size(value);
    Counter { root, measured, most, counted: HashMap::new(), looked: 0 }.count(root, At::Value(value), 0)
}

/// A place in a value: one of its values, or the name of one.
#[derive(Clone, Copy)]
enum At<'v> {
    Value(&'v Value),
    Name(&'v str),
}

impl<'v> At<'v> {
    fn place(self) -> (usize, bool) {
        match self {
            Self::Value(value) => (place(value), false),
            Self::Name(name) => (name.as_ptr().addr(), true),
        }
    }

    fn text(self) -> Option<&'v str> {
        match self {
            Self::Value(value) => value.as_str(),
            Self::Name(name) => Some(name),
        }
    }
}

struct Counter<'s> {
    root: &'s Value,
    measured: &'s Measured,
    most: u64,
    /// By schema and place; `None` while it is being counted.
    counted: HashMap<(usize, (usize, bool)), Option<Steps>>,
    /// Steps of counting itself.
    looked: u64,
}

impl<'s> Counter<'s> {
    fn too_many(&self) -> String {
        format!("the check would take more than {} steps", self.most)
    }

    fn count(&mut self, schema: &'s Value, at: At<'_>, depth: u32) -> Result<Steps, String> {
        let Some(words) = schema.as_object() else { return Ok(Steps { answer: 1, errors: 1 }) };
        let pair = (place(schema), at.place());
        match self.counted.get(&pair) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => return Err("the schema refers to itself without coming to another part of the value".into()),
            None => {}
        }
        if depth > DEEPEST {
            return Err(format!("schema and value lie more than {DEEPEST} levels deep within one another"));
        }
        self.counted.insert(pair, None);
        let own = self.own(words, at);
        self.looked = self.looked.saturating_add(own);
        if self.looked > self.most {
            return Err(self.too_many());
        }
        let mut all = Steps { answer: own, errors: own };
        let here = self.here(words, at, depth)?;
        all.add(here);
        let within = self.within(words, at, depth)?;
        all.add(within);
        // What is left over is found by looking once more at what else holds here.
        if words.contains_key("unevaluatedProperties") || words.contains_key("unevaluatedItems") {
            all.add(Steps { answer: here.answer, errors: here.answer });
        }
        // Whether one of several holds is known before it is said why none does.
        if ["anyOf", "oneOf", "not", "if", "contains"].iter().any(|word| words.contains_key(*word)) {
            all.errors = all.errors.saturating_add(all.answer);
        }
        if all.errors > self.most {
            return Err(self.too_many());
        }
        self.counted.insert(pair, Some(all));
        Ok(all)
    }

    /// What the words of one schema cost that have no schema within them.
    fn own(&self, words: &Map<String, Value>, at: At<'_>) -> u64 {
        let mut own = 1 + words.len() as u64;
        for word in ["enum", "const", "required", "dependentRequired"] {
            own += words.get(word).map_or(0, size);
        }
        if let Some(text) = at.text() {
            let length = text.len() as u64;
            if ["minLength", "maxLength", "format", "contentEncoding", "contentMediaType"]
                .iter()
                .any(|word| words.contains_key(*word))
            {
                own = own.saturating_add(length / 8);
            }
            if let Some(pattern) = words.get("pattern").and_then(Value::as_str) {
                own = own.saturating_add(self.matching(pattern, length));
            }
        }
        match at {
            At::Value(Value::Object(fields)) => {
                own += fields.len() as u64;
                own += words.get("properties").and_then(Value::as_object).map_or(0, |named| named.len() as u64);
                for (pattern, _) in words.get("patternProperties").and_then(Value::as_object).into_iter().flatten() {
                    // Names are matched for what is additional as well.
                    let names = fields.keys().map(|name| 2 * self.matching(pattern, name.len() as u64));
                    own = names.fold(own, u64::saturating_add);
                }
            }
            At::Value(value @ Value::Array(items)) if words.contains_key("uniqueItems") => {
                // Few items are compared each with each, many by a digest.
                let times = if items.len() <= 16 { items.len() as u64 } else { 2 };
                own = own.saturating_add(times * size(value));
            }
            At::Value(_) | At::Name(_) => {}
        }
        own
    }

    fn matching(&self, pattern: &str, length: u64) -> u64 {
        let each = self.measured.patterns.get(pattern).copied().unwrap_or(1);
        each.saturating_mul(length.saturating_add(8))
    }

    /// What holds at the same place.
    fn here(&mut self, words: &'s Map<String, Value>, at: At<'_>, depth: u32) -> Result<Steps, String> {
        let mut all = Steps::default();
        if let Some(reference) = words.get("$ref").and_then(Value::as_str) {
            let target = self.measured.target(self.root, reference)?;
            all.add(self.count(target, at, depth + 1)?);
        }
        for part in HERE.iter().filter_map(|word| words.get(*word)) {
            all.add(self.count(part, at, depth + 1)?);
        }
        for part in HERE_IN_LISTS.iter().filter_map(|word| words.get(*word)?.as_array()).flatten() {
            all.add(self.count(part, at, depth + 1)?);
        }
        let At::Value(Value::Object(fields)) = at else { return Ok(all) };
        for (name, part) in HERE_BY_NAME.iter().filter_map(|word| words.get(*word)?.as_object()).flatten() {
            if fields.contains_key(name) {
                all.add(self.count(part, at, depth + 1)?);
            }
        }
        Ok(all)
    }

    /// What holds at places within.
    fn within(&mut self, words: &'s Map<String, Value>, at: At<'_>, depth: u32) -> Result<Steps, String> {
        match at {
            At::Value(Value::Object(fields)) => self.of_object(words, fields, depth),
            At::Value(Value::Array(items)) => self.of_list(words, items, depth),
            At::Value(_) | At::Name(_) => Ok(Steps::default()),
        }
    }

    fn of_object(
        &mut self,
        words: &'s Map<String, Value>,
        fields: &Map<String, Value>,
        depth: u32,
    ) -> Result<Steps, String> {
        let mut all = Steps::default();
        let named = words.get("properties").and_then(Value::as_object);
        let patterns = words.get("patternProperties").and_then(Value::as_object);
        for (name, field) in fields {
            let own = named.and_then(|named| named.get(name));
            for schema in own.into_iter().chain(patterns.into_iter().flat_map(Map::values)) {
                all.add(self.count(schema, At::Value(field), depth + 1)?);
            }
            if own.is_none()
                && let Some(schema) = words.get("additionalProperties")
            {
                all.add(self.count(schema, At::Value(field), depth + 1)?);
            }
            if let Some(schema) = words.get("unevaluatedProperties") {
                all.add(self.count(schema, At::Value(field), depth + 1)?);
            }
            if let Some(schema) = words.get("propertyNames") {
                all.add(self.count(schema, At::Name(name), depth + 1)?);
            }
        }
        Ok(all)
    }

    fn of_list(&mut self, words: &'s Map<String, Value>, items: &[Value], depth: u32) -> Result<Steps, String> {
        let mut all = Steps::default();
        for (index, item) in items.iter().enumerate() {
            let by_index = ["prefixItems", "items"].iter().filter_map(|word| words.get(*word)?.as_array()?.get(index));
            let for_all = ["items", "additionalItems", "contains", "unevaluatedItems"];
            let for_all = for_all.iter().filter_map(|word| words.get(*word)).filter(|schema| !schema.is_array());
            for schema in by_index.chain(for_all) {
                all.add(self.count(schema, At::Value(item), depth + 1)?);
            }
        }
        Ok(all)
    }
}

/// How large a value is: its names, its values, and 64 bytes of its texts for one.
fn size(value: &Value) -> u64 {
    let text = |text: &str| 1 + text.len() as u64 / 64;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(inner) => text(inner),
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(fields) => 1 + fields.iter().map(|(name, field)| text(name) + size(field)).sum::<u64>(),
    }
}
