//! What the machine answers: commands, and how a process's work on a run ends.

use std::time::Duration;

use ua_core::{CallId, ModelTurn, RunStop};
use ua_store::{EndMark, QuestionKind, QuestionRecord};

use super::{ReplyEnd, Word};
use crate::iteration::IterationEnd;

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
        /// How long may be waited after that.
        left: Duration,
        /// Whether some of the requests that failed were charged, so that the next one may be billed as well.
        may_be_billed: bool,
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
    /// Check stop conditions over receipts and files, and the answer by what the job wants it to be.
    CheckEvidence {
        /// The answer: nobody but the machine knows which replies it came in.
        last_word: Word,
    },
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
    /// Its reply was no answer.
    Unfinished(ReplyEnd),
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
