//! The hand-off (`handoff.json`): what an iteration leaves to the next one, which begins with an empty context.
//!
//! Context Storage & Durability Summary §5 (file-based context handoff). A pure function of stored records, of the evidence, and of the
//! files found: what was done, by which receipts and files that can be seen, what is open, and what comes next. A model's words are
//! handed on as words. An evidence ledger that the agent built into the same file is kept in it.

use serde::Serialize;
use serde_json::Value;
use ua_core::RunId;
use ua_store::RunRecords;

use crate::iterations::{IterationLine, iterations};
use crate::packet::{PastEffect, ResumePacket};
use crate::question::QuestionLine;
use ua_evidence::Verdict;
use ua_evidence::artifact::Artifact;
use ua_evidence::corpus::CorpusLine;
use ua_evidence::quote::clean;
use ua_evidence::{ConditionResult, EvidenceReport};

/// The file's name, at the root of the workspace.
const FILE: &str = "handoff.json";
/// The most effects that are listed one by one; the resume packet has all.
const EFFECTS: usize = 200;
/// The most iterations that are listed.
const ITERATIONS: usize = 50;

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
