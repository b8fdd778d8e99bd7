//! Order by construction: a place in a queue is taken without waiting, where the order is known, and waited for wherever its turn matters.
//!
//! Tasks that race for a lock have no order. So whoever reads requests takes a place for each before anything else is done for it, and what is
//! done later, in whichever task, waits for that place. A place that is dropped is left, wherever it stood; nobody behind it comes too early.
//! Proved by: the search over all orders below, `tests/it/order.rs`.

use std::collections::{BTreeMap, btree_map};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::sync::lock;

/// A queue of those who stand as a `T`.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    standing: Mutex<Standing<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct Standing<T> {
    next: u64,
    places: BTreeMap<u64, T>,
}

/// A place in a queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<T> {
    queue: Arc<Queue<T>>,
    number: u64,
}

/// Those who stand before a place, the first one first.
pub(crate) struct Before<'a, T>(btree_map::Range<'a, u64, T>);

impl<'a, T> Iterator for Before<'a, T> {
    type Item = &'a T;
    fn next(&mut self) -> Option<&'a T> {
        self.0.next().map(|(_, before)| before)
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { standing: Mutex::new(Standing { next: 0, places: BTreeMap::new() }), changed: Notify::new() }
    }
}

impl<T> Queue<T> {
    /// Takes the place behind all that were taken before.
    pub(crate) fn place(self: &Arc<Self>, standing: T) -> Place<T> {
        let mut all = lock(&self.standing);
        let number = all.next;
        all.next += 1;
        all.places.insert(number, standing);
        Place { queue: self.clone(), number }
    }

    /// Whoever stands in front of all others, as this sees them.
    pub(crate) fn first<R>(&self, seen: impl FnOnce(&T) -> R) -> Option<R> {
        lock(&self.standing).places.first_key_value().map(|(_, first)| seen(first))
    }
}

impl<T> Place<T> {
    /// Waits until this is so of those who stand before.
    pub(crate) async fn until(&self, may_go: impl Fn(Before<'_, T>) -> bool) {
        loop {
            let changed = self.queue.changed.notified();
            if may_go(Before(lock(&self.queue.standing).places.range(..self.number))) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until nobody stands before.
    pub(crate) async fn is_first(&self) {
        self.until(|mut before| before.next().is_none()).await;
    }

    /// Changes how it stands there.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        if let Some(own) = lock(&self.queue.standing).places.get_mut(&self.number) {
            change(own);
        }
        self.queue.changed.notify_waiters();
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        lock(&self.queue.standing).places.remove(&self.number);
        self.queue.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All orders in which five tasks with a place can get to run, and all of them of which some are dropped before their turn: they come in the
    /// order of their places.
    #[tokio::test]
    async fn in_whichever_order_tasks_run_they_come_in_the_order_of_their_places() {
        const COUNT: usize = 5;
        let mut orders = vec![vec![]];
        for _ in 0..COUNT {
            orders = orders
                .into_iter()
                .flat_map(|order: Vec<usize>| {
                    let left: Vec<usize> = (0..COUNT).filter(|one| !order.contains(one)).collect();
                    left.into_iter().map(move |one| [order.clone(), vec![one]].concat())
                })
                .collect();
        }
        assert_eq!(orders.len(), 120);
        for order in &orders {
            for dropped in 0..1_u32 << COUNT {
                let queue = Arc::new(Queue::default());
                let mut places: Vec<_> = (0..COUNT).map(|_| Some(queue.place(()))).collect();
                let came = Arc::new(Mutex::new(Vec::new()));
                let mut tasks = tokio::task::JoinSet::new();
                for &one in order {
                    let place = places[one].take();
                    if dropped & (1 << one) != 0 {
                        drop(place);
                        continue;
                    }
                    let came = came.clone();
                    tasks.spawn(async move {
                        let Some(place) = place else { return };
                        place.is_first().await;
                        lock(&came).push(one);
                        tokio::task::yield_now().await;
                        drop(place);
                    });
                    tokio::task::yield_now().await;
                }
                tasks.join_all().await;
                let expected: Vec<usize> = (0..COUNT).filter(|one| dropped & (1 << one) == 0).collect();
                assert_eq!(*lock(&came), expected, "{order:?} {dropped:b}");
            }
        }
    }
}
