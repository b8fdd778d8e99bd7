//! Lines: how they are read, and how the few values of the hello are written.
//!
//! A line is what ends as one. Whoever is killed in the middle of a line, or in front of its end, leaves its beginning behind, which may look like
//! a message; it is nothing that anybody said, and stands in a variant of its own. `cut_anywhere_only_whole_lines_are_lines` tries each place.

use std::fmt::Write as _;
use std::io::{self, BufRead};

/// The longest line that is carried.
const LONGEST: u64 = 64 * 1024 * 1024;

/// How much of a line that is not carried is kept, to find whose it is.
const KEPT: usize = 64 * 1024;

/// What came up to the end of a line, or of the input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// One that is carried, without its end.
    Text(String),
    /// One that is not: how it begins, and why.
    Unreadable { begin: String, why: &'static str },
    /// The beginning of one whose end never came: the last that is read.
    Torn { begin: String },
}

/// The next line; `None` at the end of the input. One that is no text or too long is passed over whole, and does not end anything.
pub(crate) fn next(from: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    let read = io::Read::take(&mut *from, LONGEST).read_until(b'\n', &mut bytes)?;
    if read == 0 {
        return Ok(None);
    }
    if bytes.pop_if(|last| *last == b'\n').is_none() {
        let is_too_long = read as u64 == LONGEST;
        bytes.truncate(KEPT);
        let begin = String::from_utf8_lossy(&bytes).into_owned();
        if !is_too_long {
            return Ok(Some(Line::Torn { begin }));
        }
        from.skip_until(b'\n')?;
        return Ok(Some(Line::Unreadable { begin, why: "it is longer than 64 MiB" }));
    }
    bytes.pop_if(|last| *last == b'\r');
    Ok(Some(String::from_utf8(bytes).map_or_else(
        |error| Line::Unreadable {
            begin: String::from_utf8_lossy(error.as_bytes()).into_owned(),
            why: "it is not UTF-8",
        },
        Line::Text,
    )))
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for c in text.chars() {
        match c {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            c if c < ' ' || c == '\u{7f}' => {
                // A `String` takes whatever is written to it.
                let _always = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
    json
}

/// Names and texts as JSON.
pub(crate) fn object<'a>(entries: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let entries: Vec<String> = entries.map(|(name, value)| format!("{}:{}", quoted(name), quoted(value))).collect();
    format!("{{{}}}", entries.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_not_carried_is_passed_over() {
        let mut long = b"{\"id\":1,\"x\":\"".to_vec();
        long.resize(usize::try_from(LONGEST).unwrap() + 7, b'x');
        long.extend_from_slice(b"\nafter\n\xff\nlast");
        let mut input: &[u8] = &long;
        let Some(Line::Unreadable { begin, why }) = next(&mut input).unwrap() else { panic!("it was carried") };
        assert!(begin.starts_with("{\"id\":1,") && begin.len() == KEPT && why.contains("64 MiB"));
        assert_eq!(next(&mut input).unwrap(), Some(Line::Text("after".to_owned())));
        assert!(matches!(next(&mut input), Ok(Some(Line::Unreadable { why: "it is not UTF-8", .. }))));
        assert_eq!(next(&mut input).unwrap(), Some(Line::Torn { begin: "last".to_owned() }));
        assert_eq!(next(&mut input).unwrap(), None);
    }

    /// Cut at each place, what comes is the lines that were whole by then, and the beginning of one.
    #[test]
    fn cut_anywhere_only_whole_lines_are_lines() {
        let text = b"R 1 {}\r\n12\n\n{\"id\":1}\n34";
        for cut in 0..=text.len() {
            let mut input = &text[..cut];
            let (mut whole, mut torn) = (Vec::new(), Vec::new());
            while let Some(line) = next(&mut input).unwrap() {
                match line {
                    Line::Text(line) => whole.push(line),
                    Line::Torn { begin } => torn.push(begin),
                    Line::Unreadable { begin, .. } => panic!("{cut}: {begin}"),
                }
            }
            let ends = text[..cut].split(|byte| *byte == b'\n').count() - 1;
            assert_eq!(whole, ["R 1 {}", "12", "", "{\"id\":1}"][..ends].to_vec(), "{cut}");
            let rest = text[..cut].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            let rest = String::from_utf8(rest.to_vec()).unwrap();
            assert_eq!(torn, [rest].into_iter().filter(|rest| !rest.is_empty()).collect::<Vec<_>>(), "{cut}");
        }
    }

    #[test]
    fn lines_end_as_they_end() {
        let mut input: &[u8] = b"one\r\n\ntwo\nlast\n";
        let mut lines = Vec::new();
        while let Some(line) = next(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", "two", "last"].map(|line| Line::Text(line.to_owned())));
        assert_eq!(quoted("a\"\\\n\u{1}ä"), "\"a\\\"\\\\\\u000a\\u0001ä\"");
    }
}
