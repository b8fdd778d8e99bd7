//! Many writers on one database, as workers on many machines are: what one of them reads before it writes is still so when it has written.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;

use ua_core::{CallStatus, RunStatus, Scope};
use ua_store::conformance::{Scene, samples};
use ua_store::{
    Author, Batch, Blob, BlobPrune, Change, ConcurrencyKey, FleetChange, FleetStore as _, GATEWAY_MODE,
    LedgerStore as _, NewBlob, NewRun, NewSession, QueueOptions, Release, Retry, RunDeletion, RunLease, RunStore as _,
    SessionRecord, StartAttempt, Store as _, StoreError, WorkerRecord,
};
use ua_store_postgres::{Place, PostgresStore};

use crate::cluster::blocking;
use crate::database::{Database, until};

/// So many at once.
const WRITERS: usize = 8;

/// What all writers came to, each with a store of its own, begun together.
async fn together<T: Send + 'static, W>(database: &Database, write: impl Fn(usize, PostgresStore) -> W) -> Vec<T>
where
    W: Future<Output = T> + Send + 'static,
{
    let gate = Arc::new(tokio::sync::Barrier::new(WRITERS));
    let begun: Vec<_> = (0..WRITERS)
        .map(|number| {
            let (gate, work) = (Arc::clone(&gate), write(number, database.store()));
            tokio::spawn(async move {
                gate.wait().await;
                work.await
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for writer in begun {
        outcomes.push(writer.await.unwrap());
    }
    outcomes
}

fn by(lease: &RunLease) -> Author {
    Author::Owner(lease.clone())
}

/// Two starts of one lineage that each see nothing of the other would both go out: no constraint is between them.
#[tokio::test]
async fn of_calls_with_one_scope_one_starts() {
    for round in 0..5 {
        let Some(database) = Database::fresh() else { return };
        let store = database.store();
        let root = Scene::begin(&store, "run_root").await;
        let mut leases = Vec::new();
        for number in 0..WRITERS {
            let child =
                Scene::begin_with(&store, samples::child_run(&format!("run_{number}"), root.run_id().as_str())).await;
            child.turn(vec![samples::planned_email(&format!("call_{number}"), 1, 1)]).await;
            leases.push(child.lease.clone());
        }
        let outcomes = together(&database, |number, store| {
            let lease = leases[number].clone();
            async move {
                let id = format!("call_{number}");
                let scope = Some(Scope::new("email.send", "boss@example.com"));
                let start = StartAttempt { scope, seen: Some(Vec::new()), ..samples::start(&id, 1, &id) };
                store.start_attempt(&lease, start).await.map(|call| call.status)
            }
        })
        .await;
        let started = outcomes.iter().filter(|outcome| matches!(outcome, Ok(CallStatus::Running))).count();
        let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::ScopeTouched { .. }))).count();
        assert_eq!((started, refused), (1, WRITERS - 1), "round {round}: {outcomes:?}");
    }
}

#[tokio::test]
async fn a_job_key_is_given_to_one_lineage() {
    let Some(database) = Database::fresh() else { return };
    let outcomes = together(&database, |number, store| async move {
        let mut run = samples::new_run(&format!("run_{number}"));
        run.spec.job_key = Some("nightly@2026-11-23".to_owned());
        store.submit_run(run).await
    })
    .await;
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Exists { .. }))).count();
    assert_eq!(refused, WRITERS - 1, "{outcomes:?}");
    assert_eq!(database.store().runs(99).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_is_taken_under_an_epoch_of_its_own_each_time() {
    let Some(database) = Database::fresh() else { return };
    database.store().submit_run(samples::new_run("run_1")).await.unwrap();
    let outcomes = together(&database, |number, store| async move {
        let owner = samples::owner(u32::try_from(number).unwrap());
        store.acquire_run(&samples::run_id("run_1"), &owner, samples::at(1)).await.unwrap().0
    })
    .await;
    let mut epochs: Vec<u64> = outcomes.iter().map(|lease| lease.epoch).collect();
    epochs.sort_unstable();
    assert_eq!(epochs, (1..=WRITERS as u64).collect::<Vec<_>>());
    let store = database.store();
    let mut held = Vec::new();
    for lease in &outcomes {
        held.extend(store.check_lease(lease).await.ok().map(|()| lease.epoch));
    }
    assert_eq!(held, [WRITERS as u64], "the newest holds it alone");
}

/// A batch whose answer was lost is sent again, perhaps while the first one is still on its way.
#[tokio::test]
async fn a_numbered_batch_is_written_once_however_many_send_it() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let lease = scene.lease.clone();
    let outcomes = together(&database, |_, store| {
        let lease = lease.clone();
        async move {
            let settle = Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded));
            store.commit(&by(&lease), Batch::of([settle]).numbered(1)).await.map(drop)
        }
    })
    .await;
    let repeated =
        outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Repeated { number: 1, .. }))).count();
    assert_eq!((outcomes.iter().filter(|outcome| outcome.is_ok()).count(), repeated), (1, WRITERS - 1), "{outcomes:?}");
    assert_eq!(store.load(scene.run_id()).await.unwrap().receipts.len(), 1);
}

/// Blobs that only ended runs refer to may go, unless somebody refers to them again meanwhile: from all sides, in another order from each.
#[tokio::test]
async fn blobs_are_shared_and_never_pruned_under_who_refers_to_them() {
    const ROUNDS: usize = 20;
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    let files = |round: usize| (0..6).map(move |file| NewBlob::new(format!("file {file} of round {round}")));
    for round in 0..ROUNDS {
        let run = NewRun { files: files(round).collect(), ..samples::new_run(&format!("run_ended_{round}")) };
        let scene = Scene::begin_with(&store, run).await;
        store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await.unwrap();
    }
    let outcomes = together(&database, |number, store| async move {
        for round in 0..ROUNDS {
            if number == 0 {
                let used_before = Some(samples::at(99_999));
                store
                    .prune_blobs(BlobPrune { used_before, max_bytes: None, dry_run: false, at: samples::at(50) })
                    .await?;
                continue;
            }
            let mut files: Vec<NewBlob> = files(round).collect();
            files.rotate_left(number % 6);
            store.submit_run(NewRun { files, ..samples::new_run(&format!("run_{number}_{round}")) }).await?;
        }
        Ok::<_, StoreError>(())
    })
    .await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for file in (0..ROUNDS).flat_map(files) {
        assert_eq!(store.blob(&file.blob).await.unwrap(), Blob::Here(file.content));
    }
}

/// The moment that counts: a run that refers to a blob again has not committed, and the prune does not see it yet.
#[tokio::test]
async fn a_prune_waits_for_who_may_be_referring_to_a_blob() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand, watcher) = (database.store(), database.by_hand(), database.by_hand());
    let file = NewBlob::new("kept".to_owned());
    let run = |id| NewRun { files: vec![file.clone()], ..samples::new_run(id) };
    let scene = Scene::begin_with(&store, run("run_1")).await;
    store.end_run(&scene.lease, samples::run_end(RunStatus::Failed)).await.unwrap();

    by_hand.batch_execute("BEGIN; LOCK TABLE messages IN EXCLUSIVE MODE").await.unwrap();
    let submit = tokio::spawn({
        let (store, run) = (store.clone(), run("run_2"));
        async move { store.submit_run(run).await }
    });
    until(&watcher, &waiting(&database, 1)).await;
    let prune = tokio::spawn({
        let store = store.clone();
        let prune =
            BlobPrune { used_before: Some(samples::at(99_999)), max_bytes: None, dry_run: false, at: samples::at(50) };
        async move { store.prune_blobs(prune).await }
    });
    until(&watcher, &waiting(&database, 2)).await;
    by_hand.batch_execute("COMMIT").await.unwrap();
    submit.await.unwrap().unwrap();
    prune.await.unwrap().unwrap();
    assert_eq!(store.blob(&file.blob).await.unwrap(), Blob::Here(file.content));
}

/// Has a row when so many writers of the database wait for a lock.
fn waiting(database: &Database, writers: u32) -> String {
    format!(
        "SELECT count(*)::int FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'ua' AND wait_event_type = 'Lock' \
         HAVING count(*) = {writers}",
        database.name
    )
}

/// Somebody who holds a lineage and does not go on holds nobody up for ever: whoever waits is told that another try may help.
#[tokio::test]
async fn a_write_that_waits_too_long_may_be_tried_again() {
    let Some(database) = Database::fresh() else { return };
    let mut config = database.direct();
    config.lock_wait = std::time::Duration::from_millis(50);
    let store = blocking(PostgresStore::open(&config)).unwrap();
    let scene = Scene::begin(&store, "run_1").await;
    let by_hand = database.by_hand();
    by_hand.batch_execute("BEGIN; SELECT 1 FROM runs WHERE run_id = 'run_1' FOR UPDATE").await.unwrap();
    let beat = || store.note_alive(&scene.lease, std::time::Duration::ZERO, samples::at(5));
    let waited = beat().await;
    assert!(matches!(&waited, Err(StoreError::Unavailable { retry: Retry::Later, .. })), "{waited:?}");
    by_hand.batch_execute("COMMIT").await.unwrap();
    beat().await.unwrap();
}

/// Runs of different lineages do not wait for each other: with one held by somebody, all others go on.
#[tokio::test]
async fn a_lineage_waits_only_for_its_own() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    let (held, free) = (Scene::begin(&store, "run_1").await, Scene::begin(&store, "run_2").await);
    let by_hand = database.by_hand();
    by_hand.batch_execute("BEGIN; SELECT 1 FROM runs WHERE run_id = 'run_1' FOR UPDATE").await.unwrap();
    let lease = held.lease.clone();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.note_alive(&lease, std::time::Duration::ZERO, samples::at(5)).await }
    });
    free.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    free.bring("call_1", CallStatus::Succeeded).await;
    assert!(!waiting.is_finished());
    by_hand.batch_execute("COMMIT").await.unwrap();
    waiting.await.unwrap().unwrap();
}

/// Who takes a run first has its lineage: elsewhere nobody can tell whether it is driven, or whether what was sent can still act.
#[tokio::test]
async fn a_lineage_is_driven_where_it_was_taken_first() {
    let Some(database) = Database::fresh() else { return };
    let (ada, bob) = (at_place(&database, "ada"), at_place(&database, "bob"));
    bob.submit_run(samples::new_run("run_1")).await.unwrap();
    let (lease, _) = ada.acquire_run(&samples::run_id("run_1"), &samples::owner(1), samples::at(1)).await.unwrap();
    let elsewhere = |refused: Result<(), StoreError>| match refused {
        Err(StoreError::Conflict { why, .. }) => assert!(why.contains("driven in /runs on ada"), "{why}"),
        other => panic!("{other:?}"),
    };
    let taken = bob.acquire_run(&samples::run_id("run_1"), &samples::owner(2), samples::at(2)).await;
    elsewhere(taken.map(drop));
    let fork = bob.fork_run(samples::new_fork("run_2", "run_1", 0)).await;
    elsewhere(fork.map(drop));
    // What nobody drives needs no proof; a word of a person neither.
    bob.request_cancel(&samples::run_id("run_1"), "enough", samples::at(3)).await.unwrap();
    assert_eq!(ada.run(&samples::run_id("run_1")).await.unwrap().lease_epoch, lease.epoch);
    let deletion = RunDeletion { run_id: samples::run_id("run_1"), by: None, at: samples::at(4), force: true };
    elsewhere(bob.delete_run(&deletion).await.map(drop));
    // A person says that the place is gone.
    bob.fleet(FleetChange::ForgetPlace { place: "ada".to_owned(), at: samples::at(5) }).await.unwrap();
    // It only stood still, and goes on before anybody else has taken the run: nothing it would send is begun.
    assert!(matches!(ada.check_lease(&lease).await, Err(StoreError::Fenced { .. })));
    let (next, _) = bob.acquire_run(&samples::run_id("run_1"), &samples::owner(2), samples::at(6)).await.unwrap();
    assert!(next.epoch > lease.epoch);
    assert!(matches!(ada.check_lease(&lease).await, Err(StoreError::Fenced { .. })));
}

/// What a worker lets go of without having begun anything of it others may take, wherever they are; what was begun stays where it was.
#[tokio::test]
async fn a_run_of_which_nothing_was_begun_is_bound_to_no_place() {
    let Some(database) = Database::fresh() else { return };
    let (ada, bob) = (at_place(&database, "ada"), at_place(&database, "bob"));
    ada.fleet(FleetChange::Register(record("worker", "ada"))).await.unwrap();
    let stopped = || samples::run_end(RunStatus::Stopped);
    for (number, (begun, is_free)) in
        [("nothing", true), ("a step", false), ("a turn", false), ("a process has it", false), ("forked", false)]
            .into_iter()
            .enumerate()
    {
        let id = samples::run_id(&format!("run_{number}"));
        if begun == "a step" || begun == "a turn" {
            let scene = Scene::begin(&ada, id.as_str()).await;
            if begun == "a turn" {
                scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
                scene.bring("call_1", CallStatus::Succeeded).await;
            }
            ada.end_run(&scene.lease, stopped()).await.unwrap();
        } else {
            let mut run = samples::new_run(id.as_str());
            run.spec.job_key = None;
            bob.submit_run(run).await.unwrap();
            let (lease, _) = ada.acquire_run(&id, &samples::owner(1), samples::at(1)).await.unwrap();
            if begun != "a process has it" {
                ada.end_run(&lease, stopped()).await.unwrap();
            }
            if begun == "forked" {
                ada.fork_run(samples::new_fork("run_fork", id.as_str(), 0)).await.unwrap();
            }
        }
        let options = QueueOptions::at(samples::at(0));
        ada.fleet(FleetChange::Enqueue { run: id.clone(), options, at: samples::at(0) }).await.unwrap();
        let worker = "worker".to_owned();
        let claim = FleetChange::Claim {
            worker: worker.clone(),
            holds: Vec::new(),
            most: 1,
            dead: Vec::new(),
            avoids: Vec::new(),
            at: samples::at(1),
        };
        assert_eq!(ada.fleet(claim).await.unwrap().entries[0].run_id, id, "{begun}");
        let release = Release::Unfit { at: samples::at(2), why: "no program".to_owned() };
        ada.fleet(FleetChange::Release { worker, run: id.clone(), release }).await.unwrap();
        ada.fleet(FleetChange::Withdraw { run: id.clone() }).await.unwrap();
        let taken = bob.acquire_run(&id, &samples::owner(2), samples::at(3)).await;
        assert_eq!(taken.is_ok(), is_free, "{begun}: {taken:?}");
    }
}

fn at_place(database: &Database, id: &str) -> PostgresStore {
    let mut config = database.direct();
    config.place = Some(Place { id: id.to_owned(), shown: format!("/runs on {id}") });
    blocking(PostgresStore::open(&config)).unwrap()
}

async fn open_session(store: &PostgresStore, id: &str) {
    let run = NewRun {
        entrypoint: "gateway".to_owned(),
        run_mode: GATEWAY_MODE.to_owned(),
        job_path: None,
        ..samples::new_run(id)
    };
    let session = SessionRecord {
        run_id: samples::run_id(id),
        project: "/home/ada/project".to_owned(),
        server: "mail".to_owned(),
        session_key: id.to_owned(),
        client: "claude-code".to_owned(),
        identity: "exact".to_owned(),
        reach: "npx mail".to_owned(),
        opened_at: samples::at(0),
    };
    let batch = Batch::of([Change::OpenSession(Box::new(NewSession { run, session }))]);
    store.commit(&Author::Command, batch).await.unwrap();
}

async fn take(store: &PostgresStore, id: &str) -> Result<(), StoreError> {
    store.acquire_run(&samples::run_id(id), &samples::owner(1), samples::at(1)).await.map(drop)
}

/// Two brokers of which neither knows what the other one is asked would send one mail twice.
#[tokio::test]
async fn a_database_has_the_gateway_of_one_place() {
    let Some(database) = Database::fresh() else { return };
    let (ada, bob) = (at_place(&database, "ada"), at_place(&database, "bob"));
    for (store, id) in [(&ada, "run_1"), (&bob, "run_2")] {
        open_session(store, id).await;
    }
    assert_eq!(bob.gateway_elsewhere().await.unwrap().map(|place| place.id), None, "nobody has taken one yet");
    take(&ada, "run_1").await.unwrap();
    let refused = |taken: Result<(), StoreError>, by: &str| match taken {
        Err(StoreError::Conflict { why, .. }) => {
            let (whose, forget) = (format!("the gateway of /runs on {by};"), format!("`ua workers forget {by}`"));
            for word in [whose.as_str(), "a database of its own", forget.as_str()] {
                assert!(why.contains(word), "{why}");
            }
        }
        other => panic!("{other:?}"),
    };
    refused(take(&bob, "run_2").await, "ada");
    assert_eq!(bob.gateway_elsewhere().await.unwrap().map(|place| place.id).as_deref(), Some("ada"));
    assert_eq!(ada.gateway_elsewhere().await.unwrap().map(|place| place.id), None);
    // Jobs are driven from as many places as there are.
    bob.submit_run(samples::new_run("run_3")).await.unwrap();
    take(&bob, "run_3").await.unwrap();
    // A person says that the other place is gone.
    bob.fleet(FleetChange::ForgetPlace { place: "ada".to_owned(), at: samples::at(5) }).await.unwrap();
    take(&bob, "run_2").await.unwrap();
    refused(take(&ada, "run_1").await, "bob");
}

#[tokio::test]
async fn of_gateways_that_begin_at_once_on_a_database_one_has_it() {
    let Some(database) = Database::fresh() else { return };
    let taken = together(&database, |number, _| {
        let store = at_place(&database, &format!("place{number}"));
        async move {
            let id = format!("run_{number}");
            open_session(&store, &id).await;
            take(&store, &id).await
        }
    })
    .await;
    assert_eq!(taken.iter().filter(|taken| taken.is_ok()).count(), 1, "{taken:?}");
}

fn record(worker: &str, place: &str) -> WorkerRecord {
    WorkerRecord {
        worker: worker.to_owned(),
        place: place.to_owned(),
        place_shown: place.to_owned(),
        owner: samples::owner(1),
        version: String::new(),
        queues: Vec::new(),
        slots: 4,
        started_at: samples::at(0),
        lease_until: samples::at(99),
        is_draining: false,
    }
}

/// Every worker looks twice a second, one after the other. What has ended is not looked at, however much there is of it, nor is all that waits.
#[tokio::test]
async fn a_claim_looks_at_what_waits_and_not_at_what_has_ended() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let mut run = samples::new_run("run_first");
    run.spec.job_key = None;
    let first = store.submit_run(run).await.unwrap().run_id;
    let options = QueueOptions::at(samples::at(0));
    store.fleet(FleetChange::Enqueue { run: first, options, at: samples::at(0) }).await.unwrap();
    // As many rows of each as the planner has to take seriously: runs that ended elsewhere, and ones that wait, some of them for another place.
    by_hand
        .batch_execute(
            "SET session_replication_role = replica; \
             INSERT INTO runs OVERRIDING SYSTEM VALUE SELECT (jsonb_populate_record(r, jsonb_build_object('run_id', 'run_' || n, \
               'root_run_id', 'run_' || n, 'seq', n, 'status', CASE WHEN n < 20000 THEN 'succeeded' ELSE 'queued' END))).* \
               FROM runs r, generate_series(1000, 22000) n; \
             INSERT INTO run_writes SELECT (jsonb_populate_record(w, jsonb_build_object('run_id', 'run_' || n))).* \
               FROM run_writes w, generate_series(1000, 22000) n WHERE w.run_id = 'run_first'; \
             INSERT INTO lineage_places SELECT 'run_' || n, 'elsewhere', 'elsewhere' FROM generate_series(1000, 21000) n; \
             INSERT INTO run_queue SELECT (jsonb_populate_record(q, jsonb_build_object('run_id', 'run_' || n, 'seq', n, \
               'concurrency_key', 'k' || n % 100, 'concurrency_limit', 4))).* FROM run_queue q, generate_series(20000, 22000) n; \
             SET session_replication_role = origin; ANALYZE",
        )
        .await
        .unwrap();
    store.fleet(FleetChange::Register(record("ada", "here"))).await.unwrap();
    let scans = "SELECT seq_scan::int FROM pg_stat_user_tables WHERE schemaname = 'ua' AND relname = 'runs'";
    let before = until(&by_hand, scans).await;
    let claim = FleetChange::Claim {
        worker: "ada".to_owned(),
        holds: Vec::new(),
        most: 4,
        dead: Vec::new(),
        avoids: Vec::new(),
        at: samples::at(1),
    };
    let claimed = store.fleet(claim).await.unwrap().entries;
    let names: Vec<_> = claimed.iter().map(|entry| entry.run_id.to_string()).collect();
    assert_eq!(names, ["run_first", "run_21001", "run_21002", "run_21003"]);
    // What a connection counted is told when it ends.
    store.close();
    until(&by_hand, "SELECT 1 FROM pg_stat_user_tables WHERE relname = 'run_queue' AND n_tup_upd >= 4").await;
    assert_eq!(until(&by_hand, scans).await, before, "all runs were looked through");
}

/// Workers that look at the same moment get different runs, and never more of a key than it has seats.
#[tokio::test]
async fn workers_that_claim_at_once_share_nothing() {
    let Some(database) = Database::fresh() else { return };
    let store = database.store();
    for number in 0..24 {
        let mut run = samples::new_run(&format!("run_{number}"));
        run.spec.job_key = None;
        let queued = store.submit_run(run).await.unwrap();
        let concurrency = Some(ConcurrencyKey { key: format!("key_{}", number % 2), limit: 3 });
        let options = QueueOptions { concurrency, ..QueueOptions::at(samples::at(0)) };
        store.fleet(FleetChange::Enqueue { run: queued.run_id, options, at: samples::at(0) }).await.unwrap();
    }
    let claims = together(&database, |number, store| async move {
        let worker = format!("worker_{number}");
        store.fleet(FleetChange::Register(record(&worker, ""))).await.unwrap();
        let claim = FleetChange::Claim {
            worker,
            holds: Vec::new(),
            most: 4,
            dead: Vec::new(),
            avoids: Vec::new(),
            at: samples::at(1),
        };
        store.fleet(claim).await.unwrap().entries
    })
    .await;
    let claimed: Vec<_> = claims.into_iter().flatten().collect();
    let mut runs: Vec<_> = claimed.iter().map(|entry| &entry.run_id).collect();
    runs.sort();
    runs.dedup();
    assert_eq!((runs.len(), claimed.len()), (6, 6));
}
