//! Finding 1: a definite failure of a later attempt erases the doubt of an earlier one. And what a retry keeps of its first attempt (9).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::json;

use crate::scenario::server::{KEY_ARGUMENT, KEY_HEADER, Step, Then};
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "1-",
        waits: false,
        name: "killed, then repeated under its key",
        must: "one order: the repeat is answered by its key",
        mark: Mark::Control,
        play: |stage| lost_then(stage, Then::Answer),
    },
    Scenario {
        number: "1a",
        waits: true,
        name: "lost, then refused with HTTP 400, and asked for in other words",
        must: "one payment: attempt 1 stays in doubt",
        mark: Mark::Mended,
        play: refused_with_400,
    },
    Scenario {
        number: "1b",
        waits: false,
        name: "killed, then refused with -32601, and asked for again",
        must: "one order: attempt 1 stays in doubt",
        mark: Mark::Mended,
        play: |stage| lost_then(stage, Then::Refuse(-32601)),
    },
    Scenario {
        number: "1c",
        waits: true,
        name: "lost, then connection refused, and resumed after the key's lifetime",
        must: "one payment: behind key_ttl a person is asked",
        mark: Mark::Mended,
        play: refused_beyond_key_ttl,
    },
    Scenario {
        number: "1d",
        waits: true,
        name: "lost, then refused with HTTP 401",
        must: "the call is not called failed, and a person can say that it happened",
        mark: Mark::Mended,
        play: refused_with_401,
    },
    Scenario {
        number: "9e",
        waits: false,
        name: "refused, retried with another file, and the first file asked for",
        must: "the receipt of other bytes answers nothing: the first file is sent, or asked about",
        mark: Mark::Mended,
        play: retried_with_another_file,
    },
];

/// An order that is keyed by an argument and known by its place.
fn order_policy() -> String {
    format!(
        "[[rule]]\nid = \"order\"\nserver = \"shop\"\nname = \"order\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
         key_channel = {{ argument = \"{KEY_ARGUMENT}\" }}\n"
    )
}

/// A payment whose key goes in a header.
fn payment_policy(more: &str) -> String {
    format!(
        "[[rule]]\nid = \"pay\"\nserver = \"bank\"\nname = \"pay\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
         key_channel = {{ header = \"{KEY_HEADER}\" }}\neffect_kind = \"invoice.pay\"\nscope = [{{ value = \"to\" }}]\n{more}"
    )
}

/// An order is killed on its way back; on resume it is met by `second`. A model that is told that nothing happened asks for it again; this
/// one, told anything else, falls silent, and the run ends with the provider's error.
fn lost_then(stage: &Stage, second: Then) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(move |call| match call.nth {
            1 => Step::done(Then::Hang),
            2 if matches!(second, Then::Refuse(_)) => Step::not_done(second.clone()),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&["order"], &[])?;
    let order = json!({"tools": [{"name": "mcp__shop__order", "input": {"text": "twelve chairs"}}]});
    let mut again = order.clone();
    again["expect"] = json!({"tool_result_ok": false});
    world.job(&json!({}), &order_policy(), &json!({"turns": [order, again, {"text": "Ordered."}]}))?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "order", 1)?;
    live.kill()?;
    let end = world.resume()?;
    let orders = world.effects_of("order");
    let keys: BTreeSet<_> = orders.iter().map(|order| &order.key).collect();
    Ok(Verdict::of(
        orders.len() == 1,
        format!(
            "{} order(s) under {} key(s), {} questions, {}",
            orders.len(),
            keys.len(),
            world.questions()?.len(),
            end.told()
        ),
    ))
}

fn refused_with_400(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.nth {
            1 => Step::done(Then::Cut),
            2 => Step::not_done(Then::Status(400)),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&[], &["pay"])?;
    let pay = |text: &str| json!({"tools": [{"name": "mcp__bank__pay", "input": {"to": "Ada", "amount": 100, "text": text}}]});
    let turns = json!([pay("invoice 7"), pay("for invoice 7, as agreed"), {"text": "Paid."}]);
    world.job(&json!({}), &payment_policy(""), &json!({ "turns": turns }))?;
    let end = world.run_job(&[])?;
    let paid = world.effects("pay");
    Ok(Verdict::of(paid == 1, format!("{paid} payment(s), {} questions, {}", world.questions()?.len(), end.told())))
}

/// How long the bank remembers a key. A lost call to a remote server is repeated after 30 seconds.
const KEY_TTL: Duration = Duration::from_secs(45);

fn refused_beyond_key_ttl(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.nth {
            1 => Step::done(Then::CutAndLeave),
            // By then the key is forgotten.
            _ if call.at > KEY_TTL => Step::done_again(Then::Answer),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&[], &["pay"])?;
    let pay =
        json!({"tools": [{"name": "mcp__bank__pay", "input": {"to": "Ada", "amount": 100, "text": "invoice 7"}}]});
    let policy = payment_policy(&format!("key_ttl = \"{}s\"\n", KEY_TTL.as_secs()));
    world.job(&json!({}), &policy, &json!({"turns": [pay, {"text": "Paid."}]}))?;
    let first = world.run_job(&[])?.must(75)?;
    world.servers.come_back()?;
    // The lifetime counts from the first attempt, and the second that is added is for clocks that round.
    let sent = world.servers.first_call("pay").unwrap_or_default();
    world.until_age(sent + KEY_TTL + Duration::from_secs(1));
    let end = world.resume()?;
    let paid = world.effects("pay");
    Ok(Verdict::of(
        paid == 1,
        format!("{paid} payment(s), {} questions, {} then {}", world.questions()?.len(), first.told(), end.told()),
    ))
}

fn refused_with_401(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.nth {
            1 => Step::done(Then::Cut),
            _ => Step::not_done(Then::Status(401)),
        }),
    )?;
    world.tools(&[], &["pay"])?;
    let pay =
        json!({"tools": [{"name": "mcp__bank__pay", "input": {"to": "Ada", "amount": 100, "text": "invoice 7"}}]});
    world.job(&json!({}), &payment_policy(""), &json!({"turns": [pay, {"text": "Paid."}]}))?;
    let end = world.run_job(&[])?.must(75)?;
    let calls = world.json(&["calls", "list", "--run", "r"])?;
    let id = calls[0]["tool_call_id"].as_str().unwrap_or_default().to_owned();
    let status = calls[0]["status"].as_str().unwrap_or_default().to_owned();
    let resolved = world.run(&["calls", "resolve", &id, "--happened"])?;
    Ok(Verdict::of(
        status == "unknown" && resolved.code == Some(0),
        format!(
            "{} payment(s), {}, the call is {status}, `ua calls resolve --happened` ends with {}",
            world.effects("pay"),
            end.told(),
            resolved.told()
        ),
    ))
}

fn retried_with_another_file(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(
        stage,
        Box::new(|call| match call.tool.as_str() {
            "look" => Step::not_done(Then::AnswerAndLeave),
            _ => Step::done(Then::Answer),
        }),
    )?;
    world.tools(&[], &["look", "upload"])?;
    let policy = format!(
        "[[rule]]\nid = \"look\"\nname = \"look\"\nserver = \"bank\"\nside_effect_class = \"read_only\"\n\
         [[rule]]\nid = \"upload\"\nname = \"upload\"\nserver = \"bank\"\nside_effect_class = \"external\"\non_unknown = \"redo_keyed\"\n\
         key_channel = {{ header = \"{KEY_HEADER}\" }}\neffect_kind = \"file.upload\"\nsends_files = [\"file\"]\n"
    );
    let upload = json!({"tools": [{"name": "mcp__bank__upload", "input": {"file": "report.txt"}}]});
    let look = json!({"tools": [{"name": "mcp__bank__look", "input": {}}]});
    let write = json!({"tools": [{"name": "mcp__ua__write_local_file", "input": {"path": "report.txt", "content": "draft\n"}}]});
    // The file is `draft` when it is refused, `final` when it is sent, and `draft` when it is asked for again.
    let turns = json!([write, look, upload, write, upload, {"text": "Uploaded."}]);
    // A server that is away is waited for, unless the job says otherwise.
    let fields = json!({"tools": {"builtin": true}, "budgets": {"max_provider_wait_minutes": 0}});
    world.job(&fields, &policy, &json!({ "turns": turns }))?;
    world.run_job(&[])?.must(75)?;
    ensure!(world.effects("upload") == 0, "the upload was to be refused");
    let shown = world.json(&["runs", "show", "r"])?;
    let folder = shown["run"]["workspace_dir"].as_str().context("a run has a workspace")?;
    std::fs::write(Path::new(folder).join("report.txt"), "final\n")?;
    world.servers.come_back()?;
    let end = world.resume()?;
    let (uploads, asked) = (world.effects("upload"), world.questions()?.len());
    Ok(Verdict::of(
        uploads == 2 || asked > 0,
        format!("{uploads} of 2 uploads of different bytes, {asked} questions, {}", end.told()),
    ))
}
