//! The hand-off (`handoff.json`): what an iteration leaves to the next one, which begins with an empty context.
//!
//! Context Storage & Durability Summary §5 (file-based context handoff). A pure function of stored records, of the evidence, and of the
//! files found: what was done, by which receipts and files that can be seen, what is open, and what comes next. A model's words are
//! handed on as words. An evidence ledger that the agent built into the same file is kept in it.

use serde::Serialize;
use serde_json::Value;
use ua_core::{CallId, RunId};
use ua_store::{QuestionKind, QuestionRecord, QuestionStatus, RunRecords};

use crate::iterations::{IterationLine, iterations};
use crate::packet::{PastEffect, ResumePacket};
use crate::question::QuestionLine;
use ua_evidence::Verdict;
use ua_evidence::artifact::Artifact;
use ua_evidence::corpus::CorpusLine;
use ua_evidence::quote::{clean, cut};
use ua_evidence::{ConditionResult, EvidenceReport};

/// The file's name, at the root of the workspace.
const FILE: &str = "handoff.json";
/// The most effects that are listed one by one; the resume packet has all.
const EFFECTS: usize = 200;
/// The most iterations that are listed.
const ITERATIONS: usize = 50;
/// The most answers whose words are handed on.
const ANSWERS: usize = 20;
/// The most characters of such words.
const WORDS: usize = 2000;

/// What an iteration leaves to the next one. `handoff_note` writes it for the model, serde writes the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Handoff {
    /// The version of this form.
    pub version: u32,
    /// The run.
    pub run_id: RunId,
    /// The iteration that begins.
    pub iteration: u32,
    /// How many may begin.
    pub max_iterations: u32,
    /// Committed turns so far.
    pub turn_index: u32,
    /// What is to be reached. Text of the job.
    pub objective: String,
    /// Earlier iterations, the newest of them.
    pub iterations: Vec<IterationLine>,
    /// Effects that happened, the newest of them, oldest first.
    pub done: Vec<PastEffect>,
    /// Earlier effects that are not listed.
    pub done_before: usize,
    /// What can be seen of it.
    pub evidence: HandoffEvidence,
    /// What is not settled.
    pub open: HandoffOpen,
    /// What persons said beside their answers, the newest of them, oldest first. It holds whether or not the model has read it: a remark about
    /// a call of the turn at which an iteration ended stands with that call's result, which no request carried.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub persons_said: Vec<PersonsWords>,
    /// What comes next.
    pub next: HandoffNext,
    /// What `build_evidence_ledger` left in this file, by task. Foreign text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence_ledgers: Vec<Value>,
}

/// What can be seen of what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandoffEvidence {
    /// Every condition, and what was found for it.
    pub conditions: Vec<ConditionResult>,
    /// Files of the workspace.
    pub artifacts: Vec<Artifact>,
    /// Refined corpora.
    pub corpora: Vec<CorpusLine>,
}

/// What is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandoffOpen {
    /// Effects that may have happened; their scopes stay blocked.
    pub in_doubt: Vec<PastEffect>,
    /// Questions that wait for a person.
    pub questions: Vec<QuestionLine>,
}

/// Words of a person, and what they were asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PersonsWords {
    /// The call that the question was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
    /// Its tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// What the model itself asked. Foreign text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// What the person said.
    pub words: String,
}

impl PersonsWords {
    /// The words beside the answer to a question that was acted on; `None` where nothing was said to the model.
    fn of(question: &QuestionRecord, records: &RunRecords) -> Option<Self> {
        // What fills in a form goes to the tool that asked.
        let is_for_the_model = question.status == QuestionStatus::Closed && question.kind != QuestionKind::Elicitation;
        let words = question.answer.as_ref().filter(|_| is_for_the_model)?.text.as_deref()?.trim();
        let call = records.calls.iter().find(|call| Some(&call.call_id) == question.call_id.as_ref());
        let asked = (question.kind == QuestionKind::AskUser).then(|| cut(&clean(&question.text), WORDS));
        (!words.is_empty()).then(|| Self {
            call_id: question.call_id.clone(),
            tool: call.map(|call| clean(&call.name.raw)),
            asked,
            words: cut(&clean(words), WORDS),
        })
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HandoffNext {
    /// What the conditions still miss, one line each.
    pub missing: Vec<String>,
    /// Phases that have not started, in order.
    pub remaining_phases: Vec<String>,
    /// What the model has to say at the end, once nothing is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_promise: Option<String>,
    /// The last that the model said. Foreign text, and no evidence.
    pub last_words: Option<String>,
}

impl Handoff {
    /// Makes the hand-off to iteration `number`. `packet` is the resume packet of the same moment, `ledgers` what the agent's
    /// evidence ledgers left ([`ledgers_in`](Self::ledgers_in)).
    pub fn new(
        records: &RunRecords,
        number: u32,
        packet: &ResumePacket,
        report: &EvidenceReport,
        evidence_ledgers: Vec<Value>,
    ) -> Self {
        let (done, in_doubt): (Vec<PastEffect>, Vec<PastEffect>) =
            packet.do_not_repeat.iter().cloned().partition(|effect| effect.verdict != Verdict::MayHaveHappened);
        let done_before = done.len().saturating_sub(EFFECTS);
        let mut lines = iterations(records);
        let last_words = lines.iter().rev().find_map(|iteration| iteration.last_words.clone());
        lines.drain(..lines.len().saturating_sub(ITERATIONS));
        let unmet = report.conditions.iter().filter(|condition| !condition.met);
        let missing = unmet.map(|c| format!("{}: {}", c.needed, c.missing.as_deref().unwrap_or("not met")));
        let mut persons_said: Vec<PersonsWords> =
            records.questions.iter().filter_map(|question| PersonsWords::of(question, records)).collect();
        persons_said.drain(..persons_said.len().saturating_sub(ANSWERS));
        Self {
            version: 1,
            run_id: records.run.run_id.clone(),
            iteration: number,
            max_iterations: records.max_iterations().unwrap_or(number),
            turn_index: records.run.turn_index,
            objective: clean(&records.run.spec.objective),
            iterations: lines,
            done: done[done_before..].to_vec(),
            done_before,
            evidence: HandoffEvidence {
                conditions: report.conditions.clone(),
                artifacts: packet.artifacts.iter().filter(|file| file.path != FILE).cloned().collect(),
                corpora: packet.corpora.clone(),
            },
            // What was answered waits for nobody; the model reads what was said beside it as it was said.
            open: HandoffOpen {
                in_doubt,
                questions: packet.questions.iter().filter(|question| question.answer.is_none()).cloned().collect(),
            },
            persons_said,
            next: HandoffNext {
                missing: missing.map(|text| clean(&text)).collect(),
                remaining_phases: packet.remaining_phases.clone(),
                completion_promise: records.run.spec.harness.as_ref().and_then(|h| h.completion_promise.clone()),
                last_words,
            },
            evidence_ledgers,
        }
    }

    /// The agent's evidence ledgers in the text of a `handoff.json`: the file is one, or a hand-off that kept some. A file of another
    /// kind has none.
    pub fn ledgers_in(text: &str) -> Vec<Value> {
        let Ok(mut file) = serde_json::from_str::<Value>(text) else { return Vec::new() };
        if file.get("ledger").is_some_and(Value::is_object) && file.get("evidence").is_some_and(Value::is_array) {
            return vec![file];
        }
        match file.get_mut("evidence_ledgers").map(Value::take) {
            Some(Value::Array(kept)) => kept,
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) | None => {
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ua_evidence::evaluate;
    use ua_evidence::testing::{Story, mail_policy};

    use super::*;

    fn handed_on(story: &Story) -> (Handoff, String) {
        let packet = ResumePacket::new(&story.records, &[], &[]);
        let handoff = Handoff::new(
            &story.records,
            2,
            &packet,
            &EvidenceReport { conditions: Vec::new(), all_met: true, audience: ua_core::Audience::default() },
            Vec::new(),
        );
        let note = handoff.note(&packet, None);
        (handoff, note)
    }

    /// Another context has nothing else to know it from: it would ask again, and be refused again, in every one that follows.
    #[test]
    fn what_the_job_allows_no_more_of_is_said() {
        for (max, sent, is_said) in [(0, 0, true), (1, 0, false), (1, 1, true), (2, 1, false)] {
            let condition = serde_json::json!({"effect": "email.send", "count": 0, "max": max});
            let job = serde_json::json!({"objective": "Mail Ana.", "stop_conditions": [condition]});
            let mut story = Story::new(&job.to_string());
            let call = story.asks("", &[("send_email", serde_json::json!({"to": "ana"}), mail_policy())]).remove(0);
            if sent > 0 {
                story.starts(&call);
                story.succeeds(&call, "sent", Some("<m-1@example.test>"));
            }
            let (records, packet) = (&story.records, ResumePacket::new(&story.records, &[], &[]));
            let report = evaluate(&records.run.spec, &records.calls, &records.receipts, &[], &|_| None);
            let note = Handoff::new(records, 2, &packet, &report, Vec::new()).note(&packet, None);
            assert_eq!(note.contains("No more of `email.send` is allowed."), is_said, "{max}, {sent}: {note}");
        }
    }

    #[test]
    fn what_a_person_said_is_handed_on_once_it_was_acted_on() {
        let mut story = Story::new(r#"{"objective": "Mail Ana."}"#);
        let call = story.asks("", &[("send_email", serde_json::json!({"to": "ana"}), mail_policy())]).remove(0);
        story.starts(&call);
        story.loses(&call);
        let question = story.questions(&call);
        assert_eq!(handed_on(&story).0.persons_said, []);

        story.answered_happened(&question, &call, "m-1");
        assert_eq!(handed_on(&story).0.persons_said, [], "nothing was said beside it");
        let answer = story.records.questions[0].answer.as_mut().unwrap();
        answer.text = Some(" Use order 77\nfrom now on. ".to_owned());
        let (handoff, note) = handed_on(&story);
        let [said] = handoff.persons_said.as_slice() else { panic!("{:?}", handoff.persons_said) };
        assert_eq!((said.call_id.as_ref(), said.tool.as_deref()), (Some(&call), Some("mcp__ua__send_email")));
        assert!(
            note.contains(&format!("About `mcp__ua__send_email` ({call}): Use order 77\nfrom now on.\n")),
            "{note}"
        );

        // What the model asked itself is shown as what it said; what fills in a form is the tool's.
        let question = &mut story.records.questions[0];
        (question.kind, question.call_id, question.text) = (QuestionKind::AskUser, None, "Which order?".to_owned());
        assert!(handed_on(&story).1.contains("You had asked `Which order?`. Use order 77"), "{}", handed_on(&story).1);
        story.records.questions[0].kind = QuestionKind::Elicitation;
        assert_eq!(handed_on(&story).0.persons_said, []);
    }

    #[test]
    fn of_many_words_the_newest_are_handed_on_and_few_are_told() {
        let mut story = Story::new(r#"{"objective": "Mail Ana."}"#);
        let call = story.asks("", &[("send_email", serde_json::json!({"to": "ana"}), mail_policy())]).remove(0);
        story.starts(&call);
        story.loses(&call);
        let question = story.questions(&call);
        story.answered_happened(&question, &call, "m-1");
        let asked = story.records.questions.remove(0);
        for number in 0..50 {
            let mut asked = asked.clone();
            asked.answer.as_mut().unwrap().text = Some(format!("remark {number} {}", "x".repeat(5000)));
            story.records.questions.push(asked);
        }
        let (handoff, note) = handed_on(&story);
        assert_eq!(handoff.persons_said.len(), ANSWERS);
        assert!(note.contains("remark 49") && note.contains("remark 40") && !note.contains("remark 39"), "{note}");
        assert!(note.len() < 16_000, "{}", note.len());
    }
}
