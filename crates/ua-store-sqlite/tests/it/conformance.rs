//! SQLite keeps every promise, and answers like the in-memory model.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tempfile::TempDir;
use ua_store::conformance::{Harness, agree, agree_beside_deletions};
use ua_store::{MemStore, Store};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

struct Fresh {
    // Dropped in this order: the store first, then its folder.
    store: SqliteStore,
    _folder: TempDir,
}

impl Harness for Fresh {
    fn store(&self) -> &dyn Store {
        &self.store
    }
}

fn fresh() -> Fresh {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(SqliteConfig::new(folder.path().join("runtime_state.db"))).unwrap();
    Fresh { store, _folder: folder }
}

ua_store::conformance_tests!(fresh);
ua_store::fleet_conformance_tests!(fresh);

#[tokio::test]
async fn it_agrees_with_the_model_under_random_writes() {
    for seed in 1..=6 {
        agree(&MemStore::new(), &fresh().store, seed, 250).await;
    }
}

#[tokio::test]
async fn it_agrees_with_the_model_where_runs_are_deleted_between_other_writes() {
    for seed in 1..=12 {
        agree_beside_deletions(&MemStore::new(), &fresh().store, seed, 120).await;
    }
}
