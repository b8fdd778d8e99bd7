//! What this process is busy with that may take long, and of which nothing else tells: a folder that is looked through, a server that does not
//! answer.
//!
//! Whoever shows a person that nothing moves asks here what is waited for ([`busy_with`]). No run depends on it and none of it is kept, so there
//! is one list for the process: layers in between that knew of it would know it for nothing but to hand it on.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::words::span_in_words;

/// What the process is busy with, as long as this lives.
#[derive(Debug)]
#[must_use = "the process is busy with it as long as this lives"]
pub struct Busy(u64);

#[derive(Debug)]
struct Entry {
    doing: String,
    /// Since when this is being done, here or in others of the same words right before.
    since: Instant,
    /// Since when this one is.
    began: Instant,
    /// So many files were looked at.
    files: usize,
    /// What limits it, as people are told.
    limit: Option<String>,
}

#[derive(Debug)]
struct All {
    next: u64,
    /// What ended a moment ago: what it was, since when it was done, and when it ended. Looking through the same folder a second time is no new
    /// thing to whoever waits, and a figure that begins anew looks like one that does not move.
    ended: Vec<(String, Instant, Instant)>,
    entries: BTreeMap<u64, Entry>,
}

static ALL: Mutex<All> = Mutex::new(All { next: 0, ended: Vec::new(), entries: BTreeMap::new() });

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[expect(clippy::disallowed_methods, reason = "how long a person has waited, whatever a simulation says")]
fn now() -> Instant {
    Instant::now()
}

impl Busy {
    /// Busy from now on with `doing`, a clause that names what is waited for: `waiting for tool server mail to start`.
    pub fn with(doing: impl Into<String>) -> Self {
        let (doing, began) = (doing.into(), now());
        let mut all = all();
        all.ended.retain(|(.., at)| at.elapsed() < BREAK);
        let before = all.ended.iter().find(|(other, ..)| *other == doing);
        let entry = Entry { since: before.map_or(began, |(_, since, _)| *since), began, doing, files: 0, limit: None };
        let key = all.next;
        all.next += 1;
        all.entries.insert(key, entry);
        Self(key)
    }

    /// The same, given up after so long.
    pub fn at_most(self, limit: Duration) -> Self {
        self.limited(format!("at most {}", span_in_words(limit)))
    }

    /// The same, within a limit that these words say.
    pub fn limited(self, limit: impl Into<String>) -> Self {
        // The limit is this one's own.
        self.change(|entry| (entry.limit, entry.since) = (Some(limit.into()), entry.began));
        self
    }

    /// It has come so far.
    pub fn now(&self, doing: impl Into<String>) {
        self.change(|entry| entry.doing = doing.into());
    }

    /// So many files were looked at by now. Cheap enough to be said of each.
    pub fn files(&self, so_far: usize) {
        if so_far.is_multiple_of(TOLD_EVERY) {
            self.change(|entry| entry.files = so_far);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = all().entries.get_mut(&self.0) {
            change(entry);
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut all = all();
        all.ended.retain(|(.., at)| at.elapsed() < BREAK);
        if let Some(Entry { doing, since, limit: None, .. }) = all.entries.remove(&self.0) {
            all.ended.retain(|(other, ..)| *other != doing);
            all.ended.push((doing, since, now()));
        }
    }
}

/// What begins again within this time was not over.
const BREAK: Duration = Duration::from_millis(500);

/// Files are told in hundreds.
const TOLD_EVERY: usize = 100;

/// So much of it is told; the rest is counted.
const TOLD: usize = 3;

/// What this process has been busy with for at least `shortest`: what, for how long, and until when at most. What began last comes first, since it is
/// what the others wait for. Names in it may be anybody's words.
pub fn busy_with(shortest: Duration) -> Option<String> {
    let all = all();
    let long = || all.entries.values().rev().filter(|entry| entry.since.elapsed() >= shortest);
    let mut told: Vec<String> = long().take(TOLD).map(Entry::in_words).collect();
    let more = long().count().saturating_sub(TOLD);
    if more > 0 {
        told.push(format!("and {more} more"));
    }
    Some(told.join("; ")).filter(|told| !told.is_empty())
}

impl Entry {
    fn in_words(&self) -> String {
        // Of whole seconds that are over, as the line is that it stands in.
        let so_far = span_in_words(Duration::from_secs(self.since.elapsed().as_secs()));
        let limit = self.limit.as_ref().map_or_else(String::new, |limit| format!(", {limit}"));
        let files = if self.files == 0 { String::new() } else { format!(": {} files", self.files) };
        format!("{}{files} ({so_far} so far{limit})", self.doing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_waited_for_is_told_while_it_lasts() {
        assert_eq!(busy_with(Duration::ZERO), None);
        let folder = Busy::with("looking through a folder");
        let told = || busy_with(Duration::ZERO);
        assert_eq!(told().as_deref(), Some("looking through a folder (1 s so far)"));
        assert_eq!(busy_with(Duration::from_mins(1)), None, "what is done in no time is not told");
        (1..=250).for_each(|seen| folder.files(seen));
        let server = Busy::with("waiting for a server").at_most(Duration::from_secs(30));
        let both = "waiting for a server (1 s so far, at most 30 s); looking through a folder: 200 files (1 s so far)";
        assert_eq!(told().as_deref(), Some(both));
        drop(folder);
        assert_eq!(told().as_deref(), Some("waiting for a server (1 s so far, at most 30 s)"));
        let more = [(); 3].map(|()| Busy::with("x"));
        assert_eq!(told().as_deref(), Some("x (1 s so far); x (1 s so far); x (1 s so far); and 1 more"));
        drop((server, more));
        // What is begun again at once was not over, and a limit is of what has it.
        let first = Busy::with("reading");
        let earlier = now().checked_sub(Duration::from_secs(5)).unwrap();
        all().entries.get_mut(&first.0).unwrap().since = earlier;
        drop(first);
        let second = Busy::with("reading");
        assert!(told().unwrap().starts_with("reading (5 s so far)"), "{:?}", told());
        drop(second);
        let limited = Busy::with("reading").at_most(Duration::from_secs(30));
        assert_eq!(told().as_deref(), Some("reading (1 s so far, at most 30 s)"));
        drop(limited);
        let other = Busy::with("writing");
        assert_eq!(told().as_deref(), Some("writing (1 s so far)"));
        drop(other);
        assert_eq!(told(), None);
    }
}
