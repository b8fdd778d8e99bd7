//! Secrets over several lines, whatever stands between their pieces: the mark of a quotation, a comment or a difference, the number of a line,
//! the name of a file, the time of a log; and what ends the line before.
//!
//! No list says what a mark is. Where a line ends and where what it continues with begins is known by the letters on both sides, because those of
//! the secrets are known: two and two that stand in a row in one of them. From there a piece is followed to both sides. So words of a secret are
//! never taken for marks, and texts without such a place cost a look at the ends of their lines.

use super::view::Span;
use super::{Form, Look};

/// The shortest form that is looked for so: half of a shorter one may be the end of a word, and the other half the beginning of one.
const MIN_FORM: usize = 12;
/// How many signs may stand in front of a piece, white space not counted, and how many behind one.
const MOST_BEFORE: usize = 40;
const MOST_BEHIND: usize = 8;
/// How many signs of each piece are looked at first.
const SIDE: usize = 2;
/// How many steps are made, in lengths of the text, and some for short ones.
const GROWTH: usize = 16;
const GROWTH_OF_SHORT: usize = 64 * 1024;

/// Four signs in small letters, the form that they stand in, and the place in it between two and two.
type Place = ([u8; 2 * SIDE], usize, usize);

/// Where any four signs stand in the known forms.
#[derive(Debug, Default)]
pub(super) struct Joins {
    places: Vec<Place>,
}

/// A place in a text where a secret may be: of bytes, and of which form.
pub(super) struct Found {
    pub(super) begin: usize,
    pub(super) end: usize,
    pub(super) form: usize,
}

/// A piece that begins a line, behind pieces from the beginning of the secret on.
struct Open {
    form: usize,
    /// Where in the form it begins, and where in the text.
    at: usize,
    head: usize,
    /// Where the secret begins.
    begin: usize,
}

impl Joins {
    pub(super) fn of(forms: &[Form]) -> Self {
        let mut places = Vec::new();
        for (index, form) in forms.iter().enumerate() {
            if !matches!(form.look, Look::View | Look::Digits) || form.bytes.len() < MIN_FORM {
                continue;
            }
            for (at, four) in form.bytes.windows(2 * SIDE).enumerate() {
                places.push((four_of(&four[..SIDE], &four[SIDE..]), index, at + SIDE));
            }
        }
        places.sort_unstable();
        Self { places }
    }

    /// The places of four signs.
    fn of_four(&self, four: [u8; 2 * SIDE]) -> &[Place] {
        let from = self.places.partition_point(|(known, ..)| *known < four);
        let length = self.places[from..].partition_point(|(known, ..)| *known == four);
        &self.places[from..from + length]
    }

    /// Whether some place has these two signs on its left.
    fn has_left(&self, left: &[u8]) -> bool {
        let from = self.places.partition_point(|(known, ..)| *known < four_of(left, &[0; SIDE]));
        self.places.get(from).is_some_and(|(known, ..)| known[..SIDE] == four_of(left, &[0; SIDE])[..SIDE])
    }

    /// Each end of a piece, and the beginning of the next, in two lines without white space.
    fn each<'j>(&'j self, line: &'j [u8], next: &'j [u8]) -> impl Iterator<Item = (usize, usize, &'j [Place])> + 'j {
        let ends = (0..=MOST_BEHIND).map_while(move |behind| line.len().checked_sub(behind).filter(|end| *end >= SIDE));
        let ends = ends.filter(move |end| self.has_left(&line[end - SIDE..*end]));
        ends.flat_map(move |end| {
            let heads = next.windows(SIDE).take(MOST_BEFORE + 1).enumerate();
            heads.filter_map(move |(head, right)| {
                let places = self.of_four(four_of(&line[end - SIDE..end], right));
                (!places.is_empty()).then_some((end, head, places))
            })
        })
    }

    /// Whether a secret may stand in several lines of a text.
    pub(super) fn may_be_in(&self, text: &[u8]) -> bool {
        if self.places.is_empty() || memchr::memchr(b'\n', text).is_none() {
            return false;
        }
        // Each line as far as its ends are looked at.
        let mut last: Vec<u8> = Vec::new();
        text.split(|byte| *byte == b'\n').any(|line| {
            let is_seen = |byte: &&u8| !byte.is_ascii_whitespace();
            let head: Vec<u8> = line.iter().filter(is_seen).take(MOST_BEFORE + SIDE).copied().collect();
            if head.is_empty() {
                return false;
            }
            let may_be = self.each(&last, &head).next().is_some();
            last.clear();
            last.extend(line.iter().rev().filter(is_seen).take(MOST_BEHIND + SIDE));
            last.reverse();
            may_be
        })
    }

    /// Where secrets stand in several lines.
    pub(super) fn find(&self, text: &[u8], forms: &[Form]) -> Vec<Found> {
        let lines = Lines::of(text);
        let mut steps = text.len().saturating_mul(GROWTH).saturating_add(GROWTH_OF_SHORT);
        let (mut found, mut open) = (Vec::new(), Vec::<Open>::new());
        for pair in lines.begins.windows(3) {
            let [first, second, end] = *pair else { unreachable!("a window has as many as were asked for") };
            let (line, next) = (&lines.seen[first..second], &lines.seen[second..end]);
            let mut following = Vec::<Open>::new();
            for (tail, head, places) in self.each(line, next) {
                for (_, index, at) in places {
                    let form = &forms[*index];
                    // Where the line continues with the secret, that is no end of a piece; and what the next line has from its beginning is
                    // all there.
                    let is_continued = count(line[tail..].iter(), form.bytes[*at..].iter(), form.look) > 0;
                    let own = count(next[..head].iter().rev(), form.bytes[..*at].iter().rev(), form.look);
                    if is_continued || own == *at {
                        continue;
                    }
                    let before = count(line[..tail].iter().rev(), form.bytes[..*at].iter().rev(), form.look);
                    let behind = count(next[head..].iter(), form.bytes[*at..].iter(), form.look);
                    steps = match steps.checked_sub(1 + before + behind + open.len()) {
                        Some(left) => left,
                        None => return found,
                    };
                    let continued = || {
                        let follows = |open: &&Open| {
                            let length = (first + tail).checked_sub(open.head);
                            let fits = |length: usize| length <= before && open.at + length == *at;
                            open.form == *index && length.is_some_and(fits)
                        };
                        open.iter().find(follows).map(|open| open.begin)
                    };
                    let begin = if before == *at { Some(first + tail - at) } else { continued() };
                    let Some(begin) = begin else { continue };
                    if behind < SIDE {
                        continue;
                    }
                    let head = second + head;
                    if at + behind == form.bytes.len() {
                        let (begin, end) = (lines.places[begin], lines.places[head + behind - 1] + 1);
                        found.push(Found { begin, end, form: *index });
                    } else if following.iter().all(|open| (open.form, open.at, open.head) != (*index, *at, head)) {
                        following.push(Open { form: *index, at: *at, head, begin });
                    }
                }
            }
            open = following;
        }
        found
    }
}

fn four_of(left: &[u8], right: &[u8]) -> [u8; 2 * SIDE] {
    [left[0], left[1], right[0], right[1]].map(|byte| byte.to_ascii_lowercase())
}

/// How many signs in a row are those of a form.
fn count<'b>(text: impl Iterator<Item = &'b u8>, form: impl Iterator<Item = &'b u8>, look: Look) -> usize {
    let is_same =
        |(text, form): &(&u8, &u8)| *text == *form || (look == Look::Digits && text.eq_ignore_ascii_case(form));
    text.zip(form).take_while(is_same).count()
}

/// A text without white space, and where its lines begin.
struct Lines {
    seen: Vec<u8>,
    /// Where each of these stands in the text.
    places: Vec<usize>,
    /// Where each line that is not empty begins in these, and where the last one ends.
    begins: Vec<usize>,
}

impl Lines {
    fn of(text: &[u8]) -> Self {
        let mut lines = Self { seen: Vec::with_capacity(text.len()), places: Vec::new(), begins: vec![0] };
        for (at, byte) in text.iter().enumerate() {
            if !byte.is_ascii_whitespace() {
                lines.seen.push(*byte);
                lines.places.push(at);
            } else if *byte == b'\n' && lines.begins.last() != Some(&lines.seen.len()) {
                lines.begins.push(lines.seen.len());
            }
        }
        if lines.begins.last() != Some(&lines.seen.len()) {
            lines.begins.push(lines.seen.len());
        }
        lines
    }
}

/// What a place of bytes is of the whole text.
pub(super) fn span(spans: &[Span], found: &Found) -> (usize, usize) {
    (spans[found.begin].start as usize, spans[found.end - 1].end as usize)
}

#[cfg(test)]
mod tests {
    use crate::redact::Redactor;

    fn cleaned(secret: &str, text: &str) -> String {
        Redactor::new([("K".to_owned(), secret.to_owned())]).text(text).into_owned()
    }

    #[test]
    fn words_of_a_secret_are_no_marks() {
        let secret = "correct horse battery staple";
        for mark in [
            "> ",
            ">> ",
            ">",
            "+",
            "-",
            "# ",
            "// ",
            "-- ",
            "12: ",
            "     7\t",
            "| ",
            "key.txt:3:",
            "app_1  | ",
            "2026-11-29T14:00:00Z INFO ",
        ] {
            for lines in [
                &["correct horse", "battery staple"][..],
                &["correct", "horse", "battery", "staple"],
                &["corr", "ect ho", "rse batt", "ery st", "aple"],
            ] {
                let marked: Vec<String> = lines.iter().map(|line| format!("{mark}{line}")).collect();
                for end in ["", "$", " |", " \\"] {
                    let text = format!("a\n{mark}some words\n{}\n{mark}and more\n", marked.join(&format!("{end}\n")));
                    let wanted = format!("a\n{mark}some words\n{mark}[secret K]\n{mark}and more\n");
                    assert_eq!(cleaned(secret, &text), wanted, "{mark:?} {end:?}");
                }
            }
        }
    }

    /// Each line has a number of its own, and those of a key have blanks in some lines.
    #[test]
    fn a_key_of_several_lines_is_known_however_they_are_marked() {
        let body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj", "AgEAAoIBAQC7VJTUt9Us8cKjMzEfYYjiWA4R4/M2", "bS1G"];
        let lines = [&["-----BEGIN PRIVATE KEY-----"][..], &body, &["-----END PRIVATE KEY-----"]].concat();
        for ends in ["", "\n"] {
            let secret = format!("{}{ends}", lines.join("\n"));
            let marks: [&dyn Fn(usize) -> String; 7] = [
                &|_| "+".into(),
                &|_| "-".into(),
                &|n| format!("{n}: "),
                &|n| format!("{n:6}\t"),
                &|n| format!("key.pem:{n}:"),
                &|_| "// ".into(),
                &|n| format!("[{n}] -- "),
            ];
            for mark in marks {
                let text: Vec<String> = lines.iter().zip(98..).map(|(line, n)| format!("{}{line}", mark(n))).collect();
                let clean = cleaned(&secret, &format!("See\n{}\nthere", text.join("\n")));
                assert_eq!(clean, format!("See\n{}[secret K]\nthere", mark(98)));
            }
        }
    }

    #[test]
    fn halves_of_a_secret_that_are_not_each_others_stay() {
        for text in [
            "> correct horse\n> and a battery that has no\n> staples",
            "> correct horse\n> correct horse",
            "correct horse batter\n> and staple",
            "battery staple\ncorrect horse",
            "correct horse\n\n0123456789012345678901234567890123456789012 battery staple",
        ] {
            assert_eq!(cleaned("correct horse battery staple", text), text);
        }
    }

    /// It is followed as far as its line has it: that its last letters stand in the next line as well, or its first ones in the
    /// line before, says nothing.
    #[test]
    fn what_stands_around_a_whole_secret_stays() {
        let text = "It is correct horse battery staple.\n> and so is le, that is all.\n> le";
        assert_eq!(
            cleaned("correct horse battery staple", text),
            "It is [secret K].\n> and so is le, that is all.\n> le"
        );
        assert_eq!(cleaned("ysaa-bcdefgh-xyz", "It says:\nysaa-bcdefgh-xyz"), "It says:\n[secret K]");
    }

    /// A secret of one sign has each place in it at each place of a text.
    #[test]
    fn what_can_be_anywhere_ends() {
        let text = "aaaaaaaaaaaaaaaaaaaa\n".repeat(2000);
        let clean = cleaned(&"a".repeat(400), &text);
        assert!(clean.len() <= text.len());
    }
}
