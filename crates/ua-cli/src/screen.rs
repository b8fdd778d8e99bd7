//! The terminal on standard error: one thread writes to it, and nothing else of this process waits for that or hears that it failed.
//!
//! A terminal goes away (a window is closed, `ssh` drops) and stands still (Ctrl-S, a line that is slow), each at any moment. What a run decides
//! depends on neither: whoever has something to show hands it over and continues. The first error ends the live display; lines are tried
//! all the same.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ua_core::busy_with;
use unicode_width::UnicodeWidthChar as _;

use crate::output::parts_in;
use crate::shown::Shown;
use crate::used::{INDENT, Used};

/// How often the spinner moves.
const TICK: Duration = Duration::from_millis(120);
/// What takes no longer is not told.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// The spinner.
pub(crate) const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What a live display shows below the lines of what happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Display {
    /// Since when it has been there.
    pub(crate) began: Instant,
    /// What is being done.
    pub(crate) doing: String,
    /// What was used; no line where nothing is known.
    pub(crate) used: Used,
}

/// What is asked of the terminal for each drawing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks {
    /// How many columns it has: a window changes.
    pub(crate) width: fn() -> Option<usize>,
    /// Whether it is ours, which a shell gives and takes: the display is drawn only then.
    pub(crate) is_ours: fn() -> bool,
    /// How many bytes of whole lines were typed and not read. The terminal shows each where the display ends, and begins another line behind it, of
    /// which nobody else tells.
    pub(crate) typed: fn() -> u64,
}

/// Where the thread that writes is told what to write.
#[derive(Debug)]
pub(crate) struct Screen(Sender<Order>);

#[derive(Debug)]
enum Order {
    /// Bytes, above the display.
    Text(Vec<u8>),
    /// The display from here on.
    Show(Display),
    /// No display any more.
    Hide,
    /// The display stays away until it is resumed.
    Pause,
    /// It may be drawn again.
    Resume,
    /// Everything before this was written, or failed to be.
    Written(Sender<()>),
}

impl Screen {
    /// Starts the thread; `None` where the system has none to give.
    pub(crate) fn start(out: impl Write + Send + 'static, asks: Asks) -> Option<Self> {
        let (orders, taken) = channel();
        let painter = Painter::new(out, asks);
        let started = thread::Builder::new().name("ua-screen".to_owned()).spawn(move || painter.run(&taken));
        started.ok().map(|_| Self(orders))
    }

    /// Writes above the display.
    pub(crate) fn text(&self, bytes: Vec<u8>) {
        self.order(Order::Text(bytes));
    }

    /// Shows this below what is written.
    pub(crate) fn show(&self, display: Display) {
        self.order(Order::Show(display));
    }

    /// Takes the display away for good.
    pub(crate) fn hide(&self) {
        self.order(Order::Hide);
    }

    /// Takes the display away until [`resume`](Self::resume).
    pub(crate) fn pause(&self) {
        self.order(Order::Pause);
    }

    /// Lets the display be drawn again.
    pub(crate) fn resume(&self) {
        self.order(Order::Resume);
    }

    /// Waits until everything was written, for as long as the terminal takes.
    pub(crate) fn flush(&self) {
        let (written, is_written) = channel();
        self.order(Order::Written(written));
        // An error is that of a thread that has gone: then there is nothing to wait for.
        is_written.recv().ok();
    }

    fn order(&self, order: Order) {
        // The thread ends with the process alone.
        self.0.send(order).ok();
    }
}

/// What writes.
struct Painter<W> {
    out: W,
    asks: Asks,
    display: Option<Display>,
    is_paused: bool,
    /// Something could not be written: nothing is drawn any more.
    is_gone: bool,
    /// How many columns each line of the display had that stands there.
    drawn: Vec<usize>,
    /// What had been typed when it was drawn.
    typed: u64,
    /// What is written next, at once.
    bytes: Vec<u8>,
    /// Who waits for that.
    waiting: Vec<Sender<()>>,
}

impl<W: Write> Painter<W> {
    fn new(out: W, asks: Asks) -> Self {
        let (drawn, bytes, waiting) = (Vec::new(), Vec::new(), Vec::new());
        Self { out, asks, display: None, is_paused: false, is_gone: false, drawn, typed: 0, bytes, waiting }
    }

    /// Writes what it is told until nobody is left who could tell it anything.
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let next = if self.display.is_some() && !self.is_paused {
                orders.recv_timeout(TICK)
            } else {
                orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match next {
                Ok(order) => {
                    self.take(order);
                    // Whatever came meanwhile is drawn with it.
                    for order in orders.try_iter() {
                        self.take(order);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.draw();
            self.write();
        }
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Text(text) => {
                self.clear();
                self.bytes.extend(text);
            }
            Order::Show(display) => self.display = Some(display).filter(|_| !self.is_gone),
            Order::Hide => {
                self.clear();
                self.display = None;
            }
            Order::Pause => {
                self.clear();
                self.is_paused = true;
            }
            Order::Resume => self.is_paused = false,
            Order::Written(whom) => self.waiting.push(whom),
        }
    }

    /// Goes back to where the display began, and leaves nothing of it.
    fn clear(&mut self) {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn.is_empty() {
            return;
        }
        // A terminal that was made narrower since has broken what did not fit any more.
        let room = (self.asks.width)().unwrap_or(usize::MAX).max(1);
        let rows: usize = drawn.iter().map(|columns| columns.div_ceil(room).max(1)).sum();
        // Whoever pressed Enter meanwhile has moved the cursor below it: one line, since a person is slower than the display.
        let rows = rows + usize::from((self.asks.typed)() > self.typed);
        self.bytes.push(b'\r');
        if rows > 1 {
            self.bytes.extend(format!("\u{1b}[{}A", rows - 1).bytes());
        }
        self.bytes.extend(b"\x1b[J");
    }

    /// Draws the display where the last line ended.
    fn draw(&mut self) {
        self.clear();
        let Some(display) = self.display.as_ref().filter(|_| !self.is_paused && (self.asks.is_ours)()) else {
            return;
        };
        let lines = display.lines((self.asks.width)());
        self.typed = (self.asks.typed)();
        self.drawn = lines.iter().map(|line| crate::output::columns(line)).collect();
        self.bytes.extend(crate::terminal::drawn(&lines.join("\n"), (self.asks.width)()).bytes());
    }

    fn write(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if self.out.write_all(&bytes).and_then(|()| self.out.flush()).is_err() {
            (self.display, self.drawn, self.is_gone) = (None, Vec::new(), true);
        }
        for whom in self.waiting.drain(..) {
            // Who waits no longer is told nothing.
            whom.send(()).ok();
        }
    }
}

impl Display {
    /// Its lines, of so many columns at most.
    fn lines(&self, room: Option<usize>) -> Vec<String> {
        let elapsed = self.began.elapsed();
        let frame = elapsed.as_millis() / TICK.as_millis();
        let frame = usize::try_from(frame).unwrap_or_default() % FRAMES.len();
        let waits = busy_with(SHORT_WAIT).map_or_else(String::new, |busy| format!(" · {}", Shown::from(busy).as_str()));
        let doing = format!("{} {} · {}{waits}", FRAMES[frame], in_short(elapsed), self.doing);
        let doing = room.map_or_else(|| doing.clone(), |room| parts_in(&doing, room));
        let mut lines = vec![cut(&doing, room)];
        let used = self.used.text(elapsed, room);
        if !used.is_empty() {
            lines.push(cut(&format!("{:INDENT$}{used}", ""), room));
        }
        lines
    }
}

/// A time in as few columns as it needs: `42s`, `12m`, `3h`.
fn in_short(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds => format!("{}h", seconds / 3600),
    }
}

/// As much of a line as so many columns hold: one that is broken by the terminal could not be taken away again.
fn cut(text: &str, room: Option<usize>) -> String {
    let mut left = room.unwrap_or(usize::MAX);
    let fits = |c: &char| match left.checked_sub(c.width().unwrap_or_default()) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    text.chars().filter(|c| !c.is_control()).take_while(fits).collect()
}

/// Standard error as it is; it is locked for each write alone.
pub(crate) fn standard_error() -> impl Write + Send + 'static {
    io::stderr()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::used::Part;

    /// How many writes there were, what they wrote, and what was lost.
    type Written = (usize, Vec<u8>, Vec<u8>);

    /// A terminal that goes away before the write with this number, for good or for that one.
    #[derive(Clone)]
    struct Tty {
        written: Arc<Mutex<Written>>,
        gone_at: usize,
        for_good: bool,
    }

    impl Write for Tty {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut written = self.written.lock().unwrap();
            let number = written.0;
            written.0 += 1;
            if number == self.gone_at || (self.for_good && number > self.gone_at) {
                written.2.extend(bytes);
                return Err(io::Error::from_raw_os_error(5));
            }
            written.1.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A terminal of twenty columns at which nobody types.
    const NARROW: Asks = Asks { width: || Some(20), is_ours: || true, typed: || 0 };

    fn display(doing: &str) -> Display {
        #[expect(clippy::disallowed_methods, reason = "a display begins")]
        let began = Instant::now();
        let calls = Part { name: "calls", share: None, text: "1/4".to_owned() };
        Display { began, doing: doing.to_owned(), used: Used { parts: vec![calls], time: None } }
    }

    /// Everything that is done with a screen, waited for after each step.
    fn life(tty: &Tty) {
        let screen = Screen::start(tty.clone(), NARROW).unwrap();
        let steps: [&dyn Fn(&Screen); 9] = [
            &|screen| screen.text(b"one\n".to_vec()),
            &|screen| screen.show(display("thinking")),
            &|screen| screen.text(b"two\n".to_vec()),
            &|screen| screen.pause(),
            &|screen| screen.text(b"Really? ".to_vec()),
            &|screen| screen.resume(),
            &|screen| screen.show(display("working")),
            &|screen| screen.hide(),
            &|screen| screen.text(b"three\n".to_vec()),
        ];
        for step in steps {
            step(&screen);
            screen.flush();
        }
    }

    #[test]
    fn a_terminal_that_goes_away_at_any_write_ends_the_display_and_nothing_else() {
        let whole = Tty { written: Arc::default(), gone_at: usize::MAX, for_good: true };
        life(&whole);
        let (writes, bytes, _) = whole.written.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("one\n") && text.ends_with("\u{1b}[Jthree\n"), "{text:?}");
        assert!(text.contains("thinking\n  calls 1/4\r\u{1b}[1A\u{1b}[J"), "{text:?}");
        for gone_at in 0..writes {
            for for_good in [true, false] {
                let tty = Tty { written: Arc::default(), gone_at, for_good };
                // Each step is waited for: the thread lives, and answers.
                life(&tty);
                let (_, written, lost) = tty.written.lock().unwrap().clone();
                let [written, lost] = [written, lost].map(|bytes| String::from_utf8(bytes).unwrap());
                // Every line was tried, once.
                for line in ["one\n", "two\n", "Really? ", "three\n"] {
                    let tried = written.matches(line).count() + lost.matches(line).count();
                    assert_eq!(tried, 1, "{gone_at} {line:?}: {written:?} {lost:?}");
                }
                assert!(for_good || lost.contains("three") || written.ends_with("three\n"), "{gone_at}: {written:?}");
            }
        }
    }

    #[test]
    fn a_terminal_that_stands_still_keeps_nobody_but_who_waits_for_it() {
        /// Ctrl-S: a write ends when the sender is dropped.
        struct Still(Receiver<()>);
        impl Write for Still {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.recv().ok();
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (ctrl_q, ctrl_s) = channel();
        let screen = Screen::start(Still(ctrl_s), Asks { width: || None, ..NARROW }).unwrap();
        for number in 0..1_000 {
            screen.text(format!("{number}\n").into_bytes());
            screen.show(display("working"));
        }
        drop(ctrl_q);
        screen.flush();
    }

    /// What was drawn wide stands on more rows of a terminal that was made narrower, and all of it is taken away.
    #[test]
    fn a_display_is_taken_away_whole_from_a_terminal_that_was_made_narrower() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static ROOM: AtomicUsize = AtomicUsize::new(80);
        let mut painter = Painter::new(Vec::new(), Asks { width: || Some(ROOM.load(Ordering::SeqCst)), ..NARROW });
        let doing = "thinking about a matter that takes a line";
        painter.take(Order::Show(display(doing)));
        painter.draw();
        painter.bytes.clear();
        ROOM.store(20, Ordering::SeqCst);
        painter.take(Order::Hide);
        // Three rows, and one for what was used.
        let wide = format!("⠋ 0s · {doing}").chars().count();
        assert_eq!(wide.div_ceil(20), 3);
        assert_eq!(String::from_utf8_lossy(&painter.bytes), "\r\u{1b}[3A\u{1b}[J");
    }

    /// Whoever presses Enter while the display is there leaves nothing of it behind.
    #[test]
    fn a_display_is_taken_away_whole_where_enter_was_pressed_below_it() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static TYPED: AtomicU64 = AtomicU64::new(3);
        let mut painter = Painter::new(Vec::new(), Asks { typed: || TYPED.load(Ordering::SeqCst), ..NARROW });
        let taken = |painter: &mut Painter<Vec<u8>>| {
            painter.bytes.clear();
            painter.draw();
            let bytes = String::from_utf8(std::mem::take(&mut painter.bytes)).unwrap();
            bytes.split(FRAMES).next().unwrap().to_owned()
        };
        painter.take(Order::Show(display("thinking")));
        assert_eq!(taken(&mut painter), "", "what was typed before is above it");
        // Two rows, and the cursor in the second.
        assert_eq!(taken(&mut painter), "\r\u{1b}[1A\u{1b}[J");
        TYPED.store(4, Ordering::SeqCst);
        assert_eq!(taken(&mut painter), "\r\u{1b}[2A\u{1b}[J", "in the row below it");
        assert_eq!(taken(&mut painter), "\r\u{1b}[1A\u{1b}[J", "once");
        // A prompt threw away what was typed before.
        TYPED.store(0, Ordering::SeqCst);
        assert_eq!(taken(&mut painter), "\r\u{1b}[1A\u{1b}[J");
        TYPED.store(1, Ordering::SeqCst);
        assert_eq!(taken(&mut painter), "\r\u{1b}[2A\u{1b}[J");
    }

    /// `bg` behind Ctrl-Z: the shell and what is typed there have the terminal.
    #[test]
    fn while_another_process_group_has_the_terminal_there_are_lines_and_no_display() {
        let tty = Tty { written: Arc::default(), gone_at: usize::MAX, for_good: true };
        let screen = Screen::start(tty.clone(), Asks { is_ours: || false, ..NARROW }).unwrap();
        screen.show(display("thinking"));
        screen.text(b"one\n".to_vec());
        screen.flush();
        assert_eq!(tty.written.lock().unwrap().1, b"one\n");
    }

    #[test]
    fn a_line_of_the_display_is_no_wider_than_the_terminal() {
        for room in 0..30 {
            let width: usize = cut("⠋ 3s · 水車についての報告", Some(room)).chars().filter_map(char::width).sum();
            assert!(width <= room, "{room}: {width}");
        }
        assert_eq!(cut("⠋ 3s · turn\u{7} 1", None), "⠋ 3s · turn 1");
        for (seconds, short) in [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "119m"), (7_200, "2h")] {
            assert_eq!(in_short(Duration::from_secs(seconds)), short);
        }
    }
}
