//! A tool server behind the gateway: a process below the shim, or a session with an endpoint over HTTP, spoken to in the client's own words.
//!
//! Messages pass as they came. Only a tool call goes the other way round: it comes with a permit, and its answer is handed to the ledger. As for
//! every tool server a started process (or a session that was begun) is a generation, a call is sent to the one it was committed for or not at all, and nothing is sent twice.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use ua_core::{
    CallId, Env, KeyChannel, Outcome, RawReply, RunId, SideEffectClass, Timestamp, ToolAnnotations, ToolName,
    ToolNamespace, ToolSpec,
};
use ua_dispatch::{Enquiry, Fence, Payload, Permit, ToolTransport, TransportError, verify_key};
use ua_mcp::{DEFAULT_GRACE, Horizon, LockDir, Logins, Relay, Relayed, ShimArgs, ShimCommand};

/// How long a server may take to answer what we ask it for ourselves.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is idle.
const IDLE_POLL: Duration = Duration::from_millis(50);
/// How many pages of a list are read.
const MAX_PAGES: usize = 1_000;

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
    /// The client's `initialize`, which is made again with each process.
    handshake: Mutex<Option<Value>>,
    /// What the client said about a call beside its arguments.
    metas: Mutex<HashMap<CallId, Map<String, Value>>>,
}

/// One process, or one session with an endpoint.
struct Process {
    generation: String,
    next: AtomicU64,
    link: Link,
}

/// How its messages get there.
enum Link {
    Pipe(Arc<Pipe>),
    Remote { relay: Relay, under_way: AtomicUsize },
}

/// The pipes of a process.
struct Pipe {
    stdin: AsyncMutex<Option<ChildStdin>>,
    pending: Mutex<Option<HashMap<u64, oneshot::Sender<Value>>>>,
    ended: CancellationToken,
    child: AsyncMutex<Child>,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// No byte of it left.
    NotSent(String),
    /// It left, or may have.
    Lost(String),
    /// An HTTP status that is no success.
    Refused { status: u16, body: String },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    pub(crate) fn new(launch: Launch, env: Env, to_client: mpsc::UnboundedSender<Value>) -> io::Result<Self> {
        let locks = LockDir::new(&launch.locks, launch.holder.clone(), env.clone())?;
        let (process, handshake, metas) = (AsyncMutex::default(), Mutex::default(), Mutex::default());
        Ok(Self { launch, locks, env, to_client, process, handshake, metas })
    }

    /// The client's `initialize`, which an earlier broker answered.
    pub(crate) fn remember_handshake(&self, request: &Value) {
        *lock(&self.handshake) = request.get("params").cloned();
    }

    /// Starts the server with the client's `initialize`; the answer is the server's own.
    pub(crate) async fn initialize(&self, params: Value) -> Result<Value, Unanswered> {
        let mut running = self.process.lock().await;
        let process = match running.as_ref().filter(|process| !process.has_ended()) {
            Some(process) => process.clone(),
            None => self.start().map_err(Unanswered::NotSent)?,
        };
        *running = Some(process.clone());
        drop(running);
        let answer = process.request("initialize", &params).await?;
        if answer.get("result").is_some() {
            *lock(&self.handshake) = Some(params);
        }
        Ok(answer)
    }

    /// A message of the client that wants no answer, or is one. Without a process nobody misses it.
    pub(crate) async fn tell(&self, message: &Value) {
        let process = self.process.lock().await.clone();
        if let Some(process) = process.filter(|process| !process.has_ended()) {
            let _gone = process.write(message).await;
        }
    }

    /// A request of the client as it came, to a process that is started when there is none. `named` hears the id that it has there.
    pub(crate) async fn relay(
        &self,
        method: &str,
        params: Option<&Value>,
        named: impl Fn(u64),
    ) -> Result<Value, Unanswered> {
        let process = self.running_process().await.map_err(Unanswered::NotSent)?;
        match process.request_named(method, params, None, &named).await {
            // A session that is over refused it unread; the next one is begun as the client began the first.
            Err(Unanswered::NotSent(_)) if process.is_remote() => {
                let process = self.running_process().await.map_err(Unanswered::NotSent)?;
                process.request_named(method, params, None, &named).await
            }
            answered => answered,
        }
    }

    /// What goes with a call beside its arguments.
    pub(crate) fn put_meta(&self, call: &CallId, meta: Map<String, Value>) {
        lock(&self.metas).insert(call.clone(), meta);
    }

    pub(crate) fn drop_meta(&self, call: &CallId) {
        lock(&self.metas).remove(call);
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
                return Ok(Arc::new(Process { generation, next: AtomicU64::new(1), link }));
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
        });
        tokio::spawn(read(stdout, pipe.clone(), self.to_client.clone()));
        Ok(Arc::new(Process { generation, next: AtomicU64::new(1), link: Link::Pipe(pipe) }))
    }

    /// The running process, started and greeted as the client greeted it when there is none.
    async fn running_process(&self) -> Result<Arc<Process>, String> {
        let mut running = self.process.lock().await;
        if let Some(process) = running.as_ref().filter(|process| !process.has_ended()) {
            return Ok(process.clone());
        }
        let greeting = lock(&self.handshake).clone();
        let greeting = greeting.ok_or("the client has not greeted it")?;
        let process = self.start()?;
        let greeted = tokio::select! {
            greeted = process.request("initialize", &greeting) => greeted.map_err(|why| format!("it did not start: {why}"))?,
            () = self.env.clock.sleep(PATIENCE) => return Err("it did not answer the handshake in time".to_owned()),
        };
        if let Some(error) = greeted.get("error") {
            return Err(format!("it refused the handshake: {}", error["message"]));
        }
        process
            .write(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await
            .map_err(|e| e.to_string())?;
        *running = Some(process.clone());
        Ok(process)
    }

    /// One request of our own, which only looks.
    async fn look(&self, method: &str, params: &Value) -> Result<Value, String> {
        let process = self.running_process().await?;
        let answer = tokio::select! {
            answer = process.request(method, params) => answer.map_err(|why| why.to_string())?,
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
        let params = json!({"name": permit.name().tool, "arguments": arguments, "_meta": meta});
        let deadline = permit.call().policy.timeout.filter(|_| permit.call().policy.class == SideEffectClass::ReadOnly);
        let answer = async {
            tokio::select! {
                answer = process.request_named("tools/call", Some(&params), header, &|_| ()) => answer,
                () = sleep_or_never(deadline, &self.env) => Err(Unanswered::Lost("it did not answer in time".to_owned())),
            }
        };
        let outcome = match answer.await {
            Ok(answer) => match (answer.get("result"), answer.get("error")) {
                (Some(result), _) => Outcome::Raw(RawReply::ToolResult { result: result.clone() }),
                (None, Some(error)) => Outcome::Raw(RawReply::RpcError {
                    code: error["code"].as_i64().unwrap_or(0),
                    message: error["message"].as_str().unwrap_or_default().to_owned(),
                }),
                (None, None) => Outcome::Lost { why: "it answered neither a result nor an error".to_owned() },
            },
            Err(Unanswered::NotSent(why)) => Outcome::NotSent { why },
            Err(Unanswered::Lost(why)) => Outcome::Lost { why },
            Err(Unanswered::Refused { status, body }) => Outcome::Raw(RawReply::HttpStatus { status, body }),
        };
        match &outcome {
            Outcome::Raw(RawReply::ToolResult { .. }) | Outcome::NotSent { .. } | Outcome::Continues(_) => {}
            // A status or an error of the protocol may still be read as an unknown outcome.
            Outcome::Lost { .. } | Outcome::Raw(_) => self.launch.horizon.given_up(&process.generation),
        }
        outcome
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

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotSent(why) | Self::Lost(why) => f.write_str(why),
            Self::Refused { status, body } => {
                let body: String = body.chars().map(|c| if c.is_control() { ' ' } else { c }).take(400).collect();
                write!(f, "it answered HTTP status {status}: {}", body.trim())
            }
        }
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        match &self.link {
            Link::Pipe(pipe) => pipe.ended.is_cancelled(),
            Link::Remote { relay, .. } => relay.is_over(),
        }
    }

    fn is_remote(&self) -> bool {
        matches!(self.link, Link::Remote { .. })
    }

    fn is_idle(&self) -> bool {
        match &self.link {
            Link::Pipe(pipe) => lock(&pipe.pending).as_ref().is_none_or(HashMap::is_empty),
            Link::Remote { under_way, .. } => under_way.load(Ordering::Acquire) == 0,
        }
    }

    async fn write(&self, message: &Value) -> io::Result<()> {
        match &self.link {
            Link::Pipe(pipe) => pipe.write(message).await,
            Link::Remote { relay, .. } => relay.tell(message).await.map_err(io::Error::other),
        }
    }

    async fn request(&self, method: &str, params: &Value) -> Result<Value, Unanswered> {
        self.request_named(method, Some(params), None, &|_| ()).await
    }

    /// One request, once. `header` goes with it where there are headers.
    async fn request_named(
        &self,
        method: &str,
        params: Option<&Value>,
        header: Option<(&str, &str)>,
        named: &impl Fn(u64),
    ) -> Result<Value, Unanswered> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method});
        if let Some(params) = params.filter(|params| !params.is_null()) {
            message["params"] = params.clone();
        }
        let (relay, under_way) = match &self.link {
            Link::Pipe(pipe) => {
                let answer = pipe.expect(id)?;
                named(id);
                return pipe.request(&message, answer).await;
            }
            Link::Remote { relay, under_way } => (relay, under_way),
        };
        named(id);
        let _under_way = UnderWay::one(under_way);
        match relay.request(id, &message, header).await {
            Relayed::Answer(answer) => Ok(answer),
            Relayed::Status { status, body } => Err(Unanswered::Refused { status, body }),
            Relayed::NotSent(why) => Err(Unanswered::NotSent(why)),
            Relayed::Lost(why) => Err(Unanswered::Lost(why)),
        }
    }
}

/// A request that is counted until nobody waits for it.
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn one(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Pipe {
    async fn write(&self, message: &Value) -> io::Result<()> {
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = message.to_string();
        line.push('\n');
        stdin.write_all(line.as_bytes()).await?;
        stdin.flush().await
    }

    /// Whoever is answered under this id from now on.
    fn expect(&self, id: u64) -> Result<oneshot::Receiver<Value>, Unanswered> {
        let (answered, answer) = oneshot::channel();
        match lock(&self.pending).as_mut() {
            Some(pending) => pending.insert(id, answered),
            None => return Err(Unanswered::NotSent("the tool server has ended".to_owned())),
        };
        Ok(answer)
    }

    async fn request(&self, message: &Value, answer: oneshot::Receiver<Value>) -> Result<Value, Unanswered> {
        if let Err(error) = self.write(message).await {
            // A part of it may be in the pipe.
            return Err(Unanswered::Lost(format!("the tool server ended while it was asked: {error}")));
        }
        answer.await.map_err(|_| Unanswered::Lost("the tool server ended before it answered".to_owned()))
    }
}

/// Reads what the server says until it says nothing more.
async fn read(stdout: ChildStdout, pipe: Arc<Pipe>, to_client: mpsc::UnboundedSender<Value>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        // A server that logs to its output: not a message.
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        if message.get("method").is_some() {
            let _gone = to_client.send(message);
            continue;
        }
        let id = message["id"].as_u64().or_else(|| message["id"].as_str()?.parse().ok());
        let waiting = id.and_then(|id| lock(&pipe.pending).as_mut()?.remove(&id));
        if let Some(waiting) = waiting {
            let _gone = waiting.send(message);
        }
    }
    pipe.ended.cancel();
    // Whoever waits finds that nobody will answer, and nobody waits any more from now on.
    drop(lock(&pipe.pending).take());
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
