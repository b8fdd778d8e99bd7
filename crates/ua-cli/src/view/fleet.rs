//! What `ua submit`, `ua queue` and `ua workers` write.

use schemars::JsonSchema;
use serde::Serialize;

/// A run that was stored for workers (`ua submit`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunSubmitted {
    /// The run.
    pub(crate) run_id: String,
    /// Its state.
    pub(crate) status: String,
    /// The queue that it is in; none when it has already ended.
    pub(crate) queue: Option<String>,
    /// Its state there: `ready`, `claimed` or `parked`.
    pub(crate) state: Option<String>,
    /// The name of the intended execution.
    pub(crate) job_key: Option<String>,
    /// What is to be said of the queue, if nobody serves it.
    pub(crate) warning: Option<String>,
}

/// A queue (`ua queue depth`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueDepthRow {
    /// Its name.
    pub(crate) queue: String,
    /// Runs that wait for a worker.
    pub(crate) ready: u64,
    /// Runs that are not due yet.
    pub(crate) later: u64,
    /// Runs that workers have.
    pub(crate) claimed: u64,
    /// Runs that wait for a person.
    pub(crate) parked: u64,
    /// Since when the oldest of the ready ones could have been taken.
    pub(crate) oldest_at: Option<String>,
}

/// A run in the queue (`ua queue list`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueRow {
    /// The run.
    pub(crate) run_id: String,
    /// Its queue.
    pub(crate) queue: String,
    /// `ready`, `later` (not due yet), `claimed` or `parked`.
    pub(crate) state: String,
    /// Priority; smaller numbers are taken first.
    pub(crate) priority: i32,
    /// Not before this instant.
    pub(crate) run_after: String,
    /// When it was queued.
    pub(crate) queued_at: String,
    /// What it shares a limit with.
    pub(crate) concurrency_key: Option<String>,
    /// That limit.
    pub(crate) concurrency_limit: Option<u32>,
    /// Whose turn it uses.
    pub(crate) fair_key: Option<String>,
    /// Who has it.
    pub(crate) worker: Option<String>,
    /// How many workers died with it in a row.
    pub(crate) strikes: u32,
    /// Why it waits.
    pub(crate) why: Option<String>,
}

/// Where a run stands in the queue (`ua runs show`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct QueueStanding {
    /// Its place among those of its queue that the next free worker may take, from 1; null of one that none may take now.
    pub(crate) place: Option<u64>,
    /// How many those are.
    pub(crate) of: u64,
    /// What it waits for, in words; null where a worker has it, or its entry says why.
    pub(crate) waits_for: Option<String>,
    /// Its entry, as `ua queue list` has it.
    #[serde(flatten)]
    pub(crate) entry: QueueRow,
}

/// A worker (`ua workers list`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerRow {
    /// Its name.
    pub(crate) worker: String,
    /// `alive`, `draining`, `paused` (its process, on this machine, was stopped and may be continued), `silent` (its lease has ended) or
    /// `ended`: its process, on this machine, is gone.
    pub(crate) status: String,
    /// The id of the folder and machine that it works in; empty beside a file.
    pub(crate) place: String,
    /// That folder and machine.
    pub(crate) place_shown: String,
    /// Its machine.
    pub(crate) host: String,
    /// Its process.
    pub(crate) pid: u32,
    /// Its program's version.
    pub(crate) version: String,
    /// The queues that it takes from; all when it names none.
    pub(crate) queues: Vec<String>,
    /// How many runs it works on at once.
    pub(crate) slots: u32,
    /// How many it has.
    pub(crate) claimed: u64,
    /// Since when it works.
    pub(crate) started_at: String,
    /// Until when it counts as alive.
    pub(crate) lease_until: String,
}

/// A job that is submitted on a schedule (`ua schedule list`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleRow {
    /// Its name.
    pub(crate) name: String,
    /// When: minute, hour, day of the month, month, day of the week.
    pub(crate) cron: String,
    /// In which time zone.
    pub(crate) time_zone: String,
    /// The job file.
    pub(crate) file: String,
    /// The queue of its runs.
    pub(crate) queue: String,
    /// What is done about times that were missed: `none`, `last` or `all`.
    pub(crate) catch_up: String,
    /// Whether it is paused.
    pub(crate) is_paused: bool,
    /// Who added, paused or resumed it last; null for one that an older version made.
    pub(crate) changed_by: Option<String>,
    /// When.
    pub(crate) changed_at: Option<String>,
    /// The instant that is submitted next.
    pub(crate) next_at: String,
    /// In a list: since when it is due and was not submitted, for longer than a worker takes.
    pub(crate) overdue_since: Option<String>,
    /// In a list: the run that was submitted last, if it is among the newest 1000 runs.
    pub(crate) last_run: Option<ScheduledRun>,
    /// In a list, of one that is overdue: why it could not be submitted from here now.
    pub(crate) error_here: Option<String>,
}

/// The last run of a schedule.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduledRun {
    /// Its id.
    pub(crate) run_id: String,
    /// The instant that it was submitted for.
    pub(crate) scheduled_at: String,
    /// Its state as shown to a person.
    pub(crate) shown_status: String,
    /// Why it stopped, waits or failed, in a sentence.
    pub(crate) result: Option<String>,
}

/// A schedule that is gone (`ua schedule remove`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ScheduleRemoved {
    /// Its name; its runs stay.
    pub(crate) name: String,
}

/// A worker that takes no more runs (`ua workers drain`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WorkerDrained {
    /// Its name.
    pub(crate) worker: String,
}

/// A machine that is gone for good (`ua workers forget`).
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MachineForgotten {
    /// How many lineages of runs can be taken elsewhere now.
    pub(crate) lineages: u64,
}
