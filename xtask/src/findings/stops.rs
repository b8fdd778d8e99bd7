//! What is left of finding 8: stops that nobody needs, and waits before a question or an answer.

use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use crate::scenario::server::{KEY_ARGUMENT, Step, Then};
use crate::scenario::world::{End, Outside, Stage};
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "8a",
        waits: false,
        name: "two sub-agents side by side want the same declared effect",
        must: "one message, and nobody is asked (exit 0)",
        mark: Mark::Mended,
        play: twins,
    },
    Scenario {
        number: "8f",
        waits: true,
        name: "the answer `happened` is there when a call to a remote server is resumed",
        must: "the resume does not wait: nothing is sent",
        mark: Mark::Mended,
        play: answer_is_there,
    },
    Scenario {
        number: "8g",
        waits: true,
        name: "a lost call to a remote server that is asked about",
        must: "the question comes at once: nothing is sent before it",
        mark: Mark::Mended,
        play: asked_at_once,
    },
];

/// How long the second sub-agent is given to be asked about. Without a question nothing tells that it waits.
const LOOK: Duration = Duration::from_secs(4);

fn twins(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.nth {
            1 => Step::done(Then::AnswerAfter("the twin")),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&["post"], &[])?;
    let policy = format!(
        "[[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
         key_channel = {{ argument = \"{KEY_ARGUMENT}\" }}\neffect_kind = \"comment.post\"\n"
    );
    let task =
        |prompt: &str| json!({"name": "mcp__ua_agents__task", "input": {"description": prompt, "prompt": prompt}});
    let post = json!({"tools": [{"name": "mcp__shop__post", "input": {"text": "It is done."}}]});
    let done = json!({"text": "Done."});
    let script = json!({
        "turns": [{"tools": [task("ALPHA: post."), task("BETA: post.")]}, done],
        "conversations": [{"when": "ALPHA", "turns": [post, done]}, {"when": "BETA", "turns": [post, done]}],
    });
    world.job(&json!({"subagents": {}}), &policy, &script)?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "post", 1)?;
    let asked = live.look_for(LOOK, || world.asks())?;
    world.servers.release("the twin");
    let end = live.wait()?;
    let asked = if asked { "was" } else { "was not" };
    let first = end.told();
    let sent = world.effects("post");
    if end.code == Some(0) {
        return Ok(Verdict::of(sent == 1, format!("{sent} message(s), a person {asked} asked, {first}")));
    }
    let again = world.resume()?;
    let sent = world.effects("post");
    Ok(Verdict::Red(format!(
        "{sent} message(s), a person {asked} asked, {first}; a resume without an answer: {}",
        again.told()
    )))
}

/// What a resume may take that only reads, asks or applies an answer; the horizon that it must not wait for is 30 s.
const SHORT: Duration = Duration::from_secs(15);

/// A payment to a remote server is on its way when the run is killed.
fn killed(stage: &Stage) -> anyhow::Result<Outside> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.nth {
            1 => Step::done(Then::Hang),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&[], &["pay"])?;
    let policy = "[[rule]]\nid = \"pay\"\nname = \"pay\"\nside_effect_class = \"external\"\non_unknown = \"hold\"\n";
    let pay = json!({"tools": [{"name": "mcp__bank__pay", "input": {"to": "Ada", "amount": 100}}]});
    world.job(&json!({}), policy, &json!({"turns": [pay, {"text": "Paid."}]}))?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "pay", 1)?;
    live.kill()?;
    Ok(world)
}

fn timed_resume(world: &Outside) -> anyhow::Result<(End, Duration)> {
    let started = Instant::now();
    let end = world.resume()?;
    Ok((end, started.elapsed()))
}

fn asked_at_once(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = killed(stage)?;
    let (end, took) = timed_resume(&world)?;
    let end = end.must(75)?;
    let asked = world.questions()?.len();
    ensure!(asked == 1, "{asked} questions, not one");
    Ok(Verdict::of(took < SHORT, format!("the question came after {:.1} s, {}", took.as_secs_f64(), end.told())))
}

fn answer_is_there(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = killed(stage)?;
    world.resume()?.must(75)?;
    world.answer(&world.question()?, "happened")?;
    let (end, took) = timed_resume(&world)?;
    let end = end.must(0)?;
    ensure!(world.effects("pay") == 1, "paid {} times", world.effects("pay"));
    Ok(Verdict::of(took < SHORT, format!("the answer was looked at after {:.1} s, {}", took.as_secs_f64(), end.told())))
}
