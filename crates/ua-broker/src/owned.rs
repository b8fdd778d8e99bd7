//! The sessions that this process owns, and who takes one or lets go of one.
//!
//! Either is a write or several, which wait for the disk. Of one session one after the other is at that, and nobody waits for who is at another
//! one: of clients that come or go at the same time the writes are synced together, and no call waits for them.
//!
//! Proved by: the tests below, `tests/it/ends.rs`.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use ua_core::RunId;

use crate::session::Session;
use crate::sync::lock;

/// The sessions of this process.
#[derive(Default)]
pub(crate) struct Sessions {
    owned: Mutex<HashMap<RunId, Arc<Session>>>,
    at: Apart<Which>,
}

/// Which session somebody is at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Which {
    /// That of a run, which is taken or let go of.
    OfRun(RunId),
    /// Whichever a client has with a tool server in a project: it is looked for, or opened.
    OfClient { project: String, server: String, key: String },
}

/// Whoever has it is the only one at a session.
#[must_use]
pub(crate) struct At {
    _apart: OwnedMutexGuard<()>,
}

impl Sessions {
    /// Those that are owned now. Nothing is waited for while they are looked at.
    pub(crate) fn owned(&self) -> MutexGuard<'_, HashMap<RunId, Arc<Session>>> {
        lock(&self.owned)
    }

    /// Waits until nobody else takes or lets go of the session of a run.
    pub(crate) async fn at(&self, run: &RunId) -> At {
        At { _apart: self.at.one(Which::OfRun(run.clone())).await }
    }

    /// Waits until nobody else looks for, or opens, a session that may be the same one: of the same key, and of one whose number behind it is another.
    pub(crate) async fn at_key(&self, project: &str, server: &str, key: &str) -> At {
        let (project, server, key) = (project.to_owned(), server.to_owned(), without_numbers(key).to_owned());
        At { _apart: self.at.one(Which::OfClient { project, server, key }).await }
    }

    /// Whether none is owned, and nobody is at one.
    pub(crate) fn is_empty(&self) -> bool {
        // Whoever is at one is looked for first: behind that it is owned.
        self.at.is_nobody() && self.owned().is_empty()
    }

    /// Waits for whoever is at one now.
    pub(crate) async fn settled(&self) {
        self.at.settled().await;
    }
}

/// A key without the numbers of sessions that go on as others.
fn without_numbers(mut key: &str) -> &str {
    while let Some((before, number)) = key.rsplit_once('#')
        && number.parse::<u32>().is_ok()
    {
        key = before;
    }
    key
}

/// Who is at what: at one thing one after the other, and nobody waits for who is at another.
struct Apart<K>(Mutex<HashMap<K, Weak<AsyncMutex<()>>>>);

impl<K> Default for Apart<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Apart<K> {
    async fn one(&self, what: K) -> OwnedMutexGuard<()> {
        let own = {
            let mut all = lock(&self.0);
            all.retain(|_, one| one.strong_count() > 0);
            let own = all.get(&what).and_then(Weak::upgrade).unwrap_or_default();
            all.insert(what, Arc::downgrade(&own));
            own
        };
        own.lock_owned().await
    }

    fn all(&self) -> Vec<Arc<AsyncMutex<()>>> {
        lock(&self.0).values().filter_map(Weak::upgrade).collect()
    }

    fn is_nobody(&self) -> bool {
        lock(&self.0).values().all(|one| one.strong_count() == 0)
    }

    async fn settled(&self) {
        for one in self.all() {
            drop(one.lock_owned().await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn at_one_thing_is_one_after_the_other_and_nobody_waits_for_another() {
        let apart = Apart::default();
        let first = apart.one("a").await;
        let other = apart.one("b").await;
        let mut next = std::pin::pin!(apart.one("a"));
        tokio::select! {
            biased;
            _both = &mut next => panic!("two are at one thing"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let next = next.await;
        assert!(!apart.is_nobody());
        let mut settled = std::pin::pin!(apart.settled());
        tokio::select! {
            biased;
            () = &mut settled => panic!("somebody is at it"),
            () = tokio::task::yield_now() => {}
        }
        drop((next, other));
        settled.await;
        assert!(apart.is_nobody());
        // What nobody is at is forgotten.
        let _last = apart.one("c").await;
        assert_eq!(lock(&apart.0).len(), 1);
    }

    /// Sessions that may come to the same key are looked for one after the other.
    #[test]
    fn a_session_that_goes_on_as_another_is_of_the_same_key() {
        for (key, without) in
            [("env:s", "env:s"), ("env:s#1", "env:s"), ("env:s#1#22", "env:s"), ("env:s#", "env:s#"), ("a#b", "a#b")]
        {
            assert_eq!(without_numbers(key), without);
        }
    }
}
