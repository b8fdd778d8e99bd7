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

/// Where a tool call stands, as [`ua_core::CallStatus::in_words`] has it: one that the receipt of another answers was not sent itself.
pub fn call_standing(call: &CallRecord) -> &'static str {
    if call.deduplicated_from.is_some() { "not repeated" } else { call.status.in_words() }
}

/// How many turns a run committed, and how many of them it has from the run that it was forked from: `3, the first 2 of them inherited`.
pub fn turns_in_words(records: &RunRecords) -> String {
    match records.run.shared_turns().min(records.run.turn_index) {
        0 => records.run.turn_index.to_string(),
        shared if shared == records.run.turn_index => format!("{shared}, all of them inherited"),
        shared => format!("{}, the first {shared} of them inherited", records.run.turn_index),
    }
}

/// The calls of a run by where they stand, and of a fork those that it has from the run it was forked from: `1 succeeded; inherited: 2
/// succeeded`. What `word` says of a status counts as one.
pub fn calls_in_words(records: &RunRecords, word: impl Fn(CallStatus) -> &'static str) -> String {
    let told = |count: &dyn Fn(CallStatus) -> u32| {
        let mut words: Vec<(&'static str, u32)> = Vec::new();
        for status in CallStatus::ALL.iter().copied() {
            match words.last_mut().filter(|(last, _)| *last == word(status)) {
                Some((_, so_far)) => *so_far += count(status),
                None => words.push((word(status), count(status))),
            }
        }
        let some = words.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    };
    let own = told(&|status| records.calls_in(status));
    let shared = &records.lineage.calls;
    let inherited =
        told(&|status| u32::try_from(shared.iter().filter(|call| call.status == status).count()).unwrap_or(u32::MAX));
    match (own.as_str(), inherited.as_str()) {
        ("", "") => "none".to_owned(),
        (_, "") => own,
        ("", _) => format!("none of its own; inherited: {inherited}"),
        (..) => format!("{own}; inherited: {inherited}"),
    }
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
