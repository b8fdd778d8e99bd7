//! What came back from outside waits for a database that is busy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{CallId, CallStatus, Env, Outcome, RawReply, RunId, Trace};
use ua_ledger::{Admission, LateReplies, Ledger, LedgerConfig, LedgerError, Outbox, Patience, Recovery, Tries};
use ua_store::conformance::samples;
use ua_store::conformance::{Crossing, Plan, StoreOutcome, StoreSeam};
use ua_store::{CallRecord, LateReply, LedgerStore as _, MemStore, RunStore as _, Store, StoreError};

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
) -> (Result<CallRecord, LedgerError>, Member, Arc<Kept>) {
    let store = Arc::new(MemStore::default());
    let member = Member::of(&store, samples::new_run("run_1"), true).await;
    let seam = StoreSeam::new(store.clone(), Arc::new(Busy { times: AtomicU32::new(times), outcome }));
    let env = Env::simulated(7);
    let trace = Trace::new(&env);
    let root = member.lease.run_id.clone();
    let kept = Arc::<Kept>::default();
    let outbox = Arc::new(Outbox::new(Arc::new(seam), member.lease.clone()).with_late_replies(kept.clone()));
    let ledger = Ledger::new(outbox, member.lease.clone(), root.clone(), LedgerConfig::default(), env, trace)
        .with_patience(patience(store, root));
    let id = member.plan(&FIRST).await;
    let Admission::Ready(prepared) = ledger.admit(&id, FIRST.facts()).await.unwrap() else { panic!("not let through") };
    let permit = ledger.start(prepared, "1").await.unwrap().unwrap();
    let content = json!([{"type": "text", "text": "done"}]);
    let answer = Outcome::Raw(RawReply::ToolResult { result: json!({"content": content, "isError": false}) });
    (ledger.settle(permit, answer).await, member, kept)
}

/// What is kept beside the database.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<LateReply>>);

impl Kept {
    fn attempts(&self) -> Vec<u32> {
        self.0.lock().unwrap().iter().map(|late| late.attempt).collect()
    }
}

impl LateReplies for Kept {
    fn keep(&self, late: &LateReply) {
        self.0.lock().unwrap().push(late.clone());
    }

    fn about(&self, call: &CallId) -> Vec<LateReply> {
        self.0.lock().unwrap().iter().filter(|late| late.tool_call_id == *call).cloned().collect()
    }
}

#[tokio::test]
async fn an_answer_outlives_a_busy_database() {
    for outcome in [StoreOutcome::Busy, StoreOutcome::AnswerLost] {
        let (settled, member, kept) = answered(3, outcome, |_, _| Arc::new(AtMost(3))).await;
        let settled = settled.unwrap();
        assert_eq!(settled.status, CallStatus::Succeeded, "{outcome:?}");
        let attempts = member.store.attempts(&settled.call_id).await.unwrap();
        assert_eq!((settled.attempt, attempts.len()), (1, 1), "{outcome:?}");
        assert!(member.store.receipt(&settled.call_id).await.unwrap().is_some());
        assert_eq!(kept.attempts(), [1], "kept before it is tried again, and once");
    }
}

#[tokio::test]
async fn what_waiting_does_not_help_and_what_nobody_waits_for_is_told() {
    for (outcome, patience) in [(StoreOutcome::Busy, 0), (StoreOutcome::Busy, 2), (StoreOutcome::DiskFull, 9)] {
        let (settled, _, kept) = answered(3, outcome, |_, _| Arc::new(AtMost(patience))).await;
        let Err(LedgerError::Store { source, .. }) = settled else { panic!("{outcome:?}: {settled:?}") };
        assert!(matches!(source, StoreError::Unavailable { .. }), "{source:?}");
        assert_eq!(kept.attempts(), [1]);
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

    let (settled, member, kept) = answered(1, StoreOutcome::Busy, |store, run| Arc::new(Overtaken(store, run))).await;
    let Err(LedgerError::Store { source: StoreError::Fenced { .. }, call, .. }) = settled else {
        panic!("{settled:?}")
    };
    assert_eq!(member.store.call(&call).await.unwrap().status, CallStatus::Unknown);

    // Whoever has the run now, and everybody who is asked, is shown what came.
    let (lease, _) =
        member.store.acquire_run(&member.lease.run_id, &samples::owner(102), samples::at(60)).await.unwrap();
    let outbox = Arc::new(Outbox::new(member.store.clone(), lease.clone()).with_late_replies(kept));
    let (env, root) = (Env::simulated(8), member.lease.run_id.clone());
    let trace = Trace::new(&env);
    let ledger = Ledger::new(outbox, lease, root, LedgerConfig::default(), env, trace);
    let Admission::Unknown(unknown) = ledger.admit(&call, FIRST.facts()).await.unwrap() else { panic!("not in doubt") };
    let Recovery::Decided(admission) = ledger.recover(&unknown, &FIRST.facts()).await.unwrap() else {
        panic!("not decided")
    };
    let Admission::Held(question) = *admission else { panic!("{admission:?}") };
    assert!(question.text.contains("An answer to attempt 1 came at"), "{}", question.text);
    assert!(question.text.ends_with("could not be stored: done"), "{}", question.text);
    assert_eq!(question.detail["late_replies"][0]["attempt"], 1);
}
