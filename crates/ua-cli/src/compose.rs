//! Wiring: from a job and its configuration to the ports that a run is driven through. The only long list of `new`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Budgets, Component, Env, Redactor, RunSpec, ToolNamespace, ToolSpec, Trace};
use ua_gateway::{
    Catalog, Elicitations, Notice, Redacting, Rules, StopSignal, SubAgents, ToolGateway, ToolTransport, WithAskUser,
    WorkspaceFiles, task_tool,
};
use ua_ledger::{Ledger, LedgerConfig, PeopleRules};
use ua_llm::{LlmProvider, ModelFacts, Places, RedactingProvider, Script, ScriptedProvider};
use ua_mcp::{
    DefinitionLock, LockDir, Locked, McpConfig, McpTransport, McpTransportConfig, Progress, ProgressWatcher, Protocol,
    Reach, ServerSpec, ShimCommand, reach_digest,
};
use ua_runner::{PinSettings, Ports, RetryPolicy, RunSettings, Signal, Watcher, Workspace, effect_limits};
use ua_store::{RunLease, RunRecord, Store};

use crate::args::LaunchArgs;
use crate::budgets::BudgetChange;
use crate::claude_code;
use crate::error::{CliError, chain};
use crate::home::Home;
use crate::parts::Seams;
use crate::providers::{self, no_model};
use crate::trust::{self, ConfigFile};
use crate::{models, pricing};

/// The name of our own tool server.
const BUILTIN: &str = "ua";

const SYSTEM_PROMPT: &str = "\
You carry out a job step by step with the tools you are given, without asking anybody unless a tool for that is offered.

- Every tool call is recorded before it is made. A call that failed says why; correct it and go on.
- Never repeat a call that sends, publishes, pays or creates something because you are unsure whether it happened: its result says so. If \
a result says that the outcome is unknown, do not repeat it; mention it in your report.
- A note about a resume tells what was done before an interruption. Go on from there and do not redo it.
- Files live in the workspace; put results into work_products/ unless the job says otherwise.
- When everything the job asks for is done, answer with a short summary and no tool call.";

/// How a run is started, stored with it so that a resume needs no flags.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Launch {
    provider: String,
    model: String,
    script: Option<PathBuf>,
    /// The MCP configuration file, absolute.
    pub(crate) mcp_config: Option<PathBuf>,
    /// It was found in the current folder, and nobody named it.
    #[serde(default)]
    mcp_config_is_found: bool,
    policies: Vec<PathBuf>,
    job_dir: PathBuf,
    allow_private_addresses: bool,
    /// The price table, absolute.
    #[serde(default)]
    pub(crate) pricing: Option<PathBuf>,
    /// The cassette that the provider `replay` answers from, absolute.
    #[serde(default)]
    cassette: Option<PathBuf>,
    /// Where exchanges with the model are recorded, absolute.
    #[serde(default)]
    record: Option<PathBuf>,
    /// What was known about the model when it was chosen. Kept, so that newer data changes nothing about the run.
    #[serde(default)]
    model_facts: Option<ModelFacts>,
    /// Changed components that a person accepts with this very command.
    #[serde(skip)]
    pub(crate) accept: Vec<Component>,
    /// Budgets that a person changes with this very command.
    #[serde(skip)]
    pub(crate) budgets: Vec<BudgetChange>,
    /// What the model is told first of all when the job says nothing. Kept, so that a newer program goes on with the old words.
    #[serde(default)]
    system: Option<String>,
    /// Whether the provider may keep the conversation.
    #[serde(default)]
    provider_sessions: bool,
}

impl Launch {
    /// Reads what the command line, the job and the environment say, in this order.
    pub(crate) fn new(job: &Path, spec: &RunSpec, args: &LaunchArgs) -> Result<Self, CliError> {
        let job_dir = job_dir(job)?;
        let provider = args.provider.clone().or_else(|| spec.model.provider.clone());
        let provider = provider.unwrap_or_else(providers::default_provider);
        let cassette = providers::cassette_file(args.cassette.as_deref())?;
        let model = match args.model.clone().or_else(|| spec.model.name.clone()) {
            Some(model) => model,
            None => match providers::default_model(&provider, cassette.as_deref())? {
                Some(model) => model,
                None => return Err(no_model(&provider)),
            },
        };
        let mcp_config = mcp_config_file(args.mcp_config.as_deref());
        let mut policies = Vec::new();
        for file in &args.policy {
            policies.push(absolute(file)?);
        }
        policies.extend(spec.policies.iter().map(|file| job_dir.join(file)));
        policies.extend(configured_policies()?);
        Ok(Self {
            model_facts: models::facts(&provider, &model)?,
            model,
            cassette,
            record: args.record.as_deref().map(absolute).transpose()?,
            script: spec.model.script.as_ref().map(|script| job_dir.join(script)),
            mcp_config_is_found: mcp_config.as_ref().is_some_and(|file| file.is_found),
            mcp_config: mcp_config.map(|file| absolute(&file.path)).transpose()?,
            policies,
            job_dir,
            allow_private_addresses: args.allow_private_addresses
                || crate::env::var("UA_ALLOW_PRIVATE_ADDRESSES").is_some_and(|value| value == "1" || value == "true"),
            pricing: pricing::file(args.pricing.as_deref())?,
            accept: Vec::new(),
            budgets: Vec::new(),
            system: Some(SYSTEM_PROMPT.to_owned()),
            provider_sessions: providers::wants_sessions(spec),
            provider,
        })
    }

    /// Lays what the command line says now over how the run was started. Whatever of it the run is pinned to stops it, and
    /// says so, instead of being ignored.
    pub(crate) fn overlay(&mut self, spec: &RunSpec, args: &LaunchArgs) -> Result<(), CliError> {
        if let Some(provider) = &args.provider {
            self.provider.clone_from(provider);
        }
        if let Some(model) = &args.model {
            self.model.clone_from(model);
        }
        if args.provider.is_some() || args.model.is_some() {
            self.model_facts = models::facts(&self.provider, &self.model)?;
        }
        if let Some(cassette) = &args.cassette {
            self.cassette = Some(absolute(cassette)?);
        }
        if let Some(record) = &args.record {
            self.record = Some(absolute(record)?);
        }
        if let Some(file) = &args.mcp_config {
            self.mcp_config = Some(absolute(file)?);
            self.mcp_config_is_found = false;
        }
        if let Some(file) = &args.pricing {
            self.pricing = Some(absolute(file)?);
        }
        if !args.policy.is_empty() {
            let named: Result<Vec<PathBuf>, CliError> = args.policy.iter().map(|file| absolute(file)).collect();
            self.policies = named?;
            self.policies.extend(spec.policies.iter().map(|file| self.job_dir.join(file)));
            self.policies.extend(configured_policies()?);
        }
        self.allow_private_addresses |= args.allow_private_addresses;
        Ok(())
    }

    /// How a fork is started: as its parent was, but for what its job or the command line say anew.
    pub(crate) fn for_fork(parent: &RunRecord, spec: &RunSpec, args: &LaunchArgs) -> Result<Self, CliError> {
        let mut launch = Self::from_stored(&parent.launch)?;
        let before = &parent.spec;
        if let Some(provider) = spec.model.provider.as_ref().filter(|_| spec.model.provider != before.model.provider) {
            launch.provider.clone_from(provider);
        }
        if let Some(model) = spec.model.name.as_ref().filter(|_| spec.model.name != before.model.name) {
            launch.model.clone_from(model);
        }
        if spec.model != before.model {
            launch.model_facts = models::facts(&launch.provider, &launch.model)?;
        }
        if spec.model.script != before.model.script {
            launch.script = spec.model.script.as_ref().map(|script| launch.job_dir.join(script));
        }
        if spec.settings.provider_sessions != before.settings.provider_sessions {
            launch.provider_sessions = providers::wants_sessions(spec);
        }
        if spec.policies != before.policies {
            // The job's own come last; those of the command line stay in front of them.
            launch.policies.truncate(launch.policies.len().saturating_sub(before.policies.len()));
            launch.policies.extend(spec.policies.iter().map(|file| launch.job_dir.join(file)));
        }
        launch.overlay(spec, args)?;
        Ok(launch)
    }

    /// The job's folder, as it may stand inside a JSON string.
    pub(crate) fn job_dir_text(&self) -> String {
        json_fragment(&self.job_dir)
    }

    pub(crate) fn to_stored(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub(crate) fn from_stored(value: &Value) -> Result<Self, CliError> {
        serde_json::from_value(value.clone()).map_err(|e| {
            CliError::storage(format!("cannot read how the run was started: {e}"))
                .hint("it was stored by another version of ua")
        })
    }

    /// Finds everything that can be known to be wrong before anything is stored or started.
    pub(crate) fn check(&self, spec: &RunSpec) -> Result<(), CliError> {
        if self.provider == claude_code::NAME {
            claude_code::check()?;
            providers::model_timeout()?;
        } else {
            self.provider(&ua_core::system::env(), &Redactor::default(), &Places::default())?;
        }
        pricing::check(self.pricing.as_deref(), &self.provider, &self.model, spec)?;
        self.classifier()?;
        Rules::of(spec)
            .map_err(|why| CliError::usage(why).hint("correct the pattern in the job file; `*` stands for any text"))?;
        self.configured_servers(spec)?;
        self.check_files(spec)?;
        if spec.tools.builtin && !cfg!(feature = "toolserver") {
            return Err(CliError::usage("this build has no built-in tool server")
                .hint("set `tools.builtin` to false, or build with the `toolserver` feature"));
        }
        Ok(())
    }

    /// Refuses a job with images for a model that is not known to read any.
    pub(crate) fn check_files(&self, spec: &RunSpec) -> Result<(), CliError> {
        let reads_images = self.model_facts.as_ref().is_some_and(|facts| facts.images);
        crate::input_files::check_model(spec, &self.provider, &self.model, reads_images)
    }

    /// The folder of the job file.
    pub(crate) fn job_dir(&self) -> &Path {
        &self.job_dir
    }

    /// The model provider.
    fn provider(&self, env: &Env, redactor: &Redactor, places: &Places) -> Result<Arc<dyn LlmProvider>, CliError> {
        match self.provider.as_str() {
            "anthropic" => providers::anthropic(env),
            "openai" => providers::openai(self.provider_sessions, env),
            "openai-chat" => providers::openai_chat(env),
            "replay" => providers::replay(self.cassette.as_deref(), redactor.clone(), places.clone()),
            "scripted" => {
                let Some(file) = &self.script else {
                    return Err(CliError::usage("the provider `scripted` needs a script")
                        .hint("name one in the job's `model.script`, relative to the job file"));
                };
                let text = read(file, "the script")?;
                let text = text.replace("${JOB_DIR}", &json_fragment(&self.job_dir));
                let script = Script::parse(&text).map_err(|e| {
                    CliError::usage(format!("{}: {}", file.display(), chain(&e)))
                        .hint("correct the script; nothing was started")
                })?;
                Ok(Arc::new(ScriptedProvider::new(script)))
            }
            other => Err(CliError::usage(format!("unknown model provider `{other}`"))
                .hint("use `anthropic`, `openai`, `openai-chat`, `claude-code`, `scripted` or `replay`")),
        }
    }

    /// The provider of a run, whose exchanges are kept where a person asked for it.
    fn kept(&self, run: &RunRecord, env: &Env, redactor: &Redactor) -> Result<Arc<dyn LlmProvider>, CliError> {
        let places = providers::places_of(run, &self.job_dir);
        let mut provider = self.provider(env, redactor, &places)?;
        let in_workspace = crate::env::var("UA_KEEP_BODIES").is_some_and(|value| value == "1" || value == "true");
        let files = [
            self.record.as_ref().map(|path| providers::recording_file(path, run)),
            in_workspace.then(|| Path::new(&run.workspace_dir).join("logs/model.jsonl")),
        ];
        for file in files.into_iter().flatten() {
            provider = providers::recorded(provider, &file, redactor.clone(), places.clone())?;
        }
        Ok(provider)
    }

    /// Says once that nothing is known about the model.
    pub(crate) fn tell_unknown_model(&self) {
        if self.model_facts.is_none() && !matches!(self.provider.as_str(), "scripted" | "replay") {
            let (provider, model) = (&self.provider, &self.model);
            crate::output::tell(&crate::output::plain(&format!(
                "note: nothing is known about the model {model} of {provider}; see `ua models show {model} --provider {provider}`"
            )));
        }
    }

    /// The classifier: policy files of the command line, then of the job, then the user's own, then ours.
    pub(crate) fn classifier(&self) -> Result<Classifier, CliError> {
        self.classifier_with(&[])
    }

    /// The same with further policy files laid over all others.
    pub(crate) fn classifier_with(&self, over: &[PathBuf]) -> Result<Classifier, CliError> {
        let mut files = over.to_vec();
        files.extend(self.policies.clone());
        files.extend(user_policy_file());
        classifier(&files)
    }

    /// The servers of the MCP configuration that the job uses.
    pub(crate) fn configured_servers(&self, spec: &RunSpec) -> Result<Vec<ServerSpec>, CliError> {
        let config = self.wanted_servers(spec)?;
        mcp_servers(self.mcp_file().as_ref(), config)
    }

    /// The servers that nobody let in, of those that the job uses.
    pub(crate) fn untrusted_servers(&self, spec: &RunSpec) -> Result<Vec<trust::Sight>, CliError> {
        let Some(file) = self.mcp_file() else { return Ok(Vec::new()) };
        trust::untrusted(&file, &self.wanted_servers(spec)?.servers)
    }

    /// The file with the tool servers.
    pub(crate) fn mcp_file(&self) -> Option<ConfigFile> {
        let path = self.mcp_config.clone()?;
        Some(ConfigFile { path, is_found: self.mcp_config_is_found })
    }

    /// The servers of the MCP configuration that the job uses, as the file has them.
    fn wanted_servers(&self, spec: &RunSpec) -> Result<McpConfig, CliError> {
        let mut config = mcp_config(self.mcp_file().as_ref())?;
        let Some(wanted) = &spec.tools.servers else { return Ok(config) };
        let known: Vec<String> = config.servers.iter().map(|(name, _)| name.clone()).collect();
        if let Some(missing) = wanted.iter().find(|name| !known.contains(name)) {
            let nearest = known
                .iter()
                .max_by(|a, b| strsim::jaro_winkler(missing, a).total_cmp(&strsim::jaro_winkler(missing, b)));
            let hint = match (nearest, &self.mcp_config) {
                (Some(nearest), _) if strsim::jaro_winkler(missing, nearest) > 0.7 => {
                    format!("did you mean `{nearest}`?")
                }
                (_, Some(file)) => format!(
                    "{} has {}",
                    file.display(),
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                ),
                (_, None) => "name a file with an `mcpServers` object with --mcp-config".to_owned(),
            };
            return Err(CliError::usage(format!("the job wants the tool server `{missing}`, which is not configured"))
                .hint(hint));
        }
        config.servers.retain(|(name, _)| wanted.contains(name));
        Ok(config)
    }
}

pub(crate) fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|e| CliError::usage(format!("cannot use {}: {e}", path.display())))
}

pub(crate) fn read(file: &Path, what: &str) -> Result<String, CliError> {
    fs::read_to_string(file).map_err(|e| {
        CliError::usage(format!("cannot read {what} {}: {e}", file.display()))
            .hint("correct the path, or leave it out; nothing was started")
    })
}

/// The folder of a job file, absolute and without links, so that it can be compared with what tools are asked for.
pub(crate) fn job_dir(job: &Path) -> Result<PathBuf, CliError> {
    let file =
        job.canonicalize().map_err(|e| CliError::usage(format!("cannot read the job file {}: {e}", job.display())))?;
    Ok(file.parent().unwrap_or(Path::new("/")).to_path_buf())
}

/// A path as it may stand inside a JSON string.
pub(crate) fn json_fragment(path: &Path) -> String {
    let quoted = Value::String(path.display().to_string()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The user's own policy file, if there is one.
fn user_policy_file() -> Option<PathBuf> {
    user_file("policy.toml")
}

/// A file of the user's own configuration, if there is one.
pub(crate) fn user_file(name: &str) -> Option<PathBuf> {
    let config = crate::env::var("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(crate::env::var("HOME")?).join(".config")))?;
    Some(config.join("ua").join(name)).filter(|file| file.exists())
}

/// The file with the tool servers: the one that is named, else the configured one, else `.mcp.json` if it is there.
pub(crate) fn mcp_config_file(named: Option<&Path>) -> Option<ConfigFile> {
    let named = named.map(Path::to_path_buf).or_else(|| crate::env::var("UA_MCP_CONFIG").map(PathBuf::from));
    let found = || Some(PathBuf::from(trust::PROJECT_FILE)).filter(|file| file.exists());
    named.map(ConfigFile::named).or_else(|| Some(ConfigFile { path: found()?, is_found: true }))
}

/// The classifier that a new run of this user has: these files, then the configured ones and the user's own, then ours.
pub(crate) fn classifier_of_user(over: &[PathBuf]) -> Result<Classifier, CliError> {
    let mut files = over.to_vec();
    files.extend(configured_policies()?);
    files.extend(user_policy_file());
    classifier(&files)
}

/// The policy files of the configuration.
/// Tools that a person named, whatever their names say (Durable Jobs v1 spec §7.4).
fn configured_lists() -> Lists {
    let names = |variable: &str| -> Vec<String> {
        let text = crate::env::var(variable).unwrap_or_default();
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    Lists {
        side_effect_denylist: names("UA_SIDE_EFFECT_DENYLIST"),
        read_only_allowlist: names("UA_READ_ONLY_ALLOWLIST"),
    }
}

fn configured_policies() -> Result<Vec<PathBuf>, CliError> {
    let files = crate::env::var("UA_POLICY").unwrap_or_default();
    std::env::split_paths(&files).filter(|file| !file.as_os_str().is_empty()).map(|file| absolute(&file)).collect()
}

/// A classifier with these policy files over the shipped rules, the first one strongest.
pub(crate) fn classifier(files: &[PathBuf]) -> Result<Classifier, CliError> {
    let mut rules = Vec::new();
    for file in files {
        let text = read(file, "the policy file")?;
        rules.push(PolicyRules::parse(&text, &file.display().to_string()).map_err(|e| bad_policy(&e))?);
    }
    Classifier::new(rules, &configured_lists(), HashSet::new()).map_err(|e| bad_policy(&e))
}

fn bad_policy(error: &(dyn std::error::Error + 'static)) -> CliError {
    CliError::usage(chain(error))
        .hint("correct the policy file; nothing was started, because a wrong rule could let an effect be repeated")
}

/// An MCP configuration file, as it is written; nothing of it is resolved.
pub(crate) fn mcp_config(file: Option<&ConfigFile>) -> Result<McpConfig, CliError> {
    let Some(ConfigFile { path, .. }) = file else { return Ok(McpConfig::default()) };
    let text = read(path, "the MCP configuration")?;
    let hint = "the file is a JSON object `{\"mcpServers\": {\"name\": {\"command\": …, \"args\": […]}}}`";
    McpConfig::parse(&text, &path.display().to_string()).map_err(|e| CliError::usage(chain(&e)).hint(hint))
}

/// How each server of a configuration is reached, as it is written (what its variables stand for is not what a person looked at): a
/// digest by name.
pub(crate) fn configured_reaches(config: &McpConfig) -> BTreeMap<String, String> {
    config.servers.iter().map(|(name, reach)| (name.clone(), reach_digest(reach))).collect()
}

/// The servers of a configuration, ready to be started, once a person let them in, and held to the lock of tool definitions beside it.
/// Each gets the harmless part of our environment, and what the file gives it.
pub(crate) fn mcp_servers(file: Option<&ConfigFile>, config: McpConfig) -> Result<Vec<ServerSpec>, CliError> {
    let lock = file.map(|file| crate::tool_lock::read(&file.path)).transpose()?.flatten();
    mcp_servers_with(file, config, lock.as_ref())
}

/// The same, held to `lock`.
pub(crate) fn mcp_servers_with(
    file: Option<&ConfigFile>,
    config: McpConfig,
    lock: Option<&DefinitionLock>,
) -> Result<Vec<ServerSpec>, CliError> {
    let Some(file) = file else { return Ok(Vec::new()) };
    trust::check(file, &config.servers)?;
    let reaches = configured_reaches(&config);
    let protocols = config.protocols;
    let mut expanded = Vec::new();
    for (name, reach) in config.servers {
        let one = McpConfig { servers: vec![(name.clone(), reach)], ..McpConfig::default() };
        expanded.extend(expand(&name, one)?.servers);
    }
    let inherited = crate::env::for_tool_servers();
    let servers = expanded.into_iter().map(|(name, reach)| {
        let protocol = protocols.get(&name).cloned().unwrap_or_default();
        let lock = lock.map(|lock| Locked {
            expected: lock.servers.get(&name).cloned(),
            reach: reaches.get(&name).cloned().unwrap_or_default(),
        });
        let reach = match reach {
            Reach::Stdio { command, args, env, cwd } => {
                let mut all: BTreeMap<String, String> = inherited.clone();
                all.extend(env);
                Reach::Stdio { command, args, env: all, cwd }
            }
            http @ Reach::Http { .. } => http,
        };
        let namespace = namespace_of(&name, &reach);
        ServerSpec { protocol, lock, ..ServerSpec::new(name, namespace, reach) }
    });
    Ok(servers.collect())
}

/// Puts values in the place of references in the configuration of one server.
fn expand(server: &str, config: McpConfig) -> Result<McpConfig, CliError> {
    let refused = RefCell::new(None);
    let expanded = config.expand(|name| match name.strip_prefix("secret:") {
        None => crate::env::var(name),
        Some(secret) => match crate::secrets::get().and_then(|secrets| secrets.for_server(server, secret)) {
            Ok(value) => Some(value),
            Err(error) => {
                refused.replace(Some(error));
                None
            }
        },
    });
    match (expanded, refused.into_inner()) {
        (Ok(expanded), _) => Ok(expanded),
        (Err(_), Some(refused)) => Err(refused),
        (Err(e), None) => {
            Err(CliError::usage(chain(&e))
                .hint("the file may name variables of this program's environment as `${NAME}`"))
        }
    }
}

/// A Composio tool router, by the name it was given or by where it is; any other server is plain MCP.
fn namespace_of(name: &str, reach: &Reach) -> ToolNamespace {
    let is_named = name.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| word == "composio");
    let is_theirs = match reach {
        Reach::Http { url, .. } => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
            let host = authority.rsplit('@').next().and_then(|host| host.split(':').next()).unwrap_or_default();
            host == "composio.dev" || host.ends_with(".composio.dev")
        }
        Reach::Stdio { .. } => false,
    };
    if is_named || is_theirs { ToolNamespace::Composio } else { ToolNamespace::Mcp }
}

/// The tool servers of a run; nothing is started yet.
pub(crate) fn tool_servers(
    home: &Home,
    run: &RunRecord,
    launch: &Launch,
    env: &Env,
    watcher: Watcher,
) -> Result<Arc<McpTransport>, CliError> {
    let logs = Path::new(&run.workspace_dir).join("logs");
    let progress: ProgressWatcher = Arc::new(move |progress: Progress| {
        let text = progress.to_string();
        watcher(Signal::Call(Notice::Progress { call_id: progress.call_id, text }));
    });
    let servers = servers_of(home, run, launch)?;
    transport_with(servers, &home.locks(), run.run_id.clone(), Some(logs), env, Some(progress))
}

/// What tool servers a run has.
pub(crate) fn servers_of(home: &Home, run: &RunRecord, launch: &Launch) -> Result<Vec<ServerSpec>, CliError> {
    let workspace = Path::new(&run.workspace_dir);
    let mut servers = Vec::new();
    if run.spec.tools.builtin {
        let mut builtin = builtin_server(home.root(), workspace, launch, run.spec.tools.run_command)?;
        if let Reach::Stdio { args, .. } = &mut builtin.reach {
            // The gateway refuses addresses that a model asks for; only the crawler sees where a page redirects to.
            for domain in &run.spec.constraints.allowed_domains {
                args.push(format!("--allow-domain={domain}"));
            }
            // A sub-agent may read what lies in the folder of the run it works for.
            let parents = workspace.parent().and_then(Path::parent).filter(|_| ua_store::is_task(run));
            args.extend(
                parents.into_iter().flat_map(|folder| ["--allow-root".to_owned(), folder.display().to_string()]),
            );
        }
        servers.push(builtin);
    }
    servers.extend(launch.configured_servers(&run.spec)?);
    Ok(servers)
}

/// What tools may not bring into what is stored: keys that this process was given, and those that its tool servers are.
pub(crate) fn redactor(home: &Home, run: &RunRecord, launch: &Launch) -> Result<Redactor, CliError> {
    learn_own_secrets();
    crate::secrets::get()?;
    let mut secrets: Vec<(String, String)> = Vec::new();
    for server in servers_of(home, run, launch)? {
        match server.reach {
            Reach::Stdio { env, .. } => secrets.extend(env.into_iter().filter(|(name, value)| is_secret(name, value))),
            Reach::Http { headers, .. } => {
                let secret = headers.into_iter().filter(|(name, value)| is_secret(name, value));
                // `Bearer …` and its like: the word that counts is the last one.
                secrets.extend(secret.filter_map(|(name, value)| {
                    let last = value.split_whitespace().next_back()?.to_owned();
                    Some((format!("{} of {}", name, server.name), last))
                }));
            }
        }
    }
    crate::clean::learn(secrets);
    Ok(crate::clean::redactor())
}

/// Keys that this process was given.
pub(crate) fn learn_own_secrets() {
    let own = KEYS.iter().chain(&MAIL_CREDENTIALS).chain(&S3_CREDENTIALS).chain(&SEARCH_CREDENTIALS);
    let own = own.chain(&IMAGE_CREDENTIALS).chain(&COMPOSIO_CREDENTIALS);
    let own = own.filter(|name| !PUBLIC.contains(*name));
    crate::clean::learn(own.filter_map(|name| Some(((*name).to_owned(), crate::env::var(name)?))));
}

/// Whether the value of a variable or header is a secret, by its name. A path is none.
fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let says_so = ["key", "token", "secret", "password", "passwd", "credential", "authorization", "cookie"];
    says_so.iter().any(|word| name.contains(word)) && !value.starts_with(['/', '.'])
}

/// A transport for `servers`, whose locks lie in `locks`.
pub(crate) fn transport(
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: ua_core::RunId,
    stderr_log: Option<PathBuf>,
    env: &Env,
) -> Result<Arc<McpTransport>, CliError> {
    transport_with(servers, locks, run, stderr_log, env, None)
}

fn transport_with(
    servers: Vec<ServerSpec>,
    locks: &Path,
    run: ua_core::RunId,
    stderr_log: Option<PathBuf>,
    env: &Env,
    progress: Option<ProgressWatcher>,
) -> Result<Arc<McpTransport>, CliError> {
    let shim = ShimCommand { program: own_program()?, args: vec!["__shim".into()] };
    let locks = LockDir::new(locks, run, env.clone())
        .map_err(|e| CliError::storage(format!("cannot use the folder of locks: {e}")))?;
    let mut config = McpTransportConfig::new(shim, locks, env.clone());
    config.current_span = crate::telemetry::current_span();
    config.servers = servers;
    config.stderr_log = stderr_log;
    config.progress = progress;
    config.secrets = Some(crate::secrets::get()?);
    Ok(Arc::new(McpTransport::new(config)))
}

fn own_program() -> Result<PathBuf, CliError> {
    std::env::current_exe().map_err(|e| CliError::new(1, format!("cannot find this program's own file: {e}")))
}

/// Keys of this process itself.
const KEYS: [&str; 5] =
    ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY", "UA_TOOLSERVER_TOKEN"];
/// Halves of credentials that are no secret.
const PUBLIC: [&str; 2] = ["UA_MAIL_USER", "AWS_ACCESS_KEY_ID"];

/// What our own tool server signs in to a mail server with, and no other server sees.
const MAIL_CREDENTIALS: [&str; 3] = ["UA_MAIL_USER", "UA_MAIL_PASSWORD", "UA_MAIL_API_KEY"];
/// The same for an object store.
const S3_CREDENTIALS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// The same for a search engine.
const SEARCH_CREDENTIALS: [&str; 1] = ["UA_SEARCH_API_KEY"];
/// The same for an API that describes and draws.
const IMAGE_CREDENTIALS: [&str; 1] = ["UA_IMAGE_API_KEY"];
/// The same for Composio.
const COMPOSIO_CREDENTIALS: [&str; 1] = ["COMPOSIO_API_KEY"];

/// Addresses that often hold a token: they go by the environment, because every user of the machine can read arguments.
const PRIVATE_ADDRESSES: [&str; 2] = ["UA_MAIL_PROBE", "UA_NOTIFY_WEBHOOK"];

/// Our own tool server, as a process like any other.
pub(crate) fn builtin_server(
    root: &Path,
    workspace: &Path,
    launch: &Launch,
    run_command: bool,
) -> Result<ServerSpec, CliError> {
    let text = |path: &Path| path.display().to_string();
    let setting = |name: &str, default: String| crate::env::var(name).unwrap_or(default);
    let mut args = vec!["toolserver".to_owned(), "--workspace".to_owned(), text(workspace)];
    args.extend(["--allow-root".to_owned(), text(&launch.job_dir)]);
    if let Some(mail) = crate::env::var("UA_MAIL") {
        args.extend(["--mail".to_owned(), mail]);
    } else {
        args.extend(["--outbox".to_owned(), setting("UA_OUTBOX", text(&root.join("outbox")))]);
    }
    args.extend(["--objects".to_owned(), setting("UA_OBJECTS", file_url(&root.join("objects"))?)]);
    args.extend(["--notifications".to_owned(), setting("UA_NOTIFICATIONS", text(&root.join("notifications")))]);
    args.extend(["--memory".to_owned(), setting("UA_MEMORY", text(&root.join("agent_core.db")))]);
    let optional = [
        ("--mail-from", "UA_MAIL_FROM"),
        ("--mail-ca-file", "UA_MAIL_CA_FILE"),
        ("--mail-settle-seconds", "UA_MAIL_SETTLE_SECONDS"),
        ("--s3-endpoint", "UA_S3_ENDPOINT"),
        ("--s3-region", "UA_S3_REGION"),
        ("--search", "UA_SEARCH"),
        ("--image-api", "UA_IMAGE_API"),
        ("--composio", "UA_COMPOSIO"),
    ];
    for (flag, name) in optional {
        if let Some(value) = crate::env::var(name) {
            args.extend([flag.to_owned(), value]);
        }
    }
    if crate::env::var("UA_IMAGE_API").is_some() {
        for (flag, name) in
            [("--image-model", "UA_IMAGE_MODEL"), ("--image-generation-model", "UA_IMAGE_GENERATION_MODEL")]
        {
            args.extend(crate::env::var(name).into_iter().flat_map(|value| [flag.to_owned(), value]));
        }
        if crate::env::var("UA_IMAGE_API_HONOURS_KEYS").is_some_and(|value| value != "0") {
            args.push("--image-api-honours-keys".to_owned());
        }
    }
    if crate::env::var("UA_NOTIFY_WEBHOOK_HONOURS_KEYS").is_some_and(|value| value != "0") {
        args.push("--notify-webhook-honours-keys".to_owned());
    }
    if let Some(path) = crate::env::var("PATH") {
        args.extend(["--command-path".to_owned(), path]);
    }
    if run_command {
        args.push("--enable-command".to_owned());
        args.extend(crate::sandbox::flags(root)?);
    }
    if launch.allow_private_addresses {
        args.push("--allow-private-addresses".to_owned());
    }
    let mut env = crate::env::for_tool_servers();
    env.extend(crate::telemetry::for_own_tool_server());
    for name in PRIVATE_ADDRESSES {
        env.extend(crate::env::var(name).map(|value| (name.to_owned(), value)));
    }
    let needs_s3 = crate::env::var("UA_OBJECTS").is_some_and(|objects| objects.starts_with("s3:"));
    let needs = [
        (crate::env::var("UA_MAIL").is_some(), MAIL_CREDENTIALS.as_slice()),
        (needs_s3, S3_CREDENTIALS.as_slice()),
        (crate::env::var("UA_SEARCH").is_some(), SEARCH_CREDENTIALS.as_slice()),
        (crate::env::var("UA_IMAGE_API").is_some(), IMAGE_CREDENTIALS.as_slice()),
        (crate::env::var("UA_COMPOSIO").is_some(), COMPOSIO_CREDENTIALS.as_slice()),
    ];
    for name in needs.into_iter().filter(|(needed, _)| *needed).flat_map(|(_, names)| names) {
        env.extend(crate::env::var(name).map(|value| ((*name).to_owned(), value)));
    }
    let reach = Reach::Stdio { command: text(&own_program()?), args, env, cwd: Some(workspace.to_path_buf()) };
    // Of the same build, so nothing is to be found out about it.
    let protocol = Protocol::Handshake;
    Ok(ServerSpec { protocol, ..ServerSpec::new(BUILTIN, ToolNamespace::Local, reach) })
}

fn file_url(path: &Path) -> Result<String, CliError> {
    url::Url::from_directory_path(path)
        .map(String::from)
        .map_err(|()| CliError::usage(format!("{} cannot be written as a file:// address", path.display())))
}

impl Launch {
    /// Provider and model.
    pub(crate) fn model(&self) -> (String, String) {
        (self.provider.clone(), self.model.clone())
    }

    /// Provider and model of a job that names none.
    pub(crate) fn default_model() -> (String, String) {
        let provider = providers::default_provider();
        let cassette = providers::cassette_file(None).ok().flatten();
        let model = providers::default_model(&provider, cassette.as_deref()).ok().flatten();
        (provider, model.unwrap_or_else(|| "(none is named)".to_owned()))
    }

    /// A launch that belongs to no job: for looking at tools.
    pub(crate) fn for_inspection(folder: PathBuf) -> Self {
        Self {
            provider: String::new(),
            model: String::new(),
            script: None,
            mcp_config: None,
            mcp_config_is_found: false,
            policies: Vec::new(),
            job_dir: folder,
            allow_private_addresses: false,
            pricing: None,
            cassette: None,
            record: None,
            model_facts: None,
            accept: Vec::new(),
            budgets: Vec::new(),
            system: None,
            provider_sessions: false,
        }
    }
}

/// What the ports are made of.
pub(crate) struct Wiring<'a> {
    pub(crate) run: &'a RunRecord,
    /// The job that the run works for: its own, or that of the run at the top of its tree.
    pub(crate) job: &'a RunSpec,
    pub(crate) launch: &'a Launch,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) lease: RunLease,
    pub(crate) trace: Trace,
    pub(crate) transport: Arc<dyn ToolTransport>,
    /// Who drives the run's sub-agents.
    pub(crate) agents: Arc<dyn SubAgents>,
    /// What must not be kept of what tools answer.
    pub(crate) redactor: Redactor,
    pub(crate) specs: Vec<ToolSpec>,
    pub(crate) watcher: Watcher,
    pub(crate) workspace: Workspace,
    /// The workspaces of the runs whose turns a fork shares.
    pub(crate) shared_workspaces: Vec<PathBuf>,
    /// Where the run's locks are.
    pub(crate) locks: PathBuf,
    pub(crate) env: Env,
    pub(crate) stop: StopSignal,
    /// The contract's budgets, with what a person changed since.
    pub(crate) budgets: Budgets,
    pub(crate) seams: &'a dyn Seams,
    /// Who is asked what a tool wants to know in the middle of a call.
    pub(crate) elicitations: Elicitations,
}

/// Puts the ports together.
pub(crate) fn wire(wiring: Wiring<'_>) -> Result<(Ports, RunSettings), CliError> {
    let Wiring {
        run,
        job,
        launch,
        store,
        lease,
        trace,
        transport,
        agents,
        redactor,
        specs,
        watcher,
        workspace,
        shared_workspaces,
        locks,
        env,
        stop,
        budgets,
        seams,
        elicitations,
    } = wiring;
    let spec = &run.spec;
    let classifier = Arc::new(launch.classifier()?);
    let rules = Rules::of(spec).map_err(CliError::usage)?.with_secrets(crate::secrets::get()?.grants());
    let specs = specs.into_iter().chain([WithAskUser::spec(), task_tool()]).collect();
    let catalog = Catalog::new(specs, &classifier, &rules)
        .map_err(|e| CliError::usage(chain(&e)).hint("nothing was sent; correct it, then `ua resume last`"))?;
    let config = LedgerConfig {
        no_duplicate_external_actions: spec.constraints.no_duplicate_external_actions,
        max_retries: budgets.max_retries_per_tool_call,
        max_effects: effect_limits(job),
    };
    let transport = Arc::new(Redacting::new(transport, redactor.clone()));
    let transport = seams.transport(Arc::new(WithAskUser::new(transport, store.clone())));
    let llm = if launch.provider == claude_code::NAME {
        claude_code::provider(run, &shared_workspaces, own_program()?, &locks, providers::model_timeout()?, &env)?
    } else {
        launch.kept(run, &env, &redactor)?
    };
    let llm = seams.llm(Arc::new(RedactingProvider::new(llm, redactor)));
    let prices = pricing::table(launch.pricing.as_deref())?;
    let ledger = Ledger::new(store.clone(), lease.clone(), run.root_run_id.clone(), config, env.clone(), trace)
        .with_people(PeopleRules::of(job))
        .with_prices(prices.clone());
    let files = WorkspaceFiles::open(workspace.root())
        .map_err(|e| CliError::storage(format!("cannot open the workspace: {e}")))?;
    let told = watcher.clone();
    let notices = Box::new(move |notice| told(Signal::Call(notice)));
    let gateway = ToolGateway::new(catalog, classifier, rules, ledger, transport, files, notices)
        .with_elicitations(elicitations)
        .with_sub_agents(agents);
    let pins = PinSettings {
        accept: launch.accept.clone(),
        accepted_by: crate::env::var("USER").unwrap_or_else(|| "a person".to_owned()),
        ..PinSettings::of(spec, &prices)
    };
    let max_output_tokens =
        spec.model.max_output_tokens.unwrap_or_else(|| models::output_tokens(launch.model_facts.as_ref()));
    let settings = RunSettings {
        model: launch.model.clone(),
        system: spec
            .model
            .system_prompt
            .clone()
            .or_else(|| launch.system.clone())
            .unwrap_or_else(|| SYSTEM_PROMPT.to_owned()),
        max_output_tokens,
        history_tokens: launch.model_facts.as_ref().and_then(|facts| facts.history_tokens(max_output_tokens)),
        images: launch.model_facts.as_ref().is_some_and(|facts| facts.images),
        temperature_milli: spec.model.temperature_milli,
        prices,
        retry: RetryPolicy::default(),
        pins,
    };
    Ok((Ports { store, llm, gateway, lease, workspace, env, watcher, stop }, settings))
}
