//! Names of tools as models write them: what is wrong with one, and which tool was meant.
//!
//! Durability Architecture, guardrails (tool-name sanitization). A wrong name never runs anything: the model is told the right one,
//! and what of its call could be read. Seen in the field: `COMPOSIO_MULTI_EXECUTE_TOOLtools</arg_key><arg_value>[…]`,
//! `send_email({"to": …})`, a missing or invented `mcp__server__`, other letters' case, `-` for `_`.

use serde_json::{Map, Value};
use ua_core::parse_strict;

/// What no name of a tool holds.
const MARKS: [char; 12] = ['<', '>', '{', '}', '[', ']', '(', ')', '"', '\'', '=', '`'];
const MAX_SHOWN: usize = 80;
/// The longest call that is written out for the model.
const MAX_REPAIRED: usize = 2_000;

/// A name that is not one, taken apart.
#[derive(Debug, PartialEq)]
pub(crate) struct Malformed {
    /// What stands before the first mark.
    pub(crate) base: String,
    /// The argument that was written into the name, when it can be read.
    pub(crate) argument: Option<(String, Value)>,
    /// All arguments, when they stood behind the name as an object.
    pub(crate) arguments: Option<Map<String, Value>>,
}

/// Takes a name apart that holds what no name holds. `None` for one that is only unknown.
pub(crate) fn malformed(raw: &str) -> Option<Malformed> {
    let is_mark = |letter: char| MARKS.contains(&letter) || letter.is_whitespace() || letter.is_control();
    let text = raw.trim();
    let start = text.find(is_mark)?;
    let (base, rest) = text.split_at(start);
    let base = base.trim_end_matches(['-', ':', '_', '.']).to_owned();
    let between = |open: &str, close: &str| {
        let inside = rest.split_once(open)?.1;
        Some(inside.split_once(close).map_or(inside, |(inside, _)| inside).trim().to_owned())
    };
    let value = between("<arg_value>", "</arg_value>").map(|text| parse_strict(&text).unwrap_or(Value::String(text)));
    let key = between("<arg_key>", "</arg_key>").filter(|key| !key.is_empty());
    let arguments = rest.find('{').zip(rest.rfind('}')).filter(|_| value.is_none()).and_then(|(from, to)| {
        let parsed = parse_strict(rest.get(from..=to)?).ok()?;
        parsed.as_object().cloned()
    });
    Some(Malformed { base, argument: key.zip(value.clone()).or_else(|| Some((String::new(), value?))), arguments })
}

/// The letters and digits of a name, in lower case: what is left of it when spelling does not count.
pub(crate) fn plain(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}

/// What stands behind `tool` at the end of `written`, both without regard to spelling: the name of an argument that ran into the
/// name of the tool.
pub(crate) fn tail<'a>(written: &'a str, tool: &str) -> Option<&'a str> {
    let (mut at, mut wanted) = (0, tool.chars().filter(char::is_ascii_alphanumeric).peekable());
    for (index, letter) in written.char_indices() {
        if wanted.peek().is_none() {
            break;
        }
        at = index + letter.len_utf8();
        if letter.is_ascii_alphanumeric() && !wanted.next()?.eq_ignore_ascii_case(&letter) {
            return None;
        }
    }
    if wanted.peek().is_some() { None } else { written.get(at..).map(|rest| rest.trim_matches(['-', ':', '_', '.'])) }
}

/// A name as it may be shown.
pub(crate) fn shown(raw: &str) -> String {
    raw.chars().filter(|letter| !letter.is_control()).take(MAX_SHOWN).collect()
}

/// The sentence that repairs a malformed name. `meant` is the tool, when it is known, and what ran into its name.
pub(crate) fn repair(raw: &str, found: &Malformed, meant: Option<(&str, &str)>) -> String {
    let shown = shown(raw);
    let rule = "The name of a tool holds nothing but its name; arguments are a JSON object beside it.";
    let Some((name, ran_in)) = meant else {
        return format!(
            "Not run: `{shown}` is not the name of a tool. {rule} Use only the tools that are offered, by their exact names."
        );
    };
    let mut arguments = found.arguments.clone().unwrap_or_default();
    if let Some((key, value)) = &found.argument {
        let key = if key.is_empty() { ran_in } else { key };
        if !key.is_empty() {
            arguments.insert(key.to_owned(), value.clone());
        }
    }
    let call = if arguments.is_empty() { String::new() } else { Value::Object(arguments).to_string() };
    let with = match call.len() {
        0 => String::new(),
        1..=MAX_REPAIRED => format!(" with the arguments {call}"),
        _ => " with the same arguments as a JSON object".to_owned(),
    };
    format!("Not run: `{shown}` is not the name of a tool. {rule} Call `{name}`{with}.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_into_a_name_is_found() {
        let multi =
            "mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOLtools</arg_key><arg_value>[{\"tool_slug\": \"A\"}]</arg_value>";
        let found = malformed(multi).unwrap();
        assert_eq!(found.base, "mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOLtools");
        assert_eq!(found.argument, Some((String::new(), json!([{"tool_slug": "A"}]))));
        let said = repair(multi, &found, Some(("mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOL", "tools")));
        assert!(said.ends_with("Call `mcp__composio__COMPOSIO_MULTI_EXECUTE_TOOL` with the arguments {\"tools\":[{\"tool_slug\":\"A\"}]}."), "{said}");

        let keyed = malformed("read <arg_key>path</arg_key><arg_value>a.md</arg_value>").unwrap();
        assert_eq!((keyed.base.as_str(), keyed.argument), ("read", Some(("path".to_owned(), json!("a.md")))));
        let called = malformed("send_email({\"to\": [\"a\"]})").unwrap();
        assert_eq!((called.base.as_str(), called.arguments), ("send_email", json!({"to": ["a"]}).as_object().cloned()));
        assert_eq!(malformed("\"send_email\"").unwrap().base, "");
        assert_eq!(malformed("mcp__ua__send_email"), None);
        assert_eq!(malformed("send-email.v2"), None);
    }

    #[test]
    fn spelling_does_not_count_and_what_ran_in_does() {
        assert_eq!(plain("Send-Email.v2"), "sendemailv2");
        assert_eq!(tail("COMPOSIO_MULTI_EXECUTE_TOOLtools", "COMPOSIO_MULTI_EXECUTE_TOOL"), Some("tools"));
        assert_eq!(tail("send-Email", "send_email"), Some(""));
        assert_eq!(tail("send_mail", "send_email"), None);
        assert_eq!(tail("send", "send_email"), None);
    }
}
