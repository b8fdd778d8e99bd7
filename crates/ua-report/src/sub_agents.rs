//! What sub-agents came to: the output of a task, and what a run's completion says about those that worked for it.
//!
//! Durability Architecture (Task relaunch rules). Pure: an output is told from the child run's records as often as it is needed, so
//! that a file that is gone, or that the sub-agent wrote over, changes nothing.

use serde::Serialize;
use ua_core::{CallId, CallStatus, EvidenceLevel, RunId, RunStatus, SideEffectClass};
use ua_store::rules::may_have_happened;
use ua_store::{CallRecord, ReceiptRecord, RunRecords, SubAgentRecord};

use ua_evidence::artifact::Artifact;
use ua_evidence::call_line::{external_id, own_success};
use ua_evidence::quote::{code, line};

/// What a task came to (`subagent_output.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubAgentOutput {
    /// The task.
    pub call_id: CallId,
    /// The child run that worked on it.
    pub run_id: RunId,
    /// The run whose task it is.
    pub parent_run_id: Option<RunId>,
    /// What it was about.
    pub description: String,
    /// `succeeded`, `failed` or `cancelled`.
    pub status: RunStatus,
    /// Why, unless it succeeded.
    pub detail: Option<String>,
    /// Its last words.
    pub final_output: Option<String>,
    /// Its files, relative to the parent's workspace.
    pub artifacts: Vec<Artifact>,
    /// What it and those below it did outside or declared as an effect.
    pub effects: Vec<SubAgentEffect>,
    /// Its committed turns.
    pub turns: u32,
}

/// An effect that a sub-agent had, or may have had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubAgentEffect {
    /// The call.
    pub call_id: CallId,
    /// Its tool.
    pub tool: String,
    /// How it ended.
    pub status: CallStatus,
    /// What vouches for it; `None` when nothing does.
    pub evidence: Option<EvidenceLevel>,
    /// The other side's id of it.
    pub external_id: Option<String>,
    /// What a person put right about its record, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correction: Option<String>,
    /// Whether it may have happened, which a person may have said that it did not.
    #[serde(skip)]
    pub may_have_happened: bool,
}

impl SubAgentEffect {
    fn of(call: &CallRecord, receipts: &[ReceiptRecord]) -> Self {
        Self {
            call_id: call.call_id.clone(),
            tool: call.name.tool.clone(),
            status: call.status,
            evidence: own_success(receipts, call).map(|receipt| receipt.evidence),
            external_id: external_id(receipts, call),
            correction: call.correction.as_ref().map(ua_store::Correction::sentence),
            may_have_happened: may_have_happened(call),
        }
    }

    pub(crate) fn in_words(&self) -> String {
        let id = self.external_id.as_deref().map_or_else(String::new, |id| format!(", id {}", code(id, 200)));
        let corrected = self.correction.as_deref().map_or_else(String::new, |said| format!(" ({})", line(said, 600)));
        format!("{} ({}): {}{id}{corrected}", code(&self.tool, 120), self.call_id, self.happened())
    }

    /// Whether it happened, as far as is known.
    pub(crate) fn happened(&self) -> &'static str {
        match self.status {
            CallStatus::Succeeded => "done",
            _ if !self.may_have_happened => "did not happen",
            CallStatus::Prepared
            | CallStatus::Running
            | CallStatus::Unknown
            | CallStatus::FailedDefinite
            | CallStatus::FailedReported
            | CallStatus::Cancelled => "may have happened",
        }
    }
}

/// Whether an effect is one that somebody outside the run's folder could see.
fn reaches_out(call: &CallRecord) -> bool {
    call.policy.effect_kind.is_some()
        || matches!(call.policy.class, SideEffectClass::External | SideEffectClass::Memory)
}

impl SubAgentOutput {
    /// Reads it off the records of a child run that has ended; `artifacts` are its files, as its parent names them.
    pub fn new(call_id: &CallId, records: &RunRecords, artifacts: Vec<Artifact>) -> Self {
        let run = &records.run;
        let sent = |call: &&CallRecord| call.attempt > 0 && call.answered_by().is_none() && reaches_out(call);
        // What was put right is told as what it is: whoever reads that it is done would read nothing else.
        let is_told = |call: &&CallRecord| may_have_happened(call) || call.correction.is_some();
        let own = records.calls.iter().filter(sent).filter(is_told);
        let below = records.lineage.sub_agents.iter().flat_map(|child| &child.effects).filter(|call| reaches_out(call));
        let receipts: Vec<ReceiptRecord> = records.receipts.iter().chain(&records.lineage.receipts).cloned().collect();
        Self {
            call_id: call_id.clone(),
            run_id: run.run_id.clone(),
            parent_run_id: run.parent_run_id.clone(),
            description: run.spec.objective.clone(),
            status: run.status,
            detail: run.status_detail.clone().filter(|_| run.status != RunStatus::Succeeded),
            final_output: run.final_output.clone(),
            artifacts,
            effects: own.chain(below).map(|call| SubAgentEffect::of(call, &receipts)).collect(),
            turns: run.turn_index,
        }
    }

    /// What the parent's model is told.
    pub fn text_for_model(&self) -> String {
        let mut text = match self.status {
            RunStatus::Succeeded => "The sub-agent is done.\n".to_owned(),
            RunStatus::Cancelled => "The sub-agent was cancelled; what it did stands below.\n".to_owned(),
            RunStatus::Failed
            | RunStatus::Queued
            | RunStatus::Running
            | RunStatus::WaitingForHuman
            | RunStatus::Stopped => format!(
                "The sub-agent failed: {}\nDo not simply repeat the task: do what is missing yourself, or hand on a smaller one.\n",
                line(self.detail.as_deref().unwrap_or("it does not say why"), 600)
            ),
        };
        if let Some(output) = self.final_output.as_deref().map(str::trim).filter(|output| !output.is_empty()) {
            text.push_str(&format!("\nIts answer:\n{output}\n"));
        }
        if !self.artifacts.is_empty() {
            text.push_str("\nIts files, in your workspace:\n");
            for file in &self.artifacts {
                text.push_str(&format!("- {} ({} bytes, sha256 {})\n", file.path, file.bytes, file.sha256.to_hex()));
            }
        }
        let (done, undone): (Vec<_>, Vec<_>) = self.effects.iter().partition(|effect| effect.may_have_happened);
        for (heading, effects) in [
            ("What it did outside; do not repeat it:", done),
            ("What it asked for outside, and a person says that it did not happen; it counts as not done:", undone),
        ] {
            if effects.is_empty() {
                continue;
            }
            text.push_str(&format!("\n{heading}\n"));
            for effect in effects {
                text.push_str(&format!("- {}\n", effect.in_words()));
            }
        }
        text
    }
}

/// A sub-agent in the completion of the run it worked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SubAgentLine {
    /// The child run.
    pub run_id: RunId,
    /// The run whose task it worked on.
    pub parent_run_id: RunId,
    /// The task.
    pub call_id: CallId,
    /// What it was about.
    pub description: String,
    /// How it stands.
    pub status: RunStatus,
    /// Its committed turns.
    pub turns: u32,
    /// What it did outside or declared as an effect.
    pub effects: Vec<SubAgentEffect>,
}

impl SubAgentLine {
    /// All that worked for a run, parents before their children.
    pub fn all(records: &RunRecords) -> Vec<Self> {
        records.lineage.sub_agents.iter().map(|child| Self::of(child, &records.lineage.receipts)).collect()
    }

    fn of(child: &SubAgentRecord, receipts: &[ReceiptRecord]) -> Self {
        Self {
            run_id: child.run_id.clone(),
            parent_run_id: child.parent_run_id.clone(),
            call_id: child.call_id.clone(),
            description: child.description.clone(),
            status: child.status,
            turns: child.turns,
            effects: child
                .effects
                .iter()
                .filter(|call| reaches_out(call))
                .map(|call| SubAgentEffect::of(call, receipts))
                .collect(),
        }
    }

    /// The sub-agent in a line.
    pub(crate) fn in_words(&self) -> String {
        let (description, turns) = (code(&self.description, 200), self.turns);
        format!(
            "{}: {description} — {}, {turns}, task {}",
            self.run_id,
            self.status,
            self.call_id,
            turns = ua_core::counted(turns, "turn")
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::{CorrectedTo, Timestamp};
    use ua_evidence::testing::{Story, mail_policy};
    use ua_store::Correction;

    use super::*;

    /// What a person put right is told to the model above as what it is, and not among what must not be repeated.
    #[test]
    fn what_was_put_right_is_told_and_stands_in_nobodys_way() {
        let mut story = Story::new(r#"{"objective": "Mail it."}"#);
        let mail = json!({"to": ["ana@example.test"]});
        let sent =
            story.asks("Sending.", &[("send_email", mail.clone(), mail_policy()), ("send_email", mail, mail_policy())]);
        for call in &sent {
            story.starts(call);
            story.succeeds(call, "sent", Some("<m-1@example.test>"));
        }
        let corrected = story.call(&sent[0]);
        corrected.status = CallStatus::FailedDefinite;
        corrected.correction = Some(Correction {
            outcome: CorrectedTo::NotHappened,
            was: CallStatus::Succeeded,
            reason: "no mail there".to_owned(),
            proof: None,
            by: "ada".to_owned(),
            at: Timestamp::from_millis(0),
            of: None,
            was_answered: false,
        });
        let output = SubAgentOutput::new(&sent[0], &story.records, Vec::new());
        let effects: Vec<_> = output.effects.iter().map(|effect| (&effect.call_id, effect.happened())).collect();
        assert_eq!(effects, [(&sent[0], "did not happen"), (&sent[1], "done")]);
        let text = output.text_for_model();
        let (done, undone) = text.split_once("it counts as not done:").unwrap();
        assert!(done.contains("do not repeat it") && done.contains(sent[1].as_str()), "{text}");
        assert!(!done.contains(sent[0].as_str()) && undone.contains("no mail there"), "{text}");
    }
}
