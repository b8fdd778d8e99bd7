//! Signals as a program has them that nobody prepared.
//!
//! Which signals a process blocks and which it ignores is inherited, through every start in between. A client may block or ignore some for its
//! own reasons, and a bridge does so while it waits for them; a broker or a tool server that inherited that could not be asked to end. So each
//! program of this project begins by blocking nothing, and what a shim starts ignores nothing either. What ends a call is then the same
//! whoever started whom.
//!
//! Proved by: `tests::shim`, the gateway's `tests/it/ends.rs`.

use std::fs;
use std::io;

use nix::sys::signal::{SigSet, Signal};
use tokio::signal::unix::{SignalKind, signal};

/// Blocks no signal from here on, whatever this process inherited. To be called by a program first of all, before it has a second thread.
pub fn unblock_signals() {
    if let Err(error) = SigSet::all().thread_unblock() {
        tracing::debug!(%error, "signals stay blocked as they were inherited");
    }
}

/// Whether this process ignores a signal, which somebody said who started it (`nohup`), as far as the system tells.
pub fn is_ignored(number: i32) -> bool {
    ignored_here().contains(&number)
}

/// Has what this process starts from here on ignore no signal. The process itself goes on ignoring what it ignored.
pub(crate) fn ignore_nothing_below() -> io::Result<()> {
    let ignored = ignored_here();
    if ignored.is_empty() {
        return Ok(());
    }
    // What is heard here, if only to do nothing, is at its default in a program that is started; what is ignored is not.
    hear_once(ignored.into_iter().map(SignalKind::from_raw))
}

/// Has this process go on when it is asked to end: it ends for another reason that its caller knows. What it starts is asked as ever.
///
/// # Errors
/// The signals cannot be heard.
pub fn outlive_requests_to_end() -> io::Result<()> {
    // What is heard once is never at its default again, also when nobody listens any more.
    hear_once([SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()])
}

/// Has this process hear these signals. On a thread of its own, which is gone when this returns: whoever calls may be in a runtime already (a
/// program's `main`), and there no other can be ended.
fn hear_once(kinds: impl IntoIterator<Item = SignalKind> + Send) -> io::Result<()> {
    let hear = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let _within = runtime.enter();
        kinds.into_iter().try_for_each(|kind| signal(kind).map(drop))
    };
    std::thread::scope(|threads| threads.spawn(hear).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread that hears signals panicked")))
}

#[expect(clippy::disallowed_methods, reason = "the kernel's own files")]
fn ignored_here() -> Vec<i32> {
    ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// The numbers of the signals that are ignored, as the kernel says it of a process. That of a broken pipe is the standard library's business.
fn ignored(status: &str) -> Vec<i32> {
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let is_ignored = |number: &i32| mask.unwrap_or_default() >> (number - 1) & 1 == 1;
    let ours = Signal::iterator().filter(|signal| *signal != Signal::SIGPIPE).map(|signal| signal as i32);
    ours.filter(is_ignored).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of the library is the shim of its tool servers from within the runtime of its `main`.
    #[tokio::test]
    async fn signals_are_heard_from_within_a_runtime() {
        hear_once([SignalKind::user_defined2()]).unwrap();
    }

    #[test]
    fn ignored_signals_are_read_as_the_kernel_writes_them() {
        let status = "Name:\tx\nSigBlk:\t0000000000004003\nSigIgn:\t0000000001001003\nSigCgt:\t0\n";
        assert_eq!(ignored(status), [Signal::SIGHUP as i32, Signal::SIGINT as i32, Signal::SIGXFSZ as i32]);
        assert_eq!(ignored("SigIgn:\t0000000000000000\n"), [0; 0]);
        assert_eq!(ignored(""), [0; 0]);
    }
}
