//! Project automation: `cargo xtask acceptance`, `cargo xtask arrows`.

#![expect(clippy::disallowed_methods, reason = "a harness measures real time")]
#![expect(clippy::print_stdout, reason = "a harness prints its report")]

mod acceptance;
mod arrows;
mod random;
mod serve;
mod storage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Automation of this repository.
#[derive(Debug, Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Kills the research job at every stage and at random moments, resumes it, and counts its effects from outside
    Acceptance(acceptance::Options),
    /// Compares the dependencies between crates with the map in docs/architecture.md
    Arrows,
    /// Cuts the power of a traced run at every sync and every effect, resumes each disk, and counts the effects
    PowerCut(storage::power_cut::Options),
    /// Makes each write, sync and truncation of the database fail once, goes on with a healthy disk, and counts the effects
    IoFaults(storage::io_faults::Options),
    /// Serves one receiver of the acceptance run (internal)
    #[command(hide = true)]
    Serve(serve::Options),
    /// Serves the opaque tool server of the acceptance run (internal)
    #[command(hide = true)]
    OpaqueServer {
        /// The file that gets a line per effect
        #[arg(long)]
        log: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Acceptance(options) => acceptance::run(&options),
        Task::Arrows => arrows::run(),
        Task::PowerCut(options) => storage::power_cut::run(&options),
        Task::IoFaults(options) => storage::io_faults::run(&options),
        Task::Serve(options) => serve::run(options),
        Task::OpaqueServer { log } => ua_testkit::serve_opaque(&log).map_err(anyhow::Error::from),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
