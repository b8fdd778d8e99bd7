//! The signs that this program draws with, on a terminal whose locale does not have them (`LANG=C`): each has its likeness in ASCII.
//!
//! A matter of the terminal alone: files, pipes and JSON are UTF-8 whatever the locale is, and so are the words of others, whose characters have no
//! likeness. What a person copies stays as it is: a command with another character in it is another command.
//! Proved by: the tests below; `ua-e2e`'s `terminal`.

use std::borrow::Cow;
use std::ops::Range;

use ua_host::Settings;

use crate::output::columns;
use crate::screen::FRAMES as SPINNER;

/// The frames of a spinner in ASCII.
const FRAMES: [&str; 4] = ["|", "/", "-", "\\"];

/// Whether the locale is one of UTF-8, as the first of these variables says that says anything. Without one it is that of POSIX, which is ASCII.
pub(crate) fn are_drawn(settings: &Settings) -> bool {
    let named = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| settings.var(name));
    let mut said = named.filter(|value| !value.is_empty());
    is_utf8(&said.next().unwrap_or_default())
}

/// `de_DE.UTF-8`, `C.utf8@x`, and `UTF-8` alone, as terminals of macOS say it, also to the machine that they log in to.
fn is_utf8(locale: &str) -> bool {
    let charset = locale.split_once('.').map_or(locale, |(_, charset)| charset);
    let charset = charset.split('@').next().unwrap_or_default().to_ascii_lowercase();
    matches!(charset.as_str(), "utf-8" | "utf8")
}

/// A text in ASCII as far as it is drawn by us, for a terminal of so many columns: what would be wider than it was is drawn narrower where the
/// line has no room for it.
pub(crate) fn ascii(text: &str, room: Option<usize>) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let copied = copied(text);
    let mut begin = 0;
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let (drawn, narrow) = (likeness(line, begin, &copied, false), likeness(line, begin, &copied, true));
        let fits = |text: &str| room.is_none_or(|room| columns(text) <= room);
        lines.push(if fits(&drawn) || !fits(&narrow) { drawn } else { narrow });
        begin += line.len() + 1;
    }
    Cow::Owned(lines.join("\n"))
}

/// What a person copies: words between backticks, which may go on in the next line, and lines that are a command.
fn copied(text: &str) -> Vec<Range<usize>> {
    let mut copied = Vec::new();
    let mut from = 0;
    while let Some(open) = text[from..].find('`').map(|at| from + at) {
        let part = &text[open + 1..];
        let part = part.split("\n\n").next().unwrap_or(part);
        let length = part.find('`');
        copied.extend(length.map(|length| open..open + 1 + length));
        from = open + 1 + length.map_or(0, |length| length + 1);
    }
    let mut begin = 0;
    for line in text.split('\n') {
        let words = line.trim_start();
        if words.strip_prefix("$ ").unwrap_or(words).starts_with("ua ") {
            copied.push(begin..begin + line.len());
        }
        begin += line.len() + 1;
    }
    copied
}

/// `begin`: where the line begins in the text of which this is `copied`. An ellipsis stands for something also there.
fn likeness(line: &str, begin: usize, copied: &[Range<usize>], is_narrow: bool) -> String {
    let mut out = String::with_capacity(line.len());
    for (at, c) in line.char_indices() {
        let is_copied = !c.is_ascii() && copied.iter().any(|part| part.contains(&(begin + at)));
        if is_copied && c != '…' {
            out.push(c);
            continue;
        }
        match c {
            '…' => out.push_str(if is_narrow { "~" } else { "..." }),
            '→' => out.push_str(if is_narrow { ">" } else { "->" }),
            '·' | '—' | '–' => out.push('-'),
            '▸' | '▶' => out.push('>'),
            '×' | '✕' | '✗' => out.push('x'),
            '✓' | '✔' => out.push('+'),
            '└' => out.push('`'),
            '█' => out.push('#'),
            '░' => out.push('.'),
            '“' | '”' => out.push('"'),
            '‘' | '’' => out.push('\''),
            c => match SPINNER.iter().position(|frame| *frame == c) {
                Some(frame) => out.push_str(FRAMES[frame % FRAMES.len()]),
                None => out.push(c),
            },
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_says_anything_names_the_charset() {
        let of = |variables: &[(&'static str, &str)]| {
            are_drawn(
                &variables
                    .iter()
                    .fold(Settings::default(), |all, (name, value)| all.with(name, Some((*value).to_owned()))),
            )
        };
        assert!(of(&[("LANG", "de_DE.UTF-8")]) && of(&[("LANG", "C.utf8")]) && of(&[("LANG", "sr_RS.UTF-8@latin")]));
        assert!(of(&[("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8"), ("LANG", "C")]));
        assert!(!of(&[]) && !of(&[("LANG", "C")]) && !of(&[("LANG", "de_DE.ISO-8859-1")]));
        assert!(of(&[("LC_CTYPE", "UTF-8"), ("LANG", "C")]) && !of(&[("LC_CTYPE", "US-ASCII")]));
        assert!(!of(&[("LC_ALL", "POSIX"), ("LANG", "C.UTF-8")]));
    }

    #[test]
    fn every_sign_of_ours_has_a_likeness_and_the_words_of_others_stay() {
        let drawn = "⠋ 3s · mail ×2 ▸ a → b … ███░░░ └ x — “y”";
        assert_eq!(ascii(drawn, None), "| 3s - mail x2 > a -> b ... ###... ` x - \"y\"");
        assert!(matches!(ascii("plain", Some(3)), Cow::Borrowed("plain")));
        assert_eq!(ascii("grüße, 水車", None), "grüße, 水車");
        // A line that filled its terminal does not grow beyond it.
        assert_eq!(ascii("abc…\nab…", Some(4)), "abc~\nab~");
        assert_eq!(ascii("ab…\na → b", Some(6)), "ab...\na -> b");
        let frames: String = SPINNER.iter().collect();
        assert_eq!(ascii(&frames, None), "|/-\\|/-\\|/");
    }

    #[test]
    fn what_is_copied_stays() {
        for text in [
            "`ua --root /srv/it’s questions`",
            "ua --root /srv/it’s questions",
            "$ ua --root “a” questions",
            "`ua --root\n /srv/it’s`",
        ] {
            assert_eq!(ascii(text, None), text);
            assert_eq!(ascii(&format!("→ x\n{text}\n· y"), None), format!("-> x\n{text}\n- y"));
        }
        assert_eq!(ascii("it’s `a’b` – `c", None), "it's `a’b` - `c");
        assert_eq!(ascii("one ` mark\n\nit’s another `", None), "one ` mark\n\nit's another `");
        assert_eq!(ascii("`Bearer …`", None), "`Bearer ...`");
    }

    /// What is written in the sources of this program, but for characters of whole scripts that it only reads.
    #[test]
    fn no_other_sign_is_drawn() {
        let known = "·…→×—–▸▶✕✗✓✔└█░“”‘’";
        let sources = [
            include_str!("screen.rs"),
            include_str!("used.rs"),
            include_str!("people.rs"),
            include_str!("table.rs"),
            include_str!("commands/summary.rs"),
            include_str!("commands/tail.rs"),
            include_str!("commands/runs.rs"),
            include_str!("commands/calls.rs"),
            include_str!("commands/status.rs"),
            include_str!("commands/diff.rs"),
            include_str!("commands/lineage.rs"),
            include_str!("commands/ask.rs"),
            include_str!("commands/doctor.rs"),
        ];
        for source in sources {
            let ours = source.split("#[cfg(test)]").next().unwrap_or_default();
            let ours: String = ours.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let odd =
                ours.chars().find(|c| !c.is_ascii() && !known.contains(*c) && !matches!(c, '\u{2800}'..='\u{28ff}'));
            assert_eq!(odd, None, "give it a likeness");
        }
    }
}
