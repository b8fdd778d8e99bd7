//! The run machine: what happens next, decided without touching anything.
//!
//! | after | next |
//! |---|---|
//! | start, turn open | finish the open turn from the ledger; the model is not asked again |
//! | start, last word was the model's | check the evidence |
//! | start, last word was the model's and no answer | say so to the model |
//! | start, a person was to be asked and the process died before | ask |
//! | start, last word was the model's and a person lets it try again | check the evidence; if something is missing, say so to the model |
//! | start otherwise | reserve |
//! | a request that does not fit the budget | stop |
//! | no reply, and another request may bring one | wait, then reserve again, as long as the patience lasts |
//! | a request that is too long for the model, or may be | reserve again, with a history that is cut harder, a few times, until there is nothing to cut |
//! | a request that asks for a longer reply than the model writes, where the job names no length | reserve again, with a shorter one |
//! | a reply that asks for tools | dispatch, group by group: adjacent reads together, adjacent tasks together, each other call with an effect alone |
//! | a task whose sub-agent cannot go on now | the other tasks of its group, then wait for a person or stop, as the sub-agent does |
//! | a call with an effect that failed or was skipped | later calls with an effect of the turn are cancelled, but for actions of its own composite tool use and tasks of its own group; but for those that a person skipped, too, and behind a skip those that a person let run |
//! | a tool server that is away for as long as the patience lasts, or that a person has to do something about | stop |
//! | a call that is held | wait for a person, after the other actions of its composite tool use |
//! | all calls settled | commit the turn |
//! | a reply that asks for nothing | check the evidence; if something is missing, say so to the model, a few times |
//! | one that was cut | have it continued; the answer is all its pieces ([`Talk`]) |
//! | one that was used up before it said anything | say so to the model, a few times ([`ReplyEnd`]) |
//! | one that was refused, is empty or ended oddly | say so to the model, once; then a person, or the run has failed ([`ReplyEnd`]) |
//! | the evidence holds, and a phase follows | enter it, unless the steps are used up |
//! | a harness: a full context, or a stop without the promise | the next iteration ([`iteration`]) |
//! | an agent that owns its loop does not take what it is owed | ask a person |
//! | a budget reached, a signal, a cancel | stop at the next boundary |
//!
//! What belongs to one state lives in its variant and ends with it. Each family of events is a file: those of a request, of a turn, of what
//! stands between turns, and of iterations; what may come at any time ends the work and is taken here. An event that a state did not ask
//! for is refused by name and changes nothing. Proved by: `machine_tests`, `machine/table_tests`, `crash_anywhere`.

mod between;
mod call;
mod command;
mod event;
mod iteration;
mod reply_end;
mod request;
mod start;
#[cfg(test)]
mod table_tests;
mod talk;
mod turn;

use std::time::Duration;

use ua_core::{BudgetStop, CallId, CallStatus, ModelTurn, Resolution, RunStop};
use ua_store::{CallRecord, EndMark, QuestionKind};

pub use self::call::{OpenCall, OpenTurn};
pub(crate) use self::command::ABORTED;
pub use self::command::{Command, Conclusion, Guidance};
pub use self::event::{Event, Missing, UnexpectedEvent};
pub use self::reply_end::ReplyEnd;
pub use self::start::Start;
pub use self::talk::{Talk, Word};
use self::turn::Turn;
use crate::budget::{Estimate, Limits, Spent, Use, Used};
use crate::iteration::{IterationEnd, IterationState};
use crate::phase::PhaseState;
use crate::retry::{RetryPolicy, Tries};

/// How often the model is told what is missing before a person is asked.
const MAX_NUDGES: u32 = 3;

/// What the machine waits for. What only one state needs lives in it.
#[derive(Debug, Clone, PartialEq)]
enum State {
    /// The next request, after so many for the same reply that brought none.
    Reserving { tries: Tries },
    /// The reply to a reserved request.
    Thinking { tries: Tries, reserved: Estimate },
    /// The time before the next request.
    Waiting { tries: Tries, why: String, wait: Duration },
    /// The write of the reply, which charges what was reserved.
    Recording { reserved: Estimate, reply: Box<ModelTurn> },
    /// The calls that were handed out.
    Dispatching { turn: Turn, group: Vec<OpenCall> },
    /// The cancellation of calls that follow a failed one.
    Cancelling { turn: Turn, calls: Vec<CallId>, failed: CallId },
    /// The commit of a turn, all of whose calls are settled.
    Committing { turn: Turn },
    /// The resume packet and the note. With the model's last word, if it said one.
    FinishingReplay { last_word: Option<Word> },
    /// The evidence for the model's last word.
    Checking { last_word: Word },
    /// The beginning of the next phase.
    EnteringPhase { next: String },
    /// The beginning of the next iteration.
    EnteringIteration { number: u32, why: IterationEnd },
    /// The write of what the model is told.
    Guiding(Guidance),
    /// A question that a person is asked.
    Asking { kind: QuestionKind, text: String },
    /// Nothing.
    Ended(Conclusion),
}

impl State {
    /// What it is called when it refuses an event.
    fn name(&self) -> &'static str {
        match self {
            Self::Reserving { .. } => "Reserving",
            Self::Thinking { .. } => "Thinking",
            Self::Waiting { .. } => "Waiting",
            Self::Recording { .. } => "Recording",
            Self::Dispatching { .. } => "Dispatching",
            Self::Cancelling { .. } => "Cancelling",
            Self::Committing { .. } => "Committing",
            Self::FinishingReplay { .. } => "FinishingReplay",
            Self::Checking { .. } => "Checking",
            Self::EnteringPhase { .. } => "EnteringPhase",
            Self::EnteringIteration { .. } => "EnteringIteration",
            Self::Guiding(_) => "Guiding",
            Self::Asking { .. } => "Asking",
            Self::Ended(_) => "Ended",
        }
    }
}

/// What comes of an event: the next state, or the state as it was when it did not ask for the event.
type Next = Result<State, State>;

/// The machine of one run, for the time one process drives it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunMachine {
    limits: Limits,
    retry: RetryPolicy,
    state: State,
    committed: u32,
    /// What counts for the budgets of the run, sub-agents included.
    used: Used,
    held_millis: u64,
    replaying: bool,
    nudges: u32,
    /// What the model says instead of asking for a tool.
    talk: Talk,
    /// How the newest reply ended that an earlier process did not say anything about to the model.
    untold: Option<ReplyEnd>,
    /// What an earlier process was to ask a person, and did not.
    unasked: Option<String>,
    /// Whether a person who was asked about what is missing lets the model try again.
    may_try_again: bool,
    /// How the newest reply ended, in its provider's words.
    ended: String,
    same_error: Option<(String, u32)>,
    steps: u32,
    phase: Option<PhaseState>,
    iteration: Option<IterationState>,
}

impl RunMachine {
    /// Makes the machine of a run that stands at `start`.
    pub fn new(limits: Limits, start: Start) -> Self {
        let mut machine = Self {
            used: start.used(limits.shared_turns),
            unasked: start.unasked(&limits),
            limits,
            retry: RetryPolicy::default(),
            state: State::Reserving { tries: Tries::default() },
            committed: start.committed,
            held_millis: start.held_millis,
            replaying: start.is_resume,
            nudges: 0,
            talk: start.talk,
            untold: start.untold,
            may_try_again: start.may_try_again,
            ended: String::new(),
            same_error: start.same_error,
            steps: start.steps,
            phase: start.phase,
            iteration: start.iteration,
        };
        machine.state = match start.open {
            Some(open) => machine.after_recording(Turn::new(open.stop_reason, open.text, open.calls)),
            None => machine.between_turns(start.last_word),
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
        self.limits.admit(&self.used.spent, estimate)?;
        self.phase.as_ref().map_or(Ok(()), |phase| phase.admit(estimate))
    }

    /// How patient the run is with what is away: the model's provider, and tool servers that it has called before.
    pub fn retry(&self) -> RetryPolicy {
        self.retry
    }

    /// Where the run stops by itself.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What requests to models took so far.
    pub fn spent(&self) -> &Spent {
        &self.used.spent
    }

    /// Starts over at `start`, under the same limits.
    pub fn restart(&mut self, start: Start) {
        *self = Self::new(self.limits.clone(), start).with_retry(self.retry);
    }

    /// Takes the sums from what is stored: sub-agents used something meanwhile. No request is under way.
    pub fn recount(&mut self, stored: Start) {
        let stored_turns = Start { committed: self.committed, ..stored };
        self.used = stored_turns.used(self.limits.shared_turns);
        self.phase = stored_turns.phase;
    }

    /// Whether one call is handed out alone, and the turn goes on behind it: with the next call, or with its end.
    pub fn hands_out_one(&self) -> bool {
        match &self.state {
            State::Dispatching { turn, group } => turn.goes_on() && group.len() == 1,
            State::Reserving { .. }
            | State::Thinking { .. }
            | State::Waiting { .. }
            | State::Recording { .. }
            | State::Cancelling { .. }
            | State::Committing { .. }
            | State::FinishingReplay { .. }
            | State::Checking { .. }
            | State::EnteringPhase { .. }
            | State::EnteringIteration { .. }
            | State::Guiding(_)
            | State::Asking { .. }
            | State::Ended(_) => false,
        }
    }

    /// Committed turns.
    pub fn committed(&self) -> u32 {
        self.committed
    }

    /// Tool calls charged so far.
    pub fn tool_calls(&self) -> u32 {
        self.used.tool_calls
    }

    /// What is to be done next. Asking again without an event in between gives the same answer.
    pub fn command(&self) -> Command {
        let turn = self.committed + 1;
        match &self.state {
            State::Reserving { .. } => Command::Reserve { turn },
            State::Thinking { .. } => Command::Think { turn },
            State::Waiting { tries, why, wait } => Command::Wait {
                attempt: tries.attempts,
                why: why.clone(),
                wait: *wait,
                left: self.retry.left(tries).saturating_sub(*wait),
                may_be_billed: tries.charged > 0,
            },
            State::Recording { reply, .. } => Command::Record { turn, reply: reply.clone() },
            State::Dispatching { group, .. } => Command::Dispatch {
                calls: group.iter().map(|call| call.call_id.clone()).collect(),
                has_effect: group.iter().any(|call| call.has_effect),
            },
            State::Cancelling { calls, failed, .. } => {
                Command::CancelAfterFailure { calls: calls.clone(), failed: failed.clone() }
            }
            State::Committing { .. } => Command::Commit { turn },
            State::FinishingReplay { last_word } => {
                Command::FinishReplay { note: last_word.is_none() && self.unasked.is_none() }
            }
            State::Checking { last_word } => Command::CheckEvidence { last_word: last_word.clone() },
            State::EnteringPhase { next } => Command::EnterPhase { next: next.clone() },
            State::EnteringIteration { number, why } => Command::EnterIteration { number: *number, why: why.clone() },
            State::Guiding(text) => Command::Guide { text: text.clone() },
            State::Asking { kind, text } => Command::Ask { kind: *kind, text: text.clone() },
            State::Ended(conclusion) => Command::Stop(conclusion.clone()),
        }
    }

    fn interrupted(&self) -> State {
        stopped(RunStop::Interrupt, self.limits.audience.interrupted_by())
    }

    /// Takes what happened. What has ended stays as it is.
    ///
    /// # Errors
    /// When the state did not ask for the event. Nothing is changed then.
    pub fn apply(&mut self, event: Event) -> Result<(), UnexpectedEvent> {
        if let State::Ended(_) = self.state {
            return Ok(());
        }
        let unexpected = UnexpectedEvent { event: event.name(), state: self.state.name() };
        let state = std::mem::replace(&mut self.state, State::Reserving { tries: Tries::default() });
        let next = match event {
            Event::Interrupted => Ok(self.interrupted()),
            Event::OutOfTime { held_millis } => {
                self.held_millis = held_millis;
                Ok(self.limits.out_of_time(held_millis).map_or(state, |stop| over(&stop)))
            }
            Event::CancelAsked => Ok(State::Ended(Conclusion::of_mark(EndMark::Cancel))),
            Event::Aborted => Ok(State::Ended(Conclusion::of_mark(EndMark::Abort))),
            Event::SetupChanged { detail } => Ok(stopped(RunStop::Fingerprint, &detail)),
            Event::Impossible { why } => Ok(State::Ended(Conclusion::Failed { why })),
            Event::ToolServerDown { detail } => Ok(stopped(RunStop::ToolServer, &detail)),
            Event::ReplayGivenUp { text } => Ok(self.ask_about_failures(QuestionKind::RepeatedFailures, text)),
            Event::Reserved(estimate) => request::reserved(state, estimate),
            Event::OverBudget { detail } => request::over_budget(state, &detail),
            Event::ContextFull(why) => self.context_is_full(state, why),
            Event::Thought(answer) => self.thought(state, answer),
            Event::ThinkingInterrupted { end } => self.thinking_interrupted(state, end),
            Event::Waited => self.waited(state),
            Event::Recorded(calls) => self.recorded(state, calls),
            Event::Dispatched(ended) => self.dispatched(state, ended),
            Event::Cancelled => turn::cancelled(state),
            Event::WordsCame(calls) => turn::words_came(state, calls),
            Event::Committed { held_millis } => self.committed_turn(state, held_millis),
            Event::ReplayFinished => self.replay_finished(state),
            Event::Evidence(found) => self.evidence(state, found),
            Event::PhaseEntered(phase) => self.phase_entered(state, *phase),
            Event::IterationEntered(entered) => self.iteration_entered(state, *entered),
            Event::Guided => self.guided(state),
            Event::Asked(question) => between::asked(state, question),
        };
        let (state, taken) = match next {
            Ok(state) => (state, Ok(())),
            Err(state) => (state, Err(unexpected)),
        };
        self.state = state;
        taken
    }

    /// Counts what was used: for the run, and for the phase and the iteration that it stands in.
    fn add(&mut self, used: Use) {
        self.used.add(used);
        if let Some(phase) = &mut self.phase {
            phase.used.add(used);
        }
        if let (Some(iteration), Use::Calls(calls)) = (&mut self.iteration, used) {
            iteration.tool_calls = iteration.tool_calls.saturating_add(calls);
        }
    }

    /// What ends the run before another request is made ready; tokens and money are looked at once it is ([`admit`](Self::admit)).
    fn budget_stop(&self) -> Option<State> {
        let stop = self.limits.turns_stop(&self.used);
        let stop = stop.or_else(|| self.phase.as_ref().and_then(PhaseState::turns_stop));
        stop.or_else(|| self.limits.out_of_time(self.held_millis)).map(|stop| over(&stop))
    }

    /// Takes note of calls that were refused when they were planned: they are never dispatched, and equal ones in a row count.
    pub fn note_refused(&mut self, planned: &[CallRecord]) {
        for call in planned.iter().filter(|call| call.status == CallStatus::Cancelled) {
            self.note_error(call);
        }
    }

    /// Takes note of how the reply that is recorded ended, in its provider's words.
    pub fn note_ended(&mut self, said: String) {
        self.ended = said;
    }

    fn note_error(&mut self, record: &CallRecord) {
        self.same_error = errors_in_a_row(self.same_error.take(), record);
    }

    /// Something that goes wrong again and again: a person is asked, or the run has failed.
    fn ask_about_failures(&self, kind: QuestionKind, text: String) -> State {
        if self.limits.ask_on_repeated_failures {
            State::Asking { kind, text }
        } else {
            State::Ended(Conclusion::Failed { why: text })
        }
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

fn stopped(reason: RunStop, detail: &str) -> State {
    State::Ended(Conclusion::Stopped { reason, detail: detail.to_owned() })
}

fn over(stop: &BudgetStop) -> State {
    stopped(RunStop::Budget, &stop.to_string())
}
