//! The real clock and real entropy: the one place in the workspace that asks the operating system for either.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::env::{Clock, Entropy, Env, Sleep, Timestamp};

/// The wall clock of the machine; waits on tokio's timer.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn passes_by_itself(&self) -> bool {
        true
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the real clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one reader of the real clock")]
    fn uptime(&self) -> Duration {
        static FIRST: OnceLock<Instant> = OnceLock::new();
        FIRST.get_or_init(Instant::now).elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the one place that waits in real time")]
    fn sleep(&self, span: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Random bits of the operating system.
#[derive(Debug, Clone, Copy)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        // `uuid` draws version 7's 74 random bits from the operating system; the last eight bytes hold 62 of them.
        let bytes = uuid::Uuid::now_v7().into_bytes();
        let (high, low) = (tail(&bytes), tail(uuid::Uuid::now_v7().as_bytes()));
        high.rotate_left(32) ^ low
    }
}

fn tail(bytes: &[u8; 16]) -> u64 {
    let mut last = [0_u8; 8];
    last.copy_from_slice(&bytes[8..]);
    u64::from_be_bytes(last)
}

/// The environment of a real process.
pub fn env() -> Env {
    Env { clock: Arc::new(SystemClock), entropy: Arc::new(SystemEntropy) }
}
