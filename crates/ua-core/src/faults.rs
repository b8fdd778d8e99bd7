//! What is wrong with a text that somebody wrote for a program to read, in words for the one who wrote it.
//!
//! Parsers speak of values, keys and variants that they expected. Whoever reads a file that a person wrote turns a parser's error into a
//! sentence here and nowhere else, so that the same mistake reads the same in every file.

use crate::unseen::in_a_sentence;
use crate::words::not_one_of;

/// A text of so many bytes is seen at once.
const SHORT: usize = 12;

/// What is wrong with `text`, which is no JSON, or JSON of another shape: the place, and what stands there or is missing.
///
/// ```
/// let text = "{\n  // mine\n}";
/// let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
/// assert_eq!(ua_core::json_fault(text, &error), "line 2: a comment, which JSON does not have");
/// ```
pub fn json_fault(text: &str, error: &serde_json::Error) -> String {
    json_fault_showing(Shown::All, text, error)
}

/// The same of a text in which values may be secrets: what stands there is told by its kind alone, and no word of the text is repeated.
///
/// ```
/// let text = "{\"env\": hunter2hunter2}";
/// let error = serde_json::from_str::<serde_json::Value>(text).unwrap_err();
/// assert!(!ua_core::json_fault_without_values(text, &error).contains("hunter2"));
/// ```
pub fn json_fault_without_values(text: &str, error: &serde_json::Error) -> String {
    json_fault_showing(Shown::Kinds, text, error)
}

/// What of a text is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// Whatever helps to find it.
    All,
    /// Nothing: it may hold secrets.
    Kinds,
}

fn json_fault_showing(shown: Shown, text: &str, error: &serde_json::Error) -> String {
    let whole = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = whole.strip_suffix(&place).unwrap_or(&whole);
    if error.line() == 0 {
        return value_fault_showing(shown, message);
    }
    let why = match error.classify() {
        serde_json::error::Category::Eof if text.trim().is_empty() => return "it is empty".to_owned(),
        serde_json::error::Category::Eof => {
            return format!("it ends in line {} before it is complete: {}", error.line(), unclosed(message));
        }
        serde_json::error::Category::Syntax => syntax(shown, message, rest_at(text, error.line(), error.column())),
        serde_json::error::Category::Data => value_fault_showing(shown, message),
        serde_json::error::Category::Io => message.to_owned(),
    };
    if text.trim_end().contains('\n') {
        return format!("line {}: {why}", error.line());
    }
    // Of one line it is said where in it; a short one shows it.
    let line = text.split('\n').next().unwrap_or_default();
    let before = line.len() - rest_at(text, 1, error.column()).len();
    if error.is_syntax() && line.len() > SHORT && before > 0 {
        return format!("character {}: {why}", line[..before].chars().count() + 1);
    }
    why
}

/// The same of TOML.
pub fn toml_fault(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
    let message = error.message().trim().replace('\n', ", ");
    format!("line {}: {}", before.matches('\n').count() + 1, value_fault(&message))
}

/// The same of TOML in which values may be secrets, as [`json_fault_without_values`] of JSON.
pub fn toml_fault_without_values(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or_default());
    let message = error.message().trim().replace('\n', ", ");
    format!("line {}: {}", before.matches('\n').count() + 1, value_fault_showing(Shown::Kinds, &message))
}

/// What a parser says of a value of another shape, as a clause.
pub fn value_fault(message: &str) -> String {
    value_fault_showing(Shown::All, message)
}

fn value_fault_showing(shown: Shown, message: &str) -> String {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    let listed = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    if let Some(field) = message.strip_prefix("missing field ").and_then(quoted) {
        return format!("the field `{field}` is missing");
    }
    if let Some(field) = message.strip_prefix("duplicate field ").and_then(quoted) {
        return format!("the field `{}` is given twice", in_a_sentence(&field));
    }
    if let Some((field, known)) = message.strip_prefix("unknown field ").and_then(|rest| rest.split_once(", ")) {
        let field = in_a_sentence(&quoted(field).unwrap_or_default());
        let known = listed(known);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let more = match (crate::words::nearest(&field, known.iter().copied()), known.as_slice()) {
            (Some(meant), _) => format!("; did you mean `{meant}`?"),
            (None, []) => String::new(),
            (None, known) => format!("; known fields are {}", known.join(", ")),
        };
        return match shown {
            Shown::All => format!("there is no field `{field}`{more}"),
            Shown::Kinds => format!("there is a field with an unknown name{more}"),
        };
    }
    if let Some((word, known)) = message.strip_prefix("unknown variant ").and_then(|rest| rest.split_once(", ")) {
        let known = listed(known);
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return match shown {
            Shown::All => not_one_of(&quoted(word).unwrap_or_default(), &known),
            Shown::Kinds => format!("it must be one of {}", known.join(", ")),
        };
    }
    if message.starts_with("data did not match any variant") {
        return "it has none of the forms that are allowed here".to_owned();
    }
    if let Some((length, wanted)) =
        message.strip_prefix("invalid length ").and_then(|rest| rest.split_once(", expected "))
    {
        // A list in the place of an object is read as one without names.
        return match wanted.strip_prefix("struct ") {
            Some(_) => "it is a list, but must be an object".to_owned(),
            None => format!("it has {}, but must have {wanted}", crate::words::counted(length, "value")),
        };
    }
    let told = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    match told.and_then(|told| told.split_once(", expected ")) {
        Some((found, wanted)) => {
            let found_there = if shown == Shown::All { given(found) } else { kind_of(found).to_owned() };
            format!("it is {found_there}, but must be {}", in_place_of(found, wanted))
        }
        // Whatever a parser quotes may be a value.
        None if shown == Shown::Kinds && message.contains(['`', '"', '\'']) && !KNOWN_QUOTES.contains(&message) => {
            "it cannot be used".to_owned()
        }
        None => toml_syntax(message),
    }
}

/// The largest number of a type of numbers.
fn most_of(wanted: &str) -> Option<u64> {
    match wanted {
        "u8" => Some(u8::MAX.into()),
        "u16" => Some(u16::MAX.into()),
        "u32" => Some(u32::MAX.into()),
        "u64" | "usize" => Some(u64::MAX),
        _ => None,
    }
}

/// What a field takes in the place of what was found there: of a number that is too large only the size is wrong.
pub(crate) fn in_place_of(found: &str, wanted: &str) -> String {
    let number = found.strip_prefix("integer ").unwrap_or(found).trim_matches('`');
    match most_of(wanted) {
        Some(most) if number.parse::<u128>().is_ok_and(|number| number > most.into()) => format!("{most} or less"),
        Some(_) | None => taken(wanted),
    }
}

/// What a parser of TOML says of a text that is none: what is wrong, then what it expected.
fn toml_syntax(message: &str) -> String {
    let (what, expected) = message.split_once(", expected ").unwrap_or((message, ""));
    let said = match what {
        "string values must be quoted" => "the value is missing, or it is a string without quotes",
        "invalid basic string" | "invalid literal string" if expected.contains('"') => "a closing \" is missing",
        "invalid basic string" | "invalid literal string" if expected.contains('\'') => "a closing ' is missing",
        "unclosed table" | "unclosed array" => "a closing ] is missing",
        "unclosed array of tables" => "a closing ]] is missing",
        "unclosed inline table" => "a closing } is missing",
        "key with no value" => "after the name, `=` and a value are missing",
        "duplicate key" => "the name is given twice",
        "`_` may only go between digits" => "an underscore in a number must be between digits",
        "unexpected leading zero" => "a number must not begin with 0",
        "unexpected key or value" => "there is something after the end of the value",
        "invalid boolean" => "it must be true or false, in lower case",
        "unquoted keys cannot be empty" => "the name before `=` is missing",
        "invalid key-value pair" => "it must be `name = value`",
        _ if expected.is_empty() || expected == "nothing" => what,
        _ => return format!("{what}: it must be {expected}"),
    };
    said.to_owned()
}

/// What was found, as it stands in the file.
pub(crate) fn given(found: &str) -> String {
    let kinds = ["integer ", "floating point ", "string ", "boolean "];
    let bare = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(match found {
        "map" => "an object",
        "sequence" => "a list",
        "unit value" => "null",
        other => other,
    });
    bare.replace('`', "")
}

/// What of a parser's words stands in quotes and in no text.
const KNOWN_QUOTES: [&str; 4] = [
    "`_` may only go between digits",
    "invalid basic string, expected `\"`",
    "invalid literal string, expected `'`",
    "invalid key-value pair, expected `=`",
];

/// The kind of what was found.
fn kind_of(found: &str) -> &'static str {
    match found.split([' ', '`']).next().unwrap_or_default() {
        "integer" | "floating" => "a number",
        "boolean" => "true or false",
        "string" | "character" | "str" => "a string",
        "map" => "an object",
        "sequence" => "a list",
        "unit" | "null" => "null",
        _ => "a value of another kind",
    }
}

/// What a field takes.
fn taken(wanted: &str) -> String {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
    .to_owned()
}

/// What is missing at the end of a text.
fn unclosed(message: &str) -> &'static str {
    match message {
        "EOF while parsing a string" => "a closing \" is missing",
        "EOF while parsing a list" => "a closing ] is missing",
        "EOF while parsing an object" => "a closing } is missing",
        _ => "a value is missing",
    }
}

/// What stands at a place where a parser of JSON gave up; its column is the last character that it took, which may be the one before, and within
/// a word that began like `null` or `true`.
fn rest_at(text: &str, line: usize, column: usize) -> &str {
    let line = text.split('\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let at = column.saturating_sub(1).min(line.len());
    let begun = line.as_bytes()[..at].iter().rev().take_while(|byte| byte.is_ascii_lowercase()).count();
    let begun = line.get(at - begun..at).unwrap_or_default();
    let is_of_a_word = !begun.is_empty() && ["null", "true", "false"].iter().any(|word| word.starts_with(begun));
    let at = if is_of_a_word { at - begun.len() } else { at };
    line.get(at..).unwrap_or_default().trim_start()
}

fn syntax(shown: Shown, message: &str, rest: &str) -> String {
    let first = rest.chars().next();
    if matches!(first, Some('/' | '#')) {
        return "a comment, which JSON does not have".to_owned();
    }
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '+')).collect();
    match message {
        "key must be a string" | "expected value" | "expected ident" if first == Some('\'') => {
            "single quotes; JSON takes double quotes".to_owned()
        }
        "key must be a string" if word.is_empty() => "a name in double quotes is missing".to_owned(),
        "key must be a string" if shown == Shown::Kinds => "the name must be in double quotes".to_owned(),
        "key must be a string" => format!("the name {word} must be in double quotes"),
        "trailing comma" => "a trailing comma, which JSON does not allow".to_owned(),
        "expected value" | "expected ident" if !word.is_empty() => {
            let word = if shown == Shown::All { word.as_str() } else { "what stands there" };
            format!("{word} is not a value; strings need double quotes, and true, false and null are lower case")
        }
        "expected value" | "expected ident" => "a value is missing".to_owned(),
        "expected `,` or `}`" => "a comma between two fields is missing, or the closing }".to_owned(),
        "expected `,` or `]`" => "a comma between two values is missing, or the closing ]".to_owned(),
        "expected `:`" => "a colon between the name and its value is missing".to_owned(),
        "trailing characters" => "there is something after the end of the value".to_owned(),
        "invalid escape" => "an unknown escape; a backslash itself is written \\\\".to_owned(),
        "invalid number" => "an invalid number".to_owned(),
        "number out of range" => "a number that is too large".to_owned(),
        "recursion limit exceeded" => "it is nested too deeply".to_owned(),
        other if other.starts_with("control character") => {
            "a line break or tab within text; write \\n or \\t".to_owned()
        }
        other => value_fault_showing(shown, other),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_mistake_in_json_is_said_in_the_words_of_the_one_who_wrote_it() {
        for (text, wanted) in [
            ("", "it is empty"),
            ("no", "no is not a value; strings need double quotes, and true, false and null are lower case"),
            ("[1, trust]", "trust is not a value; strings need double quotes, and true, false and null are lower case"),
            ("hello", "hello is not a value; strings need double quotes, and true, false and null are lower case"),
            (
                "{\"a\": True}",
                "True is not a value; strings need double quotes, and true, false and null are lower case",
            ),
            ("{'a': 1}", "single quotes; JSON takes double quotes"),
            ("{a: 1}", "the name a must be in double quotes"),
            ("{\n// c\n\"a\": 1}", "line 2: a comment, which JSON does not have"),
            ("{\n\"a\": 1, # c\n}", "line 2: a comment, which JSON does not have"),
            ("{\n\"a\": 1,\n}", "line 3: a trailing comma, which JSON does not allow"),
            ("[1,]", "a trailing comma, which JSON does not allow"),
            ("{\"objective\":\"x\",}\n", "character 18: a trailing comma, which JSON does not allow"),
            (
                "{\"objective\": \"é\" \"b\": 1}",
                "character 19: a comma between two fields is missing, or the closing }",
            ),
            (
                "objective: \"Do it.\"",
                "objective is not a value; strings need double quotes, and true, false and null are lower case",
            ),
            ("{\n\"a\": 1\n\"b\": 2}", "line 3: a comma between two fields is missing, or the closing }"),
            ("[1 2]", "a comma between two values is missing, or the closing ]"),
            ("{\"a\" 1}", "a colon between the name and its value is missing"),
            ("{\"a\": 1", "it ends in line 1 before it is complete: a closing } is missing"),
            ("{\"a\": \"b", "it ends in line 1 before it is complete: a closing \" is missing"),
            ("{\"a\": 1} x", "there is something after the end of the value"),
            ("{\"a\": \"\\d\"}", "an unknown escape; a backslash itself is written \\\\"),
            ("{\"a\": \"x\ny\"}", "line 2: a line break or tab within text; write \\n or \\t"),
            ("{\"a\": 01}", "an invalid number"),
        ] {
            let error = serde_json::from_str::<Value>(text).unwrap_err();
            assert_eq!(json_fault(text, &error), wanted, "{text}: {error}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its errors are looked at")]
    struct Shape {
        count: u32,
        #[serde(default)]
        way: Option<Way>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Way {
        Ask,
        Skip,
    }

    /// Whatever a text with secrets lacks: no word of it is in what is said.
    #[test]
    fn nothing_of_a_text_with_secrets_is_repeated() {
        const SECRET: &str = "Zq7Canary88xKpW2mQ";
        for json in [
            "{\"count\": \"S\"}",
            "{\"count\": S}",
            "{S: 1}",
            "{\"S\": 1}",
            "{\"count\": 1, \"way\": \"S\"}",
            "\"S\"",
            "S",
            "[\"S\"]",
            "{\"count\": 'S'}",
            "{\"count\": \"S",
            "{\"count\": 1 S}",
            "{\"count\": \"S\\d\"}",
            "{\"count\" S}",
            "{\"count\": [\"S\"]}",
        ] {
            let text = json.replace('S', SECRET);
            let error = serde_json::from_str::<Shape>(&text).unwrap_err();
            let said = json_fault_without_values(&text, &error);
            assert!(!said.contains("Zq7") && !said.contains("expected"), "{text}: {said}");
        }
        for toml in [
            "count = \"S\"",
            "count = S",
            "S = 1",
            "count = 1\nway = \"S\"",
            "[count]\nS = 1",
            "count = \"S",
            "count 'S'",
            "S",
            "[S",
            "count = [\"S\"]",
            "count = 1 \"S\"",
            "count = {S = 1}",
            "count = \"\\S\"",
            "[[S]]\n",
            "\"S\" = 1\n\"S\" = 2",
        ] {
            let text = toml.replace('S', SECRET);
            let error = toml::from_str::<Shape>(&text).unwrap_err();
            let said = toml_fault_without_values(&text, &error);
            assert!(!said.contains("Zq7"), "{text}: {said}");
        }
        let said = |text: &str| toml_fault_without_values(text, &toml::from_str::<Shape>(text).unwrap_err());
        assert_eq!(
            said("\n\ncount = \"x\""),
            "line 3: it is a string, but must be a whole number that is not negative"
        );
        assert_eq!(said("cuont = 1"), "line 1: there is a field with an unknown name; did you mean `count`?");
        assert_eq!(said("count = 1\nway = \"skipp\""), "line 2: it must be one of ask, skip");
        assert_eq!(said("count = \"x"), "line 1: a closing \" is missing");
    }

    #[test]
    fn a_value_of_another_shape_is_said_without_the_words_of_a_parser() {
        for (text, wanted) in [
            ("{}", "the field `count` is missing"),
            ("{\"cuont\": 1}", "there is no field `cuont`; did you mean `count`?"),
            ("{\"zzz\": 1}", "there is no field `zzz`; known fields are count, way"),
            ("{\"z\\nz\": 1}", "there is no field `z\\nz`; known fields are count, way"),
            ("{\"count\": -1}", "it is -1, but must be a whole number that is not negative"),
            ("{\"count\": 99999999999}", "it is 99999999999, but must be 4294967295 or less"),
            ("{\"count\": \"x\"}", "it is \"x\", but must be a whole number that is not negative"),
            ("{\"count\": 1, \"count\": 1}", "the field `count` is given twice"),
            ("{\"count\": 1, \"way\": \"skipp\"}", "`skipp` is not one of ask, skip; did you mean `skip`?"),
            ("[]", "it is a list, but must be an object"),
        ] {
            let error = serde_json::from_str::<Shape>(text).unwrap_err();
            let said = json_fault(text, &error);
            assert_eq!(said, wanted, "{text}");
            assert!(!said.contains("expected") && !said.contains("variant") && !said.contains("column"), "{said}");
        }
        for (text, wanted) in [
            ("count = x", "line 1: the value is missing, or it is a string without quotes"),
            ("\ncount = \"x", "line 2: a closing \" is missing"),
            ("count = 'x", "line 1: a closing ' is missing"),
            ("[count", "line 1: a closing ] is missing"),
            ("count = [1, 2", "line 1: a closing ] is missing"),
            ("count = {a = 1", "line 1: a closing } is missing"),
            ("count 1", "line 1: after the name, `=` and a value are missing"),
            ("count = 1\ncount = 2", "line 2: the name is given twice"),
            ("count = 01", "line 1: a number must not begin with 0"),
            ("count = 1_", "line 1: an underscore in a number must be between digits"),
            ("way = \"ask\" \"x\"", "line 1: there is something after the end of the value"),
            ("way = True", "line 1: it must be true or false, in lower case"),
            ("= 1", "line 1: the name before `=` is missing"),
            ("{\"count\": 1}", "line 1: it must be `name = value`"),
        ] {
            let error = toml::from_str::<Shape>(text).unwrap_err();
            assert_eq!(toml_fault(text, &error), wanted, "{text}: {error}");
        }
        let text = "count = 1\nway = \"sip\"";
        let error = toml::from_str::<Shape>(text).unwrap_err();
        assert_eq!(toml_fault(text, &error), "line 2: `sip` is not one of ask, skip; did you mean `skip`?");
    }
}
