//! The calls of a turn and the turn they belong to, as far as the machine cares.

use ua_core::{CallId, CallStatus, Resolution, StopReason};
use ua_store::{CallRecord, Choice, QuestionRecord, QuestionStatus};

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
    pub(super) fn is_beside(&self, other: &Self) -> bool {
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
