//! Calls whose outcome nobody knows: found by their tool, and settled after their run has ended.

use ua_core::{CallStatus, Resolution, RunStatus};

use super::lost_answers::lossy;
use super::samples::{self, at, call_id, question_id};
use super::{Scene, refused};
use crate::commit::{StartAttempt, UnknownResolution};
use crate::error::StoreError;
use crate::record::{Choice, QuestionStatus};
use crate::{LedgerStore, RunStore, Store};

/// Doubts about a tool are found across the lineage, also those that a person gave up, and no other calls.
pub async fn doubts_about_a_tool_are_found_in_the_whole_lineage(store: &dyn Store) {
    let first = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let stranger = Scene::begin(store, "run_3").await;
    for (scene, id) in [(&first, "call_1"), (&child, "call_2"), (&stranger, "call_3")] {
        let other = samples::planned_call(&format!("{id}_read"), 1, 2);
        let done = samples::planned_email(&format!("{id}_done"), 1, 3);
        scene.turn(vec![samples::planned_email(id, 1, 1), other, done]).await;
        for (call, fate) in [(id.to_owned(), None), (format!("{id}_read"), None), (format!("{id}_done"), Some(()))] {
            store.start_attempt(&scene.lease, samples::start(&call, 1, &call)).await.unwrap();
            let end = match fate {
                None => samples::settle(&call, 1, CallStatus::Unknown),
                Some(()) => samples::settle(&call, 1, CallStatus::Succeeded),
            };
            store.settle_attempt(&scene.lease, end).await.unwrap();
        }
    }
    let skipped = UnknownResolution::Skipped;
    store.resolve_unknown(&first.lease, &call_id("call_1"), skipped, None, at(30)).await.unwrap();
    let seen = async |call: &str| {
        let relations = store.relations(&call_id(call), None).await.unwrap();
        relations.doubts.into_iter().map(|doubt| (doubt.newest.call_id.to_string(), doubt.count)).collect::<Vec<_>>()
    };
    assert_eq!(seen("call_1_done").await, [("call_1".to_owned(), 2)], "the one that moved last stands for both");
    assert_eq!(seen("call_2").await, [("call_1".to_owned(), 1)], "nobody is its own doubt");
}

/// A lost attempt is a doubt for whatever is asked of the same tool, and counts as an effect, also while a later attempt is under way and
/// when that one reports a failure.
pub async fn a_lost_attempt_stays_a_doubt_whatever_a_later_one_comes_to(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let call = samples::planned_email("call_1", 1, 1);
    scene.turn(vec![call, samples::planned_email("call_2", 1, 2)]).await;
    let seen = async || {
        let doubts = store.relations(&call_id("call_2"), None).await.unwrap().doubts;
        doubts.into_iter().map(|doubt| (doubt.newest.call_id.to_string(), doubt.newest.status)).collect::<Vec<_>>()
    };
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "call_1")).await.unwrap();
    assert_eq!(seen().await, [], "it is under way for the first time");
    store.settle_attempt(&scene.lease, samples::lost("call_1", 1)).await.unwrap();
    store.start_attempt(&scene.lease, samples::start("call_1", 2, "call_1")).await.unwrap();
    assert_eq!(seen().await, [("call_1".to_owned(), CallStatus::Running)]);
    store.settle_attempt(&scene.lease, samples::settle("call_1", 2, CallStatus::FailedReported)).await.unwrap();
    assert_eq!(seen().await, [("call_1".to_owned(), CallStatus::FailedReported)]);
    let start = StartAttempt { max_effects: Some(1), ..samples::start("call_2", 1, "call_2") };
    let refused = store.start_attempt(&scene.lease, start).await;
    assert!(matches!(refused, Err(StoreError::EffectLimit { max: 1, .. })), "{refused:?}");
}

/// A doubt of a run that has ended is settled without a lease, once, with its question; one of a run that goes on is its owner's.
pub async fn a_doubt_outlives_its_run_until_it_is_answered(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let (id, question) = (call_id("call_1"), question_id("q_1"));
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.resolve_unknown(&scene.lease, &id, UnknownResolution::Skipped, None, at(30)).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Execute)).await.unwrap();
    let no = || UnknownResolution::NotHappened { why: "nobody saw it".to_owned() };
    refused(store.resolve_late(&id, no(), &question, at(40)).await, "its owner applies");
    scene.commit(1).await;
    store.end_run(&scene.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();

    let (lossy, answers) = lossy(store);
    answers.lose_next();
    let lost = lossy.resolve_late(&id, no(), &question, at(41)).await;
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
    let call = store.call(&id).await.unwrap();
    assert_eq!((call.status, call.resolution), (CallStatus::FailedDefinite, Some(Resolution::NotHappened)));
    refused(store.resolve_late(&id, no(), &question, at(42)).await, "not unknown");
    let records = scene.records().await;
    assert_eq!(records.questions[0].status, QuestionStatus::Closed);
    assert_eq!((records.run.status, store.call(&id).await.unwrap().doubt), (RunStatus::Succeeded, None));
}
