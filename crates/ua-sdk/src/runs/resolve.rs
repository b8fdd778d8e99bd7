//! What a person found out about a call, from the program: recorded whatever its record says, before and after the end of its run.
//!
//! Durable Jobs v1 spec §8.3. The same as `ua calls resolve --as`: what can be told by looking is told by `ua_runner::correctable`, what becomes of the
//! record is the store's. Invariants: a call of a turn that is under way is its driver's; nobody says *it did not happen* while it may still
//! happen. Proved by: this crate's tests `resolved` and `within`.

use ua_core::{Audience, CallId, CallStatus, CorrectedTo, Timestamp, Trace, on_one_line};
use ua_ledger::{LateReplies as _, MayAct, Outside as _, Still};
use ua_runner::{Correctable, LateFile, LockError, MAX_REASON, RunLock, StepError, Uncorrectable, owner_stamp};
use ua_store::rules::{is_of_open_turn, was_answered_beside};
use ua_store::{AttemptRecord, CallRecord, Correction, LedgerStore as _, QuestionsOf, RunRecord, StoreError};

use super::{BY, Runs};
use crate::error::Error;

/// What a person found out about a call, with how they know: for [`Runs::resolve`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "it is recorded by `Runs::resolve`"]
pub struct CallOutcome {
    outcome: CorrectedTo,
    reason: String,
    proof: Option<String>,
}

impl CallOutcome {
    /// It happened.
    pub fn happened(reason: impl Into<String>) -> Self {
        Self::of(CorrectedTo::Happened, reason)
    }

    /// It did not happen; a repeat is no longer blocked.
    pub fn not_happened(reason: impl Into<String>) -> Self {
        Self::of(CorrectedTo::NotHappened, reason)
    }

    /// Nobody knows, and nobody will find out; it still blocks calls that might repeat it.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::of(CorrectedTo::Skipped, reason)
    }

    fn of(outcome: CorrectedTo, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into(), proof: None }
    }

    /// The other side's name for what happened, of [`CallOutcome::happened`] alone.
    pub fn proof(mut self, id: impl Into<String>) -> Self {
        self.proof = Some(id.into());
        self
    }
}

impl Runs {
    /// Records what became of a call, whatever is recorded of it, before and after the end of its run, as `ua calls resolve --as` does; returns the
    /// call as it is then. The reason is kept with it ([`CallRecord::correction`]), is in the files of the run, and is told to the model of a run that
    /// continues, and of a fork. An open question about the call is closed. How a run ended stays as it is.
    ///
    /// What is asked ([`Runs::questions`]) is answered by [`Runs::answer`], which can also have a call sent again; this is for what nobody asks:
    /// an answer that was wrong, a tool that said what is not so, a call that an ended run left in doubt. Called again nothing is changed, and the record
    /// has the first reason; so it is called again where its future was dropped, which leaves it recorded or not.
    ///
    /// # Errors
    /// [`Error::Refused`] for a call that was never sent or has another call's answer, for an outcome that cannot be recorded, and for a run that no program
    /// began; [`Error::DrivenElsewhere`] while somebody works on the turn of the call; [`Error::TooEarly`] while it may still happen; [`Error::Store`].
    /// [`Error::Files`] when it is recorded and the run's files could not be updated; called again, they are once the run has ended.
    ///
    /// ```
    /// # use ua_sdk::prelude::*;
    /// # use ua_sdk::CallOutcome;
    /// # use ua_sdk::types::CallStatus;
    /// # async fn resolve(runs: &Runs) -> Result<(), Error> {
    /// for call in runs.calls("november").await? {
    ///     if call.status == CallStatus::Unknown {
    ///         runs.resolve(call.call_id.as_str(), CallOutcome::not_happened("There is no such mail in their inbox.")).await?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn resolve(&self, call: &str, came_to: CallOutcome) -> Result<CallRecord, Error> {
        self.may_be_changed()?;
        let call = self.call(call).await?;
        let run = self.store.run(&call.run_id).await.map_err(Error::store("read the run"))?;
        if run.entrypoint != Audience::LIBRARY {
            return Err(Error::Refused(format!(
                "run {} was not begun by a program; `ua calls resolve` records what became of its calls",
                run.run_id
            )));
        }
        // It would be stored, and sent to the model.
        for words in [Some(&came_to.reason), came_to.proof.as_ref()].into_iter().flatten() {
            if let Some(name) = self.redactor.found_in(words) {
                return Err(Error::Refused(format!("what is said contains the value of {name}; nothing was stored")));
            }
        }
        Box::pin(self.recorded(&call.call_id, &run, came_to)).await
    }

    async fn recorded(&self, id: &CallId, run: &RunRecord, said: CallOutcome) -> Result<CallRecord, Error> {
        if said.outcome == CorrectedTo::NotHappened
            && let Some(by) = ua_runner::made_by_another(&*self.store, id).await.map_err(not_recalled)?
        {
            return Err(Error::Refused(format!(
                "call {id} was never sent itself; what effects.log knows is call {} of run {}, which this database does not have: when the step \
                 is run, it is asked whether that one did what this call is to do",
                by.call, by.run
            )));
        }
        // Whatever is decided here, that it was sent is true.
        let call = ua_runner::recall_one(&*self.store, id).await.map_err(not_recalled)?;
        let is_open = !run.status.is_terminal();
        if is_recorded(&call, &said)? {
            if !is_open {
                self.tell_corrected(run).await?;
            }
            return Ok(call);
        }
        let owner = owner_stamp(Trace::new(&self.env));
        let lock = match RunLock::take(&self.locks(), &run.run_id, &owner) {
            Ok(lock) => Some(lock),
            // Whoever drives it is past it, and tells its model.
            Err(LockError::Held { .. }) if !is_of_open_turn(run, &call) => None,
            Err(error) => return Err(StepError::from(error).into()),
        };
        let says_absent = said.outcome == CorrectedTo::NotHappened;
        let may_be_under_way = says_absent && matches!(call.status, CallStatus::Running | CallStatus::Unknown);
        // Servers of a living process are its own, and are not ended.
        let is_fenced = lock.is_some() && (is_open || may_be_under_way);
        #[cfg(feature = "mcp")]
        if is_fenced {
            self.end_servers_of(&run.run_id, "nothing was recorded").await?;
        }
        let attempts = self.store.attempts(id).await.map_err(Error::store("read the attempts"))?;
        self.refuse_while_at_work(&call, &attempts, says_absent).await?;
        if may_be_under_way {
            self.refuse_too_early(run, &call, &attempts, is_open && lock.is_none()).await?;
        }
        if is_open && said.outcome != CorrectedTo::Happened {
            self.refuse_beside_a_kept_answer(&call, &attempts)?;
        }
        // The other side knows the key of what was answered before an older copy was put back, and would do nothing under it again.
        let was_answered = call.status == CallStatus::Unknown && attempts.last().is_some_and(was_answered_beside);
        let correction = Correction {
            outcome: said.outcome,
            was: call.status,
            reason: said.reason.trim().to_owned(),
            proof: said.proof,
            by: BY.to_owned(),
            at: self.env.now(),
            of: None,
            was_answered,
        };
        let corrected = match self.store.correct_call(ua_ledger::correct_call(&call, correction, is_fenced)).await {
            Ok(corrected) => corrected,
            Err(StoreError::KeyTaken { by, status, .. }) => {
                return Err(Error::Refused(format!(
                    "call {id} cannot be recorded as that: call {by} has the same idempotency key and is {status}, and one key stands for one \
                     effect; if that one is wrong, `Runs::resolve` it first"
                )));
            }
            Err(StoreError::Conflict { why, .. }) => {
                return Err(Error::Refused(format!(
                    "call {id} cannot be recorded as that: {why}; `Runs::call` has it as it is now"
                )));
            }
            Err(source) => return Err(Error::store("store the correction")(source)),
        };
        // Whoever drives a run writes its files.
        if lock.is_some() || !is_open {
            self.tell_corrected(run).await?;
        }
        drop(lock);
        Ok(corrected)
    }

    async fn tell_corrected(&self, run: &RunRecord) -> Result<(), Error> {
        Ok(self.host(self.workspace(run.run_id.as_str())?).tell_corrected(&run.run_id).await?)
    }

    /// Refuses any word about a call that another run, or its tool, is at work on beyond the process that sent it; and, about one that was given up, the
    /// word that it did not happen while that run has not ended.
    async fn refuse_while_at_work(
        &self,
        call: &CallRecord,
        attempts: &[AttemptRecord],
        says_absent: bool,
    ) -> Result<(), Error> {
        let Some(last) = attempts.last() else { return Ok(()) };
        let (id, is_live) = (&call.call_id, last.live_handle().is_some());
        let awaited = last.handle.as_ref().and_then(|handle| handle.awaits.as_ref());
        if let Some(awaited) = awaited.filter(|_| is_live || says_absent) {
            match self.store.run(&awaited.run_id).await {
                Ok(inner) if !inner.status.is_terminal() => {
                    let why = format!(
                        "call {id} is done by run {}, which has not ended; once it has (`Runs::cancel` ends it), look again, and say it then",
                        inner.run_id
                    );
                    return too_early(id, None, why);
                }
                Ok(_) | Err(StoreError::NotFound { .. }) => {}
                Err(source) => return Err(Error::store("read the run that the call waits for")(source)),
            }
        }
        if is_live { too_early(id, None, under_way(id)) } else { Ok(()) }
    }

    /// Refuses the word that a call did not happen while it may. `is_driven`: another process has its run.
    async fn refuse_too_early(
        &self,
        run: &RunRecord,
        call: &CallRecord,
        attempts: &[AttemptRecord],
        is_driven: bool,
    ) -> Result<(), Error> {
        let id = &call.call_id;
        let asked = self.store.questions_of(QuestionsOf::Run(run.run_id.clone())).await;
        let asked = asked.map_err(Error::store("read the questions"))?;
        let was_asked = ua_ledger::was_asked_behind_the_wait(call, attempts, &asked);
        let outside = self.outside(&run.run_id)?;
        let may_act = |last: &AttemptRecord| match outside.may_act(call, last) {
            // Whoever asked had waited for that.
            MayAct::For(_) if was_asked => MayAct::No,
            acts @ (MayAct::No | MayAct::For(_) | MayAct::Yes) => acts,
        };
        let time = self.env.time();
        match ua_ledger::still(call, attempts, is_driven, may_act, (time.now(), &time)) {
            Still::Over => Ok(()),
            Still::Until(until) => {
                let why = format!("call {id} may still begin at the other side until {until}");
                too_early(id, Some(until), format!("{why}: look again after that time, and say it then"))
            }
            Still::UnderWay => too_early(id, None, under_way(id)),
        }
    }

    /// Refuses a word against an answer of the call that the database did not take, and that whoever drives the run next stores.
    fn refuse_beside_a_kept_answer(&self, call: &CallRecord, attempts: &[AttemptRecord]) -> Result<(), Error> {
        let late = LateFile::at(self.folder.join(LateFile::NAME)).about(&call.call_id);
        let Some(kept) = ua_ledger::kept_answer(call, attempts, &late) else { return Ok(()) };
        Err(Error::Refused(format!(
            "call {} was answered at {}, and the database did not take the answer then: {}; running the step, or `Runs::cancel`, stores it; say \
             this behind that, if the answer is wrong",
            call.call_id,
            kept.at,
            on_one_line(&ua_ledger::said(&kept.reply))
        )))
    }
}

fn too_early(call: &CallId, until: Option<Timestamp>, why: String) -> Result<(), Error> {
    Err(Error::TooEarly { call: call.clone(), until, why })
}

fn under_way(call: &CallId) -> String {
    format!(
        "call {call} may still be under way: run the step, which finds out what happened to it and asks if it cannot, or `Runs::cancel` the run"
    )
}

/// Whether the record of a call says so already; refuses a word that cannot be recorded of it.
fn is_recorded(call: &CallRecord, said: &CallOutcome) -> Result<bool, Error> {
    let id = &call.call_id;
    let why = match ua_runner::correctable(call, said.outcome, &said.reason, said.proof.as_deref()) {
        Ok(found) => return Ok(found == Correctable::Already),
        Err(why) => why,
    };
    Err(Error::Refused(match why {
        Uncorrectable::NoReason => "the reason is empty; say how you know, it is kept with the call".to_owned(),
        Uncorrectable::LongReason => format!("the reason is longer than {MAX_REASON} bytes"),
        Uncorrectable::ProofOfNothing => {
            "a proof identifies what happened, so it goes with `CallOutcome::happened` alone".to_owned()
        }
        Uncorrectable::Task => format!("call {id} is a task: what it did is in the calls of its sub-agent"),
        Uncorrectable::AnsweredBy(source) => format!(
            "call {id} was never sent: it was answered by call {source}; `Runs::resolve` that one, and this one follows"
        ),
        Uncorrectable::NeverSent => format!("call {id} was never sent, and there is nothing to correct"),
        Uncorrectable::OtherProof { has } => {
            let has = has.map_or_else(|| "no proof".to_owned(), |id| format!("the proof {}", on_one_line(&id)));
            format!("call {id} is already recorded as {}, with {has}", said.outcome)
        }
    }))
}

/// That the database does not learn what `effects.log` knows.
fn not_recalled(source: StoreError) -> Error {
    if let StoreError::Conflict { row, why } = &source {
        return Error::Refused(format!(
            "effects.log knows that {row} was sent, and this copy of the database has another end of it: {why}; put back a newer copy"
        ));
    }
    Error::store("compare the database with effects.log")(source)
}
