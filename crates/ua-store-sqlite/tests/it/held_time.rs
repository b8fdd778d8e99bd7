//! A database that did not keep since when a run is held learns it, and what is in it stays.

use std::time::Duration;

use rusqlite::Connection;
use ua_store::RunStore as _;
use ua_store::conformance::samples::{self, at};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use crate::earlier::take_back_to;

#[tokio::test]
async fn a_run_of_an_earlier_schema_is_held_from_its_next_owner_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap().run_id;
    store.acquire_run(&run, &samples::owner(100), at(1)).await.unwrap();
    store.close().unwrap();
    take_back_to(&Connection::open(&path).unwrap(), 2).unwrap();

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    // Nobody knows how long the first owner held it.
    let (lease, taken) = store.acquire_run(&run, &samples::owner(101), at(100)).await.unwrap();
    assert_eq!((taken.held_millis, taken.held_from), (0, Some(at(100))));
    store.note_alive(&lease, Duration::ZERO, at(130)).await.unwrap();
    let (_, taken) = store.acquire_run(&run, &samples::owner(102), at(500)).await.unwrap();
    assert_eq!(taken.held_millis, 30_000);
}
