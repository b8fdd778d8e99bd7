//! What is known beside the database and not in it: the sign that the database went back in time.

use std::fmt;

use serde::{Deserialize, Serialize};

use ua_core::{CallStatus, IdempotencyKey, Scope, Timestamp};

use crate::commit::{RecallCall, RecalledAttempt};
use crate::record::{CallRecord, Correction};

/// What `effects.log` knows and the database does not: an attempt, what came of one, or a person's word.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgotten {
    /// When it was sent, answered or said, as the log has it.
    pub at: String,
    /// The first run of its lineage; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// The run at the top of its run's tree; lines of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// Its run.
    pub run_id: String,
    /// Its call; a word about a run has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The number of the attempt; 0 for a word.
    #[serde(default)]
    pub attempt: u32,
    /// The tool, as the model named it; empty for a word.
    #[serde(default)]
    pub tool: String,
    /// The key it was sent under.
    pub idempotency_key: Option<String>,
    /// What it touched; lines of older versions, and of what has none, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The last status that the log has for it; empty for a word.
    #[serde(default)]
    pub status: String,
    /// What a person said about the attempt with `ua calls resolve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<Correction>,
    /// What a person said: an answer, or `cancel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
    /// The question that was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
}

impl Forgotten {
    /// What it is about; a later line about the same takes its place.
    pub fn about(&self) -> String {
        match (&self.word, &self.question_id, &self.tool_call_id) {
            (Some(_), Some(question), _) => question.clone(),
            (Some(word), None, _) => format!("{}/{word}", self.run_id),
            (None, _, call) => format!("{}/{}", call.as_deref().unwrap_or_default(), self.attempt),
        }
    }
}

/// What is known of `call` beside its database and not in it; `None` when that is nothing.
pub fn recall_of(call: &CallRecord, forgotten: &[Forgotten]) -> Option<RecallCall> {
    let of_call = |known: &&Forgotten| {
        known.attempt > call.attempt && known.tool_call_id.as_deref() == Some(call.call_id.as_str())
    };
    let mut attempts: Vec<RecalledAttempt> = forgotten.iter().filter(of_call).filter_map(recalled).collect();
    attempts.sort_by_key(|attempt| attempt.attempt);
    // What did nothing changes nothing: a call of which no more is known stays as the copy has it, with what was asked about it.
    attempts.truncate(attempts.iter().rposition(|attempt| !attempt.did_nothing).map_or(0, |last| last + 1));
    (!attempts.is_empty()).then(|| RecallCall { call_id: call.call_id.clone(), attempts })
}

/// An attempt as a line has it. That a person says that it did not happen is a word that is lost with its record, and is asked for again.
fn recalled(known: &Forgotten) -> Option<RecalledAttempt> {
    Some(RecalledAttempt {
        attempt: known.attempt,
        key: IdempotencyKey::from_stored(known.idempotency_key.clone()?),
        scope: known.scope.clone().map(Scope::from_stored),
        at: Timestamp::parse(&known.at)?,
        said: known.status.clone(),
        did_nothing: known.status == CallStatus::FailedDefinite.as_str() && known.correction.is_none(),
    })
}

impl fmt::Display for Forgotten {
    /// On one line, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, run_id, tool_call_id, attempt, tool, status, correction, word, question_id, .. } = self;
        let call = tool_call_id.as_deref().unwrap_or_default();
        match (word, question_id, correction) {
            (Some(word), Some(question), _) => {
                write!(f, "{at}  run {run_id}: question {question} was answered `{word}`")
            }
            (Some(_), None, _) => write!(f, "{at}  run {run_id}: a person cancelled it"),
            (None, _, Some(word)) => write!(f, "{at}  run {run_id}: `{tool}` (call {call}): {}", word.sentence()),
            (None, _, None) => {
                write!(f, "{at}  run {run_id}: `{tool}` was sent (call {call}, attempt {attempt}): {status}")
            }
        }
    }
}
