//! A database of an earlier schema is brought up to date, and what is in it stays.

use rusqlite::Connection;
use ua_core::{CallStatus, Resolution, RunStatus};
use ua_store::conformance::{Scene, samples};
use ua_store::{Choice, LedgerStore as _, RunStore as _, StartAttempt, Store, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::take_back_to;

#[tokio::test]
async fn a_database_of_the_first_schema_gets_forks_and_keeps_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap();
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    take_back_to(&raw, 1).unwrap();
    drop(raw);

    let refused = SqliteStore::open_read_only(&path).map(drop).expect_err("an inspection migrates nothing");
    assert!(matches!(&refused, StoreError::Unavailable { why, .. } if why.contains("ua db migrate")), "{refused:?}");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    assert_eq!(store.run(&run.run_id).await.unwrap(), run);
    let fork = store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    assert_eq!(store.children(&run.run_id).await.unwrap(), [fork]);
}

/// A call whose first attempt was lost and whose second did nothing, as schema 7 had it: failed, whatever came of the first.
async fn refused_after_a_loss(store: &SqliteStore, scene: &Scene<'_>, id: &str) -> Result<(), StoreError> {
    let lease = &scene.lease;
    store.start_attempt(lease, samples::start(id, 1, id)).await?;
    store.settle_attempt(lease, samples::lost(id, 1)).await?;
    let again = StartAttempt { ends_doubt: true, ..samples::start(id, 2, id) };
    store.start_attempt(lease, again).await?;
    let failed = store.settle_attempt(lease, samples::not_sent(id, 2)).await?;
    assert_eq!((failed.status, failed.doubt), (CallStatus::FailedDefinite, None));
    Ok(())
}

#[tokio::test]
async fn what_was_called_failed_although_an_attempt_was_lost_is_in_doubt_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let scene = Scene::begin(&store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    refused_after_a_loss(&store, &scene, "call_1").await.unwrap();
    scene.commit(1).await;
    scene.turn(vec![samples::planned_email("call_2", 2, 1), samples::planned_email("call_3", 2, 2)]).await;
    refused_after_a_loss(&store, &scene, "call_2").await.unwrap();
    scene.bring("call_3", CallStatus::FailedDefinite).await;
    store.close().unwrap();
    take_back_to(&Connection::open(&path).unwrap(), 7).unwrap();

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let call = async |id: &str| store.call(&samples::call_id(id)).await.unwrap();
    for (id, resolution) in [("call_1", Some(Resolution::Skipped)), ("call_2", None)] {
        let call = call(id).await;
        assert_eq!((call.status, call.doubt, call.resolution), (CallStatus::Unknown, Some(1), resolution), "{id}");
        assert!(call.error_detail.unwrap().contains("nobody knows"), "{id}");
    }
    assert_eq!((call("call_3").await.status, call("call_3").await.doubt), (CallStatus::FailedDefinite, None));
    store.close().unwrap();
    let examined = SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap();
    assert_eq!(examined.findings, [""; 0], "the change stands in the history");
}

/// An abort that was answered before there were marks, and not acted on, ends its run all the same.
#[tokio::test]
async fn an_abort_of_the_schema_before_becomes_a_mark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    for (run, question, choice) in
        [("run_1", "q_1", Choice::Abort), ("run_2", "q_2", Choice::Abort), ("run_3", "q_3", Choice::Skip)]
    {
        let scene = Scene::begin(&store, run).await;
        store.raise_question(&scene.lease, samples::question(question, None)).await.unwrap();
        store.insert_answer(samples::answer(question, choice)).await.unwrap();
        if run == "run_2" {
            store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await.unwrap();
        }
    }
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    take_back_to(&raw, 7).unwrap();
    drop(raw);

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let mark = async |run: &str| {
        let run = store.run(&samples::run_id(run)).await.unwrap();
        (run.abort_requested_at, run.abort_question)
    };
    assert_eq!(mark("run_1").await, (Some(samples::at(60)), Some(samples::question_id("q_1"))));
    assert_eq!(mark("run_2").await, (None, None), "it has ended");
    assert_eq!(mark("run_3").await, (None, None));
}
