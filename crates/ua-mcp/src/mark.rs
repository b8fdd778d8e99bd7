//! A mark of what is started below a shim that nothing there can take off.
//!
//! Whether a tool server started a command is read off its ancestors ([`crate::run_shim`]). Where the system hides processes (`/proc` with
//! `hidepid`), a shim may be hidden from its own user, as are processes of other users, and the one cannot be told from the other. So a shim
//! lowers a limit that nearly nobody comes near, the bytes of message queues, by a little, for itself and for whatever it starts: a limit that
//! was lowered is raised again by nobody but the system's administrator.

#[cfg(target_os = "linux")]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the kernel allows a user, in bytes (`MQ_BYTES_MAX`).
#[cfg(target_os = "linux")]
const USUAL: u64 = 819_200;

/// Marks this process and what it starts from here on.
pub(crate) fn mark() {
    #[cfg(target_os = "linux")]
    {
        let most = getrlimit(Resource::Msgqueue).maximum.map_or(USUAL - 1, |most| most.min(USUAL - 1));
        if let Err(error) = setrlimit(Resource::Msgqueue, Rlimit { current: Some(most), maximum: Some(most) }) {
            tracing::debug!(%error, "what the tool server starts is not marked");
        }
    }
}

/// Whether this process may have been started below a shim. Where an administrator allows less than usual, each may have been.
pub(crate) fn may_be_below_a_shim() -> bool {
    #[cfg(target_os = "linux")]
    return getrlimit(Resource::Msgqueue).maximum.is_some_and(|most| most < USUAL);
    #[cfg(not(target_os = "linux"))]
    false
}

/// The same of another process, by what the kernel lists of its limits. What is not listed may be lowered.
#[cfg(target_os = "linux")]
pub(crate) fn is_lowered(limits: &str) -> bool {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max msgqueue size"));
    let most = line.and_then(|line| line.split_whitespace().nth(1));
    // "unlimited" is a word.
    most.is_none_or(|most| most.parse::<u64>().is_ok_and(|most| most < USUAL))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_marked_process_and_what_it_starts_stay_marked() {
        mark();
        assert!(may_be_below_a_shim());
        let before = getrlimit(Resource::Msgqueue);
        mark();
        assert_eq!(getrlimit(Resource::Msgqueue), before, "once is enough");
        let limits = std::process::Command::new("cat").arg("/proc/self/limits").output().unwrap();
        let limits = String::from_utf8(limits.stdout).unwrap();
        assert!(is_lowered(&limits), "{limits}");
        assert!(is_lowered(""));
        assert!(!is_lowered("Max msgqueue size         819200               819200               bytes"));
        assert!(!is_lowered("Max msgqueue size         unlimited            unlimited            bytes"));
    }
}
