//! A step with two tools and three turns, killed in the middle and finished by running it again.
//!
//! ```sh
//! cargo run -p ua-runner --example granular_step -- /tmp/invoices --die-after-turn 2
//! cargo run -p ua-runner --example granular_step -- /tmp/invoices
//! ```
//!
//! `--die-in-tool` dies at the worst moment instead: the invoice is sent, and nobody has heard of it. The key finds that out. With
//! `--no-keys` (each time) nothing does, and a person is asked: `ua questions --root /tmp/invoices`.

// What it writes is its own, and only where the lint is on is it expected: the library tests build this file, too.
#![allow(clippy::disallowed_methods, reason = "an example of a program of somebody else's")]
#![expect(clippy::print_stdout, reason = "what the example shows is what it prints")]

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use ua_classify::{Classifier, Lists, PolicyRules};
use ua_core::{RunId, ToolAnnotations, ToolName, ToolNamespace, ToolSpec};
use ua_dispatch::{LocalCall, LocalFailure, LocalTools};
use ua_llm::{Script, ScriptedProvider};
use ua_runner::{Agent, GranularStep, RunEvent, StepHost, StepOutcome};
use ua_store::{RunStore as _, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// What a model would have said.
const SCRIPT: &str = r#"{"turns": [
  {"text": "Looking.", "tools": [{"name": "mcp__shop__read_orders", "input": {}}]},
  {"tools": [{"name": "mcp__shop__send_invoice", "input": {"order": "{{result_json:toolu_1_1:/open/0}}"}}]},
  {"text": "The invoice for order {{result_json:toolu_1_1:/open/0}} is on its way."}
]}"#;

/// `send_invoice` does its work once per key, so a lost call of it may be sent again under its key.
const POLICY: &str = r#"
[[rule]]
id = "shop-invoices"
server = "shop"
name = "send_invoice"
side_effect_class = "external"
effect_kind = "invoice.send"
key_channel = "meta"
"#;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let wanted = Wanted::read()?;
    let run_id = RunId::parse("run_invoices")?;
    let env = ua_core::system::env();

    let tools = LocalTools::new(env.clone())
        .with(tool("read_orders", "Lists the orders without an invoice.", true), {
            let folder = wanted.folder.clone();
            move |_: LocalCall| std::future::ready(read_orders(&folder))
        })
        .with(tool("send_invoice", "Sends the invoice for an order.", false), {
            let (folder, die) = (wanted.folder.clone(), wanted.die_in_tool);
            move |call: LocalCall| std::future::ready(send_invoice(&folder, &call, die))
        });
    let policy = if wanted.no_keys { POLICY.replace("key_channel = \"meta\"\n", "") } else { POLICY.to_owned() };
    let rules = PolicyRules::parse(&policy, "the example's policy")?;
    // The tools are this program's own: what they say about themselves is to be believed.
    let classifier = Classifier::new(vec![rules], &Lists::default(), tools.servers())?;
    let model = ScriptedProvider::new(Script::parse(SCRIPT)?);
    let agent = Agent::new(Arc::new(model), "scripted", Arc::new(tools), Arc::new(classifier));
    let step = GranularStep::new("invoices", agent, "Send an invoice for every order that has none.");

    let store = Arc::new(SqliteStore::open(SqliteConfig::new(wanted.folder.join("runtime_state.db")))?);
    tell_what_is_there(&store, &run_id).await?;
    let mut host = StepHost::new(store, wanted.folder.join("workspace"), env).with_locks(wanted.folder.join("locks"));
    host.watcher = Arc::new(move |signal| {
        if let RunEvent::Committed { turn } = signal {
            println!("turn {turn} is committed");
            if wanted.die_after_turn == Some(turn) {
                std::process::abort();
            }
        }
    });

    let why = match step.run(&host, &run_id).await? {
        StepOutcome::Complete { final_output, turns, usage } => {
            println!("complete after {turns} turns and {} requests: {final_output}", usage.requests["actual"]);
            return Ok(ExitCode::SUCCESS);
        }
        StepOutcome::Waiting { question } => question.text,
        StepOutcome::Stopped { reason, detail } => format!("stopped ({reason}): {detail}"),
        StepOutcome::Failed { why } => why,
        StepOutcome::Cancelled => "it was cancelled".to_owned(),
    };
    println!("not complete: {why}");
    Ok(ExitCode::FAILURE)
}

/// What this process finds done, and so does not repeat.
async fn tell_what_is_there(store: &SqliteStore, run_id: &RunId) -> Result<(), StoreError> {
    let records = match store.load(run_id).await {
        Ok(records) => records,
        Err(StoreError::NotFound { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    for turn in records.turns.iter().filter(|turn| turn.turn <= records.run.turn_index) {
        println!("not repeated: turn {}", turn.turn);
    }
    for call in records.calls {
        println!("found: {} of turn {}, {}, attempt {}", call.name.tool, call.position.turn, call.status, call.attempt);
    }
    Ok(())
}

fn read_orders(folder: &Path) -> Result<Value, LocalFailure> {
    append(&folder.join("reads.txt"), "read").map_err(unwritable)?;
    Ok(json!({"open": ["A-17"]}))
}

/// Sends an invoice: a line in a file. A key that is there already was sent.
fn send_invoice(folder: &Path, call: &LocalCall, die: bool) -> Result<Value, LocalFailure> {
    let sent = folder.join("invoices.txt");
    let earlier = fs::read_to_string(&sent).unwrap_or_default();
    if earlier.lines().any(|line| line.starts_with(call.key())) {
        println!("not repeated: the invoice with the key {}", call.key());
        return Ok(json!({"status": "sent before"}));
    }
    append(&sent, &format!("{} order {}", call.key(), call.text("order"))).map_err(unwritable)?;
    if die {
        std::process::abort();
    }
    Ok(json!({"status": "sent"}))
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of `map_err`")]
fn unwritable(error: std::io::Error) -> LocalFailure {
    LocalFailure::Unknown(error.to_string())
}

fn tool(name: &str, description: &str, only_reads: bool) -> ToolSpec {
    let schema = if only_reads {
        json!({"type": "object", "properties": {}})
    } else {
        json!({"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]})
    };
    ToolSpec {
        name: ToolName::qualified(ToolNamespace::Local, "shop", name),
        description: description.to_owned(),
        input_schema: schema,
        annotations: ToolAnnotations { read_only: Some(only_reads), ..ToolAnnotations::default() },
    }
}

/// What the command line asks for.
struct Wanted {
    folder: PathBuf,
    die_after_turn: Option<u32>,
    die_in_tool: bool,
    no_keys: bool,
}

impl Wanted {
    fn read() -> Result<Self, Box<dyn Error>> {
        let usage = "usage: granular_step FOLDER [--die-after-turn N | --die-in-tool] [--no-keys]";
        let mut arguments = std::env::args().skip(1);
        let folder = arguments.next().filter(|folder| !folder.starts_with('-')).ok_or(usage)?;
        let mut wanted = Self { folder: folder.into(), die_after_turn: None, die_in_tool: false, no_keys: false };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--die-after-turn" => wanted.die_after_turn = Some(arguments.next().ok_or(usage)?.parse()?),
                "--die-in-tool" => wanted.die_in_tool = true,
                "--no-keys" => wanted.no_keys = true,
                _ => return Err(usage.into()),
            }
        }
        fs::create_dir_all(&wanted.folder)?;
        Ok(wanted)
    }
}
