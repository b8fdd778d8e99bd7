//! The phases of a job: parts that are worked off one after the other, each with instructions, conditions and limits of its own.
//!
//! Durable Jobs v1 spec §5 (`run_steps.phase`) and §9.1 (the step/phase boundary). A phase is a step of the run. It begins with a
//! message to the model, and it is over when a reply asks for no tools and the phase's conditions hold.

use serde::{Deserialize, Serialize};

use crate::money::Money;
use crate::spec::{RunSpec, StopCondition};

/// One phase of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// Its name, unique in the job: letters, digits, `-` and `_`.
    pub name: String,
    /// What the model is told when it begins.
    pub instructions: String,
    /// What must hold, over the run's receipts and files, before the next phase begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_conditions: Vec<StopCondition>,
    /// Files that must exist before the next phase begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_outputs: Vec<String>,
    /// Where the run stops by itself within this phase; the run's own budgets count as well.
    #[serde(default, skip_serializing_if = "PhaseBudgets::is_empty")]
    pub budgets: PhaseBudgets,
}

/// Where a run stops by itself within one phase. A missing one means no limit but the run's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PhaseBudgets {
    /// Turns of the phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tool calls of the phase, counted when the model asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tool_calls: Option<u32>,
    /// Tokens of the phase's requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Money for the phase's requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
}

impl PhaseBudgets {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The name of the one step of a run whose job has no phases.
pub const MAIN_PHASE: &str = "main";

impl RunSpec {
    /// The phase of this name, and its number from 1.
    pub fn phase(&self, name: &str) -> Option<(usize, &PhaseSpec)> {
        self.phases.iter().enumerate().find(|(_, phase)| phase.name == name).map(|(index, phase)| (index + 1, phase))
    }

    /// The names of the phases after the one of this name, in order; empty when the job has none of that name.
    pub fn phases_after(&self, name: &str) -> Vec<String> {
        let number = self.phase(name).map_or(self.phases.len(), |(number, _)| number);
        self.phases[number..].iter().map(|phase| phase.name.clone()).collect()
    }

    /// The conditions of every phase and of the run, in the order in which they are looked at.
    pub fn all_stop_conditions(&self) -> impl Iterator<Item = &StopCondition> {
        self.phases.iter().flat_map(|phase| &phase.stop_conditions).chain(&self.stop_conditions)
    }

    /// What the model is told when the phase with this number (from 1) begins; `None` when there is no such phase.
    pub fn phase_message(&self, number: usize) -> Option<String> {
        let phase = self.phases.get(number.checked_sub(1)?)?;
        let of = self.phases.len();
        let mut text = format!("# Phase {number} of {of}: {}\n\n{}\n", phase.name, phase.instructions.trim());
        if !phase.stop_conditions.is_empty() || !phase.expected_outputs.is_empty() {
            text.push_str("\n# This phase is done when\n\n");
            for condition in &phase.stop_conditions {
                text.push_str(&format!("- {}\n", condition.expanded().describe()));
            }
            for output in &phase.expected_outputs {
                text.push_str(&format!("- file {output}\n"));
            }
        }
        text.push_str(if number == of {
            "\nThis is the last phase. When everything the job asks for is done, answer with a short summary of the whole job and no tool call.\n"
        } else {
            "\nDo only what belongs to this phase. When it is done, answer with a short summary of it and no tool call; the next phase is \
             announced then.\n"
        });
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::SpecError;

    const JOB: &str = r#"{
      "objective": "Report on tides and mail it.",
      "stop_conditions": ["email_sent_once"],
      "phases": [
        {"name": "crawl", "instructions": "Read the pages.", "expected_outputs": ["notes.md"], "budgets": {"max_turns": 4, "max_cost": "0.50 USD"}},
        {"name": "write", "instructions": "Write the report.", "stop_conditions": ["report_pdf_created"]},
        {"name": "send", "instructions": "Mail it."}
      ]
    }"#;

    #[test]
    fn a_job_with_phases_is_read_and_written_back() {
        let spec = RunSpec::parse(JOB).unwrap();
        assert_eq!(RunSpec::parse(&serde_json::to_string(&spec).unwrap()), Ok(spec.clone()));
        assert_eq!(spec.phase("write").map(|(number, _)| number), Some(2));
        assert_eq!(spec.phases_after("crawl"), ["write", "send"]);
        assert_eq!(spec.phases_after("send"), [""; 0]);
        assert_eq!(spec.phases_after("main"), [""; 0]);
        assert_eq!(spec.all_stop_conditions().count(), 2);
        assert!(spec.opening_prompt().contains("# Phases"), "{}", spec.opening_prompt());
    }

    #[test]
    fn a_job_without_phases_is_stored_as_it_always_was() {
        let stored = serde_json::to_string(&RunSpec::parse(r#"{"objective": "x"}"#).unwrap()).unwrap();
        assert!(!stored.contains("phases"), "{stored}");
    }

    #[test]
    fn a_phase_begins_with_its_instructions_and_what_it_has_to_reach() {
        let spec = RunSpec::parse(JOB).unwrap();
        let first = spec.phase_message(1).unwrap();
        assert!(first.starts_with("# Phase 1 of 3: crawl\n\nRead the pages.\n"), "{first}");
        assert!(first.contains("- file notes.md") && first.contains("the next phase is announced"), "{first}");
        let last = spec.phase_message(3).unwrap();
        assert!(last.contains("the last phase") && !last.contains("is done when"), "{last}");
        assert_eq!((spec.phase_message(0), spec.phase_message(4)), (None, None));
    }

    #[test]
    fn phases_that_cannot_be_worked_with_are_refused_by_field() {
        let job = |phases: &str| RunSpec::parse(&format!(r#"{{"objective": "x", "phases": {phases}}}"#));
        let field = |result| match result {
            Err(SpecError::Invalid { field, .. } | SpecError::UnknownField { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let one = r#"{"name": "a", "instructions": "i""#;
        let cases = [
            (format!("[{one}}}, {one}}}]"), "phases[1].name"),
            (r#"[{"name": "a b", "instructions": "i"}]"#.to_owned(), "phases[0].name"),
            (r#"[{"name": "", "instructions": "i"}]"#.to_owned(), "phases[0].name"),
            (r#"[{"name": "a", "instructions": " "}]"#.to_owned(), "phases[0].instructions"),
            (format!(r#"[{one}, "stop_conditions": ["mail_sent"]}}]"#), "phases[0].stop_conditions[0]"),
            (format!(r#"[{one}, "budgets": {{"max_turns": 0}}}}]"#), "phases[0].budgets.max_turns"),
            (format!(r#"[{one}, "budgets": {{"max_cost": 0}}}}]"#), "phases[0].budgets.max_cost"),
            (format!(r#"[{one}, "budgets": {{"max_steps": 1}}}}]"#), "phases[0].budgets.max_steps"),
            (format!(r#"[{one}, "instruction": "j"}}]"#), "phases[0].instruction"),
        ];
        for (phases, wanted) in cases {
            assert_eq!(field(job(&phases)), wanted, "{phases}");
        }
        let typo = job(&format!(r#"[{one}, "stop_condition": []}}]"#));
        assert_eq!(
            typo.unwrap_err().to_string(),
            "invalid job: unknown field `phases[0].stop_condition`, did you mean `phases[0].stop_conditions`?"
        );
    }
}
