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

/// What a call is that the receipt of another one answers.
const NOT_REPEATED: &str = "not repeated";

/// Where a tool call stands, as [`ua_core::CallStatus::in_words`] has it: one that the receipt of another answers was not sent itself.
pub fn call_standing(call: &CallRecord) -> &'static str {
    if call.deduplicated_from.is_some() { NOT_REPEATED } else { call.status.in_words() }
}

/// How many of the turns that a run committed it has from the run that it was forked from, behind their number: `, the first 2 of them
/// inherited`. Empty where none are.
pub fn inherited_turns_in_words(records: &RunRecords) -> String {
    match records.run.shared_turns().min(records.run.turn_index) {
        0 => String::new(),
        shared if shared == records.run.turn_index => ", all of them inherited".to_owned(),
        1 => ", the first of them inherited".to_owned(),
        shared => format!(", the first {shared} of them inherited"),
    }
}

/// The calls of a run by where they stand, and of a fork those that it has from the run it was forked from: `1 succeeded; inherited: 2
/// succeeded`. What `word` says of a status counts as one; a call that the receipt of another answers did nothing itself, and is `not repeated`.
pub fn calls_in_words(records: &RunRecords, word: impl Fn(CallStatus) -> &'static str) -> String {
    let told = |count: &dyn Fn(CallStatus) -> u32, not_repeated: u32| {
        let mut words: Vec<(&'static str, u32)> = Vec::new();
        for status in CallStatus::ALL.iter().copied() {
            match words.last_mut().filter(|(last, _)| *last == word(status)) {
                Some((_, so_far)) => *so_far += count(status),
                None => words.push((word(status), count(status))),
            }
        }
        words.push((NOT_REPEATED, not_repeated));
        let some = words.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    };
    let is_answered_by_another = |call: &&CallRecord| call.deduplicated_from.is_some();
    let answered_in =
        |status| number(records.calls.iter().filter(is_answered_by_another).filter(|call| call.status == status));
    let own = told(
        &|status| records.calls_in(status).saturating_sub(answered_in(status)),
        number(records.calls.iter().filter(is_answered_by_another)),
    );
    let shared = &records.lineage.calls;
    let inherited = told(
        &|status| number(shared.iter().filter(|call| !is_answered_by_another(call) && call.status == status)),
        number(shared.iter().filter(is_answered_by_another)),
    );
    match (own.as_str(), inherited.as_str()) {
        ("", "") => "none".to_owned(),
        (_, "") => own,
        ("", _) => format!("none of its own; inherited: {inherited}"),
        (..) => format!("{own}; inherited: {inherited}"),
    }
}

fn number<'a>(calls: impl Iterator<Item = &'a CallRecord>) -> u32 {
    u32::try_from(calls.count()).unwrap_or(u32::MAX)
}

/// Where a run stands that has committed so many turns.
pub fn after_turn(committed: u32) -> String {
    if committed == 0 { "in turn 1".to_owned() } else { format!("after turn {committed}") }
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
