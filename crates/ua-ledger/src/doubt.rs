//! Going on in doubt (`on_unknown = "continue"`): the model is told not to repeat the call, a question stays open beside the
//! run, and until it is answered whatever might repeat the effect is a conflict.
//!
//! Durable Jobs v1 spec §8.3. Invariants: the question is there before the run goes on; a doubt without a scope blocks its whole
//! tool, in the whole lineage; an answer that comes late is applied by the run's owner, or at once when the run has ended, and never
//! runs a call whose turn is over. What a person says happened is a fact: it is applied whatever became of the run meanwhile, in whichever order
//! that was said and the run was ended ([`applies_behind_the_end`]).

use ua_core::{CallStatus, Env, RunId};
use ua_store::rules::applies_behind_the_end;
use ua_store::{
    CallRecord, Choice, LedgerStore, QuestionKind, QuestionRecord, QuestionStatus, RunStore, Store, StoreError,
    UnknownResolution, is_left_open, is_over,
};

use crate::error::LedgerError;
use crate::ledger::Ledger;
use crate::verdict::happened;

impl Ledger {
    /// Acts on what people answered about a call that its run had gone on without.
    pub(crate) async fn act_on_late_answers(&self, doubt: &CallRecord) -> Result<(), LedgerError> {
        if doubt.run_id == self.lease.run_id {
            return self.apply_late_answers(std::slice::from_ref(doubt)).await;
        }
        // What was answered about it is for its own run to apply, unless that has ended.
        let settled = settle_late_answers(self.store.as_ref(), &self.env, &doubt.run_id).await;
        settled.map(drop).map_err(LedgerError::at("apply the late answer about", &doubt.call_id))
    }

    /// Applies what persons answered about calls that the run had gone on without.
    pub(crate) async fn apply_late_answers(&self, calls: &[CallRecord]) -> Result<(), LedgerError> {
        let Some(first) = calls.iter().find(|call| is_left_open(call)) else { return Ok(()) };
        let questions = self.store.open_questions(Some(&first.run_id)).await;
        let questions = questions.map_err(LedgerError::at("read the questions about", &first.call_id))?;
        for call in calls.iter().filter(|call| is_left_open(call)) {
            let id = &call.call_id;
            let Some((question, resolution)) = late_answer(call, &questions) else { continue };
            self.store
                .resolve_unknown(&self.lease, id, resolution, Some(&question.question_id), self.env.now())
                .await
                .map_err(LedgerError::at("apply the late answer about", id))?;
        }
        Ok(())
    }
}

/// What a person answered about a call that its run had gone on without.
fn late_answer<'a>(
    call: &CallRecord,
    questions: &'a [QuestionRecord],
) -> Option<(&'a QuestionRecord, UnknownResolution)> {
    let is_about = |question: &&QuestionRecord| {
        // Who let it run, or what was answered to its tool be delivered, said nothing of what became of it.
        question.call_id.as_ref() == Some(&call.call_id)
            && question.status == QuestionStatus::Answered
            && question.kind != QuestionKind::NearDuplicate
    };
    let question = questions.iter().find(is_about)?;
    Some((question, resolution_by(call, question)?))
}

/// What an answered question says became of its call.
fn resolution_by(call: &CallRecord, question: &QuestionRecord) -> Option<UnknownResolution> {
    let answer = question.answer.as_ref()?;
    Some(match answer.choice {
        Choice::Happened => happened(call, question),
        Choice::Execute | Choice::Continue => UnknownResolution::NotHappened {
            why: format!("{} says that it did not happen; it may be asked for again", answer.by),
        },
        Choice::Skip | Choice::Abort => UnknownResolution::Skipped,
    })
}

/// What a person's answer about a call in doubt comes to, once nobody acts for its run any more; `None` where it comes to nothing. A call that its run
/// had gone on without is settled by whatever was answered: its turn was over before.
fn word_behind_the_end<'a>(
    call: &CallRecord,
    questions: &'a [QuestionRecord],
) -> Option<(&'a QuestionRecord, UnknownResolution)> {
    if is_left_open(call) {
        return late_answer(call, questions);
    }
    if call.status != CallStatus::Unknown || call.resolution.is_some() {
        return None;
    }
    let counts = |question: &&QuestionRecord| {
        let choice = question.answer.as_ref().map(|answer| answer.choice);
        question.call_id.as_ref() == Some(&call.call_id)
            && question.status == QuestionStatus::Answered
            && choice.is_some_and(|choice| applies_behind_the_end(question.kind, choice))
    };
    let question = questions.iter().find(counts)?;
    Some((question, resolution_by(call, question)?))
}

/// Applies what persons answered about calls of a run that is over without anybody knowing what came of them, and returns these calls.
/// One that is not over is left as it is: its owner applies answers when it goes on.
///
/// Durable Jobs v1 spec §8.3. Nothing is sent: *execute* only lets a later run of the lineage ask for it again.
///
/// # Errors
/// Those of the store. Answers that were applied stay applied.
pub async fn settle_late_answers(store: &dyn Store, env: &Env, run: &RunId) -> Result<Vec<CallRecord>, StoreError> {
    let mut settled = Vec::new();
    if !is_over(&store.run(run).await?) {
        return Ok(settled);
    }
    let questions = store.open_questions(Some(run)).await?;
    for id in questions.iter().filter_map(|question| question.call_id.as_ref()) {
        let call = store.call(id).await?;
        let Some((question, resolution)) = word_behind_the_end(&call, &questions) else { continue };
        settled.push(store.resolve_late(id, resolution, &question.question_id, env.now()).await?);
    }
    Ok(settled)
}
