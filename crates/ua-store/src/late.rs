//! Answers that were not stored when they came.

use serde::{Deserialize, Serialize};
use ua_core::{CallId, RawReply, RunId, Timestamp};

use crate::record::AttemptRecord;

/// An answer in hand that the database did not take, as it is kept beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LateReply {
    /// When it came.
    pub at: Timestamp,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub tool_call_id: CallId,
    /// The attempt that it answers.
    pub attempt: u32,
    /// When that was sent; lines of older versions do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// What the tool said, without the secrets that are known.
    pub reply: RawReply,
}

impl LateReply {
    /// Whether it answers this attempt of its call. A database that was put back counts attempts anew, so the number alone says nothing.
    pub fn is_to(&self, attempt: &AttemptRecord) -> bool {
        attempt.attempt == self.attempt && may_be_to(attempt, self.sent_at, self.at)
    }
}

/// Whether an answer that came then is one to an attempt of this number. Where it is known when that was sent, the clock may have been set
/// back since; else it must have come behind that.
pub(crate) fn may_be_to(attempt: &AttemptRecord, sent_at: Option<Timestamp>, came_at: Timestamp) -> bool {
    sent_at.map_or(attempt.started_at <= came_at, |sent_at| attempt.started_at == sent_at)
}
