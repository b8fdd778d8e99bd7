//! What a step was pinned to: everything that shapes what the model is asked and what its calls may do.
//!
//! Granular Execution PRD §5.2. A step keeps a digest per component, so that a resume which would run with something else can
//! say what changed instead of merely that something did. Only what was captured once goes in: nothing of a turn's own data.
//! Invariants: two inputs of equal meaning have equal digests (canonical JSON, RFC 8785); a tool that appears later is no
//! difference, because it is not offered; a tool that changed or went away is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::canonical::{CanonicalJson, Sha256, sha256};
use crate::policy::SideEffectClass;
use crate::schema::demands_of;
use crate::spec::RunSpec;
use crate::status::text_enum;
use crate::tool::ToolSpec;

/// The newest form that this program writes and reads.
const VERSION: u32 = 1;

/// How much of a long value is shown beside its digest.
const SHOWN_CHARS: usize = 48;
/// What is shown of a value begins so of which the digest alone is known.
const BY_DIGEST: &str = "digest ";
/// How much of the words of a tool is kept beside their digests.
const WORDS_CHARS: usize = 100;

text_enum! {
    /// A part of what shapes a step.
    Component {
        /// Objective and prompt of the job.
        Prompt = "prompt",
        /// The job's inputs.
        Inputs = "inputs",
        /// The job's constraints.
        Constraints = "constraints",
        /// The system prompt.
        System = "system",
        /// The model provider.
        Provider = "provider",
        /// The model.
        Model = "model",
        /// The prices that usage is charged at.
        Pricing = "pricing",
        /// The tools that are offered.
        Tools = "tools",
        /// The tool servers that a named file lists, and their programs. No step is pinned to them: whoever would start one compares them
        /// before it does.
        Servers = "servers",
        /// How the model is sampled.
        Settings = "settings",
        /// The rules that classify tools.
        Policy = "policy",
        /// The size from which a result is stored apart from the history.
        BlobThreshold = "blob-threshold",
        /// Switches that shape what a run may do.
        Switches = "switches",
        /// How turns are executed.
        ExecutionMode = "execution-mode",
        /// The estimator of tokens, which decides what of a long history is sent.
        Estimator = "estimator",
    }
}

impl Component {
    /// Whether a person may re-pin it. What the job asks for and who answers are not among these: with another prompt, other
    /// inputs or another model it is another run.
    pub const fn may_be_accepted(self) -> bool {
        match self {
            Self::Policy | Self::Tools | Self::Servers | Self::Pricing | Self::BlobThreshold => true,
            Self::Prompt
            | Self::Inputs
            | Self::Constraints
            | Self::System
            | Self::Provider
            | Self::Model
            | Self::Settings
            | Self::Switches
            | Self::ExecutionMode
            | Self::Estimator => false,
        }
    }
}

/// A component's digest, and enough of its value to recognise it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The digest of the whole value.
    pub digest: Sha256,
    /// The value, or the beginning of a long one with its size.
    pub shown: String,
}

impl Pin {
    fn of_text(text: &str) -> Self {
        let digest = sha256(text);
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let shown = if is_digest {
            by_digest(&text[..8])
        } else if flat.chars().count() <= SHOWN_CHARS && flat == text {
            flat
        } else {
            let start: String = flat.chars().take(SHOWN_CHARS).collect();
            format!("{start}… ({} bytes, sha256 {})", text.len(), short(digest))
        };
        Self { digest, shown }
    }

    fn of_json(value: &Value) -> Self {
        // Canonical text refuses nothing that came out of a JSON parser; the fallback keeps this total.
        match CanonicalJson::of(value, &[]) {
            Ok(canonical) => Self::of_text(canonical.as_str()),
            Err(_) => Self::of_text(&value.to_string()),
        }
    }
}

/// What is shown of a value of which nothing is known but how its digest begins.
fn by_digest(begin: &str) -> String {
    format!("{BY_DIGEST}{begin}…")
}

fn is_by_digest(shown: &str) -> bool {
    shown.starts_with(BY_DIGEST)
}

fn short(digest: Sha256) -> String {
    digest.to_hex().chars().take(8).collect()
}

/// What an offered tool was when it was pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolPin {
    /// The digest of everything the server says about it ([`ToolSpec::digest`]).
    pub digest: Sha256,
    /// The digest of its description.
    pub description: Sha256,
    /// The digest of its argument schema.
    pub schema: Sha256,
    /// The digest of its annotations.
    pub annotations: Sha256,
    /// The class that the policy gives it.
    pub class: SideEffectClass,
    /// What the tool's author said about how it behaves, by the name of the setting: class, key, timeout. Empty for tools of others, about
    /// which the policy says it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub declared: BTreeMap<String, Value>,
    /// The beginning of its description, its arguments and its annotations, to be shown beside those of another time. Empty in pins from before
    /// they were kept; the digests decide.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub words: BTreeMap<String, String>,
}

/// The parts of a tool that a pin tells apart, by what people call them.
const DESCRIPTION: &str = "description";
const SCHEMA: &str = "schema";
const ANNOTATIONS: &str = "annotations";
/// Where the digest of what its schema demands is kept, which is the same where only its words for a model are others.
const DEMANDS: &str = "demands";

/// The beginning of a text, on one line.
fn begin_of(text: &str) -> String {
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.chars().count() <= WORDS_CHARS {
        return flat;
    }
    let begin: String = flat.chars().take(WORDS_CHARS).collect();
    format!("{begin}…")
}

/// The arguments of a tool with their types, those that may be left out with a question mark.
fn arguments_of(schema: &Value) -> String {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flatten();
    let one = |(name, property): (&String, &Value)| {
        let left_out = if required.contains(&name.as_str()) { "" } else { "?" };
        match property["type"].as_str() {
            Some(kind) => format!("{name}{left_out}: {kind}"),
            None => format!("{name}{left_out}"),
        }
    };
    properties.map(one).collect::<Vec<_>>().join(", ")
}

impl ToolPin {
    /// Pins `spec`, which the policy puts into `class`.
    pub fn of(spec: &ToolSpec, class: SideEffectClass) -> Self {
        let annotations = serde_json::to_value(spec.annotations).unwrap_or_default();
        Self {
            digest: spec.digest(),
            description: sha256(&spec.description),
            schema: Pin::of_json(&spec.input_schema).digest,
            annotations: Pin::of_json(&annotations).digest,
            class,
            declared: BTreeMap::new(),
            words: [
                (DESCRIPTION, begin_of(&spec.description)),
                (SCHEMA, begin_of(&arguments_of(&spec.input_schema))),
                (ANNOTATIONS, begin_of(&annotations.to_string())),
                (DEMANDS, Pin::of_json(&demands_of(&spec.input_schema)).digest.to_hex()),
            ]
            .map(|(part, words)| (part.to_owned(), words))
            .into(),
        }
    }

    /// The same with what its author said about how it behaves.
    #[must_use]
    pub fn declaring(mut self, declared: BTreeMap<String, Value>) -> Self {
        self.declared = declared;
        self
    }

    /// Whether it is the same tool by its own words, whatever the policy makes of it.
    fn is_same_tool(&self, other: &Self) -> bool {
        self.digest == other.digest && self.declared == other.declared
    }

    /// The settings that are declared otherwise, on both sides.
    fn declared_otherwise(&self, now: &Self) -> Option<(String, String)> {
        let names: BTreeSet<&String> = self.declared.keys().chain(now.declared.keys()).collect();
        let changed: Vec<&String> =
            names.into_iter().filter(|name| self.declared.get(*name) != now.declared.get(*name)).collect();
        let side = |of: &Self| {
            let said = |name: &&String| match of.declared.get(*name) {
                Some(Value::String(text)) => format!("{name} {text}"),
                Some(value @ Value::Object(_)) => match serde_json::from_value(value.clone()) {
                    Ok(span) => format!("{name} {}", crate::span_in_words(span)),
                    Err(_) => format!("{name} {value}"),
                },
                Some(value) => format!("{name} {value}"),
                None => format!("{name} not set"),
            };
            changed.iter().map(said).collect::<Vec<_>>().join(", ")
        };
        (!changed.is_empty()).then(|| (side(self), side(now)))
    }

    /// What differs in the server's words about the tool, if anything does.
    fn changed_parts(&self, now: &Self) -> Option<(String, String)> {
        let declared = self.declared_otherwise(now);
        let told = self.told_otherwise(now);
        match (told, declared) {
            (Some((before, after)), Some((said, says))) => {
                Some((format!("{before}, {said}"), format!("{after}, {says}")))
            }
            (told, declared) => told.or(declared),
        }
    }

    /// What differs in what a model is told about it, on both sides.
    fn told_otherwise(&self, now: &Self) -> Option<(String, String)> {
        if self.digest == now.digest {
            return None;
        }
        let parts = [
            (DESCRIPTION, self.description, now.description),
            (SCHEMA, self.schema, now.schema),
            (ANNOTATIONS, self.annotations, now.annotations),
        ];
        let changed: Vec<_> = parts.into_iter().filter(|(_, before, after)| before != after).collect();
        if changed.is_empty() {
            return Some((format!("definition {}", short(self.digest)), format!("definition {}", short(now.digest))));
        }
        // Words that are the same on both sides differ behind what is kept of them.
        let side = |of: &Self, other: &Self, pick: fn(&(&str, Sha256, Sha256)) -> Sha256| {
            let demands = of.words.get(DEMANDS).filter(|demands| other.words.get(DEMANDS) == Some(demands));
            let told = |part: &(&str, Sha256, Sha256)| match of.words.get(part.0) {
                Some(_) if part.0 == SCHEMA && demands.is_some() => {
                    format!("schema {} (only descriptions differ)", short(pick(part)))
                }
                Some(words) if other.words.get(part.0).is_some_and(|others| others != words) => {
                    format!("{} \"{words}\"", part.0)
                }
                _ => format!("{} {}", part.0, short(pick(part))),
            };
            changed.iter().map(told).collect::<Vec<_>>().join(", ")
        };
        Some((side(self, now, |part| part.1), side(now, self, |part| part.2)))
    }
}

/// What the rules that classify tools were when they were pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyPin {
    /// The digest of everything that decides.
    pub version: Sha256,
    /// The digest of each part of it, by what people call it: a rule, a list, what comes with the program. They say what changed; whether
    /// something did says `version`.
    pub parts: BTreeMap<String, Sha256>,
    /// What somebody wrote in a part, so that it can be said what of it changed; nothing of what comes with the program.
    pub words: BTreeMap<String, PolicyWords>,
}

/// What is said of a name in a list.
const LISTED: &str = "in it";

/// What somebody wrote in a part of the policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyWords {
    /// The file that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What each field says, by its name in the file.
    pub fields: BTreeMap<String, String>,
}

impl PolicyWords {
    /// Nothing yet of what is in `file`.
    pub fn of(file: Option<&str>) -> Self {
        Self { file: file.map(str::to_owned), fields: BTreeMap::new() }
    }

    /// Adds a name that is in it, of a list.
    pub fn list(&mut self, name: &str) {
        self.add(name, LISTED);
    }

    /// Adds what a field says; of a long value its beginning, and what tells it from others that begin alike.
    pub fn add(&mut self, field: &str, text: &str) {
        let begin = begin_of(text);
        let kept = if begin.ends_with('…') { format!("{begin} (sha256 {})", short(sha256(text))) } else { begin };
        self.fields.insert(field.to_owned(), kept);
    }
}

/// What a fingerprint is made of.
#[derive(Debug, Clone)]
pub struct FingerprintInput<'a> {
    /// The job: prompt, inputs, constraints.
    pub spec: &'a RunSpec,
    /// The phase that the step is; `None` when the job has none.
    pub phase: Option<&'a str>,
    /// The system prompt.
    pub system: &'a str,
    /// The model provider's name.
    pub provider: &'a str,
    /// The provider's name of the model.
    pub model: &'a str,
    /// The price table in use: a name and version, or a digest.
    pub pricing: &'a str,
    /// The tools that are offered, by qualified name.
    pub tools: BTreeMap<String, ToolPin>,
    /// How the model is sampled.
    pub settings: &'a Value,
    /// The rules that classify tools.
    pub policy: &'a PolicyPin,
    /// The size in bytes from which a result is stored apart, as text.
    pub blob_threshold: &'a str,
    /// Switches that shape what a run may do.
    pub switches: &'a Value,
    /// How turns are executed.
    pub execution_mode: &'a str,
    /// The token estimator's name.
    pub estimator: &'a str,
}

/// The pins of a step, one digest per component and per tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    version: u32,
    components: BTreeMap<Component, Pin>,
    tools: BTreeMap<String, ToolPin>,
    /// The parts of the policy. Steps from before they were kept have none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    policy_parts: BTreeMap<String, Sha256>,
    /// What somebody wrote in them. It is shown, and decides nothing.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    policy_words: BTreeMap<String, PolicyWords>,
}

/// A stored fingerprint that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FingerprintError {
    /// A newer program wrote it.
    #[error("cannot read a fingerprint of version {found}: this program knows version {known}")]
    TooNew {
        /// The stored version.
        found: u64,
        /// The newest version this program knows.
        known: u32,
    },
    /// It is not one.
    #[error("cannot read a fingerprint: {0}")]
    Unreadable(String),
}

impl Fingerprint {
    /// Takes the fingerprint of `input`.
    pub fn of(input: FingerprintInput<'_>) -> Self {
        let spec = input.spec;
        let constraints = serde_json::to_value(&spec.constraints).unwrap_or_default();
        let inputs = Value::Object(spec.inputs.clone());
        let mut prompt = json!({"objective": spec.objective, "prompt": spec.prompt});
        // A step of a job without phases has the pin it always had.
        if let Some((_, phase)) = input.phase.and_then(|name| spec.phase(name)) {
            prompt["phase"] = json!({"name": phase.name, "instructions": phase.instructions});
        }
        let components = [
            (Component::Prompt, Pin::of_json(&prompt)),
            (Component::Inputs, Pin::of_json(&inputs)),
            (Component::Constraints, Pin::of_json(&constraints)),
            (Component::System, Pin::of_text(input.system)),
            (Component::Provider, Pin::of_text(input.provider)),
            (Component::Model, Pin::of_text(input.model)),
            (Component::Pricing, Pin::of_text(input.pricing)),
            (Component::Settings, Pin::of_json(input.settings)),
            (Component::Policy, Pin::of_text(&input.policy.version.to_hex())),
            (Component::BlobThreshold, Pin::of_text(input.blob_threshold)),
            (Component::Switches, Pin::of_json(input.switches)),
            (Component::ExecutionMode, Pin::of_text(input.execution_mode)),
            (Component::Estimator, Pin::of_text(input.estimator)),
        ];
        Self {
            version: VERSION,
            components: components.into_iter().collect(),
            tools: input.tools,
            policy_parts: input.policy.parts.clone(),
            policy_words: input.policy.words.clone(),
        }
    }

    /// Reads a stored fingerprint.
    ///
    /// # Errors
    /// [`FingerprintError::TooNew`] when a newer program wrote it, [`FingerprintError::Unreadable`] when it is not one.
    pub fn from_stored(stored: &Value) -> Result<Self, FingerprintError> {
        let found =
            stored["version"].as_u64().ok_or_else(|| FingerprintError::Unreadable("it has no version".to_owned()))?;
        if found > u64::from(VERSION) {
            return Err(FingerprintError::TooNew { found, known: VERSION });
        }
        serde_json::from_value(stored.clone()).map_err(|error| FingerprintError::Unreadable(error.to_string()))
    }

    /// The fingerprint as it is stored.
    pub fn to_stored(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The pins of everything but the tools.
    pub fn pins(&self) -> impl Iterator<Item = (Component, &Pin)> {
        self.components.iter().map(|(component, pin)| (*component, pin))
    }

    /// The names of the tools that are offered.
    pub fn tool_names(&self) -> BTreeSet<String> {
        self.tools.keys().cloned().collect()
    }

    /// What a step with these pins would find changed if it ran as `now`.
    pub fn diff(&self, now: &Self) -> FingerprintDiff {
        let mut differences = Vec::new();
        for component in Component::ALL {
            if *component == Component::Tools {
                self.tool_differences(now, &mut differences);
                continue;
            }
            let (before, after) = (self.components.get(component), now.components.get(component));
            if before.map(|pin| pin.digest) != after.map(|pin| pin.digest) {
                if *component == Component::Policy && self.policy_differences(now, &mut differences) {
                    continue;
                }
                let shown = |pin: Option<&Pin>| pin.map_or_else(|| "none".to_owned(), |pin| pin.shown.clone());
                differences.push(Difference::new(*component, None, shown(before), shown(after)));
            }
        }
        for (name, pin) in &self.tools {
            // A class that changed under an unchanged tool is the policy's doing.
            if let Some(other) = now.tools.get(name)
                && other.is_same_tool(pin)
                && other.class != pin.class
            {
                let (before, after) = (pin.class.to_string(), other.class.to_string());
                differences.push(Difference::new(Component::Policy, Some(name), before, after));
            }
        }
        let is_new = |name: &&String| !self.tools.contains_key(*name);
        let offered =
            now.tools.keys().filter(is_new).map(|name| format!("{name} ({})", now.tools[name].class)).collect();
        FingerprintDiff { differences, offered }
    }

    fn tool_differences(&self, now: &Self, differences: &mut Vec<Difference>) {
        for (name, pin) in &self.tools {
            match now.tools.get(name) {
                None => {
                    let before = format!("offered ({})", pin.class);
                    differences.push(Difference::new(Component::Tools, Some(name), before, "gone".to_owned()));
                }
                Some(other) => {
                    if let Some((before, after)) = pin.changed_parts(other) {
                        differences.push(Difference::new(Component::Tools, Some(name), before, after));
                    }
                }
            }
        }
    }

    /// Which parts of the policy differ, field by field where that is known; `false` where no part is known to: the step is from before they
    /// were kept.
    fn policy_differences(&self, now: &Self, differences: &mut Vec<Difference>) -> bool {
        if self.policy_parts.is_empty() {
            return false;
        }
        let names: BTreeSet<&String> = self.policy_parts.keys().chain(now.policy_parts.keys()).collect();
        let at_first = differences.len();
        for name in names {
            let (before, after) = (self.policy_parts.get(name), now.policy_parts.get(name));
            if before == after {
                continue;
            }
            let words = (self.policy_words.get(name), now.policy_words.get(name));
            let file = words.1.or(words.0).and_then(|words| words.file.clone());
            let about = |field: Option<&str>, before: String, after: String| Difference {
                part: Some(name.clone()),
                file: file.clone(),
                field: field.map(str::to_owned),
                ..Difference::new(Component::Policy, None, before, after)
            };
            match (before, after) {
                (Some(before), Some(after)) => {
                    let fields = fields_that_differ(words.0, words.1);
                    if fields.is_empty() {
                        let digest = |of: Sha256| by_digest(&short(of));
                        differences.push(about(None, digest(*before), digest(*after)));
                    }
                    for (field, before, after) in fields {
                        differences.push(about(Some(field), before, after));
                    }
                }
                (Some(_), None) => differences.push(about(None, "there".to_owned(), "gone".to_owned())),
                (None, _) => differences.push(about(None, "none".to_owned(), "new".to_owned())),
            }
        }
        if differences.len() == at_first {
            let (before, after) = ("its rules as they stood".to_owned(), "the same in another order".to_owned());
            differences.push(Difference::new(Component::Policy, None, before, after));
        }
        true
    }

    /// Takes `component` over from `now`, as a person accepted it. Accepting the tools offers what there is now, new ones
    /// included; accepting the policy takes the classes of the pinned tools over as well.
    #[must_use]
    pub fn repinned(mut self, component: Component, now: &Self) -> Self {
        let is_as_pinned = self.components.get(&component) == now.components.get(&component);
        if component == Component::Tools {
            self.tools.clone_from(&now.tools);
        } else if let Some(pin) = now.components.get(&component) {
            self.components.insert(component, pin.clone());
        }
        if component == Component::Policy {
            if !is_as_pinned {
                self.policy_parts.clone_from(&now.policy_parts);
                self.policy_words.clone_from(&now.policy_words);
            }
            for (name, pin) in &mut self.tools {
                if let Some(tool) = now.tools.get(name).filter(|tool| tool.is_same_tool(pin)) {
                    pin.class = tool.class;
                }
            }
        }
        self
    }
}

/// What fields of a part of the policy say on both sides, where that differs. Nothing where one side is from before words were kept.
fn fields_that_differ<'a>(
    before: Option<&'a PolicyWords>,
    after: Option<&'a PolicyWords>,
) -> Vec<(&'a str, String, String)> {
    let (Some(before), Some(after)) = (before, after) else { return Vec::new() };
    let names: BTreeSet<&String> = before.fields.keys().chain(after.fields.keys()).collect();
    let said = |of: Option<&String>, other: Option<&String>| match (of, other) {
        (Some(text), _) => text.clone(),
        (None, Some(other)) if other == LISTED => format!("not {LISTED}"),
        (None, _) => "not set".to_owned(),
    };
    let both = names.into_iter().map(|name| (name, before.fields.get(name), after.fields.get(name)));
    both.filter(|(_, before, after)| before != after)
        .map(|(name, before, after)| (name.as_str(), said(before, after), said(after, before)))
        .collect()
}

/// One thing that is not what it was pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The component.
    pub component: Component,
    /// The tool, where it is about one.
    pub tool: Option<String>,
    /// The part of the policy, where it is about one that changed: `` rule `mail` ``.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    /// The file that this part is in, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The field of it that changed, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What was pinned.
    pub before: String,
    /// What there is now.
    pub after: String,
}

impl Difference {
    fn new(component: Component, tool: Option<&str>, before: String, after: String) -> Self {
        Self { component, tool: tool.map(str::to_owned), part: None, file: None, field: None, before, after }
    }

    /// Whether of what was pinned the digest alone is known, so that nobody can tell what of it changed.
    pub fn was_by_digest(&self) -> bool {
        self.field.is_none() && is_by_digest(&self.before)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.component)?;
        for about in [&self.tool, &self.part].into_iter().flatten() {
            write!(f, " {about}")?;
        }
        if let Some(file) = &self.file {
            write!(f, " in {file}")?;
        }
        if let Some(field) = &self.field {
            return write!(f, ": {field} {} → {}", self.before, self.after);
        }
        // Digits say nothing to anybody but that they are others.
        if is_by_digest(&self.before) && is_by_digest(&self.after) {
            return write!(f, ": changed ({} → {})", self.before, self.after);
        }
        write!(f, ": {} → {}", self.before, self.after)
    }
}

/// Everything that is not what it was pinned to. Empty when the step may go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FingerprintDiff {
    differences: Vec<Difference>,
    #[serde(skip)]
    offered: Vec<String>,
}

impl FingerprintDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.differences.is_empty()
    }

    /// The differences, component by component.
    pub fn iter(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter()
    }

    /// The tools that were not there, each with its class: no difference, for they are not offered. Who accepts the tools has them offered.
    pub fn new_tools(&self) -> &[String] {
        &self.offered
    }

    /// The components that changed.
    pub fn components(&self) -> BTreeSet<Component> {
        self.differences.iter().map(|difference| difference.component).collect()
    }

    /// The differences of one component.
    #[must_use]
    pub fn of(&self, component: Component) -> Self {
        let differences = self.differences.iter().filter(|difference| difference.component == component);
        let offered = if component == Component::Tools { self.offered.clone() } else { Vec::new() };
        Self { differences: differences.cloned().collect(), offered }
    }
}

impl fmt::Display for FingerprintDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.differences.iter().map(Difference::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests;
