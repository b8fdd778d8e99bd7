//! The right that one process has at a time, of all machines.

use std::time::Duration;

use ua_core::sha256;

use crate::cluster::blocking;
use crate::database::Database;

#[test]
fn one_process_at_a_time_has_the_right_and_another_right_is_free() {
    let Some(database) = Database::fresh() else { return };
    let (one, other) = (database.store(), database.store());
    let (job, another_job) = (sha256("a job"), sha256("another job"));
    let (soon, late) = (Duration::from_millis(50), Duration::from_secs(30));
    blocking(async {
        let held = one.only_one(job, late).await.unwrap().unwrap();
        assert!(other.only_one(job, soon).await.unwrap().is_none(), "two have it");
        assert!(other.only_one(another_job, soon).await.unwrap().is_some(), "another right is held up");
        // Whoever waits has it as soon as it is given back.
        let waits = tokio::spawn(async move { other.only_one(job, late).await.unwrap().is_some() });
        drop(held);
        assert!(waits.await.unwrap());
        assert!(one.only_one(job, late).await.unwrap().is_some());
    });
}
