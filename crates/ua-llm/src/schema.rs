//! A tool's schema as model providers take it.
//!
//! Servers write schemas that are good JSON Schema and that providers refuse, with one bad tool for the whole request: alternatives at the
//! root (`anyOf`, `oneOf`, `allOf`), a reference there, no `properties`, no type; and wherever it stands, a list of which nothing says what is in
//! it. What a model reads is folded into one object; whatever it sends is still checked against the schema as its server wrote it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The words that no provider takes at the root.
const AT_ROOT: [&str; 9] = ["anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else"];
/// Words with schemas by name.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
/// Words with one schema, or with a list of them.
const ONE_OR_MANY: [&str; 5] = ["items", "prefixItems", "anyOf", "oneOf", "allOf"];
/// Words with one schema.
const ONE: [&str; 9] = [
    "additionalProperties",
    "additionalItems",
    "propertyNames",
    "unevaluatedProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
];
/// What a schema is made of: without these words it says nothing that a model could follow.
const STRUCTURE: [&str; 5] = ["type", "properties", "items", "required", "description"];
/// As deep as references at the root are followed.
const MAX_DEPTH: usize = 8;
/// Names and values that are copied for one tool. A schema of a kilobyte may have 10^8 alternatives; those behind are left out.
const MOST_VALUES: usize = 100_000;

/// The schema as providers take it: an object with properties. One that is fine already is sent as it is.
pub(crate) fn folded(schema: &Value) -> Value {
    let mut mended = schema.clone();
    mend(&mut mended);
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

/// Looks at each schema that stands directly in another one.
fn each_part(fields: &mut Map<String, Value>, look: &mut dyn FnMut(&mut Value)) {
    for word in BY_NAME {
        for (_, part) in fields.get_mut(word).and_then(Value::as_object_mut).into_iter().flatten() {
            look(part);
        }
    }
    for word in ONE_OR_MANY {
        match fields.get_mut(word) {
            Some(Value::Array(parts)) => {
                for part in parts {
                    look(part);
                }
            }
            Some(part) => look(part),
            None => {}
        }
    }
    for word in ONE {
        if let Some(part) = fields.get_mut(word) {
            look(part);
        }
    }
}

/// The words of a schema and of all within it that it could do without.
pub(crate) fn spare_words_in(schema: &Value) -> BTreeSet<String> {
    fn look(schema: &mut Value, words: &mut BTreeSet<String>) {
        let Some(fields) = schema.as_object_mut() else { return };
        words.extend(fields.keys().filter(|word| !STRUCTURE.contains(&word.as_str())).cloned());
        each_part(fields, &mut |part| look(part, words));
    }
    let mut words = BTreeSet::new();
    look(&mut schema.clone(), &mut words);
    words
}

/// Takes words out of a schema, and of all within it. A property of such a name stays.
pub(crate) fn take_out(schema: &mut Value, words: &BTreeSet<String>) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|word, _| !words.contains(word));
    each_part(fields, &mut |part| take_out(part, words));
}

/// Mends what no provider takes, wherever it stands in a schema.
fn mend(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    mend_list(fields);
    let properties = fields.get("properties").and_then(Value::as_object).into_iter().flatten();
    let wanted = properties.filter(|(_, property)| property.get("required") == Some(&Value::Bool(true)));
    let wanted: Vec<Value> = wanted.map(|(name, _)| Value::from(name.as_str())).collect();
    each_part(fields, &mut mend);
    mend_required(fields, wanted);
}

/// Says of a list what is in it, which may be anything: OpenAI refuses one of which nothing is said. Older schemas have a list of schemas there, one
/// for each place.
fn mend_list(fields: &mut Map<String, Value>) {
    let is_list = match fields.get("type") {
        Some(Value::String(kind)) => kind == "array",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "array"),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => false,
    };
    let items = match fields.get("items") {
        Some(Value::Array(places)) if !places.is_empty() => json!({ "anyOf": places }),
        Some(Value::Array(_)) => json!({}),
        Some(Value::Null | Value::Bool(_)) | None if is_list => json!({}),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) | None => return,
    };
    fields.insert("items".to_owned(), items);
}

/// Writes what is wanted as the list of names that a provider takes. Older schemas say it in the property itself (`"required": true`), and some
/// servers write that at the root.
fn mend_required(fields: &mut Map<String, Value>, mut wanted: Vec<Value>) {
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

    /// A list of which nothing is said, wherever a schema may stand, and as each of the types that it may be one of.
    #[test]
    fn a_list_says_what_is_in_it_wherever_it_stands() {
        let places: [fn(Value) -> Value; 9] = [
            |list| json!({"type": "object", "properties": {"a": list}}),
            |list| json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": list}}}}),
            |list| json!({"type": "object", "properties": {"a": {"type": "array", "items": list}}}),
            |list| json!({"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, list]}}}),
            |list| json!({"type": "object", "properties": {"a": {"oneOf": [list]}}}),
            |list| json!({"type": "object", "properties": {"a": {"allOf": [list]}}}),
            |list| json!({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": list}}}),
            |list| json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": {"l": list}}),
            |list| json!({"type": "object", "properties": {}, "patternProperties": {"^x": list}}),
        ];
        let text = || json!({"type": "string"});
        for place in places {
            for (list, mended) in [
                (json!({"type": "array"}), json!({"type": "array", "items": {}})),
                (json!({"type": ["array", "null"]}), json!({"type": ["array", "null"], "items": {}})),
                (json!({"type": "array", "items": true}), json!({"type": "array", "items": {}})),
                (json!({"type": "array", "items": []}), json!({"type": "array", "items": {}})),
                (
                    json!({"items": [text(), {"type": "array"}]}),
                    json!({"items": {"anyOf": [text(), {"type": "array", "items": {}}]}}),
                ),
                (
                    json!({"type": "array", "prefixItems": [text()]}),
                    json!({"type": "array", "prefixItems": [text()], "items": {}}),
                ),
                (json!({"type": "array", "items": text()}), json!({"type": "array", "items": text()})),
                (json!({"type": "string"}), json!({"type": "string"})),
            ] {
                assert_eq!(folded(&place(list.clone())), place(mended), "{}", place(list));
            }
        }
        // What is no schema is nobody's list, and a property of that name is one.
        let other =
            json!({"type": "object", "properties": {"items": {"type": "string", "default": {"type": "array"}}}});
        assert_eq!(folded(&other), other);
    }

    #[test]
    fn a_word_is_taken_out_of_schemas_and_no_property_of_that_name() {
        let schema = || {
            json!({"type": "object", "additionalProperties": false, "$schema": "s", "properties": {
                "additionalProperties": {"type": "string", "default": {"additionalProperties": 1}},
                "l": {"type": "array", "items": {"type": "object", "additionalProperties": true, "minProperties": 1}}}})
        };
        let words: Vec<String> = spare_words_in(&schema()).into_iter().collect();
        assert_eq!(words, ["$schema", "additionalProperties", "default", "minProperties"]);
        let mut less = schema();
        take_out(&mut less, &["additionalProperties".to_owned()].into());
        assert_eq!(
            less,
            json!({"type": "object", "$schema": "s", "properties": {
                "additionalProperties": {"type": "string", "default": {"additionalProperties": 1}},
                "l": {"type": "array", "items": {"type": "object", "minProperties": 1}}}})
        );
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
