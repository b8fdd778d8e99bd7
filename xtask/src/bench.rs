//! Benchmarks of promises that are about cost.

mod turns;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time, syncs and bytes that a turn costs in the ledger and the store, early and late in a long run
    Turns(turns::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Turns(options) => turns::run(options),
    }
}
