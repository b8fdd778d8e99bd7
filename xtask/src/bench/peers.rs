//! What a step costs in other engines that keep their state on this machine's disk, in the same rounds as the floor and our own turns.
//!
//! Their programs (`xtask/peers`) do the least that each of them makes durable: one step that returns a short text. A turn of ours is more: a
//! request, a reply, a plan, a send, a receipt and a commit, whose loss nobody repeats. What a peer does with a step that was under way when
//! its process died is not measured here; each of them runs it again.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::calls::{built, floor_of, median, number_of, turn_of};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many steps each takes
    #[arg(long, default_value_t = 300)]
    steps: u32,
    /// How often everything is measured, one after the other; the median counts
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Where the peers are installed, and stay for the next time
    #[arg(long, value_name = "DIR", default_value = "target/peers")]
    peers: PathBuf,
    /// A program that was built before (`call_bench`); it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

/// What is installed, by its version: a comparison says which.
const PACKAGES: [&str; 4] =
    ["dbos==3.4.0", "pysqlite3-binary==0.5.4.post2", "langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2"];

/// A way to take steps: its name, its setting, and the words that begin its program.
struct Peer {
    name: &'static str,
    setting: &'static str,
    program: Vec<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let ours = options.program.clone().map_or_else(built, Ok)?;
    std::fs::create_dir_all(&options.peers)?;
    let folder = options.peers.canonicalize()?;
    let mut peers = Vec::new();
    for (what, installed) in [("durare", durare(&folder)), ("DBOS and LangGraph", pythons(&folder))] {
        match installed {
            Ok(installed) => peers.extend(installed),
            Err(why) => ua_testkit::skipped(&format!("{what} could not be installed: {why:#}")),
        }
    }
    let (mut floors, mut turns) = (Vec::new(), Vec::new());
    let mut steps: Vec<Vec<f64>> = peers.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        let state = tempfile::tempdir()?;
        let path = |name: &str| state.path().join(name).display().to_string();
        let count = options.steps.to_string();
        floors.push(floor_of(&ours, &path("floor"), &count)?);
        turns.push(turn_of(&ours, &path("ours"), &count)?);
        for (peer, steps) in peers.iter().zip(&mut steps) {
            let own = path(peer.name);
            std::fs::create_dir(&own)?;
            steps.push(peer.micros_a_step(&own, options.steps)?);
        }
        eprintln!("round {round} of {}", options.rounds);
    }
    let floor = median(floors);
    println!("| what | stored | a step | steps of the floor in that time | syncs a step |");
    println!("|---|---|---|---|---|");
    println!(
        "| the floor: two synced commits of one row | SQLite, WAL, FULL | {:.2} ms | 1.0 | 2.0 |",
        floor / 1_000.0
    );
    let turn = median(turns);
    println!(
        "| `ua`: a turn with one effect | SQLite, WAL, FULL | {:.2} ms | {:.1} | 2.0 |",
        turn / 1_000.0,
        turn / floor
    );
    for (peer, steps) in peers.iter().zip(steps) {
        let step = median(steps);
        let syncs = peer.syncs_a_step()?.map_or_else(|| "not counted".to_owned(), |syncs| format!("{syncs:.1}"));
        let (name, setting) = (peer.name, peer.setting);
        println!("| {name}: a step | {setting} | {:.2} ms | {:.1} | {syncs} |", step / 1_000.0, step / floor);
    }
    Ok(())
}

impl Peer {
    fn command(&self, before: &[&str], folder: &str, steps: u32) -> Command {
        let mut words = before.iter().map(PathBuf::from).chain(self.program.iter().cloned());
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg(folder).arg(steps.to_string()).stdin(Stdio::null());
        command
    }

    fn micros_a_step(&self, folder: &str, steps: u32) -> anyhow::Result<f64> {
        let output = self.command(&[], folder, steps).output().with_context(|| format!("run {}", self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        let micros = text.lines().last().and_then(|line| line.trim().parse::<f64>().ok());
        Ok(micros.with_context(|| format!("{} said {text:?}", self.name))? / f64::from(steps))
    }

    /// Counted by `strace` in two runs, so that what a start syncs is in both; nothing where it is not installed.
    fn syncs_a_step(&self) -> anyhow::Result<Option<f64>> {
        let count = |steps: u32| -> anyhow::Result<Option<f64>> {
            let state = tempfile::tempdir()?;
            let log = state.path().join("strace").display().to_string();
            let before = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", &log];
            let Ok(output) = self.command(&before, &state.path().display().to_string(), steps).output() else {
                return Ok(None);
            };
            ensure!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
            Ok(Some(number_of(std::fs::read_to_string(&log)?.matches("sync(").count())))
        };
        let (Some(few), Some(many)) = (count(20)?, count(120)?) else { return Ok(None) };
        Ok(Some((many - few) / 100.0))
    }
}

/// Built beside the workspace, from a manifest of its own.
fn durare(folder: &Path) -> anyhow::Result<Vec<Peer>> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/durare");
    let sources = folder.join("durare");
    std::fs::create_dir_all(sources.join("src"))?;
    for file in ["Cargo.toml", "src/main.rs"] {
        std::fs::copy(manifest.join(file), sources.join(file)).with_context(|| format!("copy {file}"))?;
    }
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(["build", "--release", "--quiet", "--target-dir"]).arg(folder.join("target")).current_dir(&sources);
    ensure!(command.status()?.success(), "it does not build");
    let program = vec![folder.join("target/release/durare-steps")];
    Ok(vec![Peer { name: "durare", setting: "SQLite, WAL, FULL (its default is NORMAL)", program }])
}

/// Installed into an environment of their own.
fn pythons(folder: &Path) -> anyhow::Result<Vec<Peer>> {
    let environment = folder.join("python");
    let python = environment.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv"]).arg(&environment).status()?;
        ensure!(made.success(), "`python3 -m venv` ended with {made}");
    }
    let installed = Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES).status()?;
    ensure!(installed.success(), "pip ended with {installed}");
    let script = |name: &str| vec![python.clone(), Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)];
    Ok(vec![
        Peer { name: "DBOS", setting: "SQLite, its own settings", program: script("dbos_steps.py") },
        Peer {
            name: "LangGraph",
            setting: "SQLite, WAL, FULL; durability `sync`",
            program: script("langgraph_steps.py"),
        },
    ])
}
