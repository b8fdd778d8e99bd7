//! Time and chance, as values that the composition root hands in.
//!
//! Everything that wants to know the time or needs a random number asks an [`Env`]. Tests hand in a simulated one and
//! get the same ids and the same instants on every run.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant: milliseconds since 1970-01-01T00:00:00Z, from the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes an instant from milliseconds since the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 text, as [`Display`](fmt::Display) writes it.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// The time from `earlier` to `self`; zero when the clock went backwards in between.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The instant `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The instant `span` earlier.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// `YYYYMMDD_HHMMSS` in UTC, for names of folders.
    pub fn compact(self) -> String {
        jiff::Timestamp::from_millisecond(self.0)
            .map_or_else(|_| self.0.to_string(), |t| t.strftime("%Y%m%d_%H%M%S").to_string())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "@{}ms", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not an RFC 3339 instant")))
    }
}

/// A wait that ends when the clock says so.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The wall clock and the way to wait.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The instant now.
    fn now(&self) -> Timestamp;
    /// How much time has passed since some instant: it only goes on, and nobody sets it. A clock that nobody sets has no other.
    fn uptime(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.now().as_millis()).unwrap_or(0))
    }
    /// Waits for `span`.
    fn sleep(&self, span: Duration) -> Sleep;
    /// Whether time passes while nobody waits for it, so that a task of its own may wait for each second. A simulated clock moves only when
    /// somebody waits.
    fn passes_by_itself(&self) -> bool {
        false
    }
    /// Moves a simulated clock on; a real one ignores it.
    #[doc(hidden)]
    fn sleep_blocking_for_tests(&self, _span: Duration) {}
}

/// A source of random numbers.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// The next 64 random bits.
    fn next_u64(&self) -> u64;
}

/// The clock and the entropy of one process.
#[derive(Debug, Clone)]
pub struct Env {
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where random bits come from.
    pub entropy: Arc<dyn Entropy>,
}

impl Env {
    /// An environment in which the clock starts at a fixed instant and moves only when waited on, and in which chance
    /// is decided by `seed`.
    pub fn simulated(seed: u64) -> Self {
        Self { clock: Arc::new(SimClock::default()), entropy: Arc::new(SeededEntropy::new(seed)) }
    }

    /// The instant now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// 32 hexadecimal digits of a version 7 UUID: the time in front, then random bits.
    pub fn uuid_v7(&self) -> String {
        let mut random = [0_u8; 10];
        random[..8].copy_from_slice(&self.entropy.next_u64().to_be_bytes());
        random[8..].copy_from_slice(&self.entropy.next_u64().to_be_bytes()[..2]);
        let millis = u64::try_from(self.now().as_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid().simple().to_string()
    }
}

/// A clock that stands still until somebody waits on it.
#[derive(Debug)]
pub struct SimClock {
    millis: AtomicI64,
}

impl Default for SimClock {
    fn default() -> Self {
        // 2026-01-02T03:04:05Z: any fixed instant will do, this one is easy to recognise in snapshots.
        Self { millis: AtomicI64::new(1_767_323_045_000) }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.millis.load(Ordering::SeqCst))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.sleep_blocking_for_tests(span);
        Box::pin(std::future::ready(()))
    }

    fn sleep_blocking_for_tests(&self, span: Duration) {
        self.millis.fetch_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX), Ordering::SeqCst);
    }
}

/// Random bits decided by a seed (SplitMix64).
#[derive(Debug)]
pub struct SeededEntropy {
    state: AtomicU64,
}

impl SeededEntropy {
    /// Starts the sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }
}

impl Entropy for SeededEntropy {
    fn next_u64(&self) -> u64 {
        let mut z = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst).wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_survive_their_text() {
        let t = Timestamp::from_millis(1_767_323_045_678);
        assert_eq!(t.to_string(), "2026-01-02T03:04:05.678Z");
        assert_eq!(Timestamp::parse(&t.to_string()), Some(t));
        assert_eq!(t.compact(), "20260102_030405");
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_negative_span() {
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
    }

    #[test]
    fn a_seed_decides_every_id() {
        assert_eq!(Env::simulated(1).uuid_v7(), Env::simulated(1).uuid_v7());
        assert_ne!(Env::simulated(1).uuid_v7(), Env::simulated(2).uuid_v7());
    }
}
