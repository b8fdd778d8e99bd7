//! A database that moves to a server: its rows as they are, while nobody writes.
//!
//! It is in one place at any moment, whenever its mover is killed. First the file says to which copy it is being given away, and takes nothing
//! more from anybody; then that copy is committed on the server, together with its name; then the file says that it arrived, and is put out of
//! the way. A file that is found between the first and the last of these is finished or taken back by whoever has looked whether the server
//! has the copy of that name.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension as _};
use ua_core::{ShowPath as _, Timestamp};
use ua_store::{Cell, StoreError};

use crate::beside::OwnLog;
use crate::error::{refused, refused_because, sql_error};
use crate::maintenance::keep_from_writing;
use crate::store::read_uuid;
use crate::{open, pragma, schema};

/// A copy to a server, as the file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copying {
    /// Its name, which no other copy has. The server has it once everything is there.
    pub id: String,
    /// What distinguishes the database on the server from every other one, as long as nothing was copied there.
    pub to: String,
    /// Where that is, for people.
    pub shown: String,
}

/// Where the database of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// In the file.
    Here,
    /// In the file or on a server: whoever moved it did not see the end of it.
    Leaving(Copying),
    /// On a server, and what was done there since is not in the file. Files that were moved by an earlier version do not name the copy.
    Left(Option<Copying>),
}

impl Standing {
    /// Looks at the file at `path`, which is not changed.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read, or is not this user's own.
    pub fn of(path: &Path) -> Result<Self, StoreError> {
        Self::in_file(&open::looked_at(&crate::source::Source::of(path))?)
    }

    fn in_file(connection: &Connection) -> Result<Self, StoreError> {
        open::at_once(connection, Self::in_file_now)
    }

    fn in_file_now(connection: &Connection) -> Result<Self, StoreError> {
        let application_id: i64 =
            connection.pragma_query_value(None, "application_id", |row| row.get(0)).map_err(sql_error)?;
        if application_id != pragma::MOVED_ID {
            return Ok(Self::Here);
        }
        let said = |key: &str| {
            let sql = "SELECT value FROM meta WHERE key = ?1";
            connection.query_row(sql, [key], |row| row.get::<_, String>(0)).optional().map_err(sql_error)
        };
        let copy = match (said(ID)?, said(TO)?, said(SHOWN)?) {
            (Some(id), Some(to), Some(shown)) => Some(Copying { id, to, shown }),
            (_, _, _) => None,
        };
        Ok(match copy {
            Some(copy) if said(ARRIVED)?.is_none() => Self::Leaving(copy),
            copy => Self::Left(copy),
        })
    }

    /// Refuses a database that is not in its file, or not known to be.
    pub(crate) fn refuse_away(connection: &Connection, path: &Path) -> Result<(), StoreError> {
        let path = path.shown();
        match Self::in_file(connection)? {
            Self::Here => Ok(()),
            Self::Leaving(Copying { shown, .. }) => Err(refused(format!(
                "{path} is being moved to the {shown} by a `ua db copy` that has not finished; with the URL of that server `ua db copy` \
                 finishes it, and `ua db copy --undo` keeps the database in the file"
            ))),
            Self::Left(copy) => {
                let to = copy.map_or_else(|| "a server".to_owned(), |copy| format!("the {}", copy.shown));
                Err(refused(format!(
                    "{path} was moved to {to} by `ua db copy`, and what was done there since is not in it; if nothing was, \
                     `ua db copy --undo --force` makes it usable again"
                )))
            }
        }
    }
}

/// The keys of `meta` that name the copy: in the file all of them, on the server the first.
const ID: &str = "copy";
const TO: &str = "copy_to";
const SHOWN: &str = "copy_shown";
const ARRIVED: &str = "copy_arrived";

/// While this value lives no process writes to the database, and none takes a run.
#[derive(Debug)]
pub struct Departure {
    file: Kept,
    standing: Standing,
}

/// A database that says it is being given away, and that nobody writes to whatever becomes of this value.
#[derive(Debug)]
pub struct UnderWay {
    file: Kept,
    copy: Copying,
}

#[derive(Debug)]
struct Kept {
    path: PathBuf,
    _migrations: File,
    connection: Connection,
    own_log: OwnLog,
}

impl Departure {
    /// Keeps others from the database at `path`.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it is none of ours, of an older schema, or another process keeps writing.
    pub fn begin(path: &Path) -> Result<Self, StoreError> {
        let migrations = open::migrate_lock(path)?;
        let standing = Standing::of(path)?;
        match &standing {
            Standing::Here => drop(open::inspector(path)?),
            Standing::Leaving(_) | Standing::Left(_) => {}
        }
        let connection = keep_from_writing(path)?;
        let connection = connection.ok_or_else(|| refused(format!("{} cannot be opened", path.shown())))?;
        let mut own_log = OwnLog::default();
        if let Ok(identity) = read_uuid(&connection) {
            own_log = OwnLog::of(path, &identity)?;
            own_log.before()?;
        }
        Ok(Self { file: Kept { path: path.to_path_buf(), _migrations: migrations, connection, own_log }, standing })
    }

    /// Where the database is as far as its file knows.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Its tables, with their columns.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be read, or a copy of it was begun by a program with another schema.
    pub fn tables(&self) -> Result<Vec<(String, Vec<String>)>, StoreError> {
        let version = "SELECT coalesce(max(version), 0) FROM refinery_schema_history";
        let version: i64 = self.file.connection.query_row(version, [], |row| row.get(0)).map_err(sql_error)?;
        if version != schema::OURS {
            return Err(refused(format!(
                "{} has schema {version}, and this program's is {}; keep the database in the file with `ua db copy --undo`, and begin again",
                self.file.path.shown(),
                schema::OURS
            )));
        }
        let tables = self.file.tables()?.into_iter().map(|table| {
            // Where the rows of these lie is this file's own matter.
            let own = if matches!(table.as_str(), "messages" | "turns" | "usage") { "place" } else { "" };
            let sql = format!("SELECT name FROM pragma_table_info('{table}') WHERE name <> '{own}' ORDER BY cid");
            let columns = self.file.texts(&sql)?;
            Ok((table, columns))
        });
        tables.collect()
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
            let mut statement = self.file.connection.prepare_cached(&sql)?;
            let rows = statement
                .query_map([], |row| (0..columns.len()).map(|column| Ok(cell(row.get_ref(column)?))).collect())?;
            rows.collect()
        };
        let rows = read().map_err(sql_error)?;
        Ok((behind + rows.len(), rows))
    }

    /// Says in the file that it is given away to this copy: from here on it takes nothing from anybody, whatever has it open.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be written.
    pub fn leave(mut self, copy: Copying) -> Result<UnderWay, StoreError> {
        self.file.mark(&copy, None)?;
        Ok(UnderWay { file: self.file, copy })
    }

    /// The same of one that says so already.
    pub fn under_way(self, copy: Copying) -> UnderWay {
        UnderWay { file: self.file, copy }
    }

    /// Takes the database back: it is in the file again. For whoever knows that it is nowhere else.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be written.
    pub fn take_back(mut self) -> Result<(), StoreError> {
        self.file.allow_writes()?;
        let sql = format!(
            "DELETE FROM meta WHERE key IN ('{ID}', '{TO}', '{SHOWN}', '{ARRIVED}'); PRAGMA application_id = {}; COMMIT",
            pragma::APPLICATION_ID
        );
        self.file.connection.execute_batch(&sql).map_err(sql_error)?;
        self.file.carry_over();
        Ok(())
    }
}

impl UnderWay {
    /// Says in the file that everything arrived, puts it out of the way, log and all, and tells its new name.
    ///
    /// # Errors
    ///
    /// `Unavailable` when it cannot be marked or renamed.
    pub fn arrived(self, at: Timestamp) -> Result<PathBuf, StoreError> {
        let Self { mut file, copy } = self;
        if file.connection.is_autocommit() {
            file.connection.execute_batch("BEGIN IMMEDIATE").map_err(sql_error)?;
            file.own_log.before()?;
        }
        file.mark(&copy, Some(at))?;
        let named = |suffix: &str, end: &str| {
            let mut name = OsString::from(&file.path);
            name.push(suffix);
            name.push(end);
            PathBuf::from(name)
        };
        let stamp = format!(".moved-{}", at.compact());
        for end in ["", "-wal", "-shm"] {
            match fs::rename(named("", end), named(&stamp, end)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(refused_because(format!("{} cannot be renamed", file.path.shown()), error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(named(&stamp, ""))
    }
}

impl Kept {
    fn texts(&self, sql: &str) -> Result<Vec<String>, StoreError> {
        let texts = || -> rusqlite::Result<Vec<String>> {
            self.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        texts().map_err(sql_error)
    }

    fn tables(&self) -> Result<Vec<String>, StoreError> {
        self.texts(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' \
             AND name <> 'refinery_schema_history' ORDER BY name",
        )
    }

    /// Marks the file and ends the transaction. Processes that have it open asked what it is long ago, so it is said to each of their writes.
    fn mark(&mut self, copy: &Copying, arrived: Option<Timestamp>) -> Result<(), StoreError> {
        self.allow_writes()?;
        let Copying { id, to, shown } = copy;
        let arrived = arrived.map(|at| at.to_string());
        let said = [(ID, Some(id)), (TO, Some(to)), (SHOWN, Some(shown)), (ARRIVED, arrived.as_ref())];
        for (key, value) in said.iter().filter_map(|(key, value)| Some((key, (*value)?))) {
            let sql =
                "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            self.connection.execute(sql, [*key, value.as_str()]).map_err(sql_error)?;
        }
        let mut script = format!("PRAGMA application_id = {};", pragma::MOVED_ID);
        for table in self.tables()? {
            for write in WRITES {
                script.push_str(&format!(
                    "CREATE TRIGGER \"{MARK}{table}_{write}\" BEFORE {write} ON \"{table}\" BEGIN \
                     SELECT RAISE(ABORT, 'the database was given to a server by `ua db copy`; nothing was written'); END;"
                ));
            }
        }
        script.push_str("COMMIT");
        self.connection.execute_batch(&script).map_err(sql_error)?;
        self.carry_over();
        Ok(())
    }

    /// Ends what [`mark`](Self::mark) said to writes.
    fn allow_writes(&self) -> Result<(), StoreError> {
        let sql = format!(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND substr(name, 1, {}) = '{MARK}'",
            MARK.len()
        );
        let script: Vec<String> =
            self.texts(&sql)?.into_iter().map(|name| format!("DROP TRIGGER \"{name}\";")).collect();
        self.connection.execute_batch(&script.concat()).map_err(sql_error)
    }

    /// Puts what was said into the file itself, so that it says so without the log beside it. Somebody who still reads may keep it there,
    /// where it goes along.
    fn carry_over(&mut self) {
        if let Err(error) = self.own_log.after() {
            tracing::debug!(%error, "the log of a database that is given away may be refused");
        }
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).ok();
    }
}

/// How the triggers are called that refuse every write.
const MARK: &str = "given_away_";
/// Everything that changes a table.
const WRITES: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];

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
