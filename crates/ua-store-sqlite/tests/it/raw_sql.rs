//! What the database refuses even to somebody who writes SQL by hand.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;
use ua_core::{CallEvent, CallStatus, CorrectedTo, RawReply};
use ua_store::conformance::{Scene, agree, samples};
use ua_store::{AttemptEnd, Blob, LedgerStore as _, MemStore, RunStore as _, Store};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

struct Database {
    store: SqliteStore,
    raw: Connection,
    _folder: TempDir,
}

impl Database {
    fn fresh() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("runtime_state.db");
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        let raw = Connection::open(&path).unwrap();
        raw.pragma_update(None, "foreign_keys", true).unwrap();
        Self { store, raw, _folder: folder }
    }

    /// Fails unless `sql` is refused with `words`.
    #[track_caller]
    fn refuses(&self, sql: &str, words: &str) {
        let error = self.raw.execute_batch(sql).expect_err(sql).to_string();
        assert!(error.contains(words), "{sql}: {error}");
    }
}

/// Random writes say U+0000 wherever somebody may: no text column of any table has it, which no column of a server could.
#[tokio::test]
async fn no_text_column_holds_nul() {
    let database = Database::fresh();
    agree(&MemStore::new(), &database.store, 7, 250).await;
    let sql = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c \
               WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND c.type = 'TEXT'";
    let mut statement = database.raw.prepare(sql).unwrap();
    let columns = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    let mut cleaned = 0;
    for column in columns {
        let (table, column) = column.unwrap();
        let rows_with = |character: u32| -> i64 {
            let sql = format!("SELECT count(*) FROM \"{table}\" WHERE instr(\"{column}\", char({character})) > 0");
            database.raw.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        assert_eq!(rows_with(0), 0, "{table}.{column}");
        cleaned += u32::from(rows_with(0xfffd) > 0);
    }
    assert!(cleaned >= 6, "only {cleaned} columns have what was said with U+0000");
}

#[tokio::test]
async fn the_trigger_repeats_the_table_of_moves() {
    let database = Database::fresh();
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
                "SAVEPOINT try; UPDATE tool_calls SET status = '{}', failure_kind = {kind}, attempt = {attempt}, \
                 idempotency_key = coalesce(idempotency_key, '{id}'), doubt = NULL, deduplicated_from = {twin} \
                 WHERE tool_call_id = '{id}'",
                to.column()
            );
            let outcome = database.raw.execute_batch(&update);
            database.raw.execute_batch("ROLLBACK TO try; RELEASE try").unwrap();
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
                let outcome = database.raw.execute_batch(&corrected);
                database.raw.execute_batch("ROLLBACK TO try; RELEASE try").unwrap();
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
    let database = Database::fresh();
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
    let database = Database::fresh();
    Scene::begin(&database.store, "run_1").await.call_that_is("call_1", CallStatus::Prepared).await;
    database.refuses(
        "UPDATE tool_calls SET status = 'succeeded', attempt = 1, idempotency_key = 'k' WHERE tool_call_id = 'call_1'",
        "only by the receipt of another",
    );
}

#[tokio::test]
async fn receipts_events_and_ended_attempts_are_immutable() {
    let database = Database::fresh();
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
    let database = Database::fresh();
    let scene = Scene::begin(&database.store, "run_1").await;
    let request = database.store.reserve_request(&scene.lease, samples::reservation(1)).await.unwrap();
    let closed = "status = 'actual', closed_at = 'now'";
    database.refuses("UPDATE usage SET price_json = NULL", "at the price it was reserved with");
    database.refuses("UPDATE usage SET estimated_tokens = 1", "charged once");
    database.refuses("UPDATE usage SET status = 'actual'", "CHECK constraint");
    database.refuses(&format!("UPDATE usage SET {closed}"), "CHECK constraint");
    database.refuses("UPDATE usage SET cost_nanos = 5, currency = 'USD'", "CHECK constraint");
    database.refuses(
        "UPDATE usage SET status = 'baseline', network_attempted = 0, closed_at = 'now', cost_nanos = 0, currency = 'USD'",
        "CHECK constraint",
    );
    let end = ua_store::RequestEnd::Baseline;
    database.store.close_request(&scene.lease, request, end, samples::at(4)).await.unwrap();
    for change in ["input_tokens = 1", "cost_nanos = 1", "status = 'zero', network_attempted = 0"] {
        database.refuses(&format!("UPDATE usage SET {change}"), "charged once");
    }
}

#[tokio::test]
async fn a_missing_meaning_is_filled_in_once() {
    let database = Database::fresh();
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let end = ua_store::AttemptEnd::Replied { raw: samples::raw(), settlement: None };
    database.store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    database.refuses("UPDATE tool_receipts SET settlement_json = '{}', raw_json = '{}'", "immutable");
    database.raw.execute_batch("UPDATE tool_receipts SET settlement_json = '{}'").unwrap();
    database.refuses("UPDATE tool_receipts SET settlement_json = '{\"a\": 1}'", "immutable");
}

#[tokio::test]
async fn plans_keys_contracts_and_counters_stay() {
    let database = Database::fresh();
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Succeeded).await;
    database.refuses("UPDATE tool_calls SET request_ref = '{}'", "planned");
    database.refuses("UPDATE tool_calls SET side_effect_class = 'read_only'", "planned");
    database.refuses("UPDATE tool_calls SET idempotency_key = 'another'", "keeps its idempotency key");
    database.refuses("UPDATE runs SET run_spec_json = '{}'", "never change");
    database.refuses("UPDATE runs SET lease_epoch = 0", "only rise");
    database.refuses("UPDATE runs SET turn_index = turn_index + 2", "only rise");
    database.refuses("UPDATE runs SET status = 'crashed'", "CHECK");
    scene.commit(1).await;
    ua_store::RunStore::end_run(&database.store, &scene.lease, samples::run_end(ua_core::RunStatus::Failed))
        .await
        .unwrap();
    database.refuses("UPDATE runs SET status = 'running'", "terminal");
}

#[tokio::test]
async fn a_key_is_held_by_one_call() {
    let database = Database::fresh();
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_email("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Running).await;
    let claim = |key: &str| {
        format!(
            "UPDATE tool_calls SET status = 'running', attempt = 1, idempotency_key = '{key}' WHERE tool_call_id = 'call_2'"
        )
    };
    database.refuses(&claim(samples::key("call_1").as_str()), "UNIQUE");
    database.raw.execute_batch(&claim("another")).unwrap();
}

#[tokio::test]
async fn the_response_names_its_receipt_and_the_file_is_ours() {
    let database = Database::fresh();
    Scene::begin(&database.store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    let response: String = database.raw.query_row("SELECT response_ref FROM tool_calls", [], |row| row.get(0)).unwrap();
    assert_eq!(response, "tool_receipts/1");
    let pragma = |name: &str| {
        database.raw.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0)).unwrap()
    };
    assert_eq!(pragma("application_id"), rusqlite::types::Value::Integer(0x5541_4A52));
    assert_eq!(pragma("journal_mode"), rusqlite::types::Value::Text("wal".to_owned()));
    let loose: i64 = database
        .raw
        .query_row(
            "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND strict = 0 \
             AND name NOT LIKE 'sqlite%' AND name <> 'refinery_schema_history'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(loose, 0, "every table is STRICT");
}

#[tokio::test]
async fn a_blob_keeps_its_content_until_it_is_let_go() {
    let database = Database::fresh();
    let scene = Scene::begin(&database.store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let text = "x".repeat(30_000);
    let raw = RawReply::ToolResult { result: serde_json::json!({"content": [{"type": "text", "text": text}]}) };
    let end = AttemptEnd::Replied { raw, settlement: None };
    database.store.settle_attempt(&scene.lease, samples::ended("call_1", 1, end)).await.unwrap();
    database.refuses("UPDATE blobs SET content = x'00'", "a blob is immutable");
    database.refuses("UPDATE blobs SET size_bytes = 1", "a blob is immutable");
    database.refuses("UPDATE blobs SET content = NULL", "CHECK");
    database.refuses("DELETE FROM blobs", "FOREIGN KEY");
    database.refuses("UPDATE tool_receipts SET lifted_json = '{}'", "a receipt is immutable");
    let name = ua_core::BlobRef::of("nothing").blob_id;
    database.refuses(&format!("INSERT INTO blob_refs VALUES ('run_1', '{name}')"), "FOREIGN KEY");
    database.raw.execute_batch("UPDATE blobs SET content = NULL, pruned_at = '2026-01-01T00:00:00.000Z'").unwrap();
    database.raw.execute_batch("UPDATE blobs SET content = x'00', pruned_at = NULL").unwrap();
    // What came back is not what the name says, and that is seen.
    let found = database.store.blob(&ua_core::BlobRef::of(&text)).await.unwrap();
    assert!(matches!(&found, Blob::Corrupt { why } if why.contains("not the 30000 bytes")), "{found:?}");
}

#[tokio::test]
async fn what_a_fork_shares_is_committed_and_never_changes() {
    let database = Database::fresh();
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

/// Of a run and a number there is one row, and it lies where these say.
#[tokio::test]
async fn a_row_lies_with_its_run_at_its_number() {
    let database = Database::fresh();
    for run in ["run_1", "run_2"] {
        let scene = Scene::begin(&database.store, run).await;
        scene.turn(vec![samples::planned_email(&format!("call_of_{run}"), 1, 1)]).await;
    }
    let first = |run: &str| format!("(SELECT seq << 28 FROM runs WHERE run_id = '{run}')");
    for (table, number, others) in [
        ("messages", "seq", "turn, created_at, role, origin, message_json"),
        ("turns", "turn", "step_id, request_sha256, stop_reason, model, recorded_at, committed_at, lease_epoch"),
        (
            "usage",
            "request_id",
            "turn, request_sha256, provider, model, estimator, estimated_tokens, reserved_output_tokens, status, reserved_at, closed_at",
        ),
    ] {
        database.raw.execute_batch("UPDATE turns SET committed_at = recorded_at").unwrap();
        let copy = |place: &str, count: u32| {
            format!(
                "INSERT INTO {table} (place, run_id, {number}, {others}) SELECT {place}, run_id, {count}, {others} \
                 FROM {table} WHERE run_id = 'run_1' AND {number} = 1"
            )
        };
        let (own, other) = (first("run_1"), first("run_2"));
        database.refuses(&copy(&format!("{own} + 9"), 8), "CHECK");
        database.refuses(&copy("NULL", 8), "CHECK");
        database.refuses(&copy(&format!("{other} + 9"), 9), "FOREIGN KEY");
        database.raw.execute_batch(&copy(&format!("{own} + 9"), 9)).unwrap();
        let again = if table == "turns" { "begins behind the newest" } else { "UNIQUE" };
        database.refuses(&copy(&format!("{own} + 9"), 9), again);
    }
}

#[tokio::test]
async fn a_deleted_run_leaves_no_row_in_any_table() {
    let database = Database::fresh();
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
    let tables = |sql: &str| {
        let mut statement = database.raw.prepare(sql).unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        names.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let names = tables(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
         AND name NOT IN ('refinery_schema_history', 'meta', 'deleted_runs') ORDER BY name",
    );
    let filled = |name: &String| {
        let sql = format!("SELECT count(*) FROM {name}");
        database.raw.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap() > 0
    };
    let before = names.iter().filter(|name| filled(name)).count();
    assert!(before >= 15, "only {before} tables have a row before: {names:?}");
    let deletion =
        ua_store::RunDeletion { run_id: samples::run_id("run_1"), force: true, by: None, at: samples::at(90) };
    database.store.delete_run(&deletion).await.unwrap();
    let left: Vec<&String> = names.iter().filter(|name| filled(name)).collect();
    assert_eq!(left, [""; 0], "a table of the schema is not cleared");
    assert_eq!(tables("SELECT run_id FROM deleted_runs"), ["run_1"]);
}

/// SQLite makes a table of its own of a list of three or more values, for each statement anew. What a turn writes has none of these in its checks
/// and triggers.
#[test]
fn checks_and_triggers_make_no_tables_of_their_own() {
    let database = Database::fresh();
    let raw = &database.raw;
    let columns = |table: &str| -> Vec<(String, bool)> {
        let mut names = raw.prepare("SELECT name, pk > 0 FROM pragma_table_info(?1)").unwrap();
        names.query_map([table], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let lies_by_its_key = |table: &str| -> bool {
        raw.query_row("SELECT wr FROM pragma_table_list WHERE name = ?1", [table], |row| row.get(0)).unwrap()
    };
    let temporary_tables = |sql: &str| {
        let mut program = raw.prepare(&format!("EXPLAIN {sql}")).unwrap();
        let opcodes = program.query_map([], |row| row.get::<_, String>(1)).unwrap();
        opcodes.filter(|opcode| opcode.as_deref() == Ok("OpenEphemeral")).count()
    };
    let list = "CREATE TEMP TABLE listed (a TEXT CHECK (a IN ('x', 'y', 'z')))";
    raw.execute_batch(list).unwrap();
    assert_eq!(temporary_tables("INSERT INTO listed VALUES ('x')"), 1, "what the test looks for");
    let tables = [
        "runs",
        "run_steps",
        "turns",
        "messages",
        "tool_calls",
        "tool_attempts",
        "tool_receipts",
        "tool_call_events",
        "checkpoints",
        "usage",
    ];
    for table in tables {
        let all = columns(table);
        let values = vec!["NULL"; all.len()].join(", ");
        assert_eq!(temporary_tables(&format!("INSERT INTO {table} VALUES ({values})")), 0, "an insert into {table}");
        // What lies by its key is found by that, and keeps it.
        let key: Vec<String> = if lies_by_its_key(table) {
            all.iter().filter(|(_, is_key)| *is_key).map(|(name, _)| format!("{name} = 1")).collect()
        } else {
            vec!["rowid = 1".to_owned()]
        };
        for (column, is_key) in all {
            if is_key && key[0] != "rowid = 1" {
                continue;
            }
            let update = format!("UPDATE {table} SET {column} = {column} WHERE {}", key.join(" AND "));
            // A word of a person that corrects a call is none of a turn's writes.
            let is_rare = table == "tool_calls" && column == "correction_json";
            assert!(is_rare || temporary_tables(&update) == 0, "{update}");
        }
    }
}
