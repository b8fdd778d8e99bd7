//! A person: answers by what really happened outside, raises budgets, and now and then does not care, or decides otherwise.

use std::collections::BTreeSet;

use ua_core::{CallId, Env, RunId, Timestamp};
use ua_ledger::{MayAct, NotTaken, Outside};
use ua_store::{
    Answer, AttemptRecord, CallRecord, Choice, LedgerStore, NewOverride, OverrideKind, QuestionKind, QuestionRecord,
    QuestionStatus, RunRecord, RunStore, Store, StoreError,
};

use super::job::tag_of;
use super::servers::{Effect, Servers};
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

/// What a person sees of processes and servers, as `ua answer` does on their machine.
pub(super) struct Sees<'a> {
    pub(super) servers: &'a Servers,
    /// The runs whose owner lives.
    pub(super) driven: BTreeSet<RunId>,
}

impl Outside for Sees<'_> {
    fn may_act(&self, call: &CallRecord, last: &AttemptRecord) -> MayAct {
        self.servers.may_still_act(call, last)
    }

    fn may_be_driven(&self, run: &RunRecord) -> bool {
        self.driven.contains(&run.run_id)
    }
}

/// An answer that was not taken: it is not given again before what spoke against it looks different, or before the time that was named.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) choice: Choice,
    /// The call that spoke against it, and how it stood.
    of: Option<(CallId, String)>,
    /// What was said against it.
    pub(super) why: String,
    /// From when on it is taken, as far as was said, by the wall clock.
    pub(super) until: Option<Timestamp>,
}

impl Refused {
    /// Whether there is reason to try again.
    pub(super) async fn is_over(&self, store: &dyn Store, sees: &Sees<'_>, now: Timestamp) -> Result<bool, StoreError> {
        if self.until.is_some_and(|until| now >= until) {
            return Ok(true);
        }
        let Some((call, stood)) = &self.of else { return Ok(false) };
        Ok(sight(store, sees, call).await? != *stood)
    }
}

/// How a call stands, in words for comparison.
async fn sight(store: &dyn Store, sees: &Sees<'_>, call: &CallId) -> Result<String, StoreError> {
    let call = match store.call(call).await {
        Ok(call) => call,
        Err(StoreError::NotFound { .. }) => return Ok("gone".to_owned()),
        Err(error) => return Err(error),
    };
    let (run, attempts) = (store.run(&call.run_id).await?, store.attempts(&call.call_id).await?);
    let last = attempts.last().map(|last| (last.ended_at, &last.handle, act(sees.may_act(&call, last))));
    let driven = sees.may_be_driven(&run);
    Ok(format!("{} {} {driven} {} {last:?}", call.status, run.status.as_str(), attempts.len()))
}

fn act(may: MayAct) -> &'static str {
    match may {
        MayAct::No => "no",
        MayAct::For(_) => "for a time",
        MayAct::Yes => "yes",
    }
}

/// What became of an answer.
pub(super) enum Said {
    /// It was taken.
    Word(Box<Word>),
    /// It was refused.
    Refused(Refused),
    /// There was nothing to say, or it is settled meanwhile.
    Nothing,
}

/// The questions that nobody answered yet, of every run.
pub(super) async fn open_questions(store: &dyn Store) -> Result<Vec<QuestionRecord>, StoreError> {
    let questions = store.open_questions(None).await?;
    Ok(questions.into_iter().filter(|question| question.status == QuestionStatus::Open).collect())
}

/// What a person of this mind chooses; `None` when the mind answers nothing, or the question does not offer it.
pub(super) fn choice(
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

/// Answers a question as `ua answer` does.
pub(super) async fn answer(
    store: &dyn Store,
    question: &QuestionRecord,
    mind: PersonOutcome,
    (step, env, sees): (u64, &Env, &Sees<'_>),
    asked_before: bool,
) -> Result<Said, StoreError> {
    let call = match &question.call_id {
        Some(call) => Some(store.call(call).await?),
        None => None,
    };
    let effects = sees.servers.effects();
    let Some(choice) = choice(mind, question, call.as_ref(), &effects, asked_before) else { return Ok(Said::Nothing) };
    let remark = (mind == PersonOutcome::Remarks || mind == PersonOutcome::Skips).then(|| format!("remark{step}"));
    let text = match question.kind {
        QuestionKind::Elicitation if choice == Choice::Continue => Some(ASKED_FOR.to_owned()),
        QuestionKind::AskUser if choice == Choice::Continue => remark.clone().or_else(|| Some("Yes.".to_owned())),
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
    let answer = Answer { choice, proof: None, text };
    let given = ua_ledger::give_answer(store, env, question, answer, "a person", sees).await;
    let Err(not_taken) = given else {
        let question = store.question(&question.question_id).await?;
        return Ok(Said::Word(Box::new(Word { step, question, call, mind, choice, remark })));
    };
    let why = not_taken.to_string();
    let (of, until) = match not_taken {
        NotTaken::Settled(_) | NotTaken::Store { source: StoreError::Conflict { .. }, .. } => {
            return Ok(Said::Nothing);
        }
        NotTaken::Store { source, .. } | NotTaken::Unsettled(source) => return Err(source),
        NotTaken::MayStillBegin { call, until } => (Some(call), Some(until)),
        NotTaken::UnderWay { call, .. } => (Some(call), None),
        NotTaken::RunEnded { .. }
        | NotTaken::SessionEnded { .. }
        | NotTaken::NotOffered { .. }
        | NotTaken::NobodyWaits { .. }
        | NotTaken::NoWords { .. }
        | NotTaken::Form { .. }
        | NotTaken::TooLong { .. }
        | NotTaken::ProofOfNothing
        | NotTaken::ProofOfSeveral { .. } => (None, None),
    };
    let of = match of {
        Some(call) => Some((call.clone(), sight(store, sees, &call).await?)),
        None => None,
    };
    Ok(Said::Refused(Refused { choice, of, why, until }))
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
