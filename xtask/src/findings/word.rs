//! Findings 4, and those of 8 and 9 about questions: a person's word that is lost, and questions that nobody can act on.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::scenario::server::{Step, Then};
use crate::scenario::world::{End, Outside, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "4-",
        waits: false,
        name: "one question, answered abort",
        must: "the run has failed (exit 1), and nothing is done any more",
        mark: Mark::Control,
        play: |stage| two_questions(stage, &[("ONE", "abort")]),
    },
    Scenario {
        number: "4a",
        waits: false,
        name: "two questions of a turn: skip, abort",
        must: "the run has failed (exit 1), and nothing is done any more",
        mark: Mark::Mended,
        play: |stage| two_questions(stage, &[("ONE", "skip"), ("TWO", "abort")]),
    },
    Scenario {
        number: "4b",
        waits: false,
        name: "two questions of a turn: abort for the second, the first left open",
        must: "the run has failed (exit 1), and nothing is done any more",
        mark: Mark::Mended,
        play: |stage| two_questions(stage, &[("TWO", "abort")]),
    },
    Scenario {
        number: "4c",
        waits: true,
        name: "abort for a question about the run, and a kill at each sync of that answer",
        must: "the next resume has failed (exit 1), or the question is still open and can be answered",
        mark: Mark::Mended,
        play: aborted_and_killed,
    },
    Scenario {
        number: "4d",
        waits: false,
        name: "two questions of a turn: skip, execute",
        must: "what was approved is done, or asked about again",
        mark: Mark::Mended,
        play: skipped_and_approved,
    },
    Scenario {
        number: "4e",
        waits: true,
        name: "abort for a question about the run, beside another one that is open",
        must: "the run has failed (exit 1)",
        mark: Mark::Mended,
        play: aborted_beside_another_question,
    },
    Scenario {
        number: "8b",
        waits: false,
        name: "the question of a sub-agent, answered while its sibling works",
        must: "the run goes on by itself (exit 0)",
        mark: Mark::Mended,
        play: answered_meanwhile,
    },
    Scenario {
        number: "8d",
        waits: true,
        name: "three resumes while a process of an earlier tool server lives",
        must: "one question",
        mark: Mark::Mended,
        play: orphan_asked_about_thrice,
    },
    Scenario {
        number: "8e",
        waits: true,
        name: "abort while a process of an earlier tool server lives",
        must: "the run has failed (exit 1)",
        mark: Mark::Mended,
        play: aborted_beside_orphan,
    },
    Scenario {
        number: "9b",
        waits: true,
        name: "a run that fails while its sub-agent asks",
        must: "no question is left that nobody can act on",
        mark: Mark::Mended,
        play: failed_above_a_question,
    },
];

/// `ask` and `pay` are approved by a person, each time; `post` is not.
const POLICY: &str = "[[rule]]\nid = \"asked\"\npatterns = [\"ask\", \"pay\"]\nside_effect_class = \"external\"\non_unknown = \"hold\"\napproval = \"ask\"\n\
    [[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\non_unknown = \"hold\"\n";

fn use_of(tool: &str, text: &str) -> Value {
    json!({"name": format!("mcp__shop__{tool}"), "input": {"text": text}})
}

/// A run that waits with a question about each of two calls of one turn, and goes on with `post` behind them.
fn waiting_with_two(stage: &Stage, calls: usize) -> anyhow::Result<Outside> {
    let world = Outside::new(stage, Box::new(|_| Step::done(Then::Answer)))?;
    world.tools(&["ask", "pay", "post"], &[])?;
    let both = [use_of("ask", "ONE"), use_of("pay", "TWO")];
    let turns = json!([{"tools": both[..calls]}, {"tools": [use_of("post", "behind them")]}, {"text": "Done."}]);
    world.job(&json!({}), POLICY, &json!({ "turns": turns }))?;
    world.run_job(&[])?.must(75)?;
    let asked = world.questions()?.len();
    ensure!(asked == calls, "{asked} questions, not {calls}");
    Ok(world)
}

/// The answers, and what comes of the run.
fn two_questions(stage: &Stage, answers: &[(&str, &str)]) -> anyhow::Result<Verdict> {
    let world = waiting_with_two(stage, if answers.len() == 1 && answers[0].0 == "ONE" { 1 } else { 2 })?;
    for (about, choice) in answers {
        world.answer(&world.question_about(about)?, choice)?;
    }
    let end = world.resume()?;
    let (status, posted) = (world.status("r")?, world.effects("post"));
    Ok(Verdict::of(
        end.code == Some(1) && status == "failed" && posted == 0,
        format!("{}, the run is {status}, {posted} message(s) sent afterwards", end.told()),
    ))
}

fn skipped_and_approved(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = waiting_with_two(stage, 2)?;
    world.answer(&world.question_about("ONE")?, "skip")?;
    world.answer(&world.question_about("TWO")?, "execute")?;
    let end = world.resume()?;
    let (paid, asked) = (world.effects("pay"), world.questions()?.len());
    Ok(Verdict::of(
        paid == 1 || asked > 0,
        format!("{paid} of 1 approved payment made, {asked} questions, {}", end.told()),
    ))
}

/// More syncs than an answer that ends its run has.
const MOST_SYNCS: u32 = 40;

/// The word itself ends a run that nobody drives, so the kills are those of `ua answer`: behind each the run fails, or the word was not taken yet and
/// its question is still open.
fn aborted_and_killed(stage: &Stage) -> anyhow::Result<Verdict> {
    let traced = Command::new("strace").args(["-f", "-o", "/dev/null", "true"]).stderr(Stdio::null()).status();
    if !traced.is_ok_and(|status| status.success()) {
        return Ok(Verdict::Skipped(
            Lack::Promised,
            "strace is not installed, or tracing is not allowed here".to_owned(),
        ));
    }
    let world = Outside::new(stage, Box::new(|_| Step::done(Then::Answer)))?;
    world.tools(&["post"], &[])?;
    let fields = json!({"stop_conditions": [{"effect": "email.send", "count": 1}]});
    world.job(&fields, "", &json!({"turns": [{"text": "Done."}], "after_end": {"text": "Done, as I said."}}))?;
    world.run_job(&[])?.must(75)?;
    let question = world.question()?;
    // The run as it is now, for each kill anew: at the same place, since paths are stored.
    copy(&world, "root", "kept")?;
    let (mut lost, mut taken) = (Vec::new(), 0);
    for n in 1..=MOST_SYNCS {
        std::fs::remove_dir_all(world.path("root"))?;
        copy(&world, "kept", "root")?;
        let inject = format!("inject=fsync,fdatasync:signal=KILL:when={n}");
        let trace = world.path("strace.txt").display().to_string();
        let strace = ["strace", "-f", "-qq", "-o", &trace, "-e", "trace=fsync,fdatasync", "-e", &inject];
        let said = world.start_below(Some(&strace), &["answer", &question.id, "abort"])?.wait()?;
        if said.code == Some(0) {
            let killed = n - 1;
            ensure!(
                killed > 0 && taken > 0,
                "killed at {killed} syncs, {taken} of them behind the word: nothing is tried"
            );
            let what = format!("killed at {killed} syncs, {taken} of them behind the word; lost at {}", list(&lost));
            return Ok(Verdict::of(lost.is_empty(), what));
        }
        ensure!(said.code.is_none_or(|code| code == 137), "the answer ended with {}: {}", said.told(), said.err);
        if world.resume()?.code == Some(1) {
            taken += 1;
            continue;
        }
        // Nobody was told that it is taken: then it can still be said, and counts.
        let is_open = world.questions()?.iter().any(|open| open.id == question.id);
        if !is_open || world.answer(&question, "abort").is_err() || world.resume()?.code != Some(1) {
            lost.push(n);
        }
    }
    anyhow::bail!("the answer is still killed at its {MOST_SYNCS}th sync")
}

fn list(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "none".to_owned();
    }
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn copy(world: &Outside, from: &str, to: &str) -> anyhow::Result<()> {
    let status = Command::new("cp").arg("-a").arg(world.path(from)).arg(world.path(to)).status().context("run cp")?;
    ensure!(status.success(), "cp failed");
    Ok(())
}

fn answered_meanwhile(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.tool.as_str() {
            "post" => Step::done(Then::AnswerAfter("the answer")),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&["pay", "post"], &[])?;
    let task =
        |prompt: &str| json!({"name": "mcp__ua_agents__task", "input": {"description": prompt, "prompt": prompt}});
    let done = json!({"text": "Done."});
    let script = json!({
        "turns": [{"tools": [task("ALPHA: pay."), task("BETA: post.")]}, done],
        "conversations": [
            {"when": "ALPHA", "turns": [{"tools": [use_of("pay", "invoice 7")]}, done]},
            {"when": "BETA", "turns": [{"tools": [use_of("post", "hello")]}, done]},
        ],
    });
    world.job(&json!({"subagents": {}}), POLICY, &script)?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "post", 1)?;
    live.until("a question of the sub-agent", || world.asks())?;
    world.answer(&world.question()?, "execute")?;
    world.servers.release("the answer");
    let end = live.wait()?;
    let open = world.questions()?.len();
    Ok(Verdict::of(
        end.code == Some(0) && world.effects("pay") == 1,
        format!("{}, {open} questions open, {} of 1 approved payment made", end.told(), world.effects("pay")),
    ))
}

/// A run that was killed beside a process of its tool server which nothing ends.
fn killed_beside_orphan(stage: &Stage) -> anyhow::Result<Outside> {
    let world = with_orphan(stage)?;
    let turns = json!([{"tools": [use_of("post", "first")]}, {"tools": [use_of("post", "second")]}, {"text": "Done."}]);
    world.job(&json!({}), POLICY, &json!({ "turns": turns }))?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "post", 2)?;
    live.kill()?;
    Ok(world)
}

/// A world whose first call of `post` leaves a process behind, and whose second one is never answered.
fn with_orphan(stage: &Stage) -> anyhow::Result<Outside> {
    // The plan is made before the world has a folder, so the name goes by a lock that is filled at once.
    let file = std::sync::Arc::new(std::sync::OnceLock::new());
    let orphan = std::sync::Arc::clone(&file);
    let world = Outside::new(
        stage,
        Box::new(move |call| match (call.tool.as_str(), call.nth) {
            ("post", 1) => Step::done(Then::Orphan(orphan.get().cloned().unwrap_or_default())),
            ("post", 2) => Step::done(Then::Hang),
            _ => Step::done(Then::Answer),
        }),
    )?;
    file.get_or_init(|| world.path("orphan"));
    world.tools(&["pay", "post"], &[])?;
    Ok(world)
}

fn orphan_asked_about_thrice(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = killed_beside_orphan(stage)?;
    for _ in 0..3 {
        world.resume()?.must(75)?;
    }
    let asked = world.questions()?.len();
    ensure!(asked > 0, "nobody asks about the process that was left behind");
    Ok(Verdict::of(asked == 1, format!("{asked} open questions after 3 resumes")))
}

fn aborted_beside_orphan(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = killed_beside_orphan(stage)?;
    world.resume()?.must(75)?;
    world.answer(&world.question()?, "abort")?;
    let end = world.resume()?;
    let status = world.status("r")?;
    Ok(Verdict::of(
        end.code == Some(1) && status == "failed",
        format!("{}, the run is {status}, {} questions open", end.told(), world.questions()?.len()),
    ))
}

/// The run asks about what is missing, and then about a process that was left behind; the second question is answered, and the process goes.
fn aborted_beside_another_question(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = with_orphan(stage)?;
    let fields = json!({"stop_conditions": [{"artifact": "work_products/nobody_writes_it.md"}]});
    let turns = json!([{"tools": [use_of("post", "first")]}, {"text": "Done."}]);
    world.job(&fields, POLICY, &json!({"turns": turns, "after_end": {"text": "Done, as I said."}}))?;
    world.run_job(&[])?.must(75)?;
    let first = world.question()?;
    world.resume()?.must(75)?;
    let second = world.questions()?.into_iter().find(|question| question.id != first.id);
    world.answer(&second.context("nobody asks about the process that was left behind")?, "abort")?;
    std::fs::remove_file(world.path("orphan"))?;
    let end = until_it_fails(&world)?;
    let status = world.status("r")?;
    Ok(Verdict::of(
        end.code == Some(1) && status == "failed",
        format!("{}, the run is {status}, {} questions open", end.told(), world.questions()?.len()),
    ))
}

/// Resumes the run until it has failed: the process that was left behind takes a moment to go, and a resume that finds it waits for it.
fn until_it_fails(world: &Outside) -> anyhow::Result<End> {
    let started = Instant::now();
    loop {
        let end = world.resume()?;
        if end.code == Some(1) || started.elapsed() > SOON {
            return Ok(end);
        }
    }
}

/// How long a run may take to notice that the process is gone.
const SOON: Duration = Duration::from_secs(15);

/// A sub-agent asks, and the run above it is ended by an abort of another question: the one about a process that was left behind.
fn failed_above_a_question(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = with_orphan(stage)?;
    let task = json!({"name": "mcp__ua_agents__task", "input": {"description": "Pay", "prompt": "ALPHA: pay."}});
    let done = json!({"text": "Done."});
    let script = json!({
        "turns": [{"tools": [use_of("post", "first")]}, {"tools": [task]}, done],
        "conversations": [{"when": "ALPHA", "turns": [{"tools": [use_of("pay", "invoice 7")]}, done]}],
    });
    world.job(&json!({"subagents": {}}), POLICY, &script)?;
    world.run_job(&[])?.must(75)?;
    let of_child = world.question()?;
    ensure!(of_child.run != "r", "the question is not that of a sub-agent");
    world.resume()?.must(75)?;
    let about_orphan = world.questions()?.into_iter().find(|question| question.run == "r");
    world.answer(&about_orphan.context("nobody asks about the process that was left behind")?, "abort")?;
    std::fs::remove_file(world.path("orphan"))?;
    let end = until_it_fails(&world)?.must(1)?;
    let left = world.questions()?;
    Ok(Verdict::of(
        left.is_empty(),
        format!(
            "{}, the run is {}, {} question(s) of its sub-agent still open",
            end.told(),
            world.status("r")?,
            left.len()
        ),
    ))
}
