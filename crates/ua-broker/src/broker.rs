//! What the broker has, for all who come to it.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use ua_classify::Classifier;
use ua_core::{CallId, Env, QuestionId, RawReply, Redactor, RunId, Timestamp};
use ua_dispatch::StopSignal;
use ua_mcp::{Horizon, Logins, ShimCommand};
use ua_runner::LateFile;
use ua_store::{CallRecord, SessionRecord, Store, StoreError};

use crate::budget::Spent;
use crate::client::Inputs;
use crate::dropped::Dropped;
use crate::http::HttpSettings;
use crate::live::{LiveCall, LiveCalls};
use crate::owned::Sessions;
use crate::presence::Shown;
use crate::promises::Promises;
use crate::settings::{Entries, GatewayRules};
use crate::sync::lock;
use crate::unanswered::Unanswered;

/// Of how many processes it is kept at least what their hooks said.
const MOST_HOOKS: usize = 1_000;

/// What a broker is made from.
#[derive(Clone)]
pub struct BrokerConfig {
    /// Where it listens. Its folder is the owner's alone.
    pub socket: PathBuf,
    /// Where locks are.
    pub locks: PathBuf,
    /// Where logs of tool servers go.
    pub logs: PathBuf,
    /// Where answers are kept while the database does not take them: a file.
    pub late_replies: PathBuf,
    /// Where the key is with which accounts are told apart: a file, made when there is none.
    pub account_key: PathBuf,
    /// How tool servers are started.
    pub shim: ShimCommand,
    /// How a person runs this program against this gateway, as models are told it.
    pub person: String,
    /// How long a request waits for a person, if its client does.
    pub hold_wait: Duration,
    /// What the user says about clients and budgets.
    pub rules: GatewayRules,
    /// Where clients come over HTTP, if they may.
    pub http: Option<HttpSettings>,
    /// Tool servers for clients that name one: over HTTP, or all at once.
    pub entries: Entries,
    /// How long after it was given up a request to a tool server over HTTP may still be begun there.
    pub remote_horizon: Duration,
    /// How long it stays without a client and without a call.
    pub idle_exit: Duration,
    /// Where the user is logged in, for servers over HTTP whose entry has no token.
    pub logins: Option<Logins>,
    /// The files that all this was read from, each with the digest of what it said; `None` of one that was not there. Whoever asks how things stand
    /// is told.
    pub made_from: BTreeMap<String, Option<String>>,
}

/// The broker.
pub struct Broker {
    pub(crate) config: BrokerConfig,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) classifier: Arc<Classifier>,
    pub(crate) redactor: Redactor,
    pub(crate) horizon: Arc<Horizon>,
    pub(crate) env: Env,
    /// Since when it is there: what was delivered before, another one knew.
    pub(crate) began_at: Timestamp,
    pub(crate) stop: StopSignal,
    /// Nobody is let in any more.
    pub(crate) closing: CancellationToken,
    pub(crate) sessions: Sessions,
    /// What is under way.
    pub(crate) live: LiveCalls,
    /// Where answers are kept on stable storage while the database does not take them.
    pub(crate) late: Arc<LateFile>,
    /// Answers that came and that the database has not taken yet.
    pub(crate) kept: Mutex<HashMap<CallId, Kept>>,
    /// What is expected from clients whose requests stand for themselves.
    pub(crate) inputs: Inputs,
    /// What of the budgets is used up.
    pub(crate) spent: Spent,
    /// What sessions were told to ask for again.
    pub(crate) promises: Promises,
    /// What clients gave up of which they were told nothing.
    pub(crate) dropped: Dropped,
    /// Calls whose tool was told that nobody is there.
    pub(crate) unanswered: Unanswered,
    /// What clients' own dialogues show.
    pub(crate) shown: Shown,
    /// Where it listens for clients over HTTP.
    pub(crate) address: Mutex<Option<std::net::SocketAddr>>,
    /// Why it does not, as long as the address is another program's.
    pub(crate) taken: Mutex<Option<String>>,
    /// Who is connected, by bridge.
    pub(crate) connected: Mutex<HashMap<String, Connected>>,
    pub(crate) connections: AtomicUsize,
    projects: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
    /// What a client's hook said: the session of the process that is the client.
    hooks: Mutex<HashMap<u32, String>>,
    /// With which accounts are told apart, and arguments that are not stored as they are given, once it was read.
    pub(crate) account_key: Mutex<Option<Arc<str>>>,
    /// Under which names a project reaches a tool server, by project and server.
    names: Mutex<HashMap<(String, String), BTreeSet<String>>>,
}

/// An answer that came and that the database has not taken yet.
pub(crate) struct Kept {
    pub(crate) call: Box<CallRecord>,
    /// The session whose call it is.
    pub(crate) session: SessionRecord,
    pub(crate) reply: RawReply,
    /// Why it is nowhere on stable storage, if it is not: with this process it would be gone.
    pub(crate) unrecorded: Option<String>,
}

/// Somebody who is connected, for those who look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Connected {
    pub(crate) server: String,
    pub(crate) client: String,
    pub(crate) project: String,
    pub(crate) identity: &'static str,
    pub(crate) parent: u32,
    pub(crate) way: Way,
    /// The sessions that it is in.
    pub(crate) runs: HashSet<RunId>,
    /// How many streams its client has open over HTTP.
    pub(crate) streams: usize,
    /// Whether its client may have gone: over HTTP nobody says so.
    pub(crate) is_away: bool,
    /// Whether its requests stand for themselves: it has no connection that could be gone.
    pub(crate) stands_alone: bool,
}

/// How somebody is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Way {
    /// Through a bridge.
    #[default]
    Bridge,
    /// Over HTTP.
    Http,
}

impl Way {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Http => "http",
        }
    }
}

/// The gateway itself could not do something. Whether a call was sent before that it does not say: see `Unanswerable`.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct Broken {
    why: String,
    is_of_store: bool,
}

impl Broken {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), is_of_store: false }
    }

    pub(crate) fn at(doing: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |error| Self::of_store(format!("{doing}: {error}"))
    }

    pub(crate) fn of_store(why: String) -> Self {
        Self { why, is_of_store: true }
    }

    /// Whether the database is why. Whoever starts a broker says so by how it ends.
    pub fn is_of_store(&self) -> bool {
        self.is_of_store
    }
}

/// Why a request for a tool has no answer of its own. There is no way from [`Broken`] to either by itself: whoever meets one says on which
/// side of the send it was.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswerable {
    /// Nothing was sent for this request.
    #[error("{0}")]
    Before(#[source] Broken),
    /// It is a call that was taken up before, so it may have been sent.
    #[error("{why}")]
    After {
        /// The call, where it is known which it is.
        call: Option<CallId>,
        /// When it was sent, where that is known.
        since: Option<Timestamp>,
        /// What could not be done.
        #[source]
        why: Broken,
    },
}

impl Unanswerable {
    /// An error about a call that was taken up before.
    pub(crate) fn after(call: &CallId) -> impl FnOnce(Broken) -> Self {
        let call = Some(call.clone());
        move |why| Self::After { call, since: None, why }
    }

    /// The same of a request that comes again: an earlier broker may have sent what this one could not look up.
    pub(crate) fn of_one_that_comes_again(self) -> Self {
        match self {
            Self::Before(why) => Self::After { call: None, since: None, why },
            after @ Self::After { .. } => after,
        }
    }
}

impl Broker {
    /// A broker over a store. `redactor` learns what the entries of clients keep secret.
    pub fn new(
        config: BrokerConfig,
        store: Arc<dyn Store>,
        classifier: Arc<Classifier>,
        redactor: Redactor,
        env: Env,
    ) -> Arc<Self> {
        let own = env.entropy.next_u64();
        let began_at = env.now();
        Arc::new(Self {
            horizon: Arc::new(Horizon::new(config.remote_horizon, env.clone())),
            late: Arc::new(LateFile::at(config.late_replies.clone()).with_room()),
            config,
            store,
            classifier,
            redactor,
            env,
            began_at,
            stop: StopSignal::default(),
            closing: CancellationToken::new(),
            sessions: Sessions::default(),
            live: LiveCalls::default(),
            kept: Mutex::default(),
            inputs: Inputs::of(own),
            spent: Spent::default(),
            promises: Promises::default(),
            dropped: Dropped::default(),
            unanswered: Unanswered::default(),
            shown: Shown::default(),
            address: Mutex::default(),
            taken: Mutex::default(),
            connected: Mutex::default(),
            connections: AtomicUsize::new(0),
            projects: Mutex::default(),
            hooks: Mutex::default(),
            account_key: Mutex::default(),
            names: Mutex::default(),
        })
    }

    /// In a project one request after the other is told apart; what it comes to is known before the next is looked at.
    pub(crate) fn project(&self, project: &str) -> Arc<AsyncMutex<()>> {
        let mut projects = lock(&self.projects);
        projects.entry(project.to_owned()).or_default().clone()
    }

    /// A session reaches a tool server by this name.
    pub(crate) fn note_name(&self, session: &SessionRecord) {
        let mut names = lock(&self.names);
        names.entry((session.project.clone(), session.reach.clone())).or_default().insert(session.server.clone());
    }

    /// By which other names sessions of a project reach this tool server, or did.
    pub(crate) fn other_names(&self, project: &str, reach: &str, own: &str) -> Vec<String> {
        let names = lock(&self.names);
        let all = names.get(&(project.to_owned(), reach.to_owned())).into_iter().flatten();
        all.filter(|name| *name != own).cloned().collect()
    }

    /// How long after its answer was written a request that is posted with the same id and the same words is the same request.
    pub(crate) fn again_within(&self) -> Duration {
        self.config.http.as_ref().map_or(HttpSettings::AGAIN_WITHIN, |http| http.again_within)
    }

    /// The session that a client's own hook named for the process that started the bridge.
    pub(crate) fn hooked(&self, parent: u32) -> Option<String> {
        lock(&self.hooks).get(&parent).cloned()
    }

    /// A client's hook says which session its process is in from now on.
    pub(crate) fn hook(&self, process: u32, session: String) {
        let mut hooks = lock(&self.hooks);
        // Processes that have gone are forgotten when there are many.
        if hooks.len() >= MOST_HOOKS {
            hooks.retain(|process, _| std::path::Path::new("/proc").join(process.to_string()).exists());
        }
        hooks.insert(process, session);
    }

    /// Whether a client's own dialogue shows a question, and has not shown it for so long that nobody can be there.
    pub fn is_shown(&self, question: &QuestionId) -> bool {
        self.shown.is_shown(question, self.env.now())
    }

    /// Whether the client of a session is connected. One over HTTP that has no stream is not where it may have gone, or where the stream ended on
    /// which it waited for an answer: `is_unanswered`, it has none to a call that is over. Of one whose requests stand for themselves nobody can say
    /// that it has gone.
    pub(crate) fn is_here(&self, session: &RunId, is_unanswered: bool) -> bool {
        let connected = self.connected();
        let mut of_session = connected.values().filter(|connected| connected.runs.contains(session));
        of_session.any(|connected| match connected.way {
            Way::Bridge => true,
            Way::Http => connected.stands_alone || connected.streams > 0 || !(connected.is_away || is_unanswered),
        })
    }

    pub(crate) fn live(&self) -> MutexGuard<'_, HashMap<CallId, Arc<LiveCall>>> {
        lock(&self.live)
    }

    /// What is under way at a tool server.
    pub(crate) fn live_of(&self, holder: &RunId) -> Vec<Arc<LiveCall>> {
        self.live().values().filter(|live| live.holder == *holder).cloned().collect()
    }

    /// A request of a tool server is answered in the place of a client that has gone. Which of its calls it asks for it does not say; what it may
    /// find out without anybody's word is none of it.
    pub(crate) fn answers_in_place(&self, holder: &RunId, request: &Value) {
        if !matches!(request["method"].as_str(), Some("ping" | "roots/list")) {
            self.live_of(holder).iter().for_each(|live| live.goes_unanswered());
        }
    }

    pub(crate) fn connected(&self) -> MutexGuard<'_, HashMap<String, Connected>> {
        lock(&self.connected)
    }
}
