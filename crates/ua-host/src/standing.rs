//! Where runs stand, as people are told it: what is stored of them, and what this machine knows beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ua_core::{RunId, RunStatus, TASK_MODE, Timestamp};
use ua_resume::{AroundRun, OtherPlace, Standing};
use ua_runner::RunLock;
use ua_store::{EndedBy, FleetStore as _, GATEWAY_MODE, RunHead, RunRecord, Store as _};

use crate::database::{Database, Whereabouts};
use crate::error::HostError;
use crate::home::Home;
use crate::restart::is_held;
use crate::tree;

/// How many entries of the queue are looked at.
const QUEUE_LOOKED_AT: u32 = 10_000;

/// Where each of these runs stands, in their order.
///
/// # Errors
/// The database cannot be read.
pub async fn standings(home: &Home, store: &Database, runs: &[RunHead]) -> Result<Vec<Standing>, HostError> {
    let is_any = |status: RunStatus| runs.iter().any(|run| run.status == status);
    let asking = if is_any(RunStatus::WaitingForHuman) { tree::asking_runs(store).await? } else { BTreeSet::new() };
    let mut driven = BTreeSet::new();
    for run in runs.iter().filter(|run| matches!(run.status, RunStatus::Running | RunStatus::Queued)) {
        if is_driven(home, store, run).await? {
            driven.insert(&run.run_id);
        }
    }
    let ended_by = ended_at_once(home, store, runs, &driven).await?;
    let driven = &driven;
    let unseen = |status: RunStatus| {
        let of_status = runs.iter().filter(move |run| run.status == status).map(|run| &run.run_id);
        of_status.filter(move |run| !driven.contains(run))
    };
    let elsewhere = elsewhere(store, &unseen(RunStatus::Running).collect::<Vec<_>>()).await?;
    // Only of these a word that ends them says more than what is stored of them.
    let is_at_work = |run: &RunHead| driven.contains(&run.run_id) || elsewhere.contains_key(&run.run_id);
    let is_open_session = |run: &RunHead| run.run_mode == GATEWAY_MODE && !run.status.is_terminal();
    let mut to_end = BTreeSet::new();
    for run in runs.iter().filter(|run| run.status == RunStatus::Running && is_at_work(run) || is_open_session(run)) {
        let stored = store.run(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
        if stored.end_mark().is_some() {
            to_end.insert(&run.run_id);
        }
    }
    let in_no_queue = in_no_queue(store, unseen(RunStatus::Queued).collect()).await?;
    let is_resumable = |run: &&RunHead| !run.status.is_terminal() && run.run_mode != GATEWAY_MODE && !is_at_work(run);
    let resumable: Vec<RunId> = runs.iter().filter(is_resumable).map(|run| run.run_id.clone()).collect();
    let outdated = outdated(store, &resumable).await?;
    let standing = |run: &RunHead| {
        let around = AroundRun {
            is_driven: driven.contains(&run.run_id),
            is_to_end: to_end.contains(&run.run_id),
            ended_by: ended_by.get(&run.run_id).copied(),
            elsewhere: elsewhere.get(&run.run_id).cloned(),
            is_answered: !asking.contains(&run.run_id),
            is_in_no_queue: in_no_queue.contains(&run.run_id),
            is_session: run.run_mode == GATEWAY_MODE,
            is_outdated: outdated.contains(&run.run_id),
        };
        Standing::of(run.status, run.stop_reason, around)
    };
    Ok(runs.iter().map(standing).collect())
}

/// Where one run stands.
///
/// # Errors
/// The database cannot be read.
pub async fn standing(home: &Home, store: &Database, run: &RunRecord) -> Result<Standing, HostError> {
    let found = standings(home, store, &[RunHead::from(run.clone())]).await?.pop();
    Ok(found.unwrap_or(Standing::Stored(run.status, run.stop_reason)))
}

/// Whether a living process of this machine drives a run. A sub-agent's is driven by whoever drives the run at its top, who alone holds a lock.
async fn is_driven(home: &Home, store: &Database, run: &RunHead) -> Result<bool, HostError> {
    let locks = home.locks();
    if run.run_mode != TASK_MODE {
        return Ok(RunLock::is_held(&locks, &run.run_id));
    }
    Ok(RunLock::is_held(&locks, &tree::top(store, &run.run_id).await?))
}

/// By what the processes ended at once that drove these runs last, as far as nobody drives them again.
async fn ended_at_once(
    home: &Home,
    store: &Database,
    runs: &[RunHead],
    driven: &BTreeSet<&RunId>,
) -> Result<BTreeMap<RunId, EndedBy>, HostError> {
    let mut found = BTreeMap::new();
    for run in runs.iter().filter(|run| run.status == RunStatus::Running && !driven.contains(&run.run_id)) {
        let ends = RunLock::ended_at_once(&home.locks(), &run.run_id);
        if ends.is_empty() {
            continue;
        }
        let stored = store.run(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
        let last = stored.processes.last().and_then(|last| last.process.as_ref());
        if let Some(end) = ends.into_iter().rev().find(|end| Some(&end.process) == last) {
            found.insert(run.run_id.clone(), end.by);
        }
    }
    Ok(found)
}

/// Where these runs are driven, as far as that is another place: what locks say here says nothing about them.
async fn elsewhere(store: &Database, runs: &[&RunId]) -> Result<BTreeMap<RunId, OtherPlace>, HostError> {
    let mut there = BTreeMap::new();
    if runs.is_empty() {
        return Ok(there);
    }
    let found = store.whereabouts(runs).await.map_err(|e| HostError::store("look where the runs are driven", &e))?;
    for (run, place) in runs.iter().zip(found) {
        let Whereabouts::Elsewhere(place) = place else { continue };
        let failed = |e| HostError::store("read the run", &e);
        let now = store.fleet_now(ua_core::system::env().now()).await.map_err(failed)?;
        let is_silent = !shows_life(&store.run(run).await.map_err(failed)?, now);
        let shown = crate::text::place(&place.shown);
        there.insert((*run).clone(), OtherPlace { shown, is_silent, is_to_end: false });
    }
    Ok(there)
}

/// How long a process that this machine cannot look at has to be silent to count as gone. It says every second that it is alive.
pub const SILENT_FOR: Duration = Duration::from_secs(30);

/// Whether a process drives a run, as far as it can be told: here it is seen, and of another machine there are its signs of life.
pub fn shows_life(run: &RunRecord, at: Timestamp) -> bool {
    let Some(owner) = run.owner.as_ref().filter(|_| ua_runner::may_be_driven(run)) else { return false };
    // A clock that is ahead by more says nothing.
    let is_near = |seen: Timestamp| at.since(seen) < SILENT_FOR && seen.since(at) < SILENT_FOR;
    ua_runner::process_is_alive(owner) || run.seen_at.is_some_and(is_near)
}

/// The runs among these of which `effects.log` knows more than the database. Where it knows nothing more of any run, none is looked at.
async fn outdated(store: &Database, runs: &[RunId]) -> Result<BTreeSet<RunId>, HostError> {
    let mut found = BTreeSet::new();
    let comparing = |e| HostError::store("compare the database with effects.log", &e);
    if runs.is_empty() || !store.is_older_copy().await.map_err(comparing)? {
        return Ok(found);
    }
    for run in runs {
        let stored = store.run(run).await.map_err(|e| HostError::store("read the run", &e))?;
        if is_held(store, &stored).await? {
            found.insert(run.clone());
        }
    }
    Ok(found)
}

/// The runs among these that are in no queue.
async fn in_no_queue(store: &Database, runs: Vec<&RunId>) -> Result<BTreeSet<RunId>, HostError> {
    if runs.is_empty() {
        return Ok(BTreeSet::new());
    }
    let queue = store.fleet_state(QUEUE_LOOKED_AT).await.map_err(|e| HostError::store("read the queue", &e))?.queue;
    // Beyond what was looked at, one may well be there.
    if queue.len() >= QUEUE_LOOKED_AT as usize {
        return Ok(BTreeSet::new());
    }
    Ok(runs.into_iter().filter(|run| queue.iter().all(|entry| entry.run_id != **run)).cloned().collect())
}
