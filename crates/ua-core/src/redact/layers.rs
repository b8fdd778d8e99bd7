//! Where secrets stand in a text, also below layers of encoding.
//!
//! A layer is a text with where it came from. In each, escapes are resolved, and the known forms of secrets are looked for: as they are, in digits
//! and in base64. Then what may be hexadecimal digits, base64 or a dump is decoded, and what is text of that is a layer again. That ends:
//! layers are at most [`MAX_LAYERS`] deep, each is shorter than the one it came from, and all of them together are at most [`GROWTH`] times
//! as long as the text.
//!
//! Whatever hides a secret needs some length, so most of what is decoded by chance is no layer: it is no text, or too short.

use super::view::{Span, View};
use super::{Form, Look, MIN_BYTES, dump};

/// How many layers are taken off: of a secret that is encoded four times over, one is left.
const MAX_LAYERS: usize = 3;
/// How much is looked at below the first layer, in lengths of the text, and a little for short ones.
const GROWTH: usize = 8;
const GROWTH_OF_SHORT: usize = 64 * 1024;
/// The shortest text that hides a secret by an escape: 8 bytes and a backslash.
const MIN_ESCAPED: usize = MIN_BYTES + 1;
/// The shortest one of base64.
const MIN_BASE64: usize = 11;
/// The shortest line of base64 that is decoded, of those that it may be wrapped into; the last may be shorter.
const MIN_LINE: usize = 12;
/// The shortest one of hexadecimal digits.
const MIN_DIGITS: usize = 2 * MIN_BYTES;

/// A place in the text, and which form of a secret was found there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) form: usize,
}

/// All places, in no order.
pub(super) fn hits(text: &str, forms: &[Form]) -> Vec<Hit> {
    let left = text.len().saturating_mul(GROWTH).saturating_add(GROWTH_OF_SHORT);
    let mut search = Search { forms, hits: Vec::new(), left, scratch: Vec::new() };
    for (form, at) in found(forms, Look::Text, text.as_bytes()) {
        search.hits.push(Hit { start: at, end: at + forms[form].bytes.len(), form });
    }
    // Without escapes and dumps a text is what it is, and need not be copied.
    let bytes = text.as_bytes();
    if View::has_escapes(bytes) || dump_may_be_in(bytes) || View::has_set_off_lines(bytes) {
        search.levels(View::of(text), 0);
    } else {
        search.below(View::tight_of(text), 0);
    }
    search.hits
}

/// The text of a secret as it is looked for in what is left without white space and escapes: with its wrapped escapes as they are, resolved,
/// and without the beginning of an escape that it may end in, since what follows it in a text may make that whole.
pub(super) fn tight_of(text: &str) -> Vec<Vec<u8>> {
    let tight = View::of(text).wholly_resolved(|_| {}).tight();
    let kept = tight.bytes.clone();
    let resolved = tight.wholly_resolved(|_| {}).bytes;
    let open = kept.iter().rev().take_while(|byte| matches!(byte, b'\\' | b'%' | b'&')).count();
    let closed = kept[..kept.len() - open].to_vec();
    vec![kept, resolved, closed]
}

fn found<'f>(forms: &'f [Form], look: Look, bytes: &'f [u8]) -> impl Iterator<Item = (usize, usize)> + 'f {
    let of_kind = forms.iter().enumerate().filter(move |(_, form)| form.look == look);
    of_kind.flat_map(move |(index, form)| form.finder.find_iter(bytes).map(move |at| (index, at)))
}

/// Whether some line may be one of a dump: it needs an offset.
fn dump_may_be_in(text: &[u8]) -> bool {
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

struct Search<'f> {
    forms: &'f [Form],
    hits: Vec<Hit>,
    /// How many bytes may still be looked at.
    left: usize,
    scratch: Vec<u8>,
}

impl Search<'_> {
    fn look(&mut self, view: &View, look: Look) {
        for (form, at) in found(self.forms, look, &view.bytes) {
            let end = at + self.forms[form].bytes.len() - 1;
            let (start, end) = (view.spans[at].start as usize, view.spans[end].end as usize);
            self.hits.push(Hit { start, end, form });
        }
    }

    /// Looks at a layer below the text.
    fn layer(&mut self, view: View, depth: usize) {
        let Some(left) = self.left.checked_sub(view.bytes.len()) else { return };
        self.left = left;
        self.look(&view, Look::Text);
        self.levels(view, depth);
    }

    /// Looks at each level of escapes of a layer, in which the forms as they are were looked for already. Dumps are looked for in each, because
    /// the text beside the digits may have escapes that are none of the lines'.
    fn levels(&mut self, view: View, depth: usize) {
        let mut dumps: Vec<View> = Vec::new();
        let mut keep = |level: &View| {
            if depth < MAX_LAYERS && dump_may_be_in(&level.bytes) {
                let found = dump::dumps(level).into_iter().filter(|dump| dump.bytes.len() >= MIN_BYTES);
                for dump in found {
                    if dumps.iter().all(|known| known.bytes != dump.bytes) {
                        dumps.push(dump);
                    }
                }
            }
        };
        keep(&view);
        let kept = view.wholly_resolved(|level| {
            self.look(level, Look::Text);
            keep(level);
        });
        // Base64 in a quotation, a comment or a list of texts.
        if View::has_set_off_lines(&kept.bytes) {
            let joined = kept.without_marks();
            self.look(&joined, Look::View);
            if depth < MAX_LAYERS {
                self.base64(&joined, depth);
            }
        }
        self.below(kept.tight(), depth);
        for dump in dumps {
            self.layer(dump, depth + 1);
        }
    }

    /// Looks for the forms without white space, and at what is below.
    fn below(&mut self, tight: View, depth: usize) {
        self.look(&tight, Look::View);
        // Some escapes were wrapped.
        let tight = if View::has_escapes(&tight.bytes) {
            let resolved = tight.wholly_resolved(|_| {});
            self.look(&resolved, Look::View);
            resolved
        } else {
            tight
        };
        tight.digits(MIN_DIGITS, |digits| {
            self.look(&digits, Look::Digits);
            if depth < MAX_LAYERS {
                self.decode(&digits, 0, digits.bytes.len(), &HEX, depth);
            }
        });
        if depth == MAX_LAYERS {
            return;
        }
        self.base64(&tight, depth);
    }

    /// Decodes each run of base64 that has a line of some length; it begins with one.
    fn base64(&mut self, tight: &View, depth: usize) {
        let is_base64 = |at: usize| BASE64.values[usize::from(tight.bytes[at])] != NONE;
        let (mut at, length) = (0, tight.bytes.len());
        while at < length {
            // Prose has no white space here: what a line is, is told by where it came from.
            let (mut begin, mut line) = (None, at);
            while at < length && is_base64(at) {
                // Below the text neighbours share characters of it; what is wrapped has some between.
                if at > line && tight.spans[at].start > tight.spans[at - 1].end {
                    line = at;
                }
                if at + 1 - line == MIN_LINE {
                    begin = begin.or(Some(line));
                }
                at += 1;
            }
            if let Some(begin) = begin {
                self.decode(tight, begin, at, &BASE64, depth);
            }
            at += 1;
        }
    }

    /// Decodes a run of an alphabet, wherever in it the encoded text begins.
    fn decode(&mut self, view: &View, begin: usize, end: usize, code: &Code, depth: usize) {
        for shift in 0..code.group.min(end - begin) {
            let mut decoded = std::mem::take(&mut self.scratch);
            code.decode(&view.bytes[begin + shift..end], &mut decoded);
            texts(&decoded, |first, last| {
                if !may_hide(&decoded[first..last]) {
                    return;
                }
                let mut layer = View::with_capacity(last - first);
                for (at, byte) in (first..last).zip(&decoded[first..last]) {
                    let (start, end) = code.place(at);
                    let [start, end] = [start, end].map(|place| view.spans[begin + shift + place]);
                    layer.push(*byte, Span { start: start.start, end: end.end });
                }
                self.layer(layer, depth + 1);
            });
            self.scratch = decoded;
        }
    }
}

/// Calls `take` for each stretch of bytes that are text, in UTF-8.
fn texts(bytes: &[u8], mut take: impl FnMut(usize, usize)) {
    let (mut first, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            b'\t' | b'\n' | b'\r' | b' '..=b'~' => 1,
            0xC2..=0xF4 => character(&bytes[at..]),
            _ => 0,
        };
        if length == 0 {
            if at - first >= MIN_ESCAPED {
                take(first, at);
            }
            at += 1;
            first = at;
        } else {
            at += length;
        }
    }
    if at - first >= MIN_ESCAPED {
        take(first, at);
    }
}

/// How long the character of several bytes is that a text begins with; 0 when there is none.
fn character(text: &[u8]) -> usize {
    let length = match text[0] {
        0xC2..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    };
    text.get(..length).filter(|bytes| std::str::from_utf8(bytes).is_ok()).map_or(0, <[u8]>::len)
}

/// Whether a text can be an encoding of a secret. One that holds a secret as it is was found by its form.
fn may_hide(text: &[u8]) -> bool {
    let is_long = text.len() >= MIN_DIGITS;
    is_long || View::has_escapes(text) || (text.len() >= MIN_BASE64 && longest_base64(text) >= MIN_BASE64)
}

fn longest_base64(text: &[u8]) -> usize {
    let (mut longest, mut length) = (0, 0);
    for byte in text.iter().filter(|byte| !byte.is_ascii_whitespace()) {
        length = if BASE64.values[usize::from(*byte)] == NONE { 0 } else { length + 1 };
        longest = longest.max(length);
    }
    longest
}

/// What no character of an alphabet stands for.
const NONE: u8 = 0xFF;

/// An encoding in which each character is so many bits.
struct Code {
    values: [u8; 256],
    bits: usize,
    /// How many characters there are until a byte begins with one again.
    group: usize,
}

const HEX: Code = Code { values: values(b"0123456789abcdef"), bits: 4, group: 2 };
const BASE64: Code = {
    let mut all = values(super::STANDARD);
    // The other alphabet.
    (all[b'-' as usize], all[b'_' as usize]) = (62, 63);
    Code { values: all, bits: 6, group: 4 }
};

const fn values(alphabet: &[u8]) -> [u8; 256] {
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < alphabet.len() {
        #[expect(clippy::cast_possible_truncation, reason = "an alphabet has at most 64 characters")]
        let value = at as u8;
        values[alphabet[at] as usize] = value;
        at += 1;
    }
    values
}

impl Code {
    /// The whole bytes that characters of the alphabet stand for.
    fn decode(&self, text: &[u8], decoded: &mut Vec<u8>) {
        let value = |byte: u8| u32::from(self.values[usize::from(byte)]);
        decoded.clear();
        decoded.resize(text.len() * self.bits / 8, 0);
        // A group of characters is a group of whole bytes.
        let (characters, bytes) = (self.group, self.group * self.bits / 8);
        for (from, to) in text.chunks(characters).zip(decoded.chunks_mut(bytes)) {
            let number = from.iter().fold(0, |number, byte| number << self.bits | value(*byte));
            let number = number << (self.bits * (characters - from.len()));
            let whole = (number << (32 - 8 * bytes)).to_be_bytes();
            to.copy_from_slice(&whole[..to.len()]);
        }
    }

    /// The first and the last character that a decoded byte stands in.
    fn place(&self, byte: usize) -> (usize, usize) {
        (byte * 8 / self.bits, (byte * 8 + 7) / self.bits)
    }
}
