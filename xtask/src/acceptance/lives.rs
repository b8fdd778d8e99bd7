//! The processes of one cell: lives that end by themselves or are killed, and the answers of a person between them.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::kill::Doubt;
use super::route::Effect;
use super::server::Server;
use super::world::Receivers;

/// The run's name.
const RUN: &str = "acceptance";

/// The longest one process may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a process is looked at.
const GLANCE: Duration = Duration::from_millis(2);

/// How a life ends.
pub(super) enum End<'a> {
    ByItself,
    /// The program kills itself there.
    Seam(&'a str),
    /// We kill it when the server keeps so many requests waiting.
    Held(&'a Server, usize),
    /// We kill it then.
    Moment(Duration),
}

/// How programs that a model starts are confined; what the lane was started with.
const SANDBOX: &str = "UA_COMMAND_SANDBOX";

pub(super) struct Lives<'a> {
    pub(super) program: &'a Path,
    pub(super) world: &'a Receivers,
}

impl Lives<'_> {
    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let log = File::options().create(true).append(true).open(self.world.path("ua.log"))?;
        let mut command = Command::new(self.program);
        command.args(arguments).arg("--root").arg(self.world.path("root")).current_dir(self.world.path("work"));
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("LANG", "C.UTF-8");
        command.envs(self.world.environment()?);
        // The same lane with other walls around programs (`required`).
        command.envs(std::env::var_os(SANDBOX).map(|walls| (SANDBOX, walls)));
        // Files, never pipes: a tool server that outlives the runner must not keep the harness waiting.
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// The life that starts the job.
    pub(super) fn start(&self, end: &End<'_>) -> anyhow::Result<ExitStatus> {
        let mut command = self.command(&[
            "job",
            "job.json",
            "--run-id",
            RUN,
            "--provider",
            "anthropic",
            "--model",
            "scripted",
            "--allow-private-addresses",
        ])?;
        if let End::Seam(point) = end {
            command.env("UA_KILL_AT", point);
        }
        wait(&mut command.spawn().context("start ua")?, end)
    }

    /// A further life, resumed by the run's name. A process killed before it stored its run has nothing to resume; the
    /// same command starts it.
    pub(super) fn resume(&self, end: &End<'_>) -> anyhow::Result<ExitStatus> {
        if !self.is_stored()? {
            return self.start(end);
        }
        let mut command = self.command(&["job", "--resume", "--run-id", RUN])?;
        wait(&mut command.spawn().context("start ua")?, end)
    }

    /// Whether the run is in the database, asked through the program itself.
    fn is_stored(&self) -> anyhow::Result<bool> {
        if !self.world.path("root/runtime_state.db").exists() {
            return Ok(false);
        }
        let status =
            self.command(&["runs", "show", RUN, "--json"])?.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        Ok(status.success())
    }

    /// Whether every statement about the records holds, asked through the program itself; what does not is in its log.
    pub(super) fn records_hold(&self) -> anyhow::Result<bool> {
        Ok(self.command(&["db", "check", "--invariants"])?.status()?.success())
    }

    /// Answers every open question with what the servers counted, and says what was asked.
    pub(super) fn answer_truthfully(&self) -> anyhow::Result<Vec<Doubt>> {
        let listed =
            self.command(&["calls", "list", "--run", RUN, "--unknown", "--json"])?.stdout(Stdio::piped()).output()?;
        let calls: Vec<Value> = serde_json::from_slice(&listed.stdout).context("read the unknown calls")?;
        let mut asked = Vec::new();
        for call in &calls {
            let tool = call["tool_name"].as_str().unwrap_or_default();
            let id = call["tool_call_id"].as_str().context("a call has an id")?;
            let Some(effect) = Effect::of_tool(tool).filter(|effect| self.world.route.asks_about(*effect)) else {
                bail!("a question about `{tool}`, which should settle by itself");
            };
            let happened = self.world.count(effect)? > 0;
            let answer = if happened { "--happened" } else { "--execute" };
            let resolved = self.command(&["calls", "resolve", id, answer])?.status()?;
            ensure!(resolved.success(), "`ua calls resolve {id} {answer}` failed");
            asked.push(Doubt { effect, happened });
        }
        Ok(asked)
    }
}

/// Waits for the process, and kills it when that is its end.
fn wait(child: &mut Child, end: &End<'_>) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let is_due = match end {
            End::ByItself | End::Seam(_) => false,
            End::Held(server, count) => server.held()? >= *count,
            End::Moment(moment) => started.elapsed() >= *moment,
        };
        if is_due {
            child.kill()?;
            return Ok(child.wait()?);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("ua did not end within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(GLANCE);
    }
}
