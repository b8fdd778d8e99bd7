//! The stage: everything that can happen next, and the draw that decides which of it does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::json;
use ua_core::{Env, RunId, RunStatus, RunStop, SeededEntropy, Timestamp, sha256};
use ua_gateway::StopSignal;
use ua_store::{RunRecord, StoreError};

use super::chance::Chance;
use super::clock::StageClock;
use super::gates::{Gate, Gates, LifePlan, Side};
use super::harm::Harm;
use super::job::{Intents, Kind, Tool};
use super::life::{BoxError, Life, words_of};
use super::model::SimModel;
use super::person;
use super::servers::{Reach, Request, Servers, ToolFault};
use super::store::StageStore;
use super::task::{Task, block_on};
use super::verdict;
use super::{Counts, Report, SimOptions};
use crate::store_fault::StoreFault;

/// The most decisions of one simulation; one that goes on for longer does not end.
const MOST_STEPS: u64 = 6_000;

/// A process on the stage.
pub(super) struct Actor {
    task: Option<Task<Result<RunStatus, BoxError>>>,
    stop: StopSignal,
    /// Its first write as an owner was committed, whether or not it knows.
    has_owned: bool,
    is_asleep: bool,
    is_replaced: bool,
    /// It had ended the run already when it was replaced.
    had_concluded: bool,
    met_a_store_fault: bool,
    was_signalled: bool,
    /// Gates that it passed.
    passed: u64,
}

impl Actor {
    fn is_awake(&self) -> bool {
        self.task.is_some() && !self.is_asleep
    }
}

/// What can happen next.
#[derive(Debug, Clone)]
enum Happening {
    GoOn(Gate),
    Refuse(Gate, StoreFault),
    Die(usize),
    Sleep(usize),
    WakeUp(usize),
    Signal(usize),
    StopAtOnce(usize),
    Act(Request),
    Answer(Request),
    Duplicate(Request),
    Fail(Request, ToolFault),
    Lose(Request),
    NextWait(Timestamp),
    Hour,
    Start,
    PersonLooks,
    RaiseBudgets,
    Cancel,
}

pub(super) struct Stage {
    chance: Chance,
    harm: Harm,
    deaths: Option<Vec<u64>>,
    pub(super) intents: Intents,
    pub(super) clock: Arc<StageClock>,
    gates: Arc<Gates>,
    pub(super) servers: Arc<Servers>,
    pub(super) model: Arc<SimModel>,
    pub(super) store: StageStore,
    env: Env,
    pub(super) run: RunId,
    job: serde_json::Value,
    folder: tempfile::TempDir,
    options: SimOptions,
    actors: Vec<Actor>,
    pub(super) counts: Counts,
    pub(super) violations: Vec<String>,
    trace: Vec<String>,
    budgets_are_raised: bool,
    pub(super) was_cancelled: bool,
    pub(super) was_careless: bool,
}

impl Stage {
    /// Plays a simulation to its end.
    pub(super) fn play(options: &SimOptions) -> Result<Report, BoxError> {
        let mut stage = Self::set(options)?;
        while !stage.is_over()? && stage.violations.is_empty() {
            stage.counts.steps += 1;
            if stage.counts.steps > MOST_STEPS {
                stage.violations.push(format!("it does not end within {MOST_STEPS} steps"));
                break;
            }
            let Some(next) = stage.draw()? else {
                stage.violations.push("nothing can happen any more, and the run has not ended".to_owned());
                break;
            };
            stage.happen(next)?;
            let soon = stage.env.now().plus(Duration::from_millis(1));
            stage.advance(soon);
            stage.settle()?;
        }
        verdict::judge(&mut stage)?;
        stage.counts.effects = u64::try_from(stage.servers.effects().len()).unwrap_or(u64::MAX);
        let digest = sha256(stage.trace.join("\n"));
        let gates = stage.actors.iter().map(|actor| actor.passed).collect();
        let Self { trace, violations, counts, .. } = stage;
        Ok(Report { trace, digest, violations, counts, gates })
    }

    fn set(options: &SimOptions) -> Result<Self, BoxError> {
        let seed = options.seed;
        let in_iterations = options.deaths.is_none() && Chance::of(seed, "shape").one_in(4);
        let (harm, intents) = match options.deaths {
            Some(_) => (Harm::default(), Intents::mixed()),
            None => (Harm::drawn(&Chance::of(seed, "harm")), Intents::drawn(&Chance::of(seed, "job"), in_iterations)),
        };
        let in_memory = std::path::Path::new("/dev/shm");
        let mut folder = tempfile::Builder::new();
        let folder = folder.prefix("ua-sim-");
        let folder = if in_memory.is_dir() { folder.tempdir_in(in_memory)? } else { folder.tempdir()? };
        let workspace = folder.path().join("ws");
        std::fs::create_dir_all(&workspace)?;
        std::fs::write(workspace.join("a.txt"), "what is uploaded")?;
        let clock = StageClock::new();
        let budgets = if harm.is_tight { json!({"max_tool_calls": 2}) } else { json!({}) };
        let mut job = json!({"objective": "Do each thing once.", "budgets": budgets});
        if in_iterations {
            // The condition always holds: what is missing is to be known from the hand-off alone.
            job["harness"] = json!({"max_iterations": 60, "completion_promise": "ALL DONE"});
            job["stop_conditions"] = json!([{"artifact": "a.txt"}]);
        }
        Ok(Self {
            chance: Chance::of(seed, "stage"),
            deaths: options.deaths.clone(),
            gates: Arc::new(Gates::default()),
            servers: Servers::new(clock.clone(), harm.undead),
            model: Arc::new(SimModel::new(
                intents.clone(),
                in_iterations,
                Chance::of(seed, "model"),
                harm.model_faults,
            )),
            store: StageStore::open(options.store, folder.path())?,
            env: Env { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(seed)) },
            run: RunId::parse("run_sim")?,
            job,
            was_careless: harm.is_careless,
            options: options.clone(),
            intents,
            harm,
            clock,
            folder,
            actors: Vec::new(),
            counts: Counts::default(),
            violations: Vec::new(),
            trace: Vec::new(),
            budgets_are_raised: false,
            was_cancelled: false,
        })
    }

    fn say(&mut self, words: impl AsRef<str>) {
        let after = self.env.now().since(ua_core::Clock::now(&ua_core::SimClock::default())).as_millis();
        self.trace.push(format!("{after:>8} ms  {}", words.as_ref()));
    }

    fn record(&self) -> Result<Option<RunRecord>, BoxError> {
        let _runtime = self.store.enter();
        match block_on(self.store.port.run(&self.run)) {
            Ok(run) => Ok(Some(run)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn is_over(&self) -> Result<bool, BoxError> {
        if self.actors.iter().any(|actor| actor.task.is_some()) {
            return Ok(false);
        }
        Ok(self.record()?.is_some_and(|run| run.status.is_terminal()))
    }

    /// Lets everybody who can go on do so, until all stand at gates, wait for answers or for time to pass.
    fn settle(&mut self) -> Result<(), BoxError> {
        loop {
            let mut moved = false;
            for life in 0..self.actors.len() {
                let actor = &mut self.actors[life];
                let Some(task) = actor.task.as_mut().filter(|task| !actor.is_asleep && task.is_woken()) else {
                    continue;
                };
                moved = true;
                let runtime = self.store.enter();
                let polled = task.poll();
                drop(runtime);
                if let Poll::Ready(ended) = polled {
                    actor.task = None;
                    self.ended(life, ended);
                }
            }
            if !moved {
                return Ok(());
            }
            {
                let _runtime = self.store.enter();
                self.store.rest()?;
            }
            self.note_owners();
        }
    }

    /// Who owns the run since a moment ago, and whom that replaced.
    fn note_owners(&mut self) {
        let standing = self.gates.standing();
        let acquired = standing.iter().filter(|gate| gate.name == "store.acquire_run" && gate.side == Side::After);
        for owner in acquired.map(|gate| gate.life) {
            if self.actors[owner].has_owned {
                continue;
            }
            self.actors[owner].has_owned = true;
            let mut excused = BTreeSet::new();
            for (other, actor) in self.actors.iter_mut().enumerate().filter(|(other, _)| *other != owner) {
                if actor.task.is_none() || !actor.has_owned || actor.is_replaced {
                    continue;
                }
                actor.is_replaced = true;
                self.counts.replaced += 1;
                let at = |name: &str, side: Side| {
                    standing.iter().any(|gate| gate.life == other && gate.name == name && gate.side == side)
                };
                actor.had_concluded = at("store.end_run", Side::After);
                if at("tool.invoke", Side::Before) {
                    excused.insert(other);
                }
            }
            self.servers.replaced(owner, excused);
            self.say(format!("life {owner} owns the run"));
        }
    }

    fn ended(&mut self, life: usize, ended: Result<Result<RunStatus, BoxError>, String>) {
        let actor = &self.actors[life];
        let (is_stale, is_excused) = (actor.is_replaced, actor.had_concluded);
        // Who comes when somebody else has ended the run is told so.
        let is_late = matches!(self.record(), Ok(Some(run)) if run.status.is_terminal());
        let may_fail = is_stale || is_late || actor.met_a_store_fault;
        match ended {
            Err(words) => self.violations.push(format!("life {life} panicked: {words}")),
            Ok(Ok(status)) => {
                self.say(format!("life {life} left the run {}", status.as_str()));
                if is_stale && !is_excused {
                    self.violations.push(format!("life {life} was replaced, and ended the run as {}", status.as_str()));
                }
            }
            Ok(Err(error)) => {
                let words = words_of(&error);
                self.say(format!("life {life} failed: {words}"));
                if !may_fail {
                    self.violations.push(format!("life {life} failed although nothing was wrong: {words}"));
                }
            }
        }
    }

    /// Moves the time on. What remote servers have not begun by their horizon they begin now or never.
    fn advance(&mut self, to: Timestamp) {
        for request in self.servers.expiring(to) {
            if self.chance.one_in(2) {
                self.say(format!("request {request} arrives at the last moment"));
                self.servers.act(request);
            } else {
                self.servers.lose(request);
            }
        }
        self.clock.advance_to(to);
    }

    /// Everything that can happen next, each with its weight; `None` when nothing can.
    fn draw(&mut self) -> Result<Option<Happening>, BoxError> {
        if self.deaths.is_some() {
            return self.next_in_order();
        }
        let mut may: Vec<(usize, Happening)> = Vec::new();
        self.processes(&mut may);
        self.world(&mut may);
        self.outside(&mut may)?;
        let sum: usize = may.iter().map(|(weight, _)| weight).sum();
        let mut left = self.chance.below(sum);
        for (weight, happening) in may {
            if left < weight {
                return Ok(Some(happening));
            }
            left -= weight;
        }
        Ok(None)
    }

    fn processes(&self, may: &mut Vec<(usize, Happening)>) {
        for gate in self.gates.standing() {
            let Some(actor) = self.actors.get(gate.life).filter(|actor| actor.is_awake()) else { continue };
            if Self::is_too_late(actor, &gate) {
                may.push((40, Happening::Die(gate.life)));
                continue;
            }
            if gate.is_write() && self.harm.store_faults > 0 {
                for fault in [StoreFault::Busy, StoreFault::DiskFull, StoreFault::AnswerLost] {
                    may.push((1, Happening::Refuse(gate.clone(), fault)));
                }
            }
            may.push((40, Happening::GoOn(gate)));
        }
        for (life, actor) in self.actors.iter().enumerate().filter(|(_, actor)| actor.task.is_some()) {
            if actor.is_asleep {
                may.push((3, Happening::WakeUp(life)));
                continue;
            }
            if self.harm.deaths > 0 {
                may.push((2, Happening::Die(life)));
            }
            if self.harm.sleeps > 0 && !actor.is_replaced {
                may.push((2, Happening::Sleep(life)));
            }
            if self.harm.signals > 0 && !actor.was_signalled {
                may.push((1, Happening::Signal(life)));
            }
            if actor.was_signalled {
                may.push((1, Happening::StopAtOnce(life)));
            }
        }
    }

    /// A process that was replaced just before it sent to a server that nobody can end. No epoch helps there, and no fence: the one who
    /// takes a run over has to end the process first, as `--take-over` does.
    fn is_too_late(actor: &Actor, gate: &Gate) -> bool {
        let is_remote = gate.tool.as_deref().and_then(Tool::named).is_some_and(|tool| tool.is_remote);
        actor.is_replaced && is_remote && gate.name == "tool.invoke" && gate.side == Side::Before
    }

    fn world(&self, may: &mut Vec<(usize, Happening)>) {
        for request in self.servers.requests() {
            let is_waited_for = request.is_waited_for;
            let is_asleep = self.actors.get(request.life).is_some_and(|actor| actor.is_asleep);
            if is_waited_for && self.harm.tool_faults > 0 {
                for fault in ToolFault::ALL.into_iter().filter(|fault| fault.is_of(request.tool)) {
                    // What happens late is what fences are for.
                    let weight = if fault == ToolFault::Late { 8 } else { 2 };
                    may.push((weight, Happening::Fail(request.clone(), fault)));
                }
                if request.tool.kind == Kind::Keyed && request.acted.is_none() {
                    may.push((2, Happening::Duplicate(request.clone())));
                }
            }
            match (request.acted.is_some(), is_waited_for) {
                (true, _) => may.push((if is_asleep { 2 } else { 20 }, Happening::Answer(request))),
                (false, true) if !request.is_late() => {
                    may.push((if is_asleep { 3 } else { 20 }, Happening::Act(request)));
                }
                (false, _) => {
                    may.push((4, Happening::Act(request.clone())));
                    may.push((1, Happening::Lose(request)));
                }
            }
        }
        if let Some(at) = self.clock.next_wake() {
            may.push((6, Happening::NextWait(at)));
        }
        if self.harm.hours > 0 && !self.actors.is_empty() {
            may.push((1, Happening::Hour));
        }
    }

    fn outside(&self, may: &mut Vec<(usize, Happening)>) -> Result<(), BoxError> {
        let _runtime = self.store.enter();
        let is_driven = self.actors.iter().any(Actor::is_awake);
        if is_driven {
            if self.harm.cancels > 0 && self.counts.lives > 0 {
                may.push((1, Happening::Cancel));
            }
            return Ok(());
        }
        let Some(run) = self.record()? else {
            may.push((20, Happening::Start));
            return Ok(());
        };
        if run.status.is_terminal() {
            return Ok(());
        }
        let has_questions = !block_on(person::open_questions(self.store.port.as_ref(), &self.run))?.is_empty();
        if has_questions {
            may.push((15, Happening::PersonLooks));
        }
        let is_out_of_budget =
            run.status == RunStatus::Stopped && run.stop_reason == Some(RunStop::Budget) && !self.budgets_are_raised;
        if is_out_of_budget {
            may.push((15, Happening::RaiseBudgets));
        }
        let is_vain = is_out_of_budget || (has_questions && run.status == RunStatus::WaitingForHuman);
        if !is_vain {
            may.push((15, Happening::Start));
        } else if self.harm.vain_starts > 0 {
            may.push((3, Happening::Start));
        }
        Ok(())
    }

    /// What happens next when nothing is left to chance but where processes die.
    fn next_in_order(&self) -> Result<Option<Happening>, BoxError> {
        if let Some(gate) = self.gates.standing().into_iter().next() {
            let at = self.deaths.as_ref().and_then(|deaths| deaths.get(gate.life));
            let dies = at.is_some_and(|at| self.actors.get(gate.life).is_some_and(|actor| actor.passed == *at));
            return Ok(Some(if dies { Happening::Die(gate.life) } else { Happening::GoOn(gate) }));
        }
        let mut may = Vec::new();
        for request in self.servers.requests() {
            let is_acted = request.acted.is_some();
            may.push((1, if is_acted { Happening::Answer(request) } else { Happening::Act(request) }));
        }
        if let Some(at) = self.clock.next_wake() {
            may.push((1, Happening::NextWait(at)));
        }
        self.outside(&mut may)?;
        Ok(may.into_iter().next().map(|(_, happening)| happening))
    }

    fn happen(&mut self, happening: Happening) -> Result<(), BoxError> {
        match happening {
            Happening::GoOn(gate) => {
                self.say(format!("life {} {}", gate.life, gate.words()));
                self.actors[gate.life].passed += 1;
                self.gates.release(gate.id, None);
            }
            Happening::Refuse(gate, fault) => {
                self.harm.store_faults -= 1;
                self.counts.faults += 1;
                self.say(format!("life {} {}: {fault:?}", gate.life, gate.words()));
                self.actors[gate.life].met_a_store_fault = true;
                self.gates.release(gate.id, Some(fault));
            }
            Happening::Die(life) => {
                self.harm.deaths = self.harm.deaths.saturating_sub(1);
                self.counts.deaths += 1;
                let standing = self.gates.standing();
                let here = standing.iter().find(|gate| gate.life == life).map_or_else(String::new, Gate::words);
                self.say(format!("life {life} dies {here}"));
                let _runtime = self.store.enter();
                self.actors[life].task = None;
            }
            Happening::Sleep(life) => {
                self.harm.sleeps -= 1;
                self.actors[life].is_asleep = true;
                self.say(format!("life {life} falls asleep"));
            }
            Happening::WakeUp(life) => {
                self.actors[life].is_asleep = false;
                self.say(format!("life {life} wakes up"));
            }
            Happening::Signal(life) => {
                self.harm.signals -= 1;
                self.say(format!("life {life} is asked to stop"));
                self.actors[life].was_signalled = true;
                self.actors[life].stop.stop_gently();
            }
            Happening::StopAtOnce(life) => {
                self.actors[life].was_signalled = false;
                self.say(format!("life {life} is asked to stop at once"));
                self.actors[life].stop.stop_at_once();
            }
            Happening::Act(request) => {
                self.say(format!("{} is done (request {} of life {})", request.tool.name, request.id, request.life));
                self.servers.act(request.id);
            }
            Happening::Answer(request) => {
                self.say(format!("{} is answered (request {})", request.tool.name, request.id));
                self.servers.answer(request.id);
            }
            Happening::Duplicate(request) => {
                self.tool_fault(&request, "it arrives twice");
                self.servers.duplicate(request.id);
            }
            Happening::Fail(request, fault) => {
                self.tool_fault(&request, &format!("{fault:?}"));
                self.servers.fail(request.id, fault);
            }
            Happening::Lose(request) => {
                self.say(format!("{} never happens (request {})", request.tool.name, request.id));
                self.servers.lose(request.id);
            }
            Happening::NextWait(at) => {
                self.say("time passes until somebody's wait ends");
                self.advance(at);
            }
            Happening::Hour => {
                self.harm.hours -= 1;
                self.say("an hour passes");
                let later = self.env.now().plus(Duration::from_hours(1));
                self.advance(later);
            }
            Happening::Start => self.start(),
            Happening::PersonLooks => self.person_looks()?,
            Happening::RaiseBudgets => {
                self.say("a person raises the budgets");
                self.budgets_are_raised = true;
                let _runtime = self.store.enter();
                block_on(person::raise_budgets(self.store.port.as_ref(), &self.run, self.env.now()))?;
            }
            Happening::Cancel => self.cancel()?,
        }
        Ok(())
    }

    fn tool_fault(&mut self, request: &Request, words: &str) {
        self.harm.tool_faults -= 1;
        self.counts.faults += 1;
        self.say(format!("{} (request {} of life {}): {words}", request.tool.name, request.id, request.life));
    }

    fn start(&mut self) {
        let life = self.actors.len();
        if life > 0 && self.harm.vain_starts > 0 {
            self.harm.vain_starts -= 1;
        }
        self.counts.lives += 1;
        self.say(format!("life {life} begins"));
        let stop = StopSignal::default();
        let process = Life {
            run: self.run.clone(),
            job: self.job.clone(),
            folder: self.folder.path().join("ws"),
            store: Arc::clone(&self.store.port),
            model: Arc::clone(&self.model),
            reach: Reach { life, servers: Arc::clone(&self.servers) },
            plan: LifePlan::new(life, Arc::clone(&self.gates)),
            env: self.env.clone(),
            stop: stop.clone(),
            broken: self.options.broken,
        };
        self.actors.push(Actor {
            task: Some(Task::new(process.live())),
            stop,
            has_owned: false,
            is_asleep: false,
            is_replaced: false,
            had_concluded: false,
            met_a_store_fault: false,
            was_signalled: false,
            passed: 0,
        });
    }

    fn person_looks(&mut self) -> Result<(), BoxError> {
        let runtime = self.store.enter();
        let (store, effects) = (Arc::clone(&self.store.port), self.servers.effects());
        let mut said = Vec::new();
        for question in block_on(person::open_questions(store.as_ref(), &self.run))? {
            let cares = !self.was_careless || self.chance.one_in(2);
            let answering = person::answer(store.as_ref(), &question, &effects, cares, self.env.now());
            said.push(format!("a person answers {:?}: {:?}", question.kind, block_on(answering)?));
        }
        drop(runtime);
        for words in said {
            self.say(words);
        }
        Ok(())
    }

    fn cancel(&mut self) -> Result<(), BoxError> {
        self.harm.cancels -= 1;
        self.say("a person cancels the run");
        let _runtime = self.store.enter();
        match block_on(self.store.port.request_cancel(&self.run, "enough", self.env.now())) {
            Ok(_) => self.was_cancelled = true,
            Err(StoreError::NotFound { .. } | StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
