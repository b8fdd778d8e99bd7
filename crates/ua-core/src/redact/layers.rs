//! Where secrets stand in a text, also below layers of encoding.
//!
//! A layer is a text with where it came from. In each, escapes are resolved, what nobody sees is left out, and the known forms of secrets are
//! looked for: as they are, in digits and in base64. Then what may be hexadecimal digits, base64 or base32 is decoded, what may have another
//! reading is read so ([`readings`], [`unfinished`]), and what is text of that is a layer again. That ends:
//! layers are at most [`MAX_LAYERS`] deep, each is shorter than the one it came from, and all of them together are at most [`GROWTH`] times
//! as long as the text.
//!
//! Whatever hides a secret needs some length, so most of what is decoded by chance is no layer: it is no text, or too short.

use std::cell::OnceCell;

use super::unfinished::Letters;
use super::view::{Span, View, first_character, is_text};
use super::{Form, Known, Look, MIN_BYTES, joins, literal, readings, spellings, unfinished};

/// How many layers are taken off: of a secret that is encoded four times over, one is left.
const MAX_LAYERS: usize = 3;
/// How much is looked at below the first layer, in lengths of the text, and a little for short ones.
const GROWTH: usize = 10;
const GROWTH_OF_SHORT: usize = 64 * 1024;
/// The shortest text that hides a secret by an escape: 8 bytes and a backslash.
const MIN_ESCAPED: usize = MIN_BYTES + 1;
/// The shortest one of base64.
const MIN_BASE64: usize = 11;
/// The shortest line of base64 that is decoded, of those that it may be wrapped into; the last may be shorter.
const MIN_LINE: usize = 12;
/// The shortest one of base32.
const MIN_BASE32: usize = 13;
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
pub(super) fn hits(text: &str, known: &Known) -> Vec<Hit> {
    let left = text.len().saturating_mul(GROWTH).saturating_add(GROWTH_OF_SHORT);
    let letters = OnceCell::new();
    let mut search =
        Search { known, forms: &known.forms, letters: &letters, hits: Vec::new(), left, scratch: Vec::new() };
    for (form, at) in found(search.forms, Look::Text, text.as_bytes()) {
        search.hits.push(Hit { start: at, end: at + search.forms[form].bytes.len(), form });
    }
    // What has no escapes, no other reading and nothing that nobody sees is what it is, and need not be copied.
    let bytes = text.as_bytes();
    let is_plain = !View::has_escapes(bytes) && !View::has_unseen(bytes) && !readings::may_be_in(bytes);
    if !is_plain || View::has_set_off_lines(bytes) || known.joins.may_be_in(bytes) || search.has_numbers(bytes) {
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

/// The form of a secret that is a number of this value.
pub(super) fn form_of_number(known: &Known, value: f64) -> Option<usize> {
    let is_it = |form: &Form| spellings::number(&form.bytes).is_some_and(|own| own.to_bits() == value.abs().to_bits());
    known.forms.iter().position(|form| form.look == Look::Number && is_it(form))
}

fn found<'f>(forms: &'f [Form], look: Look, bytes: &'f [u8]) -> impl Iterator<Item = (usize, usize)> + 'f {
    let of_kind = forms.iter().enumerate().filter(move |(_, form)| form.look == look);
    of_kind.flat_map(move |(index, form)| form.finder.find_iter(bytes).map(move |at| (index, at)))
}

struct Search<'f> {
    known: &'f Known,
    forms: &'f [Form],
    /// Where letters stand in these, once there is a colour.
    letters: &'f OnceCell<Letters>,
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

    /// Whether some number may be a secret that is known by its value.
    fn has_numbers(&self, text: &[u8]) -> bool {
        self.known.has_numbers && spellings::exponents(text).next().is_some()
    }

    /// Looks for what is known over several lines, and for numbers.
    fn look_beyond(&mut self, view: &View) {
        if self.known.joins.may_be_in(&view.bytes) {
            for found in self.known.joins.find(&view.bytes, self.forms) {
                let (start, end) = joins::span(&view.spans, &found);
                self.hits.push(Hit { start, end, form: found.form });
            }
        }
        if self.known.has_numbers {
            for (begin, end, value) in spellings::exponents(&view.bytes) {
                let Some(form) = form_of_number(self.known, value) else { continue };
                let (start, end) = (view.spans[begin].start as usize, view.spans[end - 1].end as usize);
                self.hits.push(Hit { start, end, form });
            }
        }
    }

    /// Looks at a layer below the text.
    fn layer(&mut self, view: View, depth: usize) {
        let Some(left) = self.left.checked_sub(view.bytes.len()) else { return };
        self.left = left;
        self.look(&view, Look::Text);
        self.levels(view, depth);
    }

    /// Looks at each level of escapes of a layer, in which the forms as they are were looked for already. Other readings are tried in each,
    /// because the text beside the digits of a dump may have escapes that are none of the lines'.
    fn levels(&mut self, view: View, depth: usize) {
        let mut others: Vec<View> = Vec::new();
        let (known, forms, letters) = (self.known, self.forms, self.letters);
        let mut keep = |level: &View| {
            let mut keep = |other: View| {
                if others.iter().all(|known| known.bytes != other.bytes) {
                    others.push(other);
                }
            };
            if depth < MAX_LAYERS {
                readings::others(level, &mut keep);
                if unfinished::may_be_in(&level.bytes) {
                    let letters = letters.get_or_init(|| Letters::of(forms));
                    unfinished::read(level, forms, letters).into_iter().for_each(&mut keep);
                }
                if View::has_escapes(&level.bytes) {
                    let longest = forms.first().map_or(0, |form| form.bytes.len());
                    literal::read(level, &known.beginnings, longest).into_iter().for_each(&mut keep);
                }
            }
        };
        keep(&view);
        self.look_beyond(&view);
        let kept = view.wholly_resolved(|level| {
            self.look(level, Look::Text);
            self.look_beyond(level);
            keep(level);
        });
        // Base64 or hexadecimal digits in a quotation, a comment or a list of texts.
        if View::has_set_off_lines(&kept.bytes) {
            self.below(kept.without_marks(), depth);
        }
        self.below(kept.tight(), depth);
        for other in others {
            self.layer(other, depth + 1);
        }
    }

    /// Looks for the forms without white space, and at what is below.
    fn below(&mut self, tight: View, depth: usize) {
        self.look(&tight, Look::View);
        // Some escapes were wrapped.
        let tight = if View::has_escapes(&tight.bytes) {
            let longest = self.forms.first().map_or(0, |form| form.bytes.len());
            let literal = literal::read(&tight, &self.known.beginnings, longest).filter(|_| depth < MAX_LAYERS);
            if let Some(view) = literal {
                self.layer(view, depth + 1);
            }
            let resolved = tight.wholly_resolved(|_| {});
            self.look(&resolved, Look::View);
            resolved
        } else {
            tight
        };
        if self.known.has_unquoted {
            self.look(&tight.without_quotes(), Look::Unquoted);
        }
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

    /// Decodes each run of base64 that has a line of some length; it begins with one. Base32 is a part of such a run.
    fn base64(&mut self, tight: &View, depth: usize) {
        let is_base64 = |at: usize| BASE64.values[usize::from(tight.bytes[at])] != NONE;
        let mut begins_a_line = tight.begins_of_lines();
        let (mut at, length) = (0, tight.bytes.len());
        while at < length {
            // Prose has no white space here: what a line is, is told by where it came from.
            let (mut begin, mut line) = (None, at);
            while at < length && is_base64(at) {
                if at > line && begins_a_line(at) {
                    line = at;
                }
                if at + 1 - line == MIN_LINE {
                    begin = begin.or(Some(line));
                }
                at += 1;
            }
            if let Some(begin) = begin {
                self.decode(tight, begin, at, &BASE64, depth);
                self.base32(tight, begin, at, depth);
            }
            at += 1;
        }
    }

    fn base32(&mut self, tight: &View, begin: usize, end: usize, depth: usize) {
        let is_base32 = |byte: &u8| BASE32.values[usize::from(*byte)] != NONE;
        let mut at = begin;
        while at < end {
            let length = tight.bytes[at..end].iter().take_while(|byte| is_base32(byte)).count();
            if length >= MIN_BASE32 {
                self.decode(tight, at, at + length, &BASE32, depth);
            }
            at += length + 1;
        }
    }

    /// Decodes a run of an alphabet, wherever in it the encoded text begins.
    fn decode(&mut self, view: &View, begin: usize, end: usize, code: &Code, depth: usize) {
        for shift in 0..code.group.min(end - begin) {
            let mut decoded = std::mem::take(&mut self.scratch);
            code.decode(&view.bytes[begin + shift..end], &mut decoded);
            // Of so many decoded bytes.
            let span = |at: usize, length: usize| {
                let places = [code.place(at).0, code.place(at + length - 1).1];
                let [first, last] = places.map(|place| view.spans[begin + shift + place]);
                Span { start: first.start, end: last.end }
            };
            texts(&decoded, code.least, |first, last| {
                if code.has_forms && !may_hide(&decoded[first..last]) {
                    return;
                }
                let mut layer = View::with_capacity(last - first);
                for (at, byte) in (first..last).zip(&decoded[first..last]) {
                    layer.push(*byte, span(at, 1));
                }
                self.layer(layer, depth + 1);
            });
            if readings::has_utf16(&decoded) {
                readings::each_utf16(&decoded, |characters| {
                    let mut layer = View::with_capacity(characters.len());
                    for (character, at, length) in characters {
                        layer.push_text(character.encode_utf8(&mut [0; 4]), span(*at, *length));
                    }
                    if layer.bytes.len() >= MIN_BYTES {
                        self.layer(layer, depth + 1);
                    }
                });
            }
            self.scratch = decoded;
        }
    }
}

/// Calls `take` for each stretch of at least `least` bytes that are text, in UTF-8.
fn texts(bytes: &[u8], least: usize, mut take: impl FnMut(usize, usize)) {
    let (mut first, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        let length = match byte {
            byte if is_text(*byte) => 1,
            0xC2..=0xF4 => first_character(&bytes[at..]).map_or(0, char::len_utf8),
            _ => 0,
        };
        if length == 0 {
            if at - first >= least {
                take(first, at);
            }
            at += 1;
            first = at;
        } else {
            at += length;
        }
    }
    if at - first >= least {
        take(first, at);
    }
}

/// Whether a text can be an encoding of a secret. One that holds a secret as it is was found by its form.
fn may_hide(text: &[u8]) -> bool {
    let is_long = text.len() >= MIN_DIGITS;
    is_long
        || View::has_escapes(text)
        || View::has_unseen(text)
        || readings::may_be_in(text)
        || (text.len() >= MIN_BASE64 && longest_base64(text) >= MIN_BASE64)
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
    /// Whether secrets are known by forms of it: then what is looked for below is a secret in another dress.
    has_forms: bool,
    /// The shortest text that is looked at.
    least: usize,
}

const HEX: Code = Code { values: values(b"0123456789abcdef"), bits: 4, group: 2, has_forms: true, least: MIN_ESCAPED };
const BASE64: Code = {
    let mut all = values(super::STANDARD);
    // The other alphabet.
    (all[b'-' as usize], all[b'_' as usize]) = (62, 63);
    Code { values: all, bits: 6, group: 4, has_forms: true, least: MIN_ESCAPED }
};
const BASE32: Code =
    Code { values: values(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), bits: 5, group: 8, has_forms: false, least: MIN_BYTES };

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
        let value = |byte: u8| u64::from(self.values[usize::from(byte)]);
        decoded.clear();
        decoded.resize(text.len() * self.bits / 8, 0);
        // A group of characters is a group of whole bytes.
        let (characters, bytes) = (self.group, self.group * self.bits / 8);
        for (from, to) in text.chunks(characters).zip(decoded.chunks_mut(bytes)) {
            let number = from.iter().fold(0, |number, byte| number << self.bits | value(*byte));
            let number = number << (self.bits * (characters - from.len()));
            let whole = (number << (64 - 8 * bytes)).to_be_bytes();
            to.copy_from_slice(&whole[..to.len()]);
        }
    }

    /// The first and the last character that a decoded byte stands in.
    fn place(&self, byte: usize) -> (usize, usize) {
        (byte * 8 / self.bits, (byte * 8 + 7) / self.bits)
    }
}
