//! The run machine: what happens next, decided without touching anything.
//!
//! | after | next |
//! |---|---|
//! | start, turn open | finish the open turn from the ledger; the model is not asked again |
//! | start, last word was the model's | check the evidence |
//! | start otherwise | reserve |
//! | a request that does not fit the budget | stop |
//! | no reply, and another request may bring one | wait, then reserve again, a few times |
//! | a reply that asks for tools | dispatch, group by group: adjacent reads together, adjacent tasks together, each other call with an effect alone |
//! | a task whose sub-agent cannot go on now | the other tasks of its group, then wait for a person or stop, as the sub-agent does |
//! | a call with an effect that failed or was skipped | later calls with an effect of the turn are cancelled, but for actions of its own composite tool use and tasks of its own group; but for those that a person skipped, too, and behind a skip those that a person let run |
//! | a call that is held | wait for a person, after the other actions of its composite tool use |
//! | all calls settled | commit the turn |
//! | a reply that asks for nothing | check the evidence; if something is missing, say so to the model, a few times |
//! | the evidence holds, and a phase follows | enter it, unless the steps are used up |
//! | a harness: a full context, or a stop without the promise | the next iteration ([`iteration`]) |
//! | an agent that owns its loop does not take what it is owed | ask a person |
//! | a budget reached, a signal, a cancel | stop at the next boundary |

mod iteration;

use std::collections::VecDeque;
use std::time::Duration;

use ua_core::{BudgetStop, CallId, CallStatus, ModelTurn, Resolution, RunStop, StopReason};
use ua_dispatch::Dispatched;
use ua_store::{CallRecord, Choice, EndMark, QuestionKind, QuestionRecord, QuestionStatus, RequestEnd};

use crate::budget::{Estimate, Limits, Spent};
use crate::iteration::{IterationEnd, IterationState};
use crate::phase::{PhaseState, calls_in_words};
use crate::retry::{RetryPolicy, ThinkFailure};

/// A call of a turn, as far as the machine cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCall {
    /// Its id.
    pub call_id: CallId,
    /// The composite tool use that it is an action of, or the group of adjacent tasks that it is one of. Neither depend on each other.
    pub composite: Option<String>,
    /// Whether it is a task: adjacent ones run together.
    pub is_task: bool,
    /// Whether it has an effect and so is a barrier.
    pub has_effect: bool,
    /// Whether it needs nothing more.
    pub is_settled: bool,
    /// Settled without success.
    pub has_failed: bool,
    /// It did not succeed because somebody said that it is not to be made or waited for: nothing went wrong.
    pub is_skipped: bool,
    /// It was sent before, by a person's word beside a skip: it is decided about, never cancelled.
    pub was_sent: bool,
    /// What a person answered about it and nobody acted on yet.
    pub answered: Option<Choice>,
}

impl OpenCall {
    /// Reads a ledger row.
    pub fn of(call: &CallRecord) -> Self {
        let is_skipped = call.status == CallStatus::Unknown && call.resolution == Some(Resolution::Skipped);
        Self {
            call_id: call.call_id.clone(),
            composite: call.policy.via.is_some().then(|| call.tool_use_id.clone()),
            is_task: call.name.is_task(),
            has_effect: call.policy.class.has_effect(),
            // A definite failure found at the start may have attempts left; the ledger knows.
            is_skipped: call.resolution == Some(Resolution::Skipped),
            was_sent: call.status != CallStatus::Prepared,
            answered: None,
            is_settled: is_skipped
                || matches!(call.status, CallStatus::Succeeded | CallStatus::FailedReported | CallStatus::Cancelled),
            has_failed: is_skipped
                || matches!(
                    call.status,
                    CallStatus::FailedDefinite | CallStatus::FailedReported | CallStatus::Cancelled
                ),
        }
    }
}

impl OpenCall {
    /// Reads the rows of a turn, in order, and what people answered about them: tasks that stand side by side are a group.
    pub fn of_turn<'c>(calls: impl IntoIterator<Item = &'c CallRecord>, questions: &[QuestionRecord]) -> Vec<Self> {
        let answered = |call: &CallRecord| {
            let mut about = questions.iter().filter(|question| question.call_id.as_ref() == Some(&call.call_id));
            let answered = about.find(|question| question.status == QuestionStatus::Answered)?;
            answered.answer.as_ref().map(|answer| answer.choice)
        };
        let read = calls.into_iter().map(|call| Self { answered: answered(call), ..Self::of(call) });
        let mut read: Vec<Self> = read.collect();
        let mut group: Option<String> = None;
        for call in &mut read {
            group = call.is_task.then(|| group.take().unwrap_or_else(|| format!("tasks from {}", call.call_id)));
            if call.is_task {
                call.composite.clone_from(&group);
            }
        }
        read
    }

    /// Whether the two are actions of one composite tool use, or tasks of one group.
    fn is_beside(&self, other: &Self) -> bool {
        self.composite.is_some() && self.composite == other.composite
    }
}

/// A turn that was recorded and not committed.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// Its number.
    pub turn: u32,
    /// Why its reply ended.
    pub stop_reason: StopReason,
    /// The reply's text.
    pub text: String,
    /// Its calls, in block order.
    pub calls: Vec<OpenCall>,
}

/// Where the machine starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Committed turns.
    pub committed: u32,
    /// The turn to finish first.
    pub open: Option<OpenTurn>,
    /// The history ends with the model's words, which asked for nothing: the evidence was not checked yet.
    pub last_word: Option<String>,
    /// The run was driven before, so the model is told what happened in between.
    pub is_resume: bool,
    /// Tool calls charged so far, those of sub-agents included.
    pub tool_calls: u32,
    /// What requests to models took so far, those of sub-agents included.
    pub spent: Spent,
    /// Turns that sub-agents committed.
    pub turns_below: u32,
    /// Milliseconds held so far.
    pub held_millis: u64,
    /// Steps opened so far.
    pub steps: u32,
    /// The phase that is worked on; `None` when the job has none.
    pub phase: Option<PhaseState>,
    /// The iteration that is worked on; `None` when the job has no harness.
    pub iteration: Option<IterationState>,
    /// The error that settled calls ended with last, and how often in a row.
    pub same_error: Option<(String, u32)>,
}

impl Start {
    /// A run that never ran.
    pub fn fresh() -> Self {
        Self {
            committed: 0,
            open: None,
            last_word: None,
            is_resume: false,
            tool_calls: 0,
            spent: Spent::default(),
            turns_below: 0,
            held_millis: 0,
            steps: 0,
            phase: None,
            iteration: None,
            same_error: None,
        }
    }
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Compose the request for `turn` and reserve it.
    Reserve {
        /// The turn.
        turn: u32,
    },
    /// Send the reserved request.
    Think {
        /// The turn.
        turn: u32,
    },
    /// Wait before the model is asked again; a signal or a cancel ends the wait.
    Wait {
        /// Which request of the turn failed, from 1.
        attempt: u32,
        /// Why.
        why: String,
        /// How long.
        wait: Duration,
    },
    /// Record the reply and every call it asks for, in one write.
    Record {
        /// The turn.
        turn: u32,
        /// The reply.
        reply: Box<ModelTurn>,
    },
    /// Dispatch calls that may run together, or one call with an effect.
    Dispatch {
        /// The calls.
        calls: Vec<CallId>,
        /// Whether they have effects.
        has_effect: bool,
    },
    /// Cancel calls that follow a failed one.
    CancelAfterFailure {
        /// The calls.
        calls: Vec<CallId>,
        /// The call that failed.
        failed: CallId,
    },
    /// Append the results and commit the turn.
    Commit {
        /// The turn.
        turn: u32,
    },
    /// Write the resume packet, and tell the model what happened in between if it is to be asked again.
    FinishReplay {
        /// Whether the model will be asked next.
        note: bool,
    },
    /// Check stop conditions over receipts and files.
    CheckEvidence,
    /// End the phase and begin the next one, in one write.
    EnterPhase {
        /// The next phase.
        next: String,
    },
    /// End the iteration and begin the next one with an empty context, in one write.
    EnterIteration {
        /// Its number.
        number: u32,
        /// Why the one before ends.
        why: IterationEnd,
    },
    /// Tell the model what is missing or how to go on.
    Guide {
        /// What to say; for missing evidence the driver adds what is missing.
        text: Guidance,
    },
    /// Ask a person something about the run.
    Ask {
        /// What about.
        kind: QuestionKind,
        /// The question.
        text: String,
    },
    /// End this process's work on the run.
    Stop(Conclusion),
}

/// What the model is told when it stopped too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guidance {
    /// Its reply was cut.
    Continue,
    /// Conditions do not hold; the text lists them.
    Missing(String),
}

/// How this process's work on a run ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Conclusion {
    /// Every stop condition holds.
    Succeeded {
        /// The model's last words.
        final_output: String,
    },
    /// It ended without.
    Failed {
        /// Why.
        why: String,
    },
    /// A person asked for it.
    Cancelled,
    /// A person has to answer first.
    Waiting {
        /// The question.
        question: Box<QuestionRecord>,
    },
    /// A resume may lift the reason.
    Stopped {
        /// The reason.
        reason: RunStop,
        /// In words.
        detail: String,
    },
}

/// Why a run has failed that a person ended with an answer.
pub(crate) const ABORTED: &str = "a person answered `abort`";

impl Conclusion {
    /// How a run ends of which a person said that it is to end.
    pub(crate) fn of_mark(mark: EndMark) -> Self {
        match mark {
            EndMark::Cancel => Self::Cancelled,
            EndMark::Abort => Self::Failed { why: ABORTED.to_owned() },
        }
    }
}

impl Event {
    pub(crate) fn of_mark(mark: EndMark) -> Self {
        match mark {
            EndMark::Cancel => Self::CancelAsked,
            EndMark::Abort => Self::Aborted,
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The request is reserved, with what it may take.
    Reserved(Estimate),
    /// The request does not fit the budget, and nothing was reserved ([`RunMachine::admit`] said so).
    OverBudget {
        /// In words.
        detail: String,
    },
    /// The request would be larger than the iteration's context may be, and nothing was reserved ([`RunMachine::context_full`] said so).
    ContextFull(IterationEnd),
    /// The model replied, or did not.
    Thought(Result<Box<ModelTurn>, ThinkFailure>),
    /// A signal asked to stop while a request was reserved; it is charged like this.
    ThinkingInterrupted {
        /// How it is charged.
        end: RequestEnd,
    },
    /// The wait is over.
    Waited,
    /// The turn is recorded; these are its calls.
    Recorded(Vec<OpenCall>),
    /// The dispatched calls ended, in order.
    Dispatched(Vec<Dispatched>),
    /// The calls are cancelled.
    Cancelled,
    /// The turn is committed; the process has held the run this long.
    Committed {
        /// Milliseconds, all processes together.
        held_millis: u64,
    },
    /// Packet and note are written.
    ReplayFinished,
    /// All conditions hold, or this is missing.
    Evidence(Result<(), String>),
    /// The next phase has begun.
    PhaseEntered(Box<PhaseState>),
    /// The next iteration has begun.
    IterationEntered(Box<IterationState>),
    /// The guidance is in the history.
    Guided,
    /// The question is raised.
    Asked(Box<QuestionRecord>),
    /// A signal asked to stop.
    Interrupted,
    /// The run was held for as long as it may be; nothing new was sent.
    OutOfTime {
        /// Milliseconds, all processes together.
        held_millis: u64,
    },
    /// A person asked to cancel.
    CancelAsked,
    /// A person answered `abort`.
    Aborted,
    /// The setup is not the one the step was pinned to; nothing was sent.
    SetupChanged {
        /// In words.
        detail: String,
    },
    /// A tool server could not be reached; nothing was sent.
    ToolServerDown {
        /// In words.
        detail: String,
    },
    /// An agent that owns its loop does not take the results of interrupted calls; it is not asked again by itself.
    ReplayGivenUp {
        /// The question.
        text: String,
    },
}

/// An event that nothing asked for: a bug in the driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("take the event {event} while {state}")]
pub struct UnexpectedEvent {
    event: String,
    state: String,
}

/// How often the model is told what is missing before a person is asked.
const MAX_NUDGES: u32 = 3;

#[derive(Debug, Clone, PartialEq)]
enum State {
    Begin,
    Reserving,
    Thinking,
    Waiting { why: String, wait: Duration },
    Recording { reply: Box<ModelTurn> },
    Dispatching,
    Cancelling { calls: Vec<CallId>, failed: CallId },
    Committing,
    FinishingReplay { note: bool },
    Checking,
    EnteringPhase { next: String },
    EnteringIteration { number: u32, why: IterationEnd },
    Guiding(Guidance),
    Asking { kind: QuestionKind, text: String },
    Ended(Conclusion),
}

/// The machine of one run, for the time one process drives it.
#[derive(Debug)]
pub struct RunMachine {
    limits: Limits,
    retry: RetryPolicy,
    state: State,
    committed: u32,
    tool_calls: u32,
    spent: Spent,
    turns_below: u32,
    /// What the request under way may take.
    reserved: Estimate,
    /// Requests for the next turn that brought no reply.
    attempts: u32,
    held_millis: u64,
    replaying: bool,
    /// The open turn's calls that are still to be dispatched.
    pending: VecDeque<OpenCall>,
    /// The calls last handed out.
    in_hand: Vec<OpenCall>,
    /// A question that the run waits for once the actions beside the held one are settled.
    held: Option<Box<QuestionRecord>>,
    /// The open turn's reply: why it ended, and its text.
    open: Option<(StopReason, String, bool)>,
    last_word: Option<String>,
    nudges: u32,
    same_error: Option<(String, u32)>,
    steps: u32,
    phase: Option<PhaseState>,
    iteration: Option<IterationState>,
}

impl RunMachine {
    /// Makes the machine of a run that stands at `start`.
    pub fn new(limits: Limits, start: Start) -> Self {
        let mut machine = Self {
            limits,
            retry: RetryPolicy::default(),
            state: State::Begin,
            committed: start.committed,
            tool_calls: start.tool_calls,
            spent: start.spent,
            turns_below: start.turns_below,
            reserved: Estimate::default(),
            attempts: 0,
            held_millis: start.held_millis,
            replaying: start.is_resume,
            pending: VecDeque::new(),
            in_hand: Vec::new(),
            held: None,
            open: None,
            last_word: start.last_word,
            nudges: 0,
            same_error: start.same_error,
            steps: start.steps,
            phase: start.phase,
            iteration: start.iteration,
        };
        machine.state = match start.open {
            Some(open) => {
                let asks = !open.calls.is_empty();
                machine.open = Some((open.stop_reason, open.text, asks));
                machine.pending = open.calls.into();
                machine.after_recording()
            }
            None => machine.between_turns(),
        };
        machine
    }

    /// The same machine with another patience towards the provider.
    #[must_use]
    pub fn with_retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = retry;
        self
    }

    /// Whether the next request may be reserved; in words, why not. The driver asks before it reserves.
    pub fn admit(&self, estimate: &Estimate) -> Result<(), String> {
        self.limits.admit(&self.spent, estimate)?;
        self.phase.as_ref().map_or(Ok(()), |phase| phase.admit(estimate))
    }

    /// Where the run stops by itself.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What requests to models took so far.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Starts over at `start`, under the same limits.
    pub fn restart(&mut self, start: Start) {
        *self = Self::new(self.limits.clone(), start).with_retry(self.retry);
    }

    /// Takes the sums from what is stored: sub-agents used something meanwhile. No request is under way.
    pub fn recount(&mut self, stored: Start) {
        self.tool_calls = stored.tool_calls;
        self.spent = stored.spent;
        self.turns_below = stored.turns_below;
        self.phase = stored.phase;
    }

    /// Committed turns.
    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// Tool calls charged so far.
    pub fn tool_calls(&self) -> u32 {
        self.tool_calls
    }

    /// What is to be done next. Asking again without an event in between gives the same answer.
    pub fn command(&mut self) -> Command {
        match &self.state {
            State::Begin | State::Reserving => Command::Reserve { turn: self.committed + 1 },
            State::Thinking => Command::Think { turn: self.committed + 1 },
            State::Waiting { why, wait } => Command::Wait { attempt: self.attempts, why: why.clone(), wait: *wait },
            State::Recording { reply } => Command::Record { turn: self.committed + 1, reply: reply.clone() },
            State::Dispatching => self.next_group(),
            State::Cancelling { calls, failed } => {
                Command::CancelAfterFailure { calls: calls.clone(), failed: failed.clone() }
            }
            State::Committing => Command::Commit { turn: self.committed + 1 },
            State::FinishingReplay { note } => Command::FinishReplay { note: *note },
            State::Checking => Command::CheckEvidence,
            State::EnteringPhase { next } => Command::EnterPhase { next: next.clone() },
            State::EnteringIteration { number, why } => Command::EnterIteration { number: *number, why: why.clone() },
            State::Guiding(text) => Command::Guide { text: text.clone() },
            State::Asking { kind, text } => Command::Ask { kind: *kind, text: text.clone() },
            State::Ended(conclusion) => Command::Stop(conclusion.clone()),
        }
    }

    /// The next group: adjacent reads together, adjacent tasks together, any other call with an effect alone.
    fn next_group(&mut self) -> Command {
        if self.in_hand.is_empty() {
            while let Some(call) = self.pending.front() {
                let joins = self.in_hand.first().is_none_or(|first| {
                    (!call.has_effect && !first.has_effect) || (call.is_task && first.is_task && call.is_beside(first))
                });
                if !joins {
                    break;
                }
                self.in_hand.extend(self.pending.pop_front());
            }
        }
        Command::Dispatch {
            calls: self.in_hand.iter().map(|call| call.call_id.clone()).collect(),
            has_effect: self.in_hand.iter().any(|call| call.has_effect),
        }
    }

    /// Takes what happened.
    pub fn apply(&mut self, event: Event) -> Result<(), UnexpectedEvent> {
        let state = std::mem::replace(&mut self.state, State::Begin);
        self.state = match (state, event) {
            (State::Ended(conclusion), _) => State::Ended(conclusion),
            (_, Event::Interrupted) => stopped(RunStop::Interrupt, "a signal asked the process to stop"),
            (state, Event::OutOfTime { held_millis }) => {
                self.held_millis = held_millis;
                self.out_of_time().unwrap_or(state)
            }
            (_, Event::CancelAsked) => State::Ended(Conclusion::of_mark(EndMark::Cancel)),
            (_, Event::Aborted) => State::Ended(Conclusion::of_mark(EndMark::Abort)),
            (_, Event::SetupChanged { detail }) => stopped(RunStop::Fingerprint, &detail),
            (_, Event::ToolServerDown { detail }) => stopped(RunStop::ToolServer, &detail),
            (_, Event::ReplayGivenUp { text }) => self.ask_about_failures(QuestionKind::RepeatedFailures, text),
            (State::Begin | State::Reserving, Event::Reserved(estimate)) => {
                self.reserved = estimate;
                State::Thinking
            }
            (State::Begin | State::Reserving, Event::OverBudget { detail }) => stopped(RunStop::Budget, &detail),
            (State::Begin | State::Reserving, Event::ContextFull(why)) => self.end_iteration(why),
            (State::Thinking, Event::Thought(Ok(reply))) => State::Recording { reply },
            (State::Thinking, Event::Thought(Err(failure))) => self.after_failure(failure),
            (State::Thinking, Event::ThinkingInterrupted { end }) => {
                self.charge(end);
                stopped(RunStop::Interrupt, "a signal asked the process to stop")
            }
            (State::Waiting { .. }, Event::Waited) => self.between_turns(),
            (State::Recording { reply }, Event::Recorded(calls)) => {
                self.charge(reply.usage.map_or(RequestEnd::Baseline, RequestEnd::Actual));
                self.attempts = 0;
                let asked = u32::try_from(calls.len()).unwrap_or(u32::MAX);
                self.tool_calls += asked;
                if let Some(phase) = &mut self.phase {
                    phase.tool_calls += asked;
                }
                if let Some(iteration) = &mut self.iteration {
                    iteration.tool_calls += asked;
                }
                self.open = Some((reply.stop_reason, reply.text(), !calls.is_empty()));
                self.pending = calls.into();
                self.after_recording()
            }
            (State::Dispatching, Event::Dispatched(ended)) => self.after_dispatch(ended),
            (State::Cancelling { .. }, Event::Cancelled) => self.go_on_dispatching(),
            (State::Committing, Event::Committed { held_millis }) => {
                self.committed += 1;
                self.held_millis = held_millis;
                if let Some(phase) = &mut self.phase {
                    phase.turns += 1;
                }
                self.after_commit()
            }
            (State::FinishingReplay { .. }, Event::ReplayFinished) => {
                self.replaying = false;
                self.between_turns()
            }
            (State::Checking, Event::Evidence(found)) => self.after_evidence(found),
            (State::EnteringPhase { .. }, Event::PhaseEntered(phase)) => {
                self.phase = Some(*phase);
                self.steps += 1;
                self.nudges = 0;
                self.last_word = None;
                self.between_turns()
            }
            (State::EnteringIteration { why, .. }, Event::IterationEntered(entered)) => {
                self.iteration_entered(&why, *entered)
            }
            (State::Guiding(_), Event::Guided) => {
                self.last_word = None;
                self.between_turns()
            }
            (State::Asking { .. }, Event::Asked(question)) => State::Ended(Conclusion::Waiting { question }),
            (state, event) => {
                let error = UnexpectedEvent { event: format!("{event:?}"), state: format!("{state:?}") };
                self.state = state;
                return Err(error);
            }
        };
        Ok(())
    }

    /// Charges the request under way, as the store does in the same moment.
    fn charge(&mut self, end: RequestEnd) {
        let reserved = std::mem::take(&mut self.reserved);
        let charge = reserved.charge(end);
        self.spent.add(charge);
        if let Some(phase) = &mut self.phase {
            phase.spent.add(charge);
        }
    }

    /// No reply: another request if that may help, each with a reservation of its own.
    fn after_failure(&mut self, failure: ThinkFailure) -> State {
        self.charge(failure.end);
        self.attempts += 1;
        if let Some(wait) = self.retry.wait_after(self.attempts, &failure) {
            // What broke off was paid for: a budget that it used up is not waited for.
            if let Some(state) = self.budget_stop() {
                return state;
            }
            return State::Waiting { why: failure.why, wait };
        }
        if failure.credentials_refused && self.limits.ask_on_auth_failure {
            let text = format!(
                "The model provider refused the credentials: {} Correct them, then answer `continue`.",
                sentence(&failure.message)
            );
            return State::Asking { kind: QuestionKind::AuthFailure, text };
        }
        match self.attempts {
            1 => stopped(RunStop::Provider, &failure.message),
            attempts => stopped(
                RunStop::Provider,
                &format!("{attempts} requests brought no reply; the last one: {}", failure.message),
            ),
        }
    }

    fn over_budget(budget: &str, limit: &impl ToString, detail: String) -> State {
        let stop = BudgetStop { budget: budget.to_owned(), phase: None, limit: limit.to_string(), detail };
        stopped(RunStop::Budget, &stop.to_string())
    }

    /// Between two turns: budgets, then what a resume owes, then the next request or the evidence.
    fn between_turns(&self) -> State {
        if self.replaying {
            return State::FinishingReplay { note: self.last_word.is_none() };
        }
        if self.last_word.is_some() {
            return State::Checking;
        }
        if let Some(state) = self.budget_stop() {
            return state;
        }
        State::Reserving
    }

    /// Tool calls are not among these: a run that used them all may still say its last word.
    fn budget_stop(&self) -> Option<State> {
        let limits = &self.limits;
        let own = self.committed.saturating_sub(limits.shared_turns).saturating_add(self.turns_below);
        if let Some(max) = limits.max_turns.filter(|max| own >= *max) {
            return Some(Self::over_budget("max_turns", &max, format!("{own} turns are used")));
        }
        if let Some(max) = limits.max_tokens.filter(|max| self.spent.tokens >= *max) {
            return Some(Self::over_budget("max_tokens", &max, format!("{} tokens are used", self.spent.tokens)));
        }
        if let Some(max) = limits.max_cost.filter(|max| self.spent.costs.of(max.currency()).nanos() >= max.nanos()) {
            let used = self.spent.costs.of(max.currency());
            return Some(Self::over_budget("max_cost", &max, format!("{used} is used")));
        }
        if let Some(stop) = self.phase.as_ref().and_then(PhaseState::budget_stop) {
            return Some(stopped(RunStop::Budget, &stop.to_string()));
        }
        self.out_of_time()
    }

    fn out_of_time(&self) -> Option<State> {
        let max = self.limits.max_held_millis.filter(|max| self.held_millis >= *max)?;
        let detail = format!("processes held the run for {} seconds", self.held_millis / 1_000);
        Some(Self::over_budget("max_wallclock_minutes", &(max / 60_000), detail))
    }

    /// A recorded turn: a reply that exceeds the tool-call budget stops before its first dispatch.
    fn after_recording(&mut self) -> State {
        let nothing_sent = !self.pending.is_empty() && self.pending.iter().all(|call| !call.is_settled);
        if nothing_sent {
            if let Some(max) = self.limits.max_tool_calls.filter(|max| self.tool_calls > *max) {
                return Self::over_budget("max_tool_calls", &max, calls_in_words(self.tool_calls));
            }
            if let Some(stop) = self.phase.as_ref().and_then(PhaseState::calls_stop) {
                return stopped(RunStop::Budget, &stop.to_string());
            }
        }
        self.go_on_dispatching()
    }

    /// Drops what is settled, cancels what follows a failure, else dispatches or commits.
    fn go_on_dispatching(&mut self) -> State {
        while let Some(call) = self.pending.front().filter(|call| call.is_settled).cloned() {
            self.pending.pop_front();
            if call.has_effect
                && call.has_failed
                && let Some(state) = self.cancel_rest(&call)
            {
                return state;
            }
        }
        if !self.pending.is_empty() {
            return State::Dispatching;
        }
        match self.held.take() {
            Some(question) => State::Ended(Conclusion::Waiting { question }),
            None => State::Committing,
        }
    }

    fn cancel_rest(&mut self, failed: &OpenCall) -> Option<State> {
        // Whoever skipped one call and let another one run said both: the second word is not undone by the first. A call that was skipped
        // is not sent in any case, and goes its own way so that the model reads what the person said about it.
        let has_word = |call: &OpenCall| match call.answered {
            Some(Choice::Execute | Choice::Continue) => failed.is_skipped,
            Some(Choice::Skip) => true,
            Some(Choice::Happened | Choice::Abort) | None => false,
        };
        let is_over = |call: &OpenCall| {
            let may_be_cancelled = call.has_effect && !call.is_settled && !call.was_sent;
            may_be_cancelled && !call.is_beside(failed) && !has_word(call)
        };
        let calls: Vec<CallId> =
            self.pending.iter().filter(|call| is_over(call)).map(|call| call.call_id.clone()).collect();
        self.pending.retain(|call| !is_over(call));
        for call in &mut self.pending {
            call.has_failed &= !call.has_effect; // one cancellation is enough
        }
        (!calls.is_empty()).then(|| State::Cancelling { calls, failed: failed.call_id.clone() })
    }

    /// A held call keeps back everything but the actions beside it, which do not depend on it.
    fn hold(&mut self, held: &OpenCall, question: Box<QuestionRecord>) {
        self.pending.retain(|call| call.is_beside(held));
        self.held.get_or_insert(question);
    }

    fn after_dispatch(&mut self, ended: Vec<Dispatched>) -> State {
        let in_hand = std::mem::take(&mut self.in_hand);
        let (mut failed, mut parked) = (None, None);
        for (call, ended) in in_hand.iter().zip(ended) {
            match ended {
                Dispatched::Settled(record) => {
                    self.note_error(&record);
                    let settled = OpenCall::of(&record);
                    if call.has_effect && settled.has_failed {
                        // Of several that did not succeed, one that went wrong counts before one that was skipped.
                        let is_skipped =
                            settled.is_skipped && failed.as_ref().is_none_or(|earlier: &OpenCall| earlier.is_skipped);
                        failed = Some(OpenCall { is_skipped, ..call.clone() });
                    }
                }
                Dispatched::Held(question) => self.hold(call, question),
                Dispatched::Parked { reason, detail } => {
                    parked.get_or_insert_with(|| stopped(reason, &detail));
                }
                Dispatched::Stopped => return stopped(RunStop::Interrupt, "a signal asked the process to stop"),
            }
        }
        if let Some(state) = parked {
            return state;
        }
        if let Some(state) = failed.and_then(|failed| self.cancel_rest(&failed)) {
            return state;
        }
        self.go_on_dispatching()
    }

    /// Takes note of calls that were refused when they were planned: they are never dispatched, and equal ones in a row count.
    pub fn note_refused(&mut self, planned: &[CallRecord]) {
        for call in planned.iter().filter(|call| call.status == CallStatus::Cancelled) {
            self.note_error(call);
        }
    }

    fn note_error(&mut self, record: &CallRecord) {
        self.same_error = errors_in_a_row(self.same_error.take(), record);
    }

    fn after_commit(&mut self) -> State {
        let open = self.open.take();
        if let Some((error, count)) = &self.same_error
            && self.limits.max_same_error_repeats.is_some_and(|max| *count > max)
        {
            let text = format!("The same failure happened {count} times in a row. {error}");
            return self.ask_about_failures(QuestionKind::RepeatedFailures, text);
        }
        match open {
            Some((StopReason::MaxTokens | StopReason::PauseTurn, _, false)) => State::Guiding(Guidance::Continue),
            Some((_, text, false)) => {
                self.last_word = Some(text);
                self.between_turns()
            }
            Some((_, _, true)) | None => self.between_turns(),
        }
    }

    /// Something that goes wrong again and again: a person is asked, or the run has failed.
    fn ask_about_failures(&self, kind: QuestionKind, text: String) -> State {
        if self.limits.ask_on_repeated_failures {
            State::Asking { kind, text }
        } else {
            State::Ended(Conclusion::Failed { why: text })
        }
    }

    /// A phase whose conditions hold: the next one, if a step is left for it.
    fn after_phase(&self, next: String) -> State {
        match self.limits.max_steps.filter(|max| self.steps >= *max) {
            Some(max) => {
                let detail = format!("{} steps are used, and the phase `{next}` would be the next", self.steps);
                Self::over_budget("max_steps", &max, detail)
            }
            None => State::EnteringPhase { next },
        }
    }

    fn after_evidence(&mut self, found: Result<(), String>) -> State {
        let next = self.phase.as_ref().and_then(|phase| phase.next.clone());
        if next.is_none()
            && let Some(state) = self.after_promise(&found)
        {
            return state;
        }
        match (found, next) {
            (Ok(()), Some(next)) => self.after_phase(next),
            (Ok(()), None) => {
                State::Ended(Conclusion::Succeeded { final_output: self.last_word.clone().unwrap_or_default() })
            }
            (Err(missing), _) => self.tell_missing(missing),
        }
    }

    /// Conditions that do not hold although the model is done: it is told so a few times, then a person is asked.
    fn tell_missing(&mut self, missing: String) -> State {
        if self.nudges >= MAX_NUDGES {
            return self.ask_about_missing(format!("The model says it is done, but this is missing: {missing}"));
        }
        if let Some(state) = self.budget_stop() {
            return state;
        }
        self.nudges += 1;
        State::Guiding(Guidance::Missing(missing))
    }

    fn ask_about_missing(&self, text: String) -> State {
        self.ask_about_failures(QuestionKind::MissingEvidence, text)
    }
}

/// Counts equal errors in a row over settled calls.
pub(crate) fn errors_in_a_row(so_far: Option<(String, u32)>, record: &CallRecord) -> Option<(String, u32)> {
    let failed =
        matches!(record.status, CallStatus::FailedReported | CallStatus::FailedDefinite | CallStatus::Cancelled);
    if !failed || record.resolution == Some(Resolution::AfterFailure) {
        return so_far.filter(|_| record.status != CallStatus::Succeeded);
    }
    let error = format!("{}: {}", record.name.tool, record.error_detail.as_deref().unwrap_or("it failed"));
    match so_far {
        Some((last, count)) if last == error => Some((last, count + 1)),
        Some(_) | None => Some((error, 1)),
    }
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

fn stopped(reason: RunStop, detail: &str) -> State {
    State::Ended(Conclusion::Stopped { reason, detail: detail.to_owned() })
}
