//! The questions that the ledger asks about a call, in a person's words.

use serde_json::json;
use ua_core::{Env, QuestionId};
use ua_store::{AttemptRecord, CallRecord, Choice, NewQuestion, QuestionKind};

/// What is asked.
pub(crate) enum Why<'a> {
    /// Sent, outcome not known.
    Unknown { attempt: Option<&'a AttemptRecord>, because: &'a str },
    /// The same, and the run goes on meanwhile.
    WentOn { attempt: Option<&'a AttemptRecord> },
    /// Another call may already have had this effect.
    NearDuplicate { other: &'a CallRecord },
    /// A policy wants approval.
    Approval,
}

pub(crate) fn question(env: &Env, call: &CallRecord, why: &Why<'_>) -> NewQuestion {
    let tool = &call.name.tool;
    let arguments = shown_arguments(call);
    let (kind, text, choices) = match why {
        Why::Unknown { attempt, because } => {
            let sent = attempt.map_or_else(String::new, |a| format!(" at {}", a.started_at));
            let text = format!(
                "Did `{tool}` happen? Attempt {} was sent{sent} and its outcome is not known ({because}). Arguments: {arguments}",
                call.attempt
            );
            (QuestionKind::UnknownOutcome, text, vec![Choice::Happened, Choice::Execute, Choice::Skip, Choice::Abort])
        }
        Why::WentOn { attempt } => {
            let sent = attempt.map_or_else(String::new, |a| format!(" at {}", a.started_at));
            let text = format!(
                "Did `{tool}` happen? Attempt {} was sent{sent} and its outcome is not known. The run goes on without it and does \
                 not repeat it until you answer: `happened`, or `execute` if it did not and may be asked for again. Arguments: {arguments}",
                call.attempt
            );
            (QuestionKind::UnknownOutcome, text, vec![Choice::Happened, Choice::Execute, Choice::Skip])
        }
        Why::NearDuplicate { other } => {
            let (id, status, turn) = (&other.call_id, other.status, other.position.turn);
            let route = if other.name == call.name { String::new() } else { format!("`{}`, ", other.name.raw) };
            let run = if other.run_id == call.run_id { String::new() } else { format!(" of run {}", other.run_id) };
            let words = if other.args_hash == call.args_hash { "the same" } else { "other" };
            let text = format!(
                "Run `{tool}`? Call {id} of this job ({route}{status}, turn {turn}{run}) may already have had the same effect with \
                 {words} arguments. Arguments now: {arguments}. Arguments then: {}",
                shown_arguments(other)
            );
            (QuestionKind::NearDuplicate, text, vec![Choice::Execute, Choice::Skip, Choice::Abort])
        }
        Why::Approval => {
            let text =
                format!("May `{tool}` run? A policy asks for approval of each of its calls. Arguments: {arguments}");
            (QuestionKind::Approval, text, vec![Choice::Execute, Choice::Skip, Choice::Abort])
        }
    };
    NewQuestion {
        question_id: QuestionId::new(env),
        call_id: Some(call.call_id.clone()),
        kind,
        text,
        detail: json!({
            "tool": call.name.raw,
            "arguments": call.arguments,
            "args_hash": call.args_hash,
            "tool_digest": call.tool_digest,
            "idempotency_key": call.idempotency_key,
            "attempt": call.attempt,
        }),
        choices,
        at: env.now(),
    }
}

/// The arguments on one line, long values cut.
fn shown_arguments(call: &CallRecord) -> String {
    let text = call.arguments.to_string();
    if text.chars().count() <= 600 {
        return text;
    }
    let cut: String = text.chars().take(600).collect();
    format!("{cut}… ({} bytes)", text.len())
}
