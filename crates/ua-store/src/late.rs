//! Answers that were not stored when they came.

use serde::{Deserialize, Serialize};
use ua_core::{CallId, RawReply, RunId, Timestamp};

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
    /// What the tool said, without the secrets that are known.
    pub reply: RawReply,
}
