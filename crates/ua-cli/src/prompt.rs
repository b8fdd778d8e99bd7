//! Prompts: a line that a person types and ends with Enter.
//!
//! The terminal does the editing and stays in the mode it was in, so nothing has to be put back, whatever ends the process. What was typed
//! before a prompt stood there is thrown away: nobody answers what they have not read. Meanwhile everything else that would be written
//! waits ([`crate::terminal::hold`]), and one prompt waits for the other.

use std::io::{self, IsTerminal as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Once};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;
use ua_host::Kind;
use ua_runner::HangUp;

use unicode_width::UnicodeWidthStr as _;

use crate::error::{HostError, INTERRUPTED};
use crate::output::{foreign_to, plain, wrapped_to};

/// How often a prompt that waits looks whether it is still wanted.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// One prompt at a time: whoever reads the terminal has it, even when nobody waits for what is read any more.
static TURN: LazyLock<Arc<Mutex<()>>> = LazyLock::new(Arc::default);

/// How many prompts were called off so far, or ended: one that began earlier is not wanted any more.
static CALLED_OFF: AtomicU64 = AtomicU64::new(0);

/// Whether a prompt stands there, or was left with a signal, that is for the prompt alone, which says what it did.
static IS_OPEN: AtomicBool = AtomicBool::new(false);

/// Whether something else of this process listens to signals, and acts on those that come while no prompt stands there.
static OTHERS_LISTEN: AtomicBool = AtomicBool::new(false);

/// Whether a signal is for a prompt, and for nothing else.
pub(crate) fn is_open() -> bool {
    IS_OPEN.load(Ordering::SeqCst)
}

/// Calls off whatever is asked now: what it was about is over.
pub(crate) fn call_off() {
    CALLED_OFF.fetch_add(1, Ordering::SeqCst);
}

/// Leaves the signals that come while no prompt stands there to whatever else of this process listens to them from now on.
pub(crate) fn leave_signals_to_others() {
    OTHERS_LISTEN.store(true, Ordering::SeqCst);
}

/// What somebody is told who leaves a prompt with Ctrl-C, or whose process is asked to end while it stands there. No prompt is without one: whoever leaves wants to know what became of what they
/// were asked, and how to come back to it.
#[derive(Debug, Clone)]
pub(crate) struct Left {
    /// What is as it was, in a sentence.
    pub(crate) what: String,
    /// How to come back to it.
    pub(crate) back: String,
    /// What a signal does beside taking the process from the prompt.
    pub(crate) signal: AtSignal,
}

/// What becomes of what a prompt is about, when a signal takes the process from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtSignal {
    /// It is not done: a command only asked whether it is meant.
    Undone,
    /// It waits for an answer, as before.
    Waits,
    /// It is at work in this process, which stops it at the same signal, and says what it waits for.
    Stops,
}

impl Left {
    /// Of a command that does nothing before somebody agreed to it.
    pub(crate) fn undone(what: &str) -> Self {
        Self { what: what.to_owned(), back: "the same command asks again".to_owned(), signal: AtSignal::Undone }
    }

    /// The same as the failure that a command ends with which a signal takes from a prompt.
    fn by(&self, signal: Signalled) -> HostError {
        let kind = match (signal, self.signal) {
            (Signalled::Key, AtSignal::Waits) => Kind::Left,
            (Signalled::Key, AtSignal::Undone | AtSignal::Stops) | (Signalled::End, _) => Kind::Interrupted,
        };
        HostError::new(kind, &self.what).hint(&self.back)
    }
}

/// A signal that takes a process from a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signalled {
    /// Ctrl-C, or Ctrl-D: the person who was asked leaves.
    Key,
    /// SIGTERM or SIGHUP: the process is to end, or its terminal went away.
    End,
}

/// The signals that ask a process to end.
struct Signals {
    int: Signal,
    term: Signal,
    /// `None` in a process that was started to outlive its terminal.
    hup: Option<Signal>,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        let hup = (crate::terminal::hang_up() == HangUp::Stops).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: hup.transpose()?,
        })
    }

    async fn next(&mut self) -> Signalled {
        let hung_up = async {
            match &mut self.hup {
                Some(hup) => hup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.int.recv() => Signalled::Key,
            _ = self.term.recv() => Signalled::End,
            _ = hung_up => Signalled::End,
        }
    }
}

/// Ends this process at a signal that comes while no prompt stands there and nothing else listens: once a prompt has listened, the system does
/// it no more.
fn end_between_prompts() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let Ok(mut signals) = Signals::listen() else { return };
        tokio::spawn(async move {
            loop {
                signals.next().await;
                if !is_open() && !OTHERS_LISTEN.load(Ordering::SeqCst) {
                    end_as_the_system_would();
                }
            }
        });
    });
}

#[expect(clippy::disallowed_methods, reason = "nothing of this command asked to be told of signals")]
fn end_as_the_system_would() {
    crate::terminal::last_words(|| {});
    std::process::exit(i32::from(INTERRUPTED));
}

/// A prompt that stands on the terminal. Whatever becomes of who waits for it, it is called off when this is dropped.
#[derive(Debug, Default)]
struct Standing {
    /// Its line is complete: somebody ended it.
    is_ended: bool,
    /// A signal took the process from it, which is the prompt's to tell of.
    is_left: bool,
}

impl Standing {
    fn new(left: &Left) -> Self {
        IS_OPEN.store(left.signal != AtSignal::Stops, Ordering::SeqCst);
        Self::default()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        call_off();
        if !self.is_ended {
            crate::terminal::write_prompt("\n");
        }
        if !self.is_left {
            IS_OPEN.store(false, Ordering::SeqCst);
        }
    }
}

/// One line of a person; `None` when what was asked is over. Ctrl-D leaves the prompt as Ctrl-C does, whatever was asked: it answers nothing, and is
/// an error that says what is `left`. Where Ctrl-C stops what is at work beside the prompt, Ctrl-D stops nothing: it is `None` there, and leaves
/// what was asked for later. Who waits for this no longer may drop it at any time: nothing is read from the terminal for it afterwards.
pub(crate) async fn ask_line(ask: &str, left: &Left) -> Result<Option<String>, HostError> {
    let turn = Arc::new(TURN.clone().lock_owned().await);
    let began = CALLED_OFF.load(Ordering::SeqCst);
    let mut signals = Signals::listen().map_err(|e| HostError::failed(format!("cannot listen for signals: {e}")))?;
    end_between_prompts();
    let _held = crate::terminal::hold();
    let mut standing = Standing::new(left);
    let ask = wrapped_to(&plain(ask), 0, crate::terminal::err_width());
    let mut continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))
        .map_err(|e| HostError::failed(format!("cannot listen for signals: {e}")))?;
    let mut read = {
        let (turn, ask) = (turn.clone(), ask.clone());
        tokio::task::spawn_blocking(move || {
            put(&ask, began);
            let read = loop {
                let read = read_line(began);
                if !matches!(&read, Ok(Read::Cut)) {
                    break read;
                }
                put(&format!("{CUT}\n{}", ask.trim_start_matches('\n')), began);
            };
            drop(turn);
            read
        })
    };
    let typed = loop {
        tokio::select! {
            typed = &mut read => break typed.map_err(|e| HostError::failed(format!("cannot ask on this terminal: {e}")))?,
            signal = signals.next() => {
                standing.is_left = true;
                return Err(left.by(signal));
            }
            // Ctrl-Z and `fg`: what a shell wrote in between stands where the question stood.
            _ = continued.recv() => crate::terminal::write_prompt(&format!("\n{}", ask.trim_start_matches('\n'))),
        }
    };
    match typed {
        Ok(Read::Line { line, more }) => {
            standing.is_ended = true;
            if more {
                crate::terminal::write_prompt(
                    "note: only the first line was taken; `ua answer` with `--text` takes more than one\n",
                );
            }
            Ok(Some(line.trim().to_owned()))
        }
        Ok(Read::Ended) if left.signal == AtSignal::Stops => Ok(None),
        Ok(Read::Ended) => Err(left.by(Signalled::Key)),
        // A line that was cut is asked for again where it is read.
        Ok(Read::CalledOff | Read::Cut) => Ok(None),
        Ok(Read::HungUp) => {
            standing.is_left = true;
            Err(left.by(Signalled::End))
        }
        Err(error) => Err(HostError::failed(format!("cannot ask on this terminal: {error}"))
            .hint("use `ua answer QUESTION CHOICE`, or `--no-input`")),
    }
}

/// Has a prompt stand on the terminal, once everything before it does: what was typed until then answers something else, or nothing. One that was
/// called off meanwhile is not put.
fn put(ask: &str, began: u64) {
    crate::terminal::flush();
    if CALLED_OFF.load(Ordering::SeqCst) != began {
        return;
    }
    if io::stdin().is_terminal() {
        // A terminal that cannot forget what was typed asks all the same.
        rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush).ok();
    }
    crate::terminal::write_prompt(ask);
}

/// How many bytes of a line a terminal hands over at most, without its end (Linux, `N_TTY_BUF_SIZE`).
const LONGEST_LINE: usize = 4_095;

/// What somebody is told whose line was longer.
const CUT: &str = "a terminal hands over no more than 4095 bytes of a line, and this one was longer: nothing of it was taken. Type a shorter one; \
                   `ua answer` with `--text` takes a longer one.";

/// How a prompt ends.
enum Read {
    /// With what was typed.
    Line {
        line: String,
        /// Another line stands behind it already, as from a text that was pasted.
        more: bool,
    },
    /// With as much of a line as a terminal hands over, which drops the rest without a word.
    Cut,
    /// Without: somebody ended the input (Ctrl-D).
    Ended,
    /// It is not wanted any more.
    CalledOff,
    /// The terminal went away. That is a signal as well, which may be heard later, and means the same.
    HungUp,
}

/// Whether standard input is a terminal that went away: by then it says that it is none, but it is a device still, and no other hangs up.
fn has_hung_up(stdin: &io::Stdin) -> bool {
    let is_device = rustix::fs::fstat(stdin)
        .is_ok_and(|meta| rustix::fs::FileType::from_raw_mode(meta.st_mode) == rustix::fs::FileType::CharacterDevice);
    let mut now = [PollFd::new(stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    is_device && poll(&mut now, Some(&at_once)).is_ok() && now[0].revents().contains(PollFlags::HUP)
}

/// Reads up to the end of a line, as the terminal hands it over.
fn read_line(began: u64) -> io::Result<Read> {
    let stdin = io::stdin();
    let mut typed = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        if CALLED_OFF.load(Ordering::SeqCst) != began {
            return Ok(Read::CalledOff);
        }
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&LOOK_EVERY)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(&stdin, &mut buffer) {
            // Asked behind the read: it may go away between the two.
            Ok(0) | Err(rustix::io::Errno::IO) if has_hung_up(&stdin) => return Ok(Read::HungUp),
            Ok(0) => return Ok(Read::Ended),
            Ok(count) => typed.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(end) = typed.iter().position(|byte| *byte == b'\n') {
            if end >= LONGEST_LINE && stdin.is_terminal() {
                return Ok(Read::Cut);
            }
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let mut next = [PollFd::new(&stdin, PollFlags::IN)];
            let more = stdin.is_terminal()
                && poll(&mut next, Some(&at_once)).is_ok_and(|ready| ready > 0)
                && !has_hung_up(&stdin);
            return Ok(Read::Line { line: String::from_utf8_lossy(&typed[..end]).into_owned(), more });
        }
    }
}

/// Asks for a yes or a no; Enter alone is no, and what is neither is asked about again.
pub(crate) async fn confirm(ask: &str, left: &Left) -> Result<bool, HostError> {
    let mut text = format!("{ask} [y/N] ");
    loop {
        let Some(said) = ask_line(&text, left).await? else { return Ok(false) };
        match yes_or_no(&said) {
            Some(is_yes) => return Ok(is_yes),
            None => text = format!("`{}` is neither yes nor no. {ask} [y/N] ", crate::output::line(&said, 60)),
        }
    }
}

/// Whether what was typed is a yes; nothing typed is a no. `None` for what is neither.
fn yes_or_no(said: &str) -> Option<bool> {
    match said.trim().to_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "" | "n" | "no" => Some(false),
        _ => None,
    }
}

/// What somebody typed, among `words`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The word at this place.
    One(usize),
    /// Nothing was typed.
    Nothing,
    /// No word, or the beginning of several: what to say about it.
    Unclear(String),
}

/// Finds what was typed among words: a word, its beginning that is as long as its [`key`] at least, or one that no other word has. What cannot be
/// taken back is confirmed, so a letter that was learnt elsewhere does no harm.
pub(crate) fn pick(typed: &str, words: &[&str]) -> Picked {
    let typed = typed.trim().to_lowercase();
    if typed.is_empty() {
        return Picked::Nothing;
    }
    if let Some(at) = words.iter().position(|word| word.to_lowercase() == typed) {
        return Picked::One(at);
    }
    if let Some(at) = words.iter().position(|word| is_keyed(&typed, word)) {
        return Picked::One(at);
    }
    // The number of another answer is the beginning of none.
    let is_begun = |word: &str| key(word) != word && word.to_lowercase().starts_with(&typed);
    let begun: Vec<usize> = (0..words.len()).filter(|at| is_begun(words[*at])).collect();
    match begun.as_slice() {
        [at] => Picked::One(*at),
        [] => {
            let known: Vec<String> = words.iter().map(|word| keyed(word)).collect();
            Picked::Unclear(format!("`{}` is not one of {}", plain(&typed), known.join(", ")))
        }
        several => {
            let takes: Vec<String> =
                several.iter().map(|at| format!("`{}` for {}", key(words[*at]), words[*at])).collect();
            Picked::Unclear(format!("more than one begins with `{}`: type {}", plain(&typed), takes.join(", ")))
        }
    }
}

/// Whether what was typed is a key of this word, in every menu: as much of it as is shown, or more.
pub(crate) fn is_keyed(typed: &str, word: &str) -> bool {
    let typed = typed.trim().to_lowercase();
    typed.len() >= key(word).len() && word.to_lowercase().starts_with(&typed)
}

/// A word with its key: `[re] retry`. What is its own key, a number above all, stands for itself.
fn keyed(word: &str) -> String {
    match key(word) {
        whole if whole == word => format!("[{word}]"),
        key => format!("[{key}] {word}"),
    }
}

/// One thing that may be typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The whole of what is typed for it.
    pub(crate) word: String,
    /// What it does.
    pub(crate) meaning: String,
}

/// What may be typed, one below the other: how much of it is enough, the word, and what it does, each in a column. Where the terminal has no
/// room for that beside each other, what it does stands below the word.
pub(crate) fn offered(offers: &[Offer], room: Option<usize>) -> String {
    let words: Vec<&str> = offers.iter().map(|offer| offer.word.as_str()).collect();
    let keys: Vec<String> = words.iter().map(|word| format!("[{}]", key(word))).collect();
    let key_width = keys.iter().map(|key| key.width()).max().unwrap_or_default();
    // A number is its own key: what it stands for begins where words do.
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    let word_width = words.iter().filter(|word| !is_number(word)).map(|word| word.width()).max().unwrap_or_default();
    let words_at = 2 + key_width + 2;
    let meanings_at = words_at + word_width + 2;
    let is_narrow = room.is_some_and(|room| room < meanings_at + LEAST_ROOM);
    let mut out = String::new();
    for (offer, key) in offers.iter().zip(&keys) {
        let (begin, at) = match (is_number(&offer.word), is_narrow) {
            (true, _) => (format!("  {key:<key_width$}  "), words_at),
            (false, true) => (format!("  {key:<key_width$}  {}\n{:words_at$}", offer.word, ""), words_at),
            (false, false) => (format!("  {key:<key_width$}  {:<word_width$}  ", offer.word), meanings_at),
        };
        // What a number stands for is in the words of a model.
        let meaning = if is_number(&offer.word) {
            foreign_to(&offer.meaning, at, room)
        } else {
            wrapped_to(&offer.meaning, at, room)
        };
        out.push_str(&format!("{begin}{meaning}\n"));
    }
    out
}

/// What something does is not squeezed into fewer columns than this.
const LEAST_ROOM: usize = 24;

/// What is enough of each word, in every menu the same. What ends a run or sends something again has two letters; less of them is enough where no
/// other answer begins so.
const KEYS: [(&str, &str); 12] = [
    ("approve", "a"),
    ("accept", "ac"),
    ("abort", "ab"),
    ("cancel", "c"),
    ("decline", "d"),
    ("happened", "h"),
    ("later", "l"),
    ("new", "n"),
    ("resume", "r"),
    ("retry", "re"),
    ("skip", "s"),
    ("words", "w"),
];

/// How much of a word has to be typed: of one that stands in no menu of words, a number above all, the whole.
fn key(word: &str) -> &str {
    KEYS.iter().find(|(known, _)| *known == word).map_or(word, |(_, key)| *key)
}

/// Whether a word may stand in a menu.
#[cfg(test)]
pub(crate) fn has_key(word: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_picked_by_as_many_letters_as_are_shown() {
        let words = ["approve", "skip", "abort", "later"];
        assert_eq!(words.map(key), ["a", "s", "ab", "l"]);
        for (typed, at) in [("approve", 0), ("a", 0), ("SKIP", 1), ("sk", 1), ("ab", 2), ("l", 3)] {
            assert_eq!(pick(typed, &words), Picked::One(at), "{typed}");
        }
        assert_eq!(pick(" ", &words), Picked::Nothing);
        // A letter too many, and nothing that stands for something else.
        for typed in ["approved", "k", "j", "y"] {
            assert!(matches!(pick(typed, &words), Picked::Unclear(_)), "{typed}");
        }
    }

    #[test]
    fn what_is_neither_yes_nor_no_counts_as_neither() {
        for (said, meant) in [
            ("y", Some(true)),
            ("YES", Some(true)),
            ("", Some(false)),
            ("No", Some(false)),
            ("maybe", None),
            ("yep", None),
        ] {
            assert_eq!(yes_or_no(said), meant, "{said}");
        }
    }

    #[test]
    fn a_key_means_the_same_in_every_menu() {
        for (nth, (word, key)) in KEYS.iter().enumerate() {
            assert!(word.starts_with(key), "{word}");
            for (other, its) in &KEYS[nth + 1..] {
                assert!(key != its && word != other, "[{key}] is {word} and {other}");
            }
        }
        // Where nothing else begins so, a letter is enough.
        let doubt = ["happened", "retry", "skip", "abort", "later"];
        for (typed, at) in [("r", 1), ("re", 1), ("a", 3), ("AB", 3), ("l", 4)] {
            assert_eq!(pick(typed, &doubt), Picked::One(at), "{typed}");
        }
        // Beside `approve`, which has it for its own, it is never `abort`.
        assert_eq!(pick("a", &["approve", "skip", "abort"]), Picked::One(0));
        let refused = |typed, words: &[&str]| match pick(typed, words) {
            Picked::Unclear(why) => why,
            other @ (Picked::One(_) | Picked::Nothing) => panic!("{other:?}"),
        };
        let form = ["accept", "decline", "cancel", "abort", "later"];
        assert_eq!(refused("a", &form), "more than one begins with `a`: type `ac` for accept, `ab` for abort");
        assert_eq!(refused("x", &["1", "words"]), "`x` is not one of [1], [w] words");
        // A number is the beginning of no other one.
        assert_eq!(refused("1", &["10", "words"]), "`1` is not one of [10], [w] words");
    }

    #[test]
    fn whatever_is_refused_is_answered_with_every_key() {
        let all: Vec<&str> = KEYS.iter().map(|(word, _)| *word).collect();
        for word in &all {
            for end in 1..=word.len() + 1 {
                let typed = format!("{word}x").chars().take(end).collect::<String>();
                let Picked::Unclear(why) = pick(&typed, &all) else { continue };
                assert!(all.iter().all(|word| why.contains(&format!("[{}] {word}", key(word)))), "{typed}: {why}");
            }
        }
    }

    #[test]
    fn what_may_be_typed_stands_in_columns_that_fit_the_terminal() {
        let offer = |word: &str, meaning: &str| Offer { word: word.to_owned(), meaning: meaning.to_owned() };
        let offers = [
            offer("1", "the red one"),
            offer("approve", "let it run"),
            offer("skip", "leave it unresolved; the model is told that the outcome is unknown"),
            offer("abort", "end the run"),
        ];
        assert_eq!(
            offered(&offers, Some(60)),
            "  [1]   the red one\n  \
               [a]   approve  let it run\n  \
               [s]   skip     leave it unresolved; the model is told that\n                 the outcome is unknown\n  \
               [ab]  abort    end the run\n"
        );
        assert!(
            offered(&offers, None)
                .contains("[s]   skip     leave it unresolved; the model is told that the outcome is unknown\n")
        );
        let narrow = offered(&offers, Some(36));
        assert!(
            narrow.contains("  [s]   skip\n        leave it unresolved; the\n        model is told that the\n"),
            "{narrow}"
        );
        // Whatever the width: each key, each word and each meaning is there, and no line is wider.
        for room in 30..=120 {
            let shown = offered(&offers, Some(room));
            assert!(shown.lines().all(|line| line.width() <= room && line == line.trim_end()), "{room}:\n{shown}");
            let words: Vec<&str> = shown.split_whitespace().collect();
            for offer in &offers {
                assert!(shown.contains(&offer.word), "{room}:\n{shown}");
                assert!(offer.meaning.split(' ').all(|word| words.contains(&word)), "{room}:\n{shown}");
            }
        }
    }
}
