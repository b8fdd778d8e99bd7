//! Limits and integrity (findings 12, 19, 20, 21).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;
use std::time::Duration;

use anyhow::ensure;
use serde_json::json;

use super::python::{call, job, server, starts, world};
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Mark, Scenario, Verdict};

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
        number: "21",
        waits: true,
        name: "a Markdown table of 2000 by 200 cells is made a PDF",
        must: "it is refused or done within 30 s and 2 GiB",
        mark: Mark::Mended,
        play: large_table,
    },
    Scenario {
        number: "21x",
        waits: true,
        name: "the schema of a tool's arguments asks for 10^10 checks of one text",
        must: "the run is over within 30 s and 3 GiB",
        mark: Mark::Mended,
        play: knotted_schema,
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

/// A run that ended.
fn ended(stage: &Stage) -> anyhow::Result<Outside> {
    let world = world(stage)?;
    job(&world, &json!({"tools": {"builtin": false}}), &[])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(0)?;
    Ok(world)
}

fn foreign_folder(stage: &Stage) -> anyhow::Result<Verdict> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Verdict::Skipped("only root can give a folder away".to_owned()));
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

fn large_table(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let write = "row=$(printf 'x|%.0s' $(seq 200)); line=$(printf -- '-|%.0s' $(seq 200)); \
        { echo \"|$row\"; echo \"|$line\"; for i in $(seq 2000); do echo \"|$row\"; done; } >table.md";
    let render = call("mcp__ua__render_pdf", &json!({"source": "table.md", "output": "table.pdf"}));
    let fields = json!({"tools": {"builtin": true, "run_command": true}});
    job(&world, &fields, &[starts(&["sh", "-c", write]), render])?;
    // The tool server has so much, and no more.
    let below = ["sh", "-c", "ulimit -v 3000000; exec \"$0\" \"$@\""];
    let live = world.start_below(Some(&below), &["job", "job.json", "--run-id", "r"])?;
    let end = live.ends_within(Duration::from_secs(30))?;
    if end.as_ref().is_some_and(|end| end.code == Some(2) && end.err.contains("render_pdf")) {
        return Ok(Verdict::Skipped("this build renders no PDF".to_owned()));
    }
    ensure!(fs::metadata(world.path("root/w/table.md"))?.len() > 700_000, "there is no large table");
    let ended = end.as_ref().is_some_and(|end| end.code == Some(0));
    let told = end.map_or_else(|| "it was not over after 30 s".to_owned(), |end| end.told());
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("rendering: {held}, {told}")))
}

fn knotted_schema(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let knot = call("mcp__shop__knot", &json!({"q": "[a text]"}));
    job(&world, &json!({"tools": {"builtin": false}}), &[knot])?;
    let policy = "[[rule]]\nid = \"knot\"\nname = \"knot\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let below = ["sh", "-c", "ulimit -v 3000000; exec \"$0\" \"$@\""];
    let job = ["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"];
    let end = world.start_below(Some(&below), &job)?.ends_within(Duration::from_secs(30))?;
    let ended = end.as_ref().is_some_and(|end| end.code == Some(0));
    let told = end.map_or_else(|| "it was not over after 30 s".to_owned(), |end| end.told());
    let held = if ended { "held" } else { "FELL" };
    Ok(Verdict::of(ended, format!("the schema: {held}, {told}")))
}
