//! Who works on what: workers, the queue of runs that wait for one, and schedules that submit jobs.
//!
//! Nothing here decides whether a call may go out. A run is taken as ever, by its lock and its epoch; an entry of the queue that is lost, kept too
//! long or claimed twice costs time and no effect. So these rows are written apart from the batches of a run, one [`FleetChange`] a
//! transaction, and each of them may be repeated.
//!
//! Times come from the caller, who asks the store for them ([`FleetStore::fleet_now`]): of workers on many machines one clock counts, the server's.
//! Proved by: `ua_store::conformance::fleet`, and the end-to-end tests `fleet`.

mod apply;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_core::{CallStatus, RunId, Timestamp};

pub use apply::apply_fleet;

use crate::error::StoreError;
use crate::record::{CallRecord, OwnerStamp, RunRecord};
use crate::store::Store;

/// So many workers may die with a run in their hands before it waits for a person.
pub const MOST_STRIKES: u32 = 3;

/// For so long the row of a worker is kept that was told to take no more runs and says nothing: one that was only standing still is to find it so.
pub const DRAINED_KEPT: Duration = Duration::from_hours(24);

/// A process that takes runs from the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerRecord {
    /// Its name, which no other has.
    pub worker: String,
    /// The folder of workspaces and locks that it works in, by its id; empty where a database has one only.
    pub place: String,
    /// That folder and its machine, for people.
    pub place_shown: String,
    /// Which process it is.
    pub owner: OwnerStamp,
    /// Of which program.
    pub version: String,
    /// The queues that it takes from; all when it names none.
    pub queues: Vec<String>,
    /// How many runs it works on at once.
    pub slots: u32,
    /// Since when.
    pub started_at: Timestamp,
    /// Until when it counts as alive unless it says so again.
    pub lease_until: Timestamp,
    /// It takes nothing any more.
    pub is_draining: bool,
}

/// Where a run stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueState {
    /// It waits for a worker.
    Ready,
    /// A worker has it.
    Claimed,
    /// It waits for a person, and holds no slot and no seat meanwhile.
    Parked,
}

/// How many runs of a kind may be worked on at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConcurrencyKey {
    /// What they have in common.
    pub key: String,
    /// How many.
    pub limit: u32,
}

/// How a run is queued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueOptions {
    /// In which queue.
    pub queue: String,
    /// The smaller, the sooner.
    pub priority: i32,
    /// Not before; from then on it waits.
    pub run_after: Timestamp,
    /// What it shares a limit with.
    pub concurrency: Option<ConcurrencyKey>,
    /// Whose turn it uses: those of one key in one queue wait behind each other, not others behind them.
    pub fair_key: Option<String>,
}

impl QueueOptions {
    /// The queue of those that name none.
    pub const DEFAULT_QUEUE: &'static str = "default";

    /// In the default queue, at once.
    pub fn at(now: Timestamp) -> Self {
        Self { queue: Self::DEFAULT_QUEUE.to_owned(), priority: 0, run_after: now, concurrency: None, fair_key: None }
    }
}

/// A run in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueEntry {
    /// Which run.
    pub run_id: RunId,
    /// How it is queued.
    #[serde(flatten)]
    pub options: QueueOptions,
    /// When it was queued first.
    pub queued_at: Timestamp,
    /// Until when it is left alone since a worker gave it back. It is no younger for that.
    pub not_before: Option<Timestamp>,
    /// The line in which it waits ([`QueueLine`]).
    pub line: u64,
    /// Its place in its line.
    pub seq: u64,
    /// Where it stands.
    pub state: QueueState,
    /// Who has it.
    pub worker: Option<String>,
    /// The words of people about its lineage, as its worker found them: with the next one it is looked at again.
    pub words: u64,
    /// How many workers died with it in a row, as far as others could see.
    pub strikes: u32,
    /// Why it waits, in a sentence.
    pub why: Option<String>,
}

/// Runs that wait behind each other: those of one priority, queue and fair key. Lines of one priority take turns.
///
/// A turn is counted when a run is taken, not when one is queued: what of a line cannot be taken now (it is for later, waits for a person or a seat,
/// or is held by another machine) costs the others of its line nothing, and gains them nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueLine {
    /// Which; one that was made later has a higher number.
    pub line: u64,
    /// Of which priority.
    pub priority: i32,
    /// In which queue.
    pub queue: String,
    /// Of which fair key.
    pub fair_key: Option<String>,
    /// When it had its last turn, by the clock of the queue: of two lines the one with the smaller number is next.
    pub turn: u64,
}

/// What of a schedule was missed, because nobody was there to submit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// Nothing is done about it.
    None,
    /// The last of it is submitted.
    Last,
    /// All of it is.
    All,
}

/// A job that is submitted again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// Its name.
    pub name: String,
    /// When, as cron says it.
    pub cron: String,
    /// In which time zone.
    pub time_zone: String,
    /// What is submitted, as the front door has it.
    pub job: Value,
    /// What is done about instants that passed meanwhile.
    pub catch_up: CatchUp,
    /// It submits nothing until it is asked to again.
    pub is_paused: bool,
    /// The instant that is submitted next.
    pub next_at: Timestamp,
}

/// How a worker lets go of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// It has ended.
    Done,
    /// Another worker may have it, from then on.
    Ready {
        /// Not before.
        not_before: Timestamp,
        /// From when it waits anew, if it got further meanwhile; else it waits as long as before.
        since: Option<Timestamp>,
        /// Why it was not finished, if that is of interest.
        why: Option<String>,
        /// Another process was found at work on it: while its status says so too, it keeps its seat.
        is_driven: bool,
    },
    /// Something that it needs is not where this worker is. Others may have it at once; this one leaves it alone by itself
    /// ([`avoids`](FleetChange::Claim::avoids)).
    Unfit {
        /// Now.
        at: Timestamp,
        /// What it needs.
        why: String,
    },
    /// It waits for a word of a person.
    Parked {
        /// For what.
        why: Option<String>,
    },
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum FleetChange {
    /// A worker begins, or says again that it is alive. One that was told to take nothing more takes nothing, whatever it says of itself. What
    /// another process of its name had is there for others; refused with `Conflict` while a worker of that name is alive elsewhere.
    Register(WorkerRecord),
    /// A worker is alive until then. Fails with `NotFound` when it was taken for dead.
    Renew {
        /// Which.
        worker: String,
        /// Until when.
        lease_until: Timestamp,
    },
    /// A worker takes nothing any more, for as long as its process lives: its row outlasts its lease ([`DRAINED_KEPT`]), unless it is proved that it
    /// is dead.
    Drain {
        /// Which.
        worker: String,
    },
    /// A worker ends in good order; what it still has is there for others.
    Leave {
        /// Which.
        worker: String,
    },
    /// A person's word that a folder of workspaces, or its machine, is gone for good: its workers and its hold on runs are forgotten, and
    /// whatever still drives one of them there is fenced. Refused with `Conflict` while a worker of it counts as alive.
    ForgetPlace {
        /// Which.
        place: String,
        /// Now.
        at: Timestamp,
    },
    /// A run waits for a worker. One that is queued already stays as it is.
    Enqueue {
        /// Which.
        run: RunId,
        /// How.
        options: QueueOptions,
        /// When.
        at: Timestamp,
    },
    /// The same for a run of a schedule whose instant has come. Refused with `Conflict` when the schedule is paused by now: a person did that, or the
    /// database may lack that the instant was submitted before.
    EnqueueDue {
        /// Of which schedule.
        schedule: String,
        /// Which.
        run: RunId,
        /// How.
        options: QueueOptions,
        /// When.
        at: Timestamp,
    },
    /// A worker takes runs. What is left by workers that are dead is ready again before it looks, and so is what got a word of a person.
    Claim {
        /// Who takes.
        worker: String,
        /// What it has. Whatever else it has claimed it has not heard of, and gets again.
        holds: Vec<RunId>,
        /// At most so many.
        most: u32,
        /// Workers that are proved to be dead, whatever their lease says.
        dead: Vec<String>,
        /// What it leaves alone for now, as long as it is as a worker gave it back: one that was moved since is offered again.
        avoids: Vec<RunId>,
        /// Now.
        at: Timestamp,
    },
    /// A worker lets go of a run. Nothing happens when it does not have it any more. A run of which nothing was begun, no turn, no request and no
    /// call, is bound to no place any more, unless a process has it.
    Release {
        /// Who has it.
        worker: String,
        /// Which.
        run: RunId,
        /// How.
        release: Release,
    },
    /// A run that nobody has moves to another queue, or gets another priority. One that waited for a person is ready again.
    Move {
        /// Which.
        run: RunId,
        /// To which queue.
        queue: Option<String>,
        /// With which priority.
        priority: Option<i32>,
    },
    /// A run leaves the queue; it stays as it is.
    Withdraw {
        /// Which.
        run: RunId,
    },
    /// A schedule is made, or changed.
    PutSchedule(ScheduleRecord),
    /// A schedule has submitted an instant, and goes on to the next. Refused with `Conflict` when another process was faster.
    Advance {
        /// Which.
        name: String,
        /// From here.
        from: Timestamp,
        /// To here.
        to: Timestamp,
    },
    /// A schedule is removed.
    RemoveSchedule {
        /// Which.
        name: String,
    },
}

/// What a write brought.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FleetDone {
    /// The runs that were taken, or the one that was queued.
    pub entries: Vec<QueueEntry>,
    /// How many runs were there again that dead workers had, or that a forgotten place had held.
    pub freed: u64,
}

/// Everything but the runs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetState {
    /// By name.
    pub workers: Vec<WorkerRecord>,
    /// In the order in which they are taken, so many at most.
    pub queue: Vec<QueueEntry>,
    /// By name.
    pub schedules: Vec<ScheduleRecord>,
    /// The lines of the queue, where something of it was asked for.
    pub lines: Vec<QueueLine>,
}

/// Puts a queue into the order in which it is worked off: what is claimed, then what is ready, priority by priority, of each line the first as their
/// turns come, then of each the second; behind it what `is_later`, and what waits for people.
pub fn in_turn(queue: &mut [QueueEntry], lines: &[QueueLine], is_later: impl Fn(&QueueEntry) -> bool) {
    let rank = |entry: &QueueEntry| match entry.state {
        QueueState::Claimed => 0_u8,
        QueueState::Ready => 1 + u8::from(is_later(entry)),
        QueueState::Parked => 3,
    };
    let turns: BTreeMap<u64, u64> = lines.iter().map(|line| (line.line, line.turn)).collect();
    queue.sort_by_key(|entry| entry.seq);
    let mut so_far: BTreeMap<(u8, u64), u64> = BTreeMap::new();
    let mut place = |entry: &QueueEntry| {
        let count = so_far.entry((rank(entry), entry.line)).or_default();
        *count += 1;
        *count
    };
    let places: BTreeMap<RunId, u64> = queue.iter().map(|entry| (entry.run_id.clone(), place(entry))).collect();
    queue.sort_by_key(|entry| {
        let place = places.get(&entry.run_id).copied();
        (rank(entry), entry.options.priority, place, turns.get(&entry.line).copied(), entry.line)
    });
}

/// How much waits in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// Which.
    pub queue: String,
    /// Ready now.
    pub ready: u64,
    /// Ready later.
    pub later: u64,
    /// In the hands of workers.
    pub claimed: u64,
    /// Waiting for people.
    pub parked: u64,
    /// Since when the one waits that has been ready the longest.
    pub oldest_at: Option<Timestamp>,
}

/// The queue beside the runs.
#[async_trait]
pub trait FleetStore: Store {
    /// Now, by the clock that all workers of this database share; `own` where that is the caller's.
    async fn fleet_now(&self, own: Timestamp) -> Result<Timestamp, StoreError>;

    /// Commits a change (synced).
    async fn fleet(&self, change: FleetChange) -> Result<FleetDone, StoreError>;

    /// What there is, with the first `most` entries of the queue.
    async fn fleet_state(&self, most: u32) -> Result<FleetState, StoreError>;

    /// How much waits in each queue, by name.
    async fn queue_depths(&self, now: Timestamp) -> Result<Vec<QueueDepth>, StoreError>;

    /// One run in the queue.
    async fn queued(&self, run: &RunId) -> Result<Option<QueueEntry>, StoreError>;
}

/// Rows of the fleet, inside a transaction that no other of its kind runs beside.
pub trait FleetRows {
    /// What can go wrong below the port.
    type Error: From<StoreError>;
    /// One run.
    fn fleet_run(&self, run: &RunId) -> Result<RunRecord, Self::Error>;
    /// One entry.
    fn entry(&self, run: &RunId) -> Result<Option<QueueEntry>, Self::Error>;
    /// Stores an entry, in the place of the one before.
    fn put_entry(&self, entry: &QueueEntry) -> Result<(), Self::Error>;
    /// Removes an entry.
    fn remove_entry(&self, run: &RunId) -> Result<(), Self::Error>;
    /// What a worker has.
    fn entries_of(&self, worker: &str) -> Result<Vec<QueueEntry>, Self::Error>;
    /// Those that are parked and about whose lineage there was a word since, or whose run somebody else has ended, with the number of words
    /// now.
    fn woken_entries(&self) -> Result<Vec<(QueueEntry, u64)>, Self::Error>;
    /// The next one for a worker: the first, in its line, that is ready now, in a queue of its, of a lineage that no other place holds, with a free
    /// seat, and not one that it avoids and a worker gave back. Of the lines that have one those of the smallest priority are looked at, and of
    /// these the one whose turn was the longest ago.
    ///
    /// Whatever is claimed has a seat, and so has what is ready and running and has strikes: its worker was taken for dead, and may be at work
    /// (see [`keeps_its_seat`]).
    fn next_entry(
        &self,
        worker: &WorkerRecord,
        avoids: &[RunId],
        at: Timestamp,
    ) -> Result<Option<QueueEntry>, Self::Error>;
    /// The highest of `seq`.
    fn last_seq(&self) -> Result<u64, Self::Error>;
    /// The line of those that are queued like this.
    fn line_of(&self, options: &QueueOptions) -> Result<Option<u64>, Self::Error>;
    /// The highest number of a line.
    fn last_line(&self) -> Result<u64, Self::Error>;
    /// Makes a line.
    fn add_line(&self, line: &QueueLine) -> Result<(), Self::Error>;
    /// A line has a turn.
    fn set_turn(&self, line: u64, turn: u64) -> Result<(), Self::Error>;
    /// Removes a line if no run is in it.
    fn drop_empty_line(&self, line: u64) -> Result<(), Self::Error>;
    /// When the last turn was.
    fn queue_clock(&self) -> Result<u64, Self::Error>;
    /// The last turn is this one.
    fn set_queue_clock(&self, turn: u64) -> Result<(), Self::Error>;
    /// Words of people about the lineage of a run.
    fn words_of_lineage(&self, run: &RunId) -> Result<u64, Self::Error>;
    /// All workers, by name.
    fn workers(&self) -> Result<Vec<WorkerRecord>, Self::Error>;
    /// Stores a worker, in the place of the one before.
    fn put_worker(&self, worker: &WorkerRecord) -> Result<(), Self::Error>;
    /// Removes a worker.
    fn remove_worker(&self, worker: &str) -> Result<(), Self::Error>;
    /// Lets go of the lineages that a place holds, and fences whoever drives them there; how many.
    fn forget_place(&self, place: &str) -> Result<u64, Self::Error>;
    /// A run that no process has, and of which nothing was begun, is bound to no place any more.
    fn unbind_unbegun(&self, run: &RunId) -> Result<(), Self::Error>;
    /// All schedules, by name.
    fn schedules(&self) -> Result<Vec<ScheduleRecord>, Self::Error>;
    /// Stores a schedule, in the place of the one before.
    fn put_schedule(&self, schedule: &ScheduleRecord) -> Result<(), Self::Error>;
    /// Removes a schedule.
    fn remove_schedule(&self, name: &str) -> Result<(), Self::Error>;
}

/// Whether a run that is stored as running keeps its seat although its worker is taken for dead. That worker may be at work all the same; but where
/// a person said that the run is to end, no store lets it begin anything, so nothing of it is left but what was under way.
pub fn keeps_its_seat(run: &RunRecord, has_effect_under_way: impl FnOnce() -> bool) -> bool {
    run.end_mark().is_none() || has_effect_under_way()
}

/// Whether a call may be having an effect just now. Of one that was not sent nothing comes, and a read changes nothing.
pub fn is_effect_under_way(call: &CallRecord) -> bool {
    call.status == CallStatus::Running && call.policy.class.has_effect()
}

/// How long a worker counts as alive that says nothing.
pub const LEASE: Duration = Duration::from_secs(30);
