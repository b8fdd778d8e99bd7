//! A database that moves to another engine: its rows as they are, while nobody writes.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use ua_core::Timestamp;
use ua_store::{Cell, StoreError};

use crate::error::{refused, refused_because, sql_error};
use crate::maintenance::keep_from_writing;
use crate::{open, pragma};

/// While this value lives no process writes to the database, and none takes a run.
#[derive(Debug)]
pub struct Departure {
    path: PathBuf,
    _migrations: File,
    connection: Connection,
}

impl Departure {
    /// Keeps others from the database at `path`.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it is none of ours, of an older schema, or another process keeps writing.
    pub fn begin(path: &Path) -> Result<Self, StoreError> {
        let migrations = open::migrate_lock(path)?;
        drop(open::inspector(path)?);
        let connection = keep_from_writing(path)?;
        let connection = connection.ok_or_else(|| refused(format!("{} cannot be opened", path.display())))?;
        Ok(Self { path: path.to_path_buf(), _migrations: migrations, connection })
    }

    /// Its tables, with their columns.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read.
    pub fn tables(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
                     AND name <> 'refinery_schema_history' ORDER BY name";
        let tables = self.texts(names)?.into_iter().map(|table| {
            // Where the rows of these lie is this file's own matter.
            let own = if matches!(table.as_str(), "messages" | "turns" | "usage") { "place" } else { "" };
            let sql = format!("SELECT name FROM pragma_table_info('{table}') WHERE name <> '{own}' ORDER BY cid");
            let columns = self.texts(&sql)?;
            Ok((table, columns))
        });
        tables.collect()
    }

    fn texts(&self, sql: &str) -> Result<Vec<String>, StoreError> {
        let texts = || -> rusqlite::Result<Vec<String>> {
            self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        texts().map_err(sql_error)
    }

    /// The next so many rows of a table behind the first `behind`, and how many that makes.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read.
    pub fn rows(
        &self,
        table: &str,
        columns: &[String],
        behind: usize,
        most: usize,
    ) -> Result<(usize, Vec<Vec<Cell>>), StoreError> {
        let read = || -> rusqlite::Result<Vec<Vec<Cell>>> {
            // Nothing is written meanwhile, so the order of the rows stays.
            let sql = format!("SELECT {} FROM \"{table}\" LIMIT {most} OFFSET {behind}", columns.join(", "));
            let mut statement = self.connection.prepare_cached(&sql)?;
            let rows = statement
                .query_map([], |row| (0..columns.len()).map(|column| Ok(cell(row.get_ref(column)?))).collect())?;
            rows.collect()
        };
        let rows = read().map_err(sql_error)?;
        Ok((behind + rows.len(), rows))
    }

    /// Says in the file that it was moved, so that nobody continues from it beside the server, puts it out of the way, log and all, and
    /// tells its new name.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be marked or renamed.
    pub fn finish(self, at: Timestamp) -> Result<PathBuf, StoreError> {
        let mark = format!("PRAGMA application_id = {}; COMMIT", pragma::MOVED_ID);
        self.connection.execute_batch(&mark).map_err(sql_error)?;
        // In the file itself, so that it says so without the log beside it. Somebody who still reads may keep it there, which goes along.
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
        let named = |suffix: &str, end: &str| {
            let mut name = OsString::from(&self.path);
            name.push(suffix);
            name.push(end);
            PathBuf::from(name)
        };
        let stamp = format!(".moved-{}", at.compact());
        for end in ["", "-wal", "-shm"] {
            match fs::rename(named("", end), named(&stamp, end)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(refused_because(format!("{} cannot be renamed", self.path.display()), error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(named(&stamp, ""))
    }
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        // No column of a strict table of ours is one.
        ValueRef::Real(number) => Cell::Text(number.to_string()),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}
