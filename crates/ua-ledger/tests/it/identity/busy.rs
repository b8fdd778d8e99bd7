//! What came back from outside waits for a database that is busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{CallStatus, Env, Outcome, RawReply, RunId, Trace};
use ua_ledger::{Admission, Ledger, LedgerConfig, LedgerError, Outbox, Patience, Tries};
use ua_store::conformance::samples;
use ua_store::conformance::{Crossing, Plan, StoreOutcome, StoreSeam};
use ua_store::{CallRecord, LedgerStore as _, MemStore, RunStore as _, Store, StoreError};

use super::member::{FIRST, Member};

/// The next writes of an answer come to this.
struct Busy {
    times: AtomicU32,
    outcome: StoreOutcome,
}

#[async_trait]
impl Plan for Busy {
    async fn before(&self, _crossing: &Crossing) {}

    async fn after(&self, _crossing: &Crossing) {}

    fn comes_to(&self, crossing: &Crossing) -> StoreOutcome {
        let is_next = |left: u32| left.checked_sub(1);
        let is_met = crossing.is("store.settle_attempt")
            && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next).is_ok();
        if is_met { self.outcome } else { StoreOutcome::Done }
    }
}

/// Waits so often.
struct AtMost(u32);

#[async_trait]
impl Patience for AtMost {
    async fn wait(&self, doing: &str, _why: &str, tries: &mut Tries) -> bool {
        assert_eq!(doing, "store the answer of");
        tries.count <= self.0
    }
}

/// A call is sent, and its answer meets a database like this.
async fn answered(
    times: u32,
    outcome: StoreOutcome,
    patience: impl FnOnce(Arc<MemStore>, RunId) -> Arc<dyn Patience>,
) -> (Result<CallRecord, LedgerError>, Member) {
    let store = Arc::new(MemStore::default());
    let member = Member::of(&store, samples::new_run("run_1"), true).await;
    let seam = StoreSeam::new(store.clone(), Arc::new(Busy { times: AtomicU32::new(times), outcome }));
    let env = Env::simulated(7);
    let trace = Trace::new(&env);
    let root = member.lease.run_id.clone();
    let outbox = Arc::new(Outbox::new(Arc::new(seam), member.lease.clone()));
    let ledger = Ledger::new(outbox, member.lease.clone(), root.clone(), LedgerConfig::default(), env, trace)
        .with_patience(patience(store, root));
    let id = member.plan(&FIRST).await;
    let Admission::Ready(prepared) = ledger.admit(&id, FIRST.facts()).await.unwrap() else { panic!("not let through") };
    let permit = ledger.start(prepared, "1").await.unwrap().unwrap();
    let content = json!([{"type": "text", "text": "done"}]);
    let answer = Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": false}) });
    (ledger.settle(permit, answer).await, member)
}

#[tokio::test]
async fn an_answer_outlives_a_busy_database() {
    for outcome in [StoreOutcome::Busy, StoreOutcome::AnswerLost] {
        let (settled, member) = answered(3, outcome, |_, _| Arc::new(AtMost(3))).await;
        let settled = settled.unwrap();
        assert_eq!(settled.status, CallStatus::Succeeded, "{outcome:?}");
        let attempts = member.store.attempts(&settled.call_id).await.unwrap();
        assert_eq!((settled.attempt, attempts.len()), (1, 1), "{outcome:?}");
        assert!(member.store.receipt(&settled.call_id).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_waiting_does_not_help_and_what_nobody_waits_for_is_told() {
    for (outcome, patience) in [(StoreOutcome::Busy, 0), (StoreOutcome::Busy, 2), (StoreOutcome::DiskFull, 9)] {
        let (settled, _) = answered(3, outcome, |_, _| Arc::new(AtMost(patience))).await;
        let Err(LedgerError::Store { source, .. }) = settled else { panic!("{outcome:?}: {settled:?}") };
        assert!(matches!(source, StoreError::Unavailable { .. }), "{source:?}");
    }
}

/// Another process took the run while the answer waited: it decides about the call now, and this one learns that it lost the run.
#[tokio::test]
async fn an_answer_does_not_outlive_its_lease() {
    struct Overtaken(Arc<MemStore>, RunId);

    #[async_trait]
    impl Patience for Overtaken {
        async fn wait(&self, _doing: &str, _why: &str, _tries: &mut Tries) -> bool {
            let (lease, _) = self.0.acquire_run(&self.1, &samples::owner(101), samples::at(50)).await.unwrap();
            self.0.mark_lost(&lease, "its process was replaced", samples::at(51)).await.unwrap();
            true
        }
    }

    let (settled, member) = answered(1, StoreOutcome::Busy, |store, run| Arc::new(Overtaken(store, run))).await;
    let Err(LedgerError::Store { source: StoreError::Fenced { .. }, call, .. }) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(member.store.call(&call).await.unwrap().status, CallStatus::Unknown);
}
