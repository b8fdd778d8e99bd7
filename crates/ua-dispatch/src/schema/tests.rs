//! Schemas made to cost: whatever they are, a count is taken before a check, and what the library does stays within it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, json};

use super::*;

/// The words with which schemas are laid within one another.
const WORDS: [&str; 15] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "properties",
    "patternProperties",
    "additionalProperties",
    "dependentSchemas",
    "items",
    "prefixItems",
    "contains",
    "propertyNames",
    "unevaluatedProperties",
    "unevaluatedItems",
];

/// A schema by `word` in which each part has `parts` within it.
fn laid(word: &str, parts: &[Value]) -> Value {
    let named = |name: &dyn Fn(usize) -> String| -> Value {
        Value::Object(parts.iter().enumerate().map(|(n, part)| (name(n), part.clone())).collect::<Map<_, _>>())
    };
    match word {
        "allOf" | "anyOf" | "oneOf" | "prefixItems" => json!({ word: parts }),
        "properties" | "dependentSchemas" => json!({ word: named(&|n| format!("k{n}")) }),
        "patternProperties" => json!({ word: named(&|n| format!("^k[{n}-9]")) }),
        "if" => json!({"if": parts[0], "then": parts[parts.len() / 2], "else": parts[parts.len() - 1]}),
        "unevaluatedProperties" | "unevaluatedItems" => json!({"anyOf": parts, word: parts[0]}),
        _ => json!({ word: parts[0] }),
    }
}

/// `levels` of `width` references each, by `words` in turn; the last leads to `end`.
fn tree(words: &[&str], levels: usize, width: usize, end: &Value) -> Value {
    let refer = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let mut defs: Map<String, Value> =
        (0..levels).map(|n| (format!("d{n}"), laid(words[n % words.len()], &vec![refer(n + 1); width]))).collect();
    defs.insert(format!("d{levels}"), end.clone());
    json!({"$defs": defs, "properties": {"q": refer(0)}})
}

/// Values of all shapes, nested `levels` deep.
fn values(levels: usize) -> Vec<Value> {
    let mut all = vec![json!("aaaaaaaaaaaaaaaaaaaaaaaa!"), json!(7)];
    for names in [1, 3] {
        let (mut object, mut list) = (json!("a"), json!(1));
        for _ in 0..levels {
            object = Value::Object((0..names).map(|n| (format!("k{n}"), object.clone())).collect());
            list = Value::Array(vec![list; names]);
        }
        all.extend([object, list]);
    }
    all.into_iter().map(|value| json!({ "q": value })).collect()
}

/// Counts how often a schema is looked at.
struct Looked(Arc<AtomicU64>);

impl<'i> Keyword<'i> for Looked {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_valid(&self, _: &'i Value) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// The same schema with a word in each part that counts.
fn counting(schema: &Value) -> Value {
    let mut schema = schema.clone();
    let defs = schema["$defs"].as_object_mut().unwrap();
    for part in defs.values_mut().filter_map(Value::as_object_mut) {
        part.insert("x-looked".to_owned(), json!(true));
    }
    schema
}

/// How often the library looks at parts of the schema when it checks the value.
#[expect(clippy::disallowed_methods, reason = "what the library does is what is counted")]
fn looked_at(schema: &Value, value: &Value) -> u64 {
    let looked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&looked);
    let options = jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .with_keyword("x-looked", move |_, _, _| Ok(Box::new(Looked(Arc::clone(&counter)))));
    let validator = options.build(&counting(schema)).unwrap();
    crate::plan::violations(&validator, value);
    looked.load(Ordering::Relaxed)
}

#[test]
fn whatever_a_schema_is_made_of_its_checks_stay_within_their_count() {
    let (mut checked, mut refused) = (0, 0);
    for first in WORDS {
        for second in WORDS {
            for (levels, width) in [(2, 2), (4, 3), (10, 10)] {
                let schema = tree(&[first, second], levels, width, &json!({"type": "integer"}));
                let Ok(checker) = Checker::new(&schema) else {
                    refused += 1;
                    continue;
                };
                for value in values(levels.min(5)) {
                    let Ok(steps) = work::work(&checker.schema, &checker.measured, &value) else {
                        refused += 1;
                        continue;
                    };
                    let looked = looked_at(&schema, &value);
                    assert!(looked <= steps.errors, "{first}, {second}, {levels}, {width}: {looked} of {steps:?}");
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 2_000 && refused > 200, "{checked} checked, {refused} refused");
}

#[test]
fn what_has_no_bound_is_refused_before_anything_is_checked() {
    let level = |word: &str| tree(&[word], 10, 10, &json!({"type": "integer"}));
    let deep = (0..200).fold(json!({}), |inner, _| json!({ "not": inner }));
    let lay = |n: usize| (format!("d{n}"), json!({"allOf": [{"$ref": format!("#/$defs/d{}", n + 1)}]}));
    let chain = json!({"$defs": (0..100).map(lay).collect::<Map<_, _>>(), "$ref": "#/$defs/d0"});
    let patterns: Map<String, Value> =
        (0..300).map(|n| (format!("a{n}"), json!({"pattern": format!("a{n}")}))).collect();
    let schemas = [
        (level("allOf"), "parts that hold at one place"),
        (level("anyOf"), "parts that hold at one place"),
        (level("oneOf"), "parts that hold at one place"),
        (json!({"properties": {"q": {"$ref": "#/properties/q"}}}), "refers to itself"),
        (json!({"properties": {"q": {"allOf": [{"$ref": "#/properties/q"}]}}}), "refers to itself"),
        (json!({"if": {"$ref": "#"}}), "refers to itself"),
        (json!({"$dynamicAnchor": "n", "properties": {"q": {"$dynamicRef": "#n"}}}), "$dynamicRef"),
        (json!({"properties": {"q": {"$recursiveRef": "#"}}}), "$recursiveRef"),
        (json!({"properties": {"q": {"$id": "http://example.org/q"}}}), "$id"),
        (json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}), "not part of it"),
        (json!({"$ref": "#/$defs/none"}), "nothing stands"),
        (json!({"properties": {"q": {"pattern": "^(?=(a+)+$)b"}}}), "looks around"),
        (json!({"properties": {"q": {"pattern": "(a*)\\1"}}}), "looks around"),
        (json!({"patternProperties": {"(?!a)b": {}}}), "looks around"),
        (json!({"pattern": "a".repeat(5000)}), "a pattern of more than"),
        (json!({ "properties": patterns }), "patterns"),
        (deep, "nested more than"),
        (chain, "nothing stands"),
        (json!({"enum": vec![1; 60_000]}), "names and values"),
        (json!({"const": "a".repeat(2_000_000)}), "of text"),
    ];
    for (schema, words) in schemas {
        match Checker::new(&schema) {
            Err(Unusable::Costly(why)) => assert!(why.contains(words), "{why}: {words}"),
            other => panic!("{schema:.80}: {other:?}"),
        }
    }
}

#[test]
fn a_schema_that_grows_with_each_level_of_a_value_is_left_before_it_costs() {
    let doubling = json!({"properties": {"k0": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, {"$ref": "#"}]}, "k1": {"type": "integer"}}});
    let checker = Checker::new(&doubling).unwrap();
    let nested = |levels: usize| (0..levels).fold(json!({"k1": "no"}), |inner, _| json!({ "k0": inner }));
    assert!(checker.violations(&nested(2)).unwrap().is_some());
    let why = checker.violations(&nested(40)).unwrap_err();
    assert!(why.contains("would take more than"), "{why}");
    // One that only goes down with its value is checked as far as a stack carries.
    let plain = Checker::new(&json!({"properties": {"k0": {"$ref": "#"}, "k1": {"type": "integer"}}})).unwrap();
    assert!(plain.violations(&nested(100)).unwrap().is_some());
    assert!(plain.violations(&nested(500)).unwrap_err().contains("levels deep"));
}

#[test]
fn texts_are_matched_within_their_count() {
    let text = "a".repeat(3_000_000);
    for pattern in ["^(a+)+$", "(a|aa)+$", "((a{1,30}){1,30}){1,2}$"] {
        let checker = Checker::new(&json!({"type": "array", "items": {"pattern": pattern}})).unwrap();
        assert!(checker.violations(&json!(["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"])).is_ok(), "{pattern}");
        assert!(checker.violations(&json!([text])).is_err(), "{pattern}");
    }
    // What a pattern becomes is bounded by itself.
    assert!(matches!(Checker::new(&json!({"pattern": "((a{1,1000}){1,1000}){1,1000}"})), Err(Unusable::Invalid(_))));
}

#[test]
fn of_a_tool_only_what_needs_backtracking_is_left_out() {
    let look = "^(?!\\.)[a-z.]+@[a-z.]+$";
    let schema = json!({
        "properties": {"mail": {"type": "string", "pattern": look}, "pattern": {"type": "string", "pattern": "^a"}},
        "required": ["mail"],
    });
    let checker = Checker::of_tool(&schema).unwrap();
    assert_eq!(checker.violations(&json!({"mail": "x", "pattern": "ab"})), Ok(None));
    assert!(checker.violations(&json!({"mail": "x", "pattern": "b"})).unwrap().is_some());
    assert!(checker.violations(&json!({"pattern": "ab"})).unwrap().is_some());
    assert!(matches!(Checker::new(&schema), Err(Unusable::Costly(_))));
}

#[test]
fn schemas_as_people_write_them_are_checked() {
    let refer = |n: usize| json!({"$ref": format!("#/$defs/kind{n}")});
    let kind = |n: usize| {
        let own = json!({"type": "object", "required": ["type"], "properties": {
            "type": {"const": format!("kind{n}")}, "id": {"type": "string"}, "text": {"type": "string", "pattern": "^\\S", "maxLength": 2000},
            "children": {"type": "array", "items": {"$ref": "#/$defs/any"}}}});
        (format!("kind{n}"), own)
    };
    let mut defs: Map<String, Value> = (0..20).map(kind).collect();
    defs.insert("any".to_owned(), json!({"anyOf": (0..20).map(refer).collect::<Vec<_>>()}));
    let schema = json!({"$defs": defs, "type": "object", "properties": {"blocks": {"type": "array", "items": {"$ref": "#/$defs/any"}}}});
    let checker = Checker::of_tool(&schema).unwrap();
    let block =
        |n: usize| json!({"type": format!("kind{}", n % 20), "text": "Some text.", "children": [{"type": "kind3"}]});
    let value = json!({"blocks": (0..20).map(block).collect::<Vec<_>>()});
    assert_eq!(checker.violations(&value), Ok(None));
    // Many rows are large, and cost no more than they are.
    let rows = Checker::new(
        &json!({"items": {"required": ["a"], "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}}),
    );
    let value = Value::Array((0..100_000).map(|n| json!({"a": n, "b": "x"})).collect());
    assert_eq!(rows.unwrap().violations(&value), Ok(None));
    let named = json!({"$id": "https://example.org/s", "$defs": {"a b": {"$anchor": "here", "type": "integer"}}, "prefixItems": [
        {"$ref": "#/$defs/a%20b"}, {"$ref": "#here"}, {"$ref": "https://example.org/s#/$defs/a%20b"}]});
    assert!(Checker::new(&named).is_ok(), "{:?}", Checker::new(&named));
}

#[test]
fn long_ways_of_references_fit_on_the_stack_of_a_thread() {
    let lay = |n: usize| (format!("d{n}"), json!({"properties": {"k": {"$ref": format!("#/$defs/d{}", n + 1)}}}));
    let mut defs: Map<String, Value> = (0..3000).map(lay).collect();
    defs.insert("d3000".to_owned(), json!({"type": "integer"}));
    let schema = json!({"$defs": defs, "$ref": "#/$defs/d0"});
    assert_eq!(Checker::new(&schema).unwrap().violations(&json!({"k": {"k": 1}})), Ok(None));
}
