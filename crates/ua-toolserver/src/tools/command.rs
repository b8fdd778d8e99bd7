//! `run_command`: a program without a shell. Offered only when the server was told to.
//!
//! The child stays in the server's process group, so that whoever ends the server's group ends the child as well. What it can reach, and
//! how much of the machine it may use, is taken from it by [`crate::confine`].

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use ua_files::{Closed, OwnedFolder};

use crate::answer::{Answer, Failure, success};
use crate::confine::{Confinement, Confiner, Limits, Offers, Report, Sandbox};
use crate::context::{Context, Order, Setup, blocking};
use crate::settings::Settings;
use crate::tool::{Description, Effect, Opened, Tool};
use crate::workspace::Workspace;
use ua_core::ShowPath as _;

const MAX_OUTPUT_BYTES: usize = 256 * 1024;
const DEFAULT_TIMEOUT_SECONDS: u32 = 60;
const MAX_TIMEOUT_SECONDS: u32 = 6 * 60 * 60;
/// How the names of temporary folders begin.
const TEMPORARY: &str = "ua-command-";
/// How many files of temporary folders that were left behind are removed at once; a fraction of a second.
const CLEARED_AT_ONCE: usize = 10_000;

/// Removes what killed servers of this user left of the temporary folders of their programs. Never one that a server still has.
pub fn clear_temporary_folders() {
    let folder = std::env::temp_dir();
    match ua_files::clear_abandoned(&folder, TEMPORARY, CLEARED_AT_ONCE) {
        Ok(0) => {}
        Ok(count) => tracing::debug!(count, "temporary folders of killed tool servers were removed"),
        Err(error) => tracing::debug!(%error, folder = %folder.shown(), "no temporary folder is looked for"),
    }
}

/// How long output is still collected when the program has ended but something it started holds its pipes.
const DRAIN_FOR: Duration = Duration::from_millis(500);
/// The most that is read of what the confiner said, in bytes.
const MAX_REPORT_BYTES: u64 = 64 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// The program and its arguments, as they are: no shell reads them, so there are no pipes, globs or variables.
    #[schemars(length(min = 1))]
    argv: Vec<String>,
    /// The directory to run in, relative to the workspace; the workspace itself when left out.
    cwd: Option<String>,
    /// Seconds after which the program is killed; 60 when left out.
    #[schemars(range(min = 1, max = 21_600))]
    timeout_seconds: Option<u32>,
}

#[derive(Debug, Serialize)]
struct Ended {
    /// `null` when a signal ended it.
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    stdout: String,
    stderr: String,
    timed_out: bool,
    /// Whether there was more output than is kept.
    truncated: bool,
    /// What programs are not kept from, though they should be; said once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_confined: Vec<String>,
}

#[derive(Debug)]
pub(super) struct RunCommand(Arc<Launcher>);

impl Tool for RunCommand {
    const NAME: &'static str = "run_command";
    const MAY_DROP: bool = true;
    const DEADLINE: Duration = Duration::from_secs(MAX_TIMEOUT_SECONDS as u64 + 600);
    type Arguments = Arguments;

    fn open(setup: &Setup<'_>) -> Opened<Self> {
        let settings = setup.settings;
        Ok(settings.enable_command.then(|| Self(Arc::new(Launcher::new(settings)))))
    }

    fn describe(&self) -> Description {
        Description::new(
            "Run a program",
            "Runs a program in the workspace, without a shell, and returns its exit code and output (256 KiB of each stream). A non-zero exit code is a result, not an error. Unless the user allowed more, the program has no network, writes only in the workspace and in TMPDIR, and reads the system but nobody's home; what it starts ends with it.",
            Effect::Anything,
        )
    }

    async fn call(&self, context: &Context, given: Arguments, _: Order<'_>) -> Answer {
        self.0.run(&context.workspace, given).await
    }
}

/// How programs are found and started.
#[derive(Debug)]
struct Launcher {
    path: String,
    sandbox: Sandbox,
    confiner: Option<Confiner>,
    network: bool,
    limits: Limits,
    /// What programs may read, besides the system.
    read: Vec<PathBuf>,
    private: Vec<PathBuf>,
    /// What the kernel offers, once somebody asked it.
    offers: OnceLock<Offers>,
    /// Whether it was said what programs are not kept from.
    told: AtomicBool,
}

/// What stands around a program.
#[derive(Debug)]
struct Walls {
    confiner: Confiner,
    confinement: Confinement,
    /// Its temporary folder, which goes when it has ended.
    temporary: OwnedFolder,
}

impl Launcher {
    fn new(settings: &Settings) -> Self {
        let folders = settings.command_path.split(':').map(PathBuf::from).filter(|folder| folder.is_absolute());
        let read = folders.chain(settings.allow_roots.iter().cloned()).chain(settings.command_read.iter().cloned());
        let named: Vec<PathBuf> = settings.allow_roots.iter().chain(&settings.command_read).cloned().collect();
        let private = Closed::new(&settings.command_private).in_folders(&named);
        Self {
            path: settings.command_path.clone(),
            sandbox: settings.command_sandbox,
            confiner: settings.confiner.clone(),
            network: settings.command_network,
            limits: settings.command_limits,
            read: read.collect(),
            private,
            offers: OnceLock::new(),
            told: AtomicBool::new(false),
        }
    }

    async fn run(self: &Arc<Self>, workspace: &Arc<Workspace>, given: Arguments) -> Answer {
        let Some((program, arguments)) = given.argv.split_first().filter(|(program, _)| !program.is_empty()) else {
            return Err(Failure::refused("argv is empty", "give the program and its arguments"));
        };
        let cwd = given.cwd.clone().unwrap_or_else(|| ".".to_owned());
        let asked = Arc::clone(workspace);
        let directory = blocking(move || {
            let path = asked.readable(&cwd)?;
            let open = if path.as_os_str().is_empty() { std::path::Path::new(".") } else { &path };
            asked.area().dir().open_dir(open).map_err(|error| Failure::io(format_args!("use cwd {cwd:?}"), &error))?;
            Ok(asked.absolute(&path))
        })
        .await?;
        let (launcher, root) = (Arc::clone(self), workspace.area().path().to_path_buf());
        let (walls, not_confined) = blocking(move || launcher.walls(root)).await?;
        let limit = given.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, MAX_TIMEOUT_SECONDS);
        let mut command = match &walls {
            None => Command::new(program),
            Some(walls) => {
                let mut command = Command::new(&walls.confiner.program);
                let words = walls.confiner.arguments(&walls.confinement, std::slice::from_ref(program));
                command.args(words.map_err(|error| Failure::io("say what the program may reach", &error))?);
                command
            }
        };
        let (reports, reporter) = std::io::pipe().map_err(|error| Failure::io("make a pipe", &error))?;
        let mut child = command
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .envs(walls.as_ref().map(|walls| ("TMPDIR", walls.temporary.path())))
            .env("PATH", &self.path)
            .env("HOME", workspace.area().path())
            .env("LANG", "C.UTF-8")
            .stdin(if walls.is_some() { Stdio::from(reporter) } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| not_started(&format!("{program:?} could not be started: {error}")))?;
        // The reading end sees an end only when no writing end is left, and the command holds one.
        drop(command);
        let stdout = Collected::from(child.stdout.take());
        let stderr = Collected::from(child.stderr.take());
        let ended = wait(&mut child, Duration::from_secs(u64::from(limit))).await;
        let report = if walls.is_some() { reported(reports).await } else { None };
        let (stdout, stdout_cut) = stdout.finish().await;
        let (stderr, stderr_cut) = stderr.finish().await;
        let (status, timed_out) =
            ended.map_err(|error| Failure::Unclear(format!("{program:?} was started but not waited for: {error}")))?;
        let (exit_code, signal) = match report {
            Some(Report::Refused { why }) => return Err(not_started(&why)),
            Some(Report::Ended { code, signal }) if !timed_out => (code, signal),
            Some(Report::Ended { .. }) | None => ended_with(status),
        };
        let ended =
            Ended { exit_code, signal, stdout, stderr, timed_out, truncated: stdout_cut || stderr_cut, not_confined };
        let how = match ended.exit_code {
            _ if timed_out => format!("was killed after {limit} s"),
            Some(code) => format!("ended with exit code {code}"),
            None => "was ended by a signal".to_owned(),
        };
        success(format!("{program} {how}"), &ended)
    }

    /// What stands around the next program, nothing when the user wants nothing there or nothing can; and what is missing.
    fn walls(&self, root: PathBuf) -> Result<(Option<Walls>, Vec<String>), Failure> {
        let required = self.sandbox == Sandbox::Required;
        let refused = |why: &str| {
            Failure::refused(
                format!("the program was not started, because it cannot be confined: {why}"),
                "a person may set run_command.sandbox to \"auto\" in the user's config.toml, or use another machine; `ua doctor` says more",
            )
        };
        if self.sandbox == Sandbox::Off {
            return Ok((None, Vec::new()));
        }
        let Some(confiner) = &self.confiner else {
            if required {
                return Err(refused("this server knows no program for that"));
            }
            let missing = "nothing confines it: this server was started without a program for that".to_owned();
            return Ok((None, self.tell(&[missing])));
        };
        let offers = match self.offers.get() {
            Some(offers) => offers.clone(),
            None => match confiner.offers().inspect(|_| clear_temporary_folders()) {
                Ok(offers) => self.offers.get_or_init(|| offers).clone(),
                Err(error) => return Err(refused(&format!("{} does not answer: {error}", confiner.program.shown()))),
            },
        };
        let missing = offers.missing(self.network, &self.limits);
        if required && !offers.are_enough(self.network) {
            return Err(refused(&missing.join("; ")));
        }
        let not_confined = self.tell(&missing);
        let temporary = OwnedFolder::make(&std::env::temp_dir(), TEMPORARY);
        let temporary = temporary.map_err(|error| Failure::io("make a temporary folder", &error))?;
        let confinement = Confinement {
            offers,
            network: self.network,
            limits: self.limits,
            read: self.read.clone(),
            write: vec![root, temporary.path().to_path_buf()],
            private: self.private.clone(),
            server: std::process::id(),
        };
        Ok((Some(Walls { confiner: confiner.clone(), confinement, temporary }), not_confined))
    }

    /// Says what is missing, the first time.
    fn tell(&self, missing: &[String]) -> Vec<String> {
        if missing.is_empty() || self.told.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        for what in missing {
            tracing::warn!("a program of run_command is not confined as it should be: {what}");
        }
        missing.to_vec()
    }
}

fn not_started(why: &str) -> Failure {
    Failure::refused(
        why,
        "check the program's name; it is looked for in the folders of --command-path. A program that needs more than these and the \
         system's folders needs run_command.read, which a person sets in the user's config.toml",
    )
}

fn ended_with(status: ExitStatus) -> (Option<i32>, Option<i32>) {
    (status.code(), std::os::unix::process::ExitStatusExt::signal(&status))
}

/// What the confiner said, which has ended. Nobody holds the pipe any more, or the confiner's killed remains do for a moment.
async fn reported(pipe: io::PipeReader) -> Option<Report> {
    let mut reader = pipe::Receiver::from_owned_fd(pipe.into()).ok()?.take(MAX_REPORT_BYTES);
    let mut text = Vec::new();
    // What was sent before an end that does not come still counts.
    let _late = tokio::time::timeout(DRAIN_FOR, reader.read_to_end(&mut text)).await;
    Report::read(&text)
}

async fn wait(child: &mut Child, limit: Duration) -> std::io::Result<(std::process::ExitStatus, bool)> {
    if let Ok(status) = tokio::time::timeout(limit, child.wait()).await {
        return Ok((status?, false));
    }
    child.start_kill()?;
    Ok((child.wait().await?, true))
}

/// One output stream, read while the program runs.
#[derive(Debug)]
struct Collected {
    kept: Arc<Mutex<CollectedBytes>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct CollectedBytes {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Collected {
    fn from(stream: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let kept = Arc::<Mutex<CollectedBytes>>::default();
        let reader = stream.map(|stream| tokio::spawn(collect(stream, Arc::clone(&kept))));
        Self { kept, reader }
    }

    async fn finish(self) -> (String, bool) {
        if let Some(mut reader) = self.reader
            && tokio::time::timeout(DRAIN_FOR, &mut reader).await.is_err()
        {
            reader.abort();
        }
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (String::from_utf8_lossy(&kept.bytes).into_owned(), kept.truncated)
    }
}

/// Reads to the end, so that the program is never held up, and keeps the beginning.
async fn collect(mut stream: impl AsyncRead + Unpin, kept: Arc<Mutex<CollectedBytes>>) {
    let mut buffer = vec![0_u8; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_OUTPUT_BYTES - kept.bytes.len();
        kept.bytes.extend(buffer.iter().take(count.min(room)));
        kept.truncated |= count > room;
    }
}
