//! A queue of what a tool server says by itself, for whoever may not read it: bounded by bytes, so that no server fills the memory of a program that
//! many others share.
//!
//! Nothing here waits: a server is read on in any case, since the answers to calls come on the same lines. What has no room is dropped, and said so
//! once. What must not be lost is taken always.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::Value;
use tokio::sync::mpsc;

/// How many bytes may wait, about: as many as a client that reads late is spared, and as few as sixty-four clients may have at once.
pub const MOST_WAITING: usize = 8 * 1024 * 1024;

/// What is put into the queue.
pub trait Queued {
    /// How much memory it takes, about, in bytes.
    fn size(&self) -> usize;

    /// Whether it is taken also where there is no room.
    fn must_be_taken(&self) -> bool;
}

impl Queued for Value {
    fn size(&self) -> usize {
        size_of(self)
    }

    /// What a server says by itself.
    fn must_be_taken(&self) -> bool {
        false
    }
}

/// How much memory a value takes, about, in bytes.
pub fn size_of(value: &Value) -> usize {
    let within = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size_of).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size_of(value)).sum(),
    };
    within + size_of_val(value)
}

/// The end that things are put in at.
#[derive(Debug)]
pub struct QueueSender<T> {
    to: mpsc::UnboundedSender<(T, usize)>,
    waiting: Arc<AtomicUsize>,
    has_dropped: Arc<AtomicBool>,
}

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), waiting: self.waiting.clone(), has_dropped: self.has_dropped.clone() }
    }
}

/// The end that they are taken out at.
#[derive(Debug)]
pub struct QueueReceiver<T> {
    from: mpsc::UnboundedReceiver<(T, usize)>,
    waiting: Arc<AtomicUsize>,
}

/// An empty one.
pub fn queue<T>() -> (QueueSender<T>, QueueReceiver<T>) {
    let (to, from) = mpsc::unbounded_channel();
    let waiting = Arc::<AtomicUsize>::default();
    (QueueSender { to, waiting: waiting.clone(), has_dropped: Arc::default() }, QueueReceiver { from, waiting })
}

impl<T> QueueSender<T> {
    /// Whether there is room for more.
    pub fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Acquire) < MOST_WAITING
    }
}

impl<T: Queued> QueueSender<T> {
    /// Puts something in, or drops it where there is no room. Where nobody takes anything out any more, it is dropped too.
    pub fn put(&self, item: T) {
        if !self.has_room() && !item.must_be_taken() {
            if !self.has_dropped.swap(true, Ordering::AcqRel) {
                tracing::warn!(
                    "a tool server says more than is read; what it says by itself is dropped until that was read"
                );
            }
            return;
        }
        let size = item.size();
        self.waiting.fetch_add(size, Ordering::AcqRel);
        if self.to.send((item, size)).is_err() {
            self.waiting.fetch_sub(size, Ordering::AcqRel);
        }
    }
}

impl<T> QueueReceiver<T> {
    /// The next one; `None` when there will be none.
    pub async fn next(&mut self) -> Option<T> {
        let (item, size) = self.from.recv().await?;
        self.waiting.fetch_sub(size, Ordering::AcqRel);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    struct Answer(usize);

    impl Queued for Answer {
        fn size(&self) -> usize {
            self.0
        }

        fn must_be_taken(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn what_nobody_reads_is_dropped_once_it_is_too_much() {
        let (to, mut from) = queue();
        let one = json!({"method": "notifications/message", "params": {"data": "x".repeat(100_000)}});
        for _ in 0..1_000 {
            to.put(one.clone());
        }
        assert!(!to.has_room());
        let mut kept = 0;
        while !from.from.is_empty() {
            assert_eq!(from.next().await.as_ref(), Some(&one));
            kept += 1;
        }
        assert!((80..=84).contains(&kept), "{kept}");
        assert!(to.has_room());
        assert_eq!(from.waiting.load(Ordering::Acquire), 0);
        to.put(one);
        drop(to);
        assert!(from.next().await.is_some() && from.next().await.is_none());
    }

    #[tokio::test]
    async fn an_answer_is_never_dropped() {
        let (to, mut from) = queue();
        (0..20).for_each(|_| to.put(Answer(MOST_WAITING)));
        for _ in 0..20 {
            assert!(from.next().await.is_some());
        }
        assert_eq!(from.waiting.load(Ordering::Acquire), 0);
    }
}
