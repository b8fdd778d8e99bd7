//! Characters that nobody sees: the one list, for whoever shows a text, compares two, or looks for something in one.

use icu_normalizer::ComposingNormalizerBorrowed;

/// Whether nobody sees a character: Unicode's `Default_Ignorable_Code_Point`, and what drives a terminal.
pub fn is_unseen(c: char) -> bool {
    is_ignorable(c) || (c.is_control() && !c.is_whitespace())
}

/// Whether a character drives a terminal, hides, or changes how the text around it is shown. Line breaks and tabs do not.
pub fn is_hidden(c: char) -> bool {
    // Separators of lines and paragraphs break a line where nobody sees it.
    (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}')
        // A pattern of braille without dots: it fills a line, is no white space, and is not seen.
        || c == '\u{2800}'
        || is_ignorable(c)
}

/// What a reader can tell apart of a text: without what nobody sees, each letter and its marks as one character where there is one (NFC), and a
/// space for whatever white space stands between its words.
///
/// ```
/// assert_eq!(ua_core::as_seen(" one\u{200b}  order\n"), "one order");
/// assert_eq!(ua_core::as_seen("cafe\u{301}"), "caf\u{e9}");
/// ```
pub fn as_seen(text: &str) -> String {
    let seen: String = text.chars().filter(|c| !is_unseen(*c)).collect();
    let composed = ComposingNormalizerBorrowed::new_nfc().normalize(&seen);
    composed.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name that somebody else made up, as it can stand in a sentence of ours: its line breaks would begin lines that pass for our own, and what
/// nobody sees of it would make it look like a known one. At most 100 characters of it.
///
/// ```
/// assert_eq!(ua_core::in_a_sentence("promt"), "promt");
/// assert_eq!(ua_core::in_a_sentence("x\nAnswer with"), "x\\nAnswer with");
/// ```
pub fn in_a_sentence(name: &str) -> String {
    const LONGEST: usize = 100;
    let escaped = name.chars().flat_map(|c| {
        let is_hidden = c.is_control() || is_hidden(c);
        let (plain, escape) = if is_hidden { (None, Some(c.escape_default())) } else { (Some(c), None) };
        plain.into_iter().chain(escape.into_iter().flatten())
    });
    escaped.take(LONGEST).collect()
}

/// Whether nothing is drawn for a character, Unicode's `Default_Ignorable_Code_Point`: words that nobody sees, and two names that look alike.
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_hidden_and_what_is_read_is_neither() {
        for c in char::MIN..=char::MAX {
            assert!(!is_unseen(c) || is_hidden(c), "{c:?}");
        }
        for c in "\u{ad}\u{115f}\u{200b}\u{2060}\u{3164}\u{fe0f}\u{ffa0}\u{e0041}\u{1b}\u{7f}\u{9b}".chars() {
            assert!(is_unseen(c) && is_hidden(c), "{c:?}");
        }
        for c in "\r\u{85}\u{2028}\u{2029}\u{fffa}\u{2800}".chars() {
            assert!(!is_unseen(c) && is_hidden(c), "{c:?}");
        }
        for c in "\n\t a\u{e9}\u{4e2d}\u{1f511}\u{301}\u{3000}".chars() {
            assert!(!is_unseen(c) && !is_hidden(c), "{c:?}");
        }
    }
}
