//! One cell: a job, killed as told, resumed until it ends, with every question answered by looking outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::Value;

use ua_testkit::ToolOutcome;

use super::boundaries::{Boundary, Death};
use super::classes::Class;
use super::shapes::FORK_PROMPT;

/// How often one cell may be resumed before the harness gives up.
const MAX_LIVES: u32 = 9;
/// The longest one process may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The exit code of a life that ended with a question.
const WAITING: i32 = 75;
/// The exit code of a life that was replaced by another owner.
const REPLACED: i32 = 76;
/// The exit code of a life that was to fork a run which was never stored.
const NOTHING_TO_FORK: i32 = 77;
/// The exit code of a life that would not drive a run of which more was sent than the database knows.
const FORGOTTEN: i32 = 74;
/// Where the database is copied that is put back later: before anything was decided.
const COPIED_AT: &str = "after:store.open_step";

/// What dies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Protection {
    /// The runner; then it resumes.
    Resume,
    /// The runner; and its successor again, at this point.
    CrashAgain(String),
    /// The tool server instead of the runner.
    ServerDies,
    /// Nobody: another owner takes the run over, and this one lives on.
    Replaced,
    /// The runner; then its run is forked, the fork driven to its end, and the run after it.
    Fork,
    /// The same, and the fork has another prompt, to which its model makes the call itself instead of handing it to a sub-agent.
    ForkItself,
    /// Nobody: the run stands there while a fork of it, which makes the call itself, is driven to its end; then it goes on.
    ForkMeanwhile,
    /// The runner, whose call never left; then its run is forked, the fork driven to its end, and the run after it.
    ForkBehindAFailure,
    /// The runner; and the call that its successor repeats comes to this.
    RedoMeets(ToolOutcome),
    /// The runner; then the database goes back to a copy from before anything was decided, and the run is resumed.
    Restored,
    /// The runner; then its run is forked and the fork driven to its end; then as above.
    ForkedAndRestored,
}

impl Protection {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::CrashAgain(_) => "crash again during the resume",
            Self::ServerDies => "tool server dies instead",
            Self::Replaced => "replaced by another owner while it lives",
            Self::Fork => "forked, then resumed too",
            Self::ForkItself => "forked by who makes the call itself, then resumed too",
            Self::ForkMeanwhile => "forked while it lives",
            Self::ForkBehindAFailure => "forked behind a call that never left, then resumed too",
            Self::RedoMeets(_) => "its repeat is refused",
            Self::Restored => "restored from a copy, then resumed",
            Self::ForkedAndRestored => "forked, restored from a copy, then resumed",
        }
    }

    /// Whether another run of the family makes the call, too.
    pub(crate) fn forks(&self) -> bool {
        let is_fork = matches!(self, Self::Fork | Self::ForkItself | Self::ForkMeanwhile);
        is_fork || matches!(self, Self::ForkBehindAFailure | Self::ForkedAndRestored)
    }

    /// Whether its cells are laid out one by one, and not crossed with every boundary.
    pub(crate) fn is_laid_out(&self) -> bool {
        match self {
            Self::Resume | Self::CrashAgain(_) | Self::ServerDies | Self::Replaced | Self::Fork => false,
            Self::ForkItself
            | Self::ForkMeanwhile
            | Self::ForkBehindAFailure
            | Self::RedoMeets(_)
            | Self::Restored
            | Self::ForkedAndRestored => true,
        }
    }

    /// Whether a copy of the database is put back.
    pub(crate) fn restores(&self) -> bool {
        matches!(self, Self::Restored | Self::ForkedAndRestored)
    }
}

/// One cell of the matrix.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    /// Its class's place in the table.
    pub(crate) class: usize,
    /// Where it dies; `None` for a run without a crash.
    pub(crate) boundary: Option<Boundary>,
    pub(crate) protection: Protection,
}

impl Cell {
    pub(crate) fn name(&self, class: &Class) -> String {
        let boundary = self.boundary.as_ref().map_or("no kill".to_owned(), Boundary::name);
        let again = match &self.protection {
            Protection::Resume => String::new(),
            Protection::CrashAgain(point) => format!(", then {point}"),
            Protection::ServerDies => ", tool server instead".to_owned(),
            Protection::Replaced => ", replaced".to_owned(),
            Protection::Fork => ", forked".to_owned(),
            Protection::ForkItself => ", forked by who does it itself".to_owned(),
            Protection::ForkMeanwhile => ", forked while it lives".to_owned(),
            Protection::ForkBehindAFailure => ", forked behind a call that never left".to_owned(),
            Protection::RedoMeets(outcome) => format!(", then {}", outcome.name()),
            Protection::Restored => ", restored".to_owned(),
            Protection::ForkedAndRestored => ", forked and restored".to_owned(),
        };
        format!("{} | {boundary}{again}", class.name)
    }
}

/// What can be seen from outside when a cell is over.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What the last life wrote about the run.
    pub(crate) state: Value,
    /// Every effect that the observer did.
    pub(crate) effects: Vec<Value>,
    /// What the fork's last life wrote about it.
    pub(crate) fork: Option<Value>,
    /// The file that a replacing tool writes.
    pub(crate) file: Option<String>,
    /// Requests that the model saw.
    pub(crate) model_requests: usize,
    /// Lives that ended by SIGKILL.
    pub(crate) kills: u32,
    /// Whether the write that the runner died inside of was there afterwards.
    pub(crate) was_written: Option<bool>,
    /// What an owner did after it was replaced.
    pub(crate) replaced: Option<Value>,
    /// How the last life ended, unless it succeeded.
    pub(crate) stuck: Option<String>,
    /// A life would not drive the run, since the database had forgotten what was sent of it.
    pub(crate) was_refused: bool,
}

/// What stays the same for all cells of one thread.
pub(crate) struct Stage {
    pub(crate) program: PathBuf,
    pub(crate) root: PathBuf,
    pub(crate) broken_rule: Option<String>,
    socket: PathBuf,
    observer: Child,
}

impl Stage {
    /// Starts the outside world of this thread.
    pub(crate) fn new(program: &Path, root: &Path, thread: usize, broken_rule: Option<&str>) -> anyhow::Result<Self> {
        let socket = root.join(format!("observer.{thread}"));
        let mut command = Command::new(program);
        command.arg("observer").arg("--socket").arg(&socket).stdin(Stdio::null());
        let mut observer = command.spawn().context("start the observer")?;
        let started = Instant::now();
        while !socket.exists() {
            if observer.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                bail!("the observer did not start");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let (program, root) = (program.to_owned(), root.to_owned());
        Ok(Self { program, root, broken_rule: broken_rule.map(str::to_owned), socket, observer })
    }

    /// Runs one cell in a folder of its own, which is gone afterwards.
    pub(crate) fn run(&self, number: usize, cell: &Cell, class: &Class) -> anyhow::Result<Seen> {
        let folder = self.root.join(format!("cell.{number}"));
        fs::create_dir_all(&folder)?;
        let lives = Lives { stage: self, folder: &folder, cell, class };
        let seen = lives.all();
        let gone = fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()));
        let seen = seen.with_context(|| cell.name(class))?;
        gone?;
        Ok(seen)
    }
}

impl Stage {
    /// The most pages that one thread of an uncrashed life writes.
    pub(crate) fn count_page_writes(&self, log: &Path, class: usize, row: &Class) -> anyhow::Result<u32> {
        let folder = self.root.join(format!("count.{class}"));
        fs::create_dir_all(&folder)?;
        let cell = Cell { class, boundary: None, protection: Protection::Resume };
        let lives = Lives { stage: self, folder: &folder, cell: &cell, class: row };
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-e", "trace=pwrite64", "-o"]).arg(log).arg(&self.program);
        let status = lives.command(command, 1)?.status()?;
        anyhow::ensure!(status.success(), "a traced life ended with {status}");
        fs::remove_dir_all(&folder)?;
        let mut by_thread: BTreeMap<String, u32> = BTreeMap::new();
        for line in fs::read_to_string(log)?.lines().filter(|line| line.contains("pwrite64(")) {
            *by_thread.entry(line.split_whitespace().next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        by_thread.into_values().max().context("no page was written")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.observer.kill().and_then(|()| self.observer.wait()).is_err() {
            eprintln!("the observer was not ended");
        }
    }
}

struct Lives<'a> {
    stage: &'a Stage,
    folder: &'a Path,
    cell: &'a Cell,
    class: &'a Class,
}

/// Where the lives of a cell have come to.
struct SoFar {
    life: u32,
    kills: u32,
    /// What the next life answers to the question of the last one.
    answer: Option<&'static str>,
}

impl Lives<'_> {
    fn all(&self) -> anyhow::Result<Seen> {
        let mut so_far = SoFar { life: 1, kills: 0, answer: None };
        let protection = &self.cell.protection;
        let mut ended = if protection.forks() || protection.restores() {
            let standing = self.begin_beside(&mut so_far)?;
            let mut ended = None;
            if protection.forks() {
                ended = self.until_it_ends(&mut so_far, true)?.err().map(Err);
            }
            if let Some(mut standing) = standing {
                File::create(self.folder.join("go-on"))?;
                wait(&mut standing)?;
            }
            if protection.restores() {
                self.restore()?;
            }
            ended
        } else {
            let status = self.live(1, None, false)?;
            self.ended(status, &mut so_far)?
        };
        if ended.is_none() {
            ended = Some(self.until_it_ends(&mut so_far, false)?);
        }
        let was_refused = ended == Some(Ok(FORGOTTEN));
        let stuck = ended.and_then(Result::err);
        let kills = so_far.kills;
        self.wait_for_orphans()?;
        let state = fs::read_to_string(self.folder.join("state.json")).unwrap_or_else(|_| "null".to_owned());
        Ok(Seen {
            state: serde_json::from_str(&state)?,
            effects: self.effects()?,
            fork: match fs::read_to_string(self.folder.join("fork.json")) {
                Ok(text) => Some(serde_json::from_str(&text)?),
                Err(_) => None,
            },
            file: fs::read_to_string(self.folder.join("report.md")).ok(),
            model_requests: fs::read_to_string(self.folder.join("model.log")).map_or(0, |log| log.lines().count()),
            kills,
            was_written: self.was_written(),
            replaced: self.replaced()?,
            stuck,
            was_refused,
        })
    }

    /// The first life of a run that is forked, or whose database goes back: it dies at its boundary, or stands there.
    fn begin_beside(&self, so_far: &mut SoFar) -> anyhow::Result<Option<Child>> {
        if self.cell.protection != Protection::ForkMeanwhile {
            so_far.kills += u32::from(self.live(1, None, false)?.signal() == Some(9));
            return Ok(None);
        }
        let mut child = self.begin(1, None, false)?;
        let started = Instant::now();
        while !self.folder.join("stands").exists() {
            if child.try_wait()?.is_some() || started.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                bail!("the first life never came to its boundary");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(Some(child))
    }

    /// Lives of the run, or of its fork, until one ends as it may; how it ended, or how it got stuck.
    fn until_it_ends(&self, so_far: &mut SoFar, forks: bool) -> anyhow::Result<Result<i32, String>> {
        while so_far.life < MAX_LIVES * (1 + u32::from(self.cell.protection.forks())) {
            so_far.life += 1;
            let status = self.live(so_far.life, so_far.answer.take(), forks)?;
            if let Some(ended) = self.ended(status, so_far)? {
                return Ok(ended);
            }
        }
        Ok(Err("it never ended".to_owned()))
    }

    /// Whether that was the last life: its exit code, or how it got stuck.
    fn ended(&self, status: ExitStatus, so_far: &mut SoFar) -> anyhow::Result<Option<Result<i32, String>>> {
        match (status.code(), status.signal()) {
            (Some(code @ (0 | NOTHING_TO_FORK | FORGOTTEN)), _) => return Ok(Some(Ok(code))),
            (None, Some(9)) => so_far.kills += 1,
            (Some(REPLACED), _) => {}
            (Some(WAITING), _) => so_far.answer = Some(self.truth()?),
            (code, signal) => {
                let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                return Ok(Some(Err(format!("exit {code:?}, signal {signal:?}: {}", log.trim()))));
            }
        }
        Ok(None)
    }

    fn restore(&self) -> anyhow::Result<()> {
        let status = Command::new(&self.stage.program).arg("restore").arg("--folder").arg(self.folder).status()?;
        anyhow::ensure!(status.success(), "the copy was not put back");
        Ok(())
    }

    /// One life of the run, or of its fork, to its end.
    fn live(&self, life: u32, answer: Option<&str>, forks: bool) -> anyhow::Result<ExitStatus> {
        wait(&mut self.begin(life, answer, forks)?)
    }

    /// Begins a life.
    fn begin(&self, life: u32, answer: Option<&str>, forks: bool) -> anyhow::Result<Child> {
        let boundary = self.cell.boundary.as_ref().filter(|boundary| life == boundary.life());
        let mut command = match boundary.map(|boundary| &boundary.death) {
            Some(Death::AtPageWrite(n)) => {
                let mut command = Command::new("strace");
                let inject = format!("inject=pwrite64:signal=SIGKILL:when={n}");
                command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", &inject]);
                command.arg(&self.stage.program);
                command
            }
            Some(Death::Crossing(_) | Death::Inside { .. } | Death::AtTheTool(_)) | None => {
                Command::new(&self.stage.program)
            }
        };
        command = self.command(command, life)?;
        if let Some(boundary) = boundary {
            let is_server = self.cell.protection == Protection::ServerDies;
            match &boundary.death {
                Death::AtTheTool(moment) => {
                    command.args([if is_server { "--server-dies" } else { "--runner-dies" }, moment]);
                }
                Death::Crossing(_) | Death::Inside { .. } | Death::AtPageWrite(_) => {}
            }
            if let Some(point) = boundary.point() {
                let what = match self.cell.protection {
                    Protection::ServerDies => "--kill-server",
                    Protection::Replaced => "--replace",
                    Protection::ForkMeanwhile => "--stand",
                    Protection::Resume
                    | Protection::CrashAgain(_)
                    | Protection::Fork
                    | Protection::ForkItself
                    | Protection::ForkBehindAFailure
                    | Protection::RedoMeets(_)
                    | Protection::Restored
                    | Protection::ForkedAndRestored => "--kill",
                };
                command.args([what, &point]);
            }
        }
        let first = self.cell.boundary.as_ref().map_or(1, Boundary::life);
        if let Protection::CrashAgain(point) = &self.cell.protection
            && life == first + 1
        {
            command.args(["--kill", point]);
        }
        if let Some(seconds) = self.class.shape.comes_later().filter(|_| life > 1) {
            command.args(["--clock-ahead", &(seconds * u64::from(life - 1)).to_string()]);
        }
        if let (2, Protection::RedoMeets(outcome)) = (life, &self.cell.protection) {
            command.args(["--outcome", &outcome.name()]);
        }
        if (life, &self.cell.protection) == (1, &Protection::ForkBehindAFailure) {
            command.args(["--outcome", &ToolOutcome::NeverLeft.name()]);
        }
        if life == 1 && self.cell.protection.restores() {
            command.args(["--copy", COPIED_AT]);
        }
        if self.cell.protection.forks() || self.cell.protection.restores() {
            // Both say the same words: what only differs in them is no duplicate that anything could see.
            command.args(["--words", "1", "--happened", &self.happened()?]);
        } else if let Some(answer) = answer {
            command.args(["--answer", answer]);
        }
        if forks {
            command.args(["--run", "run_fork", "--fork-of", "run_cell"]);
            match self.cell.protection {
                Protection::ForkMeanwhile => {
                    command.args(["--fork-prompt", FORK_PROMPT, "--beside", "1"]);
                }
                Protection::ForkItself => {
                    command.args(["--fork-prompt", FORK_PROMPT]);
                }
                Protection::Fork
                | Protection::ForkBehindAFailure
                | Protection::ForkedAndRestored
                | Protection::Resume
                | Protection::CrashAgain(_)
                | Protection::ServerDies
                | Protection::Replaced
                | Protection::RedoMeets(_)
                | Protection::Restored => {}
            }
        }
        if let Some(rule) = &self.stage.broken_rule {
            command.args(["--broken", rule]);
        }
        Ok(command.spawn()?)
    }

    /// What every life is told, behind whatever `command` starts with.
    fn command(&self, mut command: Command, life: u32) -> anyhow::Result<Command> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        command.args(["life", "--life", &life.to_string()]);
        command.arg("--folder").arg(self.folder).arg("--job").arg(self.stage.root.join(job_file(self.cell.class)));
        command.arg("--observer").arg(&self.stage.socket).arg("--log").arg(self.folder.join("effects"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    /// What really happened to the call that is asked about.
    fn truth(&self) -> anyhow::Result<&'static str> {
        let happened = self.effects()?.iter().any(|effect| effect["tool"] == self.class.tool);
        Ok(if happened { "happened" } else { "execute" })
    }

    /// The tools whose effect is there, for somebody who is asked about several.
    fn happened(&self) -> anyhow::Result<String> {
        let effects = self.effects()?;
        let tools = effects.iter().filter_map(|effect| effect["tool"].as_str());
        let tools: std::collections::BTreeSet<&str> = tools.collect();
        Ok(tools.into_iter().collect::<Vec<_>>().join(","))
    }

    fn effects(&self) -> anyhow::Result<Vec<Value>> {
        self.wait_for_tasks()?;
        let text = fs::read_to_string(self.folder.join("effects")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).context("read the observer's log")).collect()
    }

    /// Whoever looks outside waits until no task is at work there any more.
    fn wait_for_tasks(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let log = fs::read_to_string(self.folder.join("effects.tasks")).unwrap_or_default();
            let count = |what: &str| log.lines().filter(|line| *line == what).count();
            if count("begun") == count("ended") {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                bail!("a task never ended");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn replaced(&self) -> anyhow::Result<Option<Value>> {
        let text = fs::read_to_string(self.folder.join("replaced.json")).ok();
        text.map(|text| serde_json::from_str(&text).context("read replaced.json")).transpose()
    }

    fn was_written(&self) -> Option<bool> {
        let Death::Inside { write, .. } = self.cell.boundary.as_ref()?.death else { return None };
        let found = fs::read_to_string(self.folder.join("found.2.json")).ok()?;
        serde_json::from_str::<Value>(&found).ok()?[write].as_bool()
    }

    /// Nothing of the cell is alive any more once every lock of a tool server is free.
    fn wait_for_orphans(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        for entry in fs::read_dir(self.folder.join("locks")).into_iter().flatten().flatten() {
            // Beside a lock lies its server's pipe, which would be waited for.
            if !entry.file_name().to_string_lossy().starts_with("server.") || !entry.file_type()?.is_file() {
                continue;
            }
            let file = File::open(entry.path())?;
            while file.try_lock().is_err() {
                if started.elapsed() > PATIENCE {
                    bail!("{} stays locked", entry.path().display());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }
}

/// The job file of a class, in the root folder.
pub(crate) fn job_file(class: usize) -> String {
    format!("class.{class}.json")
}

fn wait(child: &mut Child) -> anyhow::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            bail!("a life did not end within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}
