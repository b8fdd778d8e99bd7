//! Two stores on one database, as two processes have: whoever comes second waits for its turn and is not refused, unless the database is one of
//! another version by then.

use ua_core::{RunId, Timestamp};
use ua_store::conformance::samples;
use ua_store::{Retry, RunStore as _, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// Writes of each store; each reads before it writes, so a transaction that begins as a reader would find the other one's
/// commit in its way.
const WRITES: u64 = 120;

#[test]
fn a_write_that_reads_first_is_never_refused_because_another_process_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let writer = |name: &'static str| {
        let store = SqliteStore::open(SqliteConfig::new(path.clone())).unwrap();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let run = RunId::parse(name).unwrap();
                store.submit_run(samples::new_run(name)).await.unwrap();
                for epoch in 1..=WRITES {
                    let (lease, _) =
                        store.acquire_run(&run, &samples::owner(1), Timestamp::from_millis(1)).await.unwrap();
                    assert_eq!(lease.epoch, epoch, "{name}");
                }
            });
        }
    };
    let (one, other) = (writer("run_one"), writer("run_other"));
    let one = std::thread::spawn(one);
    other();
    one.join().unwrap();
}

/// A process that runs when a newer version migrates its database writes nothing more, in whichever way it writes, alone or with others.
#[tokio::test]
async fn a_process_writes_nothing_into_a_schema_that_it_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(path.clone())).unwrap();
    store.submit_run(samples::new_run("run_before")).await.unwrap();
    let run = RunId::parse("run_before").unwrap();
    let raw = rusqlite::Connection::open(&path).unwrap();
    let newer = "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) VALUES (99, 'future', '2030-01-01', '1')";
    raw.execute(newer, []).unwrap();
    // Not only the first time.
    for _ in 0..2 {
        let refused = store.submit_run(samples::new_run("run_after")).await;
        let Err(StoreError::Unavailable { why, retry: Retry::Never, .. }) = refused else { panic!("{refused:?}") };
        assert!(why.contains("schema 99") && why.contains("another version of ua"), "{why}");
        let refused = store.acquire_run(&run, &samples::owner(1), Timestamp::from_millis(1)).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { retry: Retry::Never, .. })), "{refused:?}");
    }
    let runs: i64 = raw.query_row("SELECT count(*) FROM runs", [], |row| row.get(0)).unwrap();
    assert_eq!(runs, 1);
    raw.execute("DELETE FROM refinery_schema_history WHERE version = 99", []).unwrap();
    store.submit_run(samples::new_run("run_after")).await.unwrap();
}
