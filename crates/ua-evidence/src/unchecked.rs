//! What is to be said of a run that nothing was held against.
//!
//! A job without stop conditions and expected outputs ends when its model says so. That is what such a job asks for, but it must not read
//! as if somebody had looked.

use ua_core::{CallStatus, RunStatus};
use ua_store::RunRecords;

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
    let effects: Vec<_> = records.calls.iter().filter(|call| call.policy.class.has_effect()).collect();
    let failed = effects.iter().filter(|call| call.status != CallStatus::Succeeded).count();
    let found = if records.calls.is_empty() {
        " The run called no tool.".to_owned()
    } else if failed > 0 {
        format!(" Of {} with an effect, {failed} did not succeed.", ua_core::counted(effects.len(), "call"))
    } else {
        String::new()
    };
    Some(format!("Nothing was checked: the job names no stop conditions, so it ended when the model stopped.{found}"))
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
        assert!(said(&story).unwrap().ends_with("Of 1 call with an effect, 1 did not succeed."));
        let mut checked = Story::new(r#"{"objective": "x", "stop_conditions": ["email_sent_once"]}"#);
        checked.records.run.status = RunStatus::Succeeded;
        assert_eq!(said(&checked), None);
    }
}
