//! A worker: takes runs from the queue, drives them, and lets go of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;
use ua_core::{
    AskedWait, CallStatus, Env, FailureClass, RunId, RunStatus, RunStop, ShowPath as _, Timestamp, Trace, WaitBudgets,
};
use ua_dispatch::StopSignal;
use ua_resume::NextStep;
use ua_runner::{LockError, RunEvent, RunLock, owner_stamp, process_is_alive};
use ua_store::{
    CallRecord, FleetChange, FleetDone, FleetStore as _, LedgerStore as _, QueueEntry, QueueState, Release, RunRecord,
    Store as _, StoreError, WorkerRecord, fleet::LEASE,
};

use super::ailing::Ailing;
use super::begun_in::replaced;
use super::due::{CaughtUp, Timetable};
use super::fate::{AfterError, Fate, GotFurther};
use super::fits::fits;
use super::health::Health;
use super::lacking::Lacking;
use super::seats::Seats;
use super::since::Since;
use super::told::{Did, Told, WorkerEvent};
use super::{ailing, check_name, place_of, room};
use crate::Database;
use crate::alert::Alerts;
use crate::consent;
use crate::error::{HostError, Kind, chain};
use crate::home;
use crate::host::Host;
use crate::launch::SERVERS_CHANGED;
use crate::people::{ObservedEvent, People, Presence};
use crate::session::{self, Ending, Taking};
use crate::text::foreign;
use crate::tree;
use crate::waits::{OutsideWait, Waits};

/// How often a worker looks for runs.
pub(super) const POLL: Duration = Duration::from_millis(500);
/// A look at the database that takes so long is told.
const SILENT: Duration = Duration::from_secs(10);
/// How long a worker that starts waits for a writer that stands still: a little longer than the server lets its session stay.
const STANDS_STILL: Duration = Duration::from_secs(40);
/// How often it says that it is alive.
pub(super) const RENEWAL: Duration = Duration::from_secs(5);
/// A run that was given back so often in a row for one reason is not waited for: it is for somebody else to do something about it.
const MOST_REFUSALS: u32 = 3;
/// How long a run is left alone that cannot be driven here, or not now: at first, and twice as long for each time in a row for one reason.
pub(super) const MISFIT: Duration = Duration::from_secs(5);
/// At most so often twice as long.
const MOST_DOUBLED: u32 = 3;
/// The same of a run that has to be taken to find out: each time is an epoch of it, and a tool server that is started.
const MOST_DOUBLED_IF_TAKEN: u32 = 6;
/// A run that nobody could drive for so long is told to whoever wants alerts: what is missing is put right by a deployment in less.
const UNFIT_TOLD: Duration = Duration::from_mins(5);
/// A run that has waited for so long for its provider or a tool server is told to whoever wants alerts: a hiccup is over by then.
const WAIT_TOLD: Duration = Duration::from_mins(5);
/// After so many tries that failed its worker says what a run waits for.
const TRIES_TOLD: u32 = 3;
/// For how long it is remembered why a run was given back that this worker has left alone since.
const REMEMBERED: Duration = Duration::from_hours(1);
/// How long a run is left alone whose model provider was not available.
pub(super) const OUTAGE: Duration = Duration::from_secs(30);
/// No run is put off for longer by workers themselves, only by a provider that asks for it.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// Why a run was given back whose provider was not available.
const PROVIDER_AWAY: &str = "the model provider is not available";

/// How long a database that answers nothing is waited for once calls are given up. Whoever stops a worker counts on its end half a minute behind its
/// drain (`deploy/`), and what is killed then ends no better.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// The same for the last word of a worker.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

/// Why a worker that was told to take no more runs leaves one.
const DRAINED: &str = "this worker was told to take no more runs (`ua workers drain`)";

/// How many entries of the queue are looked at for the next one.
const LOOKED_AT: u32 = 10_000;

/// What a worker is started with.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// Its name; one is made up.
    pub name: Option<String>,
    /// The queues that it takes from; all when it names none.
    pub queues: Vec<String>,
    /// How many runs it works on at once.
    pub slots: u32,
    /// Where it says how it is.
    pub listen: Option<SocketAddr>,
    /// It ends when nothing is ready and nothing is under way.
    pub until_empty: bool,
    /// Who hears what it drives, for whoever tells somebody.
    pub onlooker: Option<Arc<dyn Onlooker>>,
}

/// Who hears which runs a worker drives, and what happens in them. Called from where it happens, so nothing of it may block.
pub trait Onlooker: fmt::Debug + Send + Sync {
    /// It has a run, and drives it from here on.
    fn begun(&self, run: &RunId);

    /// Something happened in it, or in a sub-agent of it.
    fn watch(&self, run: &RunId, seen: &ObservedEvent<'_>);

    /// It does not drive it any more.
    fn ended(&self, run: &RunId);
}

/// What lets a run go on that cannot be driven because its tool servers changed, where that is why.
fn accepts(run: &RunId, error: &HostError) -> Option<String> {
    let is_why = error.detail().get("kind").and_then(serde_json::Value::as_str) == Some(SERVERS_CHANGED);
    is_why.then(|| format!("`ua queue move {run} --accept servers` accepts what changed"))
}

/// What a worker that ended left in its queues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftBehind {
    /// Runs that cannot be driven here, each with the reason in a sentence.
    pub misfits: BTreeMap<RunId, String>,
    /// Runs that are for later.
    pub later: Option<ForLater>,
    /// What schedules whose job could not be submitted say, a sentence each.
    pub schedules: Vec<String>,
}

/// Runs that a worker left because their time has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForLater {
    /// How many.
    pub count: usize,
    /// When the first of them is due.
    pub first_at: Timestamp,
    /// When that was looked at, by the clock that all workers share.
    pub looked_at: Timestamp,
}

/// Works until it is asked to stop, or until nothing is left that it could do: then it takes nothing any more, lets what was sent come back, and
/// gives its runs to others. Returns what it left that it could not do.
///
/// # Errors
///
/// It cannot begin: the database, the root or a name cannot be used. What happens later to the database is waited out.
pub async fn work(host: &Host, options: &WorkerOptions, stop: StopSignal, told: Told) -> Result<LeftBehind, HostError> {
    options.queues.iter().try_for_each(|queue| check_name("queue", queue))?;
    // Before there is a lock of that name.
    let named = options.name.iter().map(|name| ("name of the worker", name));
    let named = named.chain(options.queues.iter().map(|queue| ("name of the queue", queue)));
    for (what, name) in named {
        crate::words::without_secrets(host, what, name)?;
    }
    let name = options.name.clone().unwrap_or_else(|| format!("worker_{}", host.env().uuid_v7()));
    let id = RunId::parse(&name).map_err(|e| HostError::usage(format!("cannot use --name: {e}")))?;
    let store = Arc::new(host.home().open()?);
    let owner = owner_stamp(Trace::new(host.env()));
    // Held for as long as this process lives, so that others in this root can prove that it does not.
    let lock = match RunLock::take(&host.home().locks(), &id, &owner) {
        Ok(lock) => lock,
        Err(LockError::Held { .. }) => {
            return Err(HostError::usage(format!("a worker named {name} is already running here"))
                .hint("choose another --name"));
        }
        Err(error) => return Err(error.into()),
    };
    crate::servers::end_abandoned(host.home()).await;
    let (place, place_shown) = place_of(host.home())?;
    let health = Health::new(host.env(), options.slots);
    let record = WorkerRecord {
        worker: name,
        place,
        place_shown,
        owner,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: options.queues.clone(),
        slots: options.slots,
        started_at: host.env().now(),
        lease_until: host.env().now(),
        is_draining: false,
    };
    let worker = Worker {
        host: host.clone(),
        store,
        record,
        health,
        stop,
        told,
        holds: Holds::default(),
        refusals: Refusals::default(),
        unfit_since: UnfitSince::default(),
        ailing: Arc::default(),
        lacking: Arc::default(),
        onlooker: options.onlooker.clone(),
    };
    worker.register_at_first().await.map_err(|error| {
        let is_held = matches!(error, StoreError::Conflict { .. });
        if is_held { name_is_held(&error) } else { HostError::store("register the worker", &error) }
    })?;
    if let Some(address) = options.listen {
        let bound = worker.health.listen(address).await?;
        worker.say(Did::Listening, &format!("listening on http://{bound}"));
    }
    let begins = format!("worker {} takes runs from the {}", worker.record.worker, host.home().database_in_words());
    worker.say(Did::Started, &begins);
    let left = worker.until_stopped(options.until_empty).await;
    drop(lock);
    // Nobody proves anything by the lock of a worker that is not there.
    let file = host.home().locks().join(format!("{id}.run"));
    if let Err(error) = std::fs::remove_file(&file) {
        tracing::debug!(%error, file = %file.shown(), "the worker's lock file stays");
    }
    if let Some(store) = Arc::into_inner(worker.store) {
        home::close(store);
    }
    Ok(left)
}

/// The refusal of a name that a worker of another root has. One that is gone has it until its lease ends, so to try again is right.
fn name_is_held(error: &StoreError) -> HostError {
    HostError::waiting(format!("cannot register the worker: {}", chain(error))).hint(format!(
        "choose another --name; if that worker is gone, start this one again once its lease has ended, {} s after its last sign of life",
        LEASE.as_secs()
    ))
}

#[derive(Clone)]
struct Worker {
    host: Host,
    store: Arc<Database>,
    record: WorkerRecord,
    health: Health,
    stop: StopSignal,
    told: Told,
    holds: Holds,
    refusals: Refusals,
    unfit_since: UnfitSince,
    ailing: Arc<Mutex<Ailing>>,
    lacking: Arc<Mutex<Lacking>>,
    onlooker: Option<Arc<dyn Onlooker>>,
}

/// Why a run was not driven, as it was last tried.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    why: String,
    /// How often in a row. What ends by itself is not counted.
    times: u32,
    /// It was not begun at all: something that it needs is not here.
    is_misfit: bool,
    /// Until when this worker leaves it to others, by the time that passes.
    until: Option<Duration>,
}

impl Refusal {
    /// Whether another try would come to the same, as far as can be seen from here.
    fn is_lasting(&self) -> bool {
        self.is_misfit || self.times >= MOST_REFUSALS
    }
}

/// Whether it is time to say that it is alive, after that was done last.
fn is_renewal_due(last: Option<Since>, env: &Env) -> bool {
    last.is_none_or(|last| last.passed(env) >= RENEWAL)
}

/// What a look comes to; while it takes long, `silent` says so, once.
async fn looking<T>(env: &Env, look: impl Future<Output = T>, silent: impl FnOnce()) -> T {
    tokio::pin!(look);
    tokio::select! {
        biased;
        done = &mut look => return done,
        // Begun only when the look has to be waited for.
        () = async { env.clock.sleep(SILENT).await } => {}
    }
    silent();
    look.await
}

/// Whether a look asked the database for something: one with no free slot and no renewal due does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Asked,
    AskedNothing,
}

/// Why a run that is parked is left for somebody to do something about it, and what that is; `None` of a question, and of what the job itself
/// set a bound to: that is said where it is, and whoever works until nothing is left has done what there was to do.
fn why_parked(entry: &QueueEntry, run: &RunRecord) -> Option<String> {
    let why = || on_one_line(entry.why.as_deref().unwrap_or(run.status.as_str()));
    let moved = || {
        let why = why();
        // A reason for which somebody has to do something first says it itself.
        let says_how = why.contains(&format!("`ua queue move {}", run.run_id));
        if says_how { why } else { format!("{why}; `ua queue move {}` makes a worker try it again", run.run_id) }
    };
    match run.status {
        RunStatus::WaitingForHuman | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => None,
        RunStatus::Queued | RunStatus::Running => Some(moved()),
        RunStatus::Stopped => match run.stop_reason {
            Some(RunStop::Budget) => None,
            Some(
                RunStop::Interrupt
                | RunStop::Provider
                | RunStop::ProviderRefused
                | RunStop::UnknownModel
                | RunStop::Fingerprint
                | RunStop::ToolServer
                | RunStop::Idle,
            )
            | None => {
                let next = NextStep::of_queued(run);
                Some(if next.is_to_be_tried_again() {
                    moved()
                } else {
                    format!("{}; {} {}", why(), next.who(), next.does())
                })
            }
        },
    }
}

/// For how much longer a run is not tried again that stopped with this sentence: as long as its provider asks for, or as its own budgets would have
/// to allow; `None` where it says of neither, or that is over.
fn wait_said(said: &str, now: Timestamp) -> Option<Duration> {
    let asked = AskedWait::read(said).map(|until| until.since(now));
    asked.or_else(|| Some(WaitBudgets::read(said)?.wait())).filter(|wait| !wait.is_zero())
}

/// Whether a run stopped for a wait that is not over.
fn is_put_off(run: &RunRecord, now: Timestamp) -> bool {
    let is_away = run.status == RunStatus::Stopped && run.stop_reason == Some(RunStop::Provider);
    let until = run.status_detail.as_deref().filter(|_| is_away && run.end_mark().is_none()).and_then(AskedWait::read);
    until.is_some_and(|until| now < until)
}

/// A reason as it is told and kept, whole: what is to be done often stands at its end.
fn on_one_line(why: &str) -> String {
    crate::text::line(why, usize::MAX)
}

/// Why no run is taken while nothing comes back.
const NO_ANSWER: &str = "the database does not answer";

/// Why no run is taken, for whoever asks whether the worker is ready.
fn why_cut_off(error: &StoreError) -> String {
    if error.class() == FailureClass::Transient { NO_ANSWER.to_owned() } else { chain(error) }
}

/// The runs that were given back, each with the reason.
#[derive(Debug, Clone, Default)]
struct Refusals(Arc<Mutex<BTreeMap<RunId, Refusal>>>);

/// Since when each run cannot be driven here, by the time that passes, whatever the reasons were in turn.
#[derive(Debug, Clone, Default)]
struct UnfitSince(Arc<Mutex<BTreeMap<RunId, Duration>>>);

impl UnfitSince {
    /// It could not once more: whether that has lasted for so long that somebody is told.
    fn note(&self, run: &RunId, now: Duration) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is not tried any more was done elsewhere.
        all.retain(|other, since| other == run || now.saturating_sub(*since) < REMEMBERED);
        now.saturating_sub(*all.entry(run.clone()).or_insert(now)) >= UNFIT_TOLD
    }

    fn forget(&self, run: &RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }
}

impl Refusals {
    fn all(&self) -> BTreeMap<RunId, Refusal> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why a run was given back; whether that is news. Only what is `counted` adds up.
    fn note(&self, run: &RunId, why: &str, is_misfit: bool, is_counted: bool) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(run).filter(|before| before.why == why && before.is_misfit == is_misfit);
        let times = before.map_or(0, |before| before.times) + u32::from(is_counted);
        let is_news = before.is_none();
        all.insert(run.clone(), Refusal { why: why.to_owned(), times, is_misfit, until: None });
        is_news
    }

    /// Leaves a run to others for a while, after what was noted last: longer and longer, up to `most_doubled` times twice as long. Many that cannot
    /// be driven would keep a worker busy with nothing but them.
    fn leave(&self, run: &RunId, most_doubled: u32, now: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(refusal) = all.get_mut(run) {
            let pause = MISFIT * 2_u32.pow(refusal.times.saturating_sub(1).min(most_doubled));
            refusal.until = Some(now + pause);
        }
    }

    /// What is left to others now. What others did meanwhile is forgotten in time.
    fn left_to_others(&self, now: Duration) -> Vec<RunId> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, refusal| refusal.until.is_none_or(|until| now.saturating_sub(until) < REMEMBERED));
        let waits = all.iter().filter(|(_, refusal)| refusal.until.is_some_and(|until| now < until));
        waits.map(|(run, _)| run.clone()).collect()
    }

    fn forget(&self, run: &RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }

    /// It is begun: whether that is to be said, since it was not given back just now for a reason that it may still have.
    fn begin(&self, run: &RunId) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let was_begun = all.get(run).is_some_and(|before| !before.is_misfit);
        if !was_begun {
            all.remove(run);
        }
        !was_begun
    }
}

/// The runs that a worker has, each until the queue has taken it back. One that comes again before that is there twice.
#[derive(Debug, Clone, Default)]
struct Holds(Arc<Mutex<Vec<RunId>>>);

impl Holds {
    fn all(&self) -> Vec<RunId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, run: &RunId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(run.clone());
    }

    fn remove(&self, run: &RunId) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = all.iter().position(|one| one == run) {
            all.swap_remove(found);
        }
    }
}

impl Worker {
    fn env(&self) -> &Env {
        self.host.env()
    }

    /// Tells something that is about no single run.
    fn say(&self, did: Did, sentence: &str) {
        (self.told)(&WorkerEvent::of_worker(did, sentence));
    }

    /// Tells something about a run, with how that stands where it was looked at.
    fn say_of(&self, did: Did, run: &RunId, status: Option<RunStatus>, sentence: &str) {
        (self.told)(&WorkerEvent::of_run(did, run, status, sentence));
    }

    fn ailing(&self) -> MutexGuard<'_, Ailing> {
        self.ailing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lacking(&self) -> MutexGuard<'_, Lacking> {
        self.lacking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much time has passed in this process, whatever the clock of the machine is set to.
    fn up(&self) -> Duration {
        self.env().clock.uptime()
    }

    /// By the clock that counts for all.
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store.fleet_now(self.env().now()).await
    }

    /// The same where it does not answer: as much later than it last said as has passed.
    async fn about_now(&self) -> Timestamp {
        let asked = self.now().await.ok();
        asked.or_else(|| self.health.shared_now()).unwrap_or_else(|| self.env().now())
    }

    /// Registers for the first time, past a process that has the rows and stands still: its session is ended by the server.
    async fn register_at_first(&self) -> Result<(), StoreError> {
        let begun = Since::now(self.env());
        let mut is_told = false;
        loop {
            let error = match self.register().await {
                Err(error @ StoreError::Unavailable { .. }) if error.class() == FailureClass::Transient => error,
                done => return done,
            };
            if begun.passed(self.env()) >= STANDS_STILL || self.stop.is_stopping() {
                return Err(error);
            }
            if !std::mem::replace(&mut is_told, true) {
                let seconds = STANDS_STILL.as_secs();
                self.say(Did::Noted, &format!("waits to register, for up to {seconds} s: {}", chain(&error)));
            }
            self.env().clock.sleep(POLL).await;
        }
    }

    /// One that was told to take no more runs is not told again: its row may be gone, since it was taken for dead.
    async fn register(&self) -> Result<(), StoreError> {
        let (sent, now) = (self.health.now(), self.now().await?);
        let is_draining = self.health.state().is_told_to_drain;
        let record = WorkerRecord { started_at: now, lease_until: now.plus(LEASE), is_draining, ..self.record.clone() };
        self.store.fleet(FleetChange::Register(record)).await?;
        self.health.renewed(sent);
        Ok(())
    }

    /// Says that it is alive. The lease counts from before it was asked for.
    async fn renew(&self) -> Result<(), StoreError> {
        let (sent, was_overdue) = (self.health.now(), self.health.is_overdue());
        let lease_until = self.now().await?.plus(LEASE);
        let renewal = FleetChange::Renew { worker: self.record.worker.clone(), lease_until };
        let is_gone = match self.store.fleet(renewal).await {
            Ok(_) => false,
            Err(StoreError::NotFound { .. }) => true,
            Err(error) => return Err(error),
        };
        if is_gone {
            self.register().await?;
        }
        // Others may have taken it for dead; what it drives is its own as long as it has the locks, and it takes that back.
        if is_gone || was_overdue {
            let done = self.claim(0).await?;
            self.health.state().freed += done.freed;
        }
        self.health.renewed(sent);
        // A worker whose slots are all taken claims nothing, and so reads its row nowhere else.
        self.note_drain(&self.store.fleet_state(0).await?.workers);
        Ok(())
    }

    /// Notes whether its row says that it takes nothing more. One that has no row, for a moment, was not told anything else.
    fn note_drain(&self, workers: &[WorkerRecord]) {
        if let Some(own) = workers.iter().find(|worker| worker.worker == self.record.worker) {
            self.health.state().is_told_to_drain = own.is_draining;
        }
    }

    async fn until_stopped(&self, until_empty: bool) -> LeftBehind {
        let mut left = LeftBehind::default();
        let mut runs = JoinSet::new();
        // The first look renews, and so counts what waits.
        let mut renewed = None;
        let caught_up = CaughtUp::default();
        let (stays, leaves) = watch::channel(());
        let (worker, health) = (&self.record.worker, &self.health);
        let timetable = Timetable::new(&self.host, &self.store, worker, &self.stop, &self.told, health);
        let mut timetable = tokio::spawn(timetable.keep(caught_up.clone(), leaves));
        let mut is_reachable = true;
        while !self.stop.is_stopping() {
            let turn = self.turn(&mut runs, &mut renewed);
            let looked = tokio::select! {
                biased;
                looked = looking(self.env(), turn, || self.is_silent(&mut is_reachable)) => looked,
                () = self.hung() => break,
            };
            match looked {
                Ok(Looked::Asked) => {
                    self.health.state().cut_off = None;
                    if !is_reachable {
                        self.health.state().answered_again += 1;
                        self.say(Did::Noted, "the database answers again");
                    }
                    is_reachable = true;
                }
                // What was not asked said nothing.
                Ok(Looked::AskedNothing) => {}
                Err(error) => {
                    {
                        let mut state = self.health.state();
                        state.late_renewals += 1;
                        state.cut_off = Some(why_cut_off(&error));
                    }
                    if is_reachable {
                        self.say(Did::Noted, &format!("cannot take runs: {}", chain(&error)));
                    }
                    is_reachable = false;
                }
            }
            if until_empty
                && is_reachable
                && caught_up.is_so(self.up())
                && runs.is_empty()
                && let Some(found) = self.left_behind().await
            {
                left = found;
                let refusals = self.refusals.all();
                // What was parked is told already.
                for (run, why) in left.misfits.iter().filter(|(run, _)| refusals.contains_key(*run)) {
                    self.alert(run, &format!("run {run} is left in the queue: {why}")).await;
                }
                break;
            }
            let pause = self.env().clock.sleep(self.pause());
            tokio::select! {
                _ = runs.join_next(), if !runs.is_empty() => {}
                () = pause => {}
                () = self.stop.stopping() => {}
            }
        }
        drop(stays);
        self.health.state().is_draining = true;
        if !runs.is_empty() {
            let running = ua_core::counted(runs.len(), "run");
            self.say(Did::Stopping, &format!("taking no more runs; waiting for {running} to stop"));
        }
        self.see_out(runs).await;
        tokio::select! {
            _ = &mut timetable => {}
            () = self.stop.giving_up_calls() => timetable.abort(),
        }
        let leaves = self.store.fleet(FleetChange::Leave { worker: self.record.worker.clone() });
        tokio::select! {
            biased;
            done = leaves => if let Err(error) = done {
                tracing::warn!(error = chain(&error), "the worker could not sign off; others find out");
            },
            () = self.env().clock.sleep(LEAVES_WITHIN) => {
                tracing::warn!("the worker could not sign off, as the database does not answer; others find out");
            }
        }
        left
    }

    /// Waits for the runs that are under way, and keeps the lease meanwhile; where the database answers nothing, only for a while.
    async fn see_out(&self, mut runs: JoinSet<()>) {
        while !runs.is_empty() {
            tokio::select! {
                _ = runs.join_next() => continue,
                () = self.env().clock.sleep(RENEWAL) => self.health.turns(),
            }
            tokio::select! {
                biased;
                renewed = self.renew() => if let Err(error) = renewed {
                    tracing::warn!(error = chain(&error), "the worker's lease was not renewed");
                },
                () = self.hung() => {
                    let said = "the database answers nothing, so this worker ends without storing how its runs went; whoever has them next asks";
                    self.say(Did::Noted, said);
                    // What is under way ends as in a crash.
                    return;
                }
            }
        }
    }

    /// Counts that the database lacks writes that it had taken. That others may lack some as well, whose owners are gone, the store knows by itself.
    fn note_lost_writes(&self, error: &HostError) {
        if error.is_of_lost_writes() {
            self.health.state().went_back += 1;
        }
    }

    /// Calls were given up a while ago: what has not been answered since is not waited for.
    async fn hung(&self) {
        self.stop.giving_up_calls().await;
        self.env().clock.sleep(ENDS_WITHIN).await;
    }

    /// The database has not answered for long, and that is no matter of a moment: whoever asks and whoever reads is told.
    fn is_silent(&self, is_reachable: &mut bool) {
        self.health.state().cut_off = Some(NO_ANSWER.to_owned());
        if *is_reachable {
            let silent = SILENT.as_secs();
            self.say(
                Did::Noted,
                &format!("cannot take runs: the database has not answered for {silent} s, and has not refused either"),
            );
        }
        *is_reachable = false;
    }

    /// Workers do not look all at the same moment.
    fn pause(&self) -> Duration {
        let spread =
            self.record.worker.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        POLL + Duration::from_millis(spread % 100)
    }

    /// What is left in its queues once there is nothing that it could do: nobody works on anything that might come back, and each run that waits
    /// is for later, was tried and cannot be driven, or waits for a place where nobody is. `None` while there is something to do. One that was told
    /// to take nothing more waits for nobody.
    async fn left_behind(&self) -> Option<LeftBehind> {
        let (now, state) = (self.now().await.ok()?, self.store.fleet_state(LOOKED_AT).await.ok()?);
        let is_mine = |queue: &String| self.record.queues.is_empty() || self.record.queues.contains(queue);
        let refusals = self.refusals.all();
        let is_full = room::wanting(self.host.home().root());
        let is_drained = self.health.state().is_told_to_drain;
        let seats = Seats::of(&self.store, &state.queue).await.ok()?;
        let schedules = self.health.state().failing_schedules.clone();
        let mut left = LeftBehind { schedules, ..LeftBehind::default() };
        for entry in state.queue.iter().filter(|entry| is_mine(&entry.options.queue)) {
            match (entry.state, refusals.get(&entry.run_id)) {
                (QueueState::Parked, _) => match self.store.run(&entry.run_id).await {
                    Ok(run) => left.misfits.extend(why_parked(entry, &run).map(|why| (entry.run_id.clone(), why))),
                    Err(StoreError::NotFound { .. }) => {}
                    Err(_) => return None,
                },
                (QueueState::Claimed, _) if is_drained => {}
                (QueueState::Ready, _) if is_drained && entry.options.run_after <= now => {
                    left.misfits.insert(entry.run_id.clone(), DRAINED.to_owned());
                }
                (QueueState::Ready, _) if is_full.is_some() && entry.options.run_after <= now => {
                    left.misfits.insert(entry.run_id.clone(), is_full.clone().unwrap_or_default());
                }
                // Whoever works until nothing is left does not stay for it, whichever worker put it off.
                (QueueState::Ready, _) if entry.not_before.is_some_and(|at| at.since(now) > LONGEST_PAUSE) => {
                    let why = entry.why.clone().unwrap_or_else(|| PROVIDER_AWAY.to_owned());
                    left.misfits.insert(entry.run_id.clone(), why);
                }
                (QueueState::Ready, Some(refusal)) if refusal.is_lasting() => {
                    left.misfits.insert(entry.run_id.clone(), refusal.why.clone());
                }
                (QueueState::Ready, None) if entry.options.run_after > now => {
                    let due = entry.options.run_after;
                    let so_far = left.later.unwrap_or(ForLater { count: 0, first_at: due, looked_at: now });
                    let (count, first_at) = (so_far.count + 1, so_far.first_at.min(due));
                    left.later = Some(ForLater { count, first_at, ..so_far });
                }
                (QueueState::Ready, None) => {
                    let why = if let Some(place) = self.store.elsewhere(&entry.run_id).await.ok()? {
                        // It is offered there alone, as long as nobody says that the place is gone.
                        if place.shown == self.record.place_shown {
                            replaced(&place)
                        } else {
                            format!("it was begun in {}, and only a worker there takes it", foreign(&place.shown))
                        }
                    } else {
                        seats.none_for(entry, &state.workers, now).filter(|none| none.is_lasting)?.why
                    };
                    left.misfits.insert(entry.run_id.clone(), why);
                }
                (QueueState::Ready, Some(_)) | (QueueState::Claimed, _) => return None,
            }
        }
        left.misfits.values_mut().chain(&mut left.schedules).for_each(|why| *why = on_one_line(why));
        Some(left)
    }

    /// Counts what waits; whether anything does that a worker could take now.
    async fn count(&self) -> Result<bool, StoreError> {
        let counted = (self.now().await?, self.health.now());
        let depths = self.store.queue_depths(counted.0).await?;
        let is_any_ready = depths.iter().any(|depth| depth.ready > 0);
        let mut state = self.health.state();
        (state.depths, state.counted) = (depths, Some(counted));
        (state.commits, state.synced_commits) = self.store.commits();
        state.flights = self.store.flights();
        Ok(is_any_ready)
    }

    /// One look: renews the lease when that is due, and fills free slots.
    async fn turn(&self, runs: &mut JoinSet<()>, renewed: &mut Option<Since>) -> Result<Looked, StoreError> {
        let mut looked = Looked::AskedNothing;
        self.health.turns();
        while runs.try_join_next().is_some() {}
        if is_renewal_due(*renewed, self.env()) {
            self.renew().await?;
            *renewed = Some(self.health.now());
            looked = Looked::Asked;
            if !self.count().await? {
                self.lacking().is_over();
            }
        }
        self.look_for_room();
        let free = (self.record.slots as usize).saturating_sub(runs.len());
        let (free, is_refused) = {
            let mut ailing = self.ailing();
            (ailing.most(free, self.up()), ailing.is_known())
        };
        let (free, is_lacking) = {
            let mut lacking = self.lacking();
            (lacking.most(free, self.up()), lacking.is_known())
        };
        let is_full = {
            let mut state = self.health.state();
            (state.is_refused, state.is_lacking) = (is_refused, is_lacking);
            state.is_full
        };
        let free = if is_full { 0 } else { free };
        if free > 0 {
            let done = self.claim(u32::try_from(free).unwrap_or(1)).await?;
            looked = Looked::Asked;
            let mut state = self.health.state();
            state.freed += done.freed;
            state.claimed += done.entries.len() as u64;
            drop(state);
            if done.freed > 0 {
                let freed = ua_core::counted(done.freed, "run");
                self.say(Did::Noted, &format!("back in the queue: {freed} of dead workers"));
            }
            for entry in done.entries {
                let worker = self.clone();
                worker.holds.add(&entry.run_id);
                runs.spawn(async move { Box::pin(worker.handle(entry)).await });
            }
        }
        self.health.state().running = runs.len();
        Ok(looked)
    }

    /// Notes whether there is room for a run, and says when that changes.
    fn look_for_room(&self) {
        let wanting = room::wanting(self.host.home().root());
        let was_full = std::mem::replace(&mut self.health.state().is_full, wanting.is_some());
        match wanting {
            Some(why) if !was_full => {
                self.say(Did::Noted, &format!("{why}; no run is taken until there is room"));
            }
            None if was_full => self.say(Did::Noted, "there is room on the disk again"),
            Some(_) | None => {}
        }
    }

    async fn claim(&self, most: u32) -> Result<FleetDone, StoreError> {
        let state = self.store.fleet_state(0).await?;
        self.note_drain(&state.workers);
        let dead = state.workers.iter().filter(|other| self.is_dead(other)).map(|other| other.worker.clone()).collect();
        let (worker, holds) = (&self.record.worker, self.holds.all());
        let avoids = self.refusals.left_to_others(self.up());
        let claim = |dead, at| FleetChange::Claim {
            worker: worker.clone(),
            holds: holds.clone(),
            most,
            dead,
            avoids: avoids.clone(),
            at,
        };
        let (mut at, mut asked) = (self.now().await?, self.health.now());
        let done = match self.store.fleet(claim(dead, at)).await {
            Err(StoreError::NotFound { .. }) => {
                self.register().await?;
                (at, asked) = (self.now().await?, self.health.now());
                self.store.fleet(claim(Vec::new(), at)).await?
            }
            done => done?,
        };
        let mut state = self.health.state();
        state.claims.note(asked.passed(self.env()));
        for entry in &done.entries {
            state.waits.note(at.since(entry.options.run_after));
        }
        drop(state);
        Ok(done)
    }

    /// Whether another worker of this root is proved to be dead: its process is not there, and its lock is free.
    fn is_dead(&self, other: &WorkerRecord) -> bool {
        if other.worker == self.record.worker || other.place != self.record.place || process_is_alive(&other.owner) {
            return false;
        }
        let locks = self.host.home().locks();
        RunId::parse(&other.worker).is_ok_and(|id| RunLock::take(&locks, &id, &self.record.owner).is_ok())
    }

    /// Drives a run that was claimed, and lets go of it.
    async fn handle(&self, entry: QueueEntry) {
        let run = entry.run_id.clone();
        if let Some(onlooker) = &self.onlooker {
            onlooker.begun(&run);
        }
        let release = self.drive(&entry).await;
        if let Some(onlooker) = &self.onlooker {
            onlooker.ended(&run);
        }
        {
            let mut state = self.health.state();
            match &release {
                Release::Done => state.done += 1,
                Release::Parked { .. } => state.parked += 1,
                Release::Ready { .. } => state.requeued += 1,
                Release::Unfit { .. } => {
                    state.requeued += 1;
                    state.unfit += 1;
                }
            }
        }
        let is_parked = matches!(release, Release::Parked { .. });
        let change = FleetChange::Release { worker: self.record.worker.clone(), run: run.clone(), release };
        let mut pause = POLL;
        while let Err(error) = self.store.fleet(change.clone()).await {
            tracing::warn!(%run, error = chain(&error), "the run could not be given back; trying again");
            tokio::select! {
                () = self.env().clock.sleep(pause) => {}
                // Others take what a worker leaves that has ended.
                () = self.stop.giving_up_calls() => return,
            }
            pause = (pause * 2).min(RENEWAL);
        }
        self.holds.remove(&run);
        // The page that was written when the run was put down knew it as in the hands of a worker, which goes on by itself.
        if is_parked {
            crate::restart::write(self.host.home(), &self.store).await;
        }
    }

    async fn drive(&self, entry: &QueueEntry) -> Release {
        let run = match self.store.run(&entry.run_id).await {
            Ok(run) => run,
            Err(StoreError::NotFound { .. }) => return Release::Done,
            Err(error) => return self.again(MISFIT, Some(chain(&error)), GotFurther(false)).await,
        };
        if run.status.is_terminal() {
            return Release::Done;
        }
        // Whoever stopped it for a wait died before the queue had it.
        if entry.strikes > 0 && is_put_off(&run, self.env().now()) {
            return self
                .after_outage(&run.run_id, (Some(run.status), run.status_detail), true, GotFurther(false))
                .await;
        }
        let outside = Outside::of(&run.run_id, &self.told, self.env());
        let people: Arc<dyn People> = Arc::new(Nobody {
            seen_by: self.onlooker.clone().map(|onlooker| (run.run_id.clone(), onlooker)),
            writes: Some(Writes { run: run.run_id.clone(), health: self.health.clone() }),
            outside: Some(outside.clone()),
            ..Nobody::with(&self.stop)
        });
        let launch = match fits(&self.host, &people, &self.store, &run).await {
            Ok(launch) => launch,
            Err(error) => {
                let accepts = accepts(&run.run_id, &error);
                if self.refusals.note(&run.run_id, &error.to_string(), true, true) {
                    let how = accepts.as_ref().map_or_else(String::new, |how| format!("; {how}"));
                    let sentence = format!("run {} cannot be driven here: {error}{how}", run.run_id);
                    self.say_of(Did::Released, &run.run_id, Some(run.status), &sentence);
                }
                // The command comes first: what is long is cut at its end.
                let how = accepts.map_or_else(String::new, |how| format!("{how}: "));
                // That it belongs below another root says nothing about what is on this machine.
                if self.host.home().inside_root(Path::new(&run.workspace_dir)).is_some() {
                    self.note_lacking(&run.run_id);
                }
                return self
                    .unfit(&run.run_id, &format!("{how}{}: {error}", self.record.place_shown), MOST_DOUBLED)
                    .await;
            }
        };
        if self.refusals.begin(&run.run_id) {
            self.say_of(Did::Claimed, &run.run_id, Some(run.status), &format!("run {}: taken", run.run_id));
            // Whoever looks after the worker has seen no other start of it.
            if let Some(lifted) = consent::lifted_questions(&run.spec) {
                self.say_of(Did::Noted, &run.run_id, Some(run.status), &format!("run {}: {lifted}", run.run_id));
            }
        }
        let driven = Box::pin(session::shared(&self.host, &people, &self.store, run.clone(), &launch, Taking::Free));
        let driven = tokio::select! {
            biased;
            driven = driven => driven,
            never = self.tell_of_long_waits(&run.run_id, &outside) => match never {},
        };
        self.after(&run, driven).await
    }

    /// Has whoever wants alerts told when a run that is driven waits for long for its provider or a tool server, once for each wait.
    async fn tell_of_long_waits(&self, run: &RunId, outside: &Outside) -> Infallible {
        let mut long = LongWaits::default();
        loop {
            self.env().clock.sleep(RENEWAL).await;
            let Some(wait) = long.due(outside.longest(), self.env().now()) else { continue };
            let Ok(run) = self.store.run(run).await else { continue };
            long.told(&wait);
            let why = format!("run {} is {}; it continues by itself once that answers", run.run_id, wait.in_words());
            if let Ok(Some(alerts)) = Alerts::from_settings(self.host.settings(), self.host.home()) {
                alerts.tell_of_wait(&Nobody::with(&self.stop), &run, &on_one_line(&why), self.env().now()).await;
            }
        }
    }

    /// What becomes of a run that this process stopped to drive.
    async fn after(&self, run: &RunRecord, driven: Result<Ending, HostError>) -> Release {
        let id = &run.run_id;
        let found = self.store.run(id).await;
        let (status, detail) = found.as_ref().map_or((None, None), |run| (Some(run.status), run.status_detail.clone()));
        let got_further = GotFurther(found.as_ref().is_ok_and(|found| found.turn_index != run.turn_index));
        if driven.is_ok() || got_further.0 {
            self.ailing().is_over();
        }
        let is_unbegun = found.as_ref().is_ok_and(RunRecord::is_unbegun);
        if !is_unbegun {
            self.lacking().is_over();
            self.unfit_since.forget(id);
        }
        // While the database does not answer, nothing is learnt about the run.
        let answers = found.is_ok();
        match driven {
            Ok(Ending::Succeeded | Ending::Failed | Ending::NotShown) => {
                self.refusals.forget(id);
                let ended = status.map_or_else(|| "ended".to_owned(), |status| status.to_string());
                self.say_of(Did::Ended, id, status, &format!("run {id}: {ended}"));
                Release::Done
            }
            Ok(Ending::Waiting)
                if is_unbegun && found.as_ref().is_ok_and(|run| run.stop_reason == Some(RunStop::ToolServer)) =>
            {
                let why = detail.unwrap_or_else(|| "its tool servers cannot be started".to_owned());
                self.cannot_begin(id, &why).await
            }
            Ok(Ending::Waiting | Ending::Refused) => {
                self.refusals.forget(id);
                let how = status.unwrap_or(RunStatus::Stopped);
                let why = detail.as_deref().map_or_else(String::new, |why| format!(": {}", on_one_line(why)));
                // What another worker would come to as well is lifted first, by the command that does.
                let lift = found.as_ref().ok().map(NextStep::of_queued).filter(|next| !next.is_to_be_tried_again());
                let sentence = match (how, lift) {
                    (RunStatus::WaitingForHuman, _) => format!("run {id} waits for you: `ua questions`"),
                    (RunStatus::Stopped, Some(next)) => {
                        format!("run {id} is {how}{}; {} {}", why.trim_end_matches('.'), next.who(), next.does())
                    }
                    (
                        RunStatus::Stopped
                        | RunStatus::Queued
                        | RunStatus::Running
                        | RunStatus::Succeeded
                        | RunStatus::Failed
                        | RunStatus::Cancelled,
                        _,
                    ) => format!("run {id} is {how}{why}; `ua queue move {id}` makes a worker try it again"),
                };
                self.say_of(Did::Parked, id, status, &sentence);
                // A question has an alert of its own.
                if how == RunStatus::WaitingForHuman {
                    let is_in_doubt = !self.in_doubt(id).await.is_empty();
                    let mut state = self.health.state();
                    state.asked += 1;
                    state.in_doubt += u64::from(is_in_doubt);
                } else {
                    self.alert(id, &sentence).await;
                }
                Release::Parked { why: Some(detail.unwrap_or_else(|| how.to_string())) }
            }
            Ok(Ending::Interrupted) => {
                self.refusals.forget(id);
                let doubt = self.in_doubt(id).await;
                let sentence = format!("run {id}: stopped{doubt}; another worker may take it");
                self.say_of(Did::Released, id, status, &sentence);
                // It was worked on until now, and waits from now on.
                self.again(Duration::ZERO, None, GotFurther(true)).await
            }
            Ok(Ending::Provider) => self.after_outage(id, (status, detail), answers, got_further).await,
            Err(error) => {
                // Whoever drives it beside this process comes to an end by itself.
                let is_counted = answers && error.kind() != Kind::Waiting;
                let is_news = self.refusals.note(id, &error.to_string(), false, is_counted);
                self.note_lost_writes(&error);
                let is_over = found.as_ref().is_ok_and(|run| run.status.is_terminal());
                let fate = Fate::of(id, &error, AfterError { is_over, is_unbegun, answers, got_further });
                if is_news {
                    self.say_of(fate.did(), id, status, &format!("run {id}: {error}"));
                }
                let why = Some(on_one_line(&error.to_string()));
                match fate {
                    Fate::Over => {
                        self.refusals.forget(id);
                        Release::Done
                    }
                    Fate::DatabaseRefuses => {
                        if let Some(pause) = self.ailing().refused(self.up()) {
                            let seconds = pause.as_secs();
                            self.say(
                                Did::Noted,
                                &format!(
                                    "the database refuses what runs write; none is taken for {seconds} s: {error}"
                                ),
                            );
                        }
                        let ends = found.as_ref().map_or(&run.unclean_ends, |found| &found.unclean_ends);
                        self.again(ailing::pause_of(ends, self.env().now()), why, got_further).await
                    }
                    Fate::ForSomebody { first } => {
                        self.refusals.forget(id);
                        if let Some(first) = &first {
                            self.say_of(Did::Noted, id, status, first);
                        }
                        let first =
                            first.unwrap_or_else(|| format!("`ua queue move {id}` makes a worker try it again"));
                        // What is to be done is kept with it, for whoever looks at the queue.
                        let why = format!("{}; {first}", on_one_line(&error.to_string()));
                        self.alert(id, &format!("run {id} is parked: {why}")).await;
                        Release::Parked { why: Some(why) }
                    }
                    Fate::NotHere => self.cannot_begin(id, &error.to_string()).await,
                    Fate::Driven => self.after_a_pause(MISFIT, why, got_further, true).await,
                    Fate::Again(pause) => self.again(pause, why, got_further).await,
                }
            }
        }
    }

    /// What becomes of a run whose model provider was not available: it is tried again, and no sooner than the provider asks.
    async fn after_outage(
        &self,
        run: &RunId,
        (status, detail): (Option<RunStatus>, Option<String>),
        answers: bool,
        got_further: GotFurther,
    ) -> Release {
        // Nobody has to resume what is tried again by itself.
        let said = detail.as_deref().map(ua_llm::without_resume);
        let said = said.map_or_else(String::new, |said| format!(": {}", on_one_line(&said)));
        let is_news = self.refusals.note(run, PROVIDER_AWAY, false, answers);
        let Some(wait) = detail.as_deref().and_then(|said| wait_said(said, self.env().now())) else {
            if is_news {
                let pause = OUTAGE.as_secs();
                let sentence = format!("run {run}: {PROVIDER_AWAY}{said}; it is tried again every {pause} s");
                self.say_of(Did::Released, run, status, &sentence);
            }
            let why = format!("{PROVIDER_AWAY}, and is asked again every {} s{said}", OUTAGE.as_secs());
            return self.again(OUTAGE, Some(why), got_further).await;
        };
        let until = self.about_now().await.plus(wait);
        let why = format!("{PROVIDER_AWAY} and asks for a wait: tried again at {until}{said}");
        self.say_of(Did::Released, run, status, &format!("run {run}: {why}"));
        self.again(wait, Some(why), got_further).await
    }

    /// What of a run that was stopped was sent and has not come back, as a part of a sentence: whoever takes the run looks into that first.
    async fn in_doubt(&self, run: &RunId) -> String {
        let mut names = Vec::new();
        for run in tree::with_those_below(&*self.store, run).await.unwrap_or_default() {
            let calls = self.store.calls(&run, None).await.unwrap_or_default();
            let is_in_doubt = |call: &&CallRecord| {
                call.status == CallStatus::Unknown && !call.policy.is_free_read() && !call.name.is_task()
            };
            names.extend(calls.iter().filter(is_in_doubt).map(|call| foreign(&call.name.to_string())));
        }
        if names.is_empty() {
            String::new()
        } else {
            format!(", and nobody knows whether {} happened", names.join(", "))
        }
    }

    /// What becomes of a run of which nothing could be begun here: others may have it at once.
    async fn cannot_begin(&self, run: &RunId, why: &str) -> Release {
        if self.refusals.note(run, why, true, true) {
            let sentence = format!("run {run} cannot begin here: {why}; another worker may take it");
            self.say_of(Did::Released, run, None, &sentence);
        }
        self.note_lacking(run);
        self.unfit(run, &format!("{}: {why}", self.record.place_shown), MOST_DOUBLED_IF_TAKEN).await
    }

    /// Notes that a run could not be done here, and says so once when it is one of many.
    fn note_lacking(&self, run: &RunId) {
        if self.lacking().gave_back(run) {
            self.say(
                Did::Noted,
                "several runs in a row cannot be done here; one a second is tried, so that other workers take them",
            );
        }
    }

    /// Gives back a run that cannot be done here, after it was noted why.
    async fn unfit(&self, run: &RunId, why: &str, most_doubled: u32) -> Release {
        self.refusals.leave(run, most_doubled, self.up());
        if self.unfit_since.note(run, self.up()) {
            let minutes = UNFIT_TOLD.as_secs() / 60;
            self.alert(run, &format!("no worker here could drive run {run} for {minutes} minutes: {why}")).await;
        }
        let at = self.about_now().await;
        Release::Unfit { at, why: on_one_line(why) }
    }

    /// Has whoever wants alerts told that a run waits for something else than an answer.
    async fn alert(&self, run: &RunId, why: &str) {
        let Ok(run) = self.store.run(run).await else { return };
        let people = Nobody::with(&self.stop);
        match Alerts::from_settings(self.host.settings(), self.host.home()) {
            Ok(Some(alerts)) => alerts.tell_of_blocked(&people, &run, &on_one_line(why), self.env().now()).await,
            Ok(None) => {}
            Err(error) => self.say(Did::Noted, &format!("no alert could be sent: {error}")),
        }
    }

    async fn again(&self, pause: Duration, why: Option<String>, further: GotFurther) -> Release {
        self.after_a_pause(pause, why, further, false).await
    }

    async fn after_a_pause(
        &self,
        pause: Duration,
        why: Option<String>,
        GotFurther(got_further): GotFurther,
        is_driven: bool,
    ) -> Release {
        let now = self.about_now().await;
        Release::Ready { not_before: now.plus(pause), since: got_further.then_some(now), why, is_driven }
    }
}

/// Whoever may answer is elsewhere.
pub(super) struct Nobody {
    /// When what is asked for is to stop.
    pub(super) stop: StopSignal,
    /// Who hears of the run that is driven, if there is one.
    pub(super) seen_by: Option<(RunId, Arc<dyn Onlooker>)>,
    /// Where it is noted that the run waits for the database to take what it writes.
    pub(super) writes: Option<Writes>,
    /// Where it is followed what the run waits for outside.
    pub(super) outside: Option<Outside>,
}

impl Nobody {
    /// Nobody hears of anything.
    pub(super) fn with(stop: &StopSignal) -> Self {
        Self { stop: stop.clone(), seen_by: None, writes: None, outside: None }
    }
}

/// What a run that is driven waits for outside, and whether its worker said so.
#[derive(Clone)]
pub(super) struct Outside {
    run: RunId,
    told: Told,
    env: Env,
    waits: Arc<Mutex<BySubAgent>>,
}

/// What the run and each of its sub-agents waits for, and whether that was said.
type BySubAgent = BTreeMap<Option<String>, (Waits, bool)>;

impl Outside {
    fn of(run: &RunId, told: &Told, env: &Env) -> Self {
        Self { run: run.clone(), told: told.clone(), env: env.clone(), waits: Arc::default() }
    }

    /// Says when a wait has lasted for several tries, and when it is over that was said.
    fn watch(&self, seen: &ObservedEvent<'_>) {
        let mut all = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let (waits, is_said) = all.entry(seen.sub_agent.map(str::to_owned)).or_default();
        waits.watch(seen.signal, self.env.now());
        let run = &self.run;
        let sentence = match waits.now() {
            Some(wait) if wait.tries >= TRIES_TOLD && !*is_said => format!("run {run}: {}", wait.in_words()),
            None if *is_said => format!("run {run}: what it was waiting for answers again"),
            Some(_) | None => return,
        };
        *is_said = waits.now().is_some();
        drop(all);
        (self.told)(&WorkerEvent::of_run(Did::Noted, run, Some(RunStatus::Running), &sentence));
    }

    /// The longest of the waits of the run and its sub-agents.
    fn longest(&self) -> Option<OutsideWait> {
        let all = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(|(waits, _)| waits.now()).min_by_key(|wait| wait.since).cloned()
    }
}

/// Which of the waits of a run were told to whoever wants alerts.
#[derive(Debug, Default)]
struct LongWaits {
    /// Since when it waited of which that was told last.
    told: Option<Timestamp>,
}

impl LongWaits {
    /// The wait that is to be told now, of that which the run is in: one that has lasted, and was not told.
    fn due(&self, wait: Option<OutsideWait>, now: Timestamp) -> Option<OutsideWait> {
        wait.filter(|wait| self.told != Some(wait.since) && now.since(wait.since) >= WAIT_TOLD)
    }

    /// It is told.
    fn told(&mut self, wait: &OutsideWait) {
        self.told = Some(wait.since);
    }
}

/// The writes of a run that is driven.
pub(super) struct Writes {
    run: RunId,
    health: Health,
}

impl Writes {
    /// One waits for the database from what is told of it until anything else is told of the run.
    fn watch(&self, event: &RunEvent) {
        let now = self.health.now();
        let mut state = self.health.state();
        if matches!(event, RunEvent::DatabaseBusy { .. } | RunEvent::DatabaseFull { .. }) {
            state.waiting_writes.entry(self.run.clone()).or_insert(now);
        } else if !crate::waits::tells_of_answers(event) {
            state.waiting_writes.remove(&self.run);
        }
    }
}

impl Drop for Writes {
    fn drop(&mut self) {
        self.health.state().waiting_writes.remove(&self.run);
    }
}

#[async_trait]
impl People for Nobody {
    fn presence(&self) -> Presence {
        Presence::Nobody
    }

    fn stop_signal(&self, _env: &Env) -> Result<StopSignal, HostError> {
        Ok(self.stop.clone())
    }

    fn tries_again(&self) -> bool {
        true
    }

    fn watch(&self, seen: &ObservedEvent<'_>) {
        if let Some(writes) = &self.writes {
            writes.watch(seen.signal);
        }
        if let Some(outside) = &self.outside {
            outside.watch(seen);
        }
        if let Some((run, onlooker)) = &self.seen_by {
            onlooker.watch(run, seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::since::tests::Settable;
    use super::*;

    /// Over all orders of three reasons: what is refused for one reason three times in a row is lasting, and nothing else; and each change of the
    /// reason is news once.
    #[test]
    fn a_refusal_lasts_that_comes_again_and_again() {
        let run = RunId::parse("r").unwrap();
        let reasons = ["in two copies", "the disk is full", "somebody drives it"];
        for order in 0..3_usize.pow(5) {
            let refusals = Refusals::default();
            let (mut before, mut in_a_row) = (None, 0);
            for place in 0..5_u32 {
                let why = reasons[order / 3_usize.pow(place) % 3];
                let is_counted = why != reasons[2];
                let is_news = refusals.note(&run, why, false, is_counted);
                in_a_row = if before == Some(why) { in_a_row + 1 } else { 1 };
                assert_eq!(is_news, before != Some(why), "{order}");
                assert_eq!(refusals.all()[&run].is_lasting(), is_counted && in_a_row >= 3, "{order}");
                assert!(!refusals.begin(&run), "it is not said again and again");
                before = Some(why);
            }
        }
    }

    #[tokio::test]
    async fn a_look_that_takes_long_is_told_once_and_waited_for() {
        let env = Env::simulated(1);
        for (waits, told) in [(false, 0), (true, 1)] {
            let (since, mut times) = (env.now(), 0);
            let look = async {
                // The simulated clock moves when nothing else does.
                if waits {
                    tokio::task::yield_now().await;
                }
                7
            };
            assert_eq!((looking(&env, look, || times += 1).await, times), (7, told));
            assert_eq!(env.now().since(since) >= SILENT, waits);
        }
    }

    /// Over the minutes of a run: a wait is told once, as soon as it has lasted; one that is over before is not, one that could not be told is told
    /// later, and a wait behind another is another one.
    #[tokio::test]
    async fn each_wait_of_a_run_that_lasts_is_told_once() {
        let (env, run) = (Env::simulated(1), RunId::parse("r").unwrap());
        let begun = env.now();
        let told: Told = Arc::new(|_: &WorkerEvent| {});
        let outside = Outside::of(&run, &told, &env);
        let minutes = |n: u64| begun.plus(Duration::from_mins(n));
        // From when to when a provider, or the tool server of a sub-agent, is away.
        let provider = [(1, 4), (10, 30), (70, 90)];
        let server = [(40, 60), (68, 72)];
        let mut long = LongWaits::default();
        let mut due = Vec::new();
        while env.now() < minutes(100) {
            let now = env.now();
            let is_away =
                |spans: &[(u64, u64)]| spans.iter().any(|(from, to)| minutes(*from) <= now && now < minutes(*to));
            let why = || "busy".to_owned();
            let (wait_millis, left_millis, ends_in_millis) = (5_000, 60_000, None);
            let (may_be_billed, was_sent, attempt) = (false, false, 2);
            let answers = || RunEvent::Committed { turn: 1 };
            let of_provider = if is_away(&provider) {
                RunEvent::Retrying { attempt, why: why(), wait_millis, left_millis, may_be_billed, ends_in_millis }
            } else {
                answers()
            };
            let of_server = if is_away(&server) {
                RunEvent::ToolServerAway { was_sent, attempt, why: why(), wait_millis, left_millis, ends_in_millis }
            } else {
                answers()
            };
            for (sub_agent, signal) in [(None, &of_provider), (Some("the sub-agent"), &of_server)] {
                outside.watch(&ObservedEvent { sub_agent, elapsed: now.since(begun), line: None, signal });
            }
            if let Some(wait) = long.due(outside.longest(), now) {
                due.push((wait.since, now));
                // Once the database cannot be read.
                if due.len() != 2 {
                    long.told(&wait);
                }
            }
            env.clock.sleep(RENEWAL).await;
        }
        let lasted = |from: u64| (minutes(from), minutes(from).plus(WAIT_TOLD));
        let again = (minutes(40), minutes(40).plus(WAIT_TOLD).plus(RENEWAL));
        assert_eq!(due, [lasted(10), lasted(40), again, lasted(70)]);
    }

    /// A write that waits is noted from the first word of it until the run has another, or is not driven any more.
    #[test]
    fn a_run_whose_write_waits_is_noted_until_it_gets_on() {
        let env = Env::simulated(1);
        let (health, run) = (Health::new(&env, 1), RunId::parse("r").unwrap());
        let waits = || health.state().waiting_writes.get(&run).copied();
        let writes = Writes { run: run.clone(), health: health.clone() };
        let busy = || RunEvent::DatabaseBusy { doing: "store".to_owned(), why: "locked".to_owned() };
        let full = RunEvent::DatabaseFull { doing: "store".to_owned(), why: "full".to_owned(), left_millis: 9 };
        let since = Since::now(&env);
        writes.watch(&busy());
        env.clock.sleep_blocking_for_tests(POLL);
        writes.watch(&full);
        assert_eq!(waits(), Some(since), "another reason is no other wait");
        writes.watch(&RunEvent::TimeUsedUp { max_minutes: 1 });
        assert_eq!(waits(), None);
        writes.watch(&busy());
        assert!(waits().is_some());
        drop(writes);
        assert_eq!(waits(), None);
    }

    /// Also where no budget has to be raised for it, and where it was a sub-agent that stopped.
    #[test]
    fn no_run_is_tried_again_before_its_provider_asks_for_it() {
        let now = Env::simulated(1).now();
        let until = now.plus(Duration::from_mins(20));
        let asked = AskedWait { wait: Duration::from_hours(1), until };
        for said in [
            format!("busy (429). {asked}, and the run would wait for 2 min more. Resume it later."),
            format!(
                "sub-agent t: busy. {asked}, and the run waits no longer. Have it wait: `--max-wallclock-minutes +61`."
            ),
        ] {
            assert_eq!(wait_said(&said, now), Some(Duration::from_mins(20)), "{said}");
            assert_eq!(wait_said(&said, until), None, "it is over");
        }
        let mut run = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#).records.run;
        (run.status, run.stop_reason) = (RunStatus::Stopped, Some(RunStop::Provider));
        run.status_detail = Some(format!("busy. {asked}."));
        assert!(is_put_off(&run, now) && !is_put_off(&run, until));
        run.cancel_requested_at = Some(now);
        assert!(!is_put_off(&run, now), "it is to end");
        let unasked = "The next try would come after a wait of 2 min. Have it wait: `--max-wallclock-minutes +3`.";
        assert_eq!(wait_said(unasked, now), Some(Duration::from_mins(3)));
        assert_eq!(wait_said("the connection was refused", now), None);
    }

    /// Each reason of a stop: whoever works until nothing is left leaves a run that somebody has to do something about, and says what.
    #[test]
    fn what_was_parked_for_somebody_to_correct_is_left_with_its_next_step() {
        let mut story = ua_evidence::testing::Story::new(r#"{"objective": "x"}"#);
        let id = story.records.run.run_id.clone();
        let mut entry = QueueEntry {
            run_id: id.clone(),
            options: ua_store::QueueOptions::at(story.records.run.created_at),
            queued_at: story.records.run.created_at,
            not_before: None,
            line: 0,
            seq: 0,
            state: QueueState::Parked,
            worker: None,
            words: 0,
            strikes: 0,
            why: Some("its reason".to_owned()),
        };
        for reason in RunStop::ALL.iter().copied() {
            story.ends(RunStatus::Stopped, Some(reason), "tools changed. Resume with --accept tools");
            let left = why_parked(&entry, &story.records.run);
            let way = match reason {
                RunStop::Budget => {
                    assert_eq!(left, None);
                    continue;
                }
                RunStop::UnknownModel => format!("`ua fork {id} --model MODEL`"),
                RunStop::ProviderRefused => format!("`ua resume {id}` finishes it once what stopped it is corrected"),
                RunStop::Fingerprint => format!("`ua resume {id} --accept tools`"),
                RunStop::Interrupt | RunStop::Provider | RunStop::ToolServer | RunStop::Idle => {
                    format!("`ua queue move {id}`")
                }
            };
            let left = left.unwrap();
            assert!(left.starts_with("its reason; ") && left.contains(&way), "{reason}: {left}");
        }
        story.ends(
            RunStatus::Stopped,
            Some(RunStop::Fingerprint),
            "policy changed, accept it: `ua resume r --accept policy`.",
        );
        let left = why_parked(&entry, &story.records.run).unwrap();
        assert!(left.ends_with(&format!("`ua queue move {id} --accept policy` has a worker continue it")), "{left}");
        entry.why = Some(format!("{}\nthe end", "long ".repeat(100)));
        let left = why_parked(&entry, &story.records.run).unwrap();
        assert!(left.contains("long  the end; "), "a log has all of it: {left}");
        entry.why = None;
        for (status, is_left) in [
            (RunStatus::Queued, true),
            (RunStatus::Running, true),
            (RunStatus::WaitingForHuman, false),
            (RunStatus::Succeeded, false),
            (RunStatus::Failed, false),
            (RunStatus::Cancelled, false),
        ] {
            let run = RunRecord { status, stop_reason: None, ..story.records.run.clone() };
            assert_eq!(why_parked(&entry, &run).is_some(), is_left, "{status}");
        }
    }

    /// Whatever was missing in turn: who waits for five minutes is told of, and whoever got on meanwhile is not.
    #[test]
    fn a_run_that_nobody_drives_for_long_is_told() {
        let (run, since, mut now) = (RunId::parse("r").unwrap(), UnfitSince::default(), Duration::from_hours(9));
        for waited in [0, 2, 4, 5, 6, 50, 70] {
            let told = since.note(&run, now + Duration::from_mins(waited));
            assert_eq!(told, waited >= 5, "{waited}");
        }
        since.forget(&run);
        now += Duration::from_hours(3);
        assert!(!since.note(&run, now) && !since.note(&run, now + UNFIT_TOLD / 2));
    }

    /// Over what somebody sets the clock of the machine to: a worker renews as often as ever.
    #[test]
    fn a_lease_is_renewed_whatever_the_clock_is_set_to() {
        for by in [-86_400_000, -6_000, 0, 86_400_000] {
            let (clock, env) = Settable::with_env();
            assert!(is_renewal_due(None, &env), "the first look renews");
            let (mut renewed, mut times) = (Some(Since::now(&env)), 0);
            clock.set(by);
            for _ in 0..120 {
                clock.pass(POLL);
                if is_renewal_due(renewed, &env) {
                    (renewed, times) = (Some(Since::now(&env)), times + 1);
                }
            }
            assert_eq!(times, 12, "{by}");
        }
    }

    #[test]
    fn what_is_not_here_lasts_at_once_until_it_is() {
        let (run, refusals) = (RunId::parse("r").unwrap(), Refusals::default());
        assert!(refusals.note(&run, "no key", true, true) && !refusals.note(&run, "no key", true, true));
        assert!(refusals.all()[&run].is_lasting());
        assert!(refusals.begin(&run) && refusals.all().is_empty());
    }
}
