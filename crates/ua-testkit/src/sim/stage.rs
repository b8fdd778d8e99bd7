//! The stage: who is on it, what has happened, and what happens when something is drawn.

mod happen;
mod people;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use ua_core::{Env, QuestionId, RunId, RunStatus, SeededEntropy, Sha256, Timestamp, sha256};
use ua_dispatch::StopSignal;
use ua_runner::{PastError, top_of_tree};
use ua_store::{Choice, QuestionRecord, RunRecord, RunStore, StoreError};

use super::chance::Chance;
use super::clock::StageClock;
use super::drawing::Happening;
use super::gates::{Gate, Gates, Side};
use super::harm::Harm;
use super::job::{Intents, Shape};
use super::life::{BoxError, Late, words_of};
use super::limit::Limit;
use super::mirror::Mirror;
use super::model::{Habits, SimModel};
use super::path::{Scene, Walked};
use super::person::{self, Refused, Sees, Word};
use super::played::Outcomes;
use super::servers::Servers;
use super::store::StageStore;
use super::task::{Task, block_on};
use super::verdict;
use super::wrong::{Violation, Wrong};
use super::{Counts, Report, SimOptions};
use crate::broken::BrokenRule;
use crate::outcomes::{ClockOutcome, ModelOutcome, PersonOutcome, ProcessOutcome};

/// The most decisions of one simulation; one that goes on for longer does not end.
const MOST_STEPS: u64 = 8_000;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Left(RunStatus),
    Failed,
    Died,
}

/// A process on the stage.
pub(super) struct Actor {
    pub(super) task: Option<Task<Result<RunStatus, BoxError>>>,
    stop: StopSignal,
    /// The run that it was started for.
    pub(super) top: usize,
    pub(super) began_at: u64,
    pub(super) ending: Option<Ending>,
    /// Runs of which its first write as an owner was committed, whether or not it knows.
    owned: BTreeSet<RunId>,
    /// Those that somebody else has now.
    pub(super) replaced: BTreeSet<RunId>,
    pub(super) is_asleep: bool,
    /// It wrote the end of the run at its top although it was replaced.
    concluded_late: bool,
    met_a_store_fault: bool,
    /// Another process held the database when it wanted to store an answer.
    pub(super) could_not_settle: bool,
    pub(super) was_signalled: bool,
    /// It was asked to wait for no call any longer.
    pub(super) gives_up_calls: bool,
    /// Gates that it passed.
    pub(super) passed: u64,
}

impl Actor {
    pub(super) fn is_awake(&self) -> bool {
        self.task.is_some() && !self.is_asleep
    }
}

/// A run that processes are started for: the job's, or a fork.
#[derive(Debug, Clone)]
pub(super) struct Top {
    pub(super) run: RunId,
    pub(super) was_cancelled: bool,
    pub(super) budgets_are_raised: bool,
    /// The store went back to before it was.
    pub(super) is_gone: bool,
    /// A person deleted it: nothing is done with it any more.
    pub(super) is_deleted: bool,
}

pub(super) struct Stage {
    pub(super) chance: Chance,
    /// Whether who is asked to stop once more is asked to wait for no call any longer, or to stop at once.
    degree: Chance,
    pub(super) harm: Harm,
    pub(super) deaths: Option<Vec<u64>>,
    /// Processes for a run and for its forks are started while others work.
    pub(super) drives_together: bool,
    without: Vec<u64>,
    harmful: u64,
    pub(super) intents: Intents,
    /// How often its job lets an effect happen.
    pub(super) limit: Option<Limit>,
    pub(super) clock: Arc<StageClock>,
    pub(super) gates: Arc<Gates>,
    pub(super) late: Arc<Late>,
    pub(super) servers: Arc<Servers>,
    pub(super) model: Arc<SimModel>,
    pub(super) store: StageStore,
    pub(super) mirror: Arc<Mirror>,
    env: Env,
    job: Value,
    pub(super) folder: tempfile::TempDir,
    pub(super) options: SimOptions,
    pub(super) tops: Vec<Top>,
    pub(super) actors: Vec<Actor>,
    pub(super) counts: Counts,
    outcomes: Outcomes,
    pub(super) violations: Vec<Violation>,
    trace: Vec<String>,
    pub(super) words: Vec<Word>,
    /// Words of which a restored copy knows nothing: what was sent before it was put back was sent on them.
    pub(super) forgotten_words: Vec<Word>,
    /// Of each question about what is limited, when the process began that raised it.
    pub(super) asked: BTreeMap<QuestionId, u64>,
    /// The newest answer to a question that was not taken.
    pub(super) refused: BTreeMap<QuestionId, Refused>,
    /// Calls of which a restored copy has less than there was, and those of them of which it has nothing.
    pub(super) forgotten: BTreeSet<ua_core::CallId>,
    pub(super) gone: BTreeSet<ua_core::CallId>,
    /// Runs of which a person accepted that.
    pub(super) accepted: BTreeSet<RunId>,
    /// Intents whose effect a person undid.
    pub(super) undone: BTreeSet<String>,
    /// When the copy was made that the store can go back to.
    pub(super) copied_at: Option<u64>,
    /// On a path: what state that copy has.
    pub(super) copied: Option<Sha256>,
    pub(super) was_restored: bool,
    /// The last run of the family was deleted, and with it what the database had of all of them.
    pub(super) is_forgotten_whole: bool,
    pub(super) clock_was_set: bool,
    held_until: Option<Timestamp>,
    /// The newest epoch of each run, and the gates behind a take-over that were looked at.
    epochs: BTreeMap<RunId, u64>,
    seen_gates: BTreeSet<u64>,
    orphan_questions: BTreeMap<RunId, usize>,
    /// How often a process died before it wrote what it had heard of a reply.
    pub(super) died_noting: u64,
    /// Whose gate was passed last.
    pub(super) last_life: usize,
    pub(super) walked: Walked,
}

impl Stage {
    /// Plays a simulation to its end.
    pub(super) fn play(options: &SimOptions) -> Result<Report, BoxError> {
        let mut stage = Self::set(options)?;
        while !stage.is_over()? && stage.violations.is_empty() {
            stage.counts.steps += 1;
            stage.servers.at_step(stage.counts.steps);
            if stage.counts.steps > MOST_STEPS {
                stage.wrong(Violation::new(Wrong::Stuck, format!("it does not end within {MOST_STEPS} steps")));
                break;
            }
            let Some(next) = stage.draw_but()? else {
                let words = "nothing can happen any more, and the run has not ended";
                stage.wrong(Violation::new(Wrong::Stuck, words));
                break;
            };
            stage.happen(next)?;
            stage.outcomes.clock(ClockOutcome::Flows);
            let soon = stage.clock.passed().plus(Duration::from_millis(1));
            stage.advance(soon);
            stage.settle()?;
            stage.note_questions()?;
        }
        verdict::judge(&mut stage)?;
        if let Some(path) = &options.keep {
            stage.store.keep(path)?;
        }
        stage.counts.effects = u64::try_from(stage.servers.effects().len()).unwrap_or(u64::MAX);
        stage.counts.cut_requests = stage.model.cut();
        let digest = sha256(stage.trace.join("\n"));
        let gates = stage.actors.iter().map(|actor| actor.passed).collect();
        let intents = stage.intents.all().map(|intent| intent.number).collect();
        for _ in stage.servers.undead()..stage.harm.undead {
            stage.outcomes.process(ProcessOutcome::FindsTheUndead);
        }
        let Self { trace, violations, counts, outcomes, harmful, walked, .. } = stage;
        Ok(Report { trace, digest, violations, counts, outcomes, gates, harmful, intents, walked })
    }

    fn set(options: &SimOptions) -> Result<Self, BoxError> {
        let seed = options.seed;
        let is_drawn = options.deaths.is_none() && options.path.is_none();
        let shape = match &options.path {
            Some(path) => path.scene.shape(),
            None if is_drawn => Shape::drawn(&Chance::of(seed, "shape")).or_both(&Chance::of(seed, "both")),
            None => Shape::Plain,
        };
        let (mut harm, intents) = match (&options.path, &options.deaths) {
            (Some(path), _) => (path.scene.harm(path.deviations), path.scene.intents()),
            (None, Some(_)) => (Harm::default(), Intents::mixed()),
            (None, None) => (
                Harm::drawn(&Chance::of(seed, "harm")).with_deletions(&Chance::of(seed, "deletions")),
                Intents::drawn(&Chance::of(seed, "job"), shape),
            ),
        };
        let in_iterations = shape.is_in_iterations();
        let forgets_tasks = shape == Shape::TreeInIterations;
        let (intents, limit) =
            if is_drawn { Limit::drawn(&Chance::of(seed, "limit"), intents, in_iterations) } else { (intents, None) };
        // What a hand-off tells would not fit.
        let is_cut = is_drawn && !in_iterations && Chance::of(seed, "history").one_in(3);
        let intents = if is_cut { intents.long() } else { intents };
        let intents = intents.without(&options.without_intents);
        // What is carved from a tight budget for a sub-agent is nothing.
        harm.is_tight &= !intents.is_tree();
        let in_memory = std::path::Path::new("/dev/shm");
        let mut folder = tempfile::Builder::new();
        let folder = folder.prefix("ua-sim-");
        let folder = if in_memory.is_dir() { folder.tempdir_in(in_memory)? } else { folder.tempdir()? };
        std::fs::create_dir_all(folder.path().join("ws"))?;
        std::fs::create_dir_all(folder.path().join("locks"))?;
        let clock = StageClock::new();
        let budgets = if harm.is_tight { json!({"max_tool_calls": 2}) } else { json!({}) };
        let mut job = json!({"objective": "Do each thing once.", "budgets": budgets});
        if is_cut {
            // The least that a job may have: the middle is left out, and a resume reads the newest turns alone.
            job["settings"] = json!({"history_max_tokens": 1_000});
        }
        if is_drawn && Chance::of(seed, "escalation").one_in(3) {
            // Whoever refuses the credentials ends a call, or stops a run, and nobody is asked.
            job["escalation"] = json!({"ask_human_on_auth_failure": false});
        }
        if intents.is_tree() {
            job["subagents"] = json!({});
        }
        let mut conditions = Vec::new();
        if in_iterations {
            // The condition always holds: what is missing is to be known from the hand-off alone.
            job["harness"] = json!({"max_iterations": 60, "completion_promise": "ALL DONE"});
            conditions.push(json!({"artifact": "a.txt"}));
        } else if is_drawn && Chance::of(seed, "condition").one_in(5) {
            conditions.push(json!({"artifact": "nobody_writes_it.md"}));
        }
        conditions.extend(limit.map(Limit::condition));
        if !conditions.is_empty() {
            job["stop_conditions"] = conditions.into();
        }
        let habits = Habits {
            is_forgetful: is_drawn && in_iterations,
            promises: in_iterations,
            forgets_tasks,
            // What is handed on once more is done by its words.
            is_wordy: !forgets_tasks && ((is_drawn && Chance::of(seed, "words").one_in(2)) || in_iterations),
            repeats_in_doubt: options.path.as_ref().map_or_else(
                || is_drawn && !is_cut && Chance::of(seed, "repeats").one_in(2),
                |path| path.scene.repeats_in_doubt(),
            ),
            counts_nothing: is_drawn && Chance::of(seed, "counts").one_in(4),
        };
        let moves = options.path.as_ref().is_some_and(|path| path.scene == Scene::Moved);
        let servers = if moves { Servers::moving } else { Servers::new };
        let mirror = Arc::new(Mirror::new(
            options.broken == Some(BrokenRule::RestoreLooksAtOneRun),
            // What a copy has no row of is known by the log alone, and of what it has a row the log would tell as well.
            matches!(options.broken, Some(BrokenRule::AcceptedIsForgotten | BrokenRule::AcceptedAsUnsent)),
        ));
        let model = SimModel::new(intents.clone(), habits, Chance::of(seed, "model"), harm.model_faults);
        Ok(Self {
            chance: Chance::of(seed, "stage"),
            degree: Chance::of(seed, "degree"),
            deaths: options.deaths.clone(),
            drives_together: !is_drawn || Chance::of(seed, "together").one_in(2),
            without: options.without.clone(),
            harmful: 0,
            gates: Arc::new(Gates::default()),
            late: Arc::default(),
            servers: servers(
                clock.clone(),
                harm.undead,
                options.path.is_none(),
                options.broken == Some(BrokenRule::JudgedBeforeWaiting),
            ),
            model: Arc::new(model),
            store: StageStore::open(options.store, folder.path(), Arc::clone(&mirror))?,
            mirror,
            env: Env { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(seed)) },
            tops: vec![Top {
                run: RunId::parse("run_sim")?,
                was_cancelled: false,
                budgets_are_raised: false,
                is_gone: false,
                is_deleted: false,
            }],
            job,
            options: options.clone(),
            intents,
            limit,
            harm,
            clock,
            folder,
            actors: Vec::new(),
            counts: Counts::default(),
            outcomes: Outcomes::default(),
            violations: Vec::new(),
            trace: limit.into_iter().map(Limit::in_words).collect(),
            words: Vec::new(),
            forgotten_words: Vec::new(),
            asked: BTreeMap::new(),
            refused: BTreeMap::new(),
            forgotten: BTreeSet::new(),
            gone: BTreeSet::new(),
            undone: BTreeSet::new(),
            accepted: BTreeSet::new(),
            copied_at: None,
            copied: None,
            was_restored: false,
            is_forgotten_whole: false,
            clock_was_set: false,
            held_until: None,
            epochs: BTreeMap::new(),
            seen_gates: BTreeSet::new(),
            orphan_questions: BTreeMap::new(),
            died_noting: 0,
            last_life: 0,
            walked: Walked::default(),
        })
    }

    pub(super) fn say(&mut self, words: impl AsRef<str>) {
        let after = self.clock.passed().since(ua_core::Clock::now(&ua_core::SimClock::default())).as_millis();
        self.trace.push(format!("{after:>8} ms  {}", words.as_ref()));
    }

    pub(super) fn wrong(&mut self, violation: Violation) {
        self.violations.push(violation);
    }

    pub(super) fn record(&self, run: &RunId) -> Result<Option<RunRecord>, BoxError> {
        let _runtime = self.store.enter();
        match block_on(self.store.port.run(run)) {
            Ok(run) => Ok(Some(run)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The run at the top of the tree of `run`, by its place.
    pub(super) fn top_of(&self, run: &RunId) -> Option<usize> {
        let _runtime = self.store.enter();
        let record = block_on(self.store.port.run(run)).ok()?;
        let top = block_on(top_of_tree(self.store.port.as_ref(), &record)).ok()?;
        self.tops.iter().position(|one| one.run == top.run_id)
    }

    pub(super) fn is_driven(&self, top: usize) -> bool {
        self.actors.iter().any(|actor| actor.top == top && actor.is_awake())
    }

    /// What a person sees of processes and servers.
    pub(super) fn sees(&self) -> Sees<'_> {
        let mut driven = BTreeSet::new();
        for actor in self.actors.iter().filter(|actor| actor.task.is_some()) {
            driven.extend(actor.owned.iter().filter(|run| !actor.replaced.contains(*run)).cloned());
        }
        Sees { servers: self.servers.as_ref(), driven }
    }

    /// Until when another process holds the database.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.held_until.filter(|until| self.clock.passed() < *until)
    }

    fn is_over(&self) -> Result<bool, BoxError> {
        if self.actors.iter().any(|actor| actor.task.is_some()) {
            return Ok(false);
        }
        for (number, top) in self.tops.iter().enumerate() {
            match self.record(&top.run)? {
                Some(run) if !run.status.is_terminal() => return Ok(false),
                None if number == 0 && !top.is_deleted => return Ok(false),
                Some(_) | None => {}
            }
        }
        Ok(!self.is_looked_at_again()?)
    }

    /// Whether a person comes back to what has ended: there is something that they undo or delete, or something undone that they have done again.
    fn is_looked_at_again(&self) -> Result<bool, BoxError> {
        let left: Vec<usize> =
            (0..self.tops.len()).filter(|top| !self.tops[*top].is_deleted && !self.tops[*top].is_gone).collect();
        if self.harm.deletions > 0 && !left.is_empty() {
            return Ok(true);
        }
        if self.harm.forks > 0 && !self.undone.is_empty() && !left.is_empty() {
            return Ok(true);
        }
        if self.harm.corrections > 0 {
            for top in left {
                if self.undone_next(top)?.is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Draws until it is something that is not to be left out.
    fn draw_but(&mut self) -> Result<Option<Happening>, BoxError> {
        for _ in 0..200 {
            let Some(next) = self.draw()? else { return Ok(None) };
            if !next.is_harmful() {
                return Ok(Some(next));
            }
            self.harmful += 1;
            if !self.without.contains(&self.harmful) {
                return Ok(Some(next));
            }
            // Nothing ends while a person has still to come back and delete.
            if matches!(next, Happening::Person(PersonOutcome::Deletes, _)) {
                self.harm.deletions -= 1;
            }
        }
        Ok(None)
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
                break;
            }
            {
                let _runtime = self.store.enter();
                self.store.rest()?;
            }
            self.note_owners();
        }
        for outcome in self.model.news() {
            self.outcomes.model(outcome);
            if outcome == ModelOutcome::Answered {
                continue;
            }
            self.counts.faults += 1;
            self.say(format!("the model's provider: {}", outcome.name()));
        }
        Ok(())
    }

    /// Which questions there are since a moment ago, and how old whoever raised them is: it passed the last gate.
    fn note_questions(&mut self) -> Result<(), BoxError> {
        if self.limit.is_none() {
            return Ok(());
        }
        let runtime = self.store.enter();
        let open = block_on(person::open_questions(self.store.port.as_ref()))?;
        drop(runtime);
        let began = self.actors.get(self.last_life).map_or(0, |actor| actor.began_at);
        for question in open {
            self.asked.entry(question.question_id).or_insert(began);
        }
        Ok(())
    }

    /// Who owns a run since a moment ago, and whom that replaced.
    fn note_owners(&mut self) {
        let standing = self.gates.closed();
        let tried = standing.iter().filter(|gate| gate.crossing.is("store.acquire_run") && gate.side == Side::After);
        for Gate { id, life: owner, run, label, .. } in tried {
            // Who was refused stands here too.
            let epoch = self.record(run).ok().flatten().map_or(0, |run| run.lease_epoch);
            let is_new = self.seen_gates.insert(*id) && self.epochs.get(run).is_none_or(|before| *before < epoch);
            if !is_new || epoch == 0 || !self.actors[*owner].owned.insert(run.clone()) {
                continue;
            }
            self.epochs.insert(run.clone(), epoch);
            let mut excused = BTreeMap::new();
            for (other, actor) in self.actors.iter_mut().enumerate().filter(|(other, _)| other != owner) {
                if actor.task.is_none() || !actor.owned.contains(run) || !actor.replaced.insert(run.clone()) {
                    continue;
                }
                self.counts.replaced += u64::from(label.is_empty());
                // Reads are sent beside each other.
                let is_send = |gate: &&Gate| gate.life == other && gate.run == *run && gate.is_send();
                excused.insert(other, standing.iter().filter(is_send).count());
            }
            self.servers.replaced(run, *owner, excused);
            let name = if label.is_empty() { self.tops[self.actors[*owner].top].run.as_str() } else { label };
            let words = format!("life {owner} owns {name}");
            self.say(words);
        }
    }

    fn ended(&mut self, life: usize, ended: Result<Result<RunStatus, BoxError>, String>) {
        let actor = &self.actors[life];
        let run = self.tops[actor.top].run.clone();
        let (is_stale, concluded_late) = (actor.replaced.contains(&run), actor.concluded_late);
        // Who comes when somebody else has ended the run is told so.
        let is_late = matches!(self.record(&run), Ok(Some(run)) if run.status.is_terminal());
        let may_fail = is_stale || is_late || actor.met_a_store_fault || !actor.replaced.is_empty();
        match ended {
            Err(words) => {
                self.actors[life].ending = Some(Ending::Failed);
                self.wrong(Violation::new(Wrong::Failed, format!("life {life} panicked: {words}")));
            }
            Ok(Ok(status)) => {
                self.actors[life].ending = Some(Ending::Left(status));
                self.say(format!("life {life} left the run {}", status.as_str()));
                if is_stale && concluded_late {
                    let words = format!("life {life} was replaced, and ended the run as {}", status.as_str());
                    self.wrong(Violation::new(Wrong::NotFenced, words));
                }
                if !is_stale {
                    self.after_refusals(life);
                }
                self.after_an_abort(life, &run, status);
                self.count_orphan_questions(&run);
            }
            Ok(Err(error)) => {
                self.actors[life].ending = Some(Ending::Failed);
                let words = words_of(&error);
                self.say(format!("life {life} failed: {words}"));
                if !may_fail && !is_forgotten(&error) {
                    let words = format!("life {life} failed although nothing was wrong: {words}");
                    self.wrong(Violation::new(Wrong::Failed, words));
                }
            }
        }
    }

    /// A person had ended the run before this process began: it had nothing to do but to say so.
    fn after_an_abort(&mut self, life: usize, run: &RunId, status: RunStatus) {
        let began = self.actors[life].began_at;
        let is_abort = |word: &&Word| word.choice == Choice::Abort && word.question.run_id == *run && word.step < began;
        let Some(word) = self.words.iter().find(is_abort) else { return };
        match status {
            RunStatus::Failed | RunStatus::Cancelled => {}
            RunStatus::Queued
            | RunStatus::Running
            | RunStatus::WaitingForHuman
            | RunStatus::Stopped
            | RunStatus::Succeeded => {
                let words = format!(
                    "a person answered abort to {:?}, and the process that came after left the run {}",
                    word.question.kind,
                    status.as_str()
                );
                self.wrong(Violation::new(Wrong::WordWithoutConsequence, words));
            }
        }
    }

    /// The same question about an earlier server, asked again while nobody answered.
    fn count_orphan_questions(&mut self, run: &RunId) {
        let runtime = self.store.enter();
        let open = block_on(self.store.port.open_questions(Some(run))).unwrap_or_default();
        drop(runtime);
        let kind = ua_store::QuestionKind::OrphanAlive;
        let is_open = |one: &&QuestionRecord| {
            one.kind == kind && one.call_id.is_none() && one.status == ua_store::QuestionStatus::Open
        };
        let count = open.iter().filter(is_open).count();
        let before = self.orphan_questions.insert(run.clone(), count).unwrap_or(0);
        if count > 1 && count > before {
            let words = format!("{count} questions about the same earlier tool server are open at once");
            self.wrong(Violation::new(Wrong::AskedNeedlessly, words));
        }
    }

    pub(super) fn workspace(&self, top: usize) -> PathBuf {
        self.folder.path().join(if top == 0 { "ws".to_owned() } else { format!("ws_fork_{top}") })
    }
}

/// Whether a process refused to drive a run since the database had forgotten what it sent, or one below it.
fn is_forgotten(error: &BoxError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error.as_ref());
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(PastError::Forgotten { .. })) {
            return true;
        }
        next = error.source();
    }
    false
}
