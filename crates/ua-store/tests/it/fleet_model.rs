//! Workers as a machine: everything that can happen to processes, machines and clocks, in any order, around the real rules of the queue.
//!
//! A process is what `ua worker` is: it renews its lease, claims, takes the lock and the epoch of a run, sends, writes down what came of it, and
//! lets go. It is stopped, goes on, is killed, is told to stop; its clock is wrong; its machine is another one. What it may never do: send
//! an effect that was sent before without a person's word, drive a run beside another process, lose a run, or sit on more seats than there are.
//! Each rule that is broken on purpose has to be seen.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_oneof};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use serde_json::json;
use ua_core::Timestamp;
use ua_store::conformance::samples::{self, at, run_id};
use ua_store::fleet::LEASE;
use ua_store::{
    ConcurrencyKey, FleetChange, FleetStore as _, MemStore, OverrideKind, QueueEntry, QueueOptions, QueueState,
    Release, RunStore as _, StoreError, WorkerRecord,
};

const RUNS: usize = 4;
/// How many effects each run has.
const EFFECTS: usize = 2;
/// Two on the first machine, one on the second.
const PLACES: [usize; 3] = [0, 0, 1];
/// Runs of the key at once.
const SEATS: u32 = 2;
const SLOTS: u32 = 2;
/// How often a process renews its lease, and how long it leaves a run alone that it cannot drive.
const PAUSE: i64 = 5;

/// Why a run is parked whose call is in doubt.
const ASKS: &str = "it asks";

/// What can happen.
#[derive(Debug, Clone)]
enum Step {
    Pass(u8),
    Turn(usize),
    /// A look whose answer is lost on the way.
    Unheard(usize),
    Work(usize),
    Arrive(usize),
    Stop(usize),
    Continue(usize),
    Kill(usize),
    Begin(usize),
    Terminate(usize),
    Drain(usize),
    Word(usize),
    Forget(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let process = || 0..PLACES.len();
    prop_oneof![
        3 => (1_u8..40).prop_map(Step::Pass),
        6 => process().prop_map(Step::Turn),
        1 => process().prop_map(Step::Unheard),
        6 => process().prop_map(Step::Work),
        2 => process().prop_map(Step::Arrive),
        1 => process().prop_map(Step::Stop),
        1 => process().prop_map(Step::Continue),
        1 => process().prop_map(Step::Kill),
        2 => process().prop_map(Step::Begin),
        1 => process().prop_map(Step::Terminate),
        1 => process().prop_map(Step::Drain),
        2 => (0..RUNS).prop_map(Step::Word),
        1 => (0_usize..2).prop_map(Step::Forget),
    ]
}

/// The rule that a process breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// It drives a run though another process has its lock.
    Lock,
    /// It goes on under an epoch that is not the newest.
    Epoch,
    /// A call that may have been sent is sent again, and nobody is asked.
    Doubt,
    /// It judges leases by its own clock.
    Clock,
    /// It goes on with what it had after a person said that its machine is gone.
    Forgotten,
    /// What it claimed and was not told of stays with it.
    Unheard,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Works,
    Stopped,
    Gone,
}

/// A run in the hands of a process.
#[derive(Debug, Clone, Copy)]
struct Held {
    run: usize,
    epoch: u64,
}

#[derive(Debug)]
struct Process {
    name: String,
    place: usize,
    life: Life,
    renewed_at: i64,
    held: Vec<Held>,
    /// By how many seconds its clock is wrong.
    skew: i64,
}

/// What is true of a run.
#[derive(Debug, Clone, Default)]
struct Truth {
    /// How often each effect was had.
    had: [u32; EFFECTS],
    /// How many of them are written down.
    written: usize,
    /// One was sent, and what came of it is not written down.
    is_in_flight: bool,
    epoch: u64,
    /// The process that has its lock.
    locked_by: Option<usize>,
    /// The machine that has begun it.
    place: Option<usize>,
    is_done: bool,
}

struct Fleet {
    store: MemStore,
    broken: Broken,
    now: i64,
    born: u32,
    processes: Vec<Process>,
    runs: Vec<Truth>,
    /// What was sent and has not arrived yet.
    flying: Vec<Flight>,
}

/// A call in the hands of a tool server, which ends with the process that started it.
#[derive(Debug, Clone, Copy)]
struct Flight {
    process: usize,
    run: usize,
    effect: usize,
}

type Checked<T = ()> = Result<T, TestCaseError>;

fn wrong<T>(why: impl Into<String>) -> Checked<T> {
    Err(TestCaseError::fail(why.into()))
}

fn name_of(run: usize) -> String {
    format!("run_{run}")
}

impl Fleet {
    async fn new(broken: Broken) -> Checked<Self> {
        let processes = PLACES.iter().enumerate().map(|(number, place)| Process {
            name: format!("w{number}_0"),
            place: *place,
            life: Life::Gone,
            renewed_at: -PAUSE,
            held: Vec::new(),
            skew: if number == 0 { 0 } else { 45 },
        });
        let mut fleet = Self {
            store: MemStore::new(),
            broken,
            now: 0,
            born: 0,
            processes: processes.collect(),
            runs: vec![Truth::default(); RUNS],
            flying: Vec::new(),
        };
        for run in 0..RUNS {
            let mut new = samples::new_run(&name_of(run));
            new.spec.job_key = None;
            fleet.done(fleet.store.submit_run(new).await)?;
            let seats = ConcurrencyKey { key: "key".to_owned(), limit: SEATS };
            // One run has no limit.
            let options = QueueOptions {
                concurrency: (run > 0).then_some(seats),
                fair_key: Some(format!("k{}", run % 2)),
                ..QueueOptions::at(at(0))
            };
            fleet.done(
                fleet.store.fleet(FleetChange::Enqueue { run: run_id(&name_of(run)), options, at: at(0) }).await,
            )?;
        }
        fleet.begin(0).await?;
        Ok(fleet)
    }

    fn done<T>(&self, done: Result<T, StoreError>) -> Checked<T> {
        done.or_else(|error| wrong(format!("at {}: {error}", self.now)))
    }

    /// The clock of the database; of a process that breaks the rule, its own.
    fn clock(&self, process: usize) -> Timestamp {
        at(self.now + if self.broken == Broken::Clock { self.processes[process].skew } else { 0 })
    }

    async fn register(&mut self, process: usize) -> Checked {
        let since = self.clock(process);
        let Process { name, place, .. } = &self.processes[process];
        let record = WorkerRecord {
            worker: name.clone(),
            place: format!("place_{place}"),
            place_shown: format!("machine {place}"),
            owner: samples::owner(7),
            version: "1.0.0".to_owned(),
            queues: Vec::new(),
            slots: SLOTS,
            started_at: since,
            lease_until: since.plus(LEASE),
            is_draining: false,
        };
        self.done(self.store.fleet(FleetChange::Register(record)).await)?;
        self.processes[process].renewed_at = self.now;
        Ok(())
    }

    async fn begin(&mut self, process: usize) -> Checked {
        if self.processes[process].life != Life::Gone {
            return Ok(());
        }
        self.born += 1;
        let born = self.born;
        let one = &mut self.processes[process];
        (one.name, one.life) = (format!("w{process}_{born}"), Life::Works);
        self.register(process).await
    }

    /// One look of a worker, as `ua worker` looks.
    async fn turn(&mut self, process: usize, is_heard: bool) -> Checked {
        if self.processes[process].life != Life::Works {
            return Ok(());
        }
        let (name, place) = (self.processes[process].name.clone(), self.processes[process].place);
        if self.now - self.processes[process].renewed_at >= PAUSE {
            let lease_until = self.clock(process).plus(LEASE);
            match self.store.fleet(FleetChange::Renew { worker: name.clone(), lease_until }).await {
                Ok(_) => self.processes[process].renewed_at = self.now,
                Err(StoreError::NotFound { .. }) => self.register(process).await?,
                Err(error) => return wrong(error.to_string()),
            }
        }
        let free = (SLOTS as usize).saturating_sub(self.processes[process].held.len());
        if free == 0 {
            return Ok(());
        }
        let state = self.done(self.store.fleet_state(100).await)?;
        let is_dead = |worker: &WorkerRecord| {
            worker.place == format!("place_{place}")
                && !self.processes.iter().any(|one| one.name == worker.worker && one.life != Life::Gone)
        };
        let dead: Vec<String> = state.workers.iter().filter(|one| is_dead(one)).map(|one| one.worker.clone()).collect();
        let (most, now) = (u32::try_from(free).unwrap_or(1), self.clock(process));
        let holds: Vec<_> = if self.broken == Broken::Unheard {
            (0..RUNS).map(|run| run_id(&name_of(run))).collect()
        } else {
            self.processes[process].held.iter().map(|held| run_id(&name_of(held.run))).collect()
        };
        let claim = |dead| FleetChange::Claim {
            worker: name.clone(),
            holds: holds.clone(),
            most,
            dead,
            avoids: Vec::new(),
            at: now,
        };
        let done = match self.store.fleet(claim(dead.clone())).await {
            Err(StoreError::NotFound { .. }) => {
                self.register(process).await?;
                self.done(self.store.fleet(claim(Vec::new())).await)?
            }
            done => self.done(done)?,
        };
        let left = self.done(self.store.fleet_state(100).await)?.workers;
        if let Some(one) = left.iter().find(|one| dead.contains(&one.worker)) {
            return wrong(format!("{} is proved to be dead, and stays", one.worker));
        }
        for entry in done.entries.into_iter().filter(|_| is_heard) {
            self.take(process, entry).await?;
        }
        Ok(())
    }

    async fn release(&self, process: usize, run: usize, release: Release) -> Checked {
        let worker = self.processes[process].name.clone();
        self.done(self.store.fleet(FleetChange::Release { worker, run: run_id(&name_of(run)), release }).await)
            .map(drop)
    }

    /// What a worker does with a run that it claimed.
    async fn take(&mut self, process: usize, entry: QueueEntry) -> Checked {
        let Some(run) = (0..RUNS).find(|run| name_of(*run) == entry.run_id.to_string()) else {
            return wrong("a run that nobody queued");
        };
        if self.runs[run].is_done {
            return self.release(process, run, Release::Done).await;
        }
        let place = self.processes[process].place;
        let is_elsewhere = self.runs[run].place.is_some_and(|held| held != place);
        let is_locked = self.broken != Broken::Lock
            && self.runs[run].locked_by.is_some_and(|owner| {
                // A lock is a machine's own: another one does not see it. Whoever was taken for dead may be offered what it has, too.
                self.processes[owner].place == place && self.processes[owner].life != Life::Gone
            });
        if is_elsewhere || is_locked {
            // On a server it is not offered elsewhere at all; here it goes on to the next that looks.
            let pause = if is_elsewhere { 0 } else { PAUSE };
            let later =
                Release::Ready { not_before: at(self.now + pause), since: None, why: None, is_driven: is_locked };
            return self.release(process, run, later).await;
        }
        let truth = &mut self.runs[run];
        truth.epoch += 1;
        (truth.locked_by, truth.place) = (Some(process), Some(place));
        if truth.is_in_flight && self.broken != Broken::Doubt {
            truth.locked_by = None;
            return self.release(process, run, Release::Parked { why: Some(ASKS.to_owned()) }).await;
        }
        truth.is_in_flight = false;
        let epoch = truth.epoch;
        self.processes[process].held.push(Held { run, epoch });
        Ok(())
    }

    /// Sends the next effect of a run, or writes down what came of it.
    async fn work(&mut self, process: usize) -> Checked {
        if self.processes[process].life != Life::Works {
            return Ok(());
        }
        let Some(Held { run, epoch }) = self.processes[process].held.first().copied() else { return Ok(()) };
        let truth = &mut self.runs[run];
        if truth.epoch != epoch && self.broken != Broken::Epoch {
            // Refused by the store: another one has it, or its machine was forgotten.
            truth.locked_by = truth.locked_by.filter(|owner| *owner != process);
            self.processes[process].held.remove(0);
            return Ok(());
        }
        if !truth.is_in_flight && truth.written < EFFECTS {
            truth.is_in_flight = true;
            let effect = truth.written;
            self.flying.push(Flight { process, run, effect });
            return Ok(());
        }
        self.arrive(process);
        let truth = &mut self.runs[run];
        truth.is_in_flight = false;
        truth.written = (truth.written + 1).min(EFFECTS);
        self.processes[process].held.rotate_left(1);
        if truth.written == EFFECTS {
            (truth.is_done, truth.locked_by) = (true, None);
            self.processes[process].held.retain(|held| held.run != run);
            self.release(process, run, Release::Done).await?;
        }
        Ok(())
    }

    /// What a process sent has its effect.
    fn arrive(&mut self, process: usize) {
        let (arrived, flying) = self.flying.iter().partition(|flight| flight.process == process);
        self.flying = flying;
        let arrived: Vec<Flight> = arrived;
        for flight in &arrived {
            self.runs[flight.run].had[flight.effect] += 1;
        }
    }

    /// It lets what was sent come back, and gives everything to others.
    async fn terminate(&mut self, process: usize) -> Checked {
        if self.processes[process].life != Life::Works {
            return Ok(());
        }
        self.arrive(process);
        for Held { run, epoch } in std::mem::take(&mut self.processes[process].held) {
            let truth = &mut self.runs[run];
            if truth.epoch == epoch {
                if truth.is_in_flight {
                    (truth.is_in_flight, truth.written) = (false, truth.written + 1);
                }
                truth.is_done = truth.written == EFFECTS;
                truth.locked_by = None;
                let ready = Release::Ready { not_before: at(self.now), since: None, why: None, is_driven: false };
                self.release(process, run, if self.runs[run].is_done { Release::Done } else { ready }).await?;
            }
        }
        let worker = self.processes[process].name.clone();
        self.done(self.store.fleet(FleetChange::Leave { worker }).await)?;
        self.die(process);
        Ok(())
    }

    fn die(&mut self, process: usize) {
        let one = &mut self.processes[process];
        one.life = Life::Gone;
        one.held.clear();
        self.flying.retain(|flight| flight.process != process);
        for truth in self.runs.iter_mut().filter(|truth| truth.locked_by == Some(process)) {
            truth.locked_by = None;
        }
    }

    /// A person looks, and says what happened, or has a run tried again that workers died with.
    async fn word(&mut self, run: usize) -> Checked {
        let entry = self.done(self.store.queued(&run_id(&name_of(run))).await)?;
        let Some(entry) = entry.filter(|entry| entry.state == QueueState::Parked) else { return Ok(()) };
        if self.runs[run].is_done {
            return Ok(());
        }
        // There is a question only where a process took the run and found it in doubt; what was parked because workers died with it may still be
        // driven by one that was silent for too long.
        if self.runs[run].is_in_flight && entry.why.as_deref() == Some(ASKS) {
            let truth = &mut self.runs[run];
            truth.is_in_flight = false;
            truth.written += usize::from(truth.had[truth.written] > 0);
            let word = samples::new_override(&name_of(run), OverrideKind::Budget, "max_turns", json!(9));
            self.done(self.store.insert_override(word).await)?;
        } else {
            let again = FleetChange::Move { run: run_id(&name_of(run)), queue: None, priority: None };
            self.done(self.store.fleet(again).await)?;
        }
        Ok(())
    }

    /// A person says that a machine is gone: it is off, or stands still with no tool at work. Nothing is promised of another one.
    async fn forget(&mut self, place: usize) -> Checked {
        let is_at_work = self.processes.iter().any(|one| one.place == place && one.life == Life::Works);
        if is_at_work || self.flying.iter().any(|flight| self.processes[flight.process].place == place) {
            return Ok(());
        }
        let forget = FleetChange::ForgetPlace { place: format!("place_{place}"), at: at(self.now) };
        match self.store.fleet(forget).await {
            Ok(_) => {
                for run in self.runs.iter_mut().filter(|run| run.place == Some(place)) {
                    run.place = None;
                    // What a server's store does; of one machine's database no other place can be forgotten.
                    run.epoch += u64::from(self.broken != Broken::Forgotten);
                }
            }
            // A lease that still lasts.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return wrong(error.to_string()),
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Checked {
        match *step {
            Step::Pass(seconds) => self.now += i64::from(seconds),
            Step::Turn(process) => self.turn(process, true).await?,
            Step::Unheard(process) => self.turn(process, false).await?,
            Step::Work(process) => self.work(process).await?,
            Step::Arrive(process) => self.arrive(process),
            Step::Stop(process) => {
                let one = &mut self.processes[process];
                one.life = if one.life == Life::Works { Life::Stopped } else { one.life };
            }
            Step::Continue(process) => {
                let one = &mut self.processes[process];
                one.life = if one.life == Life::Stopped { Life::Works } else { one.life };
            }
            Step::Kill(process) => self.die(process),
            Step::Begin(process) => self.begin(process).await?,
            Step::Terminate(process) => self.terminate(process).await?,
            Step::Drain(process) => {
                let drain = FleetChange::Drain { worker: self.processes[process].name.clone() };
                match self.store.fleet(drain).await {
                    Ok(_) | Err(StoreError::NotFound { .. }) => {}
                    Err(error) => return wrong(error.to_string()),
                }
            }
            Step::Word(run) => self.word(run).await?,
            Step::Forget(place) => self.forget(place).await?,
        }
        self.holds().await
    }

    /// What must hold after each step.
    async fn holds(&self) -> Checked {
        for (run, truth) in self.runs.iter().enumerate() {
            if truth.had.iter().any(|had| *had > 1) {
                return wrong(format!("run {run} had {:?} of each effect", truth.had));
            }
            let drivers = self.processes.iter().filter(|one| {
                one.life != Life::Gone && one.held.iter().any(|held| held.run == run && held.epoch == truth.epoch)
            });
            if drivers.count() > 1 {
                return wrong(format!("run {run} is driven twice"));
            }
        }
        let state = self.done(self.store.fleet_state(100).await)?;
        let queued: BTreeSet<String> = state.queue.iter().map(|entry| entry.run_id.to_string()).collect();
        for run in (0..RUNS).filter(|run| !self.runs[*run].is_done) {
            if !queued.contains(&name_of(run)) {
                return wrong(format!("run {run} is lost"));
            }
        }
        let claimed = state.queue.iter().filter(|entry| entry.state == QueueState::Claimed);
        let mut seats: BTreeMap<&str, u32> = BTreeMap::new();
        for entry in claimed {
            if !state.workers.iter().any(|worker| Some(&worker.worker) == entry.worker.as_ref()) {
                return wrong(format!("{} is claimed by nobody", entry.run_id));
            }
            if let Some(key) = &entry.options.concurrency {
                *seats.entry(&key.key).or_default() += 1;
            }
        }
        if seats.values().any(|taken| *taken > SEATS) {
            return wrong(format!("{seats:?} are at work at once"));
        }
        // Who renews in time is not taken for dead.
        for one in self.processes.iter().filter(|one| one.life == Life::Works && self.now - one.renewed_at < 30) {
            if !state.workers.iter().any(|worker| worker.worker == one.name) {
                return wrong(format!("{} is alive, and was taken for dead", one.name));
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: everything is done in the end, each effect once.
    async fn comes_to_an_end(&mut self) -> Checked {
        for _ in 0..120 {
            self.now += 1;
            for process in 0..PLACES.len() {
                if self.processes[process].life == Life::Stopped {
                    self.processes[process].life = Life::Works;
                }
                self.begin(process).await?;
                // Whoever was told to take nothing more is started anew.
                let workers = self.done(self.store.fleet_state(0).await)?.workers;
                if workers.iter().any(|worker| worker.worker == self.processes[process].name && worker.is_draining) {
                    self.terminate(process).await?;
                    self.begin(process).await?;
                }
                self.turn(process, true).await?;
                self.work(process).await?;
            }
            for run in 0..RUNS {
                self.word(run).await?;
            }
            self.holds().await?;
        }
        match self.runs.iter().position(|truth| !truth.is_done || truth.had != [1; EFFECTS]) {
            Some(run) => wrong(format!("run {run} came to {:?}", self.runs[run])),
            None => Ok(()),
        }
    }
}

/// Plays so many cases, the same ones each time unless they are to be others; the shortest that goes wrong.
fn play(broken: Broken, cases: u32, is_random: bool) -> Result<(), String> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(|error| error.to_string())?;
    let known = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = if is_random { TestRunner::new(config) } else { TestRunner::new_with_rng(config, known) };
    let played = runner.run(&vec(step(), 1..90), |steps| {
        runtime.block_on(async {
            let mut fleet = Fleet::new(broken).await?;
            for step in &steps {
                fleet.step(step).await?;
            }
            fleet.comes_to_an_end().await
        })
    });
    played.map_err(|error| error.to_string())
}

/// How many, before each change or at night (`UA_FLEET_WHOLE`).
fn cases() -> u32 {
    if std::env::var_os("UA_FLEET_WHOLE").is_some() { 20_000 } else { 300 }
}

#[test]
fn whatever_happens_to_workers_each_effect_is_had_once() {
    if let Err(why) = play(Broken::Nothing, cases(), true) {
        panic!("{why}");
    }
}

#[test]
fn each_broken_rule_of_workers_is_seen() {
    for broken in [Broken::Lock, Broken::Epoch, Broken::Doubt, Broken::Clock, Broken::Forgotten, Broken::Unheard] {
        assert!(play(broken, 20_000, false).is_err(), "{broken:?} was not seen");
    }
}

#[test]
fn steps_of_all_kinds_are_drawn() {
    let mut runner = TestRunner::deterministic();
    let drawn = vec(step(), 400).new_tree(&mut runner).unwrap();
    let steps = proptest::strategy::ValueTree::current(&drawn);
    let kinds: BTreeSet<_> = steps.iter().map(std::mem::discriminant).map(|kind| format!("{kind:?}")).collect();
    assert_eq!(kinds.len(), 13);
}
