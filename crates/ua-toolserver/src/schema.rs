//! JSON Schemas of the tools' arguments, made from the types that read them.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// The schema of `A`, without what only Rust readers care about.
pub(crate) fn of<A: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    tidy(&mut schema);
    match schema {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            unreachable!("the derive macro describes every struct as an object")
        }
    }
}

/// Drops type names, number formats and the `null` of optional properties: an argument is left out, not sent as null.
fn tidy(schema: &mut Value) {
    let Value::Object(object) = schema else {
        return;
    };
    if object.get("title").is_some_and(Value::is_string) {
        object.remove("title");
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    if object.get("format").is_some_and(Value::is_string) {
        object.remove("format");
    }
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            for (name, value) in only {
                object.entry(name).or_insert(value);
            }
        }
    }
    for name in ["properties", "items", "anyOf", "oneOf"] {
        match object.get_mut(name) {
            Some(Value::Array(parts)) => parts.iter_mut().for_each(tidy),
            Some(Value::Object(parts)) if name == "properties" => parts.values_mut().for_each(tidy),
            Some(part) => tidy(part),
            None => {}
        }
    }
}
