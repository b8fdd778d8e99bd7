//! What a turn with one effect costs the shipped worker, beside what the disk can do.
//!
//! The turns are taken by `ua-testkit`'s example `call_bench`, in a release build. The floor, two synced commits of one row a step, is measured
//! in the same rounds: a disk is faster at one minute than at another.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::model::{Asks, Model};
use super::start::{JOB, MODEL, Ua, since};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many turns a run takes
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(20..))]
    turns: u32,
    /// How many turns are compared at the beginning and at the end of a run
    #[arg(long, default_value_t = 100)]
    window: u32,
    /// The most tokens of history that a request carries
    #[arg(long, default_value_t = 3_000)]
    history: u64,
    /// How many bytes of text each reply has besides
    #[arg(long, default_value_t = 0)]
    text: u32,
    /// How many runs work at once in one process
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// How often floor and turns are measured, one after the other; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Where the databases are made; a folder of the system's temporary one when missing
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// A program that was built before; it is built for release when missing
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
    /// Measure this `ua` as well, in the same rounds: one run, with its tool server over stdio and a model over HTTP
    #[arg(long, value_name = "PATH")]
    ua: Option<PathBuf>,
    /// Fail when the last turns cost more than this many times the first ones, in time or bytes
    #[arg(long)]
    most: Option<f64>,
}

/// What one round measured, on average over its turns.
#[derive(Debug, Clone, Copy, Default)]
struct Round {
    floor_micros: f64,
    turn_micros: f64,
    cpu_micros: f64,
    pages: f64,
    synced: f64,
    transactions: f64,
    /// Last turns to first ones.
    growth_in_time: f64,
    growth_in_bytes: f64,
    /// Of all runs together.
    calls_a_second: f64,
    /// What a turn of the whole program takes.
    whole_micros: f64,
    /// How fast they are, to as many tasks that only commit what they committed.
    to_submitters: f64,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = options.program.clone().map_or_else(built, Ok)?;
    let mut rounds = Vec::new();
    let mut resident = String::new();
    for round in 1..=options.rounds {
        let folder = match &options.folder {
            Some(folder) => tempfile::tempdir_in(folder)?,
            None => tempfile::tempdir()?,
        };
        let steps = options.turns.to_string();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let before = lines(&program, &["floor", &path("before"), &steps])?;
        let history = options.history.to_string();
        let runs = options.runs.to_string();
        let text = options.text.to_string();
        let turns = lines(&program, &["calls", &path("calls"), &steps, &runs, &history, &text])?;
        let after = lines(&program, &["floor", &path("after"), &steps])?;
        let floor: Vec<f64> = before.iter().chain(&after).filter_map(|line| number(line, "micros")).collect();
        let last = turns.last().context("the turns said nothing")?;
        last["most_resident"].as_str().unwrap_or_default().clone_into(&mut resident);
        let mut measured = Round::of(&floor, &turns, options)?;
        if options.runs > 1 {
            let both = lines(&program, &["submitters", &path("submitters"), &steps, &runs, &history])?;
            let of =
                |name: &str| both.last().and_then(|line| number(line, name)).context("the submitters said nothing");
            measured.to_submitters = of("submitted_micros")? / of("worked_micros")?;
        }
        if let Some(ua) = &options.ua {
            measured.whole_micros = whole(ua, folder.path(), options.turns as usize)?;
        }
        eprintln!("round {round}: {measured:?}");
        rounds.push(measured);
    }
    report(options, &rounds, &resident)
}

fn report(options: &Options, rounds: &[Round], resident: &str) -> anyhow::Result<()> {
    let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let (floor, turn) = (of(|round| round.floor_micros), of(|round| round.turn_micros));
    println!("| what | median of {} |", options.rounds);
    println!("|---|---|");
    println!("| the floor: a step of two synced commits | {:.3} ms |", floor / 1_000.0);
    if options.runs == 1 {
        println!("| a turn with one effect | {:.3} ms |", turn / 1_000.0);
        println!("| the same without the time of two commits | {:.3} ms |", (turn - floor) / 1_000.0);
        println!("| turns to steps of the floor | {:.3} |", floor / turn);
        println!("| CPU of a turn | {:.3} ms |", of(|round| round.cpu_micros) / 1_000.0);
        println!("| pages of 4 KiB written, a turn | {:.1} |", of(|round| round.pages));
        println!("| synced transactions, a turn | {:.2} |", of(|round| round.synced));
        println!("| transactions, a turn | {:.2} |", of(|round| round.transactions));
        let (time, bytes) = (of(|round| round.growth_in_time), of(|round| round.growth_in_bytes));
        println!("| the last {} turns to the first: time | {time:.2} |", options.window);
        println!("| the last {} turns to the first: bytes | {bytes:.2} |", options.window);
        if let Some(most) = options.most {
            ensure!(time <= most && bytes <= most, "the last turns cost more than {most} times the first ones");
        }
    }
    if options.ua.is_some() {
        let whole = of(|round| round.whole_micros);
        println!("| a turn of `ua`, a tool server over stdio and a model over HTTP | {:.3} ms |", whole / 1_000.0);
        println!("| the same to steps of the floor | {:.3} |", floor / whole);
    }
    if options.runs > 1 {
        let of = of(|round| round.to_submitters);
        println!("| {} runs to as many tasks that only commit the same batches | {of:.2} |", options.runs);
    }
    println!("| calls a second, of {} run(s) | {:.0} |", options.runs, of(|round| round.calls_a_second));
    println!("| most memory | {resident} |");
    Ok(())
}

impl Round {
    fn of(floor: &[f64], lines: &[Value], options: &Options) -> anyhow::Result<Self> {
        let turns: Vec<&Value> = lines.iter().filter(|line| line["turn"].is_u64()).collect();
        let mean = |turns: &[&Value], name: &str| {
            let values: Vec<f64> = turns.iter().filter_map(|line| number(line, name)).collect();
            values.iter().sum::<f64>() / number_of(values.len().max(1))
        };
        ensure!(turns.len() + 1 >= options.turns as usize, "only {} turns were measured", turns.len());
        let window = (options.window as usize).min(turns.len() / 2).max(1);
        let (first, last) = (&turns[..window], &turns[turns.len() - window..]);
        let all = lines.last().and_then(|line| number(line, "all_micros")).context("the end says no time")?;
        let taken = f64::from(options.turns) * f64::from(options.runs);
        Ok(Self {
            floor_micros: floor.iter().sum::<f64>() / number_of(floor.len().max(1)),
            turn_micros: mean(&turns, "micros"),
            cpu_micros: mean(&turns, "cpu_micros"),
            pages: mean(&turns, "bytes") / 4_096.0,
            synced: mean(&turns, "synced"),
            transactions: mean(&turns, "transactions"),
            growth_in_time: mean(last, "micros") / mean(first, "micros"),
            growth_in_bytes: mean(last, "bytes") / mean(first, "bytes"),
            calls_a_second: taken / (all / 1_000_000.0),
            whole_micros: 0.0,
            to_submitters: 0.0,
        })
    }
}

/// What a turn with one effect takes the real program, in microseconds: from one request that comes to its model to the next.
fn whole(ua: &Path, folder: &Path, turns: usize) -> anyhow::Result<f64> {
    let ua = ua.canonicalize().with_context(|| format!("find {}", ua.display()))?;
    std::fs::write(folder.join("job.json"), JOB)?;
    let model = Model::asking(Asks::Mail, turns)?;
    let mut child = Ua::start(&ua, folder, &model, &[&["job", "job.json", "--root", "whole"], &MODEL[..]].concat())?;
    model.until(turns + 1, || child.lives())?;
    let asked = model.asked();
    Ok(since(asked[1], asked[turns]) * 1_000.0 / number_of(turns - 1))
}

/// What a step of the floor takes, in microseconds.
pub(super) fn floor_of(program: &Path, folder: &str, steps: &str) -> anyhow::Result<f64> {
    Ok(mean(&lines(program, &["floor", folder, steps])?))
}

/// What a turn with one effect takes, with a window of 3,000 tokens.
pub(super) fn turn_of(program: &Path, folder: &str, turns: &str) -> anyhow::Result<f64> {
    let lines = lines(program, &["calls", folder, turns, "1", "3000"])?;
    Ok(mean(&lines.into_iter().filter(|line| line["turn"].is_u64()).collect::<Vec<_>>()))
}

fn mean(lines: &[Value]) -> f64 {
    let micros: Vec<f64> = lines.iter().filter_map(|line| number(line, "micros")).collect();
    micros.iter().sum::<f64>() / number_of(micros.len().max(1))
}

fn number(line: &Value, name: &str) -> Option<f64> {
    line[name].as_f64()
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// No count here comes near four thousand million.
pub(super) fn number_of(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The program that takes the turns, built for release.
pub(super) fn built() -> anyhow::Result<PathBuf> {
    let mut command = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    command.args(["build", "--release", "--locked", "-p", "ua-testkit", "--example", "call_bench"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command.stderr(Stdio::inherit()).output().context("build the program that takes the turns")?;
    ensure!(output.status.success(), "cargo ended with {}", output.status);
    let read = |line: &str| serde_json::from_str::<Value>(line).ok()?["executable"].as_str().map(PathBuf::from);
    String::from_utf8(output.stdout)?.lines().filter_map(read).next_back().context("cargo built no program")
}

fn lines(program: &Path, words: &[&str]) -> anyhow::Result<Vec<Value>> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("run {}", program.display()))?;
    ensure!(output.status.success(), "`{}` ended with {}", words.join(" "), output.status);
    let text = String::from_utf8(output.stdout)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_turns_are_compared_with_the_first() {
        let mut lines: Vec<Value> = (1..=40)
            .map(|turn| json!({"turn": turn, "micros": if turn > 20 { 30 } else { 10 }, "bytes": 4096, "synced": 2}))
            .collect();
        lines.push(json!({"all_micros": 1_000_000}));
        let options = Options {
            turns: 40,
            window: 10,
            history: 1,
            text: 0,
            runs: 1,
            rounds: 1,
            folder: None,
            program: None,
            ua: None,
            most: None,
        };
        let round = Round::of(&[5.0, 7.0], &lines, &options).unwrap();
        let shown = format!("{:.1} {:.1} {:.1}", round.floor_micros, round.turn_micros, round.growth_in_time);
        assert_eq!(shown, "6.0 20.0 3.0");
        let shown = format!("{:.1} {:.1} {:.1}", round.pages, round.growth_in_bytes, round.calls_a_second);
        assert_eq!(shown, "1.0 1.0 40.0");
    }
}
