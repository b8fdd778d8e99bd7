//! What each change of the fleet does to its rows, for every store.

use ua_core::{RunId, RunStatus, Timestamp};

use super::{
    DRAINED_KEPT, FleetChange, FleetDone, FleetRows, MOST_STRIKES, QueueEntry, QueueLine, QueueOptions, QueueState,
    Release, WorkerRecord,
};
use crate::error::{RowRef, StoreError};
use crate::rules::not_found;

fn conflict(table: &'static str, key: &str, why: impl Into<String>) -> StoreError {
    StoreError::Conflict { row: RowRef::new(table, key), why: why.into() }
}

/// Does one change; whoever calls has a transaction that no other change of the fleet runs beside.
///
/// # Errors
///
/// As the change says; nothing of it is to be kept then.
pub fn apply_fleet<R: FleetRows>(rows: &R, mut change: FleetChange) -> Result<FleetDone, R::Error> {
    change.clean();
    let mut done = FleetDone::default();
    match change {
        FleetChange::Register(worker) => {
            let before = rows.workers()?.into_iter().find(|known| known.worker == worker.worker);
            // The same process has heard it already, or did not hear it before it was taken for dead.
            let mut is_draining = worker.is_draining;
            if let Some(before) = before {
                if before.owner == worker.owner {
                    is_draining |= before.is_draining;
                } else {
                    if before.place != worker.place && before.lease_until > worker.started_at {
                        let why = format!("a worker of this name is alive: {}", before.place_shown);
                        return Err(conflict("workers", &worker.worker, why).into());
                    }
                    // At one place only one process has the lock of a name, so the one before is dead.
                    done.freed = bury(rows, &worker.worker)?;
                }
            }
            rows.put_worker(&WorkerRecord { is_draining, ..worker })?;
        }
        FleetChange::Renew { worker, lease_until } => {
            rows.put_worker(&WorkerRecord { lease_until, ..found(rows, &worker)? })?;
        }
        FleetChange::Drain { worker } => {
            rows.put_worker(&WorkerRecord { is_draining: true, ..found(rows, &worker)? })?;
        }
        FleetChange::Leave { worker } => {
            for entry in rows.entries_of(&worker)? {
                rows.put_entry(&QueueEntry { state: QueueState::Ready, worker: None, ..entry })?;
                done.freed += 1;
            }
            rows.remove_worker(&worker)?;
        }
        FleetChange::ForgetPlace { place, at } => done.freed = forget(rows, &place, at)?,
        FleetChange::Enqueue { run, options, at } => done.entries.push(enqueue(rows, &run, options, at)?),
        FleetChange::EnqueueDue { schedule, run, options, at } => {
            if rows.schedules()?.iter().any(|known| known.name == schedule && known.is_paused) {
                return Err(conflict("schedules", &schedule, "it was paused meanwhile").into());
            }
            done.entries.push(enqueue(rows, &run, options, at)?);
        }
        FleetChange::Claim { worker, holds, most, dead, avoids, at } => {
            done.freed = sweep(rows, &dead, at)?;
            wake(rows, at)?;
            done.entries = claim(rows, &worker, &Offer { holds: &holds, avoids: &avoids, most }, at)?;
        }
        FleetChange::Release { worker, run, release } => {
            let held = rows.entry(&run)?;
            if let Some(entry) = held.filter(|entry| entry.worker.as_deref() == Some(&worker)) {
                let_go(rows, entry, release)?;
            }
        }
        FleetChange::Move { run, queue, priority } => {
            let entry = rows.entry(&run)?.ok_or_else(|| not_found("run_queue", &run))?;
            if entry.state == QueueState::Claimed {
                return Err(conflict("run_queue", run.as_str(), "a worker is running it").into());
            }
            let mut moved = QueueEntry { state: QueueState::Ready, not_before: None, why: None, ..entry.clone() };
            // What waits already may be in the hands of a worker that was taken for dead.
            if entry.state == QueueState::Parked {
                moved.strikes = 0;
            }
            moved.options.priority = priority.unwrap_or(entry.options.priority);
            moved.options.queue = queue.unwrap_or(moved.options.queue);
            moved.line = line_for(rows, &moved.options)?;
            rows.put_entry(&moved)?;
            if moved.line != entry.line {
                rows.drop_empty_line(entry.line)?;
            }
            done.entries.push(moved);
        }
        FleetChange::Withdraw { run } => {
            let entry = rows.entry(&run)?.ok_or_else(|| not_found("run_queue", &run))?;
            if entry.state == QueueState::Claimed {
                return Err(conflict("run_queue", run.as_str(), "a worker is running it").into());
            }
            leave(rows, &entry)?;
            done.entries.push(entry);
        }
        FleetChange::PutSchedule(schedule) => rows.put_schedule(&schedule)?,
        FleetChange::Advance { name, from, to } => {
            let mut all = rows.schedules()?.into_iter();
            let mut schedule =
                all.find(|schedule| schedule.name == name).ok_or_else(|| not_found("schedules", &name))?;
            if schedule.next_at != from {
                return Err(conflict("schedules", &name, "another process was faster").into());
            }
            schedule.next_at = to;
            rows.put_schedule(&schedule)?;
        }
        FleetChange::RemoveSchedule { name } => {
            if !rows.schedules()?.iter().any(|schedule| schedule.name == name) {
                return Err(not_found("schedules", &name).into());
            }
            rows.remove_schedule(&name)?;
        }
    }
    Ok(done)
}

fn found<R: FleetRows>(rows: &R, name: &str) -> Result<WorkerRecord, R::Error> {
    let worker = rows.workers()?.into_iter().find(|worker| worker.worker == name);
    worker.ok_or_else(|| not_found("workers", name).into())
}

/// The line that a run joins. A new one comes behind all that wait for their turn, and before the one that had it last: whoever joins again and
/// again overtakes nobody, and nobody who has come waits for a second turn of another. Turns are even numbers, so there is one between any two.
fn line_for<R: FleetRows>(rows: &R, options: &QueueOptions) -> Result<u64, R::Error> {
    if let Some(line) = rows.line_of(options)? {
        return Ok(line);
    }
    let line = rows.last_line()? + 1;
    let QueueOptions { queue, priority, fair_key, .. } = options.clone();
    let turn = rows.queue_clock()?.saturating_sub(1);
    rows.add_line(&QueueLine { line, priority, queue, fair_key, turn })?;
    Ok(line)
}

/// A run leaves the queue, and so does its line if it was the last there.
fn leave<R: FleetRows>(rows: &R, entry: &QueueEntry) -> Result<(), R::Error> {
    rows.remove_entry(&entry.run_id)?;
    rows.drop_empty_line(entry.line)
}

fn enqueue<R: FleetRows>(rows: &R, run: &RunId, options: QueueOptions, at: Timestamp) -> Result<QueueEntry, R::Error> {
    let record = rows.fleet_run(run)?;
    if record.status.is_terminal() {
        return Err(conflict("runs", run.as_str(), format!("it is {}", record.status)).into());
    }
    if let Some(entry) = rows.entry(run)? {
        return Ok(entry);
    }
    let entry = QueueEntry {
        run_id: run.clone(),
        queued_at: at,
        line: line_for(rows, &options)?,
        seq: rows.last_seq()? + 1,
        options,
        not_before: None,
        state: QueueState::Ready,
        worker: None,
        words: 0,
        strikes: 0,
        why: None,
    };
    rows.put_entry(&entry)?;
    Ok(entry)
}

/// What dead workers had is there for others; how much.
fn sweep<R: FleetRows>(rows: &R, dead: &[String], at: Timestamp) -> Result<u64, R::Error> {
    let mut freed = 0;
    for worker in rows.workers()? {
        let is_dead = dead.contains(&worker.worker);
        if worker.lease_until > at && !is_dead {
            continue;
        }
        freed += bury(rows, &worker.worker)?;
        // It may have stood still, and must find that it takes nothing more.
        let is_kept = worker.is_draining && !is_dead && at.since(worker.lease_until) < DRAINED_KEPT;
        if !is_kept {
            rows.remove_worker(&worker.worker)?;
        }
    }
    Ok(freed)
}

/// What a dead worker had is there for others; how much.
fn bury<R: FleetRows>(rows: &R, worker: &str) -> Result<u64, R::Error> {
    let mut freed = 0;
    for mut entry in rows.entries_of(worker)? {
        freed += 1;
        entry.strikes += 1;
        entry.worker = None;
        let is_last = entry.strikes >= MOST_STRIKES;
        entry.state = if is_last { QueueState::Parked } else { QueueState::Ready };
        entry.why = is_last.then(|| format!("{} workers in a row died while they worked on it", entry.strikes));
        rows.put_entry(&entry)?;
    }
    Ok(freed)
}

/// What people said something about is looked at again. For a worker it waits from here on: until now it waited for them.
fn wake<R: FleetRows>(rows: &R, at: Timestamp) -> Result<(), R::Error> {
    for (entry, words) in rows.woken_entries()? {
        let options = QueueOptions { run_after: entry.options.run_after.max(at), ..entry.options.clone() };
        rows.put_entry(&QueueEntry { state: QueueState::Ready, options, words, strikes: 0, why: None, ..entry })?;
    }
    Ok(())
}

/// What a worker that takes runs has, leaves alone and has room for.
struct Offer<'a> {
    holds: &'a [RunId],
    avoids: &'a [RunId],
    most: u32,
}

fn claim<R: FleetRows>(
    rows: &R,
    worker: &str,
    Offer { holds, avoids, most }: &Offer<'_>,
    at: Timestamp,
) -> Result<Vec<QueueEntry>, R::Error> {
    let (worker, most) = (found(rows, worker)?, *most as usize);
    take_back(rows, &worker.worker, holds)?;
    // It got them, and has not heard so: the answer to an earlier claim was lost.
    let unheard = rows.entries_of(&worker.worker)?.into_iter().filter(|entry| !holds.contains(&entry.run_id));
    let mut claimed: Vec<QueueEntry> = unheard.take(most).collect();
    while !worker.is_draining && claimed.len() < most {
        let Some(entry) = rows.next_entry(&worker, avoids, at)? else { break };
        let turn = rows.queue_clock()? / 2 * 2 + 2;
        rows.set_turn(entry.line, turn)?;
        rows.set_queue_clock(turn)?;
        // Read before the run is taken: a word that comes while it is worked on wakes it once too often, never once too little.
        let words = rows.words_of_lineage(&entry.run_id)?;
        let taken_by = Some(worker.worker.clone());
        let state = QueueState::Claimed;
        let entry = QueueEntry { state, worker: taken_by, not_before: None, words, why: None, ..entry };
        rows.put_entry(&entry)?;
        claimed.push(entry);
    }
    Ok(claimed)
}

/// A worker that was taken for dead and is there again has what it still drives: nobody else is offered it, and it holds its seat as before.
fn take_back<R: FleetRows>(rows: &R, worker: &str, holds: &[RunId]) -> Result<(), R::Error> {
    for run in holds {
        let Some(entry) = rows.entry(run)? else { continue };
        // One that it has just let go of is not at work.
        if entry.state != QueueState::Claimed && rows.fleet_run(run)?.status == RunStatus::Running {
            let worker = Some(worker.to_owned());
            let entry =
                QueueEntry { state: QueueState::Claimed, worker, not_before: None, strikes: 0, why: None, ..entry };
            rows.put_entry(&entry)?;
        }
    }
    Ok(())
}

fn let_go<R: FleetRows>(rows: &R, entry: QueueEntry, release: Release) -> Result<(), R::Error> {
    let strikes = entry.strikes;
    let free = QueueEntry { worker: None, strikes: 0, ..entry };
    let run = free.run_id.clone();
    match release {
        Release::Done => return leave(rows, &free),
        Release::Ready { not_before, since, why, is_driven } => {
            let run_after = since.unwrap_or(free.options.run_after);
            let options = QueueOptions { run_after, ..free.options.clone() };
            // It did not stop the run, and so did not have it: whoever was taken for dead has it. That does not hang on the strikes alone: a worker
            // that looks for more runs in this moment takes back what it is about to let go of.
            let strikes = if is_driven { strikes.max(1) } else { strikes };
            let is_running = strikes > 0 && rows.fleet_run(&free.run_id)?.status == RunStatus::Running;
            let strikes = if is_running { strikes } else { 0 };
            rows.put_entry(&QueueEntry {
                state: QueueState::Ready,
                options,
                not_before: Some(not_before),
                why,
                strikes,
                ..free
            })?;
        }
        Release::Unfit { at, why } => {
            rows.put_entry(&QueueEntry { state: QueueState::Ready, not_before: Some(at), why: Some(why), ..free })?;
        }
        Release::Parked { why } => rows.put_entry(&QueueEntry { state: QueueState::Parked, why, ..free })?,
    }
    rows.unbind_unbegun(&run)
}

fn forget<R: FleetRows>(rows: &R, place: &str, at: Timestamp) -> Result<u64, R::Error> {
    let (of_place, _): (Vec<_>, Vec<_>) = rows.workers()?.into_iter().partition(|worker| worker.place == place);
    if let Some(alive) = of_place.iter().find(|worker| worker.lease_until > at) {
        return Err(
            conflict("workers", &alive.worker, "it counts as alive; stop it, or wait until its lease ends").into()
        );
    }
    for worker in &of_place {
        for entry in rows.entries_of(&worker.worker)? {
            rows.put_entry(&QueueEntry { state: QueueState::Ready, worker: None, ..entry })?;
        }
        rows.remove_worker(&worker.worker)?;
    }
    rows.forget_place(place)
}
