//! What happens on the stage when it is drawn: to processes, the store, tool servers, time and clocks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ua_core::{RunStatus, Timestamp};
use ua_dispatch::StopSignal;

use super::super::drawing::Happening;
use super::super::gates::{Gate, Side};
use super::super::life::{BoxError, Life};
use super::super::servers::Request;
use super::super::task::Task;
use super::{Actor, Ending, Stage};
use crate::outcomes::{ClockOutcome, PersonOutcome, ProcessOutcome, StoreOutcome, ToolOutcome};

/// How long a database is held that is held for long.
const HELD: Duration = Duration::from_secs(20);

impl Stage {
    pub(super) fn happen(&mut self, happening: Happening) -> Result<(), BoxError> {
        match happening {
            Happening::GoOn(gate) => self.go_on(&gate, StoreOutcome::Done),
            Happening::Write(gate, outcome) => {
                self.harm.store_faults -= 1;
                self.counts.faults += 1;
                self.go_on(&gate, outcome);
            }
            Happening::Process(life, outcome) => self.process(life, outcome),
            Happening::WakeUp(life) => {
                self.actors[life].is_asleep = false;
                self.say(format!("life {life} wakes up"));
            }
            Happening::Act(request) => {
                let Request { tool, id, life, tag, .. } = request;
                self.say(format!("{} {tag} is done (request {id} of life {life})", tool.name));
                self.servers.act(id);
            }
            Happening::Answer(request) => {
                self.say(format!("{} is answered (request {})", request.tool.name, request.id));
                self.outcomes.tool(ToolOutcome::Answered);
                self.servers.answer(request.id);
            }
            Happening::Tool(request, outcome) => {
                self.harm.tool_faults -= 1;
                self.counts.faults += 1;
                let Request { tool, id, life, tag, .. } = request;
                self.say(format!("{} {tag} (request {id} of life {life}): {}", tool.name, outcome.name()));
                self.outcomes.tool(outcome);
                self.servers.come_to(id, outcome);
            }
            Happening::Lose(request) => {
                self.say(format!("{} never happens (request {})", request.tool.name, request.id));
                self.servers.lose(request.id);
            }
            Happening::NextWait(at) => {
                self.say("time passes until somebody's wait ends");
                self.advance(at);
            }
            Happening::Clock(outcome) => self.clock_does(outcome),
            Happening::Start(top) => self.start(top),
            Happening::Answers(question, mind) => self.answers(&question, mind)?,
            Happening::Person(outcome, top) => self.person_does(outcome, top)?,
            Happening::MakeCopy => {
                self.say("a person makes a copy of the database");
                self.copied_at = Some(self.counts.steps);
                if self.options.path.is_some() {
                    self.copied = Some(self.state()?);
                }
                self.store.make_copy()?;
            }
            Happening::GoBack => self.go_back()?,
        }
        Ok(())
    }

    fn go_on(&mut self, gate: &Gate, outcome: StoreOutcome) {
        let is_held = gate.is_write() && self.held_until().is_some();
        let outcome = if is_held { StoreOutcome::BusyForLong } else { outcome };
        let words = match outcome {
            StoreOutcome::Done => String::new(),
            // Going back has an event of its own.
            StoreOutcome::Forgotten
            | StoreOutcome::Busy
            | StoreOutcome::BusyForLong
            | StoreOutcome::DiskFull
            | StoreOutcome::AnswerLost => format!(": {}", outcome.name()),
        };
        if outcome == StoreOutcome::BusyForLong && !is_held {
            self.held_until = Some(self.clock.passed().plus(HELD));
        }
        self.say(format!("life {} {}{words}", gate.life, gate.words()));
        self.outcomes.process(ProcessOutcome::GoesOn);
        if gate.is_write() {
            self.outcomes.store(outcome);
        }
        self.last_life = gate.life;
        let actor = &mut self.actors[gate.life];
        actor.passed += 1;
        let is_end = gate.crossing.is("store.end_run") && gate.side == Side::Before;
        actor.concluded_late |= is_end && gate.label.is_empty() && actor.replaced.contains(&gate.run);
        if outcome != StoreOutcome::Done {
            actor.met_a_store_fault = true;
            actor.could_not_settle |= gate.crossing.is("store.settle_attempt")
                && matches!(outcome, StoreOutcome::Busy | StoreOutcome::BusyForLong);
        }
        self.gates.release(gate.id, outcome);
    }

    fn process(&mut self, life: usize, outcome: ProcessOutcome) {
        // One draw for both, so that what a seed draws besides stays what it was.
        let is_drawn = self.options.path.is_none() && !self.actors[life].gives_up_calls;
        let is_patient = outcome == ProcessOutcome::SignalledTwice && is_drawn && self.degree.one_in(2);
        let outcome = if is_patient { ProcessOutcome::GivesUpCalls } else { outcome };
        self.outcomes.process(outcome);
        match outcome {
            // These happen at gates, and where an earlier server is looked for.
            ProcessOutcome::GoesOn | ProcessOutcome::FindsTheUndead => {}
            ProcessOutcome::Dies => {
                self.harm.deaths = self.harm.deaths.saturating_sub(1);
                self.counts.deaths += 1;
                let standing = self.gates.closed();
                let mut of_life = standing.iter().filter(|gate| gate.life == life);
                let notes = |gate: &&Gate| gate.crossing.is("store.note_usage") && gate.side == Side::Before;
                self.died_noting += of_life.clone().filter(notes).count() as u64;
                let here = of_life.next().map_or_else(String::new, Gate::words);
                self.say(format!("life {life} dies {here}"));
                let _runtime = self.store.enter();
                self.actors[life].task = None;
                self.actors[life].ending = Some(Ending::Died);
            }
            ProcessOutcome::FallsAsleep => {
                self.harm.sleeps -= 1;
                self.actors[life].is_asleep = true;
                self.say(format!("life {life} falls asleep"));
            }
            ProcessOutcome::Signalled => {
                self.harm.signals -= 1;
                self.say(format!("life {life} is asked to stop"));
                self.actors[life].was_signalled = true;
                self.actors[life].stop.stop_gently();
            }
            ProcessOutcome::GivesUpCalls => {
                self.say(format!("life {life} is asked to wait for no call any longer"));
                self.actors[life].gives_up_calls = true;
                self.actors[life].stop.give_up_calls();
            }
            ProcessOutcome::SignalledTwice => {
                self.actors[life].was_signalled = false;
                self.say(format!("life {life} is asked to stop at once"));
                self.actors[life].stop.stop_at_once();
            }
        }
    }

    fn clock_does(&mut self, outcome: ClockOutcome) {
        let later = self.clock.passed().plus(Duration::from_hours(1));
        self.outcomes.clock(outcome);
        match outcome {
            // Each step takes a moment, and waits have an event of their own.
            ClockOutcome::Flows => {}
            ClockOutcome::Hour => {
                self.harm.hours -= 1;
                self.say("an hour passes");
                self.advance(later);
            }
            ClockOutcome::Suspended => {
                self.harm.hours -= 1;
                self.say("the machine is suspended for an hour");
                self.expire(later);
                self.clock.suspend(Duration::from_hours(1));
            }
            ClockOutcome::StepsForward | ClockOutcome::StepsBack => {
                self.harm.clock_steps -= 1;
                self.clock_was_set = true;
                let minutes = if outcome == ClockOutcome::StepsForward { 10 } else { -10 };
                self.say(format!("the wall clock is set by {minutes} minutes"));
                self.clock.step(minutes * 60_000);
            }
        }
    }

    fn start(&mut self, top: usize) {
        let life = self.actors.len();
        if life > 0 && self.harm.vain_starts > 0 {
            self.harm.vain_starts -= 1;
        }
        self.counts.lives += 1;
        let run = self.tops[top].run.clone();
        self.say(format!("life {life} begins, for {run}"));
        if matches!(self.record(&run), Ok(Some(record)) if record.status == RunStatus::WaitingForHuman) {
            self.outcomes.person(PersonOutcome::Silent);
        }
        let stop = StopSignal::default();
        let process = Life {
            number: life,
            seed: self.options.seed,
            run,
            job: self.job.clone(),
            folder: self.workspace(top),
            store: self.store.of_lives(),
            model: Arc::clone(&self.model),
            servers: Arc::clone(&self.servers),
            gates: Arc::clone(&self.gates),
            late: Arc::clone(&self.late),
            clock: self.clock.clone(),
            stop: stop.clone(),
            broken: self.options.broken,
        };
        self.actors.push(Actor {
            task: Some(Task::new(process.live())),
            stop,
            top,
            began_at: self.counts.steps,
            ending: None,
            owned: BTreeSet::new(),
            replaced: BTreeSet::new(),
            is_asleep: false,
            concluded_late: false,
            met_a_store_fault: false,
            could_not_settle: false,
            was_signalled: false,
            gives_up_calls: false,
            passed: 0,
        });
    }

    /// Moves the time on. What remote servers have not begun by their horizon they begin now or never.
    pub(super) fn advance(&mut self, to: Timestamp) {
        self.expire(to);
        self.clock.advance_to(to);
    }

    fn expire(&mut self, to: Timestamp) {
        for request in self.servers.expiring(to) {
            if self.chance.one_in(2) {
                self.say(format!("request {request} arrives at the last moment"));
                self.servers.act(request);
            } else {
                self.servers.lose(request);
            }
        }
    }
}
