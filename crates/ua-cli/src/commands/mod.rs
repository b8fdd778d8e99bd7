//! One command, one file.

mod accept;
mod answer;
mod ask;
mod ask_live;
mod audit;
mod calls;
mod cancel;
mod completions;
mod config;
mod crew;
mod db;
mod delete;
mod diff;
mod doctor;
mod execute;
mod export;
mod fork;
mod job;
mod lineage;
mod models;
mod pins;
mod probe;
mod prune;
mod resume;
mod runs;
mod schema;
mod summary;
mod tail;
mod tools;
mod tree;
mod trust;
mod turns;

use std::process::ExitCode;

use crate::args::{Cli, Command, ShimArgs};
use crate::error::CliError;
use crate::home::Home;

pub(crate) use summary::word;

/// Runs a command and returns its exit code.
pub(crate) async fn run(cli: Cli) -> Result<u8, CliError> {
    let home = Home::new(cli.root.as_deref())?;
    match cli.command {
        Command::Job(args) => Box::pin(job::run(&home, args)).await,
        Command::Resume(args) => resume::run(&home, args).await,
        Command::Fork(args) => Box::pin(fork::run(&home, *args)).await,
        Command::Runs(command) => runs::run(&home, command).await,
        Command::Calls(command) => calls::run(&home, command).await,
        Command::Questions(args) => answer::list(&home, args).await,
        Command::Answer(args) => answer::run(&home, args).await,
        Command::Turns(command) => turns::run(&home, command).await,
        Command::Tools(command) => tools::run(&home, command).await,
        Command::Models(command) => models::run(&command),
        Command::Config(command) => config::run(cli.root.as_deref(), cli.color, &command),
        Command::Trust(args) => trust::run(&args).await,
        Command::Doctor(args) => doctor::run(&home, cli.root.as_deref(), &args).await,
        Command::Completions(args) => completions::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Db(command) => db::run(&home, command).await,
        #[cfg(feature = "toolserver")]
        Command::Toolserver(mut settings) => {
            settings.adopt_parent = crate::telemetry::adopt_parent();
            settings.confiner = crate::sandbox::confiner();
            settings.pdf = crate::parts::pdf();
            match ua_toolserver::serve(*settings).await {
                Ok(()) => Ok(crate::error::OK),
                Err(error) => Err(CliError::new(crate::error::FAILED, crate::error::chain(&error))),
            }
        }
        Command::GatewayBridge(_) => Err(CliError::usage("the bridge is started by an agent that the runner started")),
        Command::Shim(_) => Err(CliError::usage("the shim is started by the runner only")),
    }
}

/// Stands between the runner and one tool server.
pub(crate) fn shim(args: ShimArgs) -> ExitCode {
    ExitCode::from(u8::try_from(ua_mcp::run_shim(args.args)).unwrap_or(1))
}

/// Stands between an agent that owns its loop and the process that drives the run.
pub(crate) fn gateway_bridge(args: ShimArgs) -> ExitCode {
    ExitCode::from(u8::try_from(ua_claude_code::run_bridge(args.args)).unwrap_or(1))
}
