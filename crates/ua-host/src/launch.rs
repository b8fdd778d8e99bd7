//! How a run is started: provider, model, configuration and policies, found once and stored with the run.

mod accepted_policy;
mod known;
mod named_policies;
mod script;
mod vouched;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use ua_classify::Classifier;
use ua_core::{Component, Env, PriceTable, Redactor, RunId, RunSpec, ShowPath as _};
use ua_dispatch::{OutputSchema, Rules};
use ua_llm::{LlmProvider, ModelExtras, ModelFacts, Places, ScriptedProvider};
use ua_mcp::{McpConfig, ServerSpec};
use ua_runner::{PinSettings, RetryPolicy, RunSettings};
use ua_store::RunRecord;

use crate::Database;
use crate::budgets::BudgetChange;
use crate::claude_code;
use crate::consent;
use crate::error::HostError;
use crate::host::Host;
use crate::mcp_files::{mcp_config, mcp_config_file, mcp_servers};
use crate::obstacles::Obstacles;
use crate::paths::{job_dir, json_fragment};
use crate::people::People;
use crate::placed::{FileKind, Place};
use crate::policies::OfJob;
use crate::providers::{self, no_model};
use crate::review::ServerReview;
use crate::settings::Settings;
use crate::trust::{self, ConfigFile};
use crate::{models, policies, pricing};

pub(crate) use self::known::SERVERS_CHANGED;
pub(crate) use self::named_policies::Begun;
pub(crate) use self::vouched::{SEAL, SaidBy, Vouched};

use self::known::KnownServers;
use self::vouched::UNSAID;

const SYSTEM_PROMPT: &str = "\
You carry out a job step by step with the tools you are given, without asking anybody unless a tool for that is offered.

- Every tool call is recorded before it is made. A call that failed says why; correct it and go on.
- Never repeat a call that sends, publishes, pays or creates something because you are unsure whether it happened: its result says so. If \
a result says that the outcome is unknown, do not repeat it; mention it in your report.
- A note about a resume tells what was done before an interruption. Go on from there and do not redo it.
- Files live in the workspace; put results into work_products/ unless the job says otherwise.
- When everything the job asks for is done, answer with a short summary and no tool call.";

/// A seed that nobody reads is refused.
fn check_seed(spec: &RunSpec, is_taken: bool, provider: &str) -> Result<(), HostError> {
    match spec.model.seed {
        Some(seed) if !is_taken => {
            Err(HostError::usage(format!("`model.seed` is {seed}, and the provider `{provider}` takes no seed"))
                .hint("leave it out, or use `openai-chat`, whose servers take one"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Refuses our own server where this build has none, or its settings cannot be used.
fn check_own_server(settings: &Settings, host: &Host) -> Result<(), HostError> {
    if !cfg!(feature = "toolserver") {
        return Err(HostError::usage("this build has no built-in tool server")
            .hint("set `tools.builtin` to false, or build with the `toolserver` feature"));
    }
    crate::servers::check_builtin(settings, host.home().root())
}

/// Words for the model that its provider would not read are refused.
fn check_extras(extras: &ModelExtras, provider: &str) -> Result<(), HostError> {
    let Some((field, why)) = extras.unread(provider).into_iter().next() else { return Ok(()) };
    Err(HostError::usage(format!("`model.{field}` says something that the provider `{provider}` does not take: {why}"))
        .hint("correct the job")
        .not_begun())
}

/// What whoever starts a run says about how; all of it wins over the job and the settings.
#[derive(Debug, Clone, Default)]
pub struct LaunchOptions {
    /// Model provider by its name.
    pub provider: Option<String>,
    /// The provider's name of the model.
    pub model: Option<String>,
    /// File with an `mcpServers` object; naming it is trusting it.
    pub mcp_config: Option<PathBuf>,
    /// Policy files, the strongest first.
    pub policy: Vec<PathBuf>,
    /// File with what tokens cost.
    pub pricing: Option<PathBuf>,
    /// What the provider `replay` answers from: a cassette, or a folder of them.
    pub cassette: Option<PathBuf>,
    /// Where exchanges with the model are kept.
    pub record: Option<PathBuf>,
    /// Let crawls reach loopback and private addresses.
    pub allow_private_addresses: bool,
}

/// How a run is started, stored with it so that a resume needs no flags.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launch {
    provider: String,
    model: String,
    /// The server at which the provider was asked when the run was started. `None` of one that a worker starts, at the address that it has; of a
    /// provider without one; and of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model_server: Option<String>,
    script: Option<PathBuf>,
    /// The MCP configuration file, absolute.
    pub mcp_config: Option<PathBuf>,
    /// It was found in the current folder, and nobody named it.
    #[serde(default)]
    mcp_config_is_found: bool,
    /// It is named for every folder, and this command is the first to use it for this run.
    #[serde(skip)]
    mcp_config_is_standing: bool,
    /// What a named file said of the servers that the job uses, and their program files, when it was named. `None` without such a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known_servers: Option<KnownServers>,
    /// Nobody but the database says how the run is started.
    #[serde(skip)]
    is_unsaid: bool,
    /// Nobody but the database says it, and a person believes that for the command at work.
    #[serde(skip)]
    is_for_now: bool,
    /// It is that of a fork, which takes a file that is named again and accepts nothing.
    #[serde(skip)]
    is_of_fork: bool,
    /// The run that it was stored with, if it was.
    #[serde(skip)]
    run: Option<ua_core::RunId>,
    /// Servers that a person accepts with this very command, as that is stored.
    #[serde(skip)]
    pub(crate) accepted_servers: Option<Value>,
    /// The version of the rules that a person accepted for whoever drives the run next.
    #[serde(skip)]
    pub(crate) accepted_policy: Option<String>,
    /// Policy files of the command line and the configuration, the strongest first. Of an older version: the job's among them.
    policies: Vec<PathBuf>,
    /// What [`Launch::policies`] were when they were named, and those of the job that were trusted then, as digests. What is missing is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    known_policies: Option<BTreeMap<PathBuf, String>>,
    /// Policy files of the job, which are weaker than the user's own. `None` of an older version.
    #[serde(default)]
    job_policies: Option<Vec<PathBuf>>,
    job_dir: PathBuf,
    /// The folder in which the run was started: what tool servers are told by relative paths is meant there, wherever it is resumed.
    #[serde(default)]
    folder: Option<PathBuf>,
    allow_private_addresses: bool,
    /// The price table, absolute.
    #[serde(default)]
    pub pricing: Option<PathBuf>,
    /// Nobody but a project named it, so it only raises prices.
    #[serde(default)]
    pub pricing_is_the_projects: bool,
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
    pub accept: Vec<Component>,
    /// Budgets that a person changes with this very command.
    #[serde(skip)]
    pub budgets: Vec<BudgetChange>,
    /// What the model is told first of all when the job says nothing. Kept, so that a newer program goes on with the old words.
    #[serde(default)]
    system: Option<String>,
    /// Whether the provider may keep the conversation.
    #[serde(default)]
    provider_sessions: bool,
}

/// What is said about how a job is started by whoever asks for it, and by the place where that is done: all of it but the job itself. A
/// schedule keeps it, so that its job is started in the same way wherever an instant of it is submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configured {
    /// Named by whoever asks; stronger than the job.
    provider: Option<String>,
    /// Named by whoever asks; stronger than the job.
    model: Option<String>,
    /// The provider of a job that names none.
    default_provider: String,
    /// The model of a job that names none, for the provider that it had then.
    default_model: Option<(String, String)>,
    mcp_config: Option<PathBuf>,
    mcp_config_is_found: bool,
    /// Only of what is configured here and now: whoever keeps it for later named the file with it.
    #[serde(skip)]
    mcp_config_is_standing: bool,
    /// Nobody but the database says so.
    #[serde(skip)]
    pub(crate) is_unsaid: bool,
    /// Nobody but the database says so, and a person believes that for the command at work.
    #[serde(skip)]
    pub(crate) is_for_now: bool,
    policies: Vec<PathBuf>,
    folder: PathBuf,
    allow_private_addresses: bool,
    pricing: Option<PathBuf>,
    pricing_is_the_projects: bool,
    cassette: Option<PathBuf>,
    record: Option<PathBuf>,
    /// Whether the provider may keep the conversation of a job that says nothing about it.
    provider_sessions: bool,
}

impl Configured {
    /// What the options and the settings say now, in this order; `spec` is the job that is to be started.
    ///
    /// # Errors
    /// A path or a cassette cannot be used.
    pub fn now(settings: &Settings, spec: &RunSpec, options: &LaunchOptions) -> Result<Self, HostError> {
        let default_provider = providers::default_provider(settings);
        let provider = options.provider.as_ref().or(spec.model.provider.as_ref()).unwrap_or(&default_provider);
        let cassette = providers::cassette_file(settings, options.cassette.as_deref())?;
        let is_named = options.model.is_some() || spec.model.name.is_some();
        let default_model = if is_named {
            None
        } else {
            providers::default_model(settings, provider, cassette.as_deref())?.map(|model| (provider.clone(), model))
        };
        let mcp_config = mcp_config_file(settings, options.mcp_config.as_deref());
        let mut policies = Vec::new();
        for file in &options.policy {
            policies.push(settings.absolute(file)?);
        }
        policies.extend(policies::configured(settings)?);
        Ok(Self {
            provider: options.provider.clone(),
            model: options.model.clone(),
            default_model,
            default_provider,
            mcp_config_is_found: mcp_config.as_ref().is_some_and(|file| file.is_found),
            mcp_config_is_standing: mcp_config.as_ref().is_some_and(|file| file.is_standing),
            mcp_config: mcp_config.map(|file| settings.absolute(&file.path)).transpose()?,
            is_unsaid: false,
            is_for_now: false,
            policies,
            folder: settings.absolute(Path::new("."))?,
            allow_private_addresses: options.allow_private_addresses || settings.is_on("UA_ALLOW_PRIVATE_ADDRESSES"),
            pricing: pricing::file(settings, options.pricing.as_deref())?,
            pricing_is_the_projects: pricing::is_the_projects(settings, options.pricing.as_deref()),
            cassette,
            record: options.record.as_deref().map(|file| providers::cassette_to_record(settings, file)).transpose()?,
            provider_sessions: settings.is_on("UA_PROVIDER_SESSIONS"),
        })
    }
}

impl Launch {
    /// Reads what the options, the job and the settings say, in this order.
    pub fn new(settings: &Settings, job: &Path, spec: &RunSpec, options: &LaunchOptions) -> Result<Self, HostError> {
        Self::of(settings, job, spec, Configured::now(settings, spec, options)?)
    }

    /// How a job is started as it was configured, here or elsewhere.
    ///
    /// # Errors
    /// There is no model that it could be started with.
    pub fn of(settings: &Settings, job: &Path, spec: &RunSpec, configured: Configured) -> Result<Self, HostError> {
        let job_dir = job_dir(settings, job)?;
        let provider = configured.provider.or_else(|| spec.model.provider.clone());
        let provider = provider.unwrap_or(configured.default_provider);
        let default_model = configured.default_model.filter(|(of, _)| *of == provider).map(|(_, model)| model);
        let model = match configured.model.or_else(|| spec.model.name.clone()).or(default_model) {
            Some(model) => model,
            // The job named one when it was configured.
            None => match providers::default_model(settings, &provider, configured.cassette.as_deref())? {
                Some(model) => model,
                None => return Err(no_model(&provider)),
            },
        };
        let mut launch = Self {
            job_policies: Some(spec.policies.iter().map(|file| job_dir.join(file)).collect()),
            folder: Some(configured.folder),
            known_servers: None,
            is_unsaid: false,
            is_for_now: configured.is_for_now,
            is_of_fork: false,
            run: None,
            accepted_servers: None,
            accepted_policy: None,
            model_facts: models::facts(settings, &provider, &model)?,
            model_server: None,
            model,
            cassette: configured.cassette,
            record: configured.record,
            script: spec.model.script.as_ref().map(|script| job_dir.join(script)),
            mcp_config_is_found: configured.mcp_config_is_found,
            mcp_config_is_standing: configured.mcp_config_is_standing,
            mcp_config: configured.mcp_config,
            policies: configured.policies,
            known_policies: None,
            job_dir,
            allow_private_addresses: configured.allow_private_addresses,
            pricing: configured.pricing,
            pricing_is_the_projects: configured.pricing_is_the_projects,
            accept: Vec::new(),
            budgets: Vec::new(),
            system: Some(SYSTEM_PROMPT.to_owned()),
            provider_sessions: spec.settings.provider_sessions.unwrap_or(configured.provider_sessions),
            provider,
        };
        if configured.is_unsaid {
            launch.take_as_found(settings);
        }
        launch.know_servers(settings, spec);
        launch.know_policies(settings);
        Ok(launch)
    }

    /// Refuses names of providers, models and tool servers, and policies, that contain a secret: they are stored with the run and its calls, and
    /// stand wherever these are shown.
    ///
    /// # Errors
    /// The refusal, with the name of the secret.
    pub(crate) fn without_secrets(&self, host: &Host) -> Result<(), HostError> {
        let refuse = |what, words: &str| crate::words::without_secrets(host, what, words).map_err(HostError::not_begun);
        refuse("name of the provider", &self.provider)?;
        refuse("name of the model", &self.model)?;
        // What cannot be read is told by whoever uses it.
        let config = mcp_config(self.mcp_file().as_ref()).unwrap_or_default();
        config.servers.iter().try_for_each(|(name, _)| refuse("name of a tool server", name))?;
        for file in self.policy_files(host.settings()) {
            if let Ok(placed) = Place::named(FileKind::Policy, &file).read() {
                refuse("policy", &placed.into_text())?;
            }
        }
        Ok(())
    }

    /// Keeps the server at which the model is asked now: whoever resumes the run sends its conversation to no other one.
    pub(crate) fn keep_server(&mut self, settings: &Settings) {
        self.model_server = providers::server_of(settings, &self.provider);
    }

    /// Lays what the command line says now over how the run was started. Whatever of it the run is pinned to stops it, and
    /// says so, instead of being ignored.
    pub fn overlay(&mut self, settings: &Settings, spec: &RunSpec, options: &LaunchOptions) -> Result<(), HostError> {
        if let Some(provider) = &options.provider {
            self.provider.clone_from(provider);
            // Whoever names it says that it may have the conversation, wherever it is.
            self.keep_server(settings);
        }
        if let Some(model) = &options.model {
            self.model.clone_from(model);
        }
        if options.provider.is_some() || options.model.is_some() {
            self.model_facts = models::facts(settings, &self.provider, &self.model)?;
        }
        if let Some(cassette) = &options.cassette {
            self.cassette = Some(settings.absolute(cassette)?);
        }
        if let Some(record) = &options.record {
            self.record = Some(providers::cassette_to_record(settings, record)?);
        }
        if let Some(file) = &options.mcp_config {
            self.mcp_config = Some(settings.absolute(file)?);
            (self.mcp_config_is_found, self.mcp_config_is_standing) = (false, false);
            self.folder = Some(settings.absolute(Path::new("."))?);
            self.know_servers(settings, spec);
        }
        if let Some(file) = &options.pricing {
            self.pricing = Some(settings.absolute(file)?);
            self.pricing_is_the_projects = false;
        }
        if !options.policy.is_empty() {
            let named: Result<Vec<PathBuf>, HostError> =
                options.policy.iter().map(|file| settings.absolute(file)).collect();
            self.policies = named?;
            self.policies.extend(policies::configured(settings)?);
            self.job_policies = Some(spec.policies.iter().map(|file| self.job_dir.join(file)).collect());
            self.know_policies(settings);
        }
        self.allow_private_addresses |= options.allow_private_addresses;
        Ok(())
    }

    /// How a fork is started: as its parent was, which is `launch`, but for what its job or the command line say anew.
    pub fn for_fork(
        settings: &Settings,
        mut launch: Self,
        parent: &RunRecord,
        spec: &RunSpec,
        options: &LaunchOptions,
    ) -> Result<Self, HostError> {
        launch.is_of_fork = true;
        let before = &parent.spec;
        if let Some(provider) = spec.model.provider.as_ref().filter(|_| spec.model.provider != before.model.provider) {
            launch.provider.clone_from(provider);
            launch.keep_server(settings);
        }
        if let Some(model) = spec.model.name.as_ref().filter(|_| spec.model.name != before.model.name) {
            launch.model.clone_from(model);
        }
        if spec.model != before.model {
            launch.model_facts = models::facts(settings, &launch.provider, &launch.model)?;
        }
        if spec.model.script != before.model.script {
            launch.script = spec.model.script.as_ref().map(|script| launch.job_dir.join(script));
        }
        if spec.settings.provider_sessions != before.settings.provider_sessions {
            launch.provider_sessions = providers::wants_sessions(settings, spec);
        }
        if spec.policies != before.policies {
            // A run of an older version has the job's behind those of the command line.
            let of_job: Vec<PathBuf> = before.policies.iter().map(|file| launch.job_dir.join(file)).collect();
            launch.policies.retain(|file| !of_job.contains(file));
            launch.job_policies = Some(spec.policies.iter().map(|file| launch.job_dir.join(file)).collect());
        }
        launch.overlay(settings, spec, options)?;
        if spec.tools.servers != before.tools.servers {
            launch.know_more_servers(settings, spec);
        }
        Ok(launch)
    }

    /// The job's folder, as it may stand inside a JSON string.
    pub fn job_dir_text(&self) -> String {
        json_fragment(&self.job_dir)
    }

    pub fn to_stored(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    pub fn from_stored(value: &Value) -> Result<Self, HostError> {
        let mut launch: Self = serde_json::from_value(value.clone()).map_err(|e| {
            HostError::storage(format!("cannot read how the run was started: {e}"))
                .hint("it was stored by another version of ua")
        })?;
        launch.know_no_more_than_is_stored();
        Ok(launch)
    }

    /// Finds everything that can be known to be wrong before anything is stored or started. The configured servers, which were looked at for this, are
    /// returned.
    pub fn check(&self, host: &Host, spec: &RunSpec) -> Result<Vec<ServerSpec>, HostError> {
        let mut obstacles = Obstacles::default();
        let servers = self.look(host, spec, &mut obstacles);
        obstacles.end()?;
        Ok(servers.unwrap_or_default())
    }

    /// The same for whoever wants to know all that is in the way. The servers are returned where nothing is in the way of those.
    pub(crate) fn look(&self, host: &Host, spec: &RunSpec, obstacles: &mut Obstacles) -> Option<Vec<ServerSpec>> {
        obstacles.past(self.check_model(host, spec));
        self.look_at_rest(host, spec, obstacles)
    }

    /// The same for a run that a worker drives: the model is asked from there, with the key that is there. What a worker here would lack for that
    /// is returned as well.
    pub(crate) fn look_for_queue(
        &self,
        host: &Host,
        spec: &RunSpec,
        obstacles: &mut Obstacles,
    ) -> (Option<Vec<ServerSpec>>, Option<HostError>) {
        let lacking = providers::lacking(host.settings(), &self.provider);
        obstacles.past(if lacking.is_none() { self.check_model(host, spec) } else { self.check_without_model(spec) });
        (self.look_at_rest(host, spec, obstacles), lacking)
    }

    fn check_without_model(&self, spec: &RunSpec) -> Result<(), HostError> {
        check_extras(&providers::extras_of(spec)?, &self.provider)?;
        check_seed(spec, providers::takes_seed(&self.provider), &self.provider)
    }

    fn check_model(&self, host: &Host, spec: &RunSpec) -> Result<(), HostError> {
        let settings = host.settings();
        let extras = providers::extras_of(spec)?;
        check_extras(&extras, &self.provider)?;
        self.check_server(settings)?;
        if self.provider == claude_code::NAME {
            claude_code::check(settings)?;
            check_seed(spec, false, &self.provider)?;
            providers::model_timeout(settings)?;
        } else {
            let provider = self.provider(settings, host.env(), &Redactor::default(), &Places::default(), &extras)?;
            check_seed(spec, provider.takes_seed(), &self.provider)?;
        }
        Ok(())
    }

    fn check_server(&self, settings: &Settings) -> Result<(), HostError> {
        self.model_server.as_deref().map_or(Ok(()), |server| providers::check_server(settings, &self.provider, server))
    }

    fn look_at_rest(&self, host: &Host, spec: &RunSpec, obstacles: &mut Obstacles) -> Option<Vec<ServerSpec>> {
        let settings = host.settings();
        obstacles.past(consent::check_questions(settings, spec));
        if let Some(schema) = &spec.output_schema {
            let schema = OutputSchema::new(schema);
            obstacles.past(schema.map_err(|why| HostError::usage(format!("`output_schema` {why}")).not_begun()));
        }
        let prices = (self.pricing.as_deref(), self.pricing_is_the_projects);
        obstacles.past(pricing::check(settings, prices, &self.provider, &self.model, spec));
        obstacles.past(self.classifier(settings));
        obstacles.past(
            Rules::of(spec).map_err(|why| {
                HostError::usage(why).hint("correct the pattern in the job file; `*` stands for any text")
            }),
        );
        let servers = obstacles.past(self.configured_servers(host, spec));
        obstacles.past(self.check_files(spec));
        let own = if spec.tools.builtin { check_own_server(settings, host) } else { Ok(()) };
        let has_own = obstacles.past(own).is_some();
        servers.filter(|_| has_own)
    }

    /// Refuses a job with images for a model that is not known to read any.
    pub fn check_files(&self, spec: &RunSpec) -> Result<(), HostError> {
        let reads_images = self.model_facts.as_ref().is_some_and(|facts| facts.images);
        crate::input_files::check_model(spec, &self.provider, &self.model, reads_images)
    }

    /// Whether crawls may reach loopback and private addresses.
    pub(crate) fn allows_private_addresses(&self) -> bool {
        self.allow_private_addresses
    }

    /// The folder in which the run was started; `None` of an older version.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The folder of the job file.
    pub fn job_dir(&self) -> &Path {
        &self.job_dir
    }

    /// The name of the model provider.
    pub(crate) fn provider_name(&self) -> &str {
        &self.provider
    }

    /// The model provider.
    fn provider(
        &self,
        settings: &Settings,
        env: &Env,
        redactor: &Redactor,
        places: &Places,
        extras: &ModelExtras,
    ) -> Result<Arc<dyn LlmProvider>, HostError> {
        if let Some(made) = providers::by_settings(settings, &self.provider, self.provider_sessions, extras, env) {
            return made;
        }
        match self.provider.as_str() {
            "replay" => providers::replay(self.cassette.as_deref(), redactor.clone(), places.clone()),
            "scripted" => Ok(Arc::new(ScriptedProvider::new(self.read_script()?.1))),
            other => Err(providers::unknown(other)),
        }
    }

    /// The provider of a run, whose exchanges are kept where a person asked for it. A fork shares turns with the runs `shared`.
    pub(crate) fn provider_of(
        &self,
        host: &Host,
        run: &RunRecord,
        shared: &[RunId],
        redactor: &Redactor,
    ) -> Result<Arc<dyn LlmProvider>, HostError> {
        let (settings, env) = (host.settings(), host.env());
        if self.provider == claude_code::NAME {
            return claude_code::provider(host, run, shared);
        }
        self.check_server(settings)?;
        let places = providers::places_of(run, &self.job_dir);
        let mut provider = self.provider(settings, env, redactor, &places, &providers::extras_of(&run.spec)?)?;
        if let Some(path) = &self.record {
            let file = providers::recording_file(path, run);
            if host.home().is_own_file(&file) {
                return Err(providers::not_a_cassette(&file, "`ua` keeps its own files there"));
            }
            provider = providers::recorded(provider, &file, redactor.clone(), places.clone())?;
        }
        if settings.is_on("UA_KEEP_BODIES") {
            provider =
                providers::recorded_in(provider, Path::new(&run.workspace_dir), redactor.clone(), places.clone())?;
        }
        Ok(provider)
    }

    /// What a run of this job is driven with.
    pub(crate) fn run_settings(&self, spec: &RunSpec, prices: PriceTable, pins: PinSettings) -> RunSettings {
        let facts = self.model_facts.as_ref();
        let max_output_tokens = spec.model.max_output_tokens.unwrap_or_else(|| models::output_tokens(facts));
        let system = spec.model.system_prompt.clone().or_else(|| self.system.clone());
        RunSettings {
            model: self.model.clone(),
            system: system.unwrap_or_else(|| SYSTEM_PROMPT.to_owned()),
            max_output_tokens,
            history_tokens: facts.and_then(|facts| facts.history_tokens(max_output_tokens)),
            images: facts.is_some_and(|facts| facts.images),
            structured: facts.is_some_and(|facts| facts.structured),
            temperature_milli: spec.model.temperature_milli,
            seed: spec.model.seed,
            prices,
            retry: RetryPolicy::default(),
            pins,
        }
    }

    /// Says once that no model of this name is known, that its price stands under another name, and that what it is asked goes there in the clear.
    pub(crate) fn tell_unknown_model(&self, settings: &Settings, people: &dyn People) {
        if let Some(told) = providers::in_the_clear(settings, &self.provider) {
            people.remark(&format!("note: {told}"));
        }
        if let Some(doubt) = self.model_doubt(settings) {
            people.remark(&format!("note: {doubt}"));
        }
        let table = (self.pricing.as_deref(), self.pricing_is_the_projects);
        if let Some(doubt) = pricing::doubt(settings, table, &self.provider, &self.model) {
            people.remark(&format!("note: {doubt}"));
        }
    }

    /// Says at the first run that asks this model that nobody counts what it costs. How much is not known then stands with every run.
    pub(crate) async fn tell_uncounted(&self, settings: &Settings, people: &dyn People, store: &Database) {
        let table = (self.pricing.as_deref(), self.pricing_is_the_projects);
        let said = pricing::uncounted(settings, table, &self.provider, &self.model);
        if let Some(said) = said
            && !pricing::was_asked_before(store, &self.provider, &self.model).await
        {
            people.remark(&format!("note: {said}"));
        }
    }

    /// What is in doubt about the name of the model, in a sentence; `None` when a model of this name is known.
    pub fn model_doubt(&self, settings: &Settings) -> Option<String> {
        models::doubt(settings, &self.provider, &self.model)
    }

    /// The classifier: policy files of the command line, then the user's own, then those of the job, then ours. What comes with a job may
    /// raise caution; where a person trusted the file, it fills in what no rule of the user says.
    pub fn classifier(&self, settings: &Settings) -> Result<Classifier, HostError> {
        self.classifier_with(settings, &[])
    }

    /// The policy files, the strongest first: of the command line and the configuration, the user's own, those of the job.
    pub fn policy_files(&self, settings: &Settings) -> Vec<PathBuf> {
        let (mut files, of_job) = self.named_policies();
        files.extend(policies::of_user(settings));
        files.extend(of_job);
        policies::each_once(&files, &mut BTreeSet::new()).into_iter().cloned().collect()
    }

    /// The same with further policy files laid over all others.
    pub fn classifier_with(&self, settings: &Settings, over: &[PathBuf]) -> Result<Classifier, HostError> {
        let (of_user, of_job) = self.named_policies();
        let mut files = over.to_vec();
        files.extend(of_user);
        files.extend(policies::of_user(settings));
        let of_job = OfJob { folder: self.job_dir.clone(), files: of_job };
        policies::classifier(settings, &files, Some(&of_job), self.mcp_file().as_ref(), self.start_folder())
    }

    /// The policy files that were named for this job: with it, or in it. Those of the configuration are for every job.
    pub(crate) fn policies_of_this_job(&self, settings: &Settings) -> Result<Vec<PathBuf>, HostError> {
        let (of_user, of_job) = self.named_policies();
        let general = policies::configured(settings)?;
        Ok(of_user.into_iter().filter(|file| !general.contains(file)).chain(of_job).collect())
    }

    /// The policy files that the user named, and those that came with the job.
    fn named_policies(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        match &self.job_policies {
            Some(of_job) => (self.policies.clone(), of_job.clone()),
            // An older version did not tell them apart, so whatever lies with the job came with it.
            None => self.policies.iter().cloned().partition(|file| !file.starts_with(&self.job_dir)),
        }
    }

    /// The policy files of the job that nobody trusted as they are now.
    pub fn untrusted_policies(&self, settings: &Settings) -> Vec<PathBuf> {
        let is_trusted = |file: &PathBuf| {
            let placed = Place::of_job(FileKind::Policy, file, &self.job_dir).read();
            placed.is_ok_and(|placed| trust::policy::is_trusted(settings, file, &placed.into_text()))
        };
        // What the user named is the user's word, whichever job names it too.
        let ((mut of_user, of_job), mut seen) = (self.named_policies(), BTreeSet::new());
        of_user.extend(policies::of_user(settings));
        policies::each_once(&of_user, &mut seen);
        let of_job = policies::each_once(&of_job, &mut seen);
        of_job.into_iter().filter(|file| !is_trusted(file)).cloned().collect()
    }

    /// The servers of the MCP configuration that the job uses.
    pub fn configured_servers(&self, host: &Host, spec: &RunSpec) -> Result<Vec<ServerSpec>, HostError> {
        let config = self.wanted_servers(spec)?;
        self.check_known(host.settings(), &config.servers)?;
        let servers = mcp_servers(host, self.mcp_file().as_ref(), config);
        let mut servers = servers.map_err(|error| if self.is_unsaid { error.and(UNSAID) } else { error })?;
        if let Some(folder) = self.folder_of_servers() {
            for server in &mut servers {
                server.reach.start_in(folder);
            }
        }
        Ok(servers)
    }

    /// The servers that nobody let in, of those that the job uses.
    pub(crate) fn untrusted_servers(
        &self,
        settings: &Settings,
        spec: &RunSpec,
    ) -> Result<Vec<ServerReview>, HostError> {
        let Some(file) = self.mcp_file() else { return Ok(Vec::new()) };
        trust::untrusted(settings, &file, &self.wanted_servers(spec)?.servers)
    }

    /// The file with the tool servers.
    pub fn mcp_file(&self) -> Option<ConfigFile> {
        let path = self.mcp_config.clone()?;
        Some(ConfigFile { path, is_found: self.mcp_config_is_found, is_standing: self.mcp_config_is_standing })
    }

    /// The servers of the MCP configuration that the job uses, as the file has them.
    fn wanted_servers(&self, spec: &RunSpec) -> Result<McpConfig, HostError> {
        let mut config = mcp_config(self.mcp_file().as_ref())?;
        let Some(wanted) = &spec.tools.servers else { return Ok(config) };
        let known: Vec<String> = config.servers.iter().map(|(name, _)| name.clone()).collect();
        if let Some(missing) = wanted.iter().find(|name| !known.contains(name)) {
            let nearest = ua_core::nearest(missing, known.iter().map(String::as_str));
            let hint = match (nearest, &self.mcp_config) {
                (Some(nearest), _) => format!("did you mean `{nearest}`?"),
                (_, Some(file)) => format!(
                    "{} has {}",
                    file.shown(),
                    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                ),
                (_, None) => "name a file with an `mcpServers` object with --mcp-config".to_owned(),
            };
            return Err(HostError::usage(format!(
                "the job requires the tool server `{missing}`, which is not configured"
            ))
            .hint(hint));
        }
        config.servers.retain(|(name, _)| wanted.contains(name));
        Ok(config)
    }
}

impl Launch {
    /// Provider and model.
    pub fn model(&self) -> (String, String) {
        (self.provider.clone(), self.model.clone())
    }

    /// Whether a run that was started as `stored` asks the same model of the same provider, or the same recording of it.
    pub(crate) fn asks_like(&self, stored: &Value) -> bool {
        Self::from_stored(stored).is_ok_and(|other| {
            (&self.provider, &self.model, &self.cassette) == (&other.provider, &other.model, &other.cassette)
        })
    }

    /// Provider and model of a job that names none.
    pub fn default_model(settings: &Settings) -> (String, String) {
        let provider = providers::default_provider(settings);
        let cassette = providers::cassette_file(settings, None).ok().flatten();
        let model = providers::default_model(settings, &provider, cassette.as_deref()).ok().flatten();
        (provider, model.unwrap_or_else(|| "(none is named)".to_owned()))
    }

    /// One whose model is a script, for tests.
    #[cfg(test)]
    pub(crate) fn scripted(folder: PathBuf, script: PathBuf) -> Self {
        Self { provider: "scripted".into(), script: Some(script), ..Self::for_inspection(folder) }
    }

    /// A launch that belongs to no job: for looking at tools.
    pub fn for_inspection(folder: PathBuf) -> Self {
        Self {
            model_server: None,
            provider: String::new(),
            model: String::new(),
            script: None,
            mcp_config: None,
            mcp_config_is_found: false,
            mcp_config_is_standing: false,
            policies: Vec::new(),
            known_policies: None,
            job_policies: None,
            folder: None,
            known_servers: None,
            is_unsaid: false,
            is_for_now: false,
            is_of_fork: false,
            run: None,
            accepted_servers: None,
            accepted_policy: None,
            job_dir: folder,
            allow_private_addresses: false,
            pricing: None,
            pricing_is_the_projects: false,
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
