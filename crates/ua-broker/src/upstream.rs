//! A tool server behind the gateway: a process below the shim, or a session with an endpoint over HTTP, spoken to in the client's own words.
//!
//! Messages pass as they came. Only a tool call goes the other way round: it comes with a permit, and its answer is handed to the ledger. As for
//! every tool server a started process (or a session that was begun) is a generation, a call is sent to the one it was committed for or not at all, and nothing is sent twice.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio_util::sync::CancellationToken;
use ua_core::{
    CallId, Env, KeyChannel, Outcome, RawReply, RunId, SideEffectClass, Timestamp, ToolAnnotations, ToolName,
    ToolNamespace, ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, Payload, Permit, ToolTransport, TransportError, verify_key};
use ua_mcp::{DEFAULT_GRACE, Horizon, LockDir, Logins, Relay, ShimArgs, ShimCommand, argument_headers};

mod process;

pub(crate) use self::process::Unanswered;
use self::process::{Link, Pipe, Process, read};
use crate::era::{self, Client, Era};
use crate::live::{LiveCalls, Sent};

/// How long a server may take to answer what we ask it for ourselves.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is idle.
const IDLE_POLL: Duration = Duration::from_millis(50);
/// How many pages of a list are read.
const MAX_PAGES: usize = 1_000;
/// How long a server may leave `server/discover` unanswered before it is taken for one of the era of the handshake.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(5);
/// How often a tool may ask for something before it has a result.
const MOST_ROUNDS: u32 = 20;
/// Of how many calls it is kept what their errors said beside their words.
const MOST_KEPT: usize = 1_000;

/// How a tool server is started.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    /// The fence of what is no process of ours.
    pub(crate) horizon: Arc<Horizon>,
    pub(crate) cwd: PathBuf,
    pub(crate) shim: ShimCommand,
    /// Where locks are.
    pub(crate) locks: PathBuf,
    /// Under which its own are there: the connection's.
    pub(crate) holder: RunId,
    pub(crate) stderr_log: PathBuf,
    /// Where the user is logged in.
    pub(crate) logins: Option<Logins>,
}

/// Where it is.
#[derive(Clone)]
pub(crate) enum Reach {
    /// A program that is started.
    Command { command: Vec<String>, env: BTreeMap<String, String> },
    /// An endpoint, and what goes with every request to it.
    Url { url: String, headers: BTreeMap<String, String> },
}

/// Without what headers and variables hold.
impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command { command, .. } => f.debug_tuple("Command").field(command).finish(),
            Self::Url { headers, .. } => f.debug_tuple("Url").field(&headers.keys()).finish(),
        }
    }
}

/// The tool server of one connection.
pub(crate) struct Upstream {
    launch: Launch,
    locks: LockDir,
    env: Env,
    /// What the server says by itself, for the client.
    to_client: mpsc::UnboundedSender<Value>,
    process: AsyncMutex<Option<Arc<Process>>>,
    /// Who it is spoken with for, and how that client began; made again with each process.
    greeting: Mutex<Option<Greeting>>,
    /// What it said when it was greeted, and how it is spoken with.
    known: Mutex<Option<(Era, Value)>>,
    /// Which logs a client of the other era wants.
    log_level: Mutex<Option<Value>>,
    /// What the client said about a call beside its arguments.
    metas: Mutex<HashMap<CallId, Map<String, Value>>>,
    /// What the server answered, until whoever waits has it.
    replies: Mutex<HashMap<CallId, RawReply>>,
    /// What an error of a call said beside its words.
    error_data: Mutex<HashMap<CallId, Value>>,
    /// Headers that arguments of a tool go into as well, by tool: its schema.
    schemas: Mutex<HashMap<String, Map<String, Value>>>,
    /// The calls that are under way, of all connections.
    live: LiveCalls,
}

/// How a client began.
#[derive(Debug, Clone)]
enum Greeting {
    /// With a handshake: its parameters.
    Handshake(Value),
    /// Not at all: each of its requests says who it is.
    Stateless(Client),
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    pub(crate) fn new(
        launch: Launch,
        env: Env,
        live: LiveCalls,
        to_client: mpsc::UnboundedSender<Value>,
    ) -> io::Result<Self> {
        let locks = LockDir::new(&launch.locks, launch.holder.clone(), env.clone())?;
        Ok(Self {
            launch,
            locks,
            env,
            to_client,
            process: AsyncMutex::default(),
            greeting: Mutex::default(),
            known: Mutex::default(),
            log_level: Mutex::default(),
            metas: Mutex::default(),
            replies: Mutex::default(),
            error_data: Mutex::default(),
            schemas: Mutex::default(),
            live,
        })
    }

    /// The client's `initialize`, which an earlier broker answered.
    pub(crate) fn remember_handshake(&self, request: &Value) {
        *lock(&self.greeting) = request.get("params").cloned().map(Greeting::Handshake);
    }

    /// Who it is spoken with for, where that client's requests stand for themselves.
    pub(crate) fn remember_client(&self, client: &Client) {
        *lock(&self.greeting) = Some(Greeting::Stateless(client.clone()));
    }

    /// What the server said when it was greeted, as `serverInfo` says it.
    pub(crate) fn server_info(&self) -> Option<Value> {
        let known = lock(&self.known);
        let (era, said) = known.as_ref()?;
        let info = match era {
            Era::Handshake => &said["serverInfo"],
            Era::Stateless => &said["_meta"]["io.modelcontextprotocol/serverInfo"],
        };
        info.is_object().then(|| info.clone())
    }

    /// How it is spoken with, once that is known.
    pub(crate) fn era(&self) -> Option<Era> {
        lock(&self.known).as_ref().map(|(era, _)| *era)
    }

    /// Starts the server with the client's `initialize`; the answer is the server's own, or what it says about itself where it knows no handshake.
    pub(crate) async fn initialize(&self, params: Value) -> Result<Value, Unanswered> {
        let mut running = self.process.lock().await;
        let process = match running.as_ref().filter(|process| !process.has_ended()) {
            Some(process) => process.clone(),
            None => self.start().map_err(Unanswered::NotSent)?,
        };
        *running = Some(process.clone());
        drop(running);
        let answer = self.shake_hands(&process, &params).await?;
        if answer.get("result").is_some() {
            *lock(&self.greeting) = Some(Greeting::Handshake(params));
        }
        Ok(answer)
    }

    /// What the server can do, for a client whose requests stand for themselves.
    pub(crate) async fn discover(&self, client: &Client) -> Result<Value, Unanswered> {
        self.remember_client(client);
        let process = self.running_process().await.map_err(Unanswered::NotSent)?;
        if process.is_stateless() {
            let params = self.prepared(&process, json!({}));
            return process.request("server/discover", params).await;
        }
        let known = lock(&self.known).clone();
        Ok(json!({"result": era::discovery(&known.map(|(_, said)| said).unwrap_or_default())}))
    }

    /// A handshake, or, with a server that knows none, asking it what it can do.
    async fn shake_hands(&self, process: &Process, params: &Value) -> Result<Value, Unanswered> {
        let was_stateless = process.is_stateless();
        let refused = if was_stateless { None } else { Some(process.request("initialize", params.clone()).await) };
        if let Some(Ok(answer)) = &refused
            && let Some(result) = answer.get("result")
        {
            self.found(process, Era::Handshake, result);
            return Ok(answer.clone());
        }
        match refused {
            Some(Err(lost @ (Unanswered::Lost(_) | Unanswered::NotSent(_) | Unanswered::Unreadable(_)))) => {
                return Err(lost);
            }
            Some(Ok(_) | Err(Unanswered::Refused { .. })) | None => {}
        }
        match self.asked(process, &Client::of_handshake(params)).await {
            Some(discovered) => {
                let wanted = params["protocolVersion"].as_str().unwrap_or_default();
                let greeting = era::greeting(&discovered, wanted);
                self.found(process, Era::Stateless, &discovered);
                Ok(json!({"result": greeting}))
            }
            None => refused.unwrap_or_else(|| Err(Unanswered::Lost("it said nothing about itself".to_owned()))),
        }
    }

    /// What a server says that knows the newer era; `None` for another one.
    async fn asked(&self, process: &Process, client: &Client) -> Option<Value> {
        let mut meta = Map::new();
        client.sign(&mut meta, None);
        let asked = tokio::select! {
            asked = process.request("server/discover", json!({"_meta": meta})) => asked.ok()?,
            () = self.env.clock.sleep(DISCOVER_PATIENCE) => return None,
        };
        let result = asked.get("result")?;
        let supported = result["supportedVersions"].as_array().into_iter().flatten();
        supported.into_iter().any(|version| version == era::NEWER).then(|| result.clone())
    }

    fn found(&self, process: &Process, era: Era, said: &Value) {
        let _known = process.era.set(era);
        *lock(&self.known) = Some((era, said.clone()));
    }

    /// A message of the client that wants no answer, or is one. Without a process nobody misses it.
    pub(crate) async fn tell(&self, message: &Value) {
        let process = self.process.lock().await.clone();
        let Some(process) = process.filter(|process| !process.has_ended()) else { return };
        let is_cancel = message["method"] == "notifications/cancelled";
        // A server without sessions has nothing to remember; over HTTP a request is cancelled by closing its stream.
        if process.is_stateless() && (!is_cancel || process.is_remote()) {
            return;
        }
        let _gone = process.write(message).await;
    }

    /// A request of the client as it came, to a process that is started when there is none. `named` hears the id that it has there.
    pub(crate) async fn relay(&self, method: &str, params: Value, named: impl Fn(u64)) -> Result<Value, Unanswered> {
        let process = self.running_process().await.map_err(Unanswered::NotSent)?;
        if method == "logging/setLevel" && process.is_stateless() {
            // Each request says for itself which logs it wants.
            *lock(&self.log_level) = params.get("level").cloned();
            return Ok(json!({"result": {}}));
        }
        let prepared = self.prepared(&process, params.clone());
        match process.request_named(method, prepared, &[], &named).await {
            // A session that is over refused it unread; the next one is begun as the client began the first.
            Err(Unanswered::NotSent(_)) if process.is_remote() => {
                let process = self.running_process().await.map_err(Unanswered::NotSent)?;
                let prepared = self.prepared(&process, params);
                process.request_named(method, prepared, &[], &named).await
            }
            answered => answered,
        }
    }

    /// Parameters as this process wants them: saying for themselves who asks, or without that.
    fn prepared(&self, process: &Process, mut params: Value) -> Value {
        if process.is_stateless() {
            if !params.is_object() {
                params = json!({});
            }
            let client = self.client();
            let level = lock(&self.log_level).clone();
            if let Some(meta) = params
                .as_object_mut()
                .and_then(|params| params.entry("_meta").or_insert_with(|| json!({})).as_object_mut())
            {
                client.sign(meta, level.as_ref());
            }
        } else if let Some(meta) = params.get_mut("_meta").and_then(Value::as_object_mut) {
            era::unsigned(meta);
        }
        params
    }

    fn client(&self) -> Client {
        match &*lock(&self.greeting) {
            Some(Greeting::Handshake(params)) => Client::of_handshake(params),
            Some(Greeting::Stateless(client)) => client.clone(),
            None => Client::default(),
        }
    }

    /// What goes with a call beside its arguments.
    pub(crate) fn put_meta(&self, call: &CallId, meta: Map<String, Value>) {
        lock(&self.metas).insert(call.clone(), meta);
    }

    pub(crate) fn drop_meta(&self, call: &CallId) {
        lock(&self.metas).remove(call);
    }

    /// What the server answered to a call, in its own words; once.
    pub(crate) fn take_reply(&self, call: &CallId) -> Option<RawReply> {
        lock(&self.replies).remove(call)
    }

    /// What an error said beside its words; once.
    pub(crate) fn take_error_data(&self, call: &CallId) -> Option<Value> {
        lock(&self.error_data).remove(call)
    }

    /// Who holds the locks of its processes, which tells it from others.
    pub(crate) fn holder(&self) -> &RunId {
        &self.launch.holder
    }

    /// The arguments of a call that go into headers as well, as the tool's schema marks them, as far as its list was read.
    pub(crate) fn marked(&self, tool: &str, arguments: &Map<String, Value>) -> Vec<(String, String)> {
        lock(&self.schemas).get(tool).and_then(|schema| argument_headers(schema, arguments).ok()).unwrap_or_default()
    }

    /// What the tools of a page of its list want to be called with.
    pub(crate) fn note_schemas(&self, page: &Value) {
        let mut schemas = lock(&self.schemas);
        for tool in page["tools"].as_array().into_iter().flatten() {
            let (Some(name), Some(schema)) = (tool["name"].as_str(), tool["inputSchema"].as_object()) else { continue };
            schemas.insert(name.to_owned(), schema.clone());
        }
    }

    /// Waits until nothing is asked of it.
    pub(crate) async fn idle(&self) {
        loop {
            let process = self.process.lock().await.clone();
            let Some(process) = process.filter(|process| !process.has_ended()) else { return };
            if process.is_idle() && lock(&self.metas).is_empty() {
                return;
            }
            self.env.clock.sleep(IDLE_POLL).await;
        }
    }

    /// Ends the process in an orderly way, and makes sure that nothing of it is left.
    pub(crate) async fn shut_down(&self) {
        let Some(process) = self.process.lock().await.take() else { return };
        let pipe = match &process.link {
            Link::Pipe(pipe) => pipe,
            Link::Remote { relay, .. } => return relay.close().await,
        };
        drop(pipe.stdin.lock().await.take());
        {
            let mut child = pipe.child.lock().await;
            tokio::select! {
                _ended = child.wait() => {}
                () = self.env.clock.sleep(DEFAULT_GRACE * 2) => {}
            }
        }
        let _alive = self.locks.fence(&self.launch.name, &process.generation).await;
    }

    fn start(&self) -> Result<Arc<Process>, String> {
        let Launch { name, reach, cwd, shim, stderr_log, .. } = &self.launch;
        let (command, env) = match reach {
            Reach::Command { command, env } => (command, env),
            Reach::Url { url, headers } => {
                let logins = self.launch.logins.as_ref();
                let relay = Relay::new(name, url, headers, self.env.clone(), self.to_client.clone(), logins)?;
                let generation = Horizon::generation(&self.locks.unique());
                let link = Link::Remote { relay, under_way: AtomicUsize::new(0) };
                return Ok(Arc::new(Process { generation, next: AtomicU64::new(1), link, era: OnceLock::new() }));
            }
        };
        let Some((program, args)) = command.split_first() else { return Err("it has no command".to_owned()) };
        let generation = self.locks.begin(name).map_err(|error| format!("its lock cannot be made: {error}"))?;
        let shim_args = ShimArgs {
            lock: self.locks.path(name, &generation),
            grace: DEFAULT_GRACE,
            command: program.into(),
            args: args.iter().map(Into::into).collect(),
        };
        let log = std::fs::OpenOptions::new().create(true).append(true).open(stderr_log);
        let log = log.map_err(|error| format!("its log {} cannot be opened: {error}", stderr_log.display()))?;
        let mut start = Command::new(&shim.program);
        start.args(&shim.args).args(shim_args.to_args()).env_clear().envs(env).current_dir(cwd);
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // Not killed on drop: that would kill the shim and leave the server. A closed pipe is what ends both.
        let mut child = start.spawn().map_err(|error| format!("the shim cannot be run: {error}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("its pipes are not there".to_owned());
        };
        let pipe = Arc::new(Pipe {
            stdin: AsyncMutex::new(Some(stdin)),
            pending: Mutex::new(Some(HashMap::new())),
            ended: CancellationToken::new(),
            child: AsyncMutex::new(child),
            stderr_log: stderr_log.clone(),
        });
        tokio::spawn(read(stdout, pipe.clone(), self.to_client.clone()));
        let link = Link::Pipe(pipe);
        Ok(Arc::new(Process { generation, next: AtomicU64::new(1), link, era: OnceLock::new() }))
    }

    /// The running process, started and greeted for the client when there is none.
    async fn running_process(&self) -> Result<Arc<Process>, String> {
        let mut running = self.process.lock().await;
        if let Some(process) = running.as_ref().filter(|process| !process.has_ended()) {
            return Ok(process.clone());
        }
        let greeting = lock(&self.greeting).clone();
        let greeting = greeting.ok_or("the client has not greeted it")?;
        let process = self.start()?;
        tokio::select! {
            greeted = self.greet(&process, &greeting) => greeted?,
            () = self.env.clock.sleep(PATIENCE) => return Err("it did not answer the handshake in time".to_owned()),
        }
        *running = Some(process.clone());
        Ok(process)
    }

    /// Finds out how a process is spoken with, as far as that is not known already.
    async fn greet(&self, process: &Process, greeting: &Greeting) -> Result<(), String> {
        let era = self.era();
        let handshake = match greeting {
            Greeting::Handshake(params) => params.clone(),
            Greeting::Stateless(client) => {
                if era != Some(Era::Handshake)
                    && let Some(discovered) = self.asked(process, client).await
                {
                    self.found(process, Era::Stateless, &discovered);
                    return Ok(());
                }
                client.handshake()
            }
        };
        let greeted = self.shake_hands(process, &handshake).await.map_err(|why| format!("it did not start: {why}"))?;
        if let Some(error) = greeted.get("error") {
            return Err(format!("it refused the handshake: {}", error["message"]));
        }
        if process.is_stateless() {
            return Ok(());
        }
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        process.write(&initialized).await.map_err(|error| error.to_string())
    }

    /// One request of our own, which only looks.
    async fn look(&self, method: &str, params: &Value) -> Result<Value, String> {
        let process = self.running_process().await?;
        let answer = tokio::select! {
            answer = process.request(method, self.prepared(&process, params.clone())) => {
                answer.map_err(|why| why.to_string())?
            }
            () = self.env.clock.sleep(PATIENCE) => return Err(format!("it did not answer {method} in time")),
        };
        match (answer.get("result"), answer.get("error")) {
            (Some(result), _) => Ok(result.clone()),
            (None, error) => {
                Err(error.map_or_else(|| "it answered nothing".to_owned(), |error| error["message"].to_string()))
            }
        }
    }

    async fn send(&self, permit: &Permit) -> Outcome {
        let process = self.process.lock().await.clone();
        let process =
            process.filter(|process| !process.has_ended() && self.generation_of(process) == permit.generation());
        let Some(process) = process else {
            return Outcome::NotSent { why: "the process it was meant for has ended".to_owned() };
        };
        let (arguments, ours) = (permit.arguments(), permit.meta());
        let mut meta = lock(&self.metas).get(&permit.call().call_id).cloned().unwrap_or_default();
        meta.extend(ours);
        let header = match &permit.call().policy.key_channel {
            Some(KeyChannel::Header(name)) if process.is_remote() => Some((name.as_str(), permit.key().as_str())),
            Some(KeyChannel::Header(name)) => {
                tracing::debug!(name, "a header carries no key over a pipe");
                None
            }
            Some(KeyChannel::Argument(_) | KeyChannel::Meta) | None => None,
        };
        if let Err(why) = verify_key(permit, Payload { arguments: &arguments, meta: &meta, header }) {
            return Outcome::NotSent { why };
        }
        let mut headers: Vec<(String, String)> =
            header.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        if process.is_stateless() && process.is_remote() {
            let schemas = lock(&self.schemas);
            let marked = schemas.get(&permit.name().tool).map(|schema| argument_headers(schema, &arguments));
            match marked.transpose() {
                Ok(marked) => headers.extend(marked.unwrap_or_default()),
                Err(why) => return Outcome::NotSent { why },
            }
        }
        let call = &permit.call().call_id;
        let live = lock(&self.live).get(call).cloned();
        // From here on nobody says that it was not sent, but for this very function.
        let before =
            live.as_ref().and_then(|live| live.is_sent(Sent { at: self.env.now(), attempt: permit.call().attempt }));
        lock(&self.replies).remove(call);
        let params = json!({"name": permit.name().tool, "arguments": arguments, "_meta": meta});
        let params = self.prepared(&process, params);
        let deadline = permit.call().policy.timeout.filter(|_| permit.call().policy.class == SideEffectClass::ReadOnly);
        let answer = async {
            tokio::select! {
                answer = self.rounds(&process, call, params, &headers) => answer,
                () = sleep_or_never(deadline, &self.env) => Err(Unanswered::Lost("it did not answer in time".to_owned())),
            }
        };
        let outcome = match answer.await {
            Ok(mut answer) => match (answer.get_mut("result").map(Value::take), answer.get("error")) {
                (Some(result), _) => Outcome::Raw(RawReply::ToolResult { result }),
                (None, Some(error)) => {
                    if let Some(data) = error.get("data") {
                        let mut kept = lock(&self.error_data);
                        if kept.len() >= MOST_KEPT {
                            kept.clear();
                        }
                        kept.insert(call.clone(), data.clone());
                    }
                    Outcome::Raw(RawReply::RpcError {
                        code: error["code"].as_i64().unwrap_or(0),
                        message: error["message"].as_str().unwrap_or_default().to_owned(),
                    })
                }
                (None, None) => Outcome::Lost { why: "it answered neither a result nor an error".to_owned() },
            },
            Err(Unanswered::NotSent(why)) => Outcome::NotSent { why },
            // A read would be made again, and be answered so again.
            Err(Unanswered::Unreadable(why)) if permit.call().policy.class == SideEffectClass::ReadOnly => {
                Outcome::Raw(RawReply::RpcError { code: -32700, message: why })
            }
            Err(Unanswered::Lost(why) | Unanswered::Unreadable(why)) => Outcome::Lost { why },
            Err(Unanswered::Refused { status, body }) => Outcome::Raw(RawReply::HttpStatus { status, body }),
        };
        if let Outcome::Raw(reply @ RawReply::ToolResult { .. }) = &outcome {
            lock(&self.replies).insert(call.clone(), reply.clone());
        }
        if let (Outcome::NotSent { .. }, Some(live)) = (&outcome, &live) {
            live.was_not_sent(before);
        }
        match &outcome {
            Outcome::Raw(RawReply::ToolResult { .. }) | Outcome::NotSent { .. } | Outcome::Continues(_) => {}
            // A status or an error of the protocol may still be read as an unknown outcome.
            Outcome::Lost { .. } | Outcome::Raw(_) => self.launch.horizon.given_up(&process.generation),
        }
        outcome
    }

    /// A call, and what its tool asks for before it has a result. Each round goes on with the call that was begun; nothing is begun anew.
    async fn rounds(
        &self,
        process: &Process,
        call: &CallId,
        mut params: Value,
        headers: &[(String, String)],
    ) -> Result<Value, Unanswered> {
        for round in 0..MOST_ROUNDS {
            let answered = process.request_named("tools/call", params.clone(), headers, &|_| ()).await;
            let answer = match answered {
                // The first round was taken, so nothing that is said to a later one proves that nothing happened.
                Err(Unanswered::NotSent(why)) if round > 0 => return Err(Unanswered::Lost(why)),
                Err(refused @ Unanswered::Refused { .. }) if round > 0 => {
                    return Err(Unanswered::Lost(refused.to_string()));
                }
                answered => answered?,
            };
            let Some(requests) = answer.get("result").and_then(era::asked_for) else { return Ok(answer) };
            let live = lock(&self.live).get(call).cloned();
            let answers = match live {
                Some(live) => live.ask_for(requests, &self.env).await,
                None => None,
            };
            let Some(answers) = answers else {
                return Err(Unanswered::Lost("it asked for something that nobody could answer".to_owned()));
            };
            params["inputResponses"] = Value::Object(answers);
            match answer["result"].get("requestState") {
                Some(state) => params["requestState"] = state.clone(),
                None => drop(params.as_object_mut().and_then(|params| params.remove("requestState"))),
            }
        }
        Err(Unanswered::Lost("it does not stop asking".to_owned()))
    }

    /// A generation's name in the ledger says whose lock it has, since the next broker knows nothing of this connection.
    fn generation_of(&self, process: &Process) -> String {
        format!("{}/{}", self.launch.holder, process.generation)
    }
}

async fn sleep_or_never(span: Option<Duration>, env: &Env) {
    match span {
        Some(span) => env.clock.sleep(span).await,
        None => std::future::pending().await,
    }
}

/// A tool as the server describes it.
pub(crate) fn spec(server: &str, tool: &Value) -> Option<ToolSpec> {
    let name = tool["name"].as_str()?;
    let hint = |name: &str| tool["annotations"][name].as_bool();
    let ours = |name: &str| tool["_meta"].get(format!("dev.universal-agent/{name}"));
    Some(ToolSpec {
        name: ToolName::qualified(ToolNamespace::Mcp, server, name),
        description: tool["description"].as_str().unwrap_or_default().to_owned(),
        input_schema: tool.get("inputSchema").cloned().unwrap_or_else(|| json!({"type": "object"})),
        annotations: ToolAnnotations {
            read_only: hint("readOnlyHint"),
            destructive: hint("destructiveHint"),
            idempotent: hint("idempotentHint"),
            open_world: hint("openWorldHint"),
            honours_keys: ours("honours-keys").and_then(Value::as_bool),
            key_ttl_seconds: ours("key-ttl-seconds").and_then(Value::as_u64),
            fetches: ours("fetches").and_then(Value::as_bool),
        },
    })
}

#[async_trait]
impl ToolTransport for Upstream {
    async fn list(&self) -> Result<Vec<ToolSpec>, TransportError> {
        let server = &self.launch.name;
        let failed = |why| TransportError::NotListed { server: server.clone(), why };
        let mut tools = Vec::new();
        let mut cursor = None::<Value>;
        for _ in 0..MAX_PAGES {
            let params = cursor.take().map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
            let page = self.look("tools/list", &params).await.map_err(failed)?;
            self.note_schemas(&page);
            let listed = page["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
            tools.extend(listed.iter().filter_map(|tool| spec(server, tool)));
            match page.get("nextCursor").filter(|next| !next.is_null()) {
                Some(next) => cursor = Some(next.clone()),
                None => return Ok(tools),
            }
        }
        Err(failed("its list of tools does not end".to_owned()))
    }

    async fn ready(&self, server: &str) -> Result<String, TransportError> {
        let process = self.running_process().await;
        let process = process.map_err(|why| TransportError::NotStarted { server: server.to_owned(), why })?;
        Ok(self.generation_of(&process))
    }

    fn running(&self, _server: &str) -> Option<String> {
        let process = self.process.try_lock().ok()?.clone()?;
        (!process.has_ended()).then(|| self.generation_of(&process))
    }

    async fn invoke(&self, permit: &Permit) -> Outcome {
        self.send(permit).await
    }

    async fn ask(&self, enquiry: &Enquiry) -> Outcome {
        let params = json!({"name": enquiry.tool().tool, "arguments": enquiry.arguments()});
        match self.look("tools/call", &params).await {
            Ok(result) => Outcome::Raw(RawReply::ToolResult { result }),
            Err(why) => Outcome::NotSent { why },
        }
    }

    async fn fence(&self, server: &str, generation: &str, lost_at: Option<Timestamp>) -> Fence {
        if let Some((_, own)) = generation.split_once('/')
            && Horizon::is_remote(own)
        {
            self.launch.horizon.pass(own, lost_at).await;
            return Fence::Gone;
        }
        if let Some((holder, own)) = generation.split_once('/')
            && let Ok(holder) = RunId::parse(holder)
        {
            if holder == self.launch.holder {
                let mut running = self.process.lock().await;
                if running.as_ref().is_some_and(|process| process.generation == own) {
                    *running = None;
                }
                drop(running);
                return self.locks.fence(server, own).await;
            }
            return match LockDir::new(&self.launch.locks, holder, self.env.clone()) {
                Ok(locks) => locks.fence(server, own).await,
                Err(error) => Fence::Alive { detail: format!("its lock cannot be found: {error}") },
            };
        }
        Fence::Alive { detail: format!("`{generation}` names no process of the gateway") }
    }
}
