//! The schema of a reply as wires take it that write replies by a grammar.
//!
//! Providers take a part of JSON Schema: closed objects, all of whose properties are there, and no limits of numbers, lengths or patterns.
//! What a job asks for is narrowed to that part where it can be, and limits are left out. So a reply that was written by the narrowed
//! schema has the right shape, and is checked against the schema as the job wrote it. A schema that cannot be narrowed is not sent: the
//! model reads it in its prompt, as it does on a wire that knows no schemas.

use std::cell::Cell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The name that wires give it.
pub(crate) const NAME: &str = "result";

/// What says something about a value without limiting it.
const SAID: [&str; 2] = ["description", "title"];
/// What limits a value in a way that wires do not know; it is left out and checked.
const LIMITS: [&str; 17] = [
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
];
/// As deep as a schema is narrowed.
const MAX_DEPTH: usize = 32;
/// How many parts it may come to. One whose kinds are told apart within one another has seven times as many with each level.
const MOST_PARTS: u32 = 5_000;

/// The schema as such a wire takes it; `None` when it cannot be said there. A schema that refers to itself is taken by some wires only.
pub(crate) fn narrowed(schema: &Value, may_recurse: bool) -> Option<Value> {
    let left = Cell::new(MOST_PARTS);
    let mut narrow = narrow(schema, 0, &left)?;
    let root = narrow.as_object_mut()?;
    let is_object = root.get("type").is_some_and(|kind| kind == "object") && root.contains_key("properties");
    if !is_object || root.contains_key("anyOf") || root.contains_key("$ref") {
        return None;
    }
    if let Some(definitions) = schema.get("$defs").and_then(Value::as_object) {
        let narrowed: Option<Map<String, Value>> =
            definitions.iter().map(|(name, of)| Some((name.clone(), narrow_definition(of, &left)?))).collect();
        root.insert("$defs".to_owned(), Value::Object(narrowed?));
    }
    if !may_recurse && recurses(&narrow) {
        return None;
    }
    Some(narrow)
}

fn narrow_definition(schema: &Value, left: &Cell<u32>) -> Option<Value> {
    narrow(schema, 1, left)
}

/// Narrows a part of a schema. `left` says how many parts may yet come.
fn narrow(schema: &Value, depth: usize, left: &Cell<u32>) -> Option<Value> {
    if depth > MAX_DEPTH {
        return None;
    }
    left.set(left.get().checked_sub(1)?);
    let own = schema.as_object()?;
    let inner = |schema: &Value| narrow(schema, depth + 1, left);
    let all = |schemas: &Value| schemas.as_array()?.iter().map(inner).collect::<Option<Vec<Value>>>();
    let mut narrowed = Map::new();
    for (word, value) in own {
        match word.as_str() {
            "$schema" | "$defs" | "$id" | "$comment" => {}
            word if LIMITS.contains(&word) => {}
            word if SAID.contains(&word) => {
                narrowed.insert(word.to_owned(), value.clone());
            }
            "type" => {
                let Value::Array(kinds) = value else {
                    narrowed.insert("type".to_owned(), value.clone());
                    continue;
                };
                let each = kinds.iter().map(|kind| {
                    let mut one = own.clone();
                    one.insert("type".to_owned(), kind.clone());
                    one.retain(|word, _| belongs_to(word, kind));
                    inner(&Value::Object(one))
                });
                narrowed.insert("anyOf".to_owned(), Value::Array(each.collect::<Option<Vec<_>>>()?));
                // What belongs to one kind stands there now; what is said about all of them stays.
                narrowed.retain(|word, _| word == "anyOf" || SAID.contains(&word.as_str()));
                let said = own.iter().filter(|(word, _)| SAID.contains(&word.as_str()));
                narrowed.extend(said.map(|(word, value)| (word.clone(), value.clone())));
                return Some(Value::Object(narrowed));
            }
            "properties" => {
                let properties: Option<Map<String, Value>> =
                    value.as_object()?.iter().map(|(name, of)| Some((name.clone(), inner(of)?))).collect();
                let properties = properties?;
                // All of them: what may be left out may also be there.
                narrowed.insert("required".to_owned(), properties.keys().cloned().collect());
                narrowed.insert("properties".to_owned(), Value::Object(properties));
                narrowed.insert("additionalProperties".to_owned(), json!(false));
            }
            "required" => {}
            // An open object can be closed; a map from any name to values cannot be said.
            "additionalProperties" if value.is_boolean() && own.contains_key("properties") => {}
            "items" => {
                narrowed.insert("items".to_owned(), inner(value)?);
            }
            "enum" | "const" | "$ref" => {
                narrowed.insert(word.clone(), value.clone());
            }
            "anyOf" | "oneOf" => {
                narrowed.insert("anyOf".to_owned(), Value::Array(all(value)?));
            }
            "allOf" => {
                let all = all(value)?;
                let [Value::Object(only)] = all.as_slice() else { return None };
                narrowed.extend(only.clone());
            }
            _ => return None,
        }
    }
    let is_open_object =
        narrowed.get("type").is_some_and(|kind| kind == "object") && !narrowed.contains_key("properties");
    let is_open_list = narrowed.get("type").is_some_and(|kind| kind == "array") && !narrowed.contains_key("items");
    // A schema that takes anything says nothing that a grammar could follow.
    let says_nothing = narrowed.keys().all(|word| SAID.contains(&word.as_str()));
    (!is_open_object && !is_open_list && !says_nothing).then_some(Value::Object(narrowed))
}

/// Whether a word beside `type` says something about values of this kind.
fn belongs_to(word: &str, kind: &Value) -> bool {
    match word {
        "properties" | "required" | "additionalProperties" => kind == "object",
        "items" => kind == "array",
        "type" | "enum" | "const" => true,
        // Said once, for all kinds.
        _ => !SAID.contains(&word),
    }
}

/// Whether a definition leads back to itself.
fn recurses(schema: &Value) -> bool {
    /// `seen` has the definitions that were looked at: whether they still are, on the way to this one.
    fn leads_to<'s>(
        schema: &'s Value,
        definitions: &'s Map<String, Value>,
        seen: &mut BTreeMap<&'s str, bool>,
    ) -> bool {
        match schema {
            Value::Object(fields) => fields.iter().any(|(word, value)| {
                let target = value.as_str().filter(|_| word == "$ref").and_then(|path| path.strip_prefix("#/$defs/"));
                match target {
                    // The root is one as well.
                    None if word == "$ref" => true,
                    None => word != "$defs" && leads_to(value, definitions, seen),
                    Some(name) => {
                        if let Some(is_on_the_way) = seen.get(name) {
                            return *is_on_the_way;
                        }
                        seen.insert(name, true);
                        let found = definitions.get(name).is_some_and(|inner| leads_to(inner, definitions, seen));
                        seen.insert(name, false);
                        found
                    }
                }
            }),
            Value::Array(items) => items.iter().any(|item| leads_to(item, definitions, seen)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    let none = Map::new();
    let definitions = schema.get("$defs").and_then(Value::as_object).unwrap_or(&none);
    leads_to(schema, definitions, &mut BTreeMap::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_come_to_parts_without_end_is_not_narrowed() {
        let kinds = json!(["array", "boolean", "integer", "null", "number", "object", "string"]);
        let deep = (0..14).fold(json!({"type": "string"}), |inner, _| json!({"type": kinds, "anyOf": [inner]}));
        assert_eq!(narrowed(&json!({"type": "object", "properties": {"q": deep}}), true), None);
        // A definition is looked at once, however often it is named.
        let level = |n: usize| {
            let all: Map<String, Value> =
                (0..10).map(|k| (format!("k{k}"), json!({"$ref": format!("#/$defs/d{}", n + 1)}))).collect();
            (format!("d{n}"), json!({"type": "object", "properties": all}))
        };
        let mut defs: Map<String, Value> = (0..20).map(level).collect();
        defs.insert("d20".to_owned(), json!({"type": "string"}));
        let of = |defs: &Map<String, Value>| json!({"type": "object", "$defs": defs, "properties": {"q": {"$ref": "#/$defs/d0"}}});
        assert!(narrowed(&of(&defs), false).is_some());
        defs.insert("d20".to_owned(), json!({"$ref": "#/$defs/d7"}));
        assert_eq!(narrowed(&of(&defs), false), None);
    }

    #[test]
    fn an_object_is_closed_and_whole_and_limits_are_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Invoice", "type": "object", "required": ["order"],
            "properties": {
                "order": {"type": "string", "description": "The number.", "minLength": 1},
                "cents": {"type": "integer", "format": "uint32", "minimum": 0},
                "note": {"type": ["string", "null"], "maxLength": 9, "description": "If any."},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            },
            "$defs": {"Line": {"type": "object", "properties": {"kind": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}]}}}},
        });
        let expected = json!({
            "title": "Invoice", "type": "object", "required": ["cents", "lines", "note", "order"], "additionalProperties": false,
            "properties": {
                "order": {"type": "string", "description": "The number."},
                "cents": {"type": "integer"},
                "note": {"description": "If any.", "anyOf": [{"type": "string"}, {"type": "null"}]},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            },
            "$defs": {"Line": {"type": "object", "required": ["kind"], "additionalProperties": false,
                               "properties": {"kind": {"anyOf": [{"const": "a"}, {"enum": ["b", "c"]}]}}}},
        });
        assert_eq!(narrowed(&schema, false), Some(expected));
    }

    #[test]
    fn what_a_wire_cannot_say_is_not_sent() {
        let with = |inner: Value| json!({"type": "object", "properties": {"a": inner}});
        for schema in [
            json!(true),
            json!({"type": "string"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {}, "anyOf": [with(json!({"type": "null"}))]}),
            with(json!({})),
            with(json!(true)),
            with(json!({"type": "array"})),
            with(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            with(json!({"type": "object", "properties": {}, "patternProperties": {}})),
            with(json!({"allOf": [{"type": "string"}, {"type": "string"}]})),
            with(json!({"not": {"type": "string"}})),
        ] {
            assert_eq!(narrowed(&schema, true), None, "{schema}");
        }
    }

    #[test]
    fn what_refers_to_itself_goes_where_that_is_taken() {
        let tree = json!({"type": "object", "properties": {"root": {"$ref": "#/$defs/Node"}},
            "$defs": {"Node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}}});
        assert!(narrowed(&tree, true).is_some());
        assert_eq!(narrowed(&tree, false), None);
        // Twice is not again.
        let pair = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}, "b": {"$ref": "#/$defs/N"}},
                          "$defs": {"N": {"type": "string"}}});
        assert!(narrowed(&pair, false).is_some());
    }
}
