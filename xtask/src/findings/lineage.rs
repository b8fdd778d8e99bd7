//! Findings 2, 3 and 5, and one of 8: what sub-agents and forks of a lineage did, and what the others of it see of that.

use serde_json::{Value, json};

use crate::scenario::server::{Step, Then};
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "2-",
        waits: false,
        name: "a fork of a run that deployed itself",
        must: "one deployment: the fork asks",
        mark: Mark::Control,
        play: |stage| forked_afterwards(stage, &deploy()),
    },
    Scenario {
        number: "2a",
        waits: false,
        name: "a fork of a run whose sub-agent deployed",
        must: "one deployment: the fork asks",
        mark: Mark::Mended,
        play: |stage| forked_afterwards(stage, &task()),
    },
    Scenario {
        number: "2b",
        waits: false,
        name: "a run resumed after the sub-agent of its fork deployed",
        must: "one deployment: the parent asks",
        mark: Mark::Mended,
        play: resumed_after_fork,
    },
    Scenario {
        number: "2c",
        waits: false,
        name: "a fork while the sub-agent of its parent is deploying",
        must: "one deployment: the fork asks",
        mark: Mark::Mended,
        play: forked_meanwhile,
    },
    Scenario {
        number: "3-",
        waits: false,
        name: "a copy put back that does not know a deployment",
        must: "one deployment: the run is not driven on (exit 74)",
        mark: Mark::Control,
        play: |stage| restored(stage, &deploy(), Doer::Run),
    },
    Scenario {
        number: "3a",
        waits: false,
        name: "a copy put back that does not know the deployment of a sub-agent",
        must: "one deployment: the run is not driven on",
        mark: Mark::Mended,
        play: |stage| restored(stage, &task(), Doer::Run),
    },
    Scenario {
        number: "3b",
        waits: false,
        name: "a copy put back that does not know the deployment of a fork",
        must: "one deployment: the run is not driven on",
        mark: Mark::Mended,
        play: |stage| restored(stage, &deploy(), Doer::Fork),
    },
    Scenario {
        number: "5",
        waits: false,
        name: "a refused call that a fork makes before its parent is resumed",
        must: "one payment: the parent asks",
        mark: Mark::Mended,
        play: refused_then_forked,
    },
    Scenario {
        number: "8c",
        waits: false,
        name: "a fork behind a turn whose sub-agent sent the message",
        must: "the message of the shared turn counts: the fork succeeds, and nobody is asked",
        mark: Mark::Mended,
        play: condition_met_by_sub_agent,
    },
];

/// `look` only looks; the others change something, take no key and are no declared effect.
const POLICY: &str = "[[rule]]\nid = \"look\"\nname = \"look\"\nside_effect_class = \"read_only\"\n\
    [[rule]]\nid = \"deploy\"\npatterns = [\"deploy\", \"pay\"]\nside_effect_class = \"external\"\non_unknown = \"hold\"\n";

fn look() -> Value {
    json!({"tools": [{"name": "mcp__shop__look", "input": {}}]})
}

fn deploy() -> Value {
    json!({"tools": [{"name": "mcp__shop__deploy", "input": {"text": "version 7"}}]})
}

/// The same by a sub-agent.
fn task() -> Value {
    json!({"tools": [{"name": "mcp__ua_agents__task", "input": {"description": "Deploy", "prompt": "ALPHA: deploy."}}]})
}

/// The run looks and then does `main`; a fork whose prompt says FORK looks and then does `fork`.
fn script(main: &Value, fork: &Value) -> Value {
    let done = json!({"text": "Done."});
    json!({
        "turns": [look(), main, done],
        "conversations": [
            {"when": "ALPHA", "turns": [deploy(), done]},
            {"when": "FORK", "turns": [look(), fork, done]},
        ],
    })
}

fn world(stage: &Stage, main: &Value, fork: &Value) -> anyhow::Result<Outside> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.tool.as_str() {
            "look" => Step::not_done(Then::Answer),
            _ => Step::done(Then::Answer),
        }),
    )?;
    prepare(&world, main, fork)?;
    Ok(world)
}

fn prepare(world: &Outside, main: &Value, fork: &Value) -> anyhow::Result<()> {
    world.tools(&["look", "deploy"], &[])?;
    world.write("fork.json", &json!({"prompt": "FORK"}).to_string())?;
    world.job(&json!({"subagents": {}}), POLICY, &script(main, fork))
}

/// The same for a run that stops after its first turn.
fn prepare_short(world: &Outside, main: &Value, fork: &Value) -> anyhow::Result<()> {
    prepare(world, main, fork)?;
    world.job(&json!({"subagents": {}, "budgets": {"max_turns": 1}}), POLICY, &script(main, fork))
}

fn told(world: &Outside, end: &crate::scenario::world::End) -> anyhow::Result<Verdict> {
    let deployed = world.effects("deploy");
    Ok(Verdict::of(
        deployed == 1,
        format!("{deployed} deployment(s), {} questions, {}", world.questions()?.len(), end.told()),
    ))
}

/// The run does it to its end; a fork from before does what the run did.
fn forked_afterwards(stage: &Stage, by: &Value) -> anyhow::Result<Verdict> {
    let world = world(stage, by, by)?;
    world.run_job(&[])?.must(0)?;
    let end = world.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"])?;
    told(&world, &end)
}

/// The run stops before it does anything; the sub-agent of a fork does it; then the run is resumed, and does it itself.
fn resumed_after_fork(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = world(stage, &deploy(), &task())?;
    prepare_short(&world, &deploy(), &task())?;
    stop_after_first_turn(&world)?;
    let more = ["fork", "r", "--run-id", "f", "--job-overrides", "fork.json", "--max-turns", "+10"];
    world.run(&more)?.must(0)?;
    anyhow::ensure!(world.effects("deploy") == 1, "the sub-agent of the fork did not deploy");
    let end = world.run(&["resume", "r", "--max-turns", "+10"])?;
    told(&world, &end)
}

fn stop_after_first_turn(world: &Outside) -> anyhow::Result<()> {
    world.run_job(&[])?.must(75)?;
    anyhow::ensure!(world.effects("deploy") == 0, "the run did not stop after its first turn");
    Ok(())
}

/// While the call of the run's sub-agent is held on its way back, a fork does the same itself.
fn forked_meanwhile(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match (call.tool.as_str(), call.nth) {
            ("look", _) => Step::not_done(Then::Answer),
            (_, 1) => Step::done(Then::AnswerAfter("the fork")),
            _ => Step::done(Then::Answer),
        }),
    )?;
    prepare(&world, &task(), &deploy())?;
    let mut parent = world.start_job(&[])?;
    world.until_call(&mut parent, "deploy", 1)?;
    let end = world.run(&["fork", "r", "--at-turn", "1", "--run-id", "f", "--job-overrides", "fork.json"])?;
    let verdict = told(&world, &end);
    world.servers.release("the fork");
    parent.wait()?.must(0)?;
    verdict
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doer {
    Run,
    Fork,
}

/// A copy is made; then `doer` does it; then the copy is put back and the run resumed.
fn restored(stage: &Stage, by: &Value, doer: Doer) -> anyhow::Result<Verdict> {
    let world = world(stage, by, by)?;
    prepare_short(&world, by, by)?;
    stop_after_first_turn(&world)?;
    let copy = world.path("copy.db").display().to_string();
    world.run(&["db", "backup", &copy])?.must(0)?;
    match doer {
        Doer::Run => world.run(&["resume", "r", "--max-turns", "+10"])?.must(0)?,
        Doer::Fork => world.run(&["fork", "r", "--run-id", "f", "--max-turns", "+10"])?.must(0)?,
    };
    anyhow::ensure!(world.effects("deploy") == 1, "nothing was deployed");
    world.run(&["db", "restore", &copy])?.must(0)?;
    let end = world.run(&["resume", "r", "--max-turns", "+10"])?;
    told(&world, &end)
}

/// A payment is refused at the connection and the run stops; a fork makes it; then the run is resumed.
fn refused_then_forked(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.tool.as_str() {
            "look" => Step::not_done(Then::AnswerAndLeave),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&[], &["look", "pay"])?;
    let turns = json!([
        {"tools": [{"name": "mcp__bank__look", "input": {}}]},
        {"tools": [{"name": "mcp__bank__pay", "input": {"to": "Ada", "amount": 100}}]},
        {"text": "Paid."},
    ]);
    // A server that is away is waited for, unless the job says otherwise.
    world.job(&json!({"budgets": {"max_provider_wait_minutes": 0}}), POLICY, &json!({ "turns": turns }))?;
    world.run_job(&[])?.must(75)?;
    anyhow::ensure!(world.servers.calls("pay") == 0, "the payment was to be refused");
    world.servers.come_back()?;
    world.run(&["fork", "r", "--run-id", "f"])?.must(0)?;
    anyhow::ensure!(world.effects("pay") == 1, "the fork did not pay");
    let end = world.resume()?;
    let paid = world.effects("pay");
    Ok(Verdict::of(paid == 1, format!("{paid} payment(s), {} questions, {}", world.questions()?.len(), end.told())))
}

fn condition_met_by_sub_agent(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(stage, Box::new(|_| Step::done(Then::Answer)))?;
    world.tools(&["post"], &[])?;
    let policy = "[[rule]]\nid = \"post\"\nname = \"post\"\nside_effect_class = \"external\"\non_unknown = \"hold\"\neffect_kind = \"comment.post\"\n";
    let post = json!({"tools": [{"name": "mcp__shop__post", "input": {"text": "It is done."}}]});
    let done = json!({"text": "Done."});
    let script = json!({
        "turns": [task(), done],
        "conversations": [{"when": "ALPHA", "turns": [post, done]}],
    });
    let conditions = json!([{"effect": "comment.post", "count": 1}]);
    world.job(&json!({"subagents": {}, "stop_conditions": conditions}), policy, &script)?;
    world.run_job(&[])?.must(0)?;
    let end = world.run(&["fork", "r", "--at-turn", "1", "--run-id", "f"])?;
    let shown = world.json(&["runs", "show", "f"])?;
    let requests = shown["requests"].as_array().map_or(0, Vec::len);
    Ok(Verdict::of(
        end.code == Some(0) && world.effects("post") == 1,
        format!(
            "{} message(s), {requests} requests to the model, {} questions, {}",
            world.effects("post"),
            world.questions()?.len(),
            end.told()
        ),
    ))
}
