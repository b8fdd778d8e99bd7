//! One configured tool server and the generation of it that runs now.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rmcp::model::Implementation;
use serde_json::Value;
use tokio::sync::Mutex;
use ua_core::{Busy, Env, Redactor, Timestamp, ToolName, ToolNamespace, ToolSpec};
use ua_dispatch::{Fence, LookAt, TransportError};

use crate::config::{Reach, ServerSpec};
use crate::connection::Connection;
use crate::definitions::{LockedServer, as_found, checked, differences, reach_digest};
use crate::dialect::Dialect;
use crate::effects::{ENDED_FOR_ANOTHER, EffectUnderWay, Effects, LONGEST_FOR_OTHERS};
use crate::foretold::{Expected, Foreteller};
use crate::host::{Host, ProgressWatcher};
use crate::http::{Address, Hope, Horizon, HttpConnection, ParamHeaders};
use crate::launch::{Launch, ShimCommand, ToolProcess, move_log};
use crate::locks::LockDir;
use crate::logins::Logins;
use crate::offered;
use crate::pipe::Session;
use crate::resources;

/// How long a server that says when its tools change has to say so after its first list.
const SETTLE: Duration = Duration::from_millis(300);

/// What all servers of a transport share.
pub(crate) struct Shared {
    pub(crate) shim: ShimCommand,
    pub(crate) locks: LockDir,
    pub(crate) horizon: Horizon,
    pub(crate) env: Env,
    pub(crate) start_timeout: Duration,
    pub(crate) grace: Duration,
    pub(crate) client: Implementation,
    pub(crate) stderr_log: Option<std::path::PathBuf>,
    pub(crate) progress: Option<ProgressWatcher>,
    /// What takes secrets out of what servers tell and ask.
    pub(crate) redactor: Redactor,
    pub(crate) logins: Option<Logins>,
    /// Who knows what a server will say before it is started.
    pub(crate) foreteller: Option<Foreteller>,
}

/// A configured server.
///
/// Invariant: nothing that it says about itself gets past here with a secret in it, neither a list nor a refusal: what it said is taken into
/// [`Known`] and [`Listed`] by [`Server::keep`] alone, and errors are made by [`Server::error`] alone.
pub(crate) struct Server {
    pub(crate) spec: ServerSpec,
    /// What takes secrets out of what it says.
    redactor: Redactor,
    /// The generation of this process that runs; starting and retiring hold the lock, calls do not.
    running: Mutex<Option<Running>>,
    /// What was listed last.
    listed: std::sync::Mutex<Option<Arc<Known>>>,
    /// What its tools were listed by, as long as it has not said the same itself: until then nothing is called.
    expected: std::sync::Mutex<Option<Arc<Expected>>>,
    /// Sessions of earlier processes that were taken up again, by name.
    adopted: std::sync::Mutex<BTreeMap<String, HttpConnection>>,
}

/// What is known about a server's tools once they were listed.
#[derive(Debug, Clone, Default)]
struct Known {
    as_found: LockedServer,
    facts: BTreeMap<String, ToolFacts>,
    about: ServerAbout,
}

/// What a call of a tool has to heed that is no part of what a model is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct ToolFacts {
    /// `required`, `optional` or `forbidden`: whether it is called as a task, as revision 2025-11-25 has it.
    pub(crate) task_support: String,
    /// Its arguments that go into headers.
    pub(crate) headers: ParamHeaders,
    /// What it stands for when it is no tool of the server's but a way to its resources.
    pub(crate) resource: Option<ResourceTool>,
}

/// A way to a server's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceTool {
    List,
    Read,
}

/// What a server says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerAbout {
    /// The revision of the protocol that is spoken with it.
    pub revision: String,
    /// What it calls itself.
    pub name: String,
    /// Its version.
    pub version: String,
}

struct Running {
    generation: String,
    link: Link,
}

/// What a generation is.
enum Link {
    /// A process of ours.
    Process(Box<Child>),
    /// A session with a server that is not ours.
    Remote(HttpConnection),
}

struct Child {
    session: Session,
    process: ToolProcess,
}

impl Running {
    fn connection(&self) -> Connection {
        match &self.link {
            Link::Process(child) => Connection::Pipe(child.session.connection().clone()),
            Link::Remote(http) => Connection::Http(http.clone()),
        }
    }
}

/// The tools of a server, and what is to be said about those that are left out.
pub(crate) struct Listed {
    pub(crate) tools: Vec<ToolSpec>,
    pub(crate) notes: Vec<String>,
}

impl Server {
    /// Whether nobody here can end it.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.spec.reach, Reach::Http { .. })
    }

    pub(crate) fn new(spec: ServerSpec, redactor: Redactor) -> Self {
        Self {
            spec,
            redactor,
            running: Mutex::new(None),
            listed: std::sync::Mutex::default(),
            expected: std::sync::Mutex::default(),
            adopted: std::sync::Mutex::default(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// An error about it: of its name and why, in which its own words may stand.
    pub(crate) fn error(&self, of: impl FnOnce(String, String) -> TransportError, why: &str) -> TransportError {
        of(self.spec.name.clone(), self.redactor.text(why).into_owned())
    }

    fn not_started(&self, why: impl AsRef<str>, may_pass: bool) -> TransportError {
        let look_at = if self.is_remote() { LookAt::Address } else { LookAt::Command };
        self.error(|server, why| TransportError::NotStarted { server, why, may_pass, look_at }, why.as_ref())
    }

    /// It was given up before it answered.
    fn too_slow(&self, why: impl AsRef<str>) -> TransportError {
        let of = |server, why| TransportError::NotStarted { server, why, may_pass: true, look_at: LookAt::Start };
        self.error(of, why.as_ref())
    }

    /// It is there, and lets nobody in who comes like this.
    fn not_let_in(&self, why: impl AsRef<str>) -> TransportError {
        let of = |server, why| TransportError::NotStarted { server, why, may_pass: false, look_at: LookAt::Login };
        self.error(of, why.as_ref())
    }

    fn away(&self, why: impl AsRef<str>) -> TransportError {
        self.error(|server, why| TransportError::Away { server, why }, why.as_ref())
    }

    pub(crate) fn not_listed(&self, why: impl AsRef<str>) -> TransportError {
        self.error(|server, why| TransportError::NotListed { server, why }, why.as_ref())
    }

    /// That the tools could not be listed on a connection: its server may be one that cannot serve now.
    fn unlisted(&self, connection: &Connection, why: impl AsRef<str>) -> TransportError {
        match connection {
            Connection::Http(http) if http.hope() == Hope::Away => self.away(why),
            Connection::Http(_) | Connection::Pipe(_) => self.not_listed(why),
        }
    }

    fn changed(&self, why: &str) -> TransportError {
        self.error(|server, why| TransportError::Changed { server, why }, why)
    }

    /// The generation that runs, if it need not be started, waited for or listed anew.
    pub(crate) fn at_once(&self) -> Option<String> {
        if self.expected().is_some() {
            return None;
        }
        let slot = self.running.try_lock().ok()?;
        let running = slot.as_ref().filter(|running| running.connection().ended().is_none())?;
        (!running.connection().host().has_changed()).then(|| running.generation.clone())
    }

    /// Whether the session that is open has been silent for so long that [`look_after_silence`](Self::look_after_silence) looks at it.
    pub(crate) fn is_silent(&self) -> bool {
        let slot = self.running.try_lock().ok();
        let connection = slot.as_ref().and_then(|slot| slot.as_ref()).map(Running::connection);
        match connection {
            Some(Connection::Http(http)) => http.is_silent(),
            Some(Connection::Pipe(_)) | None => false,
        }
    }

    /// Looks whether a session is still known that has been silent for long; the next that is made ready is another one where it is not.
    pub(crate) async fn look_after_silence(&self) {
        let connection = self.running.lock().await.as_ref().map(Running::connection);
        if let Some(Connection::Http(http)) = connection {
            http.look().await;
        }
    }

    /// Makes sure that a generation runs, and is what it was said to be, and returns its name and its connection.
    pub(crate) async fn ready(&self, shared: &Shared) -> Result<(String, Connection), TransportError> {
        let mut slot = self.running.lock().await;
        if let Some(running) = slot.as_ref().filter(|running| running.connection().ended().is_none()) {
            let ready = (running.generation.clone(), running.connection());
            self.compare(&ready.1, shared).await?;
            return Ok(ready);
        }
        if let Some(dead) = slot.take() {
            self.retire(dead, shared).await;
        }
        let running = self.start(shared).await?;
        if self.known().is_some() && self.expected().is_none() {
            // What was started again may be another program by now, or offer other tools.
            running.connection().host().note_change();
        }
        let ready = (running.generation.clone(), running.connection());
        *slot = Some(running);
        self.compare(&ready.1, shared).await?;
        Ok(ready)
    }

    /// Takes over what `other` runs and has listed, if it is the same server of the same run: from then on this one alone has it. What its process
    /// wrote to its standard error goes along; where it cannot, the process stays with `other`.
    pub(crate) async fn take_over(&self, shared: &Shared, other: &Self, of_other: &Shared) {
        if self.spec != other.spec || !shared.locks.are_those_of(&of_other.locks) {
            return;
        }
        let (mut ours, mut theirs) = (self.running.lock().await, other.running.lock().await);
        let Some(running) = theirs.as_ref().filter(|running| running.connection().ended().is_none()) else { return };
        if ours.is_some() {
            return;
        }
        if let Link::Process(_) = running.link {
            if let Err(error) = move_log(self.name(), of_other.stderr_log.as_deref(), shared.stderr_log.as_deref()) {
                tracing::debug!(server = self.name(), %error, "a tool server is started again, since its log cannot be moved");
                return;
            }
            shared.locks.adopt(self.name(), &running.generation);
        }
        *ours = theirs.take();
        let listed = other.listed.lock().unwrap_or_else(PoisonError::into_inner).take();
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }

    /// What the server is foretold to be, as long as it has not said so itself.
    pub(crate) fn expected(&self) -> Option<Arc<Expected>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks a server whose tools were listed without it what it is. One at a time: the caller holds the slot.
    async fn compare(&self, connection: &Connection, shared: &Shared) -> Result<(), TransportError> {
        let Some(expected) = self.expected() else { return Ok(()) };
        let tools = self.tools(connection, shared).await.map_err(|why| self.unlisted(connection, why))?;
        if let Some(why) = expected.differs(&connection.dialect(), &tools) {
            // It stays expected, so that nothing goes there however often somebody asks.
            return Err(self.changed(&why));
        }
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(())
    }

    /// What the server is foretold to be, unless its tools were listed already. Whoever makes it ready from now on compares, whether it runs by
    /// then or not.
    pub(crate) fn expect(&self, shared: &Shared) -> Option<Arc<Expected>> {
        let foreteller = shared.foreteller.as_ref().filter(|_| self.known().is_none())?;
        let mut slot = self.expected.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Expected::of(&self.spec, foreteller).map(Arc::new);
        }
        slot.clone()
    }

    fn known(&self) -> Option<Arc<Known>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a call of `tool` has to heed.
    pub(crate) fn facts(&self, tool: &str) -> ToolFacts {
        self.known().and_then(|known| known.facts.get(tool).cloned()).unwrap_or_default()
    }

    /// The folder that its process works in; nothing of a remote one.
    pub(crate) fn working_folder(&self) -> Option<PathBuf> {
        match &self.spec.reach {
            Reach::Stdio { cwd: Some(cwd), .. } => std::path::absolute(cwd).ok(),
            // It is started where this process is.
            Reach::Stdio { cwd: None, .. } => std::env::current_dir().ok(),
            Reach::Http { .. } => None,
        }
    }

    /// What the server says about itself, once its tools were listed.
    pub(crate) fn about(&self) -> Option<ServerAbout> {
        self.known().map(|known| known.about.clone())
    }

    /// What it wrote first where only messages belong, as a sentence; nothing while it starts or ends, or of one that wrote no such thing.
    pub(crate) fn first_stray(&self) -> Option<String> {
        let running = self.running.try_lock().ok()?;
        running.as_ref()?.connection().host().first_stray_of_server()
    }

    /// What `mcp.lock` would say about it, once its tools were listed.
    pub(crate) fn as_found(&self) -> Option<LockedServer> {
        self.known().map(|known| known.as_found.clone())
    }

    /// Looks at the tools again when the server says that they changed. The error says what is another one than it was.
    pub(crate) async fn check_change(&self, connection: &Connection, shared: &Shared) -> Result<(), TransportError> {
        let Some(known) = self.known().filter(|_| connection.host().take_change()) else { return Ok(()) };
        let tools = self.tools(connection, shared).await.map_err(|why| self.unlisted(connection, why))?;
        let dialect = connection.dialect();
        let now = as_found(&known.as_found.reach, &dialect.server, &tools, &self.redactor);
        let found = differences(&known.as_found, &now);
        if found.is_empty() {
            return Ok(());
        }
        connection.host().note_change(); // it stays so
        let why = format!("it changed while the step was running: {}; resume to check it again", found.join("; "));
        Err(self.changed(&why))
    }

    /// A connection to a session that an earlier process began.
    pub(crate) fn adopt(&self, session: &str, dialect: Arc<Dialect>, shared: &Shared) -> Result<Connection, String> {
        let Reach::Http { url, headers, .. } = &self.spec.reach else {
            return Err("it was reached over HTTP when the call was sent, but is not now".to_owned());
        };
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = adopted.get(session).filter(|known| known.ended().is_none()) {
            return Ok(Connection::Http(known.clone()));
        }
        let host = Host::new(&self.spec.name, shared.progress.clone(), shared.redactor.clone());
        let login = self.spec.login();
        let address = Address { url, headers, logins: shared.logins.as_ref(), login: &login };
        let taken =
            HttpConnection::adopt(host, &self.spec.name, &shared.client, address, (session, dialect), &shared.env)?;
        adopted.insert(session.to_owned(), taken.clone());
        Ok(Connection::Http(taken))
    }

    /// The connection of a generation, if that is the one that runs and it is alive; else why not.
    pub(crate) async fn connection(&self, generation: &str) -> Result<Connection, String> {
        match self.running.lock().await.as_ref() {
            Some(running) if running.generation == generation => {
                let connection = running.connection();
                connection.ended().map_or(Ok(connection), Err)
            }
            Some(_) | None => Err(self.not_running(generation)),
        }
    }

    /// The same for a call with an effect: the process is not ended for the sake of another call before this one is over, within limits
    /// ([`Server::fence`]).
    pub(crate) async fn connection_for_effect(
        &self,
        generation: &str,
    ) -> Result<(Connection, Option<EffectUnderWay>), String> {
        // Under the same lock by which a process is taken away from new calls.
        let slot = self.running.lock().await;
        let running = slot.as_ref().filter(|running| running.generation == generation);
        let running = running.ok_or_else(|| self.not_running(generation))?;
        let connection = running.connection();
        if let Some(why) = connection.ended() {
            return Err(why);
        }
        let effect = connection.effect();
        Ok((connection, effect))
    }

    fn not_running(&self, generation: &str) -> String {
        format!("generation {generation} of `{}` is no longer running here", self.spec.name)
    }

    /// How the process of a generation ended, if it did, with its last words.
    pub(crate) async fn exit_reason(&self, generation: &str, shared: &Shared) -> Option<String> {
        let mut slot = self.running.lock().await;
        let running = slot.as_mut().filter(|running| running.generation == generation)?;
        running.connection().ended()?;
        match &mut running.link {
            Link::Process(child) => Some(child.process.exit_reason(&shared.env).await),
            Link::Remote(_) => None,
        }
    }

    /// Says, for as long as this is kept, what is waited for.
    fn waited_for(&self, to: &str, shared: &Shared) -> Busy {
        Busy::with(format!("waiting for tool server `{}` {to}", self.spec.name)).at_most(shared.start_timeout)
    }

    /// Begins a session with a server that is not ours.
    async fn connect(
        &self,
        url: &str,
        headers: &BTreeMap<String, String>,
        shared: &Shared,
    ) -> Result<Running, TransportError> {
        let server = &self.spec.name;
        let host = Host::new(server, shared.progress.clone(), shared.redactor.clone());
        let login = self.spec.login();
        let address = Address { url, headers, logins: shared.logins.as_ref(), login: &login };
        let opening = HttpConnection::open(host, server, &shared.client, address, &self.spec.protocol, &shared.env);
        let _busy = self.waited_for("to answer", shared);
        let opened = tokio::select! {
            opened = opening => opened,
            () = shared.env.clock.sleep(shared.start_timeout) => {
                // A server whose login cannot be renewed now was not asked for anything: it is away, like one whose proxy says so.
                Err(match shared.logins.as_ref().and_then(|logins| logins.given_up(url)) {
                    Some(why) => (not_renewed(shared.start_timeout, &why), Hope::Away),
                    None => (no_handshake(shared.start_timeout), Hope::MayPass),
                })
            }
        };
        let connection = opened.map_err(|(why, hope)| match hope {
            Hope::Away => self.away(why),
            Hope::LogIn => self.not_let_in(why),
            hope @ (Hope::Correct | Hope::MayPass) => self.not_started(why, hope == Hope::MayPass),
        })?;
        let generation = Horizon::generation(&shared.locks.unique());
        tracing::info!(server, generation, "connected to a tool server");
        Ok(Running { generation, link: Link::Remote(connection) })
    }

    async fn start(&self, shared: &Shared) -> Result<Running, TransportError> {
        let (command, args, env, cwd) = match &self.spec.reach {
            Reach::Stdio { command, args, env, cwd } => (command, args, env, cwd),
            Reach::Http { url, headers, .. } => return self.connect(url, headers, shared).await,
        };
        let server = &self.spec.name;
        let generation = shared
            .locks
            .begin(server)
            .map_err(|error| self.not_started(format!("cannot create its lock: {error}"), false))?;
        let launch = Launch {
            shim: &shared.shim,
            server,
            command,
            args,
            env,
            cwd: cwd.as_deref(),
            lock: shared.locks.path(server, &generation),
            grace: shared.grace,
            redactor: &shared.redactor,
            stderr_log: shared.stderr_log.as_deref().map(Path::new),
        };
        let (mut process, pipes) = launch.start().map_err(|why| self.not_started(why, false))?;
        let host = Host::new(server, shared.progress.clone(), shared.redactor.clone());
        let opening = Session::open(Arc::clone(&host), shared.client.clone(), &self.spec.protocol, pipes, &shared.env);
        let busy = self.waited_for("to start", shared);
        let opened = tokio::select! {
            opened = opening => opened.map_err(|why| (why, false)),
            () = shared.env.clock.sleep(shared.start_timeout) => Err((no_handshake(shared.start_timeout), true)),
        };
        drop(busy);
        match opened {
            Ok(session) => {
                tracing::info!(server, generation, "tool server started");
                host.note_first_stray();
                Ok(Running { generation, link: Link::Process(Box::new(Child { session, process })) })
            }
            Err((why, is_late)) => {
                let why = if let Some(said) = host.said_by_shim() {
                    format!("{why}; {}", process.not_run(&said))
                } else {
                    let why = host.first_stray().map_or(why.clone(), |stray| format!("{why}; {stray}"));
                    // Its pipes are closed by now, and whatever it does about that is our doing.
                    let end = if is_late { process.given_up() } else { process.exit_reason(&shared.env).await };
                    format!("{why}; {end}")
                };
                // The shim first: once it is reaped, nothing can start below it any more, and the fence sees all there is.
                process.kill_shim().await;
                if let Fence::Alive { detail } = shared.locks.fence(server, &generation).await {
                    return Err(self.not_started(format!("{why}; {detail}"), true));
                }
                Err(if is_late { self.too_slow(why) } else { self.not_started(why, true) })
            }
        }
    }

    /// Lists the tools as they are foretold, or those of the generation that runs, starting one if need be. A session that turns out to be forgotten is
    /// replaced once: asking for a list does nothing that could happen twice.
    pub(crate) async fn list(&self, shared: &Shared) -> Result<Listed, TransportError> {
        if let Some(expected) = self.expect(shared) {
            return self.keep(&expected.tools, &expected.dialect);
        }
        let (generation, mut connection) = self.ready(shared).await?;
        let mut listed = self.tools(&connection, shared).await;
        if listed.is_err() && Horizon::is_remote(&generation) && connection.ended().is_some() {
            (_, connection) = self.ready(shared).await?;
            listed = self.tools(&connection, shared).await;
        }
        let mut tools = match listed {
            Ok(tools) => tools,
            Err(why) => {
                let why = match self.exit_reason(&generation, shared).await {
                    Some(end) => format!("{why}; {end}"),
                    None => why,
                };
                return Err(self.unlisted(&connection, why));
            }
        };
        // Some register tools only once they know what the client can do, and say so a moment later.
        if self.known().is_none() && connection.dialect().says_when_tools_change() {
            shared.env.clock.sleep(SETTLE).await;
        }
        if connection.host().take_change() {
            tools = self.tools(&connection, shared).await.map_err(|why| self.unlisted(&connection, why))?;
        }
        self.keep(&tools, &connection.dialect())
    }

    /// Takes the tools that can be offered out of a list, as it came, without the secrets that it repeats.
    fn keep(&self, tools: &[Value], dialect: &Dialect) -> Result<Listed, TransportError> {
        let server = &self.spec.name;
        let reach = self.spec.lock.as_ref().map_or_else(|| reach_digest(&self.spec.reach), |lock| lock.reach.clone());
        let now = as_found(&reach, &dialect.server, tools, &self.redactor);
        let lock = self.spec.lock.as_ref().map(|lock| lock.without_secrets(&self.redactor));
        let unlocked = match lock.map(|lock| checked(&lock, &now)) {
            None => Vec::new(),
            Some(Ok(new)) => new,
            Some(Err(why)) => return Err(self.changed(&why)),
        };
        let mut tools = tools.to_vec();
        for tool in &mut tools {
            self.redactor.json(tool);
        }
        let mut names = BTreeSet::new();
        let mut kept = Listed { tools: Vec::new(), notes: Vec::new() };
        let mut facts = BTreeMap::new();
        for listed in offered::read_list(self.spec.namespace, server, &tools) {
            names.extend(listed.name.clone());
            let is_remote = self.is_remote();
            let read = listed.offered.and_then(|offered| {
                if unlocked.contains(&offered.spec.name.tool) {
                    return Err("mcp.lock does not know it; `ua tools lock` adds it".to_owned());
                }
                let headers = match ParamHeaders::of(&offered.schema) {
                    Err(why) if dialect.is_stateless && is_remote => return Err(why),
                    headers => headers.unwrap_or_default(),
                };
                Ok((offered, headers))
            });
            match read {
                Ok((offered, headers)) => {
                    let task_support = offered.task_support;
                    facts.insert(offered.spec.name.tool.clone(), ToolFacts { task_support, headers, resource: None });
                    kept.tools.push(offered.spec);
                }
                Err(why) => {
                    let note = format!("{} of the tool server `{server}` is not offered: {why}", listed.called);
                    if is_new(&note) {
                        tracing::warn!("{note}");
                    }
                    kept.notes.push(note);
                }
            }
        }
        if dialect.has_resources() && self.spec.namespace == ToolNamespace::Mcp {
            for (tool, resource) in [("list_resources", ResourceTool::List), ("read_resource", ResourceTool::Read)] {
                let name = ToolName::qualified(self.spec.namespace, server, tool);
                if names.contains(tool) || offered::not_offerable(&name).is_some() {
                    continue; // its own tool of that name is the way
                }
                facts.insert(tool.to_owned(), ToolFacts { resource: Some(resource), ..ToolFacts::default() });
                kept.tools.push(resources::spec(name, resource));
            }
        }
        let said = |text: &str| self.redactor.text(text).into_owned();
        let (name, version) = (said(&dialect.server.0), said(&dialect.server.1));
        let about = ServerAbout { revision: dialect.version.clone(), name, version };
        let known = Known { as_found: now, facts, about };
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(known));
        Ok(kept)
    }

    async fn tools(&self, connection: &Connection, shared: &Shared) -> Result<Vec<Value>, String> {
        let _busy = self.waited_for("to list its tools", shared);
        tokio::select! {
            listed = connection.all("tools/list", "tools") => listed,
            () = shared.env.clock.sleep(shared.start_timeout) => {
                Err(format!("no answer within {} s", shared.start_timeout.as_secs_f64()))
            }
        }
    }

    /// Retires a generation: of this process, when it is the one that runs, else by its lock file alone. A remote one is
    /// waited for and goes on: its session may hold state that later calls need, and ending it would prove nothing.
    ///
    /// Other calls with effects that are under way in the process would be in doubt with it, and nothing is wrong with them: they are waited for,
    /// for so long as a call may keep others waiting.
    pub(crate) async fn fence(&self, generation: &str, lost_at: Option<Timestamp>, shared: &Shared) -> Fence {
        if Horizon::is_remote(generation) {
            return shared.fence_without_server(&self.spec.name, generation, lost_at).await;
        }
        let until = shared.env.now().plus(LONGEST_FOR_OTHERS);
        let mut slot = self.running.lock().await;
        while let Some(effects) = Self::under_way(slot.as_ref(), generation)
            && shared.env.now() < until
        {
            drop(slot);
            let _busy = Busy::with(format!("waiting for other calls of tool server `{}`", self.spec.name))
                .at_most(LONGEST_FOR_OTHERS);
            effects.over(until, &shared.env).await;
            slot = self.running.lock().await;
        }
        match slot.take_if(|running| running.generation == generation) {
            Some(running) => self.retire(running, shared).await,
            None => shared.fence_without_server(&self.spec.name, generation, lost_at).await,
        }
    }

    /// What is done for a read that got no answer, and may simply be made again: a process that hangs is ended, and the next attempt has a new one;
    /// one in which a call with an effect is under way is left alone.
    pub(crate) async fn renew(&self, generation: &str, lost_at: Option<Timestamp>, shared: &Shared) -> Fence {
        if Self::under_way(self.running.lock().await.as_ref(), generation).is_some() {
            return Fence::Gone;
        }
        self.fence(generation, lost_at, shared).await
    }

    /// The calls with effects that are under way in this generation, when there are any and it lives.
    fn under_way(running: Option<&Running>, generation: &str) -> Option<Effects> {
        let running = running.filter(|running| running.generation == generation)?;
        match running.connection() {
            Connection::Pipe(pipe) if pipe.ended().is_none() => {
                Some(pipe.effects().clone()).filter(Effects::are_under_way)
            }
            Connection::Pipe(_) | Connection::Http(_) => None,
        }
    }

    async fn retire(&self, running: Running, shared: &Shared) -> Fence {
        match running.link {
            Link::Process(mut child) => {
                let connection = child.session.connection();
                if connection.effects().are_under_way() {
                    connection.ends(ENDED_FOR_ANOTHER);
                }
                let fence = shared.locks.fence(&self.spec.name, &running.generation).await;
                if fence == Fence::Gone {
                    child.process.kill_shim().await; // reaps it
                }
                fence
            }
            Link::Remote(http) => {
                http.close().await;
                Fence::Gone
            }
        }
    }

    /// Ends the generation that runs in an orderly way: closes its input, waits as long as the shim does, clears up.
    pub(crate) async fn shut_down(&self, shared: &Shared) {
        let Some(Running { generation, link }) = self.running.lock().await.take() else { return };
        let Child { session, mut process } = match link {
            Link::Process(child) => *child,
            Link::Remote(http) => return http.close().await,
        };
        let orderly = async {
            session.close().await;
            let patience = shared.grace + Duration::from_secs(2);
            process.ended_within(patience, &shared.env).await
        };
        let patience = shared.grace + Duration::from_secs(4);
        tokio::select! {
            status = orderly => tracing::debug!(server = self.spec.name, ?status, "tool server ended"),
            () = shared.env.clock.sleep(patience) => tracing::debug!(server = self.spec.name, "tool server did not close"),
        }
        let fence = shared.locks.fence(&self.spec.name, &generation).await;
        if fence == Fence::Gone {
            process.kill_shim().await; // reaps it
        }
    }
}

impl Shared {
    /// Fences a generation by its name alone: the server may not be configured any more, or in another way.
    pub(crate) async fn fence_without_server(
        &self,
        server: &str,
        generation: &str,
        lost_at: Option<Timestamp>,
    ) -> Fence {
        if Horizon::is_remote(generation) {
            self.horizon.pass(generation, lost_at).await;
            return Fence::Gone;
        }
        self.locks.fence(server, generation).await
    }
}

fn not_renewed(limit: Duration, why: &str) -> String {
    format!("the login there was not renewed within {} s: {why}", limit.as_secs_f64())
}

fn no_handshake(limit: Duration) -> String {
    format!("it did not answer the handshake within {} s", limit.as_secs_f64())
}

/// Whether something is said for the first time by this process: the tools of a server are listed more than once for one run.
fn is_new(note: &str) -> bool {
    static SAID: std::sync::Mutex<BTreeSet<String>> = std::sync::Mutex::new(BTreeSet::new());
    SAID.lock().unwrap_or_else(PoisonError::into_inner).insert(note.to_owned())
}
