//! What a step is, as it is stored with its run, and what of it differs from a stored one.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value, json};
use ua_core::{RunSpec, SpecError};
use ua_dispatch::{OutputSchema, Rules};
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
        let mut job = json!({
            "objective": objective,
            "inputs": inputs,
            "budgets": budgets,
            "settings": settings,
            "stop_conditions": self.stop_conditions,
            "constraints": self.constraints,
            "escalation": self.escalation,
            "tools": {"builtin": false},
        });
        if let Some(schema) = &self.output_schema {
            job["output_schema"] = schema.clone();
        }
        // The checks are those of a job file.
        let spec = RunSpec::parse(&job.to_string())?;
        let invalid = |field: &str, why: String| SpecError::Invalid { field: field.to_owned(), why };
        if let Some(schema) = &spec.output_schema {
            OutputSchema::new(schema).map_err(|why| invalid("output_schema", why))?;
        }
        Rules::of(&spec).map_err(|why| invalid("constraints.forbidden_actions", why))?;
        let provider = &self.agent.provider;
        if self.agent.seed.is_some() && !provider.takes_seed() {
            return Err(invalid("agent.seed", format!("is set, and {} takes no seed", provider.name())));
        }
        Ok(spec)
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
            "seed": agent.seed,
        })
    }
}

/// A part of a definition that a stored run does not share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differs {
    /// The part, by the name of its field: `input`, `max_turns`, `agent.model`.
    pub part: String,
    /// What the run was started with, as JSON; `null` for what was not said.
    pub stored: String,
    /// What the program says now.
    pub now: String,
}

/// The most characters of a value in a message.
const SHOWN: usize = 80;

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| match text.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        };
        write!(f, "{} (stored: {}, now: {})", self.part, short(&self.stored), short(&self.now))
    }
}

/// The parts of the definition that a stored run does not share.
pub(super) fn differences(run: &RunRecord, spec: &RunSpec, launch: &Value, workspace: &str) -> Vec<Differs> {
    let mut differs: Vec<Differs> = Vec::new();
    let (stored, wanted) = (json!(run.spec), json!(spec));
    for name in names(&stored, &wanted) {
        let (old, new) = (&stored[&name], &wanted[&name]);
        match name.as_str() {
            // These are told by what is in them, by the name that it has in a program.
            "settings" => {
                for field in names(old, new) {
                    note(&mut differs, field.clone(), &old[&field], &new[&field]);
                }
            }
            "budgets" => names(old, new).for_each(|field| {
                let part = if field == "max_turns" { field.clone() } else { format!("budgets.{field}") };
                note(&mut differs, part, &old[&field], &new[&field]);
            }),
            "objective" | "inputs" if differs.iter().all(|other| other.part != "input") => {
                note(&mut differs, "input".to_owned(), old, new);
            }
            "objective" | "inputs" => {}
            _ => note(&mut differs, name, old, new),
        }
    }
    for name in names(&run.launch, launch) {
        let part = if name == "step" { "name".to_owned() } else { format!("agent.{name}") };
        note(&mut differs, part, &run.launch[&name], &launch[&name]);
    }
    note(&mut differs, "workspace".to_owned(), &json!(run.workspace_dir), &json!(workspace));
    differs
}

/// The names of the fields of both, each once.
fn names(stored: &Value, wanted: &Value) -> impl Iterator<Item = String> {
    let all: BTreeSet<String> =
        [stored, wanted].into_iter().filter_map(Value::as_object).flat_map(Map::keys).cloned().collect();
    all.into_iter()
}

fn note(differs: &mut Vec<Differs>, part: String, stored: &Value, now: &Value) {
    if stored != now {
        differs.push(Differs { part, stored: stored.to_string(), now: now.to_string() });
    }
}
