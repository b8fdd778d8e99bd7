//! Whether a person speaks: what drives runs, decides about them or changes what they are held to is not done for a program that a tool
//! server started.
//!
//! A job may run programs (`run_command`), and a model could have one of them answer its own question, or start a job that nobody asks about.
//! Tool servers live below a shim; a command that finds the shim among its ancestors was started by one. A shim is the parent of whatever
//! loses its own below it, so a daemon finds it, too, and ends with it. Where the ancestors cannot be told, nobody speaks: `/proc` has to be
//! the kernel's own, with nothing mounted over a part of it (where it hides processes, what a shim starts is known by a limit), whoever drives a run of this root has to be seen in it, and it may not be a process
//! namespace of somebody's own making ([`ua_host::Standpoint`]).
//!
//! This is no wall against code that runs with the user's rights: it could have another program of the user start `ua` (a terminal multiplexer,
//! `cron`, `systemd-run`), or write the database file itself. It keeps a model from approving itself by the front door.

use ua_host::{Host, Standpoint};
use ua_mcp::Process;
use ua_runner::RunLock;

use crate::args::Command;
use crate::commands::calls::CallsCommand;
use crate::commands::db::DbCommand;
use crate::commands::fleet::{QueueCommand, WorkersCommand};
use crate::commands::gateway::GatewayCommand;
use crate::commands::runs::RunsCommand;
use crate::commands::schedule::ScheduleCommand;
use crate::commands::tools::ToolsCommand;
use crate::error::HostError;

/// Where this process was started.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// By nobody's tool server.
    Outside,
    /// By a tool server, over however many others.
    Below,
    /// That cannot be told, and why.
    Unclear(String),
}

/// Refuses a command that only a person gives when a tool server started it, or when that cannot be told.
///
/// # Errors
/// A mistake of the caller's (exit code 2).
pub(crate) fn required(command: &Command, host: &Host) -> Result<(), HostError> {
    let Some(doing) = persons_only(command) else { return Ok(()) };
    match place(host) {
        Place::Outside => Ok(()),
        Place::Below => Err(HostError::usage(format!("cannot {doing} from inside a tool server"))
            .hint("run this command yourself, in a terminal of your own")),
        Place::Unclear(why) => Err(HostError::usage(format!(
            "cannot {doing}: `ua` cannot tell whether a tool server started this command: {why}"
        ))
        .hint("run it on the machine, and in the container, where the runs are driven; nothing was changed")),
    }
}

/// What a command does that only a person may have it do: drive a run, decide about one, or change what runs are held to. Nothing for those
/// that look, or that belong to the program itself.
fn persons_only(command: &Command) -> Option<&'static str> {
    match command {
        // It starts tool servers, and nothing else.
        Command::Job(args) => (!args.check).then_some("start a job"),
        Command::Resume(_) => Some("resume a run"),
        Command::Fork(_) => Some("fork a run"),
        Command::Answer(_) => Some("answer a question"),
        Command::Submit(_) => Some("submit a job"),
        Command::Worker(_) => Some("start a worker"),
        Command::Queue(queue) => match queue {
            QueueCommand::Move { .. } | QueueCommand::Remove { .. } => Some("change the queue"),
            QueueCommand::Depth { .. } | QueueCommand::List { .. } => None,
        },
        Command::Schedule(schedule) => match schedule {
            ScheduleCommand::Add { .. }
            | ScheduleCommand::Pause { .. }
            | ScheduleCommand::Resume { .. }
            | ScheduleCommand::Run { .. }
            | ScheduleCommand::Remove { .. } => Some("change a schedule"),
            ScheduleCommand::List { .. } => None,
        },
        Command::Workers(workers) => match workers {
            WorkersCommand::Drain { .. } | WorkersCommand::Forget { .. } => Some("decide about workers"),
            WorkersCommand::List { .. } => None,
        },
        Command::Runs(runs) => match runs {
            RunsCommand::Delete(_) => Some("delete runs"),
            RunsCommand::Cancel { .. } => Some("cancel a run"),
            RunsCommand::List(_)
            | RunsCommand::Tail(_)
            | RunsCommand::Show { .. }
            | RunsCommand::Diff { .. }
            | RunsCommand::Export(_) => None,
        },
        Command::Calls(calls) => match calls {
            CallsCommand::Resolve(_) => Some("settle a call"),
            CallsCommand::Probe(_) => Some("probe a call"),
            CallsCommand::List { .. } | CallsCommand::Show { .. } => None,
        },
        Command::Tools(tools) => match tools {
            ToolsCommand::Lock { check: false, .. } => Some("write mcp.lock"),
            ToolsCommand::Lock { check: true, .. }
            | ToolsCommand::List { .. }
            | ToolsCommand::Explain { .. }
            | ToolsCommand::Packs { .. }
            | ToolsCommand::Audit { .. } => None,
        },
        Command::Trust(args) => (!args.list).then_some("trust tool servers"),
        Command::Login(args) => (!args.list).then_some("log in"),
        Command::Logout(_) => Some("log out"),
        Command::Db(db) => match db {
            DbCommand::Check { .. } => None,
            DbCommand::Migrate => Some("migrate the database"),
            DbCommand::Copy { .. } => Some("move the database"),
            DbCommand::Backup { .. } => Some("copy the database"),
            DbCommand::Restore { .. } => Some("restore the database"),
            DbCommand::Accept { .. } => Some("accept what the database does not know"),
            DbCommand::Prune(_) => Some("prune the database"),
        },
        Command::Gateway(args) => match args.command {
            Some(GatewayCommand::Install(_) | GatewayCommand::Uninstall(_)) => Some("change a client's configuration"),
            Some(GatewayCommand::Stop | GatewayCommand::Restart) => Some("stop the gateway's broker"),
            Some(GatewayCommand::Start { .. } | GatewayCommand::Serve) => Some("start the gateway's broker"),
            Some(GatewayCommand::Token { list: false, .. }) => Some("change who may use the gateway over HTTP"),
            // A client that an agent started has its tool servers behind the gateway as any other has, where a person's broker serves it.
            Some(GatewayCommand::Status { .. } | GatewayCommand::Hook | GatewayCommand::Token { .. }) | None => None,
        },
        #[cfg(feature = "toolserver")]
        Command::Toolserver(_) => None,
        Command::Init(_)
        | Command::Questions(_)
        | Command::Status(_)
        | Command::Man(_)
        | Command::Turns(_)
        | Command::Models(_)
        | Command::Config(_)
        | Command::Doctor(_)
        | Command::Completions(_)
        | Command::Schema(_)
        | Command::Shim(_)
        | Command::GatewayBridge(_) => None,
    }
}

/// Whether this process was started, over however many others, by a tool server of ours, as far as can be told.
#[cfg(feature = "toolserver")]
pub(crate) fn is_below_a_shim() -> bool {
    ua_mcp::is_below_a_shim(Process::This) == Ok(true)
}

/// What holds a lock: that of a run has the run's id, and that of a worker its name, which may look like an id.
fn held_unseen(holder: &ua_core::RunId) -> String {
    if holder.as_str().starts_with("worker_") {
        return format!("worker {holder} is a process that cannot be seen from here");
    }
    format!("run {holder} is driven, or a worker of that name is at work, by a process that cannot be seen from here")
}

fn place(host: &Host) -> Place {
    let here = match ua_mcp::is_below_a_shim(Process::This).and_then(|is_below| Ok((is_below, ua_mcp::namespaces()?))) {
        Ok((true, _)) => return Place::Below,
        Err(why) => return Place::Unclear(why),
        // Other systems have no such namespaces.
        Ok((false, None)) => return Place::Outside,
        Ok((false, Some(here))) => Standpoint::new(&here.processes, &here.users),
    };
    let notes = host.home().notes();
    let notes = || notes.iter().map(std::path::PathBuf::as_path);
    if !here.is_of_the_machine() {
        match RunLock::held_by_nobody_seen(&host.home().locks()) {
            Ok(None) => {}
            Ok(Some(run)) => {
                return Place::Unclear(held_unseen(&run));
            }
            Err(error) => return Place::Unclear(crate::error::chain(&error)),
        }
        if let Some(why) = here.unclear(notes()) {
            return Place::Unclear(why);
        }
    }
    here.note(notes());
    Place::Outside
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn what_may_be_a_worker_is_not_simply_called_a_run() {
        let said = |holder: &str| held_unseen(&ua_core::RunId::parse(holder).unwrap());
        assert!(said("worker_019").starts_with("worker worker_019 is"));
        assert!(said("ua-worker-0").contains("or a worker of that name is at work"));
    }

    #[test]
    fn what_looks_is_for_everybody_and_what_decides_is_for_people() {
        let needs = |line: &str| {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
            persons_only(&cli.command).is_some()
        };
        for line in [
            "ua job x.json",
            "ua resume r",
            "ua fork r --at-turn 1",
            "ua answer q approve",
            "ua runs cancel r",
            "ua runs delete r",
            "ua calls resolve c --skip",
            "ua calls probe c",
            "ua tools lock",
            "ua trust",
            "ua db restore x.db",
            "ua db accept r",
            "ua db prune",
            "ua db migrate",
            "ua db copy",
            "ua gateway stop",
            "ua gateway start",
            "ua gateway serve",
            "ua gateway restart",
            "ua gateway token x",
            "ua gateway install --file x.json",
        ] {
            assert!(needs(line), "{line}");
        }
        for line in [
            "ua job --check x.json",
            "ua status",
            "ua runs list",
            "ua runs show r",
            "ua questions",
            "ua calls list",
            "ua doctor",
            "ua trust --list",
            "ua db check",
            "ua tools list",
            "ua gateway status",
            "ua gateway token --list",
            "ua gateway hook",
            "ua gateway -- mail-server",
        ] {
            assert!(!needs(line), "{line}");
        }
    }
}
