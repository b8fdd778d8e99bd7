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

use crate::steps::Time;

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
        parse_plain(text).or_else(|| text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond())))
    }

    /// Reads the date of a mail (RFC 2822): `Mon, 23 Nov 2026 10:00:00 +0000`.
    pub fn parse_mail_date(text: &str) -> Option<Self> {
        let read = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
        Some(Self(read.as_millisecond()))
    }

    /// Reads the date of a header of HTTP in its three forms (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37
    /// GMT` and `Sun Nov  6 08:49:37 1994`.
    pub fn parse_http_date(text: &str) -> Option<Self> {
        let older = || {
            // The day of the week says nothing that the rest does not.
            let words: Vec<&str> = text.split_whitespace().skip(1).collect();
            let rest = words.join(" ");
            let forms = ["%d-%b-%y %H:%M:%S GMT", "%b %d %H:%M:%S %Y"];
            let read = forms.iter().find_map(|form| jiff::civil::DateTime::strptime(form, &rest).ok())?;
            let at = read.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
            Some(Self(at.timestamp().as_millisecond()))
        };
        Self::parse_mail_date(text).or_else(older)
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
        if let Some(plain) = self.plain() {
            return f.write_str(str::from_utf8(&plain).unwrap_or_default());
        }
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "@{}ms", self.0),
        }
    }
}

/// `YYYY-MM-DDTHH:MM:SS.mmmZ`: what every instant of ours looks like, where the digits are.
const PLAIN: &[u8; 24] = b"0000-00-00T00:00:00.000Z";
const MILLIS_A_DAY: i64 = 86_400_000;
/// Before the last instant that the library knows.
const LATEST: i64 = 253_402_207_199_999;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;

impl Timestamp {
    /// The text of an instant of the years 1 to 9999. A turn writes some sixty and reads as many, which took longer with a library that knows
    /// every calendar than all of its statements.
    fn plain(self) -> Option<[u8; 24]> {
        let (days, millis) = (self.0.div_euclid(MILLIS_A_DAY), self.0.rem_euclid(MILLIS_A_DAY));
        // Years begin in March, so that the day that only some have is the last one (Howard Hinnant, "chrono-compatible date algorithms").
        let days = days + DAYS_TO_EPOCH;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted + 2) / 5 + 1;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        if !(1..=9_999).contains(&year) || self.0 > LATEST {
            return None;
        }
        let mut text = *PLAIN;
        let seconds = millis / 1_000;
        let pieces = [
            (0, 4, year),
            (5, 2, month),
            (8, 2, day),
            (11, 2, seconds / 3_600),
            (14, 2, seconds / 60 % 60),
            (17, 2, seconds % 60),
            (20, 3, millis % 1_000),
        ];
        for (at, length, mut number) in pieces {
            for digit in text[at..at + length].iter_mut().rev() {
                *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
                number /= 10;
            }
        }
        Some(text)
    }
}

/// Reads what [`Timestamp::plain`] writes; nothing else, which is left to somebody who knows every calendar.
fn parse_plain(text: &str) -> Option<Timestamp> {
    let text: &[u8; 24] = text.as_bytes().try_into().ok()?;
    let is_like_it = text.iter().zip(PLAIN).all(|(byte, like)| match like {
        b'0' => byte.is_ascii_digit(),
        like => byte == like,
    });
    if !is_like_it {
        return None;
    }
    let number = |at: usize, length: usize| {
        text[at..at + length].iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0, 4), number(5, 2), number(8, 2));
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - DAYS_TO_EPOCH;
    let seconds = number(11, 2) * 3_600 + number(14, 2) * 60 + number(17, 2);
    let found = Timestamp(days * MILLIS_A_DAY + seconds * 1_000 + number(20, 3));
    // A 30th of February comes out as another day.
    (found.plain().as_ref() == Some(text)).then_some(found)
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.plain() {
            Some(plain) => serializer.serialize_str(str::from_utf8(&plain).unwrap_or_default()),
            None => serializer.collect_str(self),
        }
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
    /// The time, with how the wall clock was set in this process and in those before it, where somebody keeps that.
    fn kept_time(&self) -> Option<Time> {
        None
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

    /// The time, for a span that began in another process: what the wall clock says, with what is known of how it was set.
    pub fn time(&self) -> Time {
        self.clock.kept_time().unwrap_or_else(|| Time::plain(self.now()))
    }

    /// Waits so long; for ever where there is no such time.
    pub async fn sleep_or_never(&self, span: Option<Duration>) {
        match span {
            Some(span) => self.clock.sleep(span).await,
            None => std::future::pending().await,
        }
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

    /// Whatever is written and read here without the library is what the library writes and reads.
    #[test]
    fn instants_are_as_the_library_has_them() {
        let day = MILLIS_A_DAY;
        let ends = [-62_135_596_800_000, LATEST, 951_782_400_000, 4_107_542_400_000, -2_203_891_200_000, 0];
        let near = ends.iter().flat_map(|end| [-day, -1, 0, 1, 999, day - 1, day].map(|more| end + more));
        let spread = (0..20_000).map(|step| -62_135_596_800_000 + step * 15_776_892_347);
        for millis in near.chain(spread) {
            let instant = Timestamp::from_millis(millis);
            let Ok(of_library) = jiff::Timestamp::from_millisecond(millis) else {
                assert_eq!(instant.to_string(), format!("@{millis}ms"));
                continue;
            };
            let text = format!("{of_library:.3}");
            assert_eq!(instant.to_string(), text);
            assert_eq!(Timestamp::parse(&text), Some(instant), "{text}");
        }
        for text in [
            "2026-02-29T00:00:00.000Z",
            "2026-04-31T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-00-10T00:00:00.000Z",
            "2026-01-00T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01T00:60:00.000Z",
            "2026-01-01T23:59:60.000Z",
            "2026-01-01t00:00:00.000z",
            "2026-01-01T00:00:00.000+01",
            "2026-01-01T00:00:00Z",
            "2026-01-01T01:00:00.5+01:00",
            "",
        ] {
            let of_library = text.parse::<jiff::Timestamp>().ok().map(|t| Timestamp(t.as_millisecond()));
            assert_eq!(Timestamp::parse(text), of_library, "{text}");
        }
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
