//! A tool call in short: enough to know what was asked, what came back and how well that is vouched for.

use serde::Serialize;
use ua_core::{CallId, CallStatus, EvidenceLevel, Position, RawReply, SideEffectClass};
use ua_store::rules::times_sent;
use ua_store::{CallRecord, ReceiptRecord, ReplayStatus, RunRecords};

use crate::quote::{clean, cut};
use crate::verdict::{Stands, Verdict};

/// The most characters of a result that are shown.
const RESULT_LIMIT: usize = 200;
/// The most characters of a call's arguments that are shown.
const ARGUMENTS_LIMIT: usize = 400;

/// A tool call in short. Arguments, result and error are foreign text: quoted data, cleaned and cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallLine {
    /// Its id.
    pub call_id: CallId,
    /// The tool, as the model named it.
    pub tool: String,
    /// Where it stands in the run.
    pub position: Position,
    /// What it touches.
    pub class: SideEffectClass,
    /// Where it stands.
    pub status: CallStatus,
    /// Whether its effect happened.
    pub verdict: Verdict,
    /// In which words it is told what a resume did with it.
    #[serde(skip)]
    pub stands: Stands,
    /// How often it was sent; 0 when it never was.
    pub attempts: u32,
    /// Its arguments as JSON on one line.
    pub arguments: String,
    /// What its last attempt brought back.
    pub result: Option<String>,
    /// Whether a reply is stored that nobody has interpreted yet.
    pub is_uninterpreted: bool,
    /// How well its success is vouched for; `None` when it did not succeed by a receipt of its own.
    pub evidence: Option<EvidenceLevel>,
    /// The other side's name for what happened.
    pub external_id: Option<String>,
    /// The call whose receipt answered it.
    pub deduplicated_from: Option<CallId>,
    /// Its failure or refusal.
    pub error: Option<String>,
    /// What a resume did with it.
    pub replay_status: Option<ReplayStatus>,
}

impl CallLine {
    pub fn of(records: &RunRecords, call: &CallRecord) -> Self {
        let receipt = last_receipt(records, call);
        Self {
            call_id: call.call_id.clone(),
            tool: clean(&call.name.raw),
            position: call.position,
            class: call.policy.class,
            status: call.status,
            verdict: Verdict::of(call),
            stands: Stands::of(call, records.run.status),
            attempts: times_sent(call, &records.attempts),
            arguments: shown_arguments(call, ARGUMENTS_LIMIT),
            result: receipt.map(|receipt| cut(&clean(&reply_text(receipt)), RESULT_LIMIT)),
            is_uninterpreted: receipt.is_some_and(|receipt| receipt.settlement.is_none()),
            evidence: own_success(&records.receipts, call).map(|receipt| receipt.evidence),
            external_id: external_id(&records.receipts, call),
            deduplicated_from: call.answered_by().cloned(),
            error: shown_error(call),
            replay_status: call.replay_status,
        }
    }
}

/// The receipt of the call's last attempt; one of an earlier attempt says nothing about where the call stands now.
pub fn last_receipt<'a>(records: &'a RunRecords, call: &CallRecord) -> Option<&'a ReceiptRecord> {
    records.receipt(&call.call_id).filter(|receipt| receipt.attempt >= call.attempt)
}

/// The receipt by which a call succeeded: its own, settled as a success. A call that another one answers has none.
pub fn own_success<'a>(receipts: &'a [ReceiptRecord], call: &CallRecord) -> Option<&'a ReceiptRecord> {
    if call.status != CallStatus::Succeeded || call.answered_by().is_some() {
        return None;
    }
    let succeeded = |receipt: &&ReceiptRecord| {
        receipt.call_id == call.call_id
            && receipt.settlement.as_ref().is_some_and(|s| s.status == CallStatus::Succeeded)
    };
    receipts.iter().filter(succeeded).max_by_key(|receipt| receipt.attempt)
}

/// The other side's name for what happened, from the row or from the receipt by which it succeeded.
pub fn external_id(receipts: &[ReceiptRecord], call: &CallRecord) -> Option<String> {
    let stored = || own_success(receipts, call)?.settlement.as_ref()?.external_correlation_id.clone();
    call.external_correlation_id.clone().or_else(stored).map(|id| cut(&clean(&id), 200))
}

/// The arguments as JSON on one line, cut. Object keys are sorted, as the stored form has them.
pub fn shown_arguments(call: &CallRecord, limit: usize) -> String {
    cut(&clean(&call.arguments.to_string()), limit)
}

/// The failure or refusal in a line: code and words.
pub fn shown_error(call: &CallRecord) -> Option<String> {
    let detail = call.error_detail.as_deref().map(|detail| cut(&clean(detail), RESULT_LIMIT));
    match (&call.error_code, detail) {
        (Some(code), Some(detail)) => Some(format!("{}: {detail}", clean(code))),
        (Some(code), None) => Some(clean(code)),
        (None, detail) => detail,
    }
}

/// What a receipt says: the text the model is given, or the raw reply while nobody has interpreted it.
pub fn reply_text(receipt: &ReceiptRecord) -> String {
    if let Some(content) = receipt.settlement.as_ref().and_then(|settlement| settlement.content.as_ref()) {
        return content.text.as_str().to_owned();
    }
    match &receipt.raw {
        RawReply::ToolResult { result } => result.to_string(),
        RawReply::RpcError { code, message } => format!("JSON-RPC error {code}: {message}"),
        RawReply::HttpStatus { status, body, .. } => format!("HTTP status {status}: {body}"),
        RawReply::Refused { why } => format!("refused before it began: {why}"),
        RawReply::Statement { by, proof } => match proof {
            Some(proof) => format!("{by} confirmed that this call happened; reference: {proof}"),
            None => format!("{by} confirmed that this call happened"),
        },
        RawReply::Found { tool, id, item, by } => {
            let by = by.as_ref().map_or_else(String::new, |by| format!(", {by}"));
            match id {
                Some(id) => format!("{tool} found that this call happened{by}; reference: {id}"),
                None => format!("{tool} found that this call happened{by}: {item}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::PossibleEffect;

    use super::*;
    use crate::testing::{Story, mail_policy};

    #[test]
    fn the_answer_of_an_earlier_attempt_is_not_shown_as_the_answer() {
        let mut story = Story::new("{\"objective\": \"x\"}");
        let id = story.asks("", &[("send_email", json!({"to": "ana@example.test"}), mail_policy())])[0].clone();
        story.starts(&id);
        story.reports_failure(&id, "slow down", PossibleEffect::None);
        let shown = |story: &Story| CallLine::of(&story.records, story.records.call(&id).unwrap());
        assert_eq!(shown(&story).result.as_deref(), Some("slow down"));
        assert_eq!(shown(&story).evidence, None, "a failure is vouched for by nobody");
        story.starts(&id);
        story.loses(&id);
        assert_eq!(shown(&story).result, None);
        assert_eq!((shown(&story).attempts, shown(&story).verdict), (2, Verdict::MayHaveHappened));
    }
}
