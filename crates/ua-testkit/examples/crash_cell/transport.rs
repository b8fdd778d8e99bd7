//! Tools behind a child process: generations, locks and fences, as the real transport has them, without a protocol.

use std::collections::BTreeMap;
use std::fs::{OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::Pid;
use serde_json::{Value, json};
use ua_core::{Destination, Handle, KeyChannel, Outcome, RawReply, Timestamp, ToolName, ToolSpec};
use ua_dispatch::{Enquiry, Fence, LookAt, Permit, ToolTransport, TransportError};
use ua_testkit::ToolOutcome;

use crate::options::{Job, Options};
use crate::outcomes::not_of_tool;
use crate::server::kill;

/// The tool servers of one life.
pub(crate) struct Servers {
    specs: Vec<ToolSpec>,
    folder: PathBuf,
    life: String,
    /// A life of another run that lives on beside this one, so that its servers are left alone.
    beside: Option<String>,
    /// What the server is started with.
    arguments: Vec<String>,
    /// The tool that the cell is about, and what its first send in this life comes to.
    subject: String,
    outcome: Mutex<Option<ToolOutcome>>,
    running: Arc<Mutex<Running>>,
    /// The process of the server that runs, for whoever wants it dead; 0 while there is none.
    pub(crate) pid: Arc<AtomicI32>,
}

#[derive(Default)]
struct Running {
    server: Option<Server>,
    started: u32,
}

struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    generation: String,
}

impl Servers {
    /// # Errors
    /// When `--outcome` names nothing, or what no cell plays.
    pub(crate) fn new(
        options: &Options,
        job: &Job,
        folder: &Path,
        life: &str,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let outcome = match options.get("outcome") {
            None => None,
            Some(name) => Some(ToolOutcome::parse(name).ok_or_else(|| format!("no outcome is called {name:?}"))?),
        };
        if let Some(why) = outcome.and_then(not_of_tool) {
            return Err(why.into());
        }
        let arguments = options.pairs().flat_map(|(name, value)| [format!("--{name}"), value.to_owned()]);
        Ok(Self {
            subject: job.subject.clone(),
            outcome: Mutex::new(outcome),
            specs: job.tools.iter().map(crate::options::Tool::spec).collect(),
            folder: folder.to_owned(),
            life: life.to_owned(),
            beside: options.get("beside").map(|life| format!("server.{life}.")),
            arguments: arguments.collect(),
            running: Arc::default(),
            pid: Arc::default(),
        })
    }

    /// Sends a request that comes to `outcome`.
    async fn play(&self, outcome: ToolOutcome, generation: String, request: Value) -> Outcome {
        let lost = || Outcome::Lost { why: "the cell lost the answer".to_owned() };
        let reported = || {
            let content = json!([{"type": "text", "text": "it failed"}]);
            Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": true}) })
        };
        match outcome {
            ToolOutcome::Answered => self.exchange(generation, request).await,
            ToolOutcome::NeverLeft => Outcome::NotSent { why: "connection refused".to_owned() },
            ToolOutcome::Refused(refusal) => Outcome::Raw(refusal.reply()),
            ToolOutcome::LostBefore => lost(),
            ToolOutcome::LostAfter => {
                self.exchange(generation, request).await;
                lost()
            }
            ToolOutcome::ReportedWithoutEffect => reported(),
            ToolOutcome::ReportedWithEffect => {
                self.exchange(generation, request).await;
                reported()
            }
            ToolOutcome::AnsweredTwice => {
                self.exchange(generation.clone(), request.clone()).await;
                self.exchange(generation, request).await
            }
            ToolOutcome::ServerDied => {
                if let Some(pid) = Pid::from_raw(self.pid.load(Ordering::SeqCst)) {
                    kill(pid);
                }
                self.exchange(generation, request).await
            }
            ToolOutcome::Late | ToolOutcome::BusyForLong | ToolOutcome::GoesOnInATask | ToolOutcome::AsksFirst => {
                unreachable!("refused when the life began: `not_of_tool`")
            }
        }
    }

    fn lock_path(&self, generation: &str) -> PathBuf {
        self.folder.join("locks").join(generation)
    }

    fn start(&self, number: u32) -> std::io::Result<Server> {
        let generation = format!("server.{}.{number}", self.life);
        let lock = self.lock_path(&generation);
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("server").args(&self.arguments).arg("--lock").arg(&lock);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        self.pid.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("no pipes"));
        };
        let mut output = BufReader::new(output);
        let mut ready = String::new();
        output.read_line(&mut ready)?;
        if ready.trim_end() != "ready" {
            return Err(std::io::Error::other("the server ended at its start"));
        }
        Ok(Server { child, input, output, generation })
    }

    /// Kills what holds the lock of a generation and waits until it is free.
    fn retire(&self, generation: &str) -> Fence {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(self.lock_path(generation)) else {
            return Fence::Gone;
        };
        for _ in 0..2_000 {
            match file.try_lock() {
                Ok(()) => return Fence::Gone,
                Err(TryLockError::Error(error)) => return Fence::Alive { detail: error.to_string() },
                Err(TryLockError::WouldBlock) => {}
            }
            let holder = std::fs::read_to_string(self.lock_path(generation)).unwrap_or_default();
            if let Some(pid) = holder.parse().ok().and_then(Pid::from_raw) {
                kill(pid);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Fence::Alive { detail: format!("{generation} is still locked") }
    }

    async fn exchange(&self, generation: String, request: Value) -> Outcome {
        let running = Arc::clone(&self.running);
        let asked = tokio::task::spawn_blocking(move || {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            ask(&mut running, &generation, &request)
        });
        asked.await.unwrap_or_else(|error| Outcome::Lost { why: error.to_string() })
    }

    fn earlier(&self) -> Vec<String> {
        let own = format!("server.{}.", self.life);
        let entries = std::fs::read_dir(self.folder.join("locks")).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_beside = |name: &String| self.beside.as_ref().is_some_and(|life| name.starts_with(life));
        names.filter(|name| name.starts_with("server.") && !name.starts_with(&own) && !is_beside(name)).collect()
    }
}

#[async_trait]
impl ToolTransport for Servers {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        Ok(self.specs.clone())
    }

    fn working_folder(&self, _server: &str) -> Option<PathBuf> {
        None
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = &mut running.server
            && matches!(server.child.try_wait(), Ok(None))
        {
            return Ok(server.generation.clone());
        }
        running.started += 1;
        let started = self.start(running.started);
        let started = started.map_err(|e| TransportError::NotStarted {
            server: server.to_owned(),
            why: e.to_string(),
            may_pass: false,
            look_at: LookAt::Command,
        })?;
        let generation = started.generation.clone();
        running.server = Some(started);
        Ok(generation)
    }

    fn running(&self, _server: &str) -> Option<String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let server = running.server.as_mut()?;
        matches!(server.child.try_wait(), Ok(None)).then(|| server.generation.clone())
    }

    /// A cell has one server, which goes nowhere else.
    fn destination(&self, _tool: &ToolName, _arguments: &Value) -> Result<Option<Destination>, TransportError> {
        Ok(None)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let mut headers = BTreeMap::new();
        if let Some(KeyChannel::Header(name)) = &permit.call().policy.key_channel {
            headers.insert(name.clone(), permit.key().as_str().to_owned());
        }
        let request = json!({
            "tool": permit.name().tool, "arguments": permit.arguments(), "meta": permit.meta(), "headers": headers,
        });
        // An action of a composite tool is sent alone.
        let action = &request["arguments"]["calls"][0]["tool"];
        let is_subject = permit.name().tool == self.subject || *action == self.subject.as_str();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take_if(|_| is_subject);
        let generation = permit.generation().to_owned();
        self.play(outcome.unwrap_or(ToolOutcome::Answered), generation, request).await
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let (tool, server) = (&permit.name().tool, &permit.name().server);
        let not_reached = |why: String| Err(TransportError::NotReached { server: server.clone(), why });
        if let Some(task) = &handle.task {
            // Whichever process of the server is asked: the task is not its own, and a question changes nothing.
            let generation = self.ready(server).await?;
            let outcome = self.exchange(generation, json!({"tool": tool, "poll": task})).await;
            return match outcome {
                Outcome::NotSent { why } | Outcome::Lost { why } => not_reached(why),
                Outcome::Raw(_) | Outcome::Continues(_) => Ok(outcome),
            };
        }
        let input = handle.input.clone().unwrap_or_default();
        let request = json!({
            "tool": tool, "arguments": permit.arguments(), "meta": permit.meta(), "answers": input.answers,
            "state": input.state,
        });
        // As over MCP: who waits does so on its connection, everyone else takes the answer from any process of the server.
        let asked = if input.is_live { permit.generation().to_owned() } else { self.ready(server).await? };
        match self.exchange(asked, request).await {
            Outcome::NotSent { why } if input.is_live => Ok(Outcome::Lost { why }),
            Outcome::NotSent { why } => not_reached(why),
            outcome @ (Outcome::Raw(_) | Outcome::Continues(_) | Outcome::Lost { .. }) => Ok(outcome),
        }
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let request = json!({"tool": enquiry.tool().tool, "arguments": enquiry.arguments()});
        match self.ready(&enquiry.tool().server).await {
            Ok(generation) => self.exchange(generation, request).await,
            Err(error) => Outcome::NotSent { why: error.to_string() },
        }
    }

    async fn fence_earlier(&self) -> Fence {
        let fences = self.earlier().into_iter().map(|generation| self.retire(&generation));
        fences.into_iter().find(|fence| matches!(fence, Fence::Alive { .. })).unwrap_or(Fence::Gone)
    }

    async fn fence(&self, _server: &str, generation: &str, _lost_at: Option<Timestamp>) -> Fence {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.server.as_ref().is_some_and(|server| server.generation == generation)
            && let Some(mut server) = running.server.take()
        {
            server.child.kill().ok();
            server.child.wait().ok();
        }
        self.retire(generation)
    }
}

/// One request, one line back. A line that did not fit into the pipe of a dead process was never read.
fn ask(running: &mut Running, generation: &str, request: &Value) -> Outcome {
    let Some(server) = running.server.as_mut().filter(|server| server.generation == generation) else {
        return Outcome::NotSent { why: "that server is gone".to_owned() };
    };
    if let Err(error) = server.input.write_all(format!("{request}\n").as_bytes()) {
        return Outcome::NotSent { why: error.to_string() };
    }
    let mut line = String::new();
    if let Err(error) = server.output.read_line(&mut line) {
        return Outcome::Lost { why: error.to_string() };
    }
    match serde_json::from_str::<Value>(&line) {
        Ok(answer) if !answer["continues"].is_null() => match serde_json::from_value(answer["continues"].clone()) {
            Ok(handle) => Outcome::Continues(Box::new(handle)),
            Err(error) => Outcome::Lost { why: error.to_string() },
        },
        Ok(answer) => Outcome::Raw(RawReply::ToolResult {
            result: json!({"content": [{"type": "text", "text": answer.to_string()}], "structuredContent": answer}),
        }),
        Err(_) => Outcome::Lost { why: "the server ended before it answered".to_owned() },
    }
}
