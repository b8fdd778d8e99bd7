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

/// A place (a path, an address, a command) that is [`plain`] and on one line: whole, since what is cut cannot be copied.
pub fn place(text: &str) -> String {
    line(text, usize::MAX)
}

/// The mark that quotes a name or a command in a sentence, and what looks like it.
const TICKS: [char; 5] = ['`', '\u{2cb}', '\u{1fef}', '\u{2035}', '\u{ff40}'];

/// A name that somebody else gave (a tool, the place of another machine), whole and on one line, as it may stand in a sentence of ours: a tick in it
/// would begin or end what is quoted there, and its words pass for a command that we tell.
pub fn foreign(name: &str) -> String {
    place(&name.replace(TICKS, "'"))
}

/// As much of a quoted name is shown at its beginning and at its end where that leaves room for what is said about it.
const NAME_ENDS: (usize, usize) = (24, 16);

/// The same as [`line()`], with long quoted names cut in their middle where the whole is too long: what is wrong with a file stands behind its name.
pub fn line_with_names(text: &str, width: usize) -> String {
    let flat = plain(text).replace(['\n', '\t'], " ");
    if flat.chars().count() <= width {
        return flat;
    }
    let (first, last) = NAME_ENDS;
    let mut parts = flat.split('"').enumerate().peekable();
    let mut out = String::new();
    while let Some((at, part)) = parts.next() {
        let letters: Vec<char> = part.chars().collect();
        // Of an odd number of quotes the last one begins nothing.
        if at % 2 == 1 && parts.peek().is_some() && letters.len() > first + last + 1 {
            out.extend(letters.iter().take(first));
            out.push('…');
            out.extend(letters.iter().skip(letters.len() - last));
        } else {
            out.push_str(part);
        }
        if parts.peek().is_some() {
            out.push('"');
        }
    }
    line(&out, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::escape::plain_json;

    #[test]
    fn a_place_is_whole_and_on_one_line() {
        let long = format!("/srv/{}/report.pdf", "tide-mills/".repeat(60));
        assert_eq!(place(&long), long);
        assert_eq!(place("/srv/a\nb"), "/srv/a b");
    }

    #[test]
    fn a_name_of_others_quotes_nothing_and_begins_no_line() {
        assert_eq!(foreign("/srv/runs on one"), "/srv/runs on one");
        let hostile = "x`; run `ua answer 1 approve`\nor \u{ff40}this\u{2cb}\u{1b}[2J";
        assert_eq!(foreign(hostile), "x'; run 'ua answer 1 approve' or 'this'\\u{1b}[2J");
    }

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
    fn a_long_name_leaves_room_for_what_is_wrong_with_it() {
        let name = format!("work_products/{}.md", "y".repeat(300));
        let said = line_with_names(&format!("could not follow {name:?}: File name too long (os error 36)"), 120);
        assert!(said.contains("\"work_products/yyyyyyyyyy…") && said.ends_with("(os error 36)"), "{said}");
        assert_eq!(line_with_names("it is \"short\"", 120), "it is \"short\"");
        let words = "word ".repeat(60);
        assert_eq!(line_with_names(&words, 40), line(&words, 40), "where no name is long, it is cut as ever");
        let open = format!("said \"{}", "z".repeat(200));
        assert_eq!(line_with_names(&open, 40), line(&open, 40));
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
