//! A text that is put together out of another one, which is stored already.
//!
//! Tools say the same thing several times: as an object, as the JSON of it in a text, as a part of a longer text, cut or laid out otherwise.
//! Of these one text is a blob, that which the model is given; what the others share with it is said by where it stands there. Whatever
//! is put together is known by its own name ([`BlobRef`]), so it comes back to the byte or not at all.

use std::cell::OnceCell;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::BlobRef;

use crate::lifted::NewBlob;

/// How a text is read before pieces are copied out of it. What a view makes of a text is stored nowhere and must never change: another one
/// is another variant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// As it is.
    #[default]
    Plain,
    /// Its paragraphs, each that is JSON without its layout, behind each other with commas.
    Compact,
    /// As it stands in a JSON string.
    Escaped,
    /// Its paragraphs, each as a text part of a tool's result, as JSON behind each other with commas.
    Parts,
}

/// The views in which a text that is JSON, and one that is none, are looked for.
const OF_JSON: [View; 3] = [View::Compact, View::Plain, View::Parts];
const OF_TEXT: [View; 2] = [View::Plain, View::Escaped];

impl View {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    /// What it makes of `text`.
    fn of(self, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Compact => text.split("\n\n").map(compact).collect::<Vec<_>>().join(","),
            Self::Escaped => {
                let quoted = Value::from(text).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            Self::Parts => {
                let part = |text| serde_json::json!({"text": text, "type": "text"}).to_string();
                text.split("\n\n").map(part).collect::<Vec<_>>().join(",")
            }
        }
    }
}

/// JSON without its layout; of what only begins as JSON, what lies between its strings is closed up. Any other text is left as it is.
fn compact(text: &str) -> String {
    if !text.trim_start().starts_with(['{', '[']) {
        return text.to_owned();
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        return value.to_string();
    }
    let (mut out, mut is_string, mut is_escaped) = (String::with_capacity(text.len()), false, false);
    for letter in text.chars() {
        if is_string || !letter.is_ascii_whitespace() {
            out.push(letter);
        }
        match letter {
            '"' if !is_escaped => is_string = !is_string,
            _ => {}
        }
        is_escaped = is_string && letter == '\\' && !is_escaped;
    }
    out
}

/// A piece of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Piece {
    /// So many bytes of the view, from this one on.
    Copied(usize, usize),
    /// These letters.
    Said(String),
    /// All of another blob.
    Kept(BlobRef),
}

/// How a text is put together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOf {
    /// The blob that its pieces are copied out of.
    of: BlobRef,
    #[serde(default, skip_serializing_if = "View::is_plain")]
    view: View,
    pieces: Vec<Piece>,
}

impl MadeOf {
    /// The blobs that it needs.
    pub fn blobs(&self) -> impl Iterator<Item = &BlobRef> {
        let kept = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Kept(blob) => Some(blob),
            Piece::Copied(..) | Piece::Said(_) => None,
        });
        std::iter::once(&self.of).chain(kept)
    }

    /// Whether it is that blob and nothing else.
    pub(crate) fn is_all_of(&self, blob: &BlobRef) -> bool {
        self.of == *blob
    }

    /// The text; `None` when a blob has no such place. `text_of` has the blobs.
    pub(crate) fn text<'t>(&self, text_of: impl Fn(&BlobRef) -> Option<&'t str>) -> Option<String> {
        let (base, mut text) = (self.view.of(text_of(&self.of)?), String::new());
        for piece in &self.pieces {
            text.push_str(match piece {
                Piece::Copied(from, length) => base.get(*from..from.checked_add(*length)?)?,
                Piece::Said(letters) => letters,
                Piece::Kept(blob) => text_of(blob)?,
            });
        }
        Some(text)
    }
}

/// A text that others may be made of, with what was read in it so far.
pub(crate) struct Base {
    blob: BlobRef,
    text: String,
    read: [OnceCell<String>; 4],
}

impl Base {
    pub(crate) fn new(blob: &NewBlob) -> Self {
        Self { blob: blob.blob.clone(), text: blob.content.clone(), read: Default::default() }
    }

    fn read(&self, view: View) -> &str {
        let place = match view {
            View::Plain => return &self.text,
            View::Compact => 1,
            View::Escaped => 2,
            View::Parts => 3,
        };
        self.read[place].get_or_init(|| view.of(&self.text))
    }
}

/// The most of a text that is looked through for pieces; of a longer one only whether it is a piece itself, or begins as another one does.
const MOST_SEARCHED: usize = 600_000;

/// The least lengths of stretches that are tried, one after the other.
const LEAST: [usize; 3] = [48, 512, 8192];

/// A saying of pieces is worth it when it takes no more than this part of the text.
const WORTH: usize = 8;

/// How `content` is made of one of `bases`, with the rests that are over `threshold` bytes; `None` when it has too little in common with them.
pub(crate) fn made_of(bases: &[Base], content: &str, is_json: bool, threshold: u64) -> Option<(MadeOf, Vec<NewBlob>)> {
    let views: &[View] = if is_json { &OF_JSON } else { &OF_TEXT };
    let readings = || bases.iter().flat_map(|base| views.iter().map(move |view| (base, *view, base.read(*view))));
    for (base, view, text) in readings() {
        if let Some(from) = text.find(content) {
            let pieces = vec![Piece::Copied(from, content.len())];
            return Some((MadeOf { of: base.blob.clone(), view, pieces }, Vec::new()));
        }
    }
    let mut best: Option<(usize, MadeOf, Vec<NewBlob>)> = None;
    for (base, view, text) in readings() {
        let made = attempts(text, content).into_iter().find_map(|found| {
            let copied: usize = found.iter().map(|(_, _, length)| length).sum();
            let (pieces, kept) = said(&found, content, threshold);
            let bytes = serde_json::to_string(&pieces).map_or(usize::MAX, |json| json.len());
            let is_worth_it = bytes.saturating_mul(WORTH) <= content.len() && copied > bytes.saturating_mul(2);
            is_worth_it.then(|| (copied, MadeOf { of: base.blob.clone(), view, pieces }, kept))
        });
        if let Some(made) = made.filter(|made| best.as_ref().is_none_or(|best| made.0 > best.0)) {
            let is_nearly_all = made.0 >= content.len() - content.len() / WORTH;
            best = Some(made);
            if is_nearly_all {
                break;
            }
        }
    }
    best.map(|(_, made, kept)| (made, kept))
}

/// What both have, in the ways in which it may be worth saying. Long blocks tell lines apart that begin alike, short ones find more. Many short
/// stretches take more to say than they spare, and then the long ones alone do not.
fn attempts(base: &str, content: &str) -> Vec<Vec<Stretch>> {
    if content.len() > MOST_SEARCHED {
        return vec![beginning(base, content)];
    }
    let with = |block: usize| {
        let found = common(base, content, block);
        LEAST.map(|least| found.iter().filter(|(_, _, length)| *length >= least).copied().collect::<Vec<_>>())
    };
    let mut attempts: Vec<Vec<Stretch>> = BLOCKS.into_iter().flat_map(with).collect();
    attempts.sort_by_key(|found| std::cmp::Reverse(found.iter().map(|(_, _, length)| length).sum::<usize>()));
    attempts
}

/// Where in `content` a stretch stands that stands in `base` as well: its place there, its place in `base`, its length.
type Stretch = (usize, usize, usize);

/// The beginning that both have.
fn beginning(base: &str, content: &str) -> Vec<Stretch> {
    let same = base.bytes().zip(content.bytes()).take_while(|(a, b)| a == b).count();
    stretch(base, content, 0, 0, same).into_iter().collect()
}

/// By blocks of how many bytes stretches are looked for: any of twice of this length is found.
const BLOCKS: [usize; 2] = [64, 16];

/// The least of a stretch.
const SHORTEST: usize = 16;

/// The stretches that both have, in the order of `content`, none over another.
fn common(base: &str, content: &str, size: usize) -> Vec<Stretch> {
    let (from, to) = (base.as_bytes(), content.as_bytes());
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (number, block) in from.chunks_exact(size).enumerate() {
        places.entry(block).or_insert(number * size);
    }
    let (mut found, mut at, mut done) = (Vec::new(), 0, 0);
    while at + size <= to.len() {
        let Some(place) = places.get(&to[at..at + size]) else {
            at += 1;
            continue;
        };
        let before = from[..*place].iter().rev().zip(to[done..at].iter().rev()).take_while(|(a, b)| a == b).count();
        let (begin, place) = (at - before, place - before);
        let length = from[place..].iter().zip(&to[begin..]).take_while(|(a, b)| a == b).count();
        match stretch(base, content, begin, place, length) {
            Some(piece) => {
                (at, done) = (piece.0 + piece.2, piece.0 + piece.2);
                found.push(piece);
            }
            None => at += 1,
        }
    }
    found
}

/// The whole letters of a stretch.
fn stretch(base: &str, content: &str, mut at: usize, mut place: usize, mut length: usize) -> Option<Stretch> {
    while length > 0 && !(content.is_char_boundary(at) && base.is_char_boundary(place)) {
        (at, place, length) = (at + 1, place + 1, length - 1);
    }
    while length > 0 && !(content.is_char_boundary(at + length) && base.is_char_boundary(place + length)) {
        length -= 1;
    }
    (length >= SHORTEST).then_some((at, place, length))
}

/// The pieces of `content` by its stretches; what lies between them is said, or kept as a blob where it is over `threshold` bytes.
fn said(stretches: &[Stretch], content: &str, threshold: u64) -> (Vec<Piece>, Vec<NewBlob>) {
    let (mut pieces, mut kept, mut done) = (Vec::new(), Vec::new(), 0);
    let mut between = |pieces: &mut Vec<Piece>, rest: &str| {
        if rest.len() as u64 > threshold {
            let blob = NewBlob::new(rest.to_owned());
            pieces.push(Piece::Kept(blob.blob.clone()));
            kept.push(blob);
        } else if !rest.is_empty() {
            pieces.push(Piece::Said(rest.to_owned()));
        }
    };
    for (at, place, length) in stretches {
        between(&mut pieces, &content[done..*at]);
        pieces.push(Piece::Copied(*place, *length));
        done = at + length;
    }
    between(&mut pieces, &content[done..]);
    (pieces, kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn texts(kept: &[NewBlob], base: &NewBlob) -> HashMap<String, String> {
        let all = kept.iter().chain([base]);
        all.map(|blob| (blob.blob.blob_id.to_string(), blob.content.clone())).collect()
    }

    /// Every way in which two texts can have something in common, with letters of every length: it comes back to the byte.
    #[test]
    fn a_text_made_of_another_one_comes_back_to_the_byte() {
        let words = [
            "plain words and more of them ",
            "müßte längst – sein, ",
            "\"quoted\" \\ and\nlines\n",
            "日本語の文字列です。",
        ];
        let long = |seed: usize| {
            (0..200).fold(String::new(), |text, n| text + words[(n * 7 + seed) % 4] + &n.to_string() + " ")
        };
        for seed in 0..8 {
            let base = NewBlob::new(long(seed));
            let bases = [Base::new(&base)];
            let letters: Vec<usize> = base.content.char_indices().map(|(at, _)| at).collect();
            for step in [1, 3, 7] {
                let (a, b) = (letters[letters.len() / (step + 1)], letters[letters.len() / 2]);
                let contents = [
                    base.content[a.min(b)..].to_owned(),
                    format!("{}{}", &base.content[..b], "other ".repeat(step * 90)),
                    format!("{} between {}", &base.content[a..], &base.content[..b]),
                    Value::from(&base.content[a..]).to_string(),
                    json!({"said": &base.content[..b], "n": step}).to_string(),
                ];
                for (number, content) in contents.iter().enumerate() {
                    let made = made_of(&bases, content, number == 4, 500);
                    let Some((made, kept)) = made else { panic!("{seed} {step} {number}") };
                    let texts = texts(&kept, &base);
                    let stored: MadeOf = serde_json::from_str(&serde_json::to_string(&made).unwrap()).unwrap();
                    assert_eq!(stored, made);
                    let text_of = |blob: &BlobRef| texts.get(blob.blob_id.as_str()).map(String::as_str);
                    assert_eq!(stored.text(text_of).as_ref(), Some(content), "{seed} {step} {number}");
                    assert_eq!(stored.text(|_| None), None);
                }
            }
            assert!(made_of(&bases, &"nothing of it ".repeat(300), false, 500).is_none());
        }
    }

    /// What a view makes of a text is part of what is stored.
    #[test]
    fn a_golden_view_never_changes() {
        let text = "two\n\n{ \"a\" : 1.50,\n \"b\": \"\\u00e9 x\" }\n\n{\"cut\": [1, \"a \\\" b";
        assert_eq!(View::Plain.of(text), text);
        assert_eq!(View::Compact.of(text), "two,{\"a\":1.5,\"b\":\"é x\"},{\"cut\":[1,\"a \\\" b");
        assert_eq!(View::Parts.of("a\n\n\"b\""), r#"{"text":"a","type":"text"},{"text":"\"b\"","type":"text"}"#);
        assert_eq!(View::Escaped.of("a \"b\"\n"), "a \\\"b\\\"\\n");
    }

    #[test]
    fn a_list_of_parts_is_made_of_their_text() {
        let rows: Vec<String> =
            (0..90).map(|n| serde_json::to_string_pretty(&json!({"row": n, "of": "ü"})).unwrap()).collect();
        let base = NewBlob::new(rows.join("\n\n"));
        let parts: Vec<Value> = rows.iter().map(|row| json!({"type": "text", "text": row})).collect();
        let list = Value::from(parts).to_string();
        let (made, kept) = made_of(&[Base::new(&base)], &list, true, 500).unwrap();
        assert_eq!((made.view, made.pieces.len(), kept.len()), (View::Parts, 3, 0), "{made:?}");
        assert_eq!(made.text(|_| Some(base.content.as_str())), Some(list));
    }

    #[test]
    fn places_that_a_text_does_not_have_are_no_places() {
        let base = NewBlob::new("é".repeat(20));
        for (from, length) in [(1, 4), (0, 99), (usize::MAX, 2), (2, usize::MAX)] {
            let made = MadeOf { of: base.blob.clone(), view: View::Plain, pieces: vec![Piece::Copied(from, length)] };
            assert_eq!(made.text(|_| Some(base.content.as_str())), None, "{from} {length}");
        }
    }
}
