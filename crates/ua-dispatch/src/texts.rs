//! Arguments that came as JSON texts: read where the tool's schema wants a list or an object and would not take a text.
//!
//! Durability Architecture, guardrails. Models that fill in nested arguments now and then send `"[…]"` for `[…]`, and some send all
//! arguments as one text. What such a text means is not a guess: it parses to what the schema wants, or it is left alone and refused by
//! the schema. It is read when the reply is planned, before the digest of the arguments is taken and before anything else looks at them,
//! so the same call in either spelling is the same call. A text with duplicate keys is not read, because parsers disagree about it.

use serde_json::{Map, Value};
use ua_core::parse_strict;

/// How deep arguments are followed; schemas may refer to themselves.
const MAX_DEPTH: u32 = 8;
/// How many schemas are looked at for one call. A schema of a kilobyte can name more choices than anybody waits for.
const MOST_STEPS: u32 = 200_000;

/// What a schema wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
}

impl Kind {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Object(_) => Some(Self::Object),
            Value::Array(_) => Some(Self::Array),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
        }
    }
}

/// The arguments with every text read that the schema wants as a list or an object. `None` when there is no such text.
pub(crate) fn read_texts(schema: &Value, input: &Value) -> Option<Value> {
    let mut read = input.clone();
    if let Value::String(text) = input {
        // All arguments in one text: of a tool that takes an object, which every tool does.
        read = parse_as(text, |kind| kind == Kind::Object)?;
    }
    Reader { root: schema, left: MOST_STEPS }.descend(schema, &mut read, 0);
    (read != *input).then_some(read)
}

fn parse_as(text: &str, wanted: impl FnMut(Kind) -> bool) -> Option<Value> {
    let trimmed = text.trim();
    if !trimmed.starts_with(['{', '[']) {
        return None;
    }
    parse_strict(trimmed).ok().filter(|value| Kind::of(value).is_some_and(wanted))
}

/// Looks at arguments by a schema that somebody else wrote.
struct Reader<'s> {
    root: &'s Value,
    /// Steps that it may take yet. Behind the last one texts stay as they are.
    left: u32,
}

impl<'s> Reader<'s> {
    /// Takes steps; false when there are not as many left.
    fn may_take(&mut self, steps: usize) -> bool {
        let left = u32::try_from(steps).ok().and_then(|steps| self.left.checked_sub(steps));
        self.left = left.unwrap_or_default();
        left.is_some()
    }

    /// Reads the texts inside a value that is what its schema wants.
    fn descend(&mut self, schema: &'s Value, value: &mut Value, depth: u32) {
        if depth == MAX_DEPTH {
            return;
        }
        let schema = resolved(self.root, schema);
        match value {
            Value::Object(fields) => {
                for (name, field) in fields.iter_mut() {
                    if let Some(schema) = self.property(schema, name) {
                        self.visit(schema, field, depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for item in items {
                        self.visit(schema, item, depth + 1);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn visit(&mut self, schema: &'s Value, value: &mut Value, depth: u32) {
        if !self.may_take(1) {
            return;
        }
        if let Value::String(text) = value
            && text.trim_start().starts_with(['{', '['])
            && !self.allows(schema, "string", depth)
            && let Some(read) = parse_as(text, |kind| self.allows(schema, kind.word(), depth))
            && self.left > 0
        {
            *value = read;
        }
        self.descend(schema, value, depth);
    }

    /// Whether the schema names `kind` among what it takes. One that names nothing takes everything, so it takes texts too.
    fn allows(&mut self, schema: &Value, kind: &str, depth: u32) -> bool {
        if !self.may_take(1) {
            return true;
        }
        let schema = resolved(self.root, schema);
        for word in ["anyOf", "oneOf"] {
            if let Some(choices) = schema.get(word).and_then(Value::as_array) {
                return depth < MAX_DEPTH && choices.iter().any(|choice| self.allows(choice, kind, depth + 1));
            }
        }
        match schema.get("type") {
            Some(Value::String(only)) => only == kind,
            Some(Value::Array(kinds)) => kinds.iter().any(|each| each == kind),
            Some(_) => true,
            None if schema.get("properties").is_some() => kind == "object",
            None if schema.get("items").is_some() => kind == "array",
            None => schema.get("enum").is_none() && schema.get("const").is_none(),
        }
    }

    /// The schema of a field, also where it stands in one of several choices.
    fn property(&mut self, schema: &'s Value, name: &str) -> Option<&'s Value> {
        let own = schema.get("properties").and_then(|properties: &Value| properties.get(name));
        own.or_else(|| {
            let mut choices =
                ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| schema.get(*word)?.as_array()).flatten();
            choices.find_map(|choice| self.may_take(1).then(|| choice.get("properties")?.get(name)).flatten())
        })
    }
}

/// The schema that a reference inside the document leads to.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_DEPTH {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'))
        else {
            break;
        };
        match root.pointer(pointer) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// As [`read_texts`], for the arguments of an action.
pub(crate) fn read_texts_of(schema: &Value, arguments: Map<String, Value>) -> Map<String, Value> {
    let whole = Value::Object(arguments);
    match (read_texts(schema, &whole), whole) {
        (Some(Value::Object(read)), _) | (None, Value::Object(read)) => read,
        (Some(_) | None, _) => unreachable!("an object stays an object"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "to": {"type": "array", "items": {"type": "string"}},
                "filter": {"type": "object", "properties": {"tags": {"type": "array"}}},
                "body": {"type": "string"},
                "either": {"type": ["string", "array"]},
                "anything": {},
                "choice": {"anyOf": [{"type": "array"}, {"type": "null"}]},
                "choice_of_text": {"anyOf": [{"type": "array"}, {"type": "string"}]},
                "named": {"$ref": "#/$defs/list"},
                "rows": {"type": "array", "items": {"type": "object"}},
            },
            "$defs": {"list": {"type": "array"}, "loop": {"$ref": "#/$defs/loop"}},
        })
    }

    #[test]
    fn a_text_is_read_where_the_schema_wants_what_it_holds_and_takes_no_text() {
        let cases = [
            (json!({"to": "[\"a\", \"b\"]"}), Some(json!({"to": ["a", "b"]}))),
            (json!({"filter": " {\"tags\": \"[1]\"} "}), Some(json!({"filter": {"tags": [1]}}))),
            (json!({"choice": "[]"}), Some(json!({"choice": []}))),
            (json!({"named": "[7]"}), Some(json!({"named": [7]}))),
            (json!({"rows": ["{\"a\": 1}", {"a": 2}]}), Some(json!({"rows": [{"a": 1}, {"a": 2}]}))),
            (json!("{\"to\": \"[\\\"a\\\"]\"}"), Some(json!({"to": ["a"]}))),
            // What the schema takes as it is, and what is not what it wants.
            (json!({"body": "[1]"}), None),
            (json!({"either": "[1]"}), None),
            (json!({"anything": "[1]"}), None),
            (json!({"choice_of_text": "[1]"}), None),
            (json!({"undeclared": "[1]"}), None),
            (json!({"to": "{\"a\": 1}"}), None),
            (json!({"to": "a, b"}), None),
            (json!({"to": "[1"}), None),
            (json!({"to": ["[1]"]}), None),
            // Of two values for one key nobody knows which is meant.
            (json!({"filter": "{\"tags\": [], \"tags\": [1]}"}), None),
            (json!("[1]"), None),
            (json!("send it"), None),
            (json!(7), None),
        ];
        for (input, expected) in cases {
            assert_eq!(read_texts(&schema(), &input), expected, "{input}");
        }
    }

    #[test]
    fn choices_without_end_leave_a_text_as_it_is() {
        for word in ["anyOf", "oneOf"] {
            let level =
                |n: usize| (format!("d{n}"), json!({word: vec![json!({"$ref": format!("#/$defs/d{}", n + 1)}); 20]}));
            let mut defs: Map<String, Value> = (0..MAX_DEPTH as usize).map(level).collect();
            defs.insert(format!("d{MAX_DEPTH}"), json!({"type": "integer"}));
            let schema = json!({"$defs": defs, "properties": {"q": {"$ref": "#/$defs/d0"}, "to": {"type": "array"}}});
            let mut reader = Reader { root: &schema, left: MOST_STEPS };
            assert!(reader.allows(&schema["properties"]["q"], "string", 0), "what was not looked at is left alone");
            assert_eq!(reader.left, 0, "{word}: 20^8 choices, and no more than the steps that it has");
            assert_eq!(read_texts(&schema, &json!({"q": "[1]", "to": 1})), None);
        }
    }

    #[test]
    fn schemas_that_refer_to_themselves_end() {
        let looped = json!({"type": "object", "properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#"}}});
        assert_eq!(read_texts(&looped, &json!({"a": "[1]"})), None);
        assert_eq!(read_texts(&looped, &json!({"b": "{\"b\": {}}"})), Some(json!({"b": {"b": {}}})));
    }
}
