//! What the machine is told.

use ua_core::ModelTurn;
use ua_dispatch::Dispatched;
use ua_store::{EndMark, QuestionRecord, RequestEnd};

use super::call::OpenCall;
use crate::budget::Estimate;
use crate::iteration::{IterationEnd, IterationState};
use crate::phase::PhaseState;
use crate::retry::ThinkFailure;

/// What is missing although the model says that it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// In words for the model, with what to do.
    pub text: String,
    /// The same for a person, who is asked what to do.
    pub for_person: String,
    /// Telling the model would invite it to repeat what may have been done.
    pub is_for_a_person: bool,
}

impl<T: Into<String>> From<T> for Missing {
    fn from(text: T) -> Self {
        let text = text.into();
        Self { for_person: text.clone(), text, is_for_a_person: false }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The request is reserved, with what it may take.
    Reserved(Estimate),
    /// The request does not fit the budget, and nothing was reserved ([`RunMachine::admit`](super::RunMachine::admit) said so).
    OverBudget {
        /// In words.
        detail: String,
    },
    /// The request would be larger than the iteration's context may be, and nothing was reserved ([`RunMachine::context_full`](super::RunMachine::context_full) said so).
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
    /// They are not: a person has let one of them run meanwhile. These are the turn's calls as they stand now.
    WordsCame(Vec<OpenCall>),
    /// The turn is committed; the process has held the run this long.
    Committed {
        /// Milliseconds, all processes together.
        held_millis: u64,
    },
    /// Packet and note are written.
    ReplayFinished,
    /// All conditions hold, or this is missing.
    Evidence(Result<(), Missing>),
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
    /// The job cannot be done as it is; nothing was sent.
    Impossible {
        /// In words.
        why: String,
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

impl Event {
    /// A person's mark that the run is to end.
    pub(crate) fn of_mark(mark: EndMark) -> Self {
        match mark {
            EndMark::Cancel => Self::CancelAsked,
            EndMark::Abort => Self::Aborted,
        }
    }

    /// What it is called when it is refused.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Reserved(_) => "Reserved",
            Self::OverBudget { .. } => "OverBudget",
            Self::ContextFull(_) => "ContextFull",
            Self::Thought(_) => "Thought",
            Self::ThinkingInterrupted { .. } => "ThinkingInterrupted",
            Self::Waited => "Waited",
            Self::Recorded(_) => "Recorded",
            Self::Dispatched(_) => "Dispatched",
            Self::Cancelled => "Cancelled",
            Self::WordsCame(_) => "WordsCame",
            Self::Committed { .. } => "Committed",
            Self::ReplayFinished => "ReplayFinished",
            Self::Evidence(_) => "Evidence",
            Self::PhaseEntered(_) => "PhaseEntered",
            Self::IterationEntered(_) => "IterationEntered",
            Self::Guided => "Guided",
            Self::Asked(_) => "Asked",
            Self::Interrupted => "Interrupted",
            Self::OutOfTime { .. } => "OutOfTime",
            Self::CancelAsked => "CancelAsked",
            Self::Aborted => "Aborted",
            Self::SetupChanged { .. } => "SetupChanged",
            Self::Impossible { .. } => "Impossible",
            Self::ToolServerDown { .. } => "ToolServerDown",
            Self::ReplayGivenUp { .. } => "ReplayGivenUp",
        }
    }
}

/// An event that nothing asked for: a bug in the driver. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot take the event {event} while {state}")]
pub struct UnexpectedEvent {
    pub(super) event: &'static str,
    pub(super) state: &'static str,
}
