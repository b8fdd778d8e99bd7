//! The argument that carries the idempotency key: hidden from the model, and noticed when a schema seems to have one.
//!
//! Durable Jobs v1 spec §8.2; Granular Execution PRD §7 (the key is injected, a key the model made up is refused).

use serde_json::Value;
use ua_core::KeyChannel;

/// Names that idempotency keys usually have, without separators.
const USUAL_NAMES: [&str; 4] = ["idempotencykey", "requestid", "clienttoken", "clientrequestid"];

/// An input schema as the model sees it: without the argument that carries the key. With any other channel it is
/// unchanged.
pub fn without_key_argument(schema: &Value, channel: &KeyChannel) -> Value {
    let mut shown = schema.clone();
    let KeyChannel::Argument(name) = channel else {
        return shown;
    };
    if let Some(properties) = shown.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(name);
    }
    if let Some(required) = shown.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|entry| entry.as_str() != Some(name));
    }
    if let Some(dependent) = shown.get_mut("dependentRequired").and_then(Value::as_object_mut) {
        dependent.remove(name);
        for needed in dependent.values_mut().filter_map(Value::as_array_mut) {
            needed.retain(|entry| entry.as_str() != Some(name));
        }
    }
    shown
}

/// Arguments of a schema that look like an idempotency key (`idempotency_key`, `requestId`, …), in the schema's order.
///
/// Only a hint for whoever writes a policy: a name proves nothing about what the tool does with the value.
pub fn likely_key_arguments(schema: &Value) -> Vec<String> {
    let is_likely = |name: &&String| {
        let plain: String = name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        USUAL_NAMES.contains(&plain.as_str())
    };
    schema
        .get("properties")
        .and_then(Value::as_object)
        .map(|properties| properties.keys().filter(is_likely).cloned().collect())
        .unwrap_or_default()
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
}
