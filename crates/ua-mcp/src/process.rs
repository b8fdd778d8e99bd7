//! What the operating system says about the processes of a tool server.
//!
//! Reads Linux's `/proc`. Where there is none, nothing is ever found, so nothing is ever killed by mistake and a lock that
//! stays busy is reported instead.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, Signal};

/// The environment variable that every process below a shim inherits; its value is the path of the shim's lock file. It
/// finds those that left the session or closed their pipe.
pub(crate) const MARK: &str = "UA_TOOL_SERVER_LOCK";

/// One process that is not a zombie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// When it started, in clock ticks since boot: with the boot id, this tells a process from a later one of its number.
    pub(crate) start_ticks: u64,
}

impl Process {
    /// Looks a process up; `None` when it is gone or only waits to be reaped.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    pub(crate) fn find(pid: i32) -> Option<Self> {
        parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it is still there: a process of its number that started when it did, and is not a zombie.
    pub(crate) fn is_there(self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.start_ticks == self.start_ticks)
    }

    /// Sends `signal`, unless the process is gone.
    pub(crate) fn signal(self, signal: Signal) {
        // The number is looked at once more, so that a process which got it since the scan is left alone.
        if self.is_there()
            && let Some(pid) = Pid::from_raw(self.pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            tracing::debug!(pid = self.pid, %error, "signal not delivered");
        }
    }

    /// Whether the environment it was started with has `NAME=value`.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    fn was_started_with(self, entry: &[u8]) -> bool {
        fs::read(format!("/proc/{}/environ", self.pid))
            .is_ok_and(|all| all.split(|byte| *byte == 0).any(|one| one == entry))
    }

    /// Whether it has the file of this device and inode open.
    pub(crate) fn holds(self, device: u64, inode: u64) -> bool {
        let Ok(open_files) = fs::read_dir(format!("/proc/{}/fd", self.pid)) else { return false };
        open_files
            .flatten()
            .any(|file| fs::metadata(file.path()).is_ok_and(|meta| meta.dev() == device && meta.ino() == inode))
    }

    /// The name of its program, as the kernel keeps it.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
    pub(crate) fn name(self) -> String {
        fs::read_to_string(format!("/proc/{}/comm", self.pid))
            .map_or_else(|_| "?".to_owned(), |name| name.trim_end().to_owned())
    }
}

/// Reads `/proc/<pid>/stat`. The program's name stands in parentheses and may hold anything, so fields count from the last
/// closing one.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return None;
    }
    let parent = fields.next()?.parse().ok()?; // field 4
    let session = fields.nth(1)?.parse().ok()?; // field 6
    let start_ticks = fields.nth(15)?.parse().ok()?; // field 22
    Some(Process { pid, parent, session, start_ticks })
}

/// Every process but this one.
pub(crate) fn others() -> Vec<Process> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != me).filter_map(Process::find).collect()
}

/// The processes that a shim started, directly or not: those below it, those of its session, and those that carry the mark of its lock. The
/// shim itself, if it is among them, comes last: as long as it lives, what loses its parent becomes its child.
/// `shim` is only to be given while that process is known to be the shim; its number is its session's, too.
pub(crate) fn below_shim(shim: Option<i32>, lock: &Path) -> Vec<Process> {
    let mut mark = format!("{MARK}=").into_bytes();
    mark.extend_from_slice(lock.as_os_str().as_encoded_bytes());
    let others = others();
    let mut below: BTreeSet<i32> = BTreeSet::new();
    if let Some(shim) = shim {
        let mut new = vec![shim];
        while let Some(parent) = new.pop() {
            new.extend(others.iter().filter(|p| p.parent == parent && below.insert(p.pid)).map(|p| p.pid));
        }
    }
    let belongs = |p: &Process| below.contains(&p.pid) || shim == Some(p.session) || p.was_started_with(&mark);
    let mut all: Vec<Process> = others.iter().copied().filter(belongs).collect();
    all.sort_by_key(|p| shim == Some(p.pid));
    all
}

/// Whether this process already is the leader of its session.
pub(crate) fn leads_its_session() -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    Process::find(me).is_some_and(|process| process.session == me)
}

/// The identity of this boot of the machine.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
pub(crate) fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_cannot_forge_the_fields_after_it() {
        let stat = "42 (a) S 1 1 1 (b) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        assert_eq!(parse(42, stat), Some(Process { pid: 42, parent: 7, session: 9, start_ticks: 98765 }));
    }

    #[test]
    fn a_zombie_counts_as_gone() {
        assert_eq!(parse(42, "42 (a) Z 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1"), None);
    }

    #[test]
    fn this_process_is_found_by_its_number_only() {
        let me = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Process::find(me).unwrap().pid, me);
        assert!(others().iter().all(|other| other.pid != me));
    }
}
