//! A database of an earlier schema is brought up to date, and what is in it stays.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use rusqlite::Connection;
use ua_core::{
    CallPolicy, CallStatus, OnUnknown, PlannedCall, Reads, Resolution, RunId, RunStatus, SideEffectClass, ToolName,
};
use ua_store::conformance::{Scene, samples};
use ua_store::{
    CallQuery, Choice, FleetChange, FleetStore as _, LedgerStore as _, NewRun, QueueOptions, RunRecord, RunStore as _,
    StartAttempt, Store, StoreError, TrailOf,
};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::{earlier_schemas, of_schema_16, take_back_to};

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
    // A lineage of before has no mark, and keeps the keys that it has.
    assert_eq!(store.run(&run.run_id).await.unwrap(), RunRecord { lineage_mark: None, ..run.clone() });
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
    // Skipped or not: what `ua doctor` names them by.
    let unknown = CallQuery { only_unknown: true, limit: u32::MAX, ..CallQuery::default() };
    let found = store.find_calls(&unknown).await.unwrap().into_iter().map(|call| call.call_id).collect::<Vec<_>>();
    assert_eq!(found, [samples::call_id("call_2"), samples::call_id("call_1")]);
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

/// What the second design of the core found in databases of every schema before: a refusal behind a loss in a run that goes on and in one that
/// has ended, a call in doubt, an abort that nobody acted on, what was read, and a sub-agent's run.
async fn made_before(store: &SqliteStore) {
    let scene = Scene::begin(store, "run_1").await;
    let reads = PlannedCall {
        policy: CallPolicy {
            reads: vec![Reads::Untrusted, Reads::Private],
            ..samples::planned_call("call_r", 1, 2).policy.unshared()
        }
        .into(),
        ..samples::planned_call("call_r", 1, 2)
    };
    scene.turn(vec![samples::planned_email("call_1", 1, 1), reads]).await;
    refused_after_a_loss(store, &scene, "call_1").await.unwrap();
    scene.bring("call_r", CallStatus::Succeeded).await;
    scene.commit(1).await;
    let policy =
        CallPolicy { class: SideEffectClass::Local, on_unknown: OnUnknown::Redo, ..CallPolicy::unclassified() };
    let task = PlannedCall { name: ToolName::task(), policy: policy.into(), ..samples::planned_call("call_t", 2, 2) };
    scene.turn(vec![samples::planned_email("call_2", 2, 1), task]).await;
    scene.bring("call_2", CallStatus::Unknown).await;
    let id = RunId::of_task(&samples::call_id("call_t"));
    let child = NewRun { run_mode: "task".to_owned(), ..samples::child_run(id.as_str(), "run_1") };
    let start = StartAttempt { child: Some(Box::new(child)), ..samples::start("call_t", 1, "call_t") };
    store.start_attempt(&scene.lease, start).await.unwrap();

    let ended = Scene::begin(store, "run_2").await;
    ended.turn(vec![samples::planned_email("call_3", 1, 1)]).await;
    refused_after_a_loss(store, &ended, "call_3").await.unwrap();
    ended.commit(1).await;
    store.end_run(&ended.lease, samples::run_end(RunStatus::Succeeded)).await.unwrap();

    let aborted = Scene::begin(store, "run_3").await;
    store.raise_question(&aborted.lease, samples::question("q_1", None)).await.unwrap();
    store.insert_answer(samples::answer("q_1", Choice::Abort)).await.unwrap();
}

#[tokio::test]
async fn a_database_of_every_earlier_schema_opens_with_what_it_had() {
    for schema in earlier_schemas() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runtime_state.db");
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        made_before(&store).await;
        let before = store.run(&samples::run_id("run_1")).await.unwrap();
        store.close().unwrap();
        take_back_to(&Connection::open(&path).unwrap(), schema).unwrap();

        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        let call = async |id: &str| {
            let call = store.call(&samples::call_id(id)).await.unwrap();
            (call.status, call.doubt, call.resolution)
        };
        // Nobody ever said what came of its lost attempt.
        let left = (CallStatus::Unknown, Some(1), Some(Resolution::Skipped));
        assert_eq!(call("call_1").await, left, "schema {schema}");
        assert_eq!(call("call_3").await, left, "schema {schema}: its run has ended");
        assert_eq!(call("call_2").await, (CallStatus::Unknown, Some(1), None), "schema {schema}");
        let child = store.run(&RunId::of_task(&samples::call_id("call_t"))).await.unwrap();
        assert_eq!(child.task_call_id, Some(samples::call_id("call_t")), "schema {schema}");
        let mark = store.run(&samples::run_id("run_3")).await.unwrap();
        assert_eq!(mark.abort_question, Some(samples::question_id("q_1")), "schema {schema}");
        let now = store.run(&samples::run_id("run_1")).await.unwrap();
        assert!(now.taint.is_both(), "schema {schema}");
        assert_eq!((now.turn_index, &now.spec, &now.status), (before.turn_index, &before.spec, &before.status));
        // It is taken and driven on as any other.
        let owner = samples::owner(300);
        let (lease, _) = store.acquire_run(&samples::run_id("run_1"), &owner, samples::at(199)).await.unwrap();
        store.mark_lost(&lease, "its process ended", samples::at(200)).await.unwrap();
        store.close().unwrap();
        let examined = SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap();
        assert_eq!(examined.findings, [""; 0], "schema {schema}");
    }
}

/// What was queued before there were lines is in those of its priority and key, and they take turns.
#[tokio::test]
async fn a_queue_of_an_earlier_schema_is_in_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    for (number, key) in ["many", "many", "many", "few", "few"].into_iter().enumerate() {
        let mut new = samples::new_run(&format!("run_{number}"));
        new.spec.job_key = None;
        let run = store.submit_run(new).await.unwrap().run_id;
        let options = QueueOptions { fair_key: Some(key.to_owned()), ..QueueOptions::at(samples::at(0)) };
        store.fleet(FleetChange::Enqueue { run, options, at: samples::at(0) }).await.unwrap();
    }
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    take_back_to(&raw, 24).unwrap();
    // As they were given their turns: run by run, some of them behind what was for later.
    raw.execute("UPDATE run_queue SET fair = seq * 10", []).unwrap();
    drop(raw);

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let state = store.fleet_state(9).await.unwrap();
    let names: Vec<&str> = state.queue.iter().map(|entry| entry.run_id.as_str()).collect();
    assert_eq!(names, ["run_0", "run_3", "run_1", "run_4", "run_2"]);
    let keys: Vec<_> = state.lines.iter().map(|line| (line.line, line.fair_key.as_deref())).collect();
    assert_eq!(keys, [(1, Some("many")), (2, Some("few"))]);
}

/// Turns, requests, attempts, checkpoints and events lie elsewhere since schema 17; what they say is what it was, and goes on.
#[tokio::test]
async fn a_database_of_schema_16_keeps_every_row_of_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (made, path) = (folder.path().join("made.db"), folder.path().join("runtime_state.db"));
    let store = SqliteStore::open(SqliteConfig::new(&made)).unwrap();
    let mut wanted = Vec::new();
    for run in ["run_1", "run_2"] {
        let scene = Scene::begin(&store, run).await;
        for (turn, status) in [(1, CallStatus::Succeeded), (2, CallStatus::FailedReported), (3, CallStatus::Unknown)] {
            let call = format!("{run}_call_{turn}");
            scene.turn(vec![samples::planned_email(&call, turn, 1)]).await;
            scene.bring(&call, status).await;
            if turn < 3 {
                scene.commit(turn).await;
            }
        }
        let call = samples::call_id(&format!("{run}_call_1"));
        wanted.push((scene.records().await, store.trail(&call, TrailOf::Changes).await.unwrap()));
    }
    store.close().unwrap();
    of_schema_16(&path, &made).unwrap();

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    for (records, trail) in &wanted {
        let run = &records.run.run_id;
        // Earlier schemas do not keep them.
        let mut records = records.clone();
        records.run.processes.clear();
        records.run.lineage_mark = None;
        records.attempts.iter_mut().for_each(|attempt| attempt.destination = None);
        let mut trail = trail.clone();
        trail.attempts.iter_mut().for_each(|attempt| attempt.destination = None);
        assert_eq!(store.load(run).await.unwrap(), records);
        assert!(
            records.turns.len() == 3 && records.attempts.len() == 3 && records.checkpoints.len() >= 2,
            "{records:?}"
        );
        assert_eq!(store.trail(&samples::call_id(&format!("{run}_call_1")), TrailOf::Changes).await.unwrap(), trail);
    }
    // It goes on behind what was there.
    let run = samples::run_id("run_1");
    let (lease, _) = store.acquire_run(&run, &samples::owner(100), samples::at(500)).await.unwrap();
    let marker = samples::checkpoint("ckpt_behind", wanted[0].0.steps[0].step_id.as_str());
    store.save_checkpoint(&lease, marker).await.unwrap();
    let checkpoints = store.load(&run).await.unwrap().checkpoints;
    assert_eq!(checkpoints.last().unwrap().checkpoint_id, samples::checkpoint_id("ckpt_behind"));
    assert_eq!(checkpoints.len(), wanted[0].0.checkpoints.len() + 1);
    store.close().unwrap();
    let examined = SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap();
    assert_eq!(examined.findings, [""; 0]);
}
