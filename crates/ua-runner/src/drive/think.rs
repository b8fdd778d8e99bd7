//! One request to the model: reserved, sent, charged; and the wait before the next one.
//!
//! Granular Execution PRD §6. Every request that leaves has a row before it leaves, and every row ends exactly once: in the
//! write of the reply, in [`Driver::close_request`], or on the next resume.

use std::time::Duration;

use ua_core::{Audience, Env, Usage, chain};
use ua_ledger::{Tries, again};
use ua_llm::{
    Conversation, ESTIMATOR, LlmError, Measured, ModelRequest, ResultImages, Status, images_of_results,
    tell_tool_uses_apart,
};
use ua_store::{RequestEnd, RequestReservation, RequestStatus, RunStore, scaled_estimator};

use super::refused_tools::whose_it_may_be;
use super::session::Asked;
use super::{Driver, Reserved};
use crate::budget::{Estimate, Spent};
use crate::error::RunError;
use crate::machine::Event;
use crate::retry::{Correction, Refusal, ThinkFailure};
use crate::spans;
use crate::waiting::{Cut, Lookout, in_millis};
use crate::watch::RunEvent;

/// Bytes of text that are estimated as one token.
const BYTES_PER_TOKEN: u64 = 4;

impl Driver<'_> {
    /// Reserves a composed request, if it fits the budget.
    pub(super) async fn reserve_composed(
        &mut self,
        turn: u32,
        mut request: ModelRequest,
        mut measured: Measured,
    ) -> Result<Event, RunError> {
        let mut estimate = self.estimate_of(&request, measured);
        let usual = self.settings.max_output_tokens;
        if request.max_output_tokens > usual && self.machine.admit(&estimate).is_err() {
            // Longer replies are for whoever can pay for them.
            self.reply_limit = Some(usual);
            request.max_output_tokens = usual;
            measured = self.measurer.measure(&request);
            estimate = self.estimate_of(&request, measured);
        }
        if let Err(detail) = self.machine.admit(&estimate) {
            spans::over_budget(turn, &detail);
            return Ok(Event::OverBudget { detail });
        }
        self.reserve_fitting(turn, request, measured, estimate).await?;
        Ok(Event::Reserved(estimate))
    }

    fn estimate_of(&self, request: &ModelRequest, measured: Measured) -> Estimate {
        let llm = &self.ports.llm;
        Estimate {
            // As the provider counts, as far as that is known: what it counts more would be used all the same.
            input_tokens: self.fit.counted(measured.input_tokens),
            output_tokens: request.max_output_tokens.into(),
            price: [llm.name(), llm.priced_as()]
                .iter()
                .find_map(|provider| self.settings.prices.price(provider, &request.model)),
        }
    }

    /// Reserves a request that fits the budget.
    async fn reserve_fitting(
        &mut self,
        turn: u32,
        request: ModelRequest,
        measured: Measured,
        estimate: Estimate,
    ) -> Result<(), RunError> {
        let known = self.known_of(&request);
        let reservation = RequestReservation {
            turn,
            request_sha256: measured.sha256,
            provider: self.ports.llm.name().to_owned(),
            model: request.model.clone(),
            price: estimate.price,
            estimator: scaled_estimator(ESTIMATOR, self.fit.scale()),
            estimated_tokens: estimate.input_tokens,
            reserved_output_tokens: estimate.output_tokens,
            continued_from: known.as_ref().map(|known| known.response_id.clone()),
            at: self.ports.env.now(),
        };
        let doing = "reserve a request to the model";
        let mut tries = Tries::default();
        let id = loop {
            match self.ports.store.reserve_request(&self.ports.lease, reservation.clone()).await {
                Ok(id) => break id,
                Err(error) if again(self.ports.patience.as_ref(), doing, &error, &mut tries).await => {}
                Err(error) => return Err(RunError::at(doing)(error)),
            }
        };
        self.request = Some(Reserved { request, measured, known, id, estimate });
        Ok(())
    }

    /// Sends the reserved request, once.
    pub(super) async fn think(&mut self, turn: u32) -> Result<Event, RunError> {
        if self.ports.stop.is_stopping() {
            self.close_request(turn, RequestEnd::Zero).await?;
            return Ok(Event::ThinkingInterrupted { end: RequestEnd::Zero });
        }
        // Who asks again at once with less of the history still thinks about the same.
        if self.cut_for != Some(turn) {
            (self.ports.watcher)(RunEvent::Thinking { turn });
        }
        loop {
            let Some(reserved) = &self.request else { unreachable!("a request is reserved until it is charged") };
            let span = spans::chat(self.ports.llm.name(), &reserved.request);
            let sent_at = self.ports.env.now();
            let Asked { answer, heard, ending } = self.complete(reserved, span.clone()).await?;
            let took = self.ports.env.now().since(sent_at);
            spans::answered(&span, answer.as_ref());
            match answer {
                Some(Ok(mut reply)) => {
                    self.form_was_taken |= reserved.request.output_schema.is_some();
                    self.ending = ending;
                    tell_tool_uses_apart(&mut reply, |id| self.history.has_tool_use(id));
                    return Ok(Event::Thought(Ok(Box::new(reply))));
                }
                Some(Err(LlmError::SessionForgotten { response_id, message })) if reserved.known.is_some() => {
                    let (request, measured, estimate) =
                        (reserved.request.clone(), reserved.measured, reserved.estimate);
                    self.close_request(turn, RequestEnd::Refused).await?;
                    self.forget_session(turn, &response_id, &message);
                    if self.ports.stop.is_stopping() {
                        return Ok(Event::ThinkingInterrupted { end: RequestEnd::Zero });
                    }
                    // It fits the budget as it did: what was refused cost nothing.
                    self.reserve_fitting(turn, request, measured, estimate).await?;
                }
                Some(Err(error)) if self.may_be_for_the_form(&error, &reserved.request) => {
                    self.without_form = true;
                    (self.ports.watcher)(RunEvent::FormLeftOut { turn, why: error.to_string() });
                    return self.ask_for_less(turn, &error, heard, took).await;
                }
                Some(Err(error)) if self.shorter_reply(&error, &reserved.request).is_some() => {
                    self.reply_limit = self.shorter_reply(&error, &reserved.request);
                    let tokens = self.reply_limit.unwrap_or_default();
                    (self.ports.watcher)(RunEvent::ReplyShortened { turn, tokens, why: error.to_string() });
                    return self.ask_for_less(turn, &error, heard, took).await;
                }
                Some(Err(error)) => {
                    let images = error.may_be_about_images().then(|| images_of_results(&reserved.request.messages));
                    let images: Vec<String> =
                        images.unwrap_or_default().into_iter().map(|images| images.tool_use_id).collect();
                    // What is cheap to try comes first.
                    let may_be_too_long = images.is_empty() && self.may_be_too_long(&error, reserved.measured);
                    let mut failure = ThinkFailure {
                        may_be_too_long,
                        without_images: !images.is_empty(),
                        took,
                        time_left: self.time_left(),
                        ..failure(&error, (self.ports.llm.name(), self.audience()), heard, &self.ports.env)
                    };
                    if error.speaks_of_schemas()
                        && let Some(whose) = whose_it_may_be(&self.tools, self.audience())
                    {
                        failure.message = format!("{}; {whose}", failure.message);
                    }
                    // Where nothing more can be left out, the same request would be refused for the same reason.
                    let is_long = failure.is_too_long || failure.may_be_too_long;
                    if is_long && !self.shorten(turn, &error, failure.is_too_long).await? {
                        (failure.is_too_long, failure.may_be_too_long) = (false, false);
                    }
                    if failure.without_images {
                        (self.ports.watcher)(RunEvent::ImagesLeftOut { turn, older: false, why: error.to_string() });
                        self.refused_images.extend(images);
                    }
                    if let (Some(tool), LlmError::BadTool { message, .. }) = (failure.without.take(), &error) {
                        let left_out = self.left_out.refused(&tool, message, &self.tools);
                        // One that was not offered any more is not what is wrong; and without our own a run would not be what its job says.
                        failure.without = (!left_out.is_empty()).then_some(tool);
                        for (tool, why) in left_out {
                            // The watcher tells people; twice would be once too often.
                            tracing::debug!(turn, tool, why, "the provider does not take a tool, leaving it out");
                            (self.ports.watcher)(RunEvent::ToolLeftOut { turn, tool, why });
                        }
                    }
                    self.correction = failure.correction;
                    self.close_request(turn, failure.end).await?;
                    return Ok(Event::Thought(Err(failure)));
                }
                None => {
                    let end = heard.map_or(RequestEnd::Baseline, RequestEnd::Partial);
                    self.close_request(turn, end).await?;
                    return Ok(Event::ThinkingInterrupted { end });
                }
            }
        }
    }

    /// Whether a request was refused for the form of the job's result, or perhaps for it: no request with it was taken yet, and nothing else is named
    /// that could be tried first.
    fn may_be_for_the_form(&self, error: &LlmError, request: &ModelRequest) -> bool {
        let may_be = || {
            !self.form_was_taken
                && error.may_be_about_output()
                && self.shorter_reply(error, request).is_none()
                && images_of_results(&request.messages).is_empty()
        };
        request.output_schema.is_some() && (error.is_about_output() || may_be())
    }

    /// How long a reply the next request asks for, where this one was refused for asking for a longer one than the model writes. What the job
    /// says is the job's.
    fn shorter_reply(&self, error: &LlmError, request: &ModelRequest) -> Option<u32> {
        let asked = request.max_output_tokens;
        error.longest_reply(asked).filter(|limit| self.run.spec.model.max_output_tokens.is_none() && *limit < asked)
    }

    /// The end of a request that was refused for what the next one does not ask for.
    async fn ask_for_less(
        &mut self,
        turn: u32,
        error: &LlmError,
        heard: Option<Usage>,
        took: Duration,
    ) -> Result<Event, RunError> {
        let to = (self.ports.llm.name(), self.audience());
        let failure = failure(error, to, heard, &self.ports.env);
        let failure =
            ThinkFailure { asks_for_less: true, is_too_long: false, took, time_left: self.time_left(), ..failure };
        self.close_request(turn, failure.end).await?;
        Ok(Event::Thought(Err(failure)))
    }

    /// Makes the next request shorter than the reserved one, which was refused for its length, or, if that is not sure, perhaps for it. What takes
    /// up the most of it goes first: the older half of the images of tools, or the middle of the history; and where the history cannot be cut, the
    /// images all the same. `false` where nothing more can be left out.
    async fn shorten(&mut self, turn: u32, error: &LlmError, is_sure: bool) -> Result<bool, RunError> {
        let Some(Reserved { request, measured, .. }) = &self.request else { return Ok(false) };
        let mut images = images_of_results(&request.messages);
        if self.ports.llm.conversation() != Conversation::InTheRequest {
            images.clear();
        }
        let tokens = measured.input_tokens;
        tracing::info!(turn, tokens, is_sure, "the request is too long for the model, leaving something out");
        if !weigh_the_most(&images, error, tokens) {
            if is_sure {
                self.fit.cut_below(request, tokens);
            } else {
                self.fit.guess_below(request, tokens);
            }
            if self.would_ask_otherwise().await? {
                if self.cut_for.replace(turn) != Some(turn) {
                    (self.ports.watcher)(RunEvent::HistoryCut { turn, perhaps: !is_sure });
                }
                return Ok(true);
            }
        }
        if images.is_empty() {
            return Ok(false);
        }
        let older = images.len().div_ceil(2);
        let why = error.to_string();
        (self.ports.watcher)(RunEvent::ImagesLeftOut { turn, older: older < images.len(), why });
        self.refused_images.extend(images.drain(..older).map(|images| images.tool_use_id));
        Ok(true)
    }

    /// Whether the request that would be made now is another one than the one that is reserved.
    async fn would_ask_otherwise(&mut self) -> Result<bool, RunError> {
        let reserved = self.request.as_ref().map(|reserved| reserved.measured.sha256);
        let (_, measured) = self.composed().await?;
        Ok(reserved != Some(measured.sha256))
    }

    /// Whether a refusal that does not say so may be one for the length of the request.
    fn may_be_too_long(&self, error: &LlmError, measured: Measured) -> bool {
        self.ports.llm.conversation() == Conversation::InTheRequest
            && error.may_be_too_long()
            && self.fit.suspects(&error.to_string(), measured.input_tokens)
    }

    /// Charges the reserved request, which brought no reply.
    async fn close_request(&mut self, turn: u32, end: RequestEnd) -> Result<(), RunError> {
        let Some(Reserved { id, estimate, .. }) = self.request.take() else { return Ok(()) };
        let doing = "charge a request to the model";
        let mut tries = Tries::default();
        loop {
            match self.ports.store.close_request(&self.ports.lease, id, end, self.ports.env.now()).await {
                Ok(()) => break,
                Err(error) if again(self.ports.patience.as_ref(), doing, &error, &mut tries).await => {}
                Err(error) => return Err(RunError::at(doing)(error)),
            }
        }
        self.tell_charge(turn, &estimate, end, false);
        Ok(())
    }

    /// Tells what a request was charged that brought a whole reply, or none, and logs by how much the estimate was wrong.
    pub(super) fn tell_charge(&self, turn: u32, estimate: &Estimate, end: RequestEnd, is_whole: bool) {
        let charge = estimate.charge(end);
        let status = match end {
            RequestEnd::Actual(usage) => {
                let (estimated, counted) = (estimate.input_tokens, usage.total() - usage.output_tokens);
                tracing::info!(turn, estimated, counted, "input tokens as estimated and as the provider counted them");
                if usage.total() > estimate.tokens() {
                    let (reserved, used) = (estimate.tokens(), usage.total());
                    tracing::warn!(turn, reserved, used, "a request used more tokens than were reserved for it");
                }
                RequestStatus::Actual
            }
            RequestEnd::Partial(_) => RequestStatus::Partial,
            RequestEnd::Baseline => RequestStatus::Baseline,
            RequestEnd::Refused | RequestEnd::Zero => RequestStatus::Zero,
        };
        spans::charged(
            turn,
            self.ports.llm.name(),
            &self.settings.model,
            status.charge_name(end != RequestEnd::Zero),
            charge,
        );
        let mut spent: Spent = self.machine.spent().clone();
        spent.add(charge);
        let limits = self.machine.limits();
        let (max_tokens, max_cost) = (limits.max_tokens, limits.max_cost);
        let was_sent = end != RequestEnd::Zero;
        if end == RequestEnd::Refused && self.cut_for == Some(turn) {
            return;
        }
        (self.ports.watcher)(RunEvent::Charged {
            turn,
            status,
            was_sent,
            is_whole,
            charge,
            spent,
            max_tokens,
            max_cost,
        });
    }

    /// Waits before the model is asked again. A signal ends the wait at once, a cancel within half a second.
    pub(super) async fn wait(
        &self,
        attempt: u32,
        why: String,
        wait: Duration,
        (left, may_be_billed): (Duration, bool),
    ) -> Result<Event, RunError> {
        let (wait_millis, left_millis) = (in_millis(wait), in_millis(left));
        // The watcher tells people; twice would be once too often.
        tracing::debug!(attempt, why, wait_millis, "a request to the model failed, asking again");
        spans::retrying(attempt, wait_millis);
        let ends_in_millis = self.ends_within(wait, left);
        (self.ports.watcher)(RunEvent::Retrying {
            attempt,
            why,
            wait_millis,
            left_millis,
            may_be_billed,
            ends_in_millis,
        });
        self.sit_out(wait).await
    }

    /// Milliseconds until the run's time is used up, where that is before a wait and what may be waited after it are over.
    pub(super) fn ends_within(&self, wait: Duration, left: Duration) -> Option<u64> {
        let to_the_end = self.time_left().map(in_millis);
        to_the_end.filter(|end| *end <= in_millis(wait.saturating_add(left)))
    }

    /// Lets a wait pass. A signal ends it at once, a cancel within half a second, the end of the run's time when that comes.
    pub(super) async fn sit_out(&self, wait: Duration) -> Result<Event, RunError> {
        let (ports, limits) = (&self.ports, self.machine.limits());
        let lookout = Lookout { store: ports.store.as_ref(), lease: &ports.lease, env: &ports.env, stop: &ports.stop };
        // The time in which the run waits is time in which it is held.
        let used_up = || {
            let held_millis = self.run.held_millis + self.held_for();
            limits.max_held_millis.is_some_and(|max| held_millis >= max).then_some(held_millis)
        };
        Ok(match lookout.sit_out(wait, used_up).await? {
            None => Event::Waited,
            Some(Cut::Interrupted) => Event::Interrupted,
            Some(Cut::Marked(mark)) => Event::of_mark(mark),
            Some(Cut::OutOfTime { held_millis }) => Event::OutOfTime { held_millis },
        })
    }
}

/// Whether images of tools are more than half of a request of so many estimated tokens, in what it was refused for: in bytes where the server takes
/// no body of that size, otherwise in tokens.
fn weigh_the_most(images: &[ResultImages], error: &LlmError, tokens: u64) -> bool {
    let bytes: u64 = images.iter().map(|images| images.bytes).sum();
    let counted: u64 = images.iter().map(|images| images.tokens).sum();
    let others = tokens.saturating_sub(counted);
    let is_for_bytes = matches!(error, LlmError::TooLong { status: Status::Http(413), .. });
    !images.is_empty() && if is_for_bytes { bytes > others.saturating_mul(BYTES_PER_TOKEN) } else { counted > others }
}

/// A request that brought no reply, of which so much had been `heard`.
fn failure(error: &LlmError, (provider, audience): (&str, Audience), heard: Option<Usage>, env: &Env) -> ThinkFailure {
    let hint = error.hint_to(audience, provider).map_or_else(String::new, |hint| format!("; {hint}"));
    ThinkFailure {
        why: error.to_string(),
        message: format!("{}{hint}", chain(error)),
        end: match (error.left_us(), error.was_refused(), heard) {
            // Whatever it is called: what has begun to answer was not refused before it began.
            (_, _, Some(heard)) => RequestEnd::Partial(heard),
            (false, _, None) => RequestEnd::Zero,
            (true, true, None) => RequestEnd::Refused,
            (true, false, None) => RequestEnd::Baseline,
        },
        may_retry: error.may_retry(),
        is_too_long: matches!(error, LlmError::TooLong { .. }),
        may_be_too_long: false,
        without_images: false,
        asks_for_less: false,
        without: if let LlmError::BadTool { tool, .. } = error { Some(tool.clone()) } else { None },
        refused: Refusal::of(error),
        is_foreign: error.is_foreign(),
        correction: Correction::of(error),
        retry_after: error.retry_after(),
        until_reset: error.until_reset(),
        at: env.now(),
        took: Duration::ZERO,
        time_left: None,
        random: env.entropy.next_u64(),
    }
}

#[cfg(test)]
mod tests {
    use ua_core::RunStatus;
    use ua_evidence::testing::Story;
    use ua_resume::NextStep;

    use super::*;
    use crate::budget::Limits;
    use crate::machine::{Command, Conclusion, RunMachine, Start};

    /// With whatever status a provider says that a key is no good or its account cannot pay, a person can mend it and nobody else.
    #[test]
    fn every_refusal_of_the_credentials_is_a_persons_matter() {
        let env = Env::simulated(1);
        let correction = |error: &LlmError| failure(error, ("openai", Audience::Terminal), None, &env).correction;
        for status in [400, 401, 402, 403, 429] {
            let message = || "no".to_owned();
            let refused = LlmError::Unauthorized { status: Status::Http(status), message: message() };
            assert_eq!(correction(&refused), Some(Correction::Credentials), "HTTP {status}");
            let unpaid = LlmError::Unpaid { status: Status::Http(status), message: message() };
            assert_eq!(correction(&unpaid), Some(Correction::Account), "HTTP {status}");
        }
        assert_eq!(correction(&LlmError::InvalidRequest { status: Status::Http(400), message: "no".to_owned() }), None);
    }

    /// Every kind of failure, and those that are told apart by their status.
    fn failures() -> Vec<LlmError> {
        let (message, status) = (|| "no".to_owned(), Status::Http(400));
        let why = message;
        let retry_after = None;
        let mut failures = vec![
            LlmError::Setup { why: why() },
            LlmError::Unauthorized { status, message: message() },
            LlmError::Unpaid { status, message: message() },
            LlmError::InvalidRequest { status, message: message() },
            LlmError::BadTool { status, tool: "t".to_owned(), message: message() },
            LlmError::NotFound { model: "m".to_owned(), message: message() },
            LlmError::NoEndpoint { status, message: message() },
            LlmError::SessionForgotten { response_id: "r".to_owned(), message: message() },
            LlmError::RateLimited { retry_after, until_reset: None, message: message() },
            LlmError::Overloaded { retry_after, message: message() },
            LlmError::Server { status: None, retry_after, message: message() },
            LlmError::NotRecorded { why: why() },
            LlmError::Unreachable { host: "h".to_owned(), why: why() },
            LlmError::Timeout { idle: Duration::from_mins(5) },
            LlmError::Endless { after: Duration::from_mins(5) },
            LlmError::Unanswered { source: "cut".into() },
            LlmError::Cut { text_bytes: 7, source: None },
            LlmError::Garbled { why: why() },
            LlmError::NotAReply { what: why(), is_foreign: false },
            LlmError::NotAReply { what: why(), is_foreign: true },
            LlmError::TooLong { status, message: message() },
            LlmError::Hopeless { status: 500, message: message() },
            LlmError::Protocol { why: why() },
        ];
        for failure in &failures {
            // A kind that is added does not compile until it is here, and above.
            match failure {
                LlmError::Setup { .. }
                | LlmError::Unauthorized { .. }
                | LlmError::Unpaid { .. }
                | LlmError::InvalidRequest { .. }
                | LlmError::BadTool { .. }
                | LlmError::NotFound { .. }
                | LlmError::NoEndpoint { .. }
                | LlmError::SessionForgotten { .. }
                | LlmError::RateLimited { .. }
                | LlmError::Overloaded { .. }
                | LlmError::Server { .. }
                | LlmError::NotRecorded { .. }
                | LlmError::Unreachable { .. }
                | LlmError::Timeout { .. }
                | LlmError::Endless { .. }
                | LlmError::Unanswered { .. }
                | LlmError::Cut { .. }
                | LlmError::Garbled { .. }
                | LlmError::NotAReply { .. }
                | LlmError::TooLong { .. }
                | LlmError::Hopeless { .. }
                | LlmError::Protocol { .. } => {}
            }
        }
        for status in [408, 409, 424, 500, 501, 502, 504, 520] {
            for status in [Status::Http(status), Status::Like(status)] {
                failures.push(LlmError::Server { status: Some(status), retry_after, message: message() });
            }
        }
        failures
    }

    /// Over every kind of failure, of a reply that had begun, perhaps without a count, and of one that had not: what is charged is said to be, and is
    /// made rarely when it was five times, and so is nothing else.
    #[test]
    fn whatever_is_charged_is_said_to_be_and_is_made_rarely() {
        let env = Env::simulated(1);
        let estimate = Estimate { input_tokens: 100, output_tokens: 50, price: None };
        let counted = Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() };
        let (mut rarely, mut often) = (0, 0);
        for error in failures() {
            for heard in [None, Some(Usage::default()), Some(counted)] {
                let failure = failure(&error, ("anthropic", Audience::Terminal), heard, &env);
                let is_charged = estimate.charge(failure.end).usage != Usage::default();
                let mut machine = RunMachine::new(Limits::default(), Start::fresh());
                for attempt in 1..=6 {
                    machine.apply(Event::Reserved(estimate)).unwrap();
                    machine.apply(Event::Thought(Err(failure.clone()))).unwrap();
                    let Command::Wait { wait, may_be_billed, .. } = machine.command() else { break };
                    assert_eq!(may_be_billed, is_charged, "{error:?}, heard {heard:?}");
                    let is_rare = wait >= Duration::from_mins(1);
                    assert_eq!(is_rare, is_charged && attempt >= 5, "{error:?}, heard {heard:?}, {attempt}: {wait:?}");
                    *(if is_rare { &mut rarely } else { &mut often }) += 1;
                    machine.apply(Event::Waited).unwrap();
                }
            }
        }
        assert!(rarely > 50 && often > 100, "{rarely} rarely, {often} often");
    }

    /// Over every refusal that comes again: what the text says and the command that is printed below it are the same step, a fork with what it names or
    /// a resume once something outside is corrected.
    #[test]
    fn the_text_of_a_refusal_and_the_command_below_it_agree() {
        let env = Env::simulated(1);
        let refused =
            |message: &str| LlmError::InvalidRequest { status: Status::Http(400), message: message.to_owned() };
        let more = [
            "Invalid 'tools': array too long. Expected an array with maximum length 128",
            "body.stream_options: Extra inputs are not permitted",
            "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens",
            "tools.3.custom.input_schema: JSON schema is invalid",
            "",
        ];
        let (mut forks, mut resumes) = (0, 0);
        for error in failures().into_iter().chain(more.map(refused)).filter(LlmError::is_final) {
            // As it stands once nothing more can be left out.
            let failure = ThinkFailure {
                is_too_long: false,
                without: None,
                correction: None,
                ..failure(&error, ("anthropic", Audience::Terminal), None, &env)
            };
            let mut machine = RunMachine::new(Limits::default(), Start::fresh());
            machine.apply(Event::Reserved(Estimate::default())).unwrap();
            machine.apply(Event::Thought(Err(failure))).unwrap();
            let Command::Stop(Conclusion::Stopped { reason, detail }) = machine.command() else {
                panic!("{error:?}: {:?}", machine.command())
            };
            assert!(detail.ends_with("A resume alone brings the same refusal."), "{detail}");
            let mut story = Story::new(r#"{"objective": "x"}"#);
            story.ends(RunStatus::Stopped, Some(reason), &detail);
            let step = NextStep::of(&story.records.run);
            let (id, says_fork) = (&story.records.run.run_id, detail.contains("fork"));
            let command = step.command().unwrap();
            assert_eq!(command.starts_with(&format!("ua fork {id} --")), says_fork, "{detail}: {command}");
            assert_eq!(command == format!("ua resume {id}"), !says_fork, "{detail}: {command}");
            assert_eq!(step.label(), if says_fork { "Continue with" } else { "Once corrected" }, "{detail}");
            *(if says_fork { &mut forks } else { &mut resumes }) += 1;
        }
        assert!(forks >= 6 && resumes >= 4, "{forks} forks, {resumes} resumes");
    }

    /// Sizes of images × what else there is × what the request was refused for.
    #[test]
    fn what_takes_up_the_most_goes_first() {
        let too_long = |status| LlmError::TooLong { status: Status::Http(status), message: String::new() };
        for count in 0..5 {
            for bytes in [100, 100_000] {
                for others in [0, 1_000, 10_000, 200_000] {
                    let images = |n: u64| ResultImages { tool_use_id: n.to_string(), bytes, tokens: 1_600 };
                    let images: Vec<ResultImages> = (0..count).map(images).collect();
                    let tokens = others + 1_600 * count;
                    let of = |status| weigh_the_most(&images, &too_long(status), tokens);
                    assert_eq!(of(413), count > 0 && bytes * count > others * 4, "{count} {bytes} {others}");
                    assert_eq!(of(400), count > 0 && 1_600 * count > others, "{count} {bytes} {others}");
                }
            }
        }
    }
}
