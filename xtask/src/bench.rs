//! Benchmarks of promises that are about cost.

mod calls;
mod instructions;
mod model;
mod start;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a turn with one effect costs the shipped worker, beside the disk's own speed
    Calls(calls::Options),
    /// How long `ua` takes to be at work, what a run of thousands of turns holds, and what thousands of runs cost
    Start(start::Options),
    /// How many instructions a turn takes, which is the same on a busy machine as on a quiet one
    Instructions(instructions::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Calls(options) => calls::run(options),
        Bench::Start(options) => start::run(options),
        Bench::Instructions(options) => instructions::run(options),
    }
}
