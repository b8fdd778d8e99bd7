//! The history of a run is chained: whatever is changed in it afterwards is named (threat S19).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;
use ua_core::{CallStatus, CorrectedTo};
use ua_store::conformance::{Scene, samples};
use ua_store::{LedgerStore as _, RunStore as _};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

struct Database {
    path: PathBuf,
    _folder: TempDir,
}

impl Database {
    /// Two runs with calls in several states.
    async fn with_history() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Self { path: folder.path().join("runtime_state.db"), _folder: folder };
        for run in ["run_a", "run_b"] {
            let store = SqliteStore::open(SqliteConfig::new(&database.path)).unwrap();
            let scene = Scene::begin(&store, run).await;
            let [first, second] = [1, 2].map(|ordinal| format!("{run}_{ordinal}"));
            scene.turn(vec![samples::planned_call(&first, 1, 1)]).await;
            scene.bring(&first, CallStatus::Succeeded).await;
            scene.commit(1).await;
            scene.turn(vec![samples::planned_call(&second, 2, 1)]).await;
            scene.bring(&second, CallStatus::Unknown).await;
            store.close().unwrap();
        }
        database
    }

    /// Changes the file as somebody would who wants to: the trigger goes first, and comes back.
    fn tamper(&self, sql: &str) {
        let raw = Connection::open(&self.path).unwrap();
        let trigger: String = raw
            .query_row("SELECT sql FROM sqlite_schema WHERE name = 'tool_call_events_are_immutable'", [], |row| {
                row.get(0)
            })
            .unwrap();
        raw.execute_batch("DROP TRIGGER tool_call_events_are_immutable").unwrap();
        raw.execute_batch(sql).unwrap();
        raw.execute_batch(&trigger).unwrap();
    }

    async fn findings(&self) -> Vec<String> {
        SqliteStore::open_read_only(&self.path).unwrap().examine().await.unwrap().findings
    }
}

#[tokio::test]
async fn s19_every_event_is_linked_in_the_transaction_that_made_it() {
    let database = Database::with_history().await;
    let raw = Connection::open(&database.path).unwrap();
    let count = |sql: &str| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM tool_call_events WHERE chain IS NULL OR run_id IS NULL"), 0);
    let events = count("SELECT count(*) FROM tool_call_events");
    assert!(events >= 10, "{events}");
    assert_eq!(count("SELECT count(DISTINCT chain) FROM tool_call_events"), events);
    assert_eq!(database.findings().await, [""; 0]);
    // A copy has the same chain.
    let copy = database.path.with_file_name("copy.db");
    ua_store_sqlite::backup(&database.path, &copy).unwrap();
    let of_copy = SqliteStore::open_read_only(&copy).unwrap().examine().await.unwrap().findings;
    assert!(of_copy.iter().all(|finding| !finding.contains("event")), "{of_copy:?}");
}

#[tokio::test]
async fn s19_whatever_is_changed_in_the_history_is_named() {
    let of = |call: &str, place: &str| {
        format!("(SELECT {place}(event_seq) FROM tool_call_events WHERE tool_call_id = '{call}')")
    };
    let (first, second) = (of("run_a_1", "min"), of("run_a_1", "min") + " + 1");
    for (sql, named) in [
        (format!("UPDATE tool_call_events SET at = '2001-01-01T00:00:00Z' WHERE event_seq = {second}"), "call run_a_1, run run_a, is not what"),
        (format!("UPDATE tool_call_events SET lease_epoch = 9 WHERE event_seq = {first}"), "call run_a_1, run run_a, is not what"),
        (format!("UPDATE tool_call_events SET from_status = 'x' WHERE event_seq = {first}"), "call run_a_1, run run_a, is not what"),
        (format!("DELETE FROM tool_call_events WHERE event_seq = {second}"), "call run_a_1, run run_a, is not what"),
        (
            format!("UPDATE tool_call_events SET tool_call_id = 'run_a_2' WHERE event_seq = {second}"),
            "call run_a_2, run run_a, is not what",
        ),
        (
            // The two change places.
            format!(
                "UPDATE tool_call_events SET event_seq = -1 WHERE event_seq = {second};
                 UPDATE tool_call_events SET event_seq = event_seq + 1 WHERE event_seq = {first_kept};
                 UPDATE tool_call_events SET event_seq = {moved} WHERE event_seq = -1",
                first_kept = "(SELECT min(event_seq) FROM tool_call_events WHERE tool_call_id = 'run_a_1' AND event_seq > 0)",
                moved = "(SELECT min(event_seq) - 1 FROM tool_call_events WHERE tool_call_id = 'run_a_1' AND event_seq > 0)",
            ),
            "call run_a_1, run run_a, is not what",
        ),
        // The newest of its run: no event misses it, its call does.
        (format!("DELETE FROM tool_call_events WHERE event_seq = {}", of("run_b_2", "max")), "call run_b_2, run run_b, is unknown, but its last event says running"),
        ("DELETE FROM tool_call_events WHERE tool_call_id = 'run_b_2'".to_owned(), "it has no event"),
        (
            "INSERT INTO tool_call_events (tool_call_id, from_status, to_status, lease_epoch, at) SELECT tool_call_id, 'unknown', to_status, 1, at FROM tool_call_events WHERE tool_call_id = 'run_b_2' ORDER BY event_seq DESC LIMIT 1".to_owned(),
            "call run_b_2, run run_b, was not written by this program",
        ),
    ] {
        let database = Database::with_history().await;
        database.tamper(&sql);
        let findings = database.findings().await;
        assert!(findings.iter().any(|finding| finding.contains(named)), "{sql}: {findings:?}");
        // One change is not reported for every event behind it.
        assert!(findings.len() <= 3, "{sql}: {findings:?}");
    }
}

#[tokio::test]
async fn s19_an_event_that_is_linked_is_not_linked_again() {
    let database = Database::with_history().await;
    let raw = Connection::open(&database.path).unwrap();
    for sql in ["UPDATE tool_call_events SET chain = 'x'", "UPDATE tool_call_events SET chain = NULL, run_id = NULL"] {
        let refused = raw.execute(sql, []).unwrap_err().to_string();
        assert!(refused.contains("never changes"), "{refused}");
    }
}

#[tokio::test]
async fn s19_what_a_person_said_is_part_of_the_chain() {
    let database = Database::with_history().await;
    let store = SqliteStore::open(SqliteConfig::new(&database.path)).unwrap();
    let call = store.call(&samples::call_id("run_a_1")).await.unwrap();
    store.correct_call(samples::correct(&call, CorrectedTo::NotHappened, 70)).await.unwrap();
    store.close().unwrap();
    assert_eq!(database.findings().await, [""; 0]);
    for sql in [
        "UPDATE tool_call_events SET correction_json = replace(correction_json, 'ada', 'bob') WHERE correction_json IS NOT NULL",
        "UPDATE tool_call_events SET correction_json = NULL WHERE correction_json IS NOT NULL",
    ] {
        let database =
            Database { path: database.path.with_file_name("copy.db"), _folder: tempfile::tempdir().unwrap() };
        std::fs::remove_file(&database.path).ok();
        ua_store_sqlite::backup(&database.path.with_file_name("runtime_state.db"), &database.path).unwrap();
        database.tamper(sql);
        let findings = database.findings().await;
        assert!(findings.iter().any(|one| one.contains("call run_a_1, run run_a, is not what")), "{sql}: {findings:?}");
    }
}

#[tokio::test]
async fn s19_an_answer_that_was_forged_or_edited_is_named() {
    let database = Database::with_history().await;
    let store = SqliteStore::open(SqliteConfig::new(&database.path)).unwrap();
    let scene = Scene::begin(&store, "run_c").await;
    for name in ["one", "two"] {
        let question = samples::question(name, None);
        let id = question.question_id.clone();
        store.raise_question(&scene.lease, question).await.unwrap();
        store.insert_answer(samples::answer(id.as_str(), ua_store::Choice::Happened)).await.unwrap();
    }
    store.close().unwrap();
    assert_eq!(database.findings().await, [""; 0]);
    let raw = Connection::open(&database.path).unwrap();
    let changed = |sql: &str| raw.execute(sql, []).unwrap();
    // The owner notes that it acted on an answer, and that changes nothing about what was said.
    assert_eq!(changed("UPDATE answers SET applied_at = answered_at"), 2);
    assert_eq!(database.findings().await, [""; 0]);
    assert_eq!(changed("UPDATE answers SET answered_by = 'somebody' WHERE rowid = 1"), 1);
    assert_eq!(changed("DELETE FROM answers WHERE rowid = 2"), 1);
    let forged = "INSERT INTO answers (question_id, choice, answered_by, answered_at) SELECT question_id, 'execute', 'me', created_at \
                  FROM questions WHERE question_id NOT IN (SELECT question_id FROM answers)";
    assert_eq!(changed(forged), 1);
    let findings = database.findings().await;
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(
        findings[0].contains("it was edited") && findings[1].contains("\"me\", was not written by this program"),
        "{findings:?}"
    );
    // Nobody acts on either: the questions are open, and an answer takes the place of what stands there.
    drop(raw);
    let store = SqliteStore::open(SqliteConfig::new(&database.path)).unwrap();
    let run = ua_core::RunId::parse("run_c").unwrap();
    let read = async || store.load(&run).await.unwrap().questions;
    for question in read().await {
        assert_eq!((question.status, &question.answer), (ua_store::QuestionStatus::Open, &None), "{question:?}");
        store.insert_answer(samples::answer(question.question_id.as_str(), ua_store::Choice::Skip)).await.unwrap();
    }
    for question in read().await {
        assert_eq!(question.status, ua_store::QuestionStatus::Answered);
        assert_eq!(question.answer.map(|answer| answer.choice), Some(ua_store::Choice::Skip));
    }
    store.close().unwrap();
    assert_eq!(database.findings().await, [""; 0]);
}
