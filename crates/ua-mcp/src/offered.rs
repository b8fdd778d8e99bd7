//! What a server's list of tools offers: each definition is read for itself.
//!
//! Servers are written by many hands. Only what a call needs is read (the name, what it takes, and what is believed of a tool), so that a
//! title or an icon of another form costs nothing; a definition without that is named and left out. Invariant: no definition takes another one
//! with it. What a hint says that is neither true nor false is not said, which is the careful reading of each of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use ua_core::{ToolAnnotations, ToolName, ToolNamespace, ToolSpec};

use crate::amount;
use crate::host::printable;
use crate::taken_schema;

/// The longest tool name that model providers take.
const MAX_OFFERED: usize = 64;
/// The longest name of a server's own, in bytes.
const MAX_NAME: usize = 256;
/// Where a tool says in its `_meta` whether two calls under one key are one effect.
const HONOURS_KEYS: &str = "dev.universal-agent/honours-keys";
/// Where a tool says in its `_meta` for how many seconds it remembers a key.
const KEY_TTL: &str = "dev.universal-agent/key-ttl-seconds";
/// Where a tool says in its `_meta` that it reads addresses.
const FETCHES: &str = "dev.universal-agent/fetches";

/// One entry of a server's list.
pub(crate) struct ListedTool {
    /// What it is called in a note for people.
    pub(crate) called: String,
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
    /// The tool, or why it cannot be offered.
    pub(crate) offered: Result<Offered, String>,
}

/// A tool that can be offered, as far as its definition says.
pub(crate) struct Offered {
    /// The tool as a model sees it.
    pub(crate) spec: ToolSpec,
    /// What it takes.
    pub(crate) schema: Map<String, Value>,
    /// `required`, `optional` or `forbidden`: whether it is called as a task.
    pub(crate) task_support: String,
}

/// Reads the list of a server, entry by entry. Of a tool that is listed twice in the same words one is offered; of one that is listed as two
/// different things neither, since a call would say which by nothing.
pub(crate) fn read_list(namespace: ToolNamespace, server: &str, tools: &[Value]) -> Vec<ListedTool> {
    let mut by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for tool in tools {
        if let Some(name) = tool.get("name").and_then(Value::as_str) {
            by_name.entry(name).or_default().push(tool);
        }
    }
    let mut listed = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let name = tool.get("name").and_then(Value::as_str);
        let same: &[&Value] = name.and_then(|name| by_name.get(name)).map_or(&[], Vec::as_slice);
        if same.first().is_some_and(|first| !std::ptr::eq(*first, tool)) {
            continue;
        }
        let is_one_thing = same.iter().all(|other| *other == tool);
        listed.push(ListedTool {
            called: match name {
                Some(name) => format!("`{}`", printable(name, 128)),
                None => format!("the {} entry of the list", ordinal(index + 1)),
            },
            name: name.map(str::to_owned),
            offered: if is_one_thing {
                read(namespace, server, tool)
            } else {
                Err(format!("it is listed {} times, as different things", same.len()))
            },
        });
    }
    listed
}

/// Reads one definition.
fn read(namespace: ToolNamespace, server: &str, tool: &Value) -> Result<Offered, String> {
    if !tool.is_object() {
        return Err(format!("its definition is {}, not an object", kind(tool)));
    }
    if holds(tool, amount::TOO_DEEP) {
        return Err(format!("its definition is nested more than {} deep", amount::MAX_DEPTH));
    }
    let name = match tool.get("name") {
        Some(Value::String(name)) => offered_name(namespace, server, name),
        Some(other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            return Err(format!("its name is {}, not text", kind(other)));
        }
        None => return Err("it has no name".to_owned()),
    };
    // A name cannot be said otherwise, and a call would have to.
    if name.tool.contains("[secret ") {
        return Err("its name contains a secret".to_owned());
    }
    if let Some(why) = not_offerable(&name) {
        return Err(why);
    }
    let schema = match tool.get("inputSchema") {
        Some(Value::Object(schema)) => schema.clone(),
        Some(other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_))) => {
            return Err(format!("its `inputSchema` is {}, not an object", kind(other)));
        }
        None => return Err("it does not say what it takes: it has no `inputSchema`".to_owned()),
    };
    if let Some(why) = taken_schema::not_taken(&schema) {
        return Err(format!("its `inputSchema` {why}"));
    }
    let hint = |hint: &str| tool.get("annotations").and_then(|hints| hints.get(hint)).and_then(Value::as_bool);
    let says = |what: &str| tool.get("_meta").and_then(|meta| meta.get(what));
    let task_support = tool.pointer("/execution/taskSupport").and_then(Value::as_str).unwrap_or_default().to_owned();
    let spec = ToolSpec {
        name,
        description: tool.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        input_schema: Value::Object(schema.clone()),
        annotations: ToolAnnotations {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
            honours_keys: says(HONOURS_KEYS).and_then(Value::as_bool),
            key_ttl_seconds: says(KEY_TTL).and_then(Value::as_u64),
            fetches: says(FETCHES).and_then(Value::as_bool),
        },
    };
    Ok(Offered { spec, schema, task_support })
}

/// Whether a text stands anywhere in a value.
fn holds(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Array(values) => values.iter().any(|value| holds(value, wanted)),
        Value::Object(members) => members.values().any(|value| holds(value, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// What a value is, as a sentence says it.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 10, number % 100) {
        (1, tens) if tens != 11 => "st",
        (2, tens) if tens != 12 => "nd",
        (3, tens) if tens != 13 => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Hexadecimal digits that tell names apart that had to be changed.
const DIGITS: usize = 8;

/// A tool's name, in the form a model sees made such that every provider takes it: what is neither an ASCII letter, a digit, `_` nor `-` becomes
/// `_`, and one that is too long keeps its beginning. A digest of the whole tells it from others. The server's own name for it stays what it is.
fn offered_name(namespace: ToolNamespace, server: &str, tool: &str) -> ToolName {
    let name = ToolName::qualified(namespace, server, tool);
    let is_taken = name.raw.len() <= MAX_OFFERED && name.raw.chars().all(is_plain);
    if is_taken {
        return name;
    }
    let plain = name.raw.chars().map(|c| if is_plain(c) { c } else { '_' });
    let begin: String = plain.take(MAX_OFFERED - DIGITS - 1).collect();
    let digest = ua_core::sha256(&name.raw).to_hex();
    ToolName { raw: format!("{begin}_{}", &digest[..DIGITS]), ..name }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Why a model cannot be offered a tool of this name, if it cannot. The protocol says 1 to 128 of the characters `a-z A-Z 0-9 _ - . /`; servers
/// write names in other scripts and with spaces as well. What has quotation marks or brackets, or what nobody sees, would pass for words of ours.
pub(crate) fn not_offerable(name: &ToolName) -> Option<String> {
    let is_of_names = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | ' ');
    let is_name = name.tool.chars().all(is_of_names) && name.tool.trim() == name.tool;
    (name.tool.is_empty() || name.tool.len() > MAX_NAME || !is_name || !name.raw.chars().all(is_plain))
        .then(|| format!("its name is not 1 to {MAX_NAME} bytes of letters, digits, spaces and _ - . / :"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn read_all(tools: &[Value]) -> (Vec<String>, Vec<String>) {
        let (mut offered, mut notes) = (Vec::new(), Vec::new());
        for listed in read_list(ToolNamespace::Mcp, "s", tools) {
            match listed.offered {
                Ok(one) => offered.push(one.spec.name.tool),
                Err(why) => notes.push(format!("{}: {why}", listed.called)),
            }
        }
        (offered, notes)
    }

    #[test]
    fn a_definition_that_is_nested_too_deeply_is_named() {
        let plain = |name: &str| format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
        let deep = format!("{}1{}", "{\"properties\":".repeat(300), "}".repeat(300));
        let deep = format!(r#"{{"name":"deep","inputSchema":{deep}}}"#);
        let tools = [plain("a"), deep, plain("b")].join(",");
        let list = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{tools}]}}}}"#);
        let read = amount::read_message(list.as_bytes()).unwrap();
        let (offered, notes) = read_all(read["result"]["tools"].as_array().unwrap());
        assert_eq!(offered, ["a", "b"]);
        assert_eq!(notes, ["`deep`: its definition is nested more than 100 deep"]);
    }

    /// Every field of a definition, of every type that JSON has, between two tools that are as they should be: the two are always offered, and the
    /// third is or is named. A hint of another type never makes a tool look more harmless.
    #[test]
    fn no_definition_takes_another_one_with_it() {
        let good = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let values = [
            json!(null),
            json!(true),
            json!(7),
            json!(1.5),
            json!(""),
            json!("true"),
            json!([]),
            json!([1]),
            json!({}),
            json!({"x": 1}),
        ];
        let fields = [
            "name",
            "title",
            "description",
            "inputSchema",
            "outputSchema",
            "annotations",
            "_meta",
            "icons",
            "execution",
            "/annotations/readOnlyHint",
            "/annotations/destructiveHint",
            "/annotations/title",
            "/_meta/x",
            "/execution/taskSupport",
            "/inputSchema/type",
            "/inputSchema/properties",
            "/inputSchema/required",
        ];
        let whole = json!({"name": "mid", "title": "t", "description": "d", "inputSchema": {"type": "object", "properties": {},
            "required": []}, "outputSchema": {}, "annotations": {"readOnlyHint": false, "destructiveHint": true, "title": "t"},
            "_meta": {"x": 1}, "icons": [], "execution": {"taskSupport": "forbidden"}});
        let mut broken: Vec<(String, Value)> =
            values.iter().map(|value| ("itself".to_owned(), value.clone())).collect();
        for field in fields {
            let pointer = if field.starts_with('/') { field.to_owned() } else { format!("/{field}") };
            for value in &values {
                let mut tool = whole.clone();
                *tool.pointer_mut(&pointer).unwrap() = value.clone();
                broken.push((field.to_owned(), tool));
            }
            let mut tool = whole.clone();
            let (parent, last) = pointer.rsplit_once('/').unwrap();
            tool.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(last);
            broken.push((field.to_owned(), tool));
        }
        for (field, tool) in broken {
            let (offered, notes) = read_all(&[good("first"), tool.clone(), good("last")]);
            let case = format!("{field}: {tool}");
            assert_eq!(
                (offered.first().unwrap().as_str(), offered.last().unwrap().as_str()),
                ("first", "last"),
                "{case}"
            );
            assert_eq!(offered.len() + notes.len(), 3, "{case}: {notes:?}");
            let is_needed = matches!(
                field.as_str(),
                "itself" | "name" | "inputSchema" | "/inputSchema/type" | "/inputSchema/properties"
            );
            assert!(is_needed || notes.is_empty(), "{case}: {notes:?}");
            let known = read(ToolNamespace::Mcp, "s", &tool);
            let read_only = known.ok().and_then(|known| known.spec.annotations.read_only);
            let told = tool.pointer("/annotations/readOnlyHint");
            assert_eq!(read_only == Some(true), told == Some(&json!(true)) && notes.is_empty(), "{case}");
        }
    }

    #[test]
    fn what_is_left_out_is_named_with_the_reason() {
        let listed = [
            json!({"name": "a", "inputSchema": true}),
            json!({"inputSchema": {}}),
            json!("get"),
            json!({"name": 7, "inputSchema": {}}),
            json!({"name": "b"}),
            json!({"name": "c", "inputSchema": {}}),
            json!({"name": "c", "inputSchema": {}}),
            json!({"name": "d", "inputSchema": {}}),
            json!({"name": "d", "description": "other", "inputSchema": {}}),
            json!({"name": "e", "inputSchema": {"type": "string"}}),
            json!({"name": "f", "inputSchema": {"type": "object", "properties": {"at": {"type": "objekt"}}}}),
        ];
        let (offered, notes) = read_all(&listed);
        assert_eq!(offered, ["c"]);
        assert_eq!(
            notes,
            [
                "`a`: its `inputSchema` is true or false, not an object",
                "the 2nd entry of the list: it has no name",
                "the 3rd entry of the list: its definition is text, not an object",
                "the 4th entry of the list: its name is a number, not text",
                "`b`: it does not say what it takes: it has no `inputSchema`",
                "`d`: it is listed 2 times, as different things",
                "`e`: its `inputSchema` is of the type `string`, and arguments are an object",
                "`f`: its `inputSchema` has `\"objekt\"` at `/properties/at/type`, which is no type of JSON",
            ]
        );
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 21, 112].map(ordinal),
            ["1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "112th"]
        );
    }

    #[test]
    fn names_that_providers_refuse_are_not_offered() {
        let why = |tool: &str| not_offerable(&offered_name(ToolNamespace::Mcp, "notes", tool));
        assert_eq!(why("list_notes-2"), None);
        for tool in ["a b", "naïve", "задача: создать", "一覧", &"x".repeat(256)] {
            assert_eq!(why(tool), None, "{tool:?}");
        }
        for tool in ["", " ", " a", "a`b", "a\u{200b}b", "a\nb", "<b>", "a; rm", &"x".repeat(257)] {
            assert!(why(tool).is_some(), "{tool:?}");
        }
    }

    #[test]
    fn names_that_are_too_long_or_have_dots_are_offered_by_others() {
        let offered = |tool: &str| {
            let name = offered_name(ToolNamespace::Mcp, "notes", tool);
            assert!(not_offerable(&name).is_none() && name.raw.len() <= MAX_OFFERED && name.tool == tool, "{name:?}");
            name.raw
        };
        assert_eq!(offered("list_notes-2"), "mcp__notes__list_notes-2");
        let fits = "x".repeat(MAX_OFFERED - "mcp__notes__".len());
        assert_eq!(offered(&fits), format!("mcp__notes__{fits}"));
        let long = format!("{fits}y");
        assert!(offered(&long).starts_with("mcp__notes__xxx") && offered(&long) != offered(&format!("{fits}z")));
        assert!(offered("page.read").starts_with("mcp__notes__page_read_"));
        let names =
            ["page.read", "page/read", "page_read", "page read", "страница", "頁", &"y".repeat(256)].map(offered);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
