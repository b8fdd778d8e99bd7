//! What a child inherits, and what outlives its parent (findings 2, 7, 15, 18).

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::python::{
    PYTHON, call, children, comes_true, give_away, is_alive, job, left, run_program, server, start_program, with_word,
    world,
};
use crate::scenario::world::Stage;
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const ATTACKS: &[Scenario] = &[
    Scenario {
        number: "2",
        waits: false,
        name: "a program writes another process into the lock that it inherited",
        must: "that process is not killed",
        mark: Mark::Mended,
        play: forged_record,
    },
    Scenario {
        number: "2b",
        waits: false,
        name: "a program reads and writes files that were open in the user's shell",
        must: "none of them is open in it",
        mark: Mark::Mended,
        play: inherited_files,
    },
    Scenario {
        number: "2x",
        waits: false,
        name: "a program unlocks the lock that it inherited",
        must: "it has none",
        mark: Mark::Mended,
        play: inherited_lock,
    },
    Scenario {
        number: "7",
        waits: false,
        name: "a daemon that a tool server started approves the server's own call",
        must: "the call is not made",
        mark: Mark::Mended,
        play: daemon_approves,
    },
    Scenario {
        number: "7c",
        waits: false,
        name: "a program of a job starts a job of its own",
        must: "no second run",
        mark: Mark::Mended,
        play: |stage| own_job(stage, "\"$1\" $start"),
    },
    Scenario {
        number: "7d",
        waits: false,
        name: "the same, from below a hundred shells",
        must: "no second run",
        mark: Mark::Mended,
        play: |stage| {
            own_job(
                stage,
                "export f='if [ $1 -gt 0 ]; then sh -c \"$f\" sh $(($1 - 1)) \"$2\"; true; else \"$2\" $start; fi'; \
                 export start; sh -c \"$f\" sh 100 \"$1\"",
            )
        },
    },
    Scenario {
        number: "7e",
        waits: false,
        name: "the same, in a process namespace of its own",
        must: "no second run",
        mark: Mark::Mended,
        play: |stage| own_job(stage, "unshare -Ur -p -f --mount-proc \"$1\" $start"),
    },
    Scenario {
        number: "7f",
        waits: false,
        name: "the same, where /proc is an empty folder",
        must: "no second run",
        mark: Mark::Mended,
        play: |stage| {
            own_job(stage, "export start; unshare -Ur -m sh -c 'mount -t tmpfs none /proc && \"$0\" $start' \"$1\"")
        },
    },
    Scenario {
        number: "7g",
        waits: false,
        name: "the same, where the shim shows another process's command line",
        must: "no second run",
        mark: Mark::Mended,
        play: |stage| {
            own_job(
                stage,
                "export start; unshare -Ur -m sh -c 'for line in /proc/[0-9]*/cmdline; do \
                 if grep -q __shim $line; then mount --bind /proc/self/cmdline $line || exit 9; fi; done; \"$0\" $start' \"$1\"",
            )
        },
    },
    Scenario {
        number: "7b",
        waits: false,
        name: "a daemon that a tool server started outlives it",
        must: "it ends with the job",
        mark: Mark::Mended,
        play: daemon_stays,
    },
    Scenario {
        number: "15",
        waits: false,
        name: "a tool server reads the key of the model provider out of the program's environment",
        must: "it cannot (as a user who is not root)",
        mark: Mark::Mended,
        play: key_in_environment,
    },
    Scenario {
        number: "15x",
        waits: false,
        name: "another program of the user reads the client's keys out of the gateway's bridge, or has it leave them in a core file",
        must: "it cannot (as a user who is not root)",
        mark: Mark::Mended,
        play: keys_in_the_bridge,
    },
    Scenario {
        number: "18",
        waits: false,
        name: "program, shim and tool server are killed at once while a command runs",
        must: "the command ends",
        mark: Mark::Mended,
        play: |stage| killed_at_once(stage, 4_000_000, |word| format!("sleep {word}")),
    },
    Scenario {
        number: "18x",
        waits: false,
        name: "the same while a daemon runs that the command left: forked twice, in a session of its own, deaf to signals",
        must: "the daemon ends",
        mark: Mark::Mended,
        play: |stage| {
            killed_at_once(stage, 7_000_000, |word| {
                format!("trap '' HUP INT TERM; (setsid sh -c 'cd /; env -i sleep {word} & exit 0' &); exec sleep 600")
            })
        },
    },
];

/// A process of the user, in a session of its own; killed when this is dropped.
struct Victim(std::process::Child);

impl Victim {
    fn start() -> anyhow::Result<Self> {
        let mut command = Command::new("setsid");
        command.args(["sleep", "3600"]).stdin(Stdio::null()).stdout(Stdio::null());
        let victim = Self(command.spawn().context("start the victim")?);
        ensure!(comes_true(Duration::from_secs(5), || session_of(victim.0.id()) == Some(victim.0.id())), "no session");
        Ok(victim)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn stat_field(pid: u32, field: usize) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(field - 3)?.parse().ok()
}

fn session_of(pid: u32) -> Option<u32> {
    stat_field(pid, 6).and_then(|session| session.try_into().ok())
}

fn forged_record(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut victim = Victim::start()?;
    let pid = victim.0.id();
    let world = world(stage)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let record =
        json!({"pid": pid, "start_ticks": stat_field(pid, 22), "boot_id": boot.trim(), "server": "ua", "command": "x"});
    let script = format!(
        "exec {PYTHON} -c 'import os,sys\nfor f in range(3,64):\n try:\n  os.ftruncate(f,0); os.pwrite(f,sys.argv[1].encode(),0)\n except OSError: pass' \"$1\""
    );
    let end = run_program(&world, &script, &[&record.to_string()])?;
    // An ordinary end fences nothing that is still known; a resume looks at all that is left.
    let again = world.run(&["resume", "r"])?;
    let lives = victim.0.try_wait()?.is_none();
    let held = if lives { "held" } else { "FELL, the user's process was killed" };
    Ok(Verdict::of(lives, format!("the record in the lock: {held}; {}, then {}", end.told(), again.told())))
}

fn inherited_files(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let (key, log) = (world.path("home/id_rsa"), world.path("home/log"));
    fs::write(&key, "PRIVATE KEY")?;
    fs::write(&log, "")?;
    let shell = format!("exec 7<'{}' 8>>'{}'; exec \"$0\" \"$@\"", key.display(), log.display());
    let script = "cat <&7 >stolen; echo evil >&8";
    let end = start_program(&world, Some(&["sh", "-c", &shell]), script, &[])?.wait()?;
    let (read, wrote) = (!left(&world, "stolen").is_empty(), !fs::read_to_string(&log)?.is_empty());
    let held = match (read, wrote) {
        (false, false) => "held",
        (true, _) => "FELL, the key was read",
        (false, true) => "FELL, the log was written",
    };
    Ok(Verdict::of(!read && !wrote, format!("open files: {held}, {}", end.told())))
}

fn inherited_lock(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let end = run_program(&world, "ls -l /proc/self/fd >fds; exit 0", &[])?;
    let fds = left(&world, "fds");
    ensure!(fds.contains("fds"), "the program did not see its own files: {fds}");
    let is_open = fds.contains("/locks/");
    let held = if is_open { "FELL, it is open in the program" } else { "held" };
    Ok(Verdict::of(!is_open, format!("the lock of the tool server: {held}, {}", end.told())))
}

/// A policy by which `post` is asked about first.
const ASKED: &str = "[[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\napproval = \"ask\"\n\
    [[rule]]\nid = \"daemon\"\nname = \"daemon\"\nside_effect_class = \"read_only\"\n";

fn daemon_approves(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let (root, sent, said) = (world.path("root"), world.path("sent"), world.path("said"));
    // Until the process that asked is gone, and some more.
    let script = format!(
        "ua='{0}'; r='{1}'; for i in $(seq 300); do q=$($ua questions --json --root $r 2>/dev/null | grep -o 'q_[0-9a-z-]*' | head -1); \
         if [ -n \"$q\" ]; then $ua answer $q approve --root $r >>'{2}' 2>&1 && exit 0; fi; sleep 0.1; done",
        world.program().display(),
        root.display(),
        said.display()
    );
    let word = format!("{}", 6_000_000 + std::process::id());
    let daemon = call("mcp__shop__daemon", &json!({"script": script, "home": world.path("home"), "word": word}));
    let post = call("mcp__shop__post", &json!({"file": sent}));
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), ASKED)?;
    job(&world, &json!({}), &[daemon, post])?;
    world.start_job(&[])?.wait()?.must(75)?;
    // The daemon is done, or was ended.
    let gone = comes_true(Duration::from_mins(1), || with_word(&word).is_empty());
    ensure!(gone, "the daemon looks on");
    let answered = world.questions()?.is_empty();
    let again = world.resume()?;
    let is_sent = sent.exists();
    let held = if is_sent || answered { "FELL, a daemon answered" } else { "held" };
    Ok(Verdict::of(!is_sent && !answered, format!("answers of a person: {held}, resumed with {}", again.told())))
}

/// A program of a job, not confined, that has the program under test start a job: `$1` is the program, `$start` what it is to do.
fn own_job(stage: &Stage, script: &str) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.set("UA_COMMAND_SANDBOX", "off");
    world.write("own.script.json", &json!({"turns": [{"text": "Done."}]}).to_string())?;
    let own = json!({"objective": "x", "model": {"provider": "scripted", "script": "own.script.json"}, "tools": {"builtin": false}});
    world.write("own.json", &own.to_string())?;
    let (job, root, program) = (world.path("work/own.json"), world.path("root"), world.program().display().to_string());
    let script = format!(
        "start='job {} --run-id own --root {}'; {{ {script}; }} >tried 2>&1; echo ended >>tried",
        job.display(),
        root.display()
    );
    let end = run_program(&world, &script, &[&program])?;
    let tried = left(&world, "tried");
    ensure!(tried.contains("ended") && !tried.contains("unshare:"), "the program did not get to it: {tried}");
    let runs = world.json(&["runs", "list"])?;
    let is_there = runs.to_string().contains("\"own\"");
    let held = if is_there { "FELL, it runs" } else { "held" };
    Ok(Verdict::of(!is_there, format!("a job of a job: {held}, {}", end.told())))
}

fn daemon_stays(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    server(&world, "servers.json", &[])?;
    let word = format!("{}", 3_000_000 + std::process::id());
    let script = "exec sleep \"$1\"";
    let daemon = call("mcp__shop__daemon", &json!({"script": script, "home": "/", "word": word}));
    job(&world, &json!({}), &[daemon])?;
    let policy = "[[rule]]\nid = \"daemon\"\nname = \"daemon\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let end = world.run_job(&[])?.must(0)?;
    let stays = !with_word(&word).is_empty();
    for pid in with_word(&word) {
        end_process(pid)?;
    }
    let held = if stays { "FELL, it lives on" } else { "held" };
    Ok(Verdict::of(!stays, format!("the end of a tool server: {held}, {}", end.told())))
}

fn end_process(pid: u32) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process has a number")?;
    // It may have gone by itself.
    kill_process(pid, Signal::KILL).ok();
    Ok(())
}

fn key_in_environment(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.set("ANTHROPIC_API_KEY", "sk-ant-attack-canary");
    server(&world, "servers.json", &[])?;
    fs::create_dir(world.path("seen"))?;
    let seen = world.path("seen/environ");
    job(&world, &json!({}), &[call("mcp__shop__environment", &json!({"file": seen}))])?;
    let policy = "[[rule]]\nid = \"environment\"\nname = \"environment\"\nside_effect_class = \"read_only\"\n";
    fs::create_dir_all(world.path("home/.config/ua"))?;
    fs::write(world.path("home/.config/ua/policy.toml"), policy)?;
    let args = ["job", "job.json", "--run-id", "r", "--mcp-config", "servers.json"];
    // Root may look into everything; the promise is to everybody else.
    let end = if rustix::process::geteuid().is_root() {
        give_away(&world.path(""))?;
        let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
        world.start_below(Some(&other), &args)?.wait()?
    } else {
        world.run(&args)?
    };
    let found =
        String::from_utf8_lossy(&fs::read(&seen).with_context(|| format!("{}: {}", end.told(), end.err))?).into_owned();
    let has_key = found.contains("sk-ant-attack-canary");
    let held = if has_key { "FELL, the key was read" } else { "held" };
    Ok(Verdict::of(!has_key, format!("the program's environment: {held}, {}", end.told())))
}

/// A client of the gateway that looks at its own bridge as any other program of the user could.
const LOOKS_AT_BRIDGE: &str = r#"
import json, subprocess, sys

ua, rest = sys.argv[1], sys.argv[2:]
bridge = subprocess.Popen([ua] + rest, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
bridge.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}) + "\n")
bridge.stdin.flush()
answered = "serverInfo" in bridge.stdout.readline()
try:
    found = open(f"/proc/{bridge.pid}/environ", "rb").read().decode(errors="replace")
except OSError as error:
    found = str(error)
core = next(line for line in open(f"/proc/{bridge.pid}/limits") if line.startswith("Max core"))
print(json.dumps({"answered": answered, "found": found, "core": core.split()[4:6]}), flush=True)
bridge.kill()
subprocess.run([ua, "gateway", "stop"], capture_output=True)
"#;

fn keys_in_the_bridge(stage: &Stage) -> anyhow::Result<Verdict> {
    let mut world = world(stage)?;
    world.set("ANTHROPIC_API_KEY", "sk-ant-attack-canary");
    world.name_no_root();
    world.write("looks.py", LOOKS_AT_BRIDGE)?;
    let client = [PYTHON, "looks.py"];
    let gateway = ["gateway", "--name", "s", "--", PYTHON, "attacker.py"];
    let live = if rustix::process::geteuid().is_root() {
        give_away(&world.path(""))?;
        let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
        world.start_below(Some(&[&other[..], &client].concat()), &gateway)?
    } else {
        world.start_below(Some(&client), &gateway)?
    };
    let end = live.ends_within(Duration::from_mins(1))?.context("the client did not end")?.must(0)?;
    let said: serde_json::Value = serde_json::from_str(&end.out)?;
    ensure!(said["answered"] == true, "the bridge answered nothing: {said}");
    let has_key = said["found"].as_str().is_some_and(|found| found.contains("sk-ant-attack-canary"));
    let leaves_core = said["core"] != json!(["0", "0"]);
    let held = match (has_key, leaves_core) {
        (false, false) => "held",
        (true, _) => "FELL, the key was read",
        (false, true) => "FELL, it would leave a core file",
    };
    Ok(Verdict::of(!has_key && !leaves_core, format!("the bridge's environment: {held}")))
}

/// `word` is what the command is found by, of this scenario alone.
fn killed_at_once(stage: &Stage, word: u32, command: impl Fn(&str) -> String) -> anyhow::Result<Verdict> {
    let world = world(stage)?;
    let word = format!("{}", word + std::process::id());
    let mut live = start_program(&world, None, &command(&word), &[])?;
    live.until("the command to run", || Ok(with_word(&word).len() == 1))?;
    let ua = live.pid();
    let shims = children(ua);
    let servers: Vec<u32> = shims.iter().flat_map(|shim| children(*shim)).collect();
    ensure!(!shims.is_empty() && !servers.is_empty(), "there is no shim with a server: {shims:?} {servers:?}");
    let all: Vec<u32> = [ua].into_iter().chain(shims).chain(servers).collect();
    for pid in &all {
        end_process(*pid)?;
    }
    let ended = comes_true(Duration::from_mins(1), || with_word(&word).is_empty());
    for pid in with_word(&word).into_iter().filter(|pid| is_alive(*pid)) {
        end_process(pid)?;
    }
    let held = if ended { "held" } else { "FELL, the command lives on" };
    Ok(Verdict::of(ended, format!("the end of everything above a command: {held}")))
}
