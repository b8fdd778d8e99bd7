//! A text as a secret is looked for in it: bytes, each with the range of the whole text that it stands for.

use crate::unseen::is_unseen;

/// The longest entity that is read, `&#x10FFFF;` with room for zeros.
const MAX_ENTITY: usize = 16;

/// The longest name of an entity, `CounterClockwiseContourIntegral`, with room for one more.
const MAX_NAME: usize = 32;

/// How deep escapes are resolved: an address in a page in a JSON text in a JSON text.
const MAX_DEPTH: usize = 6;

/// How often something is taken away or resolved; each time takes as long as the text is.
const MAX_ROUNDS: usize = 16;

/// The shortest line of base64 behind which another one is looked for that stands behind a mark.
const LONG_LINE: usize = 12;

/// Signs that stand at the beginnings of lines of a quotation, a comment or a list.
fn is_mark(byte: u8) -> bool {
    matches!(byte, b'>' | b'#' | b'*' | b'|' | b';' | b'!' | b':')
}

/// What stands around and between texts in a list.
fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`' | b',')
}

/// What of the whole text a byte came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Bytes with where they came from.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    pub(super) spans: Vec<Span>,
    /// In front of which bytes white space was left out; nothing where that is seen by where the bytes came from.
    breaks: Option<Vec<usize>>,
}

impl View {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), spans: Vec::with_capacity(capacity), breaks: None }
    }

    pub(super) fn push(&mut self, byte: u8, span: Span) {
        self.bytes.push(byte);
        self.spans.push(span);
    }

    /// What an escape stands for that is of this span.
    pub(super) fn push_text(&mut self, text: &str, span: Span) {
        text.bytes().for_each(|byte| self.push(byte, span));
    }

    /// The text as it is; of one that is longer than addresses reach, the beginning.
    pub(super) fn of(text: &str) -> Self {
        let mut view = Self::with_capacity(text.len());
        view.take(text, |_| false);
        view
    }

    /// The text without white space, which says nothing: it is where a line was wrapped, or a number was set in groups.
    pub(super) fn tight_of(text: &str) -> Self {
        let mut view = Self::with_capacity(text.len());
        view.take(text, char::is_whitespace);
        view
    }

    fn take(&mut self, text: &str, is_left_out: impl Fn(char) -> bool) {
        for (start, character) in text.char_indices() {
            let length = character.len_utf8();
            let (Ok(from), Ok(end)) = (u32::try_from(start), u32::try_from(start + length)) else { return };
            if is_left_out(character) {
                continue;
            }
            let span = Span { start: from, end };
            for byte in &text.as_bytes()[start..start + length] {
                self.push(*byte, span);
            }
        }
    }

    /// The same without white space.
    pub(super) fn tight(&self) -> Self {
        self.without(space)
    }

    /// Whether white space stood in front of a byte, for one that asks about bytes in their order.
    pub(super) fn begins_of_lines(&self) -> impl FnMut(usize) -> bool + '_ {
        let mut breaks = self.breaks.as_deref().unwrap_or_default();
        move |at| {
            if self.breaks.is_none() {
                return at > 0 && self.spans[at].start > self.spans[at - 1].end;
            }
            while let [first, rest @ ..] = breaks
                && *first < at
            {
                breaks = rest;
            }
            breaks.first() == Some(&at)
        }
    }

    /// Whether lines of base64 may stand behind marks or in quotation marks: `> …`, `# …`, `"…", "…"`.
    pub(super) fn has_set_off_lines(text: &[u8]) -> bool {
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=');
        let (mut line, mut between, mut is_set_off) = (0_usize, false, false);
        for byte in text {
            if is_digit(*byte) {
                if between && is_set_off {
                    return true;
                }
                line = if between { 1 } else { line + 1 };
                (between, is_set_off) = (false, false);
            } else if (byte.is_ascii_whitespace() || is_mark(*byte) || is_quote(*byte))
                && (between || line >= LONG_LINE)
            {
                between = true;
                is_set_off |= !byte.is_ascii_whitespace();
            } else {
                (line, between, is_set_off) = (0, false, false);
            }
        }
        false
    }

    /// The same without white space, quotation marks, what separates these, and marks at the beginnings of lines.
    pub(super) fn without_marks(&self) -> Self {
        let mut view = Self::with_capacity(self.bytes.len());
        let (mut at, mut is_first) = (0, true);
        while let Some(byte) = self.bytes.get(at) {
            let length = space(&self.bytes[at..]);
            is_first |= *byte == b'\n';
            if length == 0 && !is_quote(*byte) && !(is_first && is_mark(*byte)) {
                view.push(*byte, self.spans[at]);
                is_first = false;
            }
            at += length.max(1);
        }
        view
    }

    /// The same without quotation marks.
    pub(super) fn without_quotes(&self) -> Self {
        self.without(|text| usize::from(super::spellings::is_quoting(text[0])))
    }

    /// All levels of escapes resolved, and without what nobody sees; each level below the first is shown to `look`.
    pub(super) fn wholly_resolved(self, mut look: impl FnMut(&Self)) -> Self {
        let (mut view, mut depth) = (self, 0);
        for _ in 0..MAX_ROUNDS {
            // What nobody sees may stand within an escape, and be what an escape stands for; so may the rest of a colour.
            if let Some(seen) = view.seen(&UNSEEN) {
                view = seen;
            } else if depth < MAX_DEPTH
                && let Some(resolved) = view.resolved()
            {
                view = resolved;
                depth += 1;
            } else if let Some(seen) = view.seen(&[escape_sign]) {
                view = seen;
            } else {
                break;
            }
            look(&view);
        }
        view
    }

    /// Whether there is something in it that nobody sees.
    pub(super) fn has_unseen(text: &[u8]) -> bool {
        const CHUNK: usize = 64;
        text.chunks(CHUNK).enumerate().any(|(index, chunk)| {
            // Without a branch for each byte: most texts have nothing of the kind.
            let may_be = chunk.iter().fold(false, |may_be, byte| may_be | may_be_unseen(*byte));
            let mut places = index * CHUNK..index * CHUNK + chunk.len();
            may_be && places.any(|at| escape_sign(&text[at..]) > 0 || unseen_character(&text[at..]) > 0)
        })
    }

    /// The same without the first of these kinds of what nobody sees that there is; nothing when there is none. One may stand within another.
    fn seen(&self, kinds: &[fn(&[u8]) -> usize]) -> Option<Self> {
        if !Self::has_unseen(&self.bytes) {
            return None;
        }
        let mut seen =
            kinds.iter().map(|length| self.without(*length)).find(|view| view.bytes.len() < self.bytes.len());
        // Nobody sees a line begin there.
        if let Some(seen) = &mut seen {
            seen.breaks = None;
        }
        seen
    }

    /// Whether a terminal takes something in it for a colour.
    pub(super) fn has_colors(text: &[u8]) -> bool {
        memchr::memchr2_iter(ESCAPE, 0xC2, text).any(|at| color(&text[at..]) > 0)
    }

    /// The same without the beginnings of colours: what a terminal takes for the rest of one stands in the text all the same, and may be the
    /// beginning of a secret. Between its letters there may be colours that are some: so once more with only those opened that set none.
    pub(super) fn with_opened_colors(&self) -> Vec<Self> {
        fn begin(text: &[u8]) -> usize {
            color(text).min(2)
        }
        fn begin_of_none(text: &[u8]) -> usize {
            match color(text) {
                length @ 3.. if text[length - 1] == b'm' => length,
                length => length.min(2),
            }
        }
        [begin, begin_of_none as fn(&[u8]) -> usize].map(|length| Self { breaks: None, ..self.without(length) }).into()
    }

    /// The same without what has a length.
    fn without(&self, length: fn(&[u8]) -> usize) -> Self {
        let mut view = Self::with_capacity(self.bytes.len());
        let (mut breaks, mut at) = (Vec::new(), 0);
        while let Some(byte) = self.bytes.get(at) {
            match length(&self.bytes[at..]) {
                0 => {
                    view.push(*byte, self.spans[at]);
                    at += 1;
                }
                length => {
                    breaks.push(view.bytes.len());
                    at += length;
                }
            }
        }
        view.breaks = Some(breaks);
        view
    }

    /// Whether there may be escapes in it.
    pub(super) fn has_escapes(bytes: &[u8]) -> bool {
        memchr::memchr3(b'%', b'&', b'\\', bytes).is_some()
    }

    /// One level of escapes less; nothing when there are none.
    fn resolved(&self) -> Option<Self> {
        let first = memchr::memchr3(b'%', b'&', b'\\', &self.bytes)?;
        let mut view = Self::with_capacity(self.bytes.len());
        view.bytes.extend_from_slice(&self.bytes[..first]);
        view.spans.extend_from_slice(&self.spans[..first]);
        let (mut at, mut is_changed) = (first, false);
        while let Some(byte) = self.bytes.get(at) {
            let rest = &self.bytes[at..];
            let escaped = match byte {
                b'%' => percent(rest),
                b'&' => entity(rest),
                b'\\' => escape(rest),
                _ => None,
            };
            let Some((meant, length)) = escaped else {
                view.push(*byte, self.spans[at]);
                at += 1;
                continue;
            };
            let span = Span { start: self.spans[at].start, end: self.spans[at + length - 1].end };
            match meant {
                Meant::Byte(byte) => view.push(byte, span),
                Meant::Character(character) => view.push_text(character.encode_utf8(&mut [0; 4]), span),
                Meant::Text(text) => view.push_text(text, span),
            }
            (at, is_changed) = (at + length, true);
        }
        is_changed.then_some(view)
    }

    /// Stretches of at least `least` hexadecimal digits in small letters, without what people put between pairs of them.
    pub(super) fn digits(&self, least: usize, mut take: impl FnMut(Self)) {
        let mut at = 0;
        while at < self.bytes.len() {
            let begin = at;
            let mut count = 0;
            while let Some(byte) = self.bytes.get(at) {
                match byte {
                    b'0' | b'\\' if self.begins_a_number(at) => at += 1,
                    byte if byte.is_ascii_hexdigit() => count += 1,
                    b':' | b'-' | b',' | b'_' | b'.' => {}
                    _ => break,
                }
                at += 1;
            }
            if count >= least {
                take(self.digits_of(begin, at, count));
            }
            at += 1;
        }
    }

    fn digits_of(&self, begin: usize, end: usize, count: usize) -> Self {
        let mut view = Self::with_capacity(count);
        let mut at = begin;
        while at < end {
            let byte = self.bytes[at];
            if self.begins_a_number(at) {
                at += 1;
            } else if byte.is_ascii_hexdigit() {
                view.push(byte.to_ascii_lowercase(), self.spans[at]);
            }
            at += 1;
        }
        view
    }

    /// Whether `0x` or `\x` stands here.
    fn begins_a_number(&self, at: usize) -> bool {
        matches!(self.bytes[at], b'0' | b'\\') && self.bytes.get(at + 1).is_some_and(|next| next | 0x20 == b'x')
    }
}

/// How many bytes of white space a text begins with: of one character, or none.
fn space(text: &[u8]) -> usize {
    match text {
        [b'\t'..=b'\r' | b' ', ..] => 1,
        [0xC2, 0x85 | 0xA0, ..] => 2,
        [0xE1, 0x9A, 0x80, ..]
        | [0xE2, 0x80, 0x80..=0x8A | 0xA8 | 0xA9 | 0xAF, ..]
        | [0xE2, 0x81, 0x9F, ..]
        | [0xE3, 0x80, 0x80, ..] => 3,
        _ => 0,
    }
}

/// Whether something that nobody sees may begin with a byte.
fn may_be_unseen(byte: u8) -> bool {
    // Control characters that are no white space, and whatever is beyond ASCII.
    (byte < b' ' && !matches!(byte, b'\t'..=b'\r')) || byte >= 0x7F
}

/// The kinds of what nobody sees, in the order in which they are taken away: how many bytes of one a text begins with, or 0.
const UNSEEN: [fn(&[u8]) -> usize; 2] = [unseen_character, color];

const ESCAPE: u8 = 0x1B;

/// What is left of a colour that was none.
fn escape_sign(text: &[u8]) -> usize {
    match text {
        [ESCAPE, ..] => 1,
        // The same in one character of eight bits (U+009B).
        [0xC2, 0x9B, ..] => 2,
        _ => 0,
    }
}

pub(super) fn unseen_character(text: &[u8]) -> usize {
    match text {
        [ESCAPE, ..] | [0xC2, 0x9B, ..] => 0,
        [first, ..] if first.is_ascii() => usize::from(may_be_unseen(*first)),
        _ => first_character(text).filter(|c| is_unseen(*c)).map_or(0, char::len_utf8),
    }
}

/// What sets a colour on a terminal, or moves on it.
pub(super) fn color(text: &[u8]) -> usize {
    // In one character of eight bits, too.
    let ([ESCAPE, b'[', rest @ ..] | [0xC2, 0x9B, rest @ ..]) = text else { return 0 };
    let inside = rest.iter().take_while(|byte| is_inside(**byte)).count();
    let is_whole = rest.get(inside).is_some_and(|last| is_last(*last));
    if is_whole { 2 + inside + 1 } else { 0 }
}

/// Whether a sign stands within a colour.
pub(super) fn is_inside(byte: u8) -> bool {
    matches!(byte, b' '..=b'?')
}

/// Whether a sign ends a colour.
pub(super) fn is_last(byte: u8) -> bool {
    matches!(byte, b'@'..=b'~')
}

/// The character that a text begins with, if it begins with one of several bytes.
pub(super) fn first_character(text: &[u8]) -> Option<char> {
    let length = match text.first()? {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF4 => 4,
        _ => return None,
    };
    std::str::from_utf8(text.get(..length)?).ok()?.chars().next()
}

/// Whether a byte is a character of ASCII that stands in texts. A colour of a terminal begins with the last one of these.
pub(super) fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | ESCAPE)
}

/// What an escape stands for.
enum Meant {
    Byte(u8),
    Character(char),
    Text(&'static str),
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?, radix).ok()
}

/// `%41`, and how long it is.
fn percent(text: &[u8]) -> Option<(Meant, usize)> {
    let byte = number(text.get(1..3)?, 16)?;
    Some((Meant::Byte(u8::try_from(byte).ok()?), 3))
}

/// `&#65;`, `&#x41;` or one of the names that HTML has, and how long it is. The `;` may be missing behind numbers and behind the names that every
/// program knows, as in what browsers forgive.
fn entity(text: &[u8]) -> Option<(Meant, usize)> {
    if let Some(whole) = named_entity(text) {
        return Some(whole);
    }
    let named = |name: &[u8], character| text[1..].starts_with(name).then_some((character, 1 + name.len()));
    let (character, length) = match text.get(1)? {
        b'#' => {
            let (radix, from) = if matches!(text.get(2)?, b'x' | b'X') { (16, 3) } else { (10, 2) };
            let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
            let digits = text[from..].iter().take(MAX_ENTITY).take_while(|byte| is_digit(byte)).count();
            (char::from_u32(number(&text[from..from + digits], radix)?)?, from + digits)
        }
        b'a' => named(b"amp", '&').or_else(|| named(b"apos", '\''))?,
        b'l' => named(b"lt", '<')?,
        b'g' => named(b"gt", '>')?,
        b'q' => named(b"quot", '"')?,
        _ => return None,
    };
    Some((Meant::Character(character), length + usize::from(text.get(length) == Some(&b';'))))
}

/// `&lowbar;`, and how long it is.
fn named_entity(text: &[u8]) -> Option<(Meant, usize)> {
    let length = text[1..].iter().take(MAX_NAME).take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let name = &text[1..=length];
    if text.get(1 + length) != Some(&b';') || !name.first()?.is_ascii_alphabetic() {
        return None;
    }
    let names = &html_escape::NAMED_ENTITIES;
    let index = names.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    // What is read as the hyphen of a keyboard is meant as one.
    let meant = if names[index].1 == "\u{2010}" { "-" } else { names[index].1 };
    Some((Meant::Text(meant), length + 2))
}

/// `\u0041`, `\u{41}`, `\U00000041`, `\x41`, `\101`, a backslash and the sign that it keeps or the line that it joins, and how long it is.
fn escape(text: &[u8]) -> Option<(Meant, usize)> {
    let unit = |at: usize| number(text.get(at..at + 4)?, 16);
    Some(match text.get(1)? {
        b'u' | b'x' if text.get(2) == Some(&b'{') => {
            let end = 3 + text[3..].iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
            let character = char::from_u32(number(&text[3..end], 16)?)?;
            (text.get(end) == Some(&b'}')).then_some((Meant::Character(character), end + 1))?
        }
        b'u' => {
            let first = unit(2)?;
            // Characters that are two units.
            let second = || (text.get(6..8)? == b"\\u").then(|| unit(8)).flatten();
            match char::from_u32(first) {
                Some(character) => (Meant::Character(character), 6),
                None => (
                    Meant::Character(
                        char::decode_utf16([u16::try_from(first).ok()?, u16::try_from(second()?).ok()?])
                            .next()?
                            .ok()?,
                    ),
                    12,
                ),
            }
        }
        b'U' => (Meant::Character(char::from_u32(number(text.get(2..10)?, 16)?)?), 10),
        b'x' => (Meant::Byte(u8::try_from(number(text.get(2..4)?, 16)?).ok()?), 4),
        b'0'..=b'3' => match text.get(1..4).and_then(|digits| number(digits, 8)) {
            Some(byte) => (Meant::Byte(u8::try_from(byte).ok()?), 4),
            // `\0`, as it stands between the letters of a text in UTF-16.
            None if text[1] == b'0' => (Meant::Byte(0), 2),
            None => return None,
        },
        b'n' => (Meant::Byte(b'\n'), 2),
        b'r' => (Meant::Byte(b'\r'), 2),
        b't' => (Meant::Byte(b'\t'), 2),
        b'\n' => (Meant::Text(""), 2),
        b'\r' if text.get(2) == Some(&b'\n') => (Meant::Text(""), 3),
        // What a shell keeps together.
        b' ' => (Meant::Byte(b' '), 2),
        // Every sign: Markdown keeps them so.
        byte if byte.is_ascii_punctuation() => (Meant::Byte(*byte), 2),
        _ => return None,
    })
}
