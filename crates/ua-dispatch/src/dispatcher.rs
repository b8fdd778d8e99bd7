//! Dispatch: the only code that holds a permit.
//!
//! Order for one call: stop asked? → facts (scope, digests) → admission → server ready → RUNNING → stop asked? → epoch once more →
//! send → going on, while the tool is not done → receipt. A definite failure is retried here with backoff and nowhere else; an unknown
//! outcome is fenced and then decided by its policy, in a live run just as on resume.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _};
use serde::{Serialize, Serializer};
use tokio::sync::Semaphore;
use tracing::Instrument as _;
use ua_classify::{Classifier, digest_in_plain_words, file_arguments, project_scope};
use ua_core::{
    CallId, CallStatus, ModelTurn, OnUnknown, Outcome, PlannedCall, PolicyPin, Resolution, RunStop, Scope,
    span_in_words,
};
use ua_ledger::{
    Admission, Asked, Facts, Ledger, LedgerError, Permit, Prepared, SincePlanned, SoonKnown, UnknownCall, WaitingAnswer,
};
use ua_store::{CallRecord, LedgerStore, QuestionRecord, reaches_others};

use crate::catalog::Catalog;
use crate::error::DispatchError;
use crate::files::{FileLookup, Looked, ServedFrom};
use crate::guardrail::Rules;
use crate::long_running::{Elicitations, LongCallOutcome};
use crate::person_waits::PersonWaits;
use crate::plan::Planner;
use crate::probe::LONGEST_WAIT;
use crate::spans;
use crate::stop::StopSignal;
use crate::task::{SubAgents, TASKS_AT_ONCE};
use crate::through::Through;
use crate::transport::{Fence, LookAt, ToolTransport, TransportError};
use crate::within::{RunTime, Within};

/// How many reads of a turn run at the same time.
const READS_AT_ONCE: usize = 8;
/// How often a call that waits for its twin looks at it.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often it looks at one of which nobody knows what came, and which its own run is about to decide about. That one may wait for something of this
/// run, so a person is asked in the end.
const LOOKS_AT_A_DOUBT: u32 = 600;
/// As how many a look counts where that run is not at work: it may need the place of the one that waits.
const LOOK_AT_A_REST: u32 = 6;

/// How often the store may refuse a start for a reason that a new admission can settle.
const MAX_READMISSIONS: u32 = 4;

/// How often a server is started for one call that cannot be sent, because it ended again meanwhile.
const MAX_STARTS: u32 = 4;

/// How old a judgement may be that a call is started by.
const GOOD_FOR: Duration = Duration::from_secs(1);

/// What whoever hands calls out knows about them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Handed<'a> {
    /// The calls of a turn that was recorded a moment ago, as they were planned: they need not be read.
    pub planned: &'a [CallRecord],
    /// What comes next is written at once behind the answer, so that it may wait for that write: the start of the next call, or the end of the
    /// turn.
    pub answer_waits: bool,
    /// That a read was begun may wait for the next write, too: whoever wants it asks again when it is not known of.
    pub reads_wait: bool,
    /// The time of their run, where that has a limit: no wait is begun that is not over before.
    pub time: Option<RunTime>,
}

/// How a dispatch ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Dispatched {
    /// The call is settled: by its own receipt, an earlier twin's, or a refusal.
    Settled(Box<CallRecord>),
    /// A person has to decide first.
    Held(Box<QuestionRecord>),
    /// It is a task whose child run stopped for a reason that a resume may lift, or its tool says so of a run that does its work, and both go on then;
    /// or it would have to wait for longer than what is left of the run's time.
    Parked {
        /// The reason.
        reason: RunStop,
        /// In words.
        detail: String,
    },
    /// A stop was asked for before the call was started, or while a read was under way.
    Stopped,
}

/// What the one who watches a run is told while a call is on its way. As JSON it says under `progress` which of these it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "progress", rename_all = "snake_case")]
pub enum CallProgress {
    /// An attempt was committed and is being sent.
    Sending {
        /// The call.
        call: Box<CallRecord>,
    },
    /// Its tool has answered. That is not stored yet: it is told of as ended once it is.
    Answered {
        /// The call.
        call_id: CallId,
    },
    /// It ended; the record says how.
    Settled {
        /// The call.
        call: Box<CallRecord>,
    },
    /// It definitely failed and is tried again after a wait.
    Retrying {
        /// The call.
        call: Box<CallRecord>,
        /// The wait.
        #[serde(rename = "wait_millis", serialize_with = "millis")]
        wait: Duration,
        /// How many retries a call that failed may have (`max_retries_per_tool_call`).
        max_retries: u32,
    },
    /// A call in doubt is decided again after a wait: before, the other side may still do it, or not show it yet.
    Waiting {
        /// The call.
        call: Box<CallRecord>,
        /// The wait.
        #[serde(rename = "wait_millis", serialize_with = "millis")]
        wait: Duration,
    },
    /// A probe was asked about a call in doubt.
    Probed {
        /// The call.
        call: Box<CallRecord>,
        /// What it said.
        asked: Box<Asked>,
    },
    /// A call that an earlier process sent is gone on with, not sent again.
    Resuming {
        /// The call.
        call: Box<CallRecord>,
        /// The other side's name for the task that does it.
        task: Option<String>,
    },
    /// A tool server says how far a call is.
    Progress {
        /// The call.
        call_id: CallId,
        /// What it says, in one line.
        text: String,
    },
    /// A tool server asks in the middle of a call and waits for the answer on its connection.
    Asking {
        /// The question.
        question: Box<QuestionRecord>,
        /// How long it is waited for.
        #[serde(rename = "patience_millis", serialize_with = "millis")]
        patience: Duration,
    },
    /// What a tool server asked for in the middle of a call was declined, since nobody answered in time.
    Declined {
        /// The call.
        call: Box<CallRecord>,
        /// How long it was waited for; zero where nobody is to be asked.
        #[serde(rename = "waited_millis", serialize_with = "millis")]
        waited: Duration,
    },
    /// A person is asked.
    Held {
        /// The question.
        question: Box<QuestionRecord>,
    },
}

/// A time as the events of a run have it.
fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// The road. One per process that drives a run.
pub struct Dispatcher {
    pub(crate) catalog: Catalog,
    pub(crate) classifier: Arc<Classifier>,
    policy: OnceLock<PolicyPin>,
    pub(crate) rules: Rules,
    pub(crate) ledger: Ledger,
    pub(crate) transport: Arc<dyn ToolTransport>,
    files: FileLookup,
    watcher: Arc<dyn Fn(CallProgress) + Send + Sync>,
    pub(crate) elicitations: Elicitations,
    pub(crate) waits: Arc<PersonWaits>,
    /// What drives sub-agents; `None` where nothing does.
    pub(crate) agents: Option<Arc<dyn SubAgents>>,
    pub(crate) tasks_at_once: Semaphore,
}

impl Dispatcher {
    /// Puts the road together.
    pub fn new(
        catalog: Catalog,
        classifier: Arc<Classifier>,
        rules: Rules,
        ledger: Ledger,
        transport: Arc<dyn ToolTransport>,
        files: FileLookup,
        watcher: Arc<dyn Fn(CallProgress) + Send + Sync>,
    ) -> Self {
        // Who drives another run is not seen from here: what its record says of its end counts.
        let outside = Arc::new(Through::new(transport.clone(), |_| false));
        let ledger = ledger.with_definitions(catalog.definitions()).with_outside(outside);
        Self {
            waits: PersonWaits::new(ledger.env().clone()),
            catalog,
            classifier,
            policy: OnceLock::new(),
            rules,
            ledger,
            transport,
            files,
            watcher,
            elicitations: Elicitations::default(),
            agents: None,
            tasks_at_once: Semaphore::new(TASKS_AT_ONCE),
        }
    }

    /// The same road with somebody who drives sub-agents at the end of `task`.
    #[must_use]
    pub fn with_sub_agents(mut self, agents: Arc<dyn SubAgents>) -> Self {
        self.agents = Some(agents);
        self
    }

    /// The same road, whose waits for a person somebody counts.
    #[must_use]
    pub fn with_person_waits(mut self, waits: Arc<PersonWaits>) -> Self {
        self.waits = waits;
        self
    }

    /// The tools of the step.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The ledger of the run.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the rules that classify tools are, as digests.
    pub fn policy(&self) -> &PolicyPin {
        let pin = || PolicyPin {
            version: self.classifier.version(),
            parts: self.classifier.parts(),
            words: self.classifier.words_of_parts(),
        };
        self.policy.get_or_init(pin)
    }

    /// Plans every tool use of `reply`, which asks for `turn`. Pure but for the ids it draws.
    pub fn plan(&self, reply: &ModelTurn, turn: u32) -> Vec<PlannedCall> {
        self.planner().plan(reply, turn)
    }

    fn planner(&self) -> Planner<'_> {
        let env = self.ledger.env();
        Planner { catalog: &self.catalog, classifier: &self.classifier, rules: &self.rules, env }
    }

    /// Dispatches calls that may run together (reads, or tasks), or one call with an effect. An error of one stops the others gently: it ends the work
    /// of all, and what one left behind may be what another one waits for.
    pub async fn dispatch_group(
        &self,
        calls: &[CallId],
        handed: Handed<'_>,
        stop: &StopSignal,
    ) -> Result<Vec<Dispatched>, DispatchError> {
        let together = stop.below();
        // All of them first, so that what is waited for is `Send`: a closure that borrows is not known to be.
        let dispatches: Vec<_> = calls.iter().map(|call| self.dispatch_of_group(call, handed, &together)).collect();
        let ended: Vec<Result<Dispatched, DispatchError>> =
            stream::iter(dispatches).buffered(READS_AT_ONCE).collect().await;
        ended.into_iter().collect()
    }

    async fn dispatch_of_group(
        &self,
        id: &CallId,
        handed: Handed<'_>,
        together: &StopSignal,
    ) -> Result<Dispatched, DispatchError> {
        // What is behind it is known to be `Send` by its box alone: the compiler does not look that deep.
        let dispatch: BoxFuture<'_, Result<Dispatched, DispatchError>> =
            Box::pin(self.dispatch_handed(id, handed, together));
        let ended = dispatch.await;
        if ended.is_err() {
            together.stop_gently();
        }
        ended
    }

    /// Takes one call to its receipt.
    pub async fn dispatch(&self, id: &CallId, stop: &StopSignal) -> Result<Dispatched, DispatchError> {
        self.dispatch_handed(id, Handed::default(), stop).await
    }

    async fn dispatch_handed(
        &self,
        id: &CallId,
        handed: Handed<'_>,
        stop: &StopSignal,
    ) -> Result<Dispatched, DispatchError> {
        let planned = handed.planned.iter().find(|call| call.call_id == *id).cloned();
        let is_planned = planned.is_some();
        let call = match planned {
            Some(call) => call,
            None => self.read(id).await?,
        };
        let span = spans::of_call(&call);
        let dispatch = async {
            let _under_way = self.waits.under_way();
            let receipt = self.take_to_receipt(call, is_planned, handed, stop);
            let dispatched = Box::pin(receipt).await?;
            spans::ended(&dispatched);
            Ok(dispatched)
        };
        dispatch.instrument(span).await
    }

    async fn read(&self, id: &CallId) -> Result<CallRecord, LedgerError> {
        let read = self.ledger.store().call(id).await;
        read.map_err(|source| LedgerError::Store { doing: "read", call: id.clone(), source })
    }

    async fn take_to_receipt(
        &self,
        call: CallRecord,
        is_planned: bool,
        handed: Handed<'_>,
        stop: &StopSignal,
    ) -> Result<Dispatched, DispatchError> {
        let Handed { answer_waits, reads_wait, time, planned: _ } = handed;
        let within = Within::until(stop).and_time(time, &self.waits);
        let id = &call.call_id.clone();
        let mut planned = is_planned.then(|| call.clone());
        let mut read = Some(call);
        let (mut readmissions, mut starts, mut started) = (0, 0, None);
        let (mut turn, mut good_for, mut looks) = (None, GOOD_FOR, LOOKS_AT_A_DOUBT);
        loop {
            let call = match read.take() {
                Some(call) => call,
                None => self.read(id).await?,
            };
            if !file_arguments(&call.policy, &call.arguments).is_empty() {
                self.ledger.flush(id).await?; // files are read: that may take a while
            }
            let facts = Facts { has_waited: looks == 0, ..self.facts(&call)? };
            let is_as_planned = facts.since_planned == SincePlanned::Same;
            let at_once = planned.take().and_then(|call| self.ledger.admit_planned(&call, &facts));
            let admission = match at_once {
                Some(admission) => admission,
                None => Box::pin(self.admit(id, facts, &within)).await?,
            };
            let went_on = match admission {
                Admission::Settled(call) => {
                    self.tell(CallProgress::Settled { call: Box::new(call.clone()) });
                    return Ok(Dispatched::Settled(Box::new(call)));
                }
                Admission::Held(question) => {
                    self.tell(CallProgress::Held { question: Box::new(question.clone()) });
                    return Ok(Dispatched::Held(Box::new(question)));
                }
                Admission::WaitFor(twin) => {
                    if !self.wait_for(&twin, &mut looks, stop).await? {
                        return Ok(Dispatched::Stopped);
                    }
                    continue;
                }
                // `admit` recovers what is unknown; it stays unknown only when a stop came in between, or the time is too short for it.
                Admission::Unknown(unknown) => {
                    let what = format!(
                        "what became of `{}` can be looked up only after a longer wait",
                        unknown.call().name.tool
                    );
                    return Ok(within.ended(&what, self.ledger.env().now()));
                }
                Admission::Continues(continued) if stop.is_stopping() => {
                    drop(continued); // it keeps its handle
                    return Ok(Dispatched::Stopped);
                }
                Admission::Continues(continued) => Box::pin(self.take_up(*continued, is_as_planned, stop)).await?,
                Admission::Ongoing(permit) => {
                    drop(turn); // it has one of its own
                    return Box::pin(self.carry_on_task(*permit, stop)).await;
                }
                Admission::Ready(_) if stop.is_stopping() => return Ok(Dispatched::Stopped),
                // What has to be waited for is had first, and then the call is judged anew: its files, its key and what others did may be
                // otherwise by then.
                Admission::Ready(prepared) if prepared.call().name.is_task() => {
                    if turn.is_none() {
                        let at_once = self.tasks_at_once.try_acquire().ok();
                        let must_wait = at_once.is_none();
                        turn = at_once;
                        if must_wait {
                            turn = self.tasks_at_once.acquire().await.ok();
                            if turn.is_none() {
                                return Ok(Dispatched::Stopped);
                            }
                            continue;
                        }
                    }
                    if self.is_too_old(&prepared, &mut good_for) {
                        continue;
                    }
                    if let Some(ended) = Box::pin(self.start_task(prepared, stop)).await? {
                        return Ok(ended);
                    }
                    readmissions += 1;
                    if readmissions > MAX_READMISSIONS {
                        return self.give_up_start(id).await;
                    }
                    continue;
                }
                Admission::Ready(prepared) => {
                    let server = prepared.call().name.server.clone();
                    let is_to_be_looked_at =
                        !prepared.call().policy.may_simply_be_repeated() && self.transport.is_silent(&server);
                    let running = self.transport.running(&server).filter(|_| !is_to_be_looked_at);
                    let generation = if let Some(generation) = running {
                        generation
                    } else {
                        self.ledger.flush(id).await?; // it may have to be started, or looked at
                        let generation = self.transport.ready(&server).await?;
                        if started.as_ref() != Some(&generation) {
                            starts += 1;
                            if starts > MAX_STARTS {
                                let why = "it ended every time before a call could be sent".to_owned();
                                return Err(TransportError::NotStarted {
                                    server,
                                    why,
                                    may_pass: true,
                                    look_at: LookAt::Command,
                                }
                                .into());
                            }
                            started = Some(generation);
                            continue;
                        }
                        generation
                    };
                    if self.is_too_old(&prepared, &mut good_for) {
                        continue;
                    }
                    if stop.is_stopping() {
                        return Ok(Dispatched::Stopped);
                    }
                    let prepared = if reads_wait {
                        self.ledger.start_read(prepared, &generation).await
                    } else {
                        Err(Box::new(prepared))
                    };
                    let permit = match prepared {
                        Ok(permit) => Some(permit),
                        Err(prepared) => self.ledger.start(*prepared, &generation).await?,
                    };
                    let Some(permit) = permit else {
                        readmissions += 1;
                        if readmissions > MAX_READMISSIONS {
                            return self.give_up_start(id).await;
                        }
                        continue;
                    };
                    starts = 0; // it was there to be sent to
                    if stop.is_stopping() {
                        // The write may have waited long for the database, and nothing new is started any more.
                        return Box::pin(self.keep_back(permit)).await;
                    }
                    let outcome = if self.ledger.confirm(&permit).await? {
                        self.tell(CallProgress::Sending { call: Box::new(permit.call().clone()) });
                        self.send(&permit, stop).await
                    } else {
                        Outcome::NotSent { why: "its idempotency key had expired".to_owned() }
                    };
                    self.finish(permit, outcome, stop).await?
                }
            };
            let (permit, outcome) = match went_on {
                LongCallOutcome::Ended(permit, outcome) => (*permit, outcome),
                LongCallOutcome::Held(question) => {
                    self.tell(CallProgress::Held { question: question.clone() });
                    return Ok(Dispatched::Held(question));
                }
                LongCallOutcome::Parked { reason, detail } => return Ok(Dispatched::Parked { reason, detail }),
                LongCallOutcome::Stopped => return Ok(Dispatched::Stopped),
                LongCallOutcome::Elsewhere(error) => {
                    readmissions += 1;
                    if readmissions > MAX_READMISSIONS {
                        return Err(error.into());
                    }
                    continue;
                }
            };
            spans::answered(&outcome);
            self.tell_answered(&permit, &outcome);
            let asked_for = match &outcome {
                Outcome::Raw(reply) => reply.retry_after(),
                Outcome::NotSent { .. } | Outcome::Lost { .. } | Outcome::Continues(_) => None,
            };
            let call = if answer_waits && !stop.is_stopping() {
                // Nobody is told that it ended before that is stored.
                let watcher = self.watcher.clone();
                let stored = move |call| tell(&*watcher, CallProgress::Settled { call: Box::new(call) });
                match self.ledger.settle_with_next(permit, outcome, stored).await? {
                    WaitingAnswer::Waits(call) => return Ok(Dispatched::Settled(Box::new(call))),
                    WaitingAnswer::Stored(call) => call,
                }
            } else {
                self.ledger.settle(permit, outcome).await?
            };
            match call.status {
                CallStatus::FailedDefinite
                    if self.ledger.may_retry(&call) && asked_for.is_none_or(|span| span <= LONGEST_WAIT) =>
                {
                    let wait = backoff(call.attempt, self.ledger.env().entropy.next_u64());
                    let wait = wait.max(asked_for.unwrap_or_default());
                    if let Some(ended) = self.does_not_fit(&within, wait, &call) {
                        return Ok(ended);
                    }
                    let max_retries = self.ledger.max_retries();
                    self.tell(CallProgress::Retrying { call: Box::new(call), wait, max_retries });
                    tokio::select! {
                        () = self.ledger.env().clock.sleep(wait) => {}
                        () = stop.stopping() => return Ok(Dispatched::Stopped),
                    }
                }
                CallStatus::FailedDefinite if self.ledger.asks_for_credentials(&call) => {} // asked at the next admission
                CallStatus::Unknown if stop.is_stopping() => return Ok(Dispatched::Stopped),
                // Fenced and decided at the next admission.
                CallStatus::Unknown => {
                    let wait = self.pause_in_doubt(&call, asked_for);
                    if !wait.is_zero() {
                        if let Some(ended) = self.does_not_fit(&within, wait, &call) {
                            return Ok(ended);
                        }
                        self.tell(CallProgress::Waiting { call: Box::new(call), wait });
                        tokio::select! {
                            () = self.ledger.env().clock.sleep(wait) => {}
                            () = stop.stopping() => return Ok(Dispatched::Stopped),
                        }
                    }
                }
                CallStatus::Prepared
                | CallStatus::Running
                | CallStatus::Succeeded
                | CallStatus::FailedDefinite
                | CallStatus::FailedReported
                | CallStatus::Cancelled => {
                    self.tell(CallProgress::Settled { call: Box::new(call.clone()) });
                    return Ok(Dispatched::Settled(Box::new(call)));
                }
            }
        }
    }

    /// Keeps back a call that was started and must not leave any more: whoever resumes the run sends it, unless that may not be.
    async fn keep_back(&self, permit: Permit) -> Result<Dispatched, DispatchError> {
        let call = self.ledger.keep_back(permit).await?;
        match call.status {
            CallStatus::FailedDefinite if self.ledger.may_retry(&call) => Ok(Dispatched::Stopped),
            CallStatus::Unknown => Ok(Dispatched::Stopped),
            CallStatus::Prepared
            | CallStatus::Running
            | CallStatus::Succeeded
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported
            | CallStatus::Cancelled => {
                self.tell(CallProgress::Settled { call: Box::new(call.clone()) });
                Ok(Dispatched::Settled(Box::new(call)))
            }
        }
    }

    /// How the dispatch of a call ends whose next attempt would come too late for its run.
    fn does_not_fit(&self, within: &Within<'_>, wait: Duration, call: &CallRecord) -> Option<Dispatched> {
        let now = self.ledger.env().now();
        if within.fits(wait, now) {
            return None;
        }
        let what = format!("`{}` would be tried again after {}", call.name.tool, span_in_words(wait));
        Some(within.ended(&what, now))
    }

    /// How long nothing is asked of the server of a call in doubt: it wants to be left alone, or an earlier repeat did nothing. Nothing is waited for
    /// that is not sent again: a person is asked at once, and so is the model told.
    fn pause_in_doubt(&self, call: &CallRecord, asked_for: Option<Duration>) -> Duration {
        // What is simply done again is never in doubt. The first one that is lost is made again at once; a server that loses the next, too, is not
        // well.
        let was_repeated = match call.policy.on_unknown {
            OnUnknown::Redo => call.attempt > 1,
            OnUnknown::RedoKeyed | OnUnknown::Probe | OnUnknown::Hold | OnUnknown::Continue => {
                call.doubt.is_some_and(|doubt| doubt < call.attempt)
            }
        };
        let is_last = match call.policy.on_unknown {
            OnUnknown::Redo | OnUnknown::RedoKeyed => !self.ledger.has_attempts_left(call),
            OnUnknown::Probe | OnUnknown::Hold | OnUnknown::Continue => false,
        };
        let is_repeat = was_repeated && !is_last;
        let wait = if is_repeat { backoff(call.attempt, self.ledger.env().entropy.next_u64()) } else { Duration::ZERO };
        match call.policy.on_unknown {
            OnUnknown::Redo | OnUnknown::RedoKeyed if is_last => wait,
            OnUnknown::Redo | OnUnknown::RedoKeyed | OnUnknown::Probe => {
                wait.max(asked_for.unwrap_or_default().min(LONGEST_WAIT))
            }
            OnUnknown::Hold | OnUnknown::Continue => wait,
        }
    }

    /// Whether a call has to be judged anew before it is started: a machine that slept meanwhile is no different from a wait.
    fn is_too_old(&self, prepared: &Prepared, good_for: &mut Duration) -> bool {
        let is_too_old = self.ledger.age(prepared) > *good_for;
        if is_too_old {
            *good_for = good_for.saturating_mul(2); // it may be the looking itself that takes so long
        }
        is_too_old
    }

    /// Waits until a twin that is being sent is not any more, and has been decided about; `false` when a stop was asked for first. A twin that waits for
    /// a person is not waited for, and for one in doubt only so many `looks`.
    async fn wait_for(&self, twin: &CallId, looks: &mut u32, stop: &StopSignal) -> Result<bool, DispatchError> {
        loop {
            // The twin may be this very task's business, so it gets its turn, also where a clock does not really wait.
            tokio::task::yield_now().await;
            tokio::select! {
                () = self.ledger.env().clock.sleep(LOOK_EVERY) => {}
                () = stop.stopping() => return Ok(false),
            }
            *looks = looks.saturating_sub(match self.ledger.soon_known(twin).await? {
                Some(SoonKnown::Sent) => continue,
                Some(SoonKnown::RecoveredHere) => 1,
                Some(SoonKnown::RecoveredElsewhere) => LOOK_AT_A_REST,
                None => return Ok(true),
            });
            if *looks == 0 {
                return Ok(true);
            }
        }
    }

    /// Refuses a call that the store kept from starting again and again.
    async fn give_up_start(&self, id: &CallId) -> Result<Dispatched, DispatchError> {
        let call = self.read(id).await?;
        let message = "Not run: another call kept claiming the same effect.";
        let refused = self.ledger.cancel(&call, Resolution::Refused, "key_taken", message).await?;
        Ok(Dispatched::Settled(Box::new(refused)))
    }

    /// Admits a call; one that is unknown is fenced first, then decided by its policy. Where its server cannot be ended, what is only asked is asked
    /// before.
    pub(crate) async fn admit(
        &self,
        id: &CallId,
        facts: Facts,
        within: &Within<'_>,
    ) -> Result<Admission, DispatchError> {
        match Box::pin(self.ledger.admit(id, facts)).await? {
            Admission::Unknown(mut unknown) => {
                let server = unknown.call().name.server.clone();
                // Of an attempt that was found beside the database nobody knows which it was sent to.
                let of_any = || self.transport.generation_unknown(&server);
                let generation = unknown.generation().map(str::to_owned).or_else(of_any);
                let wait = generation.as_deref().map_or(Duration::ZERO, |generation| {
                    self.transport.horizon(&server, generation, unknown.lost_at())
                });
                if !wait.is_zero() {
                    // Time alone keeps a second effect away; a read that may simply be run again has none, and is.
                    if unknown.call().policy.is_free_read() {
                        return Box::pin(self.recover(unknown, within)).await;
                    }
                    // A question sends nothing.
                    let (facts, until) =
                        (self.facts_of_doubt(&unknown, within).await?, self.ledger.env().now().plus(wait));
                    let asked = Box::pin(self.ledger.ask_beforehand(unknown, &facts, until)).await?;
                    if let Admission::Unknown(to_fence) = asked {
                        unknown = to_fence;
                    } else {
                        return Ok(asked);
                    }
                    if !within.fits(wait, self.ledger.env().now()) {
                        return Ok(Admission::Unknown(unknown));
                    }
                    self.tell(CallProgress::Waiting { call: Box::new(unknown.call().clone()), wait });
                }
                if let Some(generation) = &generation {
                    let lost_at = unknown.lost_at();
                    let fence = if unknown.call().policy.is_free_read() {
                        self.transport.renew(&server, generation, lost_at).await
                    } else {
                        self.transport.fence(&server, generation, lost_at).await
                    };
                    if let Fence::Alive { detail } = fence {
                        let detail = format!("({generation}): {detail}");
                        return Err(DispatchError::OrphanAlive { server, detail });
                    }
                }
                Box::pin(self.recover(unknown, within)).await
            }
            admission @ (Admission::Settled(_)
            | Admission::Held(_)
            | Admission::Ready(_)
            | Admission::Continues(_)
            | Admission::WaitFor(_)
            | Admission::Ongoing(_)) => Ok(admission),
        }
    }

    /// Sends the permitted attempt. A read is dropped when a stop is asked for; a call with an effect, and a read that may not
    /// simply be run again, is waited for until the stop becomes urgent.
    async fn send(&self, permit: &Permit, stop: &StopSignal) -> Outcome {
        let is_read = permit.call().policy.is_free_read();
        let invoke = self.transport.invoke(permit);
        let given_up = async {
            if is_read {
                stop.stopping().await;
            } else {
                stop.giving_up_calls().await;
            }
        };
        tokio::select! {
            biased;
            outcome = invoke => outcome,
            () = given_up => Outcome::Lost { why: "the run was interrupted before the tool answered".to_owned() },
        }
    }

    /// What is true right now about the call's files, its effect, where it would go and what the policies say of it.
    ///
    /// # Errors
    /// It cannot be told where it would go.
    pub(crate) fn facts(&self, call: &CallRecord) -> Result<Facts, TransportError> {
        let named = file_arguments(&call.policy, &call.arguments);
        let looked = if named.is_empty() { Looked::default() } else { self.look_at(call, &named) };
        let effect = call.policy.effect_kind.as_ref().map_or(call.name.tool.as_str(), |kind| kind.as_str());
        let digest_of = |text: &str| looked.digest_of(text);
        let scope = project_scope(&call.policy.scope, effect, &call.arguments, &digest_of).or_else(|| {
            let files = looked.files.digests();
            // In a file every space counts.
            let words = || {
                let plain = || digest_in_plain_words(effect, &call.arguments, &call.policy.volatile_fields);
                reaches_others(call).then(plain).flatten()
            };
            call.policy
                .is_by_content()
                .then(|| Scope::of_whole_call(effect, &words().unwrap_or(call.args_hash), files.into_values()))
        });
        let (since_planned, has_effect_now) = match call.status {
            // One that was sent is sent again only under what then and now allow.
            CallStatus::Prepared | CallStatus::FailedDefinite | CallStatus::Running | CallStatus::Unknown => {
                self.planner().since_planned(&call.name, &call.arguments, &call.policy)
            }
            CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled => {
                (SincePlanned::Same, call.policy.class.has_effect())
            }
        };
        let destination = self.transport.destination(call.called_tool(), &call.arguments)?;
        Ok(Facts {
            scope,
            files: looked.files,
            since_planned,
            has_effect_now,
            destination,
            is_as_sent: false,
            has_waited: false,
        })
    }

    /// The same of a call in doubt, or what it was sent under where nothing is true right now that says anything about it.
    pub(crate) async fn facts_of_doubt(
        &self,
        unknown: &UnknownCall,
        within: &Within<'_>,
    ) -> Result<Facts, DispatchError> {
        let call = unknown.call();
        if within.is_as_sent {
            return Ok(Facts::as_sent(call, &self.ledger.attempts(&call.call_id).await?));
        }
        Ok(self.facts(call)?)
    }

    /// The files of a call. The tools of the built-in server know no folder but the workspace.
    fn look_at(&self, call: &CallRecord, named: &[(String, String)]) -> Looked {
        if call.name.is_of_own_server() {
            return self.files.look_at(named, ServedFrom::Workspace);
        }
        let folder = self.transport.working_folder(&call.name.server);
        self.files.look_at(named, folder.as_deref().map_or(ServedFrom::Elsewhere, ServedFrom::Folder))
    }

    /// Says that the tool of a call has answered, if it has: what comes behind that is the database's time.
    pub(crate) fn tell_answered(&self, permit: &Permit, outcome: &Outcome) {
        if matches!(outcome, Outcome::Raw(_)) {
            self.tell(CallProgress::Answered { call_id: permit.call().call_id.clone() });
        }
    }

    pub(crate) fn tell(&self, notice: CallProgress) {
        tell(&*self.watcher, notice);
    }
}

fn tell(watcher: &(dyn Fn(CallProgress) + Send + Sync), notice: CallProgress) {
    spans::note(&notice);
    watcher(notice);
}

/// The wait before the next attempt: 0.5 s doubled each time, at most 30 s, with up to a quarter more by chance.
pub(crate) fn backoff(attempt: u32, chance: u64) -> Duration {
    let base = Duration::from_millis(500)
        .saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1).min(8)))
        .min(Duration::from_secs(30));
    let quarter = u64::try_from(base.as_millis() / 4).unwrap_or(0).max(1);
    base + Duration::from_millis(chance % quarter)
}
