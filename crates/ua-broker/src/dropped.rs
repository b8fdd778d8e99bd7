//! Calls of a shell, a browser and the like that their client gave up.
//!
//! What came of one is owed to its session. But a client that gives up is not told to ask for it again, and what a command answered grows stale. So
//! once the session went on, the same words mean another one. Of one that was told to ask again, or was killed, this is never said; nor of what
//! an earlier broker knew, whose receipt says when its call was made.

use std::collections::HashSet;
use std::sync::Mutex;

use ua_core::{CallId, SideEffectClass, Timestamp};
use ua_store::CallRecord;

use crate::sync::lock;

/// So many are known at most; behind that all are forgotten, and their receipts are owed.
const MOST: usize = 10_000;

/// Those that nobody wants any more, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Dropped(Mutex<HashSet<CallId>>);

impl Dropped {
    /// The client that waits for it gives it up.
    pub(crate) fn give_up(&self, call: &CallRecord) {
        if call.policy.class == SideEffectClass::Local {
            let mut dropped = lock(&self.0);
            if dropped.len() >= MOST {
                dropped.clear();
            }
            dropped.insert(call.call_id.clone());
        }
    }

    /// Somebody waits for it again, who will be told how it stands.
    pub(crate) fn is_wanted(&self, call: &CallId) {
        lock(&self.0).remove(call);
    }

    /// When it ended, if it was given up.
    pub(crate) fn since(&self, call: &CallRecord) -> Option<Timestamp> {
        lock(&self.0).contains(&call.call_id).then_some(call.updated_at)
    }
}
