//! A write whose answer was lost may be sent again: it is refused, or it finds its work done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ua_core::{CallStatus, EvidenceLevel, Message, Origin, RunStatus, StepStatus};

use super::samples::{self, at, call_id, key, question_id, run_id};
use super::seam::{Crossing, Plan, StoreOutcome, StoreSeam};
use super::{Scene, cancel};
use crate::blob_store::BlobPrune;
use crate::commit::{AttemptEnd, RequestEnd, UnknownResolution};
use crate::error::StoreError;
use crate::overrides::OverrideKind;
use crate::record::{Choice, ReplayStatus, RunLease, RunRecords};
use crate::{Durability, LedgerStore, RunStore, Store};

/// Loses the answer of one write when it is told to.
#[derive(Debug, Default)]
pub(super) struct Answers(AtomicBool);

impl Answers {
    /// Loses the answer of the next write.
    pub(super) fn lose_next(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Plan for Answers {
    async fn before(&self, _crossing: &Crossing) {}

    async fn after(&self, _crossing: &Crossing) {}

    fn comes_to(&self, _crossing: &Crossing) -> StoreOutcome {
        if self.0.swap(false, Ordering::SeqCst) { StoreOutcome::AnswerLost } else { StoreOutcome::Done }
    }
}

/// `store`, and what loses its answers.
pub(super) fn lossy(store: &dyn Store) -> (StoreSeam<'_>, Arc<Answers>) {
    let answers = Arc::new(Answers::default());
    (StoreSeam::borrowing(store, answers.clone()), answers)
}

/// One write, its answer lost; then the same write again. The second changes nothing.
macro_rules! twice {
    (($lossy:ident, $answers:ident), $records:expr, $write:expr) => {{
        $answers.lose_next();
        match $write.await.map(drop) {
            Err(StoreError::Unavailable { .. }) => {}
            other => panic!("{}: expected a lost answer, got {other:?}", stringify!($write)),
        }
        let committed: RunRecords = $records.await.unwrap();
        let repeated = $write.await.map(drop);
        assert!(
            matches!(repeated, Ok(()) | Err(StoreError::Conflict { .. } | StoreError::Exists { .. })),
            "{}: {repeated:?}",
            stringify!($write)
        );
        assert_eq!($records.await.unwrap(), committed, "{}", stringify!($write));
    }};
}

/// Every write of a run's life, sent twice because its first answer was lost. Taking the run is the one exception: it is
/// taken again, under the next epoch.
pub async fn a_repeated_write_changes_nothing(store: &dyn Store) {
    let (lossy, answers) = lossy(store);
    let id = run_id("run_1");
    let records = || store.load(&id);
    twice!((lossy, answers), records(), lossy.submit_run(samples::new_run("run_1")));
    answers.lose_next();
    assert!(lossy.acquire_run(&id, &samples::owner(100), at(1)).await.is_err());
    let (lease, _) = lossy.acquire_run(&id, &samples::owner(100), at(1)).await.unwrap();
    assert_eq!(lease, RunLease { run_id: id.clone(), epoch: 2, id: samples::owner(100).trace });

    let step = "step_1";
    twice!((lossy, answers), records(), lossy.open_step(&lease, samples::new_step(step)));
    twice!((lossy, answers), records(), lossy.reserve_request(&lease, samples::reservation(1)));
    twice!((lossy, answers), records(), lossy.close_request(&lease, 1, RequestEnd::Baseline, at(3)));
    twice!((lossy, answers), records(), lossy.reserve_request(&lease, samples::reservation(1)));
    twice!((lossy, answers), records(), lossy.close_lost_requests(&lease, at(3)));
    let request = lossy.reserve_request(&lease, samples::reservation(1)).await.unwrap();
    twice!((lossy, answers), records(), lossy.note_response(&lease, request, "resp_1"));
    twice!((lossy, answers), records(), lossy.note_usage(&lease, request, samples::usage()));
    let calls = || (1..=5).map(|n| samples::planned_email(&format!("call_{n}"), 1, n)).collect();
    twice!((lossy, answers), records(), lossy.record_turn(&lease, samples::draft(step, 1, request, calls())));

    twice!((lossy, answers), records(), lossy.start_attempt(&lease, samples::start("call_1", 1, "k")));
    let raw_alone = || samples::ended("call_1", 1, AttemptEnd::Replied { raw: samples::raw(), settlement: None });
    twice!((lossy, answers), records(), lossy.settle_attempt(&lease, raw_alone()));
    let one = call_id("call_1");
    let understood = || samples::settlement(CallStatus::Succeeded);
    twice!((lossy, answers), records(), lossy.interpret_receipt(&lease, &one, understood(), Durability::Synced, at(7)));
    let (two, three, four) = (call_id("call_2"), call_id("call_3"), call_id("call_4"));
    twice!((lossy, answers), records(), lossy.deduplicate_call(&lease, &two, &one, &key("k"), at(7)));
    twice!((lossy, answers), records(), lossy.cancel_calls(&lease, vec![cancel("call_5")], at(7)));

    lossy.start_attempt(&lease, samples::start("call_3", 1, "k3")).await.unwrap();
    twice!((lossy, answers), records(), lossy.settle_attempt(&lease, samples::lost("call_3", 1)));
    lossy.start_attempt(&lease, samples::start("call_4", 1, "k4")).await.unwrap();
    twice!((lossy, answers), records(), lossy.mark_lost(&lease, "the process died", at(8)));
    twice!((lossy, answers), records(), lossy.note_replay(&lease, &three, ReplayStatus::Held, at(9)));
    twice!((lossy, answers), records(), lossy.raise_question(&lease, samples::question("q_3", Some("call_3"))));
    twice!((lossy, answers), records(), lossy.insert_answer(samples::answer("q_3", Choice::Happened)));
    let happened = || UnknownResolution::Happened {
        raw: samples::raw(),
        settlement: samples::settlement(CallStatus::Succeeded),
        evidence: EvidenceLevel::Reconciled,
    };
    let question = question_id("q_3");
    twice!((lossy, answers), records(), lossy.resolve_unknown(&lease, &three, happened(), Some(&question), at(61)));
    twice!((lossy, answers), records(), lossy.resolve_unknown(&lease, &four, UnknownResolution::Skipped, None, at(62)));
    let no = || UnknownResolution::NotHappened { why: "ada looked".to_owned() };
    twice!((lossy, answers), records(), lossy.resolve_unknown(&lease, &four, no(), None, at(62)));
    let four_is = store.call(&four).await.unwrap();
    let right =
        || crate::CorrectCall { is_idle: true, ..samples::correct(&four_is, ua_core::CorrectedTo::Happened, 62) };
    twice!((lossy, answers), records(), lossy.correct_call(right()));
    twice!((lossy, answers), records(), lossy.raise_question(&lease, samples::question("q_run", None)));
    twice!((lossy, answers), records(), lossy.close_question(&lease, &question_id("q_run"), at(63)));

    twice!((lossy, answers), records(), lossy.commit_turn(&lease, samples::commit(step, 1, "ckpt_1")));
    let note = || vec![Message::user(Origin::Guidance, "go on"), Message::user(Origin::Guidance, "please")];
    twice!((lossy, answers), records(), lossy.append_messages(&lease, note(), at(64)));
    twice!((lossy, answers), records(), lossy.save_checkpoint(&lease, samples::checkpoint("ckpt_2", step)));
    let entry = || crate::StepEntry {
        end: Some(samples::step_end(step, StepStatus::Succeeded)),
        checkpoints: vec![samples::checkpoint("ckpt_3", step)],
        step: samples::new_step("step_2"),
        messages: vec![Message::user(Origin::Phase, "the next phase")],
        iteration: None,
    };
    twice!((lossy, answers), records(), lossy.enter_step(&lease, entry()));
    let step = "step_2";
    twice!((lossy, answers), records(), lossy.close_step(&lease, samples::step_end(step, StepStatus::Succeeded)));
    let change = || samples::new_override("run_1", OverrideKind::Pin, "tools", serde_json::json!({"n": 1}));
    twice!((lossy, answers), records(), lossy.insert_override(change()));
    twice!((lossy, answers), records(), lossy.request_cancel(&id, "enough", at(65)));
    twice!((lossy, answers), records(), lossy.end_run(&lease, samples::run_end(RunStatus::Cancelled)));
    let prune = || BlobPrune { used_before: None, max_bytes: Some(0), dry_run: false, at: at(99) };
    twice!((lossy, answers), records(), lossy.prune_blobs(prune()));
    assert_eq!(records().await.unwrap().messages.len(), 6);

    // The wrapper itself loses nothing it was not told to lose.
    Scene::begin(&lossy, "run_2").await.turn(Vec::new()).await;
}
