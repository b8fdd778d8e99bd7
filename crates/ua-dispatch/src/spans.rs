//! What a dispatch looks like to whoever records spans: one span per call, and an event for each thing that happens to it.
//!
//! Durable Jobs v1 spec §10; Durable runner, current state §11. Names follow OpenTelemetry's conventions for generative AI; what
//! they do not know begins with `ua.`. Arguments and results are events of the target `ua::content`, below everything that is
//! recorded without being asked for.

use tracing::{Span, field};
use ua_core::{CallStatus, Outcome, RawReply, signed};
use ua_ledger::Finding;
use ua_store::{CallRecord, stored_name};

use crate::dispatcher::{CallProgress, Dispatched};

/// The target of what people, models and tools said.
const CONTENT: &str = "ua::content";

/// The span of one call, from its admission to its receipt.
pub(crate) fn of_call(call: &CallRecord) -> Span {
    tracing::info_span!(
        "execute_tool",
        otel.name = format_args!("execute_tool {}", call.name.tool),
        otel.kind = "internal",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = call.name.tool,
        gen_ai.tool.call.id = call.tool_use_id,
        gen_ai.tool.type = "function",
        run_id = call.run_id.as_str(),
        step_id = call.step_id.as_str(),
        tool_call_id = call.call_id.as_str(),
        ua.turn = signed(call.position.turn),
        ua.tool.ordinal = signed(call.position.ordinal),
        ua.tool.server = call.name.server,
        ua.tool.class = call.policy.class.as_str(),
        ua.tool.on_unknown = call.policy.on_unknown.as_str(),
        ua.tool.status = field::Empty,
        ua.tool.attempts = field::Empty,
        ua.tool.deduplicated_from = field::Empty,
        ua.tool.replay = field::Empty,
    )
}

/// Records on the current span how a dispatch ended, and counts the call.
pub(crate) fn ended(dispatched: &Dispatched) {
    let span = Span::current();
    match dispatched {
        Dispatched::Settled(call) => {
            let status = call.status.as_str();
            span.record("ua.tool.status", status).record("ua.tool.attempts", signed(call.attempt));
            if let Some(twin) = call.answered_by() {
                span.record("ua.tool.deduplicated_from", twin.as_str());
            }
            if let Some(replay) = &call.replay_status {
                span.record("ua.tool.replay", field::display(stored_name(replay)));
            }
            match call.status {
                CallStatus::FailedDefinite | CallStatus::FailedReported => {
                    span.record("otel.status_code", "ERROR");
                    span.record("error.type", call.error_code.as_deref().unwrap_or("tool_error"));
                }
                CallStatus::Prepared
                | CallStatus::Running
                | CallStatus::Unknown
                | CallStatus::Succeeded
                | CallStatus::Cancelled => {}
            }
        }
        Dispatched::Held(_) => {
            span.record("ua.tool.status", "held");
        }
        Dispatched::Parked { .. } => {
            span.record("ua.tool.status", "parked");
        }
        Dispatched::Stopped => {
            span.record("ua.tool.status", "stopped");
        }
    }
}

/// What the tool answered, for those who ask for content.
pub(crate) fn answered(outcome: &Outcome) {
    if let Outcome::Raw(RawReply::ToolResult { result }) = outcome {
        tracing::trace!(target: CONTENT, { gen_ai.tool.call.result = %result }, "gen_ai.tool.result");
    }
}

/// One event per notice. Texts of tools and of people stay out.
pub(crate) fn note(notice: &CallProgress) {
    match notice {
        CallProgress::Sending { call } => {
            tracing::info!(attempt = signed(call.attempt), class = call.policy.class.as_str(), "ua.call.sending");
            let arguments = &*call.arguments;
            tracing::trace!(target: CONTENT, { gen_ai.tool.call.arguments = %arguments }, "gen_ai.tool.call");
        }
        CallProgress::Settled { call } => {
            let deduplicated = call.is_answered_by_twin();
            tracing::info!(
                tool_call_id = call.call_id.as_str(),
                tool = call.name.tool,
                class = call.policy.class.as_str(),
                status = call.status.as_str(),
                attempts = signed(call.attempt),
                deduplicated,
                code = call.error_code.as_deref(),
                "ua.call.ended"
            );
        }
        CallProgress::Retrying { call, wait, .. } => {
            let (attempt, seconds) = (signed(call.attempt), wait.as_secs_f64());
            tracing::info!(attempt, seconds, code = call.error_code.as_deref(), "ua.call.retrying");
        }
        CallProgress::Waiting { call, wait } => {
            tracing::info!(attempt = signed(call.attempt), seconds = wait.as_secs_f64(), "ua.call.waiting");
        }
        CallProgress::Probed { call, asked } => {
            let finding = match &asked.finding {
                Finding::Found { .. } => "found",
                Finding::Absent => "absent",
                Finding::Unclear { .. } => "unclear",
            };
            let conclusive = asked.proves_absence() || matches!(asked.finding, Finding::Found { .. });
            tracing::info!(attempt = signed(call.attempt), probe = asked.tool, finding, conclusive, "ua.call.probed");
        }
        CallProgress::Resuming { call, task } => {
            let attempt = signed(call.attempt);
            tracing::info!(tool_call_id = call.call_id.as_str(), attempt, is_task = task.is_some(), "ua.call.resuming");
        }
        CallProgress::Answered { call_id } => tracing::debug!(tool_call_id = call_id.as_str(), "ua.call.answered"),
        CallProgress::Progress { call_id, .. } => tracing::debug!(tool_call_id = call_id.as_str(), "ua.call.progress"),
        CallProgress::Asking { question, patience } => {
            let question_id = question.question_id.as_str();
            tracing::info!(question_id, seconds = patience.as_secs_f64(), "ua.call.asking");
        }
        CallProgress::Declined { call, waited } => {
            tracing::info!(tool_call_id = call.call_id.as_str(), seconds = waited.as_secs_f64(), "ua.call.declined");
        }
        CallProgress::Held { question } => {
            let question_id = question.question_id.as_str();
            tracing::info!(question_id, kind = %stored_name(&question.kind), "ua.call.held");
        }
    }
}
