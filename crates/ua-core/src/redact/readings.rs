//! Other ways to read a text than as its escapes are resolved: what is a dump of bytes, a mail's quoted-printable, UTF-16 or a list of numbers to
//! somebody is a text of its own to us, a layer below the one that it stands in.
//!
//! None of them can be told from ordinary text for certain: `a=10` may mean what it says. So what is read so is looked at beside the text, and
//! never instead of it.

use super::view::{Span, View, is_text};
use super::{MIN_BYTES, dump, lines};

/// A way to read a text.
struct Reading {
    /// Whether there may be something of the kind; what every text pays for it.
    may_be_in: fn(&[u8]) -> bool,
    read: fn(&View) -> Vec<View>,
}

const READINGS: [Reading; 9] = [
    Reading { may_be_in: dump::may_be_in, read: dump::dumps },
    Reading { may_be_in: has_quoted_printable, read: without_quoted_printable },
    Reading { may_be_in: has_utf16, read: of_utf16 },
    Reading { may_be_in: |text| !lists(text, Number::is_byte).is_empty(), read: of_lists },
    Reading {
        may_be_in: |text| lists(text, Number::is_character).iter().any(|list| has_characters(list)),
        read: of_characters,
    },
    Reading { may_be_in: lines::are_behind_words, read: lines::behind_words },
    Reading { may_be_in: lines::break_escapes, read: lines::joined },
    Reading { may_be_in: lines::have_strings, read: lines::without_strings },
    Reading { may_be_in: View::has_colors, read: View::with_opened_colors },
];

/// Whether a text may have another reading.
pub(super) fn may_be_in(text: &[u8]) -> bool {
    READINGS.iter().any(|reading| (reading.may_be_in)(text))
}

/// Calls `take` for each other reading of a text that is long enough to hold a secret.
pub(super) fn others(text: &View, take: impl FnMut(View)) {
    let read =
        READINGS.iter().filter(|reading| (reading.may_be_in)(&text.bytes)).flat_map(|reading| (reading.read)(text));
    read.filter(|view| view.bytes.len() >= MIN_BYTES).for_each(take);
}

/// How far from an escape of quoted-printable what it belongs to is looked for, in bytes: a long text may have one that means nothing.
const REACH: usize = 8 * 1024;

/// `=41`, or `=` at the end of a line, which joins it with the next; what it stands for, and how long it is.
fn quoted_printable(text: &[u8]) -> Option<(Option<u8>, usize)> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if let (Some(high), Some(low)) = (digit(1), digit(2)) {
        return Some((Some(high << 4 | low), 3));
    }
    let blank = text[1..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let end = match &text[1 + blank..] {
        [b'\r', b'\n', ..] => 2,
        [b'\n', ..] => 1,
        _ => return None,
    };
    Some((None, 1 + blank + end))
}

fn escapes_of_quoted_printable(text: &[u8]) -> impl Iterator<Item = (usize, Option<u8>, usize)> + '_ {
    let signs = memchr::memchr_iter(b'=', text);
    signs.filter_map(|at| quoted_printable(&text[at..]).map(|(byte, length)| (at, byte, length)))
}

fn has_quoted_printable(text: &[u8]) -> bool {
    escapes_of_quoted_printable(text).next().is_some()
}

/// What lies around escapes of quoted-printable, with these resolved.
fn without_quoted_printable(text: &View) -> Vec<View> {
    let (mut found, mut open) = (Vec::new(), View::default());
    // Up to where the open one was read, and where the last escape ended.
    let (mut at, mut last) = (0, 0);
    let copy = |view: &mut View, from: usize, to: usize| {
        view.bytes.extend_from_slice(&text.bytes[from..to]);
        view.spans.extend_from_slice(&text.spans[from..to]);
    };
    for (begin, byte, length) in escapes_of_quoted_printable(&text.bytes) {
        if begin - last > 2 * REACH {
            if last > 0 {
                copy(&mut open, at, last + REACH);
                found.push(std::mem::take(&mut open));
            }
            at = begin - REACH;
        }
        copy(&mut open, at, begin);
        (at, last) = (begin + length, begin + length);
        if let Some(byte) = byte {
            open.push(byte, Span { start: text.spans[begin].start, end: text.spans[at - 1].end });
        }
    }
    copy(&mut open, at, text.bytes.len().min(last + REACH));
    found.push(open);
    found
}

/// How many characters beyond ASCII may stand in a row in a text of UTF-16 that is known by its ASCII.
const MAX_FOREIGN: usize = 24;

/// How many characters of ASCII a text of UTF-16 has at least.
const MIN_ASCII: usize = 6;

/// Whether some characters of ASCII stand near each other as UTF-16 has them, each beside a NUL. Chance
/// brings that about once in some thousand million bytes.
pub(super) fn has_utf16(text: &[u8]) -> bool {
    // Of either order of bytes and either place of the NULs: the last one, and how many there are in a row.
    let mut rows = [(0, 0); 4];
    memchr::memchr_iter(0, text).any(|at| {
        let beside = [at.checked_sub(1), Some(at + 1)];
        beside.into_iter().enumerate().any(|(order, beside)| {
            if !beside.and_then(|beside| text.get(beside)).is_some_and(|byte| is_text(*byte)) {
                return false;
            }
            let (last, count) = &mut rows[2 * order + at % 2];
            *count = if at - *last <= 2 * (1 + MAX_FOREIGN) { *count + 1 } else { 1 };
            *last = at;
            *count >= MIN_ASCII
        })
    })
}

/// A character, where it begins, and how many bytes it takes.
pub(super) type Wide = (char, usize, usize);

/// Calls `take` for each stretch of text in UTF-16, in either order of bytes and wherever it begins. NULs in it stay: UTF-32 has one beside each
/// character.
pub(super) fn each_utf16(bytes: &[u8], mut take: impl FnMut(&[Wide])) {
    let orders: [fn([u8; 2]) -> u16; 2] = [u16::from_le_bytes, u16::from_be_bytes];
    for (order, shift) in orders.into_iter().flat_map(|order| [(order, 0), (order, 1)]) {
        // Of the last character a byte may have been left off that is none.
        let units = bytes.get(shift..).unwrap_or_default().chunks(2);
        let units = units.map(|pair| order([pair[0], pair.get(1).copied().unwrap_or(0)]));
        let mut stretch = Stretch::default();
        let mut at = shift;
        for decoded in char::decode_utf16(units) {
            let length = decoded.as_ref().map_or(2, |character| 2 * character.len_utf16()).min(bytes.len() - at);
            match decoded {
                Ok(character) if !character.is_ascii() || character == '\0' => {
                    stretch.add_foreign((character, at, length), &mut take);
                }
                Ok(character) if u8::try_from(character).is_ok_and(is_text) => stretch.add((character, at, length)),
                _ => stretch.end(&mut take),
            }
            at += length;
        }
        stretch.end(&mut take);
    }
}

/// A stretch of UTF-16 that is being read.
#[derive(Default)]
struct Stretch {
    characters: Vec<Wide>,
    /// How many of them are of ASCII, and how many are not since the last one that is.
    ascii: usize,
    foreign: usize,
}

impl Stretch {
    fn add(&mut self, character: Wide) {
        self.characters.push(character);
        (self.ascii, self.foreign) = (self.ascii + 1, 0);
    }

    /// What is no text has such characters at random.
    fn add_foreign(&mut self, character: Wide, take: &mut impl FnMut(&[Wide])) {
        if self.foreign == MAX_FOREIGN {
            if self.ascii == 0 {
                self.characters.remove(0);
                self.foreign -= 1;
            } else {
                self.end(take);
            }
        }
        self.characters.push(character);
        self.foreign += 1;
    }

    fn end(&mut self, take: &mut impl FnMut(&[Wide])) {
        if self.ascii >= MIN_ASCII {
            take(&self.characters);
        }
        self.characters.clear();
        (self.ascii, self.foreign) = (0, 0);
    }
}

fn of_utf16(text: &View) -> Vec<View> {
    let mut found = Vec::new();
    each_utf16(&text.bytes, |characters| {
        let mut view = View::with_capacity(characters.len());
        for (character, at, length) in characters {
            let span = Span { start: text.spans[*at].start, end: text.spans[at + length - 1].end };
            view.push_text(character.encode_utf8(&mut [0; 4]), span);
        }
        found.push(view);
    });
    found
}

/// A number of a list, and the place of its digits.
#[derive(Clone, Copy)]
struct Number {
    begin: usize,
    end: usize,
    value: i32,
}

/// Which numbers a list has.
type Kind = fn(&Number) -> bool;

/// The most signs that a number of a list has, with one for its sign: `1114111`.
const MAX_NUMBER: usize = 8;

impl Number {
    /// What stands there and nowhere else.
    fn read(text: &[u8], begin: usize, end: usize) -> Option<Self> {
        let digits =
            text.get(begin..end).filter(|digits| (1..MAX_NUMBER).contains(&digits.len()) && digits[0] != b'+')?;
        Some(Self { begin, end, value: std::str::from_utf8(digits).ok()?.parse().ok()? })
    }

    /// Some write the upper half of bytes below zero.
    fn byte(&self) -> Option<u8> {
        u8::try_from(self.value).ok().or_else(|| i8::try_from(self.value).ok().map(i8::cast_unsigned))
    }

    fn is_byte(&self) -> bool {
        self.byte().is_some()
    }

    fn character(&self) -> Option<char> {
        char::from_u32(u32::try_from(self.value).ok()?)
    }

    fn is_character(&self) -> bool {
        self.character().is_some()
    }

    /// The one that a stretch consists of.
    fn within(text: &[u8], from: usize, to: usize) -> Option<Self> {
        let begin = to - text[from..to].trim_ascii_start().len();
        Self::read(text, begin, from + text[from..to].trim_ascii_end().len())
    }

    /// The one that a text ends with, whatever stands before it.
    fn before(text: &[u8]) -> Option<Self> {
        let end = text.trim_ascii_end().len();
        let sign_and_digits =
            text[..end].iter().rev().take(MAX_NUMBER).take_while(|byte| byte.is_ascii_digit() || **byte == b'-');
        Self::read(text, end - sign_and_digits.count(), end)
    }

    /// The one that stands there, whatever follows.
    fn after(text: &[u8], from: usize) -> Option<Self> {
        let begin = text.len() - text[from..].trim_ascii_start().len();
        let digits = text[begin..].iter().take(MAX_NUMBER).take_while(|byte| byte.is_ascii_digit() || **byte == b'-');
        Self::read(text, begin, begin + digits.count())
    }
}

/// Lists of at least eight numbers of a kind, with commas between: `[90, 113, 55]`.
fn lists(text: &[u8], kind: Kind) -> Vec<Vec<Number>> {
    let (mut found, mut open) = (Vec::new(), Vec::<Number>::new());
    let mut last = None;
    for comma in memchr::memchr_iter(b',', text) {
        let next = last.filter(|_| !open.is_empty()).and_then(|last| Number::within(text, last, comma)).filter(kind);
        if next.is_none() {
            end_list(text, last, kind, &mut open, &mut found);
        }
        // In front of the first one there may be anything.
        open.extend(next.or_else(|| Number::before(&text[..comma]).filter(kind)));
        last = Some(comma + 1);
    }
    end_list(text, last, kind, &mut open, &mut found);
    found
}

/// Ends a list behind a comma: what follows that begins with its last number, if anything.
fn end_list(text: &[u8], last: Option<usize>, kind: Kind, open: &mut Vec<Number>, found: &mut Vec<Vec<Number>>) {
    if open.len() + 1 >= MIN_BYTES {
        open.extend(last.and_then(|last| Number::after(text, last)).filter(kind));
    }
    let list = std::mem::take(open);
    if list.len() >= MIN_BYTES {
        found.push(list);
    }
}

fn of_lists(text: &View) -> Vec<View> {
    let read = |list: Vec<Number>| {
        let mut view = View::with_capacity(list.len());
        for number in list {
            let span = Span { start: text.spans[number.begin].start, end: text.spans[number.end - 1].end };
            view.push(number.byte().unwrap_or_default(), span);
        }
        view
    };
    lists(&text.bytes, Number::is_byte).into_iter().map(read).collect()
}

/// Whether a list says something else when its numbers are characters than when they are bytes.
fn has_characters(list: &[Number]) -> bool {
    list.iter().any(|number| number.value > 0x7F)
}

/// Lists of numbers that are characters, as a program has them that counts in these.
fn of_characters(text: &View) -> Vec<View> {
    let read = |list: Vec<Number>| {
        let mut view = View::with_capacity(list.len());
        for number in list {
            let span = Span { start: text.spans[number.begin].start, end: text.spans[number.end - 1].end };
            let character = number.character().unwrap_or_default();
            view.push_text(character.encode_utf8(&mut [0; 4]), span);
        }
        view
    };
    lists(&text.bytes, Number::is_character).into_iter().filter(|list| has_characters(list)).map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        others(&View::of(text), |view| found.push(String::from_utf8_lossy(&view.bytes).into_owned()));
        found
    }

    #[test]
    fn what_says_what_it_says_has_no_other_reading() {
        for text in
            ["", "a = b", "key==", "1, 2, 3, 4, 5, 6, 7", "-129, 1, 2, 3, 4, 5, 6, 7", "a, b, c, d, e, f, g, h, i"]
        {
            assert!(!may_be_in(text.as_bytes()) && read(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn quoted_printable_is_read_around_its_escapes() {
        assert_eq!(read("a=3Db and =\r\nmore"), ["a=b and more"]);
        let far = "x".repeat(3 * REACH);
        assert_eq!(read(&format!("{far}=41{far}")), [format!("{}A{}", &far[..REACH], &far[..REACH])]);
        let near = "y".repeat(REACH);
        let ends = read(&format!("=41{near}=42{far}=43"));
        assert_eq!(ends, [format!("A{near}B{}", &far[..REACH]), format!("{}C", &far[..REACH])]);
    }

    #[test]
    fn a_list_of_numbers_is_read_with_both_of_its_ends() {
        for (before, after) in
            [("", ""), ("[", "]"), ("{\"data\": [ ", "\n]}"), ("1,2,x,", ",x,3,4"), ("about 1234,", ".")]
        {
            // Its lines may be meant otherwise, too.
            let wanted = String::from_utf8_lossy(&[90, 113, 55, 45, 104, 117, 110, 195]).into_owned();
            let found = read(&format!("{before}90, 113,55,45,\n  104,117 , 110,-61{after}"));
            assert_eq!(found.iter().filter(|found| found.ends_with(&wanted)).count(), 1, "{before} {after}: {found:?}");
        }
        let twice = read("[65,66,67,68,69,70,71,72] and [73,74,75,76,77,78,79,80,81]");
        assert_eq!(twice, ["ABCDEFGH", "IJKLMNOPQ"]);
    }

    #[test]
    fn utf_16_is_read_in_either_order_of_bytes_and_among_others() {
        let text = "p\u{e4}ss-\u{1f511}w\u{f6}rd";
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            for before in [&b""[..], b"\xFF", b"\0\xD8", b"\x01\x02\x03"] {
                let mut bytes = before.to_vec();
                bytes.extend(text.encode_utf16().flat_map(order));
                bytes.extend([0xFF, 0xDF, 0xFF]);
                let mut found = Vec::new();
                each_utf16(&bytes, |wide| found.push(wide.iter().map(|(c, ..)| *c).collect::<String>()));
                assert!(has_utf16(&bytes) && found.iter().any(|found| found.contains(text)), "{before:?}: {found:?}");
            }
        }
        assert!(!has_utf16(b"\0\0\0\0\0\0a\0b\0c\0d\0\0e f g h"));
    }
}
