//! What a line on a tool server's standard output is: a message, what was meant as one, or a log. The one reader for whoever reads such lines, the
//! runner's wire and the gateway's broker, so that no server is heard by one and waited for by the other.
//!
//! Invariant: what was meant as a message is never taken for a log, since a call may wait for it; a log costs no call its answer.
//! Proved by: the table below, `wire`'s tests, and those of the broker's pipe.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Error, Map, Value};

use crate::amount;
use crate::wire::whole_number;

/// What a line is.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// Nothing.
    Blank,
    /// A message of the protocol.
    Message(Map<String, Value>),
    /// What a message without `jsonrpc` would be: it has a method, or a result or an error under an id. It may just as well be a log.
    Unmarked(Map<String, Value>),
    /// Meant as a message, and none.
    Broken(BrokenFrame),
    /// A line of a log.
    Log,
}

/// A line that was meant as a message and is none.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokenFrame {
    /// What is wrong with it, as a clause.
    pub why: String,
    /// The ids under which it answers, as far as they can be found.
    pub ids: Vec<Value>,
    /// Whether it asks or tells something, and answers nothing.
    pub is_no_answer: bool,
}

/// The little of a line that is found without reading the rest: what is passed over may be nested as deep as it likes.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

impl Frame {
    /// Reads a line.
    pub fn of(line: &[u8]) -> Self {
        Self::read_by(line, amount::read_message)
    }

    /// The same with the order of forms, for whoever fills them in.
    pub(crate) fn with_forms(line: &[u8]) -> Self {
        Self::read_by(line, amount::read_with_forms)
    }

    fn read_by(line: &[u8], read: fn(&[u8]) -> Result<Value, Error>) -> Self {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Self::Blank;
        }
        match read(line) {
            Ok(Value::Object(message)) if message.contains_key("jsonrpc") => Self::Message(message),
            Ok(Value::Object(message)) if is_like_a_message(&message) => Self::Unmarked(message),
            Ok(Value::Array(batch)) if batch.iter().any(|one| one.get("jsonrpc").is_some()) => {
                let answers = || batch.iter().filter(|one| one.get("method").is_none());
                let ids = answers().filter_map(|one| one.get("id").cloned()).collect();
                let is_no_answer = answers().next().is_none();
                Self::Broken(BrokenFrame { why: "it is a batch, which nobody asked for".to_owned(), ids, is_no_answer })
            }
            Ok(_) => Self::Log,
            Err(error) => unreadable(line, &error).map_or(Self::Log, Self::Broken),
        }
    }
}

/// The number of the request that an answer names by this id: some servers send it back as text, some with a point and nothing behind it.
pub fn answered_number(id: &Value) -> Option<u64> {
    whole_number(id).and_then(|number| u64::try_from(number).ok())
}

/// The id of a message that is not read otherwise, and whether it says a method; `None` when not even that can be found.
pub fn envelope(message: &[u8]) -> Option<(Option<Value>, bool)> {
    let found: Envelope = serde_json::from_slice(message).ok()?;
    Some((found.id, found.method.is_some()))
}

fn is_like_a_message(message: &Map<String, Value>) -> bool {
    let has = |name: &str| message.contains_key(name);
    has("method") || (has("id") && (has("result") || has("error")))
}

/// What a line that cannot be read was meant as; `None` for a log.
fn unreadable(line: &[u8], error: &Error) -> Option<BrokenFrame> {
    let why = error.to_string();
    let is_like_an_answer = has_field(line, "result") || has_field(line, "error");
    if let Some((id, has_method)) = envelope(line) {
        let is_answer = id.is_some() && is_like_an_answer;
        let is_meant = is_meant_as_message(line) || (!has_method && is_answer);
        return is_meant.then(|| BrokenFrame { why, ids: id.into_iter().collect(), is_no_answer: has_method });
    }
    // Whoever writes what it was sent into its output has answered nothing by that.
    let is_no_answer = has_field(line, "method") && !is_like_an_answer;
    is_meant_as_message(line).then(|| BrokenFrame { why, ids: Vec::new(), is_no_answer })
}

/// Whether what cannot be read was meant as a message: it has the field that every message has. A log that only has the word is none.
fn is_meant_as_message(line: &[u8]) -> bool {
    has_field(line, "jsonrpc")
}

/// Whether something has a field, as JSON writes it or as a program prints an object of its own (Python's `{'jsonrpc': …}`, `{ jsonrpc: …` of
/// JavaScript, over several lines or in one).
fn has_field(line: &[u8], name: &str) -> bool {
    let has = |part: &str| line.windows(part.len()).any(|window| window == part.as_bytes());
    let begins = line.trim_ascii_start();
    let bare = format!("{name}:");
    has(&format!("\"{name}\""))
        || has(&format!("'{name}'"))
        || begins.starts_with(bare.as_bytes())
        || (begins.starts_with(b"{") && has(&bare))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn broken(line: &str) -> (Vec<Value>, bool) {
        let Frame::Broken(broken) = Frame::of(line.as_bytes()) else { panic!("{line}: it is not broken") };
        (broken.ids, broken.is_no_answer)
    }

    #[test]
    fn of_what_cannot_be_read_the_id_is_found() {
        let endless = r#"{"result": 1e999, "id": 7}"#;
        assert_eq!(envelope(endless.as_bytes()), Some((Some(json!(7)), false)));
        assert_eq!(envelope(endless.replace("result", "method").as_bytes()), Some((Some(json!(7)), true)));
        for broken in
            ["{\"id\": 1", "{", "{\"a\": \"\\ud83d", "{\"a\": \"\\u", "nonsense", "\\", "{\"a\":\"\\ud83d\\u\"}"]
        {
            assert_eq!(envelope(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn what_was_meant_as_a_message_is_never_a_log() {
        for (line, ids, is_no_answer) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{"content":["#, vec![], false),
            (r#"{"jsonrpc":"2.0","id":3,"result":{"a":1e999}}"#, vec![json!(3)], false),
            (r#"{"id":3,"result":{"a":1e999}}"#, vec![json!(3)], false),
            (r#"{"jsonrpc":"2.0","id":3,"result":{},"result":{}}"#, vec![json!(3)], false),
            (r#"{"jsonrpc":"2.0","id":3,"method":"roots/list","params":[1e999]}"#, vec![json!(3)], true),
            (
                r#"[{"jsonrpc":"2.0","id":3,"result":{}},{"jsonrpc":"2.0","id":"4","error":{}}]"#,
                vec![json!(3), json!("4")],
                false,
            ),
            (r#"[{"jsonrpc":"2.0","method":"notifications/message"}]"#, vec![], true),
            ("{'jsonrpc': '2.0', 'id': 3, 'result': {'content': []}}", vec![], false),
            ("[{'jsonrpc': '2.0', 'id': 3, 'result': {}}]", vec![], false),
            ("{ jsonrpc: '2.0', id: 3, result: { content: [] } }", vec![], false),
            ("  jsonrpc: '2.0',", vec![], false),
            (r#"DEBUG sending {"jsonrpc": "2.0", "id": 3, "result": {}}"#, vec![], false),
            ("DEBUG received {'jsonrpc': '2.0', 'id': 3, 'method': 'tools/call'}", vec![], true),
            ("{'jsonrpc': '2.0', 'id': 3, 'result': {'content': ['method']}}", vec![], false),
        ] {
            assert_eq!(broken(line), (ids, is_no_answer), "{line}");
        }
    }

    #[test]
    fn a_log_is_no_message() {
        for line in [
            "Server listening on stdio",
            "[info] {up}",
            "[jsonrpc] handler: up",
            "{'level': 'info'}",
            "{not json",
            r#"{"level":"error","error":"disk"}"#,
            r#"{"level":"error","error":"disk""#,
            r#"{"id":3,"level":"info"}"#,
            "42",
            "[1,2]",
        ] {
            assert_eq!(Frame::of(line.as_bytes()), Frame::Log, "{line}");
        }
        assert_eq!(Frame::of(b" \r"), Frame::Blank);
    }

    #[test]
    fn a_message_is_one_with_its_mark_and_may_be_one_without() {
        let is_marked = |line: &str| match Frame::of(line.as_bytes()) {
            Frame::Message(_) => true,
            Frame::Unmarked(_) => false,
            other @ (Frame::Blank | Frame::Broken(_) | Frame::Log) => panic!("{line}: {other:?}"),
        };
        assert!(is_marked(r#"{"jsonrpc":"2.0"}"#) && is_marked("\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"));
        for line in [r#"{"id":3,"result":{}}"#, r#"{"id":null,"error":{}}"#, r#"{"method":"notifications/message"}"#] {
            assert!(!is_marked(line), "{line}");
        }
    }
}
