//! The composition root of `ua`: arguments, configuration, wiring, exit codes.
//!
//! The only crate that names a provider, reads the environment or chooses an exit code. Everything it wires together is
//! usable without it.
//!
//! ```
//! use clap::Parser as _;
//!
//! let cli = ua_cli::Cli::try_parse_from(["ua", "runs", "list", "--json"]).unwrap();
//! assert!(matches!(cli.command, ua_cli::Command::Runs(_)));
//! ```

mod alert;
mod args;
mod budgets;
mod commands;
mod compose;
mod crash_points;
mod env;
mod error;
mod find;
mod home;
mod output;
mod pricing;
mod progress;
mod restart;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;

pub use args::{Cli, Command};

/// Runs the command line and returns its exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // clap's own code for a usage error is 2, and 0 for help and version.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(_) => ExitCode::from(2),
            };
        }
    };
    // The shim must not start threads before it has its child, and the tool server is a program of its own.
    if let Command::Shim(args) = cli.command {
        return commands::shim(args);
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let telemetry = telemetry::init(&cli);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(commands::run(cli));
            // A reader thread may still sit in a blocking call; nothing of the run depends on it any more.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(error::CliError::new(1, format!("cannot start the runtime: {error}"))),
    };
    let code = match result {
        Ok(code) => code,
        Err(error) => {
            error.print();
            error.code()
        }
    };
    telemetry.finish();
    ExitCode::from(code)
}
