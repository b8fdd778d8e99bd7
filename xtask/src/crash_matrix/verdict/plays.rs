//! What is said about the cells of [`plays`](super::super::plays): by what the observer counted, what the records say of it, and what
//! statements they break.

use serde_json::Value;

use super::super::cell::{Cell, Protection, Seen};
use super::super::classes::{Class, TAIL};
use super::super::shapes::{FILED, Shape};
use super::fork::faults;
use super::{Verdict, count, known_violations};

/// Judges such a cell. The tail is worded by each run, so only a run without sub-agents, whose words are the same, has it once.
pub(super) fn judge(cell: &Cell, class: &Class, seen: &Seen) -> Verdict {
    let (subject, tail) = (count(seen, class.tool), count(seen, TAIL));
    let may_differ = class.shape == Shape::SubAgents || cell.protection.forks();
    let is_redone = matches!(cell.protection, Protection::RedoMeets(_));
    let is_over_itself = seen.file.is_some();
    let mut verdict = Verdict {
        duplicates: if is_over_itself { 0 } else { subject.saturating_sub(class.wanted) }
            + if may_differ { 0 } else { tail.saturating_sub(1) },
        // What was refused, and what comes after it in its turn, need not be there; the records say so, and that is judged.
        lost: usize::from(subject == 0 && !is_redone),
        missed: cell.protection != Protection::ForkMeanwhile && seen.kills == 0,
        ..Verdict::default()
    };
    verdict.diverged.extend(seen.stuck.clone());
    // A run that is not driven on since the database went back has nothing to say.
    let is_driven = !seen.was_refused;
    let is_restored = cell.protection.restores();
    if seen.was_refused && !is_restored {
        verdict.diverged.push("it was refused, and nothing had gone back".to_owned());
    }
    // What the run itself sent stands in `effects.log` under its name.
    if cell.protection == Protection::Restored && class.shape == Shape::Turns && is_driven {
        verdict.diverged.push("it was driven on although the database had forgotten what it sent".to_owned());
    }
    let fork = seen.fork.as_ref().filter(|_| !is_restored);
    for (name, state) in [("the run", Some(&seen.state).filter(|_| is_driven)), ("its fork", fork)] {
        let Some(state) = state else { continue };
        verdict.diverged.extend(faults(name, state));
        // What the subject's sibling does has the same words in both trees or not, as the two fall: the same finding, or nothing.
        let without = cell.protection.forks().then_some(FILED);
        verdict.broken.extend(known_violations(state, without));
        if is_redone && !is_over_itself {
            verdict.told += denied(class, seen, state);
        }
        verdict.asked += state["questions"].as_array().map_or(0, Vec::len);
    }
    verdict
}

/// How often something says that the subject did not happen, and it did: its records, and questions about it.
fn denied(class: &Class, seen: &Seen, state: &Value) -> usize {
    let is_there = |call: &Value| {
        seen.effects.iter().filter(|effect| effect["tool"] == call["tool"]).any(|effect| match effect["key"].as_str() {
            Some("") | None => effect["arguments"] == call["arguments"],
            Some(key) => call["key"] == key,
        })
    };
    let calls = state["calls"].as_array().into_iter().flatten().filter(|call| call["tool"] == class.tool);
    let denies =
        |call: &Value| ["failed_definite", "prepared", "cancelled"].iter().any(|status| call["status"] == *status);
    // A twin has it under the same key, and says so.
    let has_a_twin = |call: &Value| {
        let all = state["calls"].as_array().into_iter().flatten();
        all.into_iter()
            .any(|other| other["key"] == call["key"] && !call["key"].is_null() && other["status"] == "succeeded")
    };
    let denied: Vec<&Value> = calls.filter(|call| denies(call) && is_there(call) && !has_a_twin(call)).collect();
    let questions = state["questions"].as_array().into_iter().flatten();
    let told = questions.filter(|question| question["tool"] == class.tool && question["denies"] == true).count();
    denied.len() + if denied.is_empty() { 0 } else { told }
}
