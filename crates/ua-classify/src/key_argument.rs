//! The argument that carries the idempotency key: hidden from the model, and noticed when a schema seems to have one.
//!
//! Durable Jobs v1 spec §8.2; Granular Execution PRD §7 (the key is injected, a key the model made up is refused).

use serde_json::Value;
use ua_core::KeyChannel;

/// Names that idempotency keys usually have, without separators.
const USUAL_NAMES: [&str; 4] = ["idempotencykey", "requestid", "clienttoken", "clientrequestid"];

/// The one of them that often means something else, so that only its description tells.
const AMBIGUOUS: &str = "requestid";

/// Schemas that hold for the same value as the one they stand in: lists of them, and single ones.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const CONDITIONAL: [&str; 3] = ["if", "then", "else"];

/// How deep combined schemas are followed; schemas may refer to themselves.
const MAX_DEPTH: u32 = 16;

/// An input schema as the model sees it: without the argument that carries the key. With any other channel it is
/// unchanged.
pub fn without_key_argument(schema: &Value, channel: &KeyChannel) -> Value {
    match channel {
        KeyChannel::Argument(name) => without_argument(schema, name),
        KeyChannel::Header(_) | KeyChannel::Meta => schema.clone(),
    }
}

/// An input schema without an argument, also where `allOf`, `anyOf`, `oneOf`, conditions or references declare it once more. An
/// argument of that name deeper inside another argument is another thing and stays.
pub fn without_argument(schema: &Value, name: &str) -> Value {
    let mut shown = schema.clone();
    let mut referred = Vec::new();
    strip(&mut shown, name, &mut referred, 0);
    let mut next = 0;
    while let Some(pointer) = referred.get(next).cloned() {
        next += 1;
        if let Some(target) = shown.pointer_mut(&pointer) {
            strip(target, name, &mut referred, 0);
        }
    }
    shown
}

/// Takes the argument out of one schema and of those that hold beside it; notes the places in the document that these refer to.
fn strip(schema: &mut Value, name: &str, referred: &mut Vec<String>, depth: u32) {
    let Some(fields) = schema.as_object_mut().filter(|_| depth < MAX_DEPTH) else { return };
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(name);
    }
    if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|entry| entry.as_str() != Some(name));
    }
    for dependencies in ["dependentRequired", "dependentSchemas"] {
        let Some(dependent) = fields.get_mut(dependencies).and_then(Value::as_object_mut) else { continue };
        dependent.remove(name);
        for needed in dependent.values_mut() {
            if let Some(names) = needed.as_array_mut() {
                names.retain(|entry| entry.as_str() != Some(name));
            } else {
                strip(needed, name, referred, depth + 1);
            }
        }
    }
    let pointer = fields.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'));
    if let Some(pointer) = pointer.filter(|pointer| !pointer.is_empty()).map(str::to_owned)
        && !referred.contains(&pointer)
    {
        referred.push(pointer);
    }
    for word in COMBINED {
        for inner in fields.get_mut(word).and_then(Value::as_array_mut).into_iter().flatten() {
            strip(inner, name, referred, depth + 1);
        }
    }
    for word in CONDITIONAL {
        if let Some(inner) = fields.get_mut(word) {
            strip(inner, name, referred, depth + 1);
        }
    }
}

/// Arguments of a schema that look like an idempotency key (`idempotency_key`, `requestId`, …), in the schema's order.
///
/// Only a hint for whoever writes a policy: a name proves nothing about what the tool does with the value.
pub fn likely_key_arguments(schema: &Value) -> Vec<String> {
    properties(schema)
        .filter(|(name, _)| USUAL_NAMES.contains(&plain(name).as_str()))
        .map(|(name, _)| name.clone())
        .collect()
}

/// Arguments of a schema that can only be meant as an idempotency key: by a name that means nothing else, or by a name that may
/// and a description that says so.
pub fn declared_keys(schema: &Value) -> Vec<String> {
    let is_key = |name: &str, declared: &Value| match plain(name).as_str() {
        AMBIGUOUS => {
            let description = declared.get("description").and_then(Value::as_str).unwrap_or_default().to_lowercase();
            description.contains("idempoten")
        }
        plain => USUAL_NAMES.contains(&plain),
    };
    properties(schema).filter(|(name, declared)| is_key(name, declared)).map(|(name, _)| name.clone()).collect()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// A name without separators, lower-cased.
fn plain(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_model_does_not_see_the_key() {
        let schema = json!({
            "type": "object",
            "properties": {"title": {"type": "string"}, "client_token": {"type": "string"}},
            "required": ["title", "client_token"],
            "dependentRequired": {"title": ["client_token"], "client_token": ["title"]},
            "additionalProperties": false,
        });
        let shown = without_key_argument(&schema, &KeyChannel::Argument("client_token".to_owned()));
        assert_eq!(
            shown,
            json!({
                "type": "object",
                "properties": {"title": {"type": "string"}},
                "required": ["title"],
                "dependentRequired": {"title": []},
                "additionalProperties": false,
            })
        );
        for channel in [KeyChannel::Meta, KeyChannel::Header("Idempotency-Key".to_owned())] {
            assert_eq!(without_key_argument(&schema, &channel), schema);
        }
    }

    #[test]
    fn likely_keys_are_noticed_in_any_spelling() {
        let schema = json!({"properties": {
            "idempotency_key": {}, "requestId": {}, "client-token": {}, "CLIENT_REQUEST_ID": {}, "request": {}, "token": {},
        }});
        let mut found = likely_key_arguments(&schema);
        found.sort();
        assert_eq!(found, ["CLIENT_REQUEST_ID", "client-token", "idempotency_key", "requestId"]);
        assert_eq!(likely_key_arguments(&json!(true)), [""; 0]);
    }

    #[test]
    fn the_model_does_not_see_the_key_in_combined_schemas_either() {
        let token = |description: &str| json!({"type": "string", "description": description});
        let part = |extra: &str| json!({"properties": {"client_token": token("a"), extra: {}}, "required": ["client_token", extra]});
        let schema = json!({
            "type": "object",
            "allOf": [part("a"), {"$ref": "#/$defs/keyed"}],
            "anyOf": [{"oneOf": [part("b")]}],
            "then": part("c"),
            "dependentSchemas": {"a": part("d"), "client_token": {}},
            "properties": {"inner": {"type": "object", "properties": {"client_token": token("another thing")}}},
            "$defs": {"keyed": {"allOf": [part("e"), {"$ref": "#/$defs/keyed"}]}, "other": part("f")},
        });
        let shown = without_key_argument(&schema, &KeyChannel::Argument("client_token".to_owned()));
        let left = |extra: &str| json!({"properties": {extra: {}}, "required": [extra]});
        assert_eq!(
            shown,
            json!({
                "type": "object",
                "allOf": [left("a"), {"$ref": "#/$defs/keyed"}],
                "anyOf": [{"oneOf": [left("b")]}],
                "then": left("c"),
                "dependentSchemas": {"a": left("d")},
                "properties": {"inner": {"type": "object", "properties": {"client_token": token("another thing")}}},
                "$defs": {"keyed": {"allOf": [left("e"), {"$ref": "#/$defs/keyed"}]}, "other": part("f")},
            })
        );
    }

    #[test]
    fn a_request_id_is_a_key_only_where_its_description_says_so() {
        let schema = json!({"properties": {
            "idempotencyKey": {}, "request_id": {"description": "The request to look up."},
            "requestId": {"description": "An Idempotency key."}, "client_request_id": {}, "id": {"description": "idempotent"},
        }});
        assert_eq!(declared_keys(&schema), ["client_request_id", "idempotencyKey", "requestId"]);
    }
}
