//! The fields of a form that a tool asks to have filled in (MCP elicitation): what each takes, in words, and what somebody typed for it.

use serde_json::{Number, Value};

use crate::asked::on_one_line;
use crate::words::not_one_of;

/// What a field of a form takes.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldKind {
    /// Any text.
    Text,
    /// A whole number.
    Whole,
    /// A number.
    Number,
    /// Yes or no.
    Flag,
    /// One of these.
    OneOf(Vec<Value>),
    /// Several of these.
    SomeOf(Vec<Value>),
    /// Something else: as JSON.
    Any,
}

impl FieldKind {
    /// Reads the schema of one field.
    pub fn of(schema: &Value) -> Self {
        if let Some(listed) = listed(schema) {
            return Self::OneOf(listed);
        }
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => Self::Text,
            Some("boolean") => Self::Flag,
            Some("integer") => Self::Whole,
            Some("number") => Self::Number,
            Some("array") => schema.get("items").and_then(listed).map_or(Self::Any, Self::SomeOf),
            Some(_) | None => Self::Any,
        }
    }

    /// What it takes, in words.
    pub fn takes(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Whole => "a whole number".to_owned(),
            Self::Number => "a number".to_owned(),
            Self::Flag => "yes or no".to_owned(),
            Self::OneOf(values) => format!("one of {}", shown(values)),
            Self::SomeOf(values) => format!("some of {}, with commas between them", shown(values)),
            Self::Any => "a JSON value".to_owned(),
        }
    }

    /// The value that somebody typed.
    ///
    /// # Errors
    /// A clause that says what is wrong with it.
    pub fn read(&self, typed: &str) -> Result<Value, String> {
        let typed = typed.trim();
        let wrong = || format!("`{typed}` is not {}", self.takes());
        match self {
            Self::Text => Ok(Value::from(typed)),
            Self::Whole => typed.parse::<i64>().map(Value::from).map_err(|_| wrong()),
            Self::Number => match (typed.parse::<i64>(), typed.parse::<f64>().ok().and_then(Number::from_f64)) {
                (Ok(whole), _) => Ok(Value::from(whole)),
                (Err(_), Some(number)) => Ok(Value::Number(number)),
                (Err(_), None) => Err(wrong()),
            },
            Self::Flag => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::from(true)),
                "n" | "no" | "false" => Ok(Value::from(false)),
                _ => Err(wrong()),
            },
            Self::OneOf(values) => among(values, typed),
            Self::SomeOf(values) => {
                let words = typed.split(',').map(str::trim).filter(|word| !word.is_empty());
                words.map(|word| among(values, word)).collect::<Result<Vec<_>, _>>().map(Value::from)
            }
            Self::Any => serde_json::from_str(typed).map_err(|error| crate::faults::json_fault(typed, &error)),
        }
    }

    /// Whether a value is one that it takes.
    pub fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Whole => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::Flag => value.is_boolean(),
            Self::OneOf(values) => values.contains(value),
            Self::SomeOf(values) => {
                value.as_array().is_some_and(|some| some.iter().all(|value| values.contains(value)))
            }
            Self::Any => true,
        }
    }
}

/// The values that a schema lists, by whichever of its words.
fn listed(schema: &Value) -> Option<Vec<Value>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.clone());
    }
    let forms = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    forms.iter().map(|form| form.get("const").cloned()).collect()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The values in a sentence: they are those of whoever wrote the form.
fn shown(values: &[Value]) -> String {
    values.iter().map(|value| on_one_line(&word(value))).collect::<Vec<_>>().join(", ")
}

/// The listed value that a word names: in whatever case, and by its beginning where only one begins so.
fn among(values: &[Value], typed: &str) -> Result<Value, String> {
    let lower = typed.to_lowercase();
    if let Some(value) = values.iter().find(|value| word(value) == typed) {
        return Ok(value.clone());
    }
    let begin = values.iter().filter(|value| word(value).to_lowercase().starts_with(&lower));
    match (begin.clone().next(), begin.count()) {
        (Some(value), 1) if !lower.is_empty() => Ok(value.clone()),
        _ => {
            let words: Vec<String> = values.iter().map(|value| on_one_line(&word(value))).collect();
            Err(not_one_of(typed, &words.iter().map(String::as_str).collect::<Vec<_>>()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_field_reads_what_people_type_and_says_what_it_takes() {
        let sizes = json!({"type": "string", "enum": ["small", "large"]});
        let titled =
            json!({"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]});
        let several = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}});
        for (schema, typed, wanted) in [
            (json!({"type": "string"}), " Ada ", Ok(json!("Ada"))),
            (json!({"type": "integer"}), "3", Ok(json!(3))),
            (json!({"type": "integer"}), "3.5", Err("`3.5` is not a whole number")),
            (json!({"type": "number"}), "3.5", Ok(json!(3.5))),
            (json!({"type": "number"}), "3", Ok(json!(3))),
            (json!({"type": "boolean"}), "Yes", Ok(json!(true))),
            (json!({"type": "boolean"}), "maybe", Err("`maybe` is not yes or no")),
            (sizes.clone(), "LARGE", Ok(json!("large"))),
            (sizes.clone(), "s", Ok(json!("small"))),
            (sizes, "lrge", Err("`lrge` is not one of small, large; did you mean `large`?")),
            (titled, "l", Ok(json!("l"))),
            (several.clone(), "a, c", Ok(json!(["a", "c"]))),
            (several, "a, x", Err("`x` is not one of a, b, c")),
        ] {
            let kind = FieldKind::of(&schema);
            assert_eq!(kind.read(typed), wanted.map_err(str::to_owned), "{schema}: {typed}");
            if let Ok(value) = kind.read(typed) {
                assert!(kind.fits(&value), "{schema}: {value}");
            }
        }
        assert_eq!(FieldKind::of(&json!({"type": "array"})), FieldKind::Any);
    }
}
