//! Going on in doubt (`on_unknown = "continue"`): the model is told not to repeat the call, a question stays open beside the
//! run, and until it is answered whatever might repeat the effect is a conflict.
//!
//! Durable Jobs v1 spec §8.3. Invariants: the question is there before the run goes on; a doubt without a scope blocks its whole
//! tool; an answer that comes late is applied by the run's owner, and never runs a call whose turn is over.

use ua_core::{CallStatus, OnUnknown, Resolution};
use ua_store::{CallRecord, Choice, QuestionStatus, UnknownResolution};

use crate::admission::{Admission, Facts};
use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::question::Why;

/// Whether a call was gone on without and nobody has said since what came of it.
fn is_left_open(call: &CallRecord) -> bool {
    call.status == CallStatus::Unknown
        && call.resolution == Some(Resolution::Skipped)
        && call.policy.on_unknown == OnUnknown::Continue
}

/// Whether something says what the effect of a call is, so that its doubt need not block the whole tool.
fn is_named(call: &CallRecord) -> bool {
    call.scope.as_ref().is_some_and(|scope| !scope.is_of_whole_call())
}

impl Ledger {
    /// Raises the question and goes on without its answer.
    pub(crate) async fn go_on_without(&self, call: &CallRecord) -> Result<Admission, LedgerError> {
        let id = &call.call_id;
        if self.pending_question(call).await?.is_none() {
            let attempt = self.last_attempt(call).await?;
            self.ask(call, &Why::WentOn { attempt: attempt.as_ref() }).await?;
        }
        let skipped =
            self.store.resolve_unknown(&self.lease, id, UnknownResolution::Skipped, None, self.env.now()).await;
        Ok(Admission::Settled(skipped.map_err(LedgerError::at("go on without", id))?))
    }

    /// An earlier call of which nobody knows whether it happened, and which `call` might repeat: one with its scope, or, where
    /// no scope says what the effect is, one of the same tool.
    pub(crate) async fn doubt_left_open(
        &self,
        call: &CallRecord,
        facts: &Facts,
    ) -> Result<Option<CallRecord>, LedgerError> {
        if let Some(doubt) = self.open_doubt(call, facts).await? {
            if doubt.run_id != self.lease.run_id {
                return Ok(Some(doubt)); // what was answered about it is for its own run to apply
            }
            self.apply_late_answers(std::slice::from_ref(&doubt)).await?;
            return self.open_doubt(call, facts).await;
        }
        Ok(None)
    }

    async fn open_doubt(&self, call: &CallRecord, facts: &Facts) -> Result<Option<CallRecord>, LedgerError> {
        let at = || LedgerError::at("look for calls in doubt beside", &call.call_id);
        let mut earlier = Vec::new();
        if let Some(scope) = &facts.scope {
            earlier = self.store.scope_calls(&call.root_run_id, scope).await.map_err(at())?;
        }
        if call.policy.on_unknown == OnUnknown::Continue {
            let calls = self.store.calls(&call.run_id, None).await.map_err(at())?;
            let blocks_tool = |other: &CallRecord| other.name == call.name && !is_named(other);
            earlier.extend(calls.into_iter().filter(blocks_tool));
        }
        Ok(earlier.into_iter().find(|other| other.call_id != call.call_id && is_left_open(other)))
    }

    /// Applies what persons answered about calls that the run had gone on without.
    pub(crate) async fn apply_late_answers(&self, calls: &[CallRecord]) -> Result<(), LedgerError> {
        let Some(first) = calls.iter().find(|call| is_left_open(call)) else { return Ok(()) };
        let questions = self.store.open_questions(Some(&first.run_id)).await;
        let questions = questions.map_err(LedgerError::at("read the questions about", &first.call_id))?;
        for call in calls.iter().filter(|call| is_left_open(call)) {
            let id = &call.call_id;
            let answered = questions
                .iter()
                .find(|question| question.call_id.as_ref() == Some(id) && question.status == QuestionStatus::Answered);
            let Some((question, answer)) = answered.and_then(|question| Some((question, question.answer.as_ref()?)))
            else {
                continue;
            };
            let resolution = match answer.choice {
                Choice::Happened => Self::happened(call, question),
                Choice::Execute | Choice::Continue => UnknownResolution::NotHappened {
                    why: format!("{} says that it did not happen; it may be asked for again", answer.by),
                },
                Choice::Skip | Choice::Abort => UnknownResolution::Skipped,
            };
            self.store
                .resolve_unknown(&self.lease, id, resolution, Some(&question.question_id), self.env.now())
                .await
                .map_err(LedgerError::at("apply the late answer about", id))?;
        }
        Ok(())
    }
}
