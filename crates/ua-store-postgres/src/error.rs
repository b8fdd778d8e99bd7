//! Errors below the port, and what a person reads about them.

use tokio_postgres::error::SqlState;
use ua_store::{Retry, RowRef, StoreError};

use crate::dialling::why_not;

/// Either a refusal in the port's own words, or something PostgreSQL says.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DbError {
    /// The port's own.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// PostgreSQL's, or the connection's.
    #[error(transparent)]
    Sql(#[from] tokio_postgres::Error),
    /// Something has to be read, where a write is computed from what is known.
    #[error("it is not known without asking the server")]
    NotKnown,
}

impl DbError {
    /// The port's error for it.
    pub(crate) fn into_store(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Sql(error) => sql_error(error),
            error @ Self::NotKnown => refused(error.to_string()),
        }
    }

    /// Whether a rule or a constraint refused it: the server and the connection are well.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Store(error) => error.is_refusal(),
            Self::Sql(error) => error.code().is_some_and(is_constraint),
            Self::NotKnown => false,
        }
    }

    /// Whether it may be that the schema is not the one that this program knows: what a write begins with divides by zero then.
    pub(crate) fn may_be_of_the_schema(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        let states = [SqlState::DIVISION_BY_ZERO, SqlState::UNDEFINED_TABLE];
        error.code().is_some_and(|code| states.contains(code))
    }

    /// Whether the server gave the transaction up for another one's sake: nothing of it is there, and the same again may pass.
    pub(crate) fn gave_way(&self) -> bool {
        let Self::Sql(error) = self else { return false };
        error
            .code()
            .is_some_and(|code| [SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE].contains(code))
    }

    /// Reads a violated UNIQUE as "this row exists".
    pub(crate) fn or_exists(error: tokio_postgres::Error, row: Option<&RowRef>) -> Self {
        match row {
            Some(row) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                Self::Store(StoreError::Exists { row: row.clone() })
            }
            Some(_) | None => Self::Sql(error),
        }
    }
}

/// Whether a guard refused what was computed from what is known, or a constraint did, or the server gave it up for another one's sake: what is
/// known is no longer so, and the same has to be done from what is read.
pub(crate) fn is_out_of_date(error: &tokio_postgres::Error) -> bool {
    let given_up = [SqlState::DIVISION_BY_ZERO, SqlState::T_R_DEADLOCK_DETECTED, SqlState::T_R_SERIALIZATION_FAILURE];
    error.code().is_some_and(|code| is_constraint(code) || given_up.contains(code))
}

fn is_constraint(code: &SqlState) -> bool {
    code.code().starts_with("23")
}

/// The database is the problem and a person has to act.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Unavailable { why: why.into(), source: None, retry: Retry::Never }
}

/// The database is the problem, for the reason `source` gives.
pub(crate) fn unavailable(
    why: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
    retry: Retry,
) -> StoreError {
    StoreError::Unavailable { why: why.into(), source: Some(Box::new(source)), retry }
}

/// Puts an error of PostgreSQL into a person's words.
pub(crate) fn sql_error(error: tokio_postgres::Error) -> StoreError {
    if error.code().is_some_and(is_constraint) {
        let why = error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
        return StoreError::Conflict { row: RowRef::new("database", "constraint"), why };
    }
    if let Some(why) = why_not(&error) {
        return StoreError::Unavailable { why, source: None, retry: Retry::Later };
    }
    let (why, retry) = words(error.code());
    unavailable(why, error, retry)
}

/// Whether a server takes no writes, which may end by itself when another one takes over.
pub fn is_read_only(error: &StoreError) -> bool {
    let StoreError::Unavailable { source: Some(source), .. } = error else { return false };
    let told = source.downcast_ref::<tokio_postgres::Error>().and_then(tokio_postgres::Error::code);
    told == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// What a person reads about a state, and whether another try may help. Without a state it is the connection that failed.
pub(crate) fn words(code: Option<&SqlState>) -> (String, Retry) {
    let Some(code) = code else { return ("the connection to PostgreSQL failed".to_owned(), Retry::Later) };
    let (words, retry) = match code.code() {
        "40001" | "40P01" => ("another writer was in the way; try again", Retry::Later),
        "55P03" => ("another writer holds what this one needs; try again", Retry::Later),
        "57014" => ("the server cancelled the statement", Retry::Later),
        "53300" => {
            ("PostgreSQL has no connection left; raise max_connections, or put a pooler in front of it", Retry::Later)
        }
        "25006" => ("the server is read-only, as a standby is; connect to the primary", Retry::Later),
        "57P01" | "57P02" | "57P03" | "57P05" => ("the server is shutting down or starting up", Retry::Later),
        "53100" => ("the server's disk is full", Retry::WithRoom),
        "53200" => ("the server ran out of memory", Retry::Later),
        "58030" => ("the server's disk failed to read or write", Retry::Never),
        "XX001" | "XX002" => ("the database is damaged; restore a backup", Retry::Never),
        "42501" => ("this user may not do that in the database", Retry::Never),
        "28000" | "28P01" => ("the server does not accept this user or password", Retry::Never),
        "3D000" => ("the server has no database of that name", Retry::Never),
        code if code.starts_with("08") => ("the connection to PostgreSQL failed", Retry::Later),
        code if code.starts_with("42") => ("a statement does not match the database", Retry::Never),
        _ => return (format!("PostgreSQL refused (SQLSTATE {})", code.code()), Retry::Never),
    };
    (words.to_owned(), retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_a_server_that_restarts() {
        let cases = [
            (Some(SqlState::DISK_FULL), Retry::WithRoom),
            (Some(SqlState::ADMIN_SHUTDOWN), Retry::Later),
            (Some(SqlState::CANNOT_CONNECT_NOW), Retry::Later),
            (Some(SqlState::READ_ONLY_SQL_TRANSACTION), Retry::Later),
            (Some(SqlState::INSUFFICIENT_PRIVILEGE), Retry::Never),
            (Some(SqlState::T_R_DEADLOCK_DETECTED), Retry::Later),
            (Some(SqlState::UNDEFINED_TABLE), Retry::Never),
            (None, Retry::Later),
        ];
        for (code, wanted) in cases {
            assert_eq!(words(code.as_ref()).1, wanted, "{code:?}");
        }
    }
}
