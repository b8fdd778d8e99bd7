//! Settings of connections. None of them but the journal mode and the application id persists in the file.

use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use ua_store::{Durability, StoreError};

use crate::error::{refused, sql_error};

/// `UAJR`, in the file's header: this database is ours.
pub(crate) const APPLICATION_ID: i64 = 0x5541_4A52;
/// What stands in its place once the file is given to a server: what is done there since, the file does not know.
pub(crate) const MOVED_ID: i64 = 0x5541_4A4D;

/// The first SQLite in which concurrent checkpoints cannot damage the write-ahead log.
const OLDEST_SAFE_SQLITE: i32 = 3_051_003;

/// Refuses to run on a SQLite library with a known way to damage a database.
pub(crate) fn check_library() -> Result<(), StoreError> {
    check_version(rusqlite::version_number(), rusqlite::version())
}

fn check_version(number: i32, words: &str) -> Result<(), StoreError> {
    if number >= OLDEST_SAFE_SQLITE {
        return Ok(());
    }
    Err(refused(format!(
        "this program is linked with SQLite {words}, which can damage the database; 3.51.3 or newer is needed"
    )))
}

/// How long a transaction waits for those of other processes.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What every connection is set to.
pub(crate) fn harden(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // What is deleted is overwritten: freed pages keep nothing.
    connection.pragma_update(None, "secure_delete", true)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
    // A plan never depends on a bound value: else a statement is compiled again each time it is bound anew, a fifth of a turn's work.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(256);
    if cfg!(target_os = "macos") {
        connection.pragma_update(None, "fullfsync", true)?;
        connection.pragma_update(None, "checkpoint_fullfsync", true)?;
    }
    Ok(())
}

/// Lets migrations replace the text of a table's checks, and make a table anew that others refer to; or forbids it to everybody again.
pub(crate) fn let_schema_be_changed(connection: &Connection, is_allowed: bool) -> rusqlite::Result<()> {
    connection.pragma_update(None, "foreign_keys", !is_allowed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, !is_allowed).map(drop)
}

/// How large the pages of a new database are, in bytes. What a turn writes are a few small rows in each of a dozen places, and each place is
/// written as a whole page: small ones make a turn cheaper, large ones a large result.
pub(crate) const PAGE_SIZE: i64 = 2048;

/// Chooses it, for a file in which nothing is yet.
pub(crate) fn choose_page_size(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "page_size", PAGE_SIZE)
}

/// Runs a statement that has no values, compiled once.
pub(crate) fn say(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// How long the log gets before what stands in it is carried over, in bytes. Most pages of a turn are those of the turn before: the later they
/// are carried over, the fewer times.
pub(crate) const LOG_BYTES: i64 = 8 * 1024 * 1024;

/// What the writer is set to besides. The answer to the journal mode is compared: SQLite may silently keep another.
pub(crate) fn make_writer(connection: &Connection) -> Result<(), StoreError> {
    let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(sql_error)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(refused(format!("SQLite keeps journal mode {mode:?} here instead of the write-ahead log")));
    }
    let page_size: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(sql_error)?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_BYTES / page_size).map_err(sql_error)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024).map_err(sql_error)?;
    set_durability(connection, Durability::Synced).map_err(sql_error)
}

/// How many pages a reader keeps, in KiB: what a long read goes through is not looked at again, and would stay in memory as long as the process.
/// A check of the whole file, which looks rows up in others, has no more: to read a page again is to copy it from what the kernel keeps, and one
/// more page of memory takes longer than that.
const READER_CACHE_KIB: i64 = 512;

/// What a reader is set to besides.
pub(crate) fn make_reader(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.pragma_update(None, "query_only", true)
}

/// Chooses, between transactions, whether the next one is synced. A synced one makes all earlier ones durable too.
pub(crate) fn set_durability(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let word = match durability {
        Durability::Relaxed => "NORMAL",
        Durability::Synced => "FULL",
    };
    connection.pragma_update(None, "synchronous", word)
}

/// Syncs nothing, while a database is made in which nothing is stored yet.
///
/// A process that is killed leaves what it wrote to the kernel. After a power cut before the first sync the file is empty, or has one page without a
/// table or without anything, and the log beside it has all of it or no whole transaction: it is there, or is made again.
pub(crate) fn sync_nothing(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "OFF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s19_connections_believe_no_schema_and_overwrite_what_they_delete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let connection = Connection::open(&path).unwrap();
        harden(&connection).unwrap();
        let says = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!((says("trusted_schema"), says("secure_delete"), says("foreign_keys")), (0, 1, 1));
        let canary = "sk-canary-in-a-deleted-page";
        let rows = format!("CREATE TABLE t(x); INSERT INTO t VALUES ('{}'); DELETE FROM t;", canary.repeat(400));
        connection.execute_batch(&rows).unwrap();
        drop(connection);
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(canary.len()).any(|window| window == canary.as_bytes()));
        // The defensive mode keeps the schema table itself from being written.
        let connection = Connection::open(&path).unwrap();
        harden(&connection).unwrap();
        connection.pragma_update(None, "writable_schema", true).ok();
        assert!(connection.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE t(y)'", []).is_err());
    }

    #[test]
    fn a_sqlite_that_can_damage_its_log_is_refused_by_name() {
        for (number, words) in [(3_007_000, "3.7.0"), (3_050_004, "3.50.4"), (3_051_002, "3.51.2")] {
            let refusal = check_version(number, words).unwrap_err().to_string();
            assert!(refusal.contains(words) && refusal.contains("3.51.3 or newer"), "{refusal}");
        }
        for (number, words) in [(3_051_003, "3.51.3"), (3_054_001, "3.54.1"), (4_000_000, "4.0.0")] {
            assert!(check_version(number, words).is_ok(), "{words}");
        }
        assert!(check_library().is_ok(), "the one that is compiled in");
    }
}
