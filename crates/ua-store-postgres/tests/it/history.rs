//! A server whose history is another one than before: a standby took over, or a copy was put back.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::Client;
use ua_core::{CallStatus, RunId, Timestamp};
use ua_store::conformance::{Scene, samples};
use ua_store::{
    Author, Batch, Change, Committed, Forgotten, LedgerStore as _, PastStore as _, RunStore as _, Store as _,
    StoreError,
};
use ua_store_postgres::{PostgresConfig, PostgresStore, database_beside};

use crate::cluster::{Cluster, blocking};
use crate::database::{Database, until};
use crate::postgres::SERVER;

/// The database says that it was in another history, of this system or of another one, and whether commits waited there.
async fn was_in_another(by_hand: &Client, is_this_system: bool, waited: &str) {
    let system = if is_this_system { "split_part(value, '/', 1)" } else { "'1'" };
    let sql = format!(
        "UPDATE meta SET value = {system} || '/00000000' WHERE key = 'history'; \
         UPDATE meta SET value = '{waited}' WHERE key = 'commits_wait'"
    );
    by_hand.batch_execute(&sql).await.unwrap();
}

async fn held(store: &PostgresStore, run: &RunId) -> Vec<String> {
    store.forgotten(run).await.unwrap().into_iter().map(|known| known.run_id).collect()
}

async fn accept(store: &PostgresStore, run: &RunId) {
    accept_at(store, run, samples::at(500)).await;
}

async fn accept_at(store: &PostgresStore, run: &RunId, at: Timestamp) {
    let known: Vec<Forgotten> = store.forgotten(run).await.unwrap();
    assert!(known.iter().all(Forgotten::is_failed_over), "{known:?}");
    store.accept_forgotten(run, &known, Some("ada"), at).await.unwrap();
}

/// Starts a call that is recorded, as batch `number` of the run's owner.
async fn start(store: &PostgresStore, scene: &Scene<'_>, call: &str, number: u64) -> Result<Committed, StoreError> {
    let start = Change::StartAttempt(samples::start(call, 1, call));
    store.commit(&Author::Owner(scene.lease.clone()), Batch::of([start]).numbered(number)).await
}

/// Over whether commits waited, and whether it is the same system: each run that has not ended is held, alone, until somebody accepts it; what
/// begins later is not.
#[tokio::test]
async fn what_has_not_ended_is_held_in_another_history_until_it_is_accepted() {
    for (is_this_system, waited, is_held) in
        [(true, "no", true), (true, "yes", false), (false, "no", true), (false, "yes", true)]
    {
        let Some(database) = Database::fresh() else { return };
        let (store, by_hand) = (database.store(), database.by_hand());
        let (first, second) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
        let both = [first.run_id(), second.run_id()];
        for run in both {
            assert_eq!(held(&store, run).await, [""; 0], "it is noted");
        }
        let schedules = "INSERT INTO schedules (name, cron, time_zone, job_json, catch_up, is_paused, next_at) VALUES \
                         ('due', '@daily', 'UTC', '{}', 'last', false, '2020-01-01T03:00:00.000Z'), \
                         ('later', '@daily', 'UTC', '{}', 'last', false, '2999-01-01T03:00:00.000Z')";
        by_hand.batch_execute(schedules).await.unwrap();
        was_in_another(&by_hand, is_this_system, waited).await;
        for run in both {
            let expected = if is_held { vec![run.to_string()] } else { Vec::new() };
            assert_eq!(held(&store, run).await, expected, "{is_this_system} {waited}");
        }
        let paused = by_hand.query("SELECT name FROM schedules WHERE is_paused", &[]).await.unwrap();
        let paused: Vec<String> = paused.iter().map(|row| row.get(0)).collect();
        assert_eq!(paused, if is_held { vec!["due"] } else { Vec::new() }, "an instant may have been submitted");
        let third = Scene::begin(&store, "run_3").await;
        assert_eq!(held(&store, third.run_id()).await, [""; 0], "it began behind that");
        if is_held {
            accept(&store, both[0]).await;
            assert_eq!(held(&store, both[0]).await, [""; 0]);
            assert_eq!(held(&store, both[1]).await, ["run_2"], "that one was not accepted");
            let health = store.examine().await.unwrap();
            assert_eq!(health.forgotten.len(), 1, "{:?}", health.forgotten);
            let sql = "SELECT value FROM meta WHERE key = 'accepted/run_1'";
            let said: String = by_hand.query_one(sql, &[]).await.unwrap().get(0);
            assert!(said.ends_with(" ada"), "{said}");
        }
        // Nothing changes until the history does, and then all of it is held again.
        was_in_another(&by_hand, false, "no").await;
        for run in [both[0], both[1], third.run_id()] {
            assert_eq!(held(&store, run).await, [run.as_str()]);
        }
    }
}

/// Sessions of one project at the gateway may be about the same: none of them is taken, also one that is opened later, while one of them may have sent
/// something that is gone.
#[tokio::test]
async fn a_session_is_held_with_those_of_its_project() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let session = async |id: &str, project: &str| {
        Scene::begin(&store, id).await;
        let sql = format!(
            "INSERT INTO gateway_sessions (run_id, project, server, session_key, client, identity, reach, opened_at) \
             VALUES ('{id}', '{project}', 'mail', '{id}', 'probe', 'exact', 'x', '2026-01-02T03:04:05.000Z')"
        );
        by_hand.batch_execute(&sql).await.unwrap();
        samples::run_id(id)
    };
    let (first, second, other) =
        (session("run_1", "/p").await, session("run_2", "/p").await, session("run_3", "/q").await);
    assert_eq!(held(&store, &first).await, [""; 0], "it is noted");
    was_in_another(&by_hand, true, "no").await;
    for run in [&first, &second] {
        assert_eq!(held(&store, run).await, ["run_1", "run_2"], "{run}");
    }
    assert_eq!(held(&store, &other).await, ["run_3"]);
    let later = session("run_4", "/p").await;
    assert_eq!(held(&store, &later).await, ["run_1", "run_2"], "what it asks for may have been asked for there");
    accept(&store, &later).await;
    for run in [&first, &second, &later] {
        assert_eq!(held(&store, run).await, [""; 0], "{run}");
    }
    assert_eq!(held(&store, &other).await, ["run_3"]);
}

/// The files of a server were put back: its log is shorter than it was when something was done from here. Once that was looked at, it is over.
#[tokio::test]
async fn a_log_that_is_shorter_than_it_was_holds_what_is_open() {
    let Some(database) = Database::fresh() else { return };
    let locks = tempfile::tempdir().unwrap();
    let mut config = database.direct();
    config.alone_beside = Some(locks.path().to_owned());
    let store = blocking(PostgresStore::open(&config)).unwrap();
    let scene = Scene::begin(&store, "run_1").await;
    assert_eq!(held(&store, scene.run_id()).await, [""; 0]);
    let noted = locks.path().join("database_position");
    let text = std::fs::read_to_string(&noted).unwrap();
    let (history, at) = text.split_once(' ').unwrap();
    assert!(at.parse::<i64>().unwrap() > 0, "{text}");
    for (place, expected) in [(i64::MAX, vec!["run_1"]), (1, Vec::new())] {
        std::fs::write(&noted, format!("{history} {place}")).unwrap();
        assert_eq!(held(&store, scene.run_id()).await, expected, "{place}");
        accept(&store, scene.run_id()).await;
        assert_eq!(held(&store, scene.run_id()).await, [""; 0], "{place}");
    }
}

/// A store of a root that has its locks in this folder.
fn rooted(database: &Database, locks: &tempfile::TempDir) -> PostgresStore {
    let mut config = database.direct();
    config.alone_beside = Some(locks.path().to_owned());
    blocking(PostgresStore::open(&config)).unwrap()
}

/// A start that was confirmed is gone, although the history is the same and the log is longer than ever, as of files that were put back and written
/// on. The root knows of it, also when whoever takes the run has not looked.
#[tokio::test]
async fn what_was_confirmed_and_is_gone_holds_what_is_open() {
    let Some(database) = Database::fresh() else { return };
    let (locks, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let store = rooted(&database, &locks);
    let (scene, other) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
    scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    start(&store, &scene, "call_1", 1).await.unwrap();
    for run in [scene.run_id(), other.run_id()] {
        assert_eq!(held(&store, run).await, [""; 0]);
    }
    by_hand.batch_execute("UPDATE run_writes SET batches = 0 WHERE run_id = 'run_1'").await.unwrap();
    let next = rooted(&database, &locks);
    let taken = next.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await;
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "{taken:?}");
    for run in [scene.run_id(), other.run_id()] {
        assert_eq!(held(&next, run).await, [run.as_str()]);
        accept_at(&next, run, ua_core::system::env().now()).await;
    }
    for run in [scene.run_id(), other.run_id()] {
        assert_eq!(held(&next, run).await, [""; 0], "it was accepted with what is gone");
    }
    next.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await.unwrap();
}

/// Another server took over between the look at the history and the taking of a run.
#[tokio::test]
async fn a_run_is_not_taken_in_a_history_that_changed_behind_the_look() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let scene = Scene::begin(&store, "run_1").await;
    for (waited, is_taken) in [("yes", true), ("no", false)] {
        assert_eq!(held(&store, scene.run_id()).await, [""; 0]);
        was_in_another(&by_hand, true, waited).await;
        let taken = store.acquire_run(scene.run_id(), &samples::owner(200), samples::at(30)).await;
        assert_eq!(taken.is_ok(), is_taken, "{taken:?}");
    }
    let sql = "SELECT value FROM meta WHERE key = 'held/run_1'";
    assert_eq!(by_hand.query(sql, &[]).await.unwrap().len(), 1, "it is held by whoever was refused");
    assert_eq!(held(&store, scene.run_id()).await, ["run_1"]);
    // Its end sends nothing.
    store.request_cancel(scene.run_id(), "enough", samples::at(40)).await.unwrap();
    store.acquire_run(scene.run_id(), &samples::owner(300), samples::at(41)).await.unwrap();
}

/// An owner whose durable write is gone has all others held, whoever drives it; one of which a server that crashed lost what had not to be durable
/// has not.
#[tokio::test]
async fn an_owner_that_is_told_that_the_server_went_back_has_all_held() {
    let Some(database) = Database::fresh() else { return };
    let (locks, by_hand) = (tempfile::tempdir().unwrap(), database.by_hand());
    let store = rooted(&database, &locks);
    let (scene, other) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
    scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    start(&store, &scene, "call_1", 1).await.unwrap();
    let alive = async |number: u64| {
        let sign = Change::NoteAlive { suspended: std::time::Duration::ZERO, at: samples::at(6) };
        store.commit(&Author::Owner(scene.lease.clone()), Batch::of([sign]).numbered(number)).await
    };
    alive(2).await.unwrap();
    for (left, is_held) in [(1, false), (0, true)] {
        let sql = format!("UPDATE run_writes SET batches = {left} WHERE run_id = 'run_1'");
        by_hand.batch_execute(&sql).await.unwrap();
        let told = alive(3).await;
        assert!(matches!(told, Err(StoreError::WentBack { .. })), "{told:?}");
        let expected = if is_held { vec!["run_2"] } else { Vec::new() };
        assert_eq!(held(&store, other.run_id()).await, expected, "{left}");
    }
}

/// A session that is open goes on in a server that took over: not before what another one of its project may have sent there was accepted.
#[tokio::test]
async fn a_session_that_is_open_starts_nothing_while_another_one_of_its_project_is_held() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let (first, second) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
    for id in ["run_1", "run_2"] {
        let sql = format!(
            "INSERT INTO gateway_sessions (run_id, project, server, session_key, client, identity, reach, opened_at) \
             VALUES ('{id}', '/p', 'mail', '{id}', 'probe', 'exact', 'x', '2026-01-02T03:04:05.000Z')"
        );
        by_hand.batch_execute(&sql).await.unwrap();
    }
    second.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    assert_eq!(held(&store, first.run_id()).await, [""; 0]);
    was_in_another(&by_hand, true, "no").await;
    // As the broker has it whose connections broke.
    let again = database.store();
    let refused = start(&again, &second, "call_1", 1).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(store.call(&samples::call_id("call_1")).await.unwrap().status, CallStatus::Prepared);
    accept(&store, first.run_id()).await;
    start(&again, &second, "call_1", 1).await.unwrap();
}

/// The owner of a run found writes of its own gone, whatever the server says of its history: all is held, once.
#[tokio::test]
async fn what_an_owner_finds_to_be_gone_holds_what_is_open_once() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    let scene = Scene::begin(&store, "run_1").await;
    assert_eq!(held(&store, scene.run_id()).await, [""; 0]);
    store.hold_unfinished().await.unwrap();
    assert_eq!(held(&store, scene.run_id()).await, ["run_1"]);
    accept(&store, scene.run_id()).await;
    store.hold_unfinished().await.unwrap();
    assert_eq!(held(&store, scene.run_id()).await, [""; 0], "a person has looked");
}

/// A dump that was put into the same server, which has all of its log: the tables are others.
#[tokio::test]
async fn tables_that_were_made_anew_are_another_history() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let scene = Scene::begin(&store, "run_1").await;
    assert_eq!(held(&store, scene.run_id()).await, [""; 0]);
    let sql = "ALTER TABLE meta RENAME TO old; CREATE TABLE meta (LIKE old INCLUDING ALL); INSERT INTO meta SELECT * FROM old";
    by_hand.batch_execute(sql).await.unwrap();
    assert_eq!(held(&store, scene.run_id()).await, ["run_1"]);
}

/// A real standby, waited for and not: it is asked before it takes over, and behind that.
#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_takes_over_goes_on_if_it_was_waited_for_and_holds_what_is_open_if_not() {
    for is_waited_for in [true, false] {
        let Some(cluster) = Cluster::start("") else { return };
        let database = Database::in_its_own(cluster);
        let by_hand = database.by_hand();
        let standby = tokio::task::block_in_place(|| database.cluster().standby("second"));
        if is_waited_for {
            by_hand.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (second)'").await.unwrap();
            by_hand.batch_execute("SELECT pg_reload_conf()").await.unwrap();
            until(&by_hand, "SELECT pid FROM pg_stat_replication WHERE sync_state = 'quorum'").await;
            until(&by_hand, "SELECT 1 WHERE current_setting('synchronous_standby_names') <> ''").await;
        }
        let store = database.store();
        let scene = Scene::begin(&store, "run_1").await;
        assert_eq!(held(&store, scene.run_id()).await, [""; 0]);
        tokio::task::block_in_place(|| {
            database.cluster().until_followed_by(&standby);
            database.cluster().kill();
        });
        let mut config = PostgresConfig::from_url(&standby.url("own", SERVER)).unwrap();
        let other = blocking(PostgresStore::open(&config)).unwrap();
        assert_eq!(held(&other, scene.run_id()).await, [""; 0], "a standby has no history of its own");
        // Of a run that it does not have, or not yet.
        let locks = tempfile::tempdir().unwrap();
        config.alone_beside = Some(locks.path().to_owned());
        let behind = blocking(PostgresStore::open(&config)).unwrap();
        let identity = database_beside(locks.path()).unwrap().unwrap();
        let noted = format!("{identity} 1 7 owner 2026-01-02T03:04:05.000Z");
        std::fs::write(locks.path().join("run_9.confirmed"), noted).unwrap();
        let found = behind.look_at_notes().await.unwrap();
        assert_eq!(found.lacking, Vec::<String>::new(), "a standby may be behind");
        behind.close();
        tokio::task::block_in_place(|| standby.promote());
        let expected = if is_waited_for { Vec::new() } else { vec!["run_1".to_owned()] };
        assert_eq!(held(&other, scene.run_id()).await, expected, "{is_waited_for}");
        other.close();
    }
}
