//! A turn late in a long run costs what an early one did.
//!
//! The turns are taken by the shipped worker, in `ua-testkit`'s example `turn_bench`. Syncs are counted from outside with `strace`, by the path of the file
//! that was synced; where that is not installed or not allowed, by the store's own count of synced transactions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use ua_testkit::example_program;

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many turns the run takes
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1_300..))]
    turns: u32,
    /// How many turns are measured around each point
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=250))]
    window: u32,
    /// Fail when the last turns cost more than this many times the first ones, in time or bytes
    #[arg(long, default_value_t = 2.0)]
    most: f64,
    /// Where the database is made; a folder of the system's temporary one when missing
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// One measured turn.
struct Turn {
    number: u64,
    has_effect: bool,
    micros: u64,
    bytes: u64,
    synced: u64,
    from: u64,
    to: u64,
}

/// A sync that was seen from outside.
struct Sync {
    at: u64,
    /// Of the database file itself: a checkpoint of the write-ahead log, which also synced the log.
    is_checkpoint: bool,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let program = example_program("turn_bench");
    let folder = match &options.folder {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let trace = folder.path().join("syncs");
    let can_trace = Command::new("strace")
        .args(["-f", "-qq", "-e", "trace=fsync", "-o"])
        .arg(&trace)
        .arg("true")
        .status()
        .is_ok_and(|status| status.success());
    let output = take_turns(&program, folder.path(), options, can_trace.then_some(trace.as_path()))?;
    let (turns, size) = read_turns(&output)?;
    let syncs = if can_trace { read_syncs(&std::fs::read_to_string(&trace)?) } else { Vec::new() };
    let counted = if can_trace {
        "counted from outside: strace -f -y -e fsync,fdatasync"
    } else {
        "counted by the store: strace is missing or may not trace here"
    };
    println!("{} turns, a database of {} KiB; syncs {counted}\n", options.turns, size / 1024);
    println!("| turns | kind | ms a turn | KiB written a turn | syncs a turn | and checkpoints of the log, in all |");
    println!("|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for start in [10, 1_000, u64::from(options.turns - options.window) + 1] {
        for has_effect in [true, false] {
            let window = start..start + u64::from(options.window);
            let own = turns.iter().filter(|turn| window.contains(&turn.number) && turn.has_effect == has_effect);
            let row = Row::of(&own.collect::<Vec<_>>(), &syncs, can_trace);
            let kind = if has_effect { "one effect, one read" } else { "two reads" };
            println!(
                "| {start}–{} | {kind} | {:.2} | {:.1} | {:.2} | {} |",
                window.end - 1,
                row.millis,
                row.kib,
                row.syncs,
                row.checkpoints
            );
            rows.push(row);
        }
    }
    let ratio = |last: f64, first: f64| if first > 0.0 { last / first } else { 1.0 };
    let mut worst: f64 = 0.0;
    println!();
    for (kind, first, last) in [("one effect, one read", &rows[0], &rows[4]), ("two reads", &rows[1], &rows[5])] {
        let (time, bytes) = (ratio(last.millis, first.millis), ratio(last.kib, first.kib));
        println!("{kind}: last : first = {time:.2} in time, {bytes:.2} in bytes (at most {:.2})", options.most);
        worst = worst.max(time).max(bytes);
        let wanted = if kind.starts_with("one") { 2.0 } else { 0.0 };
        for row in [first, last] {
            ensure!((row.syncs - wanted).abs() < 0.2, "a turn of {kind} syncs {:.2} times and not {wanted}", row.syncs);
        }
    }
    ensure!(worst <= options.most, "a turn costs {worst:.2} times what it did at the start");
    Ok(())
}

/// The time of a turn that a fifth of the window's turns beat, so that a busy machine does not decide; bytes and syncs on
/// average.
struct Row {
    millis: f64,
    kib: f64,
    syncs: f64,
    checkpoints: usize,
}

impl Row {
    fn of(turns: &[&Turn], syncs: &[Sync], can_trace: bool) -> Self {
        let count = float(turns.len().max(1) as u64);
        let mut micros: Vec<u64> = turns.iter().map(|turn| turn.micros).collect();
        micros.sort_unstable();
        let is_within = |sync: &&Sync| turns.iter().any(|turn| (turn.from..=turn.to).contains(&sync.at));
        let seen: Vec<&Sync> = syncs.iter().filter(is_within).collect();
        let checkpoints = seen.iter().filter(|sync| sync.is_checkpoint).count();
        let own = if can_trace {
            // A checkpoint syncs the log before it copies pages, and the database after.
            float(seen.len().saturating_sub(2 * checkpoints) as u64)
        } else {
            float(turns.iter().map(|turn| turn.synced).sum())
        };
        Self {
            millis: float(micros.get(micros.len() / 5).copied().unwrap_or(0)) / 1_000.0,
            kib: float(turns.iter().map(|turn| turn.bytes).sum()) / 1_024.0 / count,
            syncs: own / count,
            checkpoints,
        }
    }
}

/// None of these numbers comes near four thousand million.
fn float(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

fn take_turns(program: &Path, folder: &Path, options: &Options, trace: Option<&Path>) -> anyhow::Result<String> {
    let mut command = match trace {
        Some(trace) => {
            let mut command = Command::new("strace");
            command.args(["-f", "--seccomp-bpf", "-qq", "-y", "-ttt", "-e", "trace=fsync,fdatasync", "-o"]);
            command.arg(trace).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.arg(folder.join("run")).arg(options.turns.to_string()).arg(options.window.to_string());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("take the turns")?;
    ensure!(output.status.success(), "the turns ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

fn read_turns(output: &str) -> anyhow::Result<(Vec<Turn>, u64)> {
    let (mut turns, mut size) = (Vec::new(), 0);
    for line in output.lines() {
        let value: Value = serde_json::from_str(line)?;
        let number = |name: &str| value[name].as_u64().with_context(|| format!("`{name}` is missing in {line}"));
        if value["database_bytes"].is_u64() {
            size = number("database_bytes")?;
            continue;
        }
        turns.push(Turn {
            number: number("turn")?,
            has_effect: value["has_effect"] == true,
            micros: number("micros")?,
            bytes: number("bytes")?,
            synced: number("synced")?,
            from: number("from")?,
            to: number("to")?,
        });
    }
    Ok((turns, size))
}

/// Reads lines like `123 1763701234.567890 fsync(5</tmp/x/runtime_state.db-wal>) = 0`.
fn read_syncs(trace: &str) -> Vec<Sync> {
    let read = |line: &str| {
        let mut words = line.split_whitespace();
        let (seconds, micros) = words.nth(1)?.split_once('.')?;
        let call = words.next().filter(|call| call.starts_with("fsync(") || call.starts_with("fdatasync("))?;
        let at = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        Some(Sync { at, is_checkpoint: call.contains("runtime_state.db>") })
    };
    trace.lines().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_read_with_its_moment_and_its_file() {
        let trace = "17 1763701234.000012 fsync(5</tmp/x/runtime_state.db-wal>) = 0\n\
                     17 1763701235.500000 fdatasync(4</tmp/x/runtime_state.db>) = 0\n\
                     17 1763701236.000000 <... fsync resumed>) = 0\n";
        let syncs = read_syncs(trace);
        let read: Vec<(u64, bool)> = syncs.iter().map(|sync| (sync.at, sync.is_checkpoint)).collect();
        assert_eq!(read, [(1_763_701_234_000_012, false), (1_763_701_235_500_000, true)]);
    }
}
