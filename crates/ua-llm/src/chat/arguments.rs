//! The arguments of a call while they arrive, and whether they are a whole object by now.
//!
//! Servers differ in whether a piece that names a function goes on with a call or begins the next one, and that hangs on whether the call is
//! whole. So it is asked with every piece, and reading all that has come with every piece would cost the square of it: what opens and closes is
//! followed as it comes, and what has just closed is read, once (threat S23).

use std::sync::OnceLock;

use serde_json::{Map, Value};
use ua_core::parse_strict;

/// What has come of them.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    text: String,
    scan: Scan,
    /// The object that they are, once they were read; nothing of what is none.
    read: OnceLock<Option<Map<String, Value>>>,
}

/// Where a text stands that may be an object.
#[derive(Debug, Default)]
struct Scan {
    stands: Stands,
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stands {
    /// Nothing but blanks has come.
    #[default]
    Before,
    /// What was opened is not closed.
    Inside,
    /// It is closed, and nothing but blanks came behind it.
    Closed,
    /// Whatever comes, it is no object.
    Never,
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

impl Scan {
    fn take(&mut self, piece: &str) {
        for byte in piece.bytes() {
            match self.stands {
                Stands::Never => return,
                Stands::Before | Stands::Closed if is_blank(byte) => {}
                Stands::Before if byte == b'{' => (self.stands, self.depth) = (Stands::Inside, 1),
                Stands::Before | Stands::Closed => self.stands = Stands::Never,
                Stands::Inside if self.is_escaped => self.is_escaped = false,
                Stands::Inside if self.is_in_text => match byte {
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_in_text = false,
                    _ => {}
                },
                Stands::Inside => match byte {
                    b'"' => self.is_in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            self.stands = Stands::Closed;
                        }
                    }
                    _ => {}
                },
            }
        }
    }
}

impl Arguments {
    pub(super) fn push(&mut self, piece: &str) {
        let before = self.scan.stands;
        self.text.push_str(piece);
        self.scan.take(piece);
        if (before, self.scan.stands) != (Stands::Closed, Stands::Closed) {
            self.read = OnceLock::new();
        }
    }

    /// This stands in the place of what has come.
    pub(super) fn replace(&mut self, whole: &str) {
        *self = Self::default();
        self.push(whole);
    }

    /// The object that they are, if they are a whole one.
    pub(super) fn object(&self) -> Option<&Map<String, Value>> {
        if self.scan.stands != Stands::Closed {
            return None;
        }
        let read = || match parse_strict(&self.text) {
            Ok(Value::Object(object)) => Some(object),
            Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) | Err(_) => None,
        };
        self.read.get_or_init(read).as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Over all texts of some signs, cut in two anywhere: they are an object exactly where a reader says so.
    #[test]
    fn what_is_followed_is_what_a_reader_says() {
        let signs = ["{", "}", "\"a\"", ":", "[", "]", "1", ",", " ", "\"\\\"}\"", "x"];
        let mut texts = vec![String::new()];
        let mut objects = 0;
        for _ in 0..5 {
            let more = texts.iter().flat_map(|text| signs.iter().map(move |sign| format!("{text}{sign}")));
            texts = more.collect();
            for text in &texts {
                let wanted = parse_strict(text).ok().and_then(|value| value.as_object().cloned());
                for cut in [0, text.len() / 2, text.len().saturating_sub(1)]
                    .into_iter()
                    .filter(|cut| text.is_char_boundary(*cut))
                {
                    let mut arguments = Arguments::default();
                    arguments.push(&text[..cut]);
                    arguments.object();
                    arguments.push(&text[cut..]);
                    assert_eq!(arguments.object().cloned(), wanted, "{text} cut at {cut}");
                }
                objects += usize::from(wanted.is_some());
            }
        }
        assert!(objects > 20, "{objects}");
    }

    /// Asked with every piece, they are read when they close, and not once more for what comes behind.
    #[test]
    fn s23_arguments_are_read_when_they_close_and_not_with_every_piece() {
        let mut arguments = Arguments::default();
        let (mut reads, mut was_read) = (0, false);
        let pieces = ["{\"a\": \""].into_iter().chain(std::iter::repeat_n("}", 5_000)).chain(["\"}"]);
        for piece in pieces.chain(std::iter::repeat_n(" ", 5_000)).chain(std::iter::repeat_n("}", 5_000)) {
            arguments.push(piece);
            arguments.object();
            let is_read = arguments.read.get().is_some();
            reads += u32::from(is_read && !was_read);
            was_read = is_read;
        }
        assert_eq!((reads, arguments.object()), (1, None));
        arguments.replace("{}");
        assert_eq!(arguments.object().cloned().map(Value::Object), Some(json!({})));
    }
}
