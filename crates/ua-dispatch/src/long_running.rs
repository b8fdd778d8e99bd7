//! Going on with a call that a tool did not finish at once.
//!
//! MCP Tasks and input-required rounds; Durable Jobs v1 spec §8.3. Order: handle stored → what it asks for answered → that the answers
//! leave stored → sent → the next handle, until there is an outcome. The same for a handle that this process got and for one that an
//! earlier process left. Invariants: the call itself is never sent again; a task is asked until it ends, however many processes that
//! takes; what a tool asks for is answered by a person's row or declined, never by a model.
//!
//! A call whose work another run does ([`AwaitedRun`]) waits with that run: nobody asks how it is getting on. The next drive calls its tool again,
//! which takes that run up. That is no new attempt, and so only for what would be sent again by itself, under what is said of its tool now: any other
//! call is in doubt then.
//!
//! Proved by: `ua-runner/tests/it/crash_anywhere/handles.rs`, `ua-sdk/tests/sdk/within.rs`, and the e2e tests `mcp_tasks` and `elicitation`.

use std::time::Duration;

use ua_core::{AwaitedRun, CallStatus, ElicitAnswer, Handle, Outcome, RunStop, Timestamp};
use ua_ledger::{Continued, Elicited, HandedOver, LedgerError, Permit, is_another_place};
use ua_store::{CallRecord, QuestionRecord, QuestionStatus, RunStore, Store};

use crate::dispatcher::{CallProgress, Dispatcher, backoff};
use crate::error::DispatchError;
use crate::stop::StopSignal;
use crate::transport::TransportError;

/// How often a tool may ask within one call.
const MAX_ROUNDS: u32 = 10;
/// How often the store is looked at for an answer that a tool server waits for, and for a request to cancel.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long telling a server that nobody wants a result any more may take.
const ABANDON: Duration = Duration::from_secs(10);
/// How often in a row a server may be out of reach before the run stops; the handle stays for the next process.
const MAX_UNREACHED: u32 = 4;

/// Who is asked what a tool wants to know in the middle of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elicitations {
    /// How long a tool server that waits on its connection is kept waiting for a person; zero says no at once. One that does not wait
    /// gets its answer whenever it is given.
    pub live_wait: Duration,
}

impl Default for Elicitations {
    fn default() -> Self {
        Self { live_wait: Duration::from_mins(5) }
    }
}

/// What going on came to.
pub(crate) enum LongCallOutcome {
    /// The attempt has its outcome.
    Ended(Box<Permit>, Outcome),
    /// A person has to answer first; the attempt keeps its handle.
    Held(Box<QuestionRecord>),
    /// The run that does its work stopped; the attempt keeps its handle.
    Parked {
        /// The reason.
        reason: RunStop,
        /// In words.
        detail: String,
    },
    /// A stop was asked for, or the run's end; the attempt keeps its handle.
    Stopped,
    /// Its server became another one meanwhile: the call has to be judged anew. The attempt keeps its handle.
    Elsewhere(TransportError),
}

impl Dispatcher {
    /// The same road with other patience towards tools that ask.
    #[must_use]
    pub fn with_elicitations(mut self, elicitations: Elicitations) -> Self {
        self.elicitations = elicitations;
        self
    }

    /// Goes on with a call that an earlier process, or this one before it asked a person, left running. `is_as_planned`: what is said of its tool now
    /// asks for nothing more than what it was planned under.
    pub(crate) async fn take_up(
        &self,
        continued: Continued,
        is_as_planned: bool,
        stop: &StopSignal,
    ) -> Result<LongCallOutcome, DispatchError> {
        let (permit, handle, started_at) = self.ledger.permit_again(continued);
        if let Some(awaited) = &handle.awaits
            && (!is_as_planned || self.ledger.is_for_another_tool(permit.call()))
        {
            let why = format!(
                "run {} does its work, and what is said of its tool changed since; that run was not continued",
                awaited.run_id
            );
            return Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why }));
        }
        self.tell(CallProgress::Resuming { call: Box::new(permit.call().clone()), task: handle.task.clone() });
        let generation = self.transport.ready(&permit.name().server).await?;
        let handle = Handle { generation: Some(generation), ..handle };
        self.ledger.keep(&permit, handle.clone()).await?;
        if handle.awaits.is_some() {
            return self.call_again(permit, &handle, stop).await;
        }
        self.go_on(permit, handle, started_at, stop).await
    }

    /// Calls a tool again whose work another run does.
    async fn call_again(
        &self,
        permit: Permit,
        handle: &Handle,
        stop: &StopSignal,
    ) -> Result<LongCallOutcome, DispatchError> {
        if self.is_to_end(permit.call()).await? {
            return Ok(LongCallOutcome::Stopped);
        }
        self.ledger.confirm(&permit).await?;
        // That run is at work, so it is waited for as any call is; what is dropped in the middle is as a killed process would have left it.
        let went = tokio::select! {
            biased;
            went = self.transport.go_on(&permit, handle) => went?,
            () = stop.giving_up_calls() => return Ok(LongCallOutcome::Stopped),
        };
        match went {
            Outcome::Continues(next) => {
                self.ledger.keep(&permit, (*next).clone()).await?;
                if let Some(awaited) = next.awaits {
                    return Ok(self.waits_with(awaited).await);
                }
                let why = "its tool continues in a way that nobody can follow".to_owned();
                Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why }))
            }
            outcome @ (Outcome::NotSent { .. } | Outcome::Lost { .. } | Outcome::Raw(_)) => {
                Ok(LongCallOutcome::Ended(Box::new(permit), outcome))
            }
        }
    }

    /// What keeps a call back whose work another run does: the question of that run, or what it stopped for.
    async fn waits_with(&self, awaited: AwaitedRun) -> LongCallOutcome {
        let AwaitedRun { run_id: _, question, reason, detail } = awaited;
        // One that was answered meanwhile is seen by whoever is told of it. Where that run is kept elsewhere it is not found here.
        if let Some(id) = question
            && let Ok(question) = self.ledger.store().question(&id).await
        {
            return LongCallOutcome::Held(Box::new(question));
        }
        LongCallOutcome::Parked { reason, detail }
    }

    /// Takes what came of a send to its end.
    pub(crate) async fn finish(
        &self,
        permit: Permit,
        outcome: Outcome,
        stop: &StopSignal,
    ) -> Result<LongCallOutcome, DispatchError> {
        let Outcome::Continues(handle) = outcome else { return Ok(LongCallOutcome::Ended(Box::new(permit), outcome)) };
        let started_at = permit.call().updated_at;
        self.ledger.keep(&permit, (*handle).clone()).await?;
        if let Some(awaited) = handle.awaits {
            return Ok(self.waits_with(awaited).await);
        }
        self.go_on(permit, *handle, started_at, stop).await
    }

    /// Gives up what tools still do for calls of a run that ends: the other side is told where it can be, and nobody knows how far it
    /// came. Calls without a handle are left as they are, but for those whose answer was kept beside the database.
    ///
    /// # Errors
    /// Those of the ledger. That a server could not be told is none.
    pub async fn abandon(&self, calls: &[CallRecord]) -> Result<(), DispatchError> {
        for call in calls.iter().filter(|call| call.status == CallStatus::Running) {
            let attempt = self.ledger.attempts(&call.call_id).await?.pop();
            let Some(attempt) = attempt.filter(|attempt| attempt.live_handle().is_some()) else { continue };
            let handle = attempt.handle.clone().unwrap_or_default();
            let permit = self.ledger.permit_to_abandon(call, &attempt);
            // Whoever is there now may have another one's task of that name.
            let goes = self.transport.destination(call.called_tool(), &call.arguments);
            let is_there = goes.is_ok_and(|goes| !is_another_place(call, &attempt, goes.as_ref()));
            let tell = async {
                if is_there && self.transport.ready(&permit.name().server).await.is_ok() {
                    self.transport.give_up(&permit, &handle).await;
                }
            };
            tokio::select! {
                biased; // a word that can be said at once is said, whatever the clock does
                () = tell => {}
                () = self.ledger.env().clock.sleep(ABANDON) => {}
            }
            let why = match &handle.awaits {
                Some(awaited) => format!("the run ended before run {}, which does its work, had ended", awaited.run_id),
                None => "the run ended before the tool was done; the other side was told where it could be".to_owned(),
            };
            self.ledger.settle(permit, Outcome::Lost { why }).await?;
        }
        Ok(self.ledger.settle_by_late_replies(calls).await?)
    }

    /// The loop. `handle` is stored.
    async fn go_on(
        &self,
        permit: Permit,
        mut handle: Handle,
        started_at: Timestamp,
        stop: &StopSignal,
    ) -> Result<LongCallOutcome, DispatchError> {
        let mut unreached = 0;
        loop {
            let asks = handle.open_request().is_some();
            let round = handle.input.as_ref().map_or(0, |input| input.round);
            // A round is the call once more, with what it had asked for: also one that needs no person is not made for ever.
            if round > MAX_ROUNDS && (asks || handle.task.is_none()) {
                self.transport.give_up(&permit, &handle).await;
                let why = format!("the tool asked for something more than {MAX_ROUNDS} times");
                return Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why }));
            }
            if asks {
                handle = match self.elicit(permit.call(), handle, stop).await? {
                    Elicited::Answered(handle) => handle,
                    Elicited::Open(question) => return Ok(LongCallOutcome::Held(Box::new(question))),
                };
            }
            let is_live = handle.input.as_ref().is_some_and(|input| input.is_live);
            if !is_live && self.is_to_end(permit.call()).await? {
                return Ok(LongCallOutcome::Stopped); // whoever ends the run tells the other side
            }
            if is_overdue(&permit, started_at, self.ledger.env().now()) {
                self.transport.give_up(&permit, &handle).await;
                let why = "it timed out; the other side was told that the result is no longer needed".to_owned();
                return Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why }));
            }
            if !asks && !is_live && handle.task.is_none() && round > 1 {
                // Its server is busy, or goes round in a circle: either way it gets more time each time.
                let env = self.ledger.env();
                tokio::select! {
                    biased;
                    () = env.clock.sleep(backoff(round - 1, env.entropy.next_u64())) => {}
                    () = self.until_overdue(&permit, started_at) => continue,
                    () = stop.stopping() => return Ok(LongCallOutcome::Stopped),
                }
            }
            let answers = handle.input.as_ref().is_some_and(|input| !input.is_sent);
            if answers {
                let before = handle.clone();
                handle = match self.hand_over(&permit, handle, is_live, stop).await? {
                    HandedOver::Sent(handle) => handle,
                    HandedOver::Held(question) => return Ok(LongCallOutcome::Held(Box::new(question))),
                    HandedOver::Ending => return Ok(LongCallOutcome::Stopped),
                    HandedOver::GivenUp => {
                        self.transport.give_up(&permit, &before).await;
                        let why = "it was not continued, for another call may have had its effect since it was sent";
                        return Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why: why.to_owned() }));
                    }
                };
            }
            let mut before = handle.clone();
            if let Some(input) = before.input.as_mut().filter(|_| answers) {
                input.is_sent = false;
            }
            self.ledger.confirm(&permit).await?; // what goes on is not sent again
            let given_up = async {
                // Nothing is lost by asking a task later. Answers are waited for like any call with an effect.
                if answers { stop.giving_up_calls().await } else { stop.stopping().await }
            };
            let went = tokio::select! {
                biased;
                went = self.transport.go_on(&permit, &handle) => went,
                () = given_up, if !answers => return Ok(LongCallOutcome::Stopped),
                // However long one step takes: a result that never comes, a poll that is far off.
                () = self.until_overdue(&permit, started_at) => continue,
                () = stop.giving_up_calls() => {
                    let why = "the run was interrupted before the tool answered".to_owned();
                    return Ok(LongCallOutcome::Ended(Box::new(permit), Outcome::Lost { why }));
                }
            };
            match went {
                Ok(Outcome::Continues(next)) => {
                    unreached = 0;
                    let next = Handle { generation: next.generation.clone().or(handle.generation), ..*next };
                    if next != before {
                        self.ledger.keep(&permit, next.clone()).await?;
                    }
                    handle = next;
                }
                Ok(outcome) => return Ok(LongCallOutcome::Ended(Box::new(permit), outcome)),
                Err(error) => {
                    if answers {
                        self.ledger.keep(&permit, before.clone()).await?; // nothing left us
                    }
                    if matches!(error, TransportError::Elsewhere { .. }) {
                        return Ok(LongCallOutcome::Elsewhere(error));
                    }
                    handle = before;
                    unreached += 1;
                    if unreached == MAX_UNREACHED {
                        return Err(error.into());
                    }
                    let env = self.ledger.env();
                    tokio::select! {
                        () = env.clock.sleep(backoff(unreached, env.entropy.next_u64())) => {}
                        () = stop.stopping() => return Ok(LongCallOutcome::Stopped),
                    }
                }
            }
        }
    }

    /// Stores that answers are about to leave, unless a person has to be asked first. A server that waits on its connection is waited with, and
    /// told *no* when nobody answers in time.
    async fn hand_over(
        &self,
        permit: &Permit,
        handle: Handle,
        is_live: bool,
        stop: &StopSignal,
    ) -> Result<HandedOver, DispatchError> {
        let patience = self.elicitations.live_wait;
        let until = self.ledger.env().now().plus(patience);
        let mut told = None;
        loop {
            // First, so that nothing leaves behind the word that the run is to end.
            let is_to_end = is_live && self.is_to_end(permit.call()).await?;
            let held = if is_to_end {
                None
            } else {
                match self.ledger.hand_over(permit, handle.clone()).await? {
                    HandedOver::Held(question) if is_live => Some(question),
                    HandedOver::Ending if is_live => continue, // the next look finds it, and tells the tool
                    other @ (HandedOver::Sent(_) | HandedOver::Held(_) | HandedOver::GivenUp | HandedOver::Ending) => {
                        return Ok(other);
                    }
                }
            };
            let is_late = !is_to_end && self.ledger.env().now() >= until;
            let is_over = is_late || stop.is_stopping();
            if let Some(question) = held.as_ref().filter(|_| is_over)
                && !self.ledger.take_back(permit.call(), question).await?
            {
                continue; // somebody has answered meanwhile: the next look finds it
            }
            let Some(question) = held.filter(|_| !is_over) else {
                let answer = if is_late { ElicitAnswer::Decline } else { ElicitAnswer::Cancel };
                let refused = self.ledger.say_no(permit.call(), handle, &answer).await?;
                if is_late {
                    self.tell(CallProgress::Declined { call: Box::new(permit.call().clone()), waited: patience });
                }
                return Ok(HandedOver::Sent(refused));
            };
            if told.as_ref() != Some(&question.question_id) {
                told = Some(question.question_id.clone());
                self.tell(CallProgress::Asking { question: Box::new(question), patience });
            }
            let _waiting = self.waits.waiting();
            tokio::select! {
                () = self.ledger.env().clock.sleep(LOOK_EVERY) => {}
                () = stop.stopping() => {}
            }
        }
    }

    /// Waits until the call has taken as long as its policy lets it; for ever if it may take any time.
    async fn until_overdue(&self, permit: &Permit, started_at: Timestamp) {
        match permit.call().policy.timeout {
            Some(timeout) => {
                let env = self.ledger.env();
                env.clock.sleep(started_at.plus(timeout).since(env.now())).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Answers what a tool asks for. A server that waits on its connection is waited with, and told *no* when nobody answers in time.
    async fn elicit(&self, call: &CallRecord, handle: Handle, stop: &StopSignal) -> Result<Elicited, DispatchError> {
        let is_live = handle.input.as_ref().is_some_and(|input| input.is_live);
        let patience = self.elicitations.live_wait;
        if is_live
            && patience.is_zero()
            && let Some(declined) = self.ledger.decline(call, handle.clone(), &ElicitAnswer::Decline).await?
        {
            self.tell(CallProgress::Declined { call: Box::new(call.clone()), waited: patience });
            return Ok(Elicited::Answered(declined));
        }
        let elicited = self.ledger.elicit(call, handle.clone()).await?;
        let Elicited::Open(question) = elicited else { return Ok(elicited) };
        if !is_live {
            return Ok(Elicited::Open(question));
        }
        self.tell(CallProgress::Asking { question: Box::new(question.clone()), patience });
        let _waiting = self.waits.waiting();
        let until = self.ledger.env().now().plus(patience);
        let mut handle = handle;
        let mut open = question;
        loop {
            let stored = self.ledger.store().question(&open.question_id).await;
            let stored = stored.map_err(|source| LedgerError::Store {
                doing: "read the question about",
                call: call.call_id.clone(),
                source,
            })?;
            if stored.status != QuestionStatus::Open {
                match self.ledger.elicit(call, handle).await? {
                    Elicited::Answered(handle) => return Ok(Elicited::Answered(handle)),
                    // One of several requests is answered; the others follow.
                    Elicited::Open(next) => {
                        handle =
                            self.ledger.attempts(&call.call_id).await?.pop().and_then(|a| a.handle).unwrap_or_default();
                        self.tell(CallProgress::Asking { question: Box::new(next.clone()), patience });
                        open = next;
                    }
                }
                continue;
            }
            let is_late = self.ledger.env().now() >= until;
            if is_late || stop.is_stopping() || self.is_to_end(call).await? {
                let answer = if is_late { ElicitAnswer::Decline } else { ElicitAnswer::Cancel };
                // Somebody has answered meanwhile: the next look finds it.
                let Some(handle) = self.ledger.decline(call, handle.clone(), &answer).await? else { continue };
                if is_late {
                    self.tell(CallProgress::Declined { call: Box::new(call.clone()), waited: patience });
                }
                return Ok(Elicited::Answered(handle));
            }
            tokio::select! {
                () = self.ledger.env().clock.sleep(LOOK_EVERY) => {}
                () = stop.stopping() => {}
            }
        }
    }

    /// Whether a person said that the call's run is to end.
    async fn is_to_end(&self, call: &CallRecord) -> Result<bool, DispatchError> {
        let run = self.ledger.store().run(&call.run_id).await;
        let run =
            run.map_err(|source| LedgerError::Store { doing: "read the run of", call: call.call_id.clone(), source })?;
        Ok(run.end_mark().is_some())
    }
}

/// Whether the policy's time for the call is up. It counts from the send: neither progress nor a new process begins it anew.
fn is_overdue(permit: &Permit, started_at: Timestamp, now: Timestamp) -> bool {
    permit.call().policy.timeout.is_some_and(|timeout| now >= started_at.plus(timeout))
}
