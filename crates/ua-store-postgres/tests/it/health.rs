//! What `ua db check` says of a real server: one that keeps the promise, and ones that do not.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::process::Child;

use tokio_postgres::Client;
use ua_core::CallStatus;
use ua_store::conformance::{Scene, samples};
use ua_store::{Author, Batch, Change, Store as _, StoreError};
use ua_store_postgres::{Health, PostgresConfig, PostgresStore};

use crate::cluster::{Cluster, blocking};
use crate::database::{Database, until};

fn examined(database: &Database) -> Health {
    let store = database.store();
    blocking(async move { store.examine().await.unwrap() })
}

/// Ends with the test.
struct Standby(Child);

impl Drop for Standby {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Somebody who follows the log of the server, under a name.
fn standby(cluster: &Cluster, name: &str, arguments: &[&str]) -> Standby {
    let folder = cluster.folder().join(name);
    assert!(cluster.program("mkdir").arg(&folder).status().unwrap().success());
    let place = format!("host={} user=ua application_name={name}", cluster.folder().display());
    let mut program = cluster.program("pg_receivewal");
    Standby(program.arg("-D").arg(folder).args(["-d", &place]).args(arguments).spawn().unwrap())
}

async fn set(by_hand: &Client, sql: &str) {
    by_hand.batch_execute(sql).await.unwrap();
    by_hand.batch_execute("SELECT pg_reload_conf()").await.unwrap();
}

/// From a server that keeps everything to one whose standbys are not waited for, and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_judged_by_what_it_is_set_to_and_by_who_follows_it() {
    let Some(cluster) = Cluster::start("-c fsync=on") else { return };
    let database = Database::in_its_own(cluster);
    let (cluster, by_hand) = (database.cluster(), database.by_hand());
    let health = examined(&database);
    assert_eq!((health.findings, health.warnings), (Vec::new(), Vec::new()));

    let _late = standby(cluster, "late", &[]);
    until(&by_hand, "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'").await;
    let warnings = examined(&database).warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("commits wait for none of them"), "{warnings:?}");

    let _sure = standby(cluster, "sure", &["--synchronous"]);
    set(&by_hand, "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (sure)'").await;
    until(&by_hand, "SELECT pid FROM pg_stat_replication WHERE sync_state = 'quorum'").await;
    let warnings = examined(&database).warnings;
    assert!(
        warnings.len() == 1 && warnings[0].contains("commits do not wait for these standbys: late"),
        "{warnings:?}"
    );

    set(&by_hand, "ALTER SYSTEM SET full_page_writes = off").await;
    until(&by_hand, "SELECT 1 WHERE current_setting('full_page_writes') = 'off'").await;
    let findings = examined(&database).findings;
    assert!(findings.len() == 1 && findings[0].contains("full_page_writes = off"), "{findings:?}");
}

/// A role that may not write, and may not see who follows.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_write_is_named_with_what_it_lacks() {
    let Some(cluster) = Cluster::start("-c fsync=on") else { return };
    let database = Database::in_its_own(cluster);
    let (cluster, by_hand) = (database.cluster(), database.by_hand());
    let grants = "CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA ua TO reader; \
                  GRANT SELECT ON ALL TABLES IN SCHEMA ua TO reader; \
                  GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ua TO reader; REVOKE DELETE ON ua.runs FROM reader";
    by_hand.batch_execute(grants).await.unwrap();
    let _late = standby(cluster, "late", &[]);
    until(&by_hand, "SELECT pid FROM pg_stat_replication WHERE state = 'streaming'").await;
    let url = database.url_at(crate::postgres::SERVER).replace("user=ua", "user=reader");
    let store = blocking(PostgresStore::open(&PostgresConfig::from_url(&url).unwrap())).unwrap();
    let health = blocking(async move { store.examine().await.unwrap() });
    let said = "the role reader may not read and write runs of the schema ua; as the owner of the schema: ";
    let [finding] = &health.findings[..] else { panic!("{:?}", health.findings) };
    let commands = finding.strip_prefix(said).unwrap();
    assert!(health.warnings[0].contains("GRANT pg_monitor TO reader"), "{:?}", health.warnings);
    // The commands are what was missing.
    by_hand.batch_execute(commands).await.unwrap();
    let store = blocking(PostgresStore::open(&PostgresConfig::from_url(&url).unwrap())).unwrap();
    let health = blocking(async move { store.examine().await.unwrap() });
    assert_eq!(health.findings, Vec::<String>::new());
}

/// A role of whatever name that may not look into the schema, or not make it, is told the commands that its owner gives.
#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_any_right_is_told_what_its_owner_has_to_grant() {
    let Some(cluster) = Cluster::start("-c fsync=on") else { return };
    let database = Database::in_its_own(cluster);
    let by_hand = database.by_hand();
    by_hand.batch_execute("CREATE ROLE \"A\" LOGIN").await.unwrap();
    let url = database.url_at(crate::postgres::SERVER).replace("user=ua", "user=A");
    let config = PostgresConfig::from_url(&url).unwrap();
    let refused = |error: StoreError, said: &str| {
        let error = error.to_string();
        let (_, commands) = error.split_once(said).unwrap_or_else(|| panic!("{error}"));
        commands.to_owned()
    };
    let opened = blocking(PostgresStore::open(&config)).err().unwrap();
    let commands = refused(opened, "the role \"A\" may not use the schema ua; as the owner of the schema: ");
    by_hand.batch_execute(&commands).await.unwrap();
    let store = blocking(PostgresStore::open(&config)).unwrap();
    assert_eq!(blocking(async move { store.examine().await.unwrap() }).findings, Vec::<String>::new());

    by_hand.batch_execute("DROP SCHEMA ua CASCADE").await.unwrap();
    let made = blocking(ua_store_postgres::migrate(&config)).err().unwrap();
    let said = "the role \"A\" may not make the schema ua; as ua, which owns the database, or a member of it: ";
    let commands = refused(made, said);
    assert!(commands.contains("CREATE DATABASE NAME; GRANT CREATE ON DATABASE NAME TO \"A\";"), "{commands}");
    let commands = commands.split(';').next().unwrap();
    by_hand.batch_execute(commands).await.unwrap();
    blocking(ua_store_postgres::migrate(&config)).unwrap();
}

/// A role without the right to make schemas brings one up to date that it was given, as an administrator of a managed service may do it; of that of
/// another role it is told whose it is, and nothing where there is nothing to change.
#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_was_given_is_brought_up_to_date_and_that_of_another_role_is_not() {
    let Some(cluster) = Cluster::start("-c fsync=on") else { return };
    let database = Database::in_its_own(cluster);
    let by_hand = database.by_hand();
    let of_role = |role: &str| {
        let url = database.url_at(crate::postgres::SERVER).replace("user=ua", &format!("user={role}"));
        PostgresConfig::from_url(&url).unwrap()
    };
    let roles = "DROP SCHEMA ua CASCADE; CREATE ROLE given LOGIN; CREATE ROLE other LOGIN; CREATE SCHEMA ua AUTHORIZATION given";
    by_hand.batch_execute(roles).await.unwrap();
    let other = blocking(ua_store_postgres::migrate(&of_role("other"))).unwrap_err().to_string();
    assert!(other.contains("the schema ua belongs to the role given") && other.contains("name given"), "{other}");
    let version = blocking(ua_store_postgres::migrate(&of_role("given"))).unwrap();
    by_hand
        .batch_execute("GRANT USAGE ON SCHEMA ua TO other; GRANT SELECT ON ALL TABLES IN SCHEMA ua TO other")
        .await
        .unwrap();
    assert_eq!(blocking(ua_store_postgres::migrate(&of_role("other"))).unwrap(), version, "nothing is to be changed");
    by_hand.batch_execute("GRANT given TO other").await.unwrap();
    assert_eq!(blocking(ua_store_postgres::migrate(&of_role("other"))).unwrap(), version, "a member of its owner");
}

/// Whatever the server, the database and the role say, a synced write is one.
#[tokio::test]
async fn a_synced_write_is_synced_whatever_the_server_is_set_to() {
    let Some(database) = Database::fresh() else { return };
    let by_hand = database.by_hand();
    let off = format!("ALTER DATABASE {} SET synchronous_commit = off", database.name);
    by_hand.batch_execute(&off).await.unwrap();
    // Each transaction that notes an attempt leaves what it runs under.
    by_hand
        .batch_execute(
            "CREATE TABLE seen (setting text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN INSERT INTO ua.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; \
             CREATE TRIGGER note AFTER INSERT ON tool_receipts EXECUTE FUNCTION note()",
        )
        .await
        .unwrap();
    let store = database.store();
    let scene = Scene::begin(&store, "run_1").await;
    scene.call_that_is("call_1", CallStatus::Running).await;
    let settle = Batch::of([Change::SettleAttempt(samples::settle("call_1", 1, CallStatus::Succeeded))]);
    store.commit(&Author::Owner(scene.lease.clone()), settle).await.unwrap();
    let seen: Vec<String> =
        by_hand.query("SELECT setting FROM seen", &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(seen, ["on"]);
}
