//! What is said about a cell whose run was forked, and resumed after its fork had ended.

use serde_json::Value;

use super::super::boundaries::Boundary;
use super::super::cell::{Cell, Seen};
use super::super::classes::{Class, TAIL};
use super::{Verdict, count, known_violations, questions, violations};

/// Judges such a cell. What both runs did counts together: each effect is there as often as one run wants it. A person who is
/// asked looks outside first, and stops at the first of two wanted ones.
pub(super) fn judge(cell: &Cell, class: &Class, seen: &Seen) -> Verdict {
    let (subject, tail) = (count(seen, class.tool), count(seen, TAIL));
    // Each run has a workspace of its own, in which local tools work, and looks for itself.
    let allowed = if class.is_of_one_run() { 2 * class.wanted } else { class.wanted };
    let duplicates = if seen.file.is_some() { 0 } else { subject.saturating_sub(allowed) };
    let mut verdict = Verdict {
        duplicates: duplicates + tail.saturating_sub(1),
        lost: usize::from(subject == 0 && class.wanted > 0) + usize::from(tail == 0),
        ..Verdict::default()
    };
    verdict.diverged.extend(seen.stuck.clone());
    for (name, state) in [("the run", Some(&seen.state)), ("its fork", seen.fork.as_ref())] {
        verdict.diverged.extend(state.into_iter().flat_map(|state| faults(name, state)));
        verdict.broken.extend(state.into_iter().flat_map(|state| known_violations(state, None)));
    }
    if let Some(fork) = &seen.fork {
        verdict.asked = questions(fork, "near_duplicate") + questions(fork, "unknown_outcome");
        let nothing_was_sent = cell.boundary.as_ref().is_some_and(is_before_any_send);
        verdict.needless = if nothing_was_sent { verdict.asked.saturating_sub(class.always_asked) } else { 0 };
    }
    verdict.missed = seen.kills == 0;
    verdict
}

fn is_before_any_send(boundary: &Boundary) -> bool {
    let is_early = ["start", "think", "record", "dispatch"].contains(&boundary.step);
    !boundary.in_flight && is_early
        || boundary.name().starts_with("before:store.start_attempt:") && boundary.step == "dispatch: start"
}

pub(super) fn faults(name: &str, state: &Value) -> Vec<String> {
    let mut found = violations(state);
    if state["status"] != "succeeded" {
        found.push(format!("{name} is {} ({})", state["status"], state["detail"]));
    }
    if !state["history"].is_null() {
        found.push(format!("no provider takes the history of {name}: {}", state["history"]));
    }
    if state["usage"]["reserved"] != 0 {
        found.push(format!("{} request(s) of {name} are still reserved", state["usage"]["reserved"]));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::boundaries::Death;
    use super::super::super::cell::Protection;
    use super::super::super::classes::CLASSES;
    use super::*;

    fn judged(change: impl FnOnce(&mut Seen)) -> String {
        let class = CLASSES.iter().position(|class| class.name == "external opaque").unwrap();
        let death = Death::Crossing("after:store.record_turn".to_owned());
        let boundary = Some(Boundary { step: "record", death, in_flight: false });
        let state = || json!({"status": "succeeded", "questions": [], "history": null, "usage": {"reserved": 0}});
        let effect = |tool: &str| json!({"tool": tool, "arguments": {}});
        let mut seen = Seen {
            state: state(),
            effects: vec![effect("post_comment"), effect(TAIL)],
            fork: Some(state()),
            file: None,
            model_requests: 4,
            kills: 1,
            was_written: None,
            replaced: None,
            stuck: None,
            was_refused: false,
        };
        change(&mut seen);
        judge(&Cell { class, boundary, protection: Protection::Fork }, &CLASSES[class], &seen).explain()
    }

    #[test]
    fn every_kind_of_fault_of_a_fork_is_seen() {
        assert_eq!(judged(|_| ()), "");
        assert_eq!(judged(|seen| seen.effects.push(seen.effects[0].clone())), "1 duplicate");
        assert_eq!(judged(|seen| seen.effects.push(seen.effects[1].clone())), "1 duplicate");
        assert_eq!(judged(|seen| drop(seen.effects.pop())), "1 lost");
        assert_eq!(judged(|seen| seen.kills = 0), "1 point never reached");
        let asks = |seen: &mut Seen| seen.fork.as_mut().unwrap()["questions"] = json!([{"kind": "near_duplicate"}]);
        assert_eq!(judged(asks), "1 needless question");
        let failed = judged(|seen| seen.fork.as_mut().unwrap()["status"] = json!("failed"));
        assert!(failed.contains("its fork is \"failed\""), "{failed}");
        assert!(judged(|seen| seen.state["violations"] = json!(["x"])).contains("the records break x"));
        assert!(judged(|seen| seen.state["usage"]["reserved"] = json!(1)).contains("still reserved"));
    }
}
