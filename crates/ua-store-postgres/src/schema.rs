//! The schema: made and brought up to date by [`migrate`] alone, and looked at whenever a store is opened and by every write.
//!
//! A migration takes a session of its own, which a pooler in transaction mode does not give, and is refused there; everything else needs none.
//! That one process migrates at a time is a lock of a transaction that another connection holds: a session that somebody keeps cannot keep it.

use std::sync::LazyLock;
use std::time::Duration;

use refinery::Target;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use ua_store::{Retry, StoreError};

use crate::config::PostgresConfig;
use crate::db::Db;
use crate::dialling::Dialler;
use crate::doubts;
use crate::error::{DbError, refused, sql_error, unavailable};
use crate::owners;
use crate::value::params;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// The oldest server that this is tested with.
const OLDEST: i32 = 150_000;

/// The lock under which one process migrates.
const LOCK: i64 = 0x7561_0000;

/// How long another one that migrates is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

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
    // Until it is dropped.
    let _alone = alone(config, &client).await?;
    // The server asks for the right to make schemas also where there is nothing to make.
    let there = schema_there(&client).await?;
    if there.is_none()
        && let Err(error) = client.batch_execute("CREATE SCHEMA IF NOT EXISTS ua").await
    {
        return Err(may_not_make(&client, error).await);
    }
    owners::judge(&client).await?;
    client.batch_execute("SET search_path = ua").await.map_err(sql_error)?;
    let found = client.query_opt("SELECT max(version) FROM refinery_schema_history", &[]).await;
    let version = found.ok().flatten().and_then(|row| row.try_get::<_, Option<i32>>(0).ok().flatten()).unwrap_or(0);
    if version > newest() {
        return Err(too_new(version));
    }
    if let Some(There { owner, is_ours: false }) = there {
        // Who need not change it need not own it.
        return if version == newest() { Ok(version) } else { Err(may_not_change(&owner)) };
    }
    if version > 0 && version < newest() {
        refuse_workers(&client).await?;
    }
    if version > 0 && version < doubts::FOUND_SINCE {
        carry_out(&mut client, Target::Version(doubts::FOUND_SINCE - 1)).await?;
        doubts::find(&mut client).await.map_err(DbError::into_store)?;
    }
    carry_out(&mut client, Target::Latest).await?;
    Ok(newest())
}

/// Carries out the migrations that the database has not had, up to one.
async fn carry_out(client: &mut Client, up_to: Target) -> Result<(), StoreError> {
    let mut runner = embedded::migrations::runner().set_target(up_to);
    runner.set_migration_table_name("refinery_schema_history");
    let migrated = runner.run_async(client).await;
    migrated.map_err(|error| unavailable("the schema could not be brought up to date", error, Retry::Never))?;
    Ok(())
}

/// The right to migrate, as a connection with an open transaction: whoever dies has it no more, and nobody has it who lent it only.
async fn alone(config: &PostgresConfig, client: &Client) -> Result<Client, StoreError> {
    let holder = connect(config).await?;
    refuse_lent(client, &holder).await?;
    let patience = PATIENCE.as_millis();
    let sql = format!(
        "BEGIN; SET LOCAL search_path = pg_catalog; SET LOCAL lock_timeout = {patience}; SET LOCAL statement_timeout = 0; \
         SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock({LOCK}::bigint)"
    );
    match holder.batch_execute(&sql).await {
        Ok(()) => Ok(holder),
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
            Err(StoreError::Unavailable { why: held(client).await?, source: None, retry: Retry::Later })
        }
        Err(error) => Err(sql_error(error)),
    }
}

/// Refuses connections that a pooler lends for a transaction: what is said to the session of one is said to that of somebody else. Two that are
/// open at once are two sessions of the server otherwise.
async fn refuse_lent(one: &Client, other: &Client) -> Result<(), StoreError> {
    const SESSION: &str = "SELECT pg_backend_pid()::bigint";
    for _ in 0..3 {
        if number(one, SESSION).await? == number(other, SESSION).await? {
            return Err(refused(
                "a pooler lends its connections for one transaction each, and a migration needs one of its own: name the server itself, \
                 its host and port, in the URL of this command",
            ));
        }
    }
    Ok(())
}

/// Who migrates, or only has the lock.
async fn held(client: &Client) -> Result<String, StoreError> {
    let sql = format!(
        "SELECT a.pid::bigint, coalesce(a.usename::text, ''), coalesce(a.state, ''), \
         to_char(a.state_change AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') \
         FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid JOIN pg_database d ON d.oid = l.database \
         WHERE l.locktype = 'advisory' AND l.granted AND l.classid = 0 AND l.objid = {LOCK} AND l.objsubid = 1 \
         AND d.datname = current_database() LIMIT 1"
    );
    let seconds = PATIENCE.as_secs();
    let Some(row) = owners::said(client, &sql).await.map_err(sql_error)?.into_iter().next() else {
        return Ok(format!("another process migrated it, for more than {seconds} s; give the command again"));
    };
    let (pid, user): (i64, String) = (row.try_get(0).map_err(sql_error)?, row.try_get(1).map_err(sql_error)?);
    let (state, since): (String, Option<String>) =
        (row.try_get(2).map_err(sql_error)?, row.try_get(3).map_err(sql_error)?);
    // A role that may not see what others do is told neither.
    let how = if state.is_empty() { String::new() } else { format!(", {state} since {}", since.unwrap_or_default()) };
    Ok(format!(
        "another session has the lock under which one process migrates (PID {pid} of the server, role {user}{how}), and was waited for for \
         {seconds} s; where nobody migrates, it is the connection of a pooler that keeps it, and `SELECT pg_terminate_backend({pid})` ends it"
    ))
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
    let dialler = Dialler::of(config)?;
    let (client, connection) = Box::pin(dialler.dial(config.server.clone())).await.map_err(sql_error)?;
    // It goes on until the client is dropped.
    drop(connection);
    Ok(client)
}

async fn number(client: &Client, sql: &str) -> Result<i64, StoreError> {
    let rows = owners::said(client, sql).await.map_err(sql_error)?;
    rows.first().ok_or_else(|| refused("the server says nothing"))?.try_get(0).map_err(sql_error)
}

fn check_server(version: i64) -> Result<(), StoreError> {
    if version < i64::from(OLDEST) {
        let (have, want) = (version / 10_000, OLDEST / 10_000);
        return Err(refused(format!("the server is PostgreSQL {have}; this program needs {want} or newer")));
    }
    Ok(())
}

/// What lets a role use the schema, to be run by the schema's owner; `role` as SQL writes it.
pub(crate) fn grants(role: &str) -> String {
    format!(
        "GRANT USAGE ON SCHEMA ua TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ua TO {role};"
    )
}

/// The schema that is there.
struct There {
    /// Whose it is, as SQL writes it.
    owner: String,
    /// Whether this role may make tables in it, and change all that are there.
    is_ours: bool,
}

async fn schema_there(client: &Client) -> Result<Option<There>, StoreError> {
    let sql = "SELECT quote_ident(pg_get_userbyid(n.nspowner)), has_schema_privilege(n.oid, 'CREATE') AND NOT EXISTS \
               (SELECT FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND NOT pg_has_role(c.relowner, 'USAGE')) \
               FROM pg_namespace n WHERE n.nspname = 'ua'";
    let Some(row) = owners::said(client, sql).await.map_err(sql_error)?.into_iter().next() else { return Ok(None) };
    Ok(Some(There { owner: row.try_get(0).map_err(sql_error)?, is_ours: row.try_get(1).map_err(sql_error)? }))
}

/// That another role brings the schema up to date.
fn may_not_change(owner: &str) -> StoreError {
    refused(format!(
        "the schema ua belongs to the role {owner}, and this role may not change it; name {owner}, or a member of it, in the database URL of this \
         command (whoever works or looks needs no such right)"
    ))
}

/// Why the schema was not made. A managed service gives nobody a superuser, and may own a database itself: its administrator makes another one.
async fn may_not_make(client: &Client, error: tokio_postgres::Error) -> StoreError {
    let sql = "SELECT quote_ident(current_user), quote_ident(current_database()), quote_ident(pg_get_userbyid(datdba)) \
               FROM pg_database WHERE datname = current_database()";
    let is_right = error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE);
    let names = if is_right { owners::said(client, sql).await.ok() } else { None };
    let names = names.and_then(|rows| rows.into_iter().next());
    let names = names.and_then(|row| {
        let text = |column: usize| row.try_get::<_, String>(column).ok();
        Some((text(0)?, text(1)?, text(2)?))
    });
    let Some((role, database, owner)) = names else { return sql_error(error) };
    let why = format!(
        "the role {role} may not make the schema ua; as {owner}, which owns the database, or a member of it: GRANT CREATE ON DATABASE {database} TO \
         {role}; where nobody can be {owner}, as in some managed services, their administrator makes another database for it: CREATE DATABASE NAME; \
         GRANT CREATE ON DATABASE NAME TO {role};"
    );
    unavailable(why, error, Retry::Never)
}

fn too_new(version: i32) -> StoreError {
    refused(format!("the database has schema {version}, newer than this program's {}; use a newer program", newest()))
}

fn may_not_use(role: &str) -> StoreError {
    refused(format!("the role {role} may not use the schema ua; as the owner of the schema: {}", grants(role)))
}

/// Refuses a database that this program does not know how to write.
pub(crate) fn check(db: &Db, migrated_by: &str) -> Result<(), DbError> {
    // Until it is known whose the schema is, nothing that is in it is run.
    db.batch("SET LOCAL search_path = pg_catalog");
    let facts = "SELECT current_setting('server_version_num')::bigint, current_setting('server_encoding'), \
                 coalesce(has_schema_privilege(to_regnamespace('ua')::oid, 'USAGE'), true), quote_ident(current_user), \
                 current_setting('session_replication_role')";
    let facts = db.row(facts, params![], |row| {
        let may_look: bool = row.try_get(2)?;
        let (role, replication) = (row.try_get::<_, String>(3)?, row.try_get::<_, String>(4)?);
        Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?, may_look, role, replication))
    })?;
    let Some((server, encoding, may_look, role, replication)) = facts else {
        return Err(refused("the server says nothing").into());
    };
    check_server(server)?;
    // No trigger fires then: a call would be written without its events, and whatever else they see to.
    if replication == "replica" {
        let why = "session_replication_role is `replica` for this role or database, so no trigger guards what is written; set it back \
                   (ALTER ROLE or ALTER DATABASE … RESET session_replication_role)";
        return Err(refused(why).into());
    }
    if encoding != "UTF8" {
        return Err(refused(format!("the database is encoded as {encoding}; make one with encoding UTF8")).into());
    }
    // Of a schema that it may not look into nothing is said but that.
    if !may_look {
        return Err(may_not_use(&role).into());
    }
    owners::check(db)?;
    let there = "SELECT to_regclass('ua.refinery_schema_history') IS NOT NULL, \
                 coalesce(has_table_privilege(to_regclass('ua.refinery_schema_history'), 'SELECT'), true)";
    let there = db.row(there, params![], |row| Ok((row.try_get::<_, bool>(0)?, row.try_get::<_, bool>(1)?)))?;
    let (has_schema, may_read) = there.unwrap_or_default();
    if !has_schema {
        let why = format!("the database does not have this program's schema; {migrated_by} creates it");
        return Err(refused(why).into());
    }
    if !may_read {
        return Err(may_not_use(&role).into());
    }
    let sql = "SELECT max(version) FROM ua.refinery_schema_history";
    let version = db.row(sql, params![], |row| Ok(row.try_get::<_, Option<i32>>(0)?))?.flatten().unwrap_or(0);
    if version > newest() {
        return Err(too_new(version).into());
    }
    if version < newest() {
        let why = format!(
            "the database has schema {version}, older than this program's {}; {migrated_by} brings it up to date",
            newest()
        );
        return Err(refused(why).into());
    }
    db.batch("SET LOCAL search_path = ua");
    Ok(())
}
