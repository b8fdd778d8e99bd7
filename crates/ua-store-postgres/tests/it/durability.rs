//! What an answer is worth when connections, backends and the server itself fail under a write.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::Client;
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{Author, Batch, Change, LedgerStore as _, Retry, RunStore as _, Store as _, StoreError};

use crate::cluster::Cluster;
use crate::database::{Database, until};

/// Backends of a store that wait for a standby.
const WAITING: &str =
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'ua' AND wait_event = 'SyncRep' LIMIT 1";

/// Makes commits wait for a standby that there is not. A backend does so when the checkpointer has told all of them, so somebody commits
/// until it has to wait.
async fn without_standbys(database: &Database) {
    let by_hand = database.by_hand();
    by_hand.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'").await.unwrap();
    by_hand.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let probe = database.by_hand();
    drop(tokio::spawn(async move {
        while probe.batch_execute("UPDATE meta SET value = value").await.is_ok() {
            tokio::task::yield_now().await;
        }
    }));
    until(&by_hand, "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' LIMIT 1").await;
}

/// Lets them go on.
async fn with_standbys(by_hand: &Client) {
    by_hand.batch_execute("ALTER SYSTEM RESET synchronous_standby_names").await.unwrap();
    by_hand.batch_execute("SELECT pg_reload_conf()").await.unwrap();
}

/// A commit waits for a standby that is gone; its backend is ended. What it wrote is visible, and not durable: a failover would lose it. To
/// find it there proves nothing, so who sends it again is answered only when it is.
#[tokio::test]
async fn what_is_visible_and_not_durable_is_not_answered() {
    let Some(cluster) = Cluster::start("") else { return };
    let database = Database::in_its_own(cluster);
    let (store, by_hand) = (database.store(), database.by_hand());
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let by = Author::Owner(scene.lease.clone());
    let settle = || Batch::of([Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded))]).numbered(1);
    let send = || {
        let (store, by) = (store.clone(), by.clone());
        tokio::spawn(async move { store.commit(&by, settle()).await })
    };

    without_standbys(&database).await;
    let first = send();
    let pid = until(&by_hand, WAITING).await;
    assert!(!first.is_finished());
    by_hand.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let lost = first.await.unwrap();
    assert!(matches!(&lost, Err(StoreError::Unavailable { retry: Retry::Later, .. }) | Ok(_)), "{lost:?}");
    assert_eq!(store.call(&samples::call_id("call_1")).await.unwrap().status, CallStatus::Succeeded, "it is visible");

    let again = send();
    until(&by_hand, WAITING).await;
    assert!(!again.is_finished(), "nobody knows yet that it is durable");
    with_standbys(&by_hand).await;
    let again = again.await.unwrap();
    assert!(matches!(again, Err(StoreError::Repeated { number: 1, .. })), "{again:?}");
}

/// Backends that are killed between writes, and under one that waits: nothing is written twice, and the store goes on.
#[tokio::test]
async fn a_write_whose_backend_is_killed_can_be_sent_again() {
    let Some(cluster) = Cluster::start("") else { return };
    let database = Database::in_its_own(cluster);
    let (store, by_hand) = (database.store(), database.by_hand());
    let blocker = database.by_hand();
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let by = Author::Owner(scene.lease.clone());
    let settle = || Batch::of([Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded))]).numbered(1);

    blocker.batch_execute("BEGIN; SELECT 1 FROM runs FOR UPDATE").await.unwrap();
    let write = tokio::spawn({
        let (store, by) = (store.clone(), by.clone());
        async move { store.commit(&by, settle()).await }
    });
    let blocked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'ua' AND wait_event_type = 'Lock' LIMIT 1";
    let pid = until(&by_hand, blocked).await;
    by_hand.execute("SELECT pg_terminate_backend($1)", &[&pid]).await.unwrap();
    let lost = write.await.unwrap();
    assert!(matches!(&lost, Err(StoreError::Unavailable { retry: Retry::Later, .. })), "{lost:?}");
    blocker.batch_execute("ROLLBACK").await.unwrap();

    // All connections that lie in the pool are gone, too; the store takes new ones.
    let all = "SELECT count(pg_terminate_backend(pid))::int FROM pg_stat_activity WHERE application_name = 'ua'";
    until(&by_hand, all).await;
    until(&by_hand, "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name = 'ua')").await;
    store.commit(&by, settle()).await.unwrap();
    let again = store.commit(&by, settle()).await;
    assert!(matches!(again, Err(StoreError::Repeated { number: 1, .. })), "{again:?}");
    assert_eq!(store.load(scene.run_id()).await.unwrap().receipts.len(), 1);
}

/// Two hundred connections in the middle of their writes, and the server ends at once, twice. Each write is there once, and all go on.
#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_connections_survive_a_server_that_crashes() {
    let Some(cluster) = Cluster::start("") else { return };
    let database = Database::in_its_own(cluster);
    let stores: Vec<_> = (0..25).map(|_| database.store()).collect();
    let mut writers = tokio::task::JoinSet::new();
    let begun = std::sync::Arc::new(tokio::sync::Barrier::new(201));
    for (number, store) in stores.iter().cycle().take(200).cloned().enumerate() {
        let begun = begun.clone();
        writers.spawn(async move {
            let scene = Scene::begin(&store, &format!("run_{number}")).await;
            let call = format!("call_{number}");
            scene.call_that_is(&call, CallStatus::Running).await;
            let by = Author::Owner(scene.lease.clone());
            begun.wait().await;
            let mut pause = tokio::time::interval(std::time::Duration::from_millis(20));
            let mut lost = 0;
            loop {
                let settle = Change::SettleAttempt(samples::settle(&call, 1, CallStatus::Succeeded));
                match store.commit(&by, Batch::of([settle]).numbered(1)).await {
                    Ok(_) | Err(StoreError::Repeated { number: 1, .. }) => break,
                    Err(StoreError::Unavailable { retry: Retry::Later, .. }) => lost += 1,
                    Err(other) => panic!("{call}: {other:?}"),
                }
                pause.tick().await;
            }
            (store.load(scene.run_id()).await.map_or(0, |records| records.receipts.len()), lost)
        });
    }
    begun.wait().await;
    for _ in 0..2 {
        tokio::task::block_in_place(|| {
            database.cluster().stop("QUIT");
            database.cluster().start_again();
        });
    }
    let all = writers.join_all().await;
    assert!(all.iter().any(|(_, lost)| *lost > 0), "the server was in nobody's way");
    let by_hand = database.by_hand();
    let count = by_hand.query_one("SELECT count(*) FROM tool_receipts", &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 200);
}
