//! A few read-only connections. What reads a few rows by their keys is done where it is asked for: handing it to another thread and back
//! costs more than the read. What may be long is done on a blocking thread.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use ua_store::StoreError;

use crate::db::Db;
use crate::error::{DbError, refused, refused_because, sql_error};
use crate::open;
use crate::pragma::say;
use crate::source::Source;

/// What a read found.
type Found = Box<dyn Any + Send>;

/// A read on one snapshot.
type Work = Box<dyn FnOnce(&Db<'_>) -> Result<Found, DbError> + Send>;

/// Reads that may run at once.
const READERS: usize = 4;

/// The connections that are not in use, and the right to use one.
#[derive(Debug)]
pub(crate) struct Readers {
    pool: Arc<Pool>,
    permits: Arc<Semaphore>,
}

/// The connections that are not in use.
#[derive(Debug)]
pub(crate) struct Pool {
    source: Source,
    idle: Mutex<Vec<Connection>>,
}

impl Pool {
    /// Runs `work` on one snapshot of the database.
    pub(crate) fn snapshot<T>(&self, work: impl FnOnce(&Db<'_>) -> Result<T, DbError>) -> Result<T, StoreError> {
        let pooled = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = pooled.map_or_else(|| open::reader(&self.source), Ok)?;
        say(&connection, "BEGIN").map_err(sql_error)?;
        let outcome = work(&Db::new(&connection)).map_err(DbError::into_store);
        // A connection that keeps its snapshot would answer the next question from the past.
        if connection.is_autocommit() || say(&connection, "ROLLBACK").is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        self.source.check().and(outcome)
    }
}

impl Readers {
    /// Makes the pool; connections are opened when they are needed.
    pub(crate) fn new(source: Source, first: Option<Connection>) -> Self {
        let pool = Pool { source, idle: Mutex::new(first.into_iter().collect()) };
        Self { pool: Arc::new(pool), permits: Arc::new(Semaphore::new(READERS)) }
    }

    /// Where is read.
    pub(crate) fn source(&self) -> &Source {
        &self.pool.source
    }

    /// The connections, for a read that uses two.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.pool)
    }

    /// Reads a few rows by their keys, on one snapshot of the database and on the caller's thread.
    pub(crate) async fn look<T>(&self, work: impl FnOnce(&Db<'_>) -> Result<T, DbError>) -> Result<T, StoreError> {
        let _permit = self.permits.acquire().await.map_err(|_| closed())?;
        self.pool.snapshot(work)
    }

    /// Runs `work`, which may be long, on one snapshot of the database.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Db<'_>) -> Result<T, DbError> + Send + 'static,
    {
        let found = self.find(Box::new(move |db| work(db).map(|found| Box::new(found) as Found))).await?;
        Ok(*found.downcast::<T>().unwrap_or_else(|_| unreachable!("a read gives what it was asked for")))
    }

    /// Apart from [`Self::read`], because the runtime's side of a task is long and would be compiled for each of some thirty reads.
    async fn find(&self, work: Work) -> Result<Found, StoreError> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
        let pool = Arc::clone(&self.pool);
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            pool.snapshot(work)
        });
        reading.await.map_err(|error| refused_because("a read was broken off", error))?
    }

    /// Does what may take long and reads nothing of the database, where the runtime does not wait for it.
    pub(crate) async fn beside<T: Send + 'static>(
        work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        tokio::task::spawn_blocking(work).await.map_err(|error| refused_because("a read was broken off", error))?
    }

    /// Closes the connections that are not in use.
    pub(crate) fn close(&self) {
        self.permits.close();
        self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn closed() -> StoreError {
    refused("the store is closed")
}
