//! Taking a run from a process that is alive: it is asked to end, and killed if it does not.
//!
//! Meant for a process that hangs. The process is the one that wrote its stamp into the lock file, told from a later one of
//! its number by start time and boot; the signal goes through a handle on that process, so it cannot reach another. A call
//! that was in flight is unknown afterwards, like after any kill.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use ua_core::{Env, RunId};
use ua_files::Folder;
use ua_store::OwnerStamp;

use crate::host::process_is_alive;
use crate::lock::{LockError, MAX_STAMP_BYTES, RunLock};

/// How long the process may take to end by itself; it lets calls with an effect finish meanwhile.
const GRACE: Duration = Duration::from_secs(12);
/// How long the lock may take to become free once the process is gone.
const SETTLE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(20);

/// What is being done about the process that holds a run, for whoever waits meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakingOver {
    /// It was asked to end, and is waited for.
    Asked {
        /// The process.
        pid: u32,
        /// How long it is waited for at most.
        patience: Duration,
    },
    /// It did not end by itself, and was killed.
    Killed {
        /// The process.
        pid: u32,
    },
}

impl RunLock {
    /// Takes the lock; a living process that holds it is ended first, and each step of that is `told`. Takes up to some twenty seconds.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] when the holder is on another machine, cannot be told, or may not be signalled by this user.
    pub async fn take_over(
        dir: &Path,
        run: &RunId,
        owner: &OwnerStamp,
        env: &Env,
        told: &(dyn Fn(TakingOver) + Send + Sync),
    ) -> Result<Self, LockError> {
        let holder = match Self::take(dir, run, owner) {
            Err(LockError::Held { owner: Some(holder), .. }) => holder,
            other => return other,
        };
        note_taker(dir, run, owner);
        end(&holder, env, told).await;
        let until = env.now().plus(SETTLE);
        let taken = loop {
            match Self::take(dir, run, owner) {
                Err(LockError::Held { .. }) if env.now() < until => env.clock.sleep(PAUSE).await,
                other => break other,
            }
        };
        if let Ok(folder) = Folder::open_itself(dir) {
            folder.remove(note_of(run)).ok();
        }
        taken
    }

    /// The other process that is taking `run` over from the one that drives it, as far as it can be told: to whoever is asked to end a signal says
    /// nothing of that.
    pub fn taker(dir: &Path, run: &RunId) -> Option<OwnerStamp> {
        let note = Folder::open_itself(dir).and_then(|folder| folder.read(note_of(run), MAX_STAMP_BYTES)).ok()?;
        let taker: OwnerStamp = serde_json::from_slice(&note).ok()?;
        (process_is_alive(&taker) && taker.pid != std::process::id()).then_some(taker)
    }
}

/// The file, beside the lock, in which a process says that it takes the run over.
fn note_of(run: &RunId) -> String {
    format!("{run}.taker")
}

/// Notes that this process takes the run over. Nothing depends on it: without it the other process says what it says of any signal.
fn note_taker(dir: &Path, run: &RunId, taker: &OwnerStamp) {
    let stamp = serde_json::to_vec(taker).unwrap_or_default();
    if let Err(error) = Folder::open_itself(dir).and_then(|folder| folder.replace(note_of(run), &stamp)) {
        tracing::debug!(%error, "it was not noted who takes the run over");
    }
}

/// Ends the stamped process: asked first, killed when the grace is over.
async fn end(holder: &OwnerStamp, env: &Env, told: &(dyn Fn(TakingOver) + Send + Sync)) {
    let pid = i32::try_from(holder.pid).ok().and_then(Pid::from_raw);
    let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
    // Looked at through the handle's lifetime: what has this number now is what the handle refers to.
    if !process_is_alive(holder) {
        return;
    }
    let (asked, killed) =
        (TakingOver::Asked { pid: holder.pid, patience: GRACE }, TakingOver::Killed { pid: holder.pid });
    for (signal, patience, step) in [(Signal::TERM, GRACE, asked), (Signal::KILL, SETTLE, killed)] {
        match is_there_to_hear(&process, signal) {
            Ok(true) => told(step),
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(pid = holder.pid, %error, "the process that drives the run could not be signalled");
                return;
            }
        }
        let until = env.now().plus(patience);
        while process_is_alive(holder) && env.now() < until {
            env.clock.sleep(PAUSE).await;
        }
        if !process_is_alive(holder) {
            return;
        }
    }
}

/// Sends a signal. False when the process has ended by itself, which is all that is wanted of it.
fn is_there_to_hear(process: &OwnedFd, signal: Signal) -> Result<bool, Errno> {
    match pidfd_send_signal(process, signal) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use ua_core::Trace;

    use super::*;

    #[test]
    fn a_process_that_has_ended_meanwhile_is_no_failure() {
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        assert_eq!(is_there_to_hear(&process, Signal::TERM), Ok(true));
        child.wait().unwrap();
        assert_eq!(is_there_to_hear(&process, Signal::KILL), Ok(false));
    }

    #[test]
    fn who_is_asked_to_end_can_say_who_takes_the_run_over() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, run) = (folder.path(), RunId::parse("r").unwrap());
        let own = crate::host::owner_stamp(Trace::new(&ua_core::system::env()));
        assert_eq!(RunLock::taker(dir, &run), None);
        note_taker(dir, &run, &own);
        assert_eq!(RunLock::taker(dir, &run), None, "it is this process itself");
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let start_ticks = crate::host::start_ticks(child.id()).unwrap();
        let other = OwnerStamp { pid: child.id(), start_ticks, ..own };
        note_taker(dir, &run, &other);
        assert_eq!(RunLock::taker(dir, &run), Some(other));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(RunLock::taker(dir, &run), None, "it was killed before it took the run");
    }

    #[tokio::test]
    async fn only_the_stamped_process_is_ended() {
        let env = ua_core::system::env();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        let own = crate::host::owner_stamp(Trace::new(&env));
        let start_ticks = crate::host::start_ticks(child.id()).unwrap();
        let stamp = OwnerStamp { pid: child.id(), start_ticks, ..own };
        let told = std::sync::Mutex::new(Vec::new());
        let note = |step| told.lock().unwrap().push(step);
        end(&OwnerStamp { start_ticks: start_ticks + 1, ..stamp.clone() }, &env, &note).await;
        assert!(child.try_wait().unwrap().is_none(), "another start time is another process");
        let other_boot = OwnerStamp { boot_id: "other".to_owned(), ..stamp.clone() };
        end(&other_boot, &env, &note).await;
        assert!(child.try_wait().unwrap().is_none(), "another boot is another process");
        assert_eq!(*told.lock().unwrap(), []);
        end(&stamp, &env, &note).await;
        assert_eq!(*told.lock().unwrap(), [TakingOver::Asked { pid: stamp.pid, patience: GRACE }]);
        assert!(!child.wait().unwrap().success());
    }
}
