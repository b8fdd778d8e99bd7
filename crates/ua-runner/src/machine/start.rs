//! Where a machine starts: what the records say when a process takes the run.

use super::call::OpenTurn;
use super::reply_end::ReplyEnd;
use super::talk::{Talk, Word};
use crate::budget::{Limits, Spent, Used};
use crate::iteration::IterationState;
use crate::phase::PhaseState;

/// Where the machine starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Committed turns.
    pub committed: u32,
    /// The turn to finish first.
    pub open: Option<OpenTurn>,
    /// The history ends with the model's answer, which asked for nothing: the evidence was not checked yet.
    pub last_word: Option<Word>,
    /// The history ends with a reply that is no answer, and the model was not told so yet.
    pub untold: Option<ReplyEnd>,
    /// How the newest reply ended that is no answer, and what it says; `None` where that is one, and of what a fork shares.
    pub no_answer: Option<(ReplyEnd, String)>,
    /// The process before this one died, perhaps before it asked a person what it was to ask.
    pub was_left: bool,
    /// Behind the model's answer, a person was asked about what is missing and lets the model try again.
    pub may_try_again: bool,
    /// The newest committed replies that asked for nothing.
    pub talk: Talk,
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
            untold: None,
            no_answer: None,
            was_left: false,
            may_try_again: false,
            talk: Talk::default(),
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

    /// What a person was to be asked behind the newest turn, by a process that died before it did. Behind an open turn it was asked.
    pub(super) fn unasked(&self, limits: &Limits) -> Option<String> {
        if !self.was_left || self.open.is_some() {
            return None;
        }
        // How its provider says that the reply ended is not stored.
        let about = |(end, text): &(ReplyEnd, String)| {
            let vain = self.talk.vain();
            end.is_given_up(vain).then(|| end.question(vain, text, ""))
        };
        self.no_answer.as_ref().and_then(about).or_else(|| limits.same_error_question(self.same_error.as_ref()))
    }

    /// What counts for the budgets of a run that shares so many turns with its parent.
    pub(super) fn used(&self, shared_turns: u32) -> Used {
        Used {
            turns: self.committed.saturating_sub(shared_turns).saturating_add(self.turns_below),
            tool_calls: self.tool_calls,
            spent: self.spent.clone(),
        }
    }
}
