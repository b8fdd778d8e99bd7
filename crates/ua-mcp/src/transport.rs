//! All configured tool servers as one transport.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rmcp::model::Implementation;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use ua_core::{
    CurrentSpan, Destination, DestinationKey, Env, Handle, KeyChannel, OnUnknown, Outcome, RawReply, Redactor,
    SecretFiller, ShowPath as _, Timestamp, ToolName, ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, MayAct, Payload, Permit, ToolTransport, TransportError, verify_key};

use crate::config::{Reach, ServerSpec};
use crate::connection::Connection;
use crate::definitions::{DefinitionLock, may_be_mistaken, skeleton};
use crate::destination::destination_key;
use crate::exchange::{PATIENCE_FOR_READS, Sending, not_in_time, time_of};
use crate::foretold::Foreteller;
use crate::host::{Progress, ProgressWatcher};
use crate::http::{Horizon, UNKNOWN};
use crate::judged::JudgedSecrets;
use crate::launch::ShimCommand;
use crate::locks::LockDir;
use crate::logins::Logins;
use crate::long_running::LiveCalls;
use crate::resources;
use crate::server::{Listed, Server, ServerAbout, Shared};
use crate::shim::DEFAULT_GRACE;
use crate::trace;

/// What a transport is made from.
#[derive(Clone)]
pub struct McpTransportConfig {
    /// The servers, in the order in which their tools are listed.
    pub servers: Vec<ServerSpec>,
    /// How to run the shim.
    pub shim: ShimCommand,
    /// Where the run's tool server locks are.
    pub locks: LockDir,
    /// Time and chance. The real ones: processes do not live in simulated time.
    pub env: Env,
    /// How long a server may take to answer the handshake, and then to list its tools.
    pub start_timeout: Duration,
    /// How long a read-only call may take when its policy says nothing; `None` waits as long as it takes, as every call
    /// with an effect does.
    pub call_timeout_for_reads: Option<Duration>,
    /// How long a server may take to end once its input is closed.
    pub grace: Duration,
    /// How long after an attempt on a remote server was given up it is taken to be never begun any more. A remote server
    /// cannot be killed, so this is what a fence waits for instead.
    pub remote_horizon: Duration,
    /// The name under which we introduce ourselves to servers.
    pub client_name: String,
    /// The version that goes with it.
    pub client_version: String,
    /// The folder for `<server>.stderr.log`, to which each server's standard error is appended; `None` keeps only what is
    /// quoted in errors.
    pub stderr_log: Option<PathBuf>,
    /// Which span a request comes from, for the server's own spans. Without one a server is told the process's trace.
    pub current_span: CurrentSpan,
    /// Who is told what servers say about calls under way.
    pub progress: Option<ProgressWatcher>,
    /// Takes secrets out of what servers tell and ask while a call is under way, before anybody sees it.
    pub redactor: Redactor,
    /// Who knows the values of secrets that arguments refer to; without one references go as they are.
    pub secrets: Option<Arc<dyn SecretFiller>>,
    /// Where the user is logged in, for remote servers whose configuration has no token.
    pub logins: Option<Logins>,
    /// Who knows what a server will say before it is started: its tools are listed so, and compared before anything is called.
    pub foreteller: Option<Foreteller>,
}

impl fmt::Debug for McpTransportConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpTransportConfig").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl McpTransportConfig {
    /// A configuration without servers: 30 s to start, 120 s for a read, 2 s to end, 30 s of horizon.
    pub fn new(shim: ShimCommand, locks: LockDir, env: Env) -> Self {
        Self {
            servers: Vec::new(),
            shim,
            locks,
            env,
            start_timeout: Duration::from_secs(30),
            call_timeout_for_reads: Some(PATIENCE_FOR_READS),
            grace: DEFAULT_GRACE,
            remote_horizon: Duration::from_secs(30),
            client_name: "ua".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            stderr_log: None,
            current_span: CurrentSpan::default(),
            progress: None,
            redactor: Redactor::default(),
            secrets: None,
            logins: None,
            foreteller: None,
        }
    }
}

/// A listing on its way, as long as somebody may want it: `None` when it was not begun, because something of an earlier process is still there.
struct Begun(JoinHandle<Option<Result<Vec<ToolSpec>, TransportError>>>);

impl Drop for Begun {
    /// Whoever gives it up waits for no server that is slow to start.
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// MCP tool servers as a [`ToolTransport`]: each a process below its shim, started when it is first needed, or a session
/// with a remote endpoint.
///
/// Sends every permitted attempt once. Nothing in here, and nothing in the client library below, repeats a request.
pub struct McpTransport {
    servers: Vec<Server>,
    shared: Shared,
    call_timeout_for_reads: Option<Duration>,
    current_span: CurrentSpan,
    secrets: Option<JudgedSecrets>,
    /// A listing that was begun before anybody asked for one.
    begun: Mutex<Option<Begun>>,
    /// The starts that go on beside a listing that did not wait for them.
    starting: Mutex<Option<JoinHandle<()>>>,
    /// What the last listing left out, by server.
    notes: Mutex<BTreeMap<String, Vec<String>>>,
    /// The servers that could not be listed the last time, beside the one that the error was about.
    also_failed: Mutex<Vec<TransportError>>,
    live: LiveCalls,
    /// Where tools send to, by qualified name, as far as anybody has asked, and the login that this was found out for.
    destinations: Mutex<BTreeMap<String, Known>>,
}

/// A login, and where a tool sends to that goes with it.
type Known = (Option<String>, Option<Destination>);

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<&str> = self.servers.iter().map(Server::name).collect();
        f.debug_struct("McpTransport").field("servers", &servers).finish_non_exhaustive()
    }
}

impl McpTransport {
    /// Makes the transport. Nothing is started yet.
    pub fn new(config: McpTransportConfig) -> Self {
        let mut logins = config.logins;
        for server in &config.servers {
            if let Reach::Http { url, client: Some(client), .. } = &server.reach {
                // Without logins of a user, its tokens are this process's.
                let own = || Logins::of_process(config.redactor.clone(), config.env.clone());
                logins.get_or_insert_with(own).add_client(&server.name, url, client);
            }
        }
        let shared = Shared {
            shim: config.shim,
            locks: config.locks,
            horizon: Horizon::new(config.remote_horizon, config.env.clone()),
            env: config.env,
            start_timeout: config.start_timeout,
            grace: config.grace,
            client: Implementation::new(config.client_name, config.client_version),
            stderr_log: config.stderr_log,
            progress: config.progress,
            redactor: config.redactor,
            logins,
            foreteller: config.foreteller,
        };
        let servers = config.servers.into_iter().map(|server| Server::new(server, shared.redactor.clone())).collect();
        let (call_timeout_for_reads, current_span) = (config.call_timeout_for_reads, config.current_span);
        let secrets = config.secrets.map(JudgedSecrets::new);
        Self {
            servers,
            shared,
            call_timeout_for_reads,
            current_span,
            secrets,
            begun: Mutex::default(),
            starting: Mutex::default(),
            notes: Mutex::default(),
            also_failed: Mutex::default(),
            live: LiveCalls::default(),
            destinations: Mutex::default(),
        }
    }

    /// Takes over the servers that `other` has started and that both have in the same words, so that none is started twice. `other` was made for the
    /// same run, in whose name its servers are locked, and has called nothing; what is not taken over stays with it, and ends when it is shut down.
    pub async fn take_over(&self, other: &Self) {
        for server in &self.servers {
            if let Some(theirs) = other.servers.iter().find(|theirs| theirs.name() == server.name()) {
                server.take_over(&self.shared, theirs, &other.shared).await;
            }
        }
    }

    /// Begins to start the servers and to list their tools, for whoever asks for these next: the caller has other things to do meanwhile. What
    /// earlier processes of the run left is ended first, as whoever asks does again.
    pub fn begin_listing(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let listing = async move {
            match this.fence_earlier().await {
                Fence::Gone => {
                    this.begin_starting();
                    Some(this.list_now().await)
                }
                Fence::Alive { .. } => None,
            }
        };
        let listing = tokio::spawn(listing.in_current_span());
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(Begun(listing));
    }

    /// Begins to start the servers whose tools are listed without them, and to compare them. What goes wrong is said to whoever calls one next.
    fn begin_starting(self: &Arc<Self>) {
        if !self.servers.iter().any(|server| server.expect(&self.shared).is_some()) {
            return;
        }
        let this = Arc::clone(self);
        let starting = async move {
            let foretold = this.servers.iter().filter(|server| server.expected().is_some());
            for started in join_all(foretold.map(|server| server.ready(&this.shared))).await {
                if let Err(error) = started {
                    tracing::debug!(%error, "a tool server is not ready yet");
                }
            }
        };
        let starting = tokio::spawn(starting.in_current_span());
        *self.starting.lock().unwrap_or_else(PoisonError::into_inner) = Some(starting);
    }

    /// Waits for the starts that nobody has waited for, as long as a server may take to end: one that is begun is ended in order.
    async fn end_starting(&self) {
        let starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut starting) = starting else { return };
        tokio::select! {
            _ended = &mut starting => {}
            () = self.shared.env.clock.sleep(self.shared.grace) => starting.abort(),
        }
    }

    fn take_begun(&self) -> Option<Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn env(&self) -> &Env {
        &self.shared.env
    }

    pub(crate) fn live(&self) -> &LiveCalls {
        &self.live
    }

    /// What else the last listing could not list, beside what its error says: a person who corrects one server is told of the others as well.
    pub fn also_failed(&self) -> Vec<TransportError> {
        self.also_failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What each server says about itself, once its tools were listed.
    pub fn about(&self) -> Vec<(String, ServerAbout)> {
        self.servers.iter().filter_map(|server| Some((server.name().to_owned(), server.about()?))).collect()
    }

    /// The servers that run and wrote something to their standard output that is no message, each with a sentence that quotes the first such line,
    /// cleaned and cut. A server that logs there may cut an answer of its own in two.
    pub fn strays(&self) -> Vec<(String, String)> {
        self.servers.iter().filter_map(|server| Some((server.name().to_owned(), server.first_stray()?))).collect()
    }

    /// What `mcp.lock` has to say for the servers to be as they are now, once their tools were listed.
    pub fn definitions(&self) -> DefinitionLock {
        let found = self.servers.iter().filter_map(|server| Some((server.name().to_owned(), server.as_found()?)));
        DefinitionLock::of_servers(found.collect())
    }

    pub(crate) fn server(&self, name: &str) -> Result<&Server, TransportError> {
        let found = self.servers.iter().find(|server| server.name() == name);
        found.ok_or_else(|| TransportError::UnknownServer { server: name.to_owned() })
    }

    /// What the last listing left out and why, in sentences.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }

    /// Ends every server of this process in an orderly way and removes their lock files. A server that does not end is
    /// killed.
    pub async fn shutdown(&self) {
        // What a listing that nobody asked for has started by now is ended below, or by its shim, whose pipe is closed.
        drop(self.take_begun());
        self.end_starting().await;
        join_all(self.servers.iter().map(|server| server.shut_down(&self.shared))).await;
    }

    /// One permitted attempt.
    async fn send(&self, permit: &Permit) -> Outcome {
        let server = match self.server(&permit.name().server) {
            Ok(server) => server,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let connection = if permit.call().policy.is_free_read() {
            server.connection(permit.generation()).await.map(|connection| (connection, None))
        } else {
            server.connection_for_effect(permit.generation()).await
        };
        let (connection, effect) = match connection {
            Ok(connection) => connection,
            Err(why) => return Outcome::NotSent { why },
        };
        if let Err(why) = self.check_login(server, permit.name(), permit.destination(), &connection).await {
            return Outcome::NotSent { why };
        }
        let facts = server.facts(&permit.name().tool);
        if let Some(resource) = facts.resource {
            let arguments = permit.arguments();
            let look = resources::look(&connection, resource, &arguments);
            return tokio::select! {
                looked = look => looked,
                () = self.env().sleep_or_never(self.timeout_of(permit)) => not_in_time(self.timeout_of(permit)),
            };
        }
        let mut sending = match self.sending(server, permit, &connection) {
            Ok(sending) => sending,
            Err(why) => return Outcome::NotSent { why },
        };
        if connection.dialect().makes_tasks_when_asked() && facts.task_support == "required" {
            sending.params.insert("task".to_owned(), json!({}));
        }
        let meta = &sending.meta;
        let arguments = permit.arguments();
        let header = sending.key_header.as_ref().map(|(name, value)| (name.as_str(), value.as_str()));
        if let Err(why) = verify_key(permit, Payload { arguments: &arguments, meta, header }) {
            return Outcome::NotSent { why };
        }
        let watch = self.shared.horizon.watch(permit.generation()); // for one that is dropped
        let outcome = self.follow(&connection, sending, permit, None, effect).await;
        watch.over();
        self.ended(server, permit, Self::placed(&connection, outcome)).await
    }

    fn timeout_of(&self, permit: &Permit) -> Option<Duration> {
        time_of(&permit.call().policy, self.call_timeout_for_reads)
    }

    /// The request of an attempt; the error says why it cannot be made.
    pub(crate) fn sending(&self, server: &Server, permit: &Permit, connection: &Connection) -> Result<Sending, String> {
        let (mut arguments, mut meta) = (permit.arguments(), permit.meta());
        if let Some(secrets) = &self.secrets {
            secrets.fill(permit.name(), &mut arguments)?;
        }
        trace::put(&self.current_span, &mut meta);
        let param_headers = match connection {
            Connection::Http(_) => server.facts(&permit.name().tool).headers.values(&arguments),
            Connection::Pipe(_) => Vec::new(),
        };
        let key_header = match &permit.call().policy.key_channel {
            Some(KeyChannel::Header(name)) => Some((name.clone(), permit.key().as_str().to_owned())),
            Some(KeyChannel::Argument(_) | KeyChannel::Meta) | None => None,
        };
        let timeout = self.timeout_of(permit);
        let policy = &permit.call().policy;
        let (may_repeat, first_counts) = (policy.may_simply_be_repeated(), policy.on_unknown == OnUnknown::Redo);
        let call = Sending::call(&permit.name().tool, arguments, meta);
        Ok(Sending { key_header, param_headers, timeout, may_repeat, first_counts, ..call })
    }

    /// Draws from an outcome what is to be known about the server.
    pub(crate) async fn ended(&self, server: &Server, permit: &Permit, outcome: Outcome) -> Outcome {
        match &outcome {
            Outcome::Raw(RawReply::ToolResult { .. }) | Outcome::NotSent { .. } | Outcome::Continues(_) => {}
            // A status or an error of the protocol may still be read as an unknown outcome.
            Outcome::Lost { .. } | Outcome::Raw(_) => self.shared.horizon.given_up(permit.generation()),
        }
        match outcome {
            Outcome::Lost { why } => match server.exit_reason(permit.generation(), &self.shared).await {
                Some(end) => Outcome::Lost { why: format!("{why}; {end}") },
                None => Outcome::Lost { why },
            },
            Outcome::NotSent { .. } | Outcome::Raw(_) | Outcome::Continues(_) => outcome,
        }
    }

    /// Where a call goes: where its tool's calls go, with what the secrets hold that its arguments refer to.
    fn with_secrets(
        &self,
        destination: Option<Destination>,
        server: &Server,
        arguments: &Value,
    ) -> Result<Option<Destination>, TransportError> {
        let parts = self.secrets.as_ref().map_or_else(BTreeMap::new, |secrets| secrets.parts(arguments));
        match destination {
            Some(destination) if !parts.is_empty() => Ok(Some(self.destination_key(server)?.with(destination, &parts))),
            of_tool => Ok(of_tool),
        }
    }

    fn destination_key(&self, server: &Server) -> Result<DestinationKey, TransportError> {
        let path = self.shared.locks.destination_key();
        destination_key(&path).map_err(|error| {
            not_identified(server, &format!("the key {} can be neither read nor made: {error}", path.shown()))
        })
    }

    /// Where calls of a tool go that go with this login.
    fn destination_with(
        &self,
        server: &Server,
        tool: &ToolName,
        login: Option<String>,
    ) -> Result<Option<Destination>, TransportError> {
        let mut known = self.destinations.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = known.get(&tool.raw).filter(|(of, _)| *of == login) {
            return Ok(known.clone());
        }
        let key = self.destination_key(server)?;
        let destination = server.spec.destination(&tool.tool, &key, login.as_deref());
        known.insert(tool.raw.clone(), (login, destination.clone()));
        Ok(destination)
    }

    /// Checks that what goes over a connection goes where it was decided to: with that login. The error says why nothing is sent.
    pub(crate) async fn check_login(
        &self,
        server: &Server,
        tool: &ToolName,
        decided: Option<&Destination>,
        connection: &Connection,
    ) -> Result<(), String> {
        let (Some(decided), Connection::Http(http)) = (decided, connection) else { return Ok(()) };
        if server.spec.reach.login_address().is_none() || self.shared.logins.is_none() {
            return Ok(());
        }
        let login = http.login().await?;
        let goes = self.destination_with(server, tool, login).map_err(|error| error.to_string())?;
        // What secrets held when it was decided is what is sent.
        let decided = decided.without_secrets();
        if goes.as_ref() == Some(&decided) {
            return Ok(());
        }
        let changes = decided.changes_in_words(goes.as_ref());
        Err(format!("it would go as somebody else than was decided ({changes})"))
    }

    /// Passes on what a task says about itself.
    pub(crate) fn tell_progress(&self, permit: &Permit, words: &str) {
        if let Some(watcher) = &self.shared.progress {
            let words = self.shared.redactor.text(words);
            watcher.as_ref()(Progress::in_words(permit.call().call_id.clone(), &words));
        }
    }

    /// Lists the tools of all servers, and starts those that do not run.
    async fn list_now(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let listed = join_all(self.servers.iter().map(|server| server.list(&self.shared))).await;
        let failed = listed.iter().filter_map(|listed| listed.as_ref().err()).skip(1).cloned();
        *self.also_failed.lock().unwrap_or_else(PoisonError::into_inner) = failed.collect();
        let mut tools: Vec<ToolSpec> = Vec::new();
        let mut looks: BTreeMap<String, ToolName> = BTreeMap::new();
        for (server, listed) in self.servers.iter().zip(listed) {
            let listed = listed?;
            // `a_` with `x` and `a` with `_x` make one name; so do two servers of one name.
            if let Some(tool) =
                listed.tools.iter().find(|tool| tools.iter().any(|other| other.name.raw == tool.name.raw))
            {
                let why = format!("another server offers `{}` too; rename one of the servers", tool.name);
                return Err(server.not_listed(why));
            }
            let mut notes = listed.notes;
            for tool in &listed.tools {
                let other = looks.entry(skeleton(&tool.name.tool)).or_insert_with(|| tool.name.clone());
                if may_be_mistaken(&tool.name, other) {
                    let note = format!("`{}` looks like `{other}`; make sure that both are meant", tool.name);
                    tracing::warn!("{note}");
                    notes.push(note);
                }
            }
            tools.extend(listed.tools);
            let listed = Listed { tools: Vec::new(), notes };
            self.notes.lock().unwrap_or_else(PoisonError::into_inner).insert(server.name().to_owned(), listed.notes);
        }
        Ok(tools)
    }

    /// One request of a probe.
    async fn enquire(&self, enquiry: &Enquiry) -> Outcome {
        let server = match self.server(&enquiry.tool().server) {
            Ok(server) => server,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let connection = match server.ready(&self.shared).await {
            Ok((_generation, connection)) => connection,
            Err(error) => return Outcome::NotSent { why: error.to_string() },
        };
        let checked = self.check_login(server, enquiry.tool(), enquiry.destination(), &connection).await;
        if let Err(why) = checked {
            return Outcome::NotSent { why };
        }
        let mut meta = serde_json::Map::new();
        trace::put(&self.current_span, &mut meta);
        let facts = server.facts(&enquiry.tool().tool);
        let param_headers = facts.headers.values(enquiry.arguments());
        let call = Sending::call(&enquiry.tool().tool, enquiry.arguments().clone(), meta);
        let (may_repeat, first_counts, timeout) = (true, true, self.call_timeout_for_reads);
        let sending = Sending { param_headers, timeout, may_repeat, first_counts, ..call };
        connection.call(sending, &self.shared.env).await
    }
}

#[async_trait]
impl ToolTransport for McpTransport {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        // One that was broken off is made anew.
        if let Some(mut begun) = self.take_begun()
            && let Ok(Some(listed)) = (&mut begun.0).await
        {
            return listed;
        }
        self.list_now().await
    }

    fn working_folder(&self, server: &str) -> Option<PathBuf> {
        self.server(server).ok()?.working_folder()
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let server = self.server(server)?;
        server.look_after_silence().await;
        let (generation, connection) = server.ready(&self.shared).await?;
        server.check_change(&connection, &self.shared).await?;
        Ok(generation)
    }

    fn running(&self, server: &str) -> Option<String> {
        self.server(server).ok()?.at_once()
    }

    fn is_silent(&self, server: &str) -> bool {
        self.server(server).is_ok_and(Server::is_silent)
    }

    fn destination(&self, tool: &ToolName, arguments: &Value) -> Result<Option<Destination>, TransportError> {
        // A server that is not configured any more gets nothing.
        let Ok(server) = self.server(&tool.server) else { return Ok(None) };
        let logins = server.spec.reach.login_address().zip(self.shared.logins.as_ref());
        let login = logins.map_or(Ok(None), |(address, logins)| logins.identity(address));
        let login = login.map_err(|error| not_identified(server, &error.to_string()))?;
        let destination = self.destination_with(server, tool, login)?;
        self.with_secrets(destination, server, arguments)
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        let span = trace::of_attempt(permit);
        let outcome = self.send(permit).instrument(span.clone()).await;
        trace::ended(&span, &outcome);
        outcome
    }

    async fn go_on(&self, permit: &Permit, handle: &Handle) -> Result<Outcome, TransportError> {
        let span = trace::of_attempt(permit);
        let stepped = self.step(permit, handle).instrument(span.clone()).await;
        if let Ok(outcome) = &stepped {
            trace::ended(&span, outcome);
        }
        stepped
    }

    async fn give_up(&self, permit: &Permit, handle: &Handle) {
        self.abandon(permit, handle).await;
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let span = trace::of_request(enquiry.tool());
        let outcome = self.enquire(enquiry).instrument(span.clone()).await;
        trace::ended(&span, &outcome);
        outcome
    }

    async fn fence_earlier(&self) -> Fence {
        let fences = self.shared.locks.retire_all_orphans().await;
        let alive: Vec<String> = fences
            .into_iter()
            .filter_map(|(server, generation, fence)| match fence {
                Fence::Gone => None,
                Fence::Alive { detail } => Some(format!("`{server}` ({generation}): {detail}")),
            })
            .collect();
        if alive.is_empty() { Fence::Gone } else { Fence::Alive { detail: alive.join("; ") } }
    }

    fn horizon(&self, _server: &str, generation: &str, lost_at: Option<Timestamp>) -> Duration {
        let own = own_generation(generation);
        if Horizon::is_remote(own) { self.shared.horizon.left(own, lost_at) } else { Duration::ZERO }
    }

    fn may_act(&self, _server: &str, generation: &str, ended_at: Option<Timestamp>) -> MayAct {
        let own = own_generation(generation);
        if !Horizon::is_remote(own) {
            return if self.shared.locks.is_there(own) { MayAct::Yes } else { MayAct::No };
        }
        self.shared.horizon.of_another(own, ended_at)
    }

    fn generation_unknown(&self, server: &str) -> Option<String> {
        let server = self.server(server).ok()?;
        server.is_remote().then(|| Horizon::generation(UNKNOWN))
    }

    async fn renew(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        match self.server(server) {
            Ok(server) => server.renew(generation, lost_at, &self.shared).await,
            Err(_) => self.fence(server, generation, lost_at).await,
        }
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        match self.server(server) {
            Ok(server) => server.fence(generation, lost_at, &self.shared).await,
            // Not configured any more, but it may still live.
            Err(_) => self.shared.fence_without_server(server, generation, lost_at).await,
        }
    }
}

/// The name of a generation without whose lock it has, which a gateway's says in front.
fn own_generation(generation: &str) -> &str {
    generation.rsplit_once('/').map_or(generation, |(_, own)| own)
}

fn not_identified(server: &Server, why: &str) -> TransportError {
    server.error(|server, why| TransportError::NotIdentified { server, why }, why)
}
