//! A client of a tool server over standard input and output, as plain as can be.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// A tool server, or what stands in front of one, that this process speaks with.
pub(super) struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Client {
    /// Starts the program and shakes hands with it.
    pub(super) fn start(command: &mut Command) -> anyhow::Result<Self> {
        let mut server = Self::begin(command)?;
        let client = json!({"name": "bench", "version": "0"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        server.ask("initialize", &hello)?;
        server.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(server)
    }

    /// Starts the program and asks whether it is there, which a gateway answers by itself: no tool server is started for that.
    pub(super) fn reach(command: &mut Command) -> anyhow::Result<Self> {
        let mut server = Self::begin(command)?;
        server.ask("ping", &json!({}))?;
        Ok(server)
    }

    fn begin(command: &mut Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start the tool server")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output, next: 0 })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn say(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.input, "{message}").and_then(|()| self.input.flush()).context("write to the tool server")
    }

    /// Asks, and waits for the answer.
    pub(super) fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
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
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<f64> {
        let begun = Instant::now();
        let result = self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))?;
        let took = begun.elapsed();
        ensure!(result["isError"] != true, "{tool}: {result}");
        Ok(took.as_secs_f64() * 1000.0)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
