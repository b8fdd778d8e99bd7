//! Dumps of bytes, as `xxd`, `hexdump` and `od` write them: lines with where they begin, digits in groups, and the text beside them, or
//! characters in columns.
//!
//! What a line stands for is read off its digits. Each byte ends behind the text beside them, so that this goes with them.

use super::view::{Span, View};

/// The fewest digits that say where a line begins.
const MIN_OFFSET: usize = 4;
/// The most.
const MAX_OFFSET: usize = 16;
/// The most digits of a group.
const MAX_GROUP: usize = 16;
/// How many signs a text beside the digits has besides one for each byte: bars around it and between its halves.
const MOST_BARS: usize = 4;

/// Whether some line may be one of a dump: it needs an offset.
pub(super) fn may_be_in(text: &[u8]) -> bool {
    let mut digits = 0_usize;
    for byte in text {
        if byte.is_ascii_hexdigit() {
            digits += 1;
        } else {
            if digits >= 6 || (digits >= 4 && *byte == b':') {
                return true;
            }
            digits = 0;
        }
    }
    false
}

/// The dumps in a text, each as the bytes it stands for; where its groups are words of several bytes, with the bytes of each word in the other
/// order as well, and where they are digits of 0 and 1, as the bytes that these stand for (`xxd -e`, `xxd -b`).
pub(super) fn dumps(text: &View) -> Vec<View> {
    let (mut found, mut open) = (Vec::new(), Dump::default());
    let mut from = 0;
    while from < text.bytes.len() {
        let to = memchr::memchr(b'\n', &text.bytes[from..]).map_or(text.bytes.len(), |length| from + length);
        let whole = text.bytes[from..to].strip_suffix(b"\r").unwrap_or(&text.bytes[from..to]);
        let line = whole.trim_ascii_end();
        match Line::characters(whole).or_else(|| Line::read(line)) {
            Some(read) => open.add(text, from, line, &read),
            // Lines that are all the same are left out.
            None if line == b"*" => {}
            None => open.end(&mut found),
        }
        from = to + 1;
    }
    open.end(&mut found);
    found
}

/// One line, with places in it.
#[derive(Debug, Default)]
struct Line {
    /// Where it says that it begins, as digits.
    offset: Vec<u8>,
    /// Bytes, each with the place of its digits, and whether its group begins with it.
    bytes: Vec<(u8, usize, bool)>,
    /// Where the last digits end.
    digits_end: usize,
}

impl Line {
    /// Reads a line; nothing when it is none of a dump. One that only says where the next would begin has no bytes.
    fn read(line: &[u8]) -> Option<Self> {
        let mut words = Words { line, at: 0 };
        // Words may stand before it: a name, a quotation mark.
        while let Some((word, at)) = words.next() {
            let is_marked = word.ends_with(b":");
            let word = word.strip_suffix(b":").unwrap_or(word);
            let digits = word.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let least = if is_marked { MIN_OFFSET } else { MIN_OFFSET + 2 };
            if !(least..=MAX_OFFSET).contains(&digits) {
                continue;
            }
            let offset = word[word.len() - digits..].to_vec();
            let rest = Words { line, at: words.at };
            let is_alone = at == 0 && digits == word.len() && line[words.at..].trim_ascii().is_empty();
            let read = Self::groups(rest);
            match read {
                Some(read) => return Some(Self { offset, ..read }),
                None if is_alone => return Some(Self { offset, digits_end: digits, ..Self::default() }),
                None => {}
            }
        }
        None
    }

    /// Columns of characters, as `od -c` and `hexdump -c` write them: each takes four places, and stands at the end of them.
    fn characters(line: &[u8]) -> Option<Self> {
        // A quotation mark or the like may stand before it.
        let begin = line.iter().position(u8::is_ascii_alphanumeric)?;
        let digits = line[begin..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        if !(MIN_OFFSET + 2..=MAX_OFFSET).contains(&digits) {
            return None;
        }
        let mut read = Self { offset: line[begin..begin + digits].to_vec(), ..Self::default() };
        for (index, column) in line[begin + digits..].chunks(4).enumerate() {
            let byte = match column {
                [b' ', b' ', b' ', byte @ b' '..=b'~'] => *byte,
                [b' ', b' ', b'\\', name] => match name {
                    b'0' => 0,
                    b'a' => 7,
                    b'b' => 8,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 11,
                    b'f' => 12,
                    b'r' => b'\r',
                    _ => return None,
                },
                [b' ', octal @ ..] if octal.len() == 3 => {
                    u8::from_str_radix(std::str::from_utf8(octal).ok()?, 8).ok()?
                }
                _ => return None,
            };
            read.bytes.push((byte, begin + digits + 4 * index, true));
            read.digits_end = begin + digits + 4 * (index + 1);
        }
        (!read.bytes.is_empty()).then_some(read)
    }

    /// Groups of hexadecimal digits.
    fn groups(words: Words<'_>) -> Option<Self> {
        let mut read = Self::default();
        for (word, at) in words {
            let is_group = word.len() % 2 == 0 && word.len() <= MAX_GROUP && word.iter().all(u8::is_ascii_hexdigit);
            if !is_group {
                break;
            }
            for (index, pair) in word.chunks_exact(2).enumerate() {
                let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
                read.bytes.push((digit(pair[0])? << 4 | digit(pair[1])?, at + 2 * index, index == 0));
            }
            read.digits_end = at + word.len();
        }
        // Groups of eight digits of 0 and 1 are bits.
        let are_bits = read.bytes.iter().all(|(byte, ..)| byte & 0xEE == 0)
            && read.bytes.chunks(4).all(|word| word.len() == 4 && word[0].2 && word[1..].iter().all(|byte| !byte.2));
        if are_bits {
            let bits = |word: &[(u8, usize, bool)]| {
                word.iter().fold(0, |bits, (two, ..)| bits << 2 | (two >> 4) << 1 | two & 1)
            };
            read.bytes = read.bytes.chunks(4).map(|word| (bits(word), word[0].1, true)).collect();
        }
        (!read.bytes.is_empty()).then_some(read)
    }

    /// Where the text beside the digits ends: it has a character for each byte. What else stands on the line is none of it; a line may be a whole
    /// text whose lines somebody joined.
    fn end(&self, line: &[u8]) -> usize {
        let rest = &line[self.digits_end.min(line.len())..];
        let begin = line.len() - rest.trim_ascii_start().len();
        let characters = line[begin..].iter().enumerate().filter(|(_, byte)| !matches!(byte, 0x80..=0xBF));
        characters.map(|(at, _)| begin + at).nth(self.bytes.len() + MOST_BARS).unwrap_or(line.len())
    }

    /// How many bytes there are up to where another line begins, if that can be: a text beside the digits may look like digits itself.
    fn length_to(&self, next: &[u8]) -> Option<usize> {
        let between = |radix| {
            let number = |digits| u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok();
            usize::try_from(number(next)?.checked_sub(number(&self.offset)?)?).ok()
        };
        // `od` counts in eights.
        [16, 8].into_iter().filter_map(between).find(|length| (1..=self.bytes.len()).contains(length))
    }
}

/// Words of a line, each with where it begins.
struct Words<'l> {
    line: &'l [u8],
    at: usize,
}

impl<'l> Iterator for Words<'l> {
    type Item = (&'l [u8], usize);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.line.get(self.at..)?;
        let from = self.at + rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
        let rest = &self.line[from..];
        let to = from + rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        self.at = to;
        Some((&self.line[from..to], from))
    }
}

/// Lines that follow each other.
#[derive(Debug, Default)]
struct Dump {
    view: View,
    /// Which of its bytes begin a group.
    begins: Vec<bool>,
    /// The last line, and where its bytes begin.
    last: Option<(Line, usize)>,
}

impl Dump {
    fn add(&mut self, text: &View, from: usize, line: &[u8], read: &Line) {
        if let Some((last, begin)) = &self.last
            && let Some(length) = last.length_to(&read.offset)
        {
            // Of a word in the other order the byte that counts stands behind the one that fills it up.
            let rest = self.begins.iter().skip(begin + length).take_while(|begins| !**begins).count();
            let end = begin + length + rest;
            self.view.bytes.truncate(end);
            self.view.spans.truncate(end);
            self.begins.truncate(end);
        }
        let begin = self.view.bytes.len();
        // A line has an end only if there is something on it.
        let end = text.spans[from + read.end(line) - 1].end;
        for (byte, at, begins) in &read.bytes {
            self.view.push(*byte, Span { start: text.spans[from + at].start, end });
            self.begins.push(*begins);
        }
        let last = Line { offset: read.offset.clone(), bytes: read.bytes.clone(), digits_end: read.digits_end };
        self.last = Some((last, begin));
    }

    fn end(&mut self, found: &mut Vec<View>) {
        let Self { view, begins, .. } = std::mem::take(self);
        if view.bytes.is_empty() {
            return;
        }
        let mut exchanged = View::default();
        let mut first = 0;
        while first < view.bytes.len() {
            let length = 1 + begins[first + 1..].iter().take_while(|begins| !**begins).count();
            let group = first..first + length;
            let start = view.spans[first].start;
            for at in group.rev() {
                exchanged.push(view.bytes[at], Span { start, end: view.spans[at].end });
            }
            first += length;
        }
        if exchanged.bytes != view.bytes {
            found.push(exchanged);
        }
        found.push(view);
    }
}
