//! The little that is known of a message of a client that is read by nobody.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The little of a line that is found without reading the rest: what is passed over may be nested as deep as it likes.
#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
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
        assert_eq!(envelope(endless), Some((Some(json!(7)), false)));
        assert_eq!(envelope(&endless.replace("result", "method")), Some((Some(json!(7)), true)));
        for broken in
            ["{\"id\": 1", "{", "{\"a\": \"\\ud83d", "{\"a\": \"\\u", "nonsense", "\\", "{\"a\":\"\\ud83d\\u\"}"]
        {
            assert_eq!(envelope(broken), None, "{broken}");
        }
    }
}
