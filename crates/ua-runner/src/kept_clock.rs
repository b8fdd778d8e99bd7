//! A clock that knows how it was set before this process.
//!
//! What the wall clock says beside the time since the machine was started is kept in a file of the folder of locks, which no program of a model can
//! write. It is looked at where a span is measured that began in another process, and written once for each process and when the clock was set.
//! Where the file is lost or cannot be read, nothing is known of what was stored before: that is waited for once more.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use ua_core::{Clock, Env, Looks, Sleep, Time, Timestamp};
use ua_files::Folder;

use crate::host::boot_id;

const FILE: &str = "clock.json";
const MAX_BYTES: u64 = 256 * 1_024;
/// How far two readings of one clock may be apart for what was read between them.
const AT_ONCE: Duration = Duration::from_millis(100);
/// How often that is tried.
const TRIES: usize = 8;

/// The same environment, whose clock keeps in `folder` how it is set.
pub fn with_kept_clock(env: Env, folder: PathBuf) -> Env {
    Env { clock: Arc::new(Kept { inner: env.clock, boot: boot_id(), folder, looks: Mutex::default() }), ..env }
}

#[derive(Debug)]
struct Kept {
    inner: Arc<dyn Clock>,
    boot: String,
    folder: PathBuf,
    /// `None` until somebody asks: most processes measure no such span.
    looks: Mutex<Option<Looks>>,
}

impl Kept {
    /// What is kept by now; nothing where it cannot be read.
    fn read(&self) -> Looks {
        let kept = Folder::open_itself(&self.folder).and_then(|folder| folder.read(FILE, MAX_BYTES));
        kept.ok().and_then(|kept| serde_json::from_slice(&kept).ok()).unwrap_or_default()
    }

    /// Without it the next process knows less, and waits longer.
    fn write(&self, looks: &Looks) {
        let bytes = serde_json::to_vec(looks).unwrap_or_default();
        if let Err(error) = Folder::open_itself(&self.folder).and_then(|folder| folder.replace(FILE, &bytes)) {
            tracing::debug!(%error, "it was not noted how the clock is set");
        }
    }

    /// Both clocks at one moment, as far as nobody stops this process between the two.
    fn both(&self) -> (Duration, Timestamp) {
        let mut both = (since_boot(), self.inner.now());
        for _ in 0..TRIES {
            let up = since_boot();
            if up.saturating_sub(both.0) < AT_ONCE {
                break;
            }
            both = (up, self.inner.now());
        }
        both
    }
}

impl Clock for Kept {
    fn now(&self) -> Timestamp {
        self.inner.now()
    }

    fn uptime(&self) -> Duration {
        self.inner.uptime()
    }

    fn kept_time(&self) -> Option<Time> {
        if self.boot.is_empty() {
            return None; // a system that does not say which boot it is
        }
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = looks.is_none();
        let looks = looks.get_or_insert_with(|| self.read());
        let (up, now) = self.both();
        if looks.look(&self.boot, up, now) || is_first {
            looks.join(&self.boot, self.read());
            self.write(looks);
        }
        Some(looks.time(&self.boot, now))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.inner.sleep(span)
    }

    fn passes_by_itself(&self) -> bool {
        self.inner.passes_by_itself()
    }

    fn sleep_blocking_for_tests(&self, span: Duration) {
        self.inner.sleep_blocking_for_tests(span);
    }
}

/// The time since the machine was started, in which it was suspended as well.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// The real clock, which somebody sets.
    #[derive(Debug)]
    struct Settable {
        clock: Arc<dyn Clock>,
        by: AtomicI64,
    }

    impl Clock for Settable {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.clock.now().as_millis() + self.by.load(Ordering::SeqCst))
        }

        fn uptime(&self) -> Duration {
            self.clock.uptime()
        }

        fn sleep(&self, span: Duration) -> Sleep {
            self.clock.sleep(span)
        }
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn a_clock_that_is_set_between_two_processes_is_known_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let real = ua_core::system::env();
        let clock = Arc::new(Settable { clock: real.clock, by: AtomicI64::new(0) });
        let env = Env { clock: clock.clone(), entropy: real.entropy };
        let process = || with_kept_clock(env.clone(), folder.path().to_path_buf());
        let before = env.now().minus(MINUTE * 2);
        let first = process().time();
        assert!(first.now() < first.end_of(before, MINUTE), "nothing was kept of it");
        let from = env.now();
        clock.by.store(3_600_000, Ordering::SeqCst);
        for life in 0..3 {
            let time = process().time();
            let left = time.end_of(from, MINUTE).since(time.now());
            assert!(left > MINUTE / 2 && left <= MINUTE + Duration::from_secs(2), "{life}: {left:?}");
        }
        clock.by.store(-3_600_000, Ordering::SeqCst);
        for life in 0..3 {
            let time = process().time();
            assert!(time.may_be_over(from, MINUTE), "{life}");
            assert!(!time.may_be_over(time.now(), MINUTE * 120), "{life}");
        }
    }

    #[test]
    fn what_is_lost_is_waited_for_and_what_cannot_be_kept_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let process = |folder: &Path| with_kept_clock(ua_core::system::env(), folder.to_path_buf());
        let before = process(folder.path()).now().minus(MINUTE * 2);
        for kept in ["", "not json", "{\"boots\":[{}]}", "{\"boots\":[]}"] {
            let file = Folder::open_itself(folder.path()).unwrap();
            file.replace(FILE, kept.as_bytes()).unwrap();
            let time = process(folder.path()).time();
            assert!(time.now() < time.end_of(before, MINUTE), "{kept}");
        }
        let nowhere = process(&folder.path().join("not there"));
        let first = nowhere.time();
        assert!(first.now() < first.end_of(before, MINUTE));
        let time = nowhere.time();
        assert_eq!(time.end_of(before, MINUTE), first.end_of(before, MINUTE), "within a process it is known");
    }
}
