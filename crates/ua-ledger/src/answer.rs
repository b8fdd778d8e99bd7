//! What the model is told about a settled call: a pure function of stored rows, so that a turn finished after a crash
//! reads exactly as it would have without one.

use ua_core::{Audience, CallStatus, RawReply, Resolution, ToolContent};
use ua_store::{CallRecord, ReceiptRecord};

/// How a model is told that nobody knows what came of a call with an effect.
pub(crate) const UNKNOWN_OUTCOME: &str = "The outcome of this call is unknown: it was sent and may have happened.";

/// The one answer to a call's tool use. `receipt` is the newest receipt of the call that answers it ([`CallRecord::answered_by`]), or its own.
///
/// `None` while the call is not settled.
pub fn answer_for(call: &CallRecord, receipt: Option<&ReceiptRecord>, audience: Audience) -> Option<ToolContent> {
    let settled = receipt.and_then(|r| r.settlement.as_ref()).and_then(|s| s.content.clone());
    let error = |text: String| Some(ToolContent { text: text.into(), is_error: true });
    match call.status {
        CallStatus::Succeeded => {
            let content = settled.unwrap_or_else(|| ToolContent { text: "Done.".into(), is_error: false });
            if let Some(correction) = &call.correction {
                let said = format!("This call counts as done; do not make it again. {}", correction.sentence());
                // What a person says of the call that answers it is said already.
                let is_answer = |receipt: &&ReceiptRecord| !matches!(receipt.raw, RawReply::Statement { .. });
                let has_answer = call.answered_by().is_some() && receipt.as_ref().is_some_and(is_answer);
                let text = if has_answer {
                    content.text.after(&format!("{said} The stored answer of that call was:\n\n"))
                } else {
                    said.into()
                };
                return Some(ToolContent { text, is_error: false });
            }
            if call.deduplicated_from.is_none() {
                return Some(content);
            }
            let work = audience.work();
            let before = format!(
                "[deduplicated] This exact effect already happened in this {work}; it was not repeated. A repeat on purpose needs the {work}'s \
                 `no_duplicate_external_actions: false` or a person's approval. The stored answer was:\n\n"
            );
            Some(ToolContent { text: content.text.after(&before), is_error: false })
        }
        CallStatus::FailedReported => Some(settled.map_or_else(
            || ToolContent { text: call.error_detail.clone().unwrap_or_default().into(), is_error: true },
            |content| ToolContent { is_error: true, ..content },
        )),
        CallStatus::FailedDefinite
            if call.resolution == Some(Resolution::NotHappened) && !call.policy.class.has_effect() =>
        {
            error(format!(
                "The call brought no answer: {} It only reads, so nothing was changed by its {}.",
                sentence(call.error_in_words().as_deref().unwrap_or("nothing came back")),
                ua_core::counted(call.attempt, "attempt")
            ))
        }
        CallStatus::FailedDefinite if call.loss_left_open().is_some() => error(format!(
            "The last attempt was not carried out: {} By its name the tool only reads, which is a guess; it was tried {}.",
            sentence(call.error_in_words().as_deref().unwrap_or("it could not be sent")),
            ua_core::counted(call.attempt, "time")
        )),
        CallStatus::FailedDefinite => error(format!(
            "The call was not carried out: {} Nothing happened outside, after {}.",
            sentence(call.error_in_words().as_deref().unwrap_or("it could not be sent")),
            ua_core::counted(call.attempt, "attempt")
        )),
        CallStatus::Cancelled => error(call.error_detail.clone().unwrap_or_else(|| "Not run.".to_owned())),
        CallStatus::Unknown if call.resolution == Some(Resolution::Skipped) => {
            let said = call.correction.as_ref().map_or_else(String::new, |said| format!(" {}", said.sentence()));
            if !call.policy.class.has_effect() {
                return error(format!(
                    "The call brought no answer, and a person said to go on without it. It only reads, so nothing was changed.{said}"
                ));
            }
            error(format!(
                "{UNKNOWN_OUTCOME} Do not repeat it; go on without it and say in your report that it is unconfirmed.{said}"
            ))
        }
        CallStatus::Prepared | CallStatus::Running | CallStatus::Unknown => None,
    }
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}
