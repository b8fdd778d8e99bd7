//! Runs and calls as one looks back at them, and letting go of a run.

use ua_core::{CallStatus, RunStatus, Timestamp};

use super::samples::{self, at, call_id, key, run_id};
use super::{Scene, refused};
use crate::archive_store::{CallQuery, DeletedRun, RunDeletion, RunHead, RunQuery};
use crate::commit::NewRun;
use crate::error::StoreError;
use crate::record::{RequestStatus, RunRecord, RunRecords};
use crate::relations::Related;
use crate::{LedgerStore, QuestionsOf, RunStore, Store};

fn all() -> RunQuery {
    RunQuery { limit: 100, ..RunQuery::default() }
}

fn deletion(run: &str, force: bool) -> RunDeletion {
    RunDeletion { run_id: run_id(run), force, by: None, at: at(90) }
}

fn submitted(id: &str, created_at: Timestamp) -> NewRun {
    NewRun { created_at, ..samples::new_run(id) }
}

async fn names(store: &dyn Store, query: &RunQuery) -> Vec<String> {
    store.find_runs(query).await.unwrap().into_iter().map(|run| run.run_id.to_string()).collect()
}

async fn ended(store: &dyn Store, scene: &Scene<'_>) -> RunRecord {
    store.end_run(&scene.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap()
}

#[track_caller]
fn is_gone<T: std::fmt::Debug>(outcome: Result<T, StoreError>) {
    match outcome {
        Err(StoreError::NotFound { .. }) => {}
        other => panic!("expected that it is gone, got {other:?}"),
    }
}

/// Runs are found by the beginning of their id, by status and by age, newest first, and look as they are.
pub async fn runs_are_found_by_what_is_known_of_them(store: &dyn Store) {
    for (id, seconds) in [("ab-1", 10), ("ab-2", 30), ("abc", 20), ("b", 40)] {
        store.submit_run(submitted(id, at(seconds))).await.unwrap();
    }
    let (lease, _) = store.acquire_run(&run_id("abc"), &samples::owner(1), at(50)).await.unwrap();
    assert_eq!(names(store, &all()).await, ["b", "ab-2", "abc", "ab-1"]);
    assert_eq!(names(store, &RunQuery { limit: 2, ..all() }).await, ["b", "ab-2"]);
    assert_eq!(names(store, &RunQuery { prefix: "ab".to_owned(), ..all() }).await, ["ab-2", "abc", "ab-1"]);
    assert_eq!(names(store, &RunQuery { prefix: "ab-".to_owned(), ..all() }).await, ["ab-2", "ab-1"]);
    assert_eq!(names(store, &RunQuery { prefix: "AB".to_owned(), ..all() }).await, [""; 0]);
    assert_eq!(names(store, &RunQuery { prefix: "%".to_owned(), ..all() }).await, [""; 0]);
    assert_eq!(names(store, &RunQuery { ending: "c".to_owned(), ..all() }).await, ["abc"]);
    assert_eq!(names(store, &RunQuery { ending: "b-1".to_owned(), prefix: "a".to_owned(), ..all() }).await, ["ab-1"]);
    assert_eq!(names(store, &RunQuery { ending: "%1".to_owned(), ..all() }).await, [""; 0]);
    assert_eq!(names(store, &RunQuery { ending: "longer-than-ab-1".to_owned(), ..all() }).await, [""; 0]);
    assert_eq!(names(store, &RunQuery { since: Some(at(20)), ..all() }).await, ["b", "ab-2", "abc"]);
    let running = RunQuery { statuses: vec![RunStatus::Running], ..all() };
    assert_eq!(names(store, &running).await, ["abc"]);
    let two = RunQuery { statuses: vec![RunStatus::Running, RunStatus::Queued], since: Some(at(25)), ..all() };
    assert_eq!(names(store, &two).await, ["b", "ab-2"]);
    let ended = store.end_run(&lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    let found = store.find_runs(&RunQuery { prefix: "abc".to_owned(), ..all() }).await.unwrap();
    assert_eq!(found, [RunHead::from(ended)]);
}

/// Calls are found by the beginning of their id in all runs, newest first.
pub async fn calls_are_found_by_the_beginning_of_their_id(store: &dyn Store) {
    let (one, two) = (Scene::begin(store, "run_1").await, Scene::begin(store, "run_2").await);
    one.turn(vec![samples::planned_email("call_a1", 1, 1), samples::planned_email("call_a2", 1, 2)]).await;
    two.turn(vec![samples::planned_email("call_b1", 1, 1)]).await;
    let found = async |prefix: &str, limit| {
        let query = CallQuery { prefix: prefix.to_owned(), limit, ..CallQuery::default() };
        let calls = store.find_calls(&query).await.unwrap();
        calls.into_iter().map(|call| call.call_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("", 10).await, ["call_b1", "call_a2", "call_a1"]);
    assert_eq!(found("call_a", 10).await, ["call_a2", "call_a1"]);
    assert_eq!(found("call_a", 1).await, ["call_a2"]);
    assert_eq!(found("call_c", 10).await, [""; 0]);
    let ending = async |ending: &str| {
        let query = CallQuery { ending: ending.to_owned(), limit: 10, ..CallQuery::default() };
        let calls = store.find_calls(&query).await.unwrap();
        calls.into_iter().map(|call| call.call_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ending("1").await, ["call_b1", "call_a1"]);
    assert_eq!(ending("a2").await, ["call_a2"]);
}

/// Some turns of a run come with their messages, calls, attempts, receipts and requests, and with nothing of other turns.
pub async fn turns_are_loaded_without_the_others(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    for (turn, id) in [(1, "call_1"), (2, "call_2"), (3, "call_3")] {
        assert_eq!(scene.turn(vec![samples::planned_email(id, turn, 1)]).await, turn);
        scene.bring(id, CallStatus::Succeeded).await;
        scene.commit(turn).await;
    }
    let whole = scene.records().await;
    let some = store.load_turns(scene.run_id(), 2, 3).await.unwrap();
    let mut wanted = whole.clone();
    wanted.turns.retain(|turn| turn.turn > 1);
    wanted.messages.retain(|message| message.turn > 1);
    wanted.requests.retain(|request| request.turn > 1);
    wanted.calls.retain(|call| call.position.turn > 1);
    wanted.attempts.retain(|attempt| attempt.call_id != call_id("call_1"));
    wanted.receipts.retain(|receipt| receipt.call_id != call_id("call_1"));
    wanted.checkpoints.clear();
    assert_eq!(some, wanted);
    assert_eq!((some.turns.len(), some.receipts.len()), (2, 2));
    let none = store.load_turns(scene.run_id(), 9, 9).await.unwrap();
    assert_eq!((none.run, none.turns.len(), none.messages.len()), (whole.run, 0, 0));
    is_gone(store.load_turns(&run_id("nobody"), 1, 1).await);
}

/// A run that is not finished is let go only when that is forced; a forced one is driven by nobody any more.
pub async fn an_unfinished_run_is_deleted_only_by_force(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    refused(store.delete_run(&deletion("run_1", false)).await, "running");
    assert_eq!(names(store, &all()).await, ["run_1"]);
    let outcome = store.delete_run(&deletion("run_1", true)).await.unwrap();
    assert_eq!(outcome.kept_for, []);
    assert_eq!(names(store, &all()).await, [""; 0]);
    assert!(store.check_lease(&scene.lease).await.is_err());
    is_gone(store.acquire_run(&run_id("run_1"), &samples::owner(2), at(95)).await);
}

/// A run that is deleted before its end is over like any other: what it asked its model for is charged, and nobody is asked about it any more.
pub async fn what_was_open_of_a_deleted_run_is_closed(store: &dyn Store) {
    let parent = Scene::begin(store, "run_1").await;
    parent.turn(vec![]).await;
    parent.commit(1).await;
    let scene = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;
    store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    store.raise_question(&scene.lease, samples::question("q_1", None)).await.unwrap();
    store.raise_question(&scene.lease, samples::question("q_2", None)).await.unwrap();
    store.insert_answer(samples::answer("q_2", crate::record::Choice::Skip)).await.unwrap();
    let reserved = |records: &RunRecords| {
        records.requests.iter().filter(|request| request.status == RequestStatus::Reserved).count()
    };
    assert_eq!(reserved(&scene.records().await), 1);

    // Its lineage keeps it, as it keeps what it did.
    let outcome = store.delete_run(&deletion("run_2", true)).await.unwrap();
    assert_eq!(outcome.kept_for, [run_id("run_1")]);
    assert_eq!(store.questions_of(QuestionsOf::Open(None)).await.unwrap(), []);
    let records = store.load(&run_id("run_2")).await.unwrap();
    assert_eq!((reserved(&records), records.requests[0].closed_at), (0, Some(at(90))));
}

/// A deleted run leaves nothing but its name, which stays taken.
pub async fn a_deleted_run_leaves_its_name(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let other = Scene::begin(store, "run_2").await;
    scene.call_that_is("call_1", CallStatus::Unknown).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_1"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", crate::record::Choice::Skip)).await.unwrap();
    other.call_that_is("call_2", CallStatus::Succeeded).await;
    store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    let before = other.records().await;

    let outcome = store.delete_run(&deletion("run_1", false)).await.unwrap();
    assert_eq!(outcome, DeletedRun { workspace_dir: samples::new_run("run_1").workspace_dir, kept_for: Vec::new() });
    is_gone(store.load(&run_id("run_1")).await);
    is_gone(store.call(&call_id("call_1")).await);
    is_gone(store.question(&samples::question_id("q_1")).await);
    assert_eq!(store.attempts(&call_id("call_1")).await.unwrap(), []);
    assert_eq!(store.events(&call_id("call_1")).await.unwrap(), []);
    assert_eq!(store.unknown_calls().await.unwrap(), []);
    assert_eq!(store.key_holder(&run_id("run_1"), &key("call_1")).await.unwrap(), None);
    is_gone(store.delete_run(&deletion("run_1", false)).await);
    let taken = store.submit_run(samples::new_run("run_1")).await;
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    assert_eq!(other.records().await, before);
}

/// While a run of its lineage is there, what a deleted run did outside is known: its key is held and its scope is found. It goes with
/// the last one.
pub async fn a_deleted_run_is_remembered_by_its_lineage(store: &dyn Store) {
    let scene = Scene::begin(store, "run_1").await;
    let sent = scene.call_that_is("call_1", CallStatus::Succeeded).await;
    scene.commit(1).await;
    ended(store, &scene).await;
    let fork = Scene::begin_with(store, samples::child_run("run_2", "run_1")).await;

    let outcome = store.delete_run(&deletion("run_1", false)).await.unwrap();
    assert_eq!(outcome.kept_for, [run_id("run_2")]);
    assert_eq!(names(store, &all()).await, ["run_2"]);
    assert_eq!(store.find_calls(&CallQuery { limit: 10, ..CallQuery::default() }).await.unwrap(), []);
    let holder = store.key_holder(&run_id("run_1"), sent.idempotency_key.as_ref().unwrap()).await.unwrap();
    assert_eq!(holder.as_ref(), Some(&sent));
    fork.turn(vec![samples::planned_email("call_9", 1, 1)]).await;
    let relations = store.relations(&call_id("call_9"), sent.scope.as_ref()).await.unwrap();
    assert_eq!(relations.kin.same, [Related::one(sent.clone())], "what a deleted run did is remembered");
    assert!(store.receipt(&sent.call_id).await.unwrap().is_some());
    is_gone(store.delete_run(&deletion("run_1", true)).await);

    ended(store, &fork).await;
    let outcome = store.delete_run(&deletion("run_2", false)).await.unwrap();
    assert_eq!(outcome.kept_for, []);
    is_gone(store.load(&run_id("run_1")).await);
    is_gone(store.load(&run_id("run_2")).await);
    is_gone(store.call(&sent.call_id).await);
}
