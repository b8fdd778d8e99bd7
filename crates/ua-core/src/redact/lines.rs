//! Readings of lines: what stands behind the marks of a comment, a quotation, a difference or a listing; escapes that a line ends within; and
//! texts with what a terminal takes for itself between their letters.
//!
//! Like all readings they are looked at beside the text. So it is enough that a line may be meant so: no list says what a mark is.

use super::MIN_BYTES;
use super::view::{Span, View};

/// The longest word that stands in front of what is set off, and how many of them there may be: `//`, `REM`, `dnl`, `0012`, `12 +`.
const LONGEST_MARK: usize = 8;
const MOST_MARKS: usize = 3;

/// The lines of a text: where each begins and ends, without white space around it.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = text.get(from..).filter(|rest| !rest.is_empty())?;
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let line = &rest[..length];
        let begin = from + (length - line.trim_ascii_start().len());
        let end = (from + line.trim_ascii_end().len()).max(begin);
        from += length + 1;
        Some((begin, end))
    })
}

/// Whether something may be a line of base64 or of hexadecimal digits, or a piece of a secret: one word, or digits in groups.
fn is_coded(rest: &[u8]) -> bool {
    !rest.is_empty()
        && (rest.iter().all(|byte| !byte.is_ascii_whitespace())
            || rest.iter().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace()))
}

/// Where in a line that begins there what is set off begins: behind words, or behind a number with a sign (`12:`).
fn behind_marks(line: &[u8]) -> Option<usize> {
    let mut at = 0;
    for _ in 0..MOST_MARKS {
        let word = line[at..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
        let behind = at + word;
        let begin = behind + line[behind..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if word > LONGEST_MARK || begin == line.len() {
            break;
        }
        if is_coded(&line[begin..]) {
            return Some(begin);
        }
        at = begin;
    }
    let number = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_numbered = number > 0 && number < LONGEST_MARK && matches!(line.get(number), Some(b':' | b'|' | b')'));
    (is_numbered && is_coded(&line[number + 1..])).then_some(number + 1)
}

/// How many signs a line begins with that may be a mark without white space behind it: `//`, `--`, `+`, `%`.
fn signs(line: &[u8]) -> usize {
    if !is_coded(line) {
        return 0;
    }
    line.iter().take(4).take_while(|byte| byte.is_ascii_punctuation()).count()
}

/// Calls `take` for each stretch of at least two lines that may stand behind marks: with where in each of them what is set off begins and ends.
fn stretches(text: &[u8], mut take: impl FnMut(&[(usize, usize)])) {
    // Of lines behind words, and of lines behind signs, which are the same ones in all lines.
    let mut words: Vec<(usize, usize)> = Vec::new();
    let mut marked: Vec<(usize, usize)> = Vec::new();
    let mut mark: &[u8] = b"";
    let mut end_of = |stretch: &mut Vec<(usize, usize)>, mark: usize| {
        for (begin, end) in stretch.iter_mut() {
            *begin = (*begin + mark).min(*end);
        }
        if stretch.len() > 1 && stretch.iter().map(|(begin, end)| end - begin).sum::<usize>() >= MIN_BYTES {
            take(stretch);
        }
        stretch.clear();
    };
    for (begin, end) in lines(text) {
        let line = &text[begin..end];
        match behind_marks(line) {
            Some(at) => words.push((begin + at, end)),
            None => end_of(&mut words, 0),
        }
        let own = &line[..signs(line)];
        let common = own.iter().zip(mark).take_while(|(one, other)| one == other).count();
        if marked.is_empty() || common == 0 {
            end_of(&mut marked, mark.len());
            mark = own;
        } else {
            mark = &mark[..common];
        }
        if !own.is_empty() {
            marked.push((begin, end));
        }
    }
    end_of(&mut words, 0);
    end_of(&mut marked, mark.len());
}

/// Whether lines may stand behind marks.
pub(super) fn are_behind_words(text: &[u8]) -> bool {
    let mut found = false;
    stretches(text, |_| found = true);
    found
}

/// What stands behind marks, each stretch of lines by itself.
pub(super) fn behind_words(text: &View) -> Vec<View> {
    let mut found = Vec::new();
    stretches(&text.bytes, |stretch| {
        let mut view = View::with_capacity(stretch.iter().map(|(begin, end)| end - begin + 1).sum());
        for (begin, end) in stretch.iter().copied().filter(|(begin, end)| begin < end) {
            if let Some(last) = view.spans.last() {
                let between = Span { start: last.end, end: text.spans[begin].start };
                view.push(b'\n', between);
            }
            for at in begin..end {
                view.push(text.bytes[at], text.spans[at]);
            }
        }
        found.push(view);
    });
    found
}

/// The longest beginning of an escape in front of the end of a line: `&#x10FFF`.
const LONGEST_BEGINNING: usize = 9;

/// Whether a line may end within an escape, or within a number of a list.
pub(super) fn break_escapes(text: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', text).any(|at| {
        let before = text[..at].strip_suffix(b"\r").unwrap_or(&text[..at]);
        // A sign that joins lines.
        let joins = before.strip_suffix(b"\\");
        let before = joins.unwrap_or(before);
        let after = text[at..].trim_ascii_start().first().copied().unwrap_or(b' ');
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'#' | b'{');
        let inside = before.iter().rev().take(LONGEST_BEGINNING).take_while(|byte| is_inside(**byte)).count();
        let sign = before.len().checked_sub(inside + 1).map(|sign| before[sign]);
        // At the end of a line of quoted-printable `=` joins it with the next.
        let is_digits =
            || before[before.len() - inside..].iter().all(u8::is_ascii_hexdigit) && after.is_ascii_hexdigit();
        let is_escape = match sign {
            Some(b'&' | b'%' | b'\\') => after.is_ascii_alphanumeric() || matches!(after, b';' | b'}' | b'#' | b'{'),
            Some(b'=') => is_digits(),
            _ => false,
        };
        let is_number = matches!(sign, Some(b',' | b' ' | b'[' | b'-'))
            && after.is_ascii_digit()
            && (1..=2).contains(&inside)
            && before.last().is_some_and(u8::is_ascii_digit);
        is_escape || is_number || (joins.is_some() && begins_an_escape(Some(after)))
    })
}

/// The text with its lines joined, without what stands at their ends and beginnings for that. A backslash there joins lines, or is the first sign
/// of an escape.
pub(super) fn joined(text: &View) -> Vec<View> {
    let keeps_sign = |at: usize| begins_an_escape(text.bytes[at + 1..].trim_ascii_start().first().copied());
    let is_in_doubt = memchr::memmem::find_iter(&text.bytes, b"\\\n")
        .chain(memchr::memmem::find_iter(&text.bytes, b"\\\r\n"))
        .any(keeps_sign);
    let mut views = vec![joined_by(text, |_| true)];
    views.extend(is_in_doubt.then(|| joined_by(text, |at| !keeps_sign(at))));
    views
}

/// Whether this sign stands behind a backslash as the beginning of an escape.
fn begins_an_escape(sign: Option<u8>) -> bool {
    matches!(sign, Some(b'x' | b'u' | b'U' | b'0'..=b'3'))
}

fn joined_by(text: &View, joins_lines: impl Fn(usize) -> bool) -> View {
    let mut view = View::with_capacity(text.bytes.len());
    let mut at = 0;
    while let Some(byte) = text.bytes.get(at) {
        let rest = &text.bytes[at..];
        let joins = match rest {
            [b'\\', b'\r', b'\n', ..] if joins_lines(at) => 3,
            [b'\\', b'\n', ..] if joins_lines(at) => 2,
            [b'\r', b'\n', ..] => 2,
            [b'\n', ..] => 1,
            _ => 0,
        };
        if joins == 0 {
            view.push(*byte, text.spans[at]);
            at += 1;
        } else {
            let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t');
            at += joins + rest[joins..].iter().take_while(blank).count();
        }
    }
    view
}

/// The longest text that is taken for one of a terminal.
const LONGEST_STRING: usize = 4 * 1024;

/// How long a text is that a terminal takes for itself, and begins here: a title, the address of a link (OSC), a picture (DCS) and the like,
/// or what chooses a character set (`ESC ( B`) or another mode (`ESC =`).
fn string(text: &[u8]) -> usize {
    if let [0x1B, rest @ ..] = text
        && let mode @ 1.. = mode(rest)
    {
        return 1 + mode;
    }
    let begins = match text {
        [0x1B, b']' | b'P' | b'_' | b'^' | b'X', ..] | [0xC2, 0x90 | 0x98 | 0x9D | 0x9E | 0x9F, ..] => 2,
        _ => return 0,
    };
    let inside = &text[begins..text.len().min(LONGEST_STRING)];
    let ends = (0..inside.len()).find_map(|at| match inside[at..] {
        [0x07, ..] => Some(at + 1),
        [0x1B, b'\\', ..] | [0xC2, 0x9C, ..] => Some(at + 2),
        _ => None,
    });
    ends.map_or(0, |length| begins + length)
}

/// How long what follows an ESC is that says how a terminal behaves from there on.
fn mode(rest: &[u8]) -> usize {
    let inside = rest.iter().take(3).take_while(|byte| matches!(byte, b' '..=b'/')).count();
    match rest.get(inside) {
        Some(b'0'..=b'~') if inside > 0 => inside + 1,
        Some(b'7' | b'8' | b'=' | b'>' | b'c' | b'D' | b'E' | b'H' | b'M' | b'N' | b'O' | b'Z' | b'\\')
            if inside == 0 =>
        {
            1
        }
        _ => 0,
    }
}

/// Whether a terminal takes some of it for itself.
pub(super) fn have_strings(text: &[u8]) -> bool {
    memchr::memchr2_iter(0x1B, 0xC2, text).any(|at| string(&text[at..]) > 0)
}

/// The text as a terminal shows it.
pub(super) fn without_strings(text: &View) -> Vec<View> {
    let mut view = View::with_capacity(text.bytes.len());
    let mut at = 0;
    while let Some(byte) = text.bytes.get(at) {
        match string(&text.bytes[at..]) {
            0 => {
                view.push(*byte, text.spans[at]);
                at += 1;
            }
            length => at += length,
        }
    }
    vec![view]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(text: &str) -> Vec<String> {
        behind_words(&View::of(text)).into_iter().map(|view| String::from_utf8(view.bytes).unwrap()).collect()
    }

    #[test]
    fn what_stands_behind_the_same_marks_is_read_without_them() {
        for mark in [
            "// ", "//", "-- ", "% ", "/// ", "REM ", "dnl ", "+ ", "+", "- ", "1: ", "12:", "  7\t", "0001 ", "<!-- ",
            "12 + ",
        ] {
            let text = format!("It says so:\n{mark}abcdefghij\n{mark}klmnop\n\nand no more.");
            // A word of the line before them may be taken for one of them.
            let found = behind(&text).iter().any(|found| found.ends_with("abcdefghij\nklmnop"));
            assert!(found, "{mark:?}: {:?}", behind(&text));
        }
        // Signs that only some of the lines begin with are no mark.
        assert!(behind("//+abcdefgh\n//klmnopq").contains(&"+abcdefgh\nklmnopq".to_owned()));
        for text in [
            "",
            "one word behind another",
            "- a\n- b",
            "prose and ever more of it\nfor some lines or more\nas it likes to go",
        ] {
            assert!(!are_behind_words(text.as_bytes()), "{text:?}");
        }
    }

    #[test]
    fn a_line_that_ends_within_an_escape_is_joined_with_the_next() {
        for text in [
            "&#x3\n7;",
            "\\x\n5a",
            "\\x5\r\n  a",
            "\\13\n2",
            "=5\nA",
            "\\u{5\na}",
            "&\n#55;",
            "13, 5\n5, 7",
            "\\u00\\\n5a",
        ] {
            assert!(break_escapes(text.as_bytes()), "{text:?}");
        }
        for text in ["a line\nand another", "x = 1\n\nAnd so on", "100\n200", "a\n= b"] {
            assert!(!break_escapes(text.as_bytes()), "{text:?}");
        }
        let text = View::of("&#x3\\\r\n \t7;\n\na");
        assert_eq!(joined(&text)[0].bytes, b"&#x37;a");
    }
}
