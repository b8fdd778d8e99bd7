//! Selectors of a job that select nothing: a word in `ask_human_before` that is misspelt would let a call run that a person wanted to be asked
//! about, so a job that has one is not started.
//!
//! Tools are listed for this before anything is stored, and only when a job has selectors. Servers that cannot be listed now are not judged
//! here: the start that follows says why they cannot.

use std::collections::BTreeSet;

use ua_classify::{Classifier, IdleCaution, Misnamed};
use ua_core::{
    CallPolicy, PriceTable, RunId, RunSpec, ShowPath as _, StopCondition, ToolName, ToolNamespace, ToolSpec,
};
pub use ua_dispatch::selectors::Selection;
use ua_dispatch::selectors::{self as words, Names, conditions, effect_of};
use ua_dispatch::{Catalog, Rules, TransportError};
use ua_runner::PinSettings;

use crate::check;
use crate::error::{HostError, chain};
use crate::host::Host;
use crate::launch::Launch;
use crate::people::People;
use crate::policies;
use crate::servers::Listed;
use crate::settings::{Layer, Settings};
use crate::text::line;

/// The name of our own server.
const OWN_SERVER: &str = "ua";

/// The tools of our own server, whether or not they are offered here: which of them are depends on the job and the machine, and a job that
/// rules one out is right everywhere.
fn own_tools() -> &'static [&'static str] {
    #[cfg(feature = "toolserver")]
    return ua_toolserver::tool_names();
    #[cfg(not(feature = "toolserver"))]
    return &[];
}

/// Their whole names.
pub(crate) fn own_names() -> impl Iterator<Item = ToolName> {
    own_tools().iter().map(|tool| ToolName::qualified(ToolNamespace::Local, OWN_SERVER, tool))
}

/// What each selector and condition of a job selects among these tools, in the order of the job file's fields.
pub fn selections(spec: &RunSpec, tools: &[(ToolSpec, CallPolicy)]) -> Vec<Selection> {
    words::selections(spec, tools, own_tools())
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
             --mcp-config",
        ).not_begun()
}

/// The tool that every reply is to call.
fn chosen_tool(spec: &RunSpec) -> Option<&str> {
    spec.model.tool_choice.as_deref().filter(|choice| !["auto", "any", "none"].contains(choice))
}

/// The size of an iteration's requests that a job asks for.
fn asked_context(spec: &RunSpec) -> Option<u64> {
    spec.harness.as_ref().and_then(|harness| harness.context_budget_tokens)
}

/// The error about iterations that are too small for what each of them begins with.
fn context_below_first_request(
    launch: &Launch,
    spec: &RunSpec,
    tools: &[(ToolSpec, CallPolicy)],
    classifier: &Classifier,
) -> Result<Option<HostError>, HostError> {
    if asked_context(spec).is_none() {
        return Ok(None);
    }
    // A job whose tools make no catalog is refused for that.
    let Some(offers) = check::offers(spec, tools, classifier)? else { return Ok(None) };
    let run = launch.run_settings(spec, PriceTable::default(), PinSettings::default());
    let why = ua_runner::context_below_first_request(spec, &run, offers);
    let hint = "raise `harness.context_budget_tokens` in the job file, or deny tools that the job does not need (`tools.deny`)";
    Ok(why.map(|why| HostError::usage(why).hint(hint).not_begun()))
}

/// Refuses a job whose start would fail once its tools are there, or that says something about tools or effects that do not exist. Nothing is
/// stored, and no tool is called.
///
/// Returns what was started for this where the run of that name, which is to be stored, may take it over.
pub(crate) async fn check(
    host: &Host,
    people: &dyn People,
    launch: &Launch,
    spec: &RunSpec,
    run: Option<&RunId>,
) -> Result<Option<Listed>, HostError> {
    let settings = host.settings();
    if says_nothing(settings, launch, spec) {
        return Ok(None);
    }
    let (listed, tools) = Listed::of(host, people, launch, spec, run).await?;
    let refused = match tools {
        Ok(tools) => with_policies(settings, launch, tools).and_then(|tools| judged(settings, launch, spec, &tools)),
        // Where they cannot be listed now, whoever drives the run asks again before it begins.
        Err(_) => Ok(None),
    };
    match refused {
        Ok(None) if run.is_some() => Ok(Some(listed)),
        refused => {
            listed.end().await;
            refused?.map_or(Ok(None), Err)
        }
    }
}

/// The same of tools that are there, for whoever drives the run.
///
/// # Errors
/// A policy file cannot be used.
pub fn refused(
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
    !words::has_selectors(spec)
        && asked_context(spec).is_none()
        && chosen_tool(spec).is_none()
        && denied_here(settings).is_empty()
        && launch.policy_files(settings).is_empty()
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
    // Said first: a key that reaches nobody counts for none, and what that comes to is said without its cause.
    let catalog = Catalog::new(specs.clone(), &classifier, &rules).ok();
    let is_offered = |tool: &&ToolSpec| {
        catalog.as_ref().is_none_or(|catalog| catalog.offers().any(|offer| offer.name == tool.name.raw))
    };
    let offered: Vec<&ToolSpec> = specs.iter().filter(is_offered).collect();
    if let Some(misnamed) = misnamed(&classifier, &offered) {
        return Ok(Some(misnamed));
    }
    if let Some(error) = Catalog::problems(specs.clone(), &classifier, &rules).first() {
        return Ok(Some(
            HostError::usage(chain(error))
                .hint("correct the rule or the job; `ua tools explain` shows what decides about a tool")
                .not_begun(),
        ));
    }
    // What cannot be seen now would only add to it.
    if let Some(refused) = context_below_first_request(launch, spec, tools, &classifier)? {
        return Ok(Some(refused));
    }
    if !words::are_all_seen(tools) {
        return Ok(None);
    }
    let found = words::unmatched(spec, tools, own_tools());
    if !found.is_empty() {
        return Ok(Some(refusal(&found)));
    }
    if let Some(denied) = misspelt_denials(&denied_here(settings), tools) {
        return Ok(Some(denied));
    }
    let files: Vec<String> =
        launch.policies_of_this_job(settings)?.iter().map(|file| file.shown().to_string()).collect();
    // Which tools of our own are offered depends on the job and the machine.
    let is_listed = |name: &ToolName| specs.iter().any(|spec| spec.name.raw == name.raw);
    let more = own_names().chain([ToolName::ask_user(), ToolName::task()]).filter(|name| !is_listed(name));
    let more: Vec<ToolName> = more.collect();
    let there: Vec<ToolName> = specs.iter().map(|spec| spec.name.clone()).chain(more.iter().cloned()).collect();
    if let Some(idle) = idle_cautions(&classifier.idle_cautions(&files, &specs, &more), &there) {
        return Ok(Some(idle));
    }
    let missing = words::unmakeable(spec, tools, &classifier, &rules);
    if !missing.is_empty() {
        return Ok(Some(unmakeable(&missing, spec)));
    }
    if let Some(choice) = unknown_choice(spec, tools) {
        return Ok(Some(choice));
    }
    cannot_be_played(launch, &specs)
}

/// The error about rules that name arguments which their tools do not have: a key or a mark that reaches nobody protects from nothing.
pub fn misnamed(classifier: &Classifier, tools: &[&ToolSpec]) -> Option<HostError> {
    let found: Vec<Misnamed> = tools.iter().flat_map(|tool| classifier.misnamed(tool, tools)).collect();
    let words: Vec<String> = found.iter().map(in_words).collect();
    (!words.is_empty()).then(|| {
        HostError::usage(format!("the policies name arguments that their tools do not have: {}", words.join("; "))).hint(
            "name an argument of the tool, or take the word out of the rule; `ua tools explain NAME` shows what the rule comes to; nothing was \
             started, because a wrong rule could let an effect be repeated",
        )
    })
}

/// Which rule of which file, about which tool, and what is wrong with it.
fn in_words(found: &Misnamed) -> String {
    format!(
        "{}: {found}, in rule `{}` of {}",
        line(&found.tool, 100),
        line(&found.rule_id, 60),
        crate::text::place(&found.file)
    )
}

/// The tool that a build may lack.
const OF_SOME_BUILDS: &str = "render_pdf";

/// The error about a script that asks for a tool of ours that this build does not have: it would be played up to there, with what it does outside.
fn cannot_be_played(launch: &Launch, tools: &[ToolSpec]) -> Result<Option<HostError>, HostError> {
    let name = ToolName::qualified(ToolNamespace::Local, OWN_SERVER, OF_SOME_BUILDS);
    let is_ours = own_tools().contains(&OF_SOME_BUILDS) && tools.iter().any(|tool| tool.name.server == OWN_SERVER);
    let is_there = tools.iter().any(|tool| tool.name.raw == name.raw);
    if !is_ours || is_there || !launch.script_asks_for(&name.raw)? {
        return Ok(None);
    }
    let message = format!("the script asks for `{}`, which this build of ua does not have", name.raw);
    Ok(Some(HostError::usage(message).hint("install ua with its feature `pdf`, which it has by default").not_begun()))
}

/// The error about a tool that every reply is to call and that is not there.
fn unknown_choice(spec: &RunSpec, tools: &[(ToolSpec, CallPolicy)]) -> Option<HostError> {
    let choice = chosen_tool(spec)?;
    let names = || tools.iter().map(|(tool, _)| tool.name.raw.as_str());
    if names().any(|name| name == choice) {
        return None;
    }
    let message = format!("no tool of this job is called {:?}, which `model.tool_choice` names", line(choice, 100));
    let hint = "name a tool as `ua tools list` shows it, or `auto`, `any` or `none`";
    Some(HostError::not_found(message, choice, names().chain(["auto", "any", "none"]), hint).not_begun())
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
             condition out; `ua job FILE --check` lists the tools",
        ).not_begun()
}

/// The error about rules of this job that call for care with a tool that is not there.
fn idle_cautions(idle: &[IdleCaution], there: &[ToolName]) -> Option<HostError> {
    let words: Vec<String> = idle.iter().filter_map(|idle| idle.in_words(there, line)).collect();
    (!words.is_empty()).then(|| {
        HostError::usage(format!("the policies of this job call for care with tools that do not exist: {}", words.join("; ")))
            .hint(
                "a rule with a misspelt name protects nothing: correct it, or take the rule out; rules for other jobs belong in the user's \
                 policy.toml; `ua tools list` shows the tools",
            ).not_begun()
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
    let names = Names::of(tools, own_tools());
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
        .hint("`ua tools list` shows the tools; correct the name or take it out")
        .not_begun()
    })
}

/// The tools that a job would be offered, each with its policy.
type Offered = Vec<(ToolSpec, CallPolicy)>;

/// The tools that the job would be offered, with their policies, or why they cannot be listed now, of each server of which they cannot.
pub(crate) async fn listed(
    host: &Host,
    people: &dyn People,
    launch: &Launch,
    spec: &RunSpec,
) -> Result<Result<Offered, Vec<TransportError>>, HostError> {
    let (listed, tools) = Listed::of(host, people, launch, spec, None).await?;
    let also_failed = listed.also_failed();
    listed.end().await;
    let tools = match tools {
        Ok(tools) => tools,
        Err(error) => return Ok(Err(std::iter::once(error).chain(also_failed).collect())),
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
        words::unmatched(&spec, &tools(), own_tools()).into_iter().map(|typo| (typo.word, typo.nearest)).collect()
    }

    /// Destinations are tools among hosts and people: a slip of a tool is found, and what goes elsewhere is nobody's to judge here.
    #[test]
    fn a_tool_among_allowed_destinations_is_one_that_there_is() {
        let allowed = |word: &str| found(json!({"constraints": {"allowed_destinations": [word]}}));
        for (word, meant) in [
            ("post_coment", Some("post_comment")),
            ("mcp__forum__sendemail", Some("mcp__forum__send_email")),
            ("mcp__crm__frobnicate", None),
            ("psot_*", Some("post_*")),
        ] {
            assert_eq!(allowed(word), [(word.to_owned(), meant.map(str::to_owned))], "{word}");
        }
        for right in [
            "post_comment",
            "mcp__forum__*",
            "comment.post",
            "email.*",
            "notify",
            "@example.com",
            "ada@example.com",
            "example.com",
            ".example.com",
            "#general",
            "+49 30 1",
            "some_group_of_ours",
        ] {
            assert_eq!(allowed(right), [], "{right}");
        }
    }

    #[test]
    fn a_misspelt_selector_is_found_with_the_nearest_name() {
        let some = |word: &str, name: &str| (word.to_owned(), Some(name.to_owned()));
        let ask = |word: &str| json!({"escalation": {"ask_human_before": [word]}});
        assert_eq!(found(ask("post_coment")), [some("post_coment", "post_comment")]);
        assert_eq!(found(ask("externl")), [some("externl", "external")]);
        assert_eq!(found(json!({"tools": {"deny": ["sned_email"]}})), [some("sned_email", "send_email")]);
        assert_eq!(found(json!({"tools": {"allow": ["nothing_*"]}})), [("nothing_*".to_owned(), None)]);
        let forbidden = |word: &str| json!({"constraints": {"forbidden_actions": [word]}});
        assert_eq!(found(forbidden("emial.send")), [some("emial.send", "email.send")]);
        // The guide's own spelling of a whole family.
        assert_eq!(found(forbidden("emial.*")), [some("emial.*", "email.*")]);
        assert_eq!(found(ask("psot_*")), [some("psot_*", "post_*")]);
        assert_eq!(found(json!({"stop_conditions": [{"effect": "emial.send"}]})), [some("emial.send", "email.send")]);
        // Where only an effect may stand, the tool that it is most like is none that could be written.
        let forbidden_tool = found(forbidden("post.comment"));
        assert_eq!(forbidden_tool, [some("post.comment", "post_comment")]);
        let waited_for = found(json!({"stop_conditions": [{"effect": "post.comment"}]}));
        assert_eq!(waited_for, [("post.comment".to_owned(), None)]);
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

    /// Over every way to be wrong in one of the two names of a rule: it is refused, and told with what is near.
    #[test]
    fn a_rule_that_protects_nothing_is_refused_by_either_of_its_names() {
        let there: Vec<ToolName> = [("forum", "post_comment"), ("forum", "send_email"), ("ua", "notify")]
            .map(|(server, tool)| ToolName::qualified(ToolNamespace::Mcp, server, tool))
            .to_vec();
        let said = |server: Option<&str>, name: Option<&str>| {
            let of = |text: &str| text.to_owned();
            let (name, server) = (name.map(of), server.map(of));
            let (file, rule_id) = ("p.toml".to_owned(), "r".to_owned());
            let idle = IdleCaution { file, rule_id, name, server, patterns: Vec::new(), besides: Vec::new() };
            idle_cautions(&[idle], &there).map(|error| error.to_string())
        };
        let pattern = |pattern: &str| {
            let (file, rule_id) = ("p.toml".to_owned(), "r".to_owned());
            let (name, server, patterns) = (None, None, vec![pattern.to_owned()]);
            idle_cautions(&[IdleCaution { file, rule_id, name, server, patterns, besides: Vec::new() }], &there)
        };
        assert!(
            pattern("notfy*").unwrap().to_string().contains("`notfy*` in rule `r` of p.toml (did you mean `notify`?)")
        );
        assert!(pattern("jira_*").is_none(), "it may well be about nothing here");
        for (server, name, wanted) in [
            (None, Some("notfy"), "`notfy` in rule `r` of p.toml (did you mean `notify`?)"),
            (Some("uaa"), Some("notify"), "`notify` of server `uaa` in rule `r` of p.toml (did you mean `ua`?)"),
            (Some("forum"), Some("notify"), "`notify` of server `forum` in rule `r` of p.toml"),
            (
                Some("forum"),
                Some("post_coment"),
                "`post_coment` of server `forum` in rule `r` of p.toml (did you mean `post_comment`?)",
            ),
            (Some("forrum"), None, "server `forrum` in rule `r` of p.toml (did you mean `forum`?)"),
        ] {
            let said = said(server, name).unwrap();
            assert!(said.ends_with(&format!("that do not exist: {wanted}")), "{said}");
        }
        assert_eq!((said(Some("github"), None), said(Some("forum"), None)), (None, None));
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

    /// A sub-agent whose tools nobody has would have none.
    #[test]
    fn tools_of_sub_agents_are_selected_by_names_that_there_are() {
        let found = |word: &str| found(json!({"subagents": {"tools": [word]}}));
        for word in ["post_comment", "mcp__forum__*", "ask_user"] {
            assert_eq!(found(word), [], "{word}");
        }
        assert_eq!(found("post_coment"), [("post_coment".to_owned(), Some("post_comment".to_owned()))]);
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
