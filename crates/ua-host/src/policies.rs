//! Policy files and the classifier that they make.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use ua_classify::{Classifier, JobPolicy, Lists, PolicyError, PolicyRules};
use ua_mcp::Reach;

use crate::error::{HostError, chain};
use crate::hint::{Word, text};
use crate::mcp_files::mcp_config;
use crate::packs;
use crate::paths::job_dir;
use crate::placed::{FileKind, Place};
use crate::settings::Settings;
use crate::trust::{self, ConfigFile};
use ua_core::ShowPath as _;

/// The user's own policy file, if there is one.
pub(crate) fn of_user(settings: &Settings) -> Option<PathBuf> {
    settings.user_file("policy.toml")
}

/// The policy files of the configuration.
pub(crate) fn configured(settings: &Settings) -> Result<Vec<PathBuf>, HostError> {
    let files = settings.var("UA_POLICY").unwrap_or_default();
    let files: Vec<PathBuf> = std::env::split_paths(&files).collect();
    files.iter().filter(|file| !file.as_os_str().is_empty()).map(|file| settings.absolute(file)).collect()
}

/// Tools that a person named, whatever their names say (Durable Jobs v1 spec §7.4).
fn configured_lists(settings: &Settings) -> Lists {
    const DENYLIST: &str = "UA_SIDE_EFFECT_DENYLIST";
    let mut denylist = names(settings, DENYLIST);
    // Other settings of a project stand in the place of the user's; this one only raises caution, so it takes nothing of theirs away.
    if settings.of_environment(DENYLIST).is_none() {
        let of_user = settings.of_users_file(DENYLIST).map(split).unwrap_or_default();
        denylist.extend(of_user.into_iter().filter(|name| !denylist.contains(name)).collect::<Vec<_>>());
    }
    Lists { side_effect_denylist: denylist, read_only_allowlist: names(settings, "UA_READ_ONLY_ALLOWLIST") }
}

/// The same, each with the setting that names them.
pub(crate) fn lists_by_setting(settings: &Settings) -> [(&'static str, Vec<String>); 2] {
    let lists = configured_lists(settings);
    [("side_effect_denylist", lists.side_effect_denylist), ("read_only_allowlist", lists.read_only_allowlist)]
}

/// The names in a setting, separated by commas.
pub(crate) fn names(settings: &Settings, variable: &str) -> Vec<String> {
    split(&settings.var(variable).unwrap_or_default())
}

fn split(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The classifier that a new run of this user has: these files, then the configured ones and the user's own, then those of a job, then ours;
/// and for the servers of `servers` the packs about them.
pub fn classifier_of_user(
    settings: &Settings,
    over: &[PathBuf],
    of_job: Option<&OfJob>,
    servers: Option<&ConfigFile>,
) -> Result<Classifier, HostError> {
    let mut files = over.to_vec();
    files.extend(configured(settings)?);
    files.extend(of_user(settings));
    classifier(settings, &files, of_job, servers, Path::new("."))
}

/// The policy files that a new run of this user has whatever its job says, the strongest first.
pub fn files_of_user(settings: &Settings) -> Result<Vec<PathBuf>, HostError> {
    let mut files = configured(settings)?;
    files.extend(of_user(settings));
    Ok(files)
}

/// The policy files that a job names, and the folder of the job.
#[derive(Debug, Clone)]
pub struct OfJob {
    /// The folder, whole.
    pub folder: PathBuf,
    /// The files, whole.
    pub files: Vec<PathBuf>,
}

/// The policy files of a job: relative to the folder of its file.
pub fn of_job(settings: &Settings, job: &Path) -> Result<OfJob, HostError> {
    let folder = job_dir(settings, job)?;
    let files = crate::job_file::read(settings, job)?.policies.iter().map(|file| folder.join(file)).collect();
    Ok(OfJob { folder, files })
}

/// The files that are not among `seen`, each once: where two paths lead to one file (two settings name it, a link, `./`) the first counts.
pub(crate) fn each_once<'f>(
    files: impl IntoIterator<Item = &'f PathBuf>,
    seen: &mut BTreeSet<PathBuf>,
) -> Vec<&'f PathBuf> {
    files.into_iter().filter(|file| seen.insert(trust::canonical(file))).collect()
}

/// A classifier with these policy files over the shipped rules, the first one strongest, and those of a job, of which only what raises
/// caution counts unless a person trusted the file as it is. Tool servers are started in `folder`.
pub(crate) fn classifier(
    settings: &Settings,
    files: &[PathBuf],
    of_job: Option<&OfJob>,
    servers: Option<&ConfigFile>,
    folder: &Path,
) -> Result<Classifier, HostError> {
    let parse = |place: Place<'_>, file: &Path| {
        let placed = place.read()?;
        let rules =
            placed.parse(|text| PolicyRules::parse(text, &file.shown().to_string()).map_err(|e| bad_policy(&e)))?;
        Ok::<_, HostError>((rules, placed.into_text()))
    };
    let (mut rules, mut seen) = (Vec::new(), BTreeSet::new());
    for file in each_once(files, &mut seen) {
        rules.push(parse(Place::of_user(settings, FileKind::Policy, file), file)?.0);
    }
    let mut job = Vec::new();
    if let Some(of_job) = of_job {
        for file in each_once(&of_job.files, &mut seen) {
            let (rules, text) = parse(Place::of_job(FileKind::Policy, file, &of_job.folder), file)?;
            job.push(JobPolicy { rules, is_trusted: trust::policy::is_trusted(settings, file, &text) });
        }
    }
    // A configuration that cannot be read vouches for nothing; whoever starts its servers says what is wrong with it.
    let config = mcp_config(servers).unwrap_or_default();
    let classifier = Classifier::new(rules, &configured_lists(settings), HashSet::new());
    let classifier = classifier.and_then(|classifier| classifier.with_job_policies(job)).map_err(|e| bad_policy(&e))?;
    let chosen = packs::chosen(settings, folder, &config)?;
    let classifier = classifier.with_packs(&chosen).map_err(|e| {
        HostError::usage(chain(&e)).hint("`ua tools packs` lists the packs; correct the setting server_packs")
    })?;
    let over_pipes = config.servers.iter().filter(|(_, reach)| matches!(reach, Reach::Stdio { .. }));
    let classifier = classifier.with_servers_over_pipes(over_pipes.map(|(name, _)| name.clone()));
    let classifier = classifier.trusting_annotations_of(names(settings, "UA_TRUST_ANNOTATIONS"));
    let classifier = classifier.with_commands_that_reach_out(crate::sandbox::reaches_out(settings));
    Ok(match servers {
        Some(file) => classifier.trusting_annotations_of(trust::believed(settings, file, &config.servers)),
        None => classifier,
    })
}

fn bad_policy(error: &PolicyError) -> HostError {
    let what = match error {
        PolicyError::List { list, .. } => {
            format!("correct the setting `{list}` (`ua config show` says where it is set)")
        }
        PolicyError::UnknownPack { .. } => {
            "`ua tools packs` lists the packs; correct the setting `server_packs`".to_owned()
        }
        PolicyError::Syntax { .. } | PolicyError::Field { .. } | PolicyError::DuplicateId { .. } => {
            "correct the policy file".to_owned()
        }
    };
    HostError::usage(chain(error)).hint([
        text(format!("{what}; ")),
        Word::NothingBegun,
        text(", because a wrong rule could let an effect be repeated"),
    ])
}
