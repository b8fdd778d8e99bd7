//! Tests that Granular Execution PRD §11 names, through the library face. Those of the guard and the loop are in `crash_anywhere`, that of
//! the truncation in `ua-checkpoint`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Block, RunStop};
use ua_dispatch::{LocalCall, LocalTools};
use ua_llm::{Script, ScriptedProvider};
use ua_runner::{RunError, RunLock, StepError, StepOutcome};
use ua_store::{Blob, EndedAtOnce, EndedBy, NewOverride, OverrideKind, RequestStatus, RunStore as _};
use ua_testkit::{CrashPlan, StoreSeam, Writes};

use super::shop::{POLICY, SCRIPT, Shop, done, run_id, spec};

/// A request that left and was not answered is charged what it is estimated to have taken, and asked again.
#[tokio::test]
async fn test_granular_usage_baseline_on_timeout() {
    let shop = Shop::new(SCRIPT, POLICY, done);
    shop.model.silence.store(1, Ordering::SeqCst);
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{outcome:?}");
    let requests = shop.records().await.requests;
    let [unanswered, answered @ ..] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((unanswered.status, unanswered.turn), (RequestStatus::Baseline, 1));
    assert!(unanswered.estimated_tokens > 0);
    assert_eq!((unanswered.usage.input_tokens, unanswered.usage.output_tokens), (unanswered.estimated_tokens, 0));
    assert!(answered.iter().all(|request| request.status == RequestStatus::Actual), "{answered:?}");
}

/// Under other tools, another system prompt or another model nothing is sent, however often it is tried.
#[tokio::test]
async fn test_granular_fingerprint_mismatch() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.max_turns = 1;
    let _stopped = shop.run().await.unwrap();
    more_turns(&shop).await;
    let original = shop.step.clone();

    let mut changed = spec("list_stock", &json!({}));
    changed.description = "Lists the stock of yesterday.".to_owned();
    let tools = LocalTools::new(shop.host.env.clone())
        .with(changed, async |_: LocalCall| Ok(json!({"articles": []})))
        .with(spec("place_order", &json!({"article": {"type": "string"}})), async |_: LocalCall| {
            Ok(json!({"order": 1}))
        });
    shop.step.agent.tools = Arc::new(tools);
    for _ in 0..2 {
        let outcome = shop.run().await.unwrap();
        let StepOutcome::Stopped { reason: RunStop::Fingerprint, detail } = &outcome else { panic!("{outcome:?}") };
        assert!(detail.contains("list_stock") && detail.contains("run_accepting"), "{detail}");
        assert!(!detail.contains("`ua "), "a program has no command line: {detail}");
    }
    shop.step = original.clone();
    shop.step.agent.system = "Be quick.".to_owned();
    let error = shop.run().await.unwrap_err();
    assert!(
        matches!(&error, StepError::AnotherDefinition { .. }) && error.to_string().contains("Be quick."),
        "{error}"
    );
    shop.step = original.clone();
    shop.step.agent.model = "another".to_owned();
    let error = shop.run().await.unwrap_err();
    assert!(matches!(&error, StepError::AnotherDefinition { .. }) && error.to_string().contains("another"), "{error}");
    assert_eq!((shop.requests(), shop.orders().len()), (1, 0), "nothing was sent under another setup");

    shop.step = original;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(outcome, StepOutcome::Complete { turns: 3, .. }), "{outcome:?}");
}

/// With `enforce_idempotency` a tool that cannot take a key is a configuration error before anything is sent.
#[tokio::test]
async fn test_idempotency_enforced_tool() {
    let mut shop = Shop::new(SCRIPT, POLICY, done);
    shop.step.enforce_idempotency = true;
    let error = shop.run().await.unwrap_err();
    assert!(matches!(error, StepError::Tools(_)), "{error}");
    let told = error.to_string();
    for word in ["mcp__shop__place_order", "key_channel", "`enforce_idempotency` of the step"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains("tools.deny") && !told.contains("job"), "a program has no job file: {told}");
    assert_eq!((shop.requests(), shop.orders().len()), (0, 0));
}

/// A page of 33,000 bytes.
fn page() -> String {
    "stock and more stock. ".repeat(1_500)
}

/// A shop whose first turn reads the page, and whose second has to be shown it.
fn reader() -> Shop {
    let script = json!({"turns": [
        {"tools": [{"name": "mcp__shop__list_page", "input": {}}]},
        {"text": "Read.", "expect": {"contains": [page()], "tool_result_ok": true}},
    ]});
    let mut shop = Shop::with_tools(&script.to_string(), POLICY, done, |tools, _| {
        tools.with(spec("list_page", &json!({})), async |_: LocalCall| Ok(Value::from(page())))
    });
    shop.step.max_turns = 1;
    shop
}

async fn more_turns(shop: &Shop) {
    let change = NewOverride {
        run_id: run_id(),
        kind: OverrideKind::Budget,
        component: "max_turns".to_owned(),
        value: json!(9),
        made_by: "a tester".to_owned(),
        at: shop.host.env.now(),
    };
    shop.store.insert_override(change).await.unwrap();
}

/// What is over the threshold is stored apart, the history refers to it, and the request after a resume has it whole.
#[tokio::test]
async fn test_blob_offload_and_rehydrate() {
    let shop = reader();
    let _stopped = shop.run().await.unwrap();
    let messages = shop.records().await.messages;
    let result = messages.iter().flat_map(|record| &record.message.blocks).find_map(|block| match block {
        Block::ToolResult { content, .. } => Some(content.clone()),
        Block::Text { .. } | Block::ToolUse(_) | Block::Opaque { .. } => None,
    });
    let blob = result.unwrap().blob().cloned().unwrap();
    assert_eq!(blob.size, page().len() as u64);
    more_turns(&shop).await;
    let outcome = shop.run().await.unwrap();
    assert!(matches!(&outcome, StepOutcome::Complete { final_output, .. } if final_output == "Read."), "{outcome:?}");
}

/// A store in which every blob is gone, once somebody says so.
struct Gone(AtomicBool);

#[async_trait]
impl Writes for Gone {
    fn seen_blob(&self, blob: Blob) -> Blob {
        if self.0.load(Ordering::SeqCst) { Blob::Missing { pruned_at: None } } else { blob }
    }
}

/// A result that the history refers to and that is gone ends the step with an error before anything is sent, unless the step goes on without
/// results of calls that may be repeated.
#[tokio::test]
async fn test_blob_ref_missing_fails_fast() {
    for degraded in [false, true] {
        let mut shop = reader();
        shop.step.degraded_replay = degraded;
        let gone = Arc::new(Gone(AtomicBool::new(false)));
        let seam = StoreSeam::new(shop.store.clone(), Arc::new(CrashPlan::new(None))).with_writes(gone.clone());
        shop.host.store = Arc::new(seam);
        let _stopped = shop.run().await.unwrap();
        more_turns(&shop).await;
        gone.0.store(true, Ordering::SeqCst);
        if !degraded {
            for _ in 0..2 {
                let error = shop.run().await.unwrap_err();
                assert!(matches!(error, StepError::Run(RunError::BlobMissing { .. })), "{error}");
                let ends = RunLock::ended_at_once(&shop.locks(), &run_id());
                assert!(matches!(ends.as_slice(), [.., EndedAtOnce { by: EndedBy::Error, .. }]), "{ends:?}");
            }
            let run = shop.records().await.run;
            let ends: Vec<_> = run.processes.iter().map(|process| (process.died, process.ended_by)).collect();
            assert_eq!(ends, [(false, None), (true, Some(EndedBy::Error)), (false, None)], "nobody killed it");
            assert_eq!(shop.requests(), 1, "nothing was sent");
            continue;
        }
        let told =
            json!({"turns": [{"text": "-"}, {"text": "Read.", "expect": {"contains": ["is not stored any more"]}}]});
        shop.step.agent.provider = Arc::new(ScriptedProvider::new(Script::parse(&told.to_string()).unwrap()));
        let outcome = shop.run().await.unwrap();
        assert!(matches!(outcome, StepOutcome::Complete { .. }), "{outcome:?}");
    }
}
