//! `ua db` of a database on a server.

use serde_json::json;
use ua_core::Timestamp;
use ua_host::Host;
use ua_host::home::Home;
use ua_store::{FleetStore as _, Store as _, StoreError};
use ua_store_postgres::{PostgresConfig, PostgresStore};

use super::DbCommand;
use super::{OfRun, moving, violations};
use crate::error::{HostError, OK, STORAGE};
use crate::output::{plain, print, print_json, say, tell};
use crate::view::DbMigrated;

pub(super) async fn run(host: &Host, server: &PostgresConfig, command: DbCommand) -> Result<u8, HostError> {
    let home = host.home();
    match command {
        DbCommand::Check { invariants, json } => check(home, server, invariants, json).await,
        DbCommand::Migrate => migrate(server).await,
        DbCommand::Copy { undo: false, without_lost, .. } => moving::copy(home, server, without_lost).await,
        DbCommand::Copy { undo: true, force, .. } => moving::undo(home, Some(server), force).await,
        DbCommand::Backup { .. } | DbCommand::Restore { .. } => Err(HostError::usage(format!(
            "the runtime database is the {}",
            server.shown()
        ))
        .hint(
            "PostgreSQL has its own copies: pg_dump and pg_restore, or pg_basebackup with the log; nothing was changed",
        )),
        DbCommand::Accept { run } => Box::pin(super::accept(host, &run)).await,
        DbCommand::Prune(args) => {
            let code = super::super::prune::run(home, &args).await?;
            // What cannot be removed now does no harm, and a worker removes it.
            if !args.dry_run
                && let Err(error) = clear_notes(home, server).await
            {
                tracing::debug!(%error, "what was noted of runs that have ended stays");
            }
            Ok(code)
        }
    }
}

/// The database as it is used from this root, with what the root noted of it; `None` where it is used with another one, or with none.
async fn used_here(home: &Home, server: &PostgresConfig, identity: &str) -> Result<Option<PostgresStore>, StoreError> {
    let locks = home.locks();
    if !ua_store_postgres::database_beside(&locks).is_ok_and(|noted| noted.as_deref() == Some(identity)) {
        return Ok(None);
    }
    let mut config = server.clone();
    config.alone_beside = Some(locks);
    PostgresStore::open(&config).await.map(Some)
}

/// Removes what the root noted of runs that have ended, as workers do.
async fn clear_notes(home: &Home, server: &PostgresConfig) -> Result<(), StoreError> {
    let looks = PostgresStore::open(server).await?;
    let identity = looks.database_id().await;
    looks.close();
    let Some(store) = used_here(home, server, &identity?).await? else { return Ok(()) };
    let cleared = store.clear_notes().await;
    store.close();
    cleared.map(drop)
}

async fn migrate(server: &PostgresConfig) -> Result<u8, HostError> {
    let schema = ua_store_postgres::migrate(server).await;
    let schema = schema.map_err(|e| HostError::store("bring the database up to date", &e))?.into();
    let words = format!("{} has schema {schema}\n", server.shown());
    say(&DbMigrated { path: server.shown().into(), schema }, words)?;
    Ok(OK)
}

/// The clock of this machine may differ from the server's by so much before it is told.
const CLOCKS: std::time::Duration = std::time::Duration::from_secs(5);

/// Workers and queues go by the server's clock, what is recorded of a run by its machine's.
async fn distance_of_clocks(store: &PostgresStore) -> Result<Option<String>, HostError> {
    let before = ua_core::system::env().now();
    let theirs = store.fleet_now(before).await.map_err(|e| HostError::store("ask for the time", &e))?;
    let after = ua_core::system::env().now();
    Ok(between_clocks(before, theirs, after))
}

/// What there is to say about a clock that was asked between two moments.
fn between_clocks(before: Timestamp, theirs: Timestamp, after: Timestamp) -> Option<String> {
    let (behind, ahead) = (theirs.since(after), before.since(theirs));
    let (distance, how) = if behind > ahead { (behind, "behind") } else { (ahead, "ahead of") };
    (distance > CLOCKS).then(|| {
        format!(
            "the clock of this machine is {} s {how} the server's: workers and the queue use the server's clock, the records of a run and its \
             time budget use this one",
            distance.as_secs()
        )
    })
}

async fn check(home: &Home, server: &PostgresConfig, invariants: bool, json: bool) -> Result<u8, HostError> {
    let opened = |error: StoreError| HostError::store("open the runtime database", &error);
    let mut store = PostgresStore::open(server).await.map_err(opened)?;
    // A role that may read nothing is told so below.
    if let Ok(identity) = store.database_id().await
        && let Some(rooted) = used_here(home, server, &identity).await.map_err(opened)?
    {
        store.close();
        store = rooted;
    }
    // Nobody may have looked since another server took over. A role that may not write is told what the last one saw.
    if let Err(error) = store.note_history().await {
        tracing::debug!(%error, "which history the server has was not noted");
    }
    // Before it is told what is held: what is noted here may say that more is.
    let noted = store.look_at_notes().await;
    let mut health = store.examine().await.map_err(|e| HostError::store("examine the database", &e))?;
    match noted {
        Ok(noted) => {
            health.findings.extend(noted.lacking);
            health.warnings.extend(noted.unreadable);
        }
        Err(error) => {
            let why = ua_host::chain(&error);
            health.warnings.push(format!("what this root noted of its runs was not compared with the database: {why}"));
        }
    }
    health.warnings.extend(distance_of_clocks(&store).await?);
    health.warnings.extend(home.is_used_with_another_server(&health.db_uuid));
    health.warnings.extend(home.only_in_a_file().map(|refused| refused.to_string()));
    let (runs, found) = if invariants { violations(&store).await? } else { (0, Vec::new()) };
    let (to_look_at, violations): (Vec<OfRun>, Vec<OfRun>) =
        found.into_iter().partition(|one| one.violation.known().is_some());
    let is_well = health.findings.is_empty() && health.forgotten.is_empty() && violations.is_empty();
    let code = if is_well { OK } else { STORAGE };
    if json {
        let mut page =
            serde_json::to_value(&health).map_err(|e| HostError::failed(format!("cannot write JSON: {e}")))?;
        page["ok"] = json!(is_well);
        page["path"] = json!(server.shown());
        if invariants {
            page["checked_runs"] = json!(runs);
            page["violations"] = violations.iter().map(OfRun::json).collect();
            page["to_look_at"] = to_look_at.iter().map(OfRun::json).collect();
        }
        print_json(&page)?;
        return Ok(code);
    }
    let mut page = format!(
        "Database       {}\nId             {}\nSchema         {}\nPostgreSQL     {}\nSize           {}\n",
        server.shown(),
        health.db_uuid,
        health.schema,
        health.server_version,
        ua_core::size_in_words(u64::try_from(health.bytes).unwrap_or_default())
    );
    let whole =
        if health.findings.is_empty() { "healthy".to_owned() } else { health.findings.join("\n               ") };
    page.push_str(&format!("History        {whole}\n"));
    if !health.forgotten.is_empty() {
        page.push_str(&format!("Held           {}\n", ua_core::counted(health.forgotten.len(), "run")));
    }
    if invariants {
        page.push_str(&format!(
            "Invariants     {runs}, {}\n",
            ua_core::counted(violations.len(), "violation"),
            runs = ua_core::counted(runs, "run")
        ));
    }
    print(plain(&page))?;
    for held in &health.forgotten {
        print(plain(&format!("  {held}\n")))?;
    }
    if !health.forgotten.is_empty() {
        tell(
            "hint: what these runs sent after that may be missing here: look at the receiving ends, then `ua db accept RUN` lets one continue from where \
             the database has it, and `ua runs cancel RUN` ends it",
        );
    }
    for OfRun { run, violation } in &violations {
        print(plain(&format!("  {run}: {violation}\n")))?;
    }
    for one in &to_look_at {
        print(plain(&format!("  {}\n", one.sentence())))?;
    }
    health.warnings.iter().for_each(|warning| tell(format!("warning: {warning}")));
    Ok(code)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn clocks_that_differ_are_told() {
        let now = ua_core::Env::simulated(1).now();
        let (long, short) = (Duration::from_secs(90), Duration::from_secs(4));
        let said = |theirs| between_clocks(now, theirs, now.plus(short)).unwrap_or_default();
        assert_eq!((said(now), said(now.plus(short)), said(now.minus(short))), Default::default());
        assert!(said(now.plus(long)).contains("86 s behind"), "{}", said(now.plus(long)));
        assert!(said(now.minus(long)).contains("90 s ahead of"), "{}", said(now.minus(long)));
    }
}
