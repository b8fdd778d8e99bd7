//! Where a process dies.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::seams::{Crossing, Plan};

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

/// Kills this very process with SIGKILL at a named crossing: `before:store.start_attempt:send_email`, `after:tool.invoke:upload`,
/// `after:store.commit_turn#2` (the second one).
#[derive(Debug)]
pub struct KillPoint {
    is_after: bool,
    name: String,
    tool: Option<String>,
    nth: u64,
    seen: AtomicU64,
}

impl KillPoint {
    /// Reads a point.
    pub fn parse(text: &str) -> Option<Self> {
        let (side, rest) = text.split_once(':')?;
        let (rest, nth) = match rest.split_once('#') {
            Some((rest, nth)) => (rest, nth.parse().ok()?),
            None => (rest, 1),
        };
        let (name, tool) = match rest.split_once(':') {
            Some((name, tool)) => (name, Some(tool.to_owned())),
            None => (rest, None),
        };
        let is_after = match side {
            "before" => false,
            "after" => true,
            _ => return None,
        };
        Some(Self { is_after, name: name.to_owned(), tool, nth, seen: AtomicU64::new(0) })
    }

    fn hit(&self, crossing: &Crossing, is_after: bool) {
        let fits = self.is_after == is_after
            && crossing.name == self.name
            && (self.tool.is_none() || crossing.tool == self.tool);
        if fits && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.nth {
            // Nothing is flushed and no destructor runs: this is the death that a kill -9 or the kernel brings.
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).ok();
            loop {
                std::thread::park();
            }
        }
    }
}

#[async_trait]
impl Plan for KillPoint {
    async fn before(&self, crossing: &Crossing) {
        self.hit(crossing, false);
    }

    async fn after(&self, crossing: &Crossing) {
        self.hit(crossing, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read() {
        let point = KillPoint::parse("after:tool.invoke:send_email#2").unwrap();
        assert_eq!(
            (point.is_after, point.name.as_str(), point.tool.as_deref(), point.nth),
            (true, "tool.invoke", Some("send_email"), 2)
        );
        let point = KillPoint::parse("before:store.commit_turn").unwrap();
        assert_eq!((point.is_after, point.tool, point.nth), (false, None, 1));
        for bad in ["store.commit_turn", "during:x", "after:x#y"] {
            assert!(KillPoint::parse(bad).is_none(), "{bad}");
        }
    }
}
