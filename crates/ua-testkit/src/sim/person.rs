//! A person: answers by what really happened outside, raises budgets, and now and then does not care, or decides otherwise.

use ua_core::{CallId, Env, RunId, Timestamp};
use ua_store::{
    Answer, CallRecord, Choice, LedgerStore, NewAnswer, NewOverride, OverrideKind, QuestionKind, QuestionRecord,
    QuestionStatus, RunStore, Store, StoreError,
};

use super::job::tag_of;
use super::servers::Effect;
use crate::outcomes::PersonOutcome;

/// What a tool is told that asks for something.
const ASKED_FOR: &str = r#"{"size": 3}"#;

/// Something that a person said.
#[derive(Debug, Clone)]
pub(super) struct Word {
    /// The step of the stage at which it was said.
    pub(super) step: u64,
    pub(super) question: QuestionRecord,
    pub(super) call: Option<CallRecord>,
    pub(super) mind: PersonOutcome,
    pub(super) choice: Choice,
    pub(super) remark: Option<String>,
}

/// The questions that nobody answered yet, of every run.
pub(super) async fn open_questions(store: &dyn Store) -> Result<Vec<QuestionRecord>, StoreError> {
    let questions = store.open_questions(None).await?;
    Ok(questions.into_iter().filter(|question| question.status == QuestionStatus::Open).collect())
}

/// What a person of this mind chooses; `None` when the mind answers nothing, or the question does not offer it.
fn choice(
    mind: PersonOutcome,
    question: &QuestionRecord,
    call: Option<&CallRecord>,
    effects: &[Effect],
    asked_before: bool,
) -> Option<Choice> {
    let by_looking = || match call {
        Some(call) => by_looking(question, call, effects),
        // What is missing does not come by asking again and again.
        None if question.kind == QuestionKind::MissingEvidence && asked_before => Choice::Abort,
        // About a server that does not die and the like: the person has seen to it.
        None => Choice::Continue,
    };
    let chosen = match mind {
        PersonOutcome::Looks | PersonOutcome::Remarks | PersonOutcome::WhileItLives => by_looking(),
        PersonOutcome::Skips => Choice::Skip,
        PersonOutcome::Aborts => Choice::Abort,
        PersonOutcome::Executes => Choice::Execute,
        PersonOutcome::ClaimsHappened => Choice::Happened,
        // These are no answers; the stage has them happen of their own accord.
        PersonOutcome::Silent
        | PersonOutcome::Cancels
        | PersonOutcome::Forks
        | PersonOutcome::Accepts
        | PersonOutcome::RaisesBudgets
        | PersonOutcome::PutsRight
        | PersonOutcome::Deletes => return None,
    };
    question.choices.contains(&chosen).then_some(chosen)
}

/// Answers a question; says what was said, or `None` when this mind has nothing to say to it, or it is settled meanwhile.
pub(super) async fn answer(
    store: &dyn Store,
    question: &QuestionRecord,
    mind: PersonOutcome,
    effects: &[Effect],
    step: u64,
    env: &Env,
    asked_before: bool,
) -> Result<Option<Word>, StoreError> {
    let call = match &question.call_id {
        Some(call) => Some(store.call(call).await?),
        None => None,
    };
    let Some(choice) = choice(mind, question, call.as_ref(), effects, asked_before) else { return Ok(None) };
    let remark = (mind == PersonOutcome::Remarks || mind == PersonOutcome::Skips).then(|| format!("remark{step}"));
    let text = match question.kind {
        QuestionKind::Elicitation if choice == Choice::Continue => Some(ASKED_FOR.to_owned()),
        QuestionKind::Elicitation
        | QuestionKind::UnknownOutcome
        | QuestionKind::NearDuplicate
        | QuestionKind::Approval
        | QuestionKind::RepeatedFailures
        | QuestionKind::MissingEvidence
        | QuestionKind::OrphanAlive
        | QuestionKind::CrashLoop
        | QuestionKind::AskUser
        | QuestionKind::AuthFailure
        | QuestionKind::AmbiguousRecipient => remark.clone(),
    };
    let new = NewAnswer {
        question_id: question.question_id.clone(),
        answer: Answer { choice, proof: None, text },
        by: "a person".into(),
        at: env.now(),
    };
    match store.insert_answer(new).await {
        Ok(question) => {
            // As `ua answer` does: a run that has ended has no owner who would.
            ua_ledger::settle_late_answers(store, env, &question.run_id).await?;
            Ok(Some(Word { step, question, call, mind, choice, remark }))
        }
        Err(StoreError::Conflict { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn by_looking(question: &QuestionRecord, call: &CallRecord, effects: &[Effect]) -> Choice {
    let of_call = |call: &CallId| effects.iter().any(|effect| effect.call == *call);
    let tag = tag_of(&call.tool_use_id);
    let is_there = effects.iter().any(|effect| effect.tag == tag);
    match question.kind {
        QuestionKind::UnknownOutcome if of_call(&call.call_id) => Choice::Happened,
        // The same thing was done by another call, and is there.
        QuestionKind::NearDuplicate if is_there && question.choices.contains(&Choice::Happened) => Choice::Happened,
        QuestionKind::NearDuplicate | QuestionKind::Approval if is_there => Choice::Skip,
        QuestionKind::UnknownOutcome if is_there => Choice::Happened,
        QuestionKind::UnknownOutcome
        | QuestionKind::NearDuplicate
        | QuestionKind::Approval
        | QuestionKind::AmbiguousRecipient => Choice::Execute,
        QuestionKind::AuthFailure
        | QuestionKind::Elicitation
        | QuestionKind::AskUser
        | QuestionKind::RepeatedFailures
        | QuestionKind::MissingEvidence
        | QuestionKind::OrphanAlive
        | QuestionKind::CrashLoop => Choice::Continue,
    }
}

/// Sets every budget far beyond what a simulation needs.
pub(super) async fn raise_budgets(store: &dyn Store, run: &RunId, at: Timestamp) -> Result<(), StoreError> {
    for (budget, value) in [("max_tool_calls", 1_000), ("max_wallclock_minutes", 1_000_000)] {
        let change = NewOverride {
            run_id: run.clone(),
            kind: OverrideKind::Budget,
            component: budget.to_owned(),
            value: value.into(),
            made_by: "a person".to_owned(),
            at,
        };
        store.insert_override(change).await?;
    }
    Ok(())
}
