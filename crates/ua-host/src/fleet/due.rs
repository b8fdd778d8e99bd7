//! Submitting what schedules have due, beside the looks of a worker: however much that is, runs are taken and the lease is renewed meanwhile.
//!
//! An instant is submitted by one worker. Of those that are alive each schedule has its first, its second and so on; who is not the first tries
//! when those before it did not get on for a while. Two that are at it at once submit one run all the same, since an instant has a job key of
//! its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use ua_core::Timestamp;
use ua_dispatch::StopSignal;
use ua_store::{FleetChange, FleetStore as _, ScheduleRecord, StoreError, WorkerRecord};

use super::cron::Cron;
use super::health::Health;
use super::schedule::{ScheduledJob, due, gone_back, submit_due};
use super::told::{Did, Told, WorkerEvent};
use super::worker::{Nobody, POLL, RENEWAL};
use crate::Database;
use crate::alert::{Alerts, FailingSchedule};
use crate::error::{Kind, chain};
use crate::host::Host;
use crate::people::People;

/// How long each worker that comes before another one of a schedule may take for an instant.
const PATIENCE: Duration = Duration::from_secs(10);

/// When nothing was due, as it was last looked, by the time that passes.
#[derive(Debug, Clone, Default)]
pub(super) struct CaughtUp(Arc<Mutex<Option<Duration>>>);

impl CaughtUp {
    /// Whether nothing was due a moment ago.
    pub(super) fn is_so(&self, now: Duration) -> bool {
        let at = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        at.is_some_and(|at| now.saturating_sub(at) < RENEWAL * 2)
    }

    fn note(&self, at: Option<Duration>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// What a look left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Nothing is due that this worker could submit.
    Nothing,
    /// Something was submitted, and more may be due.
    More,
    /// Something is due that others submit.
    Others,
}

/// A schedule that is due, as it was seen first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    /// At this instant.
    next_at: Timestamp,
    /// Since then, by the time that passes.
    since: Duration,
    /// This worker submitted the instant before: those that come before it have had their time.
    is_taken: bool,
}

/// The schedules, as a worker looks after them.
pub(super) struct Timetable {
    host: Host,
    store: Arc<Database>,
    worker: String,
    stop: StopSignal,
    told: Told,
    health: Health,
    seen: BTreeMap<String, Seen>,
    /// Since when each is stored for later than the clock says, by the time that passes.
    ahead: BTreeMap<String, Duration>,
    /// When each failed that could not be submitted, by the time that passes, and what was said of it.
    failed: BTreeMap<String, (Duration, String)>,
}

impl Timetable {
    pub(super) fn new(
        host: &Host,
        store: &Arc<Database>,
        worker: &str,
        stop: &StopSignal,
        told: &Told,
        health: &Health,
    ) -> Self {
        Self {
            host: host.clone(),
            store: store.clone(),
            worker: worker.to_owned(),
            stop: stop.clone(),
            told: told.clone(),
            health: health.clone(),
            seen: BTreeMap::new(),
            ahead: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Submits what is due until it is told to stop, or its worker leaves.
    pub(super) async fn keep(mut self, caught_up: CaughtUp, mut leaves: watch::Receiver<()>) {
        let env = self.host.env().clone();
        loop {
            let looked_at = env.clock.uptime();
            let rest = Box::pin(self.look(&leaves)).await;
            self.health.state().failing_schedules = self.failed.values().map(|(_, said)| said.clone()).collect();
            let pause = match rest {
                Ok(Rest::Nothing) => {
                    caught_up.note(Some(looked_at));
                    RENEWAL
                }
                Ok(Rest::More) => {
                    caught_up.note(None);
                    Duration::ZERO
                }
                Ok(Rest::Others) => {
                    caught_up.note(None);
                    POLL
                }
                Err(error) => {
                    // Its worker says that the database does not answer.
                    tracing::debug!(error = chain(&error), "the schedules could not be looked at");
                    POLL
                }
            };
            tokio::select! {
                () = env.clock.sleep(pause) => {}
                _ = leaves.changed() => return,
                () = self.stop.stopping() => return,
            }
        }
    }

    /// Submits one instant of each schedule that is due, where it is this worker's turn.
    async fn look(&mut self, leaves: &watch::Receiver<()>) -> Result<Rest, StoreError> {
        let state = self.store.fleet_state(0).await?;
        self.seen.retain(|name, _| state.schedules.iter().any(|schedule| schedule.name == *name));
        self.ahead.retain(|name, _| state.schedules.iter().any(|schedule| schedule.name == *name));
        self.failed.retain(|name, _| state.schedules.iter().any(|schedule| schedule.name == *name));
        // One that is told to take nothing more leaves what is due to others.
        if state.workers.iter().any(|own| own.worker == self.worker && own.is_draining) {
            return Ok(Rest::Nothing);
        }
        let mut rest = Rest::Nothing;
        for schedule in &state.schedules {
            // Whoever waits for this worker to end does not wait for more than one instant.
            if self.stop.is_stopping() || leaves.has_changed().is_err() {
                return Ok(Rest::More);
            }
            let now = self.store.fleet_now(self.host.env().now()).await?;
            let Ok(cron) = Cron::parse(&schedule.cron, &schedule.time_zone) else { continue };
            if let Some(right) = gone_back(&cron, schedule, now) {
                self.go_back(schedule, right).await;
                continue;
            }
            self.ahead.remove(&schedule.name);
            let Some((instant, next)) = due(&cron, schedule, now) else {
                self.seen.remove(&schedule.name);
                self.failed.remove(&schedule.name);
                continue;
            };
            if self.failed.get(&schedule.name).is_some_and(|(at, _)| self.up().saturating_sub(*at) < RENEWAL) {
                continue;
            }
            if !self.is_its_turn(schedule, &state.workers, now) {
                rest = if rest == Rest::Nothing { Rest::Others } else { rest };
                continue;
            }
            if self.submit(schedule, instant, next, now).await {
                rest = Rest::More;
            }
        }
        Ok(rest)
    }

    fn up(&self) -> Duration {
        self.host.env().clock.uptime()
    }

    /// Whether this worker is to submit what is due.
    fn is_its_turn(&mut self, schedule: &ScheduleRecord, workers: &[WorkerRecord], now: Timestamp) -> bool {
        let up = self.up();
        let first = Seen { next_at: schedule.next_at, since: up, is_taken: false };
        let seen = self.seen.entry(schedule.name.clone()).or_insert(first);
        if seen.next_at != schedule.next_at {
            *seen = first;
        }
        let patience = PATIENCE * turn_of(&self.worker, &schedule.name, workers, now);
        seen.is_taken || up.saturating_sub(seen.since) >= patience
    }

    /// Goes back to the instant that is next by the clock, once the clock has been behind what is stored for a while: one that is wrong for a moment
    /// changes nothing. An instant that was submitted by the other clock has its run under its key, so it is not run again when its time comes.
    async fn go_back(&mut self, schedule: &ScheduleRecord, right: Timestamp) {
        let up = self.up();
        let name = &schedule.name;
        let since = *self.ahead.entry(name.clone()).or_insert(up);
        if up.saturating_sub(since) < PATIENCE {
            return;
        }
        self.ahead.remove(name);
        let from = schedule.next_at;
        match self.store.fleet(FleetChange::Advance { name: name.clone(), from, to: right }).await {
            Ok(_) => {
                let sentence = format!(
                    "schedule {name}: the clock was set back; its next run was stored for {from} and is due at {right} again"
                );
                (self.told)(&WorkerEvent::of_worker(Did::Noted, &sentence));
            }
            // Another worker did it, or the schedule is gone.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
            Err(error) => self.fail(name, format!("schedule {name}: {}", chain(&error))),
        }
    }

    /// Submits an instant, if it is wanted, and passes it; whether that is done.
    async fn submit(
        &mut self,
        schedule: &ScheduleRecord,
        instant: Option<Timestamp>,
        next: Timestamp,
        now: Timestamp,
    ) -> bool {
        let name = &schedule.name;
        if let Some(instant) = instant {
            let people: Arc<dyn People> = Arc::new(Nobody::with(&self.stop));
            match submit_due(&self.host, &people, schedule, instant).await {
                Ok(submitted) => {
                    let run = &submitted.run;
                    let sentence = format!("schedule {name}: run {} for {instant}", run.run_id);
                    (self.told)(&WorkerEvent::of_run(Did::Submitted, &run.run_id, Some(run.status), &sentence));
                }
                Err(error) => {
                    let sentence = format!("schedule {name} could not submit its job: {error}");
                    // A database or a disk that is away for a moment is no news; what is said of it when it stays away is.
                    let stays = error.kind() != Kind::Storage || self.failed.contains_key(name);
                    self.fail(name, sentence.clone());
                    if stays {
                        self.alert(people.as_ref(), schedule, &sentence, now).await;
                    }
                    return false;
                }
            }
        }
        let advance = FleetChange::Advance { name: name.clone(), from: schedule.next_at, to: next };
        match self.store.fleet(advance).await {
            // Another worker was faster, with the same run; or the schedule is gone.
            Ok(_) | Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {
                self.failed.remove(name);
                self.seen.insert(name.clone(), Seen { next_at: next, since: self.up(), is_taken: true });
                true
            }
            Err(error) => {
                self.fail(name, format!("schedule {name}: {}", chain(&error)));
                false
            }
        }
    }

    /// Has whoever wants alerts told that a schedule fails. What is wrong with the alerts themselves is said as of a run.
    async fn alert(&self, people: &dyn People, schedule: &ScheduleRecord, why: &str, at: Timestamp) {
        let job: Option<ScheduledJob> = serde_json::from_value(schedule.job.clone()).ok();
        let failing = FailingSchedule { schedule, file: job.map(|job| job.file), why, at };
        match Alerts::from_settings(self.host.settings(), self.host.home()) {
            Ok(Some(alerts)) => alerts.tell_of_schedule(people, &failing).await,
            Ok(None) => {}
            Err(error) => {
                (self.told)(&WorkerEvent::of_worker(Did::Noted, &format!("no alert could be sent: {error}")));
            }
        }
    }

    /// Notes that a schedule failed, and says so where it is news.
    fn fail(&mut self, name: &str, sentence: String) {
        if self.failed.get(name).is_none_or(|(_, said)| *said != sentence) {
            (self.told)(&WorkerEvent::of_worker(Did::Noted, &sentence));
        }
        self.failed.insert(name.to_owned(), (self.up(), sentence));
    }
}

/// How many workers come before one for a schedule. Each schedule has another order, so that all of them share the work.
fn turn_of(worker: &str, schedule: &str, workers: &[WorkerRecord], now: Timestamp) -> u32 {
    let place = |worker: &str| {
        let bytes = schedule.bytes().chain([0]).chain(worker.bytes());
        let mixed =
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        (mixed, worker.to_owned())
    };
    let own = place(worker);
    let before = workers.iter().filter(|other| {
        other.worker != worker && other.lease_until > now && !other.is_draining && place(&other.worker) < own
    });
    u32::try_from(before.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, is_alive: bool, is_draining: bool) -> WorkerRecord {
        let at = |second: i64| Timestamp::from_millis(second * 1_000);
        WorkerRecord {
            worker: name.to_owned(),
            place: String::new(),
            place_shown: "/runs".to_owned(),
            owner: ua_runner::owner_stamp(ua_core::Trace::new(&ua_core::system::env())),
            version: "1.0.0".to_owned(),
            queues: Vec::new(),
            slots: 1,
            started_at: at(0),
            lease_until: at(if is_alive { 100 } else { 10 }),
            is_draining,
        }
    }

    /// Over many schedules and workers: one worker is the first of each, none waits for one that is dead or takes nothing, and the work is shared.
    #[test]
    fn each_schedule_has_one_first_worker() {
        let now = Timestamp::from_millis(50_000);
        let mut workers: Vec<WorkerRecord> = (0..5).map(|number| worker(&format!("w{number}"), true, false)).collect();
        workers.extend([worker("dead", false, false), worker("drains", true, true)]);
        let mut firsts = std::collections::BTreeSet::new();
        for number in 0..200 {
            let schedule = format!("s{number}");
            let mut turns: Vec<(u32, &str)> = workers[..5]
                .iter()
                .map(|one| (turn_of(&one.worker, &schedule, &workers, now), one.worker.as_str()))
                .collect();
            turns.sort_unstable();
            let order: Vec<u32> = turns.iter().map(|(turn, _)| *turn).collect();
            assert_eq!(order, [0, 1, 2, 3, 4], "{schedule}");
            firsts.insert(turns[0].1.to_owned());
        }
        assert_eq!(firsts.len(), 5, "{firsts:?}");
    }
}
