//! What came back from outside waits for a database that is busy.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use ua_core::{
    CallId, CallPolicy, CallStatus, Env, EvidenceLevel, OnUnknown, Outcome, RawReply, RunId, SideEffectClass, Trace,
};
use ua_ledger::{
    Admission, Facts, LateReplies, Ledger, LedgerConfig, LedgerError, Outbox, Patience, Recovery, Tries,
    settle_by_late_replies, settle_what_ends_by_late_replies,
};
use ua_store::conformance::samples;
use ua_store::conformance::{Crossing, Plan, StoreOutcome, StoreSeam};
use ua_store::{CallRecord, Choice, LateReply, LedgerStore as _, MemStore, QuestionStatus, RunStore as _, StoreError};

use super::member::{FIRST, Member, OTHER_WORDS, in_database};

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
    let ledger =
        Ledger::new(outbox, member.lease.clone(), in_database("d", root.clone()), LedgerConfig::default(), env, trace)
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

#[async_trait]
impl LateReplies for Kept {
    async fn keep(&self, late: &LateReply) -> Result<(), String> {
        self.0.lock().unwrap().push(late.clone());
        Ok(())
    }

    fn all(&self) -> Vec<LateReply> {
        self.0.lock().unwrap().clone()
    }
}

/// A disk on which nothing can be kept, for so many tries.
#[derive(Debug)]
struct Full(AtomicU32);

#[async_trait]
impl LateReplies for Full {
    async fn keep(&self, _late: &LateReply) -> Result<(), String> {
        let is_next = |left: u32| left.checked_sub(1);
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_next) {
            Ok(_) => Err("no space left on device".to_owned()),
            Err(_) => Ok(()),
        }
    }

    fn all(&self) -> Vec<LateReply> {
        Vec::new()
    }
}

/// What could not be kept is tried again, and nobody takes it for kept before.
#[tokio::test]
async fn what_is_not_kept_is_not_said_to_be() {
    let store = Arc::new(MemStore::default());
    let member = Member::of(&store, samples::new_run("run_1"), true).await;
    let outbox = Outbox::new(store, member.lease.clone()).with_late_replies(Arc::new(Full(AtomicU32::new(2))));
    let settle = samples::settle("call_1", 1, CallStatus::Succeeded);
    let mut kept = Vec::new();
    for _ in 0..4 {
        outbox.keep_beside(&settle).await;
        kept.push(outbox.is_kept_beside(&settle.call_id, 1));
    }
    assert_eq!(kept, [false, false, true, true]);
    assert!(!outbox.is_kept_beside(&settle.call_id, 2));
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

/// Waits so often for room, and for nothing else.
struct ForRoom(u32);

#[async_trait]
impl Patience for ForRoom {
    async fn wait(&self, _doing: &str, why: &str, _tries: &mut Tries) -> bool {
        panic!("it does not say that somebody has to make room: {why}")
    }

    async fn wait_for_room(&self, doing: &str, why: &str, tries: &mut Tries) -> bool {
        assert_eq!((doing, why), ("store the answer of", "the disk is full"));
        tries.count <= self.0
    }
}

/// The disk fills while a tool is at work: its answer waits until somebody has made room, and is stored once.
#[tokio::test]
async fn an_answer_waits_for_room_on_a_full_disk() {
    let (settled, member, kept) = answered(3, StoreOutcome::DiskFull, |_, _| Arc::new(ForRoom(3))).await;
    let settled = settled.unwrap();
    assert_eq!((settled.status, settled.attempt, kept.attempts()), (CallStatus::Succeeded, 1, vec![1]));
    assert!(member.store.receipt(&settled.call_id).await.unwrap().is_some());
    let (settled, _, _) = answered(3, StoreOutcome::DiskFull, |_, _| Arc::new(ForRoom(2))).await;
    assert!(matches!(settled, Err(LedgerError::Store { .. })), "{settled:?}");
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

    // Whoever has the run now settles the call by it, and asks nobody.
    let admission = admitted_next(&member, &call, kept).await;
    let Admission::Settled(settled) = admission else { panic!("{admission:?}") };
    assert_eq!((settled.status, settled.doubt, settled.resolution), (CallStatus::Succeeded, None, None));
    let receipt = member.store.receipt(&call).await.unwrap().unwrap();
    assert_eq!((receipt.attempt, receipt.evidence), (1, EvidenceLevel::Reported));
    assert!(member.store.open_questions(None).await.unwrap().is_empty());
}

/// A kept answer is known by when its attempt was sent, whatever the clock says of when it came: it may have been set back between. One that does
/// not say so, as of an older version, has to have come behind that.
#[tokio::test]
async fn a_kept_answer_is_known_by_when_its_attempt_was_sent() {
    for clock_back in [0, 3_600] {
        for says_when in [true, false] {
            let (settled, member, kept) =
                answered(1, StoreOutcome::DiskFull, |_, _| Arc::new(AtMost(0)) as Arc<dyn Patience>).await;
            assert!(settled.is_err());
            let [mut late] = kept.all().try_into().unwrap();
            let attempt = member.store.attempts(&late.tool_call_id).await.unwrap().pop().unwrap();
            assert_eq!(late.sent_at, Some(attempt.started_at));
            late.at = late.at.minus(std::time::Duration::from_secs(clock_back));
            late.sent_at = late.sent_at.filter(|_| says_when);
            let call = late.tool_call_id.clone();
            let is_its_own = says_when || clock_back == 0;
            let lost = member.store.mark_lost(&member.lease, "its process died", samples::at(55)).await.unwrap();
            assert_eq!(lost.len(), 1);
            let admission = admitted_next(&member, &call, Arc::new(Kept(Mutex::new(vec![late])))).await;
            let what = format!("{clock_back} s back, says when: {says_when}: {admission:?}");
            assert_eq!(matches!(&admission, Admission::Settled(_)), is_its_own, "{what}");
            assert_eq!(matches!(&admission, Admission::Held(_)), !is_its_own, "{what}");
        }
    }
}

/// What the next process that has the run makes of a call.
async fn admitted_next(member: &Member, call: &CallId, kept: Arc<Kept>) -> Admission {
    let (lease, _) =
        member.store.acquire_run(&member.lease.run_id, &samples::owner(102), samples::at(60)).await.unwrap();
    let outbox = Arc::new(Outbox::new(member.store.clone(), lease.clone()).with_late_replies(kept));
    let (env, root) = (Env::simulated(8), member.lease.run_id.clone());
    let trace = Trace::new(&env);
    let ledger = Ledger::new(outbox, lease, in_database("d", root), LedgerConfig::default(), env, trace);
    let admission = ledger.admit(call, FIRST.facts()).await.unwrap();
    let Admission::Unknown(unknown) = admission else { return admission };
    let recovery = ledger.recover(&unknown, &FIRST.facts()).await.unwrap();
    let Recovery::Decided(admission) = recovery else { panic!("not decided: {recovery:?}") };
    *admission
}

/// A call whose process died after this came and could not be stored.
async fn lost_beside(reply: RawReply) -> (Member, CallId, Arc<Kept>) {
    let store = Arc::new(MemStore::default());
    let member = Member::of(&store, samples::new_run("run_1"), true).await;
    let id = member.plan(&FIRST).await;
    let Admission::Ready(prepared) = member.ledger.admit(&id, FIRST.facts()).await.unwrap() else { panic!("not let") };
    drop(member.ledger.start(prepared, "1").await.unwrap().unwrap());
    let attempt = member.store.attempts(&id).await.unwrap().pop().unwrap();
    let (run_id, at) = (member.lease.run_id.clone(), attempt.started_at);
    let late = LateReply { at, run_id, tool_call_id: id.clone(), attempt: 1, sent_at: None, reply };
    let kept = Arc::new(Kept(Mutex::new(vec![late])));
    (member, id, kept)
}

/// A question that was asked before somebody found the answer is closed by it; so does whoever takes a session and decides about nothing.
#[tokio::test]
async fn a_question_that_has_its_answer_beside_it_is_closed_by_that() {
    let content = json!({"content": [{"type": "text", "text": "done"}], "isError": false});
    for takes_only in [false, true] {
        let (member, call, kept) = lost_beside(RawReply::ToolResult { result: content.clone() }).await;
        let Admission::Held(asked) = admitted_next(&member, &call, Arc::default()).await else { panic!("not held") };
        if takes_only {
            let (lease, run) = (samples::owner(103), &member.lease.run_id);
            let (lease, _) = member.store.acquire_run(run, &lease, samples::at(70)).await.unwrap();
            let calls = member.store.calls(run, None).await.unwrap();
            let (store, kept) = (member.store.as_ref(), kept.as_ref());
            let settled = settle_by_late_replies(store, kept, &lease, &calls, samples::at(71)).await.unwrap();
            assert_eq!(settled.len(), 1);
        } else {
            let admission = admitted_next(&member, &call, kept).await;
            assert!(matches!(admission, Admission::Settled(_)), "{admission:?}");
        }
        assert_eq!(member.store.call(&call).await.unwrap().status, CallStatus::Succeeded);
        assert_eq!(member.store.question(&asked.question_id).await.unwrap().status, QuestionStatus::Closed);
    }
}

/// Whoever ends a run stores what was answered, whatever a person said about the call meanwhile: nobody looks for the answer behind that. That it
/// happened is applied as it was said. Whoever only takes the run leaves each word to whoever decides.
#[tokio::test]
async fn an_answer_counts_at_the_end_of_a_run_whatever_a_person_said() {
    let content = json!({"content": [{"type": "text", "text": "done"}], "isError": false});
    for choice in [Choice::Abort, Choice::Execute, Choice::Skip, Choice::Happened] {
        for ends in [true, false] {
            let (member, call, kept) = lost_beside(RawReply::ToolResult { result: content.clone() }).await;
            let Admission::Held(asked) = admitted_next(&member, &call, Arc::default()).await else {
                panic!("not held")
            };
            member.answer(&asked, choice).await;
            let (owner, run) = (samples::owner(103), &member.lease.run_id);
            let (lease, _) = member.store.acquire_run(run, &owner, samples::at(90)).await.unwrap();
            let calls = member.store.calls(run, None).await.unwrap();
            let (store, kept, at) = (member.store.as_ref(), kept.as_ref(), samples::at(91));
            let settled = if ends {
                settle_what_ends_by_late_replies(store, kept, &lease, &calls, at).await
            } else {
                settle_by_late_replies(store, kept, &lease, &calls, at).await
            };
            let is_settled = ends && choice != Choice::Happened;
            assert_eq!(settled.unwrap().len(), usize::from(is_settled), "{choice:?}, ends: {ends}");
            let expected = if is_settled { CallStatus::Succeeded } else { CallStatus::Unknown };
            assert_eq!(member.store.call(&call).await.unwrap().status, expected, "{choice:?}, ends: {ends}");
        }
    }
}

/// What says nothing certain is shown with the question.
#[tokio::test]
async fn an_answer_that_leaves_the_outcome_open_is_shown() {
    let (member, call, kept) =
        lost_beside(RawReply::RpcError { code: -32603, message: "internal error".to_owned() }).await;
    let Admission::Held(question) = admitted_next(&member, &call, kept).await else { panic!("not held") };
    assert!(question.text.contains("An answer to attempt 1 came at"), "{}", question.text);
    assert!(question.text.ends_with("could not be stored: error -32603: internal error"), "{}", question.text);
    assert_eq!(question.detail["late_replies"][0]["attempt"], 1);
}

/// Nobody needs to know of a read before it is answered: its start and its answer leave with the next write. An effect is written before it is
/// sent, whoever asks.
#[tokio::test]
async fn a_read_may_be_sent_before_its_start_is_written_and_an_effect_may_not() {
    let store = Arc::new(MemStore::default());
    let member = Member::of(&store, samples::new_run("run_1"), true).await;
    let read = member.plan_as(|id, turn| {
        let mut call = FIRST.planned(id, turn);
        let read =
            CallPolicy { class: SideEffectClass::ReadOnly, on_unknown: OnUnknown::Redo, ..CallPolicy::unclassified() };
        call.policy = read.into();
        call
    });
    let read = read.await;
    let Admission::Ready(prepared) = member.ledger.admit(&read, Facts::default()).await.unwrap() else {
        panic!("not let")
    };
    let permit = member.ledger.start_read(prepared, "1").await.unwrap();
    assert!(member.ledger.confirm(&permit).await.unwrap());
    let content = json!({"content": [{"type": "text", "text": "a page"}], "isError": false});
    let answer = Outcome::Raw(RawReply::ToolResult { result: content });
    assert_eq!(store.call(&read).await.unwrap().status, CallStatus::Prepared);
    let call = member.ledger.settle(permit, answer).await.unwrap();
    assert_eq!((call.status, call.attempt), (CallStatus::Succeeded, 1));
    assert_eq!(store.call(&read).await.unwrap(), call);
    assert_eq!(store.attempts(&read).await.unwrap().len(), 1);

    let effect = member.plan(&OTHER_WORDS).await;
    let Admission::Ready(prepared) = member.ledger.admit(&effect, OTHER_WORDS.facts()).await.unwrap() else {
        panic!("not let")
    };
    let prepared = member.ledger.start_read(prepared, "1").await.unwrap_err();
    let permit = member.ledger.start(*prepared, "1").await.unwrap().unwrap();
    assert_eq!(store.call(&effect).await.unwrap().status, CallStatus::Running);
    drop(permit);
}
