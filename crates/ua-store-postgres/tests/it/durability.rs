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
