//! A database of an earlier schema is brought up to date, and what is in it stays.

use rusqlite::Connection;
use ua_store::conformance::samples;
use ua_store::{RunStore as _, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

/// What V2 and later ones added, taken away again: a database as the first release made it.
const BACK_TO_V1: &str = "
    DROP TRIGGER tool_call_events_are_immutable; DROP INDEX idx_tool_call_events_chain;
    ALTER TABLE tool_call_events DROP COLUMN run_id; ALTER TABLE tool_call_events DROP COLUMN chain;
    CREATE TRIGGER tool_call_events_are_immutable BEFORE UPDATE ON tool_call_events
    BEGIN SELECT RAISE(ABORT, 'the history of a tool call never changes'); END;
    DROP TRIGGER usage_names_one_reply;
    ALTER TABLE usage DROP COLUMN response_id; ALTER TABLE usage DROP COLUMN continued_from;
    ALTER TABLE tool_attempts DROP COLUMN handle_json;
    DROP TABLE deleted_runs;
    ALTER TABLE runs DROP COLUMN held_from; ALTER TABLE runs DROP COLUMN seen_at;
    DROP TRIGGER runs_share_committed_turns_only; DROP TRIGGER runs_begin_where_they_forked;
    DROP TRIGGER runs_keep_their_fork_point; DROP INDEX idx_runs_parent;
    ALTER TABLE runs DROP COLUMN forked_at_seq; ALTER TABLE runs DROP COLUMN forked_at_turn;
    DELETE FROM refinery_schema_history WHERE version >= 2;";

#[tokio::test]
async fn a_database_of_the_first_schema_gets_forks_and_keeps_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("runtime_state.db");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    let run = store.submit_run(samples::new_run("run_1")).await.unwrap();
    store.close().unwrap();
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(BACK_TO_V1).unwrap();
    drop(raw);

    let refused = SqliteStore::open_read_only(&path).map(drop).expect_err("an inspection migrates nothing");
    assert!(matches!(&refused, StoreError::Unavailable { why, .. } if why.contains("ua db migrate")), "{refused:?}");
    let store = SqliteStore::open(SqliteConfig::new(&path)).unwrap();
    assert_eq!(store.run(&run.run_id).await.unwrap(), run);
    let fork = store.fork_run(samples::new_fork("run_2", "run_1", 0)).await.unwrap();
    assert_eq!(store.children(&run.run_id).await.unwrap(), [fork]);
}
