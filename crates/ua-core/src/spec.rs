//! The job file: a run's immutable contract (RunSpec, Durable Jobs v1 spec §6).

mod check;
mod shape;

pub use check::{budget_flaws, job_key_apart};
pub use shape::guard_meant;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::harness::HarnessSpec;
use crate::input_file::InputFile;
use crate::money::Money;
use crate::phase::PhaseSpec;
use crate::policy::OnScopeConflict;
use crate::subagents::Subagents;

/// A job file that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Not JSON, or JSON of the wrong shape.
    #[error("invalid job: {0}")]
    Syntax(String),
    /// A field nobody knows.
    #[error("invalid job: unknown field `{field}`{}", instead(nearest.as_deref(), beside))]
    UnknownField {
        /// The field, with its path.
        field: String,
        /// The known field that looks most like it.
        nearest: Option<String>,
        /// The fields that the object takes it stands in; empty for the job itself, which has more than a sentence holds.
        beside: Vec<&'static str>,
    },
    /// A value that cannot be worked with.
    #[error("invalid job: `{field}` {why}")]
    Invalid {
        /// The field, with its path.
        field: String,
        /// What is wrong.
        why: String,
    },
    /// Several of these.
    #[error("invalid job: {}", in_a_row(.0))]
    Several(Vec<SpecError>),
}

impl SpecError {
    /// What is wrong, for whoever says of which job.
    pub fn why(&self) -> String {
        let words = self.to_string();
        words.strip_prefix("invalid job: ").map_or(words.clone(), str::to_owned)
    }
}

/// What an unknown field may have been meant to be: the known one that looks like it, or else all that may stand in its place.
fn instead(nearest: Option<&str>, beside: &[&str]) -> String {
    match nearest {
        Some(nearest) => format!(", did you mean `{nearest}`?"),
        None if beside.is_empty() => String::new(),
        None => format!("; known fields here are {}", beside.join(", ")),
    }
}

/// What is wrong, one after the other.
fn in_a_row(errors: &[SpecError]) -> String {
    errors.iter().map(SpecError::why).collect::<Vec<_>>().join("; ")
}

/// A job: what is to be reached, within which limits. Immutable once a run was made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// What is to be reached, in a sentence or two.
    pub objective: String,
    /// Further instructions for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Data the prompt speaks of; shown to the model as JSON.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub inputs: Map<String, Value>,
    /// Images and texts beside the job file that the model is shown with its first message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub files: Vec<InputFile>,
    /// What must not happen.
    #[serde(default)]
    pub constraints: Constraints,
    /// Where the run stops by itself.
    #[serde(default)]
    pub budgets: Budgets,
    /// What must hold, over receipts and files, before the run counts as succeeded.
    #[serde(default)]
    pub stop_conditions: Vec<StopCondition>,
    /// What the result has to be: the model's last message, read as JSON, fits this JSON Schema. Any text when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// Parts that are worked off one after the other; without any the whole job is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<PhaseSpec>,
    /// How it goes on in further contexts when one is not enough; one context when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<HarnessSpec>,
    /// When a person is asked.
    #[serde(default)]
    pub escalation: Escalation,
    /// Where files go, and which are expected.
    #[serde(default)]
    pub artifacts: Artifacts,
    /// Which model runs it; the command line wins over it.
    #[serde(default)]
    pub model: ModelChoice,
    /// Which tools it may use.
    #[serde(default)]
    pub tools: ToolsSpec,
    /// Whether its model may hand tasks to sub-agents; it may not when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagents: Option<Subagents>,
    /// How its history is kept and sent.
    #[serde(default)]
    pub settings: Settings,
    /// Policy files, relative to the job file, laid over the user's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Names one intended execution: a second start under the same key is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_key: Option<String>,
}

/// What must not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Constraints {
    /// The report names its sources, and only pages that this run fetched.
    pub must_cite_sources: bool,
    /// The same declared effect asked for twice happens once.
    pub no_duplicate_external_actions: bool,
    /// What happens when an effect may have happened already in other words, for tools whose policy does not say it; a person is
    /// asked when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_scope_conflict: Option<OnScopeConflict>,
    /// Host suffixes that crawls and HTTP tools may reach; empty allows any.
    pub allowed_domains: Vec<String>,
    /// Tool globs or effect kinds that are refused.
    pub forbidden_actions: Vec<String>,
    /// Mail addresses, or `@domain` for all of a domain, numbers (`+49…`), `#channel` and `@name` that mail, messages and invitations may go to
    /// without a question, beside those that the job's text and inputs name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_recipients: Vec<String>,
    /// Where a run that read untrusted content and private data may send something without a question, beside the recipients above:
    /// mail addresses, `@domain`, host suffixes, tools (by name, or its beginning and `*`), effect kinds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_destinations: Vec<String>,
}

impl Default for Constraints {
    fn default() -> Self {
        Self {
            must_cite_sources: false,
            no_duplicate_external_actions: true,
            on_scope_conflict: None,
            allowed_domains: Vec::new(),
            forbidden_actions: Vec::new(),
            allowed_recipients: Vec::new(),
            allowed_destinations: Vec::new(),
        }
    }
}

/// Where a run stops by itself. The numbers are those of Durable Jobs v1 spec §6; a missing one means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// Minutes in which a process held the run, over all resumes.
    pub max_wallclock_minutes: u64,
    /// Steps: the phases and iterations that begin.
    pub max_steps: u32,
    /// Tool calls, counted when the model asks for them.
    pub max_tool_calls: u32,
    /// Attempts after the first, for one call that definitely failed.
    pub max_retries_per_tool_call: u32,
    /// Equal errors in a row.
    pub max_same_error_repeats: u32,
    /// Minutes that the run waits for one reply while the provider cannot answer: outages, overload, rate limits.
    pub max_provider_wait_minutes: u32,
    /// Turns; no limit when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Tokens of all requests; no limit when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Money for all requests (`"2.50 USD"`, or a number of dollars); needs a price of the model. No limit when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<Money>,
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            max_wallclock_minutes: 90,
            max_steps: 50,
            max_tool_calls: 250,
            max_retries_per_tool_call: 5,
            max_same_error_repeats: 3,
            max_provider_wait_minutes: 30,
            max_turns: None,
            max_tokens: None,
            max_cost: None,
        }
    }
}

/// Something that must hold over receipts and files before the run counts as succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum StopCondition {
    /// One of the short names of Durable Jobs v1 spec §6: `report_pdf_created`, `email_sent_once`, `final_notification_sent`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = StopCondition::NAMES)))]
    Named(String),
    /// A declared effect happened at least `count` times, and is refused beyond `max`.
    Effect {
        /// The effect kind, for example `email.send`.
        effect: String,
        /// At least this often.
        #[serde(default = "one")]
        count: u32,
        /// At most this often.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u32>,
    },
    /// A file exists in the workspace.
    Artifact {
        /// Its path, relative to the workspace.
        artifact: String,
        /// Its media type, checked by its first bytes where that is possible.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
}

const fn one() -> u32 {
    1
}

impl StopCondition {
    /// The short names and what they stand for.
    pub const NAMES: [&'static str; 3] = ["report_pdf_created", "email_sent_once", "final_notification_sent"];

    /// Replaces a short name by what it stands for; others are returned as they are.
    #[must_use]
    pub fn expanded(&self) -> Self {
        match self {
            Self::Named(name) => match name.as_str() {
                "email_sent_once" => Self::Effect { effect: "email.send".to_owned(), count: 1, max: Some(1) },
                "final_notification_sent" => Self::Effect { effect: "run.notify".to_owned(), count: 1, max: None },
                "report_pdf_created" => Self::Artifact {
                    artifact: "work_products/report.pdf".to_owned(),
                    media_type: Some("application/pdf".to_owned()),
                },
                _ => self.clone(),
            },
            Self::Effect { .. } | Self::Artifact { .. } => self.clone(),
        }
    }

    /// The condition in words, for people and models.
    pub fn describe(&self) -> String {
        match self {
            Self::Named(name) => name.clone(),
            Self::Effect { effect, count, max: Some(max) } if count == max => format!("{effect} exactly {count}×"),
            Self::Effect { effect, count, max: Some(max) } => format!("{effect} {count} to {max}×"),
            Self::Effect { effect, count, max: None } => format!("{effect} at least {count}×"),
            Self::Artifact { artifact, media_type: None } => format!("file {artifact}"),
            Self::Artifact { artifact, media_type: Some(media_type) } => format!("file {artifact} ({media_type})"),
        }
    }
}

/// When a person is asked; a switch that is off hands the failure to the model instead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Escalation {
    /// The recipient is not clear.
    pub ask_human_on_ambiguous_recipient: bool,
    /// A tool or provider refuses the credentials.
    pub ask_human_on_auth_failure: bool,
    /// The same failure again and again.
    pub ask_human_on_repeated_failures: bool,
    /// Untrusted content and private data met in the run, and something is to be sent where nobody said that it may go.
    #[serde(skip_serializing_if = "Clone::clone")]
    pub ask_human_on_tainted_effect: bool,
    /// Tool globs, effect kinds or side-effect classes whose calls a person approves first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask_human_before: Vec<String>,
    /// The model is offered the tool `ask_user`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ask_user: bool,
}

impl Default for Escalation {
    fn default() -> Self {
        Self {
            ask_human_on_ambiguous_recipient: true,
            ask_human_on_auth_failure: true,
            ask_human_on_repeated_failures: true,
            ask_human_on_tainted_effect: true,
            ask_human_before: Vec::new(),
            ask_user: false,
        }
    }
}

/// Where files go, and which are expected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Artifacts {
    /// The run's folder, inside the workspace root; `<id>` is replaced. Made up when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_dir: Option<String>,
    /// Files that must exist at the end: a path relative to the workspace, or a bare name to be found in it.
    pub expected_outputs: Vec<String>,
}

/// Which model runs the job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ModelChoice {
    /// `anthropic`, `openai`, `openai-chat`, `claude-code`, `scripted` or `replay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider's name of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For `scripted`: the script, relative to the job file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// The most output tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature, in thousandths, so that the job stays exactly comparable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// What sampling starts from, for providers that take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How much effort the model makes, in its provider's word: `low`, `medium`, `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// How the model thinks, for models that are told so: `adaptive`, as much as it deems right, or `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The most tokens of thoughts before a reply, for models that are told so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_tokens: Option<u32>,
    /// `auto`, `any`, `none`, or the name of the tool that every reply calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<String>,
    /// Headers that every request to the model has besides; no secrets.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Replaces the built-in system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
}

/// Which tools a job may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ToolsSpec {
    /// Start our own tool server.
    pub builtin: bool,
    /// Offer `run_command`.
    pub run_command: bool,
    /// Servers of the MCP configuration to start; all of them when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<String>>,
    /// Globs over tool names; only these are offered when not empty.
    pub allow: Vec<String>,
    /// Globs over tool names that are refused.
    pub deny: Vec<String>,
    /// Lifts the ban on file-edit tools of other servers.
    pub allow_file_edit_tools: bool,
}

impl Default for ToolsSpec {
    fn default() -> Self {
        Self {
            builtin: true,
            run_command: false,
            servers: None,
            allow: Vec::new(),
            deny: Vec::new(),
            allow_file_edit_tools: false,
        }
    }
}

/// How a run's history is kept and sent (Granular Execution PRD §8 and §10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Results over this many bytes are kept as blobs; the history refers to them. At least 256.
    pub blob_threshold_bytes: u64,
    /// The most tokens of history, system prompt included, that a request carries; beyond it the middle is left out. At least 1000.
    pub history_max_tokens: u64,
    /// Go on when the blob of a call that may be repeated is gone, with a note in its place; otherwise the run stops there.
    pub degraded_replay: bool,
    /// Every tool that does harm when repeated has to take an idempotency key; a job with one that cannot does not start.
    pub enforce_idempotency: bool,
    /// Let a provider that can do so keep the conversation, and send it only what is new. The user's configuration decides when
    /// absent. The run's own history stays the truth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_sessions: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            blob_threshold_bytes: 20_000,
            history_max_tokens: 128_000,
            degraded_replay: false,
            enforce_idempotency: false,
            provider_sessions: None,
        }
    }
}

/// The largest job file that is read.
const MAX_BYTES: usize = 256 * 1024;

impl RunSpec {
    /// What the job takes away of the questions that a person would be asked without it, and what else of it somebody who did not write it should
    /// know before its start, a line each; empty for a job that lifts nothing.
    pub fn lifts(&self) -> Vec<String> {
        let (asks, allows) = (&self.escalation, &self.constraints);
        let list = |names: &[String]| names.join(", ");
        let mut lifts = Vec::new();
        if !asks.ask_human_on_tainted_effect {
            lifts.push(
                "sends anywhere what it has read, untrusted and private alike (`ask_human_on_tainted_effect`)"
                    .to_owned(),
            );
        }
        if !asks.ask_human_on_ambiguous_recipient {
            lifts.push("sends to recipients that nobody named (`ask_human_on_ambiguous_recipient`)".to_owned());
        }
        if !allows.no_duplicate_external_actions {
            lifts.push("repeats an effect that is asked for twice (`no_duplicate_external_actions`)".to_owned());
        }
        if !allows.allowed_destinations.is_empty() {
            lifts.push(format!("sends to or by {} (`allowed_destinations`)", list(&allows.allowed_destinations)));
        }
        if !allows.allowed_recipients.is_empty() {
            lifts.push(format!("writes to {} (`allowed_recipients`)", list(&allows.allowed_recipients)));
        }
        if self.tools.run_command {
            lifts.push("runs programs in its workspace (`tools.run_command`)".to_owned());
        }
        lifts
    }

    /// The JSON Schema of a job file, with what each field means and is when it is left out.
    #[cfg(feature = "schema")]
    pub fn json_schema() -> Value {
        let settings = schemars::generate::SchemaSettings::draft2020_12();
        settings.into_generator().into_root_schema_for::<Self>().to_value()
    }

    /// Reads a job file's text. Unknown fields are refused, with the nearest known name.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if text.len() > MAX_BYTES {
            return Err(SpecError::Syntax(format!("it is larger than {} KiB", MAX_BYTES / 1024)));
        }
        Self::of_program(text)
    }

    /// The same of a contract that a program put together. How long it may be says who reads it: a job file comes from elsewhere, and is
    /// held to a limit that a program's own input is not.
    pub fn of_program(text: &str) -> Result<Self, SpecError> {
        if text.trim().is_empty() {
            return Err(SpecError::Syntax("it is empty".to_owned()));
        }
        let value = crate::canonical::parse_strict(text).map_err(|e| SpecError::Syntax(e.to_string()))?;
        shape::check(&value)?;
        let mut spec: Self = serde_path_to_error::deserialize(value).map_err(|e| shape::misshapen(&e))?;
        spec.check()?;
        // One key however its letters are put together.
        spec.job_key = spec.job_key.as_deref().map(check::job_key_of);
        Ok(spec)
    }

    /// What the model is told first: objective, constraints, stop conditions, prompt and inputs.
    pub fn opening_prompt(&self) -> String {
        let mut text = format!("# Objective\n\n{}\n", self.objective.trim());
        if let Some(prompt) = &self.prompt {
            text.push_str(&format!("\n# Instructions\n\n{}\n", prompt.trim()));
        }
        if !self.inputs.is_empty() {
            let inputs = serde_json::to_string_pretty(&self.inputs).unwrap_or_default();
            text.push_str(&format!("\n# Inputs\n\n```json\n{inputs}\n```\n"));
        }
        text.push_str(&self.files_prompt());
        if !self.stop_conditions.is_empty() || !self.artifacts.expected_outputs.is_empty() {
            text.push_str("\n# Done when\n\n");
            for condition in &self.stop_conditions {
                text.push_str(&format!("- {}\n", condition.expanded().describe()));
            }
            for output in &self.artifacts.expected_outputs {
                text.push_str(&format!("- file {output}\n"));
            }
        }
        if !self.phases.is_empty() {
            text.push_str("\n# Phases\n\nThe job is done in phases, one after the other. What belongs to each is said when it begins.\n\n");
            for (index, phase) in self.phases.iter().enumerate() {
                text.push_str(&format!("{}. {}\n", index + 1, phase.name));
            }
        }
        if self.constraints.must_cite_sources {
            text.push_str("\nCite the source of every claim.\n");
        }
        text.push_str(&self.harness_prompt());
        if let Some(schema) = &self.output_schema {
            text.push_str(&format!(
                "\n# Result\n\nWhen everything else is done, give the result: one JSON value that fits this JSON Schema, as your last message \
                 and nothing beside it.\n\n```json\n{}\n```\n",
                serde_json::to_string_pretty(schema).unwrap_or_default()
            ));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_job_does_unasked_is_listed() {
        let lifts = |job: &str| serde_json::from_str::<RunSpec>(job).unwrap().lifts();
        assert_eq!(lifts(r#"{"objective": "x"}"#), [""; 0]);
        let all = lifts(
            r#"{"objective": "x", "tools": {"run_command": true},
                "escalation": {"ask_human_on_tainted_effect": false, "ask_human_on_ambiguous_recipient": false},
                "constraints": {"no_duplicate_external_actions": false, "allowed_destinations": ["@a.test", "send_email"],
                                "allowed_recipients": ["b@c.test"]}}"#,
        );
        assert_eq!(all.len(), 6, "{all:?}");
        assert_eq!(all[3], "sends to or by @a.test, send_email (`allowed_destinations`)");
        assert_eq!(all[4], "writes to b@c.test (`allowed_recipients`)");
    }

    #[test]
    fn a_value_of_another_shape_is_named_with_its_place_and_what_it_takes() {
        for (job, wanted) in [
            (
                r#"{"budgets": {"max_tool_calls": -5}}"#,
                "`budgets.max_tool_calls` is -5, but must be a whole number that is not negative",
            ),
            (
                r#"{"budgets": {"max_tool_calls": 99999999999}}"#,
                "`budgets.max_tool_calls` is 99999999999, but must be 4294967295 or less",
            ),
            (
                r#"{"budgets": {"max_turns": "ten"}}"#,
                "`budgets.max_turns` is \"ten\", but must be a whole number that is not negative",
            ),
            (r#"{"tools": {"builtin": "yes"}}"#, "`tools.builtin` is \"yes\", but must be true or false"),
            (r#"{"policies": "a.toml"}"#, "`policies` is \"a.toml\", but must be a list"),
            (r#"{"phases": [{"name": "a"}]}"#, "`phases[0]` needs the field `instructions`"),
            (
                r#"{"stop_conditions": [{"artefact": "a"}]}"#,
                "unknown field `stop_conditions[0].artefact`, did you mean `stop_conditions[0].artifact`?",
            ),
            (
                r#"{"stop_conditions": [{"effect": "a.b", "least": 1}]}"#,
                "unknown field `stop_conditions[0].least`; known fields here are effect, count, max, artifact, media_type",
            ),
            (r#"{"stop_conditions": [{"count": 2}]}"#, "`stop_conditions[0]` needs `effect` or `artifact`"),
            (
                r#"{"stop_conditions": [7]}"#,
                "`stop_conditions[0]` is neither a name nor an object with `effect` or `artifact`",
            ),
            (
                r#"{"stop_conditions": [{"effect": "a.b", "count": -1}]}"#,
                "`stop_conditions[0].count` is -1, but must be a whole number that is not negative",
            ),
            (
                r#"{"stop_conditions": [{"artifact": "../a"}]}"#,
                "`stop_conditions[0]` names the file \"../a\"; name one below the workspace, for example work_products/report.md",
            ),
        ] {
            let mut value: Value = serde_json::from_str(job).unwrap();
            value["objective"] = "x".into();
            assert_eq!(
                RunSpec::parse(&value.to_string()).unwrap_err().to_string(),
                format!("invalid job: {wanted}"),
                "{job}"
            );
        }
        assert_eq!(RunSpec::parse(" ").unwrap_err().to_string(), "invalid job: it is empty");
        assert_eq!(RunSpec::parse("[]").unwrap_err().to_string(), "invalid job: it is not a JSON object");
    }

    /// The RunSpec of Durable Jobs v1 spec §6, word for word.
    pub(super) const SPEC_6: &str = r#"{
      "objective": "Create a research report from N URLs and email it to X",
      "constraints": {"must_cite_sources": true, "no_duplicate_external_actions": true, "allowed_domains": [], "forbidden_actions": []},
      "budgets": {"max_wallclock_minutes": 90, "max_steps": 50, "max_tool_calls": 250, "max_retries_per_tool_call": 5, "max_same_error_repeats": 3},
      "stop_conditions": ["report_pdf_created", "email_sent_once", "final_notification_sent"],
      "escalation": {"ask_human_on_ambiguous_recipient": true, "ask_human_on_auth_failure": true, "ask_human_on_repeated_failures": true},
      "artifacts": {"workspace_dir": "AGENT_RUN_WORKSPACES/session_<id>/", "expected_outputs": ["report.html", "report.pdf", "transcript.md"]}
    }"#;

    #[test]
    fn the_run_spec_of_the_source_document_is_accepted_and_its_numbers_are_the_defaults() {
        let spec = RunSpec::parse(SPEC_6).unwrap();
        assert_eq!(spec.budgets, Budgets::default());
        assert_eq!(spec.escalation, Escalation::default());
        let again = RunSpec::parse(&serde_json::to_string(&spec).unwrap()).unwrap();
        assert_eq!(again, spec);
    }

    #[test]
    fn unknown_fields_are_refused_with_the_nearest_known_name() {
        let cases = [
            (r#"{"objectve": "x"}"#, "objectve", Some("objective")),
            (
                r#"{"objective": "x", "budgets": {"max_toolcalls": 3}}"#,
                "budgets.max_toolcalls",
                Some("budgets.max_tool_calls"),
            ),
            (r#"{"objective": "x", "max_tool_calls": 3}"#, "max_tool_calls", Some("budgets.max_tool_calls")),
            (r#"{"objective": "x", "max_turns": 3}"#, "max_turns", Some("budgets.max_turns")),
            (r#"{"objective": "x", "model": {"model": "x"}}"#, "model.model", Some("model.name")),
            (r#"{"objective": "x", "zzz": 3}"#, "zzz", None),
        ];
        for (text, field, nearest) in cases {
            let Err(SpecError::UnknownField { field: found, nearest: meant, beside }) = RunSpec::parse(text) else {
                panic!("{text}");
            };
            assert_eq!((found.as_str(), meant.as_deref()), (field, nearest), "{text}");
            assert_eq!(beside.is_empty(), !field.contains('.'), "{text}");
        }
    }

    #[test]
    fn conditions_are_checked_when_the_job_is_read() {
        for bad in [
            r#"{"objective": " "}"#,
            r#"{"objective": "x", "stop_conditions": ["mail_sent"]}"#,
            r#"{"objective": "x", "stop_conditions": [{"effect": "mail"}]}"#,
            r#"{"objective": "x", "stop_conditions": [{"effect": "email.send", "count": 2, "max": 1}]}"#,
            r#"{"objective": "x", "budgets": {"max_tool_calls": 0}}"#,
            r#"{"objective": "x", "budgets": []}"#,
            r#"{"objective": "x", "settings": {"blob_threshold_bytes": 255}}"#,
            r#"{"objective": "x", "settings": {"history_max_tokens": 999}}"#,
            r#"{"objective": "x", "budgets": {"max_tokens": 0}}"#,
            r#"{"objective": "x", "budgets": {"max_cost": 0}}"#,
        ] {
            assert!(matches!(RunSpec::parse(bad), Err(SpecError::Invalid { .. })), "{bad}");
        }
    }
}
