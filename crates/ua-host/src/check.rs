//! What can be known of a job before it is started: whether it would start, which tools it would be offered, and what each of its words
//! selects among them.
//!
//! Tool servers are started to list their tools, and stopped again; no tool is called, no model is asked, nothing is stored. What nobody
//! trusted is not started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use globset::Glob;
use ua_classify::{Classifier, Verdict};
use ua_core::{
    Audience, CallPolicy, Makes, RunId, RunSpec, RunStatus, ShowPath as _, StopCondition, ToolName, ToolSpec,
};
use ua_dispatch::{Catalog, Rules, WithAskUser, task_tool};
use ua_llm::ToolOffer;
use ua_resume::Standing;
use ua_runner::PinSettings;
use ua_store::RunRecord;

use crate::error::{HostError, chain};
use crate::host::Host;
use crate::job::{self, Fate, JobRequest, Looked, Prepared};
use crate::launch::Launch;
use crate::people::{People, Presence};
use crate::policies;
use crate::pricing;
use crate::selectors::{self, Selection};
use crate::servers;
use crate::settings::Settings;
use crate::standing::standing;

/// A job that would start, but for words of it that select nothing.
#[derive(Debug)]
pub struct JobCheck {
    /// The job.
    pub spec: RunSpec,
    /// Provider and model.
    pub model: (String, String),
    /// The tools that it would be offered, with their policies.
    pub tools: Vec<(ToolSpec, CallPolicy)>,
    /// What each of its conditions and selectors selects.
    pub selections: Vec<Selection>,
    /// What each rule of its policy files and the user's is about.
    pub rules: Vec<RuleMatch>,
    /// The run that has its job key, if one has.
    pub key_holder: Option<RunRecord>,
    /// The unfinished run of the same job, if there is one, and where it stands.
    pub unfinished: Option<(RunRecord, Standing)>,
    /// The run of the same job that a process is driving, if one is.
    pub at_work: Option<RunRecord>,
    /// The run of the same job that is in the queue, if one is.
    pub queued: Option<RunRecord>,
    /// What of the script that plays its model would fail when it is played: it would start, and probably not do what it is for.
    pub script_doubts: Vec<String>,
    /// What is in doubt about the name of its model.
    pub model_doubt: Option<String>,
    /// Which of its budgets end every run of it before it is done: it would start, and stop.
    pub budget_doubts: Vec<String>,
    /// That mails of the built-in tool go into a folder, in a sentence.
    pub mail_folder: Option<String>,
    /// What an earlier run of the same job did that this one does again, in a sentence.
    pub done_before: Option<String>,
    /// What `ua job` would refuse it for, once it was read and its tools were listed.
    pub refusal: Option<HostError>,
}

impl JobCheck {
    /// The run that did this job under its key already: it would be shown, and nothing started.
    pub fn done(&self) -> Option<&RunRecord> {
        self.key_holder.as_ref().filter(|run| run.status == RunStatus::Succeeded)
    }

    /// The tools that a person is asked about once the run has read untrusted text and private data.
    pub fn asked_once_tainted(&self) -> Vec<&ToolName> {
        let tools = self.tools.iter().map(|(tool, policy)| (&tool.name, policy));
        ua_ledger::asked_once_tainted(&self.spec, tools)
    }

    /// The effects that its conditions count, each once, and which tools are counted for it.
    pub fn counted_effects(&self) -> Vec<EffectMakers> {
        let mut seen = BTreeSet::new();
        let conditions = self.spec.all_stop_conditions();
        let effects = conditions.filter_map(|condition| {
            if let StopCondition::Effect { effect, .. } = condition.expanded() { Some(effect) } else { None }
        });
        effects.filter(|effect| seen.insert(effect.clone())).map(|effect| self.makers_of(effect)).collect()
    }

    fn makers_of(&self, effect: String) -> EffectMakers {
        let that = |wanted: Makes| {
            let tools = self.tools.iter();
            tools.filter(|(tool, policy)| policy.makes(&tool.name.tool, &effect) == wanted).collect::<Vec<_>>()
        };
        let names = |tools: Vec<&(ToolSpec, CallPolicy)>| tools.iter().map(|(tool, _)| tool.name.raw.clone()).collect();
        let mut undeclared = that(Makes::Perhaps);
        undeclared.sort_by_key(|(tool, policy)| !policy.seems_to_make(&tool.name.tool, &effect));
        EffectMakers { counted: names(that(Makes::Declared)), undeclared: names(undeclared), effect }
    }
}

/// An effect that conditions count, and the tools that make it, as the model sees their names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectMakers {
    /// Its kind.
    pub effect: String,
    /// Those that are counted.
    pub counted: Vec<String>,
    /// Those that may make it and are not counted, because their effect is not declared; first those whose name suggests it.
    pub undeclared: Vec<String>,
}

/// A rule of a policy file, or a name in a setting, and the tools that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMatch {
    /// The policy file, or the setting.
    pub place: String,
    /// The rule's id, or the name.
    pub rule: String,
    /// The tools, as the model sees their names.
    pub tools: Vec<String>,
}

/// A job that was looked at without its tools.
#[derive(Debug)]
pub struct JobLooked {
    /// The job, with what is in the files that it is given.
    pub spec: RunSpec,
    /// How it would be started.
    pub launch: Launch,
    /// What is in the way of that: one error with all the others.
    pub refusal: Option<HostError>,
}

/// Looks at a job as far as that needs none of its tools: nothing is started.
///
/// # Errors
/// The job cannot be read, or nobody knows with which model it would be started: then nothing else of it is known.
pub async fn look(host: &Host, people: &dyn People, request: &JobRequest) -> Result<JobLooked, HostError> {
    let Looked { prepared: Prepared { spec, launch, .. }, obstacles, .. } = job::look(host, people, request).await?;
    Ok(JobLooked { spec, launch, refusal: obstacles.into_error() })
}

/// Looks at a job without starting it; `presence` says whether `ua job` could ask somebody.
///
/// # Errors
/// What the job would be refused for before its tools are listed.
pub async fn check(
    host: &Host,
    people: &dyn People,
    presence: Presence,
    request: &JobRequest,
) -> Result<JobCheck, HostError> {
    let Looked { prepared, mut obstacles, has_servers } = job::look(host, people, request).await?;
    let Prepared { spec, launch, .. } = prepared;
    let could_open = obstacles.past(host.home().could_open()).is_some();
    let classifier = launch.classifier(host.settings()).ok().filter(|_| has_servers);
    let mut tools = None;
    if classifier.is_some() {
        match obstacles.past(selectors::listed(host, people, &launch, &spec).await) {
            Some(Ok(listed)) => tools = Some(listed),
            // A run of it would be stored, and stop for this.
            Some(Err(failed)) => obstacles.meet(failed.iter().map(|error| {
                HostError::waiting(chain(error)).hint(servers::what_helps(error).to_string()).not_begun()
            })),
            None => {}
        }
    }
    if !could_open {
        // What there is of the job already cannot be told.
        obstacles.end()?;
    }
    let would_begin = obstacles.is_empty();
    let (foretold, standing, done_before, taken) = if host.home().is_unused() {
        (Fate::Start { earlier: None }.into(), None, None, None)
    } else {
        let store = host.home().open_read_only()?;
        let fate = job::fate(host, &store, request, &spec, &launch).await?;
        let standing = match &fate.fate {
            Fate::Left(run) | Fate::Taken(run) => Some(standing(host.home(), &store, run).await?),
            Fate::Elsewhere(run, place) => Some(match run.status {
                RunStatus::WaitingForHuman | RunStatus::Stopped => Standing::Stored(run.status, run.stop_reason),
                RunStatus::Queued
                | RunStatus::Running
                | RunStatus::Succeeded
                | RunStatus::Failed
                | RunStatus::Cancelled => Standing::Elsewhere(ua_resume::OtherPlace {
                    shown: place.place.shown.clone(),
                    is_silent: false,
                    is_to_end: run.end_mark().is_some(),
                }),
            }),
            Fate::Named(_)
            | Fate::Start { .. }
            | Fate::Done(_)
            | Fate::AtWork(_)
            | Fate::Queued(..)
            | Fate::InDoubt(..) => None,
        };
        let is_free = matches!(fate.fate, Fate::Start { earlier: None }) && request.run_id.is_none() && !request.new;
        let done_before =
            if is_free && spec.job_key.is_none() { job::done_before(host, &store, &spec).await? } else { None };
        let taken = match &fate.fate {
            Fate::Taken(run) => Some(job::taken_key(host, &store, run).await?),
            Fate::Left(_)
            | Fate::Elsewhere(..)
            | Fate::Named(_)
            | Fate::Start { .. }
            | Fate::Done(_)
            | Fate::AtWork(_)
            | Fate::Queued(..)
            | Fate::InDoubt(..) => None,
        };
        crate::home::close(store);
        (fate, standing, done_before, taken)
    };
    let (mut key_holder, mut unfinished, mut at_work, mut queued) = (None, None, None, None);
    let mut refusal = job::refusal(host, request, &launch, &foretold, standing.as_ref());
    match foretold.fate {
        Fate::Taken(run) => {
            refusal = taken;
            unfinished = standing.filter(|_| !run.status.is_terminal()).map(|standing| (run.clone(), standing));
            key_holder = Some(run);
        }
        Fate::Done(run) => key_holder = Some(run),
        Fate::AtWork(run) => at_work = Some(run),
        Fate::Queued(run, _) => queued = Some(run),
        Fate::Elsewhere(run, _) => {
            unfinished = standing.map(|standing| (run, standing));
        }
        Fate::Left(run) => {
            // Whoever is here is asked.
            refusal = refusal.filter(|_| presence != Presence::Here);
            unfinished = standing.map(|standing| (run, standing));
        }
        Fate::Start { earlier: None } => refusal = job::in_another_place(host, request, &spec, &launch).await?,
        Fate::Named(_) | Fate::Start { earlier: Some(_) } | Fate::InDoubt(..) => {}
    }
    // What is known of the job and its tools is said with what there is of it already, and with what else is in the way.
    let of_job = match tools.as_deref().filter(|_| key_holder.is_none()) {
        None => None,
        Some(tools) => obstacles.past_anew(selectors::judged(host.settings(), &launch, &spec, tools)),
    };
    let of_workspace = || {
        let (id, now) = (RunId::new(host.env()), host.env().now());
        host.home().workspace_for(&id, spec.artifacts.workspace_dir.as_deref(), now).err()
    };
    let of_workspace = if key_holder.is_none() && refusal.is_none() { of_workspace() } else { None };
    obstacles.meet(refusal.into_iter().chain(of_job).chain(of_workspace));
    let (Some(tools), Some(classifier)) = (tools.filter(|_| would_begin), classifier) else {
        obstacles.end()?;
        return Err(HostError::waiting("the tools of the job cannot be listed"));
    };
    let specs: Vec<&ToolSpec> = tools.iter().map(|(tool, _)| tool).collect();
    let rules = rules(host.settings(), &classifier, &launch.policy_files(host.settings()), &specs);
    let selections = selectors::selections(&spec, &tools);
    let JobDoubts { budgets: budget_doubts, script: script_doubts } =
        obstacles.past_anew(doubts(host.settings(), &launch, &spec, &tools, &classifier));
    let listed = tools.iter().map(|(tool, _)| tool.clone()).collect();
    let mail_folder = servers::mail_in_a_folder(host.settings(), host.home().root(), &spec, listed, &classifier);
    let mail_folder = mail_folder.map(|found| found.sentence);
    let model = launch.model();
    let model_doubt = launch.model_doubt(host.settings());
    Ok(JobCheck {
        spec,
        model,
        tools,
        selections,
        rules,
        key_holder,
        unfinished,
        at_work,
        queued,
        script_doubts,
        model_doubt,
        budget_doubts,
        mail_folder,
        done_before,
        refusal: obstacles.into_error(),
    })
}

/// What lets a job start, and keeps it from doing what it is for.
#[derive(Debug, Default)]
pub struct JobDoubts {
    /// Which of its budgets end every run of it before it is done.
    pub budgets: Vec<String>,
    /// What of the script that plays its model would fail when it is played.
    pub script: Vec<String>,
}

/// Looks for that, among the tools that the job would be offered.
///
/// # Errors
/// The script or the prices cannot be read.
pub fn doubts(
    settings: &Settings,
    launch: &Launch,
    spec: &RunSpec,
    tools: &[(ToolSpec, CallPolicy)],
    classifier: &Classifier,
) -> Result<JobDoubts, HostError> {
    let budgets = budget_doubts(settings, launch, spec, tools, classifier)?;
    // No server lists these; the job has switches for them.
    let own = [ToolName::ask_user().raw, ToolName::task().raw];
    let offered = tools.iter().map(|(tool, _)| &tool.name.raw).chain(&own).map(String::as_str).collect();
    Ok(JobDoubts { budgets, script: launch.script_doubts(&offered)? })
}

/// Budgets that end every run of the job before it is done.
fn budget_doubts(
    settings: &Settings,
    launch: &Launch,
    spec: &RunSpec,
    tools: &[(ToolSpec, CallPolicy)],
    classifier: &Classifier,
) -> Result<Vec<String>, HostError> {
    // A job whose tools make no catalog is refused for that.
    let Some(offers) = offers(spec, tools, classifier)? else { return Ok(Vec::new()) };
    let prices = pricing::table(settings, launch.pricing.as_deref(), launch.pricing_is_the_projects)?;
    let (provider, model) = launch.model();
    let price = pricing::price(&prices, &provider, &model);
    let run = launch.run_settings(spec, prices, PinSettings::default());
    Ok(ua_runner::too_small(spec, &run, price, offers))
}

/// What the job would offer its model of these tools, with its own; `None` where they make no catalog.
pub(crate) fn offers(
    spec: &RunSpec,
    tools: &[(ToolSpec, CallPolicy)],
    classifier: &Classifier,
) -> Result<Option<Vec<ToolOffer>>, HostError> {
    // The rules leave out what the job has no switch for.
    let own = [WithAskUser::spec(Audience::Terminal), task_tool()];
    let specs: Vec<ToolSpec> = tools.iter().map(|(tool, _)| tool.clone()).chain(own).collect();
    let rules = Rules::of(spec).map_err(HostError::usage)?;
    let Ok(catalog) = Catalog::new(specs, classifier, &rules) else { return Ok(None) };
    let offers = catalog.offers().map(|offer| ToolOffer {
        name: offer.name.clone(),
        description: offer.description.clone(),
        input_schema: offer.input_schema.clone(),
    });
    Ok(Some(offers.collect()))
}

/// Why a job of which nothing is wrong would not start now, for the runs that there are of it; `None` where it would, or somebody is asked.
///
/// # Errors
/// The database cannot be read.
pub async fn in_the_way(
    host: &Host,
    file: &Path,
    spec: &RunSpec,
    launch: &Launch,
) -> Result<Option<HostError>, HostError> {
    let request = JobRequest { file: file.to_path_buf(), ..JobRequest::default() };
    if !host.home().is_unused() {
        let store = host.home().open_read_only()?;
        let found = job::fate(host, &store, &request, spec, launch).await?;
        let refusal = match &found.fate {
            Fate::Taken(run) => Some(job::taken_key(host, &store, run).await?),
            Fate::Left(run) => {
                let standing = standing(host.home(), &store, run).await?;
                job::refusal(host, &request, launch, &found, Some(&standing))
            }
            Fate::Start { .. }
            | Fate::Named(_)
            | Fate::Done(_)
            | Fate::AtWork(_)
            | Fate::Elsewhere(..)
            | Fate::Queued(..)
            | Fate::InDoubt(..) => job::refusal(host, &request, launch, &found, None),
        };
        crate::home::close(store);
        if refusal.is_some() {
            return Ok(refusal);
        }
    }
    job::in_another_place(host, &request, spec, launch).await
}

/// What the rules of these policy files, and the names in the user's lists, are about.
pub fn rules(settings: &Settings, classifier: &Classifier, files: &[PathBuf], tools: &[&ToolSpec]) -> Vec<RuleMatch> {
    let files: Vec<String> = files.iter().map(|file| file.shown().to_string()).collect();
    let mut found: Vec<RuleMatch> = Vec::new();
    for tool in tools {
        for considered in classifier.explain(tool).considered {
            let Some(place) = considered.file.filter(|file| files.contains(file)) else { continue };
            let at = found.iter().position(|rule| rule.place == place && rule.rule == considered.rule_id);
            let at = at.unwrap_or_else(|| {
                found.push(RuleMatch { place, rule: considered.rule_id, tools: Vec::new() });
                found.len() - 1
            });
            if considered.verdict != Verdict::DoesNotApply && !found[at].tools.contains(&tool.name.raw) {
                found[at].tools.push(tool.name.raw.clone());
            }
        }
    }
    for (setting, names) in policies::lists_by_setting(settings) {
        for name in names {
            let Ok(glob) = Glob::new(&name) else { continue };
            let glob = glob.compile_matcher();
            let is_meant = |tool: &&&ToolSpec| glob.is_match(&tool.name.raw) || glob.is_match(&tool.name.tool);
            let tools = tools.iter().filter(is_meant).map(|tool| tool.name.raw.clone()).collect();
            found.push(RuleMatch { place: format!("setting {setting}"), rule: name, tools });
        }
    }
    found
}

/// The servers that the setting `trust_annotations` names and that are none of these: nobody's annotations are trusted for them.
pub fn idle_trust(settings: &Settings, servers: &BTreeSet<String>) -> Vec<String> {
    let named = policies::names(settings, "UA_TRUST_ANNOTATIONS");
    named.into_iter().filter(|name| !servers.contains(name)).collect()
}

/// The folders that the setting `run_command.read` opens for programs and that are not there, or that a program cannot be told.
pub fn idle_folders(settings: &Settings) -> Vec<PathBuf> {
    let named = settings.var("UA_COMMAND_READ").unwrap_or_default();
    std::env::split_paths(&named).filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()).collect()
}

/// The settings about servers that name none of these: a pack for a server that is not configured counts for nothing.
pub fn idle_packs(settings: &Settings, servers: &BTreeSet<String>) -> Vec<String> {
    policies::names(settings, "UA_SERVER_PACKS")
        .into_iter()
        .filter(|entry| entry.split_once('=').is_some_and(|(server, _)| !servers.contains(server.trim())))
        .collect()
}
