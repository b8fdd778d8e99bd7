//! Finding 7, and those of 9 about copies of the database and `effects.log`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::scenario::server::{Step, Then};
use crate::scenario::terminal::Terminal;
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "7",
        waits: true,
        name: "the database is locked while an answer arrives",
        must: "the answer in hand is kept: nobody is asked whether it happened",
        mark: Mark::Mended,
        play: locked_while_answered,
    },
    Scenario {
        number: "9a",
        waits: false,
        name: "a copy put back while a resume stands at the trust prompt",
        must: "nothing is sent that the database in place does not know",
        mark: Mark::Mended,
        play: restored_below_a_prompt,
    },
    Scenario {
        number: "9d-",
        waits: false,
        name: "a copy put back that does not know a message, with a whole effects.log",
        must: "one message: the run is not driven on (exit 74)",
        mark: Mark::Control,
        play: |stage| restored(stage, ""),
    },
    Scenario {
        number: "9d",
        waits: false,
        name: "the same behind half a line of effects.log",
        must: "one message: the run is not driven on (exit 74)",
        mark: Mark::Mended,
        play: |stage| restored(stage, "{\"at\":\"2026-"),
    },
];

const POLICY: &str = "[[rule]]\nid = \"look\"\nname = \"look\"\nside_effect_class = \"read_only\"\n\
    [[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\non_unknown = \"hold\"\n";

fn use_of(tool: &str) -> Value {
    json!({"tools": [{"name": format!("mcp__shop__{tool}"), "input": {"text": "hello"}}]})
}

/// How long the database stays locked behind the answer, when the program is still at it. Time is the subject here.
const LOCKED: Duration = Duration::from_secs(20);

fn locked_while_answered(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(stage, Box::new(|_| Step::done(Then::AnswerAfter("the lock"))))?;
    world.tools(&["post"], &[])?;
    world.job(&json!({}), POLICY, &json!({"turns": [use_of("post"), {"text": "Done."}]}))?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "post", 1)?;
    let Some(lock) = Lock::take(&world.path("root/runtime_state.db"))? else {
        return Ok(Verdict::Skipped(
            Lack::Promised,
            "neither sqlite3 nor python3 is installed, so nobody can lock the database".to_owned(),
        ));
    };
    world.servers.release("the lock");
    live.look_for(LOCKED, || Ok(false))?;
    lock.release()?;
    let first = live.wait()?;
    let last = if first.code == Some(0) { None } else { Some(world.resume()?) };
    let asked = world.questions()?.len();
    let told =
        last.as_ref().map_or_else(|| first.told(), |last| format!("{}, resumed with {}", first.told(), last.told()));
    let sent = world.effects("post");
    ensure!(sent == 1, "{sent} messages were sent: {told}");
    Ok(Verdict::of(asked == 0, format!("{asked} question(s) about a call that was answered, {told}")))
}

/// A program of others that holds the database's write lock.
struct Lock {
    child: Child,
}

impl Lock {
    /// Takes the lock; `None` where no program can.
    fn take(database: &Path) -> anyhow::Result<Option<Self>> {
        const SCRIPT: &str = "import sqlite3, sys\n\
            connection = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n\
            connection.execute('BEGIN IMMEDIATE')\nprint('locked', flush=True)\nsys.stdin.readline()\nconnection.execute('ROLLBACK')\n";
        let mut shell = Command::new("sqlite3");
        shell.arg("-batch").arg(database);
        let mut python = Command::new("python3");
        python.args(["-c", SCRIPT]).arg(database);
        for (mut command, first) in [(shell, ".timeout 60000\nBEGIN IMMEDIATE;\nSELECT 'locked';\n"), (python, "")] {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
            let Ok(mut child) = command.spawn() else { continue };
            child.stdin.as_mut().context("the lock has an input")?.write_all(first.as_bytes())?;
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().context("the lock has an output")?).read_line(&mut line)?;
            ensure!(line.trim() == "locked", "the database was not locked: {line:?}");
            return Ok(Some(Self { child }));
        }
        Ok(None)
    }

    fn release(mut self) -> anyhow::Result<()> {
        let mut input = self.child.stdin.take().context("the lock has an input")?;
        writeln!(input, "ROLLBACK;")?;
        drop(input);
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A world with a job that stops before its message, which is met by `first`; and where a copy of the database is to be.
fn stopped(stage: &Stage, first: Then) -> anyhow::Result<(Outside, String)> {
    let world = Outside::new(
        stage,
        Box::new(move |call| match (call.tool.as_str(), call.nth) {
            ("look", _) => Step::not_done(Then::Answer),
            (_, 1) => Step::done(first.clone()),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&["look", "post"], &[])?;
    let turns = json!([use_of("look"), use_of("post"), {"text": "Done."}]);
    world.job(&json!({"budgets": {"max_turns": 1}}), POLICY, &json!({ "turns": turns }))?;
    let copy = world.path("copy.db").display().to_string();
    Ok((world, copy))
}

/// A process stands at a question, before it drives anything, while a copy takes the place of the database.
fn restored_below_a_prompt(stage: &Stage) -> anyhow::Result<Verdict> {
    let (world, copy) = stopped(stage, Then::Answer)?;
    // Found without being named: the one that a person has to let in.
    std::fs::rename(world.path("work/servers.json"), world.path("work/.mcp.json"))?;
    world.run(&["trust", "--yes", "--allow-unpinned"])?.must(0)?;
    world.run(&["job", "job.json", "--run-id", "r"])?.must(75)?;
    world.run(&["db", "backup", &copy])?.must(0)?;
    world.run(&["trust", "--revoke", ".mcp.json"])?.must(0)?;
    let mut terminal = Terminal::start(&world, &["resume", "r", "--max-turns", "+10"])?;
    terminal.until_it_asks()?;
    let restore = world.run(&["db", "restore", &copy])?;
    terminal.type_line("y")?;
    let code = terminal.end()?;
    let sent = world.effects("post");
    let status = world.status("r")?;
    Ok(Verdict::of(
        sent == 0 || status == "succeeded",
        format!(
            "restore: {}; the process that was there before: exit {code}, {sent} message(s) sent; the database in place says {status}",
            restore.told()
        ),
    ))
}

/// A copy is made, the log ends in `half` a line, the run dies while its message is on its way, the copy is put back and the run resumed.
fn restored(stage: &Stage, half: &str) -> anyhow::Result<Verdict> {
    let (world, copy) = stopped(stage, Then::Hang)?;
    world.run_job(&[])?.must(75)?;
    world.run(&["db", "backup", &copy])?.must(0)?;
    let log = world.path("root/effects.log");
    let mut file = std::fs::File::options().create(true).append(true).open(log)?;
    file.write_all(half.as_bytes())?;
    let more = ["resume", "r", "--max-turns", "+10"];
    let mut live = world.start(&more)?;
    world.until_call(&mut live, "post", 1)?;
    live.kill()?;
    world.run(&["db", "restore", &copy])?.must(0)?;
    let end = world.run(&more)?;
    let sent = world.effects("post");
    Ok(Verdict::of(sent == 1 && end.code == Some(74), format!("{sent} message(s), {}", end.told())))
}
