//! Secrets that must not be kept: replaced in what comes from outside, before it is stored or shown to anybody.
//!
//! Context Storage & Durability §4: what a tool answers is kept raw, so what must not be kept goes out before. A pure rule over text;
//! where it stands on the way decides what it protects. A secret is known as it is, in escapes of JSON, C, Rust and Markdown, percent signs,
//! entities and quoted-printable, in hexadecimal digits, in dumps of bytes, in lists of numbers, in UTF-16, and inside base32 and base64 of
//! either alphabet wherever it starts; each of them also with white space and what nobody sees anywhere, as where lines are wrapped, and
//! hexadecimal digits in pairs with what people put between them; over lines whatever stands between its pieces ([`joins`]); as it may be
//! spelled before all that ([`spellings`]); and in each of these within another, three layers deep ([`layers`]). In JSON a number is a text as
//! well, and so is a list of numbers ([`values`]). Not known: any other transformation (compressed, encrypted, reversed, spelled), and secrets of fewer than 8 bytes, or of fewer than 6 once their
//! own characters are read as escapes and they are dressed in others. `docs/security.md` has the list.

mod dump;
mod given;
mod joins;
mod layers;
mod lines;
mod literal;
mod looks;
mod readings;
mod spellings;
mod unfinished;
mod values;
mod view;

pub use given::{
    secrets_entrusted, secrets_given, secrets_in_arguments, secrets_of_environment, secrets_within, without_secrets,
};

pub(crate) use spellings::{composed, decomposed};

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use memchr::memmem;
use serde_json::json;

use crate::handle::Handle;
use crate::reply::{Outcome, RawReply};

/// Shorter values stand in too many words to be told from them.
const MIN_BYTES: usize = 8;
/// What is left of a value of that length whose own characters read as escapes (`\\`, `%41`): it may be a little shorter.
const MIN_RESOLVED: usize = 6;
/// The number of an error whose own was a secret.
const UNNAMED_ERROR: i64 = -32_000;

/// Secrets by name, and how they are taken out of text. Clones know the same secrets, also those that one of them learns later.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<RwLock<Arc<Known>>>,
}

/// What is known, and what is made of it once.
#[derive(Debug, Default)]
struct Known {
    /// The longest first.
    forms: Vec<Form>,
    joins: joins::Joins,
    beginnings: literal::Beginnings,
    /// Whether some form is one without quotation marks.
    has_unquoted: bool,
    /// Whether some secret is a number.
    has_numbers: bool,
}

impl Known {
    fn of(forms: Vec<Form>) -> Self {
        Self {
            joins: joins::Joins::of(&forms),
            beginnings: literal::Beginnings::of(&forms),
            has_unquoted: forms.iter().any(|form| form.look == Look::Unquoted),
            has_numbers: forms.iter().any(|form| form.look == Look::Number),
            forms,
        }
    }
}

/// A secret as it may stand in a text.
#[derive(Debug, Clone)]
struct Form {
    bytes: Vec<u8>,
    /// What looks for it: made once, since that takes longer than to look through a short text.
    finder: memmem::Finder<'static>,
    look: Look,
    /// What stands in its place.
    shown: String,
}

/// Where a form is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// In the text as it is.
    Text,
    /// In what is left of it without white space and escapes.
    View,
    /// In that without quotation marks, which are doubled where a text stands in them.
    Unquoted,
    /// In the digits of that.
    Digits,
    /// In numbers, by their value.
    Number,
}

impl std::fmt::Debug for Redactor {
    /// Names, never values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.known();
        let names: BTreeSet<&str> = known.forms.iter().map(|form| form.shown.as_str()).collect();
        f.debug_list().entries(names).finish()
    }
}

impl Redactor {
    /// Takes secrets as name and value. Values of fewer than 8 bytes are left out: they cannot be told from ordinary words.
    pub fn new(secrets: impl IntoIterator<Item = (String, String)>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Learns more secrets, for every clone of this redactor.
    pub fn learn(&self, secrets: impl IntoIterator<Item = (String, String)>) {
        let new: Vec<Form> = secrets
            .into_iter()
            .map(|(name, value)| (format!("[secret {name}]"), value.trim().to_owned()))
            .filter(|(_, value)| value.len() >= MIN_BYTES)
            .flat_map(|(shown, value)| {
                spellings::forms(&value).into_iter().map(move |(bytes, look)| {
                    let finder = memmem::Finder::new(&bytes).into_owned();
                    Form { bytes, finder, look, shown: shown.clone() }
                })
            })
            .collect();
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = known.forms.clone();
        all.extend(new);
        // The longest first: one may be the beginning of another. The name that came first stays.
        all.sort_by(|a, b| b.bytes.len().cmp(&a.bytes.len()).then_with(|| (&a.bytes, a.look).cmp(&(&b.bytes, b.look))));
        all.dedup_by(|a, b| a.bytes == b.bytes && a.look == b.look);
        *known = Arc::new(Known::of(all));
    }

    fn known(&self) -> Arc<Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known().forms.is_empty()
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let places = self.places(text);
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        let (mut clean, mut copied) = (String::with_capacity(text.len()), 0);
        for (range, shown) in places {
            clean.push_str(&text[copied..range.start]);
            clean.push_str(&shown);
            copied = range.end;
        }
        clean.push_str(&text[copied..]);
        Cow::Owned(clean)
    }

    /// The name of a secret that stands in the text, as `[secret NAME]`.
    pub fn found_in(&self, text: &str) -> Option<String> {
        self.places(text).into_iter().next().map(|(_, shown)| shown)
    }

    /// Where secrets stand in the text, in order, none within another.
    fn places(&self, text: &str) -> Vec<(Range<usize>, String)> {
        let known = self.known();
        if known.forms.is_empty() || text.len() < MIN_BYTES {
            return Vec::new();
        }
        let mut hits = layers::hits(text, &known);
        hits.sort_by_key(|hit| (hit.start, hit.form));
        let mut places: Vec<(Range<usize>, usize)> = Vec::new();
        for hit in hits {
            match places.last_mut().filter(|(range, _)| hit.start < range.end) {
                // One may be the beginning of another, and a dump shows the same twice: what overlaps goes as one, under the longest's name.
                Some((range, form)) => {
                    range.end = range.end.max(hit.end);
                    *form = hit.form.min(*form);
                }
                None => places.push((hit.start..hit.end, hit.form)),
            }
        }
        places.into_iter().map(|(range, form)| (range, known.forms[form].shown.clone())).collect()
    }

    /// What came of an attempt, without secrets.
    pub fn outcome(&self, mut outcome: Outcome) -> Outcome {
        if self.is_empty() {
            return outcome;
        }
        match &mut outcome {
            Outcome::NotSent { why } | Outcome::Lost { why } => self.own(why),
            Outcome::Raw(reply) => match reply {
                RawReply::ToolResult { result } => self.json(result),
                RawReply::RpcError { code, message } => {
                    self.own(message);
                    if self.found_in(&code.to_string()).is_some() {
                        *code = UNNAMED_ERROR;
                    }
                }
                RawReply::HttpStatus { body, .. } => self.own(body),
                RawReply::Refused { why } => self.own(why),
                // Not from a tool: a person said it, or it was put together here out of what was read before.
                RawReply::Statement { .. } | RawReply::Found { .. } => {}
            },
            // Names and states go back to the tool as they came, and until then they are stored.
            Outcome::Continues(handle) if let Some(shown) = self.in_names_of(handle) => {
                let why = format!(
                    "the tool continues under a name that contains {shown}, which is not stored, so it cannot be asked what happened to the call"
                );
                return Outcome::Lost { why };
            }
            Outcome::Continues(handle) => {
                // What is shown to a person.
                let requests = handle.input.iter_mut().flat_map(|input| input.requests.values_mut());
                requests.for_each(|request| self.json(request));
                if let Some(awaited) = &mut handle.awaits {
                    self.own(&mut awaited.detail);
                }
            }
        }
        outcome
    }

    /// The secret in what a handle goes back to its tool with, as `[secret NAME]`: the names of tasks and requests, a state, a place.
    pub fn in_names_of(&self, handle: &Handle) -> Option<String> {
        let input = handle.input.as_ref();
        let requests: Vec<&String> = input.into_iter().flat_map(|input| input.requests.keys()).collect();
        let state = input.and_then(|input| input.state.as_ref());
        let question = handle.awaits.as_ref().and_then(|awaited| awaited.question.as_ref());
        let names = json!([handle.task, handle.place, handle.generation, requests, state, question]);
        let mut without = names.clone();
        self.json(&mut without);
        let named = || self.found_in(&names.to_string()).unwrap_or_else(|| "a secret".to_owned());
        (names != without).then(named)
    }

    /// Takes secrets out of a text in its place.
    pub fn own(&self, text: &mut String) {
        if let Cow::Owned(clean) = self.text(text) {
            *text = clean;
        }
    }
}

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What of base64 depends on `value` alone when `offset` bytes of a group stand before it: the characters at its edges depend on its
/// neighbours, too. `None` when that is too little to be told from chance.
fn inside_base64(value: &[u8], offset: usize, alphabet: &[u8; 64]) -> Option<String> {
    let bits = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    // The first character whose bits are all of the value.
    let skipped = (6 - offset * 8 % 6) % 6;
    let bits: Vec<u8> = bits.skip(skipped).collect();
    let text: String = bits
        .chunks_exact(6)
        .map(|six| char::from(alphabet[usize::from(six.iter().fold(0, |number, bit| number << 1 | bit))]))
        .collect();
    (text.len() >= MIN_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn redactor() -> Redactor {
        let secrets = [("KEY", "sk-canary-1"), ("LONGER", "sk-canary-12345"), ("SHORT", "1234567")];
        Redactor::new(secrets.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn the_longest_secret_goes_first_and_short_ones_stay() {
        assert_eq!(
            redactor().text("a sk-canary-12345 b sk-canary-1 c 1234567"),
            "a [secret LONGER] b [secret KEY] c 1234567"
        );
        assert!(matches!(redactor().text("nothing here"), Cow::Borrowed(_)));
    }

    #[test]
    fn every_text_of_an_answer_is_looked_at() {
        let result =
            json!({"content": [{"text": "key: sk-canary-1"}], "n": 1, "sk-canary-12345": {"deep": ["sk-canary-1"]}});
        let outcome = redactor().outcome(Outcome::Raw(RawReply::ToolResult { result }));
        let clean =
            json!({"content": [{"text": "key: [secret KEY]"}], "n": 1, "[secret LONGER]": {"deep": ["[secret KEY]"]}});
        assert_eq!(outcome, Outcome::Raw(RawReply::ToolResult { result: clean }));
        for outcome in [
            Outcome::Lost { why: "sk-canary-1".into() },
            Outcome::NotSent { why: "sk-canary-1".into() },
            Outcome::Raw(RawReply::RpcError { code: 1, message: "sk-canary-1".into() }),
            Outcome::Raw(RawReply::http(500, "sk-canary-1")),
        ] {
            let clean = format!("{:?}", redactor().outcome(outcome));
            assert!(clean.contains("[secret KEY]") && !clean.contains("canary"), "{clean}");
        }
    }

    #[test]
    fn s3_a_name_that_a_tool_gives_and_that_is_a_secret_is_not_kept() {
        let with = |task: &str, place: Value, request: &str, state: Option<&str>| {
            let requests = [(request.to_owned(), json!({"params": {"message": "say sk-canary-1"}}))].into();
            let input = crate::Input { requests, state: state.map(str::to_owned), ..crate::Input::default() };
            Handle { task: Some(task.to_owned()), place, input: Some(input), ..Handle::default() }
        };
        let plain = with("task-1", json!({"poll_ms": 5}), "0", Some("opaque"));
        let Outcome::Continues(kept) = redactor().outcome(Outcome::Continues(Box::new(plain.clone()))) else {
            panic!()
        };
        assert_eq!((&kept.task, &kept.place), (&plain.task, &plain.place));
        assert_eq!(kept.input.unwrap().requests["0"]["params"]["message"], "say [secret KEY]");
        let awaits = |run: &str| {
            let run_id = crate::RunId::parse(run).unwrap();
            let (reason, detail) = (crate::RunStop::Budget, "run r: sk-canary-1".to_owned());
            crate::AwaitedRun { run_id, question: None, reason, detail }.into_handle()
        };
        let Outcome::Continues(kept) = redactor().outcome(Outcome::Continues(Box::new(awaits("r")))) else { panic!() };
        assert_eq!(kept.awaits.unwrap().detail, "run r: [secret KEY]");
        for handle in [
            with("sk-canary-1", json!({}), "0", None),
            with("c2stY2FuYXJ5LTE=", json!({}), "0", None),
            with("t", json!({"session": "a-sk-canary-1"}), "0", None),
            with("t", json!({}), "sk-canary-1", None),
            with("t", json!({}), "0", Some("{\"t\": \"sk-canary-1\"}")),
            Handle { generation: Some("sk-canary-1".to_owned()), ..Handle::default() },
            awaits("sk-canary-1"),
        ] {
            let outcome = redactor().outcome(Outcome::Continues(Box::new(handle.clone())));
            let Outcome::Lost { why } = outcome else { panic!("{handle:?}: {outcome:?}") };
            assert!(why.contains(" contains [secret KEY], ") && !why.contains("canary"), "{why}");
        }
    }

    /// A number is no text, and is written down, shown and sent all the same.
    #[test]
    fn an_error_whose_number_is_a_secret_has_another() {
        let redactor = Redactor::new([("PIN".to_owned(), "4711081533".to_owned())]);
        let error = |code| Outcome::Raw(RawReply::RpcError { code, message: "no".into() });
        assert_eq!(redactor.outcome(error(4_711_081_533)), error(UNNAMED_ERROR));
        assert_eq!(redactor.outcome(error(-32_602)), error(-32_602));
    }

    #[test]
    fn a_secret_is_known_in_every_usual_dress() {
        let value = "p@ss/w\"rd\\+\u{e9}-canary";
        let redactor = Redactor::new([("K".to_owned(), value.to_owned())]);
        let json_text = serde_json::json!({ "a": value }).to_string();
        let twice = serde_json::json!({ "b": json_text }).to_string();
        let percent = value.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat();
        let entities = value.chars().map(|c| format!("&#{};", u32::from(c))).collect::<Vec<_>>().concat();
        let mixed = value.replace('&', "&amp;").replace('"', "&quot;").replace('/', "%2f");
        let spaced = value.replace("ss", "s s").replace("can", "can\n  ");
        for dressed in [value.to_owned(), json_text, twice, percent, entities, mixed, spaced] {
            let clean = redactor.text(&format!("<{dressed}>")).into_owned();
            assert!(clean.contains("[secret K]") && !clean.contains("ary"), "{dressed}: {clean}");
            assert!(clean.starts_with('<') && clean.ends_with('>'), "{clean}");
        }
        let hex: Vec<String> = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        for between in ["", " ", ":", "\n", ", 0x"] {
            let clean = redactor.text(&hex.join(between)).into_owned();
            assert_eq!(clean, "[secret K]", "{between:?}");
        }
        assert_eq!(redactor.text(&hex.concat().to_uppercase()), "[secret K]");
        assert_eq!(redactor.text(&format!("\\x{}", hex.join("\\x"))), "[secret K]");
    }

    #[test]
    fn base64_is_known_however_its_lines_are_wrapped() {
        let secret = "canary-0123456789-0123456789";
        let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
        let whole = base64(format!("user:{secret}:more").as_bytes(), STANDARD);
        for width in 1..20 {
            for end in ["\n", "\r\n  ", "\\n", "%0A", " "] {
                let lines: Vec<&str> =
                    whole.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
                let clean = redactor.text(&lines.join(end)).into_owned();
                assert!(clean.contains("[secret K]"), "{width} {end:?}: {clean}");
            }
        }
    }

    #[test]
    fn a_secret_that_looks_like_an_escape_is_known_as_it_is() {
        for value in ["a&lt;b%41c\\nd", "100%25%2525", "\\\\\\\\\\\\\\\\\\"] {
            let redactor = Redactor::new([("K".to_owned(), value.to_owned())]);
            assert_eq!(redactor.text(&format!("({value})")), "([secret K])", "{value}");
        }
    }

    #[test]
    fn what_is_no_escape_stays_and_no_character_is_cut() {
        let redactor = Redactor::new([("K".to_owned(), "sk-canary-\u{e9}1".to_owned())]);
        for text in
            ["100 % & so \\ on", "%zz&#xZ;&nothing;\\u12", "%", "&", "\\", "&#1114112;", "\\ud800x", "%e9é", "&#;&#x;"]
        {
            assert!(matches!(redactor.text(text), Cow::Borrowed(_)), "{text}");
        }
        assert_eq!(redactor.text("éé sk-canary-%C3%A91 éé"), "éé [secret K] éé");
        assert_eq!(redactor.text("é\\ud83d\\ude00sk-canary-\\u00e91é"), "é\\ud83d\\ude00[secret K]é");
    }

    /// Base64 as the definition has it, of three bytes at a time.
    pub(super) fn base64(bytes: &[u8], alphabet: &[u8; 64]) -> String {
        let mut out = String::new();
        for group in bytes.chunks(3) {
            let number = group.iter().fold(0_u32, |n, byte| n << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            let digits = (0..4).map(|n| char::from(alphabet[(number >> (18 - 6 * n) & 63) as usize]));
            out.extend(digits.take(group.len() + 1));
        }
        out
    }

    #[test]
    fn a_secret_is_known_inside_base64_wherever_it_starts() {
        assert_eq!(base64(b"user:pass", STANDARD), "dXNlcjpwYXNz");
        let secret = "sk-\u{ff}\u{fe}canary-0123456789";
        let redactor = Redactor::new([("K".to_owned(), secret.to_owned())]);
        for alphabet in [STANDARD, URL_SAFE] {
            for before in 0..7 {
                for after in 0..4 {
                    let whole = format!("{}{secret}{}", "x".repeat(before), "y".repeat(after));
                    let clean = redactor.text(&base64(whole.as_bytes(), alphabet)).into_owned();
                    assert!(clean.contains("[secret K]"), "{before} {after}: {clean}");
                }
            }
        }
    }

    #[test]
    fn what_a_dump_shows_twice_goes_as_one_and_lines_around_it_stay() {
        let redactor = Redactor::new([("K".to_owned(), "sk-canary-0123".to_owned())]);
        let dump = "xxd says\n00000000: 6b65 793d 736b 2d63 616e 6172 792d 3031  key=sk-canary-01\n00000010: 3233 0a                                  23.\nand more";
        let clean = redactor.text(dump).into_owned();
        assert_eq!(clean, "xxd says\n00000000: 6b65 793d [secret K]\nand more");
        // On one line the text beside the digits shows it, too.
        let dump = "00000000  73 6b 2d 63 61 6e 61 72  79 2d 30 31 32 33        |sk-canary-0123|\n0000000e\n";
        assert_eq!(redactor.text(dump), "00000000  [secret K]\n0000000e\n");
    }

    #[test]
    fn secrets_that_overlap_go_as_one() {
        let secrets = [("A", "abcdefgh-1234"), ("B", "1234-xyz")];
        let redactor = Redactor::new(secrets.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(redactor.text("<abcdefgh-1234-xyz>"), "<[secret A]>");
    }

    #[test]
    fn entities_need_no_semicolon() {
        let redactor = Redactor::new([("K".to_owned(), "p&ss<word>1".to_owned())]);
        for dressed in
            ["p&ampss&ltword&gt1", "p&amp;ss&lt;word&gt1", "p&#38ss&#x3Cword&#62 1", "&#112&#38&#115&#115&#60word&gt;1"]
        {
            assert_eq!(redactor.text(&format!("({dressed})")), "([secret K])", "{dressed}");
        }
    }

    #[test]
    fn clones_learn_together() {
        let redactor = Redactor::default();
        let clone = redactor.clone();
        assert!(clone.is_empty());
        redactor.learn([("LATE".to_owned(), "sk-canary-9".to_owned())]);
        assert_eq!(clone.text("a sk-canary-9"), "a [secret LATE]");
        assert_eq!(clone.found_in("a sk-canary-9").as_deref(), Some("[secret LATE]"));
    }

    #[test]
    fn printing_it_shows_no_value() {
        assert_eq!(format!("{:?}", redactor()), r#"["[secret KEY]", "[secret LONGER]"]"#);
    }
}

#[cfg(test)]
mod kinds_tests;
#[cfg(test)]
mod nested_tests;
