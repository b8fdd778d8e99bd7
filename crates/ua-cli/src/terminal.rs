//! How this process writes: for a person or for a machine, with colour or without, and around live progress.
//!
//! Decided once, before anything is written. Colour is a matter of each stream: it is on for a terminal, unless `NO_COLOR` is set or
//! the terminal is `dumb`; `CLICOLOR_FORCE` turns it on anywhere, and `--color` has the last word.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::AsFd;
use std::panic;
use std::sync::mpsc::channel;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::styling::AnsiColor;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
use tokio::signal::unix::SignalKind;
use ua_core::Redactor;
use ua_host::{Settings, redaction};
use ua_runner::HangUp;

use crate::screen::{Asks, Display, Screen, standard_error};
use crate::shown::Shown;

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

#[derive(Debug)]
struct Terminal {
    json: bool,
    out: bool,
    err: bool,
    /// Whether a person reads standard output.
    is_read: bool,
    /// Whether a live display can be drawn on standard error.
    draws: bool,
    /// Whether terminals get ASCII alone of what is drawn.
    is_ascii: bool,
    /// What takes secrets out of everything that is written there.
    redactor: Redactor,
}

static TERMINAL: OnceLock<Terminal> = OnceLock::new();

/// What writes to the terminal that standard error is; `None` where it is none, and whoever writes there waits for its reader.
static SCREEN: OnceLock<Option<Screen>> = OnceLock::new();

/// A process that is to end at once waits so long for a terminal, or for whatever reads its standard error, to take its last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

fn screen() -> Option<&'static Screen> {
    let asks = Asks { width: err_width, is_ours, typed };
    let start = || io::stderr().is_terminal().then(|| Screen::start(standard_error(), asks)).flatten();
    SCREEN.get_or_init(start).as_ref()
}

/// Settles how this process writes. Later calls change nothing.
pub(crate) fn init(settings: &Settings, redactor: Redactor, json: bool, color: Option<Color>) {
    let named = color.or_else(|| settings.var("UA_COLOR").and_then(|text| Color::from_str(&text, true).ok()));
    let is_able = settings.var("TERM").is_none_or(|term| term != "dumb");
    let wanted = |is_terminal: bool| {
        wants_color(
            named.unwrap_or(Color::Auto),
            settings.var("NO_COLOR").is_some(),
            settings.var("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            is_terminal && is_able,
        )
    };
    let is_plain = matches!(progress_style(settings), ProgressStyle::Lines);
    let terminal = Terminal {
        json,
        out: wanted(io::stdout().is_terminal()),
        err: wanted(io::stderr().is_terminal()),
        is_read: !json && io::stdout().is_terminal(),
        draws: !is_plain && io::stderr().is_terminal() && is_able,
        is_ascii: !crate::symbols::are_drawn(settings),
        redactor,
    };
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

fn is_so(ask: impl FnOnce(&Terminal) -> bool) -> bool {
    TERMINAL.get().is_some_and(ask)
}

/// Whether a machine reads: standard output is JSON, and so are errors.
pub(crate) fn is_json() -> bool {
    is_so(|terminal| terminal.json)
}

/// Whether a person reads standard output: ids are short there, and times are those of the clock on the wall.
pub(crate) fn is_read_by_person() -> bool {
    is_so(|terminal| terminal.is_read)
}

/// How many columns the terminal has that standard output is; `None` where it is none.
pub(crate) fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|_| is_read_by_person())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// How many columns the terminal has that standard error is, where people are asked and told things; `None` where it is none.
pub(crate) fn err_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok().filter(|_| !is_json())?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// A text as a terminal of so many columns can show what is drawn in it.
pub(crate) fn drawn(text: &str, room: Option<usize>) -> Cow<'_, str> {
    if is_so(|terminal| terminal.is_ascii) { crate::symbols::ascii(text, room) } else { Cow::Borrowed(text) }
}

/// Whether standard output takes colour.
pub(crate) fn out_has_color() -> bool {
    is_so(|terminal| terminal.out)
}

/// Whether standard error takes colour.
pub(crate) fn err_has_color() -> bool {
    is_so(|terminal| terminal.err)
}

/// Whether a live display can be drawn on standard error: it is a terminal, and nobody types there meanwhile.
pub(crate) fn can_draw() -> bool {
    is_so(|terminal| terminal.draws) && is_ours()
}

/// Whether the terminal that standard error is does not belong to another process group at the moment: what was typed there would be drawn over.
fn is_ours() -> bool {
    !another_group_has(io::stderr())
}

/// How many bytes of whole lines were typed here and not read yet, where the terminal shows what is typed.
fn typed() -> u64 {
    let shows = |modes: LocalModes| modes.contains(LocalModes::ECHO | LocalModes::ICANON);
    let is_shown = tcgetattr(io::stdin()).is_ok_and(|now| shows(now.local_modes));
    if is_shown { rustix::io::ioctl_fionread(io::stdin()).unwrap_or_default() } else { 0 }
}

fn progress_style(settings: &Settings) -> ProgressStyle {
    match settings.var("UA_PROGRESS").as_deref() {
        Some("lines") => ProgressStyle::Lines,
        _ => ProgressStyle::Auto,
    }
}

/// The colour of a status word; `None` for one that is nothing special.
pub(crate) fn status_color(status: &str) -> Option<AnsiColor> {
    let word = status.split([' ', '(', ':', ',']).next().unwrap_or(status);
    match word {
        "succeeded" | "ok" => Some(AnsiColor::Green),
        "failed" | "crashed" | "outdated" | "fail" | "unknown" => Some(AnsiColor::Red),
        "waiting" | "waiting_for_human" | "answered" | "stopped" | "interrupted" | "warn" => Some(AnsiColor::Yellow),
        "running" => Some(AnsiColor::Cyan),
        _ => None,
    }
}

/// Shows this below what is written to standard error, until [`hide`].
pub(crate) fn show(display: Display) {
    if let Some(screen) = screen() {
        screen.show(display);
    }
}

/// Takes the live display away.
pub(crate) fn hide() {
    if let Some(screen) = screen() {
        screen.hide();
    }
}

/// Waits until the terminal that standard error is has everything.
pub(crate) fn flush() {
    if let Some(screen) = screen() {
        screen.flush();
    }
}

/// The same where the process ends; no longer than a moment, since nothing listens to signals any more.
pub(crate) fn finish() {
    if SCREEN.get().is_some_and(Option::is_some) {
        last_words(|| {});
    }
}

/// The same before something is written to standard output, which may be the same terminal.
pub(crate) fn flush_before_output() {
    if io::stdout().is_terminal() {
        flush();
    }
}

/// Says what a process says that ends at once. Neither a terminal that stands still nor a reader that reads no more keeps it.
pub(crate) fn last_words(say: impl FnOnce() + Send + 'static) {
    last_words_behind(false, say);
}

/// The same for a process that a person ends at once: what it says begins on a line of its own.
pub(crate) fn last_words_at_a_signal(say: impl FnOnce() + Send + 'static) {
    last_words_behind(true, say);
}

fn last_words_behind(a_signal: bool, say: impl FnOnce() + Send + 'static) {
    // Asked before it is as it was: where `^C` was kept away, there is none.
    let is_echoed = a_signal && echoes_signals();
    restore_echo();
    let (said, is_said) = channel::<()>();
    let saying = thread::Builder::new().spawn(move || {
        hide();
        release();
        if is_echoed {
            begin_a_line();
        }
        say();
        flush();
        drop(said);
    });
    if saying.is_ok() {
        // An error either way: it is over, or it took too long.
        is_said.recv_timeout(LAST_WORDS).ok();
    }
}

/// What is written to standard error while somebody is asked something; it is shown afterwards.
static HELD: Mutex<Option<Vec<Shown>>> = Mutex::new(None);

/// Standard error belongs to a prompt until this is dropped: the live display is gone, and lines wait.
#[derive(Debug)]
pub(crate) struct Held(());

/// Keeps standard error free for a prompt.
pub(crate) fn hold() -> Held {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Vec::new());
    if let Some(screen) = screen() {
        screen.pause();
    }
    Held(())
}

/// Whether a prompt has standard error for itself.
pub(crate) fn is_held() -> bool {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// How the terminal was, while a key like Ctrl-C is not echoed.
static ECHO: Mutex<Option<Termios>> = Mutex::new(None);

/// Has the terminal not show `^C` beside a live display: it would break the line that the display is drawn over.
pub(crate) fn hide_echo_of_control() {
    // Whoever is in the background would be stopped for it.
    let Some(was) = tcgetattr(io::stdin()).ok().filter(|_| is_in_foreground()) else { return };
    let mut quiet = was.clone();
    quiet.local_modes.remove(LocalModes::ECHOCTL);
    if tcsetattr(io::stdin(), OptionalActions::Now, &quiet).is_ok() {
        ECHO.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(was);
    }
}

/// Begins a line of its own behind the `^C` that the terminal shows where nothing keeps it from doing so: what follows would not fit into its
/// width.
pub(crate) fn leave_the_echo() {
    if echoes_signals() {
        begin_a_line();
    }
}

/// Whether the terminal shows `^C` in front of what is written next.
fn echoes_signals() -> bool {
    let echoes = |modes: LocalModes| modes.contains(LocalModes::ECHO | LocalModes::ECHOCTL);
    let is_shown = is_in_foreground() && tcgetattr(io::stdin()).is_ok_and(|now| echoes(now.local_modes));
    is_shown && io::stderr().is_terminal()
}

fn begin_a_line() {
    // Nobody is left who could be told that this failed.
    write_err(&Shown::exact("\n")).ok();
}

/// Leaves the terminal as it was.
pub(crate) fn restore_echo() {
    let was = ECHO.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(was) = was.filter(|_| is_in_foreground()) {
        // A terminal that went away is as it is.
        tcsetattr(io::stdin(), OptionalActions::Now, &was).ok();
    }
}

/// Whether the terminal belongs to another process group at the moment, as after `ua job FILE &`. One that is not this session's own stops
/// nobody who reads it.
pub(crate) fn is_in_background() -> bool {
    another_group_has(io::stdin())
}

fn another_group_has(terminal: impl AsFd) -> bool {
    tcgetpgrp(terminal).is_ok_and(|group| group != rustix::process::getpgrp())
}

/// What it means to this process that its terminal goes away. Asked before anything listens for it: whoever listened once ignores it no more.
pub(crate) fn hang_up() -> HangUp {
    let is_ignored = ua_mcp::is_ignored(SignalKind::hangup().as_raw_value());
    if is_ignored { HangUp::IsIgnored } else { HangUp::Stops }
}

fn is_in_foreground() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Shows what waited for a prompt to end.
pub(crate) fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    for text in held.into_iter().flatten() {
        // Nobody is left who could be told.
        write_err(&text).ok();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release();
        if let Some(screen) = screen() {
            screen.resume();
        }
    }
}

/// Writes a prompt, which waits for nobody.
pub(crate) fn write_prompt(text: &str) {
    write_now(&Shown::from(text)).ok();
}

/// Writes to standard error, around a live display if there is one; while somebody is asked something, afterwards.
pub(crate) fn write_err(text: &Shown) -> io::Result<()> {
    if let Some(held) = &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        held.push(text.clone());
        return Ok(());
    }
    write_now(text)
}

fn write_now(text: &Shown) -> io::Result<()> {
    let bytes = match TERMINAL.get() {
        Some(terminal) => redaction::bytes(&terminal.redactor, text.as_str().as_bytes()),
        None => Cow::Borrowed(text.as_str().as_bytes()),
    };
    match screen() {
        Some(screen) => {
            let text = String::from_utf8_lossy(&bytes);
            screen.text(drawn(&text, err_width()).into_owned().into_bytes());
            Ok(())
        }
        None => io::stderr().lock().write_all(&bytes),
    }
}

/// Lets a panic say nothing secret. What it says otherwise stays as it is.
pub(crate) fn guard_panics(redactor: Redactor) {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let words = info.to_string();
        match redactor.text(&words) {
            Cow::Borrowed(_) => usual(info),
            // Nobody is left who could be told that this failed.
            Cow::Owned(clean) => drop(write_err(&Shown::from(format!("{clean}\n")))),
        }
    }));
}

/// Does something that writes to standard output around a live display: both may be one terminal.
pub(crate) fn around_live<T>(write: impl FnOnce() -> T) -> T {
    let Some(screen) = screen().filter(|_| io::stdout().is_terminal()) else { return write() };
    screen.pause();
    screen.flush();
    let done = write();
    screen.resume();
    done
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
        write_err(&Shown::from(String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned()))
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
    fn a_status_has_the_colour_of_its_word() {
        assert_eq!(status_color("stopped (budget)"), Some(AnsiColor::Yellow));
        assert_eq!(status_color("queued"), None);
    }
}
