//! What is to be said of a run that nothing was held against.
//!
//! A job without stop conditions and expected outputs ends when its model says so. That is what such a job asks for, but it must not read
//! as if somebody had looked.

use ua_core::{Audience, CallStatus, Resolution, RunStatus};
use ua_store::{CallRecord, RunRecords};

use crate::quote::line;
use crate::verdict::failed_perhaps;

/// Says that nothing was checked, and what a reader would want to know then: effects that did not succeed, or that nothing was done at all.
/// `None` for a run that has not succeeded, or whose job says what it has to reach.
pub fn unchecked(records: &RunRecords) -> Option<String> {
    let spec = &records.run.spec;
    let has_conditions = spec.all_stop_conditions().next().is_some()
        || spec.constraints.must_cite_sources
        || !spec.artifacts.expected_outputs.is_empty()
        || spec.phases.iter().any(|phase| !phase.expected_outputs.is_empty());
    if records.run.status != RunStatus::Succeeded || has_conditions {
        return None;
    }
    let work = Audience::of(&records.run.entrypoint).work();
    let (unknown, known): (Vec<_>, Vec<_>) = records.calls.iter().partition(|call| is_of_no_tool(call));
    let effects: Vec<_> = known.into_iter().filter(|call| call.policy.class.has_effect()).collect();
    let short = shortfalls(&effects);
    let mut found = if records.calls.is_empty() {
        " The run called no tool.".to_owned()
    } else if short.is_empty() {
        String::new()
    } else {
        format!(" Of {} with an effect: {}.", ua_core::counted(effects.len(), "call"), short.join(", "))
    };
    if !unknown.is_empty() {
        found.push_str(&format!(" {}.", of_no_tool(&unknown, work)));
    }
    Some(format!(
        "Nothing was checked: the {work} names no stop conditions, so it ended when the model stopped.{found}"
    ))
}

/// Whether the model asked for a tool that it was not offered.
fn is_of_no_tool(call: &CallRecord) -> bool {
    call.resolution == Some(Resolution::Refused) && call.error_code.as_deref() == Some("unknown_tool")
}

/// That calls named tools that the job does not have: nothing of them was sent, and a tool server may be missing.
fn of_no_tool(calls: &[&CallRecord], work: &str) -> String {
    const NAMED: usize = 3;
    let mut names: Vec<&str> = calls.iter().map(|call| call.name.raw.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    let names: Vec<String> = names.into_iter().map(|name| line(name, 80)).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let verb = if calls.len() == 1 { "names a tool" } else { "name tools" };
    format!(
        "{} {verb} that this {work} does not have: {}{more}",
        ua_core::counted(calls.len(), "call"),
        names.join(", ")
    )
}

/// What became of calls that did not succeed, each kind with its number: what nobody knows is no failure.
fn shortfalls(effects: &[&CallRecord]) -> Vec<String> {
    let (mut unknown, mut perhaps, mut failed, mut declined, mut unsent) = (0, 0, 0, 0, 0);
    for call in effects {
        match call.status {
            CallStatus::Succeeded => {}
            CallStatus::Unknown | CallStatus::Running => unknown += 1,
            CallStatus::FailedReported if failed_perhaps(call) => perhaps += 1,
            CallStatus::FailedDefinite | CallStatus::FailedReported => failed += 1,
            CallStatus::Cancelled if call.resolution == Some(Resolution::Skipped) => declined += 1,
            CallStatus::Cancelled | CallStatus::Prepared => unsent += 1,
        }
    }
    let kinds = [
        (unknown, " unknown (`ua calls list --unknown`)"),
        (perhaps, " failed and may have happened"),
        (failed, " failed"),
        (declined, " declined by you"),
        (unsent, " never sent"),
    ];
    kinds.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count}{what}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Story, mail_policy};

    #[test]
    fn a_success_that_nothing_was_held_against_says_so_and_what_went_wrong() {
        let mut story = Story::new(r#"{"objective": "x"}"#);
        let said = |story: &Story| unchecked(&story.records);
        assert_eq!(said(&story), None, "it is not over");
        story.records.run.status = RunStatus::Succeeded;
        assert!(said(&story).unwrap().ends_with("The run called no tool."));
        let ids = story.asks("Mailing.", &[("mcp__ua__send_email", serde_json::json!({}), mail_policy())]);
        story.call(&ids[0]).status = CallStatus::FailedReported;
        assert!(said(&story).unwrap().ends_with("Of 1 call with an effect: 1 failed and may have happened."));
        story.call(&ids[0]).status = CallStatus::FailedDefinite;
        assert!(said(&story).unwrap().ends_with("Of 1 call with an effect: 1 failed."));
        story.call(&ids[0]).status = CallStatus::Unknown;
        story.call(&ids[0]).resolution = Some(Resolution::Skipped);
        let unknown = "Of 1 call with an effect: 1 unknown (`ua calls list --unknown`).";
        assert!(said(&story).unwrap().ends_with(unknown), "nobody knows whether it failed");
        story.call(&ids[0]).status = CallStatus::Cancelled;
        assert!(said(&story).unwrap().ends_with("1 declined by you."));
        story.call(&ids[0]).resolution = Some(Resolution::Refused);
        assert!(said(&story).unwrap().ends_with("1 never sent."));
        // What is no tool of the job has no effect that could be missing.
        story.call(&ids[0]).error_code = Some("unknown_tool".to_owned());
        let none =
            "when the model stopped. 1 call names a tool that this job does not have: mcp__ua__mcp__ua__send_email.";
        assert!(said(&story).unwrap().ends_with(none), "{:?}", said(&story));
        let mut checked = Story::new(r#"{"objective": "x", "stop_conditions": ["email_sent_once"]}"#);
        checked.records.run.status = RunStatus::Succeeded;
        assert_eq!(said(&checked), None);
    }
}
