//! The same through a pooler that gives every transaction another connection.

use ua_store::MemStore;
use ua_store::conformance::{Harness as _, agree};

use crate::database::{Database, Fresh};

fn fresh() -> Option<Fresh> {
    let database = Database::fresh()?;
    let mut config = database.pooled()?;
    config.compares = true;
    Some(Fresh::with(database, &config))
}

ua_store::conformance_tests!(fresh, or skip);

#[tokio::test]
async fn it_agrees_with_the_model_through_a_pooler() {
    let Some(fresh) = fresh() else { return };
    agree(&MemStore::new(), fresh.store(), 4, 250).await;
}
