//! Everything that the parts of a front door's process share, as one value that is handed down.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ua_core::{Env, Redactor};
use ua_mcp::{Foreteller, Logins};
use ua_runner::{Open, Seams};

use crate::error::HostError;
use crate::home::Home;
use crate::logins::LoginFiles;
use crate::secrets::Secrets;
use crate::settings::Settings;
use crate::spans::{NoSpans, Spans};
use crate::words::KnownSecrets;

/// What a front door has for all its work: settings, folders, the redactor, the user's secrets, the clock. Clones share all of it; two
/// hosts of one process share no setting, secret or folder.
#[derive(Clone)]
pub struct Host {
    settings: Arc<Settings>,
    home: Home,
    known: KnownSecrets,
    /// One for all transports of the process: a login is renewed by one at a time.
    logins: Arc<OnceLock<Logins>>,
    seams: Arc<dyn Seams>,
    spans: Arc<dyn Spans>,
    foreteller: Option<Foreteller>,
    env: Env,
    entrypoint: &'static str,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("home", &self.home).finish_non_exhaustive()
    }
}

impl Host {
    /// A host over these settings, with the real clock. `root` is where workspaces are, if not where the settings say. `redactor` is what
    /// the front door cleans its own output with; it learns every secret that the host meets, the keys of the settings at once.
    pub fn new(settings: Arc<Settings>, root: Option<&Path>, redactor: Redactor) -> Result<Self, HostError> {
        let known = KnownSecrets::new(settings.clone(), redactor);
        let home = Home::new(&settings, root, &known)?;
        Ok(Self {
            env: home.env(),
            home,
            settings,
            known,
            logins: Arc::default(),
            seams: Arc::new(Open),
            spans: Arc::new(NoSpans),
            foreteller: None,
            entrypoint: "cli",
        })
    }

    /// The same, whose root a person says is theirs, whoever made it.
    #[must_use]
    pub fn trusting_root(mut self) -> Self {
        self.home = self.home.trusted();
        self
    }

    /// The same for a job: where nobody says where runs are, and there are none here, they are where those of its file are. Returns whether that
    /// is elsewhere.
    #[must_use]
    pub fn beside(mut self, job: &Path) -> (Self, bool) {
        let before = self.home.root().to_path_buf();
        self.home = self.home.beside(&self.settings, job);
        self.env = self.home.env();
        let is_elsewhere = self.home.root() != before;
        (self, is_elsewhere)
    }

    /// The same over another place.
    #[must_use]
    pub(crate) fn at(&self, home: Home) -> Self {
        Self { env: home.env(), home, ..self.clone() }
    }

    /// The same with wrapped ports.
    #[must_use]
    pub fn with_seams(mut self, seams: Arc<dyn Seams>) -> Self {
        self.seams = seams;
        self
    }

    /// The same with somebody who follows its spans.
    #[must_use]
    pub fn with_spans(mut self, spans: Arc<dyn Spans>) -> Self {
        self.spans = spans;
        self
    }

    /// The same for a program that knows what its own tool server will say before that is started.
    #[must_use]
    pub fn with_foreteller(mut self, foreteller: Foreteller) -> Self {
        self.foreteller = Some(foreteller);
        self
    }

    /// The same for another front door than the command line: runs that it starts say so (`library` is taken: such runs are resumed by the
    /// program that started them).
    #[must_use]
    pub fn with_entrypoint(mut self, entrypoint: &'static str) -> Self {
        self.entrypoint = entrypoint;
        self
    }

    /// Which front door starts runs here.
    pub fn entrypoint(&self) -> &'static str {
        self.entrypoint
    }

    /// What files and environment say.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where workspaces, database and locks are.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// What takes the secrets that are known by now out of text.
    pub fn redactor(&self) -> &Redactor {
        self.known.redactor()
    }

    /// The secrets that this host can know: its databases take no word with one of them.
    pub fn known_secrets(&self) -> &KnownSecrets {
        &self.known
    }

    /// The user's secrets; an error when their file cannot be used.
    pub fn secrets(&self) -> Result<Arc<Secrets>, HostError> {
        self.known.secrets()
    }

    /// Where the user is logged in at tool servers.
    pub fn logins(&self) -> Logins {
        let kept = || LoginFiles::of_user(&self.settings, self.redactor(), &self.env);
        self.logins.get_or_init(|| Logins::new(Arc::new(kept()), self.env.clone())).clone()
    }

    /// What wraps the ports of each run.
    pub fn seams(&self) -> &Arc<dyn Seams> {
        &self.seams
    }

    /// Who follows runs as spans.
    pub fn spans(&self) -> &Arc<dyn Spans> {
        &self.spans
    }

    /// Who knows what tool servers will say before they are started, if anybody does.
    pub(crate) fn foreteller(&self) -> Option<&Foreteller> {
        self.foreteller.as_ref()
    }

    /// The clock and the source of ids.
    pub fn env(&self) -> &Env {
        &self.env
    }
}
