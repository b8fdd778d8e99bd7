//! Doors that a later audit found beside those that were closed: what replaces a root's database, or stands beside it, what a named file says by
//! the time of a resume, what a program leaves for others, and the same message in other dress.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::python::{PYTHON, WORKSPACE, call, job, run_program, server, starts, world};
use crate::scenario::world::{End, Outside, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "3c",
        waits: false,
        name: "a checkout puts its own database into a root that is the user's own",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| replaced_beside(stage, Brought::Database),
    },
    Scenario {
        number: "3d",
        waits: false,
        name: "a checkout puts a write-ahead log beside the user's own database",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| replaced_beside(stage, Brought::Log),
    },
    Scenario {
        number: "3e",
        waits: false,
        name: "a checkout puts a journal beside the user's own database",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| replaced_beside(stage, Brought::Journal),
    },
    Scenario {
        number: "3i",
        waits: false,
        name: "a write-ahead log is unpacked into the one that the user's own `ua` left when it was killed",
        must: "nothing is started (exit 2)",
        mark: Mark::Mended,
        play: |stage| replaced_beside(stage, Brought::IntoLog),
    },
    Scenario {
        number: "3y",
        waits: false,
        name: "a file of servers that the user named says another program by the time of a resume",
        must: "it is not started before somebody accepts it",
        mark: Mark::Mended,
        play: named_file_changed,
    },
    Scenario {
        number: "10z",
        waits: false,
        name: "a program leaves a set-user-id file in a workspace that it opens to others",
        must: "the file has no such bit",
        mark: Mark::Mended,
        play: set_user_id,
    },
    Scenario {
        number: "10v",
        waits: false,
        name: "a program of root gives a file in its workspace capabilities of the machine",
        must: "the file has none",
        mark: Mark::Mended,
        play: capabilities_of_a_file,
    },
    Scenario {
        number: "14x",
        waits: false,
        name: "the same mail with subjects of which nothing counts",
        must: "the second one is asked about",
        mark: Mark::Mended,
        play: subject_of_nothing,
    },
    Scenario {
        number: "14y",
        waits: false,
        name: "the same message to a channel in other dress",
        must: "the second one is asked about",
        mark: Mark::Mended,
        play: reworded_message,
    },
];

/// What a checkout brings into a root that it knows the place of.
#[derive(Clone, Copy)]
enum Brought {
    /// A database of its own.
    Database,
    /// A log whose pages change a row of the database that is there.
    Log,
    /// The same, written into the file of the log that is there, as what unpacks an archive in place does.
    IntoLog,
    /// A journal whose pages do.
    Journal,
}

/// Keeps a database open for reading, so that the log stays there when another process closes it, and when this one is killed.
const HOLD: &str = r"
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1], isolation_level=None)
rows.execute('begin')
rows.execute('select count(*) from runs').fetchone()
print('held', flush=True)
sys.stdin.read()
";

/// Writes what SQLite takes for the pages of a database: those of a copy in which a run starts another file of servers.
const FORGE: &str = r"
import json, shutil, sqlite3, struct, sys
database, servers, suffix = sys.argv[1:]
copy = database + '.copy'
shutil.copy(database, copy)
rows = sqlite3.connect(copy, isolation_level=None)
launch = json.loads(rows.execute('select launch_json from runs').fetchone()[0])
launch['mcp_config'] = servers
# As in a run of a version that kept no digests of the servers.
launch.pop('known_servers', None)
rows.execute('update runs set launch_json=?', (json.dumps(launch),))
rows.execute('pragma wal_checkpoint(truncate)')
size = rows.execute('pragma page_size').fetchone()[0]
rows.close()
data = open(copy, 'rb').read()
pages = [data[at:at + size] for at in range(0, len(data), size)]

def added(data, first, second):
    words = struct.unpack('<%dI' % (len(data) // 4), data)
    for one, other in zip(words[::2], words[1::2]):
        first = first + one + second & 0xffffffff
        second = second + other + first & 0xffffffff
    return first, second

if suffix == '-wal':
    out = struct.pack('>6I', 0x377f0682, 3007000, size, 0, 1, 2)
    sums = added(out, 0, 0)
    out += struct.pack('>2I', *sums)
    for number, page in enumerate(pages, 1):
        head = struct.pack('>2I', number, len(pages) if number == len(pages) else 0)
        sums = added(page, *added(head, *sums))
        out += head + struct.pack('>4I', 1, 2, *sums) + page
else:
    out = struct.pack('>8s5I', bytes.fromhex('d9d505f920a163d7'), len(pages), 7, len(pages), 512, size).ljust(512, b'\0')
    for number, page in enumerate(pages, 1):
        out += struct.pack('>I', number) + page + struct.pack('>I', 7 + sum(page[size - 200:0:-200]) & 0xffffffff)
open(database + suffix, 'wb').write(out)
";

/// The user's own root, with a run of theirs that stopped at its budget; then the checkout brings something into it.
fn replaced_beside(stage: &Stage, brought: Brought) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    let started = world.path("started");
    server(&world, "theirs.json", &[&format!("started={}", started.display())])?;
    server(&world, "servers.json", &[])?;
    world.name_no_root();
    let page = call("mcp__shop__page", &json!({}));
    job(&world, &json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}}), &[page.clone(), page])?;
    let root = world.path("work/AGENT_RUN_WORKSPACES");
    let database = root.join("runtime_state.db");
    let run = |name: &str, servers: &str| -> anyhow::Result<()> {
        let end = world.run(&["job", "job.json", "--run-id", name, "--mcp-config", servers])?;
        ensure!(end.code == Some(75), "the run did not stop: {} {}", end.told(), end.err);
        Ok(())
    };
    let forge_into = |suffix: &str| -> anyhow::Result<()> {
        let servers = world.path("work/theirs.json");
        let made = Command::new(PYTHON).args(["-c", FORGE]).args([&database, &servers]).arg(suffix).status();
        ensure!(made.context("forge it")?.success(), "nothing was forged");
        Ok(())
    };
    let forge = |suffix: &str| -> anyhow::Result<()> {
        run("own", "servers.json")?;
        forge_into(suffix)
    };
    match brought {
        Brought::Database => {
            // The attacker's, made at the same place by another user's `ua`.
            run("own", "theirs.json")?;
            ensure!(started.exists(), "the attacker's server was not started");
            fs::remove_file(&started)?;
            fs::rename(&root, world.path("brought"))?;
            fs::rename(world.path("home"), world.path("attackers_home"))?;
            fs::create_dir_all(world.path("home/.config"))?;
            run_once(&world, "mine")?;
            put(&world.path("brought/runtime_state.db"), &database)?;
            fs::rename(world.path("brought").join(WORKSPACE), root.join(WORKSPACE))?;
        }
        Brought::Log => forge("-wal")?,
        Brought::IntoLog => {
            run("own", "servers.json")?;
            let mut holder = Command::new(PYTHON)
                .args(["-c", HOLD])
                .arg(&database)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("hold the database")?;
            let mut said = [0; 5];
            let holds = holder.stdout.take().is_some_and(|mut output| output.read_exact(&mut said).is_ok());
            let end = start_once(&world, "more");
            holder.kill().ok();
            holder.wait()?;
            ensure!(holds, "nobody held the database");
            end?;
            let log = root.join("runtime_state.db-wal");
            ensure!(fs::metadata(&log).is_ok_and(|log| log.len() > 0), "no log was left");
            forge_into("-wal")?;
        }
        Brought::Journal => {
            forge("-journal")?;
            // Whoever writes first rolls it back.
            let end = start_once(&world, "next")?;
            if end.code == Some(2) {
                ensure!(!started.exists(), "the attacker's program was started");
            }
        }
    }
    let end = world.run(&["resume", "own", "--max-turns", "+5"])?;
    let ran = started.exists();
    let held = if ran { "FELL, the attacker's program was started" } else { "held" };
    Ok(Verdict::of(!ran && end.code == Some(2), format!("what is in the root: {held}, {}", end.told())))
}

/// A run of the user's own, which makes the root theirs.
fn run_once(world: &Outside, name: &str) -> anyhow::Result<()> {
    start_once(world, name)?.must(0).map(drop)
}

fn start_once(world: &Outside, name: &str) -> anyhow::Result<End> {
    job(world, &json!({"artifacts": {"workspace_dir": name}, "tools": {"builtin": false}}), &[])?;
    world.run(&["job", "job.json", "--run-id", name])
}

/// As version control puts a file in the place of an ignored one.
fn put(file: &Path, there: &Path) -> anyhow::Result<()> {
    fs::remove_file(there)?;
    fs::copy(file, there)?;
    fs::set_permissions(there, fs::Permissions::from_mode(0o644))?;
    Ok(())
}

fn named_file_changed(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let started = world.path("started");
    server(&world, "servers.json", &[])?;
    let page = call("mcp__shop__page", &json!({}));
    job(&world, &json!({"budgets": {"max_turns": 1}, "tools": {"builtin": false}}), &[page.clone(), page])?;
    let end = world.run(&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"])?;
    ensure!(end.code == Some(75), "the run did not stop: {} {}", end.told(), end.err);
    server(&world, "servers.json", &[&format!("started={}", started.display())])?;
    let end = world.run(&["resume", "r", "--max-turns", "+5"])?;
    let ran = started.exists();
    let held = if ran { "FELL, what became of it was started" } else { "held" };
    Ok(Verdict::of(!ran && end.code != Some(0), format!("the named file: {held}, {}", end.told())))
}

fn set_user_id(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let script = "cp /bin/sh shell && chmod 755 shell; chmod 6755 shell; chmod u+s shell; chmod 755 .";
    let end = run_program(&world, script, &[])?;
    let file = fs::metadata(world.path("root").join(WORKSPACE).join("shell"));
    let mode = file.with_context(|| format!("no file was left: {} {}", end.told(), end.err))?.permissions().mode();
    let fell = mode & 0o6000 != 0;
    let held = if fell { "FELL" } else { "held" };
    Ok(Verdict::of(!fell, format!("rights that are given away: {held}, mode {:o}", mode & 0o7777)))
}

/// Sets each form of `CAP_SETUID` on a file, also as root of a user namespace of its own.
const CAPABILITIES: &str = r"
import os, subprocess, sys
one = '''import os, sys
file = os.open('shell', os.O_RDWR)
os.setxattr(file, 'security.capability', bytes.fromhex(sys.argv[1]))'''
os.close(os.open('shell', os.O_CREAT | os.O_RDWR, 0o755))
for form in ('0100000280000000000000000000000000000000', '010000038000000000000000000000000000000000000000'):
    for way in ([], ['unshare', '-U', '-r']):
        subprocess.run([*way, sys.executable, '-c', one, form])
";

fn capabilities_of_a_file(stage: &Stage) -> anyhow::Result<Verdict> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Verdict::Skipped(Lack::Root, "only root's programs have capabilities to give".to_owned()));
    }
    let world = world(stage)?;
    let tools = json!({"tools": {"builtin": true, "run_command": true}});
    job(&world, &tools, &[starts(&[PYTHON, "-c", CAPABILITIES])])?;
    let end = world.run(&["job", "job.json", "--run-id", "r"])?;
    let file = world.path("root").join(WORKSPACE).join("shell");
    ensure!(file.exists(), "no file was left: {} {}", end.told(), end.err);
    let found = rustix::fs::lgetxattr(&file, "security.capability", &mut [0; 64][..]);
    let held = if found.is_ok() { "FELL" } else { "held" };
    Ok(Verdict::of(found.is_err(), format!("capabilities that are given away: {held}, {}", end.told())))
}

fn subject_of_nothing(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut unasked = Vec::new();
    for (first, second) in [("", "Re:"), ("", "\u{200b}"), ("!", "?"), ("Re:", "Fwd:")] {
        let world = world(stage)?;
        let mail = |subject: &str| {
            call("mcp__ua__send_email", &json!({"to": ["ada@example.org"], "subject": subject, "body": "Please pay."}))
        };
        let fields = json!({"tools": {"builtin": true}, "constraints": {"allowed_recipients": ["ada@example.org"]}});
        job(&world, &fields, &[mail(first), mail(second)])?;
        let end = world.run(&["job", "job.json", "--run-id", "r"])?;
        let sent = fs::read_dir(world.path("root/outbox/new")).map_or(0, Iterator::count);
        ensure!(sent >= 1, "no mail was sent: {} {}", end.told(), end.err);
        if sent > 1 {
            unasked.push(second.escape_unicode().to_string());
        }
    }
    let held = if unasked.is_empty() { "held".to_owned() } else { format!("FELL for {} of 4 pairs", unasked.len()) };
    Ok(Verdict::of(unasked.is_empty(), format!("mails without a subject: {held}")))
}

fn reworded_message(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut unasked = Vec::new();
    for text in ["Deploy done!", "deploy done", "Deploy  done", "Deploy\u{200b} done"] {
        let world = world(stage)?;
        server(&world, "servers.json", &[])?;
        let file = world.path("sent").display().to_string();
        let message =
            |text: &str| call("mcp__shop__send_message", &json!({"channel": "C1", "text": text, "file": file}));
        job(&world, &json!({"tools": {"builtin": false}}), &[message("Deploy done"), message(text)])?;
        let end = world.run(&["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"])?;
        let sent = fs::read_to_string(world.path("sent")).unwrap_or_default().lines().count();
        ensure!(sent >= 1, "no message was sent: {} {}", end.told(), end.err);
        if sent > 1 {
            unasked.push(text);
        }
    }
    let held = if unasked.is_empty() { "held".to_owned() } else { format!("FELL for {} of 4 texts", unasked.len()) };
    Ok(Verdict::of(unasked.is_empty(), format!("near-duplicates: {held}")))
}
