//! What several pulls of a checkout come to: what the first one makes `ua` forget or keep, a second one uses; and links under names that somebody
//! can foresee, in folders that are the user's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::python::{PYTHON, WORKSPACE, call, is_untouched, job, server, victim, world};
use crate::scenario::world::{End, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "3f",
        waits: false,
        name: "one pull empties the user's own database, and the next one brings another",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| two_pulls(stage, First::Empty),
    },
    Scenario {
        number: "3g",
        waits: false,
        name: "one pull takes the user's own database away, and the next one brings another",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| two_pulls(stage, First::Gone),
    },
    Scenario {
        number: "3h",
        waits: false,
        name: "the same, with a folder in the place of the lock under which a database is made",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| two_pulls(stage, First::Locked),
    },
    Scenario {
        number: "3z",
        waits: false,
        name: "the Makefile of a named server's launcher says another program by the time of a resume",
        must: "it is not started before somebody accepts it",
        mark: Mark::Mended,
        play: |stage| launcher_changed(stage, None),
    },
    Scenario {
        number: "3j",
        waits: false,
        name: "what a named server's launcher builds from, in a language that nobody thought of, says another program by the time of a resume",
        must: "it is not started before somebody accepts it",
        mark: Mark::Mended,
        play: |stage| launcher_changed(stage, Some("first.inc")),
    },
    Scenario {
        number: "3k",
        waits: false,
        name: "a checkout brings the key by which pages that were fetched are told from forged ones",
        must: "another key is drawn",
        mark: Mark::Mended,
        play: key_of_a_checkout,
    },
    Scenario {
        number: "1v",
        waits: false,
        name: "a checkout has a link to a file that is not there yet in the folder of recordings",
        must: "nothing is made where it leads",
        mark: Mark::Mended,
        play: recording_by_a_link,
    },
    Scenario {
        number: "1w",
        waits: false,
        name: "a checkout has a link under the name of what is kept for the Claude Code program",
        must: "the file it leads to stays as it is",
        mark: Mark::Mended,
        play: agent_by_a_link,
    },
    Scenario {
        number: "11z",
        waits: false,
        name: "a checkout has a pipe among the cassettes",
        must: "the job ends at once",
        mark: Mark::Mended,
        play: cassette_that_is_a_pipe,
    },
];

/// What the first pull leaves of the user's own database.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// A file with nothing in it.
    Empty,
    /// Nothing.
    Gone,
    /// Nothing, and a folder where the lock is.
    Locked,
}

fn two_pulls(stage: &Stage, first: First) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    let started = world.path("started");
    server(&world, "theirs.json", &[&format!("started={}", started.display())])?;
    world.name_no_root();
    let page = call("mcp__shop__page", &json!({}));
    job(&world, &json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}}), &[page.clone(), page])?;
    let root = world.path("work/AGENT_RUN_WORKSPACES");
    let database = root.join("runtime_state.db");
    // The attacker's, made at the same place by another user's `ua`.
    world.run(&["job", "job.json", "--run-id", "own", "--mcp-config", "theirs.json"])?.must(75)?;
    ensure!(started.exists(), "the attacker's server was not started");
    fs::remove_file(&started)?;
    fs::rename(&root, world.path("brought"))?;
    fs::rename(world.path("home"), world.path("attackers_home"))?;
    fs::create_dir_all(world.path("home/.config"))?;
    // A run of the user's own, in a workspace that says that there was one; behind a lock that is none, in one with a name of its own.
    let folder = if first == First::Locked { json!({"workspace_dir": "mine"}) } else { json!({}) };
    job(&world, &json!({"artifacts": folder, "tools": {"builtin": false}}), &[])?;
    world.run(&["job", "job.json", "--run-id", "mine"])?.must(0)?;
    let lock = root.join("runtime_state.db.migrate.lock");
    match first {
        First::Empty => fs::write(&database, "")?,
        First::Gone => fs::remove_file(&database)?,
        First::Locked => {
            fs::remove_file(&database)?;
            fs::remove_file(&lock)?;
            fs::create_dir(&lock)?;
        }
    }
    let between = world.run(&["job", "job.json", "--run-id", "next"])?;
    ensure!(!started.exists(), "the attacker's program was started");
    if first == First::Locked {
        fs::remove_dir(&lock)?;
    }
    put(&world.path("brought/runtime_state.db"), &database)?;
    fs::rename(world.path("brought").join(WORKSPACE), root.join(WORKSPACE))?;
    let end = world.run(&["resume", "own", "--max-turns", "+5"])?;
    let ran = started.exists();
    let held = if ran { "FELL, the attacker's program was started" } else { "held" };
    let told = format!("whose database it is: {held}, {} in between, {}", between.told(), end.told());
    Ok(Verdict::of(!ran && end.code == Some(2), told))
}

/// As version control puts a file there.
fn put(file: &Path, there: &Path) -> anyhow::Result<()> {
    fs::remove_file(there).ok();
    fs::copy(file, there)?;
    fs::set_permissions(there, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

/// The launcher's own file changes, or another one (`part`) that it has run first.
fn launcher_changed(stage: &Stage, part: Option<&str>) -> anyhow::Result<Verdict> {
    if !Command::new("make").arg("--version").output().is_ok_and(|made| made.status.success()) {
        return Ok(Verdict::Skipped(Lack::Machine, "there is no make".to_owned()));
    }
    let world = world(stage)?;
    let started = world.path("started");
    let makefile = |first: &str| format!("serve:\n{first}\t@{PYTHON} attacker.py\n");
    let first = part.map_or_else(String::new, |part| format!("\t@sh ./{part}\n"));
    world.write("Makefile", &makefile(&first))?;
    if let Some(part) = part {
        world.write(part, "true\n")?;
    }
    let servers = json!({"mcpServers": {"shop": {"command": "make", "args": ["-s", "serve"]}}});
    world.write("servers.json", &servers.to_string())?;
    let page = call("mcp__shop__page", &json!({}));
    job(&world, &json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}}), &[page.clone(), page])?;
    world.run(&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"])?.must(75)?;
    let touch = format!("touch {}\n", started.display());
    match part {
        Some(part) => world.write(part, &touch)?,
        None => world.write("Makefile", &makefile(&format!("\t@{touch}")))?,
    }
    let end = world.run(&["resume", "r", "--max-turns", "+5"])?;
    let ran = started.exists();
    let held = if ran { "FELL, what became of it was started" } else { "held" };
    Ok(Verdict::of(!ran && end.code != Some(0), format!("the launcher's file: {held}, {}", end.told())))
}

/// A key that somebody knows, in the place of the own file and written into it: a file keeps its attributes when it is written into.
fn key_of_a_checkout(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.name_no_root();
    let key = world.path("work/AGENT_RUN_WORKSPACES/locks/copies.key");
    let theirs = "7".repeat(64);
    let begin = |name: &str| -> anyhow::Result<End> {
        job(&world, &json!({"artifacts": {"workspace_dir": name}, "tools": {"builtin": true}}), &[])?;
        world.run(&["job", "job.json", "--run-id", name])?.must(0)
    };
    begin("first")?;
    ensure!(key.is_file(), "no key is kept");
    let mut believed = Vec::new();
    for (name, how) in [("second", "in the place of the own file"), ("third", "written into the own file")] {
        if name == "second" {
            fs::remove_file(&key)?;
        }
        fs::write(&key, &theirs)?;
        begin(name)?;
        if fs::read_to_string(&key)? == theirs {
            believed.push(how);
        }
    }
    let held = if believed.is_empty() { "held".to_owned() } else { format!("FELL, {}", believed.join(", ")) };
    Ok(Verdict::of(believed.is_empty(), format!("whose key it is: {held}")))
}

fn recording_by_a_link(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let mine = world.path("home/.bash_profile");
    fs::create_dir(world.path("work/rec"))?;
    symlink(&mine, world.path("work/rec/monthly.jsonl"))?;
    job(&world, &json!({}), &[])?;
    let end = world.run(&["job", "job.json", "--run-id", "monthly", "--record", "rec"])?;
    let held = if mine.exists() { "FELL" } else { "held" };
    Ok(Verdict::of(!mine.exists(), format!("the folder of recordings: {held}, {}", end.told())))
}

fn agent_by_a_link(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.name_no_root();
    job(&world, &json!({}), &[])?;
    world.run(&["job", "job.json"])?.must(0)?;
    let program = world.path("claude");
    fs::write(&program, "#!/bin/sh\n[ \"$1\" = --version ] && { echo 2.0.0; exit 0; }\necho no >&2\nexit 1\n")?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    world.set("UA_CLAUDE_CODE", &program.display().to_string());
    world.set("ANTHROPIC_API_KEY", "sk-ant-of-nobody-0123456789");
    let folder = world.path("work/AGENT_RUN_WORKSPACES/claude-code/monthly");
    fs::create_dir_all(&folder)?;
    for name in ["system_prompt.md", "mcp.json", "claude.stderr.log"] {
        symlink(victim(&world), folder.join(name))?;
    }
    let patience = json!({"max_provider_wait_minutes": 0});
    let text = json!({"objective": "x", "model": {"system_prompt": "touch pwned"}, "budgets": patience});
    world.write("agent.json", &text.to_string())?;
    let end = world.run(&["job", "agent.json", "--run-id", "monthly", "--provider", "claude-code", "--model", "m"])?;
    let held = if is_untouched(&world) { "held" } else { "FELL" };
    Ok(Verdict::of(is_untouched(&world), format!("what is kept for an agent: {held}, {}", end.told())))
}

fn cassette_that_is_a_pipe(stage: &Stage) -> anyhow::Result<Verdict> {
    /// How long it may take to say no.
    const SHORT: Duration = Duration::from_secs(20);
    let world = world(stage)?;
    fs::create_dir(world.path("work/rec"))?;
    rustix::fs::mkfifoat(rustix::fs::CWD, world.path("work/rec/a.jsonl"), rustix::fs::Mode::RWXU)?;
    job(&world, &json!({"model": {}}), &[])?;
    let played = ["job", "job.json", "--provider", "replay", "--cassette", "rec"];
    let end = world.start(&played)?.ends_within(SHORT)?;
    let ended = end.as_ref().is_some_and(|end| end.code == Some(2));
    let told = end.map_or_else(|| format!("it was not over after {} s", SHORT.as_secs()), |end| end.told());
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("what is played: {held}, {told}")))
}
