//! How an unfinished run of the queue gets further: by a worker, with nobody's command, or with the one that its [`NextStep`] names.
//!
//! Every page that is read where a run of the queue lies says it by this, so that nobody takes a run from the worker that goes on with it.

use ua_core::{RunStatus, RunStop};
use ua_store::{QueueState, RunRecord};

use crate::next_step::NextStep;

/// How a run of the queue gets further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InQueue {
    /// A worker resumes it once a person has answered.
    OnceAnswered,
    /// A worker resumes it.
    ByItself,
    /// With this command.
    With(NextStep),
}

impl InQueue {
    /// Of a run that stands in the queue like this.
    pub fn of(run: &RunRecord, state: QueueState, is_answered: bool) -> Self {
        match (state, run.status) {
            (QueueState::Parked, RunStatus::WaitingForHuman) if !is_answered => Self::OnceAnswered,
            (QueueState::Parked, RunStatus::WaitingForHuman) | (QueueState::Ready | QueueState::Claimed, _) => {
                Self::ByItself
            }
            (
                QueueState::Parked,
                RunStatus::Queued
                | RunStatus::Running
                | RunStatus::Stopped
                | RunStatus::Succeeded
                | RunStatus::Failed
                | RunStatus::Cancelled,
            ) => Self::With(NextStep::of_queued(run)),
        }
    }

    /// The same of one whose process is done with it and writes its pages: a worker gives it back behind them, for another try where what stopped it
    /// passes by itself, and else parks it.
    pub fn behind(run: &RunRecord, state: QueueState) -> Self {
        let passes = matches!(run.stop_reason, Some(RunStop::Provider | RunStop::Interrupt));
        let state = match state {
            QueueState::Claimed if passes && run.status == RunStatus::Stopped => QueueState::Ready,
            QueueState::Claimed => QueueState::Parked,
            QueueState::Parked | QueueState::Ready => state,
        };
        Self::of(run, state, false)
    }

    /// The sentences where nobody has to give a command; `None` where one is named.
    pub fn in_words(&self) -> Option<&'static str> {
        match self {
            Self::OnceAnswered => Some(
                "It waits for a person: `ua questions` shows what for. Once that is answered, a worker resumes it by itself.",
            ),
            Self::ByItself => {
                Some("It is in the queue: a worker resumes it by itself, and `ua queue list` shows what it waits for.")
            }
            Self::With(_) => None,
        }
    }

    /// The command that gets it further, or that shows what it waits for; `None` where only the program that started it has one.
    pub fn command(&self) -> Option<&str> {
        match self {
            Self::OnceAnswered => Some("ua questions"),
            Self::ByItself => Some("ua queue list"),
            Self::With(next) => next.command(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ua_evidence::testing::Story;

    /// Whatever stopped a run that a worker drives, its pages say what holds once the worker has given it back.
    #[test]
    fn pages_of_a_run_say_what_holds_when_its_worker_has_given_it_back() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let budget = ua_core::BudgetStop::calls(3, 12).to_string();
        for (status, reason, detail, state, command) in [
            (RunStatus::Stopped, Some(RunStop::Budget), &*budget, QueueState::Claimed, "ua queue move"),
            (RunStatus::Stopped, Some(RunStop::ProviderRefused), "no", QueueState::Claimed, "ua resume"),
            (RunStatus::Stopped, Some(RunStop::ToolServer), "away", QueueState::Claimed, "ua resume"),
            (RunStatus::Stopped, Some(RunStop::Provider), "busy", QueueState::Claimed, "ua queue list"),
            (RunStatus::Stopped, Some(RunStop::Interrupt), "", QueueState::Claimed, "ua queue list"),
            (RunStatus::WaitingForHuman, None, "", QueueState::Claimed, "ua questions"),
            // A person drove it, and it stays where it was.
            (RunStatus::Stopped, Some(RunStop::Interrupt), "", QueueState::Parked, "ua resume"),
            (RunStatus::Stopped, Some(RunStop::Budget), &*budget, QueueState::Parked, "ua queue move"),
            (RunStatus::WaitingForHuman, None, "", QueueState::Parked, "ua questions"),
        ] {
            story.ends(status, reason, detail);
            let found = InQueue::behind(&story.records.run, state);
            assert!(found.command().unwrap().starts_with(command), "{status} {reason:?} {state:?}: {found:?}");
            assert_eq!(found.in_words().is_none(), matches!(found, InQueue::With(_)));
        }
        assert_eq!(InQueue::of(&story.records.run, QueueState::Parked, true), InQueue::ByItself);
    }
}
