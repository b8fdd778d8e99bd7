//! Where a process dies.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use ua_store::conformance::{Crossing, Plan};

/// A crossing, and which side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashAt {
    /// Just before the n-th crossing (counted from 0): the request is lost.
    Before(u64),
    /// Just after it: the effect is done, the answer is lost.
    After(u64),
}

/// Dies at one crossing of a simulation: wakes whoever waits for the death, then never returns.
#[derive(Debug)]
pub struct CrashPlan {
    at: Option<CrashAt>,
    crossings: AtomicU64,
    died: tokio::sync::Notify,
}

impl CrashPlan {
    /// A plan that dies at `at`; `None` only counts.
    pub fn new(at: Option<CrashAt>) -> Self {
        Self { at, crossings: AtomicU64::new(0), died: tokio::sync::Notify::new() }
    }

    /// How many crossings there were.
    pub fn crossings(&self) -> u64 {
        self.crossings.load(Ordering::SeqCst)
    }

    /// Waits for the death.
    pub async fn death(&self) {
        self.died.notified().await;
    }

    async fn die(&self) {
        self.died.notify_one();
        std::future::pending::<()>().await;
    }
}

#[async_trait]
impl Plan for CrashPlan {
    async fn before(&self, _crossing: &Crossing) {
        let n = self.crossings.fetch_add(1, Ordering::SeqCst);
        if self.at == Some(CrashAt::Before(n)) {
            self.die().await;
        }
    }

    async fn after(&self, _crossing: &Crossing) {
        let n = self.crossings.load(Ordering::SeqCst).saturating_sub(1);
        if self.at == Some(CrashAt::After(n)) {
            self.die().await;
        }
    }
}

/// Where in a crossing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
    /// So long after it began, but not behind its end.
    During(Duration),
}

/// Kills with SIGKILL at a named crossing, this very process unless told otherwise.
///
/// | point | when |
/// |---|---|
/// | `before:store.start_attempt:send_email` | before RUNNING of that tool is written |
/// | `after:tool.invoke:upload` | after the tool answered, before anybody learns of it |
/// | `after:store.commit_turn#2` | after the second one |
/// | `before:*#7` | before the seventh crossing, whichever it is |
/// | `during:store.commit_turn+250` | 250 µs after the write began: inside it, or at its end, which is waited at until then |
pub struct KillPoint {
    side: Side,
    name: String,
    tool: Option<String>,
    nth: u64,
    seen: AtomicU64,
    kill: Arc<dyn Fn() + Send + Sync>,
    /// What is under way during a crossing that has begun.
    under_way: Mutex<Option<oneshot::Receiver<()>>>,
}

impl KillPoint {
    /// Reads a point.
    pub fn parse(text: &str) -> Option<Self> {
        let (side, rest) = text.split_once(':')?;
        let (side, rest) = match (side, rest.split_once('+')) {
            ("before", None) => (Side::Before, rest),
            ("after", None) => (Side::After, rest),
            ("during", Some((rest, micros))) => (Side::During(Duration::from_micros(micros.parse().ok()?)), rest),
            _ => return None,
        };
        let (rest, nth) = match rest.split_once('#') {
            Some((rest, nth)) => (rest, nth.parse().ok()?),
            None => (rest, 1),
        };
        let (name, tool) = match rest.split_once(':') {
            Some((name, tool)) => (name, Some(tool.to_owned())),
            None => (rest, None),
        };
        Some(Self {
            side,
            name: name.to_owned(),
            tool,
            nth,
            seen: AtomicU64::new(0),
            kill: Arc::new(kill_this_process),
            under_way: Mutex::default(),
        })
    }

    /// Something else happens at the point, the death of a tool server for example, and this process goes on.
    #[must_use]
    pub fn instead(mut self, kill: impl Fn() + Send + Sync + 'static) -> Self {
        self.kill = Arc::new(kill);
        self
    }

    fn fits(&self, crossing: &Crossing) -> bool {
        match (self.name.as_str(), &self.tool) {
            ("*", None) => true,
            ("*", Some(tool)) => crossing.tools().any(|its| its == tool),
            (name, None) => crossing.is(name),
            (name, Some(tool)) => crossing.is_of(name, tool),
        }
    }

    /// Whether this is the crossing, counting those that fit.
    fn is_here(&self, crossing: &Crossing) -> bool {
        self.fits(crossing) && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.nth
    }
}

impl std::fmt::Debug for KillPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { side, name, tool, nth, .. } = self;
        write!(f, "KillPoint({side:?} {name} {tool:?} #{nth})")
    }
}

/// Nothing is flushed and no destructor runs: this is the death that a kill -9 or the kernel brings.
fn kill_this_process() {
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::KILL).ok();
    loop {
        std::thread::park();
    }
}

#[async_trait]
impl Plan for KillPoint {
    async fn before(&self, crossing: &Crossing) {
        match self.side {
            Side::Before if self.is_here(crossing) => (self.kill)(),
            Side::During(wait) if self.is_here(crossing) => {
                let kill = Arc::clone(&self.kill);
                let (done, under_way) = oneshot::channel();
                *self.under_way.lock().unwrap_or_else(PoisonError::into_inner) = Some(under_way);
                std::thread::spawn(move || {
                    std::thread::sleep(wait);
                    kill();
                    drop(done);
                });
            }
            Side::Before | Side::During(_) | Side::After => {}
        }
    }

    async fn after(&self, crossing: &Crossing) {
        match self.side {
            Side::After if self.is_here(crossing) => (self.kill)(),
            // On a busy machine the write would be long over, and the process somewhere else.
            Side::During(_) if self.fits(crossing) => {
                let under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(under_way) = under_way {
                    under_way.await.ok();
                }
            }
            Side::Before | Side::During(_) | Side::After => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read() {
        let point = KillPoint::parse("after:tool.invoke:send_email#2").unwrap();
        assert_eq!(
            (point.side, point.name.as_str(), point.tool.as_deref(), point.nth),
            (Side::After, "tool.invoke", Some("send_email"), 2)
        );
        let point = KillPoint::parse("before:store.commit_turn").unwrap();
        assert_eq!((point.side, point.tool, point.nth), (Side::Before, None, 1));
        let point = KillPoint::parse("during:store.commit_turn#2+250").unwrap();
        assert_eq!((point.side, point.nth), (Side::During(Duration::from_micros(250)), 2));
        for bad in ["store.commit_turn", "during:x", "after:x#y", "after:x+5"] {
            assert!(KillPoint::parse(bad).is_none(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_point_of_any_name_counts_every_crossing_and_fires_once() {
        let fired = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&fired);
        let point = KillPoint::parse("before:*#2").unwrap().instead(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        for (name, wanted) in [("store.open_step", 0), ("tool.invoke", 1), ("tool.invoke", 1)] {
            point.before(&Crossing::of(name, None)).await;
            point.after(&Crossing::of(name, None)).await;
            assert_eq!(fired.load(Ordering::SeqCst), wanted, "{name}");
        }
    }

    #[tokio::test]
    async fn a_write_that_is_over_waits_for_what_happens_during_it() {
        let fired = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&fired);
        let point = KillPoint::parse("during:store.commit_turn+20000").unwrap().instead(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        for name in ["store.open_step", "store.commit_turn", "store.commit_turn"] {
            point.before(&Crossing::of(name, None)).await;
            point.after(&Crossing::of(name, None)).await;
            assert_eq!(fired.load(Ordering::SeqCst), u64::from(name == "store.commit_turn"), "{name}");
        }
    }
}
