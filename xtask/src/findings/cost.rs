//! Finding 6, and one of 9: what is charged, in tokens and in time.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use ua_testkit::{Fault, FaultKind, ModelServer, ModelServerConfig};

use crate::scenario::server::{Step, Then};
use crate::scenario::world::{Outside, Stage};
use crate::scenario::{Lack, Mark, Scenario, Verdict};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        number: "6-",
        waits: false,
        name: "replies that arrive whole",
        must: "they are charged as the provider counted them",
        mark: Mark::Control,
        play: |stage| charged(stage, &[]),
    },
    Scenario {
        number: "6a",
        waits: false,
        name: "two replies that break off, and a whole one",
        must: "at least what the provider counted is charged",
        mark: Mark::Mended,
        play: |stage| charged(stage, &[1, 2]),
    },
    Scenario {
        number: "6b",
        waits: false,
        name: "SIGINT in the middle of a reply",
        must: "at least what the provider counted until then is charged",
        mark: Mark::Mended,
        play: interrupted,
    },
    Scenario {
        number: "6c",
        waits: false,
        name: "a budget of 20,000 tokens, and a reply of more that breaks off",
        must: "no further request is sent",
        mark: Mark::Mended,
        play: budget,
    },
    Scenario {
        number: "9c",
        waits: true,
        name: "a machine that sleeps for 30 s while a tool works",
        must: "time that no process lived in is not charged",
        mark: Mark::Mended,
        play: suspended,
    },
];

/// What the provider says that each request is worth in input.
const INPUT: u64 = 50_000;
/// How much of a reply arrives before it breaks off: the head, and a good deal of text.
const EVENTS: usize = 1000;

struct Provider {
    server: ModelServer,
    // Serves as long as it lives.
    _runtime: Runtime,
}

impl Provider {
    /// A provider whose only reply is long, and met by these faults.
    fn start(faults: Vec<Fault>) -> anyhow::Result<Self> {
        let text = "All work and no play. ".repeat(1300);
        let turn = json!({"text": text, "usage": {"input_tokens": INPUT, "output_tokens": 7000}});
        let script = ua_llm::Script::parse(&json!({"turns": [turn]}).to_string())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let config = ModelServerConfig { faults, ..ModelServerConfig::new(script) };
        let server = runtime.block_on(ModelServer::start(config))?;
        Ok(Self { server, _runtime: runtime })
    }

    fn world(&self, stage: &Stage, fields: &Value) -> anyhow::Result<Outside> {
        let mut world = Outside::new(stage, Box::new(|_| Step::done(Then::Answer)))?;
        world.set("ANTHROPIC_BASE_URL", &self.server.base_url);
        world.set("ANTHROPIC_API_KEY", "a-key");
        world.tools(&["post"], &[])?;
        let mut all = json!({"model": {"provider": "anthropic", "name": "scripted", "max_output_tokens": 8000}});
        for (name, value) in fields.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        world.job(&all, "", &json!({"turns": []}))?;
        Ok(world)
    }
}

/// Tokens that the run was charged.
fn charge(world: &Outside) -> anyhow::Result<u64> {
    Ok(world.json(&["runs", "show", "r"])?["usage"]["total_tokens"].as_u64().unwrap_or(0))
}

fn charged(stage: &Stage, cut: &[u64]) -> anyhow::Result<Verdict> {
    let provider =
        Provider::start(cut.iter().map(|n| Fault::at(*n, FaultKind::CutAfter { events: EVENTS })).collect())?;
    let world = provider.world(stage, &json!({}))?;
    let end = world.run_job(&[])?.must(0)?;
    let requests = provider.server.requests();
    ensure!(requests == cut.len() as u64 + 1, "{requests} requests were sent");
    let (charged, counted) = (charge(&world)?, requests * INPUT);
    Ok(Verdict::of(
        charged >= counted,
        format!("{requests} requests of {counted} tokens of input alone, charged {charged}, {}", end.told()),
    ))
}

fn interrupted(stage: &Stage) -> anyhow::Result<Verdict> {
    if !Path::new(CONNECTIONS).exists() {
        return Ok(Verdict::Skipped(
            Lack::Machine,
            format!("there is no {CONNECTIONS}, so nobody can tell what was read"),
        ));
    }
    let provider = Provider::start(vec![Fault::at(1, FaultKind::HangAfter { events: EVENTS })])?;
    let world = provider.world(stage, &json!({}))?;
    let mut live = world.start_job(&[])?;
    // What the request cost comes with the first event of the reply. That the program has read it shows only in the kernel's queues.
    let port = provider.server.base_url.rsplit(':').next().and_then(|port| port.parse().ok());
    let port = port.context("the provider has a port")?;
    let mut quiet = 0;
    live.until("the beginning of the reply to be read", || {
        let answered = provider.server.log().first().is_some_and(|request| request.status == 200);
        quiet = if answered && nothing_is_under_way(port)? { quiet + 1 } else { 0 };
        Ok(quiet >= QUIET)
    })?;
    live.signal(Signal::INT)?;
    let end = live.wait()?.must(130)?;
    let charged = charge(&world)?;
    Ok(Verdict::of(
        charged >= INPUT,
        format!("1 request of {INPUT} tokens of input alone, charged {charged}, {}", end.told()),
    ))
}

/// The kernel's list of connections.
const CONNECTIONS: &str = "/proc/net/tcp";
/// In how many looks in a row nothing may be under way before a reply that goes no further counts as read.
const QUIET: u32 = 50;

/// Whether there are connections with this port, and all that was sent over them was read.
fn nothing_is_under_way(port: u16) -> anyhow::Result<bool> {
    let table = std::fs::read_to_string(CONNECTIONS).context("look at the kernel's connections")?;
    let port = format!(":{port:04X}");
    // Columns: number, local, remote, state (01 is established), bytes to be sent : bytes to be read.
    let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let queues: Vec<String> = rows
        .filter(|row| row.len() > 4 && row[3] == "01" && (row[1].ends_with(&port) || row[2].ends_with(&port)))
        .map(|row| row[4].to_owned())
        .collect();
    Ok(!queues.is_empty() && queues.iter().all(|queue| queue == "00000000:00000000"))
}

fn budget(stage: &Stage) -> anyhow::Result<Verdict> {
    let cut = |n| Fault::at(n, FaultKind::CutAfter { events: EVENTS });
    let provider = Provider::start(vec![cut(1), cut(2)])?;
    let world = provider.world(stage, &json!({"budgets": {"max_tokens": 20_000}}))?;
    let end = world.run_job(&[])?;
    let requests = provider.server.requests();
    ensure!(requests > 0, "no request was sent: {}", end.err);
    Ok(Verdict::of(
        requests == 1,
        format!(
            "{requests} requests of {} tokens of input alone, charged {} under a budget of 20000, {}",
            requests * INPUT,
            charge(&world)?,
            end.told()
        ),
    ))
}

/// How long the machine sleeps. It is this time that is to be charged or not, so nothing else can be waited for.
const SLEEP: Duration = Duration::from_secs(30);

/// A stopped process is as a suspended machine to it: time goes on, and it does not.
fn suspended(stage: &Stage) -> anyhow::Result<Verdict> {
    let world = Outside::new(stage, Box::new(|_| Step::done(Then::AnswerAfter("the sleep"))))?;
    world.tools(&["post"], &[])?;
    let post = json!({"tools": [{"name": "mcp__shop__post", "input": {"text": "hello"}}]});
    world.job(&json!({}), "", &json!({"turns": [post, {"text": "Done."}]}))?;
    let mut live = world.start_job(&[])?;
    world.until_call(&mut live, "post", 1)?;
    live.signal(Signal::STOP)?;
    std::thread::sleep(SLEEP);
    live.signal(Signal::CONT)?;
    world.servers.release("the sleep");
    let end = live.wait()?.must(0)?;
    let shown = world.json(&["runs", "show", "r"])?;
    let charged = held(&shown["run"])?;
    Ok(Verdict::of(
        charged < SLEEP / 2,
        format!(
            "slept {} s, charged {:.1} s of max_wallclock_minutes, {}",
            SLEEP.as_secs(),
            charged.as_secs_f64(),
            end.told()
        ),
    ))
}

/// The time that the run was held, as its record tells it.
fn held(run: &Value) -> anyhow::Result<Duration> {
    run["held_millis"].as_u64().map(Duration::from_millis).context("the run does not tell how long it was held")
}
