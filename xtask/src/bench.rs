//! Benchmarks of promises that are about cost.

mod calls;
mod client;
mod fleet;
mod gateway;
mod instructions;
mod model;
mod peers;
mod sandbox;
mod start;

use clap::Subcommand;

/// What to measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// What a turn with one effect costs the shipped worker, beside the disk's own speed
    Calls(calls::Options),
    /// How long `ua` takes to be at work, what a run of thousands of turns holds, and what thousands of runs cost
    Start(start::Options),
    /// What the walls around a program of `run_command` cost a call
    Sandbox(sandbox::Options),
    /// What turns, claims and takeovers cost on a PostgreSQL server, beside what the server itself can do
    Fleet(fleet::Options),
    /// What the gateway adds to a call, and what many clients at once get of it
    Gateway(gateway::Options),
    /// How many instructions a turn takes, which is the same on a busy machine as on a quiet one
    Instructions(instructions::Options),
    /// What a step costs in durare, DBOS and LangGraph, in the same rounds; each is installed where that is possible
    Peers(peers::Options),
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    match bench {
        Bench::Calls(options) => calls::run(options),
        Bench::Start(options) => start::run(options),
        Bench::Sandbox(options) => sandbox::run(options),
        Bench::Fleet(options) => fleet::run(options),
        Bench::Gateway(options) => gateway::run(options),
        Bench::Instructions(options) => instructions::run(options),
        Bench::Peers(options) => peers::run(options),
    }
}
