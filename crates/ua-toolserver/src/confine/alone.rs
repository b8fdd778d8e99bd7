//! Namespaces: a program that has a network without a way out, and takes everything it started with it when it ends.
//!
//! The program keeps its user and group: they are mapped to themselves. It cannot become anybody else in there.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use nix::sched::CloneFlags;
use rustix::process::{Signal, WaitOptions};

use super::report::{self, Report};
use super::{RUN_INSIDE, RUN_LAST};

/// Moves this process into namespaces of its own: users and IPC, network unless it may use the one there is, and processes, where what it
/// starts next becomes the first one.
pub(super) fn enter(network: bool) -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut flags = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    flags.set(CloneFlags::CLONE_NEWNET, !network);
    nix::sched::unshare(flags).map_err(|error| format!("unshare: {error}"))?;
    let files = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in files {
        std::fs::write(file, text).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

/// This program under the same hidden name, in another mode.
pub(super) fn again(args: &[OsString], mode: &str) -> Command {
    let before = std::env::args_os().len().saturating_sub(1 + args.len());
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1).take(before)).arg(mode).args(args.iter().skip(1));
    command
}

/// Starts the first process inside, and ends when it does. Whoever kills this process ends everything inside.
pub(super) fn keep(args: &[OsString]) -> Result<i32, String> {
    let status = again(args, RUN_INSIDE).status().map_err(|error| format!("its first process: {error}"))?;
    if let Some(signal) = status.signal() {
        // Nothing inside can do that; the machine ran out of memory, or a person did it.
        report::send(&Report::Ended { code: None, signal: Some(signal) });
    }
    Ok(status.code().unwrap_or(0))
}

/// Starts what becomes the program, and waits for it and for what it left behind. When it returns the kernel ends the rest.
pub(super) fn first_process(args: &[OsString]) -> Result<i32, String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("it would outlive its server: {error}"))?;
    if has_lost_its_parent() {
        return Err("the server that wanted it is gone".to_owned());
    }
    let child = again(args, RUN_LAST).spawn().map_err(|error| format!("its last process: {error}"))?;
    let program = i32::try_from(child.id()).unwrap_or(0);
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => {
                report::send(&Report::Ended { code: status.exit_status(), signal: status.terminating_signal() });
                return Ok(0);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("it was started but not waited for: {error}")),
        }
    }
}

/// Whether the keeper ended before its death could be noticed. Numbers in `/proc` are those outside, where a lost child is the first
/// process's.
fn has_lost_its_parent() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
    parent == Some(1)
}
