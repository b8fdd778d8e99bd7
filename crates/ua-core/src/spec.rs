//! The job file: a run's immutable contract (RunSpec, Durable Jobs v1 spec §6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::harness::HarnessSpec;
use crate::input_file::InputFile;
use crate::mail::MailAddress;
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
    #[error("invalid job: unknown field `{field}`{}", nearest.as_ref().map_or(String::new(), |n| format!(", did you mean `{n}`?")))]
    UnknownField {
        /// The field, with its path.
        field: String,
        /// The known field that looks most like it.
        nearest: Option<String>,
    },
    /// A value that cannot be worked with.
    #[error("invalid job: `{field}` {why}")]
    Invalid {
        /// The field, with its path.
        field: String,
        /// What is wrong.
        why: String,
    },
}

/// A job: what is to be reached, within which limits. Immutable once a run was made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Mail addresses, or `@domain` for all of a domain, that e-mail may go to without a question, beside those that the
    /// job's text and inputs name.
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
#[serde(untagged)]
pub enum StopCondition {
    /// One of the short names of Durable Jobs v1 spec §6: `report_pdf_created`, `email_sent_once`, `final_notification_sent`.
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
    /// Reads a job file's text. Unknown fields are refused, with the nearest known name.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        if text.len() > MAX_BYTES {
            return Err(SpecError::Syntax(format!("it is larger than {} KiB", MAX_BYTES / 1024)));
        }
        if text.trim().is_empty() {
            return Err(SpecError::Syntax("it is empty".to_owned()));
        }
        let value = crate::canonical::parse_strict(text).map_err(|e| SpecError::Syntax(e.to_string()))?;
        check_fields(&value, "", FIELDS)?;
        for (index, phase) in value["phases"].as_array().into_iter().flatten().enumerate() {
            check_fields(phase, &format!("phases[{index}]"), PHASE_FIELDS)?;
        }
        check_shapes(&value)?;
        let spec: Self = serde_path_to_error::deserialize(value).map_err(|e| misshapen(&e))?;
        spec.check()?;
        Ok(spec)
    }

    fn check(&self) -> Result<(), SpecError> {
        let invalid = |field: &str, why: &str| Err(SpecError::Invalid { field: field.to_owned(), why: why.to_owned() });
        if self.objective.trim().is_empty() {
            return invalid("objective", "is empty: say what the run is to reach");
        }
        for (index, condition) in self.stop_conditions.iter().enumerate() {
            check_condition(condition, &format!("stop_conditions[{index}]"))?;
        }
        self.check_files()?;
        self.check_phases()?;
        self.check_harness()?;
        if let Some(schema) = &self.output_schema {
            if !schema.is_object() {
                return invalid(
                    "output_schema",
                    "is no JSON Schema: write an object, for example {\"type\": \"object\", \"properties\": {…}}",
                );
            }
            if self.harness.as_ref().is_some_and(|harness| harness.completion_promise.is_some()) {
                return invalid(
                    "output_schema",
                    "cannot be combined with `harness.completion_promise`: the last message would have to be both",
                );
            }
        }
        if let Some((field, why)) = self.subagents.as_ref().and_then(Subagents::problem) {
            return invalid(field, why);
        }
        if self.job_key.as_ref().is_some_and(|key| key.trim().is_empty()) {
            return invalid("job_key", "is empty");
        }
        if self.settings.blob_threshold_bytes < 256 {
            return invalid(
                "settings.blob_threshold_bytes",
                "is below 256: a reference would be as long as the result",
            );
        }
        let allowed = &self.constraints.allowed_recipients;
        if allowed.iter().any(|entry| MailAddress::parse(entry).is_err() && !MailAddress::is_domain_entry(entry)) {
            return invalid("constraints.allowed_recipients", "has an entry that is neither an address nor `@domain`");
        }
        let destinations = &self.constraints.allowed_destinations;
        if destinations.iter().any(|entry| entry.trim().is_empty() || entry == "*") {
            return invalid("constraints.allowed_destinations", "has an entry that means nothing or everything");
        }
        if self.settings.history_max_tokens < 1_000 {
            return invalid("settings.history_max_tokens", "is below 1000: the job and one turn would not fit");
        }
        if self.budgets.max_tool_calls == 0 {
            return invalid("budgets.max_tool_calls", "is 0: the run could do nothing");
        }
        if self.budgets.max_steps == 0 {
            return invalid("budgets.max_steps", "is 0: the run could do nothing");
        }
        if self.budgets.max_tokens == Some(0) {
            return invalid("budgets.max_tokens", "is 0: the run could ask nothing");
        }
        if self.budgets.max_cost.is_some_and(|money| money.nanos() == 0) {
            return invalid("budgets.max_cost", "is 0: the run could ask nothing");
        }
        Ok(())
    }

    fn check_phases(&self) -> Result<(), SpecError> {
        for (index, phase) in self.phases.iter().enumerate() {
            let invalid = |field: &str, why: &str| {
                Err(SpecError::Invalid { field: format!("phases[{index}].{field}"), why: why.to_owned() })
            };
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if phase.name.is_empty() || phase.name.len() > 64 || !phase.name.chars().all(is_plain) {
                return invalid("name", "must be 1 to 64 letters, digits, `-` or `_`");
            }
            if self.phases[..index].iter().any(|earlier| earlier.name == phase.name) {
                return invalid("name", "is the name of an earlier phase");
            }
            if phase.instructions.trim().is_empty() {
                return invalid("instructions", "is empty: say what the phase is to do");
            }
            for (number, condition) in phase.stop_conditions.iter().enumerate() {
                check_condition(condition, &format!("phases[{index}].stop_conditions[{number}]"))?;
            }
            let budgets = &phase.budgets;
            let zero = [
                ("max_turns", budgets.max_turns == Some(0)),
                ("max_tool_calls", budgets.max_tool_calls == Some(0)),
                ("max_tokens", budgets.max_tokens == Some(0)),
                ("max_cost", budgets.max_cost.is_some_and(|money| money.nanos() == 0)),
            ];
            if let Some((name, _)) = zero.into_iter().find(|(_, is_zero)| *is_zero) {
                return invalid(&format!("budgets.{name}"), "is 0: the phase could do nothing");
            }
        }
        Ok(())
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

fn check_condition(condition: &StopCondition, field: &str) -> Result<(), SpecError> {
    let invalid = |why: &str| Err(SpecError::Invalid { field: field.to_owned(), why: why.to_owned() });
    match condition {
        StopCondition::Named(name) if !StopCondition::NAMES.contains(&name.as_str()) => invalid(&format!(
            "is {name:?}; known names are {}, or write {{\"effect\": …}} or {{\"artifact\": …}}",
            StopCondition::NAMES.join(", ")
        )),
        StopCondition::Effect { effect, .. } if crate::EffectKind::parse(effect).is_none() => {
            invalid("needs an effect of the form `<object>.<verb>`, for example `email.send`")
        }
        StopCondition::Effect { count, max: Some(max), .. } if max < count => invalid("has a `max` below its `count`"),
        StopCondition::Artifact { artifact, .. } if !is_below(artifact) => invalid(&format!(
            "names the file {artifact:?}; name one below the workspace, for example work_products/report.md"
        )),
        StopCondition::Named(_) | StopCondition::Effect { .. } | StopCondition::Artifact { .. } => Ok(()),
    }
}

/// Whether a path stays in the folder that it is relative to.
fn is_below(path: &str) -> bool {
    use std::path::{Component, Path};
    let is_inner = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    !path.trim().is_empty() && Path::new(path).components().all(is_inner)
}

/// The known fields of a job, as a tree: the names of an object's fields and, where they are objects, theirs.
struct Known(&'static [(&'static str, Option<&'static Known>)]);

const FIELDS: &Known = &Known(&[
    ("objective", None),
    ("prompt", None),
    ("inputs", None),
    ("files", None),
    (
        "constraints",
        Some(&Known(&[
            ("must_cite_sources", None),
            ("no_duplicate_external_actions", None),
            ("on_scope_conflict", None),
            ("allowed_domains", None),
            ("forbidden_actions", None),
            ("allowed_recipients", None),
            ("allowed_destinations", None),
        ])),
    ),
    (
        "budgets",
        Some(&Known(&[
            ("max_wallclock_minutes", None),
            ("max_steps", None),
            ("max_tool_calls", None),
            ("max_retries_per_tool_call", None),
            ("max_same_error_repeats", None),
            ("max_provider_wait_minutes", None),
            ("max_turns", None),
            ("max_tokens", None),
            ("max_cost", None),
        ])),
    ),
    ("stop_conditions", None),
    ("output_schema", None),
    ("phases", None),
    (
        "harness",
        Some(&Known(&[("max_iterations", None), ("completion_promise", None), ("context_budget_tokens", None)])),
    ),
    (
        "escalation",
        Some(&Known(&[
            ("ask_human_on_ambiguous_recipient", None),
            ("ask_human_on_auth_failure", None),
            ("ask_human_on_repeated_failures", None),
            ("ask_human_on_tainted_effect", None),
            ("ask_human_before", None),
            ("ask_user", None),
        ])),
    ),
    ("artifacts", Some(&Known(&[("workspace_dir", None), ("expected_outputs", None)]))),
    (
        "model",
        Some(&Known(&[
            ("provider", None),
            ("name", None),
            ("script", None),
            ("max_output_tokens", None),
            ("temperature_milli", None),
            ("seed", None),
            ("effort", None),
            ("thinking_tokens", None),
            ("tool_choice", None),
            ("headers", None),
            ("system_prompt", None),
        ])),
    ),
    (
        "tools",
        Some(&Known(&[
            ("builtin", None),
            ("run_command", None),
            ("servers", None),
            ("allow", None),
            ("deny", None),
            ("allow_file_edit_tools", None),
        ])),
    ),
    ("subagents", Some(&Known(&[("max_depth", None), ("max_tasks", None), ("max_turns", None), ("tools", None)]))),
    (
        "settings",
        Some(&Known(&[
            ("blob_threshold_bytes", None),
            ("history_max_tokens", None),
            ("degraded_replay", None),
            ("enforce_idempotency", None),
            ("provider_sessions", None),
        ])),
    ),
    ("policies", None),
    ("job_key", None),
]);

/// The known fields of one phase.
const PHASE_FIELDS: &Known = &Known(&[
    ("name", None),
    ("instructions", None),
    ("stop_conditions", None),
    ("expected_outputs", None),
    (
        "budgets",
        Some(&Known(&[("max_turns", None), ("max_tool_calls", None), ("max_tokens", None), ("max_cost", None)])),
    ),
]);

/// The known fields of a stop condition that is an object.
const CONDITION_FIELDS: &Known =
    &Known(&[("effect", None), ("count", None), ("max", None), ("artifact", None), ("media_type", None)]);

/// What a parser of alternatives would call no variant of any: stop conditions of another shape.
fn check_shapes(job: &Value) -> Result<(), SpecError> {
    let of = |owner: &Value| owner["stop_conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<(String, Value)> = Vec::new();
    let named = |path: String, found: Vec<Value>| {
        found
            .into_iter()
            .enumerate()
            .map(move |(index, condition)| (format!("{path}stop_conditions[{index}]"), condition))
    };
    conditions.extend(named(String::new(), of(job)));
    for (index, phase) in job["phases"].as_array().into_iter().flatten().enumerate() {
        conditions.extend(named(format!("phases[{index}]."), of(phase)));
    }
    for (field, condition) in conditions {
        let invalid = |why: &str| Err(SpecError::Invalid { field: field.clone(), why: why.to_owned() });
        let Value::Object(fields) = &condition else {
            if condition.is_string() {
                continue;
            }
            return invalid("is neither a name nor an object with `effect` or `artifact`");
        };
        check_fields(&condition, &field, CONDITION_FIELDS)?;
        match (fields.contains_key("effect"), fields.contains_key("artifact")) {
            (true, true) => return invalid("has both `effect` and `artifact`: write two conditions"),
            (false, false) => return invalid("needs `effect` or `artifact`"),
            (true, false) | (false, true) => {}
        }
        let whole = ["count", "max"].into_iter().find(|name| {
            fields
                .get(*name)
                .is_some_and(|value| !value.is_null() && value.as_u64().is_none_or(|n| u32::try_from(n).is_err()))
        });
        if let Some(name) = whole {
            return Err(SpecError::Invalid {
                field: format!("{field}.{name}"),
                why: format!("is {}, and takes {}", fields[name], taken("u32")),
            });
        }
        if let Some(name) = ["effect", "artifact", "media_type"]
            .into_iter()
            .find(|name| fields.get(*name).is_some_and(|value| !value.is_null() && !value.is_string()))
        {
            return Err(SpecError::Invalid {
                field: format!("{field}.{name}"),
                why: format!("is {}, and takes {}", fields[name], taken("a string")),
            });
        }
    }
    Ok(())
}

/// A value of another type, with its place, in the words of somebody who writes JSON.
fn misshapen(error: &serde_path_to_error::Error<serde_json::Error>) -> SpecError {
    let (path, text) = (error.path().to_string(), error.inner().to_string());
    let field = (path != ".").then_some(path);
    if let Some(missing) = text.strip_prefix("missing field ") {
        return match field {
            Some(field) => SpecError::Invalid { field, why: format!("needs the field {missing}") },
            None => SpecError::Syntax(text),
        };
    }
    let Some(field) = field else { return SpecError::Syntax(text) };
    let told = text.strip_prefix("invalid type: ").or_else(|| text.strip_prefix("invalid value: "));
    let why = match told.and_then(|told| told.split_once(", expected ")) {
        Some((found, wanted)) => format!("is {}, and takes {}", given(found), taken(wanted)),
        None => format!("is not usable: {text}"),
    };
    SpecError::Invalid { field, why }
}

/// What was found, as it stands in the file.
fn given(found: &str) -> String {
    let kinds = ["integer ", "floating point ", "string ", "boolean "];
    let bare = kinds.iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(match found {
        "map" => "an object",
        "sequence" => "a list",
        other => other,
    });
    bare.replace('`', "")
}

/// What a field takes.
fn taken(wanted: &str) -> String {
    match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "i32" | "i64" => "a whole number",
        "a string" => "text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        other if other.starts_with("struct ") => "an object",
        other => other,
    }
    .to_owned()
}

fn check_fields(value: &Value, path: &str, known: &Known) -> Result<(), SpecError> {
    let Value::Object(map) = value else {
        if path.is_empty() {
            return Err(SpecError::Syntax("it is no JSON object".to_owned()));
        }
        return Err(SpecError::Invalid { field: path.to_owned(), why: "must be a JSON object".to_owned() });
    };
    for (name, inner) in map {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.0.iter().find(|(field, _)| field == name) {
            Some((_, Some(fields))) => check_fields(inner, &full, fields)?,
            Some((_, None)) => {}
            None => return Err(SpecError::UnknownField { field: full, nearest: nearest(name, path, known) }),
        }
    }
    Ok(())
}

/// The known name most like `name`, if one is near enough to be meant: first in this object, then anywhere in the job.
fn nearest(name: &str, path: &str, known: &Known) -> Option<String> {
    let here = known.0.iter().map(|(field, _)| {
        let full = if path.is_empty() { (*field).to_owned() } else { format!("{path}.{field}") };
        (strsim::jaro_winkler(name, field), full)
    });
    let anywhere = FIELDS.0.iter().flat_map(|(outer, inner)| {
        let nested = inner.iter().flat_map(|known| known.0.iter());
        nested.map(move |(field, _)| (strsim::jaro_winkler(name, field) - 0.05, format!("{outer}.{field}")))
    });
    let best = here.chain(anywhere).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.75).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_shape_is_named_with_its_place_and_what_it_takes() {
        for (job, wanted) in [
            (
                r#"{"budgets": {"max_tool_calls": -5}}"#,
                "`budgets.max_tool_calls` is -5, and takes a whole number that is not negative",
            ),
            (
                r#"{"budgets": {"max_turns": "ten"}}"#,
                "`budgets.max_turns` is \"ten\", and takes a whole number that is not negative",
            ),
            (r#"{"tools": {"builtin": "yes"}}"#, "`tools.builtin` is \"yes\", and takes true or false"),
            (r#"{"policies": "a.toml"}"#, "`policies` is \"a.toml\", and takes a list"),
            (r#"{"phases": [{"name": "a"}]}"#, "`phases[0]` needs the field `instructions`"),
            (
                r#"{"stop_conditions": [{"artefact": "a"}]}"#,
                "unknown field `stop_conditions[0].artefact`, did you mean `stop_conditions[0].artifact`?",
            ),
            (r#"{"stop_conditions": [{"count": 2}]}"#, "`stop_conditions[0]` needs `effect` or `artifact`"),
            (
                r#"{"stop_conditions": [7]}"#,
                "`stop_conditions[0]` is neither a name nor an object with `effect` or `artifact`",
            ),
            (
                r#"{"stop_conditions": [{"effect": "a.b", "count": -1}]}"#,
                "`stop_conditions[0].count` is -1, and takes a whole number that is not negative",
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
        assert_eq!(RunSpec::parse("[]").unwrap_err().to_string(), "invalid job: it is no JSON object");
    }

    /// The RunSpec of Durable Jobs v1 spec §6, word for word.
    const SPEC_6: &str = r#"{
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
            (r#"{"objective": "x", "zzz": 3}"#, "zzz", None),
        ];
        for (text, field, nearest) in cases {
            let expected = SpecError::UnknownField { field: field.to_owned(), nearest: nearest.map(str::to_owned) };
            assert_eq!(RunSpec::parse(text), Err(expected));
        }
    }

    #[test]
    fn the_list_of_known_fields_matches_the_types() {
        let spec = RunSpec::parse(SPEC_6).unwrap();
        let mut full = serde_json::to_value(&spec).unwrap();
        full["prompt"] = "p".into();
        full["inputs"] = serde_json::json!({"a": 1});
        full["files"] = serde_json::json!(["a.png"]);
        full["policies"] = serde_json::json!(["p.toml"]);
        full["job_key"] = "k".into();
        let budgets = serde_json::json!({"max_turns": 1, "max_tool_calls": 1, "max_tokens": 1, "max_cost": 1});
        full["phases"] = serde_json::json!([{"name": "p", "instructions": "i", "stop_conditions": ["email_sent_once"],
            "expected_outputs": ["a"], "budgets": budgets}]);
        full["harness"] =
            serde_json::json!({"max_iterations": 2, "completion_promise": "DONE", "context_budget_tokens": 5000});
        full["model"] = serde_json::json!({"provider": "scripted", "name": "m", "script": "s", "max_output_tokens": 1,
            "temperature_milli": 1, "seed": 1, "effort": "low", "thinking_tokens": 1, "tool_choice": "any", "headers": {"a": "b"}, "system_prompt": "s"});
        full["tools"]["servers"] = serde_json::json!([]);
        full["constraints"]["on_scope_conflict"] = "refuse".into();
        full["constraints"]["allowed_recipients"] = serde_json::json!(["@example.test"]);
        full["constraints"]["allowed_destinations"] = serde_json::json!(["example.test"]);
        full["escalation"]["ask_human_on_tainted_effect"] = false.into();
        full["escalation"]["ask_human_before"] = serde_json::json!(["email.*"]);
        full["escalation"]["ask_user"] = true.into();
        full["settings"]["provider_sessions"] = true.into();
        full["subagents"] = serde_json::json!({"max_depth": 1, "max_tasks": 1, "max_turns": 1, "tools": ["a"]});
        full["budgets"]["max_turns"] = 1.into();
        full["budgets"]["max_tokens"] = 1.into();
        full["budgets"]["max_cost"] = "2.50 USD".into();
        let mut parsed = RunSpec::parse(&full.to_string()).unwrap();
        // Not beside a promise, so not in one job with it.
        full["output_schema"] = serde_json::json!({"type": "object"});
        parsed.output_schema = Some(full["output_schema"].clone());
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let round_trip = serde_json::to_value(&parsed).unwrap();
        assert_eq!(names(&round_trip), names(&full));
        let mut known: Vec<&str> = FIELDS.0.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        let mut stored = names(&round_trip);
        stored.sort_unstable();
        assert_eq!(stored, known);
        for (outer, inner) in FIELDS.0 {
            if let Some(inner) = inner {
                let mut stored = names(&round_trip[outer]);
                stored.sort_unstable();
                let mut known: Vec<&str> = inner.0.iter().map(|(name, _)| *name).collect();
                known.sort_unstable();
                assert_eq!(stored, known, "{outer}");
            }
        }
        let sorted = |known: &Known| known.0.iter().map(|(name, _)| *name).collect::<std::collections::BTreeSet<_>>();
        let phase = names(&round_trip["phases"][0]);
        assert_eq!(phase.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(), sorted(PHASE_FIELDS));
        assert_eq!(names(&round_trip["phases"][0]["budgets"]).len(), 4);
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
