//! Halves of characters in JSON, as they come where somebody cut a text between the two surrogates of one.

/// How many bytes an escape has (`\ud83d`).
const ESCAPE: usize = 6;

/// An escape that is half a character and has not its other half beside it. No text holds one, so no parser of JSON reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HalfCharacter {
    /// Where its backslash stands. It has six bytes.
    pub at: usize,
    /// Whether it is the first half of its character.
    pub is_first: bool,
}

impl HalfCharacter {
    /// The bytes that it takes.
    pub fn range(self) -> std::ops::Range<usize> {
        self.at..self.at + ESCAPE
    }
}

/// The escape that begins at a backslash: how many bytes belong to it, its other half included where that stands behind it, and which half of a
/// character it is alone.
pub(crate) fn escape(json: &[u8], at: usize) -> (usize, Option<HalfCharacter>) {
    let unit = |at: usize| {
        let digits = json.get(at..at + ESCAPE)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    match unit(at) {
        Some(0xD800..=0xDBFF) if matches!(unit(at + ESCAPE), Some(0xDC00..=0xDFFF)) => (2 * ESCAPE, None),
        Some(half @ 0xD800..=0xDFFF) => (ESCAPE, Some(HalfCharacter { at, is_first: half < 0xDC00 })),
        Some(_) => (ESCAPE, None),
        // Whatever follows a backslash belongs to it.
        None => (2.min(json.len() - at), None),
    }
}

/// The halves of characters in a JSON text, in their order.
pub fn half_characters(json: &[u8]) -> Vec<HalfCharacter> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(backslash) = json[at..].iter().position(|byte| *byte == b'\\') {
        at += backslash;
        let (length, half) = escape(json, at);
        found.extend(half);
        at += length;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_its_other_half_beside_it_is_whole() {
        let found = |json: &str| {
            half_characters(json.as_bytes()).into_iter().map(|half| (half.at, half.is_first)).collect::<Vec<_>>()
        };
        for whole in
            ["", r#""a""#, r#""\ud83d\ude00""#, r#""\\ud83d""#, r#""\u00e4""#, r#""\ud8""#, "\\", r#""\u+d83""#]
        {
            assert_eq!(found(whole), [], "{whole}");
        }
        assert_eq!(found(r#""\ud83d""#), [(1, true)]);
        assert_eq!(found(r#""\uDE00 \ud83d\ud83d\ude00""#), [(1, false), (8, true)]);
        assert_eq!(found(r#""\ude00\ud83d""#), [(1, false), (7, true)]);
        assert_eq!(found(r#""\\\ud83d\u0041""#), [(3, true)]);
    }
}
