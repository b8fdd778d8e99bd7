//! An answer in hand that the database does not take.
//!
//! It is in nobody's hands but this process's, which tries again ([`Patience`](crate::Patience)). Meanwhile, and when it gives up or has lost
//! the run, the answer is kept beside the database, synced. It settles nothing: whoever is asked about the call is shown it. Durable Jobs v1
//! spec §8.3. Proved by: `identity::busy`, the end-to-end tests `bad_storage`.

use std::fmt::Debug;

use serde_json::Value;
use ua_core::{CallId, RawReply, RunId};
use ua_store::{AttemptEnd, Durability, LateReply, SettleAttempt};

use crate::interpret::result_text;

/// What `settle` would store of a run, if it is the answer of a call with an effect: a read is done again.
pub(crate) fn late_reply(run: &RunId, settle: &SettleAttempt) -> Option<LateReply> {
    let AttemptEnd::Replied { raw, .. } = &settle.end else { return None };
    (settle.durability == Durability::Synced).then(|| LateReply {
        at: settle.at,
        run_id: run.clone(),
        tool_call_id: settle.call_id.clone(),
        attempt: settle.attempt,
        reply: raw.clone(),
    })
}

/// What an answer says, on one line.
pub(crate) fn said(late: &LateReply) -> String {
    let text = match &late.reply {
        RawReply::ToolResult { result } if result.get("isError").and_then(Value::as_bool) == Some(true) => {
            format!("an error: {}", result_text(result))
        }
        RawReply::ToolResult { result } => result_text(result),
        RawReply::RpcError { code, message } => format!("error {code}: {message}"),
        RawReply::HttpStatus { status, body, .. } => format!("HTTP {status}: {body}"),
        RawReply::Statement { .. } | RawReply::Found { .. } => String::new(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where answers are kept that the database did not take.
pub trait LateReplies: Send + Sync + Debug {
    /// Keeps one on stable storage. A failure is the keeper's to tell: nothing else can be done about it.
    fn keep(&self, late: &LateReply);

    /// Those about a call, oldest first.
    fn about(&self, call: &CallId) -> Vec<LateReply>;
}

/// Keeps none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoLateReplies;

impl LateReplies for NoLateReplies {
    fn keep(&self, _late: &LateReply) {}

    fn about(&self, _call: &CallId) -> Vec<LateReply> {
        Vec::new()
    }
}
