//! PostgreSQL keeps every promise, and answers like the in-memory model.

use ua_store::MemStore;
use ua_store::conformance::{Harness as _, agree, agree_beside_deletions};

use crate::database::{Database, Fresh};

fn fresh() -> Option<Fresh> {
    let database = Database::fresh()?;
    let mut config = database.direct();
    config.compares = true;
    Some(Fresh::with(database, &config))
}

ua_store::conformance_tests!(fresh, or skip);
ua_store::fleet_conformance_tests!(fresh, or skip);

#[tokio::test]
async fn it_agrees_with_the_model_under_random_writes() {
    for seed in 1..=3 {
        let Some(fresh) = fresh() else { return };
        agree(&MemStore::new(), fresh.store(), seed, 250).await;
    }
}

#[tokio::test]
async fn it_agrees_with_the_model_where_runs_are_deleted_between_other_writes() {
    for seed in 1..=3 {
        let Some(fresh) = fresh() else { return };
        agree_beside_deletions(&MemStore::new(), fresh.store(), seed, 120).await;
    }
}
