//! A database of an earlier schema is brought up to date, and what is in it stays.

use rusqlite::Connection;
use ua_store::conformance::samples;
use ua_store::{RunStore as _, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::take_back_to;

#[tokio::test]
async fn a_database_of_the_first_schema_gets_forks_and_keeps_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap();
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    take_back_to(&raw, 1);
    drop(raw);

    let refused = SqliteStore::open_read_only(&path).map(drop).expect_err("an inspection migrates nothing");
    assert!(matches!(&refused, StoreError::Unavailable { why, .. } if why.contains("ua db migrate")), "{refused:?}");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    assert_eq!(store.run(&run.run_id).await.unwrap(), run);
    let fork = store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    assert_eq!(store.children(&run.run_id).await.unwrap(), [fork]);
}
