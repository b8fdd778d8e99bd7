//! Whose turn it is among the runs that wait, told of every claim by what could be seen in the queue before it.

use std::collections::{BTreeMap, BTreeSet};

use ua_core::{Entropy as _, SeededEntropy};

use super::samples::{self, at, run_id};
use crate::fleet::{
    ConcurrencyKey, FleetChange, FleetStore, LEASE, QueueEntry, QueueOptions, QueueState, Release, WorkerRecord,
};
use crate::run_store::RunStore as _;

/// What waits behind each other: of one priority, queue and fair key.
type Line = (i32, String, Option<String>);

/// Since when a line has had something that could be taken, without a break, and when it had its last turn; counted in claims.
#[derive(Debug, Clone, Default)]
struct Waits {
    since: Option<u64>,
    last: Option<u64>,
}

/// A queue that is played with, and what was seen of it.
pub struct Turns<'a> {
    store: &'a dyn FleetStore,
    drawn: SeededEntropy,
    now: i64,
    runs: u64,
    claims: u64,
    lines: BTreeMap<Line, Waits>,
    held: Vec<QueueEntry>,
}

const WORKER: &str = "ada";

impl<'a> Turns<'a> {
    /// Begins with an empty queue; what happens is drawn by `seed`.
    pub async fn begin(store: &'a dyn FleetStore, seed: u64) -> Self {
        let worker = WorkerRecord {
            worker: WORKER.to_owned(),
            place: "here".to_owned(),
            place_shown: "/runs on a machine".to_owned(),
            owner: samples::owner(7),
            version: "1.0.0".to_owned(),
            queues: Vec::new(),
            slots: 4,
            started_at: at(0),
            lease_until: at(1_000_000).plus(LEASE),
            is_draining: false,
        };
        store.fleet(FleetChange::Register(worker)).await.unwrap();
        let drawn = SeededEntropy::new(seed);
        Self { store, drawn, now: 1, runs: 0, claims: 0, lines: BTreeMap::new(), held: Vec::new() }
    }

    fn draw(&self, below: u64) -> u64 {
        self.drawn.next_u64() % below
    }

    /// A place in a list of so many.
    fn place(&self, of: usize) -> usize {
        usize::try_from(self.draw(of as u64)).unwrap_or_default()
    }

    /// So many steps; fails with what was taken out of turn.
    pub async fn play(&mut self, steps: u32) -> Result<(), String> {
        for _ in 0..steps {
            match self.draw(10) {
                0..=3 => self.queue().await,
                4..=6 => self.claim().await?,
                7 | 8 => self.release().await,
                _ => self.now += i64::try_from(self.draw(4)).unwrap_or(0),
            }
        }
        // What is left is taken one by one, as far as it can be.
        for _ in 0..steps {
            self.claim().await?;
            while !self.held.is_empty() {
                self.release().await;
            }
            self.now += 1;
        }
        Ok(())
    }

    /// A run is queued: of few keys, some for later, some that wait for a seat.
    async fn queue(&mut self) {
        let options = QueueOptions {
            queue: ["default", "other"][usize::from(self.draw(6) == 0)].to_owned(),
            priority: i32::from(self.draw(4) == 0),
            run_after: at(if self.draw(4) == 0 { self.now + 10 } else { 0 }),
            concurrency: (self.draw(4) == 0).then(|| ConcurrencyKey { key: "seats".to_owned(), limit: 1 }),
            fair_key: [Some("a"), Some("b"), Some("c"), None][self.place(4)].map(str::to_owned),
        };
        self.put(options).await;
    }

    async fn put(&mut self, options: QueueOptions) {
        self.runs += 1;
        let id = format!("run_{}", self.runs);
        let mut new = samples::new_run(&id);
        new.spec.job_key = None;
        self.store.submit_run(new).await.unwrap();
        let change = FleetChange::Enqueue { run: run_id(&id), options, at: at(self.now) };
        self.store.fleet(change).await.unwrap();
    }

    /// What the worker has ends, waits for a person, or is given back for later; a run that waits for a person is tried again, also with another
    /// priority.
    async fn release(&mut self) {
        let parked = self.entries().await.into_iter().find(|entry| entry.state == QueueState::Parked);
        if let Some(parked) = parked.filter(|_| self.draw(3) == 0) {
            let priority = (self.draw(2) == 0).then(|| i32::from(self.draw(2) == 0));
            let again = FleetChange::Move { run: parked.run_id, queue: None, priority };
            self.store.fleet(again).await.unwrap();
        }
        if self.held.is_empty() {
            return;
        }
        let which = self.place(self.held.len());
        let entry = self.held.swap_remove(which);
        let release = match self.draw(5) {
            0 => Release::Parked { why: None },
            1 => {
                let not_before = at(self.now + i64::try_from(self.draw(8)).unwrap_or(0));
                Release::Ready { not_before, since: None, why: None, is_driven: false }
            }
            _ => Release::Done,
        };
        let change = FleetChange::Release { worker: WORKER.to_owned(), run: entry.run_id, release };
        self.store.fleet(change).await.unwrap();
    }

    async fn entries(&self) -> Vec<QueueEntry> {
        self.store.fleet_state(100_000).await.unwrap().queue
    }

    /// What could be taken, by the words of the queue alone.
    fn ready(&self, entries: &[QueueEntry]) -> Vec<QueueEntry> {
        let is_free = |key: &ConcurrencyKey| {
            let taken = entries.iter().filter(|other| {
                other.state == QueueState::Claimed
                    && other.options.concurrency.as_ref().is_some_and(|other| other.key == key.key)
            });
            taken.count() < key.limit as usize
        };
        let now = at(self.now);
        let ready = entries.iter().filter(|entry| {
            entry.state == QueueState::Ready
                && entry.options.run_after <= now
                && entry.not_before.is_none_or(|not_before| not_before <= now)
                && entry.options.concurrency.as_ref().is_none_or(is_free)
        });
        ready.cloned().collect()
    }

    /// One run is taken, and it is the right one: of the smallest priority, the first of its line, and of a line that has not had its turn while
    /// another one waited for its own.
    async fn claim(&mut self) -> Result<(), String> {
        let ready = self.ready(&self.entries().await);
        self.claims += 1;
        let claims = self.claims;
        let waiting: BTreeSet<Line> = ready.iter().map(line_of).collect();
        for line in &waiting {
            self.lines.entry(line.clone()).or_default().since.get_or_insert(claims);
        }
        for (_, waits) in self.lines.iter_mut().filter(|(line, _)| !waiting.contains(line)) {
            waits.since = None;
        }
        let holds = self.held.iter().map(|entry| entry.run_id.clone()).collect();
        let change = FleetChange::Claim {
            worker: WORKER.to_owned(),
            holds,
            most: 1,
            dead: Vec::new(),
            avoids: Vec::new(),
            at: at(self.now),
        };
        let taken = self.store.fleet(change).await.unwrap().entries.pop();
        let Some(taken) = taken else {
            return if ready.is_empty() { Ok(()) } else { Err(format!("none of {ready:?} was taken")) };
        };
        let line = line_of(&taken);
        let Some(found) = ready.iter().find(|entry| entry.run_id == taken.run_id) else {
            return Err(format!("{taken:?} was not ready"));
        };
        if ready.iter().any(|entry| entry.options.priority < line.0) {
            return Err(format!("{found:?} was taken before one of a smaller priority"));
        }
        if ready.iter().any(|entry| line_of(entry) == line && entry.seq < found.seq) {
            return Err(format!("{found:?} was taken before one that came earlier"));
        }
        let last = self.lines.get(&line).and_then(|waits| waits.last);
        let passed = self.lines.iter().find(|(other, waits)| {
            let waits_since_then = last.zip(waits.since).is_some_and(|(last, since)| since <= last);
            other.0 == line.0 && **other != line && waits_since_then && waits.last < last
        });
        if let Some((passed, waits)) = passed {
            return Err(format!("{line:?} had two turns ({last:?}, {claims}) while {passed:?} had none ({waits:?})"));
        }
        self.lines.entry(line).or_default().last = Some(claims);
        self.held.push(taken);
        Ok(())
    }
}

fn line_of(entry: &QueueEntry) -> Line {
    let QueueOptions { priority, queue, fair_key, .. } = &entry.options;
    (*priority, queue.clone(), fair_key.clone())
}

/// Keys take turns among what is ready and of one priority, whatever else of theirs is in the queue.
pub async fn turns_are_taken_by_what_is_ready(store: &dyn FleetStore) {
    if let Err(why) = Turns::begin(store, 23).await.play(150).await {
        panic!("{why}");
    }
}

/// What of a key cannot be taken, for whatever reason, does not push what can be behind the others; and a key that queues its next run when the
/// last has ended does not get ahead of others by that.
pub async fn a_line_that_is_left_is_no_advantage(store: &dyn FleetStore) {
    let mut turns = Turns::begin(store, 1).await;
    let of = |key: &str| QueueOptions { fair_key: Some(key.to_owned()), ..QueueOptions::at(at(0)) };
    let later = || QueueOptions { run_after: at(1000), ..of("few") };
    let urgent = || QueueOptions { priority: -1, ..of("few") };
    for options in [later(), later(), later(), urgent(), urgent(), of("many"), of("many"), of("many"), of("few")] {
        turns.put(options).await;
    }
    let keys =
        |taken: &[QueueEntry]| taken.iter().map(|entry| entry.options.fair_key.clone().unwrap()).collect::<Vec<_>>();
    let mut taken = Vec::new();
    for _ in 0..4 {
        turns.claim().await.unwrap();
        taken.extend(turns.held.last().cloned());
    }
    assert_eq!(keys(&taken[..2]), ["few", "few"], "the urgent ones");
    assert_eq!(keys(&taken[2..]), ["few", "many"], "one of each");
    // `many` has two left; `once` comes again each time that it has ended.
    turns.put(of("once")).await;
    let mut order = Vec::new();
    for _ in 0..4 {
        turns.claim().await.unwrap();
        let Some(entry) = turns.held.pop() else { break };
        order.extend(keys(std::slice::from_ref(&entry)));
        let done =
            FleetChange::Release { worker: WORKER.to_owned(), run: entry.run_id.clone(), release: Release::Done };
        store.fleet(done).await.unwrap();
        if keys(&[entry]) == ["once"] && order.len() < 3 {
            turns.put(of("once")).await;
        }
    }
    assert_eq!(order, ["once", "many", "once", "many"]);
}
