//! What a step is, as it is stored with its run, and what of it differs from a stored one.

use serde_json::{Map, Value, json};
use ua_core::{RunSpec, SpecError};
use ua_store::RunRecord;

use super::GranularStep;

impl GranularStep {
    /// The run's contract. A text is the objective; any other input stands under the step's name.
    pub(super) fn spec(&self) -> Result<RunSpec, SpecError> {
        let (objective, inputs) = match &self.input {
            Value::String(text) => (text.as_str(), Map::new()),
            Value::Object(object) => (self.name.as_str(), object.clone()),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
                (self.name.as_str(), Map::from_iter([("input".to_owned(), other.clone())]))
            }
        };
        if self.name.trim().is_empty() {
            return Err(SpecError::Invalid { field: "name".to_owned(), why: "is empty".to_owned() });
        }
        let mut budgets = json!(self.budgets);
        budgets["max_turns"] = json!(self.max_turns);
        let settings = json!({
            "blob_threshold_bytes": self.blob_threshold_bytes,
            "history_max_tokens": self.history_max_tokens,
            "degraded_replay": self.degraded_replay,
            "enforce_idempotency": self.enforce_idempotency,
        });
        let job = json!({
            "objective": objective,
            "inputs": inputs,
            "budgets": budgets,
            "settings": settings,
            "stop_conditions": self.stop_conditions,
            "constraints": self.constraints,
            "escalation": self.escalation,
            "tools": {"builtin": false},
        });
        // The checks are those of a job file.
        RunSpec::parse(&job.to_string())
    }

    /// What shapes the step beside its contract.
    pub(super) fn launch(&self) -> Value {
        let agent = &self.agent;
        json!({
            "step": self.name,
            "provider": agent.provider.name(),
            "model": agent.model,
            "system": agent.system,
            "max_output_tokens": agent.max_output_tokens,
            "temperature_milli": agent.temperature_milli,
        })
    }
}

/// The parts of the definition that a stored run does not share.
pub(super) fn differences(run: &RunRecord, spec: &RunSpec, launch: &Value, workspace: &str) -> Vec<String> {
    let mut differs = Vec::new();
    let (stored, wanted) = (json!(run.spec), json!(spec));
    let parts = [("", &stored, &wanted), ("agent.", &run.launch, launch)];
    for (prefix, stored, wanted) in parts {
        let names = [stored, wanted].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
        for name in names {
            let part = match (prefix, name.as_str()) {
                ("", "objective" | "inputs") => "input".to_owned(),
                ("agent.", "step") => "name".to_owned(),
                _ => format!("{prefix}{name}"),
            };
            if stored.get(name) != wanted.get(name) && !differs.contains(&part) {
                differs.push(part);
            }
        }
    }
    if run.workspace_dir != workspace {
        differs.push("workspace".to_owned());
    }
    differs
}
