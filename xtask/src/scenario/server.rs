//! Tool servers that do what a scenario tells them, call by call, and the only count of effects that a verdict believes.
//!
//! All decisions are made in the harness. A server that `ua` starts as a child process ([`serve_stdio`]) only carries each call to the
//! harness over HTTP and carries the answer back, so an effect outlives every process that was killed. A remote server is the harness
//! itself. An effect is counted before anything is answered, and whoever waits for a call sees it only once it is counted.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use serde_json::{Value, json};

/// The argument in which a tool takes its key, where a policy says so.
pub(crate) const KEY_ARGUMENT: &str = "order_key";
/// The header in which a remote tool takes its key, where a policy says so.
pub(crate) const KEY_HEADER: &str = "Idempotency-Key";

/// How long a server waits for its port to be free again.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call that reached a tool.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: Value,
    /// The key that came with it, by whatever channel.
    pub(crate) key: Option<String>,
    /// Its number among the calls of this tool, from 1.
    pub(crate) nth: usize,
    /// Seconds since the scenario began.
    pub(crate) at: Duration,
}

/// What a tool does about a call: whether it has its effect, and what becomes of the answer.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    effect: Effect,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Never,
    /// Once for each key; always for a call without one.
    OncePerKey,
    /// Whatever the key: the other side has forgotten it.
    Always,
}

/// What becomes of the answer.
#[derive(Debug, Clone)]
pub(crate) enum Then {
    /// It is given.
    Answer,
    /// It is given, and the remote server cannot be reached any more.
    AnswerAndLeave,
    /// It is given once the scenario releases this name.
    AnswerAfter(&'static str),
    /// A JSON-RPC error with this code is given.
    Refuse(i64),
    /// An HTTP status is given.
    Status(u16),
    /// The connection is cut; a child process ends.
    Cut,
    /// The connection is cut, and the remote server cannot be reached any more.
    CutAndLeave,
    /// It is never given.
    Hang,
    /// What the server, if it is a child process, inherited from its shim is kept open for as long as this file is there, by a process that the
    /// shim cannot find: the harness itself. Then the answer is given.
    Orphan(PathBuf),
}

impl Step {
    /// The effect is had, once for each key.
    pub(crate) fn done(then: Then) -> Self {
        Self { effect: Effect::OncePerKey, then }
    }

    /// The effect is had, although the key was seen before.
    pub(crate) fn done_again(then: Then) -> Self {
        Self { effect: Effect::Always, then }
    }

    /// Nothing happens.
    pub(crate) fn not_done(then: Then) -> Self {
        Self { effect: Effect::Never, then }
    }
}

/// Decides about each call.
pub(crate) type Plan = Box<dyn Fn(&Call) -> Step + Send + Sync>;

/// The servers of one scenario; dropping them ends them.
pub(crate) struct Servers {
    shared: Arc<Shared>,
    /// Where child processes ask what to do.
    control: SocketAddr,
    /// Where the remote server is, as long as it can be reached.
    remote: SocketAddr,
}

struct Shared {
    plan: Plan,
    started: Instant,
    /// The list of effects as a file, for people.
    log: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    listening: Mutex<Option<Listening>>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    effects: Vec<Call>,
    released: BTreeSet<&'static str>,
    is_over: bool,
}

struct Listening {
    address: SocketAddr,
    is_over: Arc<Mutex<bool>>,
    accepting: JoinHandle<()>,
}

impl Servers {
    pub(crate) fn start(log: PathBuf, plan: Plan) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            plan,
            started: Instant::now(),
            log,
            state: Mutex::default(),
            changed: Condvar::new(),
            listening: Mutex::default(),
        });
        let control = Listening::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &shared)?.address;
        let remote = Listening::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &shared)?;
        let address = remote.address;
        *lock(&shared.listening) = Some(remote);
        Ok(Self { shared, control, remote: address })
    }

    /// The entry of a server that `ua` starts as a child process.
    pub(crate) fn stdio_entry(&self, name: &str, tools: &[&str]) -> anyhow::Result<Value> {
        let program = std::env::current_exe().context("find this program")?;
        let control = self.control.to_string();
        let args = ["findings-server", "--control", &control, "--name", name, "--tools", &tools.join(",")];
        Ok(json!({"command": program, "args": args}))
    }

    /// The entry of a server at an address. Its tools stand in the address, so that the harness need not keep them.
    pub(crate) fn remote_entry(&self, name: &str, tools: &[&str]) -> Value {
        json!({"type": "http", "url": format!("http://{}/mcp/{name}/{}", self.remote, tools.join(","))})
    }

    /// How many calls of a tool have arrived.
    pub(crate) fn calls(&self, tool: &str) -> usize {
        self.shared.state().calls.iter().filter(|call| call.tool == tool).count()
    }

    /// Every effect of a tool, in order.
    pub(crate) fn effects(&self, tool: &str) -> Vec<Call> {
        self.shared.state().effects.iter().filter(|call| call.tool == tool).cloned().collect()
    }

    /// When the first call of a tool arrived.
    pub(crate) fn first_call(&self, tool: &str) -> Option<Duration> {
        self.shared.state().calls.iter().find(|call| call.tool == tool).map(|call| call.at)
    }

    /// The time since the scenario began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.shared.started.elapsed()
    }

    /// Lets answers go that wait for this name.
    pub(crate) fn release(&self, name: &'static str) {
        self.shared.state().released.insert(name);
        self.shared.changed.notify_all();
    }

    /// The remote server can be reached again, where it was.
    pub(crate) fn come_back(&self) -> anyhow::Result<()> {
        let mut listening = lock(&self.shared.listening);
        if listening.is_some() {
            return Ok(());
        }
        let started = Instant::now();
        *listening = loop {
            match Listening::start(self.remote, &self.shared) {
                Ok(there) => break Some(there),
                Err(error) if started.elapsed() > PATIENCE => return Err(error.context("listen once more")),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        self.shared.leave();
    }
}

impl Listening {
    fn start(at: SocketAddr, shared: &Arc<Shared>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(at).context("listen")?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(Mutex::new(false));
        let (shared, over) = (Arc::clone(shared), Arc::clone(&is_over));
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if *lock(&over) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                // Whoever asked may be gone by now; then nobody misses the answer.
                std::thread::spawn(move || shared.serve(&stream).ok());
            }
        });
        Ok(Self { address, is_over, accepting })
    }

    /// Returns once nobody listens any more, so that the next connection is surely refused.
    fn end(self) {
        *lock(&self.is_over) = true;
        TcpStream::connect(self.address).ok();
        self.accepting.join().ok();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn leave(&self) {
        let there = lock(&self.listening).take();
        if let Some(there) = there {
            there.end();
        }
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        let Some(request) = Request::read(stream)? else { return Ok(()) };
        let parts: Vec<&str> = request.path.split('/').skip(1).collect();
        match parts.as_slice() {
            ["stdio", server] => self.serve_child(stream, server, &request),
            ["mcp", server, tools] => self.serve_remote(stream, server, tools, &request),
            _ => respond(stream, 404, &json!({})),
        }
    }

    /// A call that a child process passes on.
    fn serve_child(&self, stream: &TcpStream, server: &str, request: &Request) -> io::Result<()> {
        let then = self.take(server, &request.body["request"], None)?;
        if let Then::Orphan(file) = &then {
            let server = request.body["process"].as_i64().unwrap_or_default();
            keep_lock(i32::try_from(server).unwrap_or_default(), file)?;
        }
        self.finish(stream, &then, &request.body["request"]["id"], |answer| json!({ "answer": answer }))
    }

    fn serve_remote(&self, stream: &TcpStream, server: &str, tools: &str, request: &Request) -> io::Result<()> {
        if request.verb != "POST" {
            return respond(stream, 405, &json!({}));
        }
        let id = &request.body["id"];
        if id.is_null() {
            return respond(stream, 202, &json!({}));
        }
        if request.body["method"] != "tools/call" {
            return respond(stream, 200, &about_the_server(&request.body, server, tools));
        }
        let then = self.take(server, &request.body, request.key.clone())?;
        self.finish(stream, &then, id, |answer| answer)
    }

    /// Takes a call: asks the plan, counts the effect, and returns what is to become of the answer.
    fn take(&self, server: &str, request: &Value, header_key: Option<String>) -> io::Result<Then> {
        let params = &request["params"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        // Not what `_meta` may say: these tools do not look there.
        let key = header_key.or_else(|| text(&params["arguments"][KEY_ARGUMENT]));
        let tool = params["name"].as_str().unwrap_or_default().to_owned();
        let mut arguments = params["arguments"].clone();
        if let Some(fields) = arguments.as_object_mut() {
            fields.remove(KEY_ARGUMENT);
        }
        let at = self.started.elapsed();
        // Counted first, so that two calls at the same moment have two numbers.
        let call = {
            let mut state = self.state();
            let nth = 1 + state.calls.iter().filter(|call| call.tool == tool).count();
            let call = Call { tool, arguments, key, nth, at };
            state.calls.push(call.clone());
            call
        };
        let step = (self.plan)(&call);
        let mut state = self.state();
        let is_known = call.key.is_some() && state.effects.iter().any(|e| e.tool == call.tool && e.key == call.key);
        let happens = match step.effect {
            Effect::Never => false,
            Effect::OncePerKey => !is_known,
            Effect::Always => true,
        };
        if happens {
            state.effects.push(call.clone());
        }
        let line = json!({"server": server, "tool": call.tool, "call": call.nth, "arguments": call.arguments, "key": call.key,
            "effect": happens, "then": format!("{:?}", step.then), "at_ms": u64::try_from(at.as_millis()).unwrap_or(u64::MAX)});
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        log.write_all(format!("{line}\n").as_bytes())?;
        drop(state);
        self.changed.notify_all();
        Ok(step.then)
    }

    /// Gives the answer, in this envelope, or does not.
    fn finish(&self, stream: &TcpStream, then: &Then, id: &Value, envelope: fn(Value) -> Value) -> io::Result<()> {
        let answer = || envelope(success(id));
        match then {
            Then::Answer | Then::Orphan(_) => respond(stream, 200, &answer()),
            Then::AnswerAndLeave => {
                self.leave();
                respond(stream, 200, &answer())
            }
            Then::AnswerAfter(name) => {
                let mut state = self.state();
                while !state.released.contains(name) && !state.is_over {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                drop(state);
                respond(stream, 200, &answer())
            }
            Then::Refuse(code) => respond(stream, 200, &envelope(refusal(id, *code))),
            Then::Status(status) => respond(stream, *status, &json!({"error": "the scenario says so"})),
            Then::Cut => stream.shutdown(Shutdown::Both),
            Then::CutAndLeave => {
                self.leave();
                stream.shutdown(Shutdown::Both)
            }
            // Until the other side is gone.
            Then::Hang => {
                let mut rest = stream;
                while rest.read(&mut [0; 64])? > 0 {}
                Ok(())
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn success(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}], "isError": false}})
}

fn refusal(id: &Value, code: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "the scenario says so"}})
}

/// The answer to whatever is no call.
fn about_the_server(request: &Value, server: &str, tools: &str) -> Value {
    let id = &request["id"];
    let result = match request["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": request.pointer("/params/protocolVersion").cloned().unwrap_or_else(|| json!("2025-06-18")),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": server, "version": "1"},
        }),
        Some("ping") => json!({}),
        Some("tools/list") => {
            let text = json!({"type": "string"});
            let schema = json!({
                "type": "object",
                "properties": {"to": text, "text": text, "file": text, "amount": {"type": "integer"}, KEY_ARGUMENT: text},
            });
            let tool =
                |name: &str| json!({"name": name, "description": format!("The tool {name}."), "inputSchema": schema});
            json!({"tools": tools.split(',').map(tool).collect::<Vec<_>>()})
        }
        _ => return refusal(id, -32601),
    };
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// One HTTP request; a connection carries one.
struct Request {
    verb: String,
    path: String,
    key: Option<String>,
    body: Value,
}

impl Request {
    /// Reads a request; `None` for a connection that carries none.
    fn read(stream: &TcpStream) -> io::Result<Option<Self>> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ').map(str::to_owned);
        let (Some(verb), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
        let (mut length, mut key) = (0, None);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse().unwrap_or(0);
            } else if name.eq_ignore_ascii_case(KEY_HEADER) {
                key = Some(value.trim().to_owned());
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(Some(Self { verb, path, key, body: serde_json::from_slice(&body).unwrap_or_default() }))
    }
}

fn respond(mut stream: &TcpStream, status: u16, body: &Value) -> io::Result<()> {
    let body = body.to_string();
    let head = format!("HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes())
}

/// The tool server that `ua` starts: speaks MCP over standard input and output, and asks the harness about each call.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerOptions {
    /// Where the harness is
    #[arg(long)]
    control: SocketAddr,
    /// The server's name
    #[arg(long)]
    name: String,
    /// Its tools, separated by commas
    #[arg(long)]
    tools: String,
}

pub(crate) fn serve_stdio(options: &ServerOptions) -> anyhow::Result<()> {
    for line in io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        if request["id"].is_null() {
            continue;
        }
        let answer = if request["method"] == "tools/call" {
            ask(options, &request)?["answer"].clone()
        } else {
            about_the_server(&request, &options.name, &options.tools)
        };
        let mut output = io::stdout().lock();
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

/// Passes a call on to the harness. A connection that is cut is an error, which ends this process without an answer.
fn ask(options: &ServerOptions, request: &Value) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(options.control).context("reach the harness")?;
    let body = json!({"request": request, "process": std::process::id()}).to_string();
    write!(stream, "POST /stdio/{} HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", options.name, body.len())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let Some((_, body)) = answer.split_once("\r\n\r\n") else { bail!("the harness cut the connection") };
    Ok(serde_json::from_str(body)?)
}

/// Keeps the lock of a tool server's generation for as long as `file` is there: a copy of what the server has open, so the same lock.
fn keep_lock(server: i32, file: &Path) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::NotFound, "the tool server has no lock");
    let of_server = pidfd_open(Pid::from_raw(server).ok_or_else(gone)?, PidfdFlags::empty())?;
    let open_files = std::fs::read_dir(format!("/proc/{server}/fd"))?.flatten();
    let is_lock =
        |path: &Path| std::fs::read_link(path).is_ok_and(|to| to.parent().is_some_and(|at| at.ends_with("locks")));
    let number =
        open_files.filter(|entry| is_lock(&entry.path())).find_map(|entry| entry.file_name().to_str()?.parse().ok());
    let lock = pidfd_getfd(of_server, number.ok_or_else(gone)?, PidfdGetfdFlags::empty())?;
    std::fs::write(file, "")?;
    let file = file.to_path_buf();
    std::thread::spawn(move || {
        while file.exists() {
            std::thread::sleep(Duration::from_millis(200));
        }
        drop(lock);
    });
    Ok(())
}
