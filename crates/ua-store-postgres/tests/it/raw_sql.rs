//! What the database refuses even to somebody who writes SQL by hand.

#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::Client;
use ua_core::{CallEvent, CallStatus, CorrectedTo, RawReply};
use ua_store::conformance::{Scene, samples};
use ua_store::{AttemptEnd, Blob, LedgerStore as _, RunStore as _, Store};
use ua_store_postgres::PostgresStore;

use crate::cluster::blocking;
use crate::database;

struct Database {
    store: PostgresStore,
    raw: Client,
}

impl Database {
    fn fresh() -> Option<Self> {
        let database = database::Database::fresh()?;
        Some(Self { store: database.store(), raw: database.by_hand() })
    }

    /// What the server says to `sql`.
    fn run(&self, sql: &str) -> Result<(), String> {
        let said = blocking(self.raw.batch_execute(sql));
        said.map_err(|error| error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned()))
    }

    /// Fails unless `sql` is refused with `words`.
    #[track_caller]
    fn refuses(&self, sql: &str, words: &str) {
        let error = self.run(sql).expect_err(sql);
        assert!(error.contains(words), "{sql}: {error}");
    }

    /// The first column of a query.
    fn texts(&self, sql: &str) -> Vec<String> {
        blocking(self.raw.query(sql, &[])).expect(sql).iter().map(|row| row.get(0)).collect()
    }
}

#[tokio::test]
async fn the_trigger_repeats_the_table_of_moves() {
    let Some(database) = Database::fresh() else { return };
    for &from in CallStatus::ALL {
        let scene = Scene::begin(&database.store, &format!("run_{from}")).await;
        let id = format!("call_{from}");
        scene.call_that_is(&id, from).await;
        for &to in CallStatus::ALL {
            let is_legal = CallEvent::ALL.iter().any(|event| !event.is_correction() && from.on(*event) == Ok(to));
            let kind = to.failure_kind().map_or("NULL".to_owned(), |kind| format!("'{kind}'"));
            let unsent = matches!(to, CallStatus::Prepared | CallStatus::Cancelled);
            // A duplicate is the one success without an attempt; all others are given what such a row needs.
            let duplicate = from == CallStatus::Prepared && to == CallStatus::Succeeded;
            let attempt = i32::from(!unsent && !duplicate);
            let twin = if duplicate { format!("'{id}'") } else { "NULL".to_owned() };
            let update = format!(
                "BEGIN; UPDATE tool_calls SET status = '{}', failure_kind = {kind}, attempt = {attempt}, \
                 idempotency_key = coalesce(idempotency_key, '{id}'), doubt = NULL, deduplicated_from = {twin} \
                 WHERE tool_call_id = '{id}'",
                to.column()
            );
            let outcome = database.run(&update);
            database.run("ROLLBACK").unwrap();
            assert_eq!(outcome.is_ok(), is_legal || from == to, "{from} to {to}: {outcome:?}");
            // With a person's word more is legal, and exactly what the table says.
            for &said in CorrectedTo::ALL {
                let by_word = CallEvent::ALL.iter().any(|event| from.on(*event) == Ok(to) && *event == said.event());
                let resolution = match said {
                    CorrectedTo::Happened => "happened",
                    CorrectedTo::NotHappened => "not_happened",
                    CorrectedTo::Skipped => "skipped",
                };
                let word = format!(
                    r#"{{"outcome":"{said}","was":"{from}","reason":"I looked","by":"ada","at":"2026-01-01T00:00:00Z"}}"#
                );
                let corrected = update.replace(
                    "doubt = NULL",
                    &format!("doubt = NULL, resolution = '{resolution}', correction_json = '{word}'"),
                );
                let outcome = database.run(&corrected);
                database.run("ROLLBACK").unwrap();
                let says_it_again = from == to && to == said_as(said) && !unsent;
                assert_eq!(outcome.is_ok(), by_word || says_it_again, "{said}: {from} to {to}: {outcome:?}");
            }
        }
    }
}

fn said_as(said: CorrectedTo) -> CallStatus {
    match said {
        CorrectedTo::Happened => CallStatus::Succeeded,
        CorrectedTo::NotHappened => CallStatus::FailedDefinite,
        CorrectedTo::Skipped => CallStatus::Unknown,
    }
}

#[tokio::test]
async fn a_correction_says_who_and_why_and_stays() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    let call = scene.call_that_is("call_1", CallStatus::Succeeded).await;
    scene.commit(1).await;
    let by_hand = |word: &str| {
        format!(
            "UPDATE tool_calls SET status = 'failed', failure_kind = 'definite', resolution = 'not_happened', \
             correction_json = '{word}'"
        )
    };
    for word in [
        r#"{"outcome":"not_happened","was":"succeeded","reason":" ","by":"ada"}"#,
        r#"{"outcome":"not_happened","was":"succeeded","reason":"I looked"}"#,
        r#"{"outcome":"not_happened","was":"unknown","reason":"I looked","by":"ada"}"#,
        r#"{"outcome":"happened","was":"succeeded","reason":"I looked","by":"ada"}"#,
        "{}",
    ] {
        database.refuses(&by_hand(word), "a correction says who");
    }
    database.refuses("UPDATE tool_calls SET status = 'failed', failure_kind = 'definite'", "does not move that way");
    database.store.correct_call(samples::correct(&call, CorrectedTo::NotHappened, 70)).await.unwrap();
    database.refuses("UPDATE tool_calls SET correction_json = NULL", "stands until another one");
    database.refuses("UPDATE tool_call_events SET correction_json = NULL", "never changes");
    database.refuses("UPDATE tool_calls SET status = 'succeeded', failure_kind = NULL", "does not move that way");
}

#[tokio::test]
async fn an_unsent_success_needs_a_twin() {
    let Some(database) = Database::fresh() else { return };
    Scene::begin(&database.store, "run_1").await.call_that_is("call_1", CallStatus::Prepared).await;
    database.refuses(
        "UPDATE tool_calls SET status = 'succeeded', attempt = 1, idempotency_key = 'k' WHERE tool_call_id = 'call_1'",
        "only by the receipt of another",
    );
}

#[tokio::test]
async fn receipts_events_and_ended_attempts_are_immutable() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    database.refuses("UPDATE tool_receipts SET raw_json = '{}'", "immutable");
    database.refuses("UPDATE tool_receipts SET settlement_json = NULL", "immutable");
    database.refuses("UPDATE tool_receipts SET evidence = 'verified'", "immutable");
    database.refuses("UPDATE tool_call_events SET to_status = 'cancelled'", "never changes");
    database.refuses("UPDATE tool_attempts SET outcome = 'lost'", "ends once");
}

#[tokio::test]
async fn a_request_ends_once_and_what_was_reserved_stays() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    let request = database.store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    let closed = "status = 'actual', closed_at = 'now'";
    database.refuses("UPDATE usage SET price_json = NULL", "at the price it was reserved with");
    database.refuses("UPDATE usage SET estimated_tokens = 1", "charged once");
    database.refuses("UPDATE usage SET status = 'actual'", "check constraint");
    database.refuses(&format!("UPDATE usage SET {closed}"), "check constraint");
    database.refuses("UPDATE usage SET cost_nanos = 5, currency = 'USD'", "check constraint");
    database.refuses(
        "UPDATE usage SET status = 'baseline', network_attempted = false, closed_at = 'now', cost_nanos = 0, currency = 'USD'",
        "check constraint",
    );
    let end = ua_store::RequestEnd::Baseline;
    database.store.close_request(&scene.lease, request, end, samples::at(4)).await.unwrap();
    for change in ["input_tokens = 1", "cost_nanos = 1", "status = 'zero', network_attempted = false"] {
        database.refuses(&format!("UPDATE usage SET {change}"), "charged once");
    }
}

#[tokio::test]
async fn a_missing_meaning_is_filled_in_once() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let end = ua_store::AttemptEnd::Replied { raw: samples::raw(), settlement: None };
    database.store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    database.refuses("UPDATE tool_receipts SET settlement_json = '{}', raw_json = '{}'", "immutable");
    database.run("UPDATE tool_receipts SET settlement_json = '{}'").unwrap();
    database.refuses("UPDATE tool_receipts SET settlement_json = '{\"a\": 1}'", "immutable");
}

#[tokio::test]
async fn plans_keys_contracts_and_counters_stay() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    database.refuses("UPDATE tool_calls SET request_ref = '{}'", "planned");
    database.refuses("UPDATE tool_calls SET side_effect_class = 'read_only'", "planned");
    database.refuses("UPDATE tool_calls SET idempotency_key = 'another'", "keeps its idempotency key");
    database.refuses("UPDATE runs SET run_spec_json = '{}'", "never change");
    database.refuses("UPDATE runs SET lease_epoch = 0", "only rise");
    database.refuses("UPDATE runs SET turn_index = turn_index + 2", "only rise");
    database.refuses("UPDATE runs SET status = 'crashed'", "check constraint");
    scene.commit(1).await;
    ua_store::RunStore::end_run(&database.store, &scene.lease, samples::run_end(ua_core::RunStatus::Failed))
        .await
        .unwrap();
    database.refuses("UPDATE runs SET status = 'running'", "terminal");
}

#[tokio::test]
async fn a_key_is_held_by_one_call() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Running).await;
    let claim = |key: &str| {
        format!(
            "UPDATE tool_calls SET status = 'running', attempt = 1, idempotency_key = '{key}' WHERE tool_call_id = 'call_2'"
        )
    };
    database.refuses(&claim(samples::key("call_1").as_str()), "duplicate key");
    database.run(&claim("another")).unwrap();
}

#[tokio::test]
async fn the_response_names_its_receipt() {
    let Some(database) = Database::fresh() else { return };
    Scene::begin(&database.store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    assert_eq!(database.texts("SELECT response_ref FROM tool_calls"), ["tool_receipts/1"]);
}

#[tokio::test]
async fn a_blob_keeps_its_content_until_it_is_let_go() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let text = "x".repeat(30_000);
    let raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": text}]}) };
    let end = AttemptEnd::Replied { raw, settlement: None };
    database.store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    database.refuses("UPDATE blobs SET content = '\\x00'", "a blob is immutable");
    database.refuses("UPDATE blobs SET size_bytes = 1", "a blob is immutable");
    database.refuses("UPDATE blobs SET content = NULL", "check constraint");
    database.refuses("DELETE FROM blobs", "foreign key");
    database.refuses("UPDATE tool_receipts SET lifted_json = '{}'", "a receipt is immutable");
    let name = ua_core::BlobRef::of("nothing").blob_id;
    database.refuses(&format!("INSERT INTO blob_refs VALUES ('run_1', '{name}')"), "foreign key");
    database.run("UPDATE blobs SET content = NULL, pruned_at = '2026-01-01T00:00:00.000Z'").unwrap();
    database.run("UPDATE blobs SET content = '\\x00', pruned_at = NULL").unwrap();
    // What came back is not what the name says, and that is seen.
    let found = database.store.blob(&ua_core::BlobRef::of(&text)).await.unwrap();
    assert!(matches!(&found, Blob::Corrupt { why } if why.contains("not the 30000 bytes")), "{found:?}");
}

#[tokio::test]
async fn what_a_fork_shares_is_committed_and_never_changes() {
    let Some(database) = Database::fresh() else { return };
    Scene::begin(&database.store, "run_1").await;
    database.store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    let copy = |turn: &str, index: &str| {
        format!(
            "INSERT INTO runs (run_id, created_at, updated_at, status, entrypoint, run_mode, run_spec_json, last_job_prompt, \
             workspace_dir, launch_json, root_run_id, parent_run_id, forked_at_turn, forked_at_seq, turn_index) \
             SELECT 'run_3', created_at, updated_at, status, entrypoint, run_mode, run_spec_json, last_job_prompt, \
             workspace_dir, launch_json, root_run_id, parent_run_id, {turn}, 1, {index} FROM runs WHERE run_id = 'run_2'"
        )
    };
    database.refuses(&copy("1", "1"), "only committed turns of its parent");
    database.refuses(&copy("0", "1"), "without turns of its own");
    database.refuses("UPDATE runs SET forked_at_seq = 9 WHERE run_id = 'run_2'", "what a fork shares never changes");
}

#[tokio::test]
async fn a_deleted_run_leaves_no_row_in_any_table() {
    let Some(database) = Database::fresh() else { return };
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    scene.bring("call_1", CallStatus::Running).await;
    let text = "x".repeat(30_000);
    let raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": text}]}) };
    let end = AttemptEnd::Replied { raw, settlement: Some(samples::settlement(CallStatus::Succeeded)) };
    database.store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    scene.commit(1).await;
    database.store.raise_question(&scene.lease, samples::question("q_1", None)).await.unwrap();
    database.store.insert_answer(samples::answer("q_1", ua_store::Choice::Skip)).await.unwrap();
    let change = samples::new_override("run_1", ua_store::OverrideKind::Budget, "max_turns", serde_json::json!(9));
    database.store.insert_override(change).await.unwrap();
    let names = database.texts(
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'ua' \
         AND table_name NOT IN ('refinery_schema_history', 'meta', 'deleted_runs') ORDER BY 1",
    );
    let filled = |name: &String| !database.texts(&format!("SELECT '' FROM {name} LIMIT 1")).is_empty();
    let before = names.iter().filter(|name| filled(name)).count();
    assert!(before >= 15, "only {before} tables have a row before: {names:?}");
    let deletion =
        ua_store::RunDeletion { run_id: samples::run_id("run_1"), force: true, by: None, at: samples::at(90) };
    database.store.delete_run(&deletion).await.unwrap();
    let left: Vec<&String> = names.iter().filter(|name| filled(name)).collect();
    assert_eq!(left, [""; 0], "a table of the schema is not cleared");
    assert_eq!(database.texts("SELECT run_id FROM deleted_runs"), ["run_1"]);
}
