//! Workers, the queue and schedules of the model.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ua_core::{RunId, RunStatus, TASK_MODE, Timestamp};

use super::MemStore;
use super::model::Model;
use super::rows::Transaction;
use crate::error::StoreError;
use crate::fleet::{
    FleetChange, FleetDone, FleetRows, FleetState, FleetStore, QueueDepth, QueueEntry, QueueLine, QueueOptions,
    QueueState, ScheduleRecord, WorkerRecord, apply_fleet, in_turn, is_effect_under_way, keeps_its_seat,
};
use crate::record::{CallRecord, RunRecord};

type Found<T> = Result<T, StoreError>;

#[async_trait]
impl FleetStore for MemStore {
    async fn fleet_now(&self, own: Timestamp) -> Found<Timestamp> {
        Ok(own)
    }

    async fn fleet(&self, change: FleetChange) -> Found<FleetDone> {
        let mut model = self.model();
        let mut next = model.clone();
        let done = apply_fleet(&Transaction::of(&mut next), change)?;
        *model = next;
        Ok(done)
    }

    async fn fleet_state(&self, most: u32) -> Found<FleetState> {
        let model = self.model();
        let mut queue: Vec<QueueEntry> = model.queue.values().cloned().collect();
        let lines: Vec<QueueLine> = model.lines.values().cloned().collect();
        in_turn(&mut queue, &lines, |_| false);
        queue.truncate(most as usize);
        Ok(FleetState {
            workers: model.workers.values().cloned().collect(),
            queue,
            schedules: model.schedules.values().cloned().collect(),
            lines: if most == 0 { Vec::new() } else { lines },
        })
    }

    async fn queue_depths(&self, now: Timestamp) -> Found<Vec<QueueDepth>> {
        let mut depths: BTreeMap<String, QueueDepth> = BTreeMap::new();
        for entry in self.model().queue.values() {
            let name = &entry.options.queue;
            let depth = depths.entry(name.clone()).or_insert_with(|| QueueDepth {
                queue: name.clone(),
                ready: 0,
                later: 0,
                claimed: 0,
                parked: 0,
                oldest_at: None,
            });
            let after = entry.options.run_after;
            match entry.state {
                QueueState::Claimed => depth.claimed += 1,
                QueueState::Parked => depth.parked += 1,
                QueueState::Ready if after > now => depth.later += 1,
                QueueState::Ready => {
                    depth.ready += 1;
                    depth.oldest_at = Some(depth.oldest_at.map_or(after, |oldest| oldest.min(after)));
                }
            }
        }
        Ok(depths.into_values().collect())
    }

    async fn queued(&self, run: &RunId) -> Found<Option<QueueEntry>> {
        Ok(self.model().queue.get(run).cloned())
    }
}

impl Model {
    fn words_of_lineage(&self, run: &RunId) -> u64 {
        let Ok(run) = self.run(run) else { return 0 };
        let lineage = self.runs.iter().filter(|other| other.root_run_id == run.root_run_id);
        lineage.filter_map(|other| self.written.get(&other.run_id)).map(|written| written.words).sum()
    }
}

impl FleetRows for Transaction<'_> {
    type Error = StoreError;

    fn fleet_run(&self, run: &RunId) -> Found<RunRecord> {
        Model::run(&self.model(), run)
    }

    fn entry(&self, run: &RunId) -> Found<Option<QueueEntry>> {
        Ok(self.model().queue.get(run).cloned())
    }

    fn put_entry(&self, entry: &QueueEntry) -> Found<()> {
        self.change().queue.insert(entry.run_id.clone(), entry.clone());
        Ok(())
    }

    fn remove_entry(&self, run: &RunId) -> Found<()> {
        self.change().queue.remove(run);
        Ok(())
    }

    fn entries_of(&self, worker: &str) -> Found<Vec<QueueEntry>> {
        let model = self.model();
        let mut held: Vec<QueueEntry> =
            model.queue.values().filter(|entry| entry.worker.as_deref() == Some(worker)).cloned().collect();
        held.sort_by_key(|entry| entry.seq);
        Ok(held)
    }

    fn woken_entries(&self) -> Found<Vec<(QueueEntry, u64)>> {
        let model = self.model();
        let parked = model.queue.values().filter(|entry| entry.state == QueueState::Parked);
        let mut woken: Vec<(QueueEntry, u64)> = parked
            .map(|entry| (entry.clone(), model.words_of_lineage(&entry.run_id)))
            .filter(|(entry, words)| {
                let is_over = model.run(&entry.run_id).is_ok_and(|run| run.status.is_terminal());
                entry.words != *words || is_over
            })
            .collect();
        woken.sort_by_key(|(entry, _)| entry.seq);
        Ok(woken)
    }

    fn next_entry(&self, worker: &WorkerRecord, avoids: &[RunId], at: Timestamp) -> Found<Option<QueueEntry>> {
        let model = self.model();
        let has_seat = |entry: &QueueEntry| {
            entry.options.concurrency.as_ref().is_none_or(|seats| {
                let is_at_work = |other: &QueueEntry| match other.state {
                    QueueState::Claimed => true,
                    QueueState::Ready if other.strikes == 0 => false,
                    QueueState::Ready => model.run(&other.run_id).is_ok_and(|run| {
                        let is_its = |call: &&CallRecord| {
                            let of = model.runs.iter().find(|of| of.run_id == call.run_id);
                            of.is_some_and(|of| {
                                of.root_run_id == run.root_run_id
                                    && (of.run_id == run.run_id || of.run_mode == TASK_MODE)
                            })
                        };
                        let has_effect = || model.calls.iter().filter(is_its).any(is_effect_under_way);
                        run.status == RunStatus::Running && keeps_its_seat(&run, has_effect)
                    }),
                    QueueState::Parked => false,
                };
                let taken = model.queue.values().filter(|other| {
                    other.run_id != entry.run_id
                        && is_at_work(other)
                        && other.options.concurrency.as_ref().is_some_and(|other| other.key == seats.key)
                });
                taken.count() < seats.limit as usize
            })
        };
        let ready = model.queue.values().filter(|entry| {
            entry.state == QueueState::Ready
                && entry.options.run_after <= at
                && entry.not_before.is_none_or(|not_before| not_before <= at && !avoids.contains(&entry.run_id))
                && (worker.queues.is_empty() || worker.queues.contains(&entry.options.queue))
                && has_seat(entry)
        });
        let turn = |entry: &QueueEntry| model.lines.get(&entry.line).map_or(0, |line| line.turn);
        Ok(ready.min_by_key(|entry| (entry.options.priority, turn(entry), entry.line, entry.seq)).cloned())
    }

    fn last_seq(&self) -> Found<u64> {
        Ok(self.model().queue.values().map(|entry| entry.seq).max().unwrap_or(0))
    }

    fn line_of(&self, options: &QueueOptions) -> Found<Option<u64>> {
        let QueueOptions { queue, priority, fair_key, .. } = options;
        let model = self.model();
        let mut lines = model.lines.values();
        let same = |line: &&QueueLine| line.queue == *queue && line.priority == *priority && line.fair_key == *fair_key;
        Ok(lines.find(same).map(|line| line.line))
    }

    fn last_line(&self) -> Found<u64> {
        Ok(self.model().lines.last_key_value().map_or(0, |(line, _)| *line))
    }

    fn add_line(&self, line: &QueueLine) -> Found<()> {
        self.change().lines.insert(line.line, line.clone());
        Ok(())
    }

    fn set_turn(&self, line: u64, turn: u64) -> Found<()> {
        if let Some(line) = self.change().lines.get_mut(&line) {
            line.turn = turn;
        }
        Ok(())
    }

    fn drop_empty_line(&self, line: u64) -> Found<()> {
        if !self.model().queue.values().any(|entry| entry.line == line) {
            self.change().lines.remove(&line);
        }
        Ok(())
    }

    fn queue_clock(&self) -> Found<u64> {
        Ok(self.model().queue_clock)
    }

    fn set_queue_clock(&self, turn: u64) -> Found<()> {
        self.change().queue_clock = turn;
        Ok(())
    }

    fn words_of_lineage(&self, run: &RunId) -> Found<u64> {
        Ok(Model::words_of_lineage(&self.model(), run))
    }

    fn workers(&self) -> Found<Vec<WorkerRecord>> {
        Ok(self.model().workers.values().cloned().collect())
    }

    fn put_worker(&self, worker: &WorkerRecord) -> Found<()> {
        self.change().workers.insert(worker.worker.clone(), worker.clone());
        Ok(())
    }

    fn remove_worker(&self, worker: &str) -> Found<()> {
        self.change().workers.remove(worker);
        Ok(())
    }

    fn forget_place(&self, _place: &str) -> Found<u64> {
        // Nothing outlives the process, which is in one place.
        Ok(0)
    }

    fn unbind_unbegun(&self, _run: &RunId) -> Found<()> {
        Ok(())
    }

    fn schedules(&self) -> Found<Vec<ScheduleRecord>> {
        Ok(self.model().schedules.values().cloned().collect())
    }

    fn put_schedule(&self, schedule: &ScheduleRecord) -> Found<()> {
        self.change().schedules.insert(schedule.name.clone(), schedule.clone());
        Ok(())
    }

    fn remove_schedule(&self, name: &str) -> Found<()> {
        self.change().schedules.remove(name);
        Ok(())
    }
}
