//! JSON Schemas of the tools' arguments, made from the types that read them.

use std::sync::Arc;

use rmcp::model::{JsonObject, MetaObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::server::HONOURS_KEYS;

/// What a tool does to the world, as MCP's annotations say it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect {
    /// Changes nothing, looks at the workspace only.
    Reads,
    /// Replaces files of the workspace; once or twice makes no difference.
    Replaces,
    /// Adds to the workspace; twice is not once.
    Adds,
    /// Fetches from the network and keeps copies of its own.
    Fetches,
    /// Creates something outside; twice is not once.
    Creates,
    /// Creates something outside; twice is not once, but twice under one idempotency key is.
    CreatesPerKey,
    /// Creates something outside once per content; once or twice makes no difference.
    CreatesOnce,
    /// Replaces something outside by name and content; once or twice makes no difference.
    ReplacesOutside,
    /// Fetches from outside and replaces a file of the workspace; once or twice makes no difference.
    FetchesInto,
    /// Changes nothing, but asks somebody who is paid for each answer.
    Asks,
    /// Anything.
    Anything,
}

/// Describes a tool whose arguments are read as `A`.
pub(crate) fn tool<A: JsonSchema>(name: &'static str, title: &str, description: &'static str, effect: Effect) -> Tool {
    // (read-only, destructive, idempotent, open world)
    let (read_only, destructive, idempotent, open_world) = match effect {
        Effect::Reads => (true, false, true, false),
        Effect::Replaces => (false, true, true, false),
        Effect::Adds => (false, false, false, false),
        Effect::Creates | Effect::CreatesPerKey => (false, false, false, true),
        Effect::Fetches | Effect::CreatesOnce => (false, false, true, true),
        Effect::ReplacesOutside | Effect::FetchesInto => (false, true, true, true),
        Effect::Asks => (true, false, false, true),
        Effect::Anything => (false, true, false, true),
    };
    let annotations = ToolAnnotations::with_title(title)
        .read_only(read_only)
        .destructive(destructive)
        .idempotent(idempotent)
        .open_world(open_world);
    let mut tool =
        Tool::new(name, description, Arc::new(arguments::<A>())).with_title(title).with_annotations(annotations);
    // What the hints of the protocol cannot say: whether a durable runner may repeat a lost call under its key.
    let honours_keys = match effect {
        Effect::Creates => Some(false),
        Effect::CreatesPerKey | Effect::CreatesOnce | Effect::ReplacesOutside => Some(true),
        Effect::Reads
        | Effect::Replaces
        | Effect::Adds
        | Effect::Fetches
        | Effect::FetchesInto
        | Effect::Asks
        | Effect::Anything => None,
    };
    if let Some(honours_keys) = honours_keys {
        let mut meta = MetaObject::new();
        meta.insert(HONOURS_KEYS.to_owned(), honours_keys.into());
        tool.meta = Some(meta);
    }
    tool
}

/// The schema of `A`, without what only Rust readers care about.
fn arguments<A: JsonSchema>() -> JsonObject {
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
