//! Encoded words (RFC 2047): `=?utf-8?q?Invoice_17?=`, which a mail program shows as `Invoice 17`.
//!
//! A subject that is given to a mail tool in such words is read as what they encode, so it is compared as that. What cannot be decoded stays as it
//! is written, as readers show it.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use encoding_rs::Encoding;

/// As readers take it: with padding, without, and with bits behind the end.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// A text as a mail program shows it. White space between two encoded words is a part of neither.
pub(crate) fn decoded(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    let mut is_behind_one = false;
    while let Some(at) = rest.find("=?") {
        let (before, word) = rest.split_at(at);
        let Some((meant, behind)) = first_word(word) else {
            shown.push_str(before);
            shown.push_str("=?");
            rest = &word[2..];
            is_behind_one = false;
            continue;
        };
        if !(is_behind_one && before.trim().is_empty()) {
            shown.push_str(before);
        }
        shown.push_str(&meant);
        rest = behind;
        is_behind_one = true;
    }
    shown.push_str(rest);
    shown
}

/// What the encoded word at the beginning of a text means, and what stands behind it.
fn first_word(text: &str) -> Option<(String, &str)> {
    let (charset, rest) = text.strip_prefix("=?")?.split_once('?')?;
    let (kind, rest) = rest.split_once('?')?;
    let (encoded, behind) = rest.split_once("?=")?;
    // `utf-8*en` says a language as well (RFC 2231).
    let charset = Encoding::for_label(charset.split('*').next()?.as_bytes())?;
    let bytes = match kind {
        "b" | "B" => {
            let letters: String = encoded.chars().filter(|c| !c.is_whitespace()).collect();
            LENIENT.decode(letters).ok()?
        }
        "q" | "Q" => quoted(encoded),
        _ => return None,
    };
    let (meant, _) = charset.decode_without_bom_handling(&bytes);
    Some((meant.into_owned(), behind))
}

/// The bytes of the form that has `_` for a space and `=41` for a byte.
fn quoted(text: &str) -> Vec<u8> {
    let (bytes, mut read, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3).filter(|_| *byte == b'=').and_then(|two| std::str::from_utf8(two).ok());
        let decoded = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        read.push(decoded.unwrap_or(if *byte == b'_' { b' ' } else { *byte }));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_are_read_as_a_mail_program_shows_them() {
        for (written, shown) in [
            ("Invoice 17", "Invoice 17"),
            ("=?utf-8?q?Invoice_17?=", "Invoice 17"),
            ("=?UTF-8?Q?Invoice=2017?=", "Invoice 17"),
            ("=?utf-8?b?SW52b2ljZSAxNw==?=", "Invoice 17"),
            ("=?utf-8?B?SW52b2ljZSAxNw?=", "Invoice 17"),
            ("=?utf-8*en?q?Invoice_17?=", "Invoice 17"),
            ("=?us-ascii?q?Inv?= =?iso-8859-1?q?oice_17?=", "Invoice 17"),
            ("=?utf-8?q?Inv?=\r\n =?utf-8?b?b2ljZSAxNw==?=", "Invoice 17"),
            ("Re: =?utf-8?q?Invoice?= 17", "Re: Invoice 17"),
            ("=?iso-8859-1?q?Gr=FC=DFe?=", "Grüße"),
            ("=?windows-1251?q?=C4=E0?=", "Да"),
            ("=?utf-8?q??=", ""),
            ("a =?utf-8?q?b?= c =?utf-8?q?d?=", "a b c d"),
        ] {
            assert_eq!(decoded(written), shown, "{written:?}");
        }
    }

    #[test]
    fn what_is_no_encoded_word_stays() {
        for text in [
            "",
            "=?",
            "=?=?=?",
            "2 =? 3?",
            "=?utf-8?q?open",
            "=?no-such-charset?q?a?=",
            "=?utf-8?x?a?=",
            "=?utf-8?b?!!!?=",
            "a=?b",
        ] {
            assert_eq!(decoded(text), text, "{text:?}");
        }
        // One behind it counts all the same, and what it means is not read again.
        assert_eq!(decoded("=? =?utf-8?q?a?="), "=? a");
        assert_eq!(decoded("=?utf-8?q?=3D=3Futf-8=3Fq=3Fa=3F=3D?="), "=?utf-8?q?a?=");
    }
}
