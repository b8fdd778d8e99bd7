//! The real clock and real entropy: the one place in the workspace that asks the operating system for either.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::sync::{Arc, Mutex, OnceLock};
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
        kept().unwrap_or_else(asked_for)
    }
}

/// So many random bytes are asked for at once: what an id takes is 16, and each time that the kernel is asked is a call of it.
const AT_ONCE: usize = 512;

/// From what was read before; `None` where there is no such device, or it may not be opened.
fn kept() -> Option<u64> {
    static CHANCE: OnceLock<Option<Mutex<BufReader<File>>>> = OnceLock::new();
    let chance = CHANCE.get_or_init(|| {
        // Of a machine that was started just now the device may be read before there is any chance, which this waits for.
        let _seeded = asked_for();
        File::open("/dev/urandom").ok().map(|device| Mutex::new(BufReader::with_capacity(AT_ONCE, device)))
    });
    let mut bytes = [0_u8; 8];
    chance.as_ref()?.lock().ok()?.read_exact(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// From the kernel, each time.
fn asked_for() -> u64 {
    // `uuid` draws version 7's 74 random bits from the operating system; the last eight bytes hold 62 of them.
    let bytes = uuid::Uuid::now_v7().into_bytes();
    let (high, low) = (tail(&bytes), tail(uuid::Uuid::now_v7().as_bytes()));
    high.rotate_left(32) ^ low
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::thread;

    use super::*;

    /// Neither within what is read at once nor behind it, by whichever thread, is anything drawn twice.
    #[test]
    fn nothing_is_drawn_twice() {
        assert!(kept().is_some(), "the device is there");
        let draws = || (0..4 * AT_ONCE).map(|_| SystemEntropy.next_u64()).collect::<Vec<u64>>();
        let drawn: Vec<u64> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draws)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), 16 * AT_ONCE);
        assert_ne!(asked_for(), asked_for());
        // Each bit is set about as often as not.
        for bit in 0..64 {
            let set = drawn.iter().filter(|number| (**number >> bit) & 1 == 1).count();
            assert!((7 * AT_ONCE..9 * AT_ONCE).contains(&set), "bit {bit}: {set} of {}", drawn.len());
        }
    }
}
