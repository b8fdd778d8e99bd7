//! The world of one scenario: a folder, tool servers, and the program under test, seen as its user sees it.
//!
//! - `work/`: the working directory, with job files, script, policies and the configuration of the tool servers
//! - `root/`: the workspace root
//! - `outside.log`: one line per call that reached a tool server, with whether it had its effect
//! - `N.out`, `N.err`: what the N-th process wrote

use std::fs::{self, File};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::server::{Call, Plan, Servers};

/// The longest a process may take, and the longest anything is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);
/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(10);
/// How long lies between two looks that take a process each.
const LOOK: Duration = Duration::from_millis(200);

/// What every scenario is given.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    /// The program under test.
    pub(crate) program: PathBuf,
    /// Where folders are kept, if they are.
    pub(crate) keep: Option<PathBuf>,
    /// The scenario's number, for the name of its folder.
    pub(crate) name: String,
}

pub(crate) struct Outside {
    pub(crate) servers: Servers,
    program: PathBuf,
    folder: PathBuf,
    /// Removes the folder in the end, unless it is kept.
    _temporary: Option<TempDir>,
    variables: Vec<(String, String)>,
    /// Whether each command names the root.
    names_root: bool,
    started: AtomicU32,
}

impl Outside {
    /// A world whose tools do what `plan` says.
    pub(crate) fn new(stage: &Stage, plan: Plan) -> anyhow::Result<Self> {
        let (temporary, folder) = if let Some(keep) = &stage.keep {
            let folder = keep.join(&stage.name);
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            (None, folder)
        } else {
            let temporary = tempfile::Builder::new().prefix("ua-findings-").tempdir().context("make a folder")?;
            let folder = temporary.path().to_path_buf();
            (Some(temporary), folder)
        };
        for name in ["work", "home/.config"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let servers = Servers::start(folder.join("outside.log"), plan)?;
        let program = stage.program.clone();
        Ok(Self {
            servers,
            program,
            folder,
            _temporary: temporary,
            variables: Vec::new(),
            names_root: true,
            started: AtomicU32::new(0),
        })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Sets a variable of the environment of every further process.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Lets no further command name a root, so that it has the default one, below the working directory.
    pub(crate) fn name_no_root(&mut self) {
        self.names_root = false;
    }

    /// Writes a file of the working directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> anyhow::Result<()> {
        fs::write(self.path("work").join(name), text).with_context(|| format!("write {name}"))
    }

    /// Configures the tool servers: `shop` as a child process, `bank` at an address, each with its tools. Without tools there is none.
    pub(crate) fn tools(&self, shop: &[&str], bank: &[&str]) -> anyhow::Result<()> {
        let mut servers = json!({});
        if !shop.is_empty() {
            servers["shop"] = self.servers.stdio_entry("shop", shop)?;
        }
        if !bank.is_empty() {
            servers["bank"] = self.servers.remote_entry("bank", bank);
        }
        self.write("servers.json", &json!({"mcpServers": servers}).to_string())
    }

    /// Writes `job.json`, the user's policy and its script. `fields` are laid over a job whose model is played by the script.
    pub(crate) fn job(&self, fields: &Value, policy: &str, script: &Value) -> anyhow::Result<()> {
        let mut job = json!({
            "objective": "Do what the scenario says.",
            "model": {"provider": "scripted", "script": "script.json"},
            "tools": {"builtin": false},
        });
        if !policy.is_empty() {
            fs::create_dir_all(self.path("home/.config/ua"))?;
            fs::write(self.path("home/.config/ua/policy.toml"), policy)?;
        }
        for (name, value) in fields.as_object().into_iter().flatten() {
            job[name] = value.clone();
        }
        self.write("script.json", &script.to_string())?;
        self.write("job.json", &job.to_string())
    }

    /// Starts the job as run `r`, with the configured tool servers.
    pub(crate) fn start_job(&self, more: &[&str]) -> anyhow::Result<Live> {
        self.start(&[&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"][..], more].concat())
    }

    /// Runs the job as run `r` to its end.
    pub(crate) fn run_job(&self, more: &[&str]) -> anyhow::Result<End> {
        self.start_job(more)?.wait()
    }

    /// Resumes run `r`.
    pub(crate) fn resume(&self) -> anyhow::Result<End> {
        self.run(&["resume", "r"])
    }

    pub(crate) fn run(&self, args: &[&str]) -> anyhow::Result<End> {
        self.start(args)?.wait()
    }

    pub(crate) fn start(&self, args: &[&str]) -> anyhow::Result<Live> {
        self.start_below(None, args)
    }

    /// Starts the program below another one, such as `strace`.
    pub(crate) fn start_below(&self, above: Option<&[&str]>, args: &[&str]) -> anyhow::Result<Live> {
        let number = self.started.fetch_add(1, Ordering::SeqCst);
        let (out, err) = (self.path(&format!("{number}.out")), self.path(&format!("{number}.err")));
        let mut command = self.command(args);
        if let Some([tracer, its @ ..]) = above {
            let below = std::mem::replace(&mut command, Command::new(tracer));
            command.args(its).arg(below.get_program()).args(below.get_args());
            self.place(&mut command);
        }
        // Files, never pipes: a tool server that outlives the program must not keep the harness waiting.
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let child = command.spawn().with_context(|| format!("start {}", self.program.display()))?;
        let line = format!("ua {}", args.join(" "));
        Ok(Live { child, line, out, err })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args);
        if self.names_root {
            command.arg("--root").arg(self.path("root"));
        }
        self.place(&mut command);
        command
    }

    /// Where a process works, and what it sees.
    fn place(&self, command: &mut Command) {
        command.current_dir(self.path("work")).process_group(0).env_clear().envs(self.environment());
    }

    /// The environment that the program sees.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let home = self.path("home");
        let pairs = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("USER", "tester".to_owned()),
            ("HOME", home.display().to_string()),
            ("XDG_CONFIG_HOME", home.join(".config").display().to_string()),
        ];
        let fixed = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
        fixed.chain(self.variables.iter().cloned()).collect()
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// What a command prints with `--json`.
    pub(crate) fn json(&self, args: &[&str]) -> anyhow::Result<Value> {
        let end = self.run(&[args, &["--json"]].concat())?;
        ensure!(end.code == Some(0), "`ua {}` ended with {}: {}", args.join(" "), end.told(), end.err);
        serde_json::from_str(&end.out).with_context(|| format!("read the JSON of `ua {}`", args.join(" ")))
    }

    /// Every open question.
    pub(crate) fn questions(&self) -> anyhow::Result<Vec<Question>> {
        let rows = self.json(&["questions"])?;
        let rows = rows.as_array().context("`ua questions --json` is no list")?;
        rows.iter()
            .filter(|row| row["status"].as_str().is_none_or(|status| status == "open"))
            .map(Question::of)
            .collect()
    }

    /// Whether a question is open; nothing is while there is no database. For looking again and again.
    pub(crate) fn asks(&self) -> anyhow::Result<bool> {
        std::thread::sleep(LOOK);
        let mut command = self.command(&["questions", "--json"]);
        let output = command.stdin(Stdio::null()).output().context("look at the questions")?;
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(rows.as_array().is_some_and(|rows| !rows.is_empty()))
    }

    /// The only open question.
    pub(crate) fn question(&self) -> anyhow::Result<Question> {
        let mut all = self.questions()?;
        ensure!(all.len() == 1, "{} questions are open, not one: {all:?}", all.len());
        Ok(all.remove(0))
    }

    /// The open question about a call whose arguments, or whose words, hold this text.
    pub(crate) fn question_about(&self, text: &str) -> anyhow::Result<Question> {
        let all = self.questions()?;
        let found = all.iter().find(|question| question.row.to_string().contains(text)).cloned();
        found.with_context(|| format!("no open question is about {text:?}: {all:?}"))
    }

    pub(crate) fn answer(&self, question: &Question, choice: &str) -> anyhow::Result<()> {
        let end = self.run(&["answer", &question.id, choice])?;
        ensure!(end.code == Some(0), "`ua answer … {choice}` ended with {}: {}", end.told(), end.err);
        Ok(())
    }

    /// Where a run stands.
    pub(crate) fn status(&self, run: &str) -> anyhow::Result<String> {
        let shown = self.json(&["runs", "show", run])?;
        shown["run"]["status"].as_str().map(str::to_owned).context("a run has a status")
    }

    /// How often a tool had its effect.
    pub(crate) fn effects(&self, tool: &str) -> usize {
        self.servers.effects(tool).len()
    }

    /// Every effect of a tool.
    pub(crate) fn effects_of(&self, tool: &str) -> Vec<Call> {
        self.servers.effects(tool)
    }

    /// Waits until the `nth` call of a tool has arrived, with its effect, while the program runs.
    pub(crate) fn until_call(&self, live: &mut Live, tool: &str, nth: usize) -> anyhow::Result<()> {
        live.until(&format!("call {nth} of {tool}"), || Ok(self.servers.calls(tool) >= nth))
    }

    /// Waits until the scenario is so old.
    pub(crate) fn until_age(&self, age: Duration) {
        std::thread::sleep(age.saturating_sub(self.servers.elapsed()));
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        // What a scenario left alive on purpose ends with it.
        fs::remove_file(self.path("orphan")).ok();
    }
}

/// A question as `ua questions --json` shows it.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) id: String,
    pub(crate) run: String,
    row: Value,
}

impl Question {
    fn of(row: &Value) -> anyhow::Result<Self> {
        let text = |name: &str| {
            row[name].as_str().map(str::to_owned).with_context(|| format!("a question has no {name}: {row}"))
        };
        Ok(Self { id: text("question_id")?, run: text("run_id")?, row: row.clone() })
    }
}

/// A process of the program; dropping it kills it.
#[derive(Debug)]
pub(crate) struct Live {
    child: Child,
    line: String,
    out: PathBuf,
    err: PathBuf,
}

impl Live {
    /// Waits until something holds, as long as the process lives.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
        let started = Instant::now();
        while !holds()? {
            if let Some(status) = self.child.try_wait()? {
                bail!("`{}` ended ({status}) before {what}: {}", self.line, fs::read_to_string(&self.err)?);
            }
            ensure!(started.elapsed() < PATIENCE, "waited in vain for {what}");
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    /// Waits until something holds or the process has ended or the time is up; says whether it holds.
    pub(crate) fn look_for(
        &mut self,
        time: Duration,
        mut holds: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let started = Instant::now();
        loop {
            if holds()? {
                return Ok(true);
            }
            if started.elapsed() > time || self.child.try_wait()?.is_some() {
                return Ok(false);
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ends by itself within this time; a process that does not is killed.
    pub(crate) fn ends_within(mut self, time: Duration) -> anyhow::Result<Option<End>> {
        self.look_for(time, || Ok(false))?;
        match self.child.try_wait()? {
            Some(status) => Ok(Some(End::of(status, &self.out, &self.err)?)),
            None => Ok(None),
        }
    }

    /// Kills it as nobody can resist, and it alone.
    pub(crate) fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for its end.
    pub(crate) fn wait(mut self) -> anyhow::Result<End> {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(started.elapsed() < PATIENCE, "`{}` did not end within {} s", self.line, PATIENCE.as_secs());
            std::thread::sleep(GLANCE);
        };
        End::of(status, &self.out, &self.err)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // It has usually ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    signal: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl End {
    fn of(status: ExitStatus, out: &Path, err: &Path) -> anyhow::Result<Self> {
        let text = |path: &Path| Ok::<_, anyhow::Error>(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        Ok(Self { code: status.code(), signal: status.signal(), out: text(out)?, err: text(err)? })
    }

    /// The exit code or the signal, in words.
    pub(crate) fn told(&self) -> String {
        match (self.code, self.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        }
    }

    /// Fails the scenario unless the process ended with this code: the way to what a finding is about.
    pub(crate) fn must(self, code: i32) -> anyhow::Result<Self> {
        ensure!(self.code == Some(code), "expected exit {code}, got {}: {}\n{}", self.told(), self.err, self.out);
        Ok(self)
    }
}
