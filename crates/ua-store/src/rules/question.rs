//! Questions: raised by a run's owner, answered by a person, closed by the owner when it acted on the answer.

use serde_json::Value;
use ua_core::{CallId, RunId, Timestamp};

use super::{conflict, not_found};
use crate::commit::{Answer, NewAnswer, NewQuestion};
use crate::error::StoreError;
use crate::gateway::{is_gateway, is_over};
use crate::plain_text::plain_text;
use crate::record::{AnswerRecord, Choice, QuestionKind, QuestionRecord, QuestionStatus, RunRecord};

/// A new, open question of `run`.
pub fn question_raised(run: &RunId, question: NewQuestion) -> QuestionRecord {
    QuestionRecord {
        question_id: question.question_id,
        run_id: run.clone(),
        call_id: question.call_id,
        kind: question.kind,
        text: plain_text(question.text.as_str()).into_owned(),
        detail: question.detail,
        choices: question.choices,
        created_at: question.at,
        status: QuestionStatus::Open,
        answer: None,
        closed_because: None,
    }
}

/// The question with its answer. Only an open question takes one, and only one of its choices.
pub fn question_answered(mut question: QuestionRecord, new: NewAnswer) -> Result<QuestionRecord, StoreError> {
    let Answer { choice, proof, text } = new.answer;
    match question.status {
        QuestionStatus::Open => {}
        QuestionStatus::Answered => {
            return Err(conflict("questions", &question.question_id, "it has already been answered"));
        }
        QuestionStatus::Closed => return Err(conflict("questions", &question.question_id, "it is closed")),
    }
    if !question.choices.contains(&choice) {
        let why = format!("{choice:?} is not one of its choices {:?}", question.choices);
        return Err(conflict("questions", &question.question_id, why));
    }
    question.status = QuestionStatus::Answered;
    question.answer = Some(AnswerRecord { choice, proof, text, by: new.by, answered_at: new.at, applied_at: None });
    Ok(question)
}

/// The question, closed. One that is closed stays as it is.
pub fn question_closed(mut question: QuestionRecord, run: &RunId, at: Timestamp) -> Result<QuestionRecord, StoreError> {
    if question.run_id != *run {
        return Err(not_found("questions", &question.question_id));
    }
    if question.status != QuestionStatus::Closed {
        question.status = QuestionStatus::Closed;
        if let Some(answer) = &mut question.answer {
            answer.applied_at = Some(at);
        }
    }
    Ok(question)
}

/// The question, closed before anybody answered it.
pub fn question_withdrawn(question: QuestionRecord, run: &RunId, at: Timestamp) -> Result<QuestionRecord, StoreError> {
    if question.run_id == *run && question.status == QuestionStatus::Answered {
        return Err(conflict("questions", &question.question_id, "it has been answered by now"));
    }
    question_closed(question, run, at)
}

/// Whether an answer counts, where nobody acts for its run any more: one to a question about what became of a call, if it is a fact or leaves the call
/// as it is. Whatever would have something sent comes too late.
pub fn applies_behind_the_end(kind: QuestionKind, choice: Choice) -> bool {
    match (kind, choice) {
        (QuestionKind::UnknownOutcome, Choice::Happened | Choice::Skip) => true,
        (_, Choice::Happened | Choice::Skip | Choice::Execute | Choice::Continue | Choice::Abort) => false,
    }
}

/// The question as the end of its session leaves it: closed, where no answer to it would count any more. What a person has answered is theirs, and
/// what is asked about a call in doubt has answers that count behind the end.
pub fn question_ended(question: QuestionRecord, at: Timestamp) -> Option<QuestionRecord> {
    if question.status != QuestionStatus::Open || outlives_a_session(question.kind, &question.choices) {
        return None;
    }
    let run = question.run_id.clone();
    let closed = question_closed(question, &run, at).ok()?;
    Some(QuestionRecord { closed_because: Some(SESSION_ENDED.to_owned()), ..closed })
}

/// Refuses a question of a session that a person ended, if no answer to it would count.
pub fn may_ask(run: &RunRecord, question: &NewQuestion) -> Result<(), StoreError> {
    if is_gateway(run) && is_over(run) && !outlives_a_session(question.kind, &question.choices) {
        return Err(conflict("runs", &run.run_id, "a person ended this session: nobody is asked for it any more"));
    }
    Ok(())
}

fn outlives_a_session(kind: QuestionKind, choices: &[Choice]) -> bool {
    choices.iter().any(|choice| applies_behind_the_end(kind, *choice))
}

/// Why a question was closed with its session.
const SESSION_ENDED: &str = "a person ended its session, and its call is not sent";

/// The call that a person skipped with the answer of this question, if they did.
pub fn skipped_by(question: &QuestionRecord) -> Option<&CallId> {
    let is_skip = question.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Skip);
    question.call_id.as_ref().filter(|_| is_skip)
}

/// Whether a person let the call of this question run, and nobody acted on it yet.
pub fn is_allowed(question: &QuestionRecord) -> bool {
    let choice = question.answer.as_ref().map(|answer| answer.choice);
    question.status == QuestionStatus::Answered && matches!(choice, Some(Choice::Execute | Choice::Continue))
}

/// Whether a person said that an earlier call was what the call of this question would do, and nobody acted on it yet.
pub fn is_done_by_another(question: &QuestionRecord) -> bool {
    let choice = question.answer.as_ref().map(|answer| answer.choice);
    question.kind == QuestionKind::NearDuplicate
        && question.status == QuestionStatus::Answered
        && choice == Some(Choice::Happened)
}

/// Where the detail of a question about what is missing has the calls that nobody declared, with the effect that each may have been.
pub const UNDECLARED: &str = "undeclared";

/// Where it has the calls of which nobody knows whether they happened, and a person may say so here.
pub const IN_DOUBT: &str = "in_doubt";

/// Where it has all calls that it tells of as ones that may have happened, also those of which nobody can say so here.
pub const TOLD_OF: &str = "told_of";

/// Where a question about the credentials of the model's provider says that nothing is wrong with them: their account cannot pay.
pub const UNPAID: &str = "unpaid";

/// The calls of which a person said that they happened, who was asked what is missing, and that no record says so of yet.
pub fn said_to_have_happened(asked: &QuestionRecord) -> Vec<CallId> {
    let is_said = asked.kind == QuestionKind::MissingEvidence
        && asked.answer.as_ref().is_some_and(|answer| answer.choice == Choice::Happened);
    if is_said { named_in(asked, IN_DOUBT).unwrap_or_default() } else { Vec::new() }
}

/// The calls that a question about what is missing tells of as ones that may have happened.
pub fn told_of(asked: &QuestionRecord) -> Vec<CallId> {
    // A question of an earlier version has those alone of which a person may say so.
    named_in(asked, TOLD_OF).or_else(|| named_in(asked, IN_DOUBT)).unwrap_or_default()
}

/// The calls that the answer `happened` would be about.
pub fn said_by_happened(asked: &QuestionRecord) -> Vec<CallId> {
    let undeclared = asked.detail.get(UNDECLARED).and_then(Value::as_array).into_iter().flatten();
    let undeclared = undeclared.filter_map(|call| serde_json::from_value(call.get("call_id")?.clone()).ok());
    let in_doubt = named_in(asked, IN_DOUBT).unwrap_or_default();
    let mut calls: Vec<CallId> = Vec::new();
    for call in asked.call_id.iter().cloned().chain(in_doubt).chain(undeclared) {
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    calls
}

fn named_in(asked: &QuestionRecord, field: &str) -> Option<Vec<CallId>> {
    serde_json::from_value(asked.detail.get(field)?.clone()).ok()
}

/// When a person said with the answer of this question that its run is to end, if they did.
pub fn abort_in(question: &QuestionRecord) -> Option<Timestamp> {
    question.answer.as_ref().filter(|answer| answer.choice == Choice::Abort).map(|answer| answer.answered_at)
}

/// Whether `new` asks about the run what the open question `asked` of it asks already, so that one answer is enough. An answered one
/// does not count: what it is about is there again.
pub fn is_same_question(asked: &QuestionRecord, new: &NewQuestion) -> bool {
    let is_of_run = asked.call_id.is_none() && new.call_id.is_none();
    is_of_run
        && asked.status == QuestionStatus::Open
        && asked.kind == new.kind
        && asked.text == plain_text(new.text.as_str())
}

/// Refuses a question that is not about `call`.
pub fn question_for_call(question: &QuestionRecord, call: &CallId) -> Result<(), StoreError> {
    if question.call_id.as_ref() == Some(call) {
        Ok(())
    } else {
        Err(conflict("questions", &question.question_id, format!("it is not about call {call}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all that can be answered, only what is a fact or changes nothing counts where nothing is sent any more.
    #[test]
    fn behind_the_end_of_a_run_only_facts_count() {
        let choices = [Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort, Choice::Continue];
        let counted =
            |kind: QuestionKind| choices.into_iter().filter(|choice| applies_behind_the_end(kind, *choice)).collect();
        for (kind, counts) in [
            (QuestionKind::UnknownOutcome, vec![Choice::Happened, Choice::Skip]),
            (QuestionKind::NearDuplicate, vec![]),
            (QuestionKind::Approval, vec![]),
            (QuestionKind::RepeatedFailures, vec![]),
            (QuestionKind::MissingEvidence, vec![]),
            (QuestionKind::OrphanAlive, vec![]),
            (QuestionKind::CrashLoop, vec![]),
            (QuestionKind::AskUser, vec![]),
            (QuestionKind::AuthFailure, vec![]),
            (QuestionKind::AmbiguousRecipient, vec![]),
            (QuestionKind::Elicitation, vec![]),
        ] {
            let counted: Vec<Choice> = counted(kind);
            assert_eq!(counted, counts, "{kind:?}");
        }
    }

    /// What a session leaves open is what has an answer that counts, whatever its choices are; what was answered, or is closed, stays as it is.
    #[test]
    fn a_session_that_is_ended_leaves_open_what_can_still_be_answered() {
        let at = ua_core::Env::simulated(1).now();
        let choices = [Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort, Choice::Continue];
        for kind in QuestionKind::ALL {
            for bits in 0..1_u32 << choices.len() {
                let offered: Vec<Choice> =
                    (0..choices.len()).filter(|bit| bits & (1 << bit) != 0).map(|bit| choices[bit]).collect();
                for status in [QuestionStatus::Open, QuestionStatus::Answered, QuestionStatus::Closed] {
                    let asked = QuestionRecord {
                        question_id: ua_core::QuestionId::parse("q_1").unwrap(),
                        run_id: RunId::parse("run_1").unwrap(),
                        call_id: None,
                        kind,
                        text: "t".into(),
                        detail: Value::Null,
                        choices: offered.clone(),
                        created_at: at,
                        status,
                        answer: None,
                        closed_because: None,
                    };
                    let counts = offered.iter().any(|choice| applies_behind_the_end(kind, *choice));
                    let is_closed = status == QuestionStatus::Open && !counts;
                    let ended = question_ended(asked, at);
                    assert_eq!(ended.is_some(), is_closed, "{kind:?} {offered:?} {status:?}");
                    assert!(ended.is_none_or(|ended| ended.status == QuestionStatus::Closed), "{kind:?}");
                }
            }
        }
    }
}
