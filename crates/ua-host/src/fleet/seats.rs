//! What is said of runs that wait for a seat of their key (`--concurrency-key`), and who has it.
//!
//! Which runs have a seat is for the store to decide ([`ua_store::FleetRows::next_entry`]); this says the same to people, of what was read.

use std::collections::BTreeMap;

use ua_core::{RunId, RunStatus, Timestamp};
use ua_store::{
    LedgerStore as _, QueueEntry, QueueState, RunStore as _, Store as _, StoreError, Walk, WorkerRecord,
    is_effect_under_way, keeps_its_seat,
};

use crate::Database;
use crate::database::{OtherPlace, Whereabouts};
use crate::text::foreign;

/// So many runs that have seats are named.
const NAMED: usize = 3;

/// Who has the seats of each key.
#[derive(Debug, Default)]
pub struct Seats(BTreeMap<String, Vec<Seat>>);

/// A run that has a seat.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seat {
    run: RunId,
    /// Where it was at work when its worker was taken for dead, if nobody has claimed it since and it is held by another place.
    kept_in: Option<OtherPlace>,
}

/// Why a run waits that gets no seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoSeat {
    /// In a sentence.
    pub(super) why: String,
    /// No seat comes free by anything that is under way: those that would are kept by runs of places where no worker takes runs.
    pub(super) is_lasting: bool,
}

impl Seats {
    /// Of a queue as the table has it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn of(store: &Database, queue: &[QueueEntry]) -> Result<Self, StoreError> {
        let mut seats = Self::default();
        let mut kept: Vec<(&str, &RunId)> = Vec::new();
        for entry in queue {
            let Some(seat) = &entry.options.concurrency else { continue };
            match entry.state {
                QueueState::Claimed => seats.add(&seat.key, &entry.run_id, None),
                QueueState::Ready if entry.strikes > 0 => {
                    let run = store.run(&entry.run_id).await?;
                    if run.status != RunStatus::Running {
                        continue;
                    }
                    let has_effect = run.end_mark().is_some() && has_effect_under_way(store, &run.run_id).await?;
                    if keeps_its_seat(&run, || has_effect) {
                        kept.push((&seat.key, &entry.run_id));
                    }
                }
                QueueState::Ready | QueueState::Parked => {}
            }
        }
        let places = store.whereabouts(&kept.iter().map(|(_, run)| *run).collect::<Vec<_>>()).await?;
        for ((key, run), place) in kept.into_iter().zip(places) {
            let kept_in = match place {
                Whereabouts::Elsewhere(place) => Some(place),
                Whereabouts::Here | Whereabouts::Nowhere => None,
            };
            seats.add(key, run, kept_in);
        }
        Ok(seats)
    }

    fn add(&mut self, key: &str, run: &RunId, kept_in: Option<OtherPlace>) {
        self.0.entry(key.to_owned()).or_default().push(Seat { run: run.clone(), kept_in });
    }

    /// Why a run that is due is not taken, if that is because others have every seat of its key.
    pub(super) fn none_for(&self, entry: &QueueEntry, workers: &[WorkerRecord], now: Timestamp) -> Option<NoSeat> {
        let key = entry.options.concurrency.as_ref()?;
        let others = self.0.get(&key.key)?.iter().filter(|seat| seat.run != entry.run_id);
        let others: Vec<&Seat> = others.collect();
        if others.len() < key.limit as usize {
            return None;
        }
        let takes_runs = |place: &OtherPlace| {
            workers.iter().any(|worker| worker.lease_until > now && !worker.is_draining && worker.place == place.id)
        };
        let lost = |seat: &&&Seat| seat.kept_in.as_ref().is_some_and(|place| !takes_runs(place));
        let kept: Vec<&Seat> = others.iter().filter(lost).copied().collect();
        let is_lasting = kept.len() >= key.limit as usize;
        let limit = format!("{}:{}", key.key, key.limit);
        let why = match kept.first().and_then(|seat| seat.kept_in.as_ref().map(|place| (seat, place))) {
            // The command comes before the path, which may be long where a line is cut.
            Some((seat, place)) => format!(
                "waits for a seat of {limit}; {} keeps one, since its worker is gone without proof: start a worker where it was, or run {} if \
                 that is gone for good ({})",
                seat.run,
                place.forget(),
                foreign(&place.shown)
            ),
            None => format!("waits for a seat of {limit}, at work: {}", named(&others)),
        };
        Some(NoSeat { why, is_lasting })
    }

    /// Says of each run that is due and has no reason yet that it waits for a seat, if it does.
    pub fn say_who_waits(&self, queue: &mut [QueueEntry], workers: &[WorkerRecord], now: Timestamp) {
        let waits = |entry: &&mut QueueEntry| {
            entry.state == QueueState::Ready && entry.why.is_none() && entry.options.run_after <= now
        };
        for entry in queue.iter_mut().filter(waits) {
            entry.why = self.none_for(entry, workers, now).map(|none| none.why);
        }
    }
}

/// Whether an effect of a run, or of a sub-agent of it, is under way.
async fn has_effect_under_way(store: &Database, run: &RunId) -> Result<bool, StoreError> {
    let (mut walk, mut runs) = (Walk::from(run), vec![run.clone()]);
    while let Some(run) = runs.pop() {
        if store.calls(&run, None).await?.iter().any(is_effect_under_way) {
            return Ok(true);
        }
        let children = store.children(&run).await?;
        runs.extend(walk.down(children).into_iter().map(|child| child.run_id));
    }
    Ok(false)
}

fn named(seats: &[&Seat]) -> String {
    let mut names: Vec<String> = seats.iter().take(NAMED).map(|seat| seat.run.to_string()).collect();
    if seats.len() > NAMED {
        names.push(format!("and {} more", seats.len() - NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use ua_store::{ConcurrencyKey, QueueOptions};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    fn entry(run: &str, limit: u32) -> QueueEntry {
        let concurrency = Some(ConcurrencyKey { key: "acme".to_owned(), limit });
        QueueEntry {
            run_id: RunId::parse(run).unwrap(),
            options: QueueOptions { concurrency, ..QueueOptions::at(at(0)) },
            queued_at: at(0),
            not_before: None,
            line: 1,
            seq: 1,
            state: QueueState::Ready,
            worker: None,
            words: 0,
            strikes: 0,
            why: None,
        }
    }

    fn worker(place: &str, lease: i64, is_draining: bool) -> WorkerRecord {
        WorkerRecord {
            worker: "w".to_owned(),
            place: place.to_owned(),
            place_shown: format!("/runs on {place}"),
            owner: ua_runner::owner_stamp(ua_core::Trace::new(&ua_core::system::env())),
            version: "1.0.0".to_owned(),
            queues: Vec::new(),
            slots: 1,
            started_at: at(0),
            lease_until: at(lease),
            is_draining,
        }
    }

    /// Over all ways in which two seats can be had: by runs that are at work, and by ones whose machine is dead, has a worker or has one that drains.
    #[test]
    fn who_waits_for_a_seat_is_told_who_has_it_and_whether_that_ends_by_itself() {
        let place = |id: &str| OtherPlace { id: id.to_owned(), shown: format!("/runs on {id}") };
        let workers = [worker("alive", 90, false), worker("draining", 90, true), worker("dead", 10, false)];
        let ways = [None, Some("alive"), Some("draining"), Some("dead")];
        for (first, second) in ways.into_iter().flat_map(|first| ways.map(|second| (first, second))) {
            let mut seats = Seats::default();
            for (run, kept) in [("one", first), ("two", second)] {
                seats.add("acme", &RunId::parse(run).unwrap(), kept.map(place));
            }
            let is_lost = |kept: Option<&str>| matches!(kept, Some("draining" | "dead"));
            let none = seats.none_for(&entry("third", 2), &workers, at(50)).unwrap();
            assert_eq!(none.is_lasting, is_lost(first) && is_lost(second), "{first:?} {second:?}");
            assert!(none.why.starts_with("waits for a seat of acme:2"), "{}", none.why);
            let lost = [first, second].into_iter().find(|kept| is_lost(*kept));
            match lost {
                Some(kept) => {
                    let forget = format!("`ua workers forget {}`", kept.unwrap());
                    assert!(none.why.contains(&forget), "{}", none.why);
                }
                None => assert!(none.why.ends_with("at work: one, two"), "{}", none.why),
            }
            assert_eq!(seats.none_for(&entry("third", 3), &workers, at(50)), None, "one is free");
            assert_eq!(seats.none_for(&entry("one", 2), &workers, at(50)), None, "it has one itself");
        }
    }

    #[test]
    fn a_reason_that_is_known_is_kept_and_what_is_not_due_waits_for_its_time() {
        let mut seats = Seats::default();
        seats.add("acme", &RunId::parse("one").unwrap(), None);
        let mut told = QueueEntry { why: Some("no key".to_owned()), ..entry("told", 1) };
        let mut later = entry("later", 1);
        later.options.run_after = at(60);
        let mut queue = [told.clone(), later.clone(), entry("due", 1)];
        seats.say_who_waits(&mut queue, &[], at(50));
        let why = |entry: &QueueEntry| entry.why.clone();
        assert_eq!(
            queue.iter().map(why).collect::<Vec<_>>(),
            [told.why.take(), later.why.take(), Some("waits for a seat of acme:1, at work: one".to_owned())]
        );
    }
}
