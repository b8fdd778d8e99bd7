//! What a call did to whom, in a few words: for lists, in which a row is told from the next by it.

use serde_json::{Map, Value};
use ua_core::ScopeField;
use ua_store::CallRecord;

use crate::quote::brief;

/// So many arguments are named.
const NAMED: usize = 3;
/// The most characters of one that are shown.
const LONGEST: usize = 60;

/// The arguments by which the effect of a call is known (its recipient, its subject), or those that say the most where nothing declares them: foreign text
/// on one line, cleaned and cut.
pub fn call_in_short(call: &CallRecord) -> String {
    let Some(arguments) = call.arguments.as_object() else { return String::new() };
    let known_by = call.policy.scope.0.iter().map(ScopeField::argument);
    let known_by = in_words(arguments, known_by);
    if !known_by.is_empty() {
        return known_by;
    }
    let mut names: Vec<&str> = arguments.keys().map(String::as_str).collect();
    names.sort_by_key(|name| rank(name));
    in_words(arguments, names.into_iter())
}

/// Words in the name of an argument that says whom something goes to.
const WHOM: [&str; 26] = [
    "address",
    "addresses",
    "attendee",
    "attendees",
    "bcc",
    "cc",
    "channel",
    "channels",
    "chat",
    "destination",
    "email",
    "emails",
    "guests",
    "invitee",
    "invitees",
    "participants",
    "payee",
    "phone",
    "receiver",
    "receivers",
    "recipient",
    "recipients",
    "room",
    "to",
    "user",
    "users",
];
/// Those of one that says in short what it is about.
const ABOUT: [&str; 7] = ["amount", "name", "path", "subject", "summary", "title", "url"];
/// Those of one that holds the whole of it.
const WHOLE: [&str; 10] =
    ["attachments", "body", "content", "description", "html", "markdown", "message", "options", "signature", "text"];

/// Which arguments say the most where nothing declares it: whom it goes to, then what it is about; its whole text last.
fn rank(name: &str) -> u8 {
    let words = words_of(name);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    match () {
        () if has(&WHOM) => 0,
        () if has(&ABOUT) => 1,
        () if has(&WHOLE) => 3,
        () => 2,
    }
}

/// The words of a name, as `to_email` and `toRecipients` join them.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for letter in name.chars() {
        if letter.is_uppercase() || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| letter.is_alphanumeric()) {
            word.extend(letter.to_lowercase());
        }
    }
    words
}

fn in_words<'a>(arguments: &Map<String, Value>, names: impl Iterator<Item = &'a str>) -> String {
    let given = names.filter_map(|name| Some((name, value_in_words(arguments.get(name)?)?)));
    let said = given.take(NAMED).map(|(name, value)| format!("{}: {value}", brief(name, LONGEST)));
    said.collect::<Vec<_>>().join("; ")
}

/// An argument in words; `None` for one that is as good as missing.
fn value_in_words(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items = items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            items.collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    Some(brief(&text, LONGEST)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::ScopeRule;

    use super::*;
    use crate::testing::{Story, mail_policy};

    fn said(scope: &[ScopeField], arguments: &Value) -> String {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let mut policy = mail_policy();
        policy.scope = ScopeRule(scope.to_vec());
        let id = story.asks("", &[("send_email", arguments.clone(), policy)]).remove(0);
        call_in_short(story.call(&id))
    }

    #[test]
    fn a_mail_is_told_by_its_recipients_and_its_subject() {
        let scope = [ScopeField::Addresses("to".to_owned()), ScopeField::Value("subject".to_owned())];
        let mail =
            json!({"body": "Dear Ada, …", "subject": "Invoice 12", "to": ["ada@example.org", "bob@example.org"]});
        assert_eq!(said(&scope, &mail), "to: ada@example.org, bob@example.org; subject: Invoice 12");
    }

    #[test]
    fn of_a_tool_that_nobody_declared_it_is_told_first_whom_it_reaches() {
        let mail = json!({"body": "Dear Dora, …", "priority": 1, "subject": "Numbers", "to": "dora@example.org"});
        assert_eq!(said(&[], &mail), "to: dora@example.org; subject: Numbers; priority: 1");
        let post = json!({"blocks": [], "channelId": "C1", "text": "Done.", "thread": "9"});
        assert_eq!(said(&[], &post), "channelId: C1; thread: 9; text: Done.");
    }

    #[test]
    fn of_what_nothing_says_the_first_arguments_are_shown() {
        let long = "x".repeat(100);
        let shown = said(&[], &json!({"a": long, "b": null, "c": {"d": 1}, "e": "two\nlines", "f": "not shown"}));
        assert_eq!(shown, format!("a: {}…; c: {{\"d\":1}}; e: two\\nlines", "x".repeat(59)));
        // A rule whose arguments are not there says no more than none.
        assert_eq!(said(&[ScopeField::Value("to".to_owned())], &json!({"text": "hello"})), "text: hello");
        assert_eq!(said(&[], &json!({})), "");
    }
}
