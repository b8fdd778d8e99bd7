//! What a form says about a field beside its type: bounds, lengths, patterns and formats, each with its words and its check.
//!
//! Invariant: every keyword of a field's schema is checked, or said to whoever fills the form in, or is known to bound nothing. None is passed
//! over, since a tool that gets what its form excludes does what nobody meant.

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::asked::on_one_line;
use crate::mail::MailAddress;
use crate::words::counted;

/// Keywords that bound nothing, or that make up the field's kind.
const NO_LIMIT: [&str; 16] = [
    "$comment",
    "$id",
    "$schema",
    "anyOf",
    "const",
    "default",
    "deprecated",
    "description",
    "enum",
    "enumNames",
    "examples",
    "oneOf",
    "readOnly",
    "title",
    "type",
    "writeOnly",
];

/// A form of text that can be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

impl Format {
    pub(super) const ALL: [Self; 4] = [Self::Email, Self::Uri, Self::Date, Self::DateTime];

    fn of(name: &str) -> Option<Self> {
        match name {
            "email" => Some(Self::Email),
            "uri" => Some(Self::Uri),
            "date" => Some(Self::Date),
            "date-time" => Some(Self::DateTime),
            _ => None,
        }
    }

    /// A text of this form.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Email => "ada@example.org",
            Self::Uri => "https://example.org",
            Self::Date => "2026-01-31",
            Self::DateTime => "2026-01-31T12:00:00Z",
        }
    }

    fn words(self) -> String {
        let what = match self {
            Self::Email => return "a mail address".to_owned(),
            Self::Uri => "an address",
            Self::Date => "a day",
            Self::DateTime => "a day and a time with its zone",
        };
        format!("{what} such as {}", self.example())
    }

    fn holds(self, text: &str) -> bool {
        match self {
            // `Name <address>` is a recipient, and no address.
            Self::Email => !text.contains(['<', '>', ' ']) && MailAddress::parse(text).is_ok(),
            Self::Uri => text.split_once(':').is_some_and(|(scheme, rest)| {
                let mut letters = scheme.chars();
                letters.next().is_some_and(|c| c.is_ascii_alphabetic())
                    && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                    && !rest.is_empty()
                    && !rest.contains(char::is_whitespace)
            }),
            Self::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Self::DateTime => text.contains(['T', 't']) && text.parse::<jiff::Timestamp>().is_ok(),
        }
    }
}

/// One limit.
#[derive(Debug, Clone)]
pub(super) enum Limit {
    AtLeast(Value),
    AtMost(Value),
    Above(Value),
    Below(Value),
    MultipleOf(Value),
    MinLength(u64),
    MaxLength(u64),
    /// A regular expression; `None` where it is written in a way that is not known here, and the tool alone checks it.
    Pattern(String, Option<Regex>),
    Format(Format),
    MinItems(u64),
    MaxItems(u64),
    Unique,
    /// One that only the tool checks, in words.
    Tool(String),
}

impl Limit {
    /// The limits of a field, the lower before the upper ones. `is_listed` says that the values of an array are listed, so that `items` is known.
    pub(super) fn all(schema: &Value, is_listed: bool) -> Vec<Self> {
        let keywords = schema.as_object().into_iter().flatten();
        let is_known = |keyword: &str| NO_LIMIT.contains(&keyword) || (is_listed && keyword == "items");
        let mut bounds: Vec<(&String, &Value)> = keywords.filter(|(keyword, _)| !is_known(keyword)).collect();
        bounds.sort_by_key(|(keyword, _)| keyword.to_lowercase().contains("max"));
        bounds.into_iter().filter_map(|(keyword, value)| Self::of(keyword, value)).collect()
    }

    fn of(keyword: &str, value: &Value) -> Option<Self> {
        let number = || value.is_number().then(|| value.clone());
        let known = match keyword {
            "minimum" => number().map(Self::AtLeast),
            "maximum" => number().map(Self::AtMost),
            "exclusiveMinimum" => number().map(Self::Above),
            "exclusiveMaximum" => number().map(Self::Below),
            "multipleOf" => number().filter(|by| by.as_f64() > Some(0.0)).map(Self::MultipleOf),
            "minLength" => whole(value).map(Self::MinLength),
            "maxLength" => whole(value).map(Self::MaxLength),
            "pattern" => value.as_str().map(|pattern| Self::Pattern(pattern.to_owned(), compiled(pattern))),
            "format" => value.as_str().and_then(Format::of).map(Self::Format),
            "minItems" => whole(value).map(Self::MinItems),
            "maxItems" => whole(value).map(Self::MaxItems),
            "uniqueItems" => match value.as_bool() {
                Some(true) => Some(Self::Unique),
                // It bounds nothing.
                Some(false) => return None,
                None => None,
            },
            _ => None,
        };
        Some(known.unwrap_or_else(|| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Self::Tool(on_one_line(&format!("`{keyword}` {value} (checked by the tool)")))
        }))
    }

    /// What it asks for, as it follows "must be".
    pub(super) fn words(&self) -> String {
        let characters = |count: &u64| counted(count, "character");
        match self {
            Self::AtLeast(bound) => format!("at least {bound}"),
            Self::AtMost(bound) => format!("at most {bound}"),
            Self::Above(bound) => format!("more than {bound}"),
            Self::Below(bound) => format!("less than {bound}"),
            Self::MultipleOf(by) => format!("a multiple of {by}"),
            Self::MinLength(least) => format!("at least {} long", characters(least)),
            Self::MaxLength(most) => format!("at most {} long", characters(most)),
            Self::Pattern(pattern, Some(_)) => format!("of the form `{}`", on_one_line(pattern)),
            Self::Pattern(pattern, None) => format!("of the form `{}` (checked by the tool)", on_one_line(pattern)),
            Self::Format(format) => format.words(),
            Self::MinItems(least) => format!("at least {least} of them"),
            Self::MaxItems(most) => format!("at most {most} of them"),
            Self::Unique => "without repeats".to_owned(),
            Self::Tool(words) => words.clone(),
        }
    }

    /// Whether a value keeps it; one of another type does, as JSON Schema has it.
    pub(super) fn holds(&self, value: &Value) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};

        let against = |bound: &Value| compared(value, bound);
        let is_within = |order: Option<std::cmp::Ordering>, fits: &[std::cmp::Ordering]| {
            order.is_none_or(|order| fits.contains(&order))
        };
        let length = |fits: &dyn Fn(u64) -> bool| {
            value.as_str().is_none_or(|text| fits(u64::try_from(text.chars().count()).unwrap_or(u64::MAX)))
        };
        let items = |fits: &dyn Fn(u64) -> bool| {
            value.as_array().is_none_or(|all| fits(u64::try_from(all.len()).unwrap_or(u64::MAX)))
        };
        match self {
            Self::AtLeast(bound) => is_within(against(bound), &[Equal, Greater]),
            Self::AtMost(bound) => is_within(against(bound), &[Equal, Less]),
            Self::Above(bound) => is_within(against(bound), &[Greater]),
            Self::Below(bound) => is_within(against(bound), &[Less]),
            Self::MultipleOf(by) => is_multiple(value, by),
            Self::MinLength(least) => length(&|count| count >= *least),
            Self::MaxLength(most) => length(&|count| count <= *most),
            Self::Pattern(_, pattern) => match (value.as_str(), pattern) {
                (Some(text), Some(pattern)) => pattern.is_match(text),
                (None, _) | (_, None) => true,
            },
            Self::Format(format) => value.as_str().is_none_or(|text| format.holds(text)),
            Self::MinItems(least) => items(&|count| count >= *least),
            Self::MaxItems(most) => items(&|count| count <= *most),
            Self::Unique => {
                value.as_array().is_none_or(|all| all.iter().enumerate().all(|(at, one)| !all[..at].contains(one)))
            }
            Self::Tool(_) => true,
        }
    }
}

/// A length or a count: a whole number, also one that is written as `3.0`.
fn whole(value: &Value) -> Option<u64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole and not negative, and as a bound it may saturate"
    )]
    let of = |number: f64| (number >= 0.0 && number.fract() == 0.0).then_some(number as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(of))
}

fn compared(value: &Value, bound: &Value) -> Option<std::cmp::Ordering> {
    let wide = |number: &Value| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match (wide(value), wide(bound)) {
        (Some(value), Some(bound)) => Some(value.cmp(&bound)),
        (None, _) | (_, None) => value.as_f64()?.partial_cmp(&bound.as_f64()?),
    }
}

fn is_multiple(value: &Value, by: &Value) -> bool {
    if let (Some(value), Some(by)) = (value.as_i64(), by.as_i64()) {
        return value.checked_rem(by).is_none_or(|rest| rest == 0);
    }
    let (Some(value), Some(by)) = (value.as_f64(), by.as_f64()) else { return true };
    // `0.3` is a multiple of `0.1`, though not to the last bit.
    let times = value / by;
    (times - times.round()).abs() < 1e-9 * times.abs().max(1.0)
}

/// The pattern of a form, which is one of JavaScript: `\d` and `\w` are of ASCII there, and a `[` or `&&` in brackets means itself. `None` for one
/// that has what is not known here, such as a look ahead.
fn compiled(pattern: &str) -> Option<Regex> {
    let mut written = String::with_capacity(pattern.len());
    let mut is_in_brackets = false;
    let mut letters = pattern.chars().peekable();
    while let Some(c) = letters.next() {
        match c {
            '\\' => match letters.next() {
                Some('d') => written.push_str("[0-9]"),
                Some('D') => written.push_str("[^0-9]"),
                Some('w') => written.push_str("[0-9A-Za-z_]"),
                Some('W') => written.push_str("[^0-9A-Za-z_]"),
                Some(escaped) => written.extend(['\\', escaped]),
                None => written.push('\\'),
            },
            '[' if is_in_brackets => written.push_str("\\["),
            '[' => {
                is_in_brackets = true;
                written.push('[');
                // `[]` and `[^]` are whole in JavaScript; here they would go on.
                if letters.peek() == Some(&']') {
                    return None;
                }
            }
            ']' => {
                is_in_brackets = false;
                written.push(']');
            }
            '&' | '~' if is_in_brackets => written.extend(['\\', c]),
            '-' if is_in_brackets && letters.peek() == Some(&'-') => return None,
            other => written.push(other),
        }
    }
    RegexBuilder::new(&written).size_limit(1 << 20).build().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pattern_of_a_form_means_what_javascript_means_by_it() {
        for (pattern, text, wanted) in [
            (r"^\d{3}$", "123", true),
            (r"^\d{3}$", "12३", false),
            (r"^[\w.-]+@x$", "a.b-c@x", true),
            (r"^\W$", "é", true),
            (r"b", "abc", true),
            (r"^[a[]$", "[", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^\/$", "/", true),
        ] {
            let limit = Limit::of("pattern", &json!(pattern)).unwrap();
            assert!(matches!(limit, Limit::Pattern(_, Some(_))), "{pattern}");
            assert_eq!(limit.holds(&json!(text)), wanted, "{pattern}: {text}");
        }
        // What is not known here is said, and left to the tool.
        for pattern in ["^(?!a)", "(", "[^]", "[]", "(a)\\1"] {
            let limit = Limit::of("pattern", &json!(pattern)).unwrap();
            assert!(
                limit.holds(&json!("x")) && limit.words().ends_with("(checked by the tool)"),
                "{pattern}: {limit:?}"
            );
        }
    }

    #[test]
    fn every_form_of_text_takes_its_example_and_refuses_other_ones() {
        for format in Format::ALL {
            assert!(format.holds(format.example()), "{format:?}");
            for wrong in
                ["", "nomail", "Ada <ada@example.org>", "2026-02-30", "2026-1-1", "12:00", "2026-01-31T12:00:00", "a b"]
            {
                assert!(!format.holds(wrong), "{format:?}: {wrong}");
            }
        }
    }
}
