//! A tool server that misbehaves on request; the tests of this crate run it.
//!
//! Options: `--exit TEXT` writes TEXT to standard error and ends with code 3 · `--silent` never answers ·
//! `--outlive-input` goes on when its input closes · `--spawn FILE` / `--spawn-detached FILE` starts a process that lingers
//! (the latter in a session of its own) and writes its number to FILE · `--tools A,B` offers these names instead of its own,
//! one per page · `--stateless` speaks revision 2026-07-28 and no other.

#![expect(clippy::disallowed_methods, reason = "a tool server of somebody else's")]

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value, json};

type Fallible<T> = Result<T, Box<dyn Error>>;

const OWN_TOOLS: [&str; 9] =
    ["echo", "whoami", "slow", "die_before_reply", "die_after_reply", "broken_frame", "noise", "rpc_error", "huge"];

#[derive(Default)]
struct Options {
    exit: Option<String>,
    silent: bool,
    outlive_input: bool,
    spawn: Vec<(String, bool)>,
    linger: Option<(PathBuf, bool)>,
    tools: Option<Vec<String>>,
    stateless: bool,
}

/// The call that waits for the answer to a question.
static ASKING: Mutex<Option<Value>> = Mutex::new(None);

fn main() -> Fallible<ExitCode> {
    let options = options()?;
    if let Some((file, detached)) = &options.linger {
        if *detached {
            rustix::process::setsid()?;
        }
        return linger(file);
    }
    if let Some(text) = &options.exit {
        writeln!(io::stderr(), "{text}")?;
        return Ok(ExitCode::from(3));
    }
    for (file, detached) in &options.spawn {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg(if *detached { "--linger-detached" } else { "--linger" }).arg(file);
        child.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    }
    for line in io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line?)?;
        if options.silent {
            continue;
        }
        if let Some(code) = answer(&message, &options)? {
            return Ok(code);
        }
    }
    if options.outlive_input {
        loop {
            thread::park();
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn options() -> Fallible<Options> {
    let mut options = Options::default();
    let mut args = std::env::args().skip(1);
    while let Some(option) = args.next() {
        let mut value = || args.next().ok_or("a value is missing");
        match option.as_str() {
            "--exit" => options.exit = Some(value()?),
            "--stateless" => options.stateless = true,
            "--silent" => options.silent = true,
            "--outlive-input" => options.outlive_input = true,
            "--spawn" => options.spawn.push((value()?, false)),
            "--spawn-detached" => options.spawn.push((value()?, true)),
            "--linger" => options.linger = Some((value()?.into(), false)),
            "--linger-detached" => options.linger = Some((value()?.into(), true)),
            "--tools" => options.tools = Some(value()?.split(',').map(str::to_owned).collect()),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Writes the process number and stays for ever.
fn linger(file: &Path) -> Fallible<ExitCode> {
    let whole = file.with_extension("part");
    std::fs::write(&whole, std::process::id().to_string())?;
    std::fs::rename(whole, file)?;
    loop {
        thread::park();
    }
}

fn send(message: &Value) -> Fallible<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{message}")?;
    Ok(out.flush()?)
}

/// Answers a message; a code ends the server.
fn answer(message: &Value, options: &Options) -> Fallible<Option<ExitCode>> {
    let tools = options.tools.as_deref();
    let Some(id) = message.get("id") else { return Ok(None) };
    if id == "ask" {
        let asking = ASKING.lock().map_err(|_| "a lock is poisoned")?.take();
        let content = json!([{"type": "text", "text": message["result"].to_string()}]);
        send(&json!({"jsonrpc": "2.0", "id": asking, "result": {"content": content}}))?;
        return Ok(None);
    }
    let version = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
    if options.stateless && version != "2026-07-28" {
        send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32022, "message": "unsupported"}}))?;
        return Ok(None);
    }
    let reply = |result: Value| send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    match message["method"].as_str() {
        Some("server/discover") if options.stateless => reply(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        }))?,
        Some("initialize") => reply(json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "fake", "version": "1"},
        }))?,
        Some("tools/list") => reply(page(&message["params"], tools))?,
        Some("tools/call") => return call(id, &message["params"]),
        _ => send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}))?,
    }
    Ok(None)
}

/// One page of the tool list: all of our own tools, or one of those that the command line names.
fn page(params: &Value, tools: Option<&[String]>) -> Value {
    let tool = |name: &str| {
        json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"},
               "annotations": {"readOnlyHint": name == "echo"}})
    };
    let Some(tools) = tools else { return json!({"tools": OWN_TOOLS.map(tool)}) };
    let at = params["cursor"].as_str().and_then(|cursor| cursor.parse().ok()).unwrap_or(0_usize);
    let mut page = Map::new();
    page.insert("tools".to_owned(), tools.get(at).map_or_else(|| json!([]), |name| json!([tool(name)])));
    if at + 1 < tools.len() {
        page.insert("nextCursor".to_owned(), json!((at + 1).to_string()));
    }
    Value::Object(page)
}

fn call(id: &Value, params: &Value) -> Fallible<Option<ExitCode>> {
    let arguments = &params["arguments"];
    let text = |text: String| {
        send(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}))
    };
    match params["name"].as_str().unwrap_or_default() {
        "echo" => send(&json!({"jsonrpc": "2.0", "id": id, "result": {
            "content": [], "structuredContent": {"arguments": arguments, "meta": params["_meta"]}, "unheardOf": 1}}))?,
        "whoami" => {
            let stat = std::fs::read_to_string("/proc/self/stat")?;
            // Field 6 of the line; the program's name, which may hold spaces, ends with the last parenthesis.
            let session: Option<i32> =
                stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3)?.parse().ok());
            let variables: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            text(json!({"pid": std::process::id(), "session": session, "variables": variables}).to_string())?;
        }
        "slow" => {
            // Tells that it began, then waits to be released.
            std::fs::write(arguments["began"].as_str().unwrap_or_default(), "")?;
            while !Path::new(arguments["until"].as_str().unwrap_or_default()).exists() {
                thread::sleep(Duration::from_millis(2));
            }
            text("done".to_owned())?;
        }
        "beside" => {
            // Waits to be released while other calls are answered.
            let (id, until) = (id.clone(), arguments["until"].as_str().unwrap_or_default().to_owned());
            thread::spawn(move || {
                while !Path::new(&until).exists() {
                    thread::sleep(Duration::from_millis(2));
                }
                let content = json!([{"type": "text", "text": "done"}]);
                send(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}})).is_ok()
            });
        }
        "die_before_reply" => {
            writeln!(io::stderr(), "about to die")?;
            return Ok(Some(ExitCode::from(9)));
        }
        "die_after_reply" => {
            text("done".to_owned())?;
            return Ok(Some(ExitCode::from(9)));
        }
        "broken_frame" => {
            let mut out = io::stdout().lock();
            writeln!(out, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[")?;
            out.flush()?;
        }
        "close_output" => {
            // Lives on, and reads what comes.
            let nowhere = std::fs::File::options().write(true).open("/dev/null")?;
            rustix::stdio::dup2_stdout(&nowhere)?;
        }
        "torn_line" => {
            // Not even a call's number is in it.
            let mut out = io::stdout().lock();
            writeln!(out, "{{not json")?;
            out.flush()?;
        }
        "noise" => {
            let mut out = io::stdout().lock();
            writeln!(out, "connecting to the database …")?;
            drop(out);
            send(
                &json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "still here"}}),
            )?;
            text("done".to_owned())?;
        }
        "ask" => {
            *ASKING.lock().map_err(|_| "a lock is poisoned")? = Some(id.clone());
            let schema = json!({"type": "object", "properties": {"size": {"type": "integer", "default": 3}}});
            let params = json!({"message": "Which size?", "requestedSchema": schema});
            send(&json!({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": params}))?;
        }
        "tell" => {
            let token = &params["_meta"]["progressToken"];
            for progress in [1, 2] {
                let params = json!({"progressToken": token, "progress": progress, "total": 2, "message": "on it"});
                send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))?;
            }
            send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))?;
            text("done".to_owned())?;
        }
        "sign_in_first" => {
            let visited = arguments["visited"].as_str().is_some_and(|file| Path::new(file).exists());
            if visited {
                text(format!("signed in, {}", params.get("inputResponses").is_none()))?;
            } else {
                let asked =
                    json!({"elicitationId": "e1", "mode": "url", "url": "https://a.example/in", "message": "Sign in."});
                let error = json!({"code": -32042, "message": "sign in first", "data": {"elicitations": [asked]}});
                send(&json!({"jsonrpc": "2.0", "id": id, "error": error}))?;
            }
        }
        "rpc_error" => {
            send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": arguments["code"], "message": "as asked"}}))?;
        }
        "answer_twice" => {
            // What it is told to say, in turn; behind its progress, if it is told to say that, too.
            if arguments["progress"] == true {
                let params = json!({"progressToken": params["_meta"]["progressToken"], "progress": 1});
                send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))?;
            }
            for said in arguments["says"].as_array().into_iter().flatten() {
                let mut message = said.clone();
                (message["jsonrpc"], message["id"]) = (json!("2.0"), id.clone());
                send(&message)?;
            }
        }
        "huge" => text("x".repeat(9 * 1024 * 1024))?,
        other => send(
            &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": format!("no tool {other}")}}),
        )?,
    }
    Ok(None)
}
