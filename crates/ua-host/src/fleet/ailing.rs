//! A database that answers, and refuses what runs write: its disk is full, for example.
//!
//! Each run that is taken then is begun, perhaps after a request to the model that is paid for, and dropped, which looks like one death after
//! the other to whoever reads its record. So a worker whose runs end so takes none for a while, then one, and all that it has slots for once that
//! one got on.

use std::time::Duration;

use ua_core::Timestamp;

/// How long nothing is taken at first; twice as long for each time in a row.
const PAUSE: Duration = Duration::from_secs(5);
/// At most so often twice as long for a worker.
const MOST_DOUBLED: u32 = 5;
/// One run that is at work for so long without being refused is answer enough.
const TRIAL: Duration = Duration::from_mins(1);
/// At most so often twice as long for a run, whatever worker takes it: within an hour it is taken less often than what a person is asked about.
const MOST_DOUBLED_OF_RUN: u32 = 6;
/// The ends that count.
const WINDOW: Duration = Duration::from_hours(1);

/// What a worker has seen of it.
#[derive(Debug, Default)]
pub(super) struct Ailing {
    /// How often in a row runs were refused.
    times: u32,
    /// Until when nothing is taken, or a trial lasts, by the time that passes.
    until: Option<Duration>,
    is_on_trial: bool,
}

impl Ailing {
    /// A run ended so; how long nothing is taken, if that is news. Those that end together count once.
    pub(super) fn refused(&mut self, now: Duration) -> Option<Duration> {
        if !self.is_on_trial && self.until.is_some_and(|until| now < until) {
            return None;
        }
        let pause = PAUSE * 2_u32.pow(self.times.min(MOST_DOUBLED));
        self.times = self.times.saturating_add(1);
        (self.until, self.is_on_trial) = (Some(now + pause), false);
        Some(pause)
    }

    /// A run got on.
    pub(super) fn is_over(&mut self) {
        *self = Self::default();
    }

    /// Whether it is so, as far as is known.
    pub(super) fn is_known(&self) -> bool {
        self.times > 0
    }

    /// How many runs may be taken now, of so many that there are slots for.
    pub(super) fn most(&mut self, free: usize, now: Duration) -> usize {
        if self.times == 0 {
            return free;
        }
        if self.until.is_some_and(|until| now < until) {
            return 0;
        }
        if self.is_on_trial {
            self.is_over();
            return free;
        }
        (self.until, self.is_on_trial) = (Some(now + TRIAL), free > 0);
        free.min(1)
    }
}

/// How long a run is left alone that ended so, by how often it was left without a word before.
pub(super) fn pause_of(ends: &[Timestamp], now: Timestamp) -> Duration {
    let recent = ends.iter().filter(|end| now.since(**end) <= WINDOW).count();
    PAUSE * 2_u32.pow(u32::try_from(recent).unwrap_or(u32::MAX).min(MOST_DOUBLED_OF_RUN))
}

#[cfg(test)]
mod tests {
    use ua_core::Env;

    use super::*;

    #[test]
    fn a_worker_tries_one_run_after_longer_and_longer_pauses_and_all_again_once_it_got_on() {
        let (mut ailing, mut now) = (Ailing::default(), Env::simulated(1).clock.uptime());
        assert_eq!(ailing.most(8, now), 8);
        for seconds in [5, 10, 20, 40, 80, 160, 160] {
            assert_eq!(ailing.refused(now), Some(Duration::from_secs(seconds)));
            assert_eq!(ailing.refused(now), None, "those that end together count once");
            assert_eq!(ailing.most(8, now + Duration::from_secs(seconds - 1)), 0);
            now += Duration::from_secs(seconds);
            assert_eq!((ailing.most(8, now), ailing.most(7, now), ailing.is_known()), (1, 0, true));
            now += Duration::from_secs(20);
        }
        // One that gets on, or is at work for long, is answer enough.
        now += TRIAL;
        assert_eq!((ailing.most(7, now), ailing.is_known()), (7, false));
        ailing.refused(now);
        ailing.is_over();
        assert_eq!(ailing.most(8, now), 8);
    }

    /// However many workers there are: a run that is refused for an hour is taken less often than 20 times, at which a person is asked.
    #[test]
    fn a_run_that_is_refused_is_not_taken_for_one_that_kills_its_processes() {
        let (begin, mut ends) = (Env::simulated(1).now(), Vec::new());
        let mut now = begin;
        while now.since(begin) < WINDOW {
            ends.push(now);
            now = now.plus(pause_of(&ends[..ends.len() - 1], now));
        }
        assert!(ends.len() < 20, "{}", ends.len());
    }
}
