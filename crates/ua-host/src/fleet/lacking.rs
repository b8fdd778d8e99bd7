//! A machine that lacks what runs need: a program, a configuration, a key.
//!
//! It fails at once, and so it has a free slot whenever a run comes: it would take most of them, and each would lose a moment with it. A worker
//! that gave back several runs in a row for such a reason, and began none between, takes one a second from then on, so that others are faster.
//! One run that lacks something slows nobody down: the next one may lack nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use ua_core::RunId;

/// So many runs in a row are no chance.
const MANY: usize = 3;
/// How often one is tried then: half as often as a worker looks that lacks nothing.
const TRIAL: Duration = Duration::from_secs(1);

/// What a worker has seen of it.
#[derive(Debug, Default)]
pub(super) struct Lacking {
    /// The runs that it gave back since it began one.
    runs: BTreeSet<RunId>,
    /// When it tried one last, by the time that passes.
    tried_at: Option<Duration>,
}

impl Lacking {
    /// A run was given back; whether it is known from here on that others have to do them.
    pub(super) fn gave_back(&mut self, run: &RunId) -> bool {
        let was_known = self.is_known();
        self.runs.insert(run.clone());
        self.is_known() && !was_known
    }

    /// One got on, or none waits any more.
    pub(super) fn is_over(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_known(&self) -> bool {
        self.runs.len() >= MANY
    }

    /// How many runs may be taken now, of so many that there are slots for.
    pub(super) fn most(&mut self, free: usize, now: Duration) -> usize {
        if !self.is_known() || free == 0 {
            return free;
        }
        if self.tried_at.is_some_and(|tried_at| now.saturating_sub(tried_at) < TRIAL) {
            return 0;
        }
        self.tried_at = Some(now);
        1
    }
}

#[cfg(test)]
mod tests {
    use ua_core::Env;

    use super::*;

    #[test]
    fn a_worker_that_lacks_what_many_runs_need_takes_one_a_second_until_one_gets_on() {
        let run = |number: u32| RunId::parse(&format!("run_{number}")).unwrap();
        let (mut lacking, mut now) = (Lacking::default(), Env::simulated(1).clock.uptime());
        // The same one again and again says nothing about others.
        for _ in 0..9 {
            assert!(!lacking.gave_back(&run(1)));
        }
        assert!(!lacking.gave_back(&run(2)));
        assert_eq!((lacking.most(8, now), lacking.is_known()), (8, false));
        assert!(lacking.gave_back(&run(3)), "it is news");
        for number in 4..7 {
            assert_eq!((lacking.most(0, now), lacking.most(8, now), lacking.most(8, now)), (0, 1, 0));
            assert!(!lacking.gave_back(&run(number)), "it is no news");
            now += TRIAL;
        }
        lacking.is_over();
        assert_eq!((lacking.most(8, now), lacking.most(8, now), lacking.is_known()), (8, 8, false));
    }
}
