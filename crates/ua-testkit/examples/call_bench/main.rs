//! What a turn with one effect costs, for `cargo xtask bench calls`.
//!
//! `call_bench floor FOLDER STEPS` makes two synced commits of one row a step: as fast as the disk can be. `call_bench calls FOLDER TURNS
//! RUNS HISTORY [TEXT]` has runs take turns by the shipped worker on SQLite: it composes requests, looks at files and taint, plans, dispatches,
//! interprets and commits as any run does. `submitters FOLDER TURNS RUNS HISTORY` does the same, and then has as many tasks commit the same batches to
//! another database with nothing around them. `floor-server URL STEPS CLIENTS`, `calls-server URL FOLDER TURNS RUNS NAME` `claims-server URL
//! CLAIMS` and `queued-server URL` do the same on a PostgreSQL server. `counted FOLDER TURNS` takes turns in which no time passes: always the same
//! work, and nothing is measured in it. The tool is in this process and takes a key; the model answers by itself, after the body of its
//! request was built as it would be sent. Prints a line of JSON for each turn that is measured.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "its output is its product")]

mod recording;
mod server;

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use secrecy::SecretString;
use serde_json::json;
use ua_classify::{Classifier, Lists};
use ua_core::{
    Block, Message, ModelTurn, Origin, PriceTable, Redactor, RunId, RunSpec, StopReason, ToolUse, Trace, Usage,
};
use ua_dispatch::StopSignal;
use ua_llm::{
    AnthropicConfig, AnthropicProvider, LlmError, LlmProvider, ModelRequest, RedactingProvider, StreamObserver,
};
use ua_runner::{
    Conclusion, Desk, DeskPorts, PastKnown, PinSettings, RetryPolicy, RunEvent, RunSettings, Worker, Workspace,
    owner_stamp,
};
use ua_store::{NewRun, RunStore, Store};
use ua_store_sqlite::{Batches, SqliteConfig, SqliteStore};
use ua_testkit::{Honours, World, own_tool};

use self::recording::{Committals, Recording};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["floor", folder, steps] => floor(Path::new(folder), steps.parse()?),
        ["calls", folder, turns, runs, history, text @ ..] if text.len() < 2 => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let text = text.first().map_or(Ok(0), |text| text.parse())?;
            let plan = Plan { turns: turns.parse()?, history: history.parse()?, text, is_timed: true };
            runtime.block_on(calls(Path::new(folder), runs.parse()?, plan))
        }
        ["counted", folder, turns] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let plan = Plan { turns: turns.parse()?, history: 3_000, text: 0, is_timed: false };
            runtime.block_on(calls(Path::new(folder), 1, plan))
        }
        ["submitters", folder, turns, runs, history] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let plan = Plan { turns: turns.parse()?, history: history.parse()?, text: 0, is_timed: true };
            runtime.block_on(submitters(Path::new(folder), runs.parse()?, plan))
        }
        ["floor-server", url, steps, clients] => server::floor(url, steps.parse()?, clients.parse()?),
        ["calls-server", url, folder, turns, runs, name] => {
            let plan = Plan { turns: turns.parse()?, history: 3_000, text: 0, is_timed: true };
            server::calls(url, Path::new(folder), runs.parse()?, plan, name)
        }
        ["queued-server", url] => server::queued(url),
        ["claims-server", url, claims] => server::claims(url, claims.parse()?),
        _ => Err("expected `floor FOLDER STEPS` `calls FOLDER TURNS RUNS HISTORY [TEXT]` `counted FOLDER TURNS` `submitters FOLDER TURNS RUNS HISTORY` `floor-server URL STEPS CLIENTS` `calls-server URL FOLDER TURNS RUNS NAME` or `claims-server URL CLAIMS`".into()),
    }
}

/// Two synced commits of one row a step, and nothing else.
fn floor(folder: &Path, steps: u32) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    let connection = rusqlite::Connection::open(folder.join("floor.db"))?;
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
         CREATE TABLE IF NOT EXISTS step (id INTEGER PRIMARY KEY, note TEXT)",
    )?;
    let mut insert = connection.prepare("INSERT INTO step (note) VALUES (?1)")?;
    for step in 1..=steps {
        let begun = Instant::now();
        insert.execute(["before"])?;
        insert.execute(["after"])?;
        println!("{}", json!({"turn": step, "micros": micros(begun.elapsed())}));
    }
    Ok(())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// One moment, by the clock and by the processor time of this process.
#[derive(Clone, Copy)]
struct Moment {
    at: Instant,
    cpu: Duration,
}

impl Moment {
    fn now() -> Outcome<Self> {
        let cpu = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
        Ok(Self { at: Instant::now(), cpu: Duration::from(cpu) })
    }
}

/// What had been spent when a turn ended, or the next one began: what lies between the two is the measuring, which is no part of a turn.
struct Spent {
    moment: Moment,
    batches: Batches,
    written: u64,
}

impl Spent {
    /// At a moment that has just been.
    fn at(moment: Moment, store: &SqliteStore) -> Outcome<Self> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).ok_or("/proc/self/io has no wchar")?;
        let batches = store.batches().ok_or("the store was opened for inspection")?;
        Ok(Self { moment, batches, written: written.trim().parse()? })
    }

    /// Now, with what it takes to find out left behind.
    fn now(store: &SqliteStore) -> Outcome<Self> {
        let spent = Self::at(Moment::now()?, store)?;
        Ok(Self { moment: Moment::now()?, ..spent })
    }

    /// The line of a turn that began here.
    fn line(&self, turn: u32, after: &Self) -> serde_json::Value {
        let transactions = |batches: &Batches| batches.synced + batches.relaxed;
        json!({
            "turn": turn,
            "micros": micros(after.moment.at.duration_since(self.moment.at)),
            "cpu_micros": micros(after.moment.cpu.saturating_sub(self.moment.cpu)),
            "bytes": after.written - self.written,
            "synced": after.batches.synced - self.batches.synced,
            "transactions": transactions(&after.batches) - transactions(&self.batches),
        })
    }
}

/// What each run does.
#[derive(Clone, Copy)]
struct Plan {
    turns: u32,
    /// The most tokens of history that a request carries.
    history: u64,
    /// Bytes of text that each reply has besides.
    text: usize,
    /// Whether time passes: when files for people are due follows from it, and so does how much work there is.
    is_timed: bool,
}

async fn calls(folder: &Path, runs: u32, plan: Plan) -> Outcome<()> {
    let sqlite = Arc::new(SqliteStore::open(SqliteConfig::new(folder.join("state/runtime_state.db")))?);
    let begun = Instant::now();
    let store: Arc<dyn Store> = sqlite.clone();
    let all = (1..=runs).map(|number| one_run(Arc::clone(&store), Some(&sqlite), folder, run_name(number), plan));
    try_join_all(all).await?;
    let resident = std::fs::read_to_string("/proc/self/status")?;
    let resident = resident.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default().trim().to_owned();
    let size = std::fs::metadata(sqlite.path())?.len();
    println!("{}", json!({"all_micros": micros(begun.elapsed()), "database_bytes": size, "most_resident": resident}));
    Ok(())
}

/// So many runs, and behind them as many tasks that commit what the runs did.
async fn submitters(folder: &Path, runs: u32, plan: Plan) -> Outcome<()> {
    let sqlite = Arc::new(SqliteStore::open(SqliteConfig::new(folder.join("state/runtime_state.db")))?);
    let stores: Vec<_> = (1..=runs).map(|_| Arc::new(Recording::of(sqlite.clone()))).collect();
    let begun = Instant::now();
    let all = stores
        .iter()
        .zip(1..)
        .map(|(store, number)| one_run(store.clone(), Some(&sqlite), folder, run_name(number), plan));
    try_join_all(all).await?;
    let worked = begun.elapsed();
    let other = Arc::new(SqliteStore::open(SqliteConfig::new(folder.join("other/runtime_state.db")))?);
    let committals: Vec<Committals> = stores.iter().map(|store| store.take()).collect();
    let begun = Instant::now();
    try_join_all(committals.into_iter().map(|committals| commit_again(&other, committals))).await?;
    println!("{}", json!({"worked_micros": micros(worked), "submitted_micros": micros(begun.elapsed())}));
    Ok(())
}

async fn commit_again(store: &SqliteStore, committals: Committals) -> Outcome<()> {
    for (by, batch) in committals {
        store.commit(&by, batch).await?;
    }
    Ok(())
}

fn run_name(number: u32) -> String {
    format!("run_bench_{number}")
}

/// Works on one run to its end. The turns of the first one in a file are measured.
async fn one_run(
    store: Arc<dyn Store>,
    sqlite: Option<&Arc<SqliteStore>>,
    folder: &Path,
    name: String,
    plan: Plan,
) -> Outcome<()> {
    let history = plan.history;
    let env = if plan.is_timed { ua_core::system::env() } else { ua_core::Env::simulated(1) };
    let spec = RunSpec::parse(&format!(
        r#"{{"objective": "Take many turns, and write to a@example.test in each.",
             "budgets": {{"max_tool_calls": 1000000, "max_wallclock_minutes": 100000, "max_tokens": 1000000000000}},
             "settings": {{"history_max_tokens": {history}}}}}"#
    ))?;
    let workspace = folder.join(format!("ws_{name}"));
    let run = NewRun {
        run_id: RunId::parse(&name)?,
        created_at: env.now(),
        entrypoint: "library".into(),
        run_mode: "job".into(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        spec,
        files: Vec::new(),
        job_path: None,
        workspace_dir: workspace.display().to_string(),
        launch: serde_json::Value::Null,
        parent_run_id: None,
    };
    let run = store.submit_run(run).await?;
    let trace = Trace::new(&env);
    let acquired_at = env.now();
    let (lease, run) = store.acquire_run(&run.run_id, &owner_stamp(trace.clone()), acquired_at).await?;
    let past = PastKnown::of(store.as_ref(), &run).await?;
    let ports = DeskPorts {
        store,
        lease,
        run,
        past,
        workspace: Workspace::create(&workspace)?,
        tools: Arc::new(World::new([(own_tool("send_email"), Honours::Keys)])),
        classifier: Arc::new(Classifier::new(Vec::new(), &Lists::default(), HashSet::new())?),
        env: env.clone(),
        trace,
        stop: StopSignal::default(),
    };
    let began: Mutex<Option<Spent>> = Mutex::default();
    let watched = sqlite.filter(|_| plan.is_timed && name == run_name(1)).cloned();
    let watcher = move |signal| {
        // A turn begins when the one before it is committed. With one run alone each is measured.
        let RunEvent::Committed { turn } = signal else { return };
        let Some(watched) = &watched else { return };
        let measured = |spent: Outcome<Spent>| spent.unwrap_or_else(|why| panic!("cannot measure: {why}"));
        let ended = measured(Moment::now().and_then(|moment| Spent::at(moment, watched)));
        let mut began = began.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(began) = began.as_ref() {
            println!("{}", began.line(turn, &ended));
        }
        *began = Some(measured(Spent::now(watched)));
    };
    let settings = RunSettings {
        model: "bench".into(),
        system: "You take turns.".into(),
        max_output_tokens: 100,
        history_tokens: None,
        images: false,
        structured: false,
        temperature_milli: None,
        seed: None,
        prices: PriceTable::default(),
        retry: RetryPolicy::default(),
        pins: PinSettings::default(),
    };
    let secret = "sk-bench-0123456789abcdef";
    let wire = AnthropicConfig {
        base_url: "http://127.0.0.1:9".to_owned(),
        ..AnthropicConfig::new(SecretString::from(secret.to_owned()))
    };
    let model = Busy { wire: AnthropicProvider::new(wire, env)?, asked: AtomicU32::new(0), plan };
    let redactor = Redactor::new([("BENCH_KEY".to_owned(), secret.to_owned())]);
    let model = Arc::new(RedactingProvider::new(Arc::new(model), redactor));
    let desk = Desk::new(ports).with_watcher(Arc::new(watcher));
    let worked = Worker::new(desk, model, settings, acquired_at).work().await?;
    if !matches!(worked.conclusion, Conclusion::Succeeded { .. }) {
        return Err(format!("the run did not succeed: {:?}", worked.conclusion).into());
    }
    Ok(())
}

/// A model that asks for one e-mail in each of its turns, and thinks for no time.
struct Busy {
    wire: AnthropicProvider,
    asked: AtomicU32,
    plan: Plan,
}

#[async_trait]
impl LlmProvider for Busy {
    fn name(&self) -> &'static str {
        "bench"
    }

    async fn complete(&self, request: &ModelRequest, _: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        std::hint::black_box(self.wire.request_body(request));
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(if turn > self.plan.turns { done() } else { reply(turn, self.plan.text) })
    }
}

fn reply(turn: u32, text: usize) -> ModelTurn {
    let input = json!({"to": ["a@example.test"], "subject": format!("Part {turn}"), "body": "As promised."});
    let mail = Block::ToolUse(ToolUse { id: format!("toolu_{turn}"), name: "mcp__ua__send_email".to_owned(), input });
    ModelTurn {
        blocks: vec![
            Block::Text { text: format!("Turn {turn}: one more letter.{}", " And more.".repeat(text / 10)) },
            mail,
        ],
        stop_reason: StopReason::ToolUse,
        ..done()
    }
}

fn done() -> ModelTurn {
    ModelTurn {
        blocks: vec![Block::Text { text: "Done.".to_owned() }],
        stop_reason: StopReason::EndTurn,
        usage: Some(Usage { input_tokens: 1_000, output_tokens: 50, ..Usage::default() }),
        model: "bench".to_owned(),
        response_id: None,
    }
}
