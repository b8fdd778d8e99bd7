//! A line that somebody else wrote, read as a message; and what is known of one that cannot be read.
//!
//! Invariant: a line that begins as an object is never dropped without a word. JavaScript cuts texts in the middle of a character and writes half
//! of it as an escape (`\ud83d`), which is no text: it is read as U+FFFD. What still cannot be read has an id, where one can be found.

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
    let mended = whole_characters(line);
    let error = match mended.as_deref().map(|line| ua_mcp::read_message(line.as_bytes())) {
        Some(Ok(message)) => return Ok(message),
        Some(Err(error)) => error,
        None => error,
    };
    let envelope: Option<Envelope> = serde_json::from_str(line).ok();
    let (id, method) = envelope.map(|envelope| (envelope.id, envelope.method)).unwrap_or_default();
    Err(Unreadable { why: error.to_string(), id, has_method: method.is_some() })
}

/// The line with U+FFFD in the place of escapes of half a character; `None` when there are none.
fn whole_characters(line: &str) -> Option<String> {
    let bytes = line.as_bytes();
    let unit = |at: usize| {
        let digits = line.get(at + 2..at + 6).filter(|_| bytes.get(at..at + 2) == Some(b"\\u"))?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut mended, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\\')) {
        at += found;
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                mended.push_str(line.get(copied..at)?);
                mended.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // Whatever is escaped is passed over with its backslash.
            Some(_) | None => at += 2,
        }
    }
    (copied > 0).then(|| mended + line.get(copied..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn half_a_character_is_read_as_one_that_is_missing() {
        for (line, text) in [
            (r#"{"a": "cut \ud83d"}"#, "cut \u{fffd}"),
            (r#"{"a": "\ude00\ud83d\ude00\ud83d!"}"#, "\u{fffd}\u{1f600}\u{fffd}!"),
            (r#"{"a": "\ud83d\ud83d\ude00"}"#, "\u{fffd}\u{1f600}"),
            (r#"{"a": "\\ud83d"}"#, "\\ud83d"),
            (r#"{"a": "ä\ud83d\n\\"}"#, "ä\u{fffd}\n\\"),
        ] {
            assert_eq!(message(line), Ok(json!({"a": text})), "{line}");
        }
    }

    #[test]
    fn of_what_cannot_be_read_the_id_is_found() {
        let deep = format!(r#"{{"result": {}{}, "id": 7}}"#, "[".repeat(300), "]".repeat(300));
        let unread = message(&deep).unwrap_err();
        assert_eq!((unread.id, unread.has_method), (Some(json!(7)), false));
        assert!(unread.why.contains("recursion"), "{}", unread.why);
        let request = deep.replace("result", "method");
        assert!(message(&request).unwrap_err().has_method);
        for broken in
            ["{\"id\": 1", "{", "{\"a\": \"\\ud83d", "{\"a\": \"\\u", "nonsense", "\\", "{\"a\":\"\\ud83d\\u\"}"]
        {
            assert_eq!(message(broken).unwrap_err().id, None, "{broken}");
        }
    }
}
