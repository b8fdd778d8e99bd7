//! What the wall clock was seen to say beside a clock that nobody sets, over all processes of a machine.
//!
//! An instant that one process stored and another one reads is told by the wall clock alone, which may have been set between the two. The time
//! since the machine was started (Linux: `CLOCK_BOOTTIME`) nobody sets, but it begins anew with each boot. So each process looks at both and keeps,
//! for each boot, where one moved against the other. From that follows how the clock was set since an instant, and from when on that is known:
//!
//! - within a boot, since the first look of all;
//! - of what is from another boot, that it is over since this one began at the latest, and nothing sooner than the wall clock says. A wall clock that
//!   says less than it was seen to say before the boot went back, nobody knows how far.
//!
//! What is lost of it makes waits longer, and keys no younger than the wall clock says. Proved by: the search below.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::env::Timestamp;
use crate::steps::{Look, Time};

/// So many boots are kept, the newest ones.
const BOOTS: usize = 4;
/// So many looks of a boot are kept, the newest ones.
const LOOKS: usize = 32;

/// The looks of all processes that keep them in one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looks {
    boots: Vec<Boot>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Boot {
    id: String,
    /// The first one, and each that showed that the clock was set.
    looks: Vec<Look>,
    /// What the wall clock said last.
    last: Timestamp,
    /// Instants up to this one may be of a time before the clock went back, nobody knows how far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    back_from: Option<Timestamp>,
}

impl Looks {
    /// Notes that the wall clock says `now` so long after the boot. Returns whether that says something new.
    pub fn look(&mut self, boot: &str, up: Duration, now: Timestamp) -> bool {
        let look = Look::new(up, now);
        if let Some(own) = self.boots.iter_mut().find(|own| own.id == boot) {
            return own.look(look);
        }
        // Where something is kept of another boot, nobody but who keeps it stored anything since this one began.
        let earlier = self.boots.iter().map(|boot| boot.last).max();
        let first = if earlier.is_some() { Look { up: 0, at: now.minus(up) } } else { look };
        let back_from = earlier.filter(|earlier| first.at < *earlier);
        self.boots.push(Boot { id: boot.to_owned(), looks: vec![first], last: now, back_from });
        self.shorten(boot);
        true
    }

    /// Adds what others have kept meanwhile; this is the boot that is now.
    pub fn join(&mut self, boot: &str, others: Self) {
        for theirs in others.boots {
            match self.boots.iter_mut().find(|own| own.id == theirs.id) {
                Some(own) => own.join(&theirs),
                None => self.boots.push(theirs),
            }
        }
        self.shorten(boot);
    }

    /// The time, when the wall clock says `now` in a boot that was looked at.
    pub fn time(&self, boot: &str, now: Timestamp) -> Time {
        let Some(boot) = self.boots.iter().find(|own| own.id == boot) else { return Time::plain(now) };
        Time::seen(now, &boot.looks, true, boot.back_from)
    }

    fn shorten(&mut self, now: &str) {
        let mut too_many = self.boots.len().saturating_sub(BOOTS);
        self.boots.retain(|boot| {
            let is_dropped = too_many > 0 && boot.id != now;
            too_many -= usize::from(is_dropped);
            !is_dropped
        });
    }
}

impl Boot {
    fn look(&mut self, look: Look) -> bool {
        self.last = look.at;
        // Of two processes that look at once one is later.
        let is_new = self.looks.iter().next_back().is_none_or(|newest| newest.up <= look.up && newest.differs(look));
        if is_new {
            self.looks.push(look);
            self.shorten();
        }
        is_new
    }

    fn join(&mut self, others: &Self) {
        // Of two in one millisecond the own one is later: others had kept theirs before.
        let of_others = others.looks.iter().filter(|look| !self.looks.contains(look));
        let mut all: Vec<Look> = of_others.chain(&self.looks).copied().collect();
        all.sort_by_key(|look| look.up);
        // Two may have seen the same step.
        all.dedup_by(|later, earlier| !earlier.differs(*later));
        self.looks = all;
        self.last = self.last.max(others.last);
        self.back_from = self.back_from.max(others.back_from);
        self.shorten();
    }

    /// Of what was before the first look that is kept nobody knows any more how the clock was set.
    fn shorten(&mut self) {
        let too_many = self.looks.len().saturating_sub(LOOKS);
        if too_many > 0 {
            let before = self.looks.drain(..too_many).map(|look| look.at).max();
            self.back_from = self.back_from.max(before).max(self.looks.first().map(|first| first.at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Entropy as _, SeededEntropy};

    /// A machine whose clock somebody sets, what is kept there, and by which process.
    #[derive(Debug)]
    struct Machine {
        /// Milliseconds that have passed.
        passed: i64,
        booted: i64,
        boots: u32,
        ahead: i64,
        kept: String,
        own: Looks,
    }

    impl Machine {
        fn new() -> Self {
            let kept = serde_json::to_string(&Looks::default()).unwrap();
            Self { passed: 1_000_000, booted: 0, boots: 1, ahead: 0, kept, own: Looks::default() }
        }

        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.passed + self.ahead)
        }

        fn pass(&mut self, seconds: i64) {
            self.passed += seconds * 1_000;
        }

        fn boot(&mut self) {
            (self.booted, self.boots) = (self.passed, self.boots + 1);
        }

        /// The process ends, and another one begins.
        fn next_life(&mut self) {
            self.own = serde_json::from_str(&self.kept).unwrap();
        }

        fn time(&mut self) -> Time {
            let (boot, up) = (self.boots.to_string(), u64::try_from(self.passed - self.booted).unwrap());
            if self.own.look(&boot, Duration::from_millis(up), self.now()) {
                self.own.join(&boot, serde_json::from_str(&self.kept).unwrap());
                self.kept = serde_json::to_string(&self.own).unwrap();
            }
            self.own.time(&boot, self.now())
        }
    }

    const SPAN: Duration = Duration::from_secs(30);

    #[test]
    fn a_clock_that_is_set_between_two_lives_lifts_no_wait_and_keeps_no_key() {
        for (by, passes) in [(31, 5), (3_600, 29), (-6, 31), (-3_600, 31)] {
            let mut machine = Machine::new();
            machine.time();
            machine.pass(2);
            let from = machine.now();
            machine.pass(passes);
            machine.ahead += by * 1_000;
            machine.next_life();
            let time = machine.time();
            assert!(by < 0 || time.now() < time.end_of(from, SPAN), "{by}");
            assert!(by > 0 || time.may_be_over(from, SPAN), "{by}");
            // Nor in the life behind that one.
            machine.next_life();
            assert_eq!(machine.time(), time, "{by}");
            machine.pass(31);
            let time = machine.time();
            assert!(by < 0 || time.now() >= time.end_of(from, SPAN), "{by}");
        }
    }

    #[test]
    fn what_nobody_has_kept_is_waited_for_once_more() {
        let mut machine = Machine::new();
        let from = machine.now();
        machine.pass(3_600);
        let time = machine.time();
        assert_eq!(time.end_of(from, SPAN), time.now().plus(SPAN));
        machine.pass(20);
        machine.next_life();
        let later = machine.time();
        assert_eq!(later.end_of(from, SPAN), time.now().plus(SPAN), "not in each life anew");
        assert!(later.may_be_over(from, SPAN) && !later.may_be_over(from, Duration::from_hours(2)));
    }

    #[test]
    fn of_another_boot_the_time_since_this_one_counts() {
        for (ahead, is_back) in [(0, false), (7_200, false), (-7_200, true)] {
            let mut machine = Machine::new();
            machine.time();
            let from = machine.now();
            machine.pass(10);
            machine.boot();
            machine.ahead += ahead * 1_000;
            machine.pass(20);
            machine.next_life();
            let time = machine.time();
            assert!(time.now() < time.end_of(from, SPAN), "{ahead}: it began twenty seconds ago");
            assert_eq!(
                time.end_beside(from, SPAN),
                from.plus(SPAN),
                "{ahead}: an answer of before was held to what was known then"
            );
            assert_eq!(time.may_be_over(from, Duration::from_hours(1)), ahead != 0, "{ahead}");
            machine.pass(10);
            let time = machine.time();
            assert_eq!(time.now() >= time.end_of(from, SPAN), !is_back, "{ahead}");
        }
    }

    #[test]
    fn a_clock_that_is_set_to_and_fro_makes_nobody_wait_longer_than_once_more() {
        let mut machine = Machine::new();
        machine.time();
        let from = machine.now();
        for turn in 0..200 {
            machine.pass(60);
            machine.ahead += if turn % 2 == 0 { 5_000 } else { -5_000 };
            machine.time();
        }
        let time = machine.time();
        assert!(time.end_of(from, SPAN) <= time.now().plus(SPAN));
        assert!(machine.own.boots.iter().all(|boot| boot.looks.len() <= LOOKS));
        assert!(time.may_be_over(from, Duration::from_hours(1_000)), "what is not kept may be anything");
        assert!(!time.may_be_over(time.now(), SPAN));
    }

    /// Whatever happens to the clock and to the processes: what is said to be over is over, and within a boot what is said not to be is not.
    #[test]
    fn nothing_is_over_too_early_and_nothing_is_good_too_long() {
        let (mut waited, mut good) = (0, 0);
        for seed in 0..2_000 {
            let chance = SeededEntropy::new(seed);
            let draw = |below: i64| i64::try_from(chance.next_u64() % 1_000_000).unwrap() % below;
            let mut machine = Machine::new();
            machine.time();
            let mut stored: Vec<(Timestamp, i64, u32)> = Vec::new();
            for _ in 0..12 {
                match draw(6) {
                    0 => machine.ahead += (draw(120) + 2) * 1_000,
                    1 => machine.ahead -= (draw(120) + 2) * 1_000,
                    2 => machine.next_life(),
                    3 if draw(3) == 0 => {
                        machine.boot();
                        machine.next_life();
                    }
                    _ => machine.pass(draw(40)),
                }
                if draw(2) == 0 {
                    let time = machine.time();
                    for (from, passed, boot) in &stored {
                        let gone = machine.passed - passed;
                        let is_over = gone >= 30_000;
                        let says_over = time.now() >= time.end_of(*from, SPAN);
                        assert!(is_over || !says_over, "seed {seed}: {from} is over after {gone} ms");
                        let says_good = !time.may_be_over(*from, SPAN);
                        assert!(!says_good || !is_over || *boot != machine.boots, "seed {seed}: {from}, {gone} ms");
                        waited += u32::from(is_over && says_over);
                        good += u32::from(says_good);
                    }
                }
                // Whoever stores an instant has looked.
                machine.time();
                stored.push((machine.now(), machine.passed, machine.boots));
            }
        }
        assert!(waited > 1_000 && good > 1_000, "{waited} {good}");
    }
}
