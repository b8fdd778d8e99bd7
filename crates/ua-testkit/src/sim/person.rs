//! A person: answers by what really happened outside, raises budgets, and now and then does not care.

use ua_core::{CallId, RunId, Timestamp};
use ua_store::{
    CallRecord, Choice, NewAnswer, NewOverride, OverrideKind, QuestionKind, QuestionRecord, QuestionStatus, Store,
    StoreError,
};

use super::job::tag_of;
use super::servers::Effect;

/// The questions that nobody answered yet.
pub(super) async fn open_questions(store: &dyn Store, run: &RunId) -> Result<Vec<QuestionRecord>, StoreError> {
    let questions = store.open_questions(Some(run)).await?;
    Ok(questions.into_iter().filter(|question| question.status == QuestionStatus::Open).collect())
}

/// Answers a question; says what was chosen.
pub(super) async fn answer(
    store: &dyn Store,
    question: &QuestionRecord,
    effects: &[Effect],
    cares: bool,
    at: Timestamp,
) -> Result<Choice, StoreError> {
    let call = match &question.call_id {
        Some(call) => Some(store.call(call).await?),
        None => None,
    };
    let choice = match call {
        Some(_) if !cares => Choice::Skip,
        Some(call) => by_looking(question.kind, &call, effects),
        // About a server that does not die and the like: the person has seen to it.
        None => Choice::Continue,
    };
    let answer = NewAnswer {
        question_id: question.question_id.clone(),
        choice,
        proof: None,
        text: None,
        by: "a person".into(),
        at,
    };
    store.insert_answer(answer).await?;
    Ok(choice)
}

fn by_looking(kind: QuestionKind, call: &CallRecord, effects: &[Effect]) -> Choice {
    let of_call = |call: &CallId| effects.iter().any(|effect| effect.call == *call);
    let tag = tag_of(&call.tool_use_id);
    if kind == QuestionKind::UnknownOutcome && of_call(&call.call_id) {
        return Choice::Happened;
    }
    // The same thing was asked for before, in other words, and is there.
    if kind == QuestionKind::NearDuplicate && effects.iter().any(|effect| effect.tag == tag) {
        return Choice::Skip;
    }
    Choice::Execute
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
