//! Selectors of a job that select nothing: a word in `ask_human_before` that is misspelt would let a call run that a person wanted to be asked
//! about, so a job that has one is not started.
//!
//! Tools are listed for this before anything is stored, and only when a job has selectors. Servers that cannot be listed now are not judged
//! here: the start that follows says why they cannot.

use std::collections::BTreeSet;

use globset::{Glob, GlobMatcher};
use ua_classify::IdleCaution;
use ua_core::{CallPolicy, RunId, RunSpec, SideEffectClass, StopCondition, ToolName, ToolSpec};
use ua_dispatch::{Catalog, Rules, TransportError};
use ua_mcp::ServerSpec;

use crate::error::{HostError, chain};
use crate::host::Host;
use crate::launch::Launch;
use crate::people::People;
use crate::policies;
use crate::servers;
use crate::settings::{Layer, Settings};
use crate::text::line;

/// Where conditions stand.
const CONDITIONS: &str = "stop_conditions";

/// A word of a job that selects tools, and what it selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Where it stands.
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
struct Names {
    tools: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl Names {
    fn of(tools: &[(ToolSpec, CallPolicy)]) -> Self {
        let listed = tools.iter().map(|(spec, _)| spec.name.clone());
        // No server lists these; the job has switches for them.
        let names = listed.chain([ToolName::ask_user(), ToolName::task()]).flat_map(|name| [name.raw, name.tool]);
        let kinds = tools.iter().filter_map(|(_, policy)| Some(policy.effect_kind.as_ref()?.as_str().to_owned()));
        // What the job's own short names stand for is a kind whether or not a tool of this job has it.
        let known = StopCondition::NAMES.iter().filter_map(|name| effect_of(&StopCondition::Named((*name).to_owned())));
        let own = own_tools().iter().map(|name| (*name).to_owned());
        Self { tools: names.chain(own).collect(), kinds: kinds.chain(known).collect() }
    }

    fn has(&self, word: &str, with_kinds: bool) -> bool {
        let Some(glob) = glob(word) else { return true };
        self.tools.iter().chain(self.kinds.iter().filter(|_| with_kinds)).any(|name| glob.is_match(name))
    }

    /// The name that is most like a word; a pattern is like none, since it is short of most of a name.
    fn nearest(&self, word: &str, more: &[&str]) -> Option<String> {
        if word.contains(['*', '?', '[', '{']) {
            return None;
        }
        let names = self.tools.iter().chain(&self.kinds).map(String::as_str).chain(more.iter().copied());
        ua_core::nearest(word, names).map(str::to_owned)
    }
}

/// The tools of our own server, whether or not they are offered here: which of them are depends on the job and the machine, and a job that
/// rules one out is right everywhere.
fn own_tools() -> &'static [&'static str] {
    #[cfg(feature = "toolserver")]
    return ua_toolserver::tool_names();
    #[cfg(not(feature = "toolserver"))]
    return &[];
}

/// A word as a pattern; a wrong one is refused elsewhere.
fn glob(word: &str) -> Option<GlobMatcher> {
    Some(Glob::new(word).ok()?.compile_matcher())
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
fn selected(word: &str, by: By, tools: &[(ToolSpec, CallPolicy)]) -> Vec<String> {
    let (class, glob) = (word.parse::<SideEffectClass>().ok().filter(|_| by == By::Class), glob(word));
    let is_meant = |(spec, policy): &&(ToolSpec, CallPolicy)| {
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

fn effect_of(condition: &StopCondition) -> Option<String> {
    match condition.expanded() {
        StopCondition::Effect { effect, .. } => Some(effect),
        StopCondition::Artifact { .. } | StopCondition::Named(_) => None,
    }
}

/// What each selector and condition of a job selects among these tools, in the order of the job file's fields.
pub fn selections(spec: &RunSpec, tools: &[(ToolSpec, CallPolicy)]) -> Vec<Selection> {
    let names = Names::of(tools);
    let classes: Vec<&str> = SideEffectClass::ALL.iter().map(|class| class.as_str()).collect();
    let lists = [
        ("escalation.ask_human_before", &spec.escalation.ask_human_before, By::Class),
        ("constraints.forbidden_actions", &spec.constraints.forbidden_actions, By::Kind),
        ("tools.allow", &spec.tools.allow, By::Name),
        ("tools.deny", &spec.tools.deny, By::Name),
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
    for condition in conditions(spec) {
        let Some(kind) = effect_of(condition) else {
            let word = condition.expanded().describe();
            found.push(Selection { field: CONDITIONS, word, tools: Vec::new(), is_known: true, nearest: None });
            continue;
        };
        let has_kind = |policy: &CallPolicy| policy.effect_kind.as_ref().is_some_and(|own| own.as_str() == kind);
        let with_it = tools.iter().filter(|(_, policy)| has_kind(policy)).map(|(spec, _)| spec.name.raw.clone());
        let is_known = names.kinds.contains(&kind);
        let nearest = if is_known { None } else { names.nearest(&kind, &[]) };
        found.push(Selection { field: CONDITIONS, tools: with_it.collect(), word: kind, is_known, nearest });
    }
    found
}

/// The selectors of a job that are the name of no tool of these, of no class and of no kind of effect.
pub fn unmatched(spec: &RunSpec, tools: &[(ToolSpec, CallPolicy)]) -> Vec<Selection> {
    let mut found = selections(spec, tools);
    found.retain(|selection| !selection.is_known);
    found
}

/// The error about selectors that are the name of nothing.
pub fn refusal(found: &[Selection]) -> HostError {
    let words: Vec<String> = found
        .iter()
        .map(|typo| {
            let nearest = typo.nearest.as_ref().map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            format!("`{}` in {}{nearest}", line(&typo.word, 100), typo.field)
        })
        .collect();
    HostError::usage(format!("the job names tools or effects that do not exist: {}", words.join("; ")))
        .hint(
            "`ua tools list` shows the tools and their classes; correct the word, take it out, or name the tool server that has it with \
             --mcp-config; nothing was started",
        )
}

fn conditions(spec: &RunSpec) -> impl Iterator<Item = &StopCondition> {
    spec.stop_conditions.iter().chain(spec.phases.iter().flat_map(|phase| &phase.stop_conditions))
}

fn has_selectors(spec: &RunSpec) -> bool {
    let lists =
        [&spec.escalation.ask_human_before, &spec.constraints.forbidden_actions, &spec.tools.allow, &spec.tools.deny];
    lists.into_iter().any(|list| !list.is_empty())
        || conditions(spec).any(|condition| effect_of(condition).is_some())
        || chosen_tool(spec).is_some()
}

/// The tool that every reply is to call.
fn chosen_tool(spec: &RunSpec) -> Option<&str> {
    spec.model.tool_choice.as_deref().filter(|choice| !["auto", "any", "none"].contains(choice))
}

/// Refuses a job whose start would fail once its tools are there, or that says something about tools or effects that do not exist. Nothing is
/// stored, and no tool is called.
pub(crate) async fn check(host: &Host, people: &dyn People, launch: &Launch, spec: &RunSpec) -> Result<(), HostError> {
    let settings = host.settings();
    if says_nothing(settings, launch, spec) {
        return Ok(());
    }
    // Where they cannot be listed now, whoever drives the run asks again before it begins.
    let Ok(tools) = listed(host, people, launch, spec).await? else { return Ok(()) };
    judged(settings, launch, spec, &tools)?.map_or(Ok(()), Err)
}

/// The same of tools that are there, for whoever drives the run.
///
/// # Errors
/// A policy file cannot be used.
pub(crate) fn refused(
    settings: &Settings,
    launch: &Launch,
    spec: &RunSpec,
    tools: &[ToolSpec],
) -> Result<Option<HostError>, HostError> {
    if says_nothing(settings, launch, spec) {
        return Ok(None);
    }
    judged(settings, launch, spec, &with_policies(settings, launch, tools.to_vec())?)
}

/// Whether nothing is said about tools that could name one that is not there.
fn says_nothing(settings: &Settings, launch: &Launch, spec: &RunSpec) -> bool {
    !has_selectors(spec) && denied_here(settings).is_empty() && launch.policy_files(settings).is_empty()
}

/// Why a job is refused that would be offered these tools. `ua job` and `ua job --check` ask here alone, so neither refuses what the other
/// lets start.
///
/// # Errors
/// A policy file cannot be used.
pub(crate) fn judged(
    settings: &Settings,
    launch: &Launch,
    spec: &RunSpec,
    tools: &[(ToolSpec, CallPolicy)],
) -> Result<Option<HostError>, HostError> {
    let classifier = launch.classifier(settings)?;
    let specs: Vec<ToolSpec> = tools.iter().map(|(tool, _)| tool.clone()).collect();
    let rules = Rules::of(spec).map_err(HostError::usage)?;
    if let Some(error) = Catalog::problems(specs.clone(), &classifier, &rules).first() {
        return Ok(Some(HostError::usage(chain(error)).hint(
            "correct the rule or the job; `ua tools explain` shows what decides about a tool; nothing was started",
        )));
    }
    // Which actions a composite tool knows is not listed anywhere.
    if tools.iter().any(|(spec, policy)| spec.name.tool.starts_with("COMPOSIO_") || policy.composite.is_some()) {
        return Ok(None);
    }
    let found = unmatched(spec, tools);
    if !found.is_empty() {
        return Ok(Some(refusal(&found)));
    }
    if let Some(denied) = misspelt_denials(&denied_here(settings), tools) {
        return Ok(Some(denied));
    }
    let files: Vec<String> =
        launch.policies_of_this_job(settings)?.iter().map(|file| file.display().to_string()).collect();
    if let Some(idle) = idle_cautions(&classifier.idle_cautions(&files, &specs), tools) {
        return Ok(Some(idle));
    }
    let made = |effect: &str| {
        let catalog = Catalog::new(specs.clone(), &classifier, &rules);
        catalog.is_ok_and(|catalog| catalog.makers_of(effect) != (Vec::new(), Vec::new()))
    };
    // One that is not to happen needs nobody who can do it.
    let wanted = conditions(spec)
        .filter(|condition| !matches!(condition.expanded(), StopCondition::Effect { count: 0, .. }))
        .filter_map(effect_of);
    let missing: BTreeSet<String> = wanted.filter(|effect| !made(effect)).collect();
    if !missing.is_empty() {
        return Ok(Some(unmakeable(&missing, spec)));
    }
    Ok(unknown_choice(spec, tools))
}

/// The error about a tool that every reply is to call and that is not there.
fn unknown_choice(spec: &RunSpec, tools: &[(ToolSpec, CallPolicy)]) -> Option<HostError> {
    let choice = chosen_tool(spec)?;
    let names = || tools.iter().map(|(tool, _)| tool.name.raw.as_str());
    if names().any(|name| name == choice) {
        return None;
    }
    let message = format!("no tool of this job is called {:?}, which `model.tool_choice` names", line(choice, 100));
    let hint = "name a tool as `ua tools list` shows it, or `auto`, `any` or `none`; nothing was started";
    Some(HostError::not_found(message, choice, names().chain(["auto", "any", "none"]), hint))
}

/// The error about effects that conditions want and no tool has: such a job can never be done.
fn unmakeable(missing: &BTreeSet<String>, spec: &RunSpec) -> HostError {
    let of = |effect: &String| {
        let mut names = conditions(spec).filter(|condition| effect_of(condition).as_ref() == Some(effect));
        match names.next() {
            Some(StopCondition::Named(name)) => format!("`{}` (`{name}`)", line(effect, 100)),
            Some(StopCondition::Effect { .. } | StopCondition::Artifact { .. }) | None => {
                format!("`{}`", line(effect, 100))
            }
        }
    };
    let words: Vec<String> = missing.iter().map(of).collect();
    HostError::usage(format!("no tool of this job has the effect that a stop condition asks for: {}", words.join(", ")))
        .hint(
            "offer a tool that has it, say in a policy which tool does (`effect_kind`, and a class that is not read_only), or take the \
             condition out; `ua job FILE --check` lists the tools; nothing was started",
        )
}

/// The error about rules of this job that call for care with a tool that is not there.
fn idle_cautions(idle: &[IdleCaution], tools: &[(ToolSpec, CallPolicy)]) -> Option<HostError> {
    let names = Names::of(tools);
    let words: Vec<String> = idle
        .iter()
        .filter(|idle| !names.has(&idle.name, false))
        .map(|idle| {
            let nearest = names.nearest(&idle.name, &[]);
            let nearest = nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            format!(
                "`{}` in rule `{}` of {}{nearest}",
                line(&idle.name, 100),
                line(&idle.rule_id, 60),
                line(&idle.file, 200)
            )
        })
        .collect();
    (!words.is_empty()).then(|| {
        HostError::usage(format!("the policies of this job call for care with tools that do not exist: {}", words.join("; ")))
            .hint(
                "a rule with a misspelt name protects nothing: correct it, or take the rule out; rules for other jobs belong in the user's \
                 policy.toml; `ua tools list` shows the tools; nothing was started",
            )
    })
}

/// The denylist, where it is said for this start: by the environment or the project's file. The user's own configuration is for all
/// projects, and may name tools that only another one has; `ua doctor` shows those.
fn denied_here(settings: &Settings) -> Vec<String> {
    const DENYLIST: &str = "UA_SIDE_EFFECT_DENYLIST";
    let is_general = settings.of_environment(DENYLIST).is_none()
        && settings.of_files(DENYLIST).is_some_and(|said| said.layer == Layer::User);
    if is_general { Vec::new() } else { policies::names(settings, DENYLIST) }
}

/// The error about names of the denylist that are about no tool: a misspelt one protects from nothing.
fn misspelt_denials(denied: &[String], tools: &[(ToolSpec, CallPolicy)]) -> Option<HostError> {
    let names = Names::of(tools);
    let words: Vec<String> = denied
        .iter()
        .filter(|word| !names.has(word, false))
        .map(|word| {
            let nearest = names.nearest(word, &[]);
            let nearest = nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"));
            format!("`{}`{nearest}", line(word, 100))
        })
        .collect();
    (!words.is_empty()).then(|| {
        HostError::usage(format!(
            "UA_SIDE_EFFECT_DENYLIST (side_effect_denylist) names tools that do not exist: {}",
            words.join("; ")
        ))
        .hint("`ua tools list` shows the tools; correct the name or take it out; nothing was started")
    })
}

/// The tools that a job would be offered, each with its policy.
type Offered = Vec<(ToolSpec, CallPolicy)>;

/// The tools that the job would be offered, with their policies, or why they cannot be listed now.
pub(crate) async fn listed(
    host: &Host,
    people: &dyn People,
    launch: &Launch,
    spec: &RunSpec,
) -> Result<Result<Offered, TransportError>, HostError> {
    let folder = crate::paths::temporary_folder()?;
    let mut specs: Vec<ServerSpec> = Vec::new();
    if spec.tools.builtin {
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace)
            .map_err(|e| HostError::storage(format!("cannot create {}: {e}", workspace.display())))?;
        specs.push(servers::builtin_server(host, folder.path(), &workspace, launch, spec.tools.run_command)?);
    }
    specs.extend(launch.configured_servers(host, spec)?);
    let names = servers::names(&specs);
    let transport = servers::transport(host, specs, &folder.path().join("locks"), RunId::new(host.env()))?;
    let tools = servers::list(host, &transport, &names, |sentence| people.remark(sentence)).await;
    transport.shutdown().await;
    let tools = match tools {
        Ok(tools) => tools,
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(with_policies(host.settings(), launch, tools)?))
}

fn with_policies(settings: &Settings, launch: &Launch, tools: Vec<ToolSpec>) -> Result<Offered, HostError> {
    let classifier = launch.classifier(settings)?;
    let classified = |tool: ToolSpec| {
        let policy = classifier.classify(&tool, None);
        (tool, policy)
    };
    Ok(tools.into_iter().map(classified).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use ua_core::ToolNamespace;

    use super::*;

    fn tools() -> Vec<(ToolSpec, CallPolicy)> {
        let tool = |name: &str, kind: Option<&str>| {
            let name = ToolName::qualified(ToolNamespace::Mcp, "forum", name);
            let annotations = ua_core::ToolAnnotations::default();
            let spec = ToolSpec { name, description: String::new(), input_schema: json!({}), annotations };
            let effect_kind = kind.and_then(ua_core::EffectKind::parse);
            let policy = CallPolicy { effect_kind, ..CallPolicy::unclassified() };
            (spec, policy)
        };
        vec![tool("post_comment", Some("comment.post")), tool("send_email", Some("email.send"))]
    }

    fn found(job: serde_json::Value) -> Vec<(String, Option<String>)> {
        let mut job = job;
        job["objective"] = "x".into();
        let spec = RunSpec::parse(&job.to_string()).unwrap();
        unmatched(&spec, &tools()).into_iter().map(|typo| (typo.word, typo.nearest)).collect()
    }

    #[test]
    fn a_misspelt_selector_is_found_with_the_nearest_name() {
        let some = |word: &str, name: &str| (word.to_owned(), Some(name.to_owned()));
        let ask = |word: &str| json!({"escalation": {"ask_human_before": [word]}});
        assert_eq!(found(ask("post_coment")), [some("post_coment", "post_comment")]);
        assert_eq!(found(ask("externl")), [some("externl", "external")]);
        assert_eq!(found(json!({"tools": {"deny": ["sned_email"]}})), [some("sned_email", "send_email")]);
        assert_eq!(found(json!({"tools": {"allow": ["nothing_*"]}})), [("nothing_*".to_owned(), None)]);
        let forbidden = json!({"constraints": {"forbidden_actions": ["emial.send"]}});
        assert_eq!(found(forbidden), [some("emial.send", "email.send")]);
        assert_eq!(found(json!({"stop_conditions": [{"effect": "emial.send"}]})), [some("emial.send", "email.send")]);
    }

    #[cfg(feature = "toolserver")]
    #[test]
    fn a_tool_of_our_own_exists_whether_or_not_it_is_offered() {
        assert_eq!(found(json!({"tools": {"deny": ["run_command"]}})), []);
        let forbidden = |words: &[&str]| json!({"constraints": {"forbidden_actions": words}});
        assert_eq!(found(forbidden(&["generate_image", "web_search"])), []);
        let typo = ("run_comand".to_owned(), Some("run_command".to_owned()));
        assert_eq!(found(json!({"tools": {"deny": ["run_comand"]}})), [typo]);
    }

    #[test]
    fn a_denylist_that_protects_from_nothing_is_refused() {
        let said = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            misspelt_denials(&words, &tools()).map(|error| error.to_string())
        };
        assert_eq!(said(&["post_comment", "mcp__forum__*", "send_*"]), None);
        let wrong = said(&["post_comment", "snd_emial"]).unwrap();
        assert!(wrong.contains("`snd_emial` (did you mean `send_email`?)"), "{wrong}");
        assert!(said(&["nothing_*"]).unwrap().contains("`nothing_*`"));
    }

    #[test]
    fn what_a_word_selects_is_told() {
        let job = json!({
            "objective": "x",
            "escalation": {"ask_human_before": ["comment.*", "external"]},
            "tools": {"deny": ["send_*"]},
            "stop_conditions": ["email_sent_once", {"artifact": "a.md"}, "final_notification_sent"],
        });
        let spec = RunSpec::parse(&job.to_string()).unwrap();
        let found = selections(&spec, &tools());
        let found: Vec<(&str, &str, Vec<&str>)> = found
            .iter()
            .map(|one| (one.field, one.word.as_str(), one.tools.iter().map(String::as_str).collect()))
            .collect();
        let (comment, mail) = ("mcp__forum__post_comment", "mcp__forum__send_email");
        let wanted = [
            ("escalation.ask_human_before", "comment.*", vec![comment]),
            ("escalation.ask_human_before", "external", vec![comment, mail]),
            ("tools.deny", "send_*", vec![mail]),
            ("stop_conditions", "email.send", vec![mail]),
            ("stop_conditions", "file a.md", vec![]),
            ("stop_conditions", "run.notify", vec![]),
        ];
        assert_eq!(found, wanted);
    }

    #[test]
    fn names_globs_kinds_and_classes_are_selectors() {
        for word in
            ["post_*", "mcp__forum__*", "comment.post", "comment.*", "external", "email.*", "run.notify", "ask_user"]
        {
            assert_eq!(found(json!({"escalation": {"ask_human_before": [word]}})), [], "{word}");
        }
        assert_eq!(found(json!({"stop_conditions": ["email_sent_once", {"effect": "comment.post"}]})), []);
    }
}
