//! Words of a job or a step that select tools and effects: what each selects, and which are the name of nothing.
//!
//! A misspelt word selects nothing, so what it forbids is done and what it waits for never comes. Every front door asks here before anything is
//! stored. Proved by: the tests of `ua-host` and of `ua-runner`'s `granular` that refuse such words.

use std::collections::BTreeSet;

use globset::{Glob, GlobMatcher};
use ua_classify::Classifier;
use ua_core::{CallPolicy, RunSpec, SideEffectClass, StopCondition, ToolName, ToolSpec};

use crate::catalog::Catalog;
use crate::guardrail::Rules;

/// Where the destinations stand that a job allows, tools among them.
const DESTINATIONS: &str = "constraints.allowed_destinations";

/// Where conditions stand.
pub const CONDITIONS: &str = "stop_conditions";

/// A tool and its policy, as they are offered.
pub type Offered = (ToolSpec, CallPolicy);

/// A word of a job that selects tools, and what it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Where it stands, as a field of the job file.
    pub field: &'static str,
    /// What stands there.
    pub word: String,
    /// The tools that it selects, as the model sees their names; none for a condition about a file.
    pub tools: Vec<String>,
    /// Whether it is the name of anything; a known kind of effect may be one that no tool of this job has.
    pub is_known: bool,
    /// Of one that is not, the name that is most like it.
    pub nearest: Option<String>,
}

/// What may be selected.
#[derive(Debug, Default)]
pub struct Names {
    tools: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Names {
    /// The names of these tools and of their kinds of effects, and `own`: tools of a server of ours that is not asked for them.
    pub fn of(tools: &[Offered], own: &[&str]) -> Self {
        let listed = tools.iter().map(|(spec, _)| spec.name.clone());
        // No server lists these; the job has switches for them.
        let names = listed.chain([ToolName::ask_user(), ToolName::task()]).flat_map(|name| [name.raw, name.tool]);
        let kinds = tools.iter().filter_map(|(_, policy)| Some(policy.effect_kind.as_ref()?.as_str().to_owned()));
        // What the job's own short names stand for is a kind whether or not a tool of this job has it.
        let known = StopCondition::NAMES.iter().filter_map(|name| effect_of(&StopCondition::Named((*name).to_owned())));
        let own = own.iter().map(|name| (*name).to_owned());
        Self { tools: names.chain(own).collect(), kinds: kinds.chain(known).collect() }
    }

    /// These names of tools, each as the model sees it, without its server as well.
    pub fn known(raw: impl IntoIterator<Item = String>) -> Self {
        let both = |raw: String| {
            let bare =
                raw.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")).map(|(_, bare)| bare.to_owned());
            bare.into_iter().chain([raw])
        };
        Self { tools: raw.into_iter().flat_map(both).collect(), kinds: BTreeSet::new() }
    }

    /// Whether a word or pattern is the name of a tool, or, if these count, of a kind of effect.
    pub fn has(&self, word: &str, with_kinds: bool) -> bool {
        let Some(glob) = glob(word) else { return true };
        self.tools.iter().chain(self.kinds.iter().filter(|_| with_kinds)).any(|name| glob.is_match(name))
    }

    /// The name that is most like a word, `more` included. One that ends with a star is compared with beginnings of names, up to where a part of
    /// them ends (`emial.*` is like `email.*`); any other pattern is like none.
    pub fn nearest(&self, word: &str, more: &[&str]) -> Option<String> {
        let names = || self.tools.iter().chain(&self.kinds).map(String::as_str).chain(more.iter().copied());
        let is_pattern = |word: &str| word.contains(['*', '?', '[', '{']);
        if let Some(stem) = word.strip_suffix('*').filter(|stem| !is_pattern(stem)) {
            let ends = |name: &'_ str| name.match_indices(['.', '_', '-']).map(|(at, _)| at + 1).collect::<Vec<_>>();
            let beginnings = names().flat_map(|name| ends(name).into_iter().map(move |end| &name[..end]));
            return ua_core::nearest(stem, beginnings).map(|stem| format!("{stem}*"));
        }
        if is_pattern(word) { None } else { ua_core::nearest(word, names()).map(str::to_owned) }
    }

    /// The kind of effect that is most like a word, where nothing else may stand: the name of a tool would be refused there.
    fn nearest_kind(&self, word: &str) -> Option<String> {
        ua_core::nearest(word, self.kinds.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// A word as a pattern; a wrong one is refused elsewhere.
fn glob(word: &str) -> Option<GlobMatcher> {
    Some(Glob::new(word).ok()?.compile_matcher())
}

/// Words that select by the names of tools, as those of a job do: each a name, with or without its server's, or a pattern.
#[derive(Debug)]
pub struct ToolWords(Vec<GlobMatcher>);

impl ToolWords {
    /// Reads them.
    ///
    /// # Errors
    /// The word that is no pattern, and why.
    pub fn of(words: &[String]) -> Result<Self, (String, String)> {
        let read = |word: &String| match Glob::new(word) {
            Ok(glob) => Ok(glob.compile_matcher()),
            Err(error) => Err((word.clone(), error.kind().to_string())),
        };
        words.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Whether one of them is the name of this tool.
    pub fn select(&self, name: &ToolName) -> bool {
        self.0.iter().any(|glob| glob.is_match(&name.tool) || glob.is_match(&name.raw))
    }
}

/// What a word may select by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// Names of tools.
    Name,
    /// These, and kinds of effects.
    Kind,
    /// These, and classes.
    Class,
}

/// The tools that a word selects.
fn selected(word: &str, by: By, tools: &[Offered]) -> Vec<String> {
    let (class, glob) = (word.parse::<SideEffectClass>().ok().filter(|_| by == By::Class), glob(word));
    let is_meant = |(spec, policy): &&Offered| {
        let kind = policy.effect_kind.as_ref().filter(|_| by != By::Name);
        class.is_some_and(|class| class == policy.class)
            || glob.as_ref().is_some_and(|glob| {
                glob.is_match(&spec.name.raw)
                    || glob.is_match(&spec.name.tool)
                    || kind.is_some_and(|kind| glob.is_match(kind.as_str()))
            })
    };
    tools.iter().filter(is_meant).map(|(spec, _)| spec.name.raw.clone()).collect()
}

/// The kind of effect that a condition counts; `None` of one about a file.
pub fn effect_of(condition: &StopCondition) -> Option<String> {
    match condition.expanded() {
        StopCondition::Effect { effect, .. } => Some(effect),
        StopCondition::Artifact { .. } | StopCondition::Named(_) => None,
    }
}

/// The conditions of a job and of its phases.
pub fn conditions(spec: &RunSpec) -> impl Iterator<Item = &StopCondition> {
    spec.stop_conditions.iter().chain(spec.phases.iter().flat_map(|phase| &phase.stop_conditions))
}

/// Whether a job says anything about tools or effects that could be the name of nothing.
pub fn has_selectors(spec: &RunSpec) -> bool {
    let lists =
        [&spec.escalation.ask_human_before, &spec.constraints.forbidden_actions, &spec.tools.allow, &spec.tools.deny];
    lists.into_iter().any(|list| !list.is_empty())
        || !tools_of_sub_agents(spec).is_empty()
        || spec.constraints.allowed_destinations.iter().any(|word| may_be_tool(word))
        || conditions(spec).any(|condition| effect_of(condition).is_some())
}

/// The words that select the tools of sub-agents.
fn tools_of_sub_agents(spec: &RunSpec) -> &[String] {
    spec.subagents.as_ref().map_or(&[], |subagents| &subagents.tools)
}

/// Whether a destination may be the name of a tool, or a pattern of such names: addresses, hosts, numbers and channels have signs that those do not
/// have.
fn may_be_tool(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-*".contains(c))
}

/// Whether all that these tools can do is seen. Which actions a composite tool knows is not listed anywhere.
pub fn are_all_seen(tools: &[Offered]) -> bool {
    !tools.iter().any(|(spec, policy)| spec.name.tool.starts_with("COMPOSIO_") || policy.composite.is_some())
}

/// What each selector and condition of a job selects among these tools, in the order of the job file's fields. `own` as in [`Names::of`].
pub fn selections(spec: &RunSpec, tools: &[Offered], own: &[&str]) -> Vec<Selection> {
    let names = Names::of(tools, own);
    let classes: Vec<&str> = SideEffectClass::ALL.iter().map(|class| class.as_str()).collect();
    let lists: [(&'static str, &[String], By); 5] = [
        ("escalation.ask_human_before", &spec.escalation.ask_human_before, By::Class),
        ("constraints.forbidden_actions", &spec.constraints.forbidden_actions, By::Kind),
        ("tools.allow", &spec.tools.allow, By::Name),
        ("tools.deny", &spec.tools.deny, By::Name),
        ("subagents.tools", tools_of_sub_agents(spec), By::Name),
    ];
    let mut found = Vec::new();
    for (field, words, by) in lists {
        found.extend(words.iter().map(|word| {
            let is_class = by == By::Class && word.parse::<SideEffectClass>().is_ok();
            let is_known = is_class || names.has(word, by != By::Name);
            let more: &[&str] = if by == By::Class { &classes } else { &[] };
            let nearest = if is_known { None } else { names.nearest(word, more) };
            Selection { field, word: word.clone(), tools: selected(word, by, tools), is_known, nearest }
        }));
    }
    for word in &spec.constraints.allowed_destinations {
        let tools = selected(word, By::Kind, tools);
        let is_known = !tools.is_empty() || !may_be_tool(word) || names.has(word, true);
        let nearest = if is_known { None } else { names.nearest(word, &[]) };
        // Where things go is not known here; what is like the name of a tool and is none was meant to be one.
        let is_slip = !is_known && (nearest.is_some() || word.starts_with("mcp__"));
        if is_slip || !tools.is_empty() {
            found.push(Selection { field: DESTINATIONS, word: word.clone(), tools, is_known, nearest });
        }
    }
    for condition in conditions(spec) {
        let Some(kind) = effect_of(condition) else {
            let word = condition.expanded().describe();
            found.push(Selection { field: CONDITIONS, word, tools: Vec::new(), is_known: true, nearest: None });
            continue;
        };
        let has_kind = |policy: &CallPolicy| policy.effect_kind.as_ref().is_some_and(|own| own.as_str() == kind);
        let with_it = tools.iter().filter(|(_, policy)| has_kind(policy)).map(|(spec, _)| spec.name.raw.clone());
        let is_known = names.kinds.contains(&kind);
        let nearest = if is_known { None } else { names.nearest_kind(&kind) };
        found.push(Selection { field: CONDITIONS, tools: with_it.collect(), word: kind, is_known, nearest });
    }
    found
}

/// The selectors of a job that are the name of no tool of these, of no class and of no kind of effect. `own` as in [`Names::of`].
pub fn unmatched(spec: &RunSpec, tools: &[Offered], own: &[&str]) -> Vec<Selection> {
    let mut found = selections(spec, tools, own);
    found.retain(|selection| !selection.is_known);
    found
}

/// The effects that conditions wait for and that no tool of these may have, so that they are never met.
pub fn unmakeable(spec: &RunSpec, tools: &[Offered], classifier: &Classifier, rules: &Rules) -> BTreeSet<String> {
    let specs: Vec<ToolSpec> = tools.iter().map(|(spec, _)| spec.clone()).collect();
    let catalog = Catalog::new(specs, classifier, rules).ok();
    let made = |effect: &str| catalog.as_ref().is_some_and(|all| all.makers_of(effect) != (Vec::new(), Vec::new()));
    // One that is not to happen needs nobody who can do it.
    let wanted = conditions(spec)
        .filter(|condition| !matches!(condition.expanded(), StopCondition::Effect { count: 0, .. }))
        .filter_map(effect_of);
    wanted.filter(|effect| !made(effect)).collect()
}
