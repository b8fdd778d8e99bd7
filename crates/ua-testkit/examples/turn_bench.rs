//! What a turn costs, for `cargo xtask bench turns`.
//!
//! One run takes turns by the shipped worker, on SQLite: it composes requests, plans, dispatches, interprets and commits as any run does. Only
//! the model and the tools cost nothing: both are in this process. Odd turns make one call with an effect, even turns only read. Prints a
//! line of JSON per turn of each window, and one at the end.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "its output is its product")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde_json::json;
use ua_classify::{Classifier, Lists};
use ua_core::{Block, Message, ModelTurn, Origin, PriceTable, RunId, RunSpec, StopReason, ToolUse, Trace, Usage};
use ua_dispatch::StopSignal;
use ua_llm::{LlmError, LlmProvider, ModelRequest, StreamObserver};
use ua_runner::{
    Conclusion, Desk, DeskPorts, PinSettings, RetryPolicy, RunEvent, RunSettings, Worker, Workspace, owner_stamp,
};
use ua_store::{NewRun, RunStore, Store};
use ua_store_sqlite::{Batches, SqliteConfig, SqliteStore};
use ua_testkit::{Honours, World, foreign_tool, own_tool};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, turns, window] = words.as_slice() else { return Err("expected FOLDER TURNS WINDOW".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(play(Path::new(folder), turns.parse()?, window.parse()?))
}

/// What had been spent at one moment.
struct Spent {
    at: Instant,
    wall_micros: u128,
    batches: Batches,
    written: u64,
}

impl Spent {
    fn now(store: &SqliteStore) -> Outcome<Self> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).ok_or("/proc/self/io has no wchar")?;
        Ok(Self {
            at: Instant::now(),
            wall_micros: SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
            batches: store.batches().ok_or("the store was opened for inspection")?,
            written: written.trim().parse()?,
        })
    }

    /// The line of a turn that began here.
    fn line(&self, turn: u32, after: &Self) -> Outcome<serde_json::Value> {
        let transactions = |batches: &Batches| batches.synced + batches.relaxed;
        Ok(json!({
            "turn": turn,
            "has_effect": turn % 2 == 1,
            "micros": u64::try_from(after.at.duration_since(self.at).as_micros())?,
            "bytes": after.written - self.written,
            "synced": after.batches.synced - self.batches.synced,
            "transactions": transactions(&after.batches) - transactions(&self.batches),
            "from": u64::try_from(self.wall_micros)?,
            "to": u64::try_from(after.wall_micros)?,
        }))
    }
}

async fn play(folder: &Path, turns: u32, window: u32) -> Outcome<()> {
    let env = ua_core::system::env();
    let sqlite = Arc::new(SqliteStore::open(SqliteConfig::new(folder.join("state/runtime_state.db")))?);
    let store: Arc<dyn Store> = sqlite.clone();
    let spec = RunSpec::parse(
        r#"{"objective": "Take many turns.", "budgets": {"max_tool_calls": 1000000, "max_wallclock_minutes": 100000}}"#,
    )?;
    let run = NewRun {
        run_id: RunId::parse("run_bench")?,
        created_at: env.now(),
        entrypoint: "library".into(),
        run_mode: "job".into(),
        opening: Message::user(Origin::Prompt, spec.opening_prompt()),
        spec,
        files: Vec::new(),
        job_path: None,
        workspace_dir: folder.join("ws").display().to_string(),
        launch: serde_json::Value::Null,
        parent_run_id: None,
    };
    let run = store.submit_run(run).await?;
    let trace = Trace::new(&env);
    let acquired_at = env.now();
    let (lease, run) = store.acquire_run(&run.run_id, &owner_stamp(trace.clone()), acquired_at).await?;
    let world =
        World::new([(foreign_tool("ext", "get_page"), Honours::Nothing), (own_tool("send_email"), Honours::Keys)]);
    let ports = DeskPorts {
        store,
        lease,
        run,
        workspace: Workspace::create(&folder.join("ws"))?,
        tools: Arc::new(world),
        classifier: Arc::new(Classifier::new(Vec::new(), &Lists::default(), HashSet::new())?),
        env,
        trace,
        stop: StopSignal::default(),
    };
    let measured = [10, 1_000, turns.saturating_sub(window) + 1].map(|start| start..start + window);
    let began: Mutex<Option<Spent>> = Mutex::default();
    let watched = sqlite.clone();
    let watcher = move |signal| {
        // A turn begins when the one before it is committed.
        let RunEvent::Committed { turn } = signal else { return };
        let mut began = began.lock().unwrap_or_else(PoisonError::into_inner);
        let is_measured = |turn: u32| measured.iter().any(|window| window.contains(&turn));
        if !is_measured(turn) && !is_measured(turn + 1) {
            return;
        }
        let now = Spent::now(&watched).map_err(|error| error.to_string());
        let now = now.unwrap_or_else(|why| panic!("cannot measure: {why}"));
        if let (Some(began), true) = (began.as_ref(), is_measured(turn)) {
            let line = began.line(turn, &now).unwrap_or_else(|error| panic!("cannot measure: {error}"));
            println!("{line}");
        }
        *began = Some(now);
    };
    let settings = RunSettings {
        model: "bench".into(),
        system: "You take turns.".into(),
        max_output_tokens: 100,
        history_tokens: None,
        images: false,
        temperature_milli: None,
        prices: PriceTable::default(),
        retry: RetryPolicy::default(),
        pins: PinSettings::default(),
    };
    let model = Arc::new(Busy { asked: AtomicU32::new(0), turns });
    let desk = Desk::new(ports).with_watcher(Arc::new(watcher));
    let worked = Worker::new(desk, model, settings, acquired_at).work().await?;
    if !matches!(worked.conclusion, Conclusion::Succeeded { .. }) {
        return Err(format!("the run did not succeed: {:?}", worked.conclusion).into());
    }
    println!("{}", json!({"database_bytes": std::fs::metadata(sqlite.path())?.len()}));
    Ok(())
}

/// A model that asks for two things in each of its turns, and thinks for no time.
struct Busy {
    asked: AtomicU32,
    turns: u32,
}

#[async_trait]
impl LlmProvider for Busy {
    fn name(&self) -> &'static str {
        "bench"
    }

    async fn complete(&self, _: &ModelRequest, _: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        let turn = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(if turn > self.turns { done() } else { reply(turn) })
    }
}

/// Two reads, or a read and an effect.
fn reply(turn: u32) -> ModelTurn {
    let asks = |id: &str, name: &str, input: serde_json::Value| {
        Block::ToolUse(ToolUse { id: format!("toolu_{turn}_{id}"), name: name.to_owned(), input })
    };
    let read = |id: &str| asks(id, "mcp__ext__get_page", json!({"url": format!("https://example.test/{turn}/{id}")}));
    let mail = || {
        let subject = format!("Part {turn}");
        asks("b", "mcp__ua__send_email", json!({"to": ["a@example.test"], "subject": subject, "body": "As promised."}))
    };
    ModelTurn {
        blocks: vec![
            Block::Text { text: format!("Turn {turn}: two things to do.") },
            read("a"),
            if turn % 2 == 1 { mail() } else { read("b") },
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
