//! One process of `ua`, and what it left behind.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};

use crate::poll::{eventually, until};

/// A process that is still at work; it is killed when this is dropped.
#[derive(Debug)]
pub struct Live {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub struct Output {
    status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Sends a signal to a process. Behind one that stops it, none of its threads is at work any more: until they have noticed, one may begin a write
/// and stand still with its lock.
///
/// # Panics
///
/// When the process is gone.
pub fn send(process: Pid, signal: Signal) {
    kill_process(process, signal).unwrap_or_else(|e| panic!("signal the process: {e}"));
    if signal == Signal::STOP {
        until("the process to stand still", || stands_still(process));
    }
}

fn stands_still(process: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", process.as_raw_nonzero())).unwrap_or_else(|e| panic!("{e}"));
    threads.filter_map(Result::ok).all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // One that ended meanwhile is at no work either.
        stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with(['T', 't', 'Z', 'X']))
    })
}

impl Live {
    pub(crate) fn new(child: Child, stdout: PathBuf, stderr: PathBuf) -> Self {
        Self { child, stdout, stderr }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .unwrap_or_else(|| panic!("a child has a process id"))
    }

    /// Sends a signal to the process alone, as `kill` does.
    ///
    /// # Panics
    ///
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Sends a signal to the process group, as Ctrl-C in a terminal does.
    ///
    /// # Panics
    ///
    /// When the process is gone.
    pub fn signal_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap_or_else(|e| panic!("signal the process group: {e}"));
    }

    /// No file that it writes may grow behind so many bytes from now on.
    ///
    /// # Panics
    ///
    /// When the process is gone.
    pub fn limit_files(&self, bytes: u64) {
        let limit = Rlimit { current: Some(bytes), maximum: None };
        prlimit(Some(self.pid()), Resource::Fsize, limit).unwrap_or_else(|e| panic!("limit the process: {e}"));
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Whether it has ended.
    ///
    /// # Panics
    ///
    /// When the system does not say.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap_or_else(|e| panic!("look at the process: {e}")).is_some()
    }

    /// Waits until it ends.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn wait(mut self) -> Output {
        let errors = self.stderr.clone();
        let child = &mut self.child;
        let status = eventually(&format!("the end of ua (see {})", errors.display()), || {
            child.try_wait().unwrap_or_else(|e| panic!("wait for ua: {e}"))
        });
        let read = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Output { status, stdout: read(&self.stdout), stderr: read(&self.stderr) }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Both fail when the process has ended and was waited for, which is how it should be.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[expect(clippy::return_self_not_must_use, reason = "a check is whole without what it returns")]
impl Output {
    /// Checks the exit code.
    ///
    /// # Panics
    ///
    /// When it is another one; both streams are shown.
    #[track_caller]
    pub fn code(self, wanted: i32) -> Self {
        assert_eq!(self.status.code(), Some(wanted), "{}", self.shown());
        self
    }

    /// Whether SIGKILL ended the process.
    pub fn is_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// Checks that a kill point ended the process.
    ///
    /// # Panics
    ///
    /// When it ended otherwise; both streams are shown.
    #[track_caller]
    pub fn killed(self) -> Self {
        assert_eq!(self.status.signal(), Some(9), "the kill point was not reached: {}", self.shown());
        self
    }

    /// Checks a refusal: the exit code, one error and one hint on standard error that hold `words`, as lines or with
    /// `--json` as an object, and nothing on standard output.
    ///
    /// # Panics
    ///
    /// When anything of this is otherwise; both streams are shown.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) -> Self {
        let output = self.code(code);
        let starts = |start: &str| output.stderr.lines().filter(|line| line.starts_with(start)).count();
        let objects = output.stderr.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let (errors, hints) = objects
            .map(|line| line["error"].clone())
            .filter(|error| error["code"] == code)
            .fold((starts("error: "), starts("hint: ")), |(errors, hints), error| {
                (errors + 1, hints + usize::from(error["hint"].is_string()))
            });
        assert_eq!((errors, hints), (1, 1), "one error and one hint: {}", output.shown());
        assert_eq!(output.stdout, "", "{}", output.shown());
        output.says(words)
    }

    /// Checks that standard error holds each of `words`.
    ///
    /// # Panics
    ///
    /// When one is missing; both streams are shown.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(has(&self.stderr, word), "{word:?} is missing: {}", self.shown());
        }
        self
    }

    /// Checks that standard output holds each of `words`.
    ///
    /// # Panics
    ///
    /// When one is missing; both streams are shown.
    #[track_caller]
    pub fn shows(self, words: &[&str]) -> Self {
        for word in words {
            assert!(has(&self.stdout, word), "{word:?} is missing: {}", self.shown());
        }
        self
    }

    /// Standard output as JSON.
    ///
    /// # Panics
    ///
    /// When it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("standard output is no JSON ({e}): {}", self.shown()))
    }

    /// Everything, for the message of a test that failed.
    pub fn shown(&self) -> String {
        format!("{}\n--- stdout\n{}--- stderr\n{}", self.status, self.stdout, self.stderr)
    }
}

/// Whether a page holds `word`, as it is or as a person with the default folder would read it. Each test has a folder of its own, which every
/// command that is told names; what a test says of a command is what it does. That they name it is a test of its own.
fn has(page: &str, word: &str) -> bool {
    page.contains(word) || without_root(page).contains(word)
}

fn without_root(page: &str) -> String {
    let mut parts = page.split(" --root ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_whitespace() || "`\"'".contains(c)).unwrap_or(part.len());
        if part[..end].ends_with("/root") {
            out.push_str(&part[end..]);
        } else {
            out.push_str(" --root ");
            out.push_str(part);
        }
    }
    out
}
