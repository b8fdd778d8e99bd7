//! The store of a simulation: the model in memory, or SQLite on a disk that lasts as long as the simulation.

use std::path::Path;
use std::sync::Arc;

use ua_core::{RunId, Timestamp};
use ua_store::{MemStore, Store, StoreError};
use ua_store_sqlite::{SqliteConfig, SqliteStore};

use super::task::block_on;

/// Which store a simulation runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimStore {
    /// The model in memory.
    Memory,
    /// The runtime database.
    Sqlite,
}

impl SimStore {
    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
        }
    }
}

/// A store, and a way to know that it is at rest.
pub(super) struct StageStore {
    pub(super) port: Arc<dyn Store>,
    sqlite: Option<OnThreads>,
}

/// SQLite works on threads of its own: one writes, and one reads since the runtime has no more.
struct OnThreads {
    runtime: tokio::runtime::Runtime,
    nobody: RunId,
}

impl StageStore {
    pub(super) fn open(kind: SimStore, folder: &Path) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        if kind == SimStore::Memory {
            return Ok(Self { port: Arc::new(MemStore::default()), sqlite: None });
        }
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build()?;
        let config = SqliteConfig { effects_log: false, ..SqliteConfig::new(folder.join("runtime_state.db")) };
        let port = Arc::new(SqliteStore::open(config)?);
        Ok(Self { port, sqlite: Some(OnThreads { runtime, nobody: RunId::parse("run_nobody")? }) })
    }

    /// Reads need the runtime's thread.
    pub(super) fn enter(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        self.sqlite.as_ref().map(|sqlite| sqlite.runtime.enter())
    }

    /// Waits until every read and write that was asked for before is done and answered: each thread takes them in order, so one
    /// more on each, about a run that there is not, comes last.
    pub(super) fn rest(&self) -> Result<(), StoreError> {
        let Some(OnThreads { nobody, .. }) = &self.sqlite else { return Ok(()) };
        let last_write = block_on(self.port.request_cancel(nobody, "", Timestamp::from_millis(0)));
        let last_read = block_on(self.port.run(nobody));
        match (last_write, last_read) {
            (Err(StoreError::NotFound { .. }), Err(StoreError::NotFound { .. })) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error),
            (Ok(_), Ok(_)) => unreachable!("a simulation has no run of this name"),
        }
    }
}
