//! What it takes until `ua` is at work: from its start to the first byte that the model gets, in a new folder, in one that has a database, and behind
//! a run of thousands of calls; how much memory such a run takes; and what questions about a database of thousands of runs take.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use super::calls::{built, median};
use super::model::Model;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The program that is measured, built for release
    #[arg(long, value_name = "PATH")]
    ua: PathBuf,
    /// How many turns the long run takes, with one call each
    #[arg(long, default_value_t = 10_000)]
    turns: usize,
    /// How many runs the full database has
    #[arg(long, default_value_t = 2_000)]
    runs: u32,
    /// How often each start is measured; the median counts
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// The program that fills the database (`call_bench`); it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

pub(super) const MODEL: [&str; 4] = ["--provider", "anthropic", "--model", "measured"];

pub(super) const JOB: &str = r#"{
  "objective": "Look at the workspace again and again.",
  "budgets": {"max_tool_calls": 1000000, "max_wallclock_minutes": 100000, "max_steps": 1000000, "max_tokens": 1000000000000,
              "max_same_error_repeats": 1000000},
  "settings": {"history_max_tokens": 3000}
}"#;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let ua = options.ua.canonicalize().with_context(|| format!("find {}", options.ua.display()))?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("job.json"), JOB)?;
    println!("| what | median of {} |", options.rounds);
    println!("|---|---|");
    for (what, is_new) in [("a new folder", true), ("a folder with a database", false)] {
        let mut times = Vec::new();
        for round in 0..options.rounds {
            let root = if is_new { format!("new_{round}") } else { "old".to_owned() };
            let model = Model::start(0)?;
            let begun = Instant::now();
            let mut child = Ua::start(
                &ua,
                folder.path(),
                &model,
                &[&["job", "job.json", "--new", "--root", &root], &MODEL[..]].concat(),
            )?;
            times.push(since(begun, model.until(1, || child.lives())?));
        }
        println!("| `ua job` in {what}, start to first byte at the model | {:.1} ms |", median(times));
    }
    long_run(options, &ua, folder.path())?;
    full_database(options, &ua, folder.path())
}

/// One run of many turns: what its turns cost, what it holds, what a resume of it costs.
fn long_run(options: &Options, ua: &Path, folder: &Path) -> anyhow::Result<()> {
    let turns = options.turns;
    let model = Model::start(turns)?;
    let mut child = Ua::start(
        ua,
        folder,
        &model,
        &[&["job", "job.json", "--root", "long", "--run-id", "run_long"], &MODEL[..]].concat(),
    )?;
    model.until(turns + 1, || child.lives())?;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()))?;
    let asked = model.asked();
    let window = (turns / 10).clamp(1, 100);
    let mean = |from: usize| since(asked[from], asked[from + window]) / as_f64(window);
    let (first, last) = (mean(0), mean(turns - window));
    println!("| a turn with one reading call over HTTP, the first {window} | {first:.2} ms |");
    println!("| the same, the last {window} of {turns} | {last:.2} ms, {:.2} × |", last / first);
    for (name, what) in [("VmRSS:", "memory of `ua` then"), ("VmHWM:", "the most it ever had")] {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        println!("| {what} | {} |", line.trim());
    }
    drop(child);
    let mut times = Vec::new();
    for _ in 0..options.rounds {
        let model = Model::start(0)?;
        let begun = Instant::now();
        let mut child = Ua::start(ua, folder, &model, &["resume", "run_long", "--root", "long"])?;
        times.push(since(begun, model.until(1, || child.lives())?));
    }
    println!("| `ua resume` of a run with {turns} settled calls, start to first byte | {:.1} ms |", median(times));
    Ok(())
}

/// A database with many runs: what questions about it take.
fn full_database(options: &Options, ua: &Path, folder: &Path) -> anyhow::Result<()> {
    let program = options.program.clone().map_or_else(built, Ok)?;
    let (root, runs) = (folder.join("full"), options.runs.to_string());
    let filled =
        Command::new(program).arg("calls").arg(&root).args(["1", &runs, "3000"]).stdout(Stdio::null()).status()?;
    ensure!(filled.success(), "the database was not filled: {filled}");
    for args in [&["runs", "list"][..], &["doctor"], &["questions"]] {
        let mut times = Vec::new();
        for _ in 0..options.rounds {
            let begun = Instant::now();
            let mut command = Command::new(ua);
            command
                .args(args)
                .args(["--root", "full/state"])
                .current_dir(folder)
                .stdin(Stdio::null())
                .env("HOME", folder);
            let output = command.output()?;
            times.push(since(begun, Instant::now()));
            let words = String::from_utf8_lossy(&output.stderr);
            ensure!(output.status.code().is_some_and(|code| code < 2), "`ua {}`: {words}", args.join(" "));
        }
        println!("| `ua {}` over {runs} runs | {:.1} ms |", args.join(" "), median(times));
    }
    Ok(())
}

/// A running `ua`; it is killed when it is not needed any more.
pub(super) struct Ua(Child, PathBuf);

impl Ua {
    pub(super) fn start(ua: &Path, folder: &Path, model: &Model, args: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(ua);
        command.args(args).current_dir(folder);
        command.env("ANTHROPIC_API_KEY", "sk-measured").env("ANTHROPIC_BASE_URL", &model.base_url).env("HOME", folder);
        let words = folder.join("stderr");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&words)?);
        Ok(Self(command.spawn().with_context(|| format!("start {}", ua.display()))?, words))
    }

    pub(super) fn lives(&mut self) -> anyhow::Result<()> {
        match self.0.try_wait()? {
            None => Ok(()),
            Some(status) => {
                bail!("`ua` ended before the model was asked: {status}; {}", std::fs::read_to_string(&self.1)?)
            }
        }
    }
}

impl Drop for Ua {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Milliseconds.
pub(super) fn since(begun: Instant, ended: Instant) -> f64 {
    ended.saturating_duration_since(begun).max(Duration::ZERO).as_secs_f64() * 1_000.0
}

fn as_f64(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
