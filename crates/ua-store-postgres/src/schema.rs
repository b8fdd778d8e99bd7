//! The schema: made and brought up to date by [`migrate`] alone, and looked at whenever a store is opened and by every write.
//!
//! A migration takes a session of its own, which a pooler in transaction mode does not give; everything else needs none.

use std::sync::LazyLock;

use tokio_postgres::{Client, NoTls};
use ua_store::{Retry, StoreError};

use crate::config::PostgresConfig;
use crate::db::Db;
use crate::error::{DbError, refused, sql_error, unavailable};
use crate::tls;
use crate::value::params;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The oldest server that this is tested with.
const OLDEST: i32 = 150_000;

/// The lock under which one process migrates.
const LOCK: i64 = 0x7561_0000;

/// The newest schema that this program knows. Every write asks.
pub(crate) fn newest() -> i32 {
    static NEWEST: LazyLock<i32> = LazyLock::new(|| {
        embedded::migrations::runner().get_migrations().iter().map(refinery::Migration::version).max().unwrap_or(0)
    });
    *NEWEST
}

/// Makes the schema `ua`, or brings it up to date; the version that it has then. Two at once follow each other.
///
/// # Errors
///
/// `Unavailable` when the server cannot be reached, is too old, or does not let this user make tables.
pub async fn migrate(config: &PostgresConfig) -> Result<i32, StoreError> {
    let mut client = connect(config).await?;
    let server = number(&client, "SELECT current_setting('server_version_num')::bigint").await?;
    check_server(server)?;
    client.batch_execute(&format!("SELECT pg_advisory_lock({LOCK}::bigint)")).await.map_err(sql_error)?;
    client.batch_execute("CREATE SCHEMA IF NOT EXISTS ua; SET search_path = ua").await.map_err(sql_error)?;
    let found = client.query_opt("SELECT max(version) FROM refinery_schema_history", &[]).await;
    let version = found.ok().flatten().and_then(|row| row.try_get::<_, Option<i32>>(0).ok().flatten()).unwrap_or(0);
    if version > newest() {
        return Err(too_new(version));
    }
    if version > 0 && version < newest() {
        refuse_workers(&client).await?;
    }
    let mut runner = embedded::migrations::runner();
    runner.set_migration_table_name("refinery_schema_history");
    let migrated = runner.run_async(&mut client).await;
    migrated.map_err(|error| unavailable("the schema could not be brought up to date", error, Retry::Never))?;
    Ok(newest())
}

/// Refuses while workers count as alive: they could not write what comes back of what they have sent.
async fn refuse_workers(client: &Client) -> Result<(), StoreError> {
    let is_there = number(client, "SELECT (to_regclass('ua.workers') IS NOT NULL)::int::bigint").await?;
    if is_there == 0 {
        return Ok(());
    }
    let sql = "SELECT worker, place_shown FROM ua.workers WHERE lease_until::timestamptz > clock_timestamp() ORDER BY worker LIMIT 1";
    let Some(row) = client.query_typed(sql, &[]).await.map_err(sql_error)?.into_iter().next() else { return Ok(()) };
    let (worker, place): (String, String) = (row.try_get(0).map_err(sql_error)?, row.try_get(1).map_err(sql_error)?);
    Err(refused(format!(
        "the worker {worker} in {place} counts as alive, and does not know the new schema; stop all workers first (one that was killed counts for \
         30 seconds more)"
    )))
}

/// A connection of its own.
pub(crate) async fn connect(config: &PostgresConfig) -> Result<Client, StoreError> {
    let mode = config.server.get_ssl_mode();
    if mode == tokio_postgres::config::SslMode::Disable {
        let (client, connection) = config.server.connect(NoTls).await.map_err(sql_error)?;
        drop(tokio::spawn(connection));
        return Ok(client);
    }
    let tls = tls::connector(config.root_certificates.as_deref())?;
    let (client, connection) = config.server.connect(tls).await.map_err(sql_error)?;
    drop(tokio::spawn(connection));
    Ok(client)
}

async fn number(client: &Client, sql: &str) -> Result<i64, StoreError> {
    let row = client.query_typed_one(sql, &[]).await.map_err(sql_error)?;
    row.try_get(0).map_err(sql_error)
}

fn check_server(version: i64) -> Result<(), StoreError> {
    if version < i64::from(OLDEST) {
        let (have, want) = (version / 10_000, OLDEST / 10_000);
        return Err(refused(format!("the server is PostgreSQL {have}; this program needs {want} or newer")));
    }
    Ok(())
}

fn too_new(version: i32) -> StoreError {
    refused(format!("the database has schema {version}, newer than this program's {}; use a newer program", newest()))
}

/// Refuses a database that this program does not know how to write.
pub(crate) fn check(db: &Db) -> Result<(), DbError> {
    let facts = "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), \
                 to_regclass('ua.refinery_schema_history') IS NOT NULL";
    let facts = db.row(facts, params![], |row| {
        Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, bool>(2)?))
    })?;
    let Some((server, encoding, has_schema)) = facts else { return Err(refused("the server says nothing").into()) };
    check_server(server)?;
    if encoding != "UTF8" {
        return Err(refused(format!("the database is encoded as {encoding}; make one with encoding UTF8")).into());
    }
    if !has_schema {
        return Err(refused("the database does not have this program's schema; `ua db migrate` creates it").into());
    }
    let sql = "SELECT max(version) FROM ua.refinery_schema_history";
    let version = db.row(sql, params![], |row| Ok(row.try_get::<_, Option<i32>>(0)?))?.flatten().unwrap_or(0);
    if version > newest() {
        return Err(too_new(version).into());
    }
    if version < newest() {
        let why = format!(
            "the database has schema {version}, older than this program's {}; `ua db migrate` brings it up to date",
            newest()
        );
        return Err(refused(why).into());
    }
    Ok(())
}
