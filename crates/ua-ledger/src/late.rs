//! An answer in hand that the database does not take.
//!
//! It is in nobody's hands but this process's, which tries again ([`Patience`](crate::Patience)). Meanwhile, and when it gives up or has lost
//! the run, the answer is kept beside the database, synced. Whoever has the run next finds the call in doubt and the answer beside it, and
//! settles the call by it ([`answer_beside`]); one that says nothing certain is shown with the question. Durable Jobs v1 spec §8.3.
//! A disk that fills while a call is under way takes neither. So whoever may be killed at any moment has the room for an answer before the call is
//! started ([`LateReplies::make_room`]), and starts none without it.
//! Proved by: `identity::busy`, the end-to-end tests `bad_storage`, the gateway's `late`.

use std::fmt::Debug;

use async_trait::async_trait;
use serde_json::Value;
use ua_core::{CallId, CallStatus, PossibleEffect, QuestionId, RawReply, Resolution, RunId, Settlement, Timestamp};
use ua_store::{
    AttemptEnd, AttemptRecord, CallRecord, Choice, Durability, LateReply, LedgerStore as _, RunLease, RunStore as _,
    SettleAttempt, Store, StoreError, UnknownResolution,
};

use crate::interpret::{interpret, result_text};

/// What `settle` would store of a run, if it is the answer of a call with an effect: a read is done again.
pub(crate) fn late_reply(run: &RunId, settle: &SettleAttempt, sent_at: Option<Timestamp>) -> Option<LateReply> {
    let AttemptEnd::Replied { raw, .. } = &settle.end else { return None };
    (settle.durability == Durability::Synced).then(|| LateReply {
        at: settle.at,
        run_id: run.clone(),
        tool_call_id: settle.call_id.clone(),
        attempt: settle.attempt,
        sent_at,
        reply: raw.clone(),
    })
}

/// Whether somebody would miss this answer: that of a call with an effect.
pub(crate) fn would_be_missed(settle: &SettleAttempt) -> bool {
    matches!(settle.end, AttemptEnd::Replied { .. }) && settle.durability == Durability::Synced
}

/// How many bytes of text an answer brings, about.
pub(crate) fn size_of_answer(settle: &SettleAttempt) -> usize {
    fn size(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size).sum(),
            Value::Object(fields) => fields.iter().map(|(name, field)| name.len() + size(field)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<u64>(),
        }
    }
    let AttemptEnd::Replied { raw, .. } = &settle.end else { return 0 };
    match raw {
        RawReply::ToolResult { result } => size(result),
        RawReply::RpcError { message: text, .. } | RawReply::HttpStatus { body: text, .. } => text.len(),
        RawReply::Refused { .. } | RawReply::Statement { .. } | RawReply::Found { .. } => 0,
    }
}

/// What an answer says, on one line.
pub fn said(reply: &RawReply) -> String {
    let text = match reply {
        RawReply::ToolResult { result } if result.get("isError").and_then(Value::as_bool) == Some(true) => {
            format!("an error: {}", result_text(result))
        }
        RawReply::ToolResult { result } => result_text(result),
        RawReply::RpcError { code, message } => format!("error {code}: {message}"),
        RawReply::HttpStatus { status, body, .. } => format!("HTTP {status}: {body}"),
        RawReply::Refused { why } => format!("refused: {why}"),
        RawReply::Statement { .. } | RawReply::Found { .. } => String::new(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether an answer is one to an attempt that this database has: one that is older than the attempt of its number was given to another, of before
/// the database was put back.
pub fn is_of_attempt(attempts: &[AttemptRecord], late: &LateReply) -> bool {
    attempts.iter().any(|attempt| late.is_to(attempt))
}

/// Those of them that no attempt of this database has: what was slow to be stored was kept beside it as well.
pub(crate) fn unstored(mut late: Vec<LateReply>, attempts: &[AttemptRecord]) -> Vec<LateReply> {
    let has_it = |late: &LateReply| attempts.iter().any(|attempt| attempt.was_answered() && late.is_to(attempt));
    late.retain(|late| !has_it(late));
    late
}

/// The answer that says what came of a call in doubt: that of its newest attempt, which came after the attempt began, and says what
/// happened. An answer that is older belongs to a database that was put back since. That the newest attempt did nothing says nothing about
/// an earlier one that is in doubt, and that a request was turned away unread is no proof that is good for ever: a person is asked then.
pub(crate) fn answer_beside<'l>(
    call: &CallRecord,
    attempts: &[AttemptRecord],
    late: &'l [LateReply],
) -> Option<&'l LateReply> {
    if call.status != CallStatus::Unknown || call.resolution == Some(Resolution::Skipped) {
        return None;
    }
    let newest = attempts.iter().find(|attempt| attempt.attempt == call.attempt)?;
    let is_its_own = |late: &&LateReply| {
        late.tool_call_id == call.call_id
            && late.run_id == call.run_id
            && late.attempt == newest.attempt
            && is_of_attempt(attempts, late)
    };
    if !newest.was_lost() {
        return None;
    }
    late.iter().rev().filter(is_its_own).find(|late| {
        let means = interpret(&late.reply, &call.policy);
        let did_nothing =
            means.status == CallStatus::FailedDefinite || means.possible_effect == Some(PossibleEffect::None);
        let has_earlier_doubt = call.doubt.is_some_and(|doubt| doubt < call.attempt);
        means.status != CallStatus::Unknown && !late.reply.turns_away() && !(did_nothing && has_earlier_doubt)
    })
}

/// The answer to a call's newest attempt that was kept beside the database and says what came of it, as long as nothing of it is stored: for a
/// person who is about to say something else.
pub fn kept_answer<'l>(call: &CallRecord, attempts: &[AttemptRecord], late: &'l [LateReply]) -> Option<&'l LateReply> {
    let is_open = matches!(call.status, CallStatus::Running | CallStatus::Unknown);
    let newest = attempts.iter().find(|attempt| attempt.attempt == call.attempt).filter(|_| is_open)?;
    late.iter().rev().find(|late| {
        late.tool_call_id == call.call_id
            && late.run_id == call.run_id
            && late.attempt == newest.attempt
            && is_of_attempt(attempts, late)
            && !late.reply.turns_away()
            && interpret(&late.reply, &call.policy).status != CallStatus::Unknown
    })
}

/// Settles a call in doubt by its own answer, and closes the question about it.
pub(crate) async fn settle_late(
    store: &dyn Store,
    lease: &RunLease,
    late: &LateReply,
    settlement: Settlement,
    question: Option<&QuestionId>,
    at: Timestamp,
) -> Result<CallRecord, StoreError> {
    let (received_at, sent_at) = (late.at, late.sent_at);
    let answered = UnknownResolution::Answered { raw: late.reply.clone(), settlement, received_at, sent_at };
    let settled = store.resolve_unknown(lease, &late.tool_call_id, answered, question, at).await?;
    tracing::info!(call = %settled.call_id, "a call is settled by an answer that was kept beside the database");
    Ok(settled)
}

/// Settles those of these calls of the run that are in doubt and have their answer beside the database: for whoever has just taken a run and
/// decides about none of its calls before somebody asks. Returns these calls as they are then.
///
/// # Errors
/// Those of the store.
pub async fn settle_by_late_replies(
    store: &dyn Store,
    kept: &dyn LateReplies,
    lease: &RunLease,
    calls: &[CallRecord],
    at: Timestamp,
) -> Result<Vec<CallRecord>, StoreError> {
    // What a person has said about a call is for whoever decides about it.
    settle_unless(store, kept, (lease, at), calls, |_| true).await
}

/// The same for whoever ends the run: nobody decides about its calls behind that, so of what persons said only that a call happened, which is
/// applied as it was said, counts more than the call's own answer.
///
/// # Errors
/// Those of the store.
pub async fn settle_what_ends_by_late_replies(
    store: &dyn Store,
    kept: &dyn LateReplies,
    lease: &RunLease,
    calls: &[CallRecord],
    at: Timestamp,
) -> Result<Vec<CallRecord>, StoreError> {
    settle_unless(store, kept, (lease, at), calls, |said| said == Choice::Happened).await
}

async fn settle_unless(
    store: &dyn Store,
    kept: &dyn LateReplies,
    (lease, at): (&RunLease, Timestamp),
    calls: &[CallRecord],
    is_left: impl Fn(Choice) -> bool + Send + Sync,
) -> Result<Vec<CallRecord>, StoreError> {
    let mut settled = Vec::new();
    for call in calls.iter().filter(|call| call.status == CallStatus::Unknown) {
        let late = kept.about(&call.call_id);
        if late.is_empty() {
            continue;
        }
        let attempts = store.attempts(&call.call_id).await?;
        let Some(late) = answer_beside(call, &attempts, &late) else { continue };
        let questions = store.open_questions(Some(&call.run_id)).await?;
        let about = questions.iter().find(|question| question.call_id.as_ref() == Some(&call.call_id));
        if about.and_then(|question| question.answer.as_ref()).is_some_and(|answer| is_left(answer.choice)) {
            continue;
        }
        let (means, about) = (interpret(&late.reply, &call.policy), about.map(|question| &question.question_id));
        match settle_late(store, lease, late, means, about, at).await {
            Ok(call) => settled.push(call),
            // Then it stays in doubt, and the answer is shown with the question.
            Err(error) if error.is_refusal() => {
                tracing::warn!(call = %call.call_id, %error, "an answer that was kept beside the database does not settle its call");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(settled)
}

/// Where answers are kept that the database did not take.
#[async_trait]
pub trait LateReplies: Send + Sync + Debug {
    /// Sees to it that an answer of ordinary size can be kept also where the disk fills meanwhile: before a call with an effect is started.
    ///
    /// # Errors
    /// That there is no room for one, in words. The call is not started then.
    async fn make_room(&self) -> Result<(), String> {
        Ok(())
    }

    /// Keeps one on stable storage. A database that takes nothing does so to many at once: they have one sync between them, and no thread of the
    /// runtime waits for it.
    ///
    /// # Errors
    /// Why it is not kept, in words. It is in nobody's hands but this process's then.
    async fn keep(&self, late: &LateReply) -> Result<(), String>;

    /// All that are kept, oldest first.
    fn all(&self) -> Vec<LateReply>;

    /// Those about a call, oldest first.
    fn about(&self, call: &CallId) -> Vec<LateReply> {
        self.all().into_iter().filter(|late| late.tool_call_id == *call).collect()
    }
}

/// Keeps none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLateReplies;

#[async_trait]
impl LateReplies for NoLateReplies {
    async fn keep(&self, _late: &LateReply) -> Result<(), String> {
        Err("nothing is kept beside the database here".to_owned())
    }

    fn all(&self) -> Vec<LateReply> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use ua_core::CallId;
    use ua_store::conformance::samples;

    use super::*;

    /// A database that took longer than an answer is patient has it all the same, and nobody is told that it has not.
    #[test]
    fn an_answer_that_was_stored_in_the_end_is_no_late_one() {
        let attempt = |number: u32, outcome: Option<&str>| AttemptRecord {
            call_id: samples::call_id("call_1"),
            attempt: number,
            epoch: 1,
            server_generation: None,
            destination: None,
            started_at: samples::at(i64::from(number)),
            ended_at: None,
            outcome: outcome.map(str::to_owned),
            detail: None,
            handle: None,
        };
        let kept = |number: u32, call_id: &CallId| LateReply {
            at: samples::at(50),
            run_id: RunId::parse("run_1").unwrap(),
            tool_call_id: call_id.clone(),
            attempt: number,
            sent_at: Some(samples::at(i64::from(number))),
            reply: RawReply::RpcError { code: -32603, message: "no".to_owned() },
        };
        let late: Vec<LateReply> = (1..=4).map(|number| kept(number, &samples::call_id("call_1"))).collect();
        let attempts = [attempt(1, Some("replied")), attempt(2, Some("lost")), attempt(3, None)];
        let left: Vec<u32> = unstored(late.clone(), &attempts).iter().map(|late| late.attempt).collect();
        assert_eq!(left, [2, 3, 4]);
        // Of a database that was put back: the same number, sent at another time.
        let other = AttemptRecord { started_at: samples::at(9), ..attempt(1, Some("replied")) };
        assert_eq!(unstored(late, &[other]).len(), 4);
    }
}
