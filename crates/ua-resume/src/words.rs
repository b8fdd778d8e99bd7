//! Where a run stands, as people say it. What is stored (`waiting_for_human`) is for machines.

use ua_core::{RunStatus, RunStop, counted};
use ua_store::RunRecords;

use crate::lives::{kills, lives};

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

/// What is to be said about a status besides; nothing where the question that a run waits for stands beside it and says it better.
pub fn status_detail(status: RunStatus, detail: Option<&str>) -> Option<&str> {
    detail.filter(|_| status != RunStatus::WaitingForHuman)
}

/// The processes that drove a run: `3 processes, 1 of them killed`.
pub fn processes_words(records: &RunRecords) -> String {
    let processes = counted(lives(records).len(), "process");
    match kills(records) {
        0 => processes,
        killed => format!("{processes}, {killed} of them killed"),
    }
}
