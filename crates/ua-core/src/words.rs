//! Numbers of things, names and errors, as people write and read them.

use std::fmt::Display;

/// `1 call`, `2 calls`, `0 processes`: a number and what is counted, in the right number. What stands before the noun stays (`more run`).
///
/// ```
/// assert_eq!(ua_core::counted(1, "call"), "1 call");
/// assert_eq!(ua_core::counted(3, "process"), "3 processes");
/// assert_eq!(ua_core::counted(0, "more reply"), "0 more replies");
/// ```
pub fn counted(count: impl Display, one: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("1 {one}");
    }
    let is_vowel = |c: char| matches!(c, 'a' | 'e' | 'i' | 'o' | 'u');
    match one.strip_suffix('y') {
        Some(stem) if !stem.ends_with(is_vowel) => format!("{count} {stem}ies"),
        _ if one.ends_with(['s', 'x']) || one.ends_with("ch") => format!("{count} {one}es"),
        _ => format!("{count} {one}s"),
    }
}

/// An error and its causes in one line, each said once.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // A database's code in front of the words that stand there already says no more to a person.
        let words = inner_text.strip_prefix("Error code ").and_then(|rest| rest.split_once(": "));
        let words = words.map_or(inner_text.as_str(), |(_, words)| words);
        if !text.contains(words) {
            text = format!("{text}: {words}");
        }
        cause = inner.source();
    }
    text
}

/// How like two names are, from 0 to 1, where one of them may be meant by the other.
const ALIKE: f64 = 0.8;

/// How like a word is at least to the name of which it differs by one letter: of several such, the one counts that is more like it.
const A_SLIP: f64 = 0.95;

/// What the long name of a tool begins with.
const LONG: &str = "mcp__";

/// What a name loses that is only a part of what is compared.
const BESIDE: f64 = 0.001;

/// The name among `names` that somebody may have meant who typed `word`; `None` where none is like it. Every name that a person types, in a
/// command, a setting, a job or a policy, is compared here with those that there are.
///
/// ```
/// assert_eq!(ua_core::nearest("jbo", ["job", "runs"]), Some("job"));
/// assert_eq!(ua_core::nearest("jb", ["job", "db"]), Some("job"));
/// // A tool by its own name, without its server's.
/// assert_eq!(ua_core::nearest("write_local_fil", ["mcp__ua__write_local_file"]), Some("mcp__ua__write_local_file"));
/// assert_eq!(ua_core::nearest("weather", ["job", "runs"]), None);
/// assert_eq!(ua_core::nearest("mcp__forum__post_comment", ["mcp__ua__list_directory"]), None);
/// // Nor is a tool like another one because both are of one server.
/// assert_eq!(ua_core::nearest("mcp__shop__nosuch", ["mcp__shop__die_now", "mcp__shop__slow_order"]), None);
/// assert_eq!(ua_core::nearest("mcp__shop__die_nwo", ["mcp__shop__die_now", "mcp__shop__slow_order"]), Some("mcp__shop__die_now"));
/// ```
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let best = names.into_iter().map(|name| (likeness(&word, &name.to_lowercase()), name));
    let best = best.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > ALIKE).then_some(best.1)
}

/// How many letters are left out, put in, changed or exchanged between two words.
pub fn slips(word: &str, name: &str) -> usize {
    strsim::damerau_levenshtein(word, name)
}

/// How like a typed word is to a name, from 0 to 1, both in small letters.
pub fn likeness(word: &str, name: &str) -> f64 {
    // What every tool's long name begins with makes none of them like another.
    let (word, name) = match (word.strip_prefix(LONG), name.strip_prefix(LONG)) {
        (Some(word), Some(name)) => match (word.split_once("__"), name.split_once("__")) {
            // Nor does the server that both are of: it is the tool that was meant.
            (Some((of, tool)), Some((server, other))) if of == server => return likeness(tool, other),
            _ => (word, name),
        },
        _ => (word, name),
    };
    // Of short words one slip changes much of what is measured below, and is a slip all the same.
    let is_slip = word.chars().count() > 1
        && name.chars().count() > 1
        && word != name
        && strsim::damerau_levenshtein(word, name) == 1;
    let alike = strsim::jaro_winkler(word, name);
    // The first letter is the one that people get right.
    let begins_alike = if word.chars().next() == name.chars().next() { 1.0 } else { 0.0 };
    let whole = if is_slip { A_SLIP + (1.0 - A_SLIP) * (alike + begins_alike) / 2.0 } else { alike };
    match name.rsplit_once("__") {
        Some((_, bare)) if !word.contains("__") => whole.max(likeness(word, bare) - BESIDE),
        _ => whole,
    }
}

/// That a word is none of those that can stand in its place, and which of them was probably meant.
///
/// ```
/// assert_eq!(ua_core::not_one_of("extrenal", &["external", "local"]), "`extrenal` is not one of external, local; did you mean `external`?");
/// ```
pub fn not_one_of(word: &str, words: &[&str]) -> String {
    let meant = nearest(word, words.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    format!("`{}` is not one of {}{meant}", crate::in_a_sentence(word), words.join(", "))
}

/// A span of time as people say it, to the unit that matters: `25 s`, `12 min`, `2 h`, `3 d`. Less than a second is one.
///
/// ```
/// use std::time::Duration;
/// let said = [1, 119, 120, 3_600, 7_200, 200_000].map(|seconds| ua_core::span_in_words(Duration::from_secs(seconds)));
/// assert_eq!(said, ["1 s", "119 s", "2 min", "60 min", "2 h", "2 d"]);
/// // The longest wait that is kept of what somebody asks for stands for every longer one.
/// assert_eq!(ua_core::span_in_words(Duration::from_hours(10 * 365 * 24)), "ten years or longer");
/// ```
pub fn span_in_words(span: std::time::Duration) -> String {
    let seconds = u64::try_from(span.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
    match seconds {
        seconds @ 0..120 => format!("{} s", seconds.max(1)),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds @ 172_800..315_360_000 => format!("{} d", seconds / 86_400),
        _ => "ten years or longer".to_owned(),
    }
}

/// A size as people say it: `812 bytes`, `3.4 MiB`, `68 GiB`.
///
/// ```
/// assert_eq!([812, 3_600_000, 74_000_000_000].map(ua_core::size_in_words), ["812 bytes", "3.4 MiB", "68 GiB"]);
/// ```
pub fn size_in_words(bytes: u64) -> String {
    let (shift, unit) = match bytes {
        0..1024 => return counted(bytes, "byte"),
        1024..1_048_576 => (10, "KiB"),
        1_048_576..1_073_741_824 => (20, "MiB"),
        _ => (30, "GiB"),
    };
    let whole = bytes >> shift;
    let tenth = ((bytes >> (shift - 10)) & 1023) * 10 / 1024;
    if whole < 10 && tenth > 0 { format!("{whole}.{tenth} {unit}") } else { format!("{whole} {unit}") }
}
/// Whether a name from a file of somebody else's is a word and nothing more, wherever it is shown or put: of letters and digits of ASCII, and
/// `._:/@+,-`, which no shell, terminal or pattern reads as anything. It does not begin like a flag.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:/@+,-".contains(c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}
