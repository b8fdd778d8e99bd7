//! The front door at the terminal: arguments, views, prompts, exporters, exit codes.
//!
//! The only crate that chooses an exit code or knows who listens to spans. What a run needs, it has from `ua-host`.
//!
//! ```
//! use clap::Parser as _;
//!
//! let cli = ua_cli::Cli::try_parse_from(["ua", "runs", "list", "--json"]).unwrap();
//! assert!(matches!(cli.command, ua_cli::Command::Runs(_)));
//! ```

mod args;
mod commands;
mod complete;
mod error;
mod find;
#[cfg(feature = "toolserver")]
mod foretell;
mod ids;
#[cfg(feature = "toolserver")]
mod layout;
mod listings;
mod live;
mod mistakes;
mod moment;
mod output;
#[cfg(feature = "toolserver")]
mod pages;
mod parts;
mod people;
mod person;
mod prompt;
mod refused;
#[cfg(feature = "toolserver")]
mod sandbox;
mod schema;
mod screen;
mod shown;
mod still;
mod stray;
mod symbols;
mod table;
mod telemetry;
mod terminal;
mod under_way;
mod used;
mod view;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::error::ErrorKind;
use ua_core::{Redactor, ShowPath as _};
use ua_host::{Host, HostError, Settings};

pub use args::{Cli, Command};
pub use parts::{Parts, Seams};

/// Whether a command is refused when a configuration file is wrong. A tool server is told everything by its arguments, and nobody may be
/// kept from finding out what is wrong.
fn needs_config(command: &Command) -> bool {
    #[cfg(feature = "toolserver")]
    if matches!(command, Command::Toolserver(_)) {
        return false;
    }
    !matches!(command, Command::Doctor(_) | Command::Completions(_) | Command::Man(_) | Command::Schema(_))
}

/// Runs the command line of a program with these parts and returns its exit code.
pub fn main(parts: Parts) -> ExitCode {
    let code = run(parts);
    terminal::finish();
    code
}

#[expect(clippy::needless_pass_by_value, reason = "a program gives its parts away")]
fn run(parts: Parts) -> ExitCode {
    // Before anything else: until then, whoever looks at that moment reads what this process was given.
    if !opens_proc() {
        hide_from_others();
    }
    ua_files::keep_from_children();
    ua_mcp::unblock_signals();
    #[cfg(feature = "toolserver")]
    if let Some(code) = sandbox::run().or_else(|| layout::run(&parts)).or_else(pages::run) {
        return code;
    }
    // What a client starts in the place of a tool server: up at once, and nothing but a bridge.
    if let Some(code) = commands::gateway::bridge(std::env::args_os()) {
        return code;
    }
    // A shell that completes wants candidates, and no word about anything else.
    if complete::answered() {
        return ExitCode::SUCCESS;
    }
    let words: Vec<OsString> = std::env::args_os().collect();
    // The shim must not start threads before it has its child; it is started with each tool server, and reads its arguments itself.
    if let Some((word, args)) = words.get(1..).and_then(<[OsString]>::split_first)
        && word == args::SHIM
    {
        return commands::shim(args);
    }
    let cli = match Cli::read(&words).map_err(mistakes::without_bad_advice) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let words: Vec<String> = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            let failure = mistakes::told_apart(&error, &words).unwrap_or_else(|| mistakes::in_short(&error, &words));
            let is_json = words.iter().any(|word| word == "--json");
            // Signs that the terminal does not draw, colours and secrets are for these words as for all others.
            let settings = Arc::new(Settings::of_process());
            let redactor = ua_host::words::redactor_of_process(settings.clone());
            terminal::init(&settings, redactor, is_json, args::color_in(&words));
            error::print_as(&failure, is_json);
            terminal::flush();
            return ExitCode::from(error::USAGE);
        }
        // clap's own code for help that was not asked for is 2, and 0 for help and version.
        Err(error) => {
            let code = u8::try_from(error.exit_code()).unwrap_or(2);
            return match output::print_help(&error) {
                Ok(()) => ExitCode::from(output::code_for_the_reader(code)),
                // As of whatever else is written there.
                Err(error) => {
                    let words: Vec<String> =
                        words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
                    terminal::init(&Settings::of_process(), Redactor::default(), false, args::color_in(&words));
                    let ended = ended(Err(output::cannot_write(&error)));
                    terminal::flush();
                    ExitCode::from(ended)
                }
            };
        }
    };
    if let Command::Gateway(args) = &cli.command
        && let Some(code) = commands::gateway::entry(args, cli.global.root.as_deref())
    {
        return code;
    }
    // Nor does the bridge do anything but carry lines.
    if let Command::GatewayBridge(args) = cli.command {
        return commands::gateway_bridge(args);
    }
    let settings =
        Settings::of_process().with("UA_DATABASE_URL", cli.global.database_url.clone()).said_by(cli.global.by.clone());
    let (settings, redactor) = (Arc::new(settings), Redactor::default());
    terminal::init(&settings, redactor.clone(), cli.global.json, cli.global.color);
    terminal::guard_panics(redactor.clone());
    ua_host::credentials::learn_own(&settings, &redactor);
    if let Err(error) = settings.check()
        && needs_config(&cli.command)
    {
        let code = ended(Err(error));
        terminal::flush();
        return ExitCode::from(code);
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // What this process knows is not written to a file when it crashes; its children inherit that.
    let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Core, no_core) {
        tracing::debug!(%error, "core dumps stay as they are");
    }
    let telemetry = telemetry::init(&cli, &settings);
    // Whoever killed everything at once left nobody to do it.
    #[cfg(feature = "toolserver")]
    ua_toolserver::clear_temporary_folders();
    // Sub-agents are driven within the calls that they work for; where nothing is optimised that takes a deep stack. It is address space.
    let stack = 16 * 1024 * 1024;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_stack_size(stack).enable_all().build();
    let code = match runtime {
        Ok(runtime) => {
            let code = ended(match host(settings, &cli, &parts, redactor) {
                Ok(host) => runtime.block_on(commands::run(cli, &host, &parts)),
                Err(error) => Err(error),
            });
            // While signals are still listened for: a terminal that stands still keeps what is written last.
            terminal::flush();
            // Its threads are waited for: glibc (bug 19951) may end a process by a signal that lets go of a thread just when that ends, and
            // their stacks are too large to be kept for others, where it would go unnoticed. A reader may still sit in a blocking call, on which
            // nothing depends any more, and which goes on behind that.
            runtime.shutdown_timeout(THREADS_END);
            code
        }
        Err(error) => ended(Err(HostError::failed(format!("cannot start the runtime: {error}")))),
    };
    telemetry.finish();
    ExitCode::from(output::code_for_the_reader(code))
}

/// How long the end of the runtime's threads is waited for, which is at once but for one that reads what never comes.
const THREADS_END: Duration = Duration::from_millis(100);

/// The exit code of a command, which has said why it failed.
fn ended(result: Result<u8, HostError>) -> u8 {
    result.unwrap_or_else(|error| {
        error::print(&error);
        error::code(&error)
    })
}

/// Whether this process is to become a confined program, which has no environment to hide.
#[cfg(feature = "toolserver")]
fn opens_proc() -> bool {
    let hidden = [sandbox::CONFINED, layout::LAYOUT, pages::PAGE];
    std::env::args_os().nth(1).is_some_and(|word| hidden.iter().any(|hidden| word == *hidden))
}

/// There is none.
#[cfg(not(feature = "toolserver"))]
fn opens_proc() -> bool {
    false
}

/// Keeps what this process was given, keys among it, from other processes of this user: its environment, memory and open files are not theirs to
/// read, as if it were another user's (root reads everything). A program that it starts is open again.
///
/// Not for a process that becomes a confined program: it has to write about itself in `/proc`.
fn hide_from_others() {
    if let Err(error) = ua_mcp::hide_from_others() {
        tracing::debug!(%error, "other processes of this user can read this one");
    }
}

/// What this command works with.
fn host(settings: Arc<Settings>, cli: &Cli, parts: &Parts, redactor: Redactor) -> Result<Host, HostError> {
    let spans = Arc::new(telemetry::SpansOfRuns::new(&settings));
    let host = Host::new(settings, cli.global.root.as_deref(), redactor)?.with_spans(spans);
    let host = if cli.global.trust_root { host.trusting_root() } else { host };
    let host = match cli.command.job_file() {
        Some((job, is_quiet)) => {
            let (host, is_elsewhere) = host.beside(job);
            if is_elsewhere && !is_quiet {
                output::tell(format!(
                    "runs are kept in {}, where those of this job file are; `--root DIR` names another folder",
                    host.home().root().shown()
                ));
            }
            host
        }
        None => host,
    };
    #[cfg(feature = "toolserver")]
    let host = {
        let foreteller = foretell::own_tools(host.settings(), parts);
        host.with_foreteller(foreteller)
    };
    output::set_commands(host.home().commands());
    Ok(match &parts.seams {
        Some(seams) => host.with_seams(seams.clone()),
        None => host,
    })
}

#[cfg(test)]
mod deploy_tests;
#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod help_tests;
