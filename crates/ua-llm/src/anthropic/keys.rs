//! Names of arguments as this wire takes them.
//!
//! The API refuses a whole request for one tool with an argument named `$top` or `filter[status]`. Such a name is another one on the wire, in the
//! schema that a model reads and in what it said before; what a model sends under it gets its own name back before anybody else sees it, and is
//! checked against the schema as its server wrote it. Only the names at the root are looked at: the API looks at no others.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use ua_core::{Block, ModelTurn, sha256};

use crate::request::ModelRequest;
use crate::schema;

/// The longest name of an argument.
const LONGEST: usize = 64;
/// Hexadecimal digits that tell changed names apart.
const DIGITS: usize = 8;
/// Where the arguments stand in a schema, as references to them begin.
const TO_PROPERTIES: &str = "#/properties/";

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')
}

fn is_taken(key: &str) -> bool {
    !key.is_empty() && key.len() <= LONGEST && key.chars().all(fits)
}

/// An argument's name on the wire; one that is taken stays. It depends on the name alone, so the history says it alike in every request, whatever
/// tools that one offers.
fn wire_key(key: &str) -> Cow<'_, str> {
    if is_taken(key) {
        return Cow::Borrowed(key);
    }
    let begin: String = key.chars().map(|c| if fits(c) { c } else { '_' }).take(LONGEST - DIGITS - 1).collect();
    Cow::Owned(format!("{begin}_{}", &sha256(key).to_hex()[..DIGITS]))
}

/// A tool's schema as this wire takes it.
pub(super) fn folded(schema: &Value) -> Value {
    let mut folded = schema::folded(schema);
    let properties = folded.get("properties").and_then(Value::as_object);
    let Some(properties) = properties.filter(|all| !all.keys().all(|key| is_taken(key))) else { return folded };
    let mut renamed: Map<String, Value> = Map::new();
    for (key, about) in properties {
        let wire = wire_key(key);
        // What is really named so keeps its name.
        if wire == *key || !properties.contains_key(&*wire) {
            let about = if wire == *key { about.clone() } else { with_own_name(about, key) };
            renamed.insert(wire.into_owned(), about);
        }
    }
    folded["properties"] = Value::Object(renamed);
    for key in folded.get_mut("required").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(own) = key.as_str() {
            *key = json!(wire_key(own));
        }
    }
    redirect(&mut folded);
    folded
}

/// What is said of an argument, with the name that its tool's description speaks of.
fn with_own_name(about: &Value, key: &str) -> Value {
    let mut about = about.clone();
    if let Some(fields) = about.as_object_mut() {
        let more = fields.get("description").and_then(Value::as_str).map(|more| format!(". {more}"));
        fields.insert("description".to_owned(), json!(format!("`{key}`{}", more.unwrap_or_default())));
    }
    about
}

/// References to arguments lead to where those are now.
fn redirect(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for (word, value) in fields {
                match value.as_str().filter(|_| word == "$ref").and_then(redirected) {
                    Some(path) => *value = json!(path),
                    None => redirect(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(redirect),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn redirected(path: &str) -> Option<String> {
    let behind = path.strip_prefix(TO_PROPERTIES)?;
    let (step, rest) = behind.split_at(behind.find('/').unwrap_or(behind.len()));
    let key = without_percents(step).replace("~1", "/").replace("~0", "~");
    (!is_taken(&key)).then(|| format!("{TO_PROPERTIES}{}{rest}", wire_key(&key)))
}

/// A part of an address with its bytes as they are meant.
fn without_percents(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let digits = (*first == b'%').then(|| behind.get(..2)).flatten();
        let meant = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(meant.unwrap_or(*first));
        rest = if meant.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a model said that it wants to call a tool with, as it reads it again.
pub(super) fn wire_arguments(input: Cow<'_, Value>) -> Cow<'_, Value> {
    match input.as_object().filter(|fields| !fields.keys().all(|key| is_taken(key))) {
        None => input,
        Some(fields) => {
            let renamed = fields.iter().map(|(key, value)| (wire_key(key).into_owned(), value.clone()));
            Cow::Owned(Value::Object(renamed.collect()))
        }
    }
}

/// A reply with the arguments' own names in the place of those that the wire has.
pub(super) fn with_own_keys(mut turn: ModelTurn, request: &ModelRequest) -> ModelTurn {
    for block in &mut turn.blocks {
        let Block::ToolUse(tool_use) = block else { continue };
        let Some(offer) = request.tools.iter().find(|tool| tool.name == tool_use.name) else { continue };
        let Some(input) = tool_use.input.as_object_mut() else { continue };
        let known = schema::folded(&offer.input_schema);
        let none = Map::new();
        let properties = known.get("properties").and_then(Value::as_object).unwrap_or(&none);
        // What it read of its own earlier calls it may say again, whatever the schema has.
        let earlier =
            request.messages.iter().flat_map(ua_core::Message::tool_uses).filter(|earlier| earlier.name == offer.name);
        let said = earlier.filter_map(|earlier| earlier.input.as_object()).flat_map(Map::keys);
        for key in properties.keys().chain(said).filter(|key| !is_taken(key)) {
            let wire = wire_key(key);
            if properties.contains_key(&*wire) || input.contains_key(key) {
                continue;
            }
            if let Some(value) = input.remove(&*wire) {
                input.insert(key.clone(), value);
            }
        }
    }
    turn
}

#[cfg(test)]
mod tests {
    use ua_core::{StopReason, ToolUse};

    use super::*;
    use crate::request::ToolOffer;

    const ODD: [&str; 12] =
        ["$top", "filter[status]", "@type", "a b", "", "grüße", "a/b", "a~b", "x:y", "*", "fields[]", "\u{1F600}"];

    fn reply(input: Value) -> ModelTurn {
        ModelTurn {
            blocks: vec![Block::ToolUse(ToolUse { id: "a".into(), name: "t".into(), input })],
            stop_reason: StopReason::ToolUse,
            usage: None,
            model: "m".into(),
            response_id: None,
        }
    }

    fn offering(schema: Value) -> ModelRequest {
        ModelRequest {
            model: "m".into(),
            system: String::new(),
            messages: Vec::new(),
            tools: vec![ToolOffer { name: "t".into(), description: String::new(), input_schema: schema }].into(),
            max_output_tokens: 1,
            temperature_milli: None,
            seed: None,
            output_schema: None,
            wants_form: false,
        }
    }

    /// Whatever an argument is called: the wire takes its name, no two have one, and it is the tool's own again when it comes back.
    #[test]
    fn every_name_of_an_argument_goes_and_comes_back() {
        let long = "x".repeat(65);
        let names: Vec<&str> = ODD.into_iter().chain([long.as_str(), "id", "a.b-c_d"]).collect();
        let properties: Map<String, Value> =
            names.iter().map(|name| ((*name).to_owned(), json!({"type": "string", "description": "Which."}))).collect();
        let schema = json!({"type": "object", "properties": properties, "required": names});
        let sent = folded(&schema);
        let keys: Vec<&String> = sent["properties"].as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), names.len());
        assert!(keys.iter().all(|key| is_taken(key)), "{keys:?}");
        assert_eq!(sent["required"].as_array().unwrap().len(), names.len());
        let required = sent["required"].as_array().unwrap();
        assert!(required.iter().all(|key| sent["properties"].get(key.as_str().unwrap()).is_some()), "{sent}");
        assert_eq!(sent["properties"][&*wire_key("$top")]["description"], "`$top`. Which.");
        assert_eq!(sent["properties"]["id"], json!({"type": "string", "description": "Which."}));

        let own: Map<String, Value> = names.iter().map(|name| ((*name).to_owned(), json!(name))).collect();
        let own = Value::Object(own);
        let wire = wire_arguments(Cow::Borrowed(&own)).into_owned();
        assert!(wire.as_object().unwrap().keys().all(|key| is_taken(key)), "{wire}");
        let back = with_own_keys(reply(wire), &offering(schema.clone()));
        assert_eq!(back, reply(own.clone()));
        assert_eq!(with_own_keys(reply(own.clone()), &offering(schema)), reply(own), "a model may know the name");
    }

    #[test]
    fn an_argument_that_is_named_as_another_one_would_be_keeps_its_name() {
        let wire = wire_key("$top").into_owned();
        let schema =
            json!({"type": "object", "properties": {"$top": {"type": "integer"}, wire.clone(): {"type": "string"}}});
        assert_eq!(folded(&schema)["properties"], json!({wire.clone(): {"type": "string"}}));
        let said = json!({wire: "x"});
        assert_eq!(with_own_keys(reply(said.clone()), &offering(schema)), reply(said));
    }

    #[test]
    fn references_follow_a_renamed_argument_and_nothing_else_is_changed() {
        let wire = wire_key("a/b[c]");
        for path in ["#/properties/a~1b[c]/items", "#/properties/a~1b%5Bc%5D/items"] {
            let schema = json!({"type": "object", "properties": {
                "a/b[c]": {"items": {"type": "string"}}, "two": {"items": {"$ref": path}}}});
            assert_eq!(folded(&schema)["properties"]["two"]["items"]["$ref"], format!("#/properties/{wire}/items"));
        }
        for path in ["#/properties/two", "#/$defs/x[]", "#", "other#/properties/$a"] {
            assert_eq!(redirected(path), None, "{path}");
        }
        let inner = json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"$b": {}}}}});
        assert_eq!(folded(&inner), inner, "names further in are the server's");
    }
}
