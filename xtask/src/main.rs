//! Project automation: `cargo xtask acceptance`, `crash-matrix`, `crash-loop`, `findings`, `bench`, `arrows`.

#![expect(clippy::disallowed_methods, reason = "a harness measures real time")]
#![expect(clippy::print_stdout, reason = "a harness prints its report")]

mod acceptance;
mod arrows;
mod attacks;
mod bench;
#[cfg(test)]
mod ci_tests;
mod crash_loop;
mod crash_matrix;
#[cfg(test)]
mod docs_tests;
mod explore;
mod findings;
mod fleet;
mod fuzz;
mod made;
mod mutants;
mod outside;
mod part;
mod patched;
mod random;
mod reliability;
mod research_tree;
mod scenario;
mod serve;
mod sim;
mod storage;
mod surface;
mod third_party;
mod tools;

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
    /// Checks that the dependencies between crates point down, as the map in docs/architecture.md shows them
    Arrows,
    /// Cuts the power of a traced run at every sync and every effect, resumes each disk, and counts the effects
    PowerCut(storage::power_cut::Options),
    /// Makes each write, sync and truncation of the database fail once, goes on with a healthy disk, and counts the effects
    IoFaults(storage::io_faults::Options),
    /// Serves one receiver of the acceptance run (internal)
    #[command(hide = true)]
    Serve(serve::Options),
    /// Kills a runner, or its tool server, at every boundary of a turn for every class of tools, and counts effects from outside
    CrashMatrix(crash_matrix::Options),
    /// Kills the real program and its tool servers at random moments of a long mixed job, and counts effects from outside
    CrashLoop(crash_loop::Options),
    /// Kills one of several workers again and again while jobs keep coming, and counts effects from outside
    Fleet(fleet::Options),
    /// Plays each known way to repeat an effect, lose a person's word or charge wrongly against the program, and says which are left
    Findings(scenario::Options),
    /// Plays each known way to break out, in or away against the program with attackers of its own, and says which wall held
    Attacks(scenario::Options),
    /// Serves the tools of a findings scenario (internal)
    #[command(hide = true)]
    FindingsServer(scenario::server::ServerOptions),
    /// Plays whole runs in one process, with everything that can happen decided by a seed, and judges effects and records
    Sim(sim::Options),
    /// Walks every path through small scenes of the simulation that deviates from the plain one in at most so many steps
    Explore(explore::Options),
    /// Breaks rules on purpose, one after the other, and checks that a lane sees each
    Mutants(mutants::Options),
    /// Fuzzes each reader of foreign bytes for a while, where cargo-fuzz is installed
    Fuzz(fuzz::Options),
    /// Writes or checks the generated parts of docs/reliability.md and docs/mutants.md
    Reliability(reliability::Options),
    /// Runs the research job on a documentation tree of this machine, kills it while it crawls, and counts what the site was asked for
    ResearchTree(research_tree::Options),
    /// Measures on labelled tools how well tools are classified, and fails on an effect that would be repeated as a read
    Tools(tools::Options),
    /// Installs programs that others made, which some tests use where they are installed
    ThirdParty(third_party::Options),
    /// Builds the program of the five-minute page outside the workspace, kills it inside its tool, runs it again, and counts invoices
    Outside(outside::Options),
    /// Compares what a program finds in `ua-sdk` with the committed list, or writes the list
    Surface(surface::Options),
    /// Measures what a turn costs
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Serves the opaque tool server of the acceptance run (internal)
    #[command(hide = true)]
    OpaqueServer {
        /// The file that gets a line per effect
        #[arg(long)]
        log: PathBuf,
        /// Milliseconds between an effect and its answer
        #[arg(long, default_value_t = 0)]
        answer_after: u64,
    },
}

#[cfg(test)]
impl Cli {
    /// Whether what `--only` names is there, where that is known without running anything.
    fn chooses_something(&self) -> bool {
        if let Task::Acceptance(options) = &self.task {
            return options.choose_something();
        }
        if let Task::CrashMatrix(options) = &self.task {
            return options.choose_something();
        }
        true
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().task {
        Task::Acceptance(options) => acceptance::run(&options),
        Task::Arrows => arrows::run(),
        Task::PowerCut(options) => storage::power_cut::run(&options),
        Task::IoFaults(options) => storage::io_faults::run(&options),
        Task::Serve(options) => serve::run(options),
        Task::CrashMatrix(options) => crash_matrix::run(&options),
        Task::CrashLoop(options) => crash_loop::run(&options),
        Task::Fleet(options) => fleet::run(&options),
        Task::Findings(options) => findings::run(&options),
        Task::Attacks(options) => attacks::run(&options),
        Task::FindingsServer(options) => scenario::server::serve_stdio(&options),
        Task::Sim(options) => sim::run(&options),
        Task::Explore(options) => explore::run(&options),
        Task::Mutants(options) => mutants::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Reliability(options) => reliability::run(&options),
        Task::ResearchTree(options) => research_tree::run(&options),
        Task::Tools(options) => tools::run(&options),
        Task::ThirdParty(options) => third_party::run(&options),
        Task::Outside(options) => outside::run(&options),
        Task::Surface(options) => surface::run(&options),
        Task::Bench(bench) => bench::run(&bench),
        Task::OpaqueServer { log, answer_after } => {
            let answer_after = std::time::Duration::from_millis(answer_after);
            ua_testkit::serve_opaque_slowly(&log, answer_after).map_err(anyhow::Error::from)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
