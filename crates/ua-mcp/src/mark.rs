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
pub fn may_be_below_a_shim() -> bool {
    #[cfg(target_os = "linux")]
    return getrlimit(Resource::Msgqueue).maximum.is_some_and(|most| most < USUAL);
    #[cfg(not(target_os = "linux"))]
    false
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
        let line = limits.lines().find(|line| line.starts_with("Max msgqueue size")).unwrap();
        let hard: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        assert!(hard < USUAL, "{line}");
    }
}
