//! A turn waits for the disk once for each effect, and once more: every answer leaves with the start of the next call, the last one with
//! the end of the turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::{Value, json};
use ua_core::{Env, RunStatus};
use ua_store::{Author, Batch, Committed, Durability, Store, StoreError};
use ua_testkit::{CrashAt, CrashPlan, Honours, World, Writes, foreign_tool, own_tool};

use super::scenario::{Answers, Scenario};

/// Counts the writes that wait for the disk.
#[derive(Default)]
struct Synced(AtomicU32);

#[async_trait]
impl Writes for Synced {
    async fn commit(&self, inner: &dyn Store, by: &Author, batch: Batch) -> Result<Committed, StoreError> {
        if batch.durability() == Durability::Synced {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        inner.commit(by, batch).await
    }
}

/// A call with an effect under a key.
fn effect(number: usize) -> Value {
    json!({"name": "mcp__ua__notify", "input": {"message": format!("number {number}")}})
}

/// One whose tool knows no keys.
fn opaque(number: usize) -> Value {
    json!({"name": "mcp__forum__post_comment", "input": {"text": format!("number {number}")}})
}

fn read(number: usize) -> Value {
    json!({"name": "mcp__ua__read_local_file", "input": {"path": format!("{number}.txt")}})
}

/// One turn with these calls.
fn scenario(calls: &[Value]) -> Scenario {
    let tools = [
        (own_tool("notify"), Honours::Keys),
        (own_tool("read_local_file"), Honours::Nothing),
        (foreign_tool("forum", "post_comment"), Honours::Nothing),
    ];
    let script = json!({"turns": [{"tools": calls}, {"text": "All done."}]}).to_string();
    Scenario::with(World::new(tools), Env::simulated(7), &script, r#"{"objective": "Do it."}"#, None)
}

/// How often a run with these calls waited for the disk.
async fn synced(calls: &[Value]) -> u32 {
    let (scenario, writes) = (scenario(calls), Arc::new(Synced::default()));
    let (_, run) = scenario.drive_with(Arc::new(CrashPlan::new(None)), Some(writes.clone())).await.unwrap();
    assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
    scenario.check_invariants("nothing went wrong").await;
    writes.0.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_turn_waits_for_the_disk_once_for_each_effect_and_once_more() {
    let one = synced(&[effect(0)]).await;
    for more in 1..5 {
        let calls: Vec<Value> = (0..=more).map(effect).collect();
        assert_eq!(synced(&calls).await, one + u32::try_from(more).unwrap(), "{calls:?}");
    }
    // What may be a repeat of what was sent a moment ago is looked at first: a start that is refused costs a write, and no answer.
    assert_eq!(synced(&[opaque(0), opaque(1)]).await, one + 2);
    // No answer of an effect waits while a read is at work: it leaves with the start of that, and the next effect has a start of its own.
    for (calls, effects, reads_between) in [
        (vec![read(0), effect(0)], 1, 0),
        (vec![effect(0), read(0)], 1, 0),
        (vec![effect(0), read(0), opaque(1)], 2, 1),
        (vec![read(0), effect(0), read(1), read(2), effect(1), effect(2), read(3), opaque(2)], 4, 2),
    ] {
        assert_eq!(synced(&calls).await, one + effects - 1 + reads_between, "{calls:?}");
    }
}

/// Whatever waits for whatever is started next: each order of effects and reads, the process dying at each crossing of it.
#[tokio::test]
async fn answers_that_wait_for_the_next_start_are_not_lost_wherever_we_die() {
    let kinds = [effect, opaque, read];
    for of in 0..kinds.len().pow(3) {
        let calls: Vec<Value> = (0..3_u32).map(|at| kinds[of / 3_usize.pow(at) % 3](at as usize)).collect();
        let count = |tool: &str| calls.iter().filter(|call| call["name"].as_str().unwrap().ends_with(tool)).count();
        // Whoever looks outside after a loss sees that there is one, not which.
        if count("post_comment") > 1 {
            continue;
        }
        let (crossings, run) = scenario(&calls).run_without_crash().await;
        assert_eq!(run.status, RunStatus::Succeeded, "{:?}", run.status_detail);
        for at in (0..crossings).flat_map(|n| [CrashAt::Before(n), CrashAt::After(n)]) {
            let scenario = scenario(&calls);
            scenario.crash(at).await;
            let run = scenario.resume_to_the_end(Answers::Truth).await;
            assert_eq!(run.status, RunStatus::Succeeded, "{calls:?} at {at:?}: {:?}", run.status_detail);
            for tool in ["notify", "post_comment"] {
                assert_eq!(scenario.world.count(tool), count(tool), "{tool} of {calls:?} at {at:?}");
            }
            scenario.check_invariants(&format!("{calls:?} at {at:?}")).await;
        }
    }
}
