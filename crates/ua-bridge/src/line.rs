//! Lines: how they are read, and how the few values of the hello are written.

use std::fmt::Write as _;
use std::io::{self, BufRead};

/// The longest line that is carried.
const LONGEST: u64 = 64 * 1024 * 1024;

/// The next line without its end; `None` at the end of the input.
pub(crate) fn next(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let read = io::Read::take(&mut *from, LONGEST).read_until(b'\n', &mut bytes)?;
    if read == 0 {
        return Ok(None);
    }
    if bytes.pop_if(|last| *last == b'\n').is_none() && read as u64 == LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 64 MiB"));
    }
    bytes.pop_if(|last| *last == b'\r');
    String::from_utf8(bytes).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
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
    fn lines_end_as_they_end() {
        let mut input: &[u8] = b"one\r\n\ntwo\nlast";
        let mut lines = Vec::new();
        while let Some(line) = next(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["one", "", "two", "last"]);
        assert!(next(&mut &b"\xff\n"[..]).is_err());
        assert_eq!(quoted("a\"\\\n\u{1}ä"), "\"a\\\"\\\\\\u000a\\u0001ä\"");
    }
}
