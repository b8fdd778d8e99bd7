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
use crate::spec::RunSpec;
use crate::status::text_enum;
use crate::tool::ToolSpec;

/// The newest form that this program writes and reads.
const VERSION: u32 = 1;

/// How much of a long value is shown beside its digest.
const SHOWN_CHARS: usize = 48;

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
            format!("digest {}…", &text[..8])
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
            ("description", self.description, now.description),
            ("schema", self.schema, now.schema),
            ("annotations", self.annotations, now.annotations),
        ];
        let changed: Vec<_> = parts.into_iter().filter(|(_, before, after)| before != after).collect();
        let side = |pick: fn(&(&str, Sha256, Sha256)) -> Sha256, whole: Sha256| {
            if changed.is_empty() {
                return format!("definition {}", short(whole));
            }
            changed.iter().map(|part| format!("{} {}", part.0, short(pick(part)))).collect::<Vec<_>>().join(", ")
        };
        Some((side(|part| part.1, self.digest), side(|part| part.2, now.digest)))
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
    /// The version of the rules that classify tools.
    pub policy: &'a str,
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
            (Component::Policy, Pin::of_text(input.policy)),
            (Component::BlobThreshold, Pin::of_text(input.blob_threshold)),
            (Component::Switches, Pin::of_json(input.switches)),
            (Component::ExecutionMode, Pin::of_text(input.execution_mode)),
            (Component::Estimator, Pin::of_text(input.estimator)),
        ];
        Self { version: VERSION, components: components.into_iter().collect(), tools: input.tools }
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
        FingerprintDiff(differences)
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

    /// Takes `component` over from `now`, as a person accepted it. Accepting the tools offers what there is now, new ones
    /// included; accepting the policy takes the classes of the pinned tools over as well.
    #[must_use]
    pub fn repinned(mut self, component: Component, now: &Self) -> Self {
        if component == Component::Tools {
            self.tools.clone_from(&now.tools);
        } else if let Some(pin) = now.components.get(&component) {
            self.components.insert(component, pin.clone());
        }
        if component == Component::Policy {
            for (name, pin) in &mut self.tools {
                if let Some(tool) = now.tools.get(name).filter(|tool| tool.is_same_tool(pin)) {
                    pin.class = tool.class;
                }
            }
        }
        self
    }
}

/// One thing that is not what it was pinned to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The component.
    pub component: Component,
    /// The tool, where it is about one.
    pub tool: Option<String>,
    /// What was pinned.
    pub before: String,
    /// What there is now.
    pub after: String,
}

impl Difference {
    fn new(component: Component, tool: Option<&str>, before: String, after: String) -> Self {
        Self { component, tool: tool.map(str::to_owned), before, after }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.component)?;
        if let Some(tool) = &self.tool {
            write!(f, " {tool}")?;
        }
        // Digits say nothing to anybody but that they are others.
        let is_digest = |side: &str| side.starts_with("digest ");
        if is_digest(&self.before) && is_digest(&self.after) {
            return write!(f, ": changed ({} → {})", self.before, self.after);
        }
        write!(f, ": {} → {}", self.before, self.after)
    }
}

/// Everything that is not what it was pinned to. Empty when the step may go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FingerprintDiff(Vec<Difference>);

impl FingerprintDiff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The differences, component by component.
    pub fn iter(&self) -> impl Iterator<Item = &Difference> {
        self.0.iter()
    }

    /// The components that changed.
    pub fn components(&self) -> BTreeSet<Component> {
        self.0.iter().map(|difference| difference.component).collect()
    }

    /// The differences of one component.
    #[must_use]
    pub fn of(&self, component: Component) -> Self {
        Self(self.0.iter().filter(|difference| difference.component == component).cloned().collect())
    }
}

impl fmt::Display for FingerprintDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Difference::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{ToolAnnotations, ToolName, ToolNamespace};

    fn spec(job: &Value) -> RunSpec {
        RunSpec::parse(&job.to_string()).unwrap()
    }

    fn tool(name: &str, description: &str) -> (String, ToolSpec) {
        let spec = ToolSpec {
            name: ToolName::qualified(ToolNamespace::Mcp, "forum", name),
            description: description.to_owned(),
            input_schema: json!({"type": "object"}),
            annotations: ToolAnnotations::default(),
        };
        (spec.name.raw.clone(), spec)
    }

    fn tools(of: &[(&str, &str)]) -> BTreeMap<String, ToolPin> {
        of.iter()
            .map(|(name, description)| tool(name, description))
            .map(|(raw, spec)| (raw, ToolPin::of(&spec, SideEffectClass::External)))
            .collect()
    }

    /// The fingerprint of a small step, after `change`.
    fn taken(job: &Value, change: impl FnOnce(&mut FingerprintInput<'_>)) -> Fingerprint {
        let spec = spec(job);
        let (settings, switches) = (json!({"max_output_tokens": 100}), json!({"builtin": true}));
        let mut input = FingerprintInput {
            spec: &spec,
            phase: None,
            system: "be careful",
            provider: "scripted",
            model: "m1",
            pricing: "none",
            tools: tools(&[("post", "Posts."), ("read", "Reads.")]),
            settings: &settings,
            policy: "p1",
            blob_threshold: "20000",
            switches: &switches,
            execution_mode: "granular",
            estimator: "bytes/4",
        };
        change(&mut input);
        Fingerprint::of(input)
    }

    fn job() -> Value {
        json!({"objective": "Do it.", "inputs": {"a": 1, "b": [1, 2]}})
    }

    #[test]
    fn granular_fingerprint_mismatch() {
        let pinned = taken(&job(), |_| {});
        assert!(pinned.diff(&taken(&job(), |_| {})).is_empty());
        let other: &'static Value = Box::leak(Box::new(json!({"other": true})));
        let now: [(Component, Fingerprint); 14] = [
            (Component::Prompt, taken(&json!({"objective": "Do that.", "inputs": job()["inputs"]}), |_| {})),
            (Component::Inputs, taken(&json!({"objective": "Do it.", "inputs": {"a": 2}}), |_| {})),
            (Component::Constraints, {
                let mut job = job();
                job["constraints"] = json!({"forbidden_actions": ["post"]});
                taken(&job, |_| {})
            }),
            (Component::System, taken(&job(), |input| input.system = "be quick")),
            (Component::Provider, taken(&job(), |input| input.provider = "anthropic")),
            (Component::Model, taken(&job(), |input| input.model = "m2")),
            (Component::Pricing, taken(&job(), |input| input.pricing = "2026-11")),
            (Component::Tools, taken(&job(), |input| input.tools = tools(&[("post", "Posts."), ("read", "Looks.")]))),
            (Component::Settings, taken(&job(), |input| input.settings = other)),
            (Component::Policy, taken(&job(), |input| input.policy = "p2")),
            (Component::BlobThreshold, taken(&job(), |input| input.blob_threshold = "10")),
            (Component::Switches, taken(&job(), |input| input.switches = other)),
            (Component::ExecutionMode, taken(&job(), |input| input.execution_mode = "atomic")),
            (Component::Estimator, taken(&job(), |input| input.estimator = "tiktoken")),
        ];
        // Servers are compared before one is started, and are in no step's pins.
        assert_eq!(now.len() + 1, Component::ALL.len(), "a component is not varied");
        assert!(now.iter().all(|(component, _)| *component != Component::Servers));
        for (component, now) in now {
            let diff = pinned.diff(&now);
            assert_eq!(diff.components().into_iter().collect::<Vec<_>>(), [component], "{diff}");
            let accepted = pinned.clone().repinned(component, &now);
            assert!(accepted.diff(&now).is_empty(), "{component}");
        }
    }

    #[test]
    fn the_order_of_keys_in_the_inputs_changes_nothing() {
        let turned: Value =
            serde_json::from_str(r#"{"inputs": {"b": [1, 2], "a": 1}, "objective": "Do it."}"#).unwrap();
        assert_eq!(taken(&job(), |_| {}), taken(&turned, |_| {}));
    }

    #[test]
    fn what_a_run_may_spend_is_no_part_of_it() {
        let mut raised = job();
        raised["budgets"] = json!({"max_tool_calls": 1});
        assert_eq!(taken(&job(), |_| {}), taken(&raised, |_| {}));
    }

    #[test]
    fn a_new_tool_is_no_difference_and_a_tool_that_went_away_is_one() {
        let pinned = taken(&job(), |_| {});
        let more =
            taken(&job(), |input| input.tools = tools(&[("post", "Posts."), ("read", "Reads."), ("new", "New.")]));
        assert!(pinned.diff(&more).is_empty());
        let accepted = pinned.clone().repinned(Component::Tools, &more);
        assert!(accepted.tool_names().contains("mcp__forum__new"), "accepting the tools offers the new ones");

        let fewer = taken(&job(), |input| input.tools = tools(&[("read", "Reads.")]));
        let text = pinned.diff(&fewer).to_string();
        assert_eq!(text, "tools mcp__forum__post: offered (external) → gone");
    }

    #[test]
    fn a_difference_names_the_part_of_a_tool_that_changed() {
        let pinned = taken(&job(), |_| {});
        let now = taken(&job(), |input| input.tools = tools(&[("post", "Posts twice."), ("read", "Reads.")]));
        let text = pinned.diff(&now).to_string();
        assert!(text.starts_with("tools mcp__forum__post: description "), "{text}");
        assert!(!text.contains("schema"), "{text}");
    }

    #[test]
    fn a_class_that_changed_under_the_same_tool_is_the_policys_doing() {
        let pinned = taken(&job(), |_| {});
        let now = taken(&job(), |input| {
            input.policy = "p2";
            for pin in input.tools.values_mut() {
                pin.class = SideEffectClass::ReadOnly;
            }
        });
        let diff = pinned.diff(&now);
        assert_eq!(diff.components().into_iter().collect::<Vec<_>>(), [Component::Policy]);
        assert!(diff.to_string().contains("policy mcp__forum__post: external → read_only"), "{diff}");
        assert!(pinned.repinned(Component::Policy, &now).diff(&now).is_empty());
    }

    #[test]
    fn long_values_are_shown_short_and_told_apart() {
        let long: &'static str = "x".repeat(500).leak();
        let (pinned, now) = (taken(&job(), |_| {}), taken(&job(), |input| input.system = long));
        let text = pinned.diff(&now).to_string();
        assert!(text.contains("system: be careful → xxx") && text.contains("(500 bytes, sha256 "), "{text}");
        assert!(text.len() < 200, "{text}");
    }

    #[test]
    fn a_stored_fingerprint_is_read_back_and_a_newer_one_is_refused() {
        let taken = taken(&job(), |_| {});
        assert_eq!(Fingerprint::from_stored(&taken.to_stored()), Ok(taken.clone()));
        let mut newer = taken.to_stored();
        newer["version"] = json!(2);
        assert_eq!(Fingerprint::from_stored(&newer), Err(FingerprintError::TooNew { found: 2, known: 1 }));
        assert!(matches!(Fingerprint::from_stored(&json!({"a": 1})), Err(FingerprintError::Unreadable(_))));
    }

    #[test]
    fn only_what_does_not_make_it_another_run_may_be_accepted() {
        let may: Vec<&str> = Component::ALL.iter().filter(|c| c.may_be_accepted()).map(|c| c.as_str()).collect();
        assert_eq!(may, ["pricing", "tools", "servers", "policy", "blob-threshold"]);
    }
}
