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
mod base_url;
mod budgets;
mod claude_code;
mod clean;
mod commands;
mod complete;
mod compose;
mod config;
mod env;
mod error;
mod escape;
mod find;
mod home;
mod input_files;
mod live;
mod models;
mod output;
mod parts;
mod person;
mod pricing;
mod progress;
mod providers;
mod restart;
mod sandbox;
mod schema;
mod secrets;
mod telemetry;
mod terminal;
mod tool_lock;
mod trust;
mod view;

use std::process::ExitCode;

use clap::Parser as _;

pub use args::{Cli, Command};
pub use parts::{Parts, Seams};

/// Whether a command is refused when a configuration file is wrong. A tool server is told everything by its arguments, and nobody may be
/// kept from finding out what is wrong.
fn needs_config(command: &Command) -> bool {
    #[cfg(feature = "toolserver")]
    if matches!(command, Command::Toolserver(_)) {
        return false;
    }
    !matches!(command, Command::Doctor(_) | Command::Completions(_) | Command::Schema(_))
}

/// Runs the command line of a program with these parts and returns its exit code.
pub fn main(parts: Parts) -> ExitCode {
    parts::init(parts);
    #[cfg(feature = "toolserver")]
    if let Some(code) = sandbox::run() {
        return code;
    }
    let configured = config::init();
    // A shell that completes wants candidates, and no word about anything else.
    if complete::answered() {
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            let text = error.render().to_string();
            let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim());
            let (message, hint) = text.split_once("\n\n").unwrap_or((text, ""));
            error::CliError::usage(message).hint(hint.trim()).print_as(true);
            return ExitCode::from(error::USAGE);
        }
        // clap's own code for a usage error is 2, and 0 for help and version.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                // A reader that went away (`ua --help | head -1`) is no failure.
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::from(code),
                Err(_) => ExitCode::from(2),
            };
        }
    };
    // The shim must not start threads before it has its child, and the tool server is a program of its own.
    if let Command::Shim(args) = cli.command {
        return commands::shim(args);
    }
    // Nor does the bridge do anything but carry lines.
    if let Command::GatewayBridge(args) = cli.command {
        return commands::gateway_bridge(args);
    }
    terminal::init(cli.json, cli.color);
    clean::guard_panics();
    compose::learn_own_secrets();
    if let Err(error) = configured
        && needs_config(&cli.command)
    {
        error.print();
        return ExitCode::from(error.code());
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // What this process knows is not written to a file when it crashes; its children inherit that.
    let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Core, no_core) {
        tracing::debug!(%error, "core dumps stay as they are");
    }
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

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod escape_corpus;
#[cfg(test)]
mod help_tests;
