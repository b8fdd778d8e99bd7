//! Where a run stands, as people say it. What is stored (`waiting_for_human`) is for machines.

use ua_core::{CallStatus, RunStatus, RunStop, counted};
use ua_store::{CallRecord, RunRecords};

use crate::lives::{drivers, kills};

/// Where a run stands: `waiting for you`, `stopped (budget)`.
pub fn status_words(status: RunStatus, reason: Option<RunStop>) -> String {
    match status {
        RunStatus::WaitingForHuman => "waiting for you".to_owned(),
        RunStatus::Stopped => format!("stopped ({})", reason.map_or("unknown reason", RunStop::as_str)),
        RunStatus::Queued | RunStatus::Running | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => {
            status.to_string()
        }
    }
}

/// Where a tool call stands: what is stored tells two failures apart, of which a person needs to know no more than that it failed.
pub const fn call_words(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Prepared => "not sent yet",
        CallStatus::Running => "running",
        CallStatus::Succeeded => "succeeded",
        CallStatus::FailedDefinite | CallStatus::FailedReported => "failed",
        CallStatus::Unknown => "unknown",
        CallStatus::Cancelled => "never sent",
    }
}

/// The same of a call whose row is there: one that the receipt of another answers was not sent itself.
pub fn call_standing(call: &CallRecord) -> &'static str {
    if call.deduplicated_from.is_some() { "not repeated" } else { call_words(call.status) }
}

/// What is to be said about a status besides; nothing where the question that a run waits for stands beside it and says it better.
pub fn status_detail(status: RunStatus, detail: Option<&str>) -> Option<&str> {
    detail.filter(|_| status != RunStatus::WaitingForHuman)
}

/// The processes that drove a run: `3 processes, 1 of them killed`.
pub fn processes_words(records: &RunRecords) -> String {
    let processes = counted(drivers(records), "process");
    match kills(records) {
        0 => processes,
        killed => format!("{processes}, {killed} of them killed"),
    }
}
