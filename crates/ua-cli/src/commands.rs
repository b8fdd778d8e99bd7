//! One command, one file.

mod accept;
pub(crate) mod answer;
mod answered;
pub(crate) mod ask;
mod audit;
pub(crate) mod calls;
mod cancel;
mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod db;
pub(crate) mod delete;
mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod fleet;
pub(crate) mod fork;
mod form;
pub(crate) mod gateway;
pub(crate) mod init;
pub(crate) mod job;
mod lineage;
pub(crate) mod login;
pub(crate) mod man;
pub(crate) mod models;
mod packs;
mod pins;
pub(crate) mod probe;
pub(crate) mod prune;
pub(crate) mod resume;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod schema;
pub(crate) mod status;
pub(crate) mod summary;
pub(crate) mod tail;
pub(crate) mod tools;
pub(crate) mod trust;
pub(crate) mod turns;
pub(crate) mod which_run;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use ua_host::Host;
use ua_store::{RunQuery, Store as _};

use crate::args::{Cli, Command, ShimArgs};
use crate::error::HostError;
use crate::parts::Parts;
use crate::still::Still;
use ua_core::ShowPath as _;

/// Runs a command and returns its exit code.
pub(crate) async fn run(cli: Cli, host: &Host, parts: &Parts) -> Result<u8, HostError> {
    // What a command repeats of its own words is shown without them, too.
    host.known_secrets().learn_declared();
    let looks = only_looks(&cli.command);
    let ended = Box::pin(carry_out(cli, host, parts)).await;
    if looks { ended.map_err(HostError::of_a_look) } else { ended }
}

/// Whether no run is stored here: a start that was refused may have made the database.
async fn has_no_runs(home: &ua_host::home::Home) -> bool {
    if home.is_unused() {
        return true;
    }
    if home.is_on_a_server() || home.used_elsewhere().is_empty() {
        return false;
    }
    let Ok(store) = home.open_read_only() else { return false };
    let found = store.find_runs(&RunQuery { limit: 1, ..RunQuery::default() }).await;
    ua_host::home::close(store);
    found.is_ok_and(|runs| runs.is_empty())
}

async fn carry_out(cli: Cli, host: &Host, parts: &Parts) -> Result<u8, HostError> {
    crate::person::required(&cli.command, host)?;
    if let Some(name) = &cli.global.by {
        ua_host::words::without_secrets(host, "name", name)?;
    }
    let (home, settings) = (host.home(), host.settings());
    let named_in = cli.global.root.as_ref().map(|_| "--root").or(home.variable_of_root());
    if let Some(place) = named_in.filter(|_| only_looks(&cli.command) && ua_host::paths::is_missing(home.root())) {
        // A misspelt folder has no questions and no runs either: whoever reads that nothing waits is told where was looked.
        crate::output::tell(format!(
            "note: the folder {} does not exist; check the spelling of {place}",
            home.root().shown()
        ));
    }
    if let Some(within) = home.runs_within().filter(|_| named_in.is_some() && only_looks(&cli.command)) {
        crate::output::tell(format!("note: the runs are in {}, which is the root to name", within.shown()));
    }
    let is_about_runs =
        (only_looks(&cli.command) && !matches!(cli.command, Command::Doctor(_))) || names_a_run(&cli.command);
    if named_in.is_none() && is_about_runs && has_no_runs(home).await {
        // Whoever comes back to another folder is not told that all is done.
        let mut others = home.used_elsewhere();
        // What the gateway asks is said in every folder, and its sessions are no jobs.
        others.retain(|root| !ua_host::gateway::is_its_folder(host, root));
        let shown: Vec<String> = others.iter().take(3).map(|root| root.shown().to_string()).collect();
        let more = others.len().checked_sub(shown.len()).filter(|more| *more > 0);
        let more = more.map_or_else(String::new, |more| format!(" and {more} more (`ua trust --list`)"));
        if let Some(newest) = others.first() {
            let look = ua_resume::Commands::naming(newest).complete("`ua status`").into_owned();
            crate::output::tell(format!(
                "note: no job was run in {} yet; your runs are in {}{more}: {look} shows those of the folder that was used last",
                home.root().shown(),
                shown.join(", ")
            ));
        }
    }
    let _still = what_takes_long(&cli.command)
        .filter(|_| !crate::terminal::is_json())
        .map(|doing| Still::start(host.env(), doing, SHORT_SILENCE));
    match cli.command {
        Command::Init(args) => init::run(&args),
        Command::Status(_) => status::run(host).await,
        Command::Man(args) => man::run(&args),
        Command::Job(args) => Box::pin(job::run(host, args)).await,
        Command::Resume(args) => resume::run(host, args).await,
        Command::Fork(args) => Box::pin(fork::run(host, *args)).await,
        Command::Submit(args) => Box::pin(fleet::submit(host, *args)).await,
        Command::Worker(args) => Box::pin(fleet::worker(host, args)).await,
        Command::Queue(command) => fleet::queue(host, command).await,
        Command::Workers(command) => fleet::workers(host, command).await,
        Command::Schedule(command) => Box::pin(schedule::run(host, command)).await,
        Command::Runs(command) => runs::run(host, command).await,
        Command::Calls(command) => calls::run(host, command).await,
        Command::Questions(args) => answer::list(host, args).await,
        Command::Answer(args) => answer::run(host, args).await,
        Command::Turns(command) => turns::run(home, command).await,
        Command::Tools(command) => tools::run(host, command).await,
        Command::Models(command) => models::run(settings, &command),
        Command::Config(command) => config::run(host, cli.global.root.as_deref(), cli.global.color, &command),
        Command::Trust(args) => trust::run(host, &args).await,
        Command::Login(args) => Box::pin(login::run(host, args)).await,
        Command::Logout(args) => login::end(host, &args),
        Command::Doctor(args) => Box::pin(doctor::run(host, parts, cli.global.root.as_deref(), &args)).await,
        Command::Completions(args) => completions::run(&args),
        Command::Schema(args) => schema::run(&args),
        Command::Db(command) => db::run(host, command).await,
        Command::Gateway(command) => gateway::run(host, cli.global.root.as_deref(), command).await,
        #[cfg(feature = "toolserver")]
        Command::Toolserver(mut server) => {
            server.adopt_parent = crate::telemetry::adopt_parent();
            server.confiner = crate::sandbox::confiner(settings);
            server.pdf = crate::layout::process(settings, parts);
            server.page_reader = crate::pages::reader(settings);
            end_with_the_shim();
            match ua_toolserver::serve(*server).await {
                Ok(()) => Ok(crate::error::OK),
                // Nobody is there: a person who gave the command to look what it is, or a client that left.
                Err(error) if error.is_without_client() => {
                    Err(HostError::usage("standard input ended before an MCP client said anything")
                        .hint("`ua toolserver` is started by an MCP client, for example by `ua job`, and speaks MCP with it; `--help` says more"))
                }
                Err(error) => Err(HostError::failed(crate::error::chain(&error))),
            }
        }
        Command::GatewayBridge(_) => Err(HostError::usage("this command is internal: an agent that ua runs starts it")),
        Command::Shim(_) => Err(HostError::usage("this command is internal: ua starts it")),
    }
}

/// Whether a command only shows what runs there are.
fn only_looks(command: &Command) -> bool {
    matches!(
        command,
        Command::Status(_)
            | Command::Questions(_)
            | Command::Runs(runs::RunsCommand::List(_))
            | Command::Calls(calls::CallsCommand::List { .. })
            | Command::Queue(fleet::QueueCommand::List { .. } | fleet::QueueCommand::Depth { .. })
            | Command::Workers(fleet::WorkersCommand::List { .. })
            | Command::Schedule(schedule::ScheduleCommand::List { .. })
            | Command::Doctor(_)
    )
}

/// Whether a command is about a run that is there already.
fn names_a_run(command: &Command) -> bool {
    matches!(
        command,
        Command::Resume(_)
            | Command::Fork(_)
            | Command::Answer(_)
            | Command::Runs(_)
            | Command::Calls(_)
            | Command::Turns(_)
    )
}

/// A silence of a command that is left alone.
const SHORT_SILENCE: Duration = Duration::from_secs(1);

/// What a command is doing that says nothing before it is done, and may take longer than a person waits without wondering. What drives runs
/// says more about it ([`crate::people`]).
fn what_takes_long(command: &Command) -> Option<&'static str> {
    if matches!(command, Command::Job(args) if args.check) {
        Some("checking the job")
    } else if matches!(command, Command::Tools(_)) {
        Some("asking the tool servers")
    } else if matches!(command, Command::Doctor(_)) {
        Some("checking what a job needs")
    } else if matches!(command, Command::Db(_)) {
        Some("working on the database")
    } else if matches!(command, Command::Runs(runs::RunsCommand::Export(_))) {
        Some("writing the export")
    } else if matches!(command, Command::Runs(runs::RunsCommand::Delete(_))) {
        Some("deleting")
    } else if matches!(command, Command::Status(_) | Command::Runs(runs::RunsCommand::Diff { .. })) {
        Some("looking at the runs")
    } else if matches!(command, Command::Submit(args) if !args.launch.quiet) {
        Some("preparing the job")
    } else if matches!(command, Command::Trust(args) if !args.list) {
        Some("looking at the tool servers")
    } else if matches!(command, Command::Login(args) if !args.list) {
        // Nothing of it takes long but what is waited for, and that has a name.
        Some("")
    } else {
        None
    }
}

/// Has the built-in tool server ended with its shim, however that ends; one that a person started by hand has none. A shim that is gone already
/// has closed the server's input, which ends it as well.
#[cfg(feature = "toolserver")]
fn end_with_the_shim() {
    #[cfg(target_os = "linux")]
    if crate::person::is_below_a_shim()
        && let Err(error) = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
    {
        tracing::debug!(%error, "the tool server may outlive its shim");
    }
}

/// Stands between the runner and one tool server.
pub(crate) fn shim(args: &[OsString]) -> ExitCode {
    ExitCode::from(u8::try_from(ua_mcp::run_shim(args.iter().cloned())).unwrap_or(1))
}

/// Stands between an agent that owns its loop and the process that drives the run.
pub(crate) fn gateway_bridge(args: ShimArgs) -> ExitCode {
    ExitCode::from(u8::try_from(ua_claude_code::run_bridge(args.args)).unwrap_or(1))
}
