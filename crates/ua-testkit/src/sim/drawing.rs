//! Everything that can happen next, each with its weight. What cannot happen is left out where the outcome is matched, with the reason.

use ua_core::{RunStatus, RunStop, Timestamp};
use ua_store::{Choice, QuestionKind, QuestionRecord, RunStore};

use super::gates::Gate;
use super::job::Tool;
use super::life::BoxError;
use super::person;
use super::servers::Request;
use super::stage::{Actor, Stage};
use super::task::block_on;
use crate::outcomes::{ClockOutcome, PersonOutcome, ProcessOutcome, Refusal, StoreOutcome, ToolOutcome};

/// What can happen next.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    GoOn(Gate),
    Write(Gate, StoreOutcome),
    Process(usize, ProcessOutcome),
    WakeUp(usize),
    Act(Request),
    Answer(Request),
    Tool(Request, ToolOutcome),
    Lose(Request),
    NextWait(Timestamp),
    Clock(ClockOutcome),
    Start(usize),
    Answers(QuestionRecord, PersonOutcome),
    Person(PersonOutcome, usize),
    MakeCopy,
    GoBack,
}

impl Happening {
    /// Whether it is a fault, or something that a person need not have done: what a minimiser may leave out.
    pub(super) fn is_harmful(&self) -> bool {
        match self {
            Self::GoOn(_)
            | Self::WakeUp(_)
            | Self::Act(_)
            | Self::Answer(_)
            | Self::Lose(_)
            | Self::NextWait(_)
            | Self::Start(_) => false,
            Self::Write(..) | Self::Tool(..) | Self::Clock(_) | Self::MakeCopy | Self::GoBack => true,
            Self::Process(_, outcome) => {
                !matches!(outcome, ProcessOutcome::GivesUpCalls | ProcessOutcome::SignalledTwice)
            }
            Self::Answers(_, mind) => !matches!(mind, PersonOutcome::Looks),
            Self::Person(outcome, _) => {
                let of_their_own =
                    [PersonOutcome::Forks, PersonOutcome::Cancels, PersonOutcome::PutsRight, PersonOutcome::Deletes];
                of_their_own.contains(outcome)
            }
        }
    }
}

type Weighted = Vec<(usize, Happening)>;

impl Stage {
    /// What happens next; `None` when nothing can.
    pub(super) fn draw(&mut self) -> Result<Option<Happening>, BoxError> {
        if self.deaths.is_some() {
            return self.next_in_order();
        }
        if let Some(path) = self.options.path.clone() {
            return self.choose(&path);
        }
        let may = self.weighted()?;
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

    /// Everything that can happen next.
    pub(super) fn everything(&self) -> Result<Vec<Happening>, BoxError> {
        let may = self.weighted()?.into_iter();
        Ok(may.filter(|(weight, _)| *weight > 0).map(|(_, happening)| happening).collect())
    }

    fn weighted(&self) -> Result<Weighted, BoxError> {
        let mut may = Weighted::new();
        self.processes(&mut may);
        self.world(&mut may);
        self.time(&mut may);
        self.outside(&mut may)?;
        Ok(may)
    }

    fn processes(&self, may: &mut Weighted) {
        for gate in self.gates.closed() {
            let Some(actor) = self.actors.get(gate.life).filter(|actor| actor.is_awake()) else { continue };
            if is_too_late(actor, &gate) {
                may.push((40, Happening::Process(gate.life, ProcessOutcome::Dies)));
                continue;
            }
            if gate.is_write() && self.harm.store_faults > 0 {
                for outcome in StoreOutcome::ALL {
                    match outcome {
                        // One is no fault, and the stage goes back to a copy when nobody drives, not at a write.
                        StoreOutcome::Done | StoreOutcome::Forgotten => {}
                        StoreOutcome::Busy
                        | StoreOutcome::BusyForLong
                        | StoreOutcome::DiskFull
                        | StoreOutcome::AnswerLost => may.push((1, Happening::Write(gate.clone(), *outcome))),
                    }
                }
            }
            may.push((40, Happening::GoOn(gate)));
        }
        for (life, actor) in self.actors.iter().enumerate().filter(|(_, actor)| actor.task.is_some()) {
            if actor.is_asleep {
                may.push((3, Happening::WakeUp(life)));
                continue;
            }
            // A wait takes longer than anything else, so it is where most processes end.
            let is_waiting = self.is_waiting(life);
            let long = if is_waiting { 5 } else { 1 };
            for outcome in ProcessOutcome::ALL {
                let weight = match outcome {
                    ProcessOutcome::Dies => 2 * long * self.harm.deaths.min(1),
                    ProcessOutcome::FallsAsleep if actor.replaced.is_empty() => 2 * self.harm.sleeps.min(1),
                    ProcessOutcome::Signalled if !actor.was_signalled => long * self.harm.signals.min(1),
                    ProcessOutcome::SignalledTwice => usize::from(actor.was_signalled),
                    // Where a seed draws, half of those before are this.
                    ProcessOutcome::GivesUpCalls if actor.was_signalled && !actor.gives_up_calls => {
                        usize::from(self.options.path.is_some())
                    }
                    // The first at its gates, the second where it looks for earlier servers: `Reach::fence_earlier`.
                    ProcessOutcome::GoesOn
                    | ProcessOutcome::FindsTheUndead
                    | ProcessOutcome::FallsAsleep
                    | ProcessOutcome::Signalled
                    | ProcessOutcome::GivesUpCalls => 0,
                };
                may.push((weight, Happening::Process(life, *outcome)));
            }
        }
    }

    /// Whether a process waits for nothing but time.
    fn is_waiting(&self, life: usize) -> bool {
        let stands = self.gates.closed().iter().any(|gate| gate.life == life);
        let hears = self.servers.requests().iter().any(|request| request.life == life && request.is_waited_for);
        !stands && !hears
    }

    fn world(&self, may: &mut Weighted) {
        let now = self.clock.passed();
        for request in self.servers.requests() {
            let is_waited_for = request.is_waited_for;
            let is_asleep = self.actors.get(request.life).is_some_and(|actor| actor.is_asleep);
            if is_waited_for && self.harm.tool_faults > 0 {
                let after_a_loss = self.servers.is_repeated(&request);
                for outcome in ToolOutcome::all().filter(|outcome| request.may_come_to(*outcome)) {
                    may.push((weight_of(outcome, after_a_loss), Happening::Tool(request.clone(), outcome)));
                }
            }
            if request.not_before.is_some_and(|at| now < at) {
                continue;
            }
            match (request.acted.is_some(), is_waited_for || request.is_task) {
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
    }

    fn time(&self, may: &mut Weighted) {
        let wakes = [self.clock.next_wake(), self.servers.next_free(), self.held_until(), self.next_taken()];
        if let Some(at) = wakes.into_iter().flatten().min() {
            may.push((6, Happening::NextWait(at)));
        }
        if self.actors.is_empty() {
            return;
        }
        for outcome in ClockOutcome::ALL {
            let weight = match outcome {
                // With each step.
                ClockOutcome::Flows => 0,
                ClockOutcome::Hour | ClockOutcome::Suspended => {
                    let nobody_drives = !self.actors.iter().any(Actor::is_awake);
                    self.harm.hours.min(1) * if nobody_drives { 5 } else { 1 }
                }
                ClockOutcome::StepsForward | ClockOutcome::StepsBack => self.harm.clock_steps.min(1),
            };
            may.push((weight, Happening::Clock(*outcome)));
        }
    }

    /// When the first answer that was refused until then is taken, by the time that passes.
    fn next_taken(&self) -> Option<Timestamp> {
        let now = ua_core::Clock::now(self.clock.as_ref());
        let later = self.refused.values().filter_map(|refused| refused.until).filter(|until| *until > now);
        later.min().map(|until| self.clock.passed().plus(until.since(now)))
    }

    fn outside(&self, may: &mut Weighted) -> Result<(), BoxError> {
        let runtime = self.store.enter();
        let port = self.store.port.as_ref();
        let questions = block_on(person::open_questions(port))?;
        let nobody_lives = self.actors.iter().all(|actor| actor.task.is_none());
        let mut forgotten = Vec::new();
        let runs = if self.was_restored { block_on(port.runs(u32::MAX))? } else { Vec::new() };
        for run in runs {
            if !block_on(self.mirror.forgotten(port, &run.run_id))?.is_empty() {
                forgotten.push(run.run_id);
            }
        }
        // What a lost run sent speaks against whatever begins later.
        let anything_is_lost = self.was_restored && !block_on(self.mirror.all_forgotten(port))?.is_empty();
        drop(runtime);
        let mut of_top: Vec<Vec<&QuestionRecord>> = vec![Vec::new(); self.tops.len()];
        for question in &questions {
            if let Some(top) = self.top_of(&question.run_id) {
                of_top[top].push(question);
            }
        }
        for (top, of) in self.tops.iter().enumerate() {
            if of.is_gone || of.is_deleted {
                continue;
            }
            let Some(run) = self.record(&of.run)? else {
                if !self.is_driven(top) {
                    let accepts = Happening::Person(PersonOutcome::Accepts, top);
                    may.push(if anything_is_lost { (15, accepts) } else { (20, Happening::Start(top)) });
                }
                continue;
            };
            let is_driven = self.is_driven(top);
            self.people(may, top, run.status, is_driven, &of_top[top])?;
            if run.status.is_terminal() || is_driven {
                continue;
            }
            if run.end_mark().is_none() && forgotten.contains(&of.run) {
                may.push((15, Happening::Person(PersonOutcome::Accepts, top)));
                continue;
            }
            if !forgotten.is_empty() {
                may.push((3, Happening::Person(PersonOutcome::Accepts, top)));
            }
            let is_out_of_budget =
                run.status == RunStatus::Stopped && run.stop_reason == Some(RunStop::Budget) && !of.budgets_are_raised;
            if is_out_of_budget {
                may.push((15, Happening::Person(PersonOutcome::RaisesBudgets, top)));
            }
            // Whether an earlier server lives is looked at again with each start.
            let needs_a_word = |question: &&&QuestionRecord| question.kind != QuestionKind::OrphanAlive;
            let is_waiting =
                of_top[top].iter().any(|one| needs_a_word(&one)) && run.status == RunStatus::WaitingForHuman;
            // Some drive a run and its forks together, and others one after the other.
            let is_in_turn = self.drives_together || !self.actors.iter().any(Actor::is_awake);
            if !(is_out_of_budget || is_waiting) {
                may.push((if is_in_turn { 15 } else { 1 }, Happening::Start(top)));
            } else if self.harm.vain_starts > 0 {
                may.push((3, Happening::Start(top)));
            }
        }
        if self.harm.restores > 0 && !self.actors.is_empty() {
            match self.copied_at {
                None => may.push((2, Happening::MakeCopy)),
                Some(_) if nobody_lives => may.push((20, Happening::GoBack)),
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// What a person may do about a run.
    fn people(
        &self,
        may: &mut Weighted,
        top: usize,
        status: RunStatus,
        is_driven: bool,
        open: &[&QuestionRecord],
    ) -> Result<(), BoxError> {
        let is_over = status.is_terminal();
        let careless = 4 * usize::from(self.harm.is_careless);
        for outcome in PersonOutcome::ALL {
            let of_each = match outcome {
                PersonOutcome::Looks if !is_driven => 12,
                PersonOutcome::Remarks if !is_driven => 2,
                PersonOutcome::Skips if !is_driven => 5 * self.harm.skips.min(1) + careless,
                PersonOutcome::Aborts if !is_driven => 5 * self.harm.aborts.min(1),
                PersonOutcome::Executes if !is_driven => careless,
                // Few questions can be answered so, and of these each has to come up.
                PersonOutcome::ClaimsHappened if !is_driven => 4 * careless,
                PersonOutcome::WhileItLives if is_driven => 1,
                PersonOutcome::Looks
                | PersonOutcome::Remarks
                | PersonOutcome::Skips
                | PersonOutcome::Aborts
                | PersonOutcome::Executes
                | PersonOutcome::ClaimsHappened
                | PersonOutcome::WhileItLives
                // A start in vain; and where the run stands for it: in `outside`.
                | PersonOutcome::Silent
                | PersonOutcome::Accepts | PersonOutcome::RaisesBudgets => 0,
                PersonOutcome::Cancels => {
                    may.push((self.harm.cancels.min(1), Happening::Person(*outcome, top)));
                    0
                }
                PersonOutcome::Forks => {
                    let weight = if is_driven { 1 } else { 8 };
                    may.push((weight * self.harm.forks.min(1), Happening::Person(*outcome, top)));
                    0
                }
                PersonOutcome::PutsRight => {
                    let can = self.harm.corrections > 0
                        && (self.seen_next(top)?.is_some() || (!is_driven && self.undone_next(top)?.is_some()));
                    may.push((8 * usize::from(can), Happening::Person(*outcome, top)));
                    0
                }
                // The lock of a run is its process's, also of one that sleeps: whoever deletes takes it first.
                PersonOutcome::Deletes => {
                    let is_locked = self.actors.iter().any(|actor| actor.top == top && actor.task.is_some());
                    let weight = if is_over { 4 } else { 2 };
                    let can = self.harm.deletions > 0 && !is_locked;
                    may.push((weight * usize::from(can), Happening::Person(*outcome, top)));
                    0
                }
            };
            if of_each > 0 && !is_over {
                let is_claim = *outcome == PersonOutcome::ClaimsHappened;
                let fits = |one: &&&QuestionRecord| !is_claim || one.choices.contains(&Choice::Happened);
                for one in open.iter().filter(fits) {
                    if !self.is_refused(one, *outcome)? {
                        may.push((of_each, Happening::Answers((*one).clone(), *outcome)));
                    }
                }
            }
        }
        Ok(())
    }

    /// What happens next when nothing is left to chance but where processes die.
    fn next_in_order(&self) -> Result<Option<Happening>, BoxError> {
        if let Some(gate) = self.gates.closed().into_iter().next() {
            let at = self.deaths.as_ref().and_then(|deaths| deaths.get(gate.life));
            let dies = at.is_some_and(|at| self.actors.get(gate.life).is_some_and(|actor| actor.passed == *at));
            let death = Happening::Process(gate.life, ProcessOutcome::Dies);
            return Ok(Some(if dies { death } else { Happening::GoOn(gate) }));
        }
        let mut may = Weighted::new();
        for request in self.servers.requests() {
            let is_acted = request.acted.is_some();
            may.push((1, if is_acted { Happening::Answer(request) } else { Happening::Act(request) }));
        }
        if let Some(at) = [self.clock.next_wake(), self.next_taken()].into_iter().flatten().min() {
            may.push((1, Happening::NextWait(at)));
        }
        self.outside(&mut may)?;
        Ok(may.into_iter().find(|(weight, _)| *weight > 0).map(|(_, happening)| happening))
    }
}

/// How often a request comes to something, among what else can happen. What happens late is what fences are for; what is refused after
/// a loss is rare unless it is drawn more often.
fn weight_of(outcome: ToolOutcome, after_a_loss: bool) -> usize {
    let then = |otherwise: usize, after: usize| if after_a_loss { after } else { otherwise };
    match outcome {
        ToolOutcome::Answered => 0,
        ToolOutcome::Late | ToolOutcome::LostAfter => 6,
        ToolOutcome::NeverLeft | ToolOutcome::Refused(Refusal::TooMany) => then(4, 10),
        ToolOutcome::Refused(
            Refusal::BadRequest
            | Refusal::Unauthorized
            | Refusal::Forbidden
            | Refusal::NotFound
            | Refusal::MethodNotAllowed
            | Refusal::TooLarge
            | Refusal::UnsupportedMedia
            | Refusal::NoSuchMethod,
        ) => then(2, 5),
        ToolOutcome::ReportedWithoutEffect => then(2, 8),
        ToolOutcome::LostBefore
        | ToolOutcome::ReportedWithEffect
        | ToolOutcome::AnsweredTwice
        | ToolOutcome::ServerDied => 2,
        ToolOutcome::BusyForLong | ToolOutcome::AsksFirst => 1,
        ToolOutcome::GoesOnInATask => 3,
    }
}

/// A process that was replaced just before it sent to a server that nobody can end. No epoch helps there, and no fence: the one who
/// takes a run over has to end the process first, as `--take-over` does.
fn is_too_late(actor: &Actor, gate: &Gate) -> bool {
    let is_remote = gate.crossing.tools().filter_map(Tool::named).any(|tool| tool.is_remote);
    let is_send = gate.is_send();
    actor.replaced.contains(&gate.run) && is_remote && is_send
}
