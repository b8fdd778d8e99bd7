//! The schema of a reply as wires take it that write replies by a grammar.
//!
//! Providers take a part of JSON Schema: closed objects, all of whose properties are there, and no limits of numbers, lengths or patterns.
//! What a job asks for is narrowed to that part where it can be, and limits are left out. So a reply that was written by the narrowed
//! schema has the right shape, and is checked against the schema as the job wrote it. A schema that cannot be narrowed is not sent: the
//! model reads it in its prompt, as it does on a wire that knows no schemas.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

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

/// What puts a schema together out of others: those beside it hold as well.
const PARTS: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// The schema as such a wire takes it; `None` when it cannot be said there. A schema that refers to itself is taken by some wires only.
pub(crate) fn narrowed(schema: &Value, may_recurse: bool) -> Option<Value> {
    let none = Map::new();
    let definitions = schema.get("$defs").and_then(Value::as_object).unwrap_or(&none);
    let narrowing = Narrowing { definitions, left: Cell::new(MOST_PARTS) };
    let mut narrow = narrowing.narrow(schema, 0)?;
    let root = narrow.as_object_mut()?;
    let is_object = root.get("type").is_some_and(|kind| kind == "object") && root.contains_key("properties");
    if !is_object || root.contains_key("anyOf") || root.contains_key("$ref") {
        return None;
    }
    if schema.get("$defs").is_some_and(Value::is_object) {
        let narrowed: Option<Map<String, Value>> =
            definitions.iter().map(|(name, of)| Some((name.clone(), narrowing.narrow(of, 1)?))).collect();
        root.insert("$defs".to_owned(), Value::Object(narrowed?));
    }
    if !may_recurse && recurses(&narrow) {
        return None;
    }
    Some(narrow)
}

struct Narrowing<'s> {
    definitions: &'s Map<String, Value>,
    /// How many parts may yet come.
    left: Cell<u32>,
}

impl Narrowing<'_> {
    fn count(&self) -> Option<()> {
        self.left.set(self.left.get().checked_sub(1)?);
        Some(())
    }

    /// Narrows a part of a schema.
    fn narrow(&self, schema: &Value, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.count()?;
        let own = schema.as_object()?;
        let inner = |schema: &Value| self.narrow(schema, depth + 1);
        let all = |schemas: &Value| schemas.as_array()?.iter().map(inner).collect::<Option<Vec<Value>>>();
        let is_object = own.get("type").is_some_and(|kind| kind == "object") || own.contains_key("properties");
        if is_object && PARTS.iter().any(|word| own.contains_key(*word)) {
            return self.narrow_in_parts(own, depth);
        }
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
                    // What stands beside them holds for each, and may leave nothing of some.
                    if PARTS.iter().any(|word| own.contains_key(*word)) {
                        return None;
                    }
                    let each = kinds.iter().map(|kind| {
                        let mut one = own.clone();
                        one.insert("type".to_owned(), kind.clone());
                        one.retain(|word, _| belongs_to(word, kind));
                        inner(&Value::Object(one))
                    });
                    narrowed.insert("anyOf".to_owned(), Value::Array(each.collect::<Option<Vec<_>>>()?));
                    // What belongs to one kind stands there now; what is said about all of them stays.
                    narrowed.retain(|word, _| word == "anyOf" || SAID.contains(&word.as_str()));
                    narrowed.extend(said_in(own));
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
                // What is wanted and is none of them could not be written.
                "required" if are_properties(own, value) => {}
                // An open object can be closed; a map from any name to values cannot be said.
                "additionalProperties" if value.is_boolean() && own.contains_key("properties") => {}
                "items" => {
                    narrowed.insert("items".to_owned(), inner(value)?);
                }
                "enum" | "const" | "$ref" => {
                    narrowed.insert(word.clone(), value.clone());
                }
                // Two lists of alternatives are not one.
                "anyOf" | "oneOf" if !narrowed.contains_key("anyOf") => {
                    narrowed.insert("anyOf".to_owned(), Value::Array(all(value)?));
                }
                "allOf" => {
                    let all = all(value)?;
                    let [Value::Object(only)] = all.as_slice() else { return None };
                    let is_another = |other: Option<&Value>, value: &Value| other.is_some_and(|other| other != value);
                    let mut beside = only.iter().filter(|(word, _)| !SAID.contains(&word.as_str()));
                    if beside
                        .any(|(word, value)| is_another(own.get(word), value) || is_another(narrowed.get(word), value))
                    {
                        return None;
                    }
                    // What is said of the whole counts before what is said of its part.
                    let mut only = only.clone();
                    only.retain(|word, _| !own.contains_key(word));
                    narrowed.extend(only);
                }
                _ => return None,
            }
        }
        let is_open_object =
            narrowed.get("type").is_some_and(|kind| kind == "object") && !narrowed.contains_key("properties");
        let is_open_list = narrowed.get("type").is_some_and(|kind| kind == "array") && !narrowed.contains_key("items");
        // A schema that takes anything says nothing that a grammar could follow.
        let says_nothing = narrowed.keys().all(|word| SAID.contains(&word.as_str()));
        if is_open_object || is_open_list || says_nothing {
            return None;
        }
        alone(narrowed).map(Value::Object)
    }

    /// Narrows an object whose properties stand in several places. A closed object has all of its properties in one, so what holds together
    /// is written together, once for each of its alternatives.
    fn narrow_in_parts(&self, own: &Map<String, Value>, depth: usize) -> Option<Value> {
        let mut unsaid = own.clone();
        unsaid.retain(|word, _| !SAID.contains(&word.as_str()));
        let mut narrowed: Map<String, Value> = said_in(own).collect();
        let mut alternatives = self.alternatives(&unsaid, depth)?;
        for object in &mut alternatives {
            if *object.entry("type").or_insert_with(|| json!("object")) != "object" {
                return None;
            }
        }
        let narrow = |object: Map<String, Value>| self.narrow(&Value::Object(object), depth + 1);
        if alternatives.len() == 1 {
            let mut only = alternatives.pop()?;
            only.extend(narrowed);
            return narrow(only);
        }
        let each = alternatives.into_iter().map(narrow).collect::<Option<Vec<_>>>()?;
        narrowed.insert("anyOf".to_owned(), Value::Array(each));
        Some(Value::Object(narrowed))
    }

    /// What a schema comes to, with nothing in parts: one of these.
    fn alternatives(&self, own: &Map<String, Value>, depth: usize) -> Option<Vec<Map<String, Value>>> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.count()?;
        let of = |schema: &Value| self.alternatives(schema.as_object()?, depth + 1);
        let mut whole = own.clone();
        whole.retain(|word, _| !PARTS.contains(&word.as_str()));
        let mut all = vec![whole];
        if let Some(path) = own.get("$ref") {
            let target = self.definitions.get(path.as_str()?.strip_prefix("#/$defs/")?)?;
            all = self.each_with(&all, &of(target)?)?;
        }
        if let Some(parts) = own.get("allOf") {
            for part in parts.as_array()? {
                all = self.each_with(&all, &of(part)?)?;
            }
        }
        for word in ["anyOf", "oneOf"] {
            let Some(parts) = own.get(word) else { continue };
            let each: Option<Vec<_>> = parts.as_array()?.iter().map(of).collect();
            all = self.each_with(&all, &each?.concat())?;
        }
        Some(all)
    }

    /// Each of these together with each of those.
    fn each_with(&self, these: &[Map<String, Value>], those: &[Map<String, Value>]) -> Option<Vec<Map<String, Value>>> {
        let pairs = these.iter().flat_map(|one| those.iter().map(move |other| (one, other)));
        pairs.map(|(one, other)| self.count().and_then(|()| together(one, other))).collect()
    }
}

/// What holds where two schemas of objects hold; `None` where that cannot be written as one.
fn together(one: &Map<String, Value>, other: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut both = one.clone();
    for (word, value) in other {
        match word.as_str() {
            "$schema" | "$defs" | "$id" | "$comment" => {}
            word if LIMITS.contains(&word) => {}
            word if SAID.contains(&word) => {
                both.entry(word).or_insert_with(|| value.clone());
            }
            "properties" => {
                let all = both.entry("properties").or_insert_with(|| json!({})).as_object_mut()?;
                for (name, of) in value.as_object()? {
                    if all.insert(name.clone(), of.clone()).is_some_and(|before| before != *of) {
                        return None;
                    }
                }
            }
            "required" => {
                let all = both.entry("required").or_insert_with(|| json!([])).as_array_mut()?;
                all.extend(value.as_array()?.iter().cloned());
            }
            // Open where the other one is closed: that is looked at below.
            "additionalProperties" if *value == json!(true) => {}
            word => {
                let before = both.insert(word.to_owned(), value.clone());
                let is_open = |before: &Value| word == "additionalProperties" && *before == json!(true);
                if before.is_some_and(|before| before != *value && !is_open(&before)) {
                    return None;
                }
            }
        }
    }
    // A closed one allows no property of the other.
    for (closed, open) in [(one, other), (other, one)] {
        let names = |schema: &Map<String, Value>| -> BTreeSet<String> {
            schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect()
        };
        if closed.get("additionalProperties") == Some(&json!(false)) && !names(open).is_subset(&names(closed)) {
            return None;
        }
    }
    Some(both)
}

/// Whether all that is wanted are properties of the schema.
fn are_properties(schema: &Map<String, Value>, wanted: &Value) -> bool {
    let properties = schema.get("properties");
    let is_one = |name: &Value| name.as_str().is_some_and(|name| properties.is_some_and(|all| all.get(name).is_some()));
    wanted.as_array().is_some_and(|names| names.iter().all(is_one))
}

/// What is said about a schema.
fn said_in(schema: &Map<String, Value>) -> impl Iterator<Item = (String, Value)> {
    let said = schema.iter().filter(|(word, _)| SAID.contains(&word.as_str()));
    said.map(|(word, value)| (word.clone(), value.clone()))
}

/// A reference as wires take it: with nothing beside it. What is said of it stands around it.
fn alone(mut narrowed: Map<String, Value>) -> Option<Map<String, Value>> {
    if narrowed.len() == 1 || !narrowed.contains_key("$ref") {
        return Some(narrowed);
    }
    if narrowed.keys().any(|word| word != "$ref" && !SAID.contains(&word.as_str())) {
        return None;
    }
    let reference = narrowed.remove("$ref")?;
    narrowed.insert("anyOf".to_owned(), json!([{ "$ref": reference }]));
    Some(narrowed)
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
        let nested = |levels: usize| {
            let level = |inner: Value, _| json!({"type": kinds, "items": inner, "properties": {"q": inner}});
            json!({"type": "object", "properties": {"q": (0..levels).fold(json!({"type": "string"}), level)}})
        };
        assert!(narrowed(&nested(4), true).is_some());
        assert_eq!(narrowed(&nested(12), true), None);
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
            json!({"type": "object", "properties": {}, "anyOf": [with(json!({"type": "null"})), with(json!({"type": "string"}))]}),
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

    /// What is sent by an older wire may say it in parts: a closed object has all of its properties in one.
    #[test]
    fn an_object_in_parts_is_written_in_one() {
        let with = |inner: &Value| {
            json!({"type": "object", "properties": {"a": inner},
                   "$defs": {"To": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}}})
        };
        let closed = |properties: Value| {
            let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
            json!({"type": "object", "required": names, "properties": properties, "additionalProperties": false})
        };
        let text = || json!({"type": "string"});
        let kind = || json!({"kind": {"const": "send"}});
        for (parts, whole) in [
            (
                json!({"type": "object", "properties": kind(), "required": ["kind"], "$ref": "#/$defs/To"}),
                Some(closed(json!({"kind": {"const": "send"}, "to": text()}))),
            ),
            (
                json!({"type": "object", "allOf": [{"$ref": "#/$defs/To"}, {"properties": kind()}]}),
                Some(closed(json!({"kind": {"const": "send"}, "to": text()}))),
            ),
            (
                json!({"description": "How.", "properties": kind(), "oneOf": [{"$ref": "#/$defs/To"}, {}]}),
                Some(json!({"description": "How.", "anyOf": [
                    closed(json!({"kind": {"const": "send"}, "to": text()})), closed(kind()),
                ]})),
            ),
            // What is said of a reference stands around it.
            (
                json!({"description": "To whom.", "$ref": "#/$defs/To"}),
                Some(json!({"description": "To whom.", "anyOf": [{"$ref": "#/$defs/To"}]})),
            ),
            (
                json!({"description": "x", "allOf": [{"$ref": "#/$defs/To"}]}),
                Some(json!({"description": "x", "anyOf": [{"$ref": "#/$defs/To"}]})),
            ),
            // What cannot be written in one, or as nothing fits it.
            (
                json!({"type": "object", "properties": kind(), "additionalProperties": false, "$ref": "#/$defs/To"}),
                None,
            ),
            (json!({"type": "object", "properties": {"to": {"type": "null"}}, "$ref": "#/$defs/To"}), None),
            (json!({"type": "object", "properties": kind(), "anyOf": [{"type": "null"}]}), None),
            (json!({"type": "object", "properties": kind(), "required": ["other"]}), None),
            (json!({"type": "object", "properties": kind(), "$ref": "#/$defs/None"}), None),
            (json!({"type": "string", "$ref": "#/$defs/To"}), None),
            (json!({"anyOf": [text()], "oneOf": [text()]}), None),
            (json!({"type": ["string", "null"], "anyOf": [{"const": "a"}]}), None),
        ] {
            let narrow = narrowed(&with(&parts), false);
            assert_eq!(narrow.map(|narrow| narrow["properties"]["a"].clone()), whole, "{parts}");
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

    mod of_types {
        use proptest::prelude::*;
        use schemars::JsonSchema;
        use serde::Serialize;

        use super::*;

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        struct SendArgs {
            to: String,
            copies: u8,
            note: Option<String>,
        }

        /// Told apart by a field.
        #[derive(Debug, Clone, Serialize, JsonSchema)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        enum Act {
            /// Sends it.
            Send(SendArgs),
            Wait {
                minutes: u32,
            },
            Stop,
        }

        /// Told apart by a name around it.
        #[derive(Debug, Clone, Serialize, JsonSchema)]
        enum Paid {
            Cash,
            ByCard { number: String },
            Coins(u8),
        }

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        #[serde(tag = "t", content = "c")]
        enum Beside {
            Args(SendArgs),
            Nothing,
        }

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        struct Line {
            id: u32,
            #[serde(flatten)]
            act: Act,
        }

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        struct Both {
            #[serde(flatten)]
            act: Act,
            #[serde(flatten)]
            paid: Paid,
        }

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        struct Flat {
            id: u32,
            #[serde(flatten)]
            args: SendArgs,
        }

        #[derive(Debug, Clone, Serialize, JsonSchema)]
        struct Report {
            /// What is to be done.
            act: Act,
            /// How it was paid.
            paid: Paid,
            beside: Beside,
            /// If any.
            args: Option<SendArgs>,
            lines: Vec<Line>,
            both: Both,
            flat: Flat,
        }

        fn args() -> impl Strategy<Value = SendArgs> {
            let made = (".{0,4}", any::<u8>(), prop::option::of(".{0,4}"));
            made.prop_map(|(to, copies, note)| SendArgs { to, copies, note })
        }

        fn act() -> impl Strategy<Value = Act> {
            prop_oneof![
                args().prop_map(Act::Send),
                any::<u32>().prop_map(|minutes| Act::Wait { minutes }),
                Just(Act::Stop),
            ]
        }

        fn paid() -> impl Strategy<Value = Paid> {
            prop_oneof![
                Just(Paid::Cash),
                ".{0,4}".prop_map(|number| Paid::ByCard { number }),
                any::<u8>().prop_map(Paid::Coins),
            ]
        }

        fn report() -> impl Strategy<Value = Report> {
            let beside = prop_oneof![args().prop_map(Beside::Args), Just(Beside::Nothing)];
            let line = (any::<u32>(), act()).prop_map(|(id, act)| Line { id, act });
            let both = (act(), paid()).prop_map(|(act, paid)| Both { act, paid });
            let flat = (any::<u32>(), args()).prop_map(|(id, args)| Flat { id, args });
            let lines = prop::collection::vec(line, 0..3);
            (act(), paid(), beside, prop::option::of(args()), lines, both, flat).prop_map(
                |(act, paid, beside, args, lines, both, flat)| Report { act, paid, beside, args, lines, both, flat },
            )
        }

        /// Whether wherever a reference stands, it stands alone.
        fn references_stand_alone(schema: &Value) -> bool {
            match schema {
                Value::Object(fields) => {
                    (fields.len() == 1 || !fields.contains_key("$ref")) && fields.values().all(references_stand_alone)
                }
                Value::Array(items) => items.iter().all(references_stand_alone),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            }
        }

        proptest! {
            /// A model that is held to the narrowed schema can write every value of the type.
            #[test]
            fn a_value_of_a_type_fits_its_narrowed_schema(report in report()) {
                let schema = schemars::schema_for!(Report).to_value();
                let value = serde_json::to_value(&report).unwrap();
                prop_assert!(jsonschema::is_valid(&schema, &value), "{value} in {schema:#}");
                let narrow = narrowed(&schema, false);
                let narrow = narrow.ok_or_else(|| TestCaseError::fail(format!("not narrowed: {schema:#}")))?;
                prop_assert!(references_stand_alone(&narrow), "{narrow:#}");
                prop_assert!(jsonschema::is_valid(&narrow, &value), "{value} in {narrow:#}");
            }
        }
    }
}
