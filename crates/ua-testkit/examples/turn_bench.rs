//! What a turn costs in the ledger and the store, for `cargo xtask bench turns`.
//!
//! Plays the turns of one run through the real gateway, ledger and SQLite store: the writes and reads of the drive loop, in its
//! order. The model and the tools cost nothing here, and the request is not composed, because both depend on the history
//! that is kept and not on the store. Odd turns make one call with an effect, even turns only read. Prints a line of JSON
//! per turn of each window, and one at the end.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "its output is its product")]

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use ua_classify::{Classifier, Lists};
use ua_core::{
    Block, CallId, CheckpointId, Env, Message, ModelTurn, Origin, Role, RunId, RunSpec, StepId, StopReason, ToolUse,
    Trace, Usage, sha256,
};
use ua_gateway::{Catalog, Rules, StopSignal, ToolGateway, ToolTransport as _, WorkspaceFiles, answer_for};
use ua_ledger::{Ledger, LedgerConfig};
use ua_runner::owner_stamp;
use ua_store::{
    CheckpointKind, NewCheckpoint, NewRun, NewStep, RequestReservation, RunLease, Store, TurnCommit, TurnDraft,
};
use ua_store_sqlite::{Batches, SqliteConfig, SqliteStore};
use ua_testkit::{Honours, World, foreign_tool, own_tool};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, turns, window] = words.as_slice() else { return Err("expected FOLDER TURNS WINDOW".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(play(Path::new(folder), turns.parse()?, window.parse()?))
}

/// One run that takes turns.
struct Bench {
    sqlite: Arc<SqliteStore>,
    store: Arc<dyn Store>,
    gateway: ToolGateway,
    lease: RunLease,
    step_id: StepId,
    env: Env,
}

/// What had been spent at one moment.
struct Spent {
    at: Instant,
    wall_micros: u128,
    batches: Batches,
    written: u64,
}

impl Spent {
    fn now(bench: &Bench) -> Outcome<Self> {
        let io = std::fs::read_to_string("/proc/self/io")?;
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).ok_or("/proc/self/io has no wchar")?;
        Ok(Self {
            at: Instant::now(),
            wall_micros: SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros(),
            batches: bench.sqlite.batches().ok_or("the store was opened for inspection")?,
            written: written.trim().parse()?,
        })
    }
}

async fn play(folder: &Path, turns: u32, window: u32) -> Outcome<()> {
    let bench = Bench::open(folder).await?;
    let starts = [10, 1_000, turns.saturating_sub(window) + 1];
    for turn in 1..=turns {
        let is_measured = starts.iter().any(|start| (*start..start + window).contains(&turn));
        let before = is_measured.then(|| Spent::now(&bench)).transpose()?;
        bench.turn(turn).await?;
        let Some(before) = before else { continue };
        let after = Spent::now(&bench)?;
        let line = json!({
            "turn": turn,
            "has_effect": turn % 2 == 1,
            "micros": u64::try_from(after.at.duration_since(before.at).as_micros())?,
            "bytes": after.written - before.written,
            "synced": after.batches.synced - before.batches.synced,
            "transactions": after.batches.synced + after.batches.relaxed - before.batches.synced - before.batches.relaxed,
            "from": u64::try_from(before.wall_micros)?,
            "to": u64::try_from(after.wall_micros)?,
        });
        println!("{line}");
    }
    let size = std::fs::metadata(bench.sqlite.path())?.len();
    println!("{}", json!({"database_bytes": size}));
    Ok(())
}

impl Bench {
    async fn open(folder: &Path) -> Outcome<Self> {
        let env = ua_core::system::env();
        let sqlite = Arc::new(SqliteStore::open(SqliteConfig::new(folder.join("state/runtime_state.db")))?);
        let store: Arc<dyn Store> = sqlite.clone();
        let spec = RunSpec::parse(r#"{"objective": "Take many turns."}"#)?;
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
        let (lease, run) = store.acquire_run(&run.run_id, &owner_stamp(trace.clone()), env.now()).await?;
        let step =
            NewStep { step_id: StepId::new(&env), phase: "main".to_owned(), created_at: env.now(), fingerprint: None };
        let step_id = store.open_step(&lease, step).await?.step_id;
        let world = Arc::new(World::new([
            (foreign_tool("ext", "get_page"), Honours::Nothing),
            (own_tool("send_email"), Honours::Keys),
        ]));
        let classifier = Arc::new(Classifier::new(Vec::new(), &Lists::default(), HashSet::new())?);
        let rules = Rules::of(&run.spec)?;
        let catalog = Catalog::new(world.list().await?, &classifier, &rules)?;
        let config = LedgerConfig { no_duplicate_external_actions: true, max_retries: 5, ..LedgerConfig::default() };
        let ledger = Ledger::new(store.clone(), lease.clone(), run.root_run_id.clone(), config, env.clone(), trace);
        let workspace = folder.join("ws");
        std::fs::create_dir_all(&workspace)?;
        let files = WorkspaceFiles::open(&workspace)?;
        let gateway = ToolGateway::new(catalog, classifier, rules, ledger, world, files, Box::new(|_| {}));
        Ok(Self { sqlite, store, gateway, lease, step_id, env })
    }

    /// One turn, as the drive loop takes it: check in, reserve, record, dispatch, commit.
    async fn turn(&self, turn: u32) -> Outcome<()> {
        let (store, lease) = (&self.store, &self.lease);
        store.run(&lease.run_id).await?;
        let request_sha256 = sha256(format!("request {turn}"));
        let reservation = RequestReservation {
            turn,
            request_sha256,
            provider: "bench".to_owned(),
            model: "bench".to_owned(),
            price: None,
            estimator: "none".to_owned(),
            continued_from: None,
            estimated_tokens: 1_000,
            reserved_output_tokens: 1_000,
            at: self.env.now(),
        };
        let request_id = store.reserve_request(lease, reservation).await?;
        let reply = reply(turn);
        let draft = TurnDraft {
            turn,
            step_id: self.step_id.clone(),
            request_id,
            request_sha256,
            calls: self.gateway.plan(&reply, turn),
            reply,
            at: self.env.now(),
        };
        store.record_turn(lease, draft).await?;
        let calls = store.calls(&lease.run_id, Some(turn)).await?;
        let (effects, reads): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.policy.class.has_effect());
        let stop = StopSignal::default();
        let ids =
            |calls: Vec<ua_store::CallRecord>| calls.into_iter().map(|call| call.call_id).collect::<Vec<CallId>>();
        store.run(&lease.run_id).await?;
        self.gateway.dispatch_group(&ids(reads), &stop).await?;
        if !effects.is_empty() {
            store.run(&lease.run_id).await?;
            store.save_checkpoint(lease, self.marker(CheckpointKind::PreSideEffect, turn)).await?;
            self.gateway.dispatch_group(&ids(effects), &stop).await?;
        }
        let mut blocks = Vec::new();
        for call in store.calls(&lease.run_id, Some(turn)).await? {
            let receipt = store.receipt(&call.call_id).await?;
            let content = answer_for(&call, receipt.as_ref()).ok_or("a call is not settled")?;
            blocks.push(Block::ToolResult {
                tool_use_id: call.tool_use_id,
                content: content.text,
                is_error: content.is_error,
            });
        }
        let commit = TurnCommit {
            turn,
            messages: vec![Message { role: Role::User, origin: Origin::Tools, blocks }],
            checkpoint: self.marker(CheckpointKind::StepBoundary, turn),
            held_millis: 1,
            at: self.env.now(),
        };
        store.commit_turn(lease, commit).await?;
        Ok(())
    }

    fn marker(&self, kind: CheckpointKind, turn: u32) -> NewCheckpoint {
        NewCheckpoint {
            checkpoint_id: CheckpointId::new(&self.env),
            step_id: self.step_id.clone(),
            kind,
            snapshot: json!({"version": "1", "status": "running", "phase": "main", "step_index": 1, "turn_index": turn,
                "budgets_used": {"tool_calls": turn, "turns": turn, "tokens": 1_000, "held_millis": turn}}),
            cursor: json!({"version": "1", "turn_index": turn, "open_turn": turn, "last_message_seq": turn * 2}),
            at: self.env.now(),
        }
    }
}

/// Two reads, or a read and an effect, as the model asks for them.
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
        usage: Some(Usage { input_tokens: 1_000, output_tokens: 50, ..Usage::default() }),
        model: "bench".to_owned(),
        response_id: None,
    }
}
