//! A tool's schema as model providers take it.
//!
//! Servers write schemas that are good JSON Schema and that providers refuse, with one bad tool for the whole request: alternatives at the
//! root (`anyOf`, `oneOf`, `allOf`), a reference there, no `properties`, no type. What a model reads is folded into one object; whatever it
//! sends is still checked against the schema as its server wrote it.

use serde_json::{Map, Value, json};

/// The words that no provider takes at the root.
const AT_ROOT: [&str; 9] = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"];
/// As deep as references at the root are followed.
const MAX_DEPTH: usize = 8;
/// Names and values that are copied for one tool. A schema of a kilobyte may have 10^8 alternatives; those behind are left out.
const MOST_VALUES: usize = 100_000;

/// The schema as providers take it: an object with properties. One that is fine already is sent as it is.
pub(crate) fn folded(schema: &Value) -> Value {
    let mut mended = schema.clone();
    mend_required(&mut mended);
    let schema = &mended;
    let is_object = schema["type"] == "object" && schema["properties"].is_object();
    let is_plain =
        |root: &Map<String, Value>| AT_ROOT.iter().all(|word| !root.contains_key(*word)) && !root.contains_key("$ref");
    if is_object && schema.as_object().is_some_and(is_plain) {
        return schema.clone();
    }
    let mut folded = Folding { root: schema, left: MOST_VALUES }.fold(schema, 0);
    folded.insert("type".to_owned(), json!("object"));
    if !folded.get("properties").is_some_and(Value::is_object) {
        folded.insert("properties".to_owned(), json!({}));
    }
    Value::Object(folded)
}

/// Writes what is wanted as the list of names that a provider takes. Older schemas say it in the property itself (`"required": true`), and some
/// servers write that at the root.
fn mend_required(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    let mut wanted = Vec::new();
    for (name, property) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        if property.get("required") == Some(&Value::Bool(true)) {
            wanted.push(Value::from(name.as_str()));
        }
        mend_required(property);
    }
    for word in ["$defs", "definitions", "patternProperties", "dependentSchemas"] {
        let parts = fields.get_mut(word).and_then(Value::as_object_mut).into_iter().flatten();
        parts.for_each(|(_, part)| mend_required(part));
    }
    for word in ["items", "prefixItems", "anyOf", "oneOf", "allOf"] {
        match fields.get_mut(word) {
            Some(Value::Array(parts)) => parts.iter_mut().for_each(mend_required),
            Some(part) => mend_required(part),
            None => {}
        }
    }
    for word in ["additionalProperties", "not", "if", "then", "else", "contains"] {
        fields.get_mut(word).into_iter().for_each(mend_required);
    }
    let said = match fields.get("required") {
        Some(Value::Array(names)) if names.iter().all(Value::is_string) && wanted.is_empty() => return,
        Some(Value::Array(names)) => names.iter().filter(|name| name.is_string()).cloned().collect(),
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            Vec::new()
        }
    };
    wanted.retain(|name| !said.contains(name));
    let names: Vec<Value> = said.into_iter().chain(wanted).collect();
    if names.is_empty() {
        fields.remove("required");
    } else {
        fields.insert("required".to_owned(), Value::Array(names));
    }
}

struct Folding<'s> {
    root: &'s Value,
    /// Names and values that may be copied yet.
    left: usize,
}

impl Folding<'_> {
    fn fold(&mut self, schema: &Value, depth: usize) -> Map<String, Value> {
        let Some(own) = schema.as_object().filter(|_| depth < MAX_DEPTH) else { return Map::new() };
        let kept = || own.iter().filter(|(word, _)| !AT_ROOT.contains(&word.as_str()) && *word != "$ref");
        // One more for the schema itself.
        let size = 1 + kept().map(|(_, value)| 1 + size(value)).sum::<usize>();
        let Some(left) = self.left.checked_sub(size) else {
            self.left = 0;
            return Map::new();
        };
        self.left = left;
        let mut folded: Map<String, Value> = kept().map(|(word, value)| (word.clone(), value.clone())).collect();
        let target =
            own.get("$ref").and_then(Value::as_str).and_then(|path| self.root.pointer(path.strip_prefix('#')?));
        if let Some(target) = target {
            take_all(&mut folded, &self.fold(target, depth + 1));
        }
        for part in own.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if self.left > 0 {
                take_all(&mut folded, &self.fold(part, depth + 1));
            }
        }
        for word in ["anyOf", "oneOf"] {
            let Some(parts) = own.get(word).and_then(Value::as_array).filter(|_| self.left > 0) else { continue };
            let parts: Vec<_> = parts.iter().map(|part| self.fold(part, depth + 1)).collect();
            take_one_of(&mut folded, &parts);
        }
        folded
    }
}

/// How many names and values a value has in it.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(|field| 1 + size(field)).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// Everything in `part` holds as well.
fn take_all(folded: &mut Map<String, Value>, part: &Map<String, Value>) {
    take_properties(folded, part);
    let mut required = required_in(folded);
    required.extend(required_in(part));
    set_required(folded, required);
    keep_rest(folded, part);
}

/// One of `parts` holds: each may bring its properties, and only what all of them want is wanted.
fn take_one_of(folded: &mut Map<String, Value>, parts: &[Map<String, Value>]) {
    let Some((first, others)) = parts.split_first() else { return };
    let shared =
        required_in(first).into_iter().filter(|name| others.iter().all(|part| required_in(part).contains(name)));
    let mut required = required_in(folded);
    required.extend(shared);
    for part in parts {
        take_properties(folded, part);
        keep_rest(folded, part);
    }
    // What one alternative allows besides, another may forbid.
    if parts.iter().any(|part| part.get("additionalProperties") != folded.get("additionalProperties")) {
        folded.remove("additionalProperties");
    }
    set_required(folded, required);
}

fn take_properties(folded: &mut Map<String, Value>, part: &Map<String, Value>) {
    let Some(more) = part.get("properties").and_then(Value::as_object) else { return };
    let properties = folded.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object_mut() else { return };
    for (name, schema) in more {
        match properties.get_mut(name) {
            None => {
                properties.insert(name.clone(), schema.clone());
            }
            Some(known) if known == schema => {}
            Some(known) => match known.get_mut("anyOf").and_then(Value::as_array_mut) {
                Some(all) if all.contains(schema) => {}
                Some(all) => all.push(schema.clone()),
                None => *known = json!({"anyOf": [known.take(), schema]}),
            },
        }
    }
}

/// Definitions and words about the whole, where there are none yet.
fn keep_rest(folded: &mut Map<String, Value>, part: &Map<String, Value>) {
    for (word, value) in part.iter().filter(|(word, _)| !matches!(word.as_str(), "properties" | "required" | "type")) {
        folded.entry(word.clone()).or_insert_with(|| value.clone());
    }
}

fn required_in(schema: &Map<String, Value>) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn set_required(folded: &mut Map<String, Value>, mut required: Vec<String>) {
    required.sort_unstable();
    required.dedup();
    if !required.is_empty() {
        folded.insert("required".to_owned(), json!(required));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_providers_take_is_sent_as_it_is() {
        let fine = json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}]}}, "required": ["a"], "x-own": 1});
        assert_eq!(folded(&fine), fine);
    }

    #[test]
    fn alternatives_without_end_are_folded_as_far_as_is_paid_for() {
        for word in ["allOf", "anyOf", "oneOf"] {
            let level =
                |n: usize| (format!("d{n}"), json!({word: vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); 100]}));
            let mut defs: Map<String, Value> = (0..MAX_DEPTH).map(level).collect();
            defs.insert(format!("d{MAX_DEPTH}"), json!({"properties": {"a": {"type": "string"}}}));
            let schema = json!({"type": "object", "$defs": defs, word: [{"$ref": "#/$defs/d0"}]});
            let mut folding = Folding { root: &schema, left: MOST_VALUES };
            folding.fold(&schema, 0);
            assert_eq!(folding.left, 0, "{word}: it stops where its steps end");
            assert_eq!(folded(&schema)["type"], "object");
        }
    }

    #[test]
    fn what_is_wanted_is_a_list_of_names_wherever_it_stands() {
        let text = || json!({"type": "string"});
        let says = |required: Value| json!({"type": "string", "required": required});
        let of = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
        let plain = json!({"type": "object", "properties": {"a": text()}});
        for (schema, wanted) in [
            (of(json!({"a": text()}), json!(true)), plain.clone()),
            (of(json!({"a": text()}), json!("a")), plain.clone()),
            (of(json!({"a": text()}), json!(["a", 7])), of(json!({"a": text()}), json!(["a"]))),
            (json!({"type": "object", "properties": {"a": says(json!(false))}}), plain.clone()),
            (json!({"type": "object", "properties": {"a": says(json!(true))}}), of(json!({"a": text()}), json!(["a"]))),
            (
                of(json!({"a": says(json!(true)), "b": text()}), json!(["b"])),
                of(json!({"a": text(), "b": text()}), json!(["b", "a"])),
            ),
            (
                json!({"type": "object", "properties": {"l": {"type": "array", "items": of(json!({"a": text()}), json!(true))}}}),
                json!({"type": "object", "properties": {"l": {"type": "array", "items": plain}}}),
            ),
            // A property of that name is one, and so is what it may be.
            (
                of(json!({"required": true, "a": {"default": {"required": true}}}), json!(["required"])),
                of(json!({"required": true, "a": {"default": {"required": true}}}), json!(["required"])),
            ),
        ] {
            assert_eq!(folded(&schema), wanted, "{schema}");
        }
    }

    #[test]
    fn alternatives_at_the_root_become_one_object() {
        let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
        let either = json!({"type": "object", "properties": {"id": text}, "required": ["id"], "anyOf": [
            {"properties": {"a": text, "b": text}, "required": ["a", "b"]}, {"properties": {"a": number}, "required": ["a"]},
        ]});
        assert_eq!(
            folded(&either),
            json!({"type": "object", "required": ["a", "id"],
                   "properties": {"id": text, "a": {"anyOf": [text, number]}, "b": text}})
        );
        let all = json!({"allOf": [{"$ref": "#/$defs/one"}, {"required": ["b"], "properties": {"b": number}}],
                         "$defs": {"one": {"type": "object", "properties": {"a": text}, "required": ["a"]}}});
        assert_eq!(
            folded(&all),
            json!({"type": "object", "properties": {"a": text, "b": number}, "required": ["a", "b"],
                   "$defs": {"one": {"type": "object", "properties": {"a": text}, "required": ["a"]}}})
        );
    }

    #[test]
    fn what_is_missing_is_added_and_what_is_no_object_takes_anything() {
        let empty = json!({"type": "object", "properties": {}});
        for schema in [
            json!({"type": "object"}),
            json!({}),
            json!(true),
            json!(null),
            json!({"type": "string"}),
            json!({"enum": [1]}),
        ] {
            assert_eq!(folded(&schema), empty, "{schema}");
        }
        let circular = json!({"$ref": "#"});
        assert_eq!(folded(&circular), empty);
    }
}
