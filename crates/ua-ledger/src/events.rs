//! What the ledger says to whoever records events: one line per decision it takes and per write that carries it out.
//!
//! Durable Jobs v1 spec §10; Durable runner, current state §11. Keys, arguments and answers are no fields.

use ua_core::{CallId, signed};
use ua_store::{CallRecord, QuestionRecord, ReplayStatus, stored_name};

use crate::admission::Admission;

/// What admission said.
pub(crate) fn admitted(admission: &Admission) {
    let (verdict, call) = match admission {
        Admission::Settled(call) => ("settled", call.call_id.as_str()),
        Admission::Held(question) => ("held", question.call_id.as_ref().map_or("", |call| call.as_str())),
        Admission::Ready(prepared) => ("ready", prepared.call().call_id.as_str()),
        Admission::Continues(continued) => ("continues", continued.call().call_id.as_str()),
        Admission::Ongoing(permit) => ("ongoing", permit.call().call_id.as_str()),
        Admission::WaitFor(twin) => ("wait_for", twin.as_str()),
        Admission::Unknown(unknown) => ("unknown", unknown.call().call_id.as_str()),
    };
    let twin = match admission {
        Admission::Settled(call) => call.deduplicated_from.as_ref().map(CallId::as_str),
        Admission::Held(_)
        | Admission::Ready(_)
        | Admission::Continues(_)
        | Admission::Ongoing(_)
        | Admission::WaitFor(_)
        | Admission::Unknown(_) => None,
    };
    tracing::info!(tool_call_id = call, verdict, deduplicated_from = twin, "ua.ledger.admitted");
}

/// RUNNING is committed.
pub(crate) fn started(call: &CallRecord) {
    let (tool_call_id, class) = (call.call_id.as_str(), call.policy.class.as_str());
    tracing::info!(tool_call_id, attempt = signed(call.attempt), class, tool = call.name.tool, "ua.ledger.started");
}

/// The store refused a start: a twin holds the key, or the scope was touched meanwhile.
pub(crate) fn not_started(call: &CallRecord) {
    tracing::info!(tool_call_id = call.call_id.as_str(), "ua.ledger.start_refused");
}

/// What an attempt brought back is committed.
pub(crate) fn settled(call: &CallRecord) {
    let (tool_call_id, status) = (call.call_id.as_str(), call.status.as_str());
    let (attempt, code) = (signed(call.attempt), call.error_code.as_deref());
    tracing::info!(tool_call_id, status, attempt, code, "ua.ledger.settled");
}

/// A resume decided about a call that was in flight.
pub(crate) fn replayed(call: &str, replay: ReplayStatus) {
    tracing::info!(tool_call_id = call, replay = %stored_name(&replay), "ua.ledger.replayed");
}

/// A call was cancelled: it was never sent.
pub(crate) fn cancelled(call: &CallRecord, code: &str) {
    tracing::info!(tool_call_id = call.call_id.as_str(), code, "ua.ledger.cancelled");
}

/// A person is asked.
pub(crate) fn asked(question: &QuestionRecord) {
    let call = question.call_id.as_ref().map(CallId::as_str);
    let question_id = question.question_id.as_str();
    tracing::info!(tool_call_id = call, question_id, kind = %stored_name(&question.kind), "ua.question.asked");
}
