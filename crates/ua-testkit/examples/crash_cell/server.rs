//! The tool server of one life: a process of its own, behind a lock that is free only when it is gone.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, kill_process};
use serde_json::{Value, json};

use crate::options::{Effect, Job, Options, Outcome, Tool};

/// How long a server that lost its runner goes on with what it was told. A fence ends it at once.
const ORPHAN_TAKES: Duration = Duration::from_millis(1_500);
/// How long whoever asks a task that is at work is kept waiting for that answer.
const BETWEEN_POLLS: Duration = Duration::from_millis(5);

/// Serves calls from standard input until it ends.
pub(crate) fn serve(options: &Options) -> Outcome<()> {
    let lock = options.need("lock")?;
    let mut held = OpenOptions::new().create(true).truncate(false).write(true).open(lock)?;
    held.lock()?;
    held.write_all(std::process::id().to_string().as_bytes())?;
    let job = options.job()?;
    let mut output = std::io::stdout().lock();
    writeln!(output, "ready")?;
    output.flush()?;
    // What this process has asked for, and forgets when it ends.
    let mut asked = false;
    for line in std::io::stdin().lock().lines() {
        let mut request: Value = serde_json::from_str(&line?)?;
        let mut tool = named(&job, request["tool"].as_str().unwrap_or_default())?;
        if tool.effect == Effect::Batch {
            let [action] = request["arguments"]["calls"].as_array().map(Vec::as_slice).unwrap_or_default() else {
                return Err("a batch of other than one action was sent".into());
            };
            let action = action.clone();
            tool = named(&job, action["tool"].as_str().unwrap_or_default())?;
            request["arguments"] = action["input"].clone();
        }
        let is_subject = tool.name == job.subject;
        if is_subject && request["poll"].is_null() && request["answers"].is_null() {
            die_or_kill(options, "received")?;
        }
        let reply = match tool.effect {
            Effect::Asks | Effect::AsksLive => asking(options, tool, &request, &mut asked)?,
            Effect::Task => in_a_task(options, tool, &request)?,
            Effect::Read
            | Effect::Listing
            | Effect::Replace
            | Effect::Keyed
            | Effect::Opaque
            | Effect::Batch
            | Effect::Expiring => act(options, tool, &request)?,
        };
        // A poll of a task has moments of its own, and what only asked has not acted.
        if is_subject && request["poll"].is_null() && (tool.effect == Effect::Task || !is_unfinished(&reply)) {
            die_or_kill(options, "acted")?;
        }
        writeln!(output, "{reply}")?;
        output.flush()?;
    }
    drop(held);
    Ok(())
}

fn named<'j>(job: &'j Job, name: &str) -> Outcome<&'j Tool> {
    job.tools.iter().find(|tool| tool.name == name).ok_or_else(|| format!("no tool {name}").into())
}

/// Whether the tool says that it is not done.
fn is_unfinished(reply: &str) -> bool {
    serde_json::from_str::<Value>(reply).is_ok_and(|reply| !reply["continues"].is_null())
}

/// Asks for a size, and does the call when it is told one.
fn asking(options: &Options, tool: &Tool, request: &Value, asked: &mut bool) -> Outcome<String> {
    let is_live = tool.effect == Effect::AsksLive;
    if request["answers"].is_null() {
        *asked = true;
        let params = json!({"message": "Which size?", "requestedSchema": {
            "type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}});
        let ask = json!({"size": {"method": "elicitation/create", "params": params}});
        let input = json!({"requests": ask, "state": request["arguments"].to_string(), "round": 1, "is_live": is_live});
        return Ok(json!({"continues": {"input": input}}).to_string());
    }
    die_or_kill(options, "answered")?;
    if is_live && !*asked {
        return Err("an answer to what this process never asked".into());
    }
    let state = request["arguments"].to_string();
    if request["state"].as_str() != Some(state.as_str()) || request["answers"]["size"]["content"]["size"] != 3 {
        return Err(format!("this is not the answer that a person gave: {request}").into());
    }
    act(options, tool, request)
}

/// Begins a task outside, or asks how one is getting on.
fn in_a_task(options: &Options, tool: &Tool, request: &Value) -> Outcome<String> {
    let Some(id) = request["poll"].as_str() else {
        let begun: Value = serde_json::from_str(&act(options, tool, request)?)?;
        return Ok(json!({"continues": {"task": begun["task"]}}).to_string());
    };
    let asked = json!({"log": options.need("log")?, "effect": "poll", "key": id});
    let reply = ask_world(options, &asked)?;
    if serde_json::from_str::<Value>(&reply)?["working"] == true {
        die_or_kill(options, "working")?;
        std::thread::sleep(BETWEEN_POLLS);
        return Ok(json!({"continues": {"task": id}}).to_string());
    }
    die_or_kill(options, "ended")?;
    Ok(reply)
}

/// Does the call: files are this server's own business, everything else is the observer's.
fn act(options: &Options, tool: &Tool, request: &Value) -> Outcome<String> {
    if tool.effect == Effect::Replace {
        let path = Path::new(options.need("folder")?).join(request["arguments"]["path"].as_str().unwrap_or("file"));
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        std::fs::write(&beside, request["arguments"]["content"].as_str().unwrap_or_default())?;
        std::fs::rename(&beside, &path)?;
    }
    let effect = match tool.effect {
        Effect::Read => "read",
        Effect::Listing => "listing",
        Effect::Replace => "replace",
        Effect::Keyed => "keyed",
        Effect::Expiring if options.get("clock-ahead").is_none() => "keyed",
        Effect::Task => "task",
        Effect::Opaque | Effect::Batch | Effect::Expiring | Effect::Asks | Effect::AsksLive => "opaque",
    };
    let key = key_of(tool, request);
    if matches!(tool.effect, Effect::Keyed | Effect::Expiring) && key.is_none() {
        return Err(format!("{} was called without its key", tool.name).into());
    }
    let asked = json!({
        "log": options.need("log")?, "tool": tool.name, "effect": effect, "key": key.unwrap_or_default(),
        "arguments": request["arguments"],
    });
    ask_world(options, &asked)
}

/// One request to the outside world.
fn ask_world(options: &Options, asked: &Value) -> Outcome<String> {
    let mut world = UnixStream::connect(options.need("observer")?)?;
    world.write_all(format!("{asked}\n").as_bytes())?;
    let mut reply = String::new();
    BufReader::new(world).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err("the observer did not answer".into());
    }
    Ok(reply.trim_end().to_owned())
}

/// The key, where this tool takes it.
fn key_of(tool: &Tool, request: &Value) -> Option<String> {
    let found = match tool.key.as_deref()?.split_once(':') {
        None => &request["meta"]["dev.universal-agent/idempotency-key"],
        Some(("argument", name)) => &request["arguments"][name],
        Some((_, name)) => &request["headers"][name],
    };
    found.as_str().map(str::to_owned)
}

/// Ends this server, or the runner, when that is what the cell is about; once in a cell.
fn die_or_kill(options: &Options, moment: &str) -> Outcome<()> {
    let is_mine = |name: &str| options.get(name) == Some(moment);
    if !is_mine("server-dies") && !is_mine("runner-dies") {
        return Ok(());
    }
    let fired = Path::new(options.need("folder")?).join("fired");
    if File::options().write(true).create_new(true).open(fired).is_err() {
        return Ok(());
    }
    if is_mine("server-dies") {
        kill_process(getpid(), Signal::KILL)?;
    }
    if let Some(runner) = getppid() {
        kill(runner);
    }
    if ["received", "answered"].contains(&moment) {
        std::thread::sleep(ORPHAN_TAKES);
    }
    Ok(())
}

/// Kills a process and returns when it cannot do anything any more.
pub(crate) fn kill(pid: Pid) {
    if kill_process(pid, Signal::KILL).is_err() {
        return;
    }
    let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !has_ended(&stat)) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_ended(stat: &str) -> bool {
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
    state.starts_with(['Z', 'X', 'x'])
}
