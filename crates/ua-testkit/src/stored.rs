//! How much a runtime database keeps.

use std::path::Path;

/// The bytes of the pages that a SQLite file has in use, its log brought in first.
///
/// # Errors
/// When the file is no database, or somebody else has it open and writes.
pub fn stored_bytes(path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let connection = rusqlite::Connection::open(path)?;
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let number = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, i64>(0));
    Ok(u64::try_from((number("page_count")? - number("freelist_count")?) * number("page_size")?)?)
}
