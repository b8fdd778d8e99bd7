//! Storing a run for others to work on.

use std::sync::Arc;
use std::time::Duration;

use ua_core::{Audience, RunStatus, Timestamp};
use ua_store::{
    ConcurrencyKey, FleetChange, FleetStore as _, QueueEntry, QueueOptions, RunRecord, Store as _, is_task,
};

use super::{check_name, queues};
use crate::Database;
use crate::error::HostError;
use crate::home;
use crate::host::Host;
use crate::job::{self, JobRequest};
use crate::people::People;

/// What is submitted, and how it is queued.
#[derive(Debug, Clone, Default)]
pub struct Submission {
    /// The job.
    pub job: JobRequest,
    /// In which queue; the default one.
    pub queue: Option<String>,
    /// The smaller, the sooner.
    pub priority: i32,
    /// Not before this instant.
    pub run_after: Option<Timestamp>,
    /// Nor before so long from now.
    pub delay: Option<Duration>,
    /// What it shares a limit with.
    pub concurrency: Option<ConcurrencyKey>,
    /// Whose turn it uses.
    pub fair_key: Option<String>,
    /// The schedule that submits it.
    pub schedule: Option<String>,
    /// Whether that is because its instant has come, and not because a person says so: then it is not queued if the schedule is paused by now.
    pub is_due: bool,
}

impl Submission {
    /// Refuses names that cannot be used, before anything is stored.
    ///
    /// # Errors
    ///
    /// A name cannot be used.
    pub fn check_names(&self) -> Result<(), HostError> {
        check_name("queue", self.queue_name())?;
        if let Some(seats) = &self.concurrency {
            check_name("concurrency key", &seats.key)?;
        }
        if let Some(key) = &self.fair_key {
            check_name("fair key", key)?;
        }
        Ok(())
    }

    fn queue_name(&self) -> &str {
        self.queue.as_deref().unwrap_or(QueueOptions::DEFAULT_QUEUE)
    }

    /// How it is queued `now`, by the clock that all workers share ([`FleetStore::fleet_now`](ua_store::FleetStore::fleet_now)): by that of the
    /// machine which submits, a run could be for later that is due.
    pub fn options(&self, now: Timestamp) -> QueueOptions {
        QueueOptions {
            queue: self.queue_name().to_owned(),
            priority: self.priority,
            run_after: self.run_after.unwrap_or(now).max(now.plus(self.delay.unwrap_or_default())),
            concurrency: self.concurrency.clone(),
            fair_key: self.fair_key.clone(),
        }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Submitted {
    /// The run: a new one, or the one that answers for the job's key.
    pub run: RunRecord,
    /// Where it stands in the queue; `None` when it has ended already.
    pub entry: Option<QueueEntry>,
    /// Whether it was in the queue before.
    pub was_queued: bool,
    /// When it was queued, by the clock that all workers share: what is due by then is taken now.
    pub at: Timestamp,
    /// What is to be said if no worker would take it: nobody serves its queue, or works in its root.
    pub warning: Option<String>,
}

/// Stores a run of a job and queues it. When this returns, it is on stable storage. Repeated with the same job key or name, it is the same run.
///
/// # Errors
/// The job cannot be stored; or, unless another run is asked for on purpose ([`JobRequest::new`], a name), a run of the same job is in the
/// queue, at work or unfinished; or the run of its key or name ended without success, or was made of another job.
pub async fn submit(host: &Host, people: &Arc<dyn People>, submission: &Submission) -> Result<Submitted, HostError> {
    submission.check_names()?;
    crate::words::learn_named(host, submission.job.launch.mcp_config.as_deref());
    let (seats, fair_key) = (submission.concurrency.as_ref(), submission.fair_key.as_deref());
    names_without_secrets(host, submission.queue_name(), seats, fair_key)?;
    let (store, run, beginning) = Box::pin(job::stored(host, people, &submission.job)).await?;
    let id = run.run_id.clone();
    let mut submitted = enqueue(host, &store, run, submission).await;
    if beginning.is_some() {
        // It is stored, and in no queue: the same command again finds it, and this one goes on with it.
        submitted = submitted.map_err(|error| error.continued_by(&id, format!("ua submit --run {id}"), true));
    }
    drop(beginning);
    crate::servers::end_abandoned(host.home()).await;
    home::close(store);
    submitted
}

/// Refuses names that contain a secret: they are stored, for schedules as well, and shown wherever the queue is.
///
/// # Errors
/// The refusal, with the name of the secret.
pub fn names_without_secrets(
    host: &Host,
    queue: &str,
    seats: Option<&ConcurrencyKey>,
    fair_key: Option<&str>,
) -> Result<(), HostError> {
    let names = [
        ("name of the queue", Some(queue)),
        ("concurrency key", seats.map(|seats| seats.key.as_str())),
        ("fair key", fair_key),
    ];
    names
        .into_iter()
        .try_for_each(|(what, name)| name.map_or(Ok(()), |name| crate::words::without_secrets(host, what, name)))
}

/// Queues a run that is stored.
///
/// # Errors
/// No worker drives such a run, it has ended without success, or the database cannot be used.
pub async fn enqueue(
    host: &Host,
    store: &Database,
    run: RunRecord,
    submission: &Submission,
) -> Result<Submitted, HostError> {
    if is_task(&run) || ua_store::is_gateway(&run) || run.entrypoint == Audience::LIBRARY {
        return Err(HostError::usage(format!("run {} is not driven by a worker", run.run_id))
            .hint("a sub-agent goes with its run, a session of the gateway with its client, a program's run with that program"));
    }
    let at = store.fleet_now(host.env().now()).await.map_err(|e| HostError::store("ask for the time", &e))?;
    let schedule = submission.schedule.as_deref();
    if run.status.is_terminal() {
        return ended(run, schedule, at);
    }
    let was_queued = store.queued(&run.run_id).await.map_err(|e| HostError::store("read the queue", &e))?.is_some();
    let (id, options) = (run.run_id.clone(), submission.options(at));
    let change = match schedule.filter(|_| submission.is_due) {
        Some(schedule) => FleetChange::EnqueueDue { schedule: schedule.to_owned(), run: id, options, at },
        None => FleetChange::Enqueue { run: id, options, at },
    };
    match store.fleet(change).await {
        Ok(done) => {
            let entry = done.entries.into_iter().next();
            let warning = match &entry {
                Some(entry) => queues::of_submission(host, store, &entry.options.queue, &run, schedule).await?,
                None => None,
            };
            Ok(Submitted { run, entry, was_queued, at, warning })
        }
        // It ended while we looked, or its schedule was paused.
        Err(refused @ ua_store::StoreError::Conflict { .. }) => {
            let run = store.run(&run.run_id).await.map_err(|e| HostError::store("read the run", &e))?;
            if run.status.is_terminal() {
                ended(run, schedule, at)
            } else {
                Err(HostError::store("queue the run", &refused))
            }
        }
        Err(error) => Err(HostError::store("queue the run", &error)),
    }
}

/// What comes of a run that has ended before it could be queued. Whoever submits it wants it done: one that did not succeed is not. An instant
/// of a schedule has had its run, whatever became of that.
fn ended(run: RunRecord, schedule: Option<&str>, at: Timestamp) -> Result<Submitted, HostError> {
    if run.status == RunStatus::Succeeded || schedule.is_some() {
        return Ok(Submitted { run, entry: None, was_queued: false, at, warning: None });
    }
    let id = &run.run_id;
    let under = run.job_key.as_deref().map_or_else(String::new, |key| format!(" under the job key {key:?}"));
    Err(HostError::usage(format!("run {id}{under} has already ended ({}); nothing was queued", run.status))
        .hint(format!("`ua fork {id}` continues from its last turn, `ua runs show {id}` shows it"))
        .field("kind", "run_ended")
        .field("run_id", id)
        .field("status", run.status))
}

/// Takes a run out of the queue that has ended by other hands than a worker's: nothing of it waits any more. A worker that has it gives it back
/// itself.
pub async fn withdraw_ended(store: &Database, run: &RunRecord) {
    if !run.status.is_terminal() {
        return;
    }
    let change = FleetChange::Withdraw { run: run.run_id.clone() };
    match store.fleet(change).await {
        Ok(_) | Err(ua_store::StoreError::NotFound { .. } | ua_store::StoreError::Conflict { .. }) => {}
        Err(error) => tracing::warn!(%error, "a run that ended was left in the queue; a worker takes it out"),
    }
}
