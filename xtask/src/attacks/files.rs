//! Files: names that somebody else made where this program writes or reads (findings 1, 6, 9, 11).

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use serde_json::json;

use super::python::{WORKSPACE, call, is_untouched, job, run_program, start_program, victim, world};
use crate::scenario::world::Stage;
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "1",
        waits: false,
        name: "a program plants the temporary names that the runner writes",
        must: "no file of the user is written",
        mark: Mark::Mended,
        play: planted_temporary_names,
    },
    Scenario {
        number: "1b",
        waits: false,
        name: "a program makes the run's log a link to the user's .bashrc",
        must: "no file of the user is written",
        mark: Mark::Mended,
        play: planted_log,
    },
    Scenario {
        number: "1c",
        waits: false,
        name: "a program makes the folder of logs a link to a folder of the user",
        must: "no file appears there on a resume",
        mark: Mark::Mended,
        play: planted_folder_of_logs,
    },
    Scenario {
        number: "1x",
        waits: false,
        name: "a program makes the record of what is asked of the model a link to .bashrc",
        must: "no file of the user is written on a resume",
        mark: Mark::Mended,
        play: planted_record,
    },
    Scenario {
        number: "1y",
        waits: false,
        name: "a program makes a folder that an export writes to a link to a folder of the user",
        must: "no file appears there",
        mark: Mark::Control,
        play: planted_for_an_export,
    },
    Scenario {
        number: "6",
        waits: false,
        name: "a job whose workspace is one of the root's own files",
        must: "refused (exit 2)",
        mark: Mark::Mended,
        play: reserved_names,
    },
    Scenario {
        number: "6x",
        waits: false,
        name: "a job whose workspace is behind a link that a program of another run planted",
        must: "refused (exit 2), and nothing appears where it leads",
        mark: Mark::Mended,
        play: workspace_behind_a_link,
    },
    Scenario {
        number: "6y",
        waits: false,
        name: "a program makes the folder of sub-agents a link to a folder of the user",
        must: "no file appears there",
        mark: Mark::Mended,
        play: sub_agents_behind_a_link,
    },
    Scenario {
        number: "6z",
        waits: false,
        name: "a job whose workspace is in that of another run",
        must: "refused (exit 2)",
        mark: Mark::Mended,
        play: workspace_in_a_workspace,
    },
    Scenario {
        number: "9",
        waits: false,
        name: "a checkout with a root whose RESTART.md is about to be a file of the user",
        must: "no file of the user is written",
        mark: Mark::Mended,
        play: shipped_restart,
    },
    Scenario {
        number: "9b",
        waits: false,
        name: "a checkout with a root that has links for outbox and locks",
        must: "no file appears where they lead",
        mark: Mark::Mended,
        play: shipped_links,
    },
    Scenario {
        number: "9c",
        waits: false,
        name: "a checkout whose root is itself a link",
        must: "nothing appears where it leads",
        mark: Mark::Mended,
        play: shipped_root,
    },
    Scenario {
        number: "11",
        waits: true,
        name: "a program leaves a pipe among the logs",
        must: "the job ends",
        mark: Mark::Mended,
        play: |stage| odd_log(stage, "mkfifo logs/x logs/y.stderr.log"),
    },
    Scenario {
        number: "11b",
        waits: true,
        name: "a program leaves a link to /dev/zero among the logs",
        must: "the job ends within its memory",
        mark: Mark::Mended,
        play: |stage| odd_log(stage, "ln -s /dev/zero logs/x"),
    },
    Scenario {
        number: "11c",
        waits: true,
        name: "a program leaves a pipe where the run's own files are written",
        must: "the job ends",
        mark: Mark::Mended,
        play: |stage| odd_log(stage, "rm -f run.log trace.jsonl; mkfifo run.log trace.jsonl"),
    },
    Scenario {
        number: "11x",
        waits: true,
        name: "a checkout has a pipe for its .mcp.json",
        must: "the job ends",
        mark: Mark::Mended,
        play: |stage| odd_configuration(stage, ".mcp.json"),
    },
    Scenario {
        number: "11y",
        waits: true,
        name: "a checkout has a pipe for the script that its .mcp.json starts",
        must: "the job ends (exit 2)",
        mark: Mark::Mended,
        play: |stage| odd_configuration(stage, "server.py"),
    },
];

fn untouched(world: &crate::scenario::world::Outside, told: &str) -> Verdict {
    let what =
        if is_untouched(world) { "the runner's files: held" } else { "the runner's files: FELL, .bashrc was written" };
    Verdict::of(is_untouched(world), format!("{what}, {told}"))
}

fn planted_temporary_names(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let script = "n=1; for p in /proc/[0-9]*; do p=${p#/proc/}; \
        for f in transcript.md session_summary.txt trace.json job_completion_r.md job_completion_r.json; do \
        ln -s \"$1\" .$f.$p.tmp; done; done";
    let end = run_program(&world, script, &[&victim(&world).display().to_string()])?;
    Ok(untouched(&world, &end.told()))
}

fn planted_log(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let script = "rm -f run.log trace.jsonl; ln -s \"$1\" run.log; ln -s \"$1\" trace.jsonl";
    let end = run_program(&world, script, &[&victim(&world).display().to_string()])?;
    Ok(untouched(&world, &end.told()))
}

fn planted_folder_of_logs(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let folder = world.path("home/private");
    fs::create_dir(&folder)?;
    let plant =
        super::python::starts(&["sh", "-c", "rm -rf logs; ln -s \"$1\" logs", "sh", &folder.display().to_string()]);
    let list = call("mcp__ua__list_directory", &json!({"path": "."}));
    let fields = json!({"tools": {"builtin": true, "run_command": true}, "budgets": {"max_turns": 1}});
    job(&world, &fields, &[plant, list])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(75)?;
    let end = world.run(&["resume", "r", "--max-turns", "+10"])?;
    let there = fs::read_dir(&folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(
        there == 0,
        format!("the folder of logs: {held}, {there} file(s) in the user's folder, {}", end.told()),
    ))
}

fn planted_record(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.set("UA_KEEP_BODIES", "1");
    let script = "mkdir -p logs; rm -f logs/model.jsonl; ln -s \"$1\" logs/model.jsonl";
    let plant = super::python::starts(&["sh", "-c", script, "sh", &victim(&world).display().to_string()]);
    let list = call("mcp__ua__list_directory", &json!({"path": "."}));
    let fields = json!({"tools": {"builtin": true, "run_command": true}, "budgets": {"max_turns": 1}});
    job(&world, &fields, &[plant, list])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(75)?;
    let end = world.run(&["resume", "r", "--max-turns", "+10"])?;
    Ok(untouched(&world, &end.told()))
}

fn planted_for_an_export(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let folder = world.path("home/private");
    fs::create_dir(&folder)?;
    let script =
        "rm -rf result_blobs; ln -s \"$1\" result_blobs; rm -f timeline.html; ln -s \"$1/x\" timeline.html; echo y";
    run_program(&world, script, &[&folder.display().to_string()])?.must(0)?;
    let end = world.run(&["runs", "export", "r"])?;
    let there = fs::read_dir(&folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(
        there == 0,
        format!("what an export writes: {held}, {there} file(s) in the user's folder, {}", end.told()),
    ))
}

fn reserved_names(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let mut taken = Vec::new();
    for name in [
        "locks",
        "effects.log",
        "outbox",
        "RESTART.md",
        "agent_core.db",
        "runtime_state.db-journal",
        ".fork_x",
        "Locks",
    ] {
        job(&world, &json!({"artifacts": {"workspace_dir": name}}), &[])?;
        if world.run(&["job", "job.json"])?.code != Some(2) {
            taken.push(name);
        }
    }
    let held = if taken.is_empty() { "held".to_owned() } else { format!("FELL for {}", taken.join(", ")) };
    Ok(Verdict::of(taken.is_empty(), format!("the root's own names: {held}")))
}

/// A program of a run that makes `name` in its workspace a link to a folder of the user.
fn plants(
    world: &crate::scenario::world::Outside,
    name: &str,
) -> anyhow::Result<(serde_json::Value, std::path::PathBuf)> {
    let folder = world.path("home/private");
    fs::create_dir(&folder)?;
    Ok((super::python::starts(&["ln", "-s", &folder.display().to_string(), name]), folder))
}

fn nothing_there(folder: &std::path::Path, what: &str, told: &str) -> anyhow::Result<Verdict> {
    let there = fs::read_dir(folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(there == 0, format!("{what}: {held}, {there} file(s) in the user's folder, {told}")))
}

fn workspace_behind_a_link(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let (plant, folder) = plants(&world, "sub")?;
    job(&world, &json!({"tools": {"builtin": true, "run_command": true}}), &[plant])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(0)?;
    let write = call("mcp__ua__write_local_file", &json!({"path": "config.toml", "content": "[alert]\n"}));
    let mut codes = Vec::new();
    for behind in ["sub/ua", "sub", "sub/.ua"] {
        job(
            &world,
            &json!({"artifacts": {"workspace_dir": format!("{WORKSPACE}/{behind}")}}),
            std::slice::from_ref(&write),
        )?;
        codes.push(world.run(&["job", "job.json"])?.code);
    }
    if codes.iter().any(|code| *code != Some(2)) {
        return Ok(Verdict::of(false, format!("a workspace behind a link: FELL, exit codes {codes:?}")));
    }
    nothing_there(&folder, "a workspace behind a link", "each refused")
}

fn sub_agents_behind_a_link(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let (plant, folder) = plants(&world, "subagent_outputs")?;
    let task = call("mcp__ua_agents__task", &json!({"description": "Write", "prompt": "Write it down."}));
    let fields = json!({"tools": {"builtin": true, "run_command": true}, "subagents": {}});
    job(&world, &fields, &[plant, task])?;
    let end = world.run(&["job", "job.json", "--run-id", "r"])?;
    nothing_there(&folder, "the folder of sub-agents", &end.told())
}

fn workspace_in_a_workspace(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    job(&world, &json!({}), &[])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(0)?;
    job(&world, &json!({"artifacts": {"workspace_dir": format!("{WORKSPACE}/inner")}}), &[])?;
    let end = world.run(&["job", "job.json"])?;
    let is_refused = end.code == Some(2) && end.err.contains("is in that of run r");
    let held = if is_refused { "held" } else { "FELL" };
    Ok(Verdict::of(is_refused, format!("a workspace in a workspace: {held}, {}", end.told())))
}

/// A job that a person runs in a checkout, without naming a root; it sends one mail.
fn job_in_a_checkout(world: &mut crate::scenario::world::Outside) -> anyhow::Result<String> {
    world.name_no_root();
    let mail = json!({"to": ["ada@example.org"], "subject": "Hello", "body": "Hello."});
    let fields = json!({"tools": {"builtin": true}, "constraints": {"allowed_recipients": ["ada@example.org"]}});
    job(world, &fields, &[call("mcp__ua__send_email", &mail)])?;
    Ok(world.run(&["job", "job.json"])?.told())
}

fn shipped_restart(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    let root = world.path("work/AGENT_RUN_WORKSPACES");
    fs::create_dir(&root)?;
    symlink(victim(&world), root.join(".RESTART.md.tmp"))?;
    let told = job_in_a_checkout(&mut world)?;
    Ok(untouched(&world, &told))
}

fn shipped_links(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    let (root, folder) = (world.path("work/AGENT_RUN_WORKSPACES"), world.path("home/private"));
    fs::create_dir(&root)?;
    fs::create_dir(&folder)?;
    for name in ["outbox", "locks"] {
        symlink(&folder, root.join(name))?;
    }
    let told = job_in_a_checkout(&mut world)?;
    let there = fs::read_dir(&folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(there == 0, format!("the root's folders: {held}, {there} file(s) where they lead, {told}")))
}

fn shipped_root(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    let folder = world.path("home/private");
    fs::create_dir(&folder)?;
    symlink(&folder, world.path("work/AGENT_RUN_WORKSPACES"))?;
    let told = job_in_a_checkout(&mut world)?;
    let there = fs::read_dir(&folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(there == 0, format!("the root itself: {held}, {there} file(s) where it leads, {told}")))
}

/// A job in a checkout in which `name` is a pipe.
fn odd_configuration(stage: &Stage, name: &str) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.name_no_root();
    let servers = json!({"mcpServers": {"shop": {"command": "python3", "args": ["./server.py"]}}});
    world.write(".mcp.json", &servers.to_string())?;
    let pipe = world.path("work").join(name);
    fs::remove_file(&pipe).ok();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU)?;
    job(&world, &json!({"tools": {"builtin": false}}), &[])?;
    let end = world.start(&["job", "job.json"])?.ends_within(SHORT)?;
    let ended = end.as_ref().is_some_and(|end| end.code == Some(2));
    let told = end.map_or_else(|| format!("it was not over after {} s", SHORT.as_secs()), |end| end.told());
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("what is read of a checkout: {held}, {told}")))
}

/// How long it may take to say no.
const SHORT: Duration = Duration::from_secs(20);

/// How long a job of one short program may take.
const LONG: Duration = Duration::from_mins(1);

/// How long it may take to be seen that it ended.
const SOON: Duration = Duration::from_secs(1);

/// More memory than a job of one short program needs.
const MUCH_MIB: u64 = 512;

/// The most memory that a process ever had.
fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) / 1024
}

fn odd_log(stage: &Stage, script: &str) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    // Not all of the machine's memory, if it falls.
    let below = ["sh", "-c", "ulimit -v 8000000; exec \"$0\" \"$@\""];
    let mut live = start_program(&world, Some(&below), script, &[])?;
    let (mut most, pid) = (0, live.pid());
    live.look_for(LONG, || {
        most = most.max(peak_mib(pid));
        Ok(most > MUCH_MIB)
    })?;
    let end = live.ends_within(if most > MUCH_MIB { Duration::ZERO } else { SOON })?;
    let ended = most <= MUCH_MIB && end.as_ref().is_some_and(|end| end.code == Some(0));
    let told = end.map_or_else(|| format!("it was not over after {} s", LONG.as_secs()), |end| end.told());
    let told = if most > MUCH_MIB { format!("it had {most} MiB") } else { told };
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("what is read of {WORKSPACE}/: {held}, {told}")))
}
