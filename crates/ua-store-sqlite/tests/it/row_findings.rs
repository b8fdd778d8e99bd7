//! Rows that no write of this program leaves are named, column by column (threat S19).

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;
use ua_core::CallStatus;
use ua_store::RunStore as _;
use ua_store::conformance::{Scene, samples};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// Columns in which one value of their kind is as good as another: nothing else that is stored says what has to stand there. What
/// `docs/security.md` says nothing can vouch for (S19).
const VOUCHED_FOR_BY_NOTHING: &[&str] = &[
    "meta.value",
    "refinery_schema_history.applied_on",
    "answers.applied_at",
    "checkpoints.state_snapshot_json",
    "checkpoints.cursor_json",
    "checkpoints.created_at",
    "messages.created_at",
    "messages.message_json",
    "questions.text",
    "questions.detail_json",
    "questions.created_at",
    "questions.kind",
    "run_steps.phase",
    "run_steps.created_at",
    "run_steps.updated_at",
    "runs.last_job_prompt",
    "runs.workspace_dir",
    "runs.entrypoint",
    "runs.job_path",
    "runs.lineage_mark",
    "runs.run_mode",
    "runs.created_at",
    "runs.updated_at",
    "tool_attempts.server_generation",
    "tool_attempts.started_at",
    "tool_attempts.ended_at",
    "tool_attempts.detail",
    "tool_calls.created_at",
    "tool_calls.updated_at",
    "tool_calls.tool_use_id",
    "tool_calls.raw_tool_name",
    "tool_calls.tool_name",
    "tool_calls.tool_server",
    "tool_calls.idempotency_key",
    "tool_calls.side_effect_scope",
    "tool_calls.error_code",
    "tool_calls.error_detail",
    "tool_calls.external_correlation_id",
    "tool_calls.request_ref",
    "tool_receipts.received_at",
    "tool_receipts.raw_json",
    "turns.model",
    "turns.response_id",
    "turns.recorded_at",
    "turns.committed_at",
    "usage.provider",
    "usage.model",
    "usage.estimator",
    "usage.reserved_at",
    "usage.closed_at",
    "usage.response_id",
    "usage.continued_from",
];

/// Every text column of every table that has rows: a word in it that no column of this program can have is named, unless nothing says what has
/// to stand there.
#[tokio::test]
async fn s19_a_value_that_no_write_leaves_is_named_in_every_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let scene = Scene::begin(&store, "run_a").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1), samples::planned_call("call_2", 1, 2)]).await;
    scene.bring("call_1", CallStatus::Succeeded).await;
    store.raise_question(&scene.lease, samples::question("q_1", Some("call_2"))).await.unwrap();
    store.insert_answer(samples::answer("q_1", ua_store::Choice::Execute)).await.unwrap();
    store.close().unwrap();
    let findings = async || SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap().findings;
    assert_eq!(findings().await, [""; 0]);

    let raw = || {
        let raw = Connection::open(&path).unwrap();
        let unchecked = "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA synchronous = 0";
        raw.execute_batch(unchecked).unwrap();
        raw
    };
    let list = |sql: &str| -> Vec<String> {
        raw().prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let triggers = list("SELECT sql FROM sqlite_schema WHERE type = 'trigger'");
    let names = list("SELECT name FROM sqlite_schema WHERE type = 'trigger'");
    let tables = list("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    let put = |table: &str, column: &str, value: &Value, row: i64| {
        let raw = raw();
        // One transaction: each of its own would be a wait for the disk.
        raw.execute_batch("BEGIN").unwrap();
        for name in &names {
            raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        let sql = format!("UPDATE {table} SET {column} = ?1 WHERE rowid = ?2");
        let done = raw.execute(&sql, rusqlite::params![value, row]);
        for sql in &triggers {
            raw.execute_batch(sql).unwrap();
        }
        raw.execute_batch("COMMIT").unwrap();
        done
    };
    let (mut missed, mut noticed) = (BTreeSet::new(), 0);
    for table in tables {
        let columns = list(&format!(
            "SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0 AND type = 'TEXT' ORDER BY cid"
        ));
        for column in columns {
            let read = raw().query_row(
                &format!("SELECT rowid, {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1"),
                [],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Value>(1)?)),
            );
            // One without rows, and one without numbers for them.
            let Ok((row, before)) = read else { continue };
            if put(&table, &column, &Value::Text("no such word, 0".to_owned()), row).is_err() {
                continue;
            }
            if findings().await.is_empty() {
                missed.insert(format!("{table}.{column}"));
            } else {
                noticed += 1;
            }
            put(&table, &column, &before, row).unwrap();
        }
    }
    assert_eq!(findings().await, [""; 0], "each is as it was");
    let known: BTreeSet<String> = VOUCHED_FOR_BY_NOTHING.iter().map(|column| (*column).to_owned()).collect();
    let more: Vec<_> = missed.difference(&known).collect();
    assert!(more.is_empty() && noticed > 30, "{noticed} noticed, and not {more:?}");
}

/// What is a word of its column, and not the one that the rest of the row says.
#[tokio::test]
async fn s19_a_column_that_says_other_than_its_policy_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let scene = Scene::begin(&store, "run_a").await;
    scene.turn(vec![samples::planned_email("call_1", 1, 1)]).await;
    scene.bring("call_1", CallStatus::Succeeded).await;
    store.close().unwrap();
    let plan: String = Connection::open(&path)
        .unwrap()
        .query_row("SELECT sql FROM sqlite_schema WHERE name = 'tool_calls_plan_is_immutable'", [], |row| row.get(0))
        .unwrap();
    for (sql, named) in [
        ("UPDATE tool_calls SET side_effect_class = 'read_only'", "side_effect_class is not"),
        ("UPDATE tool_calls SET replay_policy = 'redo'", "replay_policy is not"),
        ("UPDATE tool_calls SET effect_kind = 'other.kind'", "effect_kind is not"),
        ("UPDATE tool_calls SET policy_rule_id = 'other'", "policy_rule_id is not"),
        ("UPDATE tool_calls SET response_ref = NULL", "response_ref is not"),
        ("UPDATE tool_calls SET lease_epoch = 0", "its epoch is older"),
        ("UPDATE tool_call_events SET run_id = 'run_b'", "it is filed under another run"),
        ("UPDATE messages SET role = CASE role WHEN 'user' THEN 'assistant' ELSE 'user' END", "its role or origin"),
        ("UPDATE refinery_schema_history SET checksum = '1' WHERE version = 3", "refinery_schema_history is not"),
    ] {
        let copy = folder.path().join("copy.db");
        std::fs::remove_file(&copy).ok();
        std::fs::copy(&path, &copy).unwrap();
        let raw = Connection::open(&copy).unwrap();
        raw.execute_batch(&format!(
            "DROP TRIGGER tool_calls_plan_is_immutable; DROP TRIGGER tool_call_events_are_immutable; {sql}; {plan}"
        ))
        .unwrap();
        drop(raw);
        let findings = SqliteStore::open_read_only(&copy).unwrap().examine().await.unwrap().findings;
        assert!(findings.iter().any(|finding| finding.contains(named)), "{sql}: {findings:?}");
    }
}

/// Rows that speak of others, and say what those do not bear out: each value is one that stands somewhere in the same column, or is possible there.
#[tokio::test]
async fn s19_a_row_that_points_to_another_runs_rows_or_contradicts_its_own_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    for (run, calls) in [("run_a", ["call_1", "call_2"]), ("run_b", ["call_3", "call_4"])] {
        let scene = Scene::begin(&store, run).await;
        scene.turn(vec![samples::planned_email(calls[0], 1, 1), samples::planned_call(calls[1], 1, 2)]).await;
        scene.bring(calls[0], CallStatus::Succeeded).await;
        let marker = samples::checkpoint(&format!("ckpt_of_{run}"), &scene.step);
        store.save_checkpoint(&scene.lease, marker).await.unwrap();
    }
    store.close().unwrap();
    let examine = async |path: &Path| SqliteStore::open_read_only(path).unwrap().examine().await.unwrap();
    assert_eq!(examine(&path).await.findings, [""; 0]);
    let raw = Connection::open(&path).unwrap();
    let of = |kind: &str, column: &str| -> Vec<String> {
        let sql = format!("SELECT {column} FROM sqlite_schema WHERE type = '{kind}'");
        raw.prepare(&sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let (names, triggers) = (of("trigger", "name"), of("trigger", "sql"));
    let call = "WHERE tool_call_id = 'call_1'";
    for (edit, named) in [
        ("UPDATE runs SET current_step_id = (SELECT step_id FROM run_steps s WHERE s.run_id <> runs.run_id)".to_owned(), "its current step"),
        ("UPDATE runs SET current_step_id = NULL WHERE run_id = 'run_a'".to_owned(), "its current step"),
        ("UPDATE runs SET last_checkpoint_id = (SELECT checkpoint_id FROM checkpoints k WHERE k.run_id <> runs.run_id)".to_owned(), "its last checkpoint"),
        ("UPDATE runs SET last_checkpoint_id = NULL WHERE last_checkpoint_id IS NOT NULL".to_owned(), "its last checkpoint"),
        ("UPDATE runs SET forked_at_turn = 1, forked_at_seq = 1 WHERE run_id = 'run_a'".to_owned(), "shares turns of a parent"),
        ("UPDATE runs SET parent_run_id = 'run_b', root_run_id = 'run_b' WHERE run_id = 'run_a'".to_owned(), "neither a fork nor at work"),
        ("UPDATE runs SET parent_run_id = 'run_a' WHERE run_id = 'run_a'".to_owned(), "its parent was made after it"),
        ("UPDATE runs SET parent_run_id = 'run_b' WHERE run_id = 'run_a'".to_owned(), "its parent was made after it"),
        ("UPDATE runs SET task_call_id = 'call_3' WHERE run_id = 'run_a'".to_owned(), "none of its parent"),
        ("UPDATE runs SET root_run_id = 'run_b' WHERE run_id = 'run_a'".to_owned(), "another tree than its parent"),
        ("UPDATE runs SET cancel_reason = 'enough' WHERE run_id = 'run_a'".to_owned(), "nobody asked for that"),
        (format!("UPDATE tool_calls SET step_id = (SELECT step_id FROM run_steps WHERE run_id = 'run_b') {call}"), "its step is none"),
        (format!("UPDATE tool_calls SET root_run_id = 'run_b' {call}"), "another tree than its run"),
        (format!("UPDATE tool_calls SET deduplicated_from = 'call_3', attempt = 0 {call}"), "whose receipt answers it"),
        (
            format!(
                "UPDATE tool_calls SET correction_json = json_object('outcome', 'happened', 'was', 'unknown', 'reason', 'seen', 'by', 'ada', \
                 'at', updated_at, 'of', 'call_3') {call}"
            ),
            "whose record it follows",
        ),
        (format!("UPDATE tool_calls SET resolution = 'happened' {call}"), "no receipt or correction"),
        (format!("UPDATE tool_calls SET resolution = 'deduplicated' {call}"), "how it was settled"),
        (format!("UPDATE tool_calls SET resolution = 'refused' {call}"), "how it was settled"),
        (format!("UPDATE tool_calls SET resolution = 'not_happened' {call}"), "how it was settled"),
        (format!("UPDATE tool_calls SET doubt = 1 {call}"), "is said to be in doubt"),
        ("UPDATE checkpoints SET step_id = (SELECT step_id FROM run_steps s WHERE s.run_id <> checkpoints.run_id)".to_owned(), "its step is none"),
        ("UPDATE tool_receipts SET evidence = 'verified'".to_owned(), "vouched for by a look"),
    ] {
        let copy = folder.path().join("copy.db");
        for left in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            std::fs::remove_file(folder.path().join(left)).ok();
        }
        std::fs::copy(&path, &copy).unwrap();
        let raw = Connection::open(&copy).unwrap();
        raw.execute_batch("PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1").unwrap();
        for name in &names {
            raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
        }
        let changed = raw.execute(&edit, []).unwrap();
        for sql in &triggers {
            raw.execute_batch(sql).unwrap();
        }
        drop(raw);
        let findings = examine(&copy).await.findings;
        assert!(changed > 0, "{edit}");
        assert!(findings.iter().any(|finding| finding.contains(named)), "{edit}: {findings:?}");
    }
}

/// Columns in which the value of another row is believed, beside those of [`VOUCHED_FOR_BY_NOTHING`]: `docs/security.md` (S19) has them, too.
const VALUES_OF_OTHERS: &[&str] = &[
    "messages.turn",
    "run_steps.fingerprint_json",
    "runs.held_from",
    "runs.owner_json",
    "tool_attempts.destination_json",
    "tool_calls.file_digests_json",
    "tool_calls.tool_digest",
    "tool_calls.tool_namespace",
    "tool_receipts.settlement_json",
    "turns.usage_json",
];

/// Every column of every table that has rows: what stands there in another row, or nothing, is named, unless nothing says what has to stand there.
#[tokio::test]
async fn s19_the_value_of_another_row_is_named_in_every_column_or_nothing_can_vouch_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    for (run, calls, question) in [("run_a", ["call_1", "call_2"], "q_1"), ("run_b", ["call_3", "call_4"], "q_2")] {
        let scene = Scene::begin(&store, run).await;
        scene.turn(vec![samples::planned_email(calls[0], 1, 1), samples::planned_call(calls[1], 1, 2)]).await;
        scene.bring(calls[0], CallStatus::Succeeded).await;
        let marker = samples::checkpoint(&format!("ckpt_of_{run}"), &scene.step);
        store.save_checkpoint(&scene.lease, marker).await.unwrap();
        store.raise_question(&scene.lease, samples::question(question, Some(calls[1]))).await.unwrap();
        store.insert_answer(samples::answer(question, ua_store::Choice::Execute)).await.unwrap();
    }
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    let list = |sql: &str| -> Vec<String> {
        raw.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let triggers = list("SELECT sql FROM sqlite_schema WHERE type = 'trigger'");
    let names = list("SELECT name FROM sqlite_schema WHERE type = 'trigger'");
    let copy = folder.path().join("copy.db");
    let (mut missed, mut noticed) = (BTreeSet::new(), 0);
    for table in list("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'") {
        for column in list(&format!("SELECT name FROM pragma_table_xinfo('{table}') WHERE hidden = 0 ORDER BY cid")) {
            let pair = format!(
                "SELECT a.{column}, b.{column} FROM {table} a, {table} b WHERE a.{column} IS NOT b.{column} AND a.{column} IS NOT NULL LIMIT 1"
            );
            let alone = format!("SELECT {column}, NULL FROM {table} WHERE {column} IS NOT NULL LIMIT 1");
            let read =
                |sql: &str| raw.query_row(sql, [], |row| Ok((row.get::<_, Value>(0)?, row.get::<_, Value>(1)?))).ok();
            // One without rows, or in which nothing stands.
            let Some((before, other)) = read(&pair).or_else(|| read(&alone)) else { continue };
            for left in ["copy.db", "copy.db-wal", "copy.db-shm"] {
                std::fs::remove_file(folder.path().join(left)).ok();
            }
            std::fs::copy(&path, &copy).unwrap();
            let edited = Connection::open(&copy).unwrap();
            let unchecked =
                "PRAGMA ignore_check_constraints = 1; PRAGMA foreign_keys = 0; PRAGMA synchronous = 0; BEGIN";
            edited.execute_batch(unchecked).unwrap();
            for name in &names {
                edited.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
            }
            let done = edited.execute(
                &format!("UPDATE {table} SET {column} = ?1 WHERE {column} IS ?2"),
                rusqlite::params![other, before],
            );
            for sql in &triggers {
                edited.execute_batch(sql).unwrap();
            }
            edited.execute_batch("COMMIT").unwrap();
            drop(edited);
            // What the tables themselves refuse, nobody puts there.
            if done.is_err() {
                continue;
            }
            let examined = SqliteStore::open_read_only(&copy).unwrap().examine().await;
            if examined.is_ok_and(|examined| examined.findings.is_empty()) {
                missed.insert(format!("{table}.{column}"));
            } else {
                noticed += 1;
            }
        }
    }
    let known = VOUCHED_FOR_BY_NOTHING.iter().chain(VALUES_OF_OTHERS).map(|column| (*column).to_owned());
    let known: BTreeSet<String> = known.collect();
    let more: Vec<_> = missed.difference(&known).collect();
    assert!(more.is_empty() && noticed > 40, "{noticed} noticed, and not {more:?}");
    // The page names each of these tables, and says of it which columns those are.
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md")).unwrap();
    let (_, table) = page.split_once("columns that nothing can vouch for |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    for column in missed {
        let (of, name) = column.split_once('.').unwrap();
        let row =
            table.lines().find(|line| line.split('|').nth(1).is_some_and(|tables| tables.contains(&format!("`{of}`"))));
        assert!(
            row.is_some() || of == "refinery_schema_history" || of == "answers",
            "{of} ({name}) is not in the table"
        );
    }
}

/// Edits a copy of a database with everything switched off that would keep somebody from it, and says how many rows that changed.
#[expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]
fn edit_copy(path: &Path, copy: &Path, edit: &str) -> usize {
    for left in ["-wal", "-shm", ""] {
        std::fs::remove_file(format!("{}{left}", copy.display())).ok();
    }
    std::fs::copy(path, copy).unwrap();
    let raw = Connection::open(copy).unwrap();
    let of_triggers = |column: &str| -> Vec<String> {
        let sql = format!("SELECT {column} FROM sqlite_schema WHERE type = 'trigger'");
        raw.prepare(&sql).unwrap().query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let (names, triggers) = (of_triggers("name"), of_triggers("sql"));
    raw.execute_batch("PRAGMA foreign_keys = 0; PRAGMA ignore_check_constraints = 1; PRAGMA synchronous = 0; BEGIN")
        .unwrap();
    for name in &names {
        raw.execute_batch(&format!("DROP TRIGGER {name}")).unwrap();
    }
    let changed = raw.execute(edit, []).unwrap();
    for sql in &triggers {
        raw.execute_batch(sql).unwrap();
    }
    raw.execute_batch("COMMIT").unwrap();
    changed
}

/// A run that has ended, in whose tree nothing is open, is left to a check of everything.
#[tokio::test]
async fn a_check_for_a_job_reads_each_row_of_what_is_not_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let runs = [("over", CallStatus::Succeeded), ("open", CallStatus::Succeeded), ("doubtful", CallStatus::Unknown)];
    for (run, status) in runs {
        let scene = Scene::begin(&store, run).await;
        let call = format!("call_of_{run}");
        scene.call_that_is(&call, status).await;
        let marker = samples::checkpoint(&format!("ckpt_of_{run}"), &scene.step);
        store.save_checkpoint(&scene.lease, marker).await.unwrap();
        let question = format!("q_of_{run}");
        store.raise_question(&scene.lease, samples::question(&question, Some(&call))).await.unwrap();
        store.insert_answer(samples::answer(&question, ua_store::Choice::Execute)).await.unwrap();
    }
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute("UPDATE runs SET status = 'succeeded' WHERE run_id IN ('over', 'doubtful')", []).unwrap();
    drop(raw);
    let copy = folder.path().join("copy.db");
    let found = async || {
        let store = SqliteStore::open_read_only(&copy).unwrap();
        [store.examine().await.unwrap().findings, store.examine_unfinished().await.unwrap().findings]
    };
    edit_copy(&path, &copy, "UPDATE meta SET value = value");
    assert_eq!(found().await, [[""; 0], [""; 0]]);
    let of_call = "tool_call_id IN (SELECT tool_call_id FROM tool_calls WHERE run_id = ";
    let mut looked = 0;
    for (run, is_over) in [("over", true), ("open", false), ("doubtful", false)] {
        for edit in [
            format!(
                "UPDATE messages SET role = CASE role WHEN 'user' THEN 'assistant' ELSE 'user' END WHERE run_id = '{run}'"
            ),
            format!("UPDATE run_steps SET status = 'odd' WHERE run_id = '{run}'"),
            format!("UPDATE run_writes SET words = -1 WHERE run_id = '{run}'"),
            format!("UPDATE turns SET turn = 7 WHERE run_id = '{run}'"),
            format!("UPDATE usage SET status = 'odd' WHERE run_id = '{run}'"),
            format!("UPDATE checkpoints SET checkpoint_type = 'odd' WHERE run_id = '{run}'"),
            format!("UPDATE questions SET status = 'odd' WHERE run_id = '{run}'"),
            format!("UPDATE answers SET choice = 'odd' WHERE question_id = 'q_of_{run}'"),
            format!("UPDATE tool_calls SET policy_rule_id = 'odd' WHERE run_id = '{run}'"),
            format!("UPDATE tool_attempts SET outcome = 'odd' WHERE {of_call}'{run}')"),
            format!("UPDATE tool_receipts SET evidence = 'odd' WHERE {of_call}'{run}')"),
        ] {
            // A call of which nobody knows has no receipt.
            if edit_copy(&path, &copy, &edit) == 0 {
                continue;
            }
            let [all, unfinished] = found().await;
            // The digest of an answer is looked at wherever it is.
            let is_digest = edit.contains(" answers ");
            assert!(!all.is_empty(), "{edit}");
            assert_eq!(unfinished.is_empty(), is_over && !is_digest, "{edit}: {unfinished:?}");
            looked += 1;
        }
    }
    assert_eq!(looked, 32);
}

/// What is no check SQLite finds by itself: a value of another type, and one that may not be missing.
#[tokio::test]
async fn s19_a_value_of_another_type_and_one_that_is_missing_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    Scene::begin(&store, "run_a").await;
    store.close().unwrap();
    for (as_made, without, edit, named) in [
        (") STRICT, ", ") ", "UPDATE run_writes SET words = 'many'", "run_writes.words"),
        ("words   INTEGER NOT NULL", "words   INTEGER", "UPDATE run_writes SET words = NULL", "run_writes.words"),
    ] {
        let raw = || {
            let raw = Connection::open(&path).unwrap();
            raw.execute_batch("PRAGMA writable_schema = 1").unwrap();
            raw
        };
        let text: String =
            raw().query_row("SELECT sql FROM sqlite_schema WHERE name = 'run_writes'", [], |row| row.get(0)).unwrap();
        let say =
            |text: &str| raw().execute("UPDATE sqlite_schema SET sql = ?1 WHERE name = 'run_writes'", [text]).unwrap();
        let looser = text.replacen(as_made, without, 1);
        assert_ne!(looser, text);
        say(&looser);
        assert_eq!(Connection::open(&path).unwrap().execute(edit, []).unwrap(), 1);
        say(&text);
        let findings = SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap().findings;
        assert!(findings.len() == 1 && findings[0].contains(named), "{edit}: {findings:?}");
        say(&looser);
        Connection::open(&path).unwrap().execute("UPDATE run_writes SET words = 0", []).unwrap();
        say(&text);
    }
}
