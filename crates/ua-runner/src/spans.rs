//! What a run looks like to whoever records spans: run → step → turn → request to the model, and an event for each thing that
//! happens to the run itself.
//!
//! Durable Jobs v1 spec §10; Durable runner, current state §11. Names follow OpenTelemetry's conventions for generative AI
//! (`invoke_agent`, `chat`, `gen_ai.*`); what they do not know begins with `ua.`. Fields are ids, numbers and stored words.
//! Prompts and replies are events of the target `ua::content`, which nobody records without being asked to. The spans of
//! tool calls are made where calls are dispatched, by `ua-dispatch`.

use std::fmt::Display;

use tracing::{Span, field};
use ua_core::{ModelTurn, RunId, RunStatus, StepId, StopReason, signed};
use ua_llm::{LlmError, ModelRequest};
use ua_store::{QuestionRecord, RequestRecord, RunRecord, stored_name};

use crate::budget::Charge;
use crate::content;
use crate::error::RunError;
use crate::machine::Command;
use crate::pin::PinnedStep;

/// The span of one process's work on a run; the whole work, from taking the run to its files, belongs inside.
pub fn run_span(run: &RunRecord) -> Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = "invoke_agent ua",
        otel.kind = "internal",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = "ua",
        gen_ai.conversation.id = run.run_id.as_str(),
        run_id = run.run_id.as_str(),
        ua.run.root = run.root_run_id.as_str(),
        ua.run.mode = run.run_mode,
        ua.run.entrypoint = run.entrypoint,
        ua.run.epoch = field::Empty,
        ua.run.status = field::Empty,
        ua.run.stop_reason = field::Empty,
    )
}

/// The spans of a step and its open turn, made as the driver comes to them.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    step: Option<(StepId, Span)>,
    turn: Option<(u32, Span)>,
}

impl Spans {
    /// The span that `command` is carried out in: that of its turn, or of the step.
    pub(crate) fn of(&mut self, command: &Command, committed: u32, step: &PinnedStep, run: &RunId) -> Span {
        let parent = self.step(step, run);
        match command {
            Command::Reserve { .. }
            | Command::Think { .. }
            | Command::Wait { .. }
            | Command::Record { .. }
            | Command::Dispatch { .. }
            | Command::CancelAfterFailure { .. }
            | Command::Commit { .. } => self.turn(&parent, committed + 1, step, run),
            Command::FinishReplay { .. }
            | Command::CheckEvidence { .. }
            | Command::EnterPhase { .. }
            | Command::EnterIteration { .. }
            | Command::Guide { .. }
            | Command::Ask { .. }
            | Command::Stop(_) => {
                self.turn = None;
                parent
            }
        }
    }

    fn step(&mut self, step: &PinnedStep, run: &RunId) -> Span {
        match &self.step {
            Some((id, span)) if *id == step.step_id => span.clone(),
            Some(_) | None => {
                self.turn = None;
                let (run_id, step_id, index) = (run.as_str(), step.step_id.as_str(), step.step_index);
                let span = tracing::info_span!("step", run_id, step_id, ua.step.index = signed(index));
                self.step = Some((step.step_id.clone(), span.clone()));
                span
            }
        }
    }

    fn turn(&mut self, parent: &Span, turn: u32, step: &PinnedStep, run: &RunId) -> Span {
        match &self.turn {
            Some((open, span)) if *open == turn => span.clone(),
            Some(_) | None => {
                let (run_id, step_id) = (run.as_str(), step.step_id.as_str());
                let span = tracing::info_span!(parent: parent, "turn", run_id, step_id, ua.turn = signed(turn));
                self.turn = Some((turn, span.clone()));
                span
            }
        }
    }
}

/// The span of one request to the model.
pub(crate) fn chat(provider: &str, request: &ModelRequest) -> Span {
    let temperature = request.temperature_milli.map(|milli| f64::from(milli) / 1000.0);
    let span = tracing::info_span!(
        "chat",
        otel.name = format_args!("chat {}", request.model),
        otel.kind = "client",
        otel.status_code = field::Empty,
        error.type = field::Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = provider,
        gen_ai.request.model = request.model,
        gen_ai.request.max_tokens = signed(request.max_output_tokens),
        gen_ai.request.temperature = temperature,
        gen_ai.request.stream = true,
        gen_ai.response.model = field::Empty,
        gen_ai.response.id = field::Empty,
        gen_ai.response.finish_reasons = field::Empty,
        gen_ai.usage.input_tokens = field::Empty,
        gen_ai.usage.output_tokens = field::Empty,
        gen_ai.usage.cache_read.input_tokens = field::Empty,
        gen_ai.usage.cache_creation.input_tokens = field::Empty,
        ua.request.messages = signed(request.messages.len()),
        ua.request.tools = signed(request.tools.len()),
    );
    span.in_scope(|| content::request(request));
    span
}

/// Records how a request ended. `None` is one that was given up because the process is to stop.
pub(crate) fn answered(span: &Span, answer: Option<&Result<ModelTurn, LlmError>>) {
    match answer {
        Some(Ok(reply)) => {
            span.record("gen_ai.response.model", reply.model.as_str());
            span.record("gen_ai.response.finish_reasons", reply.stop_reason.as_str());
            if let Some(id) = &reply.response_id {
                span.record("gen_ai.response.id", id.as_str());
            }
            if let Some(usage) = reply.usage {
                span.record("gen_ai.usage.input_tokens", signed(usage.total() - usage.output_tokens));
                span.record("gen_ai.usage.output_tokens", signed(usage.output_tokens));
                span.record("gen_ai.usage.cache_read.input_tokens", signed(usage.cache_read_tokens));
                span.record("gen_ai.usage.cache_creation.input_tokens", signed(usage.cache_write_tokens));
            }
            span.in_scope(|| content::reply(reply));
            if matches!(reply.stop_reason, StopReason::MaxTokens) {
                span.in_scope(|| tracing::info!("ua.model.reply_cut"));
            }
        }
        Some(Err(error)) => {
            span.record("otel.status_code", "ERROR");
            span.record("error.type", error_type(error));
        }
        None => {
            span.record("error.type", "interrupted");
        }
    }
}

fn error_type(error: &LlmError) -> &'static str {
    match (error.left_us(), error.was_refused()) {
        (false, _) => "not_sent",
        (true, true) => "refused",
        (true, false) => "lost",
    }
}

/// The process drives the run.
pub(crate) fn taken(epoch: u64) {
    let epoch = signed(epoch);
    tracing::info!(epoch, "ua.lease.taken");
    Span::current().record("ua.run.epoch", epoch);
}

/// A resume goes on.
pub(crate) fn resuming(turn_index: u32, in_flight: usize) {
    tracing::info!(turn_index = signed(turn_index), in_flight = signed(in_flight), "ua.run.resuming");
}

/// A request was charged, the model's or a tool's; the only place that counts tokens and money.
pub(crate) fn charged(turn: u32, provider: &str, model: &str, status: impl Display, charge: Charge) {
    let usage = charge.usage;
    // A count of money for graphs; the exact amount is in the database.
    #[expect(clippy::cast_precision_loss, reason = "billionths of a currency unit, shown in a graph")]
    let cost = charge.cost.map(|cost| cost.nanos() as f64 / 1e9);
    tracing::info!(
        turn = signed(turn),
        provider,
        model,
        status = %status,
        input_tokens = signed(usage.total() - usage.output_tokens),
        output_tokens = signed(usage.output_tokens),
        cost,
        currency = charge.cost.map(|cost| tracing::field::display(cost.currency())),
        "ua.request.charged"
    );
}

/// The provider does not know the conversation any more.
pub(crate) fn session_forgotten(turn: u32, response_id: &str) {
    tracing::info!(turn = signed(turn), response_id, "ua.session.forgotten");
}

/// The model is asked again after a wait.
pub(crate) fn retrying(attempt: u32, wait_millis: u64) {
    tracing::info!(attempt = signed(attempt), seconds = seconds(wait_millis), "ua.request.retrying");
}

/// Requests of a process that died, which this one charged.
pub(crate) fn charged_late<'a>(requests: impl Iterator<Item = &'a RequestRecord>) {
    for request in requests {
        let charge = Charge { usage: request.usage, cost: request.cost };
        charged(request.turn, &request.provider, &request.model, request.charge_name(), charge);
    }
}

/// A reply and the calls it asks for are stored.
pub(crate) fn recorded(turn: u32, calls: usize) {
    tracing::info!(turn = signed(turn), calls = signed(calls), "ua.turn.recorded");
}

/// A turn is committed.
pub(crate) fn committed(turn: u32, held_millis: u64) {
    tracing::info!(turn = signed(turn), held_seconds = seconds(held_millis), "ua.turn.committed");
}

/// The budget does not allow another request.
pub(crate) fn over_budget(turn: u32, detail: &str) {
    tracing::info!(turn = signed(turn), detail, "ua.budget.reached");
}

/// Calls of the turn that will not be sent, because an earlier one failed.
pub(crate) fn cancelled(calls: usize) {
    tracing::info!(calls = signed(calls), code = "after_failure", "ua.calls.cancelled");
}

/// A person is asked about the run as a whole.
pub(crate) fn asked(question: &QuestionRecord) {
    let question_id = question.question_id.as_str();
    tracing::info!(question_id, kind = %stored_name(&question.kind), "ua.question.asked");
}

/// The process's work on the run is over.
pub(crate) fn ended(run: &RunRecord, held_millis: u64) {
    let (status, reason) = (run.status.as_str(), run.stop_reason.map(ua_core::RunStop::as_str));
    tracing::info!(status, reason, held_seconds = seconds(held_millis), "ua.run.ended");
    let span = Span::current();
    span.record("ua.run.status", status);
    if let Some(reason) = reason {
        span.record("ua.run.stop_reason", reason);
    }
    if run.status == RunStatus::Failed {
        span.record("otel.status_code", "ERROR").record("error.type", "failed");
    }
}

/// The process's work ended in an error. Its text may quote what tools said, so only its class is told.
pub(crate) fn broken(error: &RunError) {
    let class = stored_name(&error.class()).to_string();
    tracing::info!(class, "ua.run.broken");
    Span::current().record("otel.status_code", "ERROR").record("error.type", class);
}

#[expect(clippy::cast_precision_loss, reason = "a span of time in a graph")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1000.0
}
