//! The small program between the runner and a tool server: it makes sure that the server does not outlive its runner.
//!
//! Durable runner, current state §6 (no orphaned side effects after a crash). A tool server that is still finishing a call
//! when the resumed run asks "did it happen?" turns a recoverable call into a duplicate. So each server runs below a shim
//! of its own:
//!
//! - **Own session.** A Ctrl-C at the terminal reaches the runner alone, which then lets calls in flight finish.
//! - **Lock.** The shim locks the generation's lock file, and it alone: a lock that the server inherited it could give up while it
//!   lives, for both.
//! - **Life.** What the server inherits is the reading end of a pipe that nobody writes into ([`life`]): it is held
//!   until the server, and whoever else inherited it, is gone. The shim makes it rather than the runner, because the runner
//!   starts several servers at once, and a file that one of them may inherit would leak into its siblings; the shim has one
//!   thread at that point and starts exactly one process. Nothing else that was open goes on to the server.
//! - **Orphans.** What loses its parent below the shim becomes the shim's child, whatever session it moved to, so nothing that a
//!   server starts in the background outlives it, and whoever asks for its ancestors finds the shim among them.
//! - **Signals.** The server blocks and ignores none, whatever whoever started the shim does.
//! - **Keys.** The session keyring of whoever started the runner (Kerberos tickets and the like) stays there; the server gets an
//!   empty one.
//! - **Standard error.** What the server writes there passes through the shim too, which takes out what its variables hold that are
//!   secret, lets the log grow to so much, and begins it anew.
//! - **Pipe.** What the runner writes passes through the shim. When the runner ends, however it ends, that pipe closes;
//!   the shim then closes the server's input, waits, asks it to terminate, and kills what is left.
//! - **Output.** What the server writes goes to the runner directly. Only the server (and what it hands it on to) has that pipe: the shim
//!   lets go of it once the server has it, so that the runner sees the end of a server that closes its output and lives on.
//!
//! Somebody who kills the shim itself leaves the server with a closed input and its pipe, which is what fencing looks for.
//!
//! Proved by: `tests::shim`.

mod log;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::io::{Errno, FdFlags};
use rustix::process::{Signal, WaitOptions};
use ua_files::Folder;

pub use self::log::ServerLog;
use crate::life;
use crate::locks::{LockName, LockRecord};
use crate::process::{self, MARK, Process, Table};
use crate::signals::{ignore_nothing_below, unblock_signals};
use ua_core::ShowPath as _;

/// What each line of the shim begins with.
pub(crate) const SAYS: &str = "tool server shim: ";

/// The shim was called with arguments it does not know.
const EXIT_USAGE: i32 = 64;
/// The shim could not do its own work: no session, no lock.
pub(crate) const EXIT_SHIM: i32 = 70;
/// The tool server's program is there but cannot be run.
pub(crate) const EXIT_NOT_RUNNABLE: i32 = 126;
/// The tool server's program is not there.
pub(crate) const EXIT_NOT_FOUND: i32 = 127;

/// How long a server may take to end after its input closed, unless the caller says otherwise.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How long killed processes may take to disappear, and how often that is looked at.
const SWEEP_ROUNDS: u32 = 100;
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// What a shim is told: `--lock PATH [--grace-ms N] [--secret NAME]… -- COMMAND ARG…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimArgs {
    /// The generation's lock file, absolute; the shim creates it.
    pub lock: PathBuf,
    /// How long the server may take to end after its input closed: asked to terminate after half of it, killed after all
    /// of it.
    pub grace: Duration,
    /// The names of its variables whose values are kept out of the log of the server's standard error.
    pub secrets: Vec<String>,
    /// The tool server's program.
    pub command: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl ShimArgs {
    /// Reads the arguments that follow the hidden subcommand's name.
    ///
    /// # Errors
    ///
    /// A sentence about the first argument that does not fit.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let (mut lock, mut grace, mut secrets) = (None, DEFAULT_GRACE, Vec::new());
        loop {
            let Some(option) = args.next() else { return Err("`--` and a command are missing".to_owned()) };
            match option.to_str() {
                Some("--") => break,
                Some("--lock") => lock = args.next().map(PathBuf::from),
                Some("--grace-ms") => {
                    let millis = args.next().and_then(|text| text.to_str()?.parse().ok());
                    grace = Duration::from_millis(millis.ok_or("`--grace-ms` needs a number")?);
                }
                Some("--secret") => {
                    let name = args.next().and_then(|name| name.into_string().ok());
                    secrets.push(name.ok_or("`--secret` needs the name of a variable")?);
                }
                Some(_) | None => return Err(format!("unknown option `{}`", option.shown())),
            }
        }
        let lock = lock.ok_or("`--lock PATH` is missing")?;
        let command = args.next().ok_or("the command is missing")?;
        Ok(Self { lock, grace, secrets, command, args: args.collect() })
    }

    /// The arguments that [`ShimArgs::parse`] reads back.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args = vec!["--lock".into(), self.lock.clone().into_os_string()];
        args.push("--grace-ms".into());
        args.push(self.grace.as_millis().to_string().into());
        args.extend(self.secrets.iter().flat_map(|name| ["--secret".into(), name.into()]));
        args.push("--".into());
        args.push(self.command.clone());
        args.extend(self.args.iter().cloned());
        args
    }
}

/// Runs the shim with raw arguments and returns the exit code for `main`.
///
/// To be called before the process starts a second thread: until the tool server runs, the pipe of its life can be inherited.
pub fn run_shim(args: impl IntoIterator<Item = OsString>) -> i32 {
    let outcome = match ShimArgs::parse(args) {
        Ok(args) => run(&args),
        Err(why) => Err(Failed { code: EXIT_USAGE, why }),
    };
    outcome.unwrap_or_else(|Failed { code, why }| {
        // The runner shows the last lines of this stream when a server does not start. Nobody may be left to read it. It is a file, which a disk
        // that is full does not take; the server's output, into which nothing was written yet, is a pipe.
        let line = format!("{SAYS}{why}\n");
        if io::stderr().write_all(line.as_bytes()).is_err() {
            let mut output = io::stdout();
            let _unread = output.write_all(line.as_bytes()).and_then(|()| output.flush());
        }
        code
    })
}

/// Why the shim gives up, and the code it ends with.
struct Failed {
    code: i32,
    why: String,
}

fn failed(doing: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Failed {
    move |error| Failed { code: EXIT_SHIM, why: format!("{doing}: {error}") }
}

fn run(args: &ShimArgs) -> Result<i32, Failed> {
    ua_files::keep_from_children();
    unblock_signals();
    ignore_nothing_below().map_err(failed("have the server ignore no signal"))?;
    detach()?;
    adopt_orphans()?;
    leave_keys();
    crate::mark::mark();
    let lock = take_lock(args)?;
    let child = start(args)?;
    let code = supervise(child, args);
    drop(lock); // held until here, so that the lock is never free while something is left to kill
    Ok(code)
}

/// Makes this process the leader of a session of its own.
fn detach() -> Result<(), Failed> {
    // The current session is not asked for first: its leader may be outside this PID namespace, where `getsid` answers 0,
    // which `rustix` takes for impossible.
    match rustix::process::setsid() {
        Ok(_) => Ok(()),
        Err(rustix::io::Errno::PERM) if process::leads_its_session() => Ok(()),
        Err(error) => Err(failed("make a session of its own")(error.into())),
    }
}

/// Becomes the parent of every process below that loses its own.
#[cfg(target_os = "linux")]
fn adopt_orphans() -> Result<(), Failed> {
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me)).map_err(|error| failed("adopt orphans")(error.into()))
}

/// Elsewhere only sessions and marks tell what belongs to a server.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "it can fail on Linux")]
fn adopt_orphans() -> Result<(), Failed> {
    Ok(())
}

/// Takes a session keyring of its own, which the server inherits. A kernel or a container without keyrings has none to leave.
#[cfg(target_os = "linux")]
fn leave_keys() {
    const NONE: [Errno; 2] = [Errno::NOSYS, Errno::PERM];
    if let Err(error) = keyutils::Keyring::join_anonymous_session()
        && !NONE.iter().any(|none| none.raw_os_error() == error.0)
    {
        let why = io::Error::from_raw_os_error(error.0);
        let _unread = writeln!(io::stderr(), "{SAYS}the server has the keyring of this session: {why}");
    }
}

/// Elsewhere there are no session keyrings.
#[cfg(not(target_os = "linux"))]
fn leave_keys() {}

fn take_lock(args: &ShimArgs) -> Result<File, Failed> {
    let path = &args.lock;
    let doing = |what: &str| failed(format!("{what} the lock file {}", path.shown()));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(doing("find")(io::ErrorKind::InvalidInput.into()));
    };
    let folder = Folder::open_itself(folder).map_err(doing("open the folder of"))?;
    let mut lock = folder.make_file(name).map_err(doing("create"))?;
    lock.try_lock().map_err(|error| doing("lock")(error.into()))?;
    // Between the creation and the lock, a resumed run may have retired this generation by removing the file.
    let ours = lock.metadata().map_err(doing("look at"))?;
    let there = std::fs::symlink_metadata(path).map_err(doing("look at"))?;
    if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
        return Err(Failed { code: EXIT_SHIM, why: format!("keep the lock file {}: it was replaced", path.shown()) });
    }
    let record = LockRecord::of_this_process(LockName::of(path).map(|name| name.server), program_name(&args.command));
    let text = serde_json::to_vec(&record).map_err(|error| doing("write")(error.into()))?;
    lock.write_all(&text).and_then(|()| lock.flush()).map_err(doing("write"))?;
    Ok(lock)
}

/// The program without its folder: enough to recognise it, and free of what arguments may hold.
fn program_name(command: &OsStr) -> String {
    Path::new(command).file_name().unwrap_or(command).to_string_lossy().into_owned()
}

/// Starts the tool server with the pipe of its life open in it, which is its alone from then on.
fn start(args: &ShimArgs) -> Result<Child, Failed> {
    let path = life::path(&args.lock);
    let life = life::make(&args.lock).map_err(failed(format!("make the pipe {}", path.shown())))?;
    let inheritable =
        |flags| rustix::io::fcntl_setfd(&life, flags).map_err(|error| failed("pass a pipe on")(error.into()));
    inheritable(FdFlags::empty())?;
    let mut command = Command::new(&args.command);
    command.args(&args.args).env(MARK, &args.lock).stdin(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn();
    inheritable(FdFlags::CLOEXEC)?;
    let child = child.map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { EXIT_NOT_FOUND } else { EXIT_NOT_RUNNABLE };
        Failed { code, why: format!("start `{}`: {error}", args.command.to_string_lossy()) }
    })?;
    let_go_of_output();
    Ok(child)
}

/// Gives up this process's copy of the pipe that the server answers on. Its number stays taken, so that no file opened later gets it. A
/// failure costs only that the end of the output is not seen, so the server that runs goes on; the log says so.
#[expect(clippy::disallowed_methods, reason = "the kernel's own device, into which everything goes")]
fn let_go_of_output() {
    let nowhere = File::options().write(true).open("/dev/null");
    let gone = nowhere.and_then(|nowhere| Ok(rustix::stdio::dup2_stdout(&nowhere)?));
    if let Err(why) = gone {
        let _unread = writeln!(io::stderr(), "{SAYS}the server's output is still open here: {why}");
    }
}

/// What a supervising shim waits for.
enum Event {
    /// The runner's pipe closed.
    InputEnded,
    /// The tool server ended by itself.
    Exited(io::Result<ExitStatus>),
}

fn supervise(mut child: Child, args: &ShimArgs) -> i32 {
    let (tell, events) = channel();
    let input = child.stdin.take();
    let (errors, has_drained) = (child.stderr.take(), channel());
    let server = child.id();
    let mut log = ServerLog::without(&args.secrets);
    let tell_input = tell.clone();
    thread::spawn(move || forward(input, &tell_input));
    thread::spawn(move || {
        if let Some(errors) = errors {
            log.keep(errors);
        }
        has_drained.0.send(())
    });
    thread::spawn(move || reap(server, &tell));
    let mut killed = Vec::new();
    let status = match events.recv() {
        Ok(Event::Exited(status)) => Some(status),
        Ok(Event::InputEnded) | Err(_) => wind_down(&events, args, &mut killed),
    };
    sweep(&args.lock, killed);
    // Everybody who could write is gone, unless it cannot be seen from here.
    let _late = has_drained.1.recv_timeout(DRAIN_FOR);
    if let Some(Ok(status)) = status {
        return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    }
    let _unread = writeln!(io::stderr(), "{SAYS}process {server} did not end when killed");
    EXIT_SHIM
}

/// How long the last words of a server that is gone may take.
const DRAIN_FOR: Duration = Duration::from_millis(500);

/// Waits for the server and tells how it ended; before and after that, for whatever else became a child of this process.
fn reap(server: u32, tell: &Sender<Event>) {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if u32::try_from(pid.as_raw_nonzero().get()) == Ok(server) => {
                let _main_ended = tell.send(Event::Exited(Ok(ExitStatus::from_raw(status.as_raw()))));
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                // `ECHILD`: the server was told about, and nobody is left. A later orphan is the next process's to reap.
                let _main_ended = tell.send(Event::Exited(Err(error.into())));
                return;
            }
        }
    }
}

/// Copies the runner's pipe to the server, each piece as it comes. Goes on reading when the server has closed its input,
/// because only the pipe's end tells that the runner is gone.
fn forward(mut server: Option<ChildStdin>, tell: &Sender<Event>) {
    let mut input = io::stdin().lock();
    let mut piece = vec![0; 64 * 1024];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => {
                if server.as_mut().is_some_and(|server| server.write_all(&piece[..length]).is_err()) {
                    server = None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    drop(server);
    let _main_ended = tell.send(Event::InputEnded);
}

/// The runner is gone or closing: gives the server time to end by itself, asks it to, kills it.
fn wind_down(events: &Receiver<Event>, args: &ShimArgs, killed: &mut Vec<Process>) -> Option<io::Result<ExitStatus>> {
    let half = args.grace / 2;
    if let Ok(Event::Exited(status)) = events.recv_timeout(half) {
        return Some(status);
    }
    signal_all(&args.lock, Signal::TERM);
    if let Ok(Event::Exited(status)) = events.recv_timeout(half) {
        return Some(status);
    }
    killed.extend(signal_all(&args.lock, Signal::KILL));
    match events.recv_timeout(SWEEP_PAUSE * SWEEP_ROUNDS) {
        Ok(Event::Exited(status)) => Some(status),
        Ok(Event::InputEnded) | Err(_) => None,
    }
}

/// Kills everything below this shim and waits until it is gone, what was `killed` before included: a process that is dying
/// has no environment to be found by any more while it still holds its files, the pipe of its life among them.
fn sweep(lock: &Path, mut killed: Vec<Process>) {
    for _ in 0..SWEEP_ROUNDS {
        let found = signal_all(lock, Signal::KILL);
        let is_clean = found.is_empty();
        killed.extend(found);
        killed.retain(|process| process.is_there());
        if is_clean && killed.is_empty() {
            break;
        }
        thread::sleep(SWEEP_PAUSE);
    }
    if !Path::new("/proc/self/stat").exists() {
        // Without `/proc` nothing was found above. The group is still known; killing it ends this process too.
        let _we_are_gone = rustix::process::kill_current_process_group(Signal::KILL);
    }
}

/// Signals everything below this shim, but not the shim, and says which processes that were.
fn signal_all(lock: &Path, signal: Signal) -> Vec<Process> {
    let session = rustix::process::getpid().as_raw_nonzero().get();
    let below: Vec<Process> = Table::read().below_shim(Some(session), lock);
    for process in &below {
        process.signal(signal);
    }
    below
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    #[test]
    fn arguments_survive_the_command_line() {
        let args = ShimArgs {
            lock: "/x/run.srv.1".into(),
            grace: Duration::from_millis(1500),
            secrets: vec!["A".to_owned(), "--".to_owned()],
            command: "node".into(),
            args: words(&["--lock", "--", "a b"]),
        };
        assert_eq!(ShimArgs::parse(args.to_args()), Ok(args));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        for line in [
            &["--lock", "/x"][..],
            &["--", "node"],
            &["--lock", "/x", "--"],
            &["--lock", "/x", "-v", "--", "n"],
            &["--grace-ms", "x"],
            &["--lock", "/x", "--secret"],
        ] {
            assert!(ShimArgs::parse(words(line)).is_err(), "{line:?}");
        }
    }

    #[test]
    fn a_command_is_recorded_without_its_folder() {
        assert_eq!(program_name(OsStr::new("/usr/bin/node")), "node");
        assert_eq!(program_name(OsStr::new("npx")), "npx");
    }
}
