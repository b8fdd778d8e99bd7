//! Scope: the effect of a call whatever its wording and its route.
//!
//! Durable Jobs v1 spec §8.2 (`side_effect_scope`): an e-mail is its recipients, its subject and the contents of its
//! attachments; an upload is a content and a destination. Invariants: order, letter case, display names, To versus Cc
//! and the names of the arguments that hold addresses or files do not count, nor does the dress of words for people
//! (`wording.rs`); two tools with the same effect kind and
//! value arguments share their scopes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use ua_core::{ArgsHash, CallPolicy, CanonicalJson, Scope, ScopeField, ScopeRule, Sha256, as_seen, sha256};

use crate::wording::{fold, is_wording};

/// A value whose canonical text is longer than this many bytes enters as its digest, so that scopes stay readable.
const LONGEST_VALUE: usize = 256;

/// Names the effect of a call: `effect` (an effect kind, or a tool's name when none is declared) and the arguments that
/// `rule` projects, as canonical JSON.
///
/// `digest_of` digests the content of a file, by what the arguments call it. A file it cannot digest enters by its path, so that the rest
/// of the scope still counts. Arguments that are missing, `null` or empty are all the same. `None` when nothing of
/// what the rule names is there: such a call shares its scope with no other.
pub fn project_scope(
    rule: &ScopeRule,
    effect: &str,
    arguments: &Value,
    digest_of: &dyn Fn(&str) -> Option<Sha256>,
) -> Option<Scope> {
    let mut addresses = BTreeSet::new();
    let mut files = Vec::new();
    let mut values = BTreeMap::new();
    for field in &rule.0 {
        let Some(argument) = arguments.get(field.argument()).filter(|argument| !is_empty(argument)) else {
            continue;
        };
        match field {
            ScopeField::Addresses(_) => addresses.extend(items(argument).iter().flat_map(addresses_in)),
            ScopeField::Files(_) => name_files(argument, digest_of, &mut files),
            ScopeField::Value(name) => {
                let folded =
                    argument.as_str().map(|text| if is_wording(effect, name) { fold(text) } else { as_seen(text) });
                // Nothing but spaces and the like is as good as missing.
                if folded.as_ref().is_none_or(|words| !words.is_empty()) {
                    let folded = folded.map(Value::String);
                    values.insert(name.clone(), shortened(folded.as_ref().unwrap_or(argument))?);
                }
            }
        }
    }
    files.sort();
    let mut projection = serde_json::Map::new();
    for (label, part) in [("addresses", json!(addresses)), ("files", json!(files)), ("values", json!(values))] {
        if !is_empty(&part) {
            projection.insert(label.to_owned(), part);
        }
    }
    if projection.is_empty() {
        return None;
    }
    let text = CanonicalJson::of(&Value::Object(projection), &[]).ok()?;
    Some(Scope::new(effect, text.as_str()))
}

/// The digest of all arguments of a call, as whoever reads them can tell them apart: what two texts have in which nobody sees a difference (spaces,
/// how a letter is encoded) makes no two effects of one, nor does the dress of words for people, and an argument that is `null` is as good as
/// missing. A model that is asked again writes such a text anew. `volatile` arguments do not count. `None` for arguments that are no object.
///
/// Of a call that has nothing of the kind it is the digest of its arguments as they are.
pub fn digest_in_plain_words(effect: &str, arguments: &Value, volatile: &[String]) -> Option<ArgsHash> {
    let mut plain = arguments.as_object()?.clone();
    plain.retain(|_, value| !value.is_null());
    for (name, value) in &mut plain {
        if let Value::String(text) = value
            && is_wording(effect, name)
        {
            *text = fold(text);
        } else {
            fold_texts(value);
        }
    }
    CanonicalJson::of(&Value::Object(plain), volatile).ok().map(|text| text.hash())
}

/// Leaves of each text in a value what can be told apart by reading it.
fn fold_texts(value: &mut Value) {
    match value {
        Value::String(text) => *text = as_seen(text),
        Value::Array(items) => {
            for item in items {
                fold_texts(item);
            }
        }
        Value::Object(fields) => {
            for field in fields.values_mut() {
                fold_texts(field);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The names of the files that a call sends out, or by which its effect is known (`sends_files`, and `files` of a `scope`), each with its place in
/// the arguments (`attachments[0]`).
///
/// An item is a text, or an object that holds one under a name for paths and addresses, in lists of any depth. What is neither is left out: a
/// handle of another service is the same thing as long as it reads the same.
pub fn file_arguments(policy: &CallPolicy, arguments: &Value) -> Vec<(String, String)> {
    let in_scope = policy.scope.0.iter().filter_map(|field| match field {
        ScopeField::Files(name) => Some(name),
        ScopeField::Addresses(_) | ScopeField::Value(_) => None,
    });
    let names: BTreeSet<&String> = policy.sends_files.iter().chain(in_scope).collect();
    let mut files = Vec::new();
    for name in names {
        if let Some(argument) = arguments.get(name) {
            files_in(argument, name, &mut files);
        }
    }
    files
}

fn files_in(item: &Value, place: &str, found: &mut Vec<(String, String)>) {
    if let Value::Array(list) = item {
        for (index, item) in list.iter().enumerate() {
            files_in(item, &format!("{place}[{index}]"), found);
        }
        return;
    }
    let Some((field, name)) = file_name(item).filter(|(_, name)| !name.is_empty()) else { return };
    let place = field.map_or_else(|| place.to_owned(), |field| format!("{place}.{field}"));
    found.push((place, name.to_owned()));
}

/// Under what an object says where its file is.
const FILE_FIELDS: [&str; 9] =
    ["path", "file", "file_path", "filePath", "filepath", "local_path", "localPath", "uri", "url"];

/// The text that names a file: the item itself, or a field of it and what stands there.
fn file_name(item: &Value) -> Option<(Option<&'static str>, &str)> {
    if let Some(text) = item.as_str() {
        return Some((None, text));
    }
    FILE_FIELDS.into_iter().find_map(|field| Some((Some(field), item.get(field)?.as_str()?)))
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// A list's items, or the one value.
fn items(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        single @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            std::slice::from_ref(single)
        }
    }
}

fn shortened(value: &Value) -> Option<Value> {
    let text = CanonicalJson::of(value, &[]).ok()?;
    if text.as_str().len() > LONGEST_VALUE { Some(json!({ "sha256": text.hash() })) } else { Some(value.clone()) }
}

/// What the files of an argument are called in a scope.
fn name_files(argument: &Value, digest_of: &dyn Fn(&str) -> Option<Sha256>, files: &mut Vec<String>) {
    match argument {
        Value::Array(list) => list.iter().for_each(|item| name_files(item, digest_of, files)),
        single @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            files.push(name_file(single, digest_of));
        }
    }
}

/// A file's content digest; its path when nobody can digest it. Of a handle of another service, the name of the file, since a second
/// upload of the same content has another handle; without a name its digest.
fn name_file(file: &Value, digest_of: &dyn Fn(&str) -> Option<Sha256>) -> String {
    if let (Some(_), Some(name)) = (file.get("s3key"), file.get("name").and_then(Value::as_str)) {
        return format!("name:{name}");
    }
    let path = file_name(file).map(|(_, path)| path);
    match path {
        Some(path) => digest_of(path).map_or_else(|| format!("path:{path}"), |digest| format!("sha256:{digest}")),
        None => match CanonicalJson::of(file, &[]) {
            Ok(text) => format!("handle:{}", text.hash()),
            Err(_) => format!("handle:{}", sha256(file.to_string())),
        },
    }
}

/// The addresses in one item: a text with one or several, or an object with an `email` or an `address`.
fn addresses_in(item: &Value) -> Vec<String> {
    let text = item.as_str().or_else(|| item.get("email")?.as_str()).or_else(|| item.get("address")?.as_str());
    match text {
        Some(text) => split_addresses(text).iter().filter_map(|one| bare_address(one)).collect(),
        None if is_empty(item) => Vec::new(),
        None => vec![item.to_string()],
    }
}

/// Splits `a@x, "B, C" <b@y>; d@z` at the commas and semicolons outside quotes and angle brackets.
fn split_addresses(text: &str) -> Vec<String> {
    let mut addresses = vec![String::new()];
    let (mut in_quotes, mut in_brackets, mut is_escaped) = (false, false, false);
    for letter in text.chars() {
        let separates = matches!(letter, ',' | ';') && !in_quotes && !in_brackets;
        match letter {
            '"' if !is_escaped => in_quotes = !in_quotes,
            '<' if !in_quotes => in_brackets = true,
            '>' if !in_quotes => in_brackets = false,
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
        match addresses.last_mut() {
            Some(address) if !separates => address.push(letter),
            _ => addresses.push(String::new()),
        }
    }
    addresses
}

/// `Ada Lovelace <Ada@Example.org>` → `ada@example.org`.
fn bare_address(text: &str) -> Option<String> {
    let inner = match (text.rfind('<'), text.rfind('>')) {
        (Some(open), Some(close)) if open < close => &text[open + 1..close],
        _ => text,
    };
    let address = inner.trim().to_lowercase();
    (!address.is_empty()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_message_in_another_dress_is_the_same_call() {
        let post = |text: &str| json!({"channel_id": "C1", "text": text, "nonce": text.len()});
        let digest = |effect: &str, text: &str| digest_in_plain_words(effect, &post(text), &["nonce".to_owned()]);
        let first = digest("message.post", "Deploy done");
        assert!(first.is_some());
        for dress in ["Deploy done!", "deploy done", "Deploy  done", "Deploy\u{200b} done", "Re: Deploy done"] {
            assert_eq!(digest("message.post", dress), first, "{dress:?}");
        }
        for other in ["Deploy failed", "Deploy done 2", "👍"] {
            assert_ne!(digest("message.post", other), first, "{other:?}");
        }
        assert_ne!(digest("file.upload", "Deploy done!"), digest("file.upload", "Deploy done"), "no words for people");
        let elsewhere = digest_in_plain_words("message.post", &json!({"channel_id": "C2", "text": "Deploy done"}), &[]);
        assert_ne!(elsewhere, first);
    }

    /// Whatever the effect is: what nobody sees makes no two of one, and what somebody sees does.
    #[test]
    fn what_nobody_sees_tells_no_two_calls_apart() {
        let digest = |arguments: &Value| digest_in_plain_words("order.place", arguments, &[]);
        let order = json!({"article": "caf\u{e9} 12", "to": {"lines": ["A Street 1"]}});
        let as_it_is = CanonicalJson::of(&order, &[]).unwrap().hash();
        assert_eq!(digest(&order), Some(as_it_is), "nothing is folded of it");
        for same in [
            json!({"article": "caf\u{e9} 12 ", "to": {"lines": ["A Street 1"]}}),
            json!({"article": "cafe\u{301} 12", "to": {"lines": ["A Street 1"]}}),
            json!({"article": "caf\u{e9}\u{200b}  12\n", "to": {"lines": [" A Street 1"]}}),
            json!({"article": "caf\u{e9} 12", "to": {"lines": ["A Street 1"]}, "note": null}),
        ] {
            assert_eq!(digest(&same), digest(&order), "{same}");
        }
        for other in [
            json!({"article": "cafe 12", "to": {"lines": ["A Street 1"]}}),
            json!({"article": "caf\u{e9} 1 2", "to": {"lines": ["A Street 1"]}}),
            json!({"article": "Caf\u{e9} 12", "to": {"lines": ["A Street 1"]}}),
            json!({"article": "caf\u{e9} 12", "to": {"lines": ["A Street 1", ""]}}),
            json!({"article": "caf\u{e9} 12", "to": {"lines": ["A Street 1"]}, "note": false}),
        ] {
            assert_ne!(digest(&other), digest(&order), "{other}");
        }
        assert_eq!(digest(&json!("no object")), None);
    }

    fn email() -> ScopeRule {
        ScopeRule(vec![
            ScopeField::Addresses("to".to_owned()),
            ScopeField::Addresses("cc".to_owned()),
            ScopeField::Value("subject".to_owned()),
            ScopeField::Files("attachments".to_owned()),
        ])
    }

    /// Two paths hold the same report; nothing else can be read.
    fn digest_of(path: &str) -> Option<Sha256> {
        matches!(path, "report.pdf" | "copy.pdf").then(|| sha256("the report"))
    }

    fn email_scope(arguments: &Value) -> Option<Scope> {
        project_scope(&email(), "email.send", arguments, &digest_of)
    }

    #[test]
    fn an_email_is_its_recipients_its_subject_and_its_attachments() {
        let scope = email_scope(&json!({
            "to": ["Bob <BOB@example.test>", "ada@example.test"],
            "subject": "Report",
            "body": "Dear both",
            "attachments": ["report.pdf"],
        }));
        assert_eq!(
            scope.unwrap().as_str(),
            format!(
                r#"email.send {{"addresses":["ada@example.test","bob@example.test"],"files":["sha256:{}"],"values":{{"subject":"report"}}}}"#,
                sha256("the report")
            )
        );
    }

    #[test]
    fn wording_and_route_do_not_count() {
        let one = json!({
            "to": ["ada@example.test", "Bob <bob@example.test>"], "subject": "Report", "body": "Hello",
            "attachments": ["report.pdf"],
        });
        for other in [
            json!({"to": "bob@example.test, ADA@example.test", "subject": "Report", "attachments": "copy.pdf"}),
            json!({"to": "ada@example.test", "cc": "\"Bob, the builder\" <bob@example.test>", "subject": "Report",
                "attachments": [{"path": "copy.pdf"}]}),
            json!({"to": [{"email": "Ada@Example.test"}, {"address": "bob@example.test"}, "bob@example.test"],
                "cc": null, "subject": "Report", "attachments": ["report.pdf"]}),
        ] {
            assert_eq!(email_scope(&one), email_scope(&other), "{other}");
        }
    }

    #[test]
    fn another_recipient_subject_or_content_is_another_effect() {
        let one = json!({"to": "ada@example.test", "subject": "Report", "attachments": ["report.pdf"]});
        for (field, value) in [
            ("to", json!("eve@example.test")),
            ("subject", json!("Another report")),
            ("attachments", json!(["other.pdf"])),
        ] {
            let mut other = one.clone();
            other[field] = value;
            assert_ne!(email_scope(&one), email_scope(&other), "{field}");
        }
    }

    #[test]
    fn an_unreadable_file_counts_by_its_path() {
        let scope = email_scope(&json!({"attachments": ["gone.pdf"]})).unwrap();
        assert_eq!(scope.as_str(), r#"email.send {"files":["path:gone.pdf"]}"#);
    }

    #[test]
    fn scopes_begin_alike_up_to_their_files_whether_these_could_be_read() {
        let of = |to: &str, name: &str| {
            email_scope(&json!({"to": to, "subject": r#""files":["#, "attachments": ["copy.pdf", name]})).unwrap()
        };
        let (read, unread) = (of("ada@example.test", "report.pdf"), of("ada@example.test", "gone.pdf"));
        assert_ne!(read, unread);
        assert_eq!(read.up_to_files(), Some(r#"email.send {"addresses":["ada@example.test"],"files":["#));
        assert_eq!(read.up_to_files(), unread.up_to_files());
        assert_ne!(read.up_to_files(), of("eve@example.test", "report.pdf").up_to_files());
        let without = email_scope(&json!({"to": "ada@example.test", "subject": r#""files":["#})).unwrap();
        assert_eq!(without.up_to_files(), None, "{without:?}");
    }

    #[test]
    fn nothing_to_name_is_no_scope() {
        assert_eq!(email_scope(&json!({"body": "x", "to": [], "cc": [""], "subject": ""})), None);
        assert_eq!(project_scope(&ScopeRule::default(), "x.create", &json!({"a": 1}), &digest_of), None);
        assert_eq!(email_scope(&json!("not an object")), None);
    }

    #[test]
    fn what_nobody_sees_of_a_value_does_not_count() {
        let rule = ScopeRule(vec![ScopeField::Value("article".to_owned())]);
        let scope =
            |article: &str| project_scope(&rule, "order.place", &json!({"article": article}), &digest_of).unwrap();
        assert_eq!(scope("caf\u{e9}").as_str(), "order.place {\"values\":{\"article\":\"caf\u{e9}\"}}");
        for same in [" caf\u{e9}\n", "cafe\u{301}", "caf\u{200b}\u{e9}"] {
            assert_eq!(scope(same), scope("caf\u{e9}"), "{same:?}");
        }
        assert_ne!(scope("Caf\u{e9}"), scope("caf\u{e9}"));
    }

    #[test]
    fn long_values_enter_as_digests() {
        let rule = ScopeRule(vec![ScopeField::Value("content".to_owned())]);
        let scope = |content: &str| project_scope(&rule, "memory.create", &json!({"content": content}), &digest_of);
        let long = "x".repeat(10_000);
        assert!(scope(&long).unwrap().as_str().len() < 200);
        assert_ne!(scope(&long), scope(&format!("{long}y")));
        assert_eq!(scope("short").unwrap().as_str(), r#"memory.create {"values":{"content":"short"}}"#);
    }

    #[test]
    fn files_are_found_with_their_places() {
        let policy = CallPolicy {
            sends_files: vec!["attachments".to_owned(), "cover".to_owned()],
            ..CallPolicy::unclassified()
        };
        let arguments = json!({"attachments": ["a.pdf", {"path": "b.pdf"}, {"s3key": "k"}, 7], "cover": "c.png"});
        let found = file_arguments(&policy, &arguments);
        let expected = [("attachments[0]", "a.pdf"), ("attachments[1].path", "b.pdf"), ("cover", "c.png")];
        assert_eq!(found, expected.map(|(place, path)| (place.to_owned(), path.to_owned())));

        let arguments = json!({"attachments": [[{"url": "file:///d.pdf"}], ""], "cover": null});
        let found = file_arguments(&policy, &arguments);
        assert_eq!(found, [("attachments[0][0].url".to_owned(), "file:///d.pdf".to_owned())]);

        // What its effect is known by is looked at, too, and once where both are said.
        let named = CallPolicy { scope: email(), ..policy };
        let found = file_arguments(&named, &json!({"attachments": "a.pdf", "subject": "b.pdf"}));
        assert_eq!(found, [("attachments".to_owned(), "a.pdf".to_owned())]);
    }
}
