//! The roles that the guide makes: each may do what it is for, and a worker's neither makes tables nor takes off what guards them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use tokio_postgres::error::SqlState;
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{LedgerStore as _, RunStore as _};
use ua_store_postgres::{PostgresConfig, PostgresStore, migrate};

use crate::cluster::blocking;
use crate::database::Database;

/// The statements of the guide, for a database of this name that is there already.
fn of_the_guide(database: &str) -> String {
    let guide = include_str!("../../../../docs/guide/database.md");
    let section = guide.split_once("### Roles with the rights that they need\n").unwrap().1;
    let section = section.split_once("\n### ").unwrap().0;
    let blocks: Vec<&str> = section.split("```sql\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    assert_eq!(blocks.len(), 2);
    let made = format!("ALTER DATABASE {database} OWNER TO ua_owner");
    let statements = blocks.concat();
    let statements = statements.split(';').map(|one| match one.trim() {
        create if create.starts_with("CREATE DATABASE ") => made.clone(),
        other => other.replace("ON DATABASE ua ", &format!("ON DATABASE {database} ")),
    });
    statements.collect::<Vec<_>>().join(";\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_the_guide_may_do_what_they_are_for_and_no_more() {
    let Some(database) = Database::empty() else { return };
    let by_hand = database.by_hand();
    by_hand.batch_execute(&of_the_guide(&database.name)).await.unwrap();
    let of_role = |role: &str| {
        let url = database.url_at(crate::postgres::SERVER).replace("user=ua", &format!("user={role}"));
        PostgresConfig::from_url(&url).unwrap()
    };
    blocking(migrate(&of_role("ua_owner"))).unwrap();

    // A worker has what it needs, and nothing that is said to be missing.
    let store = blocking(PostgresStore::open(&of_role("ua_worker"))).unwrap();
    Scene::begin(&store, "run_1").await.call_that_is("call_1", CallStatus::Succeeded).await;
    let looking = store.clone();
    let findings = blocking(async move { looking.examine().await.unwrap() }).findings;
    assert!(findings.iter().all(|finding| !finding.contains("may not")), "{findings:?}");
    for beyond in [
        "CREATE TABLE ua.more (x int)",
        "DROP TABLE ua.runs",
        "ALTER TABLE ua.tool_calls DISABLE TRIGGER ALL",
        "ALTER TABLE ua.runs ADD COLUMN more text",
        "CREATE SCHEMA more",
        "TRUNCATE ua.runs CASCADE",
    ] {
        let tried = by_hand.batch_execute(&format!("BEGIN; SET LOCAL ROLE ua_worker; {beyond}")).await;
        by_hand.batch_execute("ROLLBACK").await.unwrap();
        let code = tried.unwrap_err().code().cloned();
        assert_eq!(code, Some(SqlState::INSUFFICIENT_PRIVILEGE), "{beyond}");
    }

    // Who looks sees it, and changes nothing.
    let store = blocking(PostgresStore::open(&of_role("ua_read"))).unwrap();
    let run = store.load(&samples::run_id("run_1")).await.unwrap().run;
    assert_eq!(store.calls(&run.run_id, None).await.unwrap().len(), 1);
    let refused = store.submit_run(samples::new_run("run_2")).await.unwrap_err();
    assert!(refused.to_string().contains("may not do that"), "{refused}");
}
