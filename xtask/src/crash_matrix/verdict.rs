//! What is said about a cell.

mod fork;
mod plays;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::boundaries::{Boundary, Death};
use super::cell::{Cell, Protection, Seen};
use super::classes::{Class, Guarantee, TAIL};
use super::shapes::{FILED, Shape};

/// The verdict on one cell.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// Effects that happened too often.
    pub(crate) duplicates: usize,
    /// Effects that never happened.
    pub(crate) lost: usize,
    /// Where the run ended differently from one without a crash.
    pub(crate) diverged: Vec<String>,
    /// Questions about an unknown outcome.
    pub(crate) asked: usize,
    /// Of these, questions that the design does not allow there.
    pub(crate) needless: usize,
    /// What is wrong with what was charged.
    pub(crate) charged: Option<String>,
    /// The point was never reached.
    pub(crate) missed: bool,
    /// How often a record or a question says that nothing happened, and something did.
    pub(crate) told: usize,
    /// Statements about the records that are broken, of those that have a name of their own.
    pub(crate) broken: BTreeSet<String>,
}

impl Verdict {
    /// Judges a cell; `clean` is the end of a run of its class without a crash.
    pub(crate) fn of(cell: &Cell, class: &Class, seen: &Seen, clean: &Value) -> Self {
        if cell.protection.is_laid_out() || (cell.protection == Protection::Fork && class.shape != Shape::Turns) {
            return plays::judge(cell, class, seen);
        }
        if cell.protection == Protection::Fork {
            return fork::judge(cell, class, seen);
        }
        let subject = (count(seen, class.tool), class.wanted);
        let tail = (count(seen, TAIL), 1);
        let sibling = (count(seen, FILED), usize::from(class.shape == Shape::SubAgents));
        let is_replaced = seen.file.is_some();
        let mut verdict = Self {
            // A file that was replaced twice by the same content is one file.
            duplicates: [subject, tail, sibling]
                .into_iter()
                .enumerate()
                .map(|(index, (n, wanted))| if index == 0 && is_replaced { 0 } else { n.saturating_sub(wanted) })
                .sum(),
            lost: [subject, tail, sibling].into_iter().map(|(n, wanted)| wanted.saturating_sub(n)).sum(),
            charged: check_usage(seen),
            ..Self::default()
        };
        verdict.diverged.extend(seen.stuck.clone());
        verdict.diverged.extend(difference(&seen.state, clean));
        verdict.diverged.extend(others_words(class, seen));
        verdict.diverged.extend(violations(&seen.state));
        verdict.broken.extend(known_violations(&seen.state, None));
        verdict
            .diverged
            .extend(seen.replaced.as_ref().and_then(|after| after_it_was_replaced(after, class.shape.sends_beside())));
        verdict.asked = questions(&seen.state, "unknown_outcome");
        let may_ask = match &cell.protection {
            _ if cell.boundary.is_none() => false,
            // Where the second crash fell is known only by its number.
            Protection::CrashAgain(_) => class.guarantee == Guarantee::Asked,
            Protection::Resume | Protection::Replaced => {
                cell.boundary.as_ref().is_some_and(|b| b.may_ask(class, false))
            }
            Protection::ServerDies => cell.boundary.as_ref().is_some_and(|b| b.may_ask(class, true)),
            Protection::Fork
            | Protection::ForkItself
            | Protection::ForkMeanwhile
            | Protection::ForkBehindAFailure
            | Protection::RedoMeets(_)
            | Protection::Restored
            | Protection::ForkedAndRestored => true,
        };
        verdict.needless = if may_ask { verdict.asked.saturating_sub(1) } else { verdict.asked };
        if matches!(cell.protection, Protection::CrashAgain(_)) && may_ask {
            verdict.needless = verdict.asked.saturating_sub(2);
        }
        // What a tool asks for is asked once for each time that somebody had it sent.
        let elicited = |state: &Value| questions(state, "elicitation");
        verdict.needless += elicited(&seen.state).saturating_sub(elicited(clean) + verdict.asked);
        let is_forgotten = class.shape.comes_later().is_some() && cell.protection == Protection::Resume;
        if is_forgotten && verdict.asked == 0 && cell.boundary.as_ref().is_some_and(|boundary| boundary.in_flight) {
            verdict.diverged.push("nobody was asked about a call whose key had been forgotten".to_owned());
        }
        verdict.missed = cell.boundary.as_ref().is_some_and(|b| {
            let must_kill = cell.protection != Protection::ServerDies && !matches!(b.death, Death::Inside { .. });
            let happened = seen.kills > 0 || seen.replaced.is_some();
            must_kill && !happened
        });
        verdict
    }

    pub(crate) fn is_right(&self) -> bool {
        !self.missed && !self.has_fault()
    }

    /// Whether something went wrong, not counting points that were never reached.
    pub(crate) fn has_fault(&self) -> bool {
        self.duplicates + self.told + self.lost + self.needless > 0
            || !self.broken.is_empty()
            || !self.diverged.is_empty()
            || self.charged.is_some()
    }

    /// The verdict in words, for a cell that is wrong.
    pub(crate) fn explain(&self) -> String {
        let mut words = Vec::new();
        let mut count = |n: usize, what: &str| {
            if n > 0 {
                words.push(format!("{n} {what}"));
            }
        };
        count(self.duplicates, "duplicate");
        count(self.lost, "lost");
        count(self.needless, "needless question");
        count(self.told, "told that nothing happened");
        count(usize::from(self.missed), "point never reached");
        words.extend(self.broken.iter().map(|statement| format!("the records break {statement}")));
        words.extend(self.diverged.iter().map(|why| format!("diverged: {why}")));
        words.extend(self.charged.iter().map(|why| format!("charged wrongly: {why}")));
        words.join("; ")
    }
}

/// How often a tool had its effect.
fn count(seen: &Seen, tool: &str) -> usize {
    seen.effects.iter().filter(|effect| effect["tool"] == tool).count()
}

/// The statements that are known to be broken elsewhere, and are broken here, of every tool but `without`.
fn known_violations<'s>(state: &'s Value, without: Option<&'s str>) -> impl Iterator<Item = String> {
    let found = state["known"].as_array().into_iter().flatten();
    let found = found.filter(move |one| without.is_none_or(|tool| one["tool"] != tool));
    found.filter_map(|one| one["statement"].as_str()).map(str::to_owned)
}

/// What does not hold of the records at the end.
fn violations(state: &Value) -> Vec<String> {
    let found = state["violations"].as_array().into_iter().flatten();
    found.map(|violation| format!("the records break {}", violation.as_str().unwrap_or_default())).collect()
}

/// The reads that a turn of any class sends beside another read. When the run is taken, these may have looked at the lease already,
/// and a look cannot be taken back; they change nothing. A call with an effect is sent alone, so none can be in that place.
const READS_BESIDE: u64 = 1;

/// What an owner did that it may not do once another one has the run.
fn after_it_was_replaced(replaced: &Value, beside: u64) -> Option<String> {
    let count = |what: &str| replaced[what].as_u64().unwrap_or(0);
    let (wrote, sent, reads) = (replaced["wrote"] == true, count("sent"), count("sent_reads"));
    (wrote || sent > beside || reads > READS_BESIDE + beside).then(|| {
        format!(
            "an owner that was replaced went on: wrote {wrote}, sent {sent} call(s) with an effect and {reads} read(s)"
        )
    })
}

fn questions(state: &Value, kind: &str) -> usize {
    state["questions"].as_array().map_or(0, |all| all.iter().filter(|question| question["kind"] == kind).count())
}

/// A run without wording: what must be equal wherever it died.
fn comparable(state: &Value) -> Value {
    let calls = state["calls"].as_array().cloned().unwrap_or_default().into_iter().map(|call| {
        let mut call = call;
        if let Some(fields) = call.as_object_mut() {
            fields.remove("arguments");
            fields.remove("key");
            let is_reconciled = fields.get("resolution") == Some(&json!("reconciled"));
            if fields.remove("by_person") == Some(Value::Bool(true)) || is_reconciled {
                // A person or a probe vouches for it; the tool's own words were never received.
                fields.remove("receipt");
                fields.remove("resolution");
            }
            if fields.get("resolution") == Some(&json!("executed")) {
                // A person said that it had not happened, and then it did.
                fields.insert("resolution".to_owned(), Value::Null);
            }
        }
        call
    });
    json!({
        "status": state["status"], "final_output": state["final_output"], "committed": state["committed"],
        "turns": state["turns"], "calls": calls.collect::<Vec<_>>(), "history": state["history"],
        "near_duplicates": questions(state, "near_duplicate"), "sub_agents": state["sub_agents"],
    })
}

/// The first thing in which a run differs from one without a crash.
fn difference(state: &Value, clean: &Value) -> Option<String> {
    let (ours, theirs) = (comparable(state), comparable(clean));
    for field in ["status", "committed", "turns", "final_output", "history", "near_duplicates", "sub_agents"] {
        if ours[field] != theirs[field] {
            return Some(format!("{field} is {} and not {} ({})", ours[field], theirs[field], state["detail"]));
        }
    }
    let (ours, theirs) = (ours["calls"].as_array()?, theirs["calls"].as_array()?);
    if ours.len() != theirs.len() {
        return Some(format!("{} calls and not {}", ours.len(), theirs.len()));
    }
    let mut pairs = ours.iter().zip(theirs);
    pairs.find_map(|(ours, theirs)| {
        let (ours, theirs) = (ours.as_object()?, theirs.as_object()?);
        let differs = ours.iter().find(|(name, value)| theirs.get(*name) != Some(value))?;
        Some(format!("{}: {} is {} and not {:?}", ours["tool"], differs.0, differs.1, theirs.get(differs.0)))
    })
}

/// An effect with arguments that no recorded call has: it was done for a reply that was forgotten.
fn others_words(class: &Class, seen: &Seen) -> Option<String> {
    let calls = seen.state["calls"].as_array()?;
    let recorded = |effect: &Value| {
        let mut arguments = effect["arguments"].clone();
        if let Some(fields) = arguments.as_object_mut() {
            fields.remove("client_token");
            if let Some(Value::String(body)) = fields.get_mut("body") {
                body.truncate(body.find("\n\nref ").unwrap_or(body.len())); // the mark that a probe looks for
            }
        }
        calls.iter().any(|call| call["tool"] == effect["tool"] && call["arguments"] == arguments)
    };
    if let Some(stray) = seen.effects.iter().find(|effect| !recorded(effect)) {
        return Some(format!("an effect of no recorded call: {stray}"));
    }
    let content = calls.iter().find(|call| call["tool"] == class.tool)?["arguments"]["content"].as_str()?;
    let file = seen.file.as_ref()?;
    (file != content).then(|| format!("the file says {file:?} and the ledger {content:?}"))
}

/// Exactly one of {actual, partial, baseline, zero} for each request that was reserved, and never less than the model saw.
fn check_usage(seen: &Seen) -> Option<String> {
    let usage = &seen.state["usage"];
    let count = |name: &str| usage[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let (reserved, actual) = (count("reserved"), count("actual"));
    let charged = actual + count("partial") + count("baseline");
    let turns = seen.state["turns"].as_array().map_or(0, Vec::len);
    if reserved > 0 {
        return Some(format!("{reserved} request(s) are still reserved"));
    }
    if actual != turns {
        return Some(format!("{actual} request(s) charged as answered for {turns} recorded turns"));
    }
    (charged < seen.model_requests)
        .then(|| format!("{charged} request(s) charged of {} that the model saw", seen.model_requests))
}

/// What a window of a class came to, for the table.
pub(crate) fn in_words(class: &Class, cells: &[(&Boundary, &Verdict)]) -> String {
    let asked = cells.iter().filter(|(_, verdict)| verdict.asked > 0).count();
    let wrong = cells.iter().filter(|(_, verdict)| !verdict.is_right()).count();
    match (cells.len(), wrong, asked) {
        (0, _, _) => "–".to_owned(),
        (_, 1.., _) => format!("WRONG {wrong}/{}", cells.len()),
        (_, 0, 1..) => format!("at most once, asked {asked}/{}", cells.len()),
        (_, 0, 0) if class.guarantee == Guarantee::Harmless => "harmless".to_owned(),
        (_, 0, 0) => "exactly once".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::classes::CLASSES;
    use super::*;

    /// A cell of the opaque external tool, killed between record and dispatch, that ended as it must.
    fn scene() -> (Cell, &'static Class, Seen) {
        let class = CLASSES.iter().position(|class| class.name == "external opaque").unwrap();
        let death = Death::Crossing("after:store.record_turn".to_owned());
        let boundary = Boundary { step: "record", death, in_flight: false };
        let call =
            |tool: &str| json!({"tool": tool, "status": "succeeded", "arguments": {"text": "a"}, "receipt": "1"});
        let effect = |tool: &str| json!({"tool": tool, "arguments": {"text": "a"}});
        let state = json!({
            "status": "succeeded", "committed": 3, "turns": [[1, true], [2, true], [3, true]], "questions": [],
            "calls": [call("post_comment"), call(TAIL)],
            "usage": {"reserved": 0, "actual": 3, "baseline": 1, "zero": 0},
        });
        let seen = Seen {
            state,
            effects: vec![effect("post_comment"), effect(TAIL)],
            fork: None,
            file: None,
            model_requests: 4,
            kills: 1,
            was_written: None,
            replaced: None,
            stuck: None,
            was_refused: false,
        };
        (Cell { class, boundary: Some(boundary), protection: Protection::Resume }, &CLASSES[class], seen)
    }

    fn judge(change: impl FnOnce(&mut Seen)) -> String {
        let (cell, class, mut seen) = scene();
        let clean = seen.state.clone();
        change(&mut seen);
        Verdict::of(&cell, class, &seen, &clean).explain()
    }

    #[test]
    fn a_cell_that_ended_as_it_must_is_right() {
        assert_eq!(judge(|_| ()), "");
    }

    #[test]
    fn every_kind_of_fault_is_seen() {
        assert_eq!(judge(|seen| seen.effects.push(seen.effects[0].clone())), "1 duplicate");
        assert_eq!(judge(|seen| drop(seen.effects.pop())), "1 lost");
        assert_eq!(judge(|seen| seen.kills = 0), "1 point never reached");
        assert!(
            judge(|seen| seen.state["violations"] = json!(["keys_are_unique: call_1"])).contains("keys_are_unique")
        );
        let went_on = |wrote, sent, reads| {
            judge(|seen| seen.replaced = Some(json!({"wrote": wrote, "sent": sent, "sent_reads": reads})))
        };
        assert!(went_on(true, 0, 0).contains("went on") && went_on(false, 1, 0).contains("sent 1"));
        assert!(went_on(false, 0, 2).contains("2 read(s)"));
        assert_eq!(went_on(false, 0, 1), "");
        assert_eq!(judge(|seen| seen.state["questions"] = json!([{"kind": "unknown_outcome"}])), "1 needless question");
        assert!(judge(|seen| seen.state["committed"] = json!(2)).starts_with("diverged: committed is 2 and not 3"));
        assert!(judge(|seen| seen.state["calls"][0]["receipt"] = json!("2")).contains("receipt is \"2\""));
        assert!(
            judge(|seen| seen.effects[0]["arguments"]["text"] = json!("b")).contains("an effect of no recorded call")
        );
    }

    #[test]
    fn what_a_tool_asks_for_is_asked_once_for_each_send() {
        let ask = |kinds: &[&str]| {
            let questions: Vec<Value> = kinds.iter().map(|kind| json!({"kind": kind})).collect();
            judge(|seen| seen.state["questions"] = questions.into())
        };
        assert_eq!(ask(&["elicitation"]), "1 needless question", "a run without a crash asked for nothing");
        assert_eq!(ask(&["unknown_outcome", "elicitation"]), "1 needless question", "it was sent once more");
    }

    #[test]
    fn a_call_whose_key_is_forgotten_has_to_be_asked_about() {
        let (mut cell, _, mut seen) = scene();
        cell.class = CLASSES.iter().position(|class| class.name == "external, key that expires").unwrap();
        let class = &CLASSES[cell.class];
        seen.effects[0]["tool"] = json!(class.tool);
        seen.state["calls"][0]["tool"] = json!(class.tool);
        cell.boundary.as_mut().unwrap().in_flight = true;
        let clean = seen.state.clone();
        assert!(Verdict::of(&cell, class, &seen, &clean).explain().contains("nobody was asked"));
        seen.state["questions"] = json!([{"kind": "unknown_outcome"}]);
        assert_eq!(Verdict::of(&cell, class, &seen, &clean).explain(), "");
    }

    #[test]
    fn a_request_that_nobody_paid_for_is_seen() {
        assert!(judge(|seen| seen.state["usage"]["reserved"] = json!(1)).contains("still reserved"));
        assert!(judge(|seen| seen.state["usage"]["baseline"] = json!(0)).contains("3 request(s) charged of 4"));
        assert!(judge(|seen| seen.state["usage"]["actual"] = json!(4)).contains("4 request(s) charged as answered"));
    }

    #[test]
    fn a_person_may_have_had_to_say_what_happened_or_what_not() {
        let by_person = |seen: &mut Seen| {
            seen.state["calls"][0]["by_person"] = json!(true);
            seen.state["calls"][0]["receipt"] = Value::Null;
            seen.state["calls"][0]["resolution"] = json!("happened");
        };
        let (mut cell, class, mut seen) = scene();
        let mut clean = seen.state.clone();
        for call in clean["calls"].as_array_mut().unwrap() {
            call["resolution"] = Value::Null;
        }
        by_person(&mut seen);
        seen.state["questions"] = json!([{"kind": "unknown_outcome"}]);
        cell.boundary.as_mut().unwrap().in_flight = true;
        seen.state["calls"][1]["resolution"] = json!("executed");
        let verdict = Verdict::of(&cell, class, &seen, &clean);
        assert_eq!((verdict.explain().as_str(), verdict.asked), ("", 1));
    }

    #[test]
    fn a_tool_server_that_dies_in_the_work_of_a_sibling_may_take_the_call_with_it() {
        let class = CLASSES.iter().find(|class| class.name == "sub-agent, opaque").unwrap();
        let may_ask = |point: &str| {
            let death = Death::Crossing(point.to_owned());
            Boundary { step: "sibling: call", death, in_flight: true }.may_ask(class, true)
        };
        assert!(may_ask("before:store.settle_attempt:file_report"));
        assert!(!may_ask(&format!("before:store.settle_attempt:{}", class.tool)), "its answer is in hand");
    }
}
