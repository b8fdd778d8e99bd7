//! The signs that this program draws with, on a terminal whose locale does not have them (`LANG=C`): each has its likeness in ASCII.
//!
//! A matter of the terminal alone: files, pipes and JSON are UTF-8 whatever the locale is, and so are the words of others, whose characters have no
//! likeness.
//! Proved by: the tests below; `ua-e2e`'s `terminal`.

use std::borrow::Cow;

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

/// `de_DE.UTF-8`, `C.utf8@x`.
fn is_utf8(locale: &str) -> bool {
    let charset = locale.split_once('.').map_or("", |(_, charset)| charset);
    let charset = charset.split('@').next().unwrap_or_default().to_ascii_lowercase();
    matches!(charset.as_str(), "utf-8" | "utf8")
}

/// A text in ASCII as far as it is drawn by us, for a terminal of so many columns: what would be wider than it was is drawn narrower where the
/// line has no room for it.
pub(crate) fn ascii(text: &str, room: Option<usize>) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let line = |line: &str| {
        let (drawn, narrow) = (likeness(line, false), likeness(line, true));
        let fits = |text: &str| room.is_none_or(|room| columns(text) <= room);
        if fits(&drawn) || !fits(&narrow) { drawn } else { narrow }
    };
    Cow::Owned(text.split('\n').map(line).collect::<Vec<_>>().join("\n"))
}

fn likeness(text: &str, is_narrow: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
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
        assert!(!of(&[]) && !of(&[("LANG", "C")]) && !of(&[("LANG", "de_DE.ISO-8859-1")]) && !of(&[("LANG", "UTF-8")]));
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
