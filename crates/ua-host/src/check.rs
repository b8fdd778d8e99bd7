//! What can be known of a job before it is started: whether it would start, which tools it would be offered, and what each of its words
//! selects among them.
//!
//! Tool servers are started to list their tools, and stopped again; no tool is called, no model is asked, nothing is stored. What nobody
//! trusted is not started.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use globset::Glob;
use ua_classify::{Classifier, Verdict};
use ua_core::{CallPolicy, RunId, RunSpec, RunStatus, ToolName, ToolSpec};
use ua_resume::Standing;
use ua_store::RunRecord;

use crate::error::{HostError, chain};
use crate::host::Host;
use crate::job::{self, Fate, JobRequest, Prepared};
use crate::launch::Launch;
use crate::people::{People, Presence};
use crate::policies;
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
    let Prepared { spec, launch, .. } = job::prepare(host, people, request).await?;
    host.home().could_open()?;
    let tools = selectors::listed(host, people, &launch, &spec).await?.map_err(|error| {
        // A run of it would be stored, and stop for this.
        HostError::waiting(chain(&error)).hint(servers::what_helps(&error).to_string()).not_begun()
    })?;
    let classifier = launch.classifier(host.settings())?;
    let specs: Vec<&ToolSpec> = tools.iter().map(|(tool, _)| tool).collect();
    let rules = rules(host.settings(), &classifier, &launch.policy_files(host.settings()), &specs);
    let (foretold, standing, done_before) = if host.home().is_unused() {
        (Fate::Start { earlier: None }.into(), None, None)
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
        crate::home::close(store);
        (fate, standing, done_before)
    };
    let (mut key_holder, mut unfinished, mut at_work, mut queued) = (None, None, None, None);
    let mut refusal = job::refusal(host, request, &launch, &foretold, standing.as_ref());
    match foretold.fate {
        Fate::Taken(run) => {
            refusal = Some(job::taken_key(host, &run));
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
    if refusal.is_none() && key_holder.is_none() {
        refusal = selectors::judged(host.settings(), &launch, &spec, &tools)?.or_else(|| {
            let (id, now) = (RunId::new(host.env()), host.env().now());
            host.home().workspace_for(&id, spec.artifacts.workspace_dir.as_deref(), now).err()
        });
    }
    let selections = selectors::selections(&spec, &tools);
    // No server lists these; the job has switches for them.
    let own = [ToolName::ask_user().raw, ToolName::task().raw];
    let offered = tools.iter().map(|(tool, _)| &tool.name.raw).chain(&own).map(String::as_str).collect();
    let script_doubts = launch.script_doubts(&offered)?;
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
        done_before,
        refusal,
    })
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
            Fate::Taken(run) => Some(job::taken_key(host, run)),
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
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
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
