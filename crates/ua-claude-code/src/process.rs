//! One process of `claude`, from its start to its end.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use ua_core::Env;
use ua_files::{Folder, Kind};
use ua_llm::ModelRequest;
use ua_mcp::ShimArgs;

use crate::config::{ClaudeCodeConfig, NAME, WORK};
use crate::desk::Desk;
use crate::home::{self, remove};
use crate::stream::Assembler;

/// The file with the system prompt, in its folder.
pub(crate) const SYSTEM_PROMPT: &str = "system_prompt.md";

/// The files with its tool servers and with its error output, in its folder.
const MCP_CONFIG: &str = "mcp.json";
const LOG: &str = "claude.stderr.log";
/// The most of its error output that is read: 1 MiB.
const MOST_READ: u64 = 1024 * 1024;

/// How long its last words are waited for.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How much of its last error output is quoted.
const QUOTED_LINES: usize = 5;

/// In which session a process begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Start {
    /// In a new one, which knows nothing.
    Fresh,
    /// In this one.
    Resume(String),
    /// In a new one that knows what this one knows.
    Fork(String),
}

/// A running `claude`. Dropping it closes its input and its tools, whereupon its shim ends it and all that it started.
pub(crate) struct Live {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
    pub(crate) desk: Desk,
    pub(crate) assembler: Assembler,
    pub(crate) generation: String,
    pub(crate) session: Option<String>,
    /// Whether it has shown the end of the last prompt and waits for another; otherwise it waits for results.
    pub(crate) is_idle: bool,
    folder: Folder,
    log_from: u64,
}

impl Live {
    /// Starts `claude` in a session. The error says what could not be done; nothing was asked then.
    pub(crate) fn start(config: &ClaudeCodeConfig, request: &ModelRequest, start: &Start) -> io::Result<Self> {
        let folder = Folder::open_itself(&config.folder)?;
        // What a checkout left in the place of a run's folder is no home: there is nothing in it that a run without a session needs.
        if *start == Start::Fresh && config.session.is_none() {
            remove(&config.home())?;
        }
        home::keep_sessions_only(&folder)?;
        // An empty one, each time: what an earlier process left there could be settings to this one.
        remove(&config.work())?;
        folder.make_folder(WORK)?;
        let desk = Desk::open(&config.socket(), &request.tools)?;
        let servers: serde_json::Map<String, Value> =
            desk.servers().map(|server| (server.to_owned(), bridge_entry(config, server))).collect();
        let allowed: Vec<String> = desk.servers().map(|server| format!("mcp__{server}__*")).collect();
        folder.replace(MCP_CONFIG, json!({"mcpServers": servers}).to_string().as_bytes())?;
        folder.replace(SYSTEM_PROMPT, request.system.as_bytes())?;
        let (mcp_config, system) = (config.folder.join(MCP_CONFIG), config.folder.join(SYSTEM_PROMPT));

        let generation = config.locks.begin(NAME)?;
        let mut args: Vec<std::ffi::OsString> =
            ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
                .map(Into::into)
                .into();
        args.extend(
            ["--include-partial-messages", "--strict-mcp-config", "--tools=", "--setting-sources="].map(Into::into),
        );
        args.extend(["--disable-slash-commands".into(), "--mcp-config".into(), mcp_config.into()]);
        if !request.system.is_empty() {
            args.extend(["--system-prompt-file".into(), system.into()]);
        }
        if !allowed.is_empty() {
            args.extend(["--allowedTools".into(), allowed.join(",").into()]);
        }
        args.extend(["--model".into(), request.model.clone().into()]);
        match start {
            Start::Fresh => {}
            Start::Resume(session) => args.extend(["--resume".into(), session.into()]),
            Start::Fork(session) => args.extend(["--resume".into(), session.into(), "--fork-session".into()]),
        }
        let shim = ShimArgs {
            lock: config.locks.path(NAME, &generation),
            grace: config.grace,
            secrets: Vec::new(),
            command: config.program.clone().into(),
            args,
        };
        let stderr = log(&folder)?;
        let log_from = stderr.metadata()?.len();
        let mut command = Command::new(&config.shim.program);
        command.args(&config.shim.args).args(shim.to_args()).current_dir(config.work());
        command.env_clear().envs(config.variables(request.max_output_tokens));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        // Not killed on drop: that would kill the shim and leave `claude`. A closed pipe is what ends both.
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            unreachable!("both pipes were asked for");
        };
        let lines = BufReader::new(stdout).lines();
        let assembler = Assembler::new(request.tools.iter().map(|tool| tool.name.as_str()));
        Ok(Self { child, stdin, lines, desk, assembler, generation, session: None, is_idle: true, folder, log_from })
    }

    /// Whether it has not ended yet, as far as the system says.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Tells it something.
    pub(crate) async fn tell(&mut self, text: &str) -> io::Result<()> {
        let content = json!([{"type": "text", "text": text}]);
        let mut line = json!({"type": "user", "message": {"role": "user", "content": content}}).to_string();
        line.push('\n');
        self.stdin.write_all(line.as_bytes()).await?;
        self.stdin.flush().await?;
        self.is_idle = false;
        Ok(())
    }

    /// The next event; `None` when it has ended. A line that is no JSON is none of the stream's.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Value>> {
        while let Some(line) = self.lines.next_line().await? {
            if let Ok(event) = serde_json::from_str(&line) {
                return Ok(Some(event));
            }
            tracing::debug!(line, "claude wrote something that is no event");
        }
        Ok(None)
    }

    /// Waits for its end, which it has come to as far as it can be heard. Its last words come through its shim, which ends behind them.
    pub(crate) async fn ends(&mut self, env: &Env) {
        tokio::select! {
            _ended = self.child.wait() => {}
            () = env.clock.sleep(LAST_WORDS) => {}
        }
    }

    /// The last lines it wrote to its standard error, on one line.
    pub(crate) fn last_words(&self) -> String {
        let mut bytes = Vec::new();
        let read = self.folder.open_file(LOG).and_then(|mut log| {
            log.seek(SeekFrom::Start(self.log_from))?;
            log.take(MOST_READ).read_to_end(&mut bytes)
        });
        read.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(QUOTED_LINES)..];
        last.join(" | ").chars().filter(|c| !c.is_control()).take(600).collect()
    }
}

fn bridge_entry(config: &ClaudeCodeConfig, server: &str) -> Value {
    let (program, before) = &config.bridge;
    let mut args: Vec<String> = before.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    args.extend([config.socket().to_string_lossy().into_owned(), server.to_owned()]);
    json!({"type": "stdio", "command": program, "args": args})
}

/// Its log, to which it appends. What somebody put in its place, a link or a pipe, makes room for one.
fn log(folder: &Folder) -> io::Result<File> {
    if folder.kind(LOG)? == Some(Kind::Other) {
        folder.remove(LOG)?;
    }
    folder.append(LOG)
}
