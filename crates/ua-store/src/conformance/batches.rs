//! Batches: what stands is committed whole or not at all, what is provided never costs it.

use ua_core::{CallStatus, CorrectedTo, RunStatus};

use super::samples::{self, call_id, key, question_id};
use super::{Scene, refused};
use crate::change::{Author, Batch, Change};
use crate::error::StoreError;
use crate::record::{Choice, RunLease};
use crate::{LedgerStore, OverrideKind, RunStore, Store};

fn owner(lease: &RunLease) -> Author {
    Author::Owner(lease.clone())
}

/// The end of a turn and the request of the next one are one write: each change finds what those before it made.
pub async fn a_batch_is_applied_in_order(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let settle = Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded));
    let commit = Change::CommitTurn(samples::commit(&scene.step, 1, "ckpt_1"));
    let reserve = Change::Reserve(samples::reservation(2));
    let batch = Batch::of([settle, commit]).provided([reserve]);
    let committed = store.commit(&owner(&scene.lease), batch).await.unwrap();

    let mut stands = committed.stands.into_iter();
    assert_eq!(stands.next().unwrap().into_call(), store.call(&call_id("call_1")).await.unwrap());
    assert_eq!(stands.next().unwrap().into_run(), store.run(scene.run_id()).await.unwrap());
    let request = committed.provided.unwrap().pop().unwrap().into_request();
    let records = scene.records().await;
    assert_eq!((records.run.turn_index, records.calls[0].status), (1, CallStatus::Succeeded));
    assert_eq!(records.requests.last().map(|last| (last.request_id, last.turn)), Some((request, 2)));
}

/// A start that may not be made costs no answer: the settle before it is committed, and nothing of what was provided is.
pub async fn what_is_provided_is_left_out_alone(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    let names = ["call_1", "call_2", "call_3"];
    let calls = (1..).zip(names).map(|(ordinal, name)| samples::planned_email(name, 1, ordinal)).collect();
    scene.turn(calls).await;
    child.turn(vec![samples::planned_email("call_9", 1, 1)]).await;
    store.start_attempt(&child.lease, samples::start("call_9", 1, "k")).await.unwrap();
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "own")).await.unwrap();

    let settle = Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded));
    let fits = Change::StartAttempt(samples::start("call_2", 1, "free"));
    let does_not = Change::StartAttempt(samples::start("call_3", 1, "k"));
    let batch = Batch::of([settle]).provided([fits, does_not]);
    let committed = store.commit(&owner(&scene.lease), batch).await.unwrap();
    assert_eq!(committed.stands.len(), 1);
    match committed.provided {
        Err(StoreError::KeyTaken { call, by, .. }) => assert_eq!((call, by), (call_id("call_3"), call_id("call_9"))),
        other => panic!("the key is taken, but {other:?}"),
    }
    let status = async |name| store.call(&call_id(name)).await.unwrap().status;
    assert_eq!(status("call_1").await, CallStatus::Succeeded);
    // The one that would have fitted goes with the other: all of them or none.
    assert_eq!((status("call_2").await, status("call_3").await), (CallStatus::Prepared, CallStatus::Prepared));
    assert_eq!(store.key_holder(scene.run_id(), &key("free")).await.unwrap(), None);
    assert_eq!(store.attempts(&call_id("call_2")).await.unwrap(), []);
}

/// One change that is refused takes all that stand with it, those before it too, and what was provided.
pub async fn what_stands_is_committed_whole_or_not_at_all(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    store.start_attempt(&scene.lease, samples::start("call_1", 1, "k")).await.unwrap();
    let before = scene.records().await;

    let settle = |name| Change::SettleAttempt(samples::settle(name, 1, CallStatus::Succeeded));
    let batch = Batch::of([settle("call_1"), settle("call_2")]);
    let start = Change::StartAttempt(samples::start("call_2", 1, "other"));
    assert!(store.commit(&owner(&scene.lease), batch.provided([start])).await.is_err());
    assert_eq!(scene.records().await, before);
}

/// A lease that is not the newest refuses all of a batch; without a lease nothing of the owner's is written.
pub async fn a_batch_is_its_owners(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let batch = || {
        let settle = Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded));
        Batch::of([settle]).provided([Change::CommitTurn(samples::commit(&scene.step, 1, "ckpt_1"))])
    };
    refused(store.commit(&Author::Command, batch()).await, "owner");
    store.acquire_run(scene.run_id(), &samples::owner(2), samples::at(9)).await.unwrap();
    let stale = store.commit(&owner(&scene.lease), batch()).await;
    assert!(matches!(stale, Err(StoreError::Fenced { ours: 1, theirs: 2, .. })), "{stale:?}");
    assert_eq!(store.call(&call_id("call_1")).await.unwrap().status, CallStatus::Running);
}

/// A batch with a number is written once: sent again it is refused as repeated and changes nothing, and none may be left out. Whoever takes
/// the run begins anew.
pub async fn a_numbered_batch_is_written_once(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let settle = || Batch::of([Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded))]);
    let by = owner(&scene.lease);
    store.commit(&by, settle().numbered(1)).await.unwrap();
    let before = scene.records().await;
    let again = store.commit(&by, settle().numbered(1)).await;
    assert!(matches!(again, Err(StoreError::Repeated { number: 1, .. })), "{again:?}");
    let behind = store.commit(&by, Batch::default().numbered(3)).await;
    assert!(matches!(behind, Err(StoreError::WentBack { written: 1, confirmed: 2, .. })), "{behind:?}");
    // One that is refused has not been written, so its number is free.
    assert!(store.commit(&by, settle().numbered(2)).await.is_err());
    assert_eq!(scene.records().await, before);
    store.commit(&by, Batch::default().numbered(2)).await.unwrap();

    let (lease, _) = store.acquire_run(scene.run_id(), &samples::owner(2), samples::at(9)).await.unwrap();
    let stale = store.commit(&by, Batch::default().numbered(3)).await;
    assert!(matches!(stale, Err(StoreError::Fenced { .. })), "{stale:?}");
    store.commit(&owner(&lease), Batch::default().numbered(1)).await.unwrap();
    let end = || Batch::of([Change::EndRun(samples::run_end(RunStatus::Failed))]).numbered(2);
    store.commit(&owner(&lease), end()).await.unwrap();
    let again = store.commit(&owner(&lease), end()).await;
    assert!(matches!(again, Err(StoreError::Repeated { number: 2, .. })), "its own end is no stranger's: {again:?}");
    assert!(store.check_lease(&lease).await.is_err());
}

/// Every word of a person is counted for each run that it concerns, and its owner hears of it with the next write.
pub async fn words_of_people_are_counted(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let child = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    let words = async |scene: &Scene<'_>| {
        let committed = store.commit(&owner(&scene.lease), Batch::default()).await.unwrap();
        committed.words
    };
    assert_eq!((words(&scene).await, words(&child).await), (0, 0));
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    assert_eq!(words(&scene).await, 0, "the owner's own writes are no words");
    store.insert_answer(samples::answer("q_1", Choice::Skip)).await.unwrap();
    assert_eq!((words(&scene).await, words(&child).await), (1, 0));
    let budgets = samples::new_override("run_1", OverrideKind::Budget, "max_tokens", 5.into());
    store.insert_override(budgets).await.unwrap();
    assert_eq!((words(&scene).await, words(&child).await), (2, 0));
    store.request_cancel(scene.run_id(), "enough", samples::at(8)).await.unwrap();
    assert_eq!((words(&scene).await, words(&child).await), (3, 0));
    let done = store.close_question(&scene.lease, &question_id("q_1"), samples::at(8)).await;
    done.and(store.end_run(&scene.lease, samples::run_end(RunStatus::Cancelled)).await.map(drop)).unwrap();
    let call = store.call(&call_id("call_1")).await.unwrap();
    store.correct_call(samples::correct(&call, CorrectedTo::Happened, 9)).await.unwrap();
    assert_eq!(words(&child).await, 1, "a correction is for the whole family");
}

/// A restored database gives an epoch twice: the one who had it before is not the one who has it now.
pub async fn an_epoch_that_is_given_twice_has_one_owner(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let before = RunLease { id: samples::owner(9).trace, ..scene.lease.clone() };
    let stale = store.check_lease(&before).await;
    assert!(matches!(stale, Err(StoreError::Fenced { ours: 1, theirs: 1, .. })), "{stale:?}");
    store.check_lease(&scene.lease).await.unwrap();
}
