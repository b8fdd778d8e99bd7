//! Failing system calls: the n-th write, sync or truncation of a database file fails, for every n until none is left; then the
//! run goes on with a healthy disk, and the effects are counted from outside.
//!
//! Invariants: no dispatch after a failed intent, no exit code 0 after a failure that lost something, each effect once in the
//! end. `strace` makes the call fail before it does anything.

use std::process::Command;
use std::time::Instant;

use anyhow::ensure;

use super::comments::{Bench, Forum};
use super::{can_trace, progress};

/// How to run it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only every n-th position
    #[arg(long, default_value_t = 1)]
    stride: u32,
}

/// What fails, and how.
const FAULTS: [(&str, &str); 4] =
    [("pwrite64", "EIO"), ("pwrite64", "ENOSPC"), ("fsync,fdatasync", "EIO"), ("ftruncate", "EIO")];
/// More positions than a run of the job has.
const MOST: u32 = 2_000;

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !can_trace() {
        return Ok(());
    }
    let started = Instant::now();
    let bench = Bench::new()?;
    let (mut positions, mut stopped, mut asked, mut wrong) = (0_u32, 0, 0, 0);
    for (calls, error) in FAULTS {
        for n in (1..MOST).step_by(options.stride.max(1) as usize) {
            progress(&format!("{calls} fails with {error}, position {n}"));
            let (world, model) = (Forum::new()?, bench.model()?);
            let trace = world.path("trace.txt");
            let mut strace = Command::new("strace");
            strace.args(["-f", "-o"]).arg(&trace);
            strace.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:error={error}:when={n}")]);
            for name in ["runtime_state.db", "runtime_state.db-wal"] {
                strace.arg("-P").arg(world.root().join(name));
            }
            let first = bench.live(&world, &model, Some(strace))?;
            if !std::fs::read_to_string(&trace)?.contains("(INJECTED)") {
                ensure!(n > 1, "no call of {calls} was made on the database");
                break;
            }
            positions += 1;
            stopped += u32::from(!first.success());
            // A fault that the database took in its stride (a checkpoint that is done again later) may leave the run whole.
            let is_known_code = matches!(first.code(), Some(0 | 74));
            let before = world.counts();
            let ended = bench.finish(&world, &model, |_| false)?;
            asked += u32::from(ended.asked > 0);
            if !ended.is_right() || !is_known_code {
                wrong += 1;
                eprintln!(
                    "\n{calls} {error} at {n}: first exit {:?} with {before:?}, then exit {:?} with {:?}\n{}",
                    first.code(),
                    ended.code,
                    ended.counts,
                    world.log()
                );
            }
        }
    }
    eprintln!();
    println!(
        "{positions} failing system calls, {:.0} s: {stopped} stopped the run, {asked} asked a person afterwards, {wrong} not exactly once",
        started.elapsed().as_secs_f64(),
    );
    ensure!(wrong == 0, "the promise does not hold");
    Ok(())
}
