//! Limits on what a program uses, by `setrlimit`, and on how many processes it has.
//!
//! `RLIMIT_NPROC` counts the processes of a *user*, all of them, so by itself it would be used up by whatever else the user runs. In a user
//! namespace of its own a program is counted apart. The kernel never applies it to the machine's root: there the process namespace gets
//! few process numbers instead (`kernel.pid_max`, which is the namespace's own since Linux 6.14, and 301 at the least).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{Confinement, Limits};

const MIB: u64 = 1 << 20;
/// The kernel takes no smaller one.
const LEAST_PID_MAX: u64 = 301;

/// Takes from this process, and from what it starts, what is beyond the limits.
pub(super) fn apply(confinement: &Confinement) -> Result<(), String> {
    let limits = &confinement.limits;
    if confinement.offers.processes && !count_processes(limits) {
        return Err("the number of its processes cannot be limited any more".to_owned());
    }
    let all = [
        (Resource::Nofile, "open files", limits.open_files),
        (Resource::As, "address space", limits.memory_mib.saturating_mul(MIB)),
        (Resource::Fsize, "size of files", limits.file_mib.saturating_mul(MIB)),
        (Resource::Cpu, "CPU seconds", limits.cpu_seconds),
    ];
    for (resource, name, most) in all {
        lower(resource, most).map_err(|error| format!("its {name} cannot be limited: {error}"))?;
    }
    Ok(())
}

fn lower(resource: Resource, most: u64) -> rustix::io::Result<()> {
    if most == 0 {
        return Ok(());
    }
    let most = getrlimit(resource).maximum.map_or(most, |already| already.min(most));
    setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
}

/// Limits the processes of this user in the user namespace that this process is in, and says whether that holds.
pub(super) fn count_processes(limits: &Limits) -> bool {
    limits.processes == 0 || lower(Resource::Nproc, limits.processes).is_ok()
}

/// Limits the numbers of the process namespace that this process is in, for root, and says whether that holds.
#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
pub(super) fn limit_numbers(limits: &Limits) -> bool {
    if limits.processes == 0 || !rustix::process::geteuid().is_root() {
        return true;
    }
    std::fs::write("/proc/sys/kernel/pid_max", limits.processes.max(LEAST_PID_MAX).to_string()).is_ok()
}
