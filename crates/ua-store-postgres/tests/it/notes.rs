//! What a root noted of its database, looked at together, and its end.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;

use tokio_postgres::Client;
use ua_store::conformance::{Scene, samples};
use ua_store::{
    Author, Batch, Change, FleetChange, FleetStore as _, PastStore as _, RunDeletion, RunStore as _, Store as _,
    WorkerRecord,
};
use ua_store_postgres::{PostgresConfig, PostgresStore, forget_database_beside};

use crate::cluster::blocking;
use crate::database::{Database, until};

/// A store of a root that has its locks in this folder.
fn rooted(database: &Database, locks: &Path) -> PostgresStore {
    let mut config = database.direct();
    config.alone_beside = Some(locks.to_owned());
    blocking(PostgresStore::open(&config)).unwrap()
}

/// A run with a start that was confirmed, so that there is a note of it.
async fn noted<'s>(store: &'s PostgresStore, run: &str) -> Scene<'s> {
    let scene = Scene::begin(store, run).await;
    let call = format!("call_of_{run}");
    scene.turn(vec![samples::planned_email(&call, 1, 1)]).await;
    let start = Change::StartAttempt(samples::start(&call, 1, &call));
    store.commit(&Author::Owner(scene.lease.clone()), Batch::of([start]).numbered(1)).await.unwrap();
    scene
}

/// The runs of which there are notes.
fn notes(locks: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(locks).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut runs: Vec<String> = entries.filter_map(|name| Some(name.strip_suffix(".confirmed")?.to_owned())).collect();
    runs.sort();
    runs
}

/// How it has ended, whatever it did: here it matters only that it has.
async fn end(by_hand: &Client, run: &str) {
    let sql = format!("UPDATE runs SET status = 'cancelled' WHERE run_id = '{run}'");
    by_hand.batch_execute(&sql).await.unwrap();
}

async fn held(store: &PostgresStore, run: &Scene<'_>) -> Vec<String> {
    store.forgotten(run.run_id()).await.unwrap().into_iter().map(|known| known.run_id).collect()
}

/// Notes of runs that go on stay; those of runs that ended or were deleted are removed, behind a mark that then tells what they told: a server that
/// lacks the mark lacks something that was before it.
#[tokio::test]
async fn what_ended_needs_no_note_behind_a_mark_that_tells_as_much() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let locks = folder.path();
    let store = rooted(&database, locks);
    let open = noted(&store, "run_1").await;
    noted(&store, "run_2").await;
    noted(&store, "run_3").await;
    assert_eq!(store.clear_notes().await.unwrap(), 0, "all go on");
    assert_eq!(notes(locks), ["run_1", "run_2", "run_3"]);
    end(&by_hand, "run_2").await;
    let deletion =
        RunDeletion { run_id: samples::run_id("run_3"), force: true, by: Some("ada".to_owned()), at: samples::at(50) };
    store.delete_run(&deletion).await.unwrap();
    let before = by_hand.query_one("SELECT key, value FROM meta WHERE key LIKE 'root/%'", &[]).await.unwrap();
    let (key, counted): (String, String) = (before.get(0), before.get(1));
    assert_eq!(store.clear_notes().await.unwrap(), 2);
    assert_eq!(notes(locks), ["run_1"]);
    assert_eq!(held(&store, &open).await, [""; 0]);

    // The server went back behind the mark, and to before the last one: that is known although nothing is noted of what ended in between.
    let sql = format!("UPDATE meta SET value = '{counted}' WHERE key = '{key}'");
    by_hand.batch_execute(&sql).await.unwrap();
    let next = rooted(&database, locks);
    let taken = next.acquire_run(open.run_id(), &samples::owner(200), samples::at(30)).await;
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!(held(&next, &open).await, ["run_1"]);
    // Once: what a person accepted stays so.
    let known = next.forgotten(open.run_id()).await.unwrap();
    next.accept_forgotten(open.run_id(), &known, Some("ada"), ua_core::system::env().now()).await.unwrap();
    assert_eq!(held(&next, &open).await, [""; 0]);
    next.acquire_run(open.run_id(), &samples::owner(200), samples::at(30)).await.unwrap();
}

/// The mark is looked at in the transaction that takes a run as well: another server may have taken over behind the look.
#[tokio::test]
async fn a_run_is_not_taken_where_the_mark_went_back_behind_the_look() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let store = rooted(&database, folder.path());
    let scene = Scene::begin(&store, "run_1").await;
    store.clear_notes().await.unwrap();
    assert_eq!(held(&store, &scene).await, [""; 0]);
    by_hand.batch_execute("DELETE FROM meta WHERE key LIKE 'root/%'").await.unwrap();
    let taken = store.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await;
    assert!(taken.is_err(), "{taken:?}");
    let sql = "SELECT value FROM meta WHERE key = 'held/run_1'";
    assert_eq!(by_hand.query(sql, &[]).await.unwrap().len(), 1, "it is held by whoever was refused");
}

/// Where the server does not say which history it has, as to a role that may not ask, the mark alone tells that it went back.
#[tokio::test]
async fn a_server_that_tells_no_history_is_judged_by_the_mark() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let role = format!("plain_{}", database.name);
    let roles = format!(
        "REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA ua TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA ua TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA ua TO {role}"
    );
    by_hand.batch_execute(&roles).await.unwrap();
    let url = database.url_at(crate::postgres::SERVER).replace("user=ua", &format!("user={role}"));
    let mut config = PostgresConfig::from_url(&url).unwrap();
    config.alone_beside = Some(folder.path().to_owned());
    let store = blocking(PostgresStore::open(&config)).unwrap();
    let scene = Scene::begin(&store, "run_1").await;
    store.clear_notes().await.unwrap();
    store.note_history().await.unwrap();
    assert_eq!(held(&store, &scene).await, [""; 0]);
    by_hand.batch_execute("DELETE FROM meta WHERE key LIKE 'root/%'").await.unwrap();
    let taken = store.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await;
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!(held(&store, &scene).await, ["run_1"], "so that a person can say that it goes on");
    let known = store.forgotten(scene.run_id()).await.unwrap();
    store.accept_forgotten(scene.run_id(), &known, Some("ada"), ua_core::system::env().now()).await.unwrap();
    store.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await.unwrap();
}

/// A root that is to use its database anew, as one that was moved, counts anew.
#[tokio::test]
async fn a_root_that_forgot_its_database_forgot_its_mark() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let store = rooted(&database, folder.path());
    let scene = Scene::begin(&store, "run_1").await;
    store.clear_notes().await.unwrap();
    forget_database_beside(folder.path()).unwrap();
    by_hand.batch_execute("DELETE FROM meta WHERE key LIKE 'root/%'").await.unwrap();
    let store = rooted(&database, folder.path());
    assert_eq!(held(&store, &scene).await, [""; 0]);
}

/// What one run lost tells of all others of the root, whichever is looked at; what cannot be read is told.
#[tokio::test]
async fn all_that_a_root_noted_is_compared() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let locks = folder.path();
    let store = rooted(&database, locks);
    noted(&store, "run_1").await;
    let other = Scene::begin(&store, "run_2").await;
    let found = store.look_at_notes().await.unwrap();
    assert_eq!((found.lacking, found.unreadable), (Vec::new(), Vec::new()));

    std::fs::write(locks.join("run_9.confirmed"), "damaged").unwrap();
    std::fs::write(locks.join("database_mark"), "damaged").unwrap();
    by_hand.batch_execute("UPDATE run_writes SET batches = 0 WHERE run_id = 'run_1'").await.unwrap();
    let found = store.look_at_notes().await.unwrap();
    let [lacks] = &found.lacking[..] else { panic!("{found:?}") };
    let said = ["the server had confirmed batch 1 of epoch 1 at ", " of run run_1, and has batch 0 of epoch 1 now"];
    assert!(said.iter().all(|said| lacks.contains(said)), "{lacks}");
    let [note, mark] = &found.unreadable[..] else { panic!("{found:?}") };
    assert!(note.contains("run_9.confirmed") && mark.contains("database_mark"), "{note} {mark}");
    assert_eq!(held(&store, &other).await, ["run_2"], "what it had sent may be gone as well");
    assert_eq!(store.clear_notes().await.unwrap(), 0, "what a server says has ended that went back");
    assert_eq!(notes(locks), ["run_1", "run_9"]);
}

/// A run that ended with less than was confirmed shows as much, unless whoever ended it knew.
#[tokio::test]
async fn a_run_that_ended_with_less_than_was_confirmed_holds_the_others() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let locks = folder.path();
    let store = rooted(&database, locks);
    noted(&store, "run_1").await;
    let other = Scene::begin(&store, "run_2").await;
    by_hand.batch_execute("UPDATE run_writes SET batches = 0 WHERE run_id = 'run_1'").await.unwrap();
    end(&by_hand, "run_1").await;
    assert_eq!(store.clear_notes().await.unwrap(), 0);
    assert_eq!(notes(locks), ["run_1"]);
    let found = store.look_at_notes().await.unwrap();
    let [lacks] = &found.lacking[..] else { panic!("{found:?}") };
    assert!(lacks.contains("of run run_1, which has ended with batch 0 of epoch 1: it went back"), "{lacks}");
    assert_eq!(held(&store, &other).await, ["run_2"]);
    by_hand.batch_execute("INSERT INTO meta (key, value) VALUES ('held/run_1', '')").await.unwrap();
    assert_eq!(store.clear_notes().await.unwrap(), 1, "it was held when it was ended");
    assert_eq!(notes(locks), [""; 0]);
}

/// A run that the server has confirmed writes of, and neither has nor had deleted, was lost whole.
#[tokio::test]
async fn a_run_that_was_lost_whole_holds_the_others() {
    let Some(database) = Database::fresh() else { return };
    let (folder, locks) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Its note is of a run that this database never had.
    let store = rooted(&database, folder.path());
    noted(&store, "run_1").await;
    let other = rooted(&database, locks.path());
    let scene = Scene::begin(&other, "run_2").await;
    let name = "run_1.confirmed";
    let lost = std::fs::read_to_string(folder.path().join(name)).unwrap();
    std::fs::write(locks.path().join("run_3.confirmed"), lost).unwrap();
    let found = other.look_at_notes().await.unwrap();
    let [gone] = &found.lacking[..] else { panic!("{found:?}") };
    assert!(gone.contains("of run run_3, and has neither the run nor that it was deleted"), "{gone}");
    assert_eq!(held(&other, &scene).await, ["run_2"]);
}

/// A worker looks by itself: soon behind its first sign of life.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_looks_at_what_its_root_noted() {
    let Some(database) = Database::fresh() else { return };
    let (folder, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let store = rooted(&database, folder.path());
    noted(&store, "run_1").await;
    let other = Scene::begin(&store, "run_2").await;
    by_hand.batch_execute("UPDATE run_writes SET batches = 0 WHERE run_id = 'run_1'").await.unwrap();
    let worker = WorkerRecord {
        worker: "ada".to_owned(),
        place: "here".to_owned(),
        place_shown: "/runs on a machine".to_owned(),
        owner: samples::owner(7),
        version: "1.0.0".to_owned(),
        queues: Vec::new(),
        slots: 4,
        started_at: samples::at(0),
        lease_until: samples::at(30),
        is_draining: false,
    };
    store.fleet(FleetChange::Register(worker)).await.unwrap();
    until(&by_hand, "SELECT 1 FROM meta WHERE key = 'held/run_2'").await;
    assert_eq!(held(&store, &other).await, ["run_2"]);
}
