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

use ua_host::Host;
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
            "cannot {doing}: ua cannot tell whether a tool server started this command: {why}"
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
            Some(GatewayCommand::Start | GatewayCommand::Serve) => Some("start the gateway's broker"),
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
    system::is_below_a_shim() == Ok(true)
}

/// What holds a lock: that of a run has the run's id, and that of a worker its name, which may look like an id.
fn held_unseen(holder: &ua_core::RunId) -> String {
    if holder.as_str().starts_with("worker_") {
        return format!("worker {holder} is a process that cannot be seen from here");
    }
    format!("run {holder} is driven, or a worker of that name is at work, by a process that cannot be seen from here")
}

fn place(host: &Host) -> Place {
    let here = match system::is_below_a_shim().and_then(|is_below| Ok((is_below, system::standpoint()?))) {
        Ok((true, _)) => return Place::Below,
        Err(why) => return Place::Unclear(why),
        // Other systems have no such namespaces.
        Ok((false, None)) => return Place::Outside,
        Ok((false, Some(here))) => here,
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

/// What is known where a process on the way is hidden: another user's, unless this process has the mark of those below a shim. The system's
/// administrator sees every process and can take the mark off, so for that user somebody has hidden it.
#[cfg(any(target_os = "linux", test))]
fn hidden(is_marked: bool, is_administrator: bool) -> Result<bool, String> {
    let hides = "processes above it are hidden (/proc with hidepid)";
    if is_administrator {
        return Err(format!("{hides}, which root sees where nobody takes that away"));
    }
    if is_marked {
        return Err(format!("{hides}, and it has the limits of what a tool server starts"));
    }
    Ok(false)
}

/// Whether the command line of a process, as the kernel shows it, is a shim's: `ua __shim …`.
fn is_shim(line: &[u8]) -> bool {
    line.split(|byte| *byte == 0).nth(1) == Some(b"__shim")
}

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::Read as _;
    use std::os::fd::OwnedFd;

    use rustix::fs::{CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, openat2, readlinkat};
    use rustix::io::Errno;
    use ua_host::Standpoint;

    /// How often the walk begins anew because a process on the way ended meanwhile.
    const WALKS: usize = 5;

    /// More than a line of `stat`, and enough of a command line to see its second word.
    const MAX_BYTES: u64 = 64 * 1024;

    pub(super) fn is_below_a_shim() -> Result<bool, String> {
        let proc = Proc::open()?;
        for _ in 0..WALKS {
            if let Some(found) = proc.walk()? {
                return Ok(found);
            }
        }
        Err("its parent processes ended while they were examined".to_owned())
    }

    /// In which namespaces this process is. A kernel without one of them has no name for it, and it is in the same one as everybody.
    pub(super) fn standpoint() -> Result<Option<Standpoint>, String> {
        let proc = Proc::open()?;
        let name = |kind: &str| proc.namespace(kind).unwrap_or_default();
        Ok(Some(Standpoint::new(&name("pid"), &name("user"))))
    }

    /// The kernel's own table of processes.
    struct Proc(OwnedFd);

    impl Proc {
        fn open() -> Result<Self, String> {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let proc = rustix::fs::openat(CWD, "/proc", flags, Mode::empty()).map_err(|e| format!("/proc: {e}"))?;
            let system = fstatfs(&proc).map_err(|e| format!("/proc: {e}"))?;
            let root = fstat(&proc).map_err(|e| format!("/proc: {e}"))?;
            // The root of the file system of processes has this number; a folder of it that was mounted there has another.
            if system.f_type == PROC_SUPER_MAGIC && root.st_ino == 1 {
                Ok(Self(proc))
            } else {
                Err("/proc is not the kernel's".to_owned())
            }
        }

        /// The namespace of this kind that this process is in.
        fn namespace(&self, kind: &str) -> Result<String, String> {
            let fail = |why: Errno| format!("/proc/self/ns/{kind}: {why}");
            let own = readlinkat(&self.0, "self", Vec::new()).map_err(fail)?;
            let path = format!("{}/ns/{kind}", own.to_string_lossy());
            let link = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV;
            let link = openat2(&self.0, path.as_str(), link, Mode::empty(), within).map_err(fail)?;
            Ok(readlinkat(&link, "", Vec::new()).map_err(fail)?.to_string_lossy().into_owned())
        }

        /// Up to the first process; nothing when one on the way is gone.
        fn walk(&self) -> Result<Option<bool>, String> {
            // Not by the number that this process knows itself by: in a process namespace that is another one than `/proc` has.
            let own = readlinkat(&self.0, "self", Vec::new()).map_err(|e| format!("/proc/self: {e}"))?;
            let own = own.to_str().ok().and_then(|own| own.parse::<u32>().ok());
            let mut process = own.ok_or("/proc/self names no process")?;
            let mut seen = BTreeSet::new();
            while seen.insert(process) {
                let Some(parent) = self.parent_of(process)? else {
                    return match self.read(1, "stat")? {
                        Some(_) => Ok(None),
                        // Processes of others are hidden altogether where the first one is, and so is a shim, though it is this user's. What
                        // it starts is marked.
                        None => {
                            super::hidden(ua_mcp::may_be_below_a_shim(), rustix::process::geteuid().is_root()).map(Some)
                        }
                    };
                };
                if parent == 0 {
                    return Ok(Some(false));
                }
                if self.read(parent, "cmdline")?.is_some_and(|line| super::is_shim(&line)) {
                    return Ok(Some(true));
                }
                process = parent;
            }
            Ok(None)
        }

        fn parent_of(&self, process: u32) -> Result<Option<u32>, String> {
            let Some(stat) = self.read(process, "stat")? else { return Ok(None) };
            // The name stands in parentheses and may hold anything; behind the last one come the state and the parent.
            let stat = String::from_utf8_lossy(&stat);
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            parent.map(Some).ok_or_else(|| format!("/proc/{process}/stat cannot be read"))
        }

        /// A file about a process; nothing when there is none.
        fn read(&self, process: u32, file: &str) -> Result<Option<Vec<u8>>, String> {
            let path = format!("{process}/{file}");
            let fail = |why: &dyn std::fmt::Display| format!("/proc/{path}: {why}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            // Nothing is mounted on the way: another process's file in place of this one's would be the kernel's, too.
            let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
            let file = match openat2(&self.0, path.as_str(), flags, Mode::empty(), within) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
                Err(error) => return Err(fail(&error)),
            };
            let mut bytes = Vec::new();
            match file.take(MAX_BYTES).read_to_end(&mut bytes) {
                Ok(_) => Ok(Some(bytes)),
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
                Err(error) => Err(fail(&error)),
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_process_knows_its_parent() {
            let proc = Proc::open().unwrap();
            assert_eq!(proc.parent_of(std::process::id()), Ok(Some(std::os::unix::process::parent_id())));
            assert_eq!(proc.parent_of(u32::MAX), Ok(None));
            assert_eq!(is_below_a_shim(), Ok(false));
            assert!(proc.namespace("pid").unwrap().starts_with("pid:["));
            assert!(proc.namespace("user").unwrap().starts_with("user:["));
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::process::Command;

    /// More ancestors than a process has.
    const MAX_ANCESTORS: usize = 10_000;

    /// Other systems have none.
    pub(super) fn standpoint() -> Result<Option<ua_host::Standpoint>, String> {
        Ok(None)
    }

    pub(super) fn is_below_a_shim() -> Result<bool, String> {
        let mut process = std::os::unix::process::parent_id();
        for _ in 0..MAX_ANCESTORS {
            if process <= 1 {
                return Ok(false);
            }
            let output = Command::new("/bin/ps").args(["-o", "ppid=,args=", "-p", &process.to_string()]).output();
            let output = output.map_err(|error| format!("/bin/ps: {error}"))?;
            let line = String::from_utf8_lossy(&output.stdout);
            let mut words = line.split_whitespace();
            let parent = words.next().and_then(|word| word.parse().ok());
            let words = words.collect::<Vec<_>>().join("\0");
            if super::is_shim(words.as_bytes()) {
                return Ok(true);
            }
            process = parent.ok_or_else(|| format!("process {process} cannot be examined"))?;
        }
        Err("it has too many parent processes".to_owned())
    }
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
    fn where_processes_are_hidden_the_mark_decides() {
        assert_eq!(hidden(false, false), Ok(false));
        for (is_marked, is_administrator) in [(true, false), (false, true), (true, true)] {
            assert!(hidden(is_marked, is_administrator).unwrap_err().contains("hidepid"));
        }
    }

    #[test]
    fn a_shim_is_told_by_its_second_word() {
        assert!(is_shim(b"/usr/bin/ua\0__shim\0--x\0"));
        assert!(!is_shim(b"/usr/bin/ua\0job\0__shim\0"));
        assert!(!is_shim(b""));
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
