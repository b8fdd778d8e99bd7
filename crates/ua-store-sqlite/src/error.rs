//! Errors below the port, and what a person reads about them.

use rusqlite::ffi;
use ua_store::{Retry, RowRef, StoreError};

use crate::trouble::Trouble;

/// Either a refusal in the port's own words, or something SQLite says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    /// The port's own.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQLite's.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
}

impl DbError {
    /// The port's error for it.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => sql_error(error),
        }
    }

    /// Reads a violated UNIQUE as "this row exists".
    pub(crate) fn or_exists(error: rusqlite::Error, row: impl FnOnce() -> RowRef) -> Self {
        let is_unique = error.sqlite_error().is_some_and(|error| {
            matches!(error.extended_code, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY)
        });
        if is_unique { Self::Store(StoreError::Exists { row: row() }) } else { Self::Sql(error) }
    }
}

/// The database is the problem and a person has to act.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Unavailable { why: why.into(), source: None, retry: Retry::Never }
}

/// The database is the problem, for the reason `source` gives.
pub(crate) fn refused_because(
    why: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> StoreError {
    StoreError::Unavailable { why: why.into(), source: Some(Box::new(source)), retry: Retry::Never }
}

/// Puts an error of SQLite into a person's words.
pub(crate) fn sql_error(error: rusqlite::Error) -> StoreError {
    if code(&error) == Some(ffi::SQLITE_CONSTRAINT) {
        return StoreError::Conflict { row: RowRef::new("database", "constraint"), why: error.to_string() };
    }
    let (why, retry) = words(&error);
    StoreError::Unavailable { why: why.to_owned(), source: Some(Box::new(error)), retry }
}

/// What a person reads about `error`, and whether another try may help.
pub(crate) fn words(error: &rusqlite::Error) -> (&'static str, Retry) {
    let trouble = Trouble::of_sqlite(error);
    let other = if code(error).is_some() { "SQLite refused" } else { "a statement does not match the database" };
    (trouble.words().unwrap_or(other), trouble.retry())
}

/// The primary result code.
fn code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code & 0xFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_busy_database() {
        let error = |code| sql_error(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        let cases = [
            (ffi::SQLITE_FULL, "the disk is full", Retry::WithRoom),
            (ffi::SQLITE_IOERR_SHMSIZE, "the disk is full", Retry::WithRoom),
            (ffi::SQLITE_IOERR_FSYNC, "the disk failed to read or write", Retry::Never),
            (ffi::SQLITE_READONLY, "the database is read-only", Retry::Never),
            (ffi::SQLITE_CANTOPEN, "the database file cannot be opened", Retry::Never),
            (ffi::SQLITE_CORRUPT, "the database is damaged; restore a backup", Retry::Never),
            (ffi::SQLITE_NOTADB, "the file is not a database", Retry::Never),
            (ffi::SQLITE_BUSY_SNAPSHOT, "another process is using it; try again", Retry::Later),
        ];
        for (code, words, wanted) in cases {
            let StoreError::Unavailable { why, retry, source } = error(code) else { panic!("{code}") };
            assert_eq!((why.as_str(), retry, source.is_some()), (words, wanted, true), "{code}");
        }
    }
}
