//! How many instructions a turn takes in this program's own code and in its libraries, counted by valgrind: a figure that other work on the machine
//! does not change, so that CI can compare it. What the kernel does is not in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};

use super::calls::built;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A program that was built before (`call_bench`); it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Fail when a turn takes more than 5 % more than what this file says, in thousands of instructions
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Write what a turn takes into this file
    #[arg(long, value_name = "FILE", conflicts_with = "compare")]
    write: Option<PathBuf>,
}

/// Turns of the two runs whose difference counts: what a start and an end cost is in both.
const TURNS: [u64; 2] = [100, 200];

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        ua_testkit::skipped("valgrind is not installed, so that no instructions were counted");
        return Ok(());
    }
    let program = options.program.clone().map_or_else(built, Ok)?;
    let [fewer, more] = TURNS;
    let (before, after) = (count(&program, fewer)?, count(&program, more)?);
    let thousands = after.saturating_sub(before) / (more - fewer) / 1_000;
    println!("a turn with one effect: {thousands} thousand instructions");
    if let Some(file) = &options.write {
        std::fs::write(file, format!("{thousands}\n"))?;
    }
    if let Some(file) = &options.compare {
        let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let known: u64 = text.trim().parse().with_context(|| format!("{} has no number", file.display()))?;
        ensure!(
            thousands * 100 <= known * 105,
            "a turn takes {thousands} thousand instructions, and {known} thousand are what {} allows, and 5 %; where that is meant, `--write` it",
            file.display()
        );
    }
    Ok(())
}

/// The instructions of a run of so many turns.
fn count(program: &Path, turns: u64) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
    command.arg("counted").arg(folder.path().join("calls")).arg(turns.to_string());
    let output = command.output().context("run valgrind")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{words}");
    let line = words.lines().find(|line| line.contains("Collected")).context("valgrind counted nothing")?;
    let number = line.rsplit(':').next().unwrap_or_default().trim().replace(',', "");
    number.parse().with_context(|| format!("valgrind says {line:?}"))
}
