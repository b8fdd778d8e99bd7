//! What of a tool's schema no model provider takes, as far as it can be seen here.
//!
//! A provider refuses a whole request for one bad schema, and not each says whose it is. So the rules of JSON Schema that providers are known to
//! look at are looked at when a server lists its tools: its types, and that what stands where a schema belongs is one. What is mended for the wire
//! (at the root: alternatives, no type, no properties) is no reason. Invariant: nothing that a provider takes is a reason.

use serde_json::{Map, Value};

use crate::host::printable;

/// The types that JSON Schema has.
const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Words with schemas by name.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Words with a list of schemas.
const LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
/// Words with one schema, or with `true` or `false`; older ones have a list behind `items`.
const SINGLE: [&str; 10] = [
    "items",
    "additionalProperties",
    "additionalItems",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
];
/// How much is shown of what a server wrote.
const SHOWN: usize = 60;

/// Why no provider takes a tool with this schema, behind "its `inputSchema`"; `None` where none of it is known.
pub(crate) fn not_taken(schema: &Map<String, Value>) -> Option<String> {
    // Whatever it says besides, arguments are an object: a call with any would be refused by the schema.
    let root = schema.get("type");
    let is_object = |types: &[Value]| types.iter().any(|one| one == "object");
    match root {
        Some(Value::String(word)) if word != "object" => {
            return Some(format!("is of the type `{}`, and arguments are an object", printable(word, SHOWN)));
        }
        Some(Value::Array(types)) if !types.is_empty() && !is_object(types) => {
            return Some("is of types without `object`, and arguments are an object".to_owned());
        }
        Some(
            Value::String(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_),
        )
        | None => {}
    }
    words_of(schema, "", true)
}

/// The same of a schema at `path` within it.
fn part(schema: &Value, path: &str) -> Option<String> {
    match schema {
        Value::Object(words) => words_of(words, path, false),
        Value::Bool(_) => None,
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Some(format!("has {} at {} where a schema belongs", written(schema), place(path)))
        }
    }
}

fn words_of(words: &Map<String, Value>, path: &str, is_root: bool) -> Option<String> {
    let at = |word: &str| format!("{path}/{word}");
    if let Some(found) = words.get("type").and_then(|types| no_type(types, is_root)) {
        return Some(format!("has {} at {}, which is no type of JSON", written(found), place(&at("type"))));
    }
    for word in BY_NAME {
        match words.get(word) {
            Some(Value::Object(parts)) => {
                let mut parts = parts.iter();
                if let Some(why) = parts.find_map(|(name, schema)| part(schema, &format!("{path}/{word}/{name}"))) {
                    return Some(why);
                }
            }
            // At the root it is mended; and a name in an older schema may be anything.
            Some(other) if word == "properties" && !is_root => {
                return Some(format!("has {} at {} instead of properties", written(other), place(&at(word))));
            }
            Some(_) | None => {}
        }
    }
    for word in LISTS {
        match words.get(word) {
            Some(Value::Array(parts)) => {
                let mut parts = parts.iter().enumerate();
                if let Some(why) = parts.find_map(|(index, schema)| part(schema, &format!("{path}/{word}/{index}"))) {
                    return Some(why);
                }
            }
            Some(other) if !is_root => {
                return Some(format!("has {} at {} instead of a list", written(other), place(&at(word))));
            }
            Some(_) | None => {}
        }
    }
    for word in SINGLE {
        let found = match words.get(word) {
            Some(Value::Array(parts)) if word == "items" => {
                parts.iter().enumerate().find_map(|(index, schema)| part(schema, &format!("{path}/{word}/{index}")))
            }
            Some(schema) => part(schema, &at(word)),
            None => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// What of a type is none. At the root only its words are looked at: another value is mended.
fn no_type(types: &Value, is_root: bool) -> Option<&Value> {
    let is_type = |one: &Value| one.as_str().is_some_and(|word| TYPES.contains(&word));
    match types {
        Value::String(_) => (!is_type(types)).then_some(types),
        Value::Array(several) => several.iter().find(|one| !is_type(one)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => (!is_root).then_some(types),
    }
}

fn written(value: &Value) -> String {
    format!("`{}`", printable(&value.to_string(), SHOWN))
}

fn place(path: &str) -> String {
    format!("`{}`", printable(path, 2 * SHOWN))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn why(schema: &Value) -> Option<String> {
        not_taken(schema.as_object().unwrap())
    }

    /// Each place that a schema may stand in × what is none there, and the same place with what is one.
    #[test]
    fn what_is_no_type_and_no_schema_is_found_wherever_it_stands() {
        let single = SINGLE.map(|word| (format!("/{word}"), json!({"type": "object", word: "HERE"})));
        let by_name = BY_NAME.map(|word| (format!("/{word}/a"), json!({"type": "object", word: {"a": "HERE"}})));
        let lists = LISTS.map(|word| (format!("/{word}/1"), json!({"type": "object", word: [{}, "HERE"]})));
        let deep = json!({"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": ["HERE"]}}}});
        let places = single.into_iter().chain(by_name).chain(lists);
        let places = places.chain([("/properties/a/items/anyOf/0".to_owned(), deep)]);
        for (at, schema) in places {
            let with = |part: &Value| {
                let text = schema.to_string().replace("\"HERE\"", &part.to_string());
                why(&serde_json::from_str(&text).unwrap())
            };
            for good in [json!({}), json!(true), json!({"type": "string"}), json!({"type": ["null", "integer"]})] {
                assert_eq!(with(&good), None, "{at}: {good}");
            }
            for (bad, place, shown) in [
                (json!({"type": "objekt"}), "/type", "`\"objekt\"`"),
                (json!({"type": "STRING"}), "/type", "`\"STRING\"`"),
                (json!({"type": ["string", "nul"]}), "/type", "`\"nul\"`"),
                (json!({"type": null}), "/type", "`null`"),
                (json!(7), "", "`7`"),
                (json!("string"), "", "`\"string\"`"),
                (json!({"properties": []}), "/properties", "`[]`"),
                (json!({"anyOf": {}}), "/anyOf", "`{}`"),
            ] {
                let told = with(&bad).unwrap_or_else(|| panic!("{at}: {bad} is taken"));
                assert!(told.contains(shown) && told.contains(&format!("`{at}{place}`")), "{at}: {told}");
            }
        }
    }

    #[test]
    fn arguments_that_are_no_object_are_told_and_what_is_mended_is_not() {
        for word in TYPES.into_iter().chain(["objekt", ""]) {
            let told = why(&json!({"type": word}));
            assert_eq!(told.is_some(), word != "object", "{word}: {told:?}");
        }
        assert!(why(&json!({"type": ["string", "null"]})).is_some());
        for fine in [
            json!({}),
            json!({"type": ["object", "null"]}),
            json!({"type": null}),
            json!({"type": "object", "properties": 7, "required": true}),
            json!({"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string", "required": true}}}),
            json!({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}),
            // Names of properties are no words of a schema, nor is what an example says.
            json!({"type": "object", "properties": {"type": {"type": "string"}, "items": {"enum": ["objekt"]}}}),
            json!({"type": "object", "properties": {"a": {"default": {"type": "objekt"}, "examples": [{"type": 1}]}}}),
        ] {
            assert_eq!(why(&fine), None, "{fine}");
        }
    }
}
