//! Confinement: what a program that `run_command` starts can reach, and how much of the machine it may use.
//!
//! A model chooses the program, so the program is foreign. Six walls, each of which the kernel keeps:
//!
//! - **files** ([`files`], Landlock): it reads the system, the folders of `PATH`, the job's folder and what the user named; it writes
//!   the workspace and a temporary folder of its own. The user's home, `ua`'s database and its other workspaces are not among them.
//! - **modes, owners, times and attributes** ([`mounts`]), which Landlock does not know: what it may not write is mounted read-only for it.
//!   Where that cannot be had, the keeper changes modes, owners and times for it, in what it may write ([`traced`]); where it cannot be
//!   traced, it changes none of these anywhere ([`calls`]).
//! - **network and processes** ([`alone`], namespaces): it has a network without a way out, sees no process but its own, and everything that
//!   it starts ends with it.
//! - **system calls** ([`calls`], seccomp): sockets of an ordinary network only, no keyring, no mounts; nothing that sets limits of other processes or
//!   shares memory with them where no namespace does it ([`others`]).
//! - **rights** ([`rights`]): of what root may do besides, a program of root keeps that its own files open to it.
//! - **amounts** ([`limits`]): processes, open files, address space, size of files, CPU seconds.
//!
//! A process can only take rights from itself, and only before it becomes the program; doing so between `fork` and `exec` needs
//! unsafe code. So the server starts this very program again under a hidden name ([`Confiner`]), which takes its own rights away
//! and then starts the program:
//!
//! ```text
//! server ─▶ keeper (makes the namespaces) ─▶ first process inside (waits) ─▶ limits and closes itself, becomes the program
//! ```
//!
//! Killing the keeper ends the first process inside, and with it the kernel ends everything there. It is outside of the Landlock domain
//! that the program is in, so the program cannot trace it or open its files. Where the kernel makes no namespaces the keeper traces the program,
//! or, where it cannot, limits and closes itself and becomes the program.
//!
//! What happened comes back on a pipe that the program never holds ([`Report`]): its words cannot be taken for ours.
//!
//! Threat S8 of `docs/security.md`. Proved by: `tests/it/wire/sandbox.rs`.

#[cfg(target_os = "linux")]
mod alone;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod limits;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod others;
mod report;
#[cfg(target_os = "linux")]
mod rights;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod traced;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use ua_core::ShowPath as _;

pub(crate) use report::Report;

/// Whether programs are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Sandbox {
    /// As far as the kernel can; what it cannot is reported.
    #[default]
    Auto,
    /// Entirely, or no program is started.
    Required,
    /// Not at all: a program has the rights of its user.
    Off,
}

/// How much of the machine one program may use. Zero is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Limits {
    /// How many processes and threads a program of `run_command` may have at once, with all it starts.
    #[arg(long = "command-processes", value_name = "COUNT", default_value_t = Limits::default().processes, env = "UA_COMMAND_PROCESSES", hide_env_values = true)]
    pub processes: u64,
    /// How many files each of them may have open.
    #[arg(long = "command-open-files", value_name = "COUNT", default_value_t = Limits::default().open_files, env = "UA_COMMAND_OPEN_FILES", hide_env_values = true)]
    pub open_files: u64,
    /// How much address space each of them may have, in MiB. More than what it uses: some programs reserve a lot.
    #[arg(long = "command-memory-mib", value_name = "MIB", default_value_t = Limits::default().memory_mib, env = "UA_COMMAND_MEMORY_MIB", hide_env_values = true)]
    pub memory_mib: u64,
    /// How large a file may become that one of them writes, in MiB.
    #[arg(long = "command-file-mib", value_name = "MIB", default_value_t = Limits::default().file_mib, env = "UA_COMMAND_FILE_MIB", hide_env_values = true)]
    pub file_mib: u64,
    /// How many seconds each of them may compute; time that it waits does not count.
    #[arg(long = "command-cpu-seconds", value_name = "SECONDS", default_value_t = Limits::default().cpu_seconds, env = "UA_COMMAND_CPU_SECONDS", hide_env_values = true)]
    pub cpu_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { processes: 512, open_files: 1024, memory_mib: 16 * 1024, file_mib: 4 * 1024, cpu_seconds: 6 * 60 * 60 }
    }
}

/// The command that confines itself and starts a program: this program under a hidden name. Its `main` hands the arguments that follow
/// to [`run_confined`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confiner {
    pub program: PathBuf,
    /// The arguments in front of ours.
    pub args: Vec<OsString>,
}

/// What a kernel offers to confine programs with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Offers {
    /// The version of Landlock's interface; 0 where there is none.
    pub landlock: i32,
    /// Whether a program can have namespaces of its own: users, processes, IPC and network.
    pub namespaces: bool,
    /// Why not, in the kernel's words.
    pub why_no_namespaces: Option<String>,
    /// Whether the number of processes can be limited.
    pub processes: bool,
    /// Whether a program can have a `/proc` of its own, in which it sees its own processes only.
    pub own_proc: bool,
    /// Whether a program can have mounts of its own, read-only where it may not write.
    pub mounts: bool,
    /// Whether system calls can be filtered.
    pub calls: bool,
    /// Whether calls can be handed to a keeper that traces the program; needed only where there are no namespaces.
    #[serde(default)]
    pub traced: bool,
}

/// The first version of Landlock that knows TCP.
const LANDLOCK_TCP: i32 = 4;
/// The first version of Landlock that knows signals.
const LANDLOCK_SIGNALS: i32 = 6;

impl Offers {
    /// What a program would have that the settings deny it, each as a sentence; empty where everything is kept.
    pub fn missing(&self, network: bool, limits: &Limits) -> Vec<String> {
        let mut missing = Vec::new();
        if self.landlock == 0 {
            missing.push("it can read and write whatever its user can: the kernel offers no Landlock".to_owned());
        }
        if !network && !self.namespaces {
            let why = self.why_no_namespaces.as_deref().unwrap_or("it does not say why");
            let what =
                if self.landlock >= LANDLOCK_TCP { "UDP and DNS are open to it" } else { "the network is open to it" };
            missing.push(format!("{what}: the kernel makes no namespaces ({why})"));
        }
        if !self.namespaces {
            if self.landlock < LANDLOCK_SIGNALS {
                missing.push("it can signal other processes of its user: the kernel makes no namespaces".to_owned());
            }
            missing.push(if self.calls {
                "no namespaces: programs have no System V IPC and no message queues, and set limits, priorities and processors of \
                 themselves alone"
                    .to_owned()
            } else {
                "it sets limits and priorities of other processes of its user, and reads and writes their System V IPC: the kernel makes no \
                 namespaces, and system calls are not filtered"
                    .to_owned()
            });
        }
        if !self.own_proc {
            missing.push("it sees the command lines of other processes: it cannot have a /proc of its own".to_owned());
        }
        if !self.mounts {
            missing.push(if self.calls && self.traced && !self.namespaces {
                "no private mounts: programs cannot change extended attributes at all, nor be traced or get real-time signals"
                    .to_owned()
            } else if self.calls {
                "no private mounts: programs cannot change modes, owners, times and attributes at all".to_owned()
            } else {
                "it changes modes, owners, times and attributes of whatever its user may: it has no private mounts"
                    .to_owned()
            });
        }
        if !self.calls {
            missing.push(
                "it reaches keyrings, socket files and sockets of other families: system calls are not filtered"
                    .to_owned(),
            );
        }
        if limits.processes > 0 && !self.processes {
            missing.push("the number of its processes is not limited".to_owned());
        }
        missing
    }

    /// Whether nothing is missing that [`Sandbox::Required`] asks for: files, network, system calls and other processes. A limit that the
    /// kernel cannot keep is only said, and so is that without mounts of its own a program can do less than it should.
    pub fn are_enough(&self, network: bool) -> bool {
        self.landlock > 0 && self.calls && self.own_proc && (network || self.namespaces)
    }
}

impl Confiner {
    /// Asks the kernel, by trying it in a process that is thrown away.
    ///
    /// # Errors
    ///
    /// The process could not be started, or did not answer.
    pub fn offers(&self) -> io::Result<Offers> {
        let output = Command::new(&self.program)
            .args(&self.args)
            .arg(PROBE)
            .env_clear()
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        serde_json::from_slice(&output.stdout).map_err(io::Error::from)
    }

    /// The arguments under which it confines itself and starts `argv`.
    pub(crate) fn arguments(&self, confinement: &Confinement, argv: &[String]) -> io::Result<Vec<OsString>> {
        let mut all = self.args.clone();
        all.extend([RUN.into(), serde_json::to_string(confinement)?.into()]);
        all.extend(argv.iter().map(OsString::from));
        Ok(all)
    }
}

const PROBE: &str = "probe";
const PROBE_INSIDE: &str = "probe-inside";
const RUN: &str = "run";
const RUN_INSIDE: &str = "run-inside";
const RUN_LAST: &str = "run-last";
const RUN_TRACED: &str = "run-traced";
const PROBE_TRACED: &str = "probe-traced";

/// What is taken from one program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confinement {
    /// What the kernel said it offers.
    pub(crate) offers: Offers,
    /// Whether the program may use the network.
    pub(crate) network: bool,
    pub(crate) limits: Limits,
    /// What it may read and run, besides the system.
    pub(crate) read: Vec<PathBuf>,
    /// What it may change.
    pub(crate) write: Vec<PathBuf>,
    /// What nothing of the above opens, unless it lies in `write`.
    pub(crate) private: Vec<PathBuf>,
    /// The server that wants it: its process number.
    pub(crate) server: u32,
}

/// Runs the hidden program with the arguments behind its name and returns its exit code for `main`.
///
/// To be called before the process starts a second thread: namespaces are made for a process of one thread only.
pub fn run_confined(args: impl IntoIterator<Item = OsString>) -> i32 {
    ua_files::keep_from_children();
    let args: Vec<OsString> = args.into_iter().collect();
    match perform(&args) {
        Ok(code) => code,
        Err(why) => {
            report::send(&Report::Refused { why });
            EXIT_CONFINER
        }
    }
}

/// The program was not started. Nobody but a test reads it: the report says so.
const EXIT_CONFINER: i32 = 70;

fn perform(args: &[OsString]) -> Result<i32, String> {
    let mut words = args.iter().map(|word| word.to_str());
    let mode = words.next().flatten().unwrap_or_default();
    match mode {
        PROBE => show(&probe(args)),
        PROBE_INSIDE => show(&inside_offers()),
        PROBE_TRACED => wait_to_be_traced().map(|()| 0),
        RUN | RUN_INSIDE | RUN_LAST | RUN_TRACED => {
            let text = words.next().flatten().ok_or("what to take away is not said")?;
            let confinement: Confinement = serde_json::from_str(text).map_err(|e| e.to_string())?;
            let argv = args.get(2..).filter(|argv| !argv.is_empty()).ok_or("the program is not said")?;
            start(mode, &confinement, args, argv)
        }
        _ => Err("it is started by the built-in tool server only".to_owned()),
    }
}

fn show(offers: &Offers) -> Result<i32, String> {
    let text = serde_json::to_string(offers).map_err(|e| e.to_string())?;
    io::stdout().write_all(text.as_bytes()).map_err(|e| e.to_string())?;
    Ok(0)
}

#[cfg(target_os = "linux")]
fn probe(args: &[OsString]) -> Offers {
    // Before this process takes from itself what it needs for that.
    let traced = can_trace(args);
    let inside = alone::enter(false).and_then(|()| {
        let output = alone::again(args, PROBE_INSIDE).output().map_err(|e| e.to_string())?;
        serde_json::from_slice::<Offers>(&output.stdout).map_err(|_| "its first process did not start".to_owned())
    });
    match inside {
        Ok(offers) => Offers { namespaces: true, traced, ..offers },
        Err(why) => {
            let landlock = files::version();
            Offers { landlock, why_no_namespaces: Some(why), calls: calls::are_filtered(), traced, ..Offers::default() }
        }
    }
}

#[cfg(target_os = "linux")]
fn inside_offers() -> Offers {
    let parted = mounts::part().is_ok();
    let own_proc = parted && alone::mount_own_proc().is_ok();
    let limits = Limits::default();
    let processes = limits::limit_numbers(&limits) && limits::count_processes(&limits);
    // Any folder that is there tells whether one can be kept open.
    let mounts = parted && mounts::close(&["/proc".into()]).is_ok();
    let landlock = files::version();
    Offers { landlock, processes, own_proc, mounts, calls: calls::are_filtered(), ..Offers::default() }
}

#[cfg(target_os = "linux")]
fn start(mode: &str, confinement: &Confinement, args: &[OsString], argv: &[OsString]) -> Result<i32, String> {
    if mode == RUN_INSIDE {
        return alone::first_process(args, confinement);
    }
    if mode == RUN {
        alone::end_with_the_server(confinement.server)?;
        if confinement.offers.namespaces {
            alone::enter(confinement.network)?;
            return alone::keep(args);
        }
        #[cfg(target_arch = "x86_64")]
        if confinement.offers.traced && confinement.offers.calls {
            return traced::keep(args, confinement);
        }
    }
    let mut changes = calls::Changes::Refused;
    // Only the first process inside closes mounts.
    if mode == RUN_LAST && confinement.offers.mounts {
        changes = calls::Changes::Open;
    }
    if mode == RUN_TRACED {
        alone::end_with_the_server(confinement.server)?;
        wait_to_be_traced()?;
        changes = calls::Changes::Handed;
    }
    // The pipe is not the program's to write to.
    let reporter = report::take();
    rights::give_up()?;
    limits::apply(confinement)?;
    files::restrict(confinement)?;
    if confinement.offers.calls {
        // Without namespaces neither of the two that are last has others than the user's around it.
        let others = if mode == RUN_LAST { calls::Others::Apart } else { calls::Others::InReach };
        calls::restrict(confinement.offers.landlock, changes, others)?;
    }
    let error = std::os::unix::process::CommandExt::exec(Command::new(&argv[0]).args(&argv[1..]).stdin(Stdio::null()));
    report::send_to(reporter, &Report::Refused { why: not_started(&argv[0], &error) });
    Ok(EXIT_CONFINER)
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn wait_to_be_traced() -> Result<(), String> {
    traced::begin()
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn can_trace(args: &[OsString]) -> bool {
    traced::is_possible(args)
}

/// What a tracer reads and writes are registers, which are known of one processor.
#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn wait_to_be_traced() -> Result<(), String> {
    Err("programs are not traced on this processor".to_owned())
}

#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
fn can_trace(_args: &[OsString]) -> bool {
    false
}

fn not_started(program: &std::ffi::OsStr, error: &io::Error) -> String {
    format!("`{}` could not be started: {error}", program.shown())
}

#[cfg(not(target_os = "linux"))]
fn probe(_args: &[OsString]) -> Offers {
    inside_offers()
}

#[cfg(not(target_os = "linux"))]
fn inside_offers() -> Offers {
    Offers { why_no_namespaces: Some("only Linux has them".to_owned()), ..Offers::default() }
}

#[cfg(not(target_os = "linux"))]
fn start(_mode: &str, _confinement: &Confinement, _args: &[OsString], argv: &[OsString]) -> Result<i32, String> {
    let reporter = report::take();
    let error = std::os::unix::process::CommandExt::exec(Command::new(&argv[0]).args(&argv[1..]).stdin(Stdio::null()));
    report::send_to(reporter, &Report::Refused { why: not_started(&argv[0], &error) });
    Ok(EXIT_CONFINER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_lacks_is_said_in_words() {
        let all = Offers {
            landlock: 7,
            namespaces: true,
            why_no_namespaces: None,
            processes: true,
            own_proc: true,
            mounts: true,
            calls: true,
            traced: false,
        };
        let none = Offers { why_no_namespaces: Some("EPERM".to_owned()), ..Offers::default() };
        let limits = Limits::default();
        assert_eq!(all.missing(false, &limits), [""; 0]);
        assert_eq!((none.missing(false, &limits).len(), none.missing(true, &limits).len()), (8, 7));
        assert!(none.missing(false, &limits)[1].contains("the network is open to it"));
        let files_only = Offers { landlock: 4, ..none.clone() };
        assert!(
            files_only.missing(false, &Limits { processes: 0, ..limits })[0].starts_with("UDP and DNS are open to it")
        );
        assert!(none.missing(false, &limits)[2].contains("can signal"));
        let filtered = Offers { landlock: 6, calls: true, ..none.clone() }.missing(false, &limits).concat();
        assert!(filtered.contains("no namespaces: programs have no System V IPC") && !filtered.contains("can signal"));
        let traced = Offers { calls: true, traced: true, ..none.clone() };
        assert!(traced.missing(true, &limits).concat().contains("no private mounts: programs cannot change extended"));
        // A program in namespaces has another keeper.
        let no_mounts = Offers { mounts: false, traced: true, ..all.clone() };
        assert!(no_mounts.missing(false, &limits)[0].starts_with("no private mounts: programs cannot change modes"));
        assert!(no_mounts.are_enough(false));
        // Each wall by itself is needed.
        assert!(all.are_enough(false) && all.are_enough(true));
        for without in [
            Offers { landlock: 0, ..all.clone() },
            Offers { own_proc: false, ..all.clone() },
            Offers { calls: false, ..all.clone() },
        ] {
            assert!(!without.are_enough(false) && !without.are_enough(true), "{without:?}");
        }
        assert!(!Offers { namespaces: false, ..all.clone() }.are_enough(false));
        assert!(Offers { processes: false, ..all }.are_enough(false));
        assert!(!none.are_enough(true));
    }
}
