//! Foreign text as people are shown it.

pub use crate::escape::plain;
pub use ua_core::nearest;

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
    fn a_typing_error_has_a_nearest_name_and_another_word_has_none() {
        let names = ["github", "google-calendar", "slack"];
        for (typed, meant) in
            [("githb", Some("github")), ("GitHub", Some("github")), ("gogle-calendar", Some("google-calendar"))]
        {
            assert_eq!(nearest(typed, names), meant, "{typed}");
        }
        assert_eq!(nearest("postgres", names), None);
        assert_eq!(nearest("x", []), None);
        // Ends of ids, which share nothing but their alphabet.
        assert_eq!(nearest("7dc39828", ["04204fd2", "7dc39827"]), Some("7dc39827"));
        assert_eq!(nearest("7dc39828", ["04204fd2", "b03ee109"]), None);
    }

    #[test]
    fn foreign_text_cannot_drive_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c\nd");
        for unseen in
            ['\u{ad}', '\u{115f}', '\u{3164}', '\u{fe0f}', '\u{ffa0}', '\u{17b4}', '\u{1d173}', '\u{e0100}', '\u{2064}']
        {
            assert_eq!(plain(&format!("a{unseen}b")), format!("a{}b", unseen.escape_unicode()));
        }
        assert_eq!(plain("äöü 日本 한 ❤"), "äöü 日本 한 ❤");
        assert_eq!(line("one\ntwo three", 7), "one tw…");
        assert_eq!(plain_json("{\"a\": \"b\u{202e}\u{9b}c\"}"), r#"{"a": "b\u202e\u009bc"}"#);
    }
}
