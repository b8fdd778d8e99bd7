//! A stand-in for the program `claude`, for tests that need no network, no key and no package: it speaks the same stream of JSON events
//! and the same MCP, keeps its sessions below its `HOME`, and dies where it is told to.
//!
//! Its model is a plan, the file whose path `ANTHROPIC_BASE_URL` has behind `http://127.0.0.1`:
//!
//! - `steps`: a list of replies, each a list of `{"tool", "input"}`; a reply is made until each of its calls has an answer that is no error
//! - `die`: `{"at": POINT, "mark": FILE}`, dies there once and makes FILE; points are `init`, `reply`, `asked`, `waiting`, `answered`, `end`
//! - `reword`: after an interruption it first asks for its calls in other words; `stubborn`: it takes what it is owed for done, and goes on
//! - `hold`: a file; while it is missing, the model does not answer
//! - `iterations`: a list of plans, one for each iteration of a job, by the number that its conversation begins with
//! - `say`: its last words
//! - `starts`: a file that gets a line for each prompt: in which session it came, what that was resumed from, and how much it knew
//!
//! Like the real one it asks for a tool as soon as the tool's block is whole, before its reply is, and one after the other; a call that was
//! interrupted reads as such when its session is gone on with.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};

use serde_json::{Value, json};
use ua_core::system;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const INTERRUPTED: &str =
    "[Tool call interrupted: the session ended before this call's result was recorded, so its outcome is unknown.]";

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--version") {
        writeln!(io::stdout(), "0.0.0 (stand-in for Claude Code)")?;
        return Ok(ExitCode::SUCCESS);
    }
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let allowed = value("--allowedTools").unwrap_or_default();
    let resumed = value("--resume");
    let is_fork = args.iter().any(|arg| arg == "--fork-session");
    let mut session = match &resumed {
        Some(id) => {
            let Some(session) = Session::resume(id, is_fork)? else {
                writeln!(io::stderr(), "No conversation found with session ID: {id}")?;
                return Ok(ExitCode::FAILURE);
            };
            session
        }
        None => Session::begin()?,
    };
    let address = variable("ANTHROPIC_BASE_URL")?;
    let plan = address.strip_prefix("http://127.0.0.1").unwrap_or(&address);
    let plan: Value = serde_json::from_str(&fs::read_to_string(plan)?)?;
    let config: Value = serde_json::from_str(&fs::read_to_string(value("--mcp-config").ok_or("no --mcp-config")?)?)?;
    let mut servers = Servers::start(&config, &allowed)?;
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if let Some(file) = plan["starts"].as_str() {
            let start =
                json!({"session": session.id, "resumed": resumed, "fork": is_fork, "knew": session.messages.len()});
            writeln!(OpenOptions::new().create(true).append(true).open(file)?, "{start}")?;
        }
        session.add(&message["message"])?;
        say(&json!({
            "type": "system", "subtype": "init", "session_id": session.id, "tools": servers.tools,
            "mcp_servers": servers.all.keys().map(|name| json!({"name": name, "status": "connected"})).collect::<Vec<_>>(),
        }))?;
        die(&plan, "init")?;
        let last = work(&plan, &mut session, &mut servers)?;
        die(&plan, "end")?;
        say(
            &json!({"type": "result", "subtype": "success", "is_error": false, "result": last, "session_id": session.id}),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes replies until one asks for nothing, and returns its text.
fn work(whole: &Value, session: &mut Session, servers: &mut Servers) -> Result<String> {
    let plan = of_iteration(whole, &session.messages);
    loop {
        while plan["hold"].as_str().is_some_and(|file| !Path::new(file).exists()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let asks = next_asks(plan, &session.messages);
        let number = session.messages.len();
        stream(
            session,
            &json!({"type": "message_start", "message": {"model": "plan", "usage": {"input_tokens": 10, "output_tokens": 1}}}),
        )?;
        let done = plan["say"].as_str().unwrap_or("All is done.");
        let text = if asks.is_empty() { done } else { "I go on." };
        let mut blocks = vec![json!({"type": "text", "text": text})];
        block(session, 0, &json!({"type": "text", "text": ""}), &json!({"type": "text_delta", "text": text}))?;
        let mut first = None;
        for (index, (tool, input)) in asks.iter().enumerate() {
            let id = format!("toolu_{number}_{index}_{}", std::process::id());
            let start = json!({"type": "tool_use", "id": id, "name": tool, "input": {}});
            block(session, index + 1, &start, &json!({"type": "input_json_delta", "partial_json": input.to_string()}))?;
            blocks.push(json!({"type": "tool_use", "id": id, "name": tool, "input": input}));
            if index == 0 {
                session.add(&json!({"role": "assistant", "content": blocks}))?;
                die(plan, "reply")?;
                // Before the reply is whole.
                first = Some(servers.ask(&id, tool, input)?);
            } else {
                session.extend_last(&blocks)?;
            }
        }
        if asks.is_empty() {
            session.add(&json!({"role": "assistant", "content": blocks}))?;
            die(plan, "reply")?;
        }
        let reason = if asks.is_empty() { "end_turn" } else { "tool_use" };
        stream(
            session,
            &json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}),
        )?;
        stream(session, &json!({"type": "message_stop"}))?;
        if asks.is_empty() {
            return Ok(text.to_owned());
        }
        die(plan, "asked")?;
        let mut results = Vec::new();
        for (index, (tool, input)) in asks.iter().enumerate() {
            let id = blocks[index + 1]["id"].clone();
            let asked = match first.take() {
                Some(asked) => asked,
                None => servers.ask(id.as_str().unwrap_or_default(), tool, input)?,
            };
            die(plan, "waiting")?;
            let answer = servers.answer(tool, asked)?;
            die(plan, "answered")?;
            results.push(json!({"type": "tool_result", "tool_use_id": id, "content": answer["content"], "is_error": answer["isError"]}));
        }
        session.add(&json!({"role": "user", "content": results}))?;
    }
}

/// The plan of the iteration that a conversation belongs to.
fn of_iteration<'p>(plan: &'p Value, messages: &[Value]) -> &'p Value {
    let first = messages.first().map(texts).unwrap_or_default();
    let number = |n: &usize| first.contains(&format!("Iteration {} of at most", n + 1));
    let parts = plan["iterations"].as_array();
    parts.map_or(plan, |parts| &parts[(0..parts.len()).find(number).unwrap_or_default()])
}

/// What the model asks for next; nothing when it is done.
fn next_asks(plan: &Value, messages: &[Value]) -> Vec<(String, Value)> {
    let mut done = answered(messages);
    let is_stubborn = plan["stubborn"] == true;
    if let Some((_, owed)) = owed(messages).filter(|_| is_stubborn) {
        done.extend(owed);
    }
    let is_done = |call: &(String, Value)| done.contains(call);
    if let Some((at, owed)) = owed(messages) {
        let tries = messages[at..].iter().filter(|message| message["role"] == "assistant").count();
        let later = answered(&messages[at..]);
        let mut left: Vec<(String, Value)> = owed.into_iter().filter(|call| !later.contains(call)).collect();
        if plan["reword"] == true && tries == 0 {
            for (_, input) in &mut left {
                if let Some(text) = input["text"].as_str() {
                    input["text"] = json!(format!("{text}, in other words"));
                }
            }
        }
        if !left.is_empty() && !is_stubborn {
            return left;
        }
    }
    let steps = plan["steps"].as_array().into_iter().flatten();
    let mut left = steps.map(|step| step.as_array().into_iter().flatten().map(call_of).collect::<Vec<_>>());
    left.find(|calls| !calls.iter().all(is_done)).unwrap_or_default()
}

fn call_of(value: &Value) -> (String, Value) {
    let input = if value["input"].is_null() { &value["arguments"] } else { &value["input"] };
    (value["tool"].as_str().unwrap_or_default().to_owned(), input.clone())
}

/// The newest list of calls that the model was told to make again, and where it was told.
fn owed(messages: &[Value]) -> Option<(usize, Vec<(String, Value)>)> {
    let at = messages
        .iter()
        .rposition(|message| message["role"] == "user" && texts(message).contains("make exactly these calls"))?;
    let calls = texts(&messages[at]);
    let calls = calls.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Some((at, calls.filter(|call| call["tool"].is_string()).map(|call| call_of(&call)).collect()))
}

fn texts(message: &Value) -> String {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
}

/// The calls that have an answer which is no error.
fn answered(messages: &[Value]) -> Vec<(String, Value)> {
    let blocks = || messages.iter().flat_map(|message| message["content"].as_array().into_iter().flatten());
    let good: Vec<&Value> = blocks()
        .filter(|block| block["type"] == "tool_result" && block["is_error"] != true)
        .map(|block| &block["tool_use_id"])
        .collect();
    blocks()
        .filter(|block| block["type"] == "tool_use" && good.contains(&&block["id"]))
        .map(|block| (block["name"].as_str().unwrap_or_default().to_owned(), block["input"].clone()))
        .collect()
}

struct Session {
    id: String,
    file: PathBuf,
    messages: Vec<Value>,
}

impl Session {
    fn folder() -> Result<PathBuf> {
        Ok(PathBuf::from(variable("HOME")?).join(".claude/projects/stand-in"))
    }

    fn begin() -> Result<Self> {
        let env = system::env();
        let id = format!("{:016x}-{}", env.entropy.next_u64(), std::process::id());
        fs::create_dir_all(Self::folder()?)?;
        Ok(Self { file: Self::folder()?.join(format!("{id}.jsonl")), id, messages: Vec::new() })
    }

    /// The session of this id, or another one that knows what it knows.
    fn resume(id: &str, is_fork: bool) -> Result<Option<Self>> {
        let Some(file) = Self::find(id)? else { return Ok(None) };
        let mut messages: Vec<Value> = Vec::new();
        for entry in fs::read_to_string(&file)?.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let message = &entry["message"];
            // A reply has a line for each of its blocks.
            match messages.last_mut().filter(|last| last["id"].is_string() && last["id"] == message["id"]) {
                Some(last) => blocks_of(last).append(blocks_of(&mut message.clone())),
                None => messages.push(message.clone()),
            }
        }
        let mut session = Self { id: id.to_owned(), file, messages };
        if is_fork {
            let known = std::mem::take(&mut session.messages);
            session = Self::begin()?;
            known.iter().try_for_each(|message| session.add(message))?;
        }
        let orphans: Vec<Value> = session.messages.last().filter(|last| last["role"] == "assistant").map_or_else(Vec::new, |last| {
            let uses = last["content"].as_array().into_iter().flatten().filter(|block| block["type"] == "tool_use");
            uses.map(|tool| json!({"type": "tool_result", "tool_use_id": tool["id"], "content": INTERRUPTED, "is_error": true})).collect()
        });
        if !orphans.is_empty() {
            session.add(&json!({"role": "user", "content": orphans}))?;
        }
        Ok(Some(session))
    }

    /// The file of a session, whatever its folder is called.
    fn find(id: &str) -> Result<Option<PathBuf>> {
        let Ok(folders) = fs::read_dir(PathBuf::from(variable("HOME")?).join(".claude/projects")) else {
            return Ok(None);
        };
        let mut files = folders.flatten().map(|folder| folder.path().join(format!("{id}.jsonl")));
        Ok(files.find(|file| file.is_file()))
    }

    fn add(&mut self, message: &Value) -> Result<()> {
        let mut message = message.clone();
        if message["role"] == "assistant" && message["id"].is_null() {
            message["id"] = json!(format!("msg_{}_{}", self.messages.len(), std::process::id()));
        }
        self.append(&message)?;
        self.messages.push(message);
        Ok(())
    }

    /// The last reply has grown to these blocks.
    fn extend_last(&mut self, blocks: &[Value]) -> Result<()> {
        let Some(last) = self.messages.last_mut() else { return Ok(()) };
        let before = blocks_of(last).len();
        *blocks_of(last) = blocks.to_vec();
        let grown = json!({"id": last["id"], "role": "assistant", "content": blocks[before..]});
        self.append(&grown)
    }

    fn append(&self, message: &Value) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file)?;
        let line = json!({"type": message["role"], "isSidechain": false, "sessionId": self.id, "message": message});
        Ok(file.write_all(format!("{line}\n").as_bytes())?)
    }
}

fn blocks_of(message: &mut Value) -> &mut Vec<Value> {
    if !message["content"].is_array() {
        message["content"] = json!([]);
    }
    let Value::Array(blocks) = &mut message["content"] else { unreachable!("made one above") };
    blocks
}

/// The MCP servers, each a process.
struct Servers {
    all: BTreeMap<String, Server>,
    tools: Vec<String>,
}

struct Server {
    _child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    last: u64,
}

impl Servers {
    fn start(config: &Value, allowed: &str) -> Result<Self> {
        let mut servers = Self { all: BTreeMap::new(), tools: Vec::new() };
        for (name, entry) in config["mcpServers"].as_object().into_iter().flatten() {
            let args = entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let mut child = Command::new(entry["command"].as_str().ok_or("no command")?)
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
                return Err("no pipes".into());
            };
            let mut server = Server { _child: child, stdin, stdout: BufReader::new(stdout), last: 0 };
            // A newer protocol is asked for first, as the real one does.
            let id = server.send("server/discover", &json!({}))?;
            server.receive(id)?;
            let id = server.send("initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "stand-in", "version": "0"}}))?;
            server.receive(id)?;
            let id = server.send("tools/list", &json!({}))?;
            let listed = server.receive(id)?;
            if !allowed.split(',').any(|pattern| pattern == format!("mcp__{name}__*")) {
                return Err(format!("the tools of {name} are not allowed").into());
            }
            let tools = listed["result"]["tools"].as_array().into_iter().flatten();
            servers.tools.extend(tools.filter_map(|tool| Some(format!("mcp__{name}__{}", tool["name"].as_str()?))));
            servers.all.insert(name.clone(), server);
        }
        Ok(servers)
    }

    fn of(&mut self, tool: &str) -> Result<(&mut Server, String)> {
        let (server, tool) = tool.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")).ok_or("no such tool")?;
        Ok((self.all.get_mut(server).ok_or("no such server")?, tool.to_owned()))
    }

    fn ask(&mut self, tool_use: &str, tool: &str, input: &Value) -> Result<u64> {
        let (server, name) = self.of(tool)?;
        server
            .send("tools/call", &json!({"name": name, "arguments": input, "_meta": {"claudecode/toolUseId": tool_use}}))
    }

    fn answer(&mut self, tool: &str, id: u64) -> Result<Value> {
        let mut answer = self.of(tool)?.0.receive(id)?;
        Ok(answer["result"].take())
    }
}

impl Server {
    fn send(&mut self, method: &str, params: &Value) -> Result<u64> {
        self.last += 1;
        writeln!(self.stdin, "{}", json!({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))?;
        self.stdin.flush()?;
        Ok(self.last)
    }

    fn receive(&mut self, id: u64) -> Result<Value> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err("the dispatcher is gone".into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == id {
                return Ok(message);
            }
        }
    }
}

/// Dies here, once, if the plan says so.
fn die(plan: &Value, point: &str) -> Result<()> {
    let Some(mark) =
        plan["die"]["mark"].as_str().filter(|mark| plan["die"]["at"] == point && !Path::new(mark).exists())
    else {
        return Ok(());
    };
    fs::write(mark, "")?;
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
    std::thread::sleep(std::time::Duration::from_mins(1));
    Ok(())
}

fn block(session: &Session, index: usize, start: &Value, delta: &Value) -> Result<()> {
    stream(session, &json!({"type": "content_block_start", "index": index, "content_block": start}))?;
    stream(session, &json!({"type": "content_block_delta", "index": index, "delta": delta}))?;
    stream(session, &json!({"type": "content_block_stop", "index": index}))
}

fn stream(session: &Session, event: &Value) -> Result<()> {
    say(&json!({"type": "stream_event", "event": event, "session_id": session.id, "parent_tool_use_id": null}))
}

fn say(event: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{event}")?;
    Ok(out.flush()?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a program of its own, told everything by its environment as the real one is"
)]
fn variable(name: &str) -> Result<String> {
    Ok(std::env::var(name).map_err(|_| format!("{name} is not set"))?)
}
