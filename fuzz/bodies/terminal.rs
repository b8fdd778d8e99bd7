//! Text that was made harmless holds nothing that drives a terminal, says the same otherwise, and is not changed again.

use super::escape::{plain, plain_json};

pub(crate) fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let shown = plain(&text);
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{shown:?}");
    assert!(
        !shown.contains([
            '\u{202e}',
            '\u{2066}',
            '\u{200b}',
            '\u{feff}',
            '\u{ad}',
            '\u{3164}',
            '\u{2028}',
            '\u{e0041}'
        ]),
        "{shown:?}"
    );
    assert_eq!(plain(&shown), shown);
    if text.chars().all(|c| c.is_ascii_graphic() || c == ' ' || c == '\n') {
        assert_eq!(shown, text);
    }
    let json = serde_json::Value::String(text.into_owned());
    let written = plain_json(&json.to_string());
    assert_eq!(serde_json::from_str::<serde_json::Value>(&written).ok(), Some(json), "{written}");
}
