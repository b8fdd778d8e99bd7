//! A line that a tool server wrote, read as a message; and what is known of one that cannot be read.
//!
//! Invariant: a line that begins as an object is never dropped without a word. What is not carried as it was written is marked
//! (`ua_mcp::read_message`); what cannot be read at all has an id, where one can be found.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// A line that is no message.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unreadable {
    /// What is wrong with it.
    pub(crate) why: String,
    /// Its id, if it can be found.
    pub(crate) id: Option<Value>,
    /// Whether it says a method, so that it is no answer.
    pub(crate) has_method: bool,
}

/// The little of a line that is found without reading the rest: what is passed over may be nested as deep as it likes.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

/// Reads a line.
pub(crate) fn message(line: &str) -> Result<Value, Unreadable> {
    let error = match ua_mcp::read_message(line.as_bytes()) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    let (id, has_method) = envelope(line).unwrap_or_default();
    Err(Unreadable { why: error.to_string(), id, has_method })
}

/// The id of a message that is not read otherwise, and whether it says a method; `None` when not even that can be found.
pub(crate) fn envelope(text: &str) -> Option<(Option<Value>, bool)> {
    let found: Envelope = serde_json::from_str(text).ok()?;
    Some((found.id, found.method.is_some()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_what_cannot_be_read_the_id_is_found() {
        let endless = r#"{"result": 1e999, "id": 7}"#;
        let unread = message(endless).unwrap_err();
        assert_eq!((unread.id, unread.has_method), (Some(json!(7)), false));
        assert!(unread.why.contains("out of range"), "{}", unread.why);
        let request = endless.replace("result", "method");
        assert!(message(&request).unwrap_err().has_method);
        for broken in
            ["{\"id\": 1", "{", "{\"a\": \"\\ud83d", "{\"a\": \"\\u", "nonsense", "\\", "{\"a\":\"\\ud83d\\u\"}"]
        {
            assert_eq!(message(broken).unwrap_err().id, None, "{broken}");
        }
    }
}
