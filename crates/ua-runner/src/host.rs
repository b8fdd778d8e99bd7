//! Which process this is: enough to tell it from a later one that got the same process id.

use ua_core::{RunStatus, Trace};
use ua_store::{OwnerStamp, RunRecord};

/// The kernel's id of this boot; empty where the system has none.
pub fn boot_id() -> String {
    read_line("/proc/sys/kernel/random/boot_id")
}

/// The stamp of this process, with the trace it works under.
pub fn owner_stamp(trace: Trace) -> OwnerStamp {
    let pid = std::process::id();
    let start_ticks = start_ticks(pid).unwrap_or(0);
    OwnerStamp { pid, start_ticks, boot_id: boot_id(), host: host_name(), trace, ended_before: Vec::new() }
}

/// What tells this process from others of its machine: [`OwnerStamp::process`].
pub(crate) fn this_process() -> String {
    let pid = std::process::id();
    format!("{pid}@{}", start_ticks(pid).unwrap_or(0))
}

/// Whether the stamped process is still alive on this machine: same boot, same process id, same start time.
pub fn process_is_alive(stamp: &OwnerStamp) -> bool {
    stamp.boot_id == boot_id() && start_ticks(stamp.pid) == Some(stamp.start_ticks)
}

/// Whether a process may be at work on the run, as far as this machine can tell: one that it cannot see is taken to be alive.
pub fn may_be_driven(run: &RunRecord) -> bool {
    run.status == RunStatus::Running && run.owner.as_ref().is_some_and(|owner| !has_ended_here(owner))
}

/// Whether the stamped process is one of this machine, is there, and was stopped (SIGSTOP, Ctrl-Z, a debugger): it does nothing until it is continued.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
pub fn process_is_paused(stamp: &OwnerStamp) -> bool {
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", stamp.pid)).ok()?;
        let after_name = stat.get(stat.rfind(')')? + 1..)?;
        Some(matches!(after_name.split_whitespace().next()?, "T" | "t"))
    };
    process_is_alive(stamp) && is_stopped().unwrap_or_default()
}

/// Whether a process was one of this machine and is gone.
pub fn has_ended_here(stamp: &OwnerStamp) -> bool {
    stamp.host == host_name() && !process_is_alive(stamp)
}

fn host_name() -> String {
    read_line("/proc/sys/kernel/hostname")
}

/// When the process started, in clock ticks since boot (field 22 of its `stat`); `None` when it is gone, a process that
/// ended and was not waited for included.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses and may hold anything.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X" | "x");
    if has_ended { None } else { fields.nth(18)?.parse().ok() }
}

#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn read_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use ua_store::{RunStore as _, conformance};

    use super::*;

    #[test]
    fn a_stamp_fits_only_its_own_process() {
        let stamp = owner_stamp(Trace::new(&ua_core::Env::simulated(1)));
        assert!(process_is_alive(&stamp));
        assert!(!process_is_alive(&OwnerStamp { start_ticks: stamp.start_ticks + 1, ..stamp.clone() }));
        assert!(!process_is_alive(&OwnerStamp { boot_id: "other".to_owned(), ..stamp }));
    }

    #[test]
    fn a_process_that_was_stopped_is_paused_until_it_continues() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let mine = owner_stamp(Trace::new(&ua_core::Env::simulated(1)));
        let stamp = OwnerStamp { pid, start_ticks: start_ticks(pid).unwrap(), ..mine.clone() };
        let signal = |name: &str| {
            let sent = std::process::Command::new("kill").args([name, &pid.to_string()]).status();
            assert!(sent.unwrap().success(), "{name}");
        };
        let comes_to = |wanted: bool| (0..100_000).any(|_| process_is_paused(&stamp) == wanted);
        assert!(!process_is_paused(&mine) && !process_is_paused(&stamp));
        signal("-STOP");
        assert!(comes_to(true));
        let other = OwnerStamp { start_ticks: stamp.start_ticks + 1, ..stamp.clone() };
        assert!(!process_is_paused(&other), "another process with its number");
        signal("-CONT");
        assert!(comes_to(false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!process_is_paused(&stamp));
    }

    #[tokio::test]
    async fn a_run_may_be_driven_by_who_lives_and_by_who_cannot_be_seen() {
        let stamp = owner_stamp(Trace::new(&ua_core::Env::simulated(1)));
        let gone = OwnerStamp { start_ticks: stamp.start_ticks + 1, ..stamp.clone() };
        let elsewhere = OwnerStamp { host: "another machine".to_owned(), ..gone.clone() };
        let record = ua_store::MemStore::new().submit_run(conformance::samples::new_run("run_1")).await.unwrap();
        let run = |status, owner: Option<&OwnerStamp>| {
            may_be_driven(&RunRecord { status, owner: owner.cloned(), ..record.clone() })
        };
        assert!(run(RunStatus::Running, Some(&stamp)) && run(RunStatus::Running, Some(&elsewhere)));
        assert!(!run(RunStatus::Running, Some(&gone)) && !run(RunStatus::Running, None));
        assert!(!run(RunStatus::WaitingForHuman, Some(&stamp)), "it let go of the run");
    }
}
