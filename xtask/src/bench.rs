//! Benchmarks of promises that are about cost.

mod calls;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a turn with one effect costs the shipped worker, beside the disk's own speed
    Calls(calls::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Calls(options) => calls::run(options),
    }
}
