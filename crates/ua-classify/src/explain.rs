//! Explanations: what `ua tools explain` shows.
//!
//! Durable Jobs v1 spec §7.1: a catalog of thousands of tools is classified by rules, so a person has to be able to see
//! which rule it was. Names come from foreign servers, so control characters are escaped before a terminal sees them.

use std::fmt;

use serde::Serialize;
use ua_core::{CallPolicy, ClassSource, FoundBy, KeyChannel, OnUnknown, SideEffectClass, ToolName, ToolSpec};

use crate::key_argument::likely_key_arguments;

/// How a decision about a tool came about. Its `Display` is good for a terminal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The tool.
    pub tool: ToolName,
    /// What was decided.
    pub policy: CallPolicy,
    /// Programs with which a call of this tool is read-only instead.
    pub harmless_programs: Vec<String>,
    /// Every rule and source, the strongest first.
    pub considered: Vec<Considered>,
    /// What whoever writes a policy may want to know.
    pub hints: Vec<String>,
}

/// One rule or source, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Considered {
    /// What kind of source it is.
    pub source: ClassSource,
    /// The rule's id (`policy_rule_id` of the ledger).
    pub rule_id: String,
    /// The policy file that holds it.
    pub file: Option<String>,
    /// What became of it.
    pub verdict: Verdict,
    /// The settings that were taken from it.
    pub fields: Vec<&'static str>,
    /// Why, in a sentence.
    pub note: String,
}

/// A rule that calls for care with a tool that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleCaution {
    /// The policy file that holds it.
    pub file: String,
    /// The rule's id.
    pub rule_id: String,
    /// The name that it gives; `None` where it is about several.
    pub name: Option<String>,
    /// The server that it gives.
    pub server: Option<String>,
    /// The patterns that it gives.
    pub patterns: Vec<String>,
    /// Of a rule whose names are right: what else it asks for, of which no tool has all.
    pub besides: Vec<&'static str>,
}

impl IdleCaution {
    /// Which rule it is and what was meant, for a refusal; `None` where it may well be meant for other tools than those that are `there`. A rule about
    /// all tools of a server may be about one of another job, so that counts only where the name is nearly that of a server of this one. `shown` cuts
    /// and cleans what somebody wrote, to so many characters.
    pub fn in_words(&self, there: &[ToolName], shown: impl Fn(&str, usize) -> String) -> Option<String> {
        let near = |word: &str, names: &mut dyn Iterator<Item = &str>| {
            ua_core::nearest(word, names).map(|name| format!(" (did you mean `{name}`?)"))
        };
        let servers = || there.iter().map(|tool| tool.server.as_str());
        let quoted = |word: &str| format!("`{}`", shown(word, 100));
        let server = self.server.as_deref().unwrap_or_default();
        let of = if server.is_empty() { String::new() } else { format!(" of server {}", quoted(server)) };
        let has_server = server.is_empty() || servers().any(|known| known == server);
        let near_server = || near(server, &mut servers());
        let of_server = || there.iter().filter(|tool| !has_server || server.is_empty() || tool.server == server);
        let near_tool =
            |word: &str| near(word, &mut of_server().flat_map(|tool| [tool.raw.as_str(), tool.tool.as_str()]));
        let (what, nearest) = match (&self.name, self.besides.as_slice()) {
            (_, [first, ..]) => {
                let what = self.name.as_deref().or(self.patterns.first().map(String::as_str)).unwrap_or(server);
                (format!("{} with the `{first}` that it asks for", quoted(what)), String::new())
            }
            (None, []) if !has_server => (format!("server {}", quoted(server)), near_server()?),
            // Of a pattern it counts only where it is nearly a name of a tool of this job.
            (None, []) => {
                let mut patterns = self.patterns.iter();
                let typo = patterns.find_map(|pattern| Some((pattern, near_tool(pattern.trim_matches('*'))?)));
                let (pattern, nearest) = typo?;
                (format!("{}{of}", quoted(pattern)), nearest)
            }
            (Some(name), []) if has_server => (format!("{}{of}", quoted(name)), near_tool(name).unwrap_or_default()),
            (Some(name), []) => (format!("{}{of}", quoted(name)), near_server().unwrap_or_default()),
        };
        Some(format!("{what} in rule `{}` of {}{nearest}", shown(&self.rule_id, 60), shown(&self.file, 200)))
    }
}

impl Explanation {
    /// Whose word it is that calls make something, where a rule or a believed annotation says it and no rule says which kind.
    fn said_to_make(&self) -> Option<String> {
        let took = |field: &str| self.considered.iter().find(|considered| considered.fields.contains(&field));
        if let Some(rule) = took("creates") {
            return Some(format!("`creates` of {}", printable(&rule.rule_id)));
        }
        let said = took("effect_kind").filter(|considered| considered.source == ClassSource::Annotation)?;
        Some(format!("the server, whose annotations are trusted ({})", printable(&said.rule_id)))
    }
}

/// What became of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is about other tools, or has nothing to go by.
    DoesNotApply,
    /// It is about this tool and leaves the class to others.
    NamesNoClass,
    /// It decides the class.
    Decides(SideEffectClass),
    /// It names a class, but a stronger source has already decided.
    ComesTooLate(SideEffectClass),
}

/// Remarks about a tool and what was decided.
pub(crate) fn hints(tool: &ToolSpec, policy: &CallPolicy) -> Vec<String> {
    let mut hints = Vec::new();
    if policy.class.has_effect() && policy.key_channel.is_none() {
        hints.extend(likely_key_arguments(&tool.input_schema).iter().map(|name| {
            format!(
                "the argument {name:?} looks like an idempotency key; if the tool honours it, say so with key_channel = {{ argument = {name:?} }}"
            )
        }));
        if policy.requires_idempotency_key {
            hints.push("a key is required, but no rule says how the tool receives it: add key_channel".to_owned());
        }
    }
    if policy.class == SideEffectClass::External && policy.on_unknown == OnUnknown::Redo {
        hints.push(
            "redo repeats an external effect when its outcome is lost: at least once, not at most once".to_owned(),
        );
    }
    hints
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = &self.policy;
        writeln!(f, "{}", printable(&self.tool.raw))?;
        writeln!(f, "  class          {}, because {}", policy.class, printable(&policy.reason))?;
        writeln!(f, "  on unknown     {}: {}", policy.on_unknown, when_in_doubt(policy.on_unknown))?;
        let channel = match &policy.key_channel {
            Some(KeyChannel::Meta) => "in the request's _meta".to_owned(),
            Some(KeyChannel::Argument(name)) => format!("in the argument {name:?}"),
            Some(KeyChannel::Header(name)) => format!("in the header {name:?}"),
            None => "this tool cannot take an idempotency key".to_owned(),
        };
        writeln!(f, "  key            {channel}")?;
        if let Some(marker) = &policy.marker {
            writeln!(
                f,
                "  mark           the key is left in the argument {:?}, so that it can be found",
                marker.argument
            )?;
        }
        for name in &policy.found_by {
            writeln!(f, "  found by       {}", printable(name))?;
        }
        if let Some(probe) = &policy.probe {
            let horizon = policy.horizon.unwrap_or(CallPolicy::DEFAULT_HORIZON);
            let absent = match &probe.absent {
                Some(_) => {
                    format!("absent counts {} s after the call was given up", (horizon + probe.settle).as_secs_f64())
                }
                None => "it can only find the call, never prove that it is not there".to_owned(),
            };
            let by = match &probe.found.by {
                FoundBy::Mark { .. } => String::new(),
                FoundBy::Values(values) => {
                    format!(" by {} and the time at which it was made", printable(&values.names()))
                }
            };
            writeln!(f, "  probe          {}{by}; {absent}", printable(&probe.tool))?;
        }
        if let Some(effect) = &policy.effect_kind {
            let again = "the same content again is a question in a job, and returns the first answer at the gateway";
            let identity = match (policy.is_by_content(), policy.kind_is_guessed) {
                (true, false) => "the same content is the same effect".to_owned(),
                (true, true) if policy.makes_anew => format!(
                    "declared, but that its calls make something is inferred from its name only: {again}; `creates` in the rule decides it"
                ),
                (true, true) => match self.said_to_make() {
                    Some(by) => format!("that each call makes one says {by}, and which kind it is its name: {again}"),
                    None => format!("inferred from its name only: {again}"),
                },
                (false, _) => "each call is a separate effect".to_owned(),
            };
            writeln!(f, "  effect         {} ({identity})", effect.as_str())?;
        } else if policy.is_by_content() {
            writeln!(
                f,
                "  effect         makes a thing, by its name (many services have one of it however often it is made, so it has no kind): the same content again is a question in a job; `creates` in a rule decides it"
            )?;
        }
        if let Some(composite) = &policy.composite {
            writeln!(
                f,
                "  composite      each action in {:?} is a call of its own, with the class, key and scope of its own name",
                printable(&composite.list)
            )?;
        }
        if !policy.reads.is_empty() {
            let words: Vec<&str> = policy.reads.iter().map(|reads| reads.as_str()).collect();
            writeln!(f, "  reads          {} (counts towards the taint of the run)", words.join(", "))?;
        }
        if policy.needs_approval {
            writeln!(f, "  approval       a person approves each call")?;
        }
        if !self.harmless_programs.is_empty() {
            writeln!(f, "  read_only      when argv begins with {}", self.harmless_programs.join(", "))?;
        }
        writeln!(f, "considered, the strongest first:")?;
        let mut unrelated = 0_usize;
        for considered in &self.considered {
            let fields = match considered.fields.as_slice() {
                [] => String::new(),
                fields => format!(" [{}]", fields.join(", ")),
            };
            let (mark, verdict) = match considered.verdict {
                Verdict::DoesNotApply => {
                    unrelated += 1;
                    continue;
                }
                Verdict::Decides(class) => ('*', class.to_string()),
                Verdict::ComesTooLate(class) => (' ', format!("({class})")),
                Verdict::NamesNoClass => (' ', "-".to_owned()),
            };
            let (source, rule) = (considered.source.as_str(), printable(&considered.rule_id));
            let note = printable(&considered.note);
            writeln!(f, "{mark} {source:<11} {rule:<28} {verdict:<11} {note}{fields}")?;
        }
        if unrelated > 0 {
            writeln!(f, "  ({unrelated} others do not apply)")?;
        }
        self.hints.iter().try_for_each(|hint| writeln!(f, "hint: {}", printable(hint)))
    }
}

/// What is done about a call of which nobody knows whether it happened, in words.
pub fn when_in_doubt(on_unknown: OnUnknown) -> &'static str {
    match on_unknown {
        OnUnknown::Redo => "run it again",
        OnUnknown::RedoKeyed => "run it again under the same key",
        OnUnknown::Probe => "ask a read-only tool whether it happened",
        OnUnknown::Hold => "stop and ask a person",
        OnUnknown::Continue => "tell the model and block the scope until a person answers",
    }
}

/// Foreign text for a terminal: control characters and invisible ones escaped.
fn printable(text: &str) -> String {
    let is_hidden = |c: char| c.is_control() || ua_core::is_hidden(c);
    text.chars()
        .flat_map(|c| {
            let escaped = is_hidden(c).then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
