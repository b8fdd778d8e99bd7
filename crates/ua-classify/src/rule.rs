//! Rules: which tools they are about, and what they say about them.
//!
//! A rule is serialised to become part of the policy version, so comments and layout of a file do not count.

use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde::Serialize;
use serde_json::Value;
use ua_core::{
    Composite, EffectKind, KeyChannel, Marker, OnScopeConflict, OnUnknown, ProbePolicy, Reads, ScopeRule,
    SideEffectClass, ToolName, ToolNamespace, ToolSpec,
};

/// The rules of one policy file, in the order in which they were written (Durable Jobs v1 spec §7.4).
#[derive(Debug, Clone)]
pub struct PolicyRules {
    pub(crate) file: String,
    pub(crate) rules: Vec<Rule>,
    /// Whether it is what tools say of themselves.
    pub(crate) is_of_tools: bool,
}

impl PolicyRules {
    /// The file's name, as it was given to [`PolicyRules::parse`].
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The same as what tools say of themselves: it is told apart from one tool to the other, as their descriptions are, and makes no other
    /// policy version. Rules about no single tool by its name do not belong there.
    #[must_use]
    pub fn of_the_tools(mut self) -> Self {
        self.is_of_tools = true;
        self
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether all that it says makes calls more careful, whatever else is known of their tools: nothing of it counts less where nobody
    /// trusts it.
    pub fn only_raises(&self) -> bool {
        self.rules.iter().map(|rule| &rule.settings).all(|said| {
            let careful = Settings {
                side_effect_class: said.side_effect_class.filter(|class| *class == SideEffectClass::External),
                on_unknown: said.on_unknown.filter(|said| *said == OnUnknown::Hold),
                requires_idempotency_key: said.requires_idempotency_key.filter(|required| *required),
                approval: said.approval.filter(|asks| *asks),
                on_scope_conflict: said.on_scope_conflict.filter(|said| *said != OnScopeConflict::Allow),
                ..Settings::default()
            };
            *said == careful
        })
    }

    /// Whether the file says nothing.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}

/// One `[[rule]]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) selector: Selector,
    pub(crate) settings: Settings,
    /// Where what it says was read: an address, or a package with its version. Decides nothing.
    #[serde(skip)]
    pub(crate) source: Option<String>,
}

impl Rule {
    /// What its fields say, by their names in a file; without its id.
    pub(crate) fn in_words(&self) -> Vec<(String, String)> {
        let (selector, settings) = (serde_json::to_value(&self.selector), serde_json::to_value(&self.settings));
        let fields = [selector, settings].into_iter().flatten().filter_map(|part| match part {
            Value::Object(fields) => Some(fields),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        });
        let said = fields.flatten().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
            let text = match (name.as_str(), &value) {
                ("approval", Value::Bool(asks)) => if *asks { "ask" } else { "none" }.to_owned(),
                ("timeout" | "key_ttl" | "horizon", _) => match serde_json::from_value(value.clone()) {
                    Ok(span) => as_written(span),
                    Err(_) => value.to_string(),
                },
                (_, Value::String(text)) => text.clone(),
                _ => value.to_string(),
            };
            (name, text)
        });
        said.collect()
    }
}

/// A time as a file says it, and exactly: `90s`, `2h`.
fn as_written(span: Duration) -> String {
    let seconds = span.as_secs();
    let unit = [(86_400, "d"), (3_600, "h"), (60, "m")];
    match unit.into_iter().find(|(length, _)| seconds >= *length && seconds.is_multiple_of(*length)) {
        _ if span.subsec_nanos() > 0 => format!("{}ms", span.as_millis()),
        Some((length, unit)) => format!("{}{unit}", seconds / length),
        None => format!("{seconds}s"),
    }
}

/// Which tools a rule is about: all of the given parts have to hold.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Selector {
    pub(crate) name: Option<String>,
    pub(crate) patterns: Option<Patterns>,
    pub(crate) tool_namespace: Option<ToolNamespace>,
    pub(crate) server: Option<String>,
    /// Arguments that the tool's schema has to declare: a promise about a tool is not made for another of the same name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) has_arguments: Vec<String>,
}

impl Selector {
    pub(crate) fn is_empty(&self) -> bool {
        self.name.is_none() && self.patterns.is_none() && self.tool_namespace.is_none() && self.server.is_none()
    }

    /// Whether the rule is about this tool. A name or a glob may mean the bare name or the raw one.
    pub(crate) fn matches(&self, spec: &ToolSpec) -> bool {
        let declares = |name: &String| spec.input_schema.pointer("/properties").is_some_and(|p| p.get(name).is_some());
        self.matches_name(&spec.name) && self.has_arguments.iter().all(declares)
    }

    /// The name of the one tool that it is about; `None` where it may be about several.
    pub(crate) fn exact_name(&self) -> Option<String> {
        let is_pattern = |text: &&String| text.contains(['*', '?', '[', '{']);
        let of_patterns = || match self.patterns.as_ref()?.texts() {
            [only] => Some(only).filter(|text| !is_pattern(text)).cloned(),
            _ => None,
        };
        self.name.clone().or_else(of_patterns)
    }

    pub(crate) fn matches_name(&self, tool: &ToolName) -> bool {
        self.tool_namespace.is_none_or(|namespace| namespace == tool.namespace) && self.has_names_of(tool)
    }

    /// What it asks for beside names.
    pub(crate) fn besides(&self) -> Vec<&'static str> {
        let asked =
            [("tool_namespace", self.tool_namespace.is_some()), ("has_arguments", !self.has_arguments.is_empty())];
        asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(name, _)| name).collect()
    }

    /// Whether the names that it gives are those of a tool, whatever else it asks for.
    pub(crate) fn has_names_of(&self, tool: &ToolName) -> bool {
        self.server.as_ref().is_none_or(|server| *server == tool.server)
            && self.name.as_ref().is_none_or(|name| *name == tool.tool || *name == tool.raw)
            && self.patterns.as_ref().is_none_or(|patterns| patterns.match_tool(tool))
    }
}

/// Globs over tool names, case-sensitive.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub(crate) struct Patterns {
    texts: Vec<String>,
    #[serde(skip)]
    globs: GlobSet,
}

impl Patterns {
    /// Compiles globs; the error is the text that is none, and why.
    pub(crate) fn compile(texts: Vec<String>) -> Result<Self, (String, String)> {
        let mut builder = GlobSetBuilder::new();
        for text in &texts {
            let glob = GlobBuilder::new(text).build().map_err(|error| (text.clone(), error.kind().to_string()))?;
            builder.add(glob);
        }
        let globs = builder.build().map_err(|error| (texts.join(", "), error.kind().to_string()))?;
        Ok(Self { texts, globs })
    }

    pub(crate) fn match_tool(&self, tool: &ToolName) -> bool {
        self.globs.is_match(&tool.tool) || self.globs.is_match(&tool.raw)
    }

    pub(crate) fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// What a rule says about a mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) enum MarkerSetting {
    /// None is left, whatever a later rule says.
    Nothing,
    /// This one is.
    Mark(Marker),
}

impl Settings {
    /// Whether it makes calls more careful: a person is asked, a lost call is held, or it is one that is not harmless.
    pub(crate) fn calls_for_care(&self) -> bool {
        self.approval == Some(true)
            || self.on_unknown == Some(OnUnknown::Hold)
            || self.side_effect_class.is_some_and(SideEffectClass::has_effect)
            || self.on_scope_conflict.is_some_and(|said| said != OnScopeConflict::Allow)
    }

    /// What of this may be believed about a server that nobody vouches for: whatever makes it wait for somebody, and nothing that lets a
    /// call be sent again or settled without one.
    pub(crate) fn only_caution(&self) -> Self {
        let class = self.side_effect_class.filter(|class| class.has_effect());
        Self {
            side_effect_class: class,
            effect_kind: self.effect_kind.clone(),
            creates: self.creates.filter(|creates| *creates),
            carries_tools: self.carries_tools.filter(|carries| *carries),
            scope: self.scope.clone(),
            sends_files: self.sends_files.clone(),
            approval: self.approval.filter(|asks| *asks),
            // It adds to what is taken for granted of every server of others.
            reads: self.reads.clone().filter(|reads| !reads.is_empty()),
            requires_idempotency_key: None,
            ..Self::default()
        }
    }
}

/// What a rule says; each field may be left to a later rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Settings {
    pub(crate) side_effect_class: Option<SideEffectClass>,
    pub(crate) on_unknown: Option<OnUnknown>,
    pub(crate) key_channel: Option<KeyChannel>,
    pub(crate) key_ttl: Option<Duration>,
    pub(crate) probe: Option<ProbePolicy>,
    pub(crate) marker: Option<MarkerSetting>,
    /// What a call is found by on the other side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) found_by: Option<Vec<String>>,
    pub(crate) horizon: Option<Duration>,
    pub(crate) requires_idempotency_key: Option<bool>,
    pub(crate) effect_kind: Option<EffectKind>,
    /// Whether each call makes a new thing, when no `effect_kind` says which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) creates: Option<bool>,
    /// Whether its calls can be calls of any other tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) carries_tools: Option<bool>,
    pub(crate) scope: Option<ScopeRule>,
    pub(crate) volatile_fields: Option<Vec<String>>,
    pub(crate) sends_files: Option<Vec<String>>,
    pub(crate) errors_without_effect: Option<Vec<String>>,
    /// Whether a result is a failure only by its server's `isError`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) only_is_error: Option<bool>,
    pub(crate) timeout: Option<Duration>,
    /// Whether a person approves each call (`approval = "ask"`).
    pub(crate) approval: Option<bool>,
    pub(crate) on_scope_conflict: Option<OnScopeConflict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) composite: Option<Composite>,
    /// Programs of a tool with an `argv` argument that only look.
    pub(crate) harmless_programs: Option<Vec<String>>,
    /// What its answers bring into the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reads: Option<Vec<Reads>>,
}
