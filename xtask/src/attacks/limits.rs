//! Limits and integrity (findings 12, 19, 20, 21).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::python::{PYTHON, call, job, server, spent_below, starts, world};
use super::words::Site;
use crate::scenario::world::{End, Outside, PATIENCE, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "12",
        waits: true,
        name: "a tool server writes 64 MiB to its standard error",
        must: "no more than 8 MiB are kept",
        mark: Mark::Mended,
        play: loud_server,
    },
    Scenario {
        number: "12x",
        waits: true,
        name: "a tool server behind the gateway sends a line of 320 MiB",
        must: "the broker keeps no more than 256 MiB of it, and says what is wrong",
        mark: Mark::Mended,
        play: endless_line_at_the_gateway,
    },
    Scenario {
        number: "12y",
        waits: true,
        name: "a tool server behind the gateway has the broker note 400,000 messages that cannot be read",
        must: "no more than 16 MiB are kept",
        mark: Mark::Mended,
        play: flooded_log_of_the_gateway,
    },
    Scenario {
        number: "12z",
        waits: true,
        name: "a tool server behind the gateway says 500 MiB to a client that does not read",
        must: "the broker keeps no more than 256 MiB of it",
        mark: Mark::Mended,
        play: client_that_does_not_read,
    },
    Scenario {
        number: "12w",
        waits: true,
        name: "a tool server lists its tools in pages of 7 MiB without end",
        must: "the run ends in order within 60 s of the processors' time and 3 GiB, and says what is wrong",
        mark: Mark::Control,
        play: pages_without_end,
    },
    Scenario {
        number: "19",
        waits: false,
        name: "the folder of the database belongs to somebody else, whose group may write",
        must: "it is refused",
        mark: Mark::Mended,
        play: foreign_folder,
    },
    Scenario {
        number: "20",
        waits: false,
        name: "every trigger is dropped from the database",
        must: "`ua db check` notices",
        mark: Mark::Mended,
        play: dropped_triggers,
    },
    Scenario {
        number: "20b",
        waits: false,
        name: "an answer is written into the database",
        must: "`ua db check` notices",
        mark: Mark::Mended,
        play: forged_answer,
    },
    Scenario {
        number: "20x",
        waits: false,
        name: "the history of a call is rewritten in the database, and its trigger put back",
        must: "`ua db check` notices",
        mark: Mark::Control,
        play: rewritten_history,
    },
    Scenario {
        number: "20y",
        waits: false,
        name: "an order that nobody knows the end of is made a read in the database, and the run resumed",
        must: "`ua db check` notices, and it is not placed again",
        mark: Mark::Control,
        play: lowered_class,
    },
    Scenario {
        number: "21",
        waits: true,
        name: "a Markdown table of 2000 by 200 cells is made a PDF",
        must: "it is refused or done within 30 s of the processors' time and 2 GiB",
        mark: Mark::Mended,
        play: large_table,
    },
    Scenario {
        number: "21x",
        waits: true,
        name: "the schema of a tool's arguments asks for 10^10 checks of one text",
        must: "the run is over within 30 s of the processors' time and 3 GiB",
        mark: Mark::Mended,
        play: knotted_schema,
    },
    Scenario {
        number: "21y",
        waits: true,
        name: "the schema of a tool's arguments has patterns that a text of 50,000 characters sends back without end",
        must: "the run is over within 30 s of the processors' time and 3 GiB",
        mark: Mark::Control,
        play: pattern_without_end,
    },
    Scenario {
        number: "21z",
        waits: true,
        name: "a page has a million attributes, another is nested 300,000 elements deep",
        must: "the run is over within 60 s of the processors' time and 3 GiB, and a third page is there",
        mark: Mark::Control,
        play: page_without_end,
    },
];

fn loud_server(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    job(&world, &json!({}), &[call("mcp__shop__shout", &json!({"mib": 64}))])?;
    let policy = "[[rule]]\nid = \"shout\"\nname = \"shout\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let end = world.run_job(&[])?.must(0)?;
    let size = fs::metadata(world.path("root/w/logs/shop.stderr.log"))?.len() >> 20;
    let held = if size <= 8 { "held" } else { "FELL" };
    Ok(Verdict::of(size <= 8, format!("standard error: {held}, {size} MiB kept, {}", end.told())))
}

/// A tool server: one tool answers with a line that has no end for long, one with many lines that cannot be read in front of its answer.
const ENDLESS: &str = r#"
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("get_page", "get_list", "get_news")]}
    elif method == "tools/call" and request["params"]["name"] == "get_list":
        for _ in range(400000):
            sys.stdout.write('{"method": 1e999999}\n')
        result = {"content": [{"type": "text", "text": "a list"}]}
    elif method == "tools/call" and request["params"]["name"] == "get_news":
        for _ in range(500):
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * (1 << 20)}}))
        open("said", "w").close()
        result = {"content": [{"type": "text", "text": "the news"}]}
    elif method == "tools/call":
        sys.stdout.write('{"jsonrpc": "2.0", "id": %s, "result": "' % json.dumps(id))
        for _ in range(320):
            sys.stdout.write("x" * (1 << 20))
            sys.stdout.flush()
        sys.exit(0)
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"#;

/// A client of the gateway: calls a tool, and prints how much memory the broker had at most, how long its log is and what it was answered.
const CLIENT: &str = r#"
import json, os, subprocess, sys, threading, time

tool, ua, rest = sys.argv[1], sys.argv[2], sys.argv[3:]
bridge = subprocess.Popen([ua] + rest, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
answers = {}

def hear():
    for line in bridge.stdout:
        message = json.loads(line)
        answers[message.get("id")] = message
        if tool == "get_news" and 2 in answers:
            return

threading.Thread(target=hear, daemon=True).start()

def say(message):
    bridge.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    bridge.stdin.flush()

# Whoever started this ends it when it takes too long: how fast the machine is says nothing about the broker.
def until(holds):
    while not holds():
        time.sleep(0.05)

def wait(id):
    until(lambda: id in answers)
    return answers[id]

def is_running(answer):
    return answer.get("result", {}).get("_meta", {}).get("dev.universal-agent/call", {}).get("told") == "running"

say({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}})
wait(1)
say({"method": "notifications/initialized"})
say({"id": 2, "method": "tools/list"})
wait(2)
status = json.loads(subprocess.run([ua, "gateway", "status", "--json"], capture_output=True, text=True).stdout)
def called(id):
    say({"id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
    # A pipe holds 64 KiB of the 500 MiB: when all was said, the broker has had the rest.
    if tool == "get_news":
        until(lambda: os.path.exists("said"))
        return True
    answer = wait(id)
    # A call that takes long is waited for by the same call.
    return called(id + 1) if is_running(answer) else answer

answer = called(3)
peak = 0
for line in open(f"/proc/{status['broker']['pid']}/status"):
    if line.startswith("VmHWM:"):
        peak = int(line.split()[1]) >> 10
size = lambda: os.stat(os.path.join(status["root"], "gateway.log")).st_size >> 20
log = size()
bridge.kill()
subprocess.run([ua, "gateway", "stop"], capture_output=True)
# Whoever has ended has written all.
print(json.dumps({"peak": peak, "log": max(log, size()), "answer": json.dumps(answer)}), flush=True)
"#;

/// What the client saw of a call of a tool of that server.
fn at_the_gateway(stage: &Stage, tool: &str) -> anyhow::Result<serde_json::Value> {
    let mut world = world(stage)?;
    call_at_the_gateway(&mut world, ENDLESS, tool)
}

/// What a client of the gateway sees of a call of a tool of this server.
pub(super) fn call_at_the_gateway(world: &mut Outside, server: &str, tool: &str) -> anyhow::Result<serde_json::Value> {
    world.name_no_root();
    world.write("server.py", server)?;
    world.write("client.py", CLIENT)?;
    let gateway = ["gateway", "--name", "s", "--", PYTHON, "server.py"];
    let end = world.start_below(Some(&[PYTHON, "client.py", tool]), &gateway)?.wait()?.must(0)?;
    Ok(serde_json::from_str(&end.out)?)
}

fn endless_line_at_the_gateway(stage: &Stage) -> anyhow::Result<Verdict> {
    let said = at_the_gateway(stage, "get_page")?;
    let (peak, answer) = (said["peak"].as_u64().unwrap_or(0), said["answer"].as_str().unwrap_or_default());
    ensure!(peak > 0, "the broker was not looked at: {said}");
    let holds = peak <= 256 && answer.contains("more than");
    let held = if holds { "held" } else { "FELL" };
    Ok(Verdict::of(holds, format!("the broker's memory: {held}, {peak} MiB at most, answered {answer:.200}")))
}

fn client_that_does_not_read(stage: &Stage) -> anyhow::Result<Verdict> {
    let said = at_the_gateway(stage, "get_news")?;
    let peak = said["peak"].as_u64().unwrap_or(0);
    ensure!(peak > 0 && said["answer"] == "true", "not all was said, or the broker was not looked at: {said}");
    let held = if peak <= 256 { "held" } else { "FELL" };
    Ok(Verdict::of(peak <= 256, format!("the broker's memory: {held}, {peak} MiB at most")))
}

fn flooded_log_of_the_gateway(stage: &Stage) -> anyhow::Result<Verdict> {
    let said = at_the_gateway(stage, "get_list")?;
    let (log, answer) = (said["log"].as_u64(), said["answer"].as_str().unwrap_or_default());
    ensure!(answer.contains("a list"), "the tool was not called: {said}");
    let holds = log.is_some_and(|log| log <= 16);
    let held = if holds { "held" } else { "FELL" };
    Ok(Verdict::of(holds, format!("the broker's log: {held}, {} MiB", log.unwrap_or(0))))
}

/// A tool server whose list of tools has another large page behind each.
const PAGES: &str = r#"
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    method, id = request.get("method"), request.get("id")
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        at = int(request.get("params", {}).get("cursor", "0"))
        tool = {"name": "t%d" % at, "description": "x" * (7 << 20), "inputSchema": {"type": "object"}}
        result = {"tools": [tool], "nextCursor": str(at + 1)}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"#;

fn pages_without_end(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    world.write("pages.py", PAGES)?;
    let entry = json!({"command": PYTHON, "args": ["pages.py"]});
    world.write("servers.json", &json!({"mcpServers": {"pages": entry}}).to_string())?;
    job(&world, &json!({"tools": {"builtin": false}}), &[])?;
    let job = ["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"];
    let end = bounded(&world, &job, Duration::from_mins(1))?;
    // Behind the bound of the list there is one of time.
    let says = |end: &End| [&end.out, &end.err].iter().any(|said| said.contains("cannot list the tools of `pages`"));
    let holds = end.as_ref().is_some_and(says);
    let told = end.map_or_else(|| not_over(Duration::from_mins(1)), |end| end.told());
    let held = if holds { "held" } else { "FELL" };
    Ok(Verdict::of(holds, format!("the list of tools: {held}, {told}")))
}

/// A run that ended.
fn ended(stage: &Stage) -> anyhow::Result<Outside> {
    let world = world(stage)?;
    job(&world, &json!({"tools": {"builtin": false}}), &[])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(0)?;
    Ok(world)
}

fn foreign_folder(stage: &Stage) -> anyhow::Result<Verdict> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Verdict::Skipped(Lack::Root, "only root can give a folder away".to_owned()));
    }
    let world = ended(stage)?;
    chown(world.path("root"), Some(23456), Some(23456))?;
    fs::set_permissions(world.path("root"), fs::Permissions::from_mode(0o770))?;
    let end = world.run(&["runs", "list"])?;
    let held = if end.code == Some(0) { "FELL" } else { "held" };
    Ok(Verdict::of(end.code != Some(0), format!("the folder's owner: {held}, {}", end.told())))
}

fn dropped_triggers(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = ended(stage)?;
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\n\
        n=[r[0] for r in c.execute(\"SELECT name FROM sqlite_master WHERE type='trigger'\")]\n\
        [c.execute(f'DROP TRIGGER {t}') for t in n]\nc.commit()\nprint(len(n))";
    let dropped = Command::new("python3").args(["-c", script]).arg(world.path("root/runtime_state.db")).output()?;
    ensure!(dropped.status.success(), "{}", String::from_utf8_lossy(&dropped.stderr));
    let end = world.run(&["db", "check"])?;
    let held = if end.code == Some(0) { "FELL" } else { "held" };
    Ok(Verdict::of(end.code != Some(0), format!("the schema: {held}, `ua db check` ended with {}", end.told())))
}

fn forged_answer(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let mail = call("mcp__ua__send_email", &json!({"to": ["stranger@evil.example"], "subject": "x", "body": "y"}));
    job(&world, &json!({"tools": {"builtin": true}}), &[mail])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(75)?;
    world.run(&["db", "check"])?.must(0)?;
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\n\
        c.execute(\"INSERT INTO answers (question_id, choice, answered_by, answered_at) SELECT question_id, 'execute', 'me', created_at FROM questions\")\n\
        c.execute(\"UPDATE questions SET status = 'answered'\")\nc.commit()";
    let forged = Command::new("python3").args(["-c", script]).arg(world.path("root/runtime_state.db")).output()?;
    ensure!(forged.status.success(), "{}", String::from_utf8_lossy(&forged.stderr));
    let before = world.run(&["db", "check"])?;
    // Also after somebody went on with it.
    world.run(&["resume", "r"])?;
    let after = world.run(&["db", "check"])?;
    let is_noticed = before.code != Some(0) && after.code != Some(0);
    let held = if is_noticed { "held" } else { "FELL" };
    Ok(Verdict::of(
        is_noticed,
        format!("the answers: {held}, {} before and {} after a resume", before.told(), after.told()),
    ))
}

/// Changes the database as somebody does who may write it: the triggers of a table are put back as they were.
fn edited(world: &Outside, table: &str, sql: &str) -> anyhow::Result<()> {
    let script = "import sqlite3,sys\nc=sqlite3.connect(sys.argv[1])\n\
        t=c.execute(\"SELECT name, sql FROM sqlite_master WHERE type='trigger' AND tbl_name=?\", (sys.argv[2],)).fetchall()\n\
        [c.execute(f'DROP TRIGGER {n}') for n, _ in t]\n\
        n=c.execute(sys.argv[3]).rowcount\n\
        [c.execute(s) for _, s in t]\nc.commit()\nassert n > 0, n";
    let database = world.path("root/runtime_state.db");
    let changed = Command::new("python3").args(["-c", script]).arg(database).args([table, sql]).output()?;
    ensure!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
    Ok(())
}

fn rewritten_history(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let policy = "[[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    server(&world, "servers.json", &[])?;
    let post = call("mcp__shop__post", &json!({"file": world.path("posts").display().to_string()}));
    job(&world, &json!({"tools": {"builtin": false}}), &[post])?;
    world.run(&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"])?.must(0)?;
    world.run(&["db", "check"])?.must(0)?;
    let earlier = "UPDATE tool_call_events SET at = '2001-01-01T00:00:00.000Z' WHERE to_status = 'running'";
    edited(&world, "tool_call_events", earlier)?;
    let end = world.run(&["db", "check"])?;
    let held = if end.code == Some(0) { "FELL" } else { "held" };
    Ok(Verdict::of(
        end.code != Some(0),
        format!("the history of calls: {held}, `ua db check` ended with {}", end.told()),
    ))
}

fn lowered_class(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    world.write("cut.py", CUT)?;
    let posts = world.path("posts");
    let args = [world.path("work/cut.py").display().to_string(), posts.display().to_string()];
    world.write("servers.json", &json!({"mcpServers": {"shop": {"command": PYTHON, "args": args}}}).to_string())?;
    job(&world, &json!({"tools": {"builtin": false}}), &[call("mcp__shop__place_order", &json!({"item": "a"}))])?;
    world.run(&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"])?.must(75)?;
    world.run(&["db", "check"])?.must(0)?;
    let sent = |what: &str| -> anyhow::Result<usize> {
        let count = fs::read_to_string(&posts)?.lines().count();
        ensure!(count > 0, "nothing was sent {what}");
        Ok(count)
    };
    ensure!(sent("before")? == 1, "it was sent more than once before anything was changed");
    // What is done when it is lost, and what it is, stand in columns beside the policy that says so.
    edited(&world, "tool_calls", "UPDATE tool_calls SET side_effect_class = 'read_only', replay_policy = 'redo'")?;
    edited(&world, "questions", "UPDATE questions SET status = 'closed'")?;
    let end = world.run(&["db", "check"])?;
    world.run(&["resume", "r"])?;
    let (is_noticed, count) = (end.code != Some(0), sent("behind it")?);
    let word = |holds: bool| if holds { "held" } else { "FELL" };
    Ok(Verdict::of(
        is_noticed && count == 1,
        format!(
            "the rows: {}, `ua db check` ended with {}; the order: {}, placed {count} times",
            word(is_noticed),
            end.told(),
            word(count == 1)
        ),
    ))
}

/// A tool server that does what it is told to, and ends before it answers.
const CUT: &str = r#"
import json, os, sys

for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    if method == "initialize":
        result = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif method == "tools/list":
        result = {"tools": [{"name": "place_order", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        open(sys.argv[1], "a").write("sent\n")
        os._exit(0)
    elif request.get("id") is None:
        continue
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"#;

fn large_table(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let write = "row=$(printf 'x|%.0s' $(seq 200)); line=$(printf -- '-|%.0s' $(seq 200)); \
        { echo \"|$row\"; echo \"|$line\"; for i in $(seq 2000); do echo \"|$row\"; done; } >table.md";
    let render = call("mcp__ua__render_pdf", &json!({"source": "table.md", "output": "table.pdf"}));
    let fields = json!({"tools": {"builtin": true, "run_command": true}});
    job(&world, &fields, &[starts(&["sh", "-c", write]), render])?;
    let end = bounded(&world, &["job", "job.json", "--run-id", "r"], HALF_A_MINUTE)?;
    if end.as_ref().is_some_and(|end| end.code == Some(2) && end.err.contains("render_pdf")) {
        return Ok(Verdict::Skipped(Lack::Build, "this build renders no PDF".to_owned()));
    }
    ensure!(fs::metadata(world.path("root/w/table.md"))?.len() > 700_000, "there is no large table");
    let ended = end.as_ref().is_some_and(|end| end.code == Some(0));
    let told = end.map_or_else(|| not_over(HALF_A_MINUTE), |end| end.told());
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("rendering: {held}, {told}")))
}

fn pattern_without_end(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let text = format!("{}!", "a".repeat(50_000));
    let calls = ["p", "q", "r"].map(|name| call("mcp__shop__twist", &json!({ name: text })));
    job(&world, &json!({"tools": {"builtin": false}}), &calls)?;
    let policy = "[[rule]]\nid = \"twist\"\nname = \"twist\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let job = ["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"];
    let (ended, told) = within(&world, &job, HALF_A_MINUTE)?;
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("the patterns: {held}, {told}")))
}

/// So much of the processors' time some attacks may cost.
const HALF_A_MINUTE: Duration = Duration::from_secs(30);

/// How often it is looked at what was taken of the processors' time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// Runs it with 3 GiB for each process and so much of the processors' time for all of them, which what else the machine does takes nothing of. One
/// that needs more, or waits for nothing, is killed, and `None`.
fn bounded(world: &Outside, job: &[&str], time: Duration) -> anyhow::Result<Option<End>> {
    let below = ["sh", "-c", "ulimit -v 3000000; exec \"$0\" \"$@\""];
    let mut live = world.start_below(Some(&below), job)?;
    let (pid, mut looked) = (live.pid(), Instant::now());
    live.look_for(PATIENCE, || {
        // A look goes through all processes.
        if looked.elapsed() < BETWEEN_LOOKS {
            return Ok(false);
        }
        looked = Instant::now();
        Ok(spent_below(pid) > time)
    })?;
    live.ends_within(Duration::ZERO)
}

/// That it did not end by itself.
fn not_over(time: Duration) -> String {
    format!("it was not over after {} s of the processors' time, or waited without end", time.as_secs())
}

/// Whether it ended in order within that, and what it said.
fn within(world: &Outside, job: &[&str], time: Duration) -> anyhow::Result<(bool, String)> {
    let end = bounded(world, job, time)?;
    let ended = end.as_ref().is_some_and(|end| end.code == Some(0));
    Ok((ended, end.map_or_else(|| not_over(time), |end| end.told())))
}

fn page_without_end(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let site = Site::open_with(|request| {
        if request.contains("/wide") {
            let attributes: Vec<String> = (0..1_000_000).map(|n| format!("a{n}=1")).collect();
            format!("<p {}>wide</p>", attributes.join(" "))
        } else if request.contains("/deep") {
            format!("{}deep", "<div>".repeat(300_000))
        } else {
            "<p>the third page is here</p>".to_owned()
        }
    })?;
    let urls = ["wide", "deep", "third"].map(|name| format!("http://{}/{name}", site.address));
    let crawl = call("mcp__ua__crawl_parallel", &json!({ "urls": urls }));
    let objective = format!("Read {}.", urls.join(" and "));
    job(&world, &json!({"objective": objective, "tools": {"builtin": true}}), &[crawl])?;
    let job = ["job", "job.json", "--run-id", "r", "--allow-private-addresses"];
    let (ended, told) = within(&world, &job, Duration::from_mins(1))?;
    let read = world.run(&["calls", "list", "--run", "r", "--json"])?.must(0)?;
    let calls: serde_json::Value = serde_json::from_str(&read.out)?;
    let id = calls[0]["tool_call_id"].as_str().unwrap_or_default().to_owned();
    let answer = world.run(&["calls", "show", &id, "--full"])?.out;
    let is_there = answer.contains("the third page is here");
    let held = if ended && is_there { "held" } else { "FELL" };
    let third = if is_there { "is there" } else { "is not" };
    Ok(Verdict::of(ended && is_there, format!("pages: {held}, {told}, the third page {third}")))
}

fn knotted_schema(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let knot = call("mcp__shop__knot", &json!({"q": "[a text]"}));
    job(&world, &json!({"tools": {"builtin": false}}), &[knot])?;
    let policy = "[[rule]]\nid = \"knot\"\nname = \"knot\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let job = ["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"];
    let (ended, told) = within(&world, &job, HALF_A_MINUTE)?;
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("the schema: {held}, {told}")))
}
