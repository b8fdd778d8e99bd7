//! What a JSON Schema demands of a value, told from what it says to people and models about it.

use serde_json::Value;

/// What a schema demands, without what it only says to people: two of which one has other comments take the same values.
pub fn demands_of(schema: &Value) -> Value {
    const WORDS: [&str; 6] = ["$schema", "$comment", "title", "description", "examples", "deprecated"];
    // Below these the names are those of fields and definitions, not of keywords.
    const NAMED: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];
    // And these are values.
    const VALUES: [&str; 4] = ["enum", "const", "default", "required"];
    match schema {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !WORDS.contains(&name.as_str()));
            let of = |(name, value): (&String, &Value)| {
                let name = name.as_str();
                let value = if VALUES.contains(&name) {
                    value.clone()
                } else if let Some(named) = value.as_object().filter(|_| NAMED.contains(&name)) {
                    named.iter().map(|(name, schema)| (name.clone(), demands_of(schema))).collect()
                } else {
                    demands_of(value)
                };
                (name.to_owned(), value)
            };
            kept.map(of).collect()
        }
        Value::Array(schemas) => schemas.iter().map(demands_of).collect(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_told_from_another_by_what_it_demands() {
        let schema = |title: &str, kind: &str| {
            json!({"$schema": "s", "title": title, "description": title, "type": "object", "required": ["title"],
                   "properties": {"title": {"type": kind, "description": title}}, "$defs": {"A": {"title": title}}})
        };
        assert_eq!(demands_of(&schema("One", "string")), demands_of(&schema("Two", "string")));
        assert_ne!(
            demands_of(&schema("One", "string")),
            demands_of(&schema("One", "integer")),
            "a field may be called `title`"
        );
        let other = json!({"properties": {}});
        assert_ne!(demands_of(&json!({"properties": {"description": {}}})), demands_of(&other));
    }
}
