//! Where a run stands, as people say it. What is stored (`waiting_for_human`) is for machines.

use std::collections::BTreeMap;

use ua_core::{CallStatus, RunStatus, RunStop, counted};
use ua_store::{CallRecord, RunRecord, RunRecords, is_gateway};

use crate::lives::{LifeEnd, by_what, drivers, kills, lives};

/// Where a run stands: `waiting for you`, `stopped (budget)`.
pub fn status_words(status: RunStatus, reason: Option<RunStop>) -> String {
    match status {
        RunStatus::WaitingForHuman => "waiting for you".to_owned(),
        RunStatus::Stopped => format!("stopped ({})", reason.map_or("unknown reason", stop_in_words)),
        RunStatus::Queued | RunStatus::Running | RunStatus::Succeeded | RunStatus::Failed | RunStatus::Cancelled => {
            status.to_string()
        }
    }
}

/// Why a run is stopped, as it follows `stopped`.
fn stop_in_words(reason: RunStop) -> &'static str {
    if reason == RunStop::Interrupt { "interrupted" } else { reason.in_words() }
}

/// Where a call stands in its run, by its turn and its place in it; in a session of a client at the gateway, which has no turns, by its number.
pub fn place_in_words(run: &RunRecord, call: &CallRecord) -> String {
    let (turn, ordinal) = (call.position.turn, call.position.ordinal);
    if is_gateway(run) { format!("call {turn}") } else { format!("turn {turn} · call {ordinal}") }
}

/// What a call is that the receipt of another one answers.
const NOT_REPEATED: &str = "not repeated";

/// Where a tool call stands, as [`ua_evidence::call_in_words`] has it: one that the receipt of another answers was not sent itself.
pub fn call_standing(call: &CallRecord) -> &'static str {
    if call.is_answered_by_twin() { NOT_REPEATED } else { ua_evidence::call_in_words(call) }
}

/// A failure as the end of a line, with why in at most so many characters as `cut` leaves. What only the tool says is no proof: an effect that may be
/// there is said to be.
pub fn failure_in_words(call: &CallRecord, cut: impl Fn(&str) -> String) -> String {
    let failed =
        if ua_evidence::failed_perhaps(call) { "failed, as the tool says, and may have happened" } else { "failed" };
    let why = call.error_in_words().map_or_else(String::new, |why| format!(": {}", cut(&why)));
    format!("{failed}{why}")
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
/// succeeded`. What `word` says of a status counts as one; a call that the receipt of another answers did nothing itself, and is `not repeated`;
/// one that only its tool says failed may have happened; a read that was dropped or lost is `unanswered`, and nothing about it is unknown.
pub fn calls_in_words(records: &RunRecords, word: impl Fn(CallStatus) -> &'static str) -> String {
    // What counts under a word of its own, instead of that of its status.
    let is_answered_by_another = |call: &&CallRecord| call.is_answered_by_twin();
    let is_perhaps = |call: &&CallRecord| !is_answered_by_another(call) && ua_evidence::failed_perhaps(call);
    let is_unanswered = |call: &&CallRecord| !is_answered_by_another(call) && ua_evidence::is_unanswered_read(call);
    let has_own_word = |call: &&CallRecord| is_answered_by_another(call) || is_perhaps(call) || is_unanswered(call);
    let told = |calls: &[CallRecord], count: &dyn Fn(CallStatus) -> u32| {
        let mut words: Vec<(&'static str, u32)> = Vec::new();
        for status in CallStatus::ALL.iter().copied() {
            let others = number(calls.iter().filter(has_own_word).filter(|call| call.status == status));
            let of_status = count(status).saturating_sub(others);
            match words.last_mut().filter(|(last, _)| *last == word(status)) {
                Some((_, so_far)) => *so_far += of_status,
                None => words.push((word(status), of_status)),
            }
        }
        words.push((ua_evidence::UNANSWERED, number(calls.iter().filter(is_unanswered))));
        words.push(("failed and may have happened", number(calls.iter().filter(is_perhaps))));
        words.push((NOT_REPEATED, number(calls.iter().filter(is_answered_by_another))));
        let some = words.into_iter().filter(|(_, count)| *count > 0);
        some.map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
    };
    let own = told(&records.calls, &|status| records.calls_in(status));
    let shared = &records.lineage.calls;
    let inherited = told(shared, &|status| number(shared.iter().filter(|call| call.status == status)));
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
    let mut words = counted(drivers(records), "process");
    let mut of_them = " of them";
    if let killed @ 1.. = kills(records) {
        words.push_str(&format!(", {killed}{of_them} killed"));
        of_them = "";
    }
    // Of one process there may be several.
    if let dropped @ 1.. = lives(records).iter().filter(|life| life.end == LifeEnd::Dropped).count() {
        words.push_str(&format!(", the run dropped by its program {}", counted(dropped, "time")));
        of_them = "";
    }
    let mut ended: BTreeMap<&str, u32> = BTreeMap::new();
    for life in lives(records).iter().filter(|life| life.end == LifeEnd::Interrupted) {
        *ended.entry(by_what(life.ended_by)).or_default() += 1;
    }
    for (by, count) in ended {
        words.push_str(&format!(", {count}{of_them} ended by {by}"));
        of_them = "";
    }
    words
}

#[cfg(test)]
mod error_tests {
    use ua_evidence::testing::Story;

    use super::*;

    /// Over all classes and both failures: what may be there is never said to have failed alone, and the number of a server is said once.
    #[test]
    fn a_failure_says_the_number_of_a_server_and_whether_the_effect_may_be_there() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let ids = story.asks("", &[("send", serde_json::json!({}), ua_core::CallPolicy::unclassified())]);
        let mut call = story.records.call(&ids[0]).unwrap().clone();
        let whole = |text: &str| text.to_owned();
        for class in ua_core::SideEffectClass::ALL.iter().copied() {
            for status in [CallStatus::FailedDefinite, CallStatus::FailedReported] {
                (call.policy.class, call.status, call.error_code) = (class, status, None);
                let said = failure_in_words(&call, whole);
                let may_be_there = status == CallStatus::FailedReported && class.has_effect();
                assert_eq!(said.contains("may have happened"), may_be_there, "{class} {status}");
                assert!(said.starts_with("failed"));
            }
        }
        call.status = CallStatus::FailedDefinite;
        for (code, detail, wanted) in [
            (Some("http_429"), Some("{\"error\": \"x\"}"), "failed: HTTP 429: {\"error\": \"x\"}"),
            (Some("http_429"), Some("429 of 500 calls"), "failed: HTTP 429: 429 of 500 calls"),
            (Some("rejected_unread"), Some("unread (HTTP status 429)"), "failed: unread (HTTP status 429)"),
            (Some("http_429"), None, "failed: HTTP 429"),
            (Some("tool_error"), Some("no"), "failed: no"),
            (None, None, "failed"),
        ] {
            (call.error_code, call.error_detail) = (code.map(str::to_owned), detail.map(str::to_owned));
            assert_eq!(failure_in_words(&call, whole), wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_evidence::testing::{Story, mail_policy};

    use super::*;

    #[test]
    fn a_read_that_was_dropped_is_not_counted_as_unknown() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let read = ua_core::CallPolicy {
            class: ua_core::SideEffectClass::ReadOnly,
            on_unknown: ua_core::OnUnknown::Redo,
            ..ua_core::CallPolicy::unclassified()
        };
        let ids = story.asks(
            "",
            &[("get_page", serde_json::json!({}), read), ("send_email", serde_json::json!({}), mail_policy())],
        );
        for id in &ids {
            story.call(id).status = CallStatus::Unknown;
        }
        assert_eq!(calls_in_words(&story.records, CallStatus::in_words), "1 unknown, 1 unanswered");
    }

    /// A person who says of the call that had the effect that it did not happen says it of those that it answered, too.
    #[test]
    fn only_what_counts_as_done_was_not_repeated() {
        for status in CallStatus::ALL.iter().copied() {
            let mut story = Story::new(r#"{"objective": "x"}"#);
            let mail = || ("send_email", serde_json::json!({}), mail_policy());
            let ids = story.asks("", &[mail(), mail()]);
            story.starts(&ids[0]);
            story.succeeds(&ids[0], "sent", None);
            story.deduplicates(&ids[1], &ids[0]);
            story.call(&ids[1]).status = status;
            let expected = match status {
                CallStatus::Succeeded => NOT_REPEATED,
                CallStatus::FailedReported => ua_evidence::FAILED_PERHAPS,
                CallStatus::Prepared
                | CallStatus::Running
                | CallStatus::FailedDefinite
                | CallStatus::Unknown
                | CallStatus::Cancelled => status.in_words(),
            };
            let second = story.call(&ids[1]).clone();
            assert_eq!(call_standing(&second), expected);
            let expected = expected.replace(", may", " and may");
            let told = calls_in_words(&story.records, CallStatus::in_words);
            assert!(
                told.contains(&format!("1 {expected}")) || told.contains(&format!("2 {expected}")),
                "{status}: {told}"
            );
        }
    }
}
