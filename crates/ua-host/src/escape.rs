//! Making text harmless for a terminal. Nothing of ours but this and which characters are hidden: the fuzz target `terminal` includes the file
//! as it is.

use ua_core::is_hidden;

/// Makes foreign text harmless for a terminal: control characters (escape sequences among them), bidirectional overrides
/// and whatever else nobody sees are shown as what they are. Line breaks and tabs stay.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// JSON in which no character drives a terminal: what may stand unescaped in a string, and should not be seen raw, is escaped.
pub fn plain_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            // Beyond the first plane JSON writes a pair.
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}
