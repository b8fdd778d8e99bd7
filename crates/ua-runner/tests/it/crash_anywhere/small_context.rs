//! A model that takes less than one turn's results, and a process that dies anywhere: the run ends well, with each effect once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use ua_core::{Env, ModelTurn, RunStatus};
use ua_llm::{
    LlmError, LlmProvider, ModelRequest, Script, ScriptedProvider, Status, StreamObserver, check_history,
    estimate_input_tokens,
};
use ua_testkit::{CrashAt, Honours, World, foreign_tool, own_tool};

use super::scenario::Scenario;

/// Two large reads side by side, arguments that are large themselves, and a long text.
fn script() -> String {
    let write = serde_json::json!({"path": "report.md", "content": "line of a report\n".repeat(1_100)});
    let send = serde_json::json!({"to": ["a@example.test"], "subject": "Report", "body": "Done."});
    let read = |path: &str| serde_json::json!({"name": "mcp__ua__read_local_file", "input": {"path": path}});
    serde_json::json!({"turns": [
        {"tools": [read("a.txt"), read("b.txt")]},
        {"tools": [{"name": "mcp__ua__write_local_file", "input": write}]},
        {"text": "words ".repeat(2_800), "tools": [{"name": "mcp__ua__send_email", "input": send}]},
        {"tools": [{"name": "mcp__forum__post_comment", "input": {"text": "Done."}}]},
        {"text": "All done."},
    ]})
    .to_string()
}

const EFFECTS: [&str; 3] = ["write_local_file", "send_email", "post_comment"];

/// The bytes that each answer has more: several times what the model takes.
const PADDING: usize = 21_000;

/// The most tokens that the model takes.
const CONTEXT: u64 = 4_000;

struct Small {
    inner: ScriptedProvider,
    refused: AtomicU32,
}

#[async_trait]
impl LlmProvider for Small {
    fn name(&self) -> &str {
        self.inner.name()
    }

    async fn complete(&self, request: &ModelRequest, observer: &dyn StreamObserver) -> Result<ModelTurn, LlmError> {
        assert_eq!(check_history(&request.messages), Ok(()));
        observer.sent();
        if estimate_input_tokens(request) > CONTEXT {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(LlmError::TooLong { status: Status::Http(400), message: "prompt is too long".into() });
        }
        self.inner.complete(request, observer).await
    }
}

fn scenario() -> (Scenario, Arc<Small>) {
    let own = ["write_local_file", "send_email"].map(|tool| (own_tool(tool), Honours::Keys));
    let read = [(own_tool("read_local_file"), Honours::Nothing)];
    let opaque = [(foreign_tool("forum", "post_comment"), Honours::Nothing)];
    let world = World::new(own.into_iter().chain(read).chain(opaque)).padded(PADDING);
    let script = script();
    let inner = ScriptedProvider::new(Script::parse(&script).unwrap());
    let small = Arc::new(Small { inner, refused: AtomicU32::new(0) });
    let scenario = Scenario::with(world, Env::simulated(42), &script, r#"{"objective": "Do it."}"#, None);
    (scenario.asking(small.clone()), small)
}

#[tokio::test]
async fn a_run_ends_well_with_a_model_that_takes_less_than_one_turn_wherever_we_die() {
    let (undisturbed, small) = scenario();
    let (crossings, run) = undisturbed.run_without_crash().await;
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    let refused = small.refused.load(Ordering::SeqCst);
    assert!((1..=12).contains(&refused), "what was learned of one turn holds for the next: {refused} were refused");
    for at in (0..crossings).step_by(6).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
        let (scenario, small) = scenario();
        scenario.crash(at).await;
        let run = scenario.finish_by_looking().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{at:?}: {:?}", run.status_detail);
        for effect in EFFECTS {
            assert_eq!(scenario.world.count(effect), 1, "{effect} at {at:?}");
        }
        assert!(small.refused.load(Ordering::SeqCst) <= 24, "{at:?}");
        scenario.check_invariants(&format!("{at:?}")).await;
    }
}
