//! Shims, servers and calls against real processes that misbehave; and what these tests share: programs to run and
//! conditions to wait for.

mod dialects;
mod foretold;
mod hostile;
mod http;
mod listening;
mod logins;
mod permitted;
mod resumption;
mod servers;
mod shim;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ua_core::{Clock, Env, Sleep, Timestamp};

/// The real clock, ahead by as many seconds of uptime as a test says: what is older by then is so without anybody waiting.
#[derive(Debug)]
struct Later {
    clock: Arc<dyn Clock>,
    by: Arc<AtomicU64>,
}

impl Later {
    /// Puts it into `env`, and returns how far it is ahead.
    fn within(env: &mut Env) -> Arc<AtomicU64> {
        let by = Arc::new(AtomicU64::new(0));
        env.clock = Arc::new(Self { clock: Arc::clone(&env.clock), by: Arc::clone(&by) });
        by
    }
}

impl Clock for Later {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn uptime(&self) -> Duration {
        self.clock.uptime() + Duration::from_secs(self.by.load(Ordering::SeqCst))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.clock.sleep(span)
    }
}

/// An example program of this crate; `cargo test` builds them beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{} is not built; run `cargo build -p ua-mcp --examples`", path.display());
    path
}

/// Waits until something is there, for 20 s at most.
fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..4000 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("waited in vain for {what}");
}

/// The same, without blocking the runtime's thread.
async fn wait_for_async<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let env = ua_core::system::env();
    for _ in 0..4000 {
        if let Some(found) = look() {
            return found;
        }
        env.clock.sleep(Duration::from_millis(5)).await;
    }
    panic!("waited in vain for {what}");
}

/// Whether a process runs; one that only waits to be reaped does not.
fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The process number in a file, once it is there.
fn pid_in(file: &Path) -> i32 {
    wait_for(&file.display().to_string(), || std::fs::read_to_string(file).ok()?.trim().parse().ok())
}

/// Whether a lock file is locked by somebody.
fn is_locked(path: &Path) -> bool {
    match File::open(path).unwrap().try_lock() {
        Ok(()) => false,
        Err(TryLockError::WouldBlock) => true,
        Err(TryLockError::Error(error)) => panic!("{error}"),
    }
}

/// A shell line that runs the rest of the command line deaf to polite signals.
const DEAF: &str = r#"trap '' TERM INT HUP; exec "$0" "$@""#;
