//! Calls of before there were doubts, in databases that the migrations of every time made: whoever opens one with today's program finds in doubt
//! what may have happened and of which nobody said otherwise, and nothing else. The rows are those of
//! [`before_doubts`](ua_store::conformance::before_doubts).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;

use rusqlite::Connection;
use tempfile::TempDir;
use ua_core::CallStatus;
use ua_store::LedgerStore as _;
use ua_store::conformance::before_doubts::{Case, Seen, cases, written};
use ua_store::conformance::samples;
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::of_schema;

/// A folder in memory where there is one: thousands of writes are synced here, and none has to outlive the test.
fn folder() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    let made = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).unwrap()
}

#[tokio::test]
async fn whatever_a_database_of_before_doubts_has_stands_as_this_program_would_have_left_it() {
    let folder = folder();
    let made = folder.path().join("made.db");
    let store = SqliteStore::open(SqliteConfig::new(&made)).unwrap();
    let cases = cases();
    let mut before = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        written(&store, number, case).await;
        before.push(Seen::of(&store, number).await);
    }
    store.close().unwrap();
    let forgotten = before.iter().filter(|was| was.forgets_a_doubt()).count();
    assert!(forgotten > 20, "{forgotten} of {} calls are not as they have to be", cases.len());

    let (mut found, mut left) = (0, 0);
    for schema in 1..=25 {
        // What lies in memory takes no room for longer than it is looked at.
        let place = tempfile::tempdir_in(folder.path()).unwrap();
        let path = place.path().join("old.db");
        of_schema(&path, &made, schema.min(7), schema).unwrap();
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        // All of them where the first migration that looks for doubts and this program's meet, and everywhere else a part.
        for number in (0..cases.len()).filter(|number| schema == 7 || number % 12 == schema % 12) {
            let now = Seen::of(&store, number).await;
            let is_in_doubt = now.check(&cases[number], &before[number], &format!("schema {schema}"));
            found += u32::from(is_in_doubt);
            left += u32::from(!is_in_doubt);
        }
        store.close().unwrap();
        let examined = SqliteStore::open_read_only(&path).unwrap().examine().await.unwrap();
        assert_eq!(examined.findings, [""; 0], "schema {schema}");
    }
    assert!(found > 100 && left > 100, "{found} in doubt, {left} not");
}

/// Nothing is looked for twice, and what a person said since stays.
#[tokio::test]
async fn what_was_found_is_found_once() {
    let folder = folder();
    let (made, path) = (folder.path().join("made.db"), folder.path().join("old.db"));
    let store = SqliteStore::open(SqliteConfig::new(&made)).unwrap();
    written(&store, 1, &Case::refused_behind_a_loss()).await;
    store.close().unwrap();
    of_schema(&path, &made, 7, 7).unwrap();
    // A process that ended before it had looked: the next one does.
    let looks = async || {
        let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
        let call = store.call(&samples::call_id("call_1")).await.unwrap();
        let events = store.events(&call.call_id).await.unwrap().len();
        store.close().unwrap();
        (call.status, call.doubt, events)
    };
    let found = looks().await;
    assert_eq!((found.0, found.1), (CallStatus::Unknown, Some(1)));
    let raw = Connection::open(&path).unwrap();
    let notes: i64 =
        raw.query_row("SELECT count(*) FROM meta WHERE key = 'doubts_to_be_found'", [], |row| row.get(0)).unwrap();
    assert_eq!(notes, 0, "the note is taken away");
    raw.execute("INSERT INTO meta (key, value) VALUES ('doubts_to_be_found', '26')", []).unwrap();
    drop(raw);
    assert_eq!(looks().await, found);
}
