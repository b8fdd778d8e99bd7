//! The store: a writer, some readers, and the order in which they are opened and closed.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ua_store::{Author, Durability, RunLease, StoreError};

use crate::config::SqliteConfig;
use crate::db::Db;
use crate::effects::{EffectsLog, Writes};
use crate::error::{DbError, refused, sql_error};
use crate::mirror::{self, Mirror};
use crate::open::{self, FileIdentity};
use crate::readers::{Pool, Readers};
use crate::source::Source;
use crate::standing_rows::Behind;
use crate::writer::{Batches, Writer};

/// A run that was written so often in a row works alone.
const ALONE: u32 = 8;

/// The runtime database of one process. Reads need a tokio runtime; writes run on a thread of their own.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    pub(crate) own: Writes,
    readers: Readers,
    /// `None` in a store that was opened for inspection.
    writer: Option<Writer>,
    /// Which file was opened.
    identity: FileIdentity,
    /// What lies behind the run that was read last as it stands, for the next such reading.
    pub(crate) behind: Arc<Mutex<Option<Behind>>>,
    /// Under which lease a run was written last, and how often in a row.
    last_owner: Mutex<Option<(RunLease, u32)>>,
    /// Why a line of `effects.log` was not written, the first time.
    pub(crate) unnoted: Arc<OnceLock<String>>,
}

impl SqliteStore {
    /// Opens the database, making and migrating it as needed. Blocks; a few milliseconds, or more after a crash.
    ///
    /// # Errors
    ///
    /// `Unavailable` when the database is missing although it is expected, damaged, another program's, of a newer schema,
    /// on an unsafe file system, or cannot be opened; it is left as it is then.
    pub fn open(config: SqliteConfig) -> Result<Self, StoreError> {
        let (connection, identity, own_log) = open::writer(&config)?;
        let own = Writes::of(read_uuid(&connection)?, &config.path);
        let unnoted: Arc<OnceLock<String>> = Arc::default();
        let log = config
            .effects_log
            .then(|| EffectsLog::new(open::folder_of(&config.path).join("effects.log"), own.clone(), unnoted.clone()));
        let writer = Writer::start(connection, own_log, log)?;
        let readers = Readers::new(Source::written_here(&config.path), None);
        Ok(Self {
            path: config.path,
            own,
            readers,
            writer: Some(writer),
            identity,
            behind: Arc::default(),
            last_owner: Mutex::default(),
            unnoted,
        })
    }

    /// Opens the database for inspection: nothing is created or migrated, and every write is refused.
    pub fn open_read_only(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let source = Source::of(&path);
        let connection = open::inspect(&source)?;
        let own = Writes::of(read_uuid(&connection)?, &path);
        let identity = FileIdentity::of(&path)?;
        let readers = Readers::new(source, Some(connection));
        let (behind, last_owner, unnoted) = (Arc::default(), Mutex::default(), Arc::default());
        Ok(Self { path, own, readers, writer: None, identity, behind, last_owner, unnoted })
    }

    /// Tells this database from every other, and from a new one at the same path.
    pub fn db_uuid(&self) -> &str {
        &self.own.uuid
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many transactions this store committed; `None` when it was opened for inspection.
    pub fn batches(&self) -> Option<Batches> {
        self.writer.as_ref().map(Writer::batches)
    }

    /// Finishes waiting writes, truncates the write-ahead log and closes the database. Blocks. Dropping the store does the
    /// same, but only logs what goes wrong.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.readers.close();
        self.writer.as_mut().map_or(Ok(()), Writer::close)
    }

    pub(crate) async fn write<T, F>(
        &self,
        operation: Cow<'static, str>,
        durability: Durability,
        by: &Author,
        work: F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> Result<T, DbError> + Send + 'static,
    {
        let writer = self.writer.as_ref().ok_or_else(|| refused("it was opened for inspection only"))?;
        writer.write(&operation, durability, self.works_alone(by), work).await
    }

    /// Whether one run alone has written lately, and this is it.
    fn works_alone(&self, by: &Author) -> bool {
        let Author::Owner(lease) = by else { return false };
        let mut last = self.last_owner.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match last.take() {
            Some((known, count)) if known == *lease => count.saturating_add(1),
            _ => 0,
        };
        *last = Some((lease.clone(), count));
        count >= ALONE
    }

    /// Which file was opened. What needs no lease checks it inside its transaction: whoever puts another file in its place takes the write
    /// lock, so the look comes before that or after it.
    pub(crate) fn place(&self) -> FileIdentity {
        self.identity.clone()
    }

    /// Reads a few rows by their keys.
    pub(crate) async fn look<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        F: FnOnce(&Db<'_>) -> Result<T, DbError>,
    {
        let work = match &self.writer {
            Some(writer) => match writer.look(work) {
                Ok(found) => return found.map_err(DbError::into_store),
                Err(work) => work,
            },
            None => work,
        };
        self.readers.look(work).await
    }

    /// Where readers read.
    pub(crate) fn source(&self) -> &Source {
        self.readers.source()
    }

    /// What `effects.log` says by now. It grows with all that was ever sent, so the threads of the runtime, on which others work, do not read it.
    pub(crate) async fn mirror(&self) -> Result<Mirror, StoreError> {
        let (log, own) = (self.effects_log(), self.own.clone());
        Readers::beside(move || mirror::read(&log, &own)).await
    }

    /// Whether `effects.log` knows anything that the database does not, accepted or not.
    ///
    /// # Errors
    /// The database or the log cannot be read.
    pub async fn is_older_copy(&self) -> Result<bool, StoreError> {
        let log = self.mirror().await?;
        if log.knows_nothing() {
            return Ok(false);
        }
        self.read(move |db| Ok(!log.unknown_to(db)?.is_empty())).await
    }

    /// The connections of readers, for a read that uses two.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        self.readers.pool()
    }

    /// Reads what may be long.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> Result<T, DbError> + Send + 'static,
    {
        self.readers.read(work).await
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Readers first: the last connection that closes is the writer's, and it removes the log.
        self.readers.close();
    }
}

/// The identity of a database.
pub(crate) fn read_uuid(connection: &rusqlite::Connection) -> Result<String, StoreError> {
    connection.query_row("SELECT value FROM meta WHERE key = 'db_uuid'", [], |row| row.get(0)).map_err(sql_error)
}
