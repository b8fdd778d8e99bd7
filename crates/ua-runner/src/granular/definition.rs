//! What a step is, as it is stored with its run, and what of it differs from a stored one.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};
use ua_core::{RunSpec, SpecError, demands_of, parse_strict};
use ua_dispatch::{OutputSchema, Rules};
use ua_llm::ModelExtras;
use ua_store::RunRecord;

use super::GranularStep;
use super::fits::FORBIDDEN;

/// The largest definition, as JSON: more than any model reads.
const MOST_BYTES: usize = 16 * 1024 * 1024;

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
        let ModelExtras { effort, thinking, thinking_tokens, tool_choice, headers } = &self.agent.extras;
        let model = [
            ("effort", json!(effort)),
            ("thinking", json!(thinking)),
            ("thinking_tokens", json!(thinking_tokens)),
            ("tool_choice", json!(tool_choice)),
            ("headers", json!(headers)),
        ];
        job["model"] = model.into_iter().filter(|(_, said)| !said.is_null()).collect();
        let invalid = |field: &str, why: String| SpecError::Invalid { field: field.to_owned(), why };
        let text = job.to_string();
        if text.len() > MOST_BYTES {
            return Err(too_long(&job));
        }
        // The checks are those of a job file.
        let spec = RunSpec::of_program(&text).map_err(|error| match error {
            // Of what a program hands over the input alone is any value: one that is too deep, say.
            SpecError::Syntax(why) if parse_strict(&json!({ "inputs": job["inputs"] }).to_string()).is_err() => {
                invalid("inputs", format!("cannot be kept: {why}"))
            }
            other @ (SpecError::Syntax(_)
            | SpecError::UnknownField { .. }
            | SpecError::Invalid { .. }
            | SpecError::Several(_)) => other,
        })?;
        if let Some(schema) = &spec.output_schema {
            OutputSchema::new(schema).map_err(|why| invalid("output_schema", why))?;
        }
        Rules::of(&spec).map_err(|why| invalid(FORBIDDEN, why))?;
        let provider = &self.agent.provider;
        if self.agent.seed.is_some() && !provider.takes_seed() {
            return Err(invalid("agent.seed", format!("is set, and {} takes no seed", provider.name())));
        }
        if let Some((field, why)) = self.agent.extras.unread(provider.name()).into_iter().next() {
            return Err(invalid(
                &format!("model.{field}"),
                format!("is set, and {} does not take it: {why}", provider.name()),
            ));
        }
        Ok(spec)
    }

    /// What shapes the step beside its contract, as a new run is begun with it.
    pub(super) fn launch(&self) -> Value {
        self.launch_with(self.agent.max_output_tokens)
    }

    /// The same, to be compared with what a run was begun with.
    pub(super) fn launch_beside(&self, stored: &Value) -> Value {
        self.launch_with(self.output_tokens_beside(stored))
    }

    /// The most output tokens of a reply of a run that was begun with `stored`: its own where the step says none. The default is the
    /// model's, and may be another one in the next version.
    pub(super) fn output_tokens_beside(&self, stored: &Value) -> u32 {
        let own = stored["max_output_tokens"].as_u64().and_then(|tokens| u32::try_from(tokens).ok());
        own.filter(|_| self.agent.max_output_is_default).unwrap_or(self.agent.max_output_tokens)
    }

    fn launch_with(&self, max_output_tokens: u32) -> Value {
        let agent = &self.agent;
        json!({
            "step": self.name,
            "provider": agent.provider.name(),
            "model": agent.model,
            "system": agent.system,
            "max_output_tokens": max_output_tokens,
            "temperature_milli": agent.temperature_milli,
            "seed": agent.seed,
        })
    }
}

/// What makes a definition too long: its longest part, by name.
fn too_long(job: &Value) -> SpecError {
    let parts = job.as_object().into_iter().flatten().map(|(name, part)| (name, part.to_string().len()));
    let (name, bytes) =
        parts.max_by_key(|(_, bytes)| *bytes).map_or_else(Default::default, |(name, bytes)| (name.clone(), bytes));
    let why = format!(
        "has {bytes} bytes as JSON, and all of a step at most {MOST_BYTES}, which is more than a model reads: leave out what it does not \
         need, or let a tool of the step read it part by part"
    );
    SpecError::Invalid { field: name, why }
}

/// What a program asked for with this contract, as its step's [`input`](GranularStep::input) said it: a step with it has the same contract. What comes
/// to the same contract in two ways comes back in one of them: `{"input": 5}` as `5`, and an object without fields as the text of the step's name.
pub fn input_of(spec: &RunSpec) -> Value {
    if spec.inputs.is_empty() {
        return Value::String(spec.objective.clone());
    }
    match spec.inputs.get("input") {
        Some(alone @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_))) if spec.inputs.len() == 1 => {
            alone.clone()
        }
        Some(_) | None => Value::Object(spec.inputs.clone()),
    }
}

/// A part of a definition that a stored run does not share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Differs {
    /// The part, by the name of its field: `input`, `max_turns`, `model`, `escalation.ask_user`.
    pub part: String,
    /// What the run was started with, as JSON; `null` for what was not said.
    pub stored: String,
    /// What the program says now.
    pub now: String,
}

/// The most characters of a value in a message.
const SHOWN: usize = 80;
/// What was not said, as JSON.
const NOT_SET: &str = "null";
/// How many of them stand before the first one that differs.
const LEAD: usize = 20;

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = self.stored.chars().zip(self.now.chars()).take_while(|(stored, now)| stored == now).count();
        let lengths = [&self.stored, &self.now].map(|text| text.chars().count());
        // Two long values are told apart by where they part.
        let from = if lengths.into_iter().all(|length| length <= SHOWN) { 0 } else { same.saturating_sub(LEAD) };
        let short = |text: &str| {
            if text == NOT_SET {
                return "not set".to_owned();
            }
            let (before, shown) = (if from > 0 { "…" } else { "" }, text.chars().skip(from).take(SHOWN));
            let after = if text.chars().count() > from + SHOWN { "…" } else { "" };
            format!("{before}{}{after}", shown.collect::<String>())
        };
        write!(f, "{} (stored: {}, now: {})", self.part, short(&self.stored), short(&self.now))
    }
}

/// What helps against a difference, in the words of the library.
pub(super) fn what_helps(differs: &[Differs], has_ended: bool) -> String {
    let is_budget = |part: &str| part == "max_turns" || part.starts_with("budgets.");
    let mut ways = Vec::new();
    if has_ended {
        ways.push("it has ended, and nothing about it changes any more");
    } else if differs.iter().any(|other| is_budget(&other.part)) {
        ways.push("`Runs::set_budget` changes a budget of a run that exists, whose step keeps the old one");
    }
    if !has_ended && differs.iter().any(|other| other.part == super::run::THRESHOLD) {
        ways.push(
            "`Runs::run_accepting` with `Component::BlobThreshold` accepts another threshold, and the run keeps the one that it was started \
             with; tools, prices or policies that changed as well are accepted in the same call (`Component::Tools`, `Component::Pricing`, \
             `Component::Policy`)",
        );
    }
    if differs.iter().any(|other| other.part == "input") {
        ways.push("`Runs::resume` takes the input that it was begun with");
    }
    let is_place = differs.iter().any(|other| other.part == "workspace");
    if is_place {
        ways.push("its files are part of it, so run it in the folder that it was started in; that folder may be moved");
    }
    let may_be_forked = |part: &str| !is_budget(part) && part != super::run::THRESHOLD && part != "workspace";
    if differs.iter().any(|other| may_be_forked(&other.part)) {
        ways.push(
            "`Runs::fork` makes a run that continues from its turns under the new definition and repeats no effect",
        );
    }
    if !is_place {
        ways.push(if has_ended {
            "the old values return its result; under another id, everything is done again"
        } else {
            "the old values resume it; under another id, everything is done again"
        });
    }
    ways.join("; ")
}

/// The parts of the definition that a stored run does not share.
pub(super) fn differences(run: &RunRecord, spec: &RunSpec, launch: &Value) -> Vec<Differs> {
    let mut differs: Vec<Differs> = Vec::new();
    let (stored, wanted) = (json!(run.spec), json!(spec));
    for name in names(&stored, &wanted) {
        let (old, new) = (&stored[&name], &wanted[&name]);
        match name.as_str() {
            // These are told by what is in them, by the name that it has in a program.
            "settings" | "model" => {
                for field in names(old, new) {
                    note(&mut differs, field.clone(), &old[&field], &new[&field]);
                }
            }
            "budgets" => names(old, new).for_each(|field| {
                let part = if field == "max_turns" { field.clone() } else { format!("budgets.{field}") };
                note(&mut differs, part, &old[&field], &new[&field]);
            }),
            "constraints" | "escalation" => names(old, new).for_each(|field| {
                note(&mut differs, format!("{name}.{field}"), &old[&field], &new[&field]);
            }),
            "objective" | "inputs" if differs.iter().all(|other| other.part != "input") => {
                note(&mut differs, "input".to_owned(), old, new);
            }
            "objective" | "inputs" => {}
            "output_schema" => note(&mut differs, name, &demands_of(old), &demands_of(new)),
            _ => note(&mut differs, name, old, new),
        }
    }
    for name in names(&run.launch, launch) {
        let part = if name == "step" { "name" } else { &name };
        note(&mut differs, part.to_owned(), &run.launch[&name], &launch[&name]);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_values_are_shown_where_they_part() {
        let long = |end: &str| format!("{}{end}", "x".repeat(300));
        let differs = Differs { part: "system".to_owned(), stored: long("before"), now: long("after, and more") };
        let lead = "x".repeat(LEAD);
        let told = format!("system (stored: …{lead}before, now: …{lead}after, and more)");
        assert_eq!(differs.to_string(), told);
    }

    #[test]
    fn each_difference_is_told_with_what_helps() {
        let of = |part: &str, has_ended| {
            what_helps(&[Differs { part: part.to_owned(), stored: String::new(), now: String::new() }], has_ended)
        };
        for (part, helps, does_not) in [
            ("max_turns", "set_budget", "fork"),
            ("budgets.max_tokens", "set_budget", "fork"),
            ("model", "fork", "set_budget"),
            ("model", "fork", "resume`"),
            ("input", "`Runs::resume`", "set_budget"),
            ("output_schema", "fork", "set_budget"),
            ("blob_threshold_bytes", "run_accepting", "fork"),
            ("workspace", "folder", "fork"),
        ] {
            let told = of(part, false);
            assert!(told.contains(helps) && !told.contains(does_not), "{part}: {told}");
            let told = of(part, true);
            assert!(
                told.contains("has ended") && !told.contains("set_budget") && !told.contains("run_accepting"),
                "{part}: {told}"
            );
        }
    }
}
