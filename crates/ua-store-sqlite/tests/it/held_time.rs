//! A database that did not keep since when a run is held learns it, and what is in it stays.

use rusqlite::Connection;
use ua_store::RunStore as _;
use ua_store::conformance::samples::{self, at};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// What V3 and later ones added, taken away again.
const WITHOUT_V3: &str = "
    DROP TRIGGER tool_call_events_are_immutable; DROP INDEX idx_tool_call_events_chain;
    ALTER TABLE tool_call_events DROP COLUMN run_id; ALTER TABLE tool_call_events DROP COLUMN chain;
    CREATE TRIGGER tool_call_events_are_immutable BEFORE UPDATE ON tool_call_events BEGIN SELECT RAISE(ABORT, 'x'); END;
    ALTER TABLE tool_attempts DROP COLUMN handle_json;
    DROP TRIGGER usage_names_one_reply;
    ALTER TABLE usage DROP COLUMN response_id; ALTER TABLE usage DROP COLUMN continued_from;
    DROP TABLE deleted_runs;
    ALTER TABLE runs DROP COLUMN held_from; ALTER TABLE runs DROP COLUMN seen_at;
    DELETE FROM refinery_schema_history WHERE version >= 3;";

#[tokio::test]
async fn a_run_of_an_earlier_schema_is_held_from_its_next_owner_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap().run_id;
    store.acquire_run(&run, &samples::owner(100), at(1)).await.unwrap();
    store.close().unwrap();
    Connection::open(&path).unwrap().execute_batch(WITHOUT_V3).unwrap();

    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    // Nobody knows how long the first owner held it.
    let (lease, taken) = store.acquire_run(&run, &samples::owner(101), at(100)).await.unwrap();
    assert_eq!((taken.held_millis, taken.held_from), (0, Some(at(100))));
    store.note_alive(&lease, at(130)).await.unwrap();
    let (_, taken) = store.acquire_run(&run, &samples::owner(102), at(500)).await.unwrap();
    assert_eq!(taken.held_millis, 30_000);
}
