//! Escapes that may be none: the sign of one in front of digits that are meant as they are.
//!
//! `\x636f` is what C has for `c6f` and what PostgreSQL has for the bytes `63 6f`. Nobody can tell which, so what stands behind such a sign is
//! read without it as well, beside the text in which it is resolved: where there are as many digits as a secret has, or letters of base64 as a
//! line has, or what a known secret begins with.

use super::view::View;
use super::{Form, Look, MIN_BYTES};

/// How far behind such a sign is read, in bytes.
const REACH: usize = 8 * 1024;
/// How much is read so, in lengths of the text, and a little for short ones.
const GROWTH: usize = 1;
const GROWTH_OF_SHORT: usize = 4 * 1024;
/// How much longer a secret may be in escapes than the longest of its forms, which is in two digits for each byte.
const DRESSED: usize = 4;
/// The shortest stretch of letters and digits that is no word.
const MIN_LETTERS: usize = 24;

/// What stands between two stretches: a byte of no text.
const APART: u8 = 0xFF;

/// What the known forms begin with.
#[derive(Debug, Default)]
pub(super) struct Beginnings(Vec<[u8; 2]>);

impl Beginnings {
    pub(super) fn of(forms: &[Form]) -> Self {
        let of_text = forms.iter().filter(|form| matches!(form.look, Look::Text | Look::View));
        let mut all: Vec<[u8; 2]> = of_text.filter_map(|form| form.bytes.first_chunk().copied()).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    fn has(&self, text: &[u8]) -> bool {
        text.first_chunk().is_some_and(|two| self.0.binary_search(two).is_ok())
    }
}

/// What stands behind signs that may begin no escape; nothing where there is none.
///
/// Of digits and letters no more is read than there are in a row: there is no sign among them, so nothing of it is read so again. What a layer
/// costs is taken from what is left for all others.
pub(super) fn read(text: &View, beginnings: &Beginnings, longest: usize) -> Option<View> {
    let bytes = &text.bytes;
    let most = GROWTH.saturating_mul(bytes.len()).saturating_add(GROWTH_OF_SHORT);
    let mut view = View::default();
    for at in memchr::memchr3_iter(b'%', b'&', b'\\', bytes) {
        let rest = &bytes[at..];
        for (from, length) in signs(rest).filter_map(|sign| {
            let behind = &rest[sign..];
            meant(behind, sign, rest, beginnings, longest).map(|length| (at + sign, length))
        }) {
            if view.bytes.len() >= most {
                return Some(view);
            }
            let to = bytes.len().min(from + length.min(REACH));
            (from..to).for_each(|at| view.push(bytes[at], text.spans[at]));
            view.push(APART, text.spans[to - 1]);
        }
    }
    (!view.bytes.is_empty()).then_some(view)
}

/// How long a sign may be that stands there: `%`, `\`, `\x`, `\u`, `\U`, `&#`, `&#x`.
fn signs(rest: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let longer = match rest {
        [b'&', b'#', b'x' | b'X', ..] => Some(3),
        [b'\\', b'x' | b'X' | b'u' | b'U', ..] | [b'&', b'#', ..] => Some(2),
        _ => None,
    };
    let is_followed = rest.get(1).is_some_and(u8::is_ascii_alphanumeric);
    is_followed.then_some(1).into_iter().chain(longer)
}

/// How much of what stands behind a sign may be meant without it.
fn meant(behind: &[u8], sign: usize, rest: &[u8], beginnings: &Beginnings, longest: usize) -> Option<usize> {
    // Only what an escape takes with it is missed.
    let takes_digits = match rest {
        [b'%', ..] => behind.first().is_some_and(u8::is_ascii_hexdigit),
        [b'\\', b'0'..=b'7', ..] => true,
        _ => sign > 1 && behind.first().is_some_and(u8::is_ascii_hexdigit),
    };
    if beginnings.has(behind) {
        return Some(DRESSED * longest.max(MIN_BYTES));
    }
    takes_digits.then(|| digits(behind).or_else(|| letters(behind))).flatten()
}

/// How long what a text begins with is, if it has as many hexadecimal digits as a secret has, maybe set apart.
fn digits(text: &[u8]) -> Option<usize> {
    let is_between = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b':' | b'-' | b',' | b'_' | b'.');
    let length = text.iter().take(REACH).take_while(|byte| byte.is_ascii_hexdigit() || is_between(**byte)).count();
    let all = text[..length].iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    (all >= 2 * MIN_BYTES).then_some(length)
}

/// How long what a text begins with is, if it may be a line of base64.
fn letters(text: &[u8]) -> Option<usize> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    let line = text.iter().take(REACH).take_while(|byte| is_letter(**byte)).count();
    let all = text.iter().take(REACH).take_while(|byte| is_letter(**byte) || byte.is_ascii_whitespace()).count();
    (line >= MIN_LETTERS).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::Redactor;

    const SECRET: &str = "correct horse battery staple";

    fn hex(text: &str) -> String {
        text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }

    #[test]
    fn digits_behind_the_sign_of_an_escape_are_read_as_they_are() {
        let redactor = Redactor::new([("K".to_owned(), SECRET.to_owned())]);
        let digits = hex(SECRET);
        let spaced: Vec<String> = SECRET.bytes().map(|byte| format!("{byte:02X}")).collect();
        let (base64, twice) =
            ("Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==", hex("Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ=="));
        for digits in [&digits, &digits.to_uppercase(), &spaced.join(" "), &spaced.join(":"), base64, &twice] {
            for sign in [
                "\\x", "\\x ", "\\\\x", "\\X", "%", "&#", "&#x", "\\u", "\\U", "\\", "\\0", "\\1", "\\2", "\\3", "\\4",
                "C:\\", "=", "0x", "x'", "%25", "&amp;#",
            ] {
                for (before, after) in
                    [("", ""), (" id | secret\n 1 | ", "\n(1 row)\n"), ("('", "');"), ("[{\"secret\":\"", "\"}]")]
                {
                    let clean = redactor.text(&format!("{before}{sign}{digits}{after}")).into_owned();
                    assert!(clean.contains("[secret K]") && !clean.contains("63 6"), "{sign} {digits}: {clean}");
                    assert!(clean.starts_with(before) && clean.ends_with(after), "{clean}");
                }
            }
        }
    }

    #[test]
    fn what_a_secret_begins_with_may_be_taken_for_an_escape() {
        let redactor = Redactor::new([("K".to_owned(), "4a/b c&d-1234".to_owned())]);
        for dressed in
            ["%4a%2Fb%20c%26d-1234", "\\x4a\\x2fb c&amp;d-1234", "&#4a/b c&amp;d-1234", "\\u4a/b c&amp;d-1234"]
        {
            let clean = redactor.text(dressed);
            assert!(clean.contains("[secret K]") && !clean.contains("1234"), "{dressed}: {clean}");
        }
    }

    /// Each line of a dump may end in the sign of an escape, and digits follow: what is read so takes nothing from what else is looked at.
    #[test]
    fn signs_in_front_of_the_lines_of_a_dump_cost_little() {
        let text = "00000010: 78323426 23783263 26237832 32262378  &#x24&#x2\n".repeat(40);
        let view = read(&View::of(&text), &Beginnings::default(), 64).unwrap();
        assert!(view.bytes.len() < 2 * text.len(), "{}", view.bytes.len());
        assert!(read(&view, &Beginnings::default(), 64).is_none());
    }

    #[test]
    fn what_is_an_escape_and_nothing_else_has_no_other_reading() {
        let forms = Vec::new();
        for text in [
            "50 %",
            "a%20b",
            "gr\\u00fcn ist es",
            "&#228;hnlich",
            "C:\\users",
            "\\x41\\x42\\x43\\x44\\x45\\x46\\x47\\x48",
            "a\\nb",
            "&",
        ] {
            assert!(read(&View::of(text), &Beginnings::of(&forms), 0).is_none(), "{text}");
        }
    }
}
