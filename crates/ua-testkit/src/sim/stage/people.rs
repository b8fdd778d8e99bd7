//! What people do on the stage of a simulation: answer, change their minds, cancel, fork, and put a copy of the database back.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use ua_core::{CallId, CallStatus, Clock as _, CorrectedTo, RunId};
use ua_runner::{ForkError, ForkPlace, ForkPlan};
use ua_store::{
    CallRecord, Correction, LedgerStore as _, QuestionRecord, RunDeletion, RunRecord, RunStore, Store, StoreError,
    is_left_open, runs_below,
};

use super::super::job::{Kind, Tool, tag_of};
use super::super::life::BoxError;
use super::super::person::{self, Said};
use super::super::task::block_on;
use super::super::wrong::{Violation, Wrong};
use super::{Stage, Top};
use crate::outcomes::{PersonOutcome, StoreOutcome};

impl Stage {
    pub(super) fn answers(&mut self, question: &QuestionRecord, mind: PersonOutcome) -> Result<(), BoxError> {
        let asked_before = self.asked_before(question);
        let runtime = self.store.enter();
        let port = Arc::clone(&self.store.port);
        let port = self.options.broken.map_or(Arc::clone(&port), |rule| rule.people(port));
        let how = (self.counts.steps, &self.env, &self.sees());
        let said = block_on(person::answer(port.as_ref(), question, mind, how, asked_before))?;
        drop(runtime);
        let word = match said {
            Said::Word(word) => *word,
            Said::Refused(refused) => {
                self.say(format!(
                    "a person ({}) is refused {:?} to {:?}: {}",
                    mind.name(),
                    refused.choice,
                    question.kind,
                    refused.why
                ));
                self.refused.insert(question.question_id.clone(), refused);
                return Ok(());
            }
            Said::Nothing => return Ok(()),
        };
        self.refused.remove(&question.question_id);
        self.outcomes.person(word.mind);
        match word.mind {
            PersonOutcome::Aborts => self.harm.aborts = self.harm.aborts.saturating_sub(1),
            PersonOutcome::Skips => self.harm.skips = self.harm.skips.saturating_sub(1),
            PersonOutcome::Looks
            | PersonOutcome::Remarks
            | PersonOutcome::Executes
            | PersonOutcome::ClaimsHappened
            | PersonOutcome::WhileItLives
            | PersonOutcome::Silent
            | PersonOutcome::Cancels
            | PersonOutcome::Forks
            | PersonOutcome::Accepts
            | PersonOutcome::RaisesBudgets
            | PersonOutcome::PutsRight
            | PersonOutcome::Deletes => {}
        }
        let about = word
            .call
            .as_ref()
            .map_or_else(String::new, |call| format!(" about {} {}", call.name.tool, tag_of(&call.tool_use_id)));
        self.say(format!("a person ({}) answers {:?}{about}: {:?}", mind.name(), question.kind, word.choice));
        self.words.push(word);
        Ok(())
    }

    /// Whether a person answered a question like this, about no call, before.
    fn asked_before(&self, question: &QuestionRecord) -> bool {
        self.words.iter().any(|word| {
            word.question.run_id == question.run_id && word.question.kind == question.kind && word.call.is_none()
        })
    }

    /// Whether this person was refused what they would answer, and nothing has changed since.
    pub(in super::super) fn is_refused(
        &self,
        question: &QuestionRecord,
        mind: PersonOutcome,
    ) -> Result<bool, BoxError> {
        let Some(refused) = self.refused.get(&question.question_id) else { return Ok(false) };
        let _runtime = self.store.enter();
        let store = self.store.port.as_ref();
        let call = match &question.call_id {
            Some(call) => Some(block_on(store.call(call))?),
            None => None,
        };
        let effects = self.servers.effects();
        let choice = person::choice(mind, question, call.as_ref(), &effects, self.asked_before(question));
        let is_same = choice == Some(refused.choice);
        Ok(is_same && !block_on(refused.is_over(store, &self.sees(), self.clock.now()))?)
    }

    pub(super) fn person_does(&mut self, outcome: PersonOutcome, top: usize) -> Result<(), BoxError> {
        let run = self.tops[top].run.clone();
        self.outcomes.person(outcome);
        match outcome {
            PersonOutcome::Cancels => {
                self.harm.cancels -= 1;
                self.say(format!("a person cancels {run}"));
                let runtime = self.store.enter();
                let cancelled = block_on(self.store.port.request_cancel(&run, "enough", self.clock.now()));
                drop(runtime);
                match cancelled {
                    Ok(_) => self.tops[top].was_cancelled = true,
                    Err(StoreError::NotFound { .. } | StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            PersonOutcome::RaisesBudgets => {
                self.say("a person raises the budgets");
                self.tops.iter_mut().for_each(|top| top.budgets_are_raised = true);
                let _runtime = self.store.enter();
                let at = self.clock.now();
                for run in block_on(self.store.port.runs(u32::MAX))? {
                    if !run.status.is_terminal() {
                        block_on(person::raise_budgets(self.store.port.as_ref(), &run.run_id, at))?;
                    }
                }
            }
            PersonOutcome::Accepts => {
                // They look at each line, and say that the runs may go on.
                let runtime = self.store.enter();
                let port = Arc::clone(&self.store.port);
                let port = self.options.broken.map_or(Arc::clone(&port), |rule| rule.people(port));
                let mut said = Vec::new();
                for record in block_on(port.runs(u32::MAX))? {
                    let forgotten = block_on(port.forgotten(&record.run_id))?;
                    if !forgotten.is_empty() {
                        self.accepted.extend(self.mirror.family_of(&record.root_run_id));
                        let now = self.clock.now();
                        block_on(ua_runner::accept_forgotten(port.as_ref(), &record.run_id, &forgotten, None, now))?;
                        said.push(format!("a person accepts what the database forgot of {}", record.run_id));
                    }
                }
                if !block_on(self.mirror.all_forgotten(port.as_ref()))?.is_empty() {
                    self.accepted.extend(self.mirror.accept_all());
                    said.push("a person accepts what runs sent that the database does not know".to_owned());
                }
                drop(runtime);
                said.sort();
                for words in said {
                    self.say(words);
                }
            }
            PersonOutcome::Forks => self.fork(top)?,
            PersonOutcome::PutsRight => self.puts_right(top)?,
            PersonOutcome::Deletes => self.delete(top)?,
            // Answers have an event of their own, and who is silent does nothing.
            PersonOutcome::Looks
            | PersonOutcome::Remarks
            | PersonOutcome::Skips
            | PersonOutcome::Aborts
            | PersonOutcome::Executes
            | PersonOutcome::ClaimsHappened
            | PersonOutcome::WhileItLives
            | PersonOutcome::Silent => {}
        }
        Ok(())
    }

    /// A person forks a run at its last committed turn, or at an earlier one, whether or not somebody drives it.
    pub(super) fn fork(&mut self, parent: usize) -> Result<(), BoxError> {
        self.harm.forks -= 1;
        let Some(record) = self.record(&self.tops[parent].run)? else { return Ok(()) };
        let earlier = match &self.options.path {
            Some(path) => path.scene.forks_at(),
            None if self.chance.one_in(3) => {
                Some(u32::try_from(self.chance.below(record.turn_index as usize + 1)).unwrap_or(0))
            }
            None => None,
        };
        let number = self.tops.len();
        let run = RunId::parse(&format!("run_fork_{number}"))?;
        let runtime = self.store.enter();
        let port = Arc::clone(&self.store.port);
        if !block_on(self.mirror.forgotten(port.as_ref(), &record.run_id))?.is_empty() {
            drop(runtime);
            self.say("a fork is refused: the database is an older copy");
            return Ok(());
        }
        let root = self.folder.path().to_owned();
        let place = ForkPlace {
            run_id: run.clone(),
            root: &root,
            locks: &root.join("locks"),
            workspace_dir: self.workspace(number),
            launch: Value::Null,
            entrypoint: "library".to_owned(),
        };
        let made: Result<RunRecord, ForkError> = block_on(async {
            let mut plan = ForkPlan::new(port.as_ref(), &record.run_id, earlier, None).await?;
            plan.carry_out(port.as_ref(), place, &self.env).await
        });
        drop(runtime);
        let made = made?;
        self.counts.forks += 1;
        self.say(format!("a person forks {} at turn {}: {run}", record.run_id, made.shared_turns()));
        self.tops.push(Top { run, was_cancelled: false, budgets_are_raised: false, is_gone: false, is_deleted: false });
        Ok(())
    }

    /// A person deletes a run that nobody drives, as `ua runs delete` does: its sub-agents with it, the deepest first, and its folder. Without force
    /// one that is not finished stays as it is.
    fn delete(&mut self, top: usize) -> Result<(), BoxError> {
        self.harm.deletions -= 1;
        let Some(record) = self.record(&self.tops[top].run)? else { return Ok(()) };
        let (run, is_over, force) = (record.run_id.clone(), record.status.is_terminal(), self.chance.one_in(2));
        let how = if force { "with force" } else { "without force" };
        self.say(format!("a person deletes {run}, which is {}, {how}", record.status.as_str()));
        let at = self.clock.now();
        let runtime = self.store.enter();
        let port = Arc::clone(&self.store.port);
        let (mut gone, servers) = (BTreeSet::from([run.clone()]), Arc::clone(&self.servers));
        let deleted = block_on(async {
            if is_over || force {
                for child in below(port.as_ref(), &run).await?.into_iter().rev() {
                    gone.insert(child.clone());
                    port.delete_run(&RunDeletion { run_id: child, force: true, by: None, at }).await?;
                }
            }
            port.delete_run(&RunDeletion { run_id: run.clone(), force, by: None, at }).await
        });
        if deleted.is_ok() {
            // As the command does: nobody else ends what is left of their tool servers.
            servers.end(|_, _, of| gone.contains(of));
        }
        drop(runtime);
        match deleted {
            Ok(deleted) => {
                if !is_over && !force {
                    let words = format!("{run} is deleted without force although it is {}", record.status.as_str());
                    self.wrong(Violation::new(Wrong::Records, words));
                }
                self.tops[top].is_deleted = true;
                self.is_forgotten_whole |= deleted.kept_for.is_empty();
                std::fs::remove_dir_all(self.workspace(top)).or_else(gone_already)?;
            }
            Err(StoreError::Conflict { .. }) if !is_over && !force => {
                self.say("it is refused: the run is not finished");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The first call of the run whose effect is outside by its own doing, under a key, and which nothing under way could make again.
    pub(in super::super) fn undone_next(&self, top: usize) -> Result<Option<CallRecord>, BoxError> {
        let effects = self.servers.effects();
        let flying = self.servers.requests();
        let _runtime = self.store.enter();
        let calls = block_on(self.store.port.calls(&self.tops[top].run, None))?;
        Ok(calls.into_iter().find(|call| {
            let is_keyed = Tool::named(&call.name.tool).is_some_and(|tool| tool.kind == Kind::Keyed);
            let is_there = effects.iter().any(|effect| effect.call == call.call_id);
            call.status == CallStatus::Succeeded
                && is_keyed
                && is_there
                && !flying.iter().any(|request| request.is_of(&call.call_id))
        }))
    }

    /// The first call of the run that it went on without, although its effect is there.
    pub(in super::super) fn seen_next(&self, top: usize) -> Result<Option<CallRecord>, BoxError> {
        let effects = self.servers.effects();
        let _runtime = self.store.enter();
        let calls = block_on(self.store.port.calls(&self.tops[top].run, None))?;
        Ok(calls
            .into_iter()
            .find(|call| is_left_open(call) && effects.iter().any(|effect| effect.call == call.call_id)))
    }

    /// A person sees outside what a run went on without, and says so of its record, whether or not somebody drives the run; or they undo what a call
    /// did: whoever is to do it now does it anew.
    fn puts_right(&mut self, top: usize) -> Result<(), BoxError> {
        let seen = self.seen_next(top)?;
        let is_seen = seen.is_some();
        let Some(call) = seen.map_or_else(|| self.undone_next(top), |seen| Ok(Some(seen)))? else { return Ok(()) };
        self.harm.corrections -= 1;
        let (outcome, reason) = if is_seen {
            (CorrectedTo::Happened, "I see it there")
        } else {
            (CorrectedTo::NotHappened, "I called it back")
        };
        let correction = Correction {
            outcome,
            was: call.status,
            reason: reason.to_owned(),
            proof: None,
            by: "a person".to_owned(),
            at: self.clock.now(),
            of: None,
            was_answered: false,
        };
        let runtime = self.store.enter();
        let port = Arc::clone(&self.store.port);
        let port = self.options.broken.map_or(Arc::clone(&port), |rule| rule.people(port));
        let is_idle = !self.is_driven(top);
        let said = block_on(port.correct_call(ua_ledger::correct_call(&call, correction, is_idle)));
        drop(runtime);
        match said {
            Ok(_) if is_seen => {
                self.say(format!("a person sees {} {} and says so", call.name.tool, tag_of(&call.tool_use_id)));
            }
            Ok(_) => {
                self.servers.undo(&call.call_id);
                self.undone.insert(tag_of(&call.tool_use_id).to_owned());
                self.say(format!("a person undoes {} {}", call.name.tool, tag_of(&call.tool_use_id)));
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The database goes back to its copy. The world does not, nor does the log of what was sent.
    pub(super) fn go_back(&mut self) -> Result<(), BoxError> {
        self.harm.restores -= 1;
        self.counts.restores += 1;
        self.outcomes.store(StoreOutcome::Forgotten);
        self.say("the database goes back to its copy");
        let copied_at = self.copied_at.take().unwrap_or(0);
        {
            let _runtime = self.store.enter();
            block_on(self.mirror.catch_up(self.store.port.as_ref()))?;
        }
        for actor in &mut self.actors {
            actor.task = None;
        }
        self.store.go_back(self.clock.now())?;
        let runtime = self.store.enter();
        let forgotten = block_on(self.mirror.all_forgotten(self.store.port.as_ref()))?;
        for call in forgotten.iter().filter_map(|known| known.tool_call_id.as_deref()) {
            let call = CallId::parse(call)?;
            if matches!(block_on(self.store.port.call(&call)), Err(StoreError::NotFound { .. })) {
                self.gone.insert(call.clone());
            }
            self.forgotten.insert(call);
        }
        drop(runtime);
        self.forgotten_words.extend(self.words.extract_if(.., |word| word.step >= copied_at));
        self.was_restored = true;
        for top in 0..self.tops.len() {
            self.tops[top].budgets_are_raised = false;
            if top > 0 && self.record(&self.tops[top].run.clone())?.is_none() {
                self.tops[top].is_gone = true;
            }
        }
        self.orphan_questions.clear();
        self.epochs.clear();
        self.refused.clear();
        Ok(())
    }
}

/// The runs of sub-agents below a run that are not deleted, parents before their children.
async fn below(store: &dyn Store, run: &RunId) -> Result<Vec<RunId>, StoreError> {
    Ok(runs_below(store, run).await?.into_iter().map(|child| child.run_id).collect())
}

fn gone_already(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
