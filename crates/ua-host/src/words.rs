//! What a person writes that is stored as it is: jobs, answers, reasons, names.
//!
//! Security model S3. Invariant: none of it holds a secret that this process can know. What is stored stands in files for people and goes to the
//! model's provider, and nobody who writes it down means that. Each database that is opened here refuses it ([`KnownSecrets`]), whoever
//! writes; who knows earlier that something would be refused says so before a folder, a lock or a process is there for it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Once, OnceLock};

use ua_core::Redactor;
use ua_store::{RunRecord, Said, StoreError};

use crate::database::Database;
use crate::error::HostError;
use crate::host::Host;
use crate::launch::Launch;
use crate::mcp_files::{mcp_config, mcp_config_file};
use crate::secrets::Secrets;
use crate::servers;
use crate::settings::Settings;
use crate::trust::ConfigFile;

/// What helps whoever wrote down a secret.
pub(crate) const LEAVE_IT_OUT: &str = "leave it out: what is said is stored, shown to others and sent to the model. A tool gets a secret by \
                                       `${secret:NAME}`, as docs/guide/secrets.md explains";

/// The secrets that a host can know, as its databases and its commands go by them. Clones know the same.
#[derive(Clone)]
pub struct KnownSecrets {
    settings: Arc<Settings>,
    redactor: Redactor,
    /// Read when they are first needed: a command that needs none does not fail for them.
    secrets: Arc<OnceLock<Result<Arc<Secrets>, HostError>>>,
    /// The tool servers that are configured where this process was started have been read.
    here: Arc<Once>,
}

impl Default for KnownSecrets {
    /// None: what is stored is looked at for nothing.
    fn default() -> Self {
        Self::new(Arc::default(), Redactor::default())
    }
}

impl fmt::Debug for KnownSecrets {
    /// Names, never values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.redactor.fmt(f)
    }
}

impl KnownSecrets {
    pub(crate) fn new(settings: Arc<Settings>, redactor: Redactor) -> Self {
        crate::credentials::learn_own(&settings, &redactor);
        Self { settings, redactor, secrets: Arc::default(), here: Arc::new(Once::new()) }
    }

    /// Learns the keys of other settings, by which something is opened here.
    pub(crate) fn learn_own(&self, settings: &Settings) {
        crate::credentials::learn_own(settings, &self.redactor);
    }

    /// What takes the secrets that are known by now out of text.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The user's secrets; an error when their file cannot be used.
    pub(crate) fn secrets(&self) -> Result<Arc<Secrets>, HostError> {
        self.secrets.get_or_init(|| Secrets::read(self.settings.clone(), self.redactor.clone()).map(Arc::new)).clone()
    }

    /// Learns what the user declared. Of secrets that cannot be read nothing is known; whoever needs them says so.
    pub fn learn_declared(&self) {
        if let Err(error) = self.secrets() {
            tracing::debug!(%error, "the secrets cannot be read, so they are not looked for");
        }
    }

    /// Learns what a configuration of tool servers gives them, whether or not anybody trusts it: it is read to be kept out of what is stored, and
    /// for nothing else. One that cannot be read is told by whoever uses it.
    pub(crate) fn learn_servers(&self, file: Option<&ConfigFile>) {
        let Ok(config) = mcp_config(file) else { return };
        // References stay out of it: a job may name them. Values of declared secrets are known by themselves.
        let value = |wanted: &str| match wanted.strip_prefix("secret:") {
            Some(_) => Some(String::new()),
            None => Some(self.settings.var(wanted).unwrap_or_default()),
        };
        if let Ok(whole) = config.expand(value) {
            self.redactor.learn(whole.servers.iter().flat_map(|(name, reach)| reach.secrets(name)));
        }
    }

    /// Refuses words with a secret in them.
    ///
    /// # Errors
    /// [`StoreError::HoldsSecret`].
    pub(crate) fn refuse_in(&self, said: impl IntoIterator<Item = Said>) -> Result<(), StoreError> {
        let mut said = said.into_iter().peekable();
        if said.peek().is_none() {
            return Ok(());
        }
        self.learn_declared();
        self.here.call_once(|| self.learn_servers(mcp_config_file(&self.settings, None).as_ref()));
        said.try_for_each(|said| said.without_secrets(&self.redactor))
    }
}

/// What takes secrets out of what a process writes before it has a host: its keys, and what the user declared.
pub fn redactor_of_process(settings: Arc<Settings>) -> Redactor {
    let known = KnownSecrets::new(settings, Redactor::default());
    known.learn_declared();
    known.redactor
}

/// Refuses words that contain a secret. `what` says what they are: "reason", "job key".
///
/// # Errors
/// The refusal, with the name of the secret.
pub fn without_secrets(host: &Host, what: &'static str, words: &str) -> Result<(), HostError> {
    let said = Said { what, words: words.into() };
    host.known_secrets().refuse_in([said]).map_err(|error| HostError::usage(error.to_string()).hint(LEAVE_IT_OUT))
}

/// The same of what is said about a run, whose tool servers may be given secrets of their own.
///
/// # Errors
/// The refusal.
pub async fn about_run(
    host: &Host,
    store: &Database,
    run: &RunRecord,
    what: &'static str,
    words: &str,
) -> Result<(), HostError> {
    learn_of_run(host, store, run).await;
    without_secrets(host, what, words)
}

/// Learns what the tool servers of a run are given, before anything that is said about it is stored.
pub(crate) async fn learn_of_run(host: &Host, store: &Database, run: &RunRecord) {
    // A session of the gateway has none that are stored, and of a run whose configuration is not there nothing more is known.
    let Ok(launch) = Launch::of_run(host, store, run).await else { return };
    host.known_secrets().learn_servers(launch.mcp_file().as_ref());
    if let Ok(servers) = launch.configured_servers(host, &run.spec) {
        servers::redactor(host, &servers).ok();
    }
}

/// Learns what the tool servers of a configuration are given that a command names, before its other words are looked at.
pub fn learn_named(host: &Host, file: Option<&Path>) {
    host.known_secrets().learn_servers(mcp_config_file(host.settings(), file).as_ref());
}
