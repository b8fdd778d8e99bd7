//! Calls whose tool asked for something when nobody was there any more, and was told so.
//!
//! What such a call came to is nobody's wish: whoever asks for the same is asked, and is not handed what was answered in their place. A tool server
//! ends with the broker that holds it, so the next one has none to know of but those that ended before.

use std::collections::HashSet;
use std::sync::Mutex;

use ua_core::CallId;

use crate::sync::lock;

/// So many are known at most; behind that all are forgotten.
const MOST: usize = 10_000;

/// The calls of this process.
#[derive(Debug, Default)]
pub(crate) struct Unanswered(Mutex<HashSet<CallId>>);

impl Unanswered {
    /// Nobody answered what the tool of this call asked for.
    pub(crate) fn note(&self, call: &CallId) {
        let mut calls = lock(&self.0);
        if calls.len() >= MOST {
            calls.clear();
        }
        calls.insert(call.clone());
    }

    /// Whether it is one.
    pub(crate) fn has(&self, call: &CallId) -> bool {
        lock(&self.0).contains(call)
    }
}
