//! The file that memories live in, and the one way to change it.
//!
//! A change and the note of its idempotency key are one transaction, so a change asked for again under its key is found
//! wherever the first attempt was cut short (Durable Jobs v1 spec §7.3, §8.2). Several servers may use one file at once.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ua_core::{ShowPath as _, Timestamp};

use crate::answer::Failure;
use crate::digest::sha256_hex;

/// `UAMM`, in the file's header: this database is ours.
const APPLICATION_ID: i64 = 0x5541_4D4D;
const VERSION: i64 = 1;
const SCHEMA: &str = include_str!("schema.sql");
/// How long a call waits for another server's change.
const PATIENCE: Duration = Duration::from_secs(10);

/// A memory database; opened, and made, when it is first used.
#[derive(Debug)]
pub(super) struct Database {
    path: PathBuf,
    connection: Mutex<Option<Connection>>,
}

/// One change: which tool, under which key, with which arguments.
#[derive(Debug)]
pub(super) struct Change<'a> {
    pub(super) tool: &'static str,
    pub(super) key: Option<&'a str>,
    /// The arguments, in a form that is the same for the same change.
    pub(super) arguments: &'a str,
    pub(super) at: Timestamp,
}

/// What a change came to.
#[derive(Debug)]
pub(super) struct Applied<T> {
    pub(super) value: T,
    /// Whether an earlier call with the same key had made it.
    pub(super) before: bool,
}

impl Database {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, connection: Mutex::new(None) }
    }

    pub(super) fn read<T>(&self, query: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        self.with(|connection| {
            query(connection).map_err(|error| could_not(&format!("read the memory {}", self.path.shown()), &error))
        })
    }

    /// Makes a change, once per key. `work` runs inside the transaction; what it refuses is not noted.
    pub(super) fn apply<T: Serialize + DeserializeOwned>(
        &self,
        change: &Change<'_>,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<Applied<T>, Failure> {
        self.with(|connection| {
            let failed =
                |error: &rusqlite::Error| could_not(&format!("change the memory {}", self.path.shown()), error);
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| failed(&e))?;
            if let Some(key) = change.key
                && let Some(value) = earlier(&transaction, key, change)?
            {
                return Ok(Applied { value, before: true });
            }
            let value = work(&transaction)?;
            if let Some(key) = change.key {
                note(&transaction, key, change, &value)?;
            }
            // Up to here an error means that nothing was changed; a commit that fails may have reached the disk.
            transaction.commit().map_err(|error| match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy) => failed(&error),
                _ => Failure::Unclear(format!("could not commit a change to the memory: {error}")),
            })?;
            Ok(Applied { value, before: false })
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match slot.as_mut() {
            Some(connection) => connection,
            None => slot.insert(self.open()?),
        };
        work(connection)
    }

    fn open(&self) -> Result<Connection, Failure> {
        let failed = |error: &rusqlite::Error| could_not(&format!("open the memory {}", self.path.shown()), error);
        if let Some(parent) = self.path.parent() {
            std::fs::create_dir_all(parent)
                .map_err(|error| Failure::io(format_args!("make the folder of {}", self.path.shown()), &error))?;
        }
        let mut connection = Connection::open(&self.path).map_err(|e| failed(&e))?;
        connection.busy_timeout(PATIENCE).map_err(|e| failed(&e))?;
        // Whose file it is is asked before anything is written into it.
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(|e| failed(&e))?;
        let number = |pragma: &str| {
            transaction.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).map_err(|e| failed(&e))
        };
        let (application, version) = (number("application_id")?, number("user_version")?);
        let objects: i64 = transaction
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(|e| failed(&e))?;
        match (application, version, objects) {
            (0, 0, 0) => {
                transaction.execute_batch(SCHEMA).map_err(|e| failed(&e))?;
                transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(|e| failed(&e))?;
                transaction.pragma_update(None, "user_version", VERSION).map_err(|e| failed(&e))?;
            }
            (APPLICATION_ID, VERSION, _) => {}
            (APPLICATION_ID, newer, _) => {
                return Err(Failure::refused(
                    format!("the memory {} has version {newer}, this server knows {VERSION}", self.path.shown()),
                    "ask a person to update the server",
                ));
            }
            _ => {
                return Err(Failure::refused(
                    format!("{} is a database of something else", self.path.shown()),
                    "ask a person to name another file with --memory",
                ));
            }
        }
        transaction.commit().map_err(|e| failed(&e))?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
                 PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;",
            )
            .map_err(|e| failed(&e))?;
        Ok(connection)
    }
}

/// What the change answered that was made under `key`, if one was.
fn earlier<T: DeserializeOwned>(
    transaction: &Transaction<'_>,
    key: &str,
    change: &Change<'_>,
) -> Result<Option<T>, Failure> {
    let row: Option<(String, String, String)> = transaction
        .prepare_cached("SELECT tool, args_sha256, result_json FROM applied_keys WHERE idempotency_key = ?1")
        .and_then(|mut statement| {
            statement.query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
        })
        .map_err(|error| could_not("look up the key in the memory", &error))?;
    let Some((tool, args_sha256, result)) = row else {
        return Ok(None);
    };
    if tool != change.tool || args_sha256 != sha256_hex(change.arguments) {
        return Err(Failure::refused(
            format!("this idempotency key was used for another change, made by {tool}"),
            "use a new key for a new change",
        ));
    }
    serde_json::from_str(&result)
        .map(Some)
        .map_err(|error| Failure::Unclear(format!("what {tool} answered under this key cannot be read: {error}")))
}

fn note<T: Serialize>(transaction: &Transaction<'_>, key: &str, change: &Change<'_>, value: &T) -> Result<(), Failure> {
    let result = serde_json::to_string(value)
        .map_err(|error| Failure::refused(format!("could not write down the result: {error}"), "use plain text"))?;
    transaction
        .prepare_cached("INSERT INTO applied_keys VALUES (?1, ?2, ?3, ?4, ?5)")
        .and_then(|mut statement| {
            statement.execute((key, change.tool, sha256_hex(change.arguments), result, change.at.to_string()))
        })
        .map(|_| ())
        .map_err(|error| could_not("note the key in the memory", &error))
}

/// Nothing was changed: SQLite takes back what a transaction did when it cannot go on.
pub(super) fn could_not(action: &str, error: &rusqlite::Error) -> Failure {
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "another process holds it; try again",
        Some(ErrorCode::DiskFull) => "the disk is full; a person has to make room",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "the file is damaged or no memory; a person has to put a copy back, or name another with --memory"
        }
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => {
            "a person has to look at the rights of the file and its folder"
        }
        _ => "ask a person to look at the file",
    };
    Failure::refused(format!("could not {action}: {error}"), hint)
}
