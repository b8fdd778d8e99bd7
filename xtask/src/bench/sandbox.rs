//! What the walls around a program of `run_command` cost a call: the same calls of two built-in tool servers, one with the sandbox and one
//! without, in turns.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::calls::median;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program that is measured, built for release
    #[arg(long, value_name = "PATH")]
    ua: PathBuf,
    /// How many calls of each kind are measured
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..))]
    calls: u32,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let ua = options.ua.canonicalize().with_context(|| format!("find {}", options.ua.display()))?;
    let (open, closed) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut off = Server::start(&ua, "off", open.path())?;
    let mut required = Server::start(&ua, "required", closed.path())?;
    println!("| a call of `run_command`, median of {} | without | with every wall | ratio |", options.calls);
    println!("|---|---|---|---|");
    // One that does nothing, and one that starts others.
    for argv in [&["true"][..], &["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do /bin/true; done"]] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for call in 0..options.calls + 5 {
            let (one, other) = (off.call(argv)?, required.call(argv)?);
            // The first ones look at what the kernel offers, and fill caches.
            if call >= 5 {
                without.push(one);
                with.push(other);
            }
        }
        let (without, with) = (median(without), median(with));
        println!("| `{}` | {without:.2} ms | {with:.2} ms | {:.2} |", argv.join(" "), with / without);
    }
    Ok(())
}

/// A built-in tool server that this process speaks with.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    fn start(ua: &Path, sandbox: &str, workspace: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(ua)
            .args(["toolserver", "--enable-command", "--command-sandbox", sandbox, "--workspace"])
            .arg(workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start the tool server")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        let mut server = Self { child, input, output, next: 0 };
        let client = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.ask("initialize", &hello)?;
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    fn say(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.input, "{message}").and_then(|()| self.input.flush()).context("write to the tool server")
    }

    fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.next += 1;
        let id = self.next;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "the tool server ended");
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
        }
    }

    /// How many milliseconds a call takes.
    fn call(&mut self, argv: &[&str]) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let result = self.ask("tools/call", &json!({"name": "run_command", "arguments": {"argv": argv}}))?;
        let took: Duration = begun.elapsed();
        ensure!(result["isError"] != true, "run_command: {result}");
        Ok(took.as_secs_f64() * 1000.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
