//! How a secret may be spelled before anything dresses it: in another order of the same bits, in another character set, as a form of a web page
//! sends it, in the quotation marks of a shell, of SQL or of CSV, in large letters or in small ones alone.
//!
//! Each of these is a text that the secret is looked for as, so it costs a text nothing but the look.

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};

use super::layers::tight_of;
use super::{Look, MIN_BYTES, STANDARD, URL_SAFE, inside_base64};

/// The forms in which a value is looked for, each once.
pub(super) fn forms(value: &str) -> Vec<(Vec<u8>, Look)> {
    let mut all = Vec::new();
    let (apart, together) = (decomposed(value), composed(value));
    for spelled in [value, &apart, &together] {
        all.push((spelled.as_bytes().to_vec(), Look::Text));
        add_bytes(spelled.as_bytes(), &mut all);
        let tight = tight_of(spelled);
        all.extend(tight.iter().filter_map(|bytes| Some((latin_1(std::str::from_utf8(bytes).ok()?)?, Look::View))));
        if spelled.contains(['\'', '"']) {
            all.extend(tight.iter().map(|bytes| (without_quotes(bytes), Look::Unquoted)));
        }
        all.extend(tight.into_iter().map(|bytes| (bytes, Look::View)));
        if let Some(bytes) = latin_1(spelled) {
            add_bytes(&bytes, &mut all);
        }
    }
    // As whatever shows names in one case has it (a heading, a table of a database): wholly large or small. Any mixture of both is too many.
    for folded in [value.to_uppercase(), value.to_lowercase()] {
        let tight = tight_of(&folded).into_iter().filter(|bytes| bytes.len() >= MIN_BYTES);
        all.extend(tight.map(|bytes| (bytes, Look::View)));
    }
    // The blanks of a form of a web page; its own plus signs are escapes there.
    if value.contains(' ') {
        all.extend(tight_of(&value.replace(' ', "+")).into_iter().map(|bytes| (bytes, Look::View)));
    }
    if let Some(digits) = as_number(value) {
        all.push((digits, Look::Number));
    }
    // What is left without white space and escapes may be too little to be told from words.
    all.retain(|(bytes, look)| bytes.len() >= if *look == Look::View { super::MIN_RESOLVED } else { MIN_BYTES });
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|form| seen.insert(form.clone()));
    all
}

/// In hexadecimal digits and in base64.
fn add_bytes(value: &[u8], all: &mut Vec<(Vec<u8>, Look)>) {
    let hex = value.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    all.push((hex.map(|digit| b"0123456789abcdef"[usize::from(digit)]).collect(), Look::Digits));
    for alphabet in [STANDARD, URL_SAFE] {
        let inside = (0..3).filter_map(|offset| inside_base64(value, offset, alphabet));
        all.extend(inside.map(|text| (text.into_bytes(), Look::View)));
    }
}

/// A text in Latin-1, if it is another one there.
fn latin_1(text: &str) -> Option<Vec<u8>> {
    (!text.is_ascii()).then(|| text.chars().map(u8::try_from).collect::<Result<_, _>>().ok())?
}

/// Without the quotation marks that quoting doubles, and whatever it puts between them.
pub(super) fn without_quotes(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| !is_quoting(*byte)).collect()
}

/// Whether a sign is one that stands around texts in a shell, in SQL and in CSV.
pub(super) fn is_quoting(byte: u8) -> bool {
    matches!(byte, b'\'' | b'"')
}

/// With each letter apart from its marks (NFD), as the names of files on some systems have them.
pub(crate) fn decomposed(text: &str) -> String {
    DecomposingNormalizerBorrowed::new_nfd().normalize(text).into_owned()
}

/// With each letter and its marks as one character, where there is one (NFC).
pub(crate) fn composed(text: &str) -> String {
    ComposingNormalizerBorrowed::new_nfc().normalize(text).into_owned()
}

/// A secret that is a number, with so many digits that it is told from others by its value.
fn as_number(value: &str) -> Option<Vec<u8>> {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-'));
    let digits = value.trim_start_matches(['-', '0', '.']).bytes().filter(u8::is_ascii_digit).count();
    (is_number && digits >= MIN_BYTES && number(value.as_bytes()).is_some()).then(|| value.as_bytes().to_vec())
}

/// The value of a number, without its sign.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    number.is_finite().then(|| number.abs())
}

/// The longest number that is read.
const LONGEST_NUMBER: usize = 48;

/// Numbers with an exponent (`4.711e9`): where each begins and ends, and its value.
pub(super) fn exponents(text: &[u8]) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
    memchr::memchr2_iter(b'e', b'E', text).filter_map(|at| {
        let is_inside = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
        let before = text[..at].iter().rev().take(LONGEST_NUMBER).take_while(is_inside).count();
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        let behind = text[at + 1 + sign..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        let (begin, end) = (at - before, at + 1 + sign + behind);
        let value = (before > 0 && behind > 0).then(|| number(&text[begin..end]))??;
        Some((begin, end, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_taken_apart_and_put_together() {
        assert_eq!(decomposed("pässwört-ÿÇ"), "pa\u{308}sswo\u{308}rt-y\u{308}C\u{327}");
        assert_eq!(decomposed("Việt"), "Vie\u{323}\u{302}t");
        for text in ["plain", "pässwört-ÿÇ", "Việt", "\u{3b1}\u{301}"] {
            assert_eq!(composed(&decomposed(text)), composed(text), "{text}");
        }
        assert_eq!(latin_1("gr\u{fc}n"), Some(b"gr\xfcn".to_vec()));
        assert_eq!((latin_1("plain"), latin_1("\u{4e2d}")), (None, None));
    }

    #[test]
    fn a_secret_is_known_in_large_and_in_small_letters() {
        let redactor = crate::Redactor::new([("K".to_owned(), "Zq7-Canary-\u{e9}".to_owned())]);
        for said in [
            "Zq7-Canary-\u{e9}",
            "ZQ7-CANARY-\u{c9}",
            "zq7-canary-\u{e9}",
            "ZQ7-CANARY-\\u00c9",
            "ZQ7-CAN\n ARY-%C3%89",
        ] {
            assert_eq!(redactor.text(&format!("({said})")), "([secret K])", "{said}");
        }
        assert_eq!(redactor.text("zQ7-cANARY"), "zQ7-cANARY", "a part of it, and a mixture");
    }

    #[test]
    fn a_number_is_known_by_its_value_where_it_has_digits_enough() {
        for (text, known) in [
            ("4711081533", true),
            ("0047110815", true),
            ("0000000001", false),
            ("1.2.3.4.5.6.7.8", false),
            ("12345678x", false),
        ] {
            assert_eq!(as_number(text).is_some(), known, "{text}");
        }
        let found: Vec<_> = exponents(b"the 4.711081533e9, 12E+03 and 1e999 of e9").collect();
        let found: Vec<_> = found.into_iter().map(|(begin, end, value)| (begin, end, value.to_string())).collect();
        assert_eq!(found, [(4, 17, "4711081533".to_owned()), (19, 25, "12000".to_owned())]);
    }
}
