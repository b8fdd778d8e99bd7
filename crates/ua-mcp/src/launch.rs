//! Starting a tool server's process below its shim, and saying how it ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use ua_core::{Env, Redactor, ShowPath as _};
use ua_files::{Folder, Kind};

use crate::shim::{EXIT_NOT_FOUND, EXIT_NOT_RUNNABLE, EXIT_SHIM, SAYS, ShimArgs};

/// How much of a server's standard error is quoted when it fails.
const QUOTED_LINES: usize = 20;
const QUOTED_BYTES: u64 = 8 * 1024;
/// How often it is looked whether a process whose output closed has ended.
const REAP: Duration = Duration::from_millis(500);
/// How long one that is there still counts as about to end, and how long its shim may take on a busy machine once it is gone.
const LIVES: Duration = Duration::from_secs(2);
const ENDS: Duration = Duration::from_secs(10);

/// How to run the shim: the program and the arguments before its own (`ua __shim`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimCommand {
    /// The program; an absolute path, because the shim starts in the server's working directory.
    pub program: PathBuf,
    /// What selects the shim in it.
    pub args: Vec<OsString>,
}

/// What is started.
pub(crate) struct Launch<'a> {
    pub(crate) shim: &'a ShimCommand,
    pub(crate) server: &'a str,
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) cwd: Option<&'a Path>,
    pub(crate) lock: PathBuf,
    pub(crate) grace: Duration,
    /// What is kept out of its log, as far as its own variables hold it.
    pub(crate) redactor: &'a Redactor,
    pub(crate) stderr_log: Option<&'a Path>,
}

/// Moves the log of a started server into another folder, where it goes on. What cannot be moved stays where it is, and the error says why.
pub(crate) fn move_log(server: &str, from: Option<&Path>, to: Option<&Path>) -> io::Result<()> {
    match (from, to) {
        (Some(from), Some(to)) => StderrLog::moved(server, from, to),
        (None, None) => Ok(()),
        (Some(_), None) | (None, Some(_)) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// A started shim and the server below it.
#[derive(Debug)]
pub(crate) struct ToolProcess {
    child: Child,
    command: String,
    stderr: StderrLog,
}

/// The two pipes of a started server.
pub(crate) type Pipes = (ChildStdout, ChildStdin);

impl Launch<'_> {
    /// The names of its variables that hold what is secret.
    fn secrets(&self) -> Vec<String> {
        let secret = self.env.iter().filter(|(_, value)| self.redactor.found_in(value).is_some());
        secret.map(|(name, _)| name.clone()).collect()
    }

    /// Starts the shim. The error says what could not be done.
    pub(crate) fn start(self) -> Result<(ToolProcess, Pipes), String> {
        if let Some(cwd) = self.cwd.filter(|cwd| !cwd.is_dir()) {
            return Err(format!("its working directory {} is not there", cwd.shown()));
        }
        let stderr = StderrLog::open(self.server, self.stderr_log)
            .map_err(|error| format!("its log cannot be opened: {error}"))?;
        let to_log = stderr.file.try_clone().map_err(|error| format!("its log cannot be opened: {error}"))?;
        let secrets = self.secrets();
        let shim_args = ShimArgs {
            lock: self.lock,
            grace: self.grace,
            secrets,
            command: self.command.into(),
            args: self.args.iter().map(OsString::from).collect(),
        };
        let mut command = Command::new(&self.shim.program);
        command.args(&self.shim.args).args(shim_args.to_args()).env_clear().envs(self.env);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(to_log);
        if let Some(cwd) = self.cwd {
            command.current_dir(cwd);
        }
        // Not killed on drop: that would kill the shim and leave the server. A dropped pipe is what ends both.
        let mut child = command
            .spawn()
            .map_err(|error| format!("the shim {} cannot be run: {error}", self.shim.program.shown()))?;
        let (Some(stdout), Some(stdin)) = (child.stdout.take(), child.stdin.take()) else {
            unreachable!("both pipes were asked for");
        };
        Ok((ToolProcess { child, command: self.command.to_owned(), stderr }, (stdout, stdin)))
    }
}

impl ToolProcess {
    /// Says how the process ended, or that it did not, with the last lines it wrote to its standard error.
    pub(crate) async fn exit_reason(&mut self, env: &Env) -> String {
        let mut waited = REAP;
        let mut ended = self.ended_within(REAP, env).await;
        while ended.is_none() && waited < if self.is_there() { LIVES } else { ENDS } {
            ended = self.ended_within(REAP, env).await;
            waited += REAP;
        }
        let end = match ended {
            Some(status) => match status.code() {
                Some(code) if [EXIT_SHIM, EXIT_NOT_RUNNABLE, EXIT_NOT_FOUND].contains(&code) => {
                    match self.said_by_shim() {
                        Some(said) => return self.not_run(&said),
                        None => format!("`{}` ended with exit code {code}", self.command),
                    }
                }
                Some(code) => format!("`{}` ended with exit code {code}", self.command),
                None => format!("`{}` was killed ({status})", self.command),
            },
            None if self.is_there() => format!("`{}` is still running", self.command),
            None => format!("how `{}` ended is not known yet", self.command),
        };
        self.with_last_lines(end)
    }

    /// Says that the process did not end by itself, with the last lines it wrote: whoever gave up waiting for it ends it, and how it ends then
    /// tells nothing of it.
    pub(crate) fn given_up(&self) -> String {
        self.with_last_lines(format!("`{}` was still running and is ended", self.command))
    }

    /// Says that the shim did not run the server, for the reason that it `said`.
    pub(crate) fn not_run(&self, said: &str) -> String {
        format!("`{}` was not run: cannot {said}", self.command)
    }

    /// What the shim said last, if nobody wrote anything behind it.
    fn said_by_shim(&self) -> Option<String> {
        self.stderr.last_lines().lines().last()?.strip_prefix(SAYS).map(str::to_owned)
    }

    fn with_last_lines(&self, end: String) -> String {
        let quote = self.stderr.last_lines();
        if quote.is_empty() { end } else { format!("{end}; it wrote:\n{quote}") }
    }

    /// Whether something that the shim started is there. That the shim itself was not reaped yet says nothing about it.
    fn is_there(&self) -> bool {
        let shim = self.child.id().and_then(|id| i32::try_from(id).ok());
        crate::process::others().iter().any(|process| Some(process.parent) == shim)
    }

    /// Waits for the shim's end, up to `span`.
    pub(crate) async fn ended_within(&mut self, span: Duration, env: &Env) -> Option<ExitStatus> {
        tokio::select! {
            status = self.child.wait() => status.ok(),
            () = env.clock.sleep(span) => self.child.try_wait().ok().flatten(),
        }
    }

    /// Kills the shim, but not what is below it: that is the fence's work.
    pub(crate) async fn kill_shim(&mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::debug!(%error, "the shim was gone already");
        }
    }
}

/// Where a server's standard error goes, by way of its shim. A file and no pipe to this process: a server that finishes a call after the
/// runner's death is not to fail because nobody reads what it logs.
#[derive(Debug)]
struct StderrLog {
    file: File,
    /// Where this process's output starts.
    start: u64,
}

impl StderrLog {
    fn open(server: &str, dir: Option<&Path>) -> io::Result<Self> {
        let file = match dir {
            Some(dir) => Self::in_folder(dir, &format!("{server}.stderr.log"))?,
            None => tempfile::tempfile()?,
        };
        let start = file.metadata()?.len();
        Ok(Self { file, start })
    }

    /// Moves a log from one folder to another of the same disk, where it is written on. One that stands there already is kept, and the error says so.
    fn moved(server: &str, from: &Path, to: &Path) -> io::Result<()> {
        let name = format!("{server}.stderr.log");
        let (Some(workspace), Some(logs)) = (to.parent(), to.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let logs = Folder::open_itself(workspace)?.make_folder(logs)?;
        if logs.kind(&name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Folder::open_itself(from)?.move_to(&name, &logs, &name)
    }

    /// Opens a log in a folder of the workspace, where programs of a model write, too: what they put in its place makes way.
    fn in_folder(dir: &Path, name: &str) -> io::Result<File> {
        let (Some(workspace), Some(logs)) = (dir.parent(), dir.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let workspace = Folder::open_itself(workspace)?;
        let open = || workspace.make_folder(logs)?.append(name);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                match workspace.kind(logs)? {
                    Some(Kind::Folder) => workspace.folder(logs)?.remove(name)?,
                    Some(_) => workspace.remove(logs)?,
                    None => {}
                }
                open()
            }
            opened => opened,
        }
    }

    fn last_lines(&self) -> String {
        let end = self.file.metadata().map_or(self.start, |meta| meta.len());
        // One that is shorter than it was has begun anew.
        let start = if end < self.start { 0 } else { self.start };
        let from = start.max(end.saturating_sub(QUOTED_BYTES));
        let mut bytes = vec![0; usize::try_from(end.saturating_sub(from)).unwrap_or(0)];
        let read = self.file.read_at(&mut bytes, from).unwrap_or(0);
        bytes.truncate(read);
        let text: String = String::from_utf8_lossy(&bytes).chars().filter(|c| *c == '\n' || !c.is_control()).collect();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests make the files that they look at")]
mod tests {
    use std::io::Write;

    use super::*;

    /// A process in the place of a shim, which runs this as a script.
    fn shim(script: &str) -> ToolProcess {
        let child =
            Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        ToolProcess { child, command: "server".to_owned(), stderr: StderrLog::open("a", None).unwrap() }
    }

    #[tokio::test]
    async fn a_server_is_said_to_run_only_while_it_does() {
        // Time passes at once: however long it takes, what is said is true.
        let env = Env::simulated(1);
        // Its server has ended, and its shim may have something to do.
        let mut ended = shim("read line; exit 3");
        let said = ended.exit_reason(&env).await;
        assert!(
            ["how `server` ended is not known yet", "`server` ended with exit code 3"].contains(&said.as_str()),
            "{said}"
        );
        let mut lives = shim("tail -f /dev/null --pid=$$; exit 3");
        while !lives.is_there() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lives.exit_reason(&env).await, "`server` is still running");
        // And with the time that it takes.
        let mut reaped = shim("exit 3");
        assert_eq!(reaped.exit_reason(&ua_core::system::env()).await, "`server` ended with exit code 3");
    }

    #[test]
    fn only_the_last_lines_of_this_start_are_quoted() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.stderr.log"), "of an earlier start\n").unwrap();
        let mut log = StderrLog::open("a", Some(dir.path())).unwrap();
        assert_eq!(log.last_lines(), "");
        for line in 0..30 {
            writeln!(log.file, "line {line}\x1b[31m").unwrap();
        }
        let quoted = log.last_lines();
        assert!(quoted.starts_with("line 10[31m\n") && quoted.ends_with("line 29[31m"), "{quoted}");
        assert!(
            std::fs::read_to_string(dir.path().join("a.stderr.log"))
                .unwrap()
                .starts_with("of an earlier start\nline 0")
        );
    }
}
