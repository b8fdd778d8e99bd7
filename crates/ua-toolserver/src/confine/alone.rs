//! Namespaces: a program that has a network without a way out, and takes everything it started with it when it ends.
//!
//! The program keeps its user and group: they are mapped to themselves. It cannot become anybody else in there.
//!
//! Its `/proc` is one of its own, so it finds no process but those inside, under the numbers by which they know themselves. Only the first
//! process inside can mount that, and close the other mounts ([`super::mounts`]), and only with a right that it was left with for this and that
//! nothing it starts gets back.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use nix::sched::CloneFlags;
use rustix::mount::MountFlags;
use rustix::process::{Signal, WaitOptions};
use rustix::thread::CapabilitySet;

use super::report::{self, Report};
use super::{Confinement, RUN_INSIDE, RUN_LAST, limits, mounts};

/// Has this process killed when the server that wanted it ends, however it ends; what it becomes by `exec` as well.
///
/// The signal comes when the *thread* ends that started it. That is one of the server's runtime, which lives as long as the server.
pub(super) fn end_with_the_server(server: u32) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("it would outlive its server: {error}"))?;
    // It may have ended before; then somebody else is the parent by now.
    if std::os::unix::process::parent_id() == server { Ok(()) } else { Err(GONE.to_owned()) }
}

const GONE: &str = "the server that wanted it is gone";

/// Moves this process into namespaces of its own: users, mounts and IPC, network unless it may use the one there is, and processes, where
/// what it starts next becomes the first one.
pub(super) fn enter(network: bool) -> Result<(), String> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut flags =
        CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC;
    flags.set(CloneFlags::CLONE_NEWNET, !network);
    nix::sched::unshare(flags).map_err(|error| format!("unshare: {error}"))?;
    let files = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in files {
        #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
        std::fs::write(file, text).map_err(|error| format!("{file}: {error}"))?;
    }
    pass_on_mounting().map_err(|error| format!("capabilities: {error}"))
}

/// Lets what this process starts mount file systems in its namespaces.
fn pass_on_mounting() -> rustix::io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable.insert(CapabilitySet::SYS_ADMIN);
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
}

/// Takes that again from whatever this process starts.
fn keep_mounting() -> rustix::io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    sets.inheritable.remove(CapabilitySet::SYS_ADMIN);
    super::rights::clear_ambient()?;
    rustix::thread::set_capabilities(None, sets)?;
    // Root has by `exec` whatever is not taken from it for good. Everybody else has nothing, and may take nothing. What is left of the others
    // goes before the program is there ([`super::rights`]).
    if rustix::process::geteuid().is_root() {
        rustix::thread::remove_capability_from_bounding_set(CapabilitySet::SYS_ADMIN)?;
    }
    Ok(())
}

/// Puts a `/proc` of its own in the place of the one outside, for the first process inside and what it starts. Refused where a part of the one
/// outside is hidden, as in most containers. The mounts were parted before.
pub(super) fn mount_own_proc() -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)
}

/// This program under the same hidden name, in another mode.
pub(super) fn again(args: &[OsString], mode: &str) -> Command {
    again_with(args.len(), mode, args)
}

/// The same with other arguments than this process has, of which `ours` are behind the hidden name; the first, the mode, is replaced.
pub(super) fn again_with(ours: usize, mode: &str, args: &[OsString]) -> Command {
    let before = std::env::args_os().len().saturating_sub(1 + ours);
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
pub(super) fn first_process(args: &[OsString], confinement: &Confinement) -> Result<i32, String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("it would outlive its server: {error}"))?;
    if has_lost_its_parent(args) {
        return Err(GONE.to_owned());
    }
    let offers = &confinement.offers;
    if offers.own_proc || offers.mounts {
        mounts::part().map_err(|error| format!("its mounts cannot be parted any more: {error}"))?;
    }
    if offers.own_proc {
        mount_own_proc().map_err(|error| format!("it cannot have a /proc of its own any more: {error}"))?;
    }
    // While `/proc` can be written.
    if offers.processes && !limits::limit_numbers(&confinement.limits) {
        return Err("the number of its processes cannot be limited any more".to_owned());
    }
    if offers.mounts {
        mounts::close(&confinement.write).map_err(|why| format!("its mounts cannot be closed any more: {why}"))?;
    }
    keep_mounting().map_err(|error| format!("capabilities: {error}"))?;
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

/// Whether the keeper ended before its death could be noticed. Numbers in `/proc` are still those outside, where a lost child is that of the
/// first process or of a shim; the keeper was told the same as this process.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn has_lost_its_parent(args: &[OsString]) -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse::<u32>().ok());
    let told = parent.and_then(|parent| std::fs::read(format!("/proc/{parent}/cmdline")).ok()).unwrap_or_default();
    let ours = args.get(1).map(|word| word.as_encoded_bytes()).unwrap_or_default();
    !told.split(|byte| *byte == 0).any(|word| word == ours)
}
