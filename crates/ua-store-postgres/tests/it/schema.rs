//! What a database has to be before it is written to, and how its rows are found.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::{Client, SimpleQueryMessage};
use ua_store::conformance::{Scene, samples};
use ua_store::{FleetChange, FleetStore as _, RunStore as _, StoreError};
use ua_store_postgres::{PostgresStore, RELATED, migrate};

use crate::cluster::blocking;
use crate::database::Database;

/// Why the database is not opened.
fn refusal(database: &Database) -> String {
    match blocking(PostgresStore::open(&database.direct())) {
        Err(StoreError::Unavailable { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// What is said to a session of a pooler stays with somebody else: the lock for as long as the pooler keeps the connection.
#[test]
fn a_migration_through_a_pooler_is_refused_and_leaves_no_lock() {
    let Some(database) = Database::fresh() else { return };
    let Some(pooled) = database.pooled() else { return };
    let refused = blocking(migrate(&pooled));
    assert!(matches!(refused, Err(StoreError::Unavailable { why, .. }) if why.contains("name the server itself")));
    blocking(migrate(&database.direct())).unwrap();
}

/// A session that has the lock, as one of an earlier version behind a pooler, is named and waited for no longer than that.
#[tokio::test]
async fn who_keeps_the_lock_of_migrations_is_named() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    by_hand.batch_execute("SELECT pg_advisory_lock(1969291264)").await.unwrap();
    let pid: i32 = by_hand.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let config = database.direct();
    let refused = migrate(&config).await.err().unwrap().to_string();
    for word in [format!("PID {pid} of the server"), "idle since 2".to_owned(), format!("pg_terminate_backend({pid})")]
    {
        assert!(refused.contains(&word), "{word}: {refused}");
    }
    by_hand.batch_execute("SELECT pg_advisory_unlock(1969291264)").await.unwrap();
    migrate(&config).await.unwrap();
}

#[tokio::test]
async fn a_database_without_the_schema_is_refused_until_it_is_migrated() {
    let Some(database) = Database::empty() else { return };
    assert!(refusal(&database).contains("`ua db migrate` creates it"));
    // Two at once: one of them does it.
    let (one, other) = (database.direct(), database.direct());
    blocking(async {
        let (one, other) = tokio::join!(migrate(&one), migrate(&other));
        assert_eq!((one.unwrap(), other.unwrap()), (11, 11));
    });
    assert!(database.store().runs(1).await.unwrap().is_empty());
    assert_eq!(blocking(migrate(&database.direct())).unwrap(), 11);
}

#[tokio::test]
async fn a_newer_and_an_older_schema_are_left_as_they_are() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    blocking(by_hand.batch_execute("UPDATE refinery_schema_history SET version = version + 97 WHERE version > 1"))
        .unwrap();
    assert!(refusal(&database).contains("schema 108, newer than this program's"));
    let migrated = blocking(migrate(&database.direct()));
    assert!(matches!(migrated, Err(StoreError::Unavailable { why, .. }) if why.contains("use a newer program")));
    blocking(by_hand.batch_execute("DELETE FROM refinery_schema_history WHERE version > 1")).unwrap();
    assert!(refusal(&database).contains("older than this program's"));
}

/// A setting of the role or the database that switches every trigger off is seen before anything is written.
#[tokio::test]
async fn a_database_whose_triggers_do_not_fire_is_refused() {
    let Some(database) = Database::fresh() else { return };
    let set = |what: &str| {
        let sql = format!("ALTER DATABASE {} {what}", database.name);
        blocking(database.by_hand().batch_execute(&sql)).unwrap();
    };
    set("SET session_replication_role = replica");
    assert!(refusal(&database).contains("session_replication_role"));
    set("SET session_replication_role = local");
    assert!(database.store().runs(1).await.unwrap().is_empty());
    set("RESET session_replication_role");
}

/// Brought up to date by a newer program while it is open: whatever kind of write comes next is refused and says why, and nothing of it is there.
#[tokio::test]
async fn an_open_store_writes_nothing_to_a_schema_that_it_does_not_know() {
    let Some(database) = Database::fresh() else { return };
    let (store, by_hand) = (database.store(), database.by_hand());
    let scene = Scene::begin(&store, "run_1").await;
    // So that the next one is computed from what is known.
    scene.turn(vec![]).await;
    let is_newer = |shift: i32| {
        let sql = format!(
            "UPDATE ua.refinery_schema_history SET version = version + {shift} \
             WHERE version = (SELECT max(version) FROM ua.refinery_schema_history)"
        );
        blocking(by_hand.batch_execute(&sql)).unwrap();
    };
    is_newer(1);
    let refused = |written: Result<(), StoreError>, what: &str| match written {
        Err(StoreError::Unavailable { why, .. }) => assert!(why.contains("newer than this program's"), "{what}: {why}"),
        other => panic!("{what}: {other:?}"),
    };
    let worker = |worker: &str| FleetChange::Drain { worker: worker.to_owned() };
    refused(store.fleet(worker("nobody")).await.map(drop), "the queue");
    let commit = samples::commit("step_of_run_1", 1, "ckpt_1");
    refused(store.commit_turn(&scene.lease, commit.clone()).await.map(drop), "a turn");
    refused(store.acquire_run(scene.run_id(), &samples::owner(7), samples::at(9)).await.map(drop), "a run");
    refused(store.submit_run(samples::new_run("run_2")).await.map(drop), "another run");
    is_newer(-1);
    store.commit_turn(&scene.lease, commit).await.unwrap();
    assert!(matches!(store.fleet(worker("nobody")).await, Err(StoreError::NotFound { .. })));
}

/// Whoever is at work could not write what comes back.
#[tokio::test]
async fn a_schema_is_not_brought_up_to_date_under_a_living_worker() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    let sql = "INSERT INTO ua.workers (worker, place, place_shown, owner_json, version, queues_json, slots, started_at, lease_until, is_draining) \
               VALUES ('ada', '', '/runs on ada', '{}', '1', '[]', 1, '2026-01-01T00:00:00.000Z', '2999-01-01T00:00:00.000Z', false)";
    blocking(by_hand.batch_execute(sql)).unwrap();
    // There is nothing to do, so nobody is in the way.
    blocking(migrate(&database.direct())).unwrap();
    let older =
        "DELETE FROM ua.refinery_schema_history WHERE version = (SELECT max(version) FROM ua.refinery_schema_history)";
    blocking(by_hand.batch_execute(older)).unwrap();
    let refused = blocking(migrate(&database.direct()));
    assert!(
        matches!(&refused, Err(StoreError::Unavailable { why, .. }) if why.contains("ada in /runs on ada counts as alive")),
        "{refused:?}"
    );
    blocking(by_hand.batch_execute("UPDATE ua.workers SET lease_until = '2026-01-01T00:00:00.000Z'")).unwrap();
    // Nobody is in the way now: what is there already cannot be made again.
    let tried = blocking(migrate(&database.direct()));
    assert!(
        !matches!(&tried, Err(StoreError::Unavailable { why, .. }) if why.contains("counts as alive")),
        "{tried:?}"
    );
}

#[tokio::test]
async fn a_database_in_another_encoding_is_refused() {
    let Some(database) = Database::made("TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'") else { return };
    assert!(refusal(&database).contains("encoding UTF8"));
}

/// What the server does for a query, as text.
fn plan(by_hand: &Client, sql: &str) -> String {
    let rows = blocking(by_hand.simple_query(&format!("EXPLAIN {sql}"))).unwrap();
    let line = |message: &SimpleQueryMessage| {
        if let SimpleQueryMessage::Row(row) = message { row.get(0).map(str::to_owned) } else { None }
    };
    rows.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// What is read for a decision about a call, and again in the write that starts it, is found by an index: with tables as large as they
/// become, nothing is found by looking at all rows.
#[tokio::test]
async fn every_query_of_a_decision_uses_an_index() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    blocking(by_hand.batch_execute("SET enable_seqscan = off; SET enable_bitmapscan = off")).unwrap();
    let queries = [
        ("SELECT * FROM tool_calls WHERE tool_call_id = 'x'", "tool_calls_pkey"),
        (
            "SELECT * FROM tool_calls WHERE idempotency_key = 'x' AND status IN ('running', 'unknown', 'succeeded') AND deduplicated_from IS NULL",
            "idx_tool_calls_key",
        ),
        (
            "SELECT 1 FROM tool_calls WHERE root_run_id = 'x' AND effect_kind = 'y' AND tool_call_id <> 'z'",
            "idx_tool_calls_effect",
        ),
        (
            "SELECT * FROM tool_calls WHERE root_run_id = 'x' AND side_effect_scope >= 'y' AND side_effect_scope < 'z' AND attempt > 0 \
             ORDER BY created_at, run_id, turn, ordinal",
            "idx_tool_calls_scope",
        ),
        ("SELECT * FROM runs WHERE root_run_id = 'x' ORDER BY seq", "idx_runs_root"),
        (
            "SELECT * FROM tool_calls WHERE run_id = 'x' AND turn > 1 AND attempt > 0 ORDER BY turn, ordinal",
            "idx_tool_calls_position",
        ),
        ("SELECT * FROM runs WHERE run_id = 'x'", "runs_run_id_key"),
        ("SELECT batches, words FROM run_writes WHERE run_id = 'x'", "run_writes_pkey"),
        ("SELECT * FROM tool_attempts WHERE tool_call_id = 'x' AND attempt = 1", "tool_attempts_pkey"),
        ("SELECT 1 FROM questions WHERE tool_call_id = 'x' AND status <> 'closed'", "idx_questions_one_per_call"),
        (
            "SELECT * FROM tool_receipts WHERE tool_call_id = 'x' ORDER BY receipt_seq DESC LIMIT 1",
            "idx_tool_receipts_call",
        ),
        ("SELECT coalesce(max(seq), 0) FROM messages WHERE run_id = 'x'", "messages_pkey"),
        (
            "SELECT chain FROM tool_call_events WHERE run_id = 'x' AND chain IS NOT NULL AND event_seq < 9 ORDER BY event_seq DESC LIMIT 1",
            "idx_tool_call_events_chain",
        ),
        (
            "SELECT * FROM tool_calls WHERE root_run_id = 'x' AND attempt > 0 AND side_effect_class <> 'read_only' \
             AND tool_call_id IN (SELECT tool_call_id FROM tool_call_events WHERE event_seq > 9) \
             ORDER BY created_at, run_id, turn, ordinal",
            "tool_calls_pkey",
        ),
        ("SELECT tool_call_id FROM tool_call_events WHERE event_seq > 9", "tool_call_events_pkey"),
        ("SELECT * FROM tool_call_events WHERE tool_call_id = 'x' ORDER BY event_seq", "idx_tool_call_events_call"),
        ("SELECT * FROM runs ORDER BY created_at DESC, seq DESC LIMIT 9", "idx_runs_created"),
    ];
    // With values in the places of parameters, the last ones first: $1 is the beginning of $10.
    let filled = RELATED.map(|(sql, index)| {
        let sql = sql.replace("$11", "'x'").replace("$10", "'x'");
        let numbers = ["$12", "$9", "$8"].iter().fold(sql, |sql, place| sql.replace(place, "1"));
        (["$7", "$6", "$5", "$4", "$3", "$2", "$1"].iter().fold(numbers, |sql, place| sql.replace(place, "'x'")), index)
    });
    let related = filled.iter().map(|(sql, index)| (sql.as_str(), *index));
    for (sql, index) in queries.into_iter().chain(related) {
        let steps = plan(&by_hand, sql);
        assert!(steps.contains(index) && !steps.contains("Seq Scan"), "{sql}: {steps}");
    }
}

/// PostgreSQL takes nothing out of JSON that has an escaped U+0000 anywhere in it, as a job, an answer of a tool or a word of a person may: the query
/// fails, and whatever needs it stands still. So no query casts a column as it is.
#[test]
fn no_query_takes_something_out_of_json_that_may_have_nul() {
    let mut casts = 0;
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let path = file.unwrap().path();
        // Its test writes out statements that nobody sends.
        if path.file_name().is_some_and(|name| name == "value.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("::json") {
            casts += 1;
            let line = text[..at].rsplit('\n').next().unwrap();
            let is_cleaned = line.ends_with("')") && line.contains("replace(") && line.contains(r"E'\\\\u0000'");
            assert!(is_cleaned, "{}: {line}", path.display());
        }
    }
    assert!(casts >= 3, "only {casts} casts were found");
}
