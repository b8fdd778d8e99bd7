//! Carrying: from the client to the broker, from the broker to the client, and to the next broker when one goes away.

use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal};
#[cfg(target_os = "linux")]
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use crate::args::{Args, Environment, WIRE};
use crate::claim::{Claim, Claims, Failure};
use crate::line::{Line, next, quoted};
use crate::name::Names;
use crate::scan::{begun, cancelled, is_batch, parts};
use crate::socket::Address;

/// How long a broker is looked for and started before whoever waits is told that there is none.
const PATIENCE: Duration = Duration::from_mins(1);
/// How long the first, and the longest, wait between two looks is.
const WAITS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How long a client that has gone may keep the bridge from its last word.
const LAST_WORD: Duration = Duration::from_millis(200);
/// How long after the last answer an end of the input is of a client that had it, whoever ended it.
const HEARD: Duration = Duration::from_secs(1);
/// Within what time a client that was killed has lost all that it had open, not its end of the input alone.
const DYING: Duration = Duration::from_millis(200);
/// How often it is looked whether the client asks for something, while no broker can be started, and whether there is one that another bridge starts.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// With what a program ends that will not start a broker however often it is asked: somebody has to change something first.
const REFUSED: [i32; 2] = [2, 64];
/// With what it ends where the database cannot be used, which may pass.
const STORAGE: i32 = 74;
/// How long that, and a program that is not there, is waited for before clients are told: less than any of them waits for a tool server to start.
const PASSES: Duration = Duration::from_secs(5);
/// The same for whatever else a broker does not start for: less than the half minute that many clients wait.
const MAY_PASS: Duration = Duration::from_secs(20);
/// How long a broker may take to say how it stands, which takes it no time, before clients are told that it does nothing.
const ANSWERS: Duration = Duration::from_secs(5);
/// How long it may leave unanswered whether it is there, which it is asked before each request, before it is asked how it stands.
const HERE: Duration = Duration::from_secs(1);
/// A broker that said something so long ago is there: a client that makes one call behind the other has no need to wait for a word of it before each.
const FRESH: Duration = Duration::from_millis(1);
/// How often one that has something to answer is asked so.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked whether it was, while somebody waits for an answer.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// How much of a line is copied, so that its end is written with it. A longer one is written in pieces anyway.
const AT_ONCE: usize = 64 * 1024;
/// The codes of errors in JSON-RPC: what cannot be read, and what could not be done.
const UNREADABLE: i32 = -32700;
const BROKEN: i32 = -32603;
/// What is said of a request that no broker was told: it says nothing of one before it that was.
const NOT_SENT: &str = "this request was not sent; an equal one before it may have been";

/// A request without an answer.
struct Open {
    name: String,
    line: String,
    is_handshake: bool,
    /// Whether a broker was told.
    is_said: bool,
    came_at: Instant,
    /// With what its client took it back, or parts of it. No broker is known to have heard of that before it says that the request is over; so the
    /// next one that is asked for it is told as well.
    cancels: Vec<String>,
}

/// What the client said that the broker is told as soon as it says that it is there.
enum Held {
    /// A request, by its name.
    Request(String),
    /// Anything else.
    Message(String),
}

#[derive(Default)]
struct State {
    broker: Option<UnixStream>,
    /// Whether it answers when it is asked whether it is there; earlier versions do not.
    says_here: bool,
    /// When it was asked, if it has not answered.
    asked_at: Option<Instant>,
    heard_at: Option<Instant>,
    /// What waits for that answer: a broker that is stopped or hangs would do later what it is told now, when nobody wants it any more.
    held: Vec<Held>,
    /// How long the client waits for an answer, as the broker knows.
    patience: Option<Duration>,
    /// Why the broker that was asked last was left.
    left: Option<String>,
    unanswered: Vec<Open>,
    /// The client's `initialize`, once it was answered: the next broker makes it once more with its own tool server.
    handshake: Option<String>,
    answered_at: Option<Instant>,
    /// Whether the watch looks again by itself, so that nobody has to wake it for a request.
    is_watched: bool,
    /// What was said to a person last.
    warned: Option<String>,
}

struct Bridge {
    args: Args,
    environment: Environment,
    name: String,
    /// How long a broker is looked for before whoever waits is told that there is none.
    patience: Duration,
    state: Mutex<State>,
}

/// Carries until the client has gone, or a broker refuses it.
pub(crate) fn carry(args: Args, environment: Environment) -> io::Result<()> {
    // Before there is a second thread, so that all of them leave these to the one that waits for them.
    let mut ends = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        ends.add(signal);
    }
    ends.thread_block()?;
    let mut names = Names::new()?;
    let name = names.next()?;
    let bridge = Arc::new(Bridge { args, environment, name, patience: PATIENCE, state: Mutex::default() });
    let (over, end) = channel();
    let (told, signalled) = (over.clone(), bridge.clone());
    // None of these is joined: they end with the process.
    let watching = bridge.clone();
    let watcher = thread::spawn(move || watching.watch()).thread().clone();
    thread::spawn(move || {
        if ends.wait().is_ok() {
            signalled.client_gone("signal");
            let _first = told.send(Ok(()));
        }
    });
    let (told, reading) = (over.clone(), bridge.clone());
    thread::spawn(move || {
        let read = reading.read_client(&mut names, &watcher);
        reading.input_ended();
        let _first = told.send(read);
    });
    thread::spawn(move || bridge.serve(&over));
    end.recv().unwrap_or(Ok(()))
}

impl Bridge {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_client(&self, names: &mut Names, watcher: &Thread) -> io::Result<()> {
        let mut input = BufReader::new(io::stdin());
        while let Some(line) = next(&mut input)? {
            let line = match line {
                Line::Text(line) => line,
                Line::Unreadable { begin, why } => {
                    write_out(&error(begun(&begin).id, UNREADABLE, &format!("the message cannot be read: {why}")))?;
                    continue;
                }
                // Whoever was killed did not say it. Whoever was not may be there to read this.
                Line::Torn { begin } => {
                    if !begin.trim().is_empty() {
                        let why = "the message is not followed by the end of a line; nothing of it was sent";
                        let _unread = write_out(&error(begun(&begin).id, UNREADABLE, why));
                    }
                    return Ok(());
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            let found = parts(&line);
            let mut state = self.state();
            if found.is_request() || is_batch(&line) {
                let is_handshake = found.is_handshake();
                let name = names.next()?;
                state.unanswered.push(Open::new(name.clone(), line, is_handshake));
                state.offer(Held::Request(name));
                if !state.is_watched {
                    watcher.unpark();
                }
            } else {
                // What else is lost with a broker than a cancellation has no meaning for the next one.
                state.take_back(&line);
            }
        }
        Ok(())
    }

    /// The state, for the last word. Whoever holds it may be about to say that the last answer was delivered, which is waited for; or writes to a
    /// client that reads no more, and then nothing is said, which only means that nothing was heard.
    fn state_soon(&self) -> Option<MutexGuard<'_, State>> {
        let begun = now();
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LAST_WORD => thread::sleep(WAITS.0),
                Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => return None,
            }
        }
    }

    /// The client's input has ended: it closed it, or was killed. Whoever closes it is there some time longer, to read what comes and to see the
    /// bridge end; of whoever was killed nothing is left in a moment. So where the last answer came just now it is looked.
    fn input_ended(&self) {
        let is_just_answered =
            self.state_soon().is_some_and(|state| state.answered_at.is_some_and(|at| at.elapsed() < HEARD));
        let is_there = is_just_answered && is_read_for(&io::stdout(), DYING) && parent_id() == self.environment.parent;
        self.client_gone(if is_there { "closed" } else { "eof" });
    }

    fn client_gone(&self, how: &str) {
        let Some(mut state) = self.state_soon() else { return };
        // What it said last is said, as to one that is there; nobody is told anything of it.
        if !state.is_unheard_for(HERE) {
            state.tell();
        }
        let since = state.answered_at.map_or(u128::MAX, |at| at.elapsed().as_millis());
        state.say(&format!("E {} {how}\n", since.min(u128::from(u32::MAX))));
    }

    /// Finds a broker, reads what it says, and finds the next one when it has gone.
    fn serve(&self, over: &Sender<io::Result<()>>) {
        loop {
            let read = self.connect().and_then(|broker| self.read_broker(&broker));
            self.state().leave();
            if let Err(error) = read {
                // Whoever waits is told, before the bridge is gone.
                let _unread = self.refuse_all(&error.to_string(), true);
                let _first = over.send(Err(error));
                return;
            }
        }
    }

    /// Says who this is, and all that is not answered.
    fn connect(&self) -> io::Result<UnixStream> {
        let broker = self.find()?;
        let mut state = self.state();
        let asked: Vec<String> = state.unanswered.iter().map(Open::asked).collect();
        let asked = format!("{{{}}}", asked.join(","));
        let mut text = self.args.hello(&self.name, &self.environment, &asked, state.handshake.as_deref());
        text.push('\n');
        text.push_str(&state.all_again());
        let mut writer = broker.try_clone()?;
        // If it went away just now, reading finds that.
        let _unheard = writer.write_all(text.as_bytes());
        state.broker = Some(writer);
        (state.heard_at, state.left) = (Some(now()), None);
        Ok(broker)
    }

    fn find(&self) -> io::Result<UnixStream> {
        let mut begun = now();
        let mut wait = WAITS.0;
        let mut said = String::new();
        let mut failing: Option<Instant> = None;
        let mut claims = Claims::beside(&self.args.socket);
        let mut claim: Option<Claim> = None;
        let way = self.way();
        loop {
            let looked = silent(&self.args.socket).and_then(|silent| match silent {
                Some(why) => Err(io::Error::new(io::ErrorKind::TimedOut, why)),
                None => connect(&self.args.socket),
            });
            let refused = match looked {
                Ok(broker) => return Ok(broker),
                Err(error) => error,
            };
            let is_silent = refused.kind() == io::ErrorKind::TimedOut;
            if is_silent {
                claim = None;
                // It has the lock, so that no other one can start. What it was not told yet is told to nobody.
                let why = refused.to_string();
                if why != said {
                    let _unread = writeln!(io::stderr(), "ua gateway: {why}");
                    said.clone_from(&why);
                }
                // What an earlier one was told waits for as long as a broker is looked for. The bridge stays: this one may be continued.
                self.refuse_all(&why, begun.elapsed() > self.patience)?;
                if self.state().unanswered.is_empty() {
                    self.wait_for_a_request();
                    (begun, claims) = (now(), Claims::beside(&self.args.socket));
                    continue;
                }
            }
            if begun.elapsed() > self.patience {
                let socket = crate::shown(self.args.socket.as_os_str());
                let why = if said.is_empty() { refused.to_string() } else { said.clone() };
                let why = format!("no broker answers at {socket}: {why}");
                // Where this one starts none itself, none comes either.
                if self.args.start.is_empty() {
                    return Err(io::Error::new(refused.kind(), why));
                }
                // Whoever waits is told. The bridge stays: its client cannot start another one, and what is in the way may pass.
                self.refuse_all(&why, true)?;
                self.wait_for_a_request();
                (begun, failing, claim, claims) = (now(), None, None, Claims::beside(&self.args.socket));
                wait = WAITS.0;
                continue;
            }
            if let Some((program, args)) = self.args.start.split_first().filter(|_| !is_silent) {
                let Some(own) = claim.take() else {
                    claim = claims.take();
                    // With the claim it is looked once more: whoever had it may have started one. Without it, another bridge is about to.
                    if claim.is_none() {
                        thread::sleep(LOOK_EVERY);
                    }
                    continue;
                };
                let mut tried = begun;
                let mut failed = claims.failed_meanwhile(&own, way);
                if failed.is_none() {
                    tried = now();
                    own.begins();
                    failed = started(program, args, own.handed_down()).or_else(|| self.nobody_listens(program));
                    if let Some(failure) = &failed {
                        claims.failed(&own, way, failure);
                    }
                }
                drop(own);
                if let Some(Failure { why, code }) = failed {
                    if why != said {
                        let _unread = writeln!(io::stderr(), "ua gateway: {why}");
                        said.clone_from(&why);
                    }
                    let lasts = failing.get_or_insert(tried).elapsed();
                    let has_not_passed = lasts >= if code == Some(STORAGE) { PASSES } else { MAY_PASS };
                    let is_refused = code.is_some_and(|code| REFUSED.contains(&code));
                    if has_not_passed || is_refused {
                        self.refuse_all(&why, is_refused)?;
                        if self.state().unanswered.is_empty() {
                            self.wait_for_a_request();
                            (begun, claims) = (now(), Claims::beside(&self.args.socket));
                            continue;
                        }
                    }
                }
            }
            thread::sleep(wait);
            wait = (wait * 2).min(WAITS.1);
        }
    }

    /// That a program which says that a broker is running, by its exit code, started none.
    fn nobody_listens(&self, program: &OsStr) -> Option<Failure> {
        let error = connect(&self.args.socket).err()?;
        let why = format!("{} ended as if a broker were running, and none listens: {error}", crate::shown(program));
        Some(Failure { why, code: Some(0) })
    }

    /// In which way this one starts a broker: what fails for one bridge fails for others by the same command in the same settings.
    fn way(&self) -> u64 {
        let mut way = DefaultHasher::new();
        self.args.start.hash(&mut way);
        let is_setting = |name: &str| name == "HOME" || name.starts_with("UA_") || name.starts_with("XDG_");
        for setting in self.environment.variables.iter().filter(|(name, _)| is_setting(name)) {
            setting.hash(&mut way);
        }
        way.finish()
    }

    fn read_broker(&self, broker: &UnixStream) -> io::Result<()> {
        let mut input = BufReader::new(broker);
        while let Ok(Some(line)) = next(&mut input) {
            let line = match line {
                Line::Text(line) => line,
                Line::Unreadable { begin, why } => {
                    let name = begin.strip_prefix("A ").and_then(|answer| answer.split_once(' ')).map(|(name, _)| name);
                    if let Some(name) = name {
                        self.refuse(name, &format!("the request was answered, and the answer cannot be carried: {why}; do not send it in other words"))?;
                    }
                    continue;
                }
                // A broker that was killed in the middle of a line has not said it; the next one does.
                Line::Torn { .. } => return Ok(()),
            };
            self.state().heard_at = Some(now());
            match line.split_once(' ') {
                Some(("A", answer)) => self.answered(answer)?,
                Some(("Q", within)) => self.state().is_here(within),
                Some(("L", message)) => write_out(message)?,
                Some(("W", why)) => self.warn(why),
                Some(("X", why)) => return Err(io::Error::other(why.to_owned())),
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// Says to a person what the broker says, each time that it is something else.
    fn warn(&self, why: &str) {
        let mut state = self.state();
        if state.warned.as_deref() != Some(why) {
            let _unread = writeln!(io::stderr(), "ua gateway: {why}");
            state.warned = Some(why.to_owned());
        }
    }

    /// Answers requests with why they cannot be carried. One that a broker was told may have been carried out, and under its name alone the next
    /// broker knows it for certain: it is kept for that one, and only refused where none will come (`with_those_said`).
    fn refuse_all(&self, why: &str, with_those_said: bool) -> io::Result<()> {
        let is_refused = |open: &mut Open| with_those_said || !open.is_said;
        let refused: Vec<Open> = self.state().unanswered.extract_if(.., is_refused).collect();
        for open in refused.into_iter().filter(|open| !open.is_taken_back()) {
            let told = if open.is_said {
                "a broker had this request and may have carried it out: look whether it did before you make the call again"
            } else {
                NOT_SENT
            };
            write_out(&open.refused(why, told))?;
        }
        Ok(())
    }

    /// Looks, while somebody waits, whether the broker is there, and tells whoever waits no longer.
    fn watch(&self) {
        loop {
            let mut state = self.state();
            state.is_watched = !state.unanswered.is_empty();
            if !state.is_watched {
                drop(state);
                thread::park();
                continue;
            }
            if state.heard_at.is_some_and(|at| at.elapsed() >= ASK_EVERY) {
                state.ask();
            }
            // Whoever waits no longer than the question how it stands is told without it.
            let longest = state.unanswered.iter().map(|open| open.came_at.elapsed()).max();
            let has_time = state.patience.is_none_or(|most| longest.is_none_or(|waited| waited + ANSWERS <= most));
            let is_unheard = state.is_unheard_for(HERE);
            drop(state);
            if is_unheard
                && has_time
                && let Ok(Some(why)) = silent(&self.args.socket)
            {
                let mut state = self.state();
                // It may have gone on just now.
                let is_left = state.is_unheard_for(ANSWERS);
                if is_left {
                    state.leave();
                    state.left = Some(why.clone());
                }
                drop(state);
                if is_left {
                    self.warn(&why);
                    // Whoever reads no more is found to have gone where the client is read.
                    let _unread = self.refuse_all(&why, false);
                }
            }
            let _unread = self.refuse_late();
            thread::park_timeout(WATCH_EVERY);
        }
    }

    /// Answers what the client waits no longer for, where no broker is there to do it.
    fn refuse_late(&self) -> io::Result<()> {
        let mut state = self.state();
        let Some(patience) = state.patience.filter(|_| state.broker.is_none() || state.is_unheard_for(HERE)) else {
            return Ok(());
        };
        let is_gone = state.broker.is_none();
        let why = state.left.clone().unwrap_or_else(|| {
            if is_gone {
                "one broker has gone and no other one answers yet"
            } else {
                "its broker does not answer (`ua gateway status` says more)"
            }
            .to_owned()
        });
        let late: Vec<Open> = state.unanswered.extract_if(.., |open| open.came_at.elapsed() >= patience).collect();
        drop(state);
        for open in late.into_iter().filter(|open| !open.is_taken_back()) {
            let told = if open.is_said {
                "a broker had this request, and what came of it is not known yet: the same call, made again later, has its answer or what is known of it"
            } else {
                NOT_SENT
            };
            write_out(&open.refused(&why, told))?;
        }
        Ok(())
    }

    /// Answers a request whose answer cannot be carried. It is not said to be delivered.
    fn refuse(&self, name: &str, why: &str) -> io::Result<()> {
        let mut state = self.state();
        let Some(place) = state.unanswered.iter().position(|open| open.name == name) else { return Ok(()) };
        let open = state.unanswered.remove(place);
        if open.is_taken_back() {
            return Ok(());
        }
        write_out(&error(parts(&open.line).id, BROKEN, why))
    }

    fn wait_for_a_request(&self) {
        while self.state().unanswered.is_empty() {
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Writes an answer to the client and says so to the broker. What the client says next is said behind it: so a client that goes on is one
    /// that was answered.
    fn answered(&self, answer: &str) -> io::Result<()> {
        let Some((name, line)) = answer.split_once(' ') else { return Ok(()) };
        let mut state = self.state();
        // Two brokers may have answered; the client is told once.
        let Some(place) = state.unanswered.iter().position(|open| open.name == name) else { return Ok(()) };
        // Whoever took its request back takes no answer to it, so none is delivered: what came of it is owed.
        if state.unanswered[place].is_taken_back() {
            state.unanswered.remove(place);
            return Ok(());
        }
        if !line.is_empty() {
            write_out(line)?;
        }
        let open = state.unanswered.remove(place);
        if open.is_handshake {
            state.handshake = Some(open.line);
        }
        state.answered_at = Some(now());
        state.say(&format!("D {name}\n"));
        Ok(())
    }
}

impl Open {
    fn new(name: String, line: String, is_handshake: bool) -> Self {
        Self { name, line, is_handshake, is_said: false, came_at: now(), cancels: Vec::new() }
    }

    /// Whether it is a call whose client takes no answer any more. What is taken back of a batch is one of its requests, and the others have an answer;
    /// a subscription that is ended has one that says so.
    fn is_taken_back(&self) -> bool {
        !self.cancels.is_empty() && parts(&self.line).is_call()
    }

    /// How long ago the client asked, in milliseconds, by its name.
    fn asked(&self) -> String {
        format!("{}:{}", quoted(&self.name), self.came_at.elapsed().as_millis())
    }

    fn refused(&self, why: &str, told: &str) -> String {
        error(parts(&self.line).id, BROKEN, &format!("the gateway does not run: {why}; {told}"))
    }
}

impl State {
    /// Tells the broker what the client said, once it says that it is there.
    fn offer(&mut self, held: Held) {
        // The next one is told what is not answered, and nothing else.
        if self.broker.is_none() {
            return;
        }
        // What stands behind no request has nothing to wait for, and neither has a request to a broker that spoke just now.
        let is_there = self.asked_at.is_none() && self.heard_at.is_some_and(|at| at.elapsed() < FRESH);
        let waits = self.says_here && !is_there && (matches!(held, Held::Request(_)) || !self.held.is_empty());
        self.held.push(held);
        if waits { self.ask() } else { self.tell() }
    }

    /// Takes what the client says that is no request. If it takes one back, that is kept with the request as long as there is anybody to be asked
    /// for it; what no broker was told is withdrawn, and none ever is.
    fn take_back(&mut self, line: &str) {
        let Some(id) = cancelled(line) else { return self.offer(Held::Message(line.to_owned())) };
        let is_it = |open: &Open| parts(&open.line).id == Some(id);
        let withdrawn = self.unanswered.extract_if(.., |open| is_it(open) && !open.is_said).count();
        let mut is_told = false;
        for open in self.unanswered.iter_mut().filter(|open| is_it(open) || is_batch(&open.line)) {
            open.cancels.push(line.to_owned());
            is_told = true;
        }
        // It may have crossed an answer that was written.
        if is_told || withdrawn == 0 {
            self.offer(Held::Message(line.to_owned()));
        }
    }

    /// All that is not answered, for a broker that is asked for it now: as it came, each with what its client took back of it.
    fn all_again(&mut self) -> String {
        let mut text = String::new();
        for open in &mut self.unanswered {
            // What no broker was told comes for the first time: nobody has to say of it that it may have been carried out.
            let word = if open.is_said { "S" } else { "R" };
            text.push_str(&format!("{word} {} {}\n", open.name, open.line));
            for line in &open.cancels {
                text.push_str(&format!("N {line}\n"));
            }
            open.is_said = true;
        }
        text
    }

    /// Asks the broker whether it is there.
    fn ask(&mut self) {
        if self.says_here && self.broker.is_some() && self.asked_at.is_none() {
            self.asked_at = Some(now());
            self.say("Q \n");
        }
    }

    /// It is. `within`: how long its client waits, in milliseconds.
    fn is_here(&mut self, within: &str) {
        self.patience = within.parse().ok().map(Duration::from_millis);
        (self.says_here, self.asked_at, self.heard_at) = (true, None, Some(now()));
        self.tell();
    }

    fn is_unheard_for(&self, span: Duration) -> bool {
        self.asked_at.is_some_and(|at| at.elapsed() >= span)
    }

    fn tell(&mut self) {
        for held in std::mem::take(&mut self.held) {
            match held {
                Held::Message(line) => self.say(&format!("N {line}\n")),
                Held::Request(name) => {
                    // It may have been refused meanwhile.
                    let Some(open) = self.unanswered.iter_mut().find(|open| open.name == name) else { continue };
                    open.is_said = true;
                    let text = format!("R {} {}\n", open.name, open.line);
                    self.say(&text);
                }
            }
        }
    }

    /// Has no broker any more; whoever reads from it finds that.
    fn leave(&mut self) {
        if let Some(broker) = self.broker.take() {
            let _gone = broker.shutdown(Shutdown::Both);
        }
        self.held.clear();
        (self.says_here, self.asked_at, self.heard_at) = (false, None, None);
    }

    /// Says something to the broker, if there is one. If it goes away, whoever reads from it finds that and connects anew.
    fn say(&mut self, text: &str) {
        if let Some(broker) = &mut self.broker {
            let _unheard = broker.write_all(text.as_bytes());
        }
    }
}

/// Starts a broker, and returns when somebody listens, or when nobody will; why not, if it is known. Then it is looked again.
fn started(program: &OsStr, args: &[OsString], claim: Stdio) -> Option<Failure> {
    let mut start = Command::new(program);
    start.args(args).stdin(claim).stdout(Stdio::null());
    match start.stderr(Stdio::piped()).output() {
        Ok(started) if started.status.success() => None,
        Ok(started) => {
            let why = String::from_utf8_lossy(&started.stderr);
            let lines = why.lines().map(|line| line.trim().trim_start_matches("error: "));
            let said = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
            let (program, status) = (crate::shown(program), started.status);
            // A program that is none of ours, or that was killed, need not say why.
            let why = if said.is_empty() { format!("{program} ended without a word ({status})") } else { said };
            Some(Failure { why, code: status.code() })
        }
        Err(error) => {
            let why = format!(
                "cannot start {}: {error}; restart this client, so that it finds the program where it is now",
                crate::shown(program)
            );
            Some(Failure { why, code: Some(STORAGE) })
        }
    }
}

/// An error as the answer to a request; without one, to whatever it was.
fn error(id: Option<&str>, code: i32, why: &str) -> String {
    let (id, why) = (id.unwrap_or("null"), quoted(why));
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":{code},\"message\":{why}}}}}")
}

fn write_out(line: &str) -> io::Result<()> {
    write_line(&mut io::stdout().lock(), line)
}

/// Writes a line with its end in one piece, if it is no longer than a pipe takes at once: whoever reads would be woken by each piece,
/// and has nothing of a line before its end.
fn write_line(out: &mut impl io::Write, line: &str) -> io::Result<()> {
    if line.len() < AT_ONCE {
        let mut whole = String::with_capacity(line.len() + 1);
        whole.push_str(line);
        whole.push('\n');
        out.write_all(whole.as_bytes())?;
    } else {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Whether somebody has the other end of what is written to, all this time.
fn is_read_for(out: &impl AsFd, span: Duration) -> bool {
    let begun = now();
    loop {
        let left = span.saturating_sub(begun.elapsed());
        // Nothing is waited for but the end, which is told of unasked.
        let mut ends = [PollFd::new(out.as_fd(), PollFlags::empty())];
        let millis = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
        match poll(&mut ends, millis) {
            Ok(0) if left.is_zero() => return true,
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            Ok(_) | Err(_) => return false,
        }
    }
}

/// Who has the other end; its process is `None` where it has no number here, since it is in another namespace.
#[cfg(target_os = "linux")]
fn peer(stream: &UnixStream) -> io::Result<(Option<i32>, u32)> {
    let peer = getsockopt(stream, PeerCredentials)?;
    Ok((Some(peer.pid()).filter(|pid| *pid > 0), peer.uid()))
}

/// Connects to the broker of this user, or of root. Another user's program that listens there is told nothing: the hello has what the client
/// gave its tool server.
fn connect(socket: &Path) -> io::Result<UnixStream> {
    let broker = UnixStream::connect(Address::of(socket)?)?;
    if is_of_this_user(&broker)? {
        return Ok(broker);
    }
    let why = "it is a socket of another user, to whom nothing was said; look who can write in its folder";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Why the broker at the socket is not told anything: it says nothing when it is asked how it stands. One that is stopped has its lock and its
/// socket, takes whoever comes, and answers nobody. One that goes away meanwhile is found to have gone later.
fn silent(socket: &Path) -> io::Result<Option<String>> {
    let mut asked = connect(socket)?;
    asked.set_read_timeout(Some(ANSWERS))?;
    // In one piece: each piece would wake the broker, and whoever asks waits for it.
    let _unheard = asked.write_all(format!("{{\"wire\":{WIRE},\"control\":\"status\"}}\n").as_bytes());
    let said = asked.read(&mut [0]);
    let is_silent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    Ok(said.err().filter(is_silent).map(|_| {
        let seconds = ANSWERS.as_secs();
        match process(&asked) {
            Some(process) => format!(
                "its broker, process {process}, holds the lock and has said nothing for {seconds} seconds. If it was stopped (Ctrl-Z), `kill \
                 -CONT {process}` lets it continue; `kill -KILL {process}` ends it, and the next request starts another"
            ),
            None => format!("its broker holds the lock and has said nothing for {seconds} seconds; end its process"),
        }
    }))
}

#[cfg(target_os = "linux")]
fn process(stream: &UnixStream) -> Option<i32> {
    peer(stream).ok()?.0
}

#[cfg(not(target_os = "linux"))]
fn process(_: &UnixStream) -> Option<i32> {
    None
}

#[cfg(target_os = "linux")]
fn is_of_this_user(stream: &UnixStream) -> io::Result<bool> {
    let (_, uid) = peer(stream)?;
    Ok(uid == 0 || uid == nix::unistd::geteuid().as_raw())
}

/// The folder of the socket, which is its owner's alone, says it.
#[cfg(not(target_os = "linux"))]
fn is_of_this_user(_: &UnixStream) -> io::Result<bool> {
    Ok(true)
}

#[expect(clippy::disallowed_methods, reason = "how long ago something was; this program has no environment of ours")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::io::pipe;

    use super::*;

    #[test]
    fn a_reader_that_goes_is_noticed_and_one_that_stays_is_not_waited_for_longer() {
        // A child that another test starts may have the other end for a moment, too.
        let (span, long) = (Duration::from_millis(20), Duration::from_mins(1));
        for is_read in [true, false] {
            let (mut reader, mut writer) = pipe().unwrap();
            writer.write_all(b"answer").unwrap();
            let mut said = [0; 6];
            if is_read {
                reader.read_exact(&mut said).unwrap();
            }
            assert!(is_read_for(&writer, span));
            drop(reader);
            assert!(!is_read_for(&writer, long));
            let (reader, mut writer) = UnixStream::pair().unwrap();
            writer.write_all(b"answer").unwrap();
            assert!(is_read_for(&writer, span));
            drop(reader);
            assert!(!is_read_for(&writer, long));
        }
        // Whoever goes in between is noticed then.
        let (reader, writer) = pipe().unwrap();
        let gone = thread::spawn(move || drop(reader));
        assert!(!is_read_for(&writer, long));
        gone.join().unwrap();
        assert!(is_read_for(&std::fs::File::open("/dev/null").unwrap(), Duration::ZERO));
    }

    /// Keeps each piece that is written.
    #[derive(Debug, Default)]
    struct Pieces(Vec<Vec<u8>>);

    impl io::Write for Pieces {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.push(piece.to_vec());
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_client_is_woken_once_for_a_line() {
        for (length, pieces) in [(0, 1), (2_000, 1), (AT_ONCE - 1, 1), (AT_ONCE, 2)] {
            let line = "x".repeat(length);
            // As the standard output is written: by the line.
            let mut out = io::LineWriter::new(Pieces::default());
            write_line(&mut out, &line).unwrap();
            let Pieces(written) = out.into_inner().unwrap();
            assert_eq!(written.concat(), format!("{line}\n").into_bytes(), "{length}");
            assert_eq!(written.len(), pieces, "{length}");
        }
    }

    /// Behind a word of the broker a request goes out at once; else, and while an earlier one waits, it waits for one.
    #[test]
    fn a_request_waits_for_a_word_of_a_broker_that_has_not_spoken_just_now() {
        // So that no machine is too slow for the first case.
        let ahead = now() + Duration::from_mins(1);
        let long_ago = now().checked_sub(FRESH).unwrap();
        for (heard_at, asked_at, said) in
            [(ahead, None, "R n {}\n"), (long_ago, None, "Q \n"), (ahead, Some(now()), "")]
        {
            let (broker, mut heard) = UnixStream::pair().unwrap();
            let mut state =
                State { broker: Some(broker), says_here: true, heard_at: Some(heard_at), asked_at, ..State::default() };
            state.unanswered.push(Open::new("n".to_owned(), "{}".to_owned(), false));
            state.offer(Held::Request("n".to_owned()));
            assert_eq!(
                (state.unanswered[0].is_said, state.held.len()),
                (said.starts_with('R'), usize::from(!said.starts_with('R')))
            );
            state.broker = None;
            let mut text = String::new();
            heard.read_to_string(&mut text).unwrap();
            assert_eq!(text, said);
        }
    }

    /// Whatever a broker heard of a cancellation before it went, the next one hears of it behind the request; and of a request that none was told,
    /// none is told.
    #[test]
    fn a_cancellation_stays_with_the_request_that_is_asked_for_again() {
        let line = |id: u32| format!(r#"{{"id":{id},"method":"tools/call"}}"#);
        let cancel = |id: u32| format!(r#"{{"method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#);
        let batch = format!("[{}]", line(3));
        for has_broker in [true, false] {
            let (broker, mut heard) = UnixStream::pair().unwrap();
            let mut state = State { broker: has_broker.then_some(broker), ..State::default() };
            for (name, line, is_said) in
                [("a", line(1), true), ("b", line(2), true), ("c", batch.clone(), true), ("d", line(4), false)]
            {
                state.unanswered.push(Open { is_said, ..Open::new(name.to_owned(), line, false) });
            }
            for id in [1, 3, 4, 5] {
                state.take_back(&cancel(id));
            }
            state.broker = None;
            let mut told = String::new();
            if has_broker {
                heard.read_to_string(&mut told).unwrap();
                assert_eq!(told, format!("N {}\nN {}\nN {}\nN {}\n", cancel(1), cancel(3), cancel(4), cancel(5)));
            }
            let taken_back: Vec<bool> = state.unanswered.iter().map(Open::is_taken_back).collect();
            assert_eq!(taken_back, [true, false, false]);
            let wanted = format!(
                "S a {}\nN {c1}\nS b {}\nS c {batch}\nN {c1}\nN {}\nN {}\nN {}\n",
                line(1),
                line(2),
                cancel(3),
                cancel(4),
                cancel(5),
                c1 = cancel(1)
            );
            // However often a broker goes.
            assert_eq!([state.all_again(), state.all_again()], [wanted.clone(), wanted]);
        }
    }

    /// What an earlier broker was told is answered when none came for long, and so is what comes behind that: the bridge stays.
    #[test]
    fn a_bridge_outlives_the_time_in_which_no_broker_starts() {
        let folder = tempfile::tempdir().unwrap();
        let start = ["/bin/sh", "-c", "exit 74"].map(OsString::from).to_vec();
        let args = Args { socket: folder.path().join("gateway.sock"), start, ..Args::default() };
        let bridge = Arc::new(Bridge {
            args,
            environment: Environment::default(),
            name: "b".to_owned(),
            patience: Duration::from_millis(50),
            state: Mutex::default(),
        });
        let asks = |name: &str| {
            let line = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#.to_owned();
            let open = Open { is_said: true, ..Open::new(name.to_owned(), line, false) };
            bridge.state().unanswered.push(open);
        };
        asks("one");
        let finding = bridge.clone();
        // It ends with the process.
        let finding = thread::spawn(move || finding.find().map(drop));
        for next in ["two", "three"] {
            while !bridge.state().unanswered.is_empty() {
                assert!(!finding.is_finished(), "the bridge ended");
                thread::sleep(WAITS.0);
            }
            asks(next);
        }
        assert!(!finding.is_finished(), "the bridge ended");
    }

    /// A reason is never empty, whichever program is there in the place of ours.
    #[test]
    fn a_program_that_fails_without_a_word_is_named() {
        let run = |script: &str| {
            started(OsStr::new("/bin/sh"), &["-c".into(), script.into()], Stdio::null()).map(|failure| failure.why)
        };
        assert_eq!(run("exit 0"), None);
        assert_eq!(run("echo 'error: the disk is full' >&2; exit 74").as_deref(), Some("the disk is full"));
        for script in ["exit 3", "echo >&2; exit 3"] {
            assert_eq!(run(script).as_deref(), Some("/bin/sh ended without a word (exit status: 3)"));
        }
    }
}
