//! The fields of a form that a tool asks to have filled in (MCP elicitation): what each takes, in words, and what somebody typed for it.

mod limit;

use serde_json::{Number, Value};

use self::limit::{Format, Limit};
use crate::asked::on_one_line;
use crate::words::not_one_of;

/// What a field of a form takes: a kind of value, within the limits of the form.
#[derive(Debug, Clone)]
pub struct FieldKind {
    kind: Kind,
    limits: Vec<Limit>,
}

/// What kind of value.
#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    Whole,
    Number,
    Flag,
    OneOf(Vec<Listed>),
    SomeOf(Vec<Listed>),
    /// A list or an object, as JSON.
    List,
    Object,
    /// Something else, as JSON.
    Any,
}

/// A value that a form lists, and what a person reads for it.
#[derive(Debug, Clone, PartialEq)]
struct Listed {
    value: Value,
    title: Option<String>,
}

impl Listed {
    /// Its word in a list, which may be typed.
    fn word(&self) -> String {
        self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned)
    }

    /// The same with its title where that says something else.
    fn shown(&self) -> String {
        let word = self.word();
        match self.title.as_ref().filter(|title| **title != word) {
            Some(title) => on_one_line(&format!("{word} ({title})")),
            None => on_one_line(&word),
        }
    }

    /// What may be typed for it.
    fn names(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.word()).chain(self.title.clone())
    }
}

impl FieldKind {
    /// Reads the schema of one field.
    pub fn of(schema: &Value) -> Self {
        let kind = match (listed(schema), schema.get("type").and_then(Value::as_str)) {
            (Some(listed), _) => Kind::OneOf(listed),
            (None, Some("string")) => Kind::Text,
            (None, Some("boolean")) => Kind::Flag,
            (None, Some("integer")) => Kind::Whole,
            (None, Some("number")) => Kind::Number,
            (None, Some("array")) => schema.get("items").and_then(listed).map_or(Kind::List, Kind::SomeOf),
            (None, Some("object")) => Kind::Object,
            (None, Some(_) | None) => Kind::Any,
        };
        let limits = Limit::all(schema, matches!(kind, Kind::SomeOf(_)));
        Self { kind, limits }
    }

    /// What it takes, in words, its limits included.
    pub fn takes(&self) -> String {
        let format = self.limits.iter().find(|limit| matches!(limit, Limit::Format(_)));
        let rest = self.limits.iter().filter(|limit| !matches!(limit, Limit::Format(_))).map(Limit::words);
        let first = match (&self.kind, format) {
            (Kind::Text, Some(format)) => format.words(),
            (_, _) => self.kind_in_words(),
        };
        std::iter::once(first).chain(rest).collect::<Vec<_>>().join(", ")
    }

    fn kind_in_words(&self) -> String {
        match &self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Whole => "a whole number".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::Flag => "yes or no".to_owned(),
            Kind::OneOf(values) => format!("one of {}", shown(values)),
            Kind::SomeOf(values) => format!("some of {}, with commas between them", shown(values)),
            Kind::List => "a JSON list".to_owned(),
            Kind::Object => "a JSON object".to_owned(),
            Kind::Any => "a JSON value".to_owned(),
        }
    }

    /// The value that somebody typed.
    ///
    /// # Errors
    /// A clause that says what is wrong with it.
    pub fn read(&self, typed: &str) -> Result<Value, String> {
        let typed = typed.trim();
        let value = self.of_its_kind(typed)?;
        match self.limits.iter().find(|limit| !limit.holds(&value)) {
            Some(limit) => Err(format!("`{}` does not fit: it must be {}", crate::in_a_sentence(typed), limit.words())),
            None => Ok(value),
        }
    }

    fn of_its_kind(&self, typed: &str) -> Result<Value, String> {
        let wrong = || format!("`{}` is not {}", crate::in_a_sentence(typed), self.kind_in_words());
        let json = || serde_json::from_str::<Value>(typed).map_err(|error| crate::faults::json_fault(typed, &error));
        match &self.kind {
            Kind::Text => Ok(Value::from(typed)),
            Kind::Whole => typed.parse::<i64>().map(Value::from).map_err(|_| wrong()),
            Kind::Number => match (typed.parse::<i64>(), typed.parse::<f64>().ok().and_then(Number::from_f64)) {
                (Ok(whole), _) => Ok(Value::from(whole)),
                (Err(_), Some(number)) => Ok(Value::Number(number)),
                (Err(_), None) => Err(wrong()),
            },
            Kind::Flag => match typed.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::from(true)),
                "n" | "no" | "false" => Ok(Value::from(false)),
                _ => Err(wrong()),
            },
            Kind::OneOf(values) => among(values, typed),
            Kind::SomeOf(values) => {
                let words = typed.split(',').map(str::trim).filter(|word| !word.is_empty());
                words.map(|word| among(values, word)).collect::<Result<Vec<_>, _>>().map(Value::from)
            }
            Kind::List | Kind::Object => {
                json().and_then(|value| if self.is_kind(&value) { Ok(value) } else { Err(wrong()) })
            }
            Kind::Any => json(),
        }
    }

    /// Whether a value is one that it takes.
    pub fn fits(&self, value: &Value) -> bool {
        self.is_kind(value) && self.limits.iter().all(|limit| limit.holds(value))
    }

    fn is_kind(&self, value: &Value) -> bool {
        let is_listed = |values: &[Listed], value: &Value| values.iter().any(|listed| listed.value == *value);
        match &self.kind {
            Kind::Text => value.is_string(),
            Kind::Whole => value.is_i64() || value.is_u64(),
            Kind::Number => value.is_number(),
            Kind::Flag => value.is_boolean(),
            Kind::OneOf(values) => is_listed(values, value),
            Kind::SomeOf(values) => value.as_array().is_some_and(|some| some.iter().all(|one| is_listed(values, one))),
            Kind::List => value.is_array(),
            Kind::Object => value.is_object(),
            Kind::Any => true,
        }
    }

    /// A value that it takes, for a command that shows how it is given; `None` where none is known.
    pub fn sample(&self) -> Option<Value> {
        let bounds = self.limits.iter().filter_map(|limit| match limit {
            Limit::AtLeast(bound) | Limit::AtMost(bound) | Limit::MultipleOf(bound) => Some(bound.clone()),
            Limit::Above(bound) => bound.as_i64().map(|bound| Value::from(bound.saturating_add(1))),
            Limit::Below(bound) => bound.as_i64().map(|bound| Value::from(bound.saturating_sub(1))),
            Limit::MinLength(_)
            | Limit::MaxLength(_)
            | Limit::Pattern(..)
            | Limit::Format(_)
            | Limit::MinItems(_)
            | Limit::MaxItems(_)
            | Limit::Unique
            | Limit::Tool(_) => None,
        });
        let lengths = self.limits.iter().filter_map(|limit| {
            let Limit::MinLength(least) = limit else { return None };
            usize::try_from(*least).ok().filter(|least| *least <= MAX_SAMPLE)
        });
        let mut candidates: Vec<Value> = match &self.kind {
            Kind::Text => {
                let formed = Format::ALL.iter().map(|format| Value::from(format.example()));
                let long = lengths.map(|least| Value::from("…".repeat(least)));
                std::iter::once(Value::from("…")).chain(formed).chain(long).collect()
            }
            Kind::Whole | Kind::Number => bounds.chain([Value::from(0), Value::from(1)]).collect(),
            Kind::Flag => vec![Value::from(false)],
            Kind::OneOf(values) => values.iter().map(|listed| listed.value.clone()).collect(),
            Kind::SomeOf(values) => {
                let all: Vec<Value> = values.iter().map(|listed| listed.value.clone()).collect();
                (1..=all.len()).map(|count| Value::from(all[..count].to_vec())).collect()
            }
            Kind::List => vec![Value::Array(Vec::new())],
            Kind::Object => vec![Value::Object(serde_json::Map::new())],
            Kind::Any => vec![Value::Null],
        };
        // What only the tool checks may refuse any of them.
        let is_known = |limit: &Limit| !matches!(limit, Limit::Tool(_) | Limit::Pattern(_, None));
        candidates.retain(|value| self.limits.iter().all(is_known) && self.fits(value));
        candidates.into_iter().next()
    }
}

/// The longest text that is shown as a sample.
const MAX_SAMPLE: usize = 40;

/// The default of a field, if it is one that the field takes: a form may not ask for what it refuses. None that holds a secret: what is kept of it
/// is no value of the form's.
pub fn default_of(schema: &Value) -> Option<&Value> {
    schema.get("default").filter(|default| !holds_mark(default) && FieldKind::of(schema).fits(default))
}

/// Whether somewhere in a value, its names included, a secret was taken out: `[secret NAME]` stands there, which whoever wrote the value did not
/// write.
pub fn holds_mark(value: &Value) -> bool {
    let is_one = |text: &str| text.contains("[secret ");
    match value {
        Value::String(text) => is_one(text),
        Value::Array(items) => items.iter().any(holds_mark),
        Value::Object(fields) => fields.iter().any(|(name, field)| is_one(name) || holds_mark(field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The values that a schema lists, by whichever of its words.
fn listed(schema: &Value) -> Option<Vec<Listed>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        let titles = schema.get("enumNames").and_then(Value::as_array);
        let title = |at: usize| titles?.get(at)?.as_str().map(str::to_owned);
        let listed = values.iter().enumerate().map(|(at, value)| Listed { value: value.clone(), title: title(at) });
        return Some(listed.collect());
    }
    let one = |form: &Value| {
        let title = form.get("title").and_then(Value::as_str).map(str::to_owned);
        form.get("const").map(|value| Listed { value: value.clone(), title })
    };
    if let Some(only) = one(schema) {
        return Some(vec![Listed { title: None, ..only }]);
    }
    let forms = schema.get("oneOf").or_else(|| schema.get("anyOf"))?.as_array()?;
    forms.iter().map(one).collect()
}

/// The values in a sentence: they are those of whoever wrote the form.
fn shown(values: &[Listed]) -> String {
    values.iter().map(Listed::shown).collect::<Vec<_>>().join(", ")
}

/// The listed value that a word names, or its title: in whatever case, and by its beginning where only one begins so.
fn among(values: &[Listed], typed: &str) -> Result<Value, String> {
    let lower = typed.to_lowercase();
    if let Some(listed) = values.iter().find(|listed| listed.word() == typed) {
        return Ok(listed.value.clone());
    }
    let whole = values.iter().filter(|listed| listed.names().any(|name| name.to_lowercase() == lower));
    if let [only] = whole.collect::<Vec<_>>().as_slice() {
        return Ok(only.value.clone());
    }
    let begin = values.iter().filter(|listed| listed.names().any(|name| name.to_lowercase().starts_with(&lower)));
    match begin.collect::<Vec<_>>().as_slice() {
        [only] if !lower.is_empty() => Ok(only.value.clone()),
        _ => {
            let words: Vec<String> = values.iter().map(|listed| on_one_line(&listed.word())).collect();
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
            (titled.clone(), "l", Ok(json!("l"))),
            (titled.clone(), "large", Ok(json!("l"))),
            (titled, "x", Err("`x` is not one of s, l")),
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), "9", Ok(json!(9))),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 9}),
                "12",
                Err("`12` does not fit: it must be at most 9"),
            ),
            (
                json!({"type": "string", "format": "email"}),
                "nomail",
                Err("`nomail` does not fit: it must be a mail address"),
            ),
            (json!({"type": "object"}), "[]", Err("`[]` is not a JSON object")),
            (several.clone(), "a, c", Ok(json!(["a", "c"]))),
            (several, "a, x", Err("`x` is not one of a, b, c")),
        ] {
            let kind = FieldKind::of(&schema);
            assert_eq!(kind.read(typed), wanted.map_err(str::to_owned), "{schema}: {typed}");
            if let Ok(value) = kind.read(typed) {
                assert!(kind.fits(&value), "{schema}: {value}");
            }
        }
    }

    /// Every keyword that JSON Schema has for a value that a form may ask for: a field with it takes what keeps it, refuses what does not, and says
    /// so; what is not known here is said as it stands.
    #[test]
    fn no_limit_of_a_form_is_passed_over() {
        let cases = [
            (json!({"type": "integer", "minimum": 2}), json!(2), json!(1), "at least 2"),
            (json!({"type": "integer", "maximum": 2}), json!(2), json!(3), "at most 2"),
            (json!({"type": "number", "exclusiveMinimum": 2}), json!(2.5), json!(2), "more than 2"),
            (json!({"type": "number", "exclusiveMaximum": 2}), json!(1.5), json!(2), "less than 2"),
            (json!({"type": "number", "multipleOf": 0.1}), json!(0.3), json!(0.35), "a multiple of 0.1"),
            (json!({"type": "integer", "multipleOf": 5}), json!(10), json!(11), "a multiple of 5"),
            (json!({"type": "string", "minLength": 2}), json!("éé"), json!("é"), "at least 2 characters long"),
            (json!({"type": "string", "maxLength": 1}), json!("é"), json!("éé"), "at most 1 character long"),
            (json!({"type": "string", "pattern": "^[a-z]+$"}), json!("abc"), json!("a1"), "of the form `^[a-z]+$`"),
            (json!({"type": "string", "format": "email"}), json!("a@b.org"), json!("a"), "a mail address"),
            (
                json!({"type": "string", "format": "uri"}),
                json!("https://b.org/x"),
                json!("b.org"),
                "an address such as",
            ),
            (json!({"type": "string", "format": "date"}), json!("2026-02-28"), json!("2026-02-30"), "a day such as"),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("2026-02-28T10:00:00+02:00"),
                json!("2026-02-28"),
                "a day and a time",
            ),
            (
                json!({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}),
                json!(["a", "b"]),
                json!(["a"]),
                "at least 2 of them",
            ),
            (
                json!({"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 1}),
                json!(["a"]),
                json!(["a", "b"]),
                "at most 1 of them",
            ),
            (
                json!({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": true}),
                json!(["a"]),
                json!(["a", "a"]),
                "without repeats",
            ),
            (json!({"const": 3}), json!(3), json!(4), "one of 3"),
        ];
        for (schema, right, wrong, words) in cases {
            let kind = FieldKind::of(&schema);
            assert!(kind.fits(&right) && !kind.fits(&wrong), "{schema}");
            assert!(kind.takes().contains(words), "{schema}: {}", kind.takes());
            assert!(kind.sample().is_none_or(|sample| kind.fits(&sample)), "{schema}");
        }
        for keyword in
            ["not", "if", "allOf", "contains", "items", "propertyNames", "minProperties", "format", "anything"]
        {
            let kind = FieldKind::of(&json!({"type": "array", keyword: {"type": "string\nx"}}));
            assert!(kind.takes().contains(&format!("`{keyword}` ")), "{}", kind.takes());
            assert!(kind.takes().lines().count() == 1 && kind.sample().is_none(), "{keyword}");
        }
        assert_eq!(FieldKind::of(&json!({"type": "array"})).takes(), "a JSON list");
        let titled = json!({"oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "l"}]});
        assert_eq!(FieldKind::of(&titled).takes(), "one of s (Small), l");
        let named = json!({"enum": ["s", "l"], "enumNames": ["Small", "Large"]});
        assert_eq!(FieldKind::of(&named).takes(), "one of s (Small), l (Large)");
    }

    #[test]
    fn a_default_that_the_form_itself_refuses_is_none() {
        assert_eq!(default_of(&json!({"type": "integer", "default": 3, "maximum": 2})), None);
        assert_eq!(default_of(&json!({"type": "integer", "default": 2, "maximum": 2})), Some(&json!(2)));
        for default in [json!("[secret KEY]"), json!(["a [secret KEY]"]), json!({"[secret KEY]": 1})] {
            assert_eq!(default_of(&json!({ "default": default })), None, "a secret was taken out of it");
        }
    }
}
