//! Text for a terminal and JSON for a machine.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Serialize;
use ua_core::is_hidden;
use ua_host::Settings;
use ua_host::escape::plain_json;
use ua_resume::Commands;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use crate::error::HostError;
use crate::shown::Shown;

pub(crate) use crate::table::print_table;
pub(crate) use ua_host::text::{line, place, plain};

/// What makes the commands complete that this process tells; set once it is known where its runs are.
static COMMANDS: OnceLock<Commands> = OnceLock::new();

/// Says where this process's runs are: every command that is told from now on names that folder, where that is needed.
pub(crate) fn set_commands(commands: Commands) {
    // Another place is not found out later: the first word stands.
    COMMANDS.set(commands).ok();
}

/// A text with its commands complete. What is made for people passes through here by itself ([`Shown`]); what is made for machines says so.
pub(crate) fn complete(text: &str) -> Cow<'_, str> {
    COMMANDS.get().map_or(Cow::Borrowed(text), |commands| commands.complete(text))
}

/// The same for a command that is a value.
pub(crate) fn command(text: String) -> String {
    match complete(&text) {
        Cow::Owned(complete) => complete,
        Cow::Borrowed(_) => text,
    }
}

/// Text as a TOML string: quoted, and without a character that drives a terminal.
pub(crate) fn toml_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_hidden(c) || c.is_control() => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A text of a page on standard output, on one line: cut to `width` characters for a person at a terminal, and whole for whoever else reads.
pub(crate) fn field(text: &str, width: usize) -> String {
    line(text, if crate::terminal::is_read_by_person() { width } else { usize::MAX })
}

/// Prose in lines of the terminal's width, broken between words; further lines begin with `indent` spaces. The first line begins there, too,
/// behind what the caller wrote before it. As it is where there is no terminal.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_to(&complete(text), indent, crate::terminal::width())
}

/// The same for what is told on standard error.
pub(crate) fn wrapped_told(text: &str, indent: usize) -> String {
    wrapped_to(&complete(text), indent, crate::terminal::err_width())
}

/// The same, for a terminal of so many columns.
pub(crate) fn wrapped_to(text: &str, indent: usize, room: Option<usize>) -> String {
    in_lines(text, indent, room, Long::Whole)
}

/// A line with words of a model or a tool in it, in lines of a terminal of so many columns. All but the first begin with `indent` spaces, and none is
/// too long, whatever it consists of: the rest of one would begin where lines of this program do.
pub(crate) fn foreign_to(text: &str, indent: usize, room: Option<usize>) -> String {
    // With the signs that it is drawn with: afterwards it has to fit.
    in_lines(&crate::terminal::drawn(&complete(text), None), indent, room, Long::Broken)
}

/// What becomes of a word that is longer than a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Long {
    /// The terminal breaks it, so that it is copied as it stands: a path, a command.
    Whole,
    /// It goes on below where the line began.
    Broken,
}

fn in_lines(text: &str, indent: usize, room: Option<usize>, long: Long) -> String {
    let Some(room) = room.filter(|room| *room > indent + NARROWEST) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    for (nth, line) in text.split('\n').enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        // What a line of several begins with is its own indent.
        let own = if nth == 0 { 0 } else { line.len() - line.trim_start_matches(' ').len() };
        let hang = if nth == 0 { indent } else { own };
        let mut used = if nth == 0 { indent } else { 0 };
        // A line that has nothing but its indent is not ended: what does not fit into it fits into no other.
        let mut is_blank = true;
        for (place, word) in words(line).enumerate() {
            for (nth, piece) in pieces(word).enumerate() {
                let width = columns(piece);
                let gap = usize::from(place > 0 && nth == 0);
                if used + gap + width > room && used > hang && !is_blank {
                    out.truncate(out.trim_end_matches(' ').len());
                    out.push('\n');
                    out.push_str(&" ".repeat(hang));
                    used = hang;
                } else if gap > 0 {
                    out.push(' ');
                    used += 1;
                }
                is_blank &= piece.is_empty();
                if long == Long::Whole || used + width <= room {
                    out.push_str(piece);
                    used += width;
                    continue;
                }
                for c in piece.chars() {
                    let width = c.width().unwrap_or_default();
                    if used + width > room {
                        out.push('\n');
                        out.push_str(&" ".repeat(hang));
                        used = hang;
                    }
                    out.push(c);
                    used += width;
                }
            }
        }
    }
    out
}

/// The words of a line, between its spaces. A command is one word, so that it is copied as it stands: between backticks, behind a colon, or where it
/// stands alone in front of what it does.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut next = Some(0);
    std::iter::from_fn(move || {
        let start = next?;
        let (before, rest) = line.split_at(start);
        let word = rest.split(' ').next().unwrap_or(rest);
        let before = before.trim_end();
        // A sentence about this program is none.
        let is_sentence = || [", ", ". ", "; "].iter().any(|mark| rest.contains(mark));
        let is_bare = word == "ua" && (before.is_empty() || (before.ends_with(':') && !is_sentence()));
        let quoted = word.find("`ua").filter(|at| word[at + 1..] == *"ua").and_then(|at| {
            let close = at + 1 + rest[at + 1..].find('`')?;
            Some(rest[close..].find(' ').map_or(rest.len(), |end| close + end))
        });
        let end = match quoted {
            Some(end) => end,
            None if is_bare => rest.find("  ").unwrap_or(rest.len()),
            None => word.len(),
        };
        next = (end < rest.len()).then_some(start + end + 1);
        Some(&rest[..end])
    })
}

/// A word in pieces that a line may end between: scripts that are written without spaces are broken between their characters, but not in
/// front of what closes a clause. Everything else is whole, a path above all.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let is_wide = |c: char| c.width() == Some(2);
    // No word at all is a piece, too: between two spaces.
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let here = rest?;
        let mut chars = here.char_indices();
        let mut before = chars.next().map_or(' ', |(_, first)| first);
        let end = chars.find_map(|(at, c)| {
            let may_end = (is_wide(before) || is_wide(c)) && !CLOSING.contains(c) && !OPENING.contains(before);
            before = c;
            may_end.then_some(at)
        });
        let (piece, after) = here.split_at(end.unwrap_or(here.len()));
        rest = Some(after).filter(|after| !after.is_empty());
        Some(piece)
    })
}

/// What no line begins with.
const CLOSING: &str = "、。，．・：；？！」』）】〕］｝〉》…ー々.,:;?!)]}\"'";
/// What no line ends with.
const OPENING: &str = "「『（【〔［｛〈《([{";

/// Stands for the parts of a line that there is no room for.
const OTHER_PARTS: &str = " · …";
/// A name of which there is less room than this is not worth its beginning.
const SOME_OF_A_NAME: usize = 8;

/// As much of a line of parts (`turn 3 · run_command`) as so many columns hold, in whole words. Never a number without its unit, the beginning of a
/// path or a command, or of what stands in brackets: each would say something else.
pub(crate) fn parts_in(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let left = room.saturating_sub(columns(OTHER_PARTS));
    let mut kept = String::new();
    let mut rest = words(text).peekable();
    while let Some(word) = rest.next_if(|word| columns(&kept) + 1 + columns(word) <= left) {
        if !kept.is_empty() {
            kept.push(' ');
        }
        kept.push_str(word);
    }
    let next = rest.peek().copied().unwrap_or_default();
    let opened = kept.rfind('(').filter(|open| !kept[*open..].contains(')'));
    kept.truncate(opened.unwrap_or(kept.len()));
    let is_whole = |word: &str| word.contains(|c: char| c.is_ascii_digit() || "/`(".contains(c));
    let some = left.saturating_sub(columns(&kept) + 1);
    if opened.is_none() && some >= SOME_OF_A_NAME && columns(next) > some && !is_whole(next) {
        return format!("{kept} {}", cut_to(next, some));
    }
    // Behind a number there may be what it counts.
    let counts = |kept: &str| kept.rsplit(' ').next().is_some_and(|word| word.contains(|c: char| c.is_ascii_digit()));
    if next != "·" && opened.is_none() && counts(&kept) {
        kept.truncate(kept.rfind(' ').unwrap_or(0));
    }
    let is_part = next == "·" || kept.ends_with('·');
    kept.truncate(kept.trim_end_matches([' ', '·', ',', ';', ':']).len());
    match (kept.is_empty(), is_part) {
        (true, _) => "…".to_owned(),
        (false, true) => kept + OTHER_PARTS,
        (false, false) => kept + "…",
    }
}

/// The beginning of a word in so many columns, with `…` behind it.
fn cut_to(word: &str, room: usize) -> String {
    let mut left = room.saturating_sub(1);
    let fits = |c: &char| {
        let rest = left.checked_sub(c.width().unwrap_or_default());
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    word.chars().take_while(fits).chain(['…']).collect()
}

/// How many columns of a terminal a text takes. Only colour drives one ([`Shown`]), and that takes none.
pub(crate) fn columns(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().map_or(0, UnicodeWidthStr::width);
    first + parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest).width()).sum::<usize>()
}

/// Less room for words than this is not worth it.
const NARROWEST: usize = 20;

/// Writes a page for a person: lines that are wider than the terminal are broken between words ([`Shown::broken`]).
pub(crate) fn print(page: impl Into<Shown>) -> Result<(), HostError> {
    print_exactly(page.into().broken(crate::terminal::width()))
}

/// A page in lines of so many columns. What follows a name stands below itself (`Label   what it is`), or below the name where that leaves
/// too little room; other lines keep their own indent.
pub(crate) fn page_to(page: &str, room: Option<usize>) -> String {
    let Some(room) = room.filter(|room| *room > NARROWEST) else { return page.to_owned() };
    let mut out = String::with_capacity(page.len());
    for (nth, line) in page.split('\n').enumerate() {
        if nth > 0 {
            out.push('\n');
        }
        let line = line.trim_end_matches(' ');
        if columns(line) <= room {
            out.push_str(line);
            continue;
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        // A line of progress: what follows its time stands below itself.
        let time = line.strip_prefix('[').and_then(|rest| rest.find("] ")).filter(|at| *at <= NARROWEST / 2);
        if let Some((begin, rest)) = time.map(|at| line.split_at(at + "[] ".len())) {
            out.push_str(begin);
            out.push_str(&wrapped_to(rest, columns(begin), Some(room)));
            continue;
        }
        let below = indent + if line[indent..].starts_with("ua ") { 4 } else { 2 };
        let gap = line[indent..].find("  ").map(|at| indent + at);
        let value = gap.and_then(|gap| Some(gap + line[gap..].find(|c| c != ' ')?));
        // A path or a command that is longer than that stands alone on its line: it is copied as it stands.
        let longest = |word: &str| pieces(word).map(columns).max().unwrap_or_default();
        let first = |value: usize| words(&line[value..]).next().map_or(0, longest);
        let has_room = |value: usize| columns(&line[..value]) + first(value).max(NARROWEST) <= room;
        let (begin, rest, hang) = match gap.zip(value) {
            // Beside its name there is room for it.
            Some((_, value)) if has_room(value) => (line[..value].to_owned(), &line[value..], columns(&line[..value])),
            Some((gap, value)) => {
                (format!("{}\n{:below$}", wrapped_to(&line[..gap], 0, Some(room)), ""), &line[value..], below)
            }
            None => (line[..indent].to_owned(), &line[indent..], indent),
        };
        out.push_str(&begin);
        out.push_str(&wrapped_to(rest, hang, Some(room)));
    }
    out
}

/// Writes to standard output what is not to be broken anywhere: tables, JSON, what is copied. A reader that went away (`| head`) is no
/// failure, and has an exit code of its own ([`code_for_the_reader`]).
pub(crate) fn print_exactly(text: impl Into<Shown>) -> Result<(), HostError> {
    print_on(text).map(drop)
}

/// Writes a document to standard output, byte for byte unless that is a terminal.
pub(crate) fn print_document(text: &str) -> Result<(), HostError> {
    let is_shown = io::stdout().is_terminal();
    let shown = if is_shown { Cow::Owned(plain(text)) } else { Cow::Borrowed(text) };
    write_out(shown.as_bytes()).map(drop)
}

/// The same for what goes on and on; `false` when the reader went away, and nobody reads any more.
pub(crate) fn print_on(text: impl Into<Shown>) -> Result<bool, HostError> {
    let text = text.into();
    let room = crate::terminal::width();
    let drawn = if room.is_some() { crate::terminal::drawn(text.as_str(), room) } else { text.as_str().into() };
    write_out(drawn.as_bytes())
}

/// Writes the help that somebody asked for, before anything else of this process is settled.
pub(crate) fn print_help(help: &clap::Error) -> io::Result<()> {
    let is_plain =
        help.use_stderr() || !io::stdout().is_terminal() || crate::symbols::are_drawn(&Settings::of_process());
    let written = if is_plain {
        help.print().and_then(|()| io::stdout().flush())
    } else {
        io::stdout().lock().write_all(crate::symbols::ascii(&help.render().to_string(), None).as_bytes())
    };
    is_read(written).map(drop)
}

/// That what was asked for did not arrive where it was to be read.
pub(crate) fn cannot_write(error: &io::Error) -> HostError {
    let did = DID.lock().unwrap_or_else(PoisonError::into_inner).take();
    let hint = match did {
        Some(_) => "that was carried out, and is done once more when the command is given again",
        None => "give the command again where its output can be written",
    };
    let did = did.map_or_else(String::new, |did| format!("; all the same, {did}"));
    HostError::storage(format!("cannot write to standard output: {error}{did}")).hint(hint)
}

/// What this command has done that is about to be written.
static DID: Mutex<Option<String>> = Mutex::new(None);

/// So much of that is said, in characters.
const DID_AT_MOST: usize = 600;

/// Notes what this command has done, as a clause: whoever cannot be written what came of it is told that, and does not do it again.
pub(crate) fn did(what: impl AsRef<str>) {
    let what = line(what.as_ref(), DID_AT_MOST);
    *DID.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
}

/// Whether whoever read standard output went away before it had everything.
static READER_LEFT: AtomicBool = AtomicBool::new(false);

/// The exit code of a process that would end with this one: one whose reader went away (`| head`) did not bring over what it was asked for, and ends
/// as the programs do that the system ends for it. What went wrong otherwise is said by its own code.
pub(crate) fn code_for_the_reader(code: u8) -> u8 {
    if code == crate::error::OK && READER_LEFT.load(Ordering::SeqCst) { crate::error::READER_LEFT } else { code }
}

fn write_out(bytes: &[u8]) -> Result<bool, HostError> {
    crate::terminal::flush_before_output();
    let mut out = io::stdout().lock();
    is_read(out.write_all(bytes).and_then(|()| out.flush())).map_err(|error| cannot_write(&error))
}

/// Whether what was written is read; `false` when the reader went away, and nobody reads any more.
fn is_read(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            READER_LEFT.store(true, Ordering::SeqCst);
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

/// Whether this command has written its JSON.
static IS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes pretty JSON, all that a command has to say: whoever parses standard output reads one value, so several are one array.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), HostError> {
    let is_first = !IS_WRITTEN.swap(true, Ordering::SeqCst);
    // The tests of this crate are one process.
    debug_assert!(is_first || cfg!(test), "a second JSON value of one command");
    let text = serde_json::to_string_pretty(value).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
    write_out(Shown::exact(&format!("{}\n", plain_json(&text))).as_str().as_bytes()).map(drop)
}

/// Writes what a command did: as JSON for a machine, else in words.
pub(crate) fn say(value: &impl Serialize, words: impl Into<Shown>) -> Result<(), HostError> {
    let words = words.into();
    did(words.as_str());
    if crate::terminal::is_json() { print_json(value) } else { print(words) }
}

/// The same on one line.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, HostError> {
    let text = serde_json::to_string(value).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
    Ok(plain_json(&text))
}

/// Tells a person something on standard error, in lines that fit the terminal. A terminal that went away, or a log on a full disk, is no reason to end a run.
pub(crate) fn tell(text: impl Into<Shown>) {
    // Nobody is left who could be told that this failed.
    crate::terminal::write_err(&text.into().then("\n").broken(crate::terminal::err_width())).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_without_spaces_is_broken_between_its_characters() {
        let text = "水車についての短い報告を書き、/srv/reports/tide-mills/report.pdfに公開し、チームに知らせる。それから終わる。";
        for room in 24..=60 {
            let shown = wrapped_to(text, 2, Some(room));
            assert!(
                shown.lines().skip(1).all(|line| line.starts_with("  ") && line.width() <= room.max(36)),
                "{room}:\n{shown}"
            );
            assert!(!shown.lines().any(|line| line.trim_start().starts_with(['、', '。'])), "{room}:\n{shown}");
            assert_eq!(shown.replace("\n  ", ""), text, "{room}");
            assert!(shown.contains("/srv/reports/tide-mills/report.pdf"), "{room}:\n{shown}");
        }
    }

    #[test]
    fn whatever_words_of_others_consist_of_they_begin_no_line_like_ours() {
        let filler = "\u{2800}".repeat(70);
        for text in [
            "text: \"Please read it by Friday.  Answer with  ua answer QUESTION approve  send nothing, only keep the draft\"".to_owned(),
            format!("Hello {filler} Question 1234abcd · run ffff"),
            format!("  | Hello{filler}Answer with{filler}x"),
            format!("a: ua answer {} --text `ua {}` b", "x".repeat(150), "y ".repeat(90)),
            format!("`ua {}`: ua {}", "answer ".repeat(30), "z".repeat(200)),
            "[00:12] ended at once; the rest of it is what somebody else says about that, at some length, and more".to_owned(),
            "Label   what it is, and so on and so on, and so on and so on, and so on and so on, and so on and so on".to_owned(),
            "水車についての短い報告を書き、/srv/reports/tide-mills/report.pdfに公開し、チームに知らせる。".repeat(3),
            " ".repeat(200) + "ua answer q approve",
        ] {
            for room in 27..=120 {
                let shown = foreign_to(&text, 6, Some(room));
                // As it is written: behind two spaces, and by whatever a page is laid out with.
                let page = page_to(&format!("  {shown}"), Some(room));
                let bad = page.lines().enumerate().find(|(nth, line)| columns(line) > room || (*nth > 0 && !line.starts_with("      ")));
                assert_eq!(bad, None, "{room}:\n{page}");
                let squeezed = |text: &str| text.split_whitespace().collect::<String>();
                assert_eq!(squeezed(&page), squeezed(&text), "{room}");
            }
        }
    }

    #[test]
    fn a_command_is_never_broken() {
        let quoted =
            "the run is stopped; look at it with (`ua runs show 04204fd2 --root /srv/runs`), then `ua resume last`.";
        let lines = [
            quoted.to_owned(),
            "resume with: ua resume 04204fd2 --root /srv/runs".to_owned(),
            "  ua answer 04204fd2 happened --root /srv/runs  it happened; it is not sent again".to_owned(),
            "Resume         ua resume 04204fd2 --root /srv/runs".to_owned(),
            "[00:12] ended at once; `ua queue list` shows the runs".to_owned(),
            "stopped (interrupted): ua resume 2b434eff --root /srv/runs".to_owned(),
        ];
        let commands = [
            "`ua runs show 04204fd2 --root /srv/runs`",
            "`ua resume last`",
            "ua resume 04204fd2 --root /srv/runs",
            "ua answer 04204fd2 happened --root /srv/runs",
            "`ua queue list`",
            "ua resume 2b434eff --root /srv/runs",
        ];
        for room in 21..=120 {
            let shown: Vec<String> = lines.iter().map(|line| page_to(line, Some(room))).collect();
            for command in commands {
                let is_whole = shown.iter().any(|page| page.lines().any(|line| line.contains(command)));
                assert!(is_whole, "{room} {command}:\n{}", shown.join("\n"));
            }
            for (page, line) in shown.iter().zip(&lines) {
                let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
                assert_eq!(spaced(page), spaced(line), "{room}");
            }
        }
        // What only looks like one is prose, and so is a backtick that nothing closes.
        let open = format!("the {}ua of a line that does not end it", '`');
        let about = "note: ua was built without it, and so";
        for prose in ["the program ua has its own words", about, &open] {
            assert!(page_to(prose, Some(24)).contains('\n'), "{prose}");
        }
    }

    #[test]
    fn a_line_of_parts_leaves_out_whole_parts() {
        let line = "⠋ 42s · turn 12 · run_command · waiting for tool server mail to start (3 s so far, at most 30 s)";
        for (room, wanted) in [
            (200, line),
            (90, "⠋ 42s · turn 12 · run_command · waiting for tool server mail to start…"),
            (60, "⠋ 42s · turn 12 · run_command · waiting for tool server…"),
            (33, "⠋ 42s · turn 12 · run_command · …"),
            (30, "⠋ 42s · turn 12 · run_com…"),
            (24, "⠋ 42s · turn 12 · …"),
            (16, "⠋ 42s · turn…"),
            (12, "⠋ 42s · …"),
            (3, "…"),
        ] {
            assert_eq!(parts_in(line, room), wanted, "{room}");
        }
        let command = "⠋ 3s · turn 1 · order waits for an answer (`ua answer 04204fd2 --root /srv/runs`)";
        assert_eq!(parts_in(command, 60), "⠋ 3s · turn 1 · order waits for an answer…");
        let files = "⠋ 9s · reading 4200 files of /srv/a/very/long/path/that/nobody/has/room/for";
        assert_eq!(parts_in(files, 40), "⠋ 9s · reading 4200 files of…");
        assert_eq!(parts_in(files, 24), "⠋ 9s · reading…", "a number has what it counts, or is not there");
        for room in 1..=100 {
            for line in [line, command, files] {
                let shown = parts_in(line, room);
                assert!(columns(&shown) <= room, "{room}: {shown}");
                let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == '…');
                let last = shown.rsplit(' ').next().unwrap_or_default();
                assert!(last == "…" || !is_number(last), "{room}: {shown}");
            }
        }
    }

    /// Beside its name a path would be broken by the terminal somewhere; alone on its line it is copied with it.
    #[test]
    fn a_path_that_has_no_room_beside_its_name_stands_alone() {
        let path = "/srv/reports/runs/session_20261130_184816_tide-mills/work_products/report.pdf";
        let page = format!("Workspace      {path}\n  ua resume 04204fd2 --root /srv/runs\nStatus         done");
        for room in 21..=160 {
            let shown = page_to(&page, Some(room));
            let is_alone = shown.lines().any(|line| line == format!("  {path}"));
            let is_beside = shown.lines().any(|line| line == format!("Workspace      {path}"));
            assert!(if room < 15 + path.len() { is_alone } else { is_beside }, "{room}:\n{shown}");
        }
        let gone = page_to(&format!("Workspace      {path} (not there any more)"), Some(80));
        assert!(gone.starts_with(&format!("Workspace\n  {path}")), "{gone}");
    }

    #[test]
    fn prose_is_broken_between_words_and_a_word_that_is_too_long_stays_whole() {
        let text = "nobody knows what claude-sonnet-4-5 of anthropic costs, so costs are unknown";
        let shown = format!("warn {}", wrapped_to(text, 5, Some(40)));
        assert!(shown.lines().all(|line| line.width() <= 40), "{shown}");
        assert!(shown.lines().skip(1).all(|line| line.starts_with("     ") && !line.ends_with(' ')), "{shown}");
        assert_eq!(shown.split_whitespace().collect::<Vec<_>>().join(" "), format!("warn {text}"));
        let path = "/a/folder/with/a/path/that/is/longer/than/the/terminal/is/wide";
        assert!(wrapped_to(&format!("see {path}"), 2, Some(40)).contains(path));
        assert_eq!(wrapped_to(text, 5, None), text, "no terminal, nothing broken");
        let page = "Pages          whole\neffects.log    3 lines, none that the database does not know\n  ua answer 04204fd2 happened  it happened; it is not sent again\n";
        assert_eq!(page_to(page, None), page);
        assert_eq!(page_to(page, Some(80)), page);
        assert_eq!(
            page_to(page, Some(40)),
            "Pages          whole\neffects.log    3 lines, none that the\n               database does not know\n  \
             ua answer 04204fd2 happened\n      it happened; it is not sent again\n"
        );
        let progress = "[00:00] turn 5 · call 1 · send_email ok in 0.0 s";
        assert_eq!(page_to(progress, Some(34)), "[00:00] turn 5 · call 1 ·\n        send_email ok in 0.0 s");
        // Colour takes no room.
        let painted = "\u{1b}[31merror:\u{1b}[0m a line that has just enough room";
        assert_eq!((columns(painted), page_to(painted, Some(39))), (39, painted.to_owned()));
        // Lines of a list keep their own indent.
        let list =
            wrapped_to("May it run?\n  - one reason that is long enough for two lines\n  - another", 2, Some(30));
        assert_eq!(list, "May it run?\n  - one reason that is long\n  enough for two lines\n  - another");
    }
}
