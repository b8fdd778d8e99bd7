//! Foreign text as people are shown it.

pub use crate::escape::plain;

/// Text that is [`plain`], on one line, cut to `width` characters.
pub fn line(text: &str, width: usize) -> String {
    let flat = plain(text).replace(['\n', '\t'], " ");
    if flat.chars().count() <= width {
        return flat;
    }
    let mut cut: String = flat.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::plain_json;

    #[test]
    fn foreign_text_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c\nd");
        assert_eq!(line("one\ntwo three", 7), "one tw…");
        assert_eq!(plain_json("{\"a\": \"b\u{202e}\u{9b}c\"}"), r#"{"a": "b\u202e\u009bc"}"#);
    }
}
