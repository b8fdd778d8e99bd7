//! Colours that were begun and never finished, among others that are whole: `ESC [ 1 ;`, then a secret with colours between its letters.
//!
//! To a terminal the next letter ends the colour. Which of the colours of a text are whole nobody can tell, and to read each in either way takes
//! a reading for each subset of them. But letters that a colour took are missed only where they are a secret's, and those are known: so a colour
//! is read as one that was never finished where its signs go on with a piece of a secret that the letters around it go on with as well; and
//! beside each such one all others are read as whole. Nothing is looked at in a text without colours.

use super::view::{View, color, is_inside, is_last, unseen_character};
use super::{Form, Look};

/// How far from a colour a secret is looked for, in letters of what is shown.
const REACH: usize = 8 * 1024;
/// How much is read so, in lengths of the text, and a little for short ones.
const GROWTH: usize = 2;
const GROWTH_OF_SHORT: usize = 16 * 1024;

/// What stands between two pieces: a byte of no text.
const APART: u8 = 0xFF;

/// Where each byte stands in the known forms: which form, and at which place.
pub(super) struct Letters(Vec<Vec<(usize, usize)>>);

impl Letters {
    /// Digits are known in both cases and with anything between them; `View::with_opened_colors` reads those.
    pub(super) fn of(forms: &[Form]) -> Self {
        let mut places = vec![Vec::new(); 256];
        for (index, form) in forms.iter().enumerate().filter(|(_, form)| form.look != Look::Digits) {
            for (at, byte) in form.bytes.iter().enumerate() {
                places[usize::from(*byte)].push((index, at));
            }
        }
        Self(places)
    }
}

/// Whether there is a colour, or the beginning of one: what every text pays for it.
pub(super) fn may_be_in(text: &[u8]) -> bool {
    memchr::memchr2_iter(0x1B, 0xC2, text).any(|at| begun(&text[at..]) > 0)
}

/// A colour that may be the beginning of one, and letters of a secret.
struct Taken {
    /// Where the colour begins, where the letters do, and what follows them.
    begin: usize,
    letters: usize,
    end: usize,
    /// Whether a secret may have begun before.
    is_within: bool,
}

/// What stands around each colour that may have taken letters of a secret, with these and without all other colours; nothing where there is none.
pub(super) fn read(text: &View, forms: &[Form], letters: &Letters) -> Option<View> {
    let colors = colors(&text.bytes);
    let mut all = Vec::new();
    for index in 0..colors.len() {
        taken(&text.bytes, &colors, index, forms, letters, &mut all);
    }
    let longest = forms.first().map_or(0, |form| form.bytes.len());
    let most = GROWTH.saturating_mul(text.bytes.len()).saturating_add(GROWTH_OF_SHORT);
    let reach = most.checked_div(all.len())?.min(REACH).max(longest);
    let mut view = View::with_capacity(most.min(all.len().saturating_mul(reach)));
    for Taken { begin, letters, end, is_within } in all {
        if view.bytes.len() >= most {
            break;
        }
        if is_within {
            let mut before: Vec<usize> = before(&text.bytes, &colors, begin).take(reach / 2).collect();
            before.reverse();
            for at in before {
                view.push(text.bytes[at], text.spans[at]);
            }
        }
        let behind = (letters..end).chain(behind(&text.bytes, end));
        behind.take(reach).for_each(|at| view.push(text.bytes[at], text.spans[at]));
        view.push(APART, text.spans[end - 1]);
    }
    Some(view)
}

/// Where each colour begins and ends, whole or not.
fn colors(text: &[u8]) -> Vec<(usize, usize)> {
    let (mut found, mut from) = (Vec::new(), 0);
    for at in memchr::memchr2_iter(0x1B, 0xC2, text) {
        let length = begun(&text[at..]);
        if at >= from && length > 0 {
            from = at + length;
            found.push((at, from));
        }
    }
    found
}

/// The length of a colour, or of as much of one as there is in front of what ends none.
fn begun(text: &[u8]) -> usize {
    match (color(text), text) {
        (0, [0x1B, b'[', rest @ ..] | [0xC2, 0x9B, rest @ ..]) => {
            2 + rest.iter().take_while(|byte| is_inside(**byte)).count()
        }
        (length, _) => length,
    }
}

/// The bytes behind a place that are no colours.
fn behind(text: &[u8], from: usize) -> impl Iterator<Item = usize> + '_ {
    let mut at = from;
    std::iter::from_fn(move || {
        while at < text.len() {
            match begun(&text[at..]) {
                0 => {
                    at += 1;
                    return Some(at - 1);
                }
                length => at += length,
            }
        }
        None
    })
}

/// The bytes before the colour that begins there that are no colours, the nearest first.
fn before<'a>(text: &'a [u8], colors: &'a [(usize, usize)], begin: usize) -> impl Iterator<Item = usize> + 'a {
    let mut earlier = colors[..colors.partition_point(|(other, _)| *other < begin)].iter().rev().peekable();
    let mut at = begin;
    std::iter::from_fn(move || {
        while let Some((other, _)) = earlier.next_if(|(_, end)| *end == at) {
            at = *other;
        }
        at = at.checked_sub(1)?;
        Some(at).filter(|at| *at < text.len())
    })
}

/// The first of these bytes that is seen and no white space.
fn first_seen(text: &[u8], mut places: impl Iterator<Item = usize>) -> Option<u8> {
    let is_seen = |at: &usize| !text[*at].is_ascii_whitespace() && unseen_character(&text[*at..]) == 0;
    places.find(is_seen).map(|at| text[at])
}

/// Whether a letter may stand for another one, or be the end of something that nobody sees.
fn is_dressed(byte: u8) -> bool {
    matches!(byte, 0x80..=0xBF) || matches!(byte, b'\\' | b'%' | b'&' | b'=' | 0x1B)
}

/// The letters of a secret that a colour may have taken: what stands in it behind some signs of its own, as far as the secret goes.
fn taken(
    text: &[u8],
    colors: &[(usize, usize)],
    index: usize,
    forms: &[Form],
    letters: &Letters,
    all: &mut Vec<Taken>,
) {
    let (begin, end) = colors[index];
    let next = first_seen(text, behind(text, end));
    let last = first_seen(text, before(text, colors, begin));
    let continues = |seen: Option<u8>, wanted: u8| seen.is_some_and(|seen| seen == wanted || is_dressed(seen));
    // Each begins with two bytes.
    for from in begin + 2..end {
        let inside = &text[from..end];
        let mut is_taken = false;
        let mut is_within = false;
        for (form, at) in &letters.0[usize::from(inside[0])] {
            let form = &forms[*form].bytes;
            let length = inside.len().min(form.len() - at);
            if form[*at..at + length] == inside[..length]
                && (*at == 0 || continues(last, form[at - 1]))
                && (length < inside.len() || form.get(at + length).is_none_or(|wanted| continues(next, *wanted)))
            {
                (is_taken, is_within) = (true, is_within || *at > 0);
            }
        }
        if is_taken {
            all.push(Taken { begin, letters: from, end, is_within });
        }
    }
    // One that nothing ends took no letter with it, and is seen by nobody either.
    if !is_last(text[end - 1]) || end - begin == 2 {
        all.push(Taken { begin, letters: end, end, is_within: true });
    }
}
