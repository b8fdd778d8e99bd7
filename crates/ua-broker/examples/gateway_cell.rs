//! The processes of a gateway, for tests: bridge, broker, shim, and a tool server that writes each effect into a file.

#![expect(clippy::unwrap_used, reason = "a process of a test: whatever goes wrong in it fails the test")]
#![expect(clippy::disallowed_methods, reason = "its own environment, as a tool server has it")]

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use ua_broker::{Broker, BrokerConfig, BrokerLock, serve};
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{Clock, Redactor, Sleep, Timestamp};
use ua_mcp::ShimCommand;
use ua_store_sqlite::{SqliteConfig, SqliteStore};

const POLL: Duration = Duration::from_millis(5);

/// What is known about tools: one makes one effect under one key, of one it is said what its effect is, whatever the words, and about one a
/// person is asked first, one only looks, though it asks for something, two are not waited for long, and one works on this machine alone.
const POLICY: &str = r#"
[[rule]]
id = "keyed"
name = "charge_card"
side_effect_class = "external"
effect_kind = "payment.charge"
key_channel = "meta"
on_unknown = "redo_keyed"

[[rule]]
id = "mail"
name = "send_email"
scope = [{ addresses = "to" }, { value = "subject" }]

[[rule]]
id = "asked"
name = "wire_money"
approval = "ask"

[[rule]]
id = "rung"
name = "press_bell"
side_effect_class = "external"
approval = "ask"

[[rule]]
id = "looks"
name = "look_up"
side_effect_class = "read_only"

[[rule]]
id = "quick"
name = "peek_page"
side_effect_class = "read_only"
timeout = "300ms"

[[rule]]
id = "brief"
name = "press_button"
side_effect_class = "external"
timeout = "300ms"

[[rule]]
id = "shell"
name = "run_command"
side_effect_class = "local"
"#;

fn main() -> ExitCode {
    ua_mcp::unblock_signals();
    let mut args = std::env::args_os().skip(1);
    let mode = args.next().unwrap_or_default();
    let rest: Vec<OsString> = args.collect();
    let text = |place: usize| rest.get(place).map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    match mode.to_str() {
        Some("bridge") => ua_bridge::run(rest),
        Some("client") => client(&rest),
        Some("shim") => ExitCode::from(u8::try_from(ua_mcp::run_shim(rest)).unwrap_or(1)),
        Some("server") => server(Path::new(&text(0))),
        Some("http") => http(Path::new(&text(0))),
        Some("start") => start(&rest),
        Some("serve") => broker(Path::new(&text(0)), text(1).parse().unwrap_or(0)),
        _ => ExitCode::from(64),
    }
}

/// A client with a bridge below it: what it is told it says there, and the other way round.
fn client(rest: &[OsString]) -> ExitCode {
    let mut bridge = Command::new(std::env::current_exe().unwrap());
    let mut bridge = bridge.arg("bridge").args(rest).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (bridge.stdin.take().unwrap(), bridge.stdout.take().unwrap());
    thread::spawn(move || io::copy(&mut io::stdin(), &mut input));
    let copied = io::copy(&mut output, &mut io::stdout());
    let _ended = bridge.wait();
    if copied.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts the broker beside the caller and waits until somebody listens. `starts` has a line for each, itself and who started it; with `hold_start`
/// it waits before that, and with `no_start` it says that there is no room.
fn start(rest: &[OsString]) -> ExitCode {
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let root = PathBuf::from(&rest[0]);
    append(&root.join("stub/starts"), &format!("{} {}", std::process::id(), std::os::unix::process::parent_id()));
    while root.join("stub/hold_start").exists() {
        thread::sleep(POLL);
    }
    if root.join("stub/no_start").exists() {
        eprintln!("error: there is no room");
        return ExitCode::from(74);
    }
    let log = OpenOptions::new().create(true).append(true).open(root.join("broker.log"));
    let Ok(log) = log else { return ExitCode::FAILURE };
    // A file that must not grow is an error for it then, as on a full disk, and not its end.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(program)
        .arg("serve")
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .process_group(0)
        .spawn();
    let Ok(mut child) = child else { return ExitCode::FAILURE };
    while std::os::unix::net::UnixStream::connect(root.join("gateway.sock")).is_err() {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return ExitCode::FAILURE;
        }
        thread::sleep(POLL);
    }
    ExitCode::SUCCESS
}

/// The real clock, ahead by as many seconds of uptime as a file says, if it is there.
#[derive(Debug)]
struct Later {
    clock: Arc<dyn Clock>,
    file: PathBuf,
}

impl Clock for Later {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn uptime(&self) -> Duration {
        let ahead = fs::read_to_string(&self.file).ok().and_then(|said| said.parse().ok());
        self.clock.uptime() + Duration::from_secs(ahead.unwrap_or(0))
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.clock.sleep(span)
    }

    fn passes_by_itself(&self) -> bool {
        self.clock.passes_by_itself()
    }
}

/// The broker; `brokers` has a line for each that was started, also one that finds another.
fn broker(root: &Path, hold_millis: u64) -> ExitCode {
    append(&root.join("stub/brokers"), &std::process::id().to_string());
    let Ok(Some(lock)) = BrokerLock::take(&root.join("locks")) else { return ExitCode::FAILURE };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = SqliteStore::open(SqliteConfig::new(root.join("runtime_state.db"))).unwrap();
    let rules = vec![PolicyRules::parse(POLICY, "policy.toml").unwrap()];
    let classifier = Classifier::new(rules, &Lists::default(), std::collections::HashSet::new()).unwrap();
    let config = BrokerConfig {
        socket: root.join("gateway.sock"),
        locks: root.join("locks"),
        logs: root.join("logs"),
        late_replies: root.join("late_replies.log"),
        account_key: root.join("account.key"),
        shim: ShimCommand { program: std::env::current_exe().unwrap(), args: vec!["shim".into()] },
        person: "ua".to_owned(),
        hold_wait: Duration::from_millis(hold_millis),
        rules: ua_broker::GatewayRules::default(),
        http: None,
        entries: ua_broker::Entries::default(),
        remote_horizon: Duration::ZERO,
        idle_exit: Duration::from_mins(1),
        logins: None,
        made_from: std::collections::BTreeMap::new(),
    };
    let mut config = config;
    let mut env = ua_core::system::env();
    env.clock = Arc::new(Later { clock: Arc::clone(&env.clock), file: root.join("later") });
    if root.join("over_http").exists() {
        let tokens = ua_broker::Tokens::at(root.join("tokens.json"));
        let sessions = ua_broker::KeptSessions::at(root.join("http_sessions"));
        // Any, unless the file names one.
        let named = std::fs::read_to_string(root.join("over_http")).unwrap();
        let address = if named.is_empty() { "127.0.0.1:0" } else { named.as_str() }.parse().unwrap();
        let span = |name: &str, otherwise: Duration| {
            let said = fs::read_to_string(root.join(name)).ok().map(|millis| millis.parse().unwrap());
            said.map_or(otherwise, Duration::from_millis)
        };
        let away_after = span("away_after", ua_broker::HttpSettings::AWAY_AFTER);
        let again_within = span("again_within", ua_broker::HttpSettings::AGAIN_WITHIN);
        config.http = Some(ua_broker::HttpSettings { address, tokens, sessions, away_after, again_within });
        let command = [
            std::env::current_exe().unwrap().display().to_string(),
            "server".into(),
            root.join("stub").display().to_string(),
        ];
        let entry =
            ua_broker::EntrySpec { command: command.into(), cwd: root.display().to_string(), ..Default::default() };
        config.entries.insert("stub".to_owned(), entry);
    }
    if let Ok(calls) = fs::read_to_string(root.join("budget")) {
        config.rules.budgets.push(ua_broker::Budget {
            client: None,
            server: Some("stub".to_owned()),
            effect: Some("email.send".to_owned()),
            per: ua_broker::BudgetSpan::Day,
            calls: calls.trim().parse().unwrap(),
        });
    }
    let served = runtime.block_on(async {
        let broker = Broker::new(config, Arc::new(store), Arc::new(classifier), Redactor::default(), env);
        fs::write(root.join("broker.pid"), std::process::id().to_string()).unwrap();
        serve(broker, lock).await
    });
    match served {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            let _unread = writeln!(std::io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

/// A tool server. Files in its folder say how it behaves: `hold` makes it wait behind an effect, and before it asks for something, until the file is gone, `die` ends it there,
/// `die_before` in front of it, `end` ends it behind the next answer, `torn` ends it in the answer, of whose line it has how many bytes are not written, `mute` leaves the call unanswered until there is a file `speak`, `raw` has the line that is the answer. `effects` has a line for each effect, `servers` one for each process, `said` each message that it was sent.
fn server(folder: &Path) -> ExitCode {
    append(&folder.join("servers"), &std::process::id().to_string());
    let mut out = std::io::stdout();
    let mut messages = std::io::stdin().lines().filter_map(|line| {
        let message = line.and_then(|line| serde_json::from_str::<Value>(&line).map_err(Into::into)).ok()?;
        append(&folder.join("said"), &message.to_string());
        Some(message)
    });
    while let Some(message) = messages.next() {
        let id = &message["id"];
        if id.is_null() || message.get("method").is_none() {
            continue;
        }
        // As it is asked for when the call comes: whoever sees its effect may change that.
        let is_call = message["method"] == "tools/call" && message["params"]["name"] != "read_page";
        let is_mute = is_call && folder.join("mute").exists();
        let Some(answer) = answer(folder, &message, &mut out, &mut messages) else { return ExitCode::from(9) };
        if is_mute {
            let folder = folder.to_path_buf();
            thread::spawn(move || {
                while !folder.join("speak").exists() {
                    thread::sleep(POLL);
                }
                writeln!(io::stdout(), "{answer}")
            });
            continue;
        }
        let answer = written(folder, &message, &answer);
        if message["method"] == "tools/call"
            && let Ok(count) = fs::read_to_string(folder.join("torn"))
        {
            let _gone = fs::remove_file(folder.join("torn"));
            let line = format!("{answer}\n");
            let begun = &line.as_bytes()[..line.len().saturating_sub(count.parse().unwrap())];
            let written = out.write_all(begun).and_then(|()| out.flush());
            return if written.is_ok() { ExitCode::from(9) } else { ExitCode::FAILURE };
        }
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
        if message["method"] == "tools/call" && fs::remove_file(folder.join("end")).is_ok() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// An answer as it is written: as the folder has it, for a call where it does.
fn written(folder: &Path, message: &Value, answer: &Value) -> String {
    let raw = fs::read_to_string(folder.join("raw")).ok().filter(|_| message["method"] == "tools/call");
    raw.map_or_else(|| answer.to_string(), |raw| raw.replace("ID", &message["id"].to_string()))
}

/// The answer to a request; `None` when there is to be none. `newer` in the folder makes it a tool server of the newer era alone.
fn answer(
    folder: &Path,
    message: &Value,
    out: &mut impl io::Write,
    more: &mut dyn Iterator<Item = Value>,
) -> Option<Value> {
    let (id, params) = (&message["id"], &message["params"]);
    while message["method"] == "tools/call" && asks(params) && folder.join("hold").exists() {
        thread::sleep(POLL);
    }
    if folder.join("newer").exists() {
        return Some(newer(folder, message, out));
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "tools/call" if asks(params) => {
            let said = ask_size(out, more)?;
            was_told(folder, params);
            Ok(said)
        }
        "tools/call" if params["name"] == "tell_secret" => {
            let secret = std::env::var("STUB_SECRET").unwrap_or_default();
            append(&folder.join("told"), &params["arguments"].to_string());
            eprintln!("it is {secret}");
            let text = json!([{"type": "text", "text": format!("it is {secret}")}]);
            match params["arguments"]["to"].as_str() {
                Some("error") => Ok(json!({"content": text, "isError": true})),
                Some("rpc") => Err(format!("it is {secret}")),
                Some("die") => return None,
                _ => Ok(json!({"content": text, "structuredContent": {"it": [secret]}})),
            }
        }
        "initialize" => {
            let mut capabilities = json!({"tools": {"listChanged": true}, "resources": {}});
            if folder.join("tasks").exists() {
                capabilities["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
            }
            Ok(json!({
                "protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                "serverInfo": {"name": "stub", "version": "7", "title": "A stub"}, "instructions": "Be brief.",
            }))
        }
        "tools/call" if params.get("task").is_some() => {
            let result = call(folder, params, out)?;
            Ok(json!({"task": task_of(folder, &result, "pollInterval")}))
        }
        "tools/call" if folder.join("tasks").exists() => Err("this tool is called as a task".to_owned()),
        "tasks/get" | "tasks/cancel" => task_state(folder, params, "pollInterval").ok_or("no such task".to_owned()),
        "tasks/result" => {
            let mut result = kept_task(folder, params)?;
            match fs::read_to_string(folder.join("task_state")).unwrap_or_default().as_str() {
                "failed" => Err("it went wrong".to_owned()),
                "input_required" => {
                    result = ask_size(out, more)?;
                    fs::write(folder.join("task_state"), "completed").ok()?;
                    Ok(result)
                }
                state => {
                    if result.is_object() {
                        result["isError"] = json!(state == "refused");
                        result["_meta"] = json!({"io.modelcontextprotocol/related-task": params});
                    }
                    Ok(result)
                }
            }
        }
        "tools/list" => Ok(tools(folder)),
        // What an extension may have, and the protocol knows nothing of.
        "example/act" => {
            append(&folder.join("effects"), "acted");
            while folder.join("hold").exists() {
                thread::sleep(POLL);
            }
            Ok(json!({"acted": true}))
        }
        "resources/list" => Ok(json!({"resources": [{"uri": "stub://a", "name": "a", "unknown": {"kept": true}}]})),
        "tools/call" if params["name"] == "append_line" && params["arguments"]["text"] == "tell of changes" => {
            let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            writeln!(out, "{told}").and_then(|()| out.flush()).ok()?;
            Ok(call(folder, params, out)?)
        }
        "tools/call" => Ok(call(folder, params, out)?),
        other => Err(format!("no method {other}")),
    };
    Some(match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(why) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": why, "data": {"x": 1}}}),
    })
}

/// The same tool server where each request stands for itself.
fn newer(folder: &Path, message: &Value, out: &mut impl io::Write) -> Value {
    let (id, params) = (&message["id"], &message["params"]);
    let error = |code: i64| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}});
    if params["_meta"]["io.modelcontextprotocol/protocolVersion"] != "2026-07-28" {
        return error(-32022);
    }
    let mut result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => {
            let extensions = if folder.join("tasks").exists() { json!({TASKS: {}}) } else { json!({}) };
            json!({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": true}, "extensions": extensions},
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "stub", "version": "8"}}})
        }
        "tools/list" => tools(folder),
        "tools/call" if asks(params) => match &params["inputResponses"]["size"] {
            size if params["requestState"] == "sealed" && size["action"].is_string() => {
                let text = size["content"]["size"].as_str().unwrap_or("none");
                was_told(folder, params);
                json!({"content": [{"type": "text", "text": text}]})
            }
            _ => {
                json!({"resultType": "input_required", "requestState": "sealed", "inputRequests": {"size": size_request()}})
            }
        },
        "tools/call" if folder.join("tasks").exists() && follows_tasks(params) => {
            let result = call(folder, params, out).unwrap_or_default();
            let mut handle = task_of(folder, &result, "pollIntervalMs");
            handle["resultType"] = json!("task");
            handle
        }
        "tools/call" => call(folder, params, out).unwrap_or_default(),
        // Whoever does not say that it follows tasks is told nothing of them.
        "tasks/get" if follows_tasks(params) => match task_state(folder, params, "pollIntervalMs") {
            Some(mut state) => {
                let mut result = kept_task(folder, params).unwrap_or_default();
                match state["status"].as_str().unwrap_or_default() {
                    "completed" => {
                        if result.is_object() {
                            result["isError"] = json!(state["said"] == "refused");
                        }
                        state["result"] = result;
                    }
                    "failed" => state["error"] = json!({"code": -32602, "message": "it went wrong", "data": {"x": 1}}),
                    "input_required" => state["inputRequests"] = json!({"size": size_request()}),
                    _ => {}
                }
                state
            }
            None => return error(-32602),
        },
        // An answer that it does not take, once.
        "tasks/update" if fs::remove_file(folder.join("refuse_update")).is_ok() => return error(-32602),
        "tasks/update" if follows_tasks(params) => {
            append(&folder.join("updated"), &params["inputResponses"].to_string());
            let size = params["inputResponses"]["size"]["content"]["size"].as_str().unwrap_or("none");
            keep_task(folder, params["taskId"].as_str().unwrap_or_default(), &said(size));
            let _lost = fs::write(folder.join("task_state"), "completed");
            json!({})
        }
        "tasks/cancel" if follows_tasks(params) => json!({}),
        _ => return error(-32601),
    };
    if result.get("resultType").is_none() {
        result["resultType"] = json!("complete");
    }
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// What is said by a client that follows tasks.
const TASKS: &str = "io.modelcontextprotocol/tasks";

fn follows_tasks(params: &Value) -> bool {
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"].get(TASKS).is_some()
}

/// A result of one text.
fn said(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// With `tasks` in the folder calls are answered with a task each, which outlives the process: `task_state` says how all of them stand, and with
/// `gone` in it none is known; with `other_task` another one is told of. The effect is made before.
fn task_of(folder: &Path, result: &Value, poll: &str) -> Value {
    let count = fs::read_dir(folder).into_iter().flatten().count();
    let id = format!("t{count}_{}", std::process::id());
    keep_task(folder, &id, result);
    json!({"taskId": id, "status": "working", "createdAt": "2026-07-28T00:00:00Z", poll: 100})
}

fn keep_task(folder: &Path, id: &str, result: &Value) {
    let _lost = fs::write(folder.join(format!("task_{id}")), result.to_string());
}

fn kept_task(folder: &Path, params: &Value) -> Option<Value> {
    let kept = fs::read_to_string(folder.join(format!("task_{}", params["taskId"].as_str()?))).ok()?;
    serde_json::from_str(&kept).ok()
}

fn task_state(folder: &Path, params: &Value, poll: &str) -> Option<Value> {
    kept_task(folder, params)?;
    let said = fs::read_to_string(folder.join("task_state")).ok()?;
    let status = if said == "refused" { "completed" } else { said.as_str() };
    let id = if folder.join("other_task").exists() { json!("other") } else { params["taskId"].clone() };
    (status != "gone").then(|| json!({"taskId": id, "status": status, "said": said, poll: 100}))
}

/// Whether a call is of a tool that asks in the middle of it: a read, or, when it is told so, something that has an effect.
fn asks(params: &Value) -> bool {
    params["name"] == "ask_size" || params["name"] == "look_up" || params["arguments"]["to"] == "ask"
}

/// A tool that asked has what it asked for, and makes its effect, if it has one.
fn was_told(folder: &Path, params: &Value) {
    if params["name"] == "look_up" {
        append(&folder.join("reads"), "read");
    } else if params["name"] != "ask_size" {
        append(&folder.join("effects"), &format!("{} {}", params["name"], params["arguments"]));
    }
}

fn size_request() -> Value {
    json!({"method": "elicitation/create", "params": {"message": "Which size?", "requestedSchema": {"type": "object",
        "properties": {"size": {"type": "string"}}, "required": ["size"]}}})
}

/// Asks on the connection, and says what was answered.
fn ask_size(out: &mut impl io::Write, more: &mut dyn Iterator<Item = Value>) -> Option<Value> {
    let mut request = size_request();
    request["jsonrpc"] = json!("2.0");
    request["id"] = json!("q1");
    writeln!(out, "{request}").and_then(|()| out.flush()).ok()?;
    let answer = std::iter::from_fn(|| more.next()).find(|message| message["id"] == "q1")?;
    let text = answer["result"]["content"]["size"]
        .as_str()
        .map_or_else(|| answer["result"]["action"].to_string(), str::to_owned);
    Some(json!({"content": [{"type": "text", "text": text}]}))
}

/// The same tool server over Streamable HTTP, with sessions; `address` says where. It lets in who knows the key. Files in its folder say more:
/// `forget` makes it forget its sessions, `cut` breaks the next stream in front of its answer, `tells` has it tell something by itself.
fn http(folder: &Path) -> ExitCode {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(folder.join("address"), format!("{}\n", listener.local_addr().unwrap())).unwrap();
    let sessions = Arc::new(Mutex::new(Sessions::default()));
    for stream in listener.incoming().flatten() {
        let (folder, sessions) = (folder.to_path_buf(), Arc::clone(&sessions));
        thread::spawn(move || exchange(&folder, &sessions, stream));
    }
    ExitCode::SUCCESS
}

#[derive(Default)]
struct Sessions {
    begun: usize,
    known: Vec<String>,
    /// The answer of a stream that was cut.
    kept: Option<Value>,
}

/// One request over HTTP.
fn exchange(folder: &Path, sessions: &Mutex<Sessions>, stream: TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    let mut first = String::new();
    lines.read_line(&mut first)?;
    let mut headers = std::collections::HashMap::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let header = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
    let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
    lines.read_exact(&mut body)?;
    let status = |out: &mut TcpStream, status: &str| {
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    };
    if header("x-key") != "<hush>" {
        return status(&mut out, "401 Unauthorized");
    }
    if fs::remove_file(folder.join("forget")).is_ok() {
        sessions.lock().unwrap().known.clear();
    }
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_greeting = message["method"] == "initialize";
    let session = header("mcp-session-id").to_owned();
    let is_known = sessions.lock().unwrap().known.contains(&session);
    if !is_greeting && (!is_known || header("mcp-protocol-version") != "2025-11-25") {
        return status(&mut out, if is_known { "400 Bad Request" } else { "404 Not Found" });
    }
    let stream = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    if first.starts_with("DELETE") {
        append(&folder.join("over"), &session);
        return status(&mut out, "204 No Content");
    }
    if first.starts_with("GET") {
        if header("last-event-id") == "e1" {
            let kept = sessions.lock().unwrap().kept.take();
            return write!(out, "{stream}id: e2\ndata: {}\n\n", kept.unwrap_or_default());
        }
        if !folder.join("tells").exists() {
            return status(&mut out, "405 Method Not Allowed");
        }
        let told = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "by itself"}});
        write!(out, "{stream}data: {told}\n\n")?;
        while folder.join("tells").exists() {
            thread::sleep(POLL);
        }
        return Ok(());
    }
    append(&folder.join("said"), &message.to_string());
    if message["id"].is_null() || message.get("method").is_none() {
        return status(&mut out, "202 Accepted");
    }
    let mut aside = Vec::new();
    // The connection ends without a word.
    let Some(answer) = answer(folder, &message, &mut aside, &mut std::iter::empty()) else { return Ok(()) };
    if message["method"] != "tools/call" {
        let mut session = String::new();
        if is_greeting {
            let mut sessions = sessions.lock().unwrap();
            sessions.begun += 1;
            session = format!("Mcp-Session-Id: s{}\r\n", sessions.begun);
            let name = format!("s{}", sessions.begun);
            sessions.known.push(name);
        }
        let answer = answer.to_string();
        let length = answer.len();
        return write!(
            out,
            "HTTP/1.1 200 OK\r\n{session}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
        );
    }
    // Whoever says the last two may not be who did it.
    for (name, line) in [
        ("fails", "500 Internal Server Error"),
        ("moved", "307 Temporary Redirect"),
        ("denied", "404 Not Found"),
        ("turned_away", "429 Too Many Requests"),
    ] {
        if fs::remove_file(folder.join(name)).is_ok() {
            let body = if name == "fails" { "{}" } else { "" };
            let length = body.len();
            return write!(out, "HTTP/1.1 {line}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        }
    }
    write!(out, "{stream}")?;
    for line in aside.lines() {
        write!(out, "data: {}\n\n", line?)?;
    }
    if fs::remove_file(folder.join("cut")).is_ok() {
        sessions.lock().unwrap().kept = Some(answer);
        return write!(out, "id: e1\nretry: 1\ndata:\n\n");
    }
    write!(out, "data: {}\n\n", written(folder, &message, &answer))
}

/// With `changed` in the folder `read_page` is another tool: it writes, and says so; and `charge_card` and `wire_money` take more. With
/// `read_changed` it is `read_page` alone. With `gone` there is no `wire_money`.
fn tools(folder: &Path) -> Value {
    let tool = |name: &str, properties: Value, more: Value| {
        let mut tool = json!({"name": name, "title": format!("Tool {name}"), "description": "A tool.",
            "inputSchema": {"type": "object", "properties": properties}});
        tool.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        tool
    };
    let text = json!({"type": "string"});
    let is_changed = folder.join("changed").exists();
    let reads = if is_changed || folder.join("read_changed").exists() {
        json!({"description": "Publishes a page.", "annotations": {"readOnlyHint": false}})
    } else {
        json!({"annotations": {"readOnlyHint": true}, "outputSchema": {"type": "object"}})
    };
    let mut charges = json!({"amount": {"type": "number"}});
    if is_changed {
        charges["account"] = text.clone();
    }
    let mut tools = json!([
        tool(
            "send_email",
            json!({"to": text, "subject": text, "body": text, "idempotency_key": text}),
            json!({"x-unknown": [1]})
        ),
        tool("append_line", json!({"text": text}), json!({})),
        tool("charge_card", charges.clone(), json!({})),
        tool("wire_money", charges, json!({})),
        tool("tell_secret", json!({"to": text}), json!({})),
        tool("ask_size", json!({}), json!({"annotations": {"readOnlyHint": true}})),
        tool("look_up", json!({}), json!({})),
        tool("read_page", json!({"page": text}), reads),
        tool("run_command", json!({"text": text}), json!({})),
        tool("peek_page", json!({}), json!({})),
        tool("press_button", json!({"text": text}), json!({})),
        tool("press_bell", json!({"text": text}), json!({})),
    ]);
    if folder.join("tasks").exists() && !folder.join("newer").exists() {
        for tool in tools.as_array_mut().unwrap() {
            tool["execution"] = json!({"taskSupport": "required"});
        }
    }
    if folder.join("gone").exists() {
        tools.as_array_mut().unwrap().retain(|tool| tool["name"] != "wire_money");
    }
    json!({"tools": tools})
}

/// Makes an effect, or has made it under this key; `None` when the process is to end.
fn call(folder: &Path, params: &Value, out: &mut impl std::io::Write) -> Option<Value> {
    let name = params["name"].as_str().unwrap_or_default();
    if name == "peek_page" {
        return Some(said("peeked"));
    }
    if name == "read_page" {
        append(&folder.join("reads"), "read");
        let content = json!({"page": params["arguments"]["page"]});
        return Some(json!({"content": [{"type": "text", "text": content.to_string()}], "structuredContent": content}));
    }
    if fs::remove_file(folder.join("die_before")).is_ok() {
        return None;
    }
    let key = params["_meta"]["dev.universal-agent/idempotency-key"].as_str().unwrap_or_default();
    let effects = fs::read_to_string(folder.join("effects")).unwrap_or_default();
    let line = format!("{name} {} {key}", params["arguments"]);
    if name != "charge_card" || !effects.lines().any(|known| known == line) {
        append(&folder.join("effects"), &line);
    }
    if !params["_meta"]["progressToken"].is_null() {
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": params["_meta"]["progressToken"], "progress": 1, "message": "half"}});
        writeln!(out, "{progress}").and_then(|()| out.flush()).ok()?;
    }
    let is_behind = params["arguments"]["text"] == "behind";
    if fs::remove_file(folder.join("die")).is_ok() || is_behind && fs::remove_file(folder.join("die_behind")).is_ok() {
        return None;
    }
    while folder.join("hold").exists() {
        thread::sleep(POLL);
    }
    let count = fs::read_to_string(folder.join("effects")).unwrap_or_default().lines().count();
    Some(json!({"content": [{"type": "text", "text": format!("done, {count} so far")}], "isError": false}))
}

fn append(path: &Path, line: &str) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let _lost = file.and_then(|mut file| writeln!(file, "{line}").and_then(|()| file.sync_data()));
}
