//! A tool server behind the gateway: a process below the shim, or a session with an endpoint over HTTP, spoken to in the client's own words.
//!
//! What passes is what was judged (`incoming`), with the same values. Only a tool call goes the other way round: it comes with a permit, and its answer is handed to the ledger. As for
//! every tool server a started process (or a session that was begun) is a generation, a call is sent to the one it was committed for or not at all, and nothing is sent twice.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::process::Command;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;
use ua_core::{CallId, Env, RawReply, RunId, ShowPath as _};
use ua_files::Folder;
use ua_mcp::{
    DEFAULT_GRACE, Horizon, LockDir, Logins, QueueReceiver, QueueSender, Relay, ServerLog, ShimArgs, ShimCommand,
    argument_headers, only_asks,
};

mod greeting;
mod process;
mod tasks;
mod tools;
mod transport;

use self::greeting::Greeting;
pub(crate) use self::process::Unanswered;
use self::process::{Link, Pipe, Process, read};
pub(crate) use self::tasks::{is_about_tasks, tells_of_tasks, withhold_task_support, withhold_tasks};
use self::tools::Tools;
pub(crate) use self::transport::{AsListed, fence_of_another, may_act_of_another, spec};
use crate::era::{self, Client, Era};
use crate::given::Given;
use crate::incoming::{Answer, Aside, CALL, CANCELLED};
use crate::input::of_nobody;
use crate::live::LiveCalls;
use crate::sync::lock;

/// How long a server may take to answer what we ask it for ourselves.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is idle.
const IDLE_POLL: Duration = Duration::from_millis(50);
/// The program of this process, also when its file is gone.
const OWN_PROGRAM: &str = "/proc/self/exe";

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
    /// The names of its variables whose values are kept out of that.
    pub(crate) secret: Vec<String>,
    /// Where the user is logged in.
    pub(crate) logins: Option<Logins>,
    /// What digests of these logins are made with; `None` where requests go with none.
    pub(crate) login_key: Option<Arc<str>>,
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
    to_client: QueueSender<Value>,
    process: AsyncMutex<Option<Arc<Process>>>,
    /// Who it is spoken with for, and how that client began; made again with each process.
    greeting: Mutex<Option<Greeting>>,
    /// What it said when it was greeted, and how it is spoken with.
    known: Mutex<Option<(Era, Value)>>,
    /// Which logs a client of the other era wants.
    log_level: Mutex<Option<Value>>,
    /// What the client gave each call that is under way.
    given: Mutex<HashMap<CallId, Given>>,
    /// What the server answered, until whoever waits has it.
    replies: Mutex<HashMap<CallId, RawReply>>,
    /// What an error of a call said beside its words.
    error_data: Mutex<HashMap<CallId, Value>>,
    /// Headers that arguments of a tool go into as well, by tool: its schema.
    schemas: Mutex<HashMap<String, Map<String, Value>>>,
    /// The tools that do nothing but as a task.
    only_as_tasks: Mutex<HashSet<String>>,
    /// How many calls are on their way to their receipts through here, whether or not a request of them is under way.
    carried: Arc<AtomicUsize>,
    /// What it offers.
    tools: Tools,
    /// The calls that are under way, of all connections.
    live: LiveCalls,
}

impl Upstream {
    pub(crate) fn new(launch: Launch, env: Env, live: LiveCalls, to_client: QueueSender<Value>) -> io::Result<Self> {
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
            given: Mutex::default(),
            replies: Mutex::default(),
            error_data: Mutex::default(),
            schemas: Mutex::default(),
            only_as_tasks: Mutex::default(),
            carried: Arc::default(),
            tools: Tools::default(),
            live,
        })
    }

    /// A message of the client that wants no answer, or is one. Without a process nobody misses it.
    pub(crate) async fn tell(&self, aside: &Aside) {
        let process = self.process.lock().await.clone();
        let Some(process) = process.filter(|process| !process.has_ended()) else { return };
        let is_cancel = matches!(aside, Aside::Notification { method: CANCELLED, .. });
        // A server without sessions has nothing to remember; over HTTP a request is cancelled by closing its stream.
        if process.is_stateless() && (!is_cancel || process.is_remote()) {
            return;
        }
        let _gone = process.write(&aside.as_message()).await;
    }

    /// Answers a request of the tool server whose client has gone, or cannot be asked.
    pub(crate) async fn answer_for_nobody(&self, request: &Value) {
        let outcome = match of_nobody(request["method"].as_str().unwrap_or_default()) {
            Some(result) => json!({"result": result}),
            None => json!({"error": {"code": -32603, "message": "the client has gone, and nobody else can be asked"}}),
        };
        self.tell(&Aside::Answer(Answer::new(request["id"].clone(), outcome))).await;
    }

    /// The same with whatever it asks from now on; `answers` hears of it before.
    pub(crate) async fn answer_all_for_nobody(
        &self,
        from_server: &AsyncMutex<QueueReceiver<Value>>,
        answers: impl Fn(&Value),
    ) {
        let mut from_server = from_server.lock().await;
        while let Some(message) = from_server.next().await {
            if message.get("id").is_some() {
                answers(&message);
                self.answer_for_nobody(&message).await;
            }
        }
    }

    /// A request of the client as it came, to a process that is started when there is none. `named` hears the id that it has there.
    pub(crate) async fn relay(&self, method: &str, params: Value, named: impl Fn(u64)) -> Result<Value, Unanswered> {
        if method == CALL {
            return Err(Unanswered::NotSent("a tool call is sent by the ledger alone".to_owned()));
        }
        let process = self.running_process().await.map_err(Unanswered::NotSent)?;
        if method == "logging/setLevel" && process.is_stateless() {
            // Each request says for itself which logs it wants.
            *lock(&self.log_level) = params.get("level").cloned();
            return Ok(json!({"result": {}}));
        }
        let prepared = self.prepared(&process, params.clone());
        match process.request_named(method, prepared, &[], &named).await {
            // The next session is begun as the client began the first. Whoever says that a session is over may not be who got the request (a load
            // balancer repeats one whose replica crashed), so only what asks is asked again for that.
            Err(why) if process.is_remote() && is_made_again(method, &why) => {
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
            self.says_tasks(&mut params, false);
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

    /// What goes with a call, as its client gave it.
    pub(crate) fn put_given(&self, call: &CallId, given: Given) {
        lock(&self.given).insert(call.clone(), given);
    }

    pub(crate) fn drop_given(&self, call: &CallId) {
        lock(&self.given).remove(call);
    }

    /// A call is on its way to its receipt from now on, until this is dropped.
    pub(crate) fn carries(&self) -> Carried {
        self.carried.fetch_add(1, Ordering::AcqRel);
        Carried(self.carried.clone())
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
            let mut only_as_tasks = lock(&self.only_as_tasks);
            if tool.pointer("/execution/taskSupport").is_some_and(|support| support == "required") {
                only_as_tasks.insert(name.to_owned());
            } else {
                only_as_tasks.remove(name);
            }
        }
    }

    /// Waits until nothing is asked of it.
    pub(crate) async fn idle(&self) {
        loop {
            let process = self.process.lock().await.clone();
            let Some(process) = process.filter(|process| !process.has_ended()) else { return };
            if process.is_idle() && self.carried.load(Ordering::Acquire) == 0 {
                return;
            }
            self.env.clock.sleep(IDLE_POLL).await;
        }
    }

    /// Ends the process in an orderly way, and makes sure that nothing of it is left.
    pub(crate) async fn shut_down(&self) {
        let Some(process) = self.process.lock().await.take() else { return };
        self.end(&process).await;
    }

    /// The same of a process that nobody asks anything any more. One that is dropped lives on, since whoever reads what it says holds its pipes.
    async fn end(&self, process: &Process) {
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

    /// The folder that its process works in.
    fn working_folder(&self) -> Option<PathBuf> {
        match &self.launch.reach {
            Reach::Command { .. } => Some(self.launch.cwd.clone()),
            Reach::Url { .. } => None,
        }
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
                return Ok(Arc::new(Process::new(generation, link)));
            }
        };
        let Some((program, args)) = command.split_first() else { return Err("it has no command".to_owned()) };
        if !is_program_there(program, env, cwd) {
            return Err(format!(
                "its program `{program}` was not found: install it, or correct the command after `--` in the client's configuration"
            ));
        }
        let generation = self.locks.begin(name).map_err(|error| format!("cannot create its lock: {error}"))?;
        let shim_args = ShimArgs {
            lock: self.locks.path(name, &generation),
            grace: DEFAULT_GRACE,
            secrets: self.launch.secret.clone(),
            command: program.into(),
            args: args.iter().map(Into::into).collect(),
        };
        let place = stderr_log.parent().zip(stderr_log.file_name());
        let log = place.ok_or_else(|| io::ErrorKind::InvalidInput.into());
        let log = log.and_then(|(folder, name)| Folder::open_itself(folder)?.append(name));
        let log = log.map_err(|error| format!("its log {} cannot be opened: {error}", stderr_log.shown()))?;
        let held = self.launch.secret.iter().filter_map(|name| Some((name.clone(), env.get(name)?.clone())));
        let own_log = log.try_clone().map_err(|error| format!("its log cannot be opened: {error}"))?;
        let own_log = ServerLog::to(own_log, held);
        // It is this program, whose file an upgrade may have removed since; the kernel has it as long as it runs.
        let is_there = shim.program.exists();
        let mut start = Command::new(if is_there { &shim.program } else { Path::new(OWN_PROGRAM) });
        start.args(&shim.args).args(shim_args.to_args()).env_clear().envs(env).current_dir(cwd);
        start.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        // Not killed on drop: that would kill the shim and leave the server. A closed pipe is what ends both.
        let mut child = start.spawn().map_err(|error| format!("the shim cannot be run: {error}"))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("its pipes are missing".to_owned());
        };
        let pipe = Arc::new(Pipe {
            stdin: AsyncMutex::new(Some(stdin)),
            pending: Mutex::new(Some(HashMap::new())),
            is_ended_for_another: AtomicBool::new(false),
            ended: CancellationToken::new(),
            child: AsyncMutex::new(child),
            stderr_log: stderr_log.clone(),
            log: Mutex::new(own_log),
            sent: Mutex::default(),
            env: self.env.clone(),
        });
        tokio::spawn(read(stdout, pipe.clone(), self.to_client.clone()));
        let link = Link::Pipe(pipe);
        Ok(Arc::new(Process::new(generation, link)))
    }

    /// Why a server is given up that does not answer the handshake.
    fn is_mute(&self) -> String {
        let Launch { name, stderr_log, .. } = &self.launch;
        let (seconds, log) = (PATIENCE.as_secs(), stderr_log.shown());
        tracing::warn!(server = name, %log, "a tool server did not answer the handshake within {seconds} s");
        format!("the tool server did not answer the handshake within {seconds} s; what it wrote is in {log}")
    }

    /// The running process, started and greeted for the client when there is none.
    async fn running_process(&self) -> Result<Arc<Process>, String> {
        let mut running = self.process.lock().await;
        if let Some(process) = running.as_ref().filter(|process| !process.has_ended()) {
            return Ok(process.clone());
        }
        let greeting = lock(&self.greeting).clone();
        let greeting = greeting.ok_or("the client has sent no `initialize` yet")?;
        let begun = self.env.now();
        let process = self.start()?;
        let greeted = tokio::select! {
            greeted = self.greet(&process, &greeting) => greeted,
            () = self.env.clock.sleep(PATIENCE) => Err(self.is_mute()),
        };
        if let Err(why) = greeted {
            self.end(&process).await;
            return Err(why);
        }
        self.say_if_slow(begun);
        *running = Some(process.clone());
        Ok(process)
    }
}

/// A call on its way to its receipt, which its tool server stays for.
pub(crate) struct Carried(Arc<AtomicUsize>);

impl Drop for Carried {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether a program is there to be started: by its path from `cwd`, or in a folder of the `PATH` that it gets.
fn is_program_there(program: &str, env: &BTreeMap<String, String>, cwd: &Path) -> bool {
    let is_program = |file: &Path| std::fs::metadata(file).is_ok_and(|found| found.is_file());
    if program.contains('/') {
        return is_program(&cwd.join(program));
    }
    let path = env.get("PATH").map(String::as_str).unwrap_or_default();
    // Without a PATH the system has one of its own.
    path.is_empty() || std::env::split_paths(path).any(|place| is_program(&cwd.join(place).join(program)))
}

/// Whether a request that is no tool call, and has no answer for this, is made once more.
fn is_made_again(method: &str, why: &Unanswered) -> bool {
    match why {
        Unanswered::NotSent(_) => true,
        Unanswered::Refused { of_session, .. } => *of_session && only_asks(method),
        Unanswered::Lost(_) | Unanswered::Unreadable(_) => false,
    }
}
