//! `run_command`: a program without a shell. Offered only when the server was told to.
//!
//! The child stays in the server's process group, so that whoever ends the server's group ends the child as well.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::blocking;
use crate::answer::{Answer, Failure, success};
use crate::schema::{self, Effect};
use crate::workspace::Workspace;

pub(super) const NAME: &str = "run_command";
const MAX_OUTPUT_BYTES: usize = 256 * 1024;
const DEFAULT_TIMEOUT_SECONDS: u32 = 60;
const MAX_TIMEOUT_SECONDS: u32 = 6 * 60 * 60;
/// How long output is still collected when the program has ended but something it started holds its pipes.
const DRAIN_FOR: Duration = Duration::from_millis(500);

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
}

pub(super) fn describe() -> Tool {
    schema::tool::<Arguments>(
        NAME,
        "Run a program",
        "Runs a program in the workspace, without a shell, and returns its exit code and output (256 KiB of each stream). A non-zero exit code is a result, not an error.",
        Effect::Anything,
    )
}

/// How programs are found and started.
#[derive(Debug)]
pub(super) struct Launcher {
    path: String,
}

impl Launcher {
    pub(super) fn new(path: &str) -> Self {
        Self { path: path.to_owned() }
    }

    pub(super) async fn run(&self, workspace: &Arc<Workspace>, given: Arguments) -> Answer {
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
        let limit = given.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS).clamp(1, MAX_TIMEOUT_SECONDS);
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", workspace.area().path())
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| {
                Failure::refused(
                    format!("{program:?} could not be started: {error}"),
                    "check the program's name; it is looked for in the directories of --command-path",
                )
            })?;
        let stdout = Collected::from(child.stdout.take());
        let stderr = Collected::from(child.stderr.take());
        let ended = wait(&mut child, Duration::from_secs(u64::from(limit))).await;
        let (stdout, stdout_cut) = stdout.finish().await;
        let (stderr, stderr_cut) = stderr.finish().await;
        let (status, timed_out) =
            ended.map_err(|error| Failure::Unclear(format!("{program:?} was started but not waited for: {error}")))?;
        let ended = Ended {
            exit_code: status.code(),
            signal: std::os::unix::process::ExitStatusExt::signal(&status),
            stdout,
            stderr,
            timed_out,
            truncated: stdout_cut || stderr_cut,
        };
        let how = match ended.exit_code {
            _ if timed_out => format!("was killed after {limit} s"),
            Some(code) => format!("ended with exit code {code}"),
            None => "was ended by a signal".to_owned(),
        };
        success(format!("{program} {how}"), &ended)
    }
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
    kept: Arc<Mutex<Kept>>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Collected {
    fn from(stream: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let kept = Arc::<Mutex<Kept>>::default();
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
async fn collect(mut stream: impl AsyncRead + Unpin, kept: Arc<Mutex<Kept>>) {
    let mut buffer = vec![0_u8; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_OUTPUT_BYTES - kept.bytes.len();
        kept.bytes.extend(buffer.iter().take(count.min(room)));
        kept.truncated |= count > room;
    }
}
