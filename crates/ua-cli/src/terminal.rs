//! How this process writes: for a person or for a machine, with colour or without, and around live progress.
//!
//! Decided once, before anything is written. Colour is a matter of each stream: it is on for a terminal, unless `NO_COLOR` is set or
//! the terminal is `dumb`; `CLICOLOR_FORCE` turns it on anywhere, and `--color` has the last word.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use indicatif::MultiProgress;

/// When there is colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// How a run's progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressStyle {
    /// Live on a terminal, lines elsewhere.
    Auto,
    /// Lines everywhere.
    Lines,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Terminal {
    json: bool,
    out: bool,
    err: bool,
}

static TERMINAL: OnceLock<Terminal> = OnceLock::new();

/// The live display that lines are written around.
static LIVE: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Settles how this process writes. Later calls change nothing.
pub(crate) fn init(json: bool, color: Option<Color>) {
    let named = color.or_else(|| crate::env::var("UA_COLOR").and_then(|text| Color::from_str(&text, true).ok()));
    let wanted = |is_terminal: bool| {
        wants_color(
            named.unwrap_or(Color::Auto),
            crate::env::var("NO_COLOR").is_some(),
            crate::env::var("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_terminal && crate::env::var("TERM").is_none_or(|term| term != "dumb"),
        )
    };
    let terminal = Terminal { json, out: wanted(io::stdout().is_terminal()), err: wanted(io::stderr().is_terminal()) };
    // A test that calls `main` twice keeps the first.
    TERMINAL.set(terminal).ok();
}

fn wants_color(named: Color, no_color: bool, force: bool, is_terminal: bool) -> bool {
    match named {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => !no_color && (force || is_terminal),
    }
}

fn terminal() -> Terminal {
    TERMINAL.get().copied().unwrap_or(Terminal { json: false, out: false, err: false })
}

/// Whether a machine reads: standard output is JSON, and so are errors.
pub(crate) fn is_json() -> bool {
    terminal().json
}

/// Whether standard output takes colour.
pub(crate) fn out_has_color() -> bool {
    terminal().out
}

/// Whether standard error takes colour.
pub(crate) fn err_has_color() -> bool {
    terminal().err
}

/// Whether a live display can be drawn on standard error.
pub(crate) fn can_draw() -> bool {
    let is_plain = matches!(progress_style(), ProgressStyle::Lines);
    !is_plain && io::stderr().is_terminal() && crate::env::var("TERM").is_none_or(|term| term != "dumb")
}

fn progress_style() -> ProgressStyle {
    match crate::env::var("UA_PROGRESS").as_deref() {
        Some("lines") => ProgressStyle::Lines,
        _ => ProgressStyle::Auto,
    }
}

/// `text` in a colour, where there is colour.
pub(crate) fn paint(text: &str, color: AnsiColor, is_on: bool) -> String {
    if !is_on {
        return text.to_owned();
    }
    let style = Style::new().fg_color(Some(color.into()));
    format!("{}{text}{}", style.render(), style.render_reset())
}

/// The colour of a status word; `None` for one that is nothing special.
pub(crate) fn status_color(status: &str) -> Option<AnsiColor> {
    let word = status.split([' ', '(', ':']).next().unwrap_or(status);
    match word {
        "succeeded" | "ok" => Some(AnsiColor::Green),
        "failed" | "crashed" | "fail" | "unknown" => Some(AnsiColor::Red),
        "waiting" | "waiting_for_human" | "stopped" | "warn" => Some(AnsiColor::Yellow),
        "running" => Some(AnsiColor::Cyan),
        _ => None,
    }
}

/// Makes `display` what lines are written around, until [`clear_live`].
pub(crate) fn set_live(display: MultiProgress) {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = Some(display);
}

/// Takes the live display away.
pub(crate) fn clear_live() {
    *LIVE.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Writes to standard error, around a live display if there is one.
pub(crate) fn write_err(bytes: &[u8]) -> io::Result<()> {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let bytes = crate::clean::bytes(bytes);
    let write = || io::stderr().lock().write_all(&bytes);
    match live {
        Some(live) => live.suspend(write),
        None => write(),
    }
}

/// Does something that writes to standard output around a live display: both may be one terminal.
pub(crate) fn around_live<T>(write: impl FnOnce() -> T) -> T {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match live {
        Some(live) => live.suspend(write),
        None => write(),
    }
}

/// Standard error for a log: whole lines, around a live display.
#[derive(Debug, Default)]
pub(crate) struct LogWriter {
    line: Vec<u8>,
}

impl LogWriter {
    /// A writer for one event.
    pub(crate) fn new() -> Self {
        Self::default()
    }
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        write_err(&std::mem::take(&mut self.line))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // Nobody is left who could be told.
        self.flush().ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_has_the_last_word_and_no_color_beats_force() {
        let cases = [
            (Color::Auto, false, false, true, true),
            (Color::Auto, false, false, false, false),
            (Color::Auto, true, false, true, false),
            (Color::Auto, false, true, false, true),
            (Color::Auto, true, true, true, false),
            (Color::Always, true, false, false, true),
            (Color::Never, false, true, true, false),
        ];
        for (named, no_color, force, is_terminal, wanted) in cases {
            assert_eq!(wants_color(named, no_color, force, is_terminal), wanted, "{named:?} {no_color} {force}");
        }
    }

    #[test]
    fn words_are_painted_only_where_there_is_colour() {
        assert_eq!(paint("ok", AnsiColor::Green, false), "ok");
        assert_eq!(paint("ok", AnsiColor::Green, true), "\u{1b}[32mok\u{1b}[0m");
        assert_eq!(status_color("stopped (budget)"), Some(AnsiColor::Yellow));
        assert_eq!(status_color("queued"), None);
    }
}
