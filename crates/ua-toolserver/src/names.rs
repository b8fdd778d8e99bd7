//! Names that leave: of a file in an archive, in a mail, in a store, on the workbench.
//!
//! Here a name is what stands there. Whoever reads it elsewhere may take it for something else: another folder, another file, a line of a mail. So
//! whatever sends a name away asks here first, and a name of which that is known does not leave.

/// What is wrong with the name of a file, if another program may take it for another one than a person here has read; the end of a sentence that
/// begins with the name. It is one name, and not a path.
pub(crate) fn misread(name: &str) -> Option<&'static str> {
    let mut letters = name.chars();
    let has_drive = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && letters.next() == Some(':');
    if name.contains('\\') {
        return Some("has a `\\` in it, which separates folders on other systems");
    }
    if has_drive {
        return Some("begins with a letter and `:`, which is a drive on other systems");
    }
    misread_in_a_mail(name)
}

/// The same of the name of a person, or of a file, as far as it is about lines of a mail.
pub(crate) fn misread_in_a_mail(name: &str) -> Option<&'static str> {
    if name.chars().any(|c| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
        return Some("has a line break or another control character in it");
    }
    if name.chars().any(turns) {
        return Some("has a character in it that changes the direction in which it is shown");
    }
    has_encoded_word(name).then_some("has an encoded word (`=?…?=`) in it, which mail programs decode")
}

/// The first character of a text that drives a terminal, and that no line of a mail may have (RFC 5322 §2.2, §3.5).
pub(crate) fn driving(text: &str) -> Option<char> {
    text.chars().find(|c| c.is_control() && !matches!(c, '\t' | '\r' | '\n'))
}

/// Whether a mail program would show something else than stands there (RFC 2047): who approved the words, and what compares them with those of
/// earlier messages, saw what is written.
pub(crate) fn has_encoded_word(text: &str) -> bool {
    text.split_once("=?").is_some_and(|(_, rest)| rest.contains("?="))
}

/// Whether a character orders those around it otherwise than they stand.
fn turns(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_another_one_elsewhere_does_not_leave() {
        for name in [
            "..\\..\\evil.bat",
            "\\\\host\\share",
            "C:evil.txt",
            "c:",
            "a\r\nBcc: x",
            "a\0b",
            "\u{1b}]0;x\u{7}.txt",
            "a\u{85}b",
            "a\u{2028}b",
            "r\u{202e}txt.exe",
            "\u{200f}a",
            "=?utf-8?q?a=2Eexe?=.txt",
        ] {
            assert!(misread(name).is_some(), "{name:?}");
        }
        for name in ["report v1.pdf", "10:30.log", "Überblick ❤\u{fe0f}.md", "a=b?.txt", "-rf", "q\";x=\"y.txt", "..."]
        {
            assert_eq!(misread(name), None, "{name:?}");
        }
    }
}
