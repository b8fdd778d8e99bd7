//! Calls of a shell, a browser and the like that their client gave up.
//!
//! What came of one is owed to its session. But a client that gives up is not told to ask for it again, and what a command answered grows stale. So
//! once the session went on, the same words mean another one. Of one that anybody who waited for it was told to ask for again, or waited for when they
//! were killed or their time was up, this is never said; nor of what an earlier broker knew, whose receipt says when its call was made.

use std::collections::HashMap;
use std::sync::Mutex;

use ua_core::{CallId, SideEffectClass, Timestamp};
use ua_store::CallRecord;

use crate::sync::lock;

/// So many are known at most; behind that all are forgotten, and their receipts are owed.
const MOST: usize = 10_000;

/// Those that somebody waited for who has no answer, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Dropped(Mutex<HashMap<CallId, Left>>);

/// How whoever waited for a call left it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Left {
    /// They want it no more.
    GivenUp,
    /// They may ask for it again, whoever gave it up before or behind.
    Owed,
}

/// Somebody waits for a call. Dropped without another word, they may ask for it again.
pub(crate) struct Waits<'a> {
    dropped: &'a Dropped,
    /// `None` where nothing of it is to be noted.
    call: Option<CallId>,
}

impl Dropped {
    /// Somebody waits for it who will be told how it stands: it is wanted again.
    pub(crate) fn waits(&self, call: &CallId, class: SideEffectClass) -> Waits<'_> {
        let call = (class == SideEffectClass::Local).then(|| call.clone());
        if let Some(call) = &call {
            let mut left = lock(&self.0);
            if left.get(call) == Some(&Left::GivenUp) {
                left.remove(call);
            }
        }
        Waits { dropped: self, call }
    }

    /// When it ended, if it was given up.
    pub(crate) fn since(&self, call: &CallRecord) -> Option<Timestamp> {
        self.is_given_up(&call.call_id).then_some(call.updated_at)
    }

    fn is_given_up(&self, call: &CallId) -> bool {
        lock(&self.0).get(call) == Some(&Left::GivenUp)
    }

    fn leave(&self, call: CallId, as_it: Left) {
        let mut left = lock(&self.0);
        if left.len() >= MOST {
            left.clear();
        }
        let known = left.entry(call).or_insert(as_it);
        if as_it == Left::Owed {
            *known = as_it;
        }
    }
}

impl Waits<'_> {
    /// The client gives it up.
    pub(crate) fn gives_up(mut self) {
        if let Some(call) = self.call.take() {
            self.dropped.leave(call, Left::GivenUp);
        }
    }

    /// They have its answer, or wait on in another way.
    pub(crate) fn end(mut self) {
        self.call = None;
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.dropped.leave(call, Left::Owed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How one who waits ends.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Ends {
        GivesUp,
        IsKilled,
        HasIt,
    }

    /// Two wait, one behind the other or both at once, and end in either order: it is given up where one gave it up last that was not asked for since,
    /// and none of them may ask again.
    #[test]
    fn a_call_is_given_up_where_nobody_who_waited_may_ask_for_it_again() {
        let call = CallId::parse("call_1").unwrap();
        let all = [Ends::GivesUp, Ends::IsKilled, Ends::HasIt];
        for (first, second) in all.into_iter().flat_map(|first| all.map(|second| (first, second))) {
            for at_once in [true, false] {
                let dropped = Dropped::default();
                let end = |waits: Waits<'_>, ends: Ends| match ends {
                    Ends::GivesUp => waits.gives_up(),
                    Ends::IsKilled => drop(waits),
                    Ends::HasIt => waits.end(),
                };
                let waits = || dropped.waits(&call, SideEffectClass::Local);
                if at_once {
                    let both = (waits(), waits());
                    end(both.0, first);
                    end(both.1, second);
                } else {
                    end(waits(), first);
                    end(waits(), second);
                }
                let none_may_ask = first != Ends::IsKilled && second != Ends::IsKilled;
                let gave_up = second == Ends::GivesUp || (at_once && first == Ends::GivesUp);
                assert_eq!(dropped.is_given_up(&call), none_may_ask && gave_up, "{first:?} {second:?} {at_once}");
            }
        }
    }

    #[test]
    fn what_is_known_by_content_is_never_given_up() {
        let dropped = Dropped::default();
        let call = CallId::parse("call_1").unwrap();
        dropped.waits(&call, SideEffectClass::External).gives_up();
        assert!(!dropped.is_given_up(&call));
    }
}
