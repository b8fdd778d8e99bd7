//! What sessions were told: that the same call again returns what came of it.
//!
//! Whoever is told so gives up nothing by asking again, so they are owed what came of the call, whatever was answered to an earlier request of
//! theirs. A request that could be stored says it to the next broker as well ([`crate::rules`]); this one knows it also of one that could not.
//!
//! Invariant: it is noted where it is told, and nowhere else, by what the words themselves say (`Told::asks_again`).

use std::collections::HashMap;
use std::sync::Mutex;

use ua_core::{CallId, RunId, Timestamp};

use crate::sync::lock;

/// So many are known at most; behind that all are forgotten, and the stored requests say it alone.
const MOST: usize = 10_000;

/// Which sessions were told to ask again for which calls, and when last.
#[derive(Debug, Default)]
pub(crate) struct Promises(Mutex<HashMap<(RunId, CallId), Timestamp>>);

impl Promises {
    /// The session of this run is told so of this call.
    pub(crate) fn make(&self, run: &RunId, call: &CallId, now: Timestamp) {
        let mut made = lock(&self.0);
        if made.len() >= MOST {
            made.clear();
        }
        made.insert((run.clone(), call.clone()), now);
    }

    /// When it was told so last.
    pub(crate) fn made_at(&self, run: &RunId, call: &CallId) -> Option<Timestamp> {
        lock(&self.0).get(&(run.clone(), call.clone())).copied()
    }
}
