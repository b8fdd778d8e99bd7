//! What is said of a run that nobody would take: names of queues that nobody serves (a queue is made by naming it, so a misspelt one is found by
//! nothing else), and roots in which no worker works.

use std::collections::BTreeSet;
use std::path::Path;

use ua_core::{PrintedCommand, RunId, ShowPath as _, Timestamp, shell_word};
use ua_store::{FleetState, FleetStore as _, QueueOptions, RunRecord, Store as _, WorkerRecord};

use super::schedule::ScheduledJob;
use crate::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::text::{foreign, nearest};

/// So many entries of the queue are looked at.
const LOOKED_AT: u32 = 1_000;

/// What is to be said of where a run was put: that no living worker takes from its queue and nothing else was put there, or that those which do
/// work in other roots. The schedule that submitted it names no queue for others.
///
/// # Errors
/// The database cannot be read.
pub(super) async fn of_submission(
    host: &Host,
    store: &Database,
    queue: &str,
    run: &RunRecord,
    schedule: Option<&str>,
) -> Result<Option<String>, HostError> {
    let (state, now) = look(host, store).await?;
    let state = without(state, schedule);
    let said = of_a_submission(&state, now, queue, &run.run_id);
    // A run of another root has been told so where it was put.
    let root = host.home().inside_root(Path::new(&run.workspace_dir)).map(|_| host.home().root());
    Ok(said.or_else(|| of_a_root(root?, &state, now, queue, &run.run_id)))
}

/// What is to be said of the queue that a person moved a run to.
///
/// # Errors
/// The database cannot be read.
pub async fn of_move(host: &Host, queue: &str, run: &RunId) -> Result<Option<String>, HostError> {
    let store = host.home().open_read_only()?;
    let said = match store.run(run).await {
        Ok(run) => of_submission(host, &store, queue, &run, None).await,
        Err(error) => Err(HostError::store("read the run", &error)),
    };
    crate::home::close(store);
    said
}

/// What is to be said of the queues that a worker is to take from: which of them nobody else ever named, and another name is close to.
///
/// # Errors
/// The database cannot be read.
pub async fn of_worker(host: &Host, queues: &[String]) -> Result<Vec<String>, HostError> {
    if queues.is_empty() || host.home().is_unused() {
        return Ok(Vec::new());
    }
    let store = host.home().open_read_only()?;
    let looked = look(host, &store).await;
    crate::home::close(store);
    let (state, now) = looked?;
    Ok(queues.iter().filter_map(|queue| of_a_worker(&state, now, queue)).collect())
}

/// What is to be said of the queue of a schedule: that nobody else ever named it, and another name is close to it.
///
/// # Errors
/// The database cannot be read.
pub async fn of_schedule(host: &Host, store: &Database, name: &str, queue: &str) -> Result<Option<String>, HostError> {
    let (state, now) = look(host, store).await?;
    Ok(of_a_schedule(&without(state, Some(name)), now, name, queue))
}

/// The same without a schedule, which says nothing about what others call their queues.
fn without(mut state: FleetState, schedule: Option<&str>) -> FleetState {
    state.schedules.retain(|other| schedule != Some(other.name.as_str()));
    state
}

async fn look(host: &Host, store: &Database) -> Result<(FleetState, Timestamp), HostError> {
    let failed = |error: ua_store::StoreError| HostError::store("read the queues", &error);
    let now = store.fleet_now(host.env().now()).await.map_err(failed)?;
    Ok((store.fleet_state(LOOKED_AT).await.map_err(failed)?, now))
}

/// The queues that living workers name, that schedules submit to, and that hold other runs.
fn named(state: &FleetState, now: Timestamp, but: Option<&RunId>) -> BTreeSet<String> {
    let of_workers = state.workers.iter().filter(|worker| worker.lease_until > now).flat_map(|worker| &worker.queues);
    let of_entries = state.queue.iter().filter(|entry| Some(&entry.run_id) != but).map(|entry| &entry.options.queue);
    let jobs = state.schedules.iter().filter_map(|schedule| serde_json::from_value(schedule.job.clone()).ok());
    let of_schedules = jobs.map(|job: ScheduledJob| job.queue);
    of_workers.chain(of_entries).cloned().chain(of_schedules).collect()
}

fn of_a_submission(state: &FleetState, now: Timestamp, queue: &str, run: &RunId) -> Option<String> {
    let mut known = named(state, now, Some(run));
    let takes_all = state.workers.iter().any(|worker| worker.lease_until > now && worker.queues.is_empty());
    if queue == QueueOptions::DEFAULT_QUEUE || takes_all || known.contains(queue) {
        return None;
    }
    known.insert(QueueOptions::DEFAULT_QUEUE.to_owned());
    let meant = match nearest(queue, known.iter().map(String::as_str)) {
        Some(meant) => {
            let there = PrintedCommand::of("ua queue move").word(run.as_str()).option("--queue", meant).in_code();
            format!("did you mean `{meant}`? {there} puts it there")
        }
        None => format!("{} does", PrintedCommand::of("ua worker").option("--queue", queue).in_code()),
    };
    Some(format!("warning: no worker takes from the queue `{queue}`, and nothing else is in it; {meant}"))
}

/// That workers take from the queue, and none of them works in `root`, where the run has its workspace: each drives what is below its own
/// (`fits.rs`), and the same path of another machine will do.
fn of_a_root(root: &Path, state: &FleetState, now: Timestamp, queue: &str, run: &RunId) -> Option<String> {
    let takes = |worker: &&WorkerRecord| {
        worker.lease_until > now && (worker.queues.is_empty() || worker.queues.iter().any(|own| own == queue))
    };
    let roots: BTreeSet<&str> = state.workers.iter().filter(takes).map(root_of).collect();
    // One whose root is not known may be here; one above this root has it below its own.
    if roots.is_empty() || roots.iter().any(|theirs| theirs.is_empty() || root.starts_with(theirs)) {
        return None;
    }
    let elsewhere: Vec<String> = roots.into_iter().map(foreign).collect();
    let here = root.shown();
    Some(crate::text::place(&format!(
        "warning: no running worker takes run {run}: it is in the root {here}, and a worker takes what is in its own root ({}); start one with \
         {}, or cancel this run and submit the job with `--root` of a worker",
        elsewhere.join(", "),
        PrintedCommand::of("ua worker").option("--root", root).in_code()
    )))
}

/// Where a worker works: a path, behind which its host stands where the database is on a server.
fn root_of(worker: &WorkerRecord) -> &str {
    let shown = worker.place_shown.as_str();
    // A file is used from where it lies: its place has no id, and its path may have any words.
    if worker.place.is_empty() { shown } else { shown.rsplit_once(" on ").map_or(shown, |(root, _)| root) }
}

fn of_a_schedule(state: &FleetState, now: Timestamp, name: &str, queue: &str) -> Option<String> {
    let meant = nearest_of_others(state, now, queue)?;
    Some(format!(
        "warning: nothing else names the queue `{queue}` of the schedule {name}; did you mean `{meant}`? `ua schedule add` with `--queue {}` \
         replaces it",
        shell_word(&meant)
    ))
}

fn of_a_worker(state: &FleetState, now: Timestamp, queue: &str) -> Option<String> {
    let meant = nearest_of_others(state, now, queue)?;
    Some(format!("warning: nothing was put into the queue `{queue}` yet; did you mean `{meant}`?"))
}

/// The name of a queue that is close to this one, which nobody else ever named.
fn nearest_of_others(state: &FleetState, now: Timestamp, queue: &str) -> Option<String> {
    let mut known = named(state, now, None);
    known.insert(QueueOptions::DEFAULT_QUEUE.to_owned());
    if known.contains(queue) {
        return None;
    }
    nearest(queue, known.iter().map(String::as_str)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use ua_core::{Env, Trace};
    use ua_store::{OwnerStamp, QueueEntry, QueueState, WorkerRecord};

    use super::*;

    fn entry(run: &str, queue: &str, now: Timestamp) -> QueueEntry {
        QueueEntry {
            run_id: RunId::parse(run).unwrap(),
            options: QueueOptions {
                queue: queue.to_owned(),
                priority: 0,
                run_after: now,
                concurrency: None,
                fair_key: None,
            },
            queued_at: now,
            not_before: None,
            line: 0,
            seq: 0,
            state: QueueState::Ready,
            worker: None,
            words: 0,
            strikes: 0,
            why: None,
        }
    }

    fn worker(queues: &[&str], lease_until: Timestamp) -> WorkerRecord {
        WorkerRecord {
            worker: "w".to_owned(),
            place: String::new(),
            place_shown: String::new(),
            owner: OwnerStamp {
                pid: 1,
                start_ticks: 1,
                boot_id: "b".to_owned(),
                host: "h".to_owned(),
                trace: Trace::new(&Env::simulated(1)),
                ended_before: Vec::new(),
            },
            version: "1".to_owned(),
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            slots: 1,
            started_at: lease_until,
            lease_until,
            is_draining: false,
        }
    }

    #[test]
    fn a_queue_that_nobody_serves_and_nobody_named_before_is_told_with_the_nearest_name() {
        let now = Env::simulated(1).now();
        let later = now.plus(std::time::Duration::from_mins(1));
        let run = RunId::parse("mine").unwrap();
        let mut state = FleetState { queue: vec![entry("mine", "emial", now)], ..FleetState::default() };
        let said = |state: &FleetState, queue: &str| of_a_submission(state, now, queue, &run);
        assert_eq!(said(&state, "default"), None);
        assert!(
            said(&state, "emial").unwrap().ends_with("`ua worker --queue emial` does"),
            "its own entry says nothing"
        );
        assert!(said(&state, "defualt").unwrap().contains("did you mean `default`?"));
        state.queue.push(entry("other", "email", now));
        assert!(said(&state, "emial").unwrap().contains("`ua queue move mine --queue email`"));
        assert_eq!(said(&state, "email"), None, "another run is there");
        // A worker that is gone serves nothing; a living one serves what it names, or everything.
        state.workers = vec![worker(&["emial"], now)];
        assert!(said(&state, "emial").is_some());
        state.workers = vec![worker(&["emial"], later)];
        assert_eq!(said(&state, "emial"), None);
        state.workers = vec![worker(&[], later)];
        assert_eq!(said(&state, "anything"), None);
    }

    /// A user who submits from a root of their own to the database of a service: no worker would ever take the run.
    #[test]
    fn a_run_of_a_root_in_which_no_worker_works_is_told() {
        let now = Env::simulated(1).now();
        let later = now.plus(std::time::Duration::from_mins(1));
        let run = RunId::parse("mine").unwrap();
        let at = |shown: &str, queues: &[&str], lease_until| WorkerRecord {
            place: "id".to_owned(),
            place_shown: shown.to_owned(),
            ..worker(queues, lease_until)
        };
        let of = |root: &str, workers: Vec<WorkerRecord>| {
            let state = FleetState { workers, ..FleetState::default() };
            of_a_root(Path::new(root), &state, now, "default", &run)
        };
        let theirs = || at("/var/lib/ua on one", &[], later);
        let said = of("/home/me/my runs", vec![theirs()]).unwrap();
        assert!(said.contains("run mine: it is in the root /home/me/my runs"), "{said}");
        assert!(said.contains("(/var/lib/ua)") && said.contains("`ua worker --root '/home/me/my runs'`"), "{said}");
        // The same path will do, on whichever machine, and a root above it.
        assert_eq!(of("/var/lib/ua", vec![theirs(), at("/srv on two", &[], later)]), None);
        assert_eq!(of("/var/lib/ua/below", vec![theirs()]), None);
        assert!(of("/var/lib/ua2", vec![theirs()]).is_some(), "no part of a name");
        // Who takes from another queue, or is gone, says nothing; where nobody works, one may start here.
        assert_eq!(
            of("/home/me", vec![at("/var/lib/ua on one", &["night"], later), at("/srv on two", &[], now)]),
            None
        );
        assert!(of("/home/me", vec![at("/home/me on one", &["night"], later), theirs()]).is_some());
        // The root of a file has whatever words it has.
        let file = WorkerRecord { place: String::new(), ..at("/runs on disk", &[], later) };
        assert_eq!(of("/runs on disk", vec![file]), None);
    }

    #[test]
    fn a_schedule_is_told_of_a_queue_whose_name_is_close_to_another_and_not_by_its_own_word() {
        let now = Env::simulated(1).now();
        let mine = ScheduledJob {
            file: "job.json".into(),
            queue: "emial".to_owned(),
            priority: 0,
            concurrency: None,
            fair_key: None,
            configured: None,
            seal: None,
            changed: None,
        };
        let schedule = ua_store::ScheduleRecord {
            name: "mails".to_owned(),
            cron: "@daily".to_owned(),
            time_zone: "UTC".to_owned(),
            job: serde_json::to_value(mine).unwrap(),
            catch_up: ua_store::CatchUp::Last,
            is_paused: false,
            next_at: now,
        };
        let state = FleetState {
            queue: vec![entry("other", "email", now)],
            schedules: vec![schedule],
            ..FleetState::default()
        };
        let others = || without(state.clone(), Some("mails"));
        let said = of_a_schedule(&others(), now, "mails", "emial").unwrap();
        assert!(said.contains("`emial` of the schedule mails; did you mean `email`?"), "{said}");
        for queue in ["email", "default", "night"] {
            assert_eq!(of_a_schedule(&others(), now, "mails", queue), None, "{queue}");
        }
        // A run that it submits there is told so; one that is submitted there by hand is where a schedule submits to.
        let run = RunId::parse("mine").unwrap();
        assert!(of_a_submission(&others(), now, "emial", &run).unwrap().contains("did you mean `email`?"));
        assert_eq!(of_a_submission(&state, now, "emial", &run), None);
    }

    #[test]
    fn a_worker_is_told_of_a_queue_only_when_another_name_is_close() {
        let now = Env::simulated(1).now();
        let state = FleetState { queue: vec![entry("other", "email", now)], ..FleetState::default() };
        assert!(of_a_worker(&state, now, "emial").unwrap().contains("did you mean `email`?"));
        for queue in ["email", "default", "night"] {
            assert_eq!(of_a_worker(&state, now, queue), None, "{queue}");
        }
    }
}
